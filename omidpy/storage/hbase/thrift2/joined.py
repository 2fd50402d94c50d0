"""Who sends the small puts of many threads, and with whose?

Group commit, without timers.  A thread that finds no call for its table under way makes its own at
once.  Those that come meanwhile wait; when the call ends one of them makes a single call of all
their puts, and so on.  A row in a call of forty costs the gateway and HBase a fifth of what it
costs alone.

It has no errors of its own.  A joint call that fails tells neither whose row was at fault nor which
rows were written; and one that is slow may be held up by a row in another client's region.  In both
cases each member sends its own puts once more and alone, as if it had never waited: after a failure
at once, and after `PATIENCE_S` in line.  Nothing is lost by that, since a put names its version, so
that the same put twice is the same cell.  But a copy that was given up may be written late, so this
is not for values that are written over at their version: the old one could come back.

Invariants:

* `write` returns only after a call with all of its own puts was acknowledged, to this thread or to
  the one that made the joint call.
* While threads wait for a table, one is under way with a call for it, and wakes them when it ends,
  however it ends.
* A call that has been under way for `PATIENCE_S` is no reason to wait; nor is a turn that a thread
  lost which an exception took out of its call.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from omidpy.base.within import within
from omidpy.errors import OmidError
from omidpy.storage import forking
from omidpy.storage.hbase.rpc.gateway import Unanswered
from omidpy.storage.hbase.thrift2.convert import RowWrite

log = logging.getLogger(__name__)

MAX_ROWS: Final = 20
"""More rows than that make a call of their own: others would wait for them."""

MAX_BYTES: Final = 32 * 1024
"""As many bytes do."""

MAX_MEMBERS: Final = 16
"""Writes that one call joins: with all of them as large as may be it is half a framed batch."""

PATIENCE_S: Final = 1.0
"""A hundred times what a call takes under load, and less than a region takes to move."""


class Put(Protocol):
    """How puts of a table are sent."""

    def __call__(self, table: str, puts: Sequence[Any], *, patience_s: float | None) -> None:
        """Send them in one call.

        Args:
            table: Whose they are.
            puts: `TPut`s.
            patience_s: None: as long and as often as a call may take.  Else make the call once, and
                wait no longer.
        """
        ...


class _Member:
    """One write that waits for its turn."""

    __slots__ = ("group", "is_written", "puts", "wake")

    def __init__(self, puts: Sequence[Any]) -> None:
        self.puts = puts
        self.group: list[_Member] = []
        """Set when its turn has come: the writes that its call carries, its own first."""
        self.is_written = False
        self.wake = threading.Lock()
        self.wake.acquire()


class _Line:
    """Those who wait for one table, and since when a call is under way."""

    __slots__ = ("since_s", "turn", "waiting")

    def __init__(self) -> None:
        self.turn: list[_Member] | None = None
        """The writes of the joint call under way; empty if a thread is calling for itself alone."""
        self.since_s = 0.0
        self.waiting: list[_Member] = []


class JoinedPuts:
    """Joins the puts of threads that write to one table at the same time.  Safe after a fork."""

    def __init__(
        self,
        put: Put,
        *,
        patience_s: float = PATIENCE_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Send by `put`, and wait for others no longer than `patience_s`, measured by `now_s`."""
        self._put = put
        self._patience_s = patience_s
        self._now_s = now_s
        self._lock = threading.Lock()
        self._lines: dict[str, _Line] = {}
        forking.register(self)

    def takes(self, writes: Sequence[RowWrite]) -> bool:
        """Say whether writes are small enough to wait for each other."""
        return 0 < len(writes) <= MAX_ROWS and sum(one.size_bytes for one in writes) <= MAX_BYTES

    def write(self, table: str, puts: Sequence[Any]) -> None:
        """Write puts, alone or with those of others.

        Raises:
            OmidError: as `put` does for these puts alone.

        Cost: 1 RPC, or a share of one; 1 more after a failure that was shared.
        """
        turn: list[_Member] = []
        member = _Member(puts)
        line, goes_first = within(self._lock, self._enter, table, turn, member)
        if goes_first:
            try:
                self._put(table, puts, patience_s=None)
            finally:
                # However the call ended: no other thread wakes those that came meanwhile.
                self._pass_on(line, turn)
        elif not self._wait(table, line, member):
            self._put(table, puts, patience_s=None)

    def _enter(self, table: str, turn: list[_Member], member: _Member) -> tuple[_Line, bool]:
        """Take the turn or a place behind it; return the line, and whether it was the turn."""
        line = self._lines.setdefault(table, _Line())
        now_s = self._now_s()
        if line.turn is None or now_s - line.since_s > self._patience_s:
            line.turn, line.since_s = turn, now_s
            return line, True
        # Under the lock that the end of a call takes: either it finds this one, or this one finds
        # that no call is under way.
        line.waiting.append(member)
        return line, False

    def _wait(self, table: str, line: _Line, member: _Member) -> bool:
        """Wait until `member` is written for, or its turn has come; say whether it is written."""
        try:
            member.wake.acquire(timeout=self._patience_s)
        except BaseException:
            self._leave(line, member)
            raise
        # Its turn may have come in the moment in which it lost patience: a member that is called
        # writes for its group, since no other thread will.
        if self._is_called(line, member):
            self._write_for(table, line, member.group)
        return member.is_written

    def _is_called(self, line: _Line, member: _Member) -> bool:
        """Take `member` out of the line, and say whether it is its turn to write for a group."""
        within(self._lock, self._step_out, line, member)
        return bool(member.group)

    def _step_out(self, line: _Line, member: _Member) -> None:
        if member in line.waiting:
            line.waiting.remove(member)

    def _leave(self, line: _Line, member: _Member) -> None:
        """Leave a line without writing; those this one was to write for write alone."""
        if self._is_called(line, member):
            self._end(line, member.group, is_written=False)

    def _write_for(self, table: str, line: _Line, group: list[_Member]) -> None:
        """Write for a group and pass the turn on."""
        puts = [put for member in group for put in member.puts]
        is_written = False
        try:
            self._put(table, puts, patience_s=self._patience_s)
            is_written = True
        except (OmidError, Unanswered) as error:
            log.debug("%d joined puts of table %r are sent one by one: %s", len(puts), table, error)
        finally:
            self._end(line, group, is_written=is_written)

    def _end(self, line: _Line, group: list[_Member], *, is_written: bool) -> None:
        # Said of all before any is woken: who wakes looks, and would write again.
        for member in group:
            member.is_written = is_written
        for member in group[1:]:
            member.wake.release()
        self._pass_on(line, group)

    def _pass_on(self, line: _Line, turn: list[_Member]) -> None:
        """Let the next ones begin, unless they have lost patience with this turn."""
        within(self._lock, self._call_next, line, turn)

    def _call_next(self, line: _Line, turn: list[_Member]) -> None:
        # The end of a call that was so slow that the turn was taken from it moves nothing.
        if line.turn is not turn:
            return
        group = line.waiting[:MAX_MEMBERS]
        del line.waiting[:MAX_MEMBERS]
        line.turn = group or None
        if group:
            line.since_s = self._now_s()
            group[0].group = group
            group[0].wake.release()

    # -- fork --------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Keep the lines as they are."""
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Let threads in again."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Begin with none in line: they are threads of the parent."""
        self._lock = threading.Lock()
        self._lines = {}
