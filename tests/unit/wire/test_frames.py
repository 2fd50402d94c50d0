"""The oracle's messages are byte for byte those of Apache Omid, and hostile bytes are refused."""

from __future__ import annotations

import pytest

from omidpy.errors import LocalProtocolError, RemoteProtocolError, UsageError
from omidpy.model import CellId, TableId, Timestamp
from omidpy.wire import frames
from omidpy.wire.frames import (
    MAX_REQUEST_FRAME_BYTES,
    FrameReader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    frame,
    frame_request,
)
from omidpy.wire.messages import (
    ALL_FEATURES,
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

COMMIT = CommitRequest(
    Timestamp(1000),
    (CellId(-6913231044530751237), CellId(1)),
    (TableId(-6017608668500074083),),
)
RETRY = CommitRequest(COMMIT.start_ts, COMMIT.cell_ids, COMMIT.table_ids, is_retry=True)

JAVA_REQUESTS: list[tuple[Request, str]] = [
    (HandshakeRequest(), "1a020a00"),
    (TimestampRequest(), "0a00"),
    (COMMIT, "121b 08e807 18fbf1aae4e29fd187a001 1801 209dc3f7a5c799cabeac01"),
    (RETRY, "121d 08e807 1001 18fbf1aae4e29fd187a001 1801 209dc3f7a5c799cabeac01"),
    (FenceRequest(TableId(-6017608668500074083)), "220b 089dc3f7a5c799cabeac01"),
]

JAVA_RESPONSES: list[tuple[Response, str]] = [
    (HandshakeResponse(is_compatible=True), "1a06080112001800"),
    (TimestampResponse(Timestamp(1050)), "0a03089a08"),
    (CommitResponse(Timestamp(1000), Timestamp(1050)), "1208 0800 10e807 189a08"),
    (CommitResponse(Timestamp(1000), None), "1205 0801 10e807"),
    (FenceResponse(TableId(7), Timestamp(2000)), "2205 0807 10d00f"),
]

OUR_REQUESTS: list[tuple[Request, str]] = [
    (HandshakeRequest(PeerCapabilities(features=ALL_FEATURES)), "1a05 0a03 c83e0f"),
    (HandshakeRequest(None), "1a00"),
    (TimestampRequest(hold_ms=1000), "0a04 c83ee807"),
    (TimestampRequest(1000, 5, 2), "0a0a c83ee807 d03e05 d83e02"),
    (InvalidateRequest(Timestamp(1000)), "ca3e03 08e807"),
]

OUR_RESPONSES: list[tuple[Response, str]] = [
    (
        HandshakeResponse(
            is_compatible=True,
            capabilities=PeerCapabilities(7, b"id", Timestamp(50), 900_000),
        ),
        "1a16 0801 1210 c83e07 d23e026964 d83e32 e03ea0f736 1800",
    ),
    (HandshakeResponse(is_compatible=False, capabilities=None), "1a04 0800 1800"),
    (TimestampResponse(Timestamp(1050), Timestamp(50)), "0a06 089a08 c83e32"),
    (
        TimestampResponse(Timestamp(1050), Timestamp(50), Timestamp(100)),
        "0a09 089a08 c83e32 d03e64",
    ),
    (
        CommitResponse(Timestamp(1000), None, (CellId(1), CellId(-1)), 1),
        "1216 0801 10e807 ca3e0b 01 ffffffffffffffffff01 d03e01",
    ),
    (
        InvalidateResponse(Timestamp(1000), InvalidateVerdict.INVALIDATED),
        "ca3e05 08e807 1001",
    ),
    (
        InvalidateResponse(Timestamp(1000), InvalidateVerdict.COMMITTED, Timestamp(1050)),
        "ca3e08 08e807 1003 189a08",
    ),
]


@pytest.mark.parametrize(("request_", "hexed"), JAVA_REQUESTS + OUR_REQUESTS)
def test_requests_have_their_exact_bytes(request_: Request, hexed: str) -> None:
    """A Java oracle must read our requests; what it would not read is pinned all the same."""
    assert encode_request(request_) == bytes.fromhex(hexed)
    assert decode_request(bytes.fromhex(hexed)) == request_


@pytest.mark.parametrize(("response", "hexed"), JAVA_RESPONSES + OUR_RESPONSES)
def test_responses_have_their_exact_bytes(response: Response, hexed: str) -> None:
    """A Java client must read our responses, and we its oracle's."""
    assert encode_response(response) == bytes.fromhex(hexed)
    assert decode_response(bytes.fromhex(hexed)) == response


def test_a_commit_request_is_read_packed_and_unpacked() -> None:
    """Omid up to 1.1.3 writes unpacked integers, its main branch packed ones."""
    packed = encode_request(COMMIT, packed=True)
    assert packed == bytes.fromhex(
        "121c 08e807 1a0b fbf1aae4e29fd187a001 01 220a 9dc3f7a5c799cabeac01"
    )
    assert decode_request(packed) == COMMIT
    both = "121c 08e807 1a01 01 18 fbf1aae4e29fd187a001 209dc3f7a5c799cabeac01"
    decoded = decode_request(bytes.fromhex(both))
    assert isinstance(decoded, CommitRequest)
    assert decoded.cell_ids == (1, -6913231044530751237)


def test_conflicts_are_read_unpacked_too() -> None:
    """A protobuf reader takes either form of a repeated integer, whatever the writer's schema."""
    decoded = decode_response(bytes.fromhex("120b 0801 10e807 c83e05 c83e06"))
    assert decoded == CommitResponse(Timestamp(1000), None, (CellId(5), CellId(6)))


def test_unknown_fields_are_skipped() -> None:
    """An extension that we do not know must not stop the conversation, whatever its wire type."""
    unknown = "f83e05 fa3e026869 f93e0102030405060708 fd3e01020304"
    assert decode_response(bytes.fromhex(f"0a1b 089a08 {unknown}")) == TimestampResponse(
        Timestamp(1050)
    )
    assert decode_response(bytes.fromhex(f"{unknown} 0a03 089a08")) == TimestampResponse(
        Timestamp(1050)
    )


def test_a_known_field_of_another_wire_type_is_unknown() -> None:
    """Protobuf parsers skip it; then what it should have said is missing."""
    with pytest.raises(RemoteProtocolError, match="lacks a start_ts"):
        decode_response(bytes.fromhex("0a04 0a02089a"))


def test_the_last_of_a_repeated_scalar_wins() -> None:
    """Protobuf says so, and a merged message may arrive in two parts."""
    assert decode_response(bytes.fromhex("0a04 0832 0864")) == TimestampResponse(Timestamp(100))
    assert decode_response(bytes.fromhex("0a02 0832 0a02 0864")) == TimestampResponse(
        Timestamp(100)
    )
    assert decode_response(bytes.fromhex("1202 0801 1203 10e807")) == CommitResponse(
        Timestamp(1000), None
    )


def test_a_negative_number_takes_ten_bytes() -> None:
    """Half of all cell ids are negative; protobuf's int64 is not zigzag."""
    assert encode_request(FenceRequest(TableId(-1))) == bytes.fromhex(
        "220b 08 ffffffffffffffffff01"
    )
    assert decode_request(bytes.fromhex("220b 08 80808080808080808001")) == FenceRequest(
        TableId(-(2**63))
    )


@pytest.mark.parametrize(
    ("hexed", "why"),
    [
        ("", "holds 0 messages"),
        ("0a00 1a00", "holds 2 messages"),
        ("2a00", "holds 0 messages"),
        ("0a", "ends inside a number"),
        ("0a05", "claims 5 bytes where 0 are left"),
        ("0affffffffffffffffff01", "claims 18446744073709551615 bytes"),
        ("0a0b 08 ffffffffffffffffff02", "more than 64 bits"),
        ("0a0c 08 8080808080808080808001", "more than 64 bits"),
        ("0a02 0880", "ends inside a number"),
        ("0a03 09 0102", "ends inside field 1"),
        ("0a01 00", "no protobuf field key"),
        ("0a01 0b", "wire type 3"),
        ("0a01 0f", "wire type 7"),
        ("0a06 88808080 1000", "no protobuf field key"),
        ("1202 1801", "lacks a start_ts"),
        ("2200", "lacks a table id"),
        ("ca3e00", "lacks a start_ts"),
        ("1203 1a01 80", "lacks a start_ts"),
        ("1206 08e807 1a01 80", "ends inside a number"),
    ],
)
def test_malformed_requests_are_refused(hexed: str, why: str) -> None:
    """Whoever can reach the port can send anything; the reason is for the server's log."""
    with pytest.raises(RemoteProtocolError, match=why):
        decode_request(bytes.fromhex(hexed))


@pytest.mark.parametrize(
    ("hexed", "why"),
    [
        ("0a00", "lacks a start_ts"),
        ("1203 10e807", "lacks a commit_ts"),
        ("1202 0801", "lacks a start_ts"),
        ("2202 0807", "lacks a fence timestamp"),
        ("2203 10d00f", "lacks a table id"),
        ("ca3e03 08e807", "0 is no verdict"),
        ("ca3e05 08e807 1004", "4 is no verdict"),
        ("ca3e05 08e807 1003", "lacks a commit_ts"),
        ("ca3e02 1001", "lacks a start_ts"),
        ("1249 0801 10e807 ca3e41" + "00" * 65, "names 65 cells"),
    ],
)
def test_incomplete_responses_are_refused(hexed: str, why: str) -> None:
    """Java would read a missing timestamp as 0, and carry on with it."""
    with pytest.raises(RemoteProtocolError, match=why):
        decode_response(bytes.fromhex(hexed))


def test_numbers_that_do_not_fit_are_never_sent() -> None:
    """To cut off high bits would ask about another cell."""
    with pytest.raises(LocalProtocolError, match="9223372036854775808 does not fit"):
        encode_request(FenceRequest(TableId(2**63)))
    for cell_id in (2**63, -(2**63) - 1):
        for packed in (False, True):
            with pytest.raises(LocalProtocolError, match="does not fit"):
                encode_request(CommitRequest(Timestamp(50), (CellId(cell_id),)), packed=packed)
    with pytest.raises(LocalProtocolError, match="does not fit"):
        encode_request(HandshakeRequest(PeerCapabilities(features=-1)))
    with pytest.raises(LocalProtocolError, match="at most 64"):
        encode_response(CommitResponse(Timestamp(50), None, (CellId(1),) * 65))


def test_a_write_set_too_large_for_a_frame_is_refused_before_it_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oracle would close the connection, and everyone's commits on it would be in doubt."""
    monkeypatch.setattr(frames, "MAX_REQUEST_FRAME_BYTES", 4 + 29)
    assert len(frame_request(COMMIT)) == 4 + 29
    monkeypatch.setattr(frames, "MAX_REQUEST_FRAME_BYTES", 4 + 28)
    with pytest.raises(UsageError, match=r"write set of 2 cells .* smaller transactions"):
        frame_request(COMMIT)


def test_the_limit_of_a_request_is_java_s() -> None:
    """Ten mebibytes, the four bytes of length included: what Java's frame decoder is built with."""
    assert MAX_REQUEST_FRAME_BYTES == 10_485_760


def test_frames_are_found_wherever_the_stream_is_cut() -> None:
    """TCP keeps the order of bytes and nothing else."""
    payloads = [b"", b"a", b"bc" * 200]
    stream = b"".join(map(frame, payloads))
    for size in (1, 2, 3, 5, len(stream)):
        reader = FrameReader(max_frame_bytes=1024)
        found = [
            payload
            for start in range(0, len(stream), size)
            for payload in reader.feed(stream[start : start + size])
        ]
        assert found == payloads
        assert not reader.is_inside_frame


def test_a_frame_at_the_limit_passes_and_one_byte_more_does_not() -> None:
    """The limit counts the four bytes of length, as Java's does."""
    assert FrameReader(max_frame_bytes=14).feed(frame(b"x" * 10)) == [b"x" * 10]
    with pytest.raises(RemoteProtocolError, match="15 bytes is announced, where at most 14"):
        FrameReader(max_frame_bytes=14).feed((11).to_bytes(4, "big"))


def test_a_stream_that_ends_inside_a_frame_is_told_from_one_that_does_not() -> None:
    """An oracle that dies while it answers is another story than one that closes in good order."""
    reader = FrameReader(max_frame_bytes=64)
    assert not reader.is_inside_frame
    assert reader.feed(frame(b"abc")[:-1]) == []
    assert reader.is_inside_frame
    assert reader.feed(b"c") == [b"abc"]
    assert not reader.is_inside_frame


def test_a_whole_frame_is_given_away_and_the_rest_stays() -> None:
    """A heavy request is read where it lies: to copy ten megabytes keeps everybody waiting."""
    reader = FrameReader(max_frame_bytes=64)
    reader.buffer.extend(frame(b"abc") + frame(b"d"))
    before = reader.buffer
    taken = reader.take()
    assert taken is before
    assert taken == frame(b"abc")
    assert reader.buffer == frame(b"d")
    assert reader.feed(b"") == [b"d"]


def test_a_frame_above_the_limit_is_not_given_away() -> None:
    """Nobody asked for its length while it arrived."""
    reader = FrameReader(max_frame_bytes=14)
    reader.buffer.extend(frame(b"x" * 11))
    with pytest.raises(RemoteProtocolError, match="15 bytes is announced, where at most 14"):
        reader.take()
