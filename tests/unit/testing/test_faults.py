"""Faults that tests inject must happen where the test says, or the test proves nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.model import FamilySchema, TableSchema
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from omidpy.testing.contract import StoreContract, put
from omidpy.testing.faults import FaultyStore, Point, on


class TestFaultlessStore(StoreContract):
    """Without a plan the wrapper changes nothing."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """Return a wrapped empty store."""
        store = FaultyStore(MemoryStore())
        yield store
        store.close()


@pytest.fixture
def store() -> FaultyStore:
    """Return a wrapped store with one table."""
    store = FaultyStore(MemoryStore())
    store.create_table(TableSchema("t", [FamilySchema(b"cf")]))
    return store


def test_a_fault_before_a_write_leaves_nothing(store: FaultyStore) -> None:
    """The request was lost."""
    store.plans.append(on("write.before", StorageUnavailable("lost request"), nth=1))
    with pytest.raises(StorageUnavailable, match="lost request"):
        store.write({"t": [put(b"r", 1)]})
    assert store.get("t", [b"r"]) == [[]]
    store.write({"t": [put(b"r", 1)]})
    assert store.calls["write"] == 2


def test_a_fault_after_a_write_loses_only_the_answer(store: FaultyStore) -> None:
    """The write is there, and its caller does not know."""
    store.plans.append(on("write.after", StorageUnavailable("lost answer"), nth=2, table="t"))
    store.write({"t": [put(b"r", 1)]})
    with pytest.raises(StorageUnavailable, match="lost answer"):
        store.write({"t": [put(b"s", 1)]})
    assert [len(row) for row in store.get("t", [b"r", b"s"])] == [1, 1]


def test_points_name_the_call_its_tables_and_rows(store: FaultyStore) -> None:
    """A plan can tell a heal from a commit."""
    points: list[Point] = []
    store.plans.append(points.append)
    store.write({"t": [put(b"r", 1), put(b"s", 1)]})
    assert points == [
        Point("write.before", 1, ("t",), (b"r", b"s")),
        Point("write.after", 1, ("t",), (b"r", b"s")),
    ]


def test_each_page_of_a_scan_is_a_call(store: FaultyStore) -> None:
    """That is what a remote store would be asked; the last, empty answer counts too."""
    store.write({"t": [put(b"%d" % number, 1) for number in range(4)]})
    assert len(list(store.scan("t", page_rows=2))) == 2
    assert store.calls["scan"] == 3


def test_kill_ends_the_process_at_the_named_point() -> None:
    """No handler runs, nothing is flushed."""
    script = """
from omidpy.model import FamilySchema, TableSchema
from omidpy.storage.memory import MemoryStore
from omidpy.testing.contract import put
from omidpy.testing.faults import FaultyStore, kill, on
store = FaultyStore(MemoryStore(), on("write.before", kill, nth=2))
store.create_table(TableSchema("t", [FamilySchema(b"cf")]))
store.write({"t": [put(b"r", 1)]})
print("first", flush=True)
store.write({"t": [put(b"r", 2)]})
print("second", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (-9, "first\n")
