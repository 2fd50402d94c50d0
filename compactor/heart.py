"""Shows that a run lives for as long as it does, however long a pass, a wait or a page takes.

Beats from a thread of its own.  A thread goes on while its process is at work on something else,
and stands still when the process is stopped, which is what the others want to know.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Final

from omidpy.base.clock import Clock
from omidpy.base.within import within
from omidpy.errors import OmidError, StorageError
from omidpy.fate.store import FateStore, Worker

BEATS_A_LEASE: Final = 4


class Heart:
    """A worker that shows that it lives from a thread of its own, and when it is asked."""

    def __init__(self, fates: FateStore, clock: Clock, lease_s: float) -> None:
        """Begin nothing yet."""
        self._fates = fates
        self._clock = clock
        self._lease_s = lease_s
        self._worker: Worker | None = None
        self._mutex = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="compaction", daemon=True)

    def begin(self) -> None:
        """Register, and beat from now on."""
        self._worker = self._fates.new_worker(lease_s=self._lease_s, clock=self._clock)
        self._thread.start()

    @property
    def worker(self) -> Worker:
        """The worker that lives by it."""
        assert self._worker is not None, "it has begun"
        return self._worker

    @property
    def id(self) -> str:
        """See `Worker`."""
        return self.worker.id

    def beat(self) -> bool:
        """Show that it lives; see `Worker`."""
        return within(self._mutex, self.worker.beat)

    def is_trusted(self) -> bool:
        """Say whether nobody has taken it for dead; see `Worker`.

        A run that has slept asks the store, which knows better than a clock.
        """
        return self.worker.is_trusted() or self.beat()

    def retire(self) -> None:
        """Beat no more, and show that it ends."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._worker is not None:
            with contextlib.suppress(StorageError):
                self._worker.retire()

    def _beat_on(self) -> None:
        while not self._is_over.wait(self._lease_s / BEATS_A_LEASE):
            with contextlib.suppress(OmidError):
                if not self.beat():
                    return
