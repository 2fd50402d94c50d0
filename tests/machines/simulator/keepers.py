"""Operators of an export queue beside its exporters: other buckets, and what was set aside.

A keeper gives the queue another number of buckets while clients add to it and exporters export, by
the operation that `omidpy export rebucket` keeps; killed or paused, it leaves it to the next keeper
or exporter.  The receiver refuses some entries as poison, so that they are set aside, and others
behind them: keepers let them be tried again, with or without the receiver mended, or give them up.

Whatever comes of it, E1 and E2 hold (`exporters.py`), but for poison that was given up, and

    E4  in the end no operation is left half done, and nothing in the queue
    E5  where nobody crashed and no call was lost, no table is left but the one that is exported
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, cast
from unittest import mock

from omidpy.errors import OmidError
from omidpy.fate import Fate
from omidpy.fate.admin import Admin
from omidpy.fate.operation import FateId, Operation, parse_id
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue import ExportQueue
from omidpy.recipes.export_queue.entries.stored.state import Places, table_name
from omidpy.recipes.export_queue.upkeep import rebucketing
from omidpy.recipes.export_queue.upkeep.finishing import Finisher
from omidpy.recipes.export_queue.upkeep.rebucketing import KIND, RebucketTools
from tests.machines.simulator.exporters import KEYS, QUEUE, Exporting, Never, Receiver
from tests.machines.simulator.operators import LATEST_WRITE_S, LOOK_S, NotingFateStore
from tests.machines.simulator.store import SimStore
from tests.machines.simulator.world import Process, World

KEEPERS: Final = ("keeper-a", "keeper-b")
BUCKETS: Final = (1, 2, 3, 5)
PATIENCE_S: Final = 15.0
"""For so long a keeper carries an operation out, and then leaves it to whoever comes."""
ROUNDS: Final = 60
"""So often somebody tries in the end to deliver all there is."""


KEEPERS_VERBS: Final = ("rebucket", "rebucket", "retry", "retry", "drop")
"""What they do, some of it more often; where it is asked for, they `fail` operations, too."""


class KeeperHabits(NamedTuple):
    """How keepers go about it, which a seed draws."""

    pause_s: float = 2.0
    """Between one thing and the next, on average."""
    verbs: tuple[str, ...] = KEEPERS_VERBS
    poison_share: float = 0.0
    """Entries that the receiver refuses."""


def executor(world: World, tm: TransactionManager, process: Process, lease_s: float) -> Fate:
    """Return what carries rebucketings out, in the program that asks."""
    tools = RebucketTools(tm, sleep=world.program.sleep)
    operations = NotingFateStore(tm.store, world, "rebucketings of {} ended by {}")
    fate = Fate(tools, operations, {KIND: 1}, lease_s=lease_s, clock=process.clock)
    stopping: Any = Never(world.program)
    fate._executor._stopping = stopping
    return fate


@contextlib.contextmanager
def finishing_without_threads(world: World, lease_s: float) -> Iterator[None]:
    """Let exporters carry out what others have left, in the program that they are in."""

    def made(self: Finisher) -> Fate:
        return executor(world, self._tm, world.program.process, lease_s)

    with mock.patch.object(Finisher, "_new", made):
        yield


class Keeper:
    """A process whose operator takes care of a queue."""

    def __init__(
        self,
        world: World,
        process: Process,
        receiver: Receiver,
        lease_s: float,
        habits: KeeperHabits,
        make: Callable[[], TransactionManager],
        found: Callable[[str], object],
        *,
        has_no_faults: bool,
    ) -> None:
        self._has_no_faults = has_no_faults
        self._world = world
        self._process = process
        self._receiver = receiver
        self._lease_s = lease_s
        self._habits = habits
        self._make = make
        self._found = found

    def work(self, dice: random.Random, until_s: float) -> None:
        """Take care of it until it is late."""
        tm = self._made()
        while self._world.now_s < until_s:
            self._world.program.sleep(dice.expovariate(1 / self._habits.pause_s))
            verb = dice.choice(self._habits.verbs)
            try:
                if verb == "rebucket":
                    self._rebucket(tm, dice.choice(BUCKETS))
                elif verb == "fail":
                    self._fail(tm)
                else:
                    self._letters(tm, verb, dice)
            except OmidError as error:
                self._world.note(f"{self._process.name}: {error!r}")
                self._world.counts[f"keepers ended by {type(error).__name__}"] += 1

    def finish(self, exporting: Exporting) -> None:
        """Let everything come to its end, and see that nothing is left."""
        self._world.program.sleep(LATEST_WRITE_S)
        tm = self._made()
        self._receiver.take_everything()
        left = ""
        fate = executor(self._world, tm, self._process, self._lease_s)
        for _ in range(ROUNDS):
            queue = ExportQueue.open(tm, QUEUE)
            queue.dead_letters().retry()
            exporting.finish()
            fate.run_pending()
            queue = ExportQueue.open(tm, QUEUE)
            known = queue._find()
            counts = queue.lag().entries, len(list(queue.dead_letters()))
            left = "" if known.successor is None and not any(counts) else f"{known}, {counts}"
            if not left:
                self._look_at_tables(tm, known.number)
                return
            self._world.program.sleep(1.0)
        self._found(f"E4: this is left in the end: {left}")

    def _look_at_tables(self, tm: TransactionManager, number: int) -> None:
        """See that no table is there but the one that is exported."""
        if not self._has_no_faults:
            return  # what stopped before it has removed its own leaves it
        own = tm.session.catalog.full_name(table_name(QUEUE, number))
        first = tm.session.catalog.full_name(table_name(QUEUE, 1))
        names = (one.name for one in tm.store.tables())
        others = [one for one in names if one.startswith(first) and one != own]
        if others:
            self._found(f"E5: {own} is exported, and beside it there are {others}")

    def _made(self) -> TransactionManager:
        tm = self._make()
        cast("SimStore", tm.store).beat_no_more()  # it is given no other here
        return tm

    def _rebucket(self, tm: TransactionManager, buckets: int) -> None:
        """Ask for other buckets, and carry that out for a while."""
        queue = ExportQueue.open(tm, QUEUE)
        known = queue._find()
        if known.successor is None and known.buckets == buckets:
            return
        places = Places.of(tm.session.catalog, QUEUE)
        fate = executor(self._world, tm, self._process, self._lease_s)
        self._world.counts["keepers asked for other buckets"] += 1
        try:
            handle = rebucketing._submitted(fate, places, known, buckets)
            operation = FateId(handle.id)
            self._run(fate, lambda: self._is_over(fate, operation))
            found = fate.store.read(operation)
        finally:
            fate.close()
        if isinstance(found, Operation) and found.is_finished:
            self._world.counts[f"rebucketings that ended as {found.status}"] += 1

    def _fail(self, tm: TransactionManager) -> None:
        """Turn round whatever gives the queue other buckets, as `omidpy fate fail` does."""
        successor = ExportQueue.open(tm, QUEUE)._find().successor
        if successor is None:
            return
        operation = parse_id(successor.operation)
        fate = executor(self._world, tm, self._process, self._lease_s)
        admin = Admin(
            fate.store,
            wait_s=PATIENCE_S,
            clock=self._process.clock,
            sleep=self._world.program.sleep,
        )
        try:
            told = admin.fail(operation)
            self._world.counts[f"keepers failed an operation: {told.outcome.value}"] += 1
            self._run(fate, lambda: self._is_over(fate, operation))
        finally:
            fate.close()

    @staticmethod
    def _is_over(fate: Fate, operation: FateId) -> bool:
        found = fate.store.read(operation)
        return found is None or found.is_finished

    def _run(self, fate: Fate, is_over: Callable[[], bool]) -> None:
        until_s = self._world.now_s + PATIENCE_S
        while self._world.now_s < until_s:
            fate.run_pending()
            if is_over():
                return
            self._world.program.sleep(LOOK_S)

    def _letters(self, tm: TransactionManager, verb: str, dice: random.Random) -> None:
        """Try again what was set aside, or give it up."""
        key = dice.choice((None, *KEYS))
        keys = KEYS if key is None else (key,)
        letters = ExportQueue.open(tm, QUEUE).dead_letters()
        if verb == "drop":
            try:
                self._world.counts["dead letters given up"] += letters.drop(key)
            finally:
                self._receiver.give_up(keys)
            return
        if dice.random() < 0.7:
            self._receiver.mend(keys)
        self._world.counts["dead letters tried again"] += letters.retry(key)
