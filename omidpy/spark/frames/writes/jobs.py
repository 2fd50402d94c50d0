"""One write of a frame as one transaction: begun in one process, ended in another, tasks between.

    begin    draws the transaction, makes sure that its table can be written, and takes a token
    run      in a task: resumes the token, writes, and hands its part back
    commit   merges one part of each task, and commits: whole, or not at all
    abort    forbids the commit, and removes what tasks have written

The process that begins it goes; the token names the transaction.  Until a driver commits it nothing
of it is visible, and if none ever does, the compactor removes it: a driver may be killed anywhere.

What is to be done once is noted in the transaction (`once.py`), by the process that commits: the
one that began it must have written nothing.

    J1  only `commit` asks the oracle for a commit, and after it no cell is removed before the
        outcome is known to be an abort

Attempts of a task write identical cells: each reads the snapshot alone, without what an attempt
before it has written (`FrameWriter`).
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from omidpy.base.collector import paused_collector
from omidpy.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    OmidError,
    TransactionAborted,
    TransactionClosed,
    UsageError,
)
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, Cell, Committed, KeyRange, Outcome, Timestamp
from omidpy.spark.frames.places import Place
from omidpy.spark.frames.writes import several
from omidpy.spark.frames.writes.once import Once
from omidpy.storage.base import WHOLE_TABLE
from omidpy.tx.frames.marking import Marking
from omidpy.tx.frames.shape import OP, Shape
from omidpy.tx.frames.writing import FrameWriter, twice
from omidpy.tx.keys import open_keys
from omidpy.tx.parts.tokens import decode_part, decode_token, rows_of
from omidpy.tx.parts.worker import Worker
from omidpy.tx.session import Session
from omidpy.tx.transaction import Transaction

log = logging.getLogger(__name__)

COMPRESSION: Final = 1
"""Of parts on their way to the driver: names of cells have much in common."""


@dataclass(frozen=True, slots=True)
class Job:
    """One write; it travels to tasks."""

    place: Place
    table: str
    shape: Shape
    token: bytes = field(repr=False)
    """Empty, where tasks commit transactions of their own."""
    name: str
    """Tasks of two writes in one transaction are told apart by it."""
    nulls: str = "keep"
    is_conflict_free: bool = False
    rows_per_transaction: int | None = None
    has_ops: bool = False
    """Whether rows of the frame may be deleted, by its column `_op`."""
    has_end: bool = False
    """Whether its tasks, which commit transactions of their own, are ended with it."""
    client: int | None = field(default=None, repr=False)
    """The client that began the transaction, to the oracle, which lets no other commit it."""
    replaced: KeyRange | None = None
    """The rows of which nothing stays but what the frame has."""
    once: Once | None = None
    """What it is, if it is to be done once."""
    done_ts: int | None = None
    """When an earlier transaction has done it: there is nothing to do."""


def check_target(tx: Transaction, table: str, shape: Shape) -> None:
    """Refuse a table that cannot be written so.

    Raises:
        NoSuchTable, NoSuchFamily, NotTransactional, ConfigError: there is no such table or family,
            or its conflict level is being changed.
        UsageError: it is one of Phoenix's whose rows would lack their empty column.
    """
    layout = tx.table(table).layout
    for family in shape.families():
        layout.check_family(family)
    tx.check_unindexed(layout)
    Marking(layout, shape)


def check_size(
    session: Session, table: str, shape: Shape, rows: int | None, *, is_conflict_free: bool
) -> None:
    """Refuse a write set that the oracle would refuse, before any of it is written.

    Args:
        session: Knows how many cells one commit may have.
        table: Its name, which says whether cells or rows count.
        shape: How many each row has; those in a map are not known, and counted as one.
        rows: How many rows there are; None: that is not known, and the commit finds out.
        is_conflict_free: The oracle is shown none of the cells.

    Raises:
        UsageError: with the estimate, and the ways out.
    """
    most = session.oracle.max_commit_cells
    if rows is None or most is None or is_conflict_free:
        return
    catalog = session.catalog
    is_by_row = catalog.layout(catalog.full_name(table)).conflict_level == "row"
    cells = rows * (1 if is_by_row else max(len(shape.fields), 1))
    if cells < most:
        return
    raise UsageError(
        f"{rows} rows would be about {cells} {'rows' if is_by_row else 'cells'} in one commit, and "
        f"the oracle takes {most - 1}; nothing was written.  Write them in several transactions "
        "(rows_per_transaction=100000), or without conflict detection, if nobody else writes these "
        "cells meanwhile (conflict='free'); or give the table conflict_level='row', or start "
        "tso-server with a larger --conflict-map-size"
    )


def check_counters(
    shape: Shape, *, is_conflict_free: bool, rows_per_transaction: int | None = None
) -> None:
    """Refuse to add to counters where an amount could be lost, or added twice.

    Raises:
        UsageError: nothing was written.
    """
    counters = ", ".join(one.name for one in shape.fields if one.is_counter)
    if counters and is_conflict_free:
        raise UsageError(
            f"the counters {counters} cannot be written with conflict='free': two transactions "
            "would count once"
        )
    if counters and rows_per_transaction is not None:
        raise UsageError(
            f"the counters {counters} cannot be written with rows_per_transaction: a task that "
            "Spark runs again would add once more; write them in one transaction"
        )


def check_base(tx: Transaction, table: str, shape: Shape, names: Sequence[str]) -> None:
    """Refuse deletes and counters where the transaction has written the table before.

    Tasks read what they depend on from the snapshot, where that is not.

    Args:
        tx: The transaction.
        table: The table's name in the store.
        shape: The columns.
        names: Those of the frame.

    Raises:
        UsageError: nothing was written.
    """
    if OP not in names and not any(one.is_counter for one in shape.fields):
        return
    if any(name.table == table for name, _ in tx.changes()):
        raise UsageError(
            f"transaction {tx.start_ts} has written to table {table!r} before, which the tasks of "
            "a frame with deletes or counters would not see; write that frame first"
        )


@contextmanager
def handing_on(place: Place) -> Iterator[TransactionManager]:
    """Open a store to begin in it what another process ends, and is held until then.

    What is not begun after all is held no longer than for any process that has gone.
    """
    client: int | None = None
    try:
        with place.connect(hands_on=True) as tm:
            client = getattr(tm.oracle, "client", None)
            yield tm
    except BaseException:
        if client is not None:
            with suppress(OmidError):
                place.connect(client).close()
        raise


def begin(
    tm: TransactionManager,
    table: str,
    shape: Shape,
    *,
    hold_s: float,
    once: Once | None = None,
    is_fencing: bool = False,
) -> bytes:
    """Begin a transaction that another process ends; return its token.

    Args:
        tm: Of the store.
        table: What will be written.
        shape: The columns.
        hold_s: For how long age alone does not abort it.
        once: What it is, if it is to be done once.
        is_fencing: Abort the transactions that began before, and write the table.

    Raises:
        AlreadyCommitted: it was done by another transaction.
        UsageError: its key was used for something else.
        OmidError: as `check_target`.
    """
    if once is not None:
        open_keys(tm.session)
    if is_fencing:
        fence(tm, table, shape, once)
    tx = tm.begin(hold_s=hold_s)
    try:
        check_target(tx, table, shape)
        if once is not None:
            once.check(tx)
        return tx.token()
    except BaseException:
        tx.rollback()
        raise


def fence(tm: TransactionManager, table: str, shape: Shape, once: Once | None) -> None:
    """Let no transaction that has begun commit a write of a table; the next ones may.

    What is wrong with the write is said before: no transaction is aborted for nothing.

    Raises:
        OmidError: as `begin`.

    Cost: 2 oracle round trips.
    """
    tx = tm.begin()
    try:
        check_target(tx, table, shape)
        if once is not None:
            once.check(tx)
    finally:
        tx.rollback()
    tm.fence(table)


def run(job: Job, batches: Iterable[Any], task: int, attempt: int = 0) -> bytes:
    """Write what one task has, in the job's transaction; return its part, compressed.

    Args:
        job: The job.
        batches: What to write.
        task: Its number.
        attempt: Which attempt at it this is, where it commits transactions of its own; one that
            begins later has a greater number.

    Raises:
        TransactionClosed: the job has ended without this task.
        UsageError: a row cannot be written.
    """
    if job.done_ts is not None:
        return b""
    with job.place.connect() as tm:
        if job.rows_per_transaction is not None:
            _run_in_several(tm, job, batches, job.rows_per_transaction, task, attempt)
            return b""
        worker = tm.resume(job.token, task=f"{job.name}-{task}")
        _write(tm, worker, job, batches)
        with paused_collector():
            return zlib.compress(worker.finish(), COMPRESSION)


def _write(tm: TransactionManager, worker: Worker, job: Job, batches: Iterable[Any]) -> None:
    target = worker.table(job.table, conflict_free=job.is_conflict_free)
    base = _Before(tm, worker.start_ts, job.table)
    where = WHOLE_TABLE if job.replaced is None else job.replaced
    writer = FrameWriter(
        target, job.shape, nulls=job.nulls, base=base, bulk=target.writes, key_range=where
    )
    for batch in batches:
        # Not while the rows are computed, which may be somebody else's Python.
        with paused_collector():
            writer.write(batch)


class _Before:
    """The table as the transaction's snapshot has it, without a cell of the transaction itself."""

    def __init__(self, tm: TransactionManager, start_ts: int, table: str) -> None:
        self._tm = tm
        self._start_ts = start_ts
        self._table = table
        self._tx: Transaction | None = None

    def rows(
        self, rows: Sequence[bytes], columns: Iterable[bytes] | None = None
    ) -> list[tuple[bytes, dict[bytes, Any]]]:
        """Read several rows in one call."""
        if self._tx is None:
            self._tx = self._tm.snapshot(self._start_ts)
        return self._tx.table(self._table).rows(rows, columns)


def _run_in_several(
    tm: TransactionManager,
    job: Job,
    batches: Iterable[Any],
    most_rows: int,
    task: int,
    number: int,
) -> None:
    for some in several.groups(batches, most_rows):
        for attempt in tm.attempts():
            with attempt as tx:
                if job.has_end:
                    several.check_under_way(tx, job.name, task, number)
                target = tx.table(job.table, conflict_free=job.is_conflict_free)
                writer = FrameWriter(target, job.shape, nulls=job.nulls, bulk=target.writes)
                for batch in some:
                    writer.write(batch)
    if job.has_end:
        for attempt in tm.attempts():
            with attempt as tx:
                several.check_under_way(tx, job.name, task, number, is_last=True)


def merge(tx: Transaction, parts: Iterable[bytes], *, has_ops: bool = False) -> None:
    """Count what tasks have written as the transaction's.

    Args:
        tx: The transaction.
        parts: Of its tasks.
        has_ops: Whether rows may have been deleted: then two tasks may have one, and no cell of it
            both, so that nobody else sees that the frame has it twice.

    Raises:
        UsageError: it has; the transaction can only be rolled back.
    """
    seen: set[bytes] = set()
    with paused_collector():
        for part in parts:
            if not part:
                continue
            plain = zlib.decompress(part)
            if has_ops:
                rows = rows_of(plain)
                if not seen.isdisjoint(rows):
                    raise twice(next(row for row in rows if row in seen))
                seen.update(rows)
            tx.merge(plain)


def commit(job: Job, parts: Sequence[bytes]) -> int | None:
    """Merge one part of each task, and commit; return the commit timestamp.

    An answer that does not come is found out: what has committed is no failure.  Neither is what
    was done before, by another transaction; then what tasks have written is removed, and the commit
    timestamp is that of the other.

    Returns:
        None: tasks have committed, or there was nothing to write, or it is not known when it was.

    Raises:
        TransactionAborted: nothing is visible, and nothing will be.
        CommitOutcomeUnknown: no answer came; `tm.outcome(start_ts)` may tell later.
    """
    if job.done_ts is not None:
        return job.done_ts
    if job.rows_per_transaction is not None:
        if job.has_end:
            with _opened(job) as tm:
                several.end(tm, job.name, len(parts))
        return None
    with _opened(job) as tm:
        try:
            commit_ts = _commit(tm, job, parts)
        except AlreadyCommitted as before:
            commit_ts = before.commit_ts
            if job.once is not None:
                job.once.pass_over(tm)
            log.info("nothing was written to table %s: %s", job.table, before)
        else:
            log.info("a frame was written to table %s at %s", job.table, commit_ts)
        return commit_ts


def _commit(tm: TransactionManager, job: Job, parts: Sequence[bytes]) -> Timestamp | None:
    """Do what `commit` does.

    Raises:
        AlreadyCommitted: another transaction has done it, and this one never commits.
    """
    once = job.once
    if once is not None:
        open_keys(tm.session)
    tx = Transaction.reopened(tm.session, job.token)
    try:
        if once is not None:
            use_once(tx, once)
        tx.table(job.table)
        merge(tx, parts, has_ops=job.has_ops)
        if job.replaced is not None:
            _replace(tm, tx, job, job.replaced)
        tx.commit()
    except CommitOutcomeUnknown as error:
        outcome = _outcome(tm, tx, parts)
        if isinstance(outcome, Aborted):
            check_once(tm, once)
            raise TransactionAborted(
                f"the write of a frame to table {job.table!r} was aborted: {error}"
            ) from error
        if not isinstance(outcome, Committed):
            raise
        return outcome.commit_ts
    except TransactionAborted:
        check_once(tm, once)
        raise
    return tx.commit_ts


def _replace(tm: TransactionManager, tx: Transaction, job: Job, rows: KeyRange) -> None:
    """Delete what the snapshot has in a range, and no task has written.

    Cost: a scan of the range; memory for the names of all cells of the transaction.
    """
    target = tx.table(job.table, conflict_free=job.is_conflict_free)
    written = {
        (name.row, name.family + b":" + name.qualifier)
        for name, _ in tx.changes()
        if name.table == target.name
    }
    before = tm.snapshot(tx.start_ts).table(job.table)
    for row, cells in before.scan(rows.start or None, rows.end or None):
        if gone := [column for column in cells if (row, column) not in written]:
            target.delete(row, gone)


def _outcome(tm: TransactionManager, tx: Transaction, parts: Sequence[bytes]) -> Outcome:
    if not tx.is_running:
        return tm.outcome(tx)
    # An earlier process has asked.  What has committed is left to readers and compactions: this
    # owner knows none of the cells, and would complete the commit without them.
    outcome = tm.session.outcomes.settle(tx.start_ts, _witness(tm, tx.start_ts, parts))
    if isinstance(outcome, Aborted):
        tx.learn(outcome)
    return outcome


def use_once(tx: Transaction, once: Once) -> None:
    """Note in a transaction what it does; where another one has done it, roll it back.

    Raises:
        AlreadyCommitted: that other one has committed.
        UsageError: something else was done under the same name; it is rolled back, too.
        CommitOutcomeUnknown: this very transaction was noted before, by a process that may have
            asked for its commit; nothing is taken back.
    """
    try:
        once.check(tx)
    except AlreadyCommitted as before:
        if before.start_ts == tx.start_ts:
            raise CommitOutcomeUnknown(
                str(before), start_ts=tx.start_ts, store_id=tx.session.outcomes.store_id()
            ) from before
        tx.rollback()
        raise
    except UsageError:
        tx.rollback()
        raise
    once.note(tx)


def check_once(tm: TransactionManager, once: Once | None) -> None:
    """Say whether another transaction has done what an aborted one was to do.

    Raises:
        AlreadyCommitted: it has.
    """
    if once is not None:
        with tm.begin(read_only=True) as tx:
            once.check(tx)


@contextmanager
def _opened(job: Job) -> Iterator[TransactionManager]:
    """Open a store; what its end brings is logged, since what was committed is no failure."""
    tm = job.place.connect(job.client)
    try:
        yield tm
    finally:
        try:
            tm.close()
        except OmidError as error:
            log.warning("shadow cells of a write are left to readers and compactions: %s", error)


def abort(job: Job, parts: Sequence[bytes], *, tasks: int = 0) -> None:
    """Take a write back; Spark calls this also where `commit` failed, or seemed to.

    Failures are logged: what stays is seen by no reader, and the compactor removes it.  What tasks
    have committed by themselves stays, and they, so many, commit no more.

    Raises:
        TransactionClosed: it has committed, which Spark shows below its own error.
    """
    if job.done_ts is not None:
        return
    is_in_several = job.rows_per_transaction is not None
    # Of transactions of their own all have committed, where every task has answered.
    is_there = is_in_several and 0 < tasks == len(parts)
    try:
        if job.has_end or not is_in_several:
            with _opened(job) as tm:
                if job.has_end:
                    several.end(tm, job.name, tasks)
                else:
                    is_there = isinstance(_abort(tm, job, parts), Committed)
    except OmidError as error:
        log.warning(
            "cells of a failed write to table %s stay, or late ones may come: %s", job.table, error
        )
    if is_there:
        raise TransactionClosed(
            f"the write to table {job.table!r} has committed, whatever failed behind that: all of "
            "it is visible; do not run it again"
        )


def _abort(tm: TransactionManager, job: Job, parts: Sequence[bytes]) -> Outcome:
    token = decode_token(job.token, store_id=tm.store.store_id)
    start_ts = Timestamp(token.start_ts)
    # The commit may have been asked for, by a process that died since (J1).
    outcome = tm.session.outcomes.settle(start_ts, _witness(tm, start_ts, parts))
    if isinstance(outcome, Aborted):
        Transaction.reopened(tm.session, job.token).rollback()
    elif not isinstance(outcome, Committed):
        log.warning("whether the write to table %s committed is not known", job.table)
    return outcome


def _witness(
    tm: TransactionManager, start_ts: Timestamp, parts: Sequence[bytes]
) -> tuple[str, Cell] | None:
    """Return a cell of a part: its shadow cell proves a commit."""
    for one in parts:
        if one:
            store_id = tm.store.store_id
            part = decode_part(zlib.decompress(one), store_id=store_id, start_ts=start_ts)
            if part.cells:
                name = part.cells[0]
                return name.table, Cell(*name[1:], part.version, b"")
    return None
