"""An oracle that says what a test tells it to, on a real socket in this process.

Each connection runs one script in a thread of its own.  A script that fails, by an assertion or
because the client did not do what it waited for, fails the test when the oracle is closed.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeAlias, TypeVar

from omidpy.model import Timestamp
from omidpy.wire.frames import (
    MAX_REQUEST_FRAME_BYTES,
    FrameReader,
    decode_request,
    encode_response,
    frame,
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

PATIENCE_S: Final = 20.0
"""How long a script waits for the client before the test counts as failed."""

OURS: Final = PeerCapabilities(ALL_FEATURES, b"store-a", Timestamp(100), 900_000)
JAVAS: Final = PeerCapabilities()

R = TypeVar("R")


class Hangup(Exception):
    """The client closed the connection."""


class Conversation:
    """The oracle's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        """Speak over a connected socket."""
        sock.settimeout(PATIENCE_S)
        self._sock = sock
        self._reader = FrameReader(max_frame_bytes=MAX_REQUEST_FRAME_BYTES)
        self._requests: list[Request] = []

    def request(self) -> Request:
        """Return the next request; raise Hangup at the end."""
        while not self._requests:
            try:
                data = self._sock.recv(65536)
            except ConnectionError as error:
                raise Hangup from error
            if not data:
                raise Hangup
            self._requests += map(decode_request, self._reader.feed(data))
        return self._requests.pop(0)

    def expect(self, kind: type[R]) -> R:
        """Return the next request, which must be of this kind."""
        request = self.request()
        assert isinstance(request, kind), f"expected {kind.__name__}, got {request}"
        return request

    def say(self, *responses: Response) -> None:
        """Send responses in one piece."""
        self.say_bytes(b"".join(frame(encode_response(response)) for response in responses))

    def say_bytes(self, data: bytes) -> None:
        """Send bytes as they are; raise Hangup if nobody takes them."""
        try:
            self._sock.sendall(data)
        except ConnectionError as error:
            raise Hangup from error

    def shake_hands(self, capabilities: PeerCapabilities = OURS) -> None:
        """Answer the handshake."""
        self.expect(HandshakeRequest)
        self.say(HandshakeResponse(is_compatible=True, capabilities=capabilities))

    def wait_hangup(self) -> None:
        """Return once the client has closed the connection; it must not ask anything more."""
        try:
            request = self.request()
        except Hangup:
            return
        raise AssertionError(f"expected the end, got {request}")


Script: TypeAlias = Callable[[Conversation], None]


class ScriptedOracle:
    """Runs the n-th script on the n-th connection, and closes that when the script returns.

    Connections beyond the last script are refused by closing them at once.
    """

    def __init__(self, *scripts: Script) -> None:
        """Listen on a free port."""
        self._scripts = scripts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.connection_count = 0
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop_listening()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        if self._failures and error is None:
            raise self._failures[0]

    def stop_listening(self) -> None:
        """Refuse further connections; those that are open go on."""
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            return
        self._threads[0].join(PATIENCE_S)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            number, self.connection_count = self.connection_count, self.connection_count + 1
            if number >= len(self._scripts):
                sock.close()
                continue
            thread = threading.Thread(target=self._run, args=(sock, number), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, sock: socket.socket, number: int) -> None:
        with sock:
            try:
                self._scripts[number](Conversation(sock))
            except Hangup:
                pass
            except BaseException as failure:  # noqa: BLE001  handed to the test in __exit__
                self._failures.append(failure)


def obliging(*, first_ts: int = 1000, capabilities: PeerCapabilities = OURS) -> Script:
    """Return a script that grants every request, with timestamps from `first_ts` on."""

    def script(peer: Conversation) -> None:
        peer.shake_hands(capabilities)
        next_ts = first_ts
        while True:
            granted_ts, next_ts = Timestamp(next_ts), next_ts + 50
            match peer.request():
                case TimestampRequest():
                    peer.say(TimestampResponse(granted_ts))
                case CommitRequest(start_ts=start_ts):
                    # A test may commit a start_ts of its own, above those handed out here.
                    commit_ts = Timestamp(max(granted_ts, start_ts + 50))
                    peer.say(CommitResponse(start_ts, commit_ts))
                case FenceRequest(table_id=table_id):
                    peer.say(FenceResponse(table_id, granted_ts))
                case InvalidateRequest(start_ts=start_ts):
                    peer.say(InvalidateResponse(start_ts, InvalidateVerdict.INVALIDATED))
                case HandshakeRequest():
                    raise AssertionError("a second handshake")

    return script
