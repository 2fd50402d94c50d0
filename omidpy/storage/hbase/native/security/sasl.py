"""The bytes by which a client of HBase and a server agree upon who calls: SASL.  No I/O.

The client sends a preamble that names the mechanism, and a token with its length before it.  The
server answers with a status, and a token of its own or, after a failure, a Java class and a
message; so they go on until the mechanism is content.  A server without authentication offers to go
on without, which is never taken: a client that asks for Kerberos is not to be talked out of it.

Every length is held against a greatest one before a byte behind it is kept.

Source: `SaslUtil`, `SaslChallengeDecoder` and `ServerRpcConnection` of HBase 2.6.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import Final, Protocol

from omidpy.base.within import within
from omidpy.errors import RemoteProtocolError
from omidpy.storage.hbase.native.faults import (
    LONGEST_QUOTE,
    CallFailed,
    Disagreed,
    Garbled,
    first_line,
)
from omidpy.storage.hbase.native.security.layers import Layer
from omidpy.storage.hbase.native.wire import answers, frames
from omidpy.storage.hbase.native.wire.frames import FrameSplitter

KERBEROS: Final = 81
DIGEST: Final = 82
"""Codes of authentication in the preamble."""

LONGEST_TOKEN_BYTES: Final = 1024 * 1024
LONGEST_TEXT_BYTES: Final = 64 * 1024

NEEDS_NO_AUTHENTICATION: Final = (
    "it has no authentication (hbase.security.authentication=simple); leave sasl out of the address"
)

_INT: Final = struct.Struct(">i")
_SUCCESS, _ERROR = 0, 1
_GO_ON_WITHOUT: Final = -88


class Mechanism(Protocol):
    """One way to prove who calls.  Every method may raise `Disagreed`, `NoTicket` or `Garbled`."""

    @property
    def code(self) -> int:
        """What stands for it in the preamble."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether both sides are content."""
        ...

    def first(self) -> bytes:
        """Return the first token; empty where the server speaks first."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """Return the token that answers the server's; None: nothing is to be sent."""
        ...

    def refused(self, class_name: str, text: str) -> CallFailed:
        """Return what a refusal of the server means, and the remedy."""
        ...

    def layer(self) -> Layer | None:
        """Return what the rest of the conversation is sealed with; None: it is not."""
        ...


class Negotiation:
    """The client's half of a negotiation."""

    def __init__(self, mechanism: Mechanism) -> None:
        """Begin without a word."""
        self._mechanism = mechanism
        self._arrived = b""

    @property
    def is_done(self) -> bool:
        """Whether both sides are content."""
        return self._mechanism.is_done

    def start(self) -> bytes:
        """Return what to send first."""
        preamble = frames.MAGIC + bytes((self._mechanism.code,))
        return preamble + _framed(self._mechanism.first())

    def receive(self, data: bytes) -> bytes:
        """Take what arrived; return what to send, which may be nothing.

        Raises:
            Disagreed: the server wants another kind of authentication, or none.
            NoTicket: we cannot prove who we are.
            Garbled: it is no part of a negotiation.
        """
        self._arrived += data
        status = self._int(0)
        if status is None:
            return b""
        if status == _ERROR:
            self._refuse()
            return b""
        if status != _SUCCESS:
            self._refuse_by_frame(status)
            return b""
        length = self._int(4)
        if length is None:
            return b""
        if length == _GO_ON_WITHOUT:
            raise Disagreed(NEEDS_NO_AUTHENTICATION)
        if not 0 <= length <= LONGEST_TOKEN_BYTES:
            raise Garbled(f"a token of SASL claims {length} bytes")
        end = 8 + length
        if len(self._arrived) < end:
            return b""
        challenge, self._arrived = self._arrived[8:end], self._arrived[end:]
        answer = self._mechanism.answer(challenge)
        if self._arrived:
            raise Garbled("the server went on before it was answered")
        return b"" if answer is None else _framed(answer)

    def _refuse(self) -> None:
        """Raise what the server says, once all of it is there."""
        texts: list[str] = []
        at = 4
        for _ in range(2):
            length = self._int(at)
            if length is None:
                return
            if not -1 <= length <= LONGEST_TEXT_BYTES:
                raise Garbled(f"the reason for a refusal claims {length} bytes")
            at += 4 + max(0, length)
            if len(self._arrived) < at:
                return
            texts.append(self._arrived[at - max(0, length) : at].decode(errors="replace"))
        name = texts[0].rpartition(".")[2]
        raise self._mechanism.refused(name, first_line(texts[1]))

    def _refuse_by_frame(self, length: int) -> None:
        """Raise what the server says in an answer to no call, once all of it is there."""
        if not 0 < length <= LONGEST_TEXT_BYTES:
            raise Garbled(f"it sent {self._arrived[:16]!r} in answer to SASL")
        if len(self._arrived) < 4 + length:
            return
        fault = answers.answer(self._arrived[4 : 4 + length]).fault
        if fault is None:
            raise Garbled("the server answered to no call")
        raise self._mechanism.refused(fault.class_name, first_line(fault.text))

    def _int(self, at: int) -> int | None:
        if len(self._arrived) < at + 4:
            return None
        found: int = _INT.unpack_from(self._arrived, at)[0]
        return found


def _framed(token: bytes) -> bytes:
    return _INT.pack(len(token)) + token


def quoted(text: str) -> str:
    """Return what a library or a server said, for a message of one line."""
    return " ".join(text.split())[:LONGEST_QUOTE]


class SaslLayer:
    """What a mechanism has agreed upon for the rest of the conversation.

    Each part of what is sent becomes a token with its length before it; parts have nothing to do
    with HBase's frames.
    """

    is_over = False

    def __init__(
        self,
        wrap: Callable[[bytes], bytes],
        unwrap: Callable[[bytes], bytes],
        *,
        part_bytes: int,
        max_token_bytes: int = frames.MAX_FRAME_BYTES + LONGEST_TOKEN_BYTES,
    ) -> None:
        """Seal by `wrap` and open by `unwrap`, which raise `Garbled`.

        Args:
            wrap: Makes a token of a part.
            unwrap: Returns the part.
            part_bytes: The longest part that the server takes.
            max_token_bytes: The longest token that is read; HBase makes one of a whole answer.
        """
        self._wrap = wrap
        self._unwrap = unwrap
        self._part_bytes = part_bytes
        self._splitter = FrameSplitter(max_token_bytes)
        self._lock = threading.Lock()

    def seal(self, data: bytes) -> bytes:
        """Return tokens, each with its length before it."""
        return within(self._lock, self._seal, data)

    def _seal(self, data: bytes) -> bytes:
        parts = range(0, len(data), self._part_bytes)
        return b"".join(_framed(self._wrap(data[at : at + self._part_bytes])) for at in parts)

    def open(self, arrived: bytes) -> bytes:
        """Return what whole tokens say."""
        return within(self._lock, self._open, arrived)

    def _open(self, arrived: bytes) -> bytes:
        self._splitter.incoming.append(arrived)
        try:
            return b"".join(map(self._unwrap, self._splitter.frames()))
        except RemoteProtocolError as error:
            raise Garbled(str(error)) from error
