"""Where is a large region cut, so that several tasks share it?  At sampled keys.

The arithmetic is pure: a range and keys in, pieces out that cover it exactly.  A sample is the row
that is found at a key between the first row of the region and the last: one short read each, so
that nobody reads a region to find out how to read it.  Keys that crowd together are found by more
samples than there are cuts.

A cut decides who does the work, and nothing else: claims speak of rows, whoever made them.  The
cuts of the last run are taken again, where its claims show them, so that claims of one range follow
each other and no row of the table is read for it; where there are none, or far too few or too many,
keys are sampled.

Small regions cost nothing: whether a region is large is told by the rows that the last runs read of
its table.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from compactor.ranges.range_task import RangeTask
from compactor.report import RunRecord
from omidpy.errors import StorageError
from omidpy.model import KeyRange
from omidpy.storage.base import Store

ROWS_A_PIECE: Final = 500_000
"""Rows that one task should read: minutes of work."""
MOST_PIECES: Final = 64
"""Of one region."""
SAMPLES_A_PIECE: Final = 4
PIECES_FACTOR: Final = 2
"""Cuts of the last run are taken again if they make pieces within this factor of what is wanted."""
RUNS_ASKED: Final = 10
"""So many runs back: one of them passed over all of the table."""

EVERY_BYTE: Final = bytes(range(256))

_DIGITS: Final = 8
"""Bytes behind the common beginning of two keys between which others are found."""


# -- arithmetic ------------------------------------------------------------------------------------


def pieces(rows: KeyRange, keys: Iterable[bytes]) -> list[KeyRange]:
    """Cut a range at those keys that lie inside; the pieces cover it, in order, and none is empty.

    A key at an edge cuts nothing.
    """
    inside = sorted({key for key in keys if rows.start < key and (not rows.end or key < rows.end)})
    edges = [rows.start, *inside, rows.end]
    return [KeyRange(*edge) for edge in pairwise(edges)]


def between(first: bytes, last: bytes, count: int, alphabet: bytes = EVERY_BYTE) -> list[bytes]:
    """Return keys at equal distances between two, as far as their leading bytes tell.

    Args:
        first: The lower one.
        last: The upper one.
        count: How many.
        alphabet: Bytes that keys are made of, in order: those of numbers are ten, and distances
            that counted all others would lead into gaps.
    """
    common = 0
    while common < min(len(first), len(last)) and first[common] == last[common]:
        common += 1
    low, high = (_number(key[common:], alphabet) for key in (first, last))
    steps = (low + (high - low) * step // (count + 1) for step in range(1, count + 1))
    return [first[:common] + _text(step, alphabet) for step in steps]


def _number(key: bytes, alphabet: bytes) -> int:
    """Read the beginning of a key as a number whose digits are the letters of an alphabet."""
    number = 0
    for byte in key[:_DIGITS].ljust(_DIGITS, alphabet[:1]):
        number = number * len(alphabet) + min(bisect_left(alphabet, byte), len(alphabet) - 1)
    return number


def _text(number: int, alphabet: bytes) -> bytes:
    found = bytearray()
    for _ in range(_DIGITS):
        number, digit = divmod(number, len(alphabet))
        found.append(alphabet[digit])
    return bytes(reversed(found))


def evenly(keys: Iterable[bytes], count: int) -> list[bytes]:
    """Choose `count` of some keys, or all if there are fewer, at equal distances in their order."""
    found = sorted(set(keys))
    if len(found) <= count:
        return found
    return [found[(2 * step + 1) * len(found) // (2 * count)] for step in range(count)]


# -- how many, and where ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cutting:
    """Into how many pieces the regions of a run are cut."""

    wanted: int | None = None
    """Pieces of every region; None asks how many rows the last runs read."""
    rows_read: Mapping[str, int] | None = None
    """By table, the most that one of the last runs has read."""
    claimed: Mapping[str, Sequence[bytes]] | None = None
    """By table, keys at which claims meet."""

    def pieces_of(self, table: str, regions: int) -> int:
        """Return into how many pieces each of so many regions of a table is cut."""
        if self.wanted is not None:
            return self.wanted
        rows = (self.rows_read or {}).get(table, 0)
        return max(1, min(MOST_PIECES, rows // max(regions, 1) // ROWS_A_PIECE + 1))

    def cut(self, store: Store, tasks: Sequence[RangeTask]) -> list[RangeTask]:
        """Return tasks for the pieces of each range.

        Cost: nothing for a range that stays whole or was cut by the last run; else some short
        reads, see `sampled_keys`.
        """
        regions: dict[str, int] = {}
        for task in tasks:
            regions[task.table] = regions.get(task.table, 0) + 1
        return [
            replace(task, key_range=piece)
            for task in tasks
            for piece in self._pieces(store, task, self.pieces_of(task.table, regions[task.table]))
        ]

    def _pieces(self, store: Store, task: RangeTask, count: int) -> list[KeyRange]:
        if count <= 1:
            return [task.key_range]
        before = pieces(task.key_range, (self.claimed or {}).get(task.table, ()))
        if max(2, count / PIECES_FACTOR) <= len(before) <= count * PIECES_FACTOR:
            return before
        try:
            keys = sampled_keys(store, task, count * SAMPLES_A_PIECE)
        except StorageError:
            # The pass finds out what is wrong, and says so.
            return [task.key_range]
        return pieces(task.key_range, evenly(keys, count - 1))


def sampled_keys(store: Store, task: RangeTask, count: int) -> list[bytes]:
    """Find rows of a range, spread over it; at most `2 * count`, and none twice.

    Cost: 2 reads of one row, and 2 for each sample.
    """
    first = _first_row(store, task, task.key_range)
    last = None if first is None else _first_row(store, task, task.key_range, reverse=True)
    if first is None or last is None:
        return []

    def found(alphabet: bytes) -> set[bytes]:
        probes = (key for key in between(first, last, count, alphabet) if first < key < last)
        rows = (_first_row(store, task, KeyRange(key, task.key_range.end)) for key in probes)
        return {row for row in rows if row is not None}

    # The first samples show what keys are made of, and the second ones are spread by that.
    coarse = found(EVERY_BYTE) | {first, last}
    fine = found(bytes(sorted(set(b"".join(coarse)))))
    return sorted(fine if 2 * len(fine) >= count else fine | coarse)


def _first_row(
    store: Store, task: RangeTask, rows: KeyRange, *, reverse: bool = False
) -> bytes | None:
    pages = store.scan(
        task.table,
        rows,
        columns=[(family, None) for family in sorted(task.families)],
        max_versions=1,
        reverse=reverse,
        page_rows=1,
    )
    page = next(iter(pages), None)
    return None if page is None else page[0][0].row


def rows_read_lately(runs: Sequence[RunRecord]) -> dict[str, int]:
    """Return by table the most rows that one of the last runs has read."""
    most: dict[str, int] = {}
    for run in runs[-RUNS_ASKED:]:
        for table in run.report.tables if run.report is not None else ():
            most[table.table] = max(most.get(table.table, 0), table.rows_read)
    return most
