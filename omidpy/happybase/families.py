"""What are the options of a family, to happybase and to HBase?

A family that is made without an option has what the Thrift1 gateway gives it, which is not what
HBase's own clients do: three versions, no Bloom filter and no block cache.  Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from omidpy.base.schema.family_options import ALL_VERSIONS
from omidpy.happybase.columns import by_name, family_of
from omidpy.storage.hbase.native.values import FamilyDescriptor

Attribute = tuple[str, Callable[[Any], str]]


def _text(value: Any) -> str:
    return (value.decode() if isinstance(value, bytes) else str(value)).upper()


def _flag(value: Any) -> str:
    return "true" if value else "false"


def _seconds(value: Any) -> str:
    return str(value if value > 0 else ALL_VERSIONS)


def _number(value: Any) -> str:
    return str(int(value))


_OPTIONS: Final[dict[str, tuple[Attribute | None, object]]] = {
    "max_versions": (("VERSIONS", _number), 3),
    "compression": (("COMPRESSION", _text), "NONE"),
    "in_memory": (("IN_MEMORY", _flag), False),
    "bloom_filter_type": (("BLOOMFILTER", _text), "NONE"),
    # HBase chooses these two by itself since long, and the gateway ignores them as well.
    "bloom_filter_vector_size": (None, 0),
    "bloom_filter_nb_hashes": (None, 0),
    "block_cache_enabled": (("BLOCKCACHE", _flag), False),
    "time_to_live": (("TTL", _seconds), 0),
}
"""Each option's attribute of HBase's, and what it is where it is not given."""


def descriptor(name: bytes | str, options: Mapping[str, object] | None) -> FamilyDescriptor:
    """Return the family to make.

    Raises:
        TypeError: an option is unknown.
    """
    family, given = family_of(name), options or {}
    by_name(given, _OPTIONS, family)
    attributes = {}
    for option, (attribute, default) in _OPTIONS.items():
        value = given.get(option, default)
        if attribute is not None:
            key, written = attribute
            attributes[key.encode()] = written(default if value is None else value).encode()
    return FamilyDescriptor(family, attributes, {})
