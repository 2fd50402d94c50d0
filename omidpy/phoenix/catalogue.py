r"""Which columns has a table of Phoenix's, of which types?  As SYSTEM.CATALOG says.

That is a table of Phoenix's own, which no transaction writes: its newest cells are what is so.  Its
rows are keyed by tenant, schema, table, column and family, a zero byte between them:

    \0 SCHEMA \0 TABLE                        the table
    \0 SCHEMA \0 TABLE \0 COLUMN              a column of its primary key
    \0 SCHEMA \0 TABLE \0 COLUMN \0 FAMILY    another column

Source: Phoenix 5.2.1 (`MetaDataEndpointImpl`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from omidpy.base.schema.phoenix import EMPTY_COLUMN
from omidpy.errors import ConfigError, NoSuchTable, UsageError
from omidpy.model import KeyRange
from omidpy.phoenix.keys import KeyColumn, RowKey
from omidpy.phoenix.types import PhoenixType, codec, name_of, of_code
from omidpy.storage.base import Store

CATALOGUES: Final = ("SYSTEM.CATALOG", "SYSTEM:CATALOG")
"""What it is called, without namespaces and with them."""
DEFAULT_FAMILY: Final = b"0"

_INT, _SHORT, _BYTE = codec("INTEGER"), codec("SMALLINT"), codec("TINYINT")
_OMID: Final = 2
_DESCENDING: Final = 1


@dataclass(frozen=True, slots=True)
class Column:
    """A column that is not of the primary key."""

    name: str
    """By which rows have it: its own, or FAMILY.NAME where two families have one of its name."""
    cell: bytes
    """`family:qualifier`."""
    type: PhoenixType


@dataclass(frozen=True, slots=True)
class Described:
    """A table as SYSTEM.CATALOG describes it."""

    name: str
    """As SQL has it: SCHEMA.TABLE, or TABLE."""
    in_store: str
    """As HBase has it."""
    key: RowKey
    columns: tuple[Column, ...]
    marker: bytes
    """The column that each row has, `family:_0`."""
    is_whole: bool = True
    """Whether no column was left out."""


def describe(store: Store, name: str, *, without: Collection[str] = ()) -> Described:
    """Read what a table is.

    Args:
        store: Where it is.
        name: `SCHEMA.TABLE` or `TABLE`, as Phoenix stores it: in capitals, unless it was quoted.
        without: Columns to leave out, by their names.

    Raises:
        NoSuchTable: Phoenix has none of this name, or none at all.
        UsageError: it has a column that is not held here, and not left out; or no such one.
        ConfigError: it is no table, or one that Phoenix writes without transactions of Omid's.

    Cost: 1 or 2 scans of a few rows.
    """
    schema, _, table = name.rpartition(".")
    start = b"\x00" + schema.encode() + b"\x00" + table.encode()
    rows = _rows(store, start)
    header = rows.pop(start, None)
    if header is None:
        raise NoSuchTable(
            f"Phoenix has no table {name!r}; names are as it stores them, in capitals unless they "
            "were quoted"
        )
    _check_table(name, header)
    found = [
        (_INT.decode(cells[b"ORDINAL_POSITION"]), *row[len(start) + 1 :].split(b"\x00"), cells)
        for row, cells in rows.items()
        if b"DATA_TYPE" in cells
    ]
    described = sorted(found, key=lambda one: int(one[0]))
    names = [one[1] for one in described]
    keys: list[tuple[int, KeyColumn]] = []
    columns: list[Column] = []
    families: list[bytes] = []
    unheld: dict[str, str] = {}
    left = set(without)
    for _, plain, *rest, cells in described:
        family = rest[0] if rest else b""
        text: str = plain.decode()
        called = text if names.count(plain) == 1 else f"{family.decode()}.{text}"
        if family and family not in families:
            families.append(family)
        if family and called in left:
            left.discard(called)
            continue
        type_, objection = _type(cells)
        if objection or type_ is None:
            unheld[called] = objection
        elif not family:
            descends = _INT.decode(cells[b"SORT_ORDER"]) == _DESCENDING
            place = _SHORT.decode(cells[b"KEY_SEQ"])
            keys.append((place, KeyColumn(called, type_, is_descending=descends)))
        else:
            columns.append(
                Column(called, family + b":" + cells.get(b"COLUMN_QUALIFIER", plain), type_)
            )
    if unheld:
        texts = ", ".join(f"{column} ({why})" for column, why in unheld.items())
        raise UsageError(
            f"table {name} has columns that omidpy does not hold: {texts}; leave those that are no "
            "part of the key out with without=[...]"
        )
    if left:
        raise UsageError(f"table {name} has no column {', '.join(sorted(left))} to leave out")
    buckets = _INT.decode(header[b"SALT_BUCKETS"]) if b"SALT_BUCKETS" in header else 0
    default = header.get(b"DEFAULT_COLUMN_FAMILY", DEFAULT_FAMILY)
    is_mapped = header.get(b"IS_NAMESPACE_MAPPED") == b"\x01" and schema
    return Described(
        name,
        f"{schema}:{table}" if is_mapped else name,
        RowKey(tuple(column for _, column in sorted(keys, key=lambda one: one[0])), buckets),
        tuple(columns),
        (families[0] if families else default) + b":" + EMPTY_COLUMN,
        is_whole=not without,
    )


def _rows(store: Store, start: bytes) -> dict[bytes, dict[bytes, bytes]]:
    """Return the rows of a table, each as the values of its columns."""
    for catalogue in CATALOGUES:
        try:
            pages = store.scan(catalogue, KeyRange(start, start + b"\x01"), max_versions=1)
            return {
                row[0].row: {cell.qualifier: cell.value for cell in row}
                for page in pages
                for row in page
            }
        except NoSuchTable:
            continue
    raise NoSuchTable(f"{store.url} has no {CATALOGUES[0]}, so that no Phoenix uses it")


def _check_table(name: str, header: Mapping[bytes, bytes]) -> None:
    kind = header.get(b"TABLE_TYPE")
    if kind != b"u":
        kinds = {b"v": "a view", b"i": "an index", b"s": "one of Phoenix's own tables"}
        raise ConfigError(f"{name} is {kinds.get(kind or b'', 'no table')}, and no table")
    provider = header.get(b"TRANSACTION_PROVIDER")
    if provider is None or _BYTE.decode(provider) != _OMID:
        raise ConfigError(
            f"Phoenix writes {name} without transactions of Omid's; make it with "
            "TRANSACTIONAL=true, TRANSACTION_PROVIDER='OMID'"
        )
    if header.get(b"MULTI_TENANT") == b"\x01":
        raise ConfigError(f"{name} is MULTI_TENANT, which omidpy does not hold")
    if _BYTE.decode(header.get(b"ENCODING_SCHEME", b"\x80")):
        raise ConfigError(f"{name} has COLUMN_ENCODED_BYTES, which omidpy does not hold")


def _type(cells: Mapping[bytes, Any]) -> tuple[PhoenixType | None, str]:
    """Return the type of a column, and why it is not held."""
    code = _INT.decode(cells[b"DATA_TYPE"])
    sizes = [
        _INT.decode(cells[one]) if one in cells else None
        for one in (b"COLUMN_SIZE", b"DECIMAL_DIGITS")
    ]
    type_ = of_code(code, length=sizes[0], digits=sizes[1])
    if type_ is None:
        return None, name_of(code)
    if type_.name == "VARBINARY" and _INT.decode(cells[b"SORT_ORDER"]) == _DESCENDING:
        return None, "VARBINARY DESC, whose end in a key cannot be told from a byte of it"
    if b"COLUMN_DEF" in cells:
        return None, f"{type_.name} DEFAULT {cells[b'COLUMN_DEF'].decode(errors='replace')}"
    return type_, ""
