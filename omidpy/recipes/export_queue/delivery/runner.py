"""Who delivers when: threads over the buckets that this process has.

A thread takes some buckets that are due, looks once, and passes over each.  A bucket is in one
thread's hands at a time, and comes again at once while there is more, else after a pause that
doubles up to `max_poll_s`, or after the pause that a failure asks for.

Another thread shares buckets out with other processes (`crew.py`).  `run_once` does all of it in
the caller's thread.

A queue may get other buckets meanwhile (`upkeep/rebucketing.py`).  Its exporters find it out when
they look for buckets, at the latest when the old table is gone, and begin a new term with the new
ones.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, Protocol

from omidpy.base.timing.pauses import Seldom
from omidpy.base.within import within
from omidpy.base.words.durations import check_waits
from omidpy.base.words.printable import storable
from omidpy.errors import (
    ExportError,
    NoSuchQueue,
    NoSuchTable,
    OmidError,
    TransactionAborted,
)
from omidpy.life.heart import BEATS_PER_LEASE
from omidpy.recipes.export_queue.delivery.bucket import Delivery
from omidpy.recipes.export_queue.delivery.crew import LEASE_S, BucketLease, Crew
from omidpy.recipes.export_queue.delivery.exactly import MarkRefused
from omidpy.recipes.export_queue.delivery.failing import Memory, Paused
from omidpy.recipes.export_queue.delivery.tally import QueueTally
from omidpy.recipes.export_queue.delivery.terms import DeliveryOptions
from omidpy.recipes.export_queue.entries.bell import BELL, Queue
from omidpy.recipes.export_queue.entries.dead import MAX_REASON
from omidpy.recipes.export_queue.entries.possession import BucketLost
from omidpy.recipes.export_queue.entries.stored.state import table_name
from omidpy.recipes.export_queue.entries.view import View
from omidpy.recipes.export_queue.upkeep.making import check_going

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.recipes.export_queue.entries.stored.state import Definition, Places
    from omidpy.recipes.export_queue.exporter import Exporter

log = logging.getLogger(__name__)

FIRST_POLL_S: Final = 0.02
MAX_POLL_S: Final = 1.0
TROUBLE_S: Final = 1.0
"""How long a bucket rests when the store or the oracle cannot be reached."""


OBSTACLE_S: Final = 10.0
"""How long a bucket rests that only a person can help on, before it is looked at again."""

KEEP_EVERY_S: Final = 5.0

MOST_PAUSES: Final = 24
"""After how many failures in a row `run_once` gives up on a bucket."""


class Caretaker(Protocol):
    """Does what a queue needs beside its exporters.  One thread at a time."""

    def look(self, definition: Definition) -> None:
        """Do what is due; called now and then."""
        ...

    def finish(self, pause: Callable[[float], object]) -> None:
        """Run in this thread what others have left, and stands in the way of entries."""
        ...

    def close(self) -> None:
        """End what was begun."""
        ...


class Runner:
    """Exports one queue in this process."""

    def __init__(
        self,
        tm: TransactionManager,
        places: Places,
        definition: Definition,
        exporter: Exporter,
        options: DeliveryOptions,
        *,
        find: Callable[[], Definition],
        workers: int = 1,
        max_poll_s: float = MAX_POLL_S,
        lease_s: float = LEASE_S,
        on_step: Callable[[str], None] = lambda _: None,
        look_after: Caretaker | None = None,
    ) -> None:
        """Prepare; nothing is written.

        Args:
            tm: The manager.
            places: Where the queue is kept.
            definition: The queue.
            exporter: Takes the entries.
            options: How.
            find: Returns the queue as it is now; raises `NoSuchQueue` once it was dropped.
            workers: How many threads.
            max_poll_s: How long an idle bucket rests at most.
            lease_s: How long others wait before they take what a dead process had.
            on_step: Called with the name of each step, for fault injection.
            look_after: Does what is to be done now and then, in a thread of its own.
        """
        self.tally = QueueTally()
        self._tm = tm
        self._places = places
        self._find = find
        self._clock = tm.session.clock
        self._exporter = exporter
        self._options = options
        self._on_step = on_step
        self._look_s = lease_s / BEATS_PER_LEASE
        self._lease_s = lease_s
        self._worker_count = workers
        self._max_poll_s = max_poll_s
        self._look_after = look_after
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._ended: BaseException | None = None
        self._obstacles: dict[int, MarkRefused] = {}
        self._seldom = Seldom(log)
        self._begin_term(definition)

    def _begin_term(self, definition: Definition) -> None:
        """Turn to the buckets of a definition, of which nothing is known yet."""
        self._definition = definition
        self._table = table_name(self._places.queue_id, definition.number)
        self._delivery = Delivery(
            self._tm,
            self._places.queue_id,
            definition,
            self._exporter,
            self._options,
            self.tally,
            on_step=self._on_step,
        )
        self._crew = Crew(self._tm, self._places, definition, lease_s=self._lease_s)
        self._is_over = threading.Event()
        """Whether this term is."""
        self._holds = False
        """Whether the queue is paused, as was last seen."""
        self._busy: set[int] = set()
        self._due_s: dict[int, float] = {}
        self._poll_s: dict[int, float] = {}
        self._memories: dict[int, Memory] = {}
        self._obstacles = {}
        """Buckets that do not go on before a person helps, and why; the others do."""
        self._heard: set[int] = set()
        """Buckets that were added to since their last pass began."""
        self._paused: set[int] = set()
        """Buckets that rest since something failed: no addition cuts that short."""
        if self._stopping.is_set():
            self._is_over.set()

    def _look(self) -> View:
        return View(self._tm, self._table, layout=self._definition.layout)

    def _has_moved(self) -> bool:
        """Say whether the queue has other buckets by now.

        Raises:
            NoSuchQueue: it was dropped.
        """
        return self._find().number != self._definition.number

    def stop(self) -> None:
        """Let `run` return once the batches under way have ended; may be called from anywhere."""
        self._stopping.set()
        self._is_over.set()
        self._wake.set()

    def heard(self, buckets: Collection[int]) -> None:
        """Note that a transaction of this process has added to some buckets: look there soon."""
        within(self._lock, self._note, buckets)
        self._wake.set()

    def _note(self, buckets: Collection[int]) -> None:
        soon_s = self._clock.monotonic_s() + FIRST_POLL_S
        for bucket in buckets:
            self._heard.add(bucket)
            if bucket not in self._paused and self._due_s.get(bucket, 0.0) > soon_s:
                self._due_s[bucket] = soon_s

    def _close(self) -> None:
        try:
            self._exporter.close()
        finally:
            if self._look_after is not None:
                self._look_after.close()

    # -- for ever ------------------------------------------------------------------------------

    def run(self) -> None:
        """Deliver until `stop` is called.

        Raises:
            ExportError: the policy is `stop`, and there is poison; or the queue was dropped; or a
                bucket needs a person's help, and it was the last that could go on here, or `stop`
                was called.
        """
        try:
            self._exporter.open()
            self._run_term()
            while not self._stopping.is_set() and self._ended is None:
                if (now := self._find_or_wait()) is not None:
                    self._begin_term(now)
                    self._run_term()
        finally:
            self._close()
        if (error := self._ended or self._first_obstacle()) is not None:
            raise error

    def _find_or_wait(self) -> Definition | None:
        """Return the queue as it is now; None, after a while, where the store does not tell.

        Raises:
            NoSuchQueue: it was dropped.
        """
        try:
            return self._find()
        except NoSuchQueue:
            raise
        except OmidError as error:
            self._seldom.say("cannot look what has become of the queue: %s", error)
            self._stopping.wait(TROUBLE_S)
            return None

    def _first_obstacle(self) -> MarkRefused | None:
        return next((self._obstacles[one] for one in sorted(self._obstacles)), None)

    def _run_term(self) -> None:
        threads = [
            threading.Thread(target=self._work, name=f"export-{number}", daemon=True)
            for number in range(self._worker_count)
        ]
        threads.append(threading.Thread(target=self._keep, name="export-keeper", daemon=True))
        try:
            self._crew.join()
            BELL.listen(Queue(self._tm.store.store_id, self._table), self)
            for thread in threads:
                thread.start()
            while not self._is_over.is_set():
                try:
                    now = self._find()
                    if now.number != self._definition.number:
                        break
                    self._holds = now.is_paused
                    self._share_out()
                except NoSuchQueue as error:
                    self._end(error)
                except OmidError as error:
                    self._seldom.say("cannot look for buckets: %s", error)
                self._is_over.wait(self._look_s)
        finally:
            self._is_over.set()
            self._wake.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            self._crew.leave()

    def _keep(self) -> None:
        while not self._is_over.wait(KEEP_EVERY_S):
            try:
                # One of all processes is enough.
                if self._look_after is not None and 0 in self._crew.leases:
                    self._look_after.look(self._definition)
            except OmidError as error:
                self._seldom.say("cannot look after the queue: %s", error)
            except BaseException as error:
                log.exception("the thread that looks after the queue ends")
                self._end(error)

    def _share_out(self) -> None:
        """Take our share of the buckets, or give back what we have while the queue is paused."""
        excess = len(self._crew.leases) if self._holds else self._crew.look().excess
        for lease in within(self._lock, self._given_up, excess):
            lease.give_back()
        self._wake.set()

    def _given_up(self, excess: int) -> list[BucketLease]:
        """Take buckets that no thread is busy with out of our hands."""
        idle = [bucket for bucket in sorted(self._crew.leases) if bucket not in self._busy]
        return [self._crew.leases.pop(bucket) for bucket in idle[: max(0, excess)]]

    def _work(self) -> None:
        while not self._is_over.is_set():
            self._wake.clear()
            taken = within(self._lock, self._take_due)
            if not taken:
                self._wake.wait(self._rest_s())
                continue
            try:
                self._pass_over(taken)
            except BaseException as error:
                if not isinstance(error, ExportError):
                    log.exception("a thread of the exporter ends")
                self._end(error)
            finally:
                within(self._lock, self._busy.difference_update, [one.bucket for one in taken])

    def _end(self, error: BaseException) -> None:
        """End this term, and all, unless the table is gone because the queue has other buckets."""
        is_move = isinstance(error, NoSuchQueue)
        try:
            is_move = is_move and self._has_moved()
        except NoSuchQueue:
            is_move = False
        except OmidError:
            pass  # `run` finds out: who is told that a queue was dropped makes it anew
        if is_move:
            self._is_over.set()
            return
        self._ended = self._ended or error
        self.stop()

    def _take_due(self) -> list[BucketLease]:
        """Take this thread's part of the buckets that are due."""
        if self._holds:
            return []
        now_s = self._clock.monotonic_s()
        due = [
            lease
            for bucket, lease in list(self._crew.leases.items())
            if bucket not in self._busy
            and not lease.is_lost  # the next look drops it
            and self._due_s.get(bucket, 0.0) <= now_s
        ]
        taken = due[: -(-len(due) // self._worker_count)]
        self._busy.update(lease.bucket for lease in taken)
        return taken

    def _rest_s(self) -> float:
        now_s = self._clock.monotonic_s()
        due_s = [
            self._due_s.get(bucket, now_s)
            for bucket, lease in list(self._crew.leases.items())
            if not lease.is_lost
        ]
        return max(FIRST_POLL_S, min([*due_s, now_s + self._max_poll_s]) - now_s)

    def _pass_over(self, leases: list[BucketLease]) -> None:
        # What is committed from here on may be above the snapshot, and is heard of once more.
        within(self._lock, self._heard.difference_update, [lease.bucket for lease in leases])
        try:
            view = self._look()
        except OmidError as error:
            self._seldom.say("cannot look into the queue: %s", error)
            for lease in leases:
                self._rest(lease.bucket, TROUBLE_S, is_paused=True)
            return
        for lease in leases:
            if self._is_over.is_set():
                return
            try:
                rest_s, is_paused = self._pass(lease, view), False
                self._note_obstacle(lease, None)
            except Paused as pause:
                if pause.is_of_dead:
                    self._note_obstacle(lease, None)
                    rest_s, is_paused = min(pause.after_s, self._max_poll_s), False
                else:
                    rest_s, is_paused = pause.after_s, True
            except MarkRefused as error:
                self._note_obstacle(lease, error)
                if not self._crew.leases.keys() - self._obstacles.keys():
                    raise
                rest_s, is_paused = OBSTACLE_S, True
            self._rest(lease.bucket, rest_s, is_paused=is_paused)

    def _note_obstacle(self, lease: BucketLease, error: MarkRefused | None) -> None:
        """Note why a bucket does not go on, or that it does, where `export status` shows it."""
        if error is not None:
            if lease.bucket not in self._obstacles:
                log.error("%s", error)
            self._obstacles[lease.bucket] = error
        elif self._obstacles.pop(lease.bucket, None) is None:
            return
        try:
            lease.update(stopped="" if error is None else storable(str(error))[:MAX_REASON])
        except (BucketLost, OmidError) as trouble:
            log.info("%s", trouble)

    def _rest(self, bucket: int, rest_s: float, *, is_paused: bool) -> None:
        within(self._lock, self._set_rest, bucket, rest_s, is_paused)

    def _set_rest(self, bucket: int, rest_s: float, is_paused: bool) -> None:  # noqa: FBT001 - `within`
        if is_paused:
            self._paused.add(bucket)
        else:
            self._paused.discard(bucket)
            if bucket in self._heard:
                rest_s = min(rest_s, FIRST_POLL_S)
        self._due_s[bucket] = self._clock.monotonic_s() + rest_s

    def _pass(self, lease: BucketLease, view: View) -> float:
        """Pass over a bucket; return how long it may rest.

        Raises:
            Paused: it must, since something has failed.
        """
        bucket, began_s = lease.bucket, self._clock.monotonic_s()
        memory = self._memories.setdefault(bucket, self._delivery.new_memory())
        try:
            done = self._delivery.run_pass(lease, memory, view)
        except BucketLost as lost:
            log.info("%s", lost)
            self._memories.pop(bucket, None)
            return 0.0
        except ExportError:
            raise
        except OmidError as error:
            self._seldom.say("bucket %d rests for a while: %s", bucket, error, about=bucket)
            raise Paused(TROUBLE_S) from error
        took_s = self._clock.monotonic_s() - began_s
        if done.has_moved:
            self._poll_s[bucket] = FIRST_POLL_S
            # More is coming in, and a batch costs the same whatever its size: let some gather.
            return min(took_s, self._max_poll_s) if done.is_whole else 0.0
        rest_s = min(self._max_poll_s, self._poll_s.get(bucket, FIRST_POLL_S))
        self._poll_s[bucket] = 2 * rest_s
        return rest_s

    # -- once ----------------------------------------------------------------------------------

    def run_once(self, *, wait_s: float | None = None) -> int:
        """Deliver what is in the queue now; return how many entries that were.

        Args:
            wait_s: How long to wait for buckets that others have, since they may be dead; those
                that live keep theirs.  None: until that is sure, half a lease longer than a lease.

        Raises:
            ExportError: the receiver cannot be reached; or the policy is `stop`, and there is
                poison; or the queue is paused, or was dropped.  What was not delivered stays.
        """
        check_waits(wait_s=wait_s)
        wait_s = 1.5 * self._lease_s if wait_s is None else wait_s
        check_going(self._places, self._find())
        try:
            self._exporter.open()
            self._finish()
            self._run_term_once(wait_s)
            self._finish()
            while self._has_moved():
                self._begin_term(self._find())
                self._run_term_once(wait_s)
        finally:
            self._close()
        return sum(tally.exported for tally in self.tally.read().values())

    def _finish(self) -> None:
        if self._look_after is not None:
            self._look_after.finish(self._stopping.wait)

    def _run_term_once(self, wait_s: float) -> None:
        try:
            self._crew.join(takes_all=True)
            until_s = self._clock.monotonic_s() + wait_s
            done: set[int] = set()
            while True:
                sight = self._crew.look()
                for bucket, lease in list(self._crew.leases.items()):
                    if bucket not in done and self._drain(lease):
                        done.add(bucket)
                # What was lost on the way is another worker's, or is taken again.
                is_left = bool(sight.of_others) or not done.issuperset(self._crew.leases)
                if not is_left or self._clock.monotonic_s() >= until_s:
                    break
                self._stopping.wait(min(self._look_s, 0.2))
            if sight.problems:
                raise ExportError(sight.problems[0])
            if (error := self._first_obstacle()) is not None:
                raise error
        except (NoSuchQueue, NoSuchTable):
            # Its table may go at any moment, and then there is nothing to deliver here.
            if not self._has_moved():
                raise
        finally:
            self._crew.leave()

    def _drain(self, lease: BucketLease) -> bool:
        """Pass over a bucket until what a first look has shown is delivered; False: it was lost."""
        memory = self._memories.setdefault(lease.bucket, self._delivery.new_memory())
        since = self._look()
        view, failures, known = since, 0, (lease.state, 0)
        while True:
            memory.dead_due_s = 0.0  # it was waited for
            try:
                is_whole = self._delivery.run_pass(lease, memory, view).is_whole
            except Paused as pause:
                # To have learnt of one more entry that it is poison is to have come further, too.
                before, known = known, (lease.state, len(memory.poison))
                failures = failures + 1 if known == before else 1
                if failures > MOST_PAUSES:
                    raise ExportError(
                        f"bucket {lease.bucket} of {self._table} gets nowhere after {failures} "
                        f"tries: {pause.__cause__!r}; its entries stay"
                    ) from pause
                self._stopping.wait(pause.after_s)
                is_whole = False
            except TransactionAborted as error:
                # An operator was at an entry that was to be set aside, and was first: look again.
                failures += 1
                if failures > MOST_PAUSES:
                    raise
                log.info("bucket %d is looked at again: %s", lease.bucket, error)
                self._stopping.wait(FIRST_POLL_S)
                is_whole = False
            except MarkRefused as error:
                self._note_obstacle(lease, error)  # the other buckets go on
                return True
            except BucketLost as lost:
                log.info("%s", lost)
                self._memories.pop(lease.bucket, None)
                return False
            if is_whole or lease.state.cursor_ts >= since.start_ts:
                return True
            view = self._look()
