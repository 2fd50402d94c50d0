"""Primary keys of Phoenix's as row keys."""

from __future__ import annotations

from typing import Any

import pytest

from omidpy.errors import CorruptCell, UsageError
from omidpy.phoenix.keys import KeyColumn, RowKey
from omidpy.phoenix.types import of_name


def key(*columns: str, salt: int = 0) -> RowKey:
    """Return a key of types, which may be followed by ` DESC`, under the names A, B and C."""
    return RowKey(
        tuple(
            KeyColumn(name, of_name(text.removesuffix(" DESC")), text.endswith(" DESC"))
            for name, text in zip("ABC", columns, strict=False)
        ),
        salt,
    )


@pytest.mark.parametrize(
    ("of", "values", "data"),
    [
        (key("VARCHAR"), ["a"], b"a"),
        (key("VARCHAR", "VARCHAR"), ["a", "b"], b"a\x00b"),
        (key("VARCHAR", "VARCHAR"), ["a", None], b"a"),
        (key("VARCHAR", "VARCHAR", "VARCHAR"), [None, None, "c"], b"\x00\x00c"),
        (key("VARCHAR", "TINYINT"), [None, 1], b"\x00\x81"),
        (key("TINYINT", "VARCHAR"), [1, "a"], b"\x81a"),
        (key("TINYINT DESC"), [1], b"\x7e"),
        (key("VARCHAR DESC"), ["a"], b"\x9e\xff"),
        (key("VARCHAR DESC", "VARCHAR DESC"), [None, "a"], b"\x00\x9e\xff"),
        (key("TINYINT", "VARBINARY"), [1, b"\x00\x00"], b"\x81\x00\x00"),
        # As Phoenix 5.2.1 has it.
        (
            key("VARCHAR", "BIGINT DESC", "VARCHAR", salt=3),
            ["k", -3, "dd"],
            b"\x01k\x00\x80\x00\x00\x00\x00\x00\x00\x02dd",
        ),
    ],
)
def test_keys_have_phoenixs_bytes(of: RowKey, values: list[Any], data: bytes) -> None:
    """Both ways."""
    named = dict(zip("ABC", values, strict=False))
    assert of.encode(named) == data
    assert of.decode(data) == named


@pytest.mark.parametrize(
    ("of", "values", "message"),
    [
        (key("VARCHAR", "TINYINT"), {"A": "a"}, "lacks B"),
        (key("VARCHAR", "TINYINT"), {"A": "a", "B": None}, "B is a TINYINT of the key"),
        (key("VARCHAR", "TINYINT"), {"A": "a\x00b", "B": 1}, "zero byte"),
        (key("VARCHAR", "VARCHAR"), {"A": None, "B": None}, "names no row"),
        # Phoenix 5.2.1 itself reads NULL where it has written ff.
        (key("TINYINT", "VARBINARY"), {"A": 1, "B": b"a\xff"}, "B ends with a byte ff"),
    ],
)
def test_what_is_no_key_is_refused(of: RowKey, values: dict[str, Any], message: str) -> None:
    """Another row would be written."""
    with pytest.raises(UsageError, match=message):
        of.encode(values)


@pytest.mark.parametrize(
    ("of", "data"),
    [
        (key("TINYINT"), b"\x81\x81"),
        (key("BIGINT"), b"\x80"),
        (key("VARCHAR DESC"), b"\x9e"),
        (key("VARCHAR", "TINYINT"), b"a"),
    ],
)
def test_rows_that_no_key_has_are_corrupt(of: RowKey, data: bytes) -> None:
    """Somebody wrote them by bytes."""
    with pytest.raises(CorruptCell):
        of.decode(data)


def test_ranges_hold_what_begins_with_the_values() -> None:
    """One for each salt; a text ends with its zero byte, or with the key."""
    of = key("VARCHAR", "VARCHAR")
    assert of.spans([]) == [(b"", None)]
    assert of.spans(["a"]) == [(b"a", b"a\x01")]
    assert of.spans(["a", "b"]) == [(b"a\x00b", b"a\x00b\x01")]
    assert key("TINYINT", "VARCHAR").spans([127]) == [(b"\xff", None)]
    assert key("TINYINT", salt=2).spans([0]) == [
        (b"\x00\x80", b"\x00\x81"),
        (b"\x01\x80", b"\x01\x81"),
    ]
    assert key("TINYINT", salt=2).spans([127]) == [(b"\x00\xff", b"\x01"), (b"\x01\xff", b"\x02")]
    assert of.spans([None]) == [(b"", None)]
