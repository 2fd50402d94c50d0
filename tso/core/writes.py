"""What does a batch change in the store?  Its decisions as mutations of rows.

Pure; `durable/persist.py` writes them, in an order that each kind of store allows.  A commit entry
stands on condition that no invalidation does, and the other way round: the first of the two has
decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller
from typing import Final

from omidpy.base.cells import (
    INVALIDATION_VALUE,
    SHADOW_PREFIX,
    SHADOW_SUFFIX,
    commit_row,
    encode_commit,
    encode_long,
    is_shadow_qualifier,
)
from omidpy.base.tables import FIXED_VERSION, VALUE, is_system_table
from omidpy.facts.commit_table import COMMIT, COMMIT_TABLE, INVALIDATION, LOW_WATERMARK_FACT
from omidpy.facts.control import encode_document, put_value
from omidpy.facts.watermarks import sample_row
from omidpy.model import TIMESTAMP_STEP, CellRecord, TableCells
from omidpy.storage.base import (
    CellGroup,
    Condition,
    DeleteVersion,
    Entries,
    GuardedMutation,
    Put,
    RowMutation,
)
from omidpy.storage.rules import MAX_FAMILY_BYTES, MAX_ROW_BYTES
from tso.core.events import Batch, Ticket


def commit_entry(start_ts: int, commit_ts: int) -> GuardedMutation:
    """Return the commit entry of a transaction, unless it was invalidated."""
    row = commit_row(start_ts)
    # The look and the put are one change of one row: of a commit and an invalidation that arrive at
    # once the second is refused (I9).
    put = Put(*COMMIT, start_ts, encode_commit(start_ts, commit_ts))
    return GuardedMutation(
        COMMIT_TABLE,
        RowMutation(row, puts=(put,)),
        Condition(COMMIT_TABLE, row, INVALIDATION, None),
    )


def commit_entries(commits: Sequence[tuple[int, int]]) -> Entries:
    """Return the same of many transactions, (start_ts, commit_ts) each."""
    cells = [
        (commit_row(start_ts), start_ts, encode_commit(start_ts, commit_ts))
        for start_ts, commit_ts in commits
    ]
    return Entries(COMMIT_TABLE, COMMIT, INVALIDATION, cells)


def complaint_about(start_ts: int, cells: TableCells) -> str | None:
    """Say why no transaction writes such cells; None if one does.

    It writes users' tables alone, at its own versions, and no shadow cell; and what a store refuses
    would end the oracle that came to write it.
    """
    if not cells:
        return "no cells"
    for table, records in cells.items():
        if not records or is_system_table(table):
            return f"cells of {table!r}"
        if _are_ordinary(start_ts, records):
            continue
        for row, family, qualifier, version, _ in records:
            if not 0 < len(row) <= MAX_ROW_BYTES or not 0 < len(family) <= MAX_FAMILY_BYTES:
                return f"a cell of the row {row[:32]!r} and the family {family[:32]!r}"
            if not start_ts <= version < start_ts + TIMESTAMP_STEP:
                return f"a cell at {version}, which is none of its versions"
            # It says that its transaction has committed, which only the oracle says (I9): it writes
            # the shadow cells of these itself, at the timestamp that it has given.
            if is_shadow_qualifier(qualifier):
                return f"a shadow cell {qualifier[:64]!r}"
    return None


def _are_ordinary(start_ts: int, records: Sequence[CellRecord]) -> bool:
    """Say whether nothing can be wrong with some cells; all in C, since every commit waits."""
    rows, families, qualifiers, versions, _ = zip(*records, strict=True)
    return (
        all(rows)
        and all(families)
        and max(map(len, rows)) <= MAX_ROW_BYTES
        and max(map(len, families)) <= MAX_FAMILY_BYTES
        and start_ts <= min(versions)
        and max(versions) < start_ts + TIMESTAMP_STEP
        and not any(map(_ENDS_AS_SHADOWS_DO, qualifiers))
    )


_ENDS_AS_SHADOWS_DO: Final = methodcaller("endswith", SHADOW_SUFFIX)


def cell_group(start_ts: int, commit_ts: int, cells: TableCells) -> CellGroup:
    """Return the cells of a transaction with their shadow cells, unless it was invalidated.

    It is then complete at once: there is nothing that an entry would have to say.
    """
    value = encode_long(commit_ts)
    written = {
        table: [*records, *_shadow_cells(records, value)] for table, records in cells.items()
    }
    unless = Condition(COMMIT_TABLE, commit_row(start_ts), INVALIDATION, None)
    return CellGroup(written, unless)


def _shadow_cells(records: Sequence[CellRecord], value: bytes) -> list[CellRecord]:
    # As `shadow_qualifier` has it, without a call for each cell: all of these wait for one thread.
    return [
        (row, family, SHADOW_PREFIX + qualifier + SHADOW_SUFFIX, version, value)
        for row, family, qualifier, version, _ in records
    ]


def invalidation(start_ts: int) -> GuardedMutation:
    """Return the invalidation of a transaction, unless it committed."""
    row = commit_row(start_ts)
    put = Put(*INVALIDATION, start_ts, INVALIDATION_VALUE)
    return GuardedMutation(
        COMMIT_TABLE, RowMutation(row, puts=(put,)), Condition(COMMIT_TABLE, row, COMMIT, None)
    )


def facts_of(batch: Batch[Ticket], *, with_low_watermark: bool = True) -> list[RowMutation]:
    """Return what a batch says in the control table: the low watermark, and samples of the time."""
    facts: list[RowMutation] = []
    if with_low_watermark and batch.low_watermark is not None:
        facts.append(put_value(LOW_WATERMARK_FACT, encode_long(batch.low_watermark)))
    if batch.sample is not None:
        row = sample_row(batch.sample.elapsed_ms)
        facts.append(put_value(row, encode_document(batch.sample)))
    delete = (DeleteVersion(VALUE.family, VALUE.qualifier, FIXED_VERSION),)
    facts += [
        RowMutation(sample_row(elapsed_ms), deletes=delete)
        for elapsed_ms in batch.forgotten_samples
    ]
    return facts


def needs_check(batch: Batch[Ticket]) -> bool:
    """Say whether the lease must be looked at behind a batch's plain writes.

    Commits and invalidations need the look, and so do start timestamps, which a successor might be
    handing out as well.  The exception is a batch without commits that raises the ceiling: this is
    a compare-and-set of the number that a successor raises before anything else, so that its
    success proves that there was none.
    """
    is_answer = bool(batch.answers) and batch.ceiling is None
    return bool(batch.commits or batch.invalidations) or is_answer
