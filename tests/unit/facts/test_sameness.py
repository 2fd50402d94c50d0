"""A read that takes long notices that its table is another one by its end."""

from __future__ import annotations

import pytest

from omidpy.base.tables import INCARNATION_ATTRIBUTE, new_incarnation
from omidpy.errors import NoSuchTable, StorageError
from omidpy.facts.tables.sameness import check_same, is_same, which_table
from omidpy.model import FamilySchema, TableSchema
from omidpy.storage.memory import MemoryStore
from tests.machines.restoring import RestoringStore


def create(store: MemoryStore) -> None:
    """Make a table of an incarnation of its own."""
    schema = TableSchema("t", [FamilySchema(b"cf", {})], {INCARNATION_ATTRIBUTE: new_incarnation()})
    store.create_table(schema)


@pytest.mark.parametrize("kind", [MemoryStore, RestoringStore])
def test_a_table_that_was_made_anew_is_another(kind: type[MemoryStore]) -> None:
    """So is one that is gone, and one that nobody has touched is not."""
    store = kind()
    create(store)
    which = which_table(store, "t")
    check_same(store, "t", which)
    assert is_same(store, "t", which)
    store.drop_table("t")
    with pytest.raises(StorageError, match="'t' was dropped, truncated"):
        check_same(store, "t", which)
    create(store)
    with pytest.raises(StorageError, match="read it anew"):
        check_same(store, "t", which)
    assert not is_same(store, "t", which)
    store.drop_table("t")
    with pytest.raises(NoSuchTable):
        which_table(store, "t")


def test_a_table_that_was_restored_is_not_what_it_was() -> None:
    """It has its incarnation; one that was disabled and enabled may have been."""
    store = RestoringStore()
    create(store)
    which, kept = which_table(store, "t"), store.snapshot("t")
    store.restore("t", kept)
    with pytest.raises(StorageError, match="perhaps restored"):
        check_same(store, "t", which)
    which = which_table(store, "t")
    store.enable_again("t")
    assert not is_same(store, "t", which)
