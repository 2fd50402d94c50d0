"""Exporters beside everybody else: entries that clients add, their owners, and what receives them.

A client adds an entry in a transaction of its own and notes what it was told.  Exporters deliver by
the real runner, owners and claims; one that is paused beyond its lease is replaced, and goes on.
The receiver keeps the largest fence of each bucket and refuses a smaller one, or it takes whatever
comes; requests to it get lost, and so do its answers.

    E1  what was acknowledged as committed is delivered, and what was aborted is not
    E2  entries of a key come for the first time in the order in which they committed
"""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, cast
from unittest import mock

from omidpy.errors import (
    OmidError,
    OracleUnavailable,
    QueueFull,
    StorageUnavailable,
    TransactionAborted,
)
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue import Batch, Entry, Exporter, ExportQueue, Poison, Retry
from omidpy.recipes.export_queue.delivery import runner
from omidpy.recipes.export_queue.delivery.crew import Crew
from omidpy.recipes.export_queue.delivery.runner import Runner
from omidpy.recipes.export_queue.exporter import Deposed
from tests.machines.simulator.store import SimStore
from tests.machines.simulator.world import Process, Program, World

EXPORTERS: Final = ("exporter-a", "exporter-b")
QUEUE: Final = "exports"
BUCKETS: Final = 2
KEYS: Final = (b"a", b"b", b"c")

DELIVERED: Final = "entries of {} delivered by {}"

COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
UNKNOWN: Final = "unknown"


class Adder:
    """What clients have added, and what they were told."""

    def __init__(self, world: World, *, keeps_queues: bool = False) -> None:
        """Begin with nothing.

        Args:
            world: Where it is.
            keeps_queues: Whether a client opens the queue once, and not for each entry.
        """
        self._world = world
        self.told: dict[int, str] = {}
        self._keeps_queues = keeps_queues
        self._queues: dict[TransactionManager, ExportQueue] = {}

    def add(self, tm: TransactionManager, dice: random.Random, think: Callable[[], object]) -> None:
        """Add one entry; `think` lets time pass before it is committed."""
        value = len(self.told)
        self._world.handled(DELIVERED, value)
        self.told[value] = UNKNOWN
        is_asked = False
        try:
            queue = self._queue(tm)
            with tm.begin() as tx:
                queue.add(tx, dice.choice(KEYS), value)
                think()
                is_asked = True
        except (TransactionAborted, QueueFull):
            self.told[value] = ABORTED
        except (OracleUnavailable, StorageUnavailable):
            self.told[value] = UNKNOWN if is_asked else ABORTED
        except OmidError:
            return
        else:
            self.told[value] = COMMITTED
        finally:
            self._world.counts[f"entries added, told {self.told[value]}"] += 1

    def _queue(self, tm: TransactionManager) -> ExportQueue:
        if not self._keeps_queues:
            return ExportQueue.open(tm, QUEUE)
        if tm not in self._queues:
            self._queues[tm] = ExportQueue.open(tm, QUEUE)
        return self._queues[tm]


class Receiver:
    """Another system, which all exporters deliver to."""

    def __init__(
        self, world: World, *, is_fencing: bool, trouble: float, poison_share: float = 0.0
    ) -> None:
        self._world = world
        self._is_fencing = is_fencing
        self._trouble = trouble
        self._poison_share = poison_share
        self._tried: dict[int, bool] = {}
        """Which entries it has looked at, and whether they are poison to it."""
        self._refused: dict[int, bytes] = {}
        """The key of each that it has refused."""
        self._mended: set[int] = set()
        self._given_up: set[int] = set()
        self._fences: dict[int, int] = {}
        self.taken: list[tuple[bytes, tuple[int, int], int]] = []
        """Key, place and value of everything, in the order in which it came."""

    def receive(self, batch: Batch, program: Program) -> None:
        """Take a batch, unless it gets lost."""
        dice = program.process.dice("ways to the receiver")
        program.sleep(dice.uniform(0.001, 0.05))
        if dice.random() < self._trouble:
            raise Retry("the request was lost", after=0.1)
        if self._is_fencing:
            if batch.fence < self._fences.get(batch.bucket, 0):
                self._world.counts["batches refused by their fence"] += 1
                if dice.random() < 0.5:
                    raise Deposed("there is a newer owner")
                raise Retry("there is a newer owner", after=0.1)
            self._fences[batch.bucket] = batch.fence
        for entry in batch:
            self._refuse_poison(entry)
        self._world.counts["batches received"] += 1
        self._world.note(f"{len(batch)} entries of bucket {batch.bucket} are received")
        for entry in batch:
            self._world.handled(DELIVERED, entry.value)
        self.taken += [(entry.key, entry.seq, entry.value) for entry in batch]
        program.sleep(dice.uniform(0.001, 0.05))
        if dice.random() < self._trouble:
            raise Retry("the answer was lost", after=0.1)

    def mend(self, keys: Collection[bytes]) -> None:
        """Take what was refused until now."""
        self._mended |= {value for value, key in self._refused.items() if key in keys}

    def take_everything(self) -> None:
        """Refuse nothing any more."""
        self._poison_share = 0.0

    def give_up(self, keys: Collection[bytes]) -> None:
        """Note that somebody has given up what was refused until now: it may never come."""
        self._given_up |= {value for value, key in self._refused.items() if key in keys}

    def _refuse_poison(self, entry: Entry) -> None:
        dice = self._world.dice("poison", entry.value)
        if self._poison_share and entry.value not in self._mended | self._given_up:
            if entry.value not in self._tried:
                self._tried[entry.value] = dice.random() < self._poison_share
            if self._tried[entry.value]:
                self._refused[entry.value] = entry.key
                raise Poison(entry, "it is bad")

    def wrong(self, told: dict[int, str]) -> Iterator[str]:
        """Say what is wrong with what was received in the end."""
        received = {value for _, _, value in self.taken}
        for value, what in told.items():
            if what == COMMITTED and value not in received | self._given_up:
                yield f"E1: the entry {value} was committed, and never came"
            if what == ABORTED and value in received:
                yield f"E1: the entry {value} was aborted, and came"
        first: dict[bytes, dict[int, tuple[int, int]]] = defaultdict(dict)
        for key, place, value in self.taken:
            first[key].setdefault(value, place)
        for key, places in first.items():
            if list(places.values()) != sorted(places.values()):
                yield f"E2: entries of {key!r} came in another order than theirs"


class Sends(Exporter):
    """Hands batches to the receiver from one program."""

    def __init__(self, receiver: Receiver, program: Program) -> None:
        self._receiver = receiver
        self._program = program

    def export(self, batch: Batch) -> None:
        """Deliver; see `Exporter`."""
        self._receiver.receive(batch, self._program)


class Never:
    """An event that nobody sets, and that is waited for in virtual time."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def is_set(self) -> bool:
        """Say no."""
        return False

    def set(self) -> None:
        """Have nobody who listens."""

    def wait(self, timeout: float) -> bool:
        """Let time pass."""
        self._program.sleep(timeout)
        return False


class CrewBetweenCalls(Crew):
    """Shows life whenever a call of the store is about to be made, and a beat is due."""

    def join(self, *, takes_all: bool = False, with_heart: bool = True) -> None:
        """See `Crew`; without a thread."""
        del with_heart
        super().join(takes_all=takes_all, with_heart=False)
        self._sim_store.beat_between_calls(self._beat, lease_s=self._lease_s)

    def leave(self) -> None:
        """See `Crew`."""
        self._sim_store.beat_no_more()
        super().leave()

    @property
    def _sim_store(self) -> SimStore:
        return cast("SimStore", self._tm.store)  # it is given no other here

    def _beat(self) -> None:
        if self.worker is not None:
            self.worker.beat()


@contextlib.contextmanager
def exporting_without_threads() -> Iterator[None]:
    """Let runners show life in the program that they are in."""
    with mock.patch.object(runner, "Crew", CrewBetweenCalls):
        yield


class Exporting:
    """A process that exports again and again."""

    def __init__(
        self,
        world: World,
        process: Process,
        receiver: Receiver,
        lease_s: float,
        make: Callable[[], TransactionManager],
    ) -> None:
        self._world = world
        self._process = process
        self._receiver = receiver
        self._lease_s = lease_s
        self._make = make

    def work(self, dice: random.Random, until_s: float) -> None:
        """Export until it is late."""
        tm = self._make()
        program = self._world.program
        while self._world.now_s < until_s:
            program.sleep(dice.expovariate(1 / 1.0))
            try:
                self._world.counts["entries exported"] += self._runner(tm, dice).run_once(
                    # Who waits for more than a lease takes what one has who stands still.
                    wait_s=dice.choice((0.0, 2.0, 2.5 * self._lease_s))
                )
            except OmidError as error:
                self._world.note(f"{self._process.name}: {error!r}")
                self._world.counts[f"exports ended by {type(error).__name__}"] += 1

    def finish(self) -> None:
        """Deliver everything that is left."""
        self._runner(self._make(), random.Random(0)).run_once()

    def _runner(self, tm: TransactionManager, dice: random.Random) -> Runner:
        program = self._world.program
        runner = ExportQueue.open(tm, QUEUE).runner(
            Sends(self._receiver, program),
            lease_s=self._lease_s,
            buffer_bytes=dice.choice((100, 300, 1 << 20)),
        )
        stopping: Any = Never(program)
        runner._stopping = stopping
        return runner
