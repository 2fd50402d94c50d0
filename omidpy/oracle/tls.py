"""TLS to the oracle: what a client trusts and shows, and a socket that speaks it.

The options stand behind an address: `tls=true`, `ca=FILE` to trust instead of the system's
authorities, `cert=FILE` and `key=FILE` to show, `name=NAME` where the oracle's certificate names
another host than the one that is connected to.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from omidpy.base.ensemble import FLAGS
from omidpy.base.timing.clock import Clock
from omidpy.base.within import within
from omidpy.errors import ConfigError
from omidpy.wire.tls import LEFT, TlsStream, client_files, refusal

OPTIONS: Final = ("tls", "ca", "cert", "key", "name")

_CHUNK_BYTES: Final = 64 * 1024
_READ_BYTES: Final = 16 * 1024


class Refused(OSError):
    """One end does not trust the other, or speaks no TLS: to try again changes nothing."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """What a client trusts, and what it shows."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    name: str | None = None


def options_of(query: str, *, address: str) -> dict[str, str]:
    """Return the options behind the question mark of an address.

    Raises:
        ConfigError: one is given twice, or is no NAME=VALUE.
    """
    options: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, separator, value = part.partition("=")
        if not separator or name in options:
            fault = "is given twice" if separator else "is no NAME=VALUE"
            raise ConfigError(f"{address}: the option {part[:80]!r} {fault}")
        options[name] = unquote(value)
    return options


def client_tls(options: Mapping[str, str], *, address: str, prefix: str = "") -> ClientTls | None:
    """Return what the options of an address say of TLS to the oracle; None: no TLS.

    Args:
        options: Names and values; the names begin with `prefix`.
        address: Whose options they are, for messages.
        prefix: What sets these options apart from others of the same address.

    Raises:
        ConfigError: an option is not known, or has no effect, or names no certificate.
    """
    known = [prefix + option for option in OPTIONS]
    if unknown := sorted(set(options) - set(known)):
        raise ConfigError(f"{address}: unknown option {unknown[0]!r}; known: {', '.join(known)}")
    given = {name.removeprefix(prefix): value for name, value in options.items()}
    flag = given.pop("tls", "false")
    if flag.lower() not in FLAGS:
        raise ConfigError(f"{address}: {prefix}tls={flag!r} is neither true nor false")
    if not FLAGS[flag.lower()]:
        if given:
            raise ConfigError(
                f"{address}: {prefix}{min(given)}= says nothing without {prefix}tls=true"
            )
        return None
    if "key" in given and "cert" not in given:
        raise ConfigError(f"{address}: {prefix}key= needs {prefix}cert=, its certificate")
    tls = ClientTls(**given)
    context_of(tls)
    return tls


def context_of(tls: ClientTls) -> ssl.SSLContext:
    """Return how a client's next connection is made secure.

    Raises:
        ConfigError: a file is none of certificates.
    """
    return client_files(tls.ca, tls.cert, tls.key).context()


class TlsSocket:
    """A socket that speaks TLS, as far as `oracle/link.py` uses one.  Never blocks.

    One thread may read while another writes.
    """

    def __init__(self, plain: socket.socket, stream: TlsStream) -> None:
        """Take over a socket whose TLS handshake is done; `secured` does it."""
        plain.setblocking(False)
        self._plain = plain
        self._stream = stream
        self._lock = threading.Lock()
        self._unsent = b""
        """Encrypted, and not taken by the kernel yet."""
        self._taken = 0
        """How much of what `send` was given is encrypted among it."""

    def fileno(self) -> int:
        """Return the descriptor, to wait for."""
        return self._plain.fileno()

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        """Set an option of the socket below."""
        self._plain.setsockopt(level, option, value)

    def shutdown(self, how: int) -> None:
        """End the connection below, which wakes the thread that waits for it."""
        self._plain.shutdown(how)

    def close(self) -> None:
        """Close the socket below."""
        self._plain.close()

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        """Send a beginning of `data`; return how much.  No flag has an effect: it never waits.

        Raises:
            BlockingIOError: not now.  The next call must bring the same bytes.
            OSError: the connection is broken.
        """
        del flags
        return within(self._lock, self._send, data)

    def recv(self, size: int) -> bytes:
        """Return what has arrived; nothing when the other end has ended the conversation.

        Raises:
            BlockingIOError: nothing that makes sense without what follows it.
            Refused: the other end does not trust us, or speaks no TLS.
            OSError: the connection is broken.
        """
        return within(self._lock, self._receive, size)

    def _send(self, data: bytes | memoryview) -> int:
        if not self._taken:
            chunk = data[:_CHUNK_BYTES]
            self._stream.seal(chunk)
            self._taken = len(chunk)
        self._flush()
        if self._unsent:
            raise BlockingIOError
        taken, self._taken = self._taken, 0
        return taken

    def _receive(self, size: int) -> bytes:
        arrived = self._plain.recv(size)
        if not arrived:
            return b""
        try:
            said = self._stream.receive(arrived)
        except ssl.SSLError as error:
            raise Refused(refusal(error)) from error
        self._flush()
        if not said and not self._stream.is_over:
            raise BlockingIOError
        return said

    def _flush(self) -> None:
        self._unsent += self._stream.to_send()
        while self._unsent:
            try:
                sent = self._plain.send(self._unsent)
            except BlockingIOError:
                return
            self._unsent = self._unsent[sent:]


def secured(
    plain: socket.socket, tls: ClientTls, *, host: str, timeout_s: float, clock: Clock
) -> TlsSocket:
    """Make a connection secure: shake hands, and make sure who is there.

    Raises:
        Refused: it is another server, or speaks no TLS, or did not want us.
        OSError: the connection broke, or the handshake took too long.
    """
    stream = TlsStream(context_of(tls), server_name=tls.name or host)
    deadline_s = clock.monotonic_s() + timeout_s
    stream.start()
    try:
        while not stream.is_open:
            plain.settimeout(max(0.001, deadline_s - clock.monotonic_s()))
            plain.sendall(stream.to_send())
            arrived = plain.recv(_READ_BYTES)
            if not arrived:
                raise ConnectionResetError(LEFT)
            stream.receive(arrived)
        plain.sendall(stream.to_send())
    except ssl.SSLZeroReturnError as error:
        raise ConnectionResetError(LEFT) from error
    except ssl.SSLError as error:
        raise Refused(refusal(error)) from error
    return TlsSocket(plain, stream)
