"""One open connection to the oracle, shared by every thread that asks something.

Requests are pipelined: many threads wait at once, and no thread is kept for sending or for reading.
One of them sends what is in line, its own request and those that others put there meanwhile, in one
system call (`base/outgoing.py`).  Of those who wait, one *leads*: it reads the socket and hands out
answers, its own and the others', and passes the lead on when it has its own.  A lone caller so pays
for one send and one read, and for no switch of threads.

It lacks reconnecting and repeating: a link that ended stays ended, and `oracle/links.py` opens the
next.  A request without an answer in its time ends the whole link, because the answer might still
come and be taken for another's.

Invariants:

* While a call waits on an open link, some thread leads or is about to: the lead is taken, passed
  and given up under `_lock`, together with the list of those who wait.
* While a request is in line on an open link, some thread sends or is about to.
* Every call registered with the connection is settled exactly once: by its answer, or by the end.
* A thread that an exception takes out of a call ends the link: half a request may be sent, half an
  answer read, and the lists may be torn.
* Requests are put in line in the order in which they are registered, both at once under `_lock`,
  and they are sent in the order of the line.
* A request that `LinkDown` calls not sent, the oracle never gets whole.
* The descriptor is closed when the last thread has left; until then it is only shut down, which
  wakes a reader and a writer, so that its number cannot be reused under them.
"""

from __future__ import annotations

import math
import select
import socket
import struct
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

from omidpy.base.outgoing import Outgoing
from omidpy.base.reach import reached
from omidpy.base.timing.clock import Clock
from omidpy.base.within import within
from omidpy.errors import ConfigError, LocalProtocolError, OmidError, RemoteProtocolError
from omidpy.model import Timestamp
from omidpy.oracle.network import SYSTEM_NETWORK, Network
from omidpy.oracle.tls import ClientTls, Refused, TlsSocket, secured
from omidpy.wire.connection import Answer, ClientConnection, Phase, Question
from omidpy.wire.frames import frame_request
from omidpy.wire.messages import (
    ALL_FEATURES,
    ALL_ROLES,
    CommitRequest,
    Feature,
    PeerCapabilities,
    Role,
)
from omidpy.wire.peers import check_not_ourselves, watch_peer

_READ_BYTES: Final = 16 * 1024
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class LinkDown(Exception):
    """The link ended before an answer came.  Never leaves this package.

    `was_sent` tells whether the oracle may have read the request, `cause` what it did wrong, if it
    was the oracle that broke the protocol.
    """

    def __init__(self, reason: str, *, was_sent: bool, cause: OmidError | None = None) -> None:
        """Keep why it ended, and whether the request had left."""
        super().__init__(reason)
        self.reason = reason
        self.was_sent = was_sent
        self.cause = cause


class _Call:
    """One request on its way: until when, what its thread sleeps on, and what it finds then."""

    __slots__ = ("answer", "deadline_s", "is_settled", "leads", "timeout_s", "wake")

    def __init__(self, deadline_s: float, timeout_s: float) -> None:
        self.deadline_s = deadline_s
        self.timeout_s = timeout_s
        self.answer: Answer | None = None
        self.is_settled = False
        self.leads = False
        self.wake: SimpleQueue[None] | None = None
        """None as long as its thread has led from the first."""


class Link:
    """A connection past its handshake.  Safe to share among threads."""

    def __init__(
        self,
        sock: socket.socket | TlsSocket,
        connection: ClientConnection[_Call],
        *,
        clock: Clock,
        network: Network = SYSTEM_NETWORK,
    ) -> None:
        """Take over a connected socket that does not block; `open_link` gets a link."""
        self._sock = sock
        self._connection = connection
        self._clock = clock
        self._readable = network.poller(sock, select.POLLIN)
        self._writable = network.poller(sock, select.POLLOUT)
        self._reader = network.reader(sock)
        self._outgoing: Outgoing[_Call] = Outgoing()
        self._lock = threading.Lock()
        self._followers: dict[_Call, None] = {}
        self._has_leader = False
        self._users: dict[_Call, None] = {}
        """The calls that threads are inside of, in the order in which they came."""
        self._failure: tuple[str, OmidError | None] | None = None
        self._is_reset = False
        self._has_ended = False
        self._gone = threading.Lock()
        """Free once the descriptor is closed."""
        self._gone.acquire()
        self.is_fit = False
        """Whether it was found to lead to the oracle that was wanted."""
        self.published_epoch = Timestamp(0)
        """The epoch that was found together with the address; 0 if none was."""
        self.recorded_epoch = Timestamp(0)
        """What was found in the store, once it had answered, of one that tells none; else 0."""
        # What follows the handshake says.  Each question looks at it, so that it is no property.
        self.capabilities = PeerCapabilities()
        """What the oracle told about itself; empty from Java's."""
        self.roles = ALL_ROLES
        """What the oracle lets us ask."""
        self.tells_fences = False
        """Whether a begin's answer says which fence is the newest, if there is one."""
        self.writes_cells = False
        """Whether the oracle said that it writes the cells of a commit."""

    # -- what the handshake said -------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the link has not ended; it may end at any moment."""
        return self._failure is None

    @property
    def is_refused(self) -> bool:
        """Whether the oracle declared us incompatible."""
        return self._connection.phase is Phase.REFUSED

    @property
    def is_low_latency(self) -> bool:
        """Whether the oracle leaves the commit table to its clients."""
        return self._connection.peer.is_low_latency

    @property
    def epoch(self) -> Timestamp:
        """The oracle's epoch: as it told, else as was published or recorded; 0: not known."""
        return self.capabilities.epoch or max(self.published_epoch, self.recorded_epoch)

    @property
    def last_start_ts(self) -> Timestamp:
        """The newest start timestamp received here or, before the first, on the link before."""
        return self._connection.last_start_ts

    def has_feature(self, feature: Feature) -> bool:
        """Say whether both sides announced an extension."""
        return self._connection.has_feature(feature)

    # -- asking ------------------------------------------------------------------------------------

    def call(self, question: Question, *, timeout_s: float, packed: bool = False) -> Answer:
        """Send a request and wait for its answer.

        Raises:
            LinkDown: if the link ended first, for instance because `timeout_s` passed.
            LocalProtocolError: if the request must not be sent here; the link is as before.
            UsageError: if the request is too large; the link is as before.

        Cost: 1 round trip.
        """
        frame = frame_request(question, packed=packed)
        call = _Call(self._clock.monotonic_s() + timeout_s, timeout_s)
        outgoing = self._outgoing
        try:
            within(self._lock, self._register, question, call, frame)
            while not call.is_settled:
                # Again whenever it was woken: one who has sent for long hands over so.  And before
                # it reads, since nobody can wake it then.
                if outgoing.line:
                    outgoing.send_on(self._send, call, self._hands_over)
                if call.leads:
                    self._read(call)
                elif not call.is_settled:  # as it may be by the end, while it sent
                    self._sleep(call)
            if call in self._users:
                within(self._lock, self._finish, call)
        except BaseException:
            self._abandon(call)
            raise
        if call.answer is None:
            raise self._down(was_sent=within(outgoing.sending, self._was_sent, call))
        return call.answer

    def _abandon(self, call: _Call) -> None:
        """Leave a call that an exception ended; where it had begun the link is of no more use."""
        # Half a request may be sent, half an answer read: the others ask again on the next link
        # (I11).
        if call in self._users:
            self.kill("a thread was interrupted while it used the connection")
        within(self._lock, self._leave, call)

    def shake_hands(self, *, timeout_s: float) -> None:
        """Open the conversation.  Only before the link is shared.

        Raises:
            LinkDown: if no answer came.
        """
        call = _Call(self._clock.monotonic_s() + timeout_s, timeout_s)
        self._outgoing.add(call, self._connection.handshake())
        self._outgoing.send_on(self._send, call, self._hands_over)
        while self._connection.phase is Phase.HANDSHAKING:
            self._read(call)
        if self._failure is not None:
            raise self._down(was_sent=False)
        self.capabilities = told = self._connection.peer.capabilities or PeerCapabilities()
        self.roles = ALL_ROLES if told.roles is None else Role(told.roles & ALL_ROLES)
        self.tells_fences = self.has_feature(Feature.NEWEST_FENCE)
        self.writes_cells = bool(told.features & Feature.COMMIT_CELLS)

    def kill(self, reason: str, cause: OmidError | None = None) -> None:
        """End the link: every call that waits raises `LinkDown`.  A second call does nothing."""
        within(self._lock, self._end, reason, cause)

    def wait_gone(self, timeout_s: float) -> None:
        """Wait until the descriptor of a killed link is closed.

        A request must not be repeated on a new connection while the old one could still deliver it.
        """
        if self._gone.acquire(timeout=timeout_s):
            self._gone.release()

    def forget(self) -> None:
        """Close the descriptor and nothing else: after a fork, the connection is the parent's."""
        self._sock.close()

    # -- sending -----------------------------------------------------------------------------------

    def _register(self, question: Question, call: _Call, frame: bytes) -> None:
        """Let `call` in and put its request in line, or raise.  Holds `_lock`."""
        if self._failure is not None:
            raise self._down(was_sent=False)
        if isinstance(question, CommitRequest) and self._is_over():
            reached("link.closed_while_idle", "I9")
            self._end("the oracle closed the idle connection", None)
            raise self._down(was_sent=False)
        self._users[call] = None
        try:
            self._connection.expect(question, call)
        except LocalProtocolError:  # nothing was registered
            self._users.pop(call, None)
            raise
        self._join(call)
        self._outgoing.add(call, frame)

    def _is_over(self) -> bool:
        """Say whether the oracle hung up while no call was under way.

        With nothing in flight, the one thing that can be read is the end; TLS may have something
        to tell itself besides.  To see the end in time spares a commit from being sent into the
        void, and its outcome from being in doubt.
        """
        if self._has_leader or self._connection.in_flight or not self._readable.poll(0):
            return False
        try:
            self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def _send(self, call: _Call) -> bool:
        """Send what is in line as one piece; say whether more can be.  Holds `sending`.

        Whatever ends it ends the link, by `call`'s time limit.
        """
        outgoing = self._outgoing
        try:
            while self._failure is None:
                piece = outgoing.piece()
                if not piece[0] or outgoing.push(piece, self._sock.send):
                    return True
                self._await_room(call)
        except OSError as error:
            self.kill(f"sending failed: {error}")
        return False

    def _await_room(self, call: _Call) -> None:
        """Wait until the socket takes bytes, or end the link; others read meanwhile."""
        within(self._lock, self._stand_back, call)
        left_s = call.deadline_s - self._clock.monotonic_s()
        if left_s <= 0 or not self._writable.poll(math.ceil(left_s * 1000)):
            self.kill(f"a request could not be sent within {call.timeout_s:g} s")
        within(self._lock, self._join, call)

    def _hands_over(self) -> bool:
        """Let a thread go on whose own request is in line; say whether one does.

        One that leads may not hear of it.  One that comes to lead looks at the line behind that, so
        that either it or this thread sees the other.
        """
        for other in tuple(self._outgoing.line):
            if not other.leads and other.wake is not None:
                other.wake.put(None)
                return not other.leads
        return False

    def _was_sent(self, call: _Call) -> bool:
        """Say whether the oracle may have a request, of a link that has ended.  Holds `sending`."""
        if isinstance(self._sock, TlsSocket):  # which is no C code, so that it may have sent more
            return not self._outgoing.is_untouched(call)
        return not self._outgoing.is_unsent(call)

    # -- waiting -----------------------------------------------------------------------------------

    def _join(self, call: _Call) -> None:
        """Let a call's thread lead if no other does, else follow.  Holds `_lock`."""
        if call.is_settled or call not in self._users:
            return
        if self._has_leader:
            if call.wake is None:
                call.wake = SimpleQueue()
            self._followers[call] = None
        else:
            self._has_leader = call.leads = True

    def _stand_back(self, call: _Call) -> None:
        """Take a call's thread, which is busy, from those who lead and follow.  Holds `_lock`."""
        self._followers.pop(call, None)
        if call.leads:
            call.leads = False
            self._pass_the_lead()

    def _sleep(self, call: _Call) -> None:
        """Wait until `call` is settled, or its thread is to do something."""
        assert call.wake is not None, "a follower has one"
        left_s = call.deadline_s - self._clock.monotonic_s()
        try:
            call.wake.get(timeout=max(0.0, left_s))
        except Empty:
            within(self._lock, self._time_out, call)

    def _time_out(self, call: _Call) -> None:
        self._followers.pop(call, None)
        if not call.is_settled and not call.leads:
            self._end(f"a request got no answer within {call.timeout_s:g} s", None)

    def _pass_the_lead(self) -> None:
        for follower in self._followers:
            follower.leads = True
            self._wake(follower)
            del self._followers[follower]
            return
        self._has_leader = False

    def _read(self, call: _Call) -> None:
        """Wait for bytes and hand out what they complete, or end the link."""
        left_s = call.deadline_s - self._clock.monotonic_s()
        if left_s <= 0:
            self.kill(f"a request got no answer within {call.timeout_s:g} s")
            return
        try:
            data = self._reader.read(_READ_BYTES, left_s, is_alone=len(self._users) == 1)
        except BlockingIOError:
            return
        except Refused as error:
            self.kill(f"the oracle ended TLS: {error}", ConfigError(str(error)))
            return
        except OSError as error:
            self.kill(f"reading failed: {error}")
            return
        within(self._lock, self._hand_out, data, call)

    def _hand_out(self, data: bytes, reader: _Call) -> None:
        """Give the answers in `data` to their calls.  Holds `_lock`.

        The thread that reads leaves here, if its own is among them.
        """
        if self._failure is not None:
            return
        if not data:
            where = " in the middle of an answer" if self._connection.is_inside_frame else ""
            self._end(f"the oracle closed the connection{where}", None)
            return
        try:
            for call, answer in self._connection.receive(data):
                self._settle(call, answer)
        except RemoteProtocolError as error:
            self._end(f"the oracle broke the protocol: {error}", error)
        if reader.is_settled:
            self._finish(reader)

    def _settle(self, call: _Call, answer: Answer) -> None:
        call.answer = answer
        call.is_settled = True
        if call in self._followers:
            self._wake(call)
            del self._followers[call]

    @staticmethod
    def _wake(call: _Call) -> None:
        if call.wake is not None:
            call.wake.put(None)

    # -- ending ------------------------------------------------------------------------------------

    def _end(self, reason: str, cause: OmidError | None) -> None:
        """End the link, once; go on where an exception stopped it.  Holds `_lock`."""
        if self._has_ended:
            return
        self._failure = self._failure or (reason, cause)
        self._is_reset |= any(not call.is_settled for call in self._users)
        self._connection.end()
        for call in self._users:
            call.is_settled = True
            self._wake(call)
        with suppress(OSError):
            if self._is_reset:
                # What is still in our send buffer must not reach the oracle after a repetition.
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            if self._users:
                self._sock.shutdown(socket.SHUT_RDWR)
        if not self._users:
            self._close()
        self._has_ended = True

    def _finish(self, call: _Call) -> None:
        """Pass on the lead, then take the thread out.  Holds `_lock`."""
        if call.leads:
            self._pass_the_lead()
            call.leads = False
        self._leave(call)

    def _leave(self, call: _Call) -> None:
        """Take a thread out.  Holds `_lock`."""
        self._users.pop(call, None)
        if self._failure is not None and not self._users:
            self._close()

    def _close(self) -> None:
        self._sock.close()
        if self._gone.locked():
            self._gone.release()

    def _down(self, *, was_sent: bool) -> LinkDown:
        reason, cause = self._failure or ("the connection ended", None)
        return LinkDown(reason, was_sent=was_sent, cause=cause)


def open_link(
    address: tuple[str, int],
    *,
    connect_timeout_s: float,
    handshake_timeout_s: float,
    after_ts: Timestamp,
    client: int | None = None,
    hands_on: bool = False,
    tls: ClientTls | None = None,
    clock: Clock,
    network: Network = SYSTEM_NETWORK,
) -> Link:
    """Connect, shake hands and return the link; the oracle may have refused us all the same.

    Args:
        address: Host and port.
        connect_timeout_s: For each address that the host's name stands for.
        handshake_timeout_s: For the oracle's first answer.
        after_ts: Every start timestamp must be greater than this one.
        client: Who we are; only the same client may commit what it began.
        hands_on: Whether another process goes on as this client, so that its holds outlast us.
        tls: How to make the connection secure; None leaves it open.
        clock: What time limits are measured by.
        network: How the oracle is reached.

    Raises:
        Refused: if the two ends cannot agree upon TLS.
        OSError: if no server accepts the connection.
        LinkDown: if the handshake got no answer, or a wrong one.
    """
    sock: socket.socket | None = None
    link: Link | None = None
    try:
        sock = network.connect(address, timeout_s=connect_timeout_s)
        check_not_ourselves(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        watch_peer(sock)
        connection: ClientConnection[_Call] = ClientConnection(
            features=ALL_FEATURES | Feature.HANDS_ON if hands_on else ALL_FEATURES,
            after_ts=after_ts,
            client=client,
        )
        ready: socket.socket | TlsSocket = sock
        if tls is None:
            sock.setblocking(False)
        else:
            ready = secured(sock, tls, host=address[0], timeout_s=handshake_timeout_s, clock=clock)
        link = Link(ready, connection, clock=clock, network=network)
        link.shake_hands(timeout_s=handshake_timeout_s)
        return link
    except BaseException:
        if link is not None:
            link.kill("the handshake failed")
        if sock is not None:
            sock.close()
        raise
