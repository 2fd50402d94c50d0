"""Readers who look again: what a snapshot saw once, it sees as long as it answers (I10).

A holder takes a snapshot of now or of an earlier moment, most often keeps it from being collected
for some seconds, reads whole tables, waits, and reads them again: what is then seen is the same,
or the snapshot is refused.  While it is held it is not refused either.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from omidpy.errors import OmidError, SnapshotTooOld
from omidpy.facts.holds import HeldSnapshot
from omidpy.manager import TransactionManager
from omidpy.tx.transaction import Transaction
from tests.machines.simulator.watch import Watch
from tests.machines.simulator.world import Process

HOLDERS: Final = ("holder-a", "holder-b")

LONGEST_AGO_S: Final = 15.0
"""How far back a snapshot of an earlier moment is at most."""

Seen: TypeAlias = dict[bytes, dict[bytes, Any]]
"""Rows, each with its values and when they were committed, by column."""


class HoldHabits(NamedTuple):
    """How holders go about it."""

    pause_s: float
    """Between two snapshots, on average."""
    held_share: float
    """Snapshots that are held; others are only read."""
    lengths_s: tuple[float, ...]
    """For how long one is held, and read."""
    look_s: float
    """Between two looks at it, on average."""


class Holder:
    """A process that reads snapshots again."""

    def __init__(
        self,
        watch: Watch,
        process: Process,
        habits: HoldHabits,
        tables: Sequence[str],
        make: Callable[[], TransactionManager],
    ) -> None:
        self._watch = watch
        self._world = watch.world
        self._process = process
        self._habits = habits
        self._tables = tables
        self._make = make

    def work(self, dice: random.Random, until_s: float) -> None:
        """Read one snapshot after the other until it is late."""
        tm = self._make()
        while self._world.now_s < until_s:
            self._world.program.sleep(dice.expovariate(1 / self._habits.pause_s))
            try:
                self._take(tm, dice)
            except OmidError as error:
                self._world.note(f"{self._process.name}: {error!r}")
                self._world.counts[f"holders ended by {type(error).__name__}"] += 1

    def _take(self, tm: TransactionManager, dice: random.Random) -> None:
        ago_s = dice.uniform(0.5, LONGEST_AGO_S)
        at = timedelta(seconds=ago_s) if dice.random() < 0.5 else None
        length_s = dice.choice(self._habits.lengths_s)
        table = dice.choice(self._tables)
        with tm.snapshot(at=at) as tx:
            if dice.random() >= self._habits.held_share:
                self._look_again(tx, table, dice, self._world.now_s + length_s, held_until_s=0.0)
                return
            # It is counted from somewhere within the call, hence from here on at least.
            until_s = self._world.now_s + length_s
            held = tm.hold(tx, for_s=length_s)
            self._world.counts["snapshots held"] += 1
            try:
                self._look_again(tx, table, dice, until_s, held_until_s=until_s)
            finally:
                self._let_go(held, dice)

    def _let_go(self, held: HeldSnapshot, dice: random.Random) -> None:
        # The others run out.
        if dice.random() < 0.5:
            with suppress(OmidError):
                held.release()

    def _look_again(
        self,
        tx: Transaction,
        table: str,
        dice: random.Random,
        until_s: float,
        *,
        held_until_s: float,
    ) -> None:
        """Read a table until a moment, and hold what is seen to what was seen first."""
        world, name = self._world, self._process.name
        first: Seen | None = None
        while first is None or world.now_s < until_s:
            try:
                seen = self._seen_again(tx, table, dice, first)
            except SnapshotTooOld as error:
                world.counts["snapshots refused"] += 1
                if world.now_s < held_until_s:
                    self._watch.found(f"hold: {name} is refused what it holds: {error}")
                return
            if first is not None and seen != first:
                kept = {row: first[row] for row in first if seen.get(row) != first[row]}
                new = {row: seen[row] for row in seen if seen[row] != first.get(row)}
                self._watch.found(
                    f"I10: the snapshot {tx.start_ts} of {name} saw {kept} in {table}, then {new}"
                )
                return
            first = seen
            world.counts["looks of holders"] += 1
            world.program.sleep(dice.expovariate(1 / self._habits.look_s))

    def _seen_again(
        self, tx: Transaction, name: str, dice: random.Random, first: Seen | None
    ) -> Seen:
        """Read a table by a scan, or row by row if its rows are known."""
        table = tx.table(name)
        if first is None or dice.random() < 0.5:
            return dict(table.scan(include_timestamp=True))
        found = ((row, table.row(row, include_timestamp=True)) for row in first)
        return {row: data for row, data in found if data}
