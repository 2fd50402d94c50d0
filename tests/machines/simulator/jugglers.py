"""Clients on asyncio: processes with one loop, in which many tasks share one manager.

A juggler begins tasks, and cancels them wherever they are: in a scan, a put, a savepoint or a
commit, from outside or by a time limit.  Calls of one transaction are made by several tasks at
once.  Its loop ends because all is done, cancels what still runs, or is abandoned in the middle of
it, and its threads go on; then it begins another.

What a task is told it records, and of a cancelled commit what the status of its transaction says.
A write that timed out is looked for in the transaction itself: one that is there commits with it,
and one that is not is never seen.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from omidpy import aio
from omidpy.aio import manager as aio_manager
from omidpy.errors import AlreadyCommitted, CommitOutcomeUnknown, OmidError, Rollback
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, Committed, Outcome, TransactionStatus
from omidpy.testing.clients import Client
from omidpy.testing.history import TransactionRecord
from omidpy.testing.workloads import COLUMN
from tests.machines.simulator.loops import SimLoop
from tests.machines.simulator.retriers import NEWEST, Orders
from tests.machines.simulator.single_cells import SingleCells
from tests.machines.simulator.threads import Threading
from tests.machines.simulator.watch import CommittedIn
from tests.machines.simulator.world import Process, World

JUGGLERS: Final = ("juggler-a", "juggler-b")
KEYS: Final = tuple(f"j{number:02}" for number in range(10))

MOST_TASKS: Final = 6
"""So many tasks of one loop at a time."""

ENDINGS: Final = ("well", "cancelled", "abandoned")
WAYS: Final = ("block", "block", "hand", "hand", "look", "attempts", "decorator")

_LIMITS_S: Final = (0.0005, 0.003, 0.02, 0.2, 2.0)
_OUTCOMES: Final = {
    TransactionStatus.RUNNING: "its commit was not asked for",
    TransactionStatus.ROLLED_BACK: "rolled back",
}


class JuggleHabits(NamedTuple):
    """How jugglers go about it."""

    pause_s: float
    """Between two tasks of a loop, on average."""
    cancel_share: float
    """Tasks after the beginning of which another one is cancelled."""
    limit_share: float
    """Transactions, and steps of such, that have a time limit."""
    threads: int
    """Of a manager."""
    lives_s: tuple[float, ...]
    """How long a loop runs, one of these."""
    endings: tuple[str, ...]
    ways: tuple[str, ...]
    post_commits: tuple[str, ...]


class _Undone(Exception):
    pass


class _Spoiled(Exception):
    """Of a write nobody can say whether it took place; where it did, nothing commits."""


class JuggledOrders(Orders):
    """Orders that jugglers carry out."""

    name = "juggled orders"


class Juggled(SingleCells):
    """What jugglers write, and what else is known of them."""

    name: Final = "juggled"

    def __init__(self, prefix: str, world: World) -> None:
        self.table = f"{prefix}_juggled"
        self.world = world
        self.threading = Threading(world)
        self.orders = JuggledOrders(prefix, world)
        self.jugglers: dict[str, Juggler] = {}
        """Those that live."""
        self.wrong: list[str] = []
        self._found_out: list[tuple[int, Outcome]] = []

    def patches(self, patch: Callable[[Any, str, Any], Any]) -> list[Any]:
        """Return what puts them into the world."""
        connect = patch(aio_manager, "connect_blocking", self._connect)
        return [*self.threading.patches(patch), connect]

    def _connect(self, url: str, *_: object, post_commit: str, **__: object) -> TransactionManager:
        self.world.program.sleep(self.world.dice("connecting", url).expovariate(100))
        return self.jugglers[url].connected(post_commit)

    def found_out(self, start_ts: int, outcome: Outcome) -> None:
        """Note what somebody was told of a transaction."""
        self._found_out.append((start_ts, outcome))

    def found(self, committed_in: CommittedIn) -> list[str]:
        """Say what is wrong with what was told; `committed_in` says where it is committed."""
        final = committed_in(sorted({start_ts for start_ts, _ in self._found_out}))
        for start_ts, outcome in self._found_out:
            at = final.get(start_ts, set())
            told = {outcome.commit_ts} if isinstance(outcome, Committed) else set()
            if isinstance(outcome, (Committed, Aborted)) and told - {None} != at:
                self.wrong.append(f"I8: {start_ts}, found out {outcome}, is committed at {at}")
        return self.wrong + self.orders.found(committed_in)


class Throw:
    """One transaction of a task: what is recorded of it."""

    def __init__(self, life: Life, workload: str, began_ns: int) -> None:
        self._life = life
        self._workload = workload
        self._began_ns = began_ns
        self._is_noted = False
        self.tx: aio.Transaction | None = None
        self.record: TransactionRecord

    def begun(self, tx: aio.Transaction) -> None:
        """Begin the record."""
        self.tx = tx
        self.record = self._life.client.recorder.begin(
            self._workload, start_ts=tx.start_ts, began_ns=self._began_ns
        )

    def read(self, key: str, pair: tuple[bytes, int] | None) -> None:
        """Note what was read."""
        if pair is None:
            self.record.read(key, None)
        else:
            self.record.read(key, int(pair[0]), pair[1])

    def note_end(self) -> None:
        """Note what its status says, once no call of it is under way."""
        if self.tx is None or self._is_noted or self._life.loop.is_over:
            return
        self._is_noted = True
        status = self.tx.status
        self._life.counts[f"juggled {status}"] += 1
        if status is TransactionStatus.COMMITTED:
            self.record.committed(self.tx.commit_ts)
        elif (reason := _OUTCOMES.get(status)) is not None:
            self.record.aborted(reason)
        else:
            self.record.unknown()


class Juggler:
    """A process with one loop after the other."""

    def __init__(
        self,
        juggled: Juggled,
        process: Process,
        habits: JuggleHabits,
        make: Callable[[str], Client],
    ) -> None:
        self.juggled = juggled
        self.process = process
        self.habits = habits
        self._make = make
        self._life: Life
        self._managers: list[TransactionManager] = []
        """Of the loop that runs."""

    def work(self, dice: random.Random, until_s: float) -> None:
        """Run one loop after the other until it is late."""
        world = self.juggled.world
        self.juggled.jugglers[self.process.name] = self
        while world.now_s < until_s:
            lives_s = min(until_s - world.now_s, dice.choice(self.habits.lives_s))
            self._run(dice, lives_s, dice.choice(self.habits.endings))
            world.program.sleep(dice.expovariate(2.0))
        self.juggled.threading.join()

    def _run(self, dice: random.Random, lives_s: float, ending: str) -> None:
        loop = SimLoop(self.juggled.world, self.juggled.threading.pool())
        self._managers = []
        self._life = Life(self, loop, dice, lives_s, ending)
        self.juggled.world.counts[f"loops that end {ending}"] += 1
        if ending == "abandoned":
            loop.run_and_abandon(self._life.main(), after_s=lives_s)
            return
        loop.run(self._life.main())
        if not all(one._is_closed for one in self._managers):
            self.juggled.wrong.append(f"leak: {self.process.name} has left a manager open")

    def connected(self, post_commit: str) -> TransactionManager:
        """Return a manager of the loop that runs."""
        self._life.client = self._make(post_commit)
        self._managers.append(self._life.client.tm)
        return self._life.client.tm


class Life:
    """One loop, and what runs in it."""

    def __init__(
        self, juggler: Juggler, loop: SimLoop, dice: random.Random, lives_s: float, ending: str
    ) -> None:
        self.loop = loop
        self.client: Client
        self.counts: Counter[str] = juggler.juggled.world.counts
        self._juggler = juggler
        self._juggled = juggler.juggled
        self._habits = juggler.habits
        self._dice = dice
        self._until_s = loop.time() + lives_s
        self._ending = ending

    # -- the loop --------------------------------------------------------------------------------

    async def main(self) -> None:
        """Begin tasks, and cancel some."""
        dice, habits = self._dice, self._habits
        current = asyncio.current_task()
        assert current is not None, "a task runs it"
        if self._ending == "cancelled":
            self.loop.call_at(self._until_s, current.cancel)
        async with await self._connected() as tm:
            tasks: list[asyncio.Task[None]] = []
            while self.loop.time() < self._until_s:
                await asyncio.sleep(dice.expovariate(1 / habits.pause_s))
                tasks = [one for one in tasks if not one.done()]
                if len(tasks) < MOST_TASKS:
                    tasks.append(self.loop.create_task(self._one(tm, self._own_dice())))
                if dice.random() < habits.cancel_share:
                    dice.choice(tasks).cancel()
                    self.counts["tasks cancelled"] += 1
            await asyncio.gather(*tasks, return_exceptions=True)

    def _own_dice(self) -> random.Random:
        return random.Random(self._dice.getrandbits(64))

    async def _connected(self) -> aio.TransactionManager:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limit_s(self._dice)):
                    return await aio.connect(
                        self._juggler.process.name,
                        post_commit=self._dice.choice(self._habits.post_commits),
                        threads=self._habits.threads,
                    )
            self.counts["connects that timed out"] += 1

    def _limit_s(self, dice: random.Random) -> float | None:
        if dice.random() < self._habits.limit_share:
            return dice.choice(_LIMITS_S) * dice.uniform(0.3, 1.5)
        return None

    async def _one(self, tm: aio.TransactionManager, dice: random.Random) -> None:
        throws: list[Throw] = []
        ways: Mapping[str, Callable[..., Awaitable[None]]] = {
            "block": self._by_block,
            "hand": self._by_hand,
            "look": self._by_looking,
            "attempts": self._by_attempts,
            "decorator": self._by_decorator,
        }
        try:
            async with asyncio.timeout(self._limit_s(dice)):
                await ways[dice.choice(self._habits.ways)](tm, dice, throws)
        except CommitOutcomeUnknown:
            with suppress(OmidError):
                await self._find_out(tm, throws[-1].tx)
        except (OmidError, TimeoutError) as error:
            self.counts[f"juggled ended by {type(error).__name__}"] += 1
        finally:
            for throw in throws:
                throw.note_end()

    async def _find_out(self, tm: aio.TransactionManager, tx: aio.Transaction | None) -> None:
        assert tx is not None, "it has begun"
        self._juggled.found_out(tx.start_ts, await tm.outcome(tx))

    # -- cells -----------------------------------------------------------------------------------

    def _thrown(self, throws: list[Throw]) -> Throw:
        throws.append(throw := Throw(self, Juggled.name, self.client.recorder.now_ns()))
        return throw

    async def _by_block(
        self, tm: aio.TransactionManager, dice: random.Random, throws: list[Throw]
    ) -> None:
        throw = self._thrown(throws)
        async with tm.begin() as tx:
            throw.begun(tx)
            await self._body(tx, throw, dice)
            if dice.random() < 0.05:
                raise Rollback
            throw.record.committing()

    async def _by_hand(
        self, tm: aio.TransactionManager, dice: random.Random, throws: list[Throw]
    ) -> None:
        throw = self._thrown(throws)
        tx = await tm.begin()
        throw.begun(tx)
        try:
            await self._body(tx, throw, dice)
        except OmidError:
            if tx.status is TransactionStatus.RUNNING:
                await tx.rollback()
            raise
        throw.record.committing()
        if dice.random() < 0.1:
            self.loop.create_task(self._be_nosy(tm, tx, dice))
        try:
            async with asyncio.timeout(self._limit_s(dice)):
                await tx.commit()
        except TimeoutError:
            self.counts[f"commits that timed out {tx.status}"] += 1
            if tx.status is TransactionStatus.RUNNING:
                await (tx.commit() if dice.random() < 0.5 else tx.rollback())
            elif tx.status is TransactionStatus.UNKNOWN:
                await self._find_out(tm, tx)

    async def _be_nosy(
        self, tm: aio.TransactionManager, tx: aio.Transaction, dice: random.Random
    ) -> None:
        """Ask what became of a transaction whose commit another task has asked for."""
        await asyncio.sleep(dice.expovariate(200))
        with suppress(OmidError):
            await self._find_out(tm, tx)

    async def _by_looking(
        self, tm: aio.TransactionManager, dice: random.Random, throws: list[Throw]
    ) -> None:
        throw = self._thrown(throws)
        async with tm.begin(read_only=True) as tx:
            throw.begun(tx)
            table = tx.table(self._juggled.table)
            await self._scan(tx, table, throw, dice)
            await self._look(tx, table, throw, dice)
            throw.record.committing()

    async def _body(self, tx: aio.Transaction, throw: Throw, dice: random.Random) -> None:
        table = tx.table(self._juggled.table)
        steps = (self._put, self._put_in_time, self._save, self._batch, self._flush, self._scan)
        await self._look(tx, table, throw, dice)
        with suppress(_Spoiled):
            for _ in range(dice.randint(1, 4)):
                await dice.choice(steps)(tx, table, throw, dice)
                if dice.random() < 0.2:
                    await asyncio.sleep(dice.expovariate(10))

    async def _look(
        self, tx: aio.Transaction, table: aio.TransactionalTable, throw: Throw, dice: random.Random
    ) -> None:
        """Read some cells, by a task each."""
        del tx
        keys = dice.sample(KEYS, dice.randint(1, 4))
        await asyncio.gather(*(self._read(table, throw, key) for key in keys))

    async def _read(self, table: aio.TransactionalTable, throw: Throw, key: str) -> None:
        row = await table.row(key.encode(), include_timestamp=True)
        throw.read(key, row.get(COLUMN))

    async def _scan(
        self, tx: aio.Transaction, table: aio.TransactionalTable, throw: Throw, dice: random.Random
    ) -> None:
        """Read all cells, or as many as come in time, or as are wanted."""
        del tx
        most = dice.choice((len(KEYS), len(KEYS), 3))
        count = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limit_s(dice)):
                async for row, data in table.scan(include_timestamp=True):
                    throw.read(row.decode(), data[COLUMN])
                    count += 1
                    if count >= most:
                        break

    async def _put(
        self, tx: aio.Transaction, table: aio.TransactionalTable, throw: Throw, dice: random.Random
    ) -> None:
        """Write some cells, by a task each, and read one of them: in this order."""
        del tx
        values = self._values(dice)
        for key, value in values.items():
            throw.record.write(key, value)
        await asyncio.gather(
            *(table.put(key.encode(), _data(value)) for key, value in values.items()),
            self._read(table, throw, dice.choice(list(values))),
        )

    def _values(self, dice: random.Random) -> dict[str, int]:
        return {key: self.client.value() for key in dice.sample(KEYS, dice.randint(1, 3))}

    async def _put_in_time(
        self, tx: aio.Transaction, table: aio.TransactionalTable, throw: Throw, dice: random.Random
    ) -> None:
        """Write a cell behind what another task reads; if the time is over, look if it is there.

        Nothing commits then: who writes was not told.
        """
        del tx
        key, value = dice.choice(KEYS), self.client.value()
        read = self.loop.create_task(self._read(table, throw, dice.choice(KEYS)))
        put = self.loop.create_task(table.put(key.encode(), _data(value)))
        try:
            async with asyncio.timeout(self._limit_s(dice)):
                await asyncio.gather(read, put)
        except TimeoutError:
            self.counts["puts that timed out"] += 1
            if put.cancelled():
                throw.record.undo(key, value)
                row = await table.row(key.encode())
                if row.get(COLUMN) != b"%d" % value:
                    return
                self.counts["puts that timed out and were done"] += 1
                raise _Spoiled from None
            put.result()
        throw.record.write(key, value)

    async def _save(
        self, tx: aio.Transaction, table: aio.TransactionalTable, throw: Throw, dice: random.Random
    ) -> None:
        """Write in a savepoint, which is undone now and then, or where the time is over.

        As it is left another task reads, and it must wait for that.
        """
        values = self._values(dice)
        other = dice.choice([key for key in KEYS if key not in values])
        beside: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(self._limit_s(dice)), tx.savepoint():
                await asyncio.gather(
                    *(table.put(key.encode(), _data(value)) for key, value in values.items())
                )
                beside = self.loop.create_task(self._read(table, throw, other))
                await asyncio.sleep(0)
                _undo(dice)
        except (TimeoutError, _Undone) as error:
            self.counts[f"savepoints ended by {type(error).__name__}"] += 1
            for key, value in values.items():
                throw.record.undo(key, value)
        else:
            for key, value in values.items():
                throw.record.write(key, value)
        if beside is not None:
            await beside

    async def _batch(
        self, tx: aio.Transaction, table: aio.TransactionalTable, throw: Throw, dice: random.Random
    ) -> None:
        """Write by a batch, of which nothing is committed where the time is over."""
        del tx
        values = self._values(dice)
        try:
            async with asyncio.timeout(self._limit_s(dice)), table.batch() as batch:
                for key, value in values.items():
                    await batch.put(key.encode(), _data(value))
        except TimeoutError:
            self.counts["batches that timed out"] += 1
            for key, value in values.items():
                throw.record.undo(key, value)
            raise _Spoiled from None
        for key, value in values.items():
            throw.record.write(key, value)

    async def _flush(
        self, tx: aio.Transaction, table: aio.TransactionalTable, throw: Throw, dice: random.Random
    ) -> None:
        """Flush, in time or not, while another task reads."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limit_s(dice)):
                await asyncio.gather(tx.flush(), self._read(table, throw, dice.choice(KEYS)))

    # -- orders ----------------------------------------------------------------------------------

    async def _by_attempts(
        self, tm: aio.TransactionManager, dice: random.Random, throws: list[Throw]
    ) -> None:
        order, budget_s = self._order(dice), dice.choice((0.0, 2.0))
        began_ns = self.client.recorder.now_ns()
        try:
            async for attempt in tm.attempts(budget_s=budget_s, idempotency_key=order.encode()):
                async with attempt as tx:
                    await self._do(tx, order, began_ns, throws)
        except AlreadyCommitted as found:
            self._juggled.orders.told(order, found.commit_ts)
        else:
            self._told(order, throws)

    async def _by_decorator(
        self, tm: aio.TransactionManager, dice: random.Random, throws: list[Throw]
    ) -> None:
        @tm.transactional(
            retry_budget_s=dice.choice((0.0, 2.0)),
            idempotency_key=lambda one: bytes(one.encode()),
        )
        async def carry_out(tx: aio.Transaction, one: str) -> str:
            await self._do(tx, one, began_ns, throws)
            return "done"

        order, began_ns = self._order(dice), self.client.recorder.now_ns()
        done = await carry_out(order)
        if isinstance(done, Committed):
            self._juggled.orders.told(order, done.commit_ts)
        else:
            self._told(order, throws)

    def _order(self, dice: random.Random) -> str:
        orders = self._juggled.orders
        orders.count += dice.random() < 0.5
        return f"j{max(0, orders.count - dice.randrange(NEWEST)):03}"

    async def _do(
        self, tx: aio.Transaction, order: str, began_ns: int, throws: list[Throw]
    ) -> None:
        for before in throws:
            before.note_end()
        orders = self._juggled.orders
        orders.tries(order, tx.start_ts)
        throws.append(throw := Throw(self, orders.name, began_ns))
        throw.begun(tx)
        value = self.client.value()
        row = f"{order}-{value}"
        throw.record.write(row, value)
        await tx.table(orders.table).put(row.encode(), _data(value))
        throw.record.committing()

    def _told(self, order: str, throws: list[Throw]) -> None:
        tx = throws[-1].tx
        assert tx is not None, "it has begun"
        self._juggled.orders.told(order, tx.commit_ts)


def _undo(dice: random.Random) -> None:
    if dice.random() < 0.3:
        raise _Undone


def _data(value: int) -> dict[bytes, bytes]:
    return {COLUMN: b"%d" % value}
