"""Entries that were set aside: the poison ones, and those that wait behind them.

A dead letter is a row of the queue's own table, written in the transaction that deletes the entry:
at every moment there is exactly one of the two.  It has one of three states:

    poison   it cannot be delivered, and `parks` says whether its key waits for it
    waits    it is in order, and stands behind a poison one of its key
    retry    it was asked to be tried again

What is due of a key is what stands before its first parking poison, in the old order.  Hence a
retry of that one releases all that wait behind it, and whatever of the key comes meanwhile is set
aside behind them until they have left.

Only the owner of a bucket sets entries aside, and says what has become of a retry.  But what it
writes is a transaction, which may commit when the bucket has been in other hands for long, whose
owner has delivered the entry and removed it.  Hence

    X11 (claims-first)  such a transaction looks whose the bucket is once it has begun, and writes
                        a cell of the bucket; who takes a bucket that was not given back commits a
                        write of the same cell before it looks into the bucket

so that the one of the two that commits second aborts, or is seen.  An owner that had no answer to
such a transaction of its own does the same before it looks again, and gives the bucket back as torn
if it does not come to that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from omidpy.base.documents import UNREADABLE, prepared
from omidpy.base.words.arguments import MAX_VALUE_BYTES
from omidpy.base.words.printable import storable
from omidpy.errors import CorruptCell, TransactionAborted
from omidpy.recipes.export_queue.entries.acknowledgement import remove_deleted
from omidpy.recipes.export_queue.entries.ordering import FoundEntry, Position
from omidpy.recipes.export_queue.entries.stored.layout import (
    COLUMN,
    claim_row,
    dead_row,
    decode_content,
    decode_dead,
    encode_dead,
    kept_row,
)
from omidpy.recipes.export_queue.entries.stored.state import GENERATION

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.recipes.export_queue.entries.possession import OwnedBucket
    from omidpy.recipes.export_queue.entries.view import DeadCell, View
    from omidpy.tx.table import TransactionalTable

POISON: Final = "poison"
WAITS: Final = "waits"
RETRY: Final = "retry"


MAX_REASON: Final = 4000
"""Characters of a reason that are kept."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a death."""

    state: str
    reason: str
    parks: bool
    """Whether later entries of the key wait for this one."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry that was set aside.

    Attributes:
        key: None where it cannot be read.
        bucket: The number of its bucket.
        seq: As `Entry.seq`.
        start_ts: When its transaction began.
        state: `poison`, `waits` or `retry`.
        reason: Why.
        value: As it was added; None where it cannot be read.
        changed_ts: The commit timestamp since which it is all of that.
    """

    key: bytes | None
    bucket: int
    seq: tuple[int, int]
    start_ts: int
    state: str
    reason: str
    value: Any
    changed_ts: int


@dataclass(frozen=True, slots=True)
class Grave:
    """A dead letter in its row."""

    found: FoundEntry
    key: bytes | None
    note: Note
    changed_ts: int
    """The commit timestamp since which it has this note."""


class Graves:
    """The dead letters of one bucket, as a snapshot sees them."""

    def __init__(self, cells: Iterable[DeadCell]) -> None:
        """Read them, in their order."""
        self._by_key: dict[bytes, list[Grave]] = {}
        self._alone: list[Grave] = []
        self._others = 0
        """How many are known by number alone."""
        for grave in map(_grave, cells):
            if grave.key is not None and grave.note.parks:
                self._by_key.setdefault(grave.key, []).append(grave)
            else:
                self._alone.append(grave)

    def is_parked(self, key: bytes) -> bool:
        """Say whether entries of a key are to be set aside, too."""
        return key in self._by_key

    def park(self, key: bytes) -> None:
        """Note that an entry of a key is set aside."""
        self._by_key.setdefault(key, [])

    def in_short(self) -> Graves:
        """Return what is to be known while none is due: which keys are parked, and how many."""
        short = Graves(())
        short._by_key = {key: [] for key in self._by_key}
        short._others = len(self)
        return short

    def due(self) -> list[Grave]:
        """Return what is to be delivered now; of each key in the old order."""
        due = [grave for grave in self._alone if grave.note.state == RETRY]
        for graves in self._by_key.values():
            for grave in graves:
                if grave.note.state == POISON:
                    break
                due.append(grave)
        return due

    def is_first(self, grave: Grave) -> bool:
        """Say whether one of a key is its first by now; who waits for no other always is."""
        if grave.key is None or not grave.note.parks:
            return True
        waiting = self._by_key.get(grave.key)
        return waiting is not None and any(one is grave for one in waiting[:1])

    def left(self, graves: Sequence[Grave]) -> None:
        """Note that graves are empty; a key that has none left is free."""
        for grave in graves:
            waiting = None if grave.key is None else self._by_key.get(grave.key)
            if waiting is not None and grave in waiting:
                waiting.remove(grave)
                if not waiting:
                    del self._by_key[grave.key or b""]

    def block(self, grave: Grave) -> None:
        """Note that one is poison again: nothing behind it is due."""
        waiting = [] if grave.key is None else self._by_key.get(grave.key, [])
        for at, other in enumerate(waiting):
            if other is grave:
                waiting[at] = replace(grave, note=poisoned(grave.note, ""))

    def __len__(self) -> int:
        """Return how many there are."""
        return self._others + len(self._alone) + sum(map(len, self._by_key.values()))

    def __iter__(self) -> Iterator[Grave]:
        """Yield all of them by position."""
        graves = [*self._alone, *(one for some in self._by_key.values() for one in some)]
        return iter(sorted(graves, key=lambda grave: grave.found.position))


def poisoned(note: Note, reason: str) -> Note:
    """Return the note of a dead letter that has failed once more."""
    return msgspec.structs.replace(note, state=POISON, reason=reason or note.reason)


Claim = Callable[["TransactionalTable"], object]
"""Makes a transaction one of the owner of a bucket, or raises `BucketLost`."""


@contextlib.contextmanager
def claimed(tm: TransactionManager, table: str, lease: OwnedBucket) -> Iterator[Claim]:
    """Yield what makes a transaction one of an owner (X11); behind it nothing is left of that.

    Where it ends without an answer, or is interrupted, the bucket is torn.

    Raises:
        BucketLost: the bucket is in other hands, and nothing was changed; also where the
            transaction was aborted for that.
    """
    row = claim_row(GENERATION, lease.bucket)

    def claim(log: TransactionalTable) -> None:
        lease.confirm()
        log.delete(row, [COLUMN])

    was_torn, lease.is_torn = lease.is_torn, True
    try:
        yield claim
    except TransactionAborted:
        lease.is_torn = was_torn
        lease.confirm()
        raise
    lease.is_torn = was_torn
    remove_deleted(tm.store, table_in_store(tm, table), [row])


def spoil_claims(tm: TransactionManager, table: str, bucket: int) -> None:
    """Let no transaction of an earlier owner commit any more (X11).

    Raises:
        OmidError: it is not known whether that was done.

    Cost: 1 transaction, and 1 get and 1 write.
    """
    row = claim_row(GENERATION, bucket)
    is_done = False
    while not is_done:
        # Where it aborts, a transaction of an earlier owner was first.
        with contextlib.suppress(TransactionAborted):
            with tm.begin() as tx:
                tx.table(table).delete(row, [COLUMN])
            is_done = True
    remove_deleted(tm.store, table_in_store(tm, table), [row])


def bury(
    tm: TransactionManager,
    table: str,
    bucket: int,
    dying: Sequence[tuple[FoundEntry, Note]],
    *,
    claim: Claim = lambda _: None,
) -> None:
    """Set entries aside, each with a note; those that are gone meanwhile are left alone.

    Raises:
        TransactionAborted: another did so at the same time; nothing was changed.
        BucketLost: the bucket is in other hands; nothing was changed.
    """
    rows = [found.row for found, _ in dying]
    with tm.begin() as tx:
        log = tx.table(table)
        claim(log)
        there = {row: data[COLUMN] for row, data in log.rows(rows, columns=[COLUMN])}
        for found, note in dying:
            if found.row in there:
                cell = _dead(note, there[found.row])
                log.put(_row_of(bucket, found), {COLUMN: cell})
                log.delete(found.row, [COLUMN])
    remove_deleted(tm.store, table_in_store(tm, table), rows)


def _dead(note: Note, content: bytes) -> bytes:
    """Return the cell of an entry with a note.

    Its reason may be what any receiver has raised: as much of it is kept as there is room for.
    """
    reason = storable(note.reason)[:MAX_REASON]
    while True:
        kept = msgspec.structs.replace(note, reason=reason)
        cell = encode_dead(msgspec.json.encode(kept), content)
        if len(cell) <= MAX_VALUE_BYTES or not reason:
            return cell
        reason = reason[: len(reason) // 2]


def rewrite(
    tm: TransactionManager,
    table: str,
    graves: Iterable[tuple[Grave, Note | None]],
    *,
    claim: Claim = lambda _: None,
) -> int:
    """Give dead letters other notes; None deletes one.

    Returns:
        How many that are: one whose note was changed since it was read is left alone.
    """
    with tm.begin() as tx:
        log = tx.table(table)
        claim(log)
        return rewrite_within(log, graves)


def rewrite_within(log: TransactionalTable, graves: Iterable[tuple[Grave, Note | None]]) -> int:
    """Do what `rewrite` does, in a transaction of the caller's."""
    count = 0
    for grave, note in graves:
        row = grave.found.row
        cell = log.row(row, columns=[COLUMN]).get(COLUMN)
        # Another operator may have asked for another try of what this one gives up.
        if cell is None or _parts(cell)[0] != grave.note:
            continue
        count += 1
        if note is None:
            log.delete(row, [COLUMN])
        else:
            log.put(row, {COLUMN: _dead(note, decode_dead(cell)[1])})
    return count


def keep(
    tm: TransactionManager, table: str, grave: Grave, *, claim: Claim = lambda _: None
) -> None:
    """Keep a dead letter that was delivered, for a replay; one that is gone is left alone.

    Raises:
        TransactionAborted: another changes it at the same time; nothing was changed.
    """
    row = grave.found.row
    with tm.begin() as tx:
        log = tx.table(table)
        claim(log)
        if (cell := log.row(row, columns=[COLUMN]).get(COLUMN)) is not None:
            log.put(kept_row(row), {COLUMN: decode_dead(cell)[1]})
            log.delete(row, [COLUMN])
    remove_deleted(tm.store, table_in_store(tm, table), [row])


def table_in_store(tm: TransactionManager, table: str) -> str:
    """Return the name that a manager's table has in the store."""
    return tm.session.catalog.full_name(table)


def graves_of(view: View, bucket: int) -> Graves:
    """Return the dead letters of a bucket."""
    return Graves(view.dead(bucket))


def _row_of(bucket: int, found: FoundEntry) -> bytes:
    commit_ts, ordinal = found.position
    return dead_row(GENERATION, bucket, commit_ts, found.start_ts, ordinal)


def _parts(cell: bytes) -> tuple[Note, bytes]:
    """Return the note of a dead letter and its entry; of one that cannot be read, why, and none."""
    try:
        raw_note, content = decode_dead(cell)
        return msgspec.json.decode(raw_note, type=prepared(Note)), content
    except (CorruptCell, *UNREADABLE) as error:
        return Note(state=POISON, reason=str(error), parks=False), b""


def _grave(cell: DeadCell) -> Grave:
    note, content = _parts(cell.cell)
    try:
        key = decode_content(content).key
    except CorruptCell:
        key = None
    size_bytes = len(cell.row) + len(content)
    found = FoundEntry(Position(*cell.position), cell.start_ts, cell.row, content, size_bytes)
    return Grave(found, key, note, cell.changed_ts)
