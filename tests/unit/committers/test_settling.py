"""What a worker of Spark keeps for ever is not looked through after each task."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from omidpy.committers.spark.settling import MOST_SETTLINGS, NEW_OBJECTS, REUSED, Settler


@pytest.fixture(autouse=True)
def _reused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be a worker that runs many tasks, and one that has settled nothing before and after."""
    monkeypatch.setenv(REUSED, "1")
    gc.unfreeze()
    yield
    gc.unfreeze()


def lasting() -> list[list[int]]:
    """Return what a task may leave to the next ones."""
    return [[] for _ in range(NEW_OBJECTS)]


def test_what_stays_is_not_looked_through_again() -> None:
    """Spark collects after each task, which took longer than the task."""
    kept = lasting()
    Settler().settle()
    assert gc.get_freeze_count() > len(kept)
    assert len(gc.get_objects()) < NEW_OBJECTS


def test_garbage_is_collected_first() -> None:
    """It could never be collected afterwards."""

    class Node:
        other: Node

    node = Node()
    node.other = node
    seen = weakref.ref(node)
    gc.disable()
    try:
        del node
        assert seen() is not None
        Settler().settle()
    finally:
        gc.enable()
    assert seen() is None


def test_what_comes_later_settles_too() -> None:
    """A client comes with the first upload, which may be that of a later job."""
    settler = Settler()
    settler.settle()
    first = gc.get_freeze_count()
    kept = lasting()
    settler.settle()
    assert gc.get_freeze_count() > first + len(kept) // 2


def test_a_little_is_left_to_the_collector() -> None:
    """Nothing of a task that has come and gone settles."""
    settler = Settler()
    settler.settle()
    first = gc.get_freeze_count()
    settler.settle()
    assert gc.get_freeze_count() <= first


def test_a_process_settles_a_few_times_at_most() -> None:
    """M4: what a task of the user's own holds, and lets go in cycles, may not add up."""
    settler = Settler()
    kept = []
    for _ in range(MOST_SETTLINGS):
        kept.append(lasting())
        settler.settle()
    last = gc.get_freeze_count()
    kept.append(lasting())
    settler.settle()
    assert gc.get_freeze_count() <= last


def test_a_worker_of_one_task_settles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends before anybody would look."""
    monkeypatch.delenv(REUSED)
    kept = lasting()
    Settler().settle()
    assert gc.get_freeze_count() == 0
    assert kept
