"""How old the entries of the commit table are."""

from __future__ import annotations

import pytest

from omidpy.reports.commit_table import AGES_S, count_by_age, count_entries, span_text
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import World

NOW_MS = 1_800_000_000_000
NS_PER_S = 1_000_000_000


def ago(seconds: int) -> int:
    """Return the start_ts of a transaction that began so long ago."""
    start_ts = NOW_MS * 1_000_000 - seconds * NS_PER_S
    return start_ts - start_ts % 50


@pytest.mark.parametrize("place", range(len(AGES_S)))
def test_an_entry_counts_from_its_age_on(place: int) -> None:
    """Equality is the older of the two spans."""
    world = World(MemoryStore())
    world.enter(ago(AGES_S[place]), ago(AGES_S[place]) + 50)
    world.invalidate(ago(AGES_S[place]) - 100)
    found = count_by_age(world.store, now_ms=NOW_MS)
    counts = [(one["entries"], one["invalidations"]) for one in found["by_age"]]
    assert counts == [(1, 1) if number == place else (0, 0) for number in range(len(AGES_S))]
    assert found["oldest_start_ts"] == ago(AGES_S[place]) - 100


def test_entries_of_timestamps_that_count_have_no_age() -> None:
    """They are counted all the same."""
    world = World(MemoryStore())
    world.enter(100, 150)
    found = count_by_age(world.store, now_ms=NOW_MS)
    assert found["by_age"][-1] == {"from_s": None, "to_s": None, "entries": 1, "invalidations": 0}
    assert sum(one["entries"] for one in found["by_age"]) == 1
    assert count_entries(world.store) == {"entries": 1, "invalidations": 0, "oldest_start_ts": 100}


def test_spans_are_told_in_words() -> None:
    """Of the first, one between, the last, and those of no age."""
    spans = [(0, 60), (3600, 21600), (30 * 86400, None), (None, None)]
    assert [span_text({"from_s": start, "to_s": end}) for start, end in spans] == [
        "under 1 min ago",
        "1 h to 6 h ago",
        "over 30 d ago",
        "nobody can tell",
    ]
