"""Phoenix's dates and times as a column of frames: moments of Arrow's in UTC, which are Spark's."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import TimestampType

import omidpy
from omidpy import phoenix
from omidpy.committers.spark.schemas import arrow_schema
from omidpy.errors import UsageError
from omidpy.spark.frames.options import words
from omidpy.spark.frames.types import own_schema, shape_of

NOON: Final = datetime(2024, 2, 29, 12, 0, 0, 123_000, tzinfo=UTC)
MOMENTS: Final = ["DATE", "TIME", "TIMESTAMP", "UNSIGNED_DATE", "UNSIGNED_TIMESTAMP"]


@pytest.mark.parametrize("name", MOMENTS)
def test_moments_come_back_as_they_went(name: str) -> None:
    """Whatever the unit and the time zone of the frame."""
    columns: Any = {"at": ("cf:at", phoenix.codec(name))}
    with omidpy.connect("memory:") as tm:
        tm.create_table("t", ["cf"])
        for kind in (
            pa.timestamp("us", "UTC"),
            pa.timestamp("ms", "UTC"),
            pa.timestamp("ns", "Europe/Berlin"),
        ):
            data = pa.table({"row": [b"a", b"b"], "at": pa.array([NOON, None], kind)})
            tm.write_arrow("t", data, columns=columns)
            read = tm.scan_arrow("t", columns=columns).read_all()
            assert read["at"].type == pa.timestamp("us", "UTC")
            assert read.to_pylist() == [{"row": b"a", "at": NOON}]
            tm.write_arrow("t", read, columns=columns)
        fine = pa.table({"row": [b"c"], "at": [NOON.replace(microsecond=1)]})
        if "STAMP" in name:
            tm.write_arrow("t", fine, columns=columns)
        else:
            with pytest.raises(UsageError, match="finer than the milliseconds"):
                tm.write_arrow("t", fine, columns=columns)


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.date32(), pa.string(), pa.int64()])
def test_what_has_no_time_zone_is_no_moment(kind: pa.DataType) -> None:
    """Nobody knows which one it would be; nulls are nulls."""
    columns: Any = {"at": ("cf:at", phoenix.codec("DATE"))}
    with omidpy.connect("memory:") as tm:
        tm.create_table("t", ["cf"])
        with pytest.raises(UsageError, match=rf"'at' is of type {re.escape(str(kind))}.*; cast it"):
            tm.write_arrow("t", pa.table({"row": [b"a"], "at": pa.nulls(1, kind)}), columns=columns)
        tm.write_arrow("t", pa.table({"row": [b"a"], "at": pa.nulls(1)}), columns=columns)


@pytest.mark.parametrize("name", MOMENTS)
def test_a_frame_of_sparks_has_them(name: str) -> None:
    """Read with the types of options, and written with those of a frame."""
    place = {"store": "sqlite:///x.db", "tso": "here:1", "table": "t"}
    said = words({**place, "columns": f"at=cf:at omidpy.phoenix.types:{name}"})
    in_spark = from_arrow_schema(own_schema(said))
    assert in_spark["at"].dataType == TimestampType()
    shape = shape_of(said, arrow_schema(in_spark))
    assert shape.fields[0].codec is phoenix.codec(name)
