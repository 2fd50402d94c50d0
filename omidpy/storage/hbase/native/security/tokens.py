"""Delegation tokens: how does a task in another process prove who calls, without a ticket?

A process with a ticket asks HBase for a token and hands it on; who holds it is taken for its owner,
until it ends, which is 7 days after it was given out unless HBase's settings differ.  A token gets
no other token, and none is renewed: a driver fetches another when half of the time of its last one
is over, and hands that on with what it sends from then on.

A token is secret.  It stands in no address, command line or message, and a `Token` shows itself to
nobody: it travels pickled, inside what Spark sends to its tasks.

Source: `Authentication.proto` and `TokenUtil` of HBase 2.6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from omidpy.base.timing.clock import SystemClock
from omidpy.errors import RemoteProtocolError
from omidpy.storage.hbase.native.faults import Garbled, NoTicket
from omidpy.storage.hbase.native.values import META_REGION
from omidpy.storage.hbase.native.wire.messages import B1, B2, B3, B4, V4, V5, region_specifier
from omidpy.wire.protobuf import fields, put_bytes

_SERVICE: Final = b"AuthenticationService"
_METHOD: Final = b"GetAuthenticationToken"

LONGEST_PART_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Token:
    """A token; it shows itself to nobody."""

    identifier: bytes = field(repr=False)
    password: bytes = field(repr=False)
    service: str = ""
    """The id of the HBase that gave it out."""

    @property
    def issued_ms(self) -> int:
        """When it was given out, in milliseconds since 1970; 0 if it does not say."""
        return self._number(V4)

    @property
    def ends_ms(self) -> int:
        """When it ends; 0 if it does not say."""
        return self._number(V5)

    @property
    def lasts_ms(self) -> int:
        """For how long HBase takes it, by its own clock; 0 if it does not say."""
        return max(self.ends_ms - self.issued_ms, 0)

    def _number(self, wanted: int) -> int:
        message = self.identifier
        if int.from_bytes(message[:4]) == len(message) - 4:
            message = message[4:]  # as HBase 2.6 has it; those before it have the message alone
        try:
            found = dict(fields(message)).get(wanted, 0)
        except RemoteProtocolError:
            return 0
        return found if isinstance(found, int) else 0

    def is_good_for_long(self, now_ms: int) -> bool:
        """Whether less than half of its time is over, so that it is worth handing on."""
        return now_ms < (self.issued_ms + self.ends_ms) // 2

    def has_ended(self, now_ms: int) -> bool:
        """Whether HBase takes it no more; one that does not say is believed."""
        return 0 < self.ends_ms <= now_ms

    def check(self, now_ms: int) -> None:
        """Refuse one that has ended.

        Raises:
            NoTicket: it has.
        """
        if self.has_ended(now_ms):
            raise NoTicket(
                "the token that this process was handed has ended, by the date of this machine; "
                "set that right if it is wrong, else start the job again, whose driver then "
                "fetches another"
            )


def token_request() -> bytes:
    """Return the parameter of `ExecService` that asks the catalogue's region for a token."""
    call = bytearray()
    put_bytes(call, B1, b"")
    put_bytes(call, B2, _SERVICE)
    put_bytes(call, B3, _METHOD)
    put_bytes(call, B4, b"")
    out = bytearray()
    put_bytes(out, B1, region_specifier(META_REGION))
    put_bytes(out, B2, call)
    return bytes(out)


def read_token(body: bytes) -> Token:
    """Read the answer.

    Raises:
        Garbled: there is no token in it.
    """
    try:
        value = _part(_part(body, B2), B2)
        token = _part(value, B1)
        identifier, password = _part(token, B1), _part(token, B2)
        service = _part(token, B3)
    except RemoteProtocolError as error:
        raise Garbled(f"the answer with a token cannot be read: {error}") from error
    if not identifier or not password or len(body) > LONGEST_PART_BYTES:
        raise Garbled("the answer has no token")
    return Token(identifier, password, service.decode(errors="replace"))


def _part(message: bytes, key: int) -> bytes:
    return next(
        (value for number, value in fields(message) if number == key and isinstance(value, bytes)),
        b"",
    )


# -- what this process was handed ------------------------------------------------------------------

_held: dict[str, Token] = {}


def hold(url: str, token: Token) -> None:
    """Use a token for the store of an address from now on, in place of a ticket.

    A process of Spark's runs tasks of one job after another: one that was sent early must not put
    an older token in place of a younger one.
    """
    before = _held.get(url)
    if before is None or not 0 < token.ends_ms < before.ends_ms:
        _held[url] = token


def held(url: str) -> Token | None:
    """Return the token that this process was handed for a store."""
    return _held.get(url)


class Source:
    """Tokens for other processes: one that is good for long is handed on again."""

    def __init__(
        self,
        fetch: Callable[[], Token],
        now_s: Callable[[], float] = SystemClock.monotonic_s,
    ) -> None:
        """Fetch tokens by a function; `now_s` is elapsed time, since dates differ, and are set."""
        self._fetch = fetch
        self._now_s = now_s
        self._last: tuple[Token, float] | None = None

    def token(self) -> Token:
        """Return one.  Cost: 1 RPC, unless the last one is good.

        Two threads may fetch one each.  A lock would be another process's for ever where it is held
        during a fork.
        """
        last, now_s = self._last, self._now_s()
        if last is None or 1000 * (now_s - last[1]) >= last[0].lasts_ms / 2:
            last = self._last = self._fetch(), now_s  # from before: it is no younger
        return last[0]
