"""Which idempotency keys were used?  One row a key, written by the transaction that used it.

The row is a cell of that transaction like any other, in a table of its own:

    OMIDPY_KEYS    <a byte of the key's hash> <table prefix> 00 <key>    k:t = 1

so everything that is true of commits is true of keys, and nothing else needs to be:

    a user begins     the commit timestamp of the row, if its snapshot sees one, is the answer: it
                      has every commit that was acknowledged, and of one that got no answer it sees
                      the commit entry, which is durable before any later start timestamp is given
    two use one key   both write the row, and the oracle lets one of them commit
    rolled back       no snapshot sees the row, so that the key is free

What the store remembers of a key is when its transaction committed: no result, and nothing of what
it was about.  The conflict level of the table is the same for every client (`Catalog`).  The byte
in front spreads keys that count upwards over the regions of the table.

A caller that knows more of what it was about writes it behind the `1`, as frames of Spark do: a
repetition that is about something else is then found out by them
(`omidpy/spark/frames/writes/once.py`).

Keys are forgotten by compactions (`compactor/pruning/keys.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import mmh3

from omidpy.base.cells import table_id
from omidpy.base.tables import KEYS_TABLE
from omidpy.base.words.arguments import check_bytes
from omidpy.errors import AlreadyCommitted, ConfigError, NoSuchTable, TableExists, UsageError
from omidpy.model import Timestamp, base
from omidpy.reading.snapshot import Snapshot
from omidpy.reading.visibility import cells_of
from omidpy.tx.session import Session

FAMILY: Final = b"k"
COLUMN: Final = b"k:t"
RUNS: Final = b"k:u"
"""Of a stream's row: which runs of its query have written.  It stands behind `COLUMN`."""
PASSED: Final = b"k:v"
"""Of such a row: which run has passed over a batch that another had written, as `RUNS`."""
USED: Final = b"1"
STREAM_MARK: Final = USED + b" stream "
"""What the value of a stream's row begins with: one row a stream, which is never forgotten, since a
query that stood still for however long may repeat its newest batch."""

MAX_KEY_BYTES: Final = 1024

KEYS_PREFIX: Final = b"keys/"
CREATED_ROW: Final = KEYS_PREFIX + b"created"
"""In the control table, once anybody has begun to make the table of keys."""


class Use(NamedTuple):
    """Which transaction has used a key, as a snapshot sees it."""

    start_ts: Timestamp
    commit_ts: Timestamp | None
    """None: it is the snapshot's own transaction, which has not committed yet."""
    value: bytes


def find_use(snapshot: Snapshot, row: bytes) -> Use | None:
    """Return which transaction has used the key of a row; None if none has.  Cost: 1 get."""
    for seen in cells_of(snapshot.read(KEYS_TABLE, (row,))[0]):
        start_ts = base(seen.cell.version)
        is_own = start_ts == snapshot.start_ts
        return Use(start_ts, None if is_own else seen.commit_ts, seen.cell.value)
    return None


def check_key(key: object) -> bytes:
    """Return `key` if it can be an idempotency key.

    Raises:
        TypeError: it is not bytes.
        UsageError: it is empty, or longer than `MAX_KEY_BYTES`.
    """
    checked = check_bytes("an idempotency key", key)
    if not 0 < len(checked) <= MAX_KEY_BYTES:
        raise UsageError(
            f"the idempotency key {checked[:40]!r} has {len(checked)} bytes; a key has 1 to "
            f"{MAX_KEY_BYTES}: use a hash of what is longer"
        )
    return checked


def keyed(key: object) -> Callable[..., bytes] | None:
    """Return what makes the key of a call from its arguments; None if calls have none.

    A function that gives no key raises, as `check_key` does: without one the call would be run as
    often as it is made.

    Raises:
        TypeError: `key` is neither bytes nor callable.
        UsageError: it is empty, or too long.
    """
    if key is None:
        return None
    if callable(key):
        return lambda *args, **kwargs: check_key(key(*args, **kwargs))
    if not isinstance(key, bytes):
        raise TypeError(
            f"idempotency_key must be bytes, or a function of the call's arguments, not {key!r:.80}"
        )
    fixed = check_key(key)
    return lambda *_, **__: fixed


def key_row(key: bytes, *, table_prefix: str) -> bytes:
    """Return the row of a key; managers with different prefixes have different keys."""
    scoped = table_prefix.encode() + b"\x00" + key
    return bytes((mmh3.hash(scoped, 0, signed=False) & 0xFF,)) + scoped


def open_keys(session: Session) -> None:
    """Make the table of keys, unless it is there.

    Where there was one before, a transaction that has begun before aborts, if it uses a key.

    Raises:
        ConfigError: it is not there, and this gateway cannot make it (Thrift1); or what is there
            was made by a user.

    Cost: nothing, but 1 look at the schema once in 5 s.
    """
    catalog = session.catalog
    try:
        layout = catalog.layout(KEYS_TABLE)
        if FAMILY not in layout.families:
            raise ConfigError(
                f"table {KEYS_TABLE} of {session.store.url} is not the one that omidpy makes for "
                "idempotency keys, whose family is 'k': earlier versions let users make one; drop "
                f"it, tm.drop_table({KEYS_TABLE!r}), and the next key makes the right one"
            )
    except NoSuchTable:
        if not session.store.capabilities.checked_changes:
            raise ConfigError(
                f"no key was ever used in {session.store.url}, and this gateway cannot make the "
                f"table {KEYS_TABLE}; use the first one through hbase:// or hbase+thrift2://"
            ) from None
        table = catalog.plan(KEYS_TABLE, [FAMILY], (), is_own=True)
        if not session.control.replace(CREATED_ROW, None, b"{}"):
            # As for every table: while there is none, writers of an earlier one are fenced off.
            session.oracle.fence(table_id(KEYS_TABLE))
        try:
            catalog.create(table)
        except TableExists:
            catalog.forget(KEYS_TABLE)


def used_before(
    key: bytes, *, start_ts: Timestamp, commit_ts: Timestamp | None
) -> AlreadyCommitted:
    """Return the error for a key that a transaction has used.

    Args:
        key: The key.
        start_ts: The transaction.
        commit_ts: When it committed; None: it is the one that asks, and has not yet.
    """
    if commit_ts is None:
        what = f"was used before in this transaction, {start_ts}"
    else:
        what = f"was used by transaction {start_ts}, which committed at {commit_ts}"
    return AlreadyCommitted(
        f"the idempotency key {key[:40]!r} {what}; nothing was written",
        key=key,
        start_ts=start_ts,
        commit_ts=commit_ts,
    )
