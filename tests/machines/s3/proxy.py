"""A network between a client and an S3 server, which counts, delays, and loses what a test says.

    with S3Proxy(server.port) as proxy:
        proxy.lose_answer("Complete")       # the next one is carried out, its answer never arrives
        proxy.end_at(7, process.kill)       # who sends the seventh request, sends no eighth
        proxy.trouble(7, 503)               # the seventh is refused, however often it is tried
        proxy.trouble(7, "twice")           # the seventh arrives a second time
        ...endpoint_url=proxy.endpoint

Requests go on as they came, with the host that they were signed for.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

_PATIENCE_S: Final = 60.0
_OF_THE_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "expect"})


def operation(method: str, target: str) -> str:
    """Name a request: what it does to an object, an upload or a bucket."""
    query = parse_qs(urlsplit(target).query, keep_blank_values=True)
    is_object = urlsplit(target).path.strip("/").count("/") > 0
    if "uploads" in query:
        return "Create" if method == "POST" else "ListUploads"
    if "uploadId" in query:
        return {"PUT": "Part", "POST": "Complete", "DELETE": "Abort"}.get(method, "ListParts")
    if "delete" in query:
        return "DeleteMany"
    if method == "GET" and not is_object:
        return "List"
    return {"PUT": "Put", "GET": "Get", "HEAD": "Head", "DELETE": "Delete"}[method]


class _End(NamedTuple):
    """Whose end comes at which request."""

    number: int
    end: Callable[[], object]
    is_carried_out: bool


Trouble = int | Literal["lost", "silent", "twice"]
"""A status instead of carrying a request out; that it is carried out and has no answer, once or
however often it is tried; or that it is carried out twice, and the second answer counts."""

_CODES: Final = {404: "NoSuchKey", 409: "ConditionalRequestConflict", 412: "PreconditionFailed"}


class _Troubled(NamedTuple):
    """Which request meets with what."""

    number: int
    trouble: Trouble


class _Server(ThreadingHTTPServer):
    """Takes as many connections at a time as a client opens; one turned away waits a second."""

    request_queue_size = 128
    daemon_threads = True


class S3Proxy:
    """Listens on a port of its own; every request leads to the server on another."""

    def __init__(self, port: int, *, delay_s: float = 0.0) -> None:
        """Lead to a server of the loopback; add a delay to each request."""
        self.requests: Counter[str] = Counter()
        """How many of each operation arrived."""
        self.delay_s = delay_s
        self._port = port
        self._lock = threading.Lock()
        self._lost: Counter[str] = Counter()
        self._broken: dict[str, int] = {}
        self._arrived = 0
        self._under_way = 0
        self._is_idle = threading.Condition(self._lock)
        self._end: _End | None = None
        self._troubled: _Troubled | None = None
        self._refused: tuple[str, str] | None = None
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def lose_answer(self, kind: str, *, count: int = 1) -> None:
        """Carry out the next requests of a kind, and cut the connection instead of answering."""
        with self._lock:
            self._lost[kind] = count

    def break_down(self, kind: str, status: int) -> None:
        """Refuse every request of a kind from now on; none of them arrives."""
        with self._lock:
            self._broken[kind] = status

    def end_at(
        self, number: int, end: Callable[[], object], *, is_carried_out: bool = False
    ) -> None:
        """End who sends a request, counted from 1 from now on; no later one arrives.

        Args:
            number: Which request.
            end: Called when it arrives.
            is_carried_out: Whether the store has it first.
        """
        with self._lock:
            self._arrived = 0
            self._end = _End(number, end, is_carried_out)

    def trouble(self, number: int, trouble: Trouble) -> None:
        """Let a request, counted from 1 from now on, meet with something.

        A status of the server's own (500 and above), and silence, are the answer to its next tries
        as well, for as long as nothing else is asked; all others are the answer to one.
        """
        with self._lock:
            self._arrived = 0
            self._refused = None
            self._troubled = _Troubled(number, trouble)

    @property
    def arrived(self) -> int:
        """How many requests have come since the last was to meet with something."""
        return self._arrived

    def _meets(self, request: tuple[str, str]) -> Trouble | None:
        """Return what a request that arrives meets with; the lock is held."""
        if self._refused == request and self._troubled is not None:
            return self._troubled.trouble
        self._refused = None
        if self._troubled is None or self._arrived != self._troubled.number:
            return None
        found = self._troubled.trouble
        if found == "silent" or (isinstance(found, int) and found >= 500):
            self._refused = request
        return found

    def wait_until_idle(self) -> None:
        """Wait until nothing of what arrived is still on its way to the store."""
        with self._lock:
            assert self._is_idle.wait_for(lambda: self._under_way == 0, _PATIENCE_S)

    def mend(self) -> None:
        """Refuse nothing any more."""
        with self._lock:
            self._broken.clear()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        kind = operation(handler.command, handler.path)
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        with self._lock:
            self.requests[kind] += 1
            is_lost = self._lost[kind] > 0
            self._lost[kind] -= is_lost
            status = self._broken.get(kind)
            self._arrived += 1
            trouble = self._meets((handler.command, handler.path))
            is_lost = is_lost or trouble in {"lost", "silent"}
            end = self._end
            if end is not None and (
                self._arrived > end.number
                or (self._arrived == end.number and not end.is_carried_out)
            ):
                handler.close_connection = True
                if self._arrived == end.number:
                    end.end()
                return
            is_last = end is not None and self._arrived == end.number
            self._under_way += 1
        try:
            if isinstance(trouble, int):
                _refuse(handler, kind, trouble)
                return
            if trouble == "twice":
                self._ask(handler, body)
            self._pass_on(handler, body, status, is_lost=is_lost or is_last)
        finally:
            with self._lock:
                self._under_way -= 1
                self._is_idle.notify_all()
            if is_last and end is not None:
                end.end()

    def _pass_on(
        self, handler: BaseHTTPRequestHandler, body: bytes, status: int | None, *, is_lost: bool
    ) -> None:
        if self.delay_s:
            time.sleep(self.delay_s)  # what a network costs, and what a benchmark is about
        if status is not None:
            handler.send_response(status)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        answer, content = self._ask(handler, body)
        if is_lost:
            handler.close_connection = True
            return
        handler.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _OF_THE_HOP | {"content-length"}:
                handler.send_header(name, value)
        length = answer.headers["Content-Length"] if handler.command == "HEAD" else len(content)
        handler.send_header("Content-Length", str(length or 0))
        handler.end_headers()
        handler.wfile.write(content)

    def _ask(
        self, handler: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[http.client.HTTPResponse, bytes]:
        upstream = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_PATIENCE_S)
        try:
            upstream.putrequest(
                handler.command, handler.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in handler.headers.items():
                if name.lower() not in _OF_THE_HOP:
                    upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            content = answer.read()
        finally:
            upstream.close()
        return answer, content

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_PATIENCE_S)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self.close()


def _refuse(handler: BaseHTTPRequestHandler, kind: str, status: int) -> None:
    """Answer as S3 does that does not carry a request out."""
    code = _CODES.get(status, "SlowDown")
    if status == 404 and kind in {"Part", "Complete", "Abort"}:
        code = "NoSuchUpload"
    said = f"<Error><Code>{code}</Code><Message>the proxy</Message></Error>".encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/xml")
    handler.send_header("Content-Length", str(len(said)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(said)


class _Handler(BaseHTTPRequestHandler):
    owner: ClassVar[S3Proxy]
    protocol_version = "HTTP/1.1"
    # Head and body go by two writes: the second would wait for what a client acknowledges late,
    # some 40 ms, which no store does.
    disable_nagle_algorithm = True

    def handle_one(self) -> None:
        """Pass a request on."""
        self.owner.serve(self)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one  # noqa: N815 - the base's names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Say nothing."""
