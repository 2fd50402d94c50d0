"""Tables of pyarrow into Parquet files of a task: partitions, and a bounded number of open files.

Rows wait in memory until a row group is worth its cost, so that batches of a few rows, as Spark
sends them, do not become row groups of a few rows.

    M1  at most MOST_OPEN files are open: another partition ends the one that waited longest, which
        goes on in a second file if it comes again
    M2  at most WAITING_BYTES wait in all of them together
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from omidpy.base.installation import install_hint
from omidpy.committers.places import NULL_PARTITION, partition_folder
from omidpy.committers.protocol import Attempt, TaskFile
from omidpy.errors import ConfigError, UsageError

MOST_OPEN: Final = 64
WAITING_BYTES: Final = 256 * 2**20
GROUP_BYTES: Final = 64 * 2**20
GROUP_ROWS: Final = 2**20
MOST_CODES: Final = 2**63
"""So many combinations of values have a number each."""
SAMPLE_ROWS: Final = 20_000
"""How many of a file's first rows say how its columns are encoded."""


class PartitionedWriter:
    """Writes the tables of one attempt."""

    def __init__(
        self,
        attempt: Attempt,
        *,
        partition_by: Iterable[str] = (),
        compression: str = "snappy",
        most_open: int = MOST_OPEN,
        group_rows: int = GROUP_ROWS,
        most_rows: int = 0,
        timestamps: str = "",
        group_bytes: int = 0,
        field_ids: Mapping[tuple[str, ...], int] | None = None,
    ) -> None:
        """Write to an attempt's files.

        Args:
            attempt: The attempt.
            partition_by: Columns whose values become folders, as Hive and Spark name them.
            compression: As pyarrow names it.
            most_open: How many files may be open.
            group_rows: How many rows a row group has.
            most_rows: How many rows a file has at most; 0 for any number.
            timestamps: How Parquet stores them: INT96, TIMESTAMP_MICROS or TIMESTAMP_MILLIS; empty
                as the columns have them.
            group_bytes: How many bytes of rows, as they wait, make a row group; 0 for GROUP_BYTES.
            field_ids: Ids of Parquet's by the path of a field, on which what is in a list is
                `element`, and in a map `key` and `value`.
        """
        self._attempt = attempt
        self._names = tuple(partition_by)
        self._compression = compression
        self._most_open = most_open
        self._group_rows = group_rows
        self._most_rows = most_rows
        self._timestamps = timestamps
        self._group_bytes = group_bytes or GROUP_BYTES
        self._field_ids = field_ids or {}
        self._files: OrderedDict[str, _ParquetFile] = OrderedDict()
        self._count = 0
        self.rows = 0
        """How many rows were written."""

    def write(self, table: Any) -> None:
        """Add a table or a record batch."""
        pa = _pyarrow()
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            raise UsageError(
                f"a {type(table).__name__} is no table; give a Table or RecordBatch of pyarrow, or "
                "the path of a file"
            )
        self.rows += table.num_rows
        if self._attempt.keeps_columns:
            table = recast(table, _in_utc)
            self._attempt.columns = self._attempt.columns or table.schema.serialize().to_pybytes()
        for folder, part in self._parts(table):
            self._add(folder, part)
            waiting = sum(one.waiting_bytes for one in self._files.values())
            if waiting > WAITING_BYTES:
                max(self._files.values(), key=lambda one: one.waiting_bytes).flush()

    def close(self) -> None:
        """End every file that is open, each with what it says of itself."""
        while self._files:
            self._files.popitem(last=False)[1].close()

    def _add(self, folder: str, part: Any) -> None:
        """Add rows of one folder; a file that is full ends, and another goes on."""
        while self._most_rows and part.num_rows:
            file = self._file(folder)
            count = min(self._most_rows - file.rows, part.num_rows)
            file.add(part.slice(0, count))
            part = part.slice(count)
            if file.rows == self._most_rows:
                self._files.pop(folder).close()
            if not part.num_rows:
                return
        self._file(folder).add(part)

    def _parts(self, table: Any) -> Iterator[tuple[str, Any]]:
        if not self._names:
            yield "", table
            return
        missing = [name for name in self._names if name not in table.column_names]
        if missing:
            raise UsageError(
                f"the table has no column {missing[0]!r} to partition by; it has "
                f"{', '.join(table.column_names)}"
            )
        if set(table.column_names) == set(self._names):
            raise UsageError("every column is one to partition by; leave one for the files")
        rest = table.drop_columns(list(self._names))
        for values, rows in _groups(table, self._names):
            yield partition_folder(self._names, values) + "/", rest.take(rows)

    def _file(self, folder: str) -> _ParquetFile:
        if folder in self._files:
            self._files.move_to_end(folder)
            return self._files[folder]
        if len(self._files) >= self._most_open:
            self._files.popitem(last=False)[1].close()
        ending = "" if self._compression == "none" else f".{self._compression}"
        name = f"part-{self._attempt.id.task:05}-c{self._count:03}{ending}.parquet"
        self._count += 1
        made = _ParquetFile(
            self._attempt.open(folder + name),
            self._compression,
            self._group_rows,
            self._timestamps,
            self._group_bytes,
            self._field_ids,
        )
        self._files[folder] = made
        return made


def _in_utc(kind: Any) -> Any:
    """Return a type whose moments are those of UTC: the log of a table knows no other zone."""
    pa = _pyarrow()
    is_other = pa.types.is_timestamp(kind) and kind.tz is not None
    return pa.timestamp(kind.unit, "UTC") if is_other else kind


def with_leaves(kind: Any, changed: Callable[[Any], Any]) -> Any:
    """Return a type some of whose leaves are others: of what is nested, in the order it is stored.

    Args:
        kind: It.
        changed: Returns what a type that has none within it is to be.
    """
    pa = _pyarrow()

    def of(field: Any) -> Any:
        return field.with_type(with_leaves(field.type, changed))

    if pa.types.is_struct(kind):
        return pa.struct([of(one) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(of(kind.value_field))
    if pa.types.is_map(kind):
        key = of(kind.key_field)
        return pa.map_(key, of(kind.item_field), kind.keys_sorted)
    return changed(kind)


def recast(table: Any, changed: Callable[[Any], Any]) -> Any:
    """Return a table, or a batch, some of whose types are others; see `with_leaves`."""
    pa = _pyarrow()
    fields = [one.with_type(with_leaves(one.type, changed)) for one in table.schema]
    schema = pa.schema(fields, table.schema.metadata)
    return table if schema.equals(table.schema) else table.cast(schema)


class _ParquetFile:
    """One file, and the rows that wait for their row group."""

    def __init__(
        self,
        file: TaskFile,
        compression: str,
        group_rows: int,
        timestamps: str,
        group_bytes: int,
        field_ids: Mapping[tuple[str, ...], int],
    ) -> None:
        self._file = file
        self._compression = compression
        self._group_rows = group_rows
        self._timestamps = timestamps
        self._group_bytes = group_bytes
        self._field_ids = field_ids
        self._writer: Any = None
        self._waiting: list[Any] = []
        self.rows = 0
        self._waiting_rows = 0
        self.waiting_bytes = 0

    def add(self, table: Any) -> None:
        self._waiting.append(table)
        self.rows += table.num_rows
        self._waiting_rows += table.num_rows
        self.waiting_bytes += table.nbytes
        if self._waiting_rows >= self._group_rows or self.waiting_bytes >= self._group_bytes:
            self.flush()

    def flush(self) -> None:
        pa = _pyarrow()
        try:
            table = pa.concat_tables(self._waiting)
            if self._writer is None:
                schema = with_ids(table.schema, self._field_ids)
                self._writer = _new_writer(
                    self._file, table, schema, self._compression, self._timestamps
                )
            self._writer.write_table(table, row_group_size=self._group_rows)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, TypeError) as error:
            raise UsageError(f"the table cannot be written as Parquet: {error}") from error
        self._waiting = []
        self._waiting_rows = 0
        self.waiting_bytes = 0

    def close(self) -> None:
        if self._waiting or self._writer is None:
            self.flush()
        self._writer.close()
        self._file.rows = self.rows
        self._file.close()


_TIMESTAMPS: Final[dict[str, dict[str, Any]]] = {
    "": {},
    "INT96": {"use_deprecated_int96_timestamps": True},
    "TIMESTAMP_MICROS": {"coerce_timestamps": "us", "allow_truncated_timestamps": True},
    "TIMESTAMP_MILLIS": {"coerce_timestamps": "ms", "allow_truncated_timestamps": True},
}
"""What pyarrow calls Spark's names."""


def _new_writer(file: TaskFile, table: Any, schema: Any, compression: str, timestamps: str) -> Any:
    import pyarrow.parquet as pq  # noqa: PLC0415 - an extra

    dictionary, encodings = encodings_of(table)
    if timestamps == "INT96":
        # It is no integer to Parquet, and has no deltas.
        pa = _pyarrow()
        kinds = {field.name: field.type for field in table.schema}
        encodings = {
            path: how for path, how in encodings.items() if not pa.types.is_timestamp(kinds[path])
        }
    return pq.ParquetWriter(
        file,
        schema,
        compression=compression,
        use_dictionary=dictionary,
        column_encoding=encodings or None,
        write_statistics=True,
        **_TIMESTAMPS[timestamps],
    )


def with_ids(schema: Any, ids: Mapping[tuple[str, ...], int]) -> Any:
    """Return a schema whose fields have ids of Parquet's, by their paths."""
    if not ids:
        return schema
    fields = [_with_id(field, (field.name,), ids) for field in schema]
    return _pyarrow().schema(fields, schema.metadata)


def _with_id(field: Any, path: tuple[str, ...], ids: Mapping[tuple[str, ...], int]) -> Any:
    pa = _pyarrow()
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_with_id(one, (*path, one.name), ids) for one in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_with_id(kind.value_field, (*path, "element"), ids))
    elif pa.types.is_map(kind):
        key = _with_id(kind.key_field, (*path, "key"), ids)
        kind = pa.map_(key, _with_id(kind.item_field, (*path, "value"), ids), kind.keys_sorted)
    made = field.with_type(kind)
    if path not in ids:
        return made
    said = {**(field.metadata or {}), b"PARQUET:field_id": str(ids[path]).encode()}
    return made.with_metadata(said)


def encodings_of(table: Any) -> tuple[list[str], dict[str, str]]:
    """Say which columns have a dictionary, and how others are encoded, by a table's first rows.

    A dictionary of values that hardly repeat is stored beside them for nothing.
    """
    pa = _pyarrow()
    import pyarrow.compute as pc  # noqa: PLC0415 - an extra

    sample = table.slice(0, SAMPLE_ROWS)
    dictionary: list[str] = []
    encodings: dict[str, str] = {}
    leaves = _leaves(table.schema)
    counts = Counter(path for _, path in leaves)
    for name, path in leaves:
        kind = table.schema.field(name).type
        # A column `a.b` and the field `b` of a column `a` have one path, and one encoding.
        if name != path or counts[path] > 1:
            dictionary.append(path)  # of what is nested, the values are not counted
            continue
        distinct = pc.count_distinct(sample.column(name)).as_py() if sample.num_rows else 0
        if distinct * 2 <= sample.num_rows or not sample.num_rows:
            dictionary.append(path)
        elif pa.types.is_integer(kind) or pa.types.is_temporal(kind):
            encodings[path] = "DELTA_BINARY_PACKED"
    return dictionary, encodings


def _leaves(schema: Any) -> list[tuple[str, str]]:
    """Return (column, path) of every leaf that Parquet stores."""
    import pyarrow as pa  # noqa: PLC0415 - an extra
    import pyarrow.parquet as pq  # noqa: PLC0415 - see above

    sink = pa.BufferOutputStream()
    pq.write_metadata(schema, sink)
    stored = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    names = schema.names
    paths = [stored.column(at).path for at in range(len(stored))]
    # A column's name may have a dot: the longest name that fits is the column.
    return [
        (max((n for n in names if path == n or path.startswith(f"{n}.")), key=len), path)
        for path in paths
    ]


def _groups(table: Any, names: tuple[str, ...]) -> Iterator[tuple[tuple[str | None, ...], Any]]:
    """Yield the values of each partition with the numbers of its rows, in their order."""
    pa = _pyarrow()
    import pyarrow.compute as pc  # noqa: PLC0415 - an extra

    if not table.num_rows:
        return
    codes: Any = pa.array([0] * table.num_rows, pa.int64())
    code_count = 1
    columns = []
    for name in names:
        column = table.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
        if pa.types.is_nested(column.type):
            raise UsageError(f"the column {name!r} of type {column.type} cannot name folders")
        if pa.types.is_time64(column.type):
            column = _in_microseconds(pa, name, column)
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        indices = pc.add(pc.fill_null(encoded.indices.cast(pa.int64()), -1), 1)
        value_count = len(encoded.dictionary) + 1
        if code_count * value_count > MOST_CODES:
            # Beyond 64 bits two partitions would have one code: count those that there are.
            found = codes.dictionary_encode()
            codes, code_count = found.indices.cast(pa.int64()), len(found.dictionary)
        codes = pc.add(pc.multiply(codes, value_count), indices)
        code_count *= value_count
        columns.append(column)
    order = pc.sort_indices(codes)
    ends = pc.run_end_encode(codes.take(order)).run_ends.to_pylist()
    start = 0
    for end in ends:
        rows = order.slice(start, end - start)
        first = rows[0].as_py()
        yield tuple(_text(column[first].as_py(), column.type) for column in columns), rows
        start = end


def _in_microseconds(pa: Any, name: str, column: Any) -> Any:
    """Return times of day as Python has them, if that loses nothing."""
    try:
        return column.cast(pa.time64("us"))
    except pa.ArrowInvalid as error:
        raise UsageError(
            f"the column {name!r} has times of day finer than a microsecond, which cannot name "
            f"folders: {error}"
        ) from error


def _text(value: Any, kind: Any) -> str | None:
    """Return a value as Spark writes it into the name of a folder; None is no value.

    In another form it would be another partition, beside that of Spark's own, or none to it.

    Raises:
        UsageError: another value has that name, too, and this one would come back as that one.
    """
    if value is None:
        return None
    if value in (NULL_PARTITION, NULL_PARTITION.encode()):
        raise UsageError(
            f"the value {value!r} is how folders of no value are named, and would be none for "
            "readers; replace it, or partition by another column"
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        if value.utcoffset() != value.replace(fold=1 - value.fold).utcoffset():
            raise UsageError(
                f"the time {value.isoformat()} comes twice on that day in its time zone, and names "
                "of folders do not say which one it is; cast the column to UTC, or partition by "
                "its date"
            )
        return _without_zeros(value.replace(tzinfo=None).isoformat(sep=" "))
    if isinstance(value, dt.time):
        return _without_zeros(value.isoformat())
    if isinstance(value, float):
        return _float_text(value, kind)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            # Spark writes another letter in its place, the same for all: values would be lost.
            raise UsageError(
                f"the value {value[:40]!r} is no UTF-8, and cannot name a folder: {error}; "
                "partition by its hexadecimal text"
            ) from error
    return str(value)


def _without_zeros(time: str) -> str:
    """Return a time without the zeros that its seconds end in."""
    return time.rstrip("0") if "." in time else time


def _float_text(value: float, kind: Any) -> str:
    """Return a number as Java writes it: with an exponent below 0.001, and from ten millions up."""
    pa = _pyarrow()
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    # Of a narrow one Python's own text has the digits of the wide one that it has become.
    shortest = (
        repr(value) if pa.types.is_float64(kind) else pa.scalar(value, kind).cast(pa.string())
    )
    found = Decimal(str(shortest)).normalize()
    if not value or 1e-3 <= abs(value) < 1e7:
        plain = f"{found:f}"
        return plain if "." in plain else f"{plain}.0"
    digits = "".join(map(str, found.as_tuple().digits))
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{found.adjusted()}"


def _pyarrow() -> Any:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            f"writing tables needs pyarrow, which is not installed; run `{install_hint('s3')}`"
        ) from error
    return pa
