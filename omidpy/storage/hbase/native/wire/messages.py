"""The data calls of a region server, Get, Mutate and Multi, as bytes.  No I/O.

Values that are written travel in the block of cells and not in the messages: smaller, and cheaper
for both sides.  Each function returns the parameter and the block.

Source: `Client.proto` and `HBase.proto` of HBase 2.6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple, TypeGuard

from omidpy.errors import RemoteProtocolError
from omidpy.model import MAX_VERSION
from omidpy.storage.hbase.native import cellblock
from omidpy.storage.hbase.native.faults import Garbled
from omidpy.storage.hbase.native.values import (
    Action,
    Check,
    Get,
    RegionAction,
    RowChange,
    Selection,
)
from omidpy.wire.protobuf import fields, put_bool, put_bytes, put_uint64, put_varint, varints

REGION_NAME: Final = 1
ENCODED_REGION_NAME: Final = 2
_INCREMENT, _PUT, _DELETE = 1, 2, 3
_EQUAL: Final = 2

_IS_COMPILED: Final = cellblock.is_compiled()
_SEQUENCES: Final = (tuple, list)
"""They have as many items as they say."""

_COMPARATORS: Final = b"org.apache.hadoop.hbase.filter."


def _key(number: int, wire_type: int) -> int:
    return number << 3 | wire_type


V1, V2, V3, V4, V5, V6, V7, V8, V9, V10, V11 = (_key(number, 0) for number in range(1, 12))
B1, B2, B3, B4, B5, B6, B7, B8 = (_key(number, 2) for number in range(1, 9))


@lru_cache(maxsize=4096)
def region_specifier(name: bytes, kind: int = REGION_NAME) -> bytes:
    """Return a `RegionSpecifier`."""
    out = bytearray((V1, kind))
    put_bytes(out, B2, name)
    return bytes(out)


# -- reads -----------------------------------------------------------------------------------------


def put_columns(out: bytearray, number: int, selection: Selection) -> None:
    """Append the columns that a read wants, by family."""
    families: dict[bytes, list[bytes]] = {}
    for family, qualifier in selection.columns or ():
        names = families.setdefault(family, [])
        if qualifier is not None:
            names.append(qualifier)
    for family, names in families.items():
        column = bytearray()
        put_bytes(column, B1, family)
        for name in names:
            put_bytes(column, B2, name)
        put_bytes(out, _key(number, 2), column)


def put_versions(out: bytearray, range_key: int, count_key: int, selection: Selection) -> None:
    """Append from and to which version a read goes, and how many of a column it brings."""
    if selection.min_version > 0 or selection.max_version < MAX_VERSION:
        versions = bytearray()
        put_uint64(versions, V1, selection.min_version)
        put_uint64(versions, V2, selection.max_version)
        put_bytes(out, range_key, versions)
    put_uint64(out, count_key, selection.max_versions)


def _get_tail(selection: Selection, *, existence_only: bool) -> bytes:
    """Return what a `Get` has behind its row, which is the same for many rows."""
    out = bytearray()
    put_columns(out, 2, selection)
    if selection.filter_bytes is not None:
        put_bytes(out, B4, selection.filter_bytes)
    put_versions(out, B5, V6, selection)
    if selection.most_cells:
        put_uint64(out, V8, selection.most_cells)
    if existence_only:
        put_bool(out, V10, value=True)
    return bytes(out)


def get_request(region: bytes, get: Get) -> bytes:
    """Return a `GetRequest`."""
    out = bytearray()
    put_bytes(out, B1, region_specifier(region))
    message = bytearray()
    put_bytes(message, B1, get.row)
    message += _get_tail(get.selection, existence_only=get.existence_only)
    put_bytes(out, B2, message)
    return bytes(out)


# -- writes ----------------------------------------------------------------------------------------


class _Mutation(NamedTuple):
    message: bytes
    cells: bytes


def _mutation(row: bytes, kind: int, cells: list[bytes], durability: int) -> _Mutation:
    out = bytearray()
    put_bytes(out, B1, row)
    out += bytes((V2, kind))
    if durability:
        out += bytes((V6, durability))
    out.append(V8)
    put_varint(out, len(cells))
    return _Mutation(bytes(out), b"".join(cells))


def _mutations(change: RowChange, durability: int) -> Iterator[_Mutation]:
    """Yield the `MutationProto`s of a change, puts first."""
    row, puts, deletes = change
    encode = cellblock.encode
    if puts:
        cells = [encode(row, *put) for put in puts]
        yield _mutation(row, _PUT, cells, durability)
    if deletes:
        cells = [encode(row, *one[:3], b"", one.kind) for one in deletes]
        yield _mutation(row, _DELETE, cells, durability)


def _condition(check: Check) -> bytes:
    out = bytearray()
    put_bytes(out, B1, check.row)
    put_bytes(out, B2, check.family)
    put_bytes(out, B3, check.qualifier)
    out += bytes((V4, _EQUAL))
    comparator = bytearray()
    if check.expected is None:
        put_bytes(comparator, B1, _COMPARATORS + b"NullComparator")
        put_bytes(comparator, B2, b"")
    else:
        value, wrapped = bytearray(), bytearray()
        put_bytes(value, B1, check.expected)
        put_bytes(wrapped, B1, value)
        put_bytes(comparator, B1, _COMPARATORS + b"BinaryComparator")
        put_bytes(comparator, B2, wrapped)
    put_bytes(out, B5, comparator)
    return bytes(out)


def mutate_request(
    region: bytes, change: RowChange, check: Check | None, durability: int
) -> tuple[bytes, bytes]:
    """Return a `MutateRequest` for a change that only puts or only deletes, and its cells."""
    (mutation,) = _mutations(change, durability)
    out = bytearray()
    put_bytes(out, B1, region_specifier(region))
    put_bytes(out, B2, mutation.message)
    if check is not None:
        put_bytes(out, B3, _condition(check))
    return bytes(out), mutation.cells


def increment_request(
    region: bytes,
    row: bytes,
    family: bytes,
    qualifier: bytes,
    amount: int,
    nonces: tuple[int, int],
    durability: int = 0,
) -> tuple[bytes, bytes]:
    """Return a `MutateRequest` that adds to a number of 8 bytes, and its cell.

    `nonces` are those of the client and of the call: HBase does a call with the same ones once.
    """
    cell = cellblock.encode(row, family, qualifier, MAX_VERSION, amount.to_bytes(8, signed=True))
    mutation = bytearray()
    put_bytes(mutation, B1, row)
    mutation += bytes((V2, _INCREMENT))
    if durability:
        mutation += bytes((V6, durability))
    mutation += bytes((V8, 1))
    put_uint64(mutation, V9, nonces[1])
    out = bytearray()
    put_bytes(out, B1, region_specifier(region))
    put_bytes(out, B2, mutation)
    put_uint64(out, V4, nonces[0])
    return bytes(out), cell


# -- many at once ----------------------------------------------------------------------------------


def multi_request(parts: Sequence[RegionAction], durability: int) -> tuple[bytes, bytes]:
    """Return a `MultiRequest` and its cells.

    A part whose one change puts and deletes, or has a condition, is atomic.  Other changes count as
    a put or a delete each; within a part they are not one.
    """
    out = bytearray()
    cells: list[bytes] = []
    asked: tuple[Selection, bool] | None = None
    tail = b""
    for part in parts:
        action = bytearray()
        put_bytes(action, B1, region_specifier(part.region.name))
        is_atomic = part.check is not None or any(
            isinstance(one, RowChange) and one.puts and one.deletes for one in part.actions
        )
        assert not is_atomic or len(part.actions) == 1, "one change alone is atomic"
        if is_atomic:
            put_bool(action, V2, value=True)
        elif _IS_COMPILED and are_puts(part.actions):
            # Kinds of bytes that are not quite bytes are written one by one.
            with suppress(TypeError):
                some, block = cellblock.encode_puts(part.actions, durability)
                action += some
                cells.append(block)
                put_bytes(out, B1, action)
                continue
        for index, one in enumerate(part.actions):
            if isinstance(one, Get):
                row, selection, existence_only = one
                if asked is None or asked[0] is not selection or asked[1] is not existence_only:
                    asked = selection, existence_only
                    tail = _get_tail(selection, existence_only=existence_only)
                message = bytearray()
                put_bytes(message, B1, row)
                message += tail
                _put_action(action, index, B3, message)
                continue
            for number, mutation in enumerate(_mutations(one, durability)):
                _put_action(action, index + number, B2, mutation.message)
                cells.append(mutation.cells)
        if part.check is not None:
            put_bytes(action, B4, _condition(part.check))
        put_bytes(out, B1, action)
    return bytes(out), b"".join(cells)


def are_puts(actions: Sequence[Action]) -> TypeGuard[Sequence[RowChange]]:
    """Say whether `cellblock.encode_puts` can be asked for some actions."""
    return all(
        isinstance(one, RowChange) and not one.deletes and type(one.puts) in _SEQUENCES
        for one in actions
    )


def _put_action(out: bytearray, index: int, key: int, message: bytes | bytearray) -> None:
    body = bytearray()
    put_uint64(body, V1, index)
    put_bytes(body, key, message)
    put_bytes(out, B3, body)


def message_numbers(data: bytes) -> Iterator[int]:
    """Yield the numbers of a packed field, with an error of ours where there are none."""
    try:
        yield from varints(data)
    except RemoteProtocolError as error:
        raise Garbled(f"an answer cannot be read: {error}") from error


def message_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield fields, with an error of ours where there are none."""
    try:
        yield from fields(data)
    except RemoteProtocolError as error:
        raise Garbled(f"an answer cannot be read: {error}") from error
