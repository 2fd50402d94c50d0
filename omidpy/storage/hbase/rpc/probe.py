"""What answers at HOST:PORT?  Finds the api, transport and protocol of a gateway by trying them.

A gateway says none of this.  Each of the four ways to speak gets one harmless call,
`getThriftServerType`, whose answer also tells Thrift2 from Thrift1; all at once, since a wrong
transport mostly meets silence, and silence is measured in time.  If no form is understood, the
bytes that come back from a raw call tell a gateway in HTTP mode, one that demands SASL, and TLS.

Lacks any judgement about the HBase behind the gateway.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any, Final, NamedTuple

from thriftpy2.thrift import TApplicationException, TException

from omidpy.errors import ConfigError
from omidpy.storage.hbase.addresses.gateways import (
    Api,
    Gateway,
    HBaseAddress,
    Protocol,
    Transport,
)
from omidpy.storage.hbase.addresses.spelling import place_text
from omidpy.storage.hbase.idl import thrift2
from omidpy.storage.hbase.rpc.gateway import open_client
from omidpy.storage.hbase.rpc.translate import text_of, translate

PATIENCE_S: Final = 2.0
"""How long to wait for one answer.  The gateway answers this call without asking HBase."""

SILENCE: Final = "timed out"
"""What Python says of an answer that did not come."""

_WAYS: Final[tuple[tuple[Transport, Protocol], ...]] = tuple(
    product(("buffered", "framed"), ("binary", "compact"))
)

_RAW_CALL: Final = (
    b"\x80\x01\x00\x01" + b"\x00\x00\x00\x13getThriftServerType" + b"\x00\x00\x00\x01" + b"\x00"
)
"""`getThriftServerType` in the binary protocol, buffered: what most gateways understand."""


class Probed(NamedTuple):
    """What answers at a gateway, or why nothing does."""

    gateway: Gateway
    url: str | None
    """The address to use; None if no form was understood."""
    problem: str | None
    """Why none was understood, with the remedy; None if one was."""


def probe(address: HBaseAddress, gateway: Gateway, *, patience_s: float = PATIENCE_S) -> Probed:
    """Find out how to speak to a gateway; the address says where TLS and SASL are to be used.

    Cost: 4 connections and calls at once, some more if none of them is understood.
    """
    problem = _unreachable(gateway, patience_s)
    if problem is not None:
        return Probed(gateway, None, problem)
    candidates = [
        dataclasses.replace(
            address,
            transport=transport,
            protocol=protocol,
            timeout_s=patience_s,
            connect_timeout_s=patience_s,
        )
        for transport, protocol in _WAYS
        if not (address.sasl and transport == "framed")
    ]
    with ThreadPoolExecutor(len(candidates)) as executor:
        answers = list(executor.map(lambda one: _api_at(one, gateway), candidates))
    for candidate, answer in zip(candidates, answers, strict=True):
        if isinstance(answer, str):
            return Probed(gateway, _url(address, candidate, answer, gateway), None)
    for answer in answers:
        if isinstance(answer, ConfigError | ssl.SSLCertVerificationError):
            meant = translate(answer, address=address, table=None, what="TLS", gateway=gateway)
            return Probed(gateway, None, str(meant))
    heard = [text_of(answer) for answer in answers if isinstance(answer, Exception)]
    return Probed(gateway, None, _diagnosis(address, gateway, patience_s, heard))


def _unreachable(gateway: Gateway, patience_s: float) -> str | None:
    where = place_text(gateway)
    try:
        socket.create_connection(gateway, timeout=patience_s).close()
    except ConnectionRefusedError:
        return (
            f"nobody listens at {where}; start a gateway (`hbase thrift2 start`), or check the "
            "address"
        )
    except socket.gaierror as error:
        return f"the host of {where} is unknown ({error}); check its name"
    except OSError as error:
        return f"{where} cannot be reached ({error}); check the address and the firewall"
    return None


def _api_at(candidate: HBaseAddress, gateway: Gateway) -> Api | Exception:
    """Return which api answers when spoken to in this way, or why none does."""
    try:
        kind = _answer(candidate, gateway, "getThriftServerType")
    except TApplicationException as error:
        if error.type != TApplicationException.UNKNOWN_METHOD:
            return error
        return _api_of_old_gateway(candidate, gateway)
    except Exception as error:  # noqa: BLE001 - bytes of another protocol fail in any way
        return error
    return "thrift2" if kind == thrift2.TThriftServerType.TWO else "thrift1"


def _api_of_old_gateway(candidate: HBaseAddress, gateway: Gateway) -> Api:
    """Tell the api of a gateway that does not know the question, by a call of Thrift1 alone."""
    try:
        _answer(dataclasses.replace(candidate, api="thrift1"), gateway, "getTableNames")
    except TApplicationException as error:
        return "thrift2" if error.type == TApplicationException.UNKNOWN_METHOD else "thrift1"
    except (TException, OSError, EOFError):
        # It took the call, but HBase behind it did not answer.
        return "thrift1"
    return "thrift1"


def _answer(candidate: HBaseAddress, gateway: Gateway, method: str) -> Any:
    with contextlib.closing(open_client(candidate, *gateway)) as client:
        return client.call(method)


def _url(asked: HBaseAddress, found: HBaseAddress, api: str, gateway: Gateway) -> str:
    """Return the shortest address that speaks in this way, with the options that were given."""
    given = asked.url.partition("?")[2].split("&") if "?" in asked.url else []
    kept = [option for option in given if not option.startswith(("transport=", "protocol="))]
    if found.transport != "buffered":
        kept.insert(0, f"transport={found.transport}")
    if found.protocol != "binary":
        kept.insert(0, f"protocol={found.protocol}")
    query = "&".join(option for option in kept if option)
    return f"hbase+{api}://{place_text(gateway)}" + (f"?{query}" if query else "")


def _diagnosis(address: HBaseAddress, gateway: Gateway, patience_s: float, heard: list[str]) -> str:
    """Say what it is that was not understood."""
    where = place_text(gateway)
    speaks_tls = _speaks_tls(gateway, patience_s)
    if address.tls and not speaks_tls:
        return f"{where} does not speak TLS; leave tls=on out of the address"
    if speaks_tls and not address.tls:
        return f"{where} speaks TLS; add tls=on to the address, and tls_ca=FILE for its authority"
    if not address.tls:
        raw = _raw_answer(gateway, patience_s)
        if raw.startswith(b"HTTP/"):
            return (
                f"{where} speaks HTTP: another service, or a gateway with "
                "hbase.regionserver.thrift.http, which omidpy does not speak; name a gateway's "
                "binary port"
            )
        if raw[:1] in {b"\x03", b"\x04"} and b"status" in raw:
            return f"{where} demands SASL; add sasl=gssapi to the address, and run `kinit`"
    if address.sasl is not None:
        return (
            f"{where} did not accept SASL ({heard[0] if heard else 'silence'}); is there a ticket "
            f"(`klist`), and is the gateway's principal {address.sasl_service}/HOST?"
        )
    if heard and all(text == SILENCE for text in heard):
        return (
            f"something listens at {where} and says nothing, whatever it is asked; is it an HBase "
            "Thrift gateway, and does it not serve all the connections it can already "
            "(hbase.thrift.maxWorkerThreads, 1,000 as shipped)?"
        )
    question = "is it an HBase Thrift gateway?"
    if address.tls and address.tls_cert is None:
        question = f"does it want a certificate of ours (tls_cert=FILE)?  Else, {question}"
    return (
        f"something listens at {where}, but understands none of "
        + ", ".join(f"{transport} {protocol}" for transport, protocol in _WAYS)
        + f" (heard: {'; '.join(sorted(set(heard)))}); {question}"
    )


def _speaks_tls(gateway: Gateway, patience_s: float) -> bool:
    """Try a TLS handshake; nothing is sent over it, so that no one need be trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    def greet(connected: socket.socket) -> bytes:
        context.wrap_socket(connected).close()
        return b"TLS"

    return bool(_tried(gateway, patience_s, greet))


def _raw_answer(gateway: Gateway, patience_s: float) -> bytes:
    """Return the first bytes that come back for a call that most gateways understand."""

    def ask(connected: socket.socket) -> bytes:
        connected.sendall(_RAW_CALL)
        return connected.recv(256)

    return _tried(gateway, patience_s, ask)


def _tried(gateway: Gateway, patience_s: float, talk: Callable[[socket.socket], bytes]) -> bytes:
    """Return what came of a talk; nothing if it broke off."""
    try:
        with socket.create_connection(gateway, timeout=patience_s) as connected:
            return talk(connected)
    except OSError:
        return b""
