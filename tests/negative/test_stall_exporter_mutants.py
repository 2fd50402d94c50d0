"""Exporters whose guards were taken away: the stall harness finds each.

The same plays of exporters as they are pass (`tests/simulation/test_stalls_exporters.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omidpy.recipes.export_queue.delivery import patience as patience_module
from omidpy.recipes.export_queue.entries.stored.state import BucketRows, BucketState, Raw
from tests.machines.stalls.exporters import FENCE, MARKS, World
from tests.machines.stalls.lives import Ending, moments_of
from tests.negative.test_export_exact_mutants import never_looks_again, reads_no_mark
from tests.negative.test_export_mutants import removes_without_asking

Variant = Callable[[pytest.MonkeyPatch], None]


def moves_a_cursor_that_is_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X2: writes the state of a bucket blindly, and removes with it."""
    replace = BucketRows.replace

    def blindly(self: BucketRows, old: Raw, state: BucketState, removing: Any = ()) -> Raw | None:
        row = self._places.bucket(self.number, old.bucket)
        return replace(self, old._replace(raw=self._control.read(row)), state, removing)

    monkeypatch.setattr(BucketRows, "replace", blindly)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait between tries."""
    monkeypatch.setattr(patience_module, "FIRST_PAUSE_S", 0.0)


@pytest.mark.parametrize(
    ("variant", "receiver", "others"),
    [
        (reads_no_mark, MARKS, ("export", "add")),
        (never_looks_again, MARKS, ("refuse", "add")),
        (removes_without_asking, FENCE, ("take", "add")),
        (moves_a_cursor_that_is_anothers, FENCE, ("take", "add")),
    ],
)
def test_broken_exporters_are_caught(
    variant: Variant, receiver: str, others: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At some change."""

    def play_all() -> None:
        for moment in moments_of(
            World(receiver).play(None, ()), (Ending.STALLS, Ending.DIES_AFTER)
        ):
            world = World(receiver)
            world.play(moment, others)
            world.judge()

    play_all()
    variant(monkeypatch)
    with pytest.raises(AssertionError):
        play_all()
