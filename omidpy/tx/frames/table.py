"""The methods of a table that read and write frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omidpy.base.words.arguments import check_count
from omidpy.tx.frames.asked import DEFAULT_BATCH_ROWS, DEFAULT_KEY, Columns, KeyColumns

if TYPE_CHECKING:
    import pyarrow as pa

    from omidpy.tx.frames.shape import Shape
    from omidpy.tx.frames.writing import Scanned, Written

MOST_PAGE_ROWS: Final = 1000
BATCH_WRITES: Final = 10_000
"""Writes of a frame that are collected before the transaction has them."""
REST: Final = "cells"
"""The map of all columns, where no column is named."""


class Frames:
    """The methods of a table that read and write frames."""

    def read_arrow(
        self: Scanned,
        row_start: bytes | None = None,
        row_stop: bytes | None = None,
        row_prefix: bytes | None = None,
        *,
        columns: Columns | None = None,
        key: KeyColumns = DEFAULT_KEY,
        rest: str | None = None,
        commit_ts: bool = False,
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> pa.RecordBatchReader:
        """Read the rows of a range as a reader of Arrow record batches.

        Rows that have none of the columns are left out.

        Args:
            row_start: First row, inclusive.
            row_stop: Last row, exclusive.
            row_prefix: Rows that start with it; not together with the two above.
            columns: Name in the frame -> (`"family:qualifier"`, type), a type being the name of
                one, such as `"bigint"`, or a codec of `omidpy.codec`.  None: a map `cells` of all.
            key: The name of the row key, which is then bytes; or a dict of names and types, whose
                bytes follow each other in the key.
            rest: The name of a map, `family:qualifier` -> bytes, of columns that are not named;
                bytes of a name that are no UTF-8 are escaped there, and read back by `write_arrow`.
            commit_ts: Add `_commit_ts`: when the newest cell of the row that was read was
                committed.
            batch_rows: Rows of a batch; the last one may be shorter.

        Raises:
            UsageError: an argument is wrong.
            ConfigError: pyarrow is not installed.
            CorruptCell: while it is read: a value that its codec cannot read, named by row and
                column.
            StorageError: at the end: the table was dropped, truncated or restored meanwhile; and
                whenever more is asked for of a read that has failed.

        Cost: 1 RPC for up to 1000 rows, see `Snapshot.scan`.
        """
        from omidpy.reading.whole import whole  # noqa: PLC0415 - few read frames
        from omidpy.tx.frames.reading import (  # noqa: PLC0415 - the same
            pyarrow,
            record_batches,
            schema_of,
        )

        check_count("batch_rows", batch_rows, or_none=False)
        shape = shape_to_read(columns, key=key, rest=rest, commit_ts=commit_ts)
        arrow = pyarrow()
        rows = self.scan(
            row_start,
            row_stop,
            row_prefix,
            columns=shape.columns(),
            include_timestamp=shape.has_commit_ts,
            batch_size=min(batch_rows, MOST_PAGE_ROWS),
        )
        batches = record_batches(shape, rows, batch_rows=batch_rows)
        return arrow.RecordBatchReader.from_batches(
            schema_of(arrow, shape), whole(batches, f"this read of table {self.name!r}")
        )

    def write_arrow(
        self: Written,
        data: object,
        *,
        columns: Columns | None = None,
        key: KeyColumns = DEFAULT_KEY,
        rest: str | None = None,
        nulls: str = "keep",
    ) -> int:
        """Write Arrow data: rows are put, or deleted where a column `_op` says `delete`.

        Args:
            data: A reader, a table or a batch of pyarrow, an iterable of batches, or a frame with
                `__arrow_c_stream__`, as pandas, Polars and DuckDB have them.  A reader and an
                iterator are read once: where the transaction is tried again, make it anew.
            columns: As in `read_arrow`; the type `"counter"` is a bigint that is added to what the
                column holds.
            key: As in `read_arrow`.
            rest: The name of a map of further columns to write.
            nulls: `keep`: a null leaves a column as it is; `delete`: it deletes it.

        Returns:
            How many rows that were.

        Raises:
            UsageError: a batch lacks a column, has one that is not named, or one of another type; a
                row comes twice; a value cannot be stored; a reader was read before.  If the
                transaction has some of the rows already, it can no longer commit; undoing a
                savepoint around the call mends that.
            TypeError: `data` gives no Arrow data.
            ConfigError: pyarrow is not installed.
            StorageError: what is there could not be read, or past 2 MiB a flush failed.  If the
                transaction has some of the rows, or of counters all, it can no longer commit, as
                above: who writes them again does not add twice.
        """
        from omidpy.tx.frames.writing import (  # noqa: PLC0415 - few write frames
            FrameWriter,
            batches_of,
        )

        shape = shape_to_write(columns, key=key, rest=rest)
        with self.batch(batch_size=BATCH_WRITES) as sink:
            sink.is_repeatable = not any(field.is_counter for field in shape.fields)
            writer = FrameWriter(self, shape, nulls=nulls, sink=sink)
            for batch in batches_of(data):
                writer.write(batch)
        return writer.row_count


def shape_to_read(
    columns: Columns | None, *, key: KeyColumns, rest: str | None, commit_ts: bool
) -> Shape:
    """Return what is read: all columns in a map, where none is named."""
    from omidpy.tx.frames.shape import Shape  # noqa: PLC0415 - few have frames

    if columns is None and rest is None:
        rest = REST
    return Shape.of(columns, key=key, rest=rest, commit_ts=commit_ts)


def shape_to_write(columns: Columns | None, *, key: KeyColumns, rest: str | None) -> Shape:
    """Return what is written: the frame of `shape_to_read`, without `_commit_ts`."""
    return shape_to_read(columns, key=key, rest=rest, commit_ts=False)
