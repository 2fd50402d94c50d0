"""Files that are published, as rows of Spark: one task for each, by the store's own client.

What is read is a list of files that a driver has made (`Published`, `PublishedState`); tasks read
files, and ask for no list.  Files are Parquet; others that were published are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from omidpy.committers.contents.manifests import PublishedFile
from omidpy.committers.contents.state import PARQUET, Files
from omidpy.committers.places import NULL_PARTITION
from omidpy.committers.spark import fitting
from omidpy.committers.spark.schemas import arrow_schema
from omidpy.errors import UsageError

_NUMBER: Final = re.compile(r"-?[0-9]{1,9}")


class _File(InputPartition):
    """What one task reads."""

    def __init__(self, file: PublishedFile) -> None:
        super().__init__(None)
        self.file = file


class PublishedReader(DataSourceReader):
    """Reads files, one with each task."""

    def __init__(self, seen: Files, schema: StructType) -> None:
        self._seen = seen
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the files, each a partition."""
        return [_File(one) for one in self._seen.files if one.key.endswith(PARQUET)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batches of a file; columns that it lacks are null.

        Raises:
            UsageError: two of its columns could be the one that is asked for, or its values are
                none of the type that is asked for.
        """
        assert isinstance(partition, _File), "made by `partitions`"
        wanted = arrow_schema(self._schema)
        table = fitting.read(fitting.opened(self._seen.read(partition.file)))
        values = _partition(partition.file)
        columns = []
        for field in wanted:
            found = _named(field.name, table.column_names, partition.file)
            if found is not None:
                columns.append(_as_wanted(table.column(found), field, partition.file))
                continue
            folder = _named(field.name, values, partition.file)
            value = None if folder is None else values[folder]
            texts = pa.array([value] * table.num_rows, pa.string())
            columns.append(_as_wanted(texts, field, partition.file))
        yield from pa.table(columns, schema=wanted).to_batches()


def columns(seen: Files) -> pa.Schema:
    """Return the columns of the first file, and those that folders name.

    By the store's own client: pyarrow's would have threads, in a process that Spark forks.
    """
    parquet = [one for one in seen.files if one.key.endswith(PARQUET)]
    if not parquet:
        raise UsageError(
            f"no Parquet file of {seen.destination} is visible {seen.when}, so that "
            "nobody knows its columns"
        )
    schema = fitting.schema_of(fitting.opened(seen.read(parquet[0])))
    found = [_partition(one) for one in parquet]
    for name in dict.fromkeys(name for values in found for name in values):
        texts = [text for values in found if (text := values.get(name)) is not None]
        is_number = bool(texts) and all(_NUMBER.fullmatch(text) for text in texts)
        schema = schema.append(pa.field(name, pa.int32() if is_number else pa.string()))
    return schema


def _as_wanted(column: Any, field: pa.Field, file: PublishedFile) -> Any:
    """Return a column in the type that is asked for: jobs of one destination may differ in that.

    Raises:
        UsageError: a value would become another one.
    """
    try:
        return fitting.fitted(column, field.type, lambda wanted, names: _named(wanted, names, file))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise UsageError(
            f"the column {field.name!r} of {file.url} is of type {column.type}, and {field.type} "
            f"is asked for: {error}; ask for {column.type} by .schema(...)"
        ) from error


def _named(wanted: str, names: Iterable[str], file: PublishedFile) -> str | None:
    """Return which of some names is a column: as it is written, or else in other case, as Spark.

    Jobs of one destination may differ in that, and what is not found is null.

    Raises:
        UsageError: two are.
    """
    names = list(names)
    if wanted in names:
        return wanted
    alike = [one for one in names if one.lower() == wanted.lower()]
    if len(alike) > 1:
        raise UsageError(
            f"the column {wanted!r} could be {' or '.join(map(repr, alike))} of {file.url}; ask "
            "for one of them by its own name"
        )
    return alike[0] if alike else None


def _partition(file: PublishedFile) -> dict[str, str | None]:
    """Return what the folders of a file say, `month=1`, as Hive and Spark write it."""
    pairs = (part.partition("=") for part in file.path.split("/")[:-1])
    return {
        unquote(name): None if text == NULL_PARTITION else unquote(text)
        for name, equals, text in pairs
        if equals
    }
