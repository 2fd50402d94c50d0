"""What mypy and pyright must accept, with the types that they must see.

Never run: `test_typing.py` gives it to the type checkers, and so does whoever checks the tree.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Generic, TypeVar, assert_type

import omidpy
from omidpy import aio
from omidpy.base.telemetry.client_metrics import ClientMetrics

T = TypeVar("T")


def functions(tm: omidpy.TransactionManager, tx: omidpy.Transaction) -> None:
    """Call a decorated function with a transaction, and without."""

    @tm.transactional
    def transfer(tx: omidpy.Transaction, source: bytes, target: bytes, amount: int = 1) -> int:
        return amount + len(source + target) + tx.start_ts

    assert_type(transfer(b"a", b"b", 10), int)
    assert_type(transfer(b"a", b"b"), int)
    assert_type(transfer(b"a", target=b"b", amount=1), int)
    assert_type(transfer(tx, b"a", b"b", 10), int)
    assert_type(transfer(tx, b"a", target=b"b"), int)
    assert_type(transfer.__name__, str)

    @tm.transactional(retry_budget_s=5)
    def count(tx: omidpy.Transaction, *tables: str, prefix: bytes = b"") -> dict[str, int]:
        return {name: len(list(tx.table(name).scan(row_prefix=prefix))) for name in tables}

    assert_type(count(), dict[str, int])
    assert_type(count("a", "b", prefix=b"x"), dict[str, int])
    assert_type(count(tx, "a"), dict[str, int])

    @tm.transactional(idempotency_key=lambda order, amount: order)
    def deposit(tx: omidpy.Transaction, order: bytes, amount: int) -> int:
        return amount + len(order) + tx.start_ts

    assert_type(deposit(b"order-17", 10), int | omidpy.Committed)
    assert_type(deposit(tx, b"order-17", 10), int | omidpy.Committed)

    @tm.transactional(idempotency_key=b"once", retry_budget_s=5)
    def migrate(tx: omidpy.Transaction) -> None:
        tx.flush()

    assert_type(migrate(), omidpy.Committed | None)

    def plain(tx: omidpy.Transaction) -> bytes:
        return tx.token()

    assert_type(tm.transactional(plain)(), bytes)
    assert_type(tm.transactional(plain)(tx), bytes)
    # Where the transaction's own type is not written, the rest is still known.
    assert_type(tm.transactional(lambda tx: len(tx.token()))(), int)


tm = omidpy.connect("memory:")


class Bank:
    """Its methods take `self` first, and the transaction behind."""

    @tm.transactional
    def balance(self, tx: omidpy.Transaction, name: bytes) -> int:
        """Return a balance."""
        return int(tx.table("accounts").row(name)[b"cf:balance"])

    @tm.transactional(retry_budget_s=5)
    def rename(self, tx: omidpy.Transaction, name: bytes, *, to: bytes) -> None:
        """Call an account otherwise."""
        tx.table("accounts").put(to, tx.table("accounts").row(name))

    @staticmethod
    @tm.transactional
    def audit(tx: omidpy.Transaction, limit: int) -> list[bytes]:
        """Return names."""
        return [key for key, _ in tx.table("accounts").scan(limit=limit)]

    @classmethod
    @tm.transactional
    def opened(cls, tx: omidpy.Transaction, name: bytes) -> bool:
        """Open an account."""
        return bool(tx.table("accounts").row(name))


class Branch(Bank):
    """Inherits them."""


class Shelf(Generic[T]):
    """A generic class."""

    def __init__(self, item: T) -> None:
        self.item = item

    @tm.transactional
    def swap(self, tx: omidpy.Transaction, item: T) -> T:
        """Return what was there."""
        self.item, item = item, self.item
        return item if tx.start_ts else self.item


def methods(tx: omidpy.Transaction, bank: Bank) -> None:
    """Bound, unbound, inherited, static, of the class."""
    assert_type(bank.balance(b"a"), int)
    assert_type(bank.balance(tx, b"a"), int)
    assert_type(Branch().balance(name=b"a"), int)
    assert_type(Bank.balance(bank, b"a"), int)
    assert_type(Bank.balance(bank, tx, b"a"), int)
    bank.rename(b"a", to=b"b")
    bank.rename(tx, b"a", to=b"b")
    assert_type(bank.audit(5), list[bytes])
    assert_type(Bank.audit(tx, 5), list[bytes])
    assert_type(Bank.opened(b"a"), bool)
    assert_type(Branch().opened(tx, b"a"), bool)
    assert_type(Shelf(5).swap(6), int)


def blocks(tm: omidpy.TransactionManager) -> int:
    """Return from a block, which is left by nothing but its end or an exception."""
    with tm.begin() as tx:
        with tx.savepoint(), tx.table("t").batch() as batch:
            batch.put(b"r", {b"cf:q": b"v"})
        if not tx.table("t").row(b"r"):
            raise omidpy.Rollback
        return 5


def retries(tm: omidpy.TransactionManager) -> None:
    """See tries, and what is counted."""
    for attempt in tm.attempts(budget_s=5):
        assert_type(attempt.number, int)
        with attempt as tx:
            assert_type(tx, omidpy.Transaction)
    assert_type(tm.metrics, ClientMetrics)
    error = omidpy.WriteConflict("two wrote it")
    assert_type(error.attempts, int | None)
    assert_type(error.elapsed_s, float | None)
    assert_type([cell.row for cell in error.cells], list[bytes])


async def asynchronous(tm: aio.TransactionManager, tx: aio.Transaction) -> None:
    """Await the same."""

    @tm.transactional
    async def transfer(tx: aio.Transaction, source: bytes, amount: int = 1) -> int:
        return amount + len(await tx.table("t").row(source))

    waiting: Coroutine[Any, Any, int] = transfer(b"a")
    assert_type(await waiting, int)
    assert_type(await transfer(b"a", amount=5), int)
    assert_type(await transfer(tx, b"a", 5), int)

    class Account:
        @tm.transactional(retry_budget_s=5)
        async def close(self, tx: aio.Transaction, reason: str) -> bool:
            return bool(reason and await tx.table("t").row(b"r"))

    assert_type(await Account().close("why"), bool)
    assert_type(await Account().close(tx, "why"), bool)
