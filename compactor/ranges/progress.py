"""How far is a run?  What passes have come to, and where that is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import NamedTuple, Protocol, TypeAlias

from compactor.ranges.range_task import RangeResult


class Passed(NamedTuple):
    """What passes have come to so far."""

    rows: int = 0
    cells: int = 0
    size_bytes: int = 0
    healed: int = 0

    def with_result(self, one: RangeResult) -> Passed:
        """Return what they come to with one more."""
        return Passed(
            self.rows + one.rows_read,
            self.cells + one.cells_read,
            self.size_bytes + one.bytes_read,
            self.healed + one.cells_healed,
        )

    @classmethod
    def by(cls, results: Iterable[RangeResult]) -> Passed:
        """Return what some passes came to."""
        return reduce(cls.with_result, results, cls())


OnProgress: TypeAlias = Callable[[int, Passed], None]
"""Called with the number of ranges done, and with what was passed over so far."""


class Progress(Protocol):
    """Where a run shows how far it is."""

    def note(self, text: str) -> None:
        """Show one line."""
        ...

    def update(self, done: int, total: int, passed: Passed) -> None:
        """Show that `done` of `total` ranges are done, and what was passed over."""
        ...


class NoProgress:
    """Shows no progress: where no person looks on."""

    def note(self, text: str) -> None:
        """Do nothing."""

    def update(self, done: int, total: int, passed: Passed) -> None:
        """Do nothing."""
