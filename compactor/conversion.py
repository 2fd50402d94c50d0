"""How does a table of plain data become transactional?  Its cells get shadow cells of their own.

A shadow cell whose value is its cell's own version says: committed at that moment, and speaks for
that cell alone.  Every snapshot then sees the cell, since its version lies below every timestamp
that an oracle issues here.  That is the condition, too: a cell whose version could be a
transaction's may be what an aborted one left, and nobody may commit that afterwards.

    no oracle before ours      versions below the first timestamp that it issued
    Omid's, in world time      versions below world time, which is what HBase's own clock sets
    Omid's, counting           the same, but above the last number that it issued

Empty values and Omid's older tombstone would be read as deletes, so a table that holds one is
refused.  Whoever still writes to the table without transactions must stop before: what comes later
has no shadow cell, and nobody sees it until the table is adopted once more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from omidpy.cells import decode_long, encode_long, is_tombstone
from omidpy.commit_table import FIRST_TIMESTAMP_FACT, read_low_watermark
from omidpy.control import ControlTable
from omidpy.errors import UsageError
from omidpy.model import Cell
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.time_travel import FIRST_WORLD_TIMESTAMP
from omidpy.visibility import shadow_column, sort_row

PAGE_ROWS: Final = 500
MOST_PASSES: Final = 4
"""Each pass finds what was written during the one before it; one that finds nothing is the last."""

ADOPTED_CEILING_FACT: Final = b"adopted-ceiling"
"""What Omid's oracle had left when ours took over (`tso/persist.py`)."""


class PlainVersions(NamedTuple):
    """Versions from `low` on and below `high` are certainly no transaction's."""

    low: int
    high: int

    def contains(self, version: int) -> bool:
        """Say whether a cell of that version is plain data."""
        return self.low <= version < self.high


def plain_versions(store: Store) -> PlainVersions:
    """Return which versions no oracle of this store has issued or will issue.

    Raises:
        UsageError: no oracle of ours has started yet, so that nobody knows.

    Cost: 3 gets.
    """
    control = ControlTable(store)
    first = control.read_number(FIRST_TIMESTAMP_FACT)
    if first is None:
        raise UsageError(
            f"no oracle has started on {store.url} yet, so that it is not known which versions are "
            "transactions'; start `tso-server` first"
        )
    raw_ceiling = control.read(ADOPTED_CEILING_FACT)
    if raw_ceiling is None:
        return PlainVersions(0, first)
    if read_low_watermark(store) < FIRST_WORLD_TIMESTAMP:
        return PlainVersions(0, 0)  # numbers, like Omid's before: any may be a transaction's
    ceiling = decode_long(raw_ceiling, what=f"the fact {ADOPTED_CEILING_FACT!r}")
    return PlainVersions(
        0 if ceiling >= FIRST_WORLD_TIMESTAMP else ceiling + 1, FIRST_WORLD_TIMESTAMP
    )


def objection(cell: Cell, versions: PlainVersions) -> str | None:
    """Say why a cell of plain data cannot be seen by transactions as it is; None if it can."""
    if not versions.contains(cell.version):
        return (
            f"version {cell.version} may be a transaction's: those that certainly are not lie from "
            f"{versions.low} to below {versions.high}"
        )
    if is_tombstone(cell.value):
        return f"the value {cell.value!r} is how this format writes a delete"
    return None


def late_versions(store: Store) -> PlainVersions:
    """Return which versions, among transactions' cells, are certainly plain; perhaps none.

    Cost: 3 gets.
    """
    if ControlTable(store).read(FIRST_TIMESTAMP_FACT) is None:
        return PlainVersions(0, 0)
    return plain_versions(store)


def convert(
    store: Store,
    table: str,
    families: Collection[bytes],
    versions: PlainVersions,
    *,
    among_transactions: bool = False,
) -> int:
    """Give every cell of some families its shadow cell; return how many had none.

    What an interrupted run has done already is left as it is.

    Args:
        store: Where the table is.
        table: Its name.
        families: Which of its families.
        versions: Which versions are certainly no transaction's.
        among_transactions: Leave cells of other versions alone, instead of refusing them.

    Raises:
        UsageError: somebody writes cells all the time, or one that cannot be converted.

    Cost: reads those families at least twice, and writes a cell for each of theirs.
    """
    converted = 0
    for _ in range(MOST_PASSES):
        found = _pass_over(store, table, families, versions, among_transactions=among_transactions)
        if not found:
            return converted
        converted += found
    raise UsageError(
        f"somebody still writes to {table} without transactions; stop that, and adopt it again"
    )


def _pass_over(
    store: Store,
    table: str,
    families: Collection[bytes],
    versions: PlainVersions,
    *,
    among_transactions: bool,
) -> int:
    converted = 0
    columns = [(family, None) for family in sorted(families)]
    for page in store.scan(table, columns=columns, page_rows=PAGE_ROWS):
        mutations = []
        for cells in page:
            row = sort_row(cells)
            puts = []
            for cell in row.data:
                if cell[1:4] in row.shadows:
                    continue
                if among_transactions and not versions.contains(cell.version):
                    continue
                if (why := objection(cell, versions)) is not None:
                    raise UsageError(f"{table}: cell {cell[:4]!r} came during the adoption: {why}")
                puts.append(Put(*shadow_column(cell), cell.version, encode_long(cell.version)))
            if puts:
                mutations.append(RowMutation(cells[0].row, puts=puts))
                converted += len(puts)
        if mutations:
            store.write({table: mutations}, durable=True)
    return converted
