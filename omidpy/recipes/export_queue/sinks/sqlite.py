"""Keeps the newest value of each key in a table of a SQLite file.

    key BLOB, value, commit_ts INTEGER, ordinal BLOB, start_ts INTEGER

A row is replaced only by what is newer, so that repetitions and a process that was paused change
nothing.  A batch is one transaction, synced before it counts as delivered.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omidpy.base.within import within
from omidpy.recipes.export_queue.exporter import Exporter, Retry
from omidpy.recipes.export_queue.sinks.sql import checked_name, newest, row, upsert

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.exporter import Batch


class SqliteSink(Exporter):
    """One row for each key: its newest value, and the `seq` of that."""

    def __init__(self, file: str | os.PathLike[str], table: str = "entries") -> None:
        """Write to a file, which is made if it is not there, and so is the table.

        Args:
            file: Where.
            table: Letters, digits and `_`.  A value is text (JSON), or a blob where the queue's
                codec gives bytes; an entry whose value is None leaves NULL, and its `seq`.
        """
        self._table = checked_name(table)
        self._file = Path(file)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._upsert = upsert(table, "?")

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
            within(self._lock, self._write, [row(entry) for entry in newest(batch)])
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
