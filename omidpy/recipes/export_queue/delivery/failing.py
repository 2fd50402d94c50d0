"""How a bucket goes on after its exporter has raised something, and when no worker goes on at all.

Whose fault it is, `verdicts.py` says; how long to wait, and which entry of a batch, `patience.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from omidpy.base.timing.pauses import Seldom
from omidpy.base.words.printable import storable
from omidpy.errors import ExportError
from omidpy.recipes.export_queue.delivery.patience import Patience
from omidpy.recipes.export_queue.delivery.verdicts import Blame, Trust, blame
from omidpy.recipes.export_queue.entries.dead import MAX_REASON, Graves
from omidpy.recipes.export_queue.entries.ordering import FoundEntry, Position
from omidpy.recipes.export_queue.exporter import Deposed, Entry, Poison, Refused, Retry
from omidpy.recipes.export_queue.marks import Standing

log = logging.getLogger(__name__)

SOONEST_S: Final = 1.0
"""To what pauses grow where a receiver asks for shorter ones, again and again."""


class Paused(Exception):
    """The bucket goes on later."""

    def __init__(self, after_s: float, *, is_of_dead: bool = False) -> None:
        """Say in how many seconds.

        Args:
            after_s: So long.
            is_of_dead: Only dead letters do: all else was delivered, and what comes is, too.
        """
        super().__init__(after_s)
        self.after_s = after_s
        self.is_of_dead = is_of_dead


class KnownGraves(NamedTuple):
    """What an owner knows of the dead letters of its bucket."""

    fence: int
    """Of the owner: another one may have set entries aside since."""
    graves: Graves
    due_s: float
    """When they are to be looked at again, for operators may have asked for some."""


@dataclass
class Memory:
    """What a process remembers of a bucket from pass to pass; losing it loses no entry."""

    patience: Patience
    of_dead: Patience
    poison: dict[Position, str] = field(default_factory=dict)
    """Entries that turned out to be poison, and why."""
    standing: Standing = field(default_factory=Standing)
    """What its receiver has, where that keeps marks."""
    count_due_s: float = 0.0
    """When what waits is to be counted again, if it does not leave."""
    dead_due_s: float = 0.0
    """When dead letters, of which one has failed, are to be tried again."""
    graves: KnownGraves | None = None
    """The dead letters of the bucket, of which none was due; None: they are to be looked at."""


class Failures:
    """What the exporter of one queue has failed at.  Safe to share among threads."""

    def __init__(self, queue_id: str) -> None:
        """Begin with nothing failed."""
        self._queue_id = queue_id
        self._trust = Trust()
        self._seldom = Seldom(log)

    def over(self) -> None:
        """Note that something was delivered."""
        self._trust.taken()

    def paused(
        self,
        error: Exception,
        bucket: int,
        patience: Patience,
        good: Sequence[tuple[FoundEntry, Entry]],
        memory: Memory,
    ) -> Paused:
        """Say how to go on after what an exporter raised.

        Raises:
            ExportError: not at all: the receiver refuses everything, and nothing was set aside.
        """
        if isinstance(error, Poison):
            at = next((at for at, (_, entry) in enumerate(good) if entry is error.entry), None)
            if at is None:
                raise ExportError(
                    "Poison names an entry that is not in the batch; raise it with the very entry "
                    "that export() was given"
                ) from error
            memory.poison[good[at][0].position] = storable(str(error))[:MAX_REASON]
            patience.ends_behind(at, len(memory.poison))
            return Paused(0.0)
        text = "queue %s: %d entries come again: %r"
        self._seldom.say(text, self._queue_id, len(good), error, about=bucket)
        match blame(error):
            case Blame.NOBODY:
                patience.unreachable(len(good), suspect_count=len(memory.poison))
                if isinstance(error, Retry):
                    return _asked(error, patience)
                return Paused(patience.pause_s())
            case Blame.SETTINGS:
                if patience.refused(len(good), suspect_count=len(memory.poison)):
                    raise ExportError(self._refuses(error)) from error
                if isinstance(error, Refused) and error.has_pause:
                    return _asked(error, patience)
                return Paused(patience.pause_s())
            case Blame.ENTRY:
                if not patience.failed(len(good)):
                    return Paused(patience.pause_s())
                position = good[0][0].position
                if self._trust.suspect(bucket, position):
                    raise ExportError(self._refuses(error)) from error
                memory.poison[position] = f"{type(error).__name__}: {error}"
                # It is set aside once another one was taken, or none is left to ask.
                patience.ask_beside(len(memory.poison))
                return Paused(0.0)

    def _refuses(self, error: Exception) -> str:
        if isinstance(error, Deposed):
            return (
                f"the receiver of the queue {self._queue_id!r} refuses everything, because it has "
                f"heard of a later owner, and this store knows of none: {error!r}; another store "
                "that has this queue exports to it, too, such as a copy of this one, or the one "
                "that this is a copy of: end one of the two exporters, and start this one again if "
                "it is to go on; what was not taken stays"
            )
        return (
            f"the receiver of the queue {self._queue_id!r} refuses everything: {error!r}; mend the "
            "exporter or its settings and start it again: what it has not taken stays, and what "
            "was set aside is tried again by `omidpy export dlq retry`"
        )


def _asked(error: Retry, patience: Patience) -> Paused:
    """Wait for as long as the receiver asks; one that asks for nothing is not called at once."""
    return Paused(max(error.after_s, min(patience.pause_s(), SOONEST_S)))
