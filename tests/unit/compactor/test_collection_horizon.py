"""When may a compaction act on the horizon that it published?  After readers could see it (I10)."""

from __future__ import annotations

from typing import Any

from compactor.check.facts import LOG
from compactor.check.singletons import Singletons
from omidpy.base.timing.clock import ManualClock
from omidpy.facts.commit_table import create_system_tables
from omidpy.facts.control import ControlTable
from omidpy.facts.watermarks import (
    COLLECTION_HORIZON,
    COLLECTION_LOG,
    MIN_COLLECTION_GRACE_S,
    Watermarks,
)
from omidpy.model import Timestamp
from omidpy.storage.memory import MemoryStore


class SlowStore(MemoryStore):
    """A store in which the change of one fact takes a while, as while a region moves."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.is_slow = False

    def check_and_mutate(self, table: str, row: bytes, *args: Any, **options: Any) -> bool:
        """Let time pass before the horizon changes."""
        if self.is_slow and row == COLLECTION_HORIZON:
            self.clock.advance(MIN_COLLECTION_GRACE_S)
        return super().check_and_mutate(table, row, *args, **options)


def test_the_age_of_a_horizon_counts_from_when_it_could_be_seen() -> None:
    """A young reader does not look, and trusts that what could pass it was public for a grace."""
    clock = ManualClock()
    store = SlowStore(clock)
    create_system_tables(store)
    watermarks = Watermarks(ControlTable(store))
    store.is_slow = True
    watermarks.publish_collection_horizon(Timestamp(500), clock)

    def aged() -> int:
        return watermarks.aged_collection_horizon(watermarks.ages(clock), grace_s=0.0)

    assert watermarks.collection_horizon() == 500
    assert aged() == 0, "published at this very moment"
    clock.advance(MIN_COLLECTION_GRACE_S)
    assert aged() == 500


def test_a_horizon_above_the_published_one_is_none() -> None:
    """A bit that turns in the log had every version dropped that a newer one hides."""
    clock = ManualClock()
    store = MemoryStore()
    create_system_tables(store)
    control = ControlTable(store)
    watermarks = Watermarks(control)
    watermarks.publish_collection_horizon(Timestamp(500), clock)
    raw = control.read(COLLECTION_LOG)
    assert raw is not None
    control.write(COLLECTION_LOG, raw.replace(b"500", b"9500", 1))
    clock.advance(MIN_COLLECTION_GRACE_S)
    assert watermarks.aged_collection_horizon(watermarks.ages(clock), grace_s=0.0) == 0
    assert "9500, which nobody has published" in watermarks.log_complaint()
    singletons = Singletons(store, clock=clock, stated={})
    ((fact, cell, finding),) = singletons.look()
    assert fact is LOG
    assert singletons.mend(fact, cell, finding) is not None
    assert watermarks.log_complaint() == ""
