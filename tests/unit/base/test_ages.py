"""How long ago was that, at least?  Never more than it was, whoever sets whatever clock."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from omidpy.base.timing.ages import MOST_STAMPS, Ages, Sample, Stamp, issued_before, stamped
from omidpy.base.timing.clock import ManualClock, SystemClock

MINUTE_MS: Final = 60_000


def minutely(*boots: str) -> list[Sample]:
    """Return one sample a minute; each is measured by a run of some machine's clock."""
    return [
        Sample(minute * MINUTE_MS, 0, 50 * minute, boot, 1000 + minute * MINUTE_MS)
        for minute, boot in enumerate(boots)
    ]


def test_the_same_boot_tells_exactly() -> None:
    """Two runs of one night on one machine, whatever became of its date."""
    clock = ManualClock()
    stamp = Stamp(clock.boot, round(clock.monotonic_s() * 1000))
    clock.step_wall(milliseconds=3_600_000)
    clock.advance(12.5)
    assert Ages(clock, ()).age_ms([stamp]) == 12_500


def test_another_boot_tells_nothing() -> None:
    """Its numbers start anew, or are another machine's."""
    ages = Ages(ManualClock(monotonic_s=10**6), ())
    stamp = Stamp("another", 0)
    assert ages.age_ms([stamp]) == 0
    assert not ages.can_judge(stamp)
    assert ages.age_ms([]) == 0


def test_samples_count_from_the_second_one_after_the_stamp() -> None:
    """The first may have been measured before the stamp, and written after."""
    samples = minutely("o", "o", "o", "o", "o", "o")
    stamp = Stamp("another", 0, sample_ms=MINUTE_MS)
    found = [Ages(ManualClock(), samples[:count]).age_ms([stamp]) for count in range(7)]
    assert found == [0, 0, 0, 0, 0, MINUTE_MS, 2 * MINUTE_MS]


def test_a_stamp_from_before_every_sample_is_dated_too() -> None:
    """The first oracle of the store started after the run."""
    stamp = Stamp("another", 0)
    assert Ages(ManualClock(), minutely("o", "o", "o")).age_ms([stamp]) == MINUTE_MS


def test_time_between_two_boots_of_the_oracle_is_not_counted() -> None:
    """How long it was away only the date says, which somebody may have set."""
    samples = minutely("a", "a", "a", "b", "b", "b")
    stamp = Stamp("another", 0)
    assert Ages(ManualClock(), samples).age_ms([stamp]) == 3 * MINUTE_MS, "one of four is unknown"


def test_samples_of_old_without_a_boot_tell_nothing() -> None:
    """They were dated across restarts by the date."""
    stamp = Stamp("another", 0)
    ages = Ages(ManualClock(), minutely("", "", "", ""))
    assert ages.age_ms([stamp]) == 0
    assert not ages.can_judge(stamp)


def test_a_leap_of_the_oracles_own_elapsed_time_is_not_counted() -> None:
    """A new instance adds the time that it was away, by the date; its samples say so."""
    samples = minutely("o", "o", "o")
    leapt = Sample(86_400_000, 86_400_000, 500, "o", samples[-1].boot_ms + MINUTE_MS)
    stamp = Stamp("another", 0)
    assert Ages(ManualClock(), [*samples, leapt]).age_ms([stamp]) == 2 * MINUTE_MS


def test_the_best_of_several_stamps_counts() -> None:
    """Two machines take turns, and each knows its own."""
    clock = ManualClock(monotonic_s=500.0)
    stamps = [Stamp("another", 0), Stamp(clock.boot, 100_000), Stamp(clock.boot, 400_000)]
    assert Ages(clock, ()).age_ms(stamps) == 400_000


def test_a_moment_keeps_its_first_stamp_and_the_newest() -> None:
    """The first is the oldest that the oracle's samples can reach."""
    stamps: tuple[Stamp, ...] = ()
    for number in range(10):
        stamps = stamped(stamps, Stamp(f"boot {number}", number))
    assert len(stamps) == MOST_STAMPS
    assert [stamp.boot_ms for stamp in stamps] == [0, 7, 8, 9]
    assert stamped(stamps, Stamp("boot 8", 99)) == stamps, "a machine stamps a moment once"


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 10**6), st.integers(-(10**6), 10**6)),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 12),
    st.integers(0, 1),
)
def test_no_age_is_ever_above_the_true_one(
    steps: list[tuple[str, int, int]], stamped_behind: int, under_way: int
) -> None:
    """Whatever the date did: against a world in which the true time is known.

    Each step is a sample: by which machine, how much later, and how far its elapsed time leapt with
    the date.  The stamp is taken behind one of them; the next may have been measured before.
    """
    offsets = {"a": 5_000_000, "b": 90_000_000}
    true_ms, elapsed_ms = 0, 0
    samples: list[Sample] = []
    measured: list[int] = []
    for boot, later_ms, leap_ms in steps:
        true_ms += later_ms
        elapsed_ms += max(later_ms + leap_ms, 1)
        samples.append(Sample(elapsed_ms, 0, 0, boot, offsets[boot] + true_ms))
        measured.append(true_ms)
    assert all(one.elapsed_ms < other.elapsed_ms for one, other in pairwise(samples))
    seen = min(stamped_behind, len(samples))
    # When it was taken: not before the newest sample that could be read, and perhaps after the next
    # one was measured, which was not yet to be read.
    next_ms = measured[min(seen + under_way, len(samples)) - 1] if seen + under_way else 0
    taken_ms = max(measured[seen - 1] if seen else 0, next_ms)
    stamp = Stamp("driver", 0, samples[seen - 1].elapsed_ms if seen else -1)
    assert 0 <= Ages(ManualClock(), samples).age_ms([stamp]) <= max(true_ms - taken_ms, 0)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 10**6), st.integers(-(10**6), 10**6)),
        max_size=12,
    ),
    st.integers(0, 10**7),
)
def test_nothing_is_taken_for_issued_longer_ago_than_it_was(
    steps: list[tuple[str, int, int]], age_ms: int
) -> None:
    """Else a compaction drops versions, and keys, sooner than it was told to."""
    offsets = {"a": 5_000_000, "b": 90_000_000}
    true_ms, elapsed_ms = 1, 0
    samples: list[Sample] = []
    for boot, later_ms, leap_ms in steps:
        true_ms += later_ms
        elapsed_ms += max(later_ms + leap_ms, 1)
        samples.append(Sample(elapsed_ms, 0, true_ms, boot, offsets[boot] + true_ms))
    issued_ms = issued_before(samples, age_ms=age_ms)
    assert issued_ms == 0 or true_ms - issued_ms >= age_ms


def test_how_long_a_timestamp_is_issued_is_counted_and_not_dated() -> None:
    """A machine that takes over, or is started anew, with a date that is a month ahead."""
    samples = minutely("a", "a", "a", "b", "b", "b")
    leapt = [
        Sample(one.elapsed_ms + 10**9, 0, one.last_issued_ts, one.boot, one.boot_ms)
        for one in samples[3:]
    ]
    for some in (samples, samples[:3] + leapt):
        found = [issued_before(some, age_ms=minutes * MINUTE_MS) for minutes in range(6)]
        assert found == [250, 200, 150, 50, 0, 0]
    # Samples of old say nothing better, and a mixture of both tells nothing.
    assert issued_before(minutely("", "", "a"), age_ms=MINUTE_MS) == 0
    assert issued_before(minutely("", "", ""), age_ms=MINUTE_MS) == 50
    assert issued_before((), age_ms=0) == 0


def test_processes_of_one_machine_share_a_boot_and_clocks_of_tests_do_not() -> None:
    """The job of tonight is another process than that of last night."""
    script = "from omidpy.base.timing.clock import SystemClock; print(SystemClock().boot)"
    other = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.strip()
    here = SystemClock().boot
    if not here.startswith("process "):
        assert other == here
    assert here == SystemClock().boot != ""
    assert ManualClock().boot != ManualClock().boot
