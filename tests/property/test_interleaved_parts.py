"""An owner that commits while a worker still writes, in every order of their store calls.

Whatever the order, the commit either aborts and names the worker, and then nothing is left of it;
or it shows what was merged, whole, and nothing else, now and after a compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple
from unittest import mock

import pytest

from compactor.run.local import compact
from omidpy.base.cells import is_shadow_qualifier
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import TransactionAborted, TransactionClosed
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, Committed, TransactionStatus, base
from omidpy.storage.memory import MemoryStore
from omidpy.tx.parts import worker as worker_module
from omidpy.tx.parts.worker import Worker
from omidpy.tx.transaction import Transaction
from tests.machines.cells import ALL_AT_ONCE
from tests.machines.like_thrift1 import LikeThrift1
from tests.machines.like_thrift2 import LikeThrift2
from tests.machines.naive_oracle import NaiveOracle
from tests.machines.turns import Program, every_order, in_turns

TABLE: Final = "t"
COLUMN: Final = b"cf:q"
OWN: Final = {b"a": b"1"}
WORKERS: Final = {b"b": b"2", b"c": b"3"}


class Plan(StrEnum):
    """What the owner knows of the worker."""

    FORGOTTEN = "nothing"
    DISCARDED = "that it was given up"
    COVERED = "that another attempt of its task was merged"
    REPLACED = "that it was given up, for another worker that wrote one of its cells too"


MERGED: Final[Mapping[Plan, Mapping[bytes, bytes]]] = {
    Plan.FORGOTTEN: {},
    Plan.DISCARDED: {},
    Plan.COVERED: WORKERS,
    Plan.REPLACED: {b"b": b"2", b"d": b"4"},
}


class Kind(NamedTuple):
    """A kind of store."""

    shared: Callable[[], MemoryStore]
    """What oracle and compactor have."""
    view: Callable[[MemoryStore], MemoryStore] = lambda store: store
    """What clients have of it."""


KINDS: Final = {
    "one change for all": Kind(MemoryStore),
    "row by row": Kind(LikeThrift2),
    "like Thrift1": Kind(LikeThrift2, LikeThrift1),
}


class Scene:
    """A transaction that is about to commit, and a worker that is about to finish."""

    def __init__(self, kind: str, plan: Plan, *, has_begun: bool) -> None:
        """Prepare everything, and let the worker flush one row if it `has_begun`."""
        self.kind, self.plan = kind, plan
        self.store = KINDS[kind].shared()
        self.oracle = NaiveOracle(self.store)
        self.clock = ManualClock()
        store = in_turns(KINDS[kind].view(self.store))
        self.tm = TransactionManager(store, self.oracle, post_commit="sync", clock=self.clock)
        self.tm.create_table(TABLE, ["cf"])
        self.tx = self.tm.begin()
        self.put(self.tx, OWN)
        self.token = self.tx.token()
        self.expected = {**OWN, **MERGED[plan]}
        if MERGED[plan]:
            other = self.resume()
            self.put(other, MERGED[plan])
            self.tx.merge(other.finish())
        self.worker = self.resume()
        with mock.patch.object(worker_module, "FLUSH_LIMIT_BYTES", 1 if has_begun else 1000):
            self.put(self.worker, {b"b": b"2"})
        self.put(self.worker, {b"c": b"3"})
        if plan in (Plan.DISCARDED, Plan.REPLACED):
            self.tx.discard(self.worker.worker_id)

    def resume(self) -> Worker:
        """Return a worker."""
        return self.tm.resume(self.token, task="t" if self.plan is Plan.COVERED else None)

    def put(self, writer: Transaction | Worker, values: Mapping[bytes, bytes]) -> None:
        """Write some rows."""
        for row, value in values.items():
            writer.table(TABLE).put(row, {COLUMN: value})

    def play(self, run: Callable[..., None]) -> None:
        """Let both go on to their ends, and judge."""
        owner, worker = Program(self.tx.commit), Program(self.worker.finish)
        run(owner, worker)
        assert isinstance(worker.error, TransactionClosed | None), repr(worker.error)
        if owner.error is None:
            self.look(self.expected)
            self.compact()
            self.look(self.expected)
            assert self.tx.commit_ts is not None
            assert self.tm.outcome(self.token) == Committed(self.tx.commit_ts)
            assert self.tm.outcome(self.tx.start_ts) != Aborted()
            # Whoever could still be merged counts on it.
            assert self.plan is not Plan.FORGOTTEN or worker.error is not None
            return
        assert isinstance(owner.error, TransactionAborted), repr(owner.error)
        assert self.worker.worker_id in str(owner.error)
        assert self.seen() == {}
        self.compact()
        self.look({})

    def compact(self) -> None:
        """Compact when nothing that began until now can commit any more."""
        self.oracle.raise_low_watermark(self.oracle.begin().start_ts)
        self.clock.advance(3)
        compact(self.store, ALL_AT_ONCE, clock=self.clock, sleep=self.clock.advance)

    def look(self, expected: Mapping[bytes, bytes]) -> None:
        """Assert that this is seen, and that there is nothing else of the transaction."""
        assert self.seen() == expected
        cells = {
            cell.row
            for page in self.store.scan(TABLE)
            for row in page
            for cell in row
            if base(cell.version) == self.tx.start_ts and not is_shadow_qualifier(cell.qualifier)
        }
        assert cells == expected.keys()

    def seen(self) -> dict[bytes, bytes]:
        """Return what a new transaction sees."""
        with self.tm.begin(read_only=True) as tx:
            return {row: data[COLUMN] for row, data in tx.table(TABLE).scan()}


def play_all(kind: str, plan: Plan, *, has_begun: bool) -> set[TransactionStatus]:
    """Play every order; return how the transaction ended in them."""
    endings = set()

    def play(run: Callable[..., None]) -> None:
        scene = Scene(kind, plan, has_begun=has_begun)
        scene.play(run)
        endings.add(scene.tx.status)

    for _ in every_order(play):
        pass
    return endings


EITHER: Final = {TransactionStatus.COMMITTED, TransactionStatus.ROLLED_BACK}
COMMITTED: Final = {TransactionStatus.COMMITTED}
ROLLED_BACK: Final = {TransactionStatus.ROLLED_BACK}


@pytest.mark.parametrize(
    ("kind", "plan", "afresh", "half_way"),
    [
        ("one change for all", Plan.FORGOTTEN, EITHER, ROLLED_BACK),
        ("one change for all", Plan.DISCARDED, COMMITTED, COMMITTED),
        ("one change for all", Plan.COVERED, COMMITTED, COMMITTED),
        ("one change for all", Plan.REPLACED, COMMITTED, COMMITTED),
        ("row by row", Plan.FORGOTTEN, EITHER, ROLLED_BACK),
        # What was under way when the row was closed may still arrive.
        pytest.param("row by row", Plan.DISCARDED, EITHER, EITHER, marks=pytest.mark.nightly),
        ("row by row", Plan.COVERED, COMMITTED, COMMITTED),
        ("row by row", Plan.REPLACED, EITHER, EITHER),
        pytest.param(
            "like Thrift1", Plan.FORGOTTEN, EITHER, ROLLED_BACK, marks=pytest.mark.nightly
        ),
        # What was written cannot be removed.
        ("like Thrift1", Plan.DISCARDED, EITHER, ROLLED_BACK),
        pytest.param("like Thrift1", Plan.COVERED, COMMITTED, COMMITTED, marks=pytest.mark.nightly),
        pytest.param("like Thrift1", Plan.REPLACED, EITHER, ROLLED_BACK, marks=pytest.mark.nightly),
    ],
)
def test_no_order_commits_what_was_not_merged(
    kind: str, plan: Plan, afresh: set[TransactionStatus], half_way: set[TransactionStatus]
) -> None:
    """Nor loses any of what was; and a commit is refused only where it must be."""
    assert play_all(kind, plan, has_begun=False) == afresh
    assert play_all(kind, plan, has_begun=True) == half_way
