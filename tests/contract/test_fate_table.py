"""Operations in a table mean the same in memory, in a file and on HBase."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omidpy.base.timing.clock import ManualClock
from omidpy.fate.locks import Locks
from omidpy.fate.operation import new_id
from omidpy.fate.store import FateStore
from omidpy.fate.table.store import FATE_TABLE, FORMAT_ROW, LOCK_PREFIX, TableFateStore
from omidpy.life.base import Judge, Member
from omidpy.storage.base import DeleteVersion, RowMutation, Store
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.fate.basics import LEASE_S
from omidpy.testing.fate.contract import FateStoreContract
from tests.machines.hbase import HBase
from tests.machines.hbase_store import HBaseStore, open_hbase


class InATable(FateStoreContract):
    """Operations in a table of a store that a fixture `store` supplies."""

    @pytest.fixture
    def fates(self, store: Store) -> TableFateStore:
        """Return an empty store of operations."""
        return TableFateStore(store)

    def reopen(self, fates: FateStore) -> FateStore:
        """Read the same table by another object."""
        assert isinstance(fates, TableFateStore)
        return TableFateStore(fates._store)

    def let_die(self, worker: Member, judge: Judge, clock: ManualClock) -> None:
        """Let its lease pass while the judge looks now and then."""
        for _ in range(5):
            judge.dead([worker.id])
            clock.advance(LEASE_S / 4)


class TestInMemory(InATable):
    """`memory:`."""

    @pytest.fixture
    def store(self) -> MemoryStore:
        """Return an empty store."""
        return MemoryStore()


class TestInAFile(InATable):
    """`sqlite:///`."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqliteStore]:
        """Return an empty store."""
        store = SqliteStore(tmp_path / "store.db")
        yield store
        store.close()


class TestOnHBase(InATable):
    """`hbase://`, and at night `hbase+thrift2://`."""

    @pytest.fixture
    def store(self, opened: HBaseStore) -> Iterator[HBaseStore]:
        """Return a store without operations, whose table has held some."""
        yield opened
        # Queues of locks, and the format, are never deleted: HBase would hide them afterwards.
        fates = TableFateStore(opened)
        for state in Locks(fates).states():
            Locks(fates).release(state.entry.operation)
        rows = [cells for page in opened.scan(FATE_TABLE) for cells in page]
        deletes = [
            RowMutation(cells[0].row, deletes=[DeleteVersion(*cell[1:4]) for cell in cells])
            for cells in rows
            if not cells[0].row.startswith((LOCK_PREFIX, FORMAT_ROW))
        ]
        opened.write({FATE_TABLE: deletes})


@pytest.fixture(scope="module")
def opened(hbase: HBase) -> Iterator[HBaseStore]:
    """Return a store on HBase with a table for operations; made and dropped once: it takes long."""
    store = open_hbase(hbase)
    Locks(TableFateStore(store)).write("any", new_id())
    yield store
    store.drop_table(FATE_TABLE)
    store.close()
