"""What does each operation of a store mean?  The shortest answer that runs: `memory:`.

Tables are dictionaries in this process; every call holds one lock, so that every call is atomic.
Lacks everything that makes a store fast, durable or shared.  The other backends are compared with
it, operation by operation.
"""

from __future__ import annotations

import threading
import uuid
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from omidpy.errors import NoSuchTable, StorageUnavailable, TableExists
from omidpy.model import (
    MAX_VERSION,
    Cell,
    Column,
    ColumnSpec,
    FamilySchema,
    KeyRange,
    TableSchema,
)
from omidpy.storage import rules
from omidpy.storage.base import (
    WHOLE_TABLE,
    Capabilities,
    Condition,
    GuardedMutation,
    ProcessLock,
    Row,
    RowMutation,
)


@dataclass(slots=True)
class _Table:
    schema: TableSchema
    splits: list[bytes]
    keys: list[bytes] = field(default_factory=list)
    """Row keys in order: exactly those of `rows`."""
    rows: dict[bytes, dict[tuple[bytes, bytes, int], bytes]] = field(default_factory=dict)
    """Row -> (family, qualifier, -version) -> value, so that sorted keys are in HBase's order."""

    def families(self) -> frozenset[bytes]:
        return frozenset(family.name for family in self.schema.families)

    def apply(self, effects: rules.Effects) -> None:
        for (row, family, qualifier, version), value in effects.items():
            cells = self.rows.get(row)
            if value is None:
                if cells is not None and cells.pop((family, qualifier, -version), None) is not None:
                    self._forget_if_empty(row)
                continue
            if cells is None:
                cells = self.rows[row] = {}
                insort(self.keys, row)
            cells[family, qualifier, -version] = value

    def _forget_if_empty(self, row: bytes) -> None:
        if not self.rows[row]:
            del self.rows[row]
            del self.keys[bisect_left(self.keys, row)]

    def read(
        self,
        row: bytes,
        specs: list[ColumnSpec] | None,
        min_version: int,
        max_version: int,
        max_versions: int | None,
    ) -> Row:
        cells = [
            Cell(row, family, qualifier, -negative, value)
            for (family, qualifier, negative), value in sorted(self.rows.get(row, {}).items())
            if min_version <= -negative < max_version
            and (specs is None or (family, qualifier) in specs or (family, None) in specs)
        ]
        return cells if max_versions is None else rules.newest(cells, max_versions)


class MemoryStore:
    """A store in this process's memory, gone with it.  Safe to share among threads."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._tables: dict[str, _Table] = {}
        self._held: dict[str, str] = {}
        self._store_id = uuid.uuid4().hex
        self._is_closed = False

    @property
    def url(self) -> str:
        """The address the store was opened with."""
        return "memory:"

    @property
    def store_id(self) -> str:
        """An id made with this object."""
        return self._store_id

    @property
    def capabilities(self) -> Capabilities:
        """Everything but being remote."""
        return Capabilities()

    # -- tables -----------------------------------------------------------------------------------

    def create_table(self, schema: TableSchema, *, splits: Sequence[bytes] = ()) -> None:
        """Create a table; see `Store`."""
        rules.check_schema(schema, splits)
        families = tuple(
            FamilySchema(family.name, dict(family.attributes))
            for family in sorted(schema.families, key=lambda family: family.name)
        )
        with self._mutex:
            self._check_open()
            if schema.name in self._tables:
                raise TableExists(f"table {schema.name!r} exists already in {self.url}")
            copy = TableSchema(schema.name, families, dict(schema.attributes))
            self._tables[schema.name] = _Table(copy, sorted(splits))

    def drop_table(self, table: str) -> None:
        """Remove a table, its cells and its regions."""
        with self._mutex:
            self._table(table)
            del self._tables[table]

    def schema(self, table: str) -> TableSchema:
        """Return a table's families and attributes."""
        with self._mutex:
            return self._table(table).schema

    def tables(self) -> list[TableSchema]:
        """List every table by name."""
        with self._mutex:
            self._check_open()
            return [self._tables[name].schema for name in sorted(self._tables)]

    def set_table_attributes(self, table: str, attributes: Mapping[str, str | None]) -> None:
        """Set attributes of a table; None removes one."""
        rules.check_attributes(attributes)
        with self._mutex:
            found = self._table(table)
            found.schema = replace(
                found.schema, attributes=rules.changed(found.schema.attributes, attributes)
            )

    def set_family_attributes(
        self, table: str, family: bytes, attributes: Mapping[str, str | None]
    ) -> None:
        """Set attributes of a family; None removes one."""
        rules.check_attributes(attributes)
        with self._mutex:
            found = self._table(table)
            rules.check_family(table, family, found.families())
            families = tuple(
                replace(one, attributes=rules.changed(one.attributes, attributes))
                if one.name == family
                else one
                for one in found.schema.families
            )
            found.schema = replace(found.schema, families=families)

    def regions(self, table: str) -> list[KeyRange]:
        """Return the table's regions; see `Store`."""
        with self._mutex:
            return rules.regions_between(self._table(table).splits)

    def split_region(self, table: str, at: bytes) -> None:
        """Split the region that holds `at`; no-op where one starts there."""
        with self._mutex:
            found = self._table(table)
            found.splits = rules.splits_with(found.splits, at)

    def merge_regions(self, table: str, at: bytes) -> None:
        """Merge the two regions that meet at `at`."""
        with self._mutex:
            found = self._table(table)
            found.splits = rules.splits_without(found.splits, at, table=table)

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
        rules.check_bounds(min_version, max_version, max_versions)
        for row in rows:
            rules.check_row(row)
        with self._mutex:
            found = self._table(table)
            specs = rules.selection(table, columns, found.families())
            return [found.read(row, specs, min_version, max_version, max_versions) for row in rows]

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
        rules.check_bounds(min_version, max_version, max_versions)
        rules.check_page_rows(page_rows)
        rules.check_range(key_range)
        with self._mutex:
            rules.selection(table, columns, self._table(table).families())
        return self._pages(
            table,
            key_range,
            columns=columns,
            bounds=(min_version, max_version, max_versions),
            reverse=reverse,
            page_rows=page_rows,
        )

    def _pages(
        self,
        table: str,
        key_range: KeyRange,
        *,
        columns: Sequence[ColumnSpec] | None,
        bounds: tuple[int, int, int | None],
        reverse: bool,
        page_rows: int,
    ) -> Iterator[list[Row]]:
        start, end = key_range
        while True:
            page: list[Row] = []
            with self._mutex:
                found = self._table(table)
                specs = rules.selection(table, columns, found.families())
                first = bisect_left(found.keys, start)
                last = bisect_left(found.keys, end) if end else len(found.keys)
                order = range(first, last)
                for index in reversed(order) if reverse else order:
                    if cells := found.read(found.keys[index], specs, *bounds):
                        page.append(cells)
                        if len(page) == page_rows:
                            break
            if page:
                yield page
            if len(page) < page_rows:
                return
            if reverse:
                end = page[-1][0].row
            else:
                start = page[-1][0].row + b"\x00"

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
        pages = self.scan(
            table,
            columns=columns,
            min_version=min_version,
            max_version=max_version,
            max_versions=1,
        )
        cells = (cell for page in pages for row in page for cell in row)
        return next((cell for cell in cells if cell.qualifier.startswith(prefix)), None)

    # -- writes -----------------------------------------------------------------------------------

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Apply row mutations; `durable` means nothing to memory."""
        del durable
        with self._mutex:
            self._check_open()
            changes: list[tuple[_Table, rules.Effects]] = []
            for table, mutations in batch.items():
                found = self._table(table)
                families = found.families()
                effects: rules.Effects = {}
                for mutation in mutations:
                    rules.add_effects(effects, table, mutation, families)
                changes.append((found, effects))
            for found, effects in changes:
                found.apply(effects)

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
        mutations: Sequence[GuardedMutation],
        *,
        guard: Condition | None = None,
        durable: bool = False,
    ) -> list[bool] | None:
        """Apply mutations atomically; each sees what those before it did."""
        del durable
        with self._mutex:
            self._check_open()
            prepared: list[rules.Effects] = []
            for table, mutation, condition in mutations:
                effects: rules.Effects = {}
                rules.add_effects(effects, table, mutation, self._table(table).families())
                prepared.append(effects)
                self._check_condition(condition)
            self._check_condition(guard)
            if not self._holds(guard):
                return None
            applied: list[bool] = []
            for (table, _, condition), effects in zip(mutations, prepared, strict=True):
                holds = self._holds(condition)
                if holds:
                    self._tables[table].apply(effects)
                applied.append(holds)
            return applied

    def _check_condition(self, condition: Condition | None) -> None:
        if condition is not None:
            rules.check_condition(condition, self._table(condition.table).families())

    def _holds(self, condition: Condition | None) -> bool:
        if condition is None:
            return True
        table = self._table(condition.table)
        found = table.read(condition.row, [condition.column], 0, MAX_VERSION, 1)
        return (found[0].value if found else None) == condition.expected

    # -- life -------------------------------------------------------------------------------------

    def lock(self, name: str, *, purpose: str) -> ProcessLock:
        """Take an exclusive lock among the users of this object."""
        rules.check_lock_name(name)
        with self._mutex:
            self._check_open()
            if (holder := self._held.get(name)) is not None:
                raise StorageUnavailable(
                    f"the lock {name!r} of {self.url} is held by this process for {holder!r}; "
                    "release it first"
                )
            self._held[name] = purpose
        return _MemoryLock(partial(self._release, name))

    def _release(self, name: str) -> None:
        with self._mutex:
            self._held.pop(name, None)

    def close(self) -> None:
        """Refuse all further calls."""
        with self._mutex:
            self._is_closed = True
            self._tables.clear()
            self._held.clear()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageUnavailable(f"the store {self.url} is closed; open it again")

    def _table(self, table: str) -> _Table:
        self._check_open()
        try:
            return self._tables[table]
        except KeyError:
            raise NoSuchTable(
                f"there is no table {table!r} in {self.url}; create it with create_table"
            ) from None


class _MemoryLock:
    """A lock of a memory store."""

    def __init__(self, release: partial[None]) -> None:
        self._release: partial[None] | None = release

    def release(self) -> None:
        """Give the right up; a second call does nothing."""
        release, self._release = self._release, None
        if release is not None:
            release()
