"""How far has a receiver come in a bucket?  Kept by it, together with what it was given.  Pure.

A cursor of ours moves behind the delivery, so that a death in between brings a batch twice.  Where
the receiver keeps a mark in the transaction of the batch itself, the next owner of the bucket reads
it first, and passes over what it covers.

Only the last transaction can be one that the cursor does not speak of: the next one begins once its
rows are gone.  So a mark is the position of the last entry, and what of that batch it has not been
given, since that is about to be set aside.  Dead letters are handed over one by one, out of order,
and of them the mark has those whose rows may still be there: one for each owner that has died.

What is delivered again because an operator asked for it (`replay`) is another turn, of which an
older mark knows nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from omidpy.base.documents import UNREADABLE
from omidpy.errors import CorruptCell
from omidpy.recipes.export_queue.entries.ordering import BEGINNING, Position

if TYPE_CHECKING:
    from collections.abc import Collection

MOST_LEFT_OUT: Final = 40
"""So many entries of a batch a mark leaves out at most, so that it fits into 4,096 bytes, which is
what Kafka keeps of one."""


@dataclass(frozen=True, slots=True)
class Share:
    """A bucket in the hands of one owner, as its receiver is told of it.

    Attributes:
        queue: The id of the queue.
        incarnation: Tells its table from every other one, also of queues that have its id.
        bucket: The number of the bucket.
        fence: Grows with each owner of the bucket.
    """

    queue: str
    incarnation: str
    bucket: int
    fence: int

    @property
    def made(self) -> str:
        """What its queue was given when it was made, and all tables of it have."""
        return self.incarnation.rpartition(".")[0]

    @property
    def name(self) -> str:
        """What no other bucket of any queue is called, for every owner: up to 120 letters."""
        return f"{self.queue}.{self.incarnation}.{self.bucket}"


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a receiver has come in a bucket.

    Attributes:
        turn: How often the bucket was set back for a replay.
        until: The position of the last entry; no other one of the log is behind it.
        but: What before it was not delivered.
        dead: The positions of dead letters that were delivered, and may still be there.
        since: Where the cursor of the bucket was at that time: it is never behind that again,
            unless the store was set back.
    """

    turn: int = 0
    until: Position = BEGINNING
    but: frozenset[Position] = frozenset()
    dead: frozenset[Position] = frozenset()
    since: Position = BEGINNING

    def in_turn(self, turn: int) -> Mark:
        """Return what the mark says of a turn: nothing, if it is of another one."""
        return self if turn == self.turn else Mark(turn=turn)

    def covers(self, position: Position) -> bool:
        """Say whether an entry of the log was delivered."""
        return position <= self.until and position not in self.but

    def after(self, until: Position, but: Collection[Position]) -> Mark:
        """Return the mark once entries up to a position were delivered, except some.

        What is behind `until`, and was left out earlier, is still left out: a batch that comes
        again may be shorter.
        """
        later = {one for one in self.but if one > until}
        return replace(self, until=max(self.until, until), but=frozenset(later.union(but)))

    def after_dead(self, position: Position, there: Collection[Position]) -> Mark:
        """Return the mark once a dead letter was delivered; `there` are those that are."""
        return replace(self, dead=self.dead.intersection(there).union({position}))

    def without_dead(self, position: Position) -> Mark:
        """Return the mark once the row of a dead letter is gone."""
        return replace(self, dead=self.dead - {position})

    def encode(self) -> str:
        """Return it as JSON."""
        return msgspec.json.encode(
            {
                "turn": self.turn,
                "until": _text(self.until),
                "but": [_text(one) for one in sorted(self.but)],
                "dead": [_text(one) for one in sorted(self.dead)],
                "since": _text(self.since),
            }
        ).decode()


@dataclass
class Standing:
    """What a process knows of the mark of a bucket; losing it loses nothing."""

    share: Share | None = None
    """What was taken over; None: that is to be done before anything is sent."""
    mark: Mark = field(default_factory=Mark)


def decode_mark(text: str, *, where: str) -> Mark:
    """Return the mark that a text is.

    Raises:
        CorruptCell: it is none; `where` says where it was found.
    """
    try:
        found: dict[str, Any] = msgspec.json.decode(text, type=dict)
        return Mark(
            turn=int(found["turn"]),
            until=_position(found["until"]),
            but=frozenset(map(_position, found["but"])),
            dead=frozenset(map(_position, found["dead"])),
            since=_position(found["since"]),
        )
    except (*UNREADABLE, KeyError, ValueError, AttributeError) as error:
        raise CorruptCell(
            f"{where}: {text!r:.200} says of no bucket how far it has come"
        ) from error


def _text(position: Position) -> str:
    return f"{position.commit_ts}.{position.ordinal.hex()}"


def _position(text: str) -> Position:
    commit_ts, _, ordinal = text.partition(".")
    return Position(int(commit_ts), bytes.fromhex(ordinal))
