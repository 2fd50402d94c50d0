"""Frames of a manager: `read`, `snapshot`, `write` and `save`, in the process that has both ends.

Here what is wrong is said by the call, before Spark hears of it.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from omidpy.base.telemetry.stages import described
from omidpy.committers.spark.schemas import arrow_schema
from omidpy.errors import AlreadyCommitted, TransactionAborted, UsageError
from omidpy.manager import TransactionManager
from omidpy.model import Committed
from omidpy.spark.frames.options import (
    CONFLICTS,
    FENCE,
    FORMAT,
    HOLD_S,
    VERSIONS,
    check_versions,
    key_text,
)
from omidpy.spark.frames.places import check_reach, place_of
from omidpy.spark.frames.source import OmidSource
from omidpy.spark.frames.types import shape_of_frame
from omidpy.spark.frames.writes import jobs
from omidpy.spark.frames.writes.jobs import Job
from omidpy.spark.frames.writes.once import keyed_write
from omidpy.spark.frames.writes.sizes import estimated_rows
from omidpy.spark.frames.writes.writing import partition_id
from omidpy.tx.frames.asked import DEFAULT_KEY, Columns, KeyColumns, TypeName
from omidpy.tx.frames.reading import schema_of
from omidpy.tx.frames.shape import OP, Shape
from omidpy.tx.frames.table import shape_to_read
from omidpy.tx.frames.writing import NULLS, check_names
from omidpy.tx.keys import open_keys
from omidpy.tx.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omidpy.facts.holds import HeldSnapshot

RowValue: TypeAlias = "bytes | tuple[Any, ...] | str | int"
"""A row key: bytes, or the value of its column, or a tuple of those of its first columns."""
WrittenColumns: TypeAlias = "Mapping[str, str | bytes | tuple[str | bytes, TypeName]]"


class Snapshot:
    """One moment of a store, whose tables are frames; it is held until its block ends.

    Attributes:
        snapshot_ts: Every frame holds what was committed before.
    """

    def __init__(
        self,
        tm: TransactionManager,
        spark: SparkSession,
        *,
        at: int | datetime | timedelta | None,
        hold_s: float,
    ) -> None:
        self._place = place_of(tm.session)
        check_reach(self._place, spark)
        self._tm = tm
        self._spark = spark
        self._tx = tm.snapshot(at)
        self.snapshot_ts = self._tx.start_ts
        self._hold: HeldSnapshot = tm.hold(self.snapshot_ts, for_s=hold_s)
        spark.dataSource.register(OmidSource)

    def table(
        self,
        name: str,
        columns: Columns | None = None,
        *,
        key: KeyColumns = DEFAULT_KEY,
        rest: str | None = None,
        commit_ts: bool = False,
        row_start: RowValue | None = None,
        row_stop: RowValue | None = None,
        row_prefix: RowValue | None = None,
        rows: Iterable[RowValue] | None = None,
        partitions: int | None = None,
        versions: str = VERSIONS[0],
    ) -> DataFrame:
        """Return a table as this snapshot sees it; arguments are as in `omidpy.spark.read`."""
        has_times = check_versions(versions) or commit_ts
        shape = shape_to_read(columns, key=key, rest=rest, commit_ts=has_times)
        layout = self._tx.table(name).layout
        for family in shape.families():
            layout.check_family(family)
        reader = self._spark.read.format(FORMAT).schema(from_arrow_schema(schema_of(pa, shape)))
        options = {
            "store": self._place.store,
            "tso": self._place.tso,
            "conflict_level": self._place.conflict_level,
            "table": layout.name,
            "shape": shape.text(),
            "snapshot": self.snapshot_ts,
            "row_start": _text(shape, row_start),
            "row_stop": _text(shape, row_stop),
            "row_prefix": _text(shape, row_prefix),
            "rows": None if rows is None else _texts(shape, rows),
            "partitions": partitions or self._spark.sparkContext.defaultParallelism,
            "versions": versions,
        }
        for option, value in options.items():
            if value is not None:
                reader = reader.option(option, str(value))
        return reader.load()

    def close(self) -> None:
        """Give the hold back; a second call does nothing."""
        self._hold.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def snapshot(
    tm: TransactionManager,
    spark: SparkSession | None = None,
    *,
    at: int | datetime | timedelta | None = None,
    hold_s: float = HOLD_S,
) -> Snapshot:
    """Hold one moment of a store, to read several tables at it.

        with omidpy.spark.snapshot(tm) as s:
            s.table("a", ...).join(s.table("b", ...), "id").write...

    Args:
        tm: A manager that is connected to a `tso-server`.
        spark: The session; None: the active one.
        at: An earlier moment, as `tm.snapshot` takes it.
        hold_s: For how long versions are kept from compactions, should this process die.

    Raises:
        ConfigError: tasks could not reach the store.
        SnapshotTooOld: versions of that moment may have been collected.
        UsageError: no session is active, or a moment is none.
    """
    return Snapshot(tm, _session(spark), at=at, hold_s=hold_s)


def read(
    spark: SparkSession,
    tm: TransactionManager,
    table: str,
    columns: Columns | None = None,
    *,
    key: KeyColumns = DEFAULT_KEY,
    rest: str | None = None,
    commit_ts: bool = False,
    at: int | datetime | timedelta | None = None,
    row_start: RowValue | None = None,
    row_stop: RowValue | None = None,
    row_prefix: RowValue | None = None,
    rows: Iterable[RowValue] | None = None,
    partitions: int | None = None,
    versions: str = VERSIONS[0],
    hold_s: float = HOLD_S,
) -> DataFrame:
    """Return a table as a frame, whose every action reads the one snapshot of this call.

    Args:
        spark: The session.
        tm: A manager that is connected to a `tso-server`.
        table: Its name.
        columns: Name in the frame -> (`"family:qualifier"`, type), as `tm.scan_arrow` takes them;
            None: a map `cells` of all.
        key: The name of the row key, which is then bytes; or a dict of names and types.
        rest: The name of a map of columns that are not named.
        commit_ts: Add `_commit_ts`.
        at: An earlier moment, as `tm.snapshot` takes it.
        row_start: The first row, as bytes or as values of the key's columns, the first ones.
        row_stop: The row behind the last, in the same way.
        row_prefix: What row keys begin with, in the same way.
        rows: The only rows to read.
        partitions: How many tasks read it, about; None: as many as the session has cores, and as
            there are regions.
        versions: `all`: a row for each commit that wrote it, with `_commit_ts`: the values that the
            commit wrote, and null for columns that it did not; of each column back to its last
            delete, as `TransactionalTable.cells` says, and as far as compactions have kept them.
        hold_s: For how long the versions of the snapshot are kept from compactions.

    Raises:
        ConfigError: tasks could not reach the store, or the table has the other conflict level.
        NoSuchTable, NoSuchFamily, NotTransactional, UsageError, SnapshotTooOld: nothing was begun.
    """
    return Snapshot(tm, spark, at=at, hold_s=hold_s).table(
        table,
        columns,
        key=key,
        rest=rest,
        commit_ts=commit_ts,
        row_start=row_start,
        row_stop=row_stop,
        row_prefix=row_prefix,
        rows=rows,
        partitions=partitions,
        versions=versions,
    )


def write(
    frame: DataFrame,
    tx: Transaction,
    table: str,
    columns: WrittenColumns | None = None,
    *,
    key: KeyColumns = DEFAULT_KEY,
    rest: str | None = None,
    nulls: str = NULLS[0],
    conflict: str = CONFLICTS[0],
) -> None:
    """Write a frame in a transaction, beside all else that it writes: whole or absent.

    Tasks write now, tentatively; `tx.commit` makes it visible.

    Args:
        frame: Its rows come once each, and are the same whenever Spark computes them.
        tx: The transaction.
        table: Where to write.
        columns: Name in the frame -> `"family:qualifier"`, stored by the codec of its type, or
            (`"family:qualifier"`, type).  The type `"counter"` is added to what the column holds.
            Columns that have such a name already need not be here.  A column `_op` that says
            `delete` deletes the row.
        key: The name of the row key, stored by the codec of its type, or a dict of names and types.
        rest: The name of a map of further columns.
        nulls: `keep` leaves a column where the frame has a null, `delete` deletes it.
        conflict: `free` writes without conflict detection, see `Transaction.table`.

    Raises:
        UsageError, ConfigError, NoSuchTable, NoSuchFamily, NotTransactional: nothing was written.
        Exception: Spark's, where a task has failed as often as it may; the transaction can only be
            rolled back then.

    Cost: that of the writes, and of a token.
    """
    session = tx.session
    shape = _shape_to_write(frame, columns, key=key, rest=rest)
    if conflict == FENCE:
        raise UsageError(
            "conflict='fence' would abort this transaction, which began before the fence; use "
            "omidpy.spark.save(), or tm.fence(TABLE) before tm.begin()"
        )
    for name, value, choices in (("nulls", nulls, NULLS), ("conflict", conflict, CONFLICTS)):
        if value not in choices:
            raise UsageError(f"{name}={value!r} is none of {', '.join(choices)}")
    is_free = conflict == "free"
    place = place_of(session)
    check_reach(place, frame.sparkSession)
    jobs.check_target(tx, table, shape)
    name = session.catalog.full_name(table)
    jobs.check_counters(shape, is_conflict_free=is_free)
    jobs.check_base(tx, name, shape, frame.columns)
    most = session.oracle.max_commit_cells
    rows = None if is_free else estimated_rows(frame, most_cells=most)
    jobs.check_size(session, table, shape, rows, is_conflict_free=is_free)
    job = Job(place, name, shape, tx.token(), uuid.uuid4().hex, nulls, is_conflict_free=is_free)
    with tx.whole(f"the write of a frame to table {table!r} was cut short"):
        with warnings.catch_warnings():
            # Spark says so whenever pandas is installed, and nothing here uses that.
            warnings.filterwarnings("ignore", "PySpark does not yet fully support", FutureWarning)
            with described(frame.sparkSession, f"omidpy: write a frame to table {table}"):
                # By their places: Spark would take a dot in a name for a field.
                plain = frame.toDF(*(f"c{at}" for at in range(len(frame.columns))))
                work = partial(_run, job, frame.columns)
                found = plain.mapInArrow(work, "part binary").collect()
        jobs.merge(tx, [bytes(one.part) for one in found], has_ops=OP in frame.columns)


def save(
    frame: DataFrame,
    tm: TransactionManager,
    table: str,
    columns: WrittenColumns | None = None,
    *,
    key: KeyColumns = DEFAULT_KEY,
    rest: str | None = None,
    nulls: str = NULLS[0],
    conflict: str = CONFLICTS[0],
    idempotency_key: bytes | None = None,
    hold_s: float = HOLD_S,
) -> Committed:
    """Write a frame in a transaction of its own.

    Args:
        frame: As in `write`, and so is all that is not named here.
        tm: A manager that is connected to a `tso-server`.
        table: See `write`.
        columns: See `write`.
        key: See `write`.
        rest: See `write`.
        nulls: See `write`.
        conflict: See `write`; and `fence` aborts everybody who began before and writes the table,
            whatever cells, while those who begin later are checked.
        idempotency_key: Names this write, 1 to 1024 bytes: it is done once, however often it is
            asked for, in whatever process.  A repetition computes no row of the frame.
        hold_s: For how long age alone does not abort it.

    Returns:
        `Committed(commit_ts)`, of the first write with the key if it was done before.

    Raises:
        UsageError, ConfigError, NoSuchTable, NoSuchFamily, NotTransactional: nothing was written;
            also where the key was used for another table or other columns.
        TransactionAborted, CommitOutcomeUnknown: as `Transaction.commit`.
        Exception: Spark's, where a task has failed as often as it may; nothing was written.

    Cost: that of `write`; with a key 1 get and 1 cell more.
    """
    shape = _shape_to_write(frame, columns, key=key, rest=rest)
    once = None
    if idempotency_key is not None:
        once = keyed_write(idempotency_key, table, shape)
        open_keys(tm.session)
    try:
        if conflict == FENCE:
            jobs.fence(tm, table, shape, once)
            conflict = CONFLICTS[0]
        with tm.begin(hold_s=hold_s) as tx:
            if once is not None:
                once.check(tx)
                tx.has_key = True
            write(frame, tx, table, columns, key=key, rest=rest, nulls=nulls, conflict=conflict)
            if once is not None:
                once.note(tx)
    except AlreadyCommitted as before:
        return Committed(before.commit_ts)
    except TransactionAborted:
        try:
            jobs.check_once(tm, once)
        except AlreadyCommitted as before:
            return Committed(before.commit_ts)
        raise
    return Committed(tx.commit_ts)


def _run(
    job: Job, names: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run one task; its only row is its part."""
    part = jobs.run(job, (one.rename_columns(list(names)) for one in batches), partition_id())
    yield pa.record_batch([pa.array([part], pa.binary())], names=["part"])


def _shape_to_write(
    frame: DataFrame, columns: WrittenColumns | None, *, key: KeyColumns, rest: str | None
) -> Shape:
    parts = {key: None} if isinstance(key, str) else dict(key)
    named = {
        name: (spec, None) if isinstance(spec, str | bytes) else spec
        for name, spec in (columns or {}).items()
    }
    schema = arrow_schema(frame.schema)
    shape = shape_of_frame(schema, parts, named, rest)
    if shape.has_commit_ts:
        raise UsageError("_commit_ts is read alone; leave it out of the frame")
    check_names(shape, schema.names)
    return shape


def _session(spark: SparkSession | None) -> SparkSession:
    found = spark or SparkSession.getActiveSession()
    if found is None:
        raise UsageError(
            "no session of Spark is active; give one, omidpy.spark.snapshot(tm, spark)"
        )
    return found


def _row(shape: Shape, value: RowValue) -> bytes:
    if isinstance(value, bytes):
        return value
    return shape.key.encode(value if isinstance(value, tuple) else (value,))


def _text(shape: Shape, value: RowValue | None) -> str | None:
    return None if value is None else key_text(_row(shape, value))


def _texts(shape: Shape, rows: Iterable[RowValue]) -> str:
    return ",".join(key_text(_row(shape, one)) for one in rows)
