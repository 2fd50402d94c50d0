"""Operators who make, empty and drop tables beside everybody else, by operations that survive them.

Each operator is an executor, too, and carries out whatever others have left.  One that is paused
beyond its lease is taken for dead, and goes on; one that crashes leaves its operation to the next.
Rows are put in between, each by a transaction of its own.

    E3  what was told of verbs and rows, in some order, comes to what is there in the end
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, cast

from omidpy.admin import tables as admin
from omidpy.admin.table_steps import TableTools
from omidpy.errors import (
    CommitOutcomeUnknown,
    NoSuchTable,
    NotTransactional,
    OmidError,
    TableExists,
    TransactionAborted,
)
from omidpy.fate import Fate, Locks, Status, TableFateStore
from omidpy.fate.operation import FateId, Operation
from omidpy.fate.store import FateStore, Patience, brief
from omidpy.fate.zookeeper.store import ZooKeeperFateStore
from omidpy.manager import TransactionManager
from tests.machines.simulator.ensemble import HOSTS
from tests.machines.simulator.exporters import Never
from tests.machines.simulator.store import SimStore
from tests.machines.simulator.world import Process, World
from tests.machines.stalls.ledger import Action, Deed, Ledger, State, Way, done, refused

OPERATORS: Final = ("operator-a", "operator-b", "operator-c")
PLACES: Final = 2
"""Tables that are changed at one time."""
FAMILY: Final = "cf"
COLUMN: Final = b"cf:q"
MOST_DEEDS: Final = 9
"""Of one name: to look for an order of more takes long.  Then another table has its turn."""
PATIENCE_S: Final = 30.0
LOOK_S: Final = 0.25
LATEST_WRITE_S: Final = 30.0
"""What was sent to the store has come by then, or never will."""

EMPTY: Final[frozenset[bytes]] = frozenset()
_NOT_DONE: Final = (NoSuchTable, NotTransactional, TableExists, TransactionAborted)


def _created(state: State) -> list[Way]:
    return [*(done(EMPTY) if state is None else []), *refused(state)]


def _removed(state: State) -> list[Way]:
    return [*([] if state is None else done(None)), *refused(state)]


def _made_unless_there(state: State) -> list[Way]:
    return done(EMPTY if state is None else state)


def _put(row: bytes) -> Action:
    def act(state: State) -> list[Way]:
        if not isinstance(state, frozenset):
            return refused(state)
        return [*done(state | {row}), *refused(state)]

    return act


MEANINGS: Final[dict[str, tuple[Action, ...]]] = {
    "create": (_created,),
    "drop": (_removed,),
    "truncate": (_removed, _made_unless_there),  # for a moment there is no such table
}
VERBS: Final = (
    ("put", "put", "put", "create", "create", "make", "drop", "truncate"),
    ("put", "put", "create", "drop"),
    ("create", "drop"),
)
"""What operators do in a world, some of it more often."""
THINKS_SHARE: Final = 0.2
"""Transactions that have sent what they write, and are committed later."""


class Haste(NamedTuple):
    """How operators go about it, which a seed draws."""

    pause_s: float = 0.7
    """Between one thing and the next, on average."""
    verbs: tuple[str, ...] = VERBS[0]


class Records:
    """What operators have asked for, table by table, and what they were told."""

    def __init__(self) -> None:
        self.ledgers: dict[str, Ledger] = defaultdict(lambda: Ledger(None))
        self.operations: dict[FateId, Deed] = {}
        self.accepted: set[FateId] = set()
        """Operations that somebody was told are kept."""
        self.rows = 0
        self._numbers = itertools.count()
        self._places = [self._next() for _ in range(PLACES)]

    def place(self, dice: random.Random) -> str:
        """Return a table, of which there are not yet as many deeds as can be judged."""
        at = dice.randrange(PLACES)
        if len(self.ledgers[self._places[at]].deeds) >= MOST_DEEDS:
            self._places[at] = self._next()
        return self._places[at]

    def is_by(self, deed: Deed, operation: FateId) -> Deed:
        """Note which operation a deed is, and return the deed that it is, which another may be.

        Who asks for what is under way is answered by it: then both asked for one thing.
        """
        first = self.operations.setdefault(operation, deed)
        if first is not deed:
            first.began = min(first.began, deed.began)
            self.ledgers[deed.name.split()[1]].deeds.remove(deed)
        return first

    def _next(self) -> str:
        return f"x{next(self._numbers)}"


class _Noting(FateStore):
    """Remembers which operation was to be kept last, though nobody heard whether it is.

    And who had which in hand.
    """

    asked: FateId | None = None
    _world: World
    _deed: str

    def insert(self, operation: Operation) -> bool:
        """Remember it; see `FateStore`."""
        self.asked = operation.id
        self._world.handled(self._deed, operation.id)
        return super().insert(operation)  # type: ignore[safe-super]  # behind it is a whole one

    def write(self, old: Operation, new: Operation, patience: Patience = brief) -> Operation:
        """Remember who has ended it; see `FateStore`."""
        written = super().write(old, new, patience)
        if written.is_finished:
            self._world.handled(self._deed, written.id)
        return written


class NotingFateStore(_Noting, TableFateStore):
    """Keeps operations in a table."""

    def __init__(self, store: Any, world: World, deed: str) -> None:
        self._world, self._deed = world, deed
        super().__init__(store)


class NotingZooKeeperStore(_Noting, ZooKeeperFateStore):
    """Keeps operations in ZooKeeper."""

    def __init__(self, timeout_s: float, world: World, deed: str) -> None:
        self._world, self._deed = world, deed
        super().__init__(HOSTS, timeout_s=timeout_s)


class Operator:
    """A process whose operator changes tables, and that carries out operations."""

    def __init__(
        self,
        world: World,
        process: Process,
        records: Records,
        lease_s: float,
        make: Callable[[], TransactionManager],
        haste: Haste,
        *,
        is_in_zookeeper: bool = False,
    ) -> None:
        self._world = world
        self._process = process
        self._records = records
        self._lease_s = lease_s
        self._make = make
        self._haste = haste
        self._is_in_zookeeper = is_in_zookeeper
        """Where operations are kept."""
        self._lost: list[str] = []

    def work(self, dice: random.Random, until_s: float) -> None:
        """Change tables until it is late."""
        tm = self._made()
        fate = self._begun(tm)
        while self._world.now_s < until_s:
            self._run_pending(fate)
            self._world.program.sleep(dice.expovariate(1 / self._haste.pause_s))
            table, verb = self._records.place(dice), dice.choice(self._haste.verbs)
            if verb == "put":
                thinks_s = dice.uniform(0.5, 4.0) if dice.random() < THINKS_SHARE else 0.0
                self._put(tm, table, thinks_s)
            elif verb == "make":
                self._create(tm, table)
            else:
                self._change(tm, fate, verb, table)
        fate.close()

    def finish(self) -> None:
        """Carry out what is left, and note how all of it has ended."""
        self._world.program.sleep(LATEST_WRITE_S)
        tm = self._made()
        fate = self._begun(tm)
        while self._run_pending(fate) is not None:
            self._world.program.sleep(LOOK_S)
        fate.close()
        for operation, deed in self._records.operations.items():
            found = fate.store.read(operation)
            ledger = self._records.ledgers[deed.name.split()[1]]
            if found is None:
                if operation in self._records.accepted:
                    self._lost.append(f"E3: {operation}, {deed.name}, was accepted, and is gone")
                ledger.end(deed, was_done=False, told="it was never kept")
            elif found.is_finished:
                was_done = found.status is Status.SUCCESSFUL
                ledger.end(deed, was_done=was_done, told=str(found.exception or ""))

    def wrong(self) -> Iterator[str]:
        """Say what no order of deeds explains."""
        yield from self._lost
        tm = self._make()
        for table, ledger in self._records.ledgers.items():
            found: State = None
            try:
                with tm.begin(read_only=True) as tx:
                    found = frozenset(row for row, _ in tx.table(table).scan())
            except NoSuchTable:
                found = None
            if not ledger.explains(found):
                yield f"E3: of {table} " + ledger.text(found)

    def _made(self) -> TransactionManager:
        """Return a manager whose process does nothing more once it has died."""
        tm = self._make()
        cast("SimStore", tm.store).beat_no_more()  # it is given no other here
        return tm

    def _begun(self, tm: TransactionManager) -> Fate:
        """Return an executor, as soon as it can see which format the operations have."""
        while True:
            try:
                return self._fate(tm)
            except OmidError as error:
                self._world.note(f"{self._process.name}: {error!r}")
                self._world.program.sleep(LOOK_S)

    def _fate(self, tm: TransactionManager) -> Fate:
        operations: FateStore
        deed = "changes of tables of {} ended by {}"
        if self._is_in_zookeeper:
            operations = NotingZooKeeperStore(self._lease_s, self._world, deed)
        else:
            operations = NotingFateStore(tm.store, self._world, deed)
        tools = TableTools(tm.store, tm.oracle, Locks(operations))
        pools = {",".join(admin.TABLE_KINDS): 1}
        fate = Fate(tools, operations, pools, lease_s=self._lease_s, clock=self._process.clock)
        stopping: Any = Never(self._world.program)
        fate._executor._stopping = stopping
        return fate

    def _run_pending(self, fate: Fate) -> float | None:
        """Carry out what can be; None: there is nothing to do, as far as is known."""
        try:
            return fate.run_pending()
        except OmidError as error:
            self._world.note(f"{self._process.name}: {error!r}")
            return LOOK_S

    def _change(self, tm: TransactionManager, fate: Fate, verb: str, table: str) -> None:
        records, world = self._records, self._world
        ledger = records.ledgers[table]
        deed = ledger.begin(self._process.name, f"{verb} {table}", *MEANINGS[verb])
        world.counts[f"operators asked to {verb}"] += 1
        try:
            change = {
                "create": lambda: admin.creation(tm, table, [FAMILY]),
                "drop": lambda: admin.removal(tm, table),
                "truncate": lambda: admin.truncation(tm, table),
            }[verb]()
        except OmidError as error:
            ledger.end(deed, was_done=False, told=type(error).__name__)  # nothing was submitted
            return
        operations = fate.store
        assert isinstance(operations, _Noting), "it was given one of these"
        operations.asked = None
        try:
            handle = fate.submit(change.kind, change.step, key=change.key)
        except OmidError:
            if operations.asked is not None:
                records.is_by(deed, operations.asked)  # it may be kept
            return
        deed = records.is_by(deed, FateId(handle.id))
        records.accepted.add(FateId(handle.id))
        until_s = world.now_s + PATIENCE_S
        while world.now_s < until_s:
            self._run_pending(fate)
            tm.session.catalog.forget(change.key[1])
            try:
                found = fate.store.read(FateId(handle.id))
            except OmidError:
                found = None
            if found is not None and found.is_finished:
                was_done = found.status is Status.SUCCESSFUL
                world.counts[f"operations that ended as {found.status}"] += 1
                ledger.end(deed, was_done=was_done, told=str(found.exception or ""))
                return
            self._world.program.sleep(LOOK_S)

    def _create(self, tm: TransactionManager, table: str) -> None:
        """Make it by a call of one's own, as is done without operations."""
        ledger = self._records.ledgers[table]
        deed = ledger.begin(self._process.name, f"make {table}", _created)
        try:
            tm.create_table(table, [FAMILY])
        except TableExists:
            ledger.end(deed, was_done=False, told="TableExists")
        except OmidError:
            return
        else:
            ledger.end(deed, was_done=True)

    def _put(self, tm: TransactionManager, table: str, thinks_s: float) -> None:
        records = self._records
        row = b"row %d" % records.rows
        records.rows += 1
        ledger = records.ledgers[table]
        deed = ledger.begin(self._process.name, f"put {table} {row!r}", _put(row))
        has_begun = False
        try:
            with tm.begin() as tx:
                tx.table(table).put(row, {COLUMN: b"1"})
                if thinks_s:
                    tx.flush()
                    self._world.program.sleep(thinks_s)
                # What it has written is there for nobody before it is asked to commit.
                ledger.begin_anew(deed)
                has_begun = True
        except CommitOutcomeUnknown:
            return
        except _NOT_DONE as error:
            ledger.end(deed, was_done=False, told=type(error).__name__)
        except OmidError as error:
            if not has_begun:
                ledger.end(deed, was_done=False, told=type(error).__name__)
        else:
            self._world.counts["rows put by operators"] += 1
            ledger.end(deed, was_done=True)
