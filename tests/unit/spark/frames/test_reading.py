"""Which rows tasks read: each that is asked for once, and with filters none too few."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import DataSourceReader

from omidpy.base.tables import CHANGING, CONFLICT_LEVEL_ATTRIBUTE
from omidpy.codec import INT64
from omidpy.errors import (
    ConfigError,
    NoSuchFamily,
    NoSuchTable,
    SnapshotTooOld,
    StorageError,
)
from omidpy.model import KeyRange
from omidpy.spark.frames.options import read_words, words
from omidpy.spark.frames.partitions import Portion, intersection, portions
from omidpy.spark.frames.reading import Reading, TableReader, plan
from omidpy.spark.frames.writes import jobs
from omidpy.storage.memory import MemoryStore
from omidpy.tx.frames.reading import schema_of
from omidpy.tx.frames.shape import Shape
from tests.machines.frame_jobs import COLUMNS, JobWorld

KEYS = st.binary(max_size=3)


def world_of(rows: int) -> JobWorld:
    """Give a table of so many rows."""
    world = JobWorld()
    world.tm.create_table("many", ["cf"], splits=[b"03", b"06"])
    with world.tm.begin() as tx:
        for at in range(rows):
            tx.table("many").put(b"%02d" % at, {b"cf:n": INT64.encode(at % 3)})
    return world


def reader_of(world: JobWorld, **options: str) -> TableReader:
    """Plan a read of it."""
    planned = read_words(words({"store": "s", "tso": "t", "table": "many", **options}))
    is_whole = planned.has_all_versions
    shape = Shape.of(COLUMNS, commit_ts=is_whole)
    snapshot_ts = world.tm.begin().start_ts
    reading = Reading(world.place, "many", snapshot_ts, shape, schema_of(pa, shape), 4, is_whole)
    with world.place.connect() as tm:
        return plan(tm, reading, planned, is_held=False)


def rows_of(reader: TableReader) -> list[bytes]:
    """Return what all its tasks read, in any order."""
    return [
        row
        for one in reader.partitions()
        for batch in reader.read(one)
        for row in batch.column("row").to_pylist()
    ]


# -- partitions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [None, 1, 2, 7, 40])
def test_every_row_is_read_once(partitions: int | None) -> None:
    """Into however many pieces a table is cut."""
    world = world_of(10)
    more = {} if partitions is None else {"partitions": str(partitions)}
    reader = reader_of(world, **more)
    assert sorted(rows_of(reader)) == [b"%02d" % at for at in range(10)]
    count = len(reader.partitions())
    assert count == 3 if partitions in (None, 1, 2) else count > 3


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"row_start": "02", "row_stop": "07"}, range(2, 7)),
        ({"row_prefix": "0"}, range(10)),
        ({"row_prefix": "05"}, [5]),
        ({"rows": "07,01,99,07"}, [1, 7]),
        ({"rows": "07,01,99", "row_stop": "05"}, [1]),
        ({"rows": "99", "row_stop": "05"}, []),
        ({"rows": ""}, []),
        ({"row_start": "5"}, []),
    ],
)
def test_a_part_is_read(options: dict[str, str], expected: Any) -> None:
    """By bounds, a prefix, or a list."""
    assert sorted(rows_of(reader_of(world_of(10), **options))) == [b"%02d" % at for at in expected]


@pytest.mark.parametrize("more", [{}, {"rows": "01,05,09"}, {"versions": "all"}])
@pytest.mark.parametrize("is_made_again", [True, False])
def test_a_table_that_was_made_anew_is_not_read_for_the_planned_one(
    more: dict[str, str], *, is_made_again: bool
) -> None:
    """Tasks before it have read the earlier one: together that would be a part of either."""
    world = world_of(10)
    reader = reader_of(world, **more)
    first, *others = reader.partitions()
    assert list(reader.read(first))
    world.tm.drop_table("many")
    if is_made_again:
        world.tm.create_table("many", ["cf"])
    for one in others or [first]:
        # The snapshot looks whether what it sees is gone; and a task, of what table that is.
        with pytest.raises((SnapshotTooOld, StorageError)):
            list(reader.read(one))


def test_a_table_that_is_made_anew_within_a_task_fails_it() -> None:
    """A scan that goes on by the name would end with what it has."""
    world = world_of(10)
    reader = reader_of(world, rows="01,02,03,04,05,06", partitions="1")
    (one,) = reader.partitions()
    batches = reader.read(one)
    assert next(iter(batches)).num_rows == 4
    world.tm.drop_table("many")
    world.tm.create_table("many", ["cf"])
    with pytest.raises(StorageError, match="was dropped, truncated"):
        list(batches)


def test_every_batch_of_a_task_has_the_schema() -> None:
    """Spark holds the first one to it alone."""
    reader = reader_of(world_of(30))
    for one in reader.partitions():
        for batch in reader.read(one):
            assert batch.schema.equals(reader.reading.schema)
            batch.validate(full=True)


@pytest.mark.parametrize("more", [{}, {"rows": "01,02,03"}], ids=["scan", "rows"])
def test_all_versions_are_read(more: dict[str, str]) -> None:
    """A row for each commit, the newest first, back to the last delete, below the snapshot."""
    world = world_of(4)
    times = []
    for value in (10, None, 20, 30):
        with world.tm.begin() as tx:
            if value is None:
                tx.table("many").delete(b"02")
            else:
                tx.table("many").put(b"02", {b"cf:n": INT64.encode(value)})
        times.append(tx.commit_ts)
    reader = reader_of(world, versions="all", **more)
    with world.tm.begin() as tx:
        tx.table("many").put(b"02", {b"cf:n": INT64.encode(99)})
    found = [
        (one["row"], one["n"], one["_commit_ts"])
        for part in reader.partitions()
        for batch in reader.read(part)
        for one in batch.to_pylist()
    ]
    of_02 = [(b"02", 30, times[3]), (b"02", 20, times[2])]
    assert [one for one in found if one[0] == b"02"] == of_02
    assert [one[:2] for one in found if one[0] != b"02"] == [
        (b"%02d" % at, at % 3) for at in ((1, 3) if more else (0, 1, 3))
    ]


def test_what_is_committed_meanwhile_is_not_read() -> None:
    """Whenever tasks run."""
    world = world_of(10)
    reader = reader_of(world)
    with world.tm.begin() as tx:
        for at in range(10):
            tx.table("many").delete(b"%02d" % at)
    assert len(rows_of(reader)) == 10


def test_the_snapshot_is_held() -> None:
    """So that no compaction drops what tasks have not read yet."""
    world = world_of(1)
    reader = reader_of(world)
    watermarks = world.tm.session.watermarks
    (hold,) = watermarks.holds(watermarks.ages(world.tm.session.clock))
    assert hold.start_ts == reader.reading.snapshot_ts


def test_a_snapshot_that_may_be_gone_is_refused() -> None:
    """When it is planned, and not by a task."""
    world = world_of(1)
    reading = reader_of(world).reading
    world.tm.session.watermarks.raise_collection_intent(world.tm.begin().start_ts)
    planned = read_words(words({"store": "s", "tso": "t", "table": "many"}))
    with world.place.connect() as tm, pytest.raises(SnapshotTooOld):
        plan(tm, reading, planned, is_held=False)


def test_a_table_that_is_none_is_refused() -> None:
    """When it is planned."""
    world = world_of(1)
    planned = read_words(words({"store": "s", "tso": "t", "table": "no"}))
    shape = Shape.of({"n": ("no:n", "bigint")})
    for table, error in (("no", NoSuchTable), ("many", NoSuchFamily)):
        reading = Reading(world.place, table, 50, shape, schema_of(pa, shape), 4)
        with world.place.connect() as tm, pytest.raises(error):
            plan(tm, reading, planned, is_held=False)


def test_a_table_says_how_its_conflicts_are_found() -> None:
    """Whatever the session would make; one whose level is being changed is refused by both."""
    world = world_of(1)
    store = world.tm.store
    store.set_table_attributes("many", {CONFLICT_LEVEL_ATTRIBUTE: "row"})
    assert rows_of(reader_of(world)) == [b"00"]
    store.set_table_attributes("many", {CONFLICT_LEVEL_ATTRIBUTE: CHANGING})
    with pytest.raises(ConfigError, match="is being changed"):
        reader_of(world)
    with world.place.connect() as tm, pytest.raises(ConfigError, match="is being changed"):
        jobs.begin(tm, "many", Shape.of(COLUMNS), hold_s=60)


@given(KEYS, KEYS, KEYS, KEYS, KEYS)
def test_intersections_hold_what_is_in_both(
    one: bytes, other: bytes, third: bytes, fourth: bytes, row: bytes
) -> None:
    """And nothing else."""
    first, second = KeyRange(one, other), KeyRange(third, fourth)
    found = intersection(first, second)
    is_in_both = all(not each.is_empty() and each.contains(row) for each in (first, second))
    assert (found is not None and found.contains(row)) == is_in_both


def test_a_list_is_cut_by_its_length() -> None:
    """Of rows that are in the ranges, each once."""
    rows = [b"%03d" % at for at in range(100)]
    found = portions(MemoryStore(), "t", [b"cf"], KeyRange(b"01", b"09"), [*rows, *rows], wanted=4)
    assert [len(one.rows or ()) for one in found] == [20, 20, 20, 20]
    assert sorted(row for one in found for row in one.rows or ()) == rows[10:90]
    outside = portions(MemoryStore(), "t", [b"cf"], KeyRange(b"b"), [b"a"], wanted=None)
    assert outside == []


def test_nothing_is_read_where_nothing_can_be() -> None:
    """One task without rows, since Spark takes none for one of everything."""
    reader = reader_of(world_of(10), rows="99", row_stop="5")
    (only,) = reader.partitions()
    assert only.portion == Portion(KeyRange(), ())  # type: ignore[attr-defined]  # of ours
    assert rows_of(reader) == []


def test_a_reader_takes_no_filters() -> None:
    """Spark would keep what they left to read for other queries on the same frame."""
    assert type(reader_of(world_of(1))).pushFilters is DataSourceReader.pushFilters
