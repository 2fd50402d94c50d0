"""What follows a commit: shadow cells, and then the removal of the commit entry.

The transaction is committed and visible before any of this happens; readers and the compactor do
the same work for a client that died.  So nothing here may fail a commit, and nothing here need ever
run.  The order alone matters: the entry goes only after every shadow cell is acknowledged (I5).  A
reader that finds no entry looks for the shadow cell once more and then takes the transaction for
undecided; an entry that went too early turns what was committed into what never was (I8).  A
failure leaves the entry where it is, and the next compaction takes it from there.

Everything may be done twice, and by others at the same time: a shadow cell has one possible value,
and removing an entry that is gone changes nothing.

    sync    before `commit` returns
    async   soon after, in batches across transactions, by one thread per process; `close` drains
    none    never: readers and the compactor do it
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from omidpy.base.reach import reached
from omidpy.base.within import within
from omidpy.facts.commit_table import CommitTable
from omidpy.model import Timestamp
from omidpy.storage.base import RowMutation, Store

if TYPE_CHECKING:
    from omidpy.base.telemetry.tracing import Tracing

log = logging.getLogger(__name__)

WriteBatch: TypeAlias = dict[str, list[RowMutation]]

MAX_BATCH_TRANSACTIONS: Final = 256


class Gathering(NamedTuple):
    """How transactions gather for one batch while the process is under load."""

    gather_s: float
    """How long a batch waits for more of them."""
    under_load_s: float
    """A batch that comes so soon after the last one is a sign of load."""
    enough_count: int = MAX_BATCH_TRANSACTIONS
    """So many of them wait for no more."""


IN_A_FILE: Final = Gathering(gather_s=0.005, under_load_s=0.05)
"""Each batch takes the store's write lock twice, and would compete with the next commit for it."""

ON_A_CLUSTER: Final = Gathering(gather_s=0.1, under_load_s=0.1, enough_count=32)
"""Each batch is two calls, and a call costs a cluster as much as one that a commit waits for.

Measured with eight processes that commit without pause: in this time a dozen transactions gather in
each; in a third of it four do, and a transaction of one row then takes a sixth more processor time.
"""

MAX_WAITING_TRANSACTIONS: Final = 4096
"""Past this many a commit does the work itself: memory stays bounded when the store is slower."""

MAX_WAITING_FOR_ERRANDS: Final = 8
"""Past this many things that wait an errand is dropped: commits go first, and memory is bounded."""

_LOOK_S: Final = 1.0
"""How often one who waits looks whether a thread is at work."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What is left to do for one committed transaction."""

    start_ts: Timestamp
    shadow_cells: Mapping[str, Sequence[RowMutation]]
    leftovers: Mapping[str, Sequence[RowMutation]] = field(default_factory=dict)
    """What is of no use to anybody once the transaction has committed."""
    trace: object = None
    """Behind which span it is done, see `omidpy/base/telemetry/tracing.py`."""


class PostCommitter(Protocol):
    """Takes over a transaction once it has committed."""

    def submit(self, completion: Completion) -> None:
        """Do the rest of a commit, now or later.  Never raises: the transaction has committed."""
        ...

    def owes(self, start_ts: Timestamp) -> bool:
        """Say whether the shadow cells of a transaction are about to be written here."""
        ...

    def drain(self) -> None:
        """Return when everything submitted so far is done or has failed."""
        ...

    def close(self) -> None:
        """Finish what was submitted, then take nothing more."""
        ...


class Completer:
    """Writes shadow cells and removes commit entries for a batch of transactions."""

    def __init__(
        self, store: Store, commit_table: CommitTable, on_step: Callable[[str], None]
    ) -> None:
        self._store = store
        self._commit_table = commit_table
        self._on_step = on_step
        self.tracing: Tracing | None = None

    def complete(self, batch: Sequence[Completion]) -> None:
        """Complete transactions; a failure is logged and leaves their commit entries."""
        if self.tracing is None:
            self._complete(batch)
            return
        before = [one.trace for one in batch if one.trace is not None]
        with self.tracing.following("post_commit", before, transactions=len(batch)):
            self._complete(batch)

    def _complete(self, batch: Sequence[Completion]) -> None:
        shadow_cells = _together(completion.shadow_cells for completion in batch)
        leftovers = _together(completion.leftovers for completion in batch)
        try:
            # Returns when all of them are acknowledged, or raises; between these two calls a kill,
            # a lost answer or an error leaves an entry too many, never one too few.
            self._store.write(shadow_cells)
            self._on_step("shadow-cells-written")
            self._commit_table.complete([completion.start_ts for completion in batch])
            self._on_step("completed")
            if leftovers:
                self._store.write(leftovers)
        except Exception as error:  # noqa: BLE001 - whatever a backend raises, it has committed
            if len(batch) > 1:
                # One dropped table must not keep the others' entries.  Which shadow cells of the
                # batch were written is not known, so each transaction begins again with its own.
                for completion in batch:
                    self.complete((completion,))
                return
            reached("post_commit.failed", "I5")
            log.warning(
                "the shadow cells of transaction %d were not all written; readers or the compactor "
                "will heal it: %s",
                batch[0].start_ts,
                error,
            )


def _together(batches: Iterable[Mapping[str, Sequence[RowMutation]]]) -> WriteBatch:
    together: WriteBatch = {}
    for batch in batches:
        for table, mutations in batch.items():
            together.setdefault(table, []).extend(mutations)
    return together


class SyncPostCommitter:
    """Completes each transaction before `commit` returns."""

    def __init__(self, completer: Completer) -> None:
        self._completer = completer

    def submit(self, completion: Completion) -> None:
        """Complete the transaction in the caller's thread, before this returns."""
        self._completer.complete((completion,))

    def owes(self, start_ts: Timestamp) -> bool:
        """Say no: nothing waits."""
        del start_ts
        return False

    def drain(self) -> None:
        """Do nothing: nothing waits."""

    def close(self) -> None:
        """Do nothing: nothing waits."""


class NoPostCommitter:
    """Leaves the rest to readers and to the compactor."""

    def submit(self, completion: Completion) -> None:
        """Leave the shadow cells to readers, and to the compactor."""

    def owes(self, start_ts: Timestamp) -> bool:
        """Say no: readers heal what this process commits."""
        del start_ts
        return False

    def drain(self) -> None:
        """Do nothing: nothing waits."""

    def close(self) -> None:
        """Do nothing: nothing waits."""


class _Mark:
    """A place in the queue: everything ahead of it is done when its gate opens."""

    __slots__ = ("gate", "is_the_end")

    def __init__(self, *, is_the_end: bool) -> None:
        self.is_the_end = is_the_end
        self.gate = threading.Lock()
        self.gate.acquire()


class _Errand:
    """Something to do that nobody waits for, and that may be left undone."""

    __slots__ = ("carry_out",)

    def __init__(self, carry_out: Callable[[], object]) -> None:
        self.carry_out = carry_out


class AsyncPostCommitter:
    """Completes transactions in one background thread, as many in a batch as are waiting.

    The same thread runs errands, such as the heals of a scan, in between.

    A lone transaction is completed at once.  Under load some gather first, since a batch costs the
    same whatever its size.

    What a caller does is one step in C each: an exception at any line leaves a transaction in the
    queue or out of it.  A thread is at work as long as it holds `_working`; a caller that needs one
    and finds none starts another, and of two one goes home.
    """

    def __init__(self, completer: Completer, gathering: Gathering = IN_A_FILE) -> None:
        self._completer = completer
        self.gathering = gathering
        self._reset()

    def _reset(self) -> None:
        self._queue: SimpleQueue[Completion | _Errand | _Mark] = SimpleQueue()
        self._owed: set[Timestamp] = set()
        self._working = threading.Lock()
        self._worker_id = 0
        self._is_closed = False

    def after_fork_in_child(self) -> None:
        """Forget the parent's queue: its own thread is at work on it."""
        self._reset()

    def submit(self, completion: Completion) -> None:
        """Queue the transaction; complete it here and now if the queue is full."""
        if self._is_closed or self._queue.qsize() >= MAX_WAITING_TRANSACTIONS:
            self._completer.complete((completion,))
            return
        self._owed.add(completion.start_ts)
        self._queue.put(completion)
        if self._is_closed:  # meanwhile, and no thread may look into the queue any more
            self._complete_rest()
        else:
            self._need_worker()

    def run_soon(self, errand: Callable[[], object]) -> None:
        """Run something behind what waits, or never: where much waits, or after the close.

        An error of it is logged.
        """
        if not self._is_closed and self._queue.qsize() < MAX_WAITING_FOR_ERRANDS:
            self._queue.put(_Errand(errand))
            self._need_worker()

    def owes(self, start_ts: Timestamp) -> bool:
        """Say whether the transaction is in the queue or in the batch at work."""
        return start_ts in self._owed

    def drain(self) -> None:
        """Return when everything submitted so far is done."""
        self._wait_for(_Mark(is_the_end=False))

    def close(self) -> None:
        """Drain, stop the thread, and complete later submissions in the caller's.

        Starts no thread, so that it may be called while the interpreter ends.
        """
        self._is_closed = True
        if self._worker_id == threading.get_ident():
            return
        # A thread at work leaves at the mark, and one that is about to begin meets it or finds
        # nothing; so the holder of the lock gives it back.
        self._queue.put(_Mark(is_the_end=True))
        self._complete_rest()

    def _complete_rest(self) -> None:
        """Do what is left of the queue, as its thread, once that has gone."""
        within(self._working, self._work_off)

    def _work_off(self) -> None:
        while not self._queue.empty():
            item = self._queue.get()
            if isinstance(item, _Mark):
                item.gate.release()
            elif isinstance(item, _Errand):
                _carry_out(item)
            else:
                self._completer.complete((item,))
                self._owed.discard(item.start_ts)

    def _wait_for(self, mark: _Mark) -> None:
        self._queue.put(mark)
        self._need_worker()
        while not mark.gate.acquire(timeout=_LOOK_S):
            self._need_worker()

    # -- the thread --------------------------------------------------------------------------------

    def _need_worker(self) -> None:
        if self._working.locked():
            return
        try:
            threading.Thread(target=self._run, name="omidpy-post-commit", daemon=True).start()
        except RuntimeError:
            # There are no more: the interpreter ends, and lets none begin since Python 3.12.
            self._complete_rest()

    def _run(self) -> None:
        # A caller that finds the lock held while we leave relies on another look.
        while not self._queue.empty() and self._working.acquire(blocking=False):
            self._worker_id = threading.get_ident()
            try:
                self._work()
            finally:
                self._worker_id = 0
                self._working.release()

    def _work(self) -> None:
        last_batch_s = -math.inf
        # What is put behind the end, once it is closed, its own thread looks after.
        while not (self._is_closed and self._queue.empty()):
            batch, behind = self._gathered(last_batch_s)
            try:
                if batch:
                    self._completer.complete(batch)
            finally:
                if batch:
                    last_batch_s = time.monotonic()
                self._owed.difference_update(completion.start_ts for completion in batch)
                if isinstance(behind, _Mark):
                    behind.gate.release()
            if isinstance(behind, _Errand):
                _carry_out(behind)
            if isinstance(behind, _Mark) and behind.is_the_end:
                return

    def _gathered(self, last_batch_s: float) -> tuple[list[Completion], _Errand | _Mark | None]:
        """Return what to complete, and the errand behind it, or the mark if a caller waits."""
        batch: list[Completion] = []
        item = self._queue.get()
        until_s = time.monotonic()
        if until_s - last_batch_s < self.gathering.under_load_s:
            until_s += self.gathering.gather_s
        while True:
            if not isinstance(item, Completion):
                return batch, item
            batch.append(item)
            if len(batch) == MAX_BATCH_TRANSACTIONS:
                return batch, None
            wait_s = until_s - time.monotonic()
            if len(batch) >= self.gathering.enough_count:
                wait_s = 0.0
            try:
                item = self._queue.get(timeout=max(0.0, wait_s))
            except Empty:
                return batch, None


def _carry_out(errand: _Errand) -> None:
    try:
        errand.carry_out()
    except Exception:
        log.exception("what was to be done behind a read failed; it is left undone")
