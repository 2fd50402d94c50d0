"""Games in which long commits are read, sorted, examined and filled in by slices, among others.

Two engines are asked the same.  One decides each commit as one; the other gets some of them as
`LongCommit`, a slice of work now and then, while commits, fences and begins come in between.  All
that can be seen of the two must be the same after every step.  The same seed brings the same game.
"""

from __future__ import annotations

import random
from types import FunctionType, ModuleType
from typing import Any, Final

from omidpy.model import CellId, TableId, Timestamp
from omidpy.wire.frames import encode_request
from omidpy.wire.messages import CommitRequest
from tso.core.memory import KeptMemory

STEP_COUNT: Final = 60
MOST: Final = 100
"""Cells and tables that one commit may have."""

ALL: Final = 2**29
"""More work than there ever is."""


class Game:
    """One game between an engine that cuts long commits into slices and one that does not."""

    def __init__(self, seed: int, sliced: ModuleType, serial: ModuleType, *, at_hand: int) -> None:
        """Draw the sizes.

        Args:
            seed: Of everything random.
            sliced: The engine's module that is looked at.
            serial: The one that decides each commit as one.
            at_hand: Settings that count as at hand in both.
        """
        self._dice = dice = random.Random(seed)
        capacity = at_hand + dice.randrange(1, dice.choice((6, 15, 40, 200)))
        options = {
            "last_issued": 0,
            "conflict_map_size": capacity,
            "max_fence_count": 4,
            "seed": dice.getrandbits(30),
            "is_reserved": dice.random() < 0.5,
        }
        self.sliced: Any = sliced.Engine(**options)
        # One long commit stands where another stood.
        self.sliced.memory = KeptMemory(least_bytes=1)
        self.serial: Any = serial.Engine(**options)
        # 0 is the key of a slot that never had one.
        self._cells = [0] + [
            dice.getrandbits(64) - 2**63 for _ in range(dice.choice((6, 15, 30, 120)))
        ]
        self._starts = [self._begin()]
        self._open: list[tuple[Any, CommitRequest]] = []
        if at_hand > MOST:
            # What makes it full is not looked at later.
            self._commit(range(dice.randrange(capacity - 200, capacity)), ())
            self._starts = [self._begin()]

    def play(self) -> None:
        """Make the moves, and compare after each."""
        moves = (
            *(self._begin_one, self._commit_few, self._commit_few, self._commit_few),
            *(self._open_long, self._work, self._work, self._work, self._decide_long),
            *(self._fill, self._fence, self._raise),
        )
        for _ in range(STEP_COUNT):
            self._dice.choice(moves)()
            self._compare()
            if self._dice.random() < 0.05:
                self.sliced.fill(ALL)
                self._compare_rings()

    def _compare_rings(self) -> None:
        """Compare all that is remembered, where it can be seen: each setting, and its mark."""
        if self.sliced.__class__.__init__.__class__ is not FunctionType:
            return
        rings = []
        for engine in (self.sliced, self.serial):
            ring = engine._commits
            slots = [ring._slot(age) for age in range(ring.count)]
            rings.append([(ring._keys[one], ring._values[one], ring._is_old[one]) for one in slots])
        assert rings[0] == rings[1]

    def _begin(self) -> int:
        start_ts = int(self.sliced.begin(1))
        assert self.serial.begin(1) == start_ts
        return start_ts

    def _begin_one(self) -> None:
        self._starts.append(self._begin())

    def _start(self) -> Timestamp:
        """Return a snapshot, mostly a new one."""
        back = 1 if self._dice.random() < 0.7 else self._dice.randrange(len(self._starts)) + 1
        return Timestamp(self._starts[-back])

    def _some(self, most: int) -> list[int]:
        return [self._dice.choice(self._cells) for _ in range(self._dice.randrange(most))]

    def _commit_few(self) -> None:
        self._commit(self._some(9), [self._dice.randrange(3)])

    def _commit(self, cells: Any, tables: Any) -> None:
        start_ts = self._start()
        found = self.sliced.commit(start_ts, cells, tables)
        assert found == self.serial.commit(start_ts, cells, tables)

    def _open_long(self) -> None:
        request = CommitRequest(
            self._start(),
            tuple(map(CellId, self._some(MOST if self._dice.random() < 0.5 else 12))),
            tuple(TableId(self._dice.randrange(6)) for _ in range(self._dice.randrange(3))),
        )
        payload = encode_request(request, packed=self._dice.random() < 0.5)
        self._open.append((self.sliced.long_commit(payload, 0, len(payload), MOST), request))

    def _work(self) -> None:
        """Do a slice, or several, of what is to be done first for one of those that are open."""
        if self._open:
            commit, _ = self._dice.choice(self._open)
            for _ in range(self._dice.randrange(1, 8)):
                self._slice(commit)

    def _slice(self, commit: Any) -> bool:
        most = self._dice.choice((1, 3, 20, ALL))
        if not commit.read(most) or not self.sliced.may_slice(commit):
            return False
        return bool(commit.sort(most) and self.sliced.examine(commit, most))

    def _decide_long(self) -> None:
        if not self._open:
            return
        commit, request = self._open.pop(self._dice.randrange(len(self._open)))
        while not commit.read(ALL):
            pass
        if not self.sliced.may_slice(commit):
            return
        if self._dice.random() < 0.5:
            while not self._slice(commit):
                pass
        cells, tables = request.cell_ids, request.table_ids
        assert (len(commit), len(commit.tables)) == (len(cells), len(tables))
        found = self.sliced.commit(request.start_ts, commit, commit.tables)
        assert found == self.serial.commit(request.start_ts, cells, tables)
        named = self.sliced.conflicts(request.start_ts, commit)
        if found == -1:
            assert named
            assert set(named) <= {
                cell for cell in cells if self.serial.conflicts(request.start_ts, (cell,))
            }
        elif found > 0:
            assert not named

    def _fill(self) -> None:
        self.sliced.fill(self._dice.choice((1, 3, 20)))

    def _fence(self) -> None:
        table = self._dice.randrange(6)
        assert self.sliced.fence(table) == self.serial.fence(table)

    def _raise(self) -> None:
        if self._dice.random() < 0.2:
            to = self._start()
            self.sliced.raise_low_watermark(to)
            self.serial.raise_low_watermark(to)

    def _compare(self) -> None:
        sliced, serial = self.sliced, self.serial
        assert sliced.last_issued == serial.last_issued
        assert sliced.low_watermark == serial.low_watermark
        assert sliced.remembered_cell_count == serial.remembered_cell_count
        start_ts = self._start()
        cells = [0, *self._dice.sample(self._cells, min(20, len(self._cells)))]
        assert sliced.conflicts(start_ts, cells) == serial.conflicts(start_ts, cells)


def play(seed: int, sliced: ModuleType, serial: ModuleType, *, at_hand: int) -> None:
    """Play one game."""
    Game(seed, sliced, serial, at_hand=at_hand).play()


def play_known(engine: ModuleType) -> None:
    """Play the games that are seldom drawn; `engine` has few settings at hand."""
    _overtaken_look(engine)
    _forgotten_place(engine)
    _growth_beside(engine)
    _old_push(engine)


def _long(decider: Any, cells: list[int]) -> Any:
    """Begin a transaction, and read its commit and tell its cells apart."""
    request = CommitRequest(Timestamp(decider.begin(1)), tuple(map(CellId, cells)))
    payload = encode_request(request)
    commit = decider.long_commit(payload, 0, len(payload), MOST)
    while not (commit.read(ALL) and commit.sort(ALL)):
        pass
    return commit


def _overtaken_look(engine: ModuleType) -> None:
    """Commit a cell that was looked at, while others of the same commit still are."""
    decider = engine.Engine(last_issued=0, conflict_map_size=100)
    commit = _long(decider, list(range(10)))
    decider.examine(commit, 3)
    assert decider.commit(decider.begin(1), (1,), ()) > 0
    decider.examine(commit, 20)
    assert decider.commit(commit.start_ts, commit, commit.tables) == engine.ABORT_CONFLICT
    assert decider.conflicts(commit.start_ts, commit) == [1]


def _forgotten_place(engine: ModuleType) -> None:
    """Push the first cells out, which are in their places, before the last ones are."""
    decider = engine.Engine(last_issued=0, conflict_map_size=20, is_reserved=True)
    commit = _long(decider, list(range(10)))
    assert decider.commit(commit.start_ts, commit, commit.tables) > 0
    decider.fill(5)
    for first in (100, 200):
        assert decider.commit(decider.begin(1), range(first, first + 6), ()) > 0
    assert decider.unfilled_count == 5
    assert decider.conflicts(50, range(10)) == list(range(2, 10))


def _growth_beside(engine: ModuleType) -> None:
    """Let the memory grow while cells are not in their places."""
    decider = engine.Engine(last_issued=0, conflict_map_size=100)
    assert decider.commit(decider.begin(1), (0,), ()) > 0
    commit = _long(decider, list(range(1, 11)))
    assert decider.commit(commit.start_ts, commit, commit.tables) > 0
    assert decider.commit(decider.begin(1), range(100, 150), ()) > 0
    assert decider.conflicts(50, range(11)) == list(range(11))


def _old_push(engine: ModuleType) -> None:
    """Push out last what was set again and stays: it raises no watermark."""
    decider = engine.Engine(last_issued=0, conflict_map_size=20, is_reserved=True)
    first_ts = decider.commit(decider.begin(1), range(4), ())
    for cells in ((100,), (100,), range(200, 214)):
        assert decider.commit(decider.begin(1), cells, ()) > 0
    commit = _long(decider, list(range(300, 305)))
    assert decider.commit(commit.start_ts, commit, commit.tables) > 0
    assert decider.low_watermark == first_ts
