"""Numbers what the writers of one transaction add, so that no two additions are ever the same.

    owner    4 bytes: a count from 0
    worker   FF, 16 bytes that no other worker has, 4 bytes: a count from 0

They order by their bytes: what the owner added first, and then what each worker did, in an order
that means nothing but never changes.  No number is used twice (X3), not even where a savepoint was
undone.

Attempts of one task must write the same cells, so that a worker that names its task is told apart
by that, and by its id otherwise.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from omidpy.errors import UsageError

COUNT_BYTES: Final = 4
WORKER_MARK: Final = b"\xff"
WORKER_BYTES: Final = 16
MAX_COUNT: Final = 0xFF000000
"""Below it, the first byte of an owner's number is no mark of a worker."""


class Ordinals:
    """The numbers of one writer.  Belongs to one thread, as its transaction does."""

    def __init__(self, prefix: bytes = b"") -> None:
        """Begin at 0, behind `prefix`, which is empty for the owner."""
        self._prefix = prefix
        self._counts = itertools.count()

    def take(self) -> bytes:
        """Return the next number.

        Raises:
            UsageError: there are no more.
        """
        count = next(self._counts)
        if count >= MAX_COUNT:
            raise UsageError(f"a transaction adds at most {MAX_COUNT} entries; begin another one")
        return self._prefix + count.to_bytes(COUNT_BYTES, "big")


def of_worker(worker_id: str, task: str | None) -> Ordinals:
    """Return the numbers of a worker."""
    name = f"worker {worker_id}" if task is None else f"task {task}"
    return Ordinals(WORKER_MARK + hashlib.sha256(name.encode()).digest()[:WORKER_BYTES])


class Adding(Protocol):
    """An export queue as one transaction sees it."""

    def add(self, key: bytes, value: object, *, headers: Mapping[str, str] | None = None) -> None:
        """Add an entry, which is in the queue if and only if the transaction commits."""
        ...

    def add_all(self, pairs: Iterable[tuple[bytes, object]]) -> None:
        """Add an entry for each (key, value), in this order."""
        ...

    def record(self, tables: Iterable[str]) -> None:
        """Add an entry for each row of some tables that the transaction will have changed."""
        ...
