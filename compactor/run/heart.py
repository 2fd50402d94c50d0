"""Shows that a run lives for as long as it does, however long a pass, a wait or a page takes.

Beats from a thread of its own (`omidpy/life/heart.py`).

It lives exactly as long as the run, at whatever line that is interrupted: the run holds a lock,
which is given back on the line that took it (`omidpy/base/within.py`), and the thread waits for
that lock between two beats.  What must be done at both ends, registering and giving back, is done
in the thread, where no foreign exception comes.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from omidpy.base.timing.clock import Clock
from omidpy.base.within import within
from omidpy.errors import OmidError, StorageError
from omidpy.fate.store import FateStore
from omidpy.life.base import Member
from omidpy.life.heart import BEATS_PER_LEASE, beat_until

log = logging.getLogger(__name__)


class Heart:
    """A worker that shows that it lives from a thread of its own, and when it is asked."""

    def __init__(
        self, fates: FateStore, clock: Clock, lease_s: float, *, at_end: Callable[[], object]
    ) -> None:
        """Begin nothing yet.

        Args:
            fates: Where it is registered.
            clock: Measures its lease.
            lease_s: How long it may show no life.
            at_end: Called once the run is over, before the worker can be seen no more.
        """
        self._fates = fates
        self._clock = clock
        self._lease_s = lease_s
        self._at_end = at_end
        self._worker: Member | None = None
        self._error: BaseException | None = None
        self._mutex = threading.Lock()
        self._at_work = threading.Lock()
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._live, name="compaction", daemon=True)

    def beat_while(self, work: Callable[[], object]) -> None:
        """Register, and beat until `work` is done or interrupted; once only.

        Raises:
            OmidError: it could not be registered, or what `work` has raised.
        """
        try:
            within(self._at_work, self._work, work)
        finally:
            if self._thread.ident is not None:
                self._thread.join()

    @property
    def worker(self) -> Member:
        """The worker that lives by it."""
        assert self._worker is not None, "it has begun"
        return self._worker

    @property
    def id(self) -> str:
        """See `Member`."""
        return self.worker.id

    def beat(self) -> bool:
        """Show that it lives; see `Member`."""
        return within(self._mutex, self.worker.beat)

    def is_trusted(self) -> bool:
        """Say whether no driver has taken it for dead; see `Member`.

        A run that has slept asks the store, which knows better than a clock.
        """
        return self.worker.is_trusted() or self.beat()

    def retire(self) -> None:
        """Give back what was taken, and show that it ends; see `Member`."""
        try:
            self._at_end()
        finally:
            with contextlib.suppress(StorageError):
                self.worker.retire()

    def _work(self, work: Callable[[], object]) -> None:
        self._thread.start()
        self._has_begun.wait()
        if self._error is not None:
            raise self._error
        work()

    # -- in the thread -------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            self._worker = self._fates.new_worker(lease_s=self._lease_s, clock=self._clock)
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
            return
        finally:
            self._has_begun.set()
        try:
            # Until the run gives its lock back, and not a moment less.
            beat_until(
                lambda pause_s: self._at_work.acquire(timeout=pause_s),
                self.beat,
                every_s=self._lease_s / BEATS_PER_LEASE,
                who="a compaction",
                log=log,
            )
        finally:
            try:
                self.retire()
            except OmidError as error:
                log.warning("a compaction leaves its lease to run out: %s", error)
