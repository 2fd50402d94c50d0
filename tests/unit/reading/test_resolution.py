"""Resolving many cells at once: what is asked of the store, and how much of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from omidpy.model import Cell
from omidpy.reading.resolution import MAX_LOOKUPS_PER_CELL, CellResolver
from omidpy.storage.base import Read, Row
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import World
from tests.machines.like_thrift1 import LikeThrift1

ROWS = 100


class CountingStore(MemoryStore):
    """A store that counts what a get has to look for: each column in each row."""

    def __init__(self) -> None:
        super().__init__()
        self.lookups = 0
        self.gets = 0

    def get(self, table: str, rows: Sequence[bytes], **read: Unpack[Read]) -> list[Row]:
        """Read rows, as a memory store does."""
        if table == "t":
            self.gets += 1
            self.lookups += len(rows) * len(read.get("columns") or ((b"", None),))
        return super().get(table, rows, **read)


def test_rows_of_different_columns_cost_no_more_than_rows_of_the_same() -> None:
    """A get asks every row for every column; a hundred rows would have asked for 20,000 cells."""
    store = CountingStore()
    world = World(store, low_watermark=0)
    world.table()
    cells = [Cell(b"r%d" % n, b"cf", b"q%d" % n, 100, b"v") for n in range(ROWS)]
    for cell in cells:
        world.put(cell.row, cell.version, qualifier=cell.qualifier)
    world.heal(cells[7], 150)
    resolver = CellResolver(store, world.commit_table)
    resolutions = resolver.resolve([("t", cell) for cell in cells], may_invalidate=lambda _: False)
    committed = {
        cell.row: resolution.commit_ts
        for (_, cell), resolution in resolutions.items()
        if resolution.commit_ts
    }
    assert committed == {b"r7": 150}
    assert store.gets == 1
    assert store.lookups <= MAX_LOOKUPS_PER_CELL * ROWS


class OneViewStore(LikeThrift1):
    """A store whose gets of several versions are made of several reads."""

    def get(self, table: str, rows: Sequence[bytes], **read: Unpack[Read]) -> list[Row]:
        """Read rows, and fail where a row would not be seen at one moment."""
        is_of_one = read["max_version"] - read["min_version"] == 1
        assert table != "t" or read.get("max_versions") == 1 or is_of_one
        return super().get(table, rows, **read)


def test_a_shadow_cell_is_read_in_one_view_with_its_cell() -> None:
    """Read apart, a cell and its shadow cell that went in between look like an undecided cell."""
    shared = MemoryStore()
    world = World(shared, low_watermark=0)
    world.table()
    cells = [Cell(b"r%d" % n, b"cf", b"q", 100 * n, b"v") for n in (1, 2, 3)]
    for cell in cells:
        world.put(cell.row, cell.version, qualifier=cell.qualifier)
    world.heal(cells[1], 250)
    resolver = CellResolver(OneViewStore(shared), world.commit_table)
    resolutions = resolver.resolve([("t", cell) for cell in cells], may_invalidate=lambda _: False)
    assert [resolutions["t", cell].commit_ts for cell in cells] == [None, 250, None]
