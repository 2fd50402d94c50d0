"""TLS of `tso-server`: its certificate, whom it trusts, and what each of them may ask.

Without an authority for clients every client may connect and ask everything, as with Omid's own
oracle.  With one, a client shows a certificate, and the name in it is who the client is, see
`TlsStream.peer_name`: a file of roles says what that name may ask, and what one name began no other
can commit.
"""

from __future__ import annotations

import ssl
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omidpy.errors import ConfigError
from omidpy.wire.messages import ALL_ROLES, Role
from omidpy.wire.tls import show_certificate

ANY_NAME: Final = "*"
"""In the file of roles: every name that has no line of its own."""

TLS_BYTE: Final = 22
"""What a client with TLS says first."""

_CRL: Final = "name a PEM file of the authority's list of certificates that it has revoked"

_ROLES: Final[Mapping[str, Role]] = {
    "transactions": Role.TRANSACTIONS,
    "fences": Role.FENCES,
    "invalidation": Role.INVALIDATION,
    "admin": ALL_ROLES,
}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Which files are used; see the flags of `tso-server`."""

    cert: str
    key: str | None = None
    client_ca: str | None = None
    crl: str | None = None
    roles: str | None = None


class ServerTls:
    """What every connection of a server shares."""

    def __init__(self, settings: TlsSettings) -> None:
        """Read the files.

        Raises:
            ConfigError: naming the file that does not fit, and what it should hold.
        """
        self._settings = settings
        self.context, self._roles = _read(settings)
        self._trusted = _trusted(settings)

    @property
    def asks_for_certificates(self) -> bool:
        """Say whether clients must show one."""
        return self._settings.client_ca is not None

    def roles(self, name: str | None) -> Role:
        """Return what the client of this name may ask."""
        if self._roles is None:
            return ALL_ROLES
        return self._roles.get(name or "", self._roles.get(ANY_NAME, Role.NONE))

    def is_operator(self, name: str) -> bool:
        """Say whether a name has every role, where not every client has."""
        return self._roles is not None and self.roles(name) == ALL_ROLES

    def reload(self) -> bool:
        """Read the files again; say whether other certificates of clients are trusted than before.

        Raises:
            ConfigError: one does not fit; what was read before stays in force.
        """
        before = self._trusted
        self.context, self._roles = _read(self._settings)
        self._trusted = _trusted(self._settings)
        return self._trusted != before


def _trusted(settings: TlsSettings) -> bytes:
    """Return what decides which certificates of clients are trusted."""
    files = [name for name in (settings.client_ca, settings.crl) if name is not None]
    return b"".join(Path(name).read_bytes() for name in files)


def _read(settings: TlsSettings) -> tuple[ssl.SSLContext, dict[str, Role] | None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Nothing is resumed: a certificate is looked at on each connection.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    try:
        show_certificate(context, settings.cert, settings.key)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--tls-cert {settings.cert!r}, --tls-key {settings.key!r}: {error}; name PEM files of "
            "the server's certificate and of its key without a password"
        ) from error
    if settings.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(settings.client_ca)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"--tls-client-ca {settings.client_ca!r}: {error}; name a PEM file of the "
                "authorities that sign clients' certificates"
            ) from error
    if settings.crl is not None:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        count = context.cert_store_stats()["crl"]
        try:
            context.load_verify_locations(settings.crl)
        except (OSError, ValueError) as error:
            raise ConfigError(f"--tls-crl {settings.crl!r}: {error}; {_CRL}") from error
        if context.cert_store_stats()["crl"] == count:
            raise ConfigError(f"--tls-crl {settings.crl!r} holds no list; {_CRL}")
    return context, None if settings.roles is None else _read_roles(settings.roles)


def _read_roles(path: str) -> dict[str, Role]:
    try:
        with Path(path).open("rb") as file:
            found = tomllib.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--tls-roles {path!r} is no readable TOML: {error}") from error
    roles: dict[str, Role] = {}
    for name, names in found.items():
        if not isinstance(names, list) or not all(
            isinstance(one, str) and one in _ROLES for one in names
        ):
            raise ConfigError(
                f"--tls-roles {path!r}: {name[:80]!r} is given {_shown(names)}, which is no "
                f'list of {", ".join(_ROLES)}; write for instance etl = ["transactions"]'
            )
        roles[name] = Role.NONE
        for one in names:
            roles[name] |= _ROLES[one]
    return roles


def _shown(value: object) -> str:
    try:
        return repr(str(value)[:80])
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of too many digits"
