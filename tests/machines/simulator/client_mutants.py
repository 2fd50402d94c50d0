"""Reading, completing and finding out with a guard taken out, by name."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from omidpy.base.rows.simple import simple_row
from omidpy.commit.outcome import OutcomeFinder
from omidpy.commit.post_commit import Completer
from omidpy.errors import StorageError
from omidpy.facts.commit_table import COMMIT_TABLE, CommitTable
from omidpy.model import Cell, Committed, Timestamp, base
from omidpy.oracle.base import Begun
from omidpy.oracle.tcp import TcpOracle
from omidpy.reading import resolution, row_facts, snapshot, visibility
from omidpy.reading.resolution import healing
from omidpy.reading.snapshot import Snapshot
from omidpy.reading.visibility import ReadCommitEntry, Resolution, Resolver
from omidpy.tx.transaction import Transaction
from omidpy.tx.writes.buffer import DroppedSavepoint, WriteBuffer
from tests.machines.simulator.mutants import (
    BUSY,
    DISTURBED,
    QUIET,
    SLOW_TO_WRITE,
)
from tests.machines.simulator.simulation import Mutant, Parts, Patch
from tests.machines.simulator.store import Stall

_commit_timestamp = visibility.commit_timestamp
_drop_savepoint = WriteBuffer.drop_savepoint


def looks_once(cell: Cell, *, may_invalidate: bool) -> Resolver:
    """Take a cell for uncommitted that has no entry, without a second look at its shadow cell."""
    if may_invalidate:
        return (yield from _commit_timestamp(cell, may_invalidate=True))
    entry = yield ReadCommitEntry(base(cell.version))
    if isinstance(entry, int):
        return Resolution(Timestamp(entry), is_final=True, is_healed=False)
    return Resolution(None, is_final=False, is_healed=False)


def heals_later(cells: Mapping[Cell, Timestamp]) -> Any:
    """Write shadow cells that name another commit."""
    return healing({cell: Timestamp(commit_ts + 50) for cell, commit_ts in cells.items()})


def sees_the_future(cells: Any, before: bytes) -> Any:
    """See what was committed behind the snapshot, too."""
    del before
    return simple_row(cells, b"\x7f" + b"\xff" * 7)


def completes_whatever_failed(self: Completer, batch: Any) -> None:
    """Remove the entries although not all shadow cells were written."""
    for one in batch:
        with contextlib.suppress(StorageError):
            self._store.write({table: list(rows) for table, rows in one.shadow_cells.items()})
        try:
            self._commit_table.complete([one.start_ts])
        except StorageError:
            return


def sends_nothing(self: Transaction) -> None:
    """Ask for the commit of cells that were not sent."""
    self._session.on_step("before-flush")


def forbids_in_word_only(self: CommitTable, start_ts: Timestamp) -> bool:
    """Say that an invalidation stands, and write none."""
    entry = self.read((start_ts,))[base(start_ts)]
    return not isinstance(entry, int)


def keeps_what_was_undone(self: WriteBuffer) -> DroppedSavepoint:
    """Keep what was written in a savepoint that is undone."""
    self.keep_savepoint()
    return DroppedSavepoint([], True)


COMPLETING: Final = BUSY._replace(
    calm_share=0.0,
    fault_counts=(0,),
    undisturbed_share=1.0,
    store_kinds=("cluster",),
    post_commits=(("sync",),),
    client_stalls=(Stall(0.1, 0.5, f"get {COMMIT_TABLE}"),),
)
"""Readers that stand still between a row and the commit table, and writers that complete."""

_shadow_cells = WriteBuffer.shadow_cells
_pages = Snapshot.pages


def completes_at_another_time(self: WriteBuffer, commit_ts: Timestamp) -> Any:
    """Write shadow cells that name another commit."""
    return _shadow_cells(self, Timestamp(commit_ts + 50))


def leaves_the_last_row_out(self: Snapshot, *arguments: Any, **options: Any) -> Any:
    """Leave the last row of each page out."""
    for page in _pages(self, *arguments, **options):
        yield list(page)[:-1]


def believes_what_it_sees(cell: Cell, *, may_invalidate: bool) -> Resolver:
    """Take a cell for committed of which nothing says so."""
    found = yield from _commit_timestamp(cell, may_invalidate=may_invalidate)
    if found.commit_ts is None and not found.is_final:
        return Resolution(Timestamp(base(cell.version) + 50), is_final=True, is_healed=True)
    return found


class TakesSilenceForCommit(OutcomeFinder):
    """Takes a commit without an answer for granted."""

    def settle(self, start_ts: Timestamp, *_: Any, **__: Any) -> Committed:
        """Guess."""
        return Committed(Timestamp(start_ts + 50))


class BeginsTwice(TcpOracle):
    """Begins two transactions with one timestamp now and then."""

    _last: Begun | None = None

    def begin(self, *, hold_s: float | None = None) -> Begun:
        """Return each fourth one again."""
        if self._last is not None and self._last.start_ts % 200 == 0:
            last, self._last = self._last, None
            return last
        self._last = super().begin(hold_s=hold_s)
        return self._last


CLIENT_MUTANTS: Final[dict[str, Mutant]] = {
    "shadow cell not looked at twice": Mutant(
        Parts(patches=(Patch(resolution, "commit_timestamp", looks_once),)),
        "stale read|fractured read|non-repeatable read",
        COMPLETING._replace(workloads=(("registers",),)),
    ),
    "healed at another timestamp": Mutant(
        Parts(patches=(Patch(row_facts, "healing", heals_later),)), "I8", QUIET
    ),
    "completed at another timestamp": Mutant(
        Parts(patches=(Patch(WriteBuffer, "shadow_cells", completes_at_another_time),)),
        "I8",
        QUIET._replace(store_kinds=("cluster",), post_commits=(("sync",),)),
    ),
    "snapshot sees the future": Mutant(
        Parts(patches=(Patch(snapshot, "simple_row", sees_the_future),)),
        "non-repeatable read",
        BUSY._replace(pauses_s=(0.2,)),
    ),
    "last row of a page left out": Mutant(
        Parts(patches=(Patch(Snapshot, "pages", leaves_the_last_row_out),)),
        "stale read",
        QUIET._replace(workloads=(("registers",),), pages_rows=(None, 2)),
    ),
    "completed though it failed": Mutant(
        Parts(patches=(Patch(Completer, "_complete", completes_whatever_failed),)),
        "stale read",
        DISTURBED._replace(post_commits=(("sync",),), lost=(0.03,)),
    ),
    "cells never sent": Mutant(
        Parts(patches=(Patch(Transaction, "_prepare_or_abort", sends_nothing),)), "I8", QUIET
    ),
    "forbidden in word only": Mutant(
        Parts(patches=(Patch(CommitTable, "invalidate", forbids_in_word_only),)),
        "I9",
        SLOW_TO_WRITE._replace(oracle_leases_s=(2.0,), store_kinds=("cluster",)),
    ),
    "tentative cells believed": Mutant(
        Parts(patches=(Patch(resolution, "commit_timestamp", believes_what_it_sees),)),
        "dirty read|stale read|non-repeatable read",
        BUSY._replace(pauses_s=(0.2,), store_kinds=("cluster",), workloads=(("registers",),)),
    ),
    "silence taken for a commit": Mutant(
        Parts(outcomes=TakesSilenceForCommit), "I8", SLOW_TO_WRITE
    ),
    "undone savepoint kept": Mutant(
        Parts(patches=(Patch(WriteBuffer, "drop_savepoint", keeps_what_was_undone),)),
        "dirty read",
        QUIET._replace(workloads=(("registers",),)),
    ),
    "two transactions of one timestamp": Mutant(Parts(oracle=BeginsTwice), "lost update", QUIET),
}
"""By name."""
