"""Everything that a store still knows of one transaction.

For a person who asks what became of it: the cells it wrote and their shadow cells, its commit
entry, and what follows from them.  Reads only; finding the cells reads every transactional table
once, because nothing but the dead client knew where they are.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from omidpy.base.cells import data_qualifier, decode_long, is_family_marker, is_shadow_qualifier
from omidpy.base.cells import is_tombstone as holds_tombstone
from omidpy.base.commit_facts import INVALID, CommitEntry
from omidpy.errors import CorruptCell, NoSuchTable, UsageError
from omidpy.facts.commit_table import CommitTable, read_low_watermark
from omidpy.facts.control import ControlTable, transactional_tables
from omidpy.facts.tables.listing import hidden_among
from omidpy.facts.watermarks import Watermarks
from omidpy.model import MAX_VERSION, TIMESTAMP_STEP, Cell, Timestamp, base
from omidpy.storage.base import Row, Store

MAX_CELLS: Final = 10_000
"""Cells that are named; more are only counted."""


class State(StrEnum):
    """What the evidence says."""

    COMMITTED = "committed"
    """A commit entry or a shadow cell says so."""
    INVALIDATED = "invalidated"
    """An invalidation stands and no shadow cell contradicts it, nor may one that is gone by now: it
    will never commit."""
    DEAD = "dead"
    """It began at or below the low watermark and there is no sign of a commit: it never can."""
    UNDECIDED = "undecided"
    """There is no sign of a decision, and it may still commit."""
    UNREADABLE = "unreadable"
    """Its commit entry is malformed, and no shadow cell says more."""
    FORGOTTEN = "forgotten"
    """Nothing is left of it, or but an invalidation that may have come too late: complete and
    collected, rolled back, or never begun."""


@dataclass(frozen=True, slots=True)
class FoundCell:
    """A cell of the transaction."""

    table: str
    cell: Cell
    commit_ts: Timestamp | None
    """What its shadow cell says; None if it has none."""

    @property
    def kind(self) -> str:
        """`value`, `tombstone` or `family marker`."""
        if is_family_marker(self.cell.qualifier, self.cell.value):
            return "family marker"
        return "tombstone" if holds_tombstone(self.cell.value) else "value"


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a look at one transaction has found."""

    start_ts: Timestamp
    state: State
    commit_ts: Timestamp | None
    entry: CommitEntry
    low_watermark: Timestamp
    cell_count: int
    unhealed_count: int
    """Cells without a shadow cell."""
    orphan_shadow_count: int
    """Shadow cells without a cell."""
    cells: tuple[FoundCell, ...]
    """At most `MAX_CELLS` of them."""
    malformed: tuple[str, ...] = ()
    """What of it cannot be read: an entry, or at most `MAX_CELLS` shadow cells."""
    unseen: tuple[str, ...] = ()
    """Tables that this user may not look at, and where cells of it may be."""


def inspect(store: Store, start_ts: int, *, tables: Collection[str] | None = None) -> Inspection:
    """Find what a store knows of a transaction.

    Args:
        store: Where to look.
        start_ts: The transaction, or the version of one of its cells.
        tables: Where to look for cells; None is every transactional table.

    Raises:
        UsageError: `start_ts` is no timestamp.
        NoSuchTable: one of `tables` does not exist.

    Cost: 1 commit table get, and a scan of each table; 1 get more for an invalidation alone.
    """
    if not 0 < start_ts < MAX_VERSION:
        raise UsageError(f"{start_ts} is no start_ts; give the one of a transaction")
    start = base(start_ts)
    low_watermark = read_low_watermark(store)
    # The entry goes only after the shadow cells are there, so it is read first: a transaction that
    # completes meanwhile shows itself by the one or by the other.
    malformed: list[str] = []
    entry: CommitEntry = None
    try:
        entry = CommitTable(store).read((start,))[start]
    except CorruptCell as error:
        malformed.append(str(error))
    has_bad_entry = bool(malformed)
    found: list[FoundCell] = []
    counts = {"cells": 0, "unhealed": 0, "orphans": 0}
    commit_ts: Timestamp | None = None
    unseen = hidden_among(store, store.tables()) if tables is None else {}
    for table in sorted(tables) if tables is not None else transactional_tables(store):
        for page in store.scan(table, min_version=start, max_version=start + TIMESTAMP_STEP):
            for row in page:
                cells, orphans, complaints = _paired(table, row)
                malformed += complaints[: MAX_CELLS - len(malformed)]
                counts["cells"] += len(cells)
                counts["unhealed"] += sum(cell.commit_ts is None for cell in cells)
                counts["orphans"] += orphans
                found += cells[: MAX_CELLS - len(found)]
                commit_ts = commit_ts or _transaction_commit(cells)
    is_empty = counts["cells"] == 0
    state, commit_ts = _judged(
        None if entry is INVALID and is_empty and _may_be_too_late(store, start) else entry,
        commit_ts,
        may_commit=start > low_watermark,
        is_empty=is_empty,
        is_readable=not has_bad_entry,
    )
    return Inspection(
        start,
        state,
        commit_ts,
        entry,
        low_watermark,
        counts["cells"],
        counts["unhealed"],
        counts["orphans"],
        tuple(found),
        tuple(malformed),
        tuple(sorted(unseen)),
    )


def _may_be_too_late(store: Store, start_ts: Timestamp) -> bool:
    """Say whether an invalidation of which no cell was found proves nothing.

    Who planted it may have stood still while a commit came, was seen, and went (I9).
    """
    try:
        return start_ts <= Watermarks(ControlTable(store)).gone_horizon()
    except NoSuchTable:  # no client of ours has set up the store, and none has compacted it
        return False


def _paired(table: str, row: Row) -> tuple[list[FoundCell], int, list[str]]:
    """Join the cells of a row with their shadow cells; count those that speak for no cell.

    A shadow cell that cannot be read is taken for none, and named.
    """
    complaints: list[str] = []
    shadows: dict[tuple[bytes, bytes, int], Timestamp] = {}
    data: list[Cell] = []
    for cell in row:
        if is_shadow_qualifier(cell.qualifier):
            key = (cell.family, data_qualifier(cell.qualifier), cell.version)
            try:
                shadows[key] = decode_long(cell.value, what=f"the shadow cell {cell[:4]!r}")
            except CorruptCell as error:
                complaints.append(f"{table}: {error}")
        else:
            data.append(cell)
    found = [FoundCell(table, cell, shadows.pop(cell[1:4], None)) for cell in data]
    return found, len(shadows), complaints


def _transaction_commit(cells: list[FoundCell]) -> Timestamp | None:
    """Return what a shadow cell says of the whole transaction, not of an autocommitted cell."""
    for found in cells:
        if found.commit_ts is not None and found.commit_ts != found.cell.version:
            return found.commit_ts
    return None


def _judged(
    entry: CommitEntry,
    shadow: Timestamp | None,
    *,
    may_commit: bool,
    is_empty: bool,
    is_readable: bool,
) -> tuple[State, Timestamp | None]:
    if shadow is not None:
        return State.COMMITTED, shadow
    if entry is INVALID:
        return State.INVALIDATED, None
    if isinstance(entry, int):
        return State.COMMITTED, Timestamp(entry)
    if not is_readable:
        return State.UNREADABLE, None
    if is_empty:
        return State.FORGOTTEN, None
    return (State.UNDECIDED if may_commit else State.DEAD), None
