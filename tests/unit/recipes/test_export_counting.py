"""What waits is counted beside the cursor: whoever asks scans no bucket."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import Mock

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from omidpy.errors import StorageError
from omidpy.facts.control import ControlTable
from omidpy.prometheus import register_export
from omidpy.recipes.export_queue import Poison, Retry
from omidpy.recipes.export_queue.delivery import patience as patience_module
from omidpy.recipes.export_queue.delivery.failing import Paused
from omidpy.recipes.export_queue.entries import counting
from omidpy.recipes.export_queue.entries.view import View
from omidpy.recipes.export_queue.upkeep import lag
from tests.machines.export_queues import Scene


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait between tries, and take all timestamps for times."""
    monkeypatch.setattr(patience_module, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(counting, "FIRST_WORLD_TIMESTAMP", 1)
    monkeypatch.setattr(lag, "FIRST_WORLD_TIMESTAMP", 1)


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the buckets whose entries were scanned."""
    found: list[int] = []
    log = View.log

    def noted(self: View, bucket: int, **bounds: Any) -> Any:
        found.append(bucket)
        return log(self, bucket, **bounds)

    monkeypatch.setattr(View, "log", noted)
    return found


class _Owned:
    """An exporter that is in the middle of its work: its buckets are its own."""

    def __init__(self, scene: Scene, **settings: Any) -> None:
        self._scene = scene
        self.runner = scene.runner(**settings)
        self.runner._crew.join(takes_all=True)
        self.runner._crew.look()

    def pass_once(self) -> None:
        """Pass over every bucket."""
        for bucket, lease in sorted(self.runner._crew.leases.items()):
            memory = self.runner._memories.setdefault(bucket, self.runner._delivery.new_memory())
            self.runner._delivery.run_pass(lease, memory, self.runner._look())

    def leave(self) -> None:
        """End."""
        self.runner._crew.leave()


def counts(scene: Scene) -> list[tuple[int, int]]:
    """Return (waiting, dead) of each bucket, as exporters have counted."""
    return [(one.entries, one.dead_letters) for one in scene.queue.counted().buckets]


def test_who_empties_a_bucket_says_so(scans: list[int]) -> None:
    """In the change that moves the cursor; nobody scans to be told."""
    scene = Scene(buckets=2)
    for number in range(9):
        scene.add(number, key=b"%d" % number)
    owned = _Owned(scene)
    owned.pass_once()
    scans.clear()
    assert counts(scene) == [(0, 0), (0, 0)]
    assert scene.queue.counted().oldest_commit_ts is None
    assert scans == []
    owned.leave()


def test_what_does_not_leave_is_counted_and_taken_from_the_count(
    scans: list[int],
) -> None:
    """A pass that ends before its bucket counts; later ones count down, and what came is not in."""
    scene = Scene()
    for number in range(10):
        scene.add(number)
    owned = _Owned(scene, buffer_bytes=1)
    delivery = owned.runner._delivery
    delivery._options = dataclasses.replace(delivery._options, pass_s=0.0)
    owned.pass_once()
    owned.pass_once()
    scene.add("new")
    scans.clear()
    found = scene.queue.counted()
    assert scans == []
    assert found.entries == 8
    exact = scene.queue.lag()
    assert exact.entries == 9
    assert found.oldest_commit_ts == exact.oldest_commit_ts
    owned.leave()


def test_what_gathers_before_a_receiver_that_is_away_is_counted(scans: list[int]) -> None:
    """That is when people look; and not at each try."""
    scene = Scene()
    owned = _Owned(scene, lease_s=1000.0)
    owned.pass_once()
    scene.add(*range(5))

    def refuse(_: Any) -> None:
        raise Retry

    scene.sink.on_batch = refuse
    for waiting in (5, 5, 7):
        with pytest.raises(Paused):
            owned.pass_once()
        scans.clear()
        assert counts(scene) == [(waiting, 0)]
        assert scans == []
        if waiting == 5:
            scene.add("new")
            scene.clock.advance(0.6 * counting.COUNT_EVERY_S)
    owned.leave()


def test_counting_takes_a_small_part_of_the_time() -> None:
    """But a count is made again before it is not believed any more."""
    assert counting.rest_s(0.0) == counting.COUNT_EVERY_S
    assert counting.rest_s(2.0) == 40.0
    assert counting.rest_s(600.0) < counting.BELIEVED_S


def test_who_may_only_read_counts_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whom HBase lets read alone, or before a full disk: the note for those who add is left out."""
    scene = Scene()
    scene.add("a", "b")
    monkeypatch.setattr(ControlTable, "write", Mock(side_effect=StorageError("no right")))
    assert scene.queue.lag().entries == 2


def test_dead_letters_are_counted() -> None:
    """When they are set aside, and when they have left; an operator's work is seen at a pass."""
    scene = Scene()

    def refuse(batch: Any) -> None:
        raise Poison(batch[0], "no")

    scene.add(1, 2, 3)
    owned = _Owned(scene)
    scene.sink.on_batch = refuse
    with pytest.raises(Paused):
        owned.pass_once()
    owned.pass_once()
    assert counts(scene) == [(0, 3)]
    scene.sink.on_batch = lambda _: None
    scene.queue.dead_letters().retry()
    owned.pass_once()
    assert counts(scene) == [(0, 0)]
    assert scene.sink.values == [1, 2, 3]
    owned.leave()


def test_a_bucket_that_nobody_counts_is_scanned(scans: list[int]) -> None:
    """Nobody exports it, or a replay has set it back, or the layout has no order."""
    scene = Scene(keep_s=3600.0)
    scene.add(1, 2)
    assert counts(scene) == [(2, 0)]
    scene.export()
    scene.queue.replay(0)
    scans.clear()
    assert counts(scene) == [(2, 0)]
    assert scans == [0]
    other = Scene(layout="fluo")
    other.add(1)
    owned = _Owned(other)
    assert counts(other) == [(1, 0)]
    owned.pass_once()
    assert counts(other) == [(0, 0)]
    owned.leave()


def test_a_count_is_not_believed_for_ever(scans: list[int]) -> None:
    """Its owner may be dead."""
    scene = Scene()
    owned = _Owned(scene)
    owned.pass_once()
    scene.add(1)
    scans.clear()
    assert counts(scene) == [(0, 0)]
    assert scans == []
    scene.client.naive._last += counting.BELIEVED_TS
    assert counts(scene) == [(1, 0)]
    assert scans == [0]
    owned.leave()


def test_the_metrics_page_scans_nothing(scans: list[int]) -> None:
    """And says how old the counts are."""
    scene = Scene()
    scene.add(1)
    owned = _Owned(scene)
    owned.pass_once()
    registry = CollectorRegistry()
    register_export(scene.queue, owned.runner, registry)
    scans.clear()
    text = generate_latest(registry).decode()
    assert scans == []
    assert 'omidpy_export_entries{bucket="0",queue="q"} 0.0' in text
    assert "omidpy_export_counted_seconds" in text
    owned.leave()
