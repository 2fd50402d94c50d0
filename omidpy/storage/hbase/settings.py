"""Which of a table's or family's attributes are worth reporting, and how do they change?

HBase keeps every setting of a table or family among its attributes, those it knows (`VERSIONS`,
`TTL`, `BLOOMFILTER` and others) beside free ones.  Here a setting is reported unless it is what
every table of ours has: all versions, no time to live, and HBase's defaults.

Pure functions over names and values, by whichever road a descriptor came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

VERSIONS: Final = "VERSIONS"
"""Family attribute: how many versions of a column HBase keeps."""
TTL: Final = "TTL"
"""Family attribute: after how many seconds HBase drops a cell."""
ALL: Final = "2147483647"
"""The greatest number that HBase takes: all versions, or no time to live."""

USUAL_TABLE: Final[Mapping[str, str]] = {
    "IS_META": "false",
    "DURABILITY": "USE_DEFAULT",
    "hbase.store.file-tracker.impl": "DEFAULT",
}
USUAL_FAMILY: Final[Mapping[str, str]] = {
    VERSIONS: ALL,
    TTL: ALL,
    "BLOCKCACHE": "true",
    "BLOCKSIZE": "65536",
    "BLOOMFILTER": "ROW",
    "CACHE_BLOOMS_ON_WRITE": "false",
    "CACHE_DATA_ON_WRITE": "false",
    "CACHE_INDEX_ON_WRITE": "false",
    "COMPRESSION": "NONE",
    "COMPRESS_TAGS": "true",
    "DATA_BLOCK_ENCODING": "NONE",
    "DFS_REPLICATION": "0",
    "EVICT_BLOCKS_ON_CLOSE": "false",
    "INDEX_BLOCK_ENCODING": "NONE",
    "IN_MEMORY": "false",
    "KEEP_DELETED_CELLS": "FALSE",
    "MIN_VERSIONS": "0",
    "REPLICATION_SCOPE": "0",
}


def unusual(attributes: Mapping[bytes, bytes] | None, usual: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes that are not as usual."""
    decoded = {
        name.decode(errors="surrogateescape"): value.decode(errors="surrogateescape")
        for name, value in sorted((attributes or {}).items())
    }
    return {name: value for name, value in decoded.items() if usual.get(name) != value}


def encoded(attributes: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return attributes as HBase keeps them."""
    return {
        name.encode(errors="surrogateescape"): value.encode(errors="surrogateescape")
        for name, value in attributes.items()
    }


def changed(
    attributes: Mapping[bytes, bytes] | None,
    changes: Mapping[str, str | None],
    usual: Mapping[str, str],
) -> dict[bytes, bytes] | None:
    """Return attributes after changes, None removing one; None if nothing would change."""
    before = dict(attributes or {})
    after = dict(before)
    for name, value in changes.items():
        key = name.encode(errors="surrogateescape")
        wanted = usual.get(name) if value is None else value
        if wanted is None:
            after.pop(key, None)
        else:
            after[key] = wanted.encode(errors="surrogateescape")
    return None if after == before else after
