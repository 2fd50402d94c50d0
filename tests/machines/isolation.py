"""A table of two rows, as the Hermitage tests use it, and transactions on it in few words."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from omidpy.errors import WriteConflict
from omidpy.manager import TransactionManager
from omidpy.tx.transaction import Transaction

COLUMN = b"cf:value"


class Bench:
    """Rows `1` -> 10 and `2` -> 20, and the transactions of one test."""

    def __init__(self, tm: TransactionManager, *, is_flushing: bool) -> None:
        """Make a table of its own.

        Args:
            tm: Any manager.
            is_flushing: Send every write at once, so that it lies in the store, tentative, while
                others read.
        """
        self.tm = tm
        self.is_flushing = is_flushing
        self.table = f"isolation_{uuid.uuid4().hex}"
        tm.create_table(self.table, ["cf"])
        with tm.begin() as tx:
            for row, value in (("1", 10), ("2", 20)):
                tx.table(self.table).put(row.encode(), {COLUMN: b"%d" % value})

    def begin(self) -> Actor:
        """Begin a transaction."""
        return Actor(self, self.tm.begin())

    def state(self) -> dict[str, int]:
        """Return what a fresh transaction sees."""
        return self.begin().all()


class Actor:
    """One transaction on the table."""

    def __init__(self, bench: Bench, tx: Transaction) -> None:
        self.tx = tx
        self._bench = bench
        self._table = tx.table(bench.table)

    def get(self, row: str) -> int | None:
        """Return the value of a row."""
        value = self._table.row(row.encode()).get(COLUMN)
        return None if value is None else int(value)

    def where(self, predicate: Callable[[int], bool]) -> dict[str, int]:
        """Return the rows whose value satisfies a predicate."""
        return {row: value for row, value in self.all().items() if predicate(value)}

    def all(self) -> dict[str, int]:
        """Return every row."""
        return {row.decode(): int(data[COLUMN]) for row, data in self._table.scan()}

    def set(self, row: str, value: int) -> None:
        """Write a row."""
        self._table.put(row.encode(), {COLUMN: b"%d" % value})
        self._flush()

    def delete(self, row: str) -> None:
        """Delete a row."""
        self._table.delete(row.encode())
        self._flush()

    def _flush(self) -> None:
        if self._bench.is_flushing:
            self.tx.flush()

    def commit(self) -> None:
        """Commit."""
        self.tx.commit()

    def rollback(self) -> None:
        """Roll back."""
        self.tx.rollback()

    def conflicts(self) -> None:
        """Commit, and expect that somebody else was first."""
        with pytest.raises(WriteConflict):
            self.tx.commit()
