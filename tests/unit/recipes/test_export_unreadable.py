"""What cannot be read of a queue is an obstacle of its own bucket, and a verb removes it."""

from __future__ import annotations

from typing import Any

import pytest

from omidpy.errors import CorruptCell, ExportError, NoSuchQueue, QueueFull
from omidpy.recipes.export_queue import Batch
from omidpy.recipes.export_queue.delivery.portions import Possession
from omidpy.recipes.export_queue.entries.adding import GAUGE_AGE_S
from omidpy.recipes.export_queue.entries.stored.layout import bucket_of
from omidpy.recipes.export_queue.entries.stored.state import BucketRows
from tests.machines.export_queues import Scene
from tests.machines.export_rebucketing import Rebucketing

BUCKETS = 4
BAD = 0
"""The bucket whose owner takes care of the whole queue."""


def spoil(scene: Scene, data: bytes = b"{") -> None:
    """Let nobody read the state of a bucket."""
    row = scene.queue._places.bucket(scene.queue._definition.number, BAD)
    scene.tm.session.control.write(row, data)


@pytest.fixture
def scene() -> Scene:
    """Return a queue with an entry in each bucket, and one that was delivered."""
    made = Scene(buckets=BUCKETS, keep_s=3600.0)
    keys = {bucket_of(b"%d" % number, BUCKETS): b"%d" % number for number in range(100)}
    for bucket in range(BUCKETS):
        made.add(f"first of {bucket}", key=keys[bucket])
    made.export()
    for bucket in range(BUCKETS):
        made.add(bucket, key=keys[bucket])
    made.sink.batches.clear()
    return made


@pytest.mark.parametrize("data", [b"{", b"\xff", b'{"epoch":"x"}', b'{"cursor_ordinal":"0g"}'])
def test_a_state_that_cannot_be_read_holds_up_its_bucket_alone(scene: Scene, data: bytes) -> None:
    """The others are exported, the verbs say what is wrong, and one of them removes it."""
    rows = BucketRows(scene.tm.session.control, scene.queue._places, scene.queue._definition)
    epochs = [raw.state.epoch for raw in rows.read()]
    spoil(scene, data)
    with pytest.raises(ExportError, match=r"bucket 0 cannot be read.*export repair q"):
        scene.export()
    assert sorted(scene.sink.values) == [1, 2, 3]
    assert "cannot be read" in scene.queue.lag().buckets[BAD].stopped
    assert "cannot be read" in scene.queue.counted().buckets[BAD].stopped
    assert scene.queue.lag().buckets[1].stopped == ""
    assert list(scene.queue.unreadable()) == [BAD]
    assert scene.queue.repair() == [BAD]
    assert scene.queue.repair() == []
    scene.export()
    assert scene.sink.values[-2:] == ["first of 0", 0], "nothing says what was delivered"
    assert scene.sink.batches[-1].fence > max(epochs)
    assert scene.queue.lag().entries == 0
    assert scene.export() == scene.sink.values


def test_an_exporter_that_runs_goes_on_without_it(scene: Scene) -> None:
    """It takes the others, and its own look at the buckets does not fail."""
    spoil(scene)
    runner = scene.runner()
    runner._crew.join(with_heart=False)
    runner._share_out()
    assert sorted(runner._crew.leases) == [1, 2, 3]
    runner._crew.leave()


def test_nothing_is_said_of_a_bucket_that_cannot_be_read(scene: Scene) -> None:
    """Not that it is empty, nor that others have it; and a replay sets none of the others back."""
    first_ts = scene.tm.begin(read_only=True).start_ts
    spoil(scene)
    with pytest.raises(ExportError, match="bucket 0 cannot be read"):
        Possession(scene.tm, "q", wait_s=0)
    with pytest.raises(ExportError):
        scene.export()
    with pytest.raises(CorruptCell, match="bucket 0 cannot be read"):
        scene.queue.replay(first_ts)
    assert scene.queue.lag().buckets[1].entries == 0
    rebucketing = Rebucketing(scene, 2)
    for _ in range(3):
        rebucketing.take()
    assert "bucket 0 cannot be read" in rebucketing.reason
    scene.queue.repair()
    scene.queue.drop()
    with pytest.raises(NoSuchQueue):
        scene.queue.lag()


def test_a_queue_with_such_a_bucket_can_be_dropped(scene: Scene) -> None:
    """Also by the verb, which counts first what waits."""
    spoil(scene)
    scene.queue.lag()
    scene.queue.drop()
    assert not scene.queue.exists()


def test_a_gauge_that_cannot_be_read_is_made_anew() -> None:
    """Nobody exports, and yet whoever adds is told what is full."""
    scene = Scene(max_entries=2)
    scene.tm.session.control.write(scene.queue._places.gauge(1), b"{")
    scene.add(1, 2)
    scene.clock.advance(GAUGE_AGE_S)
    scene.tm.session.control.write(scene.queue._places.gauge(1), b"{")
    with pytest.raises(QueueFull, match="2 entries wait"):
        scene.add(3)


def test_a_bucket_that_was_lost_on_the_way_is_not_done() -> None:
    """A replay takes it out of the hands of who delivers what is there, and all is delivered."""
    scene = Scene(keep_s=3600.0)
    scene.add(1)
    scene.export()
    first_ts = scene.sink.entries[0].commit_ts
    scene.add(2)
    waiting = [lambda: scene.queue.replay(first_ts)]

    def replay(_: Batch) -> None:
        if waiting:
            waiting.pop()()

    scene.sink.on_batch = replay
    runner: Any = scene.runner()
    runner.run_once(wait_s=60)
    assert scene.sink.values == [1, 2, 1, 2]
    assert scene.queue.lag().entries == 0
