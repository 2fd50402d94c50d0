"""Who may hold a connection to the console, and for how long?

A connection at which nothing is asked has few places: who comes later takes that of the one that
has been silent for longest, at the address that has the most of them.  One that is asked has a time
for that, answer included, and an address has so many of these.  So no host keeps the others out by
connections at which it says nothing, reads nothing, or never comes to an end.

With TLS that begins before the handshake, which a host may never end either: until then a
connection has one of the few places, and `HANDSHAKE_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, Final, Protocol

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import get_remote_addr

from omidpy.wire.tls import name_in

MAX_CONNECTIONS: Final = 100
"""What is asked beyond them is answered with 503."""
MAX_SILENT_COUNT: Final = 32
MAX_AT_WORK_OF_ONE: Final = 40
LIFE_S: Final = 60.0
"""How long a request may take, from the beginning of the wait for it until its answer has left."""
HANDSHAKE_S: Final = 10.0


class Present(Protocol):
    """A connection that has a place."""

    transport: asyncio.Transport
    client: tuple[str, int] | None

    def __hash__(self) -> int: ...


class Crowd:
    """The connections of one console, each in the loop that serves it."""

    def __init__(self) -> None:
        """Begin with none."""
        from tso.serving.admission import Places  # noqa: PLC0415 - application
        from tso.serving.conversation import share_of_address  # noqa: PLC0415 - the same

        self._silent: Places[Present] = Places.of_silent(MAX_SILENT_COUNT)
        self._share_of: Callable[[str], Hashable] = share_of_address
        self._at_work: dict[Present, Hashable] = {}
        self._counts: Counter[Hashable] = Counter()

    def falls_silent(self, one: Present) -> None:
        """Note that nothing is asked at a connection; another one may have to go for it."""
        self.leave(one)
        dropped = self._silent.come(one, self._share(one))
        if dropped is not None:
            dropped.transport.abort()

    def asks(self, one: Present) -> None:
        """Note that a connection is asked; it goes if its address has too many of these."""
        if one in self._at_work:
            return
        share = self._share(one)
        self._silent.leave(one)
        if self._counts[share] >= MAX_AT_WORK_OF_ONE:
            one.transport.abort()
            return
        self._at_work[one] = share
        self._counts[share] += 1

    def leave(self, one: Present) -> None:
        """Forget a connection, if it is known."""
        self._silent.leave(one)
        if one in self._at_work:
            share = self._at_work.pop(one)
            self._counts[share] -= 1
            if not self._counts[share]:
                del self._counts[share]

    def _share(self, one: Present) -> Hashable:
        return self._share_of("?" if one.client is None else one.client[0])


class Guarded(H11Protocol):
    """A connection that has its place and its time, and tells who is at the other end."""

    def __init__(self, crowd: Crowd, **options: Any) -> None:
        """Begin before there is a connection; `options` are uvicorn's."""
        super().__init__(**options)
        self._crowd = crowd
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin, with the name in the certificate that was verified."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "peer": name_in(transport.get_extra_info("peercert"))}
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take what a client sends."""
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        """Wait for the next request; another may have come already."""
        self._wait()
        super().on_response_complete()
        self._note()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        if self._end is not None:
            self._end.cancel()
        self._crowd.leave(self)
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = self.loop.call_later(LIFE_S, self.transport.abort)
        if not self.transport.is_closing():
            self._crowd.falls_silent(self)

    def _note(self) -> None:
        is_asked = self.cycle is not None and not self.cycle.response_complete
        if is_asked and not self.transport.is_closing():
            self._crowd.asks(self)


class Shaking(asyncio.Protocol):
    """A connection that shakes hands with TLS, and is a `Guarded` one from then on.

    The event loop would do the handshake by itself, for as many as come, and tell nobody of them.
    """

    def __init__(self, crowd: Crowd, context: ssl.SSLContext, **options: Any) -> None:
        """Begin before there is a connection; `options` are uvicorn's."""
        self.transport: asyncio.Transport
        self.client: tuple[str, int] | None = None
        self._crowd = crowd
        self._context = context
        self._options = options
        self._connections: set[Any] = options["server_state"].connections
        self._said: list[bytes] = []
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Take a place among those that say nothing."""
        self.transport = transport
        self.client = get_remote_addr(transport)
        transport.pause_reading()  # whom the first bytes go to is not set yet
        self._connections.add(self)
        self._crowd.falls_silent(self)
        self._task = asyncio.get_running_loop().create_task(self._shake())

    def data_received(self, data: bytes) -> None:
        """Keep what came right behind the handshake."""
        self._said.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        del exc
        self._leave()
        if self._task is not None:
            self._task.cancel()

    def shutdown(self) -> None:
        """End, as uvicorn asks for where the console does."""
        self.transport.abort()

    async def _shake(self) -> None:
        sealed: asyncio.Transport | None = None
        # Who speaks no TLS, or goes away, is told by the loop or by nobody.
        with contextlib.suppress(OSError):
            sealed = await asyncio.get_running_loop().start_tls(
                self.transport,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
            )
        self._leave()
        if sealed is None or sealed.is_closing():
            self.transport.abort()
            return
        guarded = Guarded(self._crowd, **self._options)
        sealed.set_protocol(guarded)
        guarded.connection_made(sealed)
        for data in self._said:
            guarded.data_received(data)

    def _leave(self) -> None:
        self._connections.discard(self)
        self._crowd.leave(self)
