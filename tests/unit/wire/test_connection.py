"""Every answer reaches the request it belongs to; a peer that breaks the protocol is noticed."""

from __future__ import annotations

import pytest

from omidpy.errors import LocalProtocolError, RemoteProtocolError
from omidpy.model import MAX_VERSION, CellId, TableId, Timestamp
from omidpy.wire.connection import ClientConnection, Phase
from omidpy.wire.frames import encode_response, frame
from omidpy.wire.messages import (
    ALL_FEATURES,
    CommitRequest,
    CommitResponse,
    Feature,
    FenceRequest,
    FenceResponse,
    HandshakeResponse,
    InvalidateRequest,
    InvalidateResponse,
    InvalidateVerdict,
    PeerCapabilities,
    Response,
    TimestampRequest,
    TimestampResponse,
)

OURS = HandshakeResponse(is_compatible=True, capabilities=PeerCapabilities(features=ALL_FEATURES))
JAVAS = HandshakeResponse(is_compatible=True)


def said(*responses: Response) -> bytes:
    """Return what an oracle that gives these responses sends."""
    return b"".join(frame(encode_response(response)) for response in responses)


def ready(peer: HandshakeResponse = OURS, *, after_ts: int = 0) -> ClientConnection[str]:
    """Return a connection past its handshake."""
    connection = ClientConnection[str](after_ts=after_ts)
    connection.handshake()
    assert list(connection.receive(said(peer))) == []
    assert connection.phase is Phase.READY
    return connection


def commit_of(start_ts: int) -> CommitRequest:
    """Return a commit request with one cell."""
    return CommitRequest(Timestamp(start_ts), (CellId(1),))


def start(start_ts: int) -> TimestampResponse:
    """Return the answer that hands out `start_ts`."""
    return TimestampResponse(Timestamp(start_ts))


def test_the_handshake_announces_what_we_understand() -> None:
    """A Java oracle skips the announcement; ours uses extensions only where it stands."""
    connection = ClientConnection[str]()
    assert connection.handshake() == bytes.fromhex("00000007 1a05 0a03 c83e0f")
    assert ClientConnection[str](features=Feature.NONE).handshake() == bytes.fromhex(
        "00000004 1a020a00"
    )


def test_nothing_is_asked_before_the_handshake_is_answered() -> None:
    """An oracle closes the connection over it; Omid's even runs the request first."""
    connection = ClientConnection[str]()
    with pytest.raises(LocalProtocolError, match="phase 'new'"):
        connection.expect(TimestampRequest(), "a")
    connection.handshake()
    with pytest.raises(LocalProtocolError, match="phase 'handshaking'"):
        connection.expect(TimestampRequest(), "a")
    with pytest.raises(LocalProtocolError, match="comes first and once"):
        connection.handshake()
    assert connection.in_flight == 0


def test_a_refused_handshake_allows_nothing() -> None:
    """Java's oracle keeps such a channel open, and unusable."""
    connection = ClientConnection[str]()
    connection.handshake()
    refusal = HandshakeResponse(is_compatible=False, capabilities=None)
    assert list(connection.receive(said(refusal))) == []
    assert connection.phase is Phase.REFUSED
    with pytest.raises(LocalProtocolError, match="refused"):
        connection.expect(TimestampRequest(), "a")


def test_a_second_handshake_answer_breaks_the_protocol() -> None:
    """It could swap the epoch and the store under transactions that run."""
    with pytest.raises(RemoteProtocolError, match="not due"):
        list(ready().receive(said(OURS)))


def test_start_timestamps_are_answered_in_the_order_of_asking() -> None:
    """They carry no id; the order is all there is."""
    connection = ready()
    connection.expect(TimestampRequest(), "a")
    connection.expect(TimestampRequest(), "b")
    answers = list(connection.receive(said(start(50), start(100))))
    assert answers == [("a", start(50)), ("b", start(100))]
    assert connection.in_flight == 0


@pytest.mark.parametrize("start_ts", [(MAX_VERSION - 50) // 50 * 50 + 50, MAX_VERSION // 50 * 50])
def test_a_start_timestamp_without_room_for_its_cells_breaks_the_protocol(start_ts: int) -> None:
    """Its versions would go beyond 63 bits, which a store refuses as a mistake of the caller's."""
    connection = ready()
    connection.expect(TimestampRequest(), "a")
    with pytest.raises(RemoteProtocolError, match="of 63 bits"):
        list(connection.receive(said(start(start_ts))))


def test_commits_fences_and_invalidations_are_answered_by_what_they_name() -> None:
    """An oracle may answer different kinds, and commits among themselves, in any order."""
    connection = ready()
    connection.expect(commit_of(50), "commit 50")
    connection.expect(commit_of(100), "commit 100")
    connection.expect(FenceRequest(TableId(50)), "fence 50")
    connection.expect(InvalidateRequest(Timestamp(50)), "invalidate 50")
    connection.expect(TimestampRequest(), "begin")
    assert connection.in_flight == 5
    responses: list[Response] = [
        InvalidateResponse(Timestamp(50), InvalidateVerdict.UNKNOWN),
        FenceResponse(TableId(50), Timestamp(200)),
        CommitResponse(Timestamp(100), None),
        start(250),
        CommitResponse(Timestamp(50), Timestamp(300)),
    ]
    answers = list(connection.receive(said(*responses)))
    assert [ticket for ticket, _ in answers] == [
        "invalidate 50",
        "fence 50",
        "commit 100",
        "begin",
        "commit 50",
    ]
    assert [answer for _, answer in answers] == responses


@pytest.mark.parametrize(
    "question", [commit_of(50), FenceRequest(TableId(7)), InvalidateRequest(Timestamp(50))]
)
def test_the_same_question_twice_in_flight_is_refused_here(
    question: CommitRequest | FenceRequest | InvalidateRequest,
) -> None:
    """Two equal answers cannot be told apart; Omid's client forgets the first request."""
    connection = ready()
    connection.expect(question, "first")
    with pytest.raises(LocalProtocolError, match="in flight already"):
        connection.expect(question, "second")
    assert connection.end() == ["first"]


def test_a_question_may_be_asked_again_once_it_is_answered() -> None:
    """A fence is set many times on one table."""
    connection = ready()
    for fence_ts in (50, 100):
        connection.expect(FenceRequest(TableId(7)), f"fence {fence_ts}")
        response = FenceResponse(TableId(7), Timestamp(fence_ts))
        assert list(connection.receive(said(response))) == [(f"fence {fence_ts}", response)]


@pytest.mark.parametrize("start_ts", [0, -50, 51])
def test_what_is_no_start_ts_is_never_sent(start_ts: int) -> None:
    """Our oracle closes the connection over it, which other threads share."""
    connection = ready()
    with pytest.raises(LocalProtocolError, match="is no start_ts"):
        connection.expect(commit_of(start_ts), "a")
    with pytest.raises(LocalProtocolError, match="is no start_ts"):
        connection.expect(InvalidateRequest(Timestamp(start_ts)), "a")
    assert connection.in_flight == 0


def test_a_commit_without_cells_is_never_sent() -> None:
    """A repeated one would get a second commit timestamp: nothing conflicts with itself there."""
    with pytest.raises(LocalProtocolError, match="names no cell"):
        ready().expect(CommitRequest(Timestamp(50)), "a")


def test_extensions_are_used_only_where_the_oracle_announced_them() -> None:
    """A Java oracle closes the channel over a request that it does not know."""
    java = ready(JAVAS)
    with pytest.raises(LocalProtocolError, match="did not announce INVALIDATE"):
        java.expect(InvalidateRequest(Timestamp(50)), "a")
    with pytest.raises(LocalProtocolError, match="did not announce BEGIN_EXTRAS"):
        java.expect(TimestampRequest(hold_ms=1), "a")
    assert not java.has_feature(Feature.ABORT_DETAILS)
    assert ready().has_feature(Feature.ABORT_DETAILS)


def test_a_feature_that_we_did_not_announce_is_not_used() -> None:
    """Both sides have to agree, also where the oracle says more than it was asked."""
    connection = ClientConnection[str](features=Feature.NONE)
    connection.handshake()
    list(connection.receive(said(OURS)))
    assert not connection.has_feature(Feature.INVALIDATE)


@pytest.mark.parametrize(
    "response",
    [
        start(50),
        CommitResponse(Timestamp(50), Timestamp(100)),
        CommitResponse(Timestamp(50), None),
        FenceResponse(TableId(7), Timestamp(100)),
        InvalidateResponse(Timestamp(50), InvalidateVerdict.UNKNOWN),
    ],
)
def test_an_answer_that_nobody_asked_for_breaks_the_protocol(response: Response) -> None:
    """To ignore it would let the next one be mistaken."""
    with pytest.raises(RemoteProtocolError, match="nobody asked for"):
        list(ready().receive(said(response)))


def test_a_start_timestamp_that_does_not_grow_breaks_the_protocol() -> None:
    """I1: an oracle that lost its storage would let updates be lost."""
    connection = ready()
    connection.expect(TimestampRequest(), "a")
    connection.expect(TimestampRequest(), "b")
    assert list(connection.receive(said(start(100)))) == [("a", start(100))]
    with pytest.raises(RemoteProtocolError, match="handed out start_ts 100 after 100"):
        list(connection.receive(said(start(100))))


def test_start_timestamps_grow_across_connections() -> None:
    """An oracle restarted on an empty store begins at 50 again; the old connection knows better."""
    connection = ready(after_ts=1000)
    connection.expect(TimestampRequest(), "a")
    with pytest.raises(RemoteProtocolError, match="storage was lost or replaced"):
        list(connection.receive(said(start(1000))))
    connection = ready(after_ts=1000)
    connection.expect(TimestampRequest(), "a")
    assert list(connection.receive(said(start(1050)))) == [("a", start(1050))]
    assert connection.last_start_ts == 1050


def test_a_start_timestamp_that_is_no_multiple_of_fifty_breaks_the_protocol() -> None:
    """Cell versions between two multiples belong to the lower one's transaction."""
    connection = ready()
    connection.expect(TimestampRequest(), "a")
    with pytest.raises(RemoteProtocolError, match="multiple of 50"):
        list(connection.receive(said(start(51))))


@pytest.mark.parametrize("commit_ts", [50, 100, 149])
def test_a_commit_timestamp_must_follow_its_start(commit_ts: int) -> None:
    """It could not be written into a commit entry, and no snapshot would read it right."""
    connection = ready()
    connection.expect(commit_of(100), "a")
    with pytest.raises(RemoteProtocolError, match=f"committed at {commit_ts}"):
        list(connection.receive(said(CommitResponse(Timestamp(100), Timestamp(commit_ts)))))


def test_answers_before_a_violation_still_count() -> None:
    """A commit that was granted is granted, whatever the oracle says next."""
    connection = ready()
    connection.expect(commit_of(50), "commit")
    connection.expect(TimestampRequest(), "begin")
    granted = CommitResponse(Timestamp(50), Timestamp(100))
    answers = connection.receive(said(granted, FenceResponse(TableId(1), Timestamp(50))))
    assert next(answers) == ("commit", granted)
    with pytest.raises(RemoteProtocolError):
        next(answers)
    assert connection.end() == ["begin"]


def test_garbage_breaks_the_protocol() -> None:
    """A web server, say, on the port of the oracle."""
    connection = ClientConnection[str]()
    connection.handshake()
    with pytest.raises(RemoteProtocolError, match="at most 65536 are allowed"):
        list(connection.receive(b"HTTP/1.1 400 Bad Request\r\n"))


def test_the_end_names_everyone_who_waits_and_allows_nothing_more() -> None:
    """Each of them has to hear of it, exactly once."""
    connection = ready()
    connection.expect(TimestampRequest(), "begin")
    connection.expect(commit_of(50), "commit")
    connection.expect(FenceRequest(TableId(7)), "fence")
    connection.expect(InvalidateRequest(Timestamp(50)), "invalidate")
    assert connection.end() == ["begin", "commit", "fence", "invalidate"]
    assert connection.end() == []
    with pytest.raises(LocalProtocolError, match="'ended'"):
        connection.expect(TimestampRequest(), "late")


def test_half_an_answer_is_remembered_as_half() -> None:
    """The message after a broken connection says whether the oracle died while it answered."""
    connection = ready()
    connection.expect(TimestampRequest(), "a")
    whole = said(start(50))
    assert list(connection.receive(whole[:5])) == []
    assert connection.is_inside_frame
    assert list(connection.receive(whole[5:])) == [("a", start(50))]
    assert not connection.is_inside_frame
