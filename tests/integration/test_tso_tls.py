"""The oracle over TLS: who is let in, who is told apart from whom, and what each may ask."""

from __future__ import annotations

import re
import signal
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

import omidpy
from omidpy.errors import ConfigError, OmidError, OracleUnavailable, RemoteProtocolError
from omidpy.model import CellId, TableId, Timestamp
from omidpy.oracle.address import parse_address
from omidpy.oracle.base import AbortReason, CommitGranted, CommitRefused
from omidpy.oracle.tcp import TcpOracle
from omidpy.oracle.tls import ClientTls
from omidpy.wire.frames import frame_request
from omidpy.wire.messages import (
    CommitRequest,
    FenceRequest,
    HandshakeRequest,
    InvalidateRequest,
    PeerCapabilities,
    Request,
    TimestampRequest,
)
from tests.machines.processes import ServerProcess, tso_server
from tests.machines.tls import Authority
from tso.core.shares.rates import GREAT_DEBT_S
from tso.serving.connection import HANDSHAKE_TIMEOUT_S

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where all certificates are."""
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    """Make the authority that clients and server trust."""
    return Authority(folder)


@pytest.fixture(scope="module")
def cert(authority: Authority) -> Path:
    """Return the server's certificate."""
    return authority.issue("server")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the address of a store that does not exist yet."""
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def server(url: str, cert: Path) -> Iterator[ServerProcess]:
    """Run a server that lets everybody in who trusts it."""
    with tso_server(url, "--tls-cert", str(cert)) as server:
        yield server


@pytest.fixture
def strict(url: str, cert: Path, authority: Authority, tmp_path: Path) -> Iterator[ServerProcess]:
    """Run a server that wants certificates, with a file of roles."""
    roles = tmp_path / "roles.toml"
    roles.write_text('etl = ["transactions"]\nroot = ["admin"]\n"*" = ["invalidation"]\n')
    options = ["--tls-cert", str(cert), "--tls-client-ca", str(authority.ca)]
    with tso_server(url, *options, "--tls-roles", str(roles)) as server:
        yield server


def oracle_of(
    server: ServerProcess, authority: Authority, name: str | None = None, client: int | None = None
) -> TcpOracle:
    """Return a client with the certificate of `name`, or without any."""
    cert = None if name is None else str(authority.issue(name))
    tls = ClientTls(ca=str(authority.ca), cert=cert)
    return TcpOracle(server.address, reconnect_budget_s=0, client=client, tls=tls)


def client_context(authority: Authority, name: str) -> ssl.SSLContext:
    """Return what a connection with the certificate of `name` is made with."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    context.load_cert_chain(authority.issue(name))
    return context


@contextmanager
def raw_connection(
    server: ServerProcess, context: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> Iterator[ssl.SSLSocket]:
    """Connect without a client of ours."""
    with (
        socket.create_connection(parse_address(server.address), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as raw,
    ):
        yield raw


def begin(server: ServerProcess, authority: Authority) -> None:
    """Connect and ask for a timestamp."""
    with closing(oracle_of(server, authority)) as oracle:
        oracle.begin()


# -- a conversation --------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["{address}", "store:"])
def test_transactions_run_over_tls(
    server: ServerProcess, authority: Authority, url: str, place: str
) -> None:
    """By threads that ask at once, through one connection, by its address or the lease's."""
    tso = place.format(address=server.address) + f"?tls=true&ca={authority.ca}"
    with omidpy.connect(url, tso=tso) as tm:
        tm.create_table("t", families=["f"])

        def write(number: int) -> None:
            for count in range(20):
                with tm.begin() as tx:
                    tx.table("t").put(b"%d/%d" % (number, count), {b"f:q": b"v"})

        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with tm.begin() as tx:
            assert len(list(tx.table("t").scan())) == 160


def test_a_commit_longer_than_every_buffer_arrives(
    server: ServerProcess, authority: Authority
) -> None:
    """A megabyte waits for the kernel in the middle of a record, while answers come in."""
    with closing(oracle_of(server, authority)) as oracle:
        start_ts = oracle.begin().start_ts
        verdict = oracle.commit(start_ts, [CellId(number) for number in range(100_000)], [])
        assert isinstance(verdict, CommitGranted)


def test_a_connection_that_the_oracle_ended_is_noticed_before_a_commit(
    server: ServerProcess, authority: Authority
) -> None:
    """So that a commit is not sent into the void, and its outcome is not in doubt."""
    with closing(oracle_of(server, authority)) as oracle:
        start_ts = oracle.begin().start_ts
        assert server.terminate() == 0
        with pytest.raises(OracleUnavailable, match="closed the idle connection") as caught:
            oracle.commit(start_ts, [CellId(1)], [])
        assert caught.value.retryable


def test_a_client_that_says_goodbye_is_let_go(server: ServerProcess, authority: Authority) -> None:
    """Else its connection counted until its machine closed the socket too."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with socket.create_connection(parse_address(server.address), timeout=30) as plain:
        while True:
            with suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                break
            plain.sendall(outgoing.read())
            incoming.write(plain.recv(2**16))
        with suppress(ssl.SSLWantReadError):
            tls.unwrap()
        plain.sendall(outgoing.read())
        plain.settimeout(HANDSHAKE_TIMEOUT_S / 2)  # past which it is let go for its silence
        while plain.recv(2**16):
            pass


# -- who is let in ---------------------------------------------------------------------------------


def test_a_client_without_tls_is_told(server: ServerProcess, url: str) -> None:
    """What to write behind the address; the server says what it saw."""
    with pytest.raises(OmidError) as caught:
        omidpy.connect(url, tso=server.address)
    assert isinstance(caught.value, RemoteProtocolError | OracleUnavailable)
    server.wait_for("^connection-closed .*TLS failed")


def test_a_server_without_tls_is_told_apart(url: str, authority: Authority) -> None:
    """Nothing is said to somebody who cannot show who they are."""
    with (
        tso_server(url) as plain,
        closing(oracle_of(plain, authority)) as oracle,
        pytest.raises((ConfigError, OracleUnavailable)),
    ):
        oracle.begin()


def test_a_stranger_is_not_believed(
    server: ServerProcess, url: str, tmp_path: Path, authority: Authority
) -> None:
    """Neither one whose authority is unknown, nor one whose name is another."""
    other = Authority(tmp_path, "stranger")
    with pytest.raises(ConfigError, match=r"not trusted: .*ca=FILE"):
        omidpy.connect(url, tso=f"{server.address}?tls=true&ca={other.ca}")
    port = parse_address(server.address)[1]
    tso = f"localhost:{port}?tls=true&ca={authority.ca}"
    with pytest.raises(ConfigError, match=r"Hostname mismatch.*name=NAME"):
        omidpy.connect(url, tso=tso)
    omidpy.connect(url, tso=f"{tso}&name=127.0.0.1").close()


def test_a_certificate_is_asked_for(
    strict: ServerProcess, authority: Authority, tmp_path: Path
) -> None:
    """None, and one that another authority signed, are refused with the remedy."""
    with (
        closing(oracle_of(strict, authority)) as oracle,
        pytest.raises(ConfigError, match=r"does not accept our certificate.*cert=FILE"),
    ):
        oracle.begin()
    forged = str(Authority(tmp_path, "stranger").issue("etl"))
    tls = ClientTls(ca=str(authority.ca), cert=forged)
    with (
        closing(TcpOracle(strict.address, reconnect_budget_s=0, tls=tls)) as oracle,
        pytest.raises(ConfigError, match="does not accept our certificate"),
    ):
        oracle.begin()


# -- what each may ask -----------------------------------------------------------------------------


def test_each_name_has_its_roles(strict: ServerProcess, authority: Authority) -> None:
    """The client says which one is missing, before it asks."""
    with closing(oracle_of(strict, authority, "etl")) as etl:
        start_ts = etl.begin().start_ts
        assert isinstance(etl.commit(start_ts, [CellId(1)], []), CommitGranted)
        with pytest.raises(ConfigError, match=r"roles transactions, and this needs fences"):
            etl.fence(TableId(1))
        with pytest.raises(ConfigError, match="this needs invalidation"):
            etl.invalidate(start_ts)
    with closing(oracle_of(strict, authority, "root")) as root:
        assert root.fence(TableId(1)) > start_ts
        root.invalidate(root.begin().start_ts)
    with closing(oracle_of(strict, authority, "somebody")) as other:
        assert isinstance(other.invalidate(start_ts), CommitGranted)
        with pytest.raises(ConfigError, match="roles invalidation, and this needs transactions"):
            other.begin()


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("etl", FenceRequest(TableId(1))),
        ("etl", InvalidateRequest(Timestamp(50))),
        ("somebody", FenceRequest(TableId(1))),
        ("somebody", TimestampRequest()),
        ("somebody", TimestampRequest(hold_ms=1)),
        ("somebody", CommitRequest(Timestamp(50), (CellId(1),))),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_client_that_asks_all_the_same_is_hung_up_on(
    strict: ServerProcess, authority: Authority, name: str, request_: Request
) -> None:
    """Whatever it says of itself; the log names it."""
    with raw_connection(strict, client_context(authority, name)) as raw:
        raw.sendall(frame_request(HandshakeRequest(PeerCapabilities(7))))
        assert raw.recv(4096)
        raw.sendall(frame_request(request_))
        assert raw.recv(4) == b""
    strict.wait_for(f"^connection-closed .*{type(request_).__name__} from '{name}'")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_nothing_is_resumed(
    strict: ServerProcess, authority: Authority, version: ssl.TLSVersion
) -> None:
    """Else whose certificate is trusted no more would be believed for as long as a session."""
    context = client_context(authority, "etl")
    context.minimum_version = context.maximum_version = version
    session: ssl.SSLSession | None = None
    for _ in range(2):
        with raw_connection(strict, context, session) as raw:
            raw.sendall(frame_request(HandshakeRequest(PeerCapabilities(7))))
            assert raw.recv(4096)
            assert not raw.session_reused
            session = raw.session


def test_what_one_name_began_no_other_commits(strict: ServerProcess, authority: Authority) -> None:
    """Not even one that knows the number by which the client calls itself."""
    with (
        closing(oracle_of(strict, authority, "etl", client=7)) as etl,
        closing(oracle_of(strict, authority, "root", client=7)) as root,
    ):
        start_ts = etl.begin().start_ts
        with pytest.raises(OracleUnavailable):
            root.commit(start_ts, [CellId(2)], [])
        assert isinstance(etl.commit(start_ts, [CellId(1)], []), CommitGranted)


def test_whose_certificate_names_nobody_is_not_served(
    strict: ServerProcess, authority: Authority
) -> None:
    """All of those would be one, and each could commit what another began."""
    for file, host in (("nobody", "IP:127.0.0.1"), ("spiffe", "URI:spiffe://shop/etl")):
        cert = authority.issue(file, subject="/", host=host)
        tls = ClientTls(ca=str(authority.ca), cert=str(cert))
        with closing(TcpOracle(strict.address, reconnect_budget_s=0, tls=tls)) as oracle:
            if file == "spiffe":
                with pytest.raises(OmidError, match="needs transactions"):
                    oracle.begin()
            else:
                with pytest.raises(OmidError):
                    oracle.begin()
                assert strict.wait_for("its certificate names nobody")


# -- a daemon's life -------------------------------------------------------------------------------


def test_certificates_are_read_again_on_sighup(
    url: str, folder: Path, authority: Authority, tmp_path: Path
) -> None:
    """One that does not fit is told of and leaves the old one in force."""
    other = Authority(tmp_path, "successor")
    file = tmp_path / "server.pem"
    file.write_bytes(authority.issue("old").read_bytes())
    with tso_server(url, "--tls-cert", str(file)) as server:
        begin(server, authority)
        file.write_text("nonsense")
        server.process.send_signal(signal.SIGHUP)
        assert "--tls-cert" in server.wait_for("^tls-not-reloaded")
        begin(server, authority)
        file.write_bytes(other.issue("new").read_bytes())
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("^tls-reloaded")
        begin(server, other)
        with pytest.raises(ConfigError, match="not trusted"):
            begin(server, authority)


def test_a_name_that_lost_its_role_is_hung_up_on(
    url: str, cert: Path, authority: Authority, tmp_path: Path
) -> None:
    """SIGHUP left its connections as they were, for as long as they lasted."""
    roles = tmp_path / "roles.toml"
    roles.write_text('etl = ["transactions"]\nroot = ["admin"]\n')
    options = ["--tls-cert", str(cert), "--tls-client-ca", str(authority.ca)]
    with (
        tso_server(url, *options, "--tls-roles", str(roles)) as server,
        closing(oracle_of(server, authority, "etl")) as etl,
        closing(oracle_of(server, authority, "root")) as root,
    ):
        etl.begin()
        root.begin()
        links = root._links.current
        roles.write_text('etl = ["fences"]\nroot = ["admin"]\n')
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("^connection-closed .*other roles now")
        with pytest.raises(OmidError):
            etl.begin()
        root.begin()
        assert root._links.current is links


def test_who_is_revoked_is_hung_up_on(
    url: str, cert: Path, authority: Authority, tmp_path: Path
) -> None:
    """And not let in again; the others connect anew, and go on with what they began."""
    own = Authority(tmp_path, "revoking")
    own.revoke()
    options = ["--tls-cert", str(cert), "--tls-client-ca", str(own.ca), "--tls-crl", str(own.crl)]

    def client(address: str, name: str) -> TcpOracle:
        tls = ClientTls(ca=str(authority.ca), cert=str(own.issue(name)))
        return TcpOracle(address, reconnect_budget_s=5, tls=tls)

    with tso_server(url, *options) as server:
        with (
            closing(client(server.address, "stolen")) as stolen,
            closing(client(server.address, "honest")) as honest,
        ):
            stolen.begin()
            start_ts = honest.begin().start_ts
            own.revoke(tmp_path / "revoking-stolen.pem")
            server.process.send_signal(signal.SIGHUP)
            server.wait_for("^connection-closed .*has changed")
            with pytest.raises(OmidError):
                stolen.begin()
            assert isinstance(honest.commit(start_ts, [CellId(1)], []), CommitGranted)
        nonsense = tmp_path / "revoking.pem"
        own.crl.write_bytes(nonsense.read_bytes())
        server.process.send_signal(signal.SIGHUP)
        assert "--tls-crl" in server.wait_for("^tls-not-reloaded")


def test_a_server_without_tls_says_that_it_has_none(url: str, authority: Authority) -> None:
    """And one with TLS, that the client speaks none."""
    with tso_server(url) as plain, closing(oracle_of(plain, authority)) as oracle:
        with pytest.raises(ConfigError, match="does TLS stand in its settings"):
            oracle.begin()
        plain.wait_for("^connection-closed .*this server does not; give it --tls-cert")
        plain.process.send_signal(signal.SIGHUP)
        plain.wait_for("^nothing-to-reload")
        with closing(TcpOracle(plain.address)) as open_one:
            assert open_one.begin()


def test_a_server_with_tls_says_what_to_write(server: ServerProcess) -> None:
    """To a client without it, whose first bytes are a frame's."""
    with closing(TcpOracle(server.address, reconnect_budget_s=0)) as oracle:
        with pytest.raises(OmidError, match="tls=true"):
            oracle.begin()
        server.wait_for("^connection-closed .*TLS failed: the client speaks none; write .tls=true")


# -- metrics ---------------------------------------------------------------------------------------


def page(server: ServerProcess, context: ssl.SSLContext | None, path: str = "/metrics") -> bytes:
    """Ask for a page as a scraper does."""
    line = server.wait_for("^metrics ")
    port = line.split("address=")[1].split()[0].rpartition(":")[2]
    scheme = "http" if context is None else "https"
    with urllib.request.urlopen(
        f"{scheme}://127.0.0.1:{port}{path}", timeout=30, context=context
    ) as answer:
        found: bytes = answer.read()
        return found


def test_metrics_are_served_with_the_tls_of_the_clients(
    url: str, authority: Authority, tmp_path: Path
) -> None:
    """To whoever shows a certificate, where clients do; SIGHUP reads the files for them as well."""
    own = Authority(tmp_path, "watchers")
    own.revoke()
    cert = tmp_path / "server.pem"
    cert.write_bytes(authority.issue("old").read_bytes())
    options = ["--tls-cert", str(cert), "--tls-client-ca", str(own.ca), "--tls-crl", str(own.crl)]
    nobody, scraper, fired = (
        ssl.create_default_context(cafile=str(authority.ca)) for _ in range(3)
    )
    scraper.load_cert_chain(own.issue("scraper"))
    fired.load_cert_chain(own.issue("fired"))
    with tso_server(url, *options, "--metrics", "0.0.0.0:0") as server:
        server.wait_for("^listening on")
        assert b"tso_connections 0.0" in page(server, scraper)
        assert page(server, fired, "/healthz") == b"ok\n"
        with pytest.raises(OSError):
            page(server, nobody)
        server.wait_for("^metrics-refused .*TLS failed: PEER_DID_NOT_RETURN_A_CERTIFICATE")
        with pytest.raises(urllib.error.HTTPError, match="400") as caught:
            page(server, None)
        assert caught.value.read() == b"this address is served with TLS alone: ask https://\n"
        caught.value.close()
        server.wait_for("^metrics-refused .*ask https://")

        successor = Authority(tmp_path, "successor")
        cert.write_bytes(successor.issue("new").read_bytes())
        own.revoke(tmp_path / "watchers-fired.pem")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("^tls-reloaded")
        with pytest.raises(urllib.error.URLError, match="unable to get local issuer"):
            page(server, scraper)
        for context in (scraper, fired):
            context.load_verify_locations(successor.ca)
        assert page(server, scraper, "/healthz") == b"ok\n"
        with pytest.raises(OSError):
            page(server, fired)
        server.wait_for("^metrics-refused .*TLS failed: CERTIFICATE_VERIFY_FAILED")


def test_files_that_do_not_fit_stop_the_start(url: str, cert: Path, tmp_path: Path) -> None:
    """With the flag, the file, and what it should hold."""
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    roles = tmp_path / "roles.toml"
    roles.write_text('etl = ["everything"]')
    for options, message in (
        (["--tls-cert", str(nonsense)], "name PEM files"),
        (["--tls-cert", "/nowhere"], "--tls-cert '/nowhere'"),
        (["--tls-cert", str(cert), "--tls-client-ca", str(nonsense)], "name a PEM file"),
        (
            ["--tls-cert", str(cert), "--tls-client-ca", str(cert), "--tls-roles", str(roles)],
            "which is no list of transactions, fences, invalidation, admin",
        ),
    ):
        with tso_server(url, *options, "--check-config") as server:
            assert server.wait() == 2
            assert re.search(re.escape(message), server.log), server.log


# -- rates -----------------------------------------------------------------------------------------


def test_a_flood_of_small_commits_ends_no_transaction_of_another_name(
    url: str, cert: Path, authority: Authority
) -> None:
    """It turned the conflict map over, and every transaction that had begun before was aborted."""
    options = ["--tls-cert", str(cert), "--tls-client-ca", str(authority.ca)]
    map_cells = 20_000
    rates = ["--conflict-map-size", str(map_cells), "--cells-per-s", "100"]
    with (
        tso_server(url, *options, *rates) as server,
        closing(oracle_of(server, authority, "victim")) as victim,
        closing(oracle_of(server, authority, "flood", client=7)) as flood,
    ):
        start_ts = victim.begin().start_ts
        reasons = []
        for first in range(0, 2 * map_cells, 500):
            mine = flood.begin().start_ts
            verdict = flood.commit(mine, [CellId(first + number) for number in range(500)], [])
            if isinstance(verdict, CommitRefused):
                reasons.append(verdict.reason)
                assert verdict.wait_s > GREAT_DEBT_S
                break
        assert reasons == [AbortReason.RATE]
        assert isinstance(victim.commit(start_ts, [CellId(10**9)], []), CommitGranted)
        server.wait_for("^over-its-rate .*peer=flood@")
