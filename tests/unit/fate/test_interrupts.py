"""What a ^C leaves of an operation, wherever it comes: a change whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from omidpy.base.timing.clock import ManualClock
from omidpy.fate import Fate, Locks, Operation, Status, TableFateStore
from omidpy.fate.admin import Admin
from omidpy.storage.memory import MemoryStore
from omidpy.testing.fate.basics import an_operation
from tests.machines.fate_crashes.lives import LEASE_S, sweep
from tests.machines.fate_crashes.world import ENDS, Begin, World, end_of
from tests.machines.interrupts.lines import Interrupt, Interrupter

WAIT_S: Final = 100.0
"""Longer than the lease of an administrator who did not wait."""


def one_of(count: int) -> pytest.MarkDecorator:
    """Take one of so many places by day, and all of them at night."""
    night = pytest.param(1, id="all", marks=pytest.mark.nightly)
    return pytest.mark.parametrize("every", [pytest.param(count, id="some"), night])


class Office:
    """An operation, and an administrator of it."""

    def __init__(self) -> None:
        """Begin with an operation that may be cancelled, failed and deleted, and holds a lock."""
        self.clock = ManualClock()
        self.fates = TableFateStore(MemoryStore())
        self.operation = an_operation(status=Status.SUBMITTED)
        self.fates.insert(self.operation)
        Locks(self.fates).write("t", self.operation.id)

    def ask(self, verb: str, *, wait_s: float = 0) -> None:
        """Have something done."""
        admin = Admin(self.fates, wait_s=wait_s, clock=self.clock, sleep=self.clock.advance)
        getattr(admin, verb)(self.operation.id)

    def left(self) -> Operation | None:
        """Return the operation as if nobody had touched it who has not changed it."""
        found = self.fates.read(self.operation.id)
        if found is None:
            return None
        before = self.operation
        return replace(
            found,
            reservation=before.reservation,
            version=before.version,
            write_id=before.write_id,
        )


@one_of(7)
@pytest.mark.parametrize("verb", ["cancel", "fail", "delete"])
def test_what_an_administrator_changes_is_changed_whole_or_not_at_all(
    verb: str, every: int
) -> None:
    """And when he asks again it is done, by him or by the first time."""
    interrupter = Interrupter()
    Office().ask(verb)  # what a process does once is no place, as the look at a type is
    spared = Office()
    places = interrupter.places(lambda: spared.ask(verb))
    done = spared.left()
    assert done != spared.operation
    for number in places[::every]:
        office = Office()
        with pytest.raises(Interrupt):
            interrupter.interrupt(partial(office.ask, verb), number, Interrupt())
        left = office.left()
        if left is not None and left.status is Status.FAILED_IN_PROGRESS:
            assert done is not None
            assert replace(left, id=done.id) == done
        else:
            assert left is None or left == office.operation, interrupter.where
        office.ask(verb, wait_s=WAIT_S)
        left = office.left()
        assert (left is None) == (done is None), interrupter.where
        assert left is None or left.status is Status.FAILED_IN_PROGRESS, interrupter.where


@one_of(29)
@pytest.mark.parametrize("ends_well", [True, False])
def test_an_executor_goes_on_after_an_interrupt(
    tmp_path: Path,
    ends_well: bool,  # noqa: FBT001 - a case
    every: int,
) -> None:
    """In the thread of a script, where it is `run_pending` that is interrupted."""
    interrupter = Interrupter()

    def begun(name: str) -> tuple[Callable[[], None], Callable[[], None]]:
        folder, clock = tmp_path / name, ManualClock()
        folder.mkdir()
        fates = TableFateStore(MemoryStore())
        env = World(folder, Locks(fates))
        fate = Fate(env, fates, {"general": 1}, lease_s=LEASE_S, poll_s=0.05, clock=clock)
        handle = fate.submit("WORK", Begin(ends_well))

        def run() -> None:
            for _ in range(50):
                if fates.existing(handle.id).is_finished:
                    return
                clock.advance(fate.run_pending() or LEASE_S / 8)
            raise AssertionError(f"it does not end: {fates.existing(handle.id)}")

        def check() -> None:
            fate.close()
            sweep(fates, clock)
            assert end_of(folder, fates) == ENDS[ends_well], interrupter.where

        return run, check

    for spared in ("first", "second"):  # what the first one fills are caches
        run, check = begun(spared)
        places = interrupter.places(run)
        check()
    for number in places[::every]:
        run, check = begun(f"{number}")
        with pytest.raises(Interrupt):
            interrupter.interrupt(run, number, Interrupt())
        run()
        check()
