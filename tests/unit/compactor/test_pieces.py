"""Rows that nobody can hold are checked, counted and converted in pieces, to the same end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pytest

from compactor.check.fsck import Check, CheckOptions
from compactor.rows import pieces
from compactor.rows.pieces import Piece, get_pieces, scan_pieces
from compactor.rows.spool import Spool
from compactor.tables.adoption import adopt, plan_adoption
from omidpy.base.cells import shadow_qualifier
from omidpy.errors import StorageError
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.model import Cell, Timestamp
from omidpy.reading.visibility import sort_row
from omidpy.storage.memory import MemoryStore
from omidpy.storage.options import Portion, Wanted
from tests.machines.cells import FAMILY, World

SMALL: Final = Portion(cells=5, size_bytes=10_000)
LONGEST_PIECE: Final = SMALL.cells + 3
"""A version comes with its shadow cells."""
WANTED: Final = Wanted((FAMILY,))


@contextmanager
def small_portions() -> Iterator[None]:
    """Let hardly anything be held."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PORTION", SMALL)
        yield


def damaged_world() -> World:
    """Return a store with a row of everything that may be wrong, beside short ones."""
    world = World(MemoryStore(), low_watermark=1000)
    world.table()
    # One transaction healed its first column, and died; only that column tells of it.
    world.heal(world.put(b"r", 100, qualifier=b"a"), 150)
    world.put(b"r", 100, qualifier=b"z")
    for number in range(6):
        world.put(b"r", 200, qualifier=b"c%d" % number)
        world.put(b"r", 300, qualifier=b"d%d" % number)
        world.remove(healed(world, 400, b"e%d" % number))
        healed(world, 500, b"f%d" % number)
        healed(world, 500 + 50 * number, b"g")
    world.enter(200, 250)
    world.enter(500, 550)
    world.enter(600, 650)
    world.put(b"r", 700, qualifier=b"h")
    world.put(b"r", 700, b"short", qualifier=shadow_qualifier(b"h"))
    for row in (b"a", b"z"):
        world.put(row, 200)
        world.heal(world.put(row, 500), 550)
    return world


def healed(world: World, start_ts: int, qualifier: bytes) -> Cell:
    """Write a cell that is whole."""
    cell = world.put(b"r", start_ts, qualifier=qualifier)
    world.heal(cell, start_ts + 50)
    return cell


def commits_of(cells: list[Cell]) -> Mapping[Timestamp, Timestamp]:
    """Return what shadow cells tell that can be read."""
    return sort_row([cell for cell in cells if cell.value != b"short"]).commits


READS: Final[dict[str, Callable[[World], Iterator[list[Piece]]]]] = {
    "scan": lambda world: (
        list(page)
        for page in scan_pieces(world.store, "t", WANTED, page_rows=500, commits_of=commits_of)
    ),
    "get": lambda world: (
        list(page)
        for page in get_pieces(
            world.store, "t", [b"a", b"b", b"r", b"z"], WANTED, commits_of=commits_of
        )
    ),
}


@pytest.mark.parametrize("read", READS)
def test_pieces_are_short_and_come_to_the_row(read: str) -> None:
    """Each cell once, with its shadow cell, and with what the row tells of its transaction."""
    world = damaged_world()
    (whole,) = READS[read](world)
    with small_portions():
        found = [piece for page in READS[read](world) for piece in page]
    assert max(len(piece.cells) for piece in found) <= LONGEST_PIECE
    cells = [cell for piece in found for cell in piece.cells]
    assert sorted(cells) == sorted(cell for piece in whole for cell in piece.cells)
    assert sum(piece.is_first for piece in found) == len(whole) == 3
    (of_z,) = (p for p in found if any(cell.qualifier == b"z" for cell in p.cells))
    assert of_z.commits[Timestamp(100)] == 150, "a's shadow cell lies in another piece"
    for piece in found:
        shadows = {cell.qualifier for cell in piece.cells}
        assert not any(
            cell.qualifier == b"g" and shadow_qualifier(b"g") not in shadows for cell in piece.cells
        )


@pytest.mark.parametrize("read", READS)
def test_pieces_are_bounded_in_bytes_too(read: str) -> None:
    """A few cells may be as long as very many."""
    store = MemoryStore()
    world = World(store, low_watermark=1000)
    world.table()
    for number in range(20):
        world.put(b"r", 100, b"x" * 1000, qualifier=b"c%02d" % number)
    most = Portion(cells=10_000, size_bytes=3000)
    parts = list(store.row_parts("t", b"r", WANTED, most=most))
    assert max(sum(len(cell.value) for cell in cells) for cells in parts) <= 3000
    assert sum(map(len, parts)) == 20
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PORTION", most)
        found = [piece.cells for page in READS[read](world) for piece in page]
    assert sum(map(len, found)) == 20
    # The bound, the cell that passes it, and one whose shadow cell may follow.
    assert max(sum(len(cell.value) for cell in cells) for cells in found) <= 3000 + 2 * 1000


@pytest.mark.parametrize("is_repair", [False, True])
def test_a_check_finds_and_mends_the_same_in_pieces(*, is_repair: bool) -> None:
    """Whatever is wrong in a long row."""

    def checked() -> tuple[object, ...]:
        world = damaged_world()
        options = CheckOptions(settle_s=1.0, is_repair=is_repair)
        report = Check(world.store, options, sleep=world.clock.advance).run()
        findings = sorted(map(str, report.findings))
        counts = (report.counts, report.repaired, report.rows_read, report.cells_read)
        return findings, counts, sorted(world.cells()), world.entries()

    whole = checked()
    with small_portions():
        assert checked() == whole
    assert len(whole[0]) > 10  # type: ignore[arg-type]  # findings


def test_adoption_counts_and_converts_the_same_in_pieces() -> None:
    """Plain data beside what transactions wrote, in one long row."""

    def adopted() -> tuple[object, ...]:
        world = World(MemoryStore(), low_watermark=1000, first_timestamp=80)
        world.table(families=(), plain_families=(FAMILY,), owner=None)
        for number in range(20):
            world.put(b"r", 10 + number % 3, qualifier=b"p%d" % number)
        world.heal(world.put(b"r", 100, qualifier=b"a"), 150)
        world.put(b"r", 100, qualifier=b"z")
        world.put(b"r", 200, qualifier=b"c")
        world.enter(200, 250)
        plan = plan_adoption(world.store, "t", COMMIT_TABLE)
        converted = adopt(world.store, plan, COMMIT_TABLE)
        return plan, converted, sorted(world.cells())

    whole = adopted()
    with small_portions():
        assert adopted() == whole
    assert whole[1] == {FAMILY: 20}


def test_a_disk_that_is_full_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check or an adoption ends with one line, and not with SQLite's own words."""
    world = World(MemoryStore())
    world.table()
    for number in range(40):
        world.heal(world.put(b"r", 200, b"v" * 1000, qualifier=b"c%d" % number), 250)
    begin = Spool.__init__

    def begun(spool: Spool, row: bytes, most: Portion) -> None:
        begin(spool, row, most)
        spool._file.execute("PRAGMA max_page_count = 5")

    monkeypatch.setattr(Spool, "__init__", begun)
    with small_portions(), pytest.raises(StorageError, match="folder for temporary files"):
        plan_adoption(world.store, "t", COMMIT_TABLE, names_it=False)
