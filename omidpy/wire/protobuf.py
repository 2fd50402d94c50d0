"""How numbers and fields are laid out in protobuf's encoding.

The small part of it that the oracle's messages use: varints, length-delimited fields, packed and
unpacked repeated integers.  No schema, no reflection, no library at run time: the codec runs in
every client and on every answer, and each length in it is checked against what is really there.

As in every protobuf parser, a field of unknown number, or of a known number with another wire type,
is skipped, and a varint may be longer than it needs to be.  Two things we refuse although some
parsers take them, because no writer of this protocol produces them: groups, and varints with more
than 64 bits.

A field is named by its *key*, `number << 3 | wire type`, as it stands on the wire.

The module is compiled as the oracle's engine is: plain Python, to which `protobuf.pxd` beside it
gives C types where a compiler is found at install time.  What nearly every message is goes through
one call of `numbers` or of `put_int64s`, since calls are most of what the others take.  Compiled,
nothing else holds an index in `numbers` against the length of what it is an index into: each one
comes behind the comparison that says it is within.

Source: the Protocol Buffers encoding specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final, TypeAlias

from omidpy.errors import LocalProtocolError, RemoteProtocolError

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

Fields: TypeAlias = dict[int, int | bytes]

_MAX_VARINT_BYTES: Final = 10
_MAX_KEY: Final = 2**32 - 1
_MIN_INT64: Final = -(2**63)
_MAX_INT64: Final = 2**63 - 1
_FIXED_SIZES: Final = {FIXED64: 8, FIXED32: 4}
_MASK: Final = 2**64 - 1
_LEAST_KEY: Final = 8
_NUMBER: Final = VARINT
_MESSAGE: Final = BYTES

_IS_COMPILED: Final = not __file__.endswith(".py")


def is_compiled() -> bool:
    """Say whether this module runs as machine code."""
    return _IS_COMPILED


def key(number: int, wire_type: int) -> int:
    """Return the key of field `number` in the given wire type."""
    return number << 3 | wire_type


# -- writing ---------------------------------------------------------------------------------------


def put_varint(out: bytearray, value: int) -> None:
    """Append a non-negative number, seven bits a byte, lowest first."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def put_uint64(out: bytearray, field_key: int, value: int) -> None:
    """Append an unsigned field.

    Raises:
        LocalProtocolError: if the value does not fit into 64 bits.
    """
    if not 0 <= value < 2**64:
        raise LocalProtocolError(f"{value} does not fit into an unsigned 64-bit field")
    if field_key < 0x80 and value < 0x80:  # as most are: no call for them
        out.append(field_key)
        out.append(value)
        return
    put_varint(out, field_key)
    put_varint(out, value)


def put_int64(out: bytearray, field_key: int, value: int) -> None:
    """Append a signed field; a negative number takes ten bytes, as it always does in protobuf.

    Raises:
        LocalProtocolError: if the value does not fit into 64 bits.
    """
    put_varint(out, field_key)
    put_varint(out, _unsigned(value))


def put_int64s(out: bytearray, number: int, values: Iterable[int], *, packed: bool) -> None:
    """Append a repeated signed field: one field holding all (packed), or one field a value.

    Raises:
        LocalProtocolError: if a value does not fit into 64 bits.
    """
    body = bytearray()
    each = 0 if packed else key(number, VARINT)
    if _IS_COMPILED:
        _put_each(body, each, values)
    else:
        _put_each_in_pairs(body, each, values)
    if not packed:
        out += body
    elif body:
        put_bytes(out, key(number, BYTES), body)


def _put_each(body: bytearray, field_key: int, values: Iterable[int]) -> None:
    """Append signed numbers, each behind a key unless that is 0."""
    for value in values:
        if not _MIN_INT64 <= value <= _MAX_INT64:
            _unsigned(value)  # which refuses it
        if field_key:
            put_varint(body, field_key)
        number = value
        put_varint(body, number & _MASK)


def _put_each_in_pairs(body: bytearray, field_key: int, values: Iterable[int]) -> None:
    """Do as `_put_each`, without its calls, which would take half of a commit request's time."""
    before = bytearray()
    if field_key:
        put_varint(before, field_key)
    append = body.append
    pairs, last = _pairs(), _LAST
    for value in values:
        body += before
        if _MIN_INT64 <= value < 0:
            rest = value + 2**64
        else:
            rest = value if 0 <= value <= _MAX_INT64 else _unsigned(value)
        if rest >> _HIGH_BITS:  # as nearly all hashes are
            body += (
                pairs[rest & 0x3FFF]
                + pairs[rest >> 14 & 0x3FFF]
                + pairs[rest >> 28 & 0x3FFF]
                + pairs[rest >> 42 & 0x3FFF]
                + last[rest >> _HIGH_BITS]
            )
            continue
        while rest > 0x7F:
            append(rest & 0x7F | 0x80)
            rest >>= 7
        append(rest)


_HIGH_BITS: Final = 56
"""A number that needs more takes 9 bytes or 10: four pairs, and what is left."""
_LAST: Final = [bytes((one,)) if one < 0x80 else bytes((one, 1)) for one in range(256)]


@cache
def _pairs() -> list[bytes]:
    """Return, of 14 bits, two bytes that others follow."""
    return [bytes((one & 0x7F | 0x80, one >> 7 | 0x80)) for one in range(2**14)]


def put_bool(out: bytearray, field_key: int, *, value: bool) -> None:
    """Append a field of one bit, also when it is false: presence is part of the message."""
    put_varint(out, field_key)
    out.append(value)


def put_bytes(out: bytearray, field_key: int, body: bytes | bytearray) -> None:
    """Append a length-delimited field: a byte string or a nested message."""
    length = len(body)
    if field_key < 0x80 and length < 0x80:  # as nearly all are: no call for them
        out.append(field_key)
        out.append(length)
    else:
        put_varint(out, field_key)
        put_varint(out, length)
    out += body


def _unsigned(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise LocalProtocolError(f"{value} does not fit into a signed 64-bit field")
    return value % 2**64


# -- reading ---------------------------------------------------------------------------------------


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (key, value) of each varint and length-delimited field, in order.

    A varint's value is the unsigned number, a length-delimited field's its bytes.  Fields of fixed
    width are skipped: the protocol has none.

    Raises:
        RemoteProtocolError: if the bytes end inside a field, or hold what is no field.
    """
    position = 0
    size = len(data)
    while position < size:
        field_key = data[position]
        if field_key < 0x80:  # as nearly all are: no call for them
            position += 1
        else:
            field_key, position = _varint(data, position)
        if not 8 <= field_key <= _MAX_KEY:
            raise RemoteProtocolError(f"{field_key} is no protobuf field key")
        wire_type = field_key & 7
        if wire_type == VARINT:
            value, position = _varint(data, position)
            yield field_key, value
        elif wire_type == BYTES:
            length, position = _varint(data, position)
            body = data[position : position + length]
            if len(body) != length:
                raise RemoteProtocolError(
                    f"field {field_key >> 3} claims {length} bytes where {len(body)} are left"
                )
            position += length
            yield field_key, body
        elif wire_type in _FIXED_SIZES:
            position += _FIXED_SIZES[wire_type]
            if position > len(data):
                raise RemoteProtocolError(f"the message ends inside field {field_key >> 3}")
        else:
            raise RemoteProtocolError(f"field {field_key >> 3} has the wire type {wire_type}")


def numbers(payload: bytes) -> tuple[int, dict[int, int]] | None:
    """Return the key of the one message in a payload, and what `last_of_each` makes of its body.

    None: there is something else in the payload than that, or in the body than numbers, or they
    cannot be read; `fields` goes through it then.
    """
    octets = payload
    size = len(payload)
    values: dict[int, int] = {}
    position = count = 0
    kind = field_key = 0
    while position < size:
        byte = octets[position]
        position += 1
        value = byte & 0x7F
        shift = 7
        while byte > 0x7F:
            if position == size:
                return None
            byte = octets[position]
            if shift == 63 and byte > 1:  # the tenth byte has room for one more bit
                return None
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
        if count & 1:
            if count > 1:
                values[field_key] = value
            elif value != size - position:
                return None
        else:
            if not _LEAST_KEY <= value <= _MAX_KEY or value & 7 != (_NUMBER if count else _MESSAGE):
                return None
            if count:
                field_key = value
            else:
                kind = value
        count += 1
    return None if count < 2 or count & 1 else (kind, values)


def varints(data: bytes) -> Iterator[int]:
    """Yield the numbers of a packed field.

    Raises:
        RemoteProtocolError: if the bytes end inside a number.
    """
    position = 0
    while position < len(data):
        value, position = _varint(data, position)
        yield value


def signed64(value: int) -> int:
    """Return the signed number that an unsigned 64-bit varint stands for."""
    return value - 2**64 if value >= 2**63 else value


def signed32(value: int) -> int:
    """Return the signed number in the low 32 bits: what a reader of an int32 or enum field sees."""
    return (value + 2**31) % 2**32 - 2**31


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[position : position + _MAX_VARINT_BYTES]:
        if byte < 0x80:
            value |= byte << shift
            if value < 2**64:
                return value, position + shift // 7 + 1
            break
        value |= (byte & 0x7F) << shift
        shift += 7
    else:
        if len(data) - position < _MAX_VARINT_BYTES:
            raise RemoteProtocolError("the message ends inside a number")
    raise RemoteProtocolError("a number has more than 64 bits")


# -- fields of a message ---------------------------------------------------------------------------


def joined(bodies: Iterable[bytes]) -> bytes:
    """Return several occurrences of a message as one.

    Raises:
        RemoteProtocolError: one of them ends inside a field.
    """
    whole = []
    for body in bodies:
        for _ in fields(body):
            pass
        whole.append(body)
    return b"".join(whole)


def last_of_each(body: bytes) -> Fields:
    """Return the last value of each field: a repeated scalar overrides the earlier ones."""
    return dict(fields(body))


def int64(values: Mapping[int, int | bytes], field_key: int) -> int | None:
    """Return a number of 64 bits; None if the field is not there, or is no number."""
    value = values.get(field_key)
    return signed64(value) if isinstance(value, int) else None


def int32(values: Mapping[int, int | bytes], field_key: int) -> int:
    """Return a number of 32 bits; 0 if the field is not there, or is no number."""
    value = values.get(field_key, 0)
    return signed32(value) if isinstance(value, int) else 0


def required(values: Mapping[int, int | bytes], field_key: int, what: str) -> int:
    """Return a number of 64 bits.

    Raises:
        RemoteProtocolError: the message lacks it, which is called `what`.
    """
    value = int64(values, field_key)
    if value is None:
        raise RemoteProtocolError(f"the message lacks {what}")
    return value


def int64s(body: bytes, number: int) -> Iterable[int]:
    """Yield a repeated field's values, packed, unpacked or both, in order."""
    one, many = key(number, VARINT), key(number, BYTES)
    for field_key, value in fields(body):
        if field_key == one and isinstance(value, int):
            yield signed64(value)
        elif field_key == many and isinstance(value, bytes):
            yield from map(signed64, varints(value))
