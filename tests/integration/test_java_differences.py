"""Where Omid 1.1.3 loses or hides data, and what we make of the same cells.

Each test shows Omid's side with Omid's own classes, so that the page of differences stays true.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import omidpy
from omidpy.errors import UsageError
from omidpy.manager import TransactionManager
from omidpy.storage.base import Store
from tests.machines.hbase import HBase, Road
from tests.machines.java import JavaDriver
from tests.machines.java_client import JavaManager
from tests.machines.java_world import shared_store
from tests.machines.processes import tso_server

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase, pytest.mark.nightly]

ROAD_BY_DAY = Road.THRIFT2

TABLE = "differences"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def store(hbase: HBase) -> Iterator[Store]:
    """Open the HBase as our clients do, with Omid's tables and ours."""
    with shared_store(hbase) as store:
        yield store


@pytest.fixture(scope="module")
def address(hbase: HBase, store: Store) -> Iterator[str]:
    """Run our oracle."""
    with tso_server(hbase.url) as server:
        yield server.address


@pytest.fixture(scope="module")
def ours(hbase: HBase, address: str) -> Iterator[TransactionManager]:
    """Return our client, with a table."""
    with omidpy.connect(hbase.url, address, post_commit="sync") as manager:
        manager.create_table(TABLE, families=["cf"])
        yield manager
        manager.drop_table(TABLE)


@pytest.fixture(scope="module")
def java(hbase: HBase, address: str) -> Iterator[JavaManager]:
    """Return Omid's client."""
    with JavaDriver(zookeeper=hbase.zookeeper) as driver:
        yield JavaManager(driver, address)


@pytest.fixture
def row() -> bytes:
    """Return a row that no other test has."""
    return b"row%06d" % next(_numbers)


def test_an_empty_value_is_a_delete_which_we_refuse_to_write(
    ours: TransactionManager, java: JavaManager, row: bytes
) -> None:
    """Java loses it without a word."""
    with java.begin() as theirs:
        theirs.put(TABLE, row, {b"cf:a": b"1"})
    with java.begin() as theirs:
        theirs.put(TABLE, row, {b"cf:a": b""})
    assert java.begin().row(TABLE, row) == ours.begin().table(TABLE).row(row) == {}
    mine = ours.begin()
    with pytest.raises(UsageError, match="is empty"):
        mine.table(TABLE).put(row, {b"cf:a": b""})
    mine.rollback()


def test_a_put_after_the_delete_of_its_row_is_lost_by_java_and_kept_by_us(
    ours: TransactionManager, java: JavaManager, row: bytes
) -> None:
    """Java's marker and its put have one version; ours has no marker, so that Java reads it too."""
    with ours.begin() as tx:
        tx.table(TABLE).put(row, {b"cf:a": b"1", b"cf:b": b"1"})
    with java.begin() as theirs:
        theirs.delete(TABLE, row)
        theirs.put(TABLE, row, {b"cf:a": b"2"})
    assert java.begin().row(TABLE, row) == {}
    with ours.begin() as tx:
        tx.table(TABLE).put(row, {b"cf:b": b"3"})
        tx.table(TABLE).delete(row)
        tx.table(TABLE).put(row, {b"cf:a": b"4"})
    assert java.begin().row(TABLE, row) == ours.begin().table(TABLE).row(row) == {b"cf:a": b"4"}


def test_a_put_after_a_delete_and_a_checkpoint_is_lost_by_java_and_read_by_us(
    ours: TransactionManager, java: JavaManager, row: bytes
) -> None:
    """The put has the higher version: within one transaction that is the order of its writes."""
    with ours.begin() as tx:
        tx.table(TABLE).put(row, {b"cf:a": b"1"})
    with java.begin() as theirs:
        theirs.delete(TABLE, row)
        theirs.checkpoint()
        theirs.put(TABLE, row, {b"cf:a": b"2"})
    assert java.begin().row(TABLE, row) == {}
    assert ours.begin().table(TABLE).row(row) == {b"cf:a": b"2"}


def test_a_column_that_commits_after_the_delete_of_its_family_is_hidden_by_java_alone(
    ours: TransactionManager, java: JavaManager, row: bytes
) -> None:
    """Java compares when the delete committed with when the other began."""
    with ours.begin() as tx:
        tx.table(TABLE).put(row, {b"cf:a": b"1"})
    inserter, eraser = java.begin(), java.begin()
    eraser.delete(TABLE, row, [b"cf"])
    eraser.commit()
    inserter.put(TABLE, row, {b"cf:new": b"2"})
    inserter.commit()
    assert inserter.commit_ts is not None
    assert eraser.commit_ts is not None
    assert inserter.commit_ts > eraser.commit_ts
    assert java.begin().row(TABLE, row) == {}
    assert ours.begin().table(TABLE).row(row) == {b"cf:new": b"2"}


def test_a_delete_of_one_binary_row_hides_another_from_java_s_scans_alone(
    ours: TransactionManager, java: JavaManager, row: bytes
) -> None:
    """Java remembers the marker under a text of the row key, in which both look the same."""
    first, second = row + b"\x80", row + b"\x81"
    with java.begin() as theirs:
        theirs.put(TABLE, first, {b"cf:a": b"1"})
        theirs.put(TABLE, second, {b"cf:a": b"2"})
    with java.begin() as theirs:
        theirs.delete(TABLE, first, [b"cf"])
    later = java.begin()
    assert later.scan(TABLE, start=row.hex(), stop=(row + b"\xff").hex()) == []
    assert later.row(TABLE, second) == {b"cf:a": b"2"}
    assert list(ours.begin().table(TABLE).scan(row_prefix=row)) == [(second, {b"cf:a": b"2"})]
