"""Elapsed time, the age watermark, holds, and which samples stay recorded."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from omidpy.base.timing.ages import Sample
from tso.core.age import (
    MAX_DOWNTIME_MS,
    MAX_HOLD_COUNT,
    MAX_HOLD_MS,
    MAX_HOLDS_OF_ONE,
    MAX_HOLDS_OF_SHARE,
    MAX_WORLD_LEAD_MS,
    AgeWatermark,
    OracleTime,
    SampleLog,
)
from tso.core.events import Now
from tso.core.shares.clients import numbered

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


# -- time ------------------------------------------------------------------------------------------


def test_elapsed_time_goes_on_after_a_restart() -> None:
    """It counts the downtime by the wall clock, where that is plausible."""
    sample = Sample(elapsed_ms=5000, wall_ms=100_000, last_issued_ts=0)
    time = OracleTime(Now(130_000, 7.0), last_sample=sample)
    assert time.elapsed_ms(Now(0, 7.0)) == 35_000
    assert time.elapsed_ms(Now(0, 8.5)) == 36_500


def test_an_implausible_downtime_counts_as_none() -> None:
    """A clock set back, or a month ahead, must not make old what is young."""
    sample = Sample(elapsed_ms=5000, wall_ms=100_000, last_issued_ts=0)
    for wall_ms in (99_999, 100_000 + MAX_DOWNTIME_MS + 1):
        assert OracleTime(Now(wall_ms, 0.0), last_sample=sample).elapsed_ms(Now(0, 0.0)) == 5000
    longest = OracleTime(Now(100_000 + MAX_DOWNTIME_MS, 0.0), last_sample=sample)
    assert longest.elapsed_ms(Now(0, 0.0)) == 5000 + MAX_DOWNTIME_MS


def test_between_two_oracles_of_one_boot_the_date_counts_for_nothing() -> None:
    """Set forward by a day meanwhile, it would make all of history old, and keys forgotten."""
    sample = Sample(5000, 100_000, 0, boot="this one", boot_ms=9000)
    for wall_ms in (0, 130_000, 100_000 + DAY_MS):
        time = OracleTime(Now(wall_ms, 39.0, "this one"), last_sample=sample)
        assert time.elapsed_ms(Now(0, 39.5)) == 35_500
    # It says nothing of another boot, nor if it is none that counts.
    for boot, elapsed_ms in (("another", 35_000), ("", 35_000)):
        time = OracleTime(Now(130_000, 39.0, boot), last_sample=sample)
        assert time.elapsed_ms(Now(0, 39.0)) == elapsed_ms
    early = OracleTime(Now(130_000, 8.0, "this one"), last_sample=sample)
    assert early.elapsed_ms(Now(0, 8.0)) == 5000


def test_the_date_may_lead_elapsed_time_by_ten_seconds() -> None:
    """NTP steps are believed, absurd leaps are replaced by elapsed time and reported."""
    time = OracleTime(Now(1_000_000, 0.0), last_sample=None)
    assert time.world_ms(Now(1_001_000 + MAX_WORLD_LEAD_MS, 1.0)) == 1_001_000 + MAX_WORLD_LEAD_MS
    assert time.rejected_lead_ms == 0
    leap = Now(1_002_001 + MAX_WORLD_LEAD_MS, 2.0)
    assert time.world_ms(leap) == 1_002_000 + MAX_WORLD_LEAD_MS
    assert time.rejected_lead_ms == MAX_WORLD_LEAD_MS + 1


def test_a_date_that_is_right_again_is_believed_again() -> None:
    """And told so: the alarm went on until the oracle was started anew."""
    time = OracleTime(Now(1_000_000, 0.0), last_sample=None)
    time.world_ms(Now(2_000_000, 1.0))
    assert time.rejected_lead_ms == 999_000
    assert time.world_ms(Now(1_002_000, 2.0)) == 1_002_000
    assert time.rejected_lead_ms == 0


def test_many_small_steps_are_one_leap() -> None:
    """A clock that runs twice too fast gains ten seconds and no more."""
    time = OracleTime(Now(0, 0.0), last_sample=None)
    for second in range(1, 3600):
        assert time.world_ms(Now(2000 * second, float(second))) <= 1000 * second + 10_000


def test_a_date_that_goes_back_is_believed() -> None:
    """Timestamps do not go back with it: the engine sees to that."""
    time = OracleTime(Now(1_000_000, 0.0), last_sample=None)
    assert time.world_ms(Now(500_000, 1.0)) == 500_000


# -- the watermark ---------------------------------------------------------------------------------


@given(
    steps=st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 3)), min_size=1, max_size=200),
    max_age_ms=st.sampled_from([64, 1000, 6400, 50_000]),
)
def test_nothing_younger_than_the_limit_is_too_old(
    steps: list[tuple[int, int]], max_age_ms: int
) -> None:
    """The promise to a client; and what is older by two samples' distance is too old."""
    age = AgeWatermark(max_age_ms=max_age_ms, elapsed_ms=0, last_issued=0)
    issued = [(0, 0)]
    now_ms = 0
    for pause_ms, count in steps:
        now_ms += pause_ms
        for _ in range(count):
            issued.append((now_ms, issued[-1][1] + 50))
        age.observe(elapsed_ms=now_ms, last_issued=issued[-1][1])
        target = age.target(elapsed_ms=now_ms)
        assert all(at_ms <= now_ms - max_age_ms for at_ms, ts in issued if 0 < ts <= target)
        longest_ms = max(pause for pause, _ in steps)
        surely_old_ms = now_ms - max_age_ms - age.period_ms - longest_ms
        assert target >= max((ts for at_ms, ts in issued if at_ms <= surely_old_ms), default=0)


def test_samples_are_few() -> None:
    """However often the oracle ticks."""
    age = AgeWatermark(max_age_ms=6400, elapsed_ms=0, last_issued=0)
    for now_ms in range(0, 100_000, 7):
        age.observe(elapsed_ms=now_ms, last_issued=now_ms)
        age.target(elapsed_ms=now_ms)
        assert len(age._samples) <= 66


def test_holds_end_and_are_bounded() -> None:
    """In length by a day, in number by ten thousand."""
    age = AgeWatermark(max_age_ms=1000, elapsed_ms=0, last_issued=10_000)
    for number in range(MAX_HOLD_COUNT):
        client = number // MAX_HOLDS_OF_ONE
        assert age.hold(500 + number, elapsed_ms=0, hold_ms=10 * MAX_HOLD_MS, client=client)
        if number == MAX_HOLDS_OF_ONE - 1:
            assert not age.hold(1, elapsed_ms=0, hold_ms=1, client=0)
    assert not age.hold(1, elapsed_ms=0, hold_ms=1, client="another")
    assert age.target(elapsed_ms=MAX_HOLD_MS - 1) == 450
    assert age.target(elapsed_ms=MAX_HOLD_MS) == 10_000
    assert age.hold(500, elapsed_ms=MAX_HOLD_MS, hold_ms=1, client=0)


def test_holds_of_one_name_are_bounded_whatever_numbers_it_draws() -> None:
    """Ten numbers of one certificate had all holds there are."""
    age = AgeWatermark(max_age_ms=1000, elapsed_ms=0, last_issued=10_000)
    granted = 0
    for number in range(MAX_HOLD_COUNT):
        client = numbered(3, number % 100, is_connection=False)
        granted += age.hold(500 + number, elapsed_ms=0, hold_ms=5, client=client)
    assert granted == MAX_HOLDS_OF_SHARE
    other = numbered(4, 1, is_connection=False)
    assert age.hold(1, elapsed_ms=0, hold_ms=5, client=other)
    age.target(elapsed_ms=5)
    again = numbered(3, 200, is_connection=False)
    assert age.hold(500, elapsed_ms=5, hold_ms=5, client=again)
    assert len(age._share_counts) == 1


def test_holds_of_a_client_that_left_end_like_its_other_transactions() -> None:
    """They outlived their client by a day; one that comes back finds what is still held."""
    age = AgeWatermark(max_age_ms=1000, elapsed_ms=0, last_issued=10_000)
    for client, start_ts in (("gone", 500), ("back", 600), ("stays", 700)):
        assert age.hold(start_ts, elapsed_ms=0, hold_ms=5000, client=client)
    age.leave("gone", elapsed_ms=2000)
    age.leave("back", elapsed_ms=2000)
    assert age.target(elapsed_ms=2999) == 450
    age.come_back("back")
    assert age.target(elapsed_ms=3000) == 550
    assert age.target(elapsed_ms=5000) == 10_000


def test_a_hold_does_not_grow_because_its_client_leaves() -> None:
    """It ends when it was agreed to end, if that is sooner."""
    age = AgeWatermark(max_age_ms=1000, elapsed_ms=0, last_issued=10_000)
    assert age.hold(500, elapsed_ms=0, hold_ms=5000, client="gone")
    age.leave("gone", elapsed_ms=4900)
    assert age.target(elapsed_ms=4999) == 450
    assert age.target(elapsed_ms=5000) == 10_000


def test_a_begin_that_was_repeated_holds_once() -> None:
    """The answer to the earlier one was lost, and nobody could end what it held for a day."""
    age = AgeWatermark(max_age_ms=1000, elapsed_ms=0, last_issued=10_000)
    for repetition, start_ts in enumerate((500, 600, 700)):
        granted = age.hold(
            start_ts, elapsed_ms=0, hold_ms=5000, client="one", name=7, repetition=repetition
        )
        assert granted
    assert age.target(elapsed_ms=1000) == 650
    assert age.target(elapsed_ms=5000) == 10_000
    assert not age._named
    assert not age._counts


def test_a_begin_that_comes_behind_its_repetition_takes_nothing_away() -> None:
    """It was read late, of the connection that broke; the answer to the other one is in use."""
    age = AgeWatermark(max_age_ms=1000, elapsed_ms=0, last_issued=10_000)
    for repetition, start_ts in ((1, 500), (0, 600)):
        granted = age.hold(
            start_ts, elapsed_ms=0, hold_ms=5000, client="one", name=7, repetition=repetition
        )
        assert granted
    assert age.target(elapsed_ms=4999) == 450
    assert age.target(elapsed_ms=5000) == 10_000


def test_a_name_is_that_of_its_client() -> None:
    """Another who draws the same number ends no hold."""
    age = AgeWatermark(max_age_ms=1000, elapsed_ms=0, last_issued=10_000)
    for client, start_ts in (("one", 500), ("two", 600)):
        assert age.hold(start_ts, elapsed_ms=0, hold_ms=5000, client=client, name=7, repetition=1)
    assert age.target(elapsed_ms=1000) == 450


def test_holds_of_repeated_begins_take_one_place() -> None:
    """A client whose link is bad has room for all that it may hold."""
    age = AgeWatermark(max_age_ms=1000, elapsed_ms=0, last_issued=10_000)
    for number in range(MAX_HOLDS_OF_ONE):
        for repetition in range(2):
            start_ts = 500 + 2 * number + repetition
            granted = age.hold(
                start_ts, elapsed_ms=0, hold_ms=5, client=0, name=number, repetition=repetition
            )
            assert granted
    assert not age.hold(5, elapsed_ms=0, hold_ms=5, client=0)


def test_a_hold_ends_with_its_transaction() -> None:
    """It kept the watermark down for as long as was asked for, though it was committed at once."""
    ended: set[int] = set()
    age = AgeWatermark(
        max_age_ms=1000, elapsed_ms=0, last_issued=10_000, has_ended=ended.__contains__
    )
    for start_ts in (500, 600):
        assert age.hold(start_ts, elapsed_ms=0, hold_ms=5000, client="one", name=start_ts)
    assert age.target(elapsed_ms=1000) == 450
    ended.add(500)
    assert age.target(elapsed_ms=1000) == 550
    assert age.held_back(elapsed_ms=1000) == (600, "one", 4000)
    ended.add(600)
    assert age.target(elapsed_ms=1000) == 10_000
    assert not age._named
    assert not age._counts


def test_holds_of_transactions_that_ended_leave_room_for_others() -> None:
    """A client that ends each of its transactions was refused the next thousand."""
    ended: set[int] = set()
    age = AgeWatermark(
        max_age_ms=1000, elapsed_ms=0, last_issued=10_000, has_ended=ended.__contains__
    )
    for number in range(MAX_HOLDS_OF_ONE):
        assert age.hold(500 + number, elapsed_ms=0, hold_ms=5000, client=0)
    assert not age.hold(9000, elapsed_ms=0, hold_ms=5000, client=0)
    ended.add(700)
    assert age.hold(9000, elapsed_ms=0, hold_ms=5000, client=0)
    assert not age.hold(9050, elapsed_ms=0, hold_ms=5000, client=0)


def test_the_transaction_that_keeps_the_watermark_back_is_named() -> None:
    """The oldest that has a hold, once all others of its age have none, for as long as it does."""
    age = AgeWatermark(max_age_ms=1000, elapsed_ms=0, last_issued=10_000)
    assert age.held_back(elapsed_ms=0) is None
    for client, start_ts, hold_ms in (("first", 500, 3000), ("second", 600, 5000)):
        assert age.hold(start_ts, elapsed_ms=0, hold_ms=hold_ms, client=client)
    assert age.target(elapsed_ms=999) == 0
    assert age.held_back(elapsed_ms=999) is None
    assert age.target(elapsed_ms=1000) == 450
    assert age.held_back(elapsed_ms=1000) == (500, "first", 2000)
    assert age.held_back(elapsed_ms=3000) == (600, "second", 2000)
    assert age.held_back(elapsed_ms=5000) is None


# -- recorded samples ------------------------------------------------------------------------------


def test_samples_are_recorded_once_a_minute() -> None:
    """And after a restart not before a minute has passed."""
    log = SampleLog([0, 60_000])
    assert not log.is_due(119_999)
    assert log.is_due(120_000)
    assert SampleLog([]).is_due(0)


def test_old_samples_are_thinned_and_then_forgotten() -> None:
    """Minutes for two days, hours for three months: the store keeps some thousands."""
    log = SampleLog([])
    recorded: set[int] = set()
    step_ms = 20 * 60_000
    for now_ms in range(0, 100 * DAY_MS, step_ms):
        recorded.add(now_ms)
        recorded.difference_update(log.add(now_ms))
    newest = 100 * DAY_MS - step_ms
    assert set(log._recorded_ms) == recorded
    minutes = [at for at in recorded if at > newest - 2 * DAY_MS]
    hours = sorted(at for at in recorded if at <= newest - 2 * DAY_MS)
    assert len(minutes) == 2 * 24 * 3
    assert all(later - earlier == HOUR_MS for earlier, later in pairwise(hours))
    assert newest - 90 * DAY_MS < hours[0] <= newest - 90 * DAY_MS + HOUR_MS
