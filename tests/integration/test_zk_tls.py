"""ZooKeeper behind TLS: whom we believe, who we are, and what a wrong setting is told.

A proxy of our own speaks TLS on one side and the plain protocol with the real ensemble on the
other.  Kerberos is not tested: that needs a KDC.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.oracle.zookeeper import connected, parse_zookeeper
from tests.machines.hbase import HBase

pytestmark = [
    pytest.mark.integration,
    # kazoo asks for no SSLv3 in the way that Python has since deprecated.
    pytest.mark.filterwarnings("ignore:ssl.OP_NO_SSL:DeprecationWarning"),
    # It leaves sockets whose handshake failed to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PATIENCE_S = 30.0


class TlsProxy:
    """Forwards connections that come by TLS, from a port of its own."""

    def __init__(self, context: ssl.SSLContext, target: str) -> None:
        """Listen."""
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._tasks: set[asyncio.Task[None]] = set()
        listening = asyncio.run_coroutine_threadsafe(self._listen(), self._loop)
        self._server = listening.result(PATIENCE_S)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        to_reader, to_writer = await asyncio.open_connection(*self._target)
        try:
            await asyncio.gather(_pump(reader, to_writer), _pump(to_reader, writer))
        finally:
            self._tasks.discard(task)
            for one in (writer, to_writer):
                one.close()

    async def _stop(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def close(self) -> None:
        """Break every connection and stop."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a certificate of 127.0.0.1 that signs itself, and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


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


def test_checks_can_be_switched_off(proxy: TlsProxy) -> None:
    """For a look by hand; said in so many words in the address."""
    look(f"zk://127.0.0.1:{proxy.port}/omid?tls=true&verify=false")
