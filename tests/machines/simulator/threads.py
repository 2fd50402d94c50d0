"""Threads of one simulated process: what the product makes of `threading`, in turns of the world.

A client that has one thread needs none of this.  One that has many shares a connection among them,
and a lock that one of them holds while it waits must let the world go on: locks, queues and pools
of threads are those of this module, by `Threading`, wherever the product's client has them.  Each
thread is a `Program`.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty
from types import SimpleNamespace
from typing import Any, Final, Generic, Self, TypeVar

from omidpy.aio import lanes
from omidpy.base import outgoing
from omidpy.commit import post_commit
from omidpy.oracle import link, links, tcp
from tests.machines.simulator.world import Crashed, Process, Program, World

T = TypeVar("T")

NEVER_S: Final = 1e9

SOON_S: Final = 0.0002
"""How long it takes on average until a thread has begun with what it was given."""
SELDOM: Final = 0.01
"""Calls with which a thread begins late."""
LATE_S: Final = 2.0
"""How late at most."""


class SimLock:
    """A lock whose waiters hand the turn on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_held = False
        self._waiting: deque[Program] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - a lock's own signature
        """Take it, or wait until it is free."""
        until_s = self._world.now_s + (NEVER_S if timeout < 0 else timeout)
        while self._is_held:
            if not blocking or self._world.now_s >= until_s:
                return False
            self._waiting.append(program := self._world.program)
            program.wait(until_s - self._world.now_s)
            if program in self._waiting:
                self._waiting.remove(program)
        self._is_held = True
        return True

    def release(self) -> None:
        """Give it back, and wake who waits for it."""
        assert self._is_held, "it was taken"
        self._is_held = False
        if self._waiting:
            self._waiting.popleft().wake()

    def locked(self) -> bool:
        """Say whether somebody has it."""
        return self._is_held

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class SimQueue(Generic[T]):
    """A queue, of which one reads who hands the turn on while it is empty."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._items: deque[T] = deque()
        self._reader: Program | None = None

    def put(self, item: T) -> None:
        """Add something, and wake who waits for it."""
        self._items.append(item)
        if self._reader is not None:
            self._reader.wake()

    def get(self, timeout: float | None = None) -> T:
        """Take the oldest; see `queue.SimpleQueue`."""
        until_s = self._world.now_s + (NEVER_S if timeout is None else timeout)
        while not self._items:
            if self._world.now_s >= until_s:
                raise Empty
            self._reader = self._world.program
            self._reader.wait(until_s - self._world.now_s)
            self._reader = None
        return self._items.popleft()

    def empty(self) -> bool:
        """Say whether there is nothing in it."""
        return not self._items

    def qsize(self) -> int:
        """Return how much is in it."""
        return len(self._items)


class SimThread:
    """A thread of the process that starts it."""

    def __init__(self, world: World, target: Callable[[], object], **_: object) -> None:
        self._world = world
        self._target = target

    def start(self) -> None:
        """Let it run."""
        started(self._world.program.process, self._target)


def started(process: Process, function: Callable[[], object]) -> Program:
    """Start a thread in a process, by a thread of its own.

    Raises:
        Crashed: the process has died, and whoever asks is about to end.
    """
    if process.is_dead:
        raise Crashed
    return process.start(function)


class SimThreads:
    """As much of a `ThreadPoolExecutor` as asyncio and the product use."""

    def __init__(self, world: World, size: int) -> None:
        self._world = world
        self._size = size
        self._process = world.program.process
        self._dice = self._process.dice("threads")
        self._count = 0
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._idle: deque[Program] = deque()
        self._is_shut = False

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Let a thread do it."""
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[T] = Future()
        self._calls.append((future, lambda: function(*args, **kwargs)))
        if self._idle:
            # Whoever comes meanwhile may be begun with first, as it is with threads.
            self._idle.popleft().wake(self._delay_s())
        elif self._count < self._size:
            self._count += 1
            started(self._process, self._work)
        return future

    def shutdown(self, wait: bool = True, **_: object) -> None:  # noqa: FBT001, FBT002 - its own signature
        """Take no more calls; `join` waits for those that were taken."""
        del wait
        self._is_shut = True
        while self._idle:
            self._idle.popleft().wake()

    def join(self) -> None:
        """Wait until all threads have ended, as a program does when it ends."""
        self.shutdown()
        while self._count:
            self._world.program.sleep(0.05)

    def _work(self) -> None:
        program = self._world.program
        while self._calls or not self._is_shut:
            if not self._calls:
                self._idle.append(program)
                program.wait(NEVER_S)
                if program in self._idle:
                    self._idle.remove(program)
                continue
            future, call = self._calls.popleft()
            if future.set_running_or_notify_cancel():
                self._do(future, call)
        self._count -= 1

    def _delay_s(self) -> float:
        if self._dice.random() < SELDOM:
            return self._dice.uniform(0.0, LATE_S)
        return self._dice.expovariate(1 / SOON_S)

    def _do(self, future: Future[Any], call: Callable[[], Any]) -> None:
        try:
            result = call()
        except Crashed:
            raise
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)
        else:
            future.set_result(result)


class Threading:
    """What stands for `threading` in one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pools: dict[Process, list[SimThreads]] = defaultdict(list)

    def pool(self, size: int = 32, **_: object) -> SimThreads:
        """Return threads of the process that asks."""
        pool = SimThreads(self._world, size)
        self._pools[self._world.program.process].append(pool)
        return pool

    def join(self) -> None:
        """Wait for all pools of the process that asks, as Python does when a program ends."""
        for pool in self._pools.pop(self._world.program.process, ()):
            pool.join()

    def patches(self, patch: Callable[[Any, str, Any], Any]) -> list[Any]:
        """Return what makes threads of one client take turns."""
        world = self._world
        in_turns = SimpleNamespace(
            Lock=partial(SimLock, world),
            Thread=partial(SimThread, world),
            get_ident=threading.get_ident,
        )
        queue = partial(SimQueue, world)
        return [
            *(
                patch(module, "threading", in_turns)
                for module in (outgoing, link, links, tcp, post_commit)
            ),
            *(patch(module, "SimpleQueue", queue) for module in (link, post_commit)),
            patch(post_commit, "time", SimpleNamespace(monotonic=lambda: world.now_s)),
            patch(lanes, "ThreadPoolExecutor", self.pool),
        ]
