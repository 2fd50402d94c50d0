"""Executors of a real cluster are killed, or suspended until Spark has given them up and let go.

What one that comes back does then changes nothing.  Drivers are killed in `test_spark_deaths.py`
and in `test_spark_sink.py`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq
import pytest

from omidpy.connect import connect
from omidpy.facts.control import ControlTable
from omidpy.facts.registration import PARTS_PREFIX
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import empty_hbase
from tests.machines.lost_executors import HEARTBEATS, Executor, halting, wait_for
from tests.machines.processes import tso_server
from tests.machines.s3.looking import Bucket
from tests.machines.s3.server import S3Server
from tests.machines.s3.spark import reaching, session_at
from tests.machines.spark_cluster import spark_cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omidpy.manager import TransactionManager

ROAD_BY_DAY: Final = Road.DIRECT

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.nightly,
    # Spark asks for pandas where a function of Python runs, although it hands it none.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

ROWS: Final = 20_000


@pytest.fixture(scope="module")
def spark(_s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Give a session on a cluster of two hosts."""
    hosts = ("127.0.0.1", "127.0.0.2")
    settings = {"spark.executor.memory": "512m", **HEARTBEATS}
    work = tmp_path_factory.mktemp("work")
    with (
        reaching(_s3),
        spark_cluster(work, hosts=hosts) as master,
        session_at(master, settings) as session,
    ):
        yield session


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    """Give a folder for what tasks say."""
    made = tmp_path / "marks"
    made.mkdir()
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[TransactionManager, dict[str, str]]]:
    """Give a store with a table, and how Spark writes it."""
    url = f"sqlite:///{tmp_path / 's.db'}"
    with tso_server(url) as server, connect(url, server.address) as tm:
        tm.create_table("t", ["cf"])
        yield tm, {"store": url, "tso": server.address, "table": "t", "key": "id"}


def halted(spark: SparkSession, marks: Path) -> DataFrame:
    """Return a frame of two tasks, whose first one stands still in its middle."""
    columns = ("format_string('%06d', id) as id", "id as n", "repeat('x', 300) as s")
    plain = spark.range(ROWS, numPartitions=2).selectExpr(*columns)
    return plain.mapInArrow(halting(str(marks)), plain.schema)


def lose(marks: Path, *, is_killed: bool) -> Executor:
    """Lose the executor of the first task in its middle, and see that Spark runs it again."""
    executor = Executor(marks / "0-0")
    if is_killed:
        executor.kill()
    else:
        executor.suspend()
    try:
        wait_for(marks / "0-1")
    except BaseException:
        executor.go_on()
        raise
    return executor


def write_beside(writer: Any, path: str | None, marks: Path, *, is_killed: bool) -> Executor:
    """Write while an executor is lost; return that."""
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(lose, marks, is_killed=is_killed)
        try:
            writer.mode("append").save(path)
        except BaseException:
            lost.result().go_on()
            raise
        return lost.result()


def let_come_back(marks: Path, executor: Executor) -> None:
    """Let an executor go on that was suspended, until Spark has ended it."""
    (marks / "go-0").touch()
    executor.go_on()
    executor.wait_gone()


def cells(tm: TransactionManager) -> dict[tuple[bytes, bytes, int], bytes]:
    """Return what the table has, visible or not."""
    pages = tm.store.scan("t")
    return {
        (cell.row, cell.qualifier, cell.version): cell.value
        for page in pages
        for row in page
        for cell in row
    }


def files(bucket: Bucket) -> list[Any]:
    """Return the numbers of all rows that are visible."""
    return sorted(
        number
        for path in bucket.visible("out")
        for number in pq.read_table(io.BytesIO(bucket.get(f"out/{path}")))["n"].to_pylist()
    )


def check_written_once(
    spark: SparkSession,
    tm: TransactionManager,
    where: dict[str, str],
    marks: Path,
    *,
    is_killed: bool,
) -> None:
    """Write a table while an executor is lost; what comes back writes nothing more."""
    writer = halted(spark, marks).write.format("omidpy")
    writer = writer.options(**where, columns="n=cf:n, s=cf:s")
    executor = write_beside(writer, None, marks, is_killed=is_killed)
    before = cells(tm)
    let_come_back(marks, executor)
    assert cells(tm) == before
    assert sum(1 for _ in tm.begin(read_only=True).table("t").scan()) == ROWS


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("more", [{}, {"rows_per_transaction": "500"}])
def test_a_table_is_written_once_whose_executor_is_lost(
    spark: SparkSession,
    store: tuple[TransactionManager, dict[str, str]],
    marks: Path,
    more: dict[str, str],
    *,
    is_killed: bool,
) -> None:
    """What has flushed some of its rows is run again."""
    tm, where = store
    check_written_once(spark, tm, where | more, marks, is_killed=is_killed)


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("more", [{}, {"rows_per_transaction": "500"}])
def test_a_table_of_hbase_is_written_once_whose_executor_is_lost(
    spark: SparkSession, hbase: HBase, marks: Path, more: dict[str, str], *, is_killed: bool
) -> None:
    """There a flush is announced, sent and acknowledged: one may be lost in between."""
    with (
        empty_hbase(hbase) as url,
        tso_server(url) as server,
        connect(url, server.address) as tm,
    ):
        tm.create_table("t", ["cf"], splits=[b"005000", b"015000"])
        where = {"store": url, "tso": server.address, "table": "t", "key": "id"}
        check_written_once(spark, tm, where | more, marks, is_killed=is_killed)
        left = [row for row, _ in ControlTable(tm.store).scan(PARTS_PREFIX)]
    assert left == []


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("committer", ["omidpy", "magic", "directory"])
def test_files_are_published_once_whose_executor_is_lost(
    spark: SparkSession, s3: S3Server, marks: Path, committer: str, *, is_killed: bool
) -> None:
    """And nothing of the lost attempt is left, though it comes back."""
    bucket = Bucket(s3)
    writer = halted(spark, marks).write.format("omidpy-parquet")
    writer = writer.option("committer", committer).option("inlineBytes", "0")
    executor = write_beside(writer, f"s3://{bucket.name}/out", marks, is_killed=is_killed)
    let_come_back(marks, executor)
    assert files(bucket) == [*range(ROWS)]
    assert bucket.uploads() == []


@pytest.mark.parametrize("name", ["omidpy", "omidpy-parquet"])
def test_batches_of_a_stream_are_written_once_whose_executors_are_lost(
    spark: SparkSession,
    s3: S3Server,
    store: tuple[TransactionManager, dict[str, str]],
    marks: Path,
    name: str,
) -> None:
    """One is killed in the first batch, and one is suspended in the second and comes back."""
    tm, where = store
    bucket = Bucket(s3)
    source = marks / "source"
    source.mkdir()
    for number in range(3):
        lines = [json.dumps({"id": f"{at:03}", "n": 1}) + "\n" for at in range(100)]
        (source / f"{number}.json").write_text("".join(lines))
    read = spark.readStream.schema("id string, n bigint").option("maxFilesPerTrigger", 1)
    frame = read.json(str(source))
    frame = frame.mapInArrow(halting(str(marks)), frame.schema)
    writer = frame.writeStream.format(name).option("checkpointLocation", str(marks / "checkpoint"))
    if name == "omidpy":
        writer = writer.options(**where, columns="n=cf:n counter")
    else:
        writer = writer.options(path=f"s3://{bucket.name}/out", inlineBytes="0")
    query = writer.trigger(availableNow=True).start()
    Executor(marks / "0-0").kill()
    executor = Executor(marks / "1-0")
    executor.suspend()
    try:
        wait_for(marks / "1-1")
        wait_for(marks / "2-0")
    finally:
        for number in range(3):
            (marks / f"go-{number}").touch()
        executor.go_on()
    query.awaitTermination()
    executor.wait_gone()
    if name == "omidpy":
        table = tm.begin(read_only=True).table("t")
        assert {table.counter_get(b"%03d" % at, b"cf:n") for at in range(100)} == {3}
    else:
        assert files(bucket) == [1] * 300
        assert bucket.uploads() == []
