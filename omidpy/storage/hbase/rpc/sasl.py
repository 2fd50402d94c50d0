"""Kerberos on the way to a gateway: the client's half of the SASL mechanism GSSAPI.

thriftpy2 carries the negotiation and frames what follows; here is what it lacks, the mechanism,
over the package `gssapi`, which uses the tickets and settings of the system's Kerberos; its steps
are those of HBase itself (`storage/hbase/gssapi.py`).  HBase's gateway demands it where
`hbase.thrift.security.qop` is set, and then only over buffered transports.

How far it is tested: the steps of the mechanism and the framing, against a scripted security
context.  Not tested: a real ticket, and a gateway of a cluster with Kerberos.
"""

from __future__ import annotations

import importlib
import struct
from typing import Any, Final

from thriftpy2.transport import TSaslClientTransport

from omidpy.base.installation import install_hint
from omidpy.errors import ConfigError
from omidpy.storage.hbase.addresses.gateways import HBaseAddress, Protection
from omidpy.storage.hbase.gssapi import (
    NotEncrypted,
    NotOffered,
    Steps,
    WrongForm,
    security_context,
)

try:
    from thriftpy2.transport import TCySaslClientTransport as _SaslTransport
except ImportError:  # thriftpy2 was installed without its compiled part
    _SaslTransport = TSaslClientTransport

MECHANISM: Final = "GSSAPI"


class GssapiClient:
    """What thriftpy2 asks of a SASL library: `start`, `step`, `encode`, `decode`, `getError`."""

    def __init__(self, context: Any, protection: Protection, failure: type[Exception]) -> None:
        """Negotiate over a security context of `gssapi`, whose errors are `failure`."""
        self._steps = Steps(context, protection)
        self._protection = protection
        self._failure = failure
        self._problem = ""

    def start(self, _mechanism: str) -> tuple[bool, str, bytes]:
        """Return whether it went well, the mechanism, and the first bytes to send."""
        is_fine, token = self._tried(lambda: self._steps.token(None))
        return is_fine, MECHANISM, token

    def step(self, challenge: bytes) -> tuple[bool, bytes]:
        """Return whether it went well, and the answer to a challenge."""
        if not self._steps.is_known:
            return self._tried(lambda: self._steps.token(challenge))
        return self._tried(lambda: self._chosen_layer(challenge))

    def _chosen_layer(self, challenge: bytes) -> bytes:
        try:
            self._steps.read_offer(challenge)
        except WrongForm as error:
            raise ValueError("the gateway's offer of protections has the wrong form") from error
        except NotOffered as error:
            raise ValueError(
                f"the gateway takes sasl_qop={error.choices}, not {self._protection}"
            ) from error
        return self._steps.choose()

    def encode(self, plain: bytes) -> tuple[bool, bytes]:
        """Return whether it went well, and what to send for `plain`."""
        if self._protection == "auth":
            return True, plain
        is_fine, wrapped = self._tried(lambda: self._steps.wrap(plain))
        return is_fine, struct.pack(">I", len(wrapped)) + wrapped

    def decode(self, framed: bytes) -> tuple[bool, bytes]:
        """Return whether it went well, and the plain bytes of a frame with its length."""
        if self._protection == "auth":
            return True, framed[4:]
        return self._tried(lambda: self._unwrapped(framed[4:]))

    def _unwrapped(self, wrapped: bytes) -> bytes:
        try:
            return self._steps.unwrap(wrapped)
        except NotEncrypted as error:
            raise ValueError("the gateway sent a message that is not encrypted") from error

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
            f"`{install_hint('kerberos')}`"
        ) from error
    service = f"{address.sasl_service}@{address.sasl_host or host}"
    name = gssapi.Name(service, gssapi.NameType.hostbased_service)

    def new_client() -> GssapiClient:
        context = security_context(gssapi, name, address.sasl_qop, keeps_order=False)
        return GssapiClient(context, address.sasl_qop, gssapi.exceptions.GSSError)

    transport = _SaslTransport(new_client, MECHANISM, trans)
    transport.open()
    return transport
