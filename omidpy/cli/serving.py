"""Shows what is registered with prometheus_client to a scraper, beside what this process is for.

A connection is a thread and a descriptor here, and those that nobody limits are taken from the work
itself.  So there are few at a time, and each for so long: who comes later takes the place of the
one that has been there for longest, at the address that has the most of them.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable, Hashable
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

from omidpy.base.within import within

MAX_CONNECTIONS: Final = 32
LIFE_S: Final = 30.0
"""How long a connection lasts at most; some numbers are counted in the store first."""
LOOK_S: Final = 0.5
BACKLOG: Final = 128
_LACKS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class MetricsServer(ThreadingMixIn, WSGIServer):
    """A server of one page, in a thread of its own, until the process ends."""

    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(self, *args: Any, **options: Any) -> None:
        """Bind the address."""
        from tso.serving.admission import Places  # noqa: PLC0415 - application
        from tso.serving.conversation import share_of_address  # noqa: PLC0415 - the same

        self._places: Places[socket.socket] = Places.of_silent(MAX_CONNECTIONS)
        self._share_of: Callable[[str], Hashable] = share_of_address
        self._came_s: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(*args, **options)

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; where there is no descriptor for it, wait a moment.

        It stays in the backlog, and who looked again at once would do nothing else.
        """
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _LACKS:
                time.sleep(LOOK_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own; another connection may have to go for it."""
        share = self._share_of(str(client_address[0]))
        dropped = within(self._lock, self._come, request, share)
        # Outside the lock, which the thread takes that this wakes.
        if dropped is not None:
            _hang_up(dropped)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, and give its place back."""
        within(self._lock, self._leave, request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that has gone, or was made to go: that is each one's to do."""

    def service_actions(self) -> None:
        """End the connections that are over; called now and then."""
        until_s = time.monotonic() - LIFE_S
        for one in within(self._lock, self._before, until_s):
            _hang_up(one)

    def _come(self, one: socket.socket, share: Hashable) -> socket.socket | None:
        self._came_s[one] = time.monotonic()
        dropped = self._places.come(one, share)
        if dropped is not None:
            self._came_s.pop(dropped, None)
        return dropped

    def _leave(self, one: socket.socket) -> None:
        self._places.leave(one)
        self._came_s.pop(one, None)

    def _before(self, until_s: float) -> list[socket.socket]:
        return [one for one, came_s in self._came_s.items() if came_s < until_s]


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing of each request."""


def serve(host: str, port: int) -> MetricsServer:
    """Listen, and answer in threads.

    Raises:
        OSError: the address cannot be listened on.
    """
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    kind = type("_Server", (MetricsServer,), {"address_family": family})
    server: MetricsServer = make_server(host, port, make_wsgi_app(), kind, handler_class=_Silent)
    threading.Thread(
        target=server.serve_forever, args=(LOOK_S,), name="metrics", daemon=True
    ).start()
    return server


def _hang_up(one: socket.socket) -> None:
    """Wake the thread that reads or writes, which closes the connection."""
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
