"""The embedded store means what the memory store means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omidpy.storage.base import Store
from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.contract import StoreContract


class TestSqliteStore(StoreContract):
    """`sqlite:///` against the contract."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqliteStore]:
        """Return an empty store in a file of its own."""
        store = SqliteStore(tmp_path / "store.db")
        yield store
        store.close()

    def reopen(self, store: Store) -> Store:
        """Open the same file again."""
        return SqliteStore(store.url.removeprefix("sqlite:///"), must_exist=True)
