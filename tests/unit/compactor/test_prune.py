"""Which commit entries may be forgotten, at every boundary."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from compactor.pruning.prune import PruneLimits
from omidpy.base.commit_facts import INVALID, CommitEntry
from omidpy.facts.commit_table import EntryRow
from omidpy.model import Timestamp

EVERYTHING: Final = (range(2**63),)
LIMITS: Final = PruneLimits(Timestamp(100), Timestamp(1000), Timestamp(500), EVERYTHING)
COMMITTED: Final = Timestamp(9999)


@pytest.mark.parametrize(
    ("start_ts", "entry", "goes"),
    [
        (50, COMMITTED, False),
        (100, COMMITTED, True),
        (1000, COMMITTED, True),
        (1050, COMMITTED, False),
        (50, INVALID, False),
        (500, INVALID, True),
        (550, INVALID, False),
        (100, None, False),
    ],
)
def test_entry_goes_between_the_first_timestamp_and_its_horizon(
    start_ts: int,
    entry: CommitEntry,
    goes: bool,  # noqa: FBT001 - a table
) -> None:
    """Equality with a horizon goes; below the first timestamp an entry is somebody else's."""
    assert LIMITS.may_prune(EntryRow(Timestamp(start_ts), entry)) == goes


def test_invalidation_never_outlives_the_commits_beside_it() -> None:
    """A shorter grace for invalidations does not reach above the horizon that was announced."""
    eager = PruneLimits(Timestamp(0), Timestamp(500), Timestamp(1000), EVERYTHING)
    assert not eager.may_prune(EntryRow(Timestamp(550), INVALID))


@pytest.mark.parametrize(
    ("start_ts", "goes"), [(150, False), (200, True), (300, True), (350, False)]
)
def test_entry_that_nobody_asked_about_stays(
    start_ts: int,
    goes: bool,  # noqa: FBT001 - a table
) -> None:
    """It came after the question, from an oracle that was deposed."""
    row = EntryRow(Timestamp(start_ts), COMMITTED)
    assert replace(LIMITS, asked=[range(200, 350)]).may_prune(row) == goes
    assert not replace(LIMITS, asked=()).may_prune(row), "nothing goes unasked"
    assert LIMITS.is_old_enough(row)
