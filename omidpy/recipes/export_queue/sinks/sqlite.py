"""Keeps the newest value of each key in a table of a SQLite file, or every entry.

    key BLOB, value, commit_ts INTEGER, ordinal BLOB, start_ts INTEGER

A row is replaced only by what is newer, or by nothing, so that repetitions and a process that was
paused change nothing (`sql.py`).  A batch is one transaction, synced before it counts as delivered.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omidpy.base.within import within
from omidpy.recipes.export_queue.exporter import Exporter, Retry
from omidpy.recipes.export_queue.sinks.sql import (
    checked_name,
    insert,
    made_of,
    newest,
    row,
    upsert,
)

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.exporter import Batch


class SqliteSink(Exporter):
    """One row for each key: its newest value, and the `seq` of that.  Or one for each entry."""

    def __init__(
        self, file: str | os.PathLike[str], table: str = "entries", *, append: bool = False
    ) -> None:
        """Write to a file, which is made if it is not there, and so is the table.

        Args:
            file: Where.
            table: Letters, digits and `_`.  A value is text (JSON), or a blob where the queue's
                codec gives bytes; an entry whose value is None leaves NULL, and its `seq`.
            append: Every entry has a row, exactly once, and none is replaced.
        """
        self._table = checked_name(table)
        self._file = Path(file)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._appends = append
        self._statement = insert(table, "?") if append else upsert(table, "?")

    def open(self) -> None:
        """Open the file, and make the table."""
        connection = sqlite3.connect(self._file, check_same_thread=False, isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(
            made_of(self._table, key="BLOB", value="value", number="INTEGER", appends=self._appends)
        )
        self._connection = connection

    def export(self, batch: Batch) -> None:
        """Write a batch, whole."""
        try:
            entries = batch if self._appends else newest(batch)
            within(self._lock, self._write, [row(entry) for entry in entries])
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
            connection.executemany(self._statement, rows)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
