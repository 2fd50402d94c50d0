"""The values that every layer speaks in.

Frozen and without behaviour beyond arithmetic on themselves.  No I/O, no clock.

Rows, families, qualifiers and values are `bytes`; table names are `str`.  A cell's *version* is
what HBase calls its timestamp: the `start_ts` of the transaction that wrote it plus the number of
checkpoints it had taken (0 to 49).

`Cell` and its kin are named tuples rather than dataclasses: a scan makes millions of them, and a
tuple is built in C, compares in HBase's own order and unpacks in a loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, NewType, TypeAlias

Timestamp = NewType("Timestamp", int)
"""A start, commit or fence timestamp: a multiple of `TIMESTAMP_STEP`, below 2**63."""

CellId = NewType("CellId", int)
"""Signed 64-bit murmur3 of table, row, family and qualifier: what the oracle compares for
conflicts.
"""

TableId = NewType("TableId", int)
"""Signed 64-bit murmur3 of a table's name: what a fence is set on."""

TIMESTAMP_STEP: Final = 50
"""Distance of two timestamps; a transaction's cells use the versions start_ts .. start_ts + 49."""

MAX_VERSION: Final = 2**63 - 1
"""Exclusive upper bound of versions; HBase reads it as 'server time', so no cell may carry it."""


FIRST_WORLD_TIMESTAMP: Final = 10**15
"""Timestamps from here on, some days into 1970, are world time; smaller ones merely count."""


def base(version: int) -> Timestamp:
    """Return the start_ts of the transaction that wrote a cell at `version`."""
    return Timestamp(version - version % TIMESTAMP_STEP)


class Column(NamedTuple):
    """A column of a table."""

    family: bytes
    qualifier: bytes


ColumnSpec: TypeAlias = tuple[bytes, bytes | None]
"""(family, qualifier), or (family, None) for every column of the family."""


class Cell(NamedTuple):
    """One version of one column of one row."""

    row: bytes
    family: bytes
    qualifier: bytes
    version: int
    value: bytes


CellRecord: TypeAlias = tuple[bytes, bytes, bytes, int, bytes]
"""Row, family, qualifier, version and value: what a `Cell` is made of."""

TableCells: TypeAlias = Mapping[str, Sequence[CellRecord]]
"""Cells, by the tables they are in."""

PairedCell: TypeAlias = tuple[bytes, bytes, bytes, int, bytes, bytes | None]
"""A data cell's fields, and the value of its shadow cell; None if it has none."""


RowValues: TypeAlias = dict[bytes, bytes]
"""The values of a row, by `family:qualifier`."""


class ChangeKind(StrEnum):
    """What has become of a cell."""

    PUT = "put"
    """It was written."""
    DELETE = "delete"
    """It was deleted; perhaps it had not been there."""
    DELETE_FAMILY = "delete_family"
    """All columns of a family were deleted, which only clients of Omid's do in one."""
    SNAPSHOT = "snapshot"
    """It was there when the feed began."""


class Change(NamedTuple):
    """One cell that a transaction has changed."""

    row: bytes
    column: bytes
    """Family and qualifier with a colon in between; of `delete_family` the family alone."""
    value: bytes | None
    """What was written; None: it was deleted."""
    kind: ChangeKind
    start_ts: Timestamp
    """The snapshot of the transaction, and its identity."""
    commit_ts: Timestamp
    """All changes of a transaction have one, and no other transaction has it."""
    old: bytes | None = None
    """What a snapshot right before the commit sees in the column, where that was asked for; None:
    nothing."""


class KeyRange(NamedTuple):
    """Rows `start <= row < end`; an empty `end` is the end of the table."""

    start: bytes = b""
    end: bytes = b""

    @classmethod
    def starting_with(cls, prefix: bytes) -> KeyRange:
        """Return the range of all rows that begin with `prefix`."""
        stem = prefix.rstrip(b"\xff")  # behind what is 0xff alone there is nothing
        return cls(prefix, stem[:-1] + bytes((stem[-1] + 1,)) if stem else b"")

    def contains(self, row: bytes) -> bool:
        """Say whether `row` lies in the range."""
        return self.start <= row and (not self.end or row < self.end)

    def is_empty(self) -> bool:
        """Say whether no row can lie in the range."""
        return bool(self.end) and self.start >= self.end


class TransactionStatus(StrEnum):
    """Where a transaction is in its life."""

    RUNNING = "running"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    UNKNOWN = "unknown"


class CellName(NamedTuple):
    """A cell of any table, without its version."""

    table: str
    row: bytes
    family: bytes
    qualifier: bytes


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction committed; `commit_ts` is None if it wrote nothing."""

    commit_ts: Timestamp | None


@dataclass(frozen=True, slots=True)
class Aborted:
    """The transaction did not commit and never will."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """The transaction may still commit."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Too old to say: its commit entry may have been pruned after its cells were healed."""


Outcome: TypeAlias = Committed | Aborted | Undecided | Forgotten


@dataclass(frozen=True, slots=True)
class FamilySchema:
    """A column family.  Every version is kept and no time to live is set."""

    name: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table: its name, its families in byte order, and free attributes.

    Attributes are what HBase's table descriptors have.
    """

    name: str
    families: Sequence[FamilySchema]
    attributes: Mapping[str, str] = field(default_factory=dict)

    def family_names(self) -> list[bytes]:
        """Return the names of the families in byte order."""
        return sorted(family.name for family in self.families)
