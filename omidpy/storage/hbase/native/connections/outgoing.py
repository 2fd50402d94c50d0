"""Requests of several threads on their way to one socket, and how far they have come.  No I/O.

A thread puts its request in line.  One of them sends for all: what is in line by then goes as one
piece, in one system call, while the others already wait for their answers.

An exception that takes the sender out at any line loses nothing and sends nothing twice: a request
leaves the line only once it was sent whole, how much was sent is written down by C code alone, and
a piece is replaced in one step.  So whoever sends next goes on where he stopped.

Invariant: what `is_unsent` calls unsent, the server never gets whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

Piece: TypeAlias = tuple[bytes, list[int], tuple[tuple[int, int], ...]]
"""What is sent in one go; how many bytes of it each system call has taken, written by C code alone;
and whose requests it has, by their numbers, with where each of them ends."""

_NONE: Final[Piece] = (b"", [], ())


class Outgoing:
    """Requests that wait to be sent.  One thread at a time sends; any may add and withdraw."""

    def __init__(self) -> None:
        """Begin with none."""
        self.line: dict[int, bytes] = {}
        """By their numbers: requests that are not sent, or not known to be."""
        self._piece = _NONE

    def add(self, number: int, request: bytes) -> None:
        """Put a request in line."""
        self.line[number] = request

    def withdraw(self, number: int) -> None:
        """Do not send a request, unless it is under way."""
        self.line.pop(number, None)

    # -- for the sender ----------------------------------------------------------------------------

    def piece(self, seal: Callable[[bytes], bytes] | None) -> Piece:
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
            return _NONE
        if len(taken) == 1:
            ((number, data),) = taken
            ends = ((number, len(data)),)
        else:
            at = 0
            ends = tuple([(number, at := at + len(request)) for number, request in taken])
            data = b"".join([request for _, request in taken])
        if seal is not None:
            data = seal(data)
            ends = tuple([(number, len(data)) for number, _ in ends])
        piece: Piece = (data, [], ends)
        self._piece = piece
        return piece

    def leave(self, piece: Piece) -> None:
        """Take the requests of a piece out of the line: it was sent whole."""
        for number, _ in piece[2]:
            self.line.pop(number, None)
        self._piece = _NONE

    @property
    def is_begun(self) -> bool:
        """Whether something, and not all, of a piece was sent."""
        data, sent, _ = self._piece
        return 0 < sum(sent) < len(data)

    def put_back(self) -> None:
        """Let a piece of which nothing was sent be requests in line again."""
        data, sent, _ = self._piece
        if data and not sum(sent):
            self._piece = _NONE

    def is_unsent(self, number: int) -> bool:
        """Say whether a request was certainly not sent whole.  Only while nobody sends."""
        _, sent, ends = self._piece
        for other, end in ends:
            if other == number:
                return sum(sent) < end
        return number in self.line
