"""Phoenix's types as bytes.  The golden ones are what Phoenix 5.2.1 has left in cells."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omidpy.errors import CorruptCell, UsageError
from omidpy.phoenix import codec, types


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("BIGINT", 5, "8000000000000005"),
        ("SMALLINT", -2, "7ffe"),
        ("INTEGER", 7, "80000007"),
        ("UNSIGNED_LONG", 9, "0000000000000009"),
        ("DECIMAL(10,2)", Decimal("-12.5"), "3e593366"),
        ("DECIMAL", Decimal(100), "c202"),
        ("DECIMAL", Decimal(0), "80"),
        ("DOUBLE", -1.5, "4008000000000000"),
        ("FLOAT", 2.5, "c0200001"),
        ("CHAR(4)", "ab", "61622020"),
        ("BINARY(3)", b"a\x00\x00", "610000"),
        ("VARCHAR", "Zoë", "5a6fc3ab"),
        ("BOOLEAN", True, "01"),
        ("DATE", datetime(2020, 1, 2, 3, 4, 5, 678000, UTC), "8000016f6435cf2e"),
        ("TIMESTAMP", datetime(2020, 1, 2, 3, 4, 5, 678009, UTC), "8000016f6435cf2e00002328"),
        (
            "UNSIGNED_TIMESTAMP",
            datetime(2020, 1, 2, 3, 4, 5, 678000, UTC),
            "0000016f6435cf2e00000000",
        ),
    ],
)
def test_values_have_phoenixs_bytes(name: str, value: Any, data: str) -> None:
    """Its own clients read them."""
    assert codec(name).encode(value).hex() == data
    assert codec(name).decode(bytes.fromhex(data)) == value


NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "TINYINT": st.integers(-128, 127),
    "UNSIGNED_INT": st.integers(0, 2**31 - 1),
    "DOUBLE": st.floats(allow_nan=False),
    "FLOAT": st.floats(allow_nan=False, width=32),
    "UNSIGNED_DOUBLE": st.floats(0, allow_nan=False),
    "DECIMAL": st.decimals(allow_nan=False, allow_infinity=False, places=7, min_value=-(10**25)),
    "TIMESTAMP": st.datetimes(timezones=st.just(UTC)),
}


@pytest.mark.parametrize("name", NUMBERS)
@given(data=st.data())
def test_bytes_order_as_values_do(name: str, data: st.DataObject) -> None:
    """Which is why a key can be made of them, and a range read."""
    values = NUMBERS[name].filter(lambda value: name != "DECIMAL" or abs(value) < 10**25)
    one, other = data.draw(values), data.draw(values)
    encoded = codec(name).encode(one), codec(name).encode(other)
    assert tuple(map(codec(name).decode, encoded)) == (one, other)
    if str(one) != "-0.0" and str(other) != "-0.0":  # which is less than 0.0 to Java
        assert (encoded[0] < encoded[1]) == (one < other)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BIGINT", 2**63),
        ("UNSIGNED_INT", -1),
        ("UNSIGNED_LONG", 2**63),
        ("UNSIGNED_DOUBLE", -0.5),
        ("FLOAT", 1e300),
        ("DECIMAL", Decimal("1." + "1" * 38)),
        ("DECIMAL", Decimal("NaN")),
        ("DECIMAL", Decimal("1e140")),
        ("DECIMAL(4,2)", Decimal(123)),
        ("DECIMAL(4,2)", Decimal("1.234")),
        ("DECIMAL(38,28)", Decimal("123456789.12345678901234567890123456789")),
        ("DECIMAL(30,2)", Decimal("1" + "0" * 28)),
        ("DOUBLE", 10**400),
        ("DECIMAL", 10**400),
        ("VARCHAR", ""),
        ("VARBINARY", b""),
        ("CHAR(2)", "abc"),
        ("CHAR(2)", "é"),
        ("BINARY(2)", b"abc"),
        ("DATE", datetime(2020, 1, 1)),  # noqa: DTZ001 - that is what is refused
        ("DATE", datetime(2020, 1, 1, 0, 0, 0, 1, UTC)),
        ("UNSIGNED_DATE", datetime(1969, 1, 1, tzinfo=UTC)),
    ],
)
def test_what_does_not_fit_is_refused(name: str, value: Any) -> None:
    """Phoenix would round it, or read something else."""
    with pytest.raises(UsageError):
        codec(name).encode(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DECIMAL(30,2)", Decimal("9" * 28 + ".99")),
        ("DECIMAL(38,10)", Decimal("9" * 28 + "." + "9" * 10)),
        ("DECIMAL(38,0)", Decimal("9" * 38)),
        ("DECIMAL(2,2)", Decimal("0.00")),
        ("DECIMAL(2,2)", Decimal("-0.99")),
        ("DECIMAL(5,2)", Decimal("100.00")),
        ("DECIMAL(5,2)", Decimal("1E+2")),
    ],
)
def test_a_decimal_that_fits_is_taken_whole(name: str, value: Decimal) -> None:
    """Whatever the context of its caller rounds to: 28 digits, unless it says otherwise."""
    with localcontext() as context:
        context.prec = 4
        encoded = codec(name).encode(value)
    assert codec(name).decode(encoded) == value


@pytest.mark.parametrize(
    ("name", "value"), [("BIGINT", "5"), ("BIGINT", True), ("VARCHAR", b"a"), ("DECIMAL", 0.1)]
)
def test_another_type_is_refused(name: str, value: Any) -> None:
    """A float is no DECIMAL: it would have digits that nobody wrote."""
    with pytest.raises(TypeError, match=f"{name} encodes"):
        codec(name).encode(value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("BIGINT", b"\x80"),
        ("UNSIGNED_LONG", b"\xff" * 8),
        ("DOUBLE", b"\x80"),
        ("DECIMAL", b"\xc1"),
        ("DECIMAL", b"\xc1\xff"),
        ("DECIMAL", b""),
        ("BOOLEAN", b"\xff"),
        ("VARCHAR", b"\xff"),
        ("CHAR(2)", b"a"),
        ("DATE", b"\x80"),
        ("DATE", b"\xff" * 8),
        ("TIMESTAMP", b"\x80" + bytes(7)),
        ("TIMESTAMP", b"\x80" + bytes(10) + b"\x01"),
    ],
)
def test_bytes_that_no_value_has_are_corrupt(name: str, data: bytes) -> None:
    """And not some value or other; nanoseconds cannot be held."""
    with pytest.raises(CorruptCell, match=f"is no {name[:4]}"):
        codec(name).decode(data)


def test_moments_of_any_zone_are_read_in_utc() -> None:
    """They are moments, and not what a clock showed."""
    noon = datetime(2020, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert (
        codec("DATE").decode(codec("DATE").encode(noon)).isoformat() == "2020-01-01T10:00:00+00:00"
    )


@pytest.mark.parametrize(
    "name",
    ["JSON", "CHAR(x)", "BIGINT(3)", "INTEGER ARRAY", "", "DECIMAL()", f"CHAR({'9' * 5000})"],
)
def test_names_of_no_type_are_refused(name: str) -> None:
    """By the name."""
    with pytest.raises(UsageError, match="is no type of Phoenix's"):
        codec(name)
    with pytest.raises(AttributeError):
        getattr(types, name or "NO")


def test_codecs_travel_to_other_processes_by_name() -> None:
    """As the DataFrame source sends them."""
    for name in ("BIGINT", "CHAR(3)", "DECIMAL(10,2)"):
        assert pickle.loads(pickle.dumps(codec(name))) is codec(name)
        assert getattr(types, name) is codec(name)
    assert repr(codec("BIGINT")) == "phoenix.codec('BIGINT')"
