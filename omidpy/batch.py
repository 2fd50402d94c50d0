"""Puts and deletes that reach a transaction in one go.

A batch checks what it collects at once, and hands it over in the order it was collected.

Source: happybase's Batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Protocol, Self

from omidpy.arguments import check_row, parse_columns, refuse


class Target(Protocol):
    """The table that a batch writes to."""

    def put(self, row: bytes, data: Mapping[bytes, bytes]) -> None:
        """Write columns of a row."""
        ...

    def delete(self, row: bytes, columns: Iterable[bytes] | None = None) -> None:
        """Delete a row, families of it, or columns of it."""
        ...


class Batch:
    """What was collected, until `send` or the end of the `with` block."""

    def __init__(self, table: Target, batch_size: int | None, *, discard_on_error: bool) -> None:
        self._table = table
        self._batch_size = batch_size
        self._discard_on_error = discard_on_error
        self._operations: list[tuple[bytes, Mapping[bytes, bytes] | None, list[bytes] | None]] = []

    def put(self, row: bytes, data: Mapping[bytes, bytes], wal: bool | None = None) -> None:  # noqa: FBT001 - happybase's signature
        """Collect a put; arguments as in `TransactionalTable.put`."""
        refuse("wal", None if wal in (None, True) else wal)
        self._add(row, dict(data), None)

    def delete(
        self,
        row: bytes,
        columns: Iterable[bytes] | None = None,
        wal: bool | None = None,  # noqa: FBT001 - happybase's signature
    ) -> None:
        """Collect a delete; arguments as in `TransactionalTable.delete`."""
        refuse("wal", None if wal in (None, True) else wal)
        parse_columns(columns)
        self._add(row, None, None if columns is None else list(columns))

    def send(self) -> None:
        """Hand what was collected to the transaction, in the order it was collected."""
        operations, self._operations = self._operations, []
        for row, data, columns in operations:
            if data is None:
                self._table.delete(row, columns)
            else:
                self._table.put(row, data)

    def _add(
        self, row: bytes, data: Mapping[bytes, bytes] | None, columns: list[bytes] | None
    ) -> None:
        check_row(row)
        self._operations.append((row, data, columns))
        if self._batch_size is not None and len(self._operations) >= self._batch_size:
            self.send()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is not None and self._discard_on_error:
            self._operations = []
            return
        self.send()
