"""What an exporter is: the code that hands entries to another system.

    class Counts(Exporter):
        def export(self, batch):
            for entry in batch:
                self.index.put(entry.key, entry.value, version=entry.seq)

What has been handed to `export` counts as delivered once it returns: it must be durable by then.
Until that was noted the same entries come again, after a crash from another process; so a receiver
keeps, for each key, the largest `seq` that it has seen, and refuses smaller ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

from omidpy.base.words.arguments import is_unrun, runs_later
from omidpy.errors import ConfigError

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.marks import Mark, Share
    from omidpy.tx.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a queue.

    Attributes:
        key: As it was added.
        value: As it was added, decoded by the queue's codec.
        commit_ts: When its transaction committed.
        ordinal: Its place among the entries of its transaction; it may exceed 64 bits.
        start_ts: When its transaction began: its identity.
        headers: As they were added.
        attempt: 1, or more where it has failed before.
    """

    key: bytes
    value: Any
    commit_ts: int
    ordinal: int
    start_ts: int
    headers: Mapping[str, str]
    attempt: int = 1

    @property
    def seq(self) -> tuple[int, int]:
        """What grows from entry to entry of a key, in the order of delivery."""
        return self.commit_ts, self.ordinal

    @property
    def id(self) -> str:
        """What no other entry of the queue has: the same each time it is delivered."""
        return f"{self.start_ts}-{self.ordinal}"


class Batch(Sequence[Entry]):
    """Entries of one bucket, by `seq`.

    Attributes:
        queue: The id of the queue.
        bucket: The number of the bucket.
        fence: Grows with each owner of the bucket, also when a queue of this id is dropped and made
            again: up to 64 bits.  A receiver that keeps the largest one of each bucket, and
            refuses smaller ones, is safe from an owner that was paused and has lost the bucket.
    """

    def __init__(self, entries: Sequence[Entry], *, queue: str, bucket: int, fence: int) -> None:
        self._entries = tuple(entries)
        self.queue = queue
        self.bucket = bucket
        self.fence = fence

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Entry, ...]: ...

    def __getitem__(self, index: int | slice) -> Entry | tuple[Entry, ...]:
        """Return an entry, or some."""
        return self._entries[index]

    def __len__(self) -> int:
        """Return how many there are: one at least."""
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        """Yield them by `seq`."""
        return iter(self._entries)

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} from bucket {self.bucket} of {self.queue!r}>"


class Retry(Exception):
    """Raised by an exporter whose system cannot take anything now: the batch comes again.

    No entry is at fault, so that none is ever set aside for it.
    """

    def __init__(self, message: str = "", *, after: float = 1.0) -> None:
        """Ask to be called again after `after` seconds."""
        super().__init__(message or f"the receiver asks for {after:g} s")
        self.after_s = after


class Refused(Retry):
    """Raised by an exporter whose system refuses whatever comes: a wrong password, no such topic.

    The batch comes again, and no entry is at fault.  But where nothing else is heard for a while
    the exporter ends with an error, since only a change of its settings will help.
    """

    def __init__(self, message: str = "", *, after: float | None = None) -> None:
        """Ask to be called again after `after` seconds; None: after longer and longer pauses."""
        super().__init__(message or "the receiver refuses whatever comes", after=after or 0.0)
        self.has_pause = after is not None


class Poison(Exception):
    """Raised by an exporter for an entry that it can never deliver: it is set aside at once.

    The others of the batch come again, without it.
    """

    def __init__(self, entry: Entry, reason: str = "") -> None:
        """Name the entry, and why."""
        super().__init__(reason or "the exporter refuses it")
        self.entry = entry


class Deposed(Exception):
    """Raised by an exporter whose receiver has heard of a later owner of the bucket.

    It is no error: the bucket is looked at, and its owner goes on.  Where that is the same one all
    the same, as often as this comes, its exporter ends as after `Refused`.
    """


class Exporter:
    """Delivers entries.  One object serves all buckets, from several threads at once."""

    def open(self) -> None:
        """Get ready, before the first batch."""

    def export(self, batch: Batch) -> None:
        """Deliver a batch: all of it is durable when this returns.

        Raises:
            Retry, OSError: the other system cannot be reached; the batch comes again.
            Refused, ConfigError: it refuses whatever comes; in the end the exporter stops.
            Deposed: it has heard of a later owner; nothing is removed, and the bucket is looked at.
            Poison: one entry can never be delivered.
            Exception: something else failed.  The batch comes again in smaller pieces, until one
                entry alone has failed so often that it counts as poison; but where several do, and
                nothing was taken meanwhile, the exporter stops.
        """
        raise NotImplementedError(f"{type(self).__name__} has no export(batch)")

    def close(self) -> None:
        """Give back what `open` took."""


class TransactionalExporter(Exporter):
    """Delivers into tables of the same store, exactly once."""

    def export_within(self, tx: Transaction, batch: Batch) -> None:
        """Write what follows from a batch, in the transaction that removes it from the queue."""
        raise NotImplementedError(f"{type(self).__name__} has no export_within(tx, batch)")


class ExactExporter(Exporter):
    """Delivers exactly once, into a receiver that keeps marks together with entries.

        take_over       once by each owner of a bucket, and again after every failure
        keep_first      a mark alone, where there was none, if marks can be forgotten
        export_marked   entries and the mark, both or neither

    `export` delivers at least once, where no mark can be kept: in tasks of Spark, and of queues of
    the layout `fluo`.
    """

    @property
    def is_exact(self) -> bool:
        """Whether marks are kept; if not, all goes to `export`."""
        return True

    @property
    def needs_marks(self) -> bool:
        """Whether a batch that comes twice shows; a queue that has no order of time is refused."""
        return True

    @property
    def receiver(self) -> str:
        """What is at the other end, where it may forget its marks; empty: it never does."""
        return ""

    def take_over(self, share: Share) -> Mark | None:
        """Make the tools of every earlier owner of a bucket useless, and see how far they came.

        What an earlier owner has under way is decided when this returns, and nothing that it does
        from then on has any effect.

        Returns:
            The mark; None: there is none yet.

        Raises:
            Deposed: there is a later owner.
        """
        raise NotImplementedError(f"{type(self).__name__} has no take_over(share)")

    def keep_first(self, share: Share, mark: Mark) -> bool:
        """Keep a mark alone, durably, where `take_over` has found none, before anything is sent.

        For receivers that may forget their marks (`receiver`): behind this, none means that it was
        forgotten.  It is called only where no mark is missed, so that `take_over` must not do the
        same: who looked once more would find a mark, and would deliver what the lost one covered.

        Returns:
            Whether one is kept now; the default keeps none.

        Raises:
            Deposed: there is a later owner; perhaps it was kept all the same.
            Exception: as `export`; and perhaps it was kept all the same.
        """
        del share, mark
        return False

    def export_marked(self, share: Share, batch: Batch, mark: Mark) -> None:
        """Deliver a batch and keep a mark, durably, both or neither.

        Raises:
            Deposed: there is a later owner; perhaps both were kept all the same.
            Exception: as `export`; and perhaps both were kept all the same.
        """
        raise NotImplementedError(f"{type(self).__name__} has no export_marked(...)")

    def is_undone(self, share: Share) -> bool:
        """Say whether the last `export_marked`, which has failed, has kept nothing, and never will.

        Asked right behind that.  Where it is not certain, which is the default, a mark that is gone
        when the bucket is taken over again is missed.
        """
        del share
        return False


def promise_of(exporter: Exporter) -> str:
    """Say how often an entry is delivered: `exactly once`, or `at least once`."""
    is_exact = isinstance(exporter, TransactionalExporter) or (
        isinstance(exporter, ExactExporter) and exporter.is_exact
    )
    return "exactly once" if is_exact else "at least once"


class _Function(Exporter):
    """A function that takes batches."""

    def __init__(self, function: Callable[[Batch], object]) -> None:
        self._function = function

    def export(self, batch: Batch) -> None:
        """Hand the batch to the function.

        Raises:
            ConfigError: it has done nothing with it.
        """
        if is_unrun(returned := self._function(batch)):
            raise ConfigError(
                f"the exporter {self._function!r:.80} returned {returned!r:.80}, which nobody goes "
                "on with, so that nothing was delivered; let it be a plain function"
            )


_METHODS: Final = (
    "open",
    "export",
    "close",
    "export_within",
    "take_over",
    "keep_first",
    "export_marked",
    "is_undone",
)

Exporting: TypeAlias = Exporter | Callable[[Batch], object]


def as_exporter(exporter: Exporting) -> Exporter:
    """Return an exporter, or a function, as an exporter.

    Raises:
        TypeError: it is neither; or an `async def` or a generator, by which nothing would be
            delivered, and all of it would count as that.
    """
    is_exporter = isinstance(exporter, Exporter)
    methods = [getattr(exporter, name, None) for name in _METHODS] if is_exporter else [exporter]
    for method in methods:
        if callable(method) and runs_later(method):
            raise TypeError(
                f"{method!r:.120} is an `async def` or a generator, which nobody goes on with; let "
                "an exporter be plain functions, which may call asyncio.run(...)"
            )
    if isinstance(exporter, Exporter):
        return exporter
    if not callable(exporter) or isinstance(exporter, type):
        raise TypeError(f"an exporter is an Exporter, or a function of batches, not {exporter!r}")
    return _Function(exporter)
