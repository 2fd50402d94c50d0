"""Readers of the change feed, who go on where they were, over whatever happens to them.

A follower keeps the offset and what he has been told up to there on a disk of his own.  He dies in
the middle of a commit or of a window, stands still, and goes on from his offset.  Where what he has
not been told was collected meanwhile, he forgets all, and begins anew from a moment of now.  In the
end he has followed to the end: he was told what histories say was committed to his table behind
where he began, each change once, in the order of commits, and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple, TypeAlias

from omidpy.errors import OmidError, SnapshotTooOld
from omidpy.manager import TransactionManager
from omidpy.model import Change, ChangeKind
from omidpy.testing.history import Recorded, Told, Value
from omidpy.testing.workloads import COLUMN
from tests.machines.simulator.watch import CommittedIn
from tests.machines.simulator.world import Process, World

FOLLOWERS: Final = ("follower-a", "follower-b")

FOLLOWED: Final = ("registers", "bank")
"""Workloads whose tables are followed, one by each."""

Fact: TypeAlias = tuple[int, int, bytes, bytes, int | None]
"""When it was committed, by which transaction, what it changed, and to what."""


class FollowHabits(NamedTuple):
    """How followers go about it."""

    pause_s: float
    """Between two looks, on average."""
    page_share: float
    """Looks that take many changes at a time; others take one after the other."""
    dawdling_share: float
    """Changes behind which time passes."""


class Follower:
    """One of them: what is on his disk outlives each of his processes."""

    def __init__(self, world: World, name: str, prefix: str, habits: FollowHabits) -> None:
        self._world = world
        self._habits = habits
        self.workload = FOLLOWED[FOLLOWERS.index(name)]
        self.table = f"{prefix}_{self.workload}"
        self._begins_at = 0
        """What was committed before it, he does not follow."""
        self._offset = 0
        self._told: list[Change] = []

    def work(
        self,
        process: Process,
        make: Callable[[], TransactionManager],
        dice: random.Random,
        until_s: float,
    ) -> None:
        """Look at what is new, time and again, until it is late."""
        tm = make()
        while self._world.now_s < until_s:
            self._world.program.sleep(dice.expovariate(1 / self._habits.pause_s))
            try:
                self.look(tm, dice)
            except SnapshotTooOld:
                self._begin_anew(tm)
            except OmidError as error:
                self._world.note(f"{process.name}: {error!r}")
                self._world.counts[f"looks ended by {type(error).__name__}"] += 1

    def look_to_the_end(self, tm: TransactionManager) -> None:
        """Follow up to now, in the end, when nothing goes wrong any more."""
        try:
            self.look(tm, random.Random(0))
        except SnapshotTooOld:
            self._begin_anew(tm)
            self.look(tm, random.Random(0))

    def look(self, tm: TransactionManager, dice: random.Random) -> None:
        """Follow up to now, and keep how far it came whenever the feed says so."""
        feed = tm.changes(self.table, self._offset, old_values=dice.random() < 0.2)
        self._world.counts["looks at changes"] += 1
        held: list[Change] = []
        with closing(feed):
            if dice.random() < self._habits.page_share:
                for page in feed.pages(most_changes=dice.choice((1, 5, 1000)), most_bytes=1 << 20):
                    held += page
            else:
                for change in feed:
                    # What came before this one may be complete by now; this one is not.
                    self._keep(held, feed.offset)
                    held.append(change)
                    if dice.random() < self._habits.dawdling_share:
                        self._world.program.sleep(dice.expovariate(5.0))
            self._keep(held, feed.offset)

    def _begin_anew(self, tm: TransactionManager) -> None:
        try:
            with tm.begin(read_only=True) as tx:
                self._begins_at = self._offset = tx.start_ts
        except OmidError as error:
            self._world.note(f"{self.workload}: cannot begin anew: {error!r}")
            return
        self._told = []
        self._world.counts["followers that began anew"] += 1

    def _keep(self, held: list[Change], offset: int | None) -> None:
        """Write the offset, and what belongs to it, at once."""
        assert offset is not None, "there is no state to yield before"
        if offset == self._offset:
            return
        done = [change for change in held if change.commit_ts <= offset]
        self._told += done
        self._offset = offset
        held[:] = held[len(done) :]
        self._world.counts["changes followed"] += len(done)

    # -- in the end ------------------------------------------------------------------------------

    def wrong(
        self,
        history: Sequence[Recorded],
        committed_in: CommittedIn,
    ) -> Iterator[str]:
        """Yield what is wrong with what he was told."""
        told = [
            (
                change.commit_ts,
                change.start_ts,
                change.row,
                change.column,
                None if change.kind is ChangeKind.DELETE else int(change.value or b"0"),
            )
            for change in self._told
        ]
        if [one[0] for one in told] != sorted(one[0] for one in told):
            yield f"feed: changes of {self.table} came in another order than they were committed"
        if len(set(told)) < len(told):
            twice = sorted(one for one in set(told) if told.count(one) > 1)
            yield f"feed: changes of {self.table} came twice: {twice[:3]}"
        expected = set(self._expected(history, committed_in))
        if lacking := sorted(expected - set(told), key=str):
            yield f"feed: of {self.table} it lacks {len(lacking)} changes: {lacking[:3]}"
        if beyond := sorted(set(told) - expected, key=str):
            yield f"feed: of {self.table} it tells what nobody has committed: {beyond[:3]}"

    def _expected(
        self,
        history: Sequence[Recorded],
        committed_in: CommittedIn,
    ) -> Iterator[Fact]:
        ours = [one for one in history if one.workload == self.workload and not one.is_historical]
        final = committed_in([one.start_ts for one in ours])
        for one in ours:
            at = {one.commit_ts} if one.told is Told.COMMITTED else final.get(one.start_ts, set())
            for commit_ts in at:
                for key, value in one.writes().items():
                    if commit_ts is not None and commit_ts >= self._begins_at:
                        yield commit_ts, one.start_ts, *_place(key), _number(value)


def _place(key: str) -> tuple[bytes, bytes]:
    """Return the row and the column of a key, as its workload has it."""
    row, slash, column = key.partition("/")
    return row.encode(), b"cf:" + column.encode() if slash else COLUMN


def _number(value: Value) -> int | None:
    assert not isinstance(value, tuple), "no list is followed"
    return value
