"""One bucket, once: what is to be delivered, to the exporter, and out of the queue.

    1  see the low watermark, and then a snapshot (`entries/view.py`)
    2  take the next entries by position (`entries/ordering.py`)
    3  hand them to the exporter, with a fence that grows with each owner
    4  move the cursor and count, if the bucket is still ours (`entries/state.py`)
    5  remove exactly their rows (`entries/acknowledgement.py`)

A process that dies before 4 leaves entries that come again.  On one file 4 and 5 are one change;
elsewhere one that dies between them leaves rows behind the cursor, which the bucket's next owner
removes unseen: no scan begins above them before.  An owner that was replaced cannot do 4, and
so removes nothing, whatever its receiver has told it (X9): "older than what I have" may speak of
its fence, and then no worker has delivered these entries yet.

No transaction that has to commit is open while the exporter works, since a slow one would outlast
it; but for exporters into tables of the same store 3 and 5 are one transaction.

    X6 (delivered-first)  nothing is removed, and no cursor moved, before the exporter has returned
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from omidpy.base.reach import reached
from omidpy.base.words.printable import storable
from omidpy.errors import CorruptCell, ExportError
from omidpy.recipes.export_queue.delivery.exactly import MarkRefused, Step, exact_delivery
from omidpy.recipes.export_queue.delivery.failing import Failures, KnownGraves, Memory, Paused
from omidpy.recipes.export_queue.delivery.patience import Patience
from omidpy.recipes.export_queue.delivery.terms import (
    PARK_KEY,
    STOP,
    Counter,
    DeliveryOptions,
    Pass,
)
from omidpy.recipes.export_queue.delivery.verdicts import may_speak_of_an_owner
from omidpy.recipes.export_queue.entries.acknowledgement import (
    ROWS_AT_ONCE,
    removals,
    removals_of,
    remove,
    remove_deleted,
)
from omidpy.recipes.export_queue.entries.counting import SHARE_OF_TIME, after_batch, count, rest_s
from omidpy.recipes.export_queue.entries.dead import (
    POISON,
    WAITS,
    Grave,
    Graves,
    Note,
    bury,
    claimed,
    graves_of,
    keep,
    poisoned,
    rewrite,
    spoil_claims,
)
from omidpy.recipes.export_queue.entries.ordering import FoundEntry, KeyWindow, Position, Window
from omidpy.recipes.export_queue.entries.possession import BucketLost, OwnedBucket
from omidpy.recipes.export_queue.entries.stored.codecs import codec_named
from omidpy.recipes.export_queue.entries.stored.layout import (
    BY_KEY,
    COLUMN,
    decode_content,
    key_prefix,
)
from omidpy.recipes.export_queue.entries.stored.state import table_name
from omidpy.recipes.export_queue.entries.view import View
from omidpy.recipes.export_queue.exporter import (
    Batch,
    Entry,
    Exporter,
    TransactionalExporter,
)
from omidpy.recipes.export_queue.marks import MOST_LEFT_OUT

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.recipes.export_queue.entries.stored.state import Definition
    from omidpy.storage.base import RowMutation

log = logging.getLogger(__name__)

HOLD_BATCHES: Final = 8
"""So many batches of content wait for their turn; what is more is read a second time."""

LONGEST_UNSEEN_S: Final = 60.0
"""After so long an owner looks at its dead letters again, however many they are."""

IDLE_TS: Final = 60 * 1_000_000_000
"""How far the start of the next scan may fall behind while nothing is delivered."""


class Delivery:
    """Delivers the entries of one queue, bucket by bucket.  Safe to share among threads."""

    def __init__(
        self,
        tm: TransactionManager,
        queue_id: str,
        definition: Definition,
        exporter: Exporter,
        options: DeliveryOptions,
        counter: Counter,
        *,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Deliver to `exporter`; `on_step` is called with the name of each step."""
        if isinstance(exporter, TransactionalExporter) and definition.keep_s is not None:
            raise ExportError(
                f"the queue {queue_id!r} keeps what was delivered, so that an exporter into the "
                "same store would deliver it twice after a crash; make the queue without keep_s"
            )
        self._tm = tm
        self._queue_id = queue_id
        self._definition = definition
        self._table = table_name(queue_id, definition.number)
        self._in_store = tm.session.catalog.full_name(self._table)
        self._codec = codec_named(definition.codec)
        self._exporter = exporter
        self._exact = exact_delivery(exporter, queue_id, definition)
        self._options = options
        self._counter = counter
        self._on_step = on_step
        self._clock = tm.session.clock
        self._failures = Failures(queue_id)

    def new_memory(self) -> Memory:
        """Return what is known of a bucket before its first pass."""
        return Memory(Patience(self._options.max_attempts), Patience(self._options.max_attempts))

    def run_pass(self, lease: OwnedBucket, memory: Memory, view: View) -> Pass:
        """Deliver what is in a bucket; say how far that came.

        Args:
            lease: The bucket.
            memory: What earlier passes have learnt.
            view: A snapshot begun after the last pass over this bucket has ended.

        Raises:
            Paused: the exporter failed, and what is left comes later.
            BucketLost: another worker goes on.
            ExportError: the policy is `stop`, and there is poison.
        """
        until_s = self._clock.monotonic_s() + self._options.pass_s
        if lease.is_torn:
            view = self._look_behind(lease, memory)
        try:
            return self._run_pass(lease, memory, view, until_s)
        except Paused:
            raise
        except BaseException:
            memory.graves = None  # what it says of a burial may be wrong
            raise

    def _run_pass(self, lease: OwnedBucket, memory: Memory, view: View, until_s: float) -> Pass:
        graves = self._graves(lease, memory, view)
        held_up: Paused | None = None
        try:
            if not self._deliver_dead(lease, memory, graves, until_s):
                return Pass(has_moved=True, is_whole=False)
        except Paused as pause:
            if self._exact is not None:
                raise  # what is in doubt is settled before anything else is sent
            held_up = pause
        done = self._deliver_log(lease, memory, graves, view, until_s)
        if held_up is not None:
            raise Paused(held_up.after_s, is_of_dead=True) from held_up.__cause__
        return done

    def _deliver_log(
        self, lease: OwnedBucket, memory: Memory, graves: Graves, view: View, until_s: float
    ) -> Pass:
        left: list[FoundEntry] = []
        window = self._window(lease, view, left)
        has_moved = False
        while batch := window.take(
            buffer_bytes=self._options.buffer_bytes, max_entries=memory.patience.max_entries
        ):
            self._on_step("taken")
            self._remove_left(left)
            try:
                rest: Sequence[FoundEntry] = batch
                while rest:
                    rest = self._deliver_batch(lease, memory, graves, rest, view, window)
            except Paused:
                reached("export.paused", "X6")
                self._count(lease, memory, view)  # no look comes more often than this
                raise
            has_moved = True
            if self._clock.monotonic_s() >= until_s:
                self._count(lease, memory, view)
                return Pass(has_moved=True, is_whole=False)
        self._remove_left(left)
        scan_from, state = _scan_from(view, window), lease.state
        # Where rows go behind the state, the next batch says so in passing.
        is_known = has_moved and lease.removes_at_once
        is_old = max(scan_from - state.scan_from, view.start_ts - state.counted_ts) > IDLE_TS
        is_unsure = state.is_unsure or lease.is_in_doubt
        if is_known or is_old or state.waits or is_unsure or not state.counted_ts:
            lease.update(
                scan_from=max(scan_from, state.scan_from),
                # All that any earlier owner can have handed over has left, to whomever.
                is_unsure=False,
                **after_batch(state, (), next_ts=None, seen_ts=view.start_ts),
            )
        return Pass(has_moved=has_moved, is_whole=True)

    def _graves(self, lease: OwnedBucket, memory: Memory, view: View) -> Graves:
        """Return the dead letters of a bucket, as they were not long ago if there are many.

        Its owner alone sets entries aside, and knows which keys it has parked.  What operators have
        asked for is seen by the next look, and looks take a small part of the time: behind one
        poison a key may gather any number, and each pass would read them all.
        """
        known, since_s = memory.graves, self._clock.monotonic_s()
        if known is not None and known.fence == lease.fence and since_s < known.due_s:
            return known.graves
        memory.graves = None
        graves = graves_of(view, lease.bucket)
        if len(graves) != lease.state.dead:
            lease.update(dead=len(graves))
        if not graves.due():
            now_s = self._clock.monotonic_s()
            graves = graves.in_short()
            rest_s = min(SHARE_OF_TIME * (now_s - since_s), LONGEST_UNSEEN_S)
            memory.graves = KnownGraves(lease.fence, graves, now_s + rest_s)
        return graves

    def _look_behind(self, lease: OwnedBucket, memory: Memory) -> View:
        """Return a snapshot behind which no earlier transaction of ours commits (X11).

        One that had no answer might set aside later what is about to be delivered.
        """
        lease.confirm()
        spoil_claims(self._tm, self._table, lease.bucket)
        lease.is_torn = False
        memory.graves = None
        view = View(self._tm, self._table, layout=self._definition.layout)
        for grave in graves_of(view, lease.bucket):
            # It was set aside after all, and is to be handed over when a retry is asked for.
            memory.poison.pop(grave.found.position, None)
        return view

    def _count(self, lease: OwnedBucket, memory: Memory, view: View) -> None:
        """Count what waits, if that is due and has an order."""
        since_s = self._clock.monotonic_s()
        if self._definition.layout == BY_KEY or since_s < memory.count_due_s:
            return
        lease.update(**count(view, lease.bucket, lease.state))
        now_s = self._clock.monotonic_s()
        memory.count_due_s = now_s + rest_s(now_s - since_s)

    def _window(self, lease: OwnedBucket, view: View, left: list[FoundEntry]) -> Window | KeyWindow:
        state = lease.state
        found = view.entries(
            lease.bucket, from_ts=state.scan_from, after=state.cursor, replay_to=state.replay_to
        )
        if self._definition.layout == BY_KEY:
            return KeyWindow(found, key_prefix)
        if self._definition.keep_s is None:
            found = self._but_left(found, lease.state.cursor, left)
        hold_bytes = HOLD_BATCHES * self._options.buffer_bytes
        return Window(found, after=lease.state.cursor, hold_bytes=hold_bytes)

    def _but_left(
        self, found: Iterator[FoundEntry], cursor: Position, left: list[FoundEntry]
    ) -> Iterator[FoundEntry]:
        """Yield what is above the cursor; what a death has left below it goes into `left`."""
        for one in found:
            if one.position > cursor:
                yield one
                continue
            reached("export.left_behind_the_cursor", "X1")
            left.append(one._replace(content=None))
            if len(left) >= ROWS_AT_ONCE:
                self._remove_left(left)

    def _remove_left(self, left: list[FoundEntry]) -> None:
        """Remove rows behind a cursor that is durable: they were delivered, by whichever owner."""
        remove(self._tm.store, self._in_store, left)
        left.clear()

    # -- the log -------------------------------------------------------------------------------

    def _deliver_batch(
        self,
        lease: OwnedBucket,
        memory: Memory,
        graves: Graves,
        batch: Sequence[FoundEntry],
        view: View,
        window: Window | KeyWindow,
    ) -> Sequence[FoundEntry]:
        """Deliver a batch, or its beginning; return the rest, in which is more than a mark holds.

        Raises: as `run_pass`.
        """
        whole = self._with_contents(batch, view)
        good: list[tuple[FoundEntry, Entry]] = []
        dying: list[tuple[FoundEntry, Note]] = []
        end = batch[-1].position
        stopped = ""
        later: list[FoundEntry] = []
        for at, found in enumerate(whole):
            if self._exact is not None and len(dying) == MOST_LEFT_OUT:
                end, later = whole[at - 1].position, whole[at:]
                break
            key, entry, reason = self._judged(found, memory)
            if reason and self._options.poison == STOP:
                stopped, end = reason, Position(*found.position)
                break
            if reason:
                parks = key is not None and self._options.poison == PARK_KEY
                dying.append((found, Note(state=POISON, reason=reason, parks=parks)))
                if key is not None and parks:
                    graves.park(key)
            elif key is not None and graves.is_parked(key):
                why = "an earlier entry of its key was set aside"
                dying.append((found, Note(state=WAITS, reason=why, parks=True)))
            elif entry is not None:
                good.append((found, entry))
        left_out = {found.position for found, _ in dying} | ({end} if stopped else set())
        step = Step(end, frozenset(left_out))
        delivered = self._send(lease, memory.patience, good, memory, step)
        gone = [found for found, _ in good]
        if dying:
            with claimed(self._tm, self._table, lease) as claim:
                bury(self._tm, self._table, lease.bucket, dying, claim=claim)
            for found, note in dying:
                memory.poison.pop(found.position, None)
                log.warning(
                    "queue %s: set aside the entry of start_ts %d (%s)",
                    self._queue_id, found.start_ts, note.reason,
                )  # fmt: skip
        if stopped:
            # What stands before it was delivered, and its rows go; the cursor stays below it.
            before = [found.position for found, _ in good]
            lease.update(
                removing=self._removals(gone),
                stopped=storable(stopped),
                exported=lease.state.exported + delivered,
                **self._moved(max(before, default=lease.state.cursor)),
                **self._settled(),
            )
            raise ExportError(
                f"bucket {lease.bucket} of the queue {self._queue_id!r} has stopped at the entry "
                f"of seq {end.commit_ts}: {stopped}; deliver it, or start again with "
                "poison='park-key' or 'skip'"
            )
        scan_from = _scan_from(view, window)
        if not lease.removes_at_once and self._definition.keep_s is None:
            # Who dies before these rows are gone leaves them to the next scan.
            scan_from = min(scan_from, *(found.start_ts for found in batch))
        lease.update(
            removing=self._removals(gone),
            **self._moved(end),
            **self._settled(),
            scan_from=max(
                min([scan_from, *(one.start_ts for one in later)]), lease.state.scan_from
            ),
            exported=lease.state.exported + delivered,
            dead=lease.state.dead + len(dying),
            **self._counted(lease, whole[: len(whole) - len(later)], later, view, window),
        )
        self._on_step("removed")
        self._on_step("cursor")
        return later

    def _counted(
        self,
        lease: OwnedBucket,
        taken: Sequence[FoundEntry],
        later: Sequence[FoundEntry],
        view: View,
        window: Window | KeyWindow,
    ) -> dict[str, object]:
        """Return what changes in the counts; of what has no order of time there are none."""
        if isinstance(window, KeyWindow):
            return {}
        next_ts = later[0].position.commit_ts if later else window.next_ts()
        return after_batch(lease.state, taken, next_ts=next_ts, seen_ts=view.start_ts)

    def _settled(self) -> dict[str, object]:
        """Return what says that nothing behind the cursor is under way."""
        return {} if self._exact is None else self._exact.settled()

    def _moved(self, cursor: Position) -> dict[str, object]:
        """Return what moves the cursor; where keys come one after the other there is none."""
        if self._definition.layout == BY_KEY:
            return {}
        return {"cursor_ts": cursor.commit_ts, "cursor_ordinal": cursor.ordinal.hex()}

    def _with_contents(self, batch: Sequence[FoundEntry], view: View) -> list[FoundEntry]:
        """Return a batch with what it holds; what another worker has removed meanwhile is left out.

        Only an owner that was paused finds such entries.
        """
        missing = [found.row for found in batch if found.content is None]
        read = view.contents(missing) if missing else {}
        filled = [
            found if found.content is not None else found._replace(content=read.get(found.row))
            for found in batch
        ]
        return [found for found in filled if found.content is not None]

    def _judged(self, found: FoundEntry, memory: Memory) -> tuple[bytes | None, Entry | None, str]:
        """Return the key of an entry, the entry, and why it cannot be delivered, if so."""
        try:
            content = decode_content(found.content or b"")
        except CorruptCell as error:
            return None, None, str(error)
        if (reason := memory.poison.get(found.position)) is not None:
            return content.key, None, reason
        try:
            value = self._codec.decode(content.value)
        except CorruptCell as error:
            return content.key, None, str(error)
        ordinal = int.from_bytes(found.position.ordinal, "big")
        entry = Entry(
            content.key,
            value,
            found.position.commit_ts,
            ordinal,
            found.start_ts,
            content.headers,
            memory.patience.attempts + 1,
        )
        return content.key, entry, ""

    # -- dead letters --------------------------------------------------------------------------

    def _deliver_dead(
        self, lease: OwnedBucket, memory: Memory, graves: Graves, until_s: float
    ) -> bool:
        """Deliver what is due of the dead letters, one by one: any may fail again.

        Returns:
            Whether all was tried; not where the time of the pass is over.
        """
        due = graves.due()
        if due and (rest_s := memory.dead_due_s - self._clock.monotonic_s()) > 0:
            raise Paused(rest_s)
        there = frozenset(grave.found.position for grave in graves) if due else frozenset()
        for number, grave in enumerate(due):
            if not graves.is_first(grave):
                continue  # one before it has just failed again
            if number and self._clock.monotonic_s() >= until_s:
                return False
            _, entry, reason = self._judged(grave.found, memory)
            if entry is not None:
                try:
                    step = Step(grave.found.position, graves=there)
                    one = [(grave.found, entry)]
                    taken = self._send(lease, memory.of_dead, one, memory, step)
                    self._remove_grave(lease, grave, taken)
                    memory.standing.mark = memory.standing.mark.without_dead(step.until)
                except Paused as pause:
                    if (why := memory.poison.pop(grave.found.position, None)) is None:
                        memory.dead_due_s = self._clock.monotonic_s() + pause.after_s
                        raise
                    reason = why
            if reason:
                note = poisoned(grave.note, reason)
                with claimed(self._tm, self._table, lease) as claim:
                    rewrite(self._tm, self._table, [(grave, note)], claim=claim)
                graves.block(grave)
            else:
                graves.left([grave])
        return True

    # -- the exporter --------------------------------------------------------------------------

    def _send(
        self,
        lease: OwnedBucket,
        patience: Patience,
        good: Sequence[tuple[FoundEntry, Entry]],
        memory: Memory,
        step: Step,
    ) -> int:
        """Hand entries to the exporter; return how many it has taken."""
        if not good:
            return 0
        lease.check()
        self._on_step("before-export")
        since_s = self._clock.monotonic_s()
        try:
            taken = self._export(lease, good, memory, step)
        except (BucketLost, Paused, MarkRefused):
            raise
        except Exception as error:
            self._counter.failed(lease.bucket)
            if may_speak_of_an_owner(error):
                # Whether another worker has the bucket its row says, and no receiver's answer.
                lease.confirm()
            paused = self._failures.paused(error, lease.bucket, patience, good, memory)
            raise paused from error
        patience.succeeded()
        self._counter.delivered(lease.bucket, len(good), self._clock.monotonic_s() - since_s)
        self._on_step("exported")
        if isinstance(self._exporter, TransactionalExporter):
            # A transaction has deleted them; this is what is left of their cells.
            remove_deleted(self._tm.store, self._in_store, [found.row for found, _ in good])
        return taken

    def _removals(self, delivered: Sequence[FoundEntry]) -> list[RowMutation]:
        """Return what removes the rows of delivered entries, with the state of the bucket (X9)."""
        if isinstance(self._exporter, TransactionalExporter) or self._definition.keep_s is not None:
            return []
        return removals(delivered)

    def _remove_grave(self, lease: OwnedBucket, grave: Grave, taken: int) -> None:
        """Remove a dead letter that was delivered: whatever is in its row, which was rewritten."""
        changes: dict[str, Any] = {
            "exported": lease.state.exported + taken,
            "dead": max(0, lease.state.dead - 1),
            **self._settled(),
        }
        if self._definition.keep_s is None:
            gone = removals_of(self._tm.store, self._in_store, [grave.found.row])
            lease.update(removing=gone, **changes)
        else:
            lease.update(**changes)
            with claimed(self._tm, self._table, lease) as claim:
                keep(self._tm, self._table, grave, claim=claim)

    def _fresh_ts(self) -> int:
        return self._tm.begin(read_only=True).start_ts

    def _export(
        self,
        lease: OwnedBucket,
        good: Sequence[tuple[FoundEntry, Entry]],
        memory: Memory,
        step: Step,
    ) -> int:
        """Hand entries to the exporter; return how many were not delivered before.

        Only where it was given some, and took them, it is known to take anything at all: what it
        had before says nothing of what it refuses now.
        """
        if self._exact is not None:
            if self._exact.deliver(lease, memory.standing, good, step, fresh_ts=self._fresh_ts):
                self._failures.over()
            return len(good)  # an earlier owner has not counted what it delivered of them
        bucket, fence = lease.bucket, lease.fence
        if not isinstance(self._exporter, TransactionalExporter):
            entries = [entry for _, entry in good]
            batch = Batch(entries, queue=self._queue_id, bucket=bucket, fence=fence)
            self._exporter.export(batch)
            self._failures.over()
            return len(entries)
        with self._tm.begin() as tx:
            queue = tx.table(self._table)
            # Another owner may have delivered them before this transaction began; if it does so
            # from now on, both delete the same cells, and one of the two aborts.
            there = {row for row, _ in queue.rows([found.row for found, _ in good])}
            entries = [entry for found, entry in good if found.row in there]
            if entries:
                batch = Batch(entries, queue=self._queue_id, bucket=bucket, fence=fence)
                self._exporter.export_within(tx, batch)
            for found, _ in good:
                if found.row in there:
                    queue.delete(found.row, [COLUMN])
        if entries:
            self._failures.over()
        return len(entries)


def _scan_from(view: View, window: Window | KeyWindow) -> int:
    """Return where the next scan may begin: at no transaction that may still commit."""
    if isinstance(window, KeyWindow):
        return 0
    low_ts = window.low_ts()
    return view.low_ts + 1 if low_ts is None else min(view.low_ts + 1, low_ts)
