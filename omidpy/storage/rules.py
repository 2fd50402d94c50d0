"""What every store accepts and refuses, so that all backends do so alike.

Pure functions over arguments: names, limits, selections of columns, effects of a batch.  No I/O and
no state.  The limits are HBase's own, applied by every backend, so that a program that works on a
file keeps working on a cluster.

A mutation that puts and deletes the same version of a column is refused: HBase would hide the put
behind the delete marker, a file would keep it, and a meaning that depends on the backend is none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import eq, itemgetter
from typing import Final, TypeAlias

from omidpy.errors import NoSuchFamily, UsageError
from omidpy.model import (
    MAX_VERSION,
    Cell,
    CellRecord,
    ColumnSpec,
    FamilySchema,
    KeyRange,
    TableSchema,
)
from omidpy.storage.base import (
    Condition,
    Entries,
    GuardedMutation,
    Put,
    RowMutation,
)

MAX_ROW_BYTES: Final = 32767
"""Longest row key; HBase stores its length in a signed short."""
SHORT_BYTES: Final = 1024
"""A row and a value of no more make no cell that is too large."""
LONG_BYTES: Final = 5 * 1024 * 1024
"""Nor does a value of no more, beside a row and a qualifier of `SHORT_BYTES`."""
MAX_FAMILY_BYTES: Final = 127
"""Longest family name; HBase stores its length in a signed byte."""
MAX_CELL_BYTES: Final = 10 * 1024 * 1024
"""HBase's default `hbase.client.keyvalue.maxsize`, key and value together."""
MAX_VALUE_BYTES: Final = MAX_CELL_BYTES - 100
"""Longest value, whatever the key."""
CELL_OVERHEAD_BYTES: Final = 20
"""Lengths, version and type that HBase adds to a cell."""

_TABLE_NAME: Final = re.compile(r"(?:[A-Za-z0-9_]+:)?[A-Za-z0-9_][A-Za-z0-9_.-]*")
_FAMILY_NAME: Final = re.compile(rb"[^\x00-\x20\x7f:/.][^\x00-\x20\x7f:/]*")
_LOCK_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")

CellKey: TypeAlias = tuple[bytes, bytes, bytes, int]
"""(row, family, qualifier, version)."""

Effects: TypeAlias = dict[CellKey, bytes | None]
"""What a batch leaves behind: the value of each cell it touched, None where it was deleted."""


# -- arguments ------------------------------------------------------------------------------------


def check_row(row: bytes) -> None:
    """Refuse a row key that no store can hold."""
    if not isinstance(row, bytes):
        raise TypeError(f"row key {row!r} is {type(row).__name__}; encode it to bytes")
    if not row:
        raise UsageError("the row key is empty; a row key has 1 to 32767 bytes")
    if len(row) > MAX_ROW_BYTES:
        raise UsageError(
            f"the row key {row[:32]!r}... has {len(row)} bytes; use at most {MAX_ROW_BYTES}"
        )


def check_schema(schema: TableSchema, splits: Sequence[bytes]) -> None:
    """Refuse a table that HBase would not create."""
    if not isinstance(schema.name, str):
        raise TypeError(f"table name {schema.name!r} is {type(schema.name).__name__}; use str")
    if not _TABLE_NAME.fullmatch(schema.name):
        raise UsageError(
            f"table name {schema.name!r} is not valid; use letters, digits, '_', '-' and '.', "
            "not starting with '-' or '.', after an optional 'namespace:'"
        )
    if not schema.families:
        raise UsageError(f"table {schema.name!r} has no column family; name at least one")
    names = [family.name for family in schema.families]
    for family in schema.families:
        _check_family_name(schema.name, family)
        check_attributes(family.attributes)
    if len(set(names)) != len(names):
        raise UsageError(f"table {schema.name!r} names a column family twice: {names!r}")
    check_attributes(schema.attributes)
    for split in splits:
        check_row(split)
    if len(set(splits)) != len(splits):
        raise UsageError(f"table {schema.name!r} has a split point twice: {list(splits)!r}")


def _check_family_name(table: str, family: FamilySchema) -> None:
    if not isinstance(family.name, bytes):
        raise TypeError(f"column family {family.name!r} is {type(family.name).__name__}; use bytes")
    if not _FAMILY_NAME.fullmatch(family.name) or len(family.name) > MAX_FAMILY_BYTES:
        raise UsageError(
            f"column family {family.name!r} of table {table!r} is not valid; use 1 to "
            f"{MAX_FAMILY_BYTES} printable bytes without ':', '/' and space, not starting with '.'"
        )


def check_alone(url: str, beside: GuardedMutation | None) -> None:
    """Refuse to make a table and change a row in one where the store cannot."""
    if beside is not None:
        raise UsageError(
            f"{url} has no guarded batches: HBase makes a table and changes a row of another one "
            "one after the other"
        )


def check_attributes(attributes: Mapping[str, str | None]) -> None:
    """Refuse attributes that are not text."""
    for name, value in attributes.items():
        if not isinstance(name, str) or not (value is None or isinstance(value, str)):
            raise TypeError(f"attribute {name!r}={value!r} is not text; use str for both")


def changed(attributes: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return `attributes` after `changes`, in which None removes one."""
    return {name: value for name, value in {**attributes, **changes}.items() if value is not None}


def has(attributes: Mapping[str, str], wanted: Mapping[str, str | None] | None) -> bool:
    """Say whether some attributes are as wanted; None: nothing is wanted, a value None: absent."""
    return all(attributes.get(name) == value for name, value in (wanted or {}).items())


def check_lock_name(name: str) -> None:
    """Refuse a lock name that could not be part of a file's name."""
    if not _LOCK_NAME.fullmatch(name):
        raise UsageError(f"lock name {name!r} is not valid; use letters, digits, '_' and '-'")


def check_family(table: str, family: bytes, known: Collection[bytes]) -> None:
    """Refuse a column family that the table lacks."""
    if family not in known:
        if not isinstance(family, bytes):
            raise TypeError(f"column family {family!r} is {type(family).__name__}; use bytes")
        raise NoSuchFamily(
            f"table {table!r} has no column family {family!r}; it has {sorted(known)!r}"
        )


# -- regions --------------------------------------------------------------------------------------


def regions_between(splits: Sequence[bytes]) -> list[KeyRange]:
    """Return the regions that meet at `splits`, which are in order."""
    edges = [b"", *splits, b""]
    return [KeyRange(start, end) for start, end in pairwise(edges)]


def splits_with(splits: Sequence[bytes], at: bytes) -> list[bytes]:
    """Return the split points with `at`; the first region always starts at the empty key."""
    if at == b"":
        return list(splits)
    check_row(at)
    return sorted({*splits, at})


def splits_without(splits: Sequence[bytes], at: bytes, *, table: str) -> list[bytes]:
    """Return the split points without `at`.

    Raises:
        UsageError: no two regions meet there.
    """
    if at not in splits:
        raise UsageError(
            f"no two regions of table {table!r} meet at {at!r}; regions({table!r}) lists them"
        )
    return [split for split in splits if split != at]


# -- reads ----------------------------------------------------------------------------------------


def selection(
    table: str, columns: Sequence[ColumnSpec] | None, families: Collection[bytes]
) -> list[ColumnSpec] | None:
    """Return the selected columns in HBase's order and without overlap; None is everything.

    Disjoint and ordered specs can be read one after the other: their cells come in HBase's order.
    """
    if columns is None:
        return None
    for family, qualifier in columns:
        if family not in families:
            check_family(table, family, families)
        if qualifier is not None and not isinstance(qualifier, bytes):
            raise TypeError(f"qualifier {qualifier!r} is {type(qualifier).__name__}; use bytes")
    whole = {family for family, qualifier in columns if qualifier is None}
    if len(whole) == len(families):
        return None  # every family: the plain query is the fastest one
    single = {(family, qualifier) for family, qualifier in columns if family not in whole}
    return sorted([*single, *((family, None) for family in whole)], key=_spec_order)


def _spec_order(spec: ColumnSpec) -> tuple[bytes, bytes]:
    return spec[0], spec[1] or b""


def check_bounds(min_version: int, max_version: int, max_versions: int | None) -> None:
    """Refuse version bounds that no cell can satisfy by construction."""
    if min_version < 0 or max_version > MAX_VERSION:
        raise UsageError(
            f"versions {min_version} to {max_version} are out of range; use 0 to 2**63 - 1"
        )
    if max_versions is not None and max_versions < 1:
        raise UsageError(f"max_versions is {max_versions}; use 1 or more, or None for all")


def check_range(key_range: KeyRange) -> None:
    """Refuse a key range whose ends are not bytes."""
    for key in key_range:
        if not isinstance(key, bytes):
            raise TypeError(f"key {key!r} of a range is {type(key).__name__}; use bytes")


def check_page_rows(page_rows: int) -> None:
    """Refuse a page that could hold no row."""
    if page_rows < 1:
        raise UsageError(f"page_rows is {page_rows}; use 1 or more")


_QUALIFIER_OF: Final = itemgetter(2)


def newest(cells: list[Cell], max_versions: int) -> list[Cell]:
    """Keep the first `max_versions` versions of each column of cells in HBase's order."""
    qualifiers = list(map(_QUALIFIER_OF, cells))
    if not any(map(eq, qualifiers, qualifiers[max_versions:])):
        return cells  # no column can have more, which is the rule
    kept: list[Cell] = []
    row, family, qualifier, count = None, None, None, 0
    for cell in cells:
        if cell[2] != qualifier or cell[1] != family or cell[0] != row:
            row, family, qualifier, count = cell[0], cell[1], cell[2], 0
        if count < max_versions:
            kept.append(cell)
        count += 1
    return kept


# -- writes ---------------------------------------------------------------------------------------


def add_effects(
    effects: Effects, table: str, mutation: RowMutation, families: Collection[bytes]
) -> None:
    """Check one row mutation and add what it leaves behind to `effects`.

    Raises:
        UsageError: naming the row or cell that no store can hold.
        NoSuchFamily: the table lacks a family.
    """
    row, puts, deletes = mutation
    check_row(row)
    room = MAX_CELL_BYTES - CELL_OVERHEAD_BYTES - len(row)
    for family, qualifier, version, value in puts:
        if family not in families or not isinstance(qualifier, bytes):
            _refuse_column(table, row, family, qualifier, families)
        if not isinstance(value, bytes):
            raise TypeError(
                f"the value of {table!r} {row!r} {family!r}:{qualifier!r} is "
                f"{type(value).__name__}; encode it to bytes"
            )
        if not 0 <= version < MAX_VERSION:
            _refuse_version(table, row, family, qualifier, version)
        size = len(value)
        if size > MAX_VALUE_BYTES or size + len(qualifier) + len(family) > room:
            raise UsageError(
                f"the cell {table!r} {row[:64]!r} {family!r}:{qualifier[:64]!r} has "
                f"{size} bytes of value; key and value together may have about 10 MiB: "
                "split it over several columns, or store it elsewhere and keep its name here"
            )
        effects[row, family, qualifier, version] = value
    if not deletes:
        return
    put_here = {put[:3] for put in puts} if puts else ()
    for family, qualifier, version in deletes:
        if family not in families or not isinstance(qualifier, bytes):
            _refuse_column(table, row, family, qualifier, families)
        if not 0 <= version < MAX_VERSION:
            _refuse_version(table, row, family, qualifier, version)
        if (family, qualifier, version) in put_here:
            raise UsageError(
                f"one mutation puts and deletes {table!r} {row!r} {family!r}:{qualifier!r} at "
                f"version {version}; leave one of the two out"
            )
        effects[row, family, qualifier, version] = None


def are_ordinary_puts(mutations: Iterable[RowMutation], families: Collection[bytes]) -> bool:
    """Say whether mutations certainly put what any store takes, and each what no other does.

    Then they leave behind what they say, one by one.  Where it says no, `add_effects` says more.
    """
    rows: set[bytes] = set()
    for row, puts, deletes in mutations:
        if deletes or not puts or type(row) is not bytes or not 0 < len(row) <= SHORT_BYTES:
            return False
        if row in rows:
            return False
        rows.add(row)
        for family, qualifier, version, value in puts:
            if (
                family not in families
                or type(qualifier) is not bytes
                or type(value) is not bytes
                or type(version) is not int
                or not 0 <= version < MAX_VERSION
                or len(qualifier) > SHORT_BYTES
                or len(value) > LONG_BYTES
            ):
                return False
        if len(puts) > 1 and len({put[:3] for put in puts}) < len(puts):
            return False
    return True


def check_entries(entries: Entries, families: Collection[bytes]) -> None:
    """Refuse entries of which a mutation one by one would be refused.

    Raises:
        UsageError: naming the row or cell that no store can hold.
        NoSuchFamily: the table lacks a family.
    """
    if entries.column == entries.absent:
        raise UsageError(f"entries of {entries.table!r} are put where they are not to be")
    for family, qualifier in (entries.column, entries.absent):
        if family not in families or not isinstance(qualifier, bytes):
            _refuse_column(entries.table, b"", family, qualifier, families)
    for row, version, value in entries.cells:
        is_plain = type(row) is bytes and type(value) is bytes and 0 <= version < MAX_VERSION
        if not is_plain or not 0 < len(row) <= SHORT_BYTES or len(value) > SHORT_BYTES:
            put = RowMutation(row, puts=(Put(*entries.column, version, value),))
            add_effects({}, entries.table, put, families)


def check_cells(table: str, cells: Sequence[CellRecord], families: Collection[bytes]) -> None:
    """Refuse cells of which a mutation one by one would be refused.

    Raises:
        UsageError: naming the row or cell that no store can hold.
        NoSuchFamily: the table lacks a family.
    """
    if not cells or _are_ordinary(cells, families):
        return
    for row, family, qualifier, version, value in cells:
        put = RowMutation(row, puts=(Put(family, qualifier, version, value),))
        add_effects({}, table, put, families)


def _are_ordinary(cells: Sequence[CellRecord], families: Collection[bytes]) -> bool:
    """Say whether cells are so short that nothing can be wrong with one; all in C."""
    rows, their_families, qualifiers, versions, values = zip(*cells, strict=True)
    texts = (*rows, *qualifiers, *values)
    return (
        set(map(type, texts)) == {bytes}
        and set(map(type, versions)) == {int}
        and all(rows)
        and max(map(len, texts)) <= SHORT_BYTES
        and min(versions) >= 0
        and max(versions) < MAX_VERSION
        and set(their_families).issubset(families)
    )


def _refuse_column(
    table: str, row: bytes, family: bytes, qualifier: bytes, families: Collection[bytes]
) -> None:
    check_family(table, family, families)
    raise TypeError(
        f"qualifier {qualifier!r} of {table!r} {row!r} is {type(qualifier).__name__}; use bytes"
    )


def _refuse_version(table: str, row: bytes, family: bytes, qualifier: bytes, version: int) -> None:
    raise UsageError(
        f"version {version} of {table!r} {row!r} {family!r}:{qualifier!r} is out of range; "
        "a version is 0 or more and below 2**63 - 1"
    )


def check_condition(condition: Condition, families: Collection[bytes]) -> None:
    """Refuse a condition that backends would read differently."""
    check_row(condition.row)
    check_family(condition.table, condition.column[0], families)
    if condition.expected is None:
        return
    if not isinstance(condition.expected, bytes):
        raise TypeError(f"expected value {condition.expected!r} is not bytes")
    if not condition.expected:
        raise UsageError(
            f"the value expected of {condition.table!r} {condition.row!r} is empty, which HBase "
            "reads as 'absent'; pass None to ask for absence"
        )


def check_same_row(row: bytes, mutation: RowMutation) -> None:
    """Refuse a check of one row that would change another."""
    if mutation.row != row:
        raise UsageError(
            f"the condition is on row {row!r}, the mutation on row {mutation.row!r}; "
            "use write_guarded to check one row and change another"
        )
