"""Tables of pyarrow as Parquet files of an attempt."""

from __future__ import annotations

import io
import math
import re
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omidpy.committers import tables
from omidpy.committers.protocol import Attempt
from omidpy.committers.tables import PartitionedWriter
from omidpy.committers.values import PendingFile, TaskId
from omidpy.errors import UsageError


class Kept:
    """A file in memory."""

    def __init__(self, world: World, path: str) -> None:
        """Belong to a world."""
        self.rows: int | None = None
        self.data = bytearray()
        self.is_open = True
        self._world = world
        self._path = path
        world.open += 1
        world.most_open = max(world.most_open, world.open)

    def write(self, data: bytes, /) -> int:
        """Add bytes."""
        self.data += data
        return len(data)

    def close(self) -> None:
        """End it."""
        if self.is_open:
            self.is_open = False
            self._world.open -= 1

    def abort(self) -> None:
        """End it."""
        self.close()

    def pending(self) -> PendingFile:
        """Return what is known."""
        return PendingFile(self._path, len(self.data), self.rows)


class World:
    """An attempt whose files are kept."""

    def __init__(self) -> None:
        """Begin an attempt."""
        self.open = 0
        self.most_open = 0
        self.attempt = Attempt(TaskId(3), "job_00001", lambda path: Kept(self, path))

    def read(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of every file by its path."""
        return {
            path: pq.read_table(io.BytesIO(bytes(one.data))).to_pylist()
            for path, one in self.attempt.files.items()
            if isinstance(one, Kept)
        }


def test_batches_make_one_row_group() -> None:
    """Spark's batches are small, and a group of a few rows costs more than it holds."""
    world = World()
    writer = PartitionedWriter(world.attempt)
    for at in range(10):
        writer.write(pa.record_batch({"a": [at]}))
    writer.close()
    ((path, rows),) = world.read().items()
    assert path == "part-00003-c000.snappy.parquet"
    assert [row["a"] for row in rows] == list(range(10))
    (file,) = world.attempt.files.values()
    assert isinstance(file, Kept)
    assert pq.read_metadata(io.BytesIO(bytes(file.data))).num_row_groups == 1
    assert (file.rows, writer.rows) == (10, 10)


@pytest.mark.parametrize(("rows", "size", "groups"), [(4, 2**20, 3), (100, 16, 5)])
def test_a_full_row_group_waits_no_longer(
    monkeypatch: pytest.MonkeyPatch, rows: int, size: int, groups: int
) -> None:
    """A task of any length holds one group in memory: of so many rows, or bytes."""
    monkeypatch.setattr(tables, "GROUP_BYTES", size)
    world = World()
    writer = PartitionedWriter(world.attempt, group_rows=rows)
    for at in range(10):
        writer.write(pa.table({"a": [at]}))
    writer.close()
    (file,) = world.attempt.files.values()
    assert isinstance(file, Kept)
    assert pq.read_metadata(io.BytesIO(bytes(file.data))).num_row_groups == groups


def test_a_partition_that_comes_often_stays_open() -> None:
    """The one that waited longest is ended for another, and not the one that was opened first."""
    world = World()
    writer = PartitionedWriter(world.attempt, partition_by=["p"], most_open=2)
    for value in (1, 2, 1, 3, 1):
        writer.write(pa.table({"p": [value], "v": [value]}))
    writer.close()
    assert len(world.read()) == 3


def test_columns_become_folders_and_rows_keep_their_order() -> None:
    """Null, text and numbers name folders as Spark names them."""
    world = World()
    writer = PartitionedWriter(world.attempt, partition_by=["p", "q"])
    writer.write(
        pa.table(
            {
                "p": ["x", "y", "x", None, "x"],
                "v": [1, 2, 3, 4, 5],
                "q": [True, True, True, False, False],
            }
        )
    )
    writer.close()
    found = {
        path.rpartition("/")[0]: [row["v"] for row in rows] for path, rows in world.read().items()
    }
    assert found == {
        "p=x/q=true": [1, 3],
        "p=y/q=true": [2],
        "p=__HIVE_DEFAULT_PARTITION__/q=false": [4],
        "p=x/q=false": [5],
    }
    assert all(set(row) == {"v"} for rows in world.read().values() for row in rows)


def test_open_files_are_bounded() -> None:
    """A million values must not be a million files in memory; no row is lost to the bound."""
    world = World()
    writer = PartitionedWriter(world.attempt, partition_by=["p"], most_open=2)
    for _ in range(2):
        writer.write(pa.table({"p": [1, 2, 3, 4], "v": [1, 2, 3, 4]}))
    writer.close()
    assert world.most_open == 2
    assert not world.open
    files = world.read()
    assert sorted(row["v"] for rows in files.values() for row in rows) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert len(files) == 8


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest of many small files goes first."""
    monkeypatch.setattr(tables, "WAITING_BYTES", 200)
    world = World()
    writer = PartitionedWriter(world.attempt, partition_by=["p"])
    for _ in range(20):
        writer.write(pa.table({"p": [1, 2], "v": [1, 2]}))
        assert sum(one.waiting_bytes for one in writer._files.values()) <= 200
    writer.close()
    assert sum(len(rows) for rows in world.read().values()) == 40


@pytest.mark.parametrize(
    ("table", "partition_by", "message"),
    [
        ({"a": [1]}, ["b"], "no column 'b'"),
        ({"a": [1]}, ["a"], "leave one for the files"),
        ({"a": [[1]], "b": [1]}, ["a"], "cannot name folders"),
    ],
)
def test_what_cannot_be_partitioned_is_refused(
    table: dict[str, Any], partition_by: list[str], message: str
) -> None:
    """The column is named."""
    with pytest.raises(UsageError, match=message):
        PartitionedWriter(World().attempt, partition_by=partition_by).write(pa.table(table))


def test_what_is_no_table_is_refused() -> None:
    """A list of rows has no types."""
    with pytest.raises(UsageError, match="a list is no table"):
        PartitionedWriter(World().attempt).write([1])


def test_tables_of_one_file_have_one_schema() -> None:
    """Parquet has no other."""
    writer = PartitionedWriter(World().attempt)
    writer.write(pa.table({"a": [1]}))
    writer.write(pa.table({"b": [1]}))
    with pytest.raises(UsageError, match="cannot be written as Parquet"):
        writer.close()


def test_columns_that_hardly_repeat_have_no_dictionary() -> None:
    """It would hold every value once more."""
    table = pa.table(
        {
            "id": list(range(1000)),
            "kind": ["a", "b"] * 500,
            "name": [f"n{at}" for at in range(1000)],
            "dotted.name": [1] * 1000,
            "deep": [[1, 2]] * 1000,
        }
    )
    dictionary, encodings = tables.encodings_of(table)
    assert encodings == {"id": "DELTA_BINARY_PACKED"}
    assert set(dictionary) == {"kind", "dotted.name", "deep.list.element"}
    plain, ours = io.BytesIO(), World()
    pq.write_table(table, plain)
    writer = PartitionedWriter(ours.attempt)
    writer.write(table)
    writer.close()
    (file,) = ours.attempt.files.values()
    assert isinstance(file, Kept)
    assert len(file.data) < len(plain.getvalue()) * 0.8


@pytest.mark.parametrize("timestamps", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
def test_timestamps_are_stored_as_asked(timestamps: str) -> None:
    """Values that differ have deltas, which INT96 has not."""
    stored = {"INT96": "INT96"}.get(timestamps, "INT64")
    table = pa.table({"t": pa.array(range(0, 9_000, 1_000), pa.timestamp("us", "UTC"))})
    world = World()
    writer = PartitionedWriter(world.attempt, timestamps=timestamps)
    writer.write(table)
    writer.close()
    (file,) = world.attempt.files.values()
    found = pq.ParquetFile(io.BytesIO(file.data))  # type: ignore[attr-defined]  # `Kept` has it
    assert found.schema.column(0).physical_type == stored
    assert found.read().column("t").cast(pa.timestamp("us", "UTC")).to_pylist() == (
        table.column("t").to_pylist()
    )


def test_a_file_that_is_full_ends() -> None:
    """In each partition by itself; the last file has what is left."""
    world = World()
    writer = PartitionedWriter(world.attempt, partition_by=["p"], most_rows=2)
    writer.write(pa.table({"p": [1, 1, 1, 2], "v": [1, 2, 3, 4]}))
    writer.write(pa.table({"p": [1, 1], "v": [5, 6]}))
    writer.close()
    found = [
        (path.partition("/")[0], pq.read_table(io.BytesIO(file.data)).column("v").to_pylist())  # type: ignore[attr-defined]  # `Kept` has it
        for path, file in world.attempt.files.items()
    ]
    assert sorted(found) == [("p=1", [1, 2]), ("p=1", [3, 5]), ("p=1", [6]), ("p=2", [4])]


@pytest.mark.parametrize(("size", "groups"), [(16, 5), (0, 1)])
def test_a_row_group_is_as_large_as_asked(size: int, groups: int) -> None:
    """In bytes of rows that wait."""
    world = World()
    writer = PartitionedWriter(world.attempt, group_bytes=size)
    for at in range(10):
        writer.write(pa.table({"a": [at]}))
    writer.close()
    (file,) = world.attempt.files.values()
    assert pq.read_metadata(io.BytesIO(file.data)).num_row_groups == groups  # type: ignore[attr-defined]  # `Kept` has it


def test_fields_have_their_ids_at_any_depth() -> None:
    """And no others; rows, and what a schema says besides, are as they were."""
    inner = pa.struct([pa.field("x", pa.int64(), metadata={b"k": b"v"}), ("y", pa.int64())])
    schema = pa.schema(
        [
            ("p", pa.int64()),
            ("a.b", pa.int64()),
            ("s", inner),
            ("l", pa.list_(inner)),
            ("m", pa.map_(pa.string(), inner)),
        ],
        metadata={b"whose": b"mine"},
    )
    value = {"x": 1, "y": 2}
    row = {"a.b": 7, "s": value, "l": [value], "m": [("k", value)]}
    world = World()
    ids = {("a.b",): 1, ("s",): 2, ("s", "x"): 3, ("l", "element", "x"): 4, ("m", "value", "y"): 5}
    writer = PartitionedWriter(world.attempt, partition_by=["p"], field_ids=ids)
    for _ in range(2):
        writer.write(pa.Table.from_pylist([{"p": 1, **row}], schema))
    writer.close()
    (file,) = world.attempt.files.values()
    read = pq.ParquetFile(io.BytesIO(file.data))  # type: ignore[attr-defined]  # `Kept` has it
    assert read.read().to_pylist() == [row, row]
    stored = str(read.schema)
    found = {name: number for number, name in re.findall(r"field_id=(\d+) ([\w.]+)", stored)}
    assert sorted(re.findall(r"field_id=(\d+)", stored)) == ["1", "2", "3", "4", "5"]
    assert (found["a.b"], found["s"]) == ("1", "2")
    assert read.schema_arrow.field("s").type.field("x").metadata[b"k"] == b"v"
    assert read.schema_arrow.metadata[b"whose"] == b"mine"


@pytest.mark.parametrize("precision", [9, 18, 38])
def test_decimals_are_stored_as_sparks_legacy_format_has_them(precision: int) -> None:
    """So that nobody is refused who asks for it: as few bytes as they need, of fixed length."""
    world = World()
    writer = PartitionedWriter(world.attempt)
    writer.write(pa.table({"d": pa.array([1], pa.decimal128(precision, 0))}))
    writer.close()
    (file,) = world.attempt.files.values()
    column = pq.ParquetFile(io.BytesIO(file.data)).schema.column(0)  # type: ignore[attr-defined]  # `Kept` has it
    length = {9: 4, 18: 8, 38: 16}[precision]
    assert (column.physical_type, column.length) == ("FIXED_LEN_BYTE_ARRAY", length)


@pytest.mark.parametrize("distinct", [1, 3])
def test_partitions_of_many_columns_are_told_apart(distinct: int) -> None:
    """Of 66 columns of few values there are more combinations than 64 bits have numbers."""
    count = 2 * distinct
    columns = {"first": [at // distinct for at in range(count)]}
    columns |= {f"c{n}": [at % distinct for at in range(count)] for n in range(65)}
    table = pa.table({**columns, "rest": list(range(count))})
    names = tuple(columns)
    found = {values: rows.to_pylist() for values, rows in tables._groups(table, names)}
    expected = {tuple(str(columns[name][at]) for name in names): [at] for at in range(count)}
    assert found == expected


def test_bytes_that_are_no_text_name_no_folder() -> None:
    """Two values would share one, and nobody could tell them apart any more."""
    world = World()
    writer = PartitionedWriter(world.attempt, partition_by=["p"])
    writer.write(pa.table({"p": ["é".encode()], "v": [1]}))
    with pytest.raises(UsageError, match=r"b'\\xff' is no UTF-8"):
        writer.write(pa.table({"p": [b"\xff", b"\xfe"], "v": [2, 3]}))


BERLIN = pa.timestamp("us", tz="Europe/Berlin")


@pytest.mark.parametrize(
    ("kind", "values", "why"),
    [
        (BERLIN, [1_792_888_200_000_000, 1_792_891_800_000_000], "comes twice"),
        (pa.timestamp("ns", tz="Europe/Berlin"), [1_792_891_800_000_000_001], "comes twice"),
        (pa.time64("ns"), [1, 1_001], "finer than a microsecond"),
        (pa.string(), ["x", "__HIVE_DEFAULT_PARTITION__"], "no value"),
        (pa.binary(), [b"__HIVE_DEFAULT_PARTITION__"], "no value"),
    ],
)
def test_values_that_would_share_a_folder_are_refused(
    kind: pa.DataType, values: list[object], why: str
) -> None:
    """The column is not in the files, so that the folder alone says what it was."""
    writer = PartitionedWriter(World().attempt, partition_by=["p"])
    with pytest.raises(UsageError, match=why):
        writer.write(pa.table({"p": pa.array(values, kind), "v": [1] * len(values)}))


def test_times_that_are_told_apart_name_folders() -> None:
    """An hour earlier or later, in UTC, without a zone, and times of day that Python has."""
    world = World()
    hour = 3_600_000_000
    for kind, value in (
        (BERLIN, 1_792_888_200_000_000 - hour),
        (BERLIN, 1_792_888_200_000_000 + 2 * hour),
        (pa.timestamp("us", tz="UTC"), 1_792_888_200_000_000),
        (pa.timestamp("ns"), 1_792_888_200_000_000_001),
        (pa.time64("ns"), 1_000),
    ):
        writer = PartitionedWriter(world.attempt, partition_by=["p"])
        writer.write(pa.table({"p": pa.array([value], kind), "v": [1]}))
        writer.close()
    assert {path.rpartition("/")[0] for path in world.read()} == {
        "p=2026-10-25 01%3A30%3A00",
        "p=2026-10-25 03%3A30%3A00",
        "p=2026-10-25 00%3A30%3A00",
        "p=2026-10-25 00%3A30%3A00.000000001",
        "p=00%3A00%3A00.000001",
    }


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (math.nan, pa.float64(), "NaN"),
        (-math.inf, pa.float64(), "-Infinity"),
        (-0.0, pa.float64(), "-0.0"),
        (1e16, pa.float64(), "1.0E16"),
        (1e7, pa.float64(), "1.0E7"),
        (9999999.5, pa.float64(), "9999999.5"),
        (1e6, pa.float64(), "1000000.0"),
        (0.001, pa.float64(), "0.001"),
        (-9.99e-4, pa.float64(), "-9.99E-4"),
        (1.5e300, pa.float64(), "1.5E300"),
        (0.1, pa.float32(), "0.1"),
        (16777216.0, pa.float32(), "1.6777216E7"),
        (Decimal("0E-10"), pa.decimal128(20, 10), "0.0000000000"),
        (Decimal("-1.50"), pa.decimal128(10, 2), "-1.50"),
        (datetime(2020, 6, 1, 12, 0, 0, 500000, UTC), pa.timestamp("us"), "2020-06-01 12:00:00.5"),
        (datetime(2020, 6, 1, 12, 0, 10, 0, UTC), pa.timestamp("us"), "2020-06-01 12:00:10"),
        (time(12, 34, 50, 120000), pa.time64("us"), "12:34:50.12"),
    ],
)
def test_values_name_folders_as_spark_names_them(value: Any, kind: pa.DataType, text: str) -> None:
    """Else it would not read them, and one value would have two partitions."""
    table = pa.table({"p": pa.array([value], kind), "v": [1]})
    assert [values for values, _ in tables._groups(table, ("p",))] == [(text,)]


def test_a_column_whose_name_is_a_path_is_written() -> None:
    """It has one with the field of another column, and so their encoding."""
    world = World()
    table = pa.table({"a.b": [1, 2], "a": [{"b": "x"}, {"b": "y"}]})
    writer = PartitionedWriter(world.attempt)
    writer.write(table)
    writer.close()
    (rows,) = world.read().values()
    assert rows == table.to_pylist()
