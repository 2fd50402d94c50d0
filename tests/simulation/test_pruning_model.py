"""The proof of the pruner, checked by visiting every state of a small model of it.

The table of mistakes says in which world each is made, and under which oracle it breaks a promise.
Where one is harmless the barrier of the low watermark makes it so: in the regular setting nothing
can still be under way when a pass begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.machines.pruning.search import search
from tests.machines.pruning.world import Mutation, Setting, World

PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "pruning-checks.md"

REGULAR, ZOMBIE, LOW_LATENCY = Setting.REGULAR, Setting.ZOMBIE, Setting.LOW_LATENCY
EVERYWHERE: Final = frozenset(Setting)
UNDER_WAY: Final = frozenset({ZOMBIE, LOW_LATENCY})
DECIDED_BY_ORACLES: Final = frozenset({REGULAR, ZOMBIE})
BOTH: Final = frozenset({0, 1})

ONE: Final = World(REGULAR)
FOREIGN: Final = replace(ONE, is_foreign=True)
READ: Final = replace(ONE, has_reader=True)
RESTORED: Final = replace(ONE, has_snapshots=True)
PAIR: Final = replace(ONE, transaction_count=2, silent=BOTH)
COLLECTED: Final = replace(ONE, transaction_count=2, collects=True)


class Protocol(NamedTuple):
    """A world in which nothing is done wrong."""

    world: World
    fewest: int
    """States; fewer would say that the world has become too small to mean anything."""
    settings: frozenset[Setting] = EVERYWHERE
    at_night: frozenset[Setting] = frozenset()
    """In which of them it is searched by night alone."""


PROTOCOLS: Final = {
    "one transaction": Protocol(ONE, 1_000),
    "one passes go on from claims": Protocol(replace(ONE, is_incremental=True), 1_000),
    "one table not ours": Protocol(FOREIGN, 150),
    "one table not ours, and a reader": Protocol(replace(FOREIGN, has_reader=True), 3_000),
    "a reader": Protocol(READ, 20_000, at_night=frozenset({REGULAR, ZOMBIE})),
    "an oracle loses its state": Protocol(replace(ONE, loses_state=True), 1_000),
    "a table goes back": Protocol(RESTORED, 4_000),
    "a table goes back at any time": Protocol(replace(RESTORED, is_bold=True), 4_000),
    "a table goes back below a window": Protocol(
        replace(RESTORED, is_incremental=True, is_bold=True), 4_000
    ),
    "two transactions": Protocol(PAIR, 50_000, DECIDED_BY_ORACLES, DECIDED_BY_ORACLES),
    "two transactions, passes go on from claims": Protocol(
        replace(PAIR, is_incremental=True), 30_000, frozenset({REGULAR})
    ),
    "old versions go": Protocol(COLLECTED, 15_000, at_night=DECIDED_BY_ORACLES),
}

AT_NIGHT: Final = {
    "two low-latency transactions": Protocol(PAIR, 100_000, frozenset({LOW_LATENCY})),
    "two transactions under way, passes go on from claims": Protocol(
        replace(PAIR, is_incremental=True), 80_000, UNDER_WAY
    ),
    "the first goes on": Protocol(replace(PAIR, silent=frozenset({1})), 200_000),
    "the second goes on": Protocol(replace(PAIR, silent=frozenset({0})), 200_000),
    "both go on": Protocol(replace(PAIR, silent=frozenset()), 500_000, frozenset({REGULAR})),
    "two transactions, a table goes back": Protocol(
        replace(PAIR, has_snapshots=True, is_bold=True, is_incremental=True),
        100_000,
        DECIDED_BY_ORACLES,
    ),
    "two transactions, a reader": Protocol(
        replace(PAIR, has_reader=True), 200_000, frozenset({REGULAR})
    ),
    "a reader, a table goes back": Protocol(
        replace(RESTORED, has_reader=True, is_incremental=True), 20_000
    ),
}


class Mistake(NamedTuple):
    """What is done wrong, in which world, and in which settings that breaks a promise."""

    mutation: Mutation
    world: World
    breaks: frozenset[Setting]
    settings: frozenset[Setting] = EVERYWHERE
    at_night: frozenset[Setting] = frozenset()
    """In which of them it is searched for by night alone; by day it breaks one in another."""


MISTAKES: Final = (
    Mistake(Mutation.WATERMARK_AFTER_SCAN, ONE, EVERYWHERE),
    Mistake(Mutation.NO_INVALIDATION, ONE, UNDER_WAY),
    Mistake(Mutation.SHADOW_BEFORE_ENTRY, ONE, EVERYWHERE),
    Mistake(Mutation.DROP_BEFORE_INVALIDATION, ONE, UNDER_WAY),
    Mistake(Mutation.NO_SECOND_LOOK, ONE, UNDER_WAY),
    Mistake(Mutation.INVALIDATION_IS_FINAL, ONE, UNDER_WAY),
    Mistake(Mutation.CLAIM_BEFORE_HEALS, ONE, EVERYWHERE),
    Mistake(Mutation.RAW_VERSIONS, ONE, EVERYWHERE),
    Mistake(Mutation.RESOLVES_BY_COLUMN, PAIR, DECIDED_BY_ORACLES, DECIDED_BY_ORACLES),
    Mistake(
        Mutation.WINDOW_TOO_HIGH,
        replace(PAIR, is_incremental=True),
        frozenset({REGULAR}),
        frozenset({REGULAR}),
    ),
    Mistake(Mutation.ONE_RANGE_SUFFICES, ONE, EVERYWHERE),
    Mistake(Mutation.COMMITS_WITHOUT_GRACE, ONE, DECIDED_BY_ORACLES),
    # While a cell lies in a table that is not ours, the entry stays anyway.
    Mistake(Mutation.COMMITS_WITHOUT_GRACE, FOREIGN, frozenset()),
    Mistake(Mutation.INVALIDATIONS_WITHOUT_GRACE, ONE, UNDER_WAY),
    Mistake(Mutation.WATERMARK_BEFORE_DURABLE, ONE, frozenset({REGULAR})),
    Mistake(Mutation.WATERMARK_BEFORE_DURABLE | Mutation.NO_INVALIDATION, ONE, EVERYWHERE),
    Mistake(Mutation.COMMITS_BELOW_WATERMARK, ONE, EVERYWHERE),
    Mistake(Mutation.TRUSTS_REGRESSION, replace(ONE, loses_state=True), EVERYWHERE),
    Mistake(Mutation.NOBODY_ASKED, FOREIGN, EVERYWHERE),
    Mistake(Mutation.ASKED_BEFORE_WATERMARK, FOREIGN, EVERYWHERE),
    Mistake(Mutation.SNAPSHOTS_IGNORED, RESTORED, EVERYWHERE),
    Mistake(Mutation.SNAPSHOT_UNDER_WAY_IGNORED, RESTORED, EVERYWHERE),
    Mistake(Mutation.CLAIMS_SURVIVE_RESTORE, RESTORED, EVERYWHERE),
    Mistake(Mutation.PASS_SURVIVES_RESTORE, RESTORED, EVERYWHERE),
    Mistake(
        Mutation.WINDOW_SURVIVES_RESTORE,
        replace(RESTORED, is_incremental=True),
        EVERYWHERE,
        at_night=frozenset({ZOMBIE}),
    ),
    Mistake(
        Mutation.READER_TAKES_ABSENCE_FOR_FINAL,
        READ,
        DECIDED_BY_ORACLES,
        at_night=frozenset({LOW_LATENCY}),
    ),
    Mistake(Mutation.READER_TRUSTS_ITS_INVALIDATION, READ, UNDER_WAY, at_night=DECIDED_BY_ORACLES),
    Mistake(
        Mutation.READER_TAKES_INVALIDATION_FOR_FINAL, READ, UNDER_WAY, at_night=DECIDED_BY_ORACLES
    ),
    Mistake(Mutation.COLLECTS_BELOW_TENTATIVE, COLLECTED, EVERYWHERE),
    Mistake(Mutation.DROPS_UNANNOUNCED, COLLECTED, EVERYWHERE),
    Mistake(
        Mutation.HORIZON_READ_BEFORE_BATCH,
        COLLECTED,
        DECIDED_BY_ORACLES,
        at_night=frozenset({LOW_LATENCY}),
    ),
)


def in_settings(protocols: dict[str, Protocol]) -> list[object]:
    """Return each world in each of its settings, with an id."""
    return [
        pytest.param(
            replace(found.world, setting=setting),
            found.fewest,
            id=f"{name}-{setting}",
            marks=pytest.mark.nightly if setting in found.at_night else (),
        )
        for name, found in protocols.items()
        for setting in Setting
        if setting in found.settings
    ]


def holds(world: World, fewest: int, record: Callable[[str, object], None]) -> None:
    """Search a world, and note how large it was."""
    finding = search(world)
    assert not finding.broken, finding.told()
    record("states", finding.state_count)
    assert finding.state_count > fewest, "the world has become too small to mean anything"


@pytest.mark.parametrize(("world", "fewest"), in_settings(PROTOCOLS))
def test_protocol_keeps_every_promise_in_every_state(
    world: World, fewest: int, record_property: Callable[[str, object], None]
) -> None:
    """Whatever dies, is lost or comes late."""
    holds(world, fewest, record_property)


@pytest.mark.nightly
@pytest.mark.parametrize(("world", "fewest"), in_settings(AT_NIGHT))
def test_protocol_keeps_every_promise_in_every_state_of_a_larger_world(
    world: World, fewest: int, record_property: Callable[[str, object], None]
) -> None:
    """Millions of states, with more at once in each."""
    holds(world, fewest, record_property)


def made_in_settings() -> Iterator[object]:
    """Yield each mistake in each of its settings, with an id."""
    for mistake in MISTAKES:
        for setting in Setting:
            if setting in mistake.settings:
                foreign = ", not ours" if mistake.world.is_foreign else ""
                yield pytest.param(
                    mistake,
                    setting,
                    id=f"{mistake.mutation.name}{foreign}-{setting}",
                    marks=pytest.mark.nightly if setting in mistake.at_night else (),
                )


@pytest.mark.parametrize(("mistake", "setting"), list(made_in_settings()))
def test_each_mistake_breaks_a_promise_where_it_matters(mistake: Mistake, setting: Setting) -> None:
    """A guard whose removal no search notices would be superstition, or the search blind."""
    finding = search(replace(mistake.world, setting=setting, mutation=mistake.mutation))
    assert bool(finding.broken) == (setting in mistake.breaks), finding.told()


def test_every_mistake_is_caught_somewhere() -> None:
    """A new mutation without a verdict would prove nothing."""
    caught = {one.mutation for one in MISTAKES if one.breaks and len(one.mutation) == 1}
    assert caught == set(Mutation)
    by_day = {one.mutation for one in MISTAKES if one.breaks - one.at_night}
    assert by_day >= caught


def test_the_page_lists_every_mistake_and_where_it_breaks_a_promise() -> None:
    """What is proven is said in one place, and said right."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| .* \| ([a-z, -]+) \|$", PAGE.read_text(), re.MULTILINE)
    expected: dict[str, frozenset[Setting]] = {}
    for one in MISTAKES:
        if len(one.mutation) == 1:
            before = expected.get(str(one.mutation.name), frozenset())
            expected[str(one.mutation.name)] = before | one.breaks
    assert [name for name, _ in rows] == [one.name for one in Mutation]
    for name, where in rows:
        named = {str(setting) for setting in Setting} if where == "all" else set(where.split(", "))
        assert named == {str(setting) for setting in expected[name]}, name
