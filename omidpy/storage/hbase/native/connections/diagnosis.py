"""What answers at a port where no HBase does?  A Thrift gateway, ZooKeeper, a web page, nobody.

Asked when nothing else helps: a few connections, each with a question that one kind of server
knows.  The answer is put into one line, with what to write instead.
"""

from __future__ import annotations

import socket
import ssl
from enum import Enum
from typing import Final, NamedTuple

from omidpy.wire.peers import without_descriptors

_THRIFT_CALL: Final = (
    b"\x80\x01\x00\x01" + b"\x00\x00\x00\x13getThriftServerType" + b"\x00\x00\x00\x01" + b"\x00"
)
"""`getThriftServerType` in the binary protocol, buffered: what most gateways understand."""


class Speaker(Enum):
    """Who listens at a port."""

    HBASE = "an HBase server answers"
    ZOOKEEPER = "ZooKeeper answers"
    THRIFT = "a Thrift gateway answers"
    HTTP = "a web page answers"
    TLS = "something answers that speaks TLS"
    SILENT = "something listens and says nothing that is understood"
    NOBODY = "nobody listens"
    UNKNOWN_HOST = "the host's name is unknown"
    UNREACHABLE = "nothing can be reached"


class Answers(NamedTuple):
    """What was found at a port."""

    speaker: Speaker
    host: str
    port: int
    detail: str = ""

    def told(self, wanted: str) -> str:
        """Return what was found and the remedy, for one who wants ZooKeeper or HBase there."""
        where = f"{self.host}:{self.port}"
        remedies = {
            Speaker.HBASE: f"write hbase+rpc://{where}"
            if wanted == "ZooKeeper"
            else "it does not serve now; see its log",
            Speaker.ZOOKEEPER: f"write hbase://{where}/hbase"
            if wanted == "HBase"
            else "it does not serve now; see its log",
            Speaker.THRIFT: f"write hbase+thrift2://{where}, or name "
            + ("ZooKeeper's servers" if wanted == "ZooKeeper" else "masters"),
            Speaker.HTTP: "name the port of "
            + ("ZooKeeper, 2181" if wanted == "ZooKeeper" else "HBase's RPC, 16000 or 16020"),
            Speaker.TLS: f"is it {wanted}?  Then add tls=on to the address"
            if wanted == "HBase"
            else "its address here has no TLS; name masters, hbase+rpc://HOST:16000",
            Speaker.SILENT: f"is it {wanted}, and does it have room for one more connection?",
            Speaker.NOBODY: f"start {wanted}, or check the address",
            Speaker.UNKNOWN_HOST: "check its name, or what resolves names on this machine",
            Speaker.UNREACHABLE: "check the address and the firewall",
        }
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.speaker.value}{detail}; {remedies[self.speaker]}"


def what_answers(host: str, port: int, *, patience_s: float = 2.0) -> Answers:
    """Find out who listens at a port.  Cost: up to 6 connections, each for `patience_s` at most."""
    try:
        socket.create_connection((host, port), timeout=patience_s).close()
    except ConnectionRefusedError:
        return Answers(Speaker.NOBODY, host, port)
    except socket.gaierror as error:
        if (reason := without_descriptors()) is not None:
            return Answers(Speaker.UNREACHABLE, host, port, str(reason))
        return Answers(Speaker.UNKNOWN_HOST, host, port, str(error))
    except OSError as error:
        return Answers(Speaker.UNREACHABLE, host, port, str(error))
    for speaker, question, sign in (
        (Speaker.HBASE, b"Regist", b""),
        (Speaker.ZOOKEEPER, b"ruok", b""),
        (Speaker.THRIFT, _THRIFT_CALL, b"\x80\x01\x00"),
        (Speaker.HTTP, b"GET / HTTP/1.0\r\n\r\n", b"HTTP/"),
    ):
        raw = _asked(host, port, question, patience_s)
        if b"HTTP/" in raw:
            return Answers(Speaker.HTTP, host, port)
        if speaker is Speaker.HBASE and _ANSWER_TO_NOBODY in raw[:16]:
            return Answers(speaker, host, port)
        if speaker is Speaker.ZOOKEEPER and (b"imok" in raw or b"whitelist" in raw):
            return Answers(speaker, host, port)
        if sign and raw.startswith(sign):
            return Answers(speaker, host, port)
    if speaks_tls(host, port, patience_s):
        return Answers(Speaker.TLS, host, port)
    return Answers(Speaker.SILENT, host, port)


_ANSWER_TO_NOBODY: Final = b"\x08\xff\xff\xff\xff\x0f"
"""The call id -1, at the beginning of an answer of HBase's to no call."""


def _asked(host: str, port: int, question: bytes, patience_s: float) -> bytes:
    """Return the first bytes that come back for a question; none if it broke off."""
    try:
        with socket.create_connection((host, port), timeout=patience_s) as connected:
            connected.sendall(question)
            return connected.recv(512)
    except OSError:
        return b""


def speaks_tls(host: str, port: int, patience_s: float) -> bool:
    """Try a TLS handshake; nothing is sent over it, so that no one need be trusted.

    A server that wants a certificate of ours, and so ends the handshake, speaks TLS, too.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=patience_s) as connected:
            context.wrap_socket(connected).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except (OSError, ValueError):
        return False
    return True
