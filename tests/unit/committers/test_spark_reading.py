"""Files that are published, as Spark reads them: which column is which."""

from __future__ import annotations

import io
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from omidpy.committers.contents.manifests import PublishedFile
from omidpy.committers.spark import fitting
from omidpy.committers.spark.reading import PublishedReader, columns
from omidpy.errors import UsageError


class Seen:
    """What is published: one file."""

    def __init__(self, path: str, table: pa.Table, **options: Any) -> None:
        """Keep it."""
        sink = io.BytesIO()
        pq.write_table(table, sink, **options)
        self.data = sink.getvalue()
        self.files = (PublishedFile("lake", f"f/{path}", path, len(self.data)),)

    def read(self, file: PublishedFile) -> bytes:
        """Return what it holds."""
        assert file in self.files
        return self.data


def rows(seen: Seen, schema: StructType) -> list[dict[str, Any]]:
    """Read it with a schema."""
    reader = PublishedReader(seen, schema)  # type: ignore[arg-type]  # all that is asked of it
    (one,) = reader.partitions()
    return [row for batch in reader.read(one) for row in batch.to_pylist()]


def test_a_column_is_found_whatever_its_case_is() -> None:
    """A later job may write `Id` where the first has written `id`: its rows are no nulls."""
    seen = Seen("Month=3/a.parquet", pa.table({"Id": [1, 2], "other": [0, 0]}))
    schema = StructType().add("id", LongType()).add("month", IntegerType()).add("none", LongType())
    assert rows(seen, schema) == [
        {"id": 1, "month": 3, "none": None},
        {"id": 2, "month": 3, "none": None},
    ]


def test_the_name_itself_goes_before_others() -> None:
    """Of two that differ in case alone the one that was asked for is read, or none is."""
    seen = Seen("a.parquet", pa.table({"id": [1], "ID": [2]}))
    both = StructType().add("ID", LongType()).add("id", LongType())
    assert rows(seen, both) == [{"ID": 2, "id": 1}]
    with pytest.raises(UsageError, match="'Id' could be 'id' or 'ID' of s3:"):
        rows(seen, StructType().add("Id", LongType()))


def test_a_value_that_would_become_another_one_is_refused() -> None:
    """Jobs of one destination may differ in types: 5 was true, and digits were gone."""
    for found, kind in (
        (pa.array([1, 5]), BooleanType()),
        (pa.array([1.0, 16777217.0]), FloatType()),
        (pa.array([1e300]), FloatType()),
        (pa.array([1.5]), DecimalType(10, 0)),
        (pa.array([Decimal("1234567890123456789.12")]), DoubleType()),
        (pa.array([datetime(2020, 1, 1, tzinfo=UTC)], pa.timestamp("us")), TimestampType()),
        (pa.array([datetime(2020, 1, 1, tzinfo=UTC)]), TimestampNTZType()),
        (pa.array([datetime(2020, 1, 1, 12, tzinfo=UTC)], pa.timestamp("us")), DateType()),
        (pa.array([12]), TimestampType()),
        (pa.array([12], pa.int32()), DateType()),
        (pa.array([[1, 5]]), ArrayType(BooleanType())),
        (pa.array([{"x": 0.1}]), StructType().add("x", FloatType())),
        (
            pa.array([[("k", 0.1)]], pa.map_(pa.string(), pa.float64())),
            MapType(StringType(), FloatType()),
        ),
    ):
        seen = Seen("a.parquet", pa.table({"v": found}))
        with pytest.raises(UsageError, match=r"'v' of s3://lake/f/a\.parquet is of type .* asked"):
            rows(seen, StructType().add("v", kind))
    seen = Seen("a.parquet", pa.table({"v": [0.5, None, math.nan, math.inf]}))
    first, second, third, last = (
        one["v"] for one in rows(seen, StructType().add("v", FloatType()))
    )
    assert (first, second, last) == (0.5, None, math.inf)
    assert math.isnan(third)


def test_what_is_nested_is_found_and_checked_as_columns_are() -> None:
    """Fields of a later job that have another case were null, and numbers others."""
    inner = pa.struct([("X", pa.int64()), ("z", pa.int64())])
    values = [[{"X": 1, "z": 2}, None], None, [], [{"X": None, "z": 3}]]
    maps = [[("k", 1.5)], None, [], [("l", None)]]
    table = pa.table(
        {
            "l": pa.array(values, pa.list_(inner)),
            "m": pa.array(maps, pa.map_(pa.string(), pa.float64())),
        }
    )
    wanted = StructType().add("x", IntegerType()).add("y", StringType())
    schema = StructType().add("l", ArrayType(wanted)).add("m", MapType(StringType(), FloatType()))
    found = rows(Seen("a.parquet", table), schema)
    assert [one["m"] for one in found] == maps
    assert [one["l"] for one in found] == [
        [{"x": 1, "y": None}, None],
        None,
        [],
        [{"x": None, "y": None}],
    ]


def test_int96_is_a_moment_whatever_its_year() -> None:
    """Spark reads it so; it was a time without a zone, and wrapped around before 1677."""
    kind = pa.timestamp("us", "America/New_York")
    moments = [datetime(1, 1, 2, tzinfo=UTC), None, datetime(9999, 12, 31, 23, 59, tzinfo=UTC)]
    table = pa.table(
        {
            "t": pa.array(moments, kind),
            "l": pa.array([moments, None, []], pa.list_(kind)),
            "s": pa.array(
                [{"n": 1, "t": one} for one in moments],
                pa.struct([("n", pa.int64()), ("t", kind)]),
            ),
            "m": pa.array([[("k", one)] for one in moments], pa.map_(pa.string(), kind)),
        }
    )
    seen = Seen("a.parquet", table, use_deprecated_int96_timestamps=True)
    schema = from_arrow_schema(columns(seen))  # type: ignore[arg-type]  # all that is asked of it
    assert schema["t"].dataType == TimestampType()
    assert rows(seen, schema) == [
        {"t": one, "l": many, "s": {"n": 1, "t": one}, "m": [("k", one)]}
        for one, many in zip(moments, (moments, None, []), strict=True)
    ]


@pytest.mark.parametrize(("text", "kind"), [("x", IntegerType()), ("2020", TimestampType())])
def test_a_folder_that_is_no_value_is_named(text: str, kind: Any) -> None:
    """What stands there is text, and of a moment does not say which zone it is of."""
    seen = Seen(f"p={text}/a.parquet", pa.table({"v": [1]}))
    with pytest.raises(UsageError, match=rf"'p' of s3://lake/f/p={text}/a\.parquet is of type str"):
        rows(seen, StructType().add("p", kind))
    found = rows(Seen("p=1/a.parquet", pa.table({"v": [1]})), StructType().add("p", StringType()))
    assert found == [{"p": "1"}]


def test_a_part_of_a_nested_column_is_fitted_as_the_whole() -> None:
    """Its offsets count from the beginning of the whole."""
    longs = pa.int64()
    for values, given, wanted in (
        ([[1], [2, 3], None, [4]], pa.list_(longs), pa.list_(pa.int32())),
        (
            [[("a", 1)], [("b", 2)], None],
            pa.map_(pa.string(), longs),
            pa.map_(pa.string(), pa.int32()),
        ),
        (
            [{"a": [1]}, {"a": [2]}, None, {"a": None}],
            pa.struct([("a", pa.list_(longs))]),
            pa.struct([("a", pa.list_(pa.int32()))]),
        ),
    ):
        for start in range(len(values)):
            part = pa.array(values, given).slice(start, 2)
            found = fitting.fitted(part, wanted, lambda name, names: name)
            found.validate(full=True)
            assert found.to_pylist() == values[start : start + 2]
