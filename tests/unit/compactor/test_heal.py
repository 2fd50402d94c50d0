"""What a pass writes to one row and takes from it, at every boundary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from compactor.rows.heal import RowPlan, Scope, examine, plan_row, unresolved
from omidpy.base.cells import LEGACY_TOMBSTONE, encode_long, shadow_qualifier
from omidpy.facts.tables.plain_versions import PlainVersions
from omidpy.model import Cell, Timestamp
from omidpy.storage.base import DeleteVersion, Put

CF: Final = b"cf"
L: Final = 1000


def scope(*, drop_horizon: int = 0, first_timestamp: int = 0) -> Scope:
    """Return a scope with one marked family and low watermark `L`."""
    return Scope(frozenset({CF}), L, first_timestamp, drop_horizon)


def data(version: int, value: bytes = b"v", *, qualifier: bytes = b"q", family: bytes = CF) -> Cell:
    """Return a data cell of the one row."""
    return Cell(b"r", family, qualifier, version, value)


def shadow(cell: Cell, commit_ts: int, *, is_legacy: bool = False) -> Cell:
    """Return the shadow cell of a cell, in Omid's older form if asked."""
    qualifier = cell.qualifier + b"\xc2\x80" if is_legacy else shadow_qualifier(cell.qualifier)
    return Cell(cell.row, cell.family, qualifier, cell.version, encode_long(commit_ts))


def row_of(*cells: Cell) -> list[Cell]:
    """Return cells in HBase's order."""
    return sorted(cells, key=lambda cell: (cell.family, cell.qualifier, -cell.version))


def healed(*pairs: tuple[Cell, int]) -> list[Cell]:
    """Return cells with their shadow cells, in HBase's order."""
    return row_of(*(cell for cell, _ in pairs), *(shadow(cell, at) for cell, at in pairs))


def plan(
    cells: list[Cell], resolved: Mapping[Cell, int | None] | None = None, *, within: Scope
) -> RowPlan:
    """Examine and plan a row."""
    known = {
        cell: None if commit_ts is None else Timestamp(commit_ts)
        for cell, commit_ts in (resolved or {}).items()
    }
    return plan_row(examine(cells, within), known, within)


# -- healing ---------------------------------------------------------------------------------------


def test_committed_cell_without_shadow_is_healed() -> None:
    """The one thing that must never be left undone: its commit entry is about to go."""
    cell = data(100)
    made = plan([cell], {cell: 150}, within=scope())
    assert made.heals == [Put(CF, shadow_qualifier(b"q"), 100, encode_long(150))]
    assert made.dropped_count() == 0


def test_cell_of_an_aborted_transaction_goes_with_its_shadow() -> None:
    """A shadow cell left alone would be an orphan; both go in one mutation of the row."""
    cell = data(100)
    heals, garbage, *_ = plan([cell], {cell: None}, within=scope()).phases()
    assert heals is None
    assert garbage is not None
    assert garbage.deletes == [
        DeleteVersion(CF, b"q", 100),
        DeleteVersion(CF, shadow_qualifier(b"q"), 100),
    ]


def test_no_write_of_a_row_both_puts_and_deletes() -> None:
    """HBase takes such rows one by one: a page of 500 was 500 calls, and is two."""
    healed_late, garbage, old, new = data(400), data(450), data(100), data(200)
    resolved = {healed_late: 410, garbage: None, old: 150, new: 250}
    cells = row_of(healed_late, garbage, old, new)
    phases = plan(cells, resolved, within=scope(drop_horizon=300)).phases()
    assert [phase is not None for phase in phases] == [True, True, True, False, False]
    assert not any(phase.puts and phase.deletes for phase in phases if phase is not None)


@pytest.mark.parametrize(
    ("version", "is_judged"), [(L - 50, True), (L, True), (L + 49, True), (L + 50, False)]
)
def test_checkpointed_cells_are_judged_by_their_base(version: int, is_judged: bool) -> None:  # noqa: FBT001 - a table
    """Comparing raw versions with L would leave cells 1001..1049 unhealed and prune entry 1000."""
    cell = data(version)
    assert unresolved(examine([cell], scope())) == ([cell] if is_judged else [])


def test_low_watermark_between_two_timestamps_covers_the_lower_ones_checkpoints() -> None:
    """Java's row may hold any number: 1007 covers the transaction at 1000, not that at 1050."""
    odd = Scope(frozenset({CF}), 1007, 0, 0)
    assert unresolved(examine(row_of(data(1049), data(1050)), odd)) == [data(1049)]


def test_shadow_cell_of_a_sibling_tells_the_commit() -> None:
    """All cells of a transaction commit at once, so no commit table read is needed."""
    one, other = data(100, qualifier=b"a"), data(101, qualifier=b"b")
    cells = row_of(one, other, shadow(one, 150))
    assert unresolved(examine(cells, scope())) == []
    assert plan(cells, within=scope()).heals == [
        Put(CF, shadow_qualifier(b"b"), 101, encode_long(150))
    ]


def test_autocommitted_shadow_speaks_for_its_cell_alone() -> None:
    """A shadow cell that holds its own version says nothing of the transaction of that number."""
    one, other = data(100, qualifier=b"a"), data(100, qualifier=b"b")
    assert unresolved(examine(row_of(one, other, shadow(one, 100)), scope())) == [other]


def test_shadow_cell_in_the_older_form_is_written_again_in_the_newer() -> None:
    """Readers look up the prefixed form only; without it the cell would vanish with its entry."""
    cell = data(100)
    cells = row_of(cell, shadow(cell, 150, is_legacy=True))
    assert plan(cells, within=scope()).heals == [
        Put(CF, shadow_qualifier(b"q"), 100, encode_long(150))
    ]
    both = row_of(cell, shadow(cell, 150, is_legacy=True), shadow(cell, 150))
    assert plan(both, within=scope()).is_empty()


def test_healed_row_is_left_alone() -> None:
    """A second run has nothing to write."""
    assert plan(healed((data(100), 150), (data(200), 250)), within=scope()).is_empty()


@pytest.mark.parametrize(
    ("value", "is_bad"),
    [
        (b"short", True),
        (bytes(9), True),
        (encode_long(-1), True),
        (encode_long(102), True),
        (encode_long(103), False),
        (encode_long(150), False),
        (encode_long(5000), False),
        (encode_long(5001), True),
    ],
)
@pytest.mark.parametrize("is_legacy", [False, True])
def test_malformed_shadow_cell_is_set_aside_with_its_cell(
    value: bytes, *, is_bad: bool, is_legacy: bool
) -> None:
    """From its own version up to the newest timestamp; guessing would be worse than waiting."""
    cell, sibling = data(103), data(103, qualifier=b"sibling")
    found = shadow(cell, 0, is_legacy=is_legacy)._replace(value=value)
    within = scope()._replace(newest=5000)
    row = examine(row_of(cell, found, sibling), within)
    assert list(row.malformed) == ([found] if is_bad else [])
    assert list(row.unreadable) == ([cell] if is_bad else [])
    if is_bad:
        assert unresolved(row) == [sibling], "a bad number says nothing of the transaction either"


def test_cell_without_a_fate_stays_and_is_named() -> None:
    """Nobody could read what became of its transaction."""
    cell, old, top = data(100), data(50), data(200, b"")
    cells = row_of(cell, *healed((old, 60), (top, 250)))
    made = plan(cells, {}, within=scope(drop_horizon=900))
    assert list(made.undecided) == [cell]
    assert list(made.tops) == [], "what may be seen some day must not lose what hides it"
    assert made.heals == []


# -- what is not ours ------------------------------------------------------------------------------


def test_family_without_the_mark_is_not_looked_at() -> None:
    """Plain data beside transactional data stays as it is."""
    plain = data(100, family=b"plain")
    assert not unresolved(examine([plain], scope()))


def test_cell_below_the_first_timestamp_is_foreign() -> None:
    """Equal to the first timestamp is ours; below it another oracle, or none, wrote the cell."""
    old, ours = data(499), data(500)
    examined = examine(row_of(old, ours), scope(first_timestamp=500))
    assert list(examined.foreign) == [old]
    assert unresolved(examined) == [ours]


def test_cell_of_a_plain_version_stays_unless_it_committed() -> None:
    """No transaction wrote it, whatever a reader of Omid's has forbidden; an entry is believed."""
    mixed = scope()._replace(plain=PlainVersions(100, 200))
    plain, other, committed = data(100), data(200), data(150, qualifier=b"c")
    made = plan(
        row_of(plain, other, committed), {plain: None, other: None, committed: 250}, within=mixed
    )
    assert list(made.unseen) == [plain]
    assert list(made.garbage) == [other]
    assert [put.version for put in made.heals] == [150]


ADOPTED: Final = Scope(frozenset({CF}), L, 100, L, PlainVersions(0, 100))
ASKED: Final = ADOPTED._replace(plain=PlainVersions(0, 0), collects_foreign=True)


def test_adopted_plain_version_goes_as_any_other() -> None:
    """Adopting gave it a shadow cell of its own version: it is the oldest commit of its column."""
    old, new = data(20), data(200)
    made = plan(healed((old, 20), (new, 250)), within=ADOPTED)
    assert list(made.superseded) == [old]
    assert list(examine(healed((old, 20)), ADOPTED).foreign) == []


@pytest.mark.parametrize(
    ("cells", "within"),
    [
        (row_of(data(20)), ADOPTED),
        (row_of(data(20)), ASKED),
        (row_of(data(20), shadow(data(20), 30)), ADOPTED),
        (row_of(data(20), shadow(data(20), 20)), ADOPTED._replace(plain=PlainVersions(0, 20))),
        (row_of(data(20), shadow(data(20), 20, is_legacy=True)), ADOPTED),
        (row_of(data(20), shadow(data(20), 20, is_legacy=True)), ASKED),
        (row_of(data(20), shadow(data(20), 19)), ASKED),
        (row_of(data(20), shadow(data(20), L)), ASKED._replace(newest=L - 1)),
        (row_of(data(20), shadow(data(20), 20)._replace(value=b"short")), ASKED),
    ],
)
def test_a_foreign_cell_that_says_nothing_certain_stays(cells: list[Cell], within: Scope) -> None:
    """Neither an operator's word nor an adoption speaks for it; what hides it stays as well."""
    tombstone = data(200, b"")
    made = plan(row_of(*cells, tombstone, shadow(tombstone, 250)), within=within)
    assert made.is_empty()
    assert list(examine(cells, within).foreign) == [data(20)]


def test_an_operator_has_foreign_versions_judged_by_their_shadow_cells() -> None:
    """Each with every form of its shadow cell; what no newer one hides stays."""
    old, older, new = data(60), data(20), data(200)
    cells = row_of(*healed((old, 70), (older, 30), (new, 250)), shadow(older, 30, is_legacy=True))
    made = plan(cells, within=ASKED)
    assert set(made.superseded) == {old, older}
    deleted = [one.deletes for one in made.phases() if one is not None]
    assert len(deleted[0]) == 5
    assert plan(healed((old, 70)), within=ASKED).is_empty()


def test_only_foreign_cells_without_a_shadow_cell_are_unseen() -> None:
    """A converted cell is in everybody's sight, and needs no remedy."""
    mixed = scope(first_timestamp=500)._replace(plain=PlainVersions(100, 500))
    late, converted, older = data(450), data(400), data(50)
    cells = row_of(late, converted, shadow(converted, 400), older)
    assert list(plan(cells, within=mixed).unseen) == [late]


def test_tombstone_above_a_plain_cell_stays() -> None:
    """Were it dropped, the cell would come back to life when the table is adopted again."""
    mixed = scope(drop_horizon=900)._replace(plain=PlainVersions(100, 150))
    plain = data(100)
    cells = row_of(plain, *healed((data(200, b""), 250)))
    assert plan(cells, {plain: None}, within=mixed).is_empty()
    assert not plan(cells, {plain: None}, within=scope(drop_horizon=900)).is_empty()


def test_orphan_shadow_cell_is_named_with_its_own_qualifier() -> None:
    """A Java rollback deletes the data cell and leaves the shadow cell."""
    gone = data(100)
    made = plan([shadow(gone, 150)], within=scope())
    assert [orphan.qualifier for orphan in made.orphans] == [shadow_qualifier(b"q")]
    legacy = plan([shadow(gone, 150, is_legacy=True)], within=scope())
    assert [orphan.qualifier for orphan in legacy.orphans] == [b"q\xc2\x80"]


# -- versions --------------------------------------------------------------------------------------


def dropped(made: RowPlan) -> list[list[int]]:
    """Return the versions that each phase removes."""
    return [
        [cell.version for cell in cells]
        for cells in (made.garbage, made.superseded, made.tops, made.markers)
    ]


def test_nothing_is_collected_without_a_horizon() -> None:
    """A horizon of 0 means that none was public long enough."""
    cells = healed((data(100), 150), (data(200), 250), (data(300, b""), 350))
    assert plan(cells, within=scope(drop_horizon=0)).is_empty()


def test_newest_committed_below_the_horizon_stays() -> None:
    """The snapshot at the horizon sees it."""
    cells = healed((data(100), 150), (data(200), 250), (data(300), 350))
    assert dropped(plan(cells, within=scope(drop_horizon=300))) == [[], [100], [], []]


@pytest.mark.parametrize(("horizon", "goes"), [(250, False), (251, True), (300, True)])
def test_commit_at_the_horizon_is_not_below_it(horizon: int, goes: bool) -> None:  # noqa: FBT001 - a table
    """The snapshot at 250 does not see the commit at 250 and needs the older version."""
    cells = healed((data(100), 150), (data(200), 250))
    made = plan(cells, within=scope(drop_horizon=horizon))
    assert dropped(made) == [[], [100] if goes else [], [], []]


def test_horizon_is_compared_with_commits_and_not_with_starts() -> None:
    """Omid's own compactor drops the older version here and breaks every snapshot up to 1200."""
    cells = healed((data(100), 150), (data(900), 1200))
    assert plan(cells, within=scope(drop_horizon=1000)).is_empty()


def test_newest_by_version_and_newest_by_commit_both_stay() -> None:
    """Conflict-free writes overlap: the lower version may be the later commit."""
    cells = healed((data(100), 900), (data(150), 180), (data(200), 250))
    assert dropped(plan(cells, within=scope(drop_horizon=950))) == [[], [150], [], []]


def test_collected_cell_is_healed_first_and_in_a_write_of_its_own() -> None:
    """One mutation must not put and delete the same version, and no entry is to be needed."""
    old, new = data(100), data(200)
    made = plan(row_of(old, new), {old: 150, new: 250}, within=scope(drop_horizon=300))
    assert [put.version for put in made.heals] == [200, 100]
    assert dropped(made) == [[], [100], [], []]
    first, second, third, *_ = made.phases()
    assert first is not None
    assert second is None
    assert third is not None
    assert not first.deletes
    assert not third.puts


def test_tombstone_goes_after_what_it_hides() -> None:
    """A run that dies between the two leaves the tombstone on an empty column."""
    cells = healed((data(100), 150), (data(200, b""), 250))
    assert dropped(plan(cells, within=scope(drop_horizon=300))) == [[], [100], [200], []]


def test_tombstone_stays_above_an_older_version_that_committed_later() -> None:
    """Readers pick the newest version, so the tombstone hides it too; found by random search."""
    cells = healed((data(100), 400), (data(200, b""), 250))
    assert plan(cells, within=scope(drop_horizon=300)).is_empty()
    marker = data(200, b"", qualifier=b"")
    cells = healed((data(100, qualifier=b""), 400), (marker, 250))
    assert plan(cells, within=scope(drop_horizon=300)).is_empty()


@pytest.mark.parametrize(("horizon", "goes"), [(250, False), (251, True)])
def test_tombstone_committed_at_the_horizon_stays(horizon: int, goes: bool) -> None:  # noqa: FBT001 - a table
    """The snapshot at 250 still sees the deleted value."""
    cells = healed((data(100), 150), (data(200, b""), 250))
    made = plan(cells, within=scope(drop_horizon=horizon))
    assert made.is_empty() != goes


def test_tombstone_below_a_newer_version_goes_with_the_old() -> None:
    """It is an ordinary version: superseded by the newest below the horizon."""
    cells = healed((data(100), 150), (data(200, b""), 250), (data(300), 350))
    assert dropped(plan(cells, within=scope(drop_horizon=400))) == [[], [200, 100], [], []]


def test_tombstone_stays_above_a_foreign_cell() -> None:
    """A foreign cell may be visible by a shadow cell of its own; nothing reveals it again."""
    foreign, tombstone = data(20), data(200, b"")
    cells = row_of(foreign, shadow(foreign, 20), tombstone, shadow(tombstone, 250))
    assert plan(cells, within=scope(drop_horizon=300, first_timestamp=50)).is_empty()


def test_family_marker_goes_last() -> None:
    """Columns below it first, each atomically with its older versions; the marker on its own."""
    marker = data(200, b"", qualifier=b"")
    cells = healed((data(100), 150), (data(110, qualifier=b"p"), 150), (marker, 250))
    assert dropped(plan(cells, within=scope(drop_horizon=300))) == [[], [], [110, 100], [200]]


def test_family_marker_stays_while_a_hidden_cell_does() -> None:
    """A foreign cell of the family cannot be dropped, so what hides it cannot either."""
    foreign, marker = data(20, qualifier=b"f"), data(200, b"", qualifier=b"")
    cells = row_of(foreign, shadow(foreign, 20), marker, shadow(marker, 250))
    assert plan(cells, within=scope(drop_horizon=300, first_timestamp=50)).is_empty()


def test_cell_committed_after_the_marker_stays_and_the_marker_goes() -> None:
    """It is visible: markers hide by commit order, and nothing hidden is left."""
    marker = data(200, b"", qualifier=b"")
    cells = healed((data(100), 150), (data(260), 280), (marker, 250))
    assert dropped(plan(cells, within=scope(drop_horizon=300))) == [[], [100], [], [200]]


def test_cell_of_the_markers_own_transaction_is_hidden_up_to_its_version() -> None:
    """Equal versions are hidden, as in Java; a later checkpoint of the same transaction is not."""
    marker = data(201, b"", qualifier=b"")
    equal, later = data(201, qualifier=b"a"), data(202, qualifier=b"b")
    cells = healed((marker, 250), (equal, 250), (later, 250))
    made = plan(cells, within=scope(drop_horizon=300))
    assert [cell.qualifier for cell in made.tops] == [b"a"]
    assert list(made.markers) == [marker]


def test_older_marker_that_committed_later_goes_before_the_newest() -> None:
    """Left alone it would hide what is visible between the two commits."""
    newest, older = data(200, b"", qualifier=b""), data(100, b"", qualifier=b"")
    cells = healed((newest, 250), (older, 400), (data(260), 300))
    made = plan(cells, within=scope(drop_horizon=500))
    assert list(made.tops) == [older]
    assert list(made.markers) == [newest]


def test_marker_above_the_horizon_hides_nothing_yet() -> None:
    """Snapshots between the horizon and its commit still see the cells."""
    marker = data(200, b"", qualifier=b"")
    cells = healed((data(100), 150), (marker, 400))
    assert plan(cells, within=scope(drop_horizon=300)).is_empty()


def test_column_with_the_empty_qualifier_keeps_its_legacy_tombstone_rules() -> None:
    """There an empty value is a marker; the column's own tombstone is Omid's older form."""
    cells = healed(
        (data(100, b"x", qualifier=b""), 150), (data(200, LEGACY_TOMBSTONE, qualifier=b""), 250)
    )
    assert dropped(plan(cells, within=scope(drop_horizon=300))) == [[], [100], [200], []]


def test_autocommitted_versions_are_collected_by_their_own_version() -> None:
    """Their commit timestamp is the version itself."""
    cells = healed((data(100), 100), (data(203), 203))
    assert dropped(plan(cells, within=scope(drop_horizon=204))) == [[], [100], [], []]
    assert plan(cells, within=scope(drop_horizon=203)).is_empty()


def test_dropped_cell_takes_both_forms_of_its_shadow_cell() -> None:
    """A legacy shadow cell left behind would be an orphan for the next run."""
    old, new = data(100), data(200)
    cells = row_of(old, new, shadow(old, 150, is_legacy=True), shadow(new, 250))
    phase = plan(cells, within=scope(drop_horizon=300)).phases()[2]
    assert phase is not None
    assert {delete.qualifier for delete in phase.deletes} == {
        b"q",
        shadow_qualifier(b"q"),
        b"q\xc2\x80",
    }
