"""Committers beside everybody else: drivers of jobs, and operators who end those of dead drivers.

A driver writes the files of a job to one folder, that all jobs share, or publishes some with a
transaction.  Two drivers may have the same job, as two runs of one batch of a stream have, with
other bytes in files of the same names.  Operators finish jobs and take them back, by what
`omidpy committers plan` calls, also those of drivers that are alive, and sweep what transactions
have left.  Everybody dies, stands still before a request, and goes on.

What is committed is read from the folder's head whenever that is written, and held against what the
jobs wanted.

    C3   a run is ended by its driver, or by an operator
    C4   what is published is there, with the bytes that its job has written
    C5   of what was refused, or taken back, nothing is committed
    C9   a run has one outcome, and nobody is told otherwise
    C10  each commit keeps, replaces or refuses what was committed before, as it was told to
    C12  who reads sees what some commit has left, and no part of a job
    C15  in the end the folder has what is published, and nothing else
    P1   files that were published with a transaction are visible if it committed, whole, and with
         what else it wrote; else none of them is
    P2   of two that replace, or must be the first, one commits
    P4   nothing is swept that a snapshot names
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from omidpy.base.cells import decode_long, is_shadow_qualifier
from omidpy.base.tables import PUBLISHED_TABLE
from omidpy.committers import sweeping
from omidpy.committers.contents import reading
from omidpy.committers.heads import listing, looking
from omidpy.committers.heads.head import head_key
from omidpy.committers.jobs import Job, Task
from omidpy.committers.places import Folder
from omidpy.committers.protocol import Conflict
from omidpy.committers.s3 import S3Committer, Scope
from omidpy.errors import (
    CommitterError,
    OmidError,
    OracleUnavailable,
    StorageUnavailable,
    TransactionAborted,
)
from omidpy.manager import TransactionManager
from omidpy.model import base
from omidpy.reports import jobs as ends
from omidpy.storage.memory import MemoryStore
from tests.machines.simulator.objects import LATEST_S, SharedObjects, SimObjectStore
from tests.machines.simulator.store import PATIENCE_S, SimStore
from tests.machines.simulator.watch import entries
from tests.machines.simulator.world import Process, World

COMMITTERS: Final = ("committer-a", "committer-b", "committer-c")
RESCUERS: Final = ("rescuer-a", "rescuer-b")
OUT: Final = Folder("lake", "out/")
PUBLISHED: Final = Folder("lake", "published/")
JOBS: Final = "jobs"
"""A table that transactions write to which publish."""
COLUMN: Final = b"cf:q"

SMALL_BYTES: Final = 8
"""A file of this size travels with its message where small ones may, and a larger one is uploaded,
in two parts."""

GIVEN_UP_SHARE: Final = 0.1
"""Jobs that fail for reasons of their own when they have written everything."""

ENDED: Final = "jobs of {} ended by {}"

COMMITTED: Final = "committed"
REFUSED: Final = "refused"
UNKNOWN: Final = "unknown"


class _GivenUp(Exception):
    """A job fails for a reason of its own."""


def _perhaps_give_up(dice: random.Random) -> None:
    if dice.random() < GIVEN_UP_SHARE:
        raise _GivenUp


class Kind(NamedTuple):
    """What a job does to what is there."""

    conflict: Conflict
    scope: Scope
    parts: tuple[int, ...]
    """Which partitions it writes."""


KINDS: Final = (
    Kind("append", "folder", (1, 2)),
    Kind("append", "folder", (1,)),
    Kind("replace", "folder", (1, 2)),
    Kind("replace", "partitions", (1,)),
    Kind("replace", "partitions", (2, 3)),
    Kind("fail", "folder", (1,)),
    Kind("fail", "partitions", (3,)),
)


class CommitHabits(NamedTuple):
    """How committers and their operators go about it, which a seed draws."""

    is_strict: bool = True
    """Whether the store of objects is known to keep all conditions."""
    pause_s: float = 1.0
    """Between one job and the next, on average."""
    publish_share: float = 0.3
    """Jobs that publish with a transaction."""
    twin_share: float = 0.15
    """Jobs that have the id of another."""
    inline_share: float = 0.5
    """Jobs whose small files travel with their messages."""
    death_share: float = 0.0
    """Requests at which whoever sends them dies."""
    patience_s: float = 3.0
    """An operator ends a job whose plan he has seen for so long."""
    rollback_share: float = 0.5
    """Jobs that he takes back."""
    kept: int = 100
    """So many outcomes a head remembers at least."""
    list_bytes: int = listing.INLINE_BYTES
    """Above so much a head has a list beside it."""


@dataclass(eq=False)
class Run:
    """A run of a job, what it writes, and what became of it."""

    process: Process
    kind: Kind
    serial: int
    job_id: str = ""
    id: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """By the path below the destination."""
    told: str = UNKNOWN
    outcome: str = ""
    """What heads have said: committed or rolled back."""
    replaced: dict[str, Run] = field(default_factory=dict)
    """What its commit has taken the place of."""

    def is_so(self, job_id: str, outcome: str) -> bool:
        """Say whether it is of a job, and has come to something."""
        return (self.job_id, self.outcome) == (job_id, outcome)

    def data(self, size: str) -> bytes:
        """Return the bytes of a file, which no other run has, and which are as long for all."""
        return f"{self.serial:0{SMALL_BYTES * (1 if size == 's' else 2)}}".encode()


@dataclass(eq=False)
class Publishing:
    """A transaction that publishes."""

    conflict: str
    start_ts: int = 0
    job_id: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """By key."""
    told: str = UNKNOWN
    commit_ts: int | None = None


class JobLedger:
    """All jobs of one folder of objects, and what its heads have said of them."""

    def __init__(self, world: World, shared: SharedObjects, found: Callable[[str], object]) -> None:
        self._world = world
        self._shared = shared
        self._looker = shared.looker()
        self.found = found
        self._head_tag = ""
        self.runs: list[Run] = []
        self.publishings: list[Publishing] = []
        self.published: dict[str, Run] = {}
        """Whose the file of each path is, that is part of the folder."""
        self.states: list[frozenset[str]] = [frozenset()]
        """What was part of it, one commit after the other."""
        self.touched: dict[str, set[Process]] = {}
        """Who has begun to end a job."""
        self.not_removed: set[str] = set()
        """Jobs of which somebody was told that a part of them is left."""
        self._paths: set[str] = set()
        """What is there, whoever may see it."""
        self._revived: dict[str, Process] = {}
        """Who has written what is not part of the folder any more."""
        shared.changed = self.look

    def begin(self, process: Process, kind: Kind) -> Run:
        """Note a run of a job."""
        run = Run(process, kind, len(self.runs))
        self._world.handled(ENDED, run.serial, process)
        self.runs.append(run)
        return run

    def of(self, job_id: str, run_id: str) -> Run | None:
        """Return a run."""
        return next((one for one in self.runs if (one.job_id, one.id) == (job_id, run_id)), None)

    def has(self, job_id: str, outcome: str) -> bool:
        """Say whether a run of a job has come to this."""
        return any(one.is_so(job_id, outcome) for one in self.runs)

    def told(self, run: Run, what: str) -> None:
        """Note what a driver was told."""
        run.told = what
        self._world.counts[f"jobs told {what}"] += 1
        if what == COMMITTED and run.outcome != COMMITTED:
            self.found(f"C9: job {run.job_id} was told committed, and is {run.outcome or 'not'}")
        if what == REFUSED and run.outcome == COMMITTED:
            self.found(f"C5: job {run.job_id} was refused, and is committed")
        if what != UNKNOWN and run.job_id not in self.not_removed:
            self.has_ended(run, run.process)
        if what == COMMITTED:
            for path, other in sorted(run.replaced.items()):
                # A write that nobody waited for may come behind all that was removed.
                is_anew = path in self._revived or OUT.key(path) in self._shared.arrived_late
                if self._is_left(path, other) and not is_anew:
                    self.found(f"C15: job {run.job_id} has replaced {path}, and left it")

    def has_ended(self, run: Run, process: Process) -> None:
        """Look at what whoever has ended a run leaves there that is not published."""
        for path in sorted(run.files):
            is_late = OUT.key(path) in self._shared.was_late and run.outcome == COMMITTED
            if self._revived.get(path) is process and self._is_left(path, run) and not is_late:
                self.found(f"C15: {process.name} has written {path} anew, and left it")

    def _is_left(self, path: str, run: Run) -> bool:
        """Say whether a file is there that is of this very run, and not published."""
        found = self._shared.objects.objects.get(OUT.key(path))
        return (
            found is not None and path not in self.published and found.data == run.files.get(path)
        )

    # -- whenever anything has changed -------------------------------------------------------------

    def look(self, process: Process) -> None:
        """Look at what has become of the folder since a process has changed something."""
        there = self._shared.objects.objects
        head = there.get(head_key(OUT))
        if head is not None and head.etag != self._head_tag:
            self._head_tag = head.etag
            self._look_at_head(process)
        paths = {OUT.below(key) for key in there if key.startswith(OUT.prefix)}
        for path in paths - self._paths - self.published.keys():
            runs = [one for one in self.runs if path in one.files]
            if runs and all(one.outcome for one in runs):
                self._revived[path] = process
        self._paths = paths
        for path, run in self.published.items():
            found = there.get(OUT.key(path))
            if found is None:
                self._lost(path, run, "is gone")
            elif found.data != run.files[path]:
                self._lost(path, run, "has the bytes of another")

    def _lost(self, path: str, run: Run, what: str) -> None:
        self.found(f"C4: {path} of job {run.job_id} is published, and {what}")
        self.published = {name: one for name, one in self.published.items() if name != path}

    def _look_at_head(self, process: Process) -> None:
        seen = looking.read(self._looker, OUT)
        for entry in seen.head.entries:
            run = self.of(entry.job, entry.run)
            if run is None:
                self.found(f"C9: nobody knows the run {entry.run} of job {entry.job}")
            elif not run.outcome:
                run.outcome = entry.outcome
                self._world.handled(ENDED, run.serial, process)
                self._world.counts[f"jobs {entry.outcome}"] += 1
                self._world.note(f"{entry.job} is {entry.outcome}")
                if process is not run.process and process not in self.touched.get(run.job_id, ()):
                    self.found(f"C3: {process.name} has decided about job {run.job_id}")
                if entry.outcome == COMMITTED:
                    self._commit(run)
                    if run.told == REFUSED:
                        self.found(f"C5: job {run.job_id} was refused, and is committed")
            elif run.outcome != entry.outcome:
                self.found(f"C9: job {entry.job} was {run.outcome}, and is {entry.outcome}")
        try:
            listed = {one.path for one in listing.files_of(self._looker, OUT, seen.head)}
        except CommitterError as error:
            self.found(f"C13: {error}")
            return
        if listed != set(self.published):
            more, less = listed - set(self.published), set(self.published) - listed
            self.found(f"C10: the head lists {sorted(more)} too much, {sorted(less)} too little")
            known = {path: run for run in self.runs for path in run.files if run.outcome}
            self.published = {path: known[path] for path in listed if path in known}

    def _commit(self, run: Run) -> None:
        kind, before = run.kind, self.published
        mine = {f"p={part}/" for part in kind.parts} if kind.scope == "partitions" else {""}
        others = {path for path in before if path.startswith(tuple(mine))}
        if kind.conflict == "fail" and others:
            self.found(f"C10: job {run.job_id} was to be the first, and is behind {sorted(others)}")
        kept = (
            before
            if kind.conflict == "append"
            else {path: one for path, one in before.items() if path not in others}
        )
        run.replaced = {path: one for path, one in before.items() if path not in kept}
        if again := kept.keys() & run.files.keys():
            self.found(f"C10: job {run.job_id} has written over {sorted(again)}")
        self.published = {**kept, **dict.fromkeys(run.files, run)}
        self.states.append(frozenset(self.published))

    # -- the end -----------------------------------------------------------------------------------

    def wrong(self) -> Iterator[str]:
        """Say what is wrong with the folder once everything has ended."""
        for run in self.runs:
            if run.told == COMMITTED and run.outcome != COMMITTED:
                yield f"C9: job {run.job_id} was told committed, and is not"
        for key in self._shared.objects.objects:
            path = OUT.below(key) if key.startswith(OUT.prefix) else "_"
            if path.startswith("_") or path in self.published or self._may_be_left(path):
                continue
            yield f"C15: {path} is there, and not published"

    def _may_be_left(self, path: str) -> bool:
        """Say whether a small file may be there that nobody can call back.

        Whoever was killed right behind it cannot remove it, and what comes late when its job was
        replaced finds its name free.
        """
        runs = [one for one in self.runs if path in one.files]
        small = len(next(iter(runs)).files[path]) <= SMALL_BYTES if runs else False
        if not small:
            return False
        jobs = {one.job_id for one in runs}
        ends_of = {process for job in jobs for process in self.touched.get(job, ())}
        drivers = {one.process for one in runs}
        return (
            any(one.is_dead for one in ends_of | drivers)
            or not jobs.isdisjoint(self.not_removed)
            or bool(
                OUT.key(path) in self._shared.was_late
                and (ends_of or any(one.outcome == COMMITTED for one in runs))
            )
        )

    def wrong_publishings(self, memory: MemoryStore, table: str) -> Iterator[str]:
        """Say what of transactions was told otherwise, and what should never have committed."""
        commits = _commits_in(memory, table, [one.start_ts for one in self.publishings])
        for one in self.publishings:
            one.commit_ts = commits.get(one.start_ts)
            if one.told == COMMITTED and one.commit_ts is None:
                yield f"P1: {one.job_id} was told committed, and is not"
            if one.told == REFUSED and one.commit_ts is not None:
                yield f"P1: {one.job_id} was told aborted, and is committed"
        sole = [one for one in self._in_order() if one.conflict != "append"]
        for one in sole:
            for other, commit_ts in ((it, it.commit_ts or 0) for it in sole):
                if one.start_ts < commit_ts < (one.commit_ts or 0):
                    yield f"P2: {one.job_id} does not know {other.job_id}, which was first"

    def _in_order(self) -> list[Publishing]:
        known = [one for one in self.publishings if one.commit_ts is not None]
        return sorted(known, key=lambda one: one.commit_ts or 0)

    def visible(self) -> tuple[dict[str, bytes], set[str]]:
        """Return the files that transactions have left, by key, and all jobs that committed."""
        there: list[Publishing] = []
        for one in self._in_order():
            if one.conflict == "replace":
                there = [old for old in there if (old.commit_ts or 0) > one.start_ts]
            if one.conflict == "fail" and any((old.commit_ts or 0) < one.start_ts for old in there):
                self.found(f"P2: {one.job_id} was to be the first, and is not")
            there.append(one)
        files = {key: data for one in there for key, data in one.files.items()}
        return files, {one.job_id for one in self._in_order()}


def _commits_in(memory: MemoryStore, table: str, starts: list[int]) -> dict[int, int]:
    """Return the commit of each transaction that has one, by its shadow cells or its entry."""
    known = [one for one in starts if one]
    found = {
        start: entry for start, entry in entries(memory, known).items() if isinstance(entry, int)
    }
    commits = {int(start): int(entry) for start, entry in found.items()}
    for name in (table, JOBS):
        if any(schema.name == name for schema in memory.tables()):
            for page in memory.scan(name):
                for cell in (cell for row in page for cell in row):
                    if is_shadow_qualifier(cell.qualifier):
                        commits[base(cell.version)] = decode_long(cell.value, what="a shadow cell")
    return commits


class Committing:
    """A process that runs one job after the other."""

    def __init__(
        self,
        world: World,
        process: Process,
        ledger: JobLedger,
        store: SimObjectStore,
        habits: CommitHabits,
        make: Callable[[], TransactionManager],
    ) -> None:
        self._world = world
        self._process = process
        self._ledger = ledger
        self._store = store
        self._habits = habits
        self._make = make

    def work(self, dice: random.Random, until_s: float) -> None:
        """Run jobs until it is late."""
        habits = self._habits
        tm = self._made() if habits.publish_share else None
        while self._world.now_s < until_s:
            self._world.program.sleep(dice.expovariate(1 / habits.pause_s))
            if tm is not None and dice.random() < habits.publish_share:
                self._publish(tm, dice)
            else:
                self._commit(dice)
            look_at(self._store, self._ledger)

    def _made(self) -> TransactionManager:
        tm = self._make()
        cast("SimStore", tm.store).beat_no_more()  # it is given no other here
        return tm

    # -- jobs of a folder --------------------------------------------------------------------------

    def _commit(self, dice: random.Random) -> None:
        ledger = self._ledger
        # Other stores remove what has the name of an earlier run's file, whatever is in it by then.
        is_twin = dice.random() < self._habits.twin_share and self._habits.is_strict
        twin = ledger.runs[-1] if ledger.runs and is_twin else None
        kind = dice.choice(KINDS) if twin is None else twin.kind
        run = ledger.begin(self._process, kind)
        made = S3Committer(
            OUT,
            self._store,
            job_id=(twin.job_id if twin is not None else "") or None,
            conflict=kind.conflict,
            scope=kind.scope,
            inline_bytes=SMALL_BYTES if dice.random() < self._habits.inline_share else 0,
            first_part_bytes=SMALL_BYTES + 1,
        )
        run.job_id, run.id = made.job_id, made._run
        names = [f"p={part}/{size}" for part in kind.parts for size in "sl"]
        run.files = {OUT.below(made.key(name)): run.data(name[-1]) for name in names}
        try:
            if twin is not None and dice.random() < 0.5 and self._was_committed(made):
                if not ledger.has(run.job_id, COMMITTED):
                    ledger.found(f"C9: job {run.job_id} is said to be committed, and is not")
                ledger.told(run, REFUSED)
                return
            with Job(made) as job:
                for number, part in enumerate(kind.parts):
                    if dice.random() < 0.1:
                        self._write(job.task(number=number), part, run).abort()
                    self._write(job.task(number=number), part, run).commit()
                self._world.program.sleep(dice.expovariate(1 / 0.1))
                _perhaps_give_up(dice)
        except CommitterError as error:
            self._note(run, error)
        except _GivenUp:
            ledger.told(run, REFUSED)
        else:
            ledger.told(run, COMMITTED)

    def _was_committed(self, made: S3Committer) -> bool:
        """Ask whether an earlier run of a job is committed, which ends it."""
        self._ledger.touched.setdefault(made.job_id, set()).add(self._process)
        return made.was_committed()

    @staticmethod
    def _write(task: Task, part: int, run: Run) -> Task:
        for size in "sl":
            with task.open(f"p={part}/{size}") as file:
                file.write(run.data(size))
        return task

    def _note(self, run: Run, error: CommitterError) -> None:
        self._world.note(f"{self._process.name}: {error}")
        if error.plan or "not wholly taken back" in str(error) or "by hand" in str(error):
            self._ledger.not_removed.add(run.job_id)
        is_open = error.plan or "nobody remembers how" in str(error)
        self._ledger.told(run, UNKNOWN if is_open else REFUSED)

    # -- files of a transaction --------------------------------------------------------------------

    def _publish(self, tm: TransactionManager, dice: random.Random) -> None:
        one = Publishing(dice.choice(("append", "append", "replace", "fail")))
        self._ledger.publishings.append(one)
        serial = len(self._ledger.publishings)
        is_asked = False
        try:
            with tempfile.TemporaryDirectory() as folder, tm.begin() as tx:
                one.start_ts = int(tx.start_ts)
                paths = []
                for name, size in (("s", SMALL_BYTES), ("l", 2 * SMALL_BYTES)):
                    paths.append(Path(folder) / name)
                    paths[-1].write_bytes(f"{serial:0{size}}".encode())
                made: Any = tx.publish(
                    paths,
                    PUBLISHED.url,
                    conflict=one.conflict,
                    inline_bytes=SMALL_BYTES,
                    part_bytes=None,
                )
                one.job_id = made.job_id
                one.files = {file.key: f"{serial:0{file.length}}".encode() for file in made.files}
                tx.table(JOBS).put(made.job_id.encode(), {COLUMN: b"1"})
                self._world.program.sleep(dice.expovariate(1 / 0.2))
                is_asked = True
        except TransactionAborted:
            one.told = REFUSED
        except (OracleUnavailable, StorageUnavailable, CommitterError) as error:
            self._world.note(f"{self._process.name}: {error}")
            one.told = UNKNOWN if is_asked else REFUSED
        except OmidError as error:
            self._world.note(f"{self._process.name}: {error!r}")
        else:
            one.told = COMMITTED
        self._world.counts[f"publications told {one.told}"] += 1


def look_at(store: SimObjectStore, ledger: JobLedger) -> None:
    """Read what a folder has, as whoever reads it by its head."""
    began = len(ledger.states) - 1
    try:
        state = reading.state_of(store, OUT)
    except CommitterError:
        return
    seen = frozenset(one.path for one in state.files)
    if seen not in ledger.states[began:]:
        ledger.found(f"C12: a reader saw {sorted(seen)}, which no commit has left")


class Rescuer:
    """A process whose operator ends jobs that look dead."""

    def __init__(
        self,
        world: World,
        process: Process,
        ledger: JobLedger,
        shared: SharedObjects,
        store: SimObjectStore,
        habits: CommitHabits,
        make: Callable[[], TransactionManager],
    ) -> None:
        self._world = world
        self._process = process
        self._ledger = ledger
        self._shared = shared
        self._store = store
        self._habits = habits
        self._make = make
        self._seen_s: dict[str, float] = {}

    def work(self, dice: random.Random, until_s: float) -> None:
        """End jobs until it is late."""
        tm = self._make() if self._habits.publish_share else None
        while self._world.now_s < until_s:
            self._world.program.sleep(dice.expovariate(1 / 1.0))
            for job_id in self._planned():
                since_s = self._seen_s.setdefault(job_id, self._world.now_s)
                if self._world.now_s - since_s >= self._habits.patience_s:
                    self._end(job_id, takes_back=dice.random() < self._habits.rollback_share)
            if tm is not None and dice.random() < 0.3:
                self._sweep(tm)
            look_at(self._store, self._ledger)

    def finish(self) -> None:
        """End all jobs that have not ended, and read what transactions have published."""
        self._world.program.sleep(LATEST_S + PATIENCE_S)
        tm = self._make()
        while planned := self._planned():
            for job_id in planned:
                if not self._end(job_id, takes_back=False):
                    self._end(job_id, takes_back=True)
        look_at(self._store, self._ledger)
        if self._habits.publish_share:
            self._sweep(tm)
            self._read(tm)

    def _planned(self) -> list[str]:
        try:
            return looking.planned_jobs(self._store, OUT)
        except CommitterError:
            return []

    def _end(self, job_id: str, *, takes_back: bool) -> bool:
        """End a job; say whether that was done."""
        ledger, address = self._ledger, f"s3://{OUT.bucket}/{OUT.plan_key(job_id)}"
        if takes_back and self._shared.is_on_its_way(job_id):
            return False  # whoever takes a job back by hand waits for half an hour
        ledger.touched.setdefault(job_id, set()).add(self._process)
        wanted = "rolled back" if takes_back else COMMITTED
        run: Run | None = None
        try:
            if takes_back:
                run = ledger.of(job_id, ends.roll_back_job(self._store, address).run)
            else:
                ends.resume_job(self._store, address)
        except CommitterError as error:
            self._world.note(f"{self._process.name}: {error}")
            return False
        self._world.counts[f"jobs that operators have ended: {wanted}"] += 1
        if run is None:
            run = next((one for one in ledger.runs if one.is_so(job_id, wanted)), None)
        if run is None or run.outcome != wanted:
            ledger.found(f"C9: an operator was told that job {job_id} is {wanted}, and it is not")
        else:
            ledger.has_ended(run, self._process)
        return True

    def _sweep(self, tm: TransactionManager) -> None:
        try:
            swept = sweeping.sweep(tm, self._store, PUBLISHED)
        except OmidError as error:
            self._world.note(f"{self._process.name}: {error!r}")
        else:
            self._world.counts["publications swept"] += len(swept.removed)

    def _read(self, tm: TransactionManager) -> None:
        """Hold what transactions have published against what they were told."""
        ledger, tm_table = self._ledger, tm.session.catalog.full_name(PUBLISHED_TABLE)
        memory: Any = tm.store
        for one in ledger.wrong_publishings(memory._shared.memory, tm_table):
            ledger.found(one)
        wanted, jobs = ledger.visible()
        with tm.begin(read_only=True) as tx:
            seen: Any = tx.published(PUBLISHED.url)
            rows = {row.decode() for row, _ in tx.table(JOBS).scan()}
            files = {one.key: one for one in seen.files}
        self._compare(wanted, files, seen)
        if rows != jobs:
            ledger.found(f"P1: jobs {sorted(rows ^ jobs)} have rows without files, or files alone")

    def _compare(self, wanted: Mapping[str, bytes], files: Mapping[str, Any], seen: Any) -> None:
        if wanted.keys() != files.keys():
            keys = sorted(wanted.keys() ^ files.keys())
            self._ledger.found(f"P1: {keys} are visible, and should not be, or otherwise")
        for key in sorted(wanted.keys() & files.keys()):
            try:
                data = seen.read(files[key])
            except CommitterError as error:
                self._ledger.found(f"P4: {error}")
            else:
                if data != wanted[key]:
                    self._ledger.found(f"P1: {key} has other bytes than were published")
