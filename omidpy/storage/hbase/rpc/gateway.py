"""One connection to one gateway: socket, TLS, SASL, transport, protocol, and calls over it.

A connection carries one call at a time and belongs to one thread at a time; `pool.py` sees to
that.  It knows nothing of retries.  It keeps two promises of its own:

* an answer is returned only for the call that it answers: the sequence number and the name in the
  reply are compared, so that the late answer to a call that timed out is never taken for another's
* `CallNotSent` says that the gateway has certainly not executed the call

It is written over thriftpy2's protocols and transports instead of its client, which compares
neither, and which opens sockets for IPv4 only and hides why a connection failed.
"""

from __future__ import annotations

import contextlib
import functools
import math
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from thriftpy2.protocol import TBinaryProtocolFactory, TCompactProtocolFactory
from thriftpy2.thrift import TApplicationException, TException, TMessageType
from thriftpy2.transport import TFramedTransportFactory, TSocket

from omidpy.storage.hbase.addresses.gateways import HBaseAddress
from omidpy.storage.hbase.idl import service
from omidpy.wire.peers import PATIENT_OPTIONS, check_not_ourselves, watch_peer
from omidpy.wire.tls import client_files

try:
    from thriftpy2.transport import TCyBufferedTransport as _Buffered
except ImportError:  # thriftpy2 was installed without its compiled part
    from thriftpy2.transport import TBufferedTransport as _Buffered

BUFFER_BYTES: Final = 64 * 1024
"""Bytes of one system call, in place of thriftpy2's 4 KiB.

A batch of 1,000 rows of five cells is 11 writes instead of 173, and its answer is read in a tenth
less of processor time.
"""

SILENCE_S: Final = 3.0
"""A call without an answer acts upon it after so long, and again when the time has doubled."""

_PROMPT_MS: Final = 100
_MAX_SEQUENCE: Final = 2**31 - 1


class CallNotSent(Exception):
    """The gateway has certainly not executed the call; `__cause__` says why it was not sent."""


class Unanswered(Exception):
    """No answer came within the patience of the caller; the call may go on for long."""


class OutOfStep(TException):
    """The answer is to another call than the one that was sent."""

    def __init__(self, sent: str, answered: str) -> None:
        super().__init__()
        self.message = f"sent {sent}, got the answer to {answered}"

    def __str__(self) -> str:
        return self.message


class Client(Protocol):
    """What the pool needs of a connection."""

    def call(
        self,
        method: str,
        *args: Any,
        while_silent: Callable[[], object] | None = None,
        patience_s: float | None = None,
    ) -> Any:
        """Call a method of the gateway and return its answer.

        Raises:
            Unanswered: it took longer than `patience_s`; the connection is of no more use.
        """
        ...

    def call_ahead(
        self, calls: Sequence[tuple[str, Sequence[Any]]], *, patience_s: float
    ) -> list[Any]:
        """Make calls one after another without waiting for an answer in between."""
        ...

    def is_dead(self) -> bool:
        """Say whether an idle connection was closed by the other side, or is out of step."""
        ...

    def close(self) -> None:
        """End the connection for both sides."""
        ...

    def forget(self) -> None:
        """Give this process's end up without a word, because another process uses it."""
        ...


class GatewayClient:
    """A connection to a gateway."""

    def __init__(self, interface: Any, protocol: Any, connected: socket.socket) -> None:
        """Speak `interface` (a service class of `idl`) by `protocol` over a connected socket."""
        self._interface = interface
        self._protocol = protocol
        self._transport = protocol.trans
        self._socket = connected
        self._sequence = 0
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)

    def call(
        self,
        method: str,
        *args: Any,
        while_silent: Callable[[], object] | None = None,
        patience_s: float | None = None,
    ) -> Any:
        """Call a method of the gateway; arguments come in the order of the interface.

        Args:
            method: Its name.
            *args: Its arguments.
            while_silent: Called whenever the answer has let itself be waited for, from `SILENCE_S`
                on; the wait goes on when it returns, and ends no later than without it.
            patience_s: How long to wait for the answer's first bytes; None is the time limit.

        Raises:
            Unanswered: they did not come within `patience_s`.
            CallNotSent: an argument does not fit, or the connection broke before all was written.
            TException: a declared exception, or one of thriftpy2's.
            OSError: the connection broke, or no bytes of an answer came within the time limit.

        Cost: 1 RPC.
        """
        return self._receive(method, self._send(method, args), while_silent, patience_s)

    def call_ahead(
        self, calls: Sequence[tuple[str, Sequence[Any]]], *, patience_s: float
    ) -> list[Any]:
        """Make calls without waiting for an answer in between; return all answers.

        A gateway executes the calls of one connection one after another: none begins before the one
        before has ended.  After any error the connection is of no more use.

        Args:
            calls: The name and the arguments of each.
            patience_s: How long to wait for the first bytes of each answer.

        Raises:
            Unanswered: they did not come within `patience_s`.  Else as `call`.
        """
        sent: list[tuple[str, int]] = []
        for method, args in calls:
            try:
                sent.append((method, self._send(method, args)))
            except CallNotSent as error:
                if sent:  # so it is not certain that nothing was executed
                    raise ConnectionError(f"{error}, behind {len(sent)} others") from error
                raise
        return [self._receive(method, sequence, None, patience_s) for method, sequence in sent]

    def _send(self, method: str, args: Sequence[Any]) -> int:
        """Send a call; return the number that its answer will have."""
        protocol = self._protocol
        self._sequence = sequence = self._sequence % _MAX_SEQUENCE + 1
        try:
            arguments = getattr(self._interface, method + "_args")(*args)
            protocol.write_message_begin(method, TMessageType.CALL, sequence)
            arguments.write(protocol)
            protocol.write_message_end()
        except Exception as error:
            # A gateway executes whole messages only, and this one has no end.
            raise CallNotSent(f"{method}: {error}") from error
        self._transport.flush()
        return sequence

    def _receive(
        self,
        method: str,
        sequence: int,
        while_silent: Callable[[], object] | None,
        patience_s: float | None,
    ) -> Any:
        """Return, or raise, the answer to the oldest call that has none yet."""
        protocol = self._protocol
        if patience_s is None:
            name, kind, answered = self._begin_answer(while_silent)
        else:
            limit_s = self._socket.gettimeout()
            self._socket.settimeout(patience_s)
            try:
                name, kind, answered = self._begin_answer(while_silent)
            except TimeoutError as error:
                raise Unanswered(method) from error
            finally:
                self._socket.settimeout(limit_s)
        if answered != sequence or name != method:
            raise OutOfStep(f"{method} {sequence}", f"{name} {answered}")
        if kind == TMessageType.EXCEPTION:
            refusal = TApplicationException()
            refusal.read(protocol)
            protocol.read_message_end()
            raise refusal
        result = getattr(self._interface, method + "_result")()
        result.read(protocol)
        protocol.read_message_end()
        fields = result.__dict__
        success = fields.get("success")
        if success is not None:
            return success
        for value in fields.values():
            if value is not None:
                raise value
        if "success" in fields:
            raise TApplicationException(TApplicationException.MISSING_RESULT, "an empty answer")
        return None

    def _begin_answer(self, while_silent: Callable[[], object] | None) -> Any:
        if while_silent is not None:
            self._await_answer(while_silent)
        return self._protocol.read_message_begin()

    def _await_answer(self, while_silent: Callable[[], object]) -> None:
        """Wait for the first bytes of an answer, no longer than the socket would.  Cost: 1 poll."""
        # Nearly all come at once, and need no reckoning of time: it is half of what this takes.
        if self._poll.poll(_PROMPT_MS):
            return
        silence_s = SILENCE_S
        deadline_s = time.monotonic() + (self._socket.gettimeout() or math.inf)
        while True:
            left_s = deadline_s - time.monotonic()
            if self._poll.poll(1000 * max(0, min(silence_s, left_s))):
                return
            if left_s <= silence_s:
                raise TimeoutError("timed out")
            while_silent()
            silence_s *= 2

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Return a method of the gateway: `client.openScanner(table, scan)`."""
        if method not in self._interface.thrift_services:
            raise AttributeError(method)
        return functools.partial(self.call, method)

    def is_dead(self) -> bool:
        """Say whether the other side closed it, or sent what was not asked for.  Cost: 1 poll."""
        return bool(self._poll.poll(0))

    def close(self) -> None:
        """End the connection for both sides."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def forget(self) -> None:
        """Close this process's descriptor only; a shutdown would end the parent's connection."""
        self._socket.close()


def open_client(address: HBaseAddress, host: str, port: int) -> GatewayClient:
    """Connect to a gateway as `address` says.

    Raises:
        OSError: no server listens there, the name is unknown, or TLS failed.
        TException: SASL failed.
        ConfigError: a file that the address names cannot be used.
    """
    connected: socket.socket | None = None
    try:
        connected = _connected(address, host, port)
        # Until here a silent gateway is a failed connection; from here on it is a slow call.
        trans = _transport(address, TSocket(sock=connected), host)
        connected.settimeout(address.timeout_s)
        if address.protocol == "compact":
            protocol = TCompactProtocolFactory().get_protocol(trans)
        else:
            protocol = TBinaryProtocolFactory().get_protocol(trans)
        return GatewayClient(service(address.api), protocol, connected)
    except BaseException:
        if connected is not None:
            connected.close()
        raise


def _connected(address: HBaseAddress, host: str, port: int) -> socket.socket:
    plain: socket.socket | None = None
    try:
        plain = socket.create_connection((host, port), timeout=address.connect_timeout_s)
        check_not_ourselves(plain)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        watch_peer(plain, PATIENT_OPTIONS)
        if not address.tls:
            return plain
        return _tls_context(address).wrap_socket(plain, server_hostname=address.tls_name or host)
    except BaseException:
        if plain is not None:
            plain.close()
        raise


def _transport(address: HBaseAddress, trans: Any, host: str) -> Any:
    if address.sasl is not None:
        from omidpy.storage.hbase.rpc.sasl import negotiated  # noqa: PLC0415 - needs another package

        return negotiated(address, trans, host)
    if address.transport == "framed":
        return TFramedTransportFactory().get_transport(trans)
    return _Buffered(trans, BUFFER_BYTES)


def _tls_context(address: HBaseAddress) -> ssl.SSLContext:
    """Return a context that verifies the gateway's certificate and the name in it.

    thriftpy2's own does not look at the name.
    """
    return client_files(address.tls_ca, address.tls_cert, address.tls_key, "tls_").context()
