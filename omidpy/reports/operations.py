"""Operations of several steps, as of now, and who may change them."""

from __future__ import annotations

from functools import partial

from omidpy.admin.table_steps import give_up_making
from omidpy.base.timing.clock import SystemClock
from omidpy.fate.admin import Admin
from omidpy.fate.looking import look
from omidpy.fate.store import FateStore
from omidpy.fate.table.store import TableFateStore
from omidpy.fate.view import Snapshot


def read(fates: FateStore) -> Snapshot:
    """Read everything that there is."""
    return look(fates, now_ms=SystemClock().wall_ms())


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
