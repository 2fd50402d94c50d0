"""What is a connection to the file worth after an exception?  Nothing: it is opened afresh.

An exception may come at any line, also of what would tidy up.  So a connection counts as dirty from
the moment at which it is used until all went well, and its next user looks.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from omidpy.base.within import within
from omidpy.storage.sqlite.names import Named

T = TypeVar("T")


class Handle:
    """A connection, opened when it is first needed.

    Whatever left it in the middle of something left it dirty: a transaction may be open, or a
    cursor, which pins the view that later reads would get.  It is then opened afresh.
    """

    __slots__ = ("__weakref__", "_connection", "_is_clean", "_open", "in_use", "log")

    def __init__(self, open_: Callable[[Handle], None], log: Named) -> None:
        self.in_use = threading.Lock()
        """Held by the thread that uses it."""
        self.log = log
        """The log beside the file, as it has used it."""
        self._open = open_
        self._connection: sqlite3.Connection | None = None
        self._is_clean = False

    def __del__(self) -> None:
        # An exception may come at the line that would hand it on.  The connection went with it
        # before, too; Python 3.13 and newer want to be told.
        if (connection := getattr(self, "_connection", None)) is not None:
            connection.close()

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `work` makes of the connection."""
        if not self._is_clean:
            self.close()
            self._open(self)
        connection = self._connection
        assert connection is not None, "it was opened"
        # Before the work, and clean again only behind it: an exception at any line in between
        # leaves a connection that is thrown away (I11).
        self._is_clean = False
        result = work(connection)
        self._is_clean = not connection.in_transaction
        return result

    def connect(self, path: str, *, timeout_s: float, pragmas: Iterable[str]) -> None:
        """Open the connection; it is known here before anything is done with it."""
        self._connection = sqlite3.connect(
            path,
            timeout=timeout_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        for pragma in pragmas:
            self.execute(f"PRAGMA {pragma}")

    def execute(self, statement: str) -> None:
        """Execute a statement, and read what it returns to the end."""
        assert self._connection is not None, "it was opened"
        self._connection.execute(statement).fetchall()

    def close(self) -> None:
        """Close the connection; the next use opens another, on whatever log there is by then.

        With the last connection SQLite removes the log: the one that was used says nothing of it.
        """
        self._is_clean = False
        self.log.forget()
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def transact(
    connection: sqlite3.Connection, begin: str, work: Callable[[sqlite3.Connection], T]
) -> T:
    """Return what `work` returns, called in a transaction that is committed, or rolled back.

    Args:
        connection: It ends its transaction in C, whatever line an exception comes at.
        begin: The statement that begins one.
        work: What to do in it.
    """
    return within(connection, _begun, connection, begin, work)


def _begun(
    connection: sqlite3.Connection, begin: str, work: Callable[[sqlite3.Connection], T]
) -> T:
    connection.execute(begin)
    return work(connection)
