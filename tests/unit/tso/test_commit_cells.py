"""Commits that bring their cells over the wire: how they are written, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omidpy.base.cells import shadow_qualifier
from omidpy.errors import RemoteProtocolError
from omidpy.model import CellId, CellRecord, TableCells, TableId, Timestamp
from omidpy.wire.frames import (
    brings_cells,
    decode_request,
    decode_response,
    encode_request,
    frame,
    frame_request,
)
from omidpy.wire.messages import (
    ALL_FEATURES,
    CommitRequest,
    Feature,
    HandshakeRequest,
    HandshakeResponse,
    PeerCapabilities,
    Role,
)
from omidpy.wire.protobuf import BYTES, VARINT, key, put_bytes, put_int64
from tso.core.engine import read_commit
from tso.serving.conversation import MAX_CELLS_BYTES, Conversation

KEY = bytes(range(16))
CELL: CellRecord = (b"r", b"cf", b"q", 1000, b"v")
CELLS: TableCells = {"t": [CELL, (b"s", b"cf", b"", 1049, b"")], "u": [CELL]}


def commit(cells: Any = None, *, writer_key: bytes = KEY) -> CommitRequest:
    """Return a commit of transaction 1000."""
    return CommitRequest(
        Timestamp(1000),
        (CellId(-(2**63)), CellId(2**63 - 1)),
        (TableId(7),),
        cells=CELLS if cells is None else cells,
        writer_key=writer_key,
    )


def opened(*, known: bytes | None = KEY, features: Feature = ALL_FEATURES) -> Conversation:
    """Return a conversation after the handshake."""
    conversation = Conversation(PeerCapabilities(), max_commit_cells=100, writer_key=known)
    conversation.receive(frame_request(HandshakeRequest(PeerCapabilities(int(features)))))
    return conversation


def told(known: bytes | None, features: Feature = ALL_FEATURES) -> Feature:
    """Return what a server announces."""
    conversation = Conversation(PeerCapabilities(), max_commit_cells=100, writer_key=known)
    hello = frame_request(HandshakeRequest(PeerCapabilities(int(features))))
    answer = decode_response(conversation.receive(hello)[0][4:])
    assert isinstance(answer, HandshakeResponse)
    return Feature(0 if answer.capabilities is None else answer.capabilities.features)


def test_it_is_what_it_was() -> None:
    """But that its length is known."""
    payload = encode_request(commit())
    found = decode_request(payload)
    assert isinstance(found, CommitRequest)
    assert 0 < found.size_bytes < len(payload)
    assert msgspec.structs.replace(found, size_bytes=0) == commit()
    assert brings_cells(payload)
    assert not brings_cells(encode_request(CommitRequest(Timestamp(1000), (CellId(1),))))


def test_an_older_oracle_does_not_take_it_for_a_commit_without_cells() -> None:
    """It is a message of another kind, so that none decides what it cannot write."""
    assert read_commit(encode_request(commit()), 100) is None


def test_the_server_says_whether_it_writes_cells() -> None:
    """To those who announce anything; Java hears nothing."""
    assert told(KEY) == ALL_FEATURES | Feature.COMMIT_CELLS
    assert told(None) == ALL_FEATURES
    assert told(KEY, Feature.NONE) == Feature.NONE


def test_whoever_knows_the_key_may_bring_cells() -> None:
    """It lies in the store."""
    _, (found,) = opened().receive(frame_request(commit()))
    assert isinstance(found, CommitRequest)
    assert found.cells == CELLS
    assert found.cell_ids == commit().cell_ids


@pytest.mark.parametrize(
    ("request_", "known", "complaint"),
    [
        (commit(), None, "does not write"),
        (commit(writer_key=b""), KEY, "cannot read the store"),
        (commit(writer_key=KEY[:-1]), KEY, "cannot read the store"),
        (commit({}), KEY, "no cells"),
        (commit({"t": []}), KEY, "cells of 't'"),
        (commit({"OMID_COMMIT_TABLE": [CELL]}), KEY, "cells of 'OMID_COMMIT_TABLE'"),
        (commit({"OMID_TIMESTAMP_TABLE": [CELL]}), KEY, "cells of 'OMID_TIMESTAMP"),
        (commit({"OMIDPY_COMPACTION": [CELL]}), KEY, "cells of 'OMIDPY_COMPACTION'"),
        (commit({"t": [CELL, (b"", *CELL[1:])]}), KEY, "the row b''"),
        (commit({"t": [(bytes(32768), *CELL[1:])]}), KEY, "the row"),
        (commit({"t": [(b"r", b"", *CELL[2:])]}), KEY, "the family b''"),
        (commit({"t": [(b"r", bytes(128), *CELL[2:])]}), KEY, "the family"),
        (commit({"t": [(*CELL[:3], 999, b"v")]}), KEY, "999, which is none of its versions"),
        (commit({"t": [(*CELL[:3], 1050, b"v")]}), KEY, "1050, which is none"),
        (commit({"t": [(b"r", b"cf", shadow_qualifier(b"q"), 1000, b"v")]}), KEY, "shadow cell"),
        (commit({"t": [(*CELL[:4], bytes(MAX_CELLS_BYTES))]}), KEY, "at most"),
    ],
)
def test_what_no_client_of_ours_sends_ends_the_connection(
    request_: CommitRequest, known: bytes | None, complaint: str
) -> None:
    """Nothing of it reaches the machine."""
    with pytest.raises(RemoteProtocolError, match=complaint):
        opened(known=known).receive(frame_request(request_))


def test_a_certificate_that_allows_no_transactions_allows_no_cells() -> None:
    """They are a commit like any other."""
    conversation = Conversation(PeerCapabilities(), max_commit_cells=100, writer_key=KEY)
    conversation.identify("ops", Role.FENCES)
    conversation.receive(frame_request(HandshakeRequest(PeerCapabilities(int(ALL_FEATURES)))))
    with pytest.raises(RemoteProtocolError, match="whose roles are"):
        conversation.receive(frame_request(commit()))


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode((KEY, (1,), (1,))),
        msgspec.msgpack.encode((KEY, (1,), (1,), {"t": [[b"r", b"cf", b"q", -1, b"v"]]})),
        msgspec.msgpack.encode((KEY, (1,), (1,), {"t": [[b"r", b"cf", b"q", 2**63 - 1, b"v"]]})),
        msgspec.msgpack.encode((KEY, (1,), (1,), {"t": [[b"r", b"cf", b"q", 1, None]]})),
        msgspec.msgpack.encode((KEY, (1,), (1,), {"t": [["r", b"cf", b"q", 1, b"v"]]})),
        msgspec.msgpack.encode((KEY, (2**63,), (1,), {"t": [CELL]})),
        msgspec.msgpack.encode((KEY, (1,), (1,), {"t": [CELL]})) + b"\x00",
        b"\x94" * 60_000,
    ],
)
def test_bytes_that_are_no_cells_are_refused(rest: bytes) -> None:
    """Whatever they are, and however deep."""
    body, payload = bytearray(), bytearray()
    put_int64(body, key(1, VARINT), 1000)
    put_bytes(body, key(2, BYTES), rest)
    put_bytes(payload, key(1002, BYTES), body)
    with pytest.raises(RemoteProtocolError):
        opened().receive(frame(bytes(payload)))


@given(data=st.data())
def test_a_commit_with_wrong_bytes_is_understood_or_refused(data: st.DataObject) -> None:
    """Never another exception: it would end the whole oracle."""
    payload = bytearray(encode_request(commit()))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(payload)))
    try:
        _, questions = opened().receive(frame(bytes(payload[:end])))
    except RemoteProtocolError:
        return
    for one in questions:
        if isinstance(one, CommitRequest) and one.cells is not None:
            assert one.writer_key == KEY
            assert all(one.start_ts <= cell[3] for cells in one.cells.values() for cell in cells)
