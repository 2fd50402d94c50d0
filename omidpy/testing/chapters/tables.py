"""What a store says of its tables: their families, attributes and regions, and which are missing.

Names and schemas mean on every store what they mean on HBase, so that a table can move to a
cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from omidpy.errors import NoSuchFamily, NoSuchTable, TableExists, UsageError
from omidpy.model import Cell, Column, FamilySchema, KeyRange, TableSchema
from omidpy.storage.base import Condition, DeleteVersion, GuardedMutation, RowMutation, Store
from omidpy.testing.chapters.basics import CF, COLUMN, OTHER, TABLE, Chapter, Q, put, rows_of, scan


class Tables(Chapter):
    """Tables are made, described, cut into regions and dropped."""

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

    def test_a_table_is_made_in_one_with_a_change_on_a_condition(self, things: Store) -> None:
        """Whoever was stopped before he makes a table finds that it was made, and makes none."""
        new = TableSchema("new", [FamilySchema(CF)])
        once = GuardedMutation(TABLE, put(b"made", 1), Condition(TABLE, b"made", COLUMN, None))
        if not things.capabilities.guarded_batches:
            with pytest.raises(UsageError, match="guarded"):
                things.create_table(new, beside=once)
            assert "new" not in [schema.name for schema in things.tables()]
            return
        assert things.create_table(new, beside=once)
        assert rows_of(scan(things, TABLE)) == [[Cell(b"made", CF, Q, 1, b"v")]]
        with pytest.raises(TableExists, match="new"):
            things.create_table(new, beside=once)
        things.drop_table("new")
        assert not things.create_table(new, beside=once)
        assert "new" not in [schema.name for schema in things.tables()]
        # In none of these cases half of it.
        other = once._replace(mutation=put(b"other", 1))
        with pytest.raises(TableExists, match=TABLE):
            things.create_table(
                TableSchema(TABLE, [FamilySchema(CF)]), beside=other._replace(condition=None)
            )
        assert not things.create_table(new, beside=other)
        with pytest.raises(NoSuchTable, match="nowhere"):
            things.create_table(new, beside=other._replace(table="nowhere"))
        assert "new" not in [schema.name for schema in things.tables()]
        assert rows_of(scan(things, TABLE)) == [[Cell(b"made", CF, Q, 1, b"v")]]
        assert things.create_table(new, beside=other._replace(condition=None))
        assert things.create_table(TableSchema("plain", [FamilySchema(CF)]))

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

    def test_a_table_is_dropped_only_if_it_has_what_is_asked_for(self, store: Store) -> None:
        """Whoever was asked long ago to drop a table must not drop a later one of its name."""
        if not store.capabilities.table_admin:
            store.create_table(TableSchema(TABLE, [FamilySchema(CF)]))
            with pytest.raises(UsageError, match="attributes"):
                store.drop_table(TABLE, only={"which": "1"})
            return
        store.create_table(TableSchema(TABLE, [FamilySchema(CF)], {"which": "2", "more": "x"}))
        store.write({TABLE: [put(b"r", 1)]})
        assert not store.drop_table(TABLE, only={"which": "1"})
        assert not store.drop_table(TABLE, only={"absent": ""})
        assert store.get(TABLE, [b"r"]) == [[Cell(b"r", CF, Q, 1, b"v")]]
        assert store.drop_table(TABLE, only={"which": "2"})
        with pytest.raises(NoSuchTable):
            store.drop_table(TABLE, only={"which": "2"})

    def test_attributes_are_set_only_if_it_has_what_is_asked_for(self, things: Store) -> None:
        """Whoever found a table without a name of its own must not give it to a later one."""
        if not things.capabilities.table_admin:
            return
        unnamed = {"which": None}
        assert things.set_table_attributes(TABLE, {"which": "1"}, only=unnamed)
        assert not things.set_table_attributes(TABLE, {"which": "2"}, only=unnamed)
        assert not things.set_table_attributes(TABLE, {"which": "2"}, only={"which": "0"})
        assert things.schema(TABLE).attributes["which"] == "1"
        assert things.set_table_attributes(TABLE, {"which": "2"}, only={"which": "1"})
        assert things.set_table_attributes(TABLE, {"which": "2"})
        assert things.schema(TABLE).attributes["which"] == "2"

    def test_every_call_names_a_missing_table(self, store: Store) -> None:
        """NoSuchTable comes from every method that names a table."""
        condition = Condition("absent", b"r", COLUMN, None)
        calls: list[Callable[[], object]] = [
            lambda: store.drop_table("absent"),
            lambda: store.schema("absent"),
            lambda: store.set_table_attributes("absent", {}),
            lambda: store.set_table_attributes("absent", {}, only={"which": None}),
            lambda: store.set_family_attributes("absent", CF, {}),
            lambda: store.regions("absent"),
            lambda: store.split_region("absent", b"m"),
            lambda: store.merge_regions("absent", b"m"),
            lambda: store.get("absent", [b"r"]),
            lambda: store.get("absent", []),
            lambda: rows_of(scan(store, "absent")),
            lambda: store.find_cell("absent"),
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
            lambda: things.find_cell(TABLE, columns=[column]),
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
