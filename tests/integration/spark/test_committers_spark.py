"""`omidpy-parquet`: Spark's output through committers, on a real S3 server."""

from __future__ import annotations

import gc
import io
import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omidpy.committers.hadoop import leftovers
from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import parse_folder, parse_object
from omidpy.committers.publishing import ending, success
from omidpy.committers.s3 import S3Committer
from omidpy.committers.values import TaskId
from omidpy.errors import UsageError
from tests.machines.s3.looking import Bucket
from tests.machines.s3.server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

NAME = "omidpy-parquet"


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    """Give a bucket of its own."""
    return Bucket(s3)


def frame(spark: SparkSession) -> DataFrame:
    """Return 100 rows in four partitions."""
    columns = ("id", "id % 3 as p", "cast(id as string) as text")
    return spark.range(100, numPartitions=4).selectExpr(*columns)


def rows(bucket: Bucket, folder: str) -> list[dict[str, Any]]:
    """Return the rows of all visible files."""
    return [
        row
        for path in bucket.visible(folder)
        for row in pq.read_table(io.BytesIO(bucket.get(f"{folder}/{path}"))).to_pylist()
    ]


def test_sessions_of_tests_are_told_what_makes_them_quick(spark: SparkSession) -> None:
    """Spark passes over a folder of settings that is not there, and does 200 tasks for 10 rows."""
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


@pytest.mark.parametrize("committer", ["omidpy", "directory", "partitioned", "magic"])
def test_a_frame_is_saved_by_each_committer(
    spark: SparkSession, bucket: Bucket, committer: str
) -> None:
    """Appended twice, in folders by a column, whose values are in the folders' names."""
    writer = frame(spark).write.format(NAME).option("committer", committer)
    for _ in range(2):
        writer.mode("append").option("partitionBy", "p").save(f"s3://{bucket.name}/out")
    found = rows(bucket, "out")
    assert sorted(row["id"] for row in found) == sorted([*range(100)] * 2)
    assert all(set(row) == {"id", "text"} for row in found)
    assert {path.partition("/")[0] for path in bucket.visible("out")} == {"p=0", "p=1", "p=2"}
    assert bucket.success("out")["omidpy"]["rows"] == 100
    assert bucket.uploads() == []


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_frame_is_saved_to_a_folder(spark: SparkSession, tmp_path: Path, version: str) -> None:
    """By renames; Spark itself reads it back, and sees the column of the folders."""
    writer = frame(spark).write.format(NAME).option("committer", "file").mode("append")
    writer = writer.option("algorithmVersion", version).option("partitionBy", "p")
    writer.save(f"file://{tmp_path}/out")
    read = spark.read.parquet(f"{tmp_path}/out")
    assert sorted(row.id for row in read.collect()) == [*range(100)]
    assert set(read.columns) == {"id", "text", "p"}
    assert {one.name for one in (tmp_path / "out").iterdir()} == {"_SUCCESS", "p=0", "p=1", "p=2"}
    said = success.decode((tmp_path / "out/_SUCCESS").read_bytes(), "_SUCCESS")
    # Four tasks, each in a process of its own, and the driver.
    renames = 12 + (4 if version == "1" else 0)
    assert said["iostatistics"]["counters"]["op_rename"] == renames
    assert said["omidpy"]["rows"] == 100


def test_a_file_costs_one_request_or_three(spark: SparkSession, bucket: Bucket) -> None:
    """The manifest counts those of tasks, too, each in a process of its own."""
    for inline, expected in (("1MiB", 4 + 3), ("0", 4 * 3 + 3)):
        folder = f"s3://{bucket.name}/out{inline}"
        writer = frame(spark).write.format(NAME).option("inlineBytes", inline)
        writer.mode("append").save(folder)
        # `_SUCCESS` itself, and the end of the plan, come after it was written.
        assert bucket.success(f"out{inline}")["omidpy"]["requests"] == expected


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_a_worker_settles_what_it_keeps(spark: SparkSession, bucket: Bucket) -> None:
    """Spark looks through all that a worker holds after each task, which took most of its time."""

    def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.record_batch({"n": [gc.get_freeze_count()]})

    frame(spark).write.format(NAME).mode("append").save(f"s3://{bucket.name}/out")
    found = spark.range(1, numPartitions=1).mapInArrow(frozen, "n long").collect()
    assert found[0].n > 0


def test_files_are_no_larger_than_sparks_own(
    spark: SparkSession, bucket: Bucket, tmp_path: Path
) -> None:
    """Of the same rows, with the same codec: numbers, few values, many values, and none."""
    columns = ("id", "id % 7 as kind", "sha1(cast(id as string)) as text", "id / 3 as ratio")
    more = ("if(id % 5 = 0, null, id * 7919) as gaps", "timestamp_seconds(id) as at")
    given = spark.range(100_000, numPartitions=2).selectExpr(*columns, *more)
    for codec in ("snappy", "zstd"):
        given.write.option("compression", codec).parquet(str(tmp_path / codec))
        theirs = sum(one.stat().st_size for one in (tmp_path / codec).glob("*.parquet"))
        writer = given.write.format(NAME).mode("append").option("compression", codec)
        writer.save(f"s3://{bucket.name}/{codec}")
        assert bucket.success(codec)["omidpy"]["bytes"] <= theirs


def test_overwriting_replaces(spark: SparkSession, bucket: Bucket) -> None:
    """Old files go once the new ones are there."""
    bucket.put("out/old.parquet")
    frame(spark).write.format(NAME).mode("overwrite").save(f"s3://{bucket.name}/out")
    assert len(rows(bucket, "out")) == 100


@pytest.mark.parametrize("committer", ["omidpy", "directory", "partitioned", "magic"])
def test_a_session_that_overwrites_partitions_keeps_the_others(
    spark: SparkSession, bucket: Bucket, committer: str
) -> None:
    """As Spark's own formats do under `dynamic`: two of three partitions were lost."""
    folder = f"s3://{bucket.name}/out"
    writer = frame(spark).write.format(NAME).option("partitionBy", "p")
    writer.mode("append").save(folder)
    before = bucket.visible("out")
    part = frame(spark).where("p = 1").write.format(NAME).option("partitionBy", "p")
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        part.option("committer", committer).mode("overwrite").save(folder)
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert sorted(row["id"] for row in rows(bucket, "out")) == [*range(100)]
    kept = [path for path in before if not path.startswith("p=1/")]
    assert [path for path in bucket.visible("out") if not path.startswith("p=1/")] == kept


def test_an_option_says_what_an_overwrite_removes(spark: SparkSession, bucket: Bucket) -> None:
    """It wins over the session, in both directions; without columns there is one part."""
    folder = f"s3://{bucket.name}/out"
    frame(spark).write.format(NAME).option("partitionBy", "p").mode("append").save(folder)
    part = frame(spark).where("p = 1").write.format(NAME).option("partitionBy", "p")
    part.option("partitionOverwriteMode", "dynamic").mode("overwrite").save(folder)
    assert len(rows(bucket, "out")) == 100
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        part = frame(spark).where("p = 1").write.format(NAME).option("partitionBy", "p")
        part.option("partitionOverwriteMode", "static").mode("overwrite").save(folder)
        assert len(rows(bucket, "out")) == 33
        frame(spark).write.format(NAME).mode("overwrite").save(folder)
        assert len(rows(bucket, "out")) == 100
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


def test_a_committer_without_partitions_is_refused_where_they_alone_are_to_go(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It would remove the others."""
    writer = frame(spark).write.format(NAME).option("committer", "file").option("partitionBy", "p")
    writer.mode("append").save(f"file://{tmp_path}/out")
    before = sorted((tmp_path / "out").rglob("*.parquet"))
    with pytest.raises(Exception, match=r"partitionOverwriteMode=dynamic asks for partitions"):
        writer.option("partitionOverwriteMode", "dynamic").mode("overwrite").save(
            f"file://{tmp_path}/out"
        )
    assert sorted((tmp_path / "out").rglob("*.parquet")) == before


def test_a_session_says_how_files_are_written(spark: SparkSession, bucket: Bucket) -> None:
    """Its codec, its most rows in a file, and its type of timestamps."""
    said = {
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.files.maxRecordsPerFile": "10",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    }
    try:
        for name, value in said.items():
            spark.conf.set(name, value)
        given = spark.range(25, numPartitions=1).selectExpr("id", "timestamp_seconds(id) as t")
        given.write.format(NAME).mode("append").save(f"s3://{bucket.name}/out")
    finally:
        for name in said:
            spark.conf.unset(name)
    files = [
        pq.ParquetFile(io.BytesIO(bucket.get(f"out/{path}"))) for path in bucket.visible("out")
    ]
    assert sorted(one.metadata.num_rows for one in files) == [5, 10, 10]
    assert {one.metadata.row_group(0).column(0).compression for one in files} == {"ZSTD"}
    assert "timeUnit=milliseconds" in str(files[0].schema.column(1).logical_type)


def test_a_session_says_what_parquet_and_hadoop_are_to_do(
    spark: SparkSession, bucket: Bucket, tmp_path: Path
) -> None:
    """As Spark's own Parquet does: ids of columns, small row groups, and no `_SUCCESS`."""
    from pyspark.sql.types import StructType

    inner = StructType().add("x", "long", metadata={"parquet.field.id": 2})
    schema = StructType().add("id", "long").add("s", inner, metadata={"parquet.field.id": 1})
    given = spark.range(30_000, numPartitions=1).selectExpr("id", "named_struct('x', id) as s")
    given = given.to(schema)
    said = {
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.sql.parquet.writeLegacyFormat": "true",
    }
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("parquet.block.size", "65536")
    try:
        for name, value in said.items():
            spark.conf.set(name, value)
        given.write.format(NAME).mode("append").save(f"s3://{bucket.name}/out")
        given.write.parquet(str(tmp_path / "theirs"))
        spark.conf.set("spark.sql.parquet.fieldId.write.enabled", "false")
        marked = given.write.format(NAME).mode("append").option("success", "true")
        marked.save(f"s3://{bucket.name}/marked")
        hadoop.set("parquet.encryption.footer.key", "k1")
        with pytest.raises(Exception, match=r"footer\.key asks for encrypted files"):
            given.write.format(NAME).save(f"s3://{bucket.name}/secret")
    finally:
        for name in (*said, "spark.sql.parquet.fieldId.write.enabled"):
            spark.conf.unset(name)
        hadoop.unset("parquet.block.size")
        hadoop.unset("parquet.encryption.footer.key")
    (path,) = bucket.visible("out")
    ours = pq.ParquetFile(io.BytesIO(bucket.get(f"out/{path}")))
    assert ours.metadata.num_row_groups > 1
    assert "out/_SUCCESS" not in bucket.keys("out/")
    assert bucket.success("marked")["omidpy"]["rows"] == 30_000
    (path,) = bucket.visible("marked")
    marked_file = pq.ParquetFile(io.BytesIO(bucket.get(f"marked/{path}")))
    assert not re.findall(r"field_id=\d", str(marked_file.schema))
    assert not (tmp_path / "theirs/_SUCCESS").exists()
    (theirs,) = (tmp_path / "theirs").glob("*.parquet")
    fields = [
        re.findall(r"field_id=(\d+) (\w+)", str(one))
        for one in (ours.schema, pq.ParquetFile(theirs).schema)
    ]
    assert fields[0] == fields[1] == [("1", "s"), ("2", "x")]
    assert bucket.keys("secret/") == []


def test_what_users_type_works_or_names_the_option(spark: SparkSession, bucket: Bucket) -> None:
    """As of any other format; what is published is read whole, beside what is not."""
    target = f"s3://{bucket.name}/out"
    frame = spark.createDataFrame([(1, "a"), (2, "b"), (3, "a")], "v long, p string")
    frame.write.format(NAME).partitionBy("p").save(target)
    assert {path.partition("/")[0] for path in bucket.visible("out")} == {"p=a", "p=b"}
    with pytest.raises(Exception, match="is not empty"):
        frame.write.partitionBy("p").format(NAME).save(target)
    frame.write.partitionBy("p").save(target, format=NAME, mode="append")
    bucket.put("out/p=a/part-of-a-job-that-is-not-committed.parquet", b"x")
    read = spark.read.format(NAME).load(target)
    assert read.columns == ["v", "p"]
    assert sorted((row.v, row.p) for row in read.collect()) == sorted(
        [(1, "a"), (2, "b"), (3, "a")] * 2
    )
    with pytest.raises(UsageError, match=r"option\('conflict', 'fail'\)"):
        frame.write.format(NAME).mode("ignore").save(target)
    with pytest.raises(UsageError, match="knows no tables"):
        frame.write.format(NAME).option("path", target).mode("append").saveAsTable("t")
    for text in ("interval '1' day", "interval '1' year", "make_interval(1, 2)"):
        intervals = spark.sql(f"select {text} as lasted")
        with pytest.raises(UsageError, match="the column 'lasted' is of type interval"):
            intervals.write.format(NAME).mode("append").save(target)
    assert bucket.uploads() == []


def test_an_empty_frame_keeps_its_columns(spark: SparkSession, bucket: Bucket) -> None:
    """Whoever reads it back finds no rows, and not an error."""
    frame(spark).where("id < 0").write.format(NAME).mode("append").save(f"s3://{bucket.name}/out")
    (path,) = bucket.visible("out")
    read = pq.read_table(io.BytesIO(bucket.get(f"out/{path}")))
    assert (read.num_rows, read.column_names) == (0, ["id", "p", "text"])


# Spark asks for pandas where a function of Python runs, although it hands it none.
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_a_task_that_fails_once_is_there_once(
    spark: SparkSession, bucket: Bucket, tmp_path: Path
) -> None:
    """Of its first attempt nothing is left."""
    from pyspark.sql.functions import udf

    mark = str(tmp_path / "failed")

    def fail_once(number: int) -> int:
        if number == 49 and not Path(mark).exists():
            Path(mark).touch()
            raise ZeroDivisionError
        return number

    # A function with annotations is taken for one of pandas.
    plain = udf(lambda number: fail_once(number), "long")  # noqa: PLW0108 - see above
    failing = frame(spark).withColumn("id", plain("id"))
    writer = failing.write.format(NAME).mode("append").option("inlineBytes", "0")
    writer.save(f"s3://{bucket.name}/out")
    assert Path(mark).exists()
    assert sorted(row["id"] for row in rows(bucket, "out")) == [*range(100)]
    assert bucket.uploads() == []


def test_a_task_whose_process_ends_is_there_once(
    spark: SparkSession, bucket: Bucket, tmp_path: Path
) -> None:
    """It had uploaded everything, and nobody heard of it: its uploads are swept by the job's id."""
    from tests.machines.s3.troubled_source import NAME as TROUBLED
    from tests.machines.s3.troubled_source import TroubledSource

    spark.dataSource.register(TroubledSource)
    theirs = "out/part-00000-c000-00000000-1111-4222-8333-446655440000.parquet"
    bucket.client.create_multipart_upload(Bucket=bucket.name, Key=theirs)
    writer = frame(spark).write.format(TROUBLED).mode("append").option("inlineBytes", "0")
    troubled = writer.option("trouble", "dies").option("marks", str(tmp_path))
    troubled.save(f"s3://{bucket.name}/out")
    assert {"0-0", "0-1"} <= {one.name for one in tmp_path.iterdir()}
    assert sorted(row["id"] for row in rows(bucket, "out")) == [*range(100)]
    assert bucket.uploads() == [theirs]


def test_what_a_stage_has_uploaded_that_is_run_again_goes(
    spark: SparkSession, bucket: Bucket, tmp_path: Path
) -> None:
    """All of it is: its files of a shuffle are lost with an attempt, and attempts count from 0."""
    from tests.machines.s3.troubled_source import NAME as TROUBLED
    from tests.machines.s3.troubled_source import TroubledSource

    spark.dataSource.register(TroubledSource)
    shuffled = spark.range(100, numPartitions=2).repartition(1)
    writer = shuffled.write.format(TROUBLED).mode("append").option("inlineBytes", "0")
    troubled = writer.option("trouble", "loses").option("marks", str(tmp_path))
    troubled.save(f"s3://{bucket.name}/out")
    assert {one.name for one in tmp_path.iterdir()} == {"lost", "0-0"}, "the stage was run again"
    assert sorted(row["id"] for row in rows(bucket, "out")) == [*range(100)]
    assert bucket.uploads() == []


# By day the middle of a task, and of a commit; by night each request of either.
@pytest.mark.parametrize(
    ("who", "committer", "numbers", "is_answered"),
    [
        ("task", "omidpy", range(3, 4), True),
        ("driver", "omidpy", range(2, 3), True),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in itertools.product(
                ("task", "driver"),
                ("omidpy", "directory", "magic"),
                [range(100)],
                (False, True),
            )
        ),
    ],
)
def test_who_ends_at_a_request_leaves_a_job_whole_or_nothing(
    spark: SparkSession,
    s3: S3Server,
    bucket: Bucket,
    tmp_path: Path,
    who: str,
    committer: str,
    numbers: range,
    *,
    is_answered: bool,
) -> None:
    """A task is tried again; of a commit the command finishes what it finds."""
    from tests.machines.s3.troubled_source import NAME as TROUBLED
    from tests.machines.s3.troubled_source import TroubledSource

    spark.dataSource.register(TroubledSource)
    theirs = "out10/part-00000-c000-00000000-1111-4222-8333-446655440000.parquet"
    bucket.client.create_multipart_upload(Bucket=bucket.name, Key=theirs)
    store = ObjectStore(StoreOptions(endpoint_url=s3.endpoint))
    for number in numbers:
        marks = tmp_path / f"{number}"
        marks.mkdir()
        writer = (
            frame(spark)
            .write.format(TROUBLED)
            .mode("append")
            .options(
                trouble=who, marks=str(marks), at=str(number), inlineBytes="0", committer=committer
            )
        )
        if is_answered:
            writer = writer.option("answered", "true")
        address = f"s3://{bucket.name}/out"
        if who == "task":
            writer.option("partitionBy", "p").save(address)
        else:
            with suppress(Exception):
                writer.save(address)
        has_ended = (marks / "ended").exists()
        for plan in leftovers.plan_addresses(store, parse_folder(address)):
            ending.resume(store, ending.load(store, plan, *parse_object(plan))[0])
        found = sorted(row["id"] for row in rows(bucket, "out"))
        assert found in ([[*range(100)]] if who == "task" or not has_ended else [[], [*range(100)]])
        assert bucket.uploads() == [theirs]
        assert len(bucket.keys("out/")) == len(bucket.visible("out")) + bool(found)
        for key in bucket.keys("out/"):
            bucket.client.delete_object(Bucket=bucket.name, Key=key)
        if not has_ended:
            assert number >= 6
            return
    assert len(numbers) == 1, "there was an end"


@pytest.mark.parametrize("committer", ["omidpy", "file"])
def test_a_write_whose_process_dies_behind_the_commit_says_that_it_is_there(
    spark: SparkSession, bucket: Bucket, tmp_path: Path, committer: str
) -> None:
    """Spark calls it failed, and aborts it: with renames nothing was left, nor of before."""
    from tests.machines.s3.troubled_source import NAME as TROUBLED
    from tests.machines.s3.troubled_source import TroubledSource

    spark.dataSource.register(TroubledSource)
    out = tmp_path / "out"
    address = f"s3://{bucket.name}/out" if committer == "omidpy" else f"file://{out}"
    plain = frame(spark).where("id < 3").write.format(NAME).option("committer", committer)
    plain.mode("append").save(address)
    writer = frame(spark).write.format(TROUBLED).mode("overwrite").option("committer", committer)
    options = {"trouble": "commits", "marks": str(tmp_path), "success": "false"}
    with pytest.raises(Exception, match="is committed, whatever failed behind that: all of it is"):
        writer.options(**options).save(address)
    if committer == "omidpy":
        found = [row["id"] for row in rows(bucket, "out")]
    else:
        found = [row.id for row in spark.read.parquet(str(out)).collect()]
    assert sorted(found) == [*range(100)]


def test_a_frame_that_fails_leaves_nothing(spark: SparkSession, bucket: Bucket) -> None:
    """Neither file nor upload, and the error is the frame's.

    It fails once the uploads of the others have begun; what a task begins that Spark has not ended
    yet, when the job is aborted, is looked for again.
    """
    folder = f"s3://{bucket.name}/out"

    def fail_last(rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            if row.id == 77:
                store = ObjectStore(StoreOptions())
                until = time.monotonic() + 60
                while len(list(store.uploads(parse_folder(folder)))) < 3:
                    assert time.monotonic() < until, "the other tasks write nothing"
                raise ValueError("what the frame itself says")
            yield row

    failing = spark.range(100, numPartitions=4).rdd.mapPartitions(fail_last).toDF("id long")
    writer = failing.write.format(NAME).mode("append").option("inlineBytes", "0")
    with pytest.raises(Exception, match="what the frame itself says"):
        writer.save(folder)
    assert bucket.keys() == []
    assert bucket.uploads() == []


def test_a_frame_that_fails_leaves_no_folder(spark: SparkSession, tmp_path: Path) -> None:
    """A task that Spark has not ended yet goes on behind the abort, and makes what it lacks."""
    out, begun = tmp_path / "out", tmp_path / "begun"

    def wait_until(has_come: Callable[[], bool]) -> None:
        until = time.monotonic() + 60
        while not has_come():
            assert time.monotonic() < until, "it never comes"
            time.sleep(0.01)

    def fail_or_wait(number: int, rows: Iterable[Row]) -> Iterator[Row]:
        if number == 0:
            wait_until(begun.exists)
            raise ValueError("what the frame itself says")
        wait_until((out / "_temporary").exists)
        begun.touch()
        wait_until(lambda: not (out / "_temporary").exists())
        yield from rows

    failing = spark.range(100, numPartitions=2).selectExpr("id", "id as p").rdd
    frame = failing.mapPartitionsWithIndex(fail_or_wait).toDF("id long, p long")
    writer = frame.write.format(NAME).mode("append").option("committer", "file")
    with pytest.raises(Exception, match="what the frame itself says"):
        writer.partitionBy("p").save(f"file://{out}")
    assert [*out.rglob("*")] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"conflict": "fail"}, "is not empty"),
        ({"conflikt": "fail"}, "no option 'conflikt'"),
        ({"committer": "magical"}, "committer='magical' is none of"),
        ({"partitionBy": "nothing"}, "no column 'nothing'"),
        ({"maxOpenFiles": "0"}, "max_open_files='0'"),
        ({"partitionOverwriteMode": "dynamical"}, "is none of static and dynamic"),
        ({"partitionOverwriteMode": "static", "scope": "partitions"}, "contradict each other"),
    ],
)
def test_what_is_wrong_is_said(
    spark: SparkSession, bucket: Bucket, options: dict[str, str], message: str
) -> None:
    """In words of ours, somewhere in Spark's."""
    bucket.put("out/theirs")
    writer = frame(spark).write.format(NAME).mode("append").options(**options)
    with pytest.raises(Exception, match=message):
        writer.save(f"s3://{bucket.name}/out")
    assert bucket.keys() == ["out/theirs"]
    assert bucket.uploads() == []


def test_each_batch_of_a_stream_is_published_once(
    spark: SparkSession, bucket: Bucket, tmp_path: Path
) -> None:
    """Files that come later are a batch of their own; a query that starts anew repeats nothing."""
    source, target = tmp_path / "source", f"s3://{bucket.name}/out"
    source.mkdir()
    for at in range(3):
        (source / f"{at}.json").write_text(f'{{"v": {at}}}\n')
        query = (
            spark.readStream.schema("v int")
            .json(str(source))
            .writeStream.format(NAME)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(target)
        )
        assert query.awaitTermination(120)
    assert sorted(row["v"] for row in rows(bucket, "out")) == [0, 1, 2]


def test_a_batch_that_is_run_again_is_not_published_again(
    s3: S3Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark runs the last batch again where it did not note its end."""
    from pyspark.sql.types import StructType

    from omidpy.committers.spark.source import _Message, _settings, _StreamWriter

    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    given = {"path": f"s3://{bucket.name}/out", "inlineBytes": "0"}
    settings = _settings(given, StructType(), overwrite=False)
    writer = _StreamWriter(settings)
    query = "0b7f6a3e-1111-4222-8333-446655440000"

    def run(batch: int, data: bytes) -> list[Any]:
        job_id = f"{query}-b{batch:010}"
        made = settings.committer(job_id=job_id)
        assert isinstance(made, S3Committer)
        attempt = made.setup_task(TaskId(0))
        with attempt.open("f") as file:
            file.write(data)
        return [_Message(made.commit_task(attempt), job_id)]

    writer.commit(run(0, b"first"), 0)
    writer.commit(run(1, b"second"), 1)
    bucket.put("out/_SUCCESS", b"")  # of another job, which hides nothing
    writer.commit(run(1, b"other rows"), 1)
    writer.abort(run(1, b"once more"), 1)
    writer.abort(run(2, b"never"), 2)
    writer.commit([], 3)
    found = [bucket.get(f"out/{path}") for path in bucket.visible("out")]
    assert found == [b"first", b"second"]
    assert bucket.uploads() == []
