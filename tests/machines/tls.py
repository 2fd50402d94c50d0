"""A proxy that ends TLS before a server which has none, and certificates.

The proxy is how HBase's gateways get TLS, and how the tests' ZooKeeper does.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Final

import pytest

from omidpy.wire.tls import TlsStream

PATIENCE_S: Final = 30.0


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


def loopback_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of 127.0.0.1 that signs itself; return it and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
        *_SIGNS,
        *("-keyout", str(key), "-out", str(cert)),
    )
    return cert, key


class Authority:
    """Signs certificates, each with its key in the same file."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        """Make the authority's own certificate, `ca`, in `folder`."""
        self._folder = folder
        self._name = name
        self.ca = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        self.crl = folder / f"{name}.crl"
        openssl(
            *("req", "-x509", "-days", "2", "-subj", f"/CN={name}", *_KEY, *_SIGNS),
            *("-keyout", str(self._key), "-out", str(self.ca)),
        )

    def issue(self, name: str, *, host: str = "IP:127.0.0.1", subject: str | None = None) -> Path:
        """Return the file of a certificate of `name`, for use on both ends.

        Args:
            name: The common name, and part of the file's.
            host: The alternative names.
            subject: What stands there instead of the common name.
        """
        file, request, extensions = (
            self._folder / f"{self._name}-{name}.{kind}" for kind in ("pem", "csr", "cnf")
        )
        extensions.write_text(
            f"subjectAltName={host}\nkeyUsage=critical,digitalSignature\n"
            "basicConstraints=critical,CA:FALSE\n"
            "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        openssl(
            *("req", "-new", "-subj", f"/CN={name}" if subject is None else subject, *_KEY),
            *("-keyout", str(file), "-out", str(request)),
        )
        key = file.read_text()
        openssl(
            *("x509", "-req", "-days", "2", "-in", str(request), "-CA", str(self.ca)),
            *("-CAkey", str(self._key), "-CAcreateserial", "-extfile", str(extensions)),
            *("-out", str(file)),
        )
        file.write_text(key + file.read_text())
        return file

    def revoke(self, *certificates: Path) -> None:
        """Write the list `crl` of certificates that are trusted no more."""
        index, config = (self._folder / f"{self._name}.{kind}" for kind in ("index", "ca"))
        index.touch()
        config.write_text(
            "[ca]\ndefault_ca = here\n[here]\n"
            f"database = {index}\ndefault_md = sha256\ndefault_crl_days = 2\n"
        )
        signs = ("-config", str(config), "-cert", str(self.ca), "-keyfile", str(self._key))
        for certificate in certificates:
            openssl("ca", *signs, "-revoke", str(certificate))
        openssl("ca", *signs, "-gencrl", "-out", str(self.crl))


_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_SIGNS: Final = ("-addext", "keyUsage=critical,digitalSignature,keyCertSign,cRLSign")
"""Python 3.13 and newer believe no authority whose certificate does not say what it is for."""


def openssl(*arguments: str) -> None:
    """Run a command of OpenSSL."""
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def client_hello() -> bytes:
    """Return the first thing that a client of TLS says, to a server on this machine."""
    greeting = TlsStream(ssl.create_default_context(), server_name="127.0.0.1")
    greeting.start()
    return greeting.to_send()


def counted_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list whose last number counts what is received in TLS from now on."""
    steps = [0]
    receive = TlsStream.receive

    def counted(stream: TlsStream, data: bytes) -> bytes:
        steps[-1] += 1
        return receive(stream, data)

    monkeypatch.setattr(TlsStream, "receive", counted)
    return steps
