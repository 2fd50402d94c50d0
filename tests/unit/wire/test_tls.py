"""Two ends of TLS without a network between them: bytes cut anywhere, strangers, and the end."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from omidpy.base.timing.clock import SystemClock
from omidpy.errors import ConfigError
from omidpy.oracle.tls import ClientTls, client_tls, context_of, secured
from omidpy.storage.hbase.addresses.gateways import parse_address
from omidpy.storage.hbase.native.address import parse_native
from omidpy.storage.hbase.native.security.settings import security_of
from omidpy.storage.hbase.rpc.gateway import _tls_context
from omidpy.wire.tls import TlsStream
from tests.machines.tls import Authority, openssl
from tso.serving.tls import ServerTls, TlsSettings


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Make an authority that both ends trust."""
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server_context(authority: Authority) -> ssl.SSLContext:
    """Return what `tso-server` uses."""
    cert = str(authority.issue("server"))
    return ServerTls(TlsSettings(cert, client_ca=str(authority.ca))).context


def client_end(authority: Authority, cert: Path) -> TlsStream:
    """Return a client's end that has spoken."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    context.load_cert_chain(cert)
    end = TlsStream(context, server_name="127.0.0.1")
    end.start()
    return end


def carry(sender: TlsStream, receiver: TlsStream, *, part: int) -> bytes:
    """Bring what one end has to send to the other in parts; return what it says there."""
    sent = sender.to_send()
    return b"".join(receiver.receive(sent[i : i + part]) for i in range(0, len(sent), part))


def opened(authority: Authority, context: ssl.SSLContext, part: int) -> tuple[TlsStream, TlsStream]:
    """Return two ends that have shaken hands."""
    client = client_end(authority, authority.issue("etl"))
    server = TlsStream(context, server_side=True)
    while not (client.is_open and server.is_open):
        assert carry(client, server, part=part) == b""
        assert carry(server, client, part=part) == b""
    return client, server


@pytest.mark.parametrize("part", [1, 7, 100_000])
def test_what_one_end_says_the_other_hears(
    authority: Authority, server_context: ssl.SSLContext, part: int
) -> None:
    """However the network cuts it, and longer than one record."""
    client, server = opened(authority, server_context, part)
    said = bytes(range(256)) * 200
    client.seal(said)
    assert carry(client, server, part=part) == said
    server.seal(b"one")
    server.seal(memoryview(b"two"))
    assert carry(server, client, part=part) == b"onetwo"
    assert client.to_send() == server.to_send() == b""


def test_a_name_is_what_the_authority_signed(
    authority: Authority, server_context: ssl.SSLContext
) -> None:
    """Each end knows the other's."""
    client, server = opened(authority, server_context, 1000)
    assert server.peer_name() == "etl"
    assert client.peer_name() == "server"


@pytest.mark.parametrize(
    ("subject", "alternatives", "name"),
    [
        ("/", "DNS:a.test,URI:spiffe://x/etl,URI:spiffe://x/b,email:a@b.test", "spiffe://x/etl"),
        ("/", "email:a@b.test,DNS:etl.test,DNS:b.test", "etl.test"),
        ("/", "IP:127.0.0.1,email:a@b.test", "a@b.test"),
        ("/", "IP:127.0.0.1", ""),
        ("/O=shop", "URI:spiffe://x/etl", "organizationName=shop"),
        ("/O=shop/CN=etl", "URI:spiffe://x/other", "etl"),
    ],
)
def test_a_certificate_without_a_subject_goes_by_its_alternative_names(
    authority: Authority,
    server_context: ssl.SSLContext,
    subject: str,
    alternatives: str,
    name: str,
) -> None:
    """All of them were the same nobody, and could commit for one another."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    context.load_cert_chain(authority.issue("nameless", subject=subject, host=alternatives))
    client = TlsStream(context, server_name="127.0.0.1")
    server = TlsStream(server_context, server_side=True)
    client.start()
    while not (client.is_open and server.is_open):
        server.receive(client.to_send())
        client.receive(server.to_send())
    assert server.peer_name() == name


def test_the_end_is_told_from_silence(authority: Authority, server_context: ssl.SSLContext) -> None:
    """What came before it is still said."""
    client, server = opened(authority, server_context, 1000)
    client.seal(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        client._ssl.unwrap()
    assert not server.is_over
    assert carry(client, server, part=1000) == b"last"
    assert server.is_over


def test_bytes_that_are_no_tls_are_an_error(
    authority: Authority, server_context: ssl.SSLContext
) -> None:
    """Before the handshake, and in the middle of the conversation."""
    with pytest.raises(ssl.SSLError):
        TlsStream(server_context, server_side=True).receive(b"\0\0\0\x04\x1a\x02\x0a\0")
    client, server = opened(authority, server_context, 1000)
    client.seal(b"true")
    sealed = bytearray(client.to_send())
    sealed[-1] ^= 1
    with pytest.raises(ssl.SSLError):
        server.receive(bytes(sealed))


def test_old_versions_and_resumed_sessions_are_not_spoken(server_context: ssl.SSLContext) -> None:
    """A session that is resumed would bring yesterday's certificate."""
    assert server_context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert server_context.options & ssl.OP_NO_TICKET
    assert server_context.options & ssl.OP_NO_RENEGOTIATION
    assert server_context.num_tickets == 0


def test_a_key_with_a_password_is_refused(authority: Authority, tmp_path: Path) -> None:
    """A daemon has no terminal on which OpenSSL could ask for it."""
    locked = tmp_path / "locked.pem"
    openssl(
        *("pkey", "-in", str(authority.issue("locked")), "-aes128", "-passout", "pass:secret"),
        *("-out", str(locked)),
    )
    for refuse in (
        lambda: ServerTls(TlsSettings(str(authority.issue("open")), key=str(locked))),
        lambda: client_tls({"tls": "true", "cert": str(locked)}, address="tso:1"),
    ):
        with pytest.raises(ConfigError, match="without a password"):
            refuse()


def test_an_oracle_that_says_goodbye_during_the_handshake_has_refused_nothing() -> None:
    """One that is about to end; its client goes on to the next, or tries again."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(bytes.fromhex("15030300020100"))  # close_notify
        with pytest.raises(ConnectionResetError):
            secured(ours, ClientTls(), host="localhost", timeout_s=5, clock=SystemClock())


def of_the_oracle(ca: Path, cert: Path) -> Callable[[], ssl.SSLContext]:
    """Return what makes the connections to an oracle."""
    tls = ClientTls(str(ca), str(cert))
    return lambda: context_of(tls)


def of_hbase(ca: Path, cert: Path) -> Callable[[], ssl.SSLContext]:
    """Return the same of HBase's servers."""
    made = security_of(parse_native(f"hbase+rpc://h?tls=on&tls_ca={ca}&tls_cert={cert}")).tls
    assert made is not None
    return made


def of_gateways(ca: Path, cert: Path) -> Callable[[], ssl.SSLContext]:
    """Return the same of HBase's gateways."""
    address = parse_address(f"hbase+thrift2://h?tls=on&tls_ca={ca}&tls_cert={cert}")
    return lambda: _tls_context(address)


def shown(client: ssl.SSLContext, server: ssl.SSLContext) -> str | None:
    """Return the name that a connection shows to a server."""
    ends = TlsStream(client, server_name="127.0.0.1"), TlsStream(server, server_side=True)
    ends[0].start()
    while not all(end.is_open for end in ends):
        carry(*ends, part=100_000)
        carry(*ends[::-1], part=100_000)
    return ends[1].peer_name()


@pytest.mark.parametrize("made", [of_the_oracle, of_hbase, of_gateways])
def test_the_next_connection_shows_a_certificate_that_was_put_in_the_place_of_another(
    made: Callable[[Path, Path], Callable[[], ssl.SSLContext]],
    authority: Authority,
    server_context: ssl.SSLContext,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They end while processes live on; and files are replaced one after another."""
    ca, cert, new = tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "new.pem"
    ca.write_bytes(authority.ca.read_bytes())
    cert.write_bytes(authority.issue("first").read_bytes())
    context = made(ca, cert)
    first = context()
    assert shown(first, server_context) == "first"
    assert context() is first, "they are read once"
    cert.write_text("half a file")
    with caplog.at_level(logging.WARNING):
        assert [shown(context(), server_context) for _ in range(2)] == ["first"] * 2
    assert len(caplog.records) == 1
    assert "cert.pem" in caplog.text
    new.write_bytes(authority.issue("second").read_bytes())
    new.replace(cert)
    assert shown(context(), server_context) == "second"
    ca.write_bytes(Authority(tmp_path, "other").ca.read_bytes())
    with pytest.raises(ssl.SSLCertVerificationError):
        shown(context(), server_context)
