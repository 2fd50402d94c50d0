"""From which version on must a range be read, so that its next claim is true (I6)?

A pass reads its range whole the first time.  After that it reads a *span*: the versions behind
those that an earlier claim speaks of.  HBase leaves out the files without such versions, so that a
range in which nothing was written costs one short call, which asks memory and files alike and is
the check that nothing was.

Why a version with base(version) <= W needs no second look, where a claim W covers its row, its
family and this incarnation of its table:

    W1   of a transaction that is committed, it was in the store before W was read (L1 and L2 of
         `docs/explanation/pruning.md`), so that the pass saw it and healed it before it claimed
    W2   one that arrived later belongs to a transaction that can never commit any more: no
         snapshot sees it, whether a pass goes over it or not (I4)
    W3   its shadow cell, in either form, has the same version, and all versions of a transaction
         have one base; so a span that begins at a multiple of the step parts none of them

What a span may drop: garbage and orphans of its own, since both are told by cells of one version.
What it may not: superseded versions, tombstones and markers, which only the whole row can tell.

So a row is read whole where it may hold such, and a claim remembers where that is not:

    settled     a row without a version from here on has nothing to drop at *any* horizon
    collected   no row has anything to drop at a horizon up to this one

Both are seen by the pass that claims (`rows/heal.py`), and stay true with the claim: what is added
later has versions above W, and commits above W.  A run whose drop horizon is at or below
`collected` reads the span alone.  Else the span begins at `settled`, if that is lower, and each row
that has a version in it is read whole.  Rows that are not found have nothing to drop.

A range that held next to nothing is read whole each time: it costs one short call either way.

What neither finds is what W2 speaks of: garbage and orphans that came late.  They are invisible and
harmless, and go when the range is read whole again: each n-th time, or where an operator asks.

Pure.  An early version's claims remember neither, so that both are 0: all rows are read whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from compactor.horizon import HOLE, coverage, overlaps
from omidpy.facts.watermarks import Claim
from omidpy.model import TIMESTAMP_STEP, KeyRange, base

SMALL_CELLS: Final = 100
"""So many cells are read as soon as none."""


class Span(NamedTuple):
    """What a pass reads of its range, and what it takes over from the claims that it rests on."""

    min_version: int = 0
    """Versions from here on are read; 0 is the whole range."""
    is_collecting: bool = True
    """Each row that has such a version is read whole, and judged as such."""
    watermark: int = HOLE
    """W: all claims that it rests on are at least as high."""
    settled: int = 0
    collected: int = 0
    """The least that those claims remember."""
    passes: int = 0
    """How many passes in a row, this one included, did not read the range whole."""

    @property
    def is_whole(self) -> bool:
        """Say whether every row is read."""
        return self.min_version == 0

    def settled_before(self) -> bool:
        """Say whether no row had anything to drop at any horizon, as far as W goes."""
        return self.settled >= _behind(self.watermark)


WHOLE: Final = Span()
"""Every version of every row."""


class PastPasses:
    """The claims that passes may rest on: those that speak of a table of ours as it is."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        self._by_table: dict[str, list[Claim]] = {}
        self._newest: dict[tuple[str, KeyRange], Claim] = {}
        for claim in claims:
            self._by_table.setdefault(claim.table, []).append(claim)
            key = claim.table, claim.key_range
            if key not in self._newest or self._newest[key].watermark < claim.watermark:
                self._newest[key] = claim

    def span(
        self, table: str, key_range: KeyRange, *, drop_horizon: int, collect_every: int
    ) -> Span:
        """Return what a pass over some rows must read.

        Args:
            table: Where they are.
            key_range: Which rows.
            drop_horizon: From which horizon on versions may go; 0 collects nothing.
            collect_every: Each how many-th pass reads the range whole; 0 is none, for this reason.
        """
        claims = self._resting_on(table, key_range)
        if all(claim.is_small for claim in claims):
            return WHOLE
        passes = max(claim.passes for claim in claims) + 1
        if 0 < collect_every <= passes:
            return WHOLE
        watermark = min(claim.watermark for claim in claims)
        settled = min(claim.settled for claim in claims)
        collected = min(claim.collected for claim in claims)
        is_collecting = drop_horizon > collected
        first = _behind(watermark)
        if is_collecting:
            first = min(first, settled)
        if first == 0:
            return WHOLE
        return Span(first, is_collecting, watermark, settled, collected, passes)

    def _resting_on(self, table: str, key_range: KeyRange) -> Sequence[Claim]:
        """Return claims that together cover some rows; none if there is a hole among these.

        Ranges stay as they are for long, so that there is nearly always one for the very range.
        """
        newest = self._newest.get((table, key_range))
        if newest is not None:
            return (newest,)
        claims = self._by_table.get(table, ())
        least = min(
            segment.watermark
            for segment in coverage(claims)
            if overlaps(segment.key_range, key_range)
        )
        # Each row has one at least as high as the least of them all.
        return [
            claim
            for claim in claims
            if least != HOLE and claim.watermark >= least and overlaps(claim.key_range, key_range)
        ]


def _behind(watermark: int) -> int:
    """Return the first version whose base is above a watermark."""
    return base(watermark) + TIMESTAMP_STEP
