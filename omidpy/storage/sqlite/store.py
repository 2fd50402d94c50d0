"""The embedded default: one SQLite file that many processes write.

Each table's cells are one SQLite table clustered in HBase's order, so that a page of a scan is one
range of one index.  A call reads in one short view of the file and keeps none: a scan is pages by
key, because a reader that pinned an old view would not see a shadow cell when it reads it afresh.

Durability: the write-ahead log is one log, so the sync of a durable write makes every earlier write
durable too, and only durable writes pay for one.

What is remembered between calls is a table's id and families, which never change; ids are never
used again, so that what is remembered of a dropped table fails and is looked up afresh.

Around `fork` every connection is closed, on both sides opened again when needed; a child does not
hold its parent's process locks.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from omidpy.base.within import within
from omidpy.errors import NoSuchFamily, NoSuchTable, StorageError
from omidpy.model import (
    MAX_VERSION,
    Cell,
    CellRecord,
    Column,
    ColumnSpec,
    KeyRange,
    PairedCell,
    TableSchema,
)
from omidpy.storage import forking, rules
from omidpy.storage.base import (
    WHOLE_TABLE,
    Capabilities,
    CellGroup,
    Condition,
    Entries,
    GuardedMutation,
    LongRow,
    Portion,
    ProcessLock,
    Row,
    RowMutation,
    Wanted,
)
from omidpy.storage.sqlite import rows
from omidpy.storage.sqlite.catalogue import Catalog, Physical
from omidpy.storage.sqlite.cells import (
    apply_effects,
    find_cell,
    in_one_view,
    read_page,
    read_row,
    scan_cells,
    takes_one_statement,
    to_cells,
    to_pairs,
)
from omidpy.storage.sqlite.file import Database, StaleTable, force_sync
from omidpy.storage.sqlite.guarded import (
    AnyPrepared,
    Check,
    Prepared,
    PreparedEntries,
    PreparedGroup,
    PreparedRows,
    apply_guarded,
)
from omidpy.storage.sqlite.lock import FileLock
from omidpy.storage.sqlite.newest import Bounds

T = TypeVar("T")


def url_of(path: str) -> str:
    """Return the address of a path, from which `connect` finds the same path again."""
    return "sqlite:///" + path.replace("%", "%25").replace("?", "%3F")


class SqliteStore:
    """A store in one file.  Safe to share among threads and around `fork`.

    A write waits at most `lock_timeout_s` seconds for the writers of other threads and processes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        must_exist: bool = False,
        lock_timeout_s: float = 10.0,
    ) -> None:
        self._path = os.fspath(path)
        self._file = Database(self._path, must_exist=must_exist, lock_timeout_s=lock_timeout_s)
        # A connection that nobody refers to lives on until a garbage collection finds it, and a
        # fork in between would share it.
        weakref.finalize(self, self._file.close).atexit = False
        self._catalog = Catalog(self.url)
        self._known: dict[str, Physical] = {}
        self._locks: list[FileLock] = []
        self._locks_mutex = threading.Lock()
        forking.register(self)
        try:
            self._store_id = self._file.prepare()
            self._capabilities = Capabilities(readers_write=_readers_write(self._path))
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The address the store was opened with."""
        return url_of(self._path)

    @property
    def store_id(self) -> str:
        """An id made when the file was."""
        return self._store_id

    @property
    def capabilities(self) -> Capabilities:
        """Everything but being remote."""
        return self._capabilities

    # -- tables -----------------------------------------------------------------------------------

    def create_table(
        self,
        schema: TableSchema,
        *,
        splits: Sequence[bytes] = (),
        beside: GuardedMutation | None = None,
    ) -> bool:
        """Create a table; see `Store`."""
        rules.check_schema(schema, splits)

        def call() -> bool:
            prepared = [] if beside is None else [self._prepared(beside)]

            def create(connection: sqlite3.Connection) -> bool:
                self._catalog.check_absent(connection, schema.name)
                applied, _ = apply_guarded(connection, prepared, None)
                is_made = applied is not None and all(applied)
                if is_made:
                    self._catalog.create(connection, schema, splits)
                return is_made

            return self._change(create)

        return self._afresh(call)

    def drop_table(self, table: str, *, only: Mapping[str, str] | None = None) -> bool:
        """Remove a table, its cells and its regions."""
        is_gone = self._change(lambda connection: self._catalog.drop(connection, table, only))
        self._known.pop(table, None)
        return is_gone

    def schema(self, table: str) -> TableSchema:
        """Return a table's families and attributes."""
        return self._file.read(lambda connection: self._catalog.schema(connection, table))

    def tables(self) -> list[TableSchema]:
        """List every table by name."""
        return self._file.read(self._catalog.schemas)

    def set_table_attributes(
        self,
        table: str,
        attributes: Mapping[str, str | None],
        *,
        only: Mapping[str, str | None] | None = None,
    ) -> bool:
        """Set attributes of a table; None removes one."""
        rules.check_attributes(attributes)
        return self._change(
            lambda connection: self._catalog.set_table_attributes(
                connection, table, attributes, only
            )
        )

    def set_family_attributes(
        self, table: str, family: bytes, attributes: Mapping[str, str | None]
    ) -> None:
        """Set attributes of a family; None removes one."""
        rules.check_attributes(attributes)
        self._change(
            lambda connection: self._catalog.set_family_attributes(
                connection, table, family, attributes
            )
        )

    def regions(self, table: str) -> list[KeyRange]:
        """Return the table's regions; see `Store`."""
        splits = self._file.read(lambda connection: self._catalog.splits(connection, table))
        return rules.regions_between(splits)

    def split_region(self, table: str, at: bytes) -> None:
        """Split the region that holds `at`; no-op where one starts there."""
        self._change(lambda connection: self._catalog.split(connection, table, at))

    def merge_regions(self, table: str, at: bytes) -> None:
        """Merge the two regions that meet at `at`."""
        self._change(lambda connection: self._catalog.merge(connection, table, at))

    def _change(self, change: Callable[[sqlite3.Connection], T]) -> T:
        return self._file.write(change, durable=True)

    def _physical(self, table: str) -> Physical:
        known = self._known.get(table)
        if known is None:
            known = self._known[table] = self._file.read(
                lambda connection: self._catalog.physical(connection, table)
            )
        return known

    def _afresh(self, call: Callable[[], T]) -> T:
        """Run `call`, which uses what is remembered of tables; again if a table was replaced."""
        last_stale: StaleTable | None = None
        while True:
            try:
                return call()
            except StaleTable as stale:
                # A name looked up after it failed cannot fail again unless the file is damaged.
                if last_stale is not None and str(stale) == str(last_stale):
                    raise StorageError(
                        f"{self.url} is damaged ({stale}); restore it from a backup"
                    ) from stale
                last_stale = stale
                self._known.clear()

    # -- reads ------------------------------------------------------------------------------------

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
        """Read rows; see `Store`."""
        bounds = Bounds(min_version, max_version, max_versions)
        rules.check_bounds(*bounds)
        for row in rows:
            rules.check_row(row)

        def call() -> list[Row]:
            cells, families = self._physical(table)
            specs = rules.selection(table, columns, families)

            def read(connection: sqlite3.Connection) -> list[Row]:
                return [read_row(connection, cells, row, specs, bounds) for row in rows]

            if len(rows) == 1 and takes_one_statement(specs):
                return self._file.read(read)
            return self._file.read(partial(in_one_view, read))

        return self._afresh(call)

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
        """Yield pages of rows; see `Store`."""
        bounds = Bounds(min_version, max_version, max_versions)
        rules.check_bounds(*bounds)
        rules.check_page_rows(page_rows)
        rules.check_range(key_range)
        rules.selection(table, columns, self._physical(table).families)
        return self._pages(table, key_range, columns, bounds, reverse=reverse, limit=page_rows)

    def _pages(
        self,
        table: str,
        key_range: KeyRange,
        columns: Sequence[ColumnSpec] | None,
        bounds: Bounds,
        *,
        reverse: bool,
        limit: int,
    ) -> Iterator[list[Row]]:
        start, end = key_range

        def call() -> tuple[list[Row], bool]:
            cells, families = self._physical(table)
            specs = rules.selection(table, columns, families)
            if specs is not None and not specs:
                return [], True

            def read(connection: sqlite3.Connection) -> tuple[list[Row], bool]:
                found = scan_cells(
                    connection, cells, KeyRange(start, end), specs, bounds, reverse=reverse
                )
                return read_page(found, limit, to_cells)

            if bounds.max_versions is None:
                return self._file.read(read)
            return self._file.read(partial(in_one_view, read))

        is_last = False
        while not is_last:
            page, is_last = self._afresh(call)
            if not page:
                return
            if reverse:
                end = page[-1][0].row
                page = [row[::-1] for row in page]
            else:
                start = page[-1][0].row + b"\x00"
            if (count := bounds.max_versions) is not None:
                page = [rules.newest(row, count) for row in page]
            yield page

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
        """Yield pages of data cells with their shadow cells; see `PairsCells`."""
        start, end = key_range
        bounds = Bounds(0, max_version, 1)

        def call() -> tuple[list[list[PairedCell]], bool]:
            cells, families = self._physical(table)
            specs = rules.selection(table, columns, families)

            def read(connection: sqlite3.Connection) -> tuple[list[list[PairedCell]], bool]:
                left = KeyRange(start, end)
                found = scan_cells(
                    connection, cells, left, specs, bounds, reverse=reverse, is_paired=True
                )
                return read_page(found, page_rows, to_pairs)

            return self._file.read(partial(in_one_view, read))

        is_last = False
        while not is_last:
            page, is_last = self._afresh(call)
            if not page:
                return
            if reverse:
                end = page[-1][0][0]
                page = [row[::-1] for row in page]
            else:
                start = page[-1][0][0] + b"\x00"
            yield page

    def scan_portions(
        self, table: str, key_range: KeyRange, wanted: Wanted, *, page_rows: int, most: Portion
    ) -> Iterator[Sequence[Row] | LongRow]:
        """Yield pages of rows, and long ones without their cells; see `CutsRows`."""
        rules.check_page_rows(page_rows)
        start, end = key_range
        is_last = False
        while not is_last:
            left = KeyRange(start, end)
            page, is_last = self._read_cells(
                table, partial(rows.page, key_range=left, wanted=wanted, count=page_rows, most=most)
            )
            if isinstance(page, LongRow):
                start = page.key + b"\x00"
            elif page:
                start = page[-1][0].row + b"\x00"
            else:
                return
            yield page

    def get_portion(
        self, table: str, keys: Sequence[bytes], wanted: Wanted, *, most: Portion
    ) -> list[Row | LongRow]:
        """Read the first of some rows; see `CutsRows`."""
        return self._read_cells(table, partial(rows.first, keys=keys, wanted=wanted, most=most))

    def row_parts(self, table: str, row: bytes, wanted: Wanted, *, most: Portion) -> Iterator[Row]:
        """Yield the cells of a row, a portion at a time; see `CutsRows`."""
        last: Cell | None = None
        while True:
            part, is_last = self._read_cells(
                table, partial(rows.part, row=row, after=last, wanted=wanted, most=most)
            )
            if part:
                yield part
            if is_last:
                return
            last = part[-1]

    def _read_cells(self, table: str, read: Callable[[sqlite3.Connection, str], T]) -> T:
        """Read some of a table's cells in one view."""

        def call() -> T:
            cells = self._physical(table).cells

            def view(connection: sqlite3.Connection) -> T:
                return read(connection, cells)

            return self._file.read(partial(in_one_view, view))

        return self._afresh(call)

    def find_cell(
        self,
        table: str,
        *,
        prefix: bytes = b"",
        columns: Sequence[ColumnSpec] | None = None,
        min_version: int = 0,
        max_version: int = MAX_VERSION,
    ) -> Cell | None:
        """Return a cell of the first row that has such a one; see `Store`."""
        rules.check_bounds(min_version, max_version, None)
        bounds = Bounds(min_version, max_version, None)

        def call() -> Cell | None:
            cells, families = self._physical(table)
            specs = rules.selection(table, columns, families)
            return self._file.read(
                lambda connection: find_cell(connection, cells, prefix, specs, bounds)
            )

        return self._afresh(call)

    # -- writes -----------------------------------------------------------------------------------

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Apply row mutations, all in one transaction; see `Store`."""

        def call() -> None:
            changes: list[tuple[str, rules.Effects]] = []
            for table, mutations in batch.items():
                cells, families = self._physical(table)
                effects: rules.Effects = {}
                for mutation in mutations:
                    rules.add_effects(effects, table, mutation, families)
                changes.append((cells, effects))

            def apply(connection: sqlite3.Connection) -> None:
                for cells, effects in changes:
                    apply_effects(connection, cells, effects)
                if durable:
                    force_sync(connection)

            self._file.write(apply, durable=durable)

        self._afresh(call)

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
        """Apply `mutation` if the newest version of `column` has the value `expected`."""
        rules.check_same_row(row, mutation)
        condition = Condition(table, row, column, expected)
        result = self.write_guarded([GuardedMutation(table, mutation, condition)], durable=durable)
        return result == [True]

    def write_guarded(
        self,
        mutations: Sequence[GuardedMutation | Entries | CellGroup],
        *,
        guard: Condition | None = None,
        durable: bool = False,
    ) -> list[bool] | None:
        """Apply mutations in one transaction; each sees what those before it did."""

        def call() -> list[bool] | None:
            prepared = self._all_prepared(mutations)
            first = self._check(guard)

            def apply(connection: sqlite3.Connection) -> list[bool] | None:
                applied, has_new = apply_guarded(connection, prepared, first)
                if durable and applied and any(applied) and not has_new:
                    force_sync(connection)
                return applied

            return self._file.write(apply, durable=durable)

        return self._afresh(call)

    def _all_prepared(
        self, mutations: Sequence[GuardedMutation | Entries | CellGroup]
    ) -> list[AnyPrepared]:
        prepared: list[AnyPrepared] = []
        for table, some in groupby(mutations, _free_table):
            if table is None:
                prepared += map(self._prepared, some)
                continue
            cells, families = self._physical(table)
            effects: rules.Effects = {}
            rows = []
            for one in some:
                assert isinstance(one, GuardedMutation)
                rules.add_effects(effects, table, one.mutation, families)
                rows.append(one.mutation.row)
            prepared.append(PreparedRows(cells, rows, effects))
        return prepared

    def _prepared(
        self, one: GuardedMutation | Entries | CellGroup
    ) -> Prepared | PreparedEntries | PreparedGroup:
        if isinstance(one, CellGroup):
            return self._prepared_group(one)
        if isinstance(one, Entries):
            cells, families = self._physical(one.table)
            rules.check_entries(one, families)
            return PreparedEntries(cells, one.column, one.absent, one.cells)
        table, mutation, condition = one
        cells, families = self._physical(table)
        effects: rules.Effects = {}
        rules.add_effects(effects, table, mutation, families)
        return Prepared(cells, mutation.row, effects, self._check(condition))

    def _prepared_group(self, group: CellGroup) -> PreparedGroup:
        check = self._check(group.condition)
        assert check is not None, "a group has a condition"
        found: list[tuple[str, Sequence[CellRecord]]] = []
        try:
            for table, records in group.cells.items():
                cells, families = self._physical(table)
                rules.check_cells(table, records, families)
                found.append((cells, records))
        except (NoSuchTable, NoSuchFamily):
            return PreparedGroup(None, check)
        return PreparedGroup(found, check)

    def _check(self, condition: Condition | None) -> Check | None:
        if condition is None:
            return None
        cells, families = self._physical(condition.table)
        rules.check_condition(condition, families)
        return Check(cells, condition.row, condition.column, condition.expected)

    # -- life -------------------------------------------------------------------------------------

    def lock(self, name: str, *, purpose: str) -> ProcessLock:
        """Take an exclusive lock among all processes that opened this file, without waiting."""
        rules.check_lock_name(name)
        return within(self._locks_mutex, self._take_lock, name, purpose)

    def _take_lock(self, name: str, purpose: str) -> FileLock:
        self._locks = [lock for lock in self._locks if lock.is_held]
        lock = FileLock(f"{self._file.path}-{name}.lock", purpose=purpose)
        self._locks.append(lock)  # before it is taken, so that `close` gives it up in any case
        lock.take()
        return lock

    def close(self) -> None:
        """Free every resource, locks included; a second call does nothing."""
        self._file.close()
        within(self._locks_mutex, self._release_locks)

    def _release_locks(self) -> None:
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    def before_fork(self) -> None:
        """Close every connection; see `forking.ForkAware`."""
        self._locks_mutex.acquire()
        self._file.suspend()

    def after_fork_in_parent(self) -> None:
        """Let callers in again; connections are opened when needed."""
        self._file.resume()
        self._locks_mutex.release()

    def after_fork_in_child(self) -> None:
        """Start afresh, without the parent's process locks."""
        self._locks_mutex = threading.Lock()
        for lock in self._locks:
            lock.forget_in_child()
        self._locks.clear()
        self._file.resume_in_child()


def _readers_write(path: str) -> bool:
    """Say whether the mode of a file lets nobody read who may not write."""
    mode = Path(path).stat().st_mode
    return not mode & 0o044 & ~(mode << 1)


def _free_table(one: GuardedMutation | Entries | CellGroup) -> str | None:
    """Return the table of a mutation that is applied whatever holds; None for others.

    An owner removes thousands of rows with its cursor: one after the other they took twice as long
    to prepare as to write.
    """
    return one.table if isinstance(one, GuardedMutation) and one.condition is None else None
