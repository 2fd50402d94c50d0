"""Transactions of every shape, each on rows of its own, for clients that die in them.

The rows of a key are `a/KEY` and `z/KEY`, in different regions.  Before the transaction they hold
`BEFORE`; what it commits is `Scenario.changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias
from unittest import mock

from omidpy.errors import StorageUnavailable, TransactionAborted
from omidpy.manager import TransactionManager
from omidpy.tx import transaction
from omidpy.tx.transaction import Transaction

LEDGER: Final = "ledger"
JOURNAL: Final = "journal"
ROWS: Final = "rows"
LEVELS: Final = {LEDGER: "cell", JOURNAL: "cell", ROWS: "row"}
"""Every table, and what a write to it conflicts on."""

FAMILIES: Final = ("cf", "other")
REGIONS_MEET_AT: Final = b"m"
SIDES: Final = (b"a/", b"z/")

Q, R, N = b"cf:q", b"cf:r", b"other:n"
OLD, NEW, RIVAL, UNDONE = b"old", b"new", b"rival", b"undone"

Place: TypeAlias = tuple[str, bytes]
"""A table, and which of the two rows."""
Image: TypeAlias = dict[Place, dict[bytes, bytes]]
Changes: TypeAlias = Mapping[Place, Mapping[bytes, bytes | None]]

A: Final = (LEDGER, b"a/")
Z: Final = (LEDGER, b"z/")
JA: Final = (JOURNAL, b"a/")
JZ: Final = (JOURNAL, b"z/")
RA: Final = (ROWS, b"a/")
RZ: Final = (ROWS, b"z/")

BEFORE: Final[Image] = {place: {Q: OLD, R: OLD, N: OLD} for place in (A, Z, RA, RZ)}


def changed(image: Image, changes: Changes) -> Image:
    """Return an image after changes; None deletes."""
    result = {place: dict(columns) for place, columns in image.items()}
    for place, columns in changes.items():
        result.setdefault(place, {}).update(
            {name: value for name, value in columns.items() if value is not None}
        )
        for name, value in columns.items():
            if value is None:
                result[place].pop(name, None)
    return {place: columns for place, columns in result.items() if columns}


class Life(NamedTuple):
    """What a scenario works with."""

    tm: TransactionManager
    rival: Callable[[], TransactionManager]
    """Connects another client, which lives on."""
    key: bytes
    began: Callable[[Transaction], None]
    """Told of the transaction."""

    def begin(self) -> Transaction:
        """Begin the transaction."""
        tx = self.tm.begin()
        self.began(tx)
        return tx

    def put(self, tx: Transaction, place: Place, value: bytes, *columns: bytes) -> None:
        """Write columns of one of the rows."""
        table, side = place
        tx.table(table).put(side + self.key, dict.fromkeys(columns, value))

    def delete(self, tx: Transaction, place: Place, *columns: bytes) -> None:
        """Delete columns of one of the rows, or the row."""
        table, side = place
        tx.table(table).delete(side + self.key, columns or None)


@dataclass(frozen=True)
class Scenario:
    """A transaction, and what it is to leave."""

    run: Callable[[Life], None]
    changes: Changes
    """Nothing: it never commits."""
    rival: Changes = field(default_factory=dict)
    """What another transaction commits meanwhile."""
    post_commit: str = "sync"
    level: str = "cell"
    is_forgiving: bool = False
    """Whether it may commit although something failed before the decision."""

    @property
    def nothing(self) -> Image:
        """What a reader sees who does not see the transaction."""
        return changed(BEFORE, self.rival)

    @property
    def everything(self) -> Image:
        """What a reader sees who sees the transaction."""
        return changed(self.nothing, self.changes)


def one_cell(life: Life) -> None:
    """Write one cell."""
    with life.begin() as tx:
        life.put(tx, A, NEW, Q)


def two_tables(life: Life) -> None:
    """Write rows of two regions in each of two tables."""
    with life.begin() as tx:
        for place in (A, Z, JA, JZ):
            life.put(tx, place, NEW, Q, N)


def deletes(life: Life) -> None:
    """Delete a row, a column and a family; and write beside them."""
    with life.begin() as tx:
        life.delete(tx, A)
        life.delete(tx, Z, Q, b"other")
        life.put(tx, JA, NEW, Q)


def rewrites(life: Life) -> None:
    """Flush cells and write them again, so that they have several versions."""
    with life.begin() as tx:
        life.put(tx, A, UNDONE, Q, R)
        life.put(tx, Z, UNDONE, Q)
        tx.flush()
        life.put(tx, A, NEW, Q)
        life.delete(tx, A, R)
        tx.flush()
        life.put(tx, Z, NEW, Q)


def savepoints(life: Life) -> None:
    """Undo one savepoint whose cells were flushed, and keep another."""
    with mock.patch.object(transaction, "FLUSH_LIMIT_BYTES", 1), life.begin() as tx:
        life.put(tx, A, NEW, Q)
        with suppress(ZeroDivisionError, StorageUnavailable), tx.savepoint():
            life.put(tx, A, UNDONE, Q, R)
            life.put(tx, Z, UNDONE, Q)
            life.put(tx, JZ, UNDONE, Q)
            raise ZeroDivisionError
        with tx.savepoint():
            life.put(tx, Z, NEW, Q)


def row_level(life: Life) -> None:
    """Write two rows of a table where rows conflict."""
    with life.begin() as tx:
        life.put(tx, RA, NEW, Q, N)
        life.put(tx, RZ, NEW, Q)
        life.delete(tx, RZ, R)


def rolled_back(life: Life) -> None:
    """Flush, and think better of it."""
    tx = life.begin()
    for place in (A, Z, JA):
        life.put(tx, place, UNDONE, Q)
    tx.flush()
    tx.rollback()


def refused(life: Life) -> None:
    """Lose to another transaction that wrote one of the cells."""
    tx = life.begin()
    with life.rival() as other, other.begin() as rival:
        life.put(rival, A, RIVAL, Q)
    for place in (A, Z, JA):
        life.put(tx, place, UNDONE, Q)
    with suppress(TransactionAborted):
        tx.commit()


def handed_on(life: Life) -> None:
    """Let a worker write a part."""
    with life.begin() as tx:
        life.put(tx, A, NEW, Q)
        worker = life.tm.resume(tx.token())
        worker.table(JOURNAL).put(b"a/" + life.key, {Q: NEW})
        worker.table(JOURNAL).put(b"z/" + life.key, {Q: NEW})
        tx.merge(worker.finish())


def taken_back(life: Life) -> None:
    """Let two workers write, and forget to merge the part of one, so that nothing commits."""
    with suppress(TransactionAborted), life.begin() as tx:
        life.put(tx, A, UNDONE, Q)
        token = tx.token()
        for side in SIDES:
            worker = life.tm.resume(token)
            worker.table(JOURNAL).put(side + life.key, {Q: UNDONE})
            part = worker.finish()
        tx.merge(part)


def given_up(life: Life) -> None:
    """Give up a worker whose cells another one wrote too, which needed two attempts.

    It makes no difference whether one of them failed.
    """
    with life.begin() as tx:
        life.put(tx, A, NEW, Q)
        token = tx.token()
        worker = life.tm.resume(token)
        worker.table(JOURNAL).put(b"a/" + life.key, {Q: NEW, N: UNDONE})
        worker.table(LEDGER).put(b"z/" + life.key, {Q: UNDONE})
        with suppress(StorageUnavailable):
            worker.finish()
        tx.discard(worker.worker_id)
        parts = []
        for _ in range(2):
            worker = life.tm.resume(token, task="t")
            worker.table(JOURNAL).put(b"a/" + life.key, {Q: NEW})
            with suppress(StorageUnavailable):
                parts.append(worker.finish())
        tx.merge(parts[-1])


SCENARIOS: Final = {
    "one-cell": Scenario(one_cell, {A: {Q: NEW}}),
    "two-tables": Scenario(
        two_tables, {place: {Q: NEW, N: NEW} for place in (A, Z, JA, JZ)}, post_commit="async"
    ),
    "deletes": Scenario(
        deletes, {A: {Q: None, R: None, N: None}, Z: {Q: None, N: None}, JA: {Q: NEW}}
    ),
    "rewrites": Scenario(rewrites, {A: {Q: NEW, R: None}, Z: {Q: NEW}}),
    "savepoints": Scenario(savepoints, {A: {Q: NEW}, Z: {Q: NEW}}),
    "row-level": Scenario(
        row_level, {RA: {Q: NEW, N: NEW}, RZ: {Q: NEW, R: None}}, level="row", post_commit="async"
    ),
    "rolled-back": Scenario(rolled_back, {}),
    "refused": Scenario(refused, {}, rival={A: {Q: RIVAL}}),
    "handed-on": Scenario(handed_on, {A: {Q: NEW}, JA: {Q: NEW}, JZ: {Q: NEW}}),
    "taken-back": Scenario(taken_back, {}),
    "given-up": Scenario(given_up, {A: {Q: NEW}, JA: {Q: NEW}}, is_forgiving=True),
}
