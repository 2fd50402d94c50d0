"""What a writer of Spark is taught: which words become options, and which are refused in one line.

The writer here stands for Spark's, whose Java notes the same; a real one is asked in
`tests/integration/spark/test_committers_spark.py`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from datetime import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.sql.types import (
    ArrayType,
    DayTimeIntervalType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimeType,
    YearMonthIntervalType,
)

from omidpy.base.telemetry.stages import DESCRIPTION
from omidpy.committers.heads import standing
from omidpy.committers.protocol import Attempt
from omidpy.committers.s3 import S3Committer
from omidpy.committers.spark import settling
from omidpy.committers.spark.session import GROUP_BYTES, LOST
from omidpy.committers.spark.settling import TASKS_END_S
from omidpy.committers.spark.source import NAME, _BatchWriter, _Message, _settings
from omidpy.committers.spark.writing import teach
from omidpy.committers.values import TaskId, TaskMessage
from omidpy.errors import CommitterError, UsageError
from tests.machines.s3.jobs import OUT

SCHEMA = StructType().add("id", LongType()).add("year", LongType())


class Plan:
    """What Java says of a frame: how many tasks it has, and how much a driver takes."""

    def __init__(self, tasks: int, most: str) -> None:
        self._tasks, self._most = tasks, most

    def __getattr__(self, name: str) -> Any:
        """Go on to whatever is asked."""
        return self

    def __call__(self, *_: Any) -> Plan:
        """Go on to whatever is asked."""
        return self

    def get(self, name: str, default: str) -> str:
        """Return what is set."""
        assert (name, default) == ("spark.driver.maxResultSize", "1g")
        return self._most

    def byteStringAsBytes(self, text: str) -> int:  # noqa: N802 - Java's
        """Return what a text means."""
        return {"1g": 2**30, "0": 0}[text]

    def numPartitions(self) -> int:  # noqa: N802 - Java's
        """Return how many tasks there are."""
        return self._tasks


def writer(schema: StructType = SCHEMA, tasks: int = 1, most: str = "1g") -> Any:
    """Return a taught writer of a frame."""
    java = Plan(tasks, most)

    class Writer:
        """Notes what Java would be told."""

        def __init__(self) -> None:
            self._df = SimpleNamespace(schema=schema, sparkSession=java, _jdf=java)
            self.told: dict[str, Any] = {}
            self.done: tuple[Any, ...] = ()

        def format(self, source: str) -> Writer:
            self.told["format"] = source
            return self

        def mode(self, saveMode: str | None) -> Writer:  # noqa: N803 - Spark's
            if saveMode is not None:
                self.told["mode"] = saveMode
            return self

        def partitionBy(self, *cols: Any) -> Writer:  # noqa: N802 - see above
            self.told["columns"] = cols
            return self

        def option(self, key: str, value: str) -> Writer:
            self.told[f"option {key}"] = value
            return self

        def options(self, **options: str) -> Writer:
            for key, value in options.items():
                self.option(key, value)
            return self

        def save(self, path: Any = None, format: Any = None, mode: Any = None, *rest: Any) -> None:  # noqa: A002 - see above
            if format is not None:
                self.format(format)
            self.mode(mode)
            self.done = ("save", path, *rest)

        def saveAsTable(self, name: str, format: Any = None) -> None:  # noqa: A002, N802 - see above
            self.done = ("table", name, format)

        def insertInto(self, name: str) -> None:  # noqa: N802 - see above
            self.done = ("insert", name)

    teach(NAME, Writer)
    teach(NAME, Writer)
    return Writer()


@pytest.mark.parametrize("given", [("year", "id"), (["year", "id"],)])
def test_columns_become_the_option(given: tuple[Any, ...]) -> None:
    """Java compares them with those of a table that has none, and is told of none."""
    one = writer().partitionBy(*given).mode("append").format(NAME)
    one.save("s3://b/f", inlineBytes="0")
    assert one.told == {
        "columns": (),
        "mode": "append",
        "format": NAME,
        "option partitionBy": "year,id",
        "option inlineBytes": "0",
    }
    assert one.done == ("save", "s3://b/f")


def test_columns_and_mode_are_taken_where_save_has_them() -> None:
    """As pandas' users write it."""
    one = writer()
    one.save("s3://b/f", format=NAME, mode="overwrite", partitionBy="year")
    assert one.told["option partitionBy"] == "year"
    assert (one.told["mode"], one.told["format"]) == ("overwrite", NAME)
    assert "option conflict" not in one.told


@pytest.mark.parametrize("mode", [None, "error", "errorifexists", "ErrorIfExists", "default"])
def test_the_default_mode_is_to_fail_where_files_are(mode: str | None) -> None:
    """As of every other format, whose default Spark refuses for one in Python."""
    one = writer().format(NAME)
    if mode is not None:
        one.mode(mode)
    one.save("s3://b/f")
    assert (one.told["mode"], one.told["option conflict"]) == ("append", "fail")


def test_what_cannot_be_done_is_refused_in_a_line_that_says_what_can() -> None:
    """Before anything runs."""
    refused: list[tuple[Callable[[Any], object], str]] = [
        (lambda one: one.mode("ignore").save("s3://b/f"), r"option\('conflict', 'fail'\)"),
        (lambda one: one.saveAsTable("t"), r"write \.save\('s3://BUCKET/FOLDER'\) instead of save"),
        (lambda one: one.insertInto("t"), "instead of insertInto"),
        (lambda one: one.partitionBy("a,b").save("s3://b/f"), "'a,b' has a comma"),
    ]
    for act, message in refused:
        one = writer().format(NAME)
        with pytest.raises(UsageError, match=message) as raised:
            act(one)
        assert "\n" not in str(raised.value)
        assert one.done == ()
    with pytest.raises(UsageError, match="knows no tables"):
        writer().saveAsTable("t", format=NAME)


def test_other_formats_are_left_as_they_are() -> None:
    """Whatever their writer is told."""
    one = writer().format("parquet").partitionBy("year").mode("ignore")
    one.save("/tmp/f")
    assert one.told == {"format": "parquet", "columns": ("year",), "mode": "ignore"}
    one = writer().format(NAME)
    one.save("/tmp/f", format="parquet")
    assert one.told["format"] == "parquet"
    one.saveAsTable("t", format="parquet")
    assert one.done == ("table", "t", "parquet")


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (DayTimeIntervalType(), "interval day to second"),
        (YearMonthIntervalType(), "interval year to month"),
        (ArrayType(DayTimeIntervalType()), "interval day to second"),
        (MapType(StringType(), YearMonthIntervalType()), "interval year to month"),
        (StructType().add("in", DayTimeIntervalType()), "interval day to second"),
    ],
)
def test_intervals_are_refused_by_name(kind: Any, named: str) -> None:
    """A task failed behind a page of Java; pyarrow would write what Spark does not read."""
    schema = StructType().add("id", LongType()).add("lasted", kind)
    message = f"the column 'lasted' is of type {named}, which omidpy-parquet does not write; cast"
    with pytest.raises(UsageError, match=message):
        writer(schema).format(NAME).save("s3://b/f")
    with pytest.raises(UsageError, match=message):
        _settings({"path": "s3://b/f"}, schema, overwrite=False)


def test_many_tasks_send_less_than_the_driver_takes(caplog: pytest.LogCaptureFixture) -> None:
    """Spark failed the job when most of it was done; it is said before the job runs."""
    one = writer(tasks=1024).format(NAME)
    one.save("s3://b/f")
    assert one.told["option inlineTaskBytes"] == str(2**29 // 1024)
    assert "1024 tasks may send the driver 8 MiB each" in caplog.text
    assert "raise that setting, or write .option('inlineTaskBytes', ...)" in caplog.text


@pytest.mark.parametrize(("tasks", "most"), [(64, "1g"), (10_000, "0")])
def test_few_tasks_send_what_they_always_do(tasks: int, most: str) -> None:
    """And so do many where the driver takes anything."""
    one = writer(tasks=tasks, most=most).format(NAME)
    one.save("s3://b/f")
    assert "option inlineTaskBytes" not in one.told


@pytest.mark.parametrize("name", ["inlineTaskBytes", "inline_task_bytes"])
def test_what_a_user_has_said_of_messages_stands(name: str) -> None:
    """In whichever way it was said."""
    for said in (writer(tasks=1024).format(NAME).option(name, "7"), None):
        one = said or writer(tasks=1024).format(NAME)
        one.save("s3://b/f", **({} if said else {name: "7"}))
        assert [text for key, text in one.told.items() if "option inline" in key] == ["7"]


def test_tasks_are_told_what_hadoop_is_told() -> None:
    """Spark tells them only of names that begin with its own; a frame's thread is as before."""
    said: dict[str, str | None] = {}
    heard: list[dict[str, str | None]] = []

    class Configuration:
        """Hadoop's, which has more in it than means anything here."""

        def newHadoopConf(self) -> Configuration:  # noqa: N802 - Java's
            """Return itself."""
            return self

        def get(self, name: str) -> str | None:
            """Return what is set."""
            return {GROUP_BYTES: "7", "fs.s3a.endpoint": "there"}.get(name)

    one = writer()
    spark = SimpleNamespace(
        _jsparkSession=SimpleNamespace(sessionState=Configuration),
        sparkContext=SimpleNamespace(getLocalProperty=said.get, setLocalProperty=said.__setitem__),
    )
    one._df.sparkSession = spark
    one.mode = lambda _: heard.append(dict(said))
    one.format(NAME).save("s3://b/f")
    assert heard[-1].pop(DESCRIPTION)
    assert heard[-1] == {GROUP_BYTES: "7"}
    assert set(said.values()) == {None}


@pytest.mark.parametrize("committer", ["omidpy", "file"])
@pytest.mark.parametrize("marks_success", [True, False])
def test_the_driver_honours_what_its_tasks_have_read(
    tmp_path: Path, committer: str, *, marks_success: bool
) -> None:
    """Whether there is `_SUCCESS`, nobody else tells it."""
    path = f"file://{tmp_path}/out" if committer == "file" else "s3://b/f"
    given = {"path": path, "committer": committer}
    made: Any = _settings(given, SCHEMA, overwrite=False).committer()
    done: list[Any] = []
    made.commit_job, made.cleanup_job = done.append, lambda: None
    message = TaskMessage(made.job_id, TaskId(0), ())
    settings = _settings(given, SCHEMA, overwrite=False)
    one = _BatchWriter(settings, made)
    one.commit([_Message(message), _Message(message, marks_success=marks_success)])
    assert done == [[message, message]]
    assert made.marks_success is marks_success


@pytest.mark.parametrize("version", ["1", "2"])
def test_an_attempt_of_a_stage_that_is_run_again_touches_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Spark numbers its attempts from 0 once more, while those of before go on, and fail late.

    They had one folder, and what the later one had committed was removed by the earlier one.
    """
    ids = iter((7, 9))

    def context() -> Any:
        return SimpleNamespace(
            partitionId=lambda: 0,
            attemptNumber=lambda: 0,
            taskAttemptId=lambda: next(ids),
            getLocalProperty=lambda _: None,
        )

    monkeypatch.setattr(TaskContext, "get", context)
    given = {"path": str(tmp_path / "out"), "committer": "file", "algorithm_version": version}
    settings = _settings(given, SCHEMA, overwrite=False)
    made = settings.committer()
    made.setup_job()
    writer = _BatchWriter(settings, made)
    some = pa.record_batch({"id": [1, 2], "year": [3, 4]})
    messages: list[Any] = []

    def late() -> Iterator[pa.RecordBatch]:
        yield some
        messages.append(writer.write(iter([some])))
        raise OSError("its shuffle files are gone")

    with pytest.raises(OSError, match="shuffle"):
        writer.write(late())
    writer.commit(messages)
    found = pq.read_table(tmp_path / "out")
    assert found.to_pylist() == some.to_pylist()


def in_a_task(monkeypatch: pytest.MonkeyPatch, *, attempt: int = 0) -> SimpleNamespace:
    """Let Spark say that this is a task, whose session sets nothing; return what it says."""
    told = SimpleNamespace(
        partitionId=lambda: 0,
        attemptNumber=lambda: attempt,
        taskAttemptId=lambda: 7,
        getLocalProperty=lambda _: None,
    )
    monkeypatch.setattr(TaskContext, "get", lambda: told)
    return told


def test_whether_an_attempt_is_alone_is_what_spark_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not the number by which it is told from others."""
    told = in_a_task(monkeypatch, attempt=1)
    settings = _settings({"path": str(tmp_path), "committer": "file"}, SCHEMA, overwrite=False)
    made = settings.committer()
    made.setup_job()
    seen: list[Attempt] = []
    commit_task = made.commit_task

    def commit(one: Attempt) -> TaskMessage:
        seen.append(one)
        return commit_task(one)

    monkeypatch.setattr(made, "commit_task", commit)
    for number in (1, 0):
        told.attemptNumber = lambda number=number: number
        told.taskAttemptId = lambda number=number: 7 + number
        _BatchWriter(settings, made).write(iter(()))
    assert [(one.id, one.is_lone) for one in seen] == [(TaskId(0, 8), False), (TaskId(0, 7), True)]


@pytest.mark.parametrize(("inline", "listings"), [("0", 1), ("1MiB", 0)])
def test_uploads_of_a_stage_that_is_run_again_are_swept(
    moto_bucket: str, monkeypatch: pytest.MonkeyPatch, inline: str, listings: int
) -> None:
    """Spark numbers its attempts from 0 once more, and says nothing of those of a lost host.

    Where it runs all tasks again nothing tells the attempts from the first ones; but a lost attempt
    has uploaded something only where these have.
    """
    del moto_bucket
    ids = iter(enumerate((7, 8)))

    def context() -> Any:
        task, number = next(ids)
        return SimpleNamespace(
            partitionId=lambda: task,
            attemptNumber=lambda: 0,
            taskAttemptId=lambda: number,
            getLocalProperty=lambda _: None,
        )

    monkeypatch.setattr(TaskContext, "get", context)
    settings = _settings({"path": OUT.url, "inline_bytes": inline}, SCHEMA, overwrite=False)
    made = settings.committer()
    assert isinstance(made, S3Committer)
    made.setup_job()
    for task in (0, 1):
        lost = made.setup_task(TaskId(task, 3 + task))
        with lost.open(f"part-{task}.parquet") as file:
            file.write(b"rows")
    writer = _BatchWriter(settings, made)
    some = pa.record_batch({"id": [1, 2], "year": [3, 4]})
    writer.commit([writer.write(iter([some])) for _ in (0, 1)])
    assert list(made.store.uploads(OUT)) == []
    assert made.store.requests["ListMultipartUploads"] == listings + 1


def test_a_task_that_was_suspended_for_as_long_as_spark_waits_leaves_no_upload(
    moto_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where executors are given up soon a job ends before its tasks have run for a minute."""
    del moto_bucket
    now_s = 0.0
    monkeypatch.setattr(standing, "elapsed_s", lambda: now_s)
    told = in_a_task(monkeypatch)
    told.getLocalProperty = {LOST: "8s"}.get
    settings = _settings({"path": OUT.url, "inline_bytes": "0"}, SCHEMA, overwrite=False)
    made = settings.committer()
    assert isinstance(made, S3Committer)
    made.setup_job()
    sent = pickle.dumps(_BatchWriter(settings, made))
    some = pa.record_batch({"id": [1, 2], "year": [3, 4]})

    def suspended() -> Iterator[pa.RecordBatch]:
        nonlocal now_s
        yield some
        writer = pickle.loads(sent)
        writer.commit([writer.write(iter([some]))])
        now_s += 8.0

    with pytest.raises(CommitterError, match="comes too late"):
        pickle.loads(sent).write(suspended())
    assert list(made.store.uploads(OUT)) == []


def test_what_a_task_makes_behind_the_abort_of_a_job_of_files_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Python has begun while Spark aborted the job, and Spark hears nothing of its end."""
    settings = _settings(
        {"path": str(tmp_path / "out"), "committer": "file"}, SCHEMA, overwrite=False
    )
    made = settings.committer()
    made.setup_job()
    waited = []

    def late(seconds: float) -> None:
        waited.append(seconds)
        with pytest.raises(CommitterError, match="op_mkdirs failed"):
            made.setup_task(TaskId(1, 3))
        # This one came right behind the look of the abort.
        made.setup_job()
        attempt = made.setup_task(TaskId(1, 4))
        with attempt.open("part.parquet") as file:
            file.write(b"rows")
        made.commit_task(attempt)

    monkeypatch.setattr(settling, "_never", SimpleNamespace(wait=late))
    _BatchWriter(settings, made).abort([None, None])
    assert waited == [TASKS_END_S]
    assert [*tmp_path.rglob("*")] == [tmp_path / "out"]


def test_an_empty_frame_with_timestamps_keeps_its_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's own function wants to know a time zone."""
    in_a_task(monkeypatch)
    schema = StructType().add("t", TimestampType())
    given = {"path": str(tmp_path / "out"), "committer": "file"}
    settings = _settings(given, schema, overwrite=False)
    made = settings.committer()
    made.setup_job()
    writer = _BatchWriter(settings, made)
    writer.commit([writer.write(iter(()))])
    assert pq.read_table(tmp_path / "out").schema.field("t").type == pa.timestamp("us", "UTC")


def test_times_of_day_are_stored_as_spark_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come in nanoseconds, of which Spark's own reader knows nothing."""
    in_a_task(monkeypatch)
    nanos = pa.time64("ns")
    moment = time(12, 34, 56, 789_012)
    some = pa.record_batch(
        {
            "t": pa.array([moment, None], nanos),
            "l": pa.array([[moment], None], pa.list_(nanos)),
            "s": pa.array([{"t": moment}, None], pa.struct([("t", nanos)])),
        }
    )
    given = {"path": str(tmp_path / "out"), "committer": "file"}
    schema = StructType().add("t", TimeType())
    settings = _settings(given, schema, overwrite=False)
    made = settings.committer()
    made.setup_job()
    writer = _BatchWriter(settings, made)
    writer.commit([writer.write(iter([some]))])
    found = pq.read_table(tmp_path / "out")
    assert found.to_pylist() == some.to_pylist()
    assert found.schema.field("t").type == pa.time64("us")
