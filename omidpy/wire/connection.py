"""Who gets which answer, and what may be asked now, on one connection to the oracle.

The client's end of a conversation, without sockets, threads or clocks: bytes in, answers out.  It
lacks time limits: its driver ends the connection when an answer is overdue, because a late answer
would be taken for the next one's.

Responses carry no request id.  Start timestamps are answered in the order of asking; the others
name what they are about: commits and invalidations a start_ts, fences a table.

Invariants:

* Nothing but the handshake is sent before the handshake is answered.
* An answer reaches the one request it belongs to, or none: one that no request waits for ends the
  connection, as does everything else that an oracle never says.
* Start timestamps of one connection grow, and are greater than `after_ts`, the last one of the
  connection before: an oracle that has lost its timestamps is found out here (I1).

Source: Omid's TSOClient, whose map forgets a request when its key is asked about twice, and whose
queue of timestamps shifts by one after a time-out.  Here the first is refused and the second cannot
happen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Final, Generic, TypeAlias, TypeVar, assert_never

from omidpy.errors import LocalProtocolError, RemoteProtocolError
from omidpy.model import MAX_VERSION, TIMESTAMP_STEP, Timestamp
from omidpy.wire.frames import MAX_RESPONSE_FRAME_BYTES, FrameReader, decode_response, frame_request
from omidpy.wire.messages import (
    ALL_FEATURES,
    CommitRequest,
    CommitResponse,
    Feature,
    FenceRequest,
    FenceResponse,
    HandshakeRequest,
    HandshakeResponse,
    InvalidateRequest,
    InvalidateResponse,
    PeerCapabilities,
    Response,
    TimestampRequest,
    TimestampResponse,
)

MAX_START_TS: Final = MAX_VERSION - TIMESTAMP_STEP
"""Above it a transaction could not write a cell at each of its checkpoints."""

Ticket = TypeVar("Ticket")
"""What the driver hands in with a request and gets back with its answer."""

Question: TypeAlias = TimestampRequest | CommitRequest | FenceRequest | InvalidateRequest
"""A request that a user of an open connection may send."""

Answer: TypeAlias = TimestampResponse | CommitResponse | FenceResponse | InvalidateResponse
"""What a `Question` is answered with."""


class Phase(Enum):
    """How far a connection has come."""

    NEW = "new"
    HANDSHAKING = "handshaking"
    READY = "ready"
    REFUSED = "refused"
    ENDED = "ended"


class ClientConnection(Generic[Ticket]):
    """The conversation on one connection, from the handshake to its end.

    Not safe to share among threads: the driver takes a lock.  What is in flight is bounded by the
    driver, which holds a thread or a task per request.
    """

    def __init__(
        self,
        *,
        features: Feature = ALL_FEATURES,
        after_ts: int = 0,
        client: int | None = None,
    ) -> None:
        """Expect start timestamps above `after_ts`, and announce `features`.

        Args:
            features: Extensions that this side uses.
            after_ts: Every start timestamp must be greater than this one.
            client: Who this is, see `PeerCapabilities`; None says nothing.
        """
        self.phase = Phase.NEW
        self.peer = HandshakeResponse(is_compatible=False, capabilities=None)
        """What the oracle answered to the handshake; meaningful once `phase` is past it."""
        self.last_start_ts = Timestamp(after_ts)
        """The newest start timestamp received."""
        self._features = features
        self._client = client
        self._reader = FrameReader(max_frame_bytes=MAX_RESPONSE_FRAME_BYTES)
        self._begins: deque[Ticket] = deque()
        self._commits: dict[int, Ticket] = {}
        self._fences: dict[int, Ticket] = {}
        self._invalidations: dict[int, Ticket] = {}

    def handshake(self) -> bytes:
        """Return the bytes that open the conversation."""
        if self.phase is not Phase.NEW:
            raise LocalProtocolError(
                f"the handshake comes first and once; phase {self.phase.value}"
            )
        self.phase = Phase.HANDSHAKING
        capabilities = PeerCapabilities(features=self._features, client=self._client)
        return frame_request(HandshakeRequest(capabilities))

    def has_feature(self, feature: Feature) -> bool:
        """Say whether both sides announced an extension."""
        theirs = self.peer.capabilities.features if self.peer.capabilities else 0
        return bool(self._features & theirs & feature)

    @property
    def in_flight(self) -> int:
        """How many requests wait for an answer."""
        return len(self._begins) + len(self._commits) + len(self._fences) + len(self._invalidations)

    @property
    def is_inside_frame(self) -> bool:
        """Whether the stream, if it ended here, would end in the middle of an answer."""
        return self._reader.is_inside_frame

    def expect(self, question: Question, ticket: Ticket) -> None:
        """Register a request; its frame must be the next thing sent.

        The frame itself is made by `frames.frame_request`, outside of the driver's lock: a large
        write set takes its time.

        Raises:
            LocalProtocolError: if the oracle would close the connection over it, or its answer
                could not be told from another's; nothing is registered.
        """
        if self.phase is not Phase.READY:
            raise LocalProtocolError(f"no request may be sent in phase {self.phase.value!r}")
        match question:
            case TimestampRequest():
                if question.hold_ms is not None:
                    self._require(Feature.BEGIN_EXTRAS)
                self._begins.append(ticket)
            case CommitRequest(start_ts=start_ts):
                _check_start_ts(start_ts)
                if not question.cell_ids:
                    raise LocalProtocolError(
                        f"the commit of start_ts {start_ts} names no cell; a transaction that "
                        "wrote nothing needs no commit"
                    )
                _claim(self._commits, start_ts, ticket, "a commit of start_ts")
            case FenceRequest(table_id=table_id):
                _claim(self._fences, table_id, ticket, "a fence on table")
            case InvalidateRequest(start_ts=start_ts):
                self._require(Feature.INVALIDATE)
                _check_start_ts(start_ts)
                _claim(self._invalidations, start_ts, ticket, "an invalidation of start_ts")
            case _:
                assert_never(question)

    def receive(self, data: bytes) -> Iterator[tuple[Ticket, Answer]]:
        """Take bytes as they come and yield the answers they complete, each with its ticket.

        One by one, so that what was said before a violation still counts.  To be consumed whole.
        The answer to the handshake is kept as `peer` and moves `phase` to READY or REFUSED.

        Raises:
            RemoteProtocolError: if the oracle broke the protocol; the connection is of no more use,
                and `end` names who still waits.
        """
        for payload in self._reader.feed(data):
            response = decode_response(payload)
            if isinstance(response, HandshakeResponse):
                self._shake_hands(response)
            else:
                yield self._whose(response), response

    def end(self) -> list[Ticket]:
        """Close the conversation and return the tickets that will never be answered."""
        self.phase = Phase.ENDED
        waiting = [
            *self._begins,
            *self._commits.values(),
            *self._fences.values(),
            *self._invalidations.values(),
        ]
        for pending in (self._begins, self._commits, self._fences, self._invalidations):
            pending.clear()
        return waiting

    def _shake_hands(self, response: HandshakeResponse) -> None:
        if self.phase is not Phase.HANDSHAKING:
            raise RemoteProtocolError("the oracle answered a handshake that was not due")
        self.peer = response
        self.phase = Phase.READY if response.is_compatible else Phase.REFUSED

    def _whose(self, response: Answer) -> Ticket:
        """Return the ticket that `response` answers, and forget it."""
        match response:
            case TimestampResponse(start_ts=start_ts):
                if not self._begins:
                    raise _unexpected(response)
                is_next = self.last_start_ts < start_ts <= MAX_START_TS
                if not is_next or start_ts % TIMESTAMP_STEP:
                    raise RemoteProtocolError(
                        f"the oracle handed out start_ts {start_ts} after {self.last_start_ts}; "
                        f"each must be a greater multiple of {TIMESTAMP_STEP}, and of 63 bits with "
                        "its checkpoints: its timestamp storage was lost or replaced, or it is no "
                        "oracle of this kind"
                    )
                self.last_start_ts = start_ts
                return self._begins.popleft()
            case CommitResponse(start_ts=start_ts, commit_ts=commit_ts):
                _check_commit_ts(start_ts, commit_ts)
                return _settle(self._commits, start_ts, response)
            case FenceResponse(table_id=table_id):
                return _settle(self._fences, table_id, response)
            case InvalidateResponse(start_ts=start_ts, commit_ts=commit_ts):
                _check_commit_ts(start_ts, commit_ts)
                return _settle(self._invalidations, start_ts, response)
            case _:
                assert_never(response)

    def _require(self, feature: Feature) -> None:
        if not self.has_feature(feature):
            raise LocalProtocolError(
                f"the oracle did not announce {feature.name}; an Omid oracle in Java never does"
            )


def _check_start_ts(start_ts: Timestamp) -> None:
    """Refuse what makes an oracle close the connection, which others share."""
    if start_ts <= 0 or start_ts % TIMESTAMP_STEP:
        raise LocalProtocolError(
            f"{start_ts} is no start_ts: those are positive multiples of {TIMESTAMP_STEP}"
        )


def _check_commit_ts(start_ts: Timestamp, commit_ts: Timestamp | None) -> None:
    if commit_ts is not None and (commit_ts <= start_ts or commit_ts % TIMESTAMP_STEP):
        raise RemoteProtocolError(
            f"the oracle says that start_ts {start_ts} committed at {commit_ts}; "
            f"that must be a greater multiple of {TIMESTAMP_STEP}"
        )


def _claim(pending: dict[int, Ticket], name: int, ticket: Ticket, what: str) -> None:
    if name in pending:
        raise LocalProtocolError(f"{what} {name} is in flight already; its answer must come first")
    pending[name] = ticket


def _settle(pending: dict[int, Ticket], name: int, response: Response) -> Ticket:
    try:
        return pending.pop(name)
    except KeyError:
        raise _unexpected(response) from None


def _unexpected(response: Response) -> RemoteProtocolError:
    return RemoteProtocolError(f"the oracle sent {response}, which nobody asked for")
