"""Read every operation and every lock, for those who show them: `omidpy fate list`, and metrics.

Lacks what is shown of them: `view.py`, `listing.py`.
"""

from __future__ import annotations

from omidpy.fate.locks import Locks, lock_states
from omidpy.fate.store import FateStore
from omidpy.fate.view import Snapshot, snapshot


def look(fates: FateStore, *, now_ms: int) -> Snapshot:
    """Read everything that there is; `now_ms` is wall time, which ages are counted from.

    Cost: 1 scan of the operations, 1 of their locks, and 1 of the executors.
    """
    # Locks first: an operation is there before its locks, and they end before it goes.
    queues, unreadable = Locks(fates).read_queues()
    workers = fates.worker_names()
    return snapshot(
        list(fates.scan()),
        lock_states(queues),
        workers,
        now_ms=now_ms,
        unreadable_queues=unreadable,
    )
