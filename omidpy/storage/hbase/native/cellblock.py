"""Cells as they travel beside the messages: HBase's `KeyValueCodec`.

Cells follow each other without a count.  Each is: int size of the rest | int key length | int value
length | 2 bytes row length | row | 1 byte family length | family | qualifier | 8 bytes version | 1
byte type | value.  What belongs to which result is said outside, in order of appearance.

The hot loops of the client.  The module is plain Python; `cellblock.pxd` beside it gives the
same source C types where a compiler is found at install time, and one set of tests runs on both.
Compiled, nothing else holds an index against the length of what it is an index into: each one
comes behind the comparison that says it is within.
"""

from __future__ import annotations

import gc
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from omidpy.errors import UsageError
from omidpy.model import TIMESTAMP_STEP, Cell, Change, ChangeKind, PairedCell, RowValues
from omidpy.storage.hbase.native.faults import Garbled
from omidpy.storage.hbase.native.values import RowChange

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
_STAMP_BYTES: Final = 8
_COLON: Final = ord(":")
_MOST_SEARCHED: Final = 64
"""Cells that are searched for what is said of another."""
_new: Final = tuple.__new__
_Cell: Final = Cell
_Change: Final = Change
_STEP: Final = TIMESTAMP_STEP
_WRITTEN: Final = ChangeKind.PUT
_DELETED: Final = ChangeKind.DELETE

MOST_ROW_BYTES: Final = 2**15 - 1
MOST_FAMILY_BYTES: Final = 2**7 - 1
"""HBase reads what is more as less than nothing."""
_TOO_LONG: Final = (
    f"a row key or a family is too long: they have at most {MOST_ROW_BYTES} bytes and "
    f"{MOST_FAMILY_BYTES}"
)
_FAMILY_LENGTHS: Final = tuple(bytes((length,)) for length in range(MOST_FAMILY_BYTES + 1))


def is_compiled() -> bool:
    """Say whether this module runs as machine code."""
    return _IS_COMPILED


def encode(
    row: bytes, family: bytes, qualifier: bytes, version: int, value: bytes, kind: int = PUT
) -> bytes:
    """Return the bytes of one cell.

    Raises:
        UsageError: its row or family is longer than any of HBase's.
    """
    row_length, family_length, value_length = len(row), len(family), len(value)
    if row_length > MOST_ROW_BYTES or family_length > MOST_FAMILY_BYTES:
        raise UsageError(_TOO_LONG)
    key_length = _KEY_OVERHEAD + row_length + family_length + len(qualifier)
    return b"".join(
        (
            _HEAD.pack(8 + key_length + value_length, key_length, value_length, row_length),
            row,
            _FAMILY_LENGTHS[family_length],
            family,
            qualifier,
            _TAIL.pack(version, kind),
            value,
        )
    )


def encode_puts(changes: Sequence[RowChange], durability: int) -> tuple[bytes, bytes]:
    """Return the actions of a `RegionAction` that put rows, one after the other, and their cells.

    An action is a field 3: the number of the row in field 1, a `MutationProto` in field 2, which
    has the row in field 1, its type in 2, its durability in 6 if that is not 0, and in 8 how many
    cells it has.

    Args:
        changes: What is put; they delete nothing.
        durability: Of `MutationProto`.

    Raises:
        UsageError: as `encode`.
    """
    sizes: list[int] = []
    cells_size = 0
    fixed = 4 if durability else 2
    for row, puts, _ in changes:
        length = len(row)
        count = 0
        for family, qualifier, _, value in puts:
            cells_size += _LEAST + length + len(family) + len(qualifier) + len(value)
            count += 1
        sizes.append(1 + varint_size(length) + length + fixed + 1 + varint_size(count))
    size = 0
    for index, length in enumerate(sizes):
        body = 2 + varint_size(index) + varint_size(length) + length
        size += 1 + varint_size(body) + body
    out = Out(bytearray(size), bytearray(cells_size))
    for index, (row, puts, _) in enumerate(changes):
        out.action(index, sizes[index], row, len(puts), durability)
        for family, qualifier, version, value in puts:
            out.cell(row, family, qualifier, version, value)
    return out.done()


def decode(data: bytes, position: int, counts: Iterable[int]) -> list[list[Cell]]:
    """Return the cells of some results, which begin at a position and end with the data.

    Args:
        data: What came.
        position: Where in it the block begins.
        counts: How many cells each result has; all of one are of one row.

    Raises:
        Garbled: what is there are no such cells.
    """
    is_paused = _pause_collector()
    try:
        return Block(data, position).cells(counts)
    finally:
        _go_on_collecting(is_paused)


def decode_pairs(
    data: bytes, position: int, counts: Iterable[int], prefix: bytes, suffix: bytes
) -> list[list[PairedCell]]:
    """Return the cells of some results, some of them as what is said of others; else as `decode`.

    One whose qualifier has the prefix and the suffix is not among them: its value comes with the
    cell of the same family and version, and of the qualifier between the two, if that one comes
    behind it.  One that has the suffix alone, and more, is left out.  Of a result that has nothing
    else the first cell comes, as if it were no such one, so that no result is empty.
    """
    is_paused = _pause_collector()
    try:
        return Block(data, position).pairs(counts, prefix, suffix)
    finally:
        _go_on_collecting(is_paused)


def decode_values(
    data: bytes,
    position: int,
    counts: Iterable[int],
    prefix: bytes,
    suffix: bytes,
    before: bytes,
    erased: bytes,
) -> list[tuple[bytes, RowValues | list[PairedCell]]]:
    """Return the key of each result, and its values by column; else as `decode_pairs`.

    Only a plain result comes so, any other in pairs.  It is plain if what is said of its cells is
    8 bytes each, below `before`, and comes ahead of them, if none has an empty qualifier, and no
    column comes twice.

    Args:
        data: What came.
        position: Where in it the block begins.
        counts: How many cells each result has.
        prefix: Of the qualifiers of what is said of others.
        suffix: The same, behind the other's qualifier.
        before: 8 bytes.
        erased: Columns with this value are left out, and those with an empty one.
    """
    is_paused = _pause_collector()
    try:
        return Block(data, position).values(counts, prefix, suffix, before, erased)
    finally:
        _go_on_collecting(is_paused)


def decode_changes(
    data: bytes,
    position: int,
    counts: Iterable[int],
    prefix: bytes,
    suffix: bytes,
    first: bytes,
    before: bytes,
    erased: bytes,
) -> list[tuple[bytes, list[Change], list[Cell]]]:
    """Return the key of each result, and its changes; else as `decode`.

    Only a plain result comes as changes, any other as its cells, without a change.  It is plain if
    what is said of its cells is 8 bytes each, and comes ahead of them, if none has an empty
    qualifier, and no column has two of one transaction.  What is said is when the change was
    committed.

    Args:
        data: What came.
        position: Where in it the block begins.
        counts: How many cells each result has.
        prefix: Of the qualifiers of what is said of others.
        suffix: The same, behind the other's qualifier.
        first: 8 bytes: changes of which less is said are left out.
        before: 8 bytes: and those of which this is said, or more.
        erased: Of a cell with this value, or with an empty one, the change is a delete.
    """
    is_paused = _pause_collector()
    try:
        return Block(data, position).changes(counts, prefix, suffix, first, before, erased)
    finally:
        _go_on_collecting(is_paused)


def _pause_collector() -> bool:
    """Let the collector of cycles wait, if it is on and this is machine code; say whether it does.

    It would look many times at what is being made, and there are no cycles in that.  No other
    thread runs until it goes on: machine code keeps the interpreter's lock.
    """
    is_paused = _IS_COMPILED and gc.isenabled()
    if is_paused:
        gc.disable()
    return is_paused


def _go_on_collecting(is_paused: bool) -> None:  # noqa: FBT001 - what the one above has returned
    if is_paused:
        gc.enable()


def pairs_of(cells: Sequence[Cell], prefix: bytes, suffix: bytes) -> list[PairedCell]:
    """Return the cells of one result as `decode_pairs` does."""
    block = b"".join(encode(*cell) for cell in cells)
    return decode_pairs(block, 0, (len(cells),), prefix, suffix)[0]


class Out:
    """Two buffers that are filled from their beginnings, each of the size that it will have."""

    def __init__(self, actions: bytearray, cells: bytearray) -> None:
        """Fill them from now on."""
        self._actions, self._cells = actions, cells
        self._size, self._cells_size = len(actions), len(cells)
        self._at = self._cells_at = 0

    def done(self) -> tuple[bytes, bytes]:
        """Return both, which are full."""
        assert (self._at, self._cells_at) == (self._size, self._cells_size), "they were measured"
        return bytes(self._actions), bytes(self._cells)

    def action(self, index: int, size: int, row: bytes, count: int, durability: int) -> None:
        """Add the action that puts a row; its `MutationProto` has so many bytes."""
        out = self._actions
        length = len(row)
        body = 2 + varint_size(index) + varint_size(size) + size
        at = self._at
        if at + 1 + varint_size(body) + body > self._size:
            raise ValueError("an action is larger than was measured")
        out[at] = 0x1A
        at = put_varint(out, at + 1, body)
        out[at] = 0x08
        at = put_varint(out, at + 1, index)
        out[at] = 0x12
        at = put_varint(out, at + 1, size)
        out[at] = 0x0A
        at = put_varint(out, at + 1, length)
        copy(out, at, row, length)
        at += length
        out[at] = 0x10
        out[at + 1] = 2
        at += 2
        if durability:
            out[at] = 0x30
            out[at + 1] = durability
            at += 2
        out[at] = 0x40
        self._at = put_varint(out, at + 1, count)

    def cell(self, row: bytes, family: bytes, qualifier: bytes, version: int, value: bytes) -> None:
        """Add a cell, as `encode` returns it."""
        out, at = self._cells, self._cells_at
        row_length, family_length = len(row), len(family)
        qualifier_length, value_length = len(qualifier), len(value)
        key_length = _KEY_OVERHEAD + row_length + family_length + qualifier_length
        if at + 12 + key_length + value_length > self._cells_size:
            raise ValueError("a cell is larger than was measured")
        if row_length > MOST_ROW_BYTES or family_length > MOST_FAMILY_BYTES:
            raise UsageError(_TOO_LONG)
        put_number(out, at, 8 + key_length + value_length)
        put_number(out, at + 4, key_length)
        put_number(out, at + 8, value_length)
        out[at + 12] = row_length >> 8
        out[at + 13] = row_length & 0xFF
        at += 14
        copy(out, at, row, row_length)
        at += row_length
        out[at] = family_length
        at += 1
        copy(out, at, family, family_length)
        at += family_length
        copy(out, at, qualifier, qualifier_length)
        at += qualifier_length
        put_number(out, at, version >> 32)
        put_number(out, at + 4, version & 0xFFFFFFFF)
        out[at + 8] = PUT
        at += 9
        copy(out, at, value, value_length)
        self._cells_at = at + value_length


def varint_size(value: int) -> int:
    """Return how many bytes a number takes, seven bits in each."""
    size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


def put_varint(out: bytearray, at: int, value: int) -> int:
    """Put a number, seven bits a byte, lowest first; return where it ends."""
    while value > 0x7F:
        out[at] = value & 0x7F | 0x80
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


def put_number(out: bytearray, at: int, value: int) -> None:
    """Put an unsigned number of 4 bytes."""
    out[at] = value >> 24 & 0xFF
    out[at + 1] = value >> 16 & 0xFF
    out[at + 2] = value >> 8 & 0xFF
    out[at + 3] = value & 0xFF


def copy(out: bytearray, at: int, data: bytes, length: int) -> None:
    """Put bytes, all of them."""
    for index in range(length):
        out[at + index] = data[index]


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
        self._run_at = self._run_end = self._run_length = self._said_at = 0

    def cells(self, counts: Iterable[int]) -> list[list[Cell]]:
        """Return all cells; see `decode`."""
        results: list[list[Cell]] = []
        for claimed in counts:
            cells = self._row_of_cells(claimed)
            results.append(cells)
        self._finish()
        return results

    def _row_of_cells(self, claimed: int) -> list[Cell]:
        """Return the cells of the next result."""
        octets = self._octets
        cells: list[Cell] = []
        for _ in range(self._begin(claimed)):
            self._next()
            qualifier = octets[self._qualifier_at : self._stamp_at]
            value = octets[self._value_at : self._position]
            if _IS_COMPILED:
                cell = new_cell(  # type: ignore[name-defined]  # noqa: F821 - in the .pxd
                    _Cell, self._row, self._family, qualifier, self._version(), value
                )
                cells.append(cell)
            else:
                fields = (self._row, self._family, qualifier, self._version(), value)
                cells.append(_new(_Cell, fields))
        return cells

    def pairs(self, counts: Iterable[int], prefix: bytes, suffix: bytes) -> list[list[PairedCell]]:
        """Return all cells; see `decode_pairs`."""
        results: list[list[PairedCell]] = [
            self._row_of_pairs(claimed, prefix, suffix) for claimed in counts
        ]
        self._finish()
        return results

    def _row_of_pairs(self, claimed: int, prefix: bytes, suffix: bytes) -> list[PairedCell]:
        """Return the cells of the next result."""
        octets, data = self._octets, self._data
        before, behind = len(prefix), len(suffix)
        first_start = first_end = first_value_at = first_value_end = first_version = 0
        first_family = b""
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
            pair = (self._row, self._family, name[1], version, value, said)
            if _IS_COMPILED:
                # The collector of cycles need not look at it: there is nothing but bytes in it.
                PyObject_GC_UnTrack(pair)  # type: ignore[name-defined]  # noqa: F821 - in the .pxd
            pairs.append(pair)
        if count and not pairs:
            name = (first_family, octets[first_start:first_end], first_version)
            value = octets[first_value_at:first_value_end]
            pairs.append((self._row, first_family, name[1], first_version, value, None))
        return pairs

    def values(
        self, counts: Iterable[int], prefix: bytes, suffix: bytes, before: bytes, erased: bytes
    ) -> list[tuple[bytes, RowValues | list[PairedCell]]]:
        """Return all results; see `decode_values`."""
        if len(before) != _STAMP_BYTES:
            raise ValueError(f"{before!r} does not have 8 bytes")
        results: list[tuple[bytes, RowValues | list[PairedCell]]] = []
        names: list[bytes] = []
        for claimed in counts:
            start = self._position
            found = self._plain_values(claimed, prefix, suffix, before, erased, names)
            if found is None:
                self._position = start
                pairs = self._row_of_pairs(claimed, prefix, suffix)
                results.append((self._row, pairs))
            else:
                results.append((self._row, found))
        self._finish()
        return results

    def _plain_values(
        self,
        claimed: int,
        prefix: bytes,
        suffix: bytes,
        before: bytes,
        erased: bytes,
        names: list[bytes],
    ) -> RowValues | None:
        """Return the values of the next result; None, somewhere in it, if it is not plain.

        What is said of cells stands in a run before them, mostly in their order.

        Args:
            claimed: As `_begin`.
            prefix: As `decode_values`, and so are `suffix`, `before` and `erased`.
            suffix: See there.
            before: See there.
            erased: See there.
            names: The columns of the result before, and of this one when it has been read.
        """
        octets = self._octets
        ahead, behind = len(prefix), len(suffix)
        values: RowValues = {}
        gone: list[bytes] = []
        place = 0
        is_run = False
        for _ in range(self._begin(claimed)):
            cell_at = self._position
            self._next()
            start, length = self._qualifier_at, self._stamp_at - self._qualifier_at
            if length > behind and is_same(octets, self._stamp_at - behind, suffix, 0, behind):
                if length < ahead + behind or not is_same(octets, start, prefix, 0, ahead):
                    return None
                self._lengthen_run(cell_at, is_run)
                is_run = True
                continue
            is_run = False
            if not length or not self._finds_said(ahead, behind):
                return None
            if not is_below(octets, self._said_at - _STAMP_BYTES, before):
                return None
            name = self._name(names, place, length)
            place += 1
            if name in values:
                return None
            value = octets[self._value_at : self._position]
            values[name] = value
            if not value or value == erased:
                # Until the end it hides what else there may be of its column.
                gone.append(name)
        if not place:
            return None
        for name in gone:
            del values[name]
        return values

    def changes(
        self,
        counts: Iterable[int],
        prefix: bytes,
        suffix: bytes,
        first: bytes,
        before: bytes,
        erased: bytes,
    ) -> list[tuple[bytes, list[Change], list[Cell]]]:
        """Return all results; see `decode_changes`."""
        if len(first) != _STAMP_BYTES or len(before) != _STAMP_BYTES:
            raise ValueError(f"{first!r} and {before!r} do not have 8 bytes")
        results: list[tuple[bytes, list[Change], list[Cell]]] = []
        names: list[bytes] = []
        bounds = first, before
        for claimed in counts:
            start = self._position
            found = self._plain_changes(claimed, prefix, suffix, bounds, erased, names)
            if found is None:
                self._position = start
                cells = self._row_of_cells(claimed)
                results.append((self._row, [], cells))
            else:
                results.append((self._row, found, []))
        self._finish()
        return results

    def _plain_changes(
        self,
        claimed: int,
        prefix: bytes,
        suffix: bytes,
        bounds: tuple[bytes, bytes],
        erased: bytes,
        names: list[bytes],
    ) -> list[Change] | None:
        """Return the changes of the next result; None, somewhere in it, if it is not plain."""
        octets = self._octets
        ahead, behind = len(prefix), len(suffix)
        first, before = bounds
        found: list[Change] = []
        place = last_start_ts = 0
        last_name = b""
        is_run = False
        for _ in range(self._begin(claimed)):
            cell_at = self._position
            self._next()
            start, length = self._qualifier_at, self._stamp_at - self._qualifier_at
            if length >= behind and is_same(octets, self._stamp_at - behind, suffix, 0, behind):
                if length < ahead + behind or not is_same(octets, start, prefix, 0, ahead):
                    return None
                self._lengthen_run(cell_at, is_run)
                is_run = True
                continue
            is_run = False
            if not length or not self._finds_said(ahead, behind):
                return None
            stamp_at = self._said_at - _STAMP_BYTES
            name = self._name(names, place, length)
            version = self._version()
            start_ts = version - version % _STEP
            # The versions of a column stand together.
            if place and start_ts == last_start_ts and name == last_name:
                return None
            last_start_ts, last_name = start_ts, name
            place += 1
            if is_below(octets, stamp_at, first) or not is_below(octets, stamp_at, before):
                continue
            value: bytes | None = octets[self._value_at : self._position]
            kind = _WRITTEN
            if not value or value == erased:
                value, kind = None, _DELETED
            commit_ts = self._stamp(stamp_at)
            if _IS_COMPILED:
                change = new_change(  # type: ignore[name-defined]  # noqa: F821 - in the .pxd
                    _Change, self._row, name, value, kind, start_ts, commit_ts
                )
                found.append(change)
            else:
                fields = (self._row, name, value, kind, start_ts, commit_ts, None)
                found.append(_new(_Change, fields))
        return found

    def _lengthen_run(self, cell_at: int, is_run: bool) -> None:  # noqa: FBT001 - hot, and private
        """Note that the cell read last says something, and whether the one before it did."""
        if not is_run:
            self._run_at = self._said_at = cell_at
            self._run_length = 0
        self._run_end = self._position
        self._run_length += 1

    def _finds_said(self, ahead: int, behind: int) -> bool:
        """Say whether something is said of the cell read last; `_said_at` is then where that ends.

        It stands in the run of such cells before it, mostly next to what was found last.
        """
        said_at, run_end = self._said_at, self._run_end
        if said_at == run_end or not self._is_said(said_at, ahead, behind):
            if self._run_length > _MOST_SEARCHED:
                return False
            said_at = self._run_at
            while said_at < run_end and not self._is_said(said_at, ahead, behind):
                said_at = self._end_of(said_at)
            if said_at == run_end:
                return False
        self._said_at = self._end_of(said_at)
        return True

    def _is_said(self, at: int, ahead: int, behind: int) -> bool:
        """Say whether a cell that was read says, in 8 bytes, something of the one read last.

        Its qualifier has so many bytes ahead of the other's and behind it.
        """
        octets, family_length = self._octets, len(self._family)
        family_at = at + 15 + (octets[at + 12] << 8 | octets[at + 13])
        start = family_at + octets[family_at - 1] + ahead
        stamp_at = at + 3 + number(octets, at + 4)
        length = stamp_at - behind - start
        size = number(octets, at + 8)
        return (
            length == self._stamp_at - self._qualifier_at
            and start - ahead - family_at == family_length
            and size == _STAMP_BYTES
            and is_same(octets, start, octets, self._qualifier_at, length)
            and is_same(octets, stamp_at, octets, self._stamp_at, _STAMP_BYTES)
            and is_same(
                octets, family_at, octets, self._qualifier_at - family_length, family_length
            )
        )

    def _end_of(self, at: int) -> int:
        """Return where a cell that was read ends."""
        return at + 12 + number(self._octets, at + 4) + number(self._octets, at + 8)

    def _name(self, names: list[bytes], place: int, length: int) -> bytes:
        """Return what the column of the cell is called; its qualifier has so many bytes.

        Mostly that is what the same cell of the result before was called, and the same object.
        """
        octets, family = self._octets, self._family
        start, family_length = self._qualifier_at, len(family)
        if _IS_COMPILED and place < len(names):
            name = names[place]
            if (
                len(name) == family_length + 1 + length
                and is_same(name, 0, family, 0, family_length)
                and name[family_length] == _COLON
                and is_same(octets, start, name, family_length + 1, length)
            ):
                return name
        name = family + b":" + octets[start : start + length]
        if _IS_COMPILED:
            if place < len(names):
                names[place] = name
            else:
                names.append(name)
        return name

    def _begin(self, claimed: int) -> int:
        """Begin a result of so many cells, and return how many."""
        left = self._end - self._position
        # Before a loop that a wrong count would make long.
        if claimed < 0 or claimed * _LEAST > left:
            raise Garbled(f"a result claims {claimed} cells where {left} bytes are left")
        self._row = b""
        self._run_at = self._run_end = self._run_length = self._said_at = 0
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
        return self._stamp(self._stamp_at)

    def _stamp(self, at: int) -> int:
        """Return the number that 8 bytes from a place on are; they are there."""
        if not _IS_COMPILED:
            stamp: int = _STAMP.unpack_from(self._data, at)[0]
            return stamp
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


def is_same(octets: bytes, at: int, others: bytes, other_at: int, length: int) -> bool:
    """Say whether two places have the same bytes, which are there."""
    if not _IS_COMPILED:
        return octets[at : at + length] == others[other_at : other_at + length]
    for index in range(length):  # noqa: SIM110 - no object is made for it, compiled
        if octets[at + index] != others[other_at + index]:
            return False
    return True


def is_below(octets: bytes, at: int, bound: bytes) -> bool:
    """Say whether the 8 bytes from a place on, which are there, come before others."""
    if not _IS_COMPILED:
        return octets[at : at + _STAMP_BYTES] < bound
    for index in range(_STAMP_BYTES):
        if octets[at + index] != bound[index]:
            return octets[at + index] < bound[index]
    return False


def size_bytes(row: bytes, cells: Sequence[tuple[bytes, bytes, int, bytes]]) -> int:
    """Return how many bytes such cells take in a block."""
    return sum(
        _LEAST + len(row) + len(family) + len(qualifier) + len(value)
        for family, qualifier, _, value in cells
    )
