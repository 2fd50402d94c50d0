"""One run: two oracles, four clients, a store, everything that goes wrong, and the judgement.

Clients do the workloads of `omidpy.testing` by the real manager, transactions and oracle client.
When all is over and mended, a last client settles what nobody knows, and reads everything; then the
history is judged by the checkers, and by the watch on the wire and the store.
"""

from __future__ import annotations

import logging
import random
import secrets
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias
from unittest import mock

from compactor.options import Options
from compactor.ranges.range_pass import RangePass
from compactor.run.plan import Compaction
from omidpy.base.cells import is_shadow_qualifier
from omidpy.base.reach import listening
from omidpy.base.timing import pauses
from omidpy.commit.outcome import OutcomeFinder
from omidpy.committers.heads import head as heads
from omidpy.committers.heads import listing
from omidpy.connect import make_publisher
from omidpy.errors import OmidError, OracleUnavailable, StorageError
from omidpy.facts.commit_table import CommitTable
from omidpy.facts.leadership import lease_address
from omidpy.facts.writers import read_writer_key
from omidpy.fate.zookeeper import store as fate_znodes
from omidpy.manager import TransactionManager
from omidpy.model import (
    Aborted,
    CellId,
    Committed,
    TableCells,
    TableId,
    Timestamp,
    Undecided,
    base,
)
from omidpy.oracle.base import Begun, CommitGranted, CommitVerdict
from omidpy.oracle.tcp import TcpOracle
from omidpy.oracle.zookeeper import ZooKeeperAddress
from omidpy.reading.resolution import TableCell
from omidpy.recipes.export_queue import ExportQueue
from omidpy.testing import clients
from omidpy.testing.clients import Client, Workload, check, run, take_last_looks
from omidpy.testing.history import Event, Recorded, Recorder, Told, transactions
from omidpy.testing.workloads import standard_workloads
from tests.machines.simulator.committers import (
    COMMITTERS,
    JOBS,
    RESCUERS,
    Committing,
    JobLedger,
    Rescuer,
)
from tests.machines.simulator.compactors import (
    COMPACTORS,
    FOR_EVER_S,
    Compactor,
    without_threads,
)
from tests.machines.simulator.crowds import CROWDS, Crowd, CrowdedCells
from tests.machines.simulator.ensemble import ENSEMBLE, HOSTS, Ensemble, OmidsOracle
from tests.machines.simulator.exporters import (
    BUCKETS,
    EXPORTERS,
    QUEUE,
    Adder,
    Exporting,
    Receiver,
    exporting_without_threads,
)
from tests.machines.simulator.followers import FOLLOWERS, Follower
from tests.machines.simulator.heavies import Heavies
from tests.machines.simulator.holders import HOLDERS, Holder
from tests.machines.simulator.instance import Instance, Surroundings
from tests.machines.simulator.jugglers import JUGGLERS, Juggled, Juggler
from tests.machines.simulator.keepers import KEEPERS, Keeper, finishing_without_threads
from tests.machines.simulator.network import Network, Weather
from tests.machines.simulator.objects import (
    ObjectChances,
    SharedObjects,
    SimObjectStore,
    objects_of,
)
from tests.machines.simulator.operators import LATEST_WRITE_S, OPERATORS, Operator, Records
from tests.machines.simulator.plan import (
    ALONE,
    CLIENTS,
    FOCI,
    ORACLES,
    USUAL,
    Fault,
    Focus,
    Plan,
    drawn_plan,
)
from tests.machines.simulator.retriers import RETRIERS, Orders, Retrier
from tests.machines.simulator.rolling import Sides
from tests.machines.simulator.sharers import (
    HELPERS,
    SHARERS,
    Board,
    Helper,
    ShareHabits,
    Sharer,
)
from tests.machines.simulator.store import (
    CAPABILITIES,
    STORE,
    Chances,
    SharedStore,
)
from tests.machines.simulator.strangers import STRANGERS, Stranger
from tests.machines.simulator.watch import Sought, Watch, committed_in, name_of
from tests.machines.simulator.world import Process, Program, SimClock, World, on_one_core
from tso.core.machine import Machine
from tso.durable import persist
from tso.durable.lease import Lease
from tso.durable.persist import StorePersistence
from tso.durable.zk_lease import ZooKeeperLease
from tso.serving import turns

PATIENCE_S: Final = 120.0
"""In so much virtual time everything must work again after the last fault."""

MOST_TRIES: Final = 3
"""How often an outcome is asked for, within that time."""

FEW_DECISIONS: Final = 64
"""An oracle that remembers so few has forgotten one before a message comes that was late."""

TABLES: Final = "v"


Working: TypeAlias = (
    Compactor
    | Exporting
    | Operator
    | Committing
    | Rescuer
    | Keeper
    | Sharer
    | Helper
    | Retrier
    | Stranger
    | Holder
    | Juggler
)
"""Whoever works beside oracles and clients, but for crowds."""


class NotQuiet(Exception):
    """Something has not ended though nothing goes wrong any more."""


class Patch(NamedTuple):
    """A part that nobody hands in, in place of another."""

    owner: Any
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Parts:
    """What the world is made of: the product, or a broken variant of a part."""

    machine: Callable[..., Machine[Any]] = Machine
    persistence: Callable[..., StorePersistence] = StorePersistence
    lease: Callable[..., Lease] = Lease
    znode_lease: Callable[..., ZooKeeperLease] = ZooKeeperLease
    oracle: Callable[..., TcpOracle] = TcpOracle
    manager: Callable[..., TransactionManager] = TransactionManager
    outcomes: Callable[..., OutcomeFinder] = OutcomeFinder
    compaction: type[Compaction] = Compaction
    range_pass: type[RangePass] = RangePass
    patches: tuple[Patch, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a seed."""

    seed: int
    plan: Plan
    digest: str
    findings: tuple[str, ...]
    counts: Counter[str]
    simulated_s: float
    reached: frozenset[str]
    """Marks of the product (`omidpy/base/reach.py`)."""
    last_events: tuple[str, ...] = field(repr=False)
    focus: Focus = USUAL
    story: tuple[str, ...] = field(default=(), repr=False)
    """Everything that happened, if that was to be kept."""
    done: tuple[tuple[str, int], ...] = field(default=(), repr=False)
    """Which transactions of clients were done: of whom, and how many came before."""

    def __str__(self) -> str:
        """Say what is needed to look into it."""
        return "\n".join(
            (
                f"seed {self.seed}, {self.simulated_s:.1f} s, hash {self.digest[:16]}",
                str(self.plan),
                *(f"FOUND {one}" for one in self.findings),
                "the last events:",
                *(f"  {one}" for one in self.last_events),
                f"again: {self.again}",
            )
        )

    @property
    def again(self) -> str:
        """What runs this seed again."""
        for name, focus in FOCI.items():
            if focus == self.focus:
                which = "" if focus == USUAL else f" FOCUS={name}"
                return f"make simulate SEEDS=1 FIRST={self.seed}{which}"
        usual = zip(self.focus._fields, self.focus, USUAL, strict=True)
        drawn = ", ".join(f"{name}={ours!r}" for name, ours, theirs in usual if ours != theirs)
        return f"simulate({self.seed}, PRODUCT, Focus({drawn}))"


PRODUCT: Final = Parts()


class Mutant(NamedTuple):
    """The product with something broken on purpose, and how that is found."""

    parts: Parts
    finding: str
    """What is found: its name, which stands before the colon; any one of those between `|`."""
    focus: Focus = ALONE
    """A world in which what is broken is common."""

    def is_found(self, seed: int) -> bool:
        """Say whether a seed finds it, by its name."""
        report = simulate(seed, self.parts, self.focus, until_found=self.finding)
        return not set(self.finding.split("|")).isdisjoint(map(name_of, report.findings))


def simulate(
    seed: int,
    parts: Parts = PRODUCT,
    focus: Focus = USUAL,
    *,
    until_found: str | None = None,
    plan: Plan | None = None,
    keeps_story: bool = False,
) -> Report:
    """Run one seed.

    Args:
        seed: Which.
        parts: What the world is made of.
        focus: What the seed draws its plan from.
        until_found: Go no further once this is found.
        plan: What goes wrong, in place of what the seed draws.
        keeps_story: Keep everything that happens.
    """
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        simulation = Simulation(seed, parts, focus, until_found, plan or drawn_plan(seed, focus))
        if keeps_story:
            simulation.world.story = []
        with (
            on_one_core(),
            chance_of(simulation.world),
            simulation.world.nothing_waits(),
            listening(simulation.reached.add),
            without_threads(),
            exporting_without_threads(),
            objects_of(simulation.objects),
            finishing_without_threads(simulation.world, simulation.lease_s),
            patched(simulation.choices()),
            patched(parts.patches),
            simulation.sides.beside(),
        ):
            try:
                simulation.run()
            finally:
                simulation.world.end()
    finally:
        logging.disable(level)
    return simulation.report()


@contextmanager
def patched(patches: Sequence[Patch]) -> Iterator[None]:
    """Put parts in their places, and take them out again."""
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(mock.patch.object(*patch))
        yield


@contextmanager
def chance_of(world: World) -> Iterator[None]:
    """Let a seed draw whatever the product draws by chance, names among it.

    Whichever process asks has dice of its own.
    """

    def names() -> random.Random:
        return _dice_of_running(world, "names")

    draws = (
        Patch(pauses, "dice", _PausesOf(world)),
        Patch(uuid, "uuid4", lambda: uuid.UUID(int=names().getrandbits(128), version=4)),
        Patch(secrets, "randbits", lambda bits: names().getrandbits(bits)),
        Patch(secrets, "token_bytes", lambda size: names().randbytes(size)),
        Patch(secrets, "token_hex", lambda size: names().randbytes(size).hex()),
    )
    with patched(draws):
        yield


def _dice_of_running(world: World, purpose: str) -> random.Random:
    program = world.running
    return world.dice(purpose) if program is None else program.process.dice(purpose)


class _PausesOf:
    """What pauses are drawn by, for each process by its own."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        """Draw in any way."""
        return getattr(_dice_of_running(self._world, "pauses"), name)


class Simulation:
    """One world, from its first event to its judgement."""

    def __init__(
        self, seed: int, parts: Parts, focus: Focus, until_found: str | None, plan: Plan
    ) -> None:
        self.world = World(seed)
        self.reached: set[str] = set()
        self._seed = seed
        self._parts = parts
        self._focus = focus
        self._plan = plan
        self._others = self._plan.others
        forgets = self._plan.settings.decision_memory < FEW_DECISIONS
        self._watch = Watch(self.world, forgets_decisions=forgets, until_found=until_found)
        self._weather = Weather(self.world)
        self._network = Network(self.world, self._weather)
        self._store = SharedStore(self.world, self._weather, self._watch, self._plan.store_kind)
        self._store.page_rows = self._plan.choices.page_rows
        self._store.disk.is_watched = any(one.kind == "power" for one in self._plan.faults)
        heavy = self._plan.choices.heavy
        znodes = self._others.ensemble
        self._ensemble = Ensemble(self.world, self._weather, self._store) if znodes else None
        self._znode_address = ZooKeeperAddress(
            HOSTS,
            timeout_s=znodes.timeout_s if znodes else 10.0,
            period_s=self._plan.oracle_lease_s,
        )
        self._around = Surroundings(
            self.world,
            self._network,
            self._store,
            self._plan.settings,
            self._plan.oracle_lease_s,
            parts,
            self._others.strange_habits.connection_count if self._others.strangers else None,
            heavy.slice_s if heavy else 0.0,
            self._ensemble,
            dict.fromkeys(znodes.oracles if znodes else (), self._znode_address),
        )
        self.objects = SharedObjects(
            self.world, self._weather, is_strict=self._others.commit_habits.is_strict
        )
        self.objects.has_late_plans = self._others.commit_habits.kept > FEW_DECISIONS
        self._jobs = JobLedger(self.world, self.objects, self._watch.found)
        skew_ms = self._plan.clock_skew_ms
        self._clocks = {
            name: SimClock(
                self.world,
                name,
                ahead_ms=self.world.dice("clock", name).randint(-skew_ms, skew_ms),
            )
            for name in (*ORACLES, *CLIENTS, "judge")
        }
        others_names = (
            *COMPACTORS,
            *EXPORTERS,
            *OPERATORS,
            *CROWDS,
            *COMMITTERS,
            *RESCUERS,
            *KEEPERS,
            *SHARERS,
            *HELPERS,
            *RETRIERS,
            *STRANGERS,
            *FOLLOWERS,
            *JUGGLERS,
            *HOLDERS,
        )
        self._clocks |= {name: SimClock(self.world, name, ahead_ms=0) for name in others_names}
        has_keepers = bool(self._others.keepers)
        self._adder = Adder(self.world, keeps_queues=has_keepers)
        self._records = Records()
        self._receiver = Receiver(
            self.world,
            is_fencing=self._others.is_fencing,
            trouble=self._others.trouble,
            poison_share=self._others.keeper_habits.poison_share if has_keepers else 0.0,
        )
        self._instances: dict[str, Instance] = {}
        self._workers: dict[str, Process] = {}
        self._programs: dict[str, Program] = {}
        self._done: Counter[str] = Counter()
        """Transactions of each client, over all its processes."""
        self._crowded = CrowdedCells(TABLES)
        self._workloads: list[Workload] = [*standard_workloads(TABLES)]
        if self._others.crowds:
            self._workloads.append(self._crowded)
        self._board = Board(TABLES, self.world)
        if self._others.sharers:
            self._workloads.append(self._board)
        self._followers = {
            name: Follower(self.world, name, TABLES, self._others.follow_habits)
            for name in FOLLOWERS[: self._others.followers]
        }
        self._orders = Orders(TABLES, self.world)
        if self._others.retriers:
            self._workloads.append(self._orders)
        self._juggled = Juggled(TABLES, self.world)
        if self._others.jugglers:
            self._workloads += self._juggled, self._juggled.orders
        self._chosen = [one for one in self._workloads if one.name in self._plan.habits.workloads]
        if heavy is not None:
            self._workloads.append(heavies := Heavies(TABLES))
            self._chosen += [heavies] * 2
        self._events: list[Event] = []
        self._ticks = count(1)
        self._numbers = count()
        self._is_over = False
        self._is_mended = False
        self.sides = Sides(self, self._plan.before_share)

    @property
    def lease_s(self) -> float:
        """How long whoever is there beside oracles and clients may show no life."""
        return self._others.lease_s

    def choices(self) -> Sequence[Patch]:
        """Return what makes the product choose what it may, and seldom does."""
        chosen = self._plan.choices
        patches = []
        if chosen.few_at_once is not None:
            patches.append(Patch(persist, "MAX_AHEAD_COUNT", chosen.few_at_once))
        if chosen.turn_work is not None:
            patches.append(Patch(turns, "MAX_TURN_WORK", chosen.turn_work))
            patches.append(Patch(turns, "MIN_TURN_WORK", 1))
        if chosen.heavy is not None:
            patches += chosen.heavy.patches(Patch)
        if self._others.sharers:
            patches += ShareHabits.patches(self._others.share_habits, Patch)
        if self._others.jugglers:
            patches += self._juggled.patches(Patch)
        if self._ensemble is not None:
            patches.append(Patch(fate_znodes, "ZooKeeperSession", self._ensemble.session))
        if self._plan.chances.rotten:
            for ended_by in ("_AT_BEGIN", "_BEFORE_COMMIT"):
                errors = (*getattr(clients, ended_by), StorageError)
                patches.append(Patch(clients, ended_by, errors))
        habits = self._others.commit_habits
        patches.append(Patch(heads, "KEPT", habits.kept))
        patches.append(Patch(heads, "MOST", 2 * habits.kept))
        patches.append(Patch(heads, "MOST_YOUNG", 2 * habits.kept))
        if not self._plan.object_chances.late:
            # A plan that is refused since its time is closed goes, and with it who knew of a small
            # file that may be late: in the product a quarter of an hour is between the two.
            patches.append(Patch(heads, "YOUNG_MS", 0))
        patches.append(Patch(listing, "INLINE_BYTES", habits.list_bytes))
        return patches

    # -- a run -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Let it all happen."""
        try:
            for name in ORACLES:
                self._start_oracle(name)
            self._let(self._answers, "no oracle answers at the start")
            self._do_alone(self._prepare)
            self._store.chances = self._plan.chances
            self.objects.chances = self._plan.object_chances
            self._store.stalls = self.objects.stalls = self._plan.stalls
            self._weather.late_share = self._plan.habits.late_message_share
            began_s, busy_s = self.world.now_s, self._plan.busy_s
            for name in self._plan.clients:
                self._start_client(name, began_s + busy_s)
            for name in self._others.names():
                self._start_other(name, began_s + busy_s)
            for fault in self._plan.faults:
                self.world.at(fault.at_s, None, partial(self._strike, fault))
            if self._ensemble is not None:
                self._let_omids_stand_by(self._ensemble, began_s + busy_s)
            self.world.run(lambda: False, until_s=began_s + busy_s)
            self._mend()
            self._let(self._are_clients_done, "a client never ends")
            self._let(self._answers, "no oracle answers in the end")
            self._do_alone(self._judge)
            if self._followers:
                self._do_alone(self._follow)
            if self._others.exporters:
                self._finish_exports()
            if self._others.operators:
                self._finish_operations()
            if self._others.committers:
                self._finish_jobs()
            if self._others.compactors:
                self._tidy()
            history = transactions(self._events)
            attic = self._store.attic
            where = partial(committed_in, self._store.memory, attic.commits)
            self._watch.check_end(self._store.memory, history, where)
            if self._others.sharers:
                for one in self._board.found(self._store.memory, attic.cells[self._board.table]):
                    self._watch.found(one)
            for follower in self._followers.values():
                for one in follower.wrong(history, where):
                    self._watch.found(one)
            if self._others.retriers:
                for one in self._orders.found(where):
                    self._watch.found(one)
            if self._others.jugglers:
                for one in self._juggled.found(where):
                    self._watch.found(one)
            for anomaly in check(self._workloads, history):
                self._watch.found(f"{anomaly.name}: {anomaly.explanation}")
            self._count(history)
        except Sought:
            return
        except NotQuiet as error:
            self._watch.found(f"quiet: {error} within {PATIENCE_S:g} s after the last fault")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            self._watch.found(f"error: {type(error).__name__}: {error}")

    def report(self) -> Report:
        """Return what came of it."""
        return Report(
            self._seed,
            self._plan,
            self.world.digest,
            tuple(self._watch.findings),
            self.world.counts,
            self.world.now_s,
            frozenset(self.reached),
            tuple(self.world.last_events),
            self._focus,
            tuple(self.world.story or ()),
            tuple((name, number) for name, count in self._done.items() for number in range(count)),
        )

    def _let_omids_stand_by(self, ensemble: Ensemble, until_s: float) -> None:
        znodes = self._others.ensemble
        if znodes is not None and znodes.has_omids:
            omids, dice = OmidsOracle(ensemble, self._znode_address), self.world.dice("Omid's")
            self._watch.another_leads_since_s = lambda: omids.leads_since_s
            omids.stand_by(until_s, lambda: dice.uniform(1.0, 8.0))

    def _let(self, is_over: Callable[[], bool], complaint: str) -> None:
        if not self.world.run(is_over, until_s=self.world.now_s + PATIENCE_S):
            raise NotQuiet(complaint)

    def _answers(self) -> bool:
        return any(
            one.is_answering and one.process.paused_until_s <= self.world.now_s
            for one in self._instances.values()
        )

    def _are_clients_done(self) -> bool:
        return all(program.is_over for program in self._programs.values())

    def _do_alone(self, act: Callable[[Client], None]) -> None:
        process = self.world.process("judge", self._clocks["judge"])
        program = process.start(lambda: act(self._client(process)))
        self._let(lambda: program.is_over, "the judge never ends")

    def _prepare(self, client: Client) -> None:
        for workload in self._workloads:
            run(workload.prepare(client))
        if self._others.exporters:
            ExportQueue.create(client.tm, QUEUE, buckets=BUCKETS)
        if self._others.committers:
            client.tm.create_table(JOBS, ["cf"])

    def _count(self, history: Sequence[Recorded]) -> None:
        for one in history:
            self.world.counts[f"transactions {one.told}"] += 1
            self.world.hash(f"{one}")
        self.sides.count(history)

    # -- oracles and clients ---------------------------------------------------------------------

    def _start_oracle(self, name: str, after_s: float = 0.0) -> None:
        def start() -> None:
            if not self._is_over:
                process = self.world.process(name, self._clocks[name])
                instance = f"{name}#{process.number}"
                self._instances[name] = self.sides.of(process)._instance(
                    process, instance, lambda: self._start_oracle(name, 1.0)
                )

        self.world.at(after_s, None, start)

    def _instance(self, process: Process, name: str, on_end: Callable[[], None]) -> Instance:
        return Instance(self._around, process, name, on_end)

    def _start_client(self, name: str, until_s: float) -> None:
        process = self.world.process(name, self._clocks[name])
        side = self.sides.of(process)
        self._workers[name] = process
        self._programs[name] = process.start(lambda: side._work(process, until_s))

    def _start_other(self, name: str, until_s: float) -> None:
        process = self.world.process(name, self._clocks[name])
        if name in CROWDS:
            self._start_crowd(name, process, until_s)
            return
        if name in FOLLOWERS:
            self._start_follower(name, process, until_s)
            return
        dice = process.dice("work")
        other: Working
        side = self if name in (*STRANGERS, *JUGGLERS, *HOLDERS) else self.sides.of(process)
        if name in COMPACTORS:
            other = side._compactor(process)
        elif name in EXPORTERS:
            other = side._exporter(process)
        elif name in KEEPERS:
            other = side._keeper(process)
        elif name in SHARERS:
            other = side._sharer(process)
        elif name in STRANGERS:
            other = side._stranger(process)
        elif name in RETRIERS:
            other = side._retrier(process)
        elif name in HOLDERS:
            other = side._holder(process)
        elif name in HELPERS:
            other = side._helper(process)
        elif name in JUGGLERS:
            other = side._juggler(process)
        elif name in COMMITTERS:
            other = side._committing(process)
        elif name in RESCUERS:
            other = side._rescuer(process, side._objects_of(process))
        else:
            other = side._operator(process)
        self._workers[name] = process
        self._programs[name] = process.start(lambda: other.work(dice, until_s))

    def _start_crowd(self, name: str, process: Process, until_s: float) -> None:
        others = self._others
        is_java = (
            others.crowd_habits.tongue == "java"
            and self._plan.store_kind == "cluster"
            and not others.compactors
        )
        dice = process.dice("work")

        def work() -> None:
            crowd = Crowd(
                self.world,
                process,
                self._store.of(process),
                self._network.of(process),
                self._client(process),
                self._crowded.table,
                is_java=is_java,
                habits=others.crowd_habits,
            )
            crowd.work(dice, until_s)

        self._workers[name] = process
        self._programs[name] = process.start(work)

    def _start_follower(self, name: str, process: Process, until_s: float) -> None:
        before = self._workers.get(name)
        if before is not None and not before.is_dead:
            return  # one of two is enough where it was struck while it was down
        follower, dice = self._followers[name], process.dice("work")
        self._workers[name] = process
        self._programs[name] = process.start(
            lambda: follower.work(process, lambda: self._client(process).tm, dice, until_s)
        )

    def _exporter(self, process: Process) -> Exporting:
        return Exporting(
            self.world,
            process,
            self._receiver,
            self._others.lease_s,
            lambda: self._client(process).tm,
        )

    def _keeper(self, process: Process) -> Keeper:
        return Keeper(
            self.world,
            process,
            self._receiver,
            self._others.lease_s,
            self._others.keeper_habits,
            lambda: self._client(process).tm,
            self._watch.found,
            has_no_faults=not self._plan.faults and self._plan.chances == Chances(),
        )

    def _sharer(self, process: Process) -> Sharer:
        habits = self._others.share_habits
        return Sharer(self._board, process, habits, lambda: self._client(process))

    def _retrier(self, process: Process) -> Retrier:
        habits = self._others.retry_habits
        return Retrier(self._orders, process, habits, lambda: self._client(process))

    def _juggler(self, process: Process) -> Juggler:
        habits = self._others.juggle_habits
        return Juggler(self._juggled, process, habits, partial(self._client, process))

    def _stranger(self, process: Process) -> Stranger:
        return Stranger(
            self.world,
            process,
            self._store.of(process),
            self._network.of(process),
            self._watch,
            self._others.strange_habits,
        )

    def _holder(self, process: Process) -> Holder:
        return Holder(
            self._watch,
            process,
            self._others.hold_habits,
            [workload.table for workload in self._workloads],
            lambda: self._client(process).tm,
        )

    def _helper(self, process: Process) -> Helper:
        habits = self._others.share_habits
        # Elsewhere a flush of one that died leaves nothing to tell it by but the ends of its rows.
        may_be_careless = self._plan.store_kind != "cluster" or habits.flush_bytes is None
        return Helper(
            self._board,
            process,
            habits,
            lambda: self._client(process),
            may_be_careless=may_be_careless,
        )

    def _operator(self, process: Process) -> Operator:
        return Operator(
            self.world,
            process,
            self._records,
            self._others.lease_s,
            lambda: self._client(process).tm,
            self._others.haste,
            is_in_zookeeper=bool(self._others.ensemble and self._others.ensemble.has_operations),
        )

    def _committing(self, process: Process) -> Committing:
        return Committing(
            self.world,
            process,
            self._jobs,
            self._objects_of(process),
            self._others.commit_habits,
            lambda: self._client(process).tm,
        )

    def _rescuer(self, process: Process, store: SimObjectStore) -> Rescuer:
        return Rescuer(
            self.world,
            process,
            self._jobs,
            self.objects,
            store,
            self._others.commit_habits,
            lambda: self._client(process).tm,
        )

    def _objects_of(self, process: Process) -> SimObjectStore:
        """Return the store of objects of a process that may die at any change."""
        return self.objects.of(process, partial(self._perhaps_kill, process))

    def _compactor(self, process: Process) -> Compactor:
        return Compactor(
            self.world,
            process,
            self._store.of(process),
            self._others.lease_s,
            pause_s=self._others.compaction_pause_s,
            compaction=self._parts.compaction,
            range_pass=self._parts.range_pass,
            retention_s=self._others.retention_s,
        )

    def _client(self, process: Process, post_commit: str | None = None) -> Client:
        store, clock = self._store.of(process), process.clock
        oracle = self._parts.oracle(
            resolve=lambda: lease_address(store),
            store_id=store.store_id,
            client=process.dice("client's number").getrandbits(61) + 1,
            writer_key=self._writer_key(),
            clock=clock,
            network=self._network.of(process),
        )
        manager = self._parts.manager(
            store,
            Repeating(
                oracle,
                process.dice("repeats"),
                partial(self._perhaps_die, process),
                self._plan.habits.repeat_share,
                self._plan.habits.long_share,
                partial(self._is_retried_first, process),
                self._turned_away,
            ),
            post_commit=post_commit
            or process.dice("post-commit").choice(self._plan.habits.post_commits),
            clock=clock,
            make_publisher=make_publisher,
        )
        session = manager.session
        session.outcomes = self._parts.outcomes(
            store, CommitTable(store), manager.oracle, clock, pause=self._pause
        )
        number = next(self._numbers)
        recorder = Recorder(str(number), self._events.append, now_ns=lambda: next(self._ticks))
        return Client(manager, recorder, process.dice("transactions"), number=number)

    def _pause(self, seconds: float) -> None:
        self.world.program.sleep(seconds)

    def _writer_key(self) -> bytes | None:
        """Return what lets clients bring cells, where a store has guarded batches."""
        is_guarded = CAPABILITIES[self._plan.store_kind].guarded_batches
        return read_writer_key(self._store.memory) if is_guarded else None

    def _work(self, process: Process, until_s: float) -> None:
        habits, others = self._plan.habits, self._others
        program = self.world.program
        client = self._client(process)
        dice, thinking, adding = (process.dice(one) for one in ("work", "thinking", "adding"))

        def think() -> None:
            is_long = thinking.random() < habits.thinking_share
            thought_s = thinking.uniform(0.5, habits.thought_s)
            program.sleep(thought_s if is_long else thinking.expovariate(100))

        while self.world.now_s < until_s:
            workload = dice.choice(self._chosen)
            is_fence = dice.random() < habits.fence_share
            one = process.name, self._done[process.name]
            self._done[process.name] += 1
            # Dice of its own, so that one which is left out shifts nothing for the next.
            client.rng = self.world.dice("transaction", *one)
            if one in self._plan.skipped:
                program.sleep(dice.expovariate(1 / habits.pause_s))
                continue
            if is_fence:
                self._fence(client, workload)
            for _ in workload.transaction(client):
                think()
            if others.exporters and adding.random() < others.adding_share:
                self._adder.add(client.tm, adding, think)
            program.sleep(dice.expovariate(1 / habits.pause_s))

    def _perhaps_die(self, process: Process) -> None:
        """Let a client die while it commits, or completes what it committed."""
        dice = process.dice("death")
        if dice.random() < self._plan.habits.death_share and process.name in CLIENTS:
            self.world.counts["clients that died in a commit"] += 1
            self.world.at(dice.uniform(0, 0.006), None, partial(self._replace_client, process))

    def _turned_away(self) -> None:
        """Take note that a client is not served, which strangers alone must not come to."""
        plan = self._plan
        is_disturbed = (
            plan.chances != Chances()
            or plan.habits.late_message_share
            or any(stall.share for stall in plan.stalls.values())
            or any(one.kind != "crash" or one.target in ORACLES for one in plan.faults)
            or (plan.others.ensemble is not None and plan.others.ensemble.has_omids)
        )
        if self._others.strangers and not is_disturbed:
            self._watch.found("flood: nothing is wrong, and a client is not served")

    def _is_retried_first(self, process: Process) -> bool:
        share, dice = self._plan.habits.first_retry_share, process.dice("retries that come first")
        return process.name in CLIENTS and dice.random() < share

    def _replace_client(self, process: Process) -> None:
        if self._workers[process.name] is process and not process.is_dead:
            process.crash()
            self._start_client(process.name, self.world.now_s + 2.0)

    def _perhaps_kill(self, process: Process) -> None:
        """Let a driver of a job, or an operator of such, die around one of its requests."""
        dice = process.dice("death at a request")
        if dice.random() < self._others.commit_habits.death_share and not self._is_mended:
            self.world.counts["committers that died at a request"] += 1
            self.world.at(dice.uniform(0, 0.003), None, partial(self._replace_other, process))

    def _replace_other(self, process: Process) -> None:
        if self._workers[process.name] is process and not process.is_dead:
            process.crash()
            until_s = self.world.now_s + self._plan.busy_s / 3
            self.world.at(2.0, None, partial(self._start_unless_mended, process.name, until_s))

    def _start_unless_mended(self, name: str, until_s: float) -> None:
        if not self._is_mended and self._workers[name].is_dead:
            self._start_other(name, until_s)

    def _fence(self, client: Client, workload: Workload) -> None:
        try:
            client.tm.fence(workload.table)
        except (OracleUnavailable, StorageError):
            return

    def _start_again(self, name: str, until_s: float) -> None:
        if self._is_mended:
            return  # the judge has begun, or soon will
        if not self._workers[name].is_dead:
            return  # it was struck again while it was down, and started for that
        (self._start_client if name in CLIENTS else self._start_other)(name, until_s)

    # -- faults ----------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        known = (*ORACLES, *self._workers, "everything", STORE)
        if fault.target not in known:
            return  # left out of the plan
        self.world.note(f"{fault.target} is struck: {str(fault).strip()}")
        self.world.counts[f"fault {fault.kind}"] += 1
        match fault.kind:
            case "crash" if fault.target in ORACLES:
                self._instances[fault.target].crash()
            case "crash":
                self._workers[fault.target].crash()
                self.world.at(
                    fault.seconds,
                    None,
                    lambda: self._start_again(
                        fault.target, self.world.now_s + self._plan.busy_s / 3
                    ),
                )
            case "pause":
                self._process(fault.target).pause(fault.seconds)
                self._clocks[fault.target].slept_s += fault.seconds
            case "stop":
                self._instances[fault.target].stop()
            case "hang up":
                self._instances[fault.target].hang_up()
            case "half close":
                self._instances[fault.target].half_close(is_deaf=bool(fault.amount))
            case "cut":
                self._cut(fault)
            case "slow":
                self._weather.slowness = fault.amount
                self.world.at(fault.seconds, None, self._end_slowness)
            case "power":
                self._lose_power(fault.seconds)
            case "full":
                self._store.is_full = True
                self.world.at(fault.seconds, None, self._empty_disk)
            case _:
                self._clocks[fault.target].ahead_ms += round(fault.amount)

    def _cut(self, fault: Fault) -> None:
        """Cut two ends off; where one is the store, it may be ZooKeeper as well, or instead."""
        ways = [(fault.target, fault.other)]
        if fault.amount:
            ways.append((fault.other, fault.target))
        places: tuple[str, ...] = (STORE,)
        if self._ensemble is not None:
            choices = ((STORE,), (ENSEMBLE,), (STORE, ENSEMBLE))
            places = self.world.dice("what is cut off", str(fault)).choice(choices)
        for place in places if STORE in ways[0] else ("",):
            for way in ways:
                source, end = (place if one == STORE else one for one in way)
                self._weather.cut(source, end, fault.seconds)

    def _process(self, name: str) -> Process:
        return self._instances[name].process if name in ORACLES else self._workers[name]

    def _end_slowness(self) -> None:
        self._weather.slowness = 1.0

    def _lose_power(self, seconds: float) -> None:
        """Let the store lose its power, and everybody who is on its host."""
        self._store.lose_power()
        self._store.disk.is_down = True
        self.world.at(seconds, None, self._give_power)
        if not self._store.disk.is_in_one_log:
            return
        for instance in self._instances.values():
            instance.crash()
        for name, process in self._workers.items():
            if not process.is_dead:
                process.crash()
                self.world.at(
                    seconds, None, partial(self._start_again, name, self._until_s(seconds))
                )

    def _until_s(self, seconds: float) -> float:
        return self.world.now_s + seconds + self._plan.busy_s / 3

    def _give_power(self) -> None:
        self._store.disk.is_down = False

    def _empty_disk(self) -> None:
        self._store.is_full = False

    def _mend(self) -> None:
        self._is_mended = True
        self._store.chances = Chances()
        self.objects.chances = ObjectChances()
        self._store.stalls = self.objects.stalls = {}
        self._weather.clear()
        self._empty_disk()
        self._give_power()

    def _finish_exports(self) -> None:
        """Let one more exporter deliver all that is left, and look at what was received."""
        process = self.world.process("last exporter", self._clocks["judge"])
        exporting = self._exporter(process)
        keeper = self._keeper(process)
        has_keepers = bool(self._others.keepers)
        program = process.start(
            partial(keeper.finish, exporting) if has_keepers else exporting.finish
        )
        self._let(lambda: program.is_over, "the last export never ends")
        for one in self._receiver.wrong(self._adder.told):
            self._watch.found(one)

    def _finish_operations(self) -> None:
        """Let one more operator end what is left, and hold what is there to what was told."""
        process = self.world.process("last operator", self._clocks["judge"])
        operator = self._operator(process)

        def finish() -> None:
            operator.finish()
            for one in operator.wrong():
                self._watch.found(one)

        program = process.start(finish)
        self._let(lambda: program.is_over, "the last operations never end")

    def _finish_jobs(self) -> None:
        """Let one more operator end all jobs, and look at what there is of them."""
        process = self.world.process("last rescuer", self._clocks["judge"])
        rescuer = self._rescuer(process, self.objects.of(process))
        program = process.start(rescuer.finish)
        self._let(lambda: program.is_over, "the last jobs never end")
        for one in self._jobs.wrong():
            self._watch.found(one)

    def _tidy(self) -> None:
        """Let one more compaction do all that the others have left, and look at what is there."""
        process = self.world.process("tidier", self._clocks["judge"])
        compactor = self._compactor(process)

        def tidy() -> None:
            self.world.program.sleep(LATEST_WRITE_S)
            # What came late behind a claim is found by who reads everything.
            everything = Options(grace_s=0.0, retention_s=FOR_EVER_S, should_collect=True)
            compactor.compact(everything)
            for one in compactor.check():
                self._watch.found(one)

        program = process.start(tidy)
        self._let(lambda: program.is_over, "the last compaction never ends")

    # -- the judgement ---------------------------------------------------------------------------

    def _judge(self, client: Client) -> None:
        history = transactions(self._events)
        for one in history:
            if (
                one.told is Told.UNKNOWN
                and not one.is_historical
                and (witness := self._witness(one.start_ts)) is not None
            ):
                self._settle(client, one, witness)
        take_last_looks(client, self._workloads, history)

    def _follow(self, client: Client) -> None:
        """Let all who follow changes come to the end, each in one look."""
        for follower in self._followers.values():
            follower.look_to_the_end(client.tm)

    def _settle(self, client: Client, one: Recorded, witness: TableCell) -> None:
        outcome = client.tm.session.outcomes.settle(Timestamp(one.start_ts), witness)
        tries = 1
        # The oracle may still wait for a call that left in bad weather, and then says nothing.
        while isinstance(outcome, Undecided) and tries < MOST_TRIES:
            self.world.program.sleep(LATEST_WRITE_S)
            outcome = client.tm.session.outcomes.settle(Timestamp(one.start_ts), witness)
            tries += 1
        self.world.counts["unknown outcomes settled"] += 1
        match outcome:
            case Committed():
                self._watch.settled[one.start_ts] = {outcome.commit_ts or 0}
            case Aborted():
                self._watch.settled[one.start_ts] = set()
            case _:
                self._watch.found(f"unknown: {one.name} stays {outcome}")

    def _witness(self, start_ts: int) -> TableCell | None:
        memory = self._store.memory
        for workload in self._workloads:
            for page in memory.scan(workload.table):
                for cell in (cell for row in page for cell in row):
                    if base(cell.version) == start_ts and not is_shadow_qualifier(cell.qualifier):
                        return workload.table, cell
        return None


class Repeating:
    """The oracle as a client sees it that asks again: for the same commit, now and then."""

    def __init__(
        self,
        oracle: TcpOracle,
        dice: random.Random,
        on_commit: Callable[[], None],
        share: float,
        long_share: float,
        is_retried_first: Callable[[], bool],
        on_unavailable: Callable[[], None],
    ) -> None:
        self._share = share
        self._long_share = long_share
        self._on_unavailable = on_unavailable
        self._is_retried_first = is_retried_first
        self._oracle = oracle
        self._dice = dice
        self._on_commit = on_commit
        self._last: tuple[Timestamp, Collection[CellId], Collection[TableId]] | None = None
        """What was committed last."""

    def __getattr__(self, name: str) -> Any:
        """Pass everything else on."""
        return getattr(self._oracle, name)

    def begin(self, *, hold_s: float | None = None) -> Begun:
        """Begin, for long or not; sometimes ask for the last commit again, which is complete."""
        if self._last is not None and self._dice.random() < self._share / 2:
            with suppress(OmidError):
                self._oracle.commit(*self._last, is_retry=True)
        if self._dice.random() < self._long_share:
            hold_s = self._dice.choice((2.0, 20.0, 60.0))
        try:
            return self._oracle.begin(hold_s=hold_s)
        except OracleUnavailable:
            self._on_unavailable()
            raise

    def commit(
        self,
        start_ts: Timestamp,
        cell_ids: Collection[CellId],
        table_ids: Collection[TableId],
        *,
        is_retry: bool = False,
    ) -> CommitVerdict:
        """Ask, and sometimes ask once more: after no answer, as Java does, or after one.

        What is heard first may say that it is asked again: the first message was lost, then.
        """
        is_retry = is_retry or self._is_retried_first()
        return self._asked(
            lambda: self._oracle.commit(start_ts, cell_ids, table_ids, is_retry=is_retry),
            start_ts,
            cell_ids,
            table_ids,
        )

    @property
    def most_cells_bytes(self) -> int:
        """What the oracle behind takes."""
        return self._oracle.most_cells_bytes

    def commit_cells(
        self,
        start_ts: Timestamp,
        cell_ids: Collection[CellId],
        table_ids: Collection[TableId],
        cells: TableCells,
    ) -> CommitVerdict:
        """Bring the cells; whoever asks again does so as others do, without them."""
        return self._asked(
            lambda: self._oracle.commit_cells(start_ts, cell_ids, table_ids, cells),
            start_ts,
            cell_ids,
            table_ids,
        )

    def _asked(
        self,
        ask: Callable[[], CommitVerdict],
        start_ts: Timestamp,
        cell_ids: Collection[CellId],
        table_ids: Collection[TableId],
    ) -> CommitVerdict:
        self._on_commit()
        try:
            verdict = ask()
        except OracleUnavailable as error:
            if self._dice.random() < 0.5:
                raise
            try:
                return self._oracle.commit(start_ts, cell_ids, table_ids, is_retry=True)
            except OmidError:
                # It may have been heard the first time, whatever became of the second.
                raise error from None
        if isinstance(verdict, CommitGranted):
            self._last = start_ts, cell_ids, table_ids
        if self._dice.random() < self._share:
            is_retry = self._dice.random() < 0.5
            with suppress(OmidError):
                self._oracle.commit(start_ts, cell_ids, table_ids, is_retry=is_retry)
        return verdict
