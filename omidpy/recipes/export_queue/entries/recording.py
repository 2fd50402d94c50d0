"""Every change of a transaction as an entry of a queue, for followers of some of its tables.

    queue = ExportQueue.create(tm, "orders", codec="msgpack")
    with tm.begin() as tx:
        queue.record(tx, tables=["orders"])
        tx.table("orders").put(b"17", {b"cf:state": b"paid"})

What the transaction has changed in the end is one entry for each row, added at its commit:

    key        the row
    headers    {"table": the name of the table}
    value      {column: the new value, or None where it was deleted}

so entries of a row leave in the order in which its changes committed, and a follower that writes
them at `entry.commit_ts` has what the table had.

Source: the recording transaction of Fluo's recipes, which logs each call in one entry of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from omidpy.base.cells import is_tombstone
from omidpy.errors import UsageError

if TYPE_CHECKING:
    from omidpy.model import CellName

CODEC: Final = "msgpack"
"""It has bytes, which rows and values are."""


class Recordable(Protocol):
    """A transaction, as one sees it who records it."""

    def before_commit_last(self, callback: Callable[[], object]) -> None:
        """Call `callback` at the beginning of the commit, behind all others that write then."""
        ...

    def when_undone(self, callback: Callable[[], object]) -> None:
        """Call `callback` if the savepoint that is open now is undone."""
        ...

    def changes(self) -> Iterable[tuple[CellName, bytes | None]]:
        """Return what it has written."""
        ...


class RowChange(NamedTuple):
    """What a transaction has changed in a row."""

    table: str
    row: bytes
    columns: dict[bytes, bytes | None]


def row_changes(
    changes: Iterable[tuple[CellName, bytes | None]], tables: Mapping[str, str]
) -> Iterator[RowChange]:
    """Yield what was changed in some tables, by row; `tables` are names by those in the store.

    Raises:
        UsageError: another process has written some of it, and only knows what.
    """
    rows: dict[tuple[str, bytes], dict[bytes, bytes | None]] = {}
    for name, value in changes:
        if name.table not in tables:
            continue
        if value is None:
            raise UsageError(
                f"the row {name.row!r} of {tables[name.table]!r} was written by a worker, and what "
                "workers write cannot be recorded; let the worker add entries of its own"
            )
        columns = rows.setdefault((name.table, name.row), {})
        column = name.family + b":" + name.qualifier
        columns[column] = None if is_tombstone(value) else value
    for (table, row), columns in sorted(rows.items()):
        yield RowChange(tables[table], row, dict(sorted(columns.items())))


def check_recordable(writer: object, codec: str) -> Any:
    """Return a transaction that can be recorded.

    Raises:
        UsageError: it cannot.
    """
    if codec != CODEC:
        raise UsageError(
            f"the queue holds {codec}, and rows and values are bytes; make one with codec={CODEC!r}"
        )
    if not hasattr(writer, "before_commit_last"):
        raise UsageError(
            f"{writer!r} cannot be recorded: record its transaction, where that is begun"
        )
    return writer
