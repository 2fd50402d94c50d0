"""Export queues as a stream of Spark, whose offset is one number: `format("omidpy-export")`.

| column | type | holds |
|---|---|---|
| `key`, `value` | binary | as they were added; the value as the queue's codec has written it |
| `commit_ts`, `start_ts` | bigint | timestamps of the transaction |
| `ordinal` | binary | 21 bytes that order as the ordinal does |
| `headers` | map | as they were added |
| `bucket` | int | all entries of a key have one |

The offset T stands for everything that was committed below T, which is the same whenever it is read
(`portions.py`).  So a batch that Spark runs again, after a death, has the same rows; into a sink
that knows a batch by its number each entry goes exactly once.  Spark tells the source what batches
are in its checkpoint, and that is removed from the queue.

While a query runs its driver has all buckets of the queue, and no other worker exports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from omidpy.connect import connect
from omidpy.errors import UsageError
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue.delivery.portions import Portion, Possession, read
from omidpy.recipes.export_queue.sinks.documents import ORDINAL_BYTES
from omidpy.storage.handed import HandedStore, handed

FORMAT: Final = "omidpy-export"
SCHEMA: Final = (
    "key binary, value binary, commit_ts bigint, ordinal binary, start_ts bigint, "
    "headers map<string, string>, bucket int"
)
OFFSET: Final = "commit_ts"
TASKS: Final = 8


class ExportOptions:
    """What a query says of its queue."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Read them.

        Raises:
            UsageError: one is missing, or is wrong.
        """
        given = {name.lower(): text for name, text in options.items()}
        try:
            self.store, self.tso, self.queue = given["store"], given["tso"], given["queue"]
        except KeyError as error:
            raise UsageError(
                f"format({FORMAT!r}) needs option({error.args[0]!r}, ...): it needs store, the "
                "address of the store; tso, that of its tso-server; and queue, the id of a queue"
            ) from None
        self.max_entries = _count(given, "maxEntriesPerTrigger")
        self.tasks = _count(given, "tasks") or TASKS

    def connect(self, sent: HandedStore | None = None) -> TransactionManager:
        """Open the store; in a task, as the driver has sent it."""
        if sent is None:
            return connect(self.store, tso=self.tso)
        return sent.opened(partial(connect, tso=self.tso))


class Buckets(InputPartition):
    """What one task reads."""

    def __init__(self, sent: HandedStore, portions: Sequence[Portion]) -> None:
        super().__init__(None)
        self.sent = sent
        self.portions = portions


class ExportSource(DataSource):
    """The format of queues, as Spark finds it by its name."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` is called with."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of an entry, whatever its queue."""
        return SCHEMA

    def streamReader(self, schema: object) -> ExportReader:  # noqa: N802 - Spark's name
        """Return what reads; it travels to executors."""
        del schema
        return ExportReader(ExportOptions(self.options))


class ExportReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's view of a queue: planned by the driver, read by tasks."""

    def __init__(self, options: ExportOptions) -> None:
        self._options = options
        self._tm: TransactionManager | None = None
        self._possession: Possession | None = None
        self._until_ts: int | None = None
        self._owed_ts: int | None = None
        """Up to here batches have had rows that may still be in the queue; None: not known yet."""

    def __getstate__(self) -> dict[str, Any]:
        """Travel without what the driver holds."""
        return {"_options": self._options, "_tm": None, "_possession": None}

    # -- the driver ----------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the start of a query that has no checkpoint: each bucket from where it stands."""
        return {OFFSET: self._held().beginning_ts}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much a batch holds."""
        most = self._options.max_entries
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note where this query is to end."""
        self._until_ts = self._held().snapshot_ts()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return the end of the next batch; `start` where there is nothing to do."""
        held, start_ts = self._held(), start[OFFSET]
        if self._until_ts is not None and start_ts >= self._until_ts:
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end_ts = held.next_end(start_ts, max_entries=most)
        owed_ts = start_ts if self._owed_ts is None else self._owed_ts
        if end_ts is None and owed_ts == 0:
            return start
        if end_ts is None:
            # Spark acknowledges a batch when it plans the next one: let there be one, without rows.
            self._owed_ts, end_ts = owed_ts, held.snapshot_ts()
        if self._until_ts is not None:
            end_ts = min(end_ts, self._until_ts)
        return {OFFSET: end_ts}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Buckets]:
        """Return the tasks of a batch."""
        start_ts, end_ts = start[OFFSET], end[OFFSET]
        held = self._held()
        if start_ts == end_ts or held.next_end(start_ts) is None:
            return []
        self._owed_ts = end_ts
        found = held.portions(start_ts, end_ts)
        count = min(self._options.tasks, len(found))
        store = self._driver().store
        sent = handed(store, self._options.store).of(store)
        return [Buckets(sent, found[number::count]) for number in range(count)]

    def commit(self, end: dict[str, int]) -> None:
        """Remove from the queue what is in batches that are in the checkpoint."""
        self._held().acknowledge(end[OFFSET])
        if self._owed_ts is None or self._owed_ts <= end[OFFSET]:
            self._owed_ts = 0

    def stop(self) -> None:
        """Give the buckets back."""
        possession, self._possession = self._possession, None
        tm, self._tm = self._tm, None
        try:
            if possession is not None:
                possession.close()
        finally:
            if tm is not None:
                tm.close()

    def _held(self) -> Possession:
        if self._possession is None:
            self._possession = Possession(self._driver(), self._options.queue)
        return self._possession

    def _driver(self) -> TransactionManager:
        if self._tm is None:
            self._tm = self._options.connect()
        return self._tm

    # -- a task --------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of some buckets."""
        assert isinstance(partition, Buckets), "made by `partitions`"
        with self._options.connect(partition.sent) as tm:
            for portion in partition.portions:
                for found, content in read(tm, portion):
                    yield (
                        content.key,
                        content.value,
                        found.position.commit_ts,
                        found.position.ordinal.rjust(ORDINAL_BYTES, b"\0"),
                        found.start_ts,
                        dict(content.headers),
                        portion.bucket,
                    )


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"option({name!r}, {text!r}) must be a number, 1 or more")
    return int(text)
