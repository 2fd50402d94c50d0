"""A receiver's table of what it has taken: each entry has its effect once, however often it comes.

    with sqlite3.connect("shop.db") as database:        # one transaction
        if inbox.accept(database.cursor(), entry.id):
            ...                                         # whatever the entry asks for

The id is noted in the transaction of the effect: both are there, or neither.  That needs a receiver
with such transactions, and covers what an order of `seq` does not: effects that add up.

The id of a webhook is its `Idempotency-Key`, and that of a message of Kafka its `omidpy-id`.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from omidpy.recipes.export_queue.sinks.sql.statements import checked_name

MOST_ID: Final = 255


class Cursor(Protocol):
    """Of a driver for SQL (PEP 249)."""

    @property
    def rowcount(self) -> Any:
        """How many rows the last statement has changed."""
        ...

    def execute(self, statement: Any, parameters: Any = ..., /) -> Any:
        """Run a statement of SQL in the open transaction."""
        ...


class Inbox:
    """One table, of SQLite or PostgreSQL.  Safe to share among threads: it holds no connection."""

    def __init__(self, table: str = "omidpy_inbox", *, placeholder: str = "?") -> None:
        """Name the table; `placeholder` is what the driver calls a parameter, `%s` for psycopg.

        Raises:
            UsageError: the name is none that may go into a statement.
        """
        name = checked_name(table)
        self._make = (
            f"CREATE TABLE IF NOT EXISTS {name} (id VARCHAR({MOST_ID}) PRIMARY KEY, "
            "taken_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)"
        )
        self._accept = f"INSERT INTO {name} (id) VALUES ({placeholder}) ON CONFLICT DO NOTHING"  # noqa: S608 - a checked name
        self._forget = f"DELETE FROM {name} WHERE taken_at < {placeholder}"  # noqa: S608 - see above

    def make(self, cursor: Cursor) -> None:
        """Make the table, if it is not there."""
        cursor.execute(self._make)

    def accept(self, cursor: Cursor, entry_id: str) -> bool:
        """Note an entry in the transaction of its effect; say whether it came for the first time.

        Another transaction that is taking the same one is waited for.
        """
        cursor.execute(self._accept, (entry_id,))
        return bool(cursor.rowcount == 1)

    def forget(self, cursor: Cursor, before: object) -> int:
        """Remove what was taken before a moment, as the database has moments; return how many.

        An entry comes again after the death of an exporter, a pause of one, or a `replay`: choose a
        moment that is older than any of these reaches back.
        """
        cursor.execute(self._forget, (before,))
        return int(cursor.rowcount)
