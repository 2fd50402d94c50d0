"""Phoenix's DECIMAL as a column of frames: decimals of Arrow's, each of which fits or is named."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

import omidpy
from omidpy import phoenix
from omidpy.errors import UsageError
from omidpy.manager import TransactionManager

MONEY: Final = phoenix.codec("DECIMAL(10,2)")
COLUMNS: Final[Any] = {"sum": ("cf:sum", MONEY)}


@pytest.fixture
def tm() -> Iterator[TransactionManager]:
    """Give a store in memory with a table."""
    with omidpy.connect("memory:") as made:
        made.create_table("t", ["cf"])
        yield made


def test_decimals_come_back_as_they_went(tm: TransactionManager) -> None:
    """With the digits of the column, whatever those of the frame; whole numbers, too."""
    texts = ["0.00", "-99999999.99", "12345678.90", "1200.00", "-0.01"]
    values = [*map(Decimal, texts), None]
    data = pa.table({"row": [b"%d" % at for at in range(6)], "sum": values})
    wide = data.set_column(1, "sum", data["sum"].cast(pa.decimal128(30, 8)))
    for one in (data, wide):
        tm.write_arrow("t", one, columns=COLUMNS)
        reader = tm.scan_arrow("t", columns=COLUMNS)
        assert reader.schema.field("sum").type == pa.decimal128(10, 2)
        assert reader.read_all()["sum"].to_pylist() == values[:-1]
    with tm.begin() as tx:
        assert tx.table("t").row(b"3") == {b"cf:sum": MONEY.encode(Decimal(1200))}
        codecs = {b"cf:sum": MONEY}
        (scanned,) = tx.table("t").scan_arrow(codecs=codecs)
    assert scanned["cf:sum"].type == pa.decimal128(10, 2)
    tm.write_arrow("t", pa.table({"row": [b"0", b"1"], "sum": [7, None]}), columns=COLUMNS)
    tm.write_arrow("t", pa.table({"row": [b"1"], "sum": pa.nulls(1)}), columns=COLUMNS)
    assert tm.scan_arrow("t", columns=COLUMNS).read_all()["sum"].to_pylist()[:2] == [
        Decimal(7),
        values[1],
    ]


def test_decimals_are_row_keys_too(tm: TransactionManager) -> None:
    """In the order of numbers."""
    key: Any = {"sum": MONEY}
    sums = [Decimal(one) for one in ("3", "-2.5", "100", "0.01")]
    tm.write_arrow(
        "t", pa.table({"sum": sums, "x": ["x"] * 4}), key=key, columns={"x": ("cf:x", "string")}
    )
    read = tm.scan_arrow("t", key=key, columns={"x": ("cf:x", "string")}).read_all()
    assert read["sum"].to_pylist() == sorted(sums)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Decimal("0.005"), r"0\.005 does not fit in DECIMAL\(10,2\)"),
        (Decimal(123456789), r"123456789 does not fit in DECIMAL\(10,2\)"),
        (10**8, r"100000000 does not fit in DECIMAL\(10,2\)"),
        (0.5, "'sum' is of type double, and DECIMAL.* stores decimal128.*; cast it"),
        ("1", "'sum' is of type string"),
    ],
)
def test_what_does_not_fit_is_not_written(
    tm: TransactionManager, value: object, message: str
) -> None:
    """Nor rounded; and a floating number has digits that nobody wrote."""
    data = pa.table({"row": [b"a"], "sum": [value]})
    with pytest.raises(UsageError, match=message):
        tm.write_arrow("t", data, columns=COLUMNS)
    assert tm.scan_arrow("t").read_all().num_rows == 0


@pytest.mark.parametrize("number", ["0.005", "123456789"])
def test_what_does_not_fit_is_named_where_it_is_read(tm: TransactionManager, number: str) -> None:
    """By row and column, as it is in a column that has more digits to SQL."""
    wide = phoenix.codec("DECIMAL").encode(Decimal(number))
    with tm.begin() as tx:
        tx.table("t").put(b"a", {b"cf:sum": MONEY.encode(Decimal(1))})
        tx.table("t").put(b"b", {b"cf:sum": wide})
    with pytest.raises(
        UsageError, match=rf"row b'b', column b'cf:sum': Decimal\('{number}'\), which .*DECIMAL\(10"
    ):
        tm.scan_arrow("t", columns=COLUMNS).read_all()
    more: Any = {"sum": ("cf:sum", "omidpy.phoenix.types:DECIMAL(38,10)")}
    read = tm.scan_arrow("t", columns=more).read_all()
    assert read["sum"].to_pylist()[1] == Decimal(number)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("DECIMAL", r"how many digits a column has.*such as DECIMAL\(38,10\)"),
        ("DECIMAL(50,2)", r"the codec DECIMAL\(50,2\) names the Arrow type 'decimal128\(50, 2\)'"),
    ],
)
def test_a_decimal_without_digits_that_arrow_has_is_no_column(
    tm: TransactionManager, name: str, message: str
) -> None:
    """Read or written; the remedy is named."""
    columns: Any = {"sum": ("cf:sum", phoenix.codec(name))}
    with pytest.raises(UsageError, match=message):
        tm.scan_arrow("t", columns=columns)
    with pytest.raises(UsageError, match=message):
        tm.write_arrow("t", pa.table({"row": [b"a"], "sum": [Decimal(1)]}), columns=columns)
