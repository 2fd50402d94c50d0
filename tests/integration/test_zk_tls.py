"""ZooKeeper behind TLS: whom we believe, who we are, and what a wrong setting is told.

A proxy of our own speaks TLS on one side and the plain protocol with the real ensemble on the
other.  Kerberos is not tested: that needs a KDC.
"""

from __future__ import annotations

import gc
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.oracle.zookeeper import connected, parse_zookeeper
from omidpy.storage.hbase.native.address import parse_native
from omidpy.storage.hbase.native.client import NativeClient
from tests.machines.hbase import HBase
from tests.machines.tls import PATIENCE_S, TlsProxy, loopback_certificate

pytestmark = [
    pytest.mark.integration,
    # kazoo asks for no SSLv3 in the way that Python has since deprecated.
    pytest.mark.filterwarnings("ignore:ssl.OP_NO_SSL:DeprecationWarning"),
    # It leaves sockets whose handshake failed to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a certificate of 127.0.0.1, and its key."""
    return loopback_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def proxy(
    certificate: tuple[Path, Path], hbase: HBase, request: pytest.FixtureRequest
) -> Iterator[TlsProxy]:
    """Return a proxy; with the parameter True it wants to know who we are."""
    cert, key = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    if getattr(request, "param", False):
        context.load_verify_locations(cert)
        context.verify_mode = ssl.CERT_REQUIRED
    proxy = TlsProxy(context, hbase.zookeeper)
    yield proxy
    proxy.close()


def look(address: str) -> None:
    """Connect and ask something."""
    try:
        with connected(parse_zookeeper(address)) as zookeeper:
            assert zookeeper.read("/omidpy-nobody-has-this") is None
    finally:
        gc.collect()  # here, where what it finds is expected


def test_a_certificate_that_we_were_told_to_believe_is_believed(
    proxy: TlsProxy, certificate: tuple[Path, Path]
) -> None:
    """Its name too is compared."""
    look(f"zk://127.0.0.1:{proxy.port}/omid?tls=true&ca={certificate[0]}")


def test_an_answer_does_not_wait_for_the_next_ping(
    proxy: TlsProxy, certificate: tuple[Path, Path]
) -> None:
    """Two answers in one TLS record would: a lease is read behind every batch of commits.

    Forty reads with that fault would meet it often, at three seconds each.
    """
    address = parse_zookeeper(f"zk://127.0.0.1:{proxy.port}/omid?tls=true&ca={certificate[0]}")
    with connected(address) as zookeeper:
        start_s = time.monotonic()
        for _ in range(40):
            zookeeper.read("/omidpy-nobody-has-this")
        assert time.monotonic() - start_s < PATIENCE_S / 2


@pytest.mark.parametrize("proxy", [True], indirect=True)
def test_we_say_who_we_are(proxy: TlsProxy, certificate: tuple[Path, Path]) -> None:
    """Where the ensemble asks for a certificate."""
    cert, key = certificate
    url = f"zk://127.0.0.1:{proxy.port}/omid?tls=true&ca={cert}"
    look(f"{url}&cert={cert}&key={key}")
    with pytest.raises(StorageUnavailable):
        look(f"{url}&timeout=1s")


@pytest.mark.parametrize(
    ("host", "options"),
    [("127.0.0.1", "tls=true"), ("localhost", "tls=true&ca={ca}"), ("127.0.0.1", "tls=false")],
)
def test_whom_we_do_not_know_gets_nothing(
    proxy: TlsProxy, certificate: tuple[Path, Path], host: str, options: str
) -> None:
    """An unknown signer, another name, and no TLS at all; the message says where to look."""
    chosen = options.format(ca=certificate[0])
    with pytest.raises(StorageUnavailable, match=f"ZooKeeper at {host}:{proxy.port}") as caught:
        look(f"zk://{host}:{proxy.port}/omid?timeout=2s&{chosen}")
    assert "tls=true" in str(caught.value)


def hbase_by(proxy: TlsProxy, options: str) -> str:
    """Return the id of the HBase that is found through the proxy."""
    url = f"hbase://127.0.0.1:{proxy.port}/hbase?connect_timeout_s=2&retry_s=0{options}"
    client = NativeClient(parse_native(url))
    try:
        return client.calls.registry.cluster_id()
    finally:
        client.close()
        gc.collect()  # here, where what it finds is expected


@pytest.mark.parametrize("proxy", [True], indirect=True)
def test_hbase_is_found_in_an_ensemble_behind_tls(
    proxy: TlsProxy, certificate: tuple[Path, Path]
) -> None:
    """By who may look, and says so in the address of HBase."""
    cert, key = certificate
    believed = f"&zk_tls=on&zk_ca={cert}"
    assert hbase_by(proxy, f"{believed}&zk_cert={cert}&zk_key={key}")
    for options in (believed, f"&zk_tls=on&zk_cert={cert}&zk_key={key}", ""):
        with pytest.raises(StorageUnavailable, match=f"127.0.0.1:{proxy.port}"):
            hbase_by(proxy, options)


def test_checks_can_be_switched_off(proxy: TlsProxy) -> None:
    """For a look by hand; said in so many words in the address."""
    look(f"zk://127.0.0.1:{proxy.port}/omid?tls=true&verify=false")
