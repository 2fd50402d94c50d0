"""Kerberos to HBase: the SASL mechanism GSSAPI, over the system's library.

The package `gssapi` uses the tickets and settings of the system's Kerberos: what `kinit` has left
in the cache, or a keytab that KRB5_CLIENT_KTNAME names.  Here is whom it calls, and what a failure
means; the steps are in `storage/hbase/gssapi.py`, framing and I/O elsewhere.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from omidpy.base.installation import install_hint
from omidpy.errors import ConfigError
from omidpy.storage.hbase.addresses.gateways import Protection
from omidpy.storage.hbase.gssapi import (
    NotEncrypted,
    NotOffered,
    Steps,
    WrongForm,
    security_context,
)
from omidpy.storage.hbase.native.faults import CallFailed, Disagreed, Garbled, NoTicket
from omidpy.storage.hbase.native.security.layers import Layer
from omidpy.storage.hbase.native.security.sasl import KERBEROS, SaslLayer, quoted

DEFAULT_PRINCIPAL: Final = "hbase/_HOST"
"""In the default realm of the system's settings."""
_LEAST_PART_BYTES: Final = 256

RENEW: Final = "run `kinit`, or name a keytab in KRB5_CLIENT_KTNAME"


def load_gssapi(url: str) -> Any:
    """Return the package.

    Raises:
        ConfigError: it is missing, or the system's library is.
    """
    try:
        return importlib.import_module("gssapi")
    except ImportError as error:
        raise ConfigError(
            f"store address {url!r}: sasl=gssapi needs the system's Kerberos library and its "
            f"client: {install_hint('kerberos')}"
        ) from error


def has_ticket() -> bool:
    """Say whether this process has a ticket that has not ended, or a key to fetch one by."""
    try:
        gssapi: Any = importlib.import_module("gssapi")
        left_s = gssapi.Credentials(usage="initiate").lifetime
    except ImportError:
        return False
    except gssapi.exceptions.GSSError:
        return False
    return left_s is None or left_s > 0


def principal_of(pattern: str | None, host: str) -> str:
    """Return the principal of a server: `_HOST` stands for its name, in small letters."""
    return (pattern or DEFAULT_PRINCIPAL).replace("_HOST", host.lower())


class Gssapi:
    """The steps of a client that has a ticket."""

    code = KERBEROS

    def __init__(self, gssapi: Any, principal: str, protection: Protection) -> None:
        """Begin.

        Args:
            gssapi: The package.
            principal: The server's.
            protection: What is asked for after the negotiation.

        Raises:
            Disagreed: the principal is none.
        """
        self._failure: type[Exception] = gssapi.exceptions.GSSError
        self._principal = principal
        self._protection = protection
        try:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        except self._failure as error:
            raise Disagreed(
                f"{principal!r} is no principal; write principal=SERVICE/_HOST@REALM"
            ) from error
        context = security_context(gssapi, name, protection, keeps_order=True)
        self._steps = Steps(context, protection)

    @property
    def is_done(self) -> bool:
        """Whether both sides are content."""
        return self._steps.is_done

    def first(self) -> bytes:
        """Return the first token, with the server's ticket in it.  Cost: the key centre's answer.

        Raises:
            NoTicket: there is none of ours, or it has ended.
            Disagreed: the key centre knows no such server.
        """
        return self._stepped(None)

    def answer(self, challenge: bytes) -> bytes:
        """Answer the server: that it is who we called, and then what it offers."""
        if not self._steps.is_known:
            return self._stepped(challenge)
        return self._chosen_layer(challenge)

    def _stepped(self, challenge: bytes | None) -> bytes:
        try:
            return self._steps.token(challenge)
        except self._failure as error:
            raise self._meant(error) from error

    def _chosen_layer(self, challenge: bytes) -> bytes:
        try:
            self._steps.read_offer(challenge)
        except self._failure as error:
            raise Garbled(f"the server's offer of protections: {quoted(str(error))}") from error
        except WrongForm as error:
            raise Garbled("the server's offer of protections has the wrong form") from error
        except NotOffered as error:
            raise Disagreed(
                f"it takes sasl_qop={error.choices} in the address, not {self._protection} "
                "(hbase.rpc.protection)"
            ) from error
        try:
            return self._steps.choose()
        except self._failure as error:
            raise self._meant(error) from error

    def refused(self, class_name: str, text: str) -> CallFailed:
        """Return what a refusal of the server means."""
        return Disagreed(
            f"it does not accept our ticket for {self._principal}; is that its principal "
            f"(principal=SERVICE/_HOST@REALM), and do clocks agree? ({class_name}: {quoted(text)})"
        )

    def layer(self) -> Layer | None:
        """Return what seals what follows; None for `auth`."""
        if self._protection == "auth":
            return None
        is_secret = self._protection == "auth-conf"
        most_bytes = self._steps.server_bytes
        part = min(self._steps.context.get_wrap_size_limit(most_bytes, is_secret), 2**20)
        if part < _LEAST_PART_BYTES:
            raise Disagreed(f"it takes no longer messages than {most_bytes} bytes")

        def wrap(plain: bytes) -> bytes:
            try:
                return self._steps.wrap(plain)
            except self._failure as error:
                raise Garbled(quoted(str(error))) from error

        def unwrap(token: bytes) -> bytes:
            try:
                return self._steps.unwrap(token)
            except self._failure as error:
                raise Garbled(f"a message was changed on its way: {quoted(str(error))}") from error
            except NotEncrypted as error:
                raise Garbled("the server sent a message that is not encrypted") from error

        return SaslLayer(wrap, unwrap, part_bytes=part)

    def _meant(self, error: Exception) -> CallFailed:
        """Return what a failure of the library means, and the remedy."""
        text = quoted(str(error))
        small = text.lower()
        if "not found in kerberos database" in small or "unknown server" in small:
            return Disagreed(
                f"the key centre knows no {self._principal}; name the server's principal with "
                f"principal=SERVICE/_HOST@REALM (hbase.regionserver.kerberos.principal) ({text})"
            )
        if "clock skew" in small:
            return NoTicket(
                f"our clock and that of Kerberos differ too much; set both by NTP ({text})"
            )
        if "expired" in small:
            return NoTicket(f"our Kerberos ticket has ended; {RENEW} ({text})")
        if "no credentials" in small or "credentials cache" in small or "no kerberos cred" in small:
            return NoTicket(f"there is no Kerberos ticket; {RENEW} ({text})")
        if "cannot contact any kdc" in small or "unreachable" in small:
            return NoTicket(f"no key centre of Kerberos answers; see krb5.conf ({text})")
        return NoTicket(f"Kerberos failed; see `klist` and krb5.conf ({text})")
