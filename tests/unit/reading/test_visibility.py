"""Which version a snapshot sees, and in which order a reader asks what became of a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pytest

from omidpy.base.cells import LEGACY_TOMBSTONE, SHADOW_SUFFIX, encode_long, shadow_qualifier
from omidpy.base.commit_facts import INVALID
from omidpy.base.rows.simple import paired
from omidpy.errors import CorruptCell
from omidpy.model import Cell, Timestamp
from omidpy.reading.visibility import (
    GONE,
    TRUNCATED,
    Answer,
    Invalidate,
    ReadCommitEntry,
    ReadShadowCell,
    Request,
    Resolution,
    Truncated,
    UndoInvalidation,
    Unresolved,
    VisibleRow,
    commit_timestamp,
    healed,
    sort_row,
    unhealed,
    visible_row,
)

START = Timestamp(1000)


def data(version: int, value: bytes = b"v", qualifier: bytes = b"q", family: bytes = b"f") -> Cell:
    """Return a data cell of the one row."""
    return Cell(b"r", family, qualifier, version, value)


def shadow(cell: Cell, commit_ts: int) -> Cell:
    """Return the shadow cell of `cell`."""
    return cell._replace(qualifier=shadow_qualifier(cell.qualifier), value=encode_long(commit_ts))


def marker(version: int, family: bytes = b"f") -> Cell:
    """Return a family marker, as Java writes it."""
    return data(version, b"", b"", family)


def decide(
    cells: Sequence[Cell],
    *,
    start_ts: Timestamp = START,
    facts: Mapping[Cell, Timestamp | None] | None = None,
    commits: Mapping[Timestamp, Timestamp] | None = None,
    versions_read: int | None = None,
) -> VisibleRow | Unresolved | Truncated:
    """Decide a row given in any order."""
    ordered = sorted(cells, key=lambda cell: (cell.family, cell.qualifier, -cell.version))
    return visible_row(
        sort_row(ordered), start_ts, facts or {}, commits or {}, versions_read=versions_read
    )


def seen(cells: Sequence[Cell], **known: object) -> list[tuple[Cell, int]]:
    """Return the cells that are seen, with their commit timestamps."""
    row = decide(cells, **known)  # type: ignore[arg-type]  # passed through as given
    assert isinstance(row, VisibleRow)
    return [(cell, commit_ts) for cell, commit_ts in row.cells]


# -- plain versions --------------------------------------------------------------------------------


def test_the_newest_version_committed_before_the_snapshot_is_seen() -> None:
    """Snapshot isolation in one line."""
    old, new = data(100), data(200)
    assert seen([old, shadow(old, 150), new, shadow(new, 250)]) == [(new, 250)]


def test_a_version_committed_after_the_snapshot_began_is_not_seen() -> None:
    """It began before, but its commit is in the snapshot's future; the older version shows."""
    old, late = data(100), data(900)
    assert seen([old, shadow(old, 150), late, shadow(late, 1050)]) == [(old, 150)]


def test_a_commit_at_the_snapshot_itself_is_not_seen() -> None:
    """Below, not at: timestamps are unique, so equality can only be somebody's mistake."""
    cell = data(900)
    assert seen([cell, shadow(cell, 1000)]) == []
    assert seen([cell, shadow(cell, 999)]) == [(cell, 999)]


def test_own_cells_are_seen_without_a_commit_timestamp() -> None:
    """A flushed cell is read from the store, at its transaction's start_ts."""
    old, own = data(100), data(1000, b"own")
    assert seen([old, shadow(old, 150), own]) == [(own, 1000)]


def test_of_own_checkpoints_the_newest_is_seen() -> None:
    """A rewritten cell has a higher version; 49 is the last that belongs to the transaction."""
    first, last = data(1000, b"first"), data(1049, b"last")
    assert seen([first, last]) == [(last, 1000)]


def test_a_version_of_a_later_transaction_is_never_seen() -> None:
    """The version 1050 belongs to the next transaction, whatever the store returns."""
    later = data(1050)
    assert seen([later, shadow(later, 1000)]) == []


def test_a_tentative_newest_version_is_asked_about() -> None:
    """It may have committed; guessing either way breaks a snapshot."""
    old, tentative = data(100), data(900)
    row = decide([old, shadow(old, 150), tentative])
    assert row == Unresolved([tentative])


def test_an_uncommitted_newest_version_shows_the_older_one() -> None:
    """A dead client's cell hides nothing."""
    old, orphan = data(100), data(900)
    assert seen([old, shadow(old, 150), orphan], facts={orphan: None}) == [(old, 150)]


def test_only_the_newest_undecided_version_of_a_column_is_asked_about() -> None:
    """Older ones matter only if it is not seen; asking for them would cost reads."""
    row = decide([data(100), data(200), data(900)])
    assert row == Unresolved([data(900)])


def test_every_undecided_column_is_asked_about_at_once() -> None:
    """One round of reads for the row, not one for each column."""
    one, two = data(900, qualifier=b"a"), data(900, qualifier=b"b")
    assert decide([one, two]) == Unresolved([one, two])


def test_a_checkpointed_version_resolves_by_its_transaction() -> None:
    """The version 907 is of transaction 900; its commit is known by that number."""
    cell = data(907)
    assert seen([cell], commits={Timestamp(900): Timestamp(950)}) == [(cell, 950)]
    assert seen([cell], facts={cell: Timestamp(950)}) == [(cell, 950)]


def test_a_shadow_cell_anywhere_in_the_row_speaks_for_its_transaction() -> None:
    """One commit timestamp for all cells of a transaction: the row's other columns need no read."""
    one, two = data(900, qualifier=b"a"), data(903, qualifier=b"b")
    assert seen([one, shadow(one, 950), two]) == [(one, 950), (two, 950)]


def test_a_tombstone_shows_nothing_of_its_column_alone() -> None:
    """Deleting a column leaves its neighbours."""
    value, deleted = data(100, qualifier=b"a"), data(100, qualifier=b"b")
    tombstone = data(200, b"", b"b")
    cells = [
        *(value, shadow(value, 150), deleted, shadow(deleted, 150)),
        *(tombstone, shadow(tombstone, 250)),
    ]
    assert seen(cells) == [(value, 150)]


def test_the_older_tombstone_of_omid_deletes_too() -> None:
    """Java's clients once wrote this value, and it deletes the empty qualifier for us."""
    cell, tombstone = data(100, qualifier=b""), data(200, LEGACY_TOMBSTONE, b"")
    assert seen([cell, shadow(cell, 150), tombstone, shadow(tombstone, 250)]) == []


def test_a_tombstone_that_is_not_in_the_snapshot_hides_nothing() -> None:
    """A delete is a write like any other."""
    cell, tombstone = data(100), data(900, b"")
    assert seen([cell, shadow(cell, 150), tombstone, shadow(tombstone, 1050)]) == [(cell, 150)]


# -- shadow cells ----------------------------------------------------------------------------------


def test_an_autocommitted_cell_is_seen_at_its_own_version() -> None:
    """Java can write a cell and a shadow cell of the same number in one go."""
    cell = data(900)
    assert seen([cell, shadow(cell, 900)]) == [(cell, 900)]


def test_an_autocommitted_cell_speaks_for_no_other_cell() -> None:
    """It is in no transaction: a tentative cell of the same number is still tentative."""
    auto, tentative = data(900, qualifier=b"a"), data(900, qualifier=b"b")
    assert sort_row([auto, shadow(auto, 900)]).commits == {}
    assert decide([auto, shadow(auto, 900), tentative]) == Unresolved([tentative])


def test_a_shadow_cell_of_omids_older_form_is_honoured() -> None:
    """Tables from before the prefix have `qualifier C2 80`."""
    cell = data(900)
    old_form = cell._replace(qualifier=b"q" + SHADOW_SUFFIX, value=encode_long(950))
    assert seen([cell, old_form]) == [(cell, 950)]


def test_the_present_form_of_a_shadow_cell_outranks_the_older() -> None:
    """Where both stand, the one that every lookup reads is the one that counts."""
    cell = data(900)
    old_form = cell._replace(qualifier=b"q" + SHADOW_SUFFIX, value=encode_long(960))
    for cells in ([old_form, shadow(cell, 950)], [shadow(cell, 950), old_form]):
        assert sort_row([cell, *cells]).shadows == {(b"f", b"q", 900): 950}


def test_a_shadow_cell_of_a_wrong_size_is_reported() -> None:
    """Guessing a commit timestamp would make up history."""
    broken = shadow(data(900), 950)._replace(value=b"\x01")
    with pytest.raises(CorruptCell, match="expected 8 bytes"):
        sort_row([broken])


def test_shadow_cells_of_removed_cells_show_nothing() -> None:
    """Java's rollback leaves them behind."""
    assert seen([shadow(data(900), 950)]) == []


def test_committed_cells_without_a_shadow_cell_are_named_for_healing() -> None:
    """Tombstones among them: the next reader should not have to ask again."""
    healed, known = data(100, qualifier=b"a"), data(100, qualifier=b"b")
    deleted, own = data(100, b"", b"c"), data(1000, qualifier=b"d")
    row = decide([healed, shadow(healed, 150), known, deleted, own])
    assert isinstance(row, VisibleRow)
    assert list(row.unhealed) == [(known, 150), (deleted, 150)]


# -- family markers --------------------------------------------------------------------------------


def test_a_family_marker_hides_what_was_committed_before_it() -> None:
    """Java deletes a family with one cell in the empty qualifier."""
    cell, gone = data(100), marker(200)
    other = data(100, family=b"g")
    cells = [cell, shadow(cell, 150), gone, shadow(gone, 250), other, shadow(other, 150)]
    assert seen(cells) == [(other, 150)]


def test_a_family_marker_is_compared_by_commit_order() -> None:
    """The cell began first and committed last, so it is later than the delete."""
    gone, cell = marker(200), data(100)
    assert seen([gone, shadow(gone, 250), cell, shadow(cell, 300)]) == [(cell, 300)]


def test_a_cell_that_began_after_the_marker_but_committed_before_it_is_hidden() -> None:
    """The other way round: start timestamps do not count."""
    gone, cell = marker(100), data(200)
    assert seen([gone, shadow(gone, 400), cell, shadow(cell, 300)]) == []


def test_a_put_after_a_family_delete_in_one_transaction_survives_it() -> None:
    """Its version is higher by a checkpoint; Omid loses it, because it compares the commit."""
    gone, cell = marker(200), data(201)
    assert seen([gone, shadow(gone, 250), cell, shadow(cell, 250)]) == [(cell, 250)]


def test_a_marker_hides_a_cell_of_its_own_version() -> None:
    """As in Java, which writes both at one version and means the delete."""
    gone, cell = marker(200), data(200)
    assert seen([gone, shadow(gone, 250), cell, shadow(cell, 250)]) == []


def test_a_marker_outside_the_snapshot_hides_nothing() -> None:
    """An aborted or later delete of a family leaves the family."""
    cell, gone = data(100), marker(900)
    assert seen([cell, shadow(cell, 150), gone, shadow(gone, 1050)]) == [(cell, 150)]
    assert seen([cell, shadow(cell, 150), gone], facts={gone: None}) == [(cell, 150)]


def test_a_tentative_marker_is_asked_about() -> None:
    """Whether the family is there depends on it."""
    cell, gone = data(100), marker(900)
    row = decide([cell, shadow(cell, 150), gone])
    assert isinstance(row, Unresolved)
    assert set(row.cells) == {gone}


def test_an_older_marker_counts_behind_an_uncommitted_one() -> None:
    """OMID-105: the search goes on."""
    cell, old, tentative = data(100), marker(200), marker(900)
    cells = [cell, shadow(cell, 150), old, shadow(old, 250), tentative]
    assert seen(cells, facts={tentative: None}) == []


def test_a_marker_below_a_value_of_the_empty_qualifier_still_hides_the_family() -> None:
    """A value written there later covers the marker in its column, and nowhere else."""
    cell, gone, value = data(100), marker(200), data(300, b"new", b"")
    cells = [cell, shadow(cell, 150), gone, shadow(gone, 250), value, shadow(value, 350)]
    assert seen(cells) == [(value, 350)]


# -- versions read ---------------------------------------------------------------------------------


def test_a_column_of_which_no_read_version_is_seen_wants_all_versions() -> None:
    """Three newer commits may hide the one that this snapshot needs."""
    cells = []
    for version in (900, 850, 800):
        cells += [data(version), shadow(data(version), version + 150 + 150)]
    assert decide(cells, versions_read=3) is TRUNCATED
    assert seen(cells, versions_read=None) == []


def test_a_column_with_fewer_versions_than_asked_for_is_decided() -> None:
    """There are no older ones to look for."""
    late = data(900)
    assert seen([late, shadow(late, 1050)], versions_read=3) == []


def test_a_full_empty_qualifier_wants_all_versions_for_a_marker_below() -> None:
    """Three values lie above a marker that hides the rest of the family."""
    cells = []
    for version in (300, 400, 500):
        cells += [data(version, b"v", b""), shadow(data(version, b"v", b""), version + 10)]
    assert decide(cells, versions_read=3) is TRUNCATED


def test_unresolved_comes_before_truncated() -> None:
    """The deeper read may not be needed once the cell is resolved."""
    late = [data(version) for version in (900, 850, 800)]
    cells = [*late, *(shadow(cell, 1100) for cell in late)]
    tentative = data(700, qualifier=b"other")
    assert decide([*cells, tentative], versions_read=3) == Unresolved([tentative])


# -- resolving a cell: requests and answers --------------------------------------------------------

CELL = data(903)
ENTRY = ReadCommitEntry(Timestamp(900))
SHADOW = ReadShadowCell(CELL)
FORBID = Invalidate(Timestamp(900))
UNDO = UndoInvalidation(Timestamp(900))
COMMITTED = Timestamp(950)

Script: TypeAlias = Sequence[tuple[Request, Answer]]


def converse(script: Script, *, may_invalidate: bool) -> Resolution:
    """Answer a resolver's requests by a script, which names each of them in order."""
    resolver = commit_timestamp(CELL, may_invalidate=may_invalidate)
    answer: Answer = None
    for expected, reply in script:
        assert resolver.send(answer) == expected
        answer = reply
    with pytest.raises(StopIteration) as stop:
        resolver.send(answer)
    resolution = stop.value.value
    assert isinstance(resolution, Resolution)
    return resolution


def test_a_commit_entry_settles_it_in_one_read() -> None:
    """The entry is the commit."""
    resolution = converse([(ENTRY, COMMITTED)], may_invalidate=True)
    assert resolution == Resolution(COMMITTED, is_final=True, is_healed=False)


def test_the_shadow_cell_is_read_after_the_commit_table() -> None:
    """The writer heals and then removes its entry: absence counts only in this order."""
    resolution = converse([(ENTRY, None), (SHADOW, COMMITTED)], may_invalidate=False)
    assert resolution == Resolution(COMMITTED, is_final=True, is_healed=True)


def test_absence_from_both_is_not_final_above_the_epoch() -> None:
    """It may still commit, though not below this snapshot."""
    resolution = converse([(ENTRY, None), (SHADOW, None)], may_invalidate=False)
    assert resolution == Resolution(None, is_final=False, is_healed=False)


def test_an_old_undecided_transaction_is_invalidated_and_looked_for_once_more() -> None:
    """A deposed oracle's late entry must not appear behind the reader."""
    script: Script = [(ENTRY, None), (SHADOW, None), (FORBID, True), (SHADOW, None)]
    assert converse(script, may_invalidate=True) == Resolution(None, is_final=True, is_healed=False)


def test_a_false_invalidation_of_our_own_is_undone() -> None:
    """The transaction had completed between the reads; its shadow cell outranks it."""
    script: Script = [
        (ENTRY, None),
        (SHADOW, None),
        (FORBID, True),
        (SHADOW, COMMITTED),
        (UNDO, True),
    ]
    assert converse(script, may_invalidate=True) == Resolution(
        COMMITTED, is_final=True, is_healed=True
    )


def test_an_invalidation_that_was_found_is_not_final() -> None:
    """Another reader may have planted a false one."""
    script: Script = [(ENTRY, INVALID), (SHADOW, COMMITTED), (UNDO, False)]
    assert converse(script, may_invalidate=False) == Resolution(
        COMMITTED, is_final=True, is_healed=True
    )


def test_an_invalidation_without_a_shadow_cell_is_an_abort() -> None:
    """Nothing proves a commit, and none can follow."""
    script: Script = [(ENTRY, INVALID), (SHADOW, None)]
    assert converse(script, may_invalidate=False) == Resolution(
        None, is_final=True, is_healed=False
    )


def test_nothing_is_forbidden_once_the_cell_is_gone() -> None:
    """It may have been collected after its commit, which an invalidation would belie."""
    resolution = converse([(ENTRY, None), (SHADOW, GONE)], may_invalidate=True)
    assert resolution == Resolution(None, is_final=True, is_healed=False, is_gone=True)


def test_an_invalidation_stays_where_the_cell_is_gone() -> None:
    """Whoever took the cell may have forbidden the commit first, and relies on it."""
    script: Script = [(ENTRY, INVALID), (SHADOW, GONE)]
    resolution = converse(script, may_invalidate=True)
    assert resolution == Resolution(None, is_final=True, is_healed=False, is_gone=True)


def test_a_commit_that_was_first_is_read_after_a_refused_invalidation() -> None:
    """The entry appeared between the reads and the invalidation."""
    script: Script = [(ENTRY, None), (SHADOW, None), (FORBID, False), (ENTRY, COMMITTED)]
    resolution = converse(script, may_invalidate=True)
    assert resolution == Resolution(COMMITTED, is_final=True, is_healed=False)


def test_a_commit_that_completed_meanwhile_is_found_by_its_shadow_cell() -> None:
    """The entry came and went; the shadow cell stays."""
    script: Script = [
        (ENTRY, None),
        (SHADOW, None),
        (FORBID, False),
        (ENTRY, None),
        (SHADOW, COMMITTED),
    ]
    assert converse(script, may_invalidate=True) == Resolution(
        COMMITTED, is_final=True, is_healed=True
    )


# -- pairs -----------------------------------------------------------------------------------------


def test_a_shadow_cell_of_another_family_is_not_borrowed() -> None:
    """One that lost its data cell, before a cell of the same name and version elsewhere."""
    orphan = Cell(b"r", b"f", shadow_qualifier(b"q"), 100, encode_long(150))
    tentative = Cell(b"r", b"g", b"q", 100, b"v")
    assert paired([orphan, tentative]) == [(*tentative, None)]


def test_a_shadow_cell_of_another_version_is_not_borrowed() -> None:
    """An older one, say, which lost its data cell."""
    orphan = Cell(b"r", b"f", shadow_qualifier(b"q"), 100, encode_long(150))
    tentative = Cell(b"r", b"f", b"q", 200, b"v")
    assert paired([orphan, tentative]) == [(*tentative, None)]


def test_a_shadow_cell_is_never_data() -> None:
    """Not even where there is one that would be its own."""
    shadow = Cell(b"r", b"f", shadow_qualifier(b"q"), 100, encode_long(150))
    strange = Cell(b"r", b"f", shadow_qualifier(shadow.qualifier), 100, encode_long(150))
    assert paired([strange, shadow]) == []


def test_what_lacks_a_shadow_cell_is_the_newest_of_its_column() -> None:
    """Older ones decide nothing, and those that have one need none."""
    new, old = (b"r", b"f", b"a", 200, b"v", None), (b"r", b"f", b"a", 100, b"v", None)
    known = (b"r", b"f", b"b", 200, b"v", encode_long(250))
    other = (b"r", b"g", b"b", 150, b"v", None)
    assert unhealed([new, old, known, (*old[:2], b"b", *old[3:]), other]) == [new, other]


def test_a_healed_row_takes_each_commit_from_its_own_transaction() -> None:
    """By the start, whichever checkpoint a version is of; others stay as they are."""
    first = (b"r", b"f", b"a", 101, b"v", None)
    other = (b"r", b"f", b"b", 200, b"v", None)
    known = (b"r", b"f", b"c", 300, b"v", encode_long(350))
    commits = {Timestamp(100): encode_long(150), Timestamp(300): encode_long(999)}
    assert healed([first, other, known], commits) == [
        (*first[:5], encode_long(150)),
        other,
        known,
    ]
