"""A row that is longer than a pass can hold: bounded memory, and no order lost."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from compactor.pacing import Pacing
from compactor.ranges import range_reading
from compactor.ranges.range_pass import RangePass
from compactor.ranges.range_task import RangeResult, RangeTask
from compactor.rows.spool import Spool
from omidpy.base.cells import encode_long, shadow_qualifier
from omidpy.base.timing.clock import ManualClock
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.model import Cell, KeyRange
from omidpy.reading.visibility import shadow_column
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.storage.memory import MemoryStore
from omidpy.storage.options import Portion
from omidpy.storage.sqlite import SqliteStore
from tests.machines.cells import FAMILY, World, outcome

ROW: Final = b"r"
SMALL: Final = Portion(cells=5, size_bytes=10_000)
TASK: Final = RangeTask("t", KeyRange(), frozenset({FAMILY}), 1000, 0, 900, COMMIT_TABLE)


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pass hold hardly anything."""
    monkeypatch.setattr(range_reading, "PORTION", SMALL)


def passed(
    store: Store, on_step: Callable[[str], None] = lambda _: None, task: RangeTask = TASK
) -> RangeResult:
    """Pass over table `t` once."""
    return RangePass(store, task, clock=ManualClock(), on_step=on_step).run()


def troubled_row(world: World) -> None:
    """Write, into one row, every kind of cell that a compaction has work with."""

    def put(qualifier: bytes, version: int, value: bytes = b"v", commit_ts: int = 0) -> Cell:
        cell = world.put(ROW, version, value, qualifier=qualifier)
        if commit_ts:
            world.heal(cell, commit_ts)
        return cell

    # One transaction healed its first column, and died; its entry went with a restore.
    put(b"a", 100, commit_ts=150)
    put(b"a", 300, commit_ts=350)
    put(b"z", 100)
    world.enter(200, 250)
    for number in range(4):
        put(b"c%d" % number, 200)
        put(b"d%d" % number, 800)
    for version in range(100, 800, 50):
        put(b"hot", version + 1, commit_ts=version + 40)
    for version in range(100, 700, 50):
        put(b"gone", version + 1, commit_ts=version + 40)
    put(b"gone", 700, b"", commit_ts=740)
    orphan = put(b"e", 500, commit_ts=550)
    world.remove(orphan)
    put(b"below", 20, commit_ts=40)
    put(b"", 50, b"", commit_ts=90)


def a_world() -> World:
    """Return a store with such a row."""
    world = World(MemoryStore())
    world.table()
    troubled_row(world)
    return world


@pytest.mark.usefixtures("small_portions")
def test_a_long_row_comes_to_what_a_short_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of everything at once."""
    parts = a_world()
    result = passed(parts.store)
    assert result.claim is not None
    monkeypatch.undo()
    whole = a_world()
    assert passed(whole.store).cells_dropped == result.cells_dropped
    assert outcome(parts) == outcome(whole)
    left = {(name, version) for _, name, version, _ in parts.data()}
    assert (b"z", 100) in left, "its transaction is committed, as another column of the row says"
    assert {version for name, version in left if name == b"hot"} == {751}
    assert not {name for name, _ in left} & {b"gone", b"below", b"", b"d0", b"e"}


class Killed(BaseException):
    """The process is gone."""


def killed_at(number: int) -> Callable[[str], None]:
    """Return what dies at the so many-th step."""
    steps = iter(range(number))

    def die(_: str) -> None:
        if next(steps, None) is None:
            raise Killed

    return die


def kills(world_of: Callable[[], World]) -> Iterator[World]:
    """Yield a world for each step at which a pass over it can die, and has."""
    for number in range(1000):
        world = world_of()
        try:
            passed(world.store, killed_at(number))
        except Killed:
            yield world
        else:
            assert number > 20, "there are many steps"
            return


@pytest.mark.usefixtures("small_portions")
def test_a_pass_that_dies_between_two_parts_is_done_by_the_next() -> None:
    """Wherever it dies no snapshot from the horizon on notices, and nothing is lost."""
    unharmed = a_world()
    before = [unharmed.visible(ROW, at) for at in (900, 1000, 2000)]
    passed(unharmed.store)
    for world in kills(a_world):
        assert [world.visible(ROW, at) for at in (900, 1000, 2000)] == before
        passed(world.store)
        assert outcome(world) == outcome(unharmed)


class Recorder(MemoryStore):
    """Remembers which cells went, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.went: list[tuple[bytes, int]] = []

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Write, and note what is deleted."""
        for mutations in batch.values():
            self.went += [(one.qualifier, one.version) for m in mutations for one in m.deletes]
        super().write(batch, durable=durable)


@pytest.mark.usefixtures("small_portions")
def test_a_tombstone_goes_behind_all_that_it_hides() -> None:
    """Which lies in parts that come after its own; and a family marker behind its columns."""
    store = Recorder()
    world = World(store)
    world.table()
    troubled_row(world)
    passed(store)
    data = [name for name, _ in store.went if not name.endswith(b"\xc2\x80")]
    assert [version for name, version in store.went if name == b"gone"][-1] == 700
    assert data[-1] == b"", "the marker is the last to go"
    first_old = data.index(b"gone")
    assert all(name not in (b"d0", b"d3") for name in data[first_old:]), "garbage goes before"


@pytest.mark.usefixtures("small_portions")
def test_a_window_ends_within_a_long_row() -> None:
    """There is no claim, and the next pass does the rest."""
    world = a_world()
    clock = ManualClock()
    task = replace(TASK, pacing=Pacing(ends_ms=clock.wall_ms() + 1000))
    steps: list[str] = []

    def turn(step: str) -> None:
        steps.append(step)
        if step == "page-healed":
            clock.advance(2.0)

    result = RangePass(world.store, task, clock=clock, on_step=turn).run()
    assert result.claim is None
    assert "the run's window ended" in result.obstacle
    assert steps[-1] == "page-healed"
    assert steps.count("page-healed") == 1
    assert passed(world.store).claim is not None


# -- memory ----------------------------------------------------------------------------------------


def wide_row(store: Store, columns: int, versions: int = 1) -> None:
    """Write a row of healed cells, of which every tenth lacks its shadow cell."""
    world = World(store, low_watermark=10**9)
    world.table()
    world.enter(100, 150)
    cells = (
        Cell(ROW, FAMILY, b"%08d" % column, 100 + 50 * version, b"v" * 20)
        for column in range(columns)
        for version in range(versions)
    )
    puts: list[Put] = []
    for number, cell in enumerate(cells):
        puts.append(Put(*cell[1:]))
        if cell.version != 100 or number % 10:
            shadow = Put(*shadow_column(cell), cell.version, encode_long(cell.version + 50))
            puts.append(shadow)
        if len(puts) > 10_000:
            store.write({"t": [RowMutation(ROW, puts)]})
            puts = []
    store.write({"t": [RowMutation(ROW, puts)]})


def peak_bytes(path: Path, columns: int, versions: int) -> int:
    """Return what a pass over such a row takes of Python's memory at most."""
    store = SqliteStore(path)
    try:
        wide_row(store, columns, versions)
        tracemalloc.start()
        try:
            result = passed(store, task=replace(TASK, low_watermark=10**9, drop_horizon=10**9))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert result.claim is not None
        assert result.rows_read == 1
        assert result.cells_dropped == columns * (versions - 1)
        return peak
    finally:
        store.close()


@pytest.mark.parametrize(("columns", "versions"), [(5_000, 1), (2, 2_500)])
def test_memory_does_not_grow_with_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, versions: int
) -> None:
    """Neither with its columns, nor with the versions of one; held whole it takes 4 MiB."""
    monkeypatch.setattr(range_reading, "PORTION", Portion(cells=500, size_bytes=1 << 20))
    assert peak_bytes(tmp_path / "db", columns, versions) < 1 << 20


@pytest.mark.nightly
def test_a_million_cells_are_passed_over_in_bounded_memory(tmp_path: Path) -> None:
    """As wide as HBase lets rows become, with the product's own portions."""
    assert peak_bytes(tmp_path / "db", 500_000, 1) < 48 << 20


@pytest.mark.usefixtures("small_portions")
def test_a_disk_that_is_full_is_an_obstacle_of_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows around it are healed, its range is not claimed, and the reason says where."""
    world = World(MemoryStore())
    world.table()
    world.enter(200, 250)
    for row in (b"a", ROW, b"z"):
        for number in range(40 if row == ROW else 1):
            world.put(row, 200, b"v" * 1000, qualifier=b"c%d" % number)
    with monkeypatch.context() as patch:
        patch.setattr(Spool, "__init__", begun_on_a_small_disk)
        result = passed(world.store)
    assert result.claim is None
    assert "row b'r' is too long to be held in memory" in result.obstacle
    assert "disk is full; make room there, or let SQLITE_TMPDIR" in result.obstacle
    assert world.visible(ROW, 1000) == world.visible(ROW, 2000)
    assert result.cells_healed == 2
    again = passed(world.store)
    assert (again.claim is None, again.cells_healed) == (False, 40)


BEGIN: Final = Spool.__init__


def begun_on_a_small_disk(spool: Spool, row: bytes, most: Portion) -> None:
    """Begin a spool on a disk that has room for five of its pages."""
    BEGIN(spool, row, most)
    spool._file.execute("PRAGMA max_page_count = 5")


# -- the spool -------------------------------------------------------------------------------------


def spooled(cells: Sequence[Cell], most: Portion) -> list[tuple[list[Cell], object]]:
    """Return the parts of a row."""
    spool = Spool(ROW, most)
    try:
        spool.add(cells)
        return [(part.cells, part.column) for part in spool.parts()]
    finally:
        spool.close()


def test_a_cell_and_its_shadow_cell_are_never_parted() -> None:
    """Whatever a portion is, and whichever form the shadow cell has."""
    data = Cell(ROW, FAMILY, b"q", 100, b"v")
    new = data._replace(qualifier=shadow_qualifier(b"q"))
    older = data._replace(qualifier=b"q\xc2\x80")
    row = [one._replace(version=version) for one in (data, new, older) for version in (100, 200)]
    parts = spooled(row, Portion(1, 1))
    assert [{cell.version for cell in cells} for cells, _ in parts] == [{200}, {100}]
    assert all(len(cells) == 3 and column == (FAMILY, b"q") for cells, column in parts)
    assert spooled(row, Portion(100, 100)) == [([*parts[0][0], *parts[1][0]], None)]


def test_the_rest_of_a_long_column_is_no_part_of_the_next() -> None:
    """Else its versions would be judged as if they were all."""
    long = [Cell(ROW, FAMILY, b"a", version, b"v") for version in range(10)]
    short = [Cell(ROW, FAMILY, name, 1, b"v") for name in (b"b", b"c")]
    parts = spooled([*long, *short], Portion(4, 1000))
    assert [column for _, column in parts] == [(FAMILY, b"a")] * 3 + [None]
    assert [len(cells) for cells, _ in parts] == [4, 4, 2, 2]
