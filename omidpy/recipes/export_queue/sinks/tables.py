"""Keeps the newest value of each key in a table: of the same store exactly once, or of another one.

<family>:value   the value: bytes as they are, else JSON; absent where it is None or empty
<family>:seq     commit_ts, 8 bytes, and the ordinal, 21 bytes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omidpy.model import TIMESTAMP_STEP
from omidpy.recipes.export_queue.exporter import Exporter, TransactionalExporter
from omidpy.recipes.export_queue.sinks.documents import encoded_value, sortable_ordinal
from omidpy.storage.base import Put, RowMutation

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.exporter import Batch, Entry
    from omidpy.storage.base import Store
    from omidpy.tx.transaction import Transaction

VALUE = b"value"
SEQ = b"seq"


class TableSink(TransactionalExporter):
    """A transactional table of the queue's own store; exactly once.

    The row of an entry is its key, which must not be empty.
    """

    def __init__(self, table: str, family: str = "cf") -> None:
        """Write to a family of a table, which must be there."""
        self._table = table
        self._value = family.encode() + b":" + VALUE
        self._seq = family.encode() + b":" + SEQ

    def export_within(self, tx: Transaction, batch: Batch) -> None:
        """Write a batch, but for what is older than what the table has."""
        table = tx.table(self._table)
        newest = {entry.key: entry for entry in batch}  # by `seq`, so that the last one stays
        found = dict(table.rows(list(newest), columns=[self._seq]))
        for key, entry in newest.items():
            seq = _sortable(entry)
            if found.get(key, {}).get(self._seq, b"") >= seq:
                continue
            table.put(key, {self._seq: seq})
            if value := _value(entry):
                table.put(key, {self._value: value})
            else:
                table.delete(key, [self._value])


class PlainTableSink(Exporter):
    """A table of any store, written without transactions: another cluster's, say.

    Cells are written at the version of the commit, and readers see the newest version: what is
    older than what is there stays below it.  The family must not be transactional.
    """

    def __init__(self, store: Store, table: str, family: str = "cf") -> None:
        """Write to a family of a table, which must be there; closing the store stays yours.

        Args:
            store: As `omidpy.connect.open_store` returns it.
            table: Its name there.
            family: One that keeps one version, or some.
        """
        self._store = store
        self._table = table
        self._family = family.encode()

    def export(self, batch: Batch) -> None:
        """Write a batch."""
        rows: dict[bytes, dict[tuple[bytes, int], Put]] = {}
        for entry in batch:
            # Below the next commit; of entries of one key and version the last one stays.
            version = entry.commit_ts + min(entry.ordinal, TIMESTAMP_STEP - 1)
            puts = rows.setdefault(entry.key, {})
            puts[VALUE, version] = Put(self._family, VALUE, version, _value(entry))
            puts[SEQ, version] = Put(self._family, SEQ, version, _sortable(entry))
        mutations = [RowMutation(key, tuple(puts.values())) for key, puts in sorted(rows.items())]
        self._store.write({self._table: mutations}, durable=True)


def _value(entry: Entry) -> bytes:
    return b"" if entry.value is None else encoded_value(entry.value)


def _sortable(entry: Entry) -> bytes:
    return entry.commit_ts.to_bytes(8, "big") + sortable_ordinal(entry)
