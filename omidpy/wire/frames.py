"""How a message becomes bytes on a TCP connection, and back.

A frame is a payload's length, 4 bytes big endian and not counting itself, followed by the payload,
one protobuf message.  Both ends are here: a client encodes requests and decodes responses, a server
the reverse.  `messages.py` has the table of fields, `protobuf.py` the encoding of one field.

Invariants:

* Requests and responses that use none of our extensions are byte for byte what Java sends.
* Whatever bytes arrive, decoding returns a message or raises `RemoteProtocolError`.
* A frame's length is judged before its payload is waited for, so a peer cannot make us buffer more
  than its limit.

Source: Omid 1.1.3 (proto2, repeated integers unpacked) and its main branch (proto3, packed); both
forms are read, the first is written unless the other is asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, Final, TypeAlias, assert_never

import msgspec

from omidpy.base.documents import prepared
from omidpy.errors import LocalProtocolError, RemoteProtocolError, UsageError
from omidpy.model import MAX_VERSION, CellId, TableId, Timestamp
from omidpy.wire.messages import (
    MAX_CONFLICTS,
    CommitRequest,
    CommitResponse,
    FenceRequest,
    FenceResponse,
    HandshakeRequest,
    HandshakeResponse,
    InvalidateRequest,
    InvalidateResponse,
    InvalidateVerdict,
    PeerCapabilities,
    Request,
    Response,
    TimestampRequest,
    TimestampResponse,
)
from omidpy.wire.protobuf import (
    BYTES,
    VARINT,
    Fields,
    fields,
    int32,
    int64,
    int64s,
    joined,
    key,
    last_of_each,
    numbers,
    put_bool,
    put_bytes,
    put_int64,
    put_int64s,
    put_uint64,
    required,
)

MAX_REQUEST_FRAME_BYTES: Final = 10 * 1024 * 1024
"""Longest frame a server reads, its 4 bytes of length included: Java's limit, so also ours."""

MAX_COMMIT_NUMBERS: Final = (MAX_REQUEST_FRAME_BYTES - 64) // 10
"""Cells and tables that surely fit into one commit request, packed: 1,048,569."""

PACKED_COUNT: Final = 2**16
"""A commit of more cells is packed where it is known that the oracle is ours, which reads it so."""

MAX_RESPONSE_FRAME_BYTES: Final = 64 * 1024
"""Longest frame a client reads, its length included.

The longest valid answer, a refusal with 64 conflicts, takes less than 1 KiB; Java's client stops at
8 KiB.  The rest is room for later fields, and little enough to buffer for a peer that is no oracle.
"""

_LENGTH: Final = struct.Struct(">I")

_HANDSHAKE: Final = key(3, BYTES)
_TIMESTAMP: Final = key(1, BYTES)
_COMMIT: Final = key(2, BYTES)
_FENCE: Final = key(4, BYTES)
_INVALIDATE: Final = key(1001, BYTES)

_COMMIT_CELLS: Final = key(1002, BYTES)

_KINDS: Final = frozenset((_TIMESTAMP, _COMMIT, _HANDSHAKE, _FENCE, _INVALIDATE))
_REQUEST_KINDS: Final = _KINDS | {_COMMIT_CELLS}

_CAPABILITIES_FEATURES: Final = key(1001, VARINT)
_CAPABILITIES_STORE_ID: Final = key(1002, BYTES)
_CAPABILITIES_EPOCH: Final = key(1003, VARINT)
_CAPABILITIES_MAX_AGE: Final = key(1004, VARINT)
_CAPABILITIES_CLIENT: Final = key(1005, VARINT)
_CAPABILITIES_ROLES: Final = key(1006, VARINT)
_CAPABILITIES_MAX_CELLS: Final = key(1007, VARINT)

_TIMESTAMP_REQUEST_HOLD: Final = key(1001, VARINT)
_TIMESTAMP_REQUEST_HOLD_NAME: Final = key(1002, VARINT)
_TIMESTAMP_REQUEST_REPETITION: Final = key(1003, VARINT)
_COMMIT_REQUEST_START: Final = key(1, VARINT)
_COMMIT_REQUEST_RETRY: Final = key(2, VARINT)
_COMMIT_REQUEST_CELLS: Final = 3
_COMMIT_REQUEST_TABLES: Final = 4
_COMMIT_CELLS_START: Final = key(1, VARINT)
_COMMIT_CELLS_REST: Final = key(2, BYTES)
_FENCE_REQUEST_TABLE: Final = key(1, VARINT)
_INVALIDATE_REQUEST_START: Final = key(1, VARINT)
_HANDSHAKE_REQUEST_CAPABILITIES: Final = key(1, BYTES)

_TIMESTAMP_RESPONSE_START: Final = key(1, VARINT)
_TIMESTAMP_RESPONSE_LOW_WATERMARK: Final = key(1001, VARINT)
_TIMESTAMP_RESPONSE_NEWEST_FENCE: Final = key(1002, VARINT)
_COMMIT_RESPONSE_ABORTED: Final = key(1, VARINT)
_COMMIT_RESPONSE_START: Final = key(2, VARINT)
_COMMIT_RESPONSE_COMMIT: Final = key(3, VARINT)
_COMMIT_RESPONSE_CONFLICTS: Final = 1001
_COMMIT_RESPONSE_ANY_CONFLICT: Final = {
    key(_COMMIT_RESPONSE_CONFLICTS, BYTES),
    key(_COMMIT_RESPONSE_CONFLICTS, VARINT),
}
_COMMIT_RESPONSE_REASON: Final = key(1002, VARINT)
_COMMIT_RESPONSE_WAIT: Final = key(1003, VARINT)
_FENCE_RESPONSE_TABLE: Final = key(1, VARINT)
_FENCE_RESPONSE_FENCE: Final = key(2, VARINT)
_INVALIDATE_RESPONSE_START: Final = key(1, VARINT)
_INVALIDATE_RESPONSE_VERDICT: Final = key(2, VARINT)
_INVALIDATE_RESPONSE_COMMIT: Final = key(3, VARINT)
_HANDSHAKE_RESPONSE_COMPATIBLE: Final = key(1, VARINT)
_HANDSHAKE_RESPONSE_CAPABILITIES: Final = key(2, BYTES)
_HANDSHAKE_RESPONSE_LOW_LATENCY: Final = key(3, VARINT)

_Version: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=MAX_VERSION)]
_Number: TypeAlias = Annotated[int, msgspec.Meta(le=2**63 - 1)]
_Cells: TypeAlias = dict[str, list[tuple[bytes, bytes, bytes, _Version, bytes]]]
_Rest: TypeAlias = tuple[bytes, tuple[_Number, ...], tuple[_Number, ...], _Cells]

_packed: Final = msgspec.msgpack.Encoder().encode
_unpacked: Final = msgspec.msgpack.Decoder(prepared(_Rest)).decode
"""What a commit brings with its cells: writer key, cell ids, table ids, and cells by table."""


# -- frames ----------------------------------------------------------------------------------------


def frame(payload: bytes) -> bytes:
    """Return `payload` with its length in front."""
    return _LENGTH.pack(len(payload)) + payload


def frame_request(request: Request, *, packed: bool = False) -> bytes:
    """Return a request as the frame to send.

    Args:
        request: What to ask.
        packed: Write repeated integers packed, one byte a cell shorter.  Every known server reads
            both forms.

    Raises:
        UsageError: if the frame is longer than any server reads; the transaction is too large.
        LocalProtocolError: if a number does not fit its field.
    """
    if request == _BEGIN:  # as half of all are
        return _BEGIN_FRAME
    payload = encode_request(request, packed=packed)
    if _LENGTH.size + len(payload) > MAX_REQUEST_FRAME_BYTES:
        count = len(request.cell_ids) if isinstance(request, CommitRequest) else 0
        raise UsageError(
            f"the write set of {count} cells takes {len(payload)} bytes in the commit request, and "
            f"an oracle reads at most {MAX_REQUEST_FRAME_BYTES}; split the work into smaller "
            "transactions, or give the table conflict_level='row'"
        )
    return frame(payload)


class FrameReader:
    """Cuts a stream of bytes into payloads.  After an error the stream is lost for good."""

    def __init__(self, *, max_frame_bytes: int) -> None:
        """Refuse frames longer than `max_frame_bytes`, their 4 bytes of length included."""
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes, *, at_most: int | None = None) -> list[bytes]:
        """Return the payloads that `data` completes, in order.

        Args:
            data: What arrived; it may be empty.
            at_most: Leave further payloads where they are, for the next call.

        Raises:
            RemoteProtocolError: if a frame announces more than the limit.
        """
        buffer = self._buffer
        source: bytes | bytearray = data
        if buffer:
            buffer += data
            source = buffer
        payloads: list[bytes] = []
        position = 0
        while len(payloads) != at_most and len(source) - position >= _LENGTH.size:
            end = position + _LENGTH.size + self._length_at(source, position)
            if end > len(source):
                break
            payloads.append(bytes(source[position + _LENGTH.size : end]))
            position = end
        if source is buffer:
            del buffer[:position]
        elif position < len(data):
            buffer += data[position:]
        return payloads

    def take(self) -> bytearray:
        """Give the first frame away, its length in front, which must be there whole.

        Not even ten megabytes are copied; what is behind it moves, and `buffer` is another one.

        Raises:
            RemoteProtocolError: if it announces more than the limit.
        """
        taken = self._buffer
        end = _LENGTH.size + self._length_at(taken, 0)
        assert end <= len(taken), "the frame is unfinished"
        self._buffer = taken[end:]
        del taken[end:]
        return taken

    def _length_at(self, source: bytes | bytearray, position: int) -> int:
        """Return how long a payload is whose frame begins at a position."""
        length: int = _LENGTH.unpack_from(source, position)[0]
        if _LENGTH.size + length > self._max_frame_bytes:
            raise RemoteProtocolError(
                f"a frame of {_LENGTH.size + length} bytes is announced, where at most "
                f"{self._max_frame_bytes} are allowed"
            )
        return length

    @property
    def buffer(self) -> bytearray:
        """What is kept, to be looked at; `skip` removes what was dealt with."""
        return self._buffer

    def skip(self, count: int) -> None:
        """Forget so many bytes, which are whole frames that were read elsewhere."""
        del self._buffer[:count]

    @property
    def buffered_bytes(self) -> int:
        """How much is kept: of an unfinished frame, and of what `at_most` left behind."""
        return len(self._buffer)

    @property
    def is_inside_frame(self) -> bool:
        """Whether the stream, if it ended here, would end in the middle of a frame."""
        return bool(self._buffer)


# -- writing messages ------------------------------------------------------------------------------


def encode_request(request: Request, *, packed: bool = False) -> bytes:
    """Return the payload of a request; `packed` as in `frame_request`."""
    body = bytearray()
    match request:
        case TimestampRequest():
            kind = _TIMESTAMP
            if request.hold_ms is not None:
                put_int64(body, _TIMESTAMP_REQUEST_HOLD, request.hold_ms)
            if request.hold_name is not None:
                put_int64(body, _TIMESTAMP_REQUEST_HOLD_NAME, request.hold_name)
            if request.repetition:
                put_int64(body, _TIMESTAMP_REQUEST_REPETITION, request.repetition)
        case CommitRequest() if request.cells is not None:
            kind = _COMMIT_CELLS
            put_int64(body, _COMMIT_CELLS_START, request.start_ts)
            rest = request.writer_key, request.cell_ids, request.table_ids, request.cells
            put_bytes(body, _COMMIT_CELLS_REST, _packed(rest))
        case CommitRequest():
            kind = _COMMIT
            put_int64(body, _COMMIT_REQUEST_START, request.start_ts)
            if request.is_retry:
                put_bool(body, _COMMIT_REQUEST_RETRY, value=True)
            put_int64s(body, _COMMIT_REQUEST_CELLS, request.cell_ids, packed=packed)
            put_int64s(body, _COMMIT_REQUEST_TABLES, request.table_ids, packed=packed)
        case HandshakeRequest():
            kind = _HANDSHAKE
            if request.capabilities is not None:
                capabilities = _encode_capabilities(request.capabilities)
                put_bytes(body, _HANDSHAKE_REQUEST_CAPABILITIES, capabilities)
        case FenceRequest():
            kind = _FENCE
            put_int64(body, _FENCE_REQUEST_TABLE, request.table_id)
        case InvalidateRequest():
            kind = _INVALIDATE
            put_int64(body, _INVALIDATE_REQUEST_START, request.start_ts)
        case _:
            assert_never(request)
    return _enclosed(kind, body)


def encode_response(response: Response) -> bytes:
    """Return the payload of a response.

    Raises:
        LocalProtocolError: if a number does not fit its field, or there are too many conflicts.
    """
    body = bytearray()
    match response:
        case TimestampResponse():
            kind = _TIMESTAMP
            put_int64(body, _TIMESTAMP_RESPONSE_START, response.start_ts)
            if response.low_watermark is not None:
                put_int64(body, _TIMESTAMP_RESPONSE_LOW_WATERMARK, response.low_watermark)
            if response.newest_fence is not None:
                put_int64(body, _TIMESTAMP_RESPONSE_NEWEST_FENCE, response.newest_fence)
        case CommitResponse():
            kind = _COMMIT
            put_bool(body, _COMMIT_RESPONSE_ABORTED, value=response.commit_ts is None)
            put_int64(body, _COMMIT_RESPONSE_START, response.start_ts)
            if response.commit_ts is not None:
                put_int64(body, _COMMIT_RESPONSE_COMMIT, response.commit_ts)
            if len(response.conflicts) > MAX_CONFLICTS:
                raise LocalProtocolError(
                    f"a refusal names {len(response.conflicts)} cells; at most {MAX_CONFLICTS} fit"
                )
            put_int64s(body, _COMMIT_RESPONSE_CONFLICTS, response.conflicts, packed=True)
            if response.reason:
                put_int64(body, _COMMIT_RESPONSE_REASON, response.reason)
            if response.wait_ms:
                put_int64(body, _COMMIT_RESPONSE_WAIT, response.wait_ms)
        case HandshakeResponse():
            kind = _HANDSHAKE
            put_bool(body, _HANDSHAKE_RESPONSE_COMPATIBLE, value=response.is_compatible)
            if response.capabilities is not None:
                capabilities = _encode_capabilities(response.capabilities)
                put_bytes(body, _HANDSHAKE_RESPONSE_CAPABILITIES, capabilities)
            put_bool(body, _HANDSHAKE_RESPONSE_LOW_LATENCY, value=response.is_low_latency)
        case FenceResponse():
            kind = _FENCE
            put_int64(body, _FENCE_RESPONSE_TABLE, response.table_id)
            put_int64(body, _FENCE_RESPONSE_FENCE, response.fence_ts)
        case InvalidateResponse():
            kind = _INVALIDATE
            put_int64(body, _INVALIDATE_RESPONSE_START, response.start_ts)
            put_int64(body, _INVALIDATE_RESPONSE_VERDICT, response.verdict)
            if response.commit_ts is not None:
                put_int64(body, _INVALIDATE_RESPONSE_COMMIT, response.commit_ts)
        case _:
            assert_never(response)
    return _enclosed(kind, body)


def _encode_capabilities(capabilities: PeerCapabilities) -> bytearray:
    out = bytearray()
    if capabilities.features:
        put_uint64(out, _CAPABILITIES_FEATURES, capabilities.features)
    if capabilities.store_id is not None:
        put_bytes(out, _CAPABILITIES_STORE_ID, capabilities.store_id)
    if capabilities.epoch is not None:
        put_int64(out, _CAPABILITIES_EPOCH, capabilities.epoch)
    if capabilities.max_transaction_age_ms is not None:
        put_int64(out, _CAPABILITIES_MAX_AGE, capabilities.max_transaction_age_ms)
    if capabilities.client is not None:
        put_int64(out, _CAPABILITIES_CLIENT, capabilities.client)
    if capabilities.roles is not None:
        put_uint64(out, _CAPABILITIES_ROLES, capabilities.roles)
    if capabilities.max_commit_cells is not None:
        put_int64(out, _CAPABILITIES_MAX_CELLS, capabilities.max_commit_cells)
    return out


def _enclosed(kind: int, body: bytearray) -> bytes:
    out = bytearray()
    put_bytes(out, kind, body)
    return bytes(out)


_COMMIT_CELLS_HEAD: Final = _enclosed(_COMMIT_CELLS, bytearray())[:-1]
_BEGIN: Final = TimestampRequest()
_BEGIN_FRAME: Final = frame(encode_request(_BEGIN))


# -- reading messages ------------------------------------------------------------------------------


def decode_request(payload: bytes) -> Request:
    """Return the request in a payload, repeated integers packed or not.

    Raises:
        RemoteProtocolError: if it holds anything but exactly one complete request.
    """
    kind, body = _opened(payload, what="request", kinds=_REQUEST_KINDS)
    if kind == _TIMESTAMP:
        values = last_of_each(body)
        return TimestampRequest(
            int64(values, _TIMESTAMP_REQUEST_HOLD),
            int64(values, _TIMESTAMP_REQUEST_HOLD_NAME),
            int64(values, _TIMESTAMP_REQUEST_REPETITION) or 0,
        )
    if kind == _COMMIT:
        return _decode_commit_request(body)
    values = last_of_each(body)
    if kind == _COMMIT_CELLS:
        return _decode_commit_with_cells(values)
    if kind == _HANDSHAKE:
        return HandshakeRequest(_capabilities(body, _HANDSHAKE_REQUEST_CAPABILITIES))
    if kind == _FENCE:
        return FenceRequest(TableId(required(values, _FENCE_REQUEST_TABLE, "a table id")))
    return InvalidateRequest(Timestamp(required(values, _INVALIDATE_REQUEST_START, "a start_ts")))


def decode_response(payload: bytes) -> Response:
    """Return the response in a payload.

    Raises:
        RemoteProtocolError: if it holds anything but exactly one complete response.
    """
    found = numbers(payload)
    if found is not None:  # as nearly all are
        if found[0] == _TIMESTAMP:
            return _timestamp_response(found[1])
        if found[0] == _COMMIT and _COMMIT_RESPONSE_ANY_CONFLICT.isdisjoint(found[1]):
            return _commit_response(found[1])
    kind, body = _opened(payload, what="response")
    values = last_of_each(body)
    if kind == _TIMESTAMP:
        return _timestamp_response(values)
    if kind == _COMMIT:
        return _commit_response(values, body)
    if kind == _HANDSHAKE:
        return HandshakeResponse(
            bool(values.get(_HANDSHAKE_RESPONSE_COMPATIBLE, 0)),
            _capabilities(body, _HANDSHAKE_RESPONSE_CAPABILITIES),
            bool(values.get(_HANDSHAKE_RESPONSE_LOW_LATENCY, 0)),
        )
    if kind == _FENCE:
        return FenceResponse(
            TableId(required(values, _FENCE_RESPONSE_TABLE, "a table id")),
            Timestamp(required(values, _FENCE_RESPONSE_FENCE, "a fence timestamp")),
        )
    return _decode_invalidate_response(values)


def _decode_commit_request(body: bytes) -> CommitRequest:
    values = last_of_each(body)
    return CommitRequest(
        Timestamp(required(values, _COMMIT_REQUEST_START, "a start_ts")),
        tuple(CellId(value) for value in int64s(body, _COMMIT_REQUEST_CELLS)),
        tuple(TableId(value) for value in int64s(body, _COMMIT_REQUEST_TABLES)),
        bool(values.get(_COMMIT_REQUEST_RETRY, 0)),
    )


def _decode_commit_with_cells(values: Fields) -> CommitRequest:
    start_ts = Timestamp(required(values, _COMMIT_CELLS_START, "a start_ts"))
    rest = values.get(_COMMIT_CELLS_REST)
    if not isinstance(rest, bytes):
        raise RemoteProtocolError("a commit with its cells lacks the cells")
    try:
        writer_key, cell_ids, table_ids, cells = _unpacked(rest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"a commit brings what are no cells: {error}") from error
    return CommitRequest(
        start_ts,
        cell_ids,
        table_ids,
        cells=cells,
        writer_key=writer_key,
        size_bytes=len(rest),
    )


def brings_cells(payload: bytes) -> bool:
    """Say whether a request is a commit with its cells, if it is anything."""
    return payload.startswith(_COMMIT_CELLS_HEAD)


def _timestamp_response(values: Mapping[int, int | bytes]) -> TimestampResponse:
    return TimestampResponse(
        Timestamp(required(values, _TIMESTAMP_RESPONSE_START, "a start_ts")),
        _timestamp(values, _TIMESTAMP_RESPONSE_LOW_WATERMARK),
        _timestamp(values, _TIMESTAMP_RESPONSE_NEWEST_FENCE),
    )


def _commit_response(values: Mapping[int, int | bytes], body: bytes = b"") -> CommitResponse:
    """Return a verdict; `body` is where its conflicts are, if it has any."""
    if values.get(_COMMIT_RESPONSE_ABORTED, 0):
        commit_ts = None
    else:
        commit_ts = Timestamp(required(values, _COMMIT_RESPONSE_COMMIT, "a commit_ts"))
    conflicts: tuple[CellId, ...] = ()
    if not _COMMIT_RESPONSE_ANY_CONFLICT.isdisjoint(values):
        conflicts = tuple(CellId(value) for value in int64s(body, _COMMIT_RESPONSE_CONFLICTS))
    if len(conflicts) > MAX_CONFLICTS:
        raise RemoteProtocolError(
            f"a refusal names {len(conflicts)} cells, where at most {MAX_CONFLICTS} are allowed"
        )
    return CommitResponse(
        Timestamp(required(values, _COMMIT_RESPONSE_START, "a start_ts")),
        commit_ts,
        conflicts,
        int32(values, _COMMIT_RESPONSE_REASON),
        max(0, int64(values, _COMMIT_RESPONSE_WAIT) or 0),
    )


def _decode_invalidate_response(values: Fields) -> InvalidateResponse:
    number = int32(values, _INVALIDATE_RESPONSE_VERDICT)
    try:
        verdict = InvalidateVerdict(number)
    except ValueError as error:
        raise RemoteProtocolError(f"{number} is no verdict on an invalidation") from error
    commit_ts = None
    if verdict is InvalidateVerdict.COMMITTED:
        commit_ts = Timestamp(required(values, _INVALIDATE_RESPONSE_COMMIT, "a commit_ts"))
    start_ts = Timestamp(required(values, _INVALIDATE_RESPONSE_START, "a start_ts"))
    return InvalidateResponse(start_ts, verdict, commit_ts)


def _opened(payload: bytes, *, what: str, kinds: AbstractSet[int] = _KINDS) -> tuple[int, bytes]:
    """Return the kind and the body of the one message in an envelope of several alternatives."""
    found = [
        (field_key, value)
        for field_key, value in fields(payload)
        if field_key in kinds and isinstance(value, bytes)
    ]
    if len(found) == 1:
        return found[0]
    present = {kind for kind, _ in found}
    if len(present) != 1:
        raise RemoteProtocolError(
            f"a {what} holds {len(present)} messages of kinds that this version knows; expected one"
        )
    # To merge two occurrences of a message, as every protobuf parser does, is to parse the two one
    # after the other, each of which must be whole by itself.
    return present.pop(), joined(body for _, body in found)


def _capabilities(body: bytes, field_key: int) -> PeerCapabilities | None:
    """Return the capabilities in field `field_key`, None without any."""
    parts = [value for found, value in fields(body) if found == field_key]
    if not parts:
        return None
    values = last_of_each(joined(part for part in parts if isinstance(part, bytes)))
    features = values.get(_CAPABILITIES_FEATURES, 0)
    store_id = values.get(_CAPABILITIES_STORE_ID)
    roles = values.get(_CAPABILITIES_ROLES)
    assert isinstance(features, int), "the key says that it is a varint"
    assert roles is None or isinstance(roles, int), "the key says that it is a varint"
    assert store_id is None or isinstance(store_id, bytes), "the key says that it is a string"
    return PeerCapabilities(
        features,
        store_id,
        _timestamp(values, _CAPABILITIES_EPOCH),
        int64(values, _CAPABILITIES_MAX_AGE),
        int64(values, _CAPABILITIES_CLIENT),
        roles,
        int64(values, _CAPABILITIES_MAX_CELLS),
    )


def _timestamp(values: Mapping[int, int | bytes], field_key: int) -> Timestamp | None:
    value = int64(values, field_key)
    return None if value is None else Timestamp(value)
