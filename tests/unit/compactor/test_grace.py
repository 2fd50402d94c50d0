"""How long a commit entry outlives the healing of its cells, where nobody has said."""

from __future__ import annotations

import threading

import pytest

from compactor.options import Options, options_from_words
from compactor.ranges.progress import NoProgress
from compactor.run.environment import Environment
from compactor.run.plan import Compaction
from omidpy.base.cells import encode_long
from omidpy.base.commit_facts import INVALID
from omidpy.base.schema.compaction_choices import DEFAULT_GRACE, GRACE_BESIDE_OMID
from omidpy.facts.commit_table import ADOPTED_CEILING_FACT
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import World

HOUR_S = 3600


@pytest.fixture
def omids() -> World:
    """Return a store that Omid's oracle served before ours, with a commit entry left in it."""
    world = World(MemoryStore())
    world.table()
    world.control.replace(ADOPTED_CEILING_FACT, None, encode_long(50))
    world.put(b"a", 100)
    world.enter(100, 150)
    return world


def test_after_omid_entries_wait_a_day_unless_told_otherwise(omids: World) -> None:
    """A Java client whose reply was lost erases its committed cells when it finds no entry."""
    nightly = options_from_words()
    assert omids.compact(nightly).entries_pruned == 0
    omids.clock.advance(24 * HOUR_S - 1)
    assert omids.compact(nightly).entries_pruned == 0
    omids.clock.advance(1)
    assert omids.compact(nightly).entries_pruned == 1


def test_a_grace_that_was_asked_for_stands_after_omid_too(omids: World) -> None:
    """Where the last Java client is gone, the operator knows."""
    hourly = options_from_words(grace="1h")
    omids.compact(hourly)
    omids.clock.advance(HOUR_S)
    assert omids.compact(hourly).entries_pruned == 1


def test_a_store_of_ours_alone_has_the_shorter_grace() -> None:
    """Nobody there looks for an entry for longer than an hour."""
    options = Options()
    assert options.grace_on(follows_omid=False) == HOUR_S == _seconds(DEFAULT_GRACE)
    assert options.grace_on(follows_omid=True) == 24 * HOUR_S == _seconds(GRACE_BESIDE_OMID)
    assert Options(grace_s=0.0).grace_on(follows_omid=True) == 0


def test_invalidations_may_be_kept_for_ever() -> None:
    """Clients in low-latency mode write their own entries, as late as they like."""
    world = World(MemoryStore())
    world.table()
    world.put(b"a", 100)
    world.put(b"b", 200)
    world.enter(200, 250)
    options = options_from_words(grace="0", invalidation_grace="never", retention="0")
    for _ in range(2):
        world.compact(options)
        world.clock.advance(1e8)
    assert world.entries() == {100: INVALID}


def _seconds(grace: str) -> float | None:
    return options_from_words(grace=grace).grace_s


def test_a_run_whose_store_does_not_answer_holds_up_no_other() -> None:
    """As `cached_property` would, by the one lock of a class that Python 3.11 has."""
    is_asked, may_answer = threading.Event(), threading.Event()

    def parts() -> Compaction:
        world = World(MemoryStore())
        environment = Environment(world.clock, lambda *_: [], lambda _: None, NoProgress())
        return Compaction(world.store, Options(), environment)

    def read(_: bytes) -> None:
        is_asked.set()
        assert may_answer.wait(30)

    slow, quick = parts(), parts()
    slow.control.read = read  # type: ignore[assignment, method-assign]
    found: list[str] = []

    def ask(one: Compaction, name: str) -> None:
        assert one.grace_s >= 0
        found.append(name)

    waiting = threading.Thread(target=ask, args=(slow, "slow"))
    waiting.start()
    assert is_asked.wait(30)
    other = threading.Thread(target=ask, args=(quick, "quick"))
    other.start()
    other.join(5)
    may_answer.set()
    waiting.join()
    other.join()
    assert found == ["quick", "slow"]
