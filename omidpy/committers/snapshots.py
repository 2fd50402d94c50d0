"""Tables as Parquet files of one moment: several of them, whole, through a committer.

    hold the snapshot -> a task for each region, which reads at it -> commit the job

All tables are read at one start timestamp, wherever and whenever their tasks run, so that what they
say agrees.  The hold keeps compactions from dropping what is still to be read; a task that finds
itself below the collection horizon all the same fails, and never writes less than there was.  Nor
is anything committed if a table was made anew, or restored, since before the snapshot.

Without columns each cell is a row, since no two rows of a table need have the same ones:

    row, family, qualifier, value: binary    commit_ts: bigint

With columns each row is a row, as `scan_arrow` has it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from omidpy.base.installation import install_hint
from omidpy.codec import Codec
from omidpy.committers.choice import committer
from omidpy.committers.places import partition_folder
from omidpy.committers.protocol import Attempt, TaskFile
from omidpy.committers.publishing.completing import unobserved
from omidpy.committers.s3 import S3Committer
from omidpy.committers.tables import PartitionedWriter
from omidpy.committers.values import Manifest, TaskId, TaskMessage
from omidpy.errors import CommitterError, ConfigError, UsageError
from omidpy.facts.tables.sameness import check_same, which_table

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.tx.transaction import Transaction

HOLD_S: Final = 24 * 3600.0
BATCH_CELLS: Final = 20_000
THREADS: Final = 4
TABLE_FOLDER: Final = "table"
"""Of several tables each has a folder, `table=NAME`, which readers take for a column."""

_log: Final = logging.getLogger(__name__)

Codecs = Mapping[bytes, Codec[Any]]


@dataclass(frozen=True, slots=True)
class Portion:
    """What one task writes: a region of a table."""

    number: int
    table: str
    folder: str
    """Below the destination, with "/" at its end; empty for the only table."""
    start: bytes
    end: bytes
    is_first: bool
    """Of its table: it writes a file also if it finds nothing, so that there are columns."""


@dataclass(frozen=True, slots=True)
class Work:
    """What tasks must know; it travels to where they run."""

    made: S3Committer
    snapshot_ts: int
    codecs: Codecs | None
    portions: tuple[Portion, ...]


Run = Callable[[Work, Callable[[int, int], None]], list[TaskMessage]]
"""Runs all tasks, here or elsewhere, and says how many are done, and of how many."""


@dataclass(frozen=True, slots=True)
class Exported:
    """Which files an export has written, and of which snapshot."""

    snapshot_ts: int
    """All that was committed before is in it."""
    rows: Mapping[str, int]
    """Of each table, in its files."""
    manifest: Manifest
    """Of the job."""


def export_snapshot(
    tm: TransactionManager,
    tables: Sequence[str],
    destination: str,
    *,
    at: int | datetime | timedelta | None = None,
    codecs: Codecs | None = None,
    hold_s: float = HOLD_S,
    conflict: str = "fail",
    run: Run | None = None,
    progress: Callable[[int, int], None] = unobserved,
    **options: Any,
) -> Exported:
    """Write tables as they were at one moment to a folder; all of it appears, or nothing.

    Args:
        tm: Of the store.
        tables: Their names.
        destination: `s3://BUCKET/FOLDER`.
        at: The moment, as `tm.snapshot` takes it; None for now.
        codecs: `b"family:qualifier"` -> codec of columns; None writes each cell as a row.
        hold_s: For how long versions are kept from compactions, should this process die.
        conflict: What becomes of files that are there.
        run: Runs the tasks; by default threads of this process.
        progress: Told of each task.
        options: As `omidpy.committers.committer` takes them.

    Raises:
        SnapshotTooOld: versions of that moment may have been collected; nothing was written.
        StorageError: a table was dropped, truncated or restored meanwhile; nothing was written.
        CommitterError: as a job's; nothing is visible, or it names the plan that finishes it.
    """
    if isinstance(tables, str) or not tables:
        raise UsageError(f"tables are a list of names, not {tables!r}")
    if len(set(tables)) < len(tables):
        raise UsageError(f"a table is named twice: {', '.join(tables)}")
    made = committer(destination, conflict=conflict, **options)
    assert isinstance(made, S3Committer), "the default is one"
    names = [tm.session.catalog.full_name(one) for one in tables]
    which = {name: which_table(tm.store, name) for name in names}
    tx = tm.snapshot(at)
    with tm.hold(tx, for_s=hold_s) as held:
        work = Work(made, held.start_ts, codecs, tuple(_portions(tx, tables)))
        made.facts = {"snapshot_ts": held.start_ts, "tables": list(tables)}
        made.setup_job()
        messages: list[TaskMessage] = []
        try:
            messages = (run or run_here(tm))(work, progress)
            for name in names:
                check_same(tm.store, name, which[name])
            manifest = made.commit_job(messages)
        except BaseException as error:
            if not getattr(error, "plan", ""):
                _abort(made, messages, error)
            raise
    rows = dict.fromkeys(tables, 0)
    for message in messages:
        found = sum(one.rows or 0 for one in message.files)
        rows[work.portions[message.task.task].table] += found
    return Exported(work.snapshot_ts, rows, manifest)


def run_here(tm: TransactionManager) -> Run:
    """Return what runs tasks in threads of this process."""

    def run(work: Work, progress: Callable[[int, int], None]) -> list[TaskMessage]:
        messages = []
        with ThreadPoolExecutor(THREADS) as pool:
            futures = [pool.submit(write_portion, tm, work, one) for one in work.portions]
            try:
                for future in as_completed(futures):
                    messages.append(future.result())
                    progress(len(messages), len(futures))
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return messages

    return run


def write_portion(
    tm: TransactionManager, work: Work, portion: Portion, *, attempt: int = 0
) -> TaskMessage:
    """Run one attempt at a task."""
    running = work.made.setup_task(TaskId(portion.number, attempt))
    try:
        writer = PartitionedWriter(_Below(running, portion.folder))  # type: ignore[arg-type]  # all it uses
        with tm.snapshot(work.snapshot_ts) as tx:
            for batch in _batches(tx, portion, work.codecs):
                writer.write(batch)
        if portion.is_first and not writer.rows:
            writer.write(_schema(work.codecs).empty_table())
        writer.close()
        return work.made.commit_task(running)
    except BaseException:
        work.made.abort_task(running)
        raise


class _Below:
    """An attempt whose files have a folder of their table."""

    keeps_columns = False

    def __init__(self, attempt: Attempt, folder: str) -> None:
        self.id = attempt.id
        self._attempt = attempt
        self._folder = folder

    def open(self, path: str) -> TaskFile:
        return self._attempt.open(self._folder + path)


def _portions(tx: Transaction, tables: Sequence[str]) -> Iterator[Portion]:
    number = 0
    for table in tables:
        folder = partition_folder((TABLE_FOLDER,), (table,)) + "/" if len(tables) > 1 else ""
        for at, region in enumerate(tx.table(table).regions()):
            yield Portion(number, table, folder, region["start_key"], region["end_key"], at == 0)
            number += 1


def _abort(made: S3Committer, messages: Iterable[TaskMessage], error: BaseException) -> None:
    try:
        made.abort_job(messages)
    except CommitterError as failure:
        _log.warning("an export failed (%s), and so did its abort: %s", error, failure)


# -- rows of Parquet -------------------------------------------------------------------------------


def _batches(tx: Transaction, portion: Portion, codecs: Codecs | None) -> Iterator[Any]:
    table = tx.table(portion.table)
    start, stop = portion.start or None, portion.end or None
    if codecs is not None:
        yield from table.scan_arrow(start, stop, codecs=codecs)
        return
    schema = _schema(None)
    columns: list[list[Any]] = [[] for _ in schema]
    for row, cells in table.scan(start, stop, include_timestamp=True):
        for column, (value, commit_ts) in cells.items():
            family, _, qualifier = column.partition(b":")
            fields = (row, family, qualifier, value, commit_ts)
            for values, one in zip(columns, fields, strict=True):
                values.append(one)
        if len(columns[0]) >= BATCH_CELLS:
            yield _batch(columns, schema)
            columns = [[] for _ in schema]
    if columns[0]:
        yield _batch(columns, schema)


def _batch(columns: Sequence[list[Any]], schema: Any) -> Any:
    pa = _pyarrow()
    arrays = [pa.array(values, one.type) for values, one in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def _schema(codecs: Codecs | None) -> Any:
    pa = _pyarrow()
    if codecs is None:
        names = ("row", "family", "qualifier", "value")
        return pa.schema([*((name, pa.binary()) for name in names), ("commit_ts", pa.int64())])
    from omidpy.tx.frames.arrow import schema_of  # noqa: PLC0415 - needs pyarrow

    return schema_of(pa, codecs)


def _pyarrow() -> Any:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(f"exporting needs pyarrow: {install_hint('s3')}") from error
    return pa
