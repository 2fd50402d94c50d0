"""Changes of a table as a frame, and as a stream, of Spark: `format("omidpy-changes")`.

| column | type | holds |
|---|---|---|
| `row`, `column` | binary | the cell, `family:qualifier` |
| `value` | binary | what was written; null: it was deleted |
| `kind` | string | `put`, `delete`, `delete_family` or `snapshot` |
| `start_ts`, `commit_ts` | bigint | timestamps of the transaction |
| `old` | binary | with `oldValues`, what was there before |

It is `tm.changes`, a task for each region: in each, changes come in the order of commits.  A batch
of a stream lies between two offsets, which say what is in it however often it is run.  An offset is
one number, the newest commit timestamp that it has; 0 is nothing at all, so that the first batch
of a query that begins there is the state of the table, in changes of kind `snapshot`.

A query whose table was dropped and made again, or truncated, behind its offset fails: what was
committed to the earlier table in between is gone, and rows that were read of it stay in whatever
follows them.  With `spansTables` it goes on with what there is.

A query over a table in which nothing happens has a batch without rows now and then, lest its offset
grow older than what compactions keep.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from omidpy.base.collector import paused_collector
from omidpy.base.words.moments import moment
from omidpy.connect import connect
from omidpy.errors import UsageError
from omidpy.facts.tables.sameness import check_same, which_table
from omidpy.manager import TransactionManager
from omidpy.model import Change, KeyRange
from omidpy.reading.changes.feed import ChangeFeed
from omidpy.storage.base import WHOLE_TABLE
from omidpy.storage.handed import HandedStore, handed
from omidpy.storage.spreading import spread

FORMAT: Final = "omidpy-changes"
SCHEMA: Final = (
    "row binary, column binary, value binary, kind string, start_ts bigint, commit_ts bigint, "
    "old binary"
)
ARROW: Final = pa.schema(
    [
        ("row", pa.binary()),
        ("column", pa.binary()),
        ("value", pa.binary()),
        ("kind", pa.string()),
        ("start_ts", pa.int64()),
        ("commit_ts", pa.int64()),
        ("old", pa.binary()),
    ]
)
"""The same for Arrow."""
BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 8 << 20
"""Of values in a batch of Arrow, about."""
OFFSET: Final = "commit_ts"
NOTHING_READ: Final = 0
LATEST: Final = "latest"
IDLE_S: Final = 600.0
"""How long the offset of a table in which nothing happens stays as it is."""

_OPTIONS: Final = {
    name.lower(): name
    for name in (
        "store",
        "tso",
        "table",
        "columns",
        "since",
        "until",
        "oldValues",
        "snapshot",
        "maxRowsPerTrigger",
        "spansTables",
    )
}


class ChangesOptions:
    """What a query says of its table."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Read them.

        Raises:
            UsageError: one is missing, wrong or unknown.
        """
        given = {name.lower(): text for name, text in options.items()}
        for name in given:
            if name not in _OPTIONS:
                raise UsageError(
                    f"format({FORMAT!r}) has no option({name!r}, ...); it has "
                    f"{', '.join(_OPTIONS.values())}"
                )
        try:
            self.store, self.tso, self.table = given["store"], given["tso"], given["table"]
        except KeyError as error:
            raise UsageError(
                f"format({FORMAT!r}) needs option({error.args[0]!r}, ...): it needs store, the "
                "address of the store; tso, that of its tso-server; and table"
            ) from None
        names = given.get("columns")
        self.columns = None if names is None else [one.strip().encode() for one in names.split(",")]
        self.since, self.until = given.get("since"), given.get("until")
        for name in ("since", "until"):
            text = given.get(name)
            if text is not None and (name, text) != ("since", LATEST):
                moment(name, text)
        self.old_values = _flag(given, "oldValues")
        self.snapshot = _flag(given, "snapshot")
        self.spans_tables = _flag(given, "spansTables")
        self.max_rows = _count(given, "maxRowsPerTrigger")

    def connect(self, sent: HandedStore | None = None) -> TransactionManager:
        """Open the store; in a task, as the driver has sent it."""
        if sent is None:
            return connect(self.store, tso=self.tso)
        return sent.opened(partial(connect, tso=self.tso))

    def feed(
        self,
        tm: TransactionManager,
        since: Any,
        until: Any,
        key_range: KeyRange = WHOLE_TABLE,
        *,
        snapshot: bool = False,
        is_planned: bool = False,
    ) -> ChangeFeed:
        """Return the changes between two moments in a key range; None is as in `tm.changes`.

        With `is_planned` of a table of which the driver has seen that it is no later one, and of
        which a task looks at its end whether it still is that.
        """
        return tm.changes(
            self.table,
            since,
            until,
            columns=self.columns,
            row_start=key_range.start or None,
            row_stop=key_range.end or None,
            old_values=self.old_values,
            snapshot=snapshot,
            spans_tables=self.spans_tables or is_planned,
        )


class Changes(InputPartition):
    """What one task reads: one region between two offsets."""

    def __init__(
        self,
        sent: HandedStore,
        since: int | None,
        until: int,
        key_range: KeyRange,
        *,
        snapshot: bool,
        which: str,
    ) -> None:
        """Read above `since`, or the state where that is None, of one table of its name.

        What proves to the store who reads is made for each batch, and stands in no checkpoint.
        """
        super().__init__(None)
        self.sent = sent
        self.since = since
        self.until = until
        self.key_range = key_range
        self.snapshot = snapshot
        self.which = which


class ChangesSource(DataSource):
    """The format of changes, as Spark finds it by its name."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` is called with."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of a change, whatever its table."""
        return SCHEMA

    def reader(self, schema: object) -> ChangesReader:
        """Return what reads a window once; it travels to executors."""
        del schema
        return ChangesReader(ChangesOptions(self.options))

    def streamReader(self, schema: object) -> ChangesStreamReader:  # noqa: N802 - Spark's name
        """Return what reads one window after the other."""
        del schema
        return ChangesStreamReader(ChangesOptions(self.options))


class ChangesReader(DataSourceReader):
    """Reads one window of commits, a task for each range."""

    def __init__(self, options: ChangesOptions) -> None:
        """Plan it when Spark asks.

        Raises:
            UsageError: an option is for streams.
        """
        if options.since == LATEST:
            raise UsageError("option('since', 'latest') is for streams; a batch ends now")
        if options.max_rows is not None:
            raise UsageError("option('maxRowsPerTrigger', ...) is for streams; a batch has until")
        self._options = options

    def partitions(self) -> Sequence[Changes]:
        """Return the tasks of a window, one for each range of rows."""
        options = self._options
        since, until = (
            None if text is None else moment(name, text)
            for name, text in (("since", options.since), ("until", options.until))
        )
        with options.connect() as tm:
            feed = options.feed(tm, since, until, snapshot=options.snapshot)
            start = None if since is None else feed.since
            return _tasks(options, tm, start, feed.until)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a region."""
        return _batches(self._options, partition)


class ChangesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's view of a table: planned by the driver, read by tasks."""

    def __init__(self, options: ChangesOptions) -> None:
        """Begin when Spark asks.

        Raises:
            UsageError: an option is for batches.
        """
        for name, given in (("until", options.until), ("snapshot", options.snapshot)):
            if given:
                raise UsageError(
                    f"option({name!r}, ...) is for batches; a stream without option('since', ...) "
                    "begins with the table as it is"
                )
        self._options = options
        self._tm: TransactionManager | None = None
        self._until_ts: int | None = None
        self._empty = (NOTHING_READ, NOTHING_READ)
        """Between these two offsets nothing has changed."""
        self._cuts: list[int] = []
        """Offsets that follow one another, with few enough changes between two of them."""
        self._advanced_s: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Travel without what the driver holds."""
        return {"_options": self._options, "_tm": None, "_cuts": []}

    # -- the driver ----------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the start of a query that has no checkpoint."""
        since = self._options.since
        if since is None:
            return {OFFSET: NOTHING_READ}
        if since == LATEST:
            return {OFFSET: self._now()}
        return {OFFSET: int(self._options.feed(self._driver(), moment("since", since), None).since)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much a batch holds: what was asked for, or all that there is."""
        most = self._options.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note where this query is to end."""
        self._until_ts = self._now()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return the end of the next batch; `start` where there is nothing to do."""
        start_ts = start[OFFSET]
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if most is not None and (next_ts := self._next_cut(start_ts)) is not None:
            return {OFFSET: next_ts}
        until_ts = self._now() if self._until_ts is None else self._until_ts
        if until_ts <= start_ts:
            return start
        if start_ts != NOTHING_READ and self._is_empty(start_ts, until_ts) and self._is_young():
            return start
        self._advanced_s = time.monotonic()
        # The table as it is, which the first batch has, is not cut: its rows have no order of time.
        if most is not None and start_ts != NOTHING_READ:
            feed = self._options.feed(self._driver(), start_ts, until_ts)
            self._cuts = [start_ts, *map(int, feed.cuts(most))]
            return {OFFSET: self._cuts[1]}
        return {OFFSET: until_ts}

    def _next_cut(self, start_ts: int) -> int | None:
        """Return where a batch ends that begins at a cut; None where it was not looked for."""
        if start_ts not in self._cuts[:-1]:
            return None
        return self._cuts[self._cuts.index(start_ts) + 1]

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return where the table is now, for who looks at the query."""
        return {OFFSET: self._now()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Changes]:
        """Return the tasks of a batch."""
        if start[OFFSET] == end[OFFSET]:
            return []
        since = None if start[OFFSET] == NOTHING_READ else start[OFFSET]
        return _tasks(self._options, self._driver(), since, end[OFFSET])

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the table is as it was."""

    def stop(self) -> None:
        """Close the connection to the store, if there is one."""
        tm, self._tm = self._tm, None
        if tm is not None:
            tm.close()

    def _is_empty(self, start_ts: int, until_ts: int) -> bool:
        """Say whether nothing has changed, without reading again where nothing had."""
        since, known = self._empty
        begin = known if since == start_ts else start_ts
        if not self._options.feed(self._driver(), begin, until_ts).is_empty():
            return False
        self._empty = start_ts, until_ts
        return True

    def _is_young(self) -> bool:
        return self._advanced_s is not None and time.monotonic() - self._advanced_s < IDLE_S

    def _now(self) -> int:
        return int(self._driver().begin(read_only=True).start_ts)

    def _driver(self) -> TransactionManager:
        if self._tm is None:
            self._tm = self._options.connect()
        return self._tm

    # -- a task --------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a region."""
        return _batches(self._options, partition)


def _tasks(
    options: ChangesOptions, tm: TransactionManager, since: int | None, until: int
) -> Sequence[Changes]:
    """Return a task for each region, those of one server apart from each other.

    What may have been collected is refused here and now.
    """
    name = tm.session.catalog.full_name(options.table)
    # Before it is seen that this is no later table than that of the offset: tasks look whether it
    # still is this one.
    which = which_table(tm.store, name)
    options.feed(tm, since, until, snapshot=options.snapshot).check_horizon()
    sent = handed(tm.store, options.store).of(tm.store)
    return [
        Changes(sent, since, until, key_range, snapshot=options.snapshot, which=which)
        for key_range in spread(tm.store, tm.store.regions(name), lambda one: (name, one.start))
    ]


def _batches(options: ChangesOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a region in Arrow's form, which Spark takes as it is.

    Raises:
        StorageError: by the end the table is another one: some tasks may have read that.
    """
    assert isinstance(partition, Changes), "made by `partitions`"
    with options.connect(partition.sent) as tm:
        feed = options.feed(
            tm,
            partition.since,
            partition.until,
            partition.key_range,
            snapshot=partition.snapshot,
            is_planned=True,
        )
        for page in feed.pages(most_changes=BATCH_ROWS, most_bytes=BATCH_BYTES):
            yield _batch(page)
        check_same(tm.store, tm.session.catalog.full_name(options.table), partition.which)


def _batch(changes: Sequence[Change]) -> pa.RecordBatch:
    """Return changes as the columns of `SCHEMA`, which are the fields of a change."""
    with paused_collector():
        columns = zip(*changes, strict=True)
        arrays = [pa.array(data, kind) for data, kind in zip(columns, ARROW.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is not None and (not text.isdecimal() or int(text) < 1):
        raise UsageError(f"option({name!r}, {text!r}) must be a number, 1 or more")
    return None if text is None else int(text)


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name.lower(), "false").lower()
    if text not in ("true", "false"):
        raise UsageError(f"option({name!r}, {text!r}) must be true or false")
    return text == "true"
