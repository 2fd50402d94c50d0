"""One client of `tso-server`: bytes between its socket and its conversation.

Every buffer has a bound: a client that does not read its answers is dropped, and one that breaks
the protocol is closed, with a reason in the log.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Hashable
from math import inf
from typing import Final, Protocol, cast

from omidpy.errors import RemoteProtocolError
from omidpy.wire.frames import encode_response, frame
from omidpy.wire.messages import CommitRequest, HandshakeResponse, PeerCapabilities
from omidpy.wire.peers import watch_peer
from omidpy.wire.tls import TlsStream
from tso.core.events import Answer, Question
from tso.core.shares.heavy import HEAVY_BYTES
from tso.serving.conversation import Conversation
from tso.serving.log import log_event
from tso.serving.tls import TLS_BYTE, ServerTls
from tso.serving.turns import Turns

logger = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S: Final = 10.0
MAX_UNSENT_BYTES: Final = 1024 * 1024
"""Answers that one client may leave unread before it is dropped."""

REQUEST_TIMEOUT_S: Final = 30.0
"""How long a request may take from its first byte to its last."""

SLOW_AT_ONCE: Final = 32
"""Requests that are passed on together where none was ordinary."""

SLOW_WORK: Final = 32
"""How many ordinary requests one costs that is not."""

BYTES_OF_WORK: Final = 64
"""Bytes of requests that cost as much as an ordinary one."""

KERNEL_BUFFER_BYTES: Final = 256 * 1024
"""What the kernel may keep of them besides; it would grow to megabytes for each."""


_FRAME_BYTE: Final = 0
"""What a client without TLS says first: a frame is shorter than 2^24 bytes."""

_REFUSAL: Final = frame(encode_response(HandshakeResponse(is_compatible=False, capabilities=None)))
_ALERT: Final = bytes.fromhex("15030100020246")
"""TLS: fatal, another version of the protocol."""


class Host(Protocol):
    """What a connection needs of the server: room, turns, and answers."""

    loop: asyncio.AbstractEventLoop
    capabilities: PeerCapabilities
    max_commit_cells: int
    """How many cells and tables one commit may have."""
    writer_key: bytes | None
    """What a client shows that brings cells; None: they are not written."""
    buffered_bytes: int
    """What unfinished requests of all connections take."""
    turns: Turns[Connection]
    """Which connection is served next, and how much of what it sent."""
    tls: ServerTls | None
    """How connections are made secure; None leaves them open."""

    def admit(self, connection: Connection) -> str | None:
        """Take in a connection, or say why not."""
        ...

    def may_shake(self, connection: Connection) -> bool:
        """Say whether TLS may shake hands now; else `Connection.shake` is called in its turn."""
        ...

    def greet(self, connection: Connection) -> None:
        """Note who a connection belongs to: it shook hands.  It may be refused."""
        ...

    def forget(self, connection: Connection) -> None:
        """Drop a connection that is closed."""
        ...

    def make_room(self) -> None:
        """Close the connection that keeps the most, until unfinished requests fit."""
        ...

    def run(
        self,
        connection: Connection,
        conversation: Conversation,
        data: bytes | bytearray,
        at_most: int,
    ) -> tuple[int, int]:
        """Let the machine decide what is ordinary; return how many bytes and requests that was."""
        ...

    def ask(self, connection: Connection, questions: list[Question]) -> None:
        """Put a client's questions to the machine."""
        ...

    def read_long(self, connection: Connection, frame: bytearray) -> None:
        """Read a heavy request slice by slice; then `Connection.end_long` is called."""
        ...


class Connection(asyncio.Protocol):
    """One client: bytes between its socket and its conversation."""

    def __init__(self, server: Host) -> None:
        """Belong to a server; `connection_made` brings the socket."""
        self._server = server
        self._conversation = Conversation(
            server.capabilities,
            max_commit_cells=server.max_commit_cells,
            writer_key=server.writer_key,
        )
        self._tls = None if server.tls is None else TlsStream(server.tls.context, server_side=True)
        self._transport: asyncio.Transport | None = None
        self._is_closing = False
        self._is_paused = False
        self._waits_for_turn = False
        self._timeout: asyncio.TimerHandle | None = None
        self._long_bytes = 0
        """How long the request is that is read slice by slice; 0 if there is none."""
        self.buffered_bytes = 0
        """How much of the server's memory unfinished requests take."""
        self.asked_s = -inf
        """When the client last asked for anything."""
        self._began_s = 0.0
        """When the unfinished request began."""
        self._peer = "?"
        self.address_share: Hashable = None
        """Whose share it has as long as it has shown no certificate."""
        self._first_byte: int | None = None
        self._hello = b""
        """What arrived of a handshake of TLS that waits for its turn."""

    # -- called by the event loop --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket, or refuse it."""
        self._transport = cast("asyncio.Transport", transport)
        host, port = transport.get_extra_info("peername", ("?", 0))[:2]
        self._peer = f"{host}:{port}"
        self._conversation.locate(str(host))
        self.address_share = self._conversation.share
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        watch_peer(raw)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BUFFER_BYTES)
        self._transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        self._timeout = self._server.loop.call_later(HANDSHAKE_TIMEOUT_S, self._check_handshake)
        if (refusal := self._server.admit(self)) is not None:
            self.abort(refusal)

    def data_received(self, data: bytes) -> None:
        """Pass on what the client asks, as far as its turn goes."""
        if self._is_closing:
            return  # what was in the kernel already: its answer would come behind the end
        if self._first_byte is None and data:
            self._first_byte = data[0]
            if self._tls is None and self._first_byte == TLS_BYTE:
                # It would be a frame of 369 million bytes.
                # What is no TLS tells the client that there is none.
                self.write(_REFUSAL)
                self.close(
                    "the client speaks TLS, and this server does not; give it --tls-cert, or leave "
                    "?tls=true away behind the client's tso="
                )
                return
        if self._tls is None:
            self._receive(data)
        else:
            self._receive_sealed(self._tls, data)

    def _receive_sealed(self, tls: TlsStream, data: bytes) -> None:
        """Pass on what TLS says, or end a connection that speaks none or is not to be trusted."""
        if tls.is_open or self._may_shake(data):
            self._open_sealed(tls, data)

    def _open_sealed(self, tls: TlsStream, data: bytes) -> None:
        was_open = tls.is_open
        try:
            said = tls.receive(data)
        except ssl.SSLError as error:
            # The client is told the reason, so the connection ends behind it.
            self._send(tls.to_send())
            reason = error.reason or str(error)
            if not was_open and self._first_byte == _FRAME_BYTE:
                self._send(_ALERT)  # which is no frame, and tells that there is TLS
                reason = "the client speaks none; write ?tls=true&ca=FILE behind its tso="
            self.close(f"TLS failed: {reason}")
            return
        self._send(tls.to_send())
        host = self._server.tls
        if tls.is_open and not was_open and host is not None and host.asks_for_certificates:
            name = tls.peer_name()
            if not name:
                self.close(
                    "its certificate names nobody; give it a common name, or an alternative name "
                    "that is a URI, a domain or an address of mail"
                )
                return
            is_operator = host.is_operator(name)
            self._conversation.identify(name, host.roles(name), is_operator=is_operator)
        if said:
            self._receive(said)
        if tls.is_over:
            self.close()

    def _may_shake(self, data: bytes) -> bool:
        """Say whether the handshake may go on; else keep what arrived until it may."""
        if self._hello or not self._server.may_shake(self):
            self._hello += data
            self._count_bytes(len(self._hello))
            self._server.make_room()
            self._pause_reading()
            return False
        return True

    def shake(self) -> None:
        """Go on with the handshake that had to wait."""
        if self._is_closing or self._tls is None:
            return  # it was closed while it waited for its turn
        hello, self._hello = self._hello, b""
        self._count_bytes(0)
        self._resume_reading()
        self._open_sealed(self._tls, hello)

    def _receive(self, data: bytes) -> None:
        """Serve what arrived, and what was left behind, as far as a turn goes."""
        conversation, server, turns = self._conversation, self._server, self._server.turns
        if self._long_bytes:  # what is behind it waits for it
            conversation.add(data)
            self._count_kept()
            return
        if turns.over and turns.defers(self):
            conversation.add(data)
            self._count_kept()
            server.make_room()
            self._pause_reading()
            self._waits_for_turn = True
            return
        left = turns.work
        is_tried = conversation.may_run and not conversation.buffer
        if is_tried:
            # Nearly always that is all, and nothing is copied.
            taken_bytes, request_count = server.run(self, conversation, data, left)
            if taken_bytes == len(data) and not turns.is_full:
                return
            left -= max(request_count, taken_bytes // BYTES_OF_WORK)
            data = data[taken_bytes:]
            is_tried = not taken_bytes
        conversation.add(data)
        unserved_bytes = conversation.buffered_bytes
        has_more = False
        try:
            has_more = self._serve(left, is_tried=is_tried)
        except RemoteProtocolError as error:
            self.abort(str(error))
        if self._is_closing:
            return
        if not self.buffered_bytes or conversation.buffered_bytes != unserved_bytes:
            self._began_s = server.loop.time()
        self._count_kept()
        server.make_room()
        if has_more or turns.is_full:
            self._pause_reading()
            self._waits_for_turn = True
            turns.wait(self)

    def _serve(self, left: int, *, is_tried: bool = False) -> bool:
        """Pass on whole requests: runs of ordinary ones as they are, others one by one.

        Args:
            left: How much work this turn may take.
            is_tried: What comes first is no ordinary one: that was found out just now.

        Returns:
            Whether the turn ended before they did.

        Raises:
            RemoteProtocolError: the client broke the protocol.
        """
        conversation, server = self._conversation, self._server
        at_once = 1
        while conversation.buffer and not self._is_closing:
            if left <= 0:
                return True
            request_count = 0
            if conversation.may_run and not is_tried:
                buffer = conversation.buffer
                taken_bytes, request_count = server.run(self, conversation, buffer, left)
                conversation.skip(taken_bytes)
                left -= max(request_count, taken_bytes // BYTES_OF_WORK)
                if left <= 0:
                    continue
            is_tried = False
            kept_bytes = conversation.buffered_bytes
            if size_bytes := self._heavy_bytes:
                if server.turns.may_take_long(self, size_bytes):
                    # Nothing behind it is served before it: the order of one client's requests
                    # is that of their answers.
                    frame = conversation.take_long()
                    self._long_bytes = size_bytes
                    server.read_long(self, frame)
                return True
            # Ordinary ones may follow the first; the more others there are, the fewer will.
            at_once = 1 if request_count else at_once
            # One by one, too, where a heavy one may follow.
            at_most = 1 if kept_bytes > HEAVY_BYTES else at_once
            at_once = min(2 * at_once, SLOW_AT_ONCE)
            reply, questions = conversation.receive(b"", at_most=at_most)
            if reply:
                if conversation.is_open:
                    server.greet(self)
                self.write(reply)
            elif not questions:
                break
            if questions:
                server.ask(self, questions)
            left -= SLOW_WORK * len(questions)
            left -= (kept_bytes - conversation.buffered_bytes) // BYTES_OF_WORK
        return False

    @property
    def _heavy_bytes(self) -> int:
        """How long the next request is, if it is heavy and has arrived; else 0."""
        buffer = self._conversation.buffer
        if len(buffer) <= HEAVY_BYTES:
            return 0
        size_bytes = 4 + int.from_bytes(buffer[:4], "big")
        return size_bytes if HEAVY_BYTES < size_bytes <= len(buffer) else 0

    def pause_writing(self) -> None:
        """Drop a client that does not read its answers."""
        self.abort(f"more than {MAX_UNSENT_BYTES} bytes of answers are unread")

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the client: what it asked may be decided all the same, and is not answered."""
        del exc
        self._is_closing = True
        self._transport = None
        if self._timeout is not None:
            self._timeout.cancel()
        self._count_bytes(0)
        self._server.forget(self)

    # -- called by the server ------------------------------------------------------------------

    def encode(self, answer: Answer) -> bytes:
        """Return an answer as this client understands it."""
        return self._conversation.encode(answer)

    def write(self, frames: bytes) -> None:
        """Send answers, unless the client is gone."""
        if self._transport is None or self._is_closing:
            return
        if self._tls is not None:
            self._tls.seal(frames)
            frames = self._tls.to_send()
        self._transport.write(frames)

    def take_turn(self) -> None:
        """Go on with what the last turn left behind; read again when there is nothing."""
        self._waits_for_turn = False
        if not self._is_closing:
            self._receive(b"")
        if not self._waits_for_turn:
            self._resume_reading()

    def end_long(self, request: CommitRequest | None) -> None:
        """Ask what a heavy request turned out to be, and go on behind it."""
        size_bytes, self._long_bytes = self._long_bytes, 0
        if self._is_closing:
            return  # it was closed between two slices, and nothing was decided yet
        try:
            question = self._conversation.judge_long(request, size_bytes)
        except RemoteProtocolError as error:
            self.abort(str(error))
            return
        self._count_kept()
        self._server.ask(self, [question])
        self.take_turn()

    @property
    def client(self) -> int:
        """Who the client is; 0 before its handshake."""
        return self._conversation.client

    @property
    def hands_on(self) -> bool:
        """Whether another process goes on as this client when it goes."""
        return self._conversation.hands_on

    @property
    def share(self) -> Hashable:
        """Whose share the client has a part of: its name's, or its address's; see `share_of`."""
        return self._conversation.share

    @property
    def is_operator(self) -> bool:
        """Say whether the client has every role, where not every client has."""
        return self._conversation.is_operator

    @property
    def asks_to_invalidate(self) -> bool:
        """Say whether the client leaves it to the oracle to forbid what the oracle may commit."""
        return self._conversation.asks_to_invalidate

    @property
    def peer(self) -> str:
        """Where the client is, and what its certificate calls it."""
        name = self._conversation.name
        return self._peer if name is None else f"{name}@{self._peer}"

    @property
    def who(self) -> str:
        """The client's name in its certificate, or else its address without the port."""
        name = self._conversation.name
        return self._peer.rpartition(":")[0] if name is None else name

    @property
    def unsent_bytes(self) -> int:
        """How much of the answers waits for the client to read."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def recheck(self, *, trusts_others: bool) -> None:
        """End the connection if its certificate no longer allows what it allowed.

        Args:
            trusts_others: Whether other certificates are trusted than when it was shown.  Whoever
                still is one of them connects again.
        """
        host, conversation = self._server.tls, self._conversation
        if host is None or not host.asks_for_certificates:
            return
        if trusts_others:
            self.abort("whose certificates are trusted has changed; it must show its own again")
        elif conversation.name is not None and (
            host.roles(conversation.name) != conversation.roles
        ):
            self.abort("its certificate gives it other roles now")

    def check_time(self, now_s: float) -> None:
        """End the connection if a request takes too long to arrive."""
        # While we do not read, the client cannot go on.
        is_late = now_s - self._began_s > REQUEST_TIMEOUT_S
        if self.buffered_bytes and is_late and not self._is_paused:
            self.abort(f"a request was not complete within {REQUEST_TIMEOUT_S:g} s")

    def abort(self, reason: str) -> None:
        """End the connection at once, with what was not sent yet."""
        self._log_once(reason)
        # It is forgotten later, by when others may have been sent away for want of room.
        self._conversation.end()
        self._count_bytes(0)
        if self._transport is not None:
            self._transport.abort()

    def close(self, reason: str | None = None) -> None:
        """End the connection once what was written has left."""
        if reason is not None:
            self._log_once(reason)
        self._is_closing = True
        if self._transport is not None:
            self._transport.close()

    def _send(self, sealed: bytes) -> None:
        if sealed and self._transport is not None:
            self._transport.write(sealed)

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._is_closing and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and not self._is_closing and self._is_paused:
            self._is_paused = False
            self._began_s = self._server.loop.time()
            self._transport.resume_reading()

    def _count_kept(self) -> None:
        self._count_bytes(self._conversation.buffered_bytes + self._long_bytes)

    def _count_bytes(self, buffered_bytes: int) -> None:
        self._server.buffered_bytes += buffered_bytes - self.buffered_bytes
        self.buffered_bytes = buffered_bytes

    def _log_once(self, reason: str) -> None:
        if not self._is_closing:
            self._is_closing = True
            log_event(
                logger,
                logging.WARNING,
                "connection-closed",
                about=self._conversation.share,
                peer=self._peer,
                reason=reason,
            )

    def _check_handshake(self) -> None:
        if not self._conversation.is_open:
            self.abort(f"no handshake within {HANDSHAKE_TIMEOUT_S:g} s")
