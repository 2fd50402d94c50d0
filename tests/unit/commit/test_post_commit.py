"""What follows a commit, in which order, and what a failure leaves behind (I5)."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from functools import partial

import pytest

from omidpy.base.cells import encode_long, shadow_qualifier
from omidpy.commit import post_commit
from omidpy.commit.post_commit import (
    IN_A_FILE,
    ON_A_CLUSTER,
    AsyncPostCommitter,
    Completer,
    Completion,
    Gathering,
    NoPostCommitter,
    SyncPostCommitter,
)
from omidpy.errors import StorageUnavailable
from omidpy.facts.commit_table import CommitTable, create_system_tables
from omidpy.model import FamilySchema, TableSchema, Timestamp
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, Point, on
from omidpy.tx.session import _post_committer
from tests.machines.cells import World
from tests.machines.clients import TABLE, Client, Loss

DEADLINE_S = 30.0
THREAD = "omidpy-post-commit"


@pytest.fixture
def store() -> FaultyStore:
    """Return a store with the system tables and table t."""
    store = FaultyStore(MemoryStore())
    create_system_tables(store)
    store.create_table(TableSchema("t", [FamilySchema(b"cf")]))
    store.create_table(TableSchema("gone", [FamilySchema(b"cf")]))
    return store


def completion(store: FaultyStore, start_ts: int, *, table: str = "t") -> Completion:
    """Enter a commit, and return what is left to do for it."""
    World.enter(_bare_world(store), start_ts, start_ts + 50)
    put = Put(b"cf", shadow_qualifier(b"q"), start_ts, encode_long(start_ts + 50))
    row = RowMutation(b"row %d" % start_ts, puts=(put,))
    return Completion(Timestamp(start_ts), {table: (row,)})


def _bare_world(store: FaultyStore) -> World:
    world = World.__new__(World)
    world.store = store
    return world


def completer(store: FaultyStore) -> Completer:
    """Return a completer that nobody watches."""
    return Completer(store, CommitTable(store), lambda _: None)


def entries(store: FaultyStore) -> set[int]:
    """Return the start timestamps in the commit table."""
    return {row.start_ts for page in CommitTable(store).scan() for row in page}


def shadows(store: FaultyStore) -> set[int]:
    """Return the versions of the shadow cells in table t."""
    return {cell.version for page in store.scan("t") for row in page for cell in row}


def test_the_entry_goes_after_every_shadow_cell(store: FaultyStore) -> None:
    """I5: a death between the two leaves the entry, never a cell without either."""
    writes: list[str] = []

    def note(point: Point) -> None:
        if point.name == "write.before":
            writes.extend(point.tables)

    todo = completion(store, 50)
    store.plans.append(note)
    completer(store).complete([todo])
    assert writes == ["t", CommitTable(store).name]
    assert (shadows(store), entries(store)) == ({50}, set())


def test_a_batch_is_two_writes(store: FaultyStore) -> None:
    """All shadow cells in one, all entries in another."""
    todo = [completion(store, start_ts) for start_ts in (50, 150, 250)]
    before = store.calls["write"]
    completer(store).complete(todo)
    assert store.calls["write"] == before + 2
    assert (shadows(store), entries(store)) == ({50, 150, 250}, set())


@pytest.mark.parametrize("point", ["write.before", "write.after"])
def test_a_failed_write_of_shadow_cells_leaves_the_entry(store: FaultyStore, point: str) -> None:
    """Omid's asynchronous committer removes it all the same, and loses the data."""
    todo = completion(store, 50)
    store.plans.append(on(point, StorageUnavailable("full"), table="t"))
    completer(store).complete([todo])
    assert entries(store) == {50}


def test_a_dropped_table_does_not_keep_the_entries_of_others(store: FaultyStore) -> None:
    """One bad transaction in a batch is done alone."""
    todo = [completion(store, 50), completion(store, 150, table="gone")]
    store.drop_table("gone")
    completer(store).complete(todo)
    assert (shadows(store), entries(store)) == ({50}, {150})


def test_a_foreign_exception_does_not_come_out_of_a_commit(store: FaultyStore) -> None:
    """The transaction has committed; whoever hears an exception would run it again."""
    todo = completion(store, 50)
    store.plans.append(on("write.before", RuntimeError("a bug of a backend"), table="t"))
    SyncPostCommitter(completer(store)).submit(todo)
    assert entries(store) == {50}


def test_none_does_nothing(store: FaultyStore) -> None:
    """Readers and the compactor do the work."""
    committer = NoPostCommitter()
    committer.submit(completion(store, 50))
    committer.drain()
    committer.close()
    assert (shadows(store), entries(store)) == (set(), {50})
    assert not committer.owes(Timestamp(50))


def test_async_returns_before_the_work_is_done(store: FaultyStore) -> None:
    """The commit is durable; what follows is nobody's wait."""
    go_on = threading.Event()
    store.plans.append(on("write.before", lambda: go_on.wait(DEADLINE_S), table="t"))
    committer = AsyncPostCommitter(completer(store))
    todo = completion(store, 50)
    committer.submit(todo)
    assert entries(store) == {50}
    assert committer.owes(Timestamp(50))
    go_on.set()
    committer.drain()
    assert (shadows(store), entries(store)) == ({50}, set())
    assert not committer.owes(Timestamp(50))
    committer.close()


def test_close_does_what_waits(store: FaultyStore) -> None:
    """A process that ends in order leaves nothing to heal."""
    go_on = threading.Event()
    store.plans.append(on("write.before", lambda: go_on.wait(DEADLINE_S), table="t", nth=1))
    committer = AsyncPostCommitter(completer(store))
    for start_ts in range(50, 550, 50):
        committer.submit(completion(store, start_ts))
    go_on.set()
    committer.close()
    assert entries(store) == set()
    assert shadows(store) == set(range(50, 550, 50))


def test_after_close_the_work_is_done_at_once(store: FaultyStore) -> None:
    """A transaction that outlives its manager's close still completes."""
    committer = AsyncPostCommitter(completer(store))
    committer.close()
    committer.submit(completion(store, 50))
    assert entries(store) == set()


def test_the_queue_goes_on_after_a_failure(store: FaultyStore) -> None:
    """One failed batch is left to readers; the thread lives."""
    store.plans.append(on("write.before", RuntimeError("a bug of a backend"), table="t", nth=1))
    committer = AsyncPostCommitter(completer(store))
    committer.submit(completion(store, 50))
    committer.drain()
    committer.submit(completion(store, 150))
    committer.close()
    assert entries(store) == {50}
    assert shadows(store) == {150}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("end", ["drain", "close"])
def test_under_load_transactions_gather_until_somebody_waits_for_them(
    store: FaultyStore, end: str
) -> None:
    """A batch costs the same whatever its size; nobody waits for more."""
    a_batch_is_done = threading.Event()

    def on_step(step: str) -> None:
        if step == "completed":
            a_batch_is_done.set()

    committer = AsyncPostCommitter(
        Completer(store, CommitTable(store), on_step),
        Gathering(gather_s=3600.0, under_load_s=3600.0),
    )
    committer.submit(completion(store, 50))
    assert a_batch_is_done.wait(DEADLINE_S), "a lone transaction is completed at once"
    committer.drain()
    todo = [completion(store, start_ts) for start_ts in (150, 250, 350)]
    before = store.calls["write"]
    a_batch_is_done.clear()
    for one in todo:
        committer.submit(one)
    assert not a_batch_is_done.wait(0.2), "the next ones wait for company"
    getattr(committer, end)()
    assert store.calls["write"] == before + 2
    assert (shadows(store), entries(store)) == ({50, 150, 250, 350}, set())
    committer.close()


@pytest.mark.timeout(60)
def test_transactions_that_are_enough_wait_for_no_more(store: FaultyStore) -> None:
    """The longer a commit waits for its shadow cells, the more readers must look it up."""
    batches: queue.SimpleQueue[int] = queue.SimpleQueue()

    class Counting(Completer):
        def complete(self, batch: Sequence[Completion]) -> None:
            super().complete(batch)
            batches.put(len(batch))

    committer = AsyncPostCommitter(
        Counting(store, CommitTable(store), lambda _: None),
        Gathering(gather_s=3600.0, under_load_s=3600.0, enough_count=3),
    )
    committer.submit(completion(store, 50))
    assert batches.get(timeout=DEADLINE_S) == 1
    for start_ts in (150, 250, 350):
        committer.submit(completion(store, start_ts))
    assert batches.get(timeout=DEADLINE_S) == 3
    committer.submit(completion(store, 450))
    with pytest.raises(queue.Empty):
        batches.get(timeout=0.2)  # enough of an earlier batch is not enough for the next
    committer.close()
    assert entries(store) == set()


def test_a_cluster_has_transactions_gather_for_longer() -> None:
    """There a batch is two calls beside those that transactions wait for."""
    completers = [
        _post_committer("async", completer(FaultyStore(MemoryStore())), is_remote=is_remote)
        for is_remote in (False, True)
    ]
    near, far = (one for one in completers if isinstance(one, AsyncPostCommitter))
    assert (near.gathering, far.gathering) == (IN_A_FILE, ON_A_CLUSTER)
    assert far.gathering.gather_s > near.gathering.gather_s


def test_beside_a_full_queue_a_commit_does_the_work_itself(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory stays bounded where the store is slower than the oracle."""
    monkeypatch.setattr(post_commit, "MAX_WAITING_TRANSACTIONS", 2)
    at_work, go_on = threading.Event(), threading.Event()

    def block() -> None:
        at_work.set()
        go_on.wait(DEADLINE_S)

    store.plans.append(on("write.before", block, table="t", nth=1))
    committer = AsyncPostCommitter(completer(store))
    todo = [completion(store, start_ts) for start_ts in (50, 150, 250, 350)]
    committer.submit(todo[0])
    assert at_work.wait(DEADLINE_S)
    for one in todo[1:]:
        committer.submit(one)
    assert entries(store) == {50, 150, 250}
    go_on.set()
    committer.close()
    assert entries(store) == set()


def test_what_nobody_was_called_for_is_done_when_somebody_waits(store: FaultyStore) -> None:
    """An exception may come between the queue and the thread that works on it."""
    committer = AsyncPostCommitter(completer(store))
    committer._queue.put(completion(store, 50))
    committer.drain()
    assert entries(store) == set()
    committer.close()
    committer._queue.put(completion(store, 150))
    committer.close()
    assert entries(store) == set()


# -- while the interpreter ends --------------------------------------------------------------------


@pytest.fixture
def no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no thread begin, as Python 3.12 and newer do while they end."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)


@pytest.mark.parametrize("end", ["drain", "close"])
def test_what_waits_is_done_where_no_thread_begins(
    store: FaultyStore, end: str, no_more_threads: None
) -> None:
    """By whoever asks for it: at exit that is the last chance."""
    committer = AsyncPostCommitter(completer(store))
    committer._queue.put(completion(store, 50))
    getattr(committer, end)()
    assert (shadows(store), entries(store)) == ({50}, set())


def test_a_commit_does_its_own_work_where_no_thread_begins(
    store: FaultyStore, no_more_threads: None
) -> None:
    """It has committed, and must not be told of what came after."""
    committer = AsyncPostCommitter(completer(store))
    committer.submit(completion(store, 50))
    assert (shadows(store), entries(store)) == ({50}, set())
    assert not committer.owes(Timestamp(50))


@pytest.mark.timeout(60)
def test_a_thread_that_begins_while_it_is_closed_goes_home(store: FaultyStore) -> None:
    """It would wait for more with the lock in its hand, and `close` for the lock."""
    committer = AsyncPostCommitter(completer(store))
    committer._queue.put(completion(store, 50))
    committer._is_closed = True
    worker = threading.Thread(target=committer._run)
    worker.start()
    worker.join(DEADLINE_S)
    assert not worker.is_alive()
    committer.close()
    assert (shadows(store), entries(store)) == ({50}, set())


# -- the modes, seen from a manager ----------------------------------------------------------------


# -- errands ---------------------------------------------------------------------------------------


class Held:
    """Keeps the thread busy until it is let go."""

    def __init__(self, committer: AsyncPostCommitter) -> None:
        self._began, self._go = threading.Event(), threading.Event()
        committer.run_soon(self._wait)
        assert self._began.wait(DEADLINE_S)

    def _wait(self) -> None:
        self._began.set()
        self._go.wait(DEADLINE_S)

    def let_go(self) -> None:
        """Let the thread go on."""
        self._go.set()


def test_an_errand_is_run_in_the_thread_between_transactions(store: FaultyStore) -> None:
    """It is behind what waited, and whoever drains waits for it."""
    committer = AsyncPostCommitter(completer(store))
    held = Held(committer)
    seen: list[tuple[set[int], bool]] = []
    for start_ts in (50, 150):
        committer.submit(completion(store, start_ts))
        committer.run_soon(
            lambda: seen.append((shadows(store), threading.current_thread().name == THREAD))
        )
    held.let_go()
    committer.drain()
    assert seen == [({50}, True), ({50, 150}, True)]
    assert entries(store) == set()
    committer.close()


def test_errands_past_a_few_are_dropped(store: FaultyStore) -> None:
    """A scan may find more than can be written; transactions that wait go first."""
    committer = AsyncPostCommitter(completer(store))
    held = Held(committer)
    run: list[int] = []
    for number in range(post_commit.MAX_WAITING_FOR_ERRANDS + 3):
        committer.run_soon(partial(run.append, number))
    held.let_go()
    committer.close()
    assert run == list(range(post_commit.MAX_WAITING_FOR_ERRANDS))


def test_an_errand_that_fails_stops_nobody(
    store: FaultyStore, caplog: pytest.LogCaptureFixture
) -> None:
    """It was of no need to anybody."""
    committer = AsyncPostCommitter(completer(store))
    held = Held(committer)
    committer.run_soon(lambda: 1 / 0)
    committer.submit(completion(store, 50))
    held.let_go()
    committer.drain()
    assert (shadows(store), entries(store)) == ({50}, set())
    assert "ZeroDivisionError" in caplog.text
    committer.close()


def test_nothing_is_run_behind_the_close(store: FaultyStore) -> None:
    """There is no thread any more, and the caller has better things to do."""
    committer = AsyncPostCommitter(completer(store))
    committer.close()
    run: list[int] = []
    committer.run_soon(lambda: run.append(1))
    committer.drain()
    assert run == []


def test_an_errand_is_run_at_the_close_where_no_thread_begins(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the interpreter ends."""
    committer = AsyncPostCommitter(completer(store))
    monkeypatch.setattr(AsyncPostCommitter, "_need_worker", lambda _: None)
    run: list[int] = []
    committer.run_soon(lambda: run.append(1))
    assert run == []
    committer.close()
    assert run == [1]


def test_sync_leaves_nothing_to_do() -> None:
    """When commit returns, the cell is healed and the entry gone."""
    client = Client(post_commit="sync")
    start_ts = client.write()
    assert client.raw_shadows() == {(b"r", start_ts): start_ts + 50}
    assert client.entries() == {}
    assert client.steps == [
        "before-flush",
        "flushed",
        "decided",
        "shadow-cells-written",
        "completed",
    ]


def test_async_is_done_when_the_manager_is_closed() -> None:
    """`close` drains."""
    client = Client(post_commit="async")
    at_close: list[object] = []
    client.store.close = lambda: at_close.append(  # type: ignore[method-assign]  # looks first
        (client.raw_shadows(), client.entries())
    )
    start_ts = client.write()
    client.tm.close()
    assert at_close == [({(b"r", start_ts): start_ts + 50}, {})]


def test_none_leaves_the_shadow_cells_to_readers() -> None:
    """The commit is visible all the same, and the read heals it."""
    client = Client(post_commit="none")
    start_ts = client.write()
    assert client.raw_shadows() == {}
    assert client.entries() == {start_ts: start_ts + 50}
    assert client.read() == {b"cf:q": b"v"}
    assert client.raw_shadows() == {(b"r", start_ts): start_ts + 50}
    assert client.entries() == {start_ts: start_ts + 50}


def test_what_this_process_committed_it_need_not_look_up() -> None:
    """Its commit timestamp is known here; the first reader only heals."""
    store = FaultyStore(MemoryStore())
    client = Client(store, post_commit="none")
    client.write()
    tx = client.tm.begin()
    store.calls.clear()
    assert tx.table(TABLE).row(b"r") == {b"cf:q": b"v"}
    assert store.calls == {"get": 1, "write": 1}


def test_what_this_process_will_heal_is_not_healed_by_its_readers() -> None:
    """A counter that is read right after its commit needs no second write of its shadow cell."""
    store = FaultyStore(MemoryStore())
    client = Client(store, post_commit="async")
    go_on = threading.Event()
    arrived = threading.Event()

    def hold(step: str) -> None:
        if step == "shadow-cells-written":
            arrived.set()
            go_on.wait(DEADLINE_S)

    client.tm.session.on_step = hold
    client.write(b"first")
    assert arrived.wait(DEADLINE_S)
    client.write(b"r")
    writes = store.calls["write"]
    assert client.read() == {b"cf:q": b"v"}
    assert store.calls["write"] == writes
    go_on.set()
    client.tm.session.post_committer.close()
    assert client.entries() == {}


def test_a_commit_found_out_later_is_completed_too() -> None:
    """Java leaves the entry for ever after a lost reply."""
    client = Client(post_commit="sync")
    client.oracle.losses.append(Loss.REPLY)
    with client.tm.begin() as tx:
        tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
    assert tx.commit_ts is not None
    assert client.entries() == {}
    assert client.raw_shadows() == {(b"r", tx.start_ts): tx.commit_ts}
