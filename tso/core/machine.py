"""Turn requests into decisions, batches and answers, in one order.

The oracle between its sockets and its store: events in, effects out, deterministic, without clock,
thread or I/O.  `serving/server.py`, `embedded.py` and the simulator drive it; `engine.py` decides
about cells, `age.py` about time, and `batches.py` keeps what was decided in order.

Order is correctness:

    I2  a commit entry is durable before its reply and before any later reply

so answers leave in the order of the decisions, and none before every earlier decision is durable.
A begin waits for the commits before it, and for no others.  The low watermark is written in or
after the batch that raised it, never before an earlier decision is durable.  It may lag: what is
written is a promise, and a lower watermark promises less.

A flush that carries no answers (a higher ceiling, a watermark, a sample) holds no answer up.

An answer that needs no flush leaves without a look at the lease, so that it may leave only while no
other oracle can have it (I8).  The shell says until when; past that every answer waits for a flush.

What is remembered is bounded: the last decisions, for retries and duplicates; `promises.py`, until
the low watermark passes them.  A transaction of which nothing is remembered is looked up in the
commit table, and `recalling.py` finds the answer once the batch is durable.

Source: Omid's TSO, whose retry and fence replies overtake the batches before them.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, inf
from typing import Any, ClassVar, Final, Generic, assert_never

from omidpy.base.commit_facts import INVALID
from omidpy.base.reach import reached
from omidpy.base.telemetry.metrics import NO_METRICS, Metrics
from omidpy.base.timing.ages import Sample
from omidpy.model import TIMESTAMP_STEP, CellId, TableId, Timestamp
from omidpy.wire.messages import (
    CommitRequest,
    CommitResponse,
    FenceRequest,
    FenceResponse,
    InvalidateRequest,
    TimestampRequest,
    TimestampResponse,
)
from tso.core.age import AgeWatermark, HeldBack, OracleTime, SampleLog
from tso.core.answers import (
    ABORT_INVALIDATED,
    ABORT_RATE,
    ABORT_TOO_LARGE,
    outcome_of,
    refusal,
    unframed,
)
from tso.core.batches import Batches
from tso.core.engine import (
    ABORT_CONFLICT,
    ABORT_LOW_WATERMARK,
    EVERYBODYS,
    FORGOTTEN,
    Decisions,
    Engine,
    Run,
)
from tso.core.events import (
    NOTHING_FOUND,
    Answer,
    Asked,
    Batch,
    Close,
    Deferred,
    Effect,
    Event,
    Flush,
    Flushed,
    FlushResult,
    Frames,
    Left,
    Now,
    Question,
    Recall,
    Send,
    Stopped,
    Stopping,
    Ticked,
    Ticket,
)
from tso.core.figures import Figures
from tso.core.past.owners import Owners
from tso.core.past.promises import Promises
from tso.core.past.recalling import Recaller, is_undecided, unwritten
from tso.core.settings import MAX_WAITING_CELLS, TIMESTAMPS_PER_MS, Inherited, Settings
from tso.core.shares.clients import ANYBODY, NUMBER_BITS, is_connection, share_of
from tso.core.shares.hoards import Hoards
from tso.core.shares.rates import GREAT_DEBT_S, Rates
from tso.core.shares.slices import FILLED_AT_ONCE, LongRequest

ACTIVE_S: Final = 10.0
"""So long after its last request an oracle keeps its ceiling ready for the next one."""

_ACTIVE_TICK_S: Final = 0.25
_IDLE_TICK_S: Final = 1.0


class Machine(Generic[Ticket]):
    """One instance of the oracle, from its start to its end."""

    # What tests put broken parts in place of.
    _batches_type: ClassVar[type[Batches[Any]]] = Batches
    _recaller_type: ClassVar[type[Recaller]] = Recaller

    def __init__(
        self,
        settings: Settings,
        inherited: Inherited,
        now: Now,
        *,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        """Take over where the last instance ended: nothing begun before can commit unseen."""
        self.epoch: Final = inherited.epoch
        self.time: Final = OracleTime(now, last_sample=inherited.last_sample)
        self.vouched_until_s = inf
        """By the monotonic clock: until then no other oracle answers.  The shell moves it on."""
        self.has_omids_clients = False
        """Whether a client ever came that may plant invalidations by itself.  The shell says so."""
        self._settings = settings
        self._figures = Figures(metrics)
        self.max_age_ms: Final = settings.max_transaction_age_ms
        """How old a transaction may be that commits."""
        self.max_commit_cells: Final = settings.max_commit_cells
        """How many cells and tables one commit may have."""
        limits = settings.limits
        self.rates: Final = None if limits.are_none else Rates(limits)
        """What each share has spent lately; None where nothing is limited."""
        self._old_begins = Owners(settings.old_begin_memory)
        self._engine = Engine(
            last_issued=inherited.epoch,
            conflict_map_size=settings.conflict_map_size,
            seed=settings.hash_seed,
            begin_memory=settings.begin_memory,
            is_reserved=settings.is_reserved,
            keep=self._old_begins.keep,
        )
        self._age = AgeWatermark(
            max_age_ms=settings.max_transaction_age_ms,
            elapsed_ms=self.time.elapsed_ms(now),
            last_issued=inherited.epoch,
            has_ended=self._has_ended,
        )
        self._away = self._age.away
        self._age_watermark = inherited.epoch
        self._samples = SampleLog(inherited.samples)
        self._decisions = Decisions(
            settings.decision_memory,
            forgotten_start=inherited.epoch,
            seed=settings.hash_seed,
            is_reserved=settings.is_reserved,
        )
        self._client = ANYBODY
        self._forgotten_watermark = 0
        self._promises = Promises()
        self._recaller = self._recaller_type(
            self._decisions, self._promises.invalidated, self._figures
        )
        self._run = Run(
            self._engine,
            self._decisions,
            max_commit_cells=settings.max_commit_cells,
            invalidated=self._promises.invalidated,
            tally=None if self.rates is None else self.rates.tally,
        )
        self._batches: Batches[Ticket] = self._batches_type(
            ceiling=inherited.ceiling, lookahead=settings.lookahead, low_watermark=inherited.epoch
        )
        self._wants_sample = False
        self._waiting_cells: Hoards[Ticket] = Hoards(
            max(MAX_WAITING_CELLS, settings.max_commit_cells)
        )
        self._last_request_s = now.monotonic_s
        self._elapsed_ms = self.time.elapsed_ms(now)
        self._now_s = now.monotonic_s
        self._boot = now.boot
        self._wall_ms = now.wall_ms
        self._is_stopping = False
        self._set_time(now)

    # -- what a shell may look at --------------------------------------------------------------

    @property
    def queue_length(self) -> int:
        """How many answers wait for a flush: what back-pressure looks at."""
        return self._batches.queue_length

    @property
    def group_bytes(self) -> int:
        """How long the cells are that wait for one."""
        return self._batches.group_bytes

    @property
    def low_watermark(self) -> int:
        """The low watermark as decided, which may not be durable yet."""
        return self._engine.low_watermark

    @property
    def held_back(self) -> HeldBack | None:
        """Which transaction the low watermark waits for, beyond the age of all others."""
        return self._age.held_back(elapsed_ms=self._elapsed_ms)

    @property
    def map_age_ms(self) -> float | None:
        """How old a transaction may be before the conflict map has forgotten too much for it.

        As old as by the settings, unless the map was turned over in less time; None where
        timestamps only count, so that they tell no time.
        """
        if self._settings.timestamps != "world":
            return None
        lead_ms = (self._engine.low_watermark - self._age_watermark) / TIMESTAMPS_PER_MS
        return max(self._settings.max_transaction_age_ms - max(lead_ms, 0), 0)

    @property
    def last_issued(self) -> int:
        """The newest timestamp, which may not have left yet."""
        return self._engine.last_issued

    def began(self, start_ts: int, clients: Iterable[int]) -> list[int] | None:
        """Return who of `clients` began a transaction; None if that is not known, or none did.

        It may be none of them.
        """
        owner = self._engine.owner(start_ts)
        if not owner or owner == EVERYBODYS:
            return [] if owner else None
        if owner == FORGOTTEN:
            self._engine.settle()
            return [one for one in clients if self._old_begins.has(one, start_ts)] or None
        return [one for one in clients if one == owner]

    # -- long requests -------------------------------------------------------------------------

    def long_request(self, data: bytes | bytearray, first: int, end: int) -> LongRequest:
        """Begin to read a request that takes long; what it becomes is asked as any other is."""
        return LongRequest(self._engine, data, first, end, self.max_commit_cells)

    def fill(self, slice_count: int) -> bool:
        """Put more of what a long commit wrote into its place; True if nothing is left.

        The shell that had one decided does so soon, slice by slice: until then each commit takes
        longer.
        """
        return self._engine.fill(slice_count * FILLED_AT_ONCE)

    @property
    def is_filled(self) -> bool:
        """Whether everything that long commits wrote is in its place."""
        return not self._engine.unfilled_count

    def tick_period_s(self, now: Now) -> float:
        """Return how long a shell may wait at most until it says `Ticked`.

        Shorter after a request: the ceiling then stays ahead of the clock for the next one.
        """
        longest_s = _ACTIVE_TICK_S if self._is_active(now) else _IDLE_TICK_S
        return min(self._age.period_ms / 1000, longest_s)

    # -- events --------------------------------------------------------------------------------

    def handle(self, event: Event[Ticket]) -> list[Effect[Ticket]]:
        """Take one event and return what must be done, in order."""
        effects: list[Effect[Ticket]] = []
        if event.now is not self._now:
            self._set_time(event.now)
        match event:
            case Asked():
                self._hear(event.client)
                for ticket, request in event.requests:
                    self._ask(ticket, request, effects)
                if event.goes_on:
                    return effects
            case Flushed():
                self._land(event.result, effects)
            case Ticked():
                self._tick(event.now)
            case Left():
                who = event.client or event.ticket
                self._age.leave(who, elapsed_ms=self._elapsed_ms)
            case Stopping():
                self._is_stopping = True
            case _:
                assert_never(event)
        if self._engine.low_watermark != self._forgotten_watermark:
            self._forget_what_is_old()
        if self._engine.leaving_count > self._old_begins.room:
            self._engine.settle()
            self._old_begins.make_room(self._engine.low_watermark)
        if self._figures.run_count:
            self._figures.tell()
        self._pump(effects)
        return effects

    def run(
        self,
        now: Now,
        ticket: Ticket,
        data: bytes | bytearray,
        client: int,
        shows_watermark: bool,  # noqa: FBT001 - a name costs time with each read
        tells_why: bool,  # noqa: FBT001
        at_most: int,
    ) -> tuple[int, int]:
        """Decide the ordinary requests at the beginning of what a client sent, in one go.

        What they become is what `Asked` would make of them.  There are no effects: what was decided
        leaves with the next event, which must follow soon.  Meanwhile other clients may be heard.

        Args:
            now: What time it is.
            ticket: Goes with the answers.
            data: Frames, the last of which may be unfinished.
            client: Who sent them; 0 where it told none.
            shows_watermark: Whether the client wants to know the low watermark.
            tells_why: Whether the client wants to know why a commit is refused.
            at_most: Requests; further ones are left.

        Returns:
            How many bytes, and how many requests, were taken.
        """
        if self._is_stopping:
            return 0, 0
        if now is not self._now:
            self._set_time(now)
        rates = self.rates
        if rates is not None and rates.over and self._great_debt_s(client):
            return 0, 0
        self._hear(client)
        run, batches = self._run, self._batches
        taken = run.take(data, client, shows_watermark, tells_why, at_most)
        count = run.request_count
        if not count:
            return 0, 0
        commit_count = run.commit_count
        early_count = run.early_count if commit_count else count
        if early_count:
            if early_ts := run.early_ts:
                batches.note(early_ts)
            batches.answer_framed(ticket, run.early_answers(), early_count)
        if commit_count:
            if commit_count > 1:
                reached("oracle.run_of_commits", "I2")
            batches.open_decisions().commits.add_bytes(run.entries())
            batches.note(self._engine.last_issued)
            batches.answer_framed(ticket, run.late_answers(), count - early_count)
        refused_count = run.refused_count
        begin_count = count - commit_count - refused_count
        self._figures.add_run(begin_count, commit_count, refused_count)
        if rates is not None and not run.is_tallied:
            rates.spend(
                client >> NUMBER_BITS,
                self._now_s,
                cells=run.written_count,
                begins=begin_count,
                commits=commit_count + refused_count,
            )
        return taken, count

    def _hear(self, client: int) -> None:
        """Note that a client asks something."""
        self._last_request_s = self._now_s
        self._client = client
        if self._away and client in self._away:
            self._age.come_back(client)

    def _spend(self, client: int, *, cells: int = 0, begins: int = 0, commits: int = 0) -> None:
        if self.rates is not None:
            share = client >> NUMBER_BITS
            self.rates.spend(share, self._now_s, cells=cells, begins=begins, commits=commits)

    def _great_debt_s(self, client: int) -> float:
        """Return how long a client's share takes to pay what it owes; 0 if that is not long."""
        if self.rates is None:
            return 0.0
        debt_s = self.rates.debt_s(client >> NUMBER_BITS, self._now_s)
        return debt_s if debt_s > GREAT_DEBT_S else 0.0

    def _set_time(self, now: Now) -> None:
        self._now = now
        self._now_s = now.monotonic_s
        self._boot = now.boot
        self._elapsed_ms = self.time.elapsed_ms(now)
        self._wall_ms = now.wall_ms
        if self._settings.timestamps == "world":
            self._engine.clock_ts = self.time.world_ms(now) * TIMESTAMPS_PER_MS

    def _tick(self, now: Now) -> None:
        """Let the watermark age, and keep the ceiling ahead of the clock while there is demand."""
        self._age.observe(elapsed_ms=self._elapsed_ms, last_issued=self._engine.last_issued)
        aged = self._age.target(elapsed_ms=self._elapsed_ms)
        self._age_watermark = max(aged, self.epoch)
        self._engine.raise_low_watermark(aged)
        self._wants_sample = self._samples.is_due(self._elapsed_ms)
        if self.rates is not None:
            self.rates.pass_time(self._now_s)
        self._engine.memory.pass_time(self._now_s)
        if self._is_active(now):
            self._batches.cover(max(self._engine.clock_ts, self._engine.last_issued))

    def _has_ended(self, start_ts: int) -> bool:
        """Say whether a transaction was decided lately, or is forbidden to commit."""
        return bool(self._decisions.get(start_ts)) or start_ts in self._promises.invalidated

    def _is_active(self, now: Now) -> bool:
        return now.monotonic_s - self._last_request_s < ACTIVE_S

    # -- decisions -----------------------------------------------------------------------------

    def _ask(self, ticket: Ticket, request: Question, effects: list[Effect[Ticket]]) -> None:
        if self._is_stopping:
            effects.append(Close(ticket, "the oracle is stopping"))
            return
        match request:
            case TimestampRequest():
                self._begin(ticket, request)
            case CommitRequest():
                self._commit(ticket, request, effects)
            case FenceRequest():
                self._fence(ticket, request.table_id, effects)
            case InvalidateRequest():
                self._invalidate(ticket, request.start_ts, effects)
            case _:
                assert_never(request)

    def _begin(self, ticket: Ticket, request: TimestampRequest) -> None:
        start_ts = self._issued(self._engine.begin(self._client))
        self._spend(self._client, begins=1)
        if request.hold_ms is not None and not self._age.hold(
            start_ts,
            elapsed_ms=self._elapsed_ms,
            hold_ms=request.hold_ms,
            client=self._client or ticket,
            name=request.hold_name,
            repetition=request.repetition,
        ):
            self._figures.metrics.count("tso.holds.refused")
        low_watermark = Timestamp(self._engine.low_watermark)
        # A fence that the low watermark has passed says no more than that does.
        fence = self._engine.newest_fence
        newest_fence = Timestamp(fence) if fence > low_watermark else None
        self._batches.answer(ticket, TimestampResponse(start_ts, low_watermark, newest_fence))
        self._figures.metrics.count("tso.timestampAllocation")

    def _fence(self, ticket: Ticket, table_id: TableId, effects: list[Effect[Ticket]]) -> None:
        who = self._client or ticket
        if not self._promises.fences.has_room(table_id, who):
            effects.append(Close(ticket, f"{len(self._promises.fences)} tables have a fence"))
            return
        fence_ts = self._issued(self._engine.fence(table_id))
        self._promises.fences.add(table_id, fence_ts, who)
        # Omid's clients begin a transaction at the fence's own timestamp.
        self._engine.give(fence_ts, self._client)
        self._batches.answer(ticket, FenceResponse(table_id, fence_ts))
        self._figures.metrics.count("tso.fences")

    def _commit(
        self, ticket: Ticket, request: CommitRequest, effects: list[Effect[Ticket]]
    ) -> None:
        start_ts = request.start_ts
        owner = self._engine.owner(start_ts)
        if not owner:
            reached("oracle.never_issued", "I8")
            effects.append(Close(ticket, f"start_ts {start_ts} was never issued"))
            return
        is_own = self._is_own(start_ts, owner)
        # To ask what became of a commit changes nothing, so that a client is told which comes
        # from another address than before.  One that cannot say who it is may have connected anew.
        is_told = owner == FORGOTTEN or request.is_retry or is_connection(self._client)
        if not is_own and not is_told:
            reached("oracle.anothers_claimed", "I8")
            effects.append(Close(ticket, f"another client began start_ts {start_ts}"))
            return
        if self._decisions.get(start_ts):
            reached("oracle.commit_from_memory", "I8")
            self._batches.answer(ticket, Deferred(Recall.COMMIT_FROM_MEMORY, start_ts))
        elif start_ts in self._promises.invalidated:
            reached("oracle.invalidated_asked_to_commit", "I9")
            self._batches.answer(ticket, refusal(start_ts, ABORT_INVALIDATED))
        elif request.is_retry or start_ts in self._promises.barred:
            # The first request may have been decided and forgotten, by us or by an instance before
            # us.  Deciding again would find the transaction in conflict with itself.
            reached("oracle.retry_looked_up", "I8")
            self._look_up(ticket, Deferred(Recall.COMMIT_FROM_TABLE, start_ts))
        elif not is_own:
            # It is refused as what is below the low watermark is, and nothing is noted: the refusal
            # is for the client that asks, and not for whose it is.
            reached("oracle.anothers_refused", "I8")
            if start_ts <= self._decisions.forgotten_start:
                self._look_up(ticket, Deferred(Recall.REFUSED_UNLESS_IN_TABLE, start_ts))
            else:
                self._batches.answer(ticket, refusal(start_ts, ABORT_LOW_WATERMARK))
                self._figures.refused(ABORT_LOW_WATERMARK)
        elif start_ts <= self._decisions.forgotten_start:
            # Most likely a first request, of a transaction that took long; but also a repetition
            # that does not say so must not be decided twice.
            reached("oracle.forgotten_looked_up", "I8")
            how = Recall.COMMIT_UNLESS_IN_TABLE
            self._look_up(ticket, Deferred(how, start_ts, request, self._client))
            share = share_of(self._client or ticket)
            self._waiting_cells.add(ticket, _size(request), share=share)
            self._make_room(effects)
        else:
            self._decide(ticket, request, self._client)

    def _is_own(self, start_ts: int, owner: int) -> bool:
        """Say whether a transaction is surely that of the client who asks."""
        if owner == FORGOTTEN:
            self._engine.settle()
            return self._old_begins.has(self._client, start_ts)
        return owner in (EVERYBODYS, self._client)

    def _look_up(self, ticket: Ticket, waiting: Deferred) -> None:
        self._batches.open_decisions().lookups.append(waiting.start_ts)
        self._batches.answer(ticket, waiting)

    def _make_room(self, effects: list[Effect[Ticket]]) -> None:
        """Let the write sets go that wait for the client that keeps the most of them."""
        while (hoarder := self._waiting_cells.worst()) is not None:
            for answers in self._batches.waiting():
                for place, (ticket, waiting) in enumerate(answers):
                    if ticket == hoarder and isinstance(waiting, Deferred) and waiting.request:
                        self._waiting_cells.give_back(hoarder, _size(waiting.request))
                        forgotten = Deferred(Recall.COMMIT_FROM_TABLE, waiting.start_ts)
                        answers[place] = (hoarder, forgotten)
            effects.append(Close(hoarder, "too many cells wait for a look-up, its own the most"))

    def _decide(
        self, ticket: Ticket, request: CommitRequest, client: int, *, is_certain: bool = True
    ) -> None:
        """Decide a commit that was not decided before, which a refusal may leave uncertain."""
        start_ts = request.start_ts
        wait_s = self._great_debt_s(client)
        if wait_s:
            verdict = ABORT_RATE
        elif len(request.cell_ids) + len(request.table_ids) > self.max_commit_cells:
            verdict = ABORT_TOO_LARGE
        else:
            verdict = self._engine.commit(start_ts, request.cell_ids, request.table_ids)
        if is_certain or verdict > 0:
            self._decisions.note(start_ts, verdict)
        cells_count = len(request.cell_ids) if verdict > 0 else 0
        self._spend(client, cells=cells_count, commits=1)
        if verdict > 0:
            deciding = self._batches.open_decisions()
            if request.cells is None:
                deciding.commits.add(start_ts, verdict)
            else:
                deciding.groups.append((start_ts, verdict, request.cells))
                self._batches.add_group_bytes(request.size_bytes)
            self._batches.answer(ticket, CommitResponse(start_ts, self._issued(verdict)))
            self._figures.metrics.count("tso.commits")
            return
        conflicts: tuple[CellId, ...] = ()
        if verdict == ABORT_CONFLICT:
            found = self._engine.conflicts(start_ts, request.cell_ids)
            conflicts = tuple(CellId(cell) for cell in found)
        wait_ms = ceil(1000 * wait_s)
        self._batches.answer(ticket, refusal(start_ts, verdict, conflicts, wait_ms=wait_ms))
        self._figures.refused(verdict)

    def _invalidate(self, ticket: Ticket, start_ts: int, effects: list[Effect[Ticket]]) -> None:
        promises = self._promises
        # What is old will never be decided; between two steps nothing ever began.
        is_old = 0 < start_ts <= self._engine.low_watermark and not start_ts % TIMESTAMP_STEP
        if not is_old and not self._engine.owner(start_ts):
            effects.append(Close(ticket, f"start_ts {start_ts} was never issued"))
            return
        self._figures.metrics.count("tso.invalidations")
        if self._decisions.get(start_ts):
            reached("oracle.invalidation_from_memory", "I9")
            self._batches.answer(ticket, Deferred(Recall.INVALIDATION_FROM_MEMORY, start_ts))
        elif start_ts in promises.invalidated:
            self._batches.answer(ticket, outcome_of(start_ts, INVALID))
        elif start_ts > self._engine.low_watermark and not promises.forbid(
            start_ts,
            self._client or ticket,
            is_undecided=start_ts > self._decisions.forgotten_start,
        ):
            effects.append(
                Close(ticket, f"{promises.forbidden_count} invalidations are remembered")
            )
        elif start_ts in promises.invalidated:
            reached("oracle.invalidation_planted", "I9")
            self._batches.open_decisions().invalidations.append(start_ts)
            self._batches.answer(ticket, Deferred(Recall.INVALIDATION_PLANTED, start_ts))
        else:
            # It may have committed, been completed and left no entry: an invalidation planted now
            # would be a false one.  But it will not be decided from here on, neither below the low
            # watermark nor where it is barred, so what its cells say then is final.
            reached("oracle.invalidation_from_table", "I9")
            self._look_up(ticket, Deferred(Recall.INVALIDATION_FROM_TABLE, start_ts))

    def _issued(self, timestamp: int) -> Timestamp:
        """Note that `timestamp` waits in the pending batch until the ceiling covers it."""
        self._batches.note(timestamp)
        return Timestamp(timestamp)

    def _forget_what_is_old(self) -> None:
        low_watermark = self._forgotten_watermark = self._engine.low_watermark
        if low_watermark > self._age_watermark:
            reached("oracle.map_evicted", "I3")
        self._promises.forget(low_watermark)

    # -- batches -------------------------------------------------------------------------------

    def _pump(self, effects: list[Effect[Ticket]]) -> None:
        """Send what may leave, then start the next flush if none is under way."""
        batches = self._batches
        # An answer that needs no flush leaves without a look at the lease, so that it may leave
        # only while no other oracle can have it (I8).
        is_vouched = self._now_s < self.vouched_until_s
        for ready in batches.ready(is_vouched):
            self._release(ready, NOTHING_FOUND, effects)
        if batches.flight is not None:
            return
        batch = batches.gather(self._engine, self._elapsed_ms)
        if self._wants_sample:
            self._add_sample(batch)
        if batches.fly(batch):
            batch.may_be_invalidated = self.has_omids_clients
            effects.append(Flush(batch))
        elif self._is_stopping:
            self._finish(effects)

    def _add_sample(self, batch: Batch[Ticket]) -> None:
        self._wants_sample = False
        batch.sample = Sample(
            self._elapsed_ms,
            self._wall_ms,
            self._engine.last_issued,
            self._boot,
            round(self._now_s * 1000),
            self._engine.low_watermark,
        )
        batch.forgotten_samples = self._samples.add(self._elapsed_ms)

    def _finish(self, effects: list[Effect[Ticket]]) -> None:
        """Lower the ceiling to what was issued, once nothing more can be, and end."""
        batch = self._batches.give_ceiling_back(self._engine.last_issued)
        if batch is None:
            effects.append(Stopped())
            return
        self._add_sample(batch)
        effects.append(Flush(batch))

    def _land(self, result: FlushResult, effects: list[Effect[Ticket]]) -> None:
        """Take note of what became durable, and send what waited for it."""
        batch = self._batches.land()
        for start_ts in result.refused:
            reached("oracle.commit_forbidden", "I9")
            self._decisions.replace(start_ts, unwritten(start_ts, result))
        self._release(batch, result, effects)

    # -- answers -------------------------------------------------------------------------------

    def _release(
        self, batch: Batch[Ticket], result: FlushResult, effects: list[Effect[Ticket]]
    ) -> None:
        """Send the answers of a batch whose decisions, and all earlier ones, are durable."""
        answers: list[tuple[Ticket, Answer | Frames]] = []
        closes: list[Close[Ticket]] = []
        for ticket, waiting in self._batches.take_answers(batch):
            answer: Answer | Frames | str
            if isinstance(waiting, Frames):
                if result.refused:
                    told = unframed(waiting.data, result.refused)
                    answers += [(ticket, one) for one in told]
                else:
                    answers.append((ticket, waiting))
                continue
            if isinstance(waiting, Deferred):
                if waiting.request is not None:
                    self._waiting_cells.give_back(ticket, _size(waiting.request))
                if is_undecided(waiting, result):
                    self._decide_now(ticket, waiting, effects)
                    continue
                is_anothers = waiting.how is Recall.REFUSED_UNLESS_IN_TABLE
                if is_anothers and self._decisions.get(waiting.start_ts):
                    # Decided by now, perhaps a moment ago, behind this batch: it is told when that
                    # is durable (I2).
                    self._batches.answer(
                        ticket, Deferred(Recall.COMMIT_FROM_MEMORY, waiting.start_ts)
                    )
                    continue
                answer = self._recaller.recalled(waiting, result)
            elif isinstance(waiting, CommitResponse) and waiting.start_ts in result.refused:
                answer = refusal(waiting.start_ts, unwritten(waiting.start_ts, result))
            else:
                answer = waiting
            if isinstance(answer, str):
                closes.append(Close(ticket, answer))
            else:
                answers.append((ticket, answer))
        if answers:
            effects.append(Send(answers))
        effects.extend(closes)

    def _decide_now(self, ticket: Ticket, waiting: Deferred, effects: list[Effect[Ticket]]) -> None:
        """Decide what was looked up in vain, in the batch that forms now."""
        start_ts, request = waiting.start_ts, waiting.request
        assert request is not None, "only a request waits to be decided"
        if self._decisions.get(start_ts):
            self._batches.answer(ticket, Deferred(Recall.COMMIT_FROM_MEMORY, start_ts))
        elif start_ts in self._promises.barred:
            effects.append(Close(ticket, f"start_ts {start_ts} was invalidated meanwhile"))
        else:
            # If it was committed, completed and forgotten, it conflicts with itself: a client that
            # asks later, in so many words, must not be told of a refusal that came of this.
            reached("oracle.decided_after_look_up", "I8")
            self._decide(ticket, request, waiting.client, is_certain=False)


def _size(request: CommitRequest) -> int:
    """Return how many numbers of a request are kept while it waits, its cells counted as such."""
    return len(request.cell_ids) + len(request.table_ids) + request.size_bytes // 8
