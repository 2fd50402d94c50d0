"""What the chapters about transactions share: fresh tables, and short ways to write and read."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import pytest

from omidpy.manager import TransactionManager
from omidpy.tx.table import TransactionalTable
from omidpy.tx.transaction import Transaction

_names = itertools.count()

COLUMN: Final = b"cf:q"
Rows = list[tuple[bytes, dict[bytes, Any]]]


def put(tm: TransactionManager, name: str, rows: dict[bytes, dict[bytes, bytes]]) -> Transaction:
    """Commit some rows in one transaction, and return it."""
    with tm.begin() as tx:
        for row, data in rows.items():
            tx.table(name).put(row, data)
    return tx


def cells(tm: TransactionManager, name: str) -> int:
    """Return how many cells a table holds, shadow cells included."""
    tm.session.post_committer.drain()
    versions = None if tm.store.capabilities.multi_version_scan else 1
    return sum(len(row) for page in tm.store.scan(name, max_versions=versions) for row in page)


def assert_only(tm: TransactionManager, name: str, count: int) -> None:
    """Assert that a rollback left `count` cells; where it could take none back, it left more."""
    left = cells(tm, name)
    assert left == count if tm.store.capabilities.exact_delete else left >= count


class Chapter:
    """Tests of one side of transactions, on a manager that a fixture `tm` supplies."""

    @pytest.fixture
    def name(self, tm: TransactionManager) -> str:
        """Return the name of a fresh table of two families, in three regions."""
        name = f"t{next(_names)}"
        tm.create_table(name, families=["cf", "other"], splits=[b"d", b"m"])
        return name

    @pytest.fixture
    def filled(self, tm: TransactionManager, name: str) -> str:
        """Return a table with the rows a to h, each with its key as value."""
        keys = [bytes((letter,)) for letter in b"abcdefgh"]
        put(tm, name, {key: {COLUMN: key, b"other:": key} for key in keys})
        return name

    @pytest.fixture(params=["buffered", "flushed"])
    def settle(self, request: pytest.FixtureRequest) -> Callable[[Transaction], None]:
        """Do nothing, or flush: own writes are seen in the buffer and in the store alike."""
        return Transaction.flush if request.param == "flushed" else (lambda _: None)

    def _rows(self, tm: TransactionManager, name: str, **options: Any) -> Rows:
        """Return what a fresh transaction scans."""
        with tm.begin() as tx:
            return list(self._table(tx, name).scan(**options))

    def _table(self, tx: Transaction, name: str) -> TransactionalTable:
        return tx.table(name)
