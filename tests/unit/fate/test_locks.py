"""Queues for locks: what every store's contract says is in `omidpy/testing/fate/queues.py`."""

from __future__ import annotations

from typing import Any

import pytest

from omidpy.errors import FateError, UsageError
from omidpy.fate import Locks, TableFateStore, locks
from omidpy.fate.operation import new_id
from omidpy.model import KeyRange
from omidpy.storage.memory import MemoryStore
from omidpy.testing.fate.basics import an_operation


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


@pytest.mark.parametrize(
    ("operation_id", "key_range", "error"),
    [
        ("mine", KeyRange(), UsageError),
        (b"0123456789abcdef", KeyRange(), UsageError),
        ("0123456789abcdef", KeyRange("a", "b"), TypeError),  # type: ignore[arg-type]  # what is tested
        ("0123456789abcdef", KeyRange(b"a", None), TypeError),  # type: ignore[arg-type]  # the same
        ("0123456789abcdef", ("aaaa", "bbbb"), TypeError),
    ],
)
def test_what_nobody_could_read_again_is_no_lock(
    operation_id: Any, key_range: Any, error: type[Exception]
) -> None:
    """A bound that is text made the queue unreadable, for all who use the table."""
    fates = TableFateStore(MemoryStore())
    for ask in (Locks(fates).read, Locks(fates).write):
        with pytest.raises(error):
            ask("t", operation_id, key_range)
    assert list(fates.lock_queues()) == []
    assert fates.lock_users == set()


def test_who_has_locked_is_forgotten_where_another_executor_ends_it() -> None:
    """An executor that runs for long remembered each operation that others have ended."""
    store = MemoryStore()
    fates, others = TableFateStore(store), TableFateStore(store)
    ended, live = (fates.submit(an_operation()) for _ in range(2))
    for one in (ended, live):
        assert Locks(fates).read("t", one.id) is None
    Locks(others).release(ended.id)
    others.delete(ended)
    Locks(fates).release_dangling()
    assert fates.lock_users == {live.id}
    others.delete(live)
    Locks(others).release_dangling()
    Locks(fates).release_dangling()
    assert fates.lock_users == set()
