"""The values of Apache Phoenix's columns as the bytes of a cell, or of a part of a row's key.

They order by their bytes as they do as values, which is what a key of them needs:

    BIGINT INTEGER SMALLINT TINYINT   big endian, the sign bit flipped
    UNSIGNED_LONG _INT _SMALLINT _TINYINT
                                      big endian, not negative
    DOUBLE FLOAT                      IEEE 754, its sign bit flipped, or all bits, and 1 added
    UNSIGNED_DOUBLE UNSIGNED_FLOAT    IEEE 754, not negative
    DECIMAL                           base 100: an exponent, then a byte for two digits each
    BOOLEAN                           01 or 00
    VARCHAR                           UTF-8
    CHAR(n)                           ASCII, filled up with blanks
    VARBINARY  BINARY(n)              as they are; BINARY filled up with zero bytes
    DATE TIME TIMESTAMP               milliseconds since 1970, as BIGINT; TIMESTAMP has 4 bytes
                                      more, the nanoseconds of the millisecond
    UNSIGNED_DATE _TIME _TIMESTAMP    the same, as UNSIGNED_LONG

All moments are `datetime` with a time zone: UTC when read.  None ever encodes to nothing, which is
Phoenix's NULL, and in this format a delete.  Arrays are not held.

The DataFrame source finds a codec as `omidpy.phoenix.types:BIGINT`.  Arrow has a type for each, for
DECIMAL where it has sizes, as DECIMAL(10,2); that of moments is Spark's, microseconds in UTC.

Source: Phoenix 5.2.1 (`org.apache.phoenix.schema.types`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, Final

from omidpy.codec import Codec
from omidpy.errors import CorruptCell, UsageError

MAX_DIGITS: Final = 38
"""Of a DECIMAL."""
_TOO_MANY_DIGITS: Final = 10
"""No length has so many."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_NANOS: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class PhoenixType:
    """A type of columns."""

    codec: Codec[Any]
    width: int | None
    """Bytes of each value; None: they differ, so that a key needs a byte behind them."""
    plain: Callable[[bytes], Any]
    """What the codec decodes with: it raises one of `UNREADABLE` as it comes."""

    @property
    def name(self) -> str:
        """As SQL calls it."""
        return self.codec.name

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Travel to other processes by what it is called and how long it is."""
        return of_name, (self.name,)


UNREADABLE: Final = (CorruptCell, struct.error, ValueError, ArithmeticError)
"""What bytes that are none of a type are met with, before that is told as `CorruptCell`."""


def _type(
    name: str,
    type_: type,
    encode: Callable[[Any], bytes],
    decode: Callable[[bytes], Any],
    arrow: str,
    width: int | None,
) -> PhoenixType:
    """Return a type whose codec checks types, and what encodes to nothing."""

    def checked(value: Any) -> bytes:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if type_ in (float, Decimal) and is_whole:
            value = _converted(name, value, type_)
        if not isinstance(value, type_) or (isinstance(value, bool) and type_ is not bool):
            raise TypeError(
                f"{name} encodes {type_.__name__}, not {type(value).__name__}: {value!r:.80}"
            )
        data = encode(value)
        if not data:
            raise UsageError(f"{name} has no empty value, which is NULL to Phoenix; write None")
        return data

    def read(data: bytes) -> Any:
        try:
            return decode(data)
        except UNREADABLE as error:
            raise CorruptCell(f"{data[:40]!r} is no {name} of Phoenix's: {error}") from error

    return PhoenixType(_PhoenixCodec(name, checked, read, arrow), width, decode)


def _converted(name: str, value: int, type_: type) -> Any:
    try:
        return type_(value)
    except OverflowError as error:
        raise UsageError(f"a number of {value.bit_length()} bits does not fit in {name}") from error


class _PhoenixCodec(Codec[Any]):
    """Travels to other processes by its name."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"phoenix.codec({self.name!r})"

    def __reduce__(self) -> str | tuple[Any, ...]:
        return codec, (self.name,)


def _whole(name: str, bits: int, *, is_signed: bool) -> PhoenixType:
    """Return the type of whole numbers of one width."""
    least = -(2 ** (bits - 1)) if is_signed else 0
    most = 2 ** (bits - 1) - 1

    def encode(value: int) -> bytes:
        if not least <= value <= most:
            raise UsageError(f"{value} does not fit in {name}, which goes from {least} to {most}")
        return (value - least).to_bytes(bits // 8, "big")

    size = bits // 8

    def decode(data: bytes) -> int:
        value = int.from_bytes(data, "big") + least
        if len(data) != size or value > most:
            raise ValueError(f"{size} bytes are expected, up to {most}")
        return value

    return _type(name, int, encode, decode, f"int{bits}", bits // 8)


def _real(name: str, form: str, arrow: str, *, is_signed: bool) -> PhoenixType:
    """Return the type of floating numbers of one width."""
    layout = struct.Struct(form)
    bits = layout.size * 8
    sign, every = 1 << (bits - 1), (1 << bits) - 1

    def encode(value: float) -> bytes:
        try:
            data = layout.pack(value)
        except OverflowError as error:
            raise UsageError(f"{value} does not fit in {name}") from error
        if not is_signed:
            if not value >= 0:
                raise UsageError(f"{value} does not fit in {name}, which has no negative numbers")
            return data
        if value != value:  # noqa: PLR0124 - one that is no number; Java knows one of them
            data = (0x7FF8 << (bits - 16) if bits == 64 else 0x7FC00000).to_bytes(
                layout.size, "big"
            )
        number = int.from_bytes(data, "big")
        number ^= every if number & sign else sign
        return ((number + 1) & every).to_bytes(layout.size, "big")

    def decode(data: bytes) -> float:
        if is_signed and len(data) == layout.size:
            number = (int.from_bytes(data, "big") - 1) & every
            number ^= sign if number & sign else every
            data = number.to_bytes(layout.size, "big")
        (value,) = layout.unpack(data)
        return float(value)

    return _type(name, float, encode, decode, arrow, layout.size)


def _encode_decimal(value: Decimal) -> bytes:
    if not value.is_finite():
        raise UsageError(f"DECIMAL has no {value}")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "it is finite"
    text = "".join(map(str, digits)).lstrip("0")
    exponent += len(text) - len(text.rstrip("0"))
    text = text.rstrip("0")
    if not text:
        return b"\x80"
    if len(text) > MAX_DIGITS:
        raise UsageError(f"{value} has more than the {MAX_DIGITS} digits that DECIMAL can hold")
    if exponent % 2:
        text, exponent = text + "0", exponent - 1
    text = text.zfill(len(text) + len(text) % 2)
    pairs = [int(text[at : at + 2]) for at in range(0, len(text), 2)]
    scale = exponent // 2 + len(pairs) - 1 + 65
    if not 0 <= scale <= 127:
        raise UsageError(f"{value} is too large or too small for DECIMAL")
    if not sign:
        return bytes([0x80 | scale, *(pair + 1 for pair in pairs)])
    # The terminal byte lets a longer number, which is smaller, come first.
    end = b"\x66" if len(pairs) < _LONGEST_TERMINATED else b""
    return bytes([0x7F - scale, *(101 - pair for pair in pairs)]) + end


_LONGEST_TERMINATED: Final = 20
"""A negative DECIMAL with as many pairs of digits fills its 21 bytes without the terminal one."""


def _decode_decimal(data: bytes) -> Decimal:
    if data == b"\x80":
        return Decimal(0)
    if not data:
        raise ValueError("it is empty")
    # Most are not negative, have a fraction, and no zero at their end.
    digits = data[1:].translate(_PAIRS).hex()
    places = 2 * (len(data) + 191 - data[0])
    if 0 <= places < len(_FRACTIONS) and digits.isdecimal() and digits[-1] != "0":
        return Decimal(digits + _FRACTIONS[places])
    if data[0] & 0x80:
        sign, scale, pairs = "", data[0] & 0x7F, data[1:].translate(_PAIRS)
    else:
        sign, scale = "-", 0x7F - data[0]
        pairs = data[1:].removesuffix(b"\x66").translate(_NEGATIVE_PAIRS)
    digits = pairs.hex()
    if not digits.isdecimal():
        raise ValueError("no digits are encoded so")
    stripped = digits.rstrip("0")
    exponent = (scale - 64 - len(pairs)) * 2 + len(digits) - len(stripped)
    # As people write it: 100, not 1E+2.
    if exponent > 0:
        stripped = stripped.lstrip("0")
        if exponent <= MAX_DIGITS - len(stripped):
            stripped, exponent = stripped + "0" * exponent, 0
    return Decimal(f"{sign}{stripped or '0'}E{exponent}")


def _table(digits_of: Callable[[int], int]) -> bytes:
    """Return bytes that are two digits each as hexadecimal digits; what is none has others."""
    pairs = map(digits_of, range(256))
    return bytes(int(str(pair), 16) if 0 <= pair <= 99 else 0xFF for pair in pairs)


_FRACTIONS: Final = tuple(f"E-{places}" for places in range(64))
_PAIRS: Final = _table(lambda byte: byte - 1)
_NEGATIVE_PAIRS: Final = _table(lambda byte: 101 - byte)


def _boolean(data: bytes) -> bool:
    if data not in (b"\x00", b"\x01"):
        raise ValueError("one byte is expected, 01 or 00")
    return data == b"\x01"


def _text(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{value[:40]!r} cannot be written as UTF-8: {error}") from error


def _milliseconds(value: datetime, name: str) -> tuple[int, int]:
    """Return a moment as milliseconds, and the microseconds behind them."""
    if value.tzinfo is None:
        raise UsageError(f"{value} has no time zone, so that nobody knows which {name} it is")
    whole, rest = divmod(value - _EPOCH, _MS)
    return whole, rest.microseconds


def _moment(name: str, number: PhoenixType, *, has_nanos: bool) -> PhoenixType:
    """Return the type of moments, in milliseconds that are stored as `number` is."""
    inner = number.codec

    def encode(value: datetime) -> bytes:
        whole, rest = _milliseconds(value, name)
        if has_nanos:
            return inner.encode(whole) + _NANOS.pack(rest * 1000)
        if rest:
            raise UsageError(f"{value} is finer than the milliseconds of {name}")
        return inner.encode(whole)

    def decode(data: bytes) -> datetime:
        nanos = 0
        if has_nanos:
            data, behind = data[:8], data[8:]
            (nanos,) = _NANOS.unpack(behind)
        if nanos % 1000:
            raise ValueError("it has nanoseconds, which Python's datetime cannot hold")
        whole: int = inner.decode(data)
        return _EPOCH + whole * _MS + timedelta(microseconds=nanos // 1000)

    width = 12 if has_nanos else 8
    return _type(name, datetime, encode, decode, "timestamp[us, tz=UTC]", width)


_CHAR, _BINARY, _DECIMAL = 1, -2, 3
_ARRAYS: Final = 3000
"""What is added to the number of a type for arrays of it."""
_BIGINT: Final = _whole("BIGINT", 64, is_signed=True)
_UNSIGNED_LONG: Final = _whole("UNSIGNED_LONG", 64, is_signed=False)

_BY_CODE: Final[Mapping[int, PhoenixType]] = {
    -6: _whole("TINYINT", 8, is_signed=True),
    5: _whole("SMALLINT", 16, is_signed=True),
    4: _whole("INTEGER", 32, is_signed=True),
    -5: _BIGINT,
    11: _whole("UNSIGNED_TINYINT", 8, is_signed=False),
    13: _whole("UNSIGNED_SMALLINT", 16, is_signed=False),
    9: _whole("UNSIGNED_INT", 32, is_signed=False),
    10: _UNSIGNED_LONG,
    6: _real("FLOAT", ">f", "float", is_signed=True),
    8: _real("DOUBLE", ">d", "double", is_signed=True),
    14: _real("UNSIGNED_FLOAT", ">f", "float", is_signed=False),
    15: _real("UNSIGNED_DOUBLE", ">d", "double", is_signed=False),
    _DECIMAL: _type("DECIMAL", Decimal, _encode_decimal, _decode_decimal, "decimal128", None),
    16: _type("BOOLEAN", bool, lambda value: b"\x01" if value else b"\x00", _boolean, "bool", 1),
    12: _type("VARCHAR", str, _text, bytes.decode, "string", None),
    -3: _type("VARBINARY", bytes, bytes, bytes, "binary", None),
    91: _moment("DATE", _BIGINT, has_nanos=False),
    92: _moment("TIME", _BIGINT, has_nanos=False),
    93: _moment("TIMESTAMP", _BIGINT, has_nanos=True),
    19: _moment("UNSIGNED_DATE", _UNSIGNED_LONG, has_nanos=False),
    18: _moment("UNSIGNED_TIME", _UNSIGNED_LONG, has_nanos=False),
    20: _moment("UNSIGNED_TIMESTAMP", _UNSIGNED_LONG, has_nanos=True),
}
"""By the number that SYSTEM.CATALOG has for it; CHAR and BINARY take a length, too."""
_BY_NAME: Final = {one.name: one for one in _BY_CODE.values()}


@cache
def _padded(name: str, length: int) -> PhoenixType:
    """Return CHAR(n) or BINARY(n)."""
    called = f"{name}({length})"
    is_text = name == "CHAR"

    def encode(value: Any) -> bytes:
        if is_text and not value.isascii():
            raise UsageError(f"{value[:40]!r} has letters that {called} cannot hold; use VARCHAR")
        data: bytes = value.encode() if is_text else value
        if len(data) > length:
            raise UsageError(f"{value[:40]!r} does not fit in {called}")
        # Nothing but what fills it up is nothing to Phoenix.
        filled = data.ljust(length, b" " if is_text else b"\x00")
        return filled if data else b""

    def decode(data: bytes) -> Any:
        if len(data) != length:
            raise ValueError(f"{length} bytes are expected")
        return data.decode("ascii").rstrip(" ") if is_text else data

    arrow = "string" if is_text else "binary"
    return _type(called, str if is_text else bytes, encode, decode, arrow, length)


@cache
def _decimal(length: int, digits: int) -> PhoenixType:
    """Return DECIMAL(n, m), which is refused what Phoenix would round."""
    plain = _BY_CODE[_DECIMAL].codec

    def encode(value: Decimal | int) -> bytes:
        data = plain.encode(value)
        # Not by `normalize`, which rounds to what its caller has set: 28 digits by default.
        _, figures, exponent = plain.decode(data).as_tuple()
        assert isinstance(exponent, int), "it is finite"
        text = "".join(map(str, figures)).lstrip("0")
        shown = text.rstrip("0")
        exponent += len(text) - len(shown)
        if shown and (-exponent > digits or len(shown) + exponent > length - digits):
            raise UsageError(f"{value} does not fit in DECIMAL({length},{digits})")
        return data

    arrow = f"{plain.arrow_type}({length}, {digits})"
    inner = _PhoenixCodec(f"DECIMAL({length},{digits})", encode, plain.decode, arrow)
    return replace(_BY_CODE[_DECIMAL], codec=inner)


def of_code(
    code: int, *, length: int | None = None, digits: int | None = None
) -> PhoenixType | None:
    """Return the type that SYSTEM.CATALOG has by a number; None: it is none that is held here.

    Args:
        code: `DATA_TYPE`.
        length: `COLUMN_SIZE`; None where the column has none.
        digits: `DECIMAL_DIGITS`; the same.
    """
    if code in (_CHAR, _BINARY):
        return _padded("CHAR" if code == _CHAR else "BINARY", length or 1)
    if code == _DECIMAL and length is not None:
        return _decimal(length, digits or 0)
    return _BY_CODE.get(code)


def name_of(code: int) -> str:
    """Return what a type that is not held here is called, as far as is known."""
    found = of_code(code - _ARRAYS)
    return f"type {code}" if found is None else f"{found.name.partition('(')[0]} ARRAY"


def of_name(name: str) -> PhoenixType:
    """Return the type that SQL has by a name, such as `BIGINT`, `CHAR(4)` or `DECIMAL(10,2)`.

    Raises:
        UsageError: it is none that is held here.
    """
    word, _, rest = name.upper().replace(" ", "").partition("(")
    sizes = rest.removesuffix(")").split(",") if rest else []
    if all(size.isdecimal() and len(size) < _TOO_MANY_DIGITS for size in sizes):
        numbers = [int(size) for size in sizes]
        if word in ("CHAR", "BINARY") and len(numbers) <= 1:
            return _padded(word, *(numbers or [1]))
        if word == "DECIMAL" and len(numbers) in (1, 2):
            return _decimal(*(numbers if len(numbers) > 1 else [numbers[0], 0]))
        if word in _BY_NAME and (not numbers or word in ("VARCHAR", "VARBINARY")):
            return _BY_NAME[word]
    raise UsageError(f"{name!r} is no type of Phoenix's that omidpy holds")


def codec(name: str) -> Codec[Any]:
    """Return the codec of a type, for `scan_arrow` and whoever else takes one of `omidpy.codec`.

    Args:
        name: As in `of_name`.

    Raises:
        UsageError: it is none that is held here.
    """
    return of_name(name).codec


def __getattr__(name: str) -> Codec[Any]:
    """Return a codec as an attribute of the module, which is how other processes find one."""
    try:
        return codec(name)
    except UsageError as error:
        raise AttributeError(str(error)) from error
