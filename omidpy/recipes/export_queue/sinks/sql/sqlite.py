"""Keeps the newest value of each key in a table of a SQLite file, or every entry.

    key BLOB, value, commit_ts INTEGER, ordinal BLOB, start_ts INTEGER

A row is replaced only by what is newer, or by nothing, so that repetitions and a process that was
paused change nothing (`sql.py`).  A batch is one transaction, synced before it counts as delivered,
and keeps a mark as well, in the table `omidpy_marks` (`sql_marks.py`): rows that a reader has taken
out of the table do not come again.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from omidpy.base.within import within
from omidpy.errors import ConfigError, ExportError
from omidpy.recipes.export_queue.exporter import ExactExporter, Retry
from omidpy.recipes.export_queue.sinks.sql.marks import Marks
from omidpy.recipes.export_queue.sinks.sql.statements import (
    Appending,
    checked_name,
    made_of,
    newest,
    row,
    upsert,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from omidpy.recipes.export_queue.exporter import Batch
    from omidpy.recipes.export_queue.marks import Mark, Share

T = TypeVar("T")

_LOCKED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class SqliteSink(ExactExporter):
    """One row for each key: its newest value, and the `seq` of that.  Or one for each entry."""

    def __init__(
        self, file: str | os.PathLike[str], table: str = "entries", *, append: bool = False
    ) -> None:
        """Write to a file, which is made if it is not there, and so is the table.

        Args:
            file: Where.
            table: Letters, digits and `_`.  A value is text (JSON), or a blob where the queue's
                codec gives bytes; an entry whose value is None leaves NULL, and its `seq`.
            append: Every entry has a row, exactly once, and none is replaced.  Such a table is for
                the queues of one store.
        """
        self._table = checked_name(table)
        self._file = Path(file)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._appends = append
        self._make = made_of(table, key="BLOB", value="value", number="INTEGER", appends=append)
        self._upsert = upsert(table, "?")
        self._appending = Appending(table, "?")
        self._marks = Marks(table, "?")

    def open(self) -> None:
        """Open the file, make the table if it is not there, and see that entries could be written.

        Raises:
            ConfigError: it is no file of SQLite's, or cannot be opened, or has another table.
            ExportError: it is locked.
        """
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(self._file, check_same_thread=False, isolation_level=None)
            self._prepare(connection)
            self._connection, connection = connection, None
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            kind = ExportError if code in _LOCKED else ConfigError
            raise kind(f"{self._file}: {error}; it needs {self._make}") from error
        finally:
            if connection is not None:
                connection.close()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # What a batch was returned from is removed from the queue, so that it must be on the disk:
        # a commit ends with the removal of a journal, which FULL leaves to the next power loss.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute(self._make)
        connection.execute(self._marks.make)
        # SQLite judges whether the table has these columns, and the unique key.
        statement = self._appending.insert if self._appends else self._upsert
        connection.execute(f"EXPLAIN {statement}", (b"", None, 0, b"", 0))
        if self._appends:
            connection.execute(f"EXPLAIN {self._appending.look}", (0, b"", 0, b""))
        for marking, values in (
            (self._marks.take, ("", 0, "")),
            (self._marks.read, ("",)),
            (self._marks.keep, ("", "", 0)),
        ):
            connection.execute(f"EXPLAIN {marking}", values)

    @property
    def needs_marks(self) -> bool:
        """Say no: the table refuses what it has."""
        return False

    def take_over(self, share: Share) -> Mark | None:
        """Raise the fence of a bucket, and read its mark."""
        return self._run(lambda connection: self._marks.take_over(connection.cursor(), share))

    def export_marked(self, share: Share, batch: Batch, mark: Mark) -> None:
        """Write a batch and its mark, whole."""

        def write(connection: sqlite3.Connection) -> None:
            # In one transaction: an owner that was deposed writes neither mark nor entry.
            self._marks.advance(connection.cursor(), share, mark)
            self._write(connection, batch)

        self._run(write)

    def export(self, batch: Batch) -> None:
        """Write a batch, whole."""
        self._run(lambda connection: self._write(connection, batch))

    def close(self) -> None:
        """Close the file, if it was opened."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _write(self, connection: sqlite3.Connection, batch: Batch) -> None:
        if not self._appends:
            connection.executemany(self._upsert, [row(entry) for entry in newest(batch)])
            return
        self._appending.append(
            [row(entry) for entry in batch],
            insert=lambda statement, rows: connection.executemany(statement, rows).rowcount,
            look=lambda statement, rows: [
                connection.execute(statement, one).fetchone() for one in rows
            ],
        )

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `work` returns, done in one transaction."""
        try:
            return within(self._lock, self._run_alone, work)
        except sqlite3.OperationalError as error:  # locked, full, gone: no entry is at fault
            raise Retry(f"{self._file}: {error}") from error

    def _run_alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection
        if connection is None:
            raise Retry(f"{self._file} is not open")
        try:
            # The lock before the first look: no other owner raises the fence until the commit.
            connection.execute("BEGIN IMMEDIATE")
            found = work(connection)
            connection.execute("COMMIT")
            return found
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
