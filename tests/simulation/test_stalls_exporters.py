"""Exporters that are stopped before any change, deposed, and go on; or that die.

Others take the bucket over meanwhile, and change the world: entries come, are set aside and tried
again, the queue gets other buckets, is dropped and made anew, paused, replayed.  What has committed
arrives, and where the receiver keeps marks it arrives once, and in order.  How:
`tests/machines/stalls/exporters.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from omidpy.recipes.export_queue.delivery import patience as patience_module
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from tests.machines.like_thrift2 import LikeThrift2
from tests.machines.stalls.exporters import RECEIVERS, World
from tests.machines.stalls.lives import Moment, moments_of

WORLDS: Final[tuple[tuple[str, ...], ...]] = (
    ("export", "add"),
    ("take", "add"),
    ("add", "export", "add", "export"),
    ("refuse", "add", "export"),
    ("refuse", "retry", "add"),
    ("refuse", "retry", "export", "add"),
    ("rebucket", "add"),
    ("refuse", "rebucket", "retry", "add", "export"),
    ("make anew",),
    ("export", "make anew", "export", "add"),
    ("pause", "add"),
    ("pause", "export", "resume", "export", "add"),
)
REPLAYED: Final[tuple[tuple[str, ...], ...]] = (
    ("replay", "add"),
    ("export", "replay", "export"),
    ("refuse", "retry", "export", "replay", "add"),
)
STORES: Final = {"one change for all": MemoryStore, "row by row": LikeThrift2}
BY_DAY: Final = {"one change for all": 4, "row by row": 2}
"""Of so many moments one is enough by day; of a change there are three."""
LEAST_CHANGES: Final = 10


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait between tries."""
    monkeypatch.setattr(patience_module, "FIRST_PAUSE_S", 0.0)


def moments(receiver: str, make_store: Callable[[], Store]) -> list[Moment]:
    """Return the moments of an exporter that nobody disturbs; it refuses an entry, too."""
    world = World(receiver, make_store)
    life = world.play(None, ())
    world.judge()
    assert len(life.made) > LEAST_CHANGES
    return moments_of(life)


def meet(
    receiver: str,
    make_store: Callable[[], Store],
    moment: Moment,
    others: tuple[str, ...],
    keep_s: float | None = None,
) -> None:
    """Play, and judge."""
    world = World(receiver, make_store, keep_s=keep_s)
    try:
        world.play(moment, others)
        world.judge()
    except BaseException as error:
        error.add_note(f"{receiver}: {moment}, {others}, keep_s={keep_s}")
        raise


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("receiver", RECEIVERS)
def test_whoever_stops_at_a_change_meets_some(receiver: str, store: str) -> None:
    """They meet one world after the other."""
    make_store = STORES[store]
    first = [*RECEIVERS].index(receiver)
    met = moments(receiver, make_store)[first % BY_DAY[store] :: BY_DAY[store]]
    for at, moment in enumerate(met, first):
        meet(receiver, make_store, moment, WORLDS[at % len(WORLDS)])
        if at % 4 == 0:
            meet(receiver, make_store, moment, REPLAYED[at // 4 % len(REPLAYED)], keep_s=3600.0)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("receiver", RECEIVERS)
def test_whoever_stops_at_a_change_meets_everybody(receiver: str, store: str) -> None:
    """Every change meets every world."""
    make_store = STORES[store]
    for moment in moments(receiver, make_store):
        for others in WORLDS:
            meet(receiver, make_store, moment, others)
        for others in REPLAYED:
            meet(receiver, make_store, moment, others, keep_s=3600.0)
