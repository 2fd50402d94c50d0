"""Kerberos to HBase: the SASL mechanism GSSAPI, over the system's library.

The package `gssapi` uses the tickets and settings of the system's Kerberos: what `kinit` has left
in the cache, or a keytab that KRB5_CLIENT_KTNAME names.  It takes the steps of the mechanism and
knows what a failure means; framing and I/O are elsewhere.

Source: RFC 4752.
"""

from __future__ import annotations

import importlib
import struct
from typing import Any, Final

from omidpy.base.installation import install_hint
from omidpy.errors import ConfigError
from omidpy.storage.hbase.address import Protection
from omidpy.storage.hbase.native.faults import CallFailed, Disagreed, Garbled, NoTicket
from omidpy.storage.hbase.native.security.layers import Layer
from omidpy.storage.hbase.native.security.sasl import KERBEROS, SaslLayer, quoted

DEFAULT_PRINCIPAL: Final = "hbase/_HOST"
"""In the default realm of the system's settings."""
LAYER_BITS: Final[dict[Protection, int]] = {"auth": 1, "auth-int": 2, "auth-conf": 4}
LONGEST_MESSAGE_BYTES: Final = 2**24 - 1
"""The longest token that we say we take; the field has three bytes."""
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
        flags = gssapi.RequirementFlag.mutual_authentication
        flags |= gssapi.RequirementFlag.out_of_sequence_detection
        if protection != "auth":
            flags |= gssapi.RequirementFlag.integrity
        if protection == "auth-conf":
            flags |= gssapi.RequirementFlag.confidentiality
        self._failure: type[Exception] = gssapi.exceptions.GSSError
        self._principal = principal
        self._protection = protection
        self._server_bytes = 0
        self.is_done = False
        try:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        except self._failure as error:
            raise Disagreed(
                f"{principal!r} is no principal; write principal=SERVICE/_HOST@REALM"
            ) from error
        self._context: Any = gssapi.SecurityContext(name=name, usage="initiate", flags=flags)

    def first(self) -> bytes:
        """Return the first token, with the server's ticket in it.  Cost: the key centre's answer.

        Raises:
            NoTicket: there is none of ours, or it has ended.
            Disagreed: the key centre knows no such server.
        """
        return self._stepped(None)

    def answer(self, challenge: bytes) -> bytes:
        """Answer the server: that it is who we called, and then what it offers."""
        if not self._context.complete:
            return self._stepped(challenge)
        return self._chosen_layer(challenge)

    def _stepped(self, challenge: bytes | None) -> bytes:
        try:
            return self._context.step(challenge) or b""
        except self._failure as error:
            raise self._meant(error) from error

    def _chosen_layer(self, challenge: bytes) -> bytes:
        try:
            offered: bytes = self._context.unwrap(challenge).message
        except self._failure as error:
            raise Garbled(f"the server's offer of protections: {quoted(str(error))}") from error
        if len(offered) != 4:
            raise Garbled("the server's offer of protections has the wrong form")
        wanted = LAYER_BITS[self._protection]
        if not offered[0] & wanted:
            names = [name for name, bit in LAYER_BITS.items() if offered[0] & bit]
            raise Disagreed(
                f"it takes sasl_qop={' or '.join(names) or 'nothing'} in the address, not "
                f"{self._protection} (hbase.rpc.protection)"
            )
        self._server_bytes = int.from_bytes(offered[1:])
        # No layer takes no messages.  An empty identity means that of the ticket.
        longest = 0 if self._protection == "auth" else LONGEST_MESSAGE_BYTES
        choice = struct.pack(">I", wanted << 24 | longest)
        try:
            answer: bytes = self._context.wrap(choice, False).message
        except self._failure as error:
            raise self._meant(error) from error
        self.is_done = True
        return answer

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
        part = min(self._context.get_wrap_size_limit(self._server_bytes, is_secret), 2**20)
        if part < _LEAST_PART_BYTES:
            raise Disagreed(f"it takes no longer messages than {self._server_bytes} bytes")

        def wrap(plain: bytes) -> bytes:
            try:
                wrapped: bytes = self._context.wrap(plain, is_secret).message
            except self._failure as error:
                raise Garbled(quoted(str(error))) from error
            return wrapped

        def unwrap(token: bytes) -> bytes:
            try:
                found = self._context.unwrap(token)
            except self._failure as error:
                raise Garbled(f"a message was changed on its way: {quoted(str(error))}") from error
            if is_secret and not found.encrypted:
                raise Garbled("the server sent a message that is not encrypted")
            plain: bytes = found.message
            return plain

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
        if "expired" in small:
            return NoTicket(f"our Kerberos ticket has ended; {RENEW} ({text})")
        if "no credentials" in small or "credentials cache" in small or "no kerberos cred" in small:
            return NoTicket(f"there is no Kerberos ticket; {RENEW} ({text})")
        if "cannot contact any kdc" in small or "unreachable" in small:
            return NoTicket(f"no key centre of Kerberos answers; see krb5.conf ({text})")
        return NoTicket(f"Kerberos failed; see `klist` and krb5.conf ({text})")
