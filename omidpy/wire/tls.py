"""TLS without sockets: what arrived goes in, the conversation comes out, and the same back.

Both ends use it.  The oracle keeps its bounds on connections and its limits of time that way, which
begin before the TLS handshake and not after it; a client's threads may read and write at once,
which a TLS socket of the standard library does not stand.

Not safe to share among threads: those that share it take a lock.
"""

from __future__ import annotations

import functools
import logging
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from omidpy.errors import ConfigError

logger = logging.getLogger(__name__)

LEFT: Final = "the connection ended in the middle of the TLS handshake"
"""Of one whose end says goodbye, too: it ends, and refuses nothing."""

_PART_BYTES: Final = 64 * 1024
_ALTERNATIVES: Final = ("URI", "DNS", "email")


def show_certificate(context: ssl.SSLContext, cert: str, key: str | None) -> None:
    """Let connections of a context show a certificate.

    Args:
        context: What connections share.
        cert: A PEM file.
        key: That of its key; None if the same file has it.

    Raises:
        OSError: a file cannot be read, or holds something else.
        ValueError: the key has a password.  OpenSSL would ask for it on the terminal.
    """

    def no_password() -> str:
        raise ValueError("the key has a password")

    context.load_cert_chain(cert, key, password=no_password)


def client_context(
    ca: str | None, cert: str | None, key: str | None, *, prefix: str = ""
) -> ssl.SSLContext:
    """Return what a client's connections share: TLS 1.2 or newer, and the server's name is checked.

    Args:
        ca: PEM file of certificates to trust; None: the system's.
        cert: PEM file of our own certificate; None: none is shown.
        key: That of its key; None if the same file has it.
        prefix: How the options `ca`, `cert` and `key` begin in the address, for messages.

    Raises:
        ConfigError: a file cannot be read, or holds something else.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{prefix}ca={ca!r}: {error}; name a PEM file of certificates to trust"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert is not None:
        try:
            show_certificate(context, cert, key)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{prefix}cert={cert!r}, {prefix}key={key!r}: {error}; name PEM files of the "
                "client's certificate and of its key without a password"
            ) from error
    return context


class ClientFiles:
    """A client's files of certificates, which are read again when they have changed.

    Certificates end while processes live on, and others come in their place: a connection is made
    by those that are there by then.
    """

    def __init__(self, ca: str | None, cert: str | None, key: str | None, prefix: str = "") -> None:
        """Read the files; as `client_context`."""
        self._names = ca, cert, key
        self._prefix = prefix
        self._seen = self._told = self._state()
        self._context = client_context(*self._names, prefix=prefix)

    def context(self) -> ssl.SSLContext:
        """Return what a connection is made by that begins now.

        Where the files do not fit, as between two of them that are replaced one after the other, it
        is what was read last.

        Cost: a look at each file.
        """
        state = self._state()
        if state != self._seen:
            try:
                self._context = client_context(*self._names, prefix=self._prefix)
            except ConfigError as error:
                if state != self._told:
                    logger.warning("certificates are used as they were before: %s", error)
                self._told = state
            else:
                self._seen = state
        return self._context

    def _state(self) -> list[tuple[int, ...] | None]:
        """Say of each file by what a new one differs.  Before it is read, so never too late."""
        return [_file_state(name) for name in self._names if name is not None]


def _file_state(name: str) -> tuple[int, ...] | None:
    try:
        found = Path(name).stat()
    except (OSError, ValueError):  # the latter of a name that no file has
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@functools.lru_cache(maxsize=16)
def client_files(
    ca: str | None, cert: str | None, key: str | None, prefix: str = ""
) -> ClientFiles:
    """Return what connections that trust and show the same share; as `client_context`."""
    return ClientFiles(ca, cert, key, prefix)


def refusal(error: ssl.SSLError, *, prefix: str = "") -> str:
    """Say why a client and a server do not agree upon TLS, and the remedy.

    Args:
        error: What OpenSSL says.
        prefix: As of `client_context`.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted: {error.verify_message}; name the authority that "
            f"signed it with {prefix}ca=FILE, and with {prefix}name=NAME the host that it is for, "
            "if that differs"
        )
    reason = (error.reason or str(error)).lower().replace("_", " ")
    if "certificate" in reason or "unknown ca" in reason:
        return (
            f"it does not accept our certificate ({reason}); name one that its authority signed "
            f"with {prefix}cert=FILE and {prefix}key=FILE"
        )
    return f"no TLS could be agreed upon ({reason}); does TLS stand in its settings?"


class TlsStream:
    """One end of a TLS connection."""

    def __init__(
        self, context: ssl.SSLContext, *, server_side: bool = False, server_name: str | None = None
    ) -> None:
        """Be a server, or a client of the server that has the certificate of `server_name`."""
        self.is_over = False
        """Whether the other end said that it sends nothing any more."""
        self.is_open = False
        """Whether the TLS handshake is done."""
        self._arrived = ssl.MemoryBIO()
        self._leaving = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(
            self._arrived, self._leaving, server_side=server_side, server_hostname=server_name
        )

    def start(self) -> None:
        """Begin the handshake: a client speaks first."""
        self._shake_hands()

    def receive(self, data: bytes) -> bytes:
        """Take what arrived, and return what it says: nothing while a record is incomplete.

        There may be something `to_send` afterwards, also after an error: the reason of it.

        Raises:
            ssl.SSLError: this is no TLS, or not with somebody to be trusted.
        """
        self._arrived.write(data)
        if not self.is_open and not self._shake_hands():
            return b""
        said = bytearray()
        try:
            while part := self._ssl.read(_PART_BYTES):
                said += part
        except ssl.SSLWantReadError:
            return bytes(said)
        except ssl.SSLZeroReturnError:
            pass
        self.is_over = True
        return bytes(said)

    def seal(self, data: bytes | memoryview) -> None:
        """Encrypt what is to be said; it is `to_send` then."""
        self._ssl.write(data)

    def to_send(self) -> bytes:
        """Return what must be sent now, and forget it."""
        return self._leaving.read()

    def peer_name(self) -> str | None:
        """Return the name in the other end's verified certificate, see `name_in`; None without."""
        return name_in(self._ssl.getpeercert())

    def _shake_hands(self) -> bool:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.is_open = True
        return True


def name_in(certificate: Mapping[str, Any] | None) -> str | None:
    """Return the name in a verified certificate; None without any.

    It is the common name, or else the whole subject, or else the first of the alternative names
    that is a URI, a domain or an address of mail, in this order.  It is empty if there is nothing
    of the kind: then it is nobody in particular.

    Args:
        certificate: As `getpeercert` of Python's TLS returns it.
    """
    if not certificate:
        return None
    groups = cast("Iterable[Iterable[tuple[str, str]]]", certificate.get("subject", ()))
    subject = [pair for group in groups for pair in group]
    names = [value for key, value in subject if key == "commonName" and value]
    if names:
        return names[-1]
    if subject:
        return ",".join(f"{key}={value}" for key, value in subject)
    others = cast("Iterable[tuple[str, str]]", certificate.get("subjectAltName", ()))
    found = {kind: value for kind, value in reversed([*others]) if value}
    return next((found[kind] for kind in _ALTERNATIVES if kind in found), "")
