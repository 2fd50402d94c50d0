"""What a transaction took is freed with it, and is not left to Python's collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from omidpy.errors import TransactionAborted
from omidpy.tx.transaction import Transaction
from tests.machines.clients import TABLE, Client


@pytest.fixture
def client() -> Client:
    """Return a manager over memory."""
    return Client()


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """Let nobody look for circles."""
    gc.disable()
    yield
    gc.enable()


def put(tx: Transaction) -> None:
    """Write a cell."""
    tx.table(TABLE).put(b"r", {b"cf:q": b"v"})


def committed(client: Client) -> Transaction:
    """Commit a transaction that writes."""
    with client.tm.begin() as tx:
        put(tx)
    return tx


def committed_reader(client: Client) -> Transaction:
    """Commit a transaction that reads."""
    with client.tm.begin() as tx:
        tx.table(TABLE).row(b"r")
        assert list(tx.table(TABLE).scan()) == []
    return tx


def rolled_back(client: Client) -> Transaction:
    """Roll a transaction back, of which something was sent."""
    tx = client.tm.begin()
    put(tx)
    tx.flush()
    tx.rollback()
    return tx


def refused(client: Client) -> Transaction:
    """Let a transaction meet another one that wrote the same cell."""
    tx = client.tm.begin()
    put(tx)
    committed(client)
    with pytest.raises(TransactionAborted):
        tx.commit()
    return tx


@pytest.mark.parametrize("end", [committed, committed_reader, rolled_back, refused])
def test_a_transaction_that_ended_is_freed_at_once(
    client: Client, end: Callable[[Client], Transaction]
) -> None:
    """Circles of them had all threads wait for the collector, again and again."""
    known = weakref.ref(end(client))
    client.tm.session.post_committer.drain()
    assert known() is None
