"""What the transactions of one manager share: store and oracle, and what stands around them.

It stands below `Transaction` and `Worker`, which are made with it, and knows neither, so that
nothing down here points up to the manager.  It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from omidpy.base.callers.blocks import Around
from omidpy.base.callers.runners import Runner
from omidpy.base.cells import table_id
from omidpy.base.telemetry.client_metrics import Tally
from omidpy.base.timing.clock import Clock
from omidpy.commit.outcome import OutcomeFinder
from omidpy.commit.post_commit import (
    IN_A_FILE,
    ON_A_CLUSTER,
    AsyncPostCommitter,
    Completer,
    NoPostCommitter,
    PostCommitter,
    SyncPostCommitter,
)
from omidpy.errors import NoSuchQueue, UsageError
from omidpy.facts.commit_table import CommitTable
from omidpy.facts.control import ControlTable
from omidpy.facts.tables.catalog import Catalog, NewTable
from omidpy.facts.watermarks import Watermarks
from omidpy.model import Timestamp, TransactionStatus
from omidpy.oracle.base import Oracle, WritesCells
from omidpy.reading.resolution import CellResolver
from omidpy.reading.snapshot import SnapshotReader
from omidpy.storage.base import Store
from omidpy.tx.publishing import Publishing
from omidpy.tx.writes.ordinals import Adding

if TYPE_CHECKING:
    from omidpy.base.telemetry.tracing import Tracing

POST_COMMIT_MODES: Final = ("async", "sync", "none")


class Joinable(Protocol):
    """A transaction, as those see it who may join it."""

    start_ts: Timestamp
    runner: Runner
    """Who may join it."""

    @property
    def status(self) -> TransactionStatus:
        """Whether it still runs."""

    @property
    def is_in_block(self) -> bool:
        """Whether the block that entered it still runs, however that may have ended."""


class Openable(Protocol):
    """An export queue, as a transaction sees it that is asked for one."""

    def within(self, writer: Any) -> Adding:
        """Return it for one transaction, or one worker of it."""
        ...

    def exists(self) -> bool:
        """Say whether it has not been dropped, or only a moment ago."""
        ...


class Session:
    """One store with its oracle, as one manager uses them.  Safe to share among threads.

    Attributes:
        store: Where the tables are.
        oracle: The oracle of that store.
        tso: Its address, for those who connect from other processes; None: it has none.
        clock: For ages and retry budgets.
        on_step: Called with the name of each step of the commit protocol.
        generation: How many forks lie between the process that made it and this one.
        catalog: The tables.
        control: Facts about the store.
        watermarks: What compactions have recorded.
        writer: The oracle, where it may write the cells of a commit with its decision; or None.
        reader: Opens snapshots.
        outcomes: Finds out what became of a transaction.
        post_committer: Writes shadow cells.
        tally: Counts.
        tracing: Makes spans; None: none are made.
    """

    def __init__(
        self,
        store: Store,
        oracle: Oracle,
        *,
        clock: Clock,
        catalog: Catalog,
        post_commit: str,
        on_step: Callable[[str], None] | None = None,
        open_queue: Callable[[str], Openable] | None = None,
        publishing: Callable[[], Publishing] | None = None,
        tso: str | None = None,
    ) -> None:
        """Join them; `post_commit` is one of `POST_COMMIT_MODES`.

        Export queues and publishers stand above the manager: who makes it says how they are had.
        """
        if post_commit not in POST_COMMIT_MODES:
            raise UsageError(f"post_commit={post_commit!r} is none of {POST_COMMIT_MODES}")
        self.store = store
        self.oracle = oracle
        self.tso = tso
        self.clock = clock
        self.catalog = catalog
        self.on_step: Callable[[str], None] = on_step or _no_step
        self.generation = 0
        self.tally = Tally()
        self.tracing: Tracing | None = None
        self.control = ControlTable(store)
        self.watermarks = Watermarks(self.control)
        commit_table = CommitTable(store)
        self.outcomes = OutcomeFinder(store, commit_table, oracle, clock)
        self._completer = Completer(store, commit_table, self._reach_step)
        self.post_committer: PostCommitter = _post_committer(
            post_commit, self._completer, is_remote=store.capabilities.remote
        )
        # Where shadow cells are left to others, these would find none to write.
        may_write = post_commit != "none" and isinstance(oracle, WritesCells)
        self.writer: WritesCells | None = cast("WritesCells", oracle) if may_write else None
        self.reader = SnapshotReader(
            store,
            CellResolver(store, commit_table),
            self.watermarks,
            clock,
            owes=self.post_committer.owes,
            on_healed=self.tally.healed,
            run_soon=(
                self.post_committer.run_soon
                if isinstance(self.post_committer, AsyncPostCommitter)
                else None
            ),
        )
        self.open_queue: Callable[[str], Openable] = open_queue or _no_queue
        """Finds an export queue by its id."""
        self.publishing: Callable[[], Publishing] = publishing or _no_publishing
        """Publishes to object stores."""
        self._around: Around[Joinable] = Around(lambda tx: tx.is_in_block)

    def trace_by(self, tracing: Tracing | None) -> None:
        """Let transactions make spans from now on; None: no more."""
        self.tracing = self.reader.tracing = self._completer.tracing = tracing

    # -- tables --------------------------------------------------------------------------------

    def make_table(self, table: NewTable) -> None:
        """Make a table that `Catalog.plan` has returned, and abort who wrote an earlier one.

        Raises:
            TableExists: nothing was changed.
        """
        self.catalog.check_absent(table.schema.name)
        # While there is none: the writers of the last one began before, and what begins now can
        # write this one alone.
        self.oracle.fence(table_id(table.schema.name))
        self.catalog.create(table)

    # -- blocks --------------------------------------------------------------------------------

    def push_ambient(self, transaction: Joinable) -> None:
        """Let `transactional` functions called from here on join `transaction`."""
        self._around.enter(transaction)

    def ambient(self) -> tuple[Joinable, ...]:
        """Return what can be joined, without blocks that an exception ended at their very end."""
        return self._around.found()

    def pop_ambient(self, transaction: Joinable) -> None:
        """End what `push_ambient` began."""
        self._around.leave(lambda tx: tx is transaction)

    # -- fork ----------------------------------------------------------------------------------

    def after_fork_in_child(self) -> None:
        """Forget what is the parent's to finish."""
        self.generation += 1
        self.tally.reset()
        self.reader.resolver.cache.forget()
        if isinstance(self.post_committer, AsyncPostCommitter):
            self.post_committer.after_fork_in_child()

    def _reach_step(self, step: str) -> None:
        self.on_step(step)


def _no_queue(queue_id: str) -> Openable:
    """Find none: the manager was given no way to find one."""
    raise NoSuchQueue(
        f"this manager can open no export queue, nor {queue_id!r}; make it by omidpy.connect()"
    )


def _no_publishing() -> Publishing:
    """Find none: the manager was given none."""
    raise UsageError("this manager cannot publish; make it by omidpy.connect()")


def _no_step(_: str) -> None:
    """Let every step pass."""


def _post_committer(mode: str, completer: Completer, *, is_remote: bool) -> PostCommitter:
    if mode == "sync":
        return SyncPostCommitter(completer)
    if mode == "async":
        return AsyncPostCommitter(completer, ON_A_CLUSTER if is_remote else IN_A_FILE)
    return NoPostCommitter()
