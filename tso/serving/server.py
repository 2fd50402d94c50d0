"""Serve the oracle's protocol over TCP: all clients, back-pressure and drain around the machine.

One event loop; one thread beside it that writes batches.  Nothing is decided here.  Every buffer
has a bound: a client that sends faster than batches become durable is not read from, and what all
clients together may occupy is counted here; `connection.py` has the bounds of one.

So has the work of one turn of the loop: a connection gets so many requests of its own served, and
the next ones when the others had their turn.  A client that floods the server waits, no other does.
A request that takes long by itself waits for its time while others ask, see
`core/shares/heavy.py`, and is then served slice by slice between the turns of others, see
`slicing.py`.

While one client alone asks, again and again, the loop looks for its next request for a moment
before it sleeps, see `omidpy/base/timing/wakefulness.py`: not while a batch is flushed, whose
thread needs its turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, assert_never, cast

from omidpy.base.telemetry.metrics import Metrics
from omidpy.base.timing.clock import Clock
from omidpy.base.timing.wakefulness import Wakefulness
from omidpy.errors import StorageUnavailable
from omidpy.wire.messages import PeerCapabilities
from tso.core.events import (
    Answer,
    Asked,
    Close,
    Event,
    Flush,
    Flushed,
    FlushResult,
    Frames,
    Left,
    Now,
    Question,
    Send,
    Stopped,
    Stopping,
    Ticked,
    now_by,
)
from tso.core.machine import Machine
from tso.core.shares.hoards import worst_of
from tso.durable.lease import AnyLease
from tso.durable.persist import Persistence
from tso.serving.admission import FairTurns, Places
from tso.serving.connection import Connection
from tso.serving.conversation import Conversation
from tso.serving.flushing import AnyFlushThread, Flusher, Queueing
from tso.serving.log import log_event
from tso.serving.slicing import Slicing
from tso.serving.tls import ServerTls
from tso.serving.turns import Turns

logger = logging.getLogger(__name__)

MAX_CONNECTION_COUNT: Final = 4096
BACKLOG: Final = 1024
ACCEPTED_AT_ONCE: Final = 16
"""Connections taken in one turn.

One that is refused has its descriptor for four turns, which must be spare."""

MAX_BUFFERED_BYTES: Final = 64 * 1024 * 1024
"""Unfinished requests of all clients together; past it, the client that has the most is closed."""

MAX_UNSENT_BYTES_IN_ALL: Final = 64 * 1024 * 1024
"""Answers that all clients together leave unread; the same."""

WATCH_PERIOD_S: Final = 1.0
"""How often clients are looked at."""

MAX_DECIDED_BYTES: Final = 64 * 1024
"""Bytes of requests that are decided in one turn of the loop before the first answers leave.

They are those of several clients: what a turn of the loop brings is flushed together."""

DRAIN_S: Final = 2.0
"""How long the last answers may take to leave their sockets."""


class BrokenInvariant(Exception):
    """What was decided, written and answered may differ by now: nothing more is answered."""


def _broken_by(error: BaseException) -> BrokenInvariant:
    broken = BrokenInvariant(repr(error))
    broken.__cause__ = error
    return broken


_M = TypeVar("_M", bound=Callable[..., None])


def _or_the_end(method: _M) -> _M:
    """Let the server end where `method` fails: the loop would log the exception and go on."""

    @functools.wraps(method)
    def call(server: OracleServer, *args: Any) -> None:
        try:
            method(server, *args)
        except Exception as error:  # noqa: BLE001 - whatever it is, it was not foreseen
            server.end(_broken_by(error))

    return cast("_M", call)


class OracleServer:
    """The machine, its clients and its store, until one of them ends it."""

    def __init__(
        self,
        machine: Machine[Connection],
        persistence: Persistence,
        *,
        lease: AnyLease | None,
        capabilities: PeerCapabilities,
        clock: Clock,
        metrics: Metrics,
        worker: AnyFlushThread,
        connection_count: int = MAX_CONNECTION_COUNT,
        tls: ServerTls | None = None,
    ) -> None:
        """Prepare to serve.

        Args:
            machine: The oracle itself.
            persistence: Where its batches go.
            lease: Renewed while nothing is flushed; None for a store that persists nothing.
            capabilities: What clients that announce any feature are told.
            clock: What time it is.
            metrics: Where counters go.
            worker: The only one that uses `persistence` and `lease`, until `close`.
            connection_count: Clients at most; each takes a file descriptor.
            tls: How connections are made secure; None leaves them open.
        """
        self.loop = asyncio.get_running_loop()
        self.capabilities = capabilities
        self.max_commit_cells = machine.max_commit_cells
        self.writer_key = persistence.writer_key
        self.tls = tls
        self.buffered_bytes = 0
        self._machine = machine
        self._lease = lease
        self._clock = clock
        self._metrics = metrics
        self._worker = worker
        self._places: Places[Connection] = Places(
            connection_count, lambda connection: connection.asked_s
        )
        self._handshakes: FairTurns[Connection] = FairTurns()
        self._has_shaken = False
        """Whether a connection shook hands with TLS in this turn of the loop."""
        self._connections: set[Connection] = set()
        self._clients: dict[int, set[Connection]] = {}
        self._last_left = asyncio.Event()
        self._slicing = Slicing(machine, clock, soon=lambda: self.loop.call_soon(self._slice))
        self.turns: Turns[Connection] = Turns(
            machine,
            self,
            clock=clock,
            metrics=metrics,
            connections=self._connections,
            is_sliced=self._slicing.__contains__,
        )
        self._listener: asyncio.Server | None = None
        self._turn = Now(0, 0.0)
        self._asker: Connection | None = None
        """Who asked last."""
        self._several_ask = False
        """Whether in this turn another connection asked than before."""
        self._wakefulness = Wakefulness()
        self._may_look = (os.cpu_count() or 1) > 1
        self._is_looking = False
        self._is_releasing = False
        self._decided_bytes = 0
        self._told_about_clock = False
        self._told_about_hold = 0
        self._queueing = Queueing(metrics)
        self._flusher: Flusher[Connection] = Flusher(
            persistence, worker, loop=self.loop, metrics=metrics, then=self._flushed
        )
        self._ended: asyncio.Future[None] = self.loop.create_future()

    # -- life ----------------------------------------------------------------------------------

    async def listen(self, listening: socket.socket) -> None:
        """Answer from now on."""
        self._listener = await self.loop.create_server(
            lambda: Connection(self), sock=listening, backlog=ACCEPTED_AT_ONCE
        )
        listening.listen(BACKLOG)
        self._tick()
        self._watch()

    async def ended(self) -> None:
        """Wait for the end.

        Raises:
            LeaseLost: another instance answers now; every connection was closed.
            BrokenInvariant: what happened was not foreseen; the same, and so for what else a write
                may raise.
        """
        await asyncio.shield(self._ended)

    def stop(self) -> None:
        """Accept no client, answer what was asked, give the ceiling back; then `ended` returns."""
        if self._listener is not None:
            self._listener.close()
        self._slicing.finish_first()
        self._tell(Stopping(self._now()))

    async def close(self) -> None:
        """Give the thread back, let the last answers leave, then close every connection."""
        self._worker.close()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.close()
        if self._connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._last_left.wait(), DRAIN_S)
        for connection in list(self._connections):
            connection.abort("the oracle stops")

    @property
    def is_answering(self) -> bool:
        """Say whether requests are served."""
        return not self._ended.done() and not self._flusher.is_failing

    def connected(self) -> dict[str, int]:
        """Return how many connections each client has: by its name, or else by its address."""
        return dict(Counter(connection.who for connection in self._connections))

    def who_began(self, start_ts: int) -> list[str] | None:
        """Return which of those connected began a transaction; None if that is not remembered.

        They are named as in the log.  It may be none of them.
        """
        found = self._machine.began(start_ts, self._clients)
        if found is None:
            return None
        return sorted(one.peer for client in found for one in self._clients[client])

    # -- connections ---------------------------------------------------------------------------

    def admit(self, connection: Connection) -> str | None:
        """Take in a connection, or say why not."""
        self._connections.add(connection)
        self._last_left.clear()
        dropped = self._places.come(connection, connection.share)
        if dropped is not None:
            self._metrics.count("tso.connections.refused")
        if dropped is connection:
            return f"there are {self._places.count} connections already"
        if dropped is not None:
            dropped.abort("it has not shaken hands, and others came that may")
        return None

    def greet(self, connection: Connection) -> None:
        """Note who a connection belongs to: it shook hands.  It may be refused."""
        dropped = self._places.open(
            connection, connection.share, is_operator=connection.is_operator
        )
        if dropped is not None:
            self._metrics.count("tso.connections.refused")
            dropped.abort(self._places.standing(dropped.share))
        if dropped is connection:
            return
        if not connection.asks_to_invalidate:
            self._machine.has_omids_clients = True
        if connection.client:
            self._clients.setdefault(connection.client, set()).add(connection)

    def may_shake(self, connection: Connection) -> bool:
        """Say whether TLS may shake hands now; else `Connection.shake` is called in its turn."""
        if self._has_shaken:
            self._handshakes.wait(connection, connection.address_share)
            return False
        self._has_shaken = True
        self.loop.call_soon(self._shake_next)
        return True

    @_or_the_end
    def _shake_next(self) -> None:
        connection = self._handshakes.next()
        self._has_shaken = connection is not None
        if connection is not None:
            self.loop.call_soon(self._shake_next)
            connection.shake()

    def forget(self, connection: Connection) -> None:
        """Drop a connection that is closed."""
        self._connections.discard(connection)
        self._places.leave(connection)
        self.turns.forget(connection)
        self._slicing.forget(connection)
        self._handshakes.forget(connection, connection.address_share)
        if connection is self._asker:
            self._asker = None
        others = self._clients.get(connection.client, set())
        others.discard(connection)
        if not others:
            self._clients.pop(connection.client, None)
            if not connection.hands_on:
                self._tell(Left(self._now(), connection, connection.client))
        if not self._connections:
            self._last_left.set()

    def recheck(self, *, trusts_others: bool) -> None:
        """End the connections whose certificates no longer allow what they did."""
        for connection in list(self._connections):
            connection.recheck(trusts_others=trusts_others)

    def make_room(self) -> None:
        """Close the connections that keep the most, until unfinished requests fit."""
        while self.buffered_bytes > MAX_BUFFERED_BYTES:
            kept = {connection: connection.buffered_bytes for connection in self._connections}
            hoarder = worst_of(kept, lambda connection: connection.share)
            hoarder.abort(
                f"unfinished requests take more than {MAX_BUFFERED_BYTES} bytes, and of all "
                f"clients it keeps the most: {hoarder.buffered_bytes}"
            )

    @_or_the_end
    def _watch(self) -> None:
        """Look for requests that take too long to arrive, and for answers that stay unread."""
        if self._ended.done():
            return
        now_s = self.loop.time()
        for connection in self._connections:
            connection.check_time(now_s)
        unsent = {connection: connection.unsent_bytes for connection in self._connections}
        while sum(unsent.values()) > MAX_UNSENT_BYTES_IN_ALL:
            hoarder = worst_of(unsent, lambda connection: connection.share)
            hoarder.abort(
                f"unread answers take more than {MAX_UNSENT_BYTES_IN_ALL} bytes, and of all "
                f"clients it has the most: {unsent.pop(hoarder)}"
            )
        self.loop.call_later(WATCH_PERIOD_S, self._watch)

    def run(
        self,
        connection: Connection,
        conversation: Conversation,
        data: bytes | bytearray,
        at_most: int,
    ) -> tuple[int, int]:
        """Let the machine decide what is ordinary.

        Returns:
            How many bytes of `data`, and how many requests, that was.
        """
        if self._ended.done():
            return 0, 0
        if not self._is_releasing:
            self._release_soon()
        if connection is not self._asker:
            self._asker = connection
            self._several_ask = True
        connection.asked_s = self._turn.monotonic_s
        try:
            taken_bytes, count = self._machine.run(
                self._turn,
                connection,
                data,
                conversation.client,
                conversation.shows_watermark,
                conversation.tells_why,
                at_most,
            )
        except Exception as error:  # noqa: BLE001 - as in `_or_the_end`
            self.end(_broken_by(error))
            return 0, 0
        self._decided_bytes += taken_bytes
        if self._is_looking:
            self._end_turn()
        elif self._decided_bytes >= MAX_DECIDED_BYTES:
            self._release()
            self._turn = self._now()
        return taken_bytes, count

    def ask(self, connection: Connection, questions: list[Question]) -> None:
        """Put a client's questions to the machine."""
        if not self._is_releasing:
            self._release_soon()
        if connection is not self._asker:
            self._asker = connection
            self._several_ask = True
        connection.asked_s = self._turn.monotonic_s
        asked = [(connection, question) for question in questions]
        self._tell(Asked(self._turn, asked, connection.client, goes_on=True))
        if self._is_looking:
            self._end_turn()

    def _release_soon(self) -> None:
        """Let what is decided in this turn of the loop become durable, and leave, together.

        While the loop looks for what one client asks next, there is nothing to wait for.
        """
        self._is_releasing = True
        answered_s = self._turn.monotonic_s
        self._turn = self._now()
        self._wakefulness.came(self._turn.monotonic_s - answered_s)
        self._decided_bytes = 0
        if not self._is_looking:
            self.loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_releasing = False
        self._release()
        if self._several_ask:
            self._several_ask = False
            self._wakefulness.forget()
        if self._wakefulness.begin(self._turn.monotonic_s) and self._may_look:
            self._look_soon()

    def _look_soon(self) -> None:
        """Keep the loop awake for another turn."""
        if not self._is_looking and not self._flusher.is_busy:
            self._is_looking = True
            self.loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_looking = False
        if self._is_releasing or self._ended.done():
            return
        if self._wakefulness.goes_on(self._clock.monotonic_s()):
            self._look_soon()
        else:
            self._wakefulness.forget()

    def _release(self) -> None:
        self._decided_bytes = 0
        if self._lease is not None:
            # What leaves unflushed, leaves only while no other oracle can have the lease (I2): the
            # time is read anew, as this thread may have slept since the turn began.
            self._turn = self._now()
        self._tell(Asked(self._turn, ()))
        self.turns.wake()

    def read_long(self, connection: Connection, frame: bytearray) -> None:
        """Read a heavy request slice by slice; then `Connection.end_long` is called."""
        self._slicing.read(connection, frame)

    @_or_the_end
    def _slice(self) -> None:
        if not self._ended.done():
            self._slicing.go_on()

    @property
    def is_over(self) -> bool:
        """Whether nothing is answered any more."""
        return self._ended.done()

    def soon(self, callback: Callable[..., None], *args: Any) -> object:
        """Call back in the next turn of the loop; a failure there ends the server."""
        return self.loop.call_soon(self._call, callback, *args)

    def later(
        self, delay_s: float, callback: Callable[..., None], *args: Any
    ) -> asyncio.TimerHandle:
        """Call back after a while; a failure there ends the server."""
        return self.loop.call_later(delay_s, self._call, callback, *args)

    @_or_the_end
    def _call(self, callback: Callable[..., None], *args: Any) -> None:
        callback(*args)

    # -- events and effects --------------------------------------------------------------------

    def _now(self) -> Now:
        return now_by(self._clock)

    @_or_the_end
    def _tell(self, event: Event[Connection]) -> None:
        if self._ended.done():
            return
        if self._lease is not None:
            self._machine.vouched_until_s = self._lease.vouched_until_s
        now_s = event.now.monotonic_s
        if isinstance(event, Flushed):
            self._queueing.end()
        effects = self._machine.handle(event)
        if len(effects) > 1 and isinstance(effects[-1], Flush) and not self._flusher.is_instant:
            # Its thread begins while this one sends; what comes of it this one hears later.
            effects = [effects[-1], *effects[:-1]]
        for effect in effects:
            match effect:
                case Send():
                    self._send(effect.answers)
                case Close():
                    effect.ticket.close(effect.reason)
                case Flush():
                    self._queueing.take(effect.batch.answer_count, now_s)
                    self._flusher.flush(effect.batch, event.now)
                case Stopped():
                    self.end(None)
                case _:
                    assert_never(effect)
        self._queueing.look(self._machine.queue_length, now_s)

    @staticmethod
    def _send(answers: Sequence[tuple[Connection, Answer | Frames]]) -> None:
        """Send each connection what is for it, in one write."""
        parts: dict[Connection, list[bytes]] = {}
        for connection, answer in answers:
            data = answer.data if isinstance(answer, Frames) else connection.encode(answer)
            if connection in parts:
                parts[connection].append(data)
            else:
                parts[connection] = [data]
        for connection, frames in parts.items():
            connection.write(b"".join(frames))

    def end(self, error: BaseException | None) -> None:
        """Answer nothing any more; without an error everything was answered."""
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
            return
        self._ended.set_exception(error if isinstance(error, Exception) else _broken_by(error))
        for connection in list(self._connections):
            connection.abort("the oracle ends")

    # -- flushing ------------------------------------------------------------------------------

    @_or_the_end
    def _flushed(self, outcome: FlushResult | BaseException, now: Now | None) -> None:
        """Go on behind a flush, whose time is `now` if it took none."""
        if isinstance(outcome, BaseException):
            self.end(outcome)
            return
        self._tell(Flushed(now or self._now(), outcome))
        self.turns.wake()
        if not self._machine.is_filled:  # a commit that was looked up was long
            self._slicing.come_soon()

    # -- time ----------------------------------------------------------------------------------

    @_or_the_end
    def _tick(self) -> None:
        if self._ended.done():
            return
        now = self._now()
        self._tell(Ticked(now))
        if self._machine.time.rejected_lead_ms and not self._told_about_clock:
            self._told_about_clock = True
            lead_ms = self._machine.time.rejected_lead_ms
            log_event(logger, logging.ERROR, "clock-leapt", lead_ms=lead_ms, action="not-believed")
        self._metrics.gauge("tso.epoch", self._machine.epoch)
        self._metrics.gauge("tso.connections", len(self._connections))
        self._metrics.gauge("tso.connectionLimit", self._places.count)
        self._metrics.gauge("tso.queueLength", self._machine.queue_length)
        self._metrics.gauge("tso.maxTimestamp", self._machine.last_issued)
        self._metrics.gauge("tso.lowWatermark", self._machine.low_watermark)
        self._metrics.gauge("tso.transactionAge.seconds", self._machine.max_age_ms / 1000)
        if (map_age_ms := self._machine.map_age_ms) is not None:
            self._metrics.gauge("tso.mapAge.seconds", map_age_ms / 1000)
        lead_s = self._machine.time.rejected_lead_ms / 1000
        self._metrics.gauge("tso.clock.rejectedLead.seconds", lead_s)
        self._tell_who_holds()
        if self._lease is not None and self._lease.needs_renewal and not self._flusher.is_busy:
            self._worker.hand_over(self._lease.renew_if_due, self._renewed)
        self.loop.call_later(self._machine.tick_period_s(now), self._tick)

    def _tell_who_holds(self) -> None:
        """Name the transaction that keeps the low watermark back, and its client, once."""
        held = self._machine.held_back
        start_ts = 0 if held is None else held.start_ts
        self._metrics.gauge("tso.heldBackBy", start_ts)
        if held is not None and start_ts != self._told_about_hold:
            # Not the number that a client says of itself: who knows it could commit in its place.
            whose = (
                self._clients.get(held.client) if isinstance(held.client, int) else {held.client}
            )
            peers = ",".join(sorted(one.peer for one in whose or () if isinstance(one, Connection)))
            log_event(
                logger,
                logging.WARNING,
                "low-watermark-held",
                start_ts=start_ts,
                by=peers or "nobody-connected",
                left_s=held.left_ms // 1000,
            )
        self._told_about_hold = start_ts

    @_or_the_end
    def _renewed(self, outcome: BaseException | None) -> None:
        if isinstance(outcome, StorageUnavailable):
            log_event(logger, logging.WARNING, "lease-not-renewed", error=outcome)
        elif isinstance(outcome, BaseException):
            self.end(outcome)
