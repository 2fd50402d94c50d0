"""Which tables may a compaction change, and which merely hold the horizon back?

Counting is not owning.  Every table of the store counts that may hold cells of our transactions,
because a transactional table that a pruner forgets is data lost.  But we write only where an
operator has said so: a family with `OMID_ENABLED=true` in a table whose attribute names this very
commit table.  Whatever looks transactional and is not ours blocks the horizon until it is adopted
or ignored.

`judge` is pure; `survey` asks the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from omidpy.cells import SHADOW_PREFIX
from omidpy.control import (
    COMMIT_TABLE_ATTRIBUTE,
    OMID_ENABLED,
    ControlTable,
    decode_document,
    encode_document,
    is_system_table,
    transactional_families,
)
from omidpy.errors import NoSuchTable
from omidpy.model import Cell, TableSchema
from omidpy.storage.base import Store

IGNORED_PREFIX: Final = b"ignored/"


class Standing(Enum):
    """What a compaction may do with a table."""

    OWNED = "owned"
    """Healed, collected, and counted."""
    BLOCKING = "blocking"
    """Looks transactional and is not ours: never written, holds the horizon back."""
    IGNORED = "ignored"
    """An operator said that it is not ours: never written, does not count."""
    PLAIN = "plain"
    """Nothing transactional about it: never written, does not count."""
    SYSTEM = "system"
    """Omid's, omidpy's or HBase's own."""


@dataclass(frozen=True, slots=True)
class TableStanding:
    """A table, what may be done with it, and why."""

    name: str
    standing: Standing
    families: frozenset[bytes] = frozenset()
    """The families that may be written; empty unless it is owned."""
    reason: str = ""
    """For a blocking table: what was found, and what to do about it."""


def is_owned(schema: TableSchema, commit_table: str) -> bool:
    """Say whether the table was created or adopted for `commit_table`."""
    owner = schema.attributes.get(COMMIT_TABLE_ATTRIBUTE)
    return (
        owner == commit_table
        and bool(transactional_families(schema))
        and not is_system_table(schema.name)
    )


def owned(standings: Iterable[TableStanding]) -> dict[str, frozenset[bytes]]:
    """Return the families that are ours, by table."""
    return {one.name: one.families for one in standings if one.standing is Standing.OWNED}


def judge(
    schema: TableSchema, commit_table: str, *, is_ignored: bool, witness: Cell | None
) -> TableStanding:
    """Decide the standing of one table.

    Args:
        schema: The table.
        commit_table: Name of the commit table that this compaction prunes.
        is_ignored: Whether an operator said that the table is not ours.
        witness: Some cell of it with the qualifier of a shadow cell, if there is one.
    """
    name = schema.name
    if is_system_table(name):
        return TableStanding(name, Standing.SYSTEM)
    marked = transactional_families(schema)
    if is_owned(schema, commit_table):
        return TableStanding(name, Standing.OWNED, marked)
    if is_ignored:
        return TableStanding(name, Standing.IGNORED)
    if marked:
        owner = schema.attributes.get(COMMIT_TABLE_ATTRIBUTE)
        found = f"family {min(marked).decode(errors='backslashreplace')} has {OMID_ENABLED}=true"
        found += f", but the table belongs to the commit table {owner}" if owner else ""
    elif witness is not None:
        found = f"row {witness.row!r} holds the shadow cell {witness.qualifier!r}"
    else:
        return TableStanding(name, Standing.PLAIN)
    return TableStanding(name, Standing.BLOCKING, reason=f"not adopted: {found}; {remedy(name)}")


def remedy(table: str) -> str:
    """Say what an operator can do about a table that blocks the horizon."""
    return (
        f"run `omidpy table adopt {table} --apply` if its transactions are ours, "
        f"`omidpy table ignore {table} --apply` if they are not"
    )


def unknown_tables(names: Sequence[str], store_url: str) -> str:
    """Say that a command named tables that do not exist."""
    return (
        f"there is no table {', '.join(names)} in {store_url}; `omidpy table list` shows what "
        "there is"
    )


def survey(store: Store, commit_table: str) -> list[TableStanding]:
    """Judge every table of the store, by name.

    Cost: 1 RPC, and for each table without marks a search for a shadow cell, which may read all of
    it.
    """
    ignored = ignored_tables(ControlTable(store))
    standings = []
    for schema in store.tables():
        is_ignored = schema.name in ignored
        witness = None
        if not (is_system_table(schema.name) or is_ignored or transactional_families(schema)):
            try:
                witness = store.find_cell(schema.name, prefix=SHADOW_PREFIX)
            except NoSuchTable:
                # Dropped since it was listed.
                continue
        standings.append(judge(schema, commit_table, is_ignored=is_ignored, witness=witness))
    return standings


# -- tables that an operator takes out of the account ----------------------------------------------


class _Ignored(msgspec.Struct, frozen=True):
    is_ignored: bool


def ignored_tables(control: ControlTable) -> frozenset[str]:
    """Return the tables that an operator said are not ours."""
    return frozenset(
        row.removeprefix(IGNORED_PREFIX).decode()
        for row, value in control.scan(IGNORED_PREFIX)
        if decode_document(value, _Ignored, row=row).is_ignored
    )


def set_ignored(control: ControlTable, table: str, *, is_ignored: bool) -> None:
    """Record whether a table is to be left out of the account.

    A fact is replaced and never deleted: on HBase a delete would hide the next one.
    """
    control.write(IGNORED_PREFIX + table.encode(), encode_document(_Ignored(is_ignored)))
