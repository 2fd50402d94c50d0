"""From claims about key ranges to what the commit table may forget.

Pure interval arithmetic.  A claim says that every cell with base(version) <= its watermark in a
range of rows is healed or gone.  Several claims speak of one row; the highest counts.  A row that
no claim speaks of is a hole, and a hole is minus infinity: it is written as watermark 0, below
every timestamp, so that nothing may be forgotten.

    I7   the horizon is the minimum over the whole key space of every table that counts

Claims name rows, never regions: after a split both halves are still covered, after a merge the
lower of the two counts, and a region without a claim is a hole instead of being left out.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from omidpy.facts.watermarks import Claim
from omidpy.model import KeyRange, Timestamp

HOLE: Final = 0
"""The watermark of rows that no claim speaks of: below every timestamp."""

OLDEST_GRACE_MS: Final = 2**22 * 1000
"""Some 48 days: of claims older than any sensible grace only the newest are kept."""


AgeOf: TypeAlias = Callable[[Claim], int]
"""How old a claim is at least, in milliseconds."""


class Segment(NamedTuple):
    """Rows that have one watermark."""

    key_range: KeyRange
    watermark: int


def coverage(claims: Iterable[Claim]) -> list[Segment]:
    """Return the watermark of every row of a table: in order, without gap, neighbours differing.

    Args:
        claims: Those of one table.

    Cost: O(n log n) for n claims.
    """
    usable = sorted(
        (claim for claim in claims if not claim.key_range.is_empty()), key=lambda claim: claim.start
    )
    edges = sorted(
        {b"", *(claim.start for claim in usable), *(claim.end for claim in usable if claim.end)}
    )
    segments: list[Segment] = []
    active: list[tuple[int, bytes]] = []
    index = 0
    for start, end in zip(edges, [*edges[1:], b""], strict=True):
        while index < len(usable) and usable[index].start <= start:
            heapq.heappush(active, (-usable[index].watermark, usable[index].end))
            index += 1
        while active and active[0][1] and active[0][1] <= start:
            heapq.heappop(active)
        watermark = -active[0][0] if active else HOLE
        if segments and segments[-1].watermark == watermark:
            segments[-1] = Segment(KeyRange(segments[-1].key_range.start, end), watermark)
        else:
            segments.append(Segment(KeyRange(start, end), watermark))
    return segments


def minimum(tables: Iterable[str], claims: Iterable[Claim]) -> Timestamp | None:
    """Return the least watermark of any row of `tables`; None if there is no table at all."""
    by_table = claims_by_table(claims)
    # A table of which no claim speaks is one hole: the commit table forgets nothing for it (I7).
    return min(
        (
            Timestamp(segment.watermark)
            for table in tables
            for segment in coverage(by_table.get(table, ()))
        ),
        default=None,
    )


def without_tables(claims: Iterable[Claim], commit_table: str) -> Timestamp:
    """Return how far the commit table may forget where no table is left that could need it.

    Claims that name the commit table itself say that there was none, as of their watermark.
    """
    absences = (Timestamp(claim.watermark) for claim in claims if claim.table == commit_table)
    return max(absences, default=Timestamp(HOLE))


class Wanted(NamedTuple):
    """What claims must speak of to count for a table."""

    families: frozenset[bytes]
    """All of them: one that was adopted since a pass may be full of cells that it never saw."""
    incarnation: str = ""
    """It alone: another table of the name is of no account."""

    def is_met_by(self, claim: Claim) -> bool:
        """Say whether a claim on a table of the name speaks of this one, as a whole."""
        return self.families <= frozenset(claim.families) and self.incarnation == claim.incarnation


def relevant(
    claims: Iterable[Claim], tables: Mapping[str, Wanted]
) -> tuple[list[Claim], list[Claim]]:
    """Divide claims into those that speak of a table as it is, and those that do not.

    Args:
        claims: Of any tables; those of tables that are not among `tables` are left out.
        tables: The tables as they are.
    """
    whole: list[Claim] = []
    rest: list[Claim] = []
    for claim in claims:
        wanted = tables.get(claim.table)
        if wanted is not None:
            (whole if wanted.is_met_by(claim) else rest).append(claim)
    return whole, rest


def claims_by_table(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """Return the claims of each table."""
    grouped: dict[str, list[Claim]] = {}
    for claim in claims:
        grouped.setdefault(claim.table, []).append(claim)
    return grouped


def aged(claims: Iterable[Claim], age_ms: AgeOf, *, grace_s: float) -> list[Claim]:
    """Return the claims that are at least `grace_s` old."""
    least_ms = round(grace_s * 1000)
    return [claim for claim in claims if age_ms(claim) >= least_ms]


def uncovered(claims: Iterable[Claim], *, below: int) -> list[Segment]:
    """Return the rows of a table whose watermark is below `below`."""
    return [segment for segment in coverage(claims) if segment.watermark < below]


# -- claims that may be forgotten ------------------------------------------------------------------


def useless_claims(claims: Iterable[Claim], age_ms: AgeOf, *, tables: Iterable[str]) -> list[Claim]:
    """Return the claims that can be forgotten without holding anything back for long.

    Those of tables that are gone, those of former ranges that other old ones outdo everywhere, and
    of each range so many that a bounded number is left at every age: a grace of an hour or of a
    month still finds a claim about as old as itself.
    """
    existing = set(tables)
    useless: list[Claim] = []
    for table, of_table in claims_by_table(claims).items():
        if table not in existing:
            useless += of_table
            continue
        by_range: dict[KeyRange, list[Claim]] = {}
        for claim in of_table:
            by_range.setdefault(claim.key_range, []).append(claim)
        thinned: list[Claim] = []
        for of_range in by_range.values():
            kept = _thin(of_range, age_ms)
            thinned += kept
            useless += [claim for claim in of_range if claim not in kept]
        useless += _outdone(thinned, age_ms)
    return useless


def _thin(claims: Sequence[Claim], age_of: AgeOf) -> list[Claim]:
    """Keep, of one range, the newest and oldest claim of each power of two seconds of age.

    The oldest of a class of ages grows into the next class; were only the newest kept, a newer
    one would always replace it before it came of age.
    """
    classes: dict[int, list[Claim]] = {}
    for claim in claims:
        age_ms = age_of(claim)
        is_ancient = age_ms >= OLDEST_GRACE_MS
        age_class = -1 if is_ancient else max(age_ms // 1000, 0).bit_length()
        classes.setdefault(age_class, []).append(claim)
    kept: dict[bytes, Claim] = {}
    for age_class, of_class in classes.items():
        newest = max(of_class, key=lambda claim: claim.watermark)
        oldest = min(of_class, key=lambda claim: claim.watermark)
        for claim in (newest,) if age_class == -1 else (newest, oldest):
            kept[claim.row()] = claim
    return list(kept.values())


def _outdone(claims: Sequence[Claim], age_ms: AgeOf) -> list[Claim]:
    """Return the ancient claims of former ranges that other ancient claims outdo everywhere.

    Ranges change as regions split and merge; without this the claims of former ranges would stay
    for ever.
    """
    in_use = {claim.key_range for claim in claims if age_ms(claim) < OLDEST_GRACE_MS}
    ancient = [claim for claim in claims if age_ms(claim) >= OLDEST_GRACE_MS]
    outdone: list[Claim] = []
    for claim in sorted(ancient, key=lambda claim: claim.watermark):
        if claim.key_range in in_use:
            continue
        rivals = [other for other in ancient if other is not claim]
        if all(
            segment.watermark >= claim.watermark
            for segment in coverage(rivals)
            if overlaps(segment.key_range, claim.key_range)
        ):
            ancient = rivals  # it outdoes none any more: of two that are alike one stays
            outdone.append(claim)
    return outdone


def overlaps(one: KeyRange, other: KeyRange) -> bool:
    """Say whether some row lies in both ranges."""
    return (not other.end or one.start < other.end) and (not one.end or other.start < one.end)


def common(one: KeyRange, other: KeyRange) -> KeyRange:
    """Return the rows that lie in both of two ranges that overlap."""
    ends = [end for end in (one.end, other.end) if end]
    return KeyRange(max(one.start, other.start), min(ends, default=b""))
