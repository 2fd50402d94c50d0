"""What SQLite does alone: transactions that insert cells, each synced, and nothing else.

No snapshot, no conflict detection, no commit table, no shadow cells.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Final

BUSY_TIMEOUT_S: Final = 60.0


def create_bare(path: Path) -> None:
    """Create a database with one table of cells."""
    connection = connect_bare(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(
        "CREATE TABLE cells (row BLOB, family BLOB, qualifier BLOB, version INTEGER, value BLOB,"
        " PRIMARY KEY (row, family, qualifier, version)) WITHOUT ROWID"
    )
    connection.close()


def connect_bare(path: Path) -> sqlite3.Connection:
    """Open a connection whose commits survive a power loss."""
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def write_bare(
    connection: sqlite3.Connection, rows: Iterable[bytes], *, version: int, columns: int
) -> None:
    """Write `columns` cells of each row in one transaction."""
    cells = [
        (row, b"f", b"%d" % column, version, b"value") for row in rows for column in range(columns)
    ]
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?)", cells)
    connection.execute("COMMIT")
