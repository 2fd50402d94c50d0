"""Every public call as something to interrupt, and what must hold of its transaction afterwards.

A `Round` has rows of its own, which are committed before the call.  The call is prepared, then
interrupted; then `end` ends the transaction as one would who caught the interrupt, and `look` and
`count` use the manager on.  `sweep.py` does so at every line.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from omidpy.errors import TransactionAborted, UsageError
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, Committed, TransactionStatus
from omidpy.tx.transaction import Transaction
from tests.machines.interrupts.lines import Interrupt, Interrupter

TABLE: Final = "interrupted"
Cells: TypeAlias = dict[bytes, dict[bytes, bytes]]
"""Row -> column -> value."""


class Harm(AssertionError):
    """Something did not hold after an interrupt."""


@dataclass
class Round:
    """One call, with rows of its own."""

    tm: TransactionManager
    number: int = field(default_factory=itertools.count(1).__next__)
    """No other round of this process has it."""
    committed: Cells = field(default_factory=dict)
    """What was acknowledged of the rows."""
    writes: list[Cells] = field(default_factory=list)
    """What the transaction writes, by calls of which each is whole or absent."""
    is_buffered: bool = False
    """Whether all of it was written before the call: a commit has it all."""
    tx: Transaction | None = None

    @property
    def prefix(self) -> bytes:
        """What the keys of the rows begin with."""
        return b"%08d/" % self.number

    def begin(self) -> Transaction:
        """Begin the transaction whose fate is looked at."""
        self.tx = self.tm.begin()
        return self.tx

    def plan(self) -> list[Cells]:
        """Return two writes: of a row that is there and of one that is not."""
        value = b"of the interrupted"
        self.writes = [
            {self.prefix + b"old": {b"f:a": value, b"f:b": value}},
            {self.prefix + b"new": {b"f:a": value}},
        ]
        return self.writes

    def put(self, tx: Transaction) -> Transaction:
        """Make the planned writes."""
        for cells in self.plan():
            for row, columns in cells.items():
                tx.table(TABLE).put(row, columns)
        return tx

    def prepare(self) -> None:
        """Commit what is there before."""
        self.committed = {
            self.prefix + b"count": {b"f:n": b"0"},
            self.prefix + b"old": {b"f:a": b"old", b"f:b": b"old"},
        }
        with self.tm.begin() as tx:
            for row, columns in self.committed.items():
                tx.table(TABLE).put(row, columns)

    # -- what became of it ---------------------------------------------------------------------

    def end(self, *, insists: bool) -> None:
        """End the transaction as one would who caught the interrupt."""
        tx = self.tx
        if tx is None:
            return
        if tx.status is TransactionStatus.RUNNING and insists:
            with suppress(TransactionAborted, UsageError):  # it may not, or a savepoint is open
                tx.commit()
        if tx.status is TransactionStatus.RUNNING:
            tx.rollback()
        outcome = self.tm.outcome(tx)
        if isinstance(outcome, Committed):
            check(tx.status == TransactionStatus.COMMITTED, f"{outcome} of {tx}")
            self._accept()
        else:
            check(isinstance(outcome, Aborted), f"the outcome of {tx} is {outcome}")
            check(tx.status == TransactionStatus.ROLLED_BACK, f"{outcome} of {tx}")

    def _accept(self) -> None:
        """Take note of what was committed: each write is whole or absent."""
        found = self.rows()
        for cells in self.writes:
            with_it = _laid_over(self.committed, cells)
            is_there = all(found.get(row) == with_it[row] for row in cells)
            check(is_there or not self.is_buffered, f"{cells} was committed and is not there")
            if is_there:
                self.committed = with_it

    # -- looking -------------------------------------------------------------------------------

    def rows(self) -> Cells:
        """Return the rows, which scans and gets must agree about."""
        with self.tm.begin(read_only=True) as tx:
            table = tx.table(TABLE)
            scanned = dict(table.scan(row_prefix=self.prefix))
            got = {row: table.row(row) for row in (*self.committed, *scanned)}
        check(scanned == {row: data for row, data in got.items() if data}, "row and scan differ")
        return scanned

    def look(self) -> None:
        """See what was acknowledged, and nothing else."""
        found = self.rows()
        check(found == self.committed, f"acknowledged: {self.committed}, found: {found}")

    def count(self) -> None:
        """Read, add one and write, by a function that is called outside of any transaction."""
        row = self.prefix + b"count"

        @self.tm.transactional
        def add(tx: Transaction) -> bytes:
            value = b"%d" % (int(tx.table(TABLE).row(row)[b"f:n"]) + 1)
            tx.table(TABLE).put(row, {b"f:n": value})
            return value

        value = add()
        expected = b"%d" % (int(self.committed[row][b"f:n"]) + 1)
        check(value == expected, f"counted to {value!r} in place of {expected!r}")
        self.committed[row] = {b"f:n": value}


def _laid_over(below: Mapping[bytes, Mapping[bytes, bytes]], cells: Cells) -> Cells:
    merged = {row: dict(columns) for row, columns in below.items()}
    for row, columns in cells.items():
        merged.setdefault(row, {}).update(columns)
    return merged


def check(holds: bool, what: str) -> None:  # noqa: FBT001 - as `assert` takes it
    """Raise `Harm` unless something holds, also under `python -O`."""
    if not holds:
        raise Harm(what)


# -- the calls -------------------------------------------------------------------------------------

Prepare: TypeAlias = Callable[[Round], Callable[[], object]]
"""Does what comes before a call, and returns the call."""

CALLS: Final[dict[str, Prepare]] = {}
"""Every public call by its name; some with a few others that belong to it."""


def _call(prepare: Prepare) -> Prepare:
    CALLS[prepare.__name__] = prepare
    return prepare


def _written(one: Round) -> Transaction:
    """Begin a transaction and buffer its writes."""
    tx = one.put(one.begin())
    one.is_buffered = True
    return tx


@_call
def begin(one: Round) -> Callable[[], object]:
    """Begin."""
    return one.tm.begin


@_call
def begin_again(one: Round) -> Callable[[], object]:
    """Begin where the connection to the oracle was cut, if there is one."""
    link = getattr(one.tm.oracle, "_link", None)
    if link is not None:
        link.kill("it was cut")
    return one.tm.begin


@_call
def block(one: Round) -> Callable[[], object]:
    """Begin, write and commit by a `with` block."""

    def run() -> None:
        with one.tm.begin() as tx:
            one.tx = one.put(tx)

    return run


@_call
def put(one: Round) -> Callable[[], object]:
    """Write two rows."""
    tx = one.begin()
    return lambda: one.put(tx)


@_call
def use_key(one: Round) -> Callable[[], object]:
    """Use an idempotency key, and write what it is for."""
    tx = one.begin()

    def run() -> None:
        tx.use_key(one.prefix)
        one.put(tx)

    return run


@_call
def changes(one: Round) -> Callable[[], object]:
    """Read what changed, and wait for a change that has come already."""
    row = one.prefix + b"old"
    since = one.tm.begin(read_only=True).start_ts
    with one.tm.begin() as tx:
        tx.table(TABLE).put(row, {b"f:a": b"newer"})
    one.committed[row] = {b"f:a": b"newer", b"f:b": b"old"}

    def run() -> None:
        check(len(list(one.tm.changes(TABLE, since, row_prefix=one.prefix))) == 1, "changes")
        check(len(one.tm.watch(TABLE, row, since=since, timeout_s=0)) == 1, "a watch")

    return run


@_call
def delete(one: Round) -> Callable[[], object]:
    """Delete a row and a column."""
    table = one.begin().table(TABLE)

    def run() -> None:
        table.delete(b"absent")
        table.delete(b"absent", [b"f:a"])

    return run


@_call
def batch(one: Round) -> Callable[[], object]:
    """Write two rows together."""
    table = one.begin().table(TABLE)
    whole: Cells = {}
    for cells in one.plan():
        whole |= cells
    one.writes = [whole]

    def run() -> None:
        with table.batch() as batch:
            batch.delete(b"absent")
            for row, columns in whole.items():
                batch.put(row, columns)

    return run


@_call
def row(one: Round) -> Callable[[], object]:
    """Read two rows."""
    table = one.begin().table(TABLE)
    return lambda: table.rows([one.prefix + b"old", one.prefix + b"count"])


@_call
def scan(one: Round) -> Callable[[], object]:
    """Scan, with own writes laid over."""
    table = _written(one).table(TABLE)
    return lambda: list(table.scan(row_prefix=one.prefix))


@_call
def scan_backwards(one: Round) -> Callable[[], object]:
    """Scan in reverse, a row a page."""
    table = one.begin().table(TABLE)
    return lambda: list(table.scan(row_prefix=one.prefix, batch_size=1, reverse=True))


@_call
def read_unhealed(one: Round) -> Callable[[], object]:
    """Read cells of a transaction that was never completed."""
    tx = one.put(one.tm.begin())
    tx.flush()
    one.tm.oracle.commit(tx.start_ts, tx._cell_ids(), ())
    for cells in one.writes:
        one.committed = _laid_over(one.committed, cells)

    def run() -> None:
        with one.tm.begin(read_only=True) as tx:
            tx.table(TABLE).row(one.prefix + b"old")
            list(tx.table(TABLE).scan(row_prefix=one.prefix))

    return run


@_call
def counters(one: Round) -> Callable[[], object]:
    """Count up, down and to a number."""
    table = one.begin().table(TABLE)

    def run() -> None:
        table.counter_inc(b"absent", b"f:a")
        table.counter_dec(b"absent", b"f:a")
        table.counter_set(b"absent", b"f:a", table.counter_get(b"absent", b"f:a") + 1)

    return run


@_call
def descriptions(one: Round) -> Callable[[], object]:
    """Ask what families, regions and cells a table has."""
    table = one.begin().table(TABLE)
    return lambda: (
        table.families(),
        table.regions(),
        table.cells(one.prefix + b"old", b"f:a"),
    )


@_call
def flush(one: Round) -> Callable[[], object]:
    """Flush two writes."""
    return _written(one).flush


@_call
def savepoint(one: Round) -> Callable[[], object]:
    """Write in a savepoint, which is kept."""
    tx = one.begin()

    def run() -> None:
        with tx.savepoint():
            one.put(tx)

    return run


@_call
def undone_savepoint(one: Round) -> Callable[[], object]:
    """Write in a savepoint, which is undone."""
    tx = _written(one)

    def run() -> None:
        with suppress(LookupError), tx.savepoint():
            tx.table(TABLE).put(one.prefix + b"undone", {b"f:a": b"-"})
            raise LookupError

    return run


@_call
def undone_flushed_savepoint(one: Round) -> Callable[[], object]:
    """Write in a savepoint, which is flushed, as where it grows too large, and undone."""
    tx = _written(one)

    def run() -> None:
        with suppress(LookupError), tx.savepoint():
            tx.table(TABLE).put(one.prefix + b"undone", {b"f:a": b"-"})
            tx._flush(with_savepoints=True)
            raise LookupError

    return run


@_call
def commit(one: Round) -> Callable[[], object]:
    """Commit two writes."""
    return _written(one).commit


@_call
def commit_with_callbacks(one: Round) -> Callable[[], object]:
    """Commit two writes, with something to do afterwards."""
    tx = _written(one)

    def run() -> None:
        tx.after_commit(str)
        tx.commit()

    return run


@_call
def forbidden_commit(one: Round) -> Callable[[], object]:
    """Commit what may only be rolled back."""
    tx = _written(one)
    tx.flush()

    def run() -> None:
        tx.set_rollback_only()
        with suppress(TransactionAborted):
            tx.commit()

    return run


@_call
def commit_of_nothing(one: Round) -> Callable[[], object]:
    """Commit a transaction that wrote nothing."""
    return one.begin().commit


@_call
def refused_commit(one: Round) -> Callable[[], object]:
    """Commit behind a fence."""
    tx = _written(one)
    one.tm.fence(TABLE)

    def run() -> None:
        with suppress(TransactionAborted):
            tx.commit()

    return run


@_call
def rollback(one: Round) -> Callable[[], object]:
    """Roll back what was flushed."""
    tx = _written(one)
    tx.flush()
    return tx.rollback


@_call
def rollback_of_workers(one: Round) -> Callable[[], object]:
    """Roll back a transaction that a worker has written in."""
    tx = _written(one)
    worker = one.tm.resume(tx.token())
    cells: Cells = {one.prefix + b"of a worker": {b"f:a": b"-"}}
    for row, columns in cells.items():
        worker.table(TABLE).put(row, columns)
    tx.merge(worker.finish())
    one.writes.append(cells)
    return tx.rollback


@_call
def worker(one: Round) -> Callable[[], object]:
    """Take a token, resume it, write, finish, merge, commit."""
    tx = one.begin()

    def run() -> None:
        worker = one.tm.resume(tx.token())
        for cells in one.plan():
            for row, columns in cells.items():
                worker.table(TABLE).put(row, columns)
        tx.merge(worker.finish())
        tx.commit()

    return run


@_call
def discarded_worker(one: Round) -> Callable[[], object]:
    """Give a worker up and commit."""
    tx = _written(one)
    worker = one.tm.resume(tx.token())
    worker.table(TABLE).put(one.prefix + b"discarded", {b"f:a": b"-"})
    worker.finish()

    def run() -> None:
        tx.parts()
        tx.discard(worker)
        tx.commit()

    return run


@_call
def outcome(one: Round) -> Callable[[], object]:
    """Ask of a transaction whose commit was interrupted behind the question to the oracle."""
    tx = _written(one)
    interrupter = Interrupter()
    with suppress(Interrupt):
        interrupter.interrupt_in(tx.commit, "Transaction._committed", Interrupt())
    check(tx.status is TransactionStatus.UNKNOWN, f"{tx} was interrupted when it was decided")
    return lambda: one.tm.outcome(tx)


@_call
def outcome_of_numbers(one: Round) -> Callable[[], object]:
    """Ask of a running transaction, by its number and by its token."""
    tx = one.begin()
    token = tx.token()
    return lambda: (one.tm.outcome(tx.start_ts), one.tm.outcome(token))


@_call
def snapshot(one: Round) -> Callable[[], object]:
    """Read at an earlier moment."""
    start_ts = one.tm.begin().start_ts
    return lambda: one.tm.snapshot(at=start_ts).table(TABLE).row(one.prefix + b"old")


@_call
def hold(one: Round) -> Callable[[], object]:
    """Hold a snapshot, and release it."""
    held = one.tm.begin(read_only=True)

    def run() -> None:
        with one.tm.hold(held, for_s=1):
            pass

    return run


@_call
def fence(one: Round) -> Callable[[], object]:
    """Fence a table."""
    return lambda: one.tm.fence(TABLE)


@_call
def low_watermark(one: Round) -> Callable[[], object]:
    """Read the low watermark."""
    return one.tm.low_watermark


@_call
def tables(one: Round) -> Callable[[], object]:
    """List the tables."""
    return one.tm.tables


@_call
def create_and_drop_table(one: Round) -> Callable[[], object]:
    """Make a table, and drop it."""

    def run() -> None:
        one.tm.create_table(f"t{one.number}", families=["f"])
        one.tm.delete_table(f"t{one.number}")

    return run


@_call
def transactional(one: Round) -> Callable[[], object]:
    """Run a function in a transaction."""

    @one.tm.transactional
    def write(tx: Transaction) -> None:
        one.tx = one.put(tx)

    return write


@_call
def attempts(one: Round) -> Callable[[], object]:
    """Write in a loop of attempts."""

    def run() -> None:
        for attempt in one.tm.attempts(budget_s=5):
            with attempt as tx:
                one.tx = one.put(tx)

    return run
