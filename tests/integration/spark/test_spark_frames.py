"""DataFrames of tables, by real tasks of Spark: one snapshot in, one transaction out."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import omidpy
from omidpy.codec import INT64
from omidpy.errors import NoSuchTable, SnapshotTooOld, TransactionAborted, UsageError, WriteConflict
from omidpy.facts.control import ControlTable
from omidpy.facts.watermarks import COLLECTION_HORIZON
from omidpy.manager import TransactionManager
from tests.machines.processes import tso_server
from tests.machines.watching.spark import shown_jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

COLUMNS: Any = {"balance": ("cf:balance", "bigint"), "name": ("cf:name", "string")}
KEY: Any = {"id": "string"}
PACE_S = 0.01
"""Between two transfers beside a job, which needs the processor, too."""


class World:
    """A file behind a server, with a table of three regions."""

    def __init__(self, tm: TransactionManager, address: str, name: str = "t") -> None:
        """Make the table."""
        self.tm, self.url, self.address, self.name = tm, tm.store.url, address, name
        self.tm.create_table(name, ["cf"], splits=[b"3", b"6"])

    def options(self, **more: str) -> dict[str, str]:
        """Return the options of the format."""
        columns = "balance=cf:balance, name=cf:name"
        where = {"store": self.url, "tso": self.address, "table": self.name}
        return {**where, "key": "id", "columns": columns, **more}

    def put(self, rows: int) -> None:
        """Write rows."""
        data = {"id": [f"{at:03}" for at in range(rows)], "balance": list(range(rows))}
        data["name"] = [None if at % 3 else f"n{at}" for at in range(rows)]
        self.tm.write_arrow(self.name, pa.table(data), columns=COLUMNS, key=KEY)

    def seen(self) -> dict[bytes, dict[bytes, bytes]]:
        """Return what a new transaction sees."""
        return dict(self.tm.begin().table(self.name).scan())

    def model(self, **more: Any) -> list[tuple[Any, ...]]:
        """Return what Spark should read."""
        found = (
            self.tm.scan_arrow(self.name, columns=COLUMNS, key=KEY, **more).read_all().to_pylist()
        )
        return [tuple(one.values()) for one in found]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TransactionManager, str]]:
    """Give a store with a server, which tests share that have tables of their own."""
    url = f"sqlite:///{tmp_path_factory.mktemp('frames') / 'frames.db'}"
    with tso_server(url) as server, omidpy.connect(url, tso=server.address) as tm:
        yield tm, server.address


@pytest.fixture
def world(served: tuple[TransactionManager, str]) -> World:
    """Give a table of its own."""
    tm, address = served
    return World(tm, address, f"t{len(tm.tables())}")


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[World]:
    """Give a store of its own, to a test that looks at what nobody else has left there."""
    url = f"sqlite:///{tmp_path / 'frames.db'}"
    with tso_server(url) as server, omidpy.connect(url, tso=server.address) as tm:
        yield World(tm, server.address)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows of a frame, in order."""
    return sorted(tuple(one) for one in frame.collect())


def accounts(spark: SparkSession, count: int) -> DataFrame:
    """Return a frame to write, in four partitions."""
    columns = ("lpad(cast(id as string), 3, '0') as id", "id * 2 as balance", "'x' as name")
    return spark.range(count, numPartitions=4).selectExpr(*columns)


# -- reading ---------------------------------------------------------------------------------------


def test_a_frame_is_the_table(spark: SparkSession, world: World) -> None:
    """By the format and by the helper, and as of an earlier moment."""
    import omidpy.spark

    world.put(50)
    then, expected = world.tm.begin().start_ts, world.model()
    schema = "id string, balance bigint, name string"
    plain = spark.read.format("omidpy").options(**world.options()).schema(schema).load()
    helped = omidpy.spark.read(spark, world.tm, world.name, COLUMNS, key=KEY)
    assert rows(plain) == rows(helped) == expected
    assert plain.rdd.getNumPartitions() == 3
    world.put(70)
    assert rows(plain) == rows(helped) == expected, "a frame is one snapshot"
    assert len(rows(plain.alias("a").join(plain.alias("b"), "id"))) == 50
    before = spark.read.format("omidpy").options(**world.options(at=str(then))).schema(schema)
    assert (
        rows(before.load())
        == rows(omidpy.spark.read(spark, world.tm, world.name, COLUMNS, key=KEY, at=then))
        == expected
    )
    now = spark.read.format("omidpy").options(**world.options(partitions="8")).schema(schema).load()
    assert rows(now) == world.model()
    assert now.rdd.getNumPartitions() > 3


def test_a_schema_may_come_from_options(spark: SparkSession, world: World) -> None:
    """Maps, keys as bytes, times of commits, and columns in any order."""
    import omidpy.spark

    world.put(5)
    options = world.options(key="id string", columns="balance=cf:balance bigint")
    frame = spark.read.format("omidpy").options(**options).load()
    assert frame.schema.simpleString() == "struct<id:string,balance:bigint>"
    assert rows(frame) == [(key, balance) for key, balance, _ in world.model()]
    (found, *_) = (
        omidpy.spark.read(spark, world.tm, world.name, commit_ts=True).orderBy("row").collect()
    )
    assert found.row == b"000"
    assert found.cells == {"cf:balance": bytearray(INT64.encode(0)), "cf:name": bytearray(b"n0")}
    assert world.tm.begin().start_ts > found._commit_ts > 0
    world.put(1)
    with world.tm.begin() as tx:
        tx.table(world.name).put(b"000", {b"cf:balance": INT64.encode(7)})
    options = world.options(key="id string", columns="balance=cf:balance bigint", versions="all")
    every = spark.read.format("omidpy").options(**options).load().where("id = '000'")
    assert [one.balance for one in every.orderBy("_commit_ts").collect()] == [0, 0, 7]
    helped = omidpy.spark.read(
        spark, world.tm, world.name, COLUMNS, key=KEY, rows=["000"], versions="all"
    )
    assert [(one.balance, one.name) for one in helped.orderBy("_commit_ts").collect()] == [
        (0, "n0"),
        (0, "n0"),
        (7, None),
    ]
    schema = "name string, id string"
    turned = spark.read.format("omidpy").options(**world.options(columns="name=cf:name"))
    assert rows(turned.schema(schema).load()) == [("n0", "000"), ("n3", "003")]


def test_filters_and_lists_of_rows(spark: SparkSession, world: World) -> None:
    """Filters are Spark's to judge, in whatever order one frame is asked; rows may be named."""
    import omidpy.spark

    world.put(100)
    whole, model = omidpy.spark.read(spark, world.tm, world.name, COLUMNS, key=KEY), world.model()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert rows(whole.where("id = '042'")) == [model[42]]
        assert [one[0] for one in rows(whole.where("id like '07%' and balance > 77"))] == [
            "078",
            "079",
        ]
        assert len(whole.where("id = '001'").union(whole.where("id = '002'")).collect()) == 2
        assert whole.count() == 100
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    def read(**more: Any) -> list[str]:
        found = omidpy.spark.read(spark, world.tm, world.name, COLUMNS, key=KEY, **more).collect()
        return sorted(one.id for one in found)

    assert read(rows=["001", "077", "999"]) == ["001", "077"]
    assert read(row_prefix="05") == [f"05{at}" for at in range(10)]
    assert read(row_start="098") == ["098", "099"]


def test_two_tables_are_read_at_one_snapshot(spark: SparkSession, world: World) -> None:
    """Money moves between them all the time, and what both have together stays."""
    import omidpy.spark

    columns: Any = {"n": ("cf:n", "bigint")}
    count, each = 20, 100
    start = pa.table({"row": [b"%02d" % at for at in range(count)], "n": [each] * count})
    for table in ("a", "b"):
        world.tm.create_table(table, ["cf"], splits=[b"10"])
        world.tm.write_arrow(table, start, columns=columns)
    is_over = threading.Event()
    moved: list[int] = []

    def move() -> None:
        while not is_over.wait(PACE_S):
            row = b"%02d" % (len(moved) % count)
            with world.tm.begin() as tx:
                tx.table("a").counter_dec(row, b"cf:n", 1)
                tx.table("b").counter_inc(row, b"cf:n", 1)
            moved.append(1)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        seen = []
        for _ in range(3):
            with omidpy.spark.snapshot(world.tm, spark) as s:
                both = s.table("a", columns).join(
                    s.table("b", columns).withColumnRenamed("n", "m"), "row"
                )
                found = both.collect()
            assert len(found) == count
            assert all(one.n + one.m == 2 * each for one in found)
            seen.append(sum(one.m for one in found))
    finally:
        is_over.set()
        mover.join()
    assert seen == sorted(seen)
    assert seen[-1] > count * each, "money was moved meanwhile"


# -- writing ---------------------------------------------------------------------------------------


def test_a_frame_is_written_whole(spark: SparkSession, world: World) -> None:
    """By the format, over what is there."""
    world.put(5)
    accounts(spark, 40).write.format("omidpy").options(**world.options()).mode("append").save()
    assert world.model() == [(f"{at:03}", at * 2, "x") for at in range(40)]
    with world.tm.begin() as tx:
        times = {
            at
            for _, cells in tx.table(world.name).scan(include_timestamp=True)
            for _, at in cells.values()
        }
    assert len(times) == 1, "one transaction has one time"


def test_names_may_have_dots(spark: SparkSession, world: World) -> None:
    """Spark's own functions of Arrow take what is behind a dot for a field."""
    import omidpy.spark

    columns: Any = {"a.n": ("cf:n", "bigint")}
    frame = spark.range(3).selectExpr("id as `k.k`", "id * 2 as `a.n`")
    omidpy.spark.save(frame, world.tm, world.name, columns, key={"k.k": "bigint"})
    found = omidpy.spark.read(spark, world.tm, world.name, columns, key={"k.k": "bigint"})
    assert rows(found) == [(at, at * 2) for at in range(3)]


def test_jobs_have_names_in_the_ui(spark: SparkSession, world: World) -> None:
    """By the format and in a transaction; what the user does beside it has none."""
    import omidpy.spark

    accounts(spark, 3).write.format("omidpy").options(**world.options()).mode("append").save()
    with world.tm.begin() as tx:
        omidpy.spark.write(accounts(spark, 3), tx, world.name, COLUMNS, key=KEY)
    spark.sparkContext.parallelize([1]).count()
    names = [name for name, _ in shown_jobs(spark.sparkContext)]
    assert "omidpy: write a frame to a table" in names
    assert f"omidpy: write a frame to table {world.name}" in names
    assert "" in names


def test_a_task_that_fails_is_run_again(spark: SparkSession, lone: World, tmp_path: Path) -> None:
    """Each fails on its first attempt, behind rows that it has written."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    marks = str(tmp_path)

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.attemptNumber() == 0:
            Path(marks, f"failed-{context.partitionId()}").touch()
            raise RuntimeError("the first attempt fails")

    schema = StructType([StructField("id", StringType()), StructField("balance", LongType())])
    frame = accounts(spark, 40).drop("name").mapInArrow(failing, schema)
    options = lone.options(columns="balance=cf:balance")
    frame.write.format("omidpy").options(**options).mode("append").save()
    assert [(key, balance) for key, balance, _ in lone.model()] == [
        (f"{at:03}", at * 2) for at in range(40)
    ]
    assert len(list(tmp_path.glob("failed-*"))) == 4
    assert parts_left(lone) == 0


def parts_left(world: World) -> int:
    """Return how many transactions have workers that nobody has settled."""
    from omidpy.facts.control import ControlTable
    from omidpy.facts.registration import PARTS_PREFIX

    return len(list(ControlTable(world.tm.store).scan(PARTS_PREFIX)))


def test_a_job_that_fails_leaves_nothing(spark: SparkSession, lone: World) -> None:
    """Neither visible nor hidden, though tasks had written."""
    frame = accounts(spark, 40).selectExpr(
        "id", "if(id = '039', raise_error('no'), balance) as balance", "name"
    )
    with pytest.raises(Exception, match="no"):
        frame.write.format("omidpy").options(**lone.options()).mode("append").save()
    assert lone.seen() == {}
    assert list(lone.tm.store.scan(lone.name)) == []
    assert parts_left(lone) == 0


def test_frames_and_puts_are_one_transaction(spark: SparkSession, world: World) -> None:
    """Several frames, and cells beside; an error takes all of it back."""
    import omidpy.spark

    world.tm.create_table("u", ["cf"])
    frame = accounts(spark, 20)
    columns: Any = {"balance": "cf:balance", "name": ("cf:name", "string")}
    for error in (ValueError("stop"), None):
        try:
            with world.tm.begin() as tx:
                tx.table("u").put(b"log", {b"cf:at": b"begun"})
                omidpy.spark.write(frame, tx, world.name, columns, key="id")
                omidpy.spark.write(frame.limit(3), tx, "u", columns, key="id")
                tx.table("u").put(b"log", {b"cf:at": b"done"})
                assert len(dict(tx.table(world.name).scan())) == 20, "it sees what its tasks wrote"
                if error is not None:
                    raise error
        except ValueError:
            assert world.seen() == {}
    assert len(world.model()) == 20
    seen = dict(world.tm.begin().table("u").scan())
    assert (len(seen), seen[b"log"]) == (4, {b"cf:at": b"done"})


def test_a_frame_whose_write_fails_dooms_its_transaction(spark: SparkSession, world: World) -> None:
    """Whoever catches the error commits nothing."""
    import omidpy.spark

    frame = accounts(spark, 8).selectExpr("id", "if(id = '007', raise_error('no'), balance) as n")
    tx = world.tm.begin()
    with pytest.raises(Exception, match="no"):
        omidpy.spark.write(frame, tx, world.name, {"n": "cf:n"}, key="id")
    with pytest.raises(TransactionAborted, match="was cut short"):
        tx.commit()
    assert world.seen() == {}


def test_deletes_and_counters_are_written(spark: SparkSession, world: World) -> None:
    """By a column, and by a type."""
    import omidpy.spark

    world.put(10)
    frame = spark.range(10).selectExpr(
        "lpad(cast(id as string), 3, '0') as id",
        "id as balance",
        "if(id < 5, 'delete', 'put') as _op",
    )
    with world.tm.begin() as tx:
        omidpy.spark.write(frame, tx, world.name, {"balance": ("cf:balance", "counter")}, key="id")
    assert [(key, balance) for key, balance, _ in world.model()] == [
        (f"{at:03}", at * 2) for at in range(5, 10)
    ]


def test_a_conflict_aborts_the_whole(spark: SparkSession, world: World) -> None:
    """Somebody else wrote one of the cells meanwhile."""
    import omidpy.spark

    tx = world.tm.begin()
    columns: Any = {"balance": "cf:balance", "name": "cf:name"}
    omidpy.spark.write(accounts(spark, 20), tx, world.name, columns, key="id")
    with world.tm.begin() as other:
        other.table(world.name).put(b"007", {b"cf:balance": INT64.encode(7)})
    with pytest.raises(WriteConflict):
        tx.commit()
    assert set(world.seen()) == {b"007"}


def test_rows_are_written_in_several_transactions(spark: SparkSession, world: World) -> None:
    """Where one would be too large."""
    options = world.options(rows_per_transaction="3")
    accounts(spark, 40).write.format("omidpy").options(**options).mode("append").save()
    with world.tm.begin() as tx:
        times = {
            at
            for _, cells in tx.table(world.name).scan(include_timestamp=True)
            for _, at in cells.values()
        }
    assert (len(world.model()), len(times)) == (40, 16)


def test_a_frame_that_is_too_large_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Before a cell of it is written."""
    import omidpy.spark

    url = f"sqlite:///{tmp_path / 'small.db'}"
    with (
        tso_server(url, "--conflict-map-size", "262144") as server,
        omidpy.connect(url, tso=server.address) as tm,
    ):
        world = World(tm, server.address)
        most = world.tm.oracle.max_commit_cells
        assert most is not None
        frame = spark.range(most).selectExpr("cast(id as string) as id", "id as balance")
        with pytest.raises(UsageError, match="rows_per_transaction"), world.tm.begin() as tx:
            omidpy.spark.write(frame, tx, world.name, {"balance": "cf:balance"}, key="id")
        options = world.options(columns="balance=cf:balance", estimated_rows=str(most))
        with pytest.raises(Exception, match="rows_per_transaction"):
            frame.write.format("omidpy").options(**options).mode("append").save()
        assert list(world.tm.store.scan(world.name)) == []


# -- what is refused -------------------------------------------------------------------------------


def test_what_is_wrong_is_said_before_any_work(spark: SparkSession, lone: World) -> None:
    """By name, and with what to write."""
    import omidpy.spark

    schema = "id string, balance bigint, name string"

    typed = "id string, balance timestamp, name string"
    for options, given, message in (
        (lone.options(), None, "nobody knows the columns"),
        (lone.options(), typed, "no codec has the type"),
        (lone.options(table="other"), schema, "there is no table 'other'"),
        (lone.options(columns="balance=no:x, name=cf:name"), schema, "no transactional family"),
        (lone.options(at="2026-01-01T00:00:00"), schema, "has no time zone"),
        (lone.options(conflict_level="table"), schema, "conflict_level"),
        (lone.options(tso="127.0.0.1:1"), schema, "127.0.0.1:1"),
        (lone.options(pushdown="true"), schema, "rows would be missing there"),
    ):
        reader = spark.read.format("omidpy").options(**options)
        with pytest.raises(Exception, match=message):
            (reader if given is None else reader.schema(given)).load().collect()
    frame = accounts(spark, 4)
    for mode in ("overwrite", "error", "ignore"):
        with pytest.raises(UsageError, match=r"mode\('append'\)"):
            frame.write.format("omidpy").options(**lone.options()).mode(mode).save()
    wrong = frame.withColumn("more", frame.balance)
    with pytest.raises(Exception, match="nobody knows which column of the table 'more' is"):
        wrong.write.format("omidpy").options(**lone.options()).mode("append").save()
    with lone.tm.begin() as tx:
        with pytest.raises(NoSuchTable):
            omidpy.spark.write(
                frame, tx, "other", {"balance": "cf:balance", "name": "cf:name"}, key="id"
            )
        with pytest.raises(UsageError, match="nobody knows which column of the table 'name' is"):
            omidpy.spark.write(frame, tx, lone.name, {"balance": "cf:balance"}, key="id")
        decimal = spark.createDataFrame([("a", Decimal("1.5"))], "id string, d decimal(5,2)")
        with pytest.raises(UsageError, match="no codec has the type decimal"):
            omidpy.spark.write(decimal, tx, lone.name, {"d": "cf:d"}, key="id")
    assert lone.seen() == {}
    twice = frame.union(frame).coalesce(1)
    with pytest.raises(Exception, match="twice"):
        twice.write.format("omidpy").options(**lone.options()).mode("append").save()
    assert lone.seen() == {}
    old, horizon = lone.tm.begin().start_ts, lone.tm.begin().start_ts
    ControlTable(lone.tm.store).raise_number(COLLECTION_HORIZON, horizon)
    with pytest.raises(Exception, match="is below the collection horizon"):
        spark.read.format("omidpy").options(**lone.options(at=str(old))).schema(
            schema
        ).load().collect()
    with pytest.raises(SnapshotTooOld, match="is below the collection horizon"):
        omidpy.spark.read(spark, lone.tm, lone.name, COLUMNS, key=KEY, at=old)


# -- once ------------------------------------------------------------------------------------------


def test_a_write_with_a_key_is_done_once(spark: SparkSession, world: World) -> None:
    """By the format and by the helper, which know each other's keys; that computes no row again."""
    import omidpy.spark

    frame, failing = accounts(spark, 20), accounts(spark, 20).selectExpr("id", "name")
    failing = failing.selectExpr("id", "raise_error('computed') as balance", "name")
    options = world.options(idempotency_key="monday")
    frame.write.format("omidpy").options(**options).mode("append").save()
    first = world.seen()
    assert len(first) == 20
    failing = failing.selectExpr("id", "cast(balance as bigint) as balance", "name")
    other = accounts(spark, 30).selectExpr("id", "balance + 1 as balance", "name")
    other.write.format("omidpy").options(**options).mode("append").save()
    assert world.seen() == first
    columns: Any = {"balance": "cf:balance", "name": "cf:name"}
    done = omidpy.spark.save(
        failing, world.tm, world.name, columns, key="id", idempotency_key=b"monday"
    )
    with world.tm.begin() as tx:
        ((_, found),) = tx.table(world.name).rows([b"007"], [b"cf:name"], include_timestamp=True)
    assert found[b"cf:name"] == (b"x", done.commit_ts)
    assert world.seen() == first
    again = omidpy.spark.save(
        frame, world.tm, world.name, columns, key="id", idempotency_key=b"tuesday"
    )
    assert done.commit_ts is not None
    assert again.commit_ts is not None
    assert again.commit_ts > done.commit_ts
    assert (
        omidpy.spark.save(frame, world.tm, world.name, columns, key="id").commit_ts
        != again.commit_ts
    )
    with pytest.raises(UsageError, match="was used for another write"):
        omidpy.spark.save(
            frame.drop("name"),
            world.tm,
            "t",
            {"balance": "cf:balance"},
            key="id",
            idempotency_key=b"monday",
        )


def test_a_range_of_rows_is_replaced(spark: SparkSession, world: World) -> None:
    """By `mode("overwrite")`; a range must be named, and is of that mode alone."""
    world.put(100)
    frame = accounts(spark, 60).where("id in ('050', '057')")
    writer = frame.write.format("omidpy").options(**world.options(row_prefix="05"))
    with pytest.raises(Exception, match=r"row_prefix name the rows that mode\('overwrite'\)"):
        writer.mode("append").save()
    writer.mode("overwrite").save()
    assert [row for row in world.model() if row[0].startswith("05")] == [
        ("050", 100, "x"),
        ("057", 114, "x"),
    ]
    assert len(world.model()) == 92


def test_a_write_whose_process_dies_behind_the_commit_says_that_it_is_there(
    spark: SparkSession, served: tuple[TransactionManager, str]
) -> None:
    """Spark calls it failed, and who ran it again would write it twice."""
    from omidpy.spark.frames.source import OmidSource
    from omidpy.spark.frames.writes.writing import TableWriter

    class Dying(TableWriter):
        def commit(self, messages: list[Any]) -> None:
            super().commit(messages)
            os._exit(9)

    class DyingSource(OmidSource):
        @classmethod
        def name(cls) -> str:
            return "omidpy-dying"

        def writer(self, schema: Any, overwrite: bool) -> TableWriter:  # noqa: FBT001 - Spark calls it so
            return Dying(super().writer(schema, overwrite).job)

    spark.dataSource.register(DyingSource)
    world = World(*served, "dying")
    frame = spark.range(20, numPartitions=2).selectExpr("cast(id as string) as id", "id as balance")
    options = world.options(columns="balance=cf:balance")
    with pytest.raises(Exception, match="has committed, whatever failed behind that"):
        frame.write.format("omidpy-dying").options(**options).mode("append").save()
    assert len(world.seen()) == 20
