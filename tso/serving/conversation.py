"""The oracle's end of one connection: bytes in, questions out; answers in, bytes out.

No sockets and no decisions.  A client speaks the handshake first; what it announces there decides
which of our extensions it is shown, so that Java hears exactly what its own oracle would say.

Whatever else arrives ends the connection, with a reason: there is no error message in the protocol.

What a client can make us do is bounded by what it sends: commit requests are long and are read by
the compiled `engine.py`; any other request is short.

Source: Omid's TSOChannelHandler, which closes the channel of a client that skips the handshake, and
executes its request all the same.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, cast

from msgspec.structs import replace

from omidpy.errors import RemoteProtocolError
from omidpy.model import CellId, TableCells, TableId, Timestamp
from omidpy.wire.frames import (
    MAX_REQUEST_FRAME_BYTES,
    FrameReader,
    brings_cells,
    decode_request,
    encode_request,
    encode_response,
    frame,
)
from omidpy.wire.messages import (
    ALL_FEATURES,
    CommitRequest,
    CommitResponse,
    Feature,
    FenceRequest,
    HandshakeRequest,
    HandshakeResponse,
    InvalidateRequest,
    PeerCapabilities,
    Request,
    Role,
    TimestampRequest,
    TimestampResponse,
)
from tso.core.engine import commit_frame, read_commit, timestamp_frame
from tso.core.events import Answer, Question
from tso.core.shares.clients import ANYBODY, numbered, share_number
from tso.core.writes import complaint_about

MAX_CELLS_BYTES: Final = 64 * 1024
"""Longest commit that brings its cells; clients write more than that themselves."""

MAX_SHORT_REQUEST_BYTES: Final = 256
"""Longest request that is no commit; the longest valid one takes less than 100.

They are read by interpreted code: 4 KiB of padding around a begin cost 0.8 ms."""

_ROLE_FOR: Final[Mapping[type[Question], Role]] = {
    TimestampRequest: Role.TRANSACTIONS,
    CommitRequest: Role.TRANSACTIONS,
    FenceRequest: Role.FENCES,
    InvalidateRequest: Role.INVALIDATION,
}

_BEGIN: Final = TimestampRequest()
_BEGIN_PAYLOAD: Final = encode_request(_BEGIN)


_SALT: Final = secrets.token_bytes(16)
"""Keeps a client that chooses a name, an address or a number from knowing its share."""

_NETWORK_BITS: Final = 64


class _Phase(Enum):
    NEW = auto()
    OPEN = auto()
    REFUSED = auto()


class Conversation:
    """What one client sent, and what it may send next."""

    def __init__(
        self,
        capabilities: PeerCapabilities,
        *,
        max_commit_cells: int,
        writer_key: bytes | None = None,
    ) -> None:
        """Wait for the handshake.

        Args:
            capabilities: What we tell a client that announces any feature.
            max_commit_cells: See `read_commit`.
            writer_key: What a client must show that brings cells; None: none may.
        """
        self._writer_key = writer_key
        self._capabilities = capabilities
        self._max_commit_cells = max_commit_cells
        self._reader = FrameReader(max_frame_bytes=MAX_REQUEST_FRAME_BYTES)
        self._phase = _Phase.NEW
        self._features = Feature.NONE
        # Each read looks at these, so that they are no properties.
        self.buffer = self._reader.buffer
        """What was sent and not dealt with; `skip` removes what was."""
        self.may_run = False
        """Whether `Machine.run` may look at the buffer: the client may begin and commit."""
        self.shows_watermark = False
        """Whether the client wants to know the low watermark."""
        self.tells_why = False
        """Whether the client wants to know why a commit is refused."""
        self.hands_on = False
        """Whether another process goes on as this client when it goes."""
        self.client = ANYBODY
        """Who the client is, by its name or address and what it says; 0 before the handshake."""
        self.share = 0
        """Whose share the client has a part of: its name's, or else its address's."""
        self.is_operator = False
        """Whether the client has every role, where not every client has."""
        self._whose = ""
        self._name: str | None = None
        self._roles: Role | None = None

    def locate(self, address: str) -> None:
        """Note where the client is: who shows no certificate has its share by that."""
        self._belong(_whose_address(address))

    def identify(self, name: str | None, roles: Role, *, is_operator: bool = False) -> None:
        """Note whose certificate was shown, and what it entitles to; before anything is received.

        A client without a name says itself who it is, at its address; one with a name is no other
        one, whatever it says, so that what it began is no other one's either.
        """
        self._name = name
        self._roles = roles
        self.is_operator = is_operator
        if name is not None:
            self._belong(f"name {name}")

    def _belong(self, whose: str) -> None:
        self._whose = whose
        self.share = share_number(_digest(whose))

    @property
    def name(self) -> str | None:
        """What the client's certificate calls it; None if it showed none."""
        return self._name

    @property
    def roles(self) -> Role | None:
        """What the client's certificate entitles it to; None if it needs none."""
        return self._roles

    @property
    def is_open(self) -> bool:
        """Say whether the handshake is done."""
        return self._phase is _Phase.OPEN

    @property
    def asks_to_invalidate(self) -> bool:
        """Say whether the client leaves it to the oracle to forbid what the oracle may commit.

        Omid's do not: behind a fence, and when they lost an answer, they plant an invalidation
        themselves.  Nor does a client of ours whose certificate keeps it from asking.
        """
        roles = self._roles
        return bool(self._features & Feature.INVALIDATE) and (
            roles is None or Role.INVALIDATION in roles
        )

    @property
    def buffered_bytes(self) -> int:
        """How much is kept of requests that are unfinished, or that were left behind."""
        return self._reader.buffered_bytes

    def add(self, data: bytes) -> None:
        """Take what arrived, to be looked at later."""
        self.buffer.extend(data)

    def skip(self, count: int) -> None:
        """Forget so many bytes of the buffer, which are whole requests that were dealt with."""
        self._reader.skip(count)

    def receive(self, data: bytes, *, at_most: int | None = None) -> tuple[bytes, list[Question]]:
        """Take what arrived.

        Args:
            data: Bytes from the client; none, to go on with what was left behind.
            at_most: So many requests; the rest stays for the next call.

        Returns:
            Bytes to send at once (the answer to a handshake), and questions for the oracle.

        Raises:
            RemoteProtocolError: the connection must be closed, and nothing of it is executed any
                more.
        """
        reply = b""
        questions: list[Question] = []
        payloads = self._reader.feed(data, at_most=at_most)
        for payload in payloads:
            request = _request(payload, self._max_commit_cells)
            self._check_phase(shakes_hands=isinstance(request, HandshakeRequest))
            if isinstance(request, HandshakeRequest):
                reply += self._shake_hands(request)
            else:
                questions.append(self._permitted(request))
        return reply, questions

    def _check_phase(self, *, shakes_hands: bool = False) -> None:
        """Refuse whatever comes without a handshake, or behind one that was refused."""
        if self._phase is _Phase.REFUSED:
            raise RemoteProtocolError("a request follows a handshake that was refused")
        if self._phase is _Phase.NEW and not shakes_hands:
            raise RemoteProtocolError("the first message is no handshake")

    def take_long(self) -> bytearray:
        """Give the next request away, its 4 bytes of length included; it must be there whole.

        Raises:
            RemoteProtocolError: see `receive`; a client that has not shaken hands sends no long
            one.
        """
        self._check_phase()
        frame = self._reader.take()
        self.buffer = self._reader.buffer
        return frame

    def judge_long(self, request: CommitRequest | None, size_bytes: int) -> Question:
        """Return what was read of a long request as a question; None is what is no commit.

        Raises:
            RemoteProtocolError: see `receive`.
        """
        if request is None:
            raise _too_long(size_bytes)
        return self._permitted(request)

    def end(self) -> None:
        """Forget what is kept: nothing more is read."""
        self.buffer.clear()

    def encode(self, answer: Answer) -> bytes:
        """Return the frame of an answer, without what this client did not announce."""
        if isinstance(answer, TimestampResponse):
            if not self.shows_watermark:
                return timestamp_frame(answer.start_ts, None)
            return timestamp_frame(answer.start_ts, answer.low_watermark, answer.newest_fence)
        if isinstance(answer, CommitResponse):
            if answer.commit_ts is not None:
                return commit_frame(answer.start_ts, answer.commit_ts)
            if not self.tells_why:
                answer = CommitResponse(answer.start_ts, None)
        return frame(encode_response(answer))

    def _shake_hands(self, request: HandshakeRequest) -> bytes:
        if self._phase is not _Phase.NEW:
            raise RemoteProtocolError("a second handshake")
        if request.capabilities is None:
            self._phase = _Phase.REFUSED
            return frame(encode_response(HandshakeResponse(is_compatible=False, capabilities=None)))
        self._phase = _Phase.OPEN
        self.may_run = self._roles is None or Role.TRANSACTIONS in self._roles
        said = max(request.capabilities.client or ANYBODY, ANYBODY)
        self.client = self._client_of(said)
        self._features = Feature(request.capabilities.features & ALL_FEATURES)
        self.hands_on = bool(request.capabilities.features & Feature.HANDS_ON)
        self.shows_watermark = bool(self._features & Feature.BEGIN_EXTRAS)
        self.tells_why = bool(self._features & Feature.ABORT_DETAILS)
        ours = PeerCapabilities()
        if self._features:
            roles = None if self._roles is None else int(self._roles)
            features = ALL_FEATURES
            if self._writer_key is not None:
                features |= Feature.COMMIT_CELLS
            if self._roles is not None and not self._roles & Role.INVALIDATION:
                # The client goes by the commit table then, as it does beside Omid's own oracle.
                features &= ~Feature.INVALIDATE
            ours = replace(self._capabilities, features=int(features), roles=roles)
        return frame(encode_response(HandshakeResponse(is_compatible=True, capabilities=ours)))

    def _client_of(self, said: int) -> int:
        """Return the number of the client, see `numbered`.

        Who it is among those that have its share is what it said.  Where it has no name and says
        nothing, it is this connection alone.
        """
        is_connection = self._name is None and said == ANYBODY
        number = secrets.randbits(64) if is_connection else _digest(f"{said} {self._whose}")
        return numbered(self.share, number, is_connection=is_connection)

    def _permitted(self, request: Question) -> Question:
        if self._roles is not None and not _ROLE_FOR[type(request)] & self._roles:
            raise RemoteProtocolError(
                f"{type(request).__name__} from {self._name!r}, whose roles are {self._roles!r}"
            )
        if isinstance(request, CommitRequest) and request.cells is not None:
            self._check_cells(request, request.cells)
        if isinstance(request, InvalidateRequest) and not self._features & Feature.INVALIDATE:
            raise RemoteProtocolError("an invalidation from a client that did not announce them")
        if isinstance(request, TimestampRequest) and request.hold_ms is not None:
            if not self._features & Feature.BEGIN_EXTRAS:
                return TimestampRequest()
            if request.hold_ms <= 0:
                raise RemoteProtocolError(f"a hold of {request.hold_ms} ms")
        return request

    def _check_cells(self, request: CommitRequest, cells: TableCells) -> None:
        """Refuse cells of one who may not write them, or that no transaction of ours writes."""
        if self._writer_key is None:
            raise RemoteProtocolError("a commit with its cells, which this oracle does not write")
        if not hmac.compare_digest(request.writer_key, self._writer_key):
            raise RemoteProtocolError("a commit with its cells from one who cannot read the store")
        if complaint := complaint_about(request.start_ts, cells):
            raise RemoteProtocolError(f"a commit with {complaint}")


def share_of_address(address: str) -> int:
    """Return whose share a client without a certificate has, by its address."""
    return share_number(_digest(_whose_address(address)))


def _whose_address(address: str) -> str:
    return f"address {_network(address)}"


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(_SALT + text.encode()).digest()[:8], "big")


def _network(address: str) -> str:
    """Return what one host cannot change about its address: of IPv6 the network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, _NETWORK_BITS), strict=False))
    return str(found)


def _request(payload: bytes, max_commit_cells: int) -> Request:
    """Return the request in a payload: what `decode_request` makes of it, in bounded time.

    Of a commit that is too large it has as much as it takes to say so.

    Raises:
        RemoteProtocolError: if it holds anything but exactly one complete request.
    """
    if payload == _BEGIN_PAYLOAD:
        return _BEGIN
    if brings_cells(payload):  # which `read_commit` would go through in vain
        if len(payload) > MAX_CELLS_BYTES:
            raise _too_long(len(payload))
        return decode_request(payload)
    commit = read_commit(payload, max_commit_cells)
    if commit is not None:
        start_ts, is_retry, cell_ids, table_ids = commit
        return CommitRequest(
            Timestamp(start_ts),
            cast("tuple[CellId, ...]", cell_ids),
            cast("tuple[TableId, ...]", table_ids),
            is_retry,
        )
    if len(payload) > MAX_SHORT_REQUEST_BYTES:
        raise _too_long(len(payload))
    return decode_request(payload)


def _too_long(size_bytes: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"a request of {size_bytes} bytes that is no commit, or brings its cells, where at "
        f"most {MAX_SHORT_REQUEST_BYTES} and {MAX_CELLS_BYTES} are allowed"
    )
