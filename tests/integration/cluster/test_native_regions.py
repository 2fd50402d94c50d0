"""Regions split, merge and move, and servers die, under a load that keeps a ledger.

What was acknowledged is there, once; what was refused is not; and of what nobody knows the outcome,
a transaction's own reader would find out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pytest

from omidpy.errors import NoSuchTable, StorageUnavailable
from omidpy.model import Column, FamilySchema, TableSchema
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.hbase.direct import NativeStore
from omidpy.storage.hbase.native.admin import Admin
from omidpy.storage.hbase.native.connections.pool import until
from omidpy.storage.hbase.native.values import META, Region, ServerName
from omidpy.storage.spreading import spread
from tests.machines.hbase import RunningHBase
from tests.machines.hbase_store import drop_tables
from tests.machines.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.hbase]

CF: Final = b"cf"
COLUMN: Final = Column(CF, b"q")
THREADS: Final = 6
KEYS: Final = 40
MERGED: Final = (b"k33", b"k36")
"""Where the regions begin of which one is made: no files of a region before them are theirs."""
SPLITS: Final = (b"k10", b"k30", b"k05", b"k25", b"k35", b"k15")
PATIENT: Final = "?retry_s=180&timeout_s=20"
"""A machine that is busy takes its time to find a server dead, and to replay its log."""


@pytest.fixture
def store(hbase_cluster: RunningHBase) -> Iterator[NativeStore]:
    """Return a store on two region servers with a table of four regions."""
    drop_tables(hbase_cluster)
    store = NativeStore(hbase_cluster.direct_url + PATIENT)
    store.create_table(TableSchema("t", [FamilySchema(CF)]), splits=[b"k20", *MERGED])
    yield store
    store.close()
    hbase_cluster.start_all()
    drop_tables(hbase_cluster)


@dataclass
class Ledger:
    """What each thread wrote and was told."""

    store: NativeStore
    puts: dict[bytes, int] = field(default_factory=dict)
    """The last number acknowledged for each row."""
    counts: dict[bytes, int] = field(default_factory=dict)
    """How often a row's counter was raised, by changes on a condition."""
    unknown: dict[bytes, int] = field(default_factory=dict)
    """How many of those were of unknown outcome."""
    done: list[int] = field(default_factory=list)
    """How often each thread went round, once they have ended."""
    increments: dict[bytes, int] = field(default_factory=dict)
    """How often HBase's own counter was raised."""
    unknown_increments: dict[bytes, int] = field(default_factory=dict)
    """And how often that is not known."""
    stop: threading.Event = field(default_factory=threading.Event)

    def work(self, thread: int) -> int:
        """Write until told to stop; each thread has rows of its own."""
        done = 0
        mine = [b"k%02d-%d" % (number, thread) for number in range(KEYS)]
        while not self.stop.is_set():
            done += 1
            row = mine[done % KEYS]
            mutations = [
                RowMutation(one, [Put(CF, b"q", done, b"%d" % done)])
                for one in (row, mine[(done * 7) % KEYS])
            ]
            self.store.write({"t": mutations})
            for mutation in mutations:
                self.puts[mutation.row] = done
            self._raise(mine[0] if done % 2 else mine[-1])
            counter = mine[done % KEYS] + b"n"
            self._add(counter)
        return done

    def _add(self, row: bytes) -> None:
        """Raise HBase's own counter; a server that follows a dead one may not know a call again."""
        told = self.increments
        try:
            self.store._client.increment("t", row, CF, b"n", 1)
        except StorageUnavailable as error:
            if "not known" not in str(error):
                raise AssertionError("a failure without a doubt is no failure here") from error
            told = self.unknown_increments
        told[row] = told.get(row, 0) + 1

    def _raise(self, row: bytes) -> None:
        """Raise a counter by reading it and writing it on the condition that it stands."""
        row += b"c"
        (cells,) = self.store.get("t", [row], max_versions=1)
        found = int(cells[0].value) if cells else 0
        change = RowMutation(row, [Put(CF, b"q", found + 1, b"%d" % (found + 1))])
        expected = cells[0].value if cells else None
        try:
            was_applied = self.store.check_and_mutate("t", row, COLUMN, expected, change)
        except StorageUnavailable as error:
            if "not known" not in str(error):
                raise AssertionError("a failure without a doubt is no failure here") from error
            self.unknown[row] = self.unknown.get(row, 0) + 1
            return
        assert was_applied, "nobody else writes this row, so a refusal met a change made twice"
        self.counts[row] = self.counts.get(row, 0) + 1

    def check(self) -> None:
        """Hold what is there against what was told."""
        found = {row[0].row: row for page in self.store.scan("t") for row in page}
        for row, number in self.puts.items():
            assert found[row][0].version == number, "an acknowledged put is the newest"
            assert found[row][0].value == b"%d" % number
        for row in self.counts.keys() | self.unknown.keys():
            value = int(found[row][0].value) if row in found else 0
            sure = self.counts.get(row, 0)
            assert sure <= value <= sure + self.unknown.get(row, 0)
            # Each change is one version: none was made twice, and none is missing in between.
            versions = [cell.version for cell in found.get(row, [])]
            assert versions == list(range(value, 0, -1))
        for row in self.increments.keys() | self.unknown_increments.keys():
            value = int.from_bytes(found[row][0].value, signed=True) if row in found else 0
            sure, most = self.increments.get(row, 0), self.unknown_increments.get(row, 0)
            assert sure <= value <= sure + most, "an increment was lost, or counted twice"


@contextmanager
def at_work(store: NativeStore) -> Iterator[Ledger]:
    """Let threads write as long as the block lasts, and then see how much each has done."""
    ledger = Ledger(store)
    with ThreadPoolExecutor(THREADS) as pool:
        working = [pool.submit(ledger.work, number) for number in range(THREADS)]
        try:
            yield ledger
        finally:
            ledger.stop.set()
        ledger.done = [one.result(240) for one in working]


def split(store: NativeStore, admin: Admin, at: bytes) -> None:
    """Split a region, once the compaction behind the split before lets it be split."""

    def is_split() -> bool:
        parent = store._client.calls.locations.locate("t", at, until_s=until(20))
        try:
            admin.split(parent, at)
        except StorageUnavailable as error:
            if "NOT splittable" not in str(error):
                raise
            return False
        return True

    wait_for(is_split, 60)


def merge(admin: Admin) -> None:
    """Make one region of two, once neither moves."""

    def is_merged() -> bool:
        regions = [one for one in admin.regions("t") if one.start in MERGED]
        try:
            admin.merge(regions)
        except StorageUnavailable as error:
            if "not mergeable" not in str(error) and "not online" not in str(error):
                raise
            return False
        return True

    wait_for(is_merged, 60)


def disturbed(store: NativeStore, seconds: float) -> tuple[Ledger, list[Region]]:
    """Split, merge and move regions under load; return the ledger and the regions."""
    admin = Admin(store._client.calls)
    with at_work(store) as ledger:
        end_s = time.monotonic() + seconds
        splits = list(SPLITS)
        moves = 0
        # A busy machine gets little done in that time, and some of each there must be.
        while time.monotonic() < end_s or len(splits) > len(SPLITS) - 2:
            regions = admin.regions("t")
            servers = sorted({region.server for region in admin.regions("hbase:meta")})
            servers = sorted({*servers, *(region.server for region in regions)})
            for region in regions:
                others = [one for one in servers if one != region.server]
                if others:
                    admin.move(region, others[moves % len(others)])
                    moves += 1
            if moves and MERGED[1] in {region.start for region in regions}:
                merge(admin)
            if splits:
                split(store, admin, splits.pop(0))
    assert moves > 0
    return ledger, admin.regions("t")


def test_the_store_tells_who_serves_each_region(store: NativeStore) -> None:
    """So that tasks of one server are begun apart from each other."""
    admin = Admin(store._client.calls)
    wait_for(lambda: len(admin.loads()) == 2, 60)
    servers = sorted(admin.loads())

    def are_placed() -> bool:
        """Move what is elsewhere: a server that has just begun may refuse a region."""
        regions = admin.regions("t")
        wanted = [servers[number // 2] for number in range(len(regions))]
        moves = [(one, to) for one, to in zip(regions, wanted, strict=True) if one.server != to]
        for region, server in moves:
            admin.move(region, server)
        return not moves

    did_balance = admin.balance(is_on=False)
    try:
        wait_for(are_placed, 60)
        _check_servers(store, servers)
    finally:
        admin.balance(is_on=did_balance)
    with pytest.raises(NoSuchTable):
        store.region_servers("none")


def _check_servers(store: NativeStore, servers: list[ServerName]) -> None:
    found = store.region_servers("t")
    ranges = [key_range for key_range, _ in found]
    assert ranges == store.regions("t")
    ports = [f"localhost:{server.port}" for server in servers]
    assert [server for _, server in found] == [ports[0], ports[0], ports[1], ports[1]]
    order = spread(store, ranges, lambda one: ("t", one.start))
    assert order == [ranges[0], ranges[2], ranges[1], ranges[3]]


def test_nothing_is_lost_or_done_twice_while_regions_split_merge_and_move(
    store: NativeStore,
) -> None:
    """Calls meet regions that close, open, are elsewhere, or are no more; users meet none of it."""
    ledger, regions = disturbed(store, 12)
    assert all(count > 20 for count in ledger.done)
    begins = {region.start for region in regions}
    assert MERGED[0] in begins
    assert MERGED[1] not in begins
    assert len(begins & {*SPLITS}) > 1
    assert ledger.unknown == {}, "regions that move leave no doubt about a conditional change"
    assert ledger.unknown_increments == {}, "nor about an increment"
    ledger.check()
    starts = [key_range.start for key_range in store.regions("t")]
    assert starts == sorted(starts)


def test_nothing_is_lost_or_done_twice_while_a_region_server_dies(
    store: NativeStore, hbase_cluster: RunningHBase
) -> None:
    """Its log is replayed elsewhere; what nobody knows the outcome of is said to be so."""
    with at_work(store) as ledger:
        time.sleep(2)
        region = store._client.calls.locations.locate("t", b"k00-0", until_s=until(20))
        name = hbase_cluster.at_port(region.server.port)
        hbase_cluster.crash(name)
        limit_s = time.monotonic() + 150
        before = dict(ledger.puts)
        while time.monotonic() < limit_s:
            time.sleep(0.5)
            moved = [row for row in ledger.puts if ledger.puts[row] > before.get(row, 0) + 100]
            if len(moved) > KEYS:
                break
    assert all(ledger.done)
    ledger.check()


def all_rows_of(ledger: Ledger) -> bool:
    """Say whether every row that is put has been put once."""
    return len(ledger.puts) == THREADS * KEYS


def moved_on(ledger: Ledger, before: dict[bytes, int], seconds: float) -> bool:
    """Wait until most rows have been written well beyond what they were; say whether they were."""
    limit_s = time.monotonic() + seconds
    while time.monotonic() < limit_s:
        time.sleep(0.5)
        moved = [row for row in before if ledger.puts[row] > before[row] + 50]
        if len(moved) > len(before) // 2:
            return True
    return False


def test_nothing_is_lost_or_done_twice_while_the_catalogue_moves(store: NativeStore) -> None:
    """Whoever looks a region up meanwhile finds the catalogue where it is then."""
    admin = Admin(store._client.calls)
    servers = sorted({region.server for region in admin.regions("t")})
    catalogue = Region(META, b"hbase:meta,,1.1588230740.", b"", b"", servers[0])
    with at_work(store) as ledger:
        moves = set()
        for round_number in range(4):
            to = servers[round_number % len(servers)]
            admin.move(catalogue, to)
            for region in admin.regions("t"):
                admin.move(region, to)
            moves.add(store._client.calls.registry.meta_server())
    assert all(count > 5 for count in ledger.done)
    assert len(servers) == 1 or len(moves) > 1
    assert ledger.unknown == {}, "regions that move leave no doubt about a conditional change"
    assert ledger.unknown_increments == {}, "nor about an increment"
    ledger.check()


@pytest.mark.nightly
def test_nothing_is_lost_or_done_twice_while_a_region_server_stands_still(
    store: NativeStore, hbase_cluster: RunningHBase
) -> None:
    """For longer than its lease: others serve its regions, and it is not waited for."""
    with at_work(store) as ledger:
        time.sleep(2)
        region = store._client.calls.locations.locate("t", b"k00-0", until_s=until(20))
        name = hbase_cluster.at_port(region.server.port)
        before = dict(ledger.puts)
        with hbase_cluster.paused(name):
            assert moved_on(ledger, before, 150)
            hbase_cluster.fence(name)
        before = dict(ledger.puts)
        assert moved_on(ledger, before, 60)
    assert all(ledger.done)
    # Until it has ended it may answer readers from its memory.
    hbase_cluster.crash(name)
    ledger.check()


@pytest.mark.nightly
def test_a_standby_takes_over_from_a_master_that_dies(
    store: NativeStore, hbase_cluster: RunningHBase
) -> None:
    """Clients find it by themselves, through ZooKeeper and through the masters in their address."""
    with hbase_cluster.standby() as url, closing(NativeStore(url + PATIENT)) as through_masters:
        assert [schema.name for schema in through_masters.tables()] == ["t"]
        first = store._client.calls.registry.master()
        with ThreadPoolExecutor(1) as pool, at_work(store) as ledger:
            wait_for(partial(all_rows_of, ledger), 60)
            making = pool.submit(
                store.create_table, TableSchema("made", [FamilySchema(CF)]), splits=[b"m"]
            )
            hbase_cluster.crash("master")
            before = dict(ledger.puts)
            assert moved_on(ledger, before, 60), "rows are written without a master"
            assert making.result(180)
        for client in (store, through_masters):
            assert [schema.name for schema in client.tables()] == ["made", "t"]
            assert client._client.calls.registry.master().port != first.port
        assert through_masters.create_table(TableSchema("late", [FamilySchema(CF)]))
    assert all(ledger.done)
    ledger.check()


@pytest.mark.nightly
def test_tables_are_made_once_and_rows_written_while_the_master_is_replaced(
    store: NativeStore, hbase_cluster: RunningHBase
) -> None:
    """Rows need no master; a table that is being made is made, once, by the next one."""
    with ThreadPoolExecutor(1) as pool, at_work(store) as ledger:
        for round_number in range(3):
            making = pool.submit(
                store.create_table,
                TableSchema(f"made{round_number}", [FamilySchema(CF)]),
                splits=[b"m"],
            )
            time.sleep(0.1 * round_number)
            hbase_cluster.crash("master")
            before = dict(ledger.puts)
            assert moved_on(ledger, before, 60), "rows are written without a master"
            hbase_cluster.start_process("master")
            assert making.result(180)
    assert all(ledger.done)
    ledger.check()
    names = [schema.name for schema in store.tables()]
    assert sorted(name for name in names if name.startswith("made")) == ["made0", "made1", "made2"]
    assert all(len(store.regions(f"made{number}")) == 2 for number in range(3))
