"""`df.write.format("omidpy-parquet")`: Spark's output through these committers.

    import omidpy.committers.spark

    omidpy.committers.spark.register(spark)
    df.write.format("omidpy-parquet").mode("append").option("partitionBy", "year").save("s3://b/f")

Spark's Python data sources are a commit protocol.  Its writer is made on the driver, travels to the
tasks, and is called again on the driver, in another process, with what the tasks have answered; so
everything that it knows is in it when it is made.  Rows come as Arrow batches.

What the session's settings ask for, tasks read, since the driver's part is not told
(`session.py`): `spark.sql.sources.partitionOverwriteMode` decides what an overwrite removes.

A task that Spark kills, or whose answer it does not want, hears nothing of it.  What such a task
has uploaded no reader sees; it is swept by the job's id where tasks were tried twice.

Spark takes `append` and `overwrite` as modes of a Python data source, and has columns to partition
by only as an option; `register` teaches its writer the rest (`writing.py`).

`spark.read.format("omidpy-parquet")` reads what is published, and nothing of a job that is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from omidpy.base.installation import install_hint
from omidpy.base.remembered import remembered
from omidpy.base.telemetry.stages import GROUP
from omidpy.committers.choice import OPTION_NAMES, committer
from omidpy.committers.contents.reading import published
from omidpy.committers.contents.state import PublishedState
from omidpy.committers.hadoop.file_output import FileOutputCommitter
from omidpy.committers.protocol import Committer
from omidpy.committers.s3 import S3Committer
from omidpy.committers.spark import session
from omidpy.committers.spark.settling import Settler, wait_for_tasks
from omidpy.committers.spark.streams import StreamBatch
from omidpy.committers.tables import MOST_OPEN, PartitionedWriter, recast
from omidpy.committers.values import TaskId, TaskMessage
from omidpy.errors import ConfigError, UsageError

try:
    from pyspark import TaskContext
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceStreamArrowWriter,
        WriterCommitMessage,
    )
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    from omidpy.committers.spark.reading import PublishedReader, columns
    from omidpy.committers.spark.schemas import (
        arrow_schema,
        check_settings,
        field_ids,
        stored_as,
        timestamps_of,
    )
    from omidpy.committers.spark.writing import check_types, teach
except ImportError as error:
    raise ConfigError(
        f"writing with Spark needs pyspark 4.1 or newer; run `{install_hint('spark', 's3')}`"
    ) from error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "omidpy-parquet"

_OWN: Final = (
    "path",
    "committer",
    "partition_by",
    "partition_overwrite_mode",
    "compression",
    "max_open_files",
)
_PLAIN: Final = {re.sub("_", "", name): name for name in (*_OWN, *OPTION_NAMES)}
"""Spark's options know no case, and are written `partitionBy` as often as `partition_by`."""
_OF_SPARK: Final = frozenset({"checkpointlocation", "querytimeout"})
"""What Spark adds for itself."""
_settler: Final = Settler()


@dataclass
class _Message(WriterCommitMessage):
    """A task's message, as Spark carries it."""

    message: TaskMessage
    batch: str = ""
    """Which batch of a stream, to its task."""
    is_dynamic: bool = False
    """Whether the session replaces partitions, and not the whole destination."""
    marks_success: bool = True
    """Whether the session wants `_SUCCESS`."""
    run: str = ""
    """Of a batch: which start of the query, as Spark names the group of its jobs."""


class ParquetSource(DataSource):
    """The format `omidpy-parquet`, as Spark finds it by its name."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` is called with."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of what is published, of files and of partitions."""
        return from_arrow_schema(columns(self._seen))

    def reader(self, schema: StructType) -> PublishedReader:
        """Read whole jobs alone, as the destination's head has them; it travels to tasks."""
        return PublishedReader(self._seen, schema)

    @remembered
    def _seen(self) -> PublishedState:
        """What is to be read; it is looked for once, and travels with this."""
        options: dict[str, str] = {}
        for key, value in self.options.items():
            options[_PLAIN.get(key.lower().replace("_", ""), key)] = value
        if "path" not in options:
            raise UsageError("there is no path to read; write .load('s3://BUCKET/FOLDER')")
        return published(options.pop("path"), **options)

    def writer(self, schema: StructType, overwrite: bool) -> _BatchWriter:  # noqa: FBT001 - Spark calls it so
        """Begin a job, whose tasks write with what is returned."""
        settings = _settings(self.options, schema, overwrite=overwrite)
        made = settings.committer()
        made.setup_job()
        return _BatchWriter(settings, made)

    def streamWriter(self, schema: StructType, overwrite: bool) -> _StreamWriter:  # noqa: FBT001, N802 - see above
        """Begin a query, each of whose batches is a job."""
        settings = _settings(self.options, schema, overwrite=overwrite)
        if settings.conflict != "append":
            raise UsageError(
                f"a stream appends, and conflict={settings.conflict!r} would refuse or remove what "
                "its own batches have written; choose outputMode('append')"
            )
        # What is wrong with the options is said before the first batch.
        if not isinstance(settings.committer(), S3Committer):
            raise UsageError(f"streams are not written with committer={settings.name!r}")
        return _StreamWriter(settings)


def register(spark: SparkSession) -> None:
    """Let a session write and read in the format `omidpy-parquet`."""
    from pyspark.sql.readwriter import DataFrameWriter  # noqa: PLC0415 - of sessions in Java alone

    spark.dataSource.register(ParquetSource)
    teach(NAME, DataFrameWriter)


@dataclass(frozen=True)
class _Settings:
    """What the options say."""

    path: str
    name: str
    partition_by: tuple[str, ...]
    is_dynamic: bool | None
    """What an overwrite removes: written partitions, or everything; None as the session says."""
    compression: str | None
    """None as the session says."""
    most_open: int
    schema: StructType
    options: Mapping[str, str]

    @property
    def conflict(self) -> str:
        return self.options.get("conflict", "append")

    def committer(self, **more: str) -> Committer:
        return committer(self.path, self.name, **{**self.options, **more})


def _settings(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> _Settings:
    check_types(NAME, schema)
    options: dict[str, str] = {}
    for key, value in given.items():
        plain = key.lower().replace("_", "")
        if plain in _OF_SPARK:
            continue
        options[_PLAIN.get(plain, key)] = value
    if "path" not in options:
        raise UsageError("there is no path to write to; write .save('s3://BUCKET/FOLDER')")
    if overwrite and options.setdefault("conflict", "replace") != "replace":
        raise UsageError(
            f"mode 'overwrite' and conflict={options['conflict']!r} contradict each other; leave "
            "one of them out"
        )
    compression = options.pop("compression", None)
    if compression is not None:
        compression = session.compression_of("compression", compression)
    most_open = options.pop("max_open_files", str(MOST_OPEN))
    if not most_open.isdecimal() or int(most_open) < 1:
        raise UsageError(f"max_open_files={most_open!r} must be a whole number from 1 up")
    names = options.pop("partition_by", "")
    return _Settings(
        options.pop("path"),
        options.pop("committer", "omidpy"),
        tuple(name.strip() for name in names.split(",") if name.strip()),
        _is_dynamic(options),
        compression,
        int(most_open),
        schema,
        options,
    )


def _is_dynamic(options: dict[str, str]) -> bool | None:
    """Say whether the options of a write, not its session, replace written partitions alone."""
    mode, scope = options.pop("partition_overwrite_mode", None), options.get("scope")
    if mode is None:
        return None if scope is None else scope == "partitions"
    found = session.overwrites_partitions("partitionOverwriteMode", mode)
    if scope is not None and found != (scope == "partitions"):
        raise UsageError(
            f"partitionOverwriteMode={mode!r} and scope={scope!r} contradict each other; leave one "
            "of them out"
        )
    return found


def _said(settings: _Settings, made: Committer, context: TaskContext) -> session.SessionSettings:
    """Return what the session asks of a write, where the options leave it open.

    Raises:
        UsageError: It asks for what is not done; or the committer has no partitions to replace:
            all others would be removed.
    """
    closed = set()
    if settings.compression is not None:
        closed.add(session.CODEC)
    if settings.is_dynamic is not None:
        closed.add(session.OVERWRITE_MODE)
    if "success" in settings.options:
        closed |= {session.MARKS_SUCCESS, f"spark.hadoop.{session.MARKS_SUCCESS}"}
    said = session.read(lambda name: None if name in closed else context.getLocalProperty(name))
    check_settings(said, settings.schema)
    timestamps = timestamps_of(said, settings.schema)
    is_dynamic = said.is_dynamic if settings.is_dynamic is None else settings.is_dynamic
    # As Spark has it: without columns to partition by there is one part, which is everything.
    is_dynamic = is_dynamic and bool(settings.partition_by) and made.conflict == "replace"
    if is_dynamic and not isinstance(made, S3Committer):
        raise UsageError(
            f"committer={settings.name!r} replaces the whole destination, and "
            f"{session.OVERWRITE_MODE}=dynamic asks for partitions alone; write with "
            ".option('partitionOverwriteMode', 'static') if everything is to go"
        )
    return replace(
        said,
        is_dynamic=is_dynamic,
        compression=settings.compression or said.compression,
        timestamps=timestamps,
    )


def _write(
    settings: _Settings, made: Committer, batches: Iterator[Any], job_id: str = ""
) -> _Message:
    """Run one task attempt."""
    context = TaskContext.get()
    assert context is not None, "Spark calls this in a task"
    said = _said(settings, made, context)
    if isinstance(made, S3Committer):
        made.awaited_s = said.awaited_s
    # Not its `attemptNumber`, which begins anew where a stage is run again while attempts of before
    # go on: two would have one folder, and the abort of one remove what the other has committed.
    attempt = made.setup_task(TaskId(context.partitionId(), context.taskAttemptId()))
    attempt.is_lone = not context.attemptNumber() and not said.speculates
    try:
        writer = PartitionedWriter(
            attempt,
            partition_by=settings.partition_by,
            compression=said.compression or "snappy",
            most_open=settings.most_open,
            most_rows=said.most_records,
            timestamps=said.timestamps,
            group_bytes=said.group_bytes,
            field_ids=field_ids(settings.schema) if said.writes_field_ids else {},
        )
        for batch in batches:
            if batch.num_rows:
                writer.write(recast(batch, stored_as))
        if not writer.rows and not context.partitionId() and not settings.partition_by:
            # As Spark does: a reader of an empty frame finds its columns.
            writer.write(recast(arrow_schema(settings.schema).empty_table(), stored_as))
        writer.close()
        message = _alone_or_not(made.commit_task(attempt))
    except BaseException:
        made.abort_task(attempt)
        raise
    _settler.settle()
    return _Message(message, job_id, said.is_dynamic, said.marks_success)


def _alone_or_not(message: TaskMessage) -> TaskMessage:
    """Return a message that says whether attempts may have been lost before this one.

    A stage that is run again, as of a host that is lost with its shuffle files, has its attempts
    numbered from 0 once more, and nothing says that there were others.  They wrote the same rows,
    so that where this one has uploaded nothing, no lost one has.
    """
    has_uploads = any(one.upload_id for one in message.files)
    return replace(message, is_lone=message.is_lone and not has_uploads)


def _unwrapped(messages: Sequence[WriterCommitMessage | None]) -> list[TaskMessage]:
    return [one.message for one in messages if isinstance(one, _Message)]


def _abort_late(made: Committer, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Look once more for what tasks have begun of which the driver had not heard when it aborted.

    Spark aborts a job as soon as one task has failed for good, while others run.
    """
    if all(one is not None for one in messages):
        return
    wait_for_tasks()
    made.abort_late()


class _BatchWriter(DataSourceArrowWriter):
    """One save is one job."""

    def __init__(self, settings: _Settings, made: Committer) -> None:
        self._settings = settings
        self._committer = made

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Run a task: on an executor."""
        return _write(self._settings, self._committer, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what all tasks have written: on the driver."""
        self._hear(messages)
        self._committer.commit_job(_unwrapped(messages))
        self._committer.cleanup_job()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what tasks have written; Spark calls this also where `commit` failed."""
        self._hear(messages)
        self._committer.abort_job(_unwrapped(messages))
        _abort_late(self._committer, messages)
        self._committer.cleanup_job()

    def _hear(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Take what tasks have read of their session, which the driver is not told."""
        if any(isinstance(one, _Message) and one.is_dynamic for one in messages):
            assert isinstance(self._committer, S3Committer), "tasks of others were refused"
            self._committer.scope = "partitions"
        if any(isinstance(one, _Message) and not one.marks_success for one in messages):
            assert isinstance(self._committer, S3Committer | FileOutputCommitter), "there are two"
            self._committer.marks_success = False


class _StreamWriter(DataSourceStreamArrowWriter):
    """Each batch is one job, whose id is that of the query and the number of the batch.

    A batch that Spark runs again after a restart has the same id, and is published once: its
    manifest, `_omidpy/streams/<query>.json`, says that it was, and its plan that it nearly was.
    What no restart asks for is refused (`streams.py`).
    """

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Run a task of a batch: on an executor."""
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        query = context.getLocalProperty("sql.streaming.queryId")
        number = context.getLocalProperty("streaming.sql.batchId")
        assert query is not None, "Spark says which query a task is of"
        assert number is not None, "Spark says which batch a task is of"
        job_id = f"{query}-b{int(number):010}"
        made = self._settings.committer(job_id=job_id)
        run = context.getLocalProperty(GROUP) or ""
        return replace(_write(self._settings, made, iterator, job_id), run=run)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark calls it so
        """Publish a batch: on the driver."""
        if (found := self._made(messages)) is None:
            return
        made, batch = found
        batch.begin()
        if made.was_committed():
            batch.pass_over()
            made.abort_tasks(_unwrapped(messages))
            made.sweep_uploads()
        else:
            made.commit_job(_unwrapped(messages))
            made.cleanup_job()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - see above
        """Remove what tasks of a batch have written."""
        if (found := self._made(messages)) is None:
            return
        made, _ = found
        if made.was_committed():
            made.abort_tasks(_unwrapped(messages))
        else:
            made.abort_job(_unwrapped(messages))
            _abort_late(made, messages)

    def _made(
        self, messages: Sequence[WriterCommitMessage | None]
    ) -> tuple[S3Committer, StreamBatch] | None:
        found = next((one for one in messages if isinstance(one, _Message) and one.batch), None)
        if found is None:
            return None
        made = self._settings.committer(job_id=found.batch)
        assert isinstance(made, S3Committer), "streams were refused other committers"
        return made, StreamBatch(made, found.batch, found.run)
