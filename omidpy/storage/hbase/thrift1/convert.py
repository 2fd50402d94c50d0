"""Our writes and cells in the structs of the Thrift1 protocol, and back.

Pure functions.  The protocol names a column `family:qualifier`, split at the first colon, and gives
the columns of a row in no order of ours.  A call writes all its cells at one version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from omidpy.model import Cell, ColumnSpec, FamilySchema
from omidpy.storage import rules
from omidpy.storage.base import Row
from omidpy.storage.hbase.idl import thrift1 as idl

ALL: Final = 2**31 - 1
"""All versions, or no time to live, as HBase writes it."""

CELL_OVERHEAD_BYTES: Final = 40
"""What a cell costs in a message beyond its value, by rule of thumb."""


_USUAL: Final = {
    "VERSIONS": str(ALL),
    "TTL": str(ALL),
    "BLOCKCACHE": "true",
    "BLOOMFILTER": "ROW",
    "COMPRESSION": "NONE",
    "IN_MEMORY": "false",
}
"""What a family of ours has unless it was asked for something else."""


# -- tables ---------------------------------------------------------------------------------------


def families(descriptors: Mapping[bytes, Any]) -> list[FamilySchema]:
    """Return a table's families in byte order, with what a table of ours has not by default."""
    found = []
    for name, descriptor in descriptors.items():
        settings = {
            "VERSIONS": str(descriptor.maxVersions),
            "TTL": str(descriptor.timeToLive),
            "BLOCKCACHE": str(bool(descriptor.blockCacheEnabled)).lower(),
            "BLOOMFILTER": _text(descriptor.bloomFilterType),
            "COMPRESSION": _text(descriptor.compression),
            "IN_MEMORY": str(bool(descriptor.inMemory)).lower(),
        }
        unusual = {key: value for key, value in settings.items() if _USUAL[key] != value}
        found.append(FamilySchema(name.removesuffix(b":"), unusual))
    return sorted(found, key=lambda family: family.name)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def family_limits(descriptors: Mapping[bytes, Any]) -> dict[bytes, int]:
    """Return how many versions each family keeps."""
    return {name.removesuffix(b":"): one.maxVersions for name, one in descriptors.items()}


def family_descriptor(name: bytes) -> Any:
    """Return the descriptor to create a family with: all versions, no time to live."""
    return idl.ColumnDescriptor(
        name=name + b":", maxVersions=ALL, bloomFilterType="ROW", blockCacheEnabled=True
    )


# -- reads ----------------------------------------------------------------------------------------


def column_name(family: bytes, qualifier: bytes | None) -> bytes:
    """Return the protocol's name of a column; without a qualifier, of the whole family."""
    return family if qualifier is None else family + b":" + qualifier


def column_names(specs: Sequence[ColumnSpec]) -> list[bytes]:
    """Return the names of what a read selects."""
    return [column_name(family, qualifier) for family, qualifier in specs]


def row_of(result: Any, min_version: int) -> Row:
    """Return the cells of a result, from a version on, in HBase's order."""
    row = result.row
    cells = []
    for name, cell in result.columns.items():
        version = cell.timestamp
        if version >= min_version:
            family, _, qualifier = name.partition(b":")
            cells.append(Cell(row, family, qualifier, version, cell.value))
    # Of one row and one version a column, so that this is their order.
    cells.sort()
    return cells


# -- writes ---------------------------------------------------------------------------------------


class Call(NamedTuple):
    """The mutations of one call, all at one version; of each row they are atomic."""

    version: int
    rows: list[Any]


def calls(effects: rules.Effects, *, max_rows: int, max_bytes: int) -> Iterator[Call]:
    """Cut what a batch leaves behind into calls, older versions first.

    A call has at most `max_rows`, and `max_bytes` unless one row has more.
    """
    versions: dict[int, dict[bytes, list[Any]]] = {}
    for (row, family, qualifier, version), value in effects.items():
        mutation = idl.Mutation(
            isDelete=value is None, column=column_name(family, qualifier), value=value
        )
        versions.setdefault(version, {}).setdefault(row, []).append(mutation)
    for version, rows in sorted(versions.items()):
        batch: list[Any] = []
        size_bytes = 0
        for row, mutations in rows.items():
            row_bytes = len(row) + sum(
                CELL_OVERHEAD_BYTES + len(one.column) + len(one.value or b"") for one in mutations
            )
            if batch and (len(batch) == max_rows or size_bytes + row_bytes > max_bytes):
                yield Call(version, batch)
                batch, size_bytes = [], 0
            batch.append(idl.BatchMutation(row, mutations))
            size_bytes += row_bytes
        yield Call(version, batch)
