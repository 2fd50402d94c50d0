"""What a store is besides its cells: its name, its locks, and how it is opened again and closed."""

from __future__ import annotations

import pytest

from omidpy.errors import NoSuchFamily, NoSuchTable, StorageUnavailable, UsageError
from omidpy.model import Cell, FamilySchema, TableSchema
from omidpy.storage.base import Store
from omidpy.testing.chapters.basics import CF, TABLE, Chapter, Q, keys_of, put, scan


class Life(Chapter):
    """A store is opened, locked, opened a second time and closed."""

    def test_a_lock_is_exclusive_until_released(self, store: Store) -> None:
        """A second embedded oracle on one file is refused, and told who is there."""
        if not store.capabilities.process_locks:
            with pytest.raises(UsageError, match="lock"):
                store.lock("oracle", purpose="test")
            return
        held = store.lock("oracle", purpose="the first oracle")
        with pytest.raises(StorageUnavailable, match="the first oracle"):
            store.lock("oracle", purpose="the second oracle")
        other = store.lock("another", purpose="something else")
        held.release()
        again = store.lock("oracle", purpose="the third oracle")
        held.release()
        with pytest.raises(StorageUnavailable, match="the third oracle"):
            store.lock("oracle", purpose="the fourth oracle")
        again.release()
        other.release()

    def test_a_lock_name_must_fit_a_file(self, store: Store) -> None:
        """The name becomes part of one."""
        if not store.capabilities.process_locks:
            return
        for name in ("", "../x", "a b"):
            with pytest.raises(UsageError, match="lock name"):
                store.lock(name, purpose="test")

    def test_the_store_has_an_address_and_an_id(self, store: Store) -> None:
        """Two names of one store are recognised by its id."""
        assert store.url
        assert store.store_id
        assert store.store_id == store.store_id

    def test_a_store_opened_again_is_the_same(self, things: Store) -> None:
        """Cells, tables, regions and id live in the store, not in the object."""
        splits = [b"m"] if things.capabilities.table_admin else []
        things.create_table(TableSchema("split", [FamilySchema(CF)]), splits=splits)
        things.write({TABLE: [put(b"r", 1)]})
        again = self.reopen(things)
        if again is None:
            return
        try:
            assert again.store_id == things.store_id
            assert again.schema(TABLE) == things.schema(TABLE)
            assert again.regions("split") == things.regions("split")
            assert again.get(TABLE, [b"r"]) == [[Cell(b"r", CF, Q, 1, b"v")]]
            again.write({TABLE: [put(b"s", 1)]})
            assert keys_of(scan(things, TABLE)) == [b"r", b"s"]
        finally:
            again.close()

    def test_a_table_replaced_through_another_opening_is_never_read(self, things: Store) -> None:
        """What one opening remembers of a table must not outlive the table."""
        things.write({TABLE: [put(b"r", 1)]})
        again = self.reopen(things)
        if again is None:
            return
        try:
            assert again.get(TABLE, [b"r"]) != [[]]
            again.write({TABLE: [put(b"s", 1)]})
            things.drop_table(TABLE)
            with pytest.raises(NoSuchTable):
                again.get(TABLE, [b"r"])
            things.create_table(TableSchema(TABLE, [FamilySchema(CF)]))
            assert again.get(TABLE, [b"r"]) == [[]]
            things.drop_table(TABLE)
            things.create_table(TableSchema(TABLE, [FamilySchema(b"new")]))
            with pytest.raises(NoSuchFamily):
                again.write({TABLE: [put(b"s", 1)]})
            again.write({TABLE: [put(b"s", 1, family=b"new")]})
            assert keys_of(scan(things, TABLE)) == [b"s"]
        finally:
            again.close()

    def test_a_closed_store_refuses_and_closes_again(self, things: Store) -> None:
        """Closing twice does nothing; using it afterwards says that it is closed."""
        things.close()
        things.close()
        for call in (lambda: things.get(TABLE, [b"r"]), lambda: things.write({TABLE: []})):
            with pytest.raises(StorageUnavailable, match="closed"):
                call()
