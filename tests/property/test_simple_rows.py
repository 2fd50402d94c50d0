"""The short way through simple rows says what the long way says, whatever the cells.

Rows are made of everything that writers of this format leave: several versions, checkpoints,
tombstones of both kinds, family markers, shadow cells in both forms, torn and missing ones, cells
of running transactions and of the reader itself, and qualifiers that sort before shadow cells.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omidpy.base.cells import (
    LEGACY_TOMBSTONE,
    SHADOW_SUFFIX,
    encode_long,
    is_shadow_qualifier,
    shadow_qualifier,
)
from omidpy.base.clock import ManualClock
from omidpy.errors import CorruptCell
from omidpy.facts.commit_table import CommitTable, create_system_tables
from omidpy.facts.control import ControlTable
from omidpy.facts.watermarks import Watermarks
from omidpy.model import Cell, FamilySchema, KeyRange, TableSchema, Timestamp
from omidpy.oracle.base import Begun
from omidpy.reading.resolution import CellResolver
from omidpy.reading.snapshot import Snapshot, SnapshotReader
from omidpy.reading.visibility import (
    VisibleRow,
    cells_of,
    paired,
    simple_row,
    sort_row,
    visible_row,
)
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.sqlite import SqliteStore

START = Timestamp(500)
FAMILIES = (b"f", b"g")
QUALIFIERS = (b"a", b"ab", b"z", b"", b"\xc2\x80", b"\x00", b"\x00\xc2", b"\x00\xc2\x80")

columns = st.tuples(st.sampled_from(FAMILIES), st.sampled_from(QUALIFIERS))
versions = st.sampled_from((100, 150, 151, 200, 400, 450, 500, 501, 550))
values = st.sampled_from((b"v", b"v", b"w", b"", LEGACY_TOMBSTONE))
commits = st.sampled_from(("none", "new", "new", "new", "old", "both", "torn", "own", "later"))
written = st.lists(st.tuples(columns, versions, values, commits), max_size=8)


def row_of(written: Sequence[tuple[tuple[bytes, bytes], int, bytes, str]]) -> list[Cell]:
    """Return the cells of one row, in HBase's order."""
    cells: dict[tuple[bytes, bytes, int], bytes] = {}
    for (family, qualifier), version, value, commit in written:
        cells[family, qualifier, version] = value
        base = version - version % 50
        commit_ts = {"own": version, "later": 600}.get(commit, base + 25)
        shadow = b"torn" if commit == "torn" else encode_long(commit_ts)
        if commit not in ("none", "old"):
            cells[family, shadow_qualifier(qualifier), version] = shadow
        if commit in ("old", "both"):
            cells[family, qualifier + SHADOW_SUFFIX, version] = shadow
    return sorted(
        (Cell(b"r", *key, value) for key, value in cells.items()),
        key=lambda cell: (cell.family, cell.qualifier, -cell.version),
    )


@given(written)
def test_a_simple_row_is_what_the_long_way_sees(
    written: Sequence[tuple[tuple[bytes, bytes], int, bytes, str]],
) -> None:
    """And it asks nothing, because every answer is in the row."""
    cells = row_of(written)
    simple = simple_row(paired(cells), encode_long(START))
    if simple is None:
        return
    try:
        seen = visible_row(sort_row(cells), START, {}, {}, versions_read=None)
    except CorruptCell:
        return  # a torn shadow cell of a version that does not matter
    assert isinstance(seen, VisibleRow)
    assert cells_of(simple) == list(seen.cells)


@given(written)
def test_the_short_way_is_taken_where_all_is_healed(
    written: Sequence[tuple[tuple[bytes, bytes], int, bytes, str]],
) -> None:
    """Else it would be right, and of no use."""
    cells = row_of([(column, at - at % 50, value, "new") for column, at, value, _ in written])
    plain = [cell for cell in cells if cell.version < 450 and cell.qualifier > b"\x00\xc2\x80\xff"]
    kept = {(cell.family, shadow_qualifier(cell.qualifier), cell.version) for cell in plain}
    healed = [cell for cell in cells if cell in plain or cell[1:4] in kept]
    assert simple_row(paired(healed), encode_long(START)) is not None


def is_readable(cell: Cell) -> bool:
    """Say whether the long way can read a cell; a torn shadow cell ends it, needed or not."""
    return not is_shadow_qualifier(cell.qualifier) or len(cell.value) == 8


class PlainStore:
    """The same store, which does not pair."""

    def __init__(self, store: SqliteStore) -> None:
        self.capabilities = store.capabilities
        self.scan = store.scan
        self.get = store.get
        self.write = store.write


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
            puts = [Put(*cell[1:]) for cell in row_of(row) if is_readable(cell)]
            if puts:
                store.write({"t": [RowMutation(b"%d" % number, puts)]})
        selected = sorted(chosen) or None
        plain = scanned(PlainStore(store), store, selected)  # type: ignore[arg-type]
        assert scanned(store, store, selected) == plain
    finally:
        store.close()


def scanned(
    store: SqliteStore, control: SqliteStore, columns: list[tuple[bytes, bytes]] | None
) -> list[tuple[bytes, list[object]]]:
    """Return what a snapshot sees, page by page of two rows."""
    clock = ManualClock()
    reader = SnapshotReader(
        store,
        CellResolver(control, CommitTable(control)),
        Watermarks(ControlTable(control)),
        clock,
    )
    snapshot: Snapshot = reader.open(Begun(START), asked_s=clock.monotonic_s())
    return [
        (key, list(cells_of(row)))
        for page in snapshot.scan("t", KeyRange(), columns, page_rows=2)
        for key, row in page
        if cells_of(row)
    ]
