"""Cells as they travel beside the messages: HBase's `KeyValueCodec`.

Cells follow each other without a count.  Each is: int size of the rest | int key length | int value
length | 2 bytes row length | row | 1 byte family length | family | qualifier | 8 bytes version | 1
byte type | value.  What belongs to which result is said outside, in order of appearance.

The two hot loops of the client.  The module is plain Python; `cellblock.pxd` beside it gives the
same source C types where a compiler is found at install time, and one set of tests runs on both.
Compiled, nothing else holds an index against the length of what it is an index into: each one
comes behind the comparison that says it is within.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from omidpy.model import Cell, PairedCell
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

_IS_COMPILED: Final = not __file__.endswith(".py")

_HEAD: Final = struct.Struct(">IIIH")
_STAMP: Final = struct.Struct(">Q")
_TAIL: Final = struct.Struct(">QB")
_KEY_OVERHEAD: Final = 2 + 1 + 8 + 1
_LEAST: Final = 4 + 8 + _KEY_OVERHEAD
_new: Final = tuple.__new__
_Cell: Final = Cell

_FAMILY_LENGTHS: Final = tuple(bytes((length,)) for length in range(256))


def is_compiled() -> bool:
    """Say whether this module runs as machine code."""
    return _IS_COMPILED


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
    return Block(data, position).cells(counts)


def decode_pairs(
    data: bytes, position: int, counts: Iterable[int], prefix: bytes, suffix: bytes
) -> list[list[PairedCell]]:
    """Return the cells of some results, some of them as what is said of others; else as `decode`.

    One whose qualifier has the prefix and the suffix is not among them: its value comes with the
    cell of the same family and version, and of the qualifier between the two, if that one comes
    behind it.  One that has the suffix alone, and more, is left out.  Of a result that has nothing
    else the first cell comes, as if it were no such one, so that no result is empty.
    """
    return Block(data, position).pairs(counts, prefix, suffix)


def pairs_of(cells: Sequence[Cell], prefix: bytes, suffix: bytes) -> list[PairedCell]:
    """Return the cells of one result as `decode_pairs` does."""
    block = b"".join(encode(*cell) for cell in cells)
    return decode_pairs(block, 0, (len(cells),), prefix, suffix)[0]


class Block:
    """What is left of a block of cells, and the cell that was read last."""

    def __init__(self, data: bytes, position: int) -> None:
        """Begin at a position of some bytes."""
        if not 0 <= position <= len(data):
            raise Garbled("a block of cells begins beyond its end")
        self._data = data
        self._octets = data
        self._end = len(data)
        self._position = position
        self._row = b""
        self._family = b""
        self._qualifier_at = self._stamp_at = self._value_at = 0

    def cells(self, counts: Iterable[int]) -> list[list[Cell]]:
        """Return all cells; see `decode`."""
        octets = self._octets
        results: list[list[Cell]] = []
        for claimed in counts:
            cells: list[Cell] = []
            for _ in range(self._begin(claimed)):
                self._next()
                cell = (
                    self._row,
                    self._family,
                    octets[self._qualifier_at : self._stamp_at],
                    self._version(),
                    octets[self._value_at : self._position],
                )
                cells.append(_new(_Cell, cell))
            results.append(cells)
        self._finish()
        return results

    def pairs(self, counts: Iterable[int], prefix: bytes, suffix: bytes) -> list[list[PairedCell]]:
        """Return all cells; see `decode_pairs`."""
        octets, data = self._octets, self._data
        before, behind = len(prefix), len(suffix)
        first_start = first_end = first_value_at = first_value_end = first_version = 0
        first_family = b""
        results: list[list[PairedCell]] = []
        for claimed in counts:
            pairs: list[PairedCell] = []
            names: list[tuple[bytes, bytes, int]] = []
            values: list[bytes] = []
            known: dict[tuple[bytes, bytes, int], bytes] = {}
            taken = filed = 0
            count = self._begin(claimed)
            for index in range(count):
                self._next()
                start, end = self._qualifier_at, self._stamp_at
                version = self._version()
                if index == 0:
                    first_start, first_end, first_version = start, end, version
                    first_value_at, first_value_end = self._value_at, self._position
                    first_family = self._family
                length = end - start
                if length > behind and data.startswith(suffix, end - behind):
                    if length >= before + behind and data.startswith(prefix, start):
                        said_of = octets[start + before : end - behind]
                        names.append((self._family, said_of, version))
                        values.append(octets[self._value_at : self._position])
                    continue
                name = (self._family, octets[start:end], version)
                said = None
                # Nearly always they come first, and in the order of what they are said of.
                if taken < len(names) and names[taken] == name:
                    said = values[taken]
                    taken += 1
                elif names:
                    while filed < len(names):
                        known[names[filed]] = values[filed]
                        filed += 1
                    said = known.get(name)
                value = octets[self._value_at : self._position]
                pairs.append((self._row, self._family, name[1], version, value, said))
            if count and not pairs:
                name = (first_family, octets[first_start:first_end], first_version)
                value = octets[first_value_at:first_value_end]
                pairs.append((self._row, first_family, name[1], first_version, value, None))
            results.append(pairs)
        self._finish()
        return results

    def _begin(self, claimed: int) -> int:
        """Begin a result of so many cells, and return how many."""
        left = self._end - self._position
        # Before a loop that a wrong count would make long.
        if claimed < 0 or claimed * _LEAST > left:
            raise Garbled(f"a result claims {claimed} cells where {left} bytes are left")
        self._row = b""
        return claimed

    def _next(self) -> None:
        """Find where the parts of the next cell are; all of them are within the data then."""
        data, octets, position = self._data, self._octets, self._position
        if position + _LEAST > self._end:
            raise Garbled("a block of cells ends inside a cell")
        if _IS_COMPILED:
            size, key_length = number(octets, position), number(octets, position + 4)
            value_length = number(octets, position + 8)
            row_length = octets[position + 12] << 8 | octets[position + 13]
        else:
            size, key_length, value_length, row_length = _HEAD.unpack_from(data, position)
        row_at = position + 14
        family_at = row_at + row_length + 1
        value_at = position + 12 + key_length
        stamp_at = value_at - 9
        position = value_at + value_length
        is_within = position <= self._end and family_at <= stamp_at
        if not is_within or size != 8 + key_length + value_length:
            raise Garbled("a block of cells holds what is no cell")
        qualifier_at = family_at + octets[family_at - 1]
        if qualifier_at > stamp_at:
            raise Garbled("a block of cells holds what is no cell")
        if not self._row:
            self._row = octets[row_at : family_at - 1]
        elif len(self._row) != row_length or not data.startswith(self._row, row_at):
            raise Garbled("the cells of one result are of several rows")
        family_length = qualifier_at - family_at
        if family_length != len(self._family) or not data.startswith(self._family, family_at):
            self._family = octets[family_at:qualifier_at]
        self._qualifier_at, self._stamp_at = qualifier_at, stamp_at
        self._value_at, self._position = value_at, position

    def _version(self) -> int:
        """Return the version of the cell."""
        at = self._stamp_at
        if not _IS_COMPILED:
            version: int = _STAMP.unpack_from(self._data, at)[0]
            return version
        high = number(self._octets, at)
        return high << 32 | number(self._octets, at + 4)

    def _finish(self) -> None:
        if self._position != self._end:
            left = self._end - self._position
            raise Garbled(f"a block of cells has {left} bytes more than it should")


def number(octets: bytes, at: int) -> int:
    """Return the unsigned number that 4 bytes from a place on are; they are there."""
    # One at a time into what is wide enough: shifted by 24 bits, a byte would lend C its sign.
    value = octets[at]
    value = value << 8 | octets[at + 1]
    value = value << 8 | octets[at + 2]
    return value << 8 | octets[at + 3]


def size_bytes(row: bytes, cells: Sequence[tuple[bytes, bytes, int, bytes]]) -> int:
    """Return how many bytes such cells take in a block."""
    return sum(
        _LEAST + len(row) + len(family) + len(qualifier) + len(value)
        for family, qualifier, _, value in cells
    )
