"""A run that finds nothing to judge is quick, and says why; one that finds something is no less so.

How rows are told apart is in `tests/property/test_clean_rows.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from compactor.ranges import range_reading
from compactor.run.reporting.summing import why_quick
from compactor.shell.display import summary
from omidpy.facts.watermarks import Watermarks
from omidpy.model import KeyRange
from omidpy.storage.memory import MemoryStore
from omidpy.storage.options import Portion, Sieve, Sifted
from omidpy.storage.sqlite import SqliteStore
from tests.machines.cells import ALL_AT_ONCE, World

ROWS = 60


class CountsRows(SqliteStore):
    """Counts what it hands out and what it sifts."""

    handed_out = 0
    sifted = 0

    def scan_portions(self, *args: object, **how: object) -> Iterator[object]:  # type: ignore[override]
        """Count the rows of each page."""
        for page in super().scan_portions(*args, **how):  # type: ignore[arg-type]
            self.handed_out += len(page) if isinstance(page, list) else 1
            yield page

    def get_portion(self, *args: object, **how: object) -> list[object]:  # type: ignore[override]
        """Count the rows."""
        rows = super().get_portion(*args, **how)  # type: ignore[arg-type]
        self.handed_out += len(rows)
        return list(rows)

    def sift(self, table: str, key_range: KeyRange, sieve: Sieve, *, most_cells: int) -> Sifted:
        """Count the calls."""
        self.sifted += 1
        return super().sift(table, key_range, sieve, most_cells=most_cells)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Fill a table that is sifted in parts of ten rows."""
    monkeypatch.setattr(range_reading, "FIRST_SIFTED_CELLS", 20)
    monkeypatch.setattr(range_reading, "MOST_SIFTED_CELLS", 20)
    store = CountsRows(tmp_path / "s.db")
    world = World(store)
    world.table()
    for number in range(ROWS):
        world.heal(world.put(b"%03d" % number, 100), 150)
    yield world
    store.close()


def store_of(world: World) -> CountsRows:
    """Return what counts."""
    assert isinstance(world.store, CountsRows)
    return world.store


def test_where_all_is_healed_no_row_is_handed_out(world: World) -> None:
    """The report counts them all the same, and says why it was quick."""
    report = world.compact()
    assert (report.rows_read, report.cells_read, report.laggards) == (ROWS, 2 * ROWS, [])
    assert store_of(world).handed_out == 0
    assert report.quick.startswith(f"nothing to heal: in all {ROWS} rows each cell has")
    assert f"  quick        {report.quick}\n" in summary(report)
    assert Watermarks(world.control).claims()[0].settled > 100


def test_a_run_without_news_says_so(world: World) -> None:
    """It reads nothing, and not because there is nothing."""
    world.compact()
    world.set_low_watermark(2000)
    report = world.compact()
    assert report.rows_read == 0
    assert report.quick.startswith("nothing to heal: no cell was found that the claims")


def test_one_cell_without_a_shadow_cell_is_found_and_healed(world: World) -> None:
    """It alone is handed out, whoever left it: by what is there, no mark is asked."""
    cell = world.put(b"037", 200)
    world.enter(200, 250)
    report = world.compact()
    assert (report.cells_healed, report.rows_read, report.quick) == (1, ROWS, "")
    assert store_of(world).handed_out == 1
    assert world.shadows()[cell.row, cell.version] == 250


def test_garbage_among_clean_rows_goes(world: World) -> None:
    """A client died before its commit, an hour or a release ago."""
    world.put(b"0375", 200)
    report = world.compact()
    assert (report.cells_dropped, report.transactions_invalidated) == (1, 1)
    assert report.quick == ""
    assert store_of(world).handed_out == 1


def test_a_long_row_among_clean_rows_is_worked_on_in_parts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not clean, and is more than fits."""
    monkeypatch.setattr(range_reading, "PORTION", Portion(cells=10, size_bytes=10**6))
    for number in range(30):
        world.put(b"0375", 200, qualifier=b"%d" % number)
    world.enter(200, 250)
    report = world.compact()
    assert (report.cells_healed, report.rows_read) == (30, ROWS + 1)


def test_a_table_of_other_rows_is_read_as_ever(world: World) -> None:
    """To sift them all would be for nothing."""
    for number in range(ROWS):
        world.put(b"%03d" % number, 200)
    world.enter(200, 250)
    report = world.compact()
    assert (report.cells_healed, report.rows_read) == (ROWS, ROWS)
    assert (store_of(world).sifted, store_of(world).handed_out) == (1, ROWS)


def test_a_run_that_shall_be_slow_reads_small_pages(world: World) -> None:
    """What a store sifts is thousands of cells at once."""
    report = world.compact(replace(ALL_AT_ONCE, max_rows_per_s=1e9))
    assert (report.rows_read, store_of(world).sifted) == (ROWS, 0)


def test_a_store_that_does_not_sift_gives_no_reason() -> None:
    """Each row was looked at."""
    world = World(MemoryStore())
    world.table()
    world.heal(world.put(b"a", 100), 150)
    assert world.compact().quick == ""


def test_without_tables_there_is_no_reason() -> None:
    """A note says that there are none."""
    assert why_quick(()) == ""
