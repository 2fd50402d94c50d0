"""Many dead letters cost what one of them does: the time of a pass, and of a look now and then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omidpy.errors import ExportError
from omidpy.recipes.export_queue import Batch, Poison, Retry
from omidpy.recipes.export_queue.delivery import bucket as bucket_module
from omidpy.recipes.export_queue.delivery import patience
from omidpy.recipes.export_queue.delivery.crew import BucketLease
from omidpy.recipes.export_queue.delivery.failing import Paused
from omidpy.recipes.export_queue.delivery.runner import Runner
from omidpy.recipes.export_queue.entries.dead import Graves
from tests.machines.export_queues import Scene
from tests.machines.marking import Log

COUNT = 50


def refuse(batch: Batch) -> None:
    """Refuse whatever comes."""
    raise Poison(batch[0], "no")


@pytest.fixture
def scene() -> Scene:
    """Return a queue with a poison, and what waits behind it."""
    scene = Scene()
    scene.sink.on_batch = refuse
    scene.add(0)
    scene.export()
    scene.sink.on_batch = lambda _: None
    scene.add(*range(1, COUNT))
    scene.export()
    assert scene.sink.values == []
    assert len(list(scene.queue.dead_letters())) == COUNT
    return scene


def holding(runner: Runner) -> BucketLease:
    """Let an exporter take the bucket, of which it knows nothing."""
    runner._crew.join(takes_all=True)
    runner._crew.look()
    runner._memories[0] = runner._delivery.new_memory()
    return runner._crew.leases[0]


def test_what_is_due_is_found_once_for_all_that_are(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the time of many would grow with their square."""
    found: list[int] = []
    due = Graves.due

    def counted(self: Graves) -> Any:
        graves = due(self)
        found.append(len(graves))
        return graves

    monkeypatch.setattr(Graves, "due", counted)
    scene.queue.dead_letters().retry()
    assert scene.export() == list(range(COUNT))
    assert sum(found) <= 2 * COUNT


def test_a_pass_over_dead_letters_has_an_end(scene: Scene) -> None:
    """So that an exporter that is told to stop does so, and other buckets have their turn."""
    scene.queue.dead_letters().retry()
    scene.sink.on_batch = lambda _: scene.clock.advance(1.0)
    runner = scene.runner()
    lease = holding(runner)
    runner._pass(lease, runner._look())
    assert 1 < len(scene.sink.values) < 10
    scene.sink.on_batch = lambda _: None
    runner._pass(lease, runner._look())
    assert scene.sink.values == list(range(COUNT))
    runner._crew.leave()


@pytest.fixture
def looks(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let a look at dead letters take a second; return the buckets that were looked at."""
    seen: list[int] = []
    graves_of: Callable[..., Graves] = bucket_module.graves_of  # type: ignore[attr-defined]

    def slowly(view: Any, bucket: int) -> Graves:
        scene.clock.advance(1.0)
        seen.append(bucket)
        return graves_of(view, bucket)

    monkeypatch.setattr(bucket_module, "graves_of", slowly)
    return seen


def test_a_slow_look_is_believed_for_a_while(scene: Scene, looks: list[int]) -> None:
    """What comes of the key still waits behind its poison, in order, and others are delivered."""
    runner = scene.runner(lease_s=1000.0)
    lease = holding(runner)
    for number in range(3):
        scene.add(COUNT + number)
        scene.add(f"good {number}", key=b"good")
        runner._pass(lease, runner._look())
        scene.clock.advance(1.0)
    assert looks == [0]
    assert scene.sink.values == ["good 0", "good 1", "good 2"]
    known = runner._memories[0].graves
    assert known is not None
    assert list(known.graves) == []  # what they hold is not kept
    scene.sink.batches.clear()
    scene.queue.dead_letters().retry()
    runner._pass(lease, runner._look())
    assert scene.sink.values == []
    scene.clock.advance(20.0)
    runner._pass(lease, runner._look())
    runner._pass(lease, runner._look())
    assert scene.sink.values == list(range(COUNT + 3))
    scene.add("free")
    runner._pass(lease, runner._look())
    assert scene.sink.values[-1] == "free"
    runner._crew.leave()


def test_a_later_owner_looks_for_itself(scene: Scene, looks: list[int]) -> None:
    """Though the process had the bucket before: another one may have set entries aside since."""
    runner = scene.runner()
    lease = holding(runner)
    runner._pass(lease, runner._look())
    lease.give_back()
    runner._crew.leases.clear()
    other = scene.runner()
    between = holding(other)
    scene.sink.on_batch = refuse
    scene.add("poison", key=b"other")
    with pytest.raises(Paused):
        other._pass(between, other._look())
    other._pass(between, other._look())
    other._crew.leave()
    scene.sink.on_batch = lambda _: None
    runner._crew.look()
    scene.add("behind it", key=b"other")
    runner._pass(runner._crew.leases[0], runner._look())
    assert scene.sink.values == []
    runner._crew.leave()


def test_once_delivers_what_was_asked_for_until_now(scene: Scene, looks: list[int]) -> None:
    """However short ago the same exporter has looked."""
    runner = scene.runner()
    runner.run_once(wait_s=0)
    scene.queue.dead_letters().retry()
    runner.run_once(wait_s=0)
    assert scene.sink.values == list(range(COUNT))
    assert looks


def refuses_again(tried: list[float], scene: Scene) -> Callable[[Batch], None]:
    """Return what is away for one key, and takes all others."""

    def answer(batch: Batch) -> None:
        if any(entry.key == b"k" for entry in batch):
            tried.append(scene.clock.monotonic_s())
            raise Retry("500", after=0.001)

    return answer


def test_a_dead_letter_that_is_tried_again_in_vain_holds_up_nothing_else(scene: Scene) -> None:
    """Its receiver may answer so for ever; what comes for other keys is delivered at once."""
    tried: list[float] = []
    scene.sink.on_batch = refuses_again(tried, scene)
    scene.queue.dead_letters().retry()
    runner = scene.runner(lease_s=1000.0)
    lease = holding(runner)
    for number in range(5):
        scene.add(number, key=b"good")
        runner._pass_over([lease])
        assert scene.sink.values == list(range(number + 1))
        assert runner._due_s[0] - scene.clock.monotonic_s() <= runner._max_poll_s
    assert len(tried) == 1
    assert runner._paused == set()
    scene.clock.advance(30.0)
    runner._pass_over([lease])
    assert len(tried) == 2
    scene.sink.on_batch = lambda _: None
    scene.clock.advance(30.0)
    runner._pass_over([lease])
    assert scene.sink.values == [*range(5), *range(COUNT)]
    runner._crew.leave()


def test_once_delivers_the_others_before_it_gives_a_dead_letter_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that one was left."""
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 0.0)
    tried: list[float] = []
    scene.sink.on_batch = refuses_again(tried, scene)
    scene.queue.dead_letters().retry()
    scene.add("good", key=b"good")
    with pytest.raises(ExportError, match="gets nowhere after 25 tries: Retry"):
        scene.export()
    assert scene.sink.values == ["good"]
    assert len(tried) >= 25


def test_what_keeps_marks_settles_a_dead_letter_first(scene: Scene) -> None:
    """It may have been delivered, which the next mark must say, too."""
    log = Log()
    sink = log.sink()
    sink.on_batch = refuses_again([], scene)
    scene.queue.dead_letters().retry()
    scene.add("good", key=b"good")
    runner = scene.runner(sink)
    with pytest.raises(Paused):
        runner._pass(holding(runner), runner._look())
    assert log.values == []
    runner._crew.leave()
