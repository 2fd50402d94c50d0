"""Columns of another type than the table's: each value stays itself, or the frame is refused."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from math import inf
from typing import Any, Final

import pyarrow as pa
import pytest

import omidpy
from omidpy.errors import UsageError
from omidpy.manager import TransactionManager

DOUBLES: Final = pa.float64()


@pytest.fixture
def tm() -> Iterator[TransactionManager]:
    """Give a store in memory with a table."""
    with omidpy.connect("memory:") as made:
        made.create_table("t", ["cf"])
        yield made


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([1, 0, 5]), "bool"),
        (pa.array([0.5, None]), "bool"),
        (pa.array([1.0, 1e300], DOUBLES), "float"),
        (pa.array([Decimal(10) ** 60], pa.decimal256(76, 0)), "float"),
    ],
)
def test_a_value_that_would_become_another_one_is_refused(
    tm: TransactionManager, values: pa.Array, kind: str
) -> None:
    """Every number but 0 became true, and a large one infinity, where Arrow casts a column."""
    rows = pa.array([b"%d" % at for at in range(len(values))], pa.binary())
    table = pa.table({"row": rows, "v": values})
    with pytest.raises(UsageError, match="would become another"):
        tm.write_arrow("t", table, columns={"v": ("cf:v", kind)})


@pytest.mark.parametrize(
    ("values", "kind", "read"),
    [
        (pa.array([1, 0, None]), "bool", [True, False, None]),
        (pa.array([1.0, 0.0]), "bool", [True, False]),
        (pa.array(["true", "0"]), "bool", [True, False]),
        (pa.array([1.5, 0.1, float("inf")], DOUBLES), "float", [1.5, pytest.approx(0.1), inf]),
        (pa.array([1.5, float("-inf")], pa.float16()), "double", [1.5, -inf]),
        (pa.array([16777217.0]), "float", [16777216.0]),
        (pa.array([Decimal("1.5")]), "double", [1.5]),
    ],
)
def test_a_value_of_another_type_that_stays_itself_is_written(
    tm: TransactionManager, values: pa.Array, kind: str, read: list[Any]
) -> None:
    """What a fraction has too many digits for is rounded, as its codec does."""
    rows = pa.array([b"%d" % at for at in range(len(values))], pa.binary())
    columns = {"v": ("cf:v", kind)}
    with tm.begin() as tx:
        tx.table("t").write_arrow(pa.table({"row": rows, "v": values}), columns=columns)
        found = tx.table("t").read_arrow(columns=columns).read_all()["v"].to_pylist()
    assert found == [one for one in read if one is not None]
