"""The server's end of a conversation: the handshake, and who is shown which extension."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omidpy.errors import RemoteProtocolError
from omidpy.model import CellId, TableId, Timestamp
from omidpy.wire.frames import decode_request, decode_response, encode_request, frame, frame_request
from omidpy.wire.messages import (
    ALL_FEATURES,
    ALL_ROLES,
    CommitRequest,
    CommitResponse,
    Feature,
    FenceRequest,
    HandshakeRequest,
    HandshakeResponse,
    InvalidateRequest,
    PeerCapabilities,
    Role,
    TimestampRequest,
    TimestampResponse,
)
from tso.core.events import Question
from tso.serving.conversation import MAX_SHORT_REQUEST_BYTES, Conversation

OURS = PeerCapabilities(store_id=b"id", epoch=Timestamp(50), max_transaction_age_ms=900_000)


MAX_COMMIT_CELLS = 2000


def fresh() -> Conversation:
    """Return a conversation before the handshake."""
    return Conversation(OURS, max_commit_cells=MAX_COMMIT_CELLS)


def opened(features: Feature) -> Conversation:
    """Return a conversation after the handshake."""
    conversation = fresh()
    conversation.receive(frame_request(HandshakeRequest(PeerCapabilities(int(features)))))
    return conversation


def test_java_is_told_nothing_new() -> None:
    """Byte for byte what its own oracle answers."""
    reply, questions = fresh().receive(frame_request(HandshakeRequest()))
    assert reply.hex() == "00000008" + "1a06080112001800"
    assert questions == []


def test_whoever_announces_a_feature_is_told_everything() -> None:
    """Features, store, epoch and age; bits that we do not know are ignored."""
    request = HandshakeRequest(PeerCapabilities(int(Feature.BEGIN_EXTRAS) | 2**40))
    reply, _ = fresh().receive(frame_request(request))
    answer = decode_response(reply[4:])
    expected = PeerCapabilities(int(ALL_FEATURES), b"id", Timestamp(50), 900_000)
    assert answer == HandshakeResponse(is_compatible=True, capabilities=expected)


@pytest.mark.parametrize(
    ("features", "roles", "asks"),
    [
        (Feature.NONE, None, False),
        (Feature.BEGIN_EXTRAS | Feature.ABORT_DETAILS, None, False),
        (Feature.INVALIDATE, None, True),
        (ALL_FEATURES, ALL_ROLES, True),
        (ALL_FEATURES, ALL_ROLES & ~Role.INVALIDATION, False),
    ],
)
def test_who_can_ask_for_invalidations_plants_none(
    features: Feature, roles: Role | None, *, asks: bool
) -> None:
    """All others go by the commit table, and change it: Omid's clients, and whoever may not ask."""
    conversation = fresh()
    if roles is not None:
        conversation.identify("etl", roles)
    conversation.receive(frame_request(HandshakeRequest(PeerCapabilities(int(features)))))
    assert conversation.asks_to_invalidate is asks


def test_extensions_go_to_those_who_announced_them() -> None:
    """Java skips unknown fields, but its frames are limited to 8 KiB."""
    begun = TimestampResponse(Timestamp(100), Timestamp(50))
    refused = CommitResponse(Timestamp(100), None, (CellId(7),), 1)
    plain, ours = opened(Feature.NONE), opened(ALL_FEATURES)
    assert plain.encode(begun).hex() == "00000004" + "0a020864"
    assert plain.encode(refused).hex() == "00000006" + "12040801" + "1064"
    assert decode_response(ours.encode(begun)[4:]) == begun
    assert decode_response(ours.encode(refused)[4:]) == refused


def test_an_extension_that_was_not_announced_is_not_executed() -> None:
    """An invalidation closes the connection; a hold is a field that we were not to read."""
    conversation = opened(Feature.NONE)
    assert conversation.receive(frame_request(TimestampRequest(5))) == (b"", [TimestampRequest()])
    with pytest.raises(RemoteProtocolError, match="did not announce"):
        conversation.receive(frame_request(InvalidateRequest(Timestamp(50))))
    holding = opened(Feature.BEGIN_EXTRAS)
    assert holding.receive(frame_request(TimestampRequest(5))) == (b"", [TimestampRequest(5)])
    with pytest.raises(RemoteProtocolError, match="hold of 0 ms"):
        holding.receive(frame_request(TimestampRequest(0)))


def test_nothing_is_executed_before_the_handshake_or_after_a_refusal() -> None:
    """Java executes the request and closes the channel afterwards."""
    with pytest.raises(RemoteProtocolError, match="no handshake"):
        fresh().receive(frame_request(TimestampRequest()))
    refused = fresh()
    reply, _ = refused.receive(frame_request(HandshakeRequest(None)))
    assert decode_response(reply[4:]) == HandshakeResponse(is_compatible=False, capabilities=None)
    with pytest.raises(RemoteProtocolError, match="refused"):
        refused.receive(frame_request(TimestampRequest()))
    assert not refused.is_open


def test_only_a_commit_may_be_long() -> None:
    """Only commits are read by compiled code: ten megabytes of anything else would take seconds."""
    conversation = opened(ALL_FEATURES)
    unknown_fields = b"\x28\x00" * (MAX_SHORT_REQUEST_BYTES // 2 - 2)
    longest = b"\x0a" + b"\xfc\x01" + unknown_fields
    assert len(longest) < MAX_SHORT_REQUEST_BYTES
    assert conversation.receive(frame(longest)) == (b"", [TimestampRequest()])
    with pytest.raises(RemoteProtocolError, match="259 bytes that is no commit"):
        conversation.receive(frame(longest + b"\x28\x00" * 2))
    cells = tuple(CellId(-cell) for cell in range(1, 2000))
    commit = CommitRequest(Timestamp(50), cells, (TableId(-7),), is_retry=True)
    assert conversation.receive(frame_request(commit)) == (b"", [commit])


def test_each_occurrence_of_a_message_is_whole_by_itself() -> None:
    """Two of which one ends inside a number are no message, although they are one when joined."""
    halves = bytes.fromhex("1203 0832 18" + "1201 07")
    with pytest.raises(RemoteProtocolError, match="ends inside"):
        opened(ALL_FEATURES).receive(frame(halves))
    with pytest.raises(RemoteProtocolError, match="ends inside"):
        decode_request(halves)
    whole = bytes.fromhex("1202 0832" + "1202 1807")
    commit = CommitRequest(Timestamp(50), (CellId(7),))
    assert opened(ALL_FEATURES).receive(frame(whole)) == (b"", [commit])
    assert decode_request(whole) == commit


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("excess", [0, 1, 900])
def test_of_a_commit_that_is_too_large_little_is_kept(*, packed: bool, excess: int) -> None:
    """Ten megabytes can be ten million numbers, each an object, until the commit is refused."""
    count = MAX_COMMIT_CELLS + excess
    cells = tuple(CellId(number) for number in range(count))
    tables = tuple(TableId(number) for number in range(count))
    kept = min(count, MAX_COMMIT_CELLS + 1)
    request = CommitRequest(Timestamp(50), cells, tables)
    _, (found,) = opened(ALL_FEATURES).receive(frame(encode_request(request, packed=packed)))
    assert found == CommitRequest(Timestamp(50), cells[:kept], tables[:kept])


@given(data=st.binary(max_size=200), is_open=st.booleans())
def test_any_bytes_are_understood_or_refused(data: bytes, *, is_open: bool) -> None:
    """Never another exception: it would end the whole oracle."""
    conversation = opened(ALL_FEATURES) if is_open else fresh()
    try:
        conversation.receive(data)
    except RemoteProtocolError:
        return


# -- certificates ----------------------------------------------------------------------------------


def named(name: str, roles: Role, client: int | None = 7) -> tuple[Conversation, PeerCapabilities]:
    """Return the conversation of whoever showed a certificate of `name`, and what it was told."""
    conversation = fresh()
    conversation.identify(name, roles)
    hello = HandshakeRequest(PeerCapabilities(int(ALL_FEATURES), client=client))
    answer = decode_response(conversation.receive(frame_request(hello))[0][4:])
    assert isinstance(answer, HandshakeResponse)
    assert answer.capabilities is not None
    return conversation, answer.capabilities


def test_whoever_shows_a_certificate_is_told_its_roles() -> None:
    """So that a client refuses by itself, with words, what we could only hang up on."""
    assert named("etl", Role.TRANSACTIONS)[1].roles == 1
    assert named("root", ALL_ROLES)[1].roles == 7
    assert named("nobody", Role.NONE)[1].roles == 0
    assert named("etl", Role.TRANSACTIONS)[1].features == ALL_FEATURES & ~Feature.INVALIDATE
    assert named("root", ALL_ROLES)[1].features == ALL_FEATURES


@pytest.mark.parametrize(
    ("role", "request_"),
    [
        (Role.TRANSACTIONS, TimestampRequest()),
        (Role.TRANSACTIONS, CommitRequest(Timestamp(50), (CellId(1),))),
        (Role.FENCES, FenceRequest(TableId(1))),
        (Role.INVALIDATION, InvalidateRequest(Timestamp(50))),
    ],
)
def test_each_request_needs_its_role(role: Role, request_: Question) -> None:
    """With every other role it is not executed."""
    conversation, _ = named("etl", role)
    assert conversation.receive(frame_request(request_)) == (b"", [request_])
    conversation, _ = named("etl", ALL_ROLES & ~role)
    with pytest.raises(RemoteProtocolError, match="from 'etl', whose roles are"):
        conversation.receive(frame_request(request_))


def test_a_name_is_nobody_else_whatever_it_says() -> None:
    """And the same again when it comes back; connections of one name are told apart as before."""
    owner = named("etl", ALL_ROLES)[0].client
    assert named("etl", ALL_ROLES)[0].client == owner
    others = {
        named("root", ALL_ROLES)[0].client,
        named("etl", ALL_ROLES, client=8)[0].client,
        named("etl", ALL_ROLES, client=None)[0].client,
        opened(ALL_FEATURES).client,
    }
    assert len(others | {owner, 7}) == 6
    assert all(0 < one < 2**63 for one in others - {0})
