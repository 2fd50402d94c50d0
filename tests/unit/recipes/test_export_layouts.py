"""Both layouts deliver the same entries; in `fluo` those of a key come together."""

from __future__ import annotations

from typing import Any

import pytest

from omidpy.errors import UsageError
from omidpy.recipes.export_queue import ExportQueue
from omidpy.recipes.export_queue.entries.stored.layout import (
    MAX_KEY_BYTES,
    key_prefix,
    keyed_row,
    parse_keyed_row,
)
from omidpy.recipes.export_queue.entries.stored.state import DEFINITION_AGE_S
from omidpy.recipes.export_queue.upkeep.lag import measure_roughly
from tests.machines.export_queues import STEPS, Scene
from tests.machines.export_rebucketing import Rebucketing


def test_a_row_says_what_it_was_made_of() -> None:
    """Also where key and timestamp have the bytes of each other."""
    for key in (b"", b"a", bytes(8), b"\xff" * 300):
        row = keyed_row(0, 513, key, 2**40, b"\x00\x00\x00\x07")
        assert parse_keyed_row(row) == (513, 2**40, b"\x00\x00\x00\x07")
        assert key_prefix(row) == row[: 6 + len(key)]
        assert keyed_row(0, 513, key, 1, b"").startswith(key_prefix(row))
        assert not keyed_row(0, 513, key + b"x", 1, b"").startswith(key_prefix(row))


@pytest.mark.parametrize("step", STEPS)
def test_who_dies_loses_nothing_without_a_cursor(step: str) -> None:
    """What was delivered is removed, and nothing else says so."""
    scene = Scene(layout="fluo")
    scene.add(1, 2)
    scene.add(3, key=b"other")
    scene.die_at(step)
    scene.add(4)
    found = scene.export()
    assert set(found) == {1, 2, 3, 4}
    assert [value for value in dict.fromkeys(found) if value != 3] == [1, 2, 4]
    assert scene.export() == found


def test_an_entry_that_commits_late_leaves_in_the_next_pass() -> None:
    """No cursor passes it by, whatever left before."""
    scene = Scene(layout="fluo")
    late = scene.tm.begin()
    scene.queue.add(late, b"k", "late")
    late.flush()
    scene.add("early")
    assert scene.export() == ["early"]
    late.commit()
    assert scene.export() == ["early", "late"]
    first, second = scene.sink.entries
    assert first.seq < second.seq


def test_poison_parks_its_key_and_other_keys_leave() -> None:
    """As in the other layout, through a change of buckets too."""
    scene = Scene(layout="fluo", buckets=2)

    def refuse(batch: Any) -> None:
        if any(entry.value == "bad" for entry in batch):
            raise ValueError("bad")

    scene.sink.on_batch = refuse
    scene.add("bad", "behind")
    scene.add("fine", key=b"z")
    assert scene.export(max_attempts=1) == ["fine"]
    Rebucketing(scene, 3).finish()
    scene.clock.advance(DEFINITION_AGE_S)
    scene.add("later")
    scene.sink.on_batch = lambda _: None
    assert scene.queue.dead_letters().retry() == 1
    assert scene.export() == ["fine", "bad", "behind", "later"]


def test_lag_peek_and_acknowledgement_see_what_waits() -> None:
    """None of them has a cursor to go by."""
    scene = Scene(layout="fluo")
    scene.add(1, 2)
    assert scene.queue.lag().entries == 2
    first, second = scene.queue.peek()
    assert scene.queue.acknowledge(*first.seq) == 1
    assert scene.queue.peek() == [second]
    assert scene.export() == [2]
    assert scene.queue.lag().entries == 0


def test_poison_that_stops_keeps_what_is_behind_it() -> None:
    """And what left before it is gone."""
    scene = Scene(layout="fluo")
    scene.add(1, 2, 3)

    def refuse(batch: Any) -> None:
        if any(entry.value == 2 for entry in batch):
            raise ValueError("no")

    scene.sink.on_batch = refuse
    with pytest.raises(Exception, match="has stopped"):
        scene.export(max_attempts=1, poison="stop")
    scene.sink.on_batch = lambda _: None
    assert scene.export() == [1, 2, 3]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layout": "heap"}, "layout='heap' is none of log, fluo"),
        ({"layout": "fluo", "keep_s": 60.0}, "keeps nothing"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: Any, message: str) -> None:
    """Before anything is made."""
    scene = Scene()
    with pytest.raises(UsageError, match=message):
        ExportQueue.create(scene.tm, "other", **settings)
    assert ExportQueue.names(scene.tm) == ["q"]


def test_a_key_that_no_row_can_hold_is_refused() -> None:
    """Where keys are not part of rows it is none too long."""
    scene = Scene(layout="fluo")
    with scene.tm.begin() as tx:
        scene.queue.add(tx, b"k" * MAX_KEY_BYTES, "longest")
        with pytest.raises(UsageError, match="make the queue with layout='log'"):
            scene.queue.add(tx, b"k" * (MAX_KEY_BYTES + 1), "too long")
    assert scene.export() == ["longest"]


def test_the_oldest_entry_is_found_key_by_key() -> None:
    """What is full is judged by it, and it may be of the last key."""
    scene = Scene(layout="fluo", max_lag_s=60.0)
    for key in (b"c", b"a", b"b"):
        scene.add(1, key=key)
    definition = scene.queue._find()
    gauge = measure_roughly(scene.tm, scene.queue._places, definition)
    oldest_ts = min(entry.commit_ts for entry in scene.queue.peek())
    assert gauge.oldest_ts == oldest_ts
