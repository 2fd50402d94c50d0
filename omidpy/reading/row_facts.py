"""What became of the cells of one batch of rows: found out in batches, and healed where it helps.

`visibility.visible_row` decides a row from what is known here and names what is missing; the
snapshot asks for that and decides again.  Committed cells that had no shadow cell get one, unless
this process is about to write it anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from omidpy.base.commit_facts import CommitEntry
from omidpy.base.reach import reached
from omidpy.base.timing.pauses import Seldom
from omidpy.errors import StorageError
from omidpy.model import Cell, PairedCell, Timestamp, base
from omidpy.reading.resolution import CellResolver, healing
from omidpy.reading.visibility import SortedRow, VisibleRow
from omidpy.storage.base import Store


class Reader(Protocol):
    """What all snapshots of a manager share, as this module uses it."""

    store: Store
    resolver: CellResolver
    owes: Callable[[Timestamp], bool]
    on_healed: Callable[[int], object]
    run_soon: Callable[[Callable[[], object]], object] | None
    seldom: Seldom


class RowFacts:
    """What was found out about the cells of one batch of rows.

    Attributes:
        cells: Fates of single cells; None: not committed for this snapshot.
        commits: Commit timestamps of whole transactions.
        changed_rows: Rows that lost a cell since they were read.
        entries: Commit entries, INVALID and None among them.
    """

    def __init__(
        self,
        reader: Reader,
        table: str,
        may_invalidate: Callable[[Timestamp], bool],
        entries: Mapping[Timestamp, CommitEntry] | None = None,
    ) -> None:
        """Know nothing so far, but for commit entries that were read for the same snapshot."""
        self._reader = reader
        self._table = table
        self._may_invalidate = may_invalidate
        self.cells: dict[Cell, Timestamp | None] = {}
        self.commits: dict[Timestamp, Timestamp] = {}
        self.changed_rows: set[bytes] = set()
        self._unhealed: dict[Cell, Timestamp] = {}
        self._healed: set[Cell] = set()
        self.entries: dict[Timestamp, CommitEntry] = dict(entries or {})

    def learn(self, commits: Mapping[Timestamp, Timestamp]) -> None:
        """Take note of commits that the rows' own shadow cells told."""
        self.commits.update(commits)

    def seen(self, row: VisibleRow) -> None:
        """Take note of the committed cells without a shadow cell that decided a row."""
        self._unhealed.update(row.unhealed)

    def seen_unhealed(self, cells: Iterable[PairedCell]) -> None:
        """Take note of cells without a shadow cell whose transactions' commits are known."""
        for row, family, qualifier, version, value, _ in cells:
            cell = Cell(row, family, qualifier, version, value)
            self._unhealed[cell] = self.commits[base(version)]

    def read_entries(self, start_timestamps: Iterable[Timestamp]) -> None:
        """Read the commit entries of transactions, and learn those commits.  Cost: 0 or 1 get."""
        self.entries = self._reader.resolver.commit_entries(start_timestamps)
        self.commits.update(
            {start_ts: entry for start_ts, entry in self.entries.items() if isinstance(entry, int)}
        )

    def find(self, missing: Sequence[Cell]) -> None:
        """Find out what became of cells.  Cost: see `CellResolver.resolve`."""
        cache = self._reader.resolver.cache
        known = cache.known({base(cell.version) for cell in missing})
        self.commits.update(known)
        asked = [(self._table, cell) for cell in missing if base(cell.version) not in known]
        if not asked:
            return
        resolutions = self._reader.resolver.resolve(
            asked, may_invalidate=self._may_invalidate, entries=self.entries
        )
        for (_, cell), resolution in resolutions.items():
            if resolution.is_gone:
                self.changed_rows.add(cell.row)
                continue
            self.cells[cell] = resolution.commit_ts
            if resolution.is_healed:
                self._healed.add(cell)
            elif resolution.commit_ts is not None:
                self._unhealed[cell] = resolution.commit_ts

    # -- every version of a row ----------------------------------------------------------------

    def find_all(self, rows: Sequence[SortedRow]) -> None:
        """Find out what became of all cells of some rows.  Cost: see `CellResolver.resolve`."""
        for row in rows:
            self.learn(row.commits)
        missing = [
            cell
            for row in rows
            for cell in row.data
            if cell[1:4] not in row.shadows and base(cell.version) not in self.commits
        ]
        if missing:
            # What is gone since was rolled back; or it was collected, and the caller's look at the
            # collection horizon finds out.
            self.find(missing)

    def committed(self, row: SortedRow) -> Iterator[tuple[Cell, Timestamp]]:
        """Yield the committed cells of a row of `find_all`, each with its commit timestamp."""
        for cell in row.data:
            commit_ts = row.shadows.get(cell[1:4])
            if commit_ts is None:
                commit_ts = self.commits.get(base(cell.version))
            if commit_ts is None:
                commit_ts = self.cells.get(cell)
            if commit_ts is not None:
                yield cell, commit_ts

    def seen_all(self, row: SortedRow, committed: Iterable[tuple[Cell, Timestamp]]) -> None:
        """Take note of those committed cells of a row that had no shadow cell."""
        self._unhealed.update(one for one in committed if one[0][1:4] not in row.shadows)

    def heal(self, *, is_scan: bool = False) -> None:
        """Write the shadow cells that were missing.  A failure is logged.

        Behind a page of a scan that is done soon, in another thread where there is one, or not at
        all: the next reader or the compactor tries again.

        Cost: 0 or 1 write.
        """
        if not self._unhealed:
            return
        run_soon = self._reader.run_soon if is_scan else None
        if run_soon is None:
            self._heal()
        else:
            run_soon(self._heal)

    def _heal(self) -> None:
        owes = self._reader.owes
        owed = {at for at in {base(cell.version) for cell in self._unhealed} if owes(at)}
        cells = {
            cell: commit_ts
            for cell, commit_ts in self._unhealed.items()
            if cell not in self._healed and not (owed and base(cell.version) in owed)
        }
        if not cells:
            return
        try:
            self._reader.store.write({self._table: healing(cells)})
        except StorageError as error:
            # The read is right without it; the next reader or the compactor tries again.
            text = "shadow cells of %d cells could not be written: %s"
            self._reader.seldom.say(text, len(cells), error)
            return
        reached("reader.healed", "I5")
        self._reader.on_healed(len(cells))
