"""A real ZooKeeper that wants to know who calls, by Kerberos or a password, and whom it lets in.

kazoo takes the steps of SASL; what is tested is that it is given what addresses say, and what is
told of a failure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from omidpy.base.ensemble import require_sasl
from omidpy.errors import ConfigError
from omidpy.oracle.zookeeper import connected, parse_zookeeper
from omidpy.storage.hbase.native.address import parse_native
from omidpy.storage.hbase.native.client import NativeClient
from tests.machines import kerberos as machine
from tests.machines.hbase_messages import message
from tests.machines.kerberos import Kerberos, running_kerberos
from tests.machines.kerberos.zookeeper import by_kerberos, by_password, running_zookeeper

pytestmark = [
    pytest.mark.integration,
    pytest.mark.hbase,
    pytest.mark.skipif(machine.missing() is not None, reason=str(machine.missing())),
]
pytest.importorskip(
    "kerberos",
    reason="kerberos is not installed (Debian: libkrb5-dev; pip install 'omidpy[sasl]')",
    exc_type=ImportError,
)
pytest.importorskip("puresasl", reason="pure-sasl is not installed (omidpy[sasl])")

SERVER: Final = message("ServerName", host_name="rs1.example", port=16020, start_code=7)


@dataclass(frozen=True)
class Secured:
    """Two ZooKeepers, each of one mechanism, and who there is."""

    kerberos: Kerberos
    by_ticket: int
    by_word: int
    words: Path
    """The folder with a password, and a wrong one."""

    def digest(self, file: str) -> str:
        """Return the options of an address, by the mechanism of passwords."""
        return f"sasl=DIGEST-MD5&user=bob&password-file={self.words / file}"


@pytest.fixture(scope="module", name="secured")
def zookeepers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Run them."""
    folder = tmp_path_factory.mktemp("zookeeper")
    (folder / "right").write_text("secret\n")
    (folder / "wrong").write_text("guessed\n")
    with (
        running_kerberos(folder / "kdc") as kerberos,
        running_zookeeper(folder / "tickets", by_kerberos(kerberos)) as by_ticket,
        running_zookeeper(folder / "words", by_password("bob", "secret")) as by_word,
    ):
        yield Secured(kerberos, by_ticket, by_word, folder)


@pytest.fixture(autouse=True)
def _in_the_realm(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put this process into the realm, with a ticket of `alice`."""
    for name, value in secured.kerberos.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KRB5CCNAME", secured.kerberos.ticket("alice"))


def look(port: int, options: str) -> None:
    """Write and read below the oracle's namespace."""
    with connected(parse_zookeeper(f"zk://localhost:{port}/omid?timeout=10s{options}")) as there:
        there.create("/omid/tso-lease")
        assert there.read("/omid/tso-lease") is not None


def test_who_says_who_he_is_is_let_in(secured: Secured) -> None:
    """By a ticket, and by a password from a file."""
    look(secured.by_ticket, "&sasl=GSSAPI")
    look(secured.by_word, f"&{secured.digest('right')}")


def test_hbase_is_found_in_such_an_ensemble(secured: Secured) -> None:
    """By the same options behind `zk_`; its znode is made by kazoo here, as HBase makes it."""
    from kazoo.client import KazooClient

    data = b"PBUF" + b"\x0a" + bytes((SERVER.ByteSize(),)) + SERVER.SerializeToString()
    maker = KazooClient(
        hosts=f"localhost:{secured.by_ticket}",
        sasl_options={"mechanism": "GSSAPI", "service": "zookeeper"},
    )
    maker.start()
    maker.create("/hbase/master", b"\xff" + struct.pack(">I", 4) + b"7@me" + data, makepath=True)
    maker.stop()
    maker.close()
    url = f"hbase://localhost:{secured.by_ticket}/hbase?retry_s=0"
    client = NativeClient(parse_native(f"{url}&zk_sasl=GSSAPI"))
    assert client.calls.registry.master() == ("rs1.example", 16020, 7)
    client.close()
    client = NativeClient(parse_native(url))
    with pytest.raises(ConfigError, match=r"^[^\n]*it wants to know who calls; zk_sasl and what"):
        client.calls.registry.master()
    client.close()


# A wrong password ends kazoo's thread by an exception.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_who_does_not_is_told_what_to_say(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing at all, a wrong password, another server's name, and no ticket."""

    def refused(port: int, options: str, message: str) -> None:
        told = f"^[^\n]*does not let us in: {message}[^\n]*sasl= and what belongs to it[^\n]*$"
        with pytest.raises(ConfigError, match=told):
            look(port, options)

    for port in (secured.by_ticket, secured.by_word):
        refused(port, "", "it wants to know who calls")
    unproved = "it does not believe who we say we are, or nothing proves it"
    refused(secured.by_word, f"&{secured.digest('wrong')}", unproved)
    refused(secured.by_ticket, "&sasl=GSSAPI&service=nobody", unproved)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{secured.words}/nothing")
    refused(secured.by_ticket, "&sasl=GSSAPI", unproved)
    client = NativeClient(
        parse_native(f"hbase://localhost:{secured.by_ticket}/hbase?retry_s=0&zk_sasl=GSSAPI")
    )
    with pytest.raises(ConfigError, match=f"^[^\n]*does not let us in: {unproved}[^\n]*zk_sasl"):
        client.calls.registry.master()
    client.close()


@pytest.mark.parametrize("missing", ["puresasl", "kerberos"])
def test_what_is_missing_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anybody is called; passwords need no library of Kerberos."""
    monkeypatch.setattr(
        "omidpy.base.ensemble.find_spec", lambda name: None if name == missing else object()
    )
    for url in ("zk://h:1/omid?sasl=GSSAPI", "zk://h:1/omid?sasl=GSSAPI&service=z"):
        with pytest.raises(ConfigError, match=r"\[sasl\]"), connected(parse_zookeeper(url)):
            pass
    with pytest.raises(ConfigError, match=r"\[sasl\]"):
        NativeClient(parse_native("hbase://h:1/hbase?zk_sasl=GSSAPI"))
    if missing == "kerberos":
        require_sasl({"sasl_options": {"mechanism": "DIGEST-MD5"}}, where="there")
    require_sasl({}, where="there")
