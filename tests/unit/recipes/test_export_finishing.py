"""Whoever gave a queue other buckets is dead: exporters and executors go on with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from omidpy.cli.queues.export import _bucket_count, _while_it_gets_others
from omidpy.errors import QueueFull
from omidpy.fate.admin import Admin
from omidpy.fate.client import Fate
from omidpy.fate.operation import FateId, Operation, Status
from omidpy.fate.table.store import TableFateStore
from omidpy.recipes.export_queue.delivery import runner
from omidpy.recipes.export_queue.delivery.portions import Possession
from omidpy.recipes.export_queue.entries.stored.state import DEFINITION_AGE_S
from omidpy.recipes.export_queue.upkeep import rebucketing
from omidpy.recipes.export_queue.upkeep.finishing import Finisher
from omidpy.recipes.export_queue.upkeep.rebucketing import KIND, Prepare, RebucketTools
from tests.machines.export_queues import QUEUE, TABLE, Killed, Scene
from tests.machines.waiting import wait_for

ENTRIES = 20


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait until adders know, who are of this process and look at each addition."""
    monkeypatch.setattr(rebucketing, "SETTLE_S", 0.0)
    monkeypatch.setattr(runner, "KEEP_EVERY_S", 0.02)


def left(scene: Scene, buckets: int = 3) -> FateId:
    """Let an operation die when nothing can be added any more; return its id."""

    def die(_: float) -> None:
        raise Killed

    tools = RebucketTools(scene.tm, sleep=die)
    known = scene.queue._find()
    first = Prepare(QUEUE, known.made, known.number, buckets, first_table=TABLE)
    fate = Fate(tools, TableFateStore(scene.tm.store), {KIND: 1})
    handle = fate.submit(KIND, first)
    with pytest.raises(Killed):
        fate.run_pending()
    fate.close()
    scene.clock.advance(DEFINITION_AGE_S)
    return handle.id


def is_refused(scene: Scene) -> bool:
    """Say whether nothing can be added."""
    scene.clock.advance(DEFINITION_AGE_S)
    try:
        scene.add("another", key=b"another")
    except QueueFull:
        return True
    return False


def closed_behind_its_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]
) -> Operation:
    """Let an executor stand still before it closes a queue, and an operator fail its operation.

    Another executor undoes that meanwhile.

    Args:
        scene: The queue.
        monkeypatch: For what it writes with.
        then: What the slow one does once it has closed the queue.
    """
    tm, store = scene.tm, TableFateStore(scene.tm.store)
    known = scene.queue._find()
    slow = Fate(RebucketTools(tm), store, {KIND: 1}, clock=scene.clock)
    handle = slow.submit(KIND, Prepare(QUEUE, known.made, known.number, 3, first_table=TABLE))
    replace = tm.session.control.replace
    stood: list[bool] = []

    def stands_still(row: bytes, expected: bytes | None, value: bytes) -> bool:
        if row != scene.queue._places.row() or b"successor" not in value or stood:
            return replace(row, expected, value)
        stood.append(True)
        scene.clock.advance(60)
        other = Fate(RebucketTools(tm), TableFateStore(tm.store), {KIND: 1}, clock=scene.clock)
        admin = Admin(other.store, wait_s=60, clock=scene.clock, sleep=scene.clock.advance)
        admin._judge.dead = frozenset  # type: ignore[method-assign,assignment] # no live one
        other._executor._judge.dead = frozenset  # type: ignore[method-assign,assignment] # ditto
        admin.fail(handle.id)
        other.run_pending()
        other.close()
        assert scene.queue._find().successor is None
        is_written = replace(row, expected, value)
        then()
        return is_written

    monkeypatch.setattr(tm.session.control, "replace", stands_still)
    try:
        slow.run_pending()
    except Killed:
        pass
    finally:
        monkeypatch.undo()
        slow.close()
    assert stood
    found = store.read(handle.id)
    assert found is not None
    return found


def test_who_closes_a_queue_behind_the_end_of_his_operation_opens_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The undo found nothing to undo, and nobody else would ever take that back."""
    scene = Scene(buckets=2)
    found = closed_behind_its_end(scene, monkeypatch, lambda: None)
    assert found.status is Status.FAILED
    assert scene.queue._find().successor is None
    assert not is_refused(scene)
    assert [name for name in scene.tm.tables() if name.startswith(TABLE)] == [TABLE]


@pytest.mark.parametrize("by", ["run", "look"])
def test_a_queue_that_was_left_closed_is_opened_by_its_exporter(
    monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Who has closed it behind the end of his operation is dead."""

    def die() -> None:
        raise Killed

    scene = Scene(buckets=2)
    closed_behind_its_end(scene, monkeypatch, die)
    assert is_refused(scene)
    if by == "run":
        scene.export()
    else:
        with closing(Possession(scene.tm, QUEUE, wait_s=0)) as possession:
            possession.next_end(0)
    assert not is_refused(scene)


def test_a_queue_whose_operation_is_under_way_is_opened_by_nobody_else() -> None:
    """Nor where its buckets were taken over, or have taken entries."""
    scene = Scene(buckets=2)
    left(scene)
    tools, made = RebucketTools(scene.tm), scene.queue._find().made
    before = tools.read(QUEUE, made)
    Finisher(scene.tm, scene.queue._places)._open_again(scene.queue._find())
    rebucketing.let_go(tools, QUEUE, made, "1" * 16)
    assert tools.read(QUEUE, made) == before
    assert before is not None
    raw, known = before
    assert known.successor is not None
    opened = msgspec.structs.replace(known.successor, is_open=True)
    assert tools.replace(QUEUE, raw, msgspec.structs.replace(known, successor=opened))
    rebucketing.let_go(tools, QUEUE, made, known.successor.operation)
    assert tools.read(QUEUE, made) != before
    assert scene.queue._find().successor == opened


def test_a_run_for_what_is_there_goes_on_with_it() -> None:
    """Before it delivers, so that adders go on; and behind that, so that the new buckets do."""
    scene = Scene(buckets=2)
    scene.add(*range(ENTRIES))
    left(scene)
    assert is_refused(scene)
    assert scene.export() == list(range(ENTRIES))
    assert not is_refused(scene)
    assert scene.queue.buckets == 3
    assert scene.queue.lag().next_buckets is None
    assert [name for name in scene.tm.tables() if name.startswith(TABLE)] == [f"{TABLE}.2"]
    assert scene.export() == [*range(ENTRIES), "another"]


def test_an_exporter_that_runs_goes_on_with_it() -> None:
    """Whichever queue of the store it exports."""
    scene = Scene(buckets=2)
    scene.add(*range(ENTRIES))
    exporter = scene.runner(max_poll_s=0.02, lease_s=1.0)
    thread = threading.Thread(target=exporter.run)
    thread.start()
    try:
        left(scene)

        def is_over() -> bool:
            scene.clock.advance(0.05)
            return not is_refused(scene) and scene.queue.lag().next_buckets is None

        wait_for(is_over, 60)
    finally:
        exporter.stop()
        thread.join()
    assert scene.queue.buckets == 3
    assert set(scene.sink.values) >= set(range(ENTRIES))


def test_a_reader_of_portions_goes_on_with_it() -> None:
    """As Spark's driver is: it looks for a batch, and finds that the queue is getting buckets."""
    scene = Scene(buckets=2)
    scene.add("old")
    possession = Possession(scene.tm, QUEUE, wait_s=0)
    try:
        left(scene)
        end_ts = possession.next_end(0)
        assert end_ts is not None
        wait_for(lambda: not is_refused(scene), 60)
        possession.acknowledge(end_ts)
        wait_for(lambda: scene.queue.lag().next_buckets is None, 60)
    finally:
        possession.close()
    scene.clock.advance(DEFINITION_AGE_S)
    assert scene.export() == ["another"]


def test_an_executor_that_has_the_queues_goes_on_with_it() -> None:
    """As `omidpy fate run` has; one that has not leaves it alone, and says who is wanted."""
    scene = Scene(buckets=2)
    operation = left(scene)
    store = TableFateStore(scene.tm.store)
    without = Fate(SimpleNamespace(queues=None), store, {"general": 1})
    without.run_pending()
    without.close()
    assert "omidpy fate run" in store.existing(operation).waiting
    assert is_refused(scene)
    having: Any = SimpleNamespace(queues=RebucketTools(scene.tm))
    fate = Fate(having, store, {"general": 1})
    wait_for(lambda: fate.run_pending() is None, 60)
    fate.close()
    assert not is_refused(scene)
    assert scene.queue.buckets == 3


def test_an_executor_of_other_tables_does_not_take_the_queue_for_dropped() -> None:
    """A manager may prefix its tables: to one of another prefix there is no such queue."""
    scene = Scene(buckets=2)
    known = scene.queue._find()
    first = Prepare(QUEUE, known.made, known.number, 3, first_table=f"ns_{TABLE}")
    store = TableFateStore(scene.tm.store)
    fate = Fate(RebucketTools(scene.tm), store, {KIND: 1})
    handle = fate.submit(KIND, first)
    fate.run_pending()
    fate.close()
    assert f"ns_{TABLE}" in store.existing(handle.id).waiting
    assert scene.queue._find() == known


def test_status_says_that_nothing_can_be_added_and_why() -> None:
    """And afterwards that new entries wait for the old ones."""
    scene = Scene(buckets=2)
    assert _bucket_count(scene.queue.lag()) == "2"
    operation = left(scene)
    lag = scene.queue.lag()
    assert (lag.next_buckets, lag.takes_entries, lag.operation) == (3, False, operation)
    assert _bucket_count(lag) == "2, getting 3"
    said = _while_it_gets_others(QUEUE, lag)
    assert f"by operation {operation}: nothing can be added" in said
    with pytest.raises(QueueFull, match="omidpy export status q"), scene.tm.begin() as tx:
        scene.queue.add(tx, b"k", 1)
