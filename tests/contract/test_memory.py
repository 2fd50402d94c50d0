"""The memory store is the meaning that every backend is held to, so it is held to it first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omidpy.storage.memory import MemoryStore
from omidpy.testing.contract import StoreContract


class TestMemoryStore(StoreContract):
    """`memory:` against the contract."""

    @pytest.fixture
    def store(self) -> Iterator[MemoryStore]:
        """Return an empty store."""
        store = MemoryStore()
        yield store
        store.close()
