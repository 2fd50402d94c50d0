"""Drives the oracle's machine by hand: requests in, a disk that finishes when told, answers out.

`Disk` keeps what is durable as plain dictionaries; `Driver` delivers events and collects effects.
A `History` outlives crashes: it notes in one sequence what became durable and what was said, and
`oracle_checks.py` judges it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from omidpy.base.commit_facts import INVALID, CommitEntry
from omidpy.base.timing.ages import Sample
from omidpy.base.timing.clock import ManualClock
from omidpy.model import CellId, TableId, Timestamp
from omidpy.wire.messages import (
    CommitRequest,
    CommitResponse,
    FenceRequest,
    FenceResponse,
    InvalidateRequest,
    InvalidateResponse,
    TimestampRequest,
    TimestampResponse,
)
from tso.core.events import (
    Answer,
    Asked,
    Batch,
    Close,
    Event,
    Flush,
    Flushed,
    FlushResult,
    Frames,
    Left,
    Now,
    Question,
    Send,
    Stopped,
    Stopping,
    Ticked,
)
from tso.core.machine import Machine
from tso.core.settings import Inherited, Settings

INCREMENTAL = Settings(timestamps="incremental", conflict_map_size=100)


@dataclass
class Disk:
    """Everything durable, and the batches that made it so."""

    entries: dict[int, CommitEntry] = field(default_factory=dict)
    ceiling: int = 0
    low_watermark: int = 0
    prune_horizon: int = 0
    samples: list[int] = field(default_factory=list)
    newest_sample: Sample | None = None

    def apply(self, batch: Batch[str]) -> FlushResult:
        """Make a batch durable, as a store with guarded batches does."""
        refused = set()
        for start_ts, commit_ts in batch.commits:
            if self.entries.get(start_ts) is INVALID:
                refused.add(start_ts)
            else:
                self.entries[start_ts] = Timestamp(commit_ts)
        for start_ts in batch.invalidations:
            if self.entries.get(start_ts) is None:
                self.entries[start_ts] = INVALID
        if batch.ceiling is not None:
            self.ceiling = batch.ceiling
        if batch.low_watermark is not None:
            assert batch.low_watermark >= self.low_watermark, "the low watermark fell"
            self.low_watermark = batch.low_watermark
        if batch.sample is not None:
            self.samples.append(batch.sample.elapsed_ms)
            self.newest_sample = batch.sample
        asked = [*batch.lookups, *batch.invalidations]
        return FlushResult(
            frozenset(refused),
            {start_ts: self.entries.get(start_ts) for start_ts in asked},
            self.prune_horizon,
        )


@dataclass
class History:
    """Everything that happened to one store, in order, over all its instances."""

    moment: int = 0
    durable: list[tuple[int, int, CommitEntry]] = field(default_factory=list)
    """(moment, start_ts, entry) of each commit entry written."""
    watermarks: list[tuple[int, int]] = field(default_factory=list)
    """(moment, low watermark) of each one made durable."""
    said: list[tuple[int, Answer]] = field(default_factory=list)
    """(moment, answer) of each answer sent."""
    ceilings: list[int] = field(default_factory=list)
    """The durable ceiling at the moment of each answer."""
    asked: list[int] = field(default_factory=list)
    """The moment at which the request of each answer was asked."""
    write_sets: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """start_ts -> cells of each commit request."""
    completed: set[int] = field(default_factory=set)
    """start_ts of each transaction whose client removed its entry."""


class Driver:
    """One machine and its disk.  Every request gets a name, and answers are found by it."""

    def __init__(
        self,
        settings: Settings = INCREMENTAL,
        *,
        disk: Disk | None = None,
        clock: ManualClock | None = None,
        machine: Callable[[Settings, Inherited, Now], Machine[str]] = Machine,
        flushes_at_once: bool = True,
        history: History | None = None,
    ) -> None:
        """Start an instance on what the disk holds."""
        self.history = History() if history is None else history
        self.disk = Disk() if disk is None else disk
        self.clock = ManualClock() if clock is None else clock
        self.flushes_at_once = flushes_at_once
        epoch = self.disk.ceiling
        self.disk.ceiling = epoch + settings.lookahead
        if settings.timestamps == "world":
            clock_ts = self.clock.wall_ms() * 1_000_000
            self.disk.ceiling = max(epoch, clock_ts) + settings.lookahead
        self.disk.low_watermark = max(self.disk.low_watermark, epoch)
        inherited = Inherited(epoch=epoch, ceiling=self.disk.ceiling)
        self.machine = machine(settings, inherited, self.now())
        self.flight: Batch[str] | None = None
        self.sent: list[tuple[str, Answer]] = []
        self.closed: dict[str, str] = {}
        self.flush_count = 0
        self.is_stopped = False
        self._request_count = 0
        self._asked: dict[str, int] = {}

    # -- events --------------------------------------------------------------------------------

    def ask(self, *requests: Question) -> list[str]:
        """Deliver requests in one event; return their names."""
        names = []
        for request in requests:
            self._request_count += 1
            names.append(f"r{self._request_count}")
            self._asked[names[-1]] = self.history.moment
            if isinstance(request, CommitRequest):
                self.history.write_sets.setdefault(request.start_ts, request.cell_ids)
        self._deliver(Asked(self.now(), tuple(zip(names, requests, strict=True))))
        return names

    def ask_as(self, ticket: str, *requests: Question, client: int = 0) -> None:
        """Deliver requests of one client in one event; its answers are in `sent`."""
        self._asked[ticket] = self.history.moment
        self._deliver(Asked(self.now(), [(ticket, request) for request in requests], client))

    def leave(self, ticket: str, *, client: int = 0) -> None:
        """Let a client go."""
        self._deliver(Left(self.now(), ticket, client))

    def land(self) -> None:
        """Let the flush under way become durable."""
        assert self.flight is not None, "no flush is under way"
        result = self.persist()
        self.flight = None
        self._deliver(Flushed(self.now(), result))

    def persist(self) -> FlushResult:
        """Make the flush under way durable without telling the machine: what a crash may leave."""
        assert self.flight is not None, "no flush is under way"
        batch = self.flight
        result = self.disk.apply(batch)
        self.history.moment += 1
        for start_ts in [*(start_ts for start_ts, _ in batch.commits), *batch.invalidations]:
            entry = (self.history.moment, start_ts, self.disk.entries.get(start_ts))
            self.history.durable.append(entry)
        if batch.low_watermark is not None:
            self.history.watermarks.append((self.history.moment, batch.low_watermark))
        return result

    def tick(self, *, seconds: float = 0.0) -> None:
        """Let time pass, then say so."""
        self.clock.advance(seconds)
        self._deliver(Ticked(self.now()))

    def stop(self) -> None:
        """Ask for the end."""
        self._deliver(Stopping(self.now()))

    def now(self) -> Now:
        """Read the hand-cranked clock."""
        return Now(self.clock.wall_ms(), self.clock.monotonic_s())

    def _deliver(self, event: Event[str]) -> None:
        for effect in self.machine.handle(event):
            match effect:
                case Send():
                    self.history.moment += 1
                    for name, answer in effect.answers:
                        assert not isinstance(answer, Frames), "only runs are answered in frames"
                        self.sent.append((name, answer))
                        self.history.said.append((self.history.moment, answer))
                        self.history.ceilings.append(self.disk.ceiling)
                        self.history.asked.append(self._asked[name])
                case Close():
                    self.closed[effect.ticket] = effect.reason
                case Flush():
                    assert self.flight is None, "two flushes at once"
                    self.flight = effect.batch
                    self.flush_count += 1
                case Stopped():
                    self.is_stopped = True
        if self.flushes_at_once:
            while self.flight is not None:
                self.land()

    # -- answers -------------------------------------------------------------------------------

    def answer(self, name: str) -> Answer | None:
        """Return the answer to a request, None if it has none yet."""
        found = [answer for answered, answer in self.sent if answered == name]
        assert len(found) <= 1, "a request was answered twice"
        return found[0] if found else None

    def begin(self, *, hold_ms: int | None = None) -> Timestamp:
        """Begin a transaction; the disk must be fast."""
        (name,) = self.ask(TimestampRequest(hold_ms))
        answer = self.answer(name)
        assert isinstance(answer, TimestampResponse)
        return answer.start_ts

    def commit(
        self,
        start_ts: int,
        cells: Sequence[int] = (),
        *,
        tables: Sequence[int] = (),
        is_retry: bool = False,
    ) -> CommitResponse | str:
        """Ask for a commit; return the answer, or why there is none."""
        (name,) = self.ask(commit_request(start_ts, cells, tables=tables, is_retry=is_retry))
        answer = self.answer(name)
        if answer is None:
            return self.closed[name]
        assert isinstance(answer, CommitResponse)
        return answer

    def invalidate(self, start_ts: int) -> InvalidateResponse | str:
        """Ask that a transaction never commit; return the answer, or why there is none."""
        (name,) = self.ask(InvalidateRequest(Timestamp(start_ts)))
        answer = self.answer(name)
        if answer is None:
            return self.closed[name]
        assert isinstance(answer, InvalidateResponse)
        return answer

    def fence(self, table: int) -> Timestamp:
        """Set a fence."""
        (name,) = self.ask(FenceRequest(TableId(table)))
        answer = self.answer(name)
        assert isinstance(answer, FenceResponse)
        return answer.fence_ts


def commit_request(
    start_ts: int,
    cells: Sequence[int] = (),
    *,
    tables: Sequence[int] = (),
    is_retry: bool = False,
) -> CommitRequest:
    """Write a commit request from plain numbers."""
    return CommitRequest(
        Timestamp(start_ts),
        tuple(CellId(cell) for cell in cells),
        tuple(TableId(table) for table in tables),
        is_retry,
    )


def small(**changes: int | None) -> Settings:
    """Return incremental settings with some of them changed."""
    return replace(INCREMENTAL, **changes)  # type: ignore[arg-type]  # only ints are changed
