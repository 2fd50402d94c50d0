"""A real HBase that speaks TLS alone, and clients that do, and that do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import omidpy
from omidpy.cli import main
from omidpy.errors import ConfigError
from omidpy.opening import open_store
from tests.machines.hbase import HBase
from tests.machines.hbase.secured import start_with_tls
from tests.machines.tls import Authority

pytestmark = pytest.mark.hbase


@dataclass(frozen=True)
class Secured:
    """An HBase and the authority that it believes."""

    hbase: HBase
    authority: Authority
    client: Path
    """A certificate that the authority has signed."""

    @property
    def options(self) -> str:
        """What an address needs."""
        return f"tls=on&tls_ca={self.authority.ca}&tls_cert={self.client}"


@pytest.fixture(scope="module", name="secured")
def speaking_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Return an HBase that speaks TLS alone."""
    folder = tmp_path_factory.mktemp("tls-hbase")
    authority = Authority(folder)
    hbase = start_with_tls(folder / "hbase", authority)
    try:
        yield Secured(hbase, authority, authority.issue("client"))
    finally:
        hbase.stop(forget=True)


def test_transactions_run_over_tls_by_both_registries(secured: Secured) -> None:
    """Scans of many cells among it, and certificates of both sides."""
    url = f"{secured.hbase.direct_url}?{secured.options}"
    with omidpy.connect(url) as tm:
        tm.create_table("accounts", families=["cf"], splits=[b"m"])
        with tm.begin() as tx:
            for number in range(500):
                tx.table("accounts").put(b"%c%03d" % (97 + number % 26, number), {b"cf:a": b"1"})
        with tm.begin(read_only=True) as tx:
            assert len(list(tx.table("accounts").scan())) == 500
    store = open_store(f"{secured.hbase.rpc_url}?{secured.options}")
    assert "accounts" in [one.name for one in store.tables()]
    store.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "it speaks TLS; add tls=on to the address, and tls_ca=FILE"),
        ("tls=on", "its certificate is not trusted: .*tls_ca=FILE"),
        ("tls=on&tls_ca={ca}", r"it does not accept our certificate .*tls_cert=FILE"),
        ("tls=on&tls_ca={ca}&tls_cert={cert}&tls_name=other", "not trusted.*tls_name=NAME"),
    ],
)
def test_what_is_missing_is_named(secured: Secured, options: str, message: str) -> None:
    """Whether ZooKeeper has said where HBase is, or its master is asked."""
    given = options.format(ca=secured.authority.ca, cert=secured.client)
    for url in (secured.hbase.direct_url, secured.hbase.rpc_url):
        store = open_store(f"{url}?{given}" if given else url)
        with pytest.raises(ConfigError, match=f"^[^\n]*{message}[^\n]*$"):
            store.tables()
        store.close()


def test_tls_to_an_hbase_without_it_is_named(secured: Secured, hbase: HBase) -> None:
    """The opposite mistake."""
    for url in (hbase.direct_url, hbase.rpc_url):
        store = open_store(f"{url}?{secured.options}")
        with pytest.raises(ConfigError, match="without TLS; leave tls=on out of the address"):
            store.tables()
        store.close()


def test_the_doctor_says_what_secures_the_way(
    secured: Secured, hbase: HBase, capsys: pytest.CaptureFixture[str]
) -> None:
    """And where nothing does, that nothing does."""
    with pytest.raises(SystemExit, match=r"^0$"):
        main(("doctor", f"{secured.hbase.direct_url}?{secured.options}"))
    said = capsys.readouterr().out
    assert said.count("can be reached by TLS\n") == 2
    assert said.count("can be reached by TLS; ") == 1, "a region server tells its load"
    with pytest.raises(SystemExit, match=r"^0$"):
        main(("doctor", hbase.direct_url))
    said = capsys.readouterr().out
    assert said.count("can be reached in the open\n") == 2
    assert said.count("can be reached in the open; ") == 1
