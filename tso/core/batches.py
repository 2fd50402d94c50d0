"""Put decisions and answers into batches, in one order; say which may leave, and what is flushed.

The machine decides; here stand its decisions and the answers that wait for them, in three batches:

    flight    is becoming durable; there is at most one
    early     answers that came ahead of the next batch's first decision
    pending   the next batch: its first decision, and all that came behind it

Order is correctness:

    I1  a timestamp leaves once the durable ceiling covers it
    I2  a commit entry is durable before its reply and before any later reply

so answers leave in the order in which they were put here.  What is early waits for the flight, and
for no commit behind it.  There are no timers: an idle oracle flushes at once, and while a flush is
under way arrivals form the next batch.

No clock and no store: whether the oracle may still answer without a look at its lease is told with
each question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Generic

from omidpy.base.reach import reached
from tso.core.engine import Engine
from tso.core.events import Answer, Batch, Deferred, Frames, Ticket

LOW_WATERMARK_PERIOD_MS: Final = 1000
"""How often at most the low watermark is written.

A full conflict map raises it with each commit, and on HBase each write of it is a round trip.
"""


class Batches(Generic[Ticket]):
    """What was decided and is not told yet, in the order in which it leaves."""

    def __init__(self, *, ceiling: int, lookahead: int, low_watermark: int) -> None:
        """Begin with nothing decided.

        Args:
            ceiling: The durable one, up to which timestamps may leave.
            lookahead: How far above the newest timestamp a new ceiling stands.
            low_watermark: The durable one.
        """
        self.queue_length = 0
        """How many answers wait for a flush: what back-pressure looks at."""
        self.group_bytes = 0
        """How long the cells are that wait for one."""
        self._durable_ceiling = ceiling
        self._ceiling = ceiling
        self._lookahead: Final = lookahead
        self._least_lookahead: Final = lookahead // 2
        self._wants_ceiling = False
        self._gave_ceiling_back = False
        self._durable_low_watermark = low_watermark
        self._low_watermark_due_ms = 0
        self._early: Batch[Ticket] = Batch()
        self._pending: Batch[Ticket] = Batch()
        self.flight: Batch[Ticket] | None = None
        """The batch that becomes durable; None if no flush is under way, so that one may begin."""

    # -- what is put here ----------------------------------------------------------------------

    def open_decisions(self) -> Batch[Ticket]:
        """Return the batch of the decision that follows, and let what was answered before be early.

        What is put here from now on waits for that decision (I2).
        """
        if not self._pending.has_decisions():
            assert not self._early.answers, "I2: answers behind a decision would leave before it"
            self._early, self._pending = self._pending, self._early
        return self._pending

    def answer(self, ticket: Ticket, answer: Answer | Deferred) -> None:
        """Put an answer behind all others."""
        self._pending.answers.append((ticket, answer))
        self.queue_length += 1

    def answer_framed(self, ticket: Ticket, frames: bytes, count: int) -> None:
        """Put so many answers behind all others, which a run has written."""
        pending = self._pending
        pending.answers.append((ticket, Frames(frames, count)))
        pending.framed_count += count - 1
        self.queue_length += count

    def note(self, timestamp: int) -> None:
        """Note that the pending answers hold a timestamp: its ceiling comes first (I1)."""
        self._pending.newest_ts = timestamp
        self.cover(timestamp)

    def cover(self, timestamp: int) -> None:
        """Ask for a higher ceiling when less than half of the lookahead is left."""
        if self._ceiling - timestamp < self._least_lookahead:
            self._wants_ceiling = True

    def add_group_bytes(self, size_bytes: int) -> None:
        """Note how long the cells are of a commit that is written with them."""
        self._pending.group_bytes += size_bytes
        self.group_bytes += size_bytes

    def waiting(self) -> Iterator[list[tuple[Ticket, Answer | Deferred | Frames]]]:
        """Yield the answers of each batch, which may be replaced where they stand."""
        yield self._early.answers
        yield self._pending.answers
        if self.flight is not None:
            yield self.flight.answers

    # -- what leaves ---------------------------------------------------------------------------

    def ready(self, is_vouched: bool) -> Sequence[Batch[Ticket]]:  # noqa: FBT001 - as in `run`
        """Take away and return the batches of answers that need no flush, in their order.

        Args:
            is_vouched: Whether no other oracle can hold the lease yet (I8).
        """
        early, pending = self._early, self._pending
        if early.answers:
            if not self._may_leave(early, is_vouched):
                return ()  # and what is pending stays behind it
            self._early = Batch()
            if not pending.answers or not self._may_leave(pending, is_vouched):
                return (early,)
            self._pending = Batch()
            return early, pending
        if not pending.answers or not self._may_leave(pending, is_vouched):
            return ()
        self._pending = Batch()
        return (pending,)

    def _may_leave(self, batch: Batch[Ticket], is_vouched: bool) -> bool:  # noqa: FBT001
        """Say whether a batch needs no flush: neither its own nor the one under way."""
        return (
            not batch.has_decisions()
            and batch.newest_ts <= self._durable_ceiling
            and is_vouched
            and (self.flight is None or not self.flight.answers)
        )

    def take_answers(self, batch: Batch[Ticket]) -> list[tuple[Ticket, Answer | Deferred | Frames]]:
        """Return the answers of a batch that is ready or has landed: they wait no longer."""
        assert batch.newest_ts <= self._durable_ceiling, "I1: a timestamp above the durable ceiling"
        self.queue_length -= batch.answer_count
        self.group_bytes -= batch.group_bytes
        return batch.answers

    # -- flushes -------------------------------------------------------------------------------

    def gather(self, engine: Engine, elapsed_ms: int) -> Batch[Ticket]:
        """Return the next batch, with the ceiling and the low watermark that it should carry.

        It stays the pending one unless `fly` takes it.

        Args:
            engine: What was issued, and what the low watermark is.
            elapsed_ms: Of the oracle's time.
        """
        batch = self._pending
        if self._early.answers:  # they wait for the ceiling, or for a look at the lease
            reached("oracle.answers_waited", "I1")
            batch.answers[:0] = self._early.answers
            batch.framed_count += self._early.framed_count
            batch.newest_ts = max(batch.newest_ts, self._early.newest_ts)
            self._early = Batch()
        if self._wants_ceiling and not self._gave_ceiling_back:
            newest_ts = max(engine.clock_ts, engine.last_issued)
            self._ceiling = batch.ceiling = newest_ts + self._lookahead
            self._wants_ceiling = False
        low_watermark = engine.low_watermark
        is_raised = low_watermark > self._durable_low_watermark
        if is_raised and elapsed_ms >= self._low_watermark_due_ms:
            batch.low_watermark = low_watermark
            self._low_watermark_due_ms = elapsed_ms + LOW_WATERMARK_PERIOD_MS
        return batch

    def fly(self, batch: Batch[Ticket]) -> bool:
        """Let the gathered batch be the one under way; False if it carries nothing."""
        if batch.answers or batch.ceiling or batch.low_watermark or batch.sample:
            self._pending = Batch()
            self.flight = batch
            return True
        return False

    def give_ceiling_back(self, last_issued: int) -> Batch[Ticket] | None:
        """Begin the flush that lowers the ceiling to what was issued; None if it has been.

        Nothing may be issued from here on: the next instance begins at this ceiling (I1).
        """
        if self._gave_ceiling_back or not last_issued:
            return None
        reached("oracle.ceiling_given_back", "I1")
        self._gave_ceiling_back = True
        self.flight = Batch(ceiling=last_issued)
        return self.flight

    def land(self) -> Batch[Ticket]:
        """Return the batch that was under way, which is durable now."""
        batch = self.flight
        assert batch is not None, "I2: a flush ended that was never begun"
        self.flight = None
        if batch.ceiling is not None:
            self._durable_ceiling = batch.ceiling
        if batch.low_watermark is not None:
            self._durable_low_watermark = batch.low_watermark
        return batch
