"""The change feed: its bounds, its order, what it resolves, and what it refuses."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import omidpy
from compactor.run.local import compact
from omidpy import aio
from omidpy.base.cells import LEGACY_TOMBSTONE, encode_long
from omidpy.base.timing.ages import Sample
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import (
    ConfigError,
    NoSuchFamily,
    NoSuchTable,
    SnapshotTooOld,
    StorageError,
    StorageUnavailable,
    UsageError,
)
from omidpy.facts.commit_table import (
    TIMESTAMP_CEILING,
    TIMESTAMP_CEILING_ROW,
    TIMESTAMP_TABLE,
)
from omidpy.facts.control import ControlTable, encode_document
from omidpy.facts.watermarks import COLLECTION_HORIZON, sample_row
from omidpy.manager import TransactionManager
from omidpy.model import Cell, Change, ChangeKind, Timestamp
from omidpy.oracle.base import Begun
from omidpy.reading.changes import ordering
from omidpy.reading.changes.change import changes_of, order, simple_changes
from omidpy.reading.changes.ordering import SortedChanges
from omidpy.reading.visibility import shadow_column, sort_row
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE
from tests.machines.clients import TABLE, Client
from tests.machines.like_thrift1 import LikeThrift1

PUT: Final = ChangeKind.PUT
DELETE: Final = ChangeKind.DELETE


@pytest.fixture
def client() -> Client:
    """Return a client whose oracle counts from 50 in steps of 50."""
    return Client()


def shown(changes: object) -> list[tuple[bytes, bytes, bytes | None, str]]:
    """Return row, column, value and kind of changes."""
    assert isinstance(changes, omidpy.ChangeFeed | list)
    return [(one.row, one.column, one.value, str(one.kind)) for one in changes]


def sample(client: Client, *, elapsed_ms: int) -> None:
    """Record what the oracle records each minute."""
    document = Sample(elapsed_ms, 0, client.naive._last, "", 0, client.naive.low_watermark)
    ControlTable(client.store).write(sample_row(elapsed_ms), encode_document(document))


def collect(client: Client) -> None:
    """Drop all old versions that may go."""
    options, clock = replace(ALL_AT_ONCE, should_wait=True), ManualClock()
    ceiling = Put(*TIMESTAMP_CEILING, 1, encode_long(10**6))
    client.store.write({TIMESTAMP_TABLE: [RowMutation(TIMESTAMP_CEILING_ROW, (ceiling,))]})
    compact(client.store, options, clock=clock, sleep=clock.advance)


# -- what a transaction has changed in a row -------------------------------------------------------


def cell(qualifier: bytes, version: int, value: bytes, family: bytes = b"cf") -> Cell:
    """Return a data cell of the row `r`."""
    return Cell(b"r", family, qualifier, version, value)


def at_200(*cells: Cell) -> list[tuple[bytes, bytes | None, ChangeKind]]:
    """Return the changes of a transaction from 100 to 200, sorted."""
    committed = [(one, Timestamp(200)) for one in cells]
    found = sorted(changes_of(committed, since=0, until=500, columns=None), key=order)
    assert all((one.start_ts, one.commit_ts) == (100, 200) for one in found)
    return [(one.column, one.value, one.kind) for one in found]


def test_a_column_that_was_written_often_has_changed_once() -> None:
    """The newest checkpoint is what readers see."""
    assert at_200(cell(b"q", 100, b"a"), cell(b"q", 102, b"c"), cell(b"q", 101, b"b")) == [
        (b"cf:q", b"c", PUT)
    ]


@pytest.mark.parametrize("value", [b"", LEGACY_TOMBSTONE])
def test_a_tombstone_is_a_delete(value: bytes) -> None:
    """In either form, and also behind a put of the same transaction."""
    assert at_200(cell(b"q", 101, value), cell(b"q", 100, b"a")) == [(b"cf:q", None, DELETE)]


def test_a_family_marker_comes_first_and_hides_what_it_hides_from_readers() -> None:
    """Java writes it; what its transaction wrote above it, in another version, is seen."""
    assert at_200(
        cell(b"below", 100, b"a"),
        cell(b"equal", 101, b"b"),
        cell(b"above", 102, b"c"),
        cell(b"", 101, b""),
        cell(b"", 100, b""),
        cell(b"q", 100, b"d", b"other"),
    ) == [
        (b"cf", None, ChangeKind.DELETE_FAMILY),
        (b"cf:above", b"c", PUT),
        (b"other:q", b"d", PUT),
    ]


def test_columns_choose_and_markers_of_their_families_come_along() -> None:
    """A marker deletes the column that was asked for."""
    committed = [
        (one, Timestamp(200))
        for one in (cell(b"", 100, b""), cell(b"", 101, b"x"), cell(b"q", 101, b"y"))
    ]

    def columns(*wanted: tuple[bytes, bytes | None]) -> list[bytes]:
        found = changes_of(committed, since=0, until=500, columns=wanted)
        return sorted(one.column for one in found)

    assert columns((b"cf", b"q")) == [b"cf", b"cf:q"]
    assert columns((b"cf", b"")) == [b"cf", b"cf:"]
    assert columns((b"cf", None)) == [b"cf", b"cf:", b"cf:q"]
    assert columns((b"other", None)) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"", b"\x00", b"q", b"r", b"\xc2\x80"]),
            st.sampled_from([0, 0, 0, 1]),
            st.integers(1, 6),
            st.sampled_from([b"", b"v", LEGACY_TOMBSTONE]),
            st.sampled_from(["shadow", "shadow", "shadow", "bare", "legacy", "autocommit"]),
        ),
        max_size=6,
        unique_by=lambda one: one[:3],
    ),
    st.sampled_from([None, ((b"cf", b"q"),), ((b"cf", None),), ((b"other", None),)]),
)
def test_simple_rows_have_the_changes_of_all(
    written: list[tuple[bytes, int, int, bytes, str]],
    columns: tuple[tuple[bytes, bytes | None], ...] | None,
) -> None:
    """The short way says what the long one says, or nothing."""
    cells: list[Cell] = []
    for qualifier, checkpoint, number, value, kind in written:
        version = 100 * number + checkpoint
        one = cell(qualifier, version, value)
        cells.append(one)
        commit_ts = version if kind == "autocommit" else 100 * number + 50
        if kind in ("shadow", "autocommit"):
            cells.append(Cell(b"r", *shadow_column(one), version, encode_long(commit_ts)))
        elif kind == "legacy":
            cells.append(cell(qualifier + b"\xc2\x80", version, encode_long(commit_ts)))
    cells.sort(key=lambda one: (one.family, one.qualifier, -one.version))
    found = simple_changes(cells, after=encode_long(150), upto=encode_long(550), columns=columns)
    if found is None:
        return
    row = sort_row(cells)
    committed = [(one, row.shadows[one[1:4]]) for one in row.data]
    expected = changes_of(committed, since=150, until=550, columns=columns)
    assert sorted(found, key=order) == sorted(expected, key=order)


def test_an_ordinary_row_is_simple() -> None:
    """Or the short way is none."""
    client = Client()
    for value in (b"1", b"2"):
        with client.tm.begin() as tx:
            tx.table(TABLE).put(b"r", {b"cf:q": value, b"other:r": value})
    (row,) = client.store.get(TABLE, [b"r"])
    found = simple_changes(row, after=encode_long(0), upto=encode_long(10**6), columns=None)
    assert found is not None
    assert len(found) == 4


# -- sorting ---------------------------------------------------------------------------------------


@given(
    st.lists(
        st.builds(
            Change,
            st.binary(max_size=3),
            st.binary(max_size=3),
            st.none() | st.binary(max_size=100_000),
            st.sampled_from(ChangeKind),
            st.just(Timestamp(50)),
            st.integers(1, 5).map(lambda number: Timestamp(number * 50)),
            st.none() | st.binary(max_size=3),
        )
    ),
    st.sampled_from([1, 700, 2**25]),
)
def test_changes_come_back_sorted_whole_and_from_bounded_memory(
    changes: list[Change], most_bytes: int
) -> None:
    """Through runs of one change, of some, and none: also changes larger than what is read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "MOST_BYTES", most_bytes)
        found = SortedChanges()
        for change in changes:
            found.add([change])
            assert found._size_bytes <= most_bytes
        drained = [change for some in found.drain() for change in some]
        assert drained == sorted(changes, key=order)
        assert found._file is None, "it is closed"


def test_a_full_disk_for_temporary_files_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that knows the errors of this library goes on from its offset."""
    monkeypatch.setattr(ordering, "MOST_BYTES", 1)

    def fail(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", fail)
    client = Client()
    client.write(b"a")
    feed = client.tm.changes(TABLE, 0)
    with pytest.raises(StorageError, match=r"No space left.*TMPDIR"):
        next(feed)
    assert feed.offset == 0
    monkeypatch.undo()
    assert [change.row for change in client.tm.changes(TABLE, feed.offset)] == [b"a"]


def test_what_is_not_read_to_its_end_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By `close`, as of other iterators."""
    monkeypatch.setattr(ordering, "MOST_BYTES", 1)
    client = Client()
    client.write(b"a")
    client.write(b"b")
    feed = client.tm.changes(TABLE, 0)
    next(feed)
    file = feed._sorted._file
    assert file is not None
    feed.close()
    assert file.closed
    assert list(feed) == []


# -- windows ---------------------------------------------------------------------------------------


def test_windows_that_meet_have_every_change_once(client: Client) -> None:
    """By commit: one that runs meanwhile is in the window in which it commits."""
    begun = client.tm.begin().start_ts
    long = client.tm.begin()
    long.table(TABLE).put(b"long", {b"cf:q": b"v"})
    long.flush()
    client.write(b"a")
    first = client.tm.changes(TABLE, begun)
    assert shown(first) == [(b"a", b"cf:q", b"v", "put")]
    long.commit()
    second = client.tm.changes(TABLE, first.offset)
    (change,) = second
    assert (change.row, change.start_ts, change.commit_ts) == (
        b"long",
        long.start_ts,
        long.commit_ts,
    )
    assert change.start_ts < begun + 100 < first.until < change.commit_ts
    assert list(client.tm.changes(TABLE, second.offset)) == []


def test_a_transaction_that_began_long_before_the_window_is_in_it(client: Client) -> None:
    """C2: the low watermark of today is above its start, that of then was below.

    Whoever bounds the scan by what is known now, or by the window itself, misses it.
    """
    client.write(b"old")
    client.naive.raise_low_watermark()
    sample(client, elapsed_ms=60_000)
    long = client.tm.begin()
    long.table(TABLE).put(b"long", {b"cf:q": b"v"})
    for _ in range(20):
        client.write(b"between")
    sample(client, elapsed_ms=120_000)
    since = client.tm.begin().start_ts
    long.commit()
    client.naive.raise_low_watermark()
    sample(client, elapsed_ms=180_000)
    assert long.start_ts < client.naive.low_watermark
    assert [one.row for one in client.tm.changes(TABLE, since)] == [b"long"]


def test_what_is_older_than_the_low_watermark_of_then_is_not_read(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HBase leaves out files without such versions."""
    client.write(b"old")
    low_watermark = client.naive.raise_low_watermark()
    sample(client, elapsed_ms=60_000)
    since = client.tm.begin().start_ts
    client.write(b"new")
    asked: list[object] = []
    scan = client.store.scan

    def spying(table: str, *arguments: object, **options: object) -> object:
        if table == TABLE:
            asked.append((options["min_version"], options["max_version"]))
        return scan(table, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(client.store, "scan", spying)
    feed = client.tm.changes(TABLE, since)
    assert [one.row for one in feed] == [b"new"]
    assert asked == [(low_watermark + 1, feed.until + 1)]


def test_a_window_holds_the_newest_checkpoint_of_a_commit_at_its_end(client: Client) -> None:
    """Its version is above its transaction's start."""
    since = client.tm.begin().start_ts
    tx = client.tm.begin()
    for value in (b"1", b"2", b"3"):
        tx.table(TABLE).put(b"r", {b"cf:q": value})
        tx.flush()
    tx.commit()
    assert tx.commit_ts == tx.start_ts + 50
    assert [one.value for one in client.tm.changes(TABLE, since, tx.commit_ts)] == [b"3"]
    assert list(client.tm.changes(TABLE, since, tx.commit_ts - 1)) == []
    assert list(client.tm.changes(TABLE, tx.commit_ts)) == []
    assert len(list(client.tm.changes(TABLE, tx.commit_ts - 1))) == 1


def test_the_offset_in_the_middle_of_a_commit_is_the_one_before(client: Client) -> None:
    """Whoever goes on from there has the commit whole again, and nothing else twice."""
    since = client.tm.begin().start_ts
    client.write(b"a")
    with client.tm.begin() as tx:
        tx.table(TABLE).put(b"b", {b"cf:q": b"1", b"cf:r": b"2"})
    feed = client.tm.changes(TABLE, since)
    assert feed.offset == since
    first = next(feed)
    assert feed.offset == since
    next(feed)
    assert feed.offset == first.commit_ts
    next(feed)
    assert feed.offset == first.commit_ts
    assert list(feed) == []
    assert feed.offset == feed.until


def test_commits_without_shadow_cells_are_found_and_healed() -> None:
    """Their clients died, or are about to write them."""
    client = Client(post_commit="none")
    since = client.tm.begin().start_ts
    client.write()
    dead = client.tm.begin()
    dead.table(TABLE).put(b"dead", {b"cf:q": b"v"})
    dead.flush()
    assert client.raw_shadows() == {}
    assert [one.row for one in client.tm.changes(TABLE, since)] == [b"r"]
    assert len(client.raw_shadows()) == 1


def test_what_a_deposed_oracle_may_still_decide_is_forbidden_first(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its commit entry would appear behind a window that is over."""
    since = client.tm.begin().start_ts
    dead = client.tm.begin()
    dead.table(TABLE).put(b"dead", {b"cf:q": b"v"})
    dead.flush()
    begin = client.naive.begin

    def of_its_successor(*, hold_s: float | None = None) -> Begun:
        begun = begin(hold_s=hold_s)
        return begun._replace(epoch=begun.start_ts)

    monkeypatch.setattr(client.naive, "begin", of_its_successor)
    assert list(client.tm.changes(TABLE, since)) == []
    assert dead.start_ts in client.entries()


def test_writes_without_conflicts_come_in_the_order_of_commits(client: Client) -> None:
    """A reader sees the one that began later: `start_ts` tells."""
    since = client.tm.begin().start_ts
    early, late = client.tm.begin(), client.tm.begin()
    for tx, value in ((late, b"late"), (early, b"early")):
        tx.table(TABLE, conflict_free=True).put(b"r", {b"cf:q": value})
        tx.commit()
    found = list(client.tm.changes(TABLE, since))
    assert [one.value for one in found] == [b"late", b"early"]
    assert max(found, key=lambda one: one.start_ts).value == client.read()[b"cf:q"]


def test_cells_that_were_committed_by_themselves_are_changes(client: Client) -> None:
    """Their shadow cell has their own version: of Omid's clients, or of data that was adopted."""
    since = client.tm.begin().start_ts
    version = client.tm.begin().start_ts
    alone = Cell(b"r", b"cf", b"q", version, b"v")
    puts = (
        Put(b"cf", b"q", version, b"v"),
        Put(*shadow_column(alone), version, encode_long(version)),
    )
    client.store.write({TABLE: [RowMutation(b"r", puts)]})
    assert [one.commit_ts for one in client.tm.changes(TABLE, since)] == [version]


def test_old_values_are_what_was_there_right_before(client: Client) -> None:
    """Also where that was written long before the window, or two commits of it meet in a row."""
    client.write(value=b"0")
    since = client.naive.raise_low_watermark()
    sample(client, elapsed_ms=60_000)
    client.write(value=b"1")
    with client.tm.begin() as tx:
        tx.table(TABLE).delete(b"r")
        tx.table(TABLE).put(b"s", {b"cf:q": b"2"})
    client.write(value=b"3")
    found = [
        (one.row, one.old, one.value) for one in client.tm.changes(TABLE, since, old_values=True)
    ]
    assert found == [
        (b"r", b"0", b"1"),
        (b"r", b"1", None),
        (b"s", None, b"2"),
        (b"r", None, b"3"),
    ]


def test_rows_and_columns_may_be_chosen(client: Client) -> None:
    """As of a scan."""
    since = client.tm.begin().start_ts
    for row in (b"a", b"ab", b"b", b"c"):
        with client.tm.begin() as tx:
            tx.table(TABLE).put(row, {b"cf:q": b"1", b"cf:r": b"2", b"other:q": b"3"})

    def columns(**options: object) -> list[tuple[bytes, bytes]]:
        feed = client.tm.changes(TABLE, since, **options)  # type: ignore[arg-type]
        return [(one.row, one.column) for one in feed]

    assert columns(row_prefix=b"a", columns=[b"cf:r"]) == [(b"a", b"cf:r"), (b"ab", b"cf:r")]
    assert columns(row_start=b"ab", row_stop=b"c", columns=[b"other"]) == [
        (b"ab", b"other:q"),
        (b"b", b"other:q"),
    ]
    assert columns(row_start=b"c", old_values=True, columns=[b"cf"]) == [
        (b"c", b"cf:q"),
        (b"c", b"cf:r"),
    ]


# -- the state first -------------------------------------------------------------------------------


def test_without_a_beginning_it_is_the_table_as_it_is(client: Client) -> None:
    """With its offset, to go on from."""
    client.write(b"a", b"old")
    start_ts = client.write(b"a", b"new")
    client.write(b"gone")
    with client.tm.begin() as tx:
        tx.table(TABLE).delete(b"gone")
    feed = client.tm.changes(TABLE)
    assert feed.offset is None
    (state,) = feed
    assert state == Change(
        b"a", b"cf:q", b"new", ChangeKind.SNAPSHOT, Timestamp(start_ts), Timestamp(start_ts + 50)
    )
    assert feed.offset == feed.until
    client.write(b"b")
    assert shown(client.tm.changes(TABLE, feed.offset)) == [(b"b", b"cf:q", b"v", "put")]


def test_the_state_at_an_offset_and_then_the_changes(client: Client) -> None:
    """A commit at the offset is in the state, and in it alone."""
    client.write(b"a", b"1")
    with client.tm.begin() as tx:
        tx.table(TABLE).put(b"b", {b"cf:q": b"2"})
    client.write(b"a", b"3")
    assert tx.commit_ts is not None
    feed = client.tm.changes(TABLE, tx.commit_ts, snapshot=True)
    assert shown(feed) == [
        (b"a", b"cf:q", b"1", "snapshot"),
        (b"b", b"cf:q", b"2", "snapshot"),
        (b"a", b"cf:q", b"3", "put"),
    ]
    assert shown(client.tm.changes(TABLE, until=tx.commit_ts)) == [
        (b"a", b"cf:q", b"1", "snapshot"),
        (b"b", b"cf:q", b"2", "snapshot"),
    ]


# -- what is refused -------------------------------------------------------------------------------


def test_below_the_collection_horizon_nothing_is_told(client: Client) -> None:
    """And what to do about it; at the horizon itself everything is still there."""
    since = client.tm.begin().start_ts
    client.write(value=b"1")
    client.write(value=b"2")
    horizon = client.naive.raise_low_watermark()
    ControlTable(client.store).raise_number(COLLECTION_HORIZON, horizon)
    feed = client.tm.changes(TABLE, since)
    with pytest.raises(SnapshotTooOld, match=r"go on from the offset.*--retention") as caught:
        next(feed)
    assert not caught.value.retryable
    with pytest.raises(SnapshotTooOld):
        list(client.tm.changes(TABLE, horizon - 2))
    assert [one.commit_ts for one in client.tm.changes(TABLE, horizon - 1)] == [horizon]


def test_a_horizon_that_passes_while_the_feed_reads_ends_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C3: before anything is told."""
    since = client.tm.begin().start_ts
    client.write(value=b"1")
    horizon = client.naive.raise_low_watermark()
    scan = client.store.scan

    def overtaken(table: str, *arguments: object, **options: object) -> object:
        pages = list(scan(table, *arguments, **options))  # type: ignore[arg-type]
        if table == TABLE:
            ControlTable(client.store).raise_number(COLLECTION_HORIZON, horizon)
        return iter(pages)

    monkeypatch.setattr(client.store, "scan", overtaken)
    with pytest.raises(SnapshotTooOld):
        next(client.tm.changes(TABLE, since))


def test_who_comes_rarely_holds_the_offset(client: Client) -> None:
    """A compaction then keeps what was committed above it."""
    first = client.tm.changes(TABLE)
    list(first)
    assert first.offset is not None
    client.naive.raise_low_watermark()
    with client.tm.hold(first.offset, for_s=3600):
        client.write(value=b"1")
        client.write(value=b"2")
        client.naive.raise_low_watermark()
        collect(client)
        assert [one.value for one in client.tm.changes(TABLE, first.offset)] == [b"1", b"2"]
    collect(client)
    with pytest.raises(SnapshotTooOld):
        next(client.tm.changes(TABLE, first.offset))


def test_bad_arguments_are_refused_before_anything_is_read(client: Client) -> None:
    """Each says what is wrong."""
    now = client.tm.begin().start_ts
    changes = client.tm.changes
    with pytest.raises(UsageError, match="later than"):
        changes(TABLE, now, now - 50)
    with pytest.raises(UsageError, match="future"):
        changes(TABLE, now + 10**6)
    with pytest.raises(UsageError, match="time zone"):
        changes(TABLE, datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point
    with pytest.raises(TypeError):
        changes(TABLE, "yesterday")  # type: ignore[arg-type]
    with pytest.raises(NoSuchTable):
        changes("nothing", now)
    with pytest.raises(NoSuchFamily):
        changes(TABLE, now, columns=[b"nothing:q"])
    with pytest.raises(UsageError, match="row_prefix"):
        changes(TABLE, now, row_prefix=b"a", row_start=b"a")


def test_a_gateway_that_shows_one_version_is_refused() -> None:
    """What was in between would be missed."""
    store = MemoryStore()
    client = Client(store)
    tm = TransactionManager(LikeThrift1(store), client.naive, clock=ManualClock())
    with pytest.raises(ConfigError, match="newest version of a cell alone"):
        next(tm.changes(TABLE, 50))


def test_moments_are_offsets_too(tmp_path: Path) -> None:
    """Where timestamps are world time."""
    with omidpy.connect(f"sqlite:///{tmp_path}/s.db") as tm:
        tm.create_table("t", ["cf"])
        with tm.begin() as tx:
            tx.table("t").put(b"r", {b"cf:q": b"v"})
        assert len(list(tm.changes("t", timedelta(minutes=5)))) == 1
        moment = datetime.now(UTC) - timedelta(minutes=5)
        assert len(list(tm.changes("t", moment, datetime.now(UTC)))) == 1
        assert list(tm.changes("t", timedelta(minutes=5), moment + timedelta(minutes=1))) == []


# -- while others write ----------------------------------------------------------------------------


def test_windows_have_no_gap_while_writers_run(tmp_path: Path) -> None:
    """Every commit comes once, in order, with its cells together."""
    with omidpy.connect(f"sqlite:///{tmp_path}/s.db") as tm:
        tm.create_table("t", ["cf"])
        begun = tm.begin().start_ts
        told: dict[int, set[bytes]] = {}
        is_over = threading.Event()

        def write(writer: int) -> None:
            for number in range(40):
                with tm.begin() as tx:
                    rows = {b"%d-%d-%d" % (writer, number, one) for one in range(3)}
                    for row in rows:
                        tx.table("t").put(row, {b"cf:q": b"%d" % number})
                assert tx.commit_ts is not None
                told[tx.commit_ts] = rows

        writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for writer in writers:
            writer.start()
        found: list[Change] = []
        offset: int | None = begun
        while not is_over.is_set() or offset is None:
            if not any(writer.is_alive() for writer in writers):
                is_over.set()  # one window more
            feed = tm.changes("t", offset)
            found += feed
            offset = feed.offset
        seen: dict[int, set[bytes]] = {}
        for one in found:
            seen.setdefault(one.commit_ts, set()).add(one.row)
        assert seen == told
        assert len(found) == 360
        assert found == sorted(found, key=order)


# -- watching a row --------------------------------------------------------------------------------


def test_a_watch_returns_what_has_changed_since(client: Client) -> None:
    """At once, where that was before."""
    since = client.tm.begin().start_ts
    client.write(value=b"1")
    client.write(value=b"2")
    client.write(b"another")
    found = client.tm.watch(TABLE, b"r", since=since)
    assert [one.value for one in found] == [b"1", b"2"]
    later = client.tm.watch(TABLE, b"r", since=found[-1].commit_ts, timeout_s=0)
    assert later == []
    assert client.tm.watch(TABLE, b"r", timeout_s=0) == []
    assert client.tm.watch(TABLE, b"r", since=since, columns=[b"cf:other"], timeout_s=0) == []


def test_a_watch_waits(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pauses that grow; whoever began before it, and commits later, is seen."""
    long = client.tm.begin()
    long.table(TABLE).put(b"r", {b"cf:q": b"v"})
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        client.clock.advance(seconds)  # type: ignore[attr-defined]
        if len(pauses) == 10:
            long.commit()

    monkeypatch.setattr("omidpy.manager.time.sleep", pause)
    (change,) = client.tm.watch(TABLE, b"r", timeout_s=60)
    assert change.commit_ts == long.commit_ts
    assert len(pauses) == 10
    assert max(pauses) <= 1
    assert pauses[9] > 4 * pauses[0]


def test_a_watch_ends_when_its_time_is_over(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked once more then."""
    since_s = client.clock.monotonic_s()
    monkeypatch.setattr("omidpy.manager.time.sleep", client.clock.advance)  # type: ignore[attr-defined]
    assert client.tm.watch(TABLE, b"r", timeout_s=5) == []
    assert client.clock.monotonic_s() - since_s == pytest.approx(5)
    for timeout_s in (-1, float("nan")):
        with pytest.raises(UsageError, match="negative"):
            client.tm.watch(TABLE, b"r", timeout_s=timeout_s)


def test_a_watch_that_comes_too_late_is_refused(client: Client) -> None:
    """What it waits for may have been collected."""
    since = client.tm.begin().start_ts
    client.write()
    horizon = client.naive.raise_low_watermark()
    ControlTable(client.store).raise_number(COLLECTION_HORIZON, horizon)
    with pytest.raises(SnapshotTooOld):
        client.tm.watch(TABLE, b"r", since=since, timeout_s=0)
    assert client.tm.watch(TABLE, b"r", timeout_s=0) == []


def test_a_commit_right_behind_the_beginning_of_a_watch_is_seen(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long ago it began, between the question of when it is and the first look."""
    long = client.tm.begin()
    long.table(TABLE).put(b"r", {b"cf:q": b"v"})
    begin = client.naive.begin

    def then_commit(*, hold_s: float | None = None) -> Begun:
        begun = begin(hold_s=hold_s)
        if long.commit_ts is None:
            long.commit()
        return begun

    monkeypatch.setattr(client.naive, "begin", then_commit)
    assert [one.commit_ts for one in client.tm.watch(TABLE, b"r", timeout_s=0)] == [long.commit_ts]


def test_asyncio_has_the_same(client: Client) -> None:
    """The offset goes with what was handed on, not with what was fetched; a wait ends early."""

    async def main() -> None:
        tm = aio.TransactionManager(client.tm)
        since = client.tm.begin().start_ts
        for row in (b"a", b"b", b"c", b"d"):
            client.write(row)
        feed = tm.changes(TABLE, since)
        offsets = [(one.row, feed.offset) async for one in feed]
        whole = client.tm.changes(TABLE, since)
        assert offsets == [(one.row, whole.offset) for one in whole]
        assert feed.offset == feed.until
        assert await anext(feed, None) is None
        await feed.aclose()
        assert [one.row for one in await tm.watch(TABLE, b"b", since=since)] == [b"b"]
        waiting = asyncio.ensure_future(tm.watch(TABLE, b"z"))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        soon = asyncio.ensure_future(tm.watch(TABLE, b"z"))
        await asyncio.sleep(0.05)
        async with tm.begin() as tx:
            await tx.table(TABLE).put(b"z", {b"cf:q": b"v"})
        assert [one.value for one in await soon] == [b"v"]

    asyncio.run(main())


def test_tasks_that_share_a_feed_get_each_change_once(client: Client) -> None:
    """One waits for its turn while another has part of a page left, which must not be replaced."""

    async def main() -> None:
        tm = aio.TransactionManager(client.tm)
        since = client.tm.begin().start_ts
        rows = [b"%02d" % number for number in range(20)]
        for row in rows:
            client.write(row)
        feed = tm.changes(TABLE, since)
        got: list[bytes] = []

        async def take() -> None:
            async for change in feed:
                got.append(change.row)
                await asyncio.sleep(0)

        async with asyncio.timeout(20):
            await asyncio.gather(*(take() for _ in range(3)))
        assert got == rows
        assert feed.offset == feed.until

    asyncio.run(main())


def test_a_feed_in_asyncio_hands_out_what_came_before_a_failure(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the blocking one does: its offset does not pass over what nobody has seen."""
    for row in (b"a", b"b", b"c", b"d"):
        client.write(row)
    drain = SortedChanges.drain

    def fails(self: SortedChanges) -> Iterator[list[Change]]:
        for page in drain(self):
            yield page[:2]
            raise StorageUnavailable("the store is gone")

    monkeypatch.setattr(SortedChanges, "drain", fails)

    async def main() -> None:
        feed = aio.TransactionManager(client.tm).changes(TABLE, 0)
        got: list[tuple[bytes, int | None]] = []
        for _ in range(2):
            change = await anext(feed)
            got.append((change.row, feed.offset))
        blocking = client.tm.changes(TABLE, 0)
        assert got == [(next(blocking).row, blocking.offset) for _ in range(2)]
        with pytest.raises(StorageUnavailable):
            await anext(feed)
        with pytest.raises(StorageUnavailable):
            next(blocking)
        for _ in range(2):  # another task that shares it, or a loop over what is left
            with pytest.raises(StorageError, match="has failed before, or was interrupted"):
                await anext(feed)
            with pytest.raises(StorageError, match="has failed before, or was interrupted"):
                next(blocking)
        assert feed.offset == blocking.offset
        blocking.close()
        assert next(blocking, None) is None

    asyncio.run(main())


def test_a_feed_that_was_closed_in_asyncio_passes_over_nothing(client: Client) -> None:
    """What was fetched and not handed out is neither handed out any more nor counted as seen."""

    async def main() -> None:
        since = client.tm.begin().start_ts
        for row in (b"a", b"b", b"c", b"d"):
            client.write(row)
        feed = aio.TransactionManager(client.tm).changes(TABLE, since)
        assert [(await anext(feed)).row for _ in range(2)] == [b"a", b"b"]
        offset = feed.offset
        await feed.aclose()
        assert await anext(feed, None) is None
        assert feed.offset == offset

    asyncio.run(main())
