"""`omidpy table create`, `drop` and `truncate`: operations that survive the death of this process.

Without `--apply` each only looks.  With it, an operation is submitted and run here until it is
finished; killed half-way, `omidpy fate run` finishes it, and so does the next of these commands.
Whoever gives the same one again means the table that is there by then: an operation that is under
way is gone on with, and behind its end, which nobody may have heard of, the next table of the name
is dropped or emptied.  So `drop` and `truncate` say which incarnation they mean, and take it
(`--incarnation`): with that, the same command may be given as often as one likes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Final, TypeAlias

import typer

from omidpy import admin
from omidpy.admin.tables import check_which
from omidpy.base.schema.table_settings import TABLE, settings_by_name
from omidpy.base.timing.clock import SystemClock
from omidpy.base.words.arguments import check_table_name
from omidpy.cli.common import Apply, AsJson, StoreUrl, TsoAddress, opened, print_json, say
from omidpy.cli.ending import EXIT_INTERRUPTED
from omidpy.cli.options import as_parameters, taking
from omidpy.connect import connect
from omidpy.errors import OracleError, StorageUnavailable, UsageError
from omidpy.facts.tables.catalog import CONFLICT_LEVELS, DEFAULT_CONFLICT_LEVEL, Catalog
from omidpy.fate.client import OperationHandle
from omidpy.fate.operation import Operation
from omidpy.manager import TransactionManager
from omidpy.storage.base import Store

Name: TypeAlias = Annotated[str, typer.Argument(help="The table.")]
Only: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--incarnation",
        metavar="ID",
        help="Which one of its name, as it is shown without --apply: another one is left as it is, "
        "so that the command can be given again where nobody knows how it has ended.",
    ),
]


def _with_settings(verb: Callable[..., None]) -> Callable[..., None]:
    """Hand what a table may ask of compactions to a verb as its first argument."""
    return taking(verb, as_parameters(TABLE), settings_by_name, before="store")


@_with_settings
def create(
    settings: dict[str, object],
    name: Name,
    *,
    families: Annotated[
        str, typer.Option("--families", metavar="A,B", help="Its column families.")
    ],
    splits: Annotated[
        str | None,
        typer.Option("--splits", metavar="A,B", help="Row keys at which its regions meet."),
    ] = None,
    conflict_level: Annotated[
        str,
        typer.Option(
            "--conflict-level",
            metavar="|".join(CONFLICT_LEVELS),
            help="What every client of the table detects conflicts by.",
        ),
    ] = DEFAULT_CONFLICT_LEVEL,
    store: StoreUrl,
    tso: TsoAddress = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Make a transactional table.

    Transactions that are running and wrote an earlier table of this name abort.
    """
    wanted = _names("--families", families)
    keys = [] if splits is None else _names("--splits", splits)

    def look(open_store: Store) -> str:
        clock = SystemClock()
        catalog = Catalog(open_store, clock, conflict_level=conflict_level)
        catalog.check_absent(catalog.plan(name, wanted, keys, settings).schema.name)
        return ""

    _change(
        name,
        lambda tm: admin.creation(tm, name, wanted, keys, settings),
        look,
        "create",
        store=store,
        tso=tso,
        apply=apply,
        as_json=as_json,
        conflict_level=conflict_level,
    )


def drop(
    name: Name,
    *,
    only: Only = None,
    store: StoreUrl,
    tso: TsoAddress = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Remove a transactional table with everything in it.

    Transactions that are running and wrote it abort.
    """
    _change(
        name,
        lambda tm: admin.removal(tm, name, only=only),
        lambda open_store: check_which(open_store, check_table_name(name), only),
        "drop",
        store=store,
        tso=tso,
        apply=apply,
        as_json=as_json,
    )


def truncate(
    name: Name,
    *,
    only: Only = None,
    store: StoreUrl,
    tso: TsoAddress = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Replace a transactional table by an empty one of the same families, options and regions.

    Transactions that are running and wrote it abort, and snapshots of earlier moments are refused.
    """
    _change(
        name,
        lambda tm: admin.truncation(tm, name, only=only),
        lambda open_store: check_which(open_store, check_table_name(name), only),
        "truncate",
        store=store,
        tso=tso,
        apply=apply,
        as_json=as_json,
    )


SAY_S: Final = 60.0
"""How often it is said again what an operation waits for."""

_DONE: Final = {"create": "created", "drop": "dropped", "truncate": "truncated"}


def _change(
    name: str,
    change: Callable[[TransactionManager], admin.TableChange],
    look: Callable[[Store], str],
    verb: str,
    *,
    store: str,
    tso: str | None,
    apply: bool,
    as_json: bool,
    conflict_level: str = DEFAULT_CONFLICT_LEVEL,
) -> None:
    """Do it, or look whether it could be done, and which incarnation would go."""
    # Why an operation fails is told once, as the error of the verb.
    logging.getLogger("omidpy.fate").addHandler(logging.NullHandler())
    handles: list[OperationHandle] = []
    was_made_by_another = False
    which = ""
    with opened(store, only_looks=not apply) as open_store:
        if not apply:
            which = look(open_store)
    if apply:
        with connect(store, tso=tso, conflict_level=conflict_level) as tm:
            asked = change(tm)
            which = asked.removes
            with _telling(verb, name, which, handles):
                result = admin.carry_out(
                    tm, asked, on_submit=handles.append, on_wait=_say_what_it_waits_for()
                )
            was_made_by_another = result.get("is_made_by_another", False)
    operation = handles[0].id if handles else None
    if as_json:
        document = {"table": name, "applied": apply, "operation": operation}
        print_json({**document, "incarnation": which} if which else document)
    elif apply:
        say(f"{_DONE[verb]} {name}")
    else:
        say(f"would {verb} {name}{f', incarnation {which}' if which else ''}")
        say("nothing was changed; add --apply")
    if was_made_by_another:
        say(f"note: somebody else has made {name} anew meanwhile; it is as he made it", err=True)


@contextmanager
def _telling(verb: str, name: str, which: str, handles: list[OperationHandle]) -> Iterator[None]:
    """Say, when this is interrupted or there is no answer, what goes on."""
    again = f"the same command again would {verb} {name} as it is by then"
    if which:
        again += f", and with --incarnation {which} this one alone"
    try:
        yield
    except KeyboardInterrupt:
        _say_what_goes_on("interrupted", again, handles)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except (OracleError, StorageUnavailable):
        _say_what_goes_on("no answer", again, handles)
        raise


def _say_what_it_waits_for() -> Callable[[Operation], None]:
    """Return what says now and then why an operation does not end: it may never, without help."""
    clock = SystemClock()
    told_s = -SAY_S

    def say_it(found: Operation) -> None:
        nonlocal told_s
        if found.waiting and clock.monotonic_s() - told_s >= SAY_S:
            told_s = clock.monotonic_s()
            say(f"note: operation {found.id} waits: {found.waiting}", err=True)

    return say_it


def _say_what_goes_on(why: str, again: str, handles: list[OperationHandle]) -> None:
    if handles:
        operation = handles[0].id
        goes_on = f"operation {operation} goes on: `omidpy fate run` with --tso finishes it, and "
        goes_on += f"`omidpy fate wait {operation}` says how it has ended"
    else:
        goes_on = "the operation may have been submitted: `omidpy fate list` shows it"
    say(f"{why}; {goes_on}; {again}", err=True)


def _names(option: str, text: str) -> list[bytes]:
    """Read a list.

    Raises:
        UsageError: it names nothing.
    """
    names = [part.strip().encode() for part in text.split(",") if part.strip()]
    if not names:
        raise UsageError(f"{option} is {text!r}; name at least one, as in A,B")
    return names
