"""How facts are written into cells: shadow cells, tombstones, commit entries, cell ids.

Pure functions between values and bytes, byte-exact with Apache Omid, so that Java clients and ours
share tables. Nothing here reads or writes a store.

Layout of a column family, in HBase's order of qualifiers:

    00 C2 80 <qualifier> C2 80     shadow cell of <qualifier>; value = commit_ts, 8 bytes big endian
    <qualifier>                    data; an empty value is a tombstone
    (empty qualifier, empty value) family marker: deletes the whole family; Java writes it, we only
    read it
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, cast

import mmh3

from omidpy.errors import CorruptCell, UsageError
from omidpy.model import CellId, CellName, TableId, Timestamp

SHADOW_PREFIX: Final = b"\x00\xc2\x80"
SHADOW_SUFFIX: Final = b"\xc2\x80"
FAMILY_MARKER_QUALIFIER: Final = b""
TOMBSTONE: Final = b""
LEGACY_TOMBSTONE: Final = b"__OMID_TOMBSTONE__"

MAX_QUALIFIER_BYTES: Final = 10 * 1024 * 1024 - 33_000
"""Of a longer one HBase would take a cell, and in a row of a long key not its shadow cell: what was
committed could be healed by nobody, and its entry would stay for ever."""

INVALIDATION_VALUE: Final = b"\x00\x00\x00\x01"
LOW_WATERMARK_ROW: Final = b"LOW_WATERMARK"

_LONG: Final = struct.Struct(">q")
LONG_BYTES: Final = _LONG.size
_COMMIT_ROW: Final = struct.Struct(">Bq")
_BUCKET_COUNT: Final = 16
_MAX_VARINT_BYTES: Final = 10


# -- shadow cells ----------------------------------------------------------------------------------


def shadow_qualifier(qualifier: bytes) -> bytes:
    """Return the qualifier of the shadow cell of `qualifier`."""
    return SHADOW_PREFIX + qualifier + SHADOW_SUFFIX


def is_shadow_qualifier(qualifier: bytes) -> bool:
    """Say whether `qualifier` names a shadow cell.

    A bare `C2 80` does not, a suffix without the prefix does.
    """
    return len(qualifier) > len(SHADOW_SUFFIX) and qualifier.endswith(SHADOW_SUFFIX)


def data_qualifier(qualifier: bytes) -> bytes:
    """Return the qualifier that a shadow qualifier speaks for; Omid's older form has no prefix."""
    start = len(SHADOW_PREFIX) if qualifier.startswith(SHADOW_PREFIX) else 0
    return qualifier[start : -len(SHADOW_SUFFIX)]


def encode_long(value: int) -> bytes:
    """Return `value` as 8 bytes, big endian.

    Shadow cells, the low watermark and the timestamp ceiling are written so.
    """
    return _LONG.pack(value)


def decode_long(value: bytes, *, what: str) -> Timestamp:
    """Return the number in 8 big-endian bytes.

    Raises:
        CorruptCell: naming `what`, if there are not exactly 8 bytes.
    """
    if not isinstance(value, bytes) or len(value) != _LONG.size:
        raise CorruptCell(f"{what} holds {value!r}; expected 8 bytes, big endian")
    return Timestamp(_LONG.unpack(value)[0])


# -- deletes ---------------------------------------------------------------------------------------


def is_tombstone(value: bytes) -> bool:
    """Say whether a data cell of this value deletes its column."""
    return value in (TOMBSTONE, LEGACY_TOMBSTONE)


def is_family_marker(qualifier: bytes, value: bytes) -> bool:
    """Say whether a cell deletes its whole family."""
    return qualifier == FAMILY_MARKER_QUALIFIER and value == TOMBSTONE


def tombstone_for(qualifier: bytes) -> bytes:
    """Return the value that deletes one column.

    An empty value in the empty qualifier would be a family marker, so that one column gets Omid's
    older tombstone, which Java still honours.
    """
    return LEGACY_TOMBSTONE if qualifier == FAMILY_MARKER_QUALIFIER else TOMBSTONE


def check_qualifier(qualifier: bytes) -> None:
    """Refuse a qualifier that this format would read as that of a shadow cell, or is too long.

    Raises:
        UsageError: naming it, and what to write instead.
    """
    if qualifier.endswith(SHADOW_SUFFIX):
        raise UsageError(
            f"qualifier {qualifier!r} ends with the bytes C2 80, which Omid's format "
            "reserves for shadow cells; choose another qualifier"
        )
    if len(qualifier) > MAX_QUALIFIER_BYTES:
        raise UsageError(
            f"qualifier {qualifier[:40]!r}... has {len(qualifier)} bytes, more than the "
            f"{MAX_QUALIFIER_BYTES} that leave room for its shadow cell; keep it as a value"
        )


def check_writable(qualifier: bytes, value: bytes) -> None:
    """Refuse what this format would read back as a delete or as a shadow cell.

    Raises:
        UsageError: naming the qualifier or value, and what to write instead.
    """
    check_qualifier(qualifier)
    if value == TOMBSTONE:
        raise UsageError(
            f"the value for qualifier {qualifier!r} is empty, which Omid's format reads as a "
            "delete; call delete() to remove the column, or store a one-byte placeholder"
        )
    if value == LEGACY_TOMBSTONE:
        raise UsageError(
            f"the value for qualifier {qualifier!r} is {LEGACY_TOMBSTONE!r}, which Omid's "
            "format reads as a delete; call delete() to remove the column, or store another value"
        )


# -- commit table ----------------------------------------------------------------------------------


def commit_row(start_ts: int) -> bytes:
    """Return the row key of a commit entry: start_ts % 16 as a byte, then 8 bytes big endian."""
    return _COMMIT_ROW.pack(start_ts % _BUCKET_COUNT, start_ts)


def start_ts_of_commit_row(row: bytes) -> Timestamp | None:
    """Return the start_ts of a commit table row key, or None if it is another kind of row."""
    if len(row) != 1 + _LONG.size:
        return None
    start_ts: int = _LONG.unpack_from(row, 1)[0]
    return Timestamp(start_ts) if row[0] == start_ts % _BUCKET_COUNT else None


def commit_bucket_rows(below_ts: int, *, from_ts: int = 0) -> list[tuple[bytes, bytes]]:
    """Return, per bucket, the row range [first, last) of every start_ts in [from_ts, below_ts)."""
    return [
        (bytes((bucket,)) + _LONG.pack(from_ts), bytes((bucket,)) + _LONG.pack(below_ts))
        for bucket in range(_BUCKET_COUNT)
    ]


def encode_commit(start_ts: int, commit_ts: int) -> bytes:
    """Return the value of `F:C`: a base-128 varint of commit_ts - start_ts."""
    rest = (commit_ts - start_ts) % 2**64
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def decode_commit(start_ts: int, value: bytes) -> Timestamp:
    """Return the commit_ts in the value of `F:C`.

    Raises:
        CorruptCell: if the value is no varint, or names a commit before its start.
    """
    if not isinstance(value, bytes):
        raise CorruptCell(f"the commit entry of start_ts {start_ts} holds {value!r}, no bytes")
    delta = 0
    for index, byte in enumerate(value[:_MAX_VARINT_BYTES]):
        delta |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if index + 1 != len(value) or delta >= 2**63 - start_ts:
                break
            return Timestamp(start_ts + delta)
    raise CorruptCell(
        f"the commit entry of start_ts {start_ts}, row {commit_row(start_ts).hex()}, holds "
        f"{value[:80].hex() or 'nothing'}, which is no commit timestamp"
    )


# -- ids -------------------------------------------------------------------------------------------


def cell_id(table: str, row: bytes, family: bytes, qualifier: bytes) -> CellId:
    """Return the conflict id of a cell.

    Source: Omid's Guava murmur3_128, seed 0, first half, signed.
    """
    data = table.encode() + row + family + qualifier
    return CellId(mmh3.hash64(data, 0, signed=True)[0])


def cell_ids(table: str, names: Iterable[CellName]) -> set[CellId]:
    """Return the conflict ids of some cells of a table."""
    hash64, prefix = mmh3.hash64, table.encode()
    # As in `cell_id`, whose arguments are the defaults; here each argument and each call count.
    ids = {hash64(prefix + row + family + name)[0] for _, row, family, name in names}
    return cast("set[CellId]", ids)


def row_id(table: str, row: bytes) -> CellId:
    """Return the conflict id of a whole row, for tables with row-level conflicts."""
    return CellId(mmh3.hash64(table.encode() + row, 0, signed=True)[0])


@lru_cache(maxsize=1024)
def table_id(table: str) -> TableId:
    """Return the id that fences and commit requests name a table by."""
    return TableId(mmh3.hash64(table.encode(), 0, signed=True)[0])


def transaction_id(start_ts: int) -> CellId:
    """Return a conflict id that no cell has and no other transaction sends.

    A table's name has no NUL, so that no cell hashes these bytes.
    """
    return CellId(mmh3.hash64(b"\x00omidpy" + commit_row(start_ts), 0, signed=True)[0])
