"""Is a job still its driver's to publish?  A process that stood still looks before it goes on.

While a process is stopped, another may have finished its job, and a third replaced it: a small file
that is written then is there again, and no plan names it.  No condition on a key makes the store
refuse it, since the key is free.  So who notices that time has passed asks for the plan, which is
gone where the job has ended, before the next file is touched.

What stops between this look and its request is not noticed.  It finds at the end that its job was
decided, and takes back what it wrote of what was replaced since (`publishing/awakening.py`).

An attempt at a task that its job has not waited for, as one of Spark's that stood still or was run
twice, begins uploads that no sweep comes behind.  So one that has run for a while looks behind an
upload that it begins whether the job is committed, and gives it up then: the head says so before
anybody sweeps.

Lacks jobs that were aborted before they had a plan, of which no head says anything, and batches of
streams, whose tasks know no run: one that is run again begins behind its commit, and may.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from omidpy.base.reach import reached
from omidpy.base.within import within
from omidpy.committers.heads import deciding
from omidpy.committers.heads.deciding import Decided
from omidpy.committers.heads.plan import Plan
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.errors import CommitterError

STILL_S: Final = 5.0
"""Between two files of one job: a process that works has no such pauses, or looks once more."""
AWAITED_S: Final = 60.0
"""For so long an attempt at a task begins uploads without a look: unless it is told otherwise,
Spark waits for twice as long until it takes an executor for lost."""
AWAITED_BESIDE_S: Final = 1.0
"""The same where Spark runs tasks twice at once."""


def elapsed_s() -> float:
    """Return seconds that go on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Standing:
    """Of one driver, while it completes files."""

    def __init__(
        self, store: ObjectStore, plan: Plan, clock: Callable[[], float] | None = None
    ) -> None:
        """Begin; the plan is known to be there now."""
        self._store = store
        self._plan = plan
        self._clock = clock or elapsed_s
        self._last_s = self._clock()
        self._is_sure = True
        self._lock = threading.Lock()

    def check(self) -> None:
        """Go on; 1 request if the process stood still.

        Raises:
            Decided: The job has ended meanwhile.
        """
        if within(self._lock, self._is_still_sure):
            return
        reached("committers.stood_still", "C15")
        plan = self._plan
        if self._store.head(plan.folder.bucket, plan.folder.plan_key(plan.job_id)) is None:
            raise Decided(f"job {plan.job_id} was ended by another process")
        self._is_sure = True

    def has_stood_still(self) -> bool:
        """Say whether a thread has to look before the next step; no request."""
        return not within(self._lock, self._is_still_sure)

    def _is_still_sure(self) -> bool:
        now_s = self._clock()
        # Until one of them has looked, each of the threads that write must.
        self._is_sure = self._is_sure and now_s - self._last_s < STILL_S
        self._last_s = now_s
        return self._is_sure


class Awaited:
    """Of one attempt at a task, while it begins uploads: does its job still wait for it?"""

    def __init__(
        self,
        store: ObjectStore,
        folder: Folder,
        job_id: str,
        run: str,
        *,
        every_s: float = AWAITED_S,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Begin; the job is known to be under way now."""
        self._store = store
        self._folder = folder
        self._job_id = job_id
        self._run = run
        self._every_s = every_s
        self._clock = clock or elapsed_s
        self._last_s = self._clock()
        self._lock = threading.Lock()

    def is_late(self) -> bool:
        """Say whether the job is known to have been committed; 1 request if it is time to look."""
        if not within(self._lock, self._is_due):
            return False
        try:
            return deciding.is_committed(self._store, self._folder, self._job_id, self._run)
        except CommitterError:
            return False  # who has to know it asks again

    def _is_due(self) -> bool:
        now_s = self._clock()
        if now_s - self._last_s < self._every_s:
            return False
        self._last_s = now_s
        return True
