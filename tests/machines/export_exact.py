"""What must hold of exporters that keep marks, each as a check that a broken one has to fail."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import pytest

from omidpy.recipes.export_queue import Batch, Exporter, Poison
from omidpy.recipes.export_queue.delivery.runner import Runner
from omidpy.storage.base import Store
from tests.machines.export_queues import STEPS, Killed, Scene
from tests.machines.fencing import takes_over
from tests.machines.marking import Log, LogSink

MOMENTS: Final = (*STEPS, "before-take", "behind-take", "before-commit", "behind-commit")


def add(scene: Scene, *values: object) -> None:
    """Add each value to two keys, in a transaction of its own."""
    for value in values:
        with scene.tm.begin() as tx:
            scene.queue.add_all(tx, [(b"a", value), (b"b", value)])


def mortal(scene: Scene, sink: LogSink, moment: str, **settings: Any) -> Runner:
    """Return an exporter that dies at a moment, and gives nothing back."""

    def die(step: str) -> None:
        if step == moment:
            raise Killed

    sink.on_step = die
    runner = next_owner(scene, sink, on_step=die, **settings)
    runner._crew.leave = runner._crew._is_over.set  # type: ignore[method-assign]  # it dies
    return runner


def next_owner(scene: Scene, sink: Exporter, **settings: Any) -> Runner:
    """Return an exporter to which all others are dead."""
    runner = scene.runner(sink, **settings)
    takes_over(runner)
    return runner


class Picky:
    """Refuses some values, of one key or of all, until told otherwise."""

    def __init__(self, *values: object, key: bytes | None = None) -> None:
        self.values = values
        self._key = key

    def __call__(self, batch: Batch) -> None:
        """Refuse a batch that has one of them."""
        for entry in batch:
            if entry.value in self.values and self._key in (None, entry.key):
                raise Poison(entry, "not now")


def who_dies_brings_nothing_twice(store: Store, moment: str, sizes: tuple[int, int]) -> None:
    """Let the next owner pass over what the mark covers, whatever its batches are."""
    scene, log = Scene(store), Log()
    add(scene, 0, 1, 2)
    with pytest.raises(Killed):
        mortal(scene, log.sink(), moment, buffer_bytes=sizes[0]).run_once(wait_s=0)
    add(scene, 3)
    next_owner(scene, log.sink(), buffer_bytes=sizes[1]).run_once(wait_s=0)
    assert log.of_key(b"a") == log.of_key(b"b") == [0, 1, 2, 3]
    assert sum(one.exported for one in scene.queue.lag().buckets) == 8
    assert scene.raw_rows() == []


def who_sleeps_brings_nothing_twice(store: Store, moment: str, *, is_over: bool) -> None:
    """Let it wake when another one has finished, or is about to commit."""
    scene, log = Scene(store), Log()
    add(scene, 0, 1, 2)
    sleeper, other = log.sink(), log.sink()
    slept: list[str] = []
    awake = next_owner(scene, other, buffer_bytes=150)

    def take(step: str) -> None:
        if not is_over and step == "before-commit" and len(slept) == 1:
            slept.append(step)
            raise Killed

    def sleep(step: str) -> None:
        if step == moment and not slept:
            slept.append(step)
            add(scene, 3)
            other.on_step = take
            awake._crew.leave = awake._crew._is_over.set  # type: ignore[method-assign]  # it sleeps
            with suppress(Killed):
                awake.run_once(wait_s=0)

    sleeper.on_step = sleep
    scene.runner(sleeper, on_step=sleep, buffer_bytes=150).run_once(wait_s=0)
    assert slept
    other.on_step = lambda _: None
    next_owner(scene, other).run_once(wait_s=0)
    assert log.of_key(b"a") == log.of_key(b"b") == [0, 1, 2, 3]
    assert scene.raw_rows() == []


def what_is_about_to_be_set_aside_is_not_passed_over(
    store: Store, moment: str, poison: str
) -> None:
    """See that a mark covers what was delivered, and nothing else."""
    scene, log = Scene(store), Log()
    add(scene, *range(4))
    picky, seen, sink = Picky(1), [], log.sink()
    sink.on_batch = picky

    def die(step: str) -> None:
        seen.append(step)
        if step == moment:
            raise Killed

    runner = scene.runner(sink, on_step=die, poison=poison)
    runner._crew.leave = runner._crew._is_over.set  # type: ignore[method-assign]  # it dies
    sink.on_step = die
    with pytest.raises(Killed):
        runner.run_once(wait_s=0)
    other = log.sink()
    other.on_batch = picky
    next_owner(scene, other, poison=poison).run_once(wait_s=0)
    parked = [0] if poison == "park-key" else [0, 2, 3]
    assert log.of_key(b"a") == log.of_key(b"b") == parked
    picky.values = ()
    assert scene.queue.dead_letters().retry() == 2
    next_owner(scene, other).run_once(wait_s=0)
    expected = [0, 1, 2, 3] if poison == "park-key" else [0, 2, 3, 1]
    assert log.of_key(b"a") == log.of_key(b"b") == expected
    assert not list(scene.queue.dead_letters())
    assert scene.raw_rows() == []


def what_was_left_out_may_come_in_smaller_batches(store: Store) -> None:
    """Let the next owner deliver, one by one, what the last one has left out of a large batch."""
    scene, log = Scene(store), Log()
    add(scene, 0, 1, 2)
    dying = log.sink()
    dying.on_batch = Picky(0, key=b"a")
    with pytest.raises(Killed):
        mortal(scene, dying, "behind-commit", poison="skip").run_once(wait_s=0)
    next_owner(scene, log.sink(), buffer_bytes=1).run_once(wait_s=0)
    assert log.of_key(b"a") == log.of_key(b"b") == [0, 1, 2]


def who_sleeps_delivers_nothing_that_was_set_aside(store: Store) -> None:
    """Let it wake when another one has set poison aside, which its own mark still leaves out."""
    scene, log = Scene(store), Log()
    add(scene, 0, 1, 2)
    sleeper, other = log.sink(), log.sink()
    slept: list[str] = []
    other.on_batch = Picky(1)

    def sleep(step: str) -> None:
        if step == "before-take" and not slept:
            slept.append(step)
            next_owner(scene, other).run_once(wait_s=0)

    sleeper.on_step = sleep
    scene.runner(sleeper).run_once(wait_s=0)
    assert slept
    assert log.of_key(b"a") == log.of_key(b"b") == [0]
    assert scene.queue.dead_letters().retry() == 2
    next_owner(scene, log.sink()).run_once(wait_s=0)
    assert log.of_key(b"a") == log.of_key(b"b") == [0, 1, 2]
