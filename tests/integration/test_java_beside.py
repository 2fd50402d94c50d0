"""Java's clients and ours on the same tables, the same commit table and the same oracle.

Every test runs twice: beside our `tso-server`, and beside Omid's own oracle.  They share a
table, in which each has rows of its own.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator

import pytest

import omidpy
from omidpy.base.cells import shadow_qualifier
from omidpy.errors import Fenced, TransactionAborted, WriteConflict
from omidpy.facts.commit_table import CommitTable
from omidpy.manager import TransactionManager
from omidpy.model import Timestamp, TransactionStatus
from omidpy.storage.base import Store
from tests.machines.hbase import HBase, Road
from tests.machines.hbase.bare import bare_client, gateway_idl
from tests.machines.java import JavaDriver, JavaError, JavaOracle
from tests.machines.java_client import JavaManager, JavaTransaction
from tests.machines.java_world import shared_store
from tests.machines.processes import tso_server

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

ROAD_BY_DAY = Road.DIRECT

_numbers = itertools.count(1)


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


@pytest.fixture(scope="module", params=["ours", "omid"])
def address(
    hbase: HBase,
    store: Store,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """Run an oracle, and return where it listens."""
    if request.param == "ours":
        with tso_server(hbase.url) as server:
            yield server.address
            assert server.terminate() == 0, server.log
    else:
        with JavaOracle(hbase.zookeeper, tmp_path_factory.mktemp("oracle")) as oracle:
            yield oracle.address


@pytest.fixture(scope="module")
def ours(hbase: HBase, address: str, driver: JavaDriver) -> Iterator[TransactionManager]:
    """Return our client."""
    with omidpy.connect(hbase.url, address, post_commit="sync") as manager:
        yield manager


@pytest.fixture(scope="module")
def java(address: str, driver: JavaDriver) -> Iterator[JavaManager]:
    """Return Omid's client."""
    manager = JavaManager(driver, address)
    yield manager
    manager.close()


@pytest.fixture(scope="module")
def table(ours: TransactionManager) -> Iterator[str]:
    """Return a table that conflicts by cell."""
    name = f"beside{next(_numbers)}"
    ours.create_table(name, families=["cf", "cg"], splits=[b"m"])
    yield name
    ours.drop_table(name)


@pytest.fixture
def row() -> bytes:
    """Return a row that no other test has; those with `prefix + row` are its own as well."""
    return b"row%06d" % next(_numbers)


# -- committed data --------------------------------------------------------------------------------


def test_each_reads_what_the_other_committed(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes
) -> None:
    """The least that two clients of one table need."""
    with java.begin() as theirs:
        theirs.put(table, row, {b"cf:a": b"java", b"cg:b": b"\x00\xff"})
    with ours.begin() as tx:
        assert tx.table(table).row(row) == {b"cf:a": b"java", b"cg:b": b"\x00\xff"}
        tx.table(table).put(row, {b"cf:a": b"ours", b"cf:c": b"new"})
    expected = {b"cf:a": b"ours", b"cf:c": b"new", b"cg:b": b"\x00\xff"}
    later = java.begin()
    assert later.row(table, row) == expected
    assert later.row(table, row, [b"cf:c"]) == {b"cf:c": b"new"}
    assert later.scan(table, start=row.hex(), stop=(row + b"\xff").hex()) == [(row, expected)]
    assert tx.commit_ts is not None
    assert later.start_ts > tx.commit_ts > theirs.start_ts


def test_nothing_is_left_in_the_commit_table(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes, store: Store
) -> None:
    """Both write every shadow cell, then remove the entry."""
    with java.begin() as theirs:
        theirs.put(table, row, {b"cf:a": b"1"})
    with ours.begin() as tx:
        tx.table(table).put(row, {b"cf:b": b"1"})
    wanted = [Timestamp(theirs.start_ts), tx.start_ts]
    assert CommitTable(store).read(wanted) == dict.fromkeys(wanted)
    assert theirs.commit_ts is not None
    assert tx.commit_ts is not None
    assert shadows(store, table, row) == {
        (b"a", theirs.start_ts): theirs.commit_ts,
        (b"b", tx.start_ts): tx.commit_ts,
    }


def test_both_leave_the_same_bytes(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes, store: Store
) -> None:
    """Values, deletes and shadow cells; for a family Java has a marker, we delete its columns."""
    with java.begin() as before:
        for key in (row + b"j", row + b"o"):
            before.put(table, key, {b"cg:c": b"3"})
    with java.begin() as theirs:
        theirs.put(table, row + b"j", {b"cf:a": b"1"})
        theirs.delete(table, row + b"j", [b"cf:b", b"cg"])
    with ours.begin() as mine:
        mine.table(table).put(row + b"o", {b"cf:a": b"1"})
        mine.table(table).delete(row + b"o", columns=[b"cf:b", b"cg"])
    by_java, by_us = (
        {cell[1:] for cell in cells if cell.version > before.start_ts}
        for cells in store.get(table, [row + b"j", row + b"o"])
    )
    both = {(b"cf", b"a"): b"1", (b"cf", b"b"): b""}
    hidden = (b"cg", b"c", theirs.start_ts, b"")
    # Java writes a shadow cell for each column that its marker hides, though no cell is there.
    assert by_java | {hidden} == left_by(theirs, {**both, (b"cg", b""): b"", (b"cg", b"c"): b""})
    assert hidden not in by_java
    assert by_us == left_by(mine, {**both, (b"cg", b"c"): b""})


def left_by(
    tx: JavaTransaction | omidpy.Transaction, values: dict[tuple[bytes, bytes], bytes]
) -> set[tuple[bytes, bytes, int, bytes]]:
    """Return what a transaction leaves of its values in a row."""
    assert tx.commit_ts is not None
    commit_ts = tx.commit_ts.to_bytes(8, "big")
    cells = {(*column, int(tx.start_ts), value) for column, value in values.items()}
    return cells | {
        (family, b"\x00\xc2\x80" + qualifier + b"\xc2\x80", int(tx.start_ts), commit_ts)
        for family, qualifier in values
    }


def test_rows_of_any_bytes_are_the_same_to_both(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes
) -> None:
    """Java deletes a row by a marker, whose cache in scans mixes up rows that are no UTF-8.

    We delete by tombstones, which no other row can be taken for.
    """
    rows = [row + bytes((byte,)) for byte in (0x00, 0x7F, 0x80, 0x81, 0xC2, 0xFF)]
    with java.begin() as theirs:
        for key in rows:
            theirs.put(table, key, {b"cf:\x80\xff": key})
    with ours.begin() as tx:
        assert dict(tx.table(table).scan(row_prefix=row)) == {
            key: {b"cf:\x80\xff": key} for key in rows
        }
        tx.table(table).delete(rows[2])
    left = [key for key in rows if key != rows[2]]
    found = java.begin().scan(table, start=row.hex(), stop=(row + b"\xff\xff").hex())
    assert found == [(key, {b"cf:\x80\xff": key}) for key in left]


# -- uncommitted data ------------------------------------------------------------------------------


def test_neither_sees_what_the_other_has_not_committed(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes
) -> None:
    """Both write their cells before they commit."""
    theirs = java.begin()
    theirs.put(table, row, {b"cf:a": b"java"})
    mine = ours.begin()
    mine.table(table).put(row, {b"cf:b": b"ours"})
    mine.flush()
    assert ours.begin().table(table).row(row) == {}
    assert list(ours.begin().table(table).scan(row_prefix=row)) == []
    assert java.begin().row(table, row) == {}
    assert java.begin().scan(table, start=row.hex(), stop=(row + b"\xff").hex()) == []
    assert mine.table(table).row(row) == {b"cf:b": b"ours"}
    assert theirs.row(table, row) == {b"cf:a": b"java"}
    theirs.commit()
    mine.commit()
    both = {b"cf:a": b"java", b"cf:b": b"ours"}
    assert ours.begin().table(table).row(row) == java.begin().row(table, row) == both


def test_a_snapshot_of_either_stays_what_it_was(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes
) -> None:
    """The other's later commit is invisible, also where it only hides."""
    with java.begin() as tx:
        tx.put(table, row, {b"cf:a": b"old"})
    mine, theirs = ours.begin(), java.begin()
    with ours.begin() as writer:
        writer.table(table).put(row, {b"cf:a": b"new"})
    with java.begin() as eraser:
        eraser.delete(table, row)
    assert mine.table(table).row(row) == theirs.row(table, row) == {b"cf:a": b"old"}
    assert ours.begin().table(table).row(row) == java.begin().row(table, row) == {}


def test_what_either_rolls_back_was_never_there(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes, store: Store
) -> None:
    """The cells themselves go."""
    theirs = java.begin()
    theirs.put(table, row, {b"cf:a": b"java"})
    theirs.rollback()
    doomed = java.begin()
    doomed.put(table, row, {b"cf:a": b"java"})
    doomed.set_rollback_only()
    doomed.is_refused()
    mine = ours.begin()
    mine.table(table).put(row, {b"cf:b": b"ours"})
    mine.flush()
    mine.rollback()
    assert store.get(table, [row]) == [[]]
    assert ours.begin().table(table).row(row) == java.begin().row(table, row) == {}


# -- conflicts -------------------------------------------------------------------------------------


def test_the_second_writer_of_a_cell_is_refused_in_either_language(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes
) -> None:
    """First committer wins, whoever it is."""
    theirs, mine = java.begin(), ours.begin()
    theirs.put(table, row, {b"cf:a": b"java"})
    mine.table(table).put(row, {b"cf:a": b"ours"})
    theirs.commit()
    with pytest.raises(WriteConflict):
        mine.commit()
    theirs, mine = java.begin(), ours.begin()
    theirs.put(table, row, {b"cf:a": b"late"})
    mine.table(table).put(row, {b"cf:a": b"early"})
    mine.commit()
    theirs.is_refused()
    assert java.begin().row(table, row) == {b"cf:a": b"early"}
    assert ours.begin().table(table).row(row) == {b"cf:a": b"early"}


def test_writers_of_two_cells_of_a_row_do_not_disturb_each_other(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes
) -> None:
    """At cell level."""
    theirs, mine = java.begin(), ours.begin()
    theirs.put(table, row, {b"cf:a": b"java"})
    mine.table(table).put(row, {b"cf:b": b"ours"})
    theirs.commit()
    mine.commit()
    assert java.begin().row(table, row) == {b"cf:a": b"java", b"cf:b": b"ours"}


def test_at_row_level_they_do(hbase: HBase, address: str, driver: JavaDriver, row: bytes) -> None:
    """As Phoenix has it."""
    java = JavaManager(driver, address, level="ROW")
    with omidpy.connect(hbase.url, address, conflict_level="row") as ours:
        table = f"beside{next(_numbers)}"
        ours.create_table(table, families=["cf"])
        theirs, mine = java.begin(), ours.begin()
        theirs.put(table, row, {b"cf:a": b"java"})
        mine.table(table).put(row, {b"cf:b": b"ours"})
        theirs.commit()
        with pytest.raises(WriteConflict):
            mine.commit()
        theirs, mine = java.begin(), ours.begin()
        theirs.put(table, row, {b"cf:a": b"late"})
        mine.table(table).put(row, {b"cf:b": b"early"})
        mine.commit()
        theirs.is_refused()
        assert java.begin().row(table, row) == {b"cf:a": b"java", b"cf:b": b"early"}
        ours.drop_table(table)
    java.close()


def test_tables_of_a_namespace_are_the_same_to_both(
    hbase: HBase, ours: TransactionManager, java: JavaManager
) -> None:
    """Its name is part of the ids by which conflicts are found, and of a fence."""
    name = f"shop{next(_numbers)}"
    with bare_client(hbase) as gateway:
        gateway.createNamespace(gateway_idl(hbase).TNamespaceDescriptor(name=name))
        table = f"{name}:stock"
        ours.create_table(table, families=["cf"])
        theirs, mine, late = java.begin(), ours.begin(), ours.begin()
        theirs.put(table, b"apple", {b"cf:count": b"1"})
        mine.table(table).put(b"apple", {b"cf:count": b"2"})
        theirs.commit()
        with pytest.raises(WriteConflict):
            mine.commit()
        assert dict(ours.begin().table(table).scan()) == dict(java.begin().scan(table))
        late.table(table).put(b"pear", {b"cf:count": b"3"})
        java.fence(table)
        with pytest.raises(TransactionAborted):
            late.commit()
        assert table in ours.tables()
        ours.drop_table(table)
        gateway.deleteNamespace(name)


def test_a_delete_conflicts_like_a_write(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes
) -> None:
    """Java names each column that its family marker hides."""
    with ours.begin() as tx:
        tx.table(table).put(row, {b"cf:a": b"1"})
    theirs, mine = java.begin(), ours.begin()
    theirs.delete(table, row, [b"cf"])
    mine.table(table).put(row, {b"cf:a": b"2"})
    theirs.commit()
    with pytest.raises(WriteConflict):
        mine.commit()
    with ours.begin() as tx:
        tx.table(table).put(row, {b"cf:a": b"3"})
    theirs, mine = java.begin(), ours.begin()
    theirs.put(table, row, {b"cf:a": b"4"})
    mine.table(table).delete(row)
    mine.commit()
    theirs.is_refused()
    assert java.begin().row(table, row) == ours.begin().table(table).row(row) == {}


def test_no_increment_is_lost_between_the_languages(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes
) -> None:
    """Four threads, two of each, count in one cell; each loser begins again."""
    rounds = 5

    def add_in_java() -> None:
        theirs = java.begin()
        value = int(theirs.row(table, row).get(b"cf:n", b"0"))
        theirs.put(table, row, {b"cf:n": b"%d" % (value + 1)})
        theirs.commit()

    def add_in_python() -> None:
        with ours.begin() as tx:
            value = int(tx.table(table).row(row).get(b"cf:n", b"0"))
            tx.table(table).put(row, {b"cf:n": b"%d" % (value + 1)})

    def until_done(add: Callable[[], None]) -> None:
        done = 0
        while done < rounds:
            try:
                add()
            except TransactionAborted:
                continue
            except JavaError as error:
                if error.type != "RollbackException":
                    raise
                continue
            done += 1

    threads = [
        threading.Thread(target=until_done, args=(add,)) for add in (add_in_java, add_in_python) * 2
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    total = {b"cf:n": b"%d" % (rounds * len(threads))}
    assert ours.begin().table(table).row(row) == java.begin().row(table, row) == total


def test_a_fence_of_either_refuses_what_the_other_began_before(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes
) -> None:
    """Fences are the oracle's; whose client asks does not matter."""
    theirs = java.begin()
    theirs.put(table, row, {b"cf:a": b"java"})
    ours.fence(table)
    theirs.is_refused()
    mine = ours.begin()
    mine.table(table).put(row, {b"cf:a": b"ours"})
    assert java.fence(table).row(table, row) == {}
    with pytest.raises((Fenced, TransactionAborted)):
        mine.commit()
    assert java.begin().row(table, row) == ours.begin().table(table).row(row) == {}


# -- deletes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "left"),
    [
        ([b"cf:a"], {b"cf:b": b"2", b"cg:c": b"3"}),
        ([b"cf"], {b"cg:c": b"3"}),
        ([], {}),
        ([b"cf:b", b"cg"], {b"cf:a": b"1"}),
    ],
    ids=["column", "family", "row", "both"],
)
@pytest.mark.parametrize("writer", ["java", "ours"])
@pytest.mark.parametrize("eraser", ["java", "ours"])
def test_deletes_of_either_are_understood_by_both(
    ours: TransactionManager,
    java: JavaManager,
    table: str,
    row: bytes,
    writer: str,
    eraser: str,
    columns: list[bytes],
    left: dict[bytes, bytes],
) -> None:
    """Java writes tombstones for columns and markers for families, we tombstones alone."""
    data = {b"cf:a": b"1", b"cf:b": b"2", b"cg:c": b"3"}
    if writer == "java":
        with java.begin() as theirs:
            theirs.put(table, row, data)
    else:
        with ours.begin() as mine:
            mine.table(table).put(row, data)
    before_mine, before_theirs = ours.begin(), java.begin()
    if eraser == "java":
        with java.begin() as theirs:
            theirs.delete(table, row, columns)
            assert theirs.row(table, row) == left
    else:
        with ours.begin() as mine:
            mine.table(table).delete(row, columns=columns or None)
            assert mine.table(table).row(row) == left
    assert ours.begin().table(table).row(row) == java.begin().row(table, row) == left
    assert dict(ours.begin().table(table).scan(row_prefix=row)) == ({row: left} if left else {})
    assert before_mine.table(table).row(row) == before_theirs.row(table, row) == data
    # What is written afterwards is there again, and nothing else is.
    with java.begin() as theirs:
        theirs.put(table, row, {b"cf:a": b"java"})
    with ours.begin() as mine:
        mine.table(table).put(row, {b"cg:c": b"ours"})
    again = left | {b"cf:a": b"java", b"cg:c": b"ours"}
    assert ours.begin().table(table).row(row) == java.begin().row(table, row) == again


def test_an_uncommitted_delete_hides_nothing(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes
) -> None:
    """A family marker is a cell like any other."""
    data = {b"cf:a": b"1", b"cg:c": b"3"}
    with ours.begin() as tx:
        tx.table(table).put(row, data)
    theirs, mine = java.begin(), ours.begin()
    theirs.delete(table, row)
    mine.table(table).delete(row)
    mine.flush()
    assert ours.begin().table(table).row(row) == java.begin().row(table, row) == data
    theirs.rollback()
    mine.rollback()
    assert ours.begin().table(table).row(row) == java.begin().row(table, row) == data


# -- checkpoints, autocommit, conflict-free --------------------------------------------------------


def test_checkpoints_of_either_are_one_transaction_to_the_other(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes, store: Store
) -> None:
    """Their cells have several versions and one entry."""
    theirs = java.begin()
    theirs.put(table, row, {b"cf:a": b"1", b"cf:b": b"1"})
    assert theirs.checkpoint() == theirs.start_ts + 1
    theirs.put(table, row, {b"cf:a": b"2"})
    assert ours.begin().table(table).row(row) == {}
    theirs.commit()
    assert ours.begin().table(table).row(row) == {b"cf:a": b"2", b"cf:b": b"1"}
    with ours.begin() as tx:
        tx.table(table).put(row, {b"cf:a": b"3"})
        tx.flush()
        with tx.savepoint():
            tx.table(table).put(row, {b"cf:a": b"4"})
            tx.table(table).delete(row, columns=[b"cf:b"])
    assert java.begin().row(table, row) == {b"cf:a": b"4"}
    versions = {version for _, version in shadows(store, table, row)}
    assert {theirs.start_ts, theirs.start_ts + 1} <= versions


def test_cells_that_java_commits_at_once_are_read_by_us(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes
) -> None:
    """Its autocommit gives a cell its own version as commit timestamp, whatever follows."""
    before = ours.begin()
    theirs = java.begin()
    theirs.put(table, row, {b"cf:a": b"1"}, autocommits=True)
    assert before.table(table).row(row) == {}
    assert ours.begin().table(table).row(row) == {b"cf:a": b"1"}
    theirs.rollback()
    assert ours.begin().table(table).row(row) == java.begin().row(table, row) == {b"cf:a": b"1"}


def test_writes_free_of_conflicts_are_free_of_them_in_both(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes
) -> None:
    """Java's conflict-free tables, and ours."""
    theirs, mine = java.begin(), ours.begin()
    theirs.put(table, row, {b"cf:a": b"java"}, is_conflict_free=True)
    mine.table(table, conflict_free=True).put(row, {b"cf:a": b"ours"})
    mine.commit()
    theirs.commit()
    # Of two that overlap, both take the one with the greater version, which is ours.
    assert ours.begin().table(table).row(row) == {b"cf:a": b"ours"}
    assert java.begin().row(table, row) == {b"cf:a": b"ours"}


# -- what the dead leave ---------------------------------------------------------------------------


def test_we_heal_what_a_dead_java_client_committed(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes, store: Store
) -> None:
    """It died between the commit and its shadow cells."""
    java.ends_at("after_commit")
    theirs = java.begin()
    theirs.put(table, row, {b"cf:a": b"1", b"cg:b": b"2"})
    theirs.is_abandoned()
    start_ts = Timestamp(theirs.start_ts)
    commit_ts = CommitTable(store).read((start_ts,))[start_ts]
    assert isinstance(commit_ts, int)
    assert shadows(store, table, row) == {}
    assert ours.begin().table(table).row(row) == {b"cf:a": b"1", b"cg:b": b"2"}
    assert shadows(store, table, row) == {
        (b"a", start_ts): commit_ts,
        (b"b", start_ts): commit_ts,
    }
    assert java.begin().row(table, row) == {b"cf:a": b"1", b"cg:b": b"2"}


def test_java_heals_what_a_dead_client_of_ours_committed(
    hbase: HBase,
    address: str,
    java: JavaManager,
    table: str,
    row: bytes,
    store: Store,
) -> None:
    """It never came to write its shadow cells."""
    with omidpy.connect(hbase.url, address, post_commit="none") as mortal:
        with mortal.begin() as tx:
            tx.table(table).put(row, {b"cf:a": b"1", b"cg:b": b"2"})
        assert shadows(store, table, row) == {}
        assert java.begin().row(table, row) == {b"cf:a": b"1", b"cg:b": b"2"}
        assert tx.commit_ts is not None
        assert shadows(store, table, row) == {
            (b"a", tx.start_ts): tx.commit_ts,
            (b"b", tx.start_ts): tx.commit_ts,
        }
        assert mortal.begin().table(table).row(row) == {b"cf:a": b"1", b"cg:b": b"2"}


def test_what_either_left_before_its_commit_is_nothing_to_the_other(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes
) -> None:
    """It died with all its cells written; whoever comes next writes over them."""
    java.ends_at("before_commit")
    theirs = java.begin()
    theirs.put(table, row, {b"cf:a": b"java"})
    theirs.is_abandoned()
    mine = ours.begin()
    mine.table(table).put(row, {b"cf:b": b"ours"})
    mine.flush()
    assert ours.begin().table(table).row(row) == java.begin().row(table, row) == {}
    with ours.begin() as tx:
        tx.table(table).put(row, {b"cf:a": b"1"})
    with java.begin() as later:
        later.put(table, row, {b"cf:b": b"2"})
    both = {b"cf:a": b"1", b"cf:b": b"2"}
    assert ours.begin().table(table).row(row) == java.begin().row(table, row) == both


def test_an_entry_that_java_could_not_remove_does_no_harm(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes, store: Store
) -> None:
    """It died with every shadow cell written."""
    java.ends_at("before_completion")
    theirs = java.begin()
    theirs.put(table, row, {b"cf:a": b"1"})
    # Omid only logs that its clean-up failed.
    commit_ts = theirs.commit()
    start_ts = Timestamp(theirs.start_ts)
    assert CommitTable(store).read((start_ts,)) == {start_ts: commit_ts}
    with ours.begin() as tx:
        assert tx.table(table).row(row) == {b"cf:a": b"1"}
        tx.table(table).put(row, {b"cf:a": b"2"})
    assert java.begin().row(table, row) == {b"cf:a": b"2"}


def test_java_finds_its_commit_after_a_lost_answer(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes, store: Store
) -> None:
    """It reads the commit table itself, completes the cells and leaves the entry for ever."""
    java.ends_at("lost_answer")
    with java.begin() as theirs:
        theirs.put(table, row, {b"cf:a": b"1"})
    start_ts = Timestamp(theirs.start_ts)
    assert CommitTable(store).read((start_ts,)) == {start_ts: theirs.commit_ts}
    assert ours.begin().table(table).row(row) == {b"cf:a": b"1"}


def test_java_reads_the_low_watermark_that_its_oracle_left(
    ours: TransactionManager, java: JavaManager, request: pytest.FixtureRequest
) -> None:
    """Ours leaves the row as it finds it, lest Java's coprocessor collect by it."""
    is_ours = request.node.callspec.params["address"] == "ours"
    assert java.low_watermark == 0 if is_ours else 0 < java.low_watermark < ours.begin().start_ts


def test_our_status_of_a_refused_transaction_is_plain(
    ours: TransactionManager, java: JavaManager, table: str, row: bytes
) -> None:
    """A refusal by either oracle is certain: the transaction is rolled back."""
    mine = ours.begin()
    mine.table(table).put(row, {b"cf:a": b"ours"})
    with java.begin() as theirs:
        theirs.put(table, row, {b"cf:a": b"java"})
    with pytest.raises(TransactionAborted) as caught:
        mine.commit()
    assert caught.value.retryable
    assert mine.status is TransactionStatus.ROLLED_BACK


def shadows(store: Store, table: str, row: bytes) -> dict[tuple[bytes, int], int]:
    """Return the shadow cells of the data cells of a row: (qualifier, version) to commit_ts."""
    (cells,) = store.get(table, [row])
    values = {(cell.qualifier, cell.version): cell.value for cell in cells}
    return {
        (qualifier, version): int.from_bytes(values[shadow_qualifier(qualifier), version], "big")
        for qualifier, version in values
        if (shadow_qualifier(qualifier), version) in values
    }
