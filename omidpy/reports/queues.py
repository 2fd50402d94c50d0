"""Export queues: how far each is behind, and what was set aside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec

from omidpy.errors import NoSuchQueue, StorageError
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue import DeadLetter, Entry, ExportQueue, Lag


def counted(tm: TransactionManager) -> Iterator[tuple[str, Lag | StorageError]]:
    """Yield every queue that there is; one that is dropped meanwhile is none.

    Of one that cannot be read, as where its table is disabled, the reason.
    """
    for name in ExportQueue.names(tm):
        with contextlib.suppress(NoSuchQueue):
            try:
                yield name, ExportQueue.open(tm, name).counted()
            except StorageError as error:
                yield name, error


def lag_document(name: str, lag: Lag) -> dict[str, Any]:
    """Return how far a queue is behind as JSON."""
    document: dict[str, Any] = msgspec.to_builtins(lag)
    return {"queue": name, **document}


def letter_document(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as JSON."""
    return {
        **key_document(letter.key),
        "value": value_document(letter.value),
        "bucket": letter.bucket,
        "commit_ts": letter.seq[0],
        "ordinal": letter.seq[1],
        "start_ts": letter.start_ts,
        "state": letter.state,
        "reason": letter.reason,
        "changed_ts": letter.changed_ts,
    }


def key_document(key: bytes | None) -> dict[str, Any]:
    """Return a key as JSON has it: text, or hexadecimal where it is none."""
    if key is None:
        return {"key": None}
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key_hex": key.hex()}


def value_document(value: Any) -> Any:
    """Return a value as JSON can have it."""
    return value.hex() if isinstance(value, bytes) else value


def entry_document(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON."""
    return {
        **key_document(entry.key),
        "value": value_document(entry.value),
        "commit_ts": entry.commit_ts,
        "ordinal": entry.ordinal,
        "start_ts": entry.start_ts,
        "headers": dict(entry.headers),
    }
