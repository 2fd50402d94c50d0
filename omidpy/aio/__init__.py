"""The client for asyncio: the same names, awaited.

    tm = await omidpy.aio.connect("sqlite:///bank.db")
    async with tm.begin() as tx:
        await tx.table("accounts").put(b"alice", {b"cf:balance": b"100"})
        async for key, data in tx.table("accounts").scan(row_prefix=b"a"):
            ...

Nothing is decided here: each method runs its namesake of the blocking client in a worker thread,
and has its arguments, its documentation and its errors.  The calls of one transaction run one at a
time, in the order in which they were made, whatever tasks make them.

A cancelled `await` first waits for the call that is under way, because a thread cannot be stopped;
then the transaction is in a state that its `status` tells, and the next call may follow.  So a
cancelled commit may have committed.  A block that is cancelled is rolled back.
"""

from __future__ import annotations

from omidpy.aio.manager import TransactionManager, connect
from omidpy.aio.retry import Attempt
from omidpy.aio.transaction import (
    Batch,
    HeldSnapshot,
    Savepoint,
    Transaction,
    TransactionalTable,
    Worker,
)

__all__ = [
    "Attempt",
    "Batch",
    "HeldSnapshot",
    "Savepoint",
    "Transaction",
    "TransactionManager",
    "TransactionalTable",
    "Worker",
    "connect",
]
