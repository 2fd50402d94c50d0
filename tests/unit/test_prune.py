"""Which commit entries may be forgotten, at every boundary."""

from __future__ import annotations

from typing import Final

import pytest

from compactor.prune import PruneLimits
from omidpy.commit_facts import INVALID, CommitEntry
from omidpy.commit_table import EntryRow
from omidpy.model import Timestamp

LIMITS: Final = PruneLimits(Timestamp(100), Timestamp(1000), Timestamp(500))
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
    raw = b"\x01" if entry is not None else None
    assert LIMITS.may_prune(EntryRow(Timestamp(start_ts), entry, raw)) == goes


def test_invalidation_never_outlives_the_commits_beside_it() -> None:
    """A shorter grace for invalidations does not reach above the horizon that was announced."""
    eager = PruneLimits(Timestamp(0), Timestamp(500), Timestamp(1000))
    assert not eager.may_prune(EntryRow(Timestamp(550), INVALID, None))
