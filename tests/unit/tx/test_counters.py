"""Counters: happybase's methods, inside a transaction."""

from __future__ import annotations

import pytest

from omidpy.codec import INT64
from omidpy.errors import CorruptCell, UsageError, WriteConflict
from tests.machines.clients import TABLE, Client


@pytest.fixture
def client() -> Client:
    """Return a manager over memory."""
    return Client()


def test_an_absent_counter_is_zero(client: Client) -> None:
    """And reading it writes nothing."""
    with client.tm.begin() as tx:
        assert tx.table(TABLE).counter_get(b"a", b"cf:n") == 0
    assert client.raw() == []


def test_a_counter_goes_up_and_down(client: Client) -> None:
    """Each step returns the new value, and sees those before it."""
    with client.tm.begin() as tx:
        table = tx.table(TABLE)
        assert table.counter_inc(b"a", b"cf:n") == 1
        assert table.counter_inc(b"a", b"cf:n", 5) == 6
        assert table.counter_dec(b"a", b"cf:n") == 5
        assert table.counter_add(b"a", b"cf:n", -10) == -5
    assert client.read(b"a") == {b"cf:n": INT64.encode(-5)}
    with client.tm.begin() as tx:
        tx.table(TABLE).counter_set(b"a", b"cf:n", 7)
        assert tx.table(TABLE).counter_get(b"a", b"cf:n") == 7
        tx.rollback()
    with client.tm.begin() as tx:
        assert tx.table(TABLE).counter_get(b"a", b"cf:n") == -5


def test_two_transactions_never_count_once(client: Client) -> None:
    """One of them conflicts; run again it sees the other."""
    first = client.tm.begin()
    first.table(TABLE).counter_inc(b"a", b"cf:n")

    @client.tm.transactional
    def count(tx):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return tx.table(TABLE).counter_inc(b"a", b"cf:n")

    assert count() == 1
    with pytest.raises(WriteConflict):
        first.commit()
    assert count() == 2


def test_a_counter_without_conflict_detection_is_refused(client: Client) -> None:
    """It would lose an update and tell nobody."""
    with client.tm.begin() as tx:
        table = tx.table(TABLE, conflict_free=True)
        for change in (table.counter_inc, table.counter_dec):
            with pytest.raises(UsageError, match="count once"):
                change(b"a", b"cf:n")
        table.counter_set(b"a", b"cf:n", 1)
        assert table.counter_get(b"a", b"cf:n") == 1


def test_a_counter_does_not_wrap_around(client: Client) -> None:
    """HBase's does; nobody who counts wants to see it."""
    with client.tm.begin() as tx:
        table = tx.table(TABLE)
        table.counter_set(b"a", b"cf:n", 2**63 - 1)
        with pytest.raises(UsageError, match="64 bits"):
            table.counter_inc(b"a", b"cf:n")
        assert table.counter_get(b"a", b"cf:n") == 2**63 - 1


def test_what_is_no_counter_is_told_apart(client: Client) -> None:
    """`b"100"` is text; a whole family is no counter either."""
    client.write(b"a", b"100", b"cf:n")
    with client.tm.begin() as tx:
        with pytest.raises(CorruptCell, match="INT64"):
            tx.table(TABLE).counter_inc(b"a", b"cf:n")
        with pytest.raises(UsageError, match="family:qualifier"):
            tx.table(TABLE).counter_get(b"a", b"cf")
