"""Which versions are certainly no transaction's?  Those that no oracle issued or will issue.

HBase's own clock gives a cell written without a transaction the milliseconds since 1970, and an
oracle in world time issues nanoseconds.  So the two can be told apart by the number alone, wherever
it is known which numbers oracles have used:

    no oracle before ours      versions below the first timestamp that it issued
    Omid's, in world time      versions below world time
    Omid's, counting           the same, but above the last number that it issued

A reader that meets such a cell without a shadow cell must not treat it as what a dead client left:
no oracle will ever decide about it, and it is data.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from omidpy.errors import NoSuchTable
from omidpy.facts.commit_table import ADOPTED_CEILING_FACT, FIRST_TIMESTAMP_FACT, read_low_watermark
from omidpy.facts.control import ControlTable, decode_number
from omidpy.model import FIRST_WORLD_TIMESTAMP, TIMESTAMP_STEP, base
from omidpy.storage.base import Store


class PlainVersions(NamedTuple):
    """Versions from `low` on and below `high` are certainly no transaction's."""

    low: int
    high: int

    def contains(self, version: int) -> bool:
        """Say whether a cell of that version is plain data."""
        return self.low <= version < self.high


NO_VERSIONS: Final = PlainVersions(0, 0)
"""Any version may be a transaction's."""


def plain_versions(store: Store) -> PlainVersions | None:
    """Return which versions no oracle of this store has issued or will issue.

    None: no oracle of ours has started yet, so that it is not known.

    Cost: 2 gets, 2 more where Omid's oracle served before ours.
    """
    control = ControlTable(store)
    try:
        first = control.read_number(FIRST_TIMESTAMP_FACT)
    except NoSuchTable:
        return None
    if first is None:
        return None
    raw_ceiling = control.read(ADOPTED_CEILING_FACT)
    if raw_ceiling is None:
        return PlainVersions(0, first)
    if read_low_watermark(store) < FIRST_WORLD_TIMESTAMP:
        return NO_VERSIONS  # numbers, like Omid's before: any may be a transaction's
    ceiling = decode_number(raw_ceiling, row=ADOPTED_CEILING_FACT)
    if ceiling >= FIRST_WORLD_TIMESTAMP:
        return PlainVersions(0, FIRST_WORLD_TIMESTAMP)
    # The transaction that began at the ceiling may have taken checkpoints.
    return PlainVersions(base(ceiling) + TIMESTAMP_STEP, FIRST_WORLD_TIMESTAMP)


def presumed_plain(store: Store, low_watermark: int) -> PlainVersions:
    """Return which versions a compaction must not forbid or drop.

    Where no oracle of ours has started, Omid's may have counted before it turned to world time, so
    that a version below is plain data in all likelihood and not for certain.  A cell of such a
    version is healed if its transaction committed, and else left alone.

    Args:
        store: Whose versions.
        low_watermark: The oracle's, as of which cells are judged.
    """
    known = plain_versions(store)
    if known is not None:
        return known
    if low_watermark < FIRST_WORLD_TIMESTAMP:
        return NO_VERSIONS
    return PlainVersions(0, FIRST_WORLD_TIMESTAMP)
