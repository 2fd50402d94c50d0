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
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from omidpy.commit_table import CommitTable
from omidpy.model import Timestamp
from omidpy.storage.base import RowMutation, Store

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
"""Past this many, a commit waits for room: memory stays bounded when the store is slower."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What is left to do for one committed transaction."""

    start_ts: Timestamp
    shadow_cells: Mapping[str, Sequence[RowMutation]]
    leftovers: Mapping[str, Sequence[RowMutation]] = field(default_factory=dict)
    """What is of no use to anybody once the transaction has committed."""


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
        """Drain and stop."""
        ...


class Completer:
    """Writes shadow cells and removes commit entries for a batch of transactions."""

    def __init__(
        self, store: Store, commit_table: CommitTable, on_step: Callable[[str], None]
    ) -> None:
        self._store = store
        self._commit_table = commit_table
        self._on_step = on_step

    def complete(self, batch: Sequence[Completion]) -> None:
        """Complete transactions; a failure is logged and leaves their commit entries."""
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
        """Complete the transaction."""
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
        """Do nothing."""

    def owes(self, start_ts: Timestamp) -> bool:
        """Say no: readers heal what this process commits."""
        del start_ts
        return False

    def drain(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class AsyncPostCommitter:
    """Completes transactions in one background thread, as many in a batch as are waiting.

    A lone transaction is completed at once.  Under load some gather first, since a batch costs the
    same whatever its size.
    """

    def __init__(self, completer: Completer, gathering: Gathering = IN_A_FILE) -> None:
        self._completer = completer
        self.gathering = gathering
        self._reset()

    def _reset(self) -> None:
        # Also in the child of a fork, where a thread that is not there any more may have held the
        # parent's lock: it is made anew and not taken.
        self._changed = threading.Condition()
        self._waiting: deque[Completion] = deque()
        self._owed: set[Timestamp] = set()
        """What waits and what is in the batch at work; `_waiting` alone would miss the latter."""
        self._busy = False
        self._closed = False
        self._worker: threading.Thread | None = None
        self._drainer_count = 0
        self._hurry = threading.Event()

    def after_fork_in_child(self) -> None:
        """Forget the parent's queue: its own thread is at work on it."""
        self._reset()

    def submit(self, completion: Completion) -> None:
        """Queue the transaction; waits for room if the queue is full."""
        with self._changed:
            if not self._closed:
                self._changed.wait_for(
                    lambda: len(self._waiting) < MAX_WAITING_TRANSACTIONS or self._closed
                )
            if not self._closed:
                self._waiting.append(completion)
                self._owed.add(completion.start_ts)
                if self._is_enough():
                    self._hurry.set()
                if self._worker is None:
                    # A daemon, so that a program that never calls `close` can end; what is not
                    # done by then is left as a killed client leaves it.
                    self._worker = threading.Thread(
                        target=self._run, name="omidpy-post-commit", daemon=True
                    )
                    self._worker.start()
                self._changed.notify_all()
                return
        # Closed: the thread may have looked into the queue for the last time.  Outside the lock,
        # for this takes round trips.
        self._completer.complete((completion,))

    def owes(self, start_ts: Timestamp) -> bool:
        """Say whether the transaction is in the queue or in the batch at work."""
        # Asked for each cell that a reader finds without a shadow cell, so no lock is taken.
        # Either wrong answer is harmless: the reader heals what is healed here as well, or leaves
        # it to the next reader.
        return start_ts in self._owed

    def drain(self) -> None:
        """Return when the queue is empty and the last batch is done."""
        with self._changed:
            self._drainer_count += 1
            self._hurry.set()
            try:
                self._changed.wait_for(lambda: not self._waiting and not self._busy)
            finally:
                self._drainer_count -= 1
                self._calm_down()

    def close(self) -> None:
        """Drain, stop the thread, and complete later submissions in the caller's."""
        with self._changed:
            self._closed = True
            self._hurry.set()
            self._changed.notify_all()
            worker = self._worker
        if worker is not None and worker is not threading.current_thread():
            worker.join()

    def _is_enough(self) -> bool:
        return len(self._waiting) >= self.gathering.enough_count

    def _calm_down(self) -> None:
        """Let the next ones gather again, unless there is still a reason for haste."""
        if not self._drainer_count and not self._closed and not self._is_enough():
            self._hurry.clear()

    def _run(self) -> None:
        last_batch_s = -math.inf
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
            if time.monotonic() - last_batch_s < self.gathering.under_load_s:
                self._hurry.wait(self.gathering.gather_s)
            with self._changed:
                size = min(len(self._waiting), MAX_BATCH_TRANSACTIONS)
                batch = [self._waiting.popleft() for _ in range(size)]
                self._calm_down()
                # Under the same lock that took the batch from the queue: `drain` must never find
                # the queue empty and nothing at work while there is a batch in hand.
                self._busy = True
                self._changed.notify_all()
            try:
                self._completer.complete(batch)
            finally:
                last_batch_s = time.monotonic()
                with self._changed:
                    # After the batch, failed or not: until then readers may leave healing to it.
                    self._owed.difference_update(completion.start_ts for completion in batch)
                    self._busy = False
                    self._changed.notify_all()
