"""What a look at a queue costs, and that it shows everything."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from omidpy.recipes.export_queue import Poison
from omidpy.recipes.export_queue.entries.view import View
from omidpy.storage.memory import MemoryStore
from tests.machines.export_queues import TABLE, Scene

BUCKETS = 16


def parked(*keys: bytes) -> Scene:
    """Return a queue with a dead letter of each key."""
    scene = Scene(buckets=BUCKETS)
    for key in keys:
        scene.add(key.decode(), key=key)

    def refuse(batch: Any) -> None:
        raise Poison(batch[0])

    scene.sink.on_batch = refuse
    scene.export(max_attempts=1)
    scene.sink.on_batch = lambda _: None
    return scene


def test_dead_letters_are_seen_in_whatever_order_buckets_are_looked_at() -> None:
    """Those behind an empty bucket are not taken for absent with it."""
    scene = parked(b"a", b"b", b"c", b"d", b"e")
    expected = Counter(letter.bucket for letter in scene.queue.dead_letters())
    assert expected.total() == 5
    for order in (range(BUCKETS), reversed(range(BUCKETS)), (7, 3, 12, 0, 15)):
        view = View(scene.tm, TABLE)
        for bucket in order:
            assert len(list(view.dead(bucket))) == expected[bucket]


def test_where_nothing_is_dead_one_scan_shows_it_for_all_buckets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On HBase each is a round trip, and a queue that is idle is looked at once a second."""
    scene, ranges = Scene(buckets=BUCKETS), []
    scan = MemoryStore.scan

    def counted(self: MemoryStore, table: str, *args: Any, **more: Any) -> Any:
        ranges.append(table)
        return scan(self, table, *args, **more)

    monkeypatch.setattr(MemoryStore, "scan", counted)
    view = View(scene.tm, TABLE)
    assert not [one for bucket in range(BUCKETS) for one in view.dead(bucket)]
    assert ranges == [TABLE]
