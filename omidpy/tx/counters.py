"""Counters in the columns of a transactional table.

A counter is an INT64 cell that the transaction reads and writes: two transactions that change one
at the same time conflict, and one of them runs again.  An absent counter is zero.

Source: happybase's counter methods.  Theirs ask the server for an atomic increment, which no
transaction could take back.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, SupportsIndex

from omidpy.base.words.arguments import parse_column
from omidpy.codec import INT64
from omidpy.errors import UsageError


def check_amount(amount: object) -> int:
    """Return what is added to a counter, if it is a whole number.

    Raises:
        TypeError: it is none.
    """
    if isinstance(amount, bool) or not isinstance(amount, SupportsIndex):  # of numpy's, too
        raise TypeError(f"a counter is changed by a whole number, not {amount!r:.80}")
    return operator.index(amount)


class Writes(Protocol):
    """What the table writes."""

    def alone(self) -> AbstractContextManager[None]:
        """Let no other thread write meanwhile."""
        ...

    def put_once(self, row: bytes, data: Mapping[bytes, bytes]) -> None:
        """Put columns of a row, where to do so again would do something else."""
        ...


class Cells(Protocol):
    """The table that the counters are in."""

    name: str

    @property
    def writes(self) -> Writes:
        """What it writes into its transaction."""
        ...

    @property
    def is_conflict_free(self) -> bool:
        """Whether the oracle looks for no conflict of what is written through this object."""
        ...

    def row(self, row: bytes, columns: Iterable[bytes] | None = None) -> dict[bytes, Any]:
        """Read a row, its own writes included."""
        ...

    def put(self, row: bytes, data: Mapping[bytes, bytes]) -> None:
        """Write columns of a row."""
        ...


class Counters:
    """The counter methods of a table."""

    def counter_get(self: Cells, row: bytes, column: bytes) -> int:
        """Return a counter; 0 where there is none.

        Raises:
            CorruptCell: the column holds something else than 8 bytes.
        """
        parse_column(column)
        value = self.row(row, columns=[column]).get(column)
        return 0 if value is None else INT64.decode(value)

    def counter_set(self: Cells, row: bytes, column: bytes, value: int = 0) -> None:
        """Set a counter, whatever it was."""
        self.put(row, {column: INT64.encode(value)})

    def counter_add(self: Cells, row: bytes, column: bytes, amount: int) -> int:
        """Add to a counter, or take from it, and return its new value.

        Raises:
            UsageError: the sum does not fit in 64 bits; or the table was opened `conflict_free`,
                where two transactions would count once; or another thread writes in this one.
            StorageError: it could not be read, and nothing was added; or past 2 MiB a flush failed,
                and the transaction, or the savepoint that is open, can only be rolled back, so that
                who calls again does not add twice.

        Cost: 1 get.
        """
        if self.is_conflict_free:
            raise UsageError(
                f"a counter of table {self.name!r} cannot be changed without conflict detection: "
                "two transactions would count once; use tx.table(name) for it"
            )
        amount = check_amount(amount)
        with self.writes.alone():  # another thread would read what this one is about to replace
            value = Counters.counter_get(self, row, column) + amount
            self.writes.put_once(row, {column: INT64.encode(value)})
        return value

    def counter_inc(self: Cells, row: bytes, column: bytes, value: int = 1) -> int:
        """Raise a counter by `value` and return its new value."""
        return Counters.counter_add(self, row, column, value)

    def counter_dec(self: Cells, row: bytes, column: bytes, value: int = 1) -> int:
        """Lower a counter by `value` and return its new value."""
        return Counters.counter_add(self, row, column, -check_amount(value))
