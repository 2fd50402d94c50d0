"""Servers and regions, reads and changes of rows, as values.  No bytes and no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from omidpy.model import MAX_VERSION, Cell, ColumnSpec

META: Final = "hbase:meta"
"""The catalogue: a table of one region, whose place the registry knows."""
META_REGION: Final = b"hbase:meta,,1"

ALL_VERSIONS: Final = 2**31 - 1
"""The greatest number of versions; HBase reads it as all."""

FSYNC_WAL: Final = 4
"""Durability of a mutation: on the disks of the log when it is acknowledged."""


class ServerName(NamedTuple):
    """A life of a server: another start has another code."""

    host: str
    port: int
    start_code: int = 0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Region(NamedTuple):
    """A part of a table, and who serves it."""

    table: str
    name: bytes
    """As the catalogue has it: table, start key, id, and a hash of these."""
    start: bytes
    end: bytes
    """Exclusive; empty at the end of the table."""
    server: ServerName
    region_id: int = 0
    is_told: bool = False
    """Whether that it is there is the word of the server that had it, and not the catalogue's."""

    @property
    def encoded_name(self) -> bytes:
        """The hash at the end of the name."""
        return self.name.rstrip(b".").rpartition(b".")[2]

    def holds(self, row: bytes) -> bool:
        """Say whether a row is of this region."""
        return self.start <= row and (not self.end or row < self.end)


class Selection(NamedTuple):
    """What a read wants of each row."""

    columns: Sequence[ColumnSpec] | None = None
    """None is every column; of a family either some columns or all."""
    min_version: int = 0
    max_version: int = MAX_VERSION
    """Exclusive."""
    max_versions: int = ALL_VERSIONS
    """Of each column, the newest first."""
    filter_bytes: bytes | None = None
    """A filter that the server applies, encoded (`hbase/filters.py`)."""
    most_cells: int = 0
    """Of each family of a row at most so many; 0 is all.  For gets."""


class Get(NamedTuple):
    """What a Get asks of one row."""

    row: bytes
    selection: Selection
    existence_only: bool = False
    """Bring no cells, and say whether there is one."""


class Found(NamedTuple):
    """What a get found."""

    cells: list[Cell]
    exists: bool | None = None
    """Only for one that asks for existence."""


class PutCell(NamedTuple):
    """A cell to write."""

    family: bytes
    qualifier: bytes
    version: int
    value: bytes


class DeleteCell(NamedTuple):
    """A marker that hides cells."""

    family: bytes
    qualifier: bytes
    version: int
    kind: int
    """Which cells: one of the types of `cellblock.py`."""


class RowChange(NamedTuple):
    """Puts and deletes of a row, which are applied in one or not at all."""

    row: bytes
    puts: Sequence[PutCell] = ()
    deletes: Sequence[DeleteCell] = ()

    @property
    def names_versions(self) -> bool:
        """Whether each cell says which; to one of `MAX_VERSION` the server's clock gives one."""
        cells = chain(self.puts, self.deletes)
        return all(version != MAX_VERSION for _, _, version, _ in cells)


class Check(NamedTuple):
    """Holds if the newest version of a column of a row has a value; None: if it is absent.

    To HBase an empty value is absent.
    """

    row: bytes
    family: bytes
    qualifier: bytes
    expected: bytes | None


Action: TypeAlias = Get | RowChange


class RegionAction(NamedTuple):
    """What one call does in one region.

    A server does several of them one after another, in their order.  What order there is within
    one of them is the server's business: it reads before it writes.
    """

    region: Region
    actions: Sequence[Action]
    check: Check | None = None
    """Only if it holds the one change, of the same row, is made."""


class Scan(NamedTuple):
    """Rows of a range, in one direction."""

    start: bytes
    stop: bytes
    """Empty keys are the ends of the table.  In reverse, `start` is the upper one."""
    selection: Selection
    includes_start: bool = True
    includes_stop: bool = False
    is_reversed: bool = False
    most_cells_of_row: int = 0
    """A row with more is cut into several results; 0 cuts none."""
    most_bytes: int = 0
    """About what an answer should come to; 0 leaves it to the server."""


class Pairing(NamedTuple):
    """Which cells say something of others: see `decode_pairs` of `cellblock.py`."""

    prefix: bytes
    suffix: bytes
    """Of their qualifiers, around the qualifier of the other cell."""
    before: bytes | None = None
    """8 bytes: plain rows come as their values, of which less is said; see `decode_values`."""
    erased: bytes = b""
    """Then, a value of columns that are left out."""
    first: bytes | None = None
    """8 bytes: they come as their changes instead, of which no less than this is said; see
    `decode_changes`."""


class ScanAnswer(NamedTuple):
    """What a call of a scan brought."""

    rows: list[Any]
    """Lists of `Cell`, or in pairs of `PairedCell`; or each with its key before it, and then such a
    list, or values by column; or its key, its changes, and a list of `Cell`.
    """
    is_last_partial: bool
    """Whether more cells follow of the row that the last result is of."""
    scanner_id: int | None
    """What the next call names."""
    more: bool
    """Whether anything may follow in the whole scan."""
    more_in_region: bool
    """Whether anything may follow in this region."""
    is_heartbeat: bool
    """Whether it ended because of the time it took."""
    cursor: bytes | None
    """Beside a heartbeat: the row that was reached."""


class FamilyDescriptor(NamedTuple):
    """A family of a table, as the master knows it."""

    name: bytes
    attributes: dict[bytes, bytes]
    configuration: dict[str, str]


class TableDescriptor(NamedTuple):
    """A table, as the master knows it."""

    table: str
    families: tuple[FamilyDescriptor, ...]
    attributes: dict[bytes, bytes]
    configuration: dict[str, str]
