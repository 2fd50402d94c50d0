"""What the oracle writes, in which order, and what it finds when it starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from omidpy.base.cells import LOW_WATERMARK_ROW, commit_row, encode_long
from omidpy.base.commit_facts import INVALID
from omidpy.base.timing.ages import Sample
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import ConfigError, LeaseLost, StorageUnavailable
from omidpy.facts.commit_table import (
    COMMIT_TABLE,
    EPOCH_FACT,
    FIRST_TIMESTAMP_FACT,
    LOW_WATERMARK,
    LOW_WATERMARK_FACT,
    TIMESTAMP_CEILING,
    TIMESTAMP_CEILING_ROW,
    TIMESTAMP_TABLE,
    CommitTable,
    create_system_tables,
    read_java_low_watermark,
    read_leading_low_watermark,
    read_low_watermark,
)
from omidpy.facts.control import ControlTable
from omidpy.facts.leadership import LEASE_FACT
from omidpy.facts.watermarks import COLLECTION_HORIZON, PRUNE_HORIZON, Watermarks
from omidpy.model import MAX_VERSION, Timestamp
from omidpy.storage.base import (
    Capabilities,
    Condition,
    Entries,
    GuardedMutation,
    Put,
    RowMutation,
    singly,
)
from omidpy.storage.memory import MemoryStore
from omidpy.storage.options import ChecksBehind
from omidpy.wire.messages import TimestampResponse
from tso.core.events import Batch, Commits, Deferred, Now, Recall
from tso.core.settings import Inherited, Settings
from tso.durable.lease import Lease
from tso.durable.persist import (
    MAX_AHEAD_COUNT,
    MAX_PUT_AHEAD_COUNT,
    NoPersistence,
    StorePersistence,
)

INCREMENTAL = Settings(timestamps="incremental")
WORLD = Settings(timestamps="world")
DAY_MS = 24 * 3600 * 1000


class PlainStore(MemoryStore):
    """A store without guarded batches and locks, as HBase is; it notes what was written when."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []
        self.after_commits: Callable[[], None] = lambda: None

    @property
    def capabilities(self) -> Capabilities:
        """Lack what HBase lacks."""
        return replace(super().capabilities, guarded_batches=False, process_locks=False)

    def write(self, batch: Any, *, durable: bool = False) -> None:
        """Note the tables, then write."""
        self.log.extend(f"write {table}" for table in batch)
        super().write(batch, durable=durable)
        if COMMIT_TABLE in batch:
            self.after_commits()

    def check_and_mutate(self, table: str, *arguments: Any, **options: Any) -> bool:
        """Note the table, then write."""
        self.log.append(f"swap {table}")
        was_applied = super().check_and_mutate(table, *arguments, **options)
        if table == COMMIT_TABLE:
            self.after_commits()
        return was_applied

    def get(self, table: str, rows: Sequence[bytes], **options: Any) -> Any:
        """Note the rows, then read."""
        self.log.extend(f"read {row!r}" for row in rows)
        return super().get(table, rows, **options)


class AheadStore(PlainStore):
    """A store that may be asked ahead, as HBase's Thrift2 gateway; it notes that it was."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Callable[[], None] = lambda: None
        """Called behind the changes of a call ahead, before what is checked."""

    def write_then_check(
        self, changes: Sequence[GuardedMutation], check: Condition
    ) -> tuple[list[bool], bool]:
        """Do one thing after another."""
        self.log.append("ahead")
        applied = []
        for table, mutation, condition in changes:
            assert condition is not None
            place = (table, mutation.row, condition.column, condition.expected)
            applied.append(self.check_and_mutate(*place, mutation))
        self.failure()
        return applied, self._is_so(check)

    def put_then_check(self, entries: Entries, checks: Sequence[Condition]) -> list[bool]:
        """Do one thing after another."""
        self.log.append("put ahead")
        self.write({entries.table: [one.mutation for one in singly([entries])]})
        self.failure()
        return [self._is_so(check) for check in checks]

    def _is_so(self, check: Condition) -> bool:
        (row,) = self.get(check.table, [check.row], columns=(check.column,), max_versions=1)
        return (row[0].value if row else None) == check.expected


class Oracle:
    """A lease, its persistence and what they inherited."""

    def __init__(
        self,
        store: MemoryStore,
        settings: Settings = INCREMENTAL,
        *,
        clock: ManualClock | None = None,
        accept_clock: bool = False,
    ) -> None:
        """Start on a store."""
        clock = ManualClock() if clock is None else clock
        create_system_tables(store)
        self.lease = Lease(store, holder="me", clock=clock)
        assert self.lease.try_acquire() is None
        self.persistence = StorePersistence(store, self.lease)
        now = Now(clock.wall_ms(), clock.monotonic_s())
        try:
            self.inherited: Inherited = self.persistence.start(
                settings, now, accept_clock=accept_clock
            )
        except ConfigError:
            self.lease.release()
            raise

    def ended(self) -> Inherited:
        """Give the lease up, and return what was inherited."""
        self.lease.release()
        return self.inherited


@pytest.fixture(params=[MemoryStore, PlainStore, AheadStore])
def store(request: pytest.FixtureRequest) -> MemoryStore:
    """Return a store with guarded batches, and two without."""
    found: MemoryStore = request.param()
    return found


def ceiling_of(store: MemoryStore) -> bytes | None:
    """Return the stored ceiling as Java would read it."""
    row = store.get(TIMESTAMP_TABLE, [TIMESTAMP_CEILING_ROW])[0]
    assert len(row) <= 1, "old ceilings are not kept"
    return row[0].value if row else None


def leave_ceiling(store: MemoryStore, ceiling: int, *, version: int = 1_700_000_000_000) -> None:
    """Write a ceiling as Java's oracle does, at a server's time."""
    create_system_tables(store)
    put = Put(*TIMESTAMP_CEILING, version, encode_long(ceiling))
    store.write({TIMESTAMP_TABLE: [RowMutation(TIMESTAMP_CEILING_ROW, [put])]})


# -- start -----------------------------------------------------------------------------------------


def test_the_first_timestamp_is_recorded_once(store: MemoryStore) -> None:
    """A cell below it is foreign: reported by the compactor, never dropped."""
    assert Oracle(store).ended() == Inherited(epoch=0, ceiling=50 + INCREMENTAL.lookahead)
    facts = ControlTable(store)
    assert facts.read_number(FIRST_TIMESTAMP_FACT) == 50
    assert Oracle(store).inherited.epoch == 50 + INCREMENTAL.lookahead
    assert facts.read_number(FIRST_TIMESTAMP_FACT) == 50


def test_world_time_starts_at_the_clock(store: MemoryStore) -> None:
    """Nothing at or below the epoch was ever issued; the first timestamp is the time."""
    clock = ManualClock()
    inherited = Oracle(store, WORLD, clock=clock).inherited
    now_ts = clock.wall_ms() * 1_000_000
    assert inherited == Inherited(epoch=now_ts - 50, ceiling=now_ts + 1_000_000_000)
    assert ControlTable(store).read_number(FIRST_TIMESTAMP_FACT) == now_ts


def test_the_stored_ceiling_becomes_epoch_and_watermark(store: MemoryStore) -> None:
    """I4: nothing begun before can commit; and the ceiling above is ours alone."""
    leave_ceiling(store, 5000)
    inherited = Oracle(store).inherited
    assert inherited.epoch == 5000
    facts = ControlTable(store)
    assert facts.read_number(EPOCH_FACT) == facts.read_number(LOW_WATERMARK_FACT) == 5000
    assert ceiling_of(store) == encode_long(inherited.ceiling)
    assert inherited.ceiling == 5050 + INCREMENTAL.lookahead


@pytest.mark.parametrize("omids", [4950, 5000])
def test_the_low_watermark_that_omid_left_is_not_undercut(store: MemoryStore, omids: int) -> None:
    """The greater of the two is believed, so that nothing at or below it may commit by ours (I4).

    Above the ceiling it is if Omid came to keep its timestamps elsewhere, and that is refused.
    """
    leave_ceiling(store, 5000)
    put = Put(*LOW_WATERMARK, 1, encode_long(omids))
    store.write({COMMIT_TABLE: [RowMutation(LOW_WATERMARK_ROW, [put])]})
    inherited = Oracle(store).ended()
    assert inherited.epoch == 5000
    assert read_leading_low_watermark(store) == (5000, False)
    assert inherited.ceiling > 5000


def test_whoever_took_over_last_is_believed() -> None:
    """Omid's oracle may take over from ours and give back; ours does not move meanwhile."""
    store = MemoryStore()
    create_system_tables(store)
    assert read_leading_low_watermark(store) == (0, False)
    row = RowMutation(LOW_WATERMARK_ROW, [Put(*LOW_WATERMARK, 1, encode_long(1000))])
    store.write({COMMIT_TABLE: [row]})
    assert read_leading_low_watermark(store) == (1000, True)
    ControlTable(store).raise_number(LOW_WATERMARK_FACT, 1000)
    assert read_leading_low_watermark(store) == (1000, False)
    row = RowMutation(LOW_WATERMARK_ROW, [Put(*LOW_WATERMARK, 1, encode_long(2000))])
    store.write({COMMIT_TABLE: [row]})
    assert read_leading_low_watermark(store) == (2000, True)
    assert read_low_watermark(store) == 2000
    ControlTable(store).raise_number(LOW_WATERMARK_FACT, 3000)
    assert read_leading_low_watermark(store) == (3000, False)


def test_a_store_that_omid_served_gets_a_longer_age(store: MemoryStore) -> None:
    """24 h: Java's transactions have no limit.  Its cells are not foreign."""
    leave_ceiling(store, 5000)
    inherited = Oracle(store).ended()
    assert inherited.follows_omid
    assert inherited.transaction_age_ms(None) == DAY_MS
    assert inherited.transaction_age_ms(5) == 5
    assert ControlTable(store).read_number(FIRST_TIMESTAMP_FACT) == 50
    assert Oracle(store).inherited.follows_omid
    fresh = Oracle(MemoryStore()).inherited
    assert not fresh.follows_omid
    assert fresh.transaction_age_ms(None) == 900_000


def test_an_instance_that_died_between_first_timestamp_and_ceiling_does_no_harm(
    store: MemoryStore,
) -> None:
    """Its record stands, and no timestamp is issued below it, even if the clock went back."""
    create_system_tables(store)
    clock = ManualClock()
    first = clock.wall_ms() * 1_000_000
    ControlTable(store).write(FIRST_TIMESTAMP_FACT, encode_long(first))
    clock.step_wall(milliseconds=-DAY_MS)
    assert Oracle(store, WORLD, clock=clock).inherited.epoch == first - 50


def test_lost_timestamps_are_refused(store: MemoryStore) -> None:
    """A restored or emptied timestamp table would issue timestamps twice."""
    create_system_tables(store)
    ControlTable(store).raise_number(LOW_WATERMARK_FACT, 10_000)
    leave_ceiling(store, 9950)
    with pytest.raises(ConfigError, match="OMID_TIMESTAMP_TABLE was lost"):
        Oracle(store)


def test_a_predecessor_that_still_writes_loses_no_timestamps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It raised ceiling and low watermark between our reads, and its successor asked for help."""
    store = PlainStore()
    leave_ceiling(store, 5000)
    read = store.get

    def write_behind_the_first_read(table: str, rows: Sequence[bytes], **options: Any) -> Any:
        found = read(table, rows, **options)
        if rows[0] in (TIMESTAMP_CEILING_ROW, LOW_WATERMARK_FACT):
            monkeypatch.undo()
            leave_ceiling(store, 10_000, version=1_800_000_000_000)
            ControlTable(store).raise_number(LOW_WATERMARK_FACT, 9950)
        return found

    monkeypatch.setattr(store, "get", write_behind_the_first_read)
    assert Oracle(store).inherited.epoch == 10_000


@pytest.mark.parametrize(("lead_ms", "is_refused"), [(30 * DAY_MS, False), (30 * DAY_MS + 1, True)])
def test_a_clock_a_month_ahead_is_refused(
    store: MemoryStore, lead_ms: int, *, is_refused: bool
) -> None:
    """Unless the operator says that it is right."""
    clock = ManualClock()
    leave_ceiling(store, (clock.wall_ms() - lead_ms) * 1_000_000)
    if is_refused:
        with pytest.raises(ConfigError, match=r"30 days above.*--accept-clock"):
            Oracle(store, WORLD, clock=clock)
    Oracle(store, WORLD, clock=clock, accept_clock=is_refused)


def test_a_fresh_store_gets_no_first_timestamp_by_a_clock_that_was_never_set(
    store: MemoryStore,
) -> None:
    """A machine without a battery begins in 1970; what it issued would pass for counted numbers."""
    clock = ManualClock(wall_ms=20_000)
    with pytest.raises(ConfigError, match="was not set"):
        Oracle(store, WORLD, clock=clock)
    assert ControlTable(store).read(FIRST_TIMESTAMP_FACT) is None
    clock.step_wall(milliseconds=1_700_000_000_000)
    first = Oracle(store, WORLD, clock=clock).ended()
    # Once there are timestamps they go on, whatever the clock says.
    assert Oracle(store, WORLD, clock=ManualClock(wall_ms=20_000)).inherited.epoch == first.ceiling


@pytest.mark.parametrize("settings", [INCREMENTAL, WORLD], ids=["incremental", "world"])
@pytest.mark.parametrize("extra", [1, 8, 49])
def test_a_ceiling_between_two_steps_moves_no_timestamp_off_them(
    store: MemoryStore, settings: Settings, extra: int
) -> None:
    """Clients take an oracle that answers with such a one for none, and for ever."""
    ceiling = 2_000_000_000_000_000_000
    leave_ceiling(store, ceiling + extra)
    inherited = Oracle(store, settings).inherited
    assert (inherited.epoch, inherited.ceiling % 50) == (ceiling + 50, 0)


@pytest.mark.parametrize("settings", [INCREMENTAL, WORLD], ids=["incremental", "world"])
@pytest.mark.parametrize("ceiling", [2**63 - 1, 2**63 - 8, 2**63 - 100_000])
def test_a_ceiling_at_the_end_of_all_numbers_is_refused(
    store: MemoryStore, settings: Settings, ceiling: int
) -> None:
    """There is no timestamp above it; nothing is written."""
    leave_ceiling(store, ceiling)
    with pytest.raises(ConfigError, match="no timestamp is left above"):
        Oracle(store, settings, accept_clock=True)
    assert ceiling_of(store) == encode_long(ceiling)


def test_an_instance_loses_when_another_moves_the_ceiling(store: MemoryStore) -> None:
    """A zombie, or a Java oracle beside ours: one of the two must go."""
    oracle = Oracle(store)
    leave_ceiling(store, 10**9, version=1_800_000_000_000)
    with pytest.raises(LeaseLost, match="another oracle serves the same store"):
        oracle.persistence.flush(Batch(ceiling=2 * 10**9))


def test_an_instance_that_lost_the_lease_while_it_started_raises_no_watermark() -> None:
    """The ceiling it finds is its successor's, who goes on committing below it (I4)."""
    store, clock = PlainStore(), ManualClock()
    create_system_tables(store)
    slow, successor = (Lease(store, holder=name, clock=clock) for name in ("slow", "successor"))
    assert slow.try_acquire() is None
    assert successor.try_acquire() is not None
    clock.advance(11)
    assert successor.try_acquire() is None
    now = Now(clock.wall_ms(), clock.monotonic_s())
    inherited = StorePersistence(store, successor).start(INCREMENTAL, now, accept_clock=False)
    assert inherited.ceiling > inherited.epoch
    with pytest.raises(LeaseLost):
        StorePersistence(store, slow).start(INCREMENTAL, now, accept_clock=False)
    facts = ControlTable(store)
    assert facts.read_number(LOW_WATERMARK_FACT) == inherited.epoch
    assert ceiling_of(store) == encode_long(inherited.ceiling), "the successor is not disturbed"


def test_an_instance_that_loses_the_lease_under_its_ceiling_raises_no_watermark() -> None:
    """Looked at behind the ceiling: whoever comes later then begins above our epoch."""
    store = PlainStore()
    create_system_tables(store)
    lease = Lease(store, holder="me", clock=ManualClock())
    assert lease.try_acquire() is None
    persistence = StorePersistence(store, lease)
    swap = store.check_and_mutate

    def steal_before(table: str, *arguments: Any, **options: Any) -> bool:
        if table == TIMESTAMP_TABLE:
            steal(store)
        return swap(table, *arguments, **options)

    store.check_and_mutate = steal_before  # type: ignore[method-assign]  # only here
    leave_ceiling(store, 5000)
    with pytest.raises(LeaseLost):
        persistence.start(INCREMENTAL, Now(0, 0.0), accept_clock=False)
    assert ControlTable(store).read_number(LOW_WATERMARK_FACT) is None


@pytest.mark.parametrize("initial", [None, 100_000])
def test_an_instance_that_stood_still_in_a_fresh_store_asks_for_no_operator(
    initial: int | None,
) -> None:
    """The commits that it finds without a ceiling below them are those of its successor."""
    store, clock = PlainStore(), ManualClock()
    create_system_tables(store)
    slow, successor = (Lease(store, holder=name, clock=clock) for name in ("slow", "successor"))
    assert slow.try_acquire() is None
    persistence = StorePersistence(store, slow, initial_timestamp=initial)
    now = Now(clock.wall_ms(), clock.monotonic_s())
    get = store.get

    def stand_still(table: str, rows: Sequence[bytes], **options: Any) -> Any:
        found = get(table, rows, **options)
        if table == TIMESTAMP_TABLE:
            store.get = get  # type: ignore[method-assign]  # once
            assert successor.try_acquire() is not None
            clock.advance(11)
            assert successor.try_acquire() is None
            other = StorePersistence(store, successor)
            begun = other.start(WORLD, now, accept_clock=False)
            entry = (begun.ceiling - 100, begun.ceiling - 50)
            other.flush(Batch(commits=Commits([entry])))
        return found

    store.get = stand_still  # type: ignore[method-assign]  # behind the ceiling, which is not there
    with pytest.raises(LeaseLost):
        persistence.start(WORLD, now, accept_clock=False)


# -- batches ---------------------------------------------------------------------------------------


def test_a_batch_becomes_durable_whole(store: MemoryStore) -> None:
    """Entries, invalidations, ceiling, watermark and sample."""
    oracle = Oracle(store)
    sample = Sample(7, 8, 9)
    batch: Batch[str] = Batch(
        commits=Commits([(100, 200), (150, 250)]),
        invalidations=[300],
        lookups=[100, 400],
        ceiling=10**9,
        low_watermark=50,
        sample=sample,
    )
    result = oracle.persistence.flush(batch)
    assert result.refused == frozenset()
    assert result.entries == {100: 200, 300: INVALID, 400: None}
    entries = CommitTable(store).read([Timestamp(t) for t in (100, 150, 300)])
    assert entries == {100: 200, 150: 250, 300: INVALID}
    assert ceiling_of(store) == encode_long(10**9)
    assert ControlTable(store).read_number(LOW_WATERMARK_FACT) == 50
    assert Watermarks(ControlTable(store)).samples() == [sample]
    assert store.get(COMMIT_TABLE, [commit_row(100)])[0][0].value == b"\x64"


def test_a_batch_may_be_written_twice(store: MemoryStore) -> None:
    """Its first answer was lost; the second time everything is there already."""
    oracle = Oracle(store)
    batch: Batch[str] = Batch(commits=Commits([(100, 200)]), invalidations=[300], ceiling=10**9)
    first = oracle.persistence.flush(batch)
    # What a process believes whose write was applied while its answer was lost.
    oracle.persistence._ceiling.value = encode_long(123)
    assert oracle.persistence.flush(batch) == first


def test_forgotten_samples_are_removed(store: MemoryStore) -> None:
    """And those that stay are found by the next instance."""
    oracle = Oracle(store)
    oracle.persistence.flush(Batch(sample=Sample(1, 1, 1)))
    oracle.persistence.flush(Batch(sample=Sample(2, 2, 2), forgotten_samples=[1]))
    oracle.ended()
    inherited = Oracle(store).inherited
    assert inherited.samples == (2,)
    assert inherited.last_sample == Sample(2, 2, 2)


def test_lookups_come_with_the_prune_horizon(store: MemoryStore) -> None:
    """Below it a missing entry means nothing."""
    oracle = Oracle(store)
    ControlTable(store).raise_number(PRUNE_HORIZON, 777)
    assert oracle.persistence.flush(Batch(lookups=[100])).prune_horizon == 777


def test_a_prune_horizon_that_cannot_be_read_ends_no_oracle(store: MemoryStore) -> None:
    """Any entry may be gone; whoever asked gets no answer, and others go on."""
    oracle = Oracle(store)
    ControlTable(store).write(PRUNE_HORIZON, b"garb")
    result = oracle.persistence.flush(Batch(commits=Commits([(100, 200)]), lookups=[300]))
    assert result.prune_horizon == MAX_VERSION
    assert CommitTable(store).read([Timestamp(100)]) == {100: 200}


@pytest.mark.parametrize("fact", [COLLECTION_HORIZON, LOW_WATERMARK_FACT, None])
def test_no_number_that_cannot_be_read_ends_an_oracle(
    store: MemoryStore, fact: bytes | None
) -> None:
    """It comes by each minute; its own low watermark it knows, and Omid's just does not follow."""
    oracle = Oracle(store)
    if fact is None:
        put = Put(*LOW_WATERMARK, 1, b"garb")
        store.write({COMMIT_TABLE: [RowMutation(LOW_WATERMARK_ROW, [put])]})
    else:
        ControlTable(store).write(fact, b"garb")
    oracle.persistence.flush(Batch(low_watermark=50, sample=Sample(7, 8, 9)))
    assert ControlTable(store).read_number(LOW_WATERMARK_FACT) == 50
    assert Watermarks(ControlTable(store)).samples() == [Sample(7, 8, 9)]


def test_an_entry_that_cannot_be_read_is_no_answer(store: MemoryStore) -> None:
    """One rotten cell must not end the oracle."""
    oracle = Oracle(store)
    put = Put(b"F", b"C", 100, b"\xff\xff")
    store.write({COMMIT_TABLE: [RowMutation(commit_row(100), [put])]})
    oracle.persistence.flush(Batch(commits=Commits([(150, 200)])))
    assert oracle.persistence.flush(Batch(lookups=[100, 150])).entries == {100: None, 150: 200}


def test_an_invalidation_that_comes_too_late_reports_the_commit(store: MemoryStore) -> None:
    """The entry decides, whoever wrote it."""
    oracle = Oracle(store)
    oracle.persistence.flush(Batch(commits=Commits([(100, 200)])))
    assert oracle.persistence.flush(Batch(invalidations=[100])).entries == {100: 200}


def test_a_commit_is_not_written_where_an_invalidation_is() -> None:
    """On a store with conditions; on HBase the invalidation wins when it is read."""
    store = MemoryStore()
    oracle = Oracle(store)
    CommitTable(store).invalidate(Timestamp(100))
    result = oracle.persistence.flush(Batch(commits=Commits([(50, 150), (100, 200)])))
    assert result.refused == {100}
    assert CommitTable(store).read([Timestamp(50), Timestamp(100)]) == {50: 150, 100: INVALID}


def test_a_lost_lease_writes_nothing_where_batches_are_guarded() -> None:
    """The record is part of the transaction, so a zombie cannot be in time."""
    store = MemoryStore()
    oracle = Oracle(store)
    steal(store)
    with pytest.raises(LeaseLost, match="process 7 on h"):
        oracle.persistence.flush(Batch(commits=Commits([(100, 200)]), ceiling=10**9))
    assert CommitTable(store).read([Timestamp(100)]) == {100: None}


@pytest.mark.parametrize("count", [1, 2])
def test_the_lease_is_read_after_the_commits_where_they_are_plain_writes(count: int) -> None:
    """The record, not a clock: what was written after the loss is not answered."""
    store = PlainStore()
    oracle = Oracle(store)
    store.log.clear()
    commits = [(100, 200), (150, 250)][:count]
    oracle.persistence.flush(Batch(commits=Commits(commits), low_watermark=50))
    first, second, third = (
        store.log.index(f"{'swap' if count == 1 else 'write'} {COMMIT_TABLE}"),
        store.log.index(f"read {LEASE_FACT!r}"),
        store.log.index("swap OMIDPY_COMPACTION"),
    )
    assert first < second < third
    store.after_commits = lambda: steal(store)
    more = [(300, 400), (350, 450)][:count]
    with pytest.raises(LeaseLost):
        oracle.persistence.flush(Batch(commits=Commits(more), low_watermark=100))
    assert ControlTable(store).read_number(LOW_WATERMARK_FACT) == 50


@pytest.mark.parametrize(
    "batch",
    [
        Batch(answers=[("a", TimestampResponse(Timestamp(50), Timestamp(0)))]),
        Batch(answers=[("a", Deferred(Recall.COMMIT_FROM_TABLE, 100))], lookups=[100]),
    ],
)
def test_whatever_is_answered_is_answered_under_the_lease(batch: Batch[str]) -> None:
    """Also what writes nothing: a successor may have committed what a snapshot must show."""
    store = PlainStore()
    oracle = Oracle(store)
    oracle.persistence.flush(batch)
    steal(store)
    with pytest.raises(LeaseLost):
        oracle.persistence.flush(batch)


def test_an_answer_under_a_moved_ceiling_needs_no_other_look() -> None:
    """A successor would have moved it before; and begins should not cost a round trip more."""
    store = PlainStore()
    oracle = Oracle(store)
    store.log.clear()
    begun = TimestampResponse(Timestamp(50), Timestamp(0))
    oracle.persistence.flush(Batch(answers=[("a", begun)], ceiling=10**9))
    assert store.log == [f"swap {TIMESTAMP_TABLE}"]


def test_a_lone_commit_costs_one_write_and_one_read_where_writes_are_plain() -> None:
    """On HBase each is a round trip that the client waits for."""
    store = PlainStore()
    oracle = Oracle(store)
    store.log.clear()
    oracle.persistence.flush(Batch(commits=Commits([(100, 200)])))
    assert store.log == [f"swap {COMMIT_TABLE}", f"read {LEASE_FACT!r}"]


def test_a_renewal_that_is_due_takes_the_place_of_the_read() -> None:
    """A compare-and-set of the record proves as much, and nobody waits for both."""
    store, clock = PlainStore(), ManualClock()
    oracle = Oracle(store, clock=clock)
    clock.advance(2.5)
    store.log.clear()
    oracle.persistence.flush(Batch(commits=Commits([(100, 200)])))
    assert store.log == [f"swap {COMMIT_TABLE}", "swap OMIDPY_COMPACTION"]
    clock.advance(2.5)
    steal(store)
    with pytest.raises(LeaseLost):
        oracle.persistence.flush(Batch(commits=Commits([(150, 250)])))


def test_a_batch_that_cannot_be_written_still_renews_the_lease() -> None:
    """Else a failing commit table would bring a standby that can do no better."""
    store, clock = PlainStore(), ManualClock()
    oracle = Oracle(store, clock=clock)
    before = ControlTable(store).read(LEASE_FACT)

    def fail() -> None:
        raise StorageUnavailable("full")

    store.after_commits = fail
    for advance_s, is_renewed in ((4.9, False), (0.1, True)):
        clock.advance(advance_s)
        with pytest.raises(StorageUnavailable):
            oracle.persistence.flush(Batch(commits=Commits([(100, 200)])))
        assert (ControlTable(store).read(LEASE_FACT) != before) is is_renewed


@pytest.mark.parametrize("commits", [[(100, 200)], [(50, 150), (100, 200)]])
def test_an_invalidation_that_a_reader_planted_refuses_a_plain_write_too(
    store: MemoryStore, commits: list[tuple[int, int]]
) -> None:
    """Omid's clients plant them below a fence or after a lost reply, unseen by the oracle (I8)."""
    oracle = Oracle(store)
    CommitTable(store).invalidate(Timestamp(100))
    assert oracle.persistence.flush(Batch(commits=Commits(commits))).refused == {100}
    assert CommitTable(store).read([Timestamp(100)]) == {100: INVALID}


def test_an_invalidation_comes_before_the_entry_or_not_at_all() -> None:
    """What is read behind a plain write is final: nobody plants one where an entry is."""
    store = PlainStore()
    oracle = Oracle(store)
    planted: list[bool] = []
    store.after_commits = lambda: planted.extend(
        CommitTable(bare(store)).invalidate(Timestamp(start_ts)) for start_ts in (100, 150)
    )
    result = oracle.persistence.flush(Batch(commits=Commits([(100, 200), (150, 250)])))
    assert planted == [False, False]
    assert result.refused == frozenset()


def test_what_is_read_behind_a_batch_shows_how_long_its_rows_are() -> None:
    """A store on HBase asks for rows one by one while it saw none with cells: 500 calls a batch."""

    class Watched(PlainStore):
        read_rows: ClassVar[list[Any]] = []

        def get(self, table: str, rows: Sequence[bytes], **options: Any) -> Any:
            """Keep what is found in the commit table."""
            found = super().get(table, rows, **options)
            self.read_rows.extend(found if table == COMMIT_TABLE else ())
            return found

    oracle = Oracle(Watched())
    Watched.read_rows.clear()
    oracle.persistence.flush(Batch(commits=Commits(commits_of(9))))
    assert [len(row) for row in Watched.read_rows] == [1] * 9


def batch_without_omid(count: int) -> Batch[str]:
    """Return a batch for an oracle that has no clients of Omid's."""
    return Batch(commits=Commits(commits_of(count)), may_be_invalidated=False)


def test_the_rows_of_a_batch_are_not_read_where_nobody_can_invalidate_them() -> None:
    """Lease and ceiling say that no later epoch was published; two rows in place of hundreds."""
    store = PlainStore()
    oracle = Oracle(store)
    store.log.clear()
    oracle.persistence.flush(batch_without_omid(9))
    first, *reads = store.log
    assert first == f"write {COMMIT_TABLE}"
    assert sorted(reads) == [f"read {TIMESTAMP_CEILING_ROW!r}", f"read {LEASE_FACT!r}"]


@pytest.mark.parametrize("kind", [PlainStore, AheadStore])
def test_an_instance_of_omids_that_knows_no_lease_ends_ours(kind: type[PlainStore]) -> None:
    """Its clients know its epoch, and forbid what ours commits below it."""
    store = kind()
    oracle = Oracle(store)
    oracle.persistence.flush(batch_without_omid(9))
    store.after_commits = lambda: leave_ceiling(store, 10**12)
    with pytest.raises(LeaseLost, match="is 1000000000000, which this oracle did not write"):
        oracle.persistence.flush(batch_without_omid(9))


@pytest.mark.parametrize("kind", [PlainStore, AheadStore])
def test_who_loses_the_lease_under_a_batch_without_omids_clients_answers_nothing(
    kind: type[PlainStore],
) -> None:
    """A successor's clients may invalidate from here on."""
    store = kind()
    oracle = Oracle(store)
    store.after_commits = lambda: steal(store)
    with pytest.raises(LeaseLost, match="process 7 on h"):
        oracle.persistence.flush(batch_without_omid(9))


def bare(store: PlainStore) -> MemoryStore:
    """Return the same cells without the notes and hooks."""
    view = MemoryStore()
    view.__dict__ = store.__dict__
    return view


# -- without a wait in between ---------------------------------------------------------------------


def commits_of(count: int) -> list[tuple[int, int]]:
    """Return that many commits."""
    return [(100 * number, 100 * number + 50) for number in range(1, count + 1)]


def test_a_few_entries_and_the_look_at_the_lease_are_asked_for_at_once() -> None:
    """A round trip less for whoever commits; more of them are quicker as one call."""
    store = AheadStore()
    assert isinstance(store, ChecksBehind)
    assert not isinstance(PlainStore(), ChecksBehind)
    oracle = Oracle(store)
    for count in range(1, MAX_AHEAD_COUNT + 1):
        store.log.clear()
        oracle.persistence.flush(
            Batch(commits=Commits(commits_of(count)), low_watermark=count * 50)
        )
        assert store.log[:-2] == [
            "ahead",
            *[f"swap {COMMIT_TABLE}"] * count,
            f"read {LEASE_FACT!r}",
        ]
        assert store.log[-1] == "swap OMIDPY_COMPACTION", "the watermark comes last"
    store.log.clear()
    oracle.persistence.flush(Batch(commits=Commits(commits_of(MAX_AHEAD_COUNT + 1))))
    assert "ahead" not in store.log
    starts = [Timestamp(start_ts) for start_ts, _ in commits_of(MAX_AHEAD_COUNT + 1)]
    assert dict(CommitTable(store).read(starts)) == dict(commits_of(MAX_AHEAD_COUNT + 1))


@pytest.mark.parametrize("count", [1, 2])
def test_a_lease_that_was_lost_under_calls_ahead_answers_nothing(count: int) -> None:
    """The record is read behind the entries (I8); and no watermark is raised (I4)."""
    store = AheadStore()
    oracle = Oracle(store)
    store.failure = lambda: steal(store)
    with pytest.raises(LeaseLost, match="process 7 on h"):
        oracle.persistence.flush(Batch(commits=Commits(commits_of(count)), low_watermark=50))
    assert ControlTable(store).read_number(LOW_WATERMARK_FACT) == 0


@pytest.mark.parametrize("count", [MAX_AHEAD_COUNT + 1, MAX_PUT_AHEAD_COUNT])
def test_entries_that_nobody_can_invalidate_go_ahead_of_the_looks_behind_them(count: int) -> None:
    """However many, up to where HBase may take long: one round trip."""
    store = AheadStore()
    oracle = Oracle(store)
    store.log.clear()
    oracle.persistence.flush(batch_without_omid(count))
    looks = [f"read {LEASE_FACT!r}", f"read {TIMESTAMP_CEILING_ROW!r}"]
    assert store.log == ["put ahead", f"write {COMMIT_TABLE}", *looks]
    assert CommitTable(store).read([Timestamp(100), Timestamp(100 * count)]) == {
        100: 150,
        100 * count: 100 * count + 50,
    }
    store.log.clear()
    oracle.persistence.flush(batch_without_omid(MAX_PUT_AHEAD_COUNT + 1))
    assert store.log[0] == f"write {COMMIT_TABLE}"


def test_puts_ahead_that_failed_are_made_again() -> None:
    """They may have been applied; the second attempt looks as well."""
    store = AheadStore()
    oracle = Oracle(store)

    def fail() -> None:
        raise StorageUnavailable("broken")

    store.failure = fail
    oracle.persistence.flush(batch_without_omid(9))
    assert store.log.count(f"write {COMMIT_TABLE}") == 2
    store.after_commits = lambda: steal(store)
    with pytest.raises(LeaseLost):
        oracle.persistence.flush(batch_without_omid(9))


def test_calls_ahead_that_failed_are_made_again_one_by_one() -> None:
    """They may have been applied, which does no harm; those in steps wait and repeat."""
    store = AheadStore()
    oracle = Oracle(store)

    def fail() -> None:
        raise StorageUnavailable("broken")

    store.failure = fail
    CommitTable(store).invalidate(Timestamp(200))
    store.log.clear()
    assert oracle.persistence.flush(Batch(commits=Commits(commits_of(2)))).refused == {200}
    assert store.log.index("ahead") < store.log.index(f"write {COMMIT_TABLE}")
    assert CommitTable(store).read([Timestamp(100), Timestamp(200)]) == {100: 150, 200: INVALID}


@pytest.mark.parametrize("count", [1, 2])
def test_a_lease_that_was_lost_while_calls_ahead_failed_is_noticed(count: int) -> None:
    """The second attempt looks as well."""
    store = AheadStore()
    oracle = Oracle(store)

    def fail() -> None:
        steal(store)
        raise StorageUnavailable("broken")

    store.failure = fail
    with pytest.raises(LeaseLost):
        oracle.persistence.flush(Batch(commits=Commits(commits_of(count))))


def test_what_must_come_between_the_entries_and_the_look_is_written_step_by_step() -> None:
    """The record is read behind everything that it speaks for; or renewed, where that is due."""
    store, clock = AheadStore(), ManualClock()
    oracle = Oracle(store, clock=clock)
    store.log.clear()
    oracle.persistence.flush(Batch(commits=Commits([(100, 200)]), invalidations=[300]))
    assert store.log == [f"swap {COMMIT_TABLE}"] * 2 + [f"read {LEASE_FACT!r}"]
    store.log.clear()
    clock.advance(2.5)
    oracle.persistence.flush(Batch(commits=Commits([(150, 250)])))
    assert store.log == [f"swap {COMMIT_TABLE}", "swap OMIDPY_COMPACTION"]
    store.log.clear()
    oracle.persistence.flush(Batch(commits=Commits([(400, 450)])))
    assert store.log[0] == "ahead"
    oracle.lease.release()
    assert oracle.lease.proof is None
    with pytest.raises(LeaseLost):
        oracle.persistence.flush(Batch(commits=Commits([(500, 550)])))


def test_the_low_watermark_never_falls_where_it_is_written_by_itself() -> None:
    """A zombie may write long after its successor has raised it."""
    store = PlainStore()
    oracle = Oracle(store)
    ControlTable(store).raise_number(LOW_WATERMARK_FACT, 5000)
    oracle.persistence.flush(Batch(low_watermark=100))
    assert ControlTable(store).read_number(LOW_WATERMARK_FACT) == 5000


def steal(store: MemoryStore) -> None:
    """Let another instance have the lease."""
    record = (
        b'{"holder":"other","address":"h:1","epoch":1,"pid":7,"host":"h","period_ms":1,'
        b'"sequence":9}'
    )
    ControlTable(store).write(LEASE_FACT, record)


# -- what Java reads -------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 500, 9000])
def test_omids_watermark_row_is_left_as_it_is(store: MemoryStore, left: int) -> None:
    """Java's coprocessor drops versions by their starts, which no watermark makes right (I10)."""
    oracle = Oracle(store)
    if left:
        put = Put(*LOW_WATERMARK, 1_700_000_000_000, encode_long(left))
        store.write({COMMIT_TABLE: [RowMutation(LOW_WATERMARK_ROW, [put])]})
    ControlTable(store).raise_number(COLLECTION_HORIZON, 5000)
    oracle.persistence.flush(Batch(low_watermark=4000, sample=Sample(1, 1, 1)))
    assert read_java_low_watermark(store) == left


# -- trouble ---------------------------------------------------------------------------------------


def test_a_store_that_fails_is_the_shells_business(store: MemoryStore) -> None:
    """The error passes through; the batch can be flushed again."""
    oracle = Oracle(store)
    original, name = store.write_guarded, "write_guarded"
    if isinstance(store, PlainStore):
        original = store.check_and_mutate  # type: ignore[assignment]  # both are methods
        name = "check_and_mutate"

    def fail(*_: object, **__: object) -> list[GuardedMutation]:
        raise StorageUnavailable("full")

    setattr(store, name, fail)
    with pytest.raises(StorageUnavailable):
        oracle.persistence.flush(Batch(commits=Commits([(100, 200)])))
    setattr(store, name, original)
    oracle.persistence.flush(Batch(commits=Commits([(100, 200)])))
    assert CommitTable(store).read([Timestamp(100)]) == {100: 200}


def test_no_persistence_claims_what_it_must() -> None:
    """For benchmarks: every batch is durable at once, and nothing is ever found."""
    nothing = NoPersistence()
    inherited = nothing.start(INCREMENTAL, Now(5, 0.0), accept_clock=False)
    assert inherited == Inherited(epoch=0, ceiling=INCREMENTAL.lookahead)
    result = nothing.flush(Batch(lookups=[50], invalidations=[100]))
    assert result.entries == {50: None, 100: INVALID}
