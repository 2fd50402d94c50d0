"""Regions split, merge and move under scans and compactions, and region servers die under them.

A cluster of two region servers, so that a region that moves does change its server.  Both read page
by page and remember nothing but a key, and what a compaction claims is a range of keys: none of it
may depend on regions staying what they were when the work began.

Open transactions under a change of regions: `test_java_regions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

import pytest

import omidpy
from compactor.horizon import minimum
from compactor.ranges import range_reading
from compactor.report import Report
from compactor.run.plan import STEPS
from omidpy.base.tables import CONTROL_TABLE
from omidpy.errors import StorageUnavailable
from omidpy.facts.commit_table import COMMIT_TABLE, create_system_tables
from omidpy.facts.watermarks import Watermarks
from omidpy.manager import TransactionManager
from omidpy.model import TIMESTAMP_STEP, Cell, FamilySchema, TableSchema
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.hbase.thrift2 import Thrift2Store
from tests.machines.cells import ALL_AT_ONCE, FAMILY, World
from tests.machines.hbase import RunningHBase
from tests.machines.hbase.bare import bare_client
from tests.machines.hbase_store import empty_hbase, one_region_store
from tests.machines.java import JavaDriver
from tests.machines.processes import tso_server

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

TABLE: Final = "t"
PAGE_ROWS: Final = 10
ROWS: Final = [b"row%02d" % number for number in range(60)]
QUARTERS: Final = ROWS[15::15]
LOW_WATERMARK: Final = 1_000_000
LOADED_AT, LOADED_COMMIT = 5000, 5050
PATIENT: Final = "?retry_s=180"
"""A machine that is busy takes its time to find a server dead, and to replay its log."""
IMPATIENT: Final = "?timeout_s=2&retry_s=0"
"""Fails before ZooKeeper takes a server for dead, which is after two thirds of 10 s at least."""

Act = Callable[[], object]


@pytest.fixture(scope="module")
def driver(_hbase_cluster: RunningHBase) -> Iterator[JavaDriver]:
    """Run an administrator's process: Thrift has no commands for regions."""
    with JavaDriver(zookeeper=_hbase_cluster.zookeeper) as driver:
        yield driver


class Regions:
    """What an administrator does to the regions of tables."""

    def __init__(self, driver: JavaDriver) -> None:
        self._driver = driver

    def boundaries(self, table: str = TABLE) -> list[bytes]:
        """Return the keys at which regions of a table meet."""
        regions = self._driver.call("admin.regions", table=table)
        return sorted(bytes.fromhex(start) for start, _, _ in regions if start)

    def split(self, at: bytes) -> None:
        """Split the table's region that holds a key."""
        self._driver.call("admin.split", table=TABLE, at=at.hex())
        assert at in self.boundaries()

    def merge(self) -> None:
        """Make one region of the table's first two."""
        before = self.boundaries()
        self._driver.call("admin.merge", table=TABLE)
        assert self.boundaries() == before[1:]

    def move(self, table: str = TABLE) -> None:
        """Take every region of a table to the other server."""
        self._driver.call("admin.move", table=table)


@pytest.fixture
def regions(driver: JavaDriver) -> Regions:
    """Return the administrator."""
    return Regions(driver)


def server_of(hbase: RunningHBase, row: bytes) -> str:
    """Return the name of the region server that serves a row of the table."""
    with bare_client(hbase) as client:
        place = client.getRegionLocation(TABLE.encode(), row, True)
    return hbase.at_port(place.serverName.port)


# -- scans -----------------------------------------------------------------------------------------


@pytest.fixture
def tm(hbase_cluster: RunningHBase) -> Iterator[TransactionManager]:
    """Return a client of an empty HBase."""
    with one_region_store(hbase_cluster) as store:
        create_system_tables(store)
        with (
            tso_server(store.url) as server,
            omidpy.connect(store.url + PATIENT, server.address, post_commit="sync") as manager,
        ):
            yield manager


class Scans:
    """A snapshot whose rows all hold their key, read page by page from either end at once."""

    def __init__(self, tm: TransactionManager, *, splits: list[bytes]) -> None:
        """Fill a table, begin to read, and commit what the snapshot must not show."""
        tm.create_table(TABLE, families=["cf"], splits=splits)
        with tm.begin() as tx:
            for row in ROWS:
                tx.table(TABLE).put(row, {b"cf:q": row})
        table = tm.begin(read_only=True).table(TABLE)
        self.forwards = table.scan(batch_size=PAGE_ROWS)
        self.backwards = table.scan(batch_size=PAGE_ROWS, reverse=True)
        self.seen: list[tuple[bytes, dict[bytes, bytes]]] = []
        self.seen_backwards: list[tuple[bytes, dict[bytes, bytes]]] = []
        self.read_page()
        with tm.begin() as tx:
            for row in ROWS:
                tx.table(TABLE).put(row, {b"cf:q": b"late"})
                tx.table(TABLE).put(row + b"-late", {b"cf:q": b"late"})
        self.late = tm.begin(read_only=True).table(TABLE)

    def read_page(self) -> None:
        """Go on by a page at either end."""
        self.seen += islice(self.forwards, PAGE_ROWS)
        self.seen_backwards += islice(self.backwards, PAGE_ROWS)

    def finish(self) -> None:
        """Hold the snapshot to have been read once and in order; a later one sees the rest."""
        self.seen += self.forwards
        self.seen_backwards += self.backwards
        expected = [(row, {b"cf:q": row}) for row in ROWS]
        assert self.seen == expected
        assert self.seen_backwards == expected[::-1]
        late = sorted([*ROWS, *(row + b"-late" for row in ROWS)])
        assert list(self.late.scan()) == [(row, {b"cf:q": b"late"}) for row in late]


def test_a_scan_returns_its_snapshot_once_while_regions_split_move_and_merge(
    tm: TransactionManager, regions: Regions
) -> None:
    """Whichever region its next page is in by then: no row is left out, and none comes twice.

    The split is at the row with which a scan goes on, and the merges take away the boundary behind
    it, and the one before it.  Each moves its regions to the other server first, and those of the
    last have moved back by then: either server says of them that the other one has them now, and
    goes on to say so when they are gone.
    """
    scans = Scans(tm, splits=[ROWS[30]])
    regions.split(ROWS[10])
    scans.read_page()
    regions.merge()
    scans.read_page()
    regions.move()
    scans.read_page()
    regions.merge()
    assert regions.boundaries() == []
    scans.finish()


def test_a_scan_goes_on_where_it_was_when_a_region_server_is_killed(
    hbase_cluster: RunningHBase, tm: TransactionManager
) -> None:
    """Nothing of it was kept on the server; the next page waits until the region is served."""
    scans = Scans(tm, splits=QUARTERS)
    scans.read_page()
    hbase_cluster.crash(server_of(hbase_cluster, ROWS[2 * PAGE_ROWS]))
    scans.finish()


def test_a_table_created_anew_is_found_whatever_a_gateway_knows_of_the_old_one(
    hbase_cluster: RunningHBase, regions: Regions
) -> None:
    """Its old region moved to and fro, and both servers name the other one for two minutes."""
    first, second = (f"hbase+thrift2://{address}" for address in hbase_cluster.gateways)
    schema, put = TableSchema(TABLE, [FamilySchema(FAMILY)]), Put(FAMILY, b"q", 1, b"v")
    with (
        empty_hbase(hbase_cluster),
        closing(Thrift2Store(first)) as administrator,
        closing(Thrift2Store(f"{second}?timeout_s=40&retry_s=0")) as client,
    ):
        administrator.create_table(schema)
        for _ in range(4):
            client.write({TABLE: [RowMutation(b"r", (put,))]})
            regions.move()
        client.write({TABLE: [RowMutation(b"r", (put,))]})
        administrator.drop_table(TABLE)
        administrator.create_table(schema)
        client.write({TABLE: [RowMutation(b"new", (put,))]})
        assert [cells[0].row for page in client.scan(TABLE) for cells in page] == [b"new"]


# -- compactions -----------------------------------------------------------------------------------


@dataclass
class Troubled:
    """A table in which clients died at every point, and what must be read from it afterwards.

    A transaction writes a row from either end of the table, so that its commit entry is needed
    until both regions have been passed over.
    """

    world: World
    committed: dict[tuple[bytes, int], int]
    """(row, version) -> commit timestamp of the cells that have no shadow cell yet."""
    dead: set[tuple[bytes, int]]
    """(row, version) of the cells that never committed."""
    running: tuple[bytes, int]
    """(row, version) of the cell of a transaction that still runs."""

    @classmethod
    def write(cls, world: World, splits: list[bytes]) -> Troubled:
        """Write it all."""
        world.table(TABLE, splits=splits)
        found = cls(world, {}, set(), (ROWS[0], LOW_WATERMARK + TIMESTAMP_STEP))
        cells = {row: [(LOADED_AT, b"old")] for row in ROWS}
        for number in range(len(ROWS) // 2):
            start_ts = 10_000 + 100 * number
            pair = (ROWS[number], ROWS[-1 - number])
            is_committed = number % 3 == 0
            if is_committed:
                world.enter(start_ts, start_ts + 50)
                found.committed |= {(row, start_ts): start_ts + 50 for row in pair}
            else:
                found.dead |= {(row, start_ts) for row in pair}
                if number % 3 == 1:
                    world.invalidate(start_ts)
            for row in pair:
                cells[row].append((start_ts, b"new" if is_committed else b"dead"))
        row, version = found.running
        cells[row].append((version, b"running"))
        world.store.write(
            {
                TABLE: [
                    RowMutation(row, tuple(Put(FAMILY, b"q", *one) for one in of_row))
                    for row, of_row in cells.items()
                ]
            }
        )
        for row in ROWS:
            world.heal(Cell(row, FAMILY, b"q", LOADED_AT, b"old"), LOADED_COMMIT)
        return found

    def values(self) -> dict[bytes, bytes]:
        """Return what a new snapshot reads."""
        start_ts = LOW_WATERMARK + 50_000
        return {row: self.world.visible(row, start_ts).get(b"q", b"") for row in ROWS}

    def check_values(self) -> None:
        """Every committed value is read, and no other."""
        news = {row for row, _ in self.committed}
        assert self.values() == {row: b"new" if row in news else b"old" for row in ROWS}

    def check_compacted(self) -> None:
        """Hold the cells to speak for themselves, and the commit table to have forgotten."""
        shadows = self.world.shadows()
        assert {key: shadows.get(key) for key in self.committed} == self.committed
        present = {(row, version) for row, _, version, _ in self.world.data()}
        assert not self.dead & present
        assert self.running in present
        assert self.running not in shadows
        claims = Watermarks(self.world.control).claims()
        assert minimum([TABLE], claims) == LOW_WATERMARK, "a row that nobody has claimed"
        assert Watermarks(self.world.control).prune_horizon() == LOW_WATERMARK
        assert self.world.entries() == {}
        self.check_values()


@pytest.fixture
def world(hbase_cluster: RunningHBase, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Return an empty store whose compactions read short pages."""
    monkeypatch.setattr(range_reading, "PAGE_ROWS", PAGE_ROWS)
    with (
        one_region_store(hbase_cluster) as once,
        closing(Thrift2Store(once.url + PATIENT)) as store,
    ):
        yield World(store, low_watermark=LOW_WATERMARK)


def at(moments: dict[tuple[str, int], Act]) -> Callable[[str], None]:
    """Return an `on_step` that acts when a step has been done for the given time, from 1 on."""
    assert {step for step, _ in moments} <= set(STEPS)
    counts: dict[str, int] = {}

    def on_step(step: str) -> None:
        counts[step] = counts.get(step, 0) + 1
        act = moments.pop((step, counts[step]), None)
        if act is not None:
            act()

    return on_step


def compact_while(world: World, moments: dict[tuple[str, int], Act]) -> Report:
    """Compact while other things happen; all of them must have."""
    left = dict(moments)
    counted = at(left)
    report = world.compact(ALL_AT_ONCE, on_step=counted)
    assert not left, "the compaction did not come to these steps"
    return report


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("page-read", marks=pytest.mark.nightly),
        "page-resolved",
        pytest.param("page-healed", marks=pytest.mark.nightly),
    ],
)
def test_a_region_that_splits_under_a_compaction_is_passed_over_whole(
    world: World, regions: Regions, step: str
) -> None:
    """The pass is over the rows that the region had: those of both parts."""
    troubled = Troubled.write(world, [])
    report = compact_while(world, {(step, 2): lambda: regions.split(ROWS[25])})
    assert report.rows_read == len(ROWS)
    assert report.cells_healed == len(troubled.committed)
    troubled.check_compacted()


@pytest.mark.parametrize(
    ("step", "count"),
    [pytest.param("page-read", 2, marks=pytest.mark.nightly), ("page-resolved", 4)],
)
def test_regions_that_merge_under_a_compaction_are_passed_over_whole(
    world: World, regions: Regions, step: str, count: int
) -> None:
    """Once while it is in the first of them, once while it is in the second."""
    troubled = Troubled.write(world, [ROWS[30]])
    report = compact_while(world, {(step, count): regions.merge})
    assert report.rows_read == len(ROWS)
    assert report.cells_healed == len(troubled.committed)
    troubled.check_compacted()


def test_regions_cut_otherwise_between_their_listing_and_the_claims_leave_no_hole(
    world: World, regions: Regions
) -> None:
    """No region of the first listing exists any more when the claims are counted."""
    troubled = Troubled.write(world, [ROWS[30]])
    compact_while(
        world,
        {
            ("before-claim", 1): lambda: regions.split(ROWS[40]),
            ("before-claim", 2): regions.merge,
        },
    )
    assert regions.boundaries() == [ROWS[40]]
    troubled.check_compacted()
    # The regions of today are other than those that were claimed; the next run claims them.
    world.set_low_watermark(LOW_WATERMARK + 10)
    assert world.compact().horizon == LOW_WATERMARK + 10


def test_a_compaction_finishes_while_every_table_moves_to_the_other_server(
    world: World, regions: Regions
) -> None:
    """Also the tables of the commits and of the claims, at every kind of step."""
    troubled = Troubled.write(world, [ROWS[30]])
    compact_while(
        world,
        {
            ("page-read", 2): regions.move,
            ("page-resolved", 3): lambda: regions.move(COMMIT_TABLE),
            ("before-claim", 1): lambda: regions.move(CONTROL_TABLE),
            ("page-healed", 4): regions.move,
            ("ranges-passed", 1): lambda: regions.move(CONTROL_TABLE),
            ("horizon-raised", 1): lambda: regions.move(COMMIT_TABLE),
        },
    )
    troubled.check_compacted()


@pytest.mark.nightly
def test_a_compaction_goes_on_when_all_region_servers_were_killed_and_are_back(
    hbase_cluster: RunningHBase, world: World
) -> None:
    """What it healed and claimed was acknowledged, so it is in a log that outlives the server."""
    troubled = Troubled.write(world, QUARTERS)

    def kill() -> None:
        hbase_cluster.crash("rs1", "rs2")
        hbase_cluster.start_all()

    report = compact_while(world, {("page-resolved", 3): kill})
    assert report.rows_read == len(ROWS)
    troubled.check_compacted()


def test_what_a_killed_region_server_kept_from_a_compaction_is_done_by_the_next(
    hbase_cluster: RunningHBase, world: World
) -> None:
    """It gives up between healing one page and the next, and says so; nothing is lost by that.

    Whether all of it, or those rows alone, depends on where the facts about the store lie.
    """
    troubled = Troubled.write(world, QUARTERS)
    patient = world.store
    with closing(Thrift2Store(hbase_cluster.thrift2_url + IMPATIENT)) as world.store:
        kill = partial(hbase_cluster.crash, server_of(hbase_cluster, ROWS[PAGE_ROWS]))
        with suppress(StorageUnavailable):
            report = world.compact(ALL_AT_ONCE, on_step=at({("page-read", 2): kill}))
            assert {laggard.table for laggard in report.laggards} == {"t"}
    world.store = patient
    assert Watermarks(world.control).prune_horizon() == 0, "no more than was passed over"
    troubled.check_values()
    world.compact(ALL_AT_ONCE)
    troubled.check_compacted()
