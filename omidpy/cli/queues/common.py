"""What the verbs of `omidpy export` share: a manager, a queue, and moments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeAlias

import typer

from omidpy.base.words.moments import moment
from omidpy.cli.common import opened
from omidpy.connect import connect
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue import ExportQueue

__all__ = [
    "OptionalQueueId",
    "QueueId",
    "key_text",
    "managed",
    "moment",
    "opened_queue",
]

QueueId: TypeAlias = Annotated[str, typer.Argument(metavar="QUEUE", help="The id of the queue.")]
OptionalQueueId: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="QUEUE", help="The id of a queue; without it, all of them.")
]


@contextmanager
def managed(store: str, tso: str | None) -> Iterator[TransactionManager]:
    """Open a store that exists, with its oracle."""
    with opened(store):
        pass  # says what is missing, and makes nothing
    with connect(store, tso=tso) as tm:
        yield tm


@contextmanager
def opened_queue(store: str, tso: str | None, queue_id: str) -> Iterator[ExportQueue]:
    """Open a queue that exists."""
    with managed(store, tso) as tm:
        yield ExportQueue.open(tm, queue_id)


def key_text(key: bytes | None) -> str:
    """Return a key as people read it."""
    return "?" if key is None else key.decode("utf-8", errors="backslashreplace")
