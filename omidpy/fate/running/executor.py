"""Runs the operations of a store in threads: who looks for work, who does it, who keeps it safe.

    runners   a few a pool: take an operation, run it until it ends or waits
    finder    reads the store for work: every `poll_s`, and at once when there is news
    heart     shows that this executor lives, however long the others take
    keeper    breaks the reservations of those that do not live, and sweeps what is finished

Several executors may share a store: a reservation is what decides.  One that was taken for dead
finds out by its next write or sign of life, lets go of everything, and begins anew under another
id.

`stop` lets the steps that run now end, gives their operations back, and fails none.

Of these threads none ends by an exception: what is wrong with one operation, or with one answer of
the store, is logged, and the others go on.

Lacks everything of operations themselves (`runner.py`) and of their order (`dispatch.py`).
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from omidpy.base.reach import reached
from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.base.timing.pauses import Seldom
from omidpy.base.within import within
from omidpy.base.words.durations import check_seconds, check_waits
from omidpy.errors import FateError, OmidError, StorageUnavailable, UsageError
from omidpy.fate.locks import Locks
from omidpy.fate.operation import RUNNABLE, FateId, Operation
from omidpy.fate.running.dispatch import Dispatcher, Pools
from omidpy.fate.running.runner import UNKNOWN_STEP_S, Caller, Ran, Runner
from omidpy.fate.running.sweep import Keep, Sweeper
from omidpy.fate.store import FateStore
from omidpy.life.base import Member
from omidpy.life.heart import BEATS_PER_LEASE, beat_until
from omidpy.storage import forking

log = logging.getLogger(__name__)

DEFAULT_LEASE_S: Final = 10.0
DEFAULT_POLL_S: Final = 1.0
DEFAULT_POOLS: Final[Mapping[str, int]] = {"general": 4}

LONGEST_LOOK_S: Final = 0.5
"""Reservations are looked at so often at least, so that a dead worker's lease is not much longer.
"""

GATHER_NEWS_S: Final = 0.02
"""News comes in flocks, and much of it is of what was submitted here and needs no look."""

_PAUSES_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)


class Executor:
    """Threads that run operations.  Started once and stopped once."""

    def __init__(
        self,
        store: FateStore,
        env: Any,
        *,
        pools: Mapping[str, int],
        lease_s: float,
        poll_s: float,
        keep: Keep,
        clock: Clock | None = None,
        caller: Caller | None = None,
        on_end: Callable[[Operation], None] = lambda _: None,
    ) -> None:
        """Start nothing yet; see `Fate`, which is what makes one."""
        check_seconds(lease_s=lease_s, poll_s=poll_s)
        self._store = store
        self._clock = clock or SystemClock()
        self._lease_s = lease_s
        self._poll_s = poll_s
        self._pools = Pools(pools)
        self._on_end = on_end
        self._look_s = min(lease_s / BEATS_PER_LEASE, LONGEST_LOOK_S)
        self._judge = store.new_judge(self._clock)
        self._runner = Runner(
            store,
            env,
            clock=self._clock,
            locks=Locks(store),
            caller=caller,
            patience=self._patience,
            is_stopping=lambda: self._stopping.is_set(),  # noqa: PLW0108 - a child has another
        )
        self._sweeper = Sweeper(store, self._judge, self._clock, keep)
        self._seldom = Seldom(log)
        self._stopping = threading.Event()
        forking.begin_anew(self, Executor._begin)

    def _begin(self) -> None:
        """Have nothing in hand, in this process.

        Of a parent the threads are its own, and so is the worker with all that it has reserved: of
        two processes with one worker each would take the other's operations for its own.
        """
        self._dispatcher = Dispatcher(self._pools, self._clock.boot)
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)
        was_stopped, self._stopping = self._stopping.is_set(), threading.Event()
        if was_stopped:
            self._stopping.set()
        self._is_over = threading.Event()
        self._has_news = False
        self._held: list[Operation] = []
        self._looked_s = -math.inf
        self._ended: frozenset[FateId] = frozenset()
        """What was finished at the last look."""
        self._beaten_s = 0.0
        self._worker: Member | None = None
        self._runners: list[threading.Thread] = []
        self._others: list[threading.Thread] = []

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Register as a worker, and start the threads.

        Raises:
            UsageError: it was started before.
            FateError: the system lets no more threads start; nothing runs.
        """
        if self._others or self._stopping.is_set():
            raise UsageError("these operations run, or ran, already; make another Fate")
        self._register()
        self._store.on_news(self.look)
        self._runners = [
            threading.Thread(
                target=self._run, args=(pool,), name=f"fate-{pool}-{number}", daemon=True
            )
            for pool, count in self._pools.threads.items()
            for number in range(count)
        ]
        self._others = [
            threading.Thread(target=self._find, name="fate-finder", daemon=True),
            threading.Thread(target=self._show_life, name="fate-heart", daemon=True),
            threading.Thread(target=self._look_after, name="fate-keeper", daemon=True),
        ]
        try:
            for thread in (*self._runners, *self._others):
                thread.start()
        except BaseException as error:
            # Those that run would go on for ever, and without the heart, which starts late.
            self.stop()
            if not isinstance(error, RuntimeError):
                raise
            raise FateError(
                f"no operations are run, since a thread cannot be started: {error}; allow this "
                "user more processes (ulimit -u), or this container (pids.max)",
                retryable=True,
            ) from error

    def stop(self, timeout_s: float | None = None) -> bool:
        """Let running steps end, and give everything back.

        Returns:
            False if a step still runs after `timeout_s` seconds: it keeps its reservation, and the
            executor goes on showing that it lives.
        """
        check_waits(timeout=timeout_s)
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._stopping.set()
        within(self._lock, self._condition.notify_all)
        for thread in filter(_has_begun, self._runners):
            thread.join(None if deadline_s is None else max(0.0, deadline_s - time.monotonic()))
            if thread.is_alive():
                return False
        self._is_over.set()
        for thread in filter(_has_begun, self._others):
            thread.join()
        # A store may outlive very many executors, and would keep each with all that it knows.
        self._store.off_news(self.look)
        worker, self._worker = self._worker, None
        if worker is not None:
            try:
                worker.retire()
            except StorageUnavailable as error:
                log.info("this executor is taken for dead when its lease ends: %s", error)
        return True

    def offer(self, operation: Operation) -> None:
        """Take an operation that was just submitted here, without looking for it."""
        if self._worker is not None and operation.status in RUNNABLE:
            within(self._lock, self._queue_one, operation)

    def has(self, operation_id: FateId) -> bool:
        """Say whether an operation is in hand here, so that its end will be told."""
        return self._dispatcher.is_busy(operation_id)

    def look(self) -> None:
        """Look for work now."""
        self._has_news = True
        within(self._lock, self._condition.notify_all)

    # -- in the caller's thread ----------------------------------------------------------------

    def run_pending(self) -> float | None:
        """Run what can be run, in this thread, until nothing can.

        Returns:
            In how many seconds something may be run again; None: nothing waits.

        Raises:
            UsageError: threads do this already.
        """
        if self._others:
            raise UsageError("threads run these operations already; wait for them instead")
        try:
            self._free_locks()
            while not self._stopping.is_set() and self._run_round():
                pass
        except BaseException:
            # ^C may come anywhere: what was handed out must not count as being run for ever.
            self._dispatcher = Dispatcher(self._pools, self._clock.boot)
            raise
        due_s = self._dispatcher.next_due_s()
        return None if due_s is None else max(0.0, due_s - self._clock.monotonic_s())

    def _free_locks(self) -> None:
        """Free the locks of the dead: no keeper does here, and who waits for one waits for ever."""
        try:
            self._sweeper.free_locks_if_due()
        except OmidError as error:
            self._log_trouble("cannot look after locks: %s", error)

    def _run_round(self) -> bool:
        """Run what the store has for us now; say whether that was anything."""
        self._beat_if_due()
        worker = self._worker or self._register()
        if not worker.is_trusted():
            # It would give back at once what it takes, for ever: as where its lock was removed.
            worker.retire()
            worker = self._register()
            if not worker.is_trusted():
                return False
        self._refresh(worker)
        self._break_dead()
        ran_any = False
        for pool in self._pools.threads:
            while (operation := self._dispatcher.take(pool)) is not None:
                ran_any = True
                self._run_one(operation, worker)
        return ran_any

    # -- threads -------------------------------------------------------------------------------

    def _run(self, pool: str) -> None:
        pid = os.getpid()
        # A step that forks, and returns in the child, leaves no executor there.
        while os.getpid() == pid and (taken := self._take(pool)) is not None:
            try:
                self._run_one(*taken)
            except BaseException:
                # Only what ends threads comes here, and no step may end one of ours.
                log.exception("a step of operation %s tried to end its thread", taken[0].id)

    def _take(self, pool: str) -> tuple[Operation, Member] | None:
        """Wait for an operation of a pool; None: the executor stops."""
        with self._condition:
            while not self._stopping.is_set():
                worker = self._worker
                if worker is not None and worker.is_trusted():
                    operation = self._dispatcher.take(pool)
                    if operation is not None:
                        return operation, worker
                self._condition.wait(self._poll_s)
        return None

    def _run_one(self, operation: Operation, worker: Member) -> None:
        ran = Ran(None, UNKNOWN_STEP_S)
        try:
            ran = self._runner.run(operation, worker)
        except OmidError as error:
            self._seldom.say(
                "operation %s is left for a while: %s", operation.id, error, about=operation.id
            )
            ran = Ran(None, self._poll_s)
        finally:
            within(self._lock, self._report, operation, ran)
        if ran.operation is not None and ran.operation.is_finished:
            self._on_end(ran.operation)

    def _find(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            with self._condition:
                has_news, self._has_news = self._has_news, False
                worker = self._worker
            try:
                if worker is not None:
                    self._refresh(worker, has_news=has_news)
                failures = 0
            except Exception as error:  # noqa: BLE001 - no other thread looks for work
                failures += 1
                self._log_trouble("cannot look for operations: %s", error)
            with self._condition:
                self._rest(_PAUSES_S[min(failures, len(_PAUSES_S)) - 1] if failures else 0)

    def _rest(self, at_least_s: float) -> None:
        """Wait for news, for the end of a deferral, or for `poll_s` seconds."""
        begun_s = self._clock.monotonic_s()
        while not self._stopping.is_set():
            now_s = self._clock.monotonic_s()
            due_s = self._dispatcher.next_due_s()
            until_s = begun_s + self._poll_s
            if due_s is not None:
                until_s = min(until_s, due_s)
            if self._has_news:
                # In elapsed time, whatever the clock says.
                self._condition.wait_for(self._stopping.is_set, GATHER_NEWS_S)
                until_s = now_s
            until_s = max(until_s, begun_s + at_least_s)
            if until_s <= now_s:
                return
            self._condition.wait(until_s - now_s)

    def _show_life(self) -> None:
        # It looks oftener than it beats, so that what failed is soon made up for.
        beat_until(
            self._is_over.wait,
            self._beat_if_due,
            every_s=self._look_s,
            who="this executor",
            log=log,
        )

    def _look_after(self) -> None:
        while not self._stopping.wait(self._look_s):
            try:
                self._break_dead()
                self._sweeper.sweep_if_due()
            except Exception as error:  # noqa: BLE001 - no other thread looks after what is left
                self._log_trouble("cannot look after operations: %s", error)

    # -- parts of what the threads do ----------------------------------------------------------

    def _register(self) -> Member:
        self._beaten_s = self._clock.monotonic_s()
        worker = self._store.new_worker(lease_s=self._lease_s, clock=self._clock)
        self._worker = worker
        within(self._lock, self._condition.notify_all)
        return worker

    def _beat_if_due(self) -> None:
        """Show that this executor lives; begin anew if it was taken for dead."""
        worker, now_s = self._worker, self._clock.monotonic_s()
        if worker is None or now_s - self._beaten_s < self._lease_s / BEATS_PER_LEASE:
            return
        is_alive = worker.beat()
        self._beaten_s = now_s
        if not is_alive:
            reached("fate.executor_taken_for_dead", "F4")
            log.warning(
                "this executor (worker %s) was taken for dead: it was stopped, or could not reach "
                "the store, for longer than its lease of %g s; its operations are others' now",
                worker.id,
                self._lease_s,
            )
            worker.retire()
            self._register()
        elif not worker.is_trusted():
            self._seldom.say(
                "this executor (worker %s) runs nothing: it lives, and cannot know for how long",
                worker.id,
            )

    def _refresh(self, worker: Member, *, has_news: bool = False) -> None:
        """Read operations, and queue what can be run.

        All of them, every `poll_s`; in between news is of what comes, and neither of what is in
        hand here nor of what is finished.
        """
        now_s = self._clock.monotonic_s()
        but: frozenset[FateId] = frozenset()
        if has_news and now_s - self._looked_s < self._poll_s:
            but = self._dispatcher.busy | self._ended
        else:
            self._looked_s = now_s
        found = self._store.live_in_order(but=but)
        ended = frozenset(one.id for one in found if one.is_finished)
        self._ended = ended | (but & self._ended)
        if not but:
            self._held = [
                one for one in found if one.reservation and one.reservation.worker != worker.id
            ]
        within(self._lock, self._queue_all, found, but, worker)

    # -- in the lock, which a thread that may be interrupted holds within one line -------------

    def _queue_one(self, operation: Operation) -> None:
        if self._dispatcher.offer(operation, now_s=self._clock.monotonic_s()):
            self._condition.notify_all()

    def _queue_all(
        self, found: Sequence[Operation], but: frozenset[FateId], worker: Member
    ) -> None:
        now_s = self._clock.monotonic_s()
        if self._dispatcher.refresh(found, but=but, worker=worker.id, now_s=now_s):
            self._condition.notify_all()

    def _report(self, operation: Operation, ran: Ran) -> None:
        self._dispatcher.report(operation.id, ran, now_s=self._clock.monotonic_s())
        self._condition.notify_all()

    # -- patience and care ---------------------------------------------------------------------

    def _patience(self, failures: int) -> bool:
        """Wait until the store may answer again; until then no other thread can go on either."""
        pause_s = _PAUSES_S[min(failures, len(_PAUSES_S)) - 1]
        return not self._stopping.wait(pause_s)

    def _break_dead(self) -> None:
        """Break the reservations of the dead, and queue their operations."""
        held, self._held = self._held, []
        for operation in self._store.break_dead(self._judge, held):
            log.info("operation %s is free: its worker is dead", operation.id)
            self.offer(operation)

    def _log_trouble(self, text: str, error: Exception) -> None:
        """Log what the store refuses in a line, and what is not expected with all that is known."""
        if isinstance(error, OmidError):
            self._seldom.say(text, error)
        else:
            self._seldom.say(text, error, level=logging.ERROR, exc_info=error)


def _has_begun(thread: threading.Thread) -> bool:
    return thread.ident is not None
