"""What mypy and pyright must refuse: every line with a comment for them, and no other.

Never run.  A comment that is not needed is an error of its own, so that each line here is a test.
Which rule of pyright's is broken is left out: versions of it differ.
"""

# ruff: noqa: PGH003 - see above

from __future__ import annotations

import omidpy
from omidpy import aio

tm = omidpy.connect("memory:")


@tm.transactional
def transfer(tx: omidpy.Transaction, source: bytes, target: bytes, amount: int = 1) -> int:
    """Take what the tests do not give."""
    return amount + len(source + target) + tx.start_ts


def functions(tx: omidpy.Transaction, worker: object) -> None:
    """Arguments are checked with a transaction, and without."""
    transfer("a", b"b")  # type: ignore[call-overload]  # pyright: ignore
    transfer(b"a")  # type: ignore[call-overload]  # pyright: ignore
    transfer(tx, b"a")  # type: ignore[call-overload]  # pyright: ignore
    transfer(tx, b"a", b"b", 1, 2)  # type: ignore[call-overload]  # pyright: ignore
    transfer(b"a", b"b", amount="1")  # type: ignore[call-overload]  # pyright: ignore
    transfer(b"a", b"b", sum=1)  # type: ignore[call-overload]  # pyright: ignore
    transfer(worker, b"a", b"b")  # type: ignore[call-overload]  # pyright: ignore
    transfer(tx=tx, source=b"a", target=b"b")  # type: ignore[call-overload]  # pyright: ignore
    text: str = transfer(b"a", b"b")  # type: ignore[assignment]  # pyright: ignore
    print(text)


class Bank:
    """Methods."""

    @tm.transactional
    def balance(self, tx: omidpy.Transaction, name: bytes) -> int:
        """Return a balance."""
        return int(tx.table("accounts").row(name)[b"cf:balance"])


def methods(tx: omidpy.Transaction, bank: Bank) -> None:
    """And so are those of methods."""
    bank.balance("a")  # type: ignore[call-overload]  # pyright: ignore
    bank.balance(tx)  # type: ignore[call-overload]  # pyright: ignore
    bank.balance(tx, tx, b"a")  # type: ignore[call-overload]  # pyright: ignore
    Bank.balance(b"a")  # type: ignore[call-overload]  # pyright: ignore


def no_transaction(amount: int) -> int:
    """Take no transaction."""
    return amount


def nothing() -> int:
    """Take nothing."""
    return 5


def asynchronous(tx: aio.Transaction) -> int:
    """Take a transaction of asyncio."""
    return tx.start_ts


tm.transactional(no_transaction)  # type: ignore[arg-type]  # pyright: ignore
tm.transactional(nothing)  # type: ignore[arg-type]  # pyright: ignore
tm.transactional(asynchronous)  # type: ignore[arg-type]  # pyright: ignore
tm.transactional(transfer, retry_budget_s=5)  # type: ignore[call-overload]  # pyright: ignore


async def of_asyncio(tm: aio.TransactionManager) -> None:
    """Await what can be awaited, and all of it."""

    @tm.transactional
    async def transfer(tx: aio.Transaction, source: bytes) -> int:
        return len(await tx.table("t").row(source))

    transfer(b"a")  # type: ignore[unused-coroutine]  # pyright: ignore
    await transfer("a")  # type: ignore[call-overload]  # pyright: ignore
    tm.transactional(asynchronous)  # type: ignore[arg-type]  # pyright: ignore
