"""Where does a range of rows fall into like parts?  At keys that are found in it.

The arithmetic is pure: a range and keys in, pieces out that cover it exactly.  A sample is the row
that is found at a key between the first row of the range and the last: one short read each, so that
no range is read to find out how to read it.  Keys that crowd together are found by more samples
than there are cuts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from omidpy.model import ColumnSpec, KeyRange
from omidpy.storage.base import Store

EVERY_BYTE: Final = bytes(range(256))

_DIGITS: Final = 8
"""Bytes behind the common beginning of two keys between which others are found."""


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


# -- samples ---------------------------------------------------------------------------------------


def sampled_keys(
    store: Store, table: str, families: Iterable[bytes], key_range: KeyRange, count: int
) -> list[bytes]:
    """Find rows of a range, spread over it; at most `2 * count`, and none twice.

    Cost: 2 reads of one row, and 2 for each sample.
    """
    columns: list[ColumnSpec] = [(family, None) for family in sorted(families)]
    first = _first_row(store, table, columns, key_range)
    last = None if first is None else _first_row(store, table, columns, key_range, reverse=True)
    if first is None or last is None:
        return []

    def found(alphabet: bytes) -> set[bytes]:
        probes = (key for key in between(first, last, count, alphabet) if first < key < last)
        rows = (_first_row(store, table, columns, KeyRange(key, key_range.end)) for key in probes)
        return {row for row in rows if row is not None}

    # The first samples show what keys are made of, and the second ones are spread by that.
    coarse = found(EVERY_BYTE) | {first, last}
    fine = found(bytes(sorted(set(b"".join(coarse)))))
    return sorted(fine if 2 * len(fine) >= count else fine | coarse)


def _first_row(
    store: Store,
    table: str,
    columns: Sequence[ColumnSpec],
    rows: KeyRange,
    *,
    reverse: bool = False,
) -> bytes | None:
    pages = store.scan(
        table,
        rows,
        columns=columns,
        max_versions=1,
        reverse=reverse,
        page_rows=1,
    )
    page = next(iter(pages), None)
    return None if page is None else page[0][0].row
