"""How far workers are is told in short-lived rows, which nothing is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar, Final, cast

import pytest

from compactor.pruning.prune import PruneTask
from compactor.ranges.advances import PROGRESS_PREFIX, Advances, ByTask, Teller
from compactor.ranges.progress import Passed
from compactor.ranges.range_task import RangeResult, RangeTask
from compactor.shell import job
from compactor.shell.job import pass_on_worker, prune_on_worker
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import StorageUnavailable
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.control import ControlTable
from omidpy.model import KeyRange
from omidpy.storage.base import RowMutation
from omidpy.storage.handed import HandedStore
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from tests.machines.cells import ALL_AT_ONCE, World

TASK: Final = RangeTask("t", KeyRange(), frozenset(), 0, 0, 0, "c")


def read(rows: int) -> RangeResult:
    """Return what a pass has come to that has read so many rows."""
    return RangeResult(TASK, rows, 2 * rows, 30 * rows, 0.0, rows // 2)


def passed(rows: int) -> Passed:
    """Return the same as it is shown."""
    return Passed().with_result(read(rows))


class Scene:
    """Workers and a driver of one call, on a store in memory."""

    def __init__(self, store: MemoryStore | None = None, *, is_told: bool = True) -> None:
        self.control = ControlTable(store or MemoryStore())
        self.control.create()
        self.clock = ManualClock()
        self.advances = Advances(self.control, "r", self.clock, is_told=is_told)

    def attempt(self, number: int) -> Teller:
        """Begin an attempt of a task."""
        name = self.advances.of_task(number)
        assert name is not None
        return Teller(self.control, name, self.clock)

    def later(self) -> None:
        """Let the time pass after which a worker tells, and the driver looks."""
        self.clock.advance(5)

    def rows(self) -> list[bytes]:
        """Return the rows that are there."""
        return [row for row, _ in self.control.scan(PROGRESS_PREFIX)]


def test_rows_of_a_pass_are_shown_while_it_reads() -> None:
    """Spark says nothing of a task before its end, so that an hour's range was "0 rows"."""
    scene = Scene()
    one, other = scene.attempt(0), scene.attempt(10)
    scene.later()
    one.tell(read(500))
    other.tell(read(7))
    assert scene.advances.so_far({}) == passed(507)


def test_a_worker_writes_once_in_five_seconds_and_nothing_for_a_short_range() -> None:
    """However many pages it reads; its row goes when it ends."""
    scene = Scene()
    teller = scene.attempt(0)
    for number in range(1, 100):
        scene.clock.advance(0.05)
        teller.tell(read(number))
    assert scene.rows() == []
    scene.later()
    teller.tell(read(100))
    teller.tell(read(101))
    (row,) = scene.rows()
    assert scene.control.read(row) == b"[100,200,3000,50]"
    teller.end()
    assert scene.rows() == []


def test_the_driver_looks_once_in_five_seconds() -> None:
    """It asks five times a second for what has ended."""
    scene = Scene()
    teller = scene.attempt(0)
    scene.later()
    teller.tell(read(1))
    assert scene.advances.so_far({}) == passed(1)
    scene.later()
    teller.tell(read(2))
    scene.clock.advance(-0.1)
    assert scene.advances.so_far({}) == passed(1)
    scene.clock.advance(0.1)
    assert scene.advances.so_far({}) == passed(2)


def test_a_task_that_has_ended_is_counted_once() -> None:
    """Its row may be remembered for some seconds, and one that died has left it."""
    scene = Scene()
    ended, running = scene.attempt(0), scene.attempt(1)
    scene.later()
    ended.tell(read(500))
    running.tell(read(20))
    assert scene.advances.so_far({}) == passed(520)
    assert scene.advances.so_far({0: passed(600)}) == passed(620)


def test_attempts_of_one_task_count_once() -> None:
    """Spark runs a slow task a second time, beside the first; both read the same rows."""
    scene = Scene()
    first, second = scene.attempt(0), scene.attempt(0)
    scene.later()
    first.tell(read(30))
    second.tell(read(10))
    assert len(scene.rows()) == 2
    assert scene.advances.so_far({}) == passed(30)
    by_task = ByTask()
    total = by_task.zero({7: passed(1)})
    for _ in range(2):
        total = by_task.addInPlace(total, {0: passed(30)})
    assert total == {0: passed(30)}


def test_what_is_shown_does_not_go_down() -> None:
    """A worker removes its row a moment before Spark says that its task has ended."""
    scene = Scene()
    teller = scene.attempt(0)
    scene.later()
    teller.tell(read(500))
    assert scene.advances.so_far({}) == passed(500)
    teller.end()
    scene.later()
    assert scene.advances.so_far({}) == passed(500)
    assert scene.advances.so_far({0: passed(600)}) == passed(600)


def test_tasks_of_another_call_are_not_counted() -> None:
    """Those of a driver that was killed go on while another goes on with the run."""
    scene = Scene()
    killed = scene.attempt(0)
    scene.later()
    killed.tell(read(500))
    anew = Advances(scene.control, "r", scene.clock, is_told=True)
    scene.later()
    assert anew.so_far({}) == Passed()
    anew.end()
    assert len(scene.rows()) == 1
    scene.advances.end()
    assert scene.rows() == []


def test_a_row_that_cannot_be_read_hides_no_other() -> None:
    """Some later version may write more into it."""
    scene = Scene()
    teller = scene.attempt(0)
    name = scene.advances.of_task(1)
    assert name is not None
    scene.control.write(name + b"x", b"{")
    scene.later()
    teller.tell(read(3))
    assert scene.advances.so_far({}) == passed(3)
    scene.advances.end()
    assert scene.rows() == []


class Unwell(MemoryStore):
    """Can be told to answer nothing about the control table."""

    is_away = False

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Write, unless it is away."""
        self._check()
        super().write(batch, durable=durable)

    def scan(self, *args, **options):  # type: ignore[no-untyped-def] # noqa: ANN002, ANN003, ANN201 - as it comes
        """Scan, unless it is away."""
        self._check()
        return super().scan(*args, **options)

    def _check(self) -> None:
        if self.is_away:
            raise StorageUnavailable("away")


def test_what_cannot_be_told_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Neither in a worker nor in the driver; each says so."""
    store = Unwell()
    scene = Scene(store)
    teller = scene.attempt(0)
    scene.later()
    store.is_away = True
    teller.tell(read(500))
    assert scene.advances.so_far({}) == Passed()
    teller.end()
    scene.advances.end()
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "how far a pass is cannot be told, and it goes on",
        "how far passes are cannot be read, and they go on",
        "what passes told of themselves stays for the next run",
        "what passes told of themselves cannot be listed",
    ]


def test_a_dry_run_tells_nothing() -> None:
    """It promises to write nothing."""
    scene = Scene(is_told=False)
    assert scene.advances.of_task(0) is None
    scene.later()
    assert scene.advances.so_far({0: passed(5)}) == passed(5)


class Heard(ControlTable):
    """Keeps what is written and forgotten, by anybody."""

    written: ClassVar[list[tuple[bytes, bytes]]] = []
    forgotten: ClassVar[list[bytes]] = []

    def write(self, row: bytes, value: bytes, *, durable: bool = True) -> None:
        """Write and keep."""
        self.written.append((row, value))
        super().write(row, value, durable=durable)

    def forget(self, rows: list[bytes]) -> None:
        """Forget and keep."""
        self.forgotten.extend(rows)
        super().forget(rows)


def test_a_worker_that_comes_to_another_store_leaves_it_as_it_is(tmp_path: Path) -> None:
    """Its low watermark and its retention are those of the driver's store, and no others'."""
    world = World(SqliteStore(str(tmp_path / "s.db")))
    world.table()
    world.put(b"a", 100)
    before = list(world.store.scan("t"))
    task = replace(TASK, families=frozenset({b"cf"}), low_watermark=500, commit_table=COMMIT_TABLE)
    sent = HandedStore(world.store.url).of(MemoryStore())
    result = pass_on_worker(sent, task)
    assert (result.rows_read, result.claim) == (0, None)
    assert "where the job was planned" in result.obstacle
    assert list(world.store.scan("t")) == before
    slice_of = SimpleNamespace(rows=KeyRange())
    pruned = prune_on_worker(sent, cast(PruneTask, slice_of))
    assert "where the job was planned" in pruned.obstacle
    sent = HandedStore(world.store.url).of(world.store)
    assert pass_on_worker(sent, task).rows_read == 1
    world.store.close()


def test_a_pass_on_a_worker_tells_and_takes_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind each page here, for a task that is told to."""
    world = World(SqliteStore(str(tmp_path / "s.db")))
    world.table()
    world.put(b"a", 100)
    monkeypatch.setattr(job, "ControlTable", Heard)
    task = replace(TASK, families=frozenset({b"cf"}), low_watermark=500, commit_table=COMMIT_TABLE)
    assert pass_on_worker(HandedStore(world.store.url), task).rows_read == 1
    assert (Heard.written, Heard.forgotten) == ([], [])
    prefix = PROGRESS_PREFIX + b"r/call/0/"
    world.put(b"b", 100)
    assert pass_on_worker(HandedStore(world.store.url), task, prefix, 0.0).rows_read == 1
    ((row, told),) = Heard.written
    assert row.startswith(prefix)
    assert told.startswith(b"[1,1,")
    assert Heard.forgotten == [row]
    world.store.close()


def test_the_next_run_removes_what_the_dead_have_told() -> None:
    """Whoever told, and in whatever form."""
    world = World(MemoryStore())
    world.table()
    world.control.write(PROGRESS_PREFIX + b"gone/1/0/1", b"[1,2,3,4]")
    world.control.write(PROGRESS_PREFIX + b"gone/2/0/1", b"?")
    world.compact(replace(ALL_AT_ONCE, is_dry_run=True))
    assert len(list(world.control.scan(PROGRESS_PREFIX))) == 2
    world.compact(ALL_AT_ONCE)
    assert list(world.control.scan(PROGRESS_PREFIX)) == []
