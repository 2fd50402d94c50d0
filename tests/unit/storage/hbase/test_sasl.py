"""The client's half of SASL GSSAPI, against a scripted security context and a scripted gateway.

No ticket and no key centre: the context "encrypts" by naming what it was asked to do.
"""

from __future__ import annotations

import re
import socket
import struct
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from thriftpy2.transport import TSocket, TTransportException

from omidpy.base.installation import install_hint
from omidpy.errors import ConfigError
from omidpy.storage.hbase.addresses.gateways import HBaseAddress, parse_address
from omidpy.storage.hbase.rpc.sasl import GssapiClient, negotiated

START, OK, ERROR, COMPLETE = 1, 2, 4, 5


class GSSError(Exception):
    """What the package raises."""


class Context:
    """A security context that is complete after two steps."""

    def __init__(self, *, has_ticket: bool = True, **_: Any) -> None:
        self._has_ticket = has_ticket
        self._tokens: list[bytes | None] = []

    @property
    def complete(self) -> bool:
        """Whether both sides know each other."""
        return len(self._tokens) == 2

    def step(self, token: bytes | None) -> bytes | None:
        """Take the other side's token, return ours."""
        if not self._has_ticket:
            raise GSSError("No Kerberos credentials available")
        self._tokens.append(token)
        return b"hello" if token is None else None

    def wrap(self, message: bytes, encrypt: bool) -> Any:  # noqa: FBT001 - as in the package
        """Seal a message."""
        return SimpleNamespace(message=(b"C" if encrypt else b"I") + message)

    def unwrap(self, message: bytes) -> Any:
        """Open a message."""
        if message[:1] not in {b"C", b"I"}:
            raise GSSError("A token had an invalid MIC")
        return SimpleNamespace(message=message[1:], encrypted=message[:1] == b"C")


def negotiate(qop: Any, offer: bytes) -> tuple[GssapiClient, tuple[bool, bytes]]:
    """Return a client, and its answer to the gateway's offer of protections."""
    client = GssapiClient(Context(), qop, GSSError)
    assert client.start("GSSAPI") == (True, "GSSAPI", b"hello")
    assert client.step(b"token") == (True, b""), "mutual authentication ends with an empty answer"
    return client, client.step(b"I" + offer)


@pytest.mark.parametrize(
    ("qop", "answer"),
    [
        ("auth", b"\x01\0\0\0"),
        ("auth-int", b"\x02\xff\xff\xff"),
        ("auth-conf", b"\x04\xff\xff\xff"),
    ],
)
def test_the_protection_of_the_address_is_chosen(qop: Any, answer: bytes) -> None:
    """One byte for the layer, three for the longest message that we take; RFC 4752, 3.1."""
    _, (is_fine, chosen) = negotiate(qop, b"\x07\x01\x00\x00")
    assert is_fine
    assert chosen == b"I" + answer


def test_a_weaker_protection_than_asked_for_is_refused() -> None:
    """Otherwise whoever sits in between takes the encryption off."""
    client, (is_fine, _) = negotiate("auth-conf", b"\x03\x01\x00\x00")
    assert not is_fine
    assert "sasl_qop=auth or auth-int, not auth-conf" in client.getError()


def test_messages_are_sealed_as_was_chosen() -> None:
    """Their length goes in front, as thriftpy2 wants it."""
    sealed = {}
    for qop in ("auth", "auth-int", "auth-conf"):
        client, _ = negotiate(qop, b"\x07\x01\x00\x00")
        is_fine, sealed[qop] = client.encode(b"call")
        assert is_fine
        framed = sealed[qop] if qop != "auth" else struct.pack(">I", 4) + sealed[qop]
        assert client.decode(framed) == (True, b"call")
    assert sealed == {
        "auth": b"call",
        "auth-int": b"\0\0\0\x05Icall",
        "auth-conf": b"\0\0\0\x05Ccall",
    }


def test_a_message_that_is_not_encrypted_or_was_changed_is_refused() -> None:
    """The layer was chosen against those who change messages."""
    client, _ = negotiate("auth-conf", b"\x07\x01\x00\x00")
    assert client.decode(b"\0\0\0\x05Icall")[0] is False
    assert "not encrypted" in client.getError()
    assert client.decode(b"\0\0\0\x05Xcall")[0] is False
    assert "invalid MIC" in client.getError()


@pytest.fixture
def gssapi(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Put a scripted package in the place of the real one."""
    package: Any = ModuleType("gssapi")
    package.names = []
    package.Name = lambda name, _kind: package.names.append(name)
    package.NameType = SimpleNamespace(hostbased_service=1)
    package.RequirementFlag = SimpleNamespace(
        mutual_authentication=1, integrity=2, confidentiality=4
    )
    package.exceptions = SimpleNamespace(GSSError=GSSError)
    package.SecurityContext = Context
    monkeypatch.setitem(sys.modules, "gssapi", package)
    loaded: ModuleType = package
    return loaded


def address(*options: str) -> HBaseAddress:
    """Return an address with Kerberos."""
    return parse_address("&".join(("hbase+thrift2://gw.example?sasl=gssapi", *options)))


def received(connected: socket.socket, size: int) -> bytes:
    """Read exactly so many bytes."""
    parts = b""
    while len(parts) < size:
        part = connected.recv(size - len(parts))
        assert part, "the client hung up"
        parts += part
    return parts


def message(connected: socket.socket) -> tuple[int, bytes]:
    """Read one message of the negotiation."""
    status, length = struct.unpack(">BI", received(connected, 5))
    return status, received(connected, length)


def test_the_negotiation_goes_as_javas_gateway_has_it(gssapi: Any) -> None:
    """Start, token, empty answer, offer, choice, complete; then sealed frames."""
    ours, theirs = socket.socketpair()
    seen: list[Any] = []

    def gateway() -> None:
        def say(status: int, body: bytes) -> None:
            theirs.sendall(struct.pack(">BI", status, len(body)) + body)

        seen.extend((message(theirs), message(theirs)))
        say(OK, b"token")
        seen.append(message(theirs))
        say(OK, b"I\x07\x01\x00\x00")
        seen.append(message(theirs))
        say(COMPLETE, b"")
        seen.append(received(theirs, 10))
        theirs.sendall(b"\0\0\0\x06Creply")

    thread = threading.Thread(target=gateway)
    thread.start()
    with ours, theirs:
        asked = address("sasl_qop=auth-conf", "sasl_service=thrift")
        trans = negotiated(asked, TSocket(sock=ours), "10.0.0.1")
        trans.write(b"calls")
        trans.flush()
        assert trans.read(5) == b"reply"
        thread.join(30)
    assert seen == [
        (START, b"GSSAPI"),
        (OK, b"hello"),
        (OK, b""),
        (OK, b"I\x04\xff\xff\xff"),
        b"\0\0\0\x06Ccalls"[:10],
    ]
    assert gssapi.names == ["thrift@10.0.0.1"]


def test_without_a_ticket_the_connection_fails_and_says_why(gssapi: Any) -> None:
    """The pool turns it into an error of the store."""
    gssapi.SecurityContext = lambda **_: Context(has_ticket=False)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(TTransportException) as caught:
        negotiated(address("sasl_host=gw"), TSocket(sock=ours), "10.0.0.1")
    assert "No Kerberos credentials" in str(caught.value.message)
    assert gssapi.names == ["hbase@gw"]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs the system's Kerberos, and so is no part of the extra `hbase`."""
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=re.escape(install_hint("kerberos"))):
        negotiated(address(), None, "gw")
