"""Hands entries to a receiver that keeps marks (`marks.py`), so that it has each exactly once.

    1  see that the bucket is still ours: who was replaced spoils no successor's tools
    2  take it over: earlier owners can do nothing any more, and what was under way is decided
    3  see again: who slept between 1 and 2 has just spoilt them, and sends nothing; its successor
       takes over anew.  Where no mark was found, and none is missed, a first one is kept
    4  pass over entries that the mark covers, and hand over the others with the next mark
    5  move the cursor, and remove rows (X9)

A failure of 4, whatever it is, leaves open whether the receiver has the entries: 1 to 3 come again
before anything else is sent, and tell.

    X10 (marked-once)  nothing is sent but by the owner whose take-over was the last one of the
                       bucket, and nothing that the mark covers, which that take-over has read
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from omidpy.errors import ExportError
from omidpy.recipes.export_queue.entries.ordering import FoundEntry, Position
from omidpy.recipes.export_queue.entries.possession import OwnedBucket
from omidpy.recipes.export_queue.entries.stored.layout import BY_KEY, BY_TIME
from omidpy.recipes.export_queue.exporter import (
    Batch,
    Deposed,
    Entry,
    ExactExporter,
    Exporter,
)
from omidpy.recipes.export_queue.marks import Mark, Share, Standing

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.entries.stored.state import Definition

log = logging.getLogger(__name__)


class MarkRefused(ExportError):
    """A receiver has forgotten how far it has come, where that matters: no worker goes on."""


class Step(NamedTuple):
    """What is handed over in one transaction of the receiver."""

    until: Position
    """Of the last entry, whether that is delivered or set aside."""
    but: frozenset[Position] = frozenset()
    """What is about to be set aside."""
    graves: frozenset[Position] | None = None
    """All dead letters that are there, where it is one of them, alone."""


class ExactDelivery:
    """Delivers to one exporter.  Safe to share among threads, a bucket in the hands of one."""

    def __init__(self, exporter: ExactExporter, queue_id: str, incarnation: str) -> None:
        """Deliver entries of a queue, whose table is of an incarnation."""
        self._exporter = exporter
        self._queue_id = queue_id
        self._incarnation = incarnation

    def settled(self) -> dict[str, Any]:
        """Return what changes in the state of a bucket whose batch was delivered."""
        return {"is_unsure": False, "receiver": self._exporter.receiver}

    def deliver(
        self,
        lease: OwnedBucket,
        standing: Standing,
        good: Sequence[tuple[FoundEntry, Entry]],
        step: Step,
        *,
        fresh_ts: Callable[[], int],
    ) -> bool:
        """Let the receiver have entries, unless it has them.

        Args:
            lease: The bucket.
            standing: What is known of the mark.
            good: The entries.
            step: What else the mark speaks of.
            fresh_ts: Returns a timestamp that the oracle gives now.

        Returns:
            Whether it was given any: not where the mark covers them all.

        Raises:
            BucketLost: another worker has it.
            MarkRefused: the receiver has forgotten its mark.
            Exception: the exporter's; the entries come again.  `Deposed`: the receiver has heard of
                another owner; whether that is so, the row of the bucket says.
        """
        share = Share(self._queue_id, self._incarnation, lease.bucket, lease.fence)
        try:
            if standing.share != share:
                self._take_over(lease, standing, share, fresh_ts)
            known = standing.mark.in_turn(lease.state.turn)
            left = [entry for found, entry in good if not _has(known, found.position, step)]
            if not left:
                return False
            position = good[0][0].position
            after = (
                known.after(step.until, step.but)
                if step.graves is None
                else known.after_dead(position, step.graves)
            )
            after = replace(after, since=lease.state.cursor)
            standing.share = None  # until the receiver has said what has become of it
            batch = Batch(left, queue=share.queue, bucket=share.bucket, fence=share.fence)
            self._export(lease, share, batch, after)
        except Deposed:
            standing.share = None  # whoever has the bucket by now takes it over again
            raise
        standing.share, standing.mark = share, after
        return True

    def _export(self, lease: OwnedBucket, share: Share, batch: Batch, mark: Mark) -> None:
        """Hand a batch over with its mark; in doubt from here on, unless it is undone for sure."""
        was_in_doubt, lease.is_in_doubt = lease.is_in_doubt, True
        try:
            self._exporter.export_marked(share, batch, mark)
        except Exception:
            # Of a bucket into which nothing came for a week Kafka has forgotten both the mark and
            # the producer: its next batch fails, and the mark that is gone then is not missed.
            lease.is_in_doubt = was_in_doubt or not self._exporter.is_undone(share)
            raise

    def _take_over(
        self, lease: OwnedBucket, standing: Standing, share: Share, fresh_ts: Callable[[], int]
    ) -> None:
        lease.confirm()
        found = self._exporter.take_over(share)
        # Who slept before that has made a successor's tools useless, and must not use its own.
        lease.confirm()
        state = lease.state
        receiver = self._exporter.receiver
        is_unsure = state.is_unsure or lease.is_in_doubt
        if found is None and is_unsure and receiver and state.receiver == receiver:
            raise MarkRefused(self._forgotten(share))
        # Behind the check: the next look would take this one for what it has missed.
        has_one = found is not None or self._exporter.keep_first(share, Mark())
        # Noted before the first batch, so that a mark is missed also by who comes when that one is
        # in doubt.  A doubt about another receiver stays that one's.
        is_noted = not receiver or state.receiver == receiver
        if has_one and not is_noted and not (is_unsure and state.receiver):
            lease.update(receiver=receiver)
        mark = found or Mark()
        # Asked for behind the take-over: an earlier owner may have been ahead of what we have seen.
        is_of_now = mark.since <= state.cursor and mark.until.commit_ts <= fresh_ts()
        if mark.turn == state.turn and not is_of_now:
            # Its timestamps may come again, and then the mark would cover what is new.
            log.warning(
                "queue %s: bucket %d is behind what its receiver has had, as in a store that was "
                "restored: entries that were delivered since come again",
                share.queue, share.bucket,
            )  # fmt: skip
            lease.update(turn=state.turn + 1)
        standing.share, standing.mark = share, mark

    def _forgotten(self, share: Share) -> str:
        return (
            f"an exporter of the queue {share.queue!r} has died, and {self._exporter.receiver} has "
            f"forgotten how far bucket {share.bucket} had come: its next entries may have been "
            "delivered.  Look there, and count those that were with `omidpy export ack`; then let "
            "what is left be delivered at least once, with --at-least-once, before this goes on"
        )


def exact_delivery(
    exporter: Exporter, queue_id: str, definition: Definition
) -> ExactDelivery | None:
    """Return what delivers a queue exactly once; None: its exporter keeps no marks, or need not.

    Raises:
        ExportError: it must, and the queue has no order that a mark could speak of.
    """
    if not (isinstance(exporter, ExactExporter) and exporter.is_exact):
        return None
    if definition.layout != BY_KEY:
        return ExactDelivery(exporter, queue_id, definition.incarnation_of_table())
    if exporter.needs_marks:
        raise ExportError(
            f"the queue {queue_id!r} has the layout {BY_KEY!r}, key by key: nothing says how far "
            "that has come, so that this exporter cannot deliver it exactly once; let it deliver "
            f"at least once (--at-least-once), or make the queue with layout={BY_TIME!r}"
        )
    return None


def _has(mark: Mark, position: Position, step: Step) -> bool:
    return mark.covers(position) if step.graves is None else position in mark.dead
