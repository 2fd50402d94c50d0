"""The numbers of a client: each is counted once, where it happens, and cheap to count."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from omidpy import aio, prometheus
from omidpy.base.telemetry.client_metrics import BOUNDS_S, MANY, Tally
from omidpy.errors import (
    CommitOutcomeUnknown,
    Fenced,
    Rollback,
    StorageUnavailable,
    TransactionAborted,
    UsageError,
    WriteConflict,
)
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.model import Committed
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, on
from omidpy.tx.transaction import Transaction
from tests.machines.clients import TABLE, Client, Loss


@pytest.fixture
def client() -> Client:
    """Return a manager over memory."""
    return Client()


def put(tx: Transaction) -> None:
    """Write something."""
    tx.table(TABLE).put(b"r", {b"cf:q": b"v"})


# -- what is counted -------------------------------------------------------------------------------


def test_a_new_manager_has_seen_nothing(client: Client) -> None:
    """A table was made, which is no transaction."""
    found = client.tm.metrics
    assert (found.commits, found.aborts, found.retries) == (0, {}, 0)
    assert (found.outcomes_unknown, found.healed_cells, found.begin.count) == (0, 0, 0)
    assert found.begin.mean_s == 0.0


def test_commits_that_wrote_are_counted_and_measured(client: Client) -> None:
    """A reader's commit asks nobody and says nothing of the store; a rollback is no commit."""
    client.write()
    client.read()
    client.tm.begin().rollback()
    with client.tm.begin() as tx:
        put(tx)
        raise Rollback
    found = client.tm.metrics
    assert (found.commits, found.commit.count, found.begin.count) == (1, 1, 4)
    assert (sum(found.commit.buckets), sum(found.begin.buckets)) == (1, 4)
    assert found.aborts == {}


def conflict(client: Client) -> None:
    """Let two transactions write one cell."""
    tx = client.tm.begin()
    put(tx)
    client.write()
    tx.commit()


def fence(client: Client) -> None:
    """Fence the table of an open transaction."""
    tx = client.tm.begin()
    put(tx)
    client.tm.fence(TABLE)
    tx.commit()


def rollback_only(client: Client) -> None:
    """Forbid the commit."""
    tx = client.tm.begin()
    tx.set_rollback_only()
    tx.commit()


@pytest.mark.parametrize(
    ("fail", "error"),
    [(conflict, WriteConflict), (fence, Fenced), (rollback_only, TransactionAborted)],
)
def test_aborts_are_counted_by_reason(
    client: Client, fail: Callable[[Client], None], error: type[TransactionAborted]
) -> None:
    """Contention has another remedy than fences."""
    with pytest.raises(error):
        fail(client)
    assert client.tm.metrics.aborts == {error.__name__: 1}


def test_an_unknown_outcome_is_counted_and_a_commit_when_it_is_found_out() -> None:
    """How long that took is no latency of a commit."""
    store = FaultyStore(MemoryStore())
    client = Client(store)
    tx = client.tm.begin()
    put(tx)
    client.oracle.losses.append(Loss.REPLY)
    client.oracle.can_invalidate = False
    store.plans.append(on("get.before", StorageUnavailable("cut"), table=COMMIT_TABLE))
    with pytest.raises(CommitOutcomeUnknown):
        tx.commit()
    assert (client.tm.metrics.outcomes_unknown, client.tm.metrics.commits) == (1, 0)
    store.plans.clear()
    assert isinstance(client.tm.outcome(tx), Committed)
    found = client.tm.metrics
    assert (found.outcomes_unknown, found.commits, found.commit.count) == (1, 1, 0)


def test_further_tries_are_counted(client: Client) -> None:
    """The first is none."""
    for attempt in client.tm.attempts(budget_s=60):
        with attempt as tx:
            put(tx)
            if attempt.number < 3:
                client.write()
    found = client.tm.metrics
    assert (found.retries, found.aborts) == (2, {"WriteConflict": 2})


def test_cells_healed_for_others_are_counted() -> None:
    """Many of them say that clients die, or that nobody completes their commits."""
    client = Client(post_commit="none")
    client.write(b"a")
    client.write(b"b")
    with client.tm.begin() as tx:
        assert len(list(tx.table(TABLE).scan())) == 2
        assert len(list(tx.table(TABLE).scan())) == 2
    assert client.tm.metrics.healed_cells == 2


def test_a_snapshot_of_the_numbers_stays_what_it_was(client: Client) -> None:
    """The difference of two is what happened in between."""
    before = client.tm.metrics
    client.write()
    assert (before.commits, client.tm.metrics.commits) == (0, 1)


def test_a_child_process_begins_at_nought(client: Client) -> None:
    """Its parent counts for itself, and both would be added up; nor does it wait for a lock."""
    client.write()
    with client.tm.session.tally._lock:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)  # ends a child that waits for its parent's lock
            os._exit(client.tm.metrics.commits + client.tm.metrics.begin.count)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert client.tm.metrics.commits == 1


# -- how it is counted -----------------------------------------------------------------------------


def times(*seconds: float) -> Callable[[], float]:
    """Return a clock that tells these times."""
    ticking: Iterator[float] = iter(seconds)
    return lambda: next(ticking)


def test_latencies_are_sorted_into_buckets_by_their_upper_bounds() -> None:
    """One at a bound belongs below it, as Prometheus has it; one above all of them is kept."""
    tally = Tally(times(BOUNDS_S[0], BOUNDS_S[0] * 1.01, 1000.0))
    for _ in range(3):
        tally.committed(0.0)
    found = tally.read().commit
    assert found.buckets == (1, 1, *(0,) * (len(BOUNDS_S) - 2), 1)
    assert found.total_s == pytest.approx(BOUNDS_S[0] * 2.01 + 1000)
    assert found.mean_s == pytest.approx(found.total_s / 3)


def test_what_waits_to_be_sorted_has_a_bound() -> None:
    """Whether anybody reads the numbers or not."""
    tally = Tally(lambda: 1.0)
    for _ in range(3 * MANY):
        tally.began(0.5)
        assert len(tally._begin.waiting) < MANY
    assert tally.read().begin.count == 3 * MANY


def test_threads_lose_no_count() -> None:
    """Nor does whoever reads in between."""
    tally = Tally()
    per_thread = 5 * MANY

    def work() -> None:
        for number in range(per_thread):
            tally.began(0.0)
            if number % 100 == 0:
                tally.healed(1)
                tally.read()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = tally.read()
    assert found.begin.count == sum(found.begin.buckets) == 4 * per_thread
    assert found.healed_cells == 4 * per_thread // 100 + 4 * (per_thread % 100 > 0)


# -- Prometheus ------------------------------------------------------------------------------------


def page(registry: CollectorRegistry) -> list[str]:
    """Return what a scraper reads."""
    return [
        line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")
    ]


def test_prometheus_reads_the_same_numbers(client: Client) -> None:
    """When it scrapes, not when they are registered."""
    registry = CollectorRegistry()
    prometheus.register(client.tm, registry)
    with pytest.raises(WriteConflict):
        conflict(client)
    lines = page(registry)
    for line in (
        "omidpy_commits_total 1.0",
        'omidpy_aborts_total{reason="WriteConflict"} 1.0',
        "omidpy_retries_total 0.0",
        "omidpy_outcomes_unknown_total 0.0",
        "omidpy_healed_cells_total 0.0",
        "omidpy_begin_seconds_count 2.0",
        'omidpy_begin_seconds_bucket{le="+Inf"} 2.0',
        "omidpy_commit_seconds_count 1.0",
    ):
        assert line in lines


def test_managers_share_a_registry_under_names_of_their_own(client: Client) -> None:
    """Two under one name would be told apart by nobody."""
    registry = CollectorRegistry()
    first = prometheus.register(client.tm, registry)
    with pytest.raises(UsageError, match=r"metrics omidpy_.* already .*another prefix="):
        prometheus.register(Client().tm, registry)
    prometheus.register(Client().tm, registry, prefix="other")
    assert "other_commits_total 0.0" in page(registry)
    registry.unregister(first)
    assert not any(line.startswith("omidpy_") for line in page(registry))


def test_asyncio_has_the_same_numbers(client: Client) -> None:
    """Of the manager that it drives."""

    async def main() -> None:
        async with aio.TransactionManager(client.tm) as tm:
            async for attempt in tm.attempts(budget_s=60):
                async with attempt as tx:
                    await tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
                    if attempt.number == 1:
                        client.write()
            assert (tm.metrics.retries, tm.metrics.aborts) == (1, {"WriteConflict": 1})
            registry = CollectorRegistry()
            prometheus.register(tm, registry)
            assert "omidpy_retries_total 1.0" in page(registry)

    asyncio.run(main())
