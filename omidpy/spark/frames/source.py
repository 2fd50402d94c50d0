"""`format("omidpy")`: tables with transactions as DataFrames.

    spark.read.format("omidpy").option("store", URL).option("tso", ADDRESS).option("table", "t")
        .option("key", "id").option("columns", "balance=cf:balance")
        .schema("id string, balance bigint").load()

    df.write.format("omidpy").option(...).mode("append").save()

A frame is one snapshot, drawn when Spark first looks at it; every action on it reads that one.
Spark plans in processes that come and go, so that what it draws is kept where all of them find it:
in the source itself, which it makes once for each frame.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from omidpy.base.words.moments import moment
from omidpy.committers.spark.schemas import arrow_schema
from omidpy.spark.frames.options import FORMAT, read_words, words
from omidpy.spark.frames.reading import Reading, TableReader, check_columns, plan
from omidpy.spark.frames.types import own_schema, shape_of
from omidpy.spark.frames.writes.streaming import BatchWriter, batch_writer_of
from omidpy.spark.frames.writes.writing import TableWriter, writer_of


class OmidSource(DataSource):
    """The format of tables, as Spark finds it by its name."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        said = words(options)
        at = said.given.get("at")
        self._snapshot_ts = said.given.get("snapshot")
        if self._snapshot_ts is None:
            with said.place.connect() as tm:
                tx = tm.snapshot(None if at is None else moment("at", at))
                self._snapshot_ts = str(tx.start_ts)

    @classmethod
    def name(cls) -> str:
        """Return what `format` is called with."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns that options name with their types."""
        return from_arrow_schema(own_schema(words(self.options)))

    def reader(self, schema: StructType) -> TableReader:
        """Hold the snapshot; return what reads it, which travels to tasks."""
        said = words(self.options)
        planned = read_words(said)
        arrow = arrow_schema(schema)
        shape = shape_of(said, arrow)
        check_columns(shape, arrow, has_all_versions=planned.has_all_versions)
        with said.place.connect() as tm:
            reading = Reading(
                said.place.seen(tm.store),
                said.table,
                int(self._snapshot_ts or 0),
                shape,
                arrow,
                planned.batch_rows,
                planned.has_all_versions,
            )
            return plan(tm, reading, planned, is_held="snapshot" in said.given)

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter:  # noqa: FBT001 - Spark calls it so
        """Begin the write of a frame; return what its tasks write by."""
        return writer_of(self.options, arrow_schema(schema), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001, N802 - see above
        """Return what writes a batch of a stream."""
        return batch_writer_of(self.options, arrow_schema(schema), overwrite=overwrite)
