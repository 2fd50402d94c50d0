"""What transactions have published, as frames of Spark.

    from omidpy.spark.published import published

    published(spark, tx, "s3://lake/flights")           # as a transaction sees it

    spark.read.format("omidpy-published")               # as a new snapshot does, or an older one
        .option("store", URL).option("tso", ADDR).option("at", "1h").load("s3://lake/flights")

The list of files is made once, at one snapshot; tasks read files, and ask no store.  Files are
Parquet; others that were published are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from omidpy.base.remembered import remembered
from omidpy.base.words.moments import moment
from omidpy.committers.choice import STORE_OPTIONS, object_store
from omidpy.committers.contents.manifests import PublishedFile
from omidpy.committers.contents.state import Published
from omidpy.committers.spark.reading import PublishedReader, columns
from omidpy.connect import connect
from omidpy.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omidpy.tx.transaction import Transaction

NAME: Final = "omidpy-published"
FOUND: Final = "found"
"""An option: what was found already, as JSON."""

_PLAIN: Final = {name.replace("_", ""): name for name in STORE_OPTIONS}
"""Spark's options know no case."""
_OWN: Final = ("path", "store", "tso", "at", FOUND)


def published(spark: SparkSession, tx: Transaction, destination: str, **options: Any) -> DataFrame:
    """Return what a transaction sees of a destination; what it has published itself is there, too.

    Args:
        spark: The session.
        tx: The transaction, or a snapshot.
        destination: `s3://BUCKET/FOLDER`.
        options: As `tx.published` takes them.

    Raises:
        UsageError: no Parquet file is visible, so that nobody knows the columns.
    """
    spark.dataSource.register(PublishedSource)
    seen = tx.published(destination, **options)
    assert isinstance(seen, Published), "there is one kind"
    columns(seen)  # what is wrong is said here, and not in a process of Spark
    found = {"snapshot_ts": seen.snapshot_ts, "files": [asdict(one) for one in seen.files]}
    reader = spark.read.format(NAME).option(FOUND, json.dumps(found))
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(seen.destination)


class PublishedSource(DataSource):
    """The format `omidpy-published`."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` is called with."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns, of files and of partitions."""
        return from_arrow_schema(columns(self._seen))

    def reader(self, schema: StructType) -> PublishedReader:
        """Return what reads; it travels to tasks."""
        return PublishedReader(self._seen, schema)

    @remembered
    def _seen(self) -> Published:
        """What is to be read; it is looked for once, and travels with this."""
        path, store, tso, at, found, options = _settings(self.options)
        if found is not None:
            known = json.loads(found)
            files = tuple(PublishedFile(**one) for one in known["files"])
            return Published(path, known["snapshot_ts"], files, object_store(path, options))
        if store is None:
            raise UsageError(
                f"format({NAME!r}) needs option('store', ...), the address of the store whose "
                "transactions have published, and option('tso', ...), that of its tso-server"
            )
        with connect(store, tso=tso) as tm:
            seen = tm.snapshot(None if at is None else moment("at", at)).published(path, **options)
            assert isinstance(seen, Published), "there is one kind"
            return seen


def _settings(
    given: Mapping[str, str],
) -> tuple[str, str | None, str | None, str | None, str | None, dict[str, str]]:
    own: dict[str, str] = {}
    options: dict[str, str] = {}
    for key, value in given.items():
        plain = key.lower().replace("_", "")
        if plain in _OWN:
            own[plain] = value
        else:
            options[_PLAIN.get(plain, key)] = value
    if "path" not in own:
        raise UsageError("there is no path to read; write .load('s3://BUCKET/FOLDER')")
    return own["path"], own.get("store"), own.get("tso"), own.get("at"), own.get(FOUND), options
