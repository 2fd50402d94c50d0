"""A queue gets other buckets: nothing is lost, nothing overtakes, and any step may come twice."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from omidpy.errors import (
    ExportError,
    Fenced,
    NoSuchQueue,
    QueueFull,
    StorageUnavailable,
    TransactionAborted,
    UsageError,
    WriteConflict,
)
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.fate.step import Again, Step, decode_step, encode_step
from omidpy.recipes.export_queue import ExportQueue, Poison
from omidpy.recipes.export_queue.delivery import crew
from omidpy.recipes.export_queue.delivery import runner as runner_module
from omidpy.recipes.export_queue.entries import dead
from omidpy.recipes.export_queue.entries.stored.state import DEFINITION_AGE_S, BucketRows, Successor
from omidpy.recipes.export_queue.entries.view import View
from omidpy.recipes.export_queue.sinks.tables import TableSink
from omidpy.recipes.export_queue.upkeep import handover, making
from omidpy.recipes.export_queue.upkeep import rebucketing as rebucketing_module
from omidpy.recipes.export_queue.upkeep.rebucketing import (
    DROPPED,
    REPLACED,
    Drain,
    Prepare,
    Settle,
    Sweep,
    Switch,
)
from tests.machines.export_queues import QUEUE, TABLE, Scene
from tests.machines.export_queues import STEPS as EXPORT_STEPS
from tests.machines.export_rebucketing import STEPS, Rebucketing, Told
from tests.machines.fencing import Fencing
from tests.machines.waiting import wait_for


def in_order(scene: Scene) -> bool:
    """Say whether each key has been delivered in the order of commits."""
    entries = scene.sink.entries
    return all(
        seqs == sorted(set(seqs))
        for key in {entry.key for entry in entries}
        for seqs in [[entry.seq for entry in entries if entry.key == key]]
    )


def refuses(value: str) -> Callable[[Any], None]:
    """Return what never takes entries of a value."""

    def refuse(batch: Any) -> None:
        for entry in batch:
            if entry.value == value:
                raise Poison(entry, "no")

    return refuse


def test_who_was_overtaken_is_not_told_that_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """His operation ended well, because another one gives the queue other buckets."""
    scene = Scene(buckets=2)
    Rebucketing(scene, 5).take()
    monkeypatch.setattr(
        rebucketing_module,
        "_submitted",
        lambda *_: SimpleNamespace(result=lambda _: REPLACED),
    )
    with pytest.raises(ExportError, match="it has 2, and is getting 5, not 3"):
        scene.queue.rebucket(3)


@pytest.mark.parametrize("times", [1, 2])
def test_entries_that_come_at_any_step_leave_once_and_in_order(times: int) -> None:
    """Also where the executor of each step dies at its end, and another one takes it again."""
    scene = Scene(buckets=4)
    numbers = itertools.count()
    rebucketing = Rebucketing(scene, 7)

    def act() -> None:
        scene.clock.advance(DEFINITION_AGE_S)
        for key in (b"a", b"b", b"c", b"d", b"e"):
            try:
                scene.add(next(numbers), key=key)
            except QueueFull:
                break
        scene.export()

    act()
    while rebucketing.next is not None:
        rebucketing.take(times=times)
        act()
    assert rebucketing.result == "switched"
    assert len(scene.sink.values) == len(set(scene.sink.values)) == 20
    assert in_order(scene)
    assert scene.queue.buckets == 7
    assert scene.queue.lag().entries == 0
    assert {entry.key for entry in scene.sink.entries} == {b"a", b"b", b"c", b"d", b"e"}
    assert [name for name in scene.tm.tables() if name.startswith(TABLE)] == [f"{TABLE}.2"]
    assert ExportQueue.open(scene.tm, QUEUE).buckets == 7


def test_who_adds_is_refused_until_nothing_can_come_into_the_old_buckets() -> None:
    """Else an entry of the new ones could leave before an older one of its key."""
    scene = Scene(buckets=2)
    rebucketing = Rebucketing(scene, 3)
    slow = scene.tm.begin()
    scene.queue.add(slow, b"k", "slow")
    rebucketing.take()
    scene.clock.advance(DEFINITION_AGE_S)
    with pytest.raises(QueueFull, match="gets other buckets") as caught, scene.tm.begin() as tx:
        scene.queue.add(tx, b"k", "early")
    assert caught.value.retryable
    rebucketing.take()
    with pytest.raises(Fenced):
        slow.commit()
    rebucketing.take()
    scene.clock.advance(DEFINITION_AGE_S)
    scene.add("new")
    rebucketing.finish(scene.export)
    assert scene.sink.values == ["new"]


def sleeps_behind_a_look(
    monkeypatch: pytest.MonkeyPatch, rebucketing: Rebucketing, act: Callable[[], object]
) -> None:
    """Let the next one who looks find what is, and sleep while new buckets are opened."""
    find, asleep = making.find, [act]

    def slowly(tm: Any, places: Any) -> Any:
        found = find(tm, places)
        if asleep:
            wake = asleep.pop()
            for _ in (Prepare, Settle, Drain):
                rebucketing.take()
            wake()
        return found

    monkeypatch.setattr(making, "find", slowly)


def test_who_sleeps_behind_his_look_does_not_take_it_for_young(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """He would add to the old buckets behind their fence, and they go with what is in them."""
    scene = Scene(buckets=2)
    rebucketing = Rebucketing(scene, 3)
    sleeps_behind_a_look(monkeypatch, rebucketing, lambda: None)
    queue = ExportQueue.open(scene.tm, QUEUE)
    assert rebucketing.reason == "", "the old ones are empty"
    with scene.tm.begin() as tx:
        queue.add(tx, b"k", "new")
    rebucketing.take()
    rebucketing.finish()
    assert scene.export() == ["new"]


def test_a_thread_that_slept_behind_its_look_says_nothing_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They share the queue: what another one has seen since stands."""
    scene = Scene(buckets=2)
    rebucketing = Rebucketing(scene, 3)
    scene.clock.advance(DEFINITION_AGE_S)
    sleeps_behind_a_look(monkeypatch, rebucketing, scene.queue._current)
    assert scene.queue._current().successor is None
    adding = scene.queue._definition.of_adders()
    assert adding is not None
    assert adding.buckets == 3


def test_the_new_buckets_wait_until_the_old_ones_are_empty() -> None:
    """However much waits in them, and however long nobody exports."""
    scene = Scene(buckets=2)
    scene.add("old")
    rebucketing = Rebucketing(scene, 3)
    for _ in (Prepare, Settle, Drain):
        rebucketing.take()
    scene.clock.advance(DEFINITION_AGE_S)
    scene.add("new")
    assert rebucketing.reason == "at least 1 entries wait in 1 of the old buckets"
    lag = scene.queue.lag()
    assert (lag.entries, lag.in_new_buckets, len(lag.buckets)) == (2, 1, 2)
    assert scene.export() == ["old"]
    assert rebucketing.reason == ""
    rebucketing.finish()
    lag = scene.queue.lag()
    assert (lag.entries, lag.in_new_buckets, len(lag.buckets)) == (1, 0, 3)
    assert scene.export() == ["old", "new"]


def test_a_look_at_old_buckets_ends_at_the_first_of_what_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It comes twice a second, in a process that exports: to count a million took all its time."""
    scene = Scene(buckets=2)
    for number in range(100):
        scene.add(number, key=b"%d" % number)
    seen, log = [], View.log

    def read(self: View, *given: Any, **named: Any) -> Any:
        for one in log(self, *given, **named):
            seen.append(one)
            yield one

    monkeypatch.setattr(View, "log", read)
    rebucketing = Rebucketing(scene, 3)
    for _ in (Prepare, Settle, Drain):
        rebucketing.take()
    seen.clear()
    assert "entries wait" in rebucketing.reason
    assert len(seen) == 1


def test_dead_letters_come_along_and_park_their_key_on() -> None:
    """In the old order, and behind them what was added since."""
    scene = Scene(buckets=4)

    def refuse(batch: Any) -> None:
        if batch[0].key == b"bad":
            raise ValueError("no")

    scene.sink.on_batch = refuse
    scene.add("poison", "waits", key=b"bad")
    scene.add("fine", key=b"good")
    assert scene.export(max_attempts=1) == ["fine"]
    Rebucketing(scene, 9).finish()
    assert [one.value for one in scene.queue.dead_letters()] == ["poison", "waits"]
    scene.clock.advance(DEFINITION_AGE_S)
    scene.add("later", key=b"bad")
    assert scene.export(max_attempts=1) == ["fine"]
    scene.sink.on_batch = lambda _: None
    assert scene.queue.dead_letters().retry() == 1
    assert scene.export() == ["fine", "poison", "waits", "later"]


def test_dead_letters_that_are_to_be_tried_again_leave_before_the_buckets_change() -> None:
    """They are due, and so count as waiting."""
    scene = Scene(buckets=2)
    scene.sink.on_batch = lambda batch: 1 // 0
    scene.add("poison")
    scene.export(max_attempts=1)
    scene.queue.dead_letters().retry()
    rebucketing = Rebucketing(scene, 3)
    for _ in (Prepare, Settle, Drain):
        rebucketing.take()
    assert "1 entries wait" in rebucketing.reason
    scene.sink.on_batch = lambda _: None
    assert scene.export() == ["poison"]
    rebucketing.finish()
    assert list(scene.queue.dead_letters()) == []


@pytest.mark.parametrize("asks", ["retry", "drop"])
def test_dead_letters_that_are_asked_for_behind_the_last_look_stay(
    monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    """An exporter of the old buckets has one in hand: in the new ones it would come once more."""
    scene = Scene(buckets=1)
    scene.sink.on_batch = refuses("poison")
    scene.add("poison", "waits")
    assert scene.export() == []
    scene.sink.on_batch = lambda _: None
    rebucketing = Rebucketing(scene, 3)
    for _ in (Prepare, Settle, Drain):
        rebucketing.take()
    switch, raw = rebucketing.next, rebucketing.tools.read(QUEUE, 1)
    assert isinstance(switch, Switch)
    assert raw is not None
    with monkeypatch.context() as patched:
        patched.setattr(rebucketing_module, "waiting", lambda *_: "")
        assert getattr(scene.queue.dead_letters(), asks)() == 1
        assert isinstance(switch.call(rebucketing.told, rebucketing.tools), Again)
    assert rebucketing.tools.read(QUEUE, 1) == raw
    scene.export()
    rebucketing.finish(scene.export)
    assert scene.sink.values == (["poison"] if asks == "retry" else []) + ["waits"]
    assert list(scene.queue.dead_letters()) == []


@pytest.mark.parametrize("asks", ["retry", "drop"])
@pytest.mark.parametrize("at_once", [1, 2])
def test_dead_letters_that_are_asked_for_while_they_are_moved_are_a_conflict(
    monkeypatch: pytest.MonkeyPatch, asks: str, at_once: int
) -> None:
    """With who moves them, also where only what waits behind the poison is moved as yet."""
    monkeypatch.setattr(handover, "MOVED_AT_ONCE", at_once)
    scene = Scene(buckets=1)
    scene.sink.on_batch = refuses("poison")
    scene.add("poison", "waits")
    scene.export()
    scene.sink.on_batch = lambda _: None
    rebucketing = Rebucketing(scene, 3)
    for _ in (Prepare, Settle, Drain):
        rebucketing.take()
    move_last = handover._move_last
    asked: list[int] = []

    def slowly(*args: Any) -> int:
        if not asked:
            asked.append(getattr(scene.queue.dead_letters(), asks)())
        return move_last(*args)

    monkeypatch.setattr(handover, "_move_last", slowly)
    with pytest.raises(WriteConflict):
        rebucketing.take()
    assert asked == [1]
    scene.export()
    rebucketing.finish(scene.export)
    assert scene.sink.values == (["poison"] if asks == "retry" else []) + ["waits"]


def test_many_dead_letters_come_along_though_their_executor_dies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In several transactions: nothing of a key is let go between them, and none is left."""
    monkeypatch.setattr(handover, "MOVED_AT_ONCE", 2)
    scene = Scene(buckets=2)
    scene.sink.on_batch = refuses("poison")
    for key in (b"a", b"b", b"c"):
        scene.add("poison", *range(4), key=key)
    scene.export()
    scene.sink.on_batch = lambda _: None
    rebucketing = Rebucketing(scene, 3)
    for _ in (Prepare, Settle, Drain):
        rebucketing.take()
    move_last = handover._move_last

    def dies(*args: Any) -> int:
        monkeypatch.setattr(handover, "_move_last", lambda *_: 1 // 0)
        return move_last(*args)

    for _ in range(5):
        monkeypatch.setattr(handover, "_move_last", dies)
        with pytest.raises(ZeroDivisionError):
            rebucketing.take()
        assert scene.export() == [], "nothing of a key is due while its poison is not"
        assert rebucketing.reason == ""
    monkeypatch.setattr(handover, "_move_last", move_last)
    rebucketing.finish(scene.export)
    assert len(list(scene.queue.dead_letters())) == 15
    assert scene.queue.dead_letters().retry() == 3
    scene.export()
    assert len(scene.sink.values) == 15
    assert in_order(scene)


def test_fences_go_on_growing() -> None:
    """Whoever keeps the largest of each bucket refuses a late owner of an old one."""
    scene = Scene(buckets=1)
    for value in range(3):
        scene.add(value)
        scene.export()
    last = scene.sink.batches[-1].fence
    Rebucketing(scene, 2).finish()
    scene.clock.advance(DEFINITION_AGE_S)
    scene.add(3)
    scene.export()
    assert scene.sink.batches[-1].fence > last
    assert sum(one.exported for one in scene.queue.lag().buckets) == 4


@pytest.mark.parametrize("gets_buckets", [False, True])
def test_fences_outlive_their_queue(gets_buckets: bool) -> None:  # noqa: FBT001 - a case
    """A receiver that keeps the largest takes what the next queue of this id delivers."""
    scene = Scene(buckets=1)
    scene.sink = sink = Fencing()
    for value in range(3):
        scene.add(value)
        scene.export()
    if gets_buckets:
        Rebucketing(scene, 2).finish()
    scene.queue.drop()
    scene.queue = ExportQueue.create(scene.tm, QUEUE, buckets=1)
    scene.add(3)
    assert scene.export() == list(range(4))
    fences = [batch.fence for batch in sink.batches]
    assert fences == sorted(fences)
    assert len(set(fences)) == 4
    assert all(0 < fence < 2**63 for fence in fences)


def test_fences_outlive_a_restored_store() -> None:
    """It has forgotten owners whose fence the receiver knows, and every new one was refused."""
    scene = Scene(buckets=1)
    scene.sink = sink = Fencing()
    control = scene.tm.session.control
    scene.add(0)
    scene.export()
    backup = list(control.scan(b"export/"))
    for value in range(1, 5):
        scene.add(value)
        scene.export()
    for row, raw in backup:
        control.write(row, raw)
    scene.clock.advance(60)
    scene.add(5)
    assert scene.export()[-1] == 5
    fences = [batch.fence for batch in sink.batches]
    assert fences == sorted(fences)


@pytest.mark.parametrize("after", range(len(STEPS)))
def test_a_queue_that_is_dropped_meanwhile_leaves_nothing(after: int) -> None:
    """Whatever step comes next ends without a word, and no table is left of either buckets."""
    scene = Scene(buckets=2)
    rebucketing = Rebucketing(scene, 3)
    for _ in range(after):
        rebucketing.take()
    scene.queue.drop()
    rebucketing.finish()
    assert not [name for name in scene.tm.tables() if name.startswith(TABLE)]
    with pytest.raises(NoSuchQueue):
        ExportQueue.open(scene.tm, QUEUE)
    made = ExportQueue.create(scene.tm, QUEUE, buckets=1)
    with pytest.raises(NoSuchQueue):
        scene.add("of the old one")
    assert made.lag().entries == 0


def test_one_who_gives_it_up_finds_the_queue_as_it_was() -> None:
    """An operation that is cancelled before its pivot is undone."""
    scene = Scene(buckets=2)
    rebucketing = Rebucketing(scene, 3)
    first = rebucketing.next
    assert first is not None
    rebucketing.take()
    first.undo(Told(), rebucketing.tools)
    first.undo(Told(), rebucketing.tools)
    scene.clock.advance(DEFINITION_AGE_S)
    scene.add("on")
    assert scene.export() == ["on"]
    assert scene.queue.buckets == 2
    assert [name for name in scene.tm.tables() if name.startswith(TABLE)] == [TABLE]


def test_two_numbers_at_the_same_time_are_refused() -> None:
    """The second would remove what the first has begun."""
    scene = Scene(buckets=2)
    Rebucketing(scene, 3).take()
    with pytest.raises(ExportError, match="got other buckets meanwhile"):
        Rebucketing(scene, 4).take()


def tables(scene: Scene) -> list[str]:
    """Return the tables that there are of the queue."""
    return [name for name in scene.tm.tables() if name.startswith(TABLE)]


@pytest.mark.parametrize("steps", range(1, len(STEPS) + 1))
@pytest.mark.parametrize("version", [1, 2])
def test_a_second_operation_undoes_nothing_of_the_first(steps: int, version: int) -> None:
    """Whether it comes at once or in weeks, and whichever omidpy has stored it (X8)."""
    scene = Scene(buckets=2)
    first, second = Rebucketing(scene, 3, "1" * 16), Rebucketing(scene, 4, "2" * 16)
    for _ in range(steps):
        first.take()
    scene.clock.advance(DEFINITION_AGE_S)
    if steps >= STEPS.index(Drain) + 1:
        scene.add(*range(100))
    late = stored_by(version, second.next)
    with pytest.raises(ExportError, match="got other buckets meanwhile"):
        late.call(second.told, second.tools)
    late.undo(second.told, second.tools)
    first.finish(scene.export)
    scene.clock.advance(DEFINITION_AGE_S)
    if not scene.sink.values:
        scene.add(*range(100))
    assert scene.export() == list(range(100))
    assert (scene.queue.buckets, tables(scene)) == (3, [f"{TABLE}.2"])


def stored_by(version: int, step: Step | None) -> Step:
    """Return a step as an executor reads it from what a version of omidpy has stored."""
    assert step is not None
    kept = msgspec.json.decode(encode_step(step))
    if version == 1:
        kept["version"] = 1
        kept["fields"].pop("after", None)
    return decode_step(msgspec.json.encode(kept))


def test_who_removes_late_finds_nothing_of_that_name() -> None:
    """One that undoes is paused; others undo for it, and the next operation makes a new table."""
    scene = Scene(buckets=2)
    first = Rebucketing(scene, 3, "1" * 16)
    begun = first.next
    assert begun is not None
    first.take()
    begun.undo(first.told, first.tools)
    second = Rebucketing(scene, 3, "2" * 16)
    for _ in range(3):
        second.take()
    scene.clock.advance(DEFINITION_AGE_S)
    scene.add("live")
    first.tools.remove_table(QUEUE, 2)
    second.finish(scene.export)
    assert scene.sink.values == ["live"]
    assert tables(scene) == [f"{TABLE}.3"]


def test_numbers_are_given_once_whatever_becomes_of_them() -> None:
    """To buckets that were given up, and to queues that were dropped while they got some."""
    scene = Scene(buckets=2)
    given_up = Rebucketing(scene, 3)
    begun = given_up.next
    assert begun is not None
    given_up.take()
    begun.undo(given_up.told, given_up.tools)
    Rebucketing(scene, 5, "2" * 16).take()
    scene.queue.drop()
    scene.queue = ExportQueue.create(scene.tm, QUEUE, buckets=1)
    assert tables(scene) == [f"{TABLE}.4"]


def test_numbers_that_an_older_omidpy_gave_are_not_given_again() -> None:
    """It did not note the largest: only the definition says what is taken."""
    known = Scene(buckets=2).queue._find()
    older = msgspec.structs.replace(known, last=0, successor=Successor(number=2, buckets=3))
    assert older.next_number() == 3


def test_buckets_that_have_taken_entries_are_undone_by_nobody() -> None:
    """Nor is the table of a queue swept away that is exported."""
    scene = Scene(buckets=2)
    rebucketing = Rebucketing(scene, 3)
    begun = rebucketing.next
    assert begun is not None
    for _ in range(3):
        rebucketing.take()
    scene.clock.advance(DEFINITION_AGE_S)
    scene.add("new")
    begun.undo(rebucketing.told, rebucketing.tools)
    with pytest.raises(ExportError, match="is not removed"):
        Sweep(QUEUE, 1, 1).call(rebucketing.told, rebucketing.tools)
    rebucketing.finish(scene.export)
    assert scene.sink.values == ["new"]


def test_a_table_that_was_made_for_nobody_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its maker was paused, and the queue was dropped meanwhile."""
    scene = Scene(buckets=2)
    make_table = making.make_table

    def paused(*args: Any) -> None:
        monkeypatch.setattr(making, "make_table", make_table)
        scene.queue.drop()
        make_table(*args)

    monkeypatch.setattr(making, "make_table", paused)
    rebucketing = Rebucketing(scene, 3)
    rebucketing.take()
    assert rebucketing.result == DROPPED
    assert tables(scene) == []


def test_a_table_that_is_made_behind_the_next_buckets_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its maker was paused; others have finished for it, and given the queue other buckets."""
    scene = Scene(buckets=2)
    make_table = making.make_table

    def paused(*args: Any) -> None:
        monkeypatch.setattr(making, "make_table", make_table)
        for operation, buckets in (("1" * 16, 3), ("2" * 16, 5)):
            other = Rebucketing(scene, buckets, operation)
            other.finish(scene.export)
        make_table(*args)

    monkeypatch.setattr(making, "make_table", paused)
    rebucketing = Rebucketing(scene, 3, "1" * 16)
    rebucketing.take()
    assert rebucketing.result == REPLACED
    assert tables(scene) == [f"{TABLE}.3"]


@pytest.mark.parametrize("count", [1, 2])
def test_a_replay_that_comes_before_the_switch_is_delivered(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Whoever switches has seen that the old buckets are empty, and was paused then."""
    scene = Scene(buckets=2, keep_s=1000.0)
    scene.add("kept")
    rebucketing = Rebucketing(scene, 3)
    for _ in range(3):
        rebucketing.take()
        scene.export()
    begin_epochs = handover.begin_epochs
    left = [count]

    def paused(*args: Any) -> None:
        if left[0]:
            left[0] -= 1
            scene.queue.replay(0)
        begin_epochs(*args)

    monkeypatch.setattr(rebucketing_module, "begin_epochs", paused)
    assert isinstance(rebucketing.next, Switch)
    for _ in range(count):
        answer = rebucketing.next.call(rebucketing.told, rebucketing.tools)
        assert isinstance(answer, Again)
        assert "1 entries wait" in rebucketing.reason
        scene.export()
    rebucketing.finish(scene.export)
    assert scene.sink.values == ["kept"] * (1 + count)
    assert ExportQueue.open(scene.tm, QUEUE).buckets == 3


@pytest.mark.parametrize("then", ["other buckets", "was dropped"])
def test_a_replay_that_comes_behind_the_switch_is_refused(
    monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """What was delivered is not carried over, and whoever asked is not told that it comes."""
    scene = Scene(buckets=1, keep_s=1000.0)
    scene.add("kept")
    scene.export()
    replace = BucketRows.replace

    def paused(*args: Any) -> Any:
        monkeypatch.undo()
        if then == "was dropped":
            scene.queue.drop()
        else:
            Rebucketing(scene, 3).finish(scene.export)
        return replace(*args)

    monkeypatch.setattr(BucketRows, "replace", paused)
    with pytest.raises(ExportError, match=then):
        scene.queue.replay(0)


def test_buckets_whose_operation_is_gone_are_taken_over() -> None:
    """Somebody has deleted it: the same call begins another one, and a late step does nothing."""
    scene = Scene(buckets=2)
    gone = Rebucketing(scene, 3, "1" * 16)
    for _ in range(2):
        gone.take()
    with pytest.raises(ExportError, match="is getting 3 buckets by operation 1111"):
        scene.queue.rebucket(4)
    heir = Rebucketing(scene, 3, "2" * 16)
    assert isinstance(heir.next, Prepare)
    heir.next = dataclasses.replace(heir.next, after="1" * 16)
    heir.take()
    gone.take()
    assert gone.result == REPLACED
    heir.finish(scene.export)
    assert tables(scene) == [f"{TABLE}.2"]


def test_two_calls_at_once_end_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real operations: the second is refused, and no entry is lost."""
    monkeypatch.setattr(rebucketing_module, "SETTLE_S", 0.0)
    scene = Scene(buckets=2)
    scene.add(*range(100))
    refused: list[str] = []

    def give(buckets: int) -> None:
        try:
            scene.queue.rebucket(buckets, wait_s=60)
        except ExportError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=give, args=(buckets,)) for buckets in (3, 4)]
    for thread in threads:
        thread.start()

    def is_over() -> bool:
        scene.clock.advance(0.1)
        scene.export()
        return not any(thread.is_alive() for thread in threads)

    wait_for(is_over, 60)
    assert len(refused) == 1
    assert scene.sink.values == list(range(100))
    assert len(tables(scene)) == 1


@pytest.mark.parametrize("buckets", [0, -1, 65_537, 1.5, None])
def test_numbers_that_no_queue_can_have_are_refused(buckets: Any) -> None:
    """Before anything is done."""
    scene = Scene(buckets=2)
    with pytest.raises((UsageError, TypeError)):
        scene.queue.rebucket(buckets)
    assert scene.queue._find().successor is None


def test_the_number_that_it_has_is_no_work() -> None:
    """So that the call may be repeated."""
    scene = Scene(buckets=2)
    scene.queue.rebucket(2)
    assert scene.queue._find().number == 1


@pytest.mark.parametrize("is_swept", [False, True])
def test_an_exporter_goes_on_with_the_new_buckets(is_swept: bool) -> None:  # noqa: FBT001 - a case
    """It began with the old ones, and is never restarted; whether their table is gone or not."""
    scene = Scene(buckets=2)
    runner = scene.runner(lease_s=0.2)
    thread = threading.Thread(target=runner.run)
    thread.start()

    def cranked(count: int) -> bool:
        scene.clock.advance(0.02)
        return len(scene.sink.values) >= count

    try:
        scene.add("old")
        wait_for(lambda: cranked(1), 60)
        rebucketing = Rebucketing(scene, 5)
        for _ in STEPS if is_swept else STEPS[:-1]:
            rebucketing.take()
        scene.clock.advance(DEFINITION_AGE_S)
        scene.add("new")
        wait_for(lambda: cranked(2), 20)
    finally:
        runner.stop()
        thread.join()
    assert scene.sink.values == ["old", "new"]


@pytest.mark.parametrize("is_dropped", [False, True])
@pytest.mark.parametrize("step", EXPORT_STEPS)
def test_an_exporter_that_stands_still_finds_out_what_has_become_of_its_queue(
    step: str, *, is_dropped: bool
) -> None:
    """Its table may be gone at any moment: nobody is told to make it."""
    scene = Scene(buckets=2)
    scene.tm.create_table("newest", ["cf"])
    scene.add(1)
    rest = [scene.queue.drop if is_dropped else partial(as_far_as_it_goes, scene)]

    def on_step(name: str) -> None:
        if name == step and rest:
            rest.pop()()

    runner = scene.runner(TableSink("newest"), on_step=on_step)
    if is_dropped:
        with pytest.raises(NoSuchQueue):
            runner.run_once(wait_s=0)
    else:
        runner.run_once(wait_s=0)
        with scene.tm.begin() as tx:
            assert tx.table("newest").row(b"k", [b"cf:value"]) == {b"cf:value": b"1"}
    assert not rest


def test_an_exporter_that_cannot_look_what_has_become_of_its_queue_looks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store is out of reach as the old table goes: that is no queue that was dropped."""
    monkeypatch.setattr(runner_module, "TROUBLE_S", 0.01)
    scene = Scene(buckets=2)
    runner = scene.runner(max_poll_s=0.01)
    find = runner._find
    left: list[int] = []

    def fail_for_a_while() -> Any:
        if not left:
            left.append(3)
            as_far_as_it_goes(scene)
            runner._end(NoSuchQueue("the table is gone"))
        if left[0]:
            left[0] -= 1
            raise StorageUnavailable("no answer")
        return find()

    runner._find = fail_for_a_while
    thread = threading.Thread(target=runner.run, daemon=True)
    thread.start()
    wait_for(lambda: left == [0], 20.0)
    scene.clock.advance(DEFINITION_AGE_S)
    scene.add(1)
    wait_for(lambda: scene.sink.values == [1], 20.0)
    runner.stop()
    thread.join()


def test_an_exporter_whose_queue_is_dropped_as_it_takes_a_bucket_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before it exports it lets nothing of the owner before commit any more, in that table."""
    scene = Scene()
    scene.add(1)
    scene.die_at("taken")

    def spoil(*what: Any) -> None:
        scene.queue.drop()
        dead.spoil_claims(*what)

    monkeypatch.setattr(crew, "spoil_claims", spoil)
    with pytest.raises(NoSuchQueue):
        scene.export()


def as_far_as_it_goes(scene: Scene) -> None:
    """Give a queue other buckets, unless exporters must come first."""
    rebucketing = Rebucketing(scene, 3)
    while rebucketing.next is not None and not rebucketing.reason:
        rebucketing.take()


def acknowledged(scene: Scene) -> None:
    """Take an entry out, which an exporter need not deliver any more."""
    (entry,) = scene.queue.peek(1)
    assert scene.queue.acknowledge(entry.commit_ts) == 1


BY_HAND: Mapping[str, Callable[[Scene], object]] = {
    "peek": lambda scene: scene.queue.peek(5),
    "lag": lambda scene: scene.queue.lag(),
    "retry": lambda scene: scene.queue.dead_letters().retry(),
    "give up": lambda scene: scene.queue.dead_letters().drop(),
    "acknowledge": acknowledged,
}


@pytest.mark.parametrize("is_dropped", [False, True])
@pytest.mark.parametrize("what", BY_HAND)
def test_an_operator_who_stands_still_is_not_told_to_make_a_queues_table(
    what: str, monkeypatch: pytest.MonkeyPatch, *, is_dropped: bool
) -> None:
    """It goes with the queue, or with its old buckets; what he had done by then is done."""
    for number in itertools.count(1):
        scene = Scene(buckets=2)
        scene.add("a")
        if what != "acknowledge":
            scene.sink.on_batch = refuses("a")
            scene.export()
        rest = [scene.queue.drop if is_dropped else partial(as_far_as_it_goes, scene)]
        left = itertools.count(number, -1)

        def stand_still(real: Any, table: Any, *more: Any, **options: Any) -> Any:
            # Not where the oracle is at work, which is in this process.
            tables = table if isinstance(table, Mapping) else (table,)
            if rest and COMMIT_TABLE not in tables and next(left) == 1:  # noqa: B023
                rest.pop()()  # noqa: B023
            return real(table, *more, **options)

        with monkeypatch.context() as patch:
            for name in ("get", "scan", "write"):
                real = getattr(scene.tm.store, name)
                patch.setattr(scene.tm.store, name, partial(stand_still, real))
            # Whether his transaction was aborted by then depends on the moment.
            with suppress(NoSuchQueue, TransactionAborted):
                BY_HAND[what](scene)
        if rest:
            break
    assert number > 3
