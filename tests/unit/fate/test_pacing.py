"""Pauses between tries belong to the operation, and all executors share them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from omidpy.base.timing.clock import ManualClock
from omidpy.fate import Fate, Retry, Status, Step, step
from omidpy.fate.operation import FateId, Operation
from omidpy.fate.running.pacing import Rests, rest_of
from omidpy.fate.step import Answer, StepContext
from omidpy.fate.table.rows import INFO, difference, insertion
from omidpy.fate.table.store import TableFateStore
from omidpy.fate.zookeeper.records import decode, encode, operation_of
from omidpy.storage.memory import MemoryStore
from omidpy.testing.fate.basics import an_operation

NAMESPACE = "test-pacing"

LOOK_S = 0.25
"""How often each of several executors looks for work."""


class Diary:
    """When what was done, in seconds since the beginning."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._begun_s = clock.monotonic_s()
        self.calls: list[float] = []
        self.undos: list[float] = []

    def now_s(self) -> float:
        """Return what time it is."""
        return self._clock.monotonic_s() - self._begun_s


@step(version=1, namespace=NAMESPACE, retry=Retry(max=3, first_s=1.0, backoff=2.0))
class Fails(Step):
    """A step that can neither be done nor undone."""

    def call(self, tx: StepContext, env: Diary) -> Answer:
        """Fail."""
        env.calls.append(env.now_s())
        raise OSError("busy")

    def undo(self, tx: StepContext, env: Diary) -> None:
        """Fail."""
        env.undos.append(env.now_s())
        raise OSError("stuck")


class Crowd:
    """Some executors on one store, each of which looks for work by its own clock."""

    def __init__(self, clocks: list[ManualClock]) -> None:
        self.diary = Diary(clocks[0])
        self.clocks = {id(clock): clock for clock in clocks}
        self.fates = TableFateStore(MemoryStore())
        self.members = [
            Fate(self.diary, self.fates, {"general": 1}, clock=clock, lease_s=1000.0)
            for clock in clocks
        ]

    def run(self, operation_id: FateId) -> Operation:
        """Let everyone look, again and again, until the operation has ended."""
        for _ in range(200):
            for member in self.members:
                member.run_pending()
            found = self.fates.existing(operation_id)
            if found.is_finished:
                return found
            for clock in self.clocks.values():
                clock.advance(LOOK_S)
        raise AssertionError(f"never ended: {found}")


def test_four_executors_keep_the_pauses_of_one() -> None:
    """Each with pauses of its own they called it four times at once, and undid it in no time."""
    crowd = Crowd([ManualClock()] * 4)
    handle = crowd.members[0].submit("TEST", Fails())
    ended = crowd.run(handle.id)
    assert crowd.diary.calls == [0.0, 1.0, 3.0]
    assert crowd.diary.undos == [3.0, 4.0, 6.0]
    assert ended.status is Status.FAILED
    assert len(ended.undo_errors) == 1
    assert ended.rest is None


def test_executors_on_other_machines_keep_them_too() -> None:
    """Their clocks have nothing in common; a rest is late by a look, and never early."""
    clocks = [
        ManualClock(monotonic_s=1000.0),
        ManualClock(monotonic_s=5.0, wall_ms=1),
        ManualClock(monotonic_s=9e6, wall_ms=3_000_000_000_000),
    ]
    crowd = Crowd(clocks)
    handle = crowd.members[1].submit("TEST", Fails())
    crowd.run(handle.id)
    for first, second, third in (crowd.diary.calls, crowd.diary.undos):
        assert 1.0 <= second - first <= 1.0 + 2 * LOOK_S
        assert 2.0 <= third - second <= 2.0 + 2 * LOOK_S


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
def test_a_wall_clock_that_jumps_neither_uses_tries_up_nor_waits_for_ever(jump_ms: int) -> None:
    """NTP moves it, and an administrator does."""
    clock = ManualClock()
    crowd = Crowd([clock] * 2)
    handle = crowd.members[0].submit("TEST", Fails())
    crowd.members[0].run_pending()
    clock.step_wall(milliseconds=jump_ms)
    crowd.run(handle.id)
    assert crowd.diary.calls == [0.0, 1.0, 3.0]


def test_a_pause_outlives_its_executor() -> None:
    """The next process of the machine waits for what is left of it, another machine for all."""
    clock = ManualClock()
    crowd = Crowd([clock])
    handle = crowd.members[0].submit("TEST", Fails())
    crowd.members[0].run_pending()
    clock.advance(0.75)
    elsewhere = ManualClock(monotonic_s=77.0)
    for its, left_s in ((clock, 0.25), (elsewhere, 1.0)):
        other = Fate(crowd.diary, crowd.fates, {"general": 1}, clock=its)
        assert other.run_pending() == pytest.approx(left_s, abs=0.002)
    assert crowd.diary.calls == [0.0]
    assert crowd.fates.existing(handle.id).failures == 1


# -- the judge -------------------------------------------------------------------------------------


def resting(**changes: Any) -> Operation:
    """Return an operation whose step has failed once, and rests for 2 s."""
    return an_operation(failures=1, rest=rest_of(ManualClock(), 2.0), **changes)


def test_a_rest_is_never_longer_than_its_pause() -> None:
    """Whatever is stored: a clock that went back, or nonsense."""
    late = resting()
    assert late.rest is not None
    rests = Rests(late.rest.boot)
    far = replace(late, rest=replace(late.rest, due_ms=10**12))
    assert rests.due_s(far, now_s=5.0) == 7.0
    assert rests.due_s(far, now_s=6.5) == 7.0, "and does not begin anew with each look"
    assert rests.due_s(late, now_s=1001.0) == 1002.0


def test_each_failure_has_a_rest_of_its_own() -> None:
    """Seen from elsewhere two of them may look alike."""
    rests = Rests("elsewhere")
    first = resting()
    assert rests.due_s(first, now_s=10.0) == 12.0
    again = replace(first, failures=2)
    assert rests.due_s(again, now_s=11.0) == 13.0
    rests.keep([])
    assert rests.due_s(again, now_s=20.0) == 22.0
    assert rests.due_s(replace(again, rest=None), now_s=20.0) == 20.0


def test_what_an_earlier_version_stored_has_no_rest() -> None:
    """Its records are read as they are, in a table and in ZooKeeper."""
    operation = resting(version=1)
    old = replace(operation, rest=None)
    assert not [put for put in insertion(old).puts if put.qualifier == b"rest"]
    assert [put.family for put in difference(old, operation).puts] == [INFO]
    raw = encode(operation)
    stack: list[bytes | None] = [*operation.stack]
    assert operation_of(operation.id, decode(raw, where="x"), 0, stack) == operation
    fields = msgspec.json.decode(raw)
    del fields["rest"]
    record = decode(msgspec.json.encode(fields), where="x")
    assert operation_of(operation.id, record, 0, stack) == old
