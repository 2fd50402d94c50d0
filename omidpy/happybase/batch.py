"""Changes of a table that are sent together."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

from omidpy.happybase.columns import Text, as_bytes, specified, table_text, version_of, written
from omidpy.happybase.session import PlainSession
from omidpy.model import MAX_VERSION
from omidpy.storage.hbase.native.cellblock import DELETE_COLUMN, DELETE_FAMILY
from omidpy.storage.hbase.native.client import NativeClient
from omidpy.storage.hbase.native.values import FSYNC_WAL, DeleteCell, PutCell, RowChange

SKIP_WAL: Final = 1
"""Durability of a change that is not logged: lost if its server dies."""
SYNC_WAL: Final = 3
"""Of one that is logged, also where the table's own durability says that it need not be."""


def durability_of(client: NativeClient) -> int:
    """Return the durability of a change that is logged."""
    return FSYNC_WAL if client.calls.address.durability == "fsync" else SYNC_WAL


class Target(Protocol):
    """The table that a batch writes to."""

    name: bytes
    connection: PlainSession

    def families(self) -> dict[bytes, dict[str, Any]]:
        """Return the settings of each family."""
        ...


class _Change(NamedTuple):
    row: bytes
    cell: PutCell | DeleteCell
    is_logged: bool


class Batch:
    """Collects changes and sends them; as a context manager, at the end of the block.

    Those of a row are not one change: puts are sent before deletes, in whatever order they were
    collected, as the gateway does.  So without a timestamp a column that is put and deleted in one
    batch is deleted.  A failure leaves open which were made.  Not safe to share among threads.
    """

    def __init__(
        self,
        table: Target,
        timestamp: int | None = None,
        batch_size: int | None = None,
        transaction: bool = False,  # noqa: FBT001, FBT002 - happybase's signature
        wal: bool = True,  # noqa: FBT001, FBT002 - happybase's signature
    ) -> None:
        """Begin with nothing; `Table.batch` says what the arguments are."""
        self._version = version_of(timestamp, otherwise=MAX_VERSION)
        if batch_size is not None:
            if transaction:
                raise TypeError("'transaction' cannot be used when 'batch_size' is specified")
            if not batch_size > 0:
                raise ValueError("'batch_size' must be > 0")
        self._table = table
        self._batch_size = batch_size
        self._transaction = transaction
        self._wal = wal is None or bool(wal)
        self._families: Sequence[Text] | None = None
        self._changes: list[_Change] = []
        self._has_failed = False
        """Whether what is collected was sent in vain, or may have been made."""

    def put(self, row: Text, data: Mapping[Text, Text], wal: bool | None = None) -> None:  # noqa: FBT001 - happybase's signature
        """Write cells of a row.

        Args:
            row: The row.
            data: Values by column, `family:qualifier`.
            wal: Whether HBase logs it; None as the batch says.

        Raises:
            UsageError: a column has no colon, of which happybase's gateway says nothing and writes
                nothing.
        """
        key, is_logged = as_bytes(row), self._wal if wal is None else bool(wal)
        self._add(
            [
                _Change(key, PutCell(*written(column), self._version, as_bytes(value)), is_logged)
                for column, value in data.items()
            ]
        )

    def delete(
        self,
        row: Text,
        columns: Sequence[Text] | None = None,
        wal: bool | None = None,  # noqa: FBT001 - happybase's signature
    ) -> None:
        """Delete a row, or some columns or families of it, up to the batch's timestamp.

        Args:
            row: The row.
            columns: Columns, or families, which have no colon; None is all families of the table.
            wal: Whether HBase logs it; None as the batch says.
        """
        if columns is None:
            if self._families is None:
                self._families = list(self._table.families())
            columns = self._families
        key, is_logged = as_bytes(row), self._wal if wal is None else bool(wal)
        self._add([_Change(key, self._marker(column), is_logged) for column in columns])

    def _marker(self, column: Text) -> DeleteCell:
        family, qualifier = specified(column)
        kind = DELETE_FAMILY if qualifier is None else DELETE_COLUMN
        return DeleteCell(family, qualifier or b"", self._version, kind)

    def _add(self, changes: Sequence[_Change]) -> None:
        self._changes += changes
        if self._batch_size is not None and len(self._changes) >= self._batch_size:
            self.send()

    def send(self) -> None:
        """Send what was collected, puts first.

        Raises:
            UsageError: transactions write the table.
            NoSuchTable: it is not there.
            NoSuchFamily: it has no such family.
            StorageUnavailable: some of it may have been made.  What was not acknowledged is still
                collected, and sent by the next `send`.

        Cost: 1 RPC for each server and 1,000 rows, for puts and for deletes.
        """
        if not self._changes:
            return
        self._has_failed = True
        connection = self._table.connection
        connection.check_plain(self._table.name)
        name, client = table_text(self._table.name), connection.native
        on_disk = durability_of(client)
        for is_put in (True, False):
            for is_logged in (True, False):
                group = [
                    change
                    for change in self._changes
                    if change.is_logged == is_logged and isinstance(change.cell, PutCell) == is_put
                ]
                if group:
                    self._send(client, name, group, on_disk if is_logged else SKIP_WAL)
        self._has_failed = False

    def _send(
        self, client: NativeClient, name: str, group: Sequence[_Change], durability: int
    ) -> None:
        """Send changes of one kind; what was acknowledged is collected no more."""
        rows: dict[bytes, list[PutCell | DeleteCell]] = {}
        for change in group:
            rows.setdefault(change.row, []).append(change.cell)
        changes = [_row_change(row, cells) for row, cells in rows.items()]
        made: list[RowChange] = []
        try:
            client.mutate_many(name, changes, durability=durability, made=made)
        except BaseException:
            self._drop(group, {one.row for one in made})
            raise
        self._drop(group, rows)

    def _drop(self, group: Sequence[_Change], rows: Container[bytes]) -> None:
        gone = {id(change) for change in group if change.row in rows}
        self._changes = [change for change in self._changes if id(change) not in gone]

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Send the rest; not after an exception, if it is a `transaction` or `send` has failed.

        What may have been made is made again by nobody but its user, who was told.
        """
        if exc_type is None or not (self._transaction or self._has_failed):
            self.send()


def _row_change(row: bytes, cells: Sequence[PutCell | DeleteCell]) -> RowChange:
    puts = [cell for cell in cells if isinstance(cell, PutCell)]
    return RowChange(row, puts, [cell for cell in cells if isinstance(cell, DeleteCell)])
