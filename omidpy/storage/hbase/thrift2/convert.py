"""Our reads, writes and cells in the structs of the Thrift2 protocol, and back.

Pure functions.  Two of the protocol's defaults are traps and never used: a `TDelete` without a type
removes the named version *and all older ones*, and a read without `maxVersions` returns the newest
version alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple, overload

from omidpy.base.cells import SHADOW_PREFIX, SHADOW_SUFFIX
from omidpy.model import MAX_VERSION, Cell, ColumnSpec, PairedCell
from omidpy.storage import rules
from omidpy.storage.base import CellFields, Row
from omidpy.storage.hbase.idl import thrift2 as idl
from omidpy.storage.options import LazyRow

ALL_VERSIONS: Final = 2**31 - 1
"""The greatest `maxVersions`; HBase reads it as all."""
FSYNC_WAL: Final = 4
"""Durability of a mutation: written to disk when it is acknowledged, not just to the kernel."""
DELETE_COLUMN: Final = 0
"""Type of a delete: exactly the version named."""

_new: Final = tuple.__new__
_fields: Final[Callable[[Any], CellFields]] = attrgetter(
    "family", "qualifier", "timestamp", "value"
)
_Column: Final = idl.TColumn
_ColumnValue: Final = idl.TColumnValue

CELL_OVERHEAD_BYTES: Final = 40
"""What a cell costs in a message beyond its value, by rule of thumb."""


# -- reads ----------------------------------------------------------------------------------------


class Selection(NamedTuple):
    """What a read asks of each row, in the protocol's terms."""

    columns: list[Any] | None
    time_range: Any | None
    max_versions: int


def selection(
    specs: Sequence[ColumnSpec] | None,
    min_version: int,
    max_version: int,
    max_versions: int | None,
) -> Selection:
    """Return a read's selection; `specs` do not overlap."""
    columns = None
    if specs is not None:
        columns = [idl.TColumn(family, qualifier) for family, qualifier in specs]
    time_range = None
    if min_version > 0 or max_version < MAX_VERSION:
        time_range = idl.TTimeRange(min_version, max_version)
    count = ALL_VERSIONS if max_versions is None else min(max_versions, ALL_VERSIONS)
    return Selection(columns, time_range, count)


def row_of(result: Any) -> Row:
    """Return the cells of a result; they come in HBase's order.

    A hot loop: a tuple made directly spares the Python function that `Cell(...)` is.
    """
    row = result.row
    return [
        _new(Cell, (row, one.family, one.qualifier, one.timestamp, one.value))
        for one in result.columnValues
    ]


class ResultRow(LazyRow):
    """The row of a result."""

    __slots__ = ("_result",)

    def __init__(self, result: Any) -> None:
        """Keep a result; it has a cell at least."""
        self._result = result

    @property
    def key(self) -> bytes:
        """The key of the row."""
        return self._result.row  # type: ignore[no-any-return] # thriftpy2 has no types

    def fields(self) -> Iterator[CellFields]:
        """Return the fields of its cells, as they were read."""
        return map(_fields, self._result.columnValues)

    def __len__(self) -> int:
        return len(self._result.columnValues)

    @overload
    def __getitem__(self, index: int) -> Cell: ...

    @overload
    def __getitem__(self, index: slice) -> Row: ...

    def __getitem__(self, index: int | slice) -> Cell | Row:
        if isinstance(index, slice):
            return row_of(self._result)[index]
        return Cell(self._result.row, *_fields(self._result.columnValues[index]))

    def __iter__(self) -> Iterator[Cell]:
        return iter(row_of(self._result))


def lazy_row_of(result: Any) -> LazyRow:
    """Return the row of a result, without a cell so far."""
    return ResultRow(result)


def pairs_of(result: Any) -> list[PairedCell]:
    """Return the data cells of a result, each with the value of its shadow cell.

    Where there are shadow cells alone, one of them comes as if it were data, so that no row is
    empty.  A hot loop: nearly every row of a scan is one shadow cell and one cell.
    """
    row = result.row
    shadows: dict[tuple[bytes, bytes, int], bytes] = {}
    pairs: list[PairedCell] = []
    for one in result.columnValues:
        qualifier = one.qualifier
        if qualifier[-2:] != SHADOW_SUFFIX or len(qualifier) == len(SHADOW_SUFFIX):
            family, version = one.family, one.timestamp
            shadow = shadows.get((family, qualifier, version))
            pairs.append((row, family, qualifier, version, one.value, shadow))
        elif qualifier[:3] == SHADOW_PREFIX:
            shadows[one.family, qualifier[3:-2], one.timestamp] = one.value
    return pairs or [(*cell, None) for cell in row_of(result)[:1]]


# -- writes ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class RowWrite:
    """What a batch does to one row."""

    row: bytes
    puts: list[Any] = field(default_factory=list)
    deletes: list[Any] = field(default_factory=list)
    size_bytes: int = 0

    def put(self, durability: int | None) -> Any:
        """Return the puts as one atomic operation."""
        return idl.TPut(self.row, self.puts, durability)

    def delete(self, durability: int | None) -> Any:
        """Return the deletes as one atomic operation."""
        return idl.TDelete(
            row=self.row, columns=self.deletes, deleteType=DELETE_COLUMN, durability=durability
        )

    def mutations(self, durability: int | None) -> Any:
        """Return puts and deletes as one atomic operation."""
        both = []
        if self.puts:
            both.append(idl.TMutation(put=self.put(durability)))
        if self.deletes:
            both.append(idl.TMutation(deleteSingle=self.delete(durability)))
        return idl.TRowMutations(row=self.row, mutations=both)


def row_writes(effects: rules.Effects) -> list[RowWrite]:
    """Gather what a batch leaves behind, by row; each cell appears once."""
    rows: dict[bytes, RowWrite] = {}
    for (row, family, qualifier, version), value in effects.items():
        found = rows.get(row)
        if found is None:
            found = rows[row] = RowWrite(row, [], [])
        size_bytes = CELL_OVERHEAD_BYTES + len(row) + len(qualifier)
        if value is None:
            found.deletes.append(_Column(family, qualifier, version))
        else:
            size_bytes += len(value)
            found.puts.append(_ColumnValue(family, qualifier, value, version))
        found.size_bytes += size_bytes
    return list(rows.values())


def batches(
    writes: Sequence[RowWrite], *, max_rows: int, max_bytes: int
) -> Iterator[list[RowWrite]]:
    """Cut writes into batches of at most `max_rows`, and of `max_bytes` unless one row has more."""
    batch: list[RowWrite] = []
    size_bytes = 0
    for write in writes:
        if batch and (len(batch) == max_rows or size_bytes + write.size_bytes > max_bytes):
            yield batch
            batch, size_bytes = [], 0
        batch.append(write)
        size_bytes += write.size_bytes
    if batch:
        yield batch
