"""A store that every process reaches by its own way: slow, cut off, full, torn, or late.

Beneath is one `MemoryStore`, whose calls are atomic.  In between, a call takes time on the way
there and back, so that others come in between; it may get lost before or after it was carried out,
or be carried out after its caller was told that it failed, or twice.  What may be torn (a batch of
rows, where the store has no guarded batches) sometimes is: some rows are changed, and the call
fails.  What is not synced is lost when its host loses its power: see `disk.py`.

Three kinds of stores: a *cluster* has neither guarded batches nor locks, as HBase; a *file* has
both, as SQLite; a *shared* one has guarded batches alone.

HBase's delete markers hide a put of the same version that comes late; so does this store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from omidpy.errors import OmidError, StorageError, StorageUnavailable
from omidpy.life.heart import BEATS_PER_LEASE
from omidpy.model import Column
from omidpy.storage.base import (
    Capabilities,
    CellGroup,
    Condition,
    Entries,
    GuardedMutation,
    LockHeld,
    ProcessLock,
    Row,
    RowMutation,
    singly,
)
from omidpy.storage.memory import MemoryStore
from omidpy.storage.pages import Pages, reads_of
from tests.machines.simulator.attic import Attic
from tests.machines.simulator.disk import FACTS, Disk
from tests.machines.simulator.network import Weather
from tests.machines.simulator.watch import Watch, entries
from tests.machines.simulator.world import Process, Program, World

T = TypeVar("T")
StoreKind: TypeAlias = Literal["cluster", "file", "shared"]

STORE: Final = "store"
"""Its name in partitions."""

CAPABILITIES: Final[Mapping[StoreKind, Capabilities]] = {
    "cluster": Capabilities(guarded_batches=False, process_locks=False, remote=True),
    "file": Capabilities(),
    "shared": Capabilities(process_locks=False, remote=True),
}

PATIENCE_S: Final = 2.0
"""After which a caller who hears nothing is told that the store is unavailable."""


@dataclass(frozen=True, slots=True)
class Chances:
    """How likely it is that a call goes wrong."""

    lost: float = 0.0
    """Not carried out."""
    unheard: float = 0.0
    """Carried out, and the answer is lost."""
    late: float = 0.0
    """Carried out after the caller was told that it failed."""
    twice: float = 0.0
    """Carried out again after a while."""
    torn: float = 0.0
    """Carried out in part."""
    unsynced: float = 0.0
    """Of those that are to be durable: perhaps carried out, and not synced, as the caller hears."""
    rotten: float = 0.0
    """Of reads: refused, since a checksum tells that the disk holds something else by now.

    The next one finds it whole, in another copy.
    """


class Stall(NamedTuple):
    """Before which calls a process stands still."""

    share: float = 0.0
    longest_s: float = 10.0
    calls: str = ""
    """Of those alone that have this, or one of these between `|`, in their name.

    It tells what is done to which table.
    """

    def is_before(self, name: str) -> bool:
        """Say whether it may come before a call."""
        return any(part in name for part in self.calls.split("|"))

    def __str__(self) -> str:
        return f"{self.share:g} of {self.calls or 'all'} calls, up to {self.longest_s:g} s"


class SharedStore:
    """What all processes share."""

    def __init__(self, world: World, weather: Weather, watch: Watch, kind: StoreKind) -> None:
        self.world = world
        self.weather = weather
        self.watch = watch
        self.kind: StoreKind = kind
        self.memory = MemoryStore()
        self.disk = Disk(kind, self.memory)
        watch.is_on_disk = self.disk.is_on_disk
        self.attic = Attic(
            self.memory, watch.commit_of, lambda starts: entries(self.memory, starts), watch.found
        )
        self.chances = Chances()
        self.is_full = False
        self.page_rows: int | None = None
        """How many rows a page has at most; None: as many as were asked for."""
        self.stalls: Mapping[str, Stall] = {}
        """Before which calls a process stands still, by its name."""
        self.holders: dict[str, Process] = {}
        """Who holds which lock."""
        self.on_write: Callable[[Process, RowMutation], object] | None = None
        """Sees what is written without a condition, and by whom, if somebody wants to know."""
        self.makings: Counter[str] = Counter()
        """How often each table was made."""
        self._deleted: set[tuple[object, ...]] = set()

    def of(self, process: Process) -> Any:
        """Return the store as one process sees it."""
        return (AheadStore if self.kind == "cluster" else SimStore)(self, process)

    def write(
        self,
        batch: Mapping[str, Sequence[RowMutation]],
        writer: Process,
        *,
        durable: bool = False,
        is_repeated: bool = False,
    ) -> None:
        """Change rows, and let the watch look at what came of it."""
        fails = durable and self._fails_to_sync(writer, batch)
        if is_repeated:
            batch = {
                table: [self._left(table, one) for one in rows] for table, rows in batch.items()
            }
        for table, rows in batch.items():
            self._deleted.update((table, one.row, *gone) for one in rows for gone in one.deletes)
            if (on_write := self.on_write) is not None:
                for one in rows:
                    on_write(writer, one)
        before = self.disk.rows_before((table, one.row) for table in batch for one in batch[table])
        left_by = self.attic.before(batch)
        self.memory.write(batch)
        self.attic.after(left_by)
        commits = self._look(batch)
        if self.disk.is_in_one_log:
            self.disk.changed(before, commits, is_synced=durable and not fails)
        else:
            for table, rows in batch.items():
                is_synced = durable and not fails
                self.disk.changed(
                    {place: cells for place, cells in before.items() if place[0] == table},
                    commits,
                    is_synced=is_synced or self.disk.is_quick(table, rows, writer.name),
                )
        if fails:
            raise self.unsynced(writer)

    def write_guarded(
        self,
        mutations: Sequence[GuardedMutation | Entries | CellGroup],
        guard: Condition | None,
        writer: Process,
        *,
        durable: bool,
    ) -> list[bool] | None:
        """Change rows on conditions; the same."""
        fails = durable and self._fails_to_sync(writer)
        each = singly(mutations) if self.disk.is_watched else []
        before = self.disk.rows_before((one.table, one.mutation.row) for one in each)
        commits: list[int] = []
        applied = self.memory.write_guarded(mutations, guard=guard)
        if applied is not None:
            verdicts = iter(applied)
            for one in mutations:
                changes = singly([one])
                told_group = isinstance(one, CellGroup) and next(verdicts)
                told = repeat(told_group) if isinstance(one, CellGroup) else verdicts
                for (table, mutation, _), was_applied in zip(changes, told, strict=False):
                    if was_applied:
                        commits += self._look({table: [mutation]})
                if isinstance(one, CellGroup) and told_group:
                    commits += self.watch.completed(one)
        if applied is not None and any(applied):
            is_quick = bool(each) and self.disk.is_quick(
                each[0].table, [one.mutation for one in each], writer.name
            )
            self.disk.changed(before, commits, is_synced=(durable and not fails) or is_quick)
        if fails:
            raise self.unsynced(writer)
        return applied

    def _fails_to_sync(self, writer: Process, tables: Iterable[str] = FACTS) -> bool:
        """Say whether a write is made and not synced; one that SQLite would undo is not made.

        HBase shows no write before its log is synced, either, and cells are held to that.  Facts
        may be seen, and lost: whoever finds his own does not take it for synced.

        Raises:
            StorageUnavailable: it is not made.
        """
        chance = self.chances.unsynced
        if not chance or (dice := writer.dice("failing syncs")).random() >= chance:
            return False
        self.world.counts["syncs that failed"] += 1
        is_hidden = self.kind == "file" or (self.kind == "cluster" and not FACTS.issuperset(tables))
        if is_hidden or dice.random() < 0.5:
            raise self.unsynced(writer)
        return True

    def unsynced(self, writer: Process) -> StorageUnavailable:
        """Return what a caller hears of a sync that failed."""
        return StorageUnavailable(f"a sync failed, for {writer.name}")

    def perhaps_stand_still(self, process: Process, name: str, program: Program) -> None:
        """Let a process stop before a call, as its stalls have it."""
        stall, dice = self.stalls.get(process.name), process.dice("stalls")
        if stall is not None and stall.is_before(name) and dice.random() < stall.share:
            self.world.counts["stalls before a call"] += 1
            seconds = dice.uniform(0.1, 1.0) * stall.longest_s
            self.world.note(f"{process.name} stands still for {seconds:.1f} s before {name}")
            process.pause(seconds)
            program.sleep(0)

    def lose_power(self) -> None:
        """Lose what is on no disk."""
        rows, commits = self.disk.lose_power(self.world.dice("disks"))
        self.world.counts["rows lost with the power"] += len(rows)
        for place in rows:
            self._deleted = {one for one in self._deleted if one[:2] != place}
            self.world.note(f"{STORE} loses what was done to {place}")
        self.watch.lost(commits)

    def _left(self, table: str, mutation: RowMutation) -> RowMutation:
        puts = [
            put for put in mutation.puts if (table, mutation.row, *put[:3]) not in self._deleted
        ]
        return mutation._replace(puts=puts)

    def _look(self, batch: Mapping[str, Sequence[RowMutation]]) -> list[int]:
        """Let the watch look at rows; return the transactions whose commit they made."""
        return [
            start_ts
            for table, mutations in batch.items()
            for start_ts in self.watch.written(
                self.memory, table, [mutation.row for mutation in mutations]
            )
        ]


class SimStore:
    """The store as one process sees it."""

    def __init__(self, shared: SharedStore, process: Process) -> None:
        self._shared = shared
        self._process = process
        self.url = "simulated:"
        self.store_id = "simulated"
        self.capabilities = CAPABILITIES[shared.kind]
        self.between_calls: Callable[[], None] | None = None
        """What another thread of the process does, of one that has some."""

    def beat_between_calls(self, beat: Callable[[], object], *, lease_s: float) -> None:
        """Let the process show life whenever a call is about to be made and a beat is due."""
        clock = self._process.clock
        beaten_s = clock.monotonic_s()

        def between() -> None:
            nonlocal beaten_s
            self._shared.world.program.check_alive()
            if clock.monotonic_s() - beaten_s >= lease_s / BEATS_PER_LEASE:
                beaten_s = clock.monotonic_s()
                with suppress(OmidError):
                    beat()

        self.between_calls = between

    def beat_no_more(self) -> None:
        """End that, and do nothing more in a process that has died, whatever it still tidies up."""
        self.between_calls = self._shared.world.program.check_alive

    # -- calls -----------------------------------------------------------------------------------

    def _call(
        self,
        name: str,
        work: Callable[[], T],
        *,
        is_write: bool = False,
        torn: Callable[[], object] | None = None,
        again: Callable[[], object] | None = None,
        tables: Iterable[str] = (),
    ) -> T:
        """Carry out a call as the weather permits; `tables` are those whose rows it changes."""
        if (act := self.between_calls) is not None:
            self.between_calls = None
            try:
                act()
            finally:
                self.between_calls = act
        shared, process = self._shared, self._process
        world, weather, chances = shared.world, shared.weather, shared.chances
        program = world.program
        shared.perhaps_stand_still(process, name, program)
        world.note(f"{process.name} {name}")
        world.counts["store calls"] += 1
        if weather.held_up_s(process.name, STORE):
            program.sleep(PATIENCE_S)
            raise self._gone("a partition")
        if process.dice("lost calls").random() < chances.lost:
            world.counts["calls lost"] += 1
            program.sleep(PATIENCE_S)
            raise self._gone("a call was lost")
        late = process.dice("late calls")
        losses = shared.disk.losses

        def is_gone() -> bool:
            """Say whether the store cannot hear it; all that was under way on its own host is."""
            disk = shared.disk
            return disk.is_down or (disk.is_in_one_log and disk.losses != losses)

        made = {table: shared.makings[table] for table in tables}

        def is_in_vain() -> bool:
            """Say whether it comes to nothing now: a region is of one table, not of its name."""
            return is_gone() or any(shared.makings[table] != which for table, which in made.items())

        if is_write and late.random() < chances.late:
            world.counts["calls late"] += 1
            later = PATIENCE_S + late.uniform(0, 20)
            world.at(later, None, lambda: None if is_in_vain() else _quietly(again or work))
            program.sleep(PATIENCE_S)
            raise self._gone("a call is late")
        if torn is not None and process.dice("torn calls").random() < chances.torn:
            world.counts["writes torn"] += 1
            work = self._torn(torn)
        outcome: list[T | Exception] = []

        def arrive() -> None:
            if is_gone():
                outcome.append(self._gone("the power went"))
                return
            if is_write and shared.is_full:
                world.counts["writes refused"] += 1
                outcome.append(self._gone("the disk is full"))
                return
            if not is_write and process.dice("rotten reads").random() < chances.rotten:
                world.counts["reads of rotten blocks"] += 1
                outcome.append(StorageError(f"a block has another checksum, for {process.name}"))
                return
            try:
                outcome.append(work())
            except Exception as error:  # noqa: BLE001 - it is the caller's
                outcome.append(error)

        # On its way it is no part of the process any more, which may die meanwhile.
        ways = process.dice("ways to the store")
        there_s = weather.delay_s(ways)
        world.at(there_s, None, arrive)
        program.sleep(there_s + weather.delay_s(ways))
        twice = process.dice("calls that come twice")
        if again is not None and twice.random() < chances.twice:
            world.counts["writes twice"] += 1
            later = twice.uniform(0, 5)
            world.at(later, None, lambda: None if is_in_vain() else _quietly(again))
        unheard = process.dice("lost answers")
        if weather.held_up_s(STORE, process.name) or unheard.random() < chances.unheard:
            world.counts["answers lost"] += 1
            program.sleep(PATIENCE_S)
            raise self._gone("an answer was lost")
        (result,) = outcome
        if isinstance(result, Exception):
            raise result
        return result

    def _torn(self, work: Callable[[], object]) -> Callable[[], Any]:
        def fail() -> None:
            work()
            raise self._gone("a write was torn")

        return fail

    def _gone(self, why: str) -> StorageUnavailable:
        return StorageUnavailable(f"{why}, for {self._process.name}")

    # -- reads -----------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """Pass a call on that changes no cells."""
        method = getattr(self._shared.memory, name)
        is_write = name in ("create_table", "drop_table") or name.startswith("set_")

        def call(*args: Any, **kwargs: Any) -> Any:
            title = f"{name} {args[0]}" if args and isinstance(args[0], str) else name

            def work() -> Any:
                answer = method(*args, **kwargs)
                if is_write:
                    self._shared.disk.changed_table(getattr(args[0], "name", args[0]))
                if name == "create_table" and answer:
                    self._shared.makings[args[0].name] += 1
                return answer

            return self._call(title, work, is_write=is_write)

        return call

    def scan(self, *args: Any, **kwargs: Any) -> Iterator[list[Row]]:
        """Yield pages, each by a call of its own."""
        pages = self._shared.memory.scan(*args, **kwargs)
        reads = reads_of(pages)
        assert reads is not None, "a store in memory says it"
        return Pages(self._passed_on(f"scan {args[0]}", pages), reads)

    def _passed_on(self, title: str, pages: Iterator[list[Row]]) -> Iterator[list[Row]]:
        at_most = self._shared.page_rows
        while (page := self._call(title, lambda: next(pages, None))) is not None:
            if at_most is None:
                yield page
            else:
                yield from (page[at : at + at_most] for at in range(0, len(page), at_most))

    # -- writes ----------------------------------------------------------------------------------

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Change rows; see `Store`."""
        shared = self._shared
        rows = [(table, one) for table, mutations in batch.items() for one in mutations]
        dice = self._process.dice("parts of torn calls")
        part: dict[str, list[RowMutation]] = {}
        is_tearable = len(rows) > 1 and not self.capabilities.guarded_batches
        if is_tearable:
            for table, one in dice.sample(rows, dice.randrange(len(rows))):
                part.setdefault(table, []).append(one)
        self._call(
            f"write {' '.join(sorted(batch))}",
            lambda: shared.write(batch, self._process, durable=durable),
            is_write=True,
            torn=partial(shared.write, part, self._process, durable=durable)
            if is_tearable
            else None,
            again=partial(shared.write, batch, self._process, durable=durable, is_repeated=True)
            if self.capabilities.remote
            else None,
            tables=batch,
        )

    def check_and_mutate(
        self,
        table: str,
        row: bytes,
        column: Column,
        expected: bytes | None,
        mutation: RowMutation,
        *,
        durable: bool = False,
    ) -> bool:
        """Change a row on a condition; see `Store`."""
        change = GuardedMutation(table, mutation, Condition(table, row, column, expected))
        return self._call(
            f"check_and_mutate {table}",
            lambda: (
                self._shared.write_guarded([change], None, self._process, durable=durable) == [True]
            ),
            is_write=True,
        )

    def write_guarded(
        self,
        mutations: Sequence[GuardedMutation | Entries | CellGroup],
        *,
        guard: Condition | None = None,
        durable: bool = False,
    ) -> list[bool] | None:
        """Change rows at once; see `Store`."""
        assert self.capabilities.guarded_batches, "nobody uses what is not there"
        groups = [one for one in mutations if isinstance(one, CellGroup)]
        return self._call(
            "write_guarded",
            lambda: self._shared.write_guarded(mutations, guard, self._process, durable=durable),
            is_write=True,
            tables={table for group in groups for table in group.cells},
        )

    # -- life ------------------------------------------------------------------------------------

    def lock(self, name: str, *, purpose: str) -> ProcessLock:
        """Take a lock that the operating system gives back when the process ends."""
        holders = self._shared.holders
        holder = holders.get(name)
        if holder is not None and not holder.is_dead:
            raise LockHeld(f"the lock {name!r} is held by {holder.name} for {purpose}")
        holders[name] = self._process
        return _Lock(holders, name, self._process)

    def close(self) -> None:
        """Leave the others to it."""


class AheadStore(SimStore):
    """A store that may be asked the next thing before it has answered."""

    def write_then_check(
        self, changes: Sequence[GuardedMutation], check: Condition
    ) -> tuple[list[bool], bool]:
        """Change rows one after another, then look; see `ChecksBehind`."""
        applied = []
        for table, mutation, condition in changes:
            assert condition is not None, "each has one"
            column, expected = condition.column, condition.expected
            applied.append(self.check_and_mutate(table, mutation.row, column, expected, mutation))
        return applied, self._holds(check)

    def put_then_check(self, entries: Entries, checks: Sequence[Condition]) -> list[bool]:
        """Put cells, then look; see `ChecksBehind`."""
        mutations = [one.mutation for one in singly([entries])]
        self.write({entries.table: mutations})
        return [self._holds(check) for check in checks]

    def _holds(self, check: Condition) -> bool:
        found = self.get(check.table, (check.row,), columns=(check.column,), max_versions=1)[0]
        return (found[0].value if found else None) == check.expected


class _Lock:
    excludes, was_removed = True, False
    """Nobody removes what it stands for."""

    def __init__(self, holders: dict[str, Process], name: str, process: Process) -> None:
        self._holders = holders
        self._name = name
        self._process = process

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._holders.get(self._name) is self._process:
            del self._holders[self._name]


def _quietly(work: Callable[[], object]) -> None:
    """Carry out what nobody hears the answer of; what it changed may be gone by now."""
    try:
        work()
    except OmidError:
        return
