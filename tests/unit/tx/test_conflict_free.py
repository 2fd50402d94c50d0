"""Writes without conflict detection: everything else of a transaction stays."""

from __future__ import annotations

import pytest

from omidpy.base.cells import cell_id, table_id, transaction_id
from omidpy.errors import Fenced, WriteConflict
from omidpy.model import CellId
from tests.machines.clients import TABLE, Client


@pytest.fixture
def client() -> Client:
    """Return a manager over memory."""
    return Client()


def asked_ids(client: Client) -> list[set[CellId]]:
    """Return the cell ids of every commit request from here on."""
    requests: list[set[CellId]] = []
    commit = client.naive.commit

    def spy(start_ts, cell_ids, table_ids, *, is_retry=False):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        requests.append(set(cell_ids))
        assert table_ids == {table_id(TABLE)}, "fences need the table"
        return commit(start_ts, cell_ids, table_ids, is_retry=is_retry)

    client.naive.commit = spy  # type: ignore[method-assign]
    return requests


def test_two_overlapping_writers_both_commit(client: Client) -> None:
    """Later snapshots see the value of the one that began later, whoever committed first."""
    first, second = client.tm.begin(), client.tm.begin()
    for tx, value in ((first, b"1"), (second, b"2")):
        tx.table(TABLE, conflict_free=True).put(b"a", {b"cf:q": value})
    second.commit()
    first.commit()
    assert client.read(b"a") == {b"cf:q": b"2"}


def test_the_same_without_it_conflicts(client: Client) -> None:
    """One manager may do both, table by table and transaction by transaction."""
    first, second = client.tm.begin(), client.tm.begin()
    first.table(TABLE).put(b"a", {b"cf:q": b"1"})
    second.table(TABLE).put(b"a", {b"cf:q": b"2"})
    second.commit()
    with pytest.raises(WriteConflict):
        first.commit()


def test_cells_without_detection_are_not_sent_and_others_are(client: Client) -> None:
    """The two kinds live in one transaction."""
    requests = asked_ids(client)
    with client.tm.begin() as tx:
        tx.table(TABLE, conflict_free=True).put(b"a", {b"cf:q": b"1"})
        tx.table(TABLE).put(b"b", {b"cf:q": b"2"})
    assert requests == [{cell_id(TABLE, b"b", b"cf", b"q")}]


def test_a_transaction_of_such_writes_alone_sends_an_id_of_its_own(client: Client) -> None:
    """A request without any cell would mean that nothing was written."""
    requests = asked_ids(client)
    transactions = [client.tm.begin(), client.tm.begin()]
    for tx in transactions:
        tx.table(TABLE, conflict_free=True).delete(b"a", columns=[b"cf:q"])
        tx.commit()
    assert requests == [{transaction_id(tx.start_ts)} for tx in transactions]
    assert not requests[0] & requests[1]


@pytest.mark.parametrize("is_checked_first", [True, False])
def test_a_cell_written_both_ways_is_checked(client: Client, *, is_checked_first: bool) -> None:
    """Whoever asks for detection gets it, in whatever order the writes came."""
    requests = asked_ids(client)
    with client.tm.begin() as tx:
        for conflict_free in (not is_checked_first, is_checked_first):
            tx.table(TABLE, conflict_free=conflict_free).put(b"a", {b"cf:q": b"1"})
            tx.flush()
    assert requests == [{cell_id(TABLE, b"a", b"cf", b"q")}]


def test_a_fence_aborts_such_writes_too(client: Client) -> None:
    """A fence is about the table, whatever was written to it; the error names it."""
    tx = client.tm.begin()
    tx.table(TABLE, conflict_free=True).put(b"a", {b"cf:q": b"1"})
    assert client.tm.fence(TABLE) > tx.start_ts
    with pytest.raises(Fenced, match=TABLE):
        tx.commit()
    assert client.raw() == []


def test_shadow_cells_are_written_as_always(client: Client) -> None:
    """The commit entry goes once they are there."""
    with client.tm.begin() as tx:
        tx.table(TABLE, conflict_free=True).put(b"a", {b"cf:q": b"1"})
    assert set(client.raw_shadows()) == {(b"a", tx.start_ts)}
    assert client.entries() == {}


def test_own_writes_are_read_through_either_object(client: Client) -> None:
    """They share one buffer."""
    with client.tm.begin() as tx:
        tx.table(TABLE, conflict_free=True).put(b"a", {b"cf:q": b"1"})
        assert tx.table(TABLE).row(b"a") == {b"cf:q": b"1"}
        with tx.table(TABLE, conflict_free=True).batch() as batch:
            batch.put(b"b", {b"cf:q": b"2"})
        assert dict(tx.table(TABLE).scan()) == {b"a": {b"cf:q": b"1"}, b"b": {b"cf:q": b"2"}}


def test_row_level_tables_take_such_writes_too() -> None:
    """Nothing of the row is sent."""
    client = Client(conflict_level="row")
    first, second = client.tm.begin(), client.tm.begin()
    first.table(TABLE, conflict_free=True).put(b"a", {b"cf:q": b"1"})
    second.table(TABLE).put(b"a", {b"cf:r": b"2"})
    second.commit()
    first.commit()
    assert client.read(b"a") == {b"cf:q": b"1", b"cf:r": b"2"}


def test_no_cell_of_any_table_has_a_transactions_id() -> None:
    """A table's name cannot begin with a NUL; versions of the id differ by transaction."""
    ids = {transaction_id(start_ts) for start_ts in range(0, 50_000, 50)}
    assert len(ids) == 1000
