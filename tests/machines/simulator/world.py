"""What happens next?  Virtual time, sources of chance, and programs that take strict turns.

Everything that happens is an event in one queue: its moment, the process that it concerns, and
what to do.  A process that is paused gets its events late, and one that is dead gets none.  Code
that blocks runs as a `Program`: a thread that goes on when its event comes, and hands the turn back
where it would wait.  One thread runs at any time, and time stands still while it does, so that a
run depends on nothing but its seed.

Each process, and whatever else draws something, has dice of its own, which follow from the seed and
from what they are for: one more actor, or one more draw, leaves what the others draw as it is.

Lacks any idea of what the processes do.
"""

from __future__ import annotations

import hashlib
import heapq
import os
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final
from unittest import mock

DEADLINE_S: Final = 60.0
"""Real seconds after which a program that does not hand its turn back is stuck."""

LAST_EVENTS: Final = 60


_STATUS: Final = Path("/proc/thread-self/stat")
_CORE_AT: Final = 36
"""The place of the core on which a thread runs, behind the `)` of its name; see proc(5)."""


class Crashed(BaseException):
    """The process of a program died at this very line."""


class SimClock:
    """The clocks of one host: both go with virtual time, and the date may be set."""

    def __init__(self, world: World, name: str, *, ahead_ms: int) -> None:
        self._world = world
        self.boot = name
        self.ahead_ms = ahead_ms
        """How far the date is ahead."""
        self.slept_s = 0.0
        """How long its host was suspended: `monotonic_s` counts that as the product asks for it."""

    def wall_ms(self) -> int:
        """Return the date in milliseconds."""
        return 1_700_000_000_000 + round(self._world.now_s * 1000) + self.ahead_ms

    def monotonic_s(self) -> float:
        """Return the seconds since the simulation began, and some."""
        return 1000.0 + self._world.now_s


class Process:
    """What crashes and is paused as a whole."""

    def __init__(self, world: World, name: str, clock: SimClock, number: int) -> None:
        self.name = name
        self.number = number
        """How many of its name there were before."""
        self.clock = clock
        self.is_dead = False
        self.paused_until_s = 0.0
        self.at_its_end: list[Callable[[], None]] = []
        """What the operating system does for a process that is gone."""
        self._world = world
        self._programs: list[Program] = []

    def pause(self, seconds: float) -> None:
        """Let it stand still for so long at least.

        One that stands still for longer already goes on no sooner: what waits for that would come
        behind what comes later.
        """
        self.paused_until_s = max(self.paused_until_s, self._world.now_s + seconds)

    def dice(self, purpose: str) -> random.Random:
        """Return what decides one thing about this process, and about no other one."""
        return self._world.dice(purpose, self.name, self.number)

    def start(self, function: Callable[[], object]) -> Program:
        """Run a function from the next event on."""
        program = Program(self._world, self, function)
        self._programs.append(program)
        return program

    def crash(self) -> None:
        """End it at once.  Must not be called by a program of its own."""
        if not self.is_dead:
            self.is_dead = True
            self._world.note(f"{self.name} ends")
            for program in self._programs:
                program.go_on()
            for act in self.at_its_end:
                act()


class Program:
    """A function of a process, in a thread that runs when it has the turn."""

    def __init__(self, world: World, process: Process, function: Callable[[], object]) -> None:
        self._world = world
        self.process = process
        self._function = function
        self._turn = threading.Lock()
        self._turn.acquire()
        self._waits = 0
        """Counts what it waited for, so that nothing wakes it twice."""
        self._can_be_woken = False
        self.is_over = False
        self._thread = threading.Thread(target=self._run, name=process.name, daemon=True)
        self._thread.start()
        world.at(0, process, self.go_on)

    def _run(self) -> None:
        self._turn.acquire()
        try:
            self.check_alive()
            self._function()
        except Crashed:
            pass
        except BaseException as error:  # noqa: BLE001 - the world ends with it
            self._world.error = self._world.error or error
        self.is_over = True
        self._world.turn.release()

    def __str__(self) -> str:
        """Name whose it is."""
        return self.process.name

    def is_here(self) -> bool:
        """Say whether it is what asks."""
        return threading.current_thread() is self._thread

    def go_on(self) -> None:
        """Give it the turn until it waits; called by the world alone."""
        if self.is_over:
            return
        self._world.running = self
        self._turn.release()
        assert self._world.turn.acquire(timeout=DEADLINE_S), f"{self._thread.name} is stuck"
        self._world.running = None
        if self.is_over:
            self._thread.join()

    def wait(self, seconds: float) -> None:
        """Hand the turn back until `wake`, or until so many seconds have passed."""
        self._can_be_woken = True
        self.sleep(seconds)
        self._can_be_woken = False

    def sleep(self, seconds: float) -> None:
        """Hand the turn back until so many seconds have passed."""
        assert self._world.running is self, "a program waits for itself alone"
        self.check_alive()
        self._waits += 1
        number = self._waits

        def time_is_up() -> None:
            if self._waits == number:
                self._waits += 1
                self.go_on()

        self._world.at(seconds, self.process, time_is_up)
        self._world.turn.release()
        self._turn.acquire()
        self.check_alive()

    def wake(self, after_s: float = 0.0) -> None:
        """Let it go on, now or a little later, if it is in `wait`."""
        number = self._waits

        def go_on() -> None:
            if self._can_be_woken and self._waits == number:
                self._waits += 1
                self.go_on()

        self._world.at(after_s, self.process, go_on)

    def check_alive(self) -> None:
        """Go no further in a process that has died.

        Raises:
            Crashed: it has.
        """
        if self.process.is_dead:
            raise Crashed


class World:
    """The queue of events, the time, all dice and the record of what happened."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_s = 0.0
        self.error: BaseException | None = None
        """Why it cannot go on: an exception that nobody foresaw."""
        self.running: Program | None = None
        self.turn = threading.Lock()
        """Released by a program that hands the turn back."""
        self.turn.acquire()
        self.counts: Counter[str] = Counter()
        self.hands: dict[tuple[str, Hashable], list[Process]] = {}
        """Through whose hands things have gone, by what was done with them (`handled`)."""
        self.last_events: deque[str] = deque(maxlen=LAST_EVENTS)
        self.story: list[str] | None = None
        """Everything that was noted, if somebody wants to know."""
        self.processes: list[Process] = []
        self._dice: dict[tuple[object, ...], random.Random] = {}
        self._incarnations: Counter[str] = Counter()
        self._digest = hashlib.sha256()
        self._queue: list[tuple[float, float, int, Process | None, Callable[[], None]]] = []
        """When something happens, when it would have but for pauses, and which number it has."""
        self._numbers = count()

    @property
    def program(self) -> Program:
        """The program that has the turn: the one that asks."""
        assert self.running is not None, "a program asks"
        return self.running

    def dice(self, *purpose: object) -> random.Random:
        """Return the dice for one purpose: the same whenever they are asked for."""
        if (dice := self._dice.get(purpose)) is None:
            text = " ".join(str(one) for one in purpose)
            dice = self._dice[purpose] = random.Random(f"{text} of {self.seed}")
        return dice

    def process(self, name: str, clock: SimClock) -> Process:
        """Begin a process, in which nothing runs yet."""
        process = Process(self, name, clock, self._incarnations[name])
        self._incarnations[name] += 1
        self.processes.append(process)
        return process

    def at(self, delay_s: float, process: Process | None, act: Callable[[], None]) -> None:
        """Let something happen after a delay, to a process or to none."""
        at_s = self.now_s + delay_s
        heapq.heappush(self._queue, (at_s, at_s, next(self._numbers), process, act))

    def handled(self, deed: str, thing: Hashable, by: Process | None = None) -> None:
        """Note that a process has had something in hand: the one that runs, if none is named.

        Args:
            deed: What is done with such things by the next one, `entries of {} delivered by {}`.
            thing: Which.
            by: Who.
        """
        self.hands.setdefault((deed, thing), []).append(by or self.program.process)

    def note(self, what: str) -> None:
        """Keep what happened, and let the hash of the run depend on it."""
        line = f"{self.now_s:.6f} {what}"
        self.hash(line)
        self.last_events.append(line)
        if self.story is not None:
            self.story.append(line)

    def hash(self, what: str) -> None:
        """Let the hash of the run depend on something."""
        self._digest.update(what.encode() + b"\n")

    @property
    def digest(self) -> str:
        """The hash of everything noted so far."""
        return self._digest.hexdigest()

    def run(self, is_over: Callable[[], bool], *, until_s: float) -> bool:
        """Let things happen until something holds; False if it does not hold in time."""
        while not is_over():
            if self.error is not None:
                raise self.error
            if not self._queue or self._queue[0][0] > until_s:
                return False
            at_s, came_s, number, process, act = heapq.heappop(self._queue)
            self.now_s = max(self.now_s, at_s)
            if process is None:
                act()
            elif process.is_dead:
                continue
            elif process.paused_until_s > self.now_s:
                # In the order in which all of it came, though some of it waited for an earlier
                # pause and some did not.
                later_s = process.paused_until_s
                heapq.heappush(self._queue, (later_s, came_s, number, process, act))
            else:
                act()
        return True

    @contextmanager
    def nothing_waits(self) -> Iterator[None]:
        """Let what its programs sleep pass in its own time, and no other wait have a time limit.

        Such a wait would last as long as it says by the clock on the wall, and end with it or
        before, as the machine has it.
        """
        really_sleep, really_wait = time.sleep, threading.Condition.wait

        def sleep(seconds: float) -> None:
            program = self.running
            if program is None or not program.is_here():
                really_sleep(seconds)
            else:
                program.sleep(seconds)

        def wait(condition: threading.Condition, timeout: float | None = None) -> bool:
            program = self.running
            if timeout is not None and program is not None and program.is_here():
                # Kept, since who calls may take any exception for an answer.
                self.error = AssertionError(f"{program} waits up to {timeout} real seconds")
                raise self.error
            return really_wait(condition, timeout)

        with (
            mock.patch.object(time, "sleep", sleep),
            mock.patch.object(threading.Condition, "wait", wait),
        ):
            yield

    def end(self) -> None:
        """Let every thread end."""
        for process in self.processes:
            process.crash()


@contextmanager
def on_one_core() -> Iterator[None]:
    """Keep this thread, and those that it starts, on the core on which it runs, where one can.

    One of them runs at any time, and to wake a thread on another core takes several times as long.
    """
    if not _STATUS.exists():
        yield
        return
    before = os.sched_getaffinity(0)
    fields = _STATUS.read_text("ascii", "replace").rpartition(")")[2].split()
    os.sched_setaffinity(0, {int(fields[_CORE_AT])})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
