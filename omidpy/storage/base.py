"""What may be asked of a store of cells, in HBase's own terms.

A table has column families; a cell is (row, family, qualifier, version) -> value; every version is
kept.  A row mutation is atomic to every reader; a batch of rows is not, unless
`Capabilities.guarded_batches` says otherwise.  Two puts at one version: the later wins.  Cells of a
row come in the order (family, qualifier, version descending).

No method leaves a read transaction open: a scan is a series of pages, each a fresh read, because a
reader that pins an old view would not see a shadow cell when it reads it afresh.

What must be atomic has no default body here.  `omidpy.testing.contract.StoreContract` holds every
backend to the same meaning; `storage/memory.py` is that meaning in its shortest form.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias, TypedDict, runtime_checkable

from omidpy.model import (
    MAX_VERSION,
    Cell,
    Change,
    Column,
    ColumnSpec,
    KeyRange,
    PairedCell,
    RowValues,
    TableCells,
    TableSchema,
)

Row: TypeAlias = list[Cell]
"""The cells of one row, never empty in a scan, in HBase's order."""

CellFields: TypeAlias = tuple[bytes, bytes, int, bytes]
"""Family, qualifier, version and value of a cell whose row is known."""

WHOLE_TABLE: Final = KeyRange()
"""Every row of a table."""


class Read(TypedDict, total=False):
    """What of each row is read: what `Store.get` takes by name.

    Stores and callers name each of them.  A store that passes reads on to another one takes them
    together, as `**read: Unpack[Read]`, and hands them on as `**read`: what is not said, stays so.
    """

    columns: Sequence[ColumnSpec] | None
    min_version: int
    max_version: int
    max_versions: int | None


class Scan(Read, total=False):
    """The same of `Store.scan`: in which order, and how many rows at once."""

    reverse: bool
    page_rows: int


class Find(TypedDict, total=False):
    """The same of `Store.find_cell`."""

    prefix: bytes
    columns: Sequence[ColumnSpec] | None
    min_version: int
    max_version: int


class Put(NamedTuple):
    """Write one version of a column."""

    family: bytes
    qualifier: bytes
    version: int
    value: bytes


class DeleteVersion(NamedTuple):
    """Remove exactly one version of a column; older versions become visible again."""

    family: bytes
    qualifier: bytes
    version: int


class RowMutation(NamedTuple):
    """Puts and deletes of one row, applied atomically: all of them or none, to every reader."""

    row: bytes
    puts: Sequence[Put] = ()
    deletes: Sequence[DeleteVersion] = ()


class Condition(NamedTuple):
    """Holds if the newest version of a column has the value `expected`.

    None: if the column is absent.
    """

    table: str
    row: bytes
    column: Column
    expected: bytes | None


class GuardedMutation(NamedTuple):
    """A row mutation that is applied only if `condition` (on the same or another row) holds."""

    table: str
    mutation: RowMutation
    condition: Condition | None = None


class Entries(NamedTuple):
    """Cells of one column, each for a row of its own that lacks another column.

    It is as many guarded mutations, each of which puts one cell if its row does not have `absent`;
    where there are thousands of them, making those would take longer than writing the cells.
    """

    table: str
    column: Column
    absent: Column
    """Another column than that of the cells."""
    cells: Sequence[tuple[bytes, int, bytes]]
    """Row, version and value."""


class CellGroup(NamedTuple):
    """Cells of several rows and tables that are put together, or not at all.

    They are not put where the condition does not hold, nor where one of the tables or families is
    not there: a caller that has others' cells in the same call need not fear for the rest of it.
    """

    cells: TableCells
    condition: Condition
    """On a row that the group itself does not change."""


def singly(mutations: Iterable[GuardedMutation | Entries | CellGroup]) -> list[GuardedMutation]:
    """Return guarded mutations one by one, entries and the cells of groups among them."""
    found: list[GuardedMutation] = []
    for one in mutations:
        if isinstance(one, GuardedMutation):
            found.append(one)
            continue
        if isinstance(one, CellGroup):
            found += [
                GuardedMutation(table, RowMutation(cell[0], puts=(Put(*cell[1:]),)), one.condition)
                for table, cells in one.cells.items()
                for cell in cells
            ]
            continue
        for row, version, value in one.cells:
            put = RowMutation(row, puts=(Put(*one.column, version, value),))
            lacks = Condition(one.table, row, one.absent, None)
            found.append(GuardedMutation(one.table, put, lacks))
    return found


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do beyond the protocol's common part."""

    exact_delete: bool = True
    """`DeleteVersion` removes that version alone, and the backend acknowledges it."""
    multi_version_scan: bool = True
    """Scans return more than the newest version of a column, and gets show them in one view.

    Without it a scan needs `max_versions=1`.
    """
    guarded_batches: bool = True
    """`write_guarded` exists: one atomic transaction over many rows and tables."""
    readers_write: bool = True
    """Every client that can read it can write it, so that knowing what is in it is a proof."""
    process_locks: bool = True
    """`lock` returns locks that the operating system frees when their holder dies."""
    remote: bool = False
    """The store can be opened from other machines."""
    region_admin: bool = True
    """`split_region` and `merge_regions` exist; regions may split and merge by themselves too."""
    table_admin: bool = True
    """Tables can be created in several regions, and have attributes that can be changed."""
    checked_changes: bool = True
    """`check_and_mutate` takes every change.  Without it, only what an invalidation is: one put,
    into a column that is absent, in a family of one version, at a version of world time.
    """


class ProcessLock(Protocol):
    """An exclusive right that ends with its holder's process."""

    @property
    def excludes(self) -> bool:
        """Whether it keeps others out, as was seen a moment ago; not after it was released."""
        ...

    def release(self) -> None:
        """Give the right up; a second call does nothing."""
        ...


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


class Store(Protocol):
    """Cells, tables and regions.  Safe to share among threads.

    Every method may raise `StorageUnavailable`; those that name a table raise `NoSuchTable`, those
    that name a family `NoSuchFamily`.  After an exception from a write, any subset of its rows may
    have been applied; and of one that was to be durable, what was applied need not be: whoever
    finds his own attempt done writes it once more.
    """

    @property
    def url(self) -> str:
        """The address the store was opened with, for messages."""
        ...

    @property
    def store_id(self) -> str:
        """An id made when the store was created: two names of one store have the same."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this backend can do."""
        ...

    # -- tables ------------------------------------------------------------------------------------

    def create_table(
        self,
        schema: TableSchema,
        *,
        splits: Sequence[bytes] = (),
        beside: GuardedMutation | None = None,
    ) -> bool:
        """Create a table whose regions meet at `splits`.

        Args:
            schema: The table.
            splits: Row keys.
            beside: A change of another table's row that is made in one with it.  If its condition
                does not hold, neither is made.

        Returns:
            Whether it was created.

        Raises:
            TableExists: nothing was changed, whether or not the condition holds.
            UsageError: also for splits and attributes if the backend's capabilities lack
                `table_admin`, and for `beside` if they lack `guarded_batches`.
        """
        ...

    def drop_table(self, table: str, *, only: Mapping[str, str] | None = None) -> bool:
        """Remove a table, its cells and its regions.

        Args:
            table: Its name.
            only: Attributes that it must have.  One that lacks them is left as it is, also where it
                is made while this call is under way: then another of its name was removed
                meanwhile.

        Returns:
            Whether it was removed.
        """
        ...

    def schema(self, table: str) -> TableSchema:
        """Return a table's families and attributes."""
        ...

    def tables(self) -> list[TableSchema]:
        """List every table of the store, those of omidpy itself included, by name."""
        ...

    def set_table_attributes(
        self,
        table: str,
        attributes: Mapping[str, str | None],
        *,
        only: Mapping[str, str | None] | None = None,
    ) -> bool:
        """Set attributes of a table; None removes one.

        Args:
            table: Its name.
            attributes: What changes.
            only: Attributes that it must have before, None those that it must lack; else it is
                left as it is.  Checked and changed in one; on HBase, whose gateways cannot, right
                before: a caller that needs more names the table by what cannot change any more.

        Returns:
            Whether they were set.

        Raises:
            UsageError: if the backend's capabilities lack `table_admin`.
        """
        ...

    def set_family_attributes(
        self, table: str, family: bytes, attributes: Mapping[str, str | None]
    ) -> None:
        """Set attributes of a family; None removes one.

        Raises:
            UsageError: if the backend's capabilities lack `table_admin`.
        """
        ...

    def regions(self, table: str) -> list[KeyRange]:
        """Return the table's regions as key ranges.

        They are in order, without gap or overlap, and cover every row.
        """
        ...

    def split_region(self, table: str, at: bytes) -> None:
        """Split the region that holds `at` so that a region starts there; no-op where one does.

        Raises:
            UsageError: if the backend's capabilities lack `region_admin`.
        """
        ...

    def merge_regions(self, table: str, at: bytes) -> None:
        """Merge the two regions that meet at `at`.

        Raises:
            UsageError: if no region starts at `at`, or the backend's capabilities lack
                `region_admin`.
        """
        ...

    # -- reads -------------------------------------------------------------------------------------

    def get(
        self,
        table: str,
        rows: Sequence[bytes],
        *,
        columns: Sequence[ColumnSpec] | None = None,
        min_version: int = 0,
        max_version: int = MAX_VERSION,
        max_versions: int | None = None,
    ) -> list[Row]:
        """Read rows.

        Args:
            table: Where to read.
            rows: Row keys; repeats are allowed.
            columns: What to read; None is every column.
            min_version: Lowest version, inclusive.
            max_version: Highest version, exclusive.
            max_versions: How many versions of a column, newest first within the bounds; None is all
                of them.

        Returns:
            One list for each of `rows`, in their order; empty where the row has no such cell.

        Cost: 1 RPC.
        """
        ...

    def scan(
        self,
        table: str,
        key_range: KeyRange = WHOLE_TABLE,
        *,
        columns: Sequence[ColumnSpec] | None = None,
        min_version: int = 0,
        max_version: int = MAX_VERSION,
        max_versions: int | None = None,
        reverse: bool = False,
        page_rows: int = 1000,
    ) -> Iterator[list[Row]]:
        """Yield the rows of a range in pages of at most `page_rows` whole rows.

        They come in key order or, with `reverse`, in its reverse.

        Pages may hold fewer rows (a backend also bounds them by bytes), are never empty, and each
        is read when it is asked for.  Versions and columns as in `get`.

        Raises:
            UsageError: if it asks for more than the newest version, and the backend's capabilities
                lack `multi_version_scan`.

        Cost: 1 RPC a page.
        """
        ...

    def find_cell(
        self,
        table: str,
        *,
        prefix: bytes = b"",
        columns: Sequence[ColumnSpec] | None = None,
        min_version: int = 0,
        max_version: int = MAX_VERSION,
    ) -> Cell | None:
        """Return a cell of the first row that has one whose qualifier starts with `prefix`.

        None if no row has.  Columns and versions as in `get`.

        Cost: nothing crosses the network but what is found.  A remote store leaves out the files in
        which no cell has such a version; an embedded one reads the table.
        """
        ...

    # -- writes ------------------------------------------------------------------------------------

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Apply row mutations to some tables, each row atomically.

        Args:
            batch: Mutations by table.
            durable: Return only when a power loss can no longer undo them.  Without it they survive
                the death of every process, and, where there are guarded batches and so one log,
                become durable no later than the next durable write.

        Raises:
            UsageError: naming a row or cell that no store can hold.
        """
        ...

    def check_and_mutate(
        self,
        table: str,
        row: bytes,
        column: Column,
        expected: bytes | None,
        mutation: RowMutation,
        *,
        durable: bool = False,
    ) -> bool:
        """Apply `mutation` to `row` if the newest version of `column` has the value `expected`.

        Args:
            table: Where `row` is.
            row: The row that is checked and changed.
            column: What is compared.
            expected: None means that the column must be absent; never empty.
            mutation: What to apply, atomically with the check.
            durable: As in `write`.

        Returns:
            Whether it was applied.

        Raises:
            UsageError: if the backend's capabilities lack `checked_changes` and it is not the one
                change that they leave.
        """
        ...

    def write_guarded(
        self,
        mutations: Sequence[GuardedMutation | Entries | CellGroup],
        *,
        guard: Condition | None = None,
        durable: bool = False,
    ) -> list[bool] | None:
        """Apply mutations of many rows and tables in one atomic transaction.

        Args:
            mutations: Each is skipped if its own condition does not hold.
            guard: If it does not hold, nothing is applied.
            durable: As in `write`.

        Returns:
            None if the guard failed, else which of the mutations were applied, each of the entries
            counted by itself, and each group as one.

        Raises:
            UsageError: if the backend's capabilities lack `guarded_batches`.
        """
        ...

    # -- life --------------------------------------------------------------------------------------

    def lock(self, name: str, *, purpose: str) -> ProcessLock:
        """Take an exclusive lock among all processes that opened this store, without waiting.

        Raises:
            StorageUnavailable: held by another; the message names the holder's pid and purpose, and
                says so if that process is stopped.
            UsageError: if the backend's capabilities lack `process_locks`.
        """
        ...

    def close(self) -> None:
        """Free every resource; a second call does nothing."""
        ...
