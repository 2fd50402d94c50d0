"""Operations in threads: pools, several executors, the end of one, and what breaks meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from omidpy.base.timing.clock import ManualClock
from omidpy.errors import FateError, OperationFailed, StorageUnavailable, UsageError
from omidpy.fate import Defer, Done, Fate, Keep, Locks, Status, Step, step
from omidpy.fate.operation import FateId, Operation, Reservation, Unreadable
from omidpy.fate.running.dispatch import MAX_DEFERRED, Dispatcher, Pools
from omidpy.fate.running.runner import Ran
from omidpy.fate.running.sweep import SWEEP_EVERY_S
from omidpy.fate.step import Answer, StepContext
from omidpy.fate.store import FateStore
from omidpy.fate.table.store import TableFateStore
from omidpy.life.heart import BEATS_PER_LEASE
from omidpy.life.members import TableMember
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.fate.basics import an_operation
from omidpy.testing.faults import FaultyStore, Point
from tests.machines.threads import refuse_threads
from tests.machines.waiting import wait_for

NAMESPACE = "test-executor"
LONGEST_S = 30.0


@dataclass
class World:
    """What steps count, and what they wait for."""

    counts: Counter[str] = field(default_factory=Counter)
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    may_end: threading.Event = field(default_factory=threading.Event)
    mutex: threading.Lock = field(default_factory=threading.Lock)
    running: int = 0
    most: int = 0
    ready_after: int = 0

    def count(self, what: str) -> None:
        """Count something."""
        with self.mutex:
            self.counts[what] += 1


@step(version=1, namespace=NAMESPACE)
class Chain(Step):
    """Some steps that count themselves."""

    left: int

    def call(self, tx: StepContext, env: World) -> Answer:
        """Count."""
        env.count(f"{tx.id}/{self.left}")
        return Chain(self.left - 1) if self.left else Done(tx.id)


@step(version=1, namespace=NAMESPACE)
class Slow(Step):
    """A step that ends when the test wants it to."""

    then: str = ""

    def call(self, tx: StepContext, env: World) -> Answer:
        """Wait."""
        with env.mutex:
            env.running += 1
            env.most = max(env.most, env.running)
        env.begun.release()
        while not env.may_end.wait(0.01):
            if tx.is_stopping and self.then == "again":
                return self.again(then="stopped")
        with env.mutex:
            env.running -= 1
        return Chain(0) if self.then == "chain" else None


@step(version=1, namespace=NAMESPACE)
class Later(Step):
    """A step that wants to be asked three times."""

    def ready(self, tx: StepContext, env: World) -> float:
        """Count."""
        env.count("asked")
        return 0 if env.counts["asked"] > 2 else 0.02

    def call(self, tx: StepContext, env: World) -> Answer:
        """Be the end."""
        return None


@step(version=1, namespace=NAMESPACE)
class NamesAFile(Step):
    """A step that fails by a file whose name is no UTF-8, and may say so before."""

    tells: bool

    def call(self, tx: StepContext, env: World) -> Answer:
        """Fail."""
        if self.tells:
            tx.progress("reading \udcff.csv")
        raise FileNotFoundError("there is no \udcff.csv")


class Mute(Exception):
    """It cannot say what it is."""

    def __str__(self) -> str:
        """Fail."""
        raise LookupError("no words")


class Faceless:
    """It cannot be shown."""

    def __repr__(self) -> str:
        """Fail."""
        raise LookupError("no face")


def nested(depth: int) -> list[Any]:
    """Return a list in a list in a list."""
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


@step(version=1, namespace=NAMESPACE)
class Odd(Step):
    """A step that answers, or fails, as nobody should."""

    how: str
    more: Any = None

    def call(self, tx: StepContext, env: World) -> Answer:
        """Do so, and count."""
        env.count("odd")
        match self.how:
            case "mute":
                raise Mute
            case "faceless":
                return Faceless()  # type: ignore[return-value]  # what is tested
            case "deep":
                return Done(nested(5000))
            case "deep step":
                return Odd("deep", nested(5000))
        return self.again(more=nested(5000))


@step(version=1, namespace=NAMESPACE)
class Exits(Step):
    """A step that wants to end its process, once."""

    def call(self, tx: StepContext, env: World) -> Answer:
        """Try it."""
        env.count("exits")
        if env.counts["exits"] == 1:
            raise SystemExit(3)
        return None


@pytest.fixture
def fates() -> TableFateStore:
    """Return an empty store."""
    return TableFateStore(MemoryStore())


@pytest.fixture
def world() -> Iterator[World]:
    """Return a world; whoever still waits in it is let go in the end."""
    made = World()
    yield made
    made.may_end.set()


class RecordedStore(TableFateStore):
    """Remembers what each look left out."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.left_out: list[frozenset[str]] = []

    def scan_live(self, *, but: Collection[FateId] = ()) -> Iterator[Operation | Unreadable]:
        """Note it, and scan."""
        self.left_out.append(frozenset(but))
        return super().scan_live(but=but)


def quick(env: Any, fates: FateStore, **options: Any) -> Fate:
    """Return a fate that looks often."""
    return Fate(env, fates, **{"poll_s": 0.02, "lease_s": 5.0, **options})


# -- which pool, and when --------------------------------------------------------------------------


def test_a_kind_of_operation_has_one_pool() -> None:
    """Whatever its case; the others are in `general`, if there is one."""
    pools = Pools({"general": 4, "PRUNE, heal": 1})
    assert pools.pool_of("prune") == pools.pool_of("HEAL") == "PRUNE, heal"
    assert pools.pool_of("EXPORT") == "general"
    assert Pools({"PRUNE": 1}).pool_of("EXPORT") is None
    assert Pools({}).pool_of("EXPORT") is None


@pytest.mark.parametrize(
    "threads",
    [
        {"a": 0},
        {"a": -1},
        {"a": True},
        {"a": "1"},
        {"a": 10**9},
        {"": 1},
        {"a,A": 1},
        {"a": 1, "b,A": 1},
    ],
)
def test_pools_that_make_no_sense_are_refused(threads: dict[str, Any]) -> None:
    """When they are given, and not when nothing runs, or when all memory is gone for threads."""
    with pytest.raises(UsageError, match=r"has .* threads|1000 at most|have two pools"):
        Pools(threads)


def test_what_is_handed_out_is_not_queued_again() -> None:
    """By no scan, until it is reported; then it is, unless it waits."""
    dispatcher = Dispatcher(Pools({"general": 1}))
    made = an_operation(status=Status.SUBMITTED)
    for _ in range(2):
        dispatcher.refresh([made], worker="w", now_s=0.0)
    assert dispatcher.take("general") == made
    assert dispatcher.take("general") is None
    dispatcher.refresh([made], worker="w", now_s=0.0)
    assert dispatcher.take("general") is None
    dispatcher.report(made.id, Ran(made, 5.0), now_s=1.0)
    assert dispatcher.next_due_s() == 6.0
    dispatcher.refresh([made], worker="w", now_s=5.9)
    assert dispatcher.take("general") is None
    dispatcher.refresh([made], worker="w", now_s=6.0)
    assert dispatcher.take("general") == made


def test_only_what_may_be_run_here_is_queued() -> None:
    """Not what is new, finished, another's, or of a kind that no pool names."""
    dispatcher = Dispatcher(Pools({"TEST": 1}))
    mine, others = Reservation("w", "a"), Reservation("v", "b")
    found = [
        an_operation(status=Status.NEW),
        an_operation(status=Status.SUCCESSFUL),
        an_operation(status=Status.FAILED),
        an_operation(status=Status.IN_PROGRESS, reservation=others),
        an_operation(status=Status.IN_PROGRESS, name="OTHER"),
    ]
    assert dispatcher.refresh(found, worker="w", now_s=0.0) == 0
    run = [
        an_operation(status=Status.IN_PROGRESS, reservation=mine),
        an_operation(status=Status.FAILED_IN_PROGRESS),
    ]
    assert dispatcher.refresh(run, worker="w", now_s=0.0) == 2
    assert [dispatcher.take("TEST") for _ in run] == run


def test_deferrals_are_bounded() -> None:
    """All are forgotten rather than one too many remembered; and those of what is gone."""
    dispatcher = Dispatcher(Pools({"general": 1}))
    for number in range(MAX_DEFERRED):
        dispatcher.report(FateId(str(number)), Ran(None, 5.0), now_s=0.0)
    assert len(dispatcher._deferred) == MAX_DEFERRED
    dispatcher.report(FateId("one more"), Ran(None, 7.0), now_s=0.0)
    assert dispatcher.next_due_s() == 7.0
    dispatcher.refresh([], worker="w", now_s=0.0)
    assert dispatcher.next_due_s() is None


def test_a_deferral_stays_while_nobody_looks_for_its_operation() -> None:
    """It is not gone, it was left out."""
    dispatcher = Dispatcher(Pools({"general": 1}))
    dispatcher.report(FateId("waits"), Ran(None, 5.0), now_s=0.0)
    dispatcher.refresh([], but={FateId("waits")}, worker="w", now_s=0.0)
    assert dispatcher.next_due_s() == 5.0


# -- in threads ------------------------------------------------------------------------------------


def test_what_others_submit_and_what_is_submitted_here_is_run(
    fates: TableFateStore, world: World
) -> None:
    """By whoever has a pool for it."""
    client = Fate(None, fates, {})
    before = client.submit("TEST", Chain(3))
    with quick(world, fates) as fate:
        here = fate.submit("TEST", Chain(3))
        later = client.submit("TEST", Chain(3))
        for handle in (before, here, later):
            assert handle.result(timeout=LONGEST_S) == handle.id
        assert here.exception() is None
    assert set(world.counts.values()) == {1}
    assert len(world.counts) == 12


def test_a_pool_runs_as_many_as_it_has_threads(fates: TableFateStore, world: World) -> None:
    """And one kind of operation cannot take the threads of another."""
    with quick(world, fates, pools={"general": 1, "SLOW": 2}) as fate:
        slow = [fate.submit("SLOW", Slow()) for _ in range(4)]
        for _ in range(2):
            assert world.begun.acquire(timeout=LONGEST_S)
        assert fate.submit("TEST", Chain(0)).wait(timeout=LONGEST_S) is Status.SUCCESSFUL
        assert world.running == 2
        world.may_end.set()
        for handle in slow:
            assert handle.wait(timeout=LONGEST_S) is Status.SUCCESSFUL
    assert world.most == 2


def test_what_no_pool_names_waits(fates: TableFateStore, world: World) -> None:
    """For another executor."""
    with quick(world, fates, pools={"OTHER": 1}) as fate:
        waits = fate.submit("TEST", Chain(0))
        assert fate.submit("OTHER", Chain(0)).wait(timeout=LONGEST_S) is Status.SUCCESSFUL
        assert waits.status is Status.SUBMITTED


def test_who_asks_to_wait_is_asked_again(fates: TableFateStore, world: World) -> None:
    """In time, although nothing else happens."""
    with quick(world, fates, poll_s=60.0) as fate:
        assert fate.submit("TEST", Later()).wait(timeout=LONGEST_S) is Status.SUCCESSFUL
    assert world.counts["asked"] == 3


def test_each_step_runs_once_however_many_executors_there_are(tmp_path: Path, world: World) -> None:
    """Reservations decide."""
    stores = [SqliteStore(tmp_path / "store.db") for _ in range(2)]
    executors = [quick(world, TableFateStore(store)).start() for store in stores]
    client = Fate(None, TableFateStore(stores[0]), {})
    handles = [client.submit("TEST", Chain(4)) for _ in range(30)]
    for handle in handles:
        assert handle.wait(timeout=LONGEST_S) is Status.SUCCESSFUL
    for executor in executors:
        assert executor.close()
    assert world.counts == {f"{one.id}/{left}": 1 for one in handles for left in range(5)}
    for store in stores:
        store.close()


def test_an_end_waits_for_the_step_and_gives_the_operation_back(
    fates: TableFateStore, world: World
) -> None:
    """What the step did is recorded, nothing failed, and the next executor goes on behind it."""
    fate = quick(world, fates).start()
    handle = fate.submit("TEST", Slow("chain"))
    assert world.begun.acquire(timeout=LONGEST_S)
    assert not fate.close(timeout=0.05)
    found = handle.read()
    assert found is not None
    assert found.reservation is not None
    world.may_end.set()
    assert fate.close()
    found = handle.read()
    assert found is not None
    assert (found.status, found.reservation, len(found.stack)) == (Status.IN_PROGRESS, None, 2)
    assert fates.new_judge(fate.clock).dead(["x"]) == {"x"}
    assert not fates._workers.read_all()
    with quick(world, fates):
        assert handle.result(timeout=LONGEST_S) == handle.id
    assert world.begun.acquire(blocking=False) is False


def test_a_long_step_is_told_of_the_end(fates: TableFateStore, world: World) -> None:
    """And may go on elsewhere."""
    with quick(world, fates) as fate:
        handle = fate.submit("TEST", Slow("again"))
        assert world.begun.acquire(timeout=LONGEST_S)
    found = handle.read()
    assert found is not None
    assert b'"then":"stopped"' in found.stack[-1]
    assert found.status is Status.IN_PROGRESS


def test_a_step_cannot_end_the_executor(fates: TableFateStore, world: World) -> None:
    """SystemExit ends a thread silently; ours goes on, and so does the operation in a while."""
    with quick(world, fates, pools={"general": 1}) as fate:
        exits = fate.submit("TEST", Exits())
        wait_for(lambda: world.counts["exits"] == 1, LONGEST_S)
        assert fate.submit("TEST", Chain(0)).wait(timeout=LONGEST_S) is Status.SUCCESSFUL
        found = exits.read()
        assert found is not None
        assert (found.status, found.reservation) == (Status.IN_PROGRESS, None)


def test_an_executor_that_was_buried_begins_anew(fates: TableFateStore, world: World) -> None:
    """What it held is others', what it wrote last is refused; and it goes on as another worker."""
    with quick(world, fates, lease_s=0.2, pools={"general": 2}) as fate:
        held = fate.submit("TEST", Slow("chain"))
        assert world.begun.acquire(timeout=LONGEST_S)
        ((worker, sign),) = fates._workers.read_all().items()
        fates._workers.forget(worker, sign)
        wait_for(lambda: fates.existing(held.id).reservation is None, LONGEST_S)
        assert fate.submit("TEST", Chain(0)).wait(timeout=LONGEST_S) is Status.SUCCESSFUL
        assert not world.begun.acquire(blocking=False)  # not twice at once in one process
        world.may_end.set()
        assert held.result(timeout=LONGEST_S) == held.id
        assert world.begun.acquire(blocking=False)  # once more: what it wrote first was refused
        assert world.counts[f"{held.id}/0"] == 1


def test_whoever_waits_for_what_runs_here_is_told(world: World) -> None:
    """He need not ask the store all the time, and asks it when he will wait no longer."""
    store = FaultyStore(MemoryStore())
    with quick(world, TableFateStore(store)) as fate:
        held = fate.submit("TEST", Slow("chain"))
        assert world.begun.acquire(timeout=LONGEST_S)
        store.calls.clear()
        status, asked = held.wait(timeout=0.2), store.calls["get"]
        world.may_end.set()
        assert (status, asked) == (Status.IN_PROGRESS, 1)
        assert held.wait(timeout=LONGEST_S) is Status.SUCCESSFUL


def test_a_look_for_news_leaves_out_what_is_finished_or_in_hand(world: World) -> None:
    """Each is a request in ZooKeeper, and nothing about them is news."""
    fates = RecordedStore(MemoryStore())
    with quick(world, fates, poll_s=LONGEST_S) as fate:
        done = fate.submit("TEST", Chain(0))
        assert done.wait(timeout=LONGEST_S) is Status.SUCCESSFUL
        held = fate.submit("TEST", Slow("chain"))
        assert world.begun.acquire(timeout=LONGEST_S)
        fate._executor.look()
        wait_for(lambda: bool(fates.left_out) and held.id in fates.left_out[-1], LONGEST_S)
        fate._executor.look()
        wait_for(lambda: fates.left_out[-1] == {held.id}, LONGEST_S)
        assert done.id not in {one.id for one in fates.scan_live()}, "it is elsewhere by now"
        others = TableFateStore(fates._store)
        submitted = Fate(None, others).submit("TEST", Chain(0))
        fate._executor.look()
        assert submitted.wait(timeout=LONGEST_S) is Status.SUCCESSFUL
        world.may_end.set()


def test_an_executor_that_may_be_buried_takes_nothing(world: World) -> None:
    """It would only give it back; it waits for its next sign of life."""
    store = FaultyStore(MemoryStore())
    fates = TableFateStore(store)
    with quick(world, fates) as fate:
        worker = fate._executor._worker
        assert isinstance(worker, TableMember)
        worker._seen_s -= 4.5  # its lease is 5 s
        handle = fate.submit("TEST", Chain(0))
        store.calls.clear()
        wait_for(lambda: store.calls["scan"] > 5, LONGEST_S)
        assert store.calls["write_guarded"] == 0
        assert worker.beat()
        assert handle.wait(timeout=LONGEST_S) is Status.SUCCESSFUL


def test_an_executor_shows_life_some_times_in_its_lease_and_no_oftener(world: World) -> None:
    """Each sign is a durable write, and a script may call `run_pending` all the time."""
    store, clock = FaultyStore(MemoryStore()), ManualClock()
    fate = Fate(world, TableFateStore(store), lease_s=8.0, clock=clock)
    fate.run_pending()
    store.calls.clear()
    for _ in range(16):
        clock.advance(0.5)
        fate.run_pending()
        fate.run_pending()
    assert store.calls["check_and_mutate"] == BEATS_PER_LEASE


@step(version=1, namespace=NAMESPACE)
class Locked(Step):
    """A step that nobody else of its table runs beside."""

    def ready(self, tx: StepContext, env: Locks) -> Defer | None:
        """Wait for the lock."""
        return env.write("t", tx.id)

    def call(self, tx: StepContext, env: Locks) -> Answer:
        """Be the end."""
        del tx, env
        return Done()


@pytest.mark.parametrize("is_late", [False, True])
def test_a_lock_that_the_dead_have_left_holds_up_no_caller_without_threads(
    *, is_late: bool
) -> None:
    """An executor died between the end of an operation and the release of its locks."""
    fates, clock = TableFateStore(MemoryStore()), ManualClock()
    locks = Locks(fates)
    fate = Fate(locks, fates, lease_s=8.0, clock=clock)
    if is_late:
        fate.run_pending()
    assert locks.write("t", "0" * 16) is None
    handle = fate.submit("TEST", Locked())
    for _ in range(2):
        fate.run_pending()
        clock.advance(SWEEP_EVERY_S)
    fate.run_pending()
    assert handle.status is Status.SUCCESSFUL


def test_an_executor_shows_life_while_a_sweep_takes_its_time(world: World) -> None:
    """Whoever has ten thousand outcomes to remove must not be buried for it."""
    store = FaultyStore(MemoryStore())
    fates = TableFateStore(store)
    fates.insert(an_operation(status=Status.SUCCESSFUL, finished_ms=1))
    sweeps, goes_on = threading.Event(), threading.Event()

    def hold(point: Point) -> None:
        if threading.current_thread().name == "fate-keeper" and point.name.startswith("write"):
            sweeps.set()
            goes_on.wait(LONGEST_S)

    store.plans.append(hold)
    with quick(world, fates, lease_s=0.4):
        assert sweeps.wait(LONGEST_S)
        ((_, before),) = fates._workers.read_all().items()
        wait_for(lambda: [*fates._workers.read_all().values()] != [before], LONGEST_S)
        goes_on.set()


@pytest.mark.parametrize("thread", ["fate-finder", "fate-keeper", "fate-heart"])
def test_no_answer_of_the_store_ends_a_thread(
    world: World, thread: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An executor without one of them would look as if it ran."""
    store = FaultyStore(MemoryStore())
    answered = threading.Semaphore(0)

    def answer(_: Point) -> None:
        if threading.current_thread().name == thread:
            answered.release()
            raise ValueError("an answer that nobody expects")

    fates = TableFateStore(store)
    with quick(world, fates, lease_s=0.4) as fate:
        store.plans.append(answer)
        for _ in range(3):
            assert answered.acquire(timeout=LONGEST_S)
        store.plans.clear()
        assert fate.submit("TEST", Chain(0)).wait(timeout=LONGEST_S) is Status.SUCCESSFUL
    assert "an answer that nobody expects" in caplog.text


def test_an_executor_is_started_once(fates: TableFateStore, world: World) -> None:
    """A second start would double its threads; none is run in the caller's thread meanwhile."""
    with quick(world, fates) as fate:
        for again in (fate.start, fate.run_pending):
            with pytest.raises(UsageError, match="already"):
                again()
    closed = quick(world, fates)
    closed.close()
    for ended in (fate, closed):
        with pytest.raises(UsageError, match="make another Fate"):
            ended.start()


def test_a_store_that_does_not_answer_for_a_while_is_waited_for(world: World) -> None:
    """What was done is written when it answers again, and not done again."""
    store = FaultyStore(MemoryStore())
    fates = TableFateStore(store)
    failing = threading.Event()

    def fail(point: Point) -> None:
        if failing.is_set() and point.name.endswith("before"):
            raise StorageUnavailable("nobody answers")

    store.plans.append(fail)
    with quick(world, fates) as fate:
        handle = fate.submit("TEST", Slow("chain"))
        assert world.begun.acquire(timeout=LONGEST_S)
        failing.set()
        world.may_end.set()
        store.calls.clear()
        wait_for(lambda: store.calls["write_guarded"] > 1 and store.calls["scan"] > 1, LONGEST_S)
        failing.clear()
        assert handle.result(timeout=LONGEST_S) == handle.id
    assert world.begun.acquire(blocking=False) is False


def test_times_that_make_no_sense_are_refused(fates: TableFateStore) -> None:
    """A lease of nothing would be over at once, and who waits for ever ends with an error."""
    for wrong in ({"lease_s": 0}, {"poll_s": -1}, {"poll_s": inf}, {"lease_s": nan}):
        with pytest.raises(UsageError, match="must be positive seconds"):
            Fate(None, fates, **wrong)


@pytest.mark.parametrize("auto_clean", [1, 0, "no", None])
def test_an_operation_that_could_not_be_read_again_is_not_submitted(auto_clean: Any) -> None:
    """It was kept, and stood in the store as one that nobody can run."""
    fates = TableFateStore(MemoryStore())
    fate = Fate(None, fates, {})
    with pytest.raises(TypeError, match="auto_clean"):
        fate.submit("TEST", Chain(0), auto_clean=auto_clean)
    with pytest.raises(UsageError, match="names no kind of operation"):
        fate.submit("\udc80", Chain(0))
    assert not list(fate.operations())


@pytest.mark.parametrize(("timeout", "error"), [("1", TypeError), (float("nan"), UsageError)])
def test_what_nobody_can_wait_is_refused_by_name(timeout: Any, error: type[Exception]) -> None:
    """NaN was as for ever."""
    fate = Fate(None, TableFateStore(MemoryStore()), {})
    handle = fate.submit("TEST", Chain(0))
    for wait in (handle.wait, handle.result, fate.close):
        with pytest.raises(error, match="timeout"):
            wait(timeout=timeout)


def test_an_operation_in_the_store_is_a_value(fates: TableFateStore) -> None:
    """Whoever lists operations gets their records."""
    handle = Fate(None, fates, {}).submit("TEST", Chain(0))
    (found,) = Fate(None, fates, {}).operations()
    assert isinstance(found, Operation)
    assert found.id == handle.id
    assert repr(handle) == f"<OperationHandle {handle.id}>"


@pytest.mark.parametrize("tells", [False, True])
def test_a_failure_that_is_no_text_ends_its_operation(tells: bool) -> None:  # noqa: FBT001 - from the parameters
    """Who could not write it down kept the operation for ever, neither run on nor rolled back."""
    with Fate(World(), TableFateStore(MemoryStore())) as fate:
        handle = fate.submit("READ", NamesAFile(tells))
        assert handle.wait(10) is Status.FAILED
        with pytest.raises(OperationFailed, match=r"there is no \\udcff\.csv"):
            handle.result(LONGEST_S)


@pytest.mark.parametrize("how", ["mute", "faceless", "deep", "deep step", "deep again"])
def test_no_answer_of_a_step_keeps_its_operation(how: str) -> None:
    """One that could not be looked at was called again and again, and never rolled back."""
    world = World()
    with quick(world, TableFateStore(MemoryStore())) as fate:
        assert fate.submit("ODD", Odd(how)).wait(10) is Status.FAILED
    assert world.counts["odd"] == 1


@pytest.mark.parametrize("refused", ["fate-finder", "fate-heart", "fate-keeper"])
def test_an_executor_that_lacks_a_thread_runs_nothing(
    fates: TableFateStore, world: World, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """Those that had started ran on for ever, a heart or not, and nobody could end them."""
    before = set(threading.enumerate())
    goes_on = refuse_threads(monkeypatch, refused)
    with pytest.raises(FateError, match=r"can't start new thread.*ulimit -u") as caught:
        quick(world, fates).start()
    assert caught.value.retryable
    assert set(threading.enumerate()) <= before
    goes_on()
    with quick(world, fates) as fate:
        assert fate.submit("TEST", Chain(1)).wait(LONGEST_S) is Status.SUCCESSFUL


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\udc80", "x" * 101, 5])
def test_what_is_no_word_names_no_kind_of_operation(fates: TableFateStore, name: Any) -> None:
    """It could not be written down, or is two lines of every listing."""
    with pytest.raises(UsageError, match="names no kind of operation"):
        Fate(None, fates).submit(name, Chain(0))
    assert list(fates.scan()) == []


@pytest.mark.parametrize("flag", [None, 1, "no"])
def test_a_flag_is_true_or_false(fates: TableFateStore, flag: Any) -> None:
    """Whatever else it was, nobody could read the operation again."""
    with pytest.raises(TypeError, match="auto_clean must be True or False"):
        Fate(None, fates).submit("TEST", Chain(0), auto_clean=flag)
    assert list(fates.scan()) == []


@pytest.mark.parametrize("key", ["\udc80", ("a", "\ud800")])
def test_a_key_that_cannot_be_written_down_is_refused_by_name(
    fates: TableFateStore, key: object
) -> None:
    """And not by what failed to write it."""
    with pytest.raises(UsageError, match="cannot be written as UTF-8"):
        Fate(None, fates).submit("TEST", Chain(0), key=key)


def test_a_time_that_is_no_number_is_refused(fates: TableFateStore) -> None:
    """Who waited until then waited for ever, and nothing was swept."""
    handle = Fate(None, fates).submit("TEST", Chain(0))
    with pytest.raises(UsageError, match="timeout"):
        handle.wait(timeout=nan)
    for name in ("auto_clean_s", "finished_s", "new_s"):
        with pytest.raises(UsageError, match="use 0 seconds or more"):
            Keep(**{name: nan})


def test_a_script_whose_lock_was_removed_registers_anew(tmp_path: Path) -> None:
    """It took each operation, and gave it back, for ever."""
    with closing(SqliteStore(str(tmp_path / "w.db"))) as store:
        fates = TableFateStore(store)
        fate = Fate(World(), fates, lease_s=5.0)
        fate.submit("TEST", Chain(0))
        fate.run_pending()
        before = fate._executor._worker
        for path in tmp_path.glob("*fate-0*"):
            path.unlink()
        wait_for(lambda: before is not None and not before.is_trusted(), LONGEST_S)
        handle = fate.submit("TEST", Chain(0))
        fate.run_pending()
        assert handle.status is Status.SUCCESSFUL
        fate.close()
