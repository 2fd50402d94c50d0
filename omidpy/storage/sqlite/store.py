"""The embedded default: one SQLite file that many processes write.

Each table's cells are one SQLite table clustered in HBase's order, so that a page of a scan is one
range of one index (`reads.py`).

Durability: the write-ahead log is one log, so the sync of a durable write makes every earlier write
durable too, and only durable writes pay for one.

Around `fork` every connection is closed, on both sides opened again when needed; a child does not
hold its parent's process locks.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from omidpy.base.within import within
from omidpy.errors import NoSuchFamily, NoSuchTable, StorageUnavailable
from omidpy.model import (
    CellRecord,
    Column,
    KeyRange,
    TableSchema,
)
from omidpy.storage import forking, rules
from omidpy.storage.base import (
    Capabilities,
    CellGroup,
    Condition,
    Entries,
    GuardedMutation,
    ProcessLock,
    RowMutation,
)
from omidpy.storage.sqlite.file import Database, force_sync
from omidpy.storage.sqlite.guarded import (
    AnyPrepared,
    Check,
    Prepared,
    PreparedEntries,
    PreparedGroup,
    PreparedRows,
    apply_guarded,
)
from omidpy.storage.sqlite.lock import FileLock, is_locked_here
from omidpy.storage.sqlite.queries.cells import apply_effects
from omidpy.storage.sqlite.queries.reads import SqliteReads

T = TypeVar("T")


class SqliteStore(SqliteReads):
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
        path = os.fspath(path)
        super().__init__(path, Database(path, must_exist=must_exist, lock_timeout_s=lock_timeout_s))
        # A connection that nobody refers to lives on until a garbage collection finds it, and a
        # fork in between would share it.
        weakref.finalize(self, self._file.close).atexit = False
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

    # -- writes -----------------------------------------------------------------------------------

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Apply row mutations, all in one transaction; see `Store`."""

        def call() -> None:
            changes: list[tuple[str, rules.Effects]] = []
            for table, mutations in batch.items():
                cells, families, _ = self._physical(table)
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
            cells, families, _ = self._physical(table)
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
            cells, families, _ = self._physical(one.table)
            rules.check_entries(one, families)
            return PreparedEntries(cells, one.column, one.absent, one.cells)
        table, mutation, condition = one
        cells, families, _ = self._physical(table)
        effects: rules.Effects = {}
        rules.add_effects(effects, table, mutation, families)
        return Prepared(cells, mutation.row, effects, self._check(condition))

    def _prepared_group(self, group: CellGroup) -> PreparedGroup:
        check = self._check(group.condition)
        assert check is not None, "a group has a condition"
        found: list[tuple[str, Sequence[CellRecord]]] = []
        try:
            for table, records in group.cells.items():
                cells, families, _ = self._physical(table)
                rules.check_cells(table, records, families)
                found.append((cells, records))
        except (NoSuchTable, NoSuchFamily):
            return PreparedGroup(None, check)
        return PreparedGroup(found, check)

    def _check(self, condition: Condition | None) -> Check | None:
        if condition is None:
            return None
        cells, families, _ = self._physical(condition.table)
        rules.check_condition(condition, families)
        return Check(cells, condition.row, condition.column, condition.expected)

    # -- life -------------------------------------------------------------------------------------

    def lock(self, name: str, *, purpose: str) -> ProcessLock:
        """Take an exclusive lock among all processes that opened this file, without waiting."""
        rules.check_lock_name(name)
        return within(self._locks_mutex, self._take_lock, name, purpose)

    def _take_lock(self, name: str, purpose: str) -> FileLock:
        self._locks = [lock for lock in self._locks if lock.is_held]
        lock = FileLock(self._lock_path(name), purpose=purpose)
        self._locks.append(lock)  # before it is taken, so that `close` gives it up in any case
        lock.take()
        return lock

    def is_locked_here(self, name: str) -> bool | None:
        """Say whether a process has a lock of this store; see `TellsLocks`."""
        return is_locked_here(self._lock_path(name))

    def _lock_path(self, name: str) -> str:
        return f"{self._file.path}-{name}.lock"

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
    """Say whether the mode of a file lets nobody read who may not write.

    Raises:
        StorageUnavailable: the system does not tell.
    """
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        raise StorageUnavailable(f"{path} cannot be looked at: {error.strerror}") from error
    return not mode & 0o044 & ~(mode << 1)


def _free_table(one: GuardedMutation | Entries | CellGroup) -> str | None:
    """Return the table of a mutation that is applied whatever holds; None for others.

    An owner removes thousands of rows with its cursor: one after the other they took twice as long
    to prepare as to write.
    """
    return one.table if isinstance(one, GuardedMutation) and one.condition is None else None
