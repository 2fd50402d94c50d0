"""Is a call that failed made again, and when?  And what is its failure called, if not?

Decides over what happened; the pool acts.  A call that was sent and is not idempotent is never made
again.  Any other is, if the failure may pass: at once after a broken connection, else after a pause
(`base/pauses.py`).  The bound is in attempts and in time.

A pool that no gateway ever answered tries each of them once and no more: the address is probably
wrong, and its user is waiting to be told.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, NoReturn

from thriftpy2.transport import TTransportException

from omidpy.base.timing.pauses import Pauses
from omidpy.errors import OmidError, UsageError
from omidpy.storage.hbase.addresses.gateways import Gateway, HBaseAddress
from omidpy.storage.hbase.rpc.gateway import CallNotSent
from omidpy.storage.hbase.rpc.translate import is_declared, is_transient, translate

MAX_ATTEMPTS: Final = 50
"""Attempts of one call at most, whatever time they take."""

SURE_ATTEMPTS: Final = 2
"""Attempts of a call that may be made again, whatever `retry_s` says."""

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
"""The pause before an attempt has a cap that doubles between these two."""


class NoGateway(Exception):
    """No gateway could be connected to; `__cause__` says why the last one could not."""


class CallAttempts:
    """The failures of one call, from the first on."""

    def __init__(
        self,
        address: HBaseAddress,
        what: str,
        table: str | None,
        *,
        is_idempotent: bool,
        has_answered: Callable[[Gateway | None], bool],
        now_s: Callable[[], float],
        pause: Callable[[float], object],
        rng: random.Random,
    ) -> None:
        """Begin with no failure.

        Args:
            address: Where calls go.
            what: The call in words.
            table: The table that it is about, if any.
            is_idempotent: Making the call twice has the effect of making it once.
            has_answered: Whether a gateway (None: any) has ever answered a call.
            now_s: Elapsed time.
            pause: Wait for some seconds.
            rng: Draws the pauses.
        """
        self._address = address
        self._what = what
        self._table = table
        self._is_idempotent = is_idempotent
        self._has_answered = has_answered
        self._now_s = now_s
        self._pause = pause
        self._first_s = now_s()
        self._count = 0
        self._pauses = Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S, draw=rng.random)

    def pause_or_raise(self, gateway: Gateway | None, error: Exception) -> None:
        """Wait before the next attempt, or raise what the failure of this one means.

        Args:
            gateway: Where the call was made; None if no connection was got.
            error: What was raised.
        """
        self._count += 1
        if not self._may_repeat(gateway, error):
            self.give_up(gateway, error)
        # One broken connection says little of the next; a gateway or an HBase that needs time gets
        # it.
        if self._count > 1 or gateway is None or is_declared(error):
            self._pause(self._pauses.next_s())

    def _may_repeat(self, gateway: Gateway | None, error: Exception) -> bool:
        if isinstance(error, OmidError) or is_argument(error):
            return False
        if not self._is_idempotent and was_sent(gateway, error):
            return False
        if not is_transient(cause_of(error)):
            return False
        if not self._has_answered(None):
            return gateway is not None and self._count < len(self._address.gateways)
        if self._count < SURE_ATTEMPTS:
            return True
        elapsed_s = self._now_s() - self._first_s
        return self._count < MAX_ATTEMPTS and elapsed_s < self._address.retry_s

    def give_up(self, gateway: Gateway | None, error: Exception) -> NoReturn:
        """Raise what a failure means."""
        if isinstance(error, OmidError):
            raise error
        cause = cause_of(error)
        if is_argument(error):
            raise UsageError(f"{self._what}: an argument does not fit: {cause}") from cause
        raise translate(
            cause,
            address=self._address,
            table=self._table,
            what=self._what,
            gateway=gateway,
            is_first_contact=not self._has_answered(gateway),
            is_outcome_unknown=not self._is_idempotent and was_sent(gateway, error),
        ) from cause


def was_sent(gateway: Gateway | None, error: Exception) -> bool:
    """Say whether the gateway may have executed the call."""
    return gateway is not None and not isinstance(error, CallNotSent)


def is_argument(error: Exception) -> bool:
    """Say whether the call could not be written because of its arguments."""
    return isinstance(error, CallNotSent) and not isinstance(
        error.__cause__, OSError | EOFError | TTransportException
    )


def cause_of(error: Exception) -> BaseException:
    """Return what lies behind `CallNotSent` and `NoGateway`."""
    if isinstance(error, CallNotSent | NoGateway) and error.__cause__ is not None:
        return error.__cause__
    return error
