"""Hold the right to answer as the oracle of a store.

The right is a record in the store.  Where the store has locks that die with their process, a lock
decides, and a successor takes over the moment its predecessor is gone.  Elsewhere the record must
stay unchanged for its whole period, by the observer's own clock, before it may be taken: no two
machines' clocks are ever compared.

A lease proves nothing about the present: its holder may have been stopped since it looked, for
longer than the period, and not know it.  So the lease alone keeps no promise.  Three things do:

* a batch of commit entries is guarded by the record, or followed by reading it, and no client is
  told of a commit unless the record was still ours then (I2, I8);
* the successor's epoch is above whatever the predecessor issued, so that nothing the predecessor
  began can commit with the successor (I4);
* readers forbid the commit of what began below the epoch before they take it for dead, so that
  an entry the predecessor writes later revives nothing (I9).

What the lease adds is that a healthy oracle is left in peace, and that one which answers without a
flush stops by itself: `vouched_until_s` ends before another oracle may have taken over.

Source: Omid's LeaseManager, with a row in place of a znode.
"""

from __future__ import annotations

import logging
import os
import socket
from math import inf
from typing import Final, Protocol

import msgspec

from omidpy.base.reach import reached
from omidpy.base.tables import CONTROL_TABLE, VALUE
from omidpy.base.timing.clock import Clock
from omidpy.errors import CorruptCell, LeaseLost, StorageUnavailable
from omidpy.facts.control import ControlTable, encode_document
from omidpy.facts.leadership import LEASE_FACT, LOCK_NAME, LeaseRecord, decode_lease
from omidpy.storage.base import Condition, LockHeld, ProcessLock, Store

logger = logging.getLogger(__name__)

DEFAULT_PERIOD_S: Final = 10.0
_RENEWALS_PER_PERIOD: Final = 4


class AnyLease(Protocol):
    """What the rest of the oracle asks of a lease, wherever it is kept.

    One thread at a time.  Methods that look may raise `StorageUnavailable`, and an oracle that may
    not answer any more gets `LeaseLost`.
    """

    @property
    def guard(self) -> Condition:
        """The condition that the record in the store is ours, for `Store.write_guarded`."""
        ...

    @property
    def needs_check(self) -> bool:
        """Say whether `guard` alone does not tell that the lease is ours."""
        ...

    @property
    def proof(self) -> Condition | None:
        """What, if it holds, tells as much as `check`; None where only `check` will do."""
        ...

    @property
    def needs_renewal(self) -> bool:
        """Say whether `renew_if_due` must be called now and then."""
        ...

    @property
    def vouched_until_s(self) -> float:
        """Monotonic time until which no other oracle can hold the lease; any thread."""
        ...

    def try_acquire(self) -> str | None:
        """Take the lease if it is free: None, else who holds it, for a message."""
        ...

    def publish(self, *, address: str, epoch: int) -> None:
        """Say where we answer and since when."""
        ...

    def renew_if_due(self, *, before_check: bool = False) -> None:
        """Renew the lease in time; with `before_check` only where that cannot wait for it."""
        ...

    def check(self) -> None:
        """Make sure that the lease is ours now, whatever a clock says."""
        ...

    def lost(self) -> LeaseLost:
        """Return the error that says who has the lease now."""
        ...

    def release(self) -> None:
        """Give the lease up, so that a successor need not wait; harmless if it is not ours."""
        ...


class Lease:
    """One instance's claim to one store.  Not safe to share among threads."""

    def __init__(
        self,
        store: Store,
        *,
        holder: str,
        clock: Clock,
        period_s: float = DEFAULT_PERIOD_S,
        purpose: str = "oracle",
    ) -> None:
        """Claim nothing yet.

        Args:
            store: Whose oracle the holder wants to be; it has the control table.
            holder: An id that no other instance ever had.
            clock: Measures how long another's record stays unchanged.
            period_s: How long ours must stay unchanged before it may be taken over.
            purpose: What a process that finds the lock held is told.
        """
        self._store = store
        self._control = ControlTable(store)
        self._clock = clock
        self._purpose = purpose
        self._has_locks = store.capabilities.process_locks
        self._lock: ProcessLock | None = None
        self._raw: bytes | None = None
        self._seen: bytes | None = None
        self._seen_s = 0.0
        self._renewed_s = 0.0
        self._record = LeaseRecord(
            holder=holder,
            address="",
            epoch=None,
            pid=os.getpid(),
            host=socket.gethostname(),
            period_ms=round(period_s * 1000),
            sequence=0,
        )

    @property
    def guard(self) -> Condition:
        """The condition that the lease is ours, for `Store.write_guarded`."""
        return Condition(CONTROL_TABLE, LEASE_FACT, VALUE, self._raw)

    @property
    def needs_check(self) -> bool:
        """Never: the record is all there is."""
        return False

    @property
    def proof(self) -> Condition | None:
        """The record, while it is ours and not due for its renewal, which `check` sees to."""
        # One that is due is not offered: a batch that only proved the record would let it grow old,
        # and a standby take over from an oracle that is at work.
        if self._raw is None or self._is_due(periods=1 / _RENEWALS_PER_PERIOD):
            return None
        return self.guard

    @property
    def needs_renewal(self) -> bool:
        """Say whether the record must change now and then: where no lock speaks for us."""
        return not self._has_locks

    @property
    def vouched_until_s(self) -> float:
        """Monotonic time until which no other oracle can hold the lease."""
        # The lock is ours for as long as this process lives, and its file has its name.  The record
        # is for one period, counted from *before* we wrote it; a standby counts from when it saw
        # it, which is later.
        if self._has_locks:
            lock = self._lock
            return inf if lock is None or lock.excludes else -inf
        return self._renewed_s + self._record.period_ms / 1000

    @property
    def is_held(self) -> bool:
        """Say whether the lease was ours when we last looked."""
        return self._raw is not None

    def try_acquire(self) -> str | None:
        """Take the lease if it is free.

        Returns:
            None if it is ours now, else who holds it, for a message.

        Raises:
            CorruptCell: the record is not what the store compares with: its file is damaged.
            StorageUnavailable: it is not known: its lock, for one, cannot be taken on a full disk.

        Cost: 1 get, and 1 durable write if it is free.
        """
        # The lock first: with it no other process is alive that holds the record.
        if self._has_locks and self._lock is None:
            try:
                self._lock = self._store.lock(LOCK_NAME, purpose=self._purpose)
            except LockHeld as error:
                return str(error)
        raw = self._control.read(LEASE_FACT)
        if raw is not None and not isinstance(raw, bytes):
            raise CorruptCell(
                f"the lease record of {self._store.url} is {raw!r}, which no store writes: the "
                "store is damaged; restore it from a backup"
            )
        if not self._has_locks and (holder := self._other_holder(raw)) is not None:
            return holder
        # The sequence goes on from the predecessor's, so that no record is ever written twice: who
        # compares with an older one, be it its own, finds another.  Where the record cannot be read
        # it goes on from our own, since our name is in no other's.
        found = None if raw is None else _readable(raw)
        sequence = self._record.sequence if found is None else found.sequence
        record = msgspec.structs.replace(self._record, sequence=sequence + 1)
        # Only over the very bytes that stood still: a holder that renewed between our reading and
        # this line has changed them, and keeps its lease.
        if self._replace(raw, record):
            if raw is not None and found is None:
                logger.warning("took over a lease record that could not be read: %r", raw[:200])
            return None
        # No record comes back once it was replaced, and none is ever deleted.
        if self._control.read(LEASE_FACT) == raw:
            raise CorruptCell(
                f"the lease record of {self._store.url} is one thing whenever it is read, and "
                "another whenever it is to be replaced: the store is damaged; restore it from a "
                "backup"
            )
        reached("lease.another_was_faster", "I1")
        return "another instance, which was faster"

    def publish(self, *, address: str, epoch: int) -> None:
        """Say where we answer and since when.

        Raises:
            LeaseLost: if the record is another's.
        """
        self._rewrite(
            msgspec.structs.replace(
                self._record, address=address, epoch=epoch, sequence=self._record.sequence + 1
            )
        )

    def renew_if_due(self, *, before_check: bool = False) -> None:
        """Change the record before its period is over, where no lock speaks for us.

        Args:
            before_check: `check` follows soon and renews as well, so that there is time until half
                of the period is over.

        Raises:
            LeaseLost: if the record is another's, or the file of the lock was removed.
            StorageUnavailable: the system does not tell whether that was removed.
        """
        if self._lock is not None and not self._lock.excludes:
            if not self._lock.was_removed:
                raise StorageUnavailable(
                    f"the lock file of the oracle of {self._store.url} cannot be looked at, so "
                    "that another one may have begun; nothing is answered until it can"
                )
            raise LeaseLost(
                f"the lock file of the oracle of {self._store.url} was removed while the oracle "
                "ran, so that another one may have begun. Nothing that was not yet answered is "
                "answered; start the oracle again, and leave its lock file where it is"
            )
        if self._is_due(periods=0.5 if before_check else 1 / _RENEWALS_PER_PERIOD):
            self._renew()

    def check(self) -> None:
        """Read the record; or renew it if that is due, which tells as much.

        Raises:
            LeaseLost: if it is another's.

        Cost: 1 get, or 1 write.
        """
        # A renewal compares before it sets, so it sees as much as a read, at the same price.
        if self._is_due(periods=1 / _RENEWALS_PER_PERIOD):
            self._renew()
            return
        raw = self._control.read(LEASE_FACT)
        if self._raw is None or raw != self._raw:
            raise self.lost(raw)

    def _is_due(self, *, periods: float) -> bool:
        if self._has_locks or not self.is_held:
            return False
        age_ms = (self._clock.monotonic_s() - self._renewed_s) * 1000
        return age_ms >= periods * self._record.period_ms

    def _renew(self) -> None:
        self._rewrite(msgspec.structs.replace(self._record, sequence=self._record.sequence + 1))

    def lost(self, raw: bytes | None = None) -> LeaseLost:
        """Return the error that says who has the lease now; `raw` is the record, if it was read."""
        if raw is None:
            raw = self._control.read(LEASE_FACT)
        reached("lease.lost", "I1")
        who = "nobody" if raw is None else _holder(_readable(raw))
        return LeaseLost(
            f"the lease of {self._store.url} is no longer ours: it belongs to {who}. Nothing that "
            "was not yet answered is answered; start the oracle again to stand by"
        )

    def release(self) -> None:
        """Give the lease up, so that a successor need not wait; harmless if it is not ours."""
        # Forgotten before it is given up: from here on `check` refuses, even if the write below
        # fails half-way, and then it is not known what the store has.
        raw, self._raw = self._raw, None
        if raw is not None:
            sequence = self._record.sequence + 1
            record = msgspec.structs.replace(self._record, holder="", sequence=sequence)
            try:
                self._control.replace(LEASE_FACT, raw, encode_document(record))
            except StorageUnavailable as error:
                logger.warning("the lease record could not be given up: %s", error)
        # The lock last: the process that gets it finds the record as we leave it.
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _other_holder(self, raw: bytes | None) -> str | None:
        """Return who holds the lease, None if its record has been the same for its whole period."""
        if raw is None:
            return None
        # One that cannot be read has no holder any more: who held it compares it with its own
        # bytes before it answers a commit.  But it may answer what needs no commit to the
        # end of its period, which is nowhere longer than these.
        record = _readable(raw)
        if record is not None and not record.is_held:
            return None
        unknown_ms = max(self._record.period_ms, round(DEFAULT_PERIOD_S * 1000))
        period_ms = unknown_ms if record is None else record.period_ms
        # A change is noticed late, never early: the holder wrote it before we read it.  So the
        # period that we wait ends after the holder's own, which is counted from before its write.
        now_s = self._clock.monotonic_s()
        if raw != self._seen:
            self._seen, self._seen_s = raw, now_s
        if (now_s - self._seen_s) * 1000 > period_ms:
            reached("lease.stood_still", "I1")
            return None
        return _holder(record)

    def _rewrite(self, record: LeaseRecord) -> None:
        if self._raw is None or not self._replace(self._raw, record):
            raise self.lost()

    def _replace(self, raw: bytes | None, record: LeaseRecord) -> bool:
        # The clock is read before the write: our own idea of the record's age is never too young.
        now_s = self._clock.monotonic_s()
        encoded = encode_document(record)
        is_written = self._control.replace(LEASE_FACT, raw, encoded)
        # Found different: unless the answer to our own first attempt was lost, it is another's.
        # Ours is set once more, since nothing says that the sync of that attempt did not fail.
        if not is_written and not self._control.replace(LEASE_FACT, encoded, encoded):
            return False
        self._raw, self._record = encoded, record
        # A standby counts from when the record changed, which an earlier attempt did whose answer
        # was lost: such a record is no younger than what we knew before, and due at once.
        if is_written:
            self._renewed_s = now_s
        else:
            reached("lease.own_answer_found", "I1")
        return True


def _readable(raw: bytes) -> LeaseRecord | None:
    """Return a record; None if it cannot be read."""
    try:
        return decode_lease(raw)
    except CorruptCell:
        return None


def _holder(record: LeaseRecord | None) -> str:
    """Describe a holder for a message."""
    if record is None:
        return f"whoever wrote a record that cannot be read ({CONTROL_TABLE} row {LEASE_FACT!r})"
    if not record.is_held:
        return "nobody: it was given up"
    where = f"at {record.address}" if record.address else "inside a client's process"
    return f"process {record.pid} on {record.host}, {where}"
