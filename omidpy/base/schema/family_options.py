"""What may be asked of a column family: happybase's options, and what HBase calls them.

An option changes how HBase stores cells, which is harmless, or which cells it keeps, which is not:
a snapshot needs every version until a compaction of ours collects it.  The former become attributes
of the family, the latter are refused, and none is ignored.

Pure.  On SQLite and in memory the attributes are kept, and change nothing.

Source: the names are those of happybase's `create_table`, and the remaining ones follow them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from omidpy.base.tables import TTL_ATTRIBUTE, VERSIONS_ATTRIBUTE
from omidpy.errors import UsageError

ALL_VERSIONS: Final = 2**31 - 1
"""All versions, and no time to live, as HBase writes both."""

COMPRESSIONS: Final = ("NONE", "GZ", "SNAPPY", "LZ4", "LZO", "ZSTD", "BZIP2")
"""Those that the Thrift2 gateway can tell of; of a family with another it tells nothing at all."""
BLOOM_FILTERS: Final = ("NONE", "ROW", "ROWCOL")
ENCODINGS: Final = ("NONE", "PREFIX", "DIFF", "FAST_DIFF", "ROW_INDEX_V1")

_COMPRESSION: Final = "COMPRESSION"
_BLOOM_FILTER: Final = "BLOOMFILTER"
_BLOCK_CACHE: Final = "BLOCKCACHE"
_IN_MEMORY: Final = "IN_MEMORY"
_BLOCK_SIZE: Final = "BLOCKSIZE"
_ENCODING: Final = "DATA_BLOCK_ENCODING"

_SNAPSHOTS: Final = (
    "snapshots need every version until a compaction collects it, by its --retention"
)


def family_attributes(family: bytes, options: object) -> dict[str, str]:
    """Return the attributes that the options of a family come to.

    Args:
        family: Its name, for messages.
        options: Names and values; None is none.

    Raises:
        UsageError: an option is unknown, has no effect on HBase, or would lose what snapshots need.
        TypeError: a value is of another type than its option's.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(
            f"the options of family {family!r} must be a dict such as {{'compression': 'GZ'}}, not "
            f"{options!r:.80}"
        )
    attributes: dict[str, str] = {}
    for name, value in options.items():
        reader = _READERS.get(name)
        if reader is None:
            known = ", ".join(sorted(_READERS))
            raise UsageError(f"family {family!r} has an unknown option {name!r}; there are {known}")
        if value is not None:
            attributes.update(reader(f"{name}={value!r} of family {family!r}", value))
    return attributes


def happybase_settings(family: bytes, attributes: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a family in the shape of happybase's `Table.families`."""

    def flag(name: str, *, default: bool) -> bool:
        return attributes.get(name, str(default)).lower() == "true"

    return {
        "name": family + b":",
        "max_versions": int(attributes.get(VERSIONS_ATTRIBUTE, ALL_VERSIONS)),
        "compression": attributes.get(_COMPRESSION, "NONE").encode(),
        "in_memory": flag(_IN_MEMORY, default=False),
        "bloom_filter_type": attributes.get(_BLOOM_FILTER, "ROW").encode(),
        "bloom_filter_vector_size": 0,
        "bloom_filter_nb_hashes": 0,
        "block_cache_enabled": flag(_BLOCK_CACHE, default=True),
        "time_to_live": int(attributes.get(TTL_ATTRIBUTE, ALL_VERSIONS)),
    }


# -- one option ------------------------------------------------------------------------------------

Reader = Callable[[str, Any], Mapping[str, str]]
"""Returns the attributes of one option; told the option in words, and its value."""


def _choice(attribute: str, choices: tuple[str, ...]) -> Reader:
    def read(what: str, value: Any) -> Mapping[str, str]:
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        if not isinstance(text, str):
            raise TypeError(f"{what} must be one of {', '.join(choices)}, as text")
        if text.upper() not in choices:
            raise UsageError(f"{what} is none of {', '.join(choices)}")
        return {attribute: text.upper()}

    return read


def _switch(attribute: str) -> Reader:
    def read(what: str, value: Any) -> Mapping[str, str]:
        if not isinstance(value, bool):
            raise TypeError(f"{what} must be True or False")
        return {attribute: str(value).lower()}

    return read


def _size(attribute: str) -> Reader:
    def read(what: str, value: Any) -> Mapping[str, str]:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{what} must be a whole number of bytes")
        if not 0 < value <= ALL_VERSIONS:
            raise UsageError(f"{what} must be from 1 to {ALL_VERSIONS} bytes")
        return {attribute: str(value)}

    return read


def _everything(what: str, value: Any) -> Mapping[str, str]:
    """Take only what every family of ours has."""
    if value != ALL_VERSIONS:
        raise UsageError(f"{what} would lose committed data: {_SNAPSHOTS}; leave it out")
    return {}


def _nothing(what: str, value: Any) -> Mapping[str, str]:
    """Take only what says no."""
    if value is not False:
        raise UsageError(
            f"{what} would show deleted cells to snapshots and keep them from being collected: "
            f"{_SNAPSHOTS}; leave it out"
        )
    return {}


def _without_effect(what: str, _: Any) -> Mapping[str, str]:
    raise UsageError(
        f"{what} has no effect on HBase, which chooses it by itself; leave it out, or choose a "
        "bloom_filter_type"
    )


_READERS: Final[Mapping[str, Reader]] = {
    "max_versions": _everything,
    "time_to_live": _everything,
    "keep_deleted_cells": _nothing,
    "compression": _choice(_COMPRESSION, COMPRESSIONS),
    "bloom_filter_type": _choice(_BLOOM_FILTER, BLOOM_FILTERS),
    "bloom_filter_vector_size": _without_effect,
    "bloom_filter_nb_hashes": _without_effect,
    "block_cache_enabled": _switch(_BLOCK_CACHE),
    "in_memory": _switch(_IN_MEMORY),
    "block_size": _size(_BLOCK_SIZE),
    "data_block_encoding": _choice(_ENCODING, ENCODINGS),
}
