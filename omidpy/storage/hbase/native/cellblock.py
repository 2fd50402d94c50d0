"""Cells as they travel beside the messages: HBase's `KeyValueCodec`.

Cells follow each other without a count.  Each is: int size of the rest | int key length | int value
length | 2 bytes row length | row | 1 byte family length | family | qualifier | 8 bytes version | 1
byte type | value.  What belongs to which result is said outside, in order of appearance.

The two hot loops of the client, in plain Python that Cython's pure mode takes as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from omidpy.model import Cell
from omidpy.storage.hbase.native.faults import Garbled

PUT: Final = 4
DELETE_VERSION: Final = 8
"""Exactly one version of a column."""
DELETE_FAMILY_VERSION: Final = 10
"""Exactly one version of all columns of a family."""
DELETE_COLUMN: Final = 12
"""A version of a column, and all older ones."""
DELETE_FAMILY: Final = 14
"""A version of all columns of a family, and all older ones."""

_HEAD: Final = struct.Struct(">IIIH")
_STAMP: Final = struct.Struct(">Q")
_TAIL: Final = struct.Struct(">QB")
_KEY_OVERHEAD: Final = 2 + 1 + 8 + 1
_LEAST: Final = 4 + 8 + _KEY_OVERHEAD
_new: Final = tuple.__new__

_FAMILY_LENGTHS: Final = tuple(bytes((length,)) for length in range(256))


def encode(
    row: bytes, family: bytes, qualifier: bytes, version: int, value: bytes, kind: int = PUT
) -> bytes:
    """Return the bytes of one cell."""
    row_length, value_length = len(row), len(value)
    key_length = _KEY_OVERHEAD + row_length + len(family) + len(qualifier)
    return b"".join(
        (
            _HEAD.pack(8 + key_length + value_length, key_length, value_length, row_length),
            row,
            _FAMILY_LENGTHS[len(family)],
            family,
            qualifier,
            _TAIL.pack(version, kind),
            value,
        )
    )


def decode(data: bytes, position: int, counts: Iterable[int]) -> list[list[Cell]]:
    """Return the cells of some results, which begin at a position and end with the data.

    Args:
        data: What came.
        position: Where in it the block begins.
        counts: How many cells each result has; all of one are of one row.

    Raises:
        Garbled: what is there are no such cells.
    """
    end = len(data)
    head, stamp, new, startswith = _HEAD.unpack_from, _STAMP.unpack_from, _new, data.startswith
    results: list[list[Cell]] = []
    family = b""
    for count in counts:
        # Before a loop that a wrong count would make long.
        if count * _LEAST > end - position:
            raise Garbled(f"a result claims {count} cells where {end - position} bytes are left")
        row = b""
        cells: list[Cell] = []
        append = cells.append
        for _ in range(count):
            if position + _LEAST > end:
                raise Garbled("a block of cells ends inside a cell")
            size, key_length, value_length, row_length = head(data, position)
            row_at = position + 14
            family_at = row_at + row_length + 1
            value_at = position + 12 + key_length
            stamp_at = value_at - 9
            position = value_at + value_length
            if position > end or family_at > stamp_at or size != 8 + key_length + value_length:
                raise Garbled("a block of cells holds what is no cell")
            qualifier_at = family_at + data[family_at - 1]
            if qualifier_at > stamp_at:
                raise Garbled("a block of cells holds what is no cell")
            if not row:
                row = data[row_at : family_at - 1]
            elif len(row) != row_length or not startswith(row, row_at):
                raise Garbled("the cells of one result are of several rows")
            if qualifier_at - family_at != len(family) or not startswith(family, family_at):
                family = data[family_at:qualifier_at]
            append(
                new(
                    Cell,
                    (
                        row,
                        family,
                        data[qualifier_at:stamp_at],
                        stamp(data, stamp_at)[0],
                        data[value_at:position],
                    ),
                )
            )
        results.append(cells)
    if position != end:
        raise Garbled(f"a block of cells has {end - position} bytes more than it should")
    return results


def size_bytes(row: bytes, cells: Sequence[tuple[bytes, bytes, int, bytes]]) -> int:
    """Return how many bytes such cells take in a block."""
    return sum(
        _LEAST + len(row) + len(family) + len(qualifier) + len(value)
        for family, qualifier, _, value in cells
    )
