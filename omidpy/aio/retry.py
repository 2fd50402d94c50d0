"""The twins of the attempts, which run a transaction again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any

from omidpy.aio.transaction import Transaction
from omidpy.base.callers.loops import Exit, Loop
from omidpy.errors import AlreadyCommitted, OmidError
from omidpy.tx import retry


class Attempt:
    """Twin of `omidpy.tx.retry.Attempt`."""

    def __init__(self, tx: Transaction, backoff: retry.Backoff, loop: Loop | None) -> None:
        self._tx = tx
        self.blocking = retry.Attempt(tx.blocking, backoff, loop, holder=self)

    @property
    def number(self) -> int:
        """Which try this is, from 1; one that could not begin counts."""
        return self.blocking.number

    @property
    def error(self) -> OmidError | None:
        """Why it is tried again; None if it is not."""
        return self.blocking.error

    @property
    def succeeded(self) -> bool:
        """Whether the block ran to its end and was committed."""
        return self.blocking.succeeded

    async def __aenter__(self) -> Transaction:
        return await self._tx.__aenter__()

    def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> Coroutine[Any, Any, bool]:
        # Not `async`: only here is the caller where it leaves its block.
        return self._end(Exit.of(sys._getframe(1)), exc)  # noqa: SLF001 - documented, if not for all

    async def settle(self, found: AlreadyCommitted) -> bool:
        """End this try if it is the one that committed; see the blocking one."""
        return await self._tx.lane.finish(self.blocking.settle, found)

    async def _end(self, end: Exit, exc: BaseException | None) -> bool:
        self._tx.leave()
        return await self._tx.lane.finish(self.blocking.end, end, exc)


class Attempts:
    """Twin of `omidpy.tx.retry.Attempts`."""

    def __init__(
        self,
        begin: Callable[[], Awaitable[Transaction]],
        backoff: retry.Backoff,
        *,
        is_kept: bool,
    ) -> None:
        """Prepare to try; the arguments are as in the blocking one."""
        self._begin = begin
        self._backoff = backoff
        self._is_kept = is_kept
        self.found: AlreadyCommitted | None = None
        """As in the blocking one."""

    def __aiter__(self) -> AsyncIterator[Attempt]:
        loop = Loop.around(sys._getframe(1))  # noqa: SLF001 - documented, if not for all
        return loop.over(self._tries(None if self._is_kept else loop))

    async def _tries(self, loop: Loop | None) -> AsyncIterator[Attempt]:
        attempt: Attempt | None = None
        while True:
            try:
                tx = await self._begin()
            except AlreadyCommitted as found:
                if attempt is not None and await attempt.settle(found):
                    return
                self._backoff.note(found)
                self.found = found
                raise
            except OmidError as error:
                await asyncio.sleep(self._backoff.pause_s(error))
                continue
            attempt = Attempt(tx, self._backoff, loop)
            yield attempt
            if attempt.error is None:
                return
            await asyncio.sleep(self._backoff.pause_s(attempt.error))
