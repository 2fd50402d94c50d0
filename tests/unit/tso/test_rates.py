"""How fast one share may use up what all have: who is over waits, or is refused; others are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from omidpy.model import Timestamp
from omidpy.oracle.base import AbortReason
from omidpy.wire.frames import frame_request
from omidpy.wire.messages import CommitResponse, TimestampRequest
from tests.machines.oracle_driver import Driver, commit_request, small
from tso.core.events import Question
from tso.core.settings import LEAST_CELLS_PER_S, PROTECTED_MS, Settings
from tso.core.shares.clients import numbered
from tso.core.shares.rates import BURST_S, GREAT_DEBT_S, MAX_SHARE_COUNT, SWEEP_S, Limits, Rates

CELLS = Limits(cells_per_s=10, burst_cells=100)
MINE, THEIRS = (numbered(share, 1, is_connection=False) for share in (1, 2))


def spend(rates: Rates, share: int, now_s: float, cells: int = 0, begins: int = 0) -> float:
    """Spend, and return the debt."""
    rates.spend(share, now_s, cells=cells, begins=begins, commits=0)
    return rates.debt_s(share, now_s)


# -- buckets ---------------------------------------------------------------------------------------


def test_a_burst_is_free_and_a_debt_is_paid_by_time() -> None:
    """And nobody else has it."""
    rates = Rates(CELLS)
    assert spend(rates, 1, 5.0, cells=100) == 0
    assert not rates.over
    assert spend(rates, 1, 5.0, cells=20) == pytest.approx(2.0)
    assert spend(rates, 2, 5.0, cells=100) == 0
    assert rates.over == {1}
    assert rates.debt_s(1, 6.5) == pytest.approx(0.5)
    assert rates.debt_s(1, 7.0) == 0
    assert not rates.over
    # A bucket holds no more than a burst, however long nobody takes from it.
    assert spend(rates, 1, 1e6, cells=110) == pytest.approx(1.0)


def test_begins_and_commits_have_buckets_of_their_own() -> None:
    """A second's worth at once."""
    rates = Rates(Limits(begins_per_s=10, commits_per_s=20))
    assert spend(rates, 1, 0.0, cells=10**9, begins=round(10 * BURST_S)) == 0
    rates.spend(1, 0.0, cells=0, begins=0, commits=round(20 * BURST_S) + 10)
    assert rates.debt_s(1, 0.0) == pytest.approx(0.5)
    assert spend(rates, 1, 0.5, begins=10) == pytest.approx(0.5)


def test_a_lone_share_begins_no_more_than_it_may() -> None:
    """Of cells alone it may have what nobody else is there to want."""
    rates = Rates(replace(CELLS, present_s=60.0, begins_per_s=10))
    for debt_s in (0.0, 1.0, 2.0):
        assert spend(rates, 1, 0.0, cells=10**6, begins=10) == pytest.approx(debt_s)


def test_rest_saves_no_more_than_a_burst_of_begins_and_commits() -> None:
    """Whoever asked nothing for a day may ask no more at once than anybody."""
    rates = Rates(Limits(begins_per_s=10, commits_per_s=20))
    rates.spend(1, 0.0, cells=0, begins=1, commits=1)
    assert spend(rates, 1, 1e5, begins=20) == pytest.approx(1.0)
    rates.spend(2, 0.0, cells=0, begins=1, commits=1)
    rates.spend(2, 1e5, cells=0, begins=0, commits=40)
    assert rates.debt_s(2, 1e5) == pytest.approx(1.0)


def test_a_debt_outlasts_every_sweep() -> None:
    """Whoever rests for a moment does not come back without it."""
    rates = Rates(CELLS)
    assert spend(rates, 1, 0.0, cells=1100) == pytest.approx(100.0)
    rates.pass_time(2 * SWEEP_S)
    assert rates.debt_s(1, 2 * SWEEP_S) == pytest.approx(100.0 - 2 * SWEEP_S)


def test_who_left_in_debt_is_not_there() -> None:
    """What it owes lasts for longer than anybody has to be spared for it."""
    rates = Rates(replace(CELLS, present_s=60.0))
    assert spend(rates, 1, 0.0, begins=1) == 0
    assert spend(rates, 2, 0.0, cells=10**6) > 60.0
    assert spend(rates, 1, 61.0, begins=1) == 0
    rates.pass_time(61.0 + SWEEP_S)
    assert spend(rates, 1, 72.0, cells=10**6) == 0


@pytest.mark.parametrize("begins_per_s", [0, 10**6])
def test_a_lone_share_spends_what_it_likes_and_begins_with_nothing_beside_others(
    begins_per_s: int,
) -> None:
    """A map is spared for nobody who is not there, and at once for who comes."""
    rates = Rates(replace(CELLS, present_s=60.0, begins_per_s=begins_per_s))
    assert spend(rates, 1, 0.0, cells=10**6) == 0
    assert spend(rates, 2, 1.0, begins=1) == 0
    assert spend(rates, 1, 1.0, cells=30) == pytest.approx(2.0)
    # The other one has left when the time of its last transaction is over.
    rates.pass_time(1.0 + 60.0 + SWEEP_S)
    assert spend(rates, 1, 72.0, cells=10**6) == 0


def test_whoever_only_reads_is_there() -> None:
    """A lone reader that began a moment ago is no less there for having been alone for long."""
    rates = Rates(replace(CELLS, present_s=60.0))
    for now_s in (0.0, 100.0):
        assert spend(rates, 1, now_s, begins=1) == 0
    assert spend(rates, 2, 101.0, cells=100) == 0
    rates.pass_time(101.0 + SWEEP_S)
    assert spend(rates, 2, 112.0, cells=120) == pytest.approx(2.0)


def test_shares_are_remembered_in_bounded_memory() -> None:
    """Those with the smallest debts are forgotten first; a full bucket says nothing."""
    rates = Rates(replace(CELLS, present_s=60.0))
    for share in range(1, 3 * MAX_SHARE_COUNT):
        rates.spend(share, 0.0, cells=1, begins=1, commits=1)
        if share == 5:
            rates.spend(share, 0.0, cells=200, begins=0, commits=0)
    assert len(rates._buckets) <= MAX_SHARE_COUNT
    assert rates.debt_s(5, 0.0) == pytest.approx(10.1)
    rates.pass_time(100.0)
    assert not rates._buckets
    assert not rates.over


@pytest.mark.parametrize("age_ms", [60_000, PROTECTED_MS, 24 * 3600 * 1000])
def test_by_default_no_share_turns_the_default_map_over(age_ms: int) -> None:
    """Within the life of any transaction, or a quarter of an hour, in which others write, too."""
    settings = Settings(cells_per_s=None, max_transaction_age_ms=age_ms)
    limits = settings.limits
    protected_s = min(age_ms, PROTECTED_MS) / 1000
    written = limits.burst_cells + protected_s * limits.cells_per_s
    assert settings.conflict_map_size / 2 < written < 0.9 * settings.conflict_map_size
    assert limits.present_s == age_ms / 1000
    small_map = replace(settings, conflict_map_size=1)
    assert small_map.limits.cells_per_s == LEAST_CELLS_PER_S
    assert Settings().limits.are_none


# -- the machine -----------------------------------------------------------------------------------


def committed(driver: Driver, client: int, cells: range) -> CommitResponse:
    """Begin and commit, and return the answer."""
    driver.ask_as("client", TimestampRequest(), client=client)
    start_ts = driver.machine.last_issued
    driver.ask_as("client", commit_request(start_ts, cells), client=client)
    _, answer = driver.sent[-1]
    assert isinstance(answer, CommitResponse)
    assert answer.start_ts == start_ts
    return answer


def test_small_commits_do_not_turn_the_map_over_for_others() -> None:
    """300 kB/s of them did it in ten seconds, and every older transaction was aborted."""
    driver = Driver(small(conflict_map_size=4000, cells_per_s=10))
    driver.ask_as("victim", TimestampRequest(), client=MINE)
    start_ts = driver.machine.last_issued
    answers = [
        committed(driver, THEIRS, range(first, first + 100)) for first in range(0, 10_000, 100)
    ]
    granted = [answer for answer in answers if answer.commit_ts is not None]
    assert 1000 <= 100 * len(granted) <= 1000 + 100 + 10 * GREAT_DEBT_S
    assert answers[-1].reason == AbortReason.RATE.value
    assert answers[-1].wait_ms == 10_000
    assert committed(driver, MINE, range(50)).commit_ts is not None
    driver.ask_as("victim", commit_request(start_ts, [20_000]), client=MINE)
    assert start_ts in driver.disk.entries
    # What was refused stays so, and time lets the share write again.
    driver.tick(seconds=30.0)
    refused_ts = answers[-1].start_ts
    driver.ask_as("client", commit_request(refused_ts, [1]), client=THEIRS)
    assert driver.sent[-1][1] == CommitResponse(refused_ts, None, (), AbortReason.RATE.value)
    assert committed(driver, THEIRS, range(10)).commit_ts is not None


def test_commits_in_runs_count_as_well() -> None:
    """And are refused as others are, where the debt is great."""
    driver = Driver(small(conflict_map_size=4000, cells_per_s=10))
    driver.ask_as("run", *[TimestampRequest()] * 41, client=THEIRS)
    starts = range(50, 2050, 50)
    frames = b"".join(
        frame_request(commit_request(start, range(2 * start, 2 * start + 60))) for start in starts
    )
    taken = driver.machine.run(driver.now(), "run", frames, THEIRS, False, False, 100)
    assert taken == (len(frames), 40)
    assert driver.machine.rates is not None
    assert driver.machine.rates.debt_s(THEIRS >> 40, driver.clock.monotonic_s()) == 140
    late = frame_request(commit_request(2050, [1]))
    assert driver.machine.run(driver.now(), "run", late, THEIRS, False, False, 1) == (0, 0)
    driver.clock.advance(140.0)
    taken = driver.machine.run(driver.now(), "run", late, THEIRS, False, False, 1)
    assert taken == (len(late), 1)


@pytest.mark.parametrize("is_run", [False, True])
def test_begins_and_commits_are_counted_whatever_becomes_of_them(*, is_run: bool) -> None:
    """One by one and in runs; a refused commit was as much work as another."""

    def debt_s(driver: Driver, requests: Sequence[Question]) -> float:
        if is_run:
            frames = b"".join(map(frame_request, requests))
            taken = driver.machine.run(driver.now(), "run", frames, THEIRS, False, False, 100)
            assert taken == (len(frames), len(requests))
        else:
            driver.ask_as("client", *requests, client=THEIRS)
        assert driver.machine.rates is not None
        return driver.machine.rates.debt_s(THEIRS >> 40, driver.clock.monotonic_s())

    begins = [TimestampRequest()] * 30
    assert debt_s(Driver(small(begins_per_s=10)), begins) == pytest.approx(30 / 10 - BURST_S)
    driver = Driver(small(commits_per_s=10))
    assert debt_s(driver, begins) == 0
    # In conflict with the first one are all that follow.
    commits = [commit_request(start_ts, [1]) for start_ts in range(50, 1550, 50)]
    assert debt_s(driver, commits) == pytest.approx(30 / 10 - BURST_S)


def test_runs_of_a_lone_share_leave_its_bucket_empty() -> None:
    """They are only added up while nobody else is there, and count as soon as somebody comes."""
    driver = Driver(small(conflict_map_size=4000, cells_per_s=None))
    rates = driver.machine.rates
    assert rates is not None
    begins = frame_request(TimestampRequest()) * 41
    assert driver.machine.run(driver.now(), "run", begins, THEIRS, False, False, 100)[1] == 41
    frames = [
        frame_request(commit_request(start, range(2 * start, 2 * start + 60)))
        for start in range(50, 2100, 50)
    ]
    early, late = b"".join(frames[:-1]), frames[-1]
    assert driver.machine.run(driver.now(), "run", early, THEIRS, False, False, 100)[1] == 40
    assert (rates.tally.cells_count, rates.tally.request_count) == (40 * 60, 40)
    assert not rates.over
    begin = frame_request(TimestampRequest())
    assert driver.machine.run(driver.now(), "another", begin, MINE, False, False, 1)[1] == 1
    assert driver.machine.run(driver.now(), "run", late, THEIRS, False, False, 1)[1] == 1
    debt_s = rates.debt_s(THEIRS >> 40, driver.clock.monotonic_s())
    assert debt_s == pytest.approx(60 / LEAST_CELLS_PER_S)


def test_old_transactions_are_no_way_around_it() -> None:
    """Their commits are looked up before they are decided, when somebody else asked last."""
    driver = Driver(small(conflict_map_size=4000, cells_per_s=10, decision_memory=1))
    driver.ask_as("flood", *[TimestampRequest()] * 40, client=THEIRS)
    for _ in range(3):
        assert committed(driver, MINE, range(5000, 5001)).commit_ts is not None
    for start_ts in range(50, 2050, 50):
        driver.ask_as(
            "flood",
            commit_request(start_ts, range(2 * start_ts, 2 * start_ts + 100)),
            client=THEIRS,
        )
    _, answer = driver.sent[-1]
    assert answer == CommitResponse(Timestamp(2000), None, (), AbortReason.RATE.value, 10_000)
    assert len([entry for entry in driver.disk.entries if entry <= 2000]) == 11


def test_what_was_looked_up_is_paid_by_whose_it_is() -> None:
    """And not by whoever asked something while the table was read."""
    driver = Driver(
        small(conflict_map_size=4000, cells_per_s=10, decision_memory=1), flushes_at_once=False
    )
    driver.ask_as("late", *[TimestampRequest()] * 3, client=THEIRS)
    for start_ts in (100, 150):
        driver.ask_as("late", commit_request(start_ts, [start_ts]), client=THEIRS)
        driver.land()
    driver.ask_as("late", commit_request(50, range(2000, 3000)), client=THEIRS)
    driver.ask_as("another", TimestampRequest(), client=MINE)
    while driver.flight is not None:
        driver.land()
    assert 50 in driver.disk.entries
    rates = driver.machine.rates
    assert rates is not None
    now_s = driver.clock.monotonic_s()
    assert rates.debt_s(MINE >> 40, now_s) == 0
    assert rates.debt_s(THEIRS >> 40, now_s) == pytest.approx(2 / 10)
