"""Long rows of a real HBase: what its gateway cuts, a pass puts together again."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import pytest

from compactor.ranges import range_reading
from compactor.ranges.range_task import RangeResult
from omidpy.base.tables import dated_incarnation
from omidpy.model import KeyRange
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.options import LongRow, Portion, Wanted
from tests.machines.cells import FAMILY, World
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import HBaseStore, one_region_store
from tests.unit.compactor.test_long_rows import ROW, TASK, passed, wide_row

pytestmark = [pytest.mark.integration, pytest.mark.hbase]

ROAD_BY_DAY = Road.DIRECT


@pytest.fixture
def store(hbase: HBase) -> Iterator[HBaseStore]:
    """Return a store without tables of ours."""
    with one_region_store(hbase) as store:
        yield store


def passed_over(store: HBaseStore) -> RangeResult:
    """Pass over all that is old."""
    incarnation = dated_incarnation("", store.table_states(["t"])["t"])
    return passed(
        store,
        task=replace(TASK, low_watermark=10**9, drop_horizon=10**9, incarnation=incarnation),
    )


@pytest.mark.parametrize(("columns", "versions"), [(1_000, 1), (2, 500)])
def test_a_long_row_is_healed_and_cleaned(
    store: HBaseStore, monkeypatch: pytest.MonkeyPatch, columns: int, versions: int
) -> None:
    """Each cell has its shadow cell then, and each column one version."""
    monkeypatch.setattr(range_reading, "PORTION", Portion(cells=300, size_bytes=1 << 20))
    wide_row(store, columns, versions)
    result = passed_over(store)
    assert result.claim is not None
    assert result.cells_healed == -(-columns // 10) if versions == 1 else 1
    assert result.cells_dropped == columns * (versions - 1)
    (row,) = store.get("t", [ROW])
    assert len(row) == 2 * columns
    again = passed_over(store)
    assert (again.cells_healed, again.cells_dropped) == (0, 0)


def test_large_values_come_one_by_one(store: HBaseStore) -> None:
    """A portion of theirs is more than the region servers send at once."""
    World(store).table()
    puts = [Put(FAMILY, b"%d" % number, 1, bytes(700_000)) for number in range(9)]
    for put in puts:
        store.write({"t": [RowMutation(ROW, [put])]})
    wanted, most = Wanted((FAMILY,)), Portion(1000, 1 << 20)
    pages = list(store.scan_portions("t", KeyRange(), wanted, page_rows=500, most=most))
    assert pages == [LongRow(ROW)]
    parts = list(store.row_parts("t", ROW, wanted, most=most))
    assert [[cell.qualifier for cell in part] for part in parts] == [
        [put.qualifier] for put in puts
    ]
    assert all(len(part[0].value) == 700_000 for part in parts)
    (whole,) = store.scan_portions(
        "t", KeyRange(), wanted, page_rows=500, most=Portion(1000, 1 << 30)
    )
    assert not isinstance(whole, LongRow)
    assert list(map(len, whole)) == [9]


@pytest.mark.nightly
def test_memory_does_not_grow_with_a_row(store: HBaseStore) -> None:
    """Of 100,000 cells, with almost as many shadow cells: held whole they take 165 MiB."""
    wide_row(store, 100_000)
    tracemalloc.start()
    try:
        result = passed_over(store)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.claim is not None
    assert result.cells_healed == 10_000
    assert peak < 64 << 20
