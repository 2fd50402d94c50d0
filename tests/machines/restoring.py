"""A store in memory of which single tables can be restored, as HBase's administrators do."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from omidpy.model import TableSchema
from omidpy.storage.base import GuardedMutation
from omidpy.storage.memory import MemoryStore


class RestoringStore(MemoryStore):
    """Has snapshots of tables, each with its description, its cells and nothing of others."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: Counter[str] = Counter()

    def create_table(
        self,
        schema: TableSchema,
        *,
        splits: Sequence[bytes] = (),
        beside: GuardedMutation | None = None,
    ) -> bool:
        """Create a table, which is another one than any before."""
        is_made = super().create_table(schema, splits=splits, beside=beside)
        self.changes[schema.name] += is_made
        return is_made

    def drop_table(self, table: str, *, only: Mapping[str, str] | None = None) -> bool:
        """Remove a table."""
        is_gone = super().drop_table(table, only=only)
        self.changes[table] += is_gone
        return is_gone

    def drop_table_if(
        self, table: str, *, only: Mapping[str, str] | None, still: Callable[[], bool]
    ) -> bool:
        """Remove a table, unless it was brought back."""
        return still() and self.drop_table(table, only=only)

    def table_states(self, tables: Sequence[str]) -> dict[str, int]:
        """Return the states of some tables."""
        existing = {schema.name for schema in self.tables()}
        return {table: self.changes[table] for table in tables if table in existing}

    def snapshot(self, table: str) -> Any:
        """Return what a table is now."""
        return copy.deepcopy(self._table(table))

    def restore(self, table: str, snapshot: Any) -> None:
        """Turn a table back, or make one of a snapshot."""
        self._tables[table] = copy.deepcopy(snapshot)
        self._tables[table].schema = self._renamed(snapshot.schema, table)
        self.changes[table] += 1

    def enable_again(self, table: str) -> None:
        """Disable and enable a table."""
        self.changes[table] += 1

    @staticmethod
    def _renamed(schema: TableSchema, table: str) -> TableSchema:
        return TableSchema(table, schema.families, schema.attributes)
