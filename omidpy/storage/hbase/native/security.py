"""How does a client prove who it is to HBase, and how is what it says kept from others?

What an address says of it, as a value that a connection is opened with.  No I/O but reading the
files of certificates.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from omidpy.storage.hbase.native import kerberos
from omidpy.storage.hbase.native.address import NativeAddress
from omidpy.storage.hbase.native.layers import TLS_OPTIONS
from omidpy.storage.hbase.native.sasl import Mechanism
from omidpy.wire.tls import client_context


@dataclass(frozen=True, slots=True)
class Security:
    """How the connections of a client are secured."""

    tls: ssl.SSLContext | None = None
    tls_name: str | None = None
    """The name in the certificates of all servers; None: the host that is connected to."""
    sasl: Callable[[str], Mechanism] | None = None
    """Begins to prove who calls, to a host; None: HBase believes the name of the user."""
    proved_by: str = ""
    """The same in a few words."""

    def mechanism(self, host: str) -> Mechanism:
        """Begin to prove who calls."""
        assert self.sasl is not None, "nothing is to be proved"
        return self.sasl(host)

    def described(self) -> str:
        """Say in a few words what secures a connection."""
        names = [*(["TLS"] if self.tls is not None else []), *filter(None, [self.proved_by])]
        return f"by {' and '.join(names)}" if names else "in the open"


OPEN = Security()
"""No TLS, and the server believes the name."""


def security_of(address: NativeAddress) -> Security:
    """Return what an address asks for.

    Raises:
        ConfigError: a file of certificates cannot be read; a package is missing.
    """
    tls = None
    if address.tls:
        tls = _context(address.tls_ca, address.tls_cert, address.tls_key)
    if address.sasl is None:
        return Security(tls=tls, tls_name=address.tls_name)
    gssapi = kerberos.load_gssapi(address.url)

    def begin(host: str) -> Mechanism:
        principal = kerberos.principal_of(address.principal, host)
        return kerberos.Gssapi(gssapi, principal, address.sasl_qop)

    return Security(tls, address.tls_name, begin, f"Kerberos ({address.sasl_qop})")


@functools.lru_cache(maxsize=16)
def _context(ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext:
    return client_context(ca, cert, key, prefix=TLS_OPTIONS)
