"""`python -m bench.hbase.frames`: what do DataFrames cost, beside bare work in the same tasks?

One HBase, one `tso-server`, one Spark of two cores (`local[2]`), and in each round, in turns:

    read    a frame of two columns, beside scans of the store by the same tasks: of a table that has
            the same cells and none of ours, and of the same table with its shadow cells; and beside
            HBase's TableInputFormat, of the table that has none
    write   a frame, beside puts in batches by the same tasks, without a transaction
    feed    all changes of the table, beside a scan of all its versions by the same tasks
    commit  of a frame of many cells: from the last part to the answer, and the memory of both ends

What counts is the ratio of two rates of one round, since all share the cores.  What bare scans find
becomes Arrow as what frames have does, rows of numbers and versions of cells, since whoever reads
in Spark needs them so; `counted` is a scan whose tasks make nothing of what they read, and so does
that of TableInputFormat, whose cells come to Python one by one.  A frame is written by
`format("omidpy")`, for which Spark starts Python anew three times, and by `save`; `save, told` ends
when the commit is told, and shadow cells follow.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console

import omidpy
import omidpy.spark
from bench.hbase.rounds import Ratio, ratio
from bench.measure import Document, Result, commit_id, describe_machine, keep, resident_mib, today
from bench.processes import ROOT, tso_server
from bench.run import print_results
from omidpy.base.cells import SHADOW_SUFFIX, is_shadow_qualifier
from omidpy.codec import INT64
from omidpy.manager import TransactionManager
from omidpy.model import FamilySchema, KeyRange, TableSchema
from omidpy.opening import open_store
from omidpy.spark.frames.writes import jobs
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.tx.transaction import Transaction
from tests.machines import maven
from tests.machines.hbase import HBase

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS: Final = 200_000
WRITTEN: Final = 100_000
COMMITTED: Final = 500_000
TABLE, PLAIN = "frames", "plain"
"""What is read."""
WRITTEN_TO, PUT_TO = "written", "put"
"""What is written."""
SPLITS: Final = (b"r2", b"r5", b"r7")
RANGES: Final = [
    KeyRange(start, end) for start, end in zip((b"", *SPLITS), (*SPLITS, b""), strict=True)
]
TASKS: Final = len(RANGES)
BATCH: Final = 1000
COLUMNS: Final[Any] = {"n": ("cf:n", "bigint"), "m": ("cf:m", "bigint")}
NAMES: Final[Any] = {"n": "cf:n", "m": "cf:m"}
MAP_SIZE: Final = 9 * COMMITTED
"""Of the oracle's conflict map, a quarter of which one commit may have."""


class FramesDocument(Document, frozen=True, kw_only=True):
    """What a result file holds."""

    ratios: list[Ratio]


# -- in tasks --------------------------------------------------------------------------------------


def bare_scan(
    url: str, table: str, versions: int | None, batches: Iterator[pa.RecordBatch], *, arrow: bool
) -> Iterator[pa.RecordBatch]:
    """Scan regions, without a transaction; one number for each, or its rows."""
    with closing(open_store(url)) as store:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _scanned(store, table, RANGES[number], versions, arrow=arrow)


def _scanned(
    store: Store, table: str, keys: KeyRange, versions: int | None, *, arrow: bool
) -> Iterator[pa.RecordBatch]:
    count = 0
    for page in store.scan(table, keys, max_versions=versions, page_rows=BATCH):
        count += len(page)
        if arrow and versions is None:
            found = [cell for row in page for cell in row if cell.qualifier[-2:] != SHADOW_SUFFIX]
            yield pa.record_batch(
                {
                    "row": pa.array([cell.row for cell in found], pa.binary()),
                    "column": pa.array([cell.qualifier for cell in found], pa.binary()),
                    "value": pa.array([cell.value for cell in found], pa.binary()),
                    "version": pa.array([cell.version for cell in found], pa.int64()),
                }
            )
        elif arrow:
            cells = [[one for one in row if not is_shadow_qualifier(one.qualifier)] for row in page]
            yield pa.record_batch(
                {
                    "row": pa.array([row[0].row for row in cells], pa.binary()),
                    "n": pa.array([INT64.decode(row[-1].value) for row in cells], pa.int64()),
                    "m": pa.array([INT64.decode(row[0].value) for row in cells], pa.int64()),
                }
            )
    if not arrow:
        yield pa.record_batch({"count": pa.array([count], pa.int64())})


def bare_puts(url: str, table: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put rows in batches, without a transaction."""
    count = 0
    with closing(open_store(url)) as store:
        for whole in batches:
            for at in range(0, whole.num_rows, BATCH):
                some = whole.slice(at, BATCH).to_pylist()
                rows = [
                    RowMutation(
                        one["id"].encode(),
                        [
                            Put(b"cf", b"n", 1, INT64.encode(one["n"])),
                            Put(b"cf", b"m", 1, INT64.encode(one["m"])),
                        ],
                    )
                    for one in some
                ]
                store.write({table: rows})
                count += len(rows)
    yield pa.record_batch({"count": pa.array([count], pa.int64())})


# -- the driver ------------------------------------------------------------------------------------


def numbers(spark: SparkSession, count: int, prefix: str) -> DataFrame:
    """Return a frame to write, whose keys are spread over all regions."""
    key = (
        f"concat('r', cast(id % 10 as string), '{prefix}', lpad(cast(id as string), 9, '0')) as id"
    )
    return spark.range(count, numPartitions=TASKS).selectExpr(key, "id as n", "id * 3 as m")


def consumed(frame: DataFrame) -> None:
    """Compute every row of a frame."""
    frame.write.format("noop").mode("overwrite").save()


class Bench:
    """One store, one session."""

    def __init__(
        self, spark: SparkSession, tm: TransactionManager, url: str, zookeeper: str
    ) -> None:
        self.spark, self.tm, self.url, self.zookeeper = spark, tm, url, zookeeper
        for table in (TABLE, WRITTEN_TO):
            tm.create_table(table, ["cf"], splits=list(SPLITS))
        for table in (PLAIN, PUT_TO):
            tm.store.create_table(TableSchema(table, [FamilySchema(b"cf")]), splits=list(SPLITS))
        self.rates: dict[str, list[float]] = {}

    def fill(self, rows: int) -> int:
        """Write what is read; return the offset of before."""
        before = int(self.tm.begin(read_only=True).start_ts)
        omidpy.spark.save(numbers(self.spark, rows, "-"), self.tm, TABLE, NAMES, key={"id": "text"})
        consumed(self._puts(PLAIN, rows, "-"))
        self._heal(rows)
        return before

    def _heal(self, rows: int) -> None:
        """Read it once: what the driver has not healed yet is healed by that."""
        assert sum(1 for _ in self.tm.begin(read_only=True).table(TABLE).scan()) == rows

    def round(self, rows: int, written: int, since: int, number: int) -> None:
        """Do every work once; the first round, number 0, warms up."""
        read = omidpy.spark.read(self.spark, self.tm, TABLE, COLUMNS, partitions=TASKS)
        feed = self.spark.read.format("omidpy-changes").options(
            store=self.url, tso=self.tm.session.tso or "", table=TABLE, since=str(since)
        )
        works: dict[str, tuple[int, Callable[[], None]]] = {
            "read": (rows, lambda: consumed(read)),
            "scan, plain table": (rows, lambda: consumed(self._scan(PLAIN, 1))),
            "TableInputFormat, plain table": (rows, lambda: self._count(PLAIN, rows)),
            "scan, same table": (rows, lambda: consumed(self._scan(TABLE, 1))),
            "scan, same table, counted": (
                rows,
                lambda: consumed(self._scan(TABLE, 1, arrow=False)),
            ),
            "feed": (rows * len(COLUMNS), lambda: consumed(feed.load())),
            "scan of all versions": (
                rows * len(COLUMNS),
                lambda: consumed(self._scan(TABLE, None)),
            ),
            "scan of all versions, counted": (
                rows * len(COLUMNS),
                lambda: consumed(self._scan(TABLE, None, arrow=False)),
            ),
            "write": (written, lambda: self._write(written, f"w{number}-")),
            "save": (written, lambda: self._save(written, f"s{number}-", number)),
            "bare puts": (written, lambda: consumed(self._puts(PUT_TO, written, f"w{number}-"))),
        }
        for name, (count, work) in works.items():
            begin_s = time.perf_counter()
            work()
            if number:
                elapsed_s = time.perf_counter() - begin_s
                self.rates.setdefault(name, []).append(count / elapsed_s)
                print(f"{number} {name}: {count / elapsed_s:,.0f}/s", flush=True)

    def _write(self, rows: int, prefix: str) -> None:
        (
            numbers(self.spark, rows, prefix)
            .write.format("omidpy")
            .options(store=self.url, tso=self.tm.session.tso or "", table=WRITTEN_TO, key="id")
            .options(columns="n=cf:n, m=cf:m", estimated_rows=str(rows))
            .mode("append")
            .save()
        )

    def _save(self, rows: int, prefix: str, number: int) -> None:
        """Write in this process's transaction, its shadow cells, too."""
        frame = numbers(self.spark, rows, prefix)
        begin_s = time.perf_counter()
        omidpy.spark.save(frame, self.tm, WRITTEN_TO, NAMES, key={"id": "text"})
        if number:
            elapsed_s = time.perf_counter() - begin_s
            self.rates.setdefault("save, told", []).append(rows / elapsed_s)
        self.tm.session.post_committer.drain()

    def _puts(self, table: str, rows: int, prefix: str) -> DataFrame:
        work = partial(bare_puts, self.url, table)
        return numbers(self.spark, rows, prefix).mapInArrow(work, "count bigint")

    def _scan(self, table: str, versions: int | None, *, arrow: bool = True) -> DataFrame:
        ranges = self.spark.range(len(RANGES), numPartitions=len(RANGES))
        work = partial(bare_scan, self.url, table, versions, arrow=arrow)
        schema = "row binary, n bigint, m bigint" if arrow else "count bigint"
        if arrow and versions is None:
            schema = "row binary, column binary, value binary, version bigint"
        return ranges.mapInArrow(work, schema)

    def _count(self, table: str, rows: int) -> None:
        """Bring the rows of a table to Python as HBase's own class for jobs does."""
        host, port = self.zookeeper.rsplit(":", 1)
        found = self.spark.sparkContext.newAPIHadoopRDD(
            "org.apache.hadoop.hbase.mapreduce.TableInputFormat",
            "org.apache.hadoop.hbase.io.ImmutableBytesWritable",
            "org.apache.hadoop.hbase.client.Result",
            keyConverter="omidpy.bench.KeyBytes",
            valueConverter="omidpy.bench.CellBytes",
            conf={
                "hbase.zookeeper.quorum": host,
                "hbase.zookeeper.property.clientPort": port,
                "hbase.mapreduce.inputtable": table,
                "hbase.mapreduce.scan.cachedrows": str(BATCH),
            },
        ).count()
        assert found == rows

    def commit(self, rows: int, oracle: int) -> list[Result]:
        """Commit a frame of many cells; say how long the merge and the commit took, and memory."""
        spent: dict[str, float] = {}
        merge = jobs.merge

        def timed(tx: Transaction, parts: Iterable[bytes], *, has_ops: bool = False) -> None:
            begin_s = time.perf_counter()
            merge(tx, parts, has_ops=has_ops)
            spent["merge"] = time.perf_counter() - begin_s

        before_mib = resident_mib(os.getpid())
        before_oracle_mib = resident_mib(oracle)
        jobs.merge = timed
        try:
            tx = self.tm.begin(hold_s=1800)
            omidpy.spark.write(
                numbers(self.spark, rows, "c"), tx, WRITTEN_TO, NAMES, key={"id": "text"}
            )
        finally:
            jobs.merge = merge
        begin_s = time.perf_counter()
        tx.commit()
        spent["commit"] = time.perf_counter() - begin_s
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        load = f"{rows * len(COLUMNS)} cells of {TASKS} tasks"
        return [
            *(
                Result(f"commit of a frame: {name}", load, p50_ms=round(took_s * 1000), count=1)
                for name, took_s in spent.items()
            ),
            Result("commit of a frame: driver, more than before", load, mib=peak_mib - before_mib),
            Result(
                "commit of a frame: oracle, more than before",
                load,
                mib=resident_mib(oracle) - before_oracle_mib,
            ),
        ]

    def results(self) -> Iterator[Result]:
        """Return the medians."""
        for name, rates in self.rates.items():
            median = sorted(rates)[len(rates) // 2]
            load = f"median of {len(rates)} rounds"
            yield Result(name, load, per_second=round(median), count=len(rates))

    def ratios(self) -> Iterator[Ratio]:
        """Return ours over bare work, with what was aimed at."""
        for ours, bare, aim in (
            ("read", "scan, plain table", 0.8),
            ("read", "scan, same table", 0.8),
            ("read", "scan, same table, counted", None),
            ("read", "TableInputFormat, plain table", 2.0),
            ("write", "bare puts", 0.5),
            ("save", "bare puts", 0.5),
            ("save, told", "bare puts", 0.5),
            ("feed", "scan of all versions", 0.5),
            ("feed", "scan of all versions, counted", None),
        ):
            if ours not in self.rates:
                continue
            name = f"{ours} over {bare}"
            yield ratio(name, self.rates[ours], self.rates[bare], least=aim)


def session(directory: Path) -> SparkSession:
    """Start a Spark of two cores."""
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = sorted((maven.build(Path(__file__).parent / "input_format") / "lib").glob("*.jar"))
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(directory))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.log.level", "ERROR")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.driver.extraClassPath", ":".join(map(str, jars)))
        .getOrCreate()
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Start all of them, measure, print, and keep the numbers."""
    parser = argparse.ArgumentParser(prog="python -m bench.hbase.frames", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--hbase", type=Path, help="where tests.machines.hbase runs one; empty")
    parser.add_argument("--rounds", type=int, default=3, help="0: the commit alone")
    parser.add_argument("--rows", type=int, default=ROWS, help="that are read in each round")
    parser.add_argument("--written", type=int, default=WRITTEN, help="rows, in each round")
    parser.add_argument(
        "--committed", type=int, default=COMMITTED, help="rows of the large commit, or 0"
    )
    parser.add_argument("--quick", action="store_true", help="show that it runs, measure nothing")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.rows, options.written, options.committed = 1, 400, 400, 400
    before = os.getloadavg()[0]
    with ExitStack() as resources:
        directory = Path(resources.enter_context(tempfile.TemporaryDirectory()))
        if options.hbase is None:
            hbase: HBase = resources.enter_context(HBase.start(directory / "hbase"))
        else:
            hbase = HBase.attach(options.hbase)
            resources.callback(hbase.stop)
        url = hbase.direct_url
        pids: list[int] = []
        size = ("--conflict-map-size", str(max(MAP_SIZE, 262_144)))
        tso = resources.enter_context(
            tso_server(url, log=directory / "tso.log", options=size, on_start=pids.append)
        )
        tm = resources.enter_context(omidpy.connect(url, tso=tso))
        spark = session(directory)
        resources.callback(spark.stop)

        omidpy.spark.register(spark)
        bench = Bench(spark, tm, url, hbase.zookeeper)
        since = bench.fill(options.rows)
        for number in range(options.rounds + 1 if options.rounds else 0):
            bench.round(options.rows, options.written, since, number)
        committed = bench.commit(options.committed, pids[0]) if options.committed else []
        machine = describe_machine(directory)
    document = FramesDocument(
        today(),
        commit_id(),
        machine,
        before,
        os.getloadavg()[0],
        [*bench.results(), *committed],
        ratios=list(bench.ratios()),
    )
    print_results(Console(width=160), document)
    for one in document.ratios:
        print(f"{one.name}: {one.median:.2f} {one.rounds} {one.aim}")
    keep(document, options.output, "hbase-frames")
    return 0


if __name__ == "__main__":
    sys.exit(main())
