"""A server that speaks HBase's RPC by a script, so that a test decides what it answers, and when.

    def script(call: Call) -> Reply: ...
    with FakeHBase(script) as server: ...

It listens on the loopback and serves each connection in a thread.  A reply may come cut off after
some bytes, late, or not at all, and in another order than the calls.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from omidpy.storage.hbase.native.address import NativeAddress, parse_native
from omidpy.storage.hbase.native.calling.calls import Calls
from omidpy.storage.hbase.native.client import NativeClient
from omidpy.storage.hbase.native.values import Region, ServerName
from omidpy.wire.protobuf import fields, put_bytes, put_uint64, put_varint

PREAMBLE_BYTES: Final = 6


class Call(NamedTuple):
    """A request that came."""

    number: int
    """How many came before it, on all connections."""
    call_id: int
    method: str
    body: bytes
    cells: bytes


@dataclass(frozen=True)
class Reply:
    """What is sent back."""

    body: bytes = b""
    cells: bytes = b""
    fault: tuple[str, str] | None = None
    """Class and text of an exception."""
    after_bytes: int | None = None
    """Send so many bytes of it and close the connection; None sends it whole."""
    raw: bytes | None = None
    """Send these bytes instead."""
    is_endless: bool = False
    """Send it again and again, a byte at a time, until the client has gone."""


def fault(name: str, text: str = "said so") -> Reply:
    """Return an exception of HBase's."""
    return Reply(fault=(f"org.apache.hadoop.hbase.{name}", f"org...{name}: {text}\n\tat ..."))


PROCESSED: Final = Reply(body=b"\x10\x01")
"""`MutateResponse` {processed: true}."""
REFUSED: Final = Reply(body=b"\x10\x00")
SILENCE: Final = Reply(raw=b"")


def frame_of(call_id: int, reply: Reply) -> bytes:
    """Return the bytes of a reply to a call."""
    if reply.raw is not None:
        return reply.raw
    header = bytearray()
    put_uint64(header, 0x08, call_id)
    if reply.fault is not None:
        exception = bytearray()
        put_bytes(exception, 0x0A, reply.fault[0].encode())
        put_bytes(exception, 0x12, reply.fault[1].encode())
        put_bytes(header, 0x12, exception)
    if reply.cells:
        meta = bytearray()
        put_uint64(meta, 0x08, len(reply.cells))
        put_bytes(header, 0x1A, meta)
    out = bytearray()
    put_varint(out, len(header))
    out += header
    if reply.fault is None:
        put_varint(out, len(reply.body))
        out += reply.body
    out += reply.cells
    return struct.pack(">I", len(out)) + bytes(out)


@dataclass
class FakeHBase:
    """The server."""

    script: Callable[[Call], Reply]
    calls: list[Call] = field(default_factory=list)
    """What came, in order."""
    openings: list[bytes] = field(default_factory=list)
    """What each connection began with."""
    tls: ssl.SSLContext | None = None
    """With which connections begin; None: without TLS."""
    refusal: bytes | None = None
    """What is sent in answer to an opening that is none, and then the end; nothing if empty."""

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._connected: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Listen no more; a second call does nothing."""
        with contextlib.suppress(OSError):
            # A thread that is accepting is woken by the shutdown alone.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()  # what it has accepted just now is hung up too
        self._listener.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Close every connection."""
        for connected in self._connected:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    @property
    def server(self) -> ServerName:
        """Its name."""
        return ServerName("127.0.0.1", self.port, 1)

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            self._connected.append(connected)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        # A client that breaks off ends its conversation, and nothing else.
        with contextlib.suppress(OSError):
            self._talk(connected)

    def _talk(self, connected: socket.socket) -> None:
        if self.tls is not None:
            connected = self.tls.wrap_socket(connected, server_side=True)
            self._connected.append(connected)
        with connected, connected.makefile("rb") as stream:
            opening = stream.read(PREAMBLE_BYTES + 4)
            if self.refusal is not None and not opening.startswith(b"HBas"):
                connected.sendall(self.refusal)
                if not self.refusal:
                    stream.read()
                return
            if len(opening) == PREAMBLE_BYTES + 4:
                opening += stream.read(struct.unpack(">I", opening[PREAMBLE_BYTES:])[0])
            self.openings.append(opening)
            while len(length := stream.read(4)) == 4:
                frame = stream.read(struct.unpack(">I", length)[0])
                if len(frame) < struct.unpack(">I", length)[0]:
                    return  # as HBase, which executes whole frames only
                with self._lock:
                    call = _call_in(len(self.calls), frame)
                    self.calls.append(call)
                reply = self.script(call)
                sent = frame_of(call.call_id, reply)
                connected.sendall(sent[: reply.after_bytes])
                while reply.is_endless:
                    for byte in range(len(sent)):
                        connected.sendall(sent[byte : byte + 1])
                if reply.after_bytes is not None:
                    connected.shutdown(socket.SHUT_RDWR)
                    return

    @property
    def methods(self) -> list[str]:
        """The names of the calls that came."""
        return [call.method for call in self.calls]


def _call_in(number: int, frame: bytes) -> Call:
    header, position = _delimited(frame, 0)
    found = dict(fields(header))
    body, position = _delimited(frame, position)
    method = found[0x1A]
    assert isinstance(method, bytes)
    call_id = found[0x08]
    assert isinstance(call_id, int)
    return Call(number, call_id, method.decode(), body, frame[position:])


def _delimited(frame: bytes, position: int) -> tuple[bytes, int]:
    length = shift = 0
    while True:
        byte = frame[position]
        position += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return frame[position : position + length], position + length


class FixedRegistry:
    """Says that one server is everything."""

    def __init__(self, server: ServerName) -> None:
        self.server = server

    def meta_server(self) -> ServerName:
        """Return the server."""
        return self.server

    def master(self) -> ServerName:
        """Return the server."""
        return self.server

    def cluster_id(self) -> str:
        """Return a name."""
        return "fake"


class HasServer(Protocol):
    """A fake, or a network before one."""

    @property
    def server(self) -> ServerName:
        """Its name."""
        ...


def client_of(
    *servers: HasServer, options: str = "timeout_s=5&retry_s=5", table: str = "t"
) -> NativeClient:
    """Return a client of a table whose regions, one for each server, meet at b, c, ...

    It pauses for no time, and thinks that a server has answered already.
    """
    address: NativeAddress = parse_native(f"hbase+rpc://127.0.0.1:1?{options}")
    calls = Calls(address, registry=FixedRegistry(servers[0].server), pause=lambda _: None)
    calls.connections.note_answer()
    starts = [b"", *(b"%c" % (98 + number) for number in range(len(servers) - 1))]
    ends = [*starts[1:], b""]
    calls.locations._set_all(  # as after a look-up
        table,
        [
            Region(table, b"%s,%s,1.id." % (table.encode(), start), start, end, one.server)
            for start, end, one in zip(starts, ends, servers, strict=True)
        ],
    )
    return NativeClient(address, calls=calls)
