"""How far is a queue behind?  By one scan of what was not delivered, or as exporters count."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from omidpy.errors import StorageError
from omidpy.facts.control import encode_document
from omidpy.model import FIRST_WORLD_TIMESTAMP
from omidpy.recipes.export_queue.entries.adding import NS_PER_S
from omidpy.recipes.export_queue.entries.counting import count, is_believed
from omidpy.recipes.export_queue.entries.dead import graves_of
from omidpy.recipes.export_queue.entries.stored.state import BucketRows, Gauge, Raw, table_name
from omidpy.recipes.export_queue.entries.view import View

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.recipes.export_queue.entries.stored.state import Definition, Places
from omidpy.recipes.export_queue.entries.stored.layout import BY_KEY

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.recipes.export_queue.entries.ordering import FoundEntry
    from omidpy.recipes.export_queue.entries.stored.state import Definition, Places


@dataclass(frozen=True, slots=True)
class BucketLag:
    """How far one bucket is behind.

    Attributes:
        bucket: Its number.
        entries: How many wait, dead letters not counted.
        oldest_commit_ts: When the first of them was committed; None: none waits.
        dead_letters: How many were set aside.
        exported: How many were delivered since the queue was made.
        owner: The worker that exports it; None: none does.
        epoch: Grows with each owner, and is no less than the seconds since 1970 when it came.
        stopped: Why it goes no further; empty if it does.
        oldest_age_s: As `Lag.oldest_age_s`.
        counted_age_s: How long ago `entries` was counted; what was committed since is not in it.
            None where timestamps only count.
    """

    bucket: int
    entries: int
    oldest_commit_ts: int | None
    dead_letters: int
    exported: int
    owner: str | None
    epoch: int
    stopped: str
    oldest_age_s: float | None = None
    counted_age_s: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a queue is behind.

    Attributes:
        entries: How many wait, dead letters not counted.
        oldest_commit_ts: When the first of them was committed; None: none waits.
        oldest_age_s: How long ago that is; 0 if none waits, None where timestamps only count.
        dead_letters: How many were set aside.
        buckets: The same by bucket.
        in_new_buckets: How many of the entries wait in the buckets that the queue is about to have,
            and that are not exported yet.
        next_buckets: How many buckets the queue is about to have; None: no others.
        takes_entries: Whether anything can be added to it; not while it gets other buckets.
        operation: The id of the operation that gives it those; empty: none, or it is not known.
        is_paused: Whether no worker exports it until it is resumed.
    """

    entries: int
    oldest_commit_ts: int | None
    oldest_age_s: float | None
    dead_letters: int
    buckets: tuple[BucketLag, ...]
    in_new_buckets: int = 0
    next_buckets: int | None = None
    takes_entries: bool = True
    operation: str = ""
    is_paused: bool = False


def measure(tm: TransactionManager, places: Places, definition: Definition) -> Lag:
    """Count what waits, and note it for those who add (`entries/adding.py`).

    Who may not write, or cannot, has counted all the same: those who add count for themselves then.
    """
    view, lag = _lag(tm, places, definition, _of_bucket)
    gauge = Gauge(lag.entries, lag.oldest_commit_ts, view.start_ts)
    with contextlib.suppress(StorageError):
        tm.session.control.write(places.gauge(definition.made), encode_document(gauge))
    return lag


def known(tm: TransactionManager, places: Places, definition: Definition) -> Lag:
    """Return what exporters have counted; a bucket without an owner, or without order, is."""
    return _lag(tm, places, definition, _as_counted)[1]


def _lag(
    tm: TransactionManager,
    places: Places,
    definition: Definition,
    look: Callable[[View, Raw], BucketLag],
) -> tuple[View, Lag]:
    view, buckets = _of_buckets(tm, places, definition, look)
    new: tuple[BucketLag, ...] = ()
    adding = definition.of_adders()
    if adding is not None and adding is not definition:
        view, new = _of_buckets(tm, places, adding, look)
    in_new = sum(one.entries for one in new)
    waiting = [one.oldest_commit_ts for one in (*buckets, *new) if one.oldest_commit_ts is not None]
    oldest_ts = min(waiting, default=None)
    waits = definition.successor
    return view, Lag(
        sum(one.entries for one in buckets) + in_new,
        oldest_ts,
        _age_s(view, oldest_ts),
        sum(one.dead_letters for one in buckets),
        buckets,
        in_new,
        next_buckets=None if waits is None else waits.buckets,
        takes_entries=adding is not None,
        operation="" if waits is None else waits.operation,
        is_paused=definition.is_paused,
    )


def _of_buckets(
    tm: TransactionManager,
    places: Places,
    definition: Definition,
    look: Callable[[View, Raw], BucketLag],
) -> tuple[View, tuple[BucketLag, ...]]:
    states = BucketRows(tm.session.control, places, definition).read()
    view = View(tm, table_name(places.queue_id, definition.number), layout=definition.layout)
    return view, tuple(look(view, raw) for raw in states)


def measure_roughly(tm: TransactionManager, places: Places, definition: Definition) -> Gauge:
    """Note what those who add must know, and count no further than that; return it.

    An entry committed after its transaction began: once one was read that began later than the
    oldest commit so far, that is the oldest of all.  Key by key any may be it.
    """
    most = definition.max_entries or 0
    entries, oldest_ts, measured_ts = 0, None, 0

    def is_oldest(found: FoundEntry, oldest_here: int) -> bool:
        if definition.layout == BY_KEY:
            return definition.max_lag_s is None  # no alarm asks for it
        return found.start_ts > oldest_here

    # While it gets other buckets entries wait in both.
    for one in _with_new(definition):
        view = View(tm, table_name(places.queue_id, one.number), layout=one.layout)
        measured_ts = view.start_ts
        for raw in BucketRows(tm.session.control, places, one).read():
            oldest_here: int | None = None
            for found in view.log(raw.bucket, from_ts=raw.state.scan_from):
                if found.position <= raw.state.cursor:
                    continue
                if entries >= most and oldest_here is not None and is_oldest(found, oldest_here):
                    break
                entries += 1
                commit_ts = found.position.commit_ts
                oldest_here = commit_ts if oldest_here is None else min(oldest_here, commit_ts)
            if oldest_here is not None:
                oldest_ts = oldest_here if oldest_ts is None else min(oldest_ts, oldest_here)
    gauge = Gauge(entries, oldest_ts, measured_ts)
    tm.session.control.write(places.gauge(definition.made), encode_document(gauge))
    return gauge


def _with_new(definition: Definition) -> list[Definition]:
    adding = definition.of_adders()
    return [definition] if adding is None or adding is definition else [definition, adding]


def _of_bucket(view: View, raw: Raw) -> BucketLag:
    found = count(view, raw.bucket, raw.state)
    state = msgspec.structs.replace(raw.state, dead=len(graves_of(view, raw.bucket)), **found)
    return _shown(view, Raw(raw.bucket, raw.raw, state))


def _as_counted(view: View, raw: Raw) -> BucketLag:
    return (_shown if is_believed(raw.state, view.start_ts) else _of_bucket)(view, raw)


def _shown(view: View, raw: Raw) -> BucketLag:
    state = raw.state
    oldest_ts = state.oldest_ts if state.waits else None
    return BucketLag(
        raw.bucket,
        state.waits,
        oldest_ts,
        state.dead,
        state.exported,
        state.owner,
        state.epoch,
        state.stopped,
        _age_s(view, oldest_ts),
        _age_s(view, state.counted_ts),
    )


def _age_s(view: View, oldest_ts: int | None) -> float | None:
    if oldest_ts is None:
        return 0.0
    is_time = oldest_ts >= FIRST_WORLD_TIMESTAMP
    return (view.start_ts - oldest_ts) / NS_PER_S if is_time else None
