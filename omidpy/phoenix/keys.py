"""The key of a row of Phoenix's: the values of its primary key, one behind the other.

    [salt] value [separator] value [separator] value

A value whose length is not its type's ends with a zero byte, unless it is the last one; NULL is
such a value of no bytes, and those at the end of a key are left out.  What is sorted DESC has all
its bits flipped, and ends with a byte ff, also at the end.  The salt is a hash of the rest, so that
rows that follow each other lie in different regions.

Source: Phoenix 5.2.1 (`PTableImpl.newKey`, `SaltingUtil`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from omidpy.errors import CorruptCell, UsageError
from omidpy.phoenix.types import PhoenixType

_END: Final = b"\x00"
_END_DESC: Final = b"\xff"
_FLIP: Final = bytes(255 - byte for byte in range(256))
_MAX_INT32: Final = 2**31


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the primary key."""

    name: str
    type: PhoenixType
    is_descending: bool = False


@dataclass(frozen=True, slots=True)
class RowKey:
    """The primary key of a table."""

    columns: tuple[KeyColumn, ...]
    salt_buckets: int = 0
    """0: keys have no salt."""

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Return the key of a row.

        Args:
            values: What its columns hold, those of the key among them; None is NULL.

        Raises:
            UsageError: one is missing, or cannot be part of a key.
            TypeError: it has another type.
        """
        if missing := [one.name for one in self.columns if one.name not in values]:
            raise UsageError(f"the key lacks {', '.join(missing)}")
        key = self.encode_first([values[one.name] for one in self.columns])
        if not key:
            raise UsageError("a key whose columns are all NULL names no row")
        return self.salted(key)

    def encode_first(self, values: Sequence[Any]) -> bytes:
        """Return the bytes of the first columns of keys, without a salt and what ends the last."""
        found, waiting = b"", b""
        for column, value in zip(self.columns, values, strict=False):
            if value is None:
                if column.type.width is not None:
                    raise UsageError(f"{column.name} is a {column.type.name} of the key: no NULL")
                waiting += _END
                continue
            data = column.type.codec.encode(value)
            is_last = column is self.columns[-1]
            if column.type.width is None and not is_last and _END in data:
                raise UsageError(
                    f"{column.name} has a zero byte in it, which ends a {column.type.name} that is "
                    "not the last column of a key"
                )
            if column.type.width is None and data.endswith(_END_DESC):
                raise UsageError(
                    f"{column.name} ends with a byte ff, which Phoenix does not read as part of a "
                    f"{column.type.name} in a key"
                )
            if column.is_descending:
                data = data.translate(_FLIP)
            found, waiting = found + waiting + data, b""
            if column.type.width is None and column.is_descending:
                found += _END_DESC
            elif column.type.width is None:
                waiting = _END
        return found

    def salted(self, key: bytes) -> bytes:
        """Return a key with its salt before it."""
        if not self.salt_buckets:
            return key
        hashed = 1
        for byte in key:
            hashed = (31 * hashed + (byte - 256 if byte > 127 else byte)) % (2 * _MAX_INT32)
        if hashed >= _MAX_INT32:
            hashed = 2 * _MAX_INT32 - hashed
        return bytes((hashed % self.salt_buckets,)) + key

    def decoder(self) -> Callable[[bytes], dict[str, Any]]:
        """Return what does as `decode`, for many keys; it may raise any of `types.UNREADABLE`."""
        column, *others = self.columns
        if others or self.salt_buckets or column.is_descending or column.type.width is not None:
            return self.decode
        name, decode = column.name, column.type.plain
        return lambda key: {name: decode(key) if key else None}

    def decode(self, key: bytes) -> dict[str, Any]:
        """Return the values of a row's key, by column.

        Raises:
            CorruptCell: no values have it.
        """
        rest = key[1:] if self.salt_buckets else key
        found: dict[str, Any] = {}
        for column in self.columns:
            width, is_last = column.type.width, column is self.columns[-1]
            if not rest and width is None:
                data, rest = b"", b""
            elif width is not None:
                data, rest = rest[:width], rest[width:]
            elif column.is_descending and not rest.startswith(_END):
                data, end, rest = rest.partition(_END_DESC)
                if not end:
                    raise CorruptCell(f"{key!r} ends within {column.name}")
            elif is_last:
                data, rest = rest, b""
            else:
                data, _, rest = rest.partition(_END)
            if column.is_descending:
                data = data.translate(_FLIP)
            found[column.name] = column.type.codec.decode(data) if data or width else None
        if rest:
            raise CorruptCell(f"{key!r} goes on behind {self.columns[-1].name}")
        return found

    def salts(self) -> list[bytes]:
        """Return what keys begin with."""
        return [bytes((one,)) for one in range(self.salt_buckets)] or [b""]

    def spans(self, first: Sequence[Any]) -> list[tuple[bytes, bytes | None]]:
        """Return key ranges that hold every row whose key begins with some values.

        They may hold others, too: what is read there is compared again.
        """
        start = self.encode_first(first)
        spans: list[tuple[bytes, bytes | None]] = []
        for salt in self.salts():
            at = salt + start
            last = self.columns[len(first) - 1] if first else None
            # A text ends with a zero byte or with the key: what has other bytes behind is longer.
            is_text = last is not None and last.type.width is None and not last.is_descending
            spans.append((at, at + b"\x01" if is_text and first[-1] else _successor(at)))
        return spans


def _successor(prefix: bytes) -> bytes | None:
    """Return the end of the keys that begin with `prefix`; None: there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None
