"""One socket to one service of one server, shared by threads, with many calls in flight.

Calls are told apart by their ids, and answered in any order: **the server executes the calls of one
connection at the same time**.  Who needs an order waits for an answer, or puts both into one Multi.

There is no thread of its own.  One of the threads that wait reads for all, until its own answer has
come; then another one does.  So a lone caller pays for no switch of threads.  Likewise one of those
that have something to send sends for all, in one system call what came while he was in the one
before (`base/outgoing.py`).

What is kept here:

* an answer goes to the call that it answers, also where others were given up before it came
* `NotSent` says that the server has certainly not executed a call, since it executes whole frames;
  who sends for others, and cannot, learns nothing by it of his own call
* a thread that an exception takes out of a call, at whatever line, harms no other call: only where
  a part of a frame was sent, and not the rest, is the connection of no more use; nor is it where
  the exception came while bytes were sealed or opened (`layers.py`)
* every wait has an end

It knows nothing of retries.
"""

from __future__ import annotations

import contextlib
import getpass
import itertools
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from typing import Final

from omidpy.base.outgoing import Outgoing
from omidpy.base.within import within
from omidpy.errors import RemoteProtocolError
from omidpy.storage.hbase.native.connections.opening import objection, open_conversation
from omidpy.storage.hbase.native.faults import (
    CallFailed,
    Disagreed,
    Fault,
    Garbled,
    GivenUp,
    Lost,
    NotSent,
    TooLarge,
    Unanswered,
)
from omidpy.storage.hbase.native.security.layers import Layer
from omidpy.storage.hbase.native.security.settings import OPEN, Security
from omidpy.storage.hbase.native.wire import answers, frames
from omidpy.storage.hbase.native.wire.answers import Answer
from omidpy.storage.hbase.native.wire.frames import FrameSplitter
from omidpy.wire.peers import (
    PATIENT_OPTIONS,
    check_not_ourselves,
    watch_peer,
    without_descriptors,
)

RECEIVE_BYTES: Final = 64 * 1024
"""Bytes of one system call, more where a longer frame has begun."""
MOST_RECEIVE_BYTES: Final = 1024 * 1024

LOOK_S: Final = 1.0
"""How often one who waits for another thread to read looks by himself."""
_LONGEST_READ_S: Final = 1
"""How long the system call waits that reads, unless it is to be shorter."""
_LONGEST_READ: Final = struct.pack("ll", _LONGEST_READ_S, 0)
_TORN: Final = "a call was given up while its answer was being decrypted"
DOUBT_S: Final = 5.0
"""After how long without a byte from the server its caller is asked whether it is still right."""
SLOW_S: Final = 1.0
"""From how long on a server may have stood still that has not answered, and did so then."""
_MAX_ID: Final = 2**31 - 1


class Waiting:
    """A call in flight, and its answer when that has come."""

    __slots__ = ("answer", "came_s", "id", "is_awaited", "method", "sent_s", "wake")

    def __init__(self, call_id: int, method: str) -> None:
        """Begin without an answer."""
        self.id = call_id
        self.method = method
        self.answer: Answer | CallFailed | None = None
        self.wake: SimpleQueue[None] = SimpleQueue()
        self.is_awaited = False
        """Whether a thread waits for it now, and so may be asked to read."""
        self.sent_s = time.monotonic()
        self.came_s = self.sent_s
        """When the answer came."""


class Connection:
    """A connection; safe to share among threads, not after a fork."""

    def __init__(
        self,
        connected: socket.socket,
        *,
        where: str,
        max_frame_bytes: int = frames.MAX_FRAME_BYTES,
        layer: Layer | None = None,
        objection: Callable[[], Disagreed | None] = lambda: None,
        secured: str = OPEN.described(),
    ) -> None:
        """Speak over a connected socket, whose opening has been sent.

        Args:
            connected: It is closed with the connection.
            where: The server, for messages.
            max_frame_bytes: The longest answer that is read, and request that is sent.
            layer: Seals what is sent and opens what arrives; None: both are as they are.
            objection: Finds out why a server says nothing, where it never has on this connection.
            secured: What secures the connection, in a few words.
        """
        # Who reads waits in the one system call that reads; no other call on it waits.
        connected.setblocking(True)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _LONGEST_READ)
        self._socket = connected
        self.where = where
        self.secured = secured
        self._max_frame_bytes = max_frame_bytes
        self._layer = layer
        self._arrived: list[bytes] = []
        """Pieces that the layer has not opened."""
        self._is_opening = False
        """Whether the layer opens now, or was interrupted while it did."""
        self._is_heard = False
        """Whether an answer has ever come."""
        self._objection = objection
        self._objected: tuple[Disagreed | None] | None = None
        self._ids = itertools.count(1)
        self._splitter = FrameSplitter(max_frame_bytes)
        self._outgoing: Outgoing[int] = Outgoing()
        self._pending: dict[int, Waiting] = {}
        self._lock = threading.Lock()
        self._receiving = threading.Lock()
        self._explaining = threading.Lock()
        self._reader: Waiting | None = None
        self._reads_s = 0.0
        """When the one who reads last began to wait for bytes."""
        self._came_s = time.monotonic()
        """When bytes last came."""
        self._came_again_s = -inf
        """When they last did behind a silence of `DOUBT_S`."""
        self._broken: CallFailed | None = None
        self._readable = select.poll()
        self._readable.register(connected, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(connected, select.POLLOUT)

    @property
    def has_ended(self) -> bool:
        """Whether it is of no more use.  Cost: 1 system call, while no call is under way."""
        if self._broken is None and not self._pending:
            # No thread reads, so none has noticed that the server closed it.
            if self._layer is not None:
                # What can be read may be the layer's own, and the end as well.
                within(self._receiving, self._receive, 0.0)
                return self._broken is not None
            try:
                if not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                    self._end(Lost("the server closed the connection"))
            except BlockingIOError:
                return False
            except OSError as error:
                self._end(Lost(f"the connection broke: {error}"))
        return self._broken is not None

    def call(
        self,
        method: str,
        body: bytes,
        cells: bytes = b"",
        *,
        until_s: float,
        priority: int = 0,
        is_replaced: Callable[[], bool] | None = None,
    ) -> Answer:
        """Make a call and return its answer.

        Args:
            method: As the service's `rpc` is spelt.
            body: The parameter, encoded.
            cells: The block of cells.
            until_s: When to give up, by `time.monotonic`.
            priority: 0 is normal; calls about the catalogue have 200.
            is_replaced: As in `wait`.

        Raises:
            Fault: the server's answer was an exception.
            NotSent: the server has certainly not executed it.
            Lost: the connection ended before the answer came.
            Unanswered: it did not come in time.
            Garbled: what came is no answer.
        """
        waiting = self.send(method, body, cells, until_s=until_s, priority=priority)
        return self.wait(waiting, until_s=until_s, is_replaced=is_replaced)

    # -- sending -----------------------------------------------------------------------------------

    def send(
        self, method: str, body: bytes, cells: bytes = b"", *, until_s: float, priority: int = 0
    ) -> Waiting:
        """Send a call; return what `wait` takes, which must be called or `forget`.  As `call`."""
        if len(body) + len(cells) > self._max_frame_bytes:
            raise TooLarge(
                f"the request has {len(body) + len(cells)} bytes, and HBase takes "
                f"{self._max_frame_bytes}"
            )
        waiting = Waiting(next(self._ids) & _MAX_ID, method)
        timeout_ms = max(20, int(1000 * (until_s - waiting.sent_s)))
        frame = frames.request(
            waiting.id, method, body, cells, priority=priority, timeout_ms=timeout_ms
        )
        try:
            self._pending[waiting.id] = waiting
            self._outgoing.add(waiting.id, frame)
            self._outgoing.send_on(self._send, (waiting, until_s), self._hands_over)
            if self._broken is not None:
                within(self._outgoing.sending, self._check_sent, waiting)
        except NotSent as error:
            self._drop(waiting)
            if isinstance(self._broken, Lost | Garbled) and (why := self._explained()) is not None:
                raise why from error
            raise
        except BaseException:
            self._drop(waiting)
            raise
        return waiting

    def _check_sent(self, waiting: Waiting) -> None:
        """Raise where the connection ended before a call was sent whole.  Holds `sending`."""
        if self._outgoing.is_unsent(waiting.id):
            raise NotSent(f"the connection has ended: {self._broken}") from self._broken

    def _drop(self, waiting: Waiting) -> None:
        self._outgoing.withdraw(waiting.id)
        self._pending.pop(waiting.id, None)

    def _hands_over(self) -> bool:
        """Let a thread go on whose own call is in line; say whether one does.

        One that reads may not hear of it.  One that begins to read looks at the line behind that,
        so that either it or this thread sees the other.
        """
        for number in tuple(self._outgoing.line):
            other = self._pending.get(number)
            if other is not None and other is not self._reader:
                other.wake.put(None)
                return other is not self._reader
        return False

    def _send(self, turn: tuple[Waiting, float]) -> bool:
        """Send what is in line as one piece, whole; say whether more can be.  Holds `sending`.

        `turn` is the call of the thread that sends, and until when it may.  `NotSent` is of that
        call alone: it may have gone before those of others that are in line now, and be executed.
        """
        waiting, until_s = turn
        outgoing = self._outgoing
        seal = None if self._layer is None else partial(self._sealed, self._layer)
        try:
            while self._broken is None:
                piece = outgoing.piece(seal)
                if not piece[0] or outgoing.push(piece, self._socket.send):
                    break
                if not self._has_room(waiting, until_s):
                    return False  # what is left is others', who go on with it for longer
        except OSError as error:
            if self._layer is not None:
                # What the server said before it hung up may be why.
                within(self._receiving, self._receive, 0.0)
                if isinstance(self._broken, Disagreed):
                    raise Disagreed(*self._broken.args) from error
            self._end(Lost(f"the connection broke: {error}"))
        except BaseException as error:
            # A frame of which the server has a part spoils what follows it; one that was not begun
            # goes back into the line, and harms no other call (I11).  What the layer has counted
            # has to be sent, too.
            if outgoing.is_begun or self._layer is not None:
                self._end(GivenUp("a call was given up while it was being sent"))
            else:
                outgoing.put_back()
            if isinstance(error, NotSent) and not outgoing.is_unsent(waiting.id):
                return False
            outgoing.withdraw(waiting.id)  # now, while nobody can send it all the same
            raise
        return self._broken is None

    def _sealed(self, layer: Layer, data: bytes) -> bytes:
        """Return what to send.  Holds `sending`."""
        try:
            return layer.seal(data)
        except CallFailed as error:
            raise NotSent(f"the call could not be encrypted: {error}") from error

    def _has_room(self, waiting: Waiting, until_s: float) -> bool:
        """Wait until the server takes bytes; say whether it does.  Holds `sending`.

        Raises:
            NotSent: it does not, and this call has not been sent.
        """
        left_s = until_s - time.monotonic()
        if left_s > 0 and self._writable.poll(1000 * left_s):
            return True
        if self._outgoing.is_unsent(waiting.id):
            raise NotSent("the server takes no more bytes")
        return False

    # -- waiting -----------------------------------------------------------------------------------

    def wait(
        self, waiting: Waiting, *, until_s: float, is_replaced: Callable[[], bool] | None = None
    ) -> Answer:
        """Return the answer to a call that was sent; as `call`.

        Args:
            waiting: What `send` has returned.
            until_s: When to give up.
            is_replaced: Asked each time when the server has said nothing to anybody for `DOUBT_S`:
                whether another one is in its place, so that no call need wait for this one.
        """
        doubt_s = waiting.sent_s + DOUBT_S
        try:
            while waiting.answer is None:
                self._wait_once(waiting, until_s)
                if is_replaced is None or waiting.answer is not None or time.monotonic() < doubt_s:
                    continue
                if self._came_s < waiting.sent_s and is_replaced():
                    self._end(Lost("the server says nothing, and another one is in its place"))
                doubt_s = time.monotonic() + DOUBT_S
        except BaseException:
            self._outgoing.withdraw(waiting.id)
            self.forget(waiting)
            raise
        self.forget(waiting)
        found = waiting.answer
        if isinstance(found, CallFailed):
            if within(self._outgoing.sending, self._outgoing.is_unsent, waiting.id):
                found = NotSent(f"the connection has ended: {found}")
            if isinstance(found, Lost | Garbled) and (why := self._explained()) is not None:
                # It was sent whole, perhaps to another server than the one that explains itself.
                why.is_certain = False
                raise why from found
            # Each thread gets one of its own: it is given a traceback and a cause.
            raise _copied(found)
        if found.fault is not None:
            raise found.fault
        return found

    def _wait_once(self, waiting: Waiting, until_s: float) -> None:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise Unanswered(f"no answer to {waiting.method}")
        reads = within(self._lock, self._may_read, waiting)
        if self._outgoing.line:  # of one who handed over, or was taken out
            self._outgoing.send_on(self._send, (waiting, until_s), self._hands_over)
        if reads:
            within(self._receiving, self._receive, min(left_s, LOOK_S))
        else:
            with contextlib.suppress(Empty):
                waiting.wake.get(timeout=min(left_s, LOOK_S))

    def _may_read(self, waiting: Waiting) -> bool:
        """Say whether a call's thread is to read for all.  Holds `_lock`."""
        waiting.is_awaited = True
        now_s = time.monotonic()
        if self._reader is None or self._reader is waiting or now_s - self._reads_s > 3 * LOOK_S:
            # The last one was taken out of its call, and could not say so; were it still reading,
            # the two would take turns.
            self._reader, self._reads_s = waiting, now_s
            return True
        return False

    def forget(self, waiting: Waiting) -> None:
        """Expect no answer to a call any more; the one that comes is dropped."""
        within(self._lock, self._leave, waiting)

    def _leave(self, waiting: Waiting) -> None:
        self._pending.pop(waiting.id, None)
        waiting.is_awaited = False
        if self._reader is not waiting and self._reader is not None:
            return
        self._reader = None
        for other in tuple(self._pending.values()):
            if other.is_awaited:
                other.wake.put(None)
                return

    def _explained(self) -> Disagreed | None:
        """Return why a server has never answered, if it says so when it is asked, once."""
        if self._is_heard or isinstance(self._broken, GivenUp):
            return None
        return within(self._explaining, self._explain)

    def _explain(self) -> Disagreed | None:
        if self._objected is None:
            self._objected = (self._objection(),)
        (found,) = self._objected
        return None if found is None else Disagreed(*found.args)

    # -- receiving ---------------------------------------------------------------------------------

    def _receive(self, patience_s: float) -> None:
        """Take what comes within some seconds, and give each answer to its call.

        Holds `_receiving`.  An exception at any line leaves nothing half done; see `FrameSplitter`.
        """
        if self._broken is not None:
            return
        try:
            # What one who was interrupted has left behind comes first.
            if self._layer is not None and (self._arrived or self._is_opening):
                self._open(self._layer)
            if self._splitter.is_begun and self._give_out():
                return
            if patience_s < _LONGEST_READ_S and not self._readable.poll(1000 * patience_s):
                return
            size = min(MOST_RECEIVE_BYTES, max(RECEIVE_BYTES, self._splitter.missing))
            # In C alone, so that no exception comes between what was taken and its being kept.
            kept = self._splitter.incoming if self._layer is None else self._arrived
            kept.extend(map(self._socket.recv, (size,)))
            self._note_arrival(time.monotonic())
            if self._layer is not None:
                self._open(self._layer)
            self._give_out()
            if self._splitter.has_ended:
                self._end(Lost("the server closed the connection"))
        except BlockingIOError:
            return
        except OSError as error:
            self._end(Lost(f"the connection broke: {error}"))
        except Disagreed as error:
            # Of one that has answered calls already, it says nothing of those in flight.
            is_certain = not self._is_heard
            self._end(error if is_certain else Lost(f"the server ended the connection: {error}"))
        except (Garbled, RemoteProtocolError) as error:
            self._end(Garbled(str(error)))
        except BaseException:
            if self._is_opening:
                self._end(GivenUp(_TORN))
            raise

    def _note_arrival(self, now_s: float) -> None:
        if now_s - self._came_s > DOUBT_S:
            self._came_again_s = now_s
        self._came_s = now_s

    def _open(self, layer: Layer) -> None:
        """Give the splitter what arrived pieces say.  Holds `_receiving`.

        The layer must open each piece once, so one who is interrupted meanwhile leaves a
        connection of no more use.
        """
        if self._is_opening:
            self._arrived.clear()
            self._is_opening = False
            self._end(GivenUp(_TORN))
            return
        self._is_opening = True
        while self._arrived:
            piece = self._arrived[0]
            said = layer.open(piece) if piece else b""
            if said:
                self._splitter.incoming.append(said)
            if not piece or layer.is_over:
                self._splitter.incoming.append(b"")
                self._arrived.clear()
                break
            del self._arrived[0]
        self._is_opening = False

    def _give_out(self) -> bool:
        """Give each answer that is there to its call; say whether there was one."""
        is_any = False
        for frame in self._splitter.frames():
            is_any = True
            self._deliver(answers.answer(frame))
        return is_any

    def _deliver(self, answer: Answer) -> None:
        if answer.call_id == answers.SERVERS_OWN:
            fault = answer.fault
            if fault is None:
                self._end(Garbled("the server answered to no call"))
            elif self._is_heard:
                # It has taken the opening, so what it says may be of one of the calls in flight,
                # and nothing of the others, which may have been executed.
                self._end(Lost(f"the server ended the connection: {fault.gist}"))
            else:
                self._end(fault)
            return
        self._is_heard = True
        waiting = self._pending.get(answer.call_id)
        if waiting is None:
            return  # it was given up
        waiting.answer, waiting.came_s = answer, self._came_s
        self._pending.pop(answer.call_id, None)
        if waiting is not self._reader:
            waiting.wake.put(None)

    # -- the end -----------------------------------------------------------------------------------

    def doubt(self, waiting: Waiting) -> None:
        """Note that a call was waited for in vain, as long as any is; end what says nothing."""
        if self._came_s < waiting.sent_s:
            self._end(Lost("the server has said nothing for as long as a call may take"))

    def came_behind_silence(self, waiting: Waiting) -> bool:
        """Say whether an answer is among the first behind a time of silence."""
        return 0 <= waiting.came_s - self._came_again_s < SLOW_S

    def believe(self) -> None:
        """Note that the server, which was silent for a while, is still the one that is meant."""
        self._came_again_s = -inf

    def _end(self, error: CallFailed) -> None:
        """Make no more calls, and tell those that wait."""
        if self._broken is None:
            self._broken = error
        with contextlib.suppress(OSError):
            # The descriptor stays: another thread may be about to use it, and its number would be
            # given to the next socket.
            self._socket.shutdown(socket.SHUT_RDWR)
        for waiting in tuple(self._pending.values()):
            if waiting.answer is None:
                waiting.answer = error
                waiting.wake.put(None)

    def close(self) -> None:
        """End the connection; calls in flight fail.  A second call does nothing."""
        self._end(GivenUp("the connection was closed"))
        within(self._outgoing.sending, self._close_receiving)

    def _close_receiving(self) -> None:
        within(self._receiving, self._socket.close)

    def abandon(self) -> None:
        """Close this process's descriptor without a word: another process uses the connection."""
        self._broken = NotSent("the connection is another process's")
        self._socket.close()


def _copied(error: CallFailed) -> CallFailed:
    if isinstance(error, Fault):
        return error.copy()
    return type(error)(*error.args)


def connect(
    host: str,
    port: int,
    service: str,
    *,
    user: str,
    timeout_s: float,
    max_frame_bytes: int,
    security: Security = OPEN,
    is_first: bool = False,
) -> Connection:
    """Connect to a service of a server.

    Args:
        host: Of the server.
        port: Of the server.
        service: As HBase calls it.
        user: Who calls, where HBase believes it.
        timeout_s: How long it may take.
        max_frame_bytes: The longest answer that is read, and request that is sent.
        security: What else secures the conversation.
        is_first: No server has ever answered: one that says nothing is asked what it misses.

    Raises:
        NotSent: no server listens there, or the name is unknown; its cause says which.
        Disagreed: the server wants to be spoken to in another way.
        NoTicket: we cannot prove who we are.
    """
    where = f"{host}:{port}"
    if not 0 < port < 2**16:
        # The system's resolver may cut it, and lead to whatever listens there.
        raise NotSent(f"{where} cannot be reached: it is no port")
    connected: socket.socket | None = None
    try:
        connected = socket.create_connection((host, port), timeout=timeout_s)
        check_not_ourselves(connected)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        watch_peer(connected, PATIENT_OPTIONS)
        layer, secured = open_conversation(
            connected,
            service,
            user=user,
            security=security,
            host=host,
            until_s=time.monotonic() + timeout_s,
        )
        return Connection(
            connected,
            where=where,
            max_frame_bytes=max_frame_bytes,
            layer=layer,
            objection=partial(objection, host, port, security) if is_first else lambda: None,
            secured=secured,
        )
    except (OSError, ValueError, OverflowError) as error:
        # Of the latter two, a name or a port that is none, which a server has told.
        if connected is not None:
            connected.close()
        reason: Exception = error
        if isinstance(error, socket.gaierror):
            reason = without_descriptors() or error
        raise NotSent(f"{where} cannot be reached: {reason}") from reason
    except (Garbled, RemoteProtocolError) as error:
        if connected is not None:
            connected.close()
        raise NotSent(f"{where} says nothing that is understood: {error}") from error
    except BaseException:
        if connected is not None:
            connected.close()
        raise


def own_user() -> str:
    """Return the name that this process is known by."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"
