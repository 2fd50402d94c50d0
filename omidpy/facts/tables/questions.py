"""What has been asked of tables that are not ours, and what was the answer?

Before commits are forgotten, each place that no pass goes over is asked for cells of theirs
(`compactor/pruning/unvisited.py`).  What its last answer was is remembered, for people: what a
horizon rested on, and what it cost to know.  An old answer is never taken for a fresh one, since
no record says when such a table is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from omidpy.base.documents import Moment
from omidpy.facts.control import ControlTable, encode_document

ASKED_PREFIX: Final = b"asked/"


class Question(msgspec.Struct, frozen=True):
    """What was asked of some families of one table, and the answer."""

    table: str
    families: tuple[bytes, ...]
    versions: tuple[tuple[int, int], ...]
    """Stretches of them: the first, and the one behind the last."""
    calls: int = 0
    """One for each region and stretch, at least; 0 if it did not answer."""
    cells: int = 0
    """How many came back: 0, or 1, which is enough."""
    answer: str = ""
    """What was found, or why no answer came; empty: nothing lies there."""
    asked_ms: Moment = 0
    """Wall time, for people."""
    run: str = ""
    """Whose it is; empty for a caller that only looks."""


class Questions:
    """The last question for each table, and its answer."""

    def __init__(self, control: ControlTable) -> None:
        self._control = control

    def record(self, questions: Iterable[Question]) -> None:
        """Remember questions in place of those before.  Cost: 1 durable write a table."""
        for one in questions:
            self._control.write(ASKED_PREFIX + one.table.encode(), encode_document(one))

    def last(self) -> list[Question]:
        """Return the last question for each table, by name; one that is malformed is left out."""
        return list(self._control.documents(ASKED_PREFIX, Question)[0].values())
