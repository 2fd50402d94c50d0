"""The key that lies in a store for those who may write it."""

from __future__ import annotations

import pytest

from omidpy.base.tables import CONTROL_TABLE
from omidpy.facts.commit_table import create_system_tables
from omidpy.facts.control import ControlTable, put_value
from omidpy.facts.writers import WRITER_KEY_FACT, make_writer_key, read_writer_key
from omidpy.storage.memory import MemoryStore


def test_it_is_drawn_once() -> None:
    """Two stores have two keys, and one store has one."""
    first, second = MemoryStore(), MemoryStore()
    assert read_writer_key(first) is None
    for store in (first, second):
        create_system_tables(store)
        assert read_writer_key(store) is None
    key = make_writer_key(first)
    assert key is not None
    assert make_writer_key(first) == read_writer_key(first) == key
    assert make_writer_key(second) != key


@pytest.mark.parametrize("garbled", [b"short", bytes(17)])
def test_what_is_no_key_lets_nobody_bring_cells(garbled: bytes) -> None:
    """Neither the oracle nor its clients believe it, and commits go in steps."""
    store = MemoryStore()
    create_system_tables(store)
    make_writer_key(store)
    store.write({CONTROL_TABLE: [put_value(WRITER_KEY_FACT, garbled)]})
    assert make_writer_key(store) is None
    assert read_writer_key(store) is None
    assert ControlTable(store).read(WRITER_KEY_FACT) == garbled
