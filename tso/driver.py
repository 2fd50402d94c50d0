"""Drive the machine in a thread of its own, for callers in the other threads of the process.

What the machine decides, what is made durable and what is answered belong together: an exception in
between would leave a decision that is never written, or an answer about what was never written.  A
caller's thread is no place for that, since Ctrl-C or a signal handler may raise there at any line.
So callers hand a request in and wait, and everything else happens in one thread, into which no
foreign exception comes (I11).  A caller that is interrupted leaves its request either wholly in or
wholly out of the queue, and its answer goes nowhere.

Group commit: what arrives while a batch is flushed forms the next one, and those whom the last one
has answered are waited for a moment (`commit_delay.py`).  A batch that no caller waits for is
flushed in a second thread, so that no caller that asks pays for it.

Who commits will begin again, so that each commit brings a start timestamp with it that lies behind
it, to spare: it is the answer to a begin that came with the commit.  It may be had, for a moment,
until any later decision is about to be written: from then on a caller may know of a commit that it
would not see, be it from the store.

A flush that failed may have reached the store, so it stays the batch under way until a repetition
succeeds; its callers are told that no answer came, and later decisions wait behind it.

What the machine, or anything here, did not foresee ends the oracle: the callers that wait are told,
and so are those that ask later.  It never answers on.

Lacks sockets, fork, and the start and the name of what it serves: `embedded.py` has them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import takewhile
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias, TypeGuard, assert_never, cast

from omidpy.base.timing.clock import Clock
from omidpy.errors import (
    OmidError,
    OracleError,
    OracleUnavailable,
    StorageError,
    StorageUnavailable,
)
from omidpy.wire.messages import CommitRequest, TimestampRequest, TimestampResponse
from tso.commit_delay import LONGEST_S, STEP_S, CommitDelay
from tso.core.events import (
    Answer,
    Asked,
    Batch,
    Close,
    Event,
    Flush,
    Flushed,
    FlushResult,
    Frames,
    Now,
    Question,
    Send,
    Stopped,
    Stopping,
    Ticked,
    now_by,
)
from tso.core.machine import Machine
from tso.durable.lease import AnyLease
from tso.durable.persist import Persistence

logger = logging.getLogger(__name__)

_BEGIN: Final = TimestampRequest()

_LOOK_S: Final = 1.0
"""How often one who waits for an answer looks whether there is anybody left to give it."""


SPARE_S: Final = 0.1
"""How long a start timestamp is kept to spare."""

MAX_SPARES: Final = 16


class Waiter:
    """A caller's thread that waits, with what it asked and what it is told."""

    __slots__ = ("answer", "error", "gate", "is_heard", "question", "thread_id")

    def __init__(self, question: Question | None) -> None:
        """Ask `question`; None is the wish that the oracle end."""
        self.question = question
        self.thread_id: Final = threading.get_ident()
        self.answer: Answer | None = None
        self.error: str | None = None
        self.is_heard = False
        """Whether the oracle has taken the question, and may have decided it."""
        self.gate = threading.Lock()
        """Released when there is an answer, or an error."""
        self.gate.acquire()


_Outcome: TypeAlias = FlushResult | BaseException | None
"""What became of a chore: None of a lease that was renewed."""

_Chore: TypeAlias = "tuple[Batch[Waiter] | None, _Outcome]"


def _commits(item: Waiter | _Chore) -> TypeGuard[Waiter]:
    return isinstance(item, Waiter) and isinstance(item.question, CommitRequest)


def _begins(item: Waiter | _Chore) -> TypeGuard[Waiter]:
    return isinstance(item, Waiter) and isinstance(item.question, TimestampRequest)


class Driver:
    """A machine, its store and its lease, and the thread that has all three to itself."""

    def __init__(
        self,
        machine: Machine[Waiter],
        persistence: Persistence,
        lease: AnyLease,
        clock: Clock,
        *,
        url: str,
    ) -> None:
        """Prepare to serve; `start` begins.

        Args:
            machine: The oracle itself.
            persistence: Where its batches go.
            lease: Renewed while nothing is flushed, and given up at the end.
            clock: What time it is.
            url: Of the store, for messages.
        """
        self.machine = machine
        self._persistence = persistence
        self._lease = lease
        self._clock = clock
        self._url = url
        self._inbox: SimpleQueue[Waiter | _Chore] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="omidpy-oracle", daemon=True)
        self._chores: SimpleQueue[Callable[[], _Chore] | None] = SimpleQueue()
        self._chore_thread: threading.Thread | None = None
        self._is_renewing = False
        self._lease_mutex = threading.Lock()
        """Held by a flush, and by a renewal of the lease."""
        self._waiting: set[Waiter] = set()
        """Callers without an answer."""
        self._nobody = Waiter(_BEGIN)
        """The caller that stands for none: what it begins is kept to spare."""
        self._spares: SimpleQueue[tuple[int, float, TimestampResponse]] = SimpleQueue()
        """Start timestamps, each with how much had been answered and since when it is there."""
        self._answered = 0
        """Counts up before a decision is written, and before it is answered."""
        self._stuck: Batch[Waiter] | None = None
        """A batch whose flush failed, to be repeated."""
        self._delay = CommitDelay()
        self._is_failing = False
        self._is_stopping = False
        self._is_stopped = False
        self._told_about_clock = False
        self._end: OracleError | None = None
        """Why nothing is answered any more."""

    # -- in the threads of callers -----------------------------------------------------------------

    def start(self) -> None:
        """Serve from now on.

        Raises:
            OracleError: the system lets no more threads start.
        """
        try:
            self._thread.start()
        except RuntimeError as error:
            raise OracleError(
                f"the oracle of {self._url} cannot begin: {error}; allow this user more processes "
                "(ulimit -u), or this container (pids.max)",
                retryable=True,
            ) from error

    def ask(self, question: Question) -> Answer:
        """Return the answer.

        Raises:
            OracleUnavailable: there is none; the question may have been understood all the same.
            OracleError: the oracle has ended, and the question was not heard.
        """
        waiter = Waiter(question)
        self._inbox.put(waiter)
        # The thread says that it ends and looks into the queue then, so that one of us sees the
        # other.  The end says nothing of a question that was heard before it: a commit may have
        # been decided, and be durable (I8), so its answer is waited for like any other.
        if self._end is not None and not waiter.is_heard:
            raise self._refusal(self._end)
        while not waiter.gate.acquire(timeout=_LOOK_S):
            if not self._thread.is_alive() and not waiter.gate.acquire(blocking=False):
                raise OracleUnavailable(f"the oracle of {self._url} has died", retryable=False)
        if waiter.answer is None:
            if self._end is not None and not waiter.is_heard:
                raise self._refusal(self._end)
            # Only a commit that was asked for and not answered leaves something open.
            is_harmless = not isinstance(question, CommitRequest)
            raise OracleUnavailable(waiter.error or "no answer", retryable=is_harmless)
        return waiter.answer

    def spare(self) -> TimestampResponse | None:
        """Return the answer to a begin that was asked ahead, if it is as good as a fresh one.

        None: there is none.
        """
        while not self._spares.empty():
            try:
                answered, since_s, answer = self._spares.get_nowait()
            except Empty:  # another thread was faster
                return None
            now_s = self._clock.monotonic_s()  # which goes on while the machine is suspended
            is_good = now_s - since_s < SPARE_S and now_s < self._lease.vouched_until_s
            # Last, so that whatever is answered later is answered behind this begin.
            if is_good and self._end is None and answered == self._answered:
                return answer
        return None

    def stop(self, timeout_s: float) -> bool:
        """Answer what is under way, give back the ceiling and the lease.

        Returns:
            Whether that is done; if not it goes on.
        """
        waiter = Waiter(None)
        self._inbox.put(waiter)
        if self._end is not None or not self._thread.is_alive():
            return True
        return waiter.gate.acquire(timeout=timeout_s)

    @staticmethod
    def _refusal(end: OracleError) -> OracleError:
        error = type(end)(str(end), retryable=False)
        error.was_sent = False
        return error

    # -- in the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        end: OracleError = OracleUnavailable(f"the oracle of {self._url} is closed")
        try:
            self._serve()
        except OracleError as error:
            end = error
        except OmidError as error:
            end = OracleError(f"the oracle of {self._url} has ended: {error}; connect again")
        except BaseException as error:
            logger.exception("%s: the oracle in this process broke an invariant", self._url)
            end = OracleError(
                f"the oracle of {self._url} broke an invariant and answers nothing any more: "
                f"{error!r}; connect again"
            )
        finally:
            if not self._is_stopped:
                logger.error("%s: the oracle in this process ends: %s", self._url, end)
            self._chores.put(None)
            self._release_lease()
            # Said before the queue is emptied: a caller that puts its question in behind that
            # looks for the end behind putting it in, see `ask`.
            self._end = end
            self._fail_all(str(end))

    def _release_lease(self) -> None:
        try:
            self._lease.release()
        except Exception:
            logger.exception("%s: the oracle's lease was not given up", self._url)

    def _fail_all(self, reason: str) -> None:
        """Let all callers go that wait, also those that have not been heard yet."""
        while True:
            try:
                item = self._inbox.get_nowait()
            except Empty:
                break
            if isinstance(item, Waiter):
                self._waiting.add(item)
        for waiter in list(self._waiting):
            self._settle(waiter, None, reason)

    def _serve(self) -> None:
        """Take what comes, and let time pass, until the end."""
        tick_s = self._next_tick_s()
        while not self._is_stopped:
            if time.monotonic() >= tick_s:
                self._keep_house()
                tick_s = self._next_tick_s()
            self._take(self._arrivals(tick_s - time.monotonic()))

    def _next_tick_s(self) -> float:
        return time.monotonic() + self.machine.tick_period_s(self._now())

    def _arrivals(self, timeout_s: float) -> list[Waiter | _Chore]:
        """Return what has come, waiting for the first."""
        inbox = self._inbox
        try:
            arrived = [inbox.get(timeout=max(0.0, timeout_s))]
        except Empty:
            return []
        while not inbox.empty():  # of which this thread alone takes, until the end
            arrived.append(inbox.get_nowait())
        self._gather(arrived)
        return arrived

    def _gather(self, arrived: list[Waiter | _Chore]) -> None:
        """Wait a moment for the callers that will commit again, until something else comes.

        Those that begin are answered meanwhile.
        """
        callers = [item.thread_id for item in arrived if _commits(item)]
        if not callers:
            return
        awaited = self._delay.awaited(callers)
        if not awaited or not all(_commits(item) or _begins(item) for item in arrived):
            return
        count = len(awaited)
        begins = [item for item in arrived if _begins(item)]
        arrived[:] = filter(_commits, arrived)
        self._take_ahead(begins, arrived)
        deadline_s = time.monotonic() + LONGEST_S
        with suppress(Empty):
            while awaited and time.monotonic() < deadline_s:
                item = self._inbox.get(timeout=STEP_S)
                if _begins(item):
                    self._take_ahead([item], arrived)
                    continue
                arrived.append(item)
                if not _commits(item):
                    return
                awaited.discard(item.thread_id)
        self._delay.waited(count, len(awaited))

    def _take_ahead(self, begins: Sequence[Waiter], arrived: Sequence[Waiter | _Chore]) -> None:
        """Let some begin ahead of those that have come and are not heard yet."""
        try:
            self._take(begins)
        except BaseException:
            # The oracle ends, and nobody else knows of those.
            self._waiting.update(item for item in arrived if isinstance(item, Waiter))
            raise

    def _take(self, arrived: Sequence[Waiter | _Chore]) -> None:
        waiters = [item for item in arrived if isinstance(item, Waiter)]
        try:
            for item in arrived:
                if not isinstance(item, Waiter):
                    self._end_chore(*item)
        except BaseException:
            # The oracle ends, and nobody else knows of those who came along.
            self._waiting.update(waiters)
            raise
        asked: list[tuple[Waiter, Question]] = []
        for waiter in waiters:
            self._waiting.add(waiter)
            if waiter.question is None:
                self._is_stopping = True
            else:
                waiter.is_heard = True
                asked.append((waiter, waiter.question))
        if asked:
            commit_count = sum(isinstance(question, CommitRequest) for _, question in asked)
            room = MAX_SPARES - self._spares.qsize()  # old ones go when the pool is looked at
            asked += [(self._nobody, _BEGIN)] * min(commit_count, room)
            self._lead(self._tell(Asked(self._now(), asked)) or self._unstuck())
        if self._is_stopping and not self._is_stopped:
            self._lead(self._tell(Stopping(self._now())) or self._unstuck())
            if self._is_failing:
                logger.warning("the oracle of %s ends without a last flush", self._url)
                self._is_stopped = True

    def _tell(self, event: Event[Waiter]) -> Batch[Waiter] | None:
        """Carry out what follows; return the batch to flush."""
        self.machine.vouched_until_s = self._lease.vouched_until_s
        batch: Batch[Waiter] | None = None
        for effect in self.machine.handle(event):
            match effect:
                case Send():
                    self._send(effect.answers)
                case Close():
                    self._settle(effect.ticket, None, effect.reason)
                case Flush():
                    if effect.batch.has_decisions():
                        # From here on they may be found in the store, as by a client who got no
                        # answer: who begins behind that must see them (I8).
                        self._answered += 1
                    if effect.batch.answers or self._is_stopping:
                        batch = effect.batch
                    else:
                        self._give(self._flushed(effect.batch))
                case Stopped():
                    self._is_stopped = True
                case _:
                    assert_never(effect)
        return batch

    def _send(self, answers: Sequence[tuple[Waiter, Answer | Frames]]) -> None:
        """Let the callers go whose answers have come, and keep what was begun to spare."""
        # Only what comes behind the last decision: an earlier snapshot would miss that.
        begun = list(takewhile(lambda one: isinstance(one[1], TimestampResponse), answers[::-1]))
        if len(begun) < len(answers):
            # Before a caller can learn of a decision, and begin: it must not be given a start
            # timestamp from before that.
            self._answered += 1
        now_s = self._clock.monotonic_s()
        for waiter, answer in begun:
            if waiter is self._nobody:
                self._spares.put((self._answered, now_s, cast("TimestampResponse", answer)))
        for waiter, answer in answers:
            assert not isinstance(answer, Frames), "nothing was asked in bytes"
            self._settle(waiter, answer, None)

    def _settle(self, waiter: Waiter, answer: Answer | None, error: str | None) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)
            waiter.answer, waiter.error = answer, error
            if isinstance(waiter.question, CommitRequest):
                self._delay.answered(waiter.thread_id)
            waiter.gate.release()

    # -- flushing ----------------------------------------------------------------------------------

    def _lead(self, batch: Batch[Waiter] | None) -> None:
        """Flush a batch, and whatever follows from it."""
        while batch is not None:
            batch = self._land(*self._flush(batch))

    def _flush(self, batch: Batch[Waiter]) -> tuple[Batch[Waiter], _Outcome]:
        try:
            with self._lease_mutex:  # a renewal in between would change what the guard compares
                return batch, self._persistence.flush(batch)
        except BaseException as error:  # noqa: BLE001 - sorted where it lands
            return batch, error

    def _land(self, batch: Batch[Waiter], outcome: _Outcome) -> Batch[Waiter] | None:
        if isinstance(outcome, StorageUnavailable):
            self._give_up(batch, outcome)
            return None
        if isinstance(outcome, BaseException):
            if isinstance(outcome, StorageError) and outcome.wrote_nothing and not self._is_failing:
                # This was the first attempt, and there is no other: a caller that has a commit in
                # the batch hears what it would have heard without asking.
                for waiter, _ in batch.answers:
                    waiter.is_heard = False
            raise outcome
        assert outcome is not None, "a flush has a result"
        self._is_failing = False
        return self._tell(Flushed(self._now(), outcome))

    def _give_up(self, batch: Batch[Waiter], error: StorageUnavailable) -> None:
        """Tell all callers that wait that no answer came, and keep the batch to be repeated."""
        if not self._is_failing:
            logger.warning("%s: the oracle could not write a batch: %s", self._url, error)
        self._is_failing = True
        # It may be in the store, whole or in part: until a repetition succeeds no later decision
        # becomes durable, and so none is answered ahead of it (I2).
        self._stuck = batch
        for waiter in list(self._waiting):
            if waiter.question is not None:
                reason = f"the oracle could not write to {self._url}: {error}"
                self._settle(waiter, None, reason)

    def _unstuck(self) -> Batch[Waiter] | None:
        batch, self._stuck = self._stuck, None
        return batch

    # -- chores ------------------------------------------------------------------------------------

    def _now(self) -> Now:
        return now_by(self._clock)

    def _keep_house(self) -> None:
        """Let time pass, keep the lease, and try again what failed."""
        lead_ms = self.machine.time.rejected_lead_ms
        if lead_ms and not self._told_about_clock:
            self._told_about_clock = True
            logger.error(
                "%s: the clock leapt %d ms ahead; until it is right again it is not believed, and "
                "timestamps count elapsed time; if it is right, open the store anew",
                self._url,
                lead_ms,
            )
        if self._lease.needs_renewal and not self._is_renewing:
            self._is_renewing = True
            self._give(self._renewed)
        if self._stuck is None:
            self._lead(self._tell(Ticked(self._now())))
        else:
            self._lead(self._unstuck())

    def _give(self, chore: Callable[[], _Chore]) -> None:
        """Have something done in the other thread; its outcome arrives like a question."""
        if self._chore_thread is None:
            thread = threading.Thread(
                target=self._do_chores, name="omidpy-oracle-chores", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                # For a moment, perhaps: callers wait for it meanwhile, and the next one looks anew.
                logger.warning("%s: the oracle starts no second thread: %s", self._url, error)
                self._inbox.put(chore())
                return
            self._chore_thread = thread
        self._chores.put(chore)

    def _do_chores(self) -> None:
        while (chore := self._chores.get()) is not None:
            self._inbox.put(chore())

    def _flushed(self, batch: Batch[Waiter]) -> Callable[[], _Chore]:
        return lambda: self._flush(batch)

    def _renewed(self) -> _Chore:
        try:
            with self._lease_mutex:
                self._lease.renew_if_due()
        except BaseException as error:  # noqa: BLE001 - sorted where it arrives
            return None, error
        return None, None

    def _end_chore(self, batch: Batch[Waiter] | None, outcome: _Outcome) -> None:
        if batch is not None:
            self._lead(self._land(batch, outcome))
            return
        self._is_renewing = False
        if isinstance(outcome, StorageUnavailable):
            logger.warning("%s: the oracle's lease could not be renewed: %s", self._url, outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
