"""How does a table's schema look in HBase's descriptors, and the other way round?

HBase keeps every setting of a table or family among its attributes, those it knows (`VERSIONS`,
`TTL`, `BLOOMFILTER` and others) beside free ones.  Here a setting is reported unless it is what
every table of ours has: all versions, no time to live, and HBase's defaults.  So what a schema does
not mention is as it should be, and a table with `VERSIONS=1` or a `TTL` shows it.

A change starts from the descriptor that HBase gave and touches the attributes alone, so that what
this version of omidpy does not know survives it.  Two changes of one table at the same time can
lose one of them: the gateway has no compare-and-set for descriptors.

Pure functions over the structs of the gateway's protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from omidpy.model import FamilySchema, KeyRange, TableSchema
from omidpy.storage import rules
from omidpy.storage.hbase import settings
from omidpy.storage.hbase.idl import thrift2 as idl

VERSIONS: Final = settings.VERSIONS
TTL: Final = settings.TTL
ALL: Final = settings.ALL


def table_name(name: str) -> Any:
    """Return the protocol's name of a table."""
    namespace, _, qualifier = name.rpartition(":")
    return idl.TTableName(ns=(namespace or "default").encode(), qualifier=qualifier.encode())


def table_schema(descriptor: Any) -> TableSchema:
    """Return what a descriptor says."""
    namespace = descriptor.tableName.ns or b"default"
    name = descriptor.tableName.qualifier.decode()
    if namespace != b"default":
        name = f"{namespace.decode()}:{name}"
    families = (
        FamilySchema(bytes(column.name), settings.unusual(column.attributes, settings.USUAL_FAMILY))
        for column in descriptor.columns or ()
    )
    return TableSchema(
        name,
        tuple(sorted(families, key=lambda family: family.name)),
        settings.unusual(descriptor.attributes, settings.USUAL_TABLE),
    )


def table_descriptor(schema: TableSchema) -> Any:
    """Return the descriptor to create a table with: all versions, no time to live."""
    return idl.TTableDescriptor(
        tableName=table_name(schema.name),
        columns=[_family_descriptor(family) for family in schema.families],
        attributes=settings.encoded(schema.attributes),
    )


def _family_descriptor(family: FamilySchema) -> Any:
    attributes = {VERSIONS: ALL, TTL: ALL, **family.attributes}
    return idl.TColumnFamilyDescriptor(name=family.name, attributes=settings.encoded(attributes))


def changed_table(descriptor: Any, changes: Mapping[str, str | None]) -> Any | None:
    """Return the descriptor to modify a table with, None if nothing would change."""
    attributes = settings.changed(descriptor.attributes, changes, settings.USUAL_TABLE)
    if attributes is None:
        return None
    columns = [_only_attributes(column, column.attributes) for column in descriptor.columns or ()]
    return idl.TTableDescriptor(
        tableName=descriptor.tableName, columns=columns, attributes=attributes
    )


def changed_family(column: Any, changes: Mapping[str, str | None]) -> Any | None:
    """Return the descriptor to modify a family with, None if nothing would change."""
    attributes = settings.changed(column.attributes, changes, settings.USUAL_FAMILY)
    return None if attributes is None else _only_attributes(column, attributes)


def _only_attributes(column: Any, attributes: Mapping[bytes, bytes]) -> Any:
    """Return a family's descriptor without the typed fields.

    They repeat settings that are among the attributes, and would overrule a change of those.
    """
    return idl.TColumnFamilyDescriptor(
        name=column.name, attributes=attributes, configuration=column.configuration
    )


def regions_of(locations: Iterable[Any]) -> list[KeyRange]:
    """Return the regions as key ranges that cover every row.

    While a region splits, HBase may list parent and daughters, or show a gap for an instant; the
    places where regions start are enough, and give ranges without gap or overlap at any time.
    """
    starts = {
        bytes(location.regionInfo.startKey or b"")
        for location in locations
        if not location.regionInfo.offline and not location.regionInfo.replicaId
    }
    return rules.regions_between(sorted(starts - {b""}))
