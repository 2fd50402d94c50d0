"""An owner that was replaced while it slept removes nothing, whatever its receiver says (X9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from omidpy.errors import ExportError
from omidpy.recipes.export_queue import Batch, Deposed, Poison
from omidpy.recipes.export_queue.delivery import patience as patience_module
from omidpy.recipes.export_queue.delivery import portions
from omidpy.recipes.export_queue.delivery.portions import Possession
from omidpy.recipes.export_queue.entries import dead
from omidpy.recipes.export_queue.entries.possession import BucketLost
from omidpy.recipes.export_queue.entries.stored.layout import encode_dead
from omidpy.recipes.export_queue.entries.stored.state import BucketState
from omidpy.storage.base import RowMutation, Store
from omidpy.storage.memory import MemoryStore
from tests.machines.export_checks import CountsInATable
from tests.machines.export_queues import TABLE, Killed, Scene
from tests.machines.fencing import Fencing, answered, takes_over
from tests.machines.like_thrift2 import LikeThrift2

STORES = [MemoryStore, LikeThrift2]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait between tries."""
    monkeypatch.setattr(patience_module, "FIRST_PAUSE_S", 0.0)


@pytest.fixture(params=STORES, ids=["one change for all", "row by row"])
def store(request: pytest.FixtureRequest) -> Store:
    """Return a store that changes many rows at once, or one by one."""
    made: Store = request.param()
    return made


def asleep(sink: Fencing, act: Callable[[], object]) -> None:
    """Let the first batch that comes be held up while somebody acts."""
    waiting = [act]

    def hold(_: Batch) -> None:
        if waiting:
            waiting.pop()()

    sink.on_batch = hold


@pytest.mark.parametrize("layout", ["log", "fluo"])
def test_what_was_refused_by_a_fence_stays(store: Store, layout: str) -> None:
    """The next owner delivers three of ten and dies; the first one comes back, and is refused."""
    scene = Scene(store, layout=layout)
    scene.sink = sink = Fencing()
    for number in range(10):
        scene.add(number, key=b"%d" % number)

    def others() -> None:
        def die(batch: Batch) -> None:
            if batch[0].value == 3:
                raise Killed

        sink.on_batch = die
        runner = scene.runner(buffer_bytes=1)
        takes_over(runner)
        with pytest.raises(Killed):
            runner.run_once(wait_s=0)
        sink.on_batch = lambda _: None

    asleep(sink, others)
    assert scene.export() == [0, 1, 2]
    assert scene.export() == list(range(10))
    assert sum(one.exported for one in scene.queue.lag().buckets) == 10
    assert scene.raw_rows() == []


@pytest.mark.parametrize("is_dead", [False, True])
def test_who_is_told_of_a_later_owner_sets_nothing_aside(store: Store, *, is_dead: bool) -> None:
    """Not even where the bucket is its own: nobody has delivered what its receiver refuses."""
    scene = Scene(store)
    scene.add(*range(3))
    runner = scene.runner()
    takes_over(runner)

    def depose(batch: Batch) -> None:
        if is_dead and runner._crew.worker is None:
            runner._crew.join(takes_all=True)
            runner._crew.look()
        raise Deposed("a later owner was here")

    scene.sink.on_batch = depose
    if is_dead:
        assert scene.export() == []
        assert len(scene.sink.seen) == 1, "it has looked, and found that to be so"
        runner._crew.leave()
    else:
        with pytest.raises(ExportError, match=r"refuses everything.*a later owner"):
            scene.export()
    assert list(scene.queue.dead_letters()) == []
    scene.sink.on_batch = lambda _: None
    assert scene.export() == [0, 1, 2]


@pytest.mark.parametrize("error", [Deposed(), answered(409), answered(412)], ids=repr)
def test_who_may_have_a_later_owner_looks_before_it_blames_an_entry(
    store: Store, error: Exception
) -> None:
    """Nothing more is handed over, and the entry has not failed."""
    scene = Scene(store)
    scene.add("good")
    first, second = scene.runner(max_attempts=1), scene.runner()
    first._crew.join(takes_all=True)
    first._crew.look()
    memory = first._delivery.new_memory()
    takes_over(second)

    def depose(_: Batch) -> None:
        second._crew.join(takes_all=True)
        second._crew.look()
        raise error

    scene.sink.on_batch = depose
    with pytest.raises(BucketLost):
        first._delivery.run_pass(first._crew.leases[0], memory, first._look())
    assert memory.poison == {}
    with pytest.raises(BucketLost):
        first._delivery.run_pass(first._crew.leases[0], memory, first._look())
    assert scene.sink.seen == [["good"]]
    second._crew.leave()
    scene.sink.on_batch = lambda _: None
    assert scene.export() == ["good"]


def test_a_dead_letter_that_was_refused_by_a_fence_stays(store: Store) -> None:
    """It has no cursor: its removal alone says that it was delivered."""
    scene = Scene(store)
    scene.sink = sink = Fencing()

    def refuse(batch: Batch) -> None:
        raise Poison(batch[0], "no")

    sink.on_batch = refuse
    scene.add("bad")
    scene.export()
    assert scene.queue.dead_letters().retry() == 1

    def others() -> None:
        sink.on_batch = lambda _: None
        runner = scene.runner()
        takes_over(runner)
        runner._crew.join(takes_all=True)
        runner._crew.look()
        sink.fences[0] = runner._crew.leases[0].fence
        runner._crew.leave()

    asleep(sink, others)
    assert scene.export() == []
    assert scene.export() == ["bad"]


def test_nobody_is_set_aside_by_who_was_replaced(store: Store) -> None:
    """Its receiver blames an entry that the next owner delivers."""
    scene = Scene(store)
    scene.sink = sink = Fencing()
    scene.add("good")
    runner = scene.runner()
    takes_over(runner)

    def blame(batch: Batch) -> None:
        sink.on_batch = lambda _: None
        raise Poison(batch[0], "no")

    sink.on_batch = blame
    steps: list[str] = []

    def on_step(step: str) -> None:
        steps.append(step)
        if steps == ["taken", "before-export", "taken"]:
            runner._crew.join(takes_all=True)
            runner._crew.look()

    scene.runner(on_step=on_step).run_once(wait_s=0)
    assert list(scene.queue.dead_letters()) == []
    runner._crew.leave()
    assert scene.export() == ["good"]


class DiesBetween(LikeThrift2):
    """Ends its process when rows of the queue are about to be removed."""

    is_armed = False

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Write, or end."""
        if self.is_armed and any(one.deletes for one in batch.get(TABLE, ())):
            self.is_armed = False
            raise Killed
        super().write(batch, durable=durable)


@pytest.mark.parametrize("buffer_bytes", [1, 10_000])
def test_a_death_between_cursor_and_removal_leaves_nothing(buffer_bytes: int) -> None:
    """Where rows change one by one: they are counted once, come no second time, and go."""
    store = DiesBetween()
    scene = Scene(store)
    scene.add(*range(5))
    scene.add(*range(5, 10))
    scene.client.naive.raise_low_watermark()  # the next scan could begin above all of them
    store.is_armed = True
    with pytest.raises(Killed):
        scene.export(buffer_bytes=buffer_bytes)
    assert len(scene.raw_rows()) == 10
    assert scene.export() == list(range(10))
    assert scene.raw_rows() == []
    assert sum(one.exported for one in scene.queue.lag().buckets) == 10


def test_what_was_delivered_is_counted_whoever_dies() -> None:
    """At each step of a batch."""
    for make_store in STORES:
        for step in ("taken", "before-export", "exported", "removed", "cursor"):
            scene = Scene(make_store())
            scene.add(*range(3))
            scene.die_at(step)
            scene.add(*range(3, 6))
            scene.export()
            assert sum(one.exported for one in scene.queue.lag().buckets) == 6, step


def test_into_the_same_store_what_another_has_delivered_is_not_counted_again() -> None:
    """The transaction finds it gone."""
    scene = Scene()
    scene.add(*range(3))
    sink: Any = CountsInATable()
    others = scene.runner(sink)
    takes_over(others)
    waiting = [others]

    def overtake(step: str) -> None:
        if step == "before-export" and waiting:
            waiting.pop().run_once(wait_s=0)

    scene.runner(sink, on_step=overtake).run_once(wait_s=0)
    assert sum(one.exported for one in scene.queue.lag().buckets) == 3


def test_a_reader_of_portions_that_was_replaced_removes_nothing(store: Store) -> None:
    """Stopped between its check and the removal; another one has taken its buckets."""
    scene = Scene(store)
    scene.add(*range(3))
    possession = Possession(scene.tm, "q", wait_s=0)
    end_ts = possession.next_end(0)
    assert end_ts is not None
    for lease in possession._leases():
        possession._crew._rows.replace(lease._raw, BucketState(epoch=9))
    with pytest.raises(BucketLost):
        possession.acknowledge(end_ts)
    possession.close()
    assert scene.export() == [0, 1, 2]


@pytest.mark.parametrize("noted", [1, 100])
def test_portions_are_acknowledged_whole_whoever_dies(
    noted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the cursor and the removal: the next call removes what was left, and counts once."""
    monkeypatch.setattr(portions, "NOTED_ENTRIES", noted)
    store = DiesBetween()
    scene = Scene(store)
    scene.add(*range(3))
    possession = Possession(scene.tm, "q", wait_s=0)
    end_ts = possession.next_end(0)
    assert end_ts is not None
    store.is_armed = True
    with pytest.raises(Killed):
        possession.acknowledge(end_ts)
    scene.add(3)
    later_ts = possession.next_end(end_ts)
    assert later_ts is not None
    possession.acknowledge(later_ts)
    possession.close()
    assert scene.raw_rows() == []
    assert sum(one.exported for one in scene.queue.lag().buckets) == 4


def stalls_before_commit(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """Let who sets something aside sleep before its transaction commits, while somebody acts."""
    encode, waiting = encode_dead, [act]

    def encoded(note: bytes, content: bytes) -> bytes:
        if waiting:
            waiting.pop()()
        return encode(note, content)

    monkeypatch.setattr(dead, "encode_dead", encoded)


def delivers_all(scene: Scene) -> Callable[[], object]:
    """Return what takes over, and delivers what is there."""
    sink = scene.sink

    def act() -> None:
        sink.on_batch = lambda _: None
        runner = scene.runner()
        takes_over(runner)
        runner.run_once(wait_s=0)

    return act


@pytest.mark.parametrize("keep_s", [None, 60.0])
def test_who_was_replaced_sets_nothing_aside_that_was_delivered(
    store: Store, monkeypatch: pytest.MonkeyPatch, keep_s: float | None
) -> None:
    """It has seen whose the bucket is, and sleeps before its transaction commits."""
    scene = Scene(store, keep_s=keep_s)
    scene.add("entry")

    def blame(batch: Batch) -> None:
        raise Poison(batch[0], "no")

    scene.sink.on_batch = blame
    stalls_before_commit(monkeypatch, delivers_all(scene))
    assert scene.export() == ["entry"]
    assert list(scene.queue.dead_letters()) == []
    assert scene.queue.dead_letters().retry() == 0
    assert scene.export() == ["entry"]


def test_who_was_replaced_brings_no_dead_letter_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed again, and somebody else has delivered it."""
    scene = Scene(store)
    scene.add("entry")

    def blame(batch: Batch) -> None:
        raise Poison(batch[0], "no")

    scene.sink.on_batch = blame
    scene.export()
    assert scene.queue.dead_letters().retry() == 1
    stalls_before_commit(monkeypatch, delivers_all(scene))
    assert scene.export() == ["entry"]
    assert list(scene.queue.dead_letters()) == []
    assert scene.raw_rows() == []


def test_behind_a_replay_nobody_sets_aside_what_comes_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replay takes the bucket out of its hands, and the next owner finds that nobody has it."""
    scene = Scene(store, keep_s=60)
    scene.add("first")
    scene.export()
    first_ts = scene.sink.entries[0].commit_ts
    scene.add("entry")

    def blame(batch: Batch) -> None:
        raise Poison(batch[0], "no")

    scene.sink.on_batch = blame

    def replay() -> None:
        scene.queue.replay(first_ts)
        scene.sink.on_batch = lambda _: None
        runner = scene.runner()
        runner.run_once(wait_s=0)

    stalls_before_commit(monkeypatch, replay)
    assert scene.export() == ["first", "first", "entry"]
    assert list(scene.queue.dead_letters()) == []
