"""The bytes of a connection: its opening, requests and answers.  No I/O.

A request is a length, a header, a parameter and a block of cells; an answer is a length, a header,
a result unless the header has an exception, and a block of cells.  Header, parameter and result
have their length before them, as a varint; the length of the block stands in the header.

Every length is held against what is there, and a frame against a greatest size before a byte of it
is kept, so that a wrong peer costs an error and no memory.

Source: `RPC.proto` of HBase 2.6, and what its server was seen to do.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from omidpy.errors import RemoteProtocolError
from omidpy.storage.hbase.native.faults import Fault, Garbled
from omidpy.wire.protobuf import fields, put_bytes, put_varint

MAGIC: Final = b"HBas\x00"
"""Magic, and version 0."""
PREAMBLE: Final = MAGIC + b"\x50"
"""Of SIMPLE authentication."""
CODEC: Final = b"org.apache.hadoop.hbase.codec.KeyValueCodec"

MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
"""The greatest answer that is read; the greatest request that HBase takes."""

MOST_PIECES: Final = 1000
"""Pieces of one answer that are kept apart."""

SERVERS_OWN: Final = -1
"""The call id of an answer to no call: the server is about to close the connection."""

_LENGTH: Final = struct.Struct(">I")
_UNSIGNED_OF_MINUS_ONE: Final = 2**64 - 1

# Keys as they stand on the wire: number << 3 | wire type.
_VARINT_1, _VARINT_5, _VARINT_6, _VARINT_7 = 0x08, 0x28, 0x30, 0x38
_BYTES_1, _BYTES_2, _BYTES_3, _BYTES_5 = 0x0A, 0x12, 0x1A, 0x2A
_VARINT_4: Final = 0x20


def opening(service: str, user: str) -> bytes:
    """Return what a client sends first: preamble and connection header.  Nothing answers it."""
    return PREAMBLE + connection_header(service, user)


def connection_header(service: str, user: str | None) -> bytes:
    """Return what says which service is called, and by whom; None: by the name that was proved."""
    header = bytearray()
    if user is not None:
        who = bytearray()
        put_bytes(who, _BYTES_1, user.encode())
        put_bytes(header, _BYTES_1, who)
    put_bytes(header, _BYTES_2, service.encode())
    put_bytes(header, _BYTES_3, CODEC)
    return _LENGTH.pack(len(header)) + bytes(header)


@cache
def _named(method: str) -> bytes:
    """Return the part of a header that says the method, and that a parameter follows."""
    out = bytearray()
    put_bytes(out, _BYTES_3, method.encode())
    out += bytes((_VARINT_4, 1))
    return bytes(out)


def request(
    call_id: int,
    method: str,
    body: bytes,
    cells: bytes = b"",
    *,
    priority: int = 0,
    timeout_ms: int = 0,
) -> bytes:
    """Return the frame of a call.

    Args:
        call_id: Unique among the calls in flight on the connection.
        method: As the service's `rpc` is spelt.
        body: The parameter, encoded.
        cells: The block of cells.
        priority: 0 is normal; calls about the catalogue have 200.
        timeout_ms: A call that waited longer in the server's queue is dropped; 0 is for ever.
    """
    header = bytearray((_VARINT_1,))
    put_varint(header, call_id)
    header += _named(method)
    if cells:
        meta = bytearray((_VARINT_1,))
        put_varint(meta, len(cells))
        put_bytes(header, _BYTES_5, meta)
    if priority:
        header.append(_VARINT_6)
        put_varint(header, priority)
    if timeout_ms:
        header.append(_VARINT_7)
        put_varint(header, timeout_ms)
    start = bytearray()
    put_varint(start, len(header))
    start += header
    put_varint(start, len(body))
    return b"".join((_LENGTH.pack(len(start) + len(body) + len(cells)), start, body, cells))


class Answer(NamedTuple):
    """What came for a call."""

    call_id: int
    fault: Fault | None
    body: bytes
    """The result, encoded; empty beside a fault."""
    frame: bytes
    cells_at: int
    """Where in the frame the block of cells begins; it ends with the frame."""


def answer(frame: bytes) -> Answer:
    """Read a frame, without the length before it.

    Raises:
        Garbled: it is no answer.
    """
    try:
        header, position = _delimited(frame, 0)
        call_id: int | None = None
        fault, cells_length = None, 0
        for key, value in fields(header):
            if key == _VARINT_1 and isinstance(value, int):
                call_id = SERVERS_OWN if value in (_UNSIGNED_OF_MINUS_ONE, 2**32 - 1) else value
            elif key == _BYTES_2 and isinstance(value, bytes):
                fault = _fault(value)
            elif key == _BYTES_3 and isinstance(value, bytes):
                cells_length = _length_in(value)
        if call_id is None:
            raise Garbled("the header of an answer has no call id")
        body = b""
        if fault is None:
            body, position = _delimited(frame, position)
    except RemoteProtocolError as error:
        raise Garbled(f"an answer cannot be read: {error}") from error
    if cells_length != len(frame) - position:
        raise Garbled(
            f"an answer claims {cells_length} bytes of cells where {len(frame) - position} are left"
        )
    return Answer(call_id, fault, body, frame, position)


def _delimited(frame: bytes, position: int) -> tuple[bytes, int]:
    """Return the message at a position, and where it ends."""
    length = shift = 0
    while True:
        if position >= len(frame) or shift > 28:
            raise Garbled("an answer ends inside a length")
        byte = frame[position]
        position += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if length > len(frame) - position:
        raise Garbled(
            f"a part of an answer claims {length} bytes where {len(frame) - position} are left"
        )
    return frame[position : position + length], position + length


def _fault(data: bytes) -> Fault:
    """Read an `ExceptionResponse`."""
    name = text = host = ""
    port, do_not_retry = 0, False
    for key, value in fields(data):
        if isinstance(value, bytes):
            if key == _BYTES_1:
                name = value.decode(errors="replace")
            elif key == _BYTES_2:
                text = value.decode(errors="replace")
            elif key == _BYTES_3:
                host = value.decode(errors="replace")
        elif key == _VARINT_4:
            port = value
        elif key == _VARINT_5:
            do_not_retry = bool(value)
    return Fault(name, text, host=host, port=port, do_not_retry=do_not_retry)


def _length_in(meta: bytes) -> int:
    for key, value in fields(meta):
        if key == _VARINT_1 and isinstance(value, int):
            return value
    return 0


class FrameSplitter:
    """Cuts what comes from a socket into frames.

    An exception that takes its caller out at any line loses nothing and doubles nothing: what it
    knows is one tuple, replaced in one step, and a frame is taken out in two steps, so that one
    whose reader is interrupted in between comes again rather than not at all.
    """

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        """Begin between two frames; longer ones than `max_bytes` are refused."""
        self._max_bytes = max_bytes
        self._state: tuple[bytes, int, list[bytes]] = (b"", 0, [])
        """Bytes, where in them the next frame begins, and pieces that came behind them."""

    @property
    def incoming(self) -> list[bytes]:
        """Where pieces are put as they come; an empty one is the end."""
        return self._state[2]

    @property
    def has_ended(self) -> bool:
        """Whether no more bytes come."""
        pieces = self._state[2]
        return bool(pieces) and not pieces[-1]

    @property
    def missing(self) -> int:
        """How many bytes are known to be missing from the next frame; 0 if it is whole.

        Raises:
            Garbled: its length is none.
        """
        length = self._length()
        data, at, pieces = self._state
        if length is None:
            return _LENGTH.size
        if len(pieces) > MOST_PIECES:
            # Each costs more than it holds where a server sends byte by byte.
            pieces = [b"".join(pieces), *([b""] if self.has_ended else [])]
            self._state = (data, at, pieces)
        return max(0, _LENGTH.size + length - (len(data) - at) - sum(map(len, pieces)))

    def first(self) -> bytes | None:
        """Return the first frame if it is whole.

        Raises:
            Garbled: its length is none.
        """
        length = self._length()
        if length is None or self.missing:
            return None
        data, at, pieces = self._state
        if at + _LENGTH.size + length > len(data):
            is_ended = self.has_ended
            data, at = b"".join((data[at:], *pieces)), 0
            self._state = (data, at, [b""] if is_ended else [])
        at += _LENGTH.size
        return data[at : at + length]

    def drop_first(self) -> None:
        """Let go of the first frame, which `first` has returned."""
        data, at, pieces = self._state
        end = at + _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
        self._state = (data, end, pieces) if end < len(data) else (b"", 0, pieces)

    def frames(self) -> Iterator[bytes]:
        """Yield the frames that are whole, and let go of each when the next is asked for."""
        while (frame := self.first()) is not None:
            yield frame
            self.drop_first()

    def _length(self) -> int | None:
        """Return the length of the first frame; None while that is not there."""
        data, at, pieces = self._state
        if len(data) - at < _LENGTH.size:
            if not pieces:
                return None
            data, at = b"".join((data[at:], *pieces)), 0
            is_ended = self.has_ended
            self._state = (data, at, [b""] if is_ended else [])
            if len(data) < _LENGTH.size:
                return None
        length: int = _LENGTH.unpack_from(data, at)[0]
        if length > self._max_bytes:
            raise Garbled(
                f"it sent {data[at : at + 16]!r}, which as the length of an answer is "
                f"{length} bytes, more than {self._max_bytes}"
            )
        return length
