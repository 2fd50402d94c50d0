"""Orders that are carried out once, however often and by whomever they are tried.

An order has an idempotency key.  Whoever takes one runs it in a loop over attempts, by the
decorator, or by hand, and gives up after a while; another takes it then, or takes it meanwhile.
One of all those attempts commits at most, and whoever is told that it was done is told when.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Final, NamedTuple

from omidpy.errors import AlreadyCommitted, OmidError
from omidpy.model import Committed, TransactionStatus
from omidpy.testing.clients import Client
from omidpy.testing.history import TransactionRecord
from omidpy.testing.workloads import COLUMN
from omidpy.tx.transaction import Transaction
from tests.machines.simulator.single_cells import SingleCells, read_into
from tests.machines.simulator.watch import CommittedIn
from tests.machines.simulator.world import Process, World

RETRIERS: Final = ("retrier-a", "retrier-b", "retrier-c")

NEWEST: Final = 4
"""So many orders are taken again by others."""


class RetryHabits(NamedTuple):
    """How those go about it who carry out orders."""

    pause_s: float
    """Between two orders, on average."""
    budgets_s: tuple[float, ...]
    """For how long an order is tried, one of these."""
    thinking_share: float
    """Attempts in the middle of which time passes."""


class Orders(SingleCells):
    """The orders, and what was told of each."""

    name = "orders"

    def __init__(self, prefix: str, world: World) -> None:
        self.table = f"{prefix}_{self.name.replace(' ', '_')}"
        self.world = world
        self.count = 0
        self._tried: dict[str, set[int]] = defaultdict(set)
        """By order: the transactions that tried it."""
        self._told: dict[str, set[int | None]] = defaultdict(set)
        """When each was carried out, as somebody was told."""

    def tries(self, order: str, start_ts: int) -> None:
        """Note an attempt."""
        self._tried[order].add(start_ts)
        self.world.handled("orders of {} tried again by {}", order)

    def told(self, order: str, commit_ts: int | None) -> None:
        """Note what somebody was told: when it was carried out."""
        self._told[order].add(commit_ts)
        self.world.counts["orders carried out"] += 1

    def found(self, committed_in: CommittedIn) -> list[str]:
        """Say what is wrong with orders; `committed_in` says where transactions committed."""
        wrong = []
        for order, starts in self._tried.items():
            final = committed_in(sorted(starts))
            done = {one: final[one] for one in sorted(starts) if final.get(one)}
            if len(done) > 1:
                wrong.append(f"order: {order} was carried out by {done}")
            if not self._told[order] <= set().union(*done.values()):
                wrong.append(f"order: {order}, told {self._told[order]}, was done by {done}")
        return wrong


class Retrier:
    """A process that carries out orders."""

    def __init__(
        self, orders: Orders, process: Process, habits: RetryHabits, make: Callable[[], Client]
    ) -> None:
        self._orders = orders
        self._process = process
        self._habits = habits
        self._make = make
        self._began_ns = 0
        self._tries: list[tuple[Transaction, TransactionRecord]] = []
        """Attempts at the order that is under way, of which the last may not have ended."""

    def work(self, dice: random.Random, until_s: float) -> None:
        """Carry out one order after the other until it is late."""
        client, world, orders = self._make(), self._orders.world, self._orders
        client.rng = dice
        ways = (self._by_attempts, self._by_decorator, self._by_hand)
        while world.now_s < until_s:
            world.program.sleep(dice.expovariate(1 / self._habits.pause_s))
            if dice.random() < 0.5:
                orders.count += 1
            number = max(0, orders.count - dice.randrange(NEWEST))
            order, way = f"o{number:03}", dice.choice(ways)
            self._tries, self._began_ns = [], client.recorder.now_ns()
            try:
                way(client, order, dice.choice(self._habits.budgets_s))
            except AlreadyCommitted as found:
                orders.told(order, found.commit_ts)
                world.counts["orders found carried out"] += 1
            except OmidError as error:
                world.note(f"{self._process.name}: {error!r}")
                world.counts[f"orders ended by {type(error).__name__}"] += 1
            self._end_tries()

    # -- three ways to do it ---------------------------------------------------------------------

    def _by_attempts(self, client: Client, order: str, budget_s: float) -> None:
        for attempt in client.tm.attempts(budget_s=budget_s, idempotency_key=order.encode()):
            with attempt as tx:
                self._do(client, tx, order)
        self._told(order)

    def _by_decorator(self, client: Client, order: str, budget_s: float) -> None:
        @client.tm.transactional(
            retry_budget_s=budget_s, idempotency_key=lambda one: bytes(one.encode())
        )
        def carry_out(tx: Transaction, one: str) -> str:
            self._do(client, tx, one)
            return "done"

        done = carry_out(order)
        if isinstance(done, Committed):
            self._orders.told(order, done.commit_ts)
            self._orders.world.counts["orders found carried out"] += 1
        else:
            self._told(order)

    def _by_hand(self, client: Client, order: str, _: float) -> None:
        tx = client.tm.begin(idempotency_key=order.encode())
        try:
            self._do(client, tx, order)
        except OmidError:
            tx.rollback()
            raise
        tx.commit()
        self._told(order)

    # -- what they have in common ----------------------------------------------------------------

    def _do(self, client: Client, tx: Transaction, order: str) -> None:
        self._end_tries()
        self._orders.tries(order, tx.start_ts)
        recorder = client.recorder
        record = recorder.begin(self._orders.name, start_ts=tx.start_ts, began_ns=self._began_ns)
        self._tries.append((tx, record))
        table = tx.table(self._orders.table)
        # A row of its own, so that nothing but the key keeps another attempt from committing.
        value = client.value()
        row = f"{order}-{value}"
        read_into(table, record, (row,))
        record.write(row, value)
        table.put(row.encode(), {COLUMN: b"%d" % value})
        if client.chance(self._habits.thinking_share):
            self._orders.world.program.sleep(client.rng.uniform(0.0, 2.0))
        record.committing()

    def _end_tries(self) -> None:
        """Note what became of attempts that have ended."""
        while self._tries:
            tx, record = self._tries.pop()
            match tx.status:
                case TransactionStatus.COMMITTED:
                    record.committed(tx.commit_ts)
                case TransactionStatus.ROLLED_BACK:
                    record.aborted("rolled back")
                case _:
                    record.unknown()

    def _told(self, order: str) -> None:
        """Note that the last attempt is told to have carried it out."""
        tx, _ = self._tries[-1]
        self._orders.told(order, tx.commit_ts)
