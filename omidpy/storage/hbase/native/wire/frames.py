"""The bytes of a connection: its opening, requests, and where answers begin and end.  No I/O.

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
from functools import cache, lru_cache
from typing import Final

from omidpy.storage.hbase.native.faults import Garbled
from omidpy.wire.protobuf import put_bytes, put_varint

MAGIC: Final = b"HBas\x00"
"""Magic, and version 0."""
PREAMBLE: Final = MAGIC + b"\x50"
"""Of SIMPLE authentication."""
CODEC: Final = b"org.apache.hadoop.hbase.codec.KeyValueCodec"

MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
"""The greatest answer that is read; the greatest request that HBase takes."""

MOST_PIECES: Final = 1000
"""Pieces of one answer that are kept apart."""

_LENGTH: Final = struct.Struct(">I")

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
        header += _varint(timeout_ms)
    before, between = _varint(len(header)), _varint(len(body))
    size = len(before) + len(header) + len(between) + len(body) + len(cells)
    return b"".join((_LENGTH.pack(size), before, header, between, body, cells))


@lru_cache(maxsize=4096)
def _varint(value: int) -> bytes:
    """Return the bytes of a number that comes again and again."""
    out = bytearray()
    put_varint(out, value)
    return bytes(out)


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
    def is_begun(self) -> bool:
        """Whether there is a frame, or a part of one, or the end."""
        data, _, pieces = self._state
        return bool(pieces) or bool(data)

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
        if length is None:
            return None
        data, at, pieces = self._state
        end = at + _LENGTH.size + length
        if end > len(data):
            if self.missing:
                return None
            is_ended = self.has_ended
            data, at, end = b"".join((data[at:], *pieces)), 0, _LENGTH.size + length
            self._state = (data, at, [b""] if is_ended else [])
        return data[at + _LENGTH.size : end]

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
