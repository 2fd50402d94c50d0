"""How far has compaction come, what may be forgotten, what dropped?  Three durable facts.

All of them are in the control table.

*Claims*: "every cell with base(version) <= watermark in this key range of these families of this
table is healed or gone".  A claim is proven by the pass that wrote it and stays true, whichever
pass runs, so claims are immutable rows: they need no lock, and two jobs at once only add more of
them.  They speak of key ranges, so splits and merges of regions do not matter, of families by name,
so that one which is adopted later is not taken for clean, and of one incarnation of the table, so
that a later table of that name is not either.  One that names the commit table itself says that
there was no table of ours at all.

*The prune horizon*: the commit table has forgotten everything at or below it (I7).

*The collection horizon*: versions older than the newest committed below it may have been dropped;
it is published first and acted upon a grace later, so that a reader who looks after its batch
arrived is warned in time (I10).  Before it is published it is announced as an *intent*, for the
sake of those that hold a snapshot at that moment (`compactor/pruning/collection.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from omidpy.base.cells import encode_long
from omidpy.base.documents import Moment, Natural
from omidpy.base.tables import CONTROL_FAMILY, CONTROL_TABLE
from omidpy.base.timing.ages import NO_SAMPLE, Ages, Sample, Stamp, issued_before, stamped
from omidpy.base.timing.clock import Clock
from omidpy.base.words.arguments import MAX_ROW_BYTES
from omidpy.errors import CorruptCell
from omidpy.facts.commit_table import LOW_WATERMARK_FACT
from omidpy.facts.control import (
    ControlTable,
    decode_document,
    decode_number,
    encode_document,
)
from omidpy.model import MAX_VERSION, Column, KeyRange, Timestamp

T = TypeVar("T")

PRUNE_HORIZON: Final = b"prune-horizon"
PRUNE_LEASE: Final = Column(CONTROL_FAMILY, b"lease")
"""In the row of the horizon: which run may raise it (`compactor/run/lease.py`)."""
INTENDED_HORIZON: Final = b"collection-intent"
COLLECTION_HORIZON: Final = b"collection-horizon"
COLLECTION_LOG: Final = b"collection-log"
CLAIM_PREFIX: Final = b"claim/"
LONG_NAME: Final = b"long/"
"""Behind it stands a digest of what a claim would be called by."""
HOLD_PREFIX: Final = b"hold/"
SAMPLE_PREFIX: Final = b"sample/"
STAMP_PREFIX: Final = b"stamp/"

MIN_COLLECTION_GRACE_S: Final = 2.0
"""No version is dropped sooner after its horizon was published, whatever grace was asked for."""

HORIZON_FREE_AGE_S: Final = MIN_COLLECTION_GRACE_S / 2
"""A reader whose snapshot is younger needs not look: what could pass it is not old enough to
act.
"""

DATES_DIFFER_S: Final = 86_400.0
"""Dates of two machines are taken to differ by less."""

EXPIRED_HOLD_KEPT_S: Final = DATES_DIFFER_S
"""How long the record of an expired hold stays."""

_COLLECTION_LOG_LENGTH: Final = 64
_SAMPLE_DIGITS: Final = 20


class Claim(msgspec.Struct, frozen=True):
    """Some families of one key range of one table are healed up to `watermark`."""

    table: str
    start: bytes
    end: bytes
    watermark: Natural
    recorded_ms: Moment
    """Wall time of the machine that recorded it, for people: its age is judged by its run."""
    families: tuple[bytes, ...] = ()
    """Those that the pass went over, sorted.  Claims of early versions name none, and prove nothing
    of any."""
    run: str = ""
    """The run whose stamps say how old it is; of an early version's that is not known."""
    incarnation: str = ""
    """Which table of this name the pass was told to go over; empty where the table did not say."""
    settled: Natural = 0
    """A row without a version from here on has nothing to drop, at any collection horizon."""
    collected: Natural = 0
    """No row has anything to drop at a collection horizon up to this one."""
    passes: Natural = 0
    """How many passes in a row, up to this claim, did not read the range whole."""
    is_small: bool = False
    """The range was read whole, and held little."""

    @property
    def key_range(self) -> KeyRange:
        """The rows it speaks of."""
        return KeyRange(self.start, self.end)

    def row(self) -> bytes:
        """Return the control row of the claim: unique for its content but for the time."""
        parts = (self.table.encode(), self.start.hex().encode(), self.end.hex().encode())
        row = CLAIM_PREFIX + b"/".join(parts) + b"/%020d" % self.watermark
        if self.families:
            row += b"/" + b",".join(family.hex().encode() for family in self.families)
        if self.incarnation:
            row += b"/" + self.incarnation.encode()
        if len(row) <= MAX_ROW_BYTES:
            return row
        # A key of the table may be as long as one of ours, and two of them are in it, as digits.
        return CLAIM_PREFIX + LONG_NAME + hashlib.sha256(row).hexdigest().encode()


class Hold(msgspec.Struct, frozen=True):
    """A snapshot whose versions must not be dropped for a while."""

    start_ts: Natural
    expires_ms: Natural
    """Date of the holder's machine: it counts where nothing better tells the time."""
    for_ms: Natural = 0
    """How long it holds, from `stamp` on."""
    stamp: Stamp | None = None
    owner: str = ""
    """Host and process of the holder, for people."""

    def left_ms(self, ages: Ages) -> int:
        """Return how long it still holds, negative where it has expired.

        Until the oracle has taken two samples more, the stamp of another machine proves no age: the
        hold is new, or the oracle takes none.  By dates alone, which the two machines may have set
        differently, it lasts longer than was asked, never less (I10).
        """
        if self.stamp is None:
            return self.expires_ms - ages.wall_ms()
        if ages.can_judge(self.stamp):
            return self.for_ms - ages.age_ms((self.stamp,))
        return self.expires_ms + round(DATES_DIFFER_S * 1000) - ages.wall_ms()


HOLDS_EVERYTHING: Final = Hold(0, 2**62)
"""What a hold that cannot be read is taken for."""


NO_LOW_WATERMARK: Final = Sample(-1, 0, MAX_VERSION)
"""What a sample that cannot be read says of low watermarks."""


class _Published(msgspec.Struct, frozen=True):
    horizon: Natural
    published_ms: Moment
    """For people."""
    stamps: tuple[Stamp, ...] = ()


class _Stamps(msgspec.Struct, frozen=True):
    stamps: tuple[Stamp, ...]


class Watermarks:
    """Reads and records the compactor's facts.  Safe to share among threads.

    A malformed fact proves nothing: a claim is none, a sample or a stamp dates nothing, and a hold,
    whatever it meant to keep, keeps everything.

    Attributes:
        malformed: What could not be decoded so far: row -> why.
    """

    def __init__(self, control: ControlTable) -> None:
        self._control = control
        self.malformed: dict[bytes, str] = {}

    # -- claims --------------------------------------------------------------------------------

    def record_claim(self, claim: Claim) -> None:
        """Record a claim; every heal it rests on must have been acknowledged (I6).

        A claim for the same range and watermark keeps its first run: it was true then already.  But
        one that cannot be read, or that names no run, proves nothing and never grows old.  What
        both remember of old versions is true, so that the better of the two stays.

        Cost: 1 durable write, 2 and 1 get where there is such a claim.
        """
        row = claim.row()
        if self._control.replace(row, None, encode_document(claim)):
            return
        raw = self._control.read(row)
        found = self._decoded(row, raw, Claim, otherwise=claim)
        if found is not claim and found.row() == row and found.run:
            claim = msgspec.structs.replace(
                found,
                settled=max(found.settled, claim.settled),
                collected=max(found.collected, claim.collected),
                passes=min(found.passes, claim.passes),
            )
        encoded = encode_document(claim)
        if encoded != raw:
            # Another run may be faster; then what it says is true as well.
            self._control.replace(row, raw, encoded)

    def claims(self) -> list[Claim]:
        """Return every recorded claim."""
        return [
            claim
            for row, claim in self._documents(CLAIM_PREFIX, Claim).items()
            if self._is_named(row, claim.row())
        ]

    def forget_claims(self, claims: Iterable[Claim]) -> None:
        """Remove claims that newer ones have made useless."""
        rows = [claim.row() for claim in claims]
        if rows:
            self._control.forget(rows)

    # -- how old things are --------------------------------------------------------------------

    def samples(self) -> list[Sample]:
        """Return the oracle's time samples, oldest first."""
        return [
            sample
            for row, sample in self._documents(SAMPLE_PREFIX, Sample).items()
            if self._is_named(row, sample_row(sample.elapsed_ms))
        ]

    def ages(self, clock: Clock) -> Ages:
        """Return what judges stamps, by `clock` and by the samples recorded so far."""
        return Ages(clock, self.samples())

    def stamp(self, clock: Clock) -> Stamp:
        """Return a stamp of this moment.  Cost: 1 RPC."""
        newest = self._control.last(SAMPLE_PREFIX)
        sample_ms = NO_SAMPLE
        if newest is not None:
            # By the name of its row alone: one that is malformed was there all the same.
            number = newest[0].removeprefix(SAMPLE_PREFIX)
            is_number = number.isdigit() and len(number) <= _SAMPLE_DIGITS
            sample_ms = min(int(number), MAX_VERSION) if is_number else MAX_VERSION
        return Stamp(clock.boot, round(clock.monotonic_s() * 1000), sample_ms)

    def stamps(self) -> dict[str, tuple[Stamp, ...]]:
        """Return the stamps of every run that has some."""
        return {
            row.removeprefix(STAMP_PREFIX).decode(): found.stamps
            for row, found in self._documents(STAMP_PREFIX, _Stamps).items()
        }

    def stamp_run(self, run: str, stamp: Stamp) -> tuple[Stamp, ...]:
        """Stamp what a run has claimed, unless this machine has done so; return all its stamps.

        Cost: 1 get, and 1 durable write the first time.
        """
        row = STAMP_PREFIX + run.encode()
        while True:
            raw = self._control.read(row)
            stamps = self._decoded(row, raw, _Stamps, otherwise=_Stamps(())).stamps
            more = stamped(stamps, stamp)
            if more == stamps or self._control.replace(row, raw, encode_document(_Stamps(more))):
                return more

    def forget_stamps(self, runs: Iterable[str]) -> None:
        """Remove the stamps of runs of which no claim is left."""
        rows = [STAMP_PREFIX + run.encode() for run in runs]
        if rows:
            self._control.forget(rows)

    # -- prune horizon -------------------------------------------------------------------------

    def prune_horizon(self) -> Timestamp:
        """Return the horizon below which commit entries may be gone; 0 if none was pruned."""
        return self._control.read_number(PRUNE_HORIZON) or Timestamp(0)

    def raise_prune_horizon(self, to: Timestamp, *, holder: bytes) -> Timestamp | None:
        """Announce, before deleting anything, that entries at or below `to` may go.

        Args:
            to: The new horizon; a lower one than there is leaves it alone.
            holder: What `PRUNE_LEASE`, in the row of the horizon, must hold: who may.

        Returns:
            The horizon afterwards; None if another may by now, and nothing was changed.

        Cost: 1 get, and 1 durable write that is checked where it lands.
        """
        # Only the holder of the lease raises it, so that what is read here is not overtaken.
        horizon = max(self.prune_horizon(), to)
        if self._control.replace_beside(PRUNE_HORIZON, PRUNE_LEASE, holder, encode_long(horizon)):
            return horizon
        return None

    # -- collection horizon --------------------------------------------------------------------

    def collection_horizon(self) -> Timestamp:
        """Return the published horizon: a snapshot below it must not be read.  Cost: 1 get."""
        return self._control.read_number(COLLECTION_HORIZON) or Timestamp(0)

    def gone_horizon(self) -> Timestamp:
        """Return at or below what both the entry and the cells of a commit may be gone.

        To be read behind a look at either: each horizon is published before anything goes by it.

        Cost: 1 get.
        """
        return max(self._numbers(PRUNE_HORIZON, COLLECTION_HORIZON))

    def read_horizons(self) -> tuple[Timestamp, Timestamp]:
        """Return the collection horizon and our oracle's low watermark, as of one read.

        Cost: 1 get.
        """
        horizon, low_watermark = self._numbers(COLLECTION_HORIZON, LOW_WATERMARK_FACT)
        return horizon, low_watermark

    def read_horizons_beside(self, row: bytes) -> tuple[Timestamp, Timestamp, bytes | None]:
        """Return the same and what another row holds, as of one read.

        Cost: 1 get.
        """
        names = (COLLECTION_HORIZON, LOW_WATERMARK_FACT)
        *raw, other = self._control.read_many((*names, row))
        horizon, low_watermark = _numbers_in(names, raw)
        return horizon, low_watermark, other

    def read_horizon_beside(self, row: bytes) -> tuple[Timestamp, bytes | None]:
        """Return the collection horizon and what another row holds, as of one read.

        Cost: 1 get.
        """
        raw, other = self._control.read_many((COLLECTION_HORIZON, row))
        horizon = Timestamp(0) if raw is None else decode_number(raw, row=COLLECTION_HORIZON)
        return horizon, other

    def _numbers(self, *rows: bytes) -> list[Timestamp]:
        """Return numbers as of one read, 0 for those that were never set."""
        return _numbers_in(rows, self._control.read_many(rows))

    def raise_collection_intent(self, to: Timestamp) -> None:
        """Grant no hold below `to` any more; the holds that were granted are read after this."""
        self._control.raise_number(INTENDED_HORIZON, to)

    def hold_floor(self) -> Timestamp:
        """Return the lowest snapshot for which a hold may be granted.  Cost: 1 get."""
        return max(self._numbers(INTENDED_HORIZON, COLLECTION_HORIZON))

    def publish_collection_horizon(self, to: Timestamp, clock: Clock) -> None:
        """Make every reader below `to` stop; acting on it must wait for the grace.

        The number is raised first and stamped after, so that a noted horizon was visible to readers
        during all of its age: raising it may take long, for instance while a region moves.  What
        other machines noted gets a stamp of this one's, too.
        """
        is_newest = self._control.raise_number(COLLECTION_HORIZON, to) == to
        stamp, now_ms = self.stamp(clock), clock.wall_ms()
        while True:
            raw = self._control.read(COLLECTION_LOG)
            log = self._decoded(COLLECTION_LOG, raw, list[_Published], otherwise=[])
            if is_newest and all(entry.horizon < to for entry in log):
                log.append(_Published(to, now_ms))
            noted = [
                msgspec.structs.replace(entry, stamps=stamped(entry.stamps, stamp))
                for entry in _thin(log, _COLLECTION_LOG_LENGTH)
            ]
            encoded = encode_document(noted)
            if encoded == raw or self._control.replace(COLLECTION_LOG, raw, encoded):
                return

    def aged_collection_horizon(self, ages: Ages, *, grace_s: float) -> Timestamp:
        """Return the newest horizon that has been public for `grace_s`; 0 if none has."""
        least_ms = round(max(grace_s, MIN_COLLECTION_GRACE_S) * 1000)
        raw = self._control.read(COLLECTION_LOG)
        log = self._decoded(COLLECTION_LOG, raw, list[_Published], otherwise=[])
        aged = [entry.horizon for entry in log if ages.age_ms(entry.stamps) >= least_ms]
        # It was raised before it was noted: what is above it was not published.
        published = self.collection_horizon() if aged else 0
        return Timestamp(max((one for one in aged if one <= published), default=0))

    def log_complaint(self) -> str:
        """Say why the log of horizons cannot be read; empty if it can, or there is none."""
        raw = self._control.read(COLLECTION_LOG)
        log = self._decoded(COLLECTION_LOG, raw, list[_Published], otherwise=[])
        if complaint := self.malformed.get(COLLECTION_LOG, ""):
            return complaint
        newest = max((entry.horizon for entry in log), default=0)
        with contextlib.suppress(CorruptCell):  # which is a finding of its own
            if newest > self.collection_horizon():
                return f"{COLLECTION_LOG!r} has the horizon {newest}, which nobody has published"
        return ""

    # -- holds and retention -------------------------------------------------------------------

    def write_hold(self, name: str, hold: Hold) -> None:
        """Record a hold; the holder then reads the floor for holds, in that order.

        A name is used for one hold, because the record of an expired one is removed some day.
        """
        self._control.write(HOLD_PREFIX + name.encode(), encode_document(hold))

    def forget_hold(self, name: str) -> None:
        """Remove a hold whose name is never used again."""
        self._control.forget([HOLD_PREFIX + name.encode()])

    def holds(self, ages: Ages) -> list[Hold]:
        """Return the holds that have not expired."""
        return [hold for _, hold in self.named_holds(ages)]

    def named_holds(self, ages: Ages) -> list[tuple[str, Hold]]:
        """Return the names and holds of those that have not expired."""
        return [
            (row.removeprefix(HOLD_PREFIX).decode(errors="backslashreplace"), hold)
            for row, hold in self._recorded_holds()
            if hold.left_ms(ages) > 0
        ]

    def forget_expired_holds(self, ages: Ages) -> None:
        """Remove the records of holds that expired long ago and were never released."""
        kept_ms = round(EXPIRED_HOLD_KEPT_S * 1000)
        rows = [row for row, hold in self._recorded_holds() if hold.left_ms(ages) <= -kept_ms]
        if rows:
            self._control.forget(rows)

    def _recorded_holds(self) -> list[tuple[bytes, Hold]]:
        found, malformed = self._control.documents(HOLD_PREFIX, Hold)
        self.malformed.update(malformed)
        return [*found.items(), *((row, HOLDS_EVERYTHING) for row in malformed)]

    def issued_before(self, *, age_s: float) -> Timestamp:
        """Return a timestamp that the oracle had issued at least `age_s` ago; 0 if unknown.

        By clocks that cannot be set: for how long its machines were off no clock but the date says,
        by which what is a moment old could be taken for a month old.
        """
        return Timestamp(issued_before(self.samples(), age_ms=round(age_s * 1000)))

    def low_watermark_by(self, since: int) -> Timestamp:
        """Return a low watermark of before any commit above `since` was decided; 0 if unknown.

        None of those began at or below it (I4).

        Cost: 1 short scan from the newest sample back to the first that was taken before `since`.
        """
        for row, raw in self._control.scan_back(SAMPLE_PREFIX):
            sample = self._decoded(row, raw, Sample, otherwise=NO_LOW_WATERMARK)
            is_its_own = self._is_named(row, sample_row(sample.elapsed_ms))
            # No low watermark is above what was issued: such a one is not to be believed.
            is_true = 0 <= sample.low_watermark <= sample.last_issued_ts
            if is_its_own and is_true and sample.last_issued_ts <= since:
                return Timestamp(sample.low_watermark)
        return Timestamp(0)

    # -- what cannot be decoded ----------------------------------------------------------------

    def _documents(self, prefix: bytes, type_: type[T]) -> dict[bytes, T]:
        found, malformed = self._control.documents(prefix, type_)
        self.malformed.update(malformed)
        return found

    def _decoded(self, row: bytes, raw: bytes | None, type_: type[T], *, otherwise: T) -> T:
        try:
            return otherwise if raw is None else decode_document(raw, type_, row=row)
        except CorruptCell as error:
            self.malformed[row] = str(error)
            return otherwise

    def _is_named(self, row: bytes, expected: bytes) -> bool:
        """Say whether a fact stands where its content belongs; one of its bytes may have turned."""
        if row != expected:
            self.malformed[row] = f"{CONTROL_TABLE} row {row!r} holds what belongs at {expected!r}"
        return row == expected


def sample_row(elapsed_ms: int) -> bytes:
    """Return the control row of a sample; rows sort by time."""
    return SAMPLE_PREFIX + b"%0*d" % (_SAMPLE_DIGITS, elapsed_ms)


def _thin(log: list[_Published], length: int) -> list[_Published]:
    """Drop every second of the older half when the log is too long; the newest and oldest stay."""
    if len(log) <= length:
        return log
    half = len(log) // 2
    return log[:half:2] + log[half:]


def _numbers_in(rows: Sequence[bytes], found: Sequence[bytes | None]) -> list[Timestamp]:
    """Return what rows hold, 0 for those that were never set."""
    return [
        Timestamp(0) if raw is None else decode_number(raw, row=row)
        for row, raw in zip(rows, found, strict=True)
    ]
