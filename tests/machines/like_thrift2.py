"""A memory store that lacks what HBase lacks: one change of many rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omidpy.errors import UsageError
from omidpy.model import Column, TableSchema
from omidpy.storage.base import (
    Capabilities,
    CellGroup,
    Condition,
    Entries,
    GuardedMutation,
    RowMutation,
)
from omidpy.storage.memory import MemoryStore


class LikeThrift2(MemoryStore):
    """Rows change one by one, and nothing guards a batch of them."""

    @property
    def capabilities(self) -> Capabilities:
        """What is left."""
        return replace(super().capabilities, guarded_batches=False)

    def create_table(
        self,
        schema: TableSchema,
        *,
        splits: Sequence[bytes] = (),
        beside: GuardedMutation | None = None,
    ) -> bool:
        """Create a table, and nothing beside it."""
        if beside is not None:
            raise UsageError("there are no guarded batches")
        return super().create_table(schema, splits=splits)

    def check_and_mutate(
        self,
        table: str,
        row: bytes,
        column: Column,
        expected: bytes | None,
        mutation: RowMutation,
        *,
        durable: bool = False,
    ) -> bool:
        """Change one row, if a cell of it is as expected."""
        change = GuardedMutation(table, mutation, Condition(table, row, column, expected))
        return super().write_guarded([change], durable=durable) == [True]

    def write_guarded(
        self,
        mutations: Sequence[GuardedMutation | Entries | CellGroup],
        *,
        guard: Condition | None = None,
        durable: bool = False,
    ) -> list[bool] | None:
        """Refuse."""
        del mutations, guard, durable
        raise UsageError("there are no guarded batches")
