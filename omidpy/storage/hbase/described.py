"""Which of our attributes does a table have?  A copy of them, for clients of the Thrift1 gateway.

That gateway shows a table's families and limits, and no attribute.  But a client must know which
families are transactional, whose commit table counts, and how conflicts are detected.  So a client
that creates or changes a table through Thrift2 leaves a copy of what is ours in the control table.

The copy follows the table a moment later, and knows nothing of changes made in the HBase shell:
`omidpy table adopt NAME --apply` through Thrift2 makes it again.  It is replaced and never deleted,
because on HBase a delete hides what is written later at its version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from omidpy.base.documents import UNREADABLE, prepared
from omidpy.base.schema.phoenix import DATA_TABLE_ATTRIBUTE, is_coprocessor
from omidpy.base.tables import CONTROL_TABLE, FIXED_VERSION, VALUE
from omidpy.errors import CorruptCell, NoSuchTable
from omidpy.model import FamilySchema, KeyRange, TableSchema
from omidpy.storage.base import Put, RowMutation, Store

DESCRIBED_PREFIX: Final = b"described/"
_OURS: Final = "OMID"
"""How the names begin of attributes that omidpy and Omid's own clients read."""


class Description(msgspec.Struct, frozen=True):
    """The attributes of a table that are ours, and of its families by name in hex."""

    attributes: dict[str, str] = {}
    families: dict[str, dict[str, str]] = {}


def record(store: Store, schema: TableSchema) -> None:
    """Leave a copy of what a table has; a store that has not been set up keeps none."""
    _write(
        store,
        schema.name,
        Description(
            _ours(schema.attributes),
            {family.name.hex(): _ours(family.attributes) for family in schema.families},
        ),
    )


def forget(store: Store, table: str) -> None:
    """Note that a table is gone, so that a later one of its name is not taken for it."""
    _write(store, table, Description())


def read(store: Store, table: str) -> Description | None:
    """Return the copy for a table.  Cost: 1 get."""
    try:
        (cells,) = store.get(CONTROL_TABLE, [_row(table)], columns=[VALUE], max_versions=1)
    except NoSuchTable:
        return None
    return _decoded(table, cells[0].value) if cells else None


def read_all(store: Store) -> dict[str, Description]:
    """Return the copy for each table that has one."""
    end = DESCRIBED_PREFIX[:-1] + bytes((DESCRIBED_PREFIX[-1] + 1,))
    pages = store.scan(
        CONTROL_TABLE, KeyRange(DESCRIBED_PREFIX, end), columns=[VALUE], max_versions=1
    )
    try:
        cells = [row[0] for page in pages for row in page]
    except NoSuchTable:
        return {}
    named = ((cell.row.removeprefix(DESCRIBED_PREFIX).decode(), cell.value) for cell in cells)
    return {table: _decoded(table, value) for table, value in named}


def merged(
    table: str, families: Sequence[FamilySchema], description: Description | None
) -> TableSchema:
    """Return the schema of a table of which the gateway shows `families`."""
    known = Description() if description is None else description
    return TableSchema(
        table,
        tuple(
            FamilySchema(
                family.name, {**known.families.get(family.name.hex(), {}), **family.attributes}
            )
            for family in families
        ),
        dict(known.attributes),
    )


def _write(store: Store, table: str, description: Description) -> None:
    put = Put(*VALUE, FIXED_VERSION, msgspec.json.encode(description))
    try:
        store.write({CONTROL_TABLE: [RowMutation(_row(table), puts=[put])]}, durable=True)
    except NoSuchTable:
        return


def _ours(attributes: Mapping[str, str]) -> dict[str, str]:
    # Coprocessors tell which tables are Phoenix's, and an index names its table.
    return {
        name: value
        for name, value in attributes.items()
        if name.startswith(_OURS) or is_coprocessor(name) or name == DATA_TABLE_ATTRIBUTE
    }


def _row(table: str) -> bytes:
    return DESCRIBED_PREFIX + table.encode()


def _decoded(table: str, value: bytes) -> Description:
    try:
        return msgspec.json.decode(value, type=prepared(Description))
    except UNREADABLE as error:
        raise CorruptCell(
            f"{CONTROL_TABLE} row {_row(table)!r} holds {value[:80]!r}: {error}"
        ) from error
