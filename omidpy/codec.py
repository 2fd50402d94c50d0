"""Numbers, text and JSON as the bytes of a cell.

A store holds bytes; a codec says which.  Each is the plain form that HBase's own clients use, so
that other programs read the values, and none ever encodes to nothing, because an empty value is a
delete in this format.

    INT64     8 bytes, big endian, two's complement: HBase's `Bytes.toBytes(long)`
    INT32     4 bytes, the same: `Bytes.toBytes(int)`
    INT16     2 bytes, the same: `Bytes.toBytes(short)`
    FLOAT64   8 bytes, big endian, IEEE 754: HBase's `Bytes.toBytes(double)`
    FLOAT32   4 bytes, the same: `Bytes.toBytes(float)`
    BOOL      1 byte, ff or 00: `Bytes.toBytes(boolean)`
    TEXT      UTF-8; the empty text is refused
    JSON      UTF-8, keys sorted, so that equal documents are equal bytes
    BYTES     as they are; the empty value is refused

As row keys these order by their bytes: non-negative integers do as numbers, negative ones follow
them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from omidpy.errors import CorruptCell, UsageError

T = TypeVar("T")

MIN_INT64: Final = -(2**63)
MAX_INT64: Final = 2**63 - 1

_TRUE: Final = b"\xff"
_FALSE: Final = b"\x00"


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """A type of values and their bytes.

    `encode` raises TypeError for another type and `UsageError` for a value that cannot be stored;
    `decode` raises `CorruptCell` for bytes that `encode` does not make, and TypeError for what is
    no bytes, such as the None of a column that a row lacks.
    """

    name: str
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    arrow_type: str
    """The name of the Arrow type of a column of such values, as `pyarrow.type_for_alias` has it; or
    `decimal128(DIGITS, SCALE)`; or `timestamp[us, tz=UTC]`."""

    def __repr__(self) -> str:
        return f"codec.{self.name}"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Travel to other processes by name, if it is one of this module's."""
        if globals().get(self.name) is self:
            return str(self.name)
        return Codec, (self.name, self.encode, self.decode, self.arrow_type)


def _checked(value: object, type_: type, name: str) -> None:
    if not isinstance(value, type_) or (isinstance(value, bool) and type_ is not bool):
        raise TypeError(f"{name} encodes {type_.__name__}, not {type(value).__name__}: {value!r}")


def _not_bytes(name: str, data: object) -> TypeError:
    hint = ": the row lacks the column" if data is None else ""
    return TypeError(f"{name} decodes bytes, not {type(data).__name__}{hint}")


def _nonempty(data: bytes, name: str) -> bytes:
    if not data:
        raise UsageError(
            f"{name} cannot encode an empty value, which this format reads as a delete; leave the "
            "column out, delete it, or encode with JSON"
        )
    return data


def _corrupt(name: str, data: bytes, reason: object) -> CorruptCell:
    return CorruptCell(
        f"{data[:40]!r} is no {name} value ({reason}); read the column with the codec that wrote it"
    )


def _integers(name: str, form: str) -> Codec[int]:
    """Return the codec of whole numbers of one width."""
    layout = struct.Struct(form)
    bits = layout.size * 8
    most = 2 ** (bits - 1) - 1

    def encode(value: int) -> bytes:
        _checked(value, int, name)
        if not -most - 1 <= value <= most:
            raise UsageError(f"{value} does not fit in the {bits} bits of {name}")
        return layout.pack(value)

    def decode(data: bytes) -> int:
        try:
            (value,) = layout.unpack(data)
        except struct.error as error:
            raise _corrupt(name, data, error) from error
        except TypeError:
            raise _not_bytes(name, data) from None
        return int(value)

    return Codec(name, encode, decode, f"int{bits}")


def _floats(name: str, form: str, arrow_type: str) -> Codec[float]:
    """Return the codec of floating numbers of one width."""
    layout = struct.Struct(form)

    def encode(value: float) -> bytes:
        if not isinstance(value, int) or isinstance(value, bool):
            _checked(value, float, name)
        try:
            return layout.pack(value)
        except OverflowError as error:
            raise UsageError(f"{value} does not fit in {name}: {error}") from error

    def decode(data: bytes) -> float:
        try:
            (value,) = layout.unpack(data)
        except struct.error as error:
            raise _corrupt(name, data, error) from error
        except TypeError:
            raise _not_bytes(name, data) from None
        return float(value)

    return Codec(name, encode, decode, arrow_type)


def _encode_bool(value: bool) -> bytes:  # noqa: FBT001 - it is the value
    _checked(value, bool, "BOOL")
    return _TRUE if value else _FALSE


def _decode_bool(data: bytes) -> bool:
    if data not in (_TRUE, _FALSE):
        if not isinstance(data, bytes):
            raise _not_bytes("BOOL", data)
        raise _corrupt("BOOL", data, "one byte is expected, ff or 00")
    return data == _TRUE


def _encode_text(value: str) -> bytes:
    _checked(value, str, "TEXT")
    try:
        return _nonempty(value.encode(), "TEXT")
    except UnicodeEncodeError as error:
        raise UsageError(f"{value[:40]!r} cannot be written as UTF-8: {error}") from error


def _decode_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _corrupt("TEXT", data, error) from error
    except AttributeError:
        raise _not_bytes("TEXT", data) from None


def _encode_json(value: Any) -> bytes:
    try:
        text = json.dumps(
            value, allow_nan=False, ensure_ascii=False, separators=(",", ":"), sort_keys=True
        )
        return text.encode()
    except ValueError as error:  # NaN, a circle, half of a surrogate pair
        raise UsageError(f"{value!r:.80} cannot be written as JSON: {error}") from error
    except RecursionError as error:  # which to show it would meet, too
        raise UsageError(f"the value cannot be written as JSON: {error}") from error


def _decode_json(data: bytes) -> Any:
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise _corrupt("JSON", data, error) from error
    except AttributeError:
        raise _not_bytes("JSON", data) from None


def _encode_bytes(value: bytes) -> bytes:
    _checked(value, bytes, "BYTES")
    return _nonempty(value, "BYTES")


def _decode_bytes(data: bytes) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise _not_bytes("BYTES", data)
    return bytes(data)


INT64: Final = _integers("INT64", ">q")
INT32: Final = _integers("INT32", ">i")
INT16: Final = _integers("INT16", ">h")
FLOAT64: Final = _floats("FLOAT64", ">d", "double")
FLOAT32: Final = _floats("FLOAT32", ">f", "float")
BOOL: Final = Codec("BOOL", _encode_bool, _decode_bool, "bool")
TEXT: Final = Codec("TEXT", _encode_text, _decode_text, "string")
JSON: Final = Codec("JSON", _encode_json, _decode_json, "string")
BYTES: Final = Codec("BYTES", _encode_bytes, _decode_bytes, "binary")
