"""What a ^C leaves of a compaction, wherever it comes: nothing that the next one waits for."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NoReturn, cast

import pytest

import compactor
from compactor.run import driver, heart, lease
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import StorageUnavailable
from omidpy.fate.store import FateStore
from tests.machines.cells import ALL_AT_ONCE, outcome, troubled
from tests.machines.interrupts.lines import FOLDERS, Interrupt, Interrupter, Line
from tests.machines.workload import DEADLINE_S
from tests.unit.compactor.test_operation import NoLocks, Stage

COMPACTOR: Final = Path(compactor.__file__).parent
OF_THE_LEASE: Final = {driver.__file__, heart.__file__, lease.__file__}


def a_stage() -> Stage:
    """Return a store with all kinds of work, where nobody dies by a lock that goes with him."""
    stage = Stage(NoLocks())
    troubled(stage.world)
    return stage


def unharmed() -> Any:
    """Return what two runs leave that nobody interrupts."""
    stage = a_stage()
    stage.compact(ALL_AT_ONCE)
    stage.compact(ALL_AT_ONCE)
    return outcome(stage.world)


def interrupt_at(interrupter: Interrupter, number: int, expected: Any) -> None:
    """Interrupt a run in a process that goes on, and let another one do it."""
    stage = a_stage()
    with pytest.raises(Interrupt):
        interrupter.interrupt(lambda: stage.compact(ALL_AT_ONCE), number, Interrupt())
    for thread in threading.enumerate():
        if thread.name == "compaction":
            thread.join(5.0)
            assert not thread.is_alive(), interrupter.where

    def sleep(_: float) -> None:
        pytest.fail(f"the next run waits for the one that was interrupted at {interrupter.where}")

    stage.sleep = sleep
    stage.compact(ALL_AT_ONCE)
    stage.compact(ALL_AT_ONCE)
    assert outcome(stage.world) == expected, interrupter.where


def of_the_lease(lines: list[Line]) -> list[int]:
    """Return the numbers of the lines that take the lease, beat, and give both back, each once."""
    first: dict[Line, int] = {}
    for number, line in enumerate(lines, start=1):
        if line.file in OF_THE_LEASE:
            first.setdefault(line, number)
    return sorted(first.values())


def test_no_line_of_the_lease_leaves_it_or_its_heart_behind() -> None:
    """In a notebook the process goes on, and its heart would beat for ever."""
    interrupter = Interrupter((COMPACTOR, *FOLDERS))
    a_stage().compact(ALL_AT_ONCE)
    stage = a_stage()
    numbers = of_the_lease(interrupter.lines(lambda: stage.compact(ALL_AT_ONCE)))
    expected = unharmed()
    assert len(numbers) > 80
    for number in numbers:
        interrupt_at(interrupter, number, expected)


@pytest.mark.parametrize("every", [101, pytest.param(1, id="all", marks=pytest.mark.nightly)])
def test_the_next_run_does_what_an_interrupted_one_has_left(every: int) -> None:
    """At whatever line, of the steps or of what they call."""
    interrupter = Interrupter((COMPACTOR, *FOLDERS))
    a_stage().compact(ALL_AT_ONCE)
    stage = a_stage()
    numbers = interrupter.places(lambda: stage.compact(ALL_AT_ONCE))
    expected = unharmed()
    for number in numbers[::every]:
        interrupt_at(interrupter, number, expected)


class Stumbling:
    """A worker that cannot show its life, for reasons that nobody has thought of."""

    id = "stumbling"

    def __init__(self) -> None:
        self.beats = 0
        self.has_stumbled = threading.Event()
        self.is_retired = False

    def beat(self) -> bool:
        """Fail, each time in another way."""
        self.beats += 1
        if self.beats > 2:
            self.has_stumbled.set()
        raise StorageUnavailable("away") if self.beats % 2 else RuntimeError("a bug")

    def is_trusted(self) -> bool:
        """Say no."""
        return False

    def retire(self) -> None:
        """Take note of it."""
        self.is_retired = True


def test_a_heart_that_stumbles_beats_on_and_ends_with_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The lease is given up when the run is over, and not while it may still prune."""
    worker = Stumbling()
    ended: list[bool] = []
    heart_of_it = heart.Heart(
        cast("FateStore", SimpleNamespace(new_worker=lambda **_: worker)),
        ManualClock(),
        lease_s=0.01,
        at_end=lambda: ended.append(worker.is_retired),
    )

    def work() -> None:
        assert worker.has_stumbled.wait(DEADLINE_S)
        assert ended == []

    heart_of_it.beat_while(work)
    assert ended == [False]
    assert worker.is_retired
    assert "stumbles" in caplog.text


def test_a_lease_that_cannot_be_given_back_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """It runs out by itself; what the run has done is done."""
    worker = Stumbling()

    def refuse() -> NoReturn:
        raise StorageUnavailable("away")

    heart_of_it = heart.Heart(
        cast("FateStore", SimpleNamespace(new_worker=lambda **_: worker)),
        ManualClock(),
        lease_s=1.0,
        at_end=refuse,
    )
    heart_of_it.beat_while(lambda: None)
    assert worker.is_retired
    assert "leaves its lease to run out: away" in caplog.text


def test_a_run_that_cannot_be_registered_says_why() -> None:
    """And does nothing."""

    def refuse(**_: object) -> NoReturn:
        raise StorageUnavailable("nobody at home")

    heart_of_it = heart.Heart(
        cast("FateStore", SimpleNamespace(new_worker=refuse)),
        ManualClock(),
        lease_s=1.0,
        at_end=lambda: pytest.fail("nothing was taken"),
    )
    with pytest.raises(StorageUnavailable, match="nobody at home"):
        heart_of_it.beat_while(lambda: pytest.fail("it works"))
