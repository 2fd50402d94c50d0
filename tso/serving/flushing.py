"""Make batches durable, one after another, beside the event loop.

A store blocks the thread that calls it, so one thread does nothing else.  A batch that the store
did not take may have been written all the same: nothing can be done with it but to write it again,
and until that is done nothing else is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Final, Generic, Protocol

from omidpy.base.telemetry.metrics import Metrics
from omidpy.errors import StorageUnavailable
from tso.core.events import Batch, FlushResult, Now, Ticket
from tso.durable.persist import Persistence
from tso.serving.log import log_event

logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
"""Between repetitions of a batch that the store did not take."""


class AnyFlushThread(Protocol):
    """Does one thing after another beside the loop."""

    def hand_over(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Do `work`, and let the loop pass its result, or its exception, to `then`."""
        ...

    def close(self) -> None:
        """End once everything that was handed over is done."""
        ...


class FlushThread:
    """One thread of an executor.

    Every commit waits for the way there and back.  So what it does has no future of the loop, which
    would cost another turn of it, and is no task of the executor's either, but of one that lasts.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: ThreadPoolExecutor) -> None:
        """Take the executor's one thread with the first work, and give it back with `close`."""
        self._loop = loop
        self._executor = executor
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._has_thread = False

    def hand_over(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Do `work`, and let the loop pass its result, or its exception, to `then`."""

        def run() -> None:
            try:
                outcome = work()
            except BaseException as error:  # noqa: BLE001  `then` ends the server with it
                outcome = error
            with contextlib.suppress(RuntimeError):  # the loop has ended, and no answer waits
                self._loop.call_soon_threadsafe(then, outcome)

        if not self._has_thread:
            self._has_thread = True
            self._executor.submit(self._work)
        self._jobs.put(run)

    def close(self) -> None:
        """End once everything that was handed over is done."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class Queueing:
    """How long the first of the answers that wait stands until a flush takes them along."""

    def __init__(self, metrics: Metrics) -> None:
        """Begin with nothing that waits."""
        self._metrics = metrics
        self._taken_count = 0
        """Answers of the flush under way."""
        self._since_s: float | None = None

    def take(self, answer_count: int, now_s: float) -> None:
        """Begin a flush with all that waits."""
        since_s = now_s if self._since_s is None else self._since_s
        self._metrics.observe("tso.queue.seconds", now_s - since_s)
        self._taken_count = answer_count
        self._since_s = None

    def end(self) -> None:
        """Forget the flush that was under way: its answers left."""
        self._taken_count = 0

    def look(self, waiting_count: int, now_s: float) -> None:
        """Note how many answers wait, those under way among them."""
        if waiting_count <= self._taken_count:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s


class Flusher(Generic[Ticket]):
    """Writes the batches of one machine, of which one at most is under way."""

    def __init__(
        self,
        persistence: Persistence,
        worker: AnyFlushThread,
        *,
        loop: asyncio.AbstractEventLoop,
        metrics: Metrics,
        then: Callable[[FlushResult | BaseException, Now | None], None],
    ) -> None:
        """Prepare to write.

        Args:
            persistence: Where batches go.
            worker: Who writes them, unless that takes no time.
            loop: Waits between repetitions.
            metrics: Where counters go.
            then: Is told what the store said, and when that was if it took no time; or what ends
                the oracle.
        """
        self._persistence = persistence
        self._worker = worker
        self._loop = loop
        self._metrics = metrics
        self._then = then
        self._pause_s = FIRST_PAUSE_S
        self.is_instant = persistence.is_instant
        """Whether `then` is told within `flush`."""
        self.is_busy = False
        """Whether a batch is under way."""
        self.is_failing = False
        """Whether the store did not take the last batch."""

    def flush(self, batch: Batch[Ticket], now: Now | None = None) -> None:
        """Write a batch until the store takes it; `now` is what time it is."""
        self.is_busy = True
        self._metrics.observe("tso.batch.answers", batch.answer_count)
        if self.is_instant:
            self._flushed(batch, (self._persistence.flush(batch), 0.0), now)
            return
        self._worker.hand_over(
            lambda: _timed(lambda: self._persistence.flush(batch)),
            lambda outcome: self._flushed(batch, outcome),
        )

    def _flushed(
        self,
        batch: Batch[Ticket],
        outcome: tuple[FlushResult, float] | BaseException,
        now: Now | None = None,
    ) -> None:
        if isinstance(outcome, StorageUnavailable):
            self._repeat(batch, outcome)
            return
        self.is_busy = False
        if isinstance(outcome, BaseException):
            self._then(outcome, now)
            return
        result, seconds = outcome
        self._pause_s = FIRST_PAUSE_S
        try:
            self._tell_of(seconds)
        except Exception as error:  # noqa: BLE001 - the loop would log it, and answer none
            self._then(error, now)
        else:
            self._then(result, now)

    def _tell_of(self, seconds: float) -> None:
        if self.is_failing:
            self.is_failing = False
            log_event(logger, logging.INFO, "store-recovered")
        self._metrics.observe("tso.flush.seconds", seconds)

    def _repeat(self, batch: Batch[Ticket], error: StorageUnavailable) -> None:
        """Flush a batch again: it may have been written, so nothing else can be done with it."""
        if not self.is_failing:
            self.is_failing = True
            log_event(logger, logging.ERROR, "store-failed", error=error)
        self._metrics.count("tso.flush.failures")
        self._loop.call_later(self._pause_s, self.flush, batch)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)


def _timed(work: Callable[[], FlushResult]) -> tuple[FlushResult, float]:
    """Do the work and measure it."""
    start_s = time.perf_counter()
    return work(), time.perf_counter() - start_s
