"""The memory store is the meaning that every backend is held to, so it is held to it first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omidpy.storage.memory import MemoryStore
from omidpy.testing.contract import StoreContract
from tests.machines.like_thrift1 import LikeThrift1


class TestMemoryStore(StoreContract):
    """`memory:` against the contract."""

    @pytest.fixture
    def store(self) -> Iterator[MemoryStore]:
        """Return an empty store."""
        store = MemoryStore()
        yield store
        store.close()


class TestLikeThrift1(StoreContract):
    """The same by poorer means: what is lacking is refused."""

    @pytest.fixture
    def store(self) -> Iterator[LikeThrift1]:
        """Return an empty store."""
        store = LikeThrift1()
        yield store
        store.close()
