"""What is done to every row that is read, in both forms, and also where a row is damaged."""

from __future__ import annotations

from typing import Any

import pytest

from omidpy.base.cells import LEGACY_TOMBSTONE, encode_long
from omidpy.model import Cell
from tests.machines.engines import compiled_rows, interpreted_rows

BEFORE = encode_long(1000)
SHADOW = encode_long(500)
A = (b"r", b"f", b"a", 400, b"v", SHADOW)
B = (b"r", b"f", b"b", 400, b"w", SHADOW)


@pytest.fixture(params=["interpreted", "compiled"])
def rows(request: pytest.FixtureRequest) -> Any:
    """Return the module in each of its forms."""
    found = interpreted_rows() if request.param == "interpreted" else compiled_rows()
    if found is None:
        pytest.skip("Cython or a C compiler is missing, so there is no compiled form")
    assert found.is_compiled() == (request.param == "compiled")
    return found


def test_a_row_of_which_all_is_seen_comes_back_as_it_is(rows: Any) -> None:
    """Without a copy."""
    row = [A, B]
    assert rows.simple_row(row, BEFORE) is row
    assert rows.simple_values(row, BEFORE) == {b"f:a": b"v", b"f:b": b"w"}


@pytest.mark.parametrize("value", [b"", LEGACY_TOMBSTONE])
def test_a_tombstone_shows_nothing(rows: Any, value: bytes) -> None:
    """Nor what is older than it."""
    row = [(*A[:4], value, SHADOW), (*A[:3], 350, b"old", SHADOW), B]
    assert rows.simple_row(row, BEFORE) == [B]
    assert rows.simple_values(row, BEFORE) == {b"f:b": b"w"}


@pytest.mark.parametrize(
    "cell",
    [
        (*A[:5], None),
        (*A[:5], b""),
        (*A[:5], SHADOW[1:]),
        (*A[:5], BEFORE),
        (*A[:5], encode_long(1050)),
        (b"r", b"f", b"", 400, b"v", SHADOW),
    ],
    ids=["unhealed", "empty", "torn", "at the snapshot", "behind it", "perhaps a marker"],
)
def test_what_must_be_decided_is_not_simple(rows: Any, cell: Any) -> None:
    """Wherever it stands in its row."""
    for row in ([cell], [cell, B], [(b"r", b"a", b"a", 400, b"v", SHADOW), cell]):
        assert rows.simple_row(row, BEFORE) is None
        assert rows.simple_values(row, BEFORE) is None


@pytest.mark.parametrize("shadow", ["8 letters", 7, 1.5])
def test_a_shadow_cell_that_holds_no_bytes_is_refused(rows: Any, shadow: object) -> None:
    """As damaged files have them."""
    with pytest.raises(TypeError):
        rows.simple_row([(*A[:5], shadow)], BEFORE)


def test_cells_are_told_apart_by_their_rows(rows: Any) -> None:
    """Fields and cells alike; the cells themselves stay as they are."""
    first, second, third = Cell(*A[:5]), Cell(*B[:5]), Cell(b"s", *A[1:5])
    assert rows.by_row([]) == []
    assert rows.by_row([first, second, third]) == [[first, second], [third]]
    assert rows.by_row([A, B, (b"s", *A[1:])]) == [[A, B], [(b"s", *A[1:])]]


def test_an_odd_cell_is_paired_with_none(rows: Any) -> None:
    """In a row that is not as many shadow cells as data."""
    data, shadow = Cell(*A[:5]), Cell(b"r", b"f", b"\x00\xc2\x80a\xc2\x80", 400, SHADOW)
    alone = Cell(*B[:5])
    assert rows.paired([]) == []
    assert rows.paired([shadow, data]) == [A]
    assert rows.paired([shadow, data, alone]) == [A, (*alone, None)]
