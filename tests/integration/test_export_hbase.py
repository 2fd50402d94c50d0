"""An export queue on a real HBase: exact removal under its delete markers, regions and leases."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from omidpy.connect import connect
from omidpy.errors import TransactionAborted
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue import Batch, ExportQueue
from omidpy.recipes.export_queue.upkeep import rebucketing
from tests.machines.export_queues import Collector
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import empty_hbase
from tests.machines.processes import tso_server
from tests.machines.waiting import wait_for

pytestmark = pytest.mark.integration

ROAD_BY_DAY = Road.DIRECT

TABLE = "OMIDPY_EXPORT_q"


@pytest.fixture
def tm(hbase: HBase) -> Iterator[TransactionManager]:
    """Return a manager over an HBase without tables."""
    with (
        empty_hbase(hbase) as url,
        tso_server(url, "--timestamps", "world") as server,
        connect(url, server.address) as manager,
    ):
        yield manager


def test_entries_of_many_adders_leave_in_the_order_of_commits(tm: TransactionManager) -> None:
    """Some begin early and commit late; poison parks its key; nothing is left but what waits."""
    queue = ExportQueue.create(tm, "q", buckets=10)
    assert len(tm.store.regions(TABLE)) == 2
    late = tm.begin()
    queue.add(late, b"0", "late")
    late.flush()

    def add(adder: int) -> None:
        for number in range(10):
            with tm.begin() as tx:
                queue.add(tx, b"%d" % (number % 5), adder * 100 + number)

    threads = [threading.Thread(target=add, args=(adder,)) for adder in range(4)]
    for thread in threads:
        thread.start()
    sink = Collector()
    queue.run_once(sink, wait_s=0)
    for thread in threads:
        thread.join()
    queue.run_once(sink, wait_s=0)
    assert queue.lag().entries == 0
    late.commit()
    assert queue.run_once(sink, wait_s=0) == 1
    assert len(sink.entries) == 41
    assert {entry.value for entry in sink.entries} >= {"late", 0, 309}
    for key in {entry.key for entry in sink.entries}:
        seqs = [entry.seq for entry in sink.entries if entry.key == key]
        assert seqs == sorted(set(seqs))

    def refuse(batch: Batch) -> None:
        raise ValueError(batch)

    with tm.begin() as tx:
        queue.add_all(tx, [(b"k", "poison"), (b"k", "behind")])
    sink.on_batch = refuse
    queue.run_once(sink, wait_s=0, max_attempts=1)
    assert [letter.value for letter in queue.dead_letters()] == ["poison", "behind"]
    sink.on_batch = lambda _: None
    assert queue.dead_letters().retry(b"k") == 1
    queue.run_once(sink, wait_s=0)
    assert [entry.value for entry in sink.entries[-2:]] == ["poison", "behind"]
    assert list(queue.dead_letters()) == []
    with tm.begin(read_only=True) as tx:
        assert list(tx.table(TABLE).scan()) == []
    queue.drop()
    assert TABLE not in tm.tables()


def test_buckets_change_and_keys_stay_together(
    tm: TransactionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is fenced, left and dropped; the new one is in as many regions as it needs."""
    monkeypatch.setattr(rebucketing, "SETTLE_S", 0.1)  # nobody else adds to this queue
    queue, sink = ExportQueue.create(tm, "q", buckets=2, layout="fluo"), Collector()
    slow = tm.begin()
    queue.add(slow, b"a", "never")
    slow.flush()
    with tm.begin() as tx:
        queue.add_all(tx, ((b"%d" % (number % 3), number) for number in range(9)))
    runner = queue.runner(sink, max_poll_s=0.1, lease_s=2.0)
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        queue.rebucket(9, wait_s=120)
        with pytest.raises(TransactionAborted):
            slow.commit()
        with tm.begin() as tx:
            queue.add(tx, b"0", 9)
        wait_for(lambda: len(sink.entries) >= 10, 120)
    finally:
        runner.stop()
        thread.join()
    assert sorted(set(sink.values)) == list(range(10))
    for key in (b"0", b"1", b"2"):
        values = [entry.value for entry in sink.entries if entry.key == key]
        assert list(dict.fromkeys(values)) == sorted(set(values))
    assert [name for name in tm.tables() if name.startswith(TABLE)] == [f"{TABLE}.2"]
    assert len(tm.store.regions(f"{TABLE}.2")) == 2
