"""What a manager adds: tables, `transactional` and `attempts`, callbacks, fences."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import omidpy
from omidpy import admin, aio
from omidpy.base.cells import cell_id, row_id
from omidpy.errors import (
    ConfigError,
    Fenced,
    NoSuchTable,
    OracleUnavailable,
    SnapshotTooOld,
    StorageUnavailable,
    TableExists,
    TransactionAborted,
    TransactionClosed,
    UsageError,
    WriteConflict,
)
from omidpy.facts.commit_table import CommitTable
from omidpy.facts.tables.catalog import LAYOUT_AGE_S
from omidpy.manager import TransactionManager
from omidpy.model import TransactionStatus
from omidpy.oracle.tcp import TcpOracle
from omidpy.storage.hbase.thrift2 import Thrift2Store
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, on
from omidpy.tx.transaction import Transaction
from tests.machines.clients import TABLE, Client


@pytest.fixture
def client() -> Client:
    """Return a client with one table."""
    return Client()


def put(tx: Transaction, value: bytes = b"v", row: bytes = b"r") -> None:
    """Write the cell that everybody writes here."""
    tx.table(TABLE).put(row, {b"cf:q": value})


# -- the life of a transaction ---------------------------------------------------------------------


def test_a_clean_block_commits(client: Client) -> None:
    """And says when."""
    with client.tm.begin() as tx:
        put(tx)
        assert tx.status == "running"
    assert tx.status == "committed"
    assert tx.commit_ts is not None
    assert tx.commit_ts > tx.start_ts


def test_a_failing_block_rolls_back_and_its_own_error_wins(client: Client) -> None:
    """The flushed cells are taken back too."""

    def fail() -> None:
        with client.tm.begin() as tx:
            put(tx)
            tx.flush()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert client.raw() == []
    assert client.steps == ["before-flush", "flushed", "rolled-back"]


def test_a_rollback_that_fails_does_not_hide_the_blocks_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Readers ignore tentative cells anyway; it is logged."""
    client = Client(FaultyStore(MemoryStore()))
    assert isinstance(client.store, FaultyStore)
    store = client.store

    def fail() -> None:
        with client.tm.begin() as tx:
            put(tx)
            tx.flush()
            store.plans.append(on("write.before", StorageUnavailable("full")))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert "were not all removed" in caplog.text


def test_a_block_may_end_its_transaction_itself(client: Client) -> None:
    """The end of the block then does nothing."""
    with client.tm.begin() as tx:
        put(tx)
        tx.commit()
    with client.tm.begin() as other:
        put(other)
        other.rollback()
    assert (tx.status, other.status) == ("committed", "rolled_back")


def test_a_transaction_that_wrote_nothing_asks_nobody(client: Client) -> None:
    """It reads one snapshot, which no conflict can spoil."""
    with client.tm.begin() as tx:
        tx.table(TABLE).row(b"r")
    assert tx.status is TransactionStatus.COMMITTED
    assert tx.commit_ts is None
    assert client.oracle.asked[-1] == "begin"


def test_rollback_only_turns_a_commit_into_a_rollback(client: Client) -> None:
    """Not retryable: the block asked for it."""
    tx = client.tm.begin()
    put(tx)
    tx.flush()
    tx.set_rollback_only()
    with pytest.raises(TransactionAborted, match="set_rollback_only was called") as caught:
        tx.commit()
    assert not caught.value.retryable
    assert client.raw() == []
    assert "commit" not in client.oracle.asked


def test_cells_that_cannot_be_written_abort_the_transaction() -> None:
    """The oracle was not asked, so it certainly has not committed."""
    client = Client(FaultyStore(MemoryStore()))
    assert isinstance(client.store, FaultyStore)
    tx = client.tm.begin()
    put(tx)
    full = StorageUnavailable("the disk is full")
    client.store.plans.append(on("write.after", full, table=TABLE, nth=1))
    with pytest.raises(TransactionAborted, match=r"could not be written.*disk is full"):
        tx.commit()
    assert client.raw() == []
    assert tx.status is TransactionStatus.ROLLED_BACK


def test_a_failed_flush_can_be_tried_again() -> None:
    """The same bytes are sent again, and the transaction goes on."""
    client = Client(FaultyStore(MemoryStore()))
    assert isinstance(client.store, FaultyStore)
    with client.tm.begin() as tx:
        put(tx)
        lost = StorageUnavailable("answer lost")
        client.store.plans.append(on("write.after", lost, table=TABLE, nth=1))
        with pytest.raises(StorageUnavailable):
            tx.flush()
        assert tx.table(TABLE).row(b"r") == {b"cf:q": b"v"}
    assert client.raw_data() == [(b"r", b"q", tx.start_ts, b"v")]


def test_a_table_dropped_before_the_commit_aborts_it(client: Client) -> None:
    """There is nowhere to write to."""
    tx = client.tm.begin()
    put(tx)
    client.tm.drop_table(TABLE)
    with pytest.raises(TransactionAborted, match="'t'"):
        tx.commit()


def test_nothing_can_fail_between_the_last_flush_and_the_oracle() -> None:
    """A store asked again for the table there would leave an outcome open that nobody asked for."""
    client = Client(FaultyStore(MemoryStore()))
    assert isinstance(client.store, FaultyStore)
    with client.tm.begin() as tx:
        put(tx)
        tx.flush()
        client.clock.advance(LAYOUT_AGE_S * 2)  # type: ignore[attr-defined]  # cranked here
        client.store.plans.append(on("schema.before", StorageUnavailable("gone")))
    assert tx.status is TransactionStatus.COMMITTED


# -- why a commit was refused ----------------------------------------------------------------------


def test_a_conflict_names_the_cells(client: Client) -> None:
    """And the way out."""
    tx = client.tm.begin()
    put(tx)
    put(tx, row=b"mine alone")
    client.write()
    with pytest.raises(WriteConflict, match=r"t:b'r' b'cf':b'q'.*@tm.transactional") as caught:
        tx.commit()
    assert caught.value.cells == ((TABLE, b"r", b"cf", b"q"),)
    assert caught.value.retryable
    assert [row for row, *_ in client.raw_data()] == [b"r"], "the loser's cells are gone"


def test_two_columns_of_a_row_do_not_conflict_by_cell(client: Client) -> None:
    """The default level."""
    tx = client.tm.begin()
    put(tx)
    client.write(column=b"cf:other")
    tx.commit()
    assert client.read() == {b"cf:other": b"v", b"cf:q": b"v"}


def test_two_columns_of_a_row_conflict_by_row() -> None:
    """For programs that decide by the whole row."""
    client = Client(conflict_level="row")
    tx = client.tm.begin()
    put(tx)
    client.write(column=b"cf:other")
    with pytest.raises(WriteConflict) as caught:
        tx.commit()
    assert caught.value.cells == ((TABLE, b"r", b"cf", b"q"),)


def test_conflict_levels_name_cells_as_omid_does() -> None:
    """Java clients of the same table must meet the same ids."""
    by_cell, by_row = Client(), Client(conflict_level="row")
    of_cell, of_row = (
        client.tm.session.catalog.layout(TABLE).conflict_id for client in (by_cell, by_row)
    )
    assert of_cell(b"r", b"cf", b"q") == cell_id(TABLE, b"r", b"cf", b"q")
    assert of_row(b"r", b"cf", b"q") == row_id(TABLE, b"r")


def test_a_client_of_another_conflict_level_takes_that_of_the_table(client: Client) -> None:
    """Else the two would not see each other's conflicts."""
    other = TransactionManager(client.store, client.oracle, conflict_level="row")
    of_table = other.session.catalog.layout(TABLE).conflict_id
    assert of_table(b"r", b"cf", b"q") == cell_id(TABLE, b"r", b"cf", b"q")
    mine, theirs = client.tm.begin(), other.begin()
    put(mine)
    put(theirs)
    mine.commit()
    with pytest.raises(WriteConflict):
        theirs.commit()


def test_a_fence_aborts_older_transactions_of_its_table(client: Client) -> None:
    """Later ones pass; readers pass."""
    tx, reader = client.tm.begin(), client.tm.begin()
    put(tx)
    fence = client.tm.fence(TABLE)
    assert fence > tx.start_ts
    with pytest.raises(Fenced, match=r"a fence was set on one of the tables it wrote \(t\)"):
        tx.commit()
    reader.commit()
    client.write()


def test_a_table_that_is_made_anew_aborts_who_wrote_the_earlier_one(client: Client) -> None:
    """Its cells went with the table: it would be told that it had committed them (I8)."""
    tx = client.tm.begin()
    put(tx)
    tx.flush()
    client.tm.drop_table(TABLE)
    client.tm.create_table(TABLE, families=["cf"])
    with pytest.raises(Fenced):
        tx.commit()
    with client.tm.begin() as later:
        put(later)
    assert later.status == "committed"


def test_a_table_that_exists_aborts_nobody(client: Client) -> None:
    """Programs begin by making a table that is there already."""
    tx = client.tm.begin()
    put(tx)
    with pytest.raises(TableExists):
        client.tm.create_table(TABLE, families=["cf"])
    tx.commit()


def test_a_fence_needs_a_transactional_table(client: Client) -> None:
    """Its number is a hash: a typing mistake would fence nothing."""
    with pytest.raises(NoSuchTable, match="'missing'"):
        client.tm.fence("missing")


def test_a_transaction_below_the_low_watermark_is_too_old(client: Client) -> None:
    """The oracle has forgotten what it could conflict with."""
    tx = client.tm.begin()
    put(tx)
    low_watermark = client.naive.raise_low_watermark()
    with pytest.raises(SnapshotTooOld, match="--max-transaction-age"):
        tx.commit()
    assert client.tm.low_watermark() == low_watermark


# -- transactional and attempts --------------------------------------------------------------------


def test_a_transactional_function_runs_in_a_transaction(client: Client) -> None:
    """Its result comes back, its name and documentation stay."""

    @client.tm.transactional
    def deposit(tx: Transaction, row: bytes, *, amount: bytes) -> bytes:
        """Deposit."""
        put(tx, amount, row)
        return b"done " + amount

    assert deposit(b"alice", amount=b"5") == b"done 5"
    assert client.read(b"alice") == {b"cf:q": b"5"}
    assert (deposit.__name__, deposit.__doc__) == ("deposit", "Deposit.")


def test_a_conflict_runs_it_again_from_begin(client: Client) -> None:
    """On a new snapshot, which sees what it lost against."""
    starts: list[int] = []

    @client.tm.transactional(retry_budget_s=30)
    def increment(tx: Transaction) -> bytes:
        starts.append(tx.start_ts)
        old = tx.table(TABLE).row(b"r").get(b"cf:q", b"0")
        if len(starts) == 1:
            client.write(value=b"7")
        new = b"%d" % (int(old) + 1)
        put(tx, new)
        return new

    assert increment() == b"8"
    assert len(starts) == 2
    assert client.read() == {b"cf:q": b"8"}


def test_given_a_transaction_it_joins_it(client: Client) -> None:
    """It neither commits nor retries."""

    @client.tm.transactional
    def change(tx: Transaction) -> int:
        put(tx)
        return tx.start_ts

    with client.tm.begin() as tx:
        assert change(tx) == tx.start_ts
        assert tx.status is TransactionStatus.RUNNING
        tx.rollback()
    assert client.read() == {}


def test_inside_an_open_block_it_joins_the_innermost(client: Client) -> None:
    """Two functions called in one block are one transaction."""

    @client.tm.transactional
    def current(tx: Transaction) -> int:
        return tx.start_ts

    with client.tm.begin() as outer:
        assert current() == outer.start_ts
        with client.tm.begin() as inner:
            assert current() == inner.start_ts
        assert current() == outer.start_ts
    assert current() > inner.start_ts


def test_a_joined_conflict_is_the_owners(client: Client) -> None:
    """Running the inner function alone again would tear the outer transaction."""
    runs: list[int] = []

    @client.tm.transactional
    def fail(tx: Transaction) -> None:
        runs.append(tx.start_ts)
        raise WriteConflict("inner")

    def outer() -> None:
        with client.tm.begin():
            fail()

    with pytest.raises(WriteConflict, match="inner"):
        outer()
    assert len(runs) == 1


def test_a_block_that_ended_its_transaction_is_not_joined(client: Client) -> None:
    """There is nothing left to join: a new one begins."""

    @client.tm.transactional
    def current(tx: Transaction) -> int:
        return tx.start_ts

    with client.tm.begin() as tx:
        tx.rollback()
        assert current() > tx.start_ts


def test_another_managers_transaction_is_not_joined(client: Client) -> None:
    """Its writes would go to another store."""
    other = Client()

    @client.tm.transactional
    def current(tx: Transaction) -> Transaction:
        return tx

    with other.tm.begin() as tx:
        assert current() is not tx


def test_attempts_are_the_same_without_a_closure(client: Client) -> None:
    """The loop body is run again, with its local variables at hand."""
    values = [b"first", b"second"]
    for attempt in client.tm.attempts(budget_s=5):
        with attempt as tx:
            put(tx, values.pop(0))
            if values:
                client.write(value=b"theirs")
    assert client.read() == {b"cf:q": b"second"}


def test_an_absent_oracle_is_an_error_of_begin(client: Client) -> None:
    """Nothing has begun."""
    client.oracle.is_dead = True
    with pytest.raises(OracleUnavailable, match="dead"):
        client.tm.begin()


# -- after_commit ----------------------------------------------------------------------------------


def test_callbacks_run_once_in_order_after_the_commit(client: Client) -> None:
    """What they see is committed."""
    called: list[tuple[int, dict[bytes, bytes]]] = []
    tx = client.tm.begin()
    put(tx)

    def note(number: int) -> Callable[[Transaction], None]:
        return lambda _: called.append((number, client.read()))

    for number in range(3):
        tx.after_commit(note(number))
    assert called == []
    tx.commit()
    assert called == [(number, {b"cf:q": b"v"}) for number in range(3)]


def test_a_callbacks_exception_is_logged_and_the_next_one_runs(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The transaction has committed, whatever they do."""
    called: list[int] = []

    def fail(tx: Transaction) -> None:
        raise KeyError(tx.start_ts)

    with caplog.at_level(logging.ERROR), client.tm.begin() as tx:
        put(tx)
        tx.after_commit(fail)
        tx.after_commit(lambda _: called.append(1))
    assert called == [1]
    assert f"after_commit of transaction {tx.start_ts} failed" in caplog.text


def test_callbacks_of_what_did_not_commit_do_not_run(client: Client) -> None:
    """Neither after a rollback nor after an abort."""
    called: list[int] = []
    tx = client.tm.begin()
    tx.after_commit(lambda tx: called.append(tx.start_ts))
    tx.rollback()
    loser = client.tm.begin()
    loser.after_commit(lambda tx: called.append(tx.start_ts))
    put(loser)
    client.write()
    with pytest.raises(WriteConflict):
        loser.commit()
    assert called == []


def test_callbacks_of_a_read_only_transaction_run(client: Client) -> None:
    """It ended well too."""
    called: list[int] = []
    with client.tm.begin(read_only=True) as tx:
        tx.after_commit(lambda tx: called.append(tx.start_ts))
    assert called == [tx.start_ts]


# -- tables ----------------------------------------------------------------------------------------


def test_tables_are_created_listed_and_dropped(client: Client) -> None:
    """System tables are nobody's business."""
    client.tm.create_table("ns:other", {"cf": {}})
    assert client.tm.tables() == ["ns:other", TABLE]
    client.tm.drop_table("ns:other")
    assert client.tm.tables() == [TABLE]
    with pytest.raises(NoSuchTable):
        client.tm.begin().table("ns:other")


def test_a_table_of_the_other_conflict_level_can_be_dropped(client: Client) -> None:
    """Its level matters to those who write it."""
    by_row = TransactionManager(client.store, client.naive, conflict_level="row")
    by_row.create_table("rows", ["cf"])
    client.tm.drop_table("rows")
    assert client.tm.tables() == [TABLE]


def test_a_created_table_is_marked_as_ours(client: Client) -> None:
    """Java and the compactor know it by these marks; its regions meet where asked."""
    client.tm.create_table("marked", [b"b", "a", "b"], splits=[b"m", b"g"])
    schema = client.store.schema("marked")
    assert schema.family_names() == [b"a", b"b"]
    assert all(family.attributes["OMID_ENABLED"] == "true" for family in schema.families)
    assert schema.attributes["OMIDPY_COMMIT_TABLE"] == "OMID_COMMIT_TABLE"
    assert schema.attributes["OMIDPY_CONFLICT_LEVEL"] == "cell"
    assert [region.start for region in client.store.regions("marked")] == [b"", b"g", b"m"]


@pytest.mark.parametrize("name", ["OMIDPY_KEYS", "OMIDPY_PUBLISHED", "OMIDPY_EXPORT_sales"])
def test_a_table_of_omidpys_own_is_made_by_nobody_else(client: Client, name: str) -> None:
    """It would be taken for that table, and have other families, regions and no definition."""
    prefixed = TransactionManager(client.store, client.naive, table_prefix="of_us.")
    for make in (TransactionManager.create_table, admin.create_table):
        for tm in (client.tm, prefixed):
            with pytest.raises(UsageError, match="one of omidpy's own"):
                make(tm, name, ["cf"])
    with client.tm.begin(idempotency_key=b"once") as tx:
        put(tx)
    client.tm.drop_table("OMIDPY_KEYS")
    with client.tm.begin(idempotency_key=b"once") as tx:  # made again, by the same
        put(tx)


def test_a_table_of_keys_that_a_user_has_made_is_named(client: Client) -> None:
    """Earlier versions let him; the error tells how to be rid of it."""
    session = client.tm.session
    session.make_table(session.catalog.plan("OMIDPY_KEYS", ["cf"], (), is_own=True))
    with pytest.raises(ConfigError, match=r"drop it, tm.drop_table\('OMIDPY_KEYS'\)"):
        client.tm.begin(idempotency_key=b"once")
    client.tm.drop_table("OMIDPY_KEYS")
    with client.tm.begin(idempotency_key=b"once") as tx:
        put(tx)


def test_an_existing_table_is_not_made_again(client: Client) -> None:
    """Nothing of it changes."""
    with pytest.raises(TableExists):
        client.tm.create_table(TABLE, ["another"])
    assert client.store.schema(TABLE).family_names() == [b"cf", b"other"]


def test_the_layout_of_a_table_is_read_once_in_a_while() -> None:
    """Not with each transaction, and not for ever."""
    store = FaultyStore(MemoryStore())
    client = Client(store)
    client.write()
    asked = store.calls["schema"]
    client.write(b"s")
    assert store.calls["schema"] == asked
    client.clock.advance(LAYOUT_AGE_S)  # type: ignore[attr-defined]  # cranked here
    client.write(b"u")
    assert store.calls["schema"] == asked + 1


# -- closing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how_many", [0, 1, 50])
def test_a_program_that_closes_nothing_ends_without_a_word(tmp_path: Path, how_many: int) -> None:
    """And leaves no commit entry: what is left to do is done in the thread that ends.

    Since Python 3.12 no other one begins any more.
    """
    program = f"""
import omidpy
tm = omidpy.connect("sqlite:///bank.db")
tm.create_table("accounts", families=["cf"])
for number in range({how_many}):
    with tm.begin() as tx:
        tx.table("accounts").put(b"alice", {{b"cf:balance": b"%d" % number}})
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    with omidpy.connect(f"sqlite:///{tmp_path / 'bank.db'}") as tm:
        assert [page for page in CommitTable(tm.store).scan() if page] == []


def test_a_manager_names_its_store_and_its_oracle() -> None:
    """Which cluster a notebook writes to is asked often; options of addresses are nobody's."""
    with omidpy.connect("memory:") as tm:
        assert repr(tm) == "<TransactionManager of memory: with <EmbeddedOracle in this process>>"
    # Neither is called before it is used.
    store = Thrift2Store("hbase+thrift2://gw1:9090,gw2:9090?tls=on&tls_cert=c&tls_key=secret")
    oracle = TcpOracle("tso:24758")
    with TransactionManager(store, oracle, post_commit="none") as tm:
        where = "hbase+thrift2://gw1:9090,gw2:9090"
        assert repr(tm) == f"<TransactionManager of {where} with <TcpOracle at tso:24758>>"
        named = repr(aio.TransactionManager(tm))
        assert named == f"<aio.TransactionManager of {where} with <TcpOracle at tso:24758>>"


def test_a_manager_closes_what_it_joined_once(client: Client) -> None:
    """Twice does nothing; an error of one does not leave the other open."""
    closed: list[str] = []

    def fail() -> None:
        closed.append("oracle")
        raise OracleUnavailable("already gone")

    client.oracle.close = fail  # type: ignore[method-assign]  # an oracle that died
    client.store.close = lambda: closed.append("store")  # type: ignore[method-assign]  # seen
    with pytest.raises(OracleUnavailable):
        client.tm.close()
    client.tm.close()
    assert closed == ["oracle", "store"]


def test_a_manager_is_a_context_manager(client: Client) -> None:
    """It closes at the end of its block."""
    with client.tm as tm:
        assert tm is client.tm
    assert client.tm._is_closed


def test_a_scan_stops_when_its_transaction_ends(client: Client) -> None:
    """In the middle of a page too: what is buffered in it is gone, or is history."""
    with client.tm.begin() as tx:
        for row in (b"a", b"b", b"c"):
            tx.table(TABLE).put(row, {b"cf:q": b"1"})
    tx = client.tm.begin()
    rows = tx.table(TABLE).scan()
    assert next(rows) == (b"a", {b"cf:q": b"1"})
    tx.rollback()
    with pytest.raises(TransactionClosed):
        next(rows)
