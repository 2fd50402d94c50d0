"""Turn requests into decisions, batches and answers, in one order.

The oracle between its sockets and its store: events in, effects out, deterministic, without clock,
thread or I/O.  `serving/server.py`, `embedded.py` and the simulator drive it; `engine.py` decides
about cells, `age.py` about time, and what they decide is put into batches here.

Order is correctness:

    I2  a commit entry is durable before its reply and before any later reply

so answers leave in the order of the decisions, and none before every earlier decision is durable.
There are no timers: an idle oracle flushes at once, and while a flush is under way arrivals form
the next batch.  What arrives ahead of the batch's first decision leaves with the flush under way:
a begin waits for the commits before it, and for no others.  A timestamp leaves once the durable
ceiling covers it (I1), and the low watermark is written in or after the batch that raised it, never
before an earlier decision is durable.  It may lag: what is written is a promise, and a lower
watermark promises less.

A flush that carries no answers (a higher ceiling, a watermark, a sample) holds nobody up.

An answer that needs no flush leaves without a look at the lease, so that it may leave only while
nobody else can have it.  The shell says until when; past that every answer waits for a flush.

What is remembered is bounded: the last decisions, for retries and duplicates; invalidations, until
the low watermark passes them.  A transaction of which nothing is remembered is looked up in the
commit table, and what is not there either is not answered: the oracle invents no abort for a
transaction that may have committed and been forgotten.

Source: Omid's TSO, whose retry and fence replies overtake the batches before them.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, inf
from typing import Final, Generic, assert_never

from omidpy.base.ages import Sample
from omidpy.base.commit_facts import INVALID
from omidpy.base.metrics import NO_METRICS, Metrics
from omidpy.base.reach import reached
from omidpy.model import CellId, TableId, Timestamp
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
    ABORT_UNWRITABLE,
    outcome_of,
    refusal,
    unframed,
    verdict_on,
)
from tso.core.clients import ANYBODY, NUMBER_BITS, UntilOld, is_connection, share_of
from tso.core.engine import (
    ABORT_CONFLICT,
    ABORT_FENCE,
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
from tso.core.hoards import Hoards
from tso.core.owners import Owners
from tso.core.rates import GREAT_DEBT_S, Rates
from tso.core.settings import MAX_WAITING_CELLS, TIMESTAMPS_PER_MS, Inherited, Settings
from tso.core.slices import FILLED_AT_ONCE, LongRequest

MAX_INVALIDATION_COUNT: Final = 2**16
"""Invalidations above the low watermark that are remembered; more are not granted."""

MAX_INVALIDATIONS_OF_ONE: Final = 2**13
"""The same of one client."""

MAX_FENCE_COUNT: Final = 2**16
"""Tables with a fence above the low watermark; more are not granted."""

MAX_FENCES_OF_ONE: Final = 2**12
"""The same of one client."""

ACTIVE_S: Final = 10.0
"""So long after its last request an oracle keeps its ceiling ready for the next one."""

LOW_WATERMARK_PERIOD_MS: Final = 1000
"""How often at most the low watermark is written.

A full conflict map raises it with each commit, and on HBase each write of it is a round trip.
"""

_ACTIVE_TICK_S: Final = 0.25
_IDLE_TICK_S: Final = 1.0


class Machine(Generic[Ticket]):
    """One instance of the oracle, from its start to its end."""

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
        """By the monotonic clock: until then nobody else answers.  The shell moves it on."""
        self.has_omids_clients = False
        """Whether a client ever came that may plant invalidations by itself.  The shell says so."""
        self._settings = settings
        self._metrics = metrics
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
        self.queue_length = 0
        """How many answers wait for a flush: what back-pressure looks at."""
        self.group_bytes = 0
        """How long the cells are that wait for one."""
        self._client = ANYBODY
        self._run_begins = self._run_commits = self._run_aborts = 0
        """What runs decided since it was last told."""
        self._forgotten_watermark = 0
        self._fences = UntilOld(count=MAX_FENCE_COUNT, count_of_one=MAX_FENCES_OF_ONE)
        self._forbidden = UntilOld(
            count=MAX_INVALIDATION_COUNT, count_of_one=MAX_INVALIDATIONS_OF_ONE
        )
        self._invalidated: set[int] = set()
        self._barred: set[int] = set()
        self._run = Run(
            self._engine,
            self._decisions,
            max_commit_cells=settings.max_commit_cells,
            invalidated=self._invalidated,
            tally=None if self.rates is None else self.rates.tally,
        )
        self._durable_ceiling = inherited.ceiling
        self._ceiling = inherited.ceiling
        self._least_lookahead: Final = settings.lookahead // 2
        self._wants_ceiling = False
        self._wants_sample = False
        self._durable_low_watermark = inherited.epoch
        self._low_watermark_due_ms = 0
        self._waiting_cells: Hoards[Ticket] = Hoards(
            max(MAX_WAITING_CELLS, settings.max_commit_cells)
        )
        self._early: Batch[Ticket] = Batch()
        self._pending: Batch[Ticket] = Batch()
        self._flight: Batch[Ticket] | None = None
        self._last_request_s = now.monotonic_s
        self._elapsed_ms = self.time.elapsed_ms(now)
        self._now_s = now.monotonic_s
        self._boot = now.boot
        self._wall_ms = now.wall_ms
        self._is_stopping = False
        self._gave_ceiling_back = False
        self._set_time(now)

    # -- what a shell may look at --------------------------------------------------------------

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
        """Return who of `clients` began a transaction; None if nobody knows, or nobody did.

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

        Whoever had one decided does so soon, slice by slice: until then each commit takes longer.
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
        if self._run_begins or self._run_commits or self._run_aborts:
            self._count_runs()
        self._pump(effects)
        return effects

    def _count_runs(self) -> None:
        """Tell what runs decided: once for all of a turn, since telling costs more than a run."""
        if self._run_begins:
            self._metrics.count("tso.timestampAllocation", self._run_begins)
        if self._run_commits:
            self._metrics.count("tso.commits", self._run_commits)
        if self._run_aborts:
            self._metrics.count("tso.aborts", self._run_aborts)
        self._run_begins = self._run_commits = self._run_aborts = 0

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
        run = self._run
        taken = run.take(data, client, shows_watermark, tells_why, at_most)
        count = run.request_count
        if not count:
            return 0, 0
        commit_count = run.commit_count
        early_count = run.early_count if commit_count else count
        if early_count:
            if early_ts := run.early_ts:
                self._note(early_ts)
            self._answer_framed(ticket, run.early_answers(), early_count)
        if commit_count:
            if commit_count > 1:
                reached("oracle.run_of_commits", "I2")
            self._open_decisions()
            self._pending.commits.add_bytes(run.entries())
            self._note(self._engine.last_issued)
            self._answer_framed(ticket, run.late_answers(), count - early_count)
            self._run_commits += commit_count
        refused_count = run.refused_count
        if refused_count:
            self._run_aborts += refused_count
        begin_count = count - commit_count - refused_count
        self._run_begins += begin_count
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
            self._cover(max(self._engine.clock_ts, self._engine.last_issued))

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
        ):
            self._metrics.count("tso.holds.refused")
        low_watermark = Timestamp(self._engine.low_watermark)
        # A fence that the low watermark has passed says no more than that does.
        fence = self._engine.newest_fence
        newest_fence = Timestamp(fence) if fence > low_watermark else None
        self._answer(ticket, TimestampResponse(start_ts, low_watermark, newest_fence))
        self._metrics.count("tso.timestampAllocation")

    def _fence(self, ticket: Ticket, table_id: TableId, effects: list[Effect[Ticket]]) -> None:
        who = self._client or ticket
        if not self._fences.has_room(table_id, who):
            effects.append(Close(ticket, f"{len(self._fences)} tables have a fence"))
            return
        fence_ts = self._issued(self._engine.fence(table_id))
        self._fences.add(table_id, fence_ts, who)
        # Omid's clients begin a transaction at the fence's own timestamp.
        self._engine.give(fence_ts, self._client)
        self._answer(ticket, FenceResponse(table_id, fence_ts))
        self._metrics.count("tso.fences")

    def _commit(
        self, ticket: Ticket, request: CommitRequest, effects: list[Effect[Ticket]]
    ) -> None:
        start_ts = request.start_ts
        owner = self._engine.owner(start_ts)
        if not owner:
            effects.append(Close(ticket, f"start_ts {start_ts} was never issued"))
            return
        is_own = self._is_own(start_ts, owner)
        # Whoever asks what became of a commit changes nothing, so that a client is told which comes
        # from another address than before.  One that cannot say who it is may have connected anew.
        is_told = owner == FORGOTTEN or request.is_retry or is_connection(self._client)
        if not is_own and not is_told:
            effects.append(Close(ticket, f"another client began start_ts {start_ts}"))
            return
        if self._decisions.get(start_ts):
            reached("oracle.commit_from_memory", "I8")
            self._answer(ticket, Deferred(Recall.COMMIT_FROM_MEMORY, start_ts))
        elif start_ts in self._invalidated:
            reached("oracle.invalidated_asked_to_commit", "I9")
            self._answer(ticket, refusal(start_ts, ABORT_INVALIDATED))
        elif request.is_retry or start_ts in self._barred:
            # The first request may have been decided and forgotten, by us or by an instance before
            # us.  Deciding again would find the transaction in conflict with itself.
            reached("oracle.retry_looked_up", "I8")
            self._look_up(ticket, Deferred(Recall.COMMIT_FROM_TABLE, start_ts))
        elif not is_own:
            # It is refused as what is below the low watermark is, and nothing is noted: the refusal
            # is for whoever asks, and not for whose it is.
            if start_ts <= self._decisions.forgotten_start:
                self._look_up(ticket, Deferred(Recall.REFUSED_UNLESS_IN_TABLE, start_ts))
            else:
                self._answer(ticket, refusal(start_ts, ABORT_LOW_WATERMARK))
                self._count_refusal(ABORT_LOW_WATERMARK)
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
        self._open_decisions()
        self._pending.lookups.append(waiting.start_ts)
        self._answer(ticket, waiting)

    def _make_room(self, effects: list[Effect[Ticket]]) -> None:
        """Let the write sets go that wait for whoever keeps the most of them."""
        while (hoarder := self._waiting_cells.worst()) is not None:
            for batch in (self._early, self._pending, self._flight or self._pending):
                for place, (ticket, waiting) in enumerate(batch.answers):
                    if ticket == hoarder and isinstance(waiting, Deferred) and waiting.request:
                        self._waiting_cells.give_back(hoarder, _size(waiting.request))
                        forgotten = Deferred(Recall.COMMIT_FROM_TABLE, waiting.start_ts)
                        batch.answers[place] = (hoarder, forgotten)
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
            self._open_decisions()
            if request.cells is None:
                self._pending.commits.add(start_ts, verdict)
            else:
                self._pending.groups.append((start_ts, verdict, request.cells))
                self._pending.group_bytes += request.size_bytes
                self.group_bytes += request.size_bytes
            self._answer(ticket, CommitResponse(start_ts, self._issued(verdict)))
            self._metrics.count("tso.commits")
            return
        conflicts: tuple[CellId, ...] = ()
        if verdict == ABORT_CONFLICT:
            found = self._engine.conflicts(start_ts, request.cell_ids)
            conflicts = tuple(CellId(cell) for cell in found)
        wait_ms = ceil(1000 * wait_s)
        self._answer(ticket, refusal(start_ts, verdict, conflicts, wait_ms=wait_ms))
        self._count_refusal(verdict)

    def _count_refusal(self, verdict: int) -> None:
        """Tell that a commit was refused, and why."""
        self._metrics.count("tso.aborts")
        if verdict == ABORT_CONFLICT:
            self._metrics.count("tso.aborts.conflict")
        elif verdict == ABORT_LOW_WATERMARK:
            reached("oracle.snapshot_too_old", "I4")
            self._metrics.count("tso.aborts.lowWatermark")
        elif verdict == ABORT_FENCE:
            reached("oracle.fenced", "I9")
            self._metrics.count("tso.aborts.fence")
        elif verdict == ABORT_TOO_LARGE:
            self._metrics.count("tso.aborts.tooLarge")
        elif verdict == ABORT_RATE:
            self._metrics.count("tso.rates.refused")

    def _invalidate(self, ticket: Ticket, start_ts: int, effects: list[Effect[Ticket]]) -> None:
        is_old = 0 < start_ts <= self._engine.low_watermark  # and will never be decided
        if not is_old and not self._engine.owner(start_ts):
            effects.append(Close(ticket, f"start_ts {start_ts} was never issued"))
            return
        self._metrics.count("tso.invalidations")
        if self._decisions.get(start_ts):
            reached("oracle.invalidation_from_memory", "I9")
            self._answer(ticket, Deferred(Recall.INVALIDATION_FROM_MEMORY, start_ts))
        elif start_ts in self._invalidated:
            self._answer(ticket, outcome_of(start_ts, INVALID))
        elif start_ts > self._engine.low_watermark and not self._remember_until_old(
            ticket,
            start_ts,
            self._invalidated if start_ts > self._decisions.forgotten_start else self._barred,
        ):
            effects.append(Close(ticket, f"{len(self._forbidden)} invalidations are remembered"))
        elif start_ts in self._invalidated:
            reached("oracle.invalidation_planted", "I9")
            self._open_decisions()
            self._pending.invalidations.append(start_ts)
            self._answer(ticket, Deferred(Recall.INVALIDATION_PLANTED, start_ts))
        else:
            # It may have committed, been completed and left no entry: an invalidation planted now
            # would be a false one.  But it will not be decided from here on, neither below the low
            # watermark nor where it is barred, so what its cells say then is final.
            reached("oracle.invalidation_from_table", "I9")
            self._look_up(ticket, Deferred(Recall.INVALIDATION_FROM_TABLE, start_ts))

    def _remember_until_old(self, ticket: Ticket, start_ts: int, where: set[int]) -> bool:
        """Keep `start_ts` in a set until the low watermark passes it; False if there is no room."""
        who = self._client or ticket
        if not self._forbidden.has_room(start_ts, who):
            return False
        where.add(start_ts)
        self._forbidden.add(start_ts, start_ts, who)
        return True

    def _open_decisions(self) -> None:
        """Let what was answered so far leave before the decision that follows."""
        if not self._pending.has_decisions():
            assert not self._early.answers, "I2: answers behind a decision would leave before it"
            self._early, self._pending = self._pending, self._early

    def _answer(self, ticket: Ticket, answer: Answer | Deferred) -> None:
        self._pending.answers.append((ticket, answer))
        self.queue_length += 1

    def _answer_framed(self, ticket: Ticket, frames: bytes, count: int) -> None:
        pending = self._pending
        pending.answers.append((ticket, Frames(frames, count)))
        pending.framed_count += count - 1
        self.queue_length += count

    def _issued(self, timestamp: int) -> Timestamp:
        """Note that `timestamp` waits in the pending batch until the ceiling covers it."""
        self._note(timestamp)
        return Timestamp(timestamp)

    def _note(self, timestamp: int) -> None:
        self._pending.newest_ts = timestamp
        self._cover(timestamp)

    def _cover(self, timestamp: int) -> None:
        """Ask for a higher ceiling when less than half of the lookahead is left."""
        if self._ceiling - timestamp < self._least_lookahead:
            self._wants_ceiling = True

    def _forget_what_is_old(self) -> None:
        low_watermark = self._forgotten_watermark = self._engine.low_watermark
        if low_watermark > self._age_watermark:
            reached("oracle.map_evicted", "I3")
        self._fences.forget(low_watermark)
        for start_ts in self._forbidden.forget(low_watermark):
            self._invalidated.discard(start_ts)
            self._barred.discard(start_ts)

    # -- batches -------------------------------------------------------------------------------

    def _pump(self, effects: list[Effect[Ticket]]) -> None:
        """Send what may leave, then start the next flush if none is under way."""
        if self._early.answers and self._may_leave(self._early):
            batch, self._early = self._early, Batch()
            self._release(batch, NOTHING_FOUND, effects)
        if self._pending.answers and not self._early.answers and self._may_leave(self._pending):
            batch, self._pending = self._pending, Batch()
            self._release(batch, NOTHING_FOUND, effects)
        if self._flight is not None:
            return
        batch = self._pending
        if self._early.answers:  # they wait for the ceiling, or for a look at the lease
            reached("oracle.answers_waited", "I1")
            batch.answers[:0] = self._early.answers
            batch.framed_count += self._early.framed_count
            batch.newest_ts = max(batch.newest_ts, self._early.newest_ts)
            self._early = Batch()
        self._add_housekeeping(batch)
        if batch.answers or batch.ceiling or batch.low_watermark or batch.sample:
            batch.may_be_invalidated = self.has_omids_clients
            self._pending = Batch()
            self._flight = batch
            effects.append(Flush(batch))
        elif self._is_stopping:
            self._finish(effects)

    def _may_leave(self, batch: Batch[Ticket]) -> bool:
        """Say whether a batch needs no flush: neither its own nor the one under way."""
        return (
            not batch.has_decisions()
            and batch.newest_ts <= self._durable_ceiling
            and self._now_s < self.vouched_until_s
            and (self._flight is None or not self._flight.answers)
        )

    def _add_housekeeping(self, batch: Batch[Ticket]) -> None:
        """Let a flush carry whatever else should become durable."""
        if self._wants_ceiling and not self._gave_ceiling_back:
            newest = max(self._engine.clock_ts, self._engine.last_issued)
            self._ceiling = batch.ceiling = newest + self._settings.lookahead
            self._wants_ceiling = False
        is_raised = self._engine.low_watermark > self._durable_low_watermark
        if is_raised and self._elapsed_ms >= self._low_watermark_due_ms:
            batch.low_watermark = self._engine.low_watermark
            self._low_watermark_due_ms = self._elapsed_ms + LOW_WATERMARK_PERIOD_MS
        if self._wants_sample:
            self._add_sample(batch)

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
        if self._gave_ceiling_back or not self._engine.last_issued:
            effects.append(Stopped())
            return
        reached("oracle.ceiling_given_back", "I1")
        self._gave_ceiling_back = True
        batch: Batch[Ticket] = Batch(ceiling=self._engine.last_issued)
        self._add_sample(batch)
        self._flight = batch
        effects.append(Flush(batch))

    def _land(self, result: FlushResult, effects: list[Effect[Ticket]]) -> None:
        """Take note of what became durable, and send what waited for it."""
        batch = self._flight
        assert batch is not None, "I2: a flush ended that was never begun"
        self._flight = None
        if batch.ceiling is not None:
            self._durable_ceiling = batch.ceiling
        if batch.low_watermark is not None:
            self._durable_low_watermark = batch.low_watermark
        for start_ts in result.refused:
            reached("oracle.commit_forbidden", "I9")
            self._decisions.replace(start_ts, _why(start_ts, result))
        self._release(batch, result, effects)

    # -- answers -------------------------------------------------------------------------------

    def _release(
        self, batch: Batch[Ticket], result: FlushResult, effects: list[Effect[Ticket]]
    ) -> None:
        """Send the answers of a batch whose decisions, and all earlier ones, are durable."""
        assert batch.newest_ts <= self._durable_ceiling, "I1: a timestamp above the durable ceiling"
        self.queue_length -= batch.answer_count
        self.group_bytes -= batch.group_bytes
        answers: list[tuple[Ticket, Answer | Frames]] = []
        closes: list[Close[Ticket]] = []
        for ticket, waiting in batch.answers:
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
                if self._is_undecided(waiting, result):
                    self._decide_now(ticket, waiting, effects)
                    continue
                answer = self._recalled(waiting, result)
            elif isinstance(waiting, CommitResponse) and waiting.start_ts in result.refused:
                answer = refusal(waiting.start_ts, _why(waiting.start_ts, result))
            else:
                answer = waiting
            if isinstance(answer, str):
                closes.append(Close(ticket, answer))
            else:
                answers.append((ticket, answer))
        if answers:
            effects.append(Send(answers))
        effects.extend(closes)

    def _is_undecided(self, waiting: Deferred, result: FlushResult) -> bool:
        """Say whether a request was looked up and may be decided, for all that the table knows."""
        return (
            waiting.how is Recall.COMMIT_UNLESS_IN_TABLE
            and result.entries[waiting.start_ts] is None
            and waiting.start_ts > result.prune_horizon
        )

    def _decide_now(self, ticket: Ticket, waiting: Deferred, effects: list[Effect[Ticket]]) -> None:
        """Decide what was looked up in vain, in the batch that forms now."""
        start_ts, request = waiting.start_ts, waiting.request
        assert request is not None, "only a request waits to be decided"
        if self._decisions.get(start_ts):
            self._answer(ticket, Deferred(Recall.COMMIT_FROM_MEMORY, start_ts))
        elif start_ts in self._barred:
            effects.append(Close(ticket, f"start_ts {start_ts} was invalidated meanwhile"))
        else:
            # If it was committed, completed and forgotten, it conflicts with itself: whoever asks
            # later, in so many words, must not be told of a refusal that came of this.
            reached("oracle.decided_after_look_up", "I8")
            self._decide(ticket, request, waiting.client, is_certain=False)

    def _recalled(self, waiting: Deferred, result: FlushResult) -> Answer | str:
        """Find an answer that was not known at once; a string is the reason to give none."""
        start_ts = waiting.start_ts
        remembered = self._decisions.get(start_ts)
        match waiting.how:
            case Recall.COMMIT_FROM_MEMORY:
                if not remembered:
                    return f"the decision about start_ts {start_ts} was forgotten meanwhile"
                return verdict_on(start_ts, remembered)
            case Recall.COMMIT_FROM_TABLE | Recall.COMMIT_UNLESS_IN_TABLE:
                return self._looked_up(start_ts, result)
            case Recall.REFUSED_UNLESS_IN_TABLE:
                if remembered:
                    return verdict_on(start_ts, remembered)
                if result.entries[start_ts] is None and start_ts > result.prune_horizon:
                    self._count_refusal(ABORT_LOW_WATERMARK)
                    return refusal(start_ts, ABORT_LOW_WATERMARK)
                return self._looked_up(start_ts, result)
            case Recall.INVALIDATION_FROM_MEMORY:
                if not remembered:
                    return outcome_of(start_ts, None)
                return outcome_of(start_ts, Timestamp(remembered) if remembered > 0 else INVALID)
            case Recall.INVALIDATION_FROM_TABLE:
                return outcome_of(start_ts, result.entries[start_ts])
            case Recall.INVALIDATION_PLANTED:
                entry = result.entries[start_ts]
                if entry is not None and entry is not INVALID:
                    # Only an oracle that is not ours can have written it; believe the table.
                    self._invalidated.discard(start_ts)
                    self._decisions.note(start_ts, entry)
                return outcome_of(start_ts, entry)
            case _:
                assert_never(waiting.how)

    def _looked_up(self, start_ts: int, result: FlushResult) -> CommitResponse | str:
        if start_ts <= result.prune_horizon:
            return (
                f"start_ts {start_ts} is at or below the prune horizon {result.prune_horizon}: its "
                "commit entry may have been pruned"
            )
        entry = result.entries[start_ts]
        if entry is None:
            return f"nothing is known about start_ts {start_ts}: it may be complete, or never asked"
        self._metrics.count("tso.retries.from-table")
        return verdict_on(start_ts, ABORT_INVALIDATED if entry is INVALID else entry)


def _why(start_ts: int, result: FlushResult) -> int:
    """Return why a commit that was decided could not be written."""
    return ABORT_UNWRITABLE if start_ts in result.unwritable else ABORT_INVALIDATED


def _size(request: CommitRequest) -> int:
    """Return how many numbers of a request are kept while it waits, its cells counted as such."""
    return len(request.cell_ids) + len(request.table_ids) + request.size_bytes // 8
