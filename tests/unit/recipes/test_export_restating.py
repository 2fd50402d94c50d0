"""A queue whose definition cannot be read: said again, and held against what is there."""

from __future__ import annotations

from typing import Any, Final

import pytest

from omidpy.errors import CorruptCell, ExportError, NoSuchQueue, UsageError
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue import ExportQueue
from omidpy.recipes.export_queue.entries.stored.state import DEFINITION_AGE_S
from tests.machines.export_queues import QUEUE, Scene
from tests.machines.export_rebucketing import Rebucketing
from tests.machines.interleaving import interleaved, once

KEYS: Final = [b"%d" % number for number in range(8)]


def spoil(scene: Scene, data: bytes = b"{") -> None:
    """Let nobody read the definition."""
    scene.tm.session.control.write(scene.queue._places.row(), data)
    scene.clock.advance(DEFINITION_AGE_S)


def filled(**settings: Any) -> Scene:
    """Return a queue of which a part was delivered, and a part was set aside."""
    scene = Scene(**{"buckets": 3, **settings})
    for key in KEYS:
        scene.add("early", key=key)
    scene.export()
    for key in KEYS:
        scene.add("late", key=key)
    scene.sink.batches.clear()
    return scene


@pytest.mark.parametrize("data", [b"{", b"", b"\xff", b'{"number":"x"}'])
@pytest.mark.parametrize("layout", ["log", "fluo"])
def test_it_goes_on_from_where_it_was(data: bytes, layout: str) -> None:
    """Nothing is lost, nothing that was delivered comes again, and entries can be added."""
    scene = filled(layout=layout)
    spoil(scene, data)
    with pytest.raises(CorruptCell, match=f"omidpy export create {QUEUE} --restate"):
        ExportQueue.open(scene.tm, QUEUE)
    scene.queue = ExportQueue.restate(scene.tm, QUEUE, buckets=3, layout=layout)
    scene.add("new", key=KEYS[0])
    assert sorted(scene.export()) == sorted(["late"] * len(KEYS) + ["new"])
    assert scene.raw_rows() == []


@pytest.mark.parametrize("garbled", [b"", b"{"])
def test_of_two_who_say_it_again_one_does(garbled: bytes) -> None:
    """An empty definition cannot be compared, and was written over whatever had come of it."""
    scene = filled()
    spoil(scene, garbled)
    first: list[str] = []

    def say_it_first() -> None:
        ExportQueue.restate(scene.tm, QUEUE, buckets=3)
        first.append(scene.queue._find().incarnation)

    before = once("scan", scene.queue._places.table(1), say_it_first)
    tm = TransactionManager(
        interleaved(scene.tm.store, before), scene.client.oracle, clock=scene.clock
    )
    with pytest.raises(ExportError, match="somebody else has written the definition"):
        ExportQueue.restate(tm, QUEUE, buckets=3)
    assert [scene.queue._find().incarnation] == first


def test_an_entry_shows_that_it_had_other_settings() -> None:
    """Whoever exports a bucket would not find it, or could not read it."""
    scene = filled()
    spoil(scene)
    for settings, why in (
        ({"buckets": 2}, "2 buckets of the layout 'log'"),
        ({"buckets": 3, "layout": "fluo"}, "3 buckets of the layout 'fluo'"),
        ({"buckets": 3, "codec": "msgpack"}, "none of the codec 'msgpack'"),
    ):
        with pytest.raises(ExportError, match=why):
            ExportQueue.restate(scene.tm, QUEUE, **settings)
    with pytest.raises(UsageError, match="buckets"):
        ExportQueue.restate(scene.tm, QUEUE, buckets=0)
    with pytest.raises(CorruptCell):
        ExportQueue.open(scene.tm, QUEUE)


def test_what_can_be_read_or_is_not_there_is_not_said_again() -> None:
    """A queue that was dropped is no other one's."""
    scene = filled()
    with pytest.raises(ExportError, match="can be read"):
        ExportQueue.restate(scene.tm, QUEUE, buckets=3)
    scene.queue.drop()
    for name in (QUEUE, "never"):
        with pytest.raises(NoSuchQueue):
            ExportQueue.restate(scene.tm, name, buckets=3)


def test_of_two_tables_nobody_knows_which_it_is() -> None:
    """It was about to get other buckets: entries may be in both."""
    scene = filled()
    Rebucketing(scene, 2).take()
    spoil(scene)
    with pytest.raises(ExportError, match=r"there is: OMIDPY_EXPORT_q, OMIDPY_EXPORT_q\.2"):
        ExportQueue.restate(scene.tm, QUEUE, buckets=3)


def test_the_next_queue_of_its_id_gets_a_number_that_nothing_has() -> None:
    """Nobody knows which numbers were given to tables that are gone."""
    scene = filled()
    scene.export()
    Rebucketing(scene, 2).finish()
    number = scene.queue._find().number
    spoil(scene)
    scene.queue = ExportQueue.restate(scene.tm, QUEUE, buckets=2)
    assert scene.queue._find().number == number
    scene.queue.drop()
    scene.queue = ExportQueue.create(scene.tm, QUEUE)
    assert scene.queue._find().number > number + 1
