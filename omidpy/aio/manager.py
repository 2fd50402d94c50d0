"""The twin of the manager, and `connect`."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, overload

from omidpy import manager
from omidpy.aio.changes import ChangeFeed, watched
from omidpy.aio.lanes import (
    Lane,
    Opening,
    Threads,
    apart,
    awaited,
    iterated,
    opened_by,
    opening,
    surely,
)
from omidpy.aio.retry import Attempts
from omidpy.aio.transaction import HeldSnapshot, Transaction, Worker
from omidpy.base.callers.blocks import Around
from omidpy.base.callers.runners import Runner
from omidpy.base.telemetry.client_metrics import ClientMetrics
from omidpy.base.words.arguments import check_number
from omidpy.connect import connect as connect_blocking
from omidpy.errors import AlreadyCommitted, CommitOutcomeUnknown
from omidpy.facts import holds
from omidpy.facts.tables.catalog import DEFAULT_CONFLICT_LEVEL
from omidpy.model import Change, Committed, Outcome, TransactionStatus
from omidpy.storage.hbase.addresses.from_happybase import Connection, DirectConnection, Pool
from omidpy.tx import retry
from omidpy.tx.feeds import open_watch
from omidpy.tx.keys import keyed
from omidpy.tx.transaction import UsedKey
from omidpy.tx.transactional import (
    IN_A_CONTEXT_OF_ITS_OWN,
    AsyncDecorator,
    AsyncKeyedDecorator,
    Transactional,
    TransactionalMethod,
    elsewhere,
    transaction_position,
)

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

DEFAULT_THREADS: Final = 32
"""How many calls of one manager run at the same time; further ones wait for a thread."""


class TransactionManager:
    """Twin of `omidpy.TransactionManager`; belongs to one event loop.

    Use `omidpy.aio.connect` to get one from addresses.
    """

    def __init__(
        self, blocking: manager.TransactionManager, *, threads: int = DEFAULT_THREADS
    ) -> None:
        """Drive a blocking manager, which `close` closes.

        Args:
            blocking: The manager.
            threads: How many calls run at the same time.
        """
        self.blocking = blocking
        self.lane = self.threads = Threads(threads)
        self._around: Around[tuple[Transaction, Runner]] = Around()

    def __repr__(self) -> str:
        return f"<aio.{repr(self.blocking).removeprefix('<')}"

    begin = opening(manager.TransactionManager.begin, Transaction)
    snapshot = opening(manager.TransactionManager.snapshot, Transaction)
    resume = opening(manager.TransactionManager.resume, Worker)
    scan_arrow = iterated(manager.TransactionManager.scan_arrow, most=1)
    write_arrow = awaited(manager.TransactionManager.write_arrow)

    create_table = awaited(manager.TransactionManager.create_table)
    drop_table = awaited(manager.TransactionManager.drop_table)
    delete_table = awaited(manager.TransactionManager.delete_table)
    tables = awaited(manager.TransactionManager.tables)
    fence = awaited(manager.TransactionManager.fence)
    low_watermark = awaited(manager.TransactionManager.low_watermark)

    def hold(self, snapshot: Transaction | int, *, for_s: float) -> Opening[HeldSnapshot]:
        """Keep the versions that a snapshot needs; see the blocking `hold`."""
        return self._hold(_blocking(snapshot), for_s=for_s)

    _hold = opening(manager.TransactionManager.hold, HeldSnapshot, close=holds.HeldSnapshot.release)

    async def outcome(self, what: Transaction | CommitOutcomeUnknown | bytes | int) -> Outcome:
        """Find out what became of a transaction; see the blocking `outcome`.

        Of a transaction of this loop it is a call as its others are: it waits for a commit that is
        under way, and forbids none.
        """
        lane = what.lane if isinstance(what, Transaction) else self.lane
        return await lane.run(self.blocking.outcome, _blocking(what))

    def changes(self, *args: Any, **kwargs: Any) -> ChangeFeed:
        """Iterate over what was committed between two offsets; arguments as in the blocking one."""
        opened = functools.partial(self.blocking.changes, *args, **kwargs)
        return ChangeFeed(Lane(self.threads), opened)

    async def watch(
        self,
        table: str,
        row: bytes,
        *,
        since: int | datetime | timedelta | None = None,
        columns: Iterable[bytes] | None = None,
        timeout_s: float | None = None,
    ) -> list[Change]:
        """Wait until a row has changed; see the blocking `watch`.  It may be cancelled."""
        opened = functools.partial(
            open_watch,
            self.blocking.session,
            table,
            row,
            since=since,
            columns=columns,
            timeout_s=timeout_s,
        )
        return await watched(Lane(self.threads), opened)

    def attempts(
        self,
        *,
        budget_s: float = manager.DEFAULT_RETRY_BUDGET_S,
        idempotency_key: bytes | None = None,
    ) -> Attempts:
        """Iterate over tries of one transaction.

            async for attempt in tm.attempts(budget_s=5):
                async with attempt as tx:
                    ...

        It ends and raises as the blocking `attempts` does.
        """
        return self._attempts(budget_s, is_kept=False, key=idempotency_key)

    def _attempts(self, budget_s: float, *, is_kept: bool, key: bytes | None) -> Attempts:
        session = self.blocking.session
        backoff = retry.Backoff(session.clock, budget_s, on_retry=session.tally.retried)
        begin = self.begin if key is None else functools.partial(self.begin, idempotency_key=key)
        return Attempts(begin, backoff, is_kept=is_kept)

    @overload
    def transactional(  # type: ignore[overload-overlap]  # where both fit, the first is meant
        self, function: Callable[Concatenate[Transaction, P], Awaitable[R]], /
    ) -> Transactional[Transaction, P, Coroutine[Any, Any, R]]: ...

    @overload
    def transactional(
        self, function: Callable[Concatenate[S, Transaction, P], Awaitable[R]], /
    ) -> TransactionalMethod[S, Transaction, P, Coroutine[Any, Any, R]]: ...

    @overload
    def transactional(
        self,
        function: None = None,
        /,
        *,
        retry_budget_s: float = manager.DEFAULT_RETRY_BUDGET_S,
        idempotency_key: None = None,
    ) -> AsyncDecorator[Transaction]: ...

    @overload
    def transactional(
        self,
        function: None = None,
        /,
        *,
        retry_budget_s: float = manager.DEFAULT_RETRY_BUDGET_S,
        idempotency_key: bytes | Callable[..., bytes],
    ) -> AsyncKeyedDecorator[Transaction]: ...

    def transactional(
        self,
        function: Callable[..., Awaitable[Any]] | None = None,
        /,
        *,
        retry_budget_s: float = manager.DEFAULT_RETRY_BUDGET_S,
        idempotency_key: bytes | Callable[..., bytes] | None = None,
    ) -> Any:
        """Decorate an async function whose first argument is a transaction.

        What it joins and when it is run again is as in the blocking `transactional`, and so is what
        is refused: a task joins no transaction of the task that started it, but may be passed one.
        The function that makes an `idempotency_key` is a plain one.
        """
        key_of = keyed(idempotency_key)
        check_number("retry_budget_s", retry_budget_s)

        def decorate(
            function: Callable[..., Awaitable[Any]],
        ) -> Callable[..., Coroutine[Any, Any, Any]]:
            position = transaction_position(function, is_async=True)

            async def join(tx: Transaction, owner: Any, rest: Any, kwargs: Any) -> Any:
                if key_of is None:
                    return await function(*owner, tx, *rest, **kwargs)
                used = UsedKey(tx.blocking, key_of(*owner, *rest, **kwargs))
                await tx.lane.run(used.look)  # which goes on where the task is cancelled
                if used.before is not None:
                    return Committed(used.before.commit_ts)
                used.begin()
                try:
                    result = await function(*owner, tx, *rest, **kwargs)
                except BaseException:
                    used.give_up()
                    raise
                await tx.lane.finish(used.end)
                return result

            @functools.wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                owner, rest = args[:position], args[position:]
                if rest and isinstance(rest[0], Transaction):
                    if not rest[0].runner.is_this_thread:
                        remedy = "begin one in this event loop"
                        raise elsewhere(function, rest[0].start_ts, remedy)
                    return await join(rest[0], owner, rest[1:], kwargs)
                ambient = self._around.found()
                if ambient and ambient[-1][0].status is TransactionStatus.RUNNING:
                    tx, runner = ambient[-1]
                    if not runner.is_current:
                        remedy = f"to share it, pass it on; {IN_A_CONTEXT_OF_ITS_OWN}"
                        raise elsewhere(function, tx.start_ts, remedy)
                    return await join(tx, owner, rest, kwargs)
                result = None
                key = None if key_of is None else key_of(*owner, *rest, **kwargs)
                attempts = self._attempts(retry_budget_s, is_kept=True, key=key)
                try:
                    async for attempt in attempts:
                        result = None  # stays, if the function ends by Rollback
                        async with attempt as tx:
                            result = await function(*owner, tx, *rest, **kwargs)
                except AlreadyCommitted as found:
                    if found is not attempts.found:  # the function's own
                        raise
                    return Committed(found.commit_ts)
                return result

            return call

        return decorate if function is None else decorate(function)

    @property
    def metrics(self) -> ClientMetrics:
        """What this manager has seen since it was made; see the blocking `metrics`."""
        return self.blocking.metrics

    def push_ambient(self, tx: Transaction) -> None:
        """Let `transactional` functions called from here on join `tx`."""
        self._around.enter((tx, Runner()))

    def pop_ambient(self, tx: Transaction) -> None:
        """End what `push_ambient` began."""
        self._around.leave(lambda one: one[0] is tx)

    async def close(self) -> None:
        """Finish the post-commit work, then close the oracle and the store."""
        try:
            # Not in our own threads, which may all wait for a store that is slow.
            await surely(apart, self.blocking.close)
        finally:
            self.threads.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def connect(
    url: str | Connection | Pool | DirectConnection,
    tso: str | None = None,
    *,
    conflict_level: str = DEFAULT_CONFLICT_LEVEL,
    post_commit: str = "async",
    threads: int = DEFAULT_THREADS,
) -> Opening[TransactionManager]:
    """Open a store and its oracle; `await` the result, or use `async with`."""

    async def opened() -> TransactionManager:
        connected = functools.partial(
            connect_blocking, url, tso, conflict_level=conflict_level, post_commit=post_commit
        )
        blocking = await opened_by(apart, connected, manager.TransactionManager.close)
        return TransactionManager(blocking, threads=threads)

    return Opening(opened)


def _blocking(value: Any) -> Any:
    return value.blocking if isinstance(value, Transaction) else value
