"""How does a client prove who it is to HBase, and how is what it says kept from others?

What an address says of it, as a value that a connection is opened with.  No I/O but reading the
files of certificates.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from omidpy.base.timing.clock import SystemClock
from omidpy.storage.hbase.addresses.gateways import Protection
from omidpy.storage.hbase.native.address import NativeAddress
from omidpy.storage.hbase.native.security import kerberos, tokens
from omidpy.storage.hbase.native.security.digest import DigestMd5
from omidpy.storage.hbase.native.security.layers import TLS_OPTIONS
from omidpy.storage.hbase.native.security.sasl import DIGEST, Mechanism
from omidpy.wire.tls import client_files


@dataclass(frozen=True, slots=True)
class Security:
    """How the connections of a client are secured."""

    tls: Callable[[], ssl.SSLContext] | None = None
    """Returns what the next connection is made by; None: no TLS."""
    tls_name: str | None = None
    """The name in the certificates of all servers; None: the host that is connected to."""
    sasl: Callable[[str], Mechanism] | None = None
    """Begins to prove who calls, to a host; None: HBase believes the name of the user."""
    protection: Protection = "auth"
    """What it asks for after that."""

    def mechanism(self, host: str) -> Mechanism:
        """Begin to prove who calls."""
        assert self.sasl is not None, "nothing is to be proved"
        return self.sasl(host)

    def described(self, code: int | None = None) -> str:
        """Say in a few words what secures a connection; `code` is that of a mechanism."""
        names = ["TLS"] if self.tls is not None else []
        if code is not None:
            names.append(f"{'a token' if code == DIGEST else 'Kerberos'} ({self.protection})")
        return f"by {' and '.join(names)}" if names else "in the open"


OPEN = Security()
"""No TLS, and the server believes the name."""


def security_of(address: NativeAddress, *, by_ticket: bool = False) -> Security:
    """Return what an address asks for.

    Args:
        address: Of a store.
        by_ticket: Show a ticket, also where this process was handed a token.

    Raises:
        ConfigError: a file of certificates cannot be read; a package is missing.
    """
    tls = None
    if address.tls:
        tls = client_files(address.tls_ca, address.tls_cert, address.tls_key, TLS_OPTIONS).context
    if address.sasl is None:
        return Security(tls=tls, tls_name=address.tls_name)
    if by_ticket or tokens.held(address.url) is None:
        kerberos.load_gssapi(address.url)  # which names the extra now, and not with the first call
    begun = functools.partial(_shown_ticket if by_ticket else _begun, address)
    return Security(tls, address.tls_name, begun, address.sasl_qop)


def _begun(address: NativeAddress, host: str) -> Mechanism:
    """Begin to prove who calls: by the token that this process was handed, else by a ticket.

    A process of the driver's, too, is handed the token of a job that it ends; when that is over, it
    has a ticket still.
    """
    token = tokens.held(address.url)
    if token is None:
        return _shown_ticket(address, host)
    now_ms = SystemClock().wall_ms()
    if token.has_ended(now_ms) and kerberos.has_ticket():
        return _shown_ticket(address, host)
    token.check(now_ms)
    return DigestMd5(token.identifier, token.password, address.sasl_qop)


def _shown_ticket(address: NativeAddress, host: str) -> Mechanism:
    gssapi = kerberos.load_gssapi(address.url)
    principal = kerberos.principal_of(address.principal, host)
    return kerberos.Gssapi(gssapi, principal, address.sasl_qop)
