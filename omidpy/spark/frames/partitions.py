"""Which task reads which rows?  One for each region, several for a large one, and none for others.

A region is cut at sampled keys.  Into how many pieces is said by the option `partitions`, or by the
rows that the last compactions have read of the table, which nobody pays for again.

A list of rows is cut by its length.  Lacks the reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from omidpy.errors import StorageError
from omidpy.facts.control import ControlTable
from omidpy.model import KeyRange
from omidpy.storage.base import Store
from omidpy.storage.sampling import evenly, pieces, sampled_keys
from omidpy.storage.spreading import spread

SAMPLES_A_PIECE: Final = 4
ROWS_OF_A_LIST: Final = 10_000
"""Of a list of rows in one task, at most."""


@dataclass(frozen=True, slots=True)
class Portion:
    """What one task reads: a range, or a list of rows."""

    key_range: KeyRange
    rows: tuple[bytes, ...] | None = None


def portions(
    store: Store,
    table: str,
    families: Iterable[bytes],
    key_range: KeyRange,
    rows: Sequence[bytes] | None,
    *,
    wanted: int | None,
) -> list[Portion]:
    """Return what each task reads; together every row of the range once, or of the list.

    Those of one server are spread over all of them, see `storage/spreading.py`.

    Args:
        store: Where the table is.
        table: Its name in the store.
        families: Those that are ours.
        key_range: The rows to read.
        rows: The only rows to read; those outside of the range are left out.
        wanted: How many portions; None: as many as regions, and more where these are large.

    Cost: 1 RPC, 2 where the store knows servers; some short reads for each region that is cut, see
    `sampled_keys`; without `wanted` 1 scan of what compactions have recorded.
    """
    if rows is not None:
        inside = sorted({row for row in rows if key_range.contains(row)})
        size = min(ROWS_OF_A_LIST, max(1, -(-len(inside) // (wanted or 1))))
        lists = [tuple(inside[at : at + size]) for at in range(0, len(inside), size)]
        return [
            Portion(KeyRange(), one) for one in spread(store, lists, lambda one: (table, one[0]))
        ]
    regions = store.regions(table)
    parts = [part for region in regions if (part := intersection(region, key_range)) is not None]
    count = (
        _pieces_of(store, table, len(regions))
        if wanted is None
        else -(-wanted // max(len(parts), 1))
    )
    found = [
        Portion(piece) for part in parts for piece in _cut(store, table, families, part, count)
    ]
    return spread(store, found, lambda one: (table, one.key_range.start))


def intersection(one: KeyRange, other: KeyRange) -> KeyRange | None:
    """Return the rows that are in both; None if there are none."""
    ends = [end for end in (one.end, other.end) if end]
    found = KeyRange(max(one.start, other.start), min(ends, default=b""))
    return None if found.is_empty() else found


def _cut(
    store: Store, table: str, families: Iterable[bytes], rows: KeyRange, count: int
) -> list[KeyRange]:
    if count <= 1:
        return [rows]
    try:
        keys = sampled_keys(store, table, families, rows, count * SAMPLES_A_PIECE)
    except StorageError:
        # The task finds out what is wrong, and says so.
        return [rows]
    return pieces(rows, evenly(keys, count - 1))


def _pieces_of(store: Store, table: str, regions: int) -> int:
    from compactor.ranges.cutting import Cutting, rows_read_lately  # noqa: PLC0415 - an application
    from compactor.report import RunLog  # noqa: PLC0415 - the same

    try:
        runs = RunLog(ControlTable(store)).runs()
    except StorageError:
        return 1  # it is asked for speed alone
    return Cutting(rows_read=rows_read_lately(runs)).pieces_of(table, regions)
