"""Guards against those who stall, taken away one by one: the stall harness must notice each.

The same plays run on the code as it is and pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pytest

from compactor.ranges.range_pass import RangePass
from compactor.ranges.range_task import RangeResult
from omidpy import admin
from omidpy.fate.operation import Operation
from omidpy.fate.table.store import TableFateStore
from omidpy.manager import TransactionManager
from omidpy.model import TableId, TableSchema, Timestamp
from omidpy.storage.memory import MemoryStore
from tests.machines.naive_oracle import NaiveOracle
from tests.machines.stalls.ledger import Ledger, Way, done, refused
from tests.machines.stalls.lives import Ending, Moment
from tests.machines.stalls.tables import ABSENT, Beginning, Scene

Patch = Callable[[pytest.MonkeyPatch], None]


class Mutant(NamedTuple):
    """What is broken, and the play that must show it."""

    breaks: Patch
    beginning: Beginning
    at: str
    """The function or class whose changes are the moments."""
    ending: Ending
    others: tuple[str, ...]


def removes_whatever_has_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break incarnations: a removal does not look which table of the name it removes."""
    drop = MemoryStore.drop_table

    def drop_table(
        self: MemoryStore, table: str, *, only: Mapping[str, str | None] | None = None
    ) -> bool:
        del only
        return drop(self, table)

    monkeypatch.setattr(MemoryStore, "drop_table", drop_table)


def asks_by_the_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break incarnations: who drops a table joins whoever drops another of its name."""
    removal = admin.removal

    def by_name(tm: TransactionManager, name: str) -> admin.TableChange:
        change = removal(tm, name)
        return change._replace(key=(change.kind, name))

    monkeypatch.setattr(admin, "removal", by_name)


def sets_no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break I8: a transaction may commit what it wrote to a table that is gone."""

    def fence(self: NaiveOracle, table_id: TableId) -> Timestamp:
        del table_id
        return self.begin().start_ts

    monkeypatch.setattr(NaiveOracle, "fence", fence)


def makes_it_more_than_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break incarnations: a table is made without the row that says that it was."""
    create = MemoryStore.create_table

    def create_table(self: MemoryStore, schema: TableSchema, **asked: Any) -> bool:
        return create(self, schema, **{**asked, "beside": None})

    monkeypatch.setattr(MemoryStore, "create_table", create_table)


def writes_over_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break F1: who was taken for dead goes on with what another has finished."""
    swap = TableFateStore.swap

    def over(self: TableFateStore, old: Operation, new: Operation) -> bool:
        return swap(self, self.existing(old.id), new)

    monkeypatch.setattr(TableFateStore, "swap", over)
    # Steps that look once more before they act find nothing amiss.
    monkeypatch.setattr("omidpy.fate.running.runner._Run.confirm", lambda _: None, raising=False)


def claims_before_it_heals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break I6: a run that dies in between leaves a claim that is not true."""
    run = RangePass.run

    def too_early(self: RangePass) -> RangeResult:
        self.claim()
        return run(self)

    monkeypatch.setattr(RangePass, "run", too_early)


MUTANTS: Final = (
    Mutant(
        removes_whatever_has_the_name,
        Beginning("drop"),
        "remove_closed",
        Ending.STALLS,
        ("run", "create", "put"),
    ),
    Mutant(
        asks_by_the_name_alone,
        Beginning("drop"),
        "Fence.do",
        Ending.DIES_BEFORE,
        ("make", "put", "drop"),
    ),
    Mutant(
        sets_no_fence, Beginning("truncate"), "Makers.make_table", Ending.STALLS, ("run", "put")
    ),
    Mutant(
        makes_it_more_than_once,
        Beginning("create", ABSENT),
        "Makers.make_table",
        Ending.STALLS,
        ("run", "drop"),
    ),
    Mutant(
        writes_over_its_successor,
        Beginning("create", ABSENT),
        "Fence.do",
        Ending.STALLS,
        ("run", "drop"),
    ),
    Mutant(
        claims_before_it_heals,
        Beginning("compact"),
        "RangePass.write",
        Ending.DIES_BEFORE,
        ("resume",),
    ),
)


def play(mutant: Mutant) -> None:
    """Play what must show it, at every moment at which the function is come to."""
    life = Scene.after(mutant.beginning).play(mutant.beginning.verb, None, ())
    numbers = [
        number
        for number, made in enumerate(life.made, start=1)
        if any(place.is_in(mutant.at) for place in made)
    ]
    assert numbers, f"{mutant.at} changes nothing"
    for number in numbers:
        scene = Scene.after(mutant.beginning)
        scene.play(mutant.beginning.verb, Moment(number, mutant.ending), mutant.others)
        scene.judge()


ids: Final[Callable[[Any], str]] = lambda one: one.breaks.__name__  # noqa: E731 - pytest's way


@pytest.mark.parametrize("mutant", MUTANTS, ids=ids)
def test_a_guard_that_is_gone_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is lost, or comes back, the ledger cannot explain."""
    mutant.breaks(monkeypatch)
    with pytest.raises(AssertionError, match=r"no order explains|never finished"):
        play(mutant)


@pytest.mark.parametrize("mutant", MUTANTS, ids=ids)
def test_the_same_plays_pass_with_all_guards(mutant: Mutant) -> None:
    """Else they would show nothing."""
    play(mutant)


# -- the judge ------------------------------------------------------------------------------------


def _added(state: Any) -> list[Way]:
    return [*done(state + 1), *refused(state)]


def test_a_ledger_misses_what_was_acknowledged_and_finds_what_was_refused() -> None:
    """Of three additions one was acknowledged, one refused, and of one nobody knows."""
    ledger = Ledger(0)
    for was_done in (True, False, None):
        deed = ledger.begin("somebody", "add", _added)
        if was_done is not None:
            ledger.end(deed, was_done=was_done)
    assert [found for found in range(4) if ledger.explains(found)] == [1, 2]


def test_a_ledger_keeps_to_the_order_of_what_was_over() -> None:
    """Two writes one after the other: the second stays; both at once: either."""

    def write(value: str) -> Callable[[Any], list[Way]]:
        return lambda _: done(value)

    for overlap in (False, True):
        ledger = Ledger("")
        first = ledger.begin("first", "a", write("a"))
        if not overlap:
            ledger.end(first, was_done=True)
        ledger.end(ledger.begin("second", "b", write("b")), was_done=True)
        if overlap:
            ledger.end(first, was_done=True)
        assert [ledger.explains(found) for found in ("a", "b", "")] == [overlap, True, False]


def test_a_ledger_lets_two_be_one_only_while_both_are_asked_for() -> None:
    """Who repeats a call that is under way is answered by it; one that is over answers nobody."""

    def take(state: Any) -> list[Way]:
        return done(state - 1) if state else refused(state)

    def explains(*, overlap: bool) -> bool:
        ledger = Ledger(1)
        first = ledger.begin("first", "take", take)
        if not overlap:
            ledger.end(first, was_done=True)
        second = ledger.begin("second", "take", take)
        for deed in (first, second):
            ledger.end(deed, was_done=True)
        return ledger.explains(0)

    assert explains(overlap=True)
    assert not explains(overlap=False)
