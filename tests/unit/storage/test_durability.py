"""What must outlive a power loss, or a server, before something else may go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from compactor.tables.adoption import plan_adoption
from omidpy.base.tables import OMID_ENABLED
from omidpy.errors import NotTransactional, UsageError
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.model import FamilySchema, TableSchema
from omidpy.storage.base import Capabilities, RowMutation
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import World
from tests.machines.clients import TABLE, Client


class LogPerServer(MemoryStore):
    """A store whose durable writes say nothing about earlier ones, as HBase is."""

    def __init__(self, *, is_one_log: bool = False) -> None:
        super().__init__()
        self.is_one_log = is_one_log
        self.durable: list[bool] = []
        """Of each write to the table `t` by a compaction, whether it was asked to be durable."""

    @property
    def capabilities(self) -> Capabilities:
        """Lack what comes with one log."""
        return replace(super().capabilities, guarded_batches=self.is_one_log)

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Note what was asked."""
        if "t" in batch:
            self.durable.append(durable)
        super().write(batch, durable=durable)


@pytest.mark.parametrize("is_one_log", [False, True])
def test_heals_are_as_durable_as_the_claim_that_rests_on_them(*, is_one_log: bool) -> None:
    """I6: else a loss of power leaves the claim, and the entry is pruned without the shadow cell.

    In one log the durable claim makes them so, and nobody pays for it twice.
    """
    store = LogPerServer(is_one_log=is_one_log)
    world = World(store)
    world.table()
    world.put(b"a", 500)
    world.enter(500, 550)
    store.durable.clear()
    assert world.compact().cells_healed == 1
    assert store.durable == [not is_one_log]


@pytest.mark.parametrize("durability", ["ASYNC_WAL", "SKIP_WAL"])
def test_a_table_that_loses_acknowledged_writes_is_refused(durability: str) -> None:
    """Its shadow cells could go with a server after the commit entry was removed (I5)."""
    client = Client()
    client.store.set_table_attributes(TABLE, {"DURABILITY": durability})
    client.tm.session.catalog._layouts.clear()
    with pytest.raises(NotTransactional, match=f"DURABILITY={durability}.*'USE_DEFAULT'"):
        client.tm.begin().table(TABLE)
    client.store.set_table_attributes(TABLE, {"DURABILITY": "FSYNC_WAL"})
    client.tm.begin().table(TABLE)


@pytest.mark.parametrize("may_alter", [False, True])
def test_a_table_that_loses_acknowledged_writes_is_not_adopted(*, may_alter: bool) -> None:
    """Taking limits of versions away does not mend that."""
    store = MemoryStore()
    families = (FamilySchema(b"cf", {OMID_ENABLED: "true", "VERSIONS": "1"}),)
    store.create_table(TableSchema("java", families, {"DURABILITY": "ASYNC_WAL"}))
    with pytest.raises(UsageError, match="loses acknowledged writes"):
        plan_adoption(store, "java", COMMIT_TABLE, may_alter=may_alter)
