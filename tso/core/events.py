"""What the oracle's machine is told, and what it asks to be done.

Values only.  A shell (`serving/server.py`, `embedded.py`, a simulator) turns the world into events,
hands them to `machine.py`, and carries out the effects in the order in which they come.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import chain
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar, overload

from omidpy.base.commit_facts import CommitEntry
from omidpy.base.timing.ages import Sample
from omidpy.base.timing.clock import Clock
from omidpy.model import TableCells
from omidpy.wire.messages import (
    CommitRequest,
    CommitResponse,
    FenceRequest,
    FenceResponse,
    InvalidateRequest,
    InvalidateResponse,
    TimestampRequest,
    TimestampResponse,
)

Ticket = TypeVar("Ticket")
"""What a shell hands in with a request and gets back with its answer: a connection, a thread."""

Question: TypeAlias = TimestampRequest | CommitRequest | FenceRequest | InvalidateRequest
Answer: TypeAlias = TimestampResponse | CommitResponse | FenceResponse | InvalidateResponse


class Now(NamedTuple):
    """One reading of both clocks."""

    wall_ms: int
    monotonic_s: float
    boot: str = ""
    """Which run of the second clock it is; readings of another cannot be compared."""


_now: Final[Callable[[tuple[int, float, str]], Now]] = partial(tuple.__new__, Now)
"""Make one in C: it is done for every event."""


def now_by(clock: Clock) -> Now:
    """Read both of a clock's times."""
    return _now((clock.wall_ms(), clock.monotonic_s(), clock.boot))


# -- events ----------------------------------------------------------------------------------------


class Asked(NamedTuple, Generic[Ticket]):
    """Requests arrived, in this order."""

    now: Now
    requests: Sequence[tuple[Ticket, Question]]
    client: int = 0
    """The number of the one client that asked them all; 0 where it told none."""
    goes_on: bool = False
    """More of what the same client sent follows at once: nothing need leave before."""


class Flushed(NamedTuple):
    """The batch in flight is durable, all of it."""

    now: Now
    result: FlushResult


class Left(NamedTuple, Generic[Ticket]):
    """A client has no connection any more; it may come back."""

    now: Now
    ticket: Ticket
    client: int = 0


class Ticked(NamedTuple):
    """Time has passed, and nothing else happened."""

    now: Now


class Stopping(NamedTuple):
    """No more requests will come; finish what is under way and give the ceiling back."""

    now: Now


Event: TypeAlias = Asked[Ticket] | Left[Ticket] | Flushed | Ticked | Stopping


# -- effects ---------------------------------------------------------------------------------------


class Frames(NamedTuple):
    """Answers to several requests of one client, as they stand on the wire."""

    data: bytes
    answer_count: int


class Send(NamedTuple, Generic[Ticket]):
    """Send these answers, in this order."""

    answers: Sequence[tuple[Ticket, Answer | Frames]]


class Close(NamedTuple, Generic[Ticket]):
    """End the conversation of `ticket`: its request will get no answer."""

    ticket: Ticket
    reason: str


class Flush(NamedTuple, Generic[Ticket]):
    """Make a batch durable, then say `Flushed`.  At most one is under way."""

    batch: Batch[Ticket]


class Stopped(NamedTuple):
    """The last effect: everything is answered and durable."""


Effect: TypeAlias = Send[Ticket] | Close[Ticket] | Flush[Ticket] | Stopped


# -- batches ---------------------------------------------------------------------------------------


class Recall(Enum):
    """How an answer that must wait for its batch is found when the batch is durable."""

    COMMIT_FROM_MEMORY = 1
    COMMIT_FROM_TABLE = 2
    INVALIDATION_FROM_MEMORY = 3
    INVALIDATION_FROM_TABLE = 4
    INVALIDATION_PLANTED = 5
    COMMIT_UNLESS_IN_TABLE = 6
    REFUSED_UNLESS_IN_TABLE = 7


class Deferred(NamedTuple):
    """An answer about `start_ts` that is not known yet."""

    how: Recall
    start_ts: int
    request: CommitRequest | None = None
    """What is decided now if the table knows nothing of it."""
    client: int = 0
    """Whose request it is."""


class Commits(Sequence[tuple[int, int]]):
    """Pairs of start_ts and commit_ts, of which each is made when it is looked at.

    Runs bring them as bytes by the dozen, and a store that persists nothing never looks.
    """

    __slots__ = ("numbers",)

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        """Begin with some pairs."""
        self.numbers = array("q", chain.from_iterable(pairs))
        """The same, one behind the other; whether there are any costs least to ask of these."""

    def add(self, start_ts: int, commit_ts: int) -> None:
        """Add the start and the commit timestamp of a commit."""
        self.numbers.extend((start_ts, commit_ts))

    def add_bytes(self, entries: bytes | bytearray) -> None:
        """Add pairs as `Run.entries` returns them."""
        self.numbers.frombytes(entries)

    def __len__(self) -> int:
        return len(self.numbers) // 2

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.numbers[::2], self.numbers[1::2], strict=True)

    @overload
    def __getitem__(self, place: int) -> tuple[int, int]: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[tuple[int, int]]: ...

    def __getitem__(self, place: int | slice) -> tuple[int, int] | Sequence[tuple[int, int]]:
        return list(self)[place]

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, Commits) else other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return repr(list(self))


@dataclass(slots=True)
class Batch(Generic[Ticket]):
    """Decisions that become durable together, and the answers that wait for them."""

    commits: Commits = field(default_factory=Commits)
    """start_ts and commit_ts of each commit entry to write, unless an invalidation is there."""
    groups: list[tuple[int, int, TableCells]] = field(default_factory=list)
    """start_ts, commit_ts and cells of each commit that is written with its cells, and without an
    entry, unless an invalidation is there."""
    group_bytes: int = 0
    """How long those cells were on the wire."""
    invalidations: list[int] = field(default_factory=list)
    """start_ts of each transaction to invalidate, unless a commit is there."""
    lookups: list[int] = field(default_factory=list)
    """start_ts of each commit entry to read once the rest is durable."""
    ceiling: int | None = None
    """Set the durable ceiling to this."""
    low_watermark: int | None = None
    """Raise the durable low watermark to this, not before the commits are durable."""
    sample: Sample | None = None
    """Record this sample of the oracle's time, and let Omid's own low watermark row follow."""
    forgotten_samples: Sequence[int] = ()
    """`elapsed_ms` of each recorded sample to remove."""
    answers: list[tuple[Ticket, Answer | Deferred | Frames]] = field(default_factory=list)
    framed_count: int = 0
    """How many more answers `Frames` among them hold than there are `Frames`."""
    newest_ts: int = 0
    """The highest timestamp in `answers`: they may leave once the ceiling covers it."""
    may_be_invalidated: bool = True
    """Whether an invalidation that the oracle did not see may stand where a commit is written."""

    @property
    def answer_count(self) -> int:
        """How many answers wait."""
        return len(self.answers) + self.framed_count

    def has_decisions(self) -> bool:
        """Say whether the batch must be durable, or read from, before its answers leave."""
        return bool(self.commits.numbers or self.groups or self.invalidations or self.lookups)


@dataclass(frozen=True, slots=True)
class FlushResult:
    """What the store said to a batch."""

    refused: frozenset[int] = frozenset()
    """start_ts of each commit that was not written, because an invalidation stands."""
    entries: Mapping[int, CommitEntry] = field(default_factory=dict)
    """What the commit table says about the batch's `lookups` and `invalidations`."""
    prune_horizon: int = 0
    """Commit entries at or below it may be gone; read together with `entries`."""
    unwritable: frozenset[int] = frozenset()
    """Those of `refused` that were not because a table or family of their cells is gone."""


NOTHING_FOUND: Final = FlushResult()
