"""The writes of one transaction: what is buffered, what was sent, and at which version.

Pure bookkeeping, no I/O.  Two rules keep a late duplicate of a lost request from doing harm (D12):

    a cell once sent is written again only at a higher version (a checkpoint), and
    only byte-identical cells are ever sent again.

So every cell that may have reached the store stays in `sent`, whether or not it was acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from omidpy.cells import encode_long, shadow_qualifier
from omidpy.errors import UsageError
from omidpy.model import TIMESTAMP_STEP, Cell, KeyRange, Timestamp
from omidpy.storage.base import DeleteVersion, Put, RowMutation

MAX_CHECKPOINTS: Final = TIMESTAMP_STEP - 1

_CELL_OVERHEAD_BYTES: Final = 64


class CellName(NamedTuple):
    """A cell without its version."""

    table: str
    row: bytes
    family: bytes
    qualifier: bytes


class WriteBuffer:
    """What one transaction has written so far."""

    def __init__(self, start_ts: Timestamp) -> None:
        self._start_ts = start_ts
        self._checkpoint = 0
        self._rows: dict[str, dict[bytes, dict[tuple[bytes, bytes], bytes]]] = {}
        self._sent: dict[CellName, dict[int, bytes]] = {}
        self._unacknowledged: dict[CellName, int] = {}
        self.size_bytes = 0

    # -- writing and reading -------------------------------------------------------------------

    def put(self, table: str, row: bytes, family: bytes, qualifier: bytes, value: bytes) -> None:
        """Buffer a value, or a tombstone."""
        columns = self._rows.setdefault(table, {}).setdefault(row, {})
        old = columns.get((family, qualifier))
        if old is None:
            self.size_bytes += len(row) + len(family) + len(qualifier) + _CELL_OVERHEAD_BYTES
        else:
            self.size_bytes -= len(old)
        self.size_bytes += len(value)
        columns[family, qualifier] = value

    def row(self, table: str, row: bytes) -> dict[tuple[bytes, bytes], bytes]:
        """Return what is buffered for a row: column -> value or tombstone.  Not to be changed."""
        return self._rows.get(table, {}).get(row, {})

    def rows_in(
        self, table: str, key_range: KeyRange
    ) -> dict[bytes, dict[tuple[bytes, bytes], bytes]]:
        """Return a copy of what is buffered for the rows of a range.  Cost: O(buffered rows)."""
        return {
            row: dict(columns)
            for row, columns in self._rows.get(table, {}).items()
            if key_range.contains(row)
        }

    @property
    def is_empty(self) -> bool:
        """Whether the transaction has written nothing at all."""
        return not self._rows and not self._sent

    # -- sending -------------------------------------------------------------------------------

    def take(self) -> dict[str, list[RowMutation]]:
        """Note the buffered cells as sent and return what must be written, rows in order.

        They stay readable here until `acknowledge`.  Cells of an earlier attempt without
        acknowledgement are included, byte for byte the same.

        Raises:
            UsageError: a sent cell would have to be written again and no checkpoint is left;
                nothing is lost, the cells stay buffered.
        """
        changed = {name: value for name, value in self._buffered() if self._newest(name) != value}
        if any(name in self._sent for name in changed):
            if self._checkpoint == MAX_CHECKPOINTS:
                raise UsageError(
                    f"transaction {self._start_ts} has flushed and rewritten the same cells "
                    f"{MAX_CHECKPOINTS} times, the most that Omid's format allows; "
                    "flush less often, or commit and begin again"
                )
            self._checkpoint += 1
        version = self._start_ts + self._checkpoint
        for name, value in changed.items():
            self._sent.setdefault(name, {})[version] = value
            self._unacknowledged[name] = version
        batch: dict[str, dict[bytes, list[Put]]] = {}
        for name, sent_version in self._unacknowledged.items():
            put = Put(name.family, name.qualifier, sent_version, self._sent[name][sent_version])
            batch.setdefault(name.table, {}).setdefault(name.row, []).append(put)
        return {
            table: [RowMutation(row, puts=rows[row]) for row in sorted(rows)]
            for table, rows in batch.items()
        }

    def can_rewrite(self) -> bool:
        """Whether a flush now would leave a checkpoint for the flush at commit."""
        return self._checkpoint < MAX_CHECKPOINTS - 1 or not any(
            name in self._sent for name, _ in self._buffered()
        )

    def acknowledge(self) -> None:
        """Note that everything taken is in the store, and now read from there."""
        self._unacknowledged = {}
        self._rows = {}
        self.size_bytes = 0

    def _buffered(self) -> Iterator[tuple[CellName, bytes]]:
        for table, rows in self._rows.items():
            for row, columns in rows.items():
                for (family, qualifier), value in columns.items():
                    yield CellName(table, row, family, qualifier), value

    def _newest(self, name: CellName) -> bytes | None:
        versions = self._sent.get(name)
        return None if versions is None else versions[max(versions)]

    # -- after the decision --------------------------------------------------------------------

    def names(self) -> list[CellName]:
        """Return every cell that was sent, once."""
        return list(self._sent)

    def tables(self) -> set[str]:
        """Return the tables that were written."""
        return {name.table for name in self._sent}

    def witness(self) -> tuple[str, Cell] | None:
        """Return one cell that was sent, with its table: its shadow cell proves a commit."""
        for name, versions in self._sent.items():
            version = max(versions)
            return name.table, Cell(*name[1:], version, versions[version])
        return None

    def shadow_cells(self, commit_ts: Timestamp) -> dict[str, list[RowMutation]]:
        """Return the shadow cells of every version sent, one mutation a row."""
        value = encode_long(commit_ts)
        puts: dict[str, dict[bytes, list[Put]]] = {}
        for name, versions in self._sent.items():
            row = puts.setdefault(name.table, {}).setdefault(name.row, [])
            qualifier = shadow_qualifier(name.qualifier)
            row.extend(Put(name.family, qualifier, version, value) for version in versions)
        return {
            table: [RowMutation(row, puts=cells) for row, cells in rows.items()]
            for table, rows in puts.items()
        }

    def removals(self) -> dict[str, list[RowMutation]]:
        """Return the exact deletes that take back every cell sent."""
        deletes: dict[str, dict[bytes, list[DeleteVersion]]] = {}
        for name, versions in self._sent.items():
            row = deletes.setdefault(name.table, {}).setdefault(name.row, [])
            row.extend(DeleteVersion(name.family, name.qualifier, version) for version in versions)
        return {
            table: [RowMutation(row, deletes=cells) for row, cells in rows.items()]
            for table, rows in deletes.items()
        }
