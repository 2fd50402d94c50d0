"""Is a call that failed made again, and when?  And what is its failure called, if not?

Decides over what happened; `calls.py` acts.  A call that may not be done twice is made again only
if its failure says that it has certainly not been executed.  Any other is, if the failure may pass:
at once after a region that was elsewhere or a broken connection, else after a pause
(`base/pauses.py`), or as long as the server says.  The bound is in attempts and in time.

Where no server has ever answered a call is made once: the address is probably wrong, and its user
is waiting to be told.  Once one has, the address is right, so that who does not agree with us about
TLS or Kerberos, in the middle of a change of certificates or keys, may do so soon.

The rules are those of the gateways' calls (`rpc/attempts.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NoReturn

from omidpy.base.timing.pauses import Pauses
from omidpy.errors import OmidError, StorageUnavailable
from omidpy.storage.hbase.native.address import NativeAddress
from omidpy.storage.hbase.native.faults import (
    CallFailed,
    Fault,
    Forgotten,
    Garbled,
    Kind,
    TooLarge,
)
from omidpy.storage.hbase.native.translate import translate

MAX_ATTEMPTS: Final = 100
"""Attempts of one call at most, whatever time they take."""

SURE_ATTEMPTS: Final = 2
"""Attempts of a call that may be made again, whatever `retry_s` says."""

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 2.0
"""The pause before an attempt has a cap that doubles between these two."""


class Attempts:
    """The failures of one call, from the first on."""

    def __init__(
        self,
        address: NativeAddress,
        what: str,
        table: str | None,
        *,
        is_repeatable: bool,
        has_answered: Callable[[], bool],
        now_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
        draw: Callable[[], float] | None = None,
    ) -> None:
        """Begin with no failure.

        Args:
            address: What was opened.
            what: The call in words.
            table: The table that it is about, if any.
            is_repeatable: Making the call twice has the effect of making it once.
            has_answered: Whether a server has ever answered a call.
            now_s: Elapsed time.
            pause: Wait for some seconds.
            draw: A number in [0, 1) for the pauses.
        """
        self._address = address
        self._what = what
        self._table = table
        self.is_repeatable = is_repeatable
        self._has_answered = has_answered
        self._now_s = now_s
        self._pause = pause
        self._first_s = now_s()
        self._pauses = Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S, draw=draw)
        self.count = 0

    def pause_or_raise(self, error: Exception, where: str | None = None) -> None:
        """Wait before the next attempt, or raise what the failure of this one means.

        Args:
            error: What was raised.
            where: The server that was asked.
        """
        self.count += 1
        if not self._may_repeat(error):
            self.give_up(error, where)
        asked_s = error.wait_s if isinstance(error, Fault) else 0.0
        if self.count > 1 or not _is_momentary(error) or asked_s:
            self._pause(max(asked_s, self._pauses.next_s()))

    def _may_repeat(self, error: Exception) -> bool:
        if isinstance(error, OmidError):
            if not (isinstance(error, StorageUnavailable) and error.retryable):
                return False
        else:
            is_safe = isinstance(error, CallFailed) and (self.is_repeatable or error.is_certain)
            if not is_safe or _is_final(error):
                return False
        if not self._has_answered():
            return False
        if self.count < SURE_ATTEMPTS:
            return True
        elapsed_s = self._now_s() - self._first_s
        if isinstance(error, Fault):
            elapsed_s += error.wait_s
        return self.count < MAX_ATTEMPTS and elapsed_s < self._address.retry_s

    def give_up(self, error: Exception, where: str | None = None) -> NoReturn:
        """Raise what a failure means."""
        if isinstance(error, OmidError):
            raise error
        is_certain = isinstance(error, CallFailed) and error.is_certain
        raise translate(
            error,
            address=self._address,
            what=self._what,
            where=where,
            table=self._table,
            is_outcome_unknown=not self.is_repeatable and not is_certain,
            was_answered=self._has_answered(),
        ) from error


def _is_final(error: Exception) -> bool:
    """Say whether the next attempt would fail likewise."""
    if isinstance(error, Fault):
        return error.kind is Kind.PERMANENT
    return isinstance(error, Forgotten | Garbled | TooLarge)


def _is_momentary(error: Exception) -> bool:
    """Say whether the next attempt, made at once, may well succeed."""
    if isinstance(error, Fault):
        return error.kind in (Kind.MISPLACED, Kind.LEFT)
    return isinstance(error, CallFailed)
