"""The oracle inside the process that uses it: no server, no socket, one process.

The same machine and the same durability as `tso-server`, driven by the threads that ask.  Group
commit by leader: a thread that finds no flush under way runs the batch with its own request in it;
those that come meanwhile form the next batch and one of them runs it.  A thread of our own lets
time pass while nobody asks: it raises the ceiling ahead of the clock and ages the low watermark.

A flush that failed may have reached the store, so it stays the batch under way until a repetition
succeeds; whoever waited for it is told that no answer came, and later decisions wait behind it.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Collection
from dataclasses import replace
from typing import Final, assert_never, cast

from omidpy.clock import Clock, SystemClock
from omidpy.commit_table import create_system_tables
from omidpy.errors import (
    ConfigError,
    OmidError,
    OracleError,
    OracleUnavailable,
    StorageUnavailable,
    UsageError,
)
from omidpy.metrics import NO_METRICS, Metrics
from omidpy.model import CellId, TableId, Timestamp
from omidpy.oracle.base import (
    AbortReason,
    Begun,
    CommitGranted,
    CommitRefused,
    CommitVerdict,
    InvalidationVerdict,
)
from omidpy.oracle.discovery import read_lease
from omidpy.storage.address import server_command
from omidpy.storage.base import Store
from omidpy.wire.messages import (
    CommitRequest,
    CommitResponse,
    FenceRequest,
    FenceResponse,
    InvalidateRequest,
    InvalidateResponse,
    InvalidateVerdict,
    TimestampRequest,
    TimestampResponse,
)
from tso.events import (
    Answer,
    Asked,
    Batch,
    Close,
    Event,
    Flush,
    Flushed,
    Now,
    Question,
    Send,
    Stopped,
    Stopping,
    Ticked,
)
from tso.lease import Lease
from tso.machine import Machine
from tso.persist import StorePersistence
from tso.settings import Settings, TimestampMode

logger = logging.getLogger(__name__)

DEFAULT_CONFLICT_MAP_SIZE: Final = 1_000_000
_LONGEST_CLOSE_S: Final = 30.0
_LEASE_LOOK_S: Final = 0.5
"""How often a lease that its holder perhaps left behind is looked at."""
_BEGIN: Final = TimestampRequest()


class _Waiter:
    """A thread that waits for an answer, or to be made the leader of a batch."""

    __slots__ = ("_gate", "answer", "error", "led")

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.error: str | None = None
        self.led: Batch[_Waiter] | None = None
        self._gate: threading.Lock | None = None

    @property
    def is_done(self) -> bool:
        return self.answer is not None or self.error is not None

    def prepare(self) -> None:
        """Make the gate that `wait` stands at; called under the oracle's mutex."""
        self._gate = threading.Lock()
        self._gate.acquire()

    def wait(self) -> None:
        """Stand until woken.  `prepare` came first, so that no wake-up is missed."""
        assert self._gate is not None, "prepare() comes first"
        self._gate.acquire()

    def wake(self) -> None:
        if self._gate is not None:
            gate, self._gate = self._gate, None
            gate.release()


class EmbeddedOracle:
    """An `Oracle` in this process, for all its threads.

    It takes the store's oracle lock: a second one on the same store, in this process or another, is
    refused.  A store of many machines has a lease in place of the lock; after a crash it is free
    when it was not renewed for ten seconds, which is waited for.  In a child made by `fork` it
    refuses use.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        timestamps: TimestampMode = "world",
        conflict_map_size: int = DEFAULT_CONFLICT_MAP_SIZE,
        max_transaction_age_s: float | None = None,
        accept_clock: bool = False,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        """Become the oracle of `store`.

        Args:
            store: Where everything is kept; the caller closes it after the oracle.
            clock: What time it is.
            timestamps: World time, or counting from 50.
            conflict_map_size: Cells whose newest commit is remembered; memory grows up to it.
            max_transaction_age_s: Older transactions can no longer commit.  None: 15 minutes, or 24
                hours where Omid's tables were there before us.
            accept_clock: Start although the clock is more than 30 days above the last timestamp.
            metrics: Where counters go.

        Raises:
            ConfigError: the store has an oracle already, or the clock is absurd.
        """
        chosen_ms: int | None = None
        if max_transaction_age_s is not None:
            chosen_ms = round(max_transaction_age_s * 1000)
        if chosen_ms is not None and chosen_ms <= 0:
            raise UsageError(
                f"max_transaction_age_s={max_transaction_age_s} lets nothing commit; give seconds "
                "above 0"
            )
        self._store = store
        self._url = store.url
        self._clock: Clock = SystemClock() if clock is None else clock
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._lease_mutex = threading.Lock()
        """Held by a flush, and by the housekeeper while it renews the lease."""
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._is_closed = False
        self._housekeeping: Batch[_Waiter] | None = None
        """A batch that nobody waits for: the housekeeper's to flush."""
        self._stuck: Batch[_Waiter] | None = None
        """A batch whose flush failed: whoever comes next repeats it."""
        self._is_failing = False
        self._fatal: OmidError | None = None

        create_system_tables(store)
        self._lease = Lease(
            store,
            holder=uuid.uuid4().hex,
            clock=self._clock,
            purpose="the oracle inside a client's process",
        )
        if (holder := self._acquire()) is not None:
            raise ConfigError(
                f"{store.url} has an oracle already: {holder}. One process may use an embedded "
                f"oracle; to share the store, start {server_command(store.url)} and connect "
                'every process with tso="HOST:PORT"'
            )
        settings = Settings(
            timestamps=timestamps,
            conflict_map_size=conflict_map_size,
        )
        try:
            self._persistence = StorePersistence(store, self._lease)
            now = self._now()
            inherited = self._persistence.start(settings, now, accept_clock=accept_clock)
            age_ms = inherited.transaction_age_ms(chosen_ms)
            settings = replace(settings, max_transaction_age_ms=age_ms)
            self._max_transaction_age_s = age_ms / 1000
            self._machine: Machine[_Waiter] = Machine(settings, inherited, now, metrics=metrics)
            self._lease.publish(address="", epoch=inherited.epoch)
        except BaseException:
            self._lease.release()
            raise
        self._housekeeper = threading.Thread(
            target=self._keep_house, name="omidpy-oracle", daemon=True
        )
        self._housekeeper.start()

    def _acquire(self) -> str | None:
        """Take the lease; return who holds it otherwise.

        Where no lock speaks for its holder, one that died looks like one that lives until its
        record stayed the same for its whole period.  That is waited for, unless the record changes.
        """
        first = None if self._store.capabilities.process_locks else read_lease(self._store)
        while (holder := self._lease.try_acquire()) is not None:
            if first is None or read_lease(self._store) != first:
                return holder
            self._wake.wait(_LEASE_LOOK_S)
        return None

    # -- what it is ----------------------------------------------------------------------------

    @property
    def store_id(self) -> str | None:
        """Id of the store it serves."""
        return self._store.store_id

    @property
    def can_invalidate(self) -> bool:
        """Always."""
        return True

    @property
    def epoch(self) -> Timestamp:
        """No transaction that began at or below it can commit."""
        return Timestamp(self._machine.epoch)

    @property
    def max_transaction_age_s(self) -> float | None:
        """Age at which a transaction can no longer commit."""
        return self._max_transaction_age_s

    # -- the questions -------------------------------------------------------------------------

    def begin(self, *, hold_s: float | None = None) -> Begun:
        """Return a fresh start timestamp; see `Oracle.begin`."""
        request = _BEGIN
        if hold_s is not None:
            if hold_s <= 0:
                raise UsageError(f"hold_s={hold_s} holds nothing; give seconds above 0, or None")
            request = TimestampRequest(max(round(hold_s * 1000), 1))
        answer = cast("TimestampResponse", self._ask(request))
        return Begun(answer.start_ts, self.epoch, answer.low_watermark or Timestamp(0))

    def commit(
        self,
        start_ts: Timestamp,
        cell_ids: Collection[CellId],
        table_ids: Collection[TableId],
        *,
        is_retry: bool = False,
    ) -> CommitVerdict:
        """Decide a transaction; see `Oracle.commit`.

        Raises:
            OracleUnavailable: not `retryable`: the outcome is open.
        """
        request = CommitRequest(start_ts, tuple(cell_ids), tuple(table_ids), is_retry)
        answer = cast("CommitResponse", self._ask(request))
        if answer.commit_ts is not None:
            return CommitGranted(answer.commit_ts)
        return CommitRefused(AbortReason(answer.reason), answer.conflicts)

    def fence(self, table_id: TableId) -> Timestamp:
        """Set a fence on a table; see `Oracle.fence`."""
        return cast("FenceResponse", self._ask(FenceRequest(table_id))).fence_ts

    def invalidate(self, start_ts: Timestamp) -> CommitGranted | InvalidationVerdict:
        """Forbid a commit, or say that it has happened; see `Oracle.invalidate`."""
        answer = cast("InvalidateResponse", self._ask(InvalidateRequest(start_ts)))
        if answer.commit_ts is not None:
            return CommitGranted(answer.commit_ts)
        if answer.verdict is InvalidateVerdict.INVALIDATED:
            return InvalidationVerdict.INVALIDATED
        return InvalidationVerdict.UNKNOWN

    def __repr__(self) -> str:
        return "<EmbeddedOracle in this process>"

    def close(self) -> None:
        """Answer what is under way, give back the ceiling and the lease; once."""
        if os.getpid() != self._pid:
            return
        with self._mutex:
            if self._is_closed:
                return
            self._is_closed = True
            batch: Batch[_Waiter] | None = None
            if self._fatal is None:
                batch = self._tell(Stopping(self._now()))
                if batch is None:
                    batch, self._stuck = self._stuck, None
        try:
            if batch is not None:
                self._lead(batch)
            if not self._stopped.wait(0 if self._is_failing else _LONGEST_CLOSE_S):
                logger.warning("the oracle of %s ends without a last flush", self._url)
        finally:
            self._stopped.set()
            self._wake.set()
            self._housekeeper.join()
            self._lease.release()

    # -- asking --------------------------------------------------------------------------------

    def _ask(self, question: Question) -> Answer:
        if os.getpid() != self._pid:
            raise ConfigError(
                f"the oracle of {self._url} lives in process {self._pid}, of which this one "
                f"is a fork; start {server_command(self._url)} and connect in each "
                'process with tso="HOST:PORT"'
            )
        waiter = _Waiter()
        with self._mutex:
            self._check_alive()
            batch = self._tell(Asked(self._now(), ((waiter, question),)))
            if batch is None:
                batch, self._stuck = self._stuck, None
            if batch is None and not waiter.is_done:
                waiter.prepare()
        while batch is not None or not waiter.is_done:
            if batch is not None:
                self._lead(batch)
            else:
                self._wait(waiter)
            with self._mutex:
                batch, waiter.led = waiter.led, None
                if batch is None and not waiter.is_done:
                    waiter.prepare()
        if waiter.error is not None:
            # Only a commit that was asked for and not answered leaves something open.
            raise OracleUnavailable(waiter.error, retryable=not isinstance(question, CommitRequest))
        assert waiter.answer is not None, "a waiter ends with an answer or with an error"
        return waiter.answer

    def _wait(self, waiter: _Waiter) -> None:
        try:
            waiter.wait()
        except BaseException:
            # An interrupt.  Nobody must make this thread the leader any more.
            with self._mutex:
                waiter.error = "interrupted"
                batch, waiter.led = waiter.led, None
                if batch is not None:
                    self._housekeeping = batch
                    self._wake.set()
            raise

    def _check_alive(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self._is_closed:
            raise OracleUnavailable(f"the oracle of {self._url} is closed", retryable=False)

    def _tell(self, event: Event[_Waiter]) -> Batch[_Waiter] | None:
        """Carry out, under the mutex, what follows; return the batch that the caller must flush."""
        self._machine.vouched_until_s = self._lease.vouched_until_s
        try:
            effects = self._machine.handle(event)
        except AssertionError as error:
            self._end(OracleError(f"the oracle broke an invariant, and stops: {error}"))
            raise
        batch: Batch[_Waiter] | None = None
        for effect in effects:
            match effect:
                case Send():
                    for waiter, answer in effect.answers:
                        if not waiter.is_done:
                            waiter.answer = answer
                            waiter.wake()
                case Close():
                    if not effect.ticket.is_done:
                        effect.ticket.error = effect.reason
                        effect.ticket.wake()
                case Flush():
                    if effect.batch.answers or self._is_closed:
                        batch = effect.batch
                    else:
                        # Nobody waits for it, so nobody who asks should pay for it.
                        self._housekeeping = effect.batch
                        self._wake.set()
                case Stopped():
                    self._stopped.set()
                case _:
                    assert_never(effect)
        return batch

    # -- flushing ------------------------------------------------------------------------------

    def _lead(self, batch: Batch[_Waiter]) -> None:
        """Flush a batch, answer those in it, and make one of those behind it the next leader."""
        following: Batch[_Waiter] | None = batch
        while following is not None:
            try:
                with self._lease_mutex:
                    result = self._persistence.flush(following)
            except StorageUnavailable as error:
                self._give_up(following, str(error))
                return
            except OmidError as error:
                with self._mutex:
                    self._end(error)
                return
            except BaseException as error:
                # An interrupt in the middle of a flush: the batch may or may not be durable.
                self._give_up(following, repr(error))
                raise
            with self._mutex:
                self._is_failing = False
                following = self._tell(Flushed(self._now(), result))
                if following is not None and self._hand_over(following):
                    return

    def _hand_over(self, batch: Batch[_Waiter]) -> bool:
        """Make a thread that waits for the batch its leader; False if nobody waits any more."""
        for waiter, _ in batch.answers:
            if not waiter.is_done:
                waiter.led = batch
                waiter.wake()
                return True
        return False

    def _give_up(self, batch: Batch[_Waiter], reason: str) -> None:
        """Tell everybody who waits that no answer came, and keep the batch to be repeated."""
        with self._mutex:
            if not self._is_failing:
                logger.warning("%s: the oracle could not write a batch: %s", self._url, reason)
            self._is_failing = True
            self._stuck = batch
            self._fail_all(f"the oracle could not write to {self._url}: {reason}")

    def _end(self, error: OmidError) -> None:
        """Answer nothing any more, under the mutex: the lease or all trust is gone."""
        logger.error("%s: the embedded oracle ends: %s", self._url, error)
        self._fatal = error
        self._fail_all(str(error))
        self._stopped.set()
        self._wake.set()

    def _fail_all(self, reason: str) -> None:
        for waiter in self._machine.waiting():
            if not waiter.is_done:
                waiter.error = reason
                waiter.wake()

    # -- time ----------------------------------------------------------------------------------

    def _now(self) -> Now:
        return Now(self._clock.wall_ms(), self._clock.monotonic_s(), self._clock.boot)

    def _keep_house(self) -> None:
        """Let time pass, and write what nobody waits for."""
        is_told = False
        while not self._stopped.is_set():
            with self._mutex:
                period_s = self._machine.tick_period_s(self._now())
                lead_ms = self._machine.time.rejected_lead_ms
            if lead_ms and not is_told:
                is_told = True
                logger.error(
                    "%s: the clock leapt %d ms ahead; it is not believed until a restart, and "
                    "timestamps count elapsed time",
                    self._url,
                    lead_ms,
                )
            self._wake.wait(period_s)
            self._wake.clear()
            if self._lease.needs_renewal:
                self._renew()
            with self._mutex:
                batch = self._next_chore()
            if batch is not None:
                self._lead(batch)

    def _renew(self) -> None:
        """Keep the lease of an oracle that nobody asks; a flush does so itself."""
        if not self._lease_mutex.acquire(blocking=False):
            return
        try:
            self._lease.renew_if_due()
        except StorageUnavailable as error:
            logger.warning("%s: the oracle's lease could not be renewed: %s", self._url, error)
        except OmidError as error:
            with self._mutex:
                self._end(error)
        finally:
            self._lease_mutex.release()

    def _next_chore(self) -> Batch[_Waiter] | None:
        """Return a batch for the housekeeper to flush, after a tick if there was none."""
        if self._housekeeping is None and self._stuck is None and not self._is_closed:
            batch = self._tell(Ticked(self._now()))
            if batch is not None:
                return batch
        if self._housekeeping is not None:
            batch, self._housekeeping = self._housekeeping, None
        else:
            batch, self._stuck = self._stuck, None
        return batch
