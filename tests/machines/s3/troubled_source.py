"""The format `omidpy-parquet` whose tasks get into trouble once they have written everything.

    df.write.format("omidpy-troubled").option("trouble", "dies").option("marks", folder)...

    dies     the first attempt at partition 0 ends its process: Spark hears nothing of what it wrote
    loses    the same of the very first one, with all files of shuffles: the stage is run again
    waits    the first attempt at partition 0 waits until a second one has written everything, too
    task     the first attempt at partition 0 ends its process at its request number `at`, from 0
    driver   the process that commits ends at its request number `at`
    commits  the process that commits ends when it has

With `answered` the last two end once the store has carried the request out, else before it leaves;
the file `ended` then says that they did.

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

from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.spark.source import ParquetSource

NAME: Final = "omidpy-troubled"
_OWN: Final = ("trouble", "marks", "at", "answered")
_PATIENCE_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.05


class TroubledSource(ParquetSource):
    """The format."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Keep what is not the product's."""
        super().__init__({key: value for key, value in options.items() if key not in _OWN})
        self._trouble, self._marks = options["trouble"], Path(options["marks"])
        self._at = int(options.get("at", "0"))
        self._is_answered = "answered" in options

    @classmethod
    def name(cls) -> str:
        """Return what `format` is called with."""
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001 - Spark calls it so
        """Begin a job."""
        end = _End(self._marks, self._at, is_answered=self._is_answered)
        return _TroubledWriter(super().writer(schema, overwrite), self._trouble, self._marks, end)


class _End:
    """Ends the process at a request of a store."""

    def __init__(self, marks: Path, at: int, *, is_answered: bool) -> None:
        self._marks = marks
        self._at = at
        self._is_answered = is_answered
        self._sent = 0

    def watch(self, store: ObjectStore) -> None:
        store.before_request = self._before
        store.client.meta.events.register("after-call.s3", self._after)

    def _before(self, _operation: str) -> None:
        if self._sent == self._at and not self._is_answered:
            self._come()
        self._sent += 1

    def _after(self, **_: Any) -> None:
        if self._is_answered and self._sent > self._at:
            self._come()

    def _come(self) -> None:
        (self._marks / "ended").touch()
        os._exit(9)


class _TroubledWriter(DataSourceArrowWriter):
    def __init__(self, inner: Any, trouble: str, marks: Path, end: _End) -> None:
        self._inner = inner
        self._end = end
        self._trouble = trouble
        self._marks = marks

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Run a task as the product does, and then get into trouble."""
        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.attemptNumber()
        if self._trouble == "task" and (partition, attempt) == (0, 0):
            self._end.watch(self._inner._committer.store)
        written: WriterCommitMessage = self._inner.write(iterator)
        (self._marks / f"{partition}-{attempt}").touch()
        if self._trouble == "dies" and (partition, attempt) == (0, 0):
            os._exit(9)
        if self._trouble == "loses" and not (self._marks / "lost").exists():
            (self._marks / "lost").touch()
            for folder in os.environ["SPARK_LOCAL_DIRS"].split(","):
                for file in Path(folder).glob("**/shuffle_*"):
                    file.unlink()
            os._exit(9)
        if self._trouble == "waits" and (partition, attempt) == (0, 0):
            deadline_s = time.monotonic() + _PATIENCE_S
            while not (self._marks / "0-1").exists():
                assert time.monotonic() < deadline_s, "no second attempt was begun"
                time.sleep(_LOOK_EVERY_S)
        return written

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish."""
        if self._trouble == "driver":
            self._end.watch(self._inner._committer.store)
        self._inner.commit(messages)
        if self._trouble == "commits":
            os._exit(9)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove."""
        self._inner.abort(messages)
