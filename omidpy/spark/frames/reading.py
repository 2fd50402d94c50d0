"""Reads a table into Spark: planned once, at one snapshot, and read by tasks of their own.

The process that plans draws the snapshot, holds what it needs from being collected, and says which
task reads which rows.  Tasks open the store by its address and read at that snapshot, whenever they
run; one that finds itself below the collection horizon all the same fails, and never reads less
than there was.  So does one whose table was made anew, or restored, since the plan: others may have
read the earlier one.

Lacks `pushFilters`.  Spark 4.3 keeps what a reader planned for the filters of one scan for every
other scan of the same frame, those without filters among them, and rows would be missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from omidpy.base.words.arguments import parse_columns
from omidpy.errors import UsageError
from omidpy.facts.tables.sameness import check_same, which_table
from omidpy.manager import TransactionManager
from omidpy.model import KeyRange
from omidpy.reading.visibility import VisibleCell
from omidpy.spark.frames.options import ReadWords
from omidpy.spark.frames.partitions import Portion, portions
from omidpy.spark.frames.places import Place
from omidpy.spark.frames.types import fitted
from omidpy.tx.frames.histories import open_histories
from omidpy.tx.frames.reading import page_batches, record_batches
from omidpy.tx.frames.shape import COMMIT_TS, Shape
from omidpy.tx.table import TransactionalTable, value_pages

PAGE_ROWS: Final = 1000


@dataclass(frozen=True, slots=True)
class Reading:
    """What tasks must know; it travels to them."""

    place: Place
    table: str
    snapshot_ts: int
    shape: Shape
    schema: pa.Schema
    """What Spark has been told, as Arrow."""
    batch_rows: int
    has_all_versions: bool = False
    """Whether a row of the table is one for each commit that wrote it."""
    which: str = ""
    """Which table of its name was planned for (`which_table`); empty: that was not looked at."""

    def read(self, portion: Portion) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a portion; every batch has the schema exactly.

        Raises:
            StorageError, SnapshotTooOld: the table is another one: some tasks may have read the
                earlier one.
        """
        with self.place.connect() as tm:
            for batch in self._batches(tm, portion):
                yield fitted(batch, self.schema)
            if self.which:
                check_same(tm.store, tm.session.catalog.full_name(self.table), self.which)

    def _batches(self, tm: TransactionManager, portion: Portion) -> Iterator[pa.RecordBatch]:
        shape, batch_rows = self.shape, self.batch_rows
        if self.has_all_versions:
            return record_batches(shape, self._versions(tm, portion), batch_rows=batch_rows)
        table = tm.snapshot(self.snapshot_ts).table(self.table)
        if portion.rows is not None or shape.has_commit_ts:
            return record_batches(shape, self._rows(table, portion), batch_rows=batch_rows)
        pages = value_pages(
            table, portion.key_range, shape.columns(), page_rows=min(batch_rows, PAGE_ROWS)
        )
        return page_batches(shape, pages, batch_rows=batch_rows)

    def _rows(
        self, table: TransactionalTable, portion: Portion
    ) -> Iterator[tuple[bytes, dict[bytes, Any]]]:
        columns, has_time = self.shape.columns(), self.shape.has_commit_ts
        if portion.rows is None:
            start, end = portion.key_range
            yield from table.scan(
                start or None,
                end or None,
                columns=columns,
                include_timestamp=has_time,
                batch_size=min(self.batch_rows, PAGE_ROWS),
            )
            return
        for at in range(0, len(portion.rows), PAGE_ROWS):
            some = portion.rows[at : at + PAGE_ROWS]
            yield from table.rows(some, columns, include_timestamp=has_time)

    def _versions(
        self, tm: TransactionManager, portion: Portion
    ) -> Iterator[tuple[bytes, dict[bytes, Any]]]:
        """Yield what each commit wrote of each row, the newest first, where it is not deleted."""
        reader = open_histories(tm.session, self.snapshot_ts)
        catalog = tm.session.catalog
        layout = catalog.layout(catalog.full_name(self.table))
        columns = parse_columns(self.shape.columns())
        specs = [(one, None) for one in sorted(layout.families)] if columns is None else columns
        if portion.rows is None:
            for key, held in reader.scan(layout.name, portion.key_range, specs):
                yield from _by_commit(key, held)
            return
        for at in range(0, len(portion.rows), PAGE_ROWS):
            some = portion.rows[at : at + PAGE_ROWS]
            for key, held in reader.rows(layout.name, some, specs):
                yield from _by_commit(key, held)


def _by_commit(
    row: bytes, held: Sequence[VisibleCell]
) -> Iterator[tuple[bytes, dict[bytes, tuple[bytes, int]]]]:
    by_commit: dict[int, dict[bytes, tuple[bytes, int]]] = {}
    for cell, commit_ts in held:
        column = cell.family + b":" + cell.qualifier
        by_commit.setdefault(commit_ts, {})[column] = cell.value, commit_ts
    for newest in sorted(by_commit, reverse=True):
        yield row, by_commit[newest]


class _Rows(InputPartition):
    """What one task reads."""

    def __init__(self, portion: Portion) -> None:
        super().__init__(None)
        self.portion = portion


class TableReader(DataSourceReader):
    """Plans a read, and is what tasks read by."""

    def __init__(self, reading: Reading, planned: ReadWords) -> None:
        self.reading = reading
        self._planned = planned

    def partitions(self) -> list[InputPartition]:
        """Return what each task reads; together every row that was asked for, once."""
        reading = self.reading
        with reading.place.connect() as tm:
            layout = tm.session.catalog.layout(tm.session.catalog.full_name(reading.table))
            found = portions(
                tm.store,
                layout.name,
                layout.families,
                self._planned.key_range,
                self._planned.rows,
                wanted=self._planned.partitions,
            )
        # Spark would take no partition for one of everything.
        return [_Rows(one) for one in found or [Portion(KeyRange(), ())]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, as Arrow has them."""
        assert isinstance(partition, _Rows), "made by `partitions`"
        return self.reading.read(partition.portion)


def plan(
    tm: TransactionManager, reading: Reading, planned: ReadWords, *, is_held: bool
) -> TableReader:
    """Hold the snapshot, unless it is held; return what reads it.

    Raises:
        NoSuchTable, NoSuchFamily, NotTransactional, ConfigError: there is no such table or family,
            or it has the other conflict level.
        SnapshotTooOld: versions of that moment may have been collected.
    """
    catalog = tm.session.catalog
    layout = catalog.layout(catalog.full_name(reading.table))
    for family in reading.shape.families():
        layout.check_family(family)
    if not is_held:
        tm.hold(reading.snapshot_ts, for_s=planned.hold_s)
    which = which_table(tm.store, layout.name)
    return TableReader(replace(reading, which=which), planned)


def check_columns(shape: Shape, schema: pa.Schema, *, has_all_versions: bool = False) -> None:
    """Refuse a schema with columns that are only written, and versions that nothing tells apart.

    Raises:
        UsageError: it names them.
    """
    if has_all_versions and not shape.has_commit_ts:
        raise UsageError(
            f"versions='all' gives a row for each commit, told apart by {COMMIT_TS}: add "
            f"'{COMMIT_TS} bigint' to the schema"
        )
    if unknown := [one.name for one in schema if one.name not in shape.names]:
        raise UsageError(f"{', '.join(unknown)} cannot be read: it is a column of writes alone")
