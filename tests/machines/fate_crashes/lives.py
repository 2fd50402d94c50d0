"""An executor's life: it submits an operation, runs it to its end, sweeps and goes; unless it dies.

What it does to the world that others see is a list of writes to its store.  A `Moment` is one of
them, and what becomes of it: it ends before it or after it; or lives on and is told that nobody
answered, whether it was done, is not done, or is still on its way and arrives when all is over.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from omidpy.base.timing.clock import Clock, ManualClock, SystemClock
from omidpy.errors import StorageUnavailable
from omidpy.fate.client import Fate
from omidpy.fate.locks import Locks
from omidpy.fate.operation import RUNNABLE, Operation, Status
from omidpy.fate.running.sweep import Keep, Sweeper
from omidpy.fate.store import FateStore
from omidpy.fate.table.store import TableFateStore
from omidpy.fate.zookeeper.store import ZooKeeperFateStore
from omidpy.storage.base import Store
from omidpy.testing.faults import FaultyStore, Point, kill
from tests.machines.fate_crashes.world import Begin, World
from tests.machines.forks import PROCESSES

WRITES: Final = ("write", "write_guarded", "check_and_mutate", "create_table")
ZOOKEEPER_WRITES: Final = ("change", "create", "make")
LEASE_S: Final = 0.4
KILLED: Final = -9
LONGEST_S: Final = 120.0
KEEP: Final = Keep(new_s=0)
"""What was created in vain goes at once; outcomes stay."""


class Killed(BaseException):
    """Ends a life in this process."""


class Ending(StrEnum):
    """What happens at a write."""

    DIES_BEFORE = "dies before it"
    DIES_AFTER = "dies after it"
    LOST = "it is done, and nobody answers"
    FAILED = "it is not done, and nobody answers"
    HELD_UP = "it arrives when all is over, and nobody answers"


DEATHS: Final = (Ending.DIES_BEFORE, Ending.DIES_AFTER)


@dataclass(frozen=True)
class Moment:
    """At the write of this number, from 1."""

    number: int
    ending: Ending


@dataclass
class Fates:
    """Counts writes, and lets one life end at its moment."""

    moment: Moment | None
    die: Callable[[], object]
    check: Callable[[], object] = lambda: None
    """Called after each write."""
    count: int = 0
    is_dead: bool = False
    late: list[Callable[[], object]] = field(default_factory=list)

    def around(self, work: Callable[[], Any]) -> Any:
        """Make a write, if there is time."""
        self.check_alive()
        self.count += 1
        ending = None
        if self.moment is not None and self.moment.number == self.count:
            ending = self.moment.ending
        if ending is Ending.DIES_BEFORE:
            self._end()
        if ending is Ending.HELD_UP:
            self.late.append(work)
        if ending in (Ending.HELD_UP, Ending.FAILED):
            raise StorageUnavailable("nobody answers")
        answer = work()
        self.check()
        if ending is Ending.DIES_AFTER:
            self._end()
        if ending is Ending.LOST:
            raise StorageUnavailable("nobody answers")
        return answer

    def check_alive(self) -> None:
        """Let the dead do nothing."""
        if self.is_dead:
            raise Killed

    def _end(self) -> None:
        self.is_dead = True
        self.die()


class MortalStore(FaultyStore):
    """A store whose writes are those of a life."""

    def __init__(self, store: Store, fates: Fates) -> None:
        super().__init__(store, self._check)
        self._fates = fates

    def _check(self, point: Point) -> None:
        self._fates.check_alive()

    def _call(self, name: str, work: Any, **about: Any) -> Any:
        if name not in WRITES:
            return super()._call(name, work, **about)
        return self._fates.around(work)


def mortal(fates: FateStore, life: Fates) -> FateStore:
    """Return a store of operations whose writes are those of a life."""
    if isinstance(fates, TableFateStore):
        return TableFateStore(MortalStore(fates._store, life), fates._table)
    assert isinstance(fates, ZooKeeperFateStore)
    for name in ZOOKEEPER_WRITES:
        setattr(fates._session, name, _counted(getattr(fates._session, name), life))
    return fates


def _counted(work: Callable[..., Any], life: Fates) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        return life.around(lambda: work(*args, **more))

    return call


@dataclass(frozen=True)
class Task:
    """A life to live: in which folder, to which end."""

    folder: Path
    ends_well: bool
    lease_s: float = LEASE_S
    """Long where the dead are found otherwise: each sign of life is one write more."""


def live(task: Task, fates: FateStore, clock: Clock) -> None:
    """Submit the operation unless it was, run everything to its end, sweep, and go."""
    env = World(task.folder, Locks(fates))
    fate = Fate(env, fates, {"general": 1}, lease_s=task.lease_s, poll_s=0.05, clock=clock)
    found = [one for one in fates.scan() if isinstance(one, Operation)]
    if all(one.status is Status.NEW for one in found):
        fate.submit("WORK", Begin(task.ends_well), key="work")
    deadline_s = clock.monotonic_s() + LONGEST_S
    while any(one.status in RUNNABLE for one in fates.scan() if isinstance(one, Operation)):
        try:
            due_s = fate.run_pending()
        except StorageUnavailable:
            due_s = 0.0  # whoever drives it tries again, as its threads do
        pause_s = LEASE_S / 8 if due_s is None else min(due_s, LEASE_S / 8)
        if isinstance(clock, ManualClock):
            clock.advance(pause_s)
        else:
            time.sleep(pause_s)
        assert clock.monotonic_s() < deadline_s, list(fates.scan())
    fate.close()
    sweeper = Sweeper(fates, fates.new_judge(clock), clock, KEEP)
    try:
        sweeper.sweep()
    except StorageUnavailable:
        sweeper.sweep()  # as a minute later


def sweep(fates: FateStore, clock: Clock) -> None:
    """Sweep until the dead are seen to be dead."""
    judge = fates.new_judge(clock)
    sweeper = Sweeper(fates, judge, clock, KEEP)
    for _ in range(400):
        sweeper.sweep()
        if not fates.worker_names():
            return
        if isinstance(clock, ManualClock):
            clock.advance(LEASE_S / 8)
        else:
            time.sleep(LEASE_S / 8)


# -- lives that really end -------------------------------------------------------------------------


def live_and_die(task: Task, opened: Callable[[], FateStore], moment: Moment | None) -> int:
    """Live in another process, which is killed at its moment or else at the end.

    Returns:
        How many writes there were, if it lived to the end.
    """
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(
        target=_in_a_process, args=(task, opened, moment, theirs), daemon=True
    )
    process.start()
    theirs.close()
    told: object = 0
    try:
        while ours.poll(LONGEST_S):
            told = ours.recv()
    except EOFError:
        pass
    process.join(LONGEST_S)
    code = process.exitcode
    if code is None:
        process.kill()
    process.join()
    process.close()
    ours.close()
    assert not isinstance(told, str), f"{task} {moment}\n{told}"
    assert code == KILLED, f"{task} {moment} ended with {code}"
    assert isinstance(told, int)
    return told


def _in_a_process(
    task: Task, opened: Callable[[], FateStore], moment: Moment | None, report: Connection
) -> None:
    try:
        life = Fates(moment, kill)
        live(task, mortal(opened(), life), SystemClock())
        report.send(life.count)
    except BaseException:
        report.send(traceback.format_exc())
        raise
    kill()


def moments(count: int, endings: Sequence[Ending], *, every: int = 1) -> list[Moment]:
    """Return the moments of a life with so many writes, or a sample of them."""
    found = [Moment(number, ending) for number in range(1, count + 1) for ending in endings]
    return found[::every]
