"""Removes entries that were delivered: those cells that are there, and no others.

    X5 (exact-removal)  a delivered row is removed version by version, as a read has shown them

Never by a range of rows or of time: a transaction that began before may commit later, and its
entries stand between those that were delivered.  What arrives after the read, a shadow cell that
was under way, is left to a compaction.

What an operator has brought there by hand is taken out in a transaction: its exporter may be about
to set it aside, which deletes the same cell, so that one of the two aborts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from omidpy.base.cells import shadow_qualifier
from omidpy.base.words.arguments import check_whole
from omidpy.errors import NoSuchTable, OmidError, UsageError
from omidpy.model import MAX_VERSION
from omidpy.recipes.export_queue.entries.stored.layout import COLUMN, FAMILY, QUALIFIER
from omidpy.recipes.export_queue.entries.stored.state import (
    BucketRows,
    Definition,
    Places,
    table_name,
)
from omidpy.recipes.export_queue.entries.view import View, table_of_queue
from omidpy.storage.base import DeleteVersion, RowMutation

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.recipes.export_queue.entries.ordering import FoundEntry
    from omidpy.storage.base import Store

T = TypeVar("T")

ROWS_AT_ONCE: Final = 1000

_SHADOW: Final = shadow_qualifier(QUALIFIER)


def remove(store: Store, table: str, found: Sequence[FoundEntry]) -> None:
    """Remove the cells of entries as a snapshot has shown them, durably.

    The row of an entry has one version, unless its entry was moved or taken in a transaction.  The
    shadow cell goes with its cell, whether it has been written yet or not: on HBase its marker then
    hides one that comes late.

    Cost: 1 write.
    """
    if found:
        store.write({table: removals(found)}, durable=True)


def removals(found: Sequence[FoundEntry]) -> list[RowMutation]:
    """Return what removes the cells of entries as a snapshot has shown them; see `remove`."""
    return [RowMutation(one.row, deletes=_both(one.version)) for one in found]


def remove_deleted(store: Store, table: str, rows: Sequence[bytes]) -> None:
    """Remove what is left of rows whose entries a transaction has deleted, durably.

    Where the queue got other buckets since, or was dropped, that went with its table.

    Cost: 1 get and 1 write for each `ROWS_AT_ONCE` rows.
    """
    with suppress(NoSuchTable):
        for at in range(0, len(rows), ROWS_AT_ONCE):
            if mutations := removals_of(store, table, rows[at : at + ROWS_AT_ONCE]):
                store.write({table: mutations}, durable=True)


def removals_of(store: Store, table: str, rows: Sequence[bytes]) -> list[RowMutation]:
    """Return what removes rows with all that is in them now.  Cost: 1 get."""
    found = store.get(table, rows)
    return [_removal(cells[0].row, {cell.version for cell in cells}) for cells in found if cells]


def acknowledge(
    tm: TransactionManager,
    places: Places,
    definition: Definition,
    commit_ts: int,
    ordinal: int | None,
) -> int:
    """Count entries as delivered that are not; see `ExportQueue.acknowledge`.

    Cost: a scan of each bucket; and for each `ROWS_AT_ONCE` entries 1 transaction, 2 gets and 1
    write.
    """
    check_whole("commit_ts", commit_ts)
    if ordinal is not None:
        check_whole("ordinal", ordinal)
    if not 0 <= commit_ts < MAX_VERSION:
        raise UsageError(f"{commit_ts} is no commit_ts; give one that `omidpy export peek` shows")
    table = table_name(places.queue_id, definition.number)
    view = View(tm, table, layout=definition.layout)
    rows = [
        found.row
        for raw in BucketRows(tm.session.control, places, definition).read()
        for found in view.log(raw.bucket, from_ts=raw.state.scan_from, to_ts=commit_ts)
        if found.position > raw.state.cursor
        and found.position.commit_ts == commit_ts
        and ordinal in (None, int.from_bytes(found.position.ordinal, "big"))
    ]
    return in_portions(rows, ROWS_AT_ONCE, partial(_taken_out, tm, table), what="entries")


def in_portions(
    wanted: Sequence[T], at_once: int, change: Callable[[Sequence[T]], int], *, what: str
) -> int:
    """Change so many at once, each portion in a transaction of its own; return how many that are.

    An error of a later portion says what the earlier ones have done.
    """
    done = 0
    for at in range(0, len(wanted), at_once):
        try:
            done += change(wanted[at : at + at_once])
        except OmidError as error:
            if done:
                error.args = (f"{error}; {done} {what} were changed before that, and stay so",)
            raise
    return done


def _taken_out(tm: TransactionManager, table: str, rows: Sequence[bytes]) -> int:
    """Take entries out that are still there; return how many those are."""
    there: list[bytes] = []
    for attempt in tm.attempts():
        with attempt as tx, table_of_queue():
            log = tx.table(table)
            # One that is set aside by now is another operator's matter, as a dead letter.
            there = [row for row, _ in log.rows(rows, columns=[COLUMN])]
            for row in there:
                log.delete(row, [COLUMN])
    remove_deleted(tm.store, tm.session.catalog.full_name(table), there)
    return len(there)


def _removal(row: bytes, versions: set[int]) -> RowMutation:
    return RowMutation(row, deletes=[one for version in sorted(versions) for one in _both(version)])


def _both(version: int) -> list[DeleteVersion]:
    """Return what removes a version of an entry, and its shadow cell."""
    return [
        DeleteVersion(FAMILY, QUALIFIER, version),
        DeleteVersion(FAMILY, _SHADOW, version),
    ]
