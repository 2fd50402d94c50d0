"""What the verbs of `omidpy fate` share: the store, arguments, and what is read of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Annotated, Final, TypeAlias

import typer

from omidpy.cli.ending import EXIT_INTERRUPTED
from omidpy.cli.saying import say
from omidpy.errors import FateError, UsageError
from omidpy.fate.operation import FateId, Status, parse_id
from omidpy.fate.store import FateStore
from omidpy.fate.table.store import TableFateStore
from omidpy.fate.view import Filter, Snapshot
from omidpy.fate.zookeeper.store import ZooKeeperFateStore
from omidpy.opening import open_store
from omidpy.oracle.zookeeper import SCHEME, parse_zookeeper

EXIT_FAILED: Final = 1
EXIT_RESERVED: Final = 3
EXIT_OPERATION_FAILED: Final = 4

FateStoreUrl: TypeAlias = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="OMIDPY_STORE",
        metavar="URL",
        help="Where the operations are: sqlite:///FILE, hbase://ZOOKEEPER/hbase, "
        "hbase+thrift2://HOST:PORT, or "
        "zk://HOSTS/omid for those in ZooKeeper below /omid/fate.",
    ),
]
Ids: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="16 hex digits each.")
]
SomeIds: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="ID...", help="16 hex digits each.")
]
States: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--state", "-s", metavar="STATE", help="Only these; repeated, or with commas."),
]
Kinds: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--type", "-t", metavar="NAME", help="Only this kind of operation; as --state."),
]


LEFT_ALONE: Final = "the operations go on as they are"
PERHAPS_DONE: Final = (
    "of what is not said here nobody knows whether it was done; `omidpy fate list` shows it"
)


@contextmanager
def opened_fates(url: str, *, interrupted: str = LEFT_ALONE) -> Iterator[FateStore]:
    """Open the operations at an address, none of which need be there, for the length of a verb.

    Args:
        url: The address.
        interrupted: What holds behind an interrupt, which ends the verb with a word.
    """
    try:
        if url.startswith(SCHEME):
            fates = ZooKeeperFateStore(url, f"/{parse_zookeeper(url).namespace}/fate")
            with closing(fates):
                yield fates
        else:
            with closing(open_store(url, must_exist=True)) as store:
                yield TableFateStore(store)
    except KeyboardInterrupt:
        say(f"interrupted; {interrupted}", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def wanted(
    ids: Sequence[str] | None, states: Sequence[str] | None, kinds: Sequence[str] | None
) -> Filter:
    """Return the filter that arguments ask for.

    Raises:
        UsageError: an id or a state is none.
    """
    chosen = _split(states)
    if unknown := sorted(chosen - set(Status)):
        names = ", ".join(sorted(set(Status) - {Status.UNKNOWN}))
        raise UsageError(f"--state {unknown[0]!r} is none of {names}")
    return Filter(frozenset(parsed(ids or ())), chosen, _split(kinds))


def parsed(ids: Sequence[str]) -> list[FateId]:
    """Read ids, all of them before anything is done with one."""
    return [parse_id(one) for one in ids]


def check_known(found: Snapshot, asked: Filter) -> None:
    """Refuse ids that no operation has, once the others were shown."""
    known = {view.operation.id for view in found.views} | {one.id for one in found.unreadable}
    if missing := sorted(asked.ids - known):
        raise FateError(
            f"there is no operation {', '.join(missing)}; `omidpy fate list` shows what there is"
        )


def _split(values: Sequence[str] | None) -> frozenset[str]:
    return frozenset(one for value in values or () for one in value.split(",") if one)
