"""A table of SQL that keeps the newest value of each key, or every entry: statements, rows.  Pure.

    key, value, commit_ts, ordinal, start_ts

A row is replaced only by what is newer; or, where every entry has a row of its own, by nothing.  So
repetitions and a process that was paused change nothing.  Ordinals may exceed 64 bits, so that they
are bytes.

A position names an entry of one store.  Timestamps of two stores lie on one grid, and a store that
was set back gives its own once more, so that where the row of an entry is taken already it is
looked at before the entry counts as delivered.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from omidpy.errors import UsageError
from omidpy.recipes.export_queue.exporter import Refused
from omidpy.recipes.export_queue.sinks.documents import encoded_value, sortable_ordinal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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


class Appending:
    """The statements that give every entry a row of its own, in one table."""

    def __init__(self, table: str, placeholder: str) -> None:
        """Write to a table of a checked name."""
        one = placeholder
        self._table = table
        # What one transaction adds has an ordinal of its own, in whichever queue: queues of one
        # store may share a table.
        self.insert = (
            f"INSERT INTO {table} ({', '.join(COLUMNS)}) "  # noqa: S608 - a checked name
            f"VALUES ({', '.join([one] * len(COLUMNS))}) "
            "ON CONFLICT (commit_ts, ordinal) DO NOTHING"
        )
        # Compared by the database, which knows what its columns are.
        self.look = (
            f"SELECT start_ts = {one} AND key = {one} FROM {table} "  # noqa: S608 - see above
            f"WHERE commit_ts = {one} AND ordinal = {one}"
        )

    def append(
        self,
        rows: Sequence[tuple[Any, ...]],
        *,
        insert: Callable[[str, Sequence[tuple[Any, ...]]], int],
        look: Callable[[str, Sequence[tuple[Any, ...]]], Iterable[tuple[Any, ...] | None]],
    ) -> None:
        """Add rows, in a transaction that is under way, unless the table has the very entries.

        Args:
            rows: As `row` makes them.
            insert: Runs a statement for each of some rows, and returns how many rows it has added.
            look: Runs a statement for each of some rows, and returns what each finds, or None.

        Raises:
            Refused: the table has another entry at the position of one of them; roll back.

        Cost: 1 insert; where rows are there already 1 look, and 1 insert if they went meanwhile.
        """
        if insert(self.insert, rows) == len(rows):
            return
        places = [(start_ts, key, at, ordinal) for key, _, at, ordinal, start_ts in rows]
        gone = []
        for one, found in zip(rows, look(self.look, places), strict=True):
            if found is None:
                gone.append(one)
            elif not found[0]:
                raise Refused(self._taken(one))
        if gone:
            # A reader took them out between the two statements, and what he took is not known: that
            # they come once more is better than not at all.  A table whose own rules put rows
            # elsewhere has been given them, as it was before.
            insert(self.insert, gone)

    def _taken(self, one: tuple[Any, ...]) -> str:
        key, _, commit_ts, ordinal, start_ts = one
        return (
            f"{self._table} has a row of another entry at commit_ts {commit_ts}, ordinal "
            f"{ordinal.hex()}, where the entry of key {key!r:.80} and start_ts {start_ts} belongs: "
            "another store has written to it, or this store was set back; let each store have a "
            "table of its own, and one that was set back a new one"
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
