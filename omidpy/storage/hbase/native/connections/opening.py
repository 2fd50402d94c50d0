"""How does a conversation with a server begin?  TLS, who calls, and which service is called.

Blocks, within a limit of time, and leaves a socket over which calls go.

Where HBase does not answer to the opening, which it never does without authentication, a client
learns only from its first call that the two do not agree.  `objection` then asks the server by
connections of its own what it misses.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from typing import Final

from omidpy.storage.hbase.native.connections import diagnosis
from omidpy.storage.hbase.native.faults import Disagreed
from omidpy.storage.hbase.native.security.layers import TLS_OPTIONS, Layer, Stack, TlsLayer
from omidpy.storage.hbase.native.security.sasl import Mechanism, Negotiation
from omidpy.storage.hbase.native.security.settings import Security
from omidpy.storage.hbase.native.wire import frames
from omidpy.wire.tls import LEFT, TlsStream, refusal

NEEDS_TLS: Final = (
    "it speaks TLS; add tls=on to the address, and tls_ca=FILE for the authority that signed its "
    "certificate"
)
NEEDS_NO_TLS: Final = (
    "it speaks HBase's protocol without TLS; leave tls=on out of the address, or enable TLS there "
    "(hbase.server.netty.tls.enabled)"
)

OBJECTION_S: Final = 2.0
"""How long a server is asked what it misses."""

_READ_BYTES: Final = 16 * 1024


class Pipe:
    """A socket that is waited for until some moment, and the layers above it so far."""

    def __init__(self, connected: socket.socket, until_s: float) -> None:
        """Begin without a layer."""
        self._socket = connected
        self._until_s = until_s
        self.layer: Layer | None = None

    def send(self, data: bytes) -> None:
        """Send all of it."""
        self._in_time()
        try:
            self._socket.sendall(data if self.layer is None else self.layer.seal(data))
        except ConnectionError:
            self._hear_last_words()
            raise

    def _hear_last_words(self) -> None:
        """Raise what the server said before it hung up, such as that it wants a certificate."""
        if self.layer is None:
            return
        # An alert of another kind, or nothing, says no more than that the connection broke.
        with contextlib.suppress(OSError):
            self.layer.open(self._socket.recv(_READ_BYTES))

    def receive(self) -> bytes:
        """Return what comes next.

        Raises:
            ConnectionError: nothing comes any more.
            TimeoutError: nothing came in time.
        """
        while True:
            self._in_time()
            arrived = self._socket.recv(_READ_BYTES)
            said = arrived if self.layer is None or not arrived else self.layer.open(arrived)
            if said:
                return said
            if not arrived or (self.layer is not None and self.layer.is_over):
                raise ConnectionResetError("the server closed the connection")

    def _in_time(self) -> None:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the server does not answer in time")
        self._socket.settimeout(left_s)


def open_conversation(
    connected: socket.socket,
    service: str,
    *,
    user: str,
    security: Security,
    host: str,
    until_s: float,
) -> tuple[Layer | None, str]:
    """Begin a conversation.

    Returns what calls are sealed with, None if they are not; and what secures it, in a few words.

    Args:
        connected: A socket that nothing was sent over.
        service: Of the server, as HBase calls it.
        user: Who calls, where HBase believes it.
        security: What else is asked for.
        host: The name by which the server is called.
        until_s: When to give up, by `time.monotonic`.

    Raises:
        Disagreed: the two do not agree upon how to speak.
        NoTicket: we cannot prove who we are.
        Garbled: the server's part of a negotiation is none.
        OSError: the connection broke, or took too long.
    """
    pipe = Pipe(connected, until_s)
    if security.tls is not None:
        pipe.layer = _tls(pipe, security, host)
    if security.sasl is None:
        pipe.send(frames.opening(service, user))
        return pipe.layer, security.described()
    mechanism = security.mechanism(host)
    above = _proved(pipe, mechanism)
    if above is not None:
        pipe.layer = above if pipe.layer is None else Stack((pipe.layer, above))
    pipe.send(frames.connection_header(service, None))
    return pipe.layer, security.described(mechanism.code)


def _proved(pipe: Pipe, mechanism: Mechanism) -> Layer | None:
    """Prove who calls; return what seals what follows, None if nothing does."""
    negotiation = Negotiation(mechanism)
    pipe.send(negotiation.start())
    while not negotiation.is_done:
        if answer := negotiation.receive(pipe.receive()):
            pipe.send(answer)
    return mechanism.layer()


def _tls(pipe: Pipe, security: Security, host: str) -> TlsLayer:
    """Shake hands, and make sure who is there."""
    assert security.tls is not None
    stream = TlsStream(security.tls(), server_name=security.tls_name or host)
    stream.start()
    try:
        while not stream.is_open:
            pipe.send(stream.to_send())
            stream.receive(pipe.receive())
        pipe.send(stream.to_send())
    except ssl.SSLZeroReturnError as error:
        raise ConnectionResetError(LEFT) from error
    except ssl.SSLError as error:
        with contextlib.suppress(OSError):
            pipe.send(stream.to_send())  # the reason, for the server's log
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            raise Disagreed(NEEDS_NO_TLS) from error
        raise Disagreed(refusal(error, prefix=TLS_OPTIONS)) from error
    return TlsLayer(stream)


def objection(host: str, port: int, security: Security) -> Disagreed | None:
    """Ask a server that ended a conversation without a word what it misses; None: it does not say.

    Cost: a connection, for `OBJECTION_S` at most.
    """
    if security.tls is None:
        is_tls = diagnosis.speaks_tls(host, port, OBJECTION_S)
        return Disagreed(NEEDS_TLS) if is_tls else None
    try:
        with socket.create_connection((host, port), timeout=OBJECTION_S) as connected:
            pipe = Pipe(connected, time.monotonic() + OBJECTION_S)
            pipe.layer = _tls(pipe, security, host)
            pipe.receive()
    except Disagreed as error:
        return error
    except OSError:
        return None
    return None
