"""Begins transactions, makes tables, and answers what became of a transaction.

A manager joins a store and an oracle, which it takes by argument and never picks, in one
session.  It is shared by many threads.  What it adds is small: the retry loop, the ends of things,
and the way across `fork`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, partial, wraps
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    overload,
)

from omidpy.base.callers.alone import Alone
from omidpy.base.cells import table_id
from omidpy.base.schema.table_settings import settings_by_name
from omidpy.base.telemetry.client_metrics import ClientMetrics
from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.base.within import within
from omidpy.base.words.arguments import check_number, check_text
from omidpy.commit.post_commit import (
    PostCommitter,
)
from omidpy.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConfigError,
    NoSuchTable,
    OmidError,
    UsageError,
)
from omidpy.facts.commit_table import read_low_watermark
from omidpy.facts.tables.catalog import DEFAULT_CONFLICT_LEVEL, Catalog
from omidpy.model import (
    MAX_VERSION,
    Aborted,
    Change,
    Committed,
    Outcome,
    Timestamp,
    TransactionStatus,
    Undecided,
)
from omidpy.oracle.base import Oracle
from omidpy.reading.changes.feed import ChangeFeed
from omidpy.storage.address import server_command
from omidpy.storage.base import Store
from omidpy.tx.feeds import moment_timestamp, open_feed, open_watch
from omidpy.tx.frames.asked import DEFAULT_BATCH_ROWS, DEFAULT_KEY, Columns, KeyColumns
from omidpy.tx.keys import check_key, keyed, open_keys
from omidpy.tx.publishing import Publishing
from omidpy.tx.retry import Attempts
from omidpy.tx.session import Openable, Session
from omidpy.tx.transaction import Transaction, UsedKey
from omidpy.tx.transactional import (
    IN_A_CONTEXT_OF_ITS_OWN,
    Decorator,
    KeyedDecorator,
    Transactional,
    TransactionalMethod,
    elsewhere,
    transaction_position,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from omidpy.facts.holds import HeldSnapshot
    from omidpy.tx.parts.worker import Worker

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

DEFAULT_RETRY_BUDGET_S: Final = 30.0

_managers: weakref.WeakSet[TransactionManager] = weakref.WeakSet()

FindQueue: TypeAlias = "Callable[[TransactionManager, str], Openable]"
MakePublisher: TypeAlias = "Callable[[TransactionManager], Publishing]"


class TransactionManager(Alone):
    """Transactions over one store and one oracle.  Safe to share among threads.

    Use `omidpy.connect` to get one from addresses.
    """

    _instead = "hand on its addresses, and call omidpy.connect(URL, TSO) once in each process"

    def __init__(
        self,
        store: Store,
        oracle: Oracle,
        *,
        conflict_level: str = DEFAULT_CONFLICT_LEVEL,
        post_commit: str = "async",
        clock: Clock | None = None,
        on_step: Callable[[str], None] | None = None,
        is_oracle_here: bool = False,
        table_prefix: str = "",
        find_queue: FindQueue | None = None,
        make_publisher: MakePublisher | None = None,
        tso: str | None = None,
    ) -> None:
        """Join a store and an oracle; `close` closes both.

        Args:
            store: Where the tables are.
            oracle: The oracle of that store.
            conflict_level: `cell` or `row`, for tables made here; a table of the other level is
                refused.
            post_commit: When shadow cells are written: `async`, `sync` or `none`.
            clock: For ages and retry budgets.
            on_step: Called with the name of each step of the commit protocol, for fault injection.
            is_oracle_here: The oracle lives in this process, so that a forked child is refused.
            table_prefix: What the names of tables begin with in the store, and not here.
            find_queue: Finds the export queues of `tx.queue`; None finds none.
            make_publisher: Makes, once, what `tx.publish` and `tx.published` use; None has none.
            tso: The address of the oracle, for those who connect from other processes; None: it
                has none.
        """
        self.store = store
        self.oracle = oracle
        clock = clock or SystemClock()
        catalog = Catalog(store, clock, conflict_level=conflict_level, table_prefix=table_prefix)
        self.session = Session(
            store,
            oracle,
            clock=clock,
            catalog=catalog,
            post_commit=post_commit,
            on_step=on_step,
            open_queue=find_queue and partial(self._open_queue, find_queue),
            publishing=make_publisher and cache(partial(make_publisher, self)),
            tso=tso,
        )
        self._queues: dict[str, Openable] = {}
        self._is_oracle_here = is_oracle_here
        self._is_closed = False
        self._closed: list[Store | Oracle | PostCommitter] = []
        self._close_lock = threading.Lock()
        _managers.add(self)

    def __repr__(self) -> str:
        # Options of an address may name keys and users; where the store is, they do not say.
        where = self.store.url.partition("?")[0]
        return f"<TransactionManager of {where} with {self.oracle!r}>"

    # -- transactions --------------------------------------------------------------------------

    def begin(
        self,
        *,
        read_only: bool = False,
        hold_s: float | None = None,
        idempotency_key: bytes | None = None,
    ) -> Transaction:
        """Begin a transaction at a fresh snapshot, which holds every commit acknowledged so far.

        It is independent of every other one, also inside the block of one: it does not see what
        that has written, commits and rolls back by itself, and conflicts with it like a stranger.
        What is to be undone alone is a savepoint (`tx.savepoint()`); what is to join the one around
        it is a function decorated with `transactional`.

        Args:
            read_only: Refuse writes; the commit asks no oracle.
            hold_s: Keep age alone from aborting the transaction for so many seconds, or until it
                ends; where that is longer than its age, the oracle is told of a rollback.
            idempotency_key: 1 to 1024 bytes that name what it does: of all transactions with this
                key, in any process, one commits.  It is one that writes, even if nothing else.

        Raises:
            OracleUnavailable: no start timestamp could be had.
            AlreadyCommitted: a transaction with this key has; nothing is to be done.
            UsageError: the key is empty or too long, or the transaction read-only.

        Cost: 1 oracle round trip; with a key 1 get.
        """
        self._check_usable()
        if idempotency_key is None:
            return self._begin(read_only=read_only, hold_s=hold_s)
        check_key(idempotency_key)
        if read_only:
            raise UsageError(
                "a read-only transaction has no idempotency key, since nobody can tell that it was "
                "run; leave out one of the two"
            )
        open_keys(self.session)
        transaction = self._begin(read_only=False, hold_s=hold_s)
        try:
            transaction.use_key(idempotency_key)
        except BaseException:
            transaction.rollback()
            raise
        transaction.has_key = True
        return transaction

    def _begin(self, *, read_only: bool, hold_s: float | None) -> Transaction:
        if log.isEnabledFor(logging.DEBUG) and (around := self.session.ambient()):
            log.debug(
                "a transaction begins inside the block of %s, and is independent of it", around[-1]
            )
        asked_s, since_s = self.session.clock.monotonic_s(), self.session.tally.now_s()
        if (tracing := self.session.tracing) is None:
            begun = self.oracle.begin(hold_s=hold_s)
        else:
            with tracing.span("begin", hold_s=hold_s):
                begun = self.oracle.begin(hold_s=hold_s)
        self.session.tally.began(since_s)
        snapshot = self.session.reader.open(begun, asked_s=asked_s)
        max_age_s = self.oracle.max_transaction_age_s
        is_held = hold_s is not None and (max_age_s is None or hold_s > max_age_s)
        return Transaction(
            self.session,
            snapshot,
            read_only=read_only,
            max_age_s=hold_s if is_held and max_age_s is not None else max_age_s,
            is_held=is_held,
            fenced_ts=begun.fenced_ts,
        )

    def snapshot(self, at: int | datetime | timedelta | None = None) -> Transaction:
        """Return a read-only transaction over the committed state of now, or of an earlier moment.

        Args:
            at: A timestamp (it sees what was committed below it), an aware datetime, or how long
                ago.  Up to 5 s ahead of the oracle reads the present.

        Raises:
            UsageError: a naive datetime, or a moment further in the future.
            SnapshotTooOld: versions of that moment may have been collected.

        Cost: 1 oracle round trip; with `at` 2 gets.
        """
        self._check_usable()
        if at is None:
            return self.begin(read_only=True)
        asked_s = self.session.clock.monotonic_s()
        begun = self.oracle.begin()
        read_ts = moment_timestamp(self.session, begun.start_ts, at)
        snapshot = self.session.reader.open(begun, asked_s=asked_s, at=read_ts)
        transaction = Transaction(self.session, snapshot, read_only=True)
        transaction.check_horizon()
        return transaction

    def resume(self, token: bytes, *, task: str | None = None) -> Worker:
        """Take part in a transaction of another process, whose owner called `tx.token()`.

        Args:
            token: The bytes of the token.
            task: Names the task of which this is an attempt: two attempts that wrote different
                cells are then found out by `tx.merge`.

        Raises:
            TypeError: the name of the task is no str.
            UsageError: the token is of another store, or none.
        """
        from omidpy.tx.parts.tokens import decode_token  # noqa: PLC0415 - few share one
        from omidpy.tx.parts.worker import Worker  # noqa: PLC0415 - few share one

        self._check_usable()
        return Worker(self.session, decode_token(token, store_id=self.store.store_id), task)

    def hold(self, snapshot: Transaction | int, *, for_s: float) -> HeldSnapshot:
        """Keep the versions that a snapshot needs from being collected for `for_s` seconds.

        Returns:
            A handle; `release()`, or leaving its `with` block, ends the hold earlier.

        Raises:
            TypeError, UsageError: `snapshot` is none, or `for_s` is not between 0 and 30 days;
                nothing is held.
            SnapshotTooOld: they may be gone already.
        """
        self._check_usable()
        if isinstance(snapshot, Transaction):
            snapshot.check_open()
            self._check_store(snapshot.session.outcomes.store_id(), snapshot.start_ts)
            snapshot = snapshot.start_ts
        from omidpy.facts.holds import hold  # noqa: PLC0415 - few hold a snapshot

        return hold(self.session.watermarks, snapshot, self.session.clock, for_s=for_s)

    @overload
    def transactional(  # type: ignore[overload-overlap]  # where both fit, the first is meant
        self, function: Callable[Concatenate[Transaction, P], R], /
    ) -> Transactional[Transaction, P, R]: ...

    @overload
    def transactional(
        self, function: Callable[Concatenate[S, Transaction, P], R], /
    ) -> TransactionalMethod[S, Transaction, P, R]: ...

    @overload
    def transactional(
        self,
        function: None = None,
        /,
        *,
        retry_budget_s: float = DEFAULT_RETRY_BUDGET_S,
        idempotency_key: None = None,
    ) -> Decorator[Transaction]: ...

    @overload
    def transactional(
        self,
        function: None = None,
        /,
        *,
        retry_budget_s: float = DEFAULT_RETRY_BUDGET_S,
        idempotency_key: bytes | Callable[..., bytes],
    ) -> KeyedDecorator[Transaction]: ...

    def transactional(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        retry_budget_s: float = DEFAULT_RETRY_BUDGET_S,
        idempotency_key: bytes | Callable[..., bytes] | None = None,
    ) -> Any:
        """Decorate a function whose first argument is a transaction, or a method: the second.

        Called without one, the function runs in a new transaction, and is run again from `begin` on
        retryable errors until `retry_budget_s` seconds have passed; so it must have no effect
        outside the transaction.  Called with one in its place, or inside a `with` block of one, it
        joins it and retries nothing.  One of another thread, or of another asyncio task whose
        context was handed on, is refused with `UsageError`.

        `raise Rollback` in it rolls back and returns None; where it joined a transaction, that one
        is rolled back and its block ends.

        A method is one whose first argument is called `self` or `cls`.  `@staticmethod` and
        `@classmethod` stand above this.

        Args:
            function: What to decorate.
            retry_budget_s: How long it is tried.
            idempotency_key: What each call does once, however often it is made, as in `begin`:
                bytes, or a function that is given what the call is given, without the transaction.
                A repetition does not run the function and returns `Committed(commit_ts)`, the
                commit of the first.  With a key an unknown outcome is retried, too.  Where the call
                joins a transaction, the key is used in that one (`tx.use_key`).

        Raises:
            TypeError: the function is a generator or an `async def`, or takes no transaction; or
                the key is neither bytes nor callable.
        """
        key_of = keyed(idempotency_key)
        check_number("retry_budget_s", retry_budget_s)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            position = transaction_position(function)

            def join(tx: Any, owner: Any, rest: Any, kwargs: Any) -> Any:
                if key_of is None:
                    return function(*owner, tx, *rest, **kwargs)
                with UsedKey(tx, key_of(*owner, *rest, **kwargs)) as used:
                    if used.before is not None:
                        return Committed(used.before.commit_ts)
                    return function(*owner, tx, *rest, **kwargs)

            @wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                owner, rest = args[:position], args[position:]
                if rest and isinstance(rest[0], Transaction):
                    if not rest[0].runner.is_this_thread:
                        remedy = "begin one in this thread"
                        raise elsewhere(function, rest[0].start_ts, remedy)
                    return join(rest[0], owner, rest[1:], kwargs)
                ambient = self.session.ambient()
                if ambient and ambient[-1].status is TransactionStatus.RUNNING:
                    if not ambient[-1].runner.is_current:
                        raise elsewhere(function, ambient[-1].start_ts, IN_A_CONTEXT_OF_ITS_OWN)
                    return join(ambient[-1], owner, rest, kwargs)
                result = None
                key = None if key_of is None else key_of(*owner, *rest, **kwargs)
                attempts = self._attempts(retry_budget_s, is_kept=True, key=key)
                try:
                    for attempt in attempts:
                        result = None  # stays, if the function ends by Rollback
                        with attempt as tx:
                            result = function(*owner, tx, *rest, **kwargs)
                except AlreadyCommitted as found:
                    if found is not attempts.found:  # the function's own
                        raise
                    return Committed(found.commit_ts)
                return result

            return call

        return decorate if function is None else decorate(function)

    def attempts(
        self, *, budget_s: float = DEFAULT_RETRY_BUDGET_S, idempotency_key: bytes | None = None
    ) -> Attempts:
        """Iterate over tries of one transaction.

            for attempt in tm.attempts(budget_s=5):
                with attempt as tx:
                    ...

        The loop ends when a try commits; it raises the last error once `budget_s` seconds have
        passed, and any error that is not retryable at once.

        A refusal is raised at once, too, where the loop does not certainly go on behind the block:
        if that is left by `return`, `break` or `yield`, or followed by one of them, or no block of
        a plain `for` loop.  Use after the loop what the block computed.

        With an `idempotency_key`, as in `begin`, an unknown outcome is tried again, too: the next
        try finds the commit, if it has happened.  Where a transaction of another loop or process
        has the key, the loop raises `AlreadyCommitted`.
        """
        return self._attempts(budget_s, is_kept=False, key=idempotency_key)

    def _attempts(self, budget_s: float, *, is_kept: bool, key: bytes | None) -> Attempts:
        self._check_usable()
        return Attempts(
            partial(self.begin, idempotency_key=key) if key is not None else self.begin,
            self.session.clock,
            budget_s,
            on_retry=self.session.tally.retried,
            is_kept=is_kept,
        )

    def outcome(self, what: Transaction | CommitOutcomeUnknown | bytes | int) -> Outcome:
        """Find out what became of a transaction.

        Args:
            what: A transaction, the error its commit raised, its token, or a bare start_ts.  All
                but the last name a cell whose shadow cell is evidence.  For an unknown outcome a
                commit that has not happened is then forbidden; a token may be of a running
                transaction, which is left alone.  A bare start_ts asks the commit table alone and
                writes nothing.

        Raises:
            UsageError: it is of another store, where nothing could be found of it here.
        """
        self._check_usable()
        if isinstance(what, Transaction):
            self._check_store(what.session.outcomes.store_id(), what.start_ts)
        elif isinstance(what, CommitOutcomeUnknown):
            self._check_store(what.store_id, what.start_ts)
        match what:
            case Transaction(status=TransactionStatus.COMMITTED):
                return Committed(what.commit_ts)
            case Transaction(status=TransactionStatus.ROLLED_BACK):
                return Aborted()
            case Transaction(status=TransactionStatus.RUNNING):
                return Undecided()
            case Transaction():
                others = what.witnesses()[1:]
                outcome = self.session.outcomes.settle(what.start_ts, what.witness(), others=others)
                what.learn(outcome)
                return outcome
            case CommitOutcomeUnknown():
                return self.session.outcomes.settle(what.start_ts, what.witness, others=what.others)
            case bytes():
                from omidpy.tx.parts.tokens import decode_token  # noqa: PLC0415 - few share one

                token = decode_token(what, store_id=self.store.store_id)
                witness = None if token.witness is None else token.witness.cell()
                return self.session.outcomes.of_running(Timestamp(token.start_ts), witness)
            case bool():
                pass
            case int():
                if not 0 < what < MAX_VERSION:
                    raise UsageError(f"{what} is no start_ts; give the one of a transaction")
                return self.session.outcomes.of_number(Timestamp(what))
        raise TypeError(
            f"outcome() takes a transaction, its error, its token or a start_ts, not {what!r}"
        )

    def _check_store(self, store_id: str | None, start_ts: int) -> None:
        """Refuse what is of another store: of a commit that is there nothing is found here (I9).

        Raises:
            UsageError: it is.
        """
        if store_id is not None and store_id != self.store.store_id:
            raise UsageError(
                f"transaction {start_ts} is one of another store than {self.store.url}; ask the "
                "manager that began it, or another one of its store"
            )

    # -- changes -------------------------------------------------------------------------------

    def changes(
        self,
        table: str,
        since: int | datetime | timedelta | None = None,
        until: int | datetime | timedelta | None = None,
        *,
        columns: Iterable[bytes] | None = None,
        row_start: bytes | None = None,
        row_stop: bytes | None = None,
        row_prefix: bytes | None = None,
        old_values: bool = False,
        snapshot: bool = False,
        spans_tables: bool = False,
    ) -> ChangeFeed:
        """Iterate over every change that was committed above `since`, up to `until`, in order.

        An offset is one number: it stands for everything that was committed at or below it.  The
        iterator's `offset` says how far it has come, to go on from there; windows that meet have no
        gap, and nothing twice.

        Args:
            table: The table.
            since: An offset, an aware datetime, or how long ago.  None: the table as it is at
                `until`, each cell as a change of kind `snapshot`, and no changes.
            until: The same; None is now.  What runs, and commits later, is above it.
            columns: `b"family:qualifier"` or `b"family"` each; None for all.
            row_start: First row, inclusive.
            row_stop: Last row, exclusive.
            row_prefix: Rows that start with it; not together with the two above.
            old_values: Also find what the columns had before.
            snapshot: First the table as it was at `since`, then the changes.
            spans_tables: Go on also where the table was dropped or truncated behind `since`, with
                the changes that there are: those of the table that has its name now.

        Returns:
            An iterator of `Change`.  The table is read when the first is asked for.

        Raises:
            SnapshotTooOld: from the iterator, before any change: some may have been collected, or
                have gone with an earlier table of the name.
            StorageError: from the iterator, before any change: the table was dropped or truncated
                while it was read.
            ConfigError: the store cannot show what was in between (Thrift1).
            UsageError: `since` is later than `until`, or one of them lies in the future.

        Cost: 1 oracle round trip and up to 6 gets; a scan of what was written from a while before
        `since` on, of which a cluster leaves out files that are older.  32 MiB of memory, and a
        temporary file for what is more.  With `old_values` another get a page.
        """
        self._check_usable()
        return open_feed(
            self.session,
            table,
            since,
            until,
            columns=columns,
            row_start=row_start,
            row_stop=row_stop,
            row_prefix=row_prefix,
            old_values=old_values,
            snapshot=snapshot,
            spans_tables=spans_tables,
        )

    def watch(
        self,
        table: str,
        row: bytes,
        *,
        since: int | datetime | timedelta | None = None,
        columns: Iterable[bytes] | None = None,
        timeout_s: float | None = None,
    ) -> list[Change]:
        """Wait until a row has changed.

        Args:
            table: The table.
            row: The row; it need not be there.
            since: What was committed above this offset counts, as in `changes`; None is now.
            columns: As in `changes`.
            timeout_s: How long to wait; 0 looks once, None waits for ever.

        Returns:
            The changes in order, of one commit or several: go on with `since` as the last one's
            `commit_ts`.  Empty once the time is over.

        Raises:
            SnapshotTooOld: some changes after `since` may have been collected, or the table was
                dropped or truncated after it.

        Cost: 1 oracle round trip and 2 gets a look; the pauses in between double up to 1 s.
        """
        self._check_usable()
        watch = open_watch(
            self.session, table, row, since=since, columns=columns, timeout_s=timeout_s
        )
        while not (found := watch.look()) and (pause_s := watch.pause_s()) is not None:
            time.sleep(pause_s)
        return list(found)

    # -- frames --------------------------------------------------------------------------------

    def scan_arrow(
        self,
        table: str,
        row_start: bytes | None = None,
        row_stop: bytes | None = None,
        row_prefix: bytes | None = None,
        *,
        columns: Columns | None = None,
        key: KeyColumns = DEFAULT_KEY,
        rest: str | None = None,
        commit_ts: bool = False,
        at: int | datetime | timedelta | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> pa.RecordBatchReader:
        """Read rows of a table as Arrow record batches, all at one snapshot.

        pandas, Polars and DuckDB take the reader as it is.  In a transaction it is
        `TransactionalTable.read_arrow`.

        Args:
            table: The table.
            row_start: As there, and so is all that is not named here.
            row_stop: See `read_arrow`.
            row_prefix: See `read_arrow`.
            columns: See `read_arrow`.
            key: See `read_arrow`.
            rest: See `read_arrow`.
            commit_ts: See `read_arrow`.
            at: An earlier moment, as `snapshot` takes it; None for now.
            batch_rows: See `read_arrow`.

        Raises:
            UsageError: an argument is wrong.
            NoSuchTable, NotTransactional: there is no such table.
            SnapshotTooOld: at once, or while it is read: versions may have been collected.
            StorageError: at the end: the table was dropped, truncated or restored meanwhile.

        Cost: 1 oracle round trip, and 1 RPC for up to 1000 rows.
        """
        return (
            self.snapshot(at)
            .table(table)
            .read_arrow(
                row_start,
                row_stop,
                row_prefix,
                columns=columns,
                key=key,
                rest=rest,
                commit_ts=commit_ts,
                batch_rows=batch_rows,
            )
        )

    def write_arrow(
        self,
        table: str,
        data: object,
        *,
        columns: Columns | None = None,
        key: KeyColumns = DEFAULT_KEY,
        rest: str | None = None,
        nulls: str = "keep",
    ) -> int:
        """Write Arrow data to a table in a transaction of its own; return how many rows.

        Arguments are as in `TransactionalTable.write_arrow`.

        Raises:
            UsageError, TypeError: as there; nothing was written.
            TransactionAborted, CommitOutcomeUnknown: as `Transaction.commit`.  It is not tried
                again, since the data may be gone.
        """
        with self.begin() as tx:
            return tx.table(table).write_arrow(
                data, columns=columns, key=key, rest=rest, nulls=nulls
            )

    # -- tables --------------------------------------------------------------------------------

    def create_table(
        self,
        name: str,
        families: Iterable[str | bytes] | Mapping[str, object] | Mapping[bytes, object],
        splits: Sequence[bytes] = (),
        *,
        priority: int | None = None,
        retention: str | None = None,
        every: str | None = None,
        max_rows_per_s: int | None = None,
        max_bytes_per_s: int | str | None = None,
        until: str | None = None,
    ) -> None:
        """Create a transactional table, all versions kept.

        Transactions that are running and wrote an earlier table of this name abort: what they wrote
        there went with it.

        Args:
            name: Letters, digits, `_`, `-` and `.`, with an optional namespace and `:` before.
            families: Names of its column families; or a dict from each name to its options, such
                as `{"cf": {"compression": "GZ"}}`: how HBase stores them, see the guide.
            splits: Row keys at which its regions meet.
            priority: Compactions pass over it before tables with lower ones; without one it is 0.
            retention: How far back snapshots stay readable at least, such as `"30d"`; the longest
                of any table holds for all.
            every: Compactions pass over it no more often than that, such as `"1d"`.
            max_rows_per_s: How many of its rows a compaction reads a second, at most.
            max_bytes_per_s: The same in bytes of keys and values, such as `"50MB"`.
            until: How long after its start a compaction works on it, such as `"4h"`, or until what
                time of day, such as `"06:00Z"`.

        Raises:
            TableExists: nothing was changed.
            UsageError: an option would lose what snapshots need, has no effect, or is unknown; or
                omidpy makes the table of that name itself.
        """
        self._check_usable()
        settings = settings_by_name(
            priority=priority,
            retention=retention,
            every=every,
            max_rows_per_s=max_rows_per_s,
            max_bytes_per_s=max_bytes_per_s,
            until=until,
        )
        self.session.make_table(self.session.catalog.plan(name, families, splits, settings))

    def drop_table(self, name: str) -> None:
        """Remove a table with everything in it.

        Transactions that are running and wrote it abort.  So that none is told committed of which a
        part is gone, the table is closed first, then a fence is set, and then it is removed.  While
        it is closed, a transaction that may write and begins to use it gets `ConfigError`.  Killed
        half-way, this leaves it closed: the same call goes on, and the error tells how to open it
        again.

        Raises:
            NoSuchTable: there is none of this name, or it was removed by somebody else.
            NotTransactional: it is not ours to remove.
            OracleError: no fence could be set; the table is there, as it was.
            StorageUnavailable: it may be gone, or closed: call again.

        Cost: 9 RPCs, 1 oracle round trip.
        """
        from omidpy.facts.tables.removal import remove_table  # noqa: PLC0415 - few remove tables

        self._check_usable()
        catalog = self.session.catalog
        schema = catalog.to_remove(name)
        try:
            # Closes, fences and removes, in this order: else somebody is told committed whose cells
            # have gone (I8).
            is_gone = remove_table(self.store, self.oracle, schema)
        finally:
            catalog.forget(schema.name)
        if not is_gone:
            raise NoSuchTable(
                f"table {schema.name!r} was removed or adopted by somebody else, and what has its "
                "name now was left as it is; drop it, too, if it is to go"
            )

    def delete_table(self, name: str, disable: bool = False) -> None:  # noqa: FBT001, FBT002 - happybase's signature
        """Remove a table: happybase's name for `drop_table`.

        Args:
            name: The table.
            disable: Changes nothing: a table need not be disabled before.

        Raises:
            NoSuchTable, NotTransactional: as `drop_table`.
        """
        del disable
        self.drop_table(name)

    def tables(self) -> list[str]:
        """Return the names of the transactional tables, sorted."""
        self._check_usable()
        return self.session.catalog.names()

    def fence(self, table: str) -> int:
        """Abort every transaction that wrote `table` and began before now; return the fence."""
        self._check_usable()
        name = self.session.catalog.full_name(table)
        self.session.catalog.layout(name)
        return self.oracle.fence(table_id(name))

    def low_watermark(self) -> int:
        """Return the oracle's durable low watermark: what began at or below it cannot commit."""
        self._check_usable()
        return read_low_watermark(self.store)

    @property
    def metrics(self) -> ClientMetrics:
        """What this manager has seen since it was made: counts, and how long things took."""
        return self.session.tally.read()

    # -- life ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Finish the post-commit work, then close the oracle and the store.

        A second call does nothing, unless the first was interrupted.
        """
        self._is_closed = True
        within(self._close_lock, self._close_all)

    def _close_all(self) -> None:
        with contextlib.ExitStack() as stack:
            for part in (self.store, self.oracle, self.session.post_committer):
                stack.callback(self._close_part, part)

    def _close_part(self, part: Store | Oracle | PostCommitter) -> None:
        if part in self._closed:
            return
        try:
            part.close()
        except OmidError:
            self._closed.append(part)  # it failed, and would fail again
            raise
        self._closed.append(part)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _open_queue(self, find_queue: FindQueue, queue_id: str) -> Openable:
        queue_id = check_text("the id of a queue", queue_id)
        queue = self._queues.get(queue_id)
        if queue is None or not queue.exists():
            queue = self._queues[queue_id] = find_queue(self, queue_id)
        return queue

    def _check_usable(self) -> None:
        if self._is_closed:
            raise UsageError("this manager is closed; connect again")
        if self._is_oracle_here and self.session.generation:
            raise ConfigError(
                f"the oracle of {self.store.url} lives in the process that this one was forked "
                f"from; to share the store, start {server_command(self.store.url)} and "
                'connect every process with tso="HOST:PORT"'
            )

    def _after_fork_in_child(self) -> None:
        self._close_lock = threading.Lock()
        self.session.after_fork_in_child()


def _after_fork_in_child() -> None:
    for manager in list(_managers):
        manager._after_fork_in_child()  # noqa: SLF001 - this module's own class


os.register_at_fork(after_in_child=_after_fork_in_child)
