"""The oracle inside the process that uses it: no server, no socket, one process.

The same machine and the same durability as `tso-server`, driven by a thread of its own
(`driver.py`), which also lets time pass while no client asks: it raises the ceiling ahead of the
clock and ages the low watermark.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import uuid
from collections.abc import Collection
from typing import Final, cast

from omidpy.base.telemetry.metrics import NO_METRICS, Metrics
from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.errors import ConfigError, UsageError
from omidpy.facts.commit_table import create_system_tables
from omidpy.facts.control import ControlTable
from omidpy.facts.leadership import LEASE_FACT
from omidpy.model import CellId, TableCells, TableId, Timestamp
from omidpy.oracle.base import (
    AbortReason,
    Begun,
    CommitGranted,
    CommitRefused,
    CommitVerdict,
    InvalidationVerdict,
    hold_ms,
)
from omidpy.storage.address import server_command
from omidpy.storage.base import Store
from omidpy.wire.messages import (
    CommitRequest,
    CommitResponse,
    FenceRequest,
    FenceResponse,
    InvalidateRequest,
    InvalidateResponse,
    InvalidateVerdict,
    TimestampRequest,
    TimestampResponse,
)
from tso.core.events import Answer, Question
from tso.core.settings import (
    DEFAULT_MAP_SIZE,
    DEFAULT_TIMESTAMPS,
    MAX_AGE_MS,
    Settings,
    TimestampMode,
)
from tso.driver import Driver, Waiter
from tso.durable.lease import Lease
from tso.durable.persist import StorePersistence
from tso.instance import Instance, begin

logger = logging.getLogger(__name__)

_LONGEST_CLOSE_S: Final = 30.0
_LEASE_LOOK_S: Final = 0.5
"""How often a lease that its holder perhaps left behind is looked at."""
_BEGIN: Final = TimestampRequest()


class EmbeddedOracle:
    """An `Oracle` in this process, for all its threads.

    It takes the store's oracle lock: a second one on the same store, in this process or another, is
    refused.  A store of many machines has a lease in place of the lock; after a crash it is free
    when it was not renewed for ten seconds, which is waited for.  In a child made by `fork` it
    refuses use.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        timestamps: TimestampMode = DEFAULT_TIMESTAMPS,
        conflict_map_size: int = DEFAULT_MAP_SIZE,
        max_transaction_age_s: float | None = None,
        accept_clock: bool = False,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        """Become the oracle of `store`.

        Args:
            store: Where everything is kept; the caller closes it after the oracle.
            clock: What time it is.
            timestamps: World time, or counting from 50.
            conflict_map_size: Writes of cells that are remembered, a quarter of them of one commit;
                memory grows up to 29 bytes for each.
            max_transaction_age_s: Older transactions can no longer commit.  None: 15 minutes, or 24
                hours where Omid's tables were there before us.
            accept_clock: Start although the clock is more than 30 days above the last timestamp.
            metrics: Where counters go.

        Raises:
            ConfigError: the store has an oracle already, or the clock is absurd.
        """
        chosen_ms: int | None = None
        if max_transaction_age_s is not None and max_transaction_age_s * 1000 > MAX_AGE_MS:
            raise UsageError(
                f"max_transaction_age_s={max_transaction_age_s} is longer than a hundred years; "
                "give fewer seconds"
            )
        if max_transaction_age_s is not None:
            chosen_ms = round(max_transaction_age_s * 1000)
        if chosen_ms is not None and chosen_ms <= 0:
            raise UsageError(
                f"max_transaction_age_s={max_transaction_age_s} lets nothing commit; give seconds "
                "above 0"
            )
        self._store = store
        self._url = store.url
        self._clock: Clock = SystemClock() if clock is None else clock
        self._pid = os.getpid()
        create_system_tables(store)
        self._lease = Lease(
            store,
            holder=uuid.uuid4().hex,
            clock=self._clock,
            purpose="the oracle inside a client's process",
        )
        try:
            self._acquire()
            settings = Settings(timestamps=timestamps, conflict_map_size=conflict_map_size)
            persistence = StorePersistence(store, self._lease)
            begun: Instance[Waiter] = begin(
                settings,
                persistence,
                self._clock,
                max_transaction_age_ms=chosen_ms,
                accept_clock=accept_clock,
                metrics=metrics,
            )
            machine, self._epoch = begun.machine, begun.epoch
            self._max_transaction_age_s = begun.settings.max_transaction_age_ms / 1000
            self._lease.publish(address="", epoch=begun.epoch)
            self._driver = Driver(machine, persistence, self._lease, self._clock, url=self._url)
            self._driver.start()
        except BaseException:
            if (driver := vars(self).get("_driver")) is not None:
                driver.stop(_LONGEST_CLOSE_S)
            self._lease.release()
            raise

    def _acquire(self) -> None:
        """Take the lease.

        Where no lock speaks for its holder, one that died looks like one that lives until its
        record stayed the same for its whole period.  That is waited for, unless the record changes.
        """
        # As bytes: a record that cannot be read is taken over like one that stands still.
        control = ControlTable(self._store)
        first = None if self._store.capabilities.process_locks else control.read(LEASE_FACT)
        while (holder := self._lease.try_acquire()) is not None:
            if first is None or control.read(LEASE_FACT) != first:
                raise ConfigError(
                    f"{self._url} has an oracle already: {holder}. One process may use an embedded "
                    f"oracle; to share the store, start {server_command(self._url)} and "
                    'connect every process with tso="HOST:PORT"'
                )
            time.sleep(_LEASE_LOOK_S)

    # -- what it is ----------------------------------------------------------------------------

    @property
    def store_id(self) -> str | None:
        """Id of the store it serves."""
        return self._store.store_id

    @property
    def can_invalidate(self) -> bool:
        """Always, since the oracle is in this process."""
        return True

    @property
    def epoch(self) -> Timestamp:
        """No transaction that began at or below it can commit."""
        return self._epoch

    @property
    def max_transaction_age_s(self) -> float | None:
        """Age at which a transaction can no longer commit."""
        return self._max_transaction_age_s

    @property
    def max_commit_cells(self) -> int:
        """How many cells and tables one commit may name: a part of the conflict map."""
        return self._driver.machine.max_commit_cells

    # -- the questions -------------------------------------------------------------------------

    def begin(self, *, hold_s: float | None = None) -> Begun:
        """Return a fresh start timestamp; see `Oracle.begin`."""
        request = _BEGIN
        if hold_s is not None:
            request = TimestampRequest(hold_ms(hold_s))
        self._check_pid()
        answer = self._driver.spare() if hold_s is None else None
        if answer is None:
            answer = cast("TimestampResponse", self._driver.ask(request))
        return Begun(
            answer.start_ts,
            self.epoch,
            answer.low_watermark or Timestamp(0),
            answer.newest_fence or Timestamp(0),
        )

    def commit(
        self,
        start_ts: Timestamp,
        cell_ids: Collection[CellId],
        table_ids: Collection[TableId],
        *,
        is_retry: bool = False,
    ) -> CommitVerdict:
        """Decide a transaction; see `Oracle.commit`.

        Raises:
            OracleUnavailable: not `retryable`: the outcome is open.
        """
        return self._decided(CommitRequest(start_ts, tuple(cell_ids), tuple(table_ids), is_retry))

    @property
    def most_cells_bytes(self) -> int:
        """Any, where the store changes many rows in one transaction, which the lease guards."""
        return sys.maxsize if self._store.capabilities.guarded_batches else 0

    def commit_cells(
        self,
        start_ts: Timestamp,
        cell_ids: Collection[CellId],
        table_ids: Collection[TableId],
        cells: TableCells,
    ) -> CommitVerdict:
        """Decide a transaction and write it; see `WritesCells.commit_cells`.

        Raises:
            OracleUnavailable: not `retryable`: the outcome is open.
        """
        request = CommitRequest(start_ts, tuple(cell_ids), tuple(table_ids), cells=cells)
        return self._decided(request)

    def _decided(self, request: CommitRequest) -> CommitVerdict:
        answer = cast("CommitResponse", self._ask(request))
        if answer.commit_ts is not None:
            return CommitGranted(answer.commit_ts)
        return CommitRefused(AbortReason(answer.reason), answer.conflicts, answer.wait_ms / 1000)

    def fence(self, table_id: TableId) -> Timestamp:
        """Set a fence on a table; see `Oracle.fence`."""
        return cast("FenceResponse", self._ask(FenceRequest(table_id))).fence_ts

    def invalidate(self, start_ts: Timestamp) -> CommitGranted | InvalidationVerdict:
        """Forbid a commit, or say that it has happened; see `Oracle.invalidate`."""
        answer = cast("InvalidateResponse", self._ask(InvalidateRequest(start_ts)))
        if answer.commit_ts is not None:
            return CommitGranted(answer.commit_ts)
        if answer.verdict is InvalidateVerdict.INVALIDATED:
            return InvalidationVerdict.INVALIDATED
        return InvalidationVerdict.UNKNOWN

    def __repr__(self) -> str:
        return "<EmbeddedOracle in this process>"

    def close(self) -> None:
        """Answer what is under way, give back the ceiling and the lease.  A second call waits too.

        In a child made by `fork` it does nothing.
        """
        if os.getpid() == self._pid and not self._driver.stop(_LONGEST_CLOSE_S):
            logger.warning("the oracle of %s does not end; its store does not answer", self._url)

    def _ask(self, question: Question) -> Answer:
        self._check_pid()
        return self._driver.ask(question)

    def _check_pid(self) -> None:
        if os.getpid() != self._pid:
            raise ConfigError(
                f"the oracle of {self._url} lives in process {self._pid}, of which this one "
                f"is a fork; start {server_command(self._url)} and connect in each "
                'process with tso="HOST:PORT"'
            )
