"""What is done once, however often Spark asks for it: a write by its key, a batch of its stream.

Both are a row of the table of keys (`omidpy/tx/keys.py`), which the transaction writes that does
the work, so that work and note are one commit:

    a write    a row a key, which says what was written too: columns of which table, and which one
               of its name.  The same key for something else is a mistake, by which a write would be
               missing, and is refused: also for a table that was made anew, and has none of it
    a batch    a row a stream, with the number of its newest batch and the query that wrote it.
               Spark repeats no batch but the newest, and that as the first of a run; an older one,
               or another query, is a checkpoint that was lost or put back, and is refused.  So is
               a batch that another run has written, when this one has written the batch before:
               both go on from copies of one checkpoint, and each would pass over what the other
               has written under a number that is not of the same rows.  A run that passes over
               what another has written notes that, too: it may do so with the batch that it
               begins with, and with no later one

A driver that finds that it has happened writes nothing.  Of two at a time the oracle refuses one,
by the conflict on the row, and that one finds it then.

Lacks a digest of the rows.  They would have to be computed to be compared, and the rows of a
repetition may differ for good reasons: what they are read from has changed meanwhile.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from omidpy.base.tables import KEYS_TABLE
from omidpy.errors import NoSuchTable, UsageError
from omidpy.model import KeyRange
from omidpy.tx.frames.shape import Shape
from omidpy.tx.keys import (
    COLUMN,
    PASSED,
    RUNS,
    STREAM_MARK,
    USED,
    check_key,
    find_use,
    key_row,
    used_before,
)
from omidpy.tx.transaction import Transaction

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager

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

    def pass_over(self, tm: TransactionManager) -> None:
        """Take note that it is not done, because it was."""
        ...


@dataclass(frozen=True, slots=True)
class KeyedWrite:
    """One write of a frame, named by a key."""

    key: bytes
    table: str
    """As the transaction calls it."""
    digest: str
    """Of what is written: the same for repetitions, and most likely another for anything else."""

    def check(self, tx: Transaction) -> None:
        """See `Once`; what is not known to be about something else is taken for it."""
        use = find_use(tx.snapshot, _row(tx, self.key))
        if use is None:
            return
        # Its own note says what it was about to do, and perhaps has done: nothing is refused then.
        if use.value.startswith(_WRITE) and use.start_ts != tx.start_ts:
            self._compare(tx, use.value.removeprefix(_WRITE).decode(errors="backslashreplace"))
        raise used_before(self.key, start_ts=use.start_ts, commit_ts=use.commit_ts)

    def _compare(self, tx: Transaction, before: str) -> None:
        """Refuse a key that was used for something else.

        Raises:
            UsageError: it says for what.
        """
        table, digest, which = [*before.split(" "), "", ""][:3]
        name = tx.session.catalog.full_name(self.table)
        what = f"the idempotency key {self.key[:40]!r} was used for"
        if (table, digest) != (name, self.digest):
            raise UsageError(
                f"{what} another write, of {_named(table, digest)}, while this one is of "
                f"{_named(name, self.digest)}; nothing was written: give each write a key of its "
                "own"
            )
        # One that does not say it was written by an earlier version.
        if which and which != self._incarnation(tx):
            raise UsageError(
                f"{what} this write of an earlier table {name!r}, which was dropped or truncated "
                "since, and with it what was written; nothing was written now: give a write of the "
                "new table a key of its own"
            )

    def _incarnation(self, tx: Transaction) -> str:
        """Return which table of its name it is; if that is another by the commit, this aborts."""
        try:
            return tx.table(self.table).layout.incarnation
        except NoSuchTable:
            return ""

    def pass_over(self, tm: TransactionManager) -> None:
        """See `Once`: of a write there is nothing to note."""

    def note(self, tx: Transaction) -> None:
        """See `Once`."""
        words = tx.session.catalog.full_name(self.table), self.digest, self._incarnation(tx)
        about = " ".join(words).rstrip().encode()
        tx.table(KEYS_TABLE).put(_row(tx, self.key), {COLUMN: _WRITE + about})


def keyed_write(
    key: bytes, table: str, shape: Shape, replaced: KeyRange | None = None
) -> KeyedWrite:
    """Return a write that is named by a key.

    Args:
        key: 1 to 1024 bytes.
        table: The table, as the transaction calls it.
        shape: The columns.
        replaced: The rows that it replaces.

    Raises:
        UsageError: the key is empty or too long.
    """
    says = [part.name for part in shape.key.parts], shape.rest, replaced
    columns = [(one.name, one.column, one.is_counter) for one in shape.fields]
    digest = hashlib.sha256(repr((says, columns)).encode()).hexdigest()[:16]
    return KeyedWrite(check_key(key), table, digest)


class _Runs(NamedTuple):
    """Which runs of a query have written its newest batches."""

    number: int = -1
    """Of the newest batch."""
    writer: str = ""
    """The run that has written it."""
    before: str = ""
    """The run that had written the one before."""


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """One batch of a stream."""

    stream: str
    """The query's id, or the name that the stream was given."""
    query: str
    number: int
    run: str = ""
    """Which start of the query it is; empty where that is not known."""

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
                f"{self._replaced_by(self._runs(tx))}its checkpoint was put back, and nobody knows "
                "what of it is written; go on with a new checkpoint, and with another app_id if "
                "one is given"
            )
        if self.number == int(number):
            runs = self._runs(tx)
            if self._is_anothers(runs) and (runs.before == self.run or self._has_passed(tx)):
                raise UsageError(
                    f"batch {self.number} of the stream {self.stream!r} was written by another run "
                    f"of the query, {runs.writer}, while this one, {self.run}, goes on: "
                    f"{self._replaced_by(runs)}the two have copies of one checkpoint, and rows "
                    "that only one of them has read may be missing or be written twice; stop both, "
                    "and go on with a new checkpoint"
                )
            raise used_before(self.key, start_ts=use.start_ts, commit_ts=use.commit_ts)

    def _replaced_by(self, runs: _Runs) -> str:
        """Say that nothing is wrong where this run stood still; no fact tells that from a copy."""
        if not self.run or runs.writer in {"", self.run}:
            return ""
        return (
            f"if run {runs.writer} has taken this one's place, which stood still, with its very "
            "checkpoint, all is well, and that one goes on alone; else "
        )

    def note(self, tx: Transaction) -> None:
        """See `Once`."""
        value = b"%b%d %b" % (STREAM_MARK, self.number, self.query.encode())
        before = self._runs(tx).writer
        runs = b"%b%d %b %b" % (STREAM_MARK, self.number, self.run.encode(), before.encode())
        tx.table(KEYS_TABLE).put(_row(tx, self.key), {COLUMN: value, RUNS: runs})

    def pass_over(self, tm: TransactionManager) -> None:
        """See `Once`: another run may have written the batch that this one begins with.

        Cost: 1 transaction where another has.
        """
        for attempt in tm.attempts():
            with attempt as tx:
                if self._is_anothers(self._runs(tx)) and not self._has_passed(tx):
                    value = b"%b%d %b" % (STREAM_MARK, self.number, self.run.encode())
                    tx.table(KEYS_TABLE).put(_row(tx, self.key), {PASSED: value})

    def _is_anothers(self, runs: _Runs) -> bool:
        """Say whether it is known that another run has written this batch."""
        return bool(self.run) and runs.number == self.number and runs.writer != self.run

    def _has_passed(self, tx: Transaction) -> bool:
        """Say whether this run has passed over an earlier batch that another one had written."""
        found = tx.table(KEYS_TABLE).row(_row(tx, self.key), [PASSED]).get(PASSED)
        if found is None:
            return False
        number, _, run = found.removeprefix(STREAM_MARK).decode().partition(" ")
        return run == self.run and int(number) < self.number

    def _runs(self, tx: Transaction) -> _Runs:
        """Return which runs have written; none where an earlier version has, or nobody."""
        found = tx.table(KEYS_TABLE).row(_row(tx, self.key), [RUNS]).get(RUNS)
        if found is None:
            return _Runs()
        number, writer, before = found.removeprefix(STREAM_MARK).decode().split(" ")
        return _Runs(int(number), writer, before)

    @property
    def key(self) -> bytes:
        """Its key, among those of writes."""
        return _STREAM_KEY + self.stream.encode()


def _row(tx: Transaction, key: bytes) -> bytes:
    return key_row(check_key(key), table_prefix=tx.session.catalog.table_prefix)


def _named(table: str, digest: str) -> str:
    return f"table {table!r} (columns {digest})"
