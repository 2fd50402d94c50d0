"""A memory store that lacks what HBase lacks, and its Thrift1 gateway besides.

Clients see a shared store through it, while the oracle has the store itself, as on a cluster where
`tso-server` works through Thrift2.  What the gateway would get wrong is refused here, so that a
client that asks for it fails at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Unpack

from omidpy.base.tables import is_system_table
from omidpy.errors import UsageError
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.model import MAX_VERSION, Column, KeyRange
from omidpy.storage import rules
from omidpy.storage.base import (
    WHOLE_TABLE,
    Capabilities,
    Condition,
    Read,
    Row,
    RowMutation,
    Scan,
)
from omidpy.storage.memory import MemoryStore
from tests.machines.like_thrift2 import LikeThrift2


class LikeThrift1(LikeThrift2):
    """The cells of `shared`, by poorer means."""

    def __init__(self, shared: MemoryStore | None = None) -> None:
        """Open a view of `shared`; without it, a store of its own."""
        super().__init__()
        if shared is not None:
            self.__dict__ = shared.__dict__

    @property
    def capabilities(self) -> Capabilities:
        """What is left."""
        return replace(
            super().capabilities,
            exact_delete=False,
            multi_version_scan=False,
            checked_changes=False,
        )

    def scan(
        self, table: str, key_range: KeyRange = WHOLE_TABLE, **read: Unpack[Scan]
    ) -> Iterator[list[Row]]:
        """Yield the newest version of each column."""
        if _wants_older(read):
            raise UsageError(f"a scan of {table!r} needs max_versions=1")
        read["max_versions"] = 1
        return super().scan(table, key_range, **read)

    def get(self, table: str, rows: Sequence[bytes], **read: Unpack[Read]) -> list[Row]:
        """Read rows; older versions column by column."""
        wants_older, limit = _wants_older(read), read.get("max_versions")
        read["max_versions"] = 1
        found = super().get(table, rows, **read)
        if not wants_older:
            return found
        return [self._older(table, row, read.get("min_version", 0), limit) for row in found]

    def _older(self, table: str, newest: Row, min_version: int, max_versions: int | None) -> Row:
        row: Row = []
        for cell in newest:
            (versions,) = super().get(
                table,
                [cell.row],
                columns=[(cell.family, cell.qualifier)],
                min_version=min_version,
                max_version=cell.version,
                max_versions=max_versions,
            )
            row += [cell, *versions][:max_versions]
        return row

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Write cells; delete in the tables alone that hold one version a column."""
        for table, mutations in batch.items():
            families = self.schema(table).family_names()
            for mutation in mutations:
                rules.add_effects({}, table, mutation, families)
                if mutation.deletes and not is_system_table(table):
                    raise UsageError(f"a single version of a cell of {table!r} cannot be deleted")
        super().write(batch, durable=durable)

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
        """Invalidate, and nothing else."""
        rules.check_same_row(row, mutation)
        families = self.schema(table).family_names()
        rules.add_effects({}, table, mutation, families)
        rules.check_condition(Condition(table, row, column, expected), families)
        if table != COMMIT_TABLE or expected is not None or mutation.deletes:
            raise UsageError(f"this change of {table!r} cannot be checked")
        return super().check_and_mutate(table, row, column, expected, mutation, durable=durable)


def _wants_older(read: Read) -> bool:
    """Say whether a read asks for more than the newest version of each column."""
    low, high = read.get("min_version", 0), read.get("max_version", MAX_VERSION)
    count = read.get("max_versions")
    rules.check_bounds(low, high, count)
    return count != 1 and high - low > 1
