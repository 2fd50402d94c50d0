"""How does a client prove who it is to HBase, and how is what it says kept from others?

What an address says of it, as a value that a connection is opened with.  No I/O but reading the
files of certificates.
"""

from __future__ import annotations

import functools
import ssl
from dataclasses import dataclass

from omidpy.storage.hbase.native.address import NativeAddress
from omidpy.storage.hbase.native.layers import TLS_OPTIONS
from omidpy.wire.tls import client_context


@dataclass(frozen=True, slots=True)
class Security:
    """How the connections of a client are secured."""

    tls: ssl.SSLContext | None = None
    tls_name: str | None = None
    """The name in the certificates of all servers; None: the host that is connected to."""

    def described(self) -> str:
        """Say in a few words what secures a connection."""
        return "by TLS" if self.tls is not None else "in the open"


OPEN = Security()
"""No TLS, and the server believes the name."""


def security_of(address: NativeAddress) -> Security:
    """Return what an address asks for.

    Raises:
        ConfigError: a file of certificates cannot be read; a package is missing.
    """
    if not address.tls:
        return OPEN
    return Security(
        tls=_context(address.tls_ca, address.tls_cert, address.tls_key), tls_name=address.tls_name
    )


@functools.lru_cache(maxsize=16)
def _context(ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext:
    return client_context(ca, cert, key, prefix=TLS_OPTIONS)
