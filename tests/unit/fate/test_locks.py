"""Queues for locks: what every store's contract says is in `omidpy/testing/fate/queues.py`."""

from __future__ import annotations

import pytest

from omidpy.errors import FateError
from omidpy.fate import Locks, TableFateStore, locks
from omidpy.fate.operation import new_id
from omidpy.storage.memory import MemoryStore


def test_a_queue_has_a_longest_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused with what to do, and nothing changes; those who stand in it go on."""
    monkeypatch.setattr(locks, "MAX_QUEUE", 3)
    queue = Locks(TableFateStore(MemoryStore()))
    first, *others = (new_id() for _ in range(3))
    for operation_id in (first, *others):
        queue.write("t", operation_id)
    full = queue.states()
    with pytest.raises(FateError, match="3 operations stand in the queue for locks on 't'"):
        queue.read("t", new_id())
    assert queue.states() == full
    queue.release(first)
    assert queue.write("t", others[0]) is None
    assert queue.read("t", new_id()) is not None
