"""A dry run tells what the run will do, count for count, and does nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.options import Options
from compactor.report import Report
from omidpy.base.cells import shadow_qualifier
from omidpy.facts.watermarks import MIN_COLLECTION_GRACE_S
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE, World

pytestmark = pytest.mark.usefixtures("spans_however_small")

OPTIONS: Final = st.sampled_from(
    [
        ALL_AT_ONCE,
        replace(ALL_AT_ONCE, should_wait=True),
        replace(ALL_AT_ONCE, metrics="somewhere"),
        Options(retention_s=0.0),
        Options(retention_s=0.0, should_wait=True),
        Options(grace_s=5.0, invalidation_grace_s=5.0, retention_s=0.0, should_wait=True),
        replace(ALL_AT_ONCE, exclude=frozenset({"u"})),
    ]
)
CELLS: Final = st.lists(
    st.tuples(
        st.sampled_from(["t", "u"]),
        st.sampled_from([b"a", b"m", b"z"]),
        st.integers(1, 24),
        st.integers(0, 2),
        st.sampled_from([b"value", b""]),
        st.sampled_from(["keep", "remove", "spoil"]),
    ),
    max_size=14,
)
FATES: Final = st.lists(
    st.sampled_from(["committed", "healed", "dead", "forbidden", "wrongly forbidden", "malformed"]),
    min_size=24,
    max_size=24,
)


@given(CELLS, FATES, OPTIONS, st.booleans())
def test_real_run_does_what_the_dry_run_said(
    cells: list[tuple[str, bytes, int, int, bytes, str]],
    fates: list[str],
    options: Options,
    had_runs: bool,  # noqa: FBT001 - drawn
) -> None:
    """Cells and bytes by table, entries, laggards: whoever decides by them is not surprised."""
    world = World(MemoryStore())
    for table in ("t", "u"):
        world.table(table, splits=[b"m"])
    for table, row, number, checkpoint, value, then in cells:
        leave(world, table, row, 50 * number + checkpoint, value, fates[number - 1], then)
    if had_runs:
        world.compact(Options(retention_s=0.0))
        world.clock.advance(3 * 3600 + MIN_COLLECTION_GRACE_S)
        world.set_low_watermark(1100)
    image = world.image()
    told = world.compact(replace(options, is_dry_run=True))
    assert world.image() == image
    assert counts(world.compact(options)) == counts(told)


def test_dead_transaction_counts_once_and_bytes_are_those_of_its_cells() -> None:
    """It left cells in two ranges and two tables; each pass would have been the first."""
    world = World(MemoryStore())
    for table in ("t", "u"):
        world.table(table, splits=[b"m"])
        for row in (b"a", b"z"):
            world.put(row, 500, b"value", table=table)
    orphan = world.put(b"o", 100)
    world.heal(orphan, 150)
    world.remove(orphan)
    told = world.compact(replace(ALL_AT_ONCE, is_dry_run=True))
    assert (told.transactions_invalidated, told.invalidations_pruned) == (1, 1)
    of_cell = len(b"a" + b"cf" + b"q" + b"value") + 8
    of_shadow = len(b"o" + b"cf" + shadow_qualifier(b"q")) + 8 + 8
    assert [(one.table, one.cells_dropped, one.bytes_dropped) for one in told.tables] == [
        ("t", 3, 2 * of_cell + of_shadow),
        ("u", 2, 2 * of_cell),
    ]
    assert told.bytes_dropped == 4 * of_cell + of_shadow
    assert counts(world.compact()) == counts(told)


def leave(
    world: World, table: str, row: bytes, version: int, value: bytes, fate: str, then: str
) -> None:
    """Leave a cell as a transaction of some fate leaves it, or as damage does."""
    start_ts = version - version % 50
    cell = world.put(row, version, value, table=table)
    if fate in ("healed", "wrongly forbidden"):
        world.heal(cell, start_ts + 7, table=table)
    if fate == "committed":
        world.enter(start_ts, start_ts + 7)
    if fate in ("forbidden", "wrongly forbidden"):
        world.invalidate(start_ts)
    if fate == "malformed":
        world.enter(start_ts, start_ts - 1)
    if then == "remove":
        world.remove(cell, table=table)
    if then == "spoil" and fate == "healed":
        world.put(row, version, b"short", table=table, qualifier=shadow_qualifier(cell.qualifier))


def counts(report: Report) -> dict[str, Any]:
    """Return what is to be the same: all but how long it took, and when that was."""
    document = report.document()
    for name in ("dry_run", "seconds", "low_watermark_age_s", "horizon_age_s", "entries_left"):
        del document[name]
    return document
