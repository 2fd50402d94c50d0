"""The oracle in this process: its threads, its store, and what goes wrong there."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import omidpy
from omidpy.base.commit_facts import INVALID
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import (
    ConfigError,
    LeaseLost,
    OracleError,
    OracleUnavailable,
    StorageUnavailable,
    UsageError,
)
from omidpy.facts.commit_table import (
    EPOCH_FACT,
    CommitTable,
    create_system_tables,
    read_low_watermark,
)
from omidpy.facts.control import ControlTable
from omidpy.facts.leadership import LEASE_FACT, lease_address, read_lease
from omidpy.facts.watermarks import Watermarks
from omidpy.model import CellId, TableId, Timestamp
from omidpy.oracle.base import AbortReason, CommitGranted, CommitRefused, InvalidationVerdict
from omidpy.storage.base import Capabilities, Row
from omidpy.storage.memory import MemoryStore
from tests.machines.interrupts.lines import Interrupt, Interrupter, interrupt
from tests.machines.threads import refuse_threads
from tests.machines.waiting import wait_for
from tso import driver, embedded
from tso.core import machine
from tso.durable.lease import Lease
from tso.embedded import EmbeddedOracle


class WatchedStore(MemoryStore):
    """A store whose durable batches can be counted, held up or made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.batch_count = 0
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None

    def write_guarded(self, *arguments: Any, **options: Any) -> list[bool] | None:
        """Do as told, then what the store does, then as told again."""
        if not options.get("durable") or "guard" not in options:
            return super().write_guarded(*arguments, **options)
        self.batch_count += 1
        self.before()
        applied = super().write_guarded(*arguments, **options)
        self.after()
        return applied


def fail() -> None:
    """Stand for a full disk."""
    raise StorageUnavailable("the disk is full")


@pytest.fixture
def store() -> WatchedStore:
    """Return an empty store."""
    return WatchedStore()


@pytest.fixture
def oracle(store: WatchedStore) -> Iterator[EmbeddedOracle]:
    """Run an oracle on the store, with a clock that stands still."""
    oracle = EmbeddedOracle(store, clock=ManualClock())
    yield oracle
    oracle.close()


def commit(oracle: EmbeddedOracle, start_ts: Timestamp, *cells: int, **options: bool) -> Any:
    """Commit some cells of one table."""
    return oracle.commit(start_ts, [CellId(cell) for cell in cells], [TableId(1)], **options)


def test_a_commit_is_in_the_table_when_it_is_answered(
    store: WatchedStore, oracle: EmbeddedOracle
) -> None:
    """I2, through the real store."""
    start_ts = oracle.begin().start_ts
    verdict = commit(oracle, start_ts, 1)
    assert isinstance(verdict, CommitGranted)
    assert CommitTable(store).read((start_ts,)) == {start_ts: verdict.commit_ts}
    assert commit(oracle, start_ts, 1, is_retry=True) == verdict


def test_begin_tells_epoch_and_watermark(store: WatchedStore, oracle: EmbeddedOracle) -> None:
    """A reader may invalidate what began before either."""
    begun = oracle.begin()
    assert begun.epoch == oracle.epoch < begun.start_ts
    assert begun.low_watermark == read_low_watermark(store)
    assert ControlTable(store).read_number(EPOCH_FACT) == oracle.epoch


@pytest.mark.parametrize("nothing", [0, -1, float("nan"), float("inf")])
def test_a_hold_of_nothing_is_refused(oracle: EmbeddedOracle, nothing: float) -> None:
    """And one of very many years is granted as far as any."""
    with pytest.raises(UsageError, match="holds nothing"):
        oracle.begin(hold_s=nothing)
    assert oracle.begin(hold_s=1e300).start_ts < oracle.begin().start_ts


def test_refusals_carry_reason_and_cells(oracle: EmbeddedOracle) -> None:
    """In this process nothing is lost on the way."""
    first, second, third = (oracle.begin().start_ts for _ in range(3))
    commit(oracle, first, 1, 2)
    conflict = commit(oracle, second, 2, 3)
    assert conflict == CommitRefused(AbortReason.CONFLICT, (CellId(2),))
    assert oracle.fence(TableId(1)) > third
    assert commit(oracle, third, 9) == CommitRefused(AbortReason.FENCE)


def test_invalidations_reach_the_table(store: WatchedStore, oracle: EmbeddedOracle) -> None:
    """All three answers of `invalidate`."""
    open_ts, done_ts = oracle.begin().start_ts, oracle.begin().start_ts
    verdict = commit(oracle, done_ts, 1)
    assert oracle.invalidate(open_ts) is InvalidationVerdict.INVALIDATED
    assert CommitTable(store).read((open_ts,)) == {open_ts: INVALID}
    assert commit(oracle, open_ts, 5) == CommitRefused(AbortReason.INVALIDATED)
    assert oracle.invalidate(done_ts) == verdict
    assert oracle.invalidate(Timestamp(50)) is InvalidationVerdict.UNKNOWN


def test_a_commit_forbidden_in_the_table_is_refused(
    store: WatchedStore, oracle: EmbeddedOracle
) -> None:
    """The condition is checked in the transaction that would write the entry."""
    start_ts = oracle.begin().start_ts
    CommitTable(store).invalidate(start_ts)
    assert commit(oracle, start_ts, 1) == CommitRefused(AbortReason.INVALIDATED)
    assert CommitTable(store).read((start_ts,)) == {start_ts: INVALID}


def test_commits_that_meet_share_a_batch(store: WatchedStore, oracle: EmbeddedOracle) -> None:
    """Group commit: while one flush is under way the others gather for the next."""
    starts = [oracle.begin().start_ts for _ in range(9)]
    under_way, go_on = threading.Event(), threading.Event()

    def hold_up() -> None:
        under_way.set()
        assert go_on.wait(10)

    store.before = hold_up
    verdicts: list[Any] = []
    threads = [
        threading.Thread(target=lambda n=n, s=s: verdicts.append(commit(oracle, s, n)))
        for n, s in enumerate(starts)
    ]
    threads[0].start()
    assert under_way.wait(10)
    before = store.batch_count
    for thread in threads[1:]:
        thread.start()
    while oracle._driver._inbox.qsize() < len(starts) - 1:
        assert threads[0].is_alive()
    store.before = lambda: None
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert store.batch_count == before + 1
    assert len({verdict.commit_ts for verdict in verdicts}) == len(starts)


def test_many_threads_get_many_timestamps(oracle: EmbeddedOracle) -> None:
    """I1 under contention, with commits in between."""
    seen: list[int] = []

    def work(number: int) -> None:
        for turn in range(50):
            start_ts = oracle.begin().start_ts
            verdict = commit(oracle, start_ts, number * 1000 + turn)
            seen.extend((start_ts, verdict.commit_ts))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(seen) == len(set(seen)) == 800


def test_a_thread_that_is_interrupted_while_it_waits_is_not_missed(
    store: WatchedStore, oracle: EmbeddedOracle
) -> None:
    """Its request is decided all the same, and the answer goes nowhere."""
    start_ts = oracle.begin().start_ts
    under_way, go_on = threading.Event(), threading.Event()

    def hold_up() -> None:
        under_way.set()
        assert go_on.wait(10)

    store.before = hold_up
    interrupted: list[bool] = []

    def ask() -> None:
        try:
            commit(oracle, start_ts, 1)
        except Interrupt:
            interrupted.append(True)

    thread = threading.Thread(target=ask)
    thread.start()
    assert under_way.wait(10)
    interrupt(thread)
    thread.join(10)
    assert interrupted
    store.before = lambda: None
    go_on.set()
    verdict = commit(oracle, start_ts, 1, is_retry=True)
    assert CommitTable(store).read((start_ts,)) == {start_ts: verdict.commit_ts}


# -- a store in trouble ----------------------------------------------------------------------------


def test_a_commit_that_cannot_be_written_has_an_open_outcome(
    store: WatchedStore, oracle: EmbeddedOracle
) -> None:
    """The batch stays under way; the retry is answered when it has been repeated."""
    start_ts = oracle.begin().start_ts
    store.before = fail
    with pytest.raises(OracleUnavailable, match="the disk is full") as caught:
        commit(oracle, start_ts, 1)
    assert not caught.value.retryable
    store.before = lambda: None
    verdict = commit(oracle, start_ts, 1, is_retry=True)
    assert isinstance(verdict, CommitGranted)
    assert CommitTable(store).read((start_ts,)) == {start_ts: verdict.commit_ts}


def test_a_batch_that_was_written_without_an_answer_is_repeated_harmlessly(
    store: WatchedStore, oracle: EmbeddedOracle
) -> None:
    """Including its ceiling, which then is what we wanted but not what we expected."""
    clock = oracle._clock
    assert isinstance(clock, ManualClock)
    start_ts = oracle.begin().start_ts
    clock.advance(5)
    store.after = fail
    with pytest.raises(OracleUnavailable):
        commit(oracle, start_ts, 1)
    store.after = lambda: None
    assert oracle.begin().start_ts > start_ts
    verdict = commit(oracle, start_ts, 1, is_retry=True)
    assert CommitTable(store).read((start_ts,)) == {start_ts: verdict.commit_ts}


def test_begins_behind_a_failed_commit_do_not_overtake_it(
    store: WatchedStore, oracle: EmbeddedOracle
) -> None:
    """I2: the commit may be decided for good and still not be in the table."""
    start_ts = oracle.begin().start_ts
    store.before = fail
    with pytest.raises(OracleUnavailable):
        commit(oracle, start_ts, 1)
    with pytest.raises(OracleUnavailable) as caught:
        oracle.begin()
    assert caught.value.retryable


def test_a_lost_lease_ends_the_oracle(store: WatchedStore) -> None:
    """The record is the guard of every batch, so a zombie writes nothing."""
    oracle = EmbeddedOracle(store, clock=ManualClock())
    start_ts = oracle.begin().start_ts
    ControlTable(store).write(
        LEASE_FACT,
        b'{"holder":"x","address":"h:1","epoch":1,"pid":7,"host":"h","period_ms":1,"sequence":1}',
    )
    with pytest.raises(OracleUnavailable, match="process 7 on h, at h:1"):
        commit(oracle, start_ts, 1)
    with pytest.raises(LeaseLost):
        oracle.begin()
    assert CommitTable(store).read((start_ts,)) == {start_ts: None}
    oracle.close()


# -- what nobody foresaw ---------------------------------------------------------------------------


def test_whatever_escapes_the_machine_ends_the_oracle(
    store: WatchedStore, oracle: EmbeddedOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it decided and what it wrote may differ by now, so it must not answer on."""
    start_ts = oracle.begin().start_ts

    def fail_to_decide(*_: object) -> None:
        raise KeyError("a slot")

    monkeypatch.setattr(oracle._driver.machine, "_decide", fail_to_decide)
    with pytest.raises(OracleUnavailable, match=r"broke an invariant.*a slot") as caught:
        commit(oracle, start_ts, 1)
    assert not caught.value.retryable, "it may have been decided"
    for ask in (oracle.begin, lambda: commit(oracle, start_ts, 1)):
        with pytest.raises(OracleError, match=r"answers nothing any more.*a slot") as refused:
            ask()
        assert not refused.value.was_sent
    oracle.close()
    assert read_lease(store) is None


def test_everybody_who_waits_is_told_that_the_oracle_ends(
    store: WatchedStore, oracle: EmbeddedOracle
) -> None:
    """Those in the batch, and those behind it whom nobody has heard."""
    starts = [oracle.begin().start_ts for _ in range(3)]
    under_way, go_on = threading.Event(), threading.Event()
    errors: list[OracleError] = []

    def fail_later() -> None:
        under_way.set()
        assert go_on.wait(10)
        raise RuntimeError("nobody foresaw this")

    def ask(start_ts: Timestamp) -> None:
        try:
            commit(oracle, start_ts, 1)
        except OracleError as error:
            errors.append(error)

    store.before = fail_later
    threads = [threading.Thread(target=ask, args=(start_ts,)) for start_ts in starts]
    threads[0].start()
    assert under_way.wait(10)
    for thread in threads[1:]:
        thread.start()
    while oracle._driver._inbox.qsize() < 2:
        assert threads[0].is_alive()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert len(errors) == 3
    assert all("nobody foresaw this" in str(error) for error in errors)
    assert [error.was_sent for error in errors].count(True) == 1, "the others were not heard"


def test_who_asks_as_a_chore_ends_the_oracle_was_not_heard(
    store: WatchedStore, oracle: EmbeddedOracle
) -> None:
    """They came in one go: the oracle knew of nobody that waited, and the outcome was unknown."""
    first, second = oracle.begin().start_ts, oracle.begin().start_ts
    under_way, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        under_way.set()
        assert go_on.wait(10)

    store.before = wait
    busy = threading.Thread(target=commit, args=(oracle, first, 1))
    busy.start()
    assert under_way.wait(10)
    errors: list[OracleError] = []

    def ask() -> None:
        try:
            commit(oracle, second, 2)
        except OracleError as error:
            errors.append(error)

    oracle._driver._inbox.put((None, LeaseLost("it is another's")))
    late = threading.Thread(target=ask)
    late.start()
    while oracle._driver._inbox.qsize() < 2:
        assert late.is_alive()
    go_on.set()
    busy.join(10)
    late.join(10)
    (error,) = errors
    assert isinstance(error, LeaseLost)
    assert not error.was_sent


class Watched(SimpleQueue[Any]):
    """A queue of questions; whoever puts the next one in does something before going on."""

    then: Callable[[], object] | None = None

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:  # noqa: FBT001, FBT002 - SimpleQueue's
        """Put it in."""
        super().put(item, block, timeout)
        then, self.then = self.then, None
        if then is not None:
            then()


def test_a_commit_that_was_decided_beside_the_end_is_answered(
    monkeypatch: pytest.MonkeyPatch, store: WatchedStore
) -> None:
    """It was told to be certainly not committed, ran again, and so was applied twice."""
    monkeypatch.setattr(driver, "SimpleQueue", Watched)
    oracle = EmbeddedOracle(store, clock=ManualClock())
    start_ts = oracle.begin().start_ts
    oracle._driver._inbox.then = oracle.close  # type: ignore[attr-defined]
    answer = commit(oracle, start_ts, 1)
    assert isinstance(answer, CommitGranted)
    assert CommitTable(store).read((start_ts,)) == {start_ts: answer.commit_ts}


def test_a_commit_beside_the_end_that_was_not_written_is_unknown(
    monkeypatch: pytest.MonkeyPatch, store: WatchedStore
) -> None:
    """It was heard, and the end of the oracle says nothing of what became of it."""
    monkeypatch.setattr(driver, "SimpleQueue", Watched)
    oracle = EmbeddedOracle(store, clock=ManualClock())
    start_ts = oracle.begin().start_ts
    store.after = fail
    oracle._driver._inbox.then = oracle.close  # type: ignore[attr-defined]
    with pytest.raises(OracleUnavailable) as failed:
        commit(oracle, start_ts, 1)
    assert failed.value.was_sent
    assert not failed.value.retryable
    assert isinstance(CommitTable(store).read((start_ts,))[start_ts], int)


def test_a_question_that_comes_after_the_end_was_not_heard(store: WatchedStore) -> None:
    """Of that the caller may be certain."""
    oracle = EmbeddedOracle(store, clock=ManualClock())
    start_ts = oracle.begin().start_ts
    oracle.close()
    with pytest.raises(OracleUnavailable) as refused:
        commit(oracle, start_ts, 1)
    assert not refused.value.was_sent


def test_a_caller_interrupted_at_any_line_keeps_nobody_from_asking(oracle: EmbeddedOracle) -> None:
    """What the machine wants done was lost when a caller's thread drove it, and all waited."""
    interrupter = Interrupter()
    answered: list[Timestamp] = []
    number = 0
    while True:
        number += 1
        try:
            interrupter.interrupt(oracle.begin, number, Interrupt())
            break
        except Interrupt:
            pass
        other = threading.Thread(target=lambda: answered.append(oracle.begin().start_ts))
        other.daemon = True
        other.start()
        other.join(10)
        assert len(answered) == number
    assert number > 10


# -- life ------------------------------------------------------------------------------------------


def test_a_second_oracle_on_one_store_is_refused_with_the_remedy(
    store: WatchedStore, oracle: EmbeddedOracle
) -> None:
    """Two would issue the same timestamps."""
    with pytest.raises(ConfigError, match=r"tso-server --store memory:.*tso="):
        EmbeddedOracle(store)
    assert oracle.begin().start_ts


def test_an_oracle_continues_where_the_last_one_ended(store: WatchedStore) -> None:
    """A clean stop leaves no gap, and nothing begun before can commit."""
    clock = ManualClock()
    first = EmbeddedOracle(store, clock=clock, timestamps="incremental")
    assert first.begin().start_ts == 50
    start_ts = first.begin().start_ts
    first.close()
    second = EmbeddedOracle(store, clock=clock, timestamps="incremental")
    assert second.begin().start_ts == start_ts + 50
    assert commit(second, start_ts, 1) == CommitRefused(AbortReason.LOW_WATERMARK)
    second.close()


def test_a_closed_oracle_answers_nothing(store: WatchedStore) -> None:
    """Closing twice is fine; asking is not."""
    oracle = EmbeddedOracle(store)
    oracle.close()
    oracle.close()
    with pytest.raises(OracleUnavailable, match="is closed"):
        oracle.begin()
    assert read_lease(store) is None


def test_a_lease_inside_a_process_has_no_address(
    store: WatchedStore, oracle: EmbeddedOracle
) -> None:
    """`tso="store:"` then says what to do instead of trying to connect to nowhere."""
    record = read_lease(store)
    assert record is not None
    assert record.pid == os.getpid()
    with pytest.raises(ConfigError, match="lives inside a client's process"):
        lease_address(store)


def test_samples_say_by_which_clock_they_were_measured(store: WatchedStore) -> None:
    """The next instance may be on another machine; the time between is known to neither."""
    clock = ManualClock()
    oracle = EmbeddedOracle(store, clock=clock)
    assert oracle.begin().start_ts
    clock.advance(3)
    oracle.close()
    sample = Watermarks(ControlTable(store)).samples()[-1]
    assert (sample.boot, sample.boot_ms) == (clock.boot, round(clock.monotonic_s() * 1000))


def test_an_absurd_clock_is_refused_unless_accepted(store: WatchedStore) -> None:
    """A clock in the far future would push every later timestamp there for ever."""
    clock = ManualClock()
    EmbeddedOracle(store, clock=clock).close()
    clock.step_wall(milliseconds=31 * 24 * 3600 * 1000)
    with pytest.raises(ConfigError, match="--accept-clock"):
        EmbeddedOracle(store, clock=clock)
    oracle = EmbeddedOracle(store, clock=clock, accept_clock=True)
    assert oracle.begin().start_ts >= clock.wall_ms() * 1_000_000
    oracle.close()


@pytest.mark.parametrize("age_s", [0, -1.0, 2.0**63, float("inf")])
def test_an_age_that_cannot_be_meant_is_refused(store: WatchedStore, age_s: float) -> None:
    """A zero would abort every transaction, and no message has room for what is too long."""
    with pytest.raises(UsageError, match="max_transaction_age_s"):
        EmbeddedOracle(store, max_transaction_age_s=age_s)


def test_the_watermark_ages_without_being_asked(store: WatchedStore) -> None:
    """A thread of the oracle lets time pass; nobody calls anything."""
    oracle = EmbeddedOracle(store, max_transaction_age_s=0.2)
    start_ts = oracle.begin().start_ts
    done = threading.Event()
    for _ in range(200):
        if read_low_watermark(store) >= start_ts:
            break
        done.wait(0.05)
    assert read_low_watermark(store) >= start_ts
    oracle.close()


def test_a_forked_child_is_refused_and_does_no_harm(
    store: WatchedStore, oracle: EmbeddedOracle
) -> None:
    """It has a copy of the memory and none of the rights."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            oracle.begin()
        except ConfigError as error:
            os.write(writing, str(error).encode())
        finally:
            oracle.close()
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        message = pipe.read().decode()
    os.waitpid(pid, 0)
    assert "is a fork" in message
    assert oracle.begin().start_ts


class SharedStore(MemoryStore):
    """A store of many machines, without locks and guarded batches."""

    @property
    def capabilities(self) -> Capabilities:
        """As HBase has them."""
        return Capabilities(guarded_batches=False, process_locks=False, remote=True)


class HurryingClock(ManualClock):
    """A clock by which three seconds pass between any two looks."""

    def monotonic_s(self) -> float:
        """Return a time three seconds later than the last."""
        self.advance(3)
        return super().monotonic_s()


def test_an_oracle_on_a_shared_store_excludes_others_by_its_lease() -> None:
    """The only process that talks to an HBase need not run a server, and may say so alone."""
    store = SharedStore()
    oracle = EmbeddedOracle(store, clock=ManualClock())
    start_ts = oracle.begin().start_ts
    assert isinstance(commit(oracle, start_ts, 1), CommitGranted)
    renewed = threading.Event()

    class Watching(SharedStore):
        """The same store, in which the oracle renews whenever the other has looked."""

        def __init__(self) -> None:
            self.__dict__ = store.__dict__

        def get(self, *arguments: Any, **options: Any) -> list[Row]:
            found = super().get(*arguments, **options)
            with oracle._driver._lease_mutex:
                oracle._lease._renew()
            renewed.set()
            return found

    with pytest.raises(ConfigError, match="has an oracle already: process"):
        EmbeddedOracle(Watching(), clock=HurryingClock())
    assert renewed.is_set()
    assert isinstance(commit(oracle, oracle.begin().start_ts, 1), CommitGranted)
    oracle.close()
    EmbeddedOracle(store, clock=ManualClock()).close()


def test_an_oracle_that_slept_past_its_lease_begins_nothing() -> None:
    """Its successor commits meanwhile, and a snapshot from here would not show it (I8)."""
    store, clock = SharedStore(), ManualClock()
    oracle = EmbeddedOracle(store, clock=clock, timestamps="incremental")
    oracle.begin()
    watch = ManualClock()
    successor = Lease(store, holder="successor", clock=watch)
    assert successor.try_acquire() is not None
    watch.advance(11)
    assert successor.try_acquire() is None
    clock.advance(11)
    # The first says that no answer came, or already what the housekeeper found out.
    with pytest.raises((OracleUnavailable, LeaseLost)):
        oracle.begin()
    with pytest.raises(LeaseLost):
        oracle.begin()
    oracle.close()


def with_a_spare(store: MemoryStore, clock: ManualClock) -> tuple[EmbeddedOracle, Timestamp]:
    """Return an oracle, and a start timestamp that it has to spare, as a commit brings one."""
    oracle = EmbeddedOracle(store, clock=clock, timestamps="incremental")
    assert isinstance(commit(oracle, oracle.begin().start_ts, 1), CommitGranted)
    spare = oracle._driver._spares.get(timeout=10)
    oracle._driver._spares.put(spare)
    return oracle, spare[2].start_ts


@pytest.mark.parametrize("is_deposed", [False, True])
def test_a_timestamp_to_spare_is_young_by_a_clock_that_counts_a_suspend(
    *, is_deposed: bool
) -> None:
    """I8: another clock stands still while a successor takes over and commits."""
    store, clock = SharedStore(), ManualClock()
    oracle, spared = with_a_spare(store, clock)
    if is_deposed:
        # Not older than a spare may be, and the lease ends meanwhile.
        oracle._lease._renewed_s -= 10
        clock.advance(0.01)
    else:
        oracle._lease._renewed_s += 10
        clock.advance(10)
    begun = oracle.begin().start_ts
    assert begun > spared
    oracle.close()


def test_a_timestamp_to_spare_is_used(store: WatchedStore) -> None:
    """Or the guards above would guard nothing."""
    oracle, spared = with_a_spare(store, ManualClock())
    assert oracle.begin().start_ts == spared
    oracle.close()


def test_a_lease_left_by_a_crash_is_taken_when_its_period_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else nobody could ever open the store again."""
    monkeypatch.setattr(embedded, "_LEASE_LOOK_S", 0.01)
    store = SharedStore()
    create_system_tables(store)
    dead = Lease(store, holder="dead", clock=ManualClock())
    assert dead.try_acquire() is None
    oracle = EmbeddedOracle(store, clock=HurryingClock())
    record = read_lease(store)
    assert record is not None
    assert record.holder != "dead"
    oracle.close()


def test_an_oracle_that_nobody_asks_keeps_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quiet evening must not end it."""
    monkeypatch.setattr(machine, "_IDLE_TICK_S", 0.01)
    store = SharedStore()
    clock = ManualClock()
    oracle = EmbeddedOracle(store, clock=clock, timestamps="incremental")
    for _ in range(4):  # housekeeping of another kind would renew it once
        before = read_lease(store)
        clock.advance(5)
        deadline_s = time.monotonic() + 10
        while read_lease(store) == before and time.monotonic() < deadline_s:
            time.sleep(0.01)  # polls the housekeeper's thread
        assert read_lease(store) != before
    oracle.close()


def test_an_oracle_without_a_free_descriptor_goes_on_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What opens the file anew may be refused by the system, which ended the oracle for good."""
    with omidpy.connect(f"sqlite:///{tmp_path}/store.db") as tm:
        tm.create_table("t", ["cf"])
        tm.store._file._close_writers()  # type: ignore[attr-defined]  # as after an error
        opened, fails = os.open, [3]

        def open_(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            if flags & os.O_DIRECTORY and fails[0]:
                fails[0] -= 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return opened(path, flags, *rest, **options)

        monkeypatch.setattr(os, "open", open_)
        with tm.begin() as tx:
            tx.table("t").put(b"r", {b"cf:q": b"1"})
        assert not fails[0]
        with tm.begin() as tx:
            assert tx.table("t").row(b"r") == {b"cf:q": b"1"}


def test_an_oracle_for_which_no_second_thread_starts_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the second one is for it does itself; it ended for good, with a broken invariant."""
    monkeypatch.setattr(machine, "_IDLE_TICK_S", 0.01)
    store, clock = SharedStore(), ManualClock()
    oracle = EmbeddedOracle(store, clock=clock, timestamps="incremental")
    goes_on = refuse_threads(monkeypatch, "omidpy-oracle-chores")
    for is_refused in (True, False):
        before = read_lease(store)
        clock.advance(5)
        wait_for(lambda before=before: read_lease(store) != before, 10)  # type: ignore[misc]
        assert oracle.begin().start_ts
        assert (oracle._driver._chore_thread is None) == is_refused
        goes_on()
    oracle.close()


def test_an_oracle_whose_lock_file_cannot_be_looked_at_goes_on_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of input or output, for a moment, ended it for good, with a broken invariant."""
    with omidpy.connect(f"sqlite:///{tmp_path}/store.db") as tm:
        tm.create_table("t", ["cf"])
        looked, fails = os.stat, [1]

        def stat(path: Any, *rest: Any, **options: Any) -> os.stat_result:
            if fails[0] and str(path).endswith("-oracle.lock"):
                fails[0] -= 1
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return looked(path, *rest, **options)

        monkeypatch.setattr(os, "stat", stat)

        def commit() -> bool:
            with contextlib.suppress(OracleUnavailable), tm.begin() as tx:
                tx.table("t").put(b"r", {b"cf:q": b"1"})
                return not fails[0]
            return False

        wait_for(commit, 10)


def test_a_lock_file_that_cannot_be_made_is_no_oracle_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was told so looked for a process to end, and not for space."""
    url, opened = f"sqlite:///{tmp_path}/store.db", os.open

    def open_(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & os.O_CREAT and str(path).endswith("-oracle.lock"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", open_)
    with pytest.raises(StorageUnavailable, match=r"oracle\.lock: No space left.*free space"):
        omidpy.connect(url)
    monkeypatch.undo()
    omidpy.connect(url).close()
