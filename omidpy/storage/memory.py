"""What does each operation of a store mean?  The shortest answer that runs: `memory:`.

Tables are dictionaries in this process; every call holds one lock, so that every call is atomic.
One that is interrupted leaves each row as it was, or changed whole.
Lacks everything that makes a store fast, durable or shared.  The other backends are compared with
it, operation by operation.
"""

from __future__ import annotations

import functools
import threading
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

from omidpy.base.within import within
from omidpy.errors import NoSuchFamily, NoSuchTable, StorageUnavailable, TableExists
from omidpy.model import (
    MAX_VERSION,
    Cell,
    Column,
    ColumnSpec,
    FamilySchema,
    KeyRange,
    TableSchema,
)
from omidpy.storage import portions, rules
from omidpy.storage.base import (
    WHOLE_TABLE,
    Capabilities,
    CellGroup,
    Condition,
    Entries,
    GuardedMutation,
    LockHeld,
    ProcessLock,
    Row,
    RowMutation,
    singly,
)
from omidpy.storage.options import LongRow, Portion, Wanted
from omidpy.storage.pages import Pages, Reads

P = ParamSpec("P")
T = TypeVar("T")


def _atomic(
    method: Callable[Concatenate[MemoryStore, P], T],
) -> Callable[Concatenate[MemoryStore, P], T]:
    """Make a method hold the store's lock."""

    @functools.wraps(method)
    def call(store: MemoryStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return within(store._mutex, method, store, *args, **kwargs)  # noqa: SLF001 - its own

    return call


_Place: TypeAlias = tuple[bytes, bytes, int]
"""(family, qualifier, -version), so that places in order are in HBase's order."""

_Cells: TypeAlias = dict[_Place, bytes]


@dataclass(slots=True)
class _Table:
    schema: TableSchema
    splits: list[bytes]
    rows: dict[bytes, _Cells] = field(default_factory=dict)
    order: list[bytes] | None = None
    """The keys of `rows` in order, or None where they are to be sorted again."""

    def families(self) -> frozenset[bytes]:
        return frozenset(family.name for family in self.schema.families)

    @property
    def keys(self) -> list[bytes]:
        """Row keys in order."""
        if self.order is None:
            self.order = sorted(self.rows)
        return self.order

    def apply(self, effects: rules.Effects) -> None:
        """Change rows, each in one step: an exception may come between any two lines."""
        puts: dict[bytes, _Cells] = {}
        deletes: dict[bytes, list[_Place]] = {}
        for (row, family, qualifier, version), value in effects.items():
            place = family, qualifier, -version
            if value is None:
                deletes.setdefault(row, []).append(place)
            else:
                puts.setdefault(row, {})[place] = value
        for row in puts.keys() | deletes.keys():
            new = puts.get(row, {})
            if row in deletes:
                left = dict(self.rows.get(row, {}))
                for place in deletes[row]:
                    left.pop(place, None)
                new = left | new
            elif row in self.rows:
                self.rows[row].update(new)
                continue
            self.order = None
            if new:
                self.rows[row] = new
            else:
                self.rows.pop(row, None)

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
        self._held: dict[str, _MemoryLock] = {}
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

    @_atomic
    def create_table(
        self,
        schema: TableSchema,
        *,
        splits: Sequence[bytes] = (),
        beside: GuardedMutation | None = None,
    ) -> bool:
        """Create a table; see `Store`."""
        rules.check_schema(schema, splits)
        families = tuple(
            FamilySchema(family.name, dict(family.attributes))
            for family in sorted(schema.families, key=lambda family: family.name)
        )
        self._check_open()
        if schema.name in self._tables:
            raise TableExists(f"table {schema.name!r} exists already in {self.url}")
        effects: rules.Effects = {}
        if beside is not None:
            other = self._table(beside.table)
            rules.add_effects(effects, beside.table, beside.mutation, other.families())
            self._check_condition(beside.condition)
            if not self._holds(beside.condition):
                return False
        copy = TableSchema(schema.name, families, dict(schema.attributes))
        self._tables[schema.name] = _Table(copy, sorted(splits))
        if beside is not None:
            self._tables[beside.table].apply(effects)
        return True

    @_atomic
    def drop_table(self, table: str, *, only: Mapping[str, str] | None = None) -> bool:
        """Remove a table, its cells and its regions."""
        if not rules.has(self._table(table).schema.attributes, only):
            return False
        del self._tables[table]
        return True

    @_atomic
    def schema(self, table: str) -> TableSchema:
        """Return a table's families and attributes."""
        return self._table(table).schema

    @_atomic
    def tables(self) -> list[TableSchema]:
        """List every table by name."""
        self._check_open()
        return [self._tables[name].schema for name in sorted(self._tables)]

    @_atomic
    def set_table_attributes(
        self,
        table: str,
        attributes: Mapping[str, str | None],
        *,
        only: Mapping[str, str | None] | None = None,
    ) -> bool:
        """Set attributes of a table; None removes one."""
        rules.check_attributes(attributes)
        found = self._table(table)
        if not rules.has(found.schema.attributes, only):
            return False
        found.schema = replace(
            found.schema, attributes=rules.changed(found.schema.attributes, attributes)
        )
        return True

    @_atomic
    def set_family_attributes(
        self, table: str, family: bytes, attributes: Mapping[str, str | None]
    ) -> None:
        """Set attributes of a family; None removes one."""
        rules.check_attributes(attributes)
        found = self._table(table)
        rules.check_family(table, family, found.families())
        families = tuple(
            replace(one, attributes=rules.changed(one.attributes, attributes))
            if one.name == family
            else one
            for one in found.schema.families
        )
        found.schema = replace(found.schema, families=families)

    @_atomic
    def regions(self, table: str) -> list[KeyRange]:
        """Return the table's regions; see `Store`."""
        return rules.regions_between(self._table(table).splits)

    @_atomic
    def split_region(self, table: str, at: bytes) -> None:
        """Split the region that holds `at`; no-op where one starts there."""
        found = self._table(table)
        found.splits = rules.splits_with(found.splits, at)

    @_atomic
    def merge_regions(self, table: str, at: bytes) -> None:
        """Merge the two regions that meet at `at`."""
        found = self._table(table)
        found.splits = rules.splits_without(found.splits, at, table=table)

    # -- reads ------------------------------------------------------------------------------------

    @_atomic
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
        found = self._table(table)
        specs = rules.selection(table, columns, found.families())
        return [found.read(row, specs, min_version, max_version, max_versions) for row in rows]

    @_atomic
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
        rules.selection(table, columns, self._table(table).families())
        reads = Reads()
        pages = self._pages(
            table,
            key_range,
            columns=columns,
            bounds=(min_version, max_version, max_versions),
            reverse=reverse,
            page_rows=page_rows,
            reads=reads,
        )
        return Pages(pages, reads)

    def _pages(
        self,
        table: str,
        key_range: KeyRange,
        *,
        columns: Sequence[ColumnSpec] | None,
        bounds: tuple[int, int, int | None],
        reverse: bool,
        page_rows: int,
        reads: Reads,
    ) -> Iterator[list[Row]]:
        start, end = key_range
        while True:
            reads.count += 1
            page = self._page(
                table,
                KeyRange(start, end),
                columns,
                bounds,
                reverse=reverse,
                page_rows=page_rows,
            )
            if page:
                yield page
            if len(page) < page_rows:
                return
            if reverse:
                end = page[-1][0].row
            else:
                start = page[-1][0].row + b"\x00"

    @_atomic
    def _page(
        self,
        table: str,
        key_range: KeyRange,
        columns: Sequence[ColumnSpec] | None,
        bounds: tuple[int, int, int | None],
        *,
        reverse: bool,
        page_rows: int,
    ) -> list[Row]:
        start, end = key_range
        found = self._table(table)
        specs = rules.selection(table, columns, found.families())
        first = bisect_left(found.keys, start)
        last = bisect_left(found.keys, end) if end else len(found.keys)
        order = range(first, last)
        page: list[Row] = []
        for index in reversed(order) if reverse else order:
            if cells := found.read(found.keys[index], specs, *bounds):
                page.append(cells)
                if len(page) == page_rows:
                    break
        return page

    def scan_portions(
        self, table: str, key_range: KeyRange, wanted: Wanted, *, page_rows: int, most: Portion
    ) -> Iterator[Sequence[Row] | LongRow]:
        """Yield pages of rows, and long ones without their cells; see `CutsRows`."""
        families, low, high = wanted.columns(), wanted.min_version, wanted.max_version
        found = self.scan(
            table,
            key_range,
            columns=families,
            min_version=low,
            max_version=high,
            page_rows=page_rows,
        )
        for page in found:
            yield from portions.pages((portions.whole_or_long(row, most) for row in page), most)

    def get_portion(
        self, table: str, rows: Sequence[bytes], wanted: Wanted, *, most: Portion
    ) -> list[Row | LongRow]:
        """Read the first of some rows; see `CutsRows`."""
        families, low, high = wanted.columns(), wanted.min_version, wanted.max_version
        found = self.get(table, rows, columns=families, min_version=low, max_version=high)
        return portions.first_portion((portions.whole_or_long(row, most) for row in found), most)

    def row_parts(self, table: str, row: bytes, wanted: Wanted, *, most: Portion) -> Iterator[Row]:
        """Yield the cells of a row, a portion at a time; see `CutsRows`."""
        families, low, high = wanted.columns(), wanted.min_version, wanted.max_version
        (cells,) = self.get(table, [row], columns=families, min_version=low, max_version=high)
        yield from portions.parts(cells, most)

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

    @_atomic
    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Apply row mutations; `durable` means nothing to memory."""
        del durable
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

    @_atomic
    def write_guarded(
        self,
        mutations: Sequence[GuardedMutation | Entries | CellGroup],
        *,
        guard: Condition | None = None,
        durable: bool = False,
    ) -> list[bool] | None:
        """Apply mutations atomically; each sees what those before it did."""
        del durable
        self._check_open()
        prepared: list[tuple[dict[str, rules.Effects] | None, Condition | None]] = []
        for one in mutations:
            if isinstance(one, CellGroup):
                prepared.append((self._effects_of(one), one.condition))
                self._check_condition(one.condition)
                continue
            if isinstance(one, Entries):
                rules.check_entries(one, self._table(one.table).families())
            for table, mutation, condition in singly([one]):
                alone: rules.Effects = {}
                rules.add_effects(alone, table, mutation, self._table(table).families())
                prepared.append(({table: alone}, condition))
                self._check_condition(condition)
        self._check_condition(guard)
        if not self._holds(guard):
            return None
        applied: list[bool] = []
        for by_table, condition in prepared:
            holds = by_table is not None and self._holds(condition)
            for table, effects in (by_table or {}).items() if holds else ():
                self._tables[table].apply(effects)
            applied.append(holds)
        return applied

    def _effects_of(self, group: CellGroup) -> dict[str, rules.Effects] | None:
        """Return what a group leaves behind; None where a table or a family is not there."""
        found: dict[str, rules.Effects] = {}
        for table, cells in group.cells.items():
            if table not in self._tables:
                return None
            try:
                rules.check_cells(table, cells, self._tables[table].families())
            except NoSuchFamily:
                return None
            found[table] = {cell[:4]: cell[4] for cell in cells}
        return found

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

    @_atomic
    def lock(self, name: str, *, purpose: str) -> ProcessLock:
        """Take an exclusive lock among the users of this object."""
        rules.check_lock_name(name)
        self._check_open()
        if (holder := self._held.get(name)) is not None:
            raise LockHeld(
                f"the lock {name!r} of {self.url} is held by this process for {holder.purpose!r}; "
                "release it first"
            )
        return self._held.setdefault(name, _MemoryLock(purpose, partial(self._release, name)))

    @_atomic
    def _release(self, name: str, lock: _MemoryLock) -> None:
        if self._held.get(name) is lock:
            del self._held[name]

    @_atomic
    def close(self) -> None:
        """Refuse all further calls."""
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

    def __init__(self, purpose: str, release: Callable[[_MemoryLock], None]) -> None:
        self.purpose = purpose
        self._release = release
        self.excludes = True
        """Whether it has not been released."""
        self.was_removed = False

    def release(self) -> None:
        """Give the right up; a second call does nothing."""
        self._release(self)
        self.excludes = False
