"""A table of SQL that keeps the newest value of each key, or every entry: statements, rows.  Pure.

    key, value, commit_ts, ordinal, start_ts

A row is replaced only by what is newer; or, where every entry has a row of its own, by nothing.  So
repetitions and a process that was paused change nothing.  Ordinals may exceed 64 bits, so that they
are bytes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from omidpy.errors import UsageError
from omidpy.recipes.export_queue.sinks.documents import encoded_value, sortable_ordinal

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.exporter import Batch, Entry

COLUMNS: Final = ("key", "value", "commit_ts", "ordinal", "start_ts")

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def checked_name(name: str) -> str:
    """Return a name that may go into a statement.

    Raises:
        UsageError: it may not.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"the table {name!r} must be letters, digits and '_'")
    return name


def upsert(table: str, placeholder: str) -> str:
    """Return the statement that takes a row, unless the table has a newer one of its key."""
    changed = ", ".join(f"{column} = excluded.{column}" for column in COLUMNS[1:])
    return (
        f"INSERT INTO {table} AS held ({', '.join(COLUMNS)}) "  # noqa: S608 - a checked name
        f"VALUES ({', '.join([placeholder] * len(COLUMNS))}) "
        f"ON CONFLICT (key) DO UPDATE SET {changed} "
        "WHERE (held.commit_ts, held.ordinal) < (excluded.commit_ts, excluded.ordinal)"
    )


def insert(table: str, placeholder: str) -> str:
    """Return the statement that adds a row, unless the table has the very entry.

    What one transaction adds has an ordinal of its own, in whichever queue: queues of one store may
    share a table.
    """
    return (
        f"INSERT INTO {table} ({', '.join(COLUMNS)}) "  # noqa: S608 - a checked name
        f"VALUES ({', '.join([placeholder] * len(COLUMNS))}) "
        "ON CONFLICT (commit_ts, ordinal) DO NOTHING"
    )


def made_of(table: str, *, key: str, value: str, number: str, appends: bool) -> str:
    """Return the statement that makes a table of these types, unless it is there."""
    unique = "PRIMARY KEY (commit_ts, ordinal)"
    return (
        f"CREATE TABLE IF NOT EXISTS {table} (key {key} {'NOT NULL' if appends else 'PRIMARY KEY'},"
        f" {value}, commit_ts {number} NOT NULL, ordinal {key} NOT NULL, start_ts {number} NOT NULL"
        f"{', ' + unique if appends else ''})"
    )


def newest(batch: Batch) -> list[Entry]:
    """Return the last entry of each key, by key.

    Two batches that write the same rows then come to them in one order, and cannot block each
    other.
    """
    last = {entry.key: entry for entry in batch}
    return [last[key] for key in sorted(last)]


def row(entry: Entry) -> tuple[Any, ...]:
    """Return the row of an entry: its value as bytes, or as JSON, or None."""
    value: Any = entry.value
    if value is not None and not isinstance(value, bytes):
        value = encoded_value(value).decode()
    return entry.key, value, entry.commit_ts, sortable_ordinal(entry), entry.start_ts
