"""Entries on their way in: written with the transaction, and gone with it if it aborts.

    X3 (never-a-conflict)  no two additions write one cell: the row holds the transaction's start
                           timestamp and an ordinal that it uses once

so the cells are written without a conflict check, and an adder never aborts another one.  They are
cells of a transactional table like others: fences, shadow cells and compactions see them.

A limit is judged by the gauge that exporters keep (`upkeep/lag.py`), read at most once in
`GAUGE_AGE_S` seconds.  Where it was not kept for `STALE_S`, since no exporter runs, one adder
counts, no further than the limit, and writes it for all; and so on while that lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from omidpy.base.callers.once import gone_over_once
from omidpy.base.words.arguments import check_storable
from omidpy.errors import CorruptCell, QueueFull
from omidpy.facts.control import decode_document
from omidpy.model import FIRST_WORLD_TIMESTAMP
from omidpy.recipes.export_queue.entries.bell import BELL, Queue
from omidpy.recipes.export_queue.entries.recording import check_recordable, row_changes
from omidpy.recipes.export_queue.entries.stored.codecs import codec_named
from omidpy.recipes.export_queue.entries.stored.layout import (
    BY_KEY,
    COLUMN,
    bucket_of,
    encode_content,
    keyed_row,
    log_row,
)
from omidpy.recipes.export_queue.entries.stored.state import GENERATION, Gauge, table_name

if TYPE_CHECKING:
    from omidpy.base.timing.clock import Clock
    from omidpy.facts.control import ControlTable
    from omidpy.recipes.export_queue.entries.stored.state import Definition, Places
    from omidpy.tx.session import Session
    from omidpy.tx.table import TransactionalTable
    from omidpy.tx.writes.ordinals import Ordinals

GAUGE_AGE_S: Final = 5.0
STALE_S: Final = 20.0
"""After so long without a count no exporter runs."""

NS_PER_S: Final = 1_000_000_000

_HALF: Final = (
    "entries that were to be added to an export queue together were added in part; put a savepoint "
    "around add_all() to go on behind its failure"
)


_RECORDED: Final[WeakKeyDictionary[Any, dict[str, dict[str, str]]]] = WeakKeyDictionary()
"""The tables that each transaction records, by the queue's table: two objects may be one queue."""


class Writer(Protocol):
    """A transaction, or a worker of one."""

    @property
    def start_ts(self) -> int:
        """The start timestamp of its transaction."""
        ...

    @property
    def session(self) -> Session:
        """What it shares with others of its manager."""
        ...

    @property
    def ordinals(self) -> Ordinals:
        """Numbers what it adds."""
        ...

    def table(self, name: str, *, conflict_free: bool = False) -> TransactionalTable:
        """Return a table to write."""
        ...


@runtime_checkable
class Committing(Protocol):
    """A writer that knows when it has committed, which no worker does."""

    def after_commit(self, callback: Callable[[Any], object]) -> None:
        """Call `callback` once, after the commit."""
        ...

    def when_undone(self, callback: Callable[[], object]) -> None:
        """Call `callback` if the savepoint that is open now is undone."""
        ...


class Limit:
    """Says whether a queue takes more.  Safe to share among threads."""

    def __init__(
        self,
        control: ControlTable,
        places: Places,
        definition: Definition,
        clock: Clock,
        *,
        measure: Callable[[], Gauge],
    ) -> None:
        """Judge by the gauge; `measure` counts, and writes it."""
        self._measure = measure
        self._control = control
        self._places = places
        self._definition = definition
        self._clock = clock
        self._gauge: Gauge | None = None
        self._read_s: float | None = None
        self._seen_s = 0.0
        """When this gauge was read for the first time."""

    def check(self, now_ts: int) -> None:
        """Refuse more than the queue was made for.

        Args:
            now_ts: A fresh timestamp.

        Raises:
            QueueFull: nothing was added.
        """
        most, longest_s = self._definition.max_entries, self._definition.max_lag_s
        if most is None and longest_s is None:
            return
        # It may be `GAUGE_AGE_S` old: transactions of that time may pass the limit together.
        gauge = self._fresh(now_ts)
        if gauge.oldest_ts is None:
            return
        found = ""
        if most is not None and gauge.entries >= most:
            found = f"{gauge.entries} entries wait, of at most {most}"
        lag_s = (now_ts - gauge.oldest_ts) / NS_PER_S
        if longest_s is not None and lag_s > longest_s:
            found = f"its oldest entry has waited for {lag_s:.0f} s, of at most {longest_s:g} s"
        if found:
            raise QueueFull(
                f"the queue {self._places.queue_id!r} takes no more: {found}; run `omidpy export "
                "lag` to see which bucket is behind, and more exporters, or try again later"
            )

    def _fresh(self, now_ts: int) -> Gauge:
        now_s = self._clock.monotonic_s()
        if self._gauge is None or self._read_s is None or now_s - self._read_s >= GAUGE_AGE_S:
            row = self._places.gauge(self._definition.made)
            raw = self._control.read(row)
            gauge = None if raw is None else _readable(raw, row)
            if gauge != self._gauge:
                self._seen_s = now_s
            if gauge is None or self._is_stale(gauge, now_ts, now_s):
                gauge = self._measure()
                self._seen_s = now_s
            self._gauge, self._read_s = gauge, now_s
        return self._gauge

    def _is_stale(self, gauge: Gauge, now_ts: int, now_s: float) -> bool:
        # Timestamps stand still while the oracle's date is behind them, as when it was set back.
        if now_s - self._seen_s > STALE_S:
            return True
        is_time = gauge.measured_ts >= FIRST_WORLD_TIMESTAMP
        return is_time and (now_ts - gauge.measured_ts) / NS_PER_S > STALE_S


class QueueWriter:
    """A queue in one transaction, or in one worker of it.  Belongs to one thread."""

    def __init__(
        self,
        writer: Writer,
        queue_id: str,
        definition: Definition,
        limit: Limit,
        *,
        heard_as: Callable[[], Queue],
    ) -> None:
        """Add to a queue; `heard_as` says what exporters of this process know it by."""
        self._writer = writer
        self._heard_as = heard_as
        self._buckets: set[int] = set()
        """Those that exporters of this process are to look into."""
        self._definition = definition
        self._limit = limit
        self._codec = codec_named(definition.codec)
        self._table = writer.table(table_name(queue_id, definition.number), conflict_free=True)

    def add(self, key: bytes, value: object, *, headers: Mapping[str, str] | None = None) -> None:
        """Add an entry, which is in the queue if and only if the transaction commits.

        Args:
            key: Of entries with one key, each is delivered before those that committed later.
            value: What the queue's codec can write.
            headers: Texts that go with it.

        Raises:
            QueueFull: the queue's limits are passed; nothing was added.
            TypeError, UsageError: it cannot be written; nothing was added.
            StorageError: a flush failed, and the transaction, or the savepoint that is open, can
                only be rolled back: who adds it again has it there once.
        """
        if not isinstance(key, bytes):
            raise TypeError(f"the key of an entry is bytes, not {type(key).__name__}: {key!r:.80}")
        content = encode_content(key, _checked_headers(headers), self._codec.encode(value))
        self._limit.check(self._writer.start_ts)
        bucket = bucket_of(key, self._definition.buckets)
        row = self._row(bucket, key)
        self._table.writes.put_once(row, {COLUMN: content})
        if BELL.is_heard:
            self._tell_of(bucket)

    def _row(self, bucket: int, key: bytes) -> bytes:
        start_ts, ordinal = self._writer.start_ts, self._writer.ordinals.take()
        if self._definition.layout == BY_KEY:
            return keyed_row(GENERATION, bucket, key, start_ts, ordinal)
        return log_row(GENERATION, bucket, start_ts, ordinal)

    def record(self, tables: Iterable[str]) -> None:
        """Add an entry for each row of some tables that the transaction will have changed.

        Its key is the row, its value what was changed: {column: value, or None where deleted}, and
        the header `table` says where.  Entries are added at the commit; see `recording.py`.
        Called again, as by parts of a program that do not know of each other, it adds none twice.

        Args:
            tables: Their names.

        Raises:
            UsageError: the queue's codec is not `msgpack`; or this is a worker, whose owner records
                all but what workers write.
            NoSuchTable: one of them is not there.
        """
        if isinstance(tables, (str, bytes)):
            raise TypeError(f"tables are a list of names, not {tables!r}")
        recorded = check_recordable(self._writer, self._definition.codec)
        names = {self._writer.table(name).name: name for name in tables}
        queues = _RECORDED.setdefault(recorded, {})
        if (known := queues.get(self._table.name)) is not None:
            before = dict(known)

            def restore() -> None:
                known.clear()
                known.update(before)

            known.update(names)
            recorded.when_undone(restore)
            return

        def add() -> None:
            for table, row, columns in list(row_changes(recorded.changes(), names)):
                self.add(row, columns, headers={"table": table})

        # Behind all others that write as the commit begins: what they write is recorded, too.
        recorded.before_commit_last(add)
        queues[self._table.name] = names
        # Who records again behind an undone savepoint must find that none does.
        recorded.when_undone(lambda: queues.pop(self._table.name, None))

    def _tell_of(self, bucket: int) -> None:
        # Only the commit rings: what is rolled back is in no queue.
        if not self._buckets and isinstance(self._writer, Committing):
            self._writer.after_commit(lambda _: BELL.ring(self._heard_as(), self._buckets))
            self._writer.when_undone(self._buckets.clear)
        self._buckets.add(bucket)

    def add_all(self, pairs: Iterable[tuple[bytes, object]]) -> None:
        """Add an entry for each (key, value), in this order.

        If one cannot be added, and some of them have been, the transaction, or the savepoint that
        is open, can only be rolled back: who adds them again has none twice.

        Raises:
            QueueFull, TypeError, UsageError, StorageError: as `add`.
            UsageError: they come from an iterator that was gone over before, as by an earlier try.
        """
        half, writes, has_added = object(), self._table.writes, False
        # Before the first: an exception of others, at whatever line, leaves no half of them.
        writes.begin_half(half, _HALF)
        try:
            for key, value in gone_over_once(pairs, what="the entries of add_all"):
                self.add(key, value)
                has_added = True
        except Exception:
            if not has_added:
                writes.end_half(half)
            raise
        writes.end_half(half)


def _readable(raw: bytes, row: bytes) -> Gauge | None:
    """Return a gauge; None: it says nothing, and the next count writes another one."""
    try:
        return decode_document(raw, Gauge, row=row)
    except CorruptCell:
        return None


def _checked_headers(headers: Mapping[str, str] | None) -> Mapping[str, str]:
    checked: dict[str, Any] = dict(headers or {})
    for name, text in checked.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError(f"headers are texts by name, not {name!r}: {text!r:.80}")
        check_storable("the name of a header", name)
        check_storable(f"the header {name!r:.80}", text)
    return checked
