"""Row keys of one part or several, typed: values in, bytes out, and back.

    one part       the bytes of its codec
    several parts  those of each, one behind the other.  A number has its width.  A text that is not
                   the last ends with a zero byte, which it must not contain.  Whatever else has no
                   fixed width (bytes, JSON, a codec of others) can only be the last

So keys order by their first part, then by the second; numbers as `omidpy.codec` says.  Lacks all
knowledge of tables and of Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from omidpy.codec import BOOL, FLOAT32, FLOAT64, INT16, INT32, INT64, TEXT, Codec
from omidpy.errors import CorruptCell, UsageError

WIDTHS: Final[Mapping[Codec[Any], int]] = {
    INT64: 8,
    INT32: 4,
    INT16: 2,
    FLOAT64: 8,
    FLOAT32: 4,
    BOOL: 1,
}
"""Bytes of the codecs that have a fixed width."""

_END_OF_TEXT: Final = b"\x00"


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One column of a row key."""

    name: str
    codec: Codec[Any]


@dataclass(frozen=True, slots=True)
class Key:
    """The columns of a row key, in the order of their bytes."""

    parts: tuple[KeyPart, ...]

    def check(self) -> None:
        """Refuse parts that could not be told apart.

        Raises:
            UsageError: there is none, or one before the last has no end.
        """
        if not self.parts:
            raise UsageError("the row key has no column; name one, as key='id'")
        for part in self.parts[:-1]:
            if part.codec not in WIDTHS and part.codec is not TEXT:
                raise UsageError(
                    f"the column {part.name!r} of the row key is {part.codec.name}, whose end "
                    "nobody would find; make it the last one, or a text or a number"
                )

    def encode(self, values: Sequence[Any]) -> bytes:
        """Return the row key of some values, one for each part, or for the first parts alone.

        The bytes of first parts are the prefix of all keys that begin with these values.

        Raises:
            UsageError: a value is missing, or cannot be stored.
            TypeError: it has another type.
        """
        found = bytearray()
        last = len(self.parts) - 1
        for at, (part, value) in enumerate(zip(self.parts, values, strict=False)):
            if value is None:
                raise UsageError(f"the column {part.name!r} is part of the row key, and is null")
            data = part.codec.encode(value)
            if at < last and part.codec is TEXT:
                if _END_OF_TEXT in data:
                    raise UsageError(
                        f"{value[:40]!r} has a zero byte in it, which ends a text that is not the "
                        f"last column of a row key, and {part.name!r} is not"
                    )
                data += _END_OF_TEXT
            found += data
        return bytes(found)

    def decode(self, row: bytes) -> tuple[Any, ...]:
        """Return the values of a row key.

        Raises:
            CorruptCell: no values have this key.
        """
        if len(self.parts) == 1:
            return (self.parts[0].codec.decode(row),)
        found: list[Any] = []
        at = 0
        for part in self.parts[:-1]:
            width = WIDTHS.get(part.codec)
            end = row.find(_END_OF_TEXT, at) if width is None else at + width
            if not at <= end <= len(row):
                raise CorruptCell(f"the row key {row[:40]!r} ends before its column {part.name!r}")
            found.append(part.codec.decode(row[at:end]))
            at = end + (width is None)
        last = self.parts[-1]
        if at == len(row):
            raise CorruptCell(f"the row key {row[:40]!r} has nothing for its column {last.name!r}")
        found.append(last.codec.decode(row[at:]))
        return tuple(found)
