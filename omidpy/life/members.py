"""Does this member still live?  Judged by signs of life in the store, and by each observer.

A member has a row, and replaces what is in it several times in its lease.  A judge that has seen
the same content for a whole lease, by its own monotonic clock, takes the member for dead; wall
clocks are never compared.  Time in which the judge itself did not look does not count: a machine
that wakes from a suspend must not bury everyone on it.

A row that is gone says so at once: a member removes its own when it ends.  So does a process that
ran on the judge's own machine and is not there any more (`life/processes.py`).  And where the store
has locks that die with their process, a member holds one for life, so that its death shows at once
too.  The locks are numbered, because each leaves a small file: a member that takes one removes the
rows of those who had it before.

A dead member stays dead (F4).  It replaces its row only as it last wrote it, and a row that
an observer removed is not written again; a paused process then learns that what it held is others'.

Source: Accumulo ties reservations to an ephemeral node; a store of cells has none.
"""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from collections.abc import Collection
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from omidpy.base.documents import UNREADABLE, Natural, Positive, prepared
from omidpy.base.reach import reached
from omidpy.base.timing.clock import Clock
from omidpy.errors import NoSuchTable, StorageUnavailable
from omidpy.life.base import TRUST
from omidpy.life.processes import Process, has_ended, this_process
from omidpy.model import Column, KeyRange
from omidpy.storage.base import DeleteVersion, ProcessLock, Put, RowMutation, Store

WORKER_PREFIX: Final = b"worker_"
BEAT: Final = Column(b"tx", b"beat")
"""In a family of the table of operations, where these rows stand."""
FIXED_VERSION: Final = 1
"""Each sign of life is written over the one before."""

MAX_SLOTS: Final = 64
"""Locks of members beside one file; those who find none are judged by their signs of life alone."""

UNKNOWN_LEASE_S: Final = 60.0
"""The lease of a member whose sign of life cannot be read."""


class SignOfLife(msgspec.Struct, frozen=True):
    """What a member's row holds."""

    beat: Natural
    lease_ms: Positive
    host: str
    pid: Natural
    slot: int | None = None
    """The number of the lock that it holds."""
    process: Process | None = None
    """Which process that is, for a judge on the same machine."""


class MemberRows:
    """The rows of members in a table of operations."""

    def __init__(self, store: Store, table: str) -> None:
        self.store = store
        self._table = table

    def read(self, members: Collection[str]) -> dict[str, bytes]:
        """Return the rows that there are, by member."""
        ordered = sorted(members)
        rows = self.store.get(
            self._table, [_row(member) for member in ordered], columns=[BEAT], max_versions=1
        )
        return {
            member: cells[0].value for member, cells in zip(ordered, rows, strict=True) if cells
        }

    def read_all(self) -> dict[str, bytes]:
        """Return all rows by member; none where there is no table yet."""
        found: dict[str, bytes] = {}
        with contextlib.suppress(NoSuchTable):
            for page in self.store.scan(
                self._table, KeyRange(WORKER_PREFIX, b"worker`"), columns=[BEAT], max_versions=1
            ):
                for cells in page:
                    member = cells[0].row.removeprefix(WORKER_PREFIX).decode(errors="replace")
                    found[member] = cells[0].value
        return found

    def names(self) -> dict[str, str]:
        """Say where each member runs, as far as its row can be read."""
        signs = {member: _decoded(raw) for member, raw in self.read_all().items()}
        return {
            member: "a newer omidpy" if sign is None else f"process {sign.pid} on {sign.host}"
            for member, sign in signs.items()
        }

    def replace(self, member: str, old: bytes | None, new: bytes) -> bool:
        """Write a member's row if it is as expected; None: absent."""
        row = _row(member)
        put = Put(*BEAT, FIXED_VERSION, new)
        return self.store.check_and_mutate(
            self._table, row, BEAT, old, RowMutation(row, (put,)), durable=True
        )

    def forget(self, member: str, old: bytes) -> None:
        """Remove a member's row if it is as expected; its id is never used again."""
        row = _row(member)
        delete = DeleteVersion(*BEAT, FIXED_VERSION)
        self.store.check_and_mutate(
            self._table, row, BEAT, old, RowMutation(row, deletes=(delete,)), durable=True
        )

    def lock(self, slot: int) -> ProcessLock:
        """Take the lock of a slot.

        Raises:
            StorageUnavailable: its holder lives.
        """
        return self.store.lock(f"fate-{slot}", purpose="running operations")


class TableMember:
    """A member whose signs of life are in a table.  `beat` is for one thread at a time."""

    def __init__(self, rows: MemberRows, *, lease_s: float, clock: Clock) -> None:
        """Register; returns once others can see it.

        Raises:
            StorageUnavailable: no member can.
        """
        self._rows = rows
        self._clock = clock
        self._lease_s = lease_s
        self._id = uuid.uuid4().hex
        self._lock: ProcessLock | None = None
        self._is_dead = False
        slot = self._take_slot()
        self._sign = SignOfLife(
            0, round(lease_s * 1000), socket.gethostname(), os.getpid(), slot, this_process()
        )
        self._raw: bytes | None = None
        self._seen_s = clock.monotonic_s()
        try:
            is_written = self._write(self._sign)
            assert is_written, "nobody else has this id"
        except BaseException:
            self._give_back()
            raise

    @property
    def id(self) -> str:
        """The id under which it shows signs of life."""
        return self._id

    def beat(self) -> bool:
        """Show that it lives; see `Member`."""
        if not self._is_dead:
            self._is_dead = not self._write(replace(self._sign, beat=self._sign.beat + 1))
        return not self._is_dead

    def is_trusted(self) -> bool:
        """Say whether no observer can have taken it for dead yet; see `Member`."""
        # Where its file was removed an observer has a lock of its own, and judges by that.
        if self._lock is not None and not self._lock.excludes:
            return False
        age_s = self._clock.monotonic_s() - self._seen_s
        return not self._is_dead and age_s < TRUST * self._lease_s

    def retire(self) -> None:
        """Remove its row, and give its lock back."""
        raw, self._raw = self._raw, None
        try:
            if raw is not None and not self._is_dead:
                self._rows.forget(self._id, raw)
        finally:
            self._is_dead = True
            self._give_back()

    def _write(self, sign: SignOfLife) -> bool:
        # The clock is read before: our own idea of the sign's age is never too young.
        now_s = self._clock.monotonic_s()
        encoded = msgspec.json.encode(sign)
        is_written = self._rows.replace(self._id, self._raw, encoded)
        # Found different: unless the answer to an earlier attempt of ours was lost, we are dead.
        if not is_written:
            if self._rows.read([self._id]).get(self._id) != encoded:
                reached("life.taken_for_dead", "F4")
                return False
            reached("life.own_beat_found", "F4")
        self._raw, self._sign, self._seen_s = encoded, sign, now_s
        return True

    def _take_slot(self) -> int | None:
        if not self._rows.store.capabilities.process_locks:
            return None
        signs = {member: (raw, _decoded(raw)) for member, raw in self._rows.read_all().items()}
        for slot in range(MAX_SLOTS):
            try:
                self._lock = self._rows.lock(slot)
            except StorageUnavailable:
                continue
            for member, (raw, sign) in signs.items():
                if sign is not None and sign.slot == slot:
                    self._rows.forget(member, raw)
            return slot
        return None

    def _give_back(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


class TableJudge:
    """Judges members whose signs of life are in a table."""

    def __init__(self, rows: MemberRows, clock: Clock) -> None:
        self._rows = rows
        self._clock = clock
        self._watched: dict[str, _Watched] = {}

    def dead(self, members: Collection[str]) -> frozenset[str]:
        """Return those that are dead; see `Judge`.

        It watches every member that there is, so that it knows those whose turn comes later.

        Cost: 1 RPC.
        """
        rows = self._rows.read_all()
        # After the read: what was seen then may be older than this, and never younger.
        now_s = self._clock.monotonic_s()
        watched: dict[str, _Watched] = {}
        dead = set(members) - set(rows)
        for member, raw in rows.items():
            sign = _decoded(raw)
            lease_s = UNKNOWN_LEASE_S if sign is None else sign.lease_ms / 1000
            before = self._watched.get(member)
            since_s = now_s
            if before and before.raw == raw and now_s - before.looked_s <= lease_s / 2:
                since_s = before.since_s
            watched[member] = _Watched(raw, since_s, now_s)
            if member in members and (
                now_s - since_s > lease_s or (sign is not None and self._has_ended(sign))
            ):
                dead.add(member)
        self._watched = watched
        return frozenset(dead)

    def _has_ended(self, sign: SignOfLife) -> bool:
        """Say whether a member's process is gone, or the lock free that it holds for life."""
        if sign.process is not None and has_ended(sign.process):
            return True
        if sign.slot is None:
            return False
        try:
            self._rows.lock(sign.slot).release()
        except StorageUnavailable:
            return False
        return True


class _Watched(NamedTuple):
    """A member's row as a judge has seen it."""

    raw: bytes
    since_s: float
    looked_s: float


def _row(member: str) -> bytes:
    return WORKER_PREFIX + member.encode()


def _decoded(raw: bytes) -> SignOfLife | None:
    """Read a sign of life; None if it is one of a later form, which is judged by its bytes."""
    try:
        return msgspec.json.decode(raw, type=prepared(SignOfLife))
    except UNREADABLE:
        return None
