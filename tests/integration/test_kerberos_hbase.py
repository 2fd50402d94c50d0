"""A real HBase that wants Kerberos, and a key centre of our own: tickets, protections, mistakes."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import omidpy
from omidpy.base.installation import install_hint
from omidpy.cli import main
from omidpy.errors import ConfigError, StorageUnavailable
from omidpy.opening import open_store
from omidpy.storage.handed import HandedStore, handed
from omidpy.storage.hbase.direct import NativeStore
from omidpy.storage.hbase.native.security.kerberos import has_ticket
from tests.machines import kerberos as machine
from tests.machines.hbase import HBase
from tests.machines.hbase.secured import start_with_kerberos
from tests.machines.kerberos import REALM, Kerberos, running_kerberos
from tests.machines.processes import tso_server
from tests.machines.tls import Authority

pytestmark = [
    pytest.mark.hbase,
    pytest.mark.skipif(machine.missing() is not None, reason=str(machine.missing())),
]
pytest.importorskip(
    "gssapi",
    reason="gssapi is not installed (Debian: libkrb5-dev; pip install 'omidpy[kerberos]')",
    exc_type=ImportError,
)

SASL = "sasl=gssapi"


@dataclass(frozen=True)
class Secured:
    """An HBase, its key centre, and an authority whose certificates it believes."""

    hbase: HBase
    kerberos: Kerberos
    authority: Authority

    @property
    def direct(self) -> str:
        """Its address by ZooKeeper; the servers' principal has the name that they give."""
        return self.hbase.direct_url

    @property
    def rpc(self) -> str:
        """Its address by its master, by the name that its principal has."""
        return self.hbase.rpc_url.replace("127.0.0.1", "localhost")


@pytest.fixture(scope="module", name="secured")
def wanting_kerberos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Return an HBase that wants Kerberos."""
    folder = tmp_path_factory.mktemp("kerberos")
    authority = Authority(folder)
    with running_kerberos(folder / "kdc") as kerberos:
        hbase = start_with_kerberos(folder / "hbase", kerberos, authority)
        try:
            yield Secured(hbase, kerberos, authority)
        finally:
            hbase.stop(forget=True)


@pytest.fixture(autouse=True)
def _in_the_realm(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put this process into the realm, with a ticket of `alice`."""
    for name, value in secured.kerberos.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KRB5CCNAME", secured.kerberos.ticket("alice"))


def refused(url: str, kind: type[Exception], message: str) -> None:
    """Expect one line."""
    store = open_store(url)
    with pytest.raises(kind, match=f"^[^\n]*{message}[^\n]*$"):
        store.tables()
    store.close()


@pytest.mark.parametrize("protection", ["auth", "auth-int", "auth-conf"])
def test_transactions_run_by_every_protection(secured: Secured, protection: str) -> None:
    """Over many messages, longer than one of the server's parts, to and fro."""
    table = protection.replace("-", "_")
    with omidpy.connect(f"{secured.direct}?{SASL}&sasl_qop={protection}") as tm:
        tm.create_table(table, families=["cf"], splits=[b"m"])
        with tm.begin() as tx:
            for number in range(200):
                row = b"%c%03d" % (97 + number % 26, number)
                tx.table(table).put(row, {b"cf:a": b"v" * 1000})
            tx.table(table).put(b"z", {b"cf:a": b"long" * 100_000})
        with tm.begin(read_only=True) as tx:
            assert len(list(tx.table(table).scan())) == 201
            assert tx.table(table).row(b"z")[b"cf:a"] == b"long" * 100_000


def test_masters_are_asked_by_their_names(
    secured: Secured, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kerberos lies above TLS where both are asked for, and the doctor says so."""
    named = f"principal=hbase/_HOST@{REALM}"
    client = secured.authority.issue("client")
    tls = f"tls=on&tls_ca={secured.authority.ca}&tls_cert={client}"
    with pytest.raises(SystemExit, match=r"^0$"):
        main(("doctor", f"{secured.rpc}?{SASL}&{named}&sasl_qop=auth-conf&{tls}"))
    told, said = "can be reached by TLS and Kerberos (auth-conf)", capsys.readouterr().out
    assert said.count(f"{told}\n") == 2
    assert said.count(f"{told}; ") == 1, "a region server tells its load"


def test_a_client_that_proves_nothing_is_told_to(secured: Secured) -> None:
    """By both registries."""
    for url in (secured.direct, secured.rpc):
        refused(url, ConfigError, "it wants Kerberos; add sasl=gssapi to the address, and run `ki")


def test_a_server_that_wants_nothing_is_told_apart(secured: Secured, hbase: HBase) -> None:
    """It offers to go on without; the client does not."""
    principal = f"principal=hbase/localhost@{REALM}"
    for url in (hbase.direct_url, hbase.rpc_url):
        refused(f"{url}?{SASL}&{principal}", ConfigError, "no authentication .*leave sasl out")


def test_no_ticket_and_one_that_ended_are_named(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with what to do; a keytab of the client's is as good as a ticket."""
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{secured.kerberos.directory}/nothing")
    for url in (secured.direct, secured.rpc):
        refused(f"{url}?{SASL}", StorageUnavailable, "there is no Kerberos ticket; run `kinit`")
    monkeypatch.setenv("KRB5CCNAME", secured.kerberos.ticket("alice", lifetime_s=1))
    limit_s = time.monotonic() + 20
    while time.monotonic() < limit_s and _is_good(secured):
        time.sleep(0.1)
    refused(f"{secured.direct}?{SASL}", StorageUnavailable, "ticket has ended; run `kinit`")
    assert not has_ticket()
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{secured.kerberos.directory}/by-keytab")
    assert not has_ticket()
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(secured.kerberos.keytab("bob")))
    assert has_ticket()
    store = open_store(f"{secured.direct}?{SASL}")
    store.tables()
    store.close()


def _is_good(secured: Secured) -> bool:
    store = open_store(f"{secured.direct}?{SASL}&retry_s=0")
    try:
        store.tables()
    except StorageUnavailable:
        return False
    finally:
        store.close()
    return True


def test_a_wrong_principal_is_named(secured: Secured) -> None:
    """One that nobody has, and one that somebody else has."""
    secured.kerberos.keytab("other/localhost")
    for name, message in (
        ("nobody", f"the key centre knows no nobody/localhost@{REALM}; name the server's"),
        ("other", f"does not accept our ticket for other/localhost@{REALM}; is that its principal"),
    ):
        url = f"{secured.direct}?{SASL}&principal={name}/_HOST@{REALM}"
        refused(url, ConfigError, message)


def test_without_the_package_the_extra_is_named() -> None:
    """And nothing else of omidpy needs it."""
    program = (
        "import sys; sys.modules['gssapi'] = None\n"
        "from omidpy.opening import open_store\n"
        "open_store('hbase+rpc://m').close()\n"
        "open_store('hbase+rpc://m?sasl=gssapi')\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert install_hint("kerberos") in done.stderr


TASK = """
import pickle, sys
sys.modules["gssapi"] = None
from omidpy.opening import open_store
from omidpy.storage.hbase.native.address import parse_native
from omidpy.storage.hbase.native.inspection import servers
sent = pickle.load(sys.stdin.buffer)
store = open_store(sent.accept())
print(len(list(store.tables())), store.token_to_hand_on() == sent.token)
store.close()
print({one.secured for one in servers(parse_native(sent.url))})
"""


@pytest.mark.parametrize("protection", ["auth", "auth-int", "auth-conf"])
def test_a_token_is_as_good_as_a_ticket_elsewhere(
    secured: Secured, protection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process without a ticket and without Kerberos's library; a token gets no other token."""
    store = open_store(f"{secured.direct}?{SASL}&sasl_qop={protection}")
    sent = handed(store)
    tables = len(list(store.tables()))
    assert handed(store) == sent, "one is enough"
    store.close()
    assert sent.token is not None
    assert sent.token.ends_ms - sent.token.issued_ms == 7 * 24 * 3600 * 1000
    monkeypatch.setenv("KRB5CCNAME", "FILE:/nowhere")
    done = subprocess.run(
        [sys.executable, "-c", TASK], input=pickle.dumps(sent), capture_output=True, check=False
    )
    told = done.stdout.decode().splitlines()
    assert told == [f"{tables} True", f"{{'by a token ({protection})'}}"], done.stderr.decode()


def test_who_has_a_ticket_fetches_another_token_though_he_was_handed_one(secured: Secured) -> None:
    """As a process of the driver that ended an earlier job; HBase gives none out for a token."""
    url = f"{secured.direct}?{SASL}&sasl_qop=auth-int&connect_timeout_s=4.25"
    store = open_store(url)
    sent = handed(store)
    store.close()
    sent.accept()
    store = NativeStore(url)
    assert handed(store) == sent, "it is good for long"
    found = store._client.calls.fetch_token()
    assert sent.token is not None
    assert found.identifier != sent.token.identifier
    assert found.ends_ms > sent.token.ends_ms
    store.close()


def test_a_token_that_hbase_did_not_give_out_is_refused(secured: Secured) -> None:
    """The same identifier, and another password."""
    url = f"{secured.direct}?{SASL}&connect_timeout_s=4.5"
    store = open_store(url)
    token = handed(store).token
    store.close()
    assert token is not None
    HandedStore(url, replace(token, password=b"guessed")).accept()
    refused(url, ConfigError, "does not accept our token; start the job again")


@pytest.mark.nightly
def test_tasks_of_spark_show_the_drivers_token(secured: Secured, tmp_path: Path) -> None:
    """Of every kind, and they have no ticket; no log shows it, and no checkpoint."""
    url = f"{secured.direct}?{SASL}&sasl_qop=auth-int"
    with tso_server(url) as server:
        forms = tmp_path / "forms"
        driver = (sys.executable, "-m", "tests.machines.kerberos.driver")
        command = (*driver, url, server.address, str(forms))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "written 200\n" in done.stdout
    assert "compacted " in done.stdout
    assert "changed 200\nfollowed 201\ndelivered 5\n" in done.stdout
    told = done.stdout + done.stderr
    assert not any(form in told for form in forms.read_text().splitlines())
