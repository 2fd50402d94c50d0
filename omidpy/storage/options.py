"""What some stores can do besides, so that their callers need not do it for them: the options.

An option is a protocol of its own, which a caller asks a store for by `isinstance`; where a store
lacks it the caller does the same with what every store can do (`base.py`), and that is slower.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from omidpy.model import (
    MAX_VERSION,
    Cell,
    Change,
    ColumnSpec,
    KeyRange,
    PairedCell,
    RowValues,
)
from omidpy.storage.base import CellFields, Condition, Entries, GuardedMutation, Row


@runtime_checkable
class PairsCells(Protocol):
    """A store that can pair data cells with their shadow cells where they are kept.

    An option: a reader of a store without it pairs for itself.
    """

    def scan_pairs(
        self,
        table: str,
        key_range: KeyRange,
        *,
        columns: Sequence[ColumnSpec] | None,
        max_version: int,
        page_rows: int,
        reverse: bool = False,
    ) -> Iterator[list[list[PairedCell]]]:
        """Yield what `Store.scan` yields, without the shadow cells.

        Each data cell comes with the value of its shadow cell instead, in the form with a prefix,
        at the same version.  `columns` name data.  At least the newest version of each column
        comes, ahead of older ones.  A row of shadow cells alone is left out, or comes with one of
        them, unpaired.
        """
        ...


@runtime_checkable
class ShapesRows(Protocol):
    """A store that can make what a snapshot sees of a row, where that needs no decision.

    An option: a reader of a store without it decides and makes for itself.
    """

    def scan_values(
        self,
        table: str,
        key_range: KeyRange,
        *,
        columns: Sequence[ColumnSpec] | None,
        max_version: int,
        before: bytes,
        page_rows: int,
        reverse: bool = False,
    ) -> Iterator[list[tuple[bytes, RowValues | list[PairedCell]]]]:
        """Yield what `PairsCells.scan_pairs` yields, each row with its key before it.

        A row may come as values by column instead of pairs, and only one of which that says what
        `reading.visibility.simple_row` would say: the newest version of each column has a shadow
        cell below `before`, and none has an empty qualifier.  Columns with a tombstone are left out
        there, so that nothing may be left.

        Args:
            table: As in `scan_pairs`, and so are `key_range`, `columns`, `page_rows`, `reverse`.
            key_range: See there.
            columns: See there.
            max_version: See there.
            before: What the shadow cell of a commit at the snapshot's start_ts would hold.
            page_rows: See there.
            reverse: See there.
        """
        ...


@runtime_checkable
class ShapesChanges(Protocol):
    """A store that can make the changes that rows have seen, where that needs no decision.

    An option, as `ShapesRows` is.
    """

    def scan_changes(
        self,
        table: str,
        key_range: KeyRange,
        *,
        columns: Sequence[ColumnSpec] | None,
        min_version: int,
        max_version: int,
        first: bytes,
        before: bytes,
        page_rows: int,
    ) -> Iterator[list[tuple[bytes, list[Change], Row]]]:
        """Yield what `Store.scan` yields, each row with its key, and its changes or its cells.

        A row may come as changes, which may be none, instead of cells, and only as those that
        `reading.changes.change.simple_changes` would find: each data cell has a shadow cell in
        front of it, none has an empty qualifier, and no column has two of one transaction.

        Args:
            table: As in `Store.scan`, and so are `key_range`, `columns`, `min_version`,
                `max_version` and `page_rows`.
            key_range: See there.
            columns: See there; those of shadow cells among them.
            min_version: See there.
            max_version: See there.
            first: What the shadow cell of the first commit would hold that is wanted.
            before: What that of the first commit behind them would hold.
            page_rows: See there.
        """
        ...


class LazyRow(Sequence[Cell]):
    """A row like any other, whose cells are made each time that they are looked at."""

    __slots__ = ()

    @property
    @abstractmethod
    def key(self) -> bytes:
        """The row that they all are of."""

    @abstractmethod
    def fields(self) -> Iterator[CellFields]:
        """Return what its cells hold, in their order, and make none."""


class Wanted(NamedTuple):
    """Cells of whole families, all those of some versions."""

    families: tuple[bytes, ...]
    """In order."""
    min_version: int = 0
    max_version: int = MAX_VERSION

    def columns(self) -> list[ColumnSpec]:
        """Return them as columns to read."""
        return [(family, None) for family in self.families]


class Portion(NamedTuple):
    """How much of a table is in memory at a time."""

    cells: int
    size_bytes: int
    """Qualifiers and values."""


@dataclass(frozen=True, slots=True)
class LongRow:
    """A row that is more than a portion: none of its cells comes with it."""

    key: bytes


@runtime_checkable
class CutsRows(Protocol):
    """A store whose rows may be longer than what their reader can hold.

    An option: from every other store rows come whole, however long they are.
    """

    def scan_portions(
        self,
        table: str,
        key_range: KeyRange,
        wanted: Wanted,
        *,
        page_rows: int,
        most: Portion,
    ) -> Iterator[Sequence[Row] | Sequence[LazyRow] | LongRow]:
        """Yield what `Store.scan` yields, in key order, with a `LongRow` for each that is long.

        A page is no more than a portion, or one row; its rows are alike.
        """
        ...

    def get_portion(
        self, table: str, rows: Sequence[bytes], wanted: Wanted, *, most: Portion
    ) -> list[Row | LongRow]:
        """Read the first of some rows, as many as make a portion, and one at least.

        A row without such cells is empty.
        """
        ...

    def row_parts(self, table: str, row: bytes, wanted: Wanted, *, most: Portion) -> Iterator[Row]:
        """Yield the cells of a row in HBase's order, at most a portion at a time.

        Each part is read when it is asked for, so that the row may change between two.  A cell that
        is there throughout comes once.
        """
        ...


class Sieve(NamedTuple):
    """Which cells are looked at, and what a clean row has."""

    wanted: Wanted
    first_version: int
    """No version below it."""
    newest: int
    """No shadow cell that holds a number above it."""


class Sifted(NamedTuple):
    """Some rows of a range that follow each other, told apart."""

    rows: int
    """How many of them are clean."""
    cells: int
    """What those have together."""
    size_bytes: int
    """Of these cells, keys and values, 8 bytes for a version."""
    oldest: int | None
    """The lowest version among them; None: no row is clean."""
    others: list[bytes]
    """Keys of the rows that were not seen to be clean, in order."""
    rest: KeyRange | None
    """What is left of the range; None: nothing."""


@runtime_checkable
class SiftsRows(Protocol):
    """A store that tells by itself which rows are plainly clean.

    An option: from every other store rows come whole, and their reader tells.

    A row is clean if its wanted cells are data and their shadow cells in the form with a prefix,
    one for each, if it has one version of each column, and no data cell is a tombstone, which are
    empty or hold the older form's value, or a family marker, which is empty, too; and if each
    shadow cell holds 8 bytes, a number from its version up to the newest.
    """

    def sift(self, table: str, key_range: KeyRange, sieve: Sieve, *, most_cells: int) -> Sifted:
        """Look at the first rows of a range, in one view of them.

        Args:
            table: Where they are.
            key_range: Which rows.
            sieve: What is looked at.
            most_cells: How many cells, about; a row is looked at as a whole.
        """
        ...


@runtime_checkable
class RestoresTables(Protocol):
    """A store in which an administrator may turn a single table back to what it was.

    An option: every other store is restored as a whole.
    """

    def table_states(self, tables: Sequence[str]) -> dict[str, int]:
        """Return the states of some tables; those that are not there are left out.

        A state is a number that is another one each time that the table was made, disabled or
        enabled.  A table that is in the same state as before has not been restored in between, nor
        dropped and made again.

        Cost: 1 RPC for up to 500 tables.
        """
        ...

    def drop_table_if(
        self, table: str, *, only: Mapping[str, str] | None, still: Callable[[], bool]
    ) -> bool:
        """Remove a table, unless it is another one, or one that was brought back meanwhile.

        A copy that was cloned from a snapshot has all that its table had, `only` among it.

        Args:
            table: Its name.
            only: As of `Store.drop_table`.
            still: Asked once nothing that is made by then, or brought back, can be removed any
                more.  If it says no, the table is given back.

        Returns:
            Whether it was removed.
        """
        ...


@runtime_checkable
class ClosesTables(Protocol):
    """A store in which an administrator may close a table to all who read and write.

    An option: in every other store a table that is there is open.
    """

    def closed_tables(self, tables: Sequence[str]) -> dict[str, str]:
        """Return those of some tables that are closed, each with a word for how that is.

        Cost: 1 RPC for up to 500 tables.
        """
        ...


@runtime_checkable
class HidesTables(Protocol):
    """A store whose list of tables leaves out those that this user may not look at.

    An option: of every other store a list has all.
    """

    def hidden_tables(self, listed: Collection[str]) -> dict[str, str]:
        """Return the tables that are there, and whose schemas this user may not read; and why.

        Args:
            listed: Those that a list had, which was made before.

        Cost: 1 scan of the names of all tables, and 1 RPC for each that is not listed.
        """
        ...


@runtime_checkable
class TellsLocks(Protocol):
    """A store whose locks among processes are the system's, which tells whether one is held.

    An option: a record of who holds one stands where he was killed, too.
    """

    def is_locked_here(self, name: str) -> bool | None:
        """Say whether a process that can be seen from here holds a lock; None: that is not told."""
        ...


@runtime_checkable
class KnowsServers(Protocol):
    """A store whose tables are served in parts, by several servers, and that knows which by whom.

    An option: of every other store one server has all, or it is not known.
    """

    def region_servers(self, table: str) -> list[tuple[KeyRange, str]]:
        """Return a table's regions, in order and without a gap, and for each who serves it now.

        A server is `HOST:PORT`.  It may be another one in the next moment; so this is for speed
        alone.

        Cost: as `Store.regions`.
        """
        ...


@runtime_checkable
class ChecksBehind(Protocol):
    """A store that may be asked the next thing before it has answered the one before.

    An option: on a store without it, each call follows the answer to the last one.
    """

    def write_then_check(
        self, changes: Sequence[GuardedMutation], check: Condition
    ) -> tuple[list[bool], bool]:
        """Change rows, each on its condition, and then look at another one, in one round trip.

        It is `check_and_mutate` for each and then a `get`: in this order, each begun after the one
        before has ended, and nothing atomic about the whole.

        Args:
            changes: Each has a condition, on its own row.
            check: What to look at behind them.

        Returns:
            Which changes were applied, and whether `check` held.

        Raises:
            StorageUnavailable: any of it may have been done; it was tried once, and not for long.
        """
        ...

    def put_then_check(self, entries: Entries, checks: Sequence[Condition]) -> list[bool]:
        """Put many cells, and then look at some rows, in one round trip.

        It is `write` and then a `get` for each look: in this order, each begun after the one before
        has ended, and nothing atomic about the whole.

        Args:
            entries: The cells.  What column a row lacks is not looked at.
            checks: What to look at behind them.

        Returns:
            Which of `checks` held.

        Raises:
            StorageUnavailable: any of it may have been done; it was tried once, and not for long.
        """
        ...
