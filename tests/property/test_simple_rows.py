"""The short way through simple rows says what the long way says, whatever the cells.

Rows are made of everything that writers of this format leave: several versions, checkpoints,
tombstones of both kinds, family markers, shadow cells in both forms, torn and missing ones, cells
of running transactions and of the reader itself, and qualifiers that sort before shadow cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omidpy.base.cells import (
    LEGACY_TOMBSTONE,
    SHADOW_PREFIX,
    SHADOW_SUFFIX,
    encode_long,
    is_shadow_qualifier,
    shadow_qualifier,
)
from omidpy.base.rows.simple import paired, simple_row
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import CorruptCell
from omidpy.facts.commit_table import COMMIT_TABLE, CommitTable, create_system_tables
from omidpy.facts.control import ControlTable
from omidpy.facts.watermarks import Watermarks
from omidpy.model import Cell, Change, FamilySchema, KeyRange, TableSchema, Timestamp
from omidpy.oracle.base import Begun
from omidpy.reading.changes.change import simple_changes
from omidpy.reading.resolution import CellResolver
from omidpy.reading.snapshot import Snapshot, SnapshotReader
from omidpy.reading.visibility import (
    VisibleCell,
    VisibleRow,
    cells_of,
    sort_row,
    visible_row,
)
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.hbase.native import cellblock
from omidpy.storage.sqlite import SqliteStore
from tests.machines.engines import (
    compiled_cells,
    compiled_rows,
    interpreted_cells,
    interpreted_rows,
)
from tso.core.writes import commit_entry

START = Timestamp(500)
AFTER = 100_000
"""By how much a reader of several rows begins later."""
FAMILIES = (b"f", b"g")
QUALIFIERS = (b"a", b"ab", b"z", b"", b"\xc2\x80", b"\x00", b"\x00\xc2", b"\x00\xc2\x80")

columns = st.tuples(st.sampled_from(FAMILIES), st.sampled_from(QUALIFIERS))
versions = st.sampled_from((100, 150, 151, 200, 400, 450, 500, 501, 550))
values = st.sampled_from((b"v", b"v", b"w", b"", LEGACY_TOMBSTONE))
commits = st.sampled_from(("none", "new", "new", "new", "old", "both", "torn", "own", "later"))
written = st.lists(st.tuples(columns, versions, values, commits), max_size=8)


def row_of(
    written: Sequence[tuple[tuple[bytes, bytes], int, bytes, str]], later: int = 600
) -> list[Cell]:
    """Return the cells of one row, in HBase's order; those that commit later do so then."""
    cells: dict[tuple[bytes, bytes, int], bytes] = {}
    ends: dict[int, int] = {}
    for (family, qualifier), version, value, commit in written:
        cells[family, qualifier, version] = value
        base = version - version % 50
        # A transaction commits once; what stands alone speaks for its cell alone.
        commit_ts = ends.setdefault(base, later if commit == "later" else base + 25)
        if commit == "own":
            commit_ts = version
        shadow = b"torn" if commit == "torn" else encode_long(commit_ts)
        if commit not in ("none", "old"):
            cells[family, shadow_qualifier(qualifier), version] = shadow
        if commit in ("old", "both"):
            cells[family, qualifier + SHADOW_SUFFIX, version] = shadow
    return sorted(
        (Cell(b"r", *key, value) for key, value in cells.items()),
        key=lambda cell: (cell.family, cell.qualifier, -cell.version),
    )


def rows_form(name: str) -> Any:
    """Return what decides simple rows in one of its forms."""
    found = interpreted_rows() if name == "interpreted" else compiled_rows()
    if found is None:
        pytest.skip("Cython or a C compiler is missing, so there is no compiled form")
    assert found.is_compiled() == (name == "compiled")
    return found


@pytest.mark.parametrize("form", ["interpreted", "compiled"])
@given(written=written)
def test_a_simple_row_is_what_the_long_way_sees(
    form: str, written: Sequence[tuple[tuple[bytes, bytes], int, bytes, str]]
) -> None:
    """And it asks nothing, because every answer is in the row."""
    rows = rows_form(form)
    cells = row_of(written)
    simple = rows.simple_row(rows.paired(cells), encode_long(START))
    shaped = rows.simple_values(rows.paired(cells), encode_long(START))
    if simple is None:
        assert shaped is None
        return
    assert shaped == rows.values_of(simple) == values_of(cells_of(simple))
    try:
        seen = visible_row(sort_row(cells), START, {}, {}, versions_read=None)
    except CorruptCell:
        return  # a torn shadow cell of a version that does not matter
    assert isinstance(seen, VisibleRow)
    assert cells_of(simple) == list(seen.cells)


@pytest.mark.parametrize("form", ["interpreted", "compiled"])
@given(written=written)
def test_the_short_way_is_taken_where_all_is_healed(
    form: str, written: Sequence[tuple[tuple[bytes, bytes], int, bytes, str]]
) -> None:
    """Else it would be right, and of no use."""
    rows = rows_form(form)
    cells = row_of([(column, at - at % 50, value, "new") for column, at, value, _ in written])
    plain = [cell for cell in cells if cell.version < 450 and cell.qualifier > b"\x00\xc2\x80\xff"]
    kept = {(cell.family, shadow_qualifier(cell.qualifier), cell.version) for cell in plain}
    healed = [cell for cell in cells if cell in plain or cell[1:4] in kept]
    assert rows.simple_row(rows.paired(healed), encode_long(START)) is not None


plain_names = st.sets(
    columns.filter(lambda one: one[1] in (b"a", b"ab", b"z")), min_size=1, max_size=4
)
damages = st.sampled_from(
    (
        {"version": 350},
        {"version": 450},
        {"family": b"f"},
        {"family": b"g"},
        *({"qualifier": name} for name in (b"a", b"ab", b"", b"a" + SHADOW_SUFFIX)),
        *(
            {"value": value}
            for value in (b"", LEGACY_TOMBSTONE, b"torn", bytes(12), encode_long(600))
        ),
        None,
    )
)
nearly_plain = st.builds(
    lambda names, spoilt: damaged(
        row_of([(name, 400, b"v", "new") for name in sorted(names)]), spoilt
    ),
    plain_names,
    st.lists(st.tuples(st.integers(0, 7), damages, st.booleans()), max_size=2),
)
"""Rows of which nearly all is as in the rows of most tables."""


def damaged(
    cells: list[Cell], spoilt: Sequence[tuple[int, dict[str, Any] | None, bool]]
) -> list[Cell]:
    """Change some cells of a row, leave them out, or put what was changed beside them."""
    for place, change, is_beside in spoilt:
        at = place % len(cells)
        changed = [] if change is None else [cells[at]._replace(**change)]
        cells = [*cells[:at], *changed, *cells[at if is_beside else at + 1 :]]
        if not cells:
            break
    known = {cell[1:4]: cell for cell in cells}
    return sorted(known.values(), key=lambda cell: (cell.family, cell.qualifier, -cell.version))


@given(st.one_of(nearly_plain, written.map(row_of)))
def test_both_forms_say_the_same(cells: list[Cell]) -> None:
    """Of rows as they are, and of those where something is amiss."""
    interpreted, compiled = rows_form("interpreted"), rows_form("compiled")
    pairs = compiled.paired(cells)
    assert pairs == interpreted.paired(cells)
    for before in (encode_long(START), encode_long(0), encode_long(10**6)):
        assert compiled.simple_row(pairs, before) == interpreted.simple_row(pairs, before)
        assert compiled.simple_values(pairs, before) == interpreted.simple_values(pairs, before)


@pytest.mark.parametrize("form", ["interpreted", "compiled"])
@given(rows=st.lists(st.one_of(nearly_plain, nearly_plain, written.map(row_of)), max_size=6))
def test_values_are_what_the_long_way_sees(form: str, rows: Sequence[list[Cell]]) -> None:
    """Where values come as they are; the other rows come in pairs, as if nothing had been asked."""
    cellblock = cells_form(form)
    cells = [found for found in rows if found]
    affixes = SHADOW_PREFIX, SHADOW_SUFFIX
    block = b"".join(cellblock.encode(*cell) for row in cells for cell in row)
    counts = list(map(len, cells))
    found = cellblock.decode_values(
        block, 0, counts, *affixes, encode_long(START), LEGACY_TOMBSTONE
    )
    pairs = cellblock.decode_pairs(block, 0, counts, *affixes)
    for row, (key, seen), in_pairs in zip(cells, found, pairs, strict=True):
        assert key == b"r"
        if isinstance(seen, list):
            assert seen == in_pairs
            continue
        simple = simple_row(paired(row), encode_long(START))
        assert simple is not None
        assert seen == values_of(cells_of(simple))
        try:
            expected = visible_row(sort_row(row), START, {}, {}, versions_read=None)
        except CorruptCell:
            continue  # a torn shadow cell of a version that does not matter
        assert isinstance(expected, VisibleRow)
        assert seen == values_of(expected.cells)


@pytest.mark.parametrize("form", ["interpreted", "compiled"])
@given(names=plain_names)
def test_healed_rows_of_one_version_come_as_values(
    form: str, names: set[tuple[bytes, bytes]]
) -> None:
    """Else they would be right, and of no use."""
    cellblock = cells_form(form)
    cells = row_of([(name, 400, b"" if name[1] == b"z" else b"v", "new") for name in names])
    block = b"".join(cellblock.encode(*cell) for cell in cells)
    ((_, seen),) = cellblock.decode_values(
        *(block, 0, [len(cells)], SHADOW_PREFIX, SHADOW_SUFFIX),
        *(encode_long(START), LEGACY_TOMBSTONE),
    )
    assert seen == {family + b":" + name: b"v" for family, name in names if name != b"z"}


FIRST: Final = encode_long(401)
AFTERWARDS: Final = encode_long(601)


@pytest.mark.parametrize("form", ["interpreted", "compiled"])
@given(rows=st.lists(st.one_of(nearly_plain, nearly_plain, written.map(row_of)), max_size=6))
def test_changes_are_what_the_short_way_finds(form: str, rows: Sequence[list[Cell]]) -> None:
    """Where changes come as they are; the other rows come as cells."""
    cellblock = cells_form(form)
    cells = [found for found in rows if found]
    block = b"".join(cellblock.encode(*cell) for row in cells for cell in row)
    counts = list(map(len, cells))
    found = cellblock.decode_changes(
        *(block, 0, counts, SHADOW_PREFIX, SHADOW_SUFFIX),
        *(FIRST, AFTERWARDS, LEGACY_TOMBSTONE),
    )
    for row, (key, changes, left) in zip(cells, found, strict=True):
        assert key == b"r"
        if left:
            assert (changes, left) == ([], row)
            continue
        after, upto = encode_long(400), encode_long(600)
        assert changes == simple_changes(row, after=after, upto=upto, columns=None)
        assert all(type(change) is Change for change in changes)


@pytest.mark.parametrize("form", ["interpreted", "compiled"])
@given(
    names=plain_names,
    versions=st.sets(st.sampled_from((150, 401, 500)), min_size=1),
    commit=st.sampled_from((401, 500, 600)),
)
def test_healed_rows_of_all_versions_come_as_changes(
    form: str, names: set[tuple[bytes, bytes]], versions: set[int], commit: int
) -> None:
    """Else they would be right, and of no use."""
    cellblock = cells_form(form)
    cells = [
        Cell(b"r", family, qualifier, version, value)
        for family, name in names
        for version in versions
        for qualifier, value in (
            (name, b"" if name == b"z" else b"v"),
            (shadow_qualifier(name), encode_long(commit)),
        )
    ]
    cells.sort(key=lambda cell: (cell.family, cell.qualifier, -cell.version))
    block = b"".join(cellblock.encode(*cell) for cell in cells)
    ((_, changes, left),) = cellblock.decode_changes(
        *(block, 0, [len(cells)], SHADOW_PREFIX, SHADOW_SUFFIX),
        *(FIRST, AFTERWARDS, LEGACY_TOMBSTONE),
    )
    assert left == []
    expected = {
        (
            family + b":" + name,
            version - version % 50,
            *((None, "delete") if name == b"z" else (b"v", "put")),
        )
        for family, name in names
        for version in versions
    }
    assert {(one.column, one.start_ts, one.value, one.kind) for one in changes} == expected
    assert len(changes) == len(expected)


def cells_form(name: str) -> Any:
    """Return the codec of cells in one of its forms."""
    found = interpreted_cells() if name == "interpreted" else compiled_cells()
    if found is None:
        pytest.skip("Cython or a C compiler is missing, so there is no compiled form")
    return found


def is_readable(cell: Cell) -> bool:
    """Say whether the long way can read a cell; a torn shadow cell ends it, needed or not."""
    return not is_shadow_qualifier(cell.qualifier) or len(cell.value) == 8


def commits_told(cells: Sequence[Cell]) -> dict[int, int]:
    """Return the commits that shadow cells tell, but those of a cell that speaks for itself alone.

    The entry of such a commit is there as long as any of its cells lacks its shadow cell: without
    it a reader that looks at some of its columns would see less of it than one of all.
    """
    return {
        cell.version - cell.version % 50: at
        for cell in cells
        if is_shadow_qualifier(cell.qualifier) and is_readable(cell)
        if (at := int.from_bytes(cell.value)) != cell.version
    }


class PlainStore:
    """The same store, which does not pair."""

    def __init__(self, store: SqliteStore) -> None:
        self.capabilities = store.capabilities
        self.scan = store.scan
        self.get = store.get
        self.write = store.write


class ShapingStore(PlainStore):
    """The same store, which makes of rows what can be made of them without a decision."""

    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store)
        self.scan_pairs = store.scan_pairs

    def scan_values(
        self, table: str, key_range: KeyRange, *, columns: Any, before: bytes, **options: Any
    ) -> Iterator[list[Any]]:
        """Read as HBase would, and decode what it would send."""
        if columns is not None:
            columns = [*columns, *((family, shadow_qualifier(name)) for family, name in columns)]
        pages = self.scan(table, key_range, columns=columns, max_versions=1, **options)
        for page in pages:
            block = b"".join(cellblock.encode(*cell) for row in page for cell in row)
            counts = list(map(len, page))
            affixes = SHADOW_PREFIX, SHADOW_SUFFIX
            yield cellblock.decode_values(block, 0, counts, *affixes, before, LEGACY_TOMBSTONE)


def apart(
    written: Sequence[tuple[tuple[bytes, bytes], int, bytes, str]], number: int
) -> list[tuple[tuple[bytes, bytes], int, bytes, str]]:
    """Let no transaction but the reader's have cells in two rows.

    One that has them is committed in both or in none, and what one row tells of it is taken for the
    other: it is not as free as what is drawn for a row.
    """

    def moved(version: int) -> int:
        is_of_the_reader = START <= version < START + 50
        return (
            version + (0 if version < START else AFTER) + (0 if is_of_the_reader else 1000 * number)
        )

    return [(column, moved(version), value, end) for column, version, value, end in written]


ORPHAN: Final = [((b"f", b"\x00\xc2\x80"), 100, b"v", "new")]
"""Comes to a row of a shadow cell alone, whose transaction has committed."""


@example(rows=[ORPHAN], chosen=set())
@given(rows=st.lists(written, max_size=6), chosen=st.sets(columns, max_size=3))
def test_a_store_that_pairs_is_scanned_alike(
    tmp_path_factory: pytest.TempPathFactory,
    rows: Sequence[Sequence[tuple[tuple[bytes, bytes], int, bytes, str]]],
    chosen: set[tuple[bytes, bytes]],
) -> None:
    """Whole rows and chosen columns; what is not simple is read again, or the plain way."""
    store = SqliteStore(tmp_path_factory.mktemp("pairs") / "s.db")
    try:
        create_system_tables(store)
        store.create_table(TableSchema("t", [FamilySchema(family) for family in FAMILIES]))
        for number, row in enumerate(rows):
            cells = row_of(apart(row, number), later=600 + 2 * AFTER)
            puts = [Put(*cell[1:]) for cell in cells if is_readable(cell)]
            if puts:
                store.write({"t": [RowMutation(b"%d" % number, puts)]})
            told = [commit_entry(*one).mutation for one in commits_told(cells).items()]
            store.write({COMMIT_TABLE: told})
        selected = sorted(chosen) or None
        plain = scanned(PlainStore(store), store, selected)  # type: ignore[arg-type]
        assert scanned(store, store, selected) == plain
        shaped = scanned(ShapingStore(store), store, selected, values_do=True)  # type: ignore[arg-type]
        assert shaped == [(key, values_of(cells)) for key, cells in plain]
    finally:
        store.close()


def values_of(cells: Sequence[VisibleCell]) -> dict[bytes, bytes]:
    """Return the values of a row by column."""
    return {cell.family + b":" + cell.qualifier: cell.value for cell, _ in cells}


def scanned(
    store: SqliteStore,
    control: SqliteStore,
    columns: list[tuple[bytes, bytes]] | None,
    *,
    values_do: bool = False,
) -> list[tuple[bytes, Any]]:
    """Return what a snapshot sees, page by page of two rows; with `values_do` values alone."""
    clock = ManualClock()
    reader = SnapshotReader(
        store,
        CellResolver(control, CommitTable(control)),
        Watermarks(ControlTable(control)),
        clock,
    )
    snapshot: Snapshot = reader.open(Begun(Timestamp(START + AFTER)), asked_s=clock.monotonic_s())
    seen = [
        (key, row if isinstance(row, dict) else list(cells_of(row)))
        for page in snapshot.scan("t", KeyRange(), columns, page_rows=2, values_do=values_do)
        for key, row in page
    ]
    if values_do:
        seen = [(key, row if isinstance(row, dict) else values_of(row)) for key, row in seen]
    return [(key, row) for key, row in seen if row]
