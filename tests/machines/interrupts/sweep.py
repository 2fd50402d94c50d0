"""Interrupt every public call at every line that it reaches, and look whether everything goes on.

    world = World(lambda: omidpy.connect(url))
    for name in CALLS:
        sweep(world, name)

After each interrupt

* nothing hangs, in the thread that was interrupted or in another
* what was acknowledged is seen by `row` and by `scan`
* the interrupted transaction is whole or absent, and `tm.outcome` says which; one that still runs
  can be rolled back, and with `insists` committed: then each write of it is whole or absent
* the same manager begins, reads, writes and commits on, and so does whoever else uses the store

and the first that does not hold is raised as `Harm`, with the line.  A world is opened once for all
interrupts of a call; `sweep_open` and `sweep_close` interrupt opening and closing it.
"""

from __future__ import annotations

import faulthandler
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from omidpy.manager import TransactionManager
from tests.machines.interrupts.calls import CALLS, TABLE, Harm, Round
from tests.machines.interrupts.lines import Interrupt, Interrupter, Line, Place

DEADLINE_S: Final = 60.0
"""What takes longer hangs."""


@dataclass(frozen=True)
class World:
    """What is interrupted."""

    open: Callable[[], TransactionManager]
    """Opens the store, again and again once the last manager is closed."""
    write_elsewhere: Callable[[], object] = lambda: None
    """Writes to the same store as another process does, or fails."""
    deadline_s: float = DEADLINE_S
    """How long anything may take."""

    def opened(self) -> TransactionManager:
        """Open the store, and make the table if there is none."""
        tm = self.open()
        if TABLE not in tm.tables():
            tm.create_table(TABLE, families=["f"])
        return tm


@dataclass(frozen=True)
class Choice:
    """Which lines are interrupted, and by what."""

    every: bool = False
    """Each line as often as it is reached, in place of once in each of its places."""
    known: set[Place] | None = None
    """Places of other sweeps, which are left out; those of this one are added."""
    some: Callable[[list[int]], list[int]] = lambda numbers: numbers
    """Picks some of them by their numbers."""
    error: Callable[[], BaseException] = Interrupt
    """Makes what is raised."""
    interrupter: Interrupter = field(default_factory=Interrupter)
    """What counts as a line."""

    def numbers(self, call: Callable[[], object]) -> list[int]:
        """Make a call; return the numbers of the lines to interrupt."""
        if self.every:
            return self.some(list(range(1, 1 + len(self.interrupter.lines(call)))))
        return self.some(self.interrupter.places(call, self.known))

    def interrupt(self, call: Callable[[], object], number: int) -> Line | None:
        """Make a call that is interrupted; return where, None if it reached fewer lines."""
        placed = self.error()
        try:
            self.interrupter.interrupt(call, number, placed)
        except BaseException as raised:
            if not _stems_from(raised, placed):
                raise
        return self.interrupter.where


def _stems_from(raised: BaseException | None, placed: BaseException) -> bool:
    """Say whether an error is the one that was placed, or was raised because of it."""
    while raised is not None and raised is not placed:
        raised = raised.__cause__ or raised.__context__
    return raised is not None


@dataclass
class Report:
    """What a sweep did."""

    count: int = 0
    """How many interrupts were placed."""
    lines: set[Line] = field(default_factory=set)
    """Where."""

    def add(self, line: Line) -> None:
        """Count an interrupt."""
        self.count += 1
        self.lines.add(line)


class _Helper:
    """A thread that does one thing after another, each watched."""

    def __init__(self, name: str, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._ends: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def do(self, job: Callable[[], object], doing: str) -> None:
        """Do something; raises `Harm` if it fails or hangs."""
        self._jobs.put(job)
        try:
            error = self._ends.get(timeout=self._deadline_s)
        except queue.Empty:
            faulthandler.dump_traceback(all_threads=True)
            raise Harm(f"{doing}: hangs") from None
        if error is not None:
            what = error if isinstance(error, Harm) else repr(error)
            raise Harm(f"{doing}: {what}") from error

    def end(self) -> None:
        """End the thread."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                self._ends.put(error)
            else:
                self._ends.put(None)


@contextmanager
def _helpers(world: World) -> Iterator[tuple[_Helper, _Helper]]:
    caller = _Helper("interrupted", world.deadline_s)
    bystander = _Helper("bystander", world.deadline_s)
    try:
        yield caller, bystander
    finally:
        caller.end()
        bystander.end()


def sweep(
    world: World, name: str, choice: Choice | None = None, *, insists: bool = False
) -> Report:
    """Interrupt a call at its lines, one after another, and look after each.

    Args:
        world: Opened once, for all of them.
        name: Of the call, in `CALLS`.
        choice: Which lines, and by what; each place once, if None.
        insists: Commit what was interrupted and is still running, in place of rolling it back.

    Raises:
        Harm: something did not hold.
    """
    chosen = choice or Choice()
    report = Report()
    doing = f"{name}, before the first interrupt"
    with _helpers(world) as (caller, bystander):
        tm = world.opened()
        numbers: list[int] = []

        def find() -> None:
            one = Round(tm)
            one.prepare()
            numbers.extend(chosen.numbers(CALLS[name](one)))
            one.end(insists=insists)

        caller.do(find, doing)
        for number in numbers:
            one = Round(tm)

            def interrupt(one: Round = one, number: int = number) -> None:
                one.prepare()
                chosen.interrupt(CALLS[name](one), number)

            def look(one: Round = one) -> None:
                one.end(insists=insists)
                one.look()
                one.count()

            def look_elsewhere(one: Round = one) -> None:
                one.count()
                one.look()
                world.write_elsewhere()

            caller.do(interrupt, doing)
            if (line := chosen.interrupter.where) is None:
                break  # the first round reached more lines
            report.add(line)
            doing = f"{name}, interrupted at {line} (number {number})"
            caller.do(look, doing)
            bystander.do(look_elsewhere, doing)
            caller.do(one.look, doing)
        caller.do(tm.close, doing)
    return report


def sweep_open(world: World, choice: Choice | None = None) -> Report:
    """Interrupt the opening of a world, which then can be opened.

    Raises:
        Harm: something did not hold.
    """
    chosen = choice or Choice()
    report = Report()
    doing = "open, before the first interrupt"
    with _helpers(world) as (caller, _):
        numbers: list[int] = []
        opened: list[TransactionManager] = []

        def open_and_close() -> None:
            opened.append(world.open())

        def use() -> None:
            while opened:  # what was swallowed let it come to its end
                opened.pop().close()
            tm = world.opened()
            one = Round(tm)
            one.prepare()
            one.look()
            tm.close()

        caller.do(use, doing)
        caller.do(lambda: numbers.extend(chosen.numbers(open_and_close)), doing)
        caller.do(use, doing)
        for number in numbers:
            caller.do(lambda number=number: chosen.interrupt(open_and_close, number), doing)  # type: ignore[misc]  # a bound default
            if (line := chosen.interrupter.where) is None:
                break
            report.add(line)
            doing = f"open, interrupted at {line} (number {number})"
            caller.do(use, doing)
    return report


def sweep_close(world: World, choice: Choice | None = None) -> Report:
    """Interrupt the closing of a world, which then can be closed, and opened again.

    Raises:
        Harm: something did not hold.
    """
    chosen = choice or Choice()
    report = Report()
    doing = "close, before the first interrupt"
    with _helpers(world) as (caller, _):
        numbers: list[int] = []

        def used() -> TransactionManager:
            tm = world.opened()
            one = Round(tm)
            one.prepare()
            one.count()
            return tm

        def interrupt(number: int) -> None:
            tm = used()
            chosen.interrupt(tm.close, number)
            tm.close()

        caller.do(lambda: numbers.extend(chosen.numbers(used().close)), doing)
        for number in numbers:
            caller.do(lambda number=number: interrupt(number), doing)  # type: ignore[misc]  # a bound default
            if (line := chosen.interrupter.where) is None:
                break
            report.add(line)
            doing = f"close, interrupted at {line} (number {number})"
            caller.do(lambda: used().close(), doing)
    return report
