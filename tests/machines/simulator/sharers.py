"""Transactions with many writers: owners who hand out tokens, and helpers who write with them.

An owner gives tasks out, waits for their parts, merges what has come, gives up what has not, and
commits.  A helper takes whatever task is there, also one that somebody else has begun, and also one
of a transaction that has ended: it dies, stands still and goes on, finishes once more, and its part
comes twice, late, or garbled.  What an owner merged is its write; nothing else of its helpers may
ever be seen, nor be there once it has committed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple

from omidpy.base.cells import is_shadow_qualifier
from omidpy.errors import OmidError, StorageError, TransactionClosed, UsageError
from omidpy.manager import TransactionManager
from omidpy.model import Cell, TransactionStatus, base
from omidpy.storage.memory import MemoryStore
from omidpy.testing.clients import Client, Steps
from omidpy.testing.history import TransactionRecord
from omidpy.testing.workloads import COLUMN
from omidpy.tx.parts import worker as worker_module
from omidpy.tx.parts.status import PartStatus
from omidpy.tx.table import TransactionalTable
from omidpy.tx.transaction import Transaction
from tests.machines.simulator.single_cells import SingleCells, reads_of
from tests.machines.simulator.world import Process, World

SHARERS: Final = ("sharer-a", "sharer-b")
HELPERS: Final = ("helper-a", "helper-b", "helper-c")
KEYS: Final = tuple(f"s{number:02}" for number in range(24))

MERGED: Final = "parts of {} merged by {}"

TRIES: Final = 3
"""How often a helper asks for its part where the store does not answer."""


class ShareHabits(NamedTuple):
    """How owners and helpers go about their work."""

    pause_s: float
    """Between two transactions of an owner, on average."""
    patience_s: float
    """For so long an owner waits for parts."""
    unnamed_share: float
    """Tasks without a name, of which another attempt makes up for none."""
    careless_share: float
    """Attempts that write something else than the others, where all of them can be told apart."""
    garbled_share: float
    """Parts that are changed on the way, at first."""
    flush_bytes: int | None
    """Past so many bytes of writes a helper flushes; None: as in the product."""

    def patches(self, patch: Callable[[Any, str, Any], Any]) -> list[Any]:
        """Return what makes the product choose so."""
        if self.flush_bytes is None:
            return []
        return [patch(worker_module, "FLUSH_LIMIT_BYTES", self.flush_bytes)]


class Arrived(NamedTuple):
    """A part, and what its helper has done."""

    part: bytes
    values: dict[str, int]
    reads: Sequence[tuple[Any, ...]]


@dataclass(eq=False, slots=True)
class Task:
    """What a helper is to write."""

    name: str | None
    token: bytes
    values: dict[str, int]
    looks: tuple[str, ...]
    """Keys that it reads, which nobody writes in this transaction."""
    parts: list[Arrived] = field(default_factory=list)


class Board(SingleCells):
    """Where owners and helpers meet, and what came of it."""

    name: Final = "shared"

    def __init__(self, prefix: str, world: World) -> None:
        self.table = f"{prefix}_shared"
        self.world = world
        self.tasks: list[Task] = []
        self.committed: dict[int, dict[str, int]] = {}
        """What is there of transactions that were told committed."""
        self.wrong: list[str] = []

    # -- in the end ------------------------------------------------------------------------------

    def found(self, memory: MemoryStore, collected: Iterable[Cell]) -> list[str]:
        """Say what is wrong with parts: of a commit there is what was merged, and nothing else.

        Args:
            memory: The store's.
            collected: What was of the table, and was rightly taken away.
        """
        there: dict[int, dict[str, int]] = {}
        cells = (cell for page in memory.scan(self.table) for row in page for cell in row)
        for cell in chain(cells, collected):
            if not is_shadow_qualifier(cell.qualifier):
                of_one = there.setdefault(base(cell.version), {})
                of_one[cell.row.decode()] = int(cell.value)
        return self.wrong + [
            f"part: of {start_ts} there is {there.get(start_ts, {})}, and {merged} was merged"
            for start_ts, merged in self.committed.items()
            if there.get(start_ts, {}) != merged
        ]


class Sharer:
    """A process that owns transactions which others write in."""

    def __init__(
        self, board: Board, process: Process, habits: ShareHabits, make: Callable[[], Client]
    ) -> None:
        self._board = board
        self._process = process
        self._habits = habits
        self._make = make
        self._tx: Transaction | None = None
        """The one that is under way, and what is merged in it."""
        self._merged: dict[str, int] = {}
        self._ended: list[tuple[Transaction, list[Task]]] = []
        """Transactions that helpers may not have heard the end of."""

    @property
    def _now_s(self) -> float:
        return self._board.world.now_s

    def work(self, dice: random.Random, until_s: float) -> None:
        """Own one transaction after the other until it is late."""
        client = self._make()
        client.rng = dice
        program = self._board.world.program
        while self._now_s < until_s:
            program.sleep(dice.expovariate(1 / self._habits.pause_s))
            self._merge_late()
            for _ in client.transaction(self._board, self._body(client, dice)):
                program.sleep(dice.uniform(0.0, 0.1))
            self._note_end()

    def _note_end(self) -> None:
        tx, self._tx = self._tx, None
        # Of what has no commit timestamp, nothing was written.
        if tx is not None and tx.status is TransactionStatus.COMMITTED and tx.commit_ts:
            self._board.committed[tx.start_ts] = self._merged
            self._board.world.counts["transactions of many writers"] += 1
        while len(self._ended) > TRIES:
            _, tasks = self._ended.pop(0)
            for task in tasks:
                self._board.tasks.remove(task)

    def _body(self, client: Client, dice: random.Random) -> Any:
        def body(tx: Transaction, table: TransactionalTable, record: TransactionRecord) -> Steps:
            self._tx = tx
            self._merged = merged = {}
            keys = dice.sample(KEYS, dice.randint(4, 9))
            looks = [key for key in KEYS if key not in keys]
            for key in keys[: dice.randint(0, 2)]:
                merged[key] = client.value()
                record.write(key, merged[key])
                table.put(key.encode(), {COLUMN: b"%d" % merged[key]})
            keys = keys[len(merged) :]
            yield
            tasks = self._give_out(client, dice, tx, keys, looks)
            until_s = self._now_s + dice.uniform(0.3, 1.0) * self._habits.patience_s
            while self._now_s < until_s and not all(task.parts for task in tasks):
                yield
            for task in dice.sample(tasks, len(tasks)):
                self._merge(dice, tx, task, record)
                yield
            for one in tx.parts():
                if one.status is PartStatus.MISSING and dice.random() < 0.8:
                    with suppress(UsageError):  # a part that contradicts another has ended it
                        tx.discard(one.worker_id)
            yield

        return body

    def _give_out(
        self,
        client: Client,
        dice: random.Random,
        tx: Transaction,
        keys: Sequence[str],
        looks: Sequence[str],
    ) -> list[Task]:
        token = tx.token()
        count = dice.randint(1, 3)
        tasks = [
            Task(
                None if dice.random() < self._habits.unnamed_share else f"task-{number}",
                token,
                {key: client.value() for key in keys[number::count]},
                tuple(dice.sample(looks, 2)),
            )
            for number in range(count)
        ]
        self._ended.append((tx, tasks))
        self._board.tasks += tasks
        return tasks

    def _merge(
        self, dice: random.Random, tx: Transaction, task: Task, record: TransactionRecord
    ) -> None:
        """Merge a part of a task; one that was garbled, and one that came twice, are refused."""
        if not task.parts:
            return
        one = dice.choice(task.parts)
        # One that wrote nothing has registered nothing, and merges nothing whoever changes it.
        if one.values and dice.random() < self._habits.garbled_share:
            self._is_refused(tx, _garbled(one.part, dice), "one that was garbled")
            if not tx.is_running:
                return
        try:
            tx.merge(one.part)
        except UsageError as error:
            self._board.world.note(f"{self._process.name}: {error}")
            self._board.world.counts["parts refused"] += 1
            return
        for read in one.reads:
            record.read(*read)
        for key, value in one.values.items():
            record.write(key, value)
        self._merged.update(one.values)
        self._board.world.handled(MERGED, one.part)
        self._board.world.counts["parts merged"] += 1
        if dice.random() < 0.1:
            self._is_refused(tx, one.part, "one that was merged before")
        others = [another for another in task.parts if another is not one]
        if others and dice.random() < 0.3:
            # Another attempt: one that wrote the same counts once, and another ends it all.
            self._merge_another(tx, dice.choice(others))

    def _merge_another(self, tx: Transaction, another: Arrived) -> None:
        try:
            tx.merge(another.part)
        except UsageError:
            self._board.world.counts["parts refused"] += 1

    def _is_refused(self, tx: Transaction, part: bytes, what: str) -> None:
        try:
            tx.merge(part)
        except (UsageError, TransactionClosed):
            return
        self._board.wrong.append(f"part: {tx.start_ts} has merged {what}")

    def _merge_late(self) -> None:
        """Merge what has come since the end of its transaction, which must be refused."""
        for tx, tasks in self._ended:
            for task in tasks:
                for one in task.parts[:1]:
                    self._is_refused(tx, one.part, "one behind its end")


def _garbled(part: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(part))
    return part[:at] + bytes((part[at] ^ 1,)) + part[at + 1 :]


class Helper:
    """A process that does the tasks of others."""

    def __init__(
        self,
        board: Board,
        process: Process,
        habits: ShareHabits,
        make: Callable[[], Client],
        *,
        may_be_careless: bool,
    ) -> None:
        self._board = board
        self._process = process
        self._habits = habits
        self._make = make
        self._careless_share = habits.careless_share if may_be_careless else 0.0

    def work(self, dice: random.Random, until_s: float) -> None:
        """Do one task after the other until it is late."""
        client = self._make()
        world = self._board.world
        while world.now_s < until_s:
            world.program.sleep(dice.expovariate(5.0))
            if not self._board.tasks:
                continue
            try:
                self._attempt(client, dice, dice.choice(self._board.tasks[-4:]))
            except OmidError as error:
                world.note(f"{self._process.name}: {error!r}")
                world.counts[f"attempts ended by {type(error).__name__}"] += 1

    def _attempt(self, client: Client, dice: random.Random, task: Task) -> None:
        sleep = self._board.world.program.sleep
        values = dict(task.values)
        if values and dice.random() < self._careless_share:
            values[dice.choice(list(values))] = client.value()
        tm: TransactionManager = client.tm
        worker = tm.resume(task.token, task=task.name)
        table = worker.table(self._board.table)
        reads = reads_of(table, task.looks)
        for key in dice.sample(list(values), len(values)):
            table.put(key.encode(), {COLUMN: b"%d" % values[key]})
            sleep(dice.expovariate(20.0))
        for left in reversed(range(TRIES)):
            try:
                part = worker.finish()
                break
            except StorageError:
                if not left:
                    raise
                sleep(dice.uniform(0.1, 1.0))
        sleep(dice.choice((0.0, 0.01, 0.5)))
        self._board.world.handled(MERGED, part)
        task.parts += [Arrived(part, values, reads)] * dice.choice((1, 1, 2))
        self._board.world.counts["parts that came"] += 1
