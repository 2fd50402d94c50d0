"""Descriptors of HBase's tables say what schemas say, and survive changes whole."""

from __future__ import annotations

from typing import Any

from omidpy.base.schema import phoenix
from omidpy.facts.commit_table import create_system_tables
from omidpy.model import FamilySchema, KeyRange, TableSchema
from omidpy.storage.hbase import described
from omidpy.storage.hbase.idl import thrift2 as idl
from omidpy.storage.hbase.thrift2 import schema as schemas
from omidpy.storage.memory import MemoryStore

REPORTED = {
    b"VERSIONS": b"2147483647",
    b"KEEP_DELETED_CELLS": b"FALSE",
    b"BLOCKSIZE": b"65536",
    b"TTL": b"2147483647",
    b"BLOOMFILTER": b"ROW",
    b"COMPRESSION": b"NONE",
}
"""A part of what HBase 2.6 says of a family for which nothing was chosen but its versions."""


def descriptor(**family_attributes: str) -> Any:
    """Return a table's descriptor as HBase answers it, with the typed fields filled in."""
    changed = {name.encode(): value.encode() for name, value in family_attributes.items()}
    column = idl.TColumnFamilyDescriptor(
        name=b"cf",
        attributes={**REPORTED, **changed},
        configuration={"hbase.hstore.blockingStoreFiles": "30"},
        maxVersions=int(family_attributes.get("VERSIONS", schemas.ALL)),
        timeToLive=int(family_attributes.get("TTL", schemas.ALL)),
    )
    return idl.TTableDescriptor(
        tableName=idl.TTableName(ns=b"default", qualifier=b"t"),
        columns=[column],
        attributes={b"IS_META": b"false", b"OWNER": b"me"},
        durability=0,
    )


def test_what_every_table_of_ours_has_is_not_mentioned() -> None:
    """A schema that was written reads back as it was."""
    expected = TableSchema("t", (FamilySchema(b"cf", {}),), {"OWNER": "me"})
    assert schemas.table_schema(descriptor()) == expected


def test_the_coprocessors_of_a_table_are_told_and_stay() -> None:
    """By them a table of Phoenix's is known; a change of another attribute leaves them there."""
    value = b"|org.apache.phoenix.coprocessor.OmidTransactionalProcessor|805306356|"
    found = descriptor()
    found.attributes = {**found.attributes, b"coprocessor$3": value}
    schema = schemas.table_schema(found)
    assert schema.attributes["coprocessor$3"] == value.decode()
    assert phoenix.is_transactional(schema)
    changed = schemas.changed_table(found, {"OMIDPY_CONFLICT_LEVEL": "row"})
    assert changed is not None
    assert changed.attributes[b"coprocessor$3"] == value


def test_clients_of_the_other_gateway_are_told_too() -> None:
    """It shows no attribute, and they must not write a table of Phoenix's by cell."""
    store = MemoryStore()
    create_system_tables(store)
    omids = "|org.apache.phoenix.coprocessor.OmidTransactionalProcessor|805306356|"
    attributes = {"coprocessor$3": omids, "OMIDPY_COMMIT_TABLE": "c", "MAX_FILESIZE": "1"}
    described.record(store, TableSchema("T", [], attributes))
    schema = described.merged("T", [], described.read(store, "T"))
    assert "MAX_FILESIZE" not in schema.attributes
    assert phoenix.misadoption(schema) is not None


def test_they_are_told_of_its_indexes_too() -> None:
    """Of those that were adopted, as a compaction wants it."""
    store = MemoryStore()
    create_system_tables(store)
    omids = "|org.apache.phoenix.coprocessor.OmidTransactionalProcessor|805306356|"
    attributes = {"coprocessor$3": omids, "DATA_TABLE_NAME": "T"}
    described.record(store, TableSchema("I", [], attributes))
    schema = described.merged("I", [], described.read(store, "I"))
    assert phoenix.indexes([schema]) == {"I": "T"}


def test_dropped_versions_and_cells_that_expire_are_mentioned() -> None:
    """Whoever opens such a table for transactions must see it."""
    (family,) = schemas.table_schema(descriptor(VERSIONS="1", TTL="86400")).families
    assert family.attributes == {"VERSIONS": "1", "TTL": "86400"}


def test_a_new_table_keeps_all_versions_for_ever() -> None:
    """HBase's own default is one version."""
    schema = TableSchema("ns:t", [FamilySchema(b"a"), FamilySchema(b"b", {"VERSIONS": "1"})])
    made = schemas.table_descriptor(schema)
    assert (made.tableName.ns, made.tableName.qualifier) == (b"ns", b"t")
    assert [column.attributes[b"VERSIONS"] for column in made.columns] == [b"2147483647", b"1"]
    assert [column.attributes[b"TTL"] for column in made.columns] == [b"2147483647"] * 2
    assert schemas.table_schema(made).name == "ns:t"


def test_a_change_keeps_what_it_does_not_name() -> None:
    """Settings that this version does not know are the administrator's."""
    changed = schemas.changed_table(descriptor(X="1"), {"A": "1", "OWNER": None})
    assert changed is not None
    assert changed.attributes == {b"IS_META": b"false", b"A": b"1"}
    assert changed.columns[0].attributes == {**REPORTED, b"X": b"1"}
    assert changed.columns[0].configuration == {"hbase.hstore.blockingStoreFiles": "30"}
    column = schemas.changed_family(descriptor(X="1").columns[0], {"OMID_ENABLED": "true"})
    assert column is not None
    assert column.attributes == {**REPORTED, b"X": b"1", b"OMID_ENABLED": b"true"}
    assert column.configuration == {"hbase.hstore.blockingStoreFiles": "30"}


def test_a_change_of_versions_is_not_overruled_by_a_typed_field() -> None:
    """HBase applies the attributes first and the fields after them."""
    changed = schemas.changed_family(descriptor(VERSIONS="1").columns[0], {"VERSIONS": None})
    assert changed is not None
    assert changed.attributes[b"VERSIONS"] == b"2147483647"
    assert changed.maxVersions is None


def test_what_changes_nothing_is_not_sent() -> None:
    """A change reopens every region of the table."""
    assert schemas.changed_table(descriptor(), {"OWNER": "me", "ABSENT": None}) is None
    assert schemas.changed_family(descriptor().columns[0], {"VERSIONS": schemas.ALL}) is None


def location(start: bytes, end: bytes, *, offline: bool = False, replica_id: int = 0) -> Any:
    """Return where a region is."""
    info = idl.THRegionInfo(
        regionId=1,
        tableName=b"t",
        startKey=start,
        endKey=end,
        offline=offline,
        replicaId=replica_id,
    )
    return idl.THRegionLocation(serverName=idl.TServerName(hostName="h"), regionInfo=info)


def test_regions_cover_every_row_while_one_splits() -> None:
    """Parent and daughters, replicas and an instant's gap: still ranges without gap or overlap."""
    whole = [KeyRange(b"", b"g"), KeyRange(b"g", b"t"), KeyRange(b"t", b"")]
    parent = location(b"g", b"", offline=True)
    daughters = [location(b"t", b""), location(b"g", b"t")]
    assert schemas.regions_of([location(b"", b"g"), parent, *daughters]) == whole
    assert schemas.regions_of([*daughters]) == whole
    assert schemas.regions_of([location(b"", b""), location(b"x", b"", replica_id=1)]) == [
        KeyRange()
    ]
