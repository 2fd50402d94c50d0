"""What exceptions of HBase's mean that will come again, whichever road a call took."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from omidpy.errors import (
    NoSuchFamily,
    NoSuchTable,
    OmidError,
    StorageError,
    StorageUnavailable,
    TableExists,
    UsageError,
)


class Meaning(NamedTuple):
    """What a Java exception means here."""

    kind: type[OmidError]
    remedy: str


def permanent(whose: str) -> Mapping[str, Meaning]:
    """Return the exceptions that repeating a call cannot help, by their classes.

    They are looked for in this order, since one may quote another.

    Args:
        whose: Which user HBase's administrator lets do what.
    """
    return MappingProxyType(
        {
            "TableNotFoundException": Meaning(NoSuchTable, "create it, or check the name"),
            "NamespaceNotFoundException": Meaning(
                NoSuchTable, "create its namespace in the `hbase shell` (create_namespace)"
            ),
            "NoSuchColumnFamilyException": Meaning(
                NoSuchFamily,
                "name a family that the table has, or add it (`alter` in the `hbase shell`)",
            ),
            "InvalidFamilyOperationException": Meaning(
                NoSuchFamily, "name a family that the table has"
            ),
            "TableExistsException": Meaning(TableExists, "use it, or choose another name"),
            "TableNotEnabledException": Meaning(
                StorageUnavailable, "it is disabled; enable it (`enable` in the `hbase shell`)"
            ),
            "AccessDeniedException": Meaning(
                StorageError, f"let HBase's administrator grant {whose}"
            ),
            # Of space; a kind of the one below.
            "SpaceLimitingException": Meaning(
                StorageError,
                "a quota of space is used up; delete something, or let HBase's administrator raise "
                "it (`list_quotas` in the `hbase shell`)",
            ),
            "QuotaExceededException": Meaning(
                StorageError,
                "a quota is used up; drop a table that nobody needs, or let HBase's administrator "
                "raise it (`describe_namespace` and `list_quotas` in the `hbase shell`)",
            ),
            "IllegalArgumentException": Meaning(UsageError, "HBase refuses such an argument"),
        }
    )


REFUSED_TABLE: Final = "HBase refuses such a table"
CHECKED_TABLES: Final = "hbase.table.sanity.checks"
"""What HBase names where it does so: it cannot use a setting, as of a compression."""

GATEWAYS: Final = permanent("the gateway's user the right")
OURS: Final = permanent("the user the right (user=NAME says who)")
