"""The hand-written codec agrees with the protobuf library, and no bytes can crash it."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from omidpy.errors import RemoteProtocolError
from omidpy.model import CellId, TableId, Timestamp
from omidpy.wire.frames import (
    FrameReader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    frame,
)
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

# -- strategies ------------------------------------------------------------------------------------

int64s = st.integers(-(2**63), 2**63 - 1)
timestamps = int64s.map(Timestamp)
cell_ids = int64s.map(CellId)
table_ids = int64s.map(TableId)

capabilities = st.builds(
    PeerCapabilities,
    features=st.integers(0, 2**64 - 1),
    store_id=st.none() | st.binary(max_size=40),
    epoch=st.none() | timestamps,
    max_transaction_age_ms=st.none() | int64s,
)

requests: st.SearchStrategy[Request] = st.one_of(
    st.builds(TimestampRequest, st.none() | int64s, st.none() | int64s, int64s),
    st.builds(
        CommitRequest,
        timestamps,
        st.lists(cell_ids, max_size=20).map(tuple),
        st.lists(table_ids, max_size=4).map(tuple),
        st.booleans(),
    ),
    st.builds(HandshakeRequest, st.none() | capabilities),
    st.builds(FenceRequest, table_ids),
    st.builds(InvalidateRequest, timestamps),
)

responses: st.SearchStrategy[Response] = st.one_of(
    st.builds(TimestampResponse, timestamps, st.none() | timestamps, st.none() | timestamps),
    st.builds(CommitResponse, timestamps, timestamps),
    st.builds(
        CommitResponse,
        timestamps,
        st.none(),
        st.lists(cell_ids, max_size=MAX_CONFLICTS).map(tuple),
        st.integers(-(2**31), 2**31 - 1),
    ),
    st.builds(HandshakeResponse, st.booleans(), st.none() | capabilities, st.booleans()),
    st.builds(FenceResponse, table_ids, timestamps),
    st.builds(
        InvalidateResponse,
        timestamps,
        st.sampled_from([InvalidateVerdict.INVALIDATED, InvalidateVerdict.UNKNOWN]),
    ),
    st.builds(InvalidateResponse, timestamps, st.just(InvalidateVerdict.COMMITTED), timestamps),
)

# -- the same messages, described to the protobuf library ------------------------------------------

_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "int64": _FIELD.TYPE_INT64,
    "uint64": _FIELD.TYPE_UINT64,
    "int32": _FIELD.TYPE_INT32,
    "bool": _FIELD.TYPE_BOOL,
    "bytes": _FIELD.TYPE_BYTES,
}

SCHEMA: dict[str, list[tuple[int, str, str]]] = {
    "Request": [
        (1, "timestamp", "TimestampRequest"),
        (2, "commit", "CommitRequest"),
        (3, "handshake", "HandshakeRequest"),
        (4, "fence", "FenceRequest"),
        (1001, "invalidate", "InvalidateRequest"),
    ],
    "Response": [
        (1, "timestamp", "TimestampResponse"),
        (2, "commit", "CommitResponse"),
        (3, "handshake", "HandshakeResponse"),
        (4, "fence", "FenceResponse"),
        (1001, "invalidate", "InvalidateResponse"),
    ],
    "TimestampRequest": [
        (1001, "hold_ms", "int64"),
        (1002, "hold_name", "int64"),
        (1003, "repetition", "int64"),
    ],
    "CommitRequest": [
        (1, "start_ts", "int64"),
        (2, "is_retry", "bool"),
        (3, "cell_ids", "repeated int64"),
        (4, "table_ids", "repeated int64"),
    ],
    "HandshakeRequest": [(1, "capabilities", "Capabilities")],
    "FenceRequest": [(1, "table_id", "int64")],
    "InvalidateRequest": [(1, "start_ts", "int64")],
    "Capabilities": [
        (1001, "features", "uint64"),
        (1002, "store_id", "bytes"),
        (1003, "epoch", "int64"),
        (1004, "max_transaction_age_ms", "int64"),
    ],
    "TimestampResponse": [
        (1, "start_ts", "int64"),
        (1001, "low_watermark", "int64"),
        (1002, "newest_fence", "int64"),
    ],
    "CommitResponse": [
        (1, "aborted", "bool"),
        (2, "start_ts", "int64"),
        (3, "commit_ts", "int64"),
        (1001, "conflicts", "packed int64"),
        (1002, "reason", "int32"),
    ],
    "HandshakeResponse": [
        (1, "is_compatible", "bool"),
        (2, "capabilities", "Capabilities"),
        (3, "is_low_latency", "bool"),
    ],
    "FenceResponse": [(1, "table_id", "int64"), (2, "fence_ts", "int64")],
    "InvalidateResponse": [
        (1, "start_ts", "int64"),
        (2, "verdict", "int32"),
        (3, "commit_ts", "int64"),
    ],
}


def _classes(*, packed: bool) -> dict[str, Any]:
    """Build the library's classes; `packed` as Omid's main branch has them."""
    package = "packed" if packed else "unpacked"
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package)
    file.syntax = "proto2"
    for message_name, members in SCHEMA.items():
        message = file.message_type.add(name=message_name)
        for number, name, kind in members:
            label, _, type_name = kind.rpartition(" ")
            field = message.field.add(name=name, number=number)
            field.label = _FIELD.LABEL_REPEATED if label else _FIELD.LABEL_OPTIONAL
            if label == "packed" or (label and packed):
                field.options.packed = True
            if type_name in _TYPES:
                field.type = _TYPES[type_name]
            else:
                field.type = _FIELD.TYPE_MESSAGE
                field.type_name = f".{package}.{type_name}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in SCHEMA
    }


CLASSES = {packed: _classes(packed=packed) for packed in (False, True)}


def _fill_capabilities(target: Any, source: PeerCapabilities | None) -> None:
    if source is None:
        return
    target.SetInParent()
    if source.features:
        target.features = source.features
    for name in ("store_id", "epoch", "max_transaction_age_ms"):
        if (value := getattr(source, name)) is not None:
            setattr(target, name, value)


def library_request(request: Request, *, packed: bool) -> bytes:
    """Encode a request with the protobuf library."""
    message = CLASSES[packed]["Request"]()
    match request:
        case TimestampRequest():
            message.timestamp.SetInParent()
            if request.hold_ms is not None:
                message.timestamp.hold_ms = request.hold_ms
            if request.hold_name is not None:
                message.timestamp.hold_name = request.hold_name
            if request.repetition:
                message.timestamp.repetition = request.repetition
        case CommitRequest():
            message.commit.start_ts = request.start_ts
            if request.is_retry:
                message.commit.is_retry = True
            message.commit.cell_ids.extend(request.cell_ids)
            message.commit.table_ids.extend(request.table_ids)
        case HandshakeRequest():
            message.handshake.SetInParent()
            _fill_capabilities(message.handshake.capabilities, request.capabilities)
        case FenceRequest():
            message.fence.table_id = request.table_id
        case InvalidateRequest():
            message.invalidate.start_ts = request.start_ts
    encoded: bytes = message.SerializeToString(deterministic=True)
    return encoded


def library_response(response: Response) -> bytes:
    """Encode a response with the protobuf library."""
    message = CLASSES[False]["Response"]()
    match response:
        case TimestampResponse():
            message.timestamp.start_ts = response.start_ts
            if response.low_watermark is not None:
                message.timestamp.low_watermark = response.low_watermark
            if response.newest_fence is not None:
                message.timestamp.newest_fence = response.newest_fence
        case CommitResponse():
            message.commit.aborted = response.commit_ts is None
            message.commit.start_ts = response.start_ts
            if response.commit_ts is not None:
                message.commit.commit_ts = response.commit_ts
            message.commit.conflicts.extend(response.conflicts)
            if response.reason:
                message.commit.reason = response.reason
        case HandshakeResponse():
            message.handshake.is_compatible = response.is_compatible
            _fill_capabilities(message.handshake.capabilities, response.capabilities)
            message.handshake.is_low_latency = response.is_low_latency
        case FenceResponse():
            message.fence.table_id = response.table_id
            message.fence.fence_ts = response.fence_ts
        case InvalidateResponse():
            message.invalidate.start_ts = response.start_ts
            message.invalidate.verdict = int(response.verdict)
            if response.commit_ts is not None:
                message.invalidate.commit_ts = response.commit_ts
    encoded: bytes = message.SerializeToString(deterministic=True)
    return encoded


# -- claims ----------------------------------------------------------------------------------------


@given(request=requests, packed=st.booleans())
def test_requests_are_encoded_as_the_library_does(request: Request, *, packed: bool) -> None:
    """Golden bytes cover a few messages; the library covers the rest of them."""
    encoded = encode_request(request, packed=packed)
    assert encoded == library_request(request, packed=packed)
    assert decode_request(encoded) == request


@given(responses)
def test_responses_are_encoded_as_the_library_does(response: Response) -> None:
    """The same for what a server sends."""
    encoded = encode_response(response)
    assert encoded == library_response(response)
    assert decode_response(encoded) == response


def _damaged(whole: bytes, cut: int, insert: bytes) -> bytes:
    cut %= len(whole) + 1
    return whole[:cut] + insert + whole[cut + len(insert) :]


damaged_requests = st.builds(
    _damaged, requests.map(encode_request), st.integers(0, 500), st.binary(max_size=6)
)
damaged_responses = st.builds(
    _damaged, responses.map(encode_response), st.integers(0, 500), st.binary(max_size=6)
)


@given(st.binary(max_size=200) | damaged_requests)
def test_no_bytes_crash_the_server_s_decoder(payload: bytes) -> None:
    """The only ways out are a request, which encodes again, and the one error."""
    try:
        request = decode_request(payload)
    except RemoteProtocolError:
        return
    assert decode_request(encode_request(request)) == request


@given(st.binary(max_size=200) | damaged_responses)
def test_no_bytes_crash_the_client_s_decoder(payload: bytes) -> None:
    """The only ways out are a response, which encodes again, and the one error."""
    try:
        response = decode_response(payload)
    except RemoteProtocolError:
        return
    assert decode_response(encode_response(response)) == response


@given(damaged_requests)
def test_what_we_read_the_library_reads_the_same(payload: bytes) -> None:
    """Merged messages, skipped fields, last-one-wins: the library is the judge of our reading."""
    try:
        request = decode_request(payload)
    except RemoteProtocolError:
        return
    message = CLASSES[False]["Request"]()
    try:
        message.ParseFromString(payload)
    except DecodeError:  # pragma: no cover
        pytest.fail(f"the library refuses what we read as {request}")
    message.DiscardUnknownFields()
    assert library_request(request, packed=False) == _normal(message)


def _normal(message: Any) -> bytes:
    """Encode again, without the false `is_retry` and zero features that mean the same absent."""
    if message.HasField("commit") and not message.commit.is_retry:
        message.commit.ClearField("is_retry")
    if message.HasField("handshake") and message.handshake.HasField("capabilities"):
        capabilities_ = message.handshake.capabilities
        if not capabilities_.features:
            capabilities_.ClearField("features")
    encoded: bytes = message.SerializeToString(deterministic=True)
    return encoded


@given(st.lists(st.binary(max_size=50), max_size=6), st.lists(st.integers(1, 20), min_size=1))
def test_frames_survive_any_cutting(payloads: list[bytes], cuts: list[int]) -> None:
    """The reader returns each payload once, in order, however the stream arrives."""
    stream = b"".join(map(frame, payloads))
    reader = FrameReader(max_frame_bytes=64)
    found: list[bytes] = []
    position = turn = 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        found += reader.feed(stream[position : position + size])
        position, turn = position + size, turn + 1
    assert found == payloads
    assert not reader.is_inside_frame


@given(st.lists(st.binary(max_size=64), max_size=8))
def test_no_stream_makes_the_reader_keep_more_than_its_limit(chunks: list[bytes]) -> None:
    """A peer that is no oracle must not fill our memory."""
    reader = FrameReader(max_frame_bytes=32)
    try:
        for chunk in chunks:
            reader.feed(chunk)
            assert len(reader._buffer) < 32
    except RemoteProtocolError:
        return
