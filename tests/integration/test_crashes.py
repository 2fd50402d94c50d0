"""Clients are killed at every step of every kind of transaction, on a file and on a real HBase.

Everything is done once for a store; each test judges all of it.  What the clients do,
where they end and who looks: `tests/machines/crashes/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Final

import pytest

from omidpy.errors import OracleUnavailable
from omidpy.model import Aborted, Committed, Forgotten, Outcome, Timestamp, Undecided
from omidpy.oracle.base import CommitRefused
from tests.machines.crashes.aftermath import Case, Observer, Seen
from tests.machines.crashes.mortal import COMMIT, Ending, LateCommit
from tests.machines.crashes.scenarios import BEFORE, LEVELS, SCENARIOS, Scenario
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import one_region_store
from tests.machines.memory_folder import memory_folder

pytestmark = pytest.mark.integration

Cases = dict[str, list[Case]]


ON_HBASE: Final = ("two-tables",)
"""What is tried on HBase by day: many cells; on a file it is everything."""

AT_NIGHT: Final = (pytest.mark.hbase, pytest.mark.nightly)

KINDS: Final = {
    "sqlite": (SCENARIOS, ()),
    "direct": (ON_HBASE, (pytest.mark.hbase,)),
    "all direct": (SCENARIOS, AT_NIGHT),
    "thrift2": (SCENARIOS, AT_NIGHT),
    "thrift1": (SCENARIOS, AT_NIGHT),
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(kind, marks=marks) for kind, (_, marks) in KINDS.items()],
)
def cases(request: pytest.FixtureRequest) -> Iterator[Cases]:
    """Return what was seen of each client, by scenario."""
    names, _ = KINDS[request.param]
    if request.param == "sqlite":
        with memory_folder() as folder:
            yield observed(names, f"sqlite:///{folder}/store.db")
        return
    hbase: HBase = request.getfixturevalue("hbase")
    road = Road.DIRECT if "direct" in request.param else Road.THRIFT2
    with hbase.by(road), one_region_store(hbase) as store:
        clients_url = hbase.thrift1_url if request.param == "thrift1" else None
        yield observed(names, store.url, clients_url)


def observed(names: Iterable[str], url: str, clients_url: str | None = None) -> Cases:
    """Let the clients live and end; return what was seen of each, by scenario."""
    with closing(Observer(url, clients_url=clients_url)) as observer:
        seen = observer.observe(names)
    return {name: [case for case in seen if case.task.scenario == name] for name in names}


def test_a_client_that_is_spared_ends_as_it_should(cases: Cases) -> None:
    """Else the others would be held to the wrong thing.

    Where single versions cannot be deleted, neither the flushed cells of a savepoint nor those of a
    discarded worker can be undone.
    """
    for scenario in cases:
        healthy = cases[scenario][0]
        assert healthy.task.moment is None
        commits = bool(healthy.scenario.changes)
        if scenario in ("savepoints", "given-up") and healthy.task.url.startswith("hbase+thrift1"):
            commits = False
        assert healthy.told.status == ("committed" if commits else "rolled_back")


def test_a_reader_of_before_sees_nothing_of_it(cases: Cases) -> None:
    """Neither at once nor once the compactor has healed and dropped: its snapshot stays."""
    for scenario in cases:
        for case in cases[scenario]:
            if case.task.moment is not None:
                expected = of_level(BEFORE, case.scenario)
                assert [seen.image for seen in case.before] == [expected] * 2, case


def test_a_reader_of_after_sees_all_or_nothing(cases: Cases) -> None:
    """All of it if the client ended behind the decision, and then with one commit timestamp."""
    for scenario in cases:
        for case in cases[scenario]:
            assert len(case.after) == (2 if case.is_left else 5)
            for seen in case.after:
                assert is_seen(case, seen) in (True, False), f"{case}: torn: {seen}"
                if case.is_decided is not None:
                    assert is_seen(case, seen) is case.is_decided, case


def test_nobody_sees_more_or_less_of_it_later(cases: Cases) -> None:
    """Once its outcome was asked for, or an epoch has begun; whatever of it still arrives."""
    for scenario in cases:
        for case in cases[scenario]:
            settled = [is_seen(case, seen) for seen in case.after[0 if case.is_left else 1 :]]
            assert len(set(settled)) == 1, case


def test_its_outcome_is_what_readers_see(cases: Cases) -> None:
    """Asked for at once and after the compaction, and by the commit table's record alone."""
    for scenario in cases:
        for case in cases[scenario]:
            seen = case.after[-1]
            assert len(case.outcomes) == (1 if case.is_left else 2)
            for outcome in case.outcomes:
                assert agrees(outcome, case, seen), f"{case}: {outcome}, but {seen}"
            if not case.is_left:
                record = case.recorded
                assert isinstance(record, Undecided) or agrees(record, case, seen), f"{case}"
                assert not isinstance(case.outcomes[0], Forgotten), case


def test_a_request_that_arrives_too_late_is_refused(cases: Cases) -> None:
    """Somebody asked for the outcome meanwhile, and was told of none.

    One below the prune horizon gets no answer: it may be the repetition of a commit that was pruned
    since.
    """
    for scenario in cases:
        late = [case for case in cases[scenario] if isinstance(case.told.held_up, LateCommit)]
        for case in late:
            expected = OracleUnavailable if case.is_left else CommitRefused
            assert isinstance(case.late, expected), f"{case}: {case.late}"
        healthy = cases[scenario][0]
        asks = any(effect.name == COMMIT for effect in healthy.told.effects)
        assert len(late) == (3 if asks else 0)


def test_a_client_that_lives_on_is_told_what_readers_see(cases: Cases) -> None:
    """It was told that a step failed, once; and never stays in doubt."""
    for scenario in cases:
        lived_on = [case for case in cases[scenario] if case.task.ending is Ending.FAILED]
        assert lived_on
        for case in lived_on:
            told = case.told
            assert told.status in ("committed", "rolled_back", "running"), f"{case}: {told}"
            assert (told.status == "committed") is is_seen(case, case.after[0]), f"{case}: {told}"
            if told.commit_ts is not None:
                assert case.outcomes[0] == Committed(Timestamp(told.commit_ts)), case


def test_a_compaction_leaves_nothing_of_what_did_not_commit(cases: Cases) -> None:
    """And of what did commit every cell with its shadow cell, which is checked there."""
    for scenario in cases:
        for case in cases[scenario]:
            assert bool(case.rest) is is_seen(case, case.after[-1]), f"{case}: {case.rest}"


def of_level(image: dict[tuple[str, bytes], dict[bytes, bytes]], scenario: Scenario) -> object:
    """Return the part of an image that lies in the tables of a scenario's clients."""
    return {place: of for place, of in image.items() if LEVELS[place[0]] == scenario.level}


def is_seen(case: Case, seen: Seen) -> bool | None:
    """Say whether all of a transaction was seen, or none of it; None if neither."""
    scenario = case.scenario
    if seen.image == of_level(scenario.nothing, scenario):
        return False
    is_whole = seen.image == of_level(scenario.everything, scenario)
    return True if is_whole and len(commit_timestamps(case, seen)) <= 1 else None


def commit_timestamps(case: Case, seen: Seen) -> set[int]:
    """Return the commit timestamps of the values that were seen of the transaction."""
    return {
        seen.times[place][name]
        for place, columns in case.scenario.changes.items()
        for name, value in columns.items()
        if value is not None
    }


def agrees(outcome: Outcome | None, case: Case, seen: Seen) -> bool:
    """Say whether an outcome is that of a transaction of which this was seen."""
    if not is_seen(case, seen):
        return isinstance(outcome, Aborted | Forgotten)
    return isinstance(outcome, Committed) and {outcome.commit_ts} == commit_timestamps(case, seen)
