"""Say how old a timestamp is, by a clock that cannot be set.

The oracle counts elapsed time itself: monotonic time while it runs, and also while it was down if
its machine ran on; else plausible wall time.  From samples of (elapsed time, last timestamp issued)
follow the low watermark by age, and, for readers of the recorded ones, retention.  Pure: readings
of the clocks are arguments.

A watermark that moved with the date would abort every transaction, or drop all history, on the day
the clock is set wrong (docs/decisions/0005).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from omidpy.base.timing.ages import Sample
from omidpy.model import TIMESTAMP_STEP
from tso.core.events import Now
from tso.core.shares.clients import SHARES_IN_ALL, share_of

MAX_WORLD_LEAD_MS: Final = 10_000
"""How far the wall clock may run ahead of elapsed time since the oracle started."""

MAX_DOWNTIME_MS: Final = 30 * 24 * 3600 * 1000
"""A longer absence, by the wall clock, is not believed and counts as none."""

SAMPLES_PER_AGE: Final = 64
"""Samples that span the maximal age of a transaction."""

MAX_HOLD_MS: Final = 24 * 3600 * 1000
"""A longer hold is cut to this."""

MAX_HOLD_COUNT: Final = 10_000
"""Further holds are not granted."""

MAX_HOLDS_OF_ONE: Final = 1000
"""Further holds of one client are not granted."""

MAX_HOLDS_OF_SHARE: Final = MAX_HOLD_COUNT // SHARES_IN_ALL
"""Nor are further ones of all clients that have one share."""

SAMPLE_PERIOD_MS: Final = 60_000
"""How often a sample is recorded in the store."""

_FULL_DETAIL_MS: Final = 48 * 3600 * 1000
_THINNED_PERIOD_MS: Final = 3600 * 1000
_KEPT_MS: Final = 90 * 24 * 3600 * 1000


class OracleTime:
    """Elapsed time that survives restarts, and a date that cannot leap."""

    def __init__(self, now: Now, *, last_sample: Sample | None) -> None:
        """Go on from the newest recorded sample."""
        self.rejected_lead_ms = 0
        """How far ahead the wall clock is that is not believed; 0 if it is."""
        elapsed_ms = 0
        if last_sample is not None:
            elapsed_ms = last_sample.elapsed_ms + _downtime_ms(now, last_sample)
        self._start_elapsed_ms = elapsed_ms
        self._start_s = now.monotonic_s
        self._start_wall_ms = now.wall_ms
        self._lead_ms = 0

    def elapsed_ms(self, now: Now) -> int:
        """Return the milliseconds of elapsed time since the first oracle of this store."""
        return self._start_elapsed_ms + round((now.monotonic_s - self._start_s) * 1000)

    def world_ms(self, now: Now) -> int:
        """Return the date in milliseconds.

        A wall clock that runs ahead of elapsed time by more than `MAX_WORLD_LEAD_MS` is replaced by
        elapsed time.  One that runs behind is believed: timestamps never go back anyway.
        """
        # Here as there without a call: each event that the oracle hears asks for both.
        running_ms = round((now.monotonic_s - self._start_s) * 1000)
        lead_ms = now.wall_ms - self._start_wall_ms - running_ms
        if lead_ms > MAX_WORLD_LEAD_MS:
            self.rejected_lead_ms = lead_ms
            return self._start_wall_ms + running_ms + self._lead_ms
        self.rejected_lead_ms = 0
        self._lead_ms = max(self._lead_ms, lead_ms)
        return now.wall_ms


def _downtime_ms(now: Now, last_sample: Sample) -> int:
    """Return for how long there was no oracle, as far as that is known."""
    if last_sample.boot and last_sample.boot == now.boot:
        # The date may have been set meanwhile: all of history, and keys, would be old at once.
        return max(round(now.monotonic_s * 1000) - last_sample.boot_ms, 0)
    downtime_ms = now.wall_ms - last_sample.wall_ms
    return downtime_ms if 0 < downtime_ms <= MAX_DOWNTIME_MS else 0


class HeldBack(NamedTuple):
    """Which transaction the age watermark waits for."""

    start_ts: int
    client: Hashable
    """Who began it, as `AgeWatermark.hold` was told."""
    left_ms: int
    """For how long at most."""


@dataclass(slots=True)
class _Hold:
    client: Hashable
    end_ms: int
    agreed_ms: int
    name: int | None
    repetition: int


class AgeWatermark:
    """The last timestamp issued `max_age_ms` ago, held back by registered snapshots.

    Memory is bounded: `SAMPLES_PER_AGE` samples and `MAX_HOLD_COUNT` holds.
    """

    def __init__(
        self,
        *,
        max_age_ms: int,
        elapsed_ms: int,
        last_issued: int,
        has_ended: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """Start with a first sample; nothing older is known or needed.

        Args:
            max_age_ms: How old a transaction may be that has no hold.
            elapsed_ms: The oracle's time.
            last_issued: The newest timestamp.
            has_ended: Whether a transaction was decided, or forbidden, so that it needs no hold.
        """
        assert max_age_ms > 0, "checked by the configuration"
        self._max_age_ms = max_age_ms
        self._has_ended = has_ended
        self._period_ms = max(max_age_ms // SAMPLES_PER_AGE, 1)
        self._samples: deque[tuple[int, int]] = deque([(elapsed_ms, last_issued)])
        self._aged = 0
        self._holds: dict[int, _Hold] = {}
        self._named: dict[tuple[Hashable, int], int] = {}
        """The start timestamps of those that have a name, by client and name."""
        self._counts: Counter[Hashable] = Counter()
        self._share_counts: Counter[Hashable] = Counter()
        self.away: Final[set[Hashable]] = set()
        """Clients that left and may `come_back`: of none else anything is to be done."""
        self._next_end_ms = 0

    @property
    def period_ms(self) -> int:
        """How often `observe` takes a sample."""
        return self._period_ms

    def observe(self, *, elapsed_ms: int, last_issued: int) -> None:
        """Take a sample if one is due."""
        if elapsed_ms - self._samples[-1][0] >= self._period_ms:
            self._samples.append((elapsed_ms, last_issued))

    def hold(
        self,
        start_ts: int,
        *,
        elapsed_ms: int,
        hold_ms: int,
        client: Hashable,
        name: int | None = None,
        repetition: int = 0,
    ) -> bool:
        """Keep the age watermark below `start_ts` for so long.

        Args:
            start_ts: The snapshot.
            elapsed_ms: The oracle's time.
            hold_ms: For how long.
            client: Who asks.
            name: The same for each repetition of one begin: the last one takes the place of the
                others, whose answers were lost.  None: it is not repeated.
            repetition: Which one it is.

        Returns:
            False: holds are too many.
        """
        self._drop_expired(elapsed_ms)
        if name is not None and (earlier := self._named.get((client, name))) is not None:
            if repetition <= self._holds[earlier].repetition:
                # It was overtaken on its way, by another connection, and nobody uses its answer.
                return True
            self._drop(earlier)
        if self._is_full(client):
            self._drop_ended()
            if self._is_full(client):
                return False
        # It ends by the oracle's time: one that ended only when it is given back would keep the
        # watermark down for ever behind a client that died.
        end_ms = elapsed_ms + min(hold_ms, MAX_HOLD_MS)
        self._holds[start_ts] = _Hold(client, end_ms, end_ms, name, repetition)
        if name is not None:
            self._named[client, name] = start_ts
        self._counts[client] += 1
        self._share_counts[share_of(client)] += 1
        self._next_end_ms = min(self._next_end_ms, end_ms)
        return True

    def _is_full(self, client: Hashable) -> bool:
        return (
            len(self._holds) >= MAX_HOLD_COUNT
            or self._counts[client] >= MAX_HOLDS_OF_ONE
            or self._share_counts[share_of(client)] >= MAX_HOLDS_OF_SHARE
        )

    def leave(self, client: Hashable, *, elapsed_ms: int) -> None:
        """Let a client's holds end with the age that its transactions have without them."""
        if not self._counts.get(client):
            return
        self.away.add(client)
        for hold in self._holds.values():
            if hold.client == client:
                hold.end_ms = min(hold.agreed_ms, elapsed_ms + self._max_age_ms)
        self._next_end_ms = 0

    def come_back(self, client: Hashable) -> None:
        """Hold again for as long as it was agreed, what is still held."""
        if client in self.away:
            self.away.discard(client)
            for hold in self._holds.values():
                if hold.client == client:
                    hold.end_ms = hold.agreed_ms

    def target(self, *, elapsed_ms: int) -> int:
        """Return what the low watermark must be at least; 0 while nothing is old enough.

        Holds of transactions that have ended are dropped: they kept the watermark down, and took
        the place of others, for as long as their client was there.
        """
        while self._samples and self._samples[0][0] <= elapsed_ms - self._max_age_ms:
            self._aged = self._samples[0][1]
            if len(self._samples) == 1:
                break
            self._samples.popleft()
        self._drop_expired(elapsed_ms)
        self._drop_ended()
        # A step below what is held: a transaction at the watermark itself commits no more (I4).
        return min([self._aged, *(start_ts - TIMESTAMP_STEP for start_ts in self._holds)])

    def held_back(self, *, elapsed_ms: int) -> HeldBack | None:
        """Return the oldest of the old transactions that have a hold, None if there is none."""
        self._drop_expired(elapsed_ms)
        start_ts = min(self._holds, default=self._aged + TIMESTAMP_STEP)
        if start_ts > self._aged:
            return None
        hold = self._holds[start_ts]
        return HeldBack(start_ts, hold.client, hold.end_ms - elapsed_ms)

    def _drop_expired(self, elapsed_ms: int) -> None:
        if elapsed_ms < self._next_end_ms:
            return
        expired = [ts for ts, hold in self._holds.items() if hold.end_ms <= elapsed_ms]
        for start_ts in expired:
            self._drop(start_ts)
        self._next_end_ms = min((hold.end_ms for hold in self._holds.values()), default=0)

    def _drop_ended(self) -> None:
        for start_ts in [one for one in self._holds if self._has_ended(one)]:
            self._drop(start_ts)

    def _drop(self, start_ts: int) -> None:
        hold = self._holds.pop(start_ts)
        client = hold.client
        if hold.name is not None:
            del self._named[client, hold.name]
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client]
            self.away.discard(client)
        share = share_of(client)
        self._share_counts[share] -= 1
        if not self._share_counts[share]:
            del self._share_counts[share]


class SampleLog:
    """Which samples are recorded in the store, and which may go.

    One a minute for two days, then one an hour for three months.
    """

    def __init__(self, recorded_ms: Iterable[int]) -> None:
        """Know the samples that are recorded, by their `elapsed_ms`."""
        self._recorded_ms = sorted(recorded_ms)

    def is_due(self, elapsed_ms: int) -> bool:
        """Say whether the next sample should be recorded."""
        return not self._recorded_ms or elapsed_ms - self._recorded_ms[-1] >= SAMPLE_PERIOD_MS

    def add(self, elapsed_ms: int) -> list[int]:
        """Note a new sample; return those to remove for it."""
        if not self._recorded_ms or elapsed_ms > self._recorded_ms[-1]:
            self._recorded_ms.append(elapsed_ms)
        split = bisect_right(self._recorded_ms, elapsed_ms - _FULL_DETAIL_MS)
        kept: list[int] = []
        forgotten: list[int] = []
        for recorded_ms in self._recorded_ms[:split]:
            is_new_hour = not kept or (
                recorded_ms // _THINNED_PERIOD_MS != kept[-1] // _THINNED_PERIOD_MS
            )
            if is_new_hour and recorded_ms > elapsed_ms - _KEPT_MS:
                kept.append(recorded_ms)
            else:
                forgotten.append(recorded_ms)
        self._recorded_ms[:split] = kept
        return forgotten
