"""The format `omidpy-parquet` whose tasks get into trouble once they have written everything.

    df.write.format("omidpy-troubled").option("trouble", "dies").option("marks", folder)...

    dies     the first attempt at partition 0 ends its process: Spark hears nothing of what it wrote
    waits    the first attempt at partition 0 waits until a second one has written everything, too

Spark carries the writer to its executors, which find this module by its name.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from omidpy.committers.spark import ParquetSource

NAME: Final = "omidpy-troubled"
_OWN: Final = ("trouble", "marks")
_PATIENCE_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.05


class TroubledSource(ParquetSource):
    """The format."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Keep what is not the product's."""
        super().__init__({key: value for key, value in options.items() if key not in _OWN})
        self._trouble, self._marks = options["trouble"], Path(options["marks"])

    @classmethod
    def name(cls) -> str:
        """Return what `format` is called with."""
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001 - Spark calls it so
        """Begin a job."""
        return _TroubledWriter(super().writer(schema, overwrite), self._trouble, self._marks)


class _TroubledWriter(DataSourceArrowWriter):
    def __init__(self, inner: DataSourceArrowWriter, trouble: str, marks: Path) -> None:
        self._inner = inner
        self._trouble = trouble
        self._marks = marks

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Run a task as the product does, and then get into trouble."""
        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.attemptNumber()
        written = self._inner.write(iterator)
        (self._marks / f"{partition}-{attempt}").touch()
        if (partition, attempt) == (0, 0):
            if self._trouble == "dies":
                os._exit(9)
            deadline_s = time.monotonic() + _PATIENCE_S
            while not (self._marks / "0-1").exists():
                assert time.monotonic() < deadline_s, "no second attempt was begun"
                time.sleep(_LOOK_EVERY_S)
        return written

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish."""
        self._inner.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove."""
        self._inner.abort(messages)
