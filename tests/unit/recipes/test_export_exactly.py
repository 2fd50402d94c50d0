"""Exactly once, into a receiver that keeps a mark with what it is given (X10)."""

from __future__ import annotations

import errno
import json
import os
import random
import sqlite3
import traceback
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from omidpy.errors import CorruptCell, ExportError
from omidpy.recipes.export_queue import (
    Batch,
    Deposed,
    ExportQueue,
    Mark,
    Share,
)
from omidpy.recipes.export_queue.delivery import patience as patience_module
from omidpy.recipes.export_queue.entries.ordering import Position
from omidpy.recipes.export_queue.entries.stored.layout import bucket_of
from omidpy.recipes.export_queue.marks import MOST_LEFT_OUT, decode_mark
from omidpy.recipes.export_queue.sinks import JsonLinesSink, SqliteSink
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from tests.machines.export_exact import (
    MOMENTS,
    Picky,
    add,
    mortal,
    next_owner,
    what_is_about_to_be_set_aside_is_not_passed_over,
    what_was_left_out_may_come_in_smaller_batches,
    who_dies_brings_nothing_twice,
    who_sleeps_brings_nothing_twice,
    who_sleeps_delivers_nothing_that_was_set_aside,
)
from tests.machines.export_queues import QUEUE, Killed, Scene
from tests.machines.export_rebucketing import Rebucketing
from tests.machines.fencing import takes_over
from tests.machines.like_thrift2 import LikeThrift2
from tests.machines.marking import Log, LogSink


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait between tries."""
    monkeypatch.setattr(patience_module, "FIRST_PAUSE_S", 0.0)


@pytest.fixture(params=[MemoryStore, LikeThrift2], ids=["one change for all", "row by row"])
def store(request: pytest.FixtureRequest) -> Store:
    """Return a store that changes many rows at once, or one by one."""
    made: Store = request.param()
    return made


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("sizes", [(1 << 20, 1), (1, 1 << 20), (150, 150)])
def test_who_dies_at_any_moment_brings_nothing_twice(
    store: Store, moment: str, sizes: tuple[int, int]
) -> None:
    """Whatever the batches of the next one are: all, in order, each counted once."""
    who_dies_brings_nothing_twice(store, moment, sizes)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("is_over", [True, False])
def test_who_sleeps_at_any_moment_brings_nothing_twice(
    store: Store, moment: str, *, is_over: bool
) -> None:
    """Another one has the bucket, and has finished, or is in the middle of a batch of its own."""
    who_sleeps_brings_nothing_twice(store, moment, is_over=is_over)


def test_what_was_left_out_may_come_in_smaller_batches(store: Store) -> None:
    """The mark stays ahead of them."""
    what_was_left_out_may_come_in_smaller_batches(store)


def test_who_sleeps_delivers_nothing_that_was_set_aside(store: Store) -> None:
    """It looks again whose the bucket is, once it has the mark."""
    who_sleeps_delivers_nothing_that_was_set_aside(store)


def test_a_receiver_that_has_heard_of_another_stores_owner_is_no_secret() -> None:
    """A copy of the store exports, too: who is refused for ever says so, and ends."""
    scene, log = Scene(), Log()
    add(scene, 0)
    sink = log.sink()

    def depose(_: Batch) -> None:
        raise Deposed("a later owner was here")

    sink.on_batch = depose
    runner = scene.runner(sink)
    with pytest.raises(ExportError, match=r"refuses everything.*another store.*copy"):
        runner.run()
    failures = sum(one.failures for one in runner.tally.read().values())
    assert failures > 1, "which its metrics show meanwhile"
    assert list(scene.queue.dead_letters()) == []
    scene.runner(log.sink()).run_once(wait_s=0)
    assert log.of_key(b"a") == [0]


def test_an_owner_whose_tools_were_spoilt_makes_new_ones() -> None:
    """One that was replaced long ago wakes, and fences the one that has the bucket now."""
    scene, log = Scene(), Log()
    add(scene, 0)
    sink = log.sink()
    spoilt: list[str] = []

    def spoil(step: str) -> None:
        if step == "before-commit" and not spoilt:
            spoilt.append(step)
            log.fences.update(dict.fromkeys(log.fences, -1))

    sink.on_step = spoil
    scene.runner(sink).run_once(wait_s=0)
    assert spoilt
    assert log.of_key(b"a") == [0]
    assert scene.queue.lag().entries == 0


@pytest.mark.parametrize("poison", ["park-key", "skip"])
@pytest.mark.parametrize("moment", ["before-commit", "behind-commit", "exported", "cursor"])
def test_what_is_about_to_be_set_aside_is_not_passed_over(
    store: Store, moment: str, poison: str
) -> None:
    """It dies when others of the batch were delivered, and before the poison was set aside."""
    what_is_about_to_be_set_aside_is_not_passed_over(store, moment, poison)


@pytest.mark.parametrize("moment", ["behind-commit", "removed"])
def test_more_poison_than_a_mark_can_leave_out(store: Store, moment: str) -> None:
    """The batch is taken in parts, each with the mark that it can have."""
    scene, log = Scene(store), Log()
    count = 3 * MOST_LEFT_OUT
    for number in range(count):
        scene.add(number, key=b"bad")
        scene.add(number, key=b"good")
    sink, other = log.sink(), log.sink()
    sink.on_batch = other.on_batch = Picky(0, key=b"bad")
    with pytest.raises(Killed):
        mortal(scene, sink, moment).run_once(wait_s=0)
    next_owner(scene, other).run_once(wait_s=0)
    assert log.of_key(b"good") == list(range(count))
    assert log.of_key(b"bad") == []
    assert max(len(mark) for mark in log.marks.values()) <= 4096
    assert scene.queue.dead_letters().retry() == 1
    next_owner(scene, log.sink()).run_once(wait_s=0)
    assert log.of_key(b"bad") == list(range(count))
    assert scene.raw_rows() == []


def test_the_largest_mark_is_one_that_kafka_keeps() -> None:
    """Ordinals of workers have 21 bytes; 4,096 of an offset are kept."""
    largest = [Position(2**63 - 1 - n, b"\xff" * 21) for n in range(MOST_LEFT_OUT)]
    mark = Mark(2**31, largest[0], frozenset(largest), frozenset(largest[:5]))
    assert len(mark.encode()) < 4096
    assert decode_mark(mark.encode(), where="here") == mark
    with pytest.raises(CorruptCell, match="here"):
        decode_mark("{}", where="here")


def test_where_the_policy_is_to_stop_the_entry_is_delivered_later(store: Store) -> None:
    """The bucket stands before it, and so does the mark."""
    scene, log = Scene(store), Log()
    add(scene, 0, 1, 2)
    sink = log.sink()
    sink.on_batch = Picky(1)
    with pytest.raises(ExportError, match="has stopped"):
        scene.runner(sink, poison="stop").run_once(wait_s=0)
    sink.on_batch = lambda _: None
    scene.runner(sink).run_once(wait_s=0)
    assert log.of_key(b"a") == log.of_key(b"b") == [0, 1, 2]


@pytest.mark.parametrize("keep_s", [None, 3600.0])
@pytest.mark.parametrize("moment", ["before-commit", "behind-commit", "exported"])
def test_dead_letters_come_once(store: Store, moment: str, keep_s: float | None) -> None:
    """They leave one by one and out of order; whoever dies, another one is tried before."""
    scene, log = Scene(store, keep_s=keep_s), Log()
    for key in (b"x", b"y", b"z"):
        scene.add(key.decode(), key=key)
    sink = log.sink()
    sink.on_batch = Picky("x", "y", "z")
    scene.runner(sink).run_once(wait_s=0)
    sink.on_batch = lambda _: None
    for key in (b"z", b"y", b"x"):
        scene.queue.dead_letters().retry(key)
        with pytest.raises(Killed):
            mortal(scene, log.sink(), moment).run_once(wait_s=0)
    next_owner(scene, log.sink()).run_once(wait_s=0)
    assert sorted(log.values) == ["x", "y", "z"]
    assert not list(scene.queue.dead_letters())


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_replay_is_delivered_once_more_and_no_oftener(store: Store, moment: str) -> None:
    """The mark is ahead of it, and is that of an earlier turn."""
    scene, log = Scene(store, keep_s=3600.0), Log()
    add(scene, 0, 1)
    scene.runner(log.sink()).run_once(wait_s=0)
    scene.queue.replay(0)
    with pytest.raises(Killed):
        mortal(scene, log.sink(), moment).run_once(wait_s=0)
    next_owner(scene, log.sink()).run_once(wait_s=0)
    assert log.of_key(b"a") == log.of_key(b"b") == [0, 1, 0, 1]


def test_other_buckets_have_marks_of_their_own() -> None:
    """So has a queue of the same id that is made later, and one of another store."""
    names: set[str] = set()
    for buckets in (1, 3):
        scene, log = Scene(buckets=2), Log()
        for number in range(6):
            scene.add(number, key=b"%d" % number)
        scene.export()
        Rebucketing(scene, buckets).finish(scene.export)
        scene.queue = ExportQueue.open(scene.tm, QUEUE)
        for number in range(6, 9):
            scene.add(number, key=b"%d" % number)
        scene.runner(log.sink()).run_once(wait_s=0)
        assert sorted(log.values) == [6, 7, 8]
        scene.queue.drop()
        scene.queue = ExportQueue.create(scene.tm, QUEUE, buckets=buckets)
        scene.add("new")
        scene.runner(log.sink()).run_once(wait_s=0)
        assert "new" in log.values
        assert len({name.split(".")[1] for name in log.marks}) == 2
        assert not names & set(log.marks)
        names |= set(log.marks)


def test_a_mark_that_was_forgotten_is_missed_where_it_matters() -> None:
    """Not where all owners have ended well."""
    scene, log = Scene(), Log()
    sink = log.sink()
    sink.forgets = "kafka:here"
    add(scene, 0)
    scene.runner(sink).run_once(wait_s=0)
    log.marks.clear()
    add(scene, 1)
    scene.runner(sink).run_once(wait_s=0)
    add(scene, 2)
    dying = log.sink()
    dying.forgets = "kafka:here"
    with pytest.raises(Killed):
        mortal(scene, dying, "behind-commit").run_once(wait_s=0)
    log.marks.clear()
    with pytest.raises(ExportError, match="kafka:here has forgotten how far bucket 0 had come"):
        next_owner(scene, sink).run_once(wait_s=0)
    sink.forgets = "kafka:elsewhere"
    next_owner(scene, sink).run_once(wait_s=0)
    assert log.of_key(b"a") == [0, 1, 2, 2], "to another receiver nothing was delivered"


def with_a_forgotten_mark() -> tuple[Scene, Log, LogSink]:
    """Return a queue of two buckets, of one of which nobody knows how far it came."""
    scene, log = Scene(buckets=2), Log()
    keys = {bucket_of(b"%d" % number, 2): b"%d" % number for number in range(9)}
    sink, dying = log.sink(), log.sink()
    sink.forgets = dying.forgets = "kafka:here"
    sink.keeps_first = dying.keeps_first = True
    for bucket in (0, 1):
        scene.add(f"first of {bucket}", key=keys[bucket])
    scene.runner(sink).run_once(wait_s=0)
    for bucket in (0, 1):
        scene.add(f"second of {bucket}", key=keys[bucket])
    with pytest.raises(Killed):
        mortal(scene, dying, "behind-commit").run_once(wait_s=0)
    for name in [name for name in log.marks if name.endswith(".0")]:
        del log.marks[name]
    log.entries.clear()
    return scene, log, sink


def test_a_forgotten_mark_is_an_obstacle_of_its_bucket() -> None:
    """The others go on; then the exporter ends with an error, and its status says why."""
    scene, log, sink = with_a_forgotten_mark()
    with pytest.raises(ExportError, match="forgotten how far bucket 0 had come"):
        next_owner(scene, sink).run_once(wait_s=0)
    assert log.values == ["second of 1"]
    stopped = [one.stopped for one in scene.queue.lag().buckets]
    assert "forgotten how far bucket 0" in stopped[0]
    assert stopped[1] == ""


def test_an_exporter_that_runs_goes_on_without_a_bucket_whose_mark_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It comes back to it once somebody has helped; told to stop before, it ends with the error."""
    monkeypatch.setattr("omidpy.recipes.export_queue.delivery.runner.OBSTACLE_S", 0.0)
    scene, log, sink = with_a_forgotten_mark()
    passes: list[str] = []

    def at(step: str) -> None:
        passes.append(step)
        if passes.count("exported") == 1 and passes.count("taken") > 9:
            runner.stop()

    runner = scene.runner(sink, on_step=at)
    takes_over(runner)
    with pytest.raises(ExportError, match="forgotten how far bucket 0 had come"):
        runner.run()
    assert log.values == ["second of 1"]
    (waiting,) = {entry.commit_ts for entry in scene.queue.peek()}
    scene.queue.acknowledge(waiting)
    scene.runner(sink).run_once(wait_s=0)
    assert [one.stopped for one in scene.queue.lag().buckets] == ["", ""]


def test_an_exporter_that_has_no_other_bucket_ends_at_once() -> None:
    """Others may be able to, and whoever started it should know."""
    scene, log, sink = with_a_forgotten_mark()
    log.marks.clear()
    runner = scene.runner(sink)
    takes_over(runner)
    with pytest.raises(ExportError, match="has forgotten how far bucket"):
        runner.run()
    assert log.values == []


@pytest.mark.parametrize("is_by_hand", [False, True], ids=["at least once", "by hand"])
def test_who_was_refused_for_a_forgotten_mark_goes_on_in_the_end(
    is_by_hand: bool,  # noqa: FBT001 - a case
) -> None:
    """Once somebody has brought what was under way, or let it be delivered at least once."""
    scene, log = Scene(), Log()
    sink, dying = log.sink(), log.sink()
    sink.forgets = dying.forgets = "kafka:here"
    add(scene, 0)
    scene.runner(sink).run_once(wait_s=0)
    add(scene, 1)
    with pytest.raises(Killed):
        mortal(scene, dying, "behind-commit").run_once(wait_s=0)
    log.marks.clear()
    with pytest.raises(ExportError, match="forgotten"):
        next_owner(scene, sink).run_once(wait_s=0)
    if is_by_hand:
        (waiting,) = {entry.commit_ts for entry in scene.queue.peek()}
        scene.queue.acknowledge(waiting)
        scene.runner(sink).run_once(wait_s=0)
    else:
        scene.export()
    add(scene, 2)
    scene.runner(sink).run_once(wait_s=0)
    assert log.of_key(b"a") == [0, 1, 2]


def test_poison_of_any_number_is_set_aside_without_ever_deeper_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch holds thousands of entries of a key that is parked, and a mark leaves out few."""
    monkeypatch.setattr("omidpy.recipes.export_queue.delivery.bucket.MOST_LEFT_OUT", 1)
    scene, log = Scene(), Log()
    sink, depths = log.sink(), set()
    sink.on_batch = Picky(0, key=b"bad")
    scene.add(*range(30), key=b"bad")
    scene.add("good", key=b"good")

    def measure(step: str) -> None:
        if step == "removed":
            depths.add(len(traceback.extract_stack()))

    scene.runner(sink, on_step=measure).run_once(wait_s=0)
    assert len(list(scene.queue.dead_letters())) == 30
    assert log.of_key(b"good") == ["good"]
    assert len(depths) == 1


def test_a_doubt_outlives_what_is_noted_in_the_midst_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer of the receiver was lost, what waits is counted, and the owner ends well."""
    scene, log = Scene(), Log()
    monkeypatch.setattr("omidpy.recipes.export_queue.delivery.runner.MOST_PAUSES", 0)
    sink, lost = log.sink(), [True]
    sink.forgets = "kafka:here"
    add(scene, 0)
    scene.runner(sink).run_once(wait_s=0)
    add(scene, 1)

    def lose(step: str) -> None:
        if step == "behind-commit" and lost:
            lost.pop()
            raise ConnectionError("no answer")

    sink.on_step = lose
    with pytest.raises(ExportError, match="gets nowhere"):
        scene.runner(sink).run_once(wait_s=0)
    assert log.of_key(b"a") == [0, 1]
    log.marks.clear()
    with pytest.raises(ExportError, match="has forgotten how far"):
        scene.runner(sink).run_once(wait_s=0)
    assert log.of_key(b"a") == [0, 1]


@pytest.mark.parametrize(
    "mark",
    [
        Mark(until=Position(2**62, b"")),
        Mark(until=Position(2**40, b""), since=Position(2**39, b"")),
    ],
)
def test_a_store_that_was_set_back_delivers_what_is_new(
    caplog: pytest.LogCaptureFixture, mark: Mark
) -> None:
    """Its timestamps may come again, and a mark would cover entries that it has never seen."""
    scene, log = Scene(), Log()
    add(scene, 0)
    scene.runner(log.sink()).run_once(wait_s=0)
    (name,) = log.marks
    log.marks[name] = mark.encode()
    scene.client.naive._last = 2**41 // 50 * 50
    add(scene, 1)
    scene.runner(log.sink()).run_once(wait_s=0)
    assert "was restored" in caplog.text
    add(scene, 2)
    with pytest.raises(Killed):
        mortal(scene, log.sink(), "behind-commit").run_once(wait_s=0)
    next_owner(scene, log.sink()).run_once(wait_s=0)
    assert log.of_key(b"a") == log.of_key(b"b") == [0, 1, 2]


def test_a_queue_without_an_order_of_time_is_refused() -> None:
    """Nothing says how far it has come."""
    scene = Scene(layout="fluo")
    with pytest.raises(ExportError, match="--at-least-once"):
        scene.runner(Log().sink())


def test_whatever_happens_to_ten_owners(store: Store) -> None:
    """They die and sleep where chance has it, with poison in between."""
    for seed in range(20):
        draw = random.Random(seed)
        scene, log = Scene(type(store)(), buckets=2), Log()
        sent = 0
        for _ in range(10):
            sent += 1
            add(scene, sent)
            sink = log.sink()
            sink.on_batch = Picky(draw.choice((None, sent)))
            size = draw.choice((1, 150, 1 << 20))
            runner = mortal(scene, sink, draw.choice(MOMENTS), buffer_bytes=size)
            with suppress(Killed):
                runner.run_once(wait_s=0)
            if draw.random() < 0.5:
                scene.queue.dead_letters().retry()
        for _ in range(3):
            scene.queue.dead_letters().retry()
            next_owner(scene, log.sink()).run_once(wait_s=0)
        for key in (b"a", b"b"):
            assert log.of_key(key) == list(range(1, sent + 1)), seed


# -- tables of SQL ---------------------------------------------------------------------------------


@pytest.mark.parametrize("append", [True, False])
def test_rows_that_were_taken_out_of_a_table_do_not_come_again(
    tmp_path: Path, *, append: bool
) -> None:
    """Behind the commit in the table, and before the removal of the entries, its owner dies."""
    scene, file = Scene(), tmp_path / "out.db"
    add(scene, 0, 1)
    sink: Any = SqliteSink(file, append=append)
    scene.sink = sink
    scene.die_at("exported")
    with closing(sqlite3.connect(file)) as other, other:
        taken = other.execute("DELETE FROM entries RETURNING value").fetchall()
    assert sorted(taken) == ([("0",), ("0",), ("1",), ("1",)] if append else [("1",), ("1",)])
    add(scene, 2)
    next_owner(scene, SqliteSink(file, append=append)).run_once(wait_s=0)
    with closing(sqlite3.connect(file)) as other:
        assert other.execute("SELECT value FROM entries").fetchall() == [("2",), ("2",)]
    assert scene.queue.lag().entries == 0


def test_an_owner_that_was_replaced_writes_no_row(tmp_path: Path) -> None:
    """Its fence is old; the later owner's mark stays."""
    sink = SqliteSink(tmp_path / "out.db", append=True)
    sink.open()
    old, new = (Share(QUEUE, "i.1", 0, fence) for fence in (1, 2))
    scene = Scene()
    add(scene, 0)
    batch = Batch(scene.queue.peek(), queue=QUEUE, bucket=0, fence=1)
    assert sink.take_over(old) is None
    assert sink.take_over(new) is None
    with pytest.raises(Deposed):
        sink.export_marked(old, batch, Mark(turn=7))
    with pytest.raises(Deposed):
        sink.take_over(old)
    sink.export_marked(new, batch, Mark(turn=8))
    assert sink.take_over(new) == Mark(turn=8)
    with closing(sqlite3.connect(tmp_path / "out.db")) as other:
        assert other.execute("SELECT count(*) FROM entries").fetchone() == (2,)
    sink.close()


# -- files -----------------------------------------------------------------------------------------


def _taken(folder: Path) -> list[int]:
    """Take all files away, as one does who loads them, and return their lines."""
    found = []
    for file in sorted(folder.glob("[!.]*")):
        found += [json.loads(line)["value"] for line in file.read_text("utf-8").splitlines()]
        file.unlink()
    return found


class _Dying(JsonLinesSink):
    """Dies at a call of a file."""

    dies_at: tuple[str, int] = ("", 0)

    def take_over(self, share: Share) -> Mark | None:
        """Watch what comes next."""
        found = super().take_over(share)
        name, number = self.dies_at
        if name:
            self._watch(name, number)
        return found

    def _watch(self, name: str, number: int) -> None:
        real, calls = getattr(self._marks, name), []

        def call(*given: Any, **named: Any) -> Any:
            calls.append(name)
            if len(calls) == number:
                raise Killed
            result = real(*given, **named)
            if len(calls) == number - 1:
                raise Killed
            return result

        setattr(self._marks, name, call)


@pytest.mark.parametrize("call", ["advance", "rename", "_write", "sync", "_all"])
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(1 << 20, 1), (1, 1 << 20)])
def test_a_file_that_was_taken_away_does_not_come_again(
    tmp_path: Path, call: str, number: int, sizes: tuple[int, int]
) -> None:
    """Its owner dies at any call, and whoever loads files has been there before the next one."""
    scene = Scene()
    add(scene, 0, 1, 2)
    dying = _Dying(tmp_path)
    dying.dies_at = (call, number)
    runner = next_owner(scene, dying, buffer_bytes=sizes[0])
    runner._crew.leave = runner._crew._is_over.set  # type: ignore[method-assign]  # it dies
    with suppress(Killed):
        runner.run_once(wait_s=0)
    found = _taken(tmp_path)
    add(scene, 3)
    next_owner(scene, JsonLinesSink(tmp_path), buffer_bytes=sizes[1]).run_once(wait_s=0)
    found += _taken(tmp_path)
    assert found == [0, 0, 1, 1, 2, 2, 3, 3]
    assert scene.queue.lag().entries == 0


def test_an_owner_that_was_replaced_writes_no_file(tmp_path: Path) -> None:
    """Also one that slept until its number was tidied up; its file is not taken for one."""
    old, new = (Share(QUEUE, "i.1", 0, fence) for fence in (1, 2))
    scene = Scene()
    add(scene, 0)
    batch = Batch(scene.queue.peek(), queue=QUEUE, bucket=0, fence=1)
    sleeper, sink = JsonLinesSink(tmp_path), JsonLinesSink(tmp_path)
    assert sleeper.take_over(old) is None
    assert sink.take_over(new) is None
    with pytest.raises(Deposed):
        sleeper.export_marked(old, batch, Mark(turn=7))
    for turn in range(5):
        sink.export_marked(new, batch, Mark(turn=turn))
    with pytest.raises(Deposed):
        sleeper.export_marked(old, batch, Mark(turn=7))
    with pytest.raises(Deposed):
        sleeper.take_over(old)
    assert sink.take_over(new) == Mark(turn=4)
    assert len(list(tmp_path.glob("[!.]*"))) == 1
    assert len(list(tmp_path.glob(".*.mark"))) <= 3


def test_of_two_that_slept_none_is_taken_in_by_the_other(tmp_path: Path) -> None:
    """The mark that the first one leaves has the number of the one that the second wrote last."""
    first, second, third = (Share(QUEUE, "i.1", 0, fence) for fence in (1, 2, 3))
    scene = Scene()
    add(scene, 0)
    batch = Batch(scene.queue.peek(), queue=QUEUE, bucket=0, fence=1)
    sinks = [JsonLinesSink(tmp_path) for _ in range(3)]
    for sink, share in zip(sinks, (first, second, third), strict=True):
        sink.take_over(share)
    for turn in range(5):
        sinks[2].export_marked(third, batch, Mark(turn=turn))
    for sink, share in zip(sinks, (first, second), strict=False):
        with pytest.raises(Deposed):
            sink.export_marked(share, batch, Mark(turn=7))
    assert sinks[2].take_over(third) == Mark(turn=4)


def test_who_stands_still_as_he_takes_over_goes_on_behind_what_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """His number was used and tidied up, so that he had it, and both delivered."""
    old, new = (Share(QUEUE, "i.1", 0, fence) for fence in (1, 2))
    scene = Scene()
    add(scene, 0)
    batch = Batch(scene.queue.peek(), queue=QUEUE, bucket=0, fence=1)
    owner, sleeper = JsonLinesSink(tmp_path), JsonLinesSink(tmp_path)
    owner.take_over(old)
    write = sleeper._marks._write

    def late(*mark: Any) -> Any:
        monkeypatch.undo()
        for turn in range(5):
            owner.export_marked(old, batch, Mark(turn=turn))
        return write(*mark)

    monkeypatch.setattr(sleeper._marks, "_write", late)
    assert sleeper.take_over(new) == Mark(turn=4)
    with pytest.raises(Deposed):
        owner.export_marked(old, batch, Mark(turn=7))
    sleeper.export_marked(new, batch, Mark(turn=5))
    assert JsonLinesSink(tmp_path).take_over(new) == Mark(turn=5)


def test_a_folder_is_listed_where_a_bucket_is_taken_over_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets a file with each batch: listed for each, the millionth took seconds."""
    scene = Scene()
    add(scene, 0)
    share = Share(QUEUE, "i.1", 0, 1)
    sink = JsonLinesSink(tmp_path)
    sink.take_over(share)

    def refuse(_: object) -> None:
        raise AssertionError("the folder was listed")

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        for turn in range(5):
            batch = Batch(scene.queue.peek(), queue=QUEUE, bucket=0, fence=1)
            sink.export_marked(share, batch, Mark(turn=turn))
    assert len(list(tmp_path.glob(".*.mark"))) == 2
    assert JsonLinesSink(tmp_path).take_over(share) == Mark(turn=4)


@pytest.mark.parametrize("at", ["fsync", "link"])
def test_what_a_killed_owner_was_writing_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Nobody else would ever remove it; that of another bucket may be written at this moment."""
    scene = Scene()
    add(scene, 0)
    batch = Batch(scene.queue.peek(), queue=QUEUE, bucket=0, fence=1)
    shares = [Share(QUEUE, incarnation, 0, 1) for incarnation in ("i.1", "i.2")]

    def die(*_: object, **__: object) -> None:
        raise Killed

    for share in shares:
        sink = JsonLinesSink(tmp_path)
        sink.take_over(share)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", die)
            patch.setattr(*{"fsync": (os, "fsync"), "link": (Path, "hardlink_to")}[at], die)
            with pytest.raises(Killed):
                sink.export_marked(share, batch, Mark(turn=1))
    left = {path.name for path in tmp_path.glob(".*") if path.suffix != ".mark"}
    assert len(left) == {"fsync": 2, "link": 4}[at]
    JsonLinesSink(tmp_path).take_over(Share(QUEUE, "i.1", 0, 2))
    kept = {path.name for path in tmp_path.glob(".*") if path.suffix != ".mark"}
    assert len(kept) == len(left) // 2
    JsonLinesSink(tmp_path).take_over(Share(QUEUE, "i.2", 0, 2))
    assert not [path for path in tmp_path.glob(".*") if path.suffix != ".mark"]


def test_where_there_are_no_links_files_come_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At least once, and it is told."""

    def refuse(self: Path, target: object) -> None:
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    scene = Scene()
    add(scene, 0)
    scene.runner(JsonLinesSink(tmp_path)).run_once(wait_s=0)
    assert _taken(tmp_path) == [0, 0]
    assert "no hard links" in caplog.text
