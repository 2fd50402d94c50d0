"""What a compaction reads of a real HBase, where files hold what was claimed before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from omidpy.base.cells import encode_long, shadow_qualifier
from omidpy.facts.watermarks import MIN_COLLECTION_GRACE_S
from omidpy.storage.base import Put, RowMutation
from tests.machines.cells import ALL_AT_ONCE, FAMILY, World
from tests.machines.hbase import HBase, Road
from tests.machines.hbase.bare import bare_client, gateway_idl
from tests.machines.hbase_store import one_region_store

pytestmark = [pytest.mark.integration, pytest.mark.hbase]

ROAD_BY_DAY = Road.DIRECT

ROWS = 50_000
BATCH_ROWS = 5000


@pytest.fixture
def world(hbase: HBase) -> Iterator[World]:
    """Return a store with one large table, healed and flushed to files."""
    with one_region_store(hbase) as store:
        made = World(store)
        made.table()
        cells = (Put(FAMILY, b"q", 100, b"v"), Put(FAMILY, shadow_qualifier(b"q"), 100, SHADOW))
        for first in range(0, ROWS, BATCH_ROWS):
            rows = range(first, first + BATCH_ROWS)
            store.write({"t": [RowMutation(b"%06d" % row, cells) for row in rows]})
        # A region that closes writes what it has in memory to a file.
        name = gateway_idl(hbase).TTableName(ns=b"default", qualifier=b"t")
        with bare_client(hbase) as client:
            client.disableTable(name)
            client.enableTable(name)
        yield made


SHADOW = encode_long(150)


def test_a_hundredth_that_changed_costs_a_twentieth_at_most(world: World) -> None:
    """In a table of many cells, of which nearly all lie in a file that need not be opened."""
    assert world.compact(ALL_AT_ONCE).cells_read == 2 * ROWS
    changed = [b"%06d" % row for row in range(0, ROWS, 100)]
    put = Put(FAMILY, b"q", 1100, b"new")
    world.store.write({"t": [RowMutation(row, (put,)) for row in changed]})
    world.enter(1100, 1150)
    for options in (ALL_AT_ONCE, replace(ALL_AT_ONCE, should_wait=True)):
        world.clock.advance(2 * MIN_COLLECTION_GRACE_S)
        world.set_low_watermark(2000)
        report = world.compact(options)
        assert report.cells_read <= 2 * ROWS // 20
    assert len(world.cells()) == 2 * ROWS
    assert world.compact(ALL_AT_ONCE).cells_read == 0
    assert world.visible(changed[-1], 5000) == {b"q": b"new"}
