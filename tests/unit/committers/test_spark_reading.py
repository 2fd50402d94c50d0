"""Files that are published, as Spark reads them: which column is which."""

from __future__ import annotations

import io
import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import BooleanType, FloatType, IntegerType, LongType, StructType

from omidpy.committers.contents.manifests import PublishedFile
from omidpy.committers.spark.reading import PublishedReader
from omidpy.errors import UsageError


class Seen:
    """What is published: one file."""

    def __init__(self, path: str, table: pa.Table) -> None:
        """Keep it."""
        sink = io.BytesIO()
        pq.write_table(table, sink)
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
