"""Is a call still known again by the numbers that it carries?

HBase does a call with the same numbers once, however often it comes, as long as it remembers them.
A region server remembers half an hour (`hbase.server.hashNonce.gracePeriod`), and does not tell the
next one that gets the region: that one learns only what it replays of a log.  The master remembers
a procedure for a quarter of an hour behind its end (`hbase.procedure.cleaner.evict.ttl`), and so
does the next master.  Behind that the same call is another one, and would be done again; so whether
the first one was done is not known then, and it is not made again.

Time counts as it passes, also while this process is stopped or the machine asleep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from omidpy.base.timing.clock import SystemClock
from omidpy.errors import ConfigError, OmidError, StorageUnavailable
from omidpy.storage.hbase.native.faults import CallFailed, Fault, Forgotten
from omidpy.storage.hbase.native.values import ServerName

REMEMBERED_S: Final = 600.0
"""For how long behind its first attempt a call is trusted to be known."""


class Recognition:
    """Whether HBase knows one call again, an attempt of which may have been executed."""

    def __init__(self, *, now_s: Callable[[], float] = SystemClock.monotonic_s) -> None:
        """Begin without an attempt."""
        self._now_s = now_s
        self._begun_s = 0.0
        self._server: ServerName | None = None
        self._doubt: CallFailed | None = None
        self.is_unanswered = False
        """Whether an attempt that may have been executed has no answer at all."""

    def begin(self, server: ServerName | None) -> None:
        """Begin an attempt at a server; None is the master, whichever that is.

        Raises:
            Forgotten: an earlier one may have been executed, and is not known there.
        """
        if self._doubt is None:
            self._begun_s, self._server = self._now_s(), server
        elif server != self._server:
            raise Forgotten(f"{self._doubt}; by now {server} has its region, and would do it again")
        elif isinstance(self._doubt, Fault) and self._doubt.is_behind_change:
            # To HBase it has failed, so that it forgets its numbers, whatever it has written.
            raise Forgotten(f"{self._doubt}; HBase might do it again")
        elif self._now_s() - self._begun_s > REMEMBERED_S:
            raise Forgotten(f"{self._doubt}; so long ago that HBase might do it again")

    def note(self, error: Exception) -> None:
        """Note how an attempt failed."""
        if not isinstance(error, CallFailed) or error.is_certain:
            return
        if self._doubt is None:
            self._doubt = error
        if not isinstance(error, Fault):
            self.is_unanswered = True

    def told(self, error: OmidError) -> OmidError:
        """Return what to raise in place of an error, which says nothing of earlier attempts."""
        if self._doubt is None or not isinstance(error, ConfigError | StorageUnavailable):
            return error
        return StorageUnavailable(f"{error}; whether it was applied is not known")
