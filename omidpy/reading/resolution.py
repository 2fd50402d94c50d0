"""Drives the resolver of `visibility.py` over a store: many cells at once, each read batched.

Every reader (client, Spark job, compactor) resolves cells without a shadow cell here, so that there
is one order of reads.  Cells advance in lockstep: in each round all commit entries that are asked
for come from one get, all shadow cells of a table from another.

Only final, positive answers are cached: a commit timestamp stays true for ever, while "not
committed" does not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from cachetools import LRUCache

from omidpy.base.cells import (
    SHADOW_SUFFIX,
    decode_long,
    encode_long,
    is_shadow_qualifier,
    shadow_qualifier,
)
from omidpy.base.commit_facts import CommitEntry
from omidpy.base.within import within
from omidpy.facts.commit_table import CommitTable
from omidpy.model import Cell, ColumnSpec, Timestamp, base
from omidpy.reading.visibility import (
    GONE,
    Absence,
    Answer,
    Invalidate,
    ReadCommitEntry,
    ReadShadowCell,
    Request,
    Resolution,
    Resolver,
    UndoInvalidation,
    commit_timestamp,
    shadow_column,
)
from omidpy.storage.base import Put, RowMutation, Store

TableCell: TypeAlias = tuple[str, Cell]
"""A cell and the table it is in."""

_TableRequest: TypeAlias = tuple[str, Request]

DEFAULT_CACHE_SIZE: Final = 65_536

MAX_LOOKUPS_PER_CELL: Final = 16
"""One get asks every row for every column, and where rows have different columns most of that finds
nothing.  Past so many lookups for each wanted cell, whole families are read instead."""


class CommitCache:
    """A bounded memory of start_ts -> commit_ts.  Safe to share among threads.

    An exception in the middle of a change leaves it torn, and then everything is forgotten.
    """

    def __init__(self, size: int = DEFAULT_CACHE_SIZE) -> None:
        self._size = size
        self.forget()

    def forget(self) -> None:
        """Start empty, with a new lock: after a fork, a thread left behind may hold the old."""
        self._commits: LRUCache[Timestamp, Timestamp] = LRUCache(self._size)
        self._lock = threading.Lock()
        self._is_torn = False

    def get(self, start_ts: Timestamp) -> Timestamp | None:
        """Return the commit timestamp, None if not remembered."""
        return self.known((start_ts,)).get(start_ts)

    def update(self, commits: Mapping[Timestamp, Timestamp]) -> None:
        """Remember commits; the caller vouches that they speak for whole transactions."""
        if commits:
            within(self._lock, self._update, commits)

    def _update(self, commits: Mapping[Timestamp, Timestamp]) -> None:
        if self._is_torn:
            self._commits = LRUCache(self._size)
        # An exception in between leaves the mark, and the next change starts empty.
        self._is_torn = True
        self._commits.update(commits)
        self._is_torn = False

    def known(self, start_timestamps: Iterable[Timestamp]) -> dict[Timestamp, Timestamp]:
        """Return what is remembered of some transactions."""
        return within(self._lock, self._known, start_timestamps)

    def _known(self, start_timestamps: Iterable[Timestamp]) -> dict[Timestamp, Timestamp]:
        if self._is_torn:
            return {}
        self._is_torn = True  # a look makes an entry the newest one
        found = ((start_ts, self._commits.get(start_ts)) for start_ts in start_timestamps)
        known = {start_ts: commit_ts for start_ts, commit_ts in found if commit_ts is not None}
        self._is_torn = False
        return known


class CellResolver:
    """Finds out what became of cells that have no shadow cell in their row as read."""

    def __init__(
        self, store: Store, commit_table: CommitTable, cache: CommitCache | None = None
    ) -> None:
        self._store = store
        self._commit_table = commit_table
        self.cache = cache or CommitCache()

    def resolve(
        self,
        cells: Sequence[TableCell],
        *,
        may_invalidate: Callable[[Timestamp], bool],
        entries: Mapping[Timestamp, CommitEntry] | None = None,
    ) -> dict[TableCell, Resolution]:
        """Find out what became of each cell.

        Args:
            cells: Data cells, with their tables; repeats are allowed.
            may_invalidate: Whether a transaction, by its start_ts, began so long ago that it can
                only have committed already.
            entries: Commit entries that were read for this snapshot already.  What is absent from
                the commit table then counts together with a shadow cell that is read here, and so
                later.

        Cost: usually 1 commit table get, and 1 get a table where an entry is absent.
        """
        resolutions: dict[TableCell, Resolution] = {}
        waiting: dict[TableCell, tuple[Resolver, Request]] = {}

        def advance(key: TableCell, resolver: Resolver, answer: Answer) -> None:
            try:
                waiting[key] = (resolver, resolver.send(answer))
            except StopIteration as stop:
                resolutions[key] = stop.value

        for key in dict.fromkeys(cells):
            start_ts = base(key[1].version)
            resolver = commit_timestamp(key[1], may_invalidate=may_invalidate(start_ts))
            advance(key, resolver, None)
        known = entries or {}
        while waiting:
            asked, waiting = waiting, {}
            requests = {(key[0], request) for key, (_, request) in asked.items()}
            answers = self._answer(requests, known)
            known = {}  # What is asked for again, behind a shadow cell, is to be read again.
            for key, (resolver, request) in asked.items():
                advance(key, resolver, answers[key[0], request])
        return resolutions

    def _answer(
        self, requests: set[_TableRequest], known: Mapping[Timestamp, CommitEntry]
    ) -> dict[_TableRequest, Answer]:
        """Carry out one round of requests, batched by kind; some entries are known already."""
        answers: dict[_TableRequest, Answer] = {}
        entries: dict[Timestamp, list[_TableRequest]] = {}
        shadows: dict[str, list[ReadShadowCell]] = {}
        forbidden: dict[Timestamp, list[_TableRequest]] = {}
        for table, request in requests:
            match request:
                case ReadCommitEntry(start_ts) if start_ts in known:
                    answers[table, request] = known[start_ts]
                case ReadCommitEntry(start_ts):
                    entries.setdefault(start_ts, []).append((table, request))
                case ReadShadowCell():
                    shadows.setdefault(table, []).append(request)
                case Invalidate(start_ts):
                    forbidden.setdefault(start_ts, []).append((table, request))
                case UndoInvalidation(start_ts):
                    answers[table, request] = self._commit_table.undo_invalidation(start_ts)
        if forbidden:
            for start_ts, stands in self._commit_table.invalidate_all(forbidden).items():
                answers.update(dict.fromkeys(forbidden[start_ts], stands))
        if entries:
            for start_ts, entry in self.commit_entries(entries).items():
                answers.update(dict.fromkeys(entries[start_ts], entry))
        for table, wanted in shadows.items():
            for group in self._in_one_view(wanted):
                for request, answer in self._shadow_cells(table, group):
                    answers[table, request] = answer
        return answers

    def _in_one_view(
        self, requests: Sequence[ReadShadowCell]
    ) -> Iterable[Sequence[ReadShadowCell]]:
        """Cut requests so that one get answers each part with one view of every row."""
        if self._store.capabilities.multi_version_scan:
            return (requests,)
        # Such a gateway reads several versions one after the other, so that a cell and its shadow
        # cell would not be of one moment; of one version both come in one view.
        by_version: dict[int, list[ReadShadowCell]] = {}
        for request in requests:
            by_version.setdefault(request.cell.version, []).append(request)
        return by_version.values()

    def commit_entries(self, start_timestamps: Iterable[Timestamp]) -> dict[Timestamp, CommitEntry]:
        """Return what is remembered or stands in the commit table.  Cost: 0 or 1 get."""
        wanted = set(start_timestamps)
        entries: dict[Timestamp, CommitEntry] = dict(self.cache.known(wanted))
        absent = [start_ts for start_ts in wanted if start_ts not in entries]
        if absent:
            read = self._commit_table.read(absent)
            # Commits alone are final: an absence may end, and an invalidation be undone.
            self.cache.update({s: c for s, c in read.items() if isinstance(c, int)})
            entries.update(read)
        return entries

    def _shadow_cells(
        self, table: str, requests: Sequence[ReadShadowCell]
    ) -> list[tuple[ReadShadowCell, Timestamp | Absence | None]]:
        """Read shadow cells, and in the same view of each row whether their cells are there."""
        versions = [request.cell.version for request in requests]
        rows = list(dict.fromkeys(request.cell.row for request in requests))
        columns: dict[ColumnSpec, None] = dict.fromkeys(
            column
            for request in requests
            for column in (*_shadow_columns(request.cell), _column(request.cell))
        )
        if len(rows) * len(columns) > MAX_LOOKUPS_PER_CELL * len(requests):
            columns = dict.fromkeys((request.cell.family, None) for request in requests)
        found = self._store.get(
            table,
            rows,
            columns=list(columns),
            min_version=min(versions),
            max_version=max(versions) + 1,
        )
        # From one view of each row: that a cell and its shadow cell both lack there is no moment
        # between two reads, but a cell that was rolled back or collected (I9, I10).
        present = {cell[:4]: cell for cells in found for cell in cells}
        answers: list[tuple[ReadShadowCell, Timestamp | Absence | None]] = []
        for request in requests:
            cell = request.cell
            keys = ((cell.row, *column, cell.version) for column in _shadow_columns(cell))
            shadow = next((present[key] for key in keys if key in present), None)
            if shadow is None:
                answers.append((request, None if cell[:4] in present else GONE))
                continue
            commit_ts = decode_long(shadow.value, what=f"the shadow cell {shadow[:4]!r}")
            if commit_ts != cell.version:  # else it speaks for its own cell alone
                self.cache.update({base(cell.version): commit_ts})
            answers.append((request, commit_ts))
        return answers


def _column(cell: Cell) -> tuple[bytes, bytes]:
    return cell.family, cell.qualifier


def _shadow_columns(cell: Cell) -> list[tuple[bytes, bytes]]:
    """Return where the shadow cell of `cell` may be: as it is written now, then Omid's older form.

    A row read by column names was not asked for the older form, so it is looked for here.
    """
    older = cell.qualifier + SHADOW_SUFFIX
    columns = [shadow_column(cell)]
    if is_shadow_qualifier(older):
        columns.append((cell.family, older))
    return columns


def healing(cells: Mapping[Cell, Timestamp]) -> list[RowMutation]:
    """Return the writes that give each cell of a table its shadow cell, one mutation a row."""
    values = {commit_ts: encode_long(commit_ts) for commit_ts in set(cells.values())}
    puts: dict[bytes, list[Put]] = {}
    for (row, family, qualifier, version, _), commit_ts in cells.items():
        shadow = Put(family, shadow_qualifier(qualifier), version, values[commit_ts])
        puts.setdefault(row, []).append(shadow)
    return [RowMutation(row, row_puts) for row, row_puts in puts.items()]
