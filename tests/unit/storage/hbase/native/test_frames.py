"""The bytes of a connection: golden ones, the library's, and what no server sends."""

from __future__ import annotations

import struct

import pytest

from omidpy.storage.hbase.native.faults import Fault, Garbled
from omidpy.storage.hbase.native.wire import answers, frames
from omidpy.storage.hbase.native.wire.frames import MOST_PIECES, FrameSplitter
from tests.machines.fake_hbase import Reply, fault, frame_of
from tests.machines.hbase_messages import message


def test_a_connection_opens_as_hbase_expects() -> None:
    """Magic, version, SIMPLE; then the header, with the codec without which cells come slowly."""
    opening = frames.opening("ClientService", "me")
    assert opening[:6].hex() == "484261730050"
    (length,) = struct.unpack(">I", opening[6:10])
    assert len(opening) == 10 + length
    header = message("ConnectionHeader")
    header.ParseFromString(opening[10:])
    assert header.user_info.effective_user == "me"
    assert header.service_name == "ClientService"
    assert header.cell_block_codec_class == "org.apache.hadoop.hbase.codec.KeyValueCodec"


def test_a_request_is_header_parameter_and_cells() -> None:
    """Each with its length, all within the first one."""
    frame = frames.request(7, "Mutate", b"body", b"cells", priority=200, timeout_ms=1500)
    golden = "000000211608071a064d757461746520012a02080530c80138dc0b04626f647963656c6c73"
    assert frame.hex() == golden
    (length,) = struct.unpack(">I", frame[:4])
    assert length == len(frame) - 4
    header = message("RequestHeader")
    header.ParseFromString(frame[5 : 5 + frame[4]])
    assert (header.call_id, header.method_name, header.request_param) == (7, "Mutate", True)
    assert (header.cell_block_meta.length, header.priority, header.timeout) == (5, 200, 1500)
    assert frame[5 + frame[4] :] == b"\x04bodycells"


def test_the_golden_answer_to_a_put_is_read() -> None:
    """As HBase 2.6.4 sent it."""
    answer = answers.answer(bytes.fromhex("020801021001"))
    assert (answer.call_id, answer.fault, answer.body) == (1, None, b"\x10\x01")


def test_an_exception_is_a_fault_with_all_that_it_says() -> None:
    """Where a region went, and whether to try again."""
    header = message(
        "ResponseHeader",
        call_id=3,
        exception={
            "exception_class_name": "org.apache.hadoop.hbase.exceptions.RegionMovedException",
            "stack_trace": "org...: Region moved to: hostname=h port=7 startCode=9. As of "
            "locationSeqNum=4.\n\tat x",
            "hostname": "h",
            "port": 7,
            "do_not_retry": True,
        },
    ).SerializeToString()
    answer = answers.answer(bytes((len(header),)) + header if len(header) < 128 else _long(header))
    assert answer.fault is not None
    assert answer.fault.class_name == "RegionMovedException"
    assert answer.fault.moved_to == ("h", 7, 9)


def _long(header: bytes) -> bytes:
    return bytes((len(header) & 0x7F | 0x80, len(header) >> 7)) + header


@pytest.mark.parametrize(
    "reply",
    [Reply(body=b"\x10\x01"), Reply(body=b"b" * 200, cells=b"c" * 300), fault("SomeException")],
)
def test_an_answer_cut_short_at_any_byte_is_refused(reply: Reply) -> None:
    """Its frame said another length, so that what is missing is never filled with the next one."""
    whole = frame_of(1, reply)[4:]
    answers.answer(whole)
    for length in range(len(whole)):
        with pytest.raises(Garbled):
            answers.answer(whole[:length])
    with pytest.raises(Garbled, match="bytes of cells"):
        answers.answer(whole + b"x")


@pytest.mark.parametrize("data", ["ff", "ffffffffff01", "0a08", "80", "020805ffffffff7f", ""])
def test_lengths_that_are_none_are_refused(data: str) -> None:
    """Without reading, or keeping, what they claim."""
    with pytest.raises(Garbled):
        answers.answer(bytes.fromhex(data))


def test_the_servers_own_answer_has_no_call() -> None:
    """HBase sends -1 as a number of 32 bits."""
    assert answers.answer(bytes.fromhex("0608ffffffff0f00")).call_id == answers.SERVERS_OWN


def test_frames_come_out_whole_however_they_come_in() -> None:
    """Byte by byte, and many at once."""
    sent = [frame_of(number, Reply(body=b"x" * number)) for number in range(1, 6)]
    stream = b"".join(sent)
    for size in (1, 2, 3, 5, 7, len(stream)):
        splitter, found = FrameSplitter(), []
        for at in range(0, len(stream), size):
            splitter.incoming.append(stream[at : at + size])
            found += list(splitter.frames())
        assert found == [one[4:] for one in sent]
        assert splitter.missing == 4


def test_a_frame_that_was_not_let_go_of_comes_again() -> None:
    """A thread may be taken out between looking and letting go."""
    splitter = FrameSplitter()
    splitter.incoming.append(frame_of(1, Reply(body=b"a")) + frame_of(2, Reply(body=b"b")))
    assert splitter.first() == splitter.first()
    splitter.drop_first()
    second = splitter.first()
    assert second is not None
    assert answers.answer(second).call_id == 2


def test_a_frame_longer_than_any_is_refused_at_its_length() -> None:
    """A web page in the place of HBase says `HTTP`, which would be 1.2 GB."""
    splitter = FrameSplitter(1000)
    splitter.incoming.append(b"HTT")
    assert splitter.first() is None
    splitter.incoming.append(b"P/1.1 400 Bad Request")
    with pytest.raises(Garbled, match=r"b'HTTP/1.1 400 Bad'.*1213486160 bytes, more than 1000"):
        splitter.first()


def test_pieces_of_a_frame_are_put_together_before_they_are_too_many() -> None:
    """A server that sends byte by byte would make each of them cost forty."""
    sent = frame_of(1, Reply(body=bytes(range(256)) * 20))
    splitter = FrameSplitter()
    for at in range(len(sent)):
        splitter.incoming.append(sent[at : at + 1])
        assert list(splitter.frames()) == ([sent[4:]] if at == len(sent) - 1 else [])
        assert len(splitter.incoming) <= MOST_PIECES + 1
    splitter.incoming.extend(sent[at : at + 1] for at in range(MOST_PIECES + 500))
    splitter.incoming.append(b"")
    assert splitter.missing > 0
    assert splitter.has_ended


def test_the_end_is_noticed_behind_the_last_frame() -> None:
    """What came before it is answered all the same."""
    splitter = FrameSplitter()
    splitter.incoming.append(frame_of(1, Reply())[:3])
    splitter.incoming.append(frame_of(1, Reply())[3:])
    splitter.incoming.append(b"")
    assert splitter.has_ended
    assert len(list(splitter.frames())) == 1
    assert splitter.has_ended


def test_a_fault_says_what_to_do() -> None:
    """By the last part of its class."""
    assert Fault("a.b.NotServingRegionException", "x").is_elsewhere
