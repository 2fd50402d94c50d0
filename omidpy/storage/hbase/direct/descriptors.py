"""How does a table's schema look in the master's descriptors, and the other way round?

As `schema.py` does for gateways: a setting is reported unless it is what every table of ours has,
and a change starts from the descriptor that HBase gave, so that what this version of omidpy does
not know survives it.  Two changes of one table at the same time can lose one of them: HBase has no
compare-and-set for descriptors.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omidpy.model import FamilySchema, KeyRange, TableSchema
from omidpy.storage import rules
from omidpy.storage.hbase import settings
from omidpy.storage.hbase.native.values import FamilyDescriptor, Region, TableDescriptor


def table_schema(descriptor: TableDescriptor) -> TableSchema:
    """Return what a descriptor says."""
    families = (
        FamilySchema(family.name, settings.unusual(family.attributes, settings.USUAL_FAMILY))
        for family in descriptor.families
    )
    return TableSchema(
        descriptor.table,
        tuple(sorted(families, key=lambda family: family.name)),
        settings.unusual(descriptor.attributes, settings.USUAL_TABLE),
    )


def table_descriptor(schema: TableSchema) -> TableDescriptor:
    """Return the descriptor to create a table with: all versions, no time to live."""
    always = {settings.VERSIONS: settings.ALL, settings.TTL: settings.ALL}
    families = (
        FamilyDescriptor(family.name, settings.encoded({**always, **family.attributes}), {})
        for family in schema.families
    )
    return TableDescriptor(schema.name, tuple(families), settings.encoded(schema.attributes), {})


def changed_table(
    descriptor: TableDescriptor, changes: Mapping[str, str | None]
) -> TableDescriptor | None:
    """Return the descriptor to modify a table with, None if nothing would change."""
    attributes = settings.changed(descriptor.attributes, changes, settings.USUAL_TABLE)
    return None if attributes is None else descriptor._replace(attributes=attributes)


def changed_family(
    family: FamilyDescriptor, changes: Mapping[str, str | None]
) -> FamilyDescriptor | None:
    """Return the descriptor to modify a family with, None if nothing would change."""
    attributes = settings.changed(family.attributes, changes, settings.USUAL_FAMILY)
    return None if attributes is None else family._replace(attributes=attributes)


def key_ranges(regions: Iterable[Region]) -> list[KeyRange]:
    """Return regions as key ranges that cover every row.

    While a region splits, HBase may list parent and daughters, or show a gap for an instant; the
    places where regions start are enough, and give ranges without gap or overlap at any time.
    """
    return rules.regions_between(sorted({region.start for region in regions} - {b""}))
