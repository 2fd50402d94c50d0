"""Others are at work while a check looks: what they do in time must not become a finding.

Each scenario lets somebody act at one moment.  The real check finds nothing; a check that is less
careful in the one thing that its name says cries wolf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

from compactor.check.findings import CheckReport
from compactor.check.fsck import Check, CheckOptions
from compactor.check.repair import Suspicion
from compactor.rows.heal import Scope
from compactor.rows.pieces import Piece
from compactor.tables.ownership import TableStanding
from omidpy.facts.commit_table import COMMIT_TABLE, read_low_watermark
from omidpy.model import Timestamp
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import World
from tests.machines.interleaving import interleaved, once

Scenario = Callable[[type[Check]], CheckReport]


def world_of_one_table() -> World:
    """Return a store with a table of ours, and L = 1000."""
    world = World(MemoryStore())
    world.table()
    return world


def check(kind: type[Check], store: Store, act: Callable[[float], object]) -> CheckReport:
    """Check a store; somebody acts while the check waits."""

    def sleep(seconds: float) -> None:
        act(seconds)

    return kind(store, CheckOptions(settle_s=1.0), sleep=sleep).run()


class LooksOnce(Check):
    """Takes for wrong what looked wrong once."""

    def still_wrong(self, table: str, rows: Sequence[bytes]) -> list[Suspicion]:
        """Believe the first look."""
        return self.first[table]

    def read_page(self, table: str, page: Sequence[Piece], scope: Scope, entries: object) -> None:
        """Remember what looked wrong."""
        super().read_page(table, page, scope, entries)  # type: ignore[arg-type]
        self.first = {table: [one for _, wrong in self.judge(table, page, scope) for one in wrong]}


def client_rolls_back(kind: type[Check]) -> CheckReport:
    """Remove the cells of a transaction that cannot commit."""
    world = world_of_one_table()
    cell = world.put(b"a", 500)
    return check(kind, world.store, lambda _: world.remove(cell))


class LooksForEntriesOnce(Check):
    """Reads the commit table before the shadow cells, and not after."""

    def _read_afresh(
        self, table: str, rows: Sequence[bytes], scope: Scope
    ) -> Iterator[Sequence[Piece]]:
        if not hasattr(self, "before"):
            self.before = list(super()._read_afresh(table, rows, scope))
        return iter(self.before)


def client_completes_between_row_and_entry(kind: type[Check]) -> CheckReport:
    """Write the shadow cell behind the read of the row, then remove the entry."""
    world = world_of_one_table()
    cell = world.put(b"a", 500)
    world.enter(500, 550)

    def complete() -> None:
        world.heal(cell, 550)
        world.commit_table.complete([Timestamp(500)])

    is_second: list[bool] = []
    act = once("get", COMMIT_TABLE, complete)
    store = interleaved(
        world.store, lambda method, table: act(method, table) if is_second else None
    )
    return check(kind, store, lambda _: is_second.append(True))


class JudgesEntriesAtOnce(Check):
    """Does not look at entries again."""

    def look_again(self) -> None:
        """Believe the first look at entries."""
        self.commit_table.look_up = lambda start_timestamps: {  # type: ignore[method-assign]
            row.start_ts: row
            for page in self.before
            for row in page
            if row.start_ts in start_timestamps
        }
        super().look_again()

    def ask_elsewhere(self, standings: Sequence[TableStanding]) -> None:
        """Remember the commit table."""
        self.before = list(self.commit_table.scan())
        super().ask_elsewhere(standings)


def client_is_about_to_remove_its_entry(kind: type[Check]) -> CheckReport:
    """All its shadow cells are written."""
    world = world_of_one_table()
    world.healed(b"a", 500, 550)
    world.enter(500, 550)
    return check(kind, world.store, lambda _: world.commit_table.complete([Timestamp(500)]))


class AsksNobody(Check):
    """Calls an entry superfluous by the tables that it has read."""

    def ask_elsewhere(self, standings: Sequence[TableStanding]) -> None:
        """Ask nobody."""


def cell_lies_in_a_plain_table(kind: type[Check]) -> CheckReport:
    """Leave what a client of Omid's leaves that died after its commit."""
    world = world_of_one_table()
    world.table("java", families=(), plain_families=(b"cf",), owner=None)
    world.put(b"a", 500, table="java")
    world.enter(500, 550)
    return check(kind, world.store, world.clock.advance)


class ReadsTheWatermarkLate(Check):
    """Judges by what the low watermark is once the entries were read."""

    def entries(self):  # type: ignore[no-untyped-def]  # noqa: ANN201 - as above
        """Read the entries, then L."""
        rows = list(super().entries())
        self.rise()
        self.low_watermark = read_low_watermark(self.store)
        return iter(rows)

    def rise(self) -> None:
        """Let time pass."""
        self.sleep(0.0)


def watermark_rises_over_a_running_transaction(kind: type[Check]) -> CheckReport:
    """Its cells were written when it could commit, and it has committed since."""
    world = world_of_one_table()
    world.put(b"a", 1500)
    return check(kind, world.store, lambda _: world.set_low_watermark(2000))


RACES: Final[list[tuple[type[Check], Scenario]]] = [
    (LooksOnce, client_rolls_back),
    (LooksForEntriesOnce, client_completes_between_row_and_entry),
    (JudgesEntriesAtOnce, client_is_about_to_remove_its_entry),
    (AsksNobody, cell_lies_in_a_plain_table),
    (ReadsTheWatermarkLate, watermark_rises_over_a_running_transaction),
]


@pytest.mark.parametrize("scenario", [scenario for _, scenario in RACES])
def test_check_finds_nothing_in_what_others_are_about_to_finish(scenario: Scenario) -> None:
    """A check that cries wolf is run once."""
    assert scenario(Check).left == 0


@pytest.mark.parametrize(("mutant", "scenario"), RACES)
def test_careless_check_cries_wolf(mutant: type[Check], scenario: Scenario) -> None:
    """One thing differs, and there is a finding."""
    assert scenario(mutant).left > 0
