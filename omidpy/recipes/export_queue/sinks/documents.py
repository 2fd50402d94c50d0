"""An entry as JSON, for receivers that are told about it in text.  Pure.

    {"queue", "key" or "key_hex", "value" or "value_hex", "commit_ts", "ordinal", "start_ts",
     "headers"}

Bytes that are UTF-8 are text; others come in hexadecimal, under the other name.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

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
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_hex).encode()


def line(batch: Batch, entry: Entry) -> bytes:
    """Return an entry as one line of JSON."""
    text = json.dumps(document(batch, entry), ensure_ascii=False, default=_hex)
    return text.encode() + b"\n"


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


def _hex(value: object) -> str:
    """Return what JSON has no form for: msgpack knows bytes, and moments."""
    return value.hex() if isinstance(value, bytes) else str(value)
