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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias, TypedDict

from omidpy.errors import StorageUnavailable
from omidpy.model import (
    MAX_VERSION,
    Cell,
    Column,
    ColumnSpec,
    KeyRange,
    TableCells,
    TableSchema,
)

Row: TypeAlias = list[Cell]
"""The cells of one row, never empty in a scan, in HBase's order."""

CellFields: TypeAlias = tuple[bytes, bytes, int, bytes]
"""Family, qualifier, version and value of a cell whose row is known."""

WHOLE_TABLE: Final = KeyRange()
"""Every row of a table."""


LONG_READ_S: Final = 0.1
"""A read of a remote store that takes longer may be several calls, or one that was made again.  To
disable a table, remove it, and make another takes HBase several times as long."""


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


class LockHeld(StorageUnavailable):
    """Another has a lock, in this process or another one."""


class ProcessLock(Protocol):
    """An exclusive right that ends with its holder's process."""

    @property
    def excludes(self) -> bool:
        """Whether it keeps others out, as was seen a moment ago; not after it was released."""
        ...

    @property
    def was_removed(self) -> bool:
        """Whether what it is kept in was seen to be gone: it keeps nobody out any more."""
        ...

    def release(self) -> None:
        """Give the right up; a second call does nothing."""
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
            LockHeld: held by another; the message names the holder's pid and purpose, and says so
                if that process is stopped.
            UsageError: if the backend's capabilities lack `process_locks`.
        """
        ...

    def close(self) -> None:
        """Free every resource; a second call does nothing."""
        ...
