"""Interval arithmetic over claims: the minimum, the holes, and what may be forgotten."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.horizon import (
    HOLE,
    OLDEST_GRACE_MS,
    Segment,
    Wanted,
    aged,
    coverage,
    minimum,
    overlaps,
    relevant,
    uncovered,
    useless_claims,
)
from omidpy.facts.control import decode_document
from omidpy.facts.watermarks import Claim
from omidpy.model import KeyRange

NOW_MS: Final = 10**13


def claim(start: bytes, end: bytes, watermark: int, *, table: str = "t", age_s: float = 0) -> Claim:
    """Return a claim recorded `age_s` before now."""
    return Claim(table, start, end, watermark, NOW_MS - round(age_s * 1000))


def age_ms(claim: Claim) -> int:
    """Return how old a claim is; here its date tells."""
    return NOW_MS - claim.recorded_ms


def test_no_claim_is_one_hole() -> None:
    """A table nobody has scanned forbids everything."""
    assert coverage([]) == [Segment(KeyRange(), HOLE)]
    assert minimum(["t"], []) == HOLE


def test_gap_between_ranges_is_a_hole() -> None:
    """The minimum over ranges *that reported* would be 100 and lose the rows from m to n."""
    claims = [claim(b"", b"m", 100), claim(b"n", b"", 200)]
    assert coverage(claims) == [
        Segment(KeyRange(b"", b"m"), 100),
        Segment(KeyRange(b"m", b"n"), HOLE),
        Segment(KeyRange(b"n", b""), 200),
    ]
    assert minimum(["t"], claims) == HOLE


def test_end_of_the_table_must_be_covered() -> None:
    """An empty end is infinity, a key is not, however large."""
    assert minimum(["t"], [claim(b"", b"\xff\xff", 100)]) == HOLE
    assert minimum(["t"], [claim(b"", b"", 100)]) == 100


def test_split_inherits_and_merge_takes_the_lower() -> None:
    """Claims speak of rows, so regions may come and go."""
    parent = [claim(b"", b"", 100)]
    assert minimum(["t"], [*parent, claim(b"", b"m", 200)]) == 100
    merged = [claim(b"", b"m", 200), claim(b"m", b"", 150), claim(b"", b"", 100)]
    assert minimum(["t"], merged) == 150


def test_minimum_counts_every_table() -> None:
    """One table without a claim holds back all."""
    assert minimum(["t", "u"], [claim(b"", b"", 100)]) == HOLE
    assert minimum(["t", "u"], [claim(b"", b"", 100), claim(b"", b"", 90, table="u")]) == 90
    assert minimum([], [claim(b"", b"", 100)]) is None


def test_empty_range_covers_nothing() -> None:
    """A region that starts where it ends holds no row."""
    assert coverage([claim(b"m", b"m", 100), claim(b"n", b"c", 100)]) == [Segment(KeyRange(), HOLE)]


def test_uncovered_names_the_rows_below_a_watermark() -> None:
    """What a report calls a laggard."""
    claims = [claim(b"", b"m", 100), claim(b"m", b"", 50)]
    assert uncovered(claims, below=100) == [Segment(KeyRange(b"m", b""), 50)]
    assert uncovered(claims, below=50) == []


@pytest.mark.parametrize(("age_s", "counts"), [(0, False), (3599.999, False), (3600, True)])
def test_claim_counts_from_the_grace_on(age_s: float, counts: bool) -> None:  # noqa: FBT001 - a table
    """Equality is old enough."""
    assert bool(aged([claim(b"", b"", 1, age_s=age_s)], age_ms, grace_s=3600)) == counts


def test_without_a_grace_every_claim_counts_at_once() -> None:
    """Also one of which nobody knows how old it is."""
    assert aged([claim(b"", b"", 1, age_s=0)], age_ms, grace_s=0)


KEYS: Final = [b"", b"a", b"b", b"c", b"d"]
claims_of_one_table = st.lists(
    st.builds(
        lambda start, end, watermark, age_s: claim(start, end, watermark, age_s=age_s),
        st.sampled_from(KEYS),
        st.sampled_from(KEYS),
        st.integers(1, 5),
        st.integers(0, 2**23),
    ),
    max_size=8,
)


@given(claims_of_one_table)
def test_coverage_is_the_maximum_at_every_row(claims: list[Claim]) -> None:
    """Against the definition, row by row; and the segments tile the key space."""
    segments = coverage(claims)
    assert segments[0].key_range.start == b""
    assert segments[-1].key_range.end == b""
    for before, after in pairwise(segments):
        assert before.key_range.end == after.key_range.start
        assert before.watermark != after.watermark
    for row in (b"\x00", b"a", b"ab", b"b", b"bz", b"c", b"d", b"zz"):
        expected = max(
            (one.watermark for one in claims if one.key_range.contains(row)), default=HOLE
        )
        (found,) = [one.watermark for one in segments if one.key_range.contains(row)]
        assert found == expected


@given(claims_of_one_table)
def test_forgetting_claims_never_raises_a_watermark(claims: list[Claim]) -> None:
    """Fewer claims may only hold more back; and without any grace nothing is lost at all."""
    useless = useless_claims(claims, age_ms, tables=["t"])
    kept = [one for one in claims if one not in useless]
    assert coverage(kept) == coverage(claims)
    for grace_s in (0, 1, 60, 3600, 86_400):
        before = minimum(["t"], aged(claims, age_ms, grace_s=grace_s))
        after = minimum(["t"], aged(kept, age_ms, grace_s=grace_s))
        assert before is not None
        assert after is not None
        assert after <= before


def test_claims_of_a_dropped_table_are_forgotten() -> None:
    """A table restored under its name later must be scanned before anything is pruned."""
    gone = claim(b"", b"", 100, table="gone")
    assert useless_claims([gone, claim(b"", b"", 1)], age_ms, tables=["t"]) == [gone]


@pytest.mark.parametrize("grace_s", [1, 10, 3600, 86_400, 7 * 86_400])
def test_nightly_and_frequent_runs_keep_a_claim_for_every_grace(grace_s: float) -> None:
    """A run each `grace / 3`: thinning must not starve the grace of claims old enough."""
    claims: list[Claim] = []
    now_ms = NOW_MS

    def age_by_now(claim: Claim) -> int:
        return now_ms - claim.recorded_ms

    for number in range(1, 400):
        now_ms += round(grace_s * 1000 / 3)
        claims.append(Claim("t", b"", b"", number * 50, now_ms))
        useless = useless_claims(claims, age_by_now, tables=["t"])
        claims = [one for one in claims if one not in useless]
        assert len(claims) <= 2 * 24
        if number > 50:
            old_enough = aged(claims, age_by_now, grace_s=grace_s)
            newest_ms = max(one.recorded_ms for one in old_enough)
            assert now_ms - newest_ms <= 4 * grace_s * 1000 + 1


def test_claims_of_former_ranges_go_when_old_ones_outdo_them() -> None:
    """Regions that split and merge for years must not pile up records."""
    old_s = OLDEST_GRACE_MS / 1000
    former = claim(b"", b"m", 100, age_s=old_s + 20)
    covering = claim(b"", b"", 150, age_s=old_s + 10)
    assert useless_claims([former, covering], age_ms, tables=["t"]) == [former]
    higher = claim(b"", b"m", 200, age_s=old_s + 20)
    assert useless_claims([higher, covering], age_ms, tables=["t"]) == []


def test_overlap_is_about_rows() -> None:
    """Ranges that merely touch share none."""
    assert not overlaps(KeyRange(b"a", b"b"), KeyRange(b"b", b"c"))
    assert overlaps(KeyRange(b"a", b""), KeyRange(b"b", b"c"))
    assert overlaps(KeyRange(), KeyRange(b"b", b"c"))


# -- families --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoken_of", "is_whole"),
    [((), False), ((b"a",), False), ((b"a", b"b"), True), ((b"a", b"b", b"c"), True)],
)
def test_claim_counts_for_the_families_it_names(
    spoken_of: tuple[bytes, ...],
    is_whole: bool,  # noqa: FBT001 - a table
) -> None:
    """One that names none was recorded before claims did; more than are asked for is enough."""
    made = Claim("t", b"", b"", 100, NOW_MS, spoken_of)
    expected = ([made], []) if is_whole else ([], [made])
    assert relevant([made], {"t": Wanted(frozenset({b"a", b"b"}))}) == expected
    assert relevant([made], {"u": Wanted(frozenset())}) == ([], []), "another table's is neither"


@pytest.mark.parametrize(("claimed", "is_whole"), [("2", True), ("1", False), ("", False)])
def test_claim_counts_for_its_incarnation_alone(
    claimed: str,
    is_whole: bool,  # noqa: FBT001 - a table
) -> None:
    """A table that was dropped and made anew may hold cells that no pass has seen (I7)."""
    made = Claim("t", b"", b"", 100, NOW_MS, (b"a",), incarnation=claimed)
    expected = ([made], []) if is_whole else ([], [made])
    assert relevant([made], {"t": Wanted(frozenset({b"a"}), "2")}) == expected


def test_claims_of_two_incarnations_are_two_facts() -> None:
    """The later one must not be taken for recorded because the earlier one is."""
    first, second = (
        Claim("t", b"", b"", 100, NOW_MS, (b"a",), incarnation=one) for one in ("1", "2")
    )
    assert first.row() != second.row()


def test_claims_of_different_families_are_different_rows() -> None:
    """The one that was first would keep the other from being recorded, at the same watermark."""
    names = [(), (b"a",), (b"b",), (b"a", b"b"), (b"a,b",)]
    rows = {Claim("t", b"", b"", 100, NOW_MS, families).row() for families in names}
    assert len(rows) == len(names)


def test_claims_of_early_versions_can_be_read() -> None:
    """Their documents have no families; the next run replaces them."""
    document = b'{"table":"t","start":"","end":"bQ==","watermark":100,"recorded_ms":1}'
    assert decode_document(document, Claim, row=b"claim/") == Claim("t", b"", b"m", 100, 1)
