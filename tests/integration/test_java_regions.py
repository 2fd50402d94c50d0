"""Regions split, merge, move and are rewritten under open transactions of both languages.

Thrift has no such commands; an administrator has, and HBase does them by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

import omidpy
from omidpy.manager import TransactionManager
from omidpy.model import Column
from omidpy.storage.base import DeleteVersion, Put, RowMutation, Store
from tests.machines.hbase import HBase, Road
from tests.machines.java import JavaDriver
from tests.machines.java_client import JavaManager
from tests.machines.java_world import shared_store
from tests.machines.processes import tso_server

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

ROAD_BY_DAY = Road.DIRECT

ROWS = [b"row%03d" % number for number in range(60)]
MIDDLE = ROWS[30]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def store(hbase: HBase) -> Iterator[Store]:
    """Open the HBase as our clients do, with Omid's tables and ours."""
    with shared_store(hbase) as store:
        yield store


@pytest.fixture(scope="module")
def driver(hbase: HBase, store: Store) -> Iterator[JavaDriver]:
    """Run Omid's classes beside it."""
    with JavaDriver(zookeeper=hbase.zookeeper) as driver:
        yield driver


@pytest.fixture(scope="module")
def address(hbase: HBase, store: Store) -> Iterator[str]:
    """Run our oracle."""
    with tso_server(hbase.url) as server:
        yield server.address


@pytest.fixture(scope="module")
def ours(hbase: HBase, address: str) -> Iterator[TransactionManager]:
    """Return our client."""
    with omidpy.connect(hbase.url, address, post_commit="sync") as manager:
        yield manager


@pytest.fixture(scope="module")
def java(driver: JavaDriver, address: str) -> Iterator[JavaManager]:
    """Return Omid's client."""
    manager = JavaManager(driver, address)
    yield manager
    manager.close()


@pytest.fixture
def table(ours: TransactionManager) -> Iterator[str]:
    """Return a table of one region, all of whose rows hold 0."""
    name = f"regions{next(_numbers)}"
    ours.create_table(name, families=["cf"])
    with ours.begin() as tx:
        for row in ROWS:
            tx.table(name).put(row, {b"cf:a": b"0"})
    yield name
    ours.drop_table(name)


def split(driver: JavaDriver, table: str) -> None:
    """Make two regions of one."""
    driver.call("admin.split", table=table, at=MIDDLE.hex())
    assert len(driver.call("admin.regions", table=table)) == 2


def split_and_merge(driver: JavaDriver, table: str) -> None:
    """Make two regions of one, and one of two."""
    split(driver, table)
    driver.call("admin.merge", table=table)
    assert len(driver.call("admin.regions", table=table)) == 1


def move(driver: JavaDriver, table: str) -> None:
    """Close the region and open it again, on another server where there is one."""
    driver.call("admin.move", table=table)


def compact(driver: JavaDriver, table: str) -> None:
    """Rewrite every file."""
    driver.call("admin.major_compact", table=table)


@pytest.mark.parametrize(
    "change",
    [
        split_and_merge,
        *(pytest.param(change, marks=pytest.mark.nightly) for change in (split, move, compact)),
    ],
)
def test_open_transactions_and_scans_survive_a_change_of_regions(
    ours: TransactionManager,
    java: JavaManager,
    driver: JavaDriver,
    table: str,
    change: Callable[[JavaDriver, str], None],
) -> None:
    """Each reads on at its snapshot, sees its own flushed writes, and commits all of them."""
    reader, mine, theirs = ours.begin(), ours.begin(), java.begin()
    pages = reader.table(table).scan()
    seen = [next(pages) for _ in range(10)]
    for row in ROWS[::3]:
        mine.table(table).put(row, {b"cf:a": b"ours"})
    mine.flush()
    for row in ROWS[1::3]:
        theirs.put(table, row, {b"cf:a": b"java"})

    change(driver, table)

    seen += list(pages)
    assert seen == [(row, {b"cf:a": b"0"}) for row in ROWS]
    own = dict(mine.table(table).scan())
    assert own == {row: {b"cf:a": b"ours" if row in ROWS[::3] else b"0"} for row in ROWS}
    mine.table(table).put(ROWS[2], {b"cf:a": b"late"})
    mine.commit()
    theirs.commit()
    expected = {row: {b"cf:a": b"0"} for row in ROWS}
    expected |= {row: {b"cf:a": b"ours"} for row in ROWS[::3]}
    expected |= {row: {b"cf:a": b"java"} for row in ROWS[1::3]}
    expected[ROWS[2]] = {b"cf:a": b"late"}
    assert dict(ours.begin().table(table).scan()) == dict(java.begin().scan(table)) == expected


def test_a_deleted_version_hides_what_is_put_there_until_a_major_compaction(
    driver: JavaDriver, store: Store, table: str
) -> None:
    """HBase's delete markers: the reason why no version is ever written again once deleted."""
    row, version = b"marked", 7

    def values() -> list[bytes]:
        (cells,) = store.get(table, [row], columns=(Column(b"cf", b"a"),))
        return [cell.value for cell in cells]

    def write(mutation: RowMutation) -> None:
        store.write({table: [mutation]})

    write(RowMutation(row, puts=(Put(b"cf", b"a", version, b"first"),)))
    write(RowMutation(row, deletes=(DeleteVersion(b"cf", b"a", version),)))
    write(RowMutation(row, puts=(Put(b"cf", b"a", version, b"second"),)))
    assert values() == []
    compact(driver, table)
    write(RowMutation(row, puts=(Put(b"cf", b"a", version, b"third"),)))
    assert values() == [b"third"]


def test_a_table_cloned_from_a_snapshot_is_read_by_both(
    ours: TransactionManager, java: JavaManager, driver: JavaDriver, table: str
) -> None:
    """Its cells carry their own proof, and its attributes come along."""
    clone = f"{table}clone"
    driver.call("admin.snapshot", table=table, name=f"{table}shot")
    driver.call("admin.restore", table=clone, name=f"{table}shot")
    driver.call("admin.delete_snapshot", name=f"{table}shot")
    with ours.begin() as tx:
        tx.table(table).put(ROWS[0], {b"cf:a": b"1"})
    expected = {row: {b"cf:a": b"0"} for row in ROWS}
    assert dict(ours.begin().table(clone).scan()) == dict(java.begin().scan(clone)) == expected
    ours.drop_table(clone)
