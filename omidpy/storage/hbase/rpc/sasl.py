"""Kerberos on the way to a gateway: the client's half of the SASL mechanism GSSAPI.

thriftpy2 carries the negotiation and frames what follows; here is what it lacks, the mechanism,
over the package `gssapi`, which uses the tickets and settings of the system's Kerberos.  HBase's
gateway demands it where `hbase.thrift.security.qop` is set, and then only over buffered transports.

How far it is tested: the steps of the mechanism and the framing, against a scripted security
context.  Not tested: a real ticket, and a gateway of a cluster with Kerberos.

Source: RFC 4752.
"""

from __future__ import annotations

import importlib
import struct
from typing import Any, Final

from thriftpy2.transport import TSaslClientTransport

from omidpy.errors import ConfigError
from omidpy.storage.hbase.address import HBaseAddress, Protection

try:
    from thriftpy2.transport import TCySaslClientTransport as _SaslTransport
except ImportError:  # thriftpy2 was installed without its compiled part
    _SaslTransport = TSaslClientTransport

MECHANISM: Final = "GSSAPI"
LAYER_BITS: Final[dict[Protection, int]] = {"auth": 1, "auth-int": 2, "auth-conf": 4}
LONGEST_MESSAGE_BYTES: Final = 2**24 - 1
"""The longest wrapped message that we say we take; the field has three bytes."""


class GssapiClient:
    """What thriftpy2 asks of a SASL library: `start`, `step`, `encode`, `decode`, `getError`."""

    def __init__(self, context: Any, protection: Protection, failure: type[Exception]) -> None:
        """Negotiate over a security context of `gssapi`, whose errors are `failure`."""
        self._context = context
        self._protection = protection
        self._failure = failure
        self._problem = ""
        self._is_layer_chosen = False

    def start(self, _mechanism: str) -> tuple[bool, str, bytes]:
        """Return whether it went well, the mechanism, and the first bytes to send."""
        is_fine, token = self._tried(lambda: self._context.step(None))
        return is_fine, MECHANISM, token

    def step(self, challenge: bytes) -> tuple[bool, bytes]:
        """Return whether it went well, and the answer to a challenge."""
        if not self._context.complete:
            return self._tried(lambda: self._context.step(challenge))
        return self._tried(lambda: self._chosen_layer(challenge))

    def _chosen_layer(self, challenge: bytes) -> bytes:
        offered = self._context.unwrap(challenge).message
        if self._is_layer_chosen or len(offered) != 4:
            raise ValueError("the gateway's offer of protections has the wrong form")
        wanted = LAYER_BITS[self._protection]
        if not offered[0] & wanted:
            names = [name for name, bit in LAYER_BITS.items() if offered[0] & bit]
            raise ValueError(
                f"the gateway takes sasl_qop={' or '.join(names) or 'nothing'}, not "
                f"{self._protection}"
            )
        self._is_layer_chosen = True
        # No layer takes no messages.  An empty identity means that of the ticket.
        longest = 0 if self._protection == "auth" else LONGEST_MESSAGE_BYTES
        answer: bytes = self._context.wrap(struct.pack(">I", wanted << 24 | longest), False).message
        return answer

    def encode(self, plain: bytes) -> tuple[bool, bytes]:
        """Return whether it went well, and what to send for `plain`."""
        if self._protection == "auth":
            return True, plain
        is_fine, wrapped = self._tried(
            lambda: self._context.wrap(plain, self._protection == "auth-conf").message
        )
        return is_fine, struct.pack(">I", len(wrapped)) + wrapped

    def decode(self, framed: bytes) -> tuple[bool, bytes]:
        """Return whether it went well, and the plain bytes of a frame with its length."""
        if self._protection == "auth":
            return True, framed[4:]
        return self._tried(lambda: self._unwrapped(framed[4:]))

    def _unwrapped(self, wrapped: bytes) -> bytes:
        unwrapped = self._context.unwrap(wrapped)
        if self._protection == "auth-conf" and not unwrapped.encrypted:
            raise ValueError("the gateway sent a message that is not encrypted")
        message: bytes = unwrapped.message
        return message

    def getError(self) -> str:  # noqa: N802 - thriftpy2 calls it so
        """Return why the last step failed."""
        return self._problem

    def _tried(self, step: Any) -> tuple[bool, bytes]:
        try:
            return True, step() or b""
        except (self._failure, ValueError) as error:
            self._problem = str(error)
            return False, b""


def negotiated(address: HBaseAddress, trans: Any, host: str) -> Any:
    """Return a transport over `trans` that has proved to the gateway who we are.

    Raises:
        ConfigError: the package `gssapi` is missing.
        TTransportException: the gateway refused, or there is no ticket.
    """
    try:
        gssapi = importlib.import_module("gssapi")
    except ImportError as error:
        raise ConfigError(
            "sasl=gssapi needs the package gssapi and the system's Kerberos library; run "
            "`pip install gssapi`"
        ) from error
    service = f"{address.sasl_service}@{address.sasl_host or host}"
    name = gssapi.Name(service, gssapi.NameType.hostbased_service)

    def new_client() -> GssapiClient:
        flags = gssapi.RequirementFlag.mutual_authentication
        if address.sasl_qop != "auth":
            flags |= gssapi.RequirementFlag.integrity
        if address.sasl_qop == "auth-conf":
            flags |= gssapi.RequirementFlag.confidentiality
        context = gssapi.SecurityContext(name=name, usage="initiate", flags=flags)
        return GssapiClient(context, address.sasl_qop, gssapi.exceptions.GSSError)

    transport = _SaslTransport(new_client, MECHANISM, trans)
    transport.open()
    return transport
