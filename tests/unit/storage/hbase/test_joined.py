"""Small puts of many threads share calls: who sends whose, and who hears of which failure."""

from __future__ import annotations

import queue
import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.storage.hbase.rpc.gateway import Unanswered
from omidpy.storage.hbase.thrift2 import joined
from omidpy.storage.hbase.thrift2.convert import RowWrite
from omidpy.storage.hbase.thrift2.joined import MAX_BYTES, MAX_MEMBERS, MAX_ROWS, JoinedPuts

DEADLINE_S = 30.0
NEVER_S = 3600.0


class Call:
    """One call for puts, which ends when the test says so."""

    def __init__(self, table: str, puts: Sequence[Any], patience_s: float | None) -> None:
        self.table = table
        self.puts = list(puts)
        self.patience_s = patience_s
        self._end: Future[None] = Future()

    def succeed(self) -> None:
        """Let it succeed."""
        self._end.set_result(None)

    def fail(self, error: Exception) -> None:
        """Let it fail."""
        self._end.set_exception(error)

    def wait(self) -> None:
        """Wait for its end."""
        self._end.result(DEADLINE_S)


class Gateway:
    """Takes calls and shows them to the test."""

    def __init__(self, *, patience_s: float = NEVER_S) -> None:
        self.calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self.now_s = 0.0
        self.joined = JoinedPuts(self.put, patience_s=patience_s, now_s=lambda: self.now_s)
        self.threads = ThreadPoolExecutor(MAX_MEMBERS + 4)

    def put(self, table: str, puts: Sequence[Any], *, patience_s: float | None) -> None:
        """Show a call and wait for its end."""
        call = Call(table, puts, patience_s)
        self.calls.put(call)
        call.wait()

    def write(self, *puts: str, table: str = "t") -> Future[None]:
        """Write in a thread of its own."""
        return self.threads.submit(self.joined.write, table, puts)

    def write_in_line(self, *puts: str) -> Future[None]:
        """Write in a thread of its own, and return once it waits."""
        before = self.waiting()
        future = self.write(*puts)
        _until(lambda: self.waiting() == before + 1)
        return future

    def waiting(self) -> int:
        """Return how many wait for their turn with table t."""
        line = self.joined._lines.get("t")
        return len(line.waiting) if line is not None else 0

    def next_call(self) -> Call:
        """Return the next call that was made."""
        return self.calls.get(timeout=DEADLINE_S)


def _until(is_so: Callable[[], bool]) -> None:
    """Wait for a thread to get somewhere."""
    tick, deadline = threading.Event(), DEADLINE_S
    while not is_so():
        assert deadline > 0, "it never happened"
        tick.wait(0.002)
        deadline -= 0.002


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """Return a gateway whose callers have all the patience of the world."""
    gateway = Gateway()
    yield gateway
    gateway.threads.shutdown()


@pytest.fixture
def hasty() -> Iterator[Gateway]:
    """Return a gateway whose callers wait for nobody for long."""
    gateway = Gateway(patience_s=0.05)
    yield gateway
    gateway.threads.shutdown()


def test_a_lone_write_is_a_call_of_its_own_at_once(gateway: Gateway) -> None:
    """No timer: nobody else may ever come.  It is repeated like any call."""
    for put in ("a", "b"):
        written = gateway.write(put)
        call = gateway.next_call()
        assert (call.puts, call.patience_s) == ([put], None)
        call.succeed()
        written.result(DEADLINE_S)


def test_those_that_come_while_a_call_is_under_way_share_the_next(gateway: Gateway) -> None:
    """Group commit: the busier the gateway, the more rows in a call."""
    first = gateway.write("a")
    call = gateway.next_call()
    others = [gateway.write_in_line(*puts) for puts in (("b", "c"), ("d",), ("e",))]
    assert gateway.calls.empty(), "one call at a time"
    call.succeed()
    first.result(DEADLINE_S)
    call = gateway.next_call()
    assert call.puts == ["b", "c", "d", "e"]
    assert not any(other.done() for other in others), "nobody returns before the answer"
    call.succeed()
    for other in others:
        other.result(DEADLINE_S)
    assert gateway.calls.empty()


def test_a_call_joins_no_more_than_fit(gateway: Gateway) -> None:
    """Its size is bounded; the rest forms the call after it."""
    first = gateway.write("first")
    call = gateway.next_call()
    names = [f"{number:02}" for number in range(MAX_MEMBERS + 1)]
    others = [gateway.write_in_line(name) for name in names]
    for expected in (["first"], names[:-1], names[-1:]):
        assert call.puts == expected
        call.succeed()
        if expected != names[-1:]:
            call = gateway.next_call()
    for written in (first, *others):
        written.result(DEADLINE_S)


def test_tables_do_not_wait_for_each_other(gateway: Gateway) -> None:
    """One that is slow or gone is no reason for the others to wait."""
    slow = gateway.write("a", table="slow")
    call = gateway.next_call()
    written = gateway.write("b", table="quick")
    gateway.next_call().succeed()
    written.result(DEADLINE_S)
    call.succeed()
    slow.result(DEADLINE_S)


@pytest.mark.parametrize("error", [StorageUnavailable("full"), Unanswered("putMultiple")])
def test_after_a_shared_failure_everybody_calls_alone(gateway: Gateway, error: Exception) -> None:
    """A joint call does not tell whose row failed, nor which were written; puts may be repeated."""
    first = gateway.write("a")
    call = gateway.next_call()
    good, bad = gateway.write_in_line("good"), gateway.write_in_line("bad")
    call.succeed()
    first.result(DEADLINE_S)
    call = gateway.next_call()
    assert call.patience_s == NEVER_S, "it is made once: there is another way"
    call.fail(error)
    for _ in range(2):
        call = gateway.next_call()
        assert call.patience_s is None
        if call.puts == ["bad"]:
            call.fail(StorageUnavailable("bad"))
        else:
            call.succeed()
    good.result(DEADLINE_S)
    with pytest.raises(StorageUnavailable, match="bad"):
        bad.result(DEADLINE_S)


def test_the_failure_of_a_lone_call_is_nobody_elses(gateway: Gateway) -> None:
    """Those that waited for it go on."""
    first = gateway.write("a")
    call = gateway.next_call()
    other = gateway.write_in_line("b")
    call.fail(StorageUnavailable("full"))
    with pytest.raises(StorageUnavailable):
        first.result(DEADLINE_S)
    gateway.next_call().succeed()
    other.result(DEADLINE_S)


def test_a_defect_in_a_shared_call_leaves_nobody_waiting(gateway: Gateway) -> None:
    """Whoever made the call hears of it, the others call alone."""
    first = gateway.write("a")
    call = gateway.next_call()
    caller, other = gateway.write_in_line("b"), gateway.write_in_line("c")
    call.succeed()
    first.result(DEADLINE_S)
    gateway.next_call().fail(ZeroDivisionError())
    call = gateway.next_call()
    assert call.puts == ["c"]
    call.succeed()
    other.result(DEADLINE_S)
    with pytest.raises(ZeroDivisionError):
        caller.result(DEADLINE_S)


def test_whoever_waits_for_long_calls_alone(hasty: Gateway) -> None:
    """A region that is under way holds a call up for seconds; the rows of others need not wait."""
    stuck = hasty.write("stuck")
    call = hasty.next_call()
    other = hasty.write("other")
    alone = hasty.next_call()
    assert (alone.puts, alone.patience_s) == (["other"], None)
    alone.succeed()
    other.result(DEADLINE_S)
    call.succeed()
    stuck.result(DEADLINE_S)
    assert hasty.calls.empty(), "it left the line: nobody sends it again"


def test_nobody_waits_behind_a_call_that_is_stuck(gateway: Gateway) -> None:
    """Once it has taken too long, newcomers do not even begin to wait."""
    stuck = gateway.write("stuck")
    call = gateway.next_call()
    gateway.now_s += NEVER_S + 1
    written = gateway.write("b")
    next_call = gateway.next_call()
    waits = gateway.write_in_line("c")
    call.succeed()
    stuck.result(DEADLINE_S)
    assert gateway.waiting() == 1, "the late call gives nobody a turn: another one is under way"
    next_call.succeed()
    written.result(DEADLINE_S)
    gateway.next_call().succeed()
    waits.result(DEADLINE_S)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT interrupt, also in what a shell started in the background: there it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_whoever_is_interrupted_leaves_the_line(gateway: Gateway) -> None:
    """The transaction is rolled back, so nobody is to write its cells afterwards."""
    first = gateway.write("a")
    call = gateway.next_call()

    def interrupt() -> None:
        _until(lambda: gateway.waiting() == 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupter = gateway.threads.submit(interrupt)
    with pytest.raises(KeyboardInterrupt):
        gateway.joined.write("t", ["interrupted"])
    interrupter.result(DEADLINE_S)
    assert gateway.waiting() == 0
    call.succeed()
    first.result(DEADLINE_S)
    assert gateway.calls.empty()


def test_whoever_is_interrupted_at_its_turn_gives_it_up(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those it was to write for call alone, at once."""

    class Interrupted(joined._Member):
        def __init__(self, puts: Sequence[Any]) -> None:
            super().__init__(puts)
            if puts[0] == "interrupted":
                self.wake = InterruptedLock()  # type: ignore[assignment]  # in the place of one

    class InterruptedLock:
        def __init__(self) -> None:
            self._released = threading.Event()

        def acquire(self, *, timeout: float) -> bool:
            assert self._released.wait(min(timeout, DEADLINE_S))
            raise KeyboardInterrupt

        def release(self) -> None:
            self._released.set()

    monkeypatch.setattr(joined, "_Member", Interrupted)
    first = gateway.write("a")
    call = gateway.next_call()
    interrupted, other = gateway.write_in_line("interrupted"), gateway.write_in_line("b")
    call.succeed()
    first.result(DEADLINE_S)
    call = gateway.next_call()
    assert call.puts == ["b"]
    call.succeed()
    other.result(DEADLINE_S)
    with pytest.raises(KeyboardInterrupt):
        interrupted.result(DEADLINE_S)
    after = gateway.write("c")
    gateway.next_call().succeed()
    after.result(DEADLINE_S)


def test_a_forked_child_waits_for_no_thread_of_its_parent(gateway: Gateway) -> None:
    """They do not exist there."""
    first = gateway.write("a")
    call = gateway.next_call()
    gateway.joined.before_fork()
    gateway.joined.after_fork_in_child()
    child = gateway.write("b")
    gateway.next_call().succeed()
    child.result(DEADLINE_S)
    call.succeed()
    first.result(DEADLINE_S)


def test_only_small_writes_wait_for_each_other(gateway: Gateway) -> None:
    """A flush of thousands of rows would hold up everybody else's."""
    rows = [RowWrite(b"r")] * (MAX_ROWS + 1)
    assert gateway.joined.takes(rows[:-1])
    assert not gateway.joined.takes(rows)
    assert not gateway.joined.takes([])
    assert gateway.joined.takes([RowWrite(b"r", size_bytes=MAX_BYTES)])
    assert not gateway.joined.takes(
        [RowWrite(b"r", size_bytes=MAX_BYTES), RowWrite(b"r", [], [], 1)]
    )


def test_every_write_that_returns_was_written_and_only_bad_ones_fail() -> None:
    """Many threads, calls that fail for a bad row or for no reason: the promise to each holds."""
    rng = random.Random(5)
    lock = threading.Lock()
    stored: set[str] = set()
    shared, latency = threading.Event(), threading.Event()

    def put(table: str, puts: Sequence[Any], *, patience_s: float | None) -> None:
        del table
        if len(puts) > 1:
            shared.set()
        latency.wait(0.001)  # which is when others come
        with lock:
            is_bad = any(put.startswith("bad") for put in puts)
            if is_bad or (patience_s is not None and rng.random() < 0.2):
                stored.update(rng.sample(list(puts), len(puts) // 2))
                raise StorageUnavailable("one of them")
            stored.update(puts)

    writers = JoinedPuts(put)

    def work(thread: int) -> list[tuple[str, bool, bool]]:
        found = []
        for number in range(40):
            name = f"{'bad' if (thread + number) % 10 == 0 else 'good'} {thread} {number}"
            try:
                writers.write("t", [name])
            except StorageUnavailable:
                found.append((name, False, False))
            else:
                with lock:
                    found.append((name, True, name in stored))
        return found

    with ThreadPoolExecutor(8) as threads:
        outcomes = [one for found in threads.map(work, range(8)) for one in found]
    assert shared.is_set(), "threads met"
    for name, is_done, is_stored in outcomes:
        assert is_done == name.startswith("good"), name
        assert not is_done or is_stored, name
