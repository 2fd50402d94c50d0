"""`omidpy table create`, `drop` and `truncate`: operations that survive the death of this process.

Without `--apply` each only looks.  With it, an operation is submitted and run here until it is
finished; killed half-way, `omidpy fate run` finishes it, and so does the next of these commands.
Whoever gives the same one again means the table that is there by then: an operation that is under
way is gone on with, and behind its end, which nobody may have heard of, the next table of the name
is dropped or emptied.  So an interrupt does not advise that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Final, TypeAlias

import typer

from omidpy import admin
from omidpy.admin.table_steps import there
from omidpy.base.schema.table_settings import TABLE, settings_by_name
from omidpy.base.timing.clock import SystemClock
from omidpy.base.words.arguments import check_table_name
from omidpy.cli.common import Apply, AsJson, StoreUrl, TsoAddress, opened, print_json, say
from omidpy.cli.operations.common import EXIT_INTERRUPTED
from omidpy.cli.options import as_parameters, taking
from omidpy.connect import connect
from omidpy.errors import UsageError
from omidpy.facts.tables.catalog import CONFLICT_LEVELS, DEFAULT_CONFLICT_LEVEL, Catalog, check_ours
from omidpy.fate.client import OperationHandle
from omidpy.manager import TransactionManager
from omidpy.storage.base import Store

Name: TypeAlias = Annotated[str, typer.Argument(help="The table.")]


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

    def look(open_store: Store) -> None:
        clock = SystemClock()
        catalog = Catalog(open_store, clock, conflict_level=conflict_level)
        catalog.check_absent(catalog.plan(name, wanted, keys, settings).schema.name)

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
        lambda tm: admin.removal(tm, name),
        lambda open_store: _check_ours(open_store, name),
        "drop",
        store=store,
        tso=tso,
        apply=apply,
        as_json=as_json,
    )


def truncate(
    name: Name,
    *,
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
        lambda tm: admin.truncation(tm, name),
        lambda open_store: _check_ours(open_store, name),
        "truncate",
        store=store,
        tso=tso,
        apply=apply,
        as_json=as_json,
    )


_DONE: Final = {"create": "created", "drop": "dropped", "truncate": "truncated"}


def _change(
    name: str,
    change: Callable[[TransactionManager], admin.TableChange],
    look: Callable[[Store], None],
    verb: str,
    *,
    store: str,
    tso: str | None,
    apply: bool,
    as_json: bool,
    conflict_level: str = DEFAULT_CONFLICT_LEVEL,
) -> None:
    """Do it, or look whether it could be done."""
    # Why an operation fails is told once, as the error of the verb.
    logging.getLogger("omidpy.fate").addHandler(logging.NullHandler())
    handles: list[OperationHandle] = []
    was_made_by_another = False
    with opened(store, only_looks=not apply) as open_store:
        if not apply:
            look(open_store)
    if apply:
        with (
            _telling(verb, name, handles),
            connect(store, tso=tso, conflict_level=conflict_level) as tm,
        ):
            result = admin.carry_out(tm, change(tm), on_submit=handles.append)
            was_made_by_another = result.get("is_made_by_another", False)
    operation = handles[0].id if handles else None
    if as_json:
        print_json({"table": name, "applied": apply, "operation": operation})
    elif apply:
        say(f"{_DONE[verb]} {name}")
    else:
        say(f"would {verb} {name}\nnothing was changed; add --apply")
    if was_made_by_another:
        say(f"note: somebody else has made {name} anew meanwhile; it is as he made it", err=True)


@contextmanager
def _telling(verb: str, name: str, handles: list[OperationHandle]) -> Iterator[None]:
    """Say, when this is interrupted, what goes on."""
    try:
        yield
    except KeyboardInterrupt:
        for handle in handles:
            say(
                f"interrupted; operation {handle.id} goes on: `omidpy fate run` with --tso "
                f"finishes it, and `omidpy fate wait {handle.id}` says how it has ended; the same "
                f"command again would {verb} {name} as it is by then",
                err=True,
            )
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _check_ours(store: Store, name: str) -> None:
    check_ours(there(store, check_table_name(name)))


def _names(option: str, text: str) -> list[bytes]:
    """Read a list.

    Raises:
        UsageError: it names nothing.
    """
    names = [part.strip().encode() for part in text.split(",") if part.strip()]
    if not names:
        raise UsageError(f"{option} is {text!r}; name at least one, as in A,B")
    return names
