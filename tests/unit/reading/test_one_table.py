"""A scan of several reads notices that its table became another one on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from omidpy import admin, aio
from omidpy.base.tables import CONTROL_TABLE
from omidpy.base.timing.clock import SystemClock
from omidpy.codec import BYTES
from omidpy.errors import SnapshotTooOld, StorageError
from omidpy.facts.watermarks import HORIZON_FREE_AGE_S
from omidpy.manager import TransactionManager
from omidpy.model import KeyRange
from omidpy.reading import one_table, snapshot
from omidpy.reading.changes import window
from omidpy.storage.base import Capabilities, Row, Store
from omidpy.storage.memory import MemoryStore
from omidpy.storage.options import PairsCells
from omidpy.storage.pages import Reads, reads_of
from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.faults import FaultyStore, Point, on
from omidpy.tx.table import TransactionalTable
from tests.machines.clients import TABLE, Client
from tests.machines.like_thrift2 import LikeThrift2
from tests.machines.restoring import RestoringStore

ROWS: Final = tuple(b"%d" % number for number in range(6))
ANEW: Final = "table 't' was dropped, truncated, or disabled and enabled"
KINDS: Final = ("memory", "sqlite", "thrift2", "restoring")


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    """One over each kind of store, whose table has some rows."""
    kinds: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "sqlite": lambda: SqliteStore(str(tmp_path / "s.db")),
        "thrift2": LikeThrift2,
        "restoring": RestoringStore,
    }
    made = Client(kinds[request.param]())
    fill(made.tm)
    yield made
    made.tm.close()


def fill(tm: TransactionManager) -> None:
    """Write the rows."""
    with tm.begin() as tx:
        for row in ROWS:
            tx.table(TABLE).put(row, {b"cf:q": b"v"})


def drop_and_make(tm: TransactionManager) -> None:
    """Let there be another one of the name, of the same families."""
    tm.drop_table(TABLE)
    tm.create_table(TABLE, ["cf", "other"])


def drop_unnoted_and_make(tm: TransactionManager) -> None:
    """Let there be another one, where HBase's shell, or another program, has dropped the first."""
    tm.store.drop_table(TABLE)
    tm.create_table(TABLE, ["cf", "other"])


def make_and_fill(tm: TransactionManager) -> None:
    """Let there be another one, with the same rows."""
    drop_and_make(tm)
    fill(tm)


CHANGES: Final[dict[str, Callable[[TransactionManager], object]]] = {
    "truncated": lambda tm: admin.truncate_table(tm, TABLE),
    "made anew": drop_and_make,
    "filled anew": make_and_fill,
    "gone": lambda tm: tm.drop_table(TABLE),
}
READS: Final[dict[str, Callable[[TransactionalTable], Iterator[Any]]]] = {
    "rows": lambda table: table.scan(batch_size=2),
    "backwards": lambda table: table.scan(batch_size=2, reverse=True),
    "with times": lambda table: table.scan(batch_size=2, include_timestamp=True),
    "a column": lambda table: table.scan(batch_size=2, columns=[b"cf:q"]),
    "batches": lambda table: table.scan_arrow(codecs={b"cf:q": BYTES}, batch_rows=2),
    "frames": lambda table: table.read_arrow(batch_rows=2),
}


def refused(error: pytest.ExceptionInfo[Exception]) -> bool:
    """Say whether an error tells what became of the table, be it that it is not there."""
    return "was dropped, truncated" in str(error.value) or "no table" in str(error.value)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("read", READS)
def test_a_scan_that_crosses_another_table_is_refused(
    client: Client, read: str, change: str
) -> None:
    """Of the rows that were still to come there is none, and a part of them looked like all."""
    with client.tm.begin(read_only=True) as tx:
        found = READS[read](tx.table(TABLE))
        next(found)
        CHANGES[change](client.tm)
        with pytest.raises((StorageError, pa.ArrowException)) as error:
            list(found)
        assert refused(error)
    if change != "gone":
        with client.tm.begin(read_only=True) as tx:
            rows = dict(tx.table(TABLE).scan(batch_size=2))
        assert len(rows) == (len(ROWS) if change == "filled anew" else 0)


def test_so_is_one_of_a_transaction_that_writes(client: Client) -> None:
    """Its own rows come among the others, in a savepoint and out of one."""
    tx = client.tm.begin()
    table = tx.table(TABLE)
    table.put(b"00", {b"cf:q": b"own"})
    with tx.savepoint():
        table.put(b"9", {b"cf:q": b"own"})
        found = table.scan(batch_size=2)
        assert next(found)[0] == b"0"
        drop_and_make(client.tm)
        with pytest.raises(StorageError, match=ANEW):
            list(found)
    tx.rollback()


def test_so_is_one_of_the_asyncio_twin(client: Client) -> None:
    """It asks the blocking one."""

    async def main() -> None:
        tm = aio.TransactionManager(client.tm)
        async with tm.begin(read_only=True) as tx:
            found = aiter(tx.table(TABLE).scan(batch_size=2))
            await anext(found)
            await asyncio.to_thread(drop_and_make, client.tm)
            with pytest.raises(StorageError, match=ANEW):
                [row async for row in found]
        tm.threads.close()

    asyncio.run(main())


@pytest.mark.parametrize("is_scan", [False, True])
def test_a_read_that_asks_for_older_versions_of_another_table_is_refused(*, is_scan: bool) -> None:
    """The newest ones are too new, and behind them there is nothing any more."""
    store = FaultyStore(MemoryStore())
    client = Client(store)
    fill(client.tm)
    writers = [client.tm.begin() for _ in range(4)]
    tx = client.tm.begin(read_only=True)
    table = tx.table(TABLE)
    for writer in writers:
        writer.table(TABLE, conflict_free=True).put(ROWS[0], {b"cf:q": b"late"})
        writer.commit()
    assert table.row(ROWS[0]) == {b"cf:q": b"v"}
    other = TransactionManager(store.store, client.oracle, clock=client.clock)
    nth = 1 if is_scan else 2
    store.plans.append(on("get.before", lambda: drop_and_make(other), nth=nth, table=TABLE))
    with pytest.raises(StorageError, match="was dropped"):
        dict(table.scan(row_stop=ROWS[1])) if is_scan else table.row(ROWS[0])


def test_what_a_column_has_held_in_another_table_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row that lost a cell while it was looked up is read again."""
    client = Client()
    fill(client.tm)
    decide = snapshot.Snapshot._history
    calls: list[int] = []

    def loses(self: Any, *args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            return decide(self, *args, **options)
        drop_and_make(client.tm)
        return None

    monkeypatch.setattr(snapshot.Snapshot, "_history", loses)
    with client.tm.begin(read_only=True) as tx:
        table = tx.table(TABLE)
        with pytest.raises(StorageError, match="was dropped or truncated at"):
            table.cells(ROWS[0], b"cf:q")


@pytest.mark.parametrize("is_noted", [False, True])
def test_so_is_one_that_reads_rows_of_a_page_again(tmp_path: Path, *, is_noted: bool) -> None:
    """Those whose newest versions are too new, where the newest ones alone come in pages.

    Where clients have removed it, that is noted, and a look behind the rows tells of it.
    """

    class Crossing(SqliteStore):
        """Lets something happen before a row of the table is read."""

        def get(self, table: str, rows: Sequence[bytes], **read: Any) -> list[Row]:
            """Let it, and read."""
            if table == TABLE and changes:
                changes.pop()(client.tm)
            return super().get(table, rows, **read)

    changes: list[Callable[[TransactionManager], object]] = []
    client = Client(Crossing(str(tmp_path / "s.db")))
    fill(client.tm)
    writer = client.tm.begin()
    with client.tm.begin(read_only=True) as tx:
        writer.table(TABLE, conflict_free=True).put(ROWS[-1], {b"cf:q": b"late"})
        writer.commit()
        assert dict(tx.table(TABLE).scan(columns=[b"cf:q"]))[ROWS[-1]] == {b"cf:q": b"v"}
        changes.append(drop_and_make if is_noted else drop_unnoted_and_make)
        expected, match = (SnapshotTooOld, "truncated at") if is_noted else (StorageError, ANEW)
        with pytest.raises(expected, match=match):
            dict(tx.table(TABLE).scan())
    client.tm.close()


def test_a_read_of_many_rows_that_took_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster it may be several calls, or one that was made again."""

    class Remote(RestoringStore):
        """Reads row after row, and slowly."""

        @property
        def capabilities(self) -> Capabilities:
            """Those of a cluster."""
            return replace(super().capabilities, remote=True)

        def get(self, table: str, rows: Sequence[bytes], **read: Any) -> list[Row]:
            """Read half of them, and then the rest."""
            if table != TABLE or len(rows) == 1 or not changes:
                return super().get(table, rows, **read)
            middle = len(rows) // 2
            first = super().get(table, rows[:middle], **read)
            changes.pop()(client.tm)
            return first + super().get(table, rows[middle:], **read)

    changes: list[Callable[[TransactionManager], object]] = []
    client = Client(Remote())
    fill(client.tm)
    monkeypatch.setattr(snapshot, "LONG_READ_S", -1.0)
    with client.tm.begin(read_only=True) as tx:
        changes.append(drop_and_make)
        with pytest.raises(StorageError, match=r"dropped or truncated at .* after the snapshot"):
            tx.table(TABLE).rows(ROWS)
    with client.tm.begin(read_only=True) as tx:
        assert tx.table(TABLE).rows(ROWS) == []


# -- what it costs -----------------------------------------------------------------------------


def watched(store: Store) -> tuple[Client, FaultyStore]:
    """Return a client whose calls of the store are counted, behind its first scan."""
    faulty = FaultyStore(store)
    client = Client(faulty)
    fill(client.tm)
    with client.tm.begin(read_only=True) as tx:
        list(tx.table(TABLE).scan(batch_size=2))
    faulty.calls.clear()
    return client, faulty


def test_a_scan_of_one_read_looks_at_no_table() -> None:
    """Nor does a get: one read is of one table."""
    client, store = watched(MemoryStore())
    with client.tm.begin(read_only=True) as tx:
        assert len(list(tx.table(TABLE).scan())) == len(ROWS)
        tx.table(TABLE).rows(ROWS)
    assert dict(store.calls) == {"scan": 2, "get": 1}


def test_one_of_several_reads_looks_once() -> None:
    """At its end; one that is not read to its end does not."""
    client, store = watched(MemoryStore())
    with client.tm.begin(read_only=True) as tx:
        assert len(list(tx.table(TABLE).scan(batch_size=2))) == len(ROWS)
        list(tx.table(TABLE).scan(batch_size=2, limit=3))
    assert store.calls["schema"] == 1


class CountingStates(RestoringStore):
    """Counts how often it was asked for states."""

    asked = 0

    def table_states(self, tables: Any) -> dict[str, int]:
        """Return them."""
        self.asked += 1
        return super().table_states(tables)


def test_what_was_seen_of_a_table_is_remembered_for_a_while() -> None:
    """Where there are states: up to a fence, or for as long as a layout."""
    store = CountingStates()
    client = Client(store)
    fill(client.tm)

    def scan(batch_size: int = 100) -> int:
        before = store.asked
        with client.tm.begin(read_only=True) as tx:
            list(tx.table(TABLE).scan(batch_size=batch_size))
        return store.asked - before

    assert [scan(), scan(), scan(), scan(2), scan(2)] == [1, 0, 0, 1, 1]
    client.tm.fence(TABLE)
    assert [scan(), scan()] == [1, 0]
    client.clock.advance(5.0)  # type: ignore[attr-defined]  # turned by hand
    assert [scan(), scan()] == [1, 0]


@pytest.mark.parametrize(("long_s", "is_refused"), [(-1.0, True), (60.0, False)])
def test_on_a_cluster_a_scan_that_is_over_soon_does_not_look(
    monkeypatch: pytest.MonkeyPatch, *, long_s: float, is_refused: bool
) -> None:
    """No table is made anew in so short a time there."""

    class Remote(RestoringStore):
        """A cluster."""

        @property
        def capabilities(self) -> Capabilities:
            """As far as it is one."""
            return replace(super().capabilities, remote=True)

    monkeypatch.setattr(one_table, "LONG_READ_S", long_s)
    client = Client(Remote())
    fill(client.tm)
    with client.tm.begin(read_only=True) as tx:
        found = tx.table(TABLE).scan(batch_size=2)
        next(found)
        drop_and_make(client.tm)
        with pytest.raises(StorageError, match=ANEW) if is_refused else nullcontext():
            list(found)


@pytest.mark.parametrize("is_scan", [True, False])
def test_a_read_during_which_the_machine_was_suspended_took_long(
    monkeypatch: pytest.MonkeyPatch, *, is_scan: bool
) -> None:
    """The clock of Python's `time.monotonic` stood still, but the cluster did not."""

    class Remote(RestoringStore):
        """A cluster, of which rows are read one after the other."""

        @property
        def capabilities(self) -> Capabilities:
            """Those of one."""
            return replace(super().capabilities, remote=True)

        def get(self, table: str, rows: Sequence[bytes], **read: Any) -> list[Row]:
            """Be suspended behind the first row."""
            if table != TABLE or len(rows) == 1:
                return super().get(table, rows, **read)
            first = super().get(table, rows[:1], **read)
            suspended()
            return first + super().get(table, rows[1:], **read)

    now_s = 1.0

    def suspended() -> None:
        nonlocal now_s
        now_s += 3600.0
        drop_and_make(client.tm)

    client = Client(Remote())
    fill(client.tm)
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda *_: now_s)
    with client.tm.begin(read_only=True) as tx:
        if is_scan:
            found = tx.table(TABLE).scan(batch_size=2)
            next(found)
            suspended()
        with pytest.raises(StorageError, match="dropped"):
            list(found) if is_scan else tx.table(TABLE).rows(ROWS)


def test_a_scan_that_begins_behind_the_change_is_not_refused(client: Client) -> None:
    """However short a time ago this client has seen the table that another one has removed."""
    other = TransactionManager(client.store, client.oracle, clock=client.clock)
    for _ in range(2):
        with client.tm.begin(read_only=True) as tx:
            assert len(list(tx.table(TABLE).scan(batch_size=2))) == len(ROWS)
        make_and_fill(other)


def test_a_table_that_was_restored_meanwhile_is_another() -> None:
    """It has its incarnation, and rows of the past."""
    store = RestoringStore()
    client = Client(store)
    fill(client.tm)
    kept = store.snapshot(TABLE)
    with client.tm.begin(read_only=True) as tx:
        found = tx.table(TABLE).scan(batch_size=2)
        next(found)
        store.restore(TABLE, kept)
        with pytest.raises(StorageError, match="perhaps restored"):
            list(found)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_store_says_how_many_reads_a_scan_has_taken(kind: str, tmp_path: Path) -> None:
    """The last of them may have found nothing."""
    store = MemoryStore() if kind == "memory" else SqliteStore(str(tmp_path / "s.db"))
    client = Client(store)
    fill(client.tm)

    def reads(pages: Iterator[Any]) -> int:
        told = reads_of(pages)
        assert isinstance(told, Reads)
        for _ in pages:
            pass
        return told.count

    assert reads(store.scan(TABLE)) == 1
    assert reads(store.scan(TABLE, page_rows=4)) == 2
    assert reads(store.scan(TABLE, KeyRange(b"x", b""))) == 1
    if isinstance(store, PairsCells):
        asked: dict[str, Any] = {"columns": None, "max_version": 2**63 - 1}
        assert reads(store.scan_pairs(TABLE, KeyRange(), page_rows=1000, **asked)) == 1
        assert reads(store.scan_pairs(TABLE, KeyRange(), page_rows=4, **asked)) == 2
    client.tm.close()


# -- changes -----------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite", "thrift2", "restoring"])
def followed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    """Give a client whose store shows what was in between."""
    kinds: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "sqlite": lambda: SqliteStore(str(tmp_path / "s.db")),
        "thrift2": LikeThrift2,
        "restoring": RestoringStore,
    }
    made = Client(kinds[request.param]())
    fill(made.tm)
    yield made
    made.tm.close()


@pytest.mark.parametrize("old_values", [False, True])
def test_changes_of_two_tables_are_refused(
    followed: Client, monkeypatch: pytest.MonkeyPatch, *, old_values: bool
) -> None:
    """Before the first of them, also where earlier tables are put up with."""
    monkeypatch.setattr(window, "PAGE_ROWS", 2)
    read = window.WindowReader._pages
    done: list[int] = []

    def crossing(self: Any, *args: Any) -> Iterator[Any]:
        for page in read(self, *args):
            yield page
            if not done:
                done.append(1)
                drop_and_make(followed.tm)

    monkeypatch.setattr(window.WindowReader, "_pages", crossing)
    feed = followed.tm.changes(TABLE, since=0, old_values=old_values, spans_tables=True)
    with pytest.raises(StorageError, match=ANEW):
        next(feed)
    assert feed.offset == 0


def test_old_values_of_another_table_are_refused() -> None:
    """They are read behind the changes, which came in one page."""
    store = FaultyStore(MemoryStore())
    client = Client(store)
    fill(client.tm)
    other = TransactionManager(store.store, client.oracle, clock=client.clock)
    store.plans.append(on("get.before", lambda: drop_and_make(other), nth=1, table=TABLE))
    feed = client.tm.changes(TABLE, since=0, old_values=True, spans_tables=True)
    with pytest.raises(StorageError, match=ANEW):
        next(feed)


def test_the_state_of_two_tables_is_refused(
    followed: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of `since`, too."""
    feed = followed.tm.changes(TABLE)
    scan = type(followed.store).scan
    pairs = getattr(type(followed.store), "scan_pairs", None)

    def small(self: Any, *args: Any, **options: Any) -> Any:
        return scan(self, *args, **{**options, "page_rows": 2})

    def small_pairs(self: Any, *args: Any, **options: Any) -> Any:
        assert pairs is not None
        return pairs(self, *args, **{**options, "page_rows": 2})

    monkeypatch.setattr(type(followed.store), "scan", small)
    if pairs is not None:
        monkeypatch.setattr(type(followed.store), "scan_pairs", small_pairs)
    assert next(feed).row == ROWS[0]
    drop_and_make(followed.tm)
    with pytest.raises(StorageError, match=ANEW):
        list(feed)
    assert feed.offset is None


def test_an_offset_of_an_earlier_table_is_refused(followed: Client) -> None:
    """What was committed between the offset and the end of that table is in no feed any more."""
    feed = followed.tm.changes(TABLE)
    assert len(list(feed)) == len(ROWS)
    offset = feed.offset
    assert offset is not None
    followed.write(b"unseen", b"1")
    followed.tm.drop_table(TABLE)
    followed.tm.create_table(TABLE, ["cf", "other"])
    followed.write(b"new", b"2")
    for since in (offset, 0):
        with pytest.raises(SnapshotTooOld, match=r"table 't' was dropped or truncated at \d+") as e:
            list(followed.tm.changes(TABLE, since=since))
        assert "spans_tables=True" in str(e.value)
        assert not e.value.retryable
    spanning = followed.tm.changes(TABLE, since=offset, spans_tables=True)
    assert [change.row for change in spanning] == [b"new"]
    anew = followed.tm.changes(TABLE)
    assert [change.row for change in anew] == [b"new"]
    followed.write(b"newer", b"3")
    assert [one.row for one in followed.tm.changes(TABLE, since=anew.offset)] == [b"newer"]


def test_so_is_one_of_a_table_that_was_truncated(followed: Client) -> None:
    """Behind which the next window begins, and a row is waited for."""
    offset = followed.write(b"seen", b"1")
    admin.truncate_table(followed.tm, TABLE)
    with pytest.raises(SnapshotTooOld, match="dropped or truncated"):
        list(followed.tm.changes(TABLE, since=offset))
    with pytest.raises(SnapshotTooOld, match="dropped or truncated"):
        followed.tm.watch(TABLE, b"seen", since=offset, timeout_s=0)
    assert followed.tm.watch(TABLE, b"seen", timeout_s=0) == []


def test_the_past_of_an_earlier_table_is_refused(followed: Client) -> None:
    """A feed of the state at a moment would be that of the table that is there now: empty."""
    before = followed.tm.begin(read_only=True).start_ts
    drop_and_make(followed.tm)
    for feed in (
        followed.tm.changes(TABLE, until=before),
        followed.tm.changes(TABLE, since=before, until=before, snapshot=True),
    ):
        with pytest.raises(SnapshotTooOld, match="was dropped or truncated at"):
            list(feed)
    assert list(followed.tm.changes(TABLE, until=before, spans_tables=True)) == []


OF_THE_PAST: Final[dict[str, Callable[[TransactionalTable], object]]] = {
    "row": lambda table: table.row(ROWS[0]),
    "rows": lambda table: table.rows(ROWS),
    "scan": lambda table: list(table.scan()),
    "scan back": lambda table: list(table.scan(reverse=True)),
    "cells": lambda table: table.cells(ROWS[0], b"cf:q"),
    "Arrow": lambda table: table.read_arrow().read_all(),
}


@pytest.mark.parametrize("how", ["truncated", "made anew", "filled anew"])
@pytest.mark.parametrize("read", OF_THE_PAST)
def test_time_travel_to_an_earlier_table_is_refused(followed: Client, read: str, how: str) -> None:
    """It showed the rows of the later table that are as old: none, where there were some."""
    before = followed.tm.begin(read_only=True).start_ts
    CHANGES[how](followed.tm)
    message = f"dropped or truncated at .* the snapshot {before} sees of it went with it"
    with pytest.raises(SnapshotTooOld, match=message) as refused:
        OF_THE_PAST[read](followed.tm.snapshot(at=before).table(TABLE))
    assert not refused.value.retryable
    now = followed.tm.begin(read_only=True).start_ts
    OF_THE_PAST[read](followed.tm.snapshot(at=now).table(TABLE))


@pytest.mark.parametrize("read", OF_THE_PAST)
def test_so_is_an_earlier_table_of_a_transaction_that_looks(followed: Client, read: str) -> None:
    """Where it asks anyway whether versions were collected, and it may begin again."""
    tx = followed.tm.begin()
    table = tx.table(TABLE)
    admin.truncate_table(followed.tm, TABLE)
    followed.clock.advance(HORIZON_FREE_AGE_S)  # type: ignore[attr-defined]  # turned by hand
    with pytest.raises(SnapshotTooOld, match="begin a new transaction") as refused:
        OF_THE_PAST[read](table)
    assert refused.value.retryable


@pytest.mark.parametrize("how", ["truncated", "made anew", "filled anew"])
@pytest.mark.parametrize("read", OF_THE_PAST)
def test_and_of_one_that_has_just_begun(followed: Client, read: str, how: str) -> None:
    """Nobody waits for it before a table goes, and it would act upon what it does not see."""
    tx = followed.tm.begin()
    table = tx.table(TABLE)
    OF_THE_PAST[read](table)
    CHANGES[how](followed.tm)
    with pytest.raises(SnapshotTooOld, match="begin a new transaction") as refused:
        OF_THE_PAST[read](table)
    assert refused.value.retryable


def test_a_young_transaction_looks_only_where_it_sees_nothing(followed: Client) -> None:
    """Most reads find something, and would take twice as long."""
    tx = followed.tm.begin()
    table = tx.table(TABLE)
    looks = 0

    def count(point: Point) -> None:
        nonlocal looks
        looks += point.name == "get.before" and CONTROL_TABLE in point.tables

    store = FaultyStore(followed.store, count)
    reader = TransactionManager(store, followed.oracle, clock=followed.clock)
    table = reader.begin().table(TABLE)
    table.row(ROWS[0])  # and what the table is
    looks = 0
    assert table.row(ROWS[0])
    assert table.rows(ROWS)
    assert list(table.scan())
    assert list(table.scan(row_prefix=ROWS[0]))
    assert looks == 0
    assert table.row(b"absent") == {}
    assert looks == 1
    assert list(table.scan(row_prefix=b"absent")) == []
    assert looks == 2


def test_a_table_that_is_made_for_the_first_time_has_no_past(followed: Client) -> None:
    """Whoever asks since when, of a table or of a time."""
    since = followed.tm.begin(read_only=True).start_ts
    followed.tm.create_table("young", ["cf"])
    with followed.tm.begin() as tx:
        tx.table("young").put(b"a", {b"cf:q": b"1"})
    for offset in (0, since):
        assert [change.row for change in followed.tm.changes("young", since=offset)] == [b"a"]


def test_a_removal_that_did_not_take_place_says_nothing(followed: Client) -> None:
    """It was written down before, and the table is there: whoever was cut short, or gave up."""
    offset = followed.write(b"seen", b"1")
    stuck = TransactionManager(
        FaultyStore(followed.store, on("drop_table.before", StorageError("stuck"))),
        followed.oracle,
        clock=followed.clock,
    )
    with pytest.raises(StorageError, match="stuck"):
        stuck.drop_table(TABLE)
    with pytest.raises(StorageError, match="stuck"):
        stuck.drop_table(TABLE)
    assert [one.row for one in followed.tm.changes(TABLE, since=offset)] == [b"seen"]
    drop_and_make(followed.tm)
    with pytest.raises(SnapshotTooOld, match="dropped or truncated"):
        list(followed.tm.changes(TABLE, since=offset))
