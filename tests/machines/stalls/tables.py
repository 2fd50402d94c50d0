"""Operators' verbs on one table as actors, and what each of them means.

    scene = Scene()
    life = scene.play("drop", Moment(5, Ending.STALLS), ["run", "create", "put"])
    scene.judge()

A scene is a store with a table that clients have written: a transaction that is complete, one whose
shadow cells are missing, one whose client died before its commit, and two that are still open.  The
first of those commits while the first actor stands still, the second at the end.

To add a verb: a method of `Verbs`, its meaning in `MEANINGS`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias, TypeVar

from compactor.options import Options
from compactor.report import RUNS_KEPT, RunLog, new_run
from compactor.run.local import compact
from compactor.tables.adoption import adopt, plan_adoption
from omidpy import admin
from omidpy.base.cells import encode_long
from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE, INCARNATION_ATTRIBUTE, OMID_ENABLED
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import FateError, OmidError, StorageUnavailable
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.control import ControlTable
from omidpy.facts.holds import hold
from omidpy.facts.tables.makers import Makers
from omidpy.fate import Fate, Locks, Status, TableFateStore
from omidpy.fate.operation import RUNNABLE, FateId
from omidpy.fate.running.sweep import SWEEP_EVERY_S, Keep, Sweeper
from omidpy.fate.store import FateStore
from omidpy.manager import TransactionManager
from omidpy.model import TIMESTAMP_STEP, Cell, FamilySchema, TableSchema, Timestamp
from omidpy.reading.visibility import shadow_column, sort_row
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.storage.memory import MemoryStore
from omidpy.tx.transaction import Transaction
from tests.machines.naive_oracle import NaiveOracle
from tests.machines.stalls.ledger import Action, Deed, Ledger, State, Way, done, refused
from tests.machines.stalls.lives import (
    LONGEST_S,
    Actor,
    Ending,
    Life,
    LivingStore,
    Moment,
    answer,
    living_oracle,
    play,
)
from tests.machines.waiting import wait_for

TABLE: Final = "accounts"
FAMILY: Final = b"cf"
COLUMN: Final = b"cf:q"
NO_GRACES: Final = Options(grace_s=0.0, invalidation_grace_s=0.0, retention_s=0.0)
LOOKS: Final = 300
"""How often somebody looks whether an operation is over, a second of his clock apart."""

OURS: Final = "ours"
ABSENT: Final = "absent"
JAVAS: Final = "Java's"
"""A table that Omid's clients have written, and that nobody has adopted."""
UNDATED: Final = "ours, of an earlier version"
"""It has no incarnation yet."""

T = TypeVar("T")

MakeFates: TypeAlias = Callable[[Store, Life], FateStore]


class Table(NamedTuple):
    """What is there, if there is a table: the state that a ledger knows."""

    is_ours: bool
    rows: frozenset[tuple[bytes, bytes]]


# -- what verbs mean -------------------------------------------------------------------------------


def _created(state: State) -> list[Way]:
    return done(Table(is_ours=True, rows=frozenset())) if state is None else refused(state)


def _removed(state: State) -> list[Way]:
    return done(None) if isinstance(state, Table) and state.is_ours else refused(state)


def _made_unless_there(state: State) -> list[Way]:
    return done(state or Table(is_ours=True, rows=frozenset()))


def _adopted(state: State) -> list[Way]:
    if isinstance(state, Table):
        return [*done(state._replace(is_ours=True)), *refused(state)]
    return refused(state)


def _untouched(state: State) -> list[Way]:
    return [*done(state), *refused(state)]


def _gone(state: State) -> list[Way]:
    del state
    return done(None)


def _put(row: bytes, value: bytes) -> Action:
    def act(state: State) -> list[Way]:
        if not isinstance(state, Table) or not state.is_ours:
            return refused(state)
        rows = frozenset({**dict(state.rows), row: value}.items())
        return [*done(state._replace(rows=rows)), *refused(state)]

    return act


def _made_of_java(row: bytes, value: bytes) -> Action:
    def act(state: State) -> list[Way]:
        del state
        return done(Table(is_ours=False, rows=frozenset({(row, value)})))

    return act


MEANINGS: Final[dict[str, tuple[Action, ...]]] = {
    "create": (_created,),
    "drop": (_removed,),
    "truncate": (_removed, _made_unless_there),  # for a moment there is no such table
    "adopt": (_adopted,),
    "fence": (_untouched,),
    "compact": (_untouched,),
    "resume": (_untouched,),
    "grow old": (_untouched,),
    "run": (),
    "sweep": (),
    "put": (),  # each writes a row of its own
    "make": (_created,),
    "replace by Java's": (_gone, _made_of_java(b"java", b"new")),
}
VERBS: Final = ("create", "drop", "truncate", "adopt", "fence", "compact", "resume")
"""What operators ask for; `run` is a daemon that carries out what others have left."""


class Beginning(NamedTuple):
    """How the first actor begins."""

    verb: str
    standing: str = OURS
    earlier: tuple[tuple[str, str], ...] = ()
    """What was done before: verbs, and in which function or class each has died, if in any."""

    def __str__(self) -> str:
        """Say it in a line, for the name of a test."""
        before = [f"{verb} died at {at}" if at else verb for verb, at in self.earlier]
        return ", ".join(
            [*before, self.verb if self.standing == OURS else f"{self.verb} on {self.standing}"]
        )


BEGINNINGS: Final = (
    Beginning("create", ABSENT),
    Beginning("create", OURS, (("drop", ""),)),
    Beginning("drop"),
    Beginning("drop", UNDATED),
    Beginning("drop", OURS, (("compact", ""),)),
    Beginning("truncate"),
    Beginning("truncate", OURS, (("compact", ""),)),
    Beginning("adopt", JAVAS),
    Beginning("fence"),
    Beginning("compact"),
    Beginning("compact", ABSENT),
    Beginning("compact", OURS, (("grow old", ""),)),
    Beginning("compact", OURS, (("compact", "RangePass.claim"),)),
    Beginning("compact", OURS, (("compact", "SlicePruner.remove"),)),
    Beginning("compact", OURS, (("compact", ""), ("drop", ""), ("create", ""), ("put", ""))),
    Beginning("resume", OURS, (("compact", "RangePass.claim"),)),
    Beginning("resume", OURS, (("compact", "SlicePruner.remove"),)),
    Beginning("run", OURS, (("drop", "remove_closed"),)),
    Beginning("run", OURS, (("truncate", "Makers.make_table"),)),
    Beginning("sweep", OURS, (("drop", ""), ("create", "Fence.do"))),
)
"""Every beginning from which a verb has changes of its own to make."""


# -- the scene -------------------------------------------------------------------------------------


def fates_in_the_store(store: Store, life: Life) -> FateStore:
    """Return the operations of a store, whose changes are the store's."""
    del life
    return TableFateStore(store)


_moments: dict[tuple[object, ...], Moment] = {}


class Scene:
    """A store with a table, an oracle, a clock that others turn, and a ledger."""

    def __init__(
        self,
        standing: str = OURS,
        make_store: Callable[[], Store] = MemoryStore,
        make_fates: MakeFates = fates_in_the_store,
        expire: Callable[[Life], object] = lambda _: None,
    ) -> None:
        """Let clients write and die.

        Args:
            standing: What there is at the beginning.
            make_store: Makes an empty store.
            make_fates: Returns the store of operations that an actor has.
            expire: Ends the session of who stands still, where turning the clock does not.
        """
        self.clock = ManualClock()
        self.store = make_store()
        self.oracle = NaiveOracle(self.store)
        self.make_fates = make_fates
        self.expire = expire
        self.writers: list[Transaction] = []
        self.rows = 0
        self.operations: dict[Deed, FateId] = {}
        initial = self._written()
        if standing == OURS:
            self._begin_writers()
        if standing == UNDATED:
            self.store.set_table_attributes(TABLE, {INCARNATION_ATTRIBUTE: None})
        if standing == JAVAS:
            self.store.set_table_attributes(TABLE, {COMMIT_TABLE_ATTRIBUTE: None})
            initial = initial._replace(is_ours=False)
        if standing == ABSENT:
            self.store.drop_table(TABLE)
        self.ledger = Ledger(None if standing == ABSENT else initial)
        self.verbs = Verbs(self)

    @classmethod
    def after(cls, beginning: Beginning, *where: object) -> Scene:
        """Return a scene in which what came earlier was done; `where` as to make one."""
        scene = cls(beginning.standing, *where)  # type: ignore[arg-type]  # passed on
        for count, (verb, at) in enumerate(beginning.earlier):
            moment = None
            if at:
                before = beginning._replace(earlier=beginning.earlier[:count])
                moment = _moment_at(before, verb, at)
            life = Life(moment)
            play(scene.verbs.actor("earlier", verb), life, [])
            scene.expire(life)
            assert life.is_dead == bool(at), f"{verb} has no change at {at}"
        return scene

    def _written(self) -> Table:
        """Let clients commit, complete or not, and die."""
        tm, hasty = self.manager(self.store), self.manager(self.store, "none")
        tm.create_table(TABLE, [FAMILY.decode()], splits=[b"m"])
        for value in (b"old", b"new"):
            for client, row in ((tm, b"a complete"), (hasty, b"z unhealed")):
                with client.begin() as tx:
                    tx.table(TABLE).put(row, {COLUMN: value})
        for row in (b"b dead", b"c dead", b"m dead"):
            dead = tm.begin()
            dead.table(TABLE).put(row, {COLUMN: b"never"})
            dead.token()  # it flushes, and expects workers
        hold(tm.session.watermarks, tm.begin().start_ts, self.clock, for_s=1.0)
        self.clock.advance(2.0)
        # A client of Omid's has rolled back what a reader had healed.
        start_ts = tm.begin().start_ts
        shadow = shadow_column(Cell(b"c orphan", FAMILY, b"q", start_ts, b""))
        put = Put(*shadow, start_ts, encode_long(tm.begin().start_ts))
        self.store.write({TABLE: [RowMutation(b"c orphan", (put,))]})
        self.raise_low_watermark()
        rows = {b"a complete": b"new", b"z unhealed": b"new"}
        return Table(is_ours=True, rows=frozenset(rows.items()))

    def _begin_writers(self) -> None:
        """Let two clients write, who commit later."""
        tm = self.manager(self.store)
        for number in range(2):
            tx = tm.begin()
            tx.table(TABLE).put(b"writer %d" % number, {COLUMN: b"1"})
            tx.flush()
            self.writers.append(tx)

    def manager(self, store: Store, post_commit: str = "sync") -> TransactionManager:
        """Return a client of its own."""
        return TransactionManager(store, self.oracle, post_commit=post_commit, clock=self.clock)

    def raise_low_watermark(self) -> None:
        """Let the oracle forget what is older than the oldest open transaction."""
        last = self.oracle.begin().start_ts
        oldest = min((tx.start_ts for tx in self.writers), default=last)
        to = Timestamp(max(self.oracle.low_watermark, oldest - TIMESTAMP_STEP))
        self.oracle.raise_low_watermark(to)

    # -- a play --------------------------------------------------------------------------------

    def play(self, first: str, moment: Moment | None, others: Sequence[str]) -> Life:
        """Let verbs meet: the first pauses or dies at a moment, and others come meanwhile."""
        return self.play_life(first, Life(moment), others)

    def play_life(self, first: str, life: Life, others: Sequence[str]) -> Life:
        """Do so with a life that is given."""
        expiry = Actor("time", lambda _: self.expire(life))
        write = Actor("the first writer", lambda _: self.commit_writer())
        cast = [self.verbs.actor(f"other {n}", verb) for n, verb in enumerate(others, start=1)]
        play(self.verbs.actor("first", first), life, [expiry, *cast, write])
        return life

    def commit_writer(self) -> None:
        """Let the next open transaction commit, if there is one."""
        if not self.writers:
            return
        tx = self.writers.pop(0)
        row = b"writer %d" % (1 - len(self.writers))
        deed = self.ledger.begin("writer", f"commit {row!r}", _put(row, b"1"))
        was_done, told = answer(tx.commit)
        self.ledger.end(deed, was_done=was_done, told=told)

    def judge(self) -> None:
        """Let everything come to its end, and hold what is left to the ledger."""
        self.verbs.run(Life(), "judge")
        self.note_ends()
        while self.writers:
            self.commit_writer()
        self.ledger.check(self.found())
        self.raise_low_watermark()
        compact(self.store, NO_GRACES, clock=self.clock, sleep=self.clock.advance)
        self.ledger.check(self.found())
        fates = self.make_fates(self.store, Life())
        locks = Locks(fates)
        locks.release_dangling()  # as executors do now and then
        assert locks.states() == []
        assert [one for one in fates.in_order() if one.status in RUNNABLE] == []

    def note_ends(self) -> None:
        """Write into the ledger which operations have ended, whoever carried them out."""
        fates = self.make_fates(self.store, Life())
        for deed, operation_id in self.operations.items():
            found = fates.read(operation_id)
            if found is not None and found.is_finished:
                was_done = found.status is Status.SUCCESSFUL
                self.ledger.end(deed, was_done=was_done, told=str(found.exception or ""))

    def found(self) -> Table | None:
        """Return what a client sees who comes now."""
        schema = next((one for one in self.store.tables() if one.name == TABLE), None)
        if schema is None or Makers(self.store).is_ghost(schema):
            return None
        if schema.attributes.get(COMMIT_TABLE_ATTRIBUTE) is None:
            cells = [cell for page in self.store.scan(TABLE) for row in page for cell in row]
            healed = {(key[0], key[2]) for key in _shadows(cells)}
            seen = {
                cell.row: cell.value
                for cell in reversed(sort_row(cells).data)  # the newest is the last word
                if (cell.row, cell.version) in healed or cell.row == b"z unhealed"
            }
            return Table(is_ours=False, rows=frozenset(seen.items()))
        with self.manager(self.store).begin(read_only=True) as tx:
            rows = {row: data[COLUMN] for row, data in tx.table(TABLE).scan()}
        return Table(is_ours=True, rows=frozenset(rows.items()))


def _insistently(work: Callable[[], T]) -> T:
    """Do it again while nobody answers, as whoever loses his session does; not in memory."""
    found: list[T] = []

    def is_answered() -> bool:
        with contextlib.suppress(StorageUnavailable):
            found.append(work())
        return bool(found)

    wait_for(is_answered, LONGEST_S)
    return found[0]


def _moment_at(before: Beginning, verb: str, at: str) -> Moment:
    """Return the moment at which a verb dies that comes to a function for the first time."""
    if (before, verb, at) not in _moments:
        life = Scene.after(before).play(verb, None, [])
        numbers = [n for n, made in enumerate(life.made, 1) if any(one.is_in(at) for one in made)]
        _moments[before, verb, at] = Moment(numbers[0], Ending.DIES_BEFORE)
    return _moments[before, verb, at]


def _shadows(cells: Sequence[Cell]) -> list[tuple[bytes, bytes, int]]:
    return [
        (cell.row, cell.qualifier, cell.version)
        for cell in cells
        if cell.qualifier.endswith(b"\xc2\x80")
    ]


class Verbs:
    """What an actor does; each method takes a life and who it is."""

    def __init__(self, scene: Scene) -> None:
        """Act on a scene."""
        self._scene = scene
        self._clock = scene.clock
        self._by_name: dict[str, Callable[[Life, str], None]] = {
            "create": lambda life, who: self._change(
                life, who, "create", lambda tm: admin.creation(tm, TABLE, [FAMILY])
            ),
            "drop": lambda life, who: self._change(
                life, who, "drop", lambda tm: admin.removal(tm, TABLE)
            ),
            "truncate": lambda life, who: self._change(
                life, who, "truncate", lambda tm: admin.truncation(tm, TABLE)
            ),
            "adopt": self.adopt,
            "fence": self.fence,
            "compact": self.compact,
            "resume": self.resume,
            "grow old": self.grow_old,
            "run": self.run,
            "sweep": self.sweep,
            "put": self.put,
            "make": self.make,
            "replace by Java's": self.replace,
        }

    def actor(self, who: str, verb: str) -> Actor:
        """Return an actor that does a verb."""
        act = self._by_name[verb]
        return Actor(f"{who} ({verb})", lambda life: act(life, who), self._scene.note_ends)

    # -- operations ----------------------------------------------------------------------------

    def _change(
        self,
        life: Life,
        who: str,
        verb: str,
        make: Callable[[TransactionManager], admin.TableChange],
    ) -> None:
        """Submit a change of the table as `admin` does, and carry it out in this thread."""
        ledger = self._scene.ledger
        deed = ledger.begin(who, verb, *MEANINGS[verb])
        store = LivingStore(self._scene.store, life)
        try:
            kind, step, key = make(self._scene.manager(store))
        except OmidError as error:
            ledger.end(deed, was_done=False, told=f"{type(error).__name__}: {error}")
            return
        fate = self._fate(store, life)
        try:
            handle = _insistently(lambda: fate.submit(kind, step, key=key))
        except FateError:  # it was swept away before it could run: as if he had not asked
            ledger.deeds.remove(deed)
            return
        self._scene.operations[deed] = handle.id
        self._carry_on(fate, lambda: handle.status not in (*RUNNABLE, Status.NEW))
        if (
            _insistently(handle.read) is not None
        ):  # else its outcome was swept away, and nobody is told
            was_done, told = answer(lambda: handle.result(timeout=0))
            ledger.end(deed, was_done=was_done, told=told)

    def _fate(self, store: Store, life: Life) -> Fate:
        fates = self._scene.make_fates(store, life)
        oracle = living_oracle(self._scene.oracle, life)
        tools = admin.TableTools(store, oracle, Locks(fates))
        return Fate(tools, fates, {",".join(admin.TABLE_KINDS): 1}, clock=self._clock)

    def _carry_on(self, fate: Fate, is_over: Callable[[], bool]) -> None:
        for look in range(LOOKS):
            if look % SWEEP_EVERY_S == SWEEP_EVERY_S - 1:
                fate.locks.release_dangling()  # as the threads of executors do now and then
            wait_s = _insistently(fate.run_pending)
            if _insistently(is_over):
                fate.close()
                return
            self._clock.advance(min(wait_s or 1.0, 1.0))
        raise AssertionError(f"never finished: {fate.store.in_order()}")

    def run(self, life: Life, who: str) -> None:
        """Carry out whatever others have left."""
        del who
        fate = self._fate(LivingStore(self._scene.store, life), life)
        kinds = admin.TABLE_KINDS
        self._carry_on(
            fate,
            lambda: (
                not any(
                    one.status in RUNNABLE and one.name in kinds for one in fate.store.in_order()
                )
            ),
        )

    def sweep(self, life: Life, who: str) -> None:
        """Remove what is left of operations that are over, as executors do now and then."""
        del who
        fates = self._scene.make_fates(LivingStore(self._scene.store, life), life)
        judge = fates.new_judge(self._clock)
        # Twice a lease: whoever shows no life meanwhile is dead.
        for _ in range(20):
            judge.dead(fates.worker_names())
            self._clock.advance(1.0)
        Sweeper(fates, judge, self._clock, Keep(finished_s=0, new_s=0)).sweep()

    # -- calls ---------------------------------------------------------------------------------

    def fence(self, life: Life, who: str) -> None:
        """Fence the table."""
        self._call(who, "fence", lambda: self._manager(life).fence(TABLE))

    def make(self, life: Life, who: str) -> None:
        """Make the table as a client does, whatever operation waits for it."""
        manager = self._manager(life)
        self._call(who, "make", lambda: manager.create_table(TABLE, [FAMILY.decode()]))

    def adopt(self, life: Life, who: str) -> None:
        """Adopt the table."""
        store = LivingStore(self._scene.store, life)

        def work() -> None:
            adopt(store, plan_adoption(store, TABLE, COMMIT_TABLE), COMMIT_TABLE)

        self._call(who, "adopt", work)

    def compact(self, life: Life, who: str) -> None:
        """Compact the store."""
        self._compact(life, who, "compact", NO_GRACES)

    def resume(self, life: Life, who: str) -> None:
        """Go on with the compaction that somebody has left."""
        self._compact(life, who, "resume", replace(NO_GRACES, should_resume=True))

    def _compact(self, life: Life, who: str, verb: str, options: Options) -> None:
        self._scene.raise_low_watermark()
        store, clock = LivingStore(self._scene.store, life), self._clock

        def sleep(seconds: float) -> None:
            # A look a second is as good as four, and the lease is over after as many.
            clock.advance(4 * seconds)

        self._call(who, verb, lambda: compact(store, options, clock=clock, sleep=sleep))

    def grow_old(self, life: Life, who: str) -> None:
        """Let there have been so many compactions that the next one forgets some."""
        del life, who
        runs = RunLog(ControlTable(self._scene.store))
        for number in range(RUNS_KEPT + 1):
            runs.write(new_run(now_ms=number))

    def put(self, life: Life, who: str) -> None:
        """Commit a row of its own, and leave its shadow cell to others."""
        self._scene.rows += 1
        row, value = b"put %d" % self._scene.rows, who.encode()

        def work() -> None:
            with self._manager(life).begin() as tx:
                tx.table(TABLE).put(row, {COLUMN: value})

        self._call(who, f"put {row!r}", work, _put(row, value))

    def replace(self, life: Life, who: str) -> None:
        """Drop the table, and make another one of Omid's clients by its name.

        No fence is set by that, and who had written the old one is gone, too.
        """
        del life
        scene = self._scene
        scene.writers.clear()
        store = scene.store

        def work() -> None:
            if any(one.name == TABLE for one in store.tables()):
                store.drop_table(TABLE)
            store.create_table(TableSchema(TABLE, [FamilySchema(FAMILY, {OMID_ENABLED: "true"})]))
            start_ts, commit_ts = scene.oracle.begin().start_ts, scene.oracle.begin().start_ts
            cell = Cell(b"java", FAMILY, b"q", start_ts, b"new")
            puts = (
                Put(FAMILY, b"q", start_ts, b"new"),
                Put(*shadow_column(cell), start_ts, encode_long(commit_ts)),
            )
            store.write({TABLE: [RowMutation(b"java", puts)]})

        self._call(who, "replace by Java's", work)

    def _call(self, who: str, name: str, work: Callable[[], object], *actions: Action) -> None:
        ledger = self._scene.ledger
        deed = ledger.begin(who, name, *(actions or MEANINGS[name]))
        was_done, told = answer(work)
        ledger.end(deed, was_done=was_done, told=told)

    def _manager(self, life: Life) -> TransactionManager:
        store = LivingStore(self._scene.store, life)
        oracle = living_oracle(self._scene.oracle, life)
        return TransactionManager(store, oracle, post_commit="none", clock=self._clock)
