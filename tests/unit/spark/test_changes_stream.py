"""What Spark asks of `omidpy-changes`: offsets, tasks, rows.  A real one reads in `integration`.

A manager over memory stands in for those that the driver and its tasks would open.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs Spark 4.2")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from omidpy.errors import SnapshotTooOld, StorageError, UsageError
from omidpy.facts.control import ControlTable
from omidpy.facts.tables.sameness import which_table
from omidpy.facts.watermarks import COLLECTION_HORIZON
from omidpy.manager import TransactionManager
from omidpy.reading.changes import feed as feed_module
from omidpy.reading.changes.feed import ChangeFeed
from omidpy.spark import changes_stream
from omidpy.spark.changes_stream import (
    SCHEMA,
    ChangesOptions,
    ChangesReader,
    ChangesSource,
    ChangesStreamReader,
)
from omidpy.storage.base import Store
from omidpy.storage.hbase.native.security import tokens
from omidpy.storage.hbase.native.security.tokens import Token
from tests.machines.clients import TABLE, Client

TYPES = {"binary": pa.binary(), "string": pa.string(), "bigint": pa.int64()}
EXPECTED = pa.schema([(name, TYPES[kind]) for name, kind in map(str.split, SCHEMA.split(", "))])
"""What Spark holds each batch to."""

NEEDED = {"store": "s", "tso": "t", "table": TABLE}


class Lent:
    """A manager that is closed by whoever has it, and stays open."""

    def __init__(self, tm: TransactionManager) -> None:
        self.tm = tm

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tm, name)

    def __enter__(self) -> TransactionManager:
        return self.tm

    def __exit__(self, *_: object) -> None:
        """Leave it open."""

    def close(self) -> None:
        """Leave it open."""


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    """Return a client of the store that sources open."""
    client = Client(table=None)
    client.tm.create_table(TABLE, ["cf", "other"], splits=[b"m"])
    monkeypatch.setattr(changes_stream, "connect", lambda *_, **__: Lent(client.tm))
    return client


@contextmanager
def stream(**options: str) -> Iterator[ChangesStreamReader]:
    """Yield a reader, as Spark has it in the driver."""
    reader = ChangesSource({**NEEDED, **options}).streamReader(None)
    yield reader
    reader.stop()


def rows(reader: Any, tasks: Any) -> list[tuple[Any, ...]]:
    """Read tasks as executors do, which are sent both."""
    sent = pickle.loads(pickle.dumps((reader, list(tasks))))
    batches = [one for task in sent[1] for one in sent[0].read(task)]
    for one in batches:
        assert one.schema == EXPECTED
        one.validate(full=True)
    return [tuple(row.values()) for one in batches for row in one.to_pylist()]


def batch(reader: ChangesStreamReader, start: dict[str, int], end: dict[str, int]) -> list[Any]:
    """Return (row, kind, value) of a batch."""
    found = rows(reader, reader.partitions(start, end))
    return [(row, kind, value) for row, _, value, kind, *_ in found]


ALL: Any = None


def test_a_stream_begins_with_the_table_and_goes_on_with_its_changes(client: Client) -> None:
    """Each offset is one number; a batch that is run again has the same rows."""
    client.write(b"a")
    client.write(b"z")
    with stream() as reader:
        start = reader.initialOffset()
        assert start == {"commit_ts": 0}
        first = reader.latestOffset(start, ALL)
        client.write(b"a", b"later")
        for _ in range(2):
            assert batch(reader, start, first) == [
                (b"a", "snapshot", b"v"),
                (b"z", "snapshot", b"v"),
            ]
        second = reader.latestOffset(first, ALL)
        client.write(b"b")
        assert batch(reader, first, second) == [(b"a", "put", b"later")]
        third = reader.latestOffset(second, ALL)
        assert batch(reader, second, third) == [(b"b", "put", b"v")]
        assert batch(reader, first, third) == [(b"a", "put", b"later"), (b"b", "put", b"v")]
        assert reader.reportLatestOffset()["commit_ts"] > third["commit_ts"]


def test_each_region_is_a_task(client: Client) -> None:
    """Together they have every row once, each in the order of commits."""
    since = client.tm.begin().start_ts
    for row in (b"z", b"a", b"y", b"b"):
        client.write(row)
    with stream(since=str(since)) as reader:
        start = reader.initialOffset()
        assert start == {"commit_ts": since}
        tasks = reader.partitions(start, reader.latestOffset(start, ALL))
        assert [[row for row, *_ in rows(reader, [task])] for task in tasks] == [
            [b"a", b"b"],
            [b"z", b"y"],
        ]


@pytest.mark.parametrize("kind", ["stream", "batch"])
def test_tasks_bring_what_proves_to_the_store_who_reads(
    client: Client, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made for each batch, since it ends some day; neither shown nor in a checkpoint."""
    issued: list[Token] = []

    def issue() -> Token:
        issued.append(Token(b"i%d" % len(issued), b"hidden word"))
        return issued[-1]

    monkeypatch.setattr(client.tm.store, "token_to_hand_on", issue, raising=False)
    client.write(b"a")
    with stream() as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        source: Any = reader if kind == "stream" else ChangesReader(ChangesOptions(NEEDED))
        for number in range(2):
            tasks = source.partitions(start, end) if kind == "stream" else source.partitions()
            assert len(issued) == number + 1
            assert "hidden" not in repr(tasks)
            assert "hidden" not in str(end)
            rows(source, tasks)
            assert tokens.held("s") == issued[-1]
    tokens._held.clear()


def test_a_table_that_is_made_anew_between_tasks_fails_the_batch(client: Client) -> None:
    """The first of them have read the earlier one, and the others would find an empty one."""
    with client.tm.begin() as tx:
        for row in (b"a", b"z"):
            tx.table(TABLE).put(row, {b"cf:n": b"1"})
    reader = ChangesReader(ChangesOptions(NEEDED))
    first, last = reader.partitions()
    assert [row[0] for row in rows(reader, [first])] == [b"a"]
    client.tm.drop_table(TABLE)
    client.tm.create_table(TABLE, ["cf", "other"])
    with pytest.raises(StorageError, match="was dropped, truncated"):
        rows(reader, [last])
    assert rows(reader, reader.partitions()) == []


def test_a_table_that_is_made_anew_while_a_batch_is_planned_is_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever tasks read then is of one table, but not of that which the offset is of."""
    offset = client.write()
    reader = ChangesSource({**NEEDED, "since": str(offset)}).reader(None)

    def late(store: Store, name: str) -> str:
        client.tm.drop_table(TABLE)
        client.tm.create_table(TABLE, ["cf", "other"])
        return which_table(store, name)

    monkeypatch.setattr(changes_stream, "which_table", late)
    with pytest.raises(SnapshotTooOld, match="dropped or truncated"):
        reader.partitions()


def test_latest_begins_now(client: Client) -> None:
    """What was there before does not come."""
    client.write(b"before")
    with stream(since="latest") as reader:
        start = reader.initialOffset()
        client.write(b"after")
        assert batch(reader, start, reader.latestOffset(start, ALL)) == [(b"after", "put", b"v")]


def test_a_table_in_which_nothing_happens_has_a_batch_now_and_then(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its offset would become older than what compactions keep, or each look be a batch."""
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    client.write(b"a")
    with stream() as reader:
        offset = reader.latestOffset(reader.initialOffset(), ALL)
        for _ in range(3):
            assert reader.latestOffset(offset, ALL) == offset
        now += changes_stream.IDLE_S
        later = reader.latestOffset(offset, ALL)
        assert later["commit_ts"] > offset["commit_ts"]
        assert batch(reader, offset, later) == []
        assert reader.latestOffset(later, ALL) == later
        client.write(b"b")
        assert reader.latestOffset(later, ALL) != later
        assert reader.partitions(later, later) == []


def test_available_now_ends_where_the_table_was(client: Client) -> None:
    """However much is written meanwhile."""
    client.write(b"a")
    with stream() as reader:
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        client.write(b"b")
        end = reader.latestOffset(start, ALL)
        assert batch(reader, start, end) == [(b"a", "snapshot", b"v")]
        assert reader.latestOffset(end, ALL) == end


def test_a_batch_has_so_many_rows_at_most(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions stay whole; the table is read once for many batches, and again behind them."""
    scans: list[int] = []
    original = ChangeFeed.cuts

    def counted(self: ChangeFeed, most: int) -> Any:
        scans.append(most)
        return original(self, most)

    monkeypatch.setattr(ChangeFeed, "cuts", counted)
    since = client.tm.begin().start_ts
    for size in (1, 1, 5, 1, 2, 1):
        with client.tm.begin() as tx:
            for at in range(size):
                tx.table(TABLE).put(b"%d" % at, {b"cf:q": b"v"})
    with stream(since=str(since), maxRowsPerTrigger="3") as reader:
        assert reader.getDefaultReadLimit() == ReadMaxRows(3)
        reader.prepareForTriggerAvailableNow()
        client.write(b"later")
        found, start = [], reader.initialOffset()
        while (end := reader.latestOffset(start, ReadMaxRows(3))) != start:
            assert reader.latestOffset(start, ReadMaxRows(3)) == end
            found.append(len(batch(reader, start, end)))
            start = end
        assert found == [2, 5, 3, 1]
        assert scans == [3]
    with stream(since=str(since), maxRowsPerTrigger="3") as reader:
        start = reader.initialOffset()
        assert len(batch(reader, start, reader.latestOffset(start, ReadAllAvailable()))) == 12
    with stream(maxRowsPerTrigger="3") as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(3))
        assert len(batch(reader, start, end)) == 6, "the table as it is comes whole"


def test_many_commits_are_counted_in_little_memory(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is too much to remember is counted by the next look."""
    monkeypatch.setattr(feed_module, "MOST_COMMITS", 4)
    since = client.tm.begin().start_ts
    for at in range(11):
        client.write(b"%02d" % (10 - at))
    with stream(since=str(since), maxRowsPerTrigger="1") as reader:
        found, start = [], reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        while (end := reader.latestOffset(start, ReadMaxRows(1))) != start:
            found += [row for row, *_ in batch(reader, start, end)]
            assert len(reader._cuts) <= 6
            start = end
    assert found == [b"%02d" % (10 - at) for at in range(11)]


def test_a_batch_of_a_frame_is_a_window(client: Client) -> None:
    """With columns, old values, moments, and the state first."""
    client.write(value=b"0")
    since = client.tm.begin().start_ts
    client.write(value=b"1")
    client.write(value=b"x", column=b"other:q")
    until = client.tm.begin().start_ts
    client.write(value=b"2")

    def read(**options: str) -> list[tuple[Any, ...]]:
        reader = ChangesSource({**NEEDED, **options}).reader(None)
        return rows(reader, reader.partitions())

    at = {"since": str(since), "until": str(until)}
    (found,) = read(**at, columns="cf:q, cf:r", oldValues="true")
    assert (found[:4], found[-1]) == ((b"r", b"cf:q", b"1", "put"), b"0")
    assert found[4] < found[5]
    assert [row[2:4] for row in read(**at, snapshot="TRUE")] == [
        (b"0", "snapshot"),
        (b"1", "put"),
        (b"x", "put"),
    ]
    assert [row[2:4] for row in read()] == [(b"2", "snapshot"), (b"x", "snapshot")]


def test_what_may_have_been_collected_is_refused_by_the_driver(client: Client) -> None:
    """Before a task begins."""
    since = client.tm.begin().start_ts
    client.write()
    ControlTable(client.store).raise_number(COLLECTION_HORIZON, since + 100)
    reader = ChangesSource({**NEEDED, "since": str(since)}).reader(None)
    with pytest.raises(SnapshotTooOld):
        reader.partitions()
    with stream(since=str(since)) as running, pytest.raises(SnapshotTooOld):
        running.partitions({"commit_ts": since}, {"commit_ts": since + 50})


def test_a_query_whose_table_was_made_anew_fails_unless_it_says_that_it_goes_on(
    client: Client,
) -> None:
    """What had come last to the earlier one is in no batch any more, and a part of it is kept."""
    client.write(b"old")
    with stream() as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        client.write(b"unseen")
        client.tm.drop_table(TABLE)
        client.tm.create_table(TABLE, ["cf", "other"])
        client.write(b"new")
        with pytest.raises(SnapshotTooOld, match=r"table 't' was dropped .* checkpoint"):
            reader.latestOffset(end, ALL)
        with pytest.raises(SnapshotTooOld, match=r"option\('spansTables', 'true'"):
            reader.partitions(end, {"commit_ts": end["commit_ts"] + 50})
    with stream(spansTables="true") as reader:
        assert batch(reader, end, reader.latestOffset(end, ALL)) == [(b"new", "put", b"v")]
    with stream() as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        assert batch(reader, start, end) == [(b"new", "snapshot", b"v")]
        client.write(b"newer")
        assert batch(reader, end, reader.latestOffset(end, ALL)) == [(b"newer", "put", b"v")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"store": "s", "tso": "t"}, r"needs option\('table'"),
        ({"store": "s", "table": "t"}, r"needs option\('tso'"),
        ({**NEEDED, "sinse": "1"}, r"no option\('sinse'"),
        ({**NEEDED, "since": "yesterday"}, "no moment"),
        ({**NEEDED, "until": "latest"}, "no moment"),
        ({**NEEDED, "oldvalues": "yes"}, "must be true or false"),
        ({**NEEDED, "maxRowsPerTrigger": "0"}, "must be a number, 1 or more"),
    ],
)
def test_what_a_query_lacks_is_named(options: dict[str, str], message: str) -> None:
    """Before Spark is asked for anything; option names have no case there."""
    with pytest.raises(UsageError, match=message):
        ChangesOptions(options)


def test_options_of_one_kind_are_refused_by_the_other() -> None:
    """They would be passed over."""
    with pytest.raises(UsageError, match="for streams"):
        ChangesReader(ChangesOptions({**NEEDED, "since": "latest"}))
    with pytest.raises(UsageError, match="for streams"):
        ChangesReader(ChangesOptions({**NEEDED, "maxrowspertrigger": "5"}))
    for name, text in (("until", "1"), ("snapshot", "true")):
        with pytest.raises(UsageError, match="for batches"):
            ChangesStreamReader(ChangesOptions({**NEEDED, name: text}))
