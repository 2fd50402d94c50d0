"""Values of entries as bytes: `bytes`, `json` or `msgpack`.

A queue has one codec, kept with its definition, so that every client that opens it reads what was
written.  Never pickle: what is read from a store must not run code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from omidpy import codec
from omidpy.base.documents import UNREADABLE
from omidpy.errors import CorruptCell, UsageError


class ValueCodec(NamedTuple):
    """Turns values into bytes and back."""

    name: str
    encode: Callable[[Any], bytes]
    """Raises TypeError or `UsageError` for what cannot be written."""
    decode: Callable[[bytes], Any]
    """Raises `CorruptCell` for what cannot be read."""


def _same_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(
            f"the queue takes bytes, not {type(value).__name__}; make it with codec='json' for "
            "other values"
        )
    return value


def _encode_msgpack(value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except (TypeError, OverflowError, ValueError) as error:
        raise UsageError(f"{value!r:.80} cannot be written as msgpack: {error}") from error
    except RecursionError as error:  # which to show it would meet, too
        raise UsageError(f"the value cannot be written as msgpack: {error}") from error


def _decode_msgpack(data: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(data)
    except (*UNREADABLE, ValueError) as error:
        raise CorruptCell(f"{data[:40]!r} is no msgpack: {error}") from error


CODECS: Final = {
    one.name: one
    for one in (
        ValueCodec("bytes", _same_bytes, bytes),
        ValueCodec("json", codec.JSON.encode, codec.JSON.decode),
        ValueCodec("msgpack", _encode_msgpack, _decode_msgpack),
    )
}


def codec_named(name: object) -> ValueCodec:
    """Return a codec by its name.

    Raises:
        UsageError: there is none of this name.
    """
    if isinstance(name, str) and name in CODECS:
        return CODECS[name]
    if name == "pickle":
        raise UsageError(
            "codec='pickle' is refused: whoever can write to the store could run code in every "
            "exporter; use json, msgpack, or bytes of your own making"
        )
    raise UsageError(f"codec={name!r} is none of {', '.join(CODECS)}")
