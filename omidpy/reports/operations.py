"""Operations of several steps, as of now, and who may change them."""

from __future__ import annotations

from functools import partial

from omidpy.admin.table_steps import give_up_making
from omidpy.base.clock import SystemClock
from omidpy.fate.admin import Admin
from omidpy.fate.locks import Locks, lock_states
from omidpy.fate.store import FateStore
from omidpy.fate.table.store import TableFateStore
from omidpy.fate.view import Snapshot, snapshot


def read(fates: FateStore) -> Snapshot:
    """Read everything that there is."""
    # Locks first: an operation is there before its locks, and they end before it goes.
    queues, unreadable = Locks(fates).read_queues()
    workers = fates.worker_names()
    now_ms = SystemClock().wall_ms()
    return snapshot(
        list(fates.scan()),
        lock_states(queues),
        workers,
        now_ms=now_ms,
        unreadable_queues=unreadable,
    )


def administrator(fates: FateStore, *, wait_s: float) -> Admin:
    """Return what cancels, fails and deletes operations.

    Args:
        fates: Where they are.
        wait_s: How long to wait for one that an executor has.
    """
    # Of operations in ZooKeeper nobody here knows where their tables are.
    cells = fates.cells if isinstance(fates, TableFateStore) else None
    before_delete = None if cells is None else partial(give_up_making, cells)
    return Admin(fates, wait_s=wait_s, before_delete=before_delete)
