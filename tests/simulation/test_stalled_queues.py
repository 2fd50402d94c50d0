"""Operators of an export queue who are stopped before any change, and go on; or who die.

Pairs of their verbs meet, one after the other; and each is stopped, or dies, at each of its
changes, while others export, drop, make again, give other buckets, replay and give up.  By day some
of that, at night all of it.  How: `tests/machines/stalls/queues.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from tests.machines.like_thrift2 import LikeThrift2
from tests.machines.stalls.changes import QUEUES, places
from tests.machines.stalls.lives import Ending, Life, Moment, moments_of
from tests.machines.stalls.queues import BEGINNINGS, VERBS, QueueBeginning, QueueScene

Others = tuple[str, ...]

PAIRS: Final[tuple[Others, ...]] = tuple((verb, "add") for verb in (*VERBS, "export", "run"))
"""Two verbs; what is added behind them must leave."""
WORLDS: Final[tuple[Others, ...]] = (
    ("run", "drop", "create", "add"),
    ("drop", "create", "add", "rebucket 3"),
    ("rebucket 3", "add", "rebucket 5"),
    ("run", "replay", "export"),
    ("skip", "export", "replay"),
    ("pause", "add", "resume"),
    ("rebucket 5", "drop", "create"),
    ("replay", "rebucket 3", "add"),
    ("retry", "rebucket 3", "skip"),
)
"""Somebody takes over, and somebody changes the world."""
MEETINGS: Final = (*PAIRS, *WORLDS)

BUFFERED: Final = "goes with a commit, whose deaths tests/integration/test_crashes.py tries"
EXPORTERS: Final = "of exporters that stall: tests/unit/recipes/test_export_deposed.py"
SHARING: Final = "of exporters that share buckets: tests/integration/test_export_processes.py"
GAUGES: Final = "a gauge, which the next look measures anew"
NO_CHANGE: Final = "changes nothing that others see"
UNREADABLE: Final = (
    "of what no verb writes: tests/unit/recipes/test_export_unreadable.py, test_export_restating.py"
)
UNDOING: Final = "behind an error before the pivot: tests/unit/recipes/test_export_rebucket.py"
BEHIND_ITS_END: Final = "behind a stall of one: tests/unit/recipes/test_export_finishing.py"
SINKS: Final = "of receivers: tests/unit/recipes/test_export_sinks.py"

TABLES: Final = "omidpy/recipes/export_queue/sinks/tables.py"

ELSEWHERE: Final[dict[str, tuple[str, ...]]] = {
    BUFFERED: (
        "omidpy/recipes/export_queue/entries/dead.py bury delete",
        "omidpy/recipes/export_queue/entries/dead.py claimed.claim delete",
        "omidpy/recipes/export_queue/entries/dead.py spoil_claims delete",
        "omidpy/recipes/export_queue/entries/dead.py rewrite_within delete",
        "omidpy/recipes/export_queue/entries/dead.py keep delete",
        "omidpy/recipes/export_queue/delivery/bucket.py Delivery._export delete",
        "omidpy/recipes/export_queue/entries/acknowledgement.py _taken_out delete",
        "omidpy/recipes/export_queue/upkeep/handover.py _move_last delete",
    ),
    EXPORTERS: (
        "omidpy/recipes/export_queue/delivery/crew.py Crew._let_go replace",
        "omidpy/recipes/export_queue/entries/acknowledgement.py remove write",
        "omidpy/recipes/export_queue/entries/acknowledgement.py remove_deleted write",
    ),
    SHARING: (
        "omidpy/recipes/export_queue/delivery/crew.py Crew.join write",
        "omidpy/recipes/export_queue/delivery/crew.py Crew.look forget",
        "omidpy/recipes/export_queue/delivery/crew.py Crew.leave forget",
    ),
    GAUGES: (
        "omidpy/recipes/export_queue/upkeep/lag.py measure write",
        "omidpy/recipes/export_queue/upkeep/lag.py measure_roughly write",
    ),
    NO_CHANGE: (
        "omidpy/recipes/export_queue/entries/dead.py Graves.left remove",
        "omidpy/recipes/export_queue/upkeep/making.py _drop_table forget",
        "omidpy/recipes/export_queue/upkeep/rebucketing.py RebucketTools.remove_table forget",
    ),
    UNREADABLE: (
        "omidpy/recipes/export_queue/upkeep/manual/repairing.py repair replace",
        "omidpy/recipes/export_queue/upkeep/manual/restating.py restate replace",
    ),
    UNDOING: ("omidpy/recipes/export_queue/upkeep/rebucketing.py Prepare._undo replace",),
    BEHIND_ITS_END: ("omidpy/recipes/export_queue/upkeep/rebucketing.py let_go replace",),
    SINKS: (
        "omidpy/recipes/export_queue/sinks/file_marks.py FolderMarks._write write",
        "omidpy/recipes/export_queue/sinks/files.py FileSink._written write",
        "omidpy/recipes/export_queue/sinks/files.py FileSink.export replace",
        f"{TABLES} TableSink.export_within delete",
        f"{TABLES} PlainTableSink.export write",
        f"{TABLES} PlainTableSink._write_if_newer check_and_mutate",
    ),
}
"""What is stopped by no verb here, and why not, by reason."""

MANY: Final = 10
"""Changes, of which every seventh is enough by day."""
MOST_TOLD: Final = 3
"""Cases that are told in full when some went wrong."""

_spared: dict[tuple[QueueBeginning, type[Store]], Life] = {}


def spared(beginning: QueueBeginning, store: type[Store] = MemoryStore) -> Life:
    """Return the life of a verb that is let be."""
    if (beginning, store) not in _spared:
        scene = QueueScene.after(beginning, store)
        life = scene.play(beginning.verb, None, [])
        scene.judge()
        _spared[beginning, store] = life
    return _spared[beginning, store]


def check(
    beginning: QueueBeginning,
    cases: Iterable[tuple[Moment | None, Others]],
    make_store: Callable[[], Store] = MemoryStore,
) -> int:
    """Play cases; return how many there were, or tell the first few that went wrong."""
    count = 0
    wrong: list[str] = []
    for moment, others in cases:
        count += 1
        scene = QueueScene.after(beginning, make_store)
        try:
            scene.play(beginning.verb, moment, others)
            scene.judge()
        except AssertionError as error:
            made = spared(beginning).made
            where = made[moment.number - 1] if moment and moment.number <= len(made) else ()
            at = ", ".join(map(str, where[:1]))
            wrong.append(f"{beginning}: {moment} ({at}), then {others}\n{error}")
    assert not wrong, "\n\n".join([f"{len(wrong)} of {count} went wrong", *wrong[:MOST_TOLD]])
    return count


def some(moments: Sequence[Moment], first: int) -> Iterator[tuple[Moment, Others]]:
    """Let each moment meet one of the others, each verb beginning with another one."""
    for number, moment in enumerate(moments, start=first):
        yield moment, MEETINGS[number % len(MEETINGS)]


def test_every_change_is_stopped_or_named() -> None:
    """A new one that no verb here comes to fails, with its line; so does a name without a call."""
    stopped = {
        place
        for store in (MemoryStore, LikeThrift2)
        for beginning in BEGINNINGS
        for made in spared(beginning, store).made
        for place in made
    }
    found = places(QUEUES)
    named = {name for names in ELSEWHERE.values() for name in names}
    missing = [place for place in found if place not in stopped and place.name not in named]
    assert not missing, "\n".join(["neither stopped nor named:", *map(str, missing)])
    assert named <= {place.name for place in found}, "some that are named are gone"
    assert named.isdisjoint(place.name for place in found if place in stopped)


@pytest.mark.parametrize(
    "nth", [2, pytest.param(1, marks=pytest.mark.nightly)], ids=["some", "every"]
)
@pytest.mark.parametrize("beginning", BEGINNINGS, ids=str)
def test_two_verbs_one_after_the_other(beginning: QueueBeginning, nth: int) -> None:
    """The second finds what the first has left, and what it says is true."""
    seconds = PAIRS[BEGINNINGS.index(beginning) % nth :: nth]
    assert check(beginning, ((None, others) for others in seconds)) == len(seconds)


def test_whoever_is_stopped_loses_nothing_and_brings_nothing_back() -> None:
    """At every change of those who make few, and where rows change one by one at some of each."""
    for store, of_few, of_many in ((MemoryStore, 1, 7), (LikeThrift2, 3, 10)):
        for number, beginning in enumerate(BEGINNINGS):
            at = moments_of(spared(beginning, store), [Ending.STALLS])
            nth = of_many if len(at) > MANY else of_few
            at = at[number % nth :: nth]
            assert check(beginning, some(at, number), store) == len(at)


def test_whoever_dies_loses_nothing_and_brings_nothing_back() -> None:
    """Before a change, or after it."""
    for number, beginning in enumerate(BEGINNINGS):
        endings = [Ending.DIES_BEFORE, Ending.DIES_AFTER]
        at = moments_of(spared(beginning), endings)[number % 5 :: 13]
        assert check(beginning, some(at, number)) == len(at)


@pytest.mark.nightly
@pytest.mark.parametrize("store", ["memory", "like HBase", "sqlite"])
@pytest.mark.parametrize("beginning", BEGINNINGS, ids=str)
def test_every_change_meets_everybody(
    beginning: QueueBeginning, store: str, tmp_path: Path
) -> None:
    """Every change, every ending, every other verb, every change of the world."""
    files = (tmp_path / f"{number}.db" for number in itertools.count())
    makers: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "like HBase": LikeThrift2,
        "sqlite": lambda: SqliteStore(next(files)),
    }
    kind = LikeThrift2 if store == "like HBase" else MemoryStore
    at = moments_of(spared(beginning, kind))
    cases = itertools.product(at, MEETINGS)
    assert check(beginning, cases, makers[store]) == len(at) * len(MEETINGS)
