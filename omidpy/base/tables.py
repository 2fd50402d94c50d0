"""Which tables are whose?  The names of system tables, and the marks on the users' tables.

Pure.  Java reads and writes `OMID_ENABLED`; the other attributes are ours, or HBase's own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

from omidpy.model import Column, TableSchema

CONTROL_TABLE: Final = "OMIDPY_COMPACTION"
"""Where the facts are that Omid's tables have no place for (`facts/control.py`)."""
CONTROL_FAMILY: Final = b"m"
VALUE: Final = Column(CONTROL_FAMILY, b"v")
FIXED_VERSION: Final = 1
"""A fact is one cell, at this version."""

OMID_ENABLED: Final = "OMID_ENABLED"
"""Family attribute that marks transactional families, Java's and ours."""

COMMIT_TABLE_ATTRIBUTE: Final = "OMIDPY_COMMIT_TABLE"
"""Table attribute: the commit table whose transactions may be healed and collected here."""

CONFLICT_LEVEL_ATTRIBUTE: Final = "OMIDPY_CONFLICT_LEVEL"
"""Table attribute: `cell` or `row`, the same for every client of the table."""

CHANGING: Final = "changing"
"""Its value while it is about to be another one, so that no client begins to write."""

LEVEL_CHANGE_ATTRIBUTE: Final = "OMIDPY_LEVEL_CHANGE"
"""Table attribute: which change of its level is under way."""

INCARNATION_ATTRIBUTE: Final = "OMIDPY_INCARNATION"
"""Table attribute: which one of this name it is.  What was proven of a table that was dropped says
nothing of a later one, though both have one name."""

KEPT_ATTRIBUTE: Final = "OMIDPY_KEPT"
"""Table attribute: which incarnations it was before, the last one last, each of which somebody was
about to remove when another one kept the table."""
MOST_KEPT: Final = 8
"""So many of them are told of; removals that stand still are few."""

MAKER_ATTRIBUTE: Final = "OMIDPY_MAKER"
"""Table attribute: which try to make this incarnation it comes from, where there may be several
(`facts/makers.py`)."""

VERSIONS_ATTRIBUTE: Final = "VERSIONS"
"""Family attribute: how many versions of a column HBase keeps; without it, all of them."""

TTL_ATTRIBUTE: Final = "TTL"
"""Family attribute: the age in seconds at which HBase drops a cell; without it, never."""

DURABILITY_ATTRIBUTE: Final = "DURABILITY"
"""Table attribute: when HBase acknowledges a write; without it, once all replicas of its log have
it."""

ONE_VERSION: Final = {VERSIONS_ATTRIBUTE: "1"}
"""Attributes of the families of system tables, which never read an older version."""

OWN_TABLE_PREFIX: Final = "OMIDPY_"
EXPORT_TABLE_PREFIX: Final = "OMIDPY_EXPORT_"
"""Tables of export queues (`recipes/export_queue`)."""
PUBLISHED_TABLE: Final = "OMIDPY_PUBLISHED"
"""What transactions have published to object stores (`committers/manifests.py`)."""
KEYS_TABLE: Final = "OMIDPY_KEYS"
"""Which keys of idempotency were used, in the transactions that used them (`tx/keys.py`)."""
OMID_TABLES: Final = frozenset({"OMID_COMMIT_TABLE", "OMID_TIMESTAMP_TABLE"})


def is_system_table(name: str) -> bool:
    """Say whether a table belongs to Omid, to omidpy or to HBase itself, and never to a user.

    The tables of export queues, of what was published and of keys are none: they hold what
    transactions of users committed, which must be healed before their entries in the commit table
    are forgotten.
    """
    if maker_of(name) is not None:
        return False
    return name in OMID_TABLES or name.startswith((OWN_TABLE_PREFIX, "hbase:"))


def maker_of(name: str) -> str | None:
    """Say what makes a transactional table of omidpy's own; None: a user, or it is a system table.

    Its families and regions are what omidpy expects there, so that none is made otherwise.
    """
    if name == KEYS_TABLE:
        return "the first transaction with an idempotency key"
    if name == PUBLISHED_TABLE:
        return "the first tx.publish()"
    if name.startswith(EXPORT_TABLE_PREFIX):
        return "ExportQueue.create()"
    return None


def transactional_families(schema: TableSchema) -> frozenset[bytes]:
    """Return the families of a table that are marked as transactional, as Java reads the mark."""
    return frozenset(
        family.name
        for family in schema.families
        if family.attributes.get(OMID_ENABLED, "").lower() == "true"
    )


def was_before(schema: TableSchema) -> tuple[str, ...]:
    """Return which incarnations a table was before somebody kept it from being removed."""
    return tuple(schema.attributes.get(KEPT_ATTRIBUTE, "").split())


def incarnation(schema: TableSchema) -> str:
    """Return which one of its name a table is; empty where that was not said."""
    return schema.attributes.get(INCARNATION_ATTRIBUTE, "")


def maker(schema: TableSchema) -> str:
    """Return which try to make its incarnation a table comes from; empty: there was only one."""
    return schema.attributes.get(MAKER_ATTRIBUTE, "")


def dated_incarnation(which: str, state: int) -> str:
    """Return what stands for an incarnation for as long as it cannot have been restored.

    Args:
        which: The incarnation.
        state: A number that is another one after a restore (`storage.base.RestoresTables`).
    """
    return f"{which}@{state}"


def date_of(dated: str) -> int | None:
    """Return the state in what `dated_incarnation` has made of it; None: there is none."""
    _, sign, state = dated.partition("@")
    return int(state) if sign else None


def undated_incarnation(dated: str) -> str:
    """Return the incarnation in what `dated_incarnation` has made of it, or in itself."""
    return dated.partition("@")[0]


def new_incarnation() -> str:
    """Return what no table ever had."""
    return uuid.uuid4().hex


def forgetfulness(schema: TableSchema, families: Iterable[bytes]) -> str | None:
    """Say why the store would drop cells of `families` that a snapshot needs, and the remedy.

    None: it keeps them all.  A store leaves out attributes that say so (`storage/hbase/schema.py`).
    """
    if (complaint := weakness(schema)) is not None:
        return complaint
    wanted = frozenset(families)
    for family in schema.families:
        versions = family.attributes.get(VERSIONS_ATTRIBUTE)
        ttl = family.attributes.get(TTL_ATTRIBUTE)
        if family.name not in wanted or (versions is None and ttl is None):
            continue
        name = family.name.decode(errors="backslashreplace")
        has = f"{VERSIONS_ATTRIBUTE}={versions}" if ttl is None else f"{TTL_ATTRIBUTE}={ttl}"
        return (
            f"family {name!r} of table {schema.name!r} has {has}, so HBase drops cells that "
            "snapshots still need; in the HBase shell: "
            f"alter '{schema.name}', {{NAME => '{name}', VERSIONS => 2147483647, TTL => 'FOREVER'}}"
        )
    return None


def weakness(schema: TableSchema) -> str | None:
    """Say why the store would lose acknowledged writes of a table, and the remedy; None: it won't.

    A commit entry goes once the shadow cells are acknowledged, so these must outlive any server.
    """
    durability = schema.attributes.get(DURABILITY_ATTRIBUTE)
    if durability not in ("ASYNC_WAL", "SKIP_WAL"):
        return None
    return (
        f"table {schema.name!r} has {DURABILITY_ATTRIBUTE}={durability}, so HBase loses "
        "acknowledged writes when a server dies, and committed data with them; in the HBase "
        f"shell: alter '{schema.name}', DURABILITY => 'USE_DEFAULT'"
    )
