"""Cells beside the messages: golden bytes, and what no server sends."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omidpy.model import Cell
from omidpy.storage.hbase.native import cellblock
from omidpy.storage.hbase.native.faults import Garbled

GOLDEN = bytes.fromhex(
    "0000001a"  # the rest
    "00000010"  # the key: 2 + 1 + 1 + 1 + 2 + 8 + 1
    "00000002"  # the value
    "0001" "61"  # row
    "01" "66"  # family
    "7178"  # qualifier
    "0000000000000005" "04"  # version, type
    "7676"
)  # fmt: skip


def test_a_cell_has_its_golden_bytes() -> None:
    """Lengths, row, family, qualifier, version, type, value."""
    assert cellblock.encode(b"a", b"f", b"qx", 5, b"vv") == GOLDEN
    assert cellblock.decode(b"head" + GOLDEN, 4, [1]) == [[Cell(b"a", b"f", b"qx", 5, b"vv")]]


def test_a_delete_names_its_kind_and_has_no_value() -> None:
    """One version, or all older ones: a mistake here would lose data."""
    one = cellblock.encode(b"a", b"f", b"q", 5, b"", cellblock.DELETE_VERSION)
    assert one[-1] == 8
    assert len(one) == len(GOLDEN) - 3
    kinds = (
        cellblock.DELETE_VERSION,
        cellblock.DELETE_FAMILY_VERSION,
        cellblock.DELETE_COLUMN,
        cellblock.DELETE_FAMILY,
    )
    assert kinds == (8, 10, 12, 14)


names = st.binary(max_size=20)
rows_of_cells = st.lists(
    st.tuples(
        st.binary(min_size=1, max_size=20),
        st.lists(
            st.tuples(st.binary(min_size=1, max_size=127), names, st.integers(0, 2**63 - 1), names),
            min_size=1,
            max_size=5,
        ),
    ),
    max_size=5,
)


@given(rows_of_cells)
def test_what_is_written_is_read(
    rows: list[tuple[bytes, list[tuple[bytes, bytes, int, bytes]]]],
) -> None:
    """Any bytes anywhere, and results without cells in between."""
    block = b"".join(cellblock.encode(row, *cell) for row, cells in rows for cell in cells)
    counts = [count for _, cells in rows for count in (0, len(cells))]
    found = cellblock.decode(block, 0, counts)
    assert found == [
        result for row, cells in rows for result in ([], [Cell(row, *cell) for cell in cells])
    ]


def test_a_block_cut_short_at_any_byte_is_refused() -> None:
    """Nothing is made up."""
    block = GOLDEN + cellblock.encode(b"a", b"f", b"y", 6, b"w")
    for length in range(len(block)):
        with pytest.raises(Garbled):
            cellblock.decode(block[:length], 0, [2])
    with pytest.raises(Garbled, match="1 bytes more"):
        cellblock.decode(block + b"x", 0, [2])


def test_any_byte_changed_is_refused_or_is_a_cell() -> None:
    """No length, however large, makes more than the bytes that are there."""
    for at in range(len(GOLDEN)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            changed = GOLDEN[:at] + bytes((value,)) + GOLDEN[at + 1 :]
            try:
                ((cell,),) = cellblock.decode(changed, 0, [1])
            except Garbled:
                continue
            assert sum(map(len, (cell.row, cell.family, cell.qualifier, cell.value))) == 6


def test_a_count_that_no_bytes_can_hold_is_refused_at_once() -> None:
    """Before a loop that it would make long."""
    with pytest.raises(Garbled, match="claims 4294967295 cells"):
        cellblock.decode(GOLDEN, 0, [2**32 - 1])


def test_cells_of_two_rows_are_no_result() -> None:
    """A count that is off by one would mix rows up."""
    block = GOLDEN + cellblock.encode(b"b", b"f", b"qx", 5, b"vv")
    with pytest.raises(Garbled, match="several rows"):
        cellblock.decode(block, 0, [2])


def test_lengths_are_those_of_the_codec() -> None:
    """The size says what follows it, so that a reader without the codec can skip."""
    (size,) = struct.unpack(">I", GOLDEN[:4])
    assert size == len(GOLDEN) - 4
