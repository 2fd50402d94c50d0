"""Frames of Java's own client and of HBase's own server, as they pass each other.

    python -m tests.machines.golden_frames tests/unit/storage/hbase/native/golden.txt

starts an HBase, lets Java's client (`Frames.java` in `tests/java`) make each kind of call once
through a SOCKS proxy that keeps what passes, and writes one call a line: service, method, request,
answer, both as the hex digits of a frame without its length.  The order is that of the calls, for
each connection; calls that are made again and again are there once.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

from omidpy.wire.protobuf import fields
from tests.machines.hbase import HBase
from tests.machines.java import JavaDriver, hbase_settings

PREAMBLE_BYTES: Final = 6
CHANGING: Final = frozenset({"getProcedureResult", "IsMasterRunning", "isMasterRunning"})
"""Methods whose calls say nothing new after the first, and are as many as the machine is slow."""


class Exchange(NamedTuple):
    """A call and its answer, each a frame without its length."""

    service: str
    method: str
    request: bytes
    answer: bytes

    @property
    def line(self) -> str:
        """It as a line of the file."""
        return f"{self.service} {self.method} {self.request.hex()} {self.answer.hex()}"


def read_exchanges(path: Path) -> list[Exchange]:
    """Read what was written."""
    return [
        Exchange(service, method, bytes.fromhex(request), bytes.fromhex(answer))
        for service, method, request, answer in (
            line.split(" ") for line in path.read_text().splitlines() if not line.startswith("#")
        )
    ]


class RecordingSocks:
    """A SOCKS 5 proxy without authentication that keeps both ways of each connection."""

    def __init__(self) -> None:
        """Listen."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.passed: list[tuple[bytearray, bytearray]] = []
        """What the client sent and what the server did, for each connection in order."""
        self._sockets: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()  # what it has accepted just now is ended too
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        stream = client.makefile("rb")
        stream.read(stream.read(2)[1])
        client.sendall(b"\x05\x00")
        kind = stream.read(4)[3]
        length = {1: 4, 4: 16}.get(kind) or stream.read(1)[0]
        name, port = stream.read(length), int.from_bytes(stream.read(2))
        host = socket.inet_ntoa(name) if kind == 1 else name.decode()
        server = socket.create_connection((host, port))
        self._sockets.append(server)
        client.sendall(b"\x05\x00\x00\x01" + bytes(6))
        ways = (bytearray(), bytearray())
        self.passed.append(ways)
        threading.Thread(target=_pass, args=(server, client, ways[1]), daemon=True).start()
        while data := stream.read1(1 << 16):
            ways[0].extend(data)
            server.sendall(data)


def _pass(source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            kept += data
            sink.sendall(data)


def exchanges(sent: bytes, received: bytes) -> Iterator[Exchange]:
    """Yield the calls of a connection with their answers, in the order of the calls."""
    if len(sent) < PREAMBLE_BYTES + 4:
        return
    (length,) = struct.unpack_from(">I", sent, PREAMBLE_BYTES)
    at = PREAMBLE_BYTES + 4
    service = dict(fields(sent[at : at + length]))[2 << 3 | 2]
    assert isinstance(service, bytes)
    answers = {header(one)[1 << 3]: one for one in _frames(received)}
    for request in _frames(sent[at + length :]):
        told = header(request)
        method = told[3 << 3 | 2]
        assert isinstance(method, bytes)
        if told[1 << 3] in answers:
            answer = answers[told[1 << 3]]
            yield Exchange(service.decode(), method.decode(), request, answer)


def header(frame: bytes) -> dict[int, int | bytes]:
    """Return the fields of a frame's header, whose length is one byte or two."""
    length, at = (frame[0], 1) if frame[0] < 0x80 else (frame[0] & 0x7F | frame[1] << 7, 2)
    return dict(fields(frame[at : at + length]))


def _frames(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + 4 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        yield bytes(data[at + 4 : at + 4 + length])
        at += 4 + length


def captured(hbase: HBase) -> list[Exchange]:
    """Let Java make its calls, and return them."""
    with RecordingSocks() as proxy:
        settings = {
            **hbase_settings(hbase.zookeeper),
            "hbase.rpc.client.impl": "org.apache.hadoop.hbase.ipc.BlockingRpcClient",
            "hadoop.rpc.socket.factory.class.default": "org.apache.hadoop.net.SocksSocketFactory",
            "hadoop.socks.server": f"127.0.0.1:{proxy.port}",
        }
        with JavaDriver() as java:
            java.call("hbase.connect", settings=settings)
            java.call("frames.play")
        found: list[Exchange] = []
        seen = set()
        for sent, received in proxy.passed:
            for one in exchanges(bytes(sent), bytes(received)):
                if one.method in CHANGING and one.method in seen:
                    continue
                seen.add(one.method)
                found.append(one)
        return found


def main(arguments: Sequence[str]) -> None:
    """Capture and write."""
    with (
        tempfile.TemporaryDirectory() as folder,
        HBase.start(Path(folder), gateways=0, quick=True) as hbase,
    ):
        lines = [one.line for one in captured(hbase)]
    head = (
        "# Java's client and HBase 2.6.4, kept by tests/machines/golden_frames.py, which says how."
    )
    Path(arguments[0]).write_text("\n".join([head, *lines, ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
