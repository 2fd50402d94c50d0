"""Guards of export queues against those who stall, taken away one by one: each must be noticed.

The same plays run on the code as it is and pass (`tests/simulation/test_stalled_queues.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue.entries.stored.state import BucketState, Definition, Places
from omidpy.recipes.export_queue.upkeep import making, retention
from omidpy.recipes.export_queue.upkeep.rebucketing import Prepare
from tests.machines.stalls.lives import Ending, Moment
from tests.machines.stalls.queues import QueueBeginning, QueueScene

Patch = Callable[[pytest.MonkeyPatch], None]


class Mutant(NamedTuple):
    """What is broken, and the play that must show it."""

    breaks: Patch
    beginning: QueueBeginning
    at: str
    """The function or class whose changes are the moments."""
    others: tuple[str, ...]


def keeps_what_nobody_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X8: who made a table does not look whether it is still for somebody."""
    monkeypatch.setattr(Prepare, "_is_named", lambda *_: True)


def makes_it_beside_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break drops: a queue is made while the tables of the last one are there."""
    remove = making._remove

    def half(tm: TransactionManager, places: Places, known: Definition) -> bool:
        return known.is_open and remove(tm, places, known)

    monkeypatch.setattr(making, "_remove", half)


def notes_no_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break replays: who switches does not see that one has come."""
    monkeypatch.setattr(making, "note_replay", lambda *_: True)


def leaves_owners_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break replays: whoever hands over what stands behind the cursor may move it on."""
    back = retention._set_back_to

    def set_back(since_ts: int, state: BucketState) -> BucketState:
        return state if state.cursor_ts < since_ts else back(since_ts, state)

    monkeypatch.setattr(retention, "_set_back_to", set_back)


MUTANTS: Final = (
    Mutant(
        keeps_what_nobody_names,
        QueueBeginning("rebucket 3"),
        "make_table",
        ("rebucket 3", "add", "rebucket 5"),
    ),
    Mutant(makes_it_beside_what_is_left, QueueBeginning("drop"), "_drop_table", ("create", "add")),
    Mutant(
        notes_no_replay, QueueBeginning("rebucket 5"), "Switch.act", ("skip", "export", "replay")
    ),
    Mutant(
        leaves_owners_alone,
        QueueBeginning("rebucket 3", ("replay",)),
        "BucketLease.update",
        ("replay", "add"),
    ),
)


def play(mutant: Mutant) -> None:
    """Stop whoever begins at every moment at which the function is come to."""
    life = QueueScene.after(mutant.beginning).play(mutant.beginning.verb, None, ())
    numbers = [
        number
        for number, made in enumerate(life.made, start=1)
        if any(place.is_in(mutant.at) for place in made)
    ]
    assert numbers, f"{mutant.at} changes nothing"
    for number in numbers:
        scene = QueueScene.after(mutant.beginning)
        scene.play(mutant.beginning.verb, Moment(number, Ending.STALLS), mutant.others)
        scene.judge()


ids: Final[Callable[[Any], str]] = lambda one: one.breaks.__name__  # noqa: E731 - pytest's way


@pytest.mark.parametrize("mutant", MUTANTS, ids=ids)
def test_a_guard_that_is_gone_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is lost, or comes back, the ledger cannot explain."""
    play(mutant)
    mutant.breaks(monkeypatch)
    with pytest.raises(AssertionError):
        play(mutant)
