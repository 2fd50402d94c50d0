"""Lives on a store in memory, with a clock turned by hand: every moment takes milliseconds."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from omidpy.base.timing.clock import ManualClock
from omidpy.errors import OmidError
from omidpy.fate.table.store import TableFateStore
from omidpy.storage.memory import MemoryStore
from tests.machines.fate_crashes.lives import (
    DEATHS,
    Ending,
    Fates,
    Killed,
    Moment,
    Task,
    live,
    moments,
    mortal,
    sweep,
)
from tests.machines.fate_crashes.world import ENDS, check_sound, end_of

LEAST_WRITES = 15
"""A life with fewer does not do all that it should."""


class Simulation:
    """Lives on one store, one after the other."""

    def __init__(self, folder: Path, *, ends_well: bool) -> None:
        """Begin with nothing."""
        folder.mkdir(parents=True)
        self.task = Task(folder, ends_well)
        self.store = MemoryStore()
        self.clock = ManualClock()

    def live(self, moment: Moment | None) -> Fates:
        """Live until a moment, or to the end."""

        def die() -> None:
            raise Killed

        life = Fates(moment, die, lambda: check_sound(TableFateStore(self.store)))
        with suppress(Killed):
            live(self.task, mortal(TableFateStore(self.store), life), self.clock)
        return life

    def check_end(self) -> None:
        """Let a fresh executor finish; what is left is what it should be."""
        fates = TableFateStore(self.store)
        live(self.task, fates, self.clock)
        sweep(fates, self.clock)
        assert end_of(self.task.folder, fates) == ENDS[self.task.ends_well]


def count_writes(folder: Path, *, ends_well: bool) -> int:
    """Return how many writes a life has that is spared."""
    spared = Simulation(folder / "spared", ends_well=ends_well)
    count = spared.live(None).count
    spared.check_end()
    assert count > LEAST_WRITES
    return count


def check_deaths(folder: Path, *, ends_well: bool) -> None:
    """Die before and after every write."""
    count = count_writes(folder, ends_well=ends_well)
    for moment in moments(count, DEATHS):
        simulation = Simulation(folder / f"{moment}", ends_well=ends_well)
        assert simulation.live(moment).is_dead
        simulation.check_end()


def check_deaths_of_two(folder: Path, *, ends_well: bool) -> None:
    """Die, and die again."""
    count = count_writes(folder, ends_well=ends_well)
    for first in moments(count, DEATHS, every=5):
        for second in moments(count, DEATHS, every=7):
            simulation = Simulation(folder / f"{first} {second}", ends_well=ends_well)
            simulation.live(first)
            simulation.live(second)
            simulation.check_end()


def check_lost_answers(folder: Path, ending: Ending, *, ends_well: bool) -> None:
    """Get no answer to each write, and go on; let what was held up arrive in the end."""
    count = count_writes(folder, ends_well=ends_well)
    for moment in moments(count, [ending]):
        simulation = Simulation(folder / f"{moment}", ends_well=ends_well)
        life = simulation.live(moment)
        simulation.check_end()
        for arrive in life.late:
            with suppress(OmidError):
                arrive()
        simulation.check_end()
