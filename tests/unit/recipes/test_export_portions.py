"""Portions of a queue: the same whenever they are read, and gone when they are acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from omidpy.errors import ConfigError, ExportError
from omidpy.recipes.export_queue import ExportQueue, Poison
from omidpy.recipes.export_queue.delivery.portions import Possession, read
from omidpy.recipes.export_queue.entries.ordering import FoundEntry
from omidpy.recipes.export_queue.entries.possession import BucketLost
from omidpy.recipes.export_queue.entries.stored.codecs import codec_named
from omidpy.recipes.export_queue.entries.view import View
from tests.machines.export_queues import QUEUE, Scene


class Reader:
    """Whoever has a queue, and reads it portion by portion."""

    def __init__(self, **settings: Any) -> None:
        self.scene = Scene(**{"buckets": 2, **settings})
        self.held = Possession(self.scene.tm, QUEUE)

    def read(self, start_ts: int, end_ts: int) -> list[Any]:
        """Return the values of what was committed in [start_ts, end_ts), sorted."""
        decode = codec_named("json").decode
        portions = self.held.portions(start_ts, end_ts)
        rows = [read(self.scene.tm, one) for one in portions]
        return sorted(decode(content.value) for found in rows for _, content in found)

    def end(self, start_ts: int, most: int | None = None) -> int:
        """Return where the next portion ends."""
        found = self.held.next_end(start_ts, max_entries=most)
        assert found is not None
        return found


@pytest.fixture
def reader() -> Iterator[Reader]:
    """Return one of two buckets."""
    made = Reader()
    yield made
    made.held.close()


def test_a_portion_is_the_same_whenever_it_is_read(reader: Reader) -> None:
    """Also when an old transaction commits meanwhile: it does so behind the end."""
    late = reader.scene.tm.begin()
    reader.scene.queue.add(late, b"k", "late")
    late.flush()
    for number in range(4):
        reader.scene.add(number, key=b"%d" % number)
    end_ts = reader.end(0)
    assert reader.read(0, end_ts) == [0, 1, 2, 3]
    late.commit()
    reader.scene.add("new")
    assert reader.read(0, end_ts) == [0, 1, 2, 3]
    assert reader.read(end_ts, reader.end(end_ts)) == ["late", "new"]


def test_what_is_acknowledged_is_gone_and_nothing_else(reader: Reader) -> None:
    """What was begun below the end, and committed above it, stays."""
    late = reader.scene.tm.begin()
    reader.scene.queue.add(late, b"k", "late")
    late.flush()
    reader.scene.add("early", "too")
    end_ts = reader.end(0)
    late.commit()
    reader.held.acknowledge(end_ts)
    reader.held.acknowledge(end_ts)
    assert reader.scene.queue.lag().entries == 1
    assert len(reader.scene.raw_rows()) == 1
    assert reader.held.next_end(reader.end(end_ts)) is None
    reader.held.close()
    assert reader.scene.export() == ["late"]


def test_a_portion_holds_whole_transactions_up_to_a_limit(reader: Reader) -> None:
    """One that is larger than the limit comes alone."""
    for values in (["a1", "a2"], ["b1", "b2"], ["c1", "c2", "c3", "c4"], ["d"]):
        with reader.scene.tm.begin() as tx:
            for number, value in enumerate(values):
                reader.scene.queue.add(tx, b"%d" % number, value)
    start_ts, found = 0, []
    while (end_ts := reader.held.next_end(start_ts, max_entries=3)) is not None:
        found.append(reader.read(start_ts, end_ts))
        start_ts = end_ts
    assert found == [["a1", "a2"], ["b1", "b2"], ["c1", "c2", "c3", "c4"], ["d"]]
    assert reader.read(0, reader.end(0, most=4)) == ["a1", "a2", "b1", "b2"]


def test_a_queue_that_keeps_what_was_delivered_goes_on_behind_it() -> None:
    """Rows stay, and the reader does not see them again."""
    reader = Reader(keep_s=3600.0)
    reader.scene.add("one")
    end_ts = reader.end(0)
    reader.held.acknowledge(end_ts)
    assert reader.held.next_end(end_ts) is None
    assert reader.held.next_end(0) is None
    reader.scene.add("two")
    reader.held.acknowledge(reader.end(end_ts))
    assert len(reader.scene.raw_rows()) == 2
    assert sum(one.exported for one in reader.scene.queue.lag().buckets) == 2
    reader.held.close()


def test_whoever_begins_goes_on_where_others_have_stopped() -> None:
    """Buckets need not have come equally far."""
    scene = Scene(buckets=2)
    scene.add("old", key=b"1")
    scene.export()
    scene.add("new", key=b"2")
    held = Possession(scene.tm, QUEUE)
    end_ts = held.next_end(0)
    assert end_ts is not None
    rows = [row for one in held.portions(0, end_ts) for row in read(scene.tm, one)]
    assert [content.value for _, content in rows] == [b'"new"']
    held.close()


def test_what_somebody_else_has_delivered_in_between_is_an_error(reader: Reader) -> None:
    """A batch that is run again would lack it, and nobody would know."""
    reader.scene.add("one")
    end_ts = reader.end(0)
    reader.held.close()
    reader.scene.add("two")
    reader.scene.export()
    reader.held = Possession(reader.scene.tm, QUEUE)
    with pytest.raises(ExportError, match="by somebody else"):
        reader.held.portions(end_ts, end_ts + 50)


def test_a_reader_is_told_of_a_gap_though_nothing_waits_behind_it(reader: Reader) -> None:
    """He would be sent on past it: to whoever asks where the next portion ends, nothing is there.

    Who begins anew is not refused, and a portion may be asked for once more that he has taken.
    """
    reader.scene.add("one")
    end_ts = reader.end(0)
    assert reader.read(0, end_ts) == ["one"]
    assert reader.held.next_end(end_ts) is None
    reader.held.acknowledge(end_ts)
    assert reader.held.next_end(end_ts) is None
    reader.held.close()
    reader.scene.add("two")
    reader.scene.export()
    reader.held = Possession(reader.scene.tm, QUEUE)
    with pytest.raises(ExportError, match="what is between them would be missing"):
        reader.held.next_end(end_ts)
    assert reader.held.next_end(0) is None


def test_a_queue_is_held_by_one(reader: Reader) -> None:
    """Of two readers one would take the other's entries; and who has lost it stops."""
    with pytest.raises(ExportError, match=r"2 buckets .* another process"):
        Possession(reader.scene.tm, QUEUE, wait_s=0)
    reader.scene.clock.advance(60)
    with pytest.raises(BucketLost):
        reader.held.next_end(0)


def test_dead_letters_stand_in_the_way() -> None:
    """What waits behind them would be overtaken."""
    scene = Scene()
    scene.add("bad")

    def refuse(batch: Any) -> None:
        raise Poison(batch[0])

    scene.queue.run_once(refuse)
    with pytest.raises(ExportError, match="dead letters"):
        Possession(scene.tm, QUEUE)
    scene.queue.dead_letters().drop()
    Possession(scene.tm, QUEUE).close()


def test_a_queue_by_keys_is_refused() -> None:
    """A portion ends where time says so."""
    scene = Scene(layout="fluo")
    with pytest.raises(ConfigError, match="portions need 'log'"):
        Possession(scene.tm, QUEUE)


def test_a_reader_ends_when_the_queue_is_another_one(reader: Reader) -> None:
    """With other buckets, or none of what it was."""
    reader.scene.queue.drop()
    ExportQueue.create(reader.scene.tm, QUEUE, buckets=3)
    with pytest.raises(ExportError, match="other buckets, or made anew"):
        reader.held.next_end(0)


def test_an_acknowledgement_reads_no_entry_that_came_later(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or each batch of a stream that is far behind would read all that waits."""
    reader.scene.add("first")
    end_ts = reader.end(0)
    reader.scene.add("in", "between")
    middle_ts = reader.end(end_ts)
    reader.scene.add(*range(100))
    whole, seen = View.log, []

    def log(self: View, *given: Any, **named: Any) -> Iterator[FoundEntry]:
        for one in whole(self, *given, **named):
            seen.append(one)
            yield one

    monkeypatch.setattr(View, "log", log)
    reader.held.acknowledge(end_ts)
    assert len(seen) == 1
    reader.held.acknowledge(middle_ts)
    assert len(seen) == 3
    monkeypatch.undo()
    assert len(reader.read(middle_ts, reader.end(middle_ts))) == 100
