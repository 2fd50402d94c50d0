"""Filters that HBase's region servers apply, as the bytes that the gateway passes on to them.

A filter is a protobuf message: the name of its Java class and its own parameters, encoded.  The
textual form, which the gateways also take, cannot quote every byte; this one need not quote any.

Source: `Filter.proto` of HBase, the fields that are used here.
"""

from __future__ import annotations

import struct
from typing import Final

_PACKAGE: Final = b"org.apache.hadoop.hbase.filter."
_ALL: Final = 1
_ANY: Final = 2


def column_prefix(prefix: bytes) -> bytes:
    """Return the filter that lets cells through whose qualifier starts with `prefix`."""
    return _filter(b"ColumnPrefixFilter", _bytes_field(1, prefix))


def first_cell() -> bytes:
    """Return the filter that lets the first cell of each row through."""
    return _filter(b"FirstKeyOnlyFilter", b"")


def keys_only(*, with_lengths: bool = False) -> bytes:
    """Return the filter that takes the values out of cells, or puts their lengths in their place.

    A length is 4 bytes, big endian.
    """
    return _filter(b"KeyOnlyFilter", bytes((1 << 3, with_lengths)))


def columns_behind(qualifier: bytes) -> bytes:
    """Return the filter that lets cells through whose qualifier is greater than this one."""
    exclusive = bytes((2 << 3, 0))
    return _filter(b"ColumnRangeFilter", _bytes_field(1, qualifier) + exclusive)


def random_rows(chance: float) -> bytes:
    """Return the filter that lets a row through with probability `chance`."""
    return _filter(b"RandomRowFilter", bytes((1 << 3 | 5,)) + struct.pack("<f", chance))


def all_of(*filters: bytes) -> bytes:
    """Return the filter that lets through what each of `filters` does."""
    return _list(_ALL, filters)


def any_of(*filters: bytes) -> bytes:
    """Return the filter that lets through what one of `filters` does."""
    return _list(_ANY, filters)


def _list(operator: int, filters: tuple[bytes, ...]) -> bytes:
    members = b"".join(_bytes_field(2, one) for one in filters)
    return _filter(b"FilterList", bytes((1 << 3, operator)) + members)


def _filter(name: bytes, parameters: bytes) -> bytes:
    return _bytes_field(1, _PACKAGE + name) + _bytes_field(2, parameters)


def _bytes_field(number: int, value: bytes) -> bytes:
    """Encode a field of bytes; its number is below 16, so that the key is one byte."""
    encoded = bytearray((number << 3 | 2,))
    length = len(value)
    while length > 0x7F:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded) + value
