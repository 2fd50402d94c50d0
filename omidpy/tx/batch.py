"""Puts and deletes that reach a transaction in one go.

A batch checks what it collects at once, and hands it over in the order it was collected: all of it,
or nothing where a read that a delete needs fails.  When its block raises nothing is handed over.

What it handed over before, every `batch_size` operations or by `send`, stays in the transaction's
buffer, and must not be committed by a caller who does not know that it is half of something: until
the block has ended well the transaction can only be rolled back, or the savepoint around the batch
undone.  Nobody has to do anything for that when an exception comes.

Source: happybase's Batch.  There, a batch whose block raises is sent all the same unless it was
made with `transaction=True`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from omidpy.base.callers.alone import Alone
from omidpy.base.words.arguments import refuse
from omidpy.errors import StorageError
from omidpy.tx.writes.table_writes import CheckedPut, CheckedWrite, TableWrites


class Batch(Alone):
    """What was collected, until `send` or the end of the `with` block."""

    _instead = "call batch() of a table where it is filled"

    def __init__(self, writes: TableWrites, batch_size: int | None) -> None:
        self._writes = writes
        self._batch_size = batch_size
        self._collected: list[CheckedWrite] = []
        self._sent_count = 0
        self._is_block = False
        """Whether a `with` block says what belongs together."""
        self.is_repeatable = True
        """Whether to write the same again changes nothing, as for who is told of a failure."""

    def put(self, row: bytes, data: Mapping[bytes, bytes], wal: bool | None = None) -> None:  # noqa: FBT001 - happybase's signature
        """Collect a put; arguments and errors as in `TransactionalTable.put`."""
        refuse("wal", None if wal in (None, True) else wal)
        self._add(CheckedPut(row, self._writes.checked_cells(row, data)))

    def delete(
        self,
        row: bytes,
        columns: Iterable[bytes] | None = None,
        wal: bool | None = None,  # noqa: FBT001 - happybase's signature
    ) -> None:
        """Collect a delete; arguments and errors as in `TransactionalTable.delete`."""
        refuse("wal", None if wal in (None, True) else wal)
        self._add(self._writes.checked_delete(row, columns))

    def send(self) -> None:
        """Hand what was collected to the transaction, in the order it was collected.

        Raises:
            StorageError, SnapshotTooOld: nothing was handed over and all of it stays collected; or
                a flush failed, and all of it was handed over.

        Cost: 1 get if rows or families are deleted.
        """
        if not self._collected:
            return
        found = self._writes.read_for(self._collected)
        if self._is_block:
            self._writes.begin_half(self)
        # From here on, whatever comes in between: the transaction has some of it, or all.
        collected, self._collected = self._collected, []
        self._sent_count += len(collected)
        self._writes.apply(collected, found)

    def _add(self, write: CheckedWrite) -> None:
        self._collected.append(write)
        if self._batch_size is not None and len(self._collected) >= self._batch_size:
            self.send()

    def __enter__(self) -> Self:
        self._is_block = True
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is None:
            try:
                self.send()
            except StorageError:
                # Only a flush has failed, and the transaction has it all.
                if not self._collected and self.is_repeatable:
                    self._writes.end_half(self)
                raise
            self._is_block = False
            self._writes.end_half(self)
            return
        self._collected = []
        if self._sent_count:
            self._writes.spoil(
                f"a batch of table {self._writes.name!r} was left by {exc_type.__name__} after "
                f"{self._sent_count} of its operations had reached the transaction; use a "
                "savepoint around the batch, or no batch_size"
            )
