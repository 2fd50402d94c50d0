"""An entry as JSON, for receivers that are told about it in text.  Pure.

    {"queue", "key" or "key_hex", "value" or "value_hex", "commit_ts", "ordinal", "start_ts",
     "headers"}

Bytes that are UTF-8 are text; others come in hexadecimal, under the other name.  Within a value
bytes are hexadecimal, and where they name what is in a map, as columns do of a recorded row, they
are text (`tx/frames/names.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from omidpy.tx.frames.names import text_of

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.exporter import Batch, Entry

ORDINAL_BYTES: Final = 21
"""The longest one."""


def document(batch: Batch, entry: Entry) -> dict[str, Any]:
    """Return an entry as a JSON document."""
    return {
        "queue": batch.queue,
        **_named("key", entry.key),
        **_named("value", entry.value),
        "commit_ts": entry.commit_ts,
        "ordinal": entry.ordinal,
        "start_ts": entry.start_ts,
        "headers": dict(entry.headers),
    }


def encoded_value(value: Any) -> bytes:
    """Return a value as bytes: those that it is, else JSON."""
    if isinstance(value, bytes):
        return value
    return _json(value, separators=(",", ":")).encode()


def line(batch: Batch, entry: Entry) -> bytes:
    """Return an entry as one line of JSON."""
    return _json(document(batch, entry)).encode() + b"\n"


def sortable_ordinal(entry: Entry) -> bytes:
    """Return the ordinal as bytes that order as it does."""
    return entry.ordinal.to_bytes(ORDINAL_BYTES, "big")


def _named(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, bytes):
        return {name: value}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_hex": value.hex()}


def _json(value: Any, separators: tuple[str, str] | None = None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=separators, default=_hex)
    except TypeError:  # a map has names of which JSON knows nothing, such as bytes
        plain = _with_text_names(value)
        return json.dumps(plain, ensure_ascii=False, separators=separators, default=_hex)


def _with_text_names(value: Any) -> Any:
    """Return a value whose maps have names that JSON can write.

    Raises:
        ValueError: two of a map would have one name.
    """
    if isinstance(value, Mapping):
        named = {_name_of(name): _with_text_names(one) for name, one in value.items()}
        if len(named) < len(value):
            raise ValueError("two names in a map of the value are one as JSON writes them")
        return named
    if isinstance(value, list | tuple):
        return [_with_text_names(one) for one in value]
    return value


def _name_of(name: object) -> Any:
    if isinstance(name, bytes):
        return text_of(name)
    return name if isinstance(name, str | int | float | None) else str(name)


def _hex(value: object) -> str:
    """Return what JSON has no form for: msgpack knows bytes, and moments."""
    return value.hex() if isinstance(value, bytes) else str(value)
