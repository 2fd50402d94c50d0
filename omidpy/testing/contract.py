"""The tests that hold every backend to what `omidpy.storage.base.Store` says.

A backend's test inherits `StoreContract` and supplies a `store` fixture that yields a fresh, empty
store; where the store outlives its object, it also overrides `reopen`.  Every sentence of the
protocol has a test here.  What a backend may lack is asked of `store.capabilities`, and then its
refusal is what is tested; nothing is skipped.

Not promised, hence not tested: a put at a version that was deleted before (HBase hides it), and
what a check for absence makes of an empty value (HBase reads it as absent).

Needs pytest, and nothing of the backend but the protocol.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from omidpy.errors import (
    NoSuchFamily,
    NoSuchTable,
    StorageUnavailable,
    TableExists,
    UsageError,
)
from omidpy.model import MAX_VERSION, Cell, Column, FamilySchema, KeyRange, TableSchema
from omidpy.storage.base import (
    WHOLE_TABLE,
    Condition,
    DeleteVersion,
    GuardedMutation,
    Put,
    Row,
    RowMutation,
    Store,
)

TABLE: Final = "things"
CF: Final = b"cf"
OTHER: Final = b"other"
Q: Final = b"q"
COLUMN: Final = Column(CF, Q)


def put(
    row: bytes,
    version: int,
    value: bytes = b"v",
    *,
    family: bytes = CF,
    qualifier: bytes = Q,
) -> RowMutation:
    """Return a mutation that writes one cell."""
    return RowMutation(row, [Put(family, qualifier, version, value)])


def delete(row: bytes, version: int, *, qualifier: bytes = Q) -> RowMutation:
    """Return a mutation that deletes one version of a column."""
    return RowMutation(row, deletes=[DeleteVersion(CF, qualifier, version)])


def scan(
    store: Store, table: str, key_range: KeyRange = WHOLE_TABLE, **options: Any
) -> Iterator[list[Row]]:
    """Scan all versions, or the newest where the store cannot scan more."""
    if not store.capabilities.multi_version_scan:
        options.setdefault("max_versions", 1)
    return store.scan(table, key_range, **options)


def seen_by_scan(store: Store, cells: list[Cell]) -> list[Cell]:
    """Return those of a row's cells that `scan` shows."""
    if store.capabilities.multi_version_scan:
        return cells
    newest: dict[tuple[bytes, bytes], Cell] = {}
    for cell in cells:
        newest.setdefault((cell.family, cell.qualifier), cell)
    return list(newest.values())


def rows_of(pages: Iterator[list[Row]]) -> list[Row]:
    """Return the rows of all pages of a scan."""
    return [row for page in pages for row in page]


def keys_of(pages: Iterator[list[Row]]) -> list[bytes]:
    """Return the row keys of all pages of a scan."""
    return [row[0].row for row in rows_of(pages)]


def in_threads(works: Sequence[Callable[[], None]], *, deadline_s: float = 60) -> None:
    """Run each of `works` in a thread of its own and raise the first error of any."""
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  raised again below, in the test's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(deadline_s)
        assert not thread.is_alive(), f"a thread did not end within {deadline_s} s"
    if errors:
        raise errors[0]


class StoreContract:
    """Every sentence of the `Store` protocol, as a test."""

    def reopen(self, store: Store) -> Store | None:
        """Open the same store a second time, or return None if it does not outlive its object."""
        del store
        return None

    @pytest.fixture
    def things(self, store: Store) -> Store:
        """Return the store with the table `things`, families `cf` and `other`."""
        store.create_table(TableSchema(TABLE, [FamilySchema(OTHER), FamilySchema(CF)]))
        return store

    # -- tables -----------------------------------------------------------------------------------

    def test_a_table_keeps_its_families_and_attributes(self, store: Store) -> None:
        """Families come back in byte order, whatever order they were named in."""
        family = FamilySchema(b"z", {"OMID_ENABLED": "true"})
        wanted = TableSchema("t", [family, FamilySchema(b"a")], {"OWNER": "me"})
        if not store.capabilities.table_admin:
            for refused in (wanted, replace(wanted, attributes={})):
                with pytest.raises(UsageError, match="attributes"):
                    store.create_table(refused)
            assert "t" not in [schema.name for schema in store.tables()]
            return
        store.create_table(wanted)
        schema = store.schema("t")
        assert schema.name == "t"
        assert schema.family_names() == [b"a", b"z"]
        assert [one.name for one in schema.families] == [b"a", b"z"]
        attributes = {one.name: one.attributes for one in schema.families}
        assert attributes[b"z"]["OMID_ENABLED"] == "true"
        assert "OMID_ENABLED" not in attributes[b"a"]
        assert schema.attributes["OWNER"] == "me"

    def test_tables_are_listed_by_name(self, store: Store) -> None:
        """A pruner that overlooks a table loses data, so the list is complete."""
        for name in ("b", "a", "c"):
            store.create_table(TableSchema(name, [FamilySchema(CF)]))
        listed = [schema.name for schema in store.tables()]
        assert listed == sorted(listed)
        assert {"a", "b", "c"} <= set(listed)

    def test_creating_a_table_twice_changes_nothing(self, things: Store) -> None:
        """TableExists promises that the first table is whole."""
        things.write({TABLE: [put(b"r", 1)]})
        splits = [b"m"] if things.capabilities.table_admin else []
        with pytest.raises(TableExists, match=TABLE):
            things.create_table(TableSchema(TABLE, [FamilySchema(b"x")]), splits=splits)
        assert things.schema(TABLE).family_names() == [CF, OTHER]
        assert len(things.regions(TABLE)) == 1
        assert things.get(TABLE, [b"r"]) == [[Cell(b"r", CF, Q, 1, b"v")]]

    @pytest.mark.parametrize("name", ["", "a b", "-a", ".a", "a:b:c", "a/b", "ä"])
    def test_a_table_name_that_hbase_refuses_is_refused(self, store: Store, name: str) -> None:
        """A file's table must be able to move to a cluster."""
        with pytest.raises(UsageError, match="table name"):
            store.create_table(TableSchema(name, [FamilySchema(CF)]))

    @pytest.mark.parametrize("name", ["a", "A_b-c.d", "ns:table", "_x"])
    def test_a_table_name_that_hbase_takes_is_taken(self, store: Store, name: str) -> None:
        """Java's tables have such names."""
        if ":" in name and store.capabilities.remote:
            name = name.rpartition(":")[2]  # a cluster has no such namespace before it is made
        store.create_table(TableSchema(name, [FamilySchema(CF)]))
        assert store.schema(name).name == name

    @pytest.mark.parametrize("families", [[], [b""], [b"a:b"], [b"a", b"a"], [b"f" * 128]])
    def test_families_that_hbase_refuses_are_refused(
        self, store: Store, families: list[bytes]
    ) -> None:
        """The message names the family."""
        with pytest.raises(UsageError, match="family"):
            store.create_table(TableSchema("t", [FamilySchema(name) for name in families]))

    def test_a_family_of_text_is_a_type_error(self, store: Store) -> None:
        """Text is decoded at the command line and nowhere else."""
        with pytest.raises(TypeError, match="bytes"):
            store.create_table(TableSchema("t", [FamilySchema("cf")]))  # type: ignore[arg-type]  # the point

    def test_a_dropped_table_is_gone_with_its_cells(self, things: Store) -> None:
        """A new table of the same name starts empty, without the old families and regions."""
        things.drop_table(TABLE)
        splits = [b"m"] if things.capabilities.table_admin else []
        things.create_table(TableSchema(TABLE, [FamilySchema(CF)]), splits=splits)
        things.write({TABLE: [put(b"r", 1)]})
        things.drop_table(TABLE)
        with pytest.raises(NoSuchTable, match=TABLE):
            things.get(TABLE, [b"r"])
        assert TABLE not in [schema.name for schema in things.tables()]
        things.create_table(TableSchema(TABLE, [FamilySchema(b"new")]))
        assert things.get(TABLE, [b"r"]) == [[]]
        assert rows_of(scan(things, TABLE)) == []
        assert things.regions(TABLE) == [KeyRange()]
        with pytest.raises(NoSuchFamily, match="cf"):
            things.write({TABLE: [put(b"r", 1)]})

    def test_every_call_names_a_missing_table(self, store: Store) -> None:
        """NoSuchTable comes from every method that names a table."""
        condition = Condition("absent", b"r", COLUMN, None)
        calls: list[Callable[[], object]] = [
            lambda: store.drop_table("absent"),
            lambda: store.schema("absent"),
            lambda: store.set_table_attributes("absent", {}),
            lambda: store.set_family_attributes("absent", CF, {}),
            lambda: store.regions("absent"),
            lambda: store.split_region("absent", b"m"),
            lambda: store.merge_regions("absent", b"m"),
            lambda: store.get("absent", [b"r"]),
            lambda: store.get("absent", []),
            lambda: rows_of(scan(store, "absent")),
            lambda: store.find_qualifier("absent", b"q"),
            lambda: store.write({"absent": [put(b"r", 1)]}),
            lambda: store.check_and_mutate("absent", b"r", COLUMN, None, put(b"r", 1)),
        ]
        if store.capabilities.guarded_batches:
            calls.append(lambda: store.write_guarded([GuardedMutation("absent", put(b"r", 1))]))
            calls.append(lambda: store.write_guarded([], guard=condition))
        for number, call in enumerate(calls):
            with pytest.raises(NoSuchTable, match="absent"):
                call()
            assert number < len(calls)

    def test_every_call_names_a_missing_family(self, things: Store) -> None:
        """NoSuchFamily comes from every method that names a family."""
        column = Column(b"nope", Q)
        calls: list[Callable[[], object]] = [
            lambda: things.set_family_attributes(TABLE, b"nope", {"A": "1"}),
            lambda: things.get(TABLE, [b"r"], columns=[column]),
            lambda: things.get(TABLE, [b"r"], columns=[(b"nope", None)]),
            lambda: rows_of(scan(things, TABLE, columns=[column])),
            lambda: things.write({TABLE: [put(b"r", 1, family=b"nope")]}),
            lambda: things.write(
                {TABLE: [RowMutation(b"r", deletes=[DeleteVersion(b"nope", Q, 1)])]}
            ),
            lambda: things.check_and_mutate(TABLE, b"r", column, None, put(b"r", 1)),
        ]
        for call in calls:
            with pytest.raises(NoSuchFamily, match="nope"):
                call()
        assert rows_of(scan(things, TABLE)) == []

    def test_attributes_are_set_changed_and_removed(self, things: Store) -> None:
        """None removes an attribute; what is not named stays."""
        if not things.capabilities.table_admin:
            with pytest.raises(UsageError, match="attributes"):
                things.set_table_attributes(TABLE, {"A": "1"})
            with pytest.raises(UsageError, match="attributes"):
                things.set_family_attributes(TABLE, CF, {"A": "1"})
            return
        things.set_table_attributes(TABLE, {"A": "1", "B": "2"})
        things.set_table_attributes(TABLE, {"A": None, "C": "3", "NEVER": None})
        attributes = things.schema(TABLE).attributes
        assert (attributes.get("A"), attributes["B"], attributes["C"]) == (None, "2", "3")
        things.set_family_attributes(TABLE, CF, {"OMID_ENABLED": "true", "X": "1"})
        things.set_family_attributes(TABLE, CF, {"X": None})
        families = {family.name: family.attributes for family in things.schema(TABLE).families}
        assert families[CF]["OMID_ENABLED"] == "true"
        assert "X" not in families[CF]
        assert "OMID_ENABLED" not in families[OTHER]
        assert [schema for schema in things.tables() if schema.name == TABLE] == [
            things.schema(TABLE)
        ]

    def test_attributes_do_not_touch_cells(self, things: Store) -> None:
        """Adopting a table marks it and leaves its data alone."""
        if not things.capabilities.table_admin:
            return  # its refusal is tested above
        things.write({TABLE: [put(b"r", 1)]})
        things.set_family_attributes(TABLE, CF, {"OMID_ENABLED": "true"})
        assert things.get(TABLE, [b"r"]) == [[Cell(b"r", CF, Q, 1, b"v")]]

    # -- regions ----------------------------------------------------------------------------------

    def test_a_table_without_splits_is_one_region(self, things: Store) -> None:
        """Regions cover every row."""
        assert things.regions(TABLE) == [KeyRange(b"", b"")]

    def test_splits_are_where_regions_meet(self, store: Store) -> None:
        """In order, without gap or overlap, whatever order the splits came in."""
        if not store.capabilities.table_admin:
            with pytest.raises(UsageError, match="region"):
                store.create_table(TableSchema("t", [FamilySchema(CF)]), splits=[b"t"])
            return
        store.create_table(TableSchema("t", [FamilySchema(CF)]), splits=[b"t", b"g"])
        assert store.regions("t") == [
            KeyRange(b"", b"g"),
            KeyRange(b"g", b"t"),
            KeyRange(b"t", b""),
        ]

    def test_a_split_point_twice_is_refused(self, store: Store) -> None:
        """A region of no row is a mistake of the caller."""
        with pytest.raises(UsageError, match="twice"):
            store.create_table(TableSchema("t", [FamilySchema(CF)]), splits=[b"g", b"g"])

    def test_an_empty_split_point_is_refused(self, store: Store) -> None:
        """The empty key is the start of the first region, never a border."""
        with pytest.raises(UsageError, match="empty"):
            store.create_table(TableSchema("t", [FamilySchema(CF)]), splits=[b""])

    def test_a_region_splits_and_merges_under_its_cells(self, things: Store) -> None:
        """Splits and merges move no cell."""
        things.write({TABLE: [put(key, 1) for key in (b"a", b"m", b"z")]})
        if not things.capabilities.region_admin:
            for change in (things.split_region, things.merge_regions):
                with pytest.raises(UsageError, match="shell"):
                    change(TABLE, b"m")
            return
        before = rows_of(scan(things, TABLE))
        things.split_region(TABLE, b"m")
        assert things.regions(TABLE) == [KeyRange(b"", b"m"), KeyRange(b"m", b"")]
        things.split_region(TABLE, b"m")
        assert len(things.regions(TABLE)) == 2
        things.split_region(TABLE, b"t")
        assert rows_of(scan(things, TABLE)) == before
        things.merge_regions(TABLE, b"m")
        assert things.regions(TABLE) == [KeyRange(b"", b"t"), KeyRange(b"t", b"")]
        assert rows_of(scan(things, TABLE)) == before

    def test_merging_where_no_regions_meet_is_refused(self, things: Store) -> None:
        """The message names the key."""
        if not things.capabilities.region_admin:
            return  # its refusal is tested above
        things.split_region(TABLE, b"m")
        for at in (b"x", b""):
            with pytest.raises(UsageError, match="meet"):
                things.merge_regions(TABLE, at)

    # -- reads ------------------------------------------------------------------------------------

    def test_cells_of_a_row_come_in_hbase_order(self, things: Store) -> None:
        """Family, then qualifier, then the newest version first."""
        puts = [
            Put(family, qualifier, version, b"%d" % version)
            for version in (5, 9, 7)
            for qualifier in (b"b", b"", b"a", b"a\x00", b"\xff")
            for family in (OTHER, CF)
        ]
        things.write({TABLE: [RowMutation(b"r", puts)]})
        expected = sorted(
            (Cell(b"r", *one) for one in puts),
            key=lambda cell: (cell.family, cell.qualifier, -cell.version),
        )
        assert things.get(TABLE, [b"r"]) == [expected]
        shown = [seen_by_scan(things, expected)]
        assert rows_of(scan(things, TABLE)) == shown
        assert rows_of(scan(things, TABLE, reverse=True)) == shown

    def test_a_scan_of_versions_it_cannot_show_is_refused(self, things: Store) -> None:
        """Not answered with the newest, as if there were no others."""
        things.write({TABLE: [put(b"r", 1)]})
        if things.capabilities.multi_version_scan:
            assert rows_of(things.scan(TABLE)) == rows_of(things.scan(TABLE, max_versions=1))
            return
        for count in (None, 2):
            with pytest.raises(UsageError, match="max_versions=1"):
                things.scan(TABLE, max_versions=count)

    def test_a_get_answers_row_by_row(self, things: Store) -> None:
        """In the order asked, absent rows empty, repeats repeated."""
        things.write({TABLE: [put(b"a", 1), put(b"b", 2)]})
        a, b = [Cell(b"a", CF, Q, 1, b"v")], [Cell(b"b", CF, Q, 2, b"v")]
        assert things.get(TABLE, [b"b", b"x", b"a", b"b"]) == [b, [], a, b]
        assert things.get(TABLE, []) == []

    def test_every_version_is_kept(self, things: Store) -> None:
        """No version is dropped until it is deleted by name, as snapshots need them all."""
        for version in range(1, 31):
            things.write({TABLE: [put(b"r", version, b"%d" % version)]})
        (row,) = things.get(TABLE, [b"r"])
        assert [cell.version for cell in row] == list(range(30, 0, -1))
        assert [cell.value for cell in row] == [b"%d" % n for n in range(30, 0, -1)]

    def test_version_bounds_are_inclusive_below_and_exclusive_above(self, things: Store) -> None:
        """A snapshot reads versions below its own start timestamp."""
        things.write({TABLE: [put(b"r", version) for version in (10, 20, 30)]})

        def read(low: int, high: int, count: int | None = None) -> list[list[int]]:
            def get(columns: list[tuple[bytes, bytes | None]] | None) -> list[Row]:
                return things.get(
                    TABLE,
                    [b"r"],
                    columns=columns,
                    min_version=low,
                    max_version=high,
                    max_versions=count,
                )

            got = get(None)
            bounds: dict[str, Any] = {"min_version": low, "max_version": high}
            if count is not None and things.capabilities.multi_version_scan:
                bounds["max_versions"] = count
            assert [seen_by_scan(things, row) for row in got] == (
                rows_of(scan(things, TABLE, **bounds)) or [[]]
            )
            assert got == get([COLUMN])
            return [[cell.version for cell in row] for row in got]

        assert read(10, 30) == [[20, 10]]
        assert read(11, 31) == [[30, 20]]
        assert read(30, 30) == [[]]
        assert read(31, MAX_VERSION) == [[]]
        assert read(0, MAX_VERSION) == [[30, 20, 10]]
        assert read(0, 30, 1) == [[20]]
        assert read(0, MAX_VERSION, 2) == [[30, 20]]

    def test_versions_reach_from_zero_to_the_limit(self, things: Store) -> None:
        """Timestamps are 63 bits; nothing may round them."""
        versions = [0, 1, 2**53 + 1, MAX_VERSION - 1]
        things.write({TABLE: [put(b"r", version) for version in versions]})
        (row,) = things.get(TABLE, [b"r"])
        assert [cell.version for cell in row] == versions[::-1]
        (row,) = things.get(TABLE, [b"r"], max_version=MAX_VERSION - 1)
        assert [cell.version for cell in row] == versions[-2::-1]

    def test_max_versions_counts_per_column_within_the_bounds(self, things: Store) -> None:
        """Each column gives its own newest versions."""
        puts = [
            Put(CF, qualifier, version, b"") for qualifier in (b"a", b"b") for version in range(5)
        ]
        things.write({TABLE: [RowMutation(b"r", puts), RowMutation(b"s", puts)]})
        rows = things.get(TABLE, [b"r", b"s"], max_version=4, max_versions=2)
        if things.capabilities.multi_version_scan:
            assert rows == rows_of(things.scan(TABLE, max_version=4, max_versions=2))
        for row in rows:
            assert [(cell.qualifier, cell.version) for cell in row] == [
                (b"a", 3),
                (b"a", 2),
                (b"b", 3),
                (b"b", 2),
            ]

    def test_columns_select_cells_and_families(self, things: Store) -> None:
        """(family, None) is the whole family; overlapping selections give each cell once."""
        puts = [
            Put(family, qualifier, 1, b"v")
            for family in (CF, OTHER)
            for qualifier in (b"", b"a", b"b", b"c")
        ]
        things.write({TABLE: [RowMutation(b"r", puts)]})

        def read(columns: list[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes]]:
            (got,) = things.get(TABLE, [b"r"], columns=columns)
            assert rows_of(scan(things, TABLE, columns=columns)) == ([got] if got else [])
            assert rows_of(scan(things, TABLE, columns=columns, reverse=True)) == (
                [got] if got else []
            )
            return [(cell.family, cell.qualifier) for cell in got]

        assert read([(OTHER, b"b"), (CF, b"a"), (CF, b"a")]) == [(CF, b"a"), (OTHER, b"b")]
        assert read([(CF, b"")]) == [(CF, b"")]
        assert read([(CF, b"b"), (CF, None)]) == [(CF, q) for q in (b"", b"a", b"b", b"c")]
        assert read([(OTHER, None), (CF, b"c")]) == [
            (CF, b"c"),
            *((OTHER, q) for q in (b"", b"a", b"b", b"c")),
        ]
        assert read([(CF, b"absent")]) == []
        assert read([]) == []

    def test_many_columns_at_once(self, things: Store) -> None:
        """A selection has no small limit."""
        qualifiers = [b"%05d" % number for number in range(1500)]
        puts = [Put(CF, qualifier, 1, b"v") for qualifier in qualifiers]
        things.write({TABLE: [RowMutation(b"r", puts)]})
        wanted = qualifiers[::2]
        (row,) = things.get(TABLE, [b"r"], columns=[(CF, qualifier) for qualifier in wanted])
        assert [cell.qualifier for cell in row] == wanted
        (row,) = rows_of(scan(things, TABLE, columns=[(CF, qualifier) for qualifier in wanted]))
        assert [cell.qualifier for cell in row] == wanted

    def test_a_row_without_selected_cells_is_not_scanned(self, things: Store) -> None:
        """Rows of a scan are never empty, and do not use up a page."""
        things.write({TABLE: [put(b"a", 1), put(b"b", 1, qualifier=b"x"), put(b"c", 1)]})
        pages = list(scan(things, TABLE, columns=[COLUMN], page_rows=2))
        assert [[row[0].row for row in page] for page in pages] in (
            [[b"a", b"c"]],
            [[b"a"], [b"c"]],
        )

    def test_a_scan_reads_its_range_in_order(self, things: Store) -> None:
        """Keys compare as unsigned bytes; the start is inclusive, the end exclusive."""
        keys = [b"\x00", b"a", b"a\x00", b"ab", b"b", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]
        things.write({TABLE: [put(key, 1) for key in reversed(keys)]})
        assert keys_of(scan(things, TABLE)) == sorted(keys)
        assert keys_of(scan(things, TABLE, reverse=True)) == sorted(keys, reverse=True)
        for start in (b"", b"a", b"aa", b"b", b"\xff"):
            for end in (b"", b"a", b"a\x00", b"b", b"\xff\xff"):
                key_range = KeyRange(start, end)
                expected = [key for key in sorted(keys) if key_range.contains(key)]
                assert keys_of(scan(things, TABLE, key_range)) == expected
                assert keys_of(scan(things, TABLE, key_range, reverse=True)) == expected[::-1]

    @pytest.mark.parametrize("reverse", [False, True])
    @pytest.mark.parametrize("page_rows", [1, 2, 3, 7, 1000])
    def test_pages_hold_whole_rows_and_never_none(
        self,
        things: Store,
        page_rows: int,
        reverse: bool,  # noqa: FBT001  a parameter of the test
    ) -> None:
        """A page ends between rows, whatever its size."""
        keys = [b"%02d" % number for number in range(7)]
        puts = [Put(CF, b"%d" % column, version, b"v") for column in range(3) for version in (1, 2)]
        things.write({TABLE: [RowMutation(key, puts) for key in keys]})
        pages = list(scan(things, TABLE, page_rows=page_rows, reverse=reverse))
        assert all(1 <= len(page) <= page_rows for page in pages)
        rows = [row for page in pages for row in page]
        assert [row[0].row for row in rows] == sorted(keys, reverse=reverse)
        cells = 6 if things.capabilities.multi_version_scan else 3
        assert all(len(row) == cells and len({cell.row for cell in row}) == 1 for row in rows)

    def test_each_page_is_read_when_it_is_asked_for(self, things: Store) -> None:
        """A scan pins no view of the store: what was written meanwhile is seen, as is a delete."""
        things.write({TABLE: [put(key, 1) for key in (b"a", b"b", b"c")]})
        pages = scan(things, TABLE, page_rows=1)
        assert next(pages)[0][0].row == b"a"
        things.write({TABLE: [put(b"bb", 1), put(b"c", 2)]})
        expected = [b"b", b"bb", b"c"]
        if things.capabilities.exact_delete:
            things.write({TABLE: [delete(b"b", 1)]})
            expected.remove(b"b")
        rest = rows_of(pages)
        assert [row[0].row for row in rest] == expected
        assert rest[-1][0].version == 2

    def test_an_abandoned_scan_keeps_nothing_busy(self, things: Store) -> None:
        """A reader that stops half way must not stop a writer, nor a drop of the table."""
        things.write({TABLE: [put(b"%d" % number, 1) for number in range(9)]})
        pages = scan(things, TABLE, page_rows=1)
        next(pages)
        things.write({TABLE: [put(b"z", 1)]})
        things.drop_table(TABLE)
        with pytest.raises(NoSuchTable):
            next(pages)

    @pytest.mark.parametrize(
        "bad",
        [
            {"min_version": -1},
            {"max_version": MAX_VERSION + 1},
            {"max_versions": 0},
            {"page_rows": 0},
        ],
    )
    def test_bounds_out_of_range_are_refused(self, things: Store, bad: dict[str, int]) -> None:
        """The message names the argument's value."""
        with pytest.raises(UsageError, match=str(next(iter(bad.values())))):
            rows_of(scan(things, TABLE, **bad))  # type: ignore[arg-type]  # one of four integers
        if "page_rows" not in bad:
            with pytest.raises(UsageError):
                things.get(TABLE, [b"r"], **bad)  # type: ignore[arg-type]  # one of three

    def test_text_where_bytes_belong_is_a_type_error(self, things: Store) -> None:
        """Not a silent miss."""
        wrong: list[Callable[[], object]] = [
            lambda: things.get(TABLE, ["r"]),  # type: ignore[list-item]  # the point
            lambda: things.get(TABLE, [b"r"], columns=[(CF, "q")]),  # type: ignore[list-item]  # the point
            lambda: rows_of(scan(things, TABLE, KeyRange("a", b""))),  # type: ignore[arg-type]  # the point
            lambda: things.write({TABLE: [put("r", 1)]}),  # type: ignore[arg-type]  # the point
            lambda: things.write({TABLE: [put(b"r", 1, "v")]}),  # type: ignore[arg-type]  # the point
            lambda: things.write({TABLE: [put(b"r", 1, qualifier="q")]}),  # type: ignore[arg-type]  # the point
            lambda: things.write({TABLE: [delete(b"r", 1, qualifier="q")]}),  # type: ignore[arg-type]  # the point
            lambda: things.check_and_mutate(TABLE, b"r", COLUMN, "v", put(b"r", 1)),  # type: ignore[arg-type]  # the point
        ]
        for call in wrong:
            with pytest.raises(TypeError, match="bytes"):
                call()
        assert rows_of(scan(things, TABLE)) == []

    def test_a_qualifier_is_found_by_its_prefix(self, things: Store) -> None:
        """How a table that holds shadow cells is recognised, in whatever row and family."""
        assert things.find_qualifier(TABLE, b"") is None
        things.write({TABLE: [put(b"%d" % number, 1) for number in range(50)]})
        assert things.find_qualifier(TABLE, b"\x00\xc2\x80") is None
        shadow = Cell(b"27", OTHER, b"\x00\xc2\x80q\xc2\x80", 5, b"commit")
        things.write({TABLE: [RowMutation(shadow.row, [Put(*shadow[1:])])]})
        assert things.find_qualifier(TABLE, b"\x00\xc2\x80") == shadow
        found = things.find_qualifier(TABLE, b"")
        assert found is not None
        assert things.find_qualifier(TABLE, b"\xff") is None

    def test_an_empty_prefix_finds_the_empty_qualifier(self, things: Store) -> None:
        """The empty qualifier is a column like another, and every prefix of it is empty."""
        cell = Cell(b"r", OTHER, b"", 1, b"v")
        things.write({TABLE: [RowMutation(cell.row, [Put(*cell[1:])])]})
        assert things.find_qualifier(TABLE, b"") == cell
        assert things.find_qualifier(TABLE, b"\x00") is None

    # -- writes -----------------------------------------------------------------------------------

    def test_two_puts_at_one_version_the_later_wins(self, things: Store) -> None:
        """In one mutation, in one batch, and in two calls."""
        twice = RowMutation(b"a", [Put(CF, Q, 1, b"first"), Put(CF, Q, 1, b"second")])
        things.write({TABLE: [twice, put(b"b", 1, b"first"), put(b"b", 1, b"second")]})
        things.write({TABLE: [put(b"c", 1, b"first")]})
        things.write({TABLE: [put(b"c", 1, b"second")]})
        values = [row[0].value for row in things.get(TABLE, [b"a", b"b", b"c"])]
        assert values == [b"second"] * 3
        assert [len(row) for row in things.get(TABLE, [b"a", b"b", b"c"])] == [1, 1, 1]

    def test_an_empty_value_is_a_cell(self, things: Store) -> None:
        """It is how this format writes a delete, so it must not vanish."""
        things.write({TABLE: [put(b"r", 2, b""), put(b"r", 1, b"v")]})
        assert [cell.value for cell in things.get(TABLE, [b"r"])[0]] == [b"", b"v"]

    def test_values_are_bytes_of_any_kind(self, things: Store) -> None:
        """No encoding, no terminator."""
        value = bytes(range(256)) * 3
        cell = Cell(b"\x00\xff\x00", CF, b"\x00\xc2\x80\x00\xff\xc2\x80", 1, value)
        things.write({TABLE: [RowMutation(cell.row, [Put(*cell[1:])])]})
        assert things.get(TABLE, [cell.row], columns=[cell[1:3]]) == [[cell]]

    def test_a_delete_removes_exactly_one_version(self, things: Store) -> None:
        """Older versions become visible again: a rollback must not destroy committed history."""
        if not things.capabilities.exact_delete:
            with pytest.raises(UsageError, match="version"):
                things.write({TABLE: [delete(b"r", 20)]})
            return
        things.write({TABLE: [put(b"r", version) for version in (10, 20, 30)]})
        things.write({TABLE: [put(b"r", 20, qualifier=b"q2"), put(b"s", 20)]})
        things.write({TABLE: [delete(b"r", 20)]})
        r, s = things.get(TABLE, [b"r", b"s"])
        assert [(cell.qualifier, cell.version) for cell in r] == [(Q, 30), (Q, 10), (b"q2", 20)]
        assert [cell.version for cell in s] == [20]
        things.write({TABLE: [delete(b"r", 30)]})
        assert things.get(TABLE, [b"r"], columns=[COLUMN], max_versions=1)[0][0].version == 10
        things.write({TABLE: [delete(b"r", 10)]})
        assert things.get(TABLE, [b"r"], columns=[COLUMN]) == [[]]

    def test_deleting_what_is_not_there_does_nothing(self, things: Store) -> None:
        """A repeated rollback is harmless."""
        if not things.capabilities.exact_delete:
            return  # its refusal is tested above
        things.write({TABLE: [put(b"r", 10)]})
        things.write({TABLE: [delete(b"r", 11), delete(b"absent", 1)]})
        assert rows_of(scan(things, TABLE)) == [[Cell(b"r", CF, Q, 10, b"v")]]

    def test_puts_and_deletes_of_a_mutation_go_together(self, things: Store) -> None:
        """A cell and its shadow cell are healed or dropped in one row mutation."""
        if not things.capabilities.exact_delete:
            return
        things.write({TABLE: [put(b"r", 1), put(b"r", 2, qualifier=b"x")]})
        mutation = RowMutation(b"r", [Put(CF, b"y", 3, b"new")], [DeleteVersion(CF, Q, 1)])
        things.write({TABLE: [mutation]})
        (row,) = things.get(TABLE, [b"r"])
        assert [(cell.qualifier, cell.version) for cell in row] == [(b"x", 2), (b"y", 3)]

    def test_the_mutations_of_a_row_apply_in_their_order(self, things: Store) -> None:
        """A delete after a put in one batch removes what was put."""
        if not things.capabilities.exact_delete:
            return
        batch = [put(b"r", 1), put(b"r", 2), delete(b"r", 2), put(b"s", 2)]
        things.write({TABLE: batch})
        assert [cell.version for cell in things.get(TABLE, [b"r"])[0]] == [1]
        assert [cell.version for cell in things.get(TABLE, [b"s"])[0]] == [2]

    def test_a_mutation_that_puts_and_deletes_one_cell_is_refused(self, things: Store) -> None:
        """HBase would hide the put; a meaning that depends on the backend is none."""
        mutation = RowMutation(b"r", [Put(CF, Q, 1, b"v")], [DeleteVersion(CF, Q, 1)])
        with pytest.raises(UsageError):
            things.write({TABLE: [mutation]})

    def test_a_batch_writes_many_rows_of_many_tables(self, things: Store) -> None:
        """One call, whatever it spans; an empty batch and an empty mutation do nothing."""
        things.create_table(TableSchema("second", [FamilySchema(CF)]))
        rows = [b"%04d" % number for number in range(300)]
        things.write(
            {TABLE: [put(row, 1) for row in rows], "second": [put(b"r", 2), RowMutation(b"s")]},
            durable=True,
        )
        assert keys_of(scan(things, TABLE)) == rows
        assert rows_of(scan(things, "second")) == [[Cell(b"r", CF, Q, 2, b"v")]]
        things.write({})
        things.write({TABLE: []}, durable=True)
        assert keys_of(scan(things, TABLE)) == rows

    @pytest.mark.parametrize(
        ("mutation", "named"),
        [
            (put(b"", 1), "empty"),
            (put(b"r" * 32768, 1), "32768"),
            (put(b"r", -1), "-1"),
            (put(b"r", MAX_VERSION), str(MAX_VERSION)),
            (put(b"r", 1, bytes(10 * 1024 * 1024 - 99)), "10485661"),
            (delete(b"r", -1), "-1"),
            (delete(b"", 1), "empty"),
        ],
        ids=["empty-row", "long-row", "negative", "latest", "large", "delete", "delete-empty-row"],
    )
    def test_what_no_store_can_hold_is_refused(
        self, things: Store, mutation: RowMutation, named: str
    ) -> None:
        """HBase's limits hold everywhere; the message names what is wrong."""
        condition = Column(CF, Q)
        with pytest.raises(UsageError, match=named):
            things.write({TABLE: [mutation]})
        with pytest.raises(UsageError, match=named):
            things.check_and_mutate(TABLE, mutation.row, condition, None, mutation)
        assert rows_of(scan(things, TABLE)) == []

    def test_the_longest_row_and_a_large_value_are_held(self, things: Store) -> None:
        """The limits themselves are legal.

        HBase looks a row's region up by a key of 32767 bytes at most, with the table's name and 16
        bytes more in it.
        """
        row = b"r" * (32767 - 16 - len(TABLE))
        things.write({TABLE: [put(row, 1), put(b"s", 1, bytes(10 * 1024 * 1024 - 100))]})
        assert [len(row[0].value) for row in rows_of(scan(things, TABLE))] == [1, 10485660]

    # -- conditions -------------------------------------------------------------------------------

    def test_a_check_for_absence_applies_once(self, things: Store) -> None:
        """How a commit entry loses against an invalidation."""
        if not things.capabilities.checked_changes:
            return  # its refusal is tested below
        assert things.check_and_mutate(TABLE, b"r", COLUMN, None, put(b"r", 1, b"a"))
        assert not things.check_and_mutate(TABLE, b"r", COLUMN, None, put(b"r", 2, b"b"))
        assert things.get(TABLE, [b"r"]) == [[Cell(b"r", CF, Q, 1, b"a")]]

    def test_a_check_compares_the_newest_version(self, things: Store) -> None:
        """An old version that has the value does not count."""
        if not things.capabilities.checked_changes:
            return  # its refusal is tested below
        things.write({TABLE: [put(b"r", 1, b"old"), put(b"r", 5, b"new")]})
        x = RowMutation(b"r", [Put(CF, b"x", 1, b"applied")])
        assert not things.check_and_mutate(TABLE, b"r", COLUMN, b"old", x)
        assert not things.check_and_mutate(TABLE, b"r", COLUMN, None, x)
        assert not things.check_and_mutate(TABLE, b"r", Column(CF, b"absent"), b"old", x)
        assert things.get(TABLE, [b"r"], columns=[(CF, b"x")]) == [[]]
        assert things.check_and_mutate(TABLE, b"r", COLUMN, b"new", x, durable=True)
        assert len(things.get(TABLE, [b"r"], columns=[(CF, b"x")])[0]) == 1

    def test_a_check_looks_at_its_own_column_and_row(self, things: Store) -> None:
        """A neighbour's value is not this column's."""
        if not things.capabilities.checked_changes:
            return  # its refusal is tested below
        things.write({TABLE: [put(b"r", 1, qualifier=b"q2"), put(b"r", 1, family=OTHER)]})
        things.write({TABLE: [put(b"rr", 1)]})
        assert things.check_and_mutate(TABLE, b"r", COLUMN, None, put(b"r", 1, b"mine"))

    def test_a_checked_mutation_may_delete(self, things: Store) -> None:
        """A false invalidation is undone by a conditional delete of its column alone."""
        if not things.capabilities.exact_delete:
            return
        things.write({TABLE: [put(b"r", 1, b"IT"), put(b"r", 1, qualifier=b"keep")]})
        assert not things.check_and_mutate(TABLE, b"r", COLUMN, b"other", delete(b"r", 1))
        assert things.check_and_mutate(TABLE, b"r", COLUMN, b"IT", delete(b"r", 1))
        assert [cell.qualifier for cell in things.get(TABLE, [b"r"])[0]] == [b"keep"]

    def test_a_change_that_cannot_be_checked_is_refused(self, things: Store) -> None:
        """What must be atomic has no body that merely looks atomic."""
        if things.capabilities.checked_changes:
            assert things.check_and_mutate(TABLE, b"r", COLUMN, None, RowMutation(b"r"))
            return
        things.write({TABLE: [put(b"r", 1, b"old")]})
        changes: list[tuple[bytes | None, RowMutation]] = [
            (None, put(b"r", 2, qualifier=b"x")),
            (b"old", put(b"r", 2)),
            (b"old", delete(b"r", 1)),
        ]
        for expected, change in changes:
            with pytest.raises(UsageError, match="check"):
                things.check_and_mutate(TABLE, b"r", COLUMN, expected, change)
        assert things.get(TABLE, [b"r"]) == [[Cell(b"r", CF, Q, 1, b"old")]]

    def test_a_check_of_one_row_cannot_change_another(self, things: Store) -> None:
        """Only a row is atomic."""
        with pytest.raises(UsageError, match="other"):
            things.check_and_mutate(TABLE, b"r", COLUMN, None, put(b"other", 1))

    def test_an_empty_expected_value_is_refused(self, things: Store) -> None:
        """HBase reads it as absence."""
        with pytest.raises(UsageError, match="empty"):
            things.check_and_mutate(TABLE, b"r", COLUMN, b"", put(b"r", 1))

    def test_of_many_threads_one_wins_a_check(self, things: Store) -> None:
        """The check and the change are one."""
        if not things.capabilities.checked_changes:
            return  # its refusal is tested below
        for number in range(10):
            row = b"%d" % number
            won: list[int] = []

            def compete(name: int, row: bytes = row, won: list[int] = won) -> None:
                mutation = put(row, 1 + name, b"%d" % name)
                if things.check_and_mutate(TABLE, row, COLUMN, None, mutation):
                    won.append(name)

            in_threads([lambda name=name: compete(name) for name in range(6)])  # type: ignore[misc]  # a bound default
            (cells,) = things.get(TABLE, [row])
            assert [int(cell.value) for cell in cells] == won
            assert len(won) == 1

    def test_counters_lose_no_increment_among_threads(self, things: Store) -> None:
        """Compare-and-set loops of many threads add up."""
        if not things.capabilities.checked_changes:
            return  # its refusal is tested below
        things.write({TABLE: [put(b"counter", 1, b"0")]})

        def increment() -> None:
            done = 0
            while done < 25:
                ((cell,),) = things.get(TABLE, [b"counter"], max_versions=1)
                value = b"%d" % (int(cell.value) + 1)
                mutation = put(b"counter", cell.version + 1, value)
                done += things.check_and_mutate(TABLE, b"counter", COLUMN, cell.value, mutation)

        in_threads([increment] * 4)
        ((cell,),) = things.get(TABLE, [b"counter"], max_versions=1)
        assert (cell.value, cell.version) == (b"100", 101)

    def test_a_row_is_seen_whole(self, things: Store) -> None:
        """All cells of a row mutation or none, by gets and by scans, while a writer runs."""
        qualifiers = [b"%d" % number for number in range(8)]
        columns: list[tuple[bytes, bytes | None]] = [(CF, qualifier) for qualifier in qualifiers]
        done = threading.Event()

        def write() -> None:
            try:
                for version in range(1, 121):
                    puts = [Put(CF, qualifier, version, b"v") for qualifier in qualifiers]
                    things.write({TABLE: [RowMutation(row, puts) for row in (b"a", b"b")]})
            finally:
                done.set()

        def read() -> None:
            while not done.is_set():
                rows = things.get(TABLE, [b"a", b"b"], max_versions=1)
                rows += things.get(TABLE, [b"a", b"b"], columns=columns, max_versions=1)
                rows += rows_of(things.scan(TABLE, max_versions=1, page_rows=1))
                rows += rows_of(things.scan(TABLE, max_versions=1, reverse=True))
                for row in rows:
                    assert len({cell.version for cell in row}) <= 1
                    assert len(row) in (0, len(qualifiers))

        in_threads([write, read, read])

    # -- guarded batches --------------------------------------------------------------------------

    def test_a_guarded_batch_is_refused_where_it_would_not_be_atomic(self, things: Store) -> None:
        """What must be atomic has no body that merely looks atomic."""
        if things.capabilities.guarded_batches:
            assert things.write_guarded([]) == []
        else:
            with pytest.raises(UsageError, match="guarded"):
                things.write_guarded([])

    def test_a_guarded_batch_skips_what_its_condition_forbids(self, things: Store) -> None:
        """The oracle writes each commit entry only where no invalidation is."""
        if not things.capabilities.guarded_batches:
            return
        things.create_table(TableSchema("second", [FamilySchema(CF)]))
        things.write({TABLE: [put(b"b", 1, b"IT")]})
        mutations = [
            GuardedMutation(TABLE, put(row, 2), Condition(TABLE, row, COLUMN, None))
            for row in (b"a", b"b", b"c")
        ]
        other_row = Condition(TABLE, b"b", COLUMN, b"IT")
        mutations.append(GuardedMutation("second", put(b"d", 2), other_row))
        mutations.append(GuardedMutation("second", put(b"e", 2)))
        assert things.write_guarded(mutations, durable=True) == [True, False, True, True, True]
        assert keys_of(scan(things, TABLE)) == [b"a", b"b", b"c"]
        assert things.get(TABLE, [b"b"])[0][0].value == b"IT"
        assert keys_of(scan(things, "second")) == [b"d", b"e"]

    def test_a_failed_guard_applies_nothing(self, things: Store) -> None:
        """The lease is checked in the transaction that writes the entries."""
        if not things.capabilities.guarded_batches:
            return
        things.write({TABLE: [put(b"lease", 1, b"mine")]})
        batch = [GuardedMutation(TABLE, put(b"a", 1)), GuardedMutation(TABLE, put(b"b", 1))]
        mine = Condition(TABLE, b"lease", COLUMN, b"mine")
        assert things.write_guarded(batch, guard=mine._replace(expected=b"theirs")) is None
        assert things.write_guarded(batch, guard=mine._replace(expected=None)) is None
        assert keys_of(scan(things, TABLE)) == [b"lease"]
        assert things.write_guarded(batch, guard=mine) == [True, True]
        assert keys_of(scan(things, TABLE)) == [b"a", b"b", b"lease"]

    def test_a_condition_sees_the_mutations_before_it(self, things: Store) -> None:
        """A duplicate in one batch loses against its first."""
        if not things.capabilities.guarded_batches:
            return
        absent = Condition(TABLE, b"r", COLUMN, None)
        first = GuardedMutation(TABLE, put(b"r", 1, b"first"), absent)
        second = GuardedMutation(TABLE, put(b"r", 2, b"second"), absent)
        third = GuardedMutation(TABLE, put(b"s", 1), absent._replace(expected=b"first"))
        deleted = GuardedMutation(TABLE, delete(b"r", 1))
        fourth = GuardedMutation(TABLE, put(b"t", 1), absent)
        batch = [first, second, third, deleted, fourth]
        assert things.write_guarded(batch) == [True, False, True, True, True]
        assert keys_of(scan(things, TABLE)) == [b"s", b"t"]

    def test_a_guarded_batch_with_a_bad_mutation_applies_nothing(self, things: Store) -> None:
        """One transaction: all or none."""
        if not things.capabilities.guarded_batches:
            return
        good = GuardedMutation(TABLE, put(b"a", 1))
        for bad, error in (
            (GuardedMutation(TABLE, put(b"", 1)), UsageError),
            (GuardedMutation(TABLE, put(b"b", 1, family=b"nope")), NoSuchFamily),
            (GuardedMutation("absent", put(b"b", 1)), NoSuchTable),
        ):
            with pytest.raises(error):
                things.write_guarded([good, bad])
        assert rows_of(scan(things, TABLE)) == []

    def test_a_guarded_batch_is_seen_whole(self, things: Store) -> None:
        """Of two batches guarded by one counter, each either happens before the other or fails."""
        if not things.capabilities.guarded_batches:
            return
        things.write({TABLE: [put(b"n", 1, b"0")]})

        def work(name: bytes) -> None:
            done = 0
            while done < 15:
                ((cell,),) = things.get(TABLE, [b"n"], max_versions=1)
                number = int(cell.value) + 1
                batch = [
                    GuardedMutation(TABLE, put(b"n", cell.version + 1, b"%d" % number)),
                    GuardedMutation(TABLE, put(b"log%04d" % number, 1, name)),
                ]
                guard = Condition(TABLE, b"n", COLUMN, cell.value)
                done += things.write_guarded(batch, guard=guard) is not None

        in_threads([lambda: work(b"a"), lambda: work(b"b"), lambda: work(b"c")])
        log = keys_of(scan(things, TABLE, KeyRange(b"log", b"m")))
        assert log == [b"log%04d" % number for number in range(1, 46)]

    # -- life -------------------------------------------------------------------------------------

    def test_a_lock_is_exclusive_until_released(self, store: Store) -> None:
        """A second embedded oracle on one file is refused, and told who is there."""
        if not store.capabilities.process_locks:
            with pytest.raises(UsageError, match="lock"):
                store.lock("oracle", purpose="test")
            return
        held = store.lock("oracle", purpose="the first oracle")
        with pytest.raises(StorageUnavailable, match="the first oracle"):
            store.lock("oracle", purpose="the second oracle")
        other = store.lock("another", purpose="something else")
        held.release()
        again = store.lock("oracle", purpose="the third oracle")
        held.release()
        with pytest.raises(StorageUnavailable, match="the third oracle"):
            store.lock("oracle", purpose="the fourth oracle")
        again.release()
        other.release()

    def test_a_lock_name_must_fit_a_file(self, store: Store) -> None:
        """The name becomes part of one."""
        if not store.capabilities.process_locks:
            return
        for name in ("", "../x", "a b"):
            with pytest.raises(UsageError, match="lock name"):
                store.lock(name, purpose="test")

    def test_the_store_has_an_address_and_an_id(self, store: Store) -> None:
        """Two names of one store are recognised by its id."""
        assert store.url
        assert store.store_id
        assert store.store_id == store.store_id

    def test_a_store_opened_again_is_the_same(self, things: Store) -> None:
        """Cells, tables, regions and id live in the store, not in the object."""
        splits = [b"m"] if things.capabilities.table_admin else []
        things.create_table(TableSchema("split", [FamilySchema(CF)]), splits=splits)
        things.write({TABLE: [put(b"r", 1)]})
        again = self.reopen(things)
        if again is None:
            return
        try:
            assert again.store_id == things.store_id
            assert again.schema(TABLE) == things.schema(TABLE)
            assert again.regions("split") == things.regions("split")
            assert again.get(TABLE, [b"r"]) == [[Cell(b"r", CF, Q, 1, b"v")]]
            again.write({TABLE: [put(b"s", 1)]})
            assert keys_of(scan(things, TABLE)) == [b"r", b"s"]
        finally:
            again.close()

    def test_a_table_replaced_through_another_opening_is_never_read(self, things: Store) -> None:
        """What one opening remembers of a table must not outlive the table."""
        things.write({TABLE: [put(b"r", 1)]})
        again = self.reopen(things)
        if again is None:
            return
        try:
            assert again.get(TABLE, [b"r"]) != [[]]
            again.write({TABLE: [put(b"s", 1)]})
            things.drop_table(TABLE)
            with pytest.raises(NoSuchTable):
                again.get(TABLE, [b"r"])
            things.create_table(TableSchema(TABLE, [FamilySchema(CF)]))
            assert again.get(TABLE, [b"r"]) == [[]]
            things.drop_table(TABLE)
            things.create_table(TableSchema(TABLE, [FamilySchema(b"new")]))
            with pytest.raises(NoSuchFamily):
                again.write({TABLE: [put(b"s", 1)]})
            again.write({TABLE: [put(b"s", 1, family=b"new")]})
            assert keys_of(scan(things, TABLE)) == [b"s"]
        finally:
            again.close()

    def test_a_closed_store_refuses_and_closes_again(self, things: Store) -> None:
        """Closing twice does nothing; using it afterwards says that it is closed."""
        things.close()
        things.close()
        for call in (lambda: things.get(TABLE, [b"r"]), lambda: things.write({TABLE: []})):
            with pytest.raises(StorageUnavailable, match="closed"):
                call()
