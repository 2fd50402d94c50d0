"""DataFrames of tables on a real HBase: what a job reads sums up, what it writes is there once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pytest

from omidpy.manager import TransactionManager
from tests.integration.test_changes_stream import check_stream
from tests.integration.test_spark_sink import check_sink
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import empty_hbase
from tests.machines.processes import tso_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROAD_BY_DAY = Road.DIRECT

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

COLUMNS: Final[Any] = {"n": ("cf:n", "bigint")}
ACCOUNTS: Final = 20
EACH: Final = 100
PACE_S: Final = 0.05
"""Between two transfers: Spark needs the processor, and a read as few versions as will do."""


@pytest.fixture
def served(hbase: HBase) -> Iterator[tuple[str, str]]:
    """Give the addresses of an empty HBase and of its oracle."""
    with empty_hbase(hbase) as url, tso_server(url) as server:
        yield url, server.address


class Bank:
    """Transfers between two tables, again and again, of clients that know nothing of Spark."""

    def __init__(self, tm: TransactionManager) -> None:
        self._tm = tm
        start = {"row": [b"%02d" % at for at in range(ACCOUNTS)], "n": [EACH] * ACCOUNTS}
        for table in ("a", "b"):
            tm.create_table(table, ["cf"], splits=[b"10"])
            tm.write_arrow(table, pa.table(start), columns=COLUMNS)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._move)

    def _move(self) -> None:
        moved = 0
        while not self._is_over.wait(PACE_S):
            with self._tm.begin() as tx:
                row = b"%02d" % (moved % ACCOUNTS)
                tx.table("a").counter_dec(row, b"cf:n", 1)
                tx.table("b").counter_inc(row, b"cf:n", 1)
            moved += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def test_two_tables_are_read_at_one_snapshot(spark: SparkSession, served: tuple[str, str]) -> None:
    """Money moves between them all the time, and what both have together stays."""
    import omidpy.spark

    url, tso = served
    with omidpy.connect(url, tso=tso) as tm, Bank(tm):
        seen = []
        for _ in range(2):
            with omidpy.spark.snapshot(tm, spark) as s:
                other = s.table("b", COLUMNS).withColumnRenamed("n", "m")
                found = s.table("a", COLUMNS).join(other, "row").collect()
            assert len(found) == ACCOUNTS
            assert all(one.n + one.m == 2 * EACH for one in found)
            seen.append(sum(one.m for one in found))
    assert seen == sorted(set(seen)), "money was moved meanwhile"


@pytest.mark.nightly
def test_a_frame_is_written_and_replaced(spark: SparkSession, served: tuple[str, str]) -> None:
    """In one transaction each, with deletes and counters; all of it is seen in the feed."""
    import omidpy.spark

    url, tso = served
    frame = spark.range(500, numPartitions=4).selectExpr("format_string('%04d', id) as id", "id")
    frame = frame.toDF("id", "n")
    where = {"store": url, "tso": tso, "table": "t", "key": "id", "columns": "n=cf:n"}
    with omidpy.connect(url, tso=tso) as tm:
        tm.create_table("t", ["cf"], splits=[b"01", b"03"])
        before = tm.begin(read_only=True).start_ts
        frame.write.format("omidpy").options(**where).mode("append").save()
        few = frame.where("n < 5").selectExpr("id", "n + 1 as n")
        writer = few.write.format("omidpy").options(**where, row_prefix="00")
        writer.mode("overwrite").save()
        frame.createOrReplaceTempView("written")
        with tm.begin() as tx:
            some = spark.sql("select id, n, if(n < 450, 'put', 'delete') as _op from written")
            some = some.where("n >= 400")
            omidpy.spark.write(some, tx, "t", {"n": ("cf:n", "counter")}, key="id")
        expected = [(at, at + 1) for at in range(5)]
        expected += [(at, at * (2 if at >= 400 else 1)) for at in range(100, 450)]
        read = omidpy.spark.read(spark, tm, "t", COLUMNS, key={"id": "string"})
        assert sorted((int(one.id), one.n) for one in read.collect()) == expected
        every = omidpy.spark.read(spark, tm, "t", COLUMNS, versions="all", row_prefix=b"0000")
        assert [one.n for one in every.orderBy("_commit_ts").collect()] == [0, 1]
        feed = spark.read.format("omidpy-changes").options(store=url, tso=tso, table="t")
        kinds = feed.option("since", str(before)).load().groupBy("kind").count().collect()
        assert {one["kind"]: one["count"] for one in kinds} == {
            "put": 500 + 5 + 50,
            "delete": 95 + 50,
        }


@pytest.mark.nightly
def test_a_sink_writes_each_batch_once(served: tuple[str, str], tmp_path: Path) -> None:
    """Though its driver is killed before a commit and behind one."""
    check_sink(tmp_path, *served, "format", [(0, "before"), (1, "behind")])


@pytest.mark.nightly
def test_a_feed_has_each_change_once(served: tuple[str, str], tmp_path: Path) -> None:
    """Though its driver is killed."""
    check_stream(tmp_path, *served, kills_twice=True)
