"""A write was made, and its sync failed: whoever finds it done must not take it for durable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from omidpy.base.cells import encode_long
from omidpy.base.tables import CONTROL_TABLE
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import StorageUnavailable
from omidpy.facts.commit_table import (
    LOW_WATERMARK_FACT,
    TIMESTAMP_CEILING_ROW,
    TIMESTAMP_TABLE,
    create_system_tables,
)
from omidpy.facts.control import ControlTable
from omidpy.facts.leadership import LEASE_FACT
from omidpy.facts.tables.makers import MADE_PREFIX, Makers
from omidpy.facts.watermarks import PRUNE_HORIZON, PRUNE_LEASE
from omidpy.storage.base import Capabilities
from omidpy.storage.memory import MemoryStore
from tso.core.events import Batch, Now
from tso.core.settings import Settings
from tso.durable.lease import Lease
from tso.durable.persist import StorePersistence


class Slow(MemoryStore):
    """A store like HBase, of whose checked changes the next one is made and not synced."""

    def __init__(self) -> None:
        super().__init__()
        self.unsynced: set[tuple[str, bytes]] = set()
        """Rows that a loss of power would turn back."""
        self.fails_next = False
        create_system_tables(self)

    @property
    def capabilities(self) -> Capabilities:
        """Lack what HBase lacks."""
        return replace(super().capabilities, guarded_batches=False, process_locks=False)

    def check_and_mutate(self, table: str, row: bytes, *arguments: Any, **options: Any) -> bool:
        """Change a row; a durable change that is made syncs it, unless that fails."""
        is_made = super().check_and_mutate(table, row, *arguments, **options)
        if is_made and options.get("durable"):
            self.unsynced.discard((table, row))
        if self.fails_next:
            self.fails_next = False
            self.unsynced.add((table, row))
            raise StorageUnavailable("a sync failed")
        return is_made


@pytest.fixture
def store() -> Slow:
    """Return one with the system tables."""
    return Slow()


def _twice(store: Slow, act: Callable[[], object], table: str, row: bytes) -> None:
    """Do something whose sync fails, and do it again."""
    store.fails_next = True
    with pytest.raises(StorageUnavailable):
        act()
    assert store.unsynced == {(table, row)}
    act()
    assert not store.unsynced


def test_a_ceiling_that_is_found_raised_is_synced(store: Slow) -> None:
    """Timestamps are issued below it: lost with the power they would be issued again (I1)."""
    clock = ManualClock()
    lease = Lease(store, holder="me", clock=clock)
    assert lease.try_acquire() is None
    persistence = StorePersistence(store, lease)
    now = Now(clock.wall_ms(), clock.monotonic_s())
    ceiling = persistence.start(Settings(), now, accept_clock=False).ceiling + 50
    _twice(
        store,
        lambda: persistence.flush(Batch(ceiling=ceiling)),
        TIMESTAMP_TABLE,
        TIMESTAMP_CEILING_ROW,
    )


def test_a_lease_that_is_found_renewed_is_synced(store: Slow) -> None:
    """Lost with the power, it would be its predecessor's again, who could go on."""
    clock = ManualClock()
    lease = Lease(store, holder="me", clock=clock)
    assert lease.try_acquire() is None
    clock.advance(5)
    _twice(store, lease.check, CONTROL_TABLE, LEASE_FACT)


def test_a_number_that_is_found_high_enough_is_synced(store: Slow) -> None:
    """It is durable on return, whoever has raised it."""
    control = ControlTable(store)
    _twice(
        store,
        lambda: control.raise_number(LOW_WATERMARK_FACT, 5000),
        CONTROL_TABLE,
        LOW_WATERMARK_FACT,
    )
    assert control.read_number(LOW_WATERMARK_FACT) == 5000
    assert control.raise_number(LOW_WATERMARK_FACT, 100) == 5000
    assert control.read(LOW_WATERMARK_FACT) == encode_long(5000)


def test_a_fact_of_ones_own_that_is_found_is_synced(store: Slow) -> None:
    """The state of a bucket, whose owner hands entries over by it."""
    control = ControlTable(store)
    store.fails_next = True
    with pytest.raises(StorageUnavailable):
        control.replace_own(b"fact", None, b"ours")
    assert store.unsynced
    assert control.replace_own(b"fact", None, b"ours")
    assert not store.unsynced
    assert not control.replace_own(b"fact", None, b"another's")


def test_what_stands_beside_a_fact_and_is_found_is_synced(store: Slow) -> None:
    """The lease of a compaction, which with the power would be its predecessor's again."""
    control, taken = ControlTable(store), (PRUNE_HORIZON, PRUNE_LEASE, None, b"ours")
    store.fails_next = True
    with pytest.raises(StorageUnavailable):
        control.write_beside(*taken)
    assert store.unsynced
    assert control.write_beside(*taken)
    assert not store.unsynced
    assert not control.write_beside(PRUNE_HORIZON, PRUNE_LEASE, None, b"another's")


def test_the_maker_of_a_table_that_is_found_is_synced(store: Slow) -> None:
    """Clients write to the table, which would be a ghost if another came to be named."""
    row = MADE_PREFIX + b"0123"
    _twice(store, lambda: Makers(store).give_up("0123"), CONTROL_TABLE, row)
