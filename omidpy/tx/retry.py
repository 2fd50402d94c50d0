"""Running a transaction again: which errors, how often, how long in between.

Only errors that are `retryable` are retried, and always the whole transaction from `begin`; an
unknown outcome never is.  Pauses are drawn (`base/pauses.py`), so that transactions in conflict
spread out.

A block that was refused is run again by the loop around it.  One that was left by `return` or
`break` is not, so that the refusal is raised there: `base/callers/loops.py` tells which it is.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Final, NoReturn

from omidpy.base.callers.blocks import Block, exit_of_block
from omidpy.base.callers.loops import Exit, Loop, goes_on
from omidpy.base.timing.clock import Clock
from omidpy.base.timing.pauses import Pauses
from omidpy.base.words.arguments import check_number
from omidpy.errors import AlreadyCommitted, CommitOutcomeUnknown, OmidError, UsageError
from omidpy.model import Committed, TransactionStatus

if TYPE_CHECKING:
    from omidpy.tx.transaction import Transaction

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.005
LONGEST_PAUSE_S: Final = 1.0

_LEFT: Final = (
    "it was not tried again, because the loop over the attempts does not certainly go on after the "
    "`with` block: write `for attempt in tm.attempts():` and `with attempt as tx:` without "
    "`return`, `break` or `yield` in the block or behind it, and use after the loop what it "
    "computed; or use @tm.transactional"
)


class Backoff:
    """How long to wait before the next try, and whether there is to be one."""

    def __init__(
        self,
        clock: Clock,
        budget_s: float,
        *,
        rng: random.Random | None = None,
        on_retry: Callable[[], object] | None = None,
    ) -> None:
        if not check_number("a retry budget", budget_s) >= 0:  # nor what is no number
            raise UsageError(f"a retry budget must not be negative, but is {budget_s!r} seconds")
        self._clock = clock
        self._budget_s = budget_s
        self._begun_s = clock.monotonic_s()
        self._on_retry = on_retry
        draw = None if rng is None else rng.random
        self._pauses = Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S, draw=draw)
        self._doubt: CommitOutcomeUnknown | None = None
        """Of an earlier try, which may have committed: how a later one ends says nothing of it."""
        self.number = 1
        """The try under way."""

    def pause_s(self, error: OmidError) -> float:
        """Return the seconds to wait after a failed try, which is logged and counted.

        Raises:
            OmidError: `error` itself, if it is not retryable or the budget is spent; or what
                `end` raises.
        """
        elapsed_s = self.note(error)
        if not error.retryable:
            self.end(error)
        if isinstance(error, CommitOutcomeUnknown):
            self._doubt = error
        if elapsed_s >= self._budget_s:
            tries = "1 try" if self.number == 1 else f"{self.number} tries"
            error.give_up(
                f"given up after {tries} in {elapsed_s:.1f} s, since the budget of "
                f"{self._budget_s:g} s is spent"
            )
            self.end(error)
        pause_s = min(self._budget_s - elapsed_s, error.wait_s + self._pauses.next_s())
        log.info(
            "try %d failed after %.3f s in all, the next one is in %.3f s: %s",
            self.number,
            elapsed_s,
            pause_s,
            error.event,
        )
        self.number += 1
        if self._on_retry is not None:
            self._on_retry()
        return pause_s

    def end(self, error: OmidError) -> NoReturn:
        """Raise the error that ends the tries.

        Raises:
            CommitOutcomeUnknown: an earlier try may have committed, of which `error` says nothing.
            OmidError: `error` itself, where there is none.
        """
        self.check_certain(error)
        raise error

    def check_certain(self, ended_by: BaseException) -> None:
        """Raise if an earlier try may have committed, and a later one is the last.

        Raises:
            CommitOutcomeUnknown: of the earlier one (I9).
        """
        doubt = self._doubt
        # Who has used the key, and a doubt of its own, say enough: it is run again with the key.
        if doubt is None or isinstance(ended_by, (AlreadyCommitted, CommitOutcomeUnknown)):
            return
        self.note(doubt)
        told = ended_by.event if isinstance(ended_by, OmidError) else repr(ended_by)
        doubt.give_up(
            f"a later try of it has not committed ({told}), which says nothing of this one; run it "
            "again with the same idempotency key, which finds out"
        )
        raise doubt from ended_by

    def note(self, error: OmidError) -> float:
        """Write on an error how often it was tried and for how long; return the latter."""
        elapsed_s = self._clock.monotonic_s() - self._begun_s
        error.attempts, error.elapsed_s = self.number, elapsed_s
        return elapsed_s


class Attempt:
    """One try: `with attempt as tx:` commits, rolls back, or makes room for the next try.

    Attributes:
        number: Which try this is, from 1; one that could not begin counts.
        succeeded: Whether the block ran to its end and was committed.
        error: Why it is tried again; None if it is not.
    """

    def __init__(
        self,
        transaction: Transaction,
        backoff: Backoff,
        loop: Loop | None,
        *,
        holder: object = None,
    ) -> None:
        """Make room for one `with` block.

        Args:
            transaction: What it runs in.
            backoff: Of all tries.
            loop: The loop that goes on after a refusal; None if it certainly does.
            holder: What the loop's variable is; None is this one.
        """
        self._transaction = transaction
        self._backoff = backoff
        self._loop = loop
        self._holder = holder
        self.number = backoff.number
        self.succeeded = False
        self.error: OmidError | None = None
        self.block: Block | None = None

    def __enter__(self) -> Transaction:
        self._transaction.block = self.block
        return self._transaction.__enter__()

    @exit_of_block
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return self.end(Exit.of(sys._getframe(1)), exc)  # noqa: SLF001 - documented, if not for all

    def end(self, end: Exit, exc: BaseException | None) -> bool:
        """Do what `__exit__` does, which was called from `end`; say whether it swallows `exc`."""
        exc_type, traceback = (None, None) if exc is None else (type(exc), exc.__traceback__)
        try:
            is_rolled_back = self._transaction.__exit__(exc_type, exc, traceback)
        except OmidError as error:
            if self._is_tried_again(end, error):
                return True
            self._backoff.end(error)
        if is_rolled_back:
            assert exc is not None, "a block is rolled back by what it has raised"
            self._backoff.check_certain(exc)
            return True
        if isinstance(exc, OmidError):
            # The block may have ended the transaction itself: one that committed is not run again.
            if self._transaction.status is not TransactionStatus.ROLLED_BACK:
                self._backoff.note(exc)
            elif self._is_tried_again(end, exc):
                return True
        is_undone = self._transaction.status is TransactionStatus.ROLLED_BACK
        if is_undone and isinstance(exc, Exception):
            self._backoff.check_certain(exc)
        self.succeeded = exc_type is None
        return False

    def settle(self, found: AlreadyCommitted) -> bool:
        """End this try, whose outcome was unknown, if it turns out to be the one that committed.

        Returns:
            False: it was another transaction that has used the key.
        """
        transaction = self._transaction
        if found.commit_ts is None or found.start_ts != transaction.start_ts:
            return False
        transaction.learn(Committed(found.commit_ts))
        self.error, self.succeeded = None, True
        return True

    def _is_tried_again(self, end: Exit, error: OmidError) -> bool:
        """Say whether an error may be swallowed, because the next try follows or raises it."""
        if error.retryable and (
            self._loop is None
            or goes_on(self._loop, end, self if self._holder is None else self._holder)
        ):
            self.error = error
            return True
        self._backoff.note(error)
        if error.retryable:
            error.give_up(_LEFT)
        return False


class Attempts:
    """Tries until one commits, an error is not retryable, or the budget is spent."""

    def __init__(
        self,
        begin: Callable[[], Transaction],
        clock: Clock,
        budget_s: float,
        *,
        pause: Callable[[float], object] | None = None,
        rng: random.Random | None = None,
        on_retry: Callable[[], object] | None = None,
        is_kept: bool = False,
    ) -> None:
        """Prepare to try.

        Args:
            begin: Begins a transaction.
            clock: Measures the budget.
            budget_s: How long to go on.
            pause: Waits so many seconds.
            rng: Draws them.
            on_retry: Called before each further try.
            is_kept: The loop over them is known to go on until they end.
        """
        self._begin = begin
        self._backoff = Backoff(clock, budget_s, rng=rng, on_retry=on_retry)
        self._pause = pause or time.sleep
        self._is_kept = is_kept
        self.found: AlreadyCommitted | None = None
        """Who has used the key, where that ended the loop with an error."""

    def __iter__(self) -> Iterator[Attempt]:
        loop = Loop.around(sys._getframe(1))  # noqa: SLF001 - documented, if not for all
        return loop.over(self._tries(None if self._is_kept else loop))

    def _tries(self, loop: Loop | None) -> Iterator[Attempt]:
        attempt: Attempt | None = None
        while True:
            try:
                transaction = self._begin()
            except AlreadyCommitted as found:
                # What the last block computed is what was committed, if it was that one.
                if attempt is not None and attempt.settle(found):
                    return
                self._backoff.note(found)
                self.found = found
                raise
            except OmidError as error:
                self._pause(self._backoff.pause_s(error))
                continue
            attempt = Attempt(transaction, self._backoff, loop)
            yield attempt
            if attempt.error is None:
                return
            self._pause(self._backoff.pause_s(attempt.error))
