"""Operators' verbs on one export queue as actors, and what each of them means.

    scene = QueueScene()
    life = scene.play("rebucket 3", Moment(5, Ending.STALLS), ["drop", "create", "add"])
    scene.judge()

There is a queue that keeps what it has delivered.  Two entries have left, two wait, one was set
aside as poison, and one waits behind that; two transactions that have added to it are still open.

What a queue owes is what was added to it and was not given up: in the end it is brought to deliver
all that it has, and each such entry must have come.  None may have come that nobody has added.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from omidpy.base.timing.clock import ManualClock
from omidpy.connect import find_queue
from omidpy.errors import NoSuchQueue, OmidError
from omidpy.fate import Fate, TableFateStore
from omidpy.fate.client import OperationHandle
from omidpy.fate.operation import RUNNABLE, FateId, Status
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue import Batch, Entry, Exporter, ExportQueue, Poison
from omidpy.recipes.export_queue.entries.stored.state import Definition, Places
from omidpy.recipes.export_queue.upkeep.making import check_going
from omidpy.recipes.export_queue.upkeep.rebucketing import (
    DROPPED,
    KIND,
    RebucketTools,
    _submitted,
)
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from omidpy.tx.transaction import Transaction
from tests.machines.export_queues import QUEUE
from tests.machines.naive_oracle import NaiveOracle
from tests.machines.stalls.ledger import Action, Deed, Ledger, State, Way, done, refused
from tests.machines.stalls.lives import (
    Actor,
    Life,
    LivingStore,
    Moment,
    answer,
    living_oracle,
    play,
)

BUCKETS: Final = 2
KEEP_S: Final = 86400.0
LEASE_S: Final = 4.0
LOOKS: Final = 60
"""How often somebody looks whether an operation is over, a second of his clock apart."""
PATIENCE: Final = 30
"""For so many looks an operator waits, who exports meanwhile, before he leaves it to others."""
BAD: Final = "c1 bad"

LEFT: Final = ("a1", "b1")
"""What was delivered, and is kept."""
EARLIER: Final = (("a1", "b1", True), (BAD, "c2", True), ("a2", "b2", False))
"""What was added, and whether somebody exported behind it."""
SETTLED: Final = frozenset({*LEFT, "a2", "b2", BAD, "c2"})


class Queue(NamedTuple):
    """What there is, if there is a queue."""

    buckets: int
    is_paused: bool = False
    owed: frozenset[str] = frozenset()
    """What must have been delivered in the end."""


class World(NamedTuple):
    """The state that the ledger knows."""

    queue: Queue | None
    ever: frozenset[str]
    """What may have been delivered: all that was ever added, but what was given up."""
    is_closing: bool = False
    """Whether one is being dropped, and no other was made since."""


@dataclass(frozen=True, eq=False)
class Found:
    """What is there in the end: equal to each state that explains it."""

    queue: Queue | None
    """What it owes is what has been delivered."""
    delivered: frozenset[str]

    def __eq__(self, other: object) -> bool:
        """Say whether a state explains it."""
        if not isinstance(other, World):
            return NotImplemented
        if self.queue is None or other.queue is None:
            is_same = self.queue is other.queue
        else:
            is_same = self.queue[:2] == other.queue[:2]
            is_same &= other.queue.owed <= self.delivered
        return is_same and self.delivered <= other.ever

    def __hash__(self) -> int:
        return hash(self.delivered)


# -- what verbs mean -------------------------------------------------------------------------------


def _on_queue(change: Callable[[Queue], Queue], *, may_refuse: bool = False) -> Action:
    """Return what is done to a queue, and refused where there is none."""

    def act(state: State) -> list[Way]:
        assert isinstance(state, World)
        if state.queue is None:
            return refused(state)
        ways = done(state._replace(queue=change(state.queue)))
        return [*ways, *refused(state)] if may_refuse else ways

    return act


def _created(state: State) -> list[Way]:
    assert isinstance(state, World)
    if state.queue is None:
        return done(state._replace(queue=Queue(BUCKETS), is_closing=False))
    # It is opened if it has these buckets still.
    return done(state) if state.queue.buckets == BUCKETS else refused(state)


def _closed(state: State) -> list[Way]:
    assert isinstance(state, World)
    if state.queue is None:
        return refused(state)
    return done(state._replace(queue=None, is_closing=True))


def _removed(state: State) -> list[Way]:
    assert isinstance(state, World)
    return done(state._replace(is_closing=False))


def _added(value: str) -> Action:
    def act(state: State) -> list[Way]:
        assert isinstance(state, World)
        if state.queue is None:
            # Who holds a queue that is being dropped may add to it, and that goes with it.
            going = done(state._replace(ever=state.ever | {value}))
            return [*(going if state.is_closing else ()), *refused(state)]
        queue = state.queue._replace(owed=state.queue.owed | {value})
        return [*done(state._replace(queue=queue, ever=state.ever | {value})), *refused(state)]

    return act


def _given_up(state: State) -> list[Way]:
    assert isinstance(state, World)
    if state.queue is None or BAD not in state.queue.owed:
        return []
    queue = state.queue._replace(owed=state.queue.owed - {BAD})
    return done(state._replace(queue=queue, ever=state.ever - {BAD}))


def _rebucketed(buckets: int) -> Action:
    # Refused where it was dropped meanwhile, or another number is under way.
    return _on_queue(lambda queue: queue._replace(buckets=buckets), may_refuse=True)


def _looked(state: State) -> list[Way]:
    return [*done(state), *refused(state)]


VERBS: Final = (
    *("rebucket 3", "rebucket 5", "drop", "create", "pause", "resume"),
    *("replay", "retry", "skip"),
)
"""What operators ask for; `add`, `export` and `run` are what goes on all the time."""


class QueueBeginning(NamedTuple):
    """How the first actor begins."""

    verb: str
    earlier: tuple[str, ...] = ()
    """What was done before."""

    def __str__(self) -> str:
        """Say it in a line, for the name of a test."""
        return ", ".join([*self.earlier, self.verb])


BEGINNINGS: Final = (
    *(QueueBeginning(verb) for verb in (*VERBS, "export")),
    QueueBeginning("create", ("drop",)),
    QueueBeginning("resume", ("pause",)),
    QueueBeginning("rebucket 3", ("replay",)),
    QueueBeginning("skip", ("rebucket 3",)),
)


class Sink(Exporter):
    """Keeps what it is given, but takes no poison before it is healed."""

    def __init__(self) -> None:
        self.taken: list[Entry] = []
        self.is_healed = False

    def export(self, batch: Batch) -> None:
        """Take a batch, entry by entry."""
        for entry in batch:
            if entry.value == BAD and not self.is_healed:
                raise Poison(entry, "it is bad")
            self.taken.append(entry)

    def values(self, *, since: int = 0) -> frozenset[str]:
        """Return what has come, behind so many others."""
        return frozenset(entry.value for entry in self.taken[since:])

    def check_order(self) -> None:
        """See that entries of a key have come in the order of their commits, the first time."""
        first: dict[tuple[bytes, int], tuple[int, int]] = {}
        for entry in self.taken:
            first.setdefault((entry.key, entry.start_ts), entry.seq)
        for key in {key for key, _ in first}:
            seqs = [seq for (other, _), seq in first.items() if other == key]
            assert seqs == sorted(seqs), f"{key!r} was overtaken: {seqs}"


@dataclass
class _Replayed:
    """A replay that was told as done while the queue had its first buckets."""

    since: int
    """How much had been delivered when it began."""


# -- the scene -------------------------------------------------------------------------------------


class QueueScene:
    """A store with a queue, an oracle, a clock that others turn, and a ledger."""

    def __init__(self, make_store: Callable[[], Store] = MemoryStore) -> None:
        self.clock = ManualClock()
        self.store = make_store()
        self.oracle = NaiveOracle(self.store)
        self.sink = Sink()
        self.operations: dict[Deed, FateId] = {}
        self.replays: list[_Replayed] = []
        self.count = 0
        self.is_dead = False
        """Whether whoever began first has died."""
        tm = self.manager(Life())
        self.veteran = ExportQueue.create(tm, QUEUE, buckets=BUCKETS, keep_s=KEEP_S)
        self.ledger = Ledger(World(Queue(BUCKETS, owed=SETTLED), SETTLED))
        self.writers: list[tuple[str, Transaction]] = []
        for *added, is_exported in EARLIER:
            for value in added:
                with tm.begin() as tx:
                    self.veteran.add(tx, str(value)[:1].encode(), value)
            if is_exported:
                self.export(Life(), "earlier")
        for number in range(2):
            tx = tm.begin()
            self.veteran.add(tx, b"w", f"w{number}")
            tx.flush()
            self.writers.append((f"w{number}", tx))

    @classmethod
    def after(cls, beginning: QueueBeginning, *where: Any) -> QueueScene:
        """Return a scene in which what came earlier was done."""
        scene = cls(*where)
        for verb in beginning.earlier:
            scene.actor("earlier", verb).start(Life())
        return scene

    def manager(self, life: Life) -> TransactionManager:
        """Return a client of its own."""
        return TransactionManager(
            LivingStore(self.store, life),
            living_oracle(self.oracle, life),
            post_commit="sync",
            clock=self.clock,
            find_queue=find_queue,
        )

    def play(self, first: str, moment: Moment | None, others: Sequence[str]) -> Life:
        """Let verbs meet: the first pauses or dies at a moment, and others come meanwhile."""
        life = Life(moment)
        cast = [self.actor(f"other {n}", verb) for n, verb in enumerate(others, start=1)]
        write = Actor("the first writer", lambda _: self.commit_writer())
        play(self.actor("first", first), life, [*cast, write])
        self.is_dead = life.is_dead
        return life

    def actor(self, who: str, verb: str) -> Actor:
        """Return an actor that does a verb."""
        name, _, rest = verb.partition(" ")
        act: Callable[..., None] = getattr(self, name)
        arguments = [int(rest)] if rest else []
        return Actor(f"{who} ({verb})", lambda life: act(life, who, *arguments), self.note_ends)

    def judge(self) -> None:
        """Let everything come to its end, and hold what is left to the ledger."""
        while self.writers:
            self.commit_writer()
        self.run(Life(), "judge")
        self.sink.is_healed = True
        found: Queue | None = None
        is_first = False
        if (known := self._known()) is not None:
            self._drain()
            # An operation waits while it is paused, and has given it its buckets now.
            found = Queue(self._queue(Life()).buckets, known.is_paused)
            is_first = known.made == 1
        self.note_ends()
        self.ledger.check(Found(found, self.sink.values()))
        self.sink.check_order()
        if found is not None:
            for one in self.replays if is_first else ():
                assert self.sink.values(since=one.since) >= set(LEFT), self.ledger.text("a replay")
            self._goes_on()
        if not self.is_dead:  # else the same call finishes what was begun
            named = [] if found is None else [self._queue(Life())._table]
            assert self.manager(Life()).tables() == named, self.ledger.text("a table of nobody's")

    def _known(self) -> Definition | None:
        with contextlib.suppress(NoSuchQueue):
            return self._queue(Life())._find()
        return None

    def _drain(self) -> None:
        """Bring it to deliver all that it has."""
        self._queue(Life()).resume()
        for _ in range(3):
            self._queue(Life()).dead_letters().retry()
            self.run(Life(), "judge")
        queue = self._queue(Life())
        assert queue.lag().entries == 0, self.ledger.text(tuple(queue.peek()))
        assert list(queue.dead_letters()) == []

    def _goes_on(self) -> None:
        """See that what is added now leaves."""
        with self.manager(Life()).begin() as tx:
            self._queue(Life()).add(tx, b"a", "last")
        self.export(Life(), "judge")
        assert self.sink.taken[-1].value == "last"

    def note_ends(self) -> None:
        """Write into the ledger which operations have ended, whoever carried them out."""
        fates = TableFateStore(self.store)
        for deed, operation_id in self.operations.items():
            found = fates.read(operation_id)
            if found is not None and found.is_finished:
                was_done = found.status is Status.SUCCESSFUL and found.result != DROPPED
                told = f"{found.exception or found.result}"
                self.ledger.end(deed, was_done=was_done, told=told)

    def commit_writer(self) -> None:
        """Let the next open transaction commit, if there is one."""
        if not self.writers:
            return
        value, tx = self.writers.pop(0)
        self._call("writer", f"commit {value}", tx.commit, _added(value))

    def _queue(self, life: Life) -> ExportQueue:
        return ExportQueue.open(self.manager(life), QUEUE)

    def _call(self, who: str, name: str, work: Callable[[], object], *actions: Action) -> Deed:
        deed = self.ledger.begin(who, name, *actions)
        was_done, told = answer(work)
        self.ledger.end(deed, was_done=was_done, told=told)
        return deed

    # -- verbs ---------------------------------------------------------------------------------

    def create(self, life: Life, who: str) -> None:
        """Make the queue, or open it."""
        tm = self.manager(life)

        def work() -> None:
            ExportQueue.create(tm, QUEUE, buckets=BUCKETS, keep_s=KEEP_S)

        self._call(who, "create", work, _created)

    def drop(self, life: Life, who: str) -> None:
        """Drop it."""
        self._call(who, "drop", lambda: self._queue(life).drop(), _closed, _removed)

    def pause(self, life: Life, who: str) -> None:
        """Let nobody export it."""
        paused = _on_queue(lambda queue: queue._replace(is_paused=True))
        self._call(who, "pause", lambda: self._queue(life).pause(), paused)

    def resume(self, life: Life, who: str) -> None:
        """Let exporters go on."""
        resumed = _on_queue(lambda queue: queue._replace(is_paused=False))
        self._call(who, "resume", lambda: self._queue(life).resume(), resumed)

    def replay(self, life: Life, who: str) -> None:
        """Let all that was delivered be delivered again."""
        since, before = len(self.sink.taken), self._known()
        deed = self._call(who, "replay", lambda: self._queue(life).replay(1), _looked)
        # Where it got other buckets meanwhile nothing is kept any more.
        now = self._known()
        if deed.was_done and before and now and before.number == now.number == 1:
            self.replays.append(_Replayed(since))

    def retry(self, life: Life, who: str) -> None:
        """Let what was set aside be tried again."""
        self._call(who, "retry", lambda: self._queue(life).dead_letters().retry(), _looked)

    def skip(self, life: Life, who: str) -> None:
        """Give up what was set aside."""
        counts: list[int] = []

        def work() -> None:
            counts.append(self._queue(life).dead_letters().drop())

        def meaning(state: State) -> list[Way]:
            if counts and counts[0]:
                return _given_up(state)
            return [*_looked(state), *([] if counts else _given_up(state))]

        self._call(who, "skip", work, meaning)

    def add(self, life: Life, who: str) -> None:
        """Add an entry to the queue that there is, and one by what is remembered of the first."""
        for find in (lambda: self._queue(life), lambda: self.veteran):
            self.count += 1
            value = f"a new {self.count}"

            def work(find: Callable[[], ExportQueue] = find, value: str = value) -> None:
                with self.manager(life).begin() as tx:
                    find().add(tx, b"a", value)

            self._call(who, f"add {value}", work, _added(value))

    def export(self, life: Life, who: str) -> None:
        """Deliver what is there, as an exporter that ends then; nobody else lives for long."""
        del who
        with contextlib.suppress(OmidError):
            queue = self._queue(life)
            runner = queue.runner(self.sink, lease_s=LEASE_S)
            check_going(Places.of(self.manager(life).session.catalog, QUEUE), queue._find())
            crew = runner._crew
            crew.join(takes_all=True, with_heart=False)
            try:
                for _ in range(2 * int(LEASE_S)):
                    if not crew.look().of_others:
                        break
                    self.clock.advance(1.0)
                for lease in list(crew.leases.values()):
                    runner._drain(lease)
            finally:
                crew.leave()

    def rebucket(self, life: Life, who: str, buckets: int) -> None:
        """Give it other buckets, and export meanwhile."""
        deed = self.ledger.begin(who, f"rebucket {buckets}", _rebucketed(buckets))
        fate = self._fate(life)
        places = Places.of(self.manager(life).session.catalog, QUEUE)
        try:
            known = self._queue(life)._find()
            if known.successor is None and known.buckets == buckets:
                self.ledger.end(deed, was_done=True)
                return
            handle: OperationHandle = _submitted(fate, places, known, buckets)
        except OmidError as error:
            self.ledger.end(deed, was_done=False, told=f"{type(error).__name__}: {error}")
            return
        self.operations[deed] = handle.id
        self._carry_on(fate, lambda: handle.status not in (*RUNNABLE, Status.NEW), life, PATIENCE)
        self.note_ends()

    def run(self, life: Life, who: str) -> None:
        """Carry out whatever others have left, and export."""
        del who
        fate = self._fate(life)

        def is_over() -> bool:
            return not any(
                one.status in RUNNABLE and one.name == KIND for one in fate.store.in_order()
            )

        self._carry_on(fate, is_over, life, LOOKS)
        self.export(life, "run")

    def _fate(self, life: Life) -> Fate:
        tools = RebucketTools(self.manager(life), sleep=self.clock.advance)
        return Fate(tools, TableFateStore(tools.tm.store), {KIND: 1}, clock=self.clock)

    def _carry_on(self, fate: Fate, is_over: Callable[[], bool], life: Life, looks: int) -> None:
        """Carry out operations until that is over, or for as long as it makes sense."""
        for look in range(looks):
            wait_s = fate.run_pending()
            if is_over():
                break
            if look % 5 == 0:
                self.export(life, "operator")
            self.clock.advance(min(wait_s or 1.0, 1.0))
        fate.close()
