"""`omidpy doctor`: every way a gateway may speak is found, and every mistake has its remedy."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from thriftpy2.thrift import TApplicationException

import omidpy
from omidpy.base.installation import install_hint
from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE, OMID_ENABLED
from omidpy.cli import main
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.control import ControlTable, encode_document
from omidpy.facts.leadership import LEASE_FACT, LeaseRecord
from omidpy.model import FamilySchema, TableSchema
from omidpy.opening import open_store
from omidpy.reports.health.checks import clock_finding
from omidpy.reports.health.findings import ClockFinding, Health
from omidpy.storage.hbase.addresses.gateways import parse_address
from omidpy.storage.hbase.native import inspection
from omidpy.storage.hbase.native.inspection import Seen
from omidpy.storage.hbase.rpc import probe
from omidpy.storage.sqlite import SqliteStore
from tests.machines.gateways import FakeGateway
from tests.machines.hbase import HBase
from tests.machines.ignoring import set_ignored

pytestmark = pytest.mark.integration

Report = Callable[..., tuple[int, list[dict[str, Any]]]]

NOW_MS: Final = 1_700_000_000_000


@pytest.fixture
def examine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Report:
    """Return what runs the doctor and returns its exit code and its checks."""
    monkeypatch.delenv("OMIDPY_STORE", raising=False)
    monkeypatch.delenv("OMIDPY_TSO", raising=False)

    def run(*words: str) -> tuple[int, list[dict[str, Any]]]:
        with pytest.raises(SystemExit) as exit_info:
            main(("doctor", *words, "--json"))
        code = exit_info.value.code or 0
        assert isinstance(code, int)
        report = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert report["ok"] == (code == 0)
        return code, report["checks"]

    return run


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a probe wait briefly, since gateways in this process answer at once."""
    original = probe.probe
    monkeypatch.setattr(probe, "probe", lambda *args: original(*args, patience_s=0.4))


# -- gateways --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("protocol", ["binary", "compact"])
@pytest.mark.parametrize("transport", ["buffered", "framed"])
@pytest.mark.parametrize("api", ["thrift1", "thrift2"])
def test_every_way_to_speak_is_found(
    examine: Report, api: Any, transport: str, protocol: str
) -> None:
    """A gateway's operator chose it, and a gateway says nothing about it."""
    with FakeGateway(api=api, transport=transport, protocol=protocol) as gateway:
        code, (check,) = examine(f"127.0.0.1:{gateway.port}")
    assert (code, check["verdict"]) == (0, "ok" if api == "thrift2" else "warning")
    use, limits = f"use {shlex.quote(check['url'])}", ", for clients alone: a Thrift1 gateway"
    assert check["detail"].startswith(use + (limits if api == "thrift1" else ""))
    assert "need a Thrift2 gateway" in check["detail"] or api == "thrift2"
    address = parse_address(check["url"])
    assert (address.api, address.transport, address.protocol) == (api, transport, protocol)
    assert address.gateways == (("127.0.0.1", gateway.port),)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("api", ["thrift1", "thrift2"])
def test_an_old_gateway_is_told_by_a_call_that_only_one_kind_has(examine: Report, api: Any) -> None:
    """Gateways before HBase 2.4 do not know the question of their kind."""

    def unknown() -> None:
        raise TApplicationException(TApplicationException.UNKNOWN_METHOD, "Invalid method name")

    answers: dict[str, Any] = {"getThriftServerType": unknown}
    if api == "thrift1":
        answers["getTableNames"] = lambda: [b"t"]
    with FakeGateway(answers, api=api) as gateway:
        _, (check,) = examine(f"127.0.0.1:{gateway.port}")
    assert check["detail"].startswith(f"use hbase+{api}://")


@pytest.mark.usefixtures("hurried")
def test_options_of_the_address_stay_in_the_answer(examine: Report) -> None:
    """What the user wrote about time limits is not lost by asking."""
    with FakeGateway(transport="framed") as gateway:
        _, (check,) = examine(gateway.url("protocol=compact", "timeout_s=7"))
    assert check["detail"].endswith("?transport=framed&timeout_s=7'"), "in quotes, for a shell"


def closed_port() -> int:
    """Return a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_where_nobody_listens_it_says_so(examine: Report) -> None:
    """The most common mistake, and the cheapest to tell."""
    code, (check,) = examine(f"127.0.0.1:{closed_port()}")
    assert (code, check["verdict"]) == (1, "failed")
    assert "nobody listens" in check["detail"]


@contextlib.contextmanager
def answering(reply: bytes) -> Iterator[int]:
    """Listen, and send `reply` to whoever says something; yields the port.

    An empty reply is what a gateway gives that serves all the connections it can.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connected, _ = listener.accept()
            except OSError:
                return
            with connected, contextlib.suppress(OSError):
                connected.settimeout(5)
                while connected.recv(4096):
                    connected.sendall(reply)
                    if reply:
                        break

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP"),
        (b"\x04\x00\x00\x00\x13Invalid status -128", "demands SASL; add sasl=gssapi"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "understands none of"),
        (b"", "says nothing"),
    ],
)
def test_what_is_no_plain_gateway_is_named(examine: Report, reply: bytes, says: str) -> None:
    """Each looks like a broken gateway to a client, and needs another remedy."""
    with answering(reply) as port:
        code, (check,) = examine(f"127.0.0.1:{port}")
    assert code == 1
    assert says in check["detail"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate for the loopback, and its key in the same file."""
    path = tmp_path_factory.mktemp("tls") / "all.pem"
    key = path.with_name("key.pem")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=loopback", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", key, "-out", path),
        ],
        check=True,
        capture_output=True,
    )
    path.write_bytes(path.read_bytes() + key.read_bytes())
    return path


@pytest.mark.usefixtures("hurried")
def test_tls_is_recognised_and_then_spoken(examine: Report, certificate: Path) -> None:
    """First what to add, then, with it, the address to use."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with FakeGateway(tls=context, transport="framed") as gateway:
        code, (plain,) = examine(gateway.url())
        assert code == 1
        assert "speaks TLS; add tls=on" in plain["detail"]
        code, (untrusted,) = examine(gateway.url("tls=on"))
        assert code == 1
        assert "tls_ca=FILE" in untrusted["detail"]
        code, (found,) = examine(gateway.url("tls=on", f"tls_ca={certificate}"))
    assert code == 0
    assert f"?transport=framed&tls=on&tls_ca={certificate}" in found["detail"]


@pytest.mark.usefixtures("hurried")
def test_tls_towards_a_plain_gateway_is_named(examine: Report) -> None:
    """The message of the TLS library says only that something ended early."""
    with FakeGateway() as gateway:
        _, (check,) = examine(gateway.url("tls=on"))
    assert "does not speak TLS; leave tls=on out" in check["detail"]


@pytest.mark.usefixtures("hurried")
def test_an_address_of_a_store_that_speaks_otherwise_is_corrected(examine: Report) -> None:
    """That is the question of somebody whose first call hung."""
    with FakeGateway(transport="framed") as gateway:
        code, checks = examine("--store", gateway.url("timeout_s=0.3"))
    assert code == 1
    assert "framed transport" in checks[0]["detail"]
    assert f"use 'hbase+thrift2://127.0.0.1:{gateway.port}?transport=framed" in checks[0]["detail"]
    assert (checks[0]["is_as_addressed"], checks[0]["problem"]) == (False, None)
    assert [check["name"] for check in checks[1:]] == ["store", "installation"]


def test_a_road_with_servers_out_of_reach_is_closed(
    examine: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that cannot be reached has some rows; where none was found nothing is known of roads."""
    url = "hbase+rpc://master:16000"
    seen = [
        Seen("catalogue", "rs1:16020"),
        Seen("master", "master:16000"),
        Seen("region server", "rs1:16020"),
        Seen("region server", "rs2:16020", "its name is unknown"),
    ]
    monkeypatch.setattr(inspection, "servers", lambda _: iter(seen))
    code, checks = examine(url)
    road = checks[-1]
    assert (code, road["name"], road["verdict"]) == (1, "road", "failed")
    assert (road["servers"], road["closed"]) == (3, ["rs2:16020"])
    assert "1 of 3 servers cannot be reached from here (rs2:16020)" in road["detail"]
    assert "hbase+thrift2://HOST:9090" in road["detail"]
    monkeypatch.setattr(inspection, "servers", lambda _: iter(seen[:3]))
    code, checks = examine(url)
    assert (code, checks[-1]["verdict"]) == (0, "ok")
    assert checks[-1]["detail"] == f"HBase is reached without a gateway: use {url}"
    monkeypatch.setattr(inspection, "servers", lambda _: iter([Seen("catalogue", url, "nobody")]))
    code, checks = examine(url)
    assert (code, len(checks)) == (1, 1)


@pytest.mark.usefixtures("hurried")
def test_gateways_of_two_clusters_are_told(examine: Report) -> None:
    """Each would get a part of every transaction."""
    with FakeGateway() as one, FakeGateway({"getClusterId": lambda: "another"}) as two:
        _, checks = examine("--store", f"{one.url()},127.0.0.1:{two.port}?retry_s=0")
    assert [check["verdict"] for check in checks[:2]] == ["ok", "failed"]
    assert "lead to two HBase clusters, cluster and another" in checks[1]["detail"]


@pytest.mark.parametrize("words", [(), ("nobody:here:x",), ("--store", "hbase+thrift2://gw?x=1")])
def test_a_mistake_in_the_question_exits_2(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts tell a bad command from a sick store."""
    monkeypatch.delenv("OMIDPY_STORE", raising=False)
    with pytest.raises(SystemExit) as exit_info:
        main(("doctor", *words))
    assert exit_info.value.code == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(
    "use", ["main(('doctor', 'gw'))", "main(('doctor', '--store', 'hbase+thrift2://gw'))"]
)
def test_without_the_extra_its_name_is_told(use: str) -> None:
    """`import` says only which module it misses."""
    script = f"import sys; sys.modules['thriftpy2'] = None; from omidpy.cli import main; {use}"
    run = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert run.returncode == 2
    assert install_hint("hbase").encode() in run.stderr


# -- stores ----------------------------------------------------------------------------------------


def by_name(checks: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return checks by their name."""
    return {check["name"]: check for check in checks}


def test_a_store_that_was_not_set_up_is_told_how(examine: Report, tmp_path: Path) -> None:
    """The first thing that a new user meets."""
    url = f"sqlite:///{tmp_path / 's.db'}"
    SqliteStore(str(tmp_path / "s.db")).close()
    code, checks = examine("--store", url)
    assert code == 1
    assert f"omidpy init --store {url}" in by_name(checks)["system tables"]["detail"]
    assert "lease" not in by_name(checks), "there is nowhere to look"


@pytest.mark.parametrize(("is_compiled", "verdict"), [(True, "ok"), (False, "warning")])
def test_an_engine_that_is_not_compiled_is_told(
    examine: Report,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_compiled: bool,
    verdict: str,
) -> None:
    """It decides the same, only slower, so that nobody would notice before the load is there."""
    monkeypatch.setattr("tso.core.engine.is_compiled", lambda: is_compiled)
    url = f"sqlite:///{tmp_path / 's.db'}"
    with pytest.raises(SystemExit):
        main(("init", "--store", url))
    code, checks = examine("--store", url)
    found = by_name(checks)["installation"]
    assert (code, found["verdict"]) == (0, verdict)
    assert found["engine"] == ("compiled" if is_compiled else "interpreted")
    assert ("C compiler" in found["detail"]) is not is_compiled


def test_a_store_without_an_oracle_is_healthy(examine: Report, tmp_path: Path) -> None:
    """Nobody need hold the lease while nobody works; it is worth knowing."""
    url = f"sqlite:///{tmp_path / 's.db'}"
    with pytest.raises(SystemExit):
        main(("init", "--store", url))
    code, checks = examine("--store", url)
    assert code == 0
    assert by_name(checks)["lease"]["verdict"] == "warning"
    assert "tso-server" in by_name(checks)["lease"]["detail"]


def test_an_oracle_that_was_killed_holds_the_lease_by_its_record_alone(
    examine: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While it lives, the record is enough; `status` says the same."""
    url = f"sqlite:///{tmp_path / 's.db'}"
    words = "by its record alone: no process here is its oracle"
    with omidpy.connect(url) as tm:
        tm.create_table("t", families=["cf"])
        found = by_name(examine("--store", url)[1])["lease"]
        assert (found["verdict"], words in found["detail"]) == ("ok", False)
    killed = f"import omidpy, os; tm = omidpy.connect({url!r}); tm.begin(); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", killed], check=False)
    code, checks = examine("--store", url)
    found = by_name(checks)["lease"]
    assert (code, found["verdict"], words in found["detail"]) == (0, "warning", True)
    with pytest.raises(SystemExit):
        main(("status", "--store", url))
    assert words in capsys.readouterr().out


def test_another_process_by_the_number_of_a_killed_oracle_holds_no_lease(
    examine: Report, tmp_path: Path
) -> None:
    """In a container each program has the same one, and the store's lock tells them apart."""
    url = f"sqlite:///{tmp_path / 's.db'}"
    omidpy.connect(url).close()
    with contextlib.closing(open_store(url)) as store:
        control = ControlTable(store)
        left = LeaseRecord("x", "10.0.0.1:1", 1, os.getpid(), socket.gethostname(), 10_000, 9)
        control.replace(LEASE_FACT, control.read(LEASE_FACT), encode_document(left))
    found = by_name(examine("--store", url)[1])["lease"]
    assert (found["verdict"], found["seems_gone"]) == ("warning", True)


def test_an_oracle_that_does_not_answer_is_a_failure(examine: Report, tmp_path: Path) -> None:
    """It was asked for by name."""
    url = f"sqlite:///{tmp_path / 's.db'}"
    with pytest.raises(SystemExit):
        main(("init", "--store", url))
    code, checks = examine("--store", url, "--tso", f"127.0.0.1:{closed_port()}")
    assert code == 1
    assert by_name(checks)["oracle"]["verdict"] == "failed"


@pytest.mark.parametrize("attribute", ["VERSIONS", "TTL"])
def test_a_table_that_forgets_is_named_with_the_remedy(
    examine: Report, tmp_path: Path, attribute: str
) -> None:
    """HBase's own defaults drop what snapshots need; nothing would say so until it is gone."""
    url = f"sqlite:///{tmp_path / 's.db'}"
    with pytest.raises(SystemExit):
        main(("init", "--store", url))
    store = SqliteStore(str(tmp_path / "s.db"))
    family = FamilySchema(b"cf", {OMID_ENABLED: "true", attribute: "1"})
    store.create_table(TableSchema("accounts", (family,)))
    store.create_table(TableSchema("plain", (FamilySchema(b"cf", {attribute: "1"}),)))
    store.set_family_attributes("OMID_COMMIT_TABLE", b"F", {"TTL": "60"})
    store.close()
    code, checks = examine("--store", url)
    assert code == 1
    failed = [check for check in checks if check["verdict"] == Health.FAILED]
    found = [check["detail"] for check in failed if check["name"] == "tables"]
    assert len(found) == 2
    assert any("'accounts'" in detail and f"{attribute}=1" in detail for detail in found)
    assert any("OMID_COMMIT_TABLE" in detail and "TTL" in detail for detail in found)


def test_tables_are_counted_by_whose_they_are(examine: Report, tmp_path: Path) -> None:
    """Before an adoption, the number of transactional tables alone would say that all is done."""
    url = f"sqlite:///{tmp_path / 's.db'}"
    with pytest.raises(SystemExit):
        main(("init", "--store", url))

    def details(health: Health) -> list[str]:
        code, checks = examine("--store", url)
        assert code == 0
        found = [check for check in checks if check["name"] == "tables"]
        return [check["detail"] for check in found if check["verdict"] == health]

    assert details(Health.OK) == ["0 are ours"]
    store = SqliteStore(str(tmp_path / "s.db"))
    marked = FamilySchema(b"cf", {OMID_ENABLED: "true"})
    store.create_table(TableSchema("java", (marked,)))
    store.create_table(TableSchema("unmarked", (FamilySchema(b"cf"),)))
    store.create_table(TableSchema("ours", (marked,), {COMMIT_TABLE_ATTRIBUTE: COMMIT_TABLE}))
    (detail,) = details(Health.OK)
    _, checks = examine("--store", url)
    assert (checks[2]["owned"], checks[2]["ignored"], checks[2]["plain"]) == (1, 0, 1)
    assert detail.startswith("1 are ours, and forget no version that is needed; 1 have no mark: ")
    assert "omidpy table list" in detail
    (warning,) = details(Health.WARNING)
    assert warning.startswith("java is not adopted: family cf has OMID_ENABLED=true")
    assert "omidpy table adopt java --apply" in warning
    set_ignored(ControlTable(store), "java", is_ignored=True)
    assert details(Health.WARNING) == []
    assert "; 1 are ignored; 1 have no mark" in details(Health.OK)[0]
    store.close()


@pytest.mark.parametrize(
    ("oracle_ms", "health"),
    [
        (NOW_MS, Health.OK),
        (NOW_MS + 15_000, Health.OK),
        (NOW_MS - 5_000, Health.OK),
        (NOW_MS + 15_001 + 20, Health.WARNING),
        (NOW_MS - 5_001, Health.WARNING),
    ],
)
def test_clocks_that_differ_are_a_warning(oracle_ms: int, health: Health) -> None:
    """Times given to snapshots are read by this machine's clock and kept by the oracle's.

    An oracle that took over from Omid's begins up to ten seconds ahead of its clock.
    """
    found = clock_finding(oracle_ms * 1_000_000, before_ms=NOW_MS, after_ms=NOW_MS + 20)
    assert found.health is health


def test_timestamps_that_merely_count_have_no_clock() -> None:
    """An incremental oracle's numbers are no times."""
    found = clock_finding(150, before_ms=NOW_MS, after_ms=NOW_MS)
    assert found == ClockFinding(None)
    assert found.health is Health.OK
    assert "tell no time" in found.detail


# -- the real HBase --------------------------------------------------------------------------------


def test_real_gateways_are_found(examine: Report, hbase: HBase) -> None:
    """HBase's own servers answer the probes as our stand-ins do."""
    code, (check,) = examine(hbase.gateways[0])
    assert (code, check["detail"]) == (0, f"use hbase+thrift2://{hbase.gateways[0]}")
    other = hbase.gateway("thrift1", "-f", "-c")
    code, (check,) = examine(other)
    expected = f"use 'hbase+thrift1://{other}?protocol=compact&transport=framed', for clients alone"
    assert (code, check["detail"][: len(expected)]) == (0, expected)
