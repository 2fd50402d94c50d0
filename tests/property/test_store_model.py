"""SQLite against memory: the same operations give the same answers, whatever their order."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from omidpy.errors import OmidError
from omidpy.model import MAX_VERSION, Column, FamilySchema, KeyRange, TableSchema
from omidpy.storage.base import (
    Condition,
    DeleteVersion,
    Entries,
    GuardedMutation,
    Put,
    RowMutation,
    Store,
)
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from omidpy.storage.sqlite.queries import newest
from tests.machines.examples import fewer_by_day

# Few names, so that operations meet; among them the prefixes and extremes of byte order.
tables = st.sampled_from(["t", "u"])
families = st.sampled_from([b"a", b"b", b"\xff"])
rows = st.sampled_from([b"\x00", b"a", b"a\x00", b"ab", b"b", b"\xff", b"\xff\xff"])
qualifiers = st.sampled_from([b"", b"q", b"q\x00", b"\x00\xc2\x80q\xc2\x80"])
versions = st.sampled_from([0, 1, 50, 51, 2**53 + 1, MAX_VERSION - 1])
values = st.sampled_from([b"", b"v", b"w", bytes(300)])
keys = st.one_of(st.just(b""), rows)
columns = st.builds(Column, families, qualifiers)
specs = st.lists(st.tuples(families, st.one_of(st.none(), qualifiers)), max_size=4)
puts = st.builds(Put, families, qualifiers, versions, values)
deletes = st.builds(DeleteVersion, families, qualifiers, versions)
mutations = st.builds(RowMutation, rows, st.lists(puts, max_size=4), st.lists(deletes, max_size=2))
conditions = st.builds(
    Condition, tables, rows, columns, st.one_of(st.none(), st.sampled_from([b"v", b"w"]))
)
guarded = st.builds(GuardedMutation, tables, mutations, st.one_of(st.none(), conditions))
entries = st.builds(
    Entries, tables, columns, columns, st.lists(st.tuples(rows, versions, values), max_size=4)
)
attributes = st.dictionaries(
    st.sampled_from(["A", "B"]), st.one_of(st.none(), st.sampled_from(["", "1", "ä"])), max_size=2
)


@pytest.fixture(autouse=True)
def _seeks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a read seek the next column at the first version too many: here are only six."""
    monkeypatch.setattr(newest, "FIRST_CELLS", 2)
    monkeypatch.setattr(newest, "MAX_SURPLUS", 0.0)


class StoreComparison(RuleBasedStateMachine):
    """Every rule asks both stores, two openings of the file in turn, and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.model = MemoryStore()
        self.openings = [SqliteStore(self.folder / "store.db") for _ in range(2)]

    def teardown(self) -> None:
        """Close both and remove the file."""
        for store in self.openings:
            store.close()
        shutil.rmtree(self.folder)

    def both(self, call: Callable[[Store], Any]) -> None:
        """Ask both; an error is an answer too, by its type."""
        self.openings.reverse()
        answers: list[object] = []
        stores: list[Store] = [self.model, self.openings[0]]
        for store in stores:
            try:
                answers.append(call(store))
            except OmidError as error:
                answers.append(type(error))
        assert answers[0] == answers[1]

    @initialize()
    def tables_exist(self) -> None:
        """Begin with one of the two tables, as most runs would otherwise meet none."""
        self.both(
            lambda store: store.create_table(
                TableSchema("t", [FamilySchema(b"a"), FamilySchema(b"b")])
            )
        )

    @rule(
        table=tables,
        names=st.lists(families, min_size=1, max_size=3, unique=True),
        of_table=st.dictionaries(st.sampled_from(["A", "B"]), st.just("1")),
        splits=st.lists(rows, max_size=2, unique=True),
    )
    def create(
        self, table: str, names: list[bytes], of_table: dict[str, str], splits: list[bytes]
    ) -> None:
        """Create a table."""
        schema = TableSchema(table, [FamilySchema(name) for name in names], of_table)
        self.both(lambda store: store.create_table(schema, splits=splits))

    @rule(table=tables)
    def drop(self, table: str) -> None:
        """Drop a table."""
        self.both(lambda store: store.drop_table(table))

    @rule(table=tables, changes=attributes)
    def set_table_attributes(self, table: str, changes: dict[str, str | None]) -> None:
        """Change attributes of a table."""
        self.both(lambda store: store.set_table_attributes(table, changes))

    @rule(table=tables, family=families, changes=attributes)
    def set_family_attributes(
        self, table: str, family: bytes, changes: dict[str, str | None]
    ) -> None:
        """Change attributes of a family."""
        self.both(lambda store: store.set_family_attributes(table, family, changes))

    @rule(table=tables, at=keys, is_split=st.booleans())
    def split_or_merge(self, table: str, at: bytes, is_split: bool) -> None:  # noqa: FBT001  drawn
        """Split or merge a region."""
        self.both(
            lambda store: (
                store.split_region(table, at) if is_split else store.merge_regions(table, at)
            )
        )

    @rule(
        batch=st.dictionaries(tables, st.lists(mutations, max_size=4), max_size=2),
        durable=st.booleans(),
    )
    def write(self, batch: dict[str, list[RowMutation]], durable: bool) -> None:  # noqa: FBT001  drawn
        """Write a batch."""
        self.both(lambda store: store.write(batch, durable=durable))

    @rule(condition=conditions, mutation=mutations)
    def check_and_mutate(self, condition: Condition, mutation: RowMutation) -> None:
        """Check and change a row."""
        table, row, column, expected = condition
        changed = mutation._replace(row=row)
        self.both(lambda store: store.check_and_mutate(table, row, column, expected, changed))

    @rule(
        batch=st.lists(st.one_of(guarded, entries), max_size=5),
        guard=st.one_of(st.none(), conditions),
    )
    def write_guarded(
        self, batch: list[GuardedMutation | Entries], guard: Condition | None
    ) -> None:
        """Write a guarded batch."""
        self.both(lambda store: store.write_guarded(batch, guard=guard))

    @rule(
        table=tables,
        asked=st.lists(rows, max_size=3),
        columns=st.one_of(st.none(), specs),
        low=versions,
        high=versions,
        count=st.one_of(st.none(), st.integers(1, 3)),
    )
    def get(
        self,
        table: str,
        asked: list[bytes],
        columns: list[tuple[bytes, bytes | None]] | None,
        low: int,
        high: int,
        count: int | None,
    ) -> None:
        """Get rows."""
        self.both(
            lambda store: store.get(
                table,
                asked,
                columns=columns,
                min_version=low,
                max_version=high,
                max_versions=count,
            )
        )

    @rule(
        table=tables,
        start=keys,
        end=keys,
        columns=st.one_of(st.none(), specs),
        high=versions,
        count=st.one_of(st.none(), st.integers(1, 3)),
        reverse=st.booleans(),
        page_rows=st.integers(1, 3),
    )
    def scan(
        self,
        table: str,
        start: bytes,
        end: bytes,
        columns: list[tuple[bytes, bytes | None]] | None,
        high: int,
        count: int | None,
        reverse: bool,  # noqa: FBT001  drawn
        page_rows: int,
    ) -> None:
        """Scan a range; how rows fall into pages may differ."""

        def read(store: Store) -> list[Any]:
            pages: Iterator[list[Any]] = store.scan(
                table,
                KeyRange(start, end),
                columns=columns,
                max_version=high,
                max_versions=count,
                reverse=reverse,
                page_rows=page_rows,
            )
            return [row for page in pages for row in page]

        self.both(read)

    @rule(
        table=tables,
        prefix=qualifiers,
        columns=st.one_of(st.none(), specs),
        low=versions,
        high=versions,
    )
    def find_cell(
        self,
        table: str,
        prefix: bytes,
        columns: list[tuple[bytes, bytes | None]] | None,
        low: int,
        high: int,
    ) -> None:
        """Find a row; which of its cells is found may differ."""

        def find(store: Store) -> bytes | None:
            found = store.find_cell(
                table, prefix=prefix, columns=columns, min_version=low, max_version=high
            )
            return None if found is None else found.row

        self.both(find)

    @invariant()
    def tables_are_equal(self) -> None:
        """Schemas, regions and every cell."""

        def everything(store: Store) -> list[Any]:
            return [
                (schema, store.regions(schema.name), list(store.scan(schema.name)))
                for schema in store.tables()
            ]

        self.both(everything)


TestStoreComparison = StoreComparison.TestCase
TestStoreComparison.settings = settings(TestStoreComparison.settings, max_examples=fewer_by_day(20))
