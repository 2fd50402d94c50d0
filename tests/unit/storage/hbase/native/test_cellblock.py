"""Cells beside the messages: golden bytes, and what no server sends.

Every test runs on the source, and on what Cython makes of it.
"""

from __future__ import annotations

import gc
import struct
from types import ModuleType
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omidpy.base.cells import SHADOW_PREFIX, SHADOW_SUFFIX, encode_long, shadow_qualifier
from omidpy.errors import UsageError
from omidpy.model import Cell, PairedCell
from omidpy.storage.hbase.native.faults import Garbled
from omidpy.storage.hbase.native.values import (
    PutCell,
    Region,
    RegionAction,
    RowChange,
    ServerName,
)
from omidpy.storage.hbase.native.wire import messages
from tests.machines.engines import compiled_cells, interpreted_cells

FORMS: Final = ("interpreted", "compiled")

Fields = tuple[bytes, bytes, int, bytes]

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


def form(name: str) -> Any:
    """Return the module in one of its forms."""
    found: ModuleType | None = interpreted_cells() if name == "interpreted" else compiled_cells()
    if found is None:
        pytest.skip("Cython or a C compiler is missing, so there is no compiled form")
    assert found.is_compiled() == (name == "compiled")
    return found


@pytest.fixture(params=FORMS)
def cellblock(request: pytest.FixtureRequest) -> Any:
    """Return the module in each of its forms."""
    return form(request.param)


def test_a_cell_has_its_golden_bytes(cellblock: Any) -> None:
    """Lengths, row, family, qualifier, version, type, value."""
    assert cellblock.encode(b"a", b"f", b"qx", 5, b"vv") == GOLDEN
    assert cellblock.decode(b"head" + GOLDEN, 4, [1]) == [[Cell(b"a", b"f", b"qx", 5, b"vv")]]


def test_a_delete_names_its_kind_and_has_no_value(cellblock: Any) -> None:
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


@pytest.mark.parametrize("name", FORMS)
@given(rows=rows_of_cells)
def test_what_is_written_is_read(
    name: str, rows: list[tuple[bytes, list[tuple[bytes, bytes, int, bytes]]]]
) -> None:
    """Any bytes anywhere, and results without cells in between."""
    cellblock = form(name)
    block = b"".join(cellblock.encode(row, *cell) for row, cells in rows for cell in cells)
    counts = [count for _, cells in rows for count in (0, len(cells))]
    found = cellblock.decode(block, 0, counts)
    assert found == [
        result for row, cells in rows for result in ([], [Cell(row, *cell) for cell in cells])
    ]


@pytest.mark.parametrize("name", FORMS)
@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.binary(min_size=1, max_size=20), st.just(b"r" * 300)),
            st.lists(
                st.tuples(
                    st.binary(min_size=1, max_size=127),
                    names,
                    st.integers(0, 2**63 - 1),
                    st.one_of(names, st.just(b"v" * 70_000)),
                ),
                min_size=1,
                max_size=5,
            ),
        ),
        max_size=5,
    ),
    durability=st.sampled_from((0, 4)),
    more=st.sampled_from((0, 0, 140)),
)
def test_puts_are_encoded_as_one_by_one(
    name: str, rows: list[tuple[bytes, list[Fields]]], durability: int, more: int
) -> None:
    """At once they are the same bytes: lengths of one and of more bytes, many rows and few."""
    changes = [RowChange(row, [PutCell(*cell) for cell in cells]) for row, cells in rows]
    changes += [RowChange(b"%d" % at, [PutCell(b"f", b"q", at, b"v")]) for at in range(more)]
    region = Region("t", b"t,,1.", b"", b"", ServerName("h", 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "_IS_COMPILED", False)
        expected = messages.multi_request((RegionAction(region, changes),), durability)
        patch.setattr(messages, "_IS_COMPILED", True)
        patch.setattr(messages, "cellblock", form(name))
        assert messages.multi_request((RegionAction(region, changes),), durability) == expected


class Kind(bytes):
    """What callers may have in place of bytes, as NumPy's strings are."""


@pytest.mark.parametrize("name", ["interpreted", "compiled"])
def test_kinds_of_bytes_are_put_as_bytes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code that takes bytes takes nothing else."""
    region = Region("t", b"t,,1.", b"", b"", ServerName("h", 1))
    monkeypatch.setattr(messages, "_IS_COMPILED", True)
    monkeypatch.setattr(messages, "cellblock", form(name))
    found, expected = (
        messages.multi_request(
            (RegionAction(region, [RowChange(b"r", [PutCell(b"f", kind(b"q"), 1, b"v")])] * 2),), 0
        )
        for kind in (Kind, bytes)
    )
    assert found == expected


def test_cells_are_hashed_as_any_other(cellblock: Any) -> None:
    """They are keys of dicts, beside those that were made elsewhere."""
    block = cellblock.encode(b"r", b"f", b"q", 5, b"v")
    ((cell,),) = cellblock.decode(block, 0, [1])
    assert hash(cell) == hash(Cell(b"r", b"f", b"q", 5, b"v")) != 0


@pytest.mark.parametrize("family", [b"f" * 128, b"f" * 256, b"f" * 2**20])
def test_cells_that_hbase_cannot_hold_are_refused(cellblock: Any, family: bytes) -> None:
    """Compiled, nothing else holds a length against the table of lengths, or cuts it to a byte."""
    for row, named in ((b"r" * 2**15, b"f"), (b"r", family)):
        with pytest.raises(UsageError, match="too long"):
            cellblock.encode_puts([RowChange(row, [PutCell(named, b"q", 1, b"v")])], 0)
        with pytest.raises(UsageError, match="too long"):
            cellblock.encode(row, named, b"q", 1, b"v")
    block = cellblock.encode(b"r" * (2**15 - 1), b"f" * 127, b"q", 1, b"v")
    (((row, family, *_),),) = cellblock.decode(block, 0, [1])
    assert (len(row), len(family)) == (2**15 - 1, 127)


def test_a_block_cut_short_at_any_byte_is_refused(cellblock: Any) -> None:
    """Nothing is made up."""
    block = GOLDEN + cellblock.encode(b"a", b"f", b"y", 6, b"w")
    for length in range(len(block)):
        with pytest.raises(Garbled):
            cellblock.decode(block[:length], 0, [2])
    with pytest.raises(Garbled, match="1 bytes more"):
        cellblock.decode(block + b"x", 0, [2])


def test_any_byte_changed_is_refused_or_is_a_cell(cellblock: Any) -> None:
    """No length, however large, makes more than the bytes that are there."""
    for at in range(len(GOLDEN)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            changed = GOLDEN[:at] + bytes((value,)) + GOLDEN[at + 1 :]
            try:
                ((cell,),) = cellblock.decode(changed, 0, [1])
            except Garbled:
                continue
            assert sum(map(len, (cell.row, cell.family, cell.qualifier, cell.value))) == 6


def test_a_count_that_no_bytes_can_hold_is_refused_at_once(cellblock: Any) -> None:
    """Before a loop that it would make long."""
    with pytest.raises(Garbled, match="claims 4294967295 cells"):
        cellblock.decode(GOLDEN, 0, [2**32 - 1])


def test_cells_of_two_rows_are_no_result(cellblock: Any) -> None:
    """A count that is off by one would mix rows up."""
    block = GOLDEN + cellblock.encode(b"b", b"f", b"qx", 5, b"vv")
    with pytest.raises(Garbled, match="several rows"):
        cellblock.decode(block, 0, [2])


def test_lengths_are_those_of_the_codec() -> None:
    """The size says what follows it, so that a reader without the codec can skip."""
    (size,) = struct.unpack(">I", GOLDEN[:4])
    assert size == len(GOLDEN) - 4


def test_a_block_begins_within_its_bytes(cellblock: Any) -> None:
    """Compiled, a place before or behind them would be somebody else's memory."""
    for position in (-1, len(GOLDEN) + 1, 2**62):
        with pytest.raises(Garbled, match="begins beyond"):
            cellblock.decode(GOLDEN, position, [])
    for count in (-1, 2**64, 2**200):
        with pytest.raises(Garbled, match="claims"):
            cellblock.decode(GOLDEN, 0, [count])


def pairs_of(cells: list[Cell]) -> list[PairedCell]:
    """Pair the cells of a row, as simply as it can be said."""
    shadows: dict[tuple[bytes, bytes, int], bytes] = {}
    pairs: list[PairedCell] = []
    for row, family, qualifier, version, value in cells:
        if not qualifier.endswith(SHADOW_SUFFIX) or qualifier == SHADOW_SUFFIX:
            shadow = shadows.get((family, qualifier, version))
            pairs.append((row, family, qualifier, version, value, shadow))
        elif len(qualifier) >= 5 and qualifier.startswith(SHADOW_PREFIX):
            shadows[family, qualifier[3:-2], version] = value
    return pairs or [(*cell, None) for cell in cells[:1]]


few_names = st.sampled_from((b"", b"q", b"\x00", b"r" * 130))
few_qualifiers = st.one_of(
    few_names,
    few_names.map(shadow_qualifier),
    st.sampled_from(
        (SHADOW_SUFFIX, SHADOW_PREFIX, b"q" + SHADOW_SUFFIX, SHADOW_PREFIX + b"\x80", b"\x00\xc2")
    ),
)
rows_of_pairs = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from((b"f", b"g")),
            few_qualifiers,
            st.sampled_from((5, 2**31, 2**63 - 1)),
        ),
        unique=True,
        max_size=12,
    ),
    max_size=4,
)


@pytest.mark.parametrize("name", FORMS)
@given(rows=rows_of_pairs)
def test_pairs_are_as_they_can_most_simply_be_said(
    name: str, rows: list[list[tuple[bytes, bytes, int]]]
) -> None:
    """In whatever order they come: what is said of a cell is found before it, or is not found."""
    cellblock = form(name)
    cells = [
        [
            Cell(b"row%d" % number, *name, b"%d" % at if at % 3 else b"")
            for at, name in enumerate(row)
        ]
        for number, row in enumerate(rows)
    ]
    block = b"".join(cellblock.encode(*cell) for row in cells for cell in row)
    found = cellblock.decode_pairs(
        block, 0, [len(row) for row in cells], SHADOW_PREFIX, SHADOW_SUFFIX
    )
    assert found == [pairs_of(row) for row in cells]
    for row in cells:
        assert cellblock.pairs_of(row, SHADOW_PREFIX, SHADOW_SUFFIX) == pairs_of(row)


def test_pairs_of_a_block_cut_short_are_refused(cellblock: Any) -> None:
    """As single cells are."""
    shadow = cellblock.encode(b"a", b"f", shadow_qualifier(b"q"), 5, b"w")
    block = shadow + cellblock.encode(b"a", b"f", b"q", 5, b"v")
    affixes = SHADOW_PREFIX, SHADOW_SUFFIX
    assert cellblock.decode_pairs(block, 0, [2], *affixes) == [[(b"a", b"f", b"q", 5, b"v", b"w")]]
    for length in range(len(block)):
        with pytest.raises(Garbled):
            cellblock.decode_pairs(block[:length], 0, [2], *affixes)


BEFORE: Final = encode_long(500)
SAID: Final = encode_long(499)


def said_of(qualifier: bytes, version: int = 5, said: bytes = SAID, family: bytes = b"f") -> Fields:
    """Return what is said of a cell."""
    return family, shadow_qualifier(qualifier), version, said


def data(qualifier: bytes, version: int = 5, value: bytes = b"v", family: bytes = b"f") -> Fields:
    """Return a cell of which something may be said."""
    return family, qualifier, version, value


def values_of(cellblock: Any, *cells: Fields) -> tuple[Any, Any]:
    """Return a result as values, if it is plain, and in pairs."""
    block = b"".join(cellblock.encode(b"row", *cell) for cell in cells)
    affixes = SHADOW_PREFIX, SHADOW_SUFFIX
    ((key, found),) = cellblock.decode_values(block, 0, [len(cells)], *affixes, BEFORE, b"erased")
    assert key == b"row"
    return found, cellblock.decode_pairs(block, 0, [len(cells)], *affixes)[0]


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        ((said_of(b"a"), data(b"a")), {b"f:a": b"v"}),
        ((said_of(b"ab"), said_of(b"a"), data(b"a"), data(b"ab")), {b"f:a": b"v", b"f:ab": b"v"}),
        (
            (said_of(b"a"), data(b"a"), said_of(b"a", family=b"g"), data(b"a", family=b"g")),
            {b"f:a": b"v", b"g:a": b"v"},
        ),
        ((said_of(b"a"), said_of(b"b"), data(b"b")), {b"f:b": b"v"}),
        ((said_of(b"a"), data(b"a", value=b"")), {}),
        ((said_of(b"a"), data(b"a", value=b"erased")), {}),
        ((said_of(b"a", said=bytes(8)), data(b"a", 2**63 - 1)), None),
        ((said_of(b"a"), said_of(b"b"), data(b"a", value=b"erased"), data(b"b")), {b"f:b": b"v"}),
    ],
)
def test_of_a_plain_result_there_are_only_values(
    cellblock: Any, cells: tuple[Fields, ...], values: dict[bytes, bytes] | None
) -> None:
    """Without the columns that are erased; a version of its own needs what is said of that one."""
    found, pairs = values_of(cellblock, *cells)
    assert found == (pairs if values is None else values)


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param((data(b"a"),), id="nothing is said of it"),
        pytest.param((said_of(b"a", said=BEFORE), data(b"a")), id="said too late"),
        pytest.param((said_of(b"a", said=b"\xff" * 8), data(b"a")), id="said with a sign"),
        pytest.param((said_of(b"a", said=bytes(12)), data(b"a")), id="said in more bytes"),
        pytest.param((said_of(b"a", said=bytes(4)), data(b"a")), id="said in fewer bytes"),
        pytest.param((said_of(b"a", 4), data(b"a")), id="said of another version"),
        pytest.param((said_of(b"b"), data(b"a")), id="said of another column"),
        pytest.param((said_of(b"a", family=b"g"), data(b"a")), id="said in another family"),
        pytest.param((said_of(b"a", family=b"ff"), data(b"a")), id="said in a longer family"),
        pytest.param(
            (said_of(b"a"), said_of(b"a", 4), data(b"a"), data(b"a", 4, b"w")), id="two versions"
        ),
        pytest.param(
            (said_of(b"a"), said_of(b"a", 4), data(b"a", value=b""), data(b"a", 4, b"w")),
            id="one that is erased over another",
        ),
        pytest.param((said_of(b""), data(b"")), id="an empty qualifier"),
        pytest.param((said_of(b"a"),), id="nothing but what is said"),
        pytest.param(
            ((b"f", b"a" + SHADOW_SUFFIX, 5, SAID), said_of(b"a"), data(b"a")), id="the older form"
        ),
        pytest.param((data(b"a"), said_of(b"a")), id="said behind it"),
        pytest.param(
            (said_of(b"a"), data(b"a"), said_of(b"b"), data(b"a", 4)), id="said in an earlier run"
        ),
        pytest.param(
            tuple(
                made(b"%03d" % at)
                for made, numbers in ((said_of, range(99, -1, -1)), (data, range(100)))
                for at in numbers
            ),
            id="a long search",
        ),
    ],
)
def test_any_other_result_comes_in_pairs(cellblock: Any, cells: tuple[Fields, ...]) -> None:
    """Somebody else decides it, by all the rules that there are."""
    found, pairs = values_of(cellblock, *cells)
    assert isinstance(found, list)
    assert found == pairs


def test_the_bound_has_eight_bytes(cellblock: Any) -> None:
    """Compiled, so many of it are looked at."""
    for bound in (b"", bytes(7), bytes(9)):
        with pytest.raises(ValueError, match="8 bytes"):
            cellblock.decode_values(b"", 0, [], b"p", b"s", bound, b"")


def test_columns_may_change_from_result_to_result(cellblock: Any) -> None:
    """Names are taken from the result before where they are the same, and only there."""
    columns = [(b"f", b"a"), (b"g", b"a"), (b"f", b"b"), (b"fa", b"x"), (b"f", b"a:x")]
    rows = [
        [b"".join((family, b":", name)) for family, name in columns[at:] + columns[:at]]
        for at in range(len(columns))
    ]
    block, counts = b"", []
    for number, row in enumerate(rows):
        for name in row:
            family, _, qualifier = name.partition(b":")
            for cell in (said_of(qualifier, family=family), data(qualifier, family=family)):
                block += cellblock.encode(b"%d" % number, *cell)
        counts.append(2 * len(row))
    found = cellblock.decode_values(
        *(block, 0, counts, SHADOW_PREFIX, SHADOW_SUFFIX, BEFORE, b"erased")
    )
    assert found == [(b"%d" % number, dict.fromkeys(row, b"v")) for number, row in enumerate(rows)]


def test_what_is_made_of_a_block_is_left_to_no_collector(cellblock: Any) -> None:
    """Compiled: there are no cycles in it, and so many objects would be looked at again and again.

    And the collector goes on afterwards, also behind an error.
    """
    gc.collect()
    assert gc.isenabled()
    affixes = SHADOW_PREFIX, SHADOW_SUFFIX
    block = b"".join(cellblock.encode(b"a", *cell) for cell in (said_of(b"q"), data(b"q")))
    ((first, second),) = cellblock.decode(block, 0, [2])
    ((pair,),) = cellblock.decode_pairs(block, 0, [2], *affixes)
    assert isinstance(first, Cell)
    assert first == Cell(b"a", *said_of(b"q"))
    assert second._replace(value=b"w").value == b"w"
    if cellblock.is_compiled():
        assert not any(gc.is_tracked(one) for one in (first, second, pair))
    with pytest.raises(Garbled):
        cellblock.decode(block[:-1], 0, [2])
    assert gc.isenabled()
    gc.disable()
    try:
        cellblock.decode(block, 0, [2])
        assert not gc.isenabled()
    finally:
        gc.enable()
