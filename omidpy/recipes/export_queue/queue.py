"""An export queue: entries that leave for another system if what added them committed.

    queue = ExportQueue.create(tm, "counts", codec="json")
    with tm.begin() as tx:
        tx.table("words").put(b"hello", {b"cf:count": b"2"})
        queue.add(tx, key=b"hello", value={"old": 1, "new": 2})
    queue.run(exporter)

Entries of a key are delivered in the order in which they committed, each at least once, and those
of transactions that aborted never.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from omidpy.base.reach import reached
from omidpy.base.within import within
from omidpy.base.words.arguments import check_at_once, check_count
from omidpy.base.words.durations import check_seconds
from omidpy.errors import (
    ExportError,
    NoSuchQueue,
    NoSuchTable,
    QueueFull,
    UsageError,
)
from omidpy.recipes.export_queue.delivery.crew import LEASE_S
from omidpy.recipes.export_queue.delivery.patience import MAX_ATTEMPTS
from omidpy.recipes.export_queue.delivery.runner import MAX_POLL_S, Runner
from omidpy.recipes.export_queue.delivery.terms import BUFFER_BYTES, POLICIES, DeliveryOptions
from omidpy.recipes.export_queue.entries.acknowledgement import acknowledge
from omidpy.recipes.export_queue.entries.adding import Limit, QueueWriter, Writer
from omidpy.recipes.export_queue.entries.bell import Queue
from omidpy.recipes.export_queue.entries.stored.layout import (
    BY_TIME,
)
from omidpy.recipes.export_queue.entries.stored.state import (
    DEFINITION_AGE_S,
    Definition,
    Places,
    table_name,
)
from omidpy.recipes.export_queue.exporter import Entry, Exporting, as_exporter
from omidpy.recipes.export_queue.upkeep import making, retention
from omidpy.recipes.export_queue.upkeep.lag import Lag, known, measure, measure_roughly
from omidpy.recipes.export_queue.upkeep.manual import looking, repairing, restating
from omidpy.recipes.export_queue.upkeep.manual.letters import DeadLetters
from omidpy.recipes.export_queue.upkeep.settings import check_buckets, definition_of
from omidpy.storage import forking

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager

DEFAULT_BUCKETS: Final = 16


class ExportQueue:
    """One export queue, for those who add and those who export.  Safe to share among threads.

    Attributes:
        id: Its id.
        buckets: How many buckets it has.
        codec: How values are written: `bytes`, `json` or `msgpack`.
        keep_s: How long what was delivered can be replayed; None: not at all.
    """

    def __init__(
        self, tm: TransactionManager, places: Places, definition: Definition, read_s: float
    ) -> None:
        """Use `create` or `open` instead."""
        self._tm = tm
        self._places = places
        self._definition = definition
        self._read_s = read_s
        """When a reading of the definition began, by the monotonic clock, at the latest."""
        forking.begin_anew(self, ExportQueue._begin)
        self._limit = Limit(
            tm.session.control,
            places,
            definition,
            tm.session.clock,
            measure=lambda: measure_roughly(tm, places, self._find()),
        )
        self.id = places.queue_id
        self.codec = definition.codec
        self.keep_s = definition.keep_s

    def __repr__(self) -> str:
        return f"<ExportQueue {self.id!r} of {self.buckets} buckets, {self.codec}>"

    def _begin(self) -> None:
        """Have a lock that no thread of a parent has, in this process."""
        self._lock = threading.Lock()

    # -- life ----------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        tm: TransactionManager,
        queue_id: str,
        *,
        buckets: int = DEFAULT_BUCKETS,
        codec: str = "json",
        layout: str = BY_TIME,
        keep_s: float | None = None,
        max_entries: int | None = None,
        max_lag_s: float | None = None,
    ) -> ExportQueue:
        """Make a queue; one that has the same settings already is opened.

        Args:
            tm: The manager.
            queue_id: Letters, digits, `_` and `-`.
            buckets: How many parts are exported independently of each other; all entries of a key
                are in one.
            codec: How values are written: `bytes`, `json` or `msgpack`.
            layout: `log`: entries stand in the order of time, so that looking for new ones passes
                over few old ones.  `fluo`: those of a key stand side by side, and leave so: for
                receivers that want all changes of a key at once, or the last one alone.
            keep_s: How long what was delivered can be replayed; None: it is deleted at once.
            max_entries: `add` raises `QueueFull` where so many wait, as exporters last counted, or
                the adder, where no exporter runs.
            max_lag_s: `add` raises `QueueFull` where the oldest has waited for longer.

        Raises:
            ExportError: there is one with other settings.
            UsageError: a setting makes no sense.
            ConfigError: the store cannot keep queues.
        """
        wanted = definition_of(buckets, codec, layout, keep_s, max_entries, max_lag_s)
        places = Places.of(tm.session.catalog, queue_id)
        read_s = tm.session.clock.monotonic_s()  # before: see `_refreshed`
        return cls(tm, places, making.make(tm, places, wanted), read_s)

    @classmethod
    def open(cls, tm: TransactionManager, queue_id: str) -> ExportQueue:
        """Open a queue that exists.

        Raises:
            NoSuchQueue: there is none of this id.

        Cost: 1 get.
        """
        places = Places.of(tm.session.catalog, queue_id)
        read_s = tm.session.clock.monotonic_s()  # before: see `_refreshed`
        return cls(tm, places, making.find(tm, places), read_s)

    @classmethod
    def open_to_drop(
        cls, tm: TransactionManager, queue_id: str, *, only: str | None = None
    ) -> ExportQueue:
        """Open a queue in order to `drop` it, also one whose dropping was stopped half-way.

        Args:
            tm: The manager.
            queue_id: Its id.
            only: The incarnation that is meant, for who drops again because no answer came: a
                later queue of the id is left alone.

        Raises:
            NoSuchQueue: there is none of this id, and nothing is left of one; or it is another.

        Cost: 1 get; of one that was dropped 1 look at each of its tables.
        """
        places = Places.of(tm.session.catalog, queue_id)
        read_s = tm.session.clock.monotonic_s()  # before: see `_refreshed`
        return cls(tm, places, making.find_to_drop(tm, places, only=only), read_s)

    @classmethod
    def restate(
        cls,
        tm: TransactionManager,
        queue_id: str,
        *,
        buckets: int = DEFAULT_BUCKETS,
        codec: str = "json",
        layout: str = BY_TIME,
        keep_s: float | None = None,
        max_entries: int | None = None,
        max_lag_s: float | None = None,
    ) -> ExportQueue:
        """Say again what a queue is whose definition cannot be read; see `create`.

        Everything else of it is as it was: its entries, and how far its buckets have come.

        Raises:
            NoSuchQueue: there is none of this id.
            ExportError: its definition can be read; or an entry shows that it had other settings.
            UsageError: a setting makes no sense.

        Cost: reads every entry.
        """
        wanted = definition_of(buckets, codec, layout, keep_s, max_entries, max_lag_s)
        restating.restate(tm, Places.of(tm.session.catalog, queue_id), wanted)
        return cls.open(tm, queue_id)

    @staticmethod
    def names(tm: TransactionManager) -> list[str]:
        """Return the ids of the queues that there are, sorted."""
        return making.names(tm)

    @staticmethod
    def malformed(tm: TransactionManager) -> dict[str, str]:
        """Return the ids of queues whose definition cannot be read, each with the reason."""
        return making.malformed(tm)

    @property
    def buckets(self) -> int:
        """How many buckets it has, as this object has last seen."""
        return self._definition.buckets

    @property
    def incarnation(self) -> str:
        """What no other queue has; empty where an earlier version has made it."""
        return self._definition.incarnation

    def exists(self) -> bool:
        """Say whether it was there some seconds ago, or is now."""
        try:
            self._current()
            self._tm.session.catalog.layout(self._tm.session.catalog.full_name(self._table))
        except (NoSuchQueue, NoSuchTable):
            return False
        return True

    def _current(self) -> Definition:
        """Return the definition as it was at most `DEFINITION_AGE_S` ago.

        Raises:
            NoSuchQueue: it was dropped.
        """
        now_s = self._tm.session.clock.monotonic_s()
        if now_s - self._read_s >= DEFINITION_AGE_S:
            return self._refreshed()
        return self._definition

    def _refreshed(self) -> Definition:
        """Read the definition; return it.

        The moment before the read is its age: who sleeps between the two must not take an old one
        for young, as he would add to buckets that no worker exports any more (X7).  For the same
        reason a thread that slept for longer puts nothing in the place of what another has read.

        Raises:
            NoSuchQueue: it was dropped.
        """
        now_s = self._tm.session.clock.monotonic_s()
        found = self._find()
        within(self._lock, self._note, found, now_s)
        return found

    def _note(self, found: Definition, read_s: float) -> None:
        if read_s >= self._read_s:
            self._definition = found  # first: who sees the new age sees what is of that age
            self._read_s = read_s

    def _find(self) -> Definition:
        found = making.find(self._tm, self._places)
        if found.made != self._definition.made:
            raise NoSuchQueue(
                f"the export queue {self.id!r} was dropped, and another one of this id was made: "
                "open that one"
            )
        return found

    def rebucket(self, buckets: int, *, wait_s: float | None = None) -> None:
        """Give the queue another number of buckets; the order of each key is kept.

        For some seconds nothing can be added (`QueueFull`, which is retryable).  Then entries go to
        the new buckets, and leave once exporters have emptied the old ones: some must run.  What
        was delivered and kept cannot be replayed any more.

        It is an operation that outlives this process: killed, the same call finishes it.

        Args:
            buckets: How many.
            wait_s: How long to wait for exporters; None: as long as it takes.

        Raises:
            ExportError: it is not finished yet; or another process gives it another number.
            NoSuchQueue: it was dropped.
        """
        from omidpy.recipes.export_queue.upkeep.rebucketing import rebucket  # noqa: PLC0415 - operations

        check_buckets(buckets)
        self._find()
        rebucket(self._tm, self._places, buckets, wait_s=wait_s)
        self._refreshed()

    def pause(self) -> None:
        """Let exporters stop within some seconds, and begin no more until `resume`.

        That is kept with the queue, and survives them all.  Entries can be added meanwhile.

        Raises:
            NoSuchQueue: it was dropped.
        """
        making.pause(self._tm, self._places, self._definition.made, is_paused=True)

    def resume(self) -> None:
        """Let exporters go on.

        Raises:
            NoSuchQueue: it was dropped.
        """
        making.pause(self._tm, self._places, self._definition.made, is_paused=False)

    def unreadable(self) -> dict[int, str]:
        """Return the buckets whose state cannot be read, each with the reason.  Cost: 2 gets."""
        found = repairing.unreadable(self._tm, self._places, self._refreshed())
        return {raw.bucket: raw.problem for raw in found}

    def repair(self) -> list[int]:
        """Let buckets be exported again whose state cannot be read; return their numbers.

        Nothing says how far they had come: what is still in them is delivered, at least once.
        """
        return repairing.repair(self._tm, self._places, self._refreshed())

    def drop(self) -> None:
        """Remove the queue with everything in it.

        Running transactions that have added to it abort, and exporters of it end with an error.

        Raises:
            NoSuchQueue: it was dropped before.
        """
        making.drop(self._tm, self._places, self._definition.made)

    @property
    def _table(self) -> str:
        return table_name(self.id, self._definition.number)

    # -- adding --------------------------------------------------------------------------------

    def within(self, writer: Writer) -> QueueWriter:
        """Return the queue in one transaction, or in a worker of one.

        Raises:
            NoSuchQueue: it was dropped.
            QueueFull: it takes nothing for some seconds.
            UsageError: the transaction is one of another store.
        """
        self._check_store(writer)
        definition = self._current().of_adders()
        if definition is None:
            reached("export.closed_to_adders", "X7")
            raise QueueFull(
                f"the export queue {self.id!r} gets other buckets, and takes nothing for some "
                "seconds; try again.  If that lasts, the operation has no executor, or has ended "
                "and left it so: run an exporter of the queue, which finishes it or opens the "
                f"queue again, or see `omidpy export status {self.id}`"
            )
        try:
            return QueueWriter(writer, self.id, definition, self._limit, heard_as=self._heard_as)
        except NoSuchTable as error:
            raise NoSuchQueue(
                f"the export queue {self.id!r} was dropped, or got other buckets just now; begin "
                f"the transaction again: {error}"
            ) from error

    def _check_store(self, writer: Writer) -> None:
        """Refuse a transaction of another store, or of other tables of this one.

        It would add by this queue's buckets to the queue of that one, which may have fewer: no
        worker exports what is in others.

        Raises:
            UsageError: it is.
        """
        ours, theirs = self._tm.session, writer.session
        if theirs is ours:
            return
        is_same = theirs.store.store_id == ours.store.store_id
        if not is_same or theirs.catalog.table_prefix != ours.catalog.table_prefix:
            raise UsageError(
                f"the export queue {self.id!r} was opened by a manager of {ours.store.url}, and "
                f"transaction {writer.start_ts} is one of other tables; open the queue by its own "
                "manager, or call tx.queue(...)"
            )

    def _heard_as(self) -> Queue:
        return Queue(self._tm.store.store_id, self._table)

    def add(
        self,
        tx: Writer,
        key: bytes,
        value: object,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Add an entry in a transaction: it is in the queue if and only if that commits.

        Args:
            tx: The transaction, or a worker of one.
            key: Entries of a key leave in the order in which they committed.
            value: What the queue's codec can write.
            headers: Texts that go with it.

        Raises:
            QueueFull: the limits of the queue are passed; nothing was added.
            NoSuchQueue: it was dropped.
            TypeError, UsageError: it cannot be written; nothing was added.
        """
        self.within(tx).add(key, value, headers=headers)

    def add_all(self, tx: Writer, pairs: Iterable[tuple[bytes, object]]) -> None:
        """Add an entry for each (key, value), in this order; as `add`.

        If one cannot be added, and some of them have been, the transaction, or the savepoint that
        is open, can only be rolled back.
        """
        self.within(tx).add_all(pairs)

    def record(self, tx: Writer, *, tables: Iterable[str]) -> None:
        """Add an entry for each row of some tables that a transaction will have changed.

        Its key is the row, its value {column: new value, or None where it was deleted}, and its
        header `table` the name of the table.  What counts is what the transaction comes to in the
        end, whether it was written before this call or after; entries are added at the commit.

        Args:
            tx: The transaction; workers of it are not recorded.
            tables: Their names.

        Raises:
            UsageError: the queue's codec is not `msgpack`; at the commit, which then rolls back:
                a worker has written to one of the tables.
            NoSuchTable: one of them is not there.
        """
        self.within(tx).record(tables)

    # -- exporting -----------------------------------------------------------------------------

    def run(self, exporter: Exporting, **settings: Any) -> None:
        """Deliver entries until interrupted; see `runner` for the settings.

        Raises:
            ExportError: the policy is `stop`, and there is poison.
            NoSuchQueue: the queue was dropped.
        """
        self.runner(exporter, **settings).run()

    def run_once(self, exporter: Exporting, *, wait_s: float | None = None, **settings: Any) -> int:
        """Deliver what is in the queue now, in this thread; return how many entries that were.

        Args:
            exporter: As in `runner`, and so are the settings.
            wait_s: How long to wait for buckets that another process has, which may be dead; None:
                until that is sure.
            **settings: See `runner`.

        Raises:
            ExportError: the receiver cannot be reached; or the policy is `stop`, and there is
                poison.
            NoSuchQueue: the queue was dropped.
        """
        return self.runner(exporter, **settings).run_once(wait_s=wait_s)

    def runner(
        self,
        exporter: Exporting,
        *,
        workers: int = 1,
        buffer_bytes: int = BUFFER_BYTES,
        max_poll_s: float = MAX_POLL_S,
        poison: str = "park-key",
        max_attempts: int = MAX_ATTEMPTS,
        lease_s: float = LEASE_S,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> Runner:
        """Return what exports the queue in this process: it has `run`, `stop` and `run_once`.

        Args:
            exporter: An `Exporter`, or a function that takes batches.
            workers: How many threads.
            buffer_bytes: The most that one batch holds, unless one entry is larger.
            max_poll_s: How long an idle bucket rests at most.
            poison: What becomes of an entry that cannot be delivered.  `park-key`: it is set aside,
                and later entries of its key with it.  `skip`: it alone is.  `stop`: the exporter
                ends.
            max_attempts: After how many failures alone an entry counts as poison.
            lease_s: How long others wait before they take the buckets of a dead process.
            on_step: Called with the name of each step, for fault injection.

        Raises:
            UsageError: a setting makes no sense.
            ExportError: the exporter and the queue do not go together.
        """
        check_at_once("workers", workers)
        for name, count in (
            ("buffer_bytes", buffer_bytes),
            ("max_attempts", max_attempts),
        ):
            check_count(name, count)
        if poison not in POLICIES:
            raise UsageError(f"poison={poison!r} is none of {', '.join(POLICIES)}")
        check_seconds(max_poll_s=max_poll_s, lease_s=lease_s)
        from omidpy.recipes.export_queue.upkeep.caring import Care  # noqa: PLC0415 - operations

        making.check_store(self._tm)
        options = DeliveryOptions(
            buffer_bytes=buffer_bytes, poison=poison, max_attempts=max_attempts
        )
        return Runner(
            self._tm,
            self._places,
            self._current(),
            as_exporter(exporter),
            options,
            find=self._find,
            workers=workers,
            max_poll_s=max_poll_s,
            lease_s=lease_s,
            on_step=on_step,
            look_after=Care(self._tm, self._places, self._find),
        )

    # -- looking -------------------------------------------------------------------------------

    def lag(self) -> Lag:
        """Return how far it is behind.  Cost: a scan of what waits."""
        return measure(self._tm, self._places, self._find())

    def counted(self) -> Lag:
        """Return how far it is behind as its exporters have counted, each bucket with the age.

        What was committed since then is not in it, nor taken from it what was acknowledged by hand.
        A bucket that no worker exports is counted now, as `lag` does, and so is every one where
        timestamps only count, and of the layout `fluo`.

        Cost: 3 gets and 1 oracle round trip, and a scan of the buckets that are counted now.
        """
        return known(self._tm, self._places, self._find())

    def peek(self, count: int = 10) -> list[Entry]:
        """Return the next entries of all buckets by `seq`, at most so many; they stay.

        Entries that cannot be read have None for their value.
        """
        check_count("count", count, or_none=False)
        return looking.peek(self._tm, self._places, self._refreshed(), count)

    def acknowledge(self, commit_ts: int, ordinal: int | None = None) -> int:
        """Count entries as delivered that are not: they were brought there by hand.

        An exporter that is at it may deliver them all the same.

        Args:
            commit_ts: Of the transaction that added them, as `peek` shows it.
            ordinal: Of one of its entries; None: all of them.

        Returns:
            How many entries that were; what is delivered already, or was set aside, does not count.
        """
        return acknowledge(self._tm, self._places, self._refreshed(), commit_ts, ordinal)

    def dead_letters(self) -> DeadLetters:
        """Return the entries that were set aside, to look at, try again or give up."""
        return DeadLetters(self._tm, self._places, self._find())

    def replay(self, since: int | datetime | timedelta) -> None:
        """Deliver again what was committed since a moment, and is still kept.

        Args:
            since: A timestamp, an aware datetime, or how long ago.

        Raises:
            ExportError: the queue keeps nothing, or not for so long.
        """
        if self.keep_s is None:
            raise ExportError(
                f"the queue {self.id!r} keeps nothing that was delivered; make it with keep_s="
            )
        retention.replay(self._tm, self._places, self._find(), since)
