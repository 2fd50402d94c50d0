"""Keeps the newest value of each key in a table of a SQLite file.

    key BLOB, value, commit_ts INTEGER, ordinal BLOB, start_ts INTEGER

A row is replaced only by what is newer, so that repetitions and a process that was paused change
nothing.  A batch is one transaction, synced before it counts as delivered.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omidpy.base.within import within
from omidpy.errors import UsageError
from omidpy.recipes.export_queue.exporter import Exporter, Retry
from omidpy.recipes.export_queue.sinks.documents import encoded_value, sortable_ordinal

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.exporter import Batch, Entry

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class SqliteSink(Exporter):
    """One row for each key: its newest value, and the `seq` of that."""

    def __init__(self, file: str | os.PathLike[str], table: str = "entries") -> None:
        """Write to a file, which is made if it is not there, and so is the table.

        Args:
            file: Where.
            table: Letters, digits and `_`.  A value is text (JSON), or a blob where the queue's
                codec gives bytes; an entry whose value is None leaves NULL, and its `seq`.
        """
        if not _NAME.fullmatch(table):
            raise UsageError(f"the table {table!r} must be letters, digits and '_'")
        self._file = Path(file)
        self._table = table
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._upsert = (
            f"INSERT INTO {table} (key, value, commit_ts, ordinal, start_ts) "  # noqa: S608 - checked
            "VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value, "
            "commit_ts = excluded.commit_ts, ordinal = excluded.ordinal, "
            "start_ts = excluded.start_ts "
            f"WHERE ({table}.commit_ts, {table}.ordinal) < (excluded.commit_ts, excluded.ordinal)"
        )

    def open(self) -> None:
        """Open the file, and make the table."""
        connection = sqlite3.connect(self._file, check_same_thread=False, isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self._table} (key BLOB PRIMARY KEY, value, commit_ts "
            "INTEGER NOT NULL, ordinal BLOB NOT NULL, start_ts INTEGER NOT NULL)"
        )
        self._connection = connection

    def export(self, batch: Batch) -> None:
        """Write a batch, whole."""
        try:
            within(self._lock, self._write, [_row(entry) for entry in batch])
        except sqlite3.OperationalError as error:  # locked, full, gone: no entry is at fault
            raise Retry(f"{self._file}: {error}") from error

    def close(self) -> None:
        """Close the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _write(self, rows: list[tuple[Any, ...]]) -> None:
        connection = self._connection
        if connection is None:
            raise Retry(f"{self._file} is not open")
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(self._upsert, rows)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _row(entry: Entry) -> tuple[Any, ...]:
    value: Any = entry.value
    if value is not None and not isinstance(value, bytes):
        value = encoded_value(value).decode()
    return entry.key, value, entry.commit_ts, sortable_ordinal(entry), entry.start_ts
