"""What is done once, however often Spark asks for it: a write by its key, a batch of its stream.

Both are a row of the table of keys (`omidpy/tx/keys.py`), which the transaction writes that does
the work, so that work and note are one commit:

    a write    a row a key, which says what was written too: columns of which table.  The same key
               for something else is a mistake, by which a write would be missing, and is refused
    a batch    a row a stream, with the number of its newest batch and the query that wrote it.
               Spark repeats no batch but the newest; an older one, or another query, is a
               checkpoint that was lost or put back, and is refused

A driver that finds that it has happened writes nothing.  Of two at a time the oracle refuses one,
by the conflict on the row, and that one finds it then.

Lacks a digest of the rows.  They would have to be computed to be compared, and the rows of a
repetition may differ for good reasons: what they are read from has changed meanwhile.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, Protocol

from omidpy.base.tables import KEYS_TABLE
from omidpy.errors import UsageError
from omidpy.model import KeyRange
from omidpy.tx.frames.shape import Shape
from omidpy.tx.keys import (
    COLUMN,
    STREAM_MARK,
    USED,
    check_key,
    find_use,
    key_row,
    used_before,
)
from omidpy.tx.transaction import Transaction

_WRITE: Final = USED + b" write "
_STREAM_KEY: Final = b"\x00stream\x00"
"""What the keys of streams begin with, beside those of writes."""


class Once(Protocol):
    """What is to be done by one transaction."""

    def check(self, tx: Transaction) -> None:
        """Raise if it is not to be done, as `tx` sees it.

        Raises:
            AlreadyCommitted: another transaction has done it; or `tx` itself was about to.
            UsageError: something else was done in its place.

        Cost: 1 get.
        """
        ...

    def note(self, tx: Transaction) -> None:
        """Write that `tx` does it."""
        ...


@dataclass(frozen=True, slots=True)
class KeyedWrite:
    """One write of a frame, named by a key."""

    key: bytes
    about: str
    """What is written: the same for repetitions, and most likely another for anything else."""

    def check(self, tx: Transaction) -> None:
        """See `Once`; what is not known to be about something else is taken for it."""
        use = find_use(tx.snapshot, _row(tx, self.key))
        if use is None:
            return
        before = use.value.removeprefix(_WRITE).decode(errors="backslashreplace")
        if use.value.startswith(_WRITE) and before != self.about:
            raise UsageError(
                f"the idempotency key {self.key[:40]!r} was used for another write, of "
                f"{_named(before)}, while this one is of {_named(self.about)}; nothing was "
                "written: give each write a key of its own"
            )
        raise used_before(self.key, start_ts=use.start_ts, commit_ts=use.commit_ts)

    def note(self, tx: Transaction) -> None:
        """See `Once`."""
        tx.table(KEYS_TABLE).put(_row(tx, self.key), {COLUMN: _WRITE + self.about.encode()})


def keyed_write(
    key: bytes, table: str, shape: Shape, replaced: KeyRange | None = None
) -> KeyedWrite:
    """Return a write that is named by a key.

    Args:
        key: 1 to 1024 bytes.
        table: The table's name in the store.
        shape: The columns.
        replaced: The rows that it replaces.

    Raises:
        UsageError: the key is empty or too long.
    """
    says = [part.name for part in shape.key.parts], shape.rest, replaced
    columns = [(one.name, one.column, one.is_counter) for one in shape.fields]
    digest = hashlib.sha256(repr((says, columns)).encode()).hexdigest()[:16]
    return KeyedWrite(check_key(key), f"{table} {digest}")


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """One batch of a stream."""

    stream: str
    """The query's id, or the name that the stream was given."""
    query: str
    number: int

    def check(self, tx: Transaction) -> None:
        """See `Once`."""
        use = find_use(tx.snapshot, _row(tx, self.key))
        if use is None:
            return
        number, _, query = use.value.removeprefix(STREAM_MARK).decode().partition(" ")
        if query != self.query:
            raise UsageError(
                f"the stream {self.stream!r} is that of another query, {query}, which has written "
                f"up to batch {number}; this one, {self.query}, has another checkpoint and would "
                "write rows again: go on with the checkpoint of that one, or give this one "
                "another app_id"
            )
        if self.number < int(number):
            raise UsageError(
                f"batch {self.number} of the stream {self.stream!r} comes behind batch {number}: "
                "its checkpoint was put back, and nobody knows what of it is written; go on with "
                "a new checkpoint, and with another app_id if one is given"
            )
        if self.number == int(number):
            raise used_before(self.key, start_ts=use.start_ts, commit_ts=use.commit_ts)

    def note(self, tx: Transaction) -> None:
        """See `Once`."""
        value = b"%b%d %b" % (STREAM_MARK, self.number, self.query.encode())
        tx.table(KEYS_TABLE).put(_row(tx, self.key), {COLUMN: value})

    @property
    def key(self) -> bytes:
        """Its key, among those of writes."""
        return _STREAM_KEY + self.stream.encode()


def _row(tx: Transaction, key: bytes) -> bytes:
    return key_row(check_key(key), table_prefix=tx.session.catalog.table_prefix)


def _named(about: str) -> str:
    table, _, digest = about.rpartition(" ")
    return f"table {table!r} (columns {digest})"
