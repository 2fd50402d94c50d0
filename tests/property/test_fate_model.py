"""Clients, executors and an administrator do what they like; a small model says what is true then.

The model knows a status for each operation, whether a dead executor holds it, and how far each was
called and undone.  Whatever was done, the store says the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from omidpy.base.timing.clock import ManualClock
from omidpy.fate import Done, Fate, Keep, Operation, OperationHandle, Status, Step, step
from omidpy.fate.admin import Admin, Outcome
from omidpy.fate.operation import CANCELLABLE, FINISHED, FateId
from omidpy.fate.running.sweep import Sweeper
from omidpy.fate.step import Answer, StepContext
from omidpy.fate.table.store import TableFateStore
from omidpy.storage.memory import MemoryStore

LEASE_S = 8.0
KEEP = Keep(auto_clean_s=100, finished_s=1000, new_s=1000)


@step(version=1, namespace="test-model")
class Count(Step):
    """Counts itself down, and fails at the end if it is meant to."""

    left: int
    fails: bool

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Count."""
        env.called[tx.id] += 1
        if self.left:
            return Count(self.left - 1, self.fails)
        if self.fails:
            raise ValueError("meant to")
        return Done(tx.id)

    def undo(self, tx: StepContext, env: Any) -> None:
        """Count."""
        env.undone[tx.id] += 1


@dataclass
class Known:
    """What the model knows of one operation."""

    steps: int
    fails: bool
    key: int | None
    auto_clean: bool
    status: Status
    is_held: bool = False
    has_begun: bool = False
    created_s: float = 0.0
    finished_s: float = 0.0

    @property
    def called(self) -> int:
        """How many steps were called."""
        return self.steps if self.has_begun else 0

    @property
    def undone(self) -> int:
        """How many were undone."""
        if self.status is not Status.FAILED:
            return 0
        return self.steps if self.has_begun else 1

    def run(self, now_s: float) -> None:
        """End, as an executor that has time lets it."""
        if self.status in (Status.SUBMITTED, Status.IN_PROGRESS):
            self.has_begun = True
            self.status = Status.FAILED if self.fails else Status.SUCCESSFUL
            self.finished_s = now_s
        elif self.status is Status.FAILED_IN_PROGRESS:
            self.status, self.finished_s = Status.FAILED, now_s


@dataclass
class World:
    """What steps do."""

    called: Counter[str] = field(default_factory=Counter)
    undone: Counter[str] = field(default_factory=Counter)


class Fates(RuleBasedStateMachine):
    """Rules are what one may do."""

    made: Bundle[OperationHandle] = Bundle("made")

    def __init__(self) -> None:
        """Begin with nothing, and two executors."""
        super().__init__()
        self.clock, self.world = ManualClock(), World()
        self.fates = TableFateStore(MemoryStore())
        self.executors = [
            Fate(self.world, self.fates, {"general": 1}, lease_s=LEASE_S, clock=self.clock)
            for _ in range(2)
        ]
        self.known: dict[FateId, Known] = {}

    @property
    def now_s(self) -> float:
        """What the clock shows."""
        return self.clock.wall_ms() / 1000

    # -- clients -------------------------------------------------------------------------------

    @rule(
        target=made,
        steps=st.integers(1, 3),
        fails=st.booleans(),
        key=st.none() | st.integers(1, 2),
        auto_clean=st.booleans(),
        is_seeded=st.booleans(),
    )
    def submit(
        self,
        steps: int,
        fails: bool,  # noqa: FBT001 - drawn
        key: int | None,
        auto_clean: bool,  # noqa: FBT001 - drawn
        is_seeded: bool,  # noqa: FBT001 - drawn
    ) -> OperationHandle:
        """Submit an operation, or only create it."""
        fate = self.executors[0]
        call = fate.submit if is_seeded else fate.create
        live = [
            one
            for one, known in self.known.items()
            if key is not None and known.key == key and known.status not in FINISHED
        ]
        handle = call("TEST", Count(steps - 1, fails), key=key, auto_clean=auto_clean)
        assert not live or handle.id == live[0]
        new = Known(steps, fails, key, auto_clean, Status.NEW, created_s=self.now_s)
        known = self.known.setdefault(handle.id, new)
        if is_seeded and known.status is Status.NEW:
            known.status = Status.SUBMITTED
        return handle

    @rule(handle=made)
    def seed(self, handle: OperationHandle) -> None:
        """Seed one that was created only."""
        known = self.known.get(handle.id)
        if known is None:
            with pytest.raises(Exception, match="no operation"):
                handle.seed()
            return
        handle.seed()
        if known.status is Status.NEW:
            known.status = Status.SUBMITTED

    @rule(handle=made)
    def cancel(self, handle: OperationHandle) -> None:
        """Cancel one; a reservation is no hindrance."""
        known = self.known.get(handle.id)
        can = known is not None and known.status in CANCELLABLE
        assert handle.cancel() == can
        if known is not None and can:
            known.status, known.is_held = Status.FAILED_IN_PROGRESS, False

    @rule(handle=made)
    def forget(self, handle: OperationHandle) -> None:
        """Delete what is finished, or was never seeded."""
        known = self.known.get(handle.id)
        can = known is not None and known.status in FINISHED | {Status.NEW}
        assert handle.delete() == can
        if can:
            del self.known[handle.id]

    # -- executors -----------------------------------------------------------------------------

    @rule(number=st.integers(0, 1))
    def run(self, number: int) -> None:
        """Let an executor run what it can."""
        self.executors[number].run_pending()
        for known in self.known.values():
            if not known.is_held:
                known.run(self.now_s)

    @rule(handle=made)
    def die_with(self, handle: OperationHandle) -> None:
        """Let an executor die that has just reserved one."""
        known, found = self.known.get(handle.id), handle.read()
        if known is None or found is None or known.status in FINISHED | {Status.NEW}:
            return
        worker = self.fates.new_worker(lease_s=LEASE_S, clock=self.clock)
        held = self.fates.try_reserve(found, worker)
        assert (held is None) == known.is_held
        known.is_held = True

    @rule(number=st.integers(0, 1))
    def outlive(self, number: int) -> None:
        """Let a lease pass in which an executor looks."""
        self.run(number)
        for _ in range(6):
            self.clock.advance(LEASE_S / 5)
            self.executors[number].run_pending()
        for one, known in self.known.items():
            if known.is_held:
                ended_ms = self.fates.existing(one).finished_ms  # somewhere in between
                assert ended_ms is not None
                known.is_held = False
                known.run(ended_ms / 1000)

    @rule(seconds=st.sampled_from([90, 300, 1100]))
    def sweep(self, seconds: int) -> None:
        """Let time pass, and sweep."""
        self.clock.advance(seconds)
        Sweeper(self.fates, self.fates.new_judge(self.clock), self.clock, KEEP).sweep()
        for one, known in list(self.known.items()):
            kept_s = KEEP.auto_clean_s if known.auto_clean else KEEP.finished_s
            is_old = known.status in FINISHED and self.now_s - known.finished_s > kept_s
            is_stale = known.status is Status.NEW and self.now_s - known.created_s > KEEP.new_s
            if is_old or is_stale:
                del self.known[one]

    # -- an administrator ----------------------------------------------------------------------

    def admin(self) -> Admin:
        """Return one that does not wait."""
        return Admin(self.fates, wait_s=0, clock=self.clock, sleep=self.clock.advance)

    @rule(handle=made)
    def fail(self, handle: OperationHandle) -> None:
        """Fail one."""
        known = self.known.get(handle.id)
        told = self.admin().fail(handle.id).outcome
        goes = (Status.NEW, Status.SUBMITTED, Status.IN_PROGRESS)
        if known is None or known.status not in goes:
            assert told is Outcome.REFUSED
        elif known.is_held:
            assert told is Outcome.RESERVED
        else:
            assert told is Outcome.DONE
            known.status = Status.FAILED_IN_PROGRESS

    @rule(handle=consumes(made))
    def delete(self, handle: OperationHandle) -> None:
        """Delete one, whatever it is doing."""
        known = self.known.get(handle.id)
        told = self.admin().delete(handle.id).outcome
        if known is None:
            assert told is Outcome.REFUSED
        elif known.is_held:
            assert told is Outcome.RESERVED
        else:
            assert told is Outcome.DONE
            del self.known[handle.id]

    # -- what is true --------------------------------------------------------------------------

    @invariant()
    def the_store_says_the_same(self) -> None:
        """Each operation, its status, and who holds it; and no other one."""
        found = {one.id: one for one in self.fates.scan() if isinstance(one, Operation)}
        assert {one: operation.status for one, operation in found.items()} == {
            one: known.status for one, known in self.known.items()
        }
        for one, known in self.known.items():
            assert (found[one].reservation is not None) == known.is_held
            assert bool(found[one].stack) == (known.status not in FINISHED)

    @invariant()
    def each_step_was_called_once(self) -> None:
        """And undone once, if the operation failed; nothing else was."""
        for one, known in self.known.items():
            assert self.world.called[one] == known.called
            assert self.world.undone[one] == known.undone


TestFates = Fates.TestCase
TestFates.settings = settings(stateful_step_count=25)
