"""Gives a queue another number of buckets, and keeps the order of each key.

A key that moves to another bucket would be exported by two owners at once.  So the new buckets are
in a table of their own, and nobody exports them before the old ones are empty for good:

    Prepare   make the new table, and name it in the definition: adders are refused from now on
    Settle    wait until every adder knows; fence the old table; let adders into the new one
    Drain     wait until exporters have emptied the old buckets; move dead letters
    Switch    let exporters into the new buckets
    Sweep     remove the old table

    X7 (old-before-new)  an entry of the new buckets is added only when no commit into the old ones
                         can come any more, and exported only when those are empty

Whoever adds reads the definition within the transaction, at most `DEFINITION_AGE_S` ago.  So after
`SETTLE_S` all that still use the old one have begun before the fence, which aborts them.  For these
seconds an adder gets `QueueFull`, which is retryable; exporters never stop.

Killed at any moment, the same call goes on with the operation.  What was delivered and kept
(`keep_s`) is not carried over.
"""

from __future__ import annotations

import contextlib
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from omidpy.base.cells import table_id
from omidpy.errors import ExportError, FateError, NoSuchQueue, NoSuchTable, TableExists
from omidpy.facts.control import encode_document
from omidpy.fate.client import Fate
from omidpy.fate.step import Defer, Done, Retry, Step, StepContext, step
from omidpy.fate.table_store import TableFateStore
from omidpy.recipes.export_queue import making
from omidpy.recipes.export_queue.dead import graves_of
from omidpy.recipes.export_queue.layout import COLUMN, bucket_of, dead_row
from omidpy.recipes.export_queue.state import (
    DEFINITION_AGE_S,
    GENERATION,
    BucketRows,
    BucketState,
    Definition,
    Places,
    Successor,
    table_name,
)
from omidpy.recipes.export_queue.view import View

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.recipes.export_queue.dead import Grave

KIND: Final = "EXPORT_REBUCKET"
SETTLE_S: Final = 2.5 * DEFINITION_AGE_S
LOOK_EVERY_S: Final = 0.5
MOVED_AT_ONCE: Final = 500

_WEATHER: Final = Retry(max=20, first_s=0.5, longest_s=10.0)


@dataclass(frozen=True)
class RebucketTools:
    """What the steps need."""

    tm: TransactionManager
    sleep: Callable[[float], object] = time.sleep

    def places(self, queue_id: str) -> Places:
        """Return the places of a queue."""
        return Places.of(self.tm.session.catalog, queue_id)

    def read(self, queue_id: str, made: int) -> tuple[bytes, Definition] | None:
        """Return the definition of a queue with its bytes; None: it was dropped."""
        places = self.places(queue_id)
        raw = self.tm.session.control.read(places.row())
        known = None if raw is None else making.decoded(places, raw)
        if raw is None or known is None or not known.is_open or known.made != made:
            return None
        return raw, known

    def replace(self, queue_id: str, raw: bytes, new: Definition) -> bool:
        """Replace a definition that nobody has changed."""
        row = self.places(queue_id).row()
        return self.tm.session.control.replace(row, raw, encode_document(new))

    def remove_table(self, queue_id: str, number: int) -> None:
        """Remove a table, if it is there; whoever has written to it aborts."""
        table = self.tm.session.catalog.full_name(table_name(queue_id, number))
        with contextlib.suppress(NoSuchTable):
            self.tm.store.drop_table(table)
        self.tm.session.catalog.forget(table)
        self.tm.oracle.fence(table_id(table))


DROPPED: Final = "the queue was dropped"


class _QueueStep(Step):
    """A step that looks at the queue first, and ends the operation where that is gone."""

    queue_id: str
    made: int
    """The number that the queue was made with."""
    old: int
    """The number of the table that was exported when the operation began."""

    def call(self, tx: StepContext, env: RebucketTools) -> Any:
        """Look, and act."""
        del tx
        found = env.read(self.queue_id, self.made)
        return Done(DROPPED) if found is None else self.act(env, *found)

    @abstractmethod
    def act(self, env: RebucketTools, raw: bytes, known: Definition) -> Any:
        """Do it to a queue whose definition is `known`, written as `raw`."""


@step(version=1, namespace="export_rebucket", retry=_WEATHER)
class Prepare(_QueueStep):
    """Make the new table, and close the old one for whoever asks from now on."""

    queue_id: str
    made: int
    old: int
    buckets: int

    def act(self, env: RebucketTools, raw: bytes, known: Definition) -> Any:
        """Make both."""
        wanted = Successor(number=self.old + 1, buckets=self.buckets)
        if known.number != self.old or known.successor not in (None, wanted):
            raise ExportError(
                f"the queue {self.queue_id!r} got other buckets meanwhile: {known.buckets}, and "
                f"{known.successor} next; look again, and ask again"
            )
        with contextlib.suppress(TableExists):
            making.make_table(env.tm, self.queue_id, wanted.number, wanted.buckets)
        if known.successor is None:
            new = msgspec.structs.replace(known, successor=wanted)
            if not env.replace(self.queue_id, raw, new):
                return self.again()
        return Settle(self.queue_id, self.made, self.old)

    def undo(self, tx: StepContext, env: RebucketTools) -> None:
        """Open the old table again, and remove the new one."""
        del tx
        while (found := env.read(self.queue_id, self.made)) is not None:
            raw, known = found
            if known.number != self.old or known.successor is None:
                break
            if env.replace(self.queue_id, raw, msgspec.structs.replace(known, successor=None)):
                break
        env.remove_table(self.queue_id, self.old + 1)


@step(version=1, namespace="export_rebucket", retry=_WEATHER)
class Settle(_QueueStep):
    """Let no commit into the old table be possible any more."""

    queue_id: str
    made: int
    old: int

    def call(self, tx: StepContext, env: RebucketTools) -> Any:
        """Wait before each fence: whoever takes this step again waits again."""
        tx.progress("waiting until all who add know of it")
        env.sleep(SETTLE_S)
        return super().call(tx, env)

    def act(self, env: RebucketTools, raw: bytes, known: Definition) -> Any:
        """Fence the old table."""
        del raw, known
        env.tm.fence(table_name(self.queue_id, self.old))
        return Drain(self.queue_id, self.made, self.old)


@step(version=1, namespace="export_rebucket", pivot=True, retry=_WEATHER)
class Drain(_QueueStep):
    """Let adders into the new table, and wait until the old buckets are empty."""

    queue_id: str
    made: int
    old: int

    def act(self, env: RebucketTools, raw: bytes, known: Definition) -> Any:
        """Open the new table, and move on once exporters have done their work."""
        if known.number == self.old and known.successor and not known.successor.is_open:
            opened = msgspec.structs.replace(known.successor, is_open=True)
            if not env.replace(
                self.queue_id, raw, msgspec.structs.replace(known, successor=opened)
            ):
                return self.again()
        return Switch(self.queue_id, self.made, self.old)


@step(version=1, namespace="export_rebucket", retry=_WEATHER)
class Switch(_QueueStep):
    """Move what is dead, and let exporters into the new buckets."""

    queue_id: str
    made: int
    old: int

    def ready(self, tx: StepContext, env: RebucketTools) -> Defer | None:
        """Wait for exporters."""
        del tx
        found = env.read(self.queue_id, self.made)
        if found is None or found[1].number != self.old:
            return None
        waiting = _waiting(env, self.queue_id, found[1])
        return Defer(LOOK_EVERY_S, waiting) if waiting else None

    def act(self, env: RebucketTools, raw: bytes, known: Definition) -> Any:
        """Move and switch."""
        if known.number == self.old and known.successor is not None:
            if _waiting(env, self.queue_id, known):
                return self.again()  # somebody has asked for dead letters to be tried again
            _move_dead(env, self.queue_id, known, known.successor)
            _begin_epochs(env, self.queue_id, known, known.successor)
            new = msgspec.structs.replace(
                known,
                number=known.successor.number,
                buckets=known.successor.buckets,
                successor=None,
            )
            if not env.replace(self.queue_id, raw, new):
                return self.again()
        return Sweep(self.queue_id, self.made, self.old)


@step(version=1, namespace="export_rebucket", retry=_WEATHER)
class Sweep(Step):
    """Remove what is left of the old buckets."""

    queue_id: str
    made: int
    old: int

    def call(self, tx: StepContext, env: RebucketTools) -> Any:
        """Remove the table, and the facts about it."""
        del tx
        env.remove_table(self.queue_id, self.old)
        places, control = env.places(self.queue_id), env.tm.session.control
        facts = [row for row, _ in control.scan(places.facts(self.old))]
        if rest := [row for row in facts if row != places.gauge(self.made)]:
            control.forget(rest)
        return Done("switched")


def rebucket(
    tm: TransactionManager, places: Places, buckets: int, *, wait_s: float | None
) -> Definition:
    """Give a queue so many buckets; return its definition then.

    Raises:
        NoSuchQueue: it was dropped.
        ExportError: somebody else gives it another number, or exporters have not emptied the old
            buckets after `wait_s`: the same call goes on.
    """
    known = making.find(tm, places)
    if known.successor is None and known.buckets == buckets:
        return known
    first = Prepare(places.queue_id, known.made, known.number, buckets)
    key = (KIND, places.first_table, str(known.number), str(buckets))
    with Fate(RebucketTools(tm), TableFateStore(tm.store), {KIND: 1}) as fate:
        handle = fate.submit(KIND, first, key=key)
        try:
            result = handle.result(wait_s)
        except FateError as error:
            raise ExportError(
                f"the queue {places.queue_id!r} has not got {buckets} buckets yet: {error}; "
                "exporters must empty the old ones first, and the same call goes on with it"
            ) from error
    if result == DROPPED:
        raise NoSuchQueue(f"the export queue {places.queue_id!r} was dropped meanwhile")
    return making.find(tm, places)


def _waiting(env: RebucketTools, queue_id: str, known: Definition) -> str:
    """Say what of the old buckets is still to be delivered; empty: nothing ever again."""
    view = View(env.tm, table_name(queue_id, known.number), layout=known.layout)
    count, buckets, stopped = 0, 0, ""
    for raw in BucketRows(env.tm.session.control, env.places(queue_id), known).read():
        here = sum(
            found.position > raw.state.cursor
            for found in view.log(raw.bucket, from_ts=raw.state.scan_from)
        )
        here += len(graves_of(view, raw.bucket).due())
        count += here
        buckets += bool(here)
        stopped = stopped or raw.state.stopped
    if not count:
        return ""
    return f"{count} entries wait in {buckets} of the old buckets" + (
        f", where an exporter has stopped: {stopped}" if stopped else ""
    )


def _move_dead(env: RebucketTools, queue_id: str, known: Definition, to: Successor) -> None:
    old, new = table_name(queue_id, known.number), table_name(queue_id, to.number)
    view = View(env.tm, old)
    graves = [
        (bucket, grave) for bucket in range(known.buckets) for grave in graves_of(view, bucket)
    ]
    for at in range(0, len(graves), MOVED_AT_ONCE):
        some = graves[at : at + MOVED_AT_ONCE]
        with env.tm.begin() as tx:
            source, target = tx.table(old), tx.table(new)
            cells = dict(source.rows([grave.found.row for _, grave in some], columns=[COLUMN]))
            for bucket, grave in some:
                if (data := cells.get(grave.found.row)) is not None:
                    target.put(_row_among(to.buckets, bucket, grave), data)
                    source.delete(grave.found.row, [COLUMN])


def _row_among(buckets: int, old_bucket: int, grave: Grave) -> bytes:
    bucket = old_bucket % buckets if grave.key is None else bucket_of(grave.key, buckets)
    commit_ts, ordinal = grave.found.position
    return dead_row(GENERATION, bucket, commit_ts, grave.found.start_ts, ordinal)


def _begin_epochs(env: RebucketTools, queue_id: str, known: Definition, to: Successor) -> None:
    """Begin above all fences that receivers have seen: a late owner of an old bucket is refused."""
    places, control = env.places(queue_id), env.tm.session.control
    states = [raw.state for raw in BucketRows(control, places, known).read()]
    new = BucketState(epoch=max(state.epoch for state in states) + 1)
    delivered = sum(state.exported for state in states)
    for bucket in range(to.buckets):
        first = msgspec.structs.replace(new, exported=0 if bucket else delivered)
        control.replace(places.bucket(to.number, bucket), None, encode_document(first))
