"""A table of a real HBase is turned back to a snapshot, or cloned under the name that it had.

Thrift has no snapshots; an administrator has, with the HBase shell or from Java.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from compactor.pruning.snapshots import Folder, TableSnapshot, list_snapshots, local_folder
from compactor.tables.ownership import survey
from omidpy.base.cells import commit_row
from omidpy.cli import main
from omidpy.facts.commit_table import COMMIT, COMMIT_TABLE
from omidpy.facts.watermarks import Watermarks
from omidpy.storage.base import DeleteVersion, RowMutation
from omidpy.storage.options import RestoresTables
from tests.machines.cells import World
from tests.machines.hbase import HBase
from tests.machines.hbase.server import RunningHBase
from tests.machines.hbase_store import one_region_store
from tests.machines.java import JavaDriver

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

TABLE = "turned"
Change: TypeAlias = Callable[[World, JavaDriver], None]


@pytest.fixture
def world(hbase: HBase) -> Iterator[World]:
    """Return an HBase with one table of ours."""
    with one_region_store(hbase) as store:
        made = World(store)
        made.table(TABLE, incarnation="one")
        yield made


@pytest.fixture(scope="module")
def driver(hbase: HBase) -> Iterator[JavaDriver]:
    """Return what an administrator has."""
    with JavaDriver(zookeeper=hbase.zookeeper) as driver:
        yield driver


def restore(world: World, driver: JavaDriver) -> None:
    """Turn the table back."""
    driver.call("admin.restore_in_place", table=TABLE, name="turn")


def clone(world: World, driver: JavaDriver) -> None:
    """Make it again after it was dropped."""
    world.store.drop_table(TABLE)
    driver.call("admin.restore", table=TABLE, name="turn")


def move(world: World, driver: JavaDriver) -> None:
    """Change an attribute, and where the region is."""
    world.store.set_table_attributes(TABLE, {"NOTE": "changed"})
    driver.call("admin.move", table=TABLE)


def rewrite(world: World, driver: JavaDriver) -> None:
    """Do what HBase does by itself."""
    del world
    driver.call("admin.split", table=TABLE, at=b"m".hex())
    driver.call("admin.major_compact", table=TABLE)


@pytest.mark.parametrize(
    ("change", "turn_back"),
    [(move, restore), pytest.param(rewrite, clone, marks=pytest.mark.nightly)],
)
def test_committed_cells_that_come_back_without_a_proof_stay(
    hbase: HBase,
    world: World,
    driver: JavaDriver,
    change: Change,
    turn_back: Change,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One lost its entry to its client, another to the compaction; both were committed.

    What else is changed in a table's life must not be taken for a restore.
    """
    first = world.put(b"a", 800, table=TABLE)
    second = world.put(b"b", 900, table=TABLE)
    world.enter(800, 850)
    world.enter(900, 950)
    began_ms = time.time() * 1000
    driver.call("admin.snapshot", table=TABLE, name="turn")
    try:
        (taken,) = (one for one in list_snapshots(root_of(hbase)) if one.name == "turn")
        assert taken == TableSnapshot("turn", TABLE, taken.created_ms, commit_table=COMMIT_TABLE)
        assert began_ms - 1 <= taken.created_ms <= time.time() * 1000
        world.heal(first, 850, table=TABLE)
        gone = RowMutation(commit_row(800), deletes=(DeleteVersion(*COMMIT, 800),))
        world.store.write({COMMIT_TABLE: [gone]})
        assert world.compact().entries_pruned == 1
        assert world.shadows(TABLE) == {(b"a", 800): 850, (b"b", 900): 950}

        change(world, driver)

        assert claimed(world)
        turn_back(world, driver)
    finally:
        driver.call("admin.delete_snapshot", name="turn")
    assert not claimed(world)
    world.set_low_watermark(2000)
    report = world.compact()
    assert world.cells(TABLE) == [first, second]
    assert world.entries() == {}
    assert report.cells_dropped == report.transactions_invalidated == 0
    assert [one.table for one in report.laggards] == [TABLE]
    assert "2 cells have neither" in report.laggards[0].reason

    words = ("table", "accept", TABLE, "--store", hbase.thrift2_url)
    for more, said in (((), "nothing was changed"), (("--apply",), f"accepted {TABLE}: 2 cells")):
        with pytest.raises(SystemExit) as ended:
            main((*words, *more))
        assert not ended.value.code
        assert said in capsys.readouterr().out
    assert world.compact().cells_dropped == 2


def root_of(hbase: HBase) -> Folder:
    """Return HBase's root folder."""
    return local_folder(f"file://{hbase.directory}/hbase")


def claimed(world: World) -> bool:
    """Say whether what was claimed of the table speaks of it as it is."""
    (ours,) = (one for one in survey(world.store, COMMIT_TABLE) if one.name == TABLE)
    return any(
        claim.incarnation == ours.incarnation and claim.watermark == 1000
        for claim in Watermarks(world.control).claims()
    )


@pytest.mark.nightly
def test_a_restart_of_hbase_is_no_restore(hbase_cluster: RunningHBase) -> None:
    """The states of its tables are where its regions are found."""
    with one_region_store(hbase_cluster) as store:
        World(store).table(TABLE, incarnation="one")
        assert isinstance(store, RestoresTables)
        before = store.table_states([TABLE, COMMIT_TABLE])
        assert len(before) == 2
        hbase_cluster.crash(*hbase_cluster.names)
        hbase_cluster.start_all()
        assert store.table_states([TABLE, COMMIT_TABLE]) == before
