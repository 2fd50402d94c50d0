"""Which run may prune?  One at a time, named in the row of what it guards.

The row of the prune horizon has a second column, the *lease*: a token that grows with every run
that takes it, and who that is.  A row can be compared where it is changed, on every store, so:

    only the run that the lease names raises the horizon    compared in the same row mutation
    only that run deletes entries                           compared in the same transaction where
                                                            the store has those, else looked at
                                                            before each page

A run that was stopped and has lost its lease may go on with its passes: they are true whichever
driver makes them.  What it wanted to raise, to delete or to record of itself it may not, and it
ends.

The lease is taken from a driver that gave it up, or is dead.  That is judged by his signs of life
as a worker of the operations' store (`omidpy/life/members.py`): at once where his process is seen
to be gone, else when they have not moved for a lease's time by the judge's own clock.

What a run left unfinished stays named in the lease until a driver has dealt with it, so that none
needs to look for it.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Final

import msgspec

from omidpy.base.documents import Moment, Natural
from omidpy.base.tables import CONTROL_TABLE
from omidpy.base.timing.clock import Clock
from omidpy.errors import CorruptCell, ReservationLost, StorageError
from omidpy.facts.control import ControlTable, decode_document, encode_document
from omidpy.facts.watermarks import PRUNE_HORIZON, PRUNE_LEASE, Watermarks
from omidpy.life.base import Judge
from omidpy.model import Timestamp
from omidpy.storage.base import Condition, Store

DEFAULT_LEASE_S: Final = 15.0


class PruneLeaseRecord(msgspec.Struct, frozen=True):
    """Which run may prune, or was the last that could."""

    token: Natural = 0
    """Grows with each run that takes the lease."""
    worker: str = ""
    """Whose signs of life count; empty once it was given up."""
    run: str = ""
    operation: str = ""
    """What it carries out, and what is to be finished if it dies."""
    host: str = ""
    pid: Natural = 0
    since_ms: Moment = 0
    """Wall time, for people."""

    @property
    def is_held(self) -> bool:
        """Say whether a run has it, or died with it."""
        return bool(self.worker)

    def holder(self) -> str:
        """Say which run and process that is."""
        return f"run {self.run} (process {self.pid} on {self.host})"


class PruneLease:
    """One run's right to prune.  Not safe to share among threads."""

    def __init__(self, store: Store, clock: Clock, *, judge: Judge) -> None:
        """Take nothing yet.

        Args:
            store: It has the control table.
            clock: For the date.
            judge: Says whose worker is dead.
        """
        self._store = store
        self._control = ControlTable(store)
        self._clock = clock
        self._judge = judge
        self._raw: bytes | None = None
        self._seen: bytes | None = None
        self.record = PruneLeaseRecord()

    @property
    def guard(self) -> Condition:
        """What holds as long as the lease is ours."""
        return Condition(CONTROL_TABLE, PRUNE_HORIZON, PRUNE_LEASE, self._raw)

    @property
    def holder(self) -> bytes:
        """What the lease's column has as long as it is ours."""
        assert self._raw is not None, "whoever asks has the lease"
        return self._raw

    def look(self) -> PruneLeaseRecord:
        """Return the record as it is; what cannot be read has no holder.  Cost: 1 get."""
        self._seen = self._control.read_beside(PRUNE_HORIZON, PRUNE_LEASE)
        return _decoded(self._seen)

    def is_free(self, found: PruneLeaseRecord) -> bool:
        """Say whether no driver has it, or one that is dead.  Cost: 1 RPC."""
        return not found.is_held or found.worker in self._judge.dead([found.worker])

    def try_take(self, found: PruneLeaseRecord, *, worker: str, run: str, operation: str) -> bool:
        """Take the lease as it was found last; False if another was faster.

        Args:
            found: What `look` returned.
            worker: Our id in the operations' store, which no other process ever had.
            run: Whose lease it is.
            operation: What shall be finished if we die: our own, or still another's.
        """
        return self._replace(
            self._seen,
            PruneLeaseRecord(
                found.token + 1,
                worker,
                run,
                operation,
                socket.gethostname(),
                os.getpid(),
                self._clock.wall_ms(),
            ),
        )

    def is_ours(self) -> bool:
        """Say whether no driver has taken it over.  Cost: 1 get."""
        return self._control.read_beside(PRUNE_HORIZON, PRUNE_LEASE) == self.holder

    def name(self, *, run: str, operation: str) -> None:
        """Name what shall be finished if we die.

        Raises:
            ReservationLost: the lease is another's.
        """
        record = msgspec.structs.replace(self.record, run=run, operation=operation)
        if not self._replace(self._raw, record):
            raise self.lost()

    def raise_horizon(self, watermarks: Watermarks, to: Timestamp) -> None:
        """Raise the prune horizon, which the lease holder alone does.

        Raises:
            ReservationLost: the lease is another's, and nothing was raised.
        """
        if watermarks.raise_prune_horizon(to, holder=self.holder) is None:
            raise self.lost()

    def lost(self) -> ReservationLost:
        """Return the error that says who has the lease now."""
        found = self.look()
        who = found.holder() if found.is_held else f"{found.holder()}, which has ended"
        return ReservationLost(
            f"run {self.record.run} was taken for dead and has lost its lease of {self._store.url} "
            f"to {who}: it was stopped, or could not reach the store, for longer than its lease; "
            "it prunes and records nothing more, and need not be run again"
        )

    def release(self) -> None:
        """Give it up, so that the next run need not wait; harmless if it is not ours."""
        raw, self._raw = self._raw, None
        if raw is not None:
            record = msgspec.structs.replace(self.record, worker="")
            with contextlib.suppress(StorageError):
                self._control.write_beside(PRUNE_HORIZON, PRUNE_LEASE, raw, encode_document(record))

    def _replace(self, raw: bytes | None, record: PruneLeaseRecord) -> bool:
        encoded = encode_document(record)
        if not self._control.write_beside(PRUNE_HORIZON, PRUNE_LEASE, raw, encoded):
            return False
        self._raw, self.record = encoded, record
        return True


def _decoded(raw: bytes | None) -> PruneLeaseRecord:
    try:
        return (
            PruneLeaseRecord()
            if raw is None
            else decode_document(raw, PruneLeaseRecord, row=PRUNE_HORIZON)
        )
    except CorruptCell:
        # The driver that had it finds other bytes than its own from now on.
        return PruneLeaseRecord()
