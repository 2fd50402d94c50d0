"""One long row, kept aside while a pass works on it, with what belongs together side by side.

A store returns a row in its own order, in which a shadow cell may lie a million cells before the
cell that it speaks for.  Here they are neighbours, so that a part of the row says as much about its
cells as the whole of it would.  What speaks for all cells of a transaction, wherever they lie, has
a table of its own.

It is a file without a name that SQLite keeps in the folder for temporary files, and only once it
has outgrown a few megabytes; it is gone with its process, however that ends.  Nothing rests on it:
it is a copy for reading.  Where it cannot be kept, because the disk is full for one, that is an
obstacle of the one row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Final, NamedTuple, TypeAlias

from omidpy.base.cells import data_qualifier, is_shadow_qualifier
from omidpy.errors import StorageError
from omidpy.model import Cell, Timestamp
from omidpy.storage.base import Row
from omidpy.storage.options import Portion

CACHE_KIB: Final = 4096
"""What stays in memory."""

MOST_ASKED: Final = 500
"""Transactions that one statement asks for."""

Column: TypeAlias = tuple[bytes, bytes]
"""Family and data qualifier."""

_Place: TypeAlias = tuple[bytes, bytes, int]
_Fields: TypeAlias = tuple[bytes, bytes, int, bytes, bytes]
_FIRST: Final[_Place] = (b"", b"", -(2**63))


class Part(NamedTuple):
    """Some cells of a row with all that belongs to them."""

    cells: Row
    """Whole columns with their shadow cells, or some versions of one."""
    column: Column | None
    """Of which column they are some versions; None: they are whole columns."""


class UnkeptRow(StorageError):
    """A row cannot be kept aside on this machine."""


class Spool:
    """The cells of one row.

    Raises:
        UnkeptRow: from every method.
    """

    def __init__(self, row: bytes, most: Portion) -> None:
        """Begin without a cell.

        Args:
            row: Its key.
            most: What a part comes to at most, unless a cell with its shadow cells is more.
        """
        self.row = row
        self._most = most
        with _kept(row):
            self._file = sqlite3.connect("", isolation_level=None)
            self._file.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            self._file.execute("PRAGMA journal_mode = OFF")
            # Newer versions first: their numbers are negative.
            self._file.execute(
                "CREATE TABLE cells (family BLOB, name BLOB, negative INTEGER, qualifier BLOB,"
                " value BLOB, PRIMARY KEY (family, name, negative, qualifier)) WITHOUT ROWID"
            )
            self._file.execute(
                "CREATE TABLE commits (start_ts INTEGER PRIMARY KEY, commit_ts INTEGER)"
            )

    def close(self) -> None:
        """Close the file, which ends with that."""
        self._file.close()

    def add(self, cells: Iterable[Cell]) -> None:
        """Take in cells of the row; one that is there already is replaced."""
        with _kept(self.row):
            self._file.executemany(
                "INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?)",
                ((*_place(cell), cell.qualifier, cell.value) for cell in cells),
            )

    def remove(self, cells: Iterable[Cell]) -> None:
        """Take out cells that are not the row's any more."""
        with _kept(self.row):
            self._file.executemany(
                "DELETE FROM cells"
                " WHERE family = ? AND name = ? AND negative = ? AND qualifier = ?",
                ((*_place(cell), cell.qualifier) for cell in cells),
            )

    def add_commits(self, commits: Mapping[Timestamp, Timestamp]) -> None:
        """Note when transactions were committed."""
        with _kept(self.row):
            self._file.executemany("INSERT OR REPLACE INTO commits VALUES (?, ?)", commits.items())

    def commits(self, transactions: Iterable[Timestamp]) -> dict[Timestamp, Timestamp]:
        """Return what was noted of some transactions."""
        asked = sorted(set(transactions))
        found: dict[Timestamp, Timestamp] = {}
        for first in range(0, len(asked), MOST_ASKED):
            some = asked[first : first + MOST_ASKED]
            marks = ", ".join("?" * len(some))
            query = f"SELECT start_ts, commit_ts FROM commits WHERE start_ts IN ({marks})"  # noqa: S608  marks alone
            with _kept(self.row):
                found.update(self._file.execute(query, some))
        return found

    def families(self) -> list[bytes]:
        """Return the families that have cells, in order."""
        with _kept(self.row):
            found = self._file.execute("SELECT DISTINCT family FROM cells ORDER BY family")
            return [family for (family,) in found]

    def parts(self, family: bytes | None = None, name: bytes | None = None) -> Iterator[Part]:
        """Yield all cells, or those of a family or a column, part by part in order.

        Cells may be added and removed between two parts, in what was yielded.
        """
        place = _FIRST
        long_column = None if family is None or name is None else (family, name)
        is_last = False
        while not is_last:
            fields, is_last = self._read(place, family, name)
            if not fields:
                return
            first = fields[0][:2]
            of_first = fields[: _length_of_first(fields)]
            if first == long_column or (len(of_first) == len(fields) and not is_last):
                long_column = first
                goes_on = len(of_first) == len(fields) and not is_last
                taken = _without_last(of_first, 3) if goes_on else of_first
                is_last = is_last and len(of_first) == len(fields)
            else:
                long_column = None
                taken = fields if is_last else _without_last(fields, 2)
            place = taken[-1][:3]
            cells = [
                Cell(self.row, family_name, qualifier, -negative, value)
                for family_name, _, negative, qualifier, value in taken
            ]
            yield Part(cells, long_column)

    def _read(
        self, behind: _Place, family: bytes | None, name: bytes | None
    ) -> tuple[list[_Fields], bool]:
        """Read a little more than a part; say whether nothing lies behind that."""
        where = "(family, name, negative) > (?, ?, ?)"
        values: tuple[object, ...] = behind
        for column, wanted in (("family", family), ("name", name)):
            if wanted is not None:
                where += f" AND {column} = ?"
                values = (*values, wanted)
        query = (
            f"SELECT family, name, negative, qualifier, value FROM cells WHERE {where}"  # noqa: S608  fixed text
            " ORDER BY family, name, negative, qualifier"
        )
        fields: list[_Fields] = []
        size_bytes = 0
        with _kept(self.row), closing(self._file.execute(query, values)) as found:
            for one in found:
                is_full = len(fields) >= self._most.cells or size_bytes >= self._most.size_bytes
                fields.append(one)
                # A version with its shadow cells is never parted.
                if is_full and one[:3] != fields[0][:3]:
                    return fields, False
                size_bytes += len(one[3]) + len(one[4])
        return fields, True


@contextmanager
def _kept(row: bytes) -> Iterator[None]:
    """Say of an error what the file is for.

    Raises:
        UnkeptRow: in place of SQLite's own.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise UnkeptRow(
            f"row {row[:60]!r} is too long to be held in memory, and could not be kept in the "
            f"folder for temporary files of this machine: {error}; make room there, or let "
            "SQLITE_TMPDIR name another folder"
        ) from error


def _place(cell: Cell) -> _Place:
    """Return where a cell is kept: a shadow cell beside what it speaks for."""
    is_shadow = is_shadow_qualifier(cell.qualifier)
    name = data_qualifier(cell.qualifier) if is_shadow else cell.qualifier
    return cell.family, name, -cell.version


def _length_of_first(fields: list[_Fields]) -> int:
    """Return how many are of the first column."""
    first = fields[0][:2]
    return next((n for n, one in enumerate(fields) if one[:2] != first), len(fields))


def _without_last(fields: list[_Fields], count: int) -> list[_Fields]:
    """Leave out what begins as the last one does: there may be more of it."""
    last = fields[-1][:count]
    end = len(fields)
    while end and fields[end - 1][:count] == last:
        end -= 1
    return fields[:end]
