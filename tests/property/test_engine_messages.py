"""What the oracle's compiled step reads and writes is what `omidpy/wire/frames.py` defines."""

from __future__ import annotations

import re
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omidpy.errors import RemoteProtocolError
from omidpy.model import Timestamp
from omidpy.wire.frames import decode_request, encode_request, encode_response, frame
from omidpy.wire.messages import CommitRequest, CommitResponse, Request, TimestampResponse
from omidpy.wire.protobuf import BYTES, VARINT, key, put_bytes, put_varint
from tests.machines.engines import compiled_engine, interpreted_engine
from tests.property.test_wire import damaged_requests, requests, timestamps


@pytest.fixture(params=["interpreted", "compiled"], scope="module")
def engine(request: pytest.FixtureRequest) -> ModuleType:
    """Return the module in one of its two forms."""
    module = interpreted_engine() if request.param == "interpreted" else compiled_engine()
    if module is None:
        pytest.skip("Cython or a C compiler is missing, so there is no compiled form")
    return module


MOST = 2**62
"""More numbers than any payload here has."""


def _field(number: int, wire_type: int, value: int, tail: bytes) -> bytes:
    out = bytearray()
    if wire_type == BYTES:
        put_bytes(out, key(number, BYTES), tail)
        return bytes(out)
    put_varint(out, key(number, wire_type))
    if wire_type == VARINT:
        # Not by `put_varint`, which, compiled, takes no number of more than 64 bits.
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
        return bytes(out)
    return bytes(out) + tail


fields = st.lists(
    st.builds(
        _field,
        st.integers(1, 5) | st.just(1001),
        st.sampled_from([VARINT, VARINT, BYTES, 1, 5, 3, 7]),
        st.integers(0, 2**64 + 2**70),
        st.binary(max_size=12),
    ),
    max_size=6,
).map(b"".join)


def _enclosed(parts: list[bytes]) -> bytes:
    out = bytearray()
    for part in parts:
        put_bytes(out, key(2, BYTES), part)
    return bytes(out)


commits = st.lists(fields | st.binary(max_size=24), min_size=1, max_size=3).map(_enclosed)
payloads = st.one_of(
    st.binary(max_size=60),
    damaged_requests,
    commits,
    st.lists(commits | requests.map(encode_request) | fields, max_size=3).map(b"".join),
)


@given(payload=payloads)
@example(payload=b"")
@example(payload=bytes.fromhex("1200"))
@example(payload=bytes.fromhex("120b" + "08" + "ff" * 9 + "01"))
@example(payload=bytes.fromhex("120b" + "08" + "ff" * 9 + "02"))
@example(payload=bytes.fromhex("120c" + "08" + "ff" * 9 + "8100"))
@example(payload=bytes.fromhex("1204" + "0832" + "1a01" + "80"))
@example(payload=bytes.fromhex("1203" + "0832" + "18" + "05"))
@example(payload=bytes.fromhex("12" + "ffffffffffffffffff01" + "0832"))
@example(payload=bytes.fromhex("1202" + "0832" + "3a" + "ffffffffffffffffff01"))
@example(payload=bytes.fromhex("1201" + "08" + "1201" + "32"))
@example(payload=bytes.fromhex("1204" + "0832" + "0005"))
@example(payload=bytes.fromhex("1208" + "0832" + "8080808010" + "05"))
@example(payload=bytes.fromhex("1205" + "0832" + "0d" + "0102"))
@example(payload=bytes.fromhex("1207" + "0832" + "2b" + "00000000"))
@example(payload=bytes.fromhex("1208" + "0832" + "1a0180" + "18" + "1801"))
@example(payload=bytes.fromhex("1204" + "0832" + "1000"))
def test_any_payload_is_read_as_the_definition_reads_it(engine: ModuleType, payload: bytes) -> None:
    """A request that one form takes and the other refuses would depend on who installed it."""
    expected: Request | None
    try:
        expected = decode_request(payload)
    except RemoteProtocolError:
        expected = None
    try:
        found = engine.read_commit(payload, MOST)
    except RemoteProtocolError:
        assert expected is None
        return
    if isinstance(expected, CommitRequest):
        start_ts, is_retry, cell_ids, table_ids = found
        assert CommitRequest(start_ts, cell_ids, table_ids, is_retry) == expected
    else:
        assert found is None


@given(request_=requests, packed=st.booleans())
def test_commits_are_read_packed_or_not(
    engine: ModuleType, request_: Request, *, packed: bool
) -> None:
    """Java writes one form, its main branch the other; every other request is left alone."""
    found = engine.read_commit(encode_request(request_, packed=packed), MOST)
    if not isinstance(request_, CommitRequest):
        assert found is None
    else:
        start_ts, is_retry, cell_ids, table_ids = found
        assert CommitRequest(start_ts, cell_ids, table_ids, is_retry) == request_


@given(payload=payloads, most=st.integers(0, 3))
@example(payload=bytes.fromhex("1206" + "0832" + "1a020102"), most=0)
@example(payload=bytes.fromhex("1207" + "0832" + "1a03010280"), most=0)
@example(payload=bytes.fromhex("1206" + "0832" + "18011802"), most=0)
@example(payload=bytes.fromhex("1206" + "0832" + "20012002"), most=0)
def test_a_limit_shortens_what_is_read_and_nothing_else(
    engine: ModuleType, payload: bytes, most: int
) -> None:
    """What is refused stays refused, and a commit that is too large is one with any limit."""
    try:
        found = engine.read_commit(payload, MOST)
    except RemoteProtocolError as error:
        with pytest.raises(RemoteProtocolError, match=re.escape(str(error))):
            engine.read_commit(payload, most)
        return
    if found is not None:
        start_ts, is_retry, cell_ids, table_ids = found
        found = start_ts, is_retry, cell_ids[: most + 1], table_ids[: most + 1]
    assert engine.read_commit(payload, most) == found


@given(timestamps, timestamps, st.none() | timestamps, st.none() | timestamps)
def test_answers_are_written_as_the_definition_writes_them(
    engine: ModuleType,
    start_ts: Timestamp,
    commit_ts: Timestamp,
    low_watermark: Timestamp | None,
    newest_fence: Timestamp | None,
) -> None:
    """Byte for byte, for Java reads them."""
    committed = CommitResponse(start_ts, commit_ts)
    assert engine.commit_frame(start_ts, commit_ts) == frame(encode_response(committed))
    begun = TimestampResponse(start_ts, low_watermark, newest_fence)
    written = engine.timestamp_frame(start_ts, low_watermark, newest_fence)
    assert written == frame(encode_response(begun))
