"""Gives a queue another number of buckets, and keeps the order of each key.

A key that moves to another bucket would be exported by two owners at once.  So the new buckets are
in a table of their own, and no worker exports them before the old ones are empty for good:

    Prepare   name the new table and this operation in the definition, which refuses adders from now
              on; make the table
    Settle    wait until every adder knows; fence the old table; let adders into the new one
    Drain     wait until exporters have emptied the old buckets; move dead letters
    Switch    let exporters into the new buckets
    Sweep     remove the old table

    X7 (old-before-new)  an entry of the new buckets is added only when no commit into the old ones
                         can come any more, and exported only when those are empty

An adder reads the definition within the transaction, at most `DEFINITION_AGE_S` ago.  So after
`SETTLE_S` all that still use the old one have begun before the fence, which aborts them.  For these
seconds an adder gets `QueueFull`, which is retryable; exporters never stop.

Killed at any moment, the same call goes on with the operation; so does any exporter of the store
(`finishing.py`), and `omidpy fate run`, since nothing can be added while it stands still.  What was
delivered and kept (`keep_s`) is not carried over.

    X8 (own-buckets)  a step changes new buckets, and an undo removes them, only where the
                      definition says that this operation makes them, under a number of their own

so that a second operator's operation, or one that was left for weeks, finds buckets that are not
its own, and leaves them alone.
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
from omidpy.base.reach import reached
from omidpy.errors import (
    ExportError,
    FateError,
    NoSuchQueue,
    NoSuchTable,
    OracleError,
    ReservationLost,
    StorageError,
    TableExists,
    TransactionAborted,
)
from omidpy.facts.control import encode_document
from omidpy.fate.client import Fate, OperationHandle
from omidpy.fate.operation import Status, parse_id
from omidpy.fate.step import Defer, Done, Retry, Step, StepContext, step
from omidpy.fate.table.store import TableFateStore
from omidpy.recipes.export_queue.entries.stored.state import (
    DEFINITION_AGE_S,
    Definition,
    Places,
    Successor,
    table_name,
)
from omidpy.recipes.export_queue.upkeep import making
from omidpy.recipes.export_queue.upkeep.handover import begin_epochs, move_dead, waiting

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager

KIND: Final = "EXPORT_REBUCKET"
SETTLE_S: Final = 2.5 * DEFINITION_AGE_S
LOOK_EVERY_S: Final = 0.5
NO_TOOLS_S: Final = 10.0
"""How long an operation waits for an executor that can run it."""

_WEATHER: Final = Retry(max=20, first_s=0.5, longest_s=10.0)
_BEFORE: Final = Retry(
    max=20,
    first_s=0.5,
    longest_s=10.0,
    on=(StorageError, OracleError, TransactionAborted, OSError),
)
"""Of the step that may be refused, which no other try changes."""


@dataclass(frozen=True)
class RebucketTools:
    """What the steps need: the environment of an executor, or its attribute `queues`."""

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
        """Replace a definition that has not changed since it was read."""
        row = self.places(queue_id).row()
        return self.tm.session.control.replace(row, raw, encode_document(new))

    def remove_table(self, queue_id: str, number: int) -> None:
        """Remove a table, if it is there; transactions that have written to it abort."""
        table = self.tm.session.catalog.full_name(table_name(queue_id, number))
        with contextlib.suppress(NoSuchTable):
            self.tm.store.drop_table(table)
        self.tm.session.catalog.forget(table)
        self.tm.oracle.fence(table_id(table))


DROPPED: Final = "the queue was dropped"
REPLACED: Final = "another operation has taken it over"


class _RebucketStep(Step):
    """A step of one queue, for executors that can reach it."""

    queue_id: str
    made: int
    """The number that the queue was made with."""
    old: int
    """The number of the table that was exported when the operation began."""
    first_table: str
    """The name of the first table of its id, in the store: managers may prefix their tables.  Empty
    where an older omidpy has stored the step."""

    def ready(self, tx: StepContext, env: Any) -> Defer | None:
        """Wait for an executor with the tools."""
        tools = _tools_of(env)
        if tools is None:
            return Defer(
                NO_TOOLS_S,
                "an exporter of the queue, or omidpy fate run --store URL --tso ADDR",
            )
        if self.first_table and tools.places(self.queue_id).first_table != self.first_table:
            # To this executor it would seem that the queue was dropped.
            return Defer(NO_TOOLS_S, f"an executor to which {self.first_table} is a queue's table")
        return self.may_begin(tx, tools)

    def may_begin(self, tx: StepContext, env: RebucketTools) -> Defer | None:
        """Say what to wait for; None: nothing."""
        del tx, env
        return None

    def call(self, tx: StepContext, env: Any) -> Any:
        """Do the step with the tools."""
        tools = _tools_of(env)
        assert tools is not None, "ready() lets nobody through without"
        return self.do(tx, tools)

    @abstractmethod
    def do(self, tx: StepContext, env: RebucketTools) -> Any:
        """Do what the step is named for."""


def _tools_of(env: Any) -> RebucketTools | None:
    """Return what an executor's environment has for these steps, if it has."""
    found = env if isinstance(env, RebucketTools) else getattr(env, "queues", None)
    return found if isinstance(found, RebucketTools) else None


class _QueueStep(_RebucketStep):
    """A step that looks at the queue first, and ends the operation where that is gone."""

    def do(self, tx: StepContext, env: RebucketTools) -> Any:
        """Look whether the queue, and these buckets of it, are still this operation's; then act."""
        found = env.read(self.queue_id, self.made)
        if found is None:
            return Done(DROPPED)
        raw, known = found
        if known.number == self.old and not _is_of(known.successor, tx.id):
            reached("export.buckets_of_another", "X8")
            return Done(REPLACED)
        return self.act(env, raw, known)

    @abstractmethod
    def act(self, env: RebucketTools, raw: bytes, known: Definition) -> Any:
        """Do it to a queue whose definition is `known`, written as `raw`."""


def _is_of(successor: Successor | None, operation: str) -> bool:
    """Say whether an operation has made these buckets, or may have.

    Where it was not said whose they are, there was one operation for each number of buckets.
    """
    return successor is not None and successor.operation in ("", operation)


@step(version=2, namespace="export_rebucket", retry=_BEFORE)
class Prepare(_RebucketStep):
    """Close the old table for transactions that begin from now on, and make the new one."""

    queue_id: str
    made: int
    old: int
    buckets: int
    after: str = ""
    """The id of an operation that is gone, and whose place this one takes; empty: of none."""
    first_table: str = ""

    def do(self, tx: StepContext, env: RebucketTools) -> Any:
        """Name the new table in the definition, then make it (X8)."""
        found = env.read(self.queue_id, self.made)
        if found is None:
            return Done(DROPPED)
        raw, known = found
        successor = known.successor
        if known.number != self.old or not (
            successor is None or self._is_ours(successor, tx.id) or self._is_left(successor)
        ):
            raise ExportError(
                f"the queue {self.queue_id!r} got other buckets meanwhile: {known.buckets}, and "
                f"{successor} next; look again, and ask again"
            )
        if successor is None or successor.operation != tx.id:
            # Named before it is made, so that a number is given to one operation alone.
            number = known.next_number() if successor is None else successor.number
            is_open = successor is not None and successor.is_open
            successor = Successor(
                number=number, buckets=self.buckets, operation=tx.id, is_open=is_open
            )
            new = msgspec.structs.replace(known, successor=successor, last=number)
            if not env.replace(self.queue_id, raw, new):
                return self.again()
        self._confirm(tx, env)
        with contextlib.suppress(TableExists):
            making.make_table(env.tm, self.queue_id, successor.number, successor.buckets)
        # Who was paused here may have made a table that is not named: it was undone, all was
        # dropped, or others have finished this operation, and given the queue other buckets since.
        found = env.read(self.queue_id, self.made)
        if found is None or not self._is_named(found[1], successor.number):
            reached("export.table_of_nobody", "X8")
            env.remove_table(self.queue_id, successor.number)
            return Done(DROPPED if found is None else REPLACED)
        return Settle(self.queue_id, self.made, self.old, self.first_table)

    def _confirm(self, tx: StepContext, env: RebucketTools) -> None:
        """See that the operation is ours still, once the definition names its buckets.

        Who was paused before he wrote that may have written it behind the undo, or the end, of his
        operation: then nobody else would ever take it back.

        Raises:
            ReservationLost: it is not, and what nobody else takes back is undone.
        """
        try:
            tx.confirm()
        except ReservationLost:
            found = TableFateStore(env.tm.store).read(parse_id(tx.id))
            if found is None or found.is_finished or found.status is Status.FAILED_IN_PROGRESS:
                let_go(env, self.queue_id, self.made, tx.id)
            raise

    def undo(self, tx: StepContext, env: Any) -> None:
        """Open the old table again, and remove the new one, where this operation has made it."""
        tools = _tools_of(env)
        if tools is None:
            raise ExportError(f"no oracle is here to undo what was done to {self.queue_id!r}")
        self._undo(tx, tools)

    def _undo(self, tx: StepContext, env: RebucketTools) -> None:
        while (found := env.read(self.queue_id, self.made)) is not None:
            raw, known = found
            new = known.successor
            if known.number != self.old or new is None or new.is_open:
                return
            if not self._is_ours(new, tx.id):
                return  # another operator's: what is not proven to be ours stays (X8)
            # First the table, as long as it is written whose it is: no adder uses it yet, and an
            # executor that comes back to this line later finds none of this number.
            env.remove_table(self.queue_id, new.number)
            if env.replace(self.queue_id, raw, msgspec.structs.replace(known, successor=None)):
                return

    def _is_ours(self, successor: Successor, operation: str) -> bool:
        return _is_of(successor, operation) and successor.buckets == self.buckets

    def _is_left(self, successor: Successor) -> bool:
        """Say whether an operation that is gone has left these buckets to us."""
        return successor.operation == self.after and successor.buckets == self.buckets

    def _is_named(self, known: Definition, number: int) -> bool:
        if known.number == number:
            return True  # another executor of this operation has come further
        return known.successor is not None and known.successor.number == number


def let_go(env: RebucketTools, queue_id: str, made: int, operation: str) -> None:
    """Open a queue for adders again that an operation has closed which is not under way (X8).

    Buckets that have taken entries, or that another operation has taken over, stay.
    """
    while (found := env.read(queue_id, made)) is not None:
        raw, known = found
        new = known.successor
        if new is None or new.is_open or new.operation != operation:
            return
        # First the definition: the number is given to nobody any more, whereas now another
        # operation may take it over at any moment, and fill its table.
        if env.replace(queue_id, raw, msgspec.structs.replace(known, successor=None)):
            env.remove_table(queue_id, new.number)
            return


@step(version=2, namespace="export_rebucket", retry=_WEATHER)
class Settle(_QueueStep):
    """Let no commit into the old table be possible any more."""

    queue_id: str
    made: int
    old: int
    first_table: str = ""

    def do(self, tx: StepContext, env: RebucketTools) -> Any:
        """Wait before each fence: an executor that takes this step again waits again."""
        tx.progress("waiting until all who add know of it")
        env.sleep(SETTLE_S)
        return super().do(tx, env)

    def act(self, env: RebucketTools, raw: bytes, known: Definition) -> Any:
        """Fence the old table."""
        del raw
        if known.number == self.old:
            env.tm.fence(table_name(self.queue_id, self.old))
        return Drain(self.queue_id, self.made, self.old, self.first_table)


@step(version=2, namespace="export_rebucket", pivot=True, retry=_WEATHER)
class Drain(_QueueStep):
    """Let adders into the new table, and wait until the old buckets are empty."""

    queue_id: str
    made: int
    old: int
    first_table: str = ""

    def act(self, env: RebucketTools, raw: bytes, known: Definition) -> Any:
        """Open the new table, and move on once exporters have done their work."""
        if known.number == self.old and known.successor and not known.successor.is_open:
            opened = msgspec.structs.replace(known.successor, is_open=True)
            if not env.replace(
                self.queue_id, raw, msgspec.structs.replace(known, successor=opened)
            ):
                return self.again()
        return Switch(self.queue_id, self.made, self.old, self.first_table)


@step(version=2, namespace="export_rebucket", retry=_WEATHER)
class Switch(_QueueStep):
    """Move what is dead, and let exporters into the new buckets."""

    queue_id: str
    made: int
    old: int
    first_table: str = ""

    def may_begin(self, tx: StepContext, env: RebucketTools) -> Defer | None:
        """Wait until exporters have emptied the old buckets (X7)."""
        found = env.read(self.queue_id, self.made)
        if found is None or found[1].number != self.old or not _is_of(found[1].successor, tx.id):
            return None
        left = waiting(env.tm, self.queue_id, found[1])
        return Defer(LOOK_EVERY_S, left) if left else None

    def act(self, env: RebucketTools, raw: bytes, known: Definition) -> Any:
        """Move dead letters, and let exporters into the new buckets, if the old are empty still."""
        if known.number == self.old and known.successor is not None:
            if waiting(env.tm, self.queue_id, known):
                reached("export.waits_again", "X7")
                return self.again()  # dead letters were asked to be tried again
            # Behind that look dead letters may be asked for again, and an exporter of the old
            # buckets may have one in hand.
            if move_dead(env.tm, self.queue_id, known, known.successor):
                return self.again()
            begin_epochs(env.tm, self.queue_id, known, known.successor)
            new = msgspec.structs.replace(
                known,
                number=known.successor.number,
                last=known.next_number() - 1,
                buckets=known.successor.buckets,
                successor=None,
            )
            if not env.replace(self.queue_id, raw, new):
                return self.again()
        return Sweep(self.queue_id, self.made, self.old, self.first_table)


@step(version=2, namespace="export_rebucket", retry=_WEATHER)
class Sweep(_RebucketStep):
    """Remove what is left of the old buckets."""

    queue_id: str
    made: int
    old: int
    first_table: str = ""

    def do(self, tx: StepContext, env: RebucketTools) -> Any:
        """Remove the table, and the facts about it."""
        del tx
        found = env.read(self.queue_id, self.made)
        if found is not None and found[1].number == self.old:
            raise ExportError(
                f"the table {table_name(self.queue_id, self.old)} is that of the queue "
                f"{self.queue_id!r}, and is not removed; give this operation up with `omidpy fate "
                "delete`"
            )
        env.remove_table(self.queue_id, self.old)
        places, control = env.places(self.queue_id), env.tm.session.control
        facts = [row for row, _ in control.scan(places.facts(self.old))]
        if rest := [row for row in facts if row != places.gauge(self.made)]:
            control.forget(rest)
        return Done("switched")


for _cls in (Prepare, Settle, Drain, Switch, Sweep):
    # What an older omidpy has stored is taken as it would be now: its steps had the same fields,
    # and an undo that removed whatever table had the next number.
    step(
        version=1,
        name=_cls.__name__,
        namespace="export_rebucket",
        pivot=_cls.spec.is_pivot,
        retry=_cls.spec.retry,
    )(type(f"{_cls.__name__}1", (_cls,), {"__doc__": _cls.__doc__}))


def rebucket(
    tm: TransactionManager, places: Places, buckets: int, *, wait_s: float | None
) -> Definition:
    """Give a queue so many buckets; return its definition then.

    Raises:
        NoSuchQueue: it was dropped.
        ExportError: another process gives it another number, or has done so, or exporters have not
            emptied the old buckets after `wait_s`: the same call goes on.
    """
    known = making.find(tm, places)
    if known.successor is None and known.buckets == buckets:
        return known
    operations = TableFateStore(tm.store)
    with Fate(RebucketTools(tm), operations, {KIND: 1}) as fate:
        handle = _submitted(fate, places, known, buckets)
        try:
            result = handle.result(wait_s)
        except FateError as error:
            raise ExportError(
                f"the queue {places.queue_id!r} has not got {buckets} buckets yet: {error}; "
                "exporters must empty the old ones first, and the same call goes on with it"
            ) from error
    if result == DROPPED:
        raise NoSuchQueue(f"the export queue {places.queue_id!r} was dropped meanwhile")
    now = making.find(tm, places)
    if result == REPLACED and (now.buckets, now.successor) != (buckets, None):
        next_ones = "" if now.successor is None else f", and is getting {now.successor.buckets}"
        raise ExportError(
            f"another operation gives the queue {places.queue_id!r} buckets: it has {now.buckets}"
            f"{next_ones}, not {buckets}; look again, and ask again"
        )
    return now


def _submitted(fate: Fate, places: Places, known: Definition, buckets: int) -> OperationHandle:
    """Return the operation that gives a queue so many buckets: one under way, or a new one.

    Raises:
        ExportError: another one is under way.
    """
    waiting = known.successor
    after = "" if waiting is None else waiting.operation
    under_way = fate.store.read(parse_id(after)) if after else None
    if waiting is not None and waiting.buckets != buckets:
        by = f" by operation {after}" if after else ""
        raise ExportError(
            f"the queue {places.queue_id!r} is getting {waiting.buckets} buckets{by}; let that be "
            f"finished (`omidpy export rebucket {places.queue_id} --buckets {waiting.buckets}`), "
            "and ask again"
        )
    if under_way is not None and not under_way.is_finished:
        return OperationHandle(fate, under_way)
    # `made` and `number` are given once: they name this queue, and these buckets of it (X8).
    key = (KIND, places.first_table, str(known.made), str(known.number), str(buckets))
    first = Prepare(places.queue_id, known.made, known.number, buckets, after, places.first_table)
    return fate.submit(KIND, first, key=key)
