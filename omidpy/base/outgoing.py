"""Requests of several threads on their way to one socket, and how far they have come.

A thread puts its request in line.  One of them sends for all: what is in line by then goes as one
piece, in one system call, while the others already wait for their answers.

An exception that takes the sender out at any line loses nothing and sends nothing twice: a request
leaves the line only once it was sent whole, how much was sent is written down by C code alone, and
a piece is replaced in one step.  So whoever sends next goes on where he stopped.

It lacks sockets, and any idea of what to do when one takes nothing or has ended.

Invariant: what `is_unsent` calls unsent, the server never gets whole, where what is sent with is C
code; of what Python code sends with, only `is_untouched` says so.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeAlias, TypeVar

from omidpy.base.within import within

N = TypeVar("N", bound=Hashable)
"""What a request is known by."""
T = TypeVar("T")

Piece: TypeAlias = tuple[bytes, list[int], tuple[tuple[N, int], ...]]
"""What is sent in one go; how many bytes of it each system call has taken, written by C code alone;
and whose requests it has, by their names, with where each of them ends."""

MOST_TURNS: Final = 4
"""Pieces that a thread sends, those of others among them, before another one goes on."""

_WITHOUT_WAITING: Final = (socket.MSG_DONTWAIT,)


class Outgoing(Generic[N]):
    """Requests that wait to be sent.  One thread at a time sends; any may add and withdraw."""

    def __init__(self) -> None:
        """Begin with none."""
        self.line: dict[N, bytes] = {}
        """By their names: requests that are not sent, or not known to be."""
        self.sending = threading.Lock()
        """Held by the thread that sends."""
        self._none: Piece[N] = (b"", [], ())
        self._piece: Piece[N] = self._none

    def add(self, name: N, request: bytes) -> None:
        """Put a request in line."""
        self.line[name] = request

    def withdraw(self, name: N) -> None:
        """Do not send a request, unless it is under way."""
        self.line.pop(name, None)

    def send_on(self, send: Callable[[T], bool], until: T, hands_over: Callable[[], bool]) -> None:
        """Send what is in line, unless another thread does, who looks again behind it.

        Args:
            send: Sends the next piece, holding `sending`; False where no more can be.
            until: What `send` is given.
            hands_over: Lets a thread go on whose own request is in line; says whether one does.
        """
        turns = 0
        line, sending = self.line, self.sending
        # A thread that finds the lock held relies on this look at the line, which comes behind the
        # lock was given back: either it sees the lock free, or we see what it has put in line.
        while line and not sending.locked():
            if not within(sending, send, until):
                return
            turns += 1
            if turns >= MOST_TURNS and hands_over():
                return

    # -- for the sender ----------------------------------------------------------------------------

    def piece(self, seal: Callable[[bytes], bytes] | None = None) -> Piece[N]:
        """Return what is to be sent next, which may be sent in part; empty if nothing is.

        Args:
            seal: Makes what is sent of a piece; what it has made must be sent.
        """
        data, sent, ends = begun = self._piece
        if ends:
            if sum(sent) < len(data):
                return begun
            self.leave(begun)  # its sender was taken out before he could say so
        taken = tuple(self.line.items())
        if not taken:
            return self._none
        if len(taken) == 1:
            ((name, data),) = taken
            ends = ((name, len(data)),)
        else:
            at = 0
            ends = tuple([(name, at := at + len(request)) for name, request in taken])
            data = b"".join([request for _, request in taken])
        if seal is not None:
            data = seal(data)
            ends = tuple([(name, len(data)) for name, _ in ends])
        piece: Piece[N] = (data, [], ends)
        self._piece = piece
        return piece

    def push(self, piece: Piece[N], send: Callable[[bytes | memoryview, int], int]) -> bool:
        """Send of a piece what the socket takes now; say whether that was the rest.

        Args:
            piece: What `piece` has returned.
            send: The socket's own method.

        Raises:
            OSError: the socket has ended.
        """
        data, sent, _ = piece
        done = sum(sent)
        view = memoryview(data)[done:] if done else data
        # In C alone, so that no exception comes between what was sent and its being noted (I11).
        try:  # noqa: SIM105 - three calls, of which each request would pay for one
            sent.extend(map(send, (view,), _WITHOUT_WAITING))
        except BlockingIOError:
            pass
        if sum(sent) < len(data):
            return False
        self.leave(piece)
        return True

    def leave(self, piece: Piece[N]) -> None:
        """Take the requests of a piece out of the line: it was sent whole."""
        for name, _ in piece[2]:
            self.line.pop(name, None)
        self._piece = self._none

    @property
    def is_begun(self) -> bool:
        """Whether something, and not all, of a piece was sent."""
        data, sent, _ = self._piece
        return 0 < sum(sent) < len(data)

    def put_back(self) -> None:
        """Let a piece of which nothing was sent be requests in line again."""
        data, sent, _ = self._piece
        if data and not sum(sent):
            self._piece = self._none

    def is_unsent(self, name: N) -> bool:
        """Say whether a request was certainly not sent whole.  Only while nobody sends."""
        _, sent, ends = self._piece
        for other, end in ends:
            if other == name:
                return sum(sent) < end
        return name in self.line

    def is_untouched(self, name: N) -> bool:
        """Say whether nobody has begun to send a request.  Only while nobody sends."""
        return name in self.line and all(other != name for other, _ in self._piece[2])
