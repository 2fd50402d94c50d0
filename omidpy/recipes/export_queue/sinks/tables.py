"""Keeps the newest value of each key in a table: of the same store exactly once, or of another one.

<family>:value   the value: bytes as they are, else JSON; absent where it is None or empty
<family>:seq     commit_ts, 8 bytes, and the ordinal, 21 bytes
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omidpy.model import TIMESTAMP_STEP, Column
from omidpy.recipes.export_queue.exporter import Exporter, TransactionalExporter
from omidpy.recipes.export_queue.sinks.documents import encoded_value, sortable_ordinal
from omidpy.storage.base import Put, RowMutation

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.exporter import Batch, Entry
    from omidpy.storage.base import Store
    from omidpy.tx.transaction import Transaction

VALUE: Final = b"value"
SEQ: Final = b"seq"

LAST_PLACE: Final = TIMESTAMP_STEP - 1
"""Of the entries of a transaction, so many have a version of their own."""


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

    A version has room for the first entries of a transaction alone.  Those behind them are written
    on condition that what is there is older; over Thrift1, which has no such writes, the last one
    that arrives stays.
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
        """Write a batch, each entry where nothing newer is."""
        rows: dict[bytes, dict[int, tuple[Put, Put]]] = {}
        crowded: dict[bytes, Entry] = {}
        can_check = self._store.capabilities.checked_changes
        for entry in batch:
            if entry.ordinal >= LAST_PLACE and can_check:
                crowded[entry.key] = entry
            else:
                version, puts = self._puts(entry)
                rows.setdefault(entry.key, {})[version] = puts
        mutations = [
            RowMutation(key, tuple(put for pair in versions.values() for put in pair))
            for key, versions in sorted(rows.items())
        ]
        if mutations:
            self._store.write({self._table: mutations}, durable=True)
        for entry in crowded.values():
            self._write_if_newer(entry)

    def _puts(self, entry: Entry) -> tuple[int, tuple[Put, Put]]:
        """Return the version of an entry, which is below the next commit, and its cells."""
        version = entry.commit_ts + min(entry.ordinal, LAST_PLACE)
        return version, (
            Put(self._family, VALUE, version, _value(entry)),
            Put(self._family, SEQ, version, _sortable(entry)),
        )

    def _write_if_newer(self, entry: Entry) -> None:
        """Write an entry unless what is there is as new; another may write meanwhile."""
        seq, column = _sortable(entry), Column(self._family, SEQ)
        mutation = RowMutation(entry.key, self._puts(entry)[1])
        while True:
            (found,) = self._store.get(self._table, [entry.key], columns=[column], max_versions=1)
            seen = found[0].value if found else None
            if seen is not None and seen >= seq:
                return
            if self._store.check_and_mutate(
                self._table, entry.key, column, seen, mutation, durable=True
            ):
                return


def _value(entry: Entry) -> bytes:
    return b"" if entry.value is None else encoded_value(entry.value)


def _sortable(entry: Entry) -> bytes:
    return entry.commit_ts.to_bytes(8, "big") + sortable_ordinal(entry)
