"""A store that fails, dies or loses an answer where a test says so, and counts its calls.

`FaultyStore` passes every call on and stops at two points of each: `<call>.before`, where nothing
has happened yet, and `<call>.after`, where it has, and only the answer can still be lost.  A plan
is any function of a `Point`; `on` makes the usual ones:

    store = FaultyStore(MemoryStore(), on("write.after", StorageUnavailable("answer lost"), nth=2))
    store = FaultyStore(SqliteStore(path), on("check_and_mutate.before", kill, table="T"))
    assert store.calls["get"] == 1

A call is what a remote store would be asked once: each page of a scan is one `scan`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar, Unpack

from omidpy.model import Cell, Column, KeyRange, TableSchema
from omidpy.storage.base import (
    WHOLE_TABLE,
    Capabilities,
    CellGroup,
    Condition,
    Entries,
    Find,
    GuardedMutation,
    ProcessLock,
    Read,
    Row,
    RowMutation,
    Scan,
    Store,
    singly,
)
from omidpy.storage.pages import Pages, reads_of

T = TypeVar("T")


class Point(NamedTuple):
    """A moment at which a fault may be injected."""

    name: str
    """`<call>.before` or `<call>.after`."""
    nth: int
    """Which call of that name this is, from 1."""
    tables: tuple[str, ...]
    """The tables the call names."""
    rows: tuple[bytes, ...]
    """The rows the call names; empty for scans."""


Plan: TypeAlias = Callable[[Point], None]
"""Called at every point; raises, kills, waits for an event, or does nothing."""


def on(
    name: str,
    action: BaseException | Callable[[], object],
    *,
    nth: int | None = None,
    table: str | None = None,
) -> Plan:
    """Return a plan that acts at one point.

    Args:
        name: The point, such as `write.after`.
        action: An exception to raise, or a function to call.
        nth: Act once, when `name` and `table` fit for the nth time; None acts each time.
        table: Only where the call names this table.
    """
    mutex = threading.Lock()
    fitting = 0

    def plan(point: Point) -> None:
        nonlocal fitting
        if point.name != name or (table is not None and table not in point.tables):
            return
        with mutex:
            fitting += 1
            is_now = nth is None or fitting == nth
        if is_now:
            if isinstance(action, BaseException):
                raise action
            action()

    return plan


def kill() -> None:
    """End this process as power loss would: no handler, no cleanup."""
    os.kill(os.getpid(), signal.SIGKILL)


class FaultyStore:
    """A store that passes every call on, and asks its plans before and after."""

    def __init__(self, store: Store, *plans: Plan) -> None:
        self.store = store
        self.plans: list[Plan] = list(plans)
        self.calls: Counter[str] = Counter()
        """How often each method was called; pages of scans one by one."""
        self._mutex = threading.Lock()

    def _call(
        self,
        name: str,
        work: Callable[[], T],
        *,
        tables: Sequence[str] = (),
        rows: Sequence[bytes] = (),
    ) -> T:
        with self._mutex:
            self.calls[name] += 1
            nth = self.calls[name]
        self._reach(Point(f"{name}.before", nth, tuple(tables), tuple(rows)))
        result = work()
        self._reach(Point(f"{name}.after", nth, tuple(tables), tuple(rows)))
        return result

    def _reach(self, point: Point) -> None:
        for plan in list(self.plans):
            plan(point)

    @property
    def url(self) -> str:
        """The address of the store behind."""
        return self.store.url

    @property
    def store_id(self) -> str:
        """The id of the store behind."""
        return self.store.store_id

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the store behind."""
        return self.store.capabilities

    def create_table(
        self,
        schema: TableSchema,
        *,
        splits: Sequence[bytes] = (),
        beside: GuardedMutation | None = None,
    ) -> bool:
        """Pass on; see `Store`."""
        return self._call(
            "create_table",
            lambda: self.store.create_table(schema, splits=splits, beside=beside),
            tables=[schema.name],
        )

    def drop_table(self, table: str, *, only: Mapping[str, str] | None = None) -> bool:
        """Pass on; see `Store`."""
        return self._call(
            "drop_table", lambda: self.store.drop_table(table, only=only), tables=[table]
        )

    def schema(self, table: str) -> TableSchema:
        """Pass on; see `Store`."""
        return self._call("schema", lambda: self.store.schema(table), tables=[table])

    def tables(self) -> list[TableSchema]:
        """Pass on; see `Store`."""
        return self._call("tables", self.store.tables)

    def set_table_attributes(
        self,
        table: str,
        attributes: Mapping[str, str | None],
        *,
        only: Mapping[str, str | None] | None = None,
    ) -> bool:
        """Pass on; see `Store`."""
        return self._call(
            "set_table_attributes",
            lambda: self.store.set_table_attributes(table, attributes, only=only),
            tables=[table],
        )

    def set_family_attributes(
        self, table: str, family: bytes, attributes: Mapping[str, str | None]
    ) -> None:
        """Pass on; see `Store`."""
        self._call(
            "set_family_attributes",
            lambda: self.store.set_family_attributes(table, family, attributes),
            tables=[table],
        )

    def regions(self, table: str) -> list[KeyRange]:
        """Pass on; see `Store`."""
        return self._call("regions", lambda: self.store.regions(table), tables=[table])

    def split_region(self, table: str, at: bytes) -> None:
        """Pass on; see `Store`."""
        self._call("split_region", lambda: self.store.split_region(table, at), tables=[table])

    def merge_regions(self, table: str, at: bytes) -> None:
        """Pass on; see `Store`."""
        self._call("merge_regions", lambda: self.store.merge_regions(table, at), tables=[table])

    def get(self, table: str, rows: Sequence[bytes], **read: Unpack[Read]) -> list[Row]:
        """Pass on; see `Store`."""
        return self._call(
            "get", lambda: self.store.get(table, rows, **read), tables=[table], rows=rows
        )

    def scan(
        self, table: str, key_range: KeyRange = WHOLE_TABLE, **read: Unpack[Scan]
    ) -> Iterator[list[Row]]:
        """Pass on, each page a call; see `Store`."""
        pages = self.store.scan(table, key_range, **read)
        reads = reads_of(pages)
        passed_on = self._pages(table, pages)
        return passed_on if reads is None else Pages(passed_on, reads)

    def _pages(self, table: str, pages: Iterator[list[Row]]) -> Iterator[list[Row]]:
        while (page := self._call("scan", lambda: next(pages, None), tables=[table])) is not None:
            yield page

    def find_cell(self, table: str, **sought: Unpack[Find]) -> Cell | None:
        """Pass on; see `Store`."""
        return self._call(
            "find_cell", lambda: self.store.find_cell(table, **sought), tables=[table]
        )

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Pass on; see `Store`."""
        self._call(
            "write",
            lambda: self.store.write(batch, durable=durable),
            tables=list(batch),
            rows=[mutation.row for mutations in batch.values() for mutation in mutations],
        )

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
        """Pass on; see `Store`."""
        return self._call(
            "check_and_mutate",
            lambda: self.store.check_and_mutate(
                table, row, column, expected, mutation, durable=durable
            ),
            tables=[table],
            rows=[row],
        )

    def write_guarded(
        self,
        mutations: Sequence[GuardedMutation | Entries | CellGroup],
        *,
        guard: Condition | None = None,
        durable: bool = False,
    ) -> list[bool] | None:
        """Pass on; see `Store`."""
        changes = singly(mutations)
        return self._call(
            "write_guarded",
            lambda: self.store.write_guarded(mutations, guard=guard, durable=durable),
            tables=[change.table for change in changes],
            rows=[change.mutation.row for change in changes],
        )

    def lock(self, name: str, *, purpose: str) -> ProcessLock:
        """Pass on; see `Store`."""
        return self._call("lock", lambda: self.store.lock(name, purpose=purpose))

    def close(self) -> None:
        """Close the store behind."""
        self._call("close", self.store.close)
