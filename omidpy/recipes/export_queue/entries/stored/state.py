"""What is kept of a queue beside its entries: its definition, and how far each bucket has come.

JSON facts in the control table, each replaced by compare-and-set and none of them transactional, so
that they can be read while the oracle is down:

    export/<table>                               the definition
    export/<table>/<number>/<generation>/<bucket>  who exports the bucket, and how far it has come
    export/<table>/<number>/runner/<worker>        a process that exports
    export/<table>/<number>/gauge                  how much waits, as it was last measured
    export/<table>/<number>/purged                 below which commits what is kept may be gone: a
                                                   number that only rises

`<table>` is `OMIDPY_EXPORT_<ID>`, as the first table of the queue is called.  A definition stays
when its queue is dropped, with the largest number that was ever given: the next queue of this id
gets the next number, and a table and rows of its own; so does a queue that gets other buckets, and
one that is to get them and never does.  So an adder that still has the old definition in memory
writes to a table that is not there, and never beside the buckets of the new one.

    X2 (one-owner)  a bucket's row changes only as its last reader saw it; an owner that takes a
                    bucket raises its epoch, so that no earlier owner moves the cursor again
    X9 (owner-removes)  what an owner has delivered is removed only once its row of the bucket was
                        changed by it, which counts the entries and moves the cursor: with that
                        change on one file, behind it elsewhere
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from omidpy.base.documents import Natural, Positive
from omidpy.base.tables import EXPORT_TABLE_PREFIX
from omidpy.errors import CorruptCell, UsageError
from omidpy.facts.control import ControlTable, decode_document, encode_document
from omidpy.recipes.export_queue.entries.ordering import Position

if TYPE_CHECKING:
    from omidpy.facts.tables.catalog import Catalog
    from omidpy.storage.base import RowMutation

DEFINITION_AGE_S: Final = 2.0
"""How old may a definition be by which entries are added?"""

ROW_PREFIX: Final = b"export/"
GENERATION: Final = 0

EPOCH_BITS: Final = 32
"""Of a fence: so many changes of hands a bucket can see.  With 2**21 tables of one id it is still a
number that JSON readers have exactly."""

_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


class Successor(msgspec.Struct, frozen=True, kw_only=True):
    """The buckets that a queue is about to have (`upkeep/rebucketing.py`)."""

    number: Positive
    """Of their table, which no other one of this id ever has."""
    buckets: Positive
    operation: str = ""
    """The id of the operation that makes them, and that alone may undo it (X8); empty where an
    omidpy has written it that did not say so."""
    is_open: bool = False
    """Whether entries are added to them; until then none are added at all."""


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue is; the same for every client that opens it."""

    number: Positive
    """Of its table: none of this id is given twice."""
    last: Natural = 0
    """The largest number that was given to a table of this id, whatever has become of it."""
    made: Natural = 0
    """The number that the queue was made with: what tells it from others of its id."""
    is_open: bool
    """False: it was dropped."""
    buckets: Positive
    codec: str
    keep_s: float | None = None
    """How long what was delivered can be replayed; None: it is deleted at once."""
    max_entries: Natural | None = None
    max_lag_s: float | None = None
    layout: str = "log"
    successor: Successor | None = None
    """The buckets that it is about to have."""
    is_paused: bool = False
    """Whether no worker exports it, until an operator says otherwise."""
    replays: Natural = 0
    """How often it was asked for what was delivered: who is about to switch to other buckets sees
    by it that there is something in the old ones again."""
    incarnation: str = ""
    """What no other queue has, of whichever store; empty where an older omidpy has made it."""

    def settings(self) -> dict[str, object]:
        """Return what its maker has chosen."""
        chosen = msgspec.structs.asdict(self)
        for kept in (
            "number",
            "last",
            "made",
            "is_open",
            "successor",
            "is_paused",
            "replays",
            "incarnation",
        ):
            del chosen[kept]
        return chosen

    def incarnation_of_table(self) -> str:
        """Return what tells its table from every other one, to a receiver of several stores."""
        return f"{self.incarnation or 'unnamed'}.{self.number}"

    def next_number(self) -> int:
        """Return a number that no table of this id ever had.

        A name of a table is then one table for ever: who comes back after a pause, to make it or to
        remove it, meets no later one (X8).
        """
        waiting = 0 if self.successor is None else self.successor.number
        return max(self.number, self.last, waiting) + 1

    def of_adders(self) -> Definition | None:
        """Return the queue as entries are added to it; None: not now."""
        new = self.successor
        if new is None:
            return self
        if not new.is_open:
            return None
        return msgspec.structs.replace(self, number=new.number, buckets=new.buckets, successor=None)


class BucketState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a bucket has come, and in whose hands it is."""

    epoch: Natural = 0
    """How often it changed hands: what `fence_of` makes a fence of."""
    owner: str | None = None
    """The worker (`life/members.py`) that exports it."""
    cursor_ts: Natural = 0
    """Commit timestamp of the last entry that was delivered."""
    cursor_ordinal: str = ""
    """And its ordinal, in hexadecimal."""
    scan_from: Natural = 0
    """No entry of a transaction that began before this is left to deliver."""
    exported: Natural = 0
    """How many entries were delivered, repetitions not counted: changed with the cursor."""
    replay_to: Natural = 0
    """Up to which commit timestamp what is kept of dead letters is to be delivered again; the
    cursor has passed it where it is not."""
    stopped: str = ""
    """Why it goes no further; empty if it does."""
    waits: Natural = 0
    """How many entries wait of what was committed until `counted_ts` (`counting.py`)."""
    oldest_ts: Natural = 0
    """When the first of them was committed; 0: none waits."""
    counted_ts: Natural = 0
    """0: it was never counted."""
    dead: Natural = 0
    """How many dead letters there are, as the last look has shown."""
    turn: Natural = 0
    """How often it was set back for a replay."""
    receiver: str = ""
    """Who keeps a mark of it (`marks.py`), if that one may forget it."""
    is_unsure: bool = False
    """Whether an owner has died or failed, so that entries behind the cursor may be delivered."""
    is_torn: bool = False
    """Whether transactions of an owner may be under way, out of whose hands it was taken, or who
    gave it back without an answer to one."""

    @property
    def cursor(self) -> Position:
        """The position of the last entry that was delivered."""
        return Position(self.cursor_ts, bytes.fromhex(self.cursor_ordinal))


def next_epoch(epoch: int, *, wall_ms: int) -> int:
    """Return the epoch of the next owner of a bucket, which no receiver has heard of.

    A store that was restored from a backup has forgotten owners, and a receiver that keeps the
    largest fence would refuse all new ones: so it is no less than the seconds since 1970, up to
    what leaves a quarter of the numbers to a clock that was wrong once.
    """
    return max(epoch + 1, min(wall_ms // 1000, 3 << (EPOCH_BITS - 2)))


def fence_of(number: int, epoch: int) -> int:
    """Return what grows with each owner of a bucket, in whichever table of a queue's id that is.

    A receiver keeps the largest fence by queue and bucket, and the queue of the same id that is
    made when one was dropped must not begin below it, as its entries would be refused
    (`docs/decisions/0048`).
    """
    return ((number - 1) << EPOCH_BITS) + epoch


class Gauge(msgspec.Struct, frozen=True):
    """How much waits in a queue, as it was measured last."""

    entries: Natural
    oldest_ts: Natural | None
    measured_ts: Natural


def check_id(queue_id: object) -> str:
    """Return an id that a queue can have.

    Raises:
        UsageError: it can not.
    """
    if not isinstance(queue_id, str):
        raise TypeError(f"the id of a queue is str, not {type(queue_id).__name__}: {queue_id!r}")
    if not _ID.fullmatch(queue_id):
        raise UsageError(
            f"the id of a queue, {queue_id!r}, must be 1 to 64 letters, digits, '_' and '-', not "
            "starting with '-': it becomes part of a table's name"
        )
    return queue_id


class Places(NamedTuple):
    """Where the queue of an id is kept."""

    queue_id: str
    first_table: str
    """The name, in the store, of the first table of the id."""

    @classmethod
    def of(cls, catalog: Catalog, queue_id: str) -> Places:
        """Return the places of an id among the tables of one manager."""
        return cls(queue_id, catalog.full_name(EXPORT_TABLE_PREFIX + check_id(queue_id)))

    def table(self, number: int) -> str:
        """Return the name, in the store, of the table of this number."""
        return self.first_table + _suffix(number)

    def row(self) -> bytes:
        """Return the row of the definition."""
        return ROW_PREFIX + self.first_table.encode()

    def facts(self, number: int) -> bytes:
        """Return what the rows of all other facts about a queue begin with."""
        return self.row() + b"/%d/" % number

    def buckets(self, number: int) -> bytes:
        """Return what the rows of its buckets begin with."""
        return self.facts(number) + b"%d/" % GENERATION

    def bucket(self, number: int, bucket: int) -> bytes:
        """Return the row of a bucket."""
        return self.buckets(number) + b"%05d" % bucket

    def runners(self, number: int) -> bytes:
        """Return what the rows of processes that export begin with."""
        return self.facts(number) + b"runner/"

    def gauge(self, number: int) -> bytes:
        """Return the row of the gauge."""
        return self.facts(number) + b"gauge"

    def purged(self, number: int) -> bytes:
        """Return the row of what was purged of what is kept."""
        return self.facts(number) + b"purged"


def table_name(queue_id: str, number: int) -> str:
    """Return the name of a queue's table, as a manager knows it."""
    return f"{EXPORT_TABLE_PREFIX}{queue_id}" + _suffix(number)


def _suffix(number: int) -> str:
    return f".{number}" if number > 1 else ""


class BucketRows:
    """The rows of the buckets of one queue.  Safe to share among threads."""

    def __init__(self, control: ControlTable, places: Places, definition: Definition) -> None:
        self._control = control
        self._places = places
        self._count = definition.buckets
        self.number = definition.number
        """Of their table."""
        self.is_atomic = control.is_atomic
        """Whether what is removed goes in one change with the state."""

    def read(self) -> list[Raw]:
        """Return the state of every bucket; see `Raw.problem`.  Cost: 1 get."""
        rows = tuple(self._places.bucket(self.number, bucket) for bucket in range(self._count))
        found = self._control.read_many(rows)
        return [
            self._shown(bucket, row, raw)
            for bucket, (row, raw) in enumerate(zip(rows, found, strict=True))
        ]

    def read_whole(self) -> list[Raw]:
        """Return the state of every bucket.

        Raises:
            CorruptCell: that of one cannot be read.
        """
        found = self.read()
        if problem := next((raw.problem for raw in found if raw.problem), ""):
            raise CorruptCell(problem)
        return found

    def _shown(self, bucket: int, row: bytes, raw: bytes | None) -> Raw:
        if raw is None:
            return Raw(bucket, raw, BucketState())
        try:
            return Raw(bucket, raw, _decoded(raw, row))
        except CorruptCell as error:
            problem = (
                f"the state of bucket {bucket} cannot be read, and nobody exports it before "
                f"`omidpy export repair {self._places.queue_id}`: {error}"
            )
            return Raw(bucket, raw, BucketState(stopped=problem), problem)

    def replace(
        self, old: Raw, state: BucketState, removing: Sequence[RowMutation] = ()
    ) -> Raw | None:
        """Replace a state that is as it was read; None: another owner has changed it.

        Args:
            old: As it was read.
            state: What it becomes.
            removing: Changes of the queue's table, made only if the state was replaced: a refusal
                is told by an owner that has replaced us, and nothing irreversible follows it (X9).
        """
        row, new = self._places.bucket(self.number, old.bucket), encode_document(state)
        if removing:
            table = self._places.table(self.number)
            is_ours = self._control.replace_and(row, old.raw, new, {table: removing})
        else:
            is_ours = self._control.replace_own(row, old.raw, new)
        return Raw(old.bucket, new, state) if is_ours else None

    def is_as(self, raw: Raw) -> bool:
        """Say whether a state is still as it was read.  Cost: 1 get."""
        return self._control.read(self._places.bucket(self.number, raw.bucket)) == raw.raw


class Raw(NamedTuple):
    """The state of a bucket, with the bytes that a change of it expects."""

    bucket: int
    raw: bytes | None
    state: BucketState
    problem: str = ""
    """Why `state` is not that of the bucket: it cannot be read, and is an obstacle of this bucket
    alone."""


def _decoded(raw: bytes, row: bytes) -> BucketState:
    state = decode_document(raw, BucketState, row=row)
    try:
        bytes.fromhex(state.cursor_ordinal)
    except ValueError as error:
        raise CorruptCell(f"{row!r} has the ordinal {state.cursor_ordinal!r}: {error}") from error
    return state
