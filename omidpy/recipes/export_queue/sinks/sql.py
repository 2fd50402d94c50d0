"""A table of SQL that keeps the newest value of each key: its statement and its rows.  Pure.

    key, value, commit_ts, ordinal, start_ts

A row is replaced only by what is newer, so that repetitions and a process that was paused change
nothing.  Ordinals may exceed 64 bits, so that they are bytes.
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
