"""A snapshot that stops at the newest version it sees says what one says that reads them all.

The model has every version of every column in memory, knows what became of each transaction, and
looks through all of them.  The reader has a store, which holds what clients, crashes and Java leave
behind: cells that are healed, wait for their shadow cell, are tentative, forbidden, or falsely
forbidden; tombstones of both kinds, family markers, checkpoints, cells of the reader itself, and
transactions that committed in another order than they began, as writes without conflicts may.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omidpy.base.cells import LEGACY_TOMBSTONE
from omidpy.base.timing.clock import ManualClock
from omidpy.facts.watermarks import Watermarks
from omidpy.model import TIMESTAMP_STEP, Cell, ColumnSpec, KeyRange, Timestamp
from omidpy.oracle.base import Begun
from omidpy.reading.resolution import CellResolver
from omidpy.reading.snapshot import Snapshot, SnapshotReader
from omidpy.reading.visibility import SeenRow, cells_of
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from omidpy.storage.sqlite.queries import newest
from tests.machines.cells import World

FAMILIES: Final = (b"f", b"g")
ROWS: Final = (b"a", b"a\x00", b"b", b"c")
COLUMNS: Final = ((b"f", b"q"), (b"f", b"r"), (b"g", b"q"), (b"f", b""), (b"f", b"\x00\xc2\x80x"))
FIRST: Final = 1000
DELTAS: Final = (10, 60, 310, 1510)
"""How long after their start transactions commit: many overlap, so that their order changes."""


Seen: TypeAlias = dict[tuple[bytes, bytes], tuple[int, bytes]]
"""Version and value of each column."""


class Write(NamedTuple):
    """A cell of a transaction."""

    row: bytes
    column: tuple[bytes, bytes]
    checkpoint: int
    value: bytes


class Transaction(NamedTuple):
    """What it wrote, and what became of it."""

    fate: str
    delta: int
    writes: Sequence[Write]


writes = st.builds(
    Write,
    st.sampled_from(ROWS),
    st.sampled_from(COLUMNS),
    st.sampled_from((0, 0, 0, 1)),
    st.sampled_from((b"v", b"w", b"x", b"", LEGACY_TOMBSTONE)),
)
fates = st.sampled_from(
    ("healed", "healed", "healed", "entered", "partly", "tentative", "forbidden", "falsely")
)
transactions = st.builds(
    Transaction, fates, st.sampled_from(DELTAS), st.lists(writes, min_size=1, max_size=4)
)
hot = st.builds(
    lambda count, fate, delta, write: [Transaction(fate, delta, (write,))] * count,
    st.sampled_from((1, 2, 7, 8, 9, 30)),
    fates,
    st.sampled_from(DELTAS),
    writes,
)
"""One cell that is written again and again."""
histories = st.lists(st.one_of(transactions.map(lambda one: [one]), hot), max_size=8).map(
    lambda parts: [one for part in parts for one in part]
)


class Model:
    """Every cell, and when it was committed; it reads all of them."""

    def __init__(self, history: Sequence[Transaction]) -> None:
        self.cells: dict[tuple[bytes, bytes, bytes, int], bytes] = {}
        self.commits: dict[int, int] = {}
        for number, (fate, delta, wrote) in enumerate(history):
            start_ts = FIRST + TIMESTAMP_STEP * number
            if fate not in ("tentative", "forbidden"):
                self.commits[start_ts] = start_ts + delta
            for row, column, checkpoint, value in wrote:
                self.cells[row, *column, start_ts + checkpoint] = value

    def row(
        self, row: bytes, at: int, *, is_own: bool
    ) -> dict[tuple[bytes, bytes], tuple[int, bytes]]:
        """Return the version and value of each column that the snapshot at `at` sees in a row."""
        commits: dict[tuple[bytes, bytes, int], int] = {}
        for cell_row, family, qualifier, version in self.cells:
            start_ts = version - version % TIMESTAMP_STEP
            commit_ts = self.commits.get(start_ts, 10**9)
            if is_own and start_ts == at:
                commit_ts = at
            elif start_ts >= at or commit_ts >= at:
                continue
            if cell_row == row:
                commits[family, qualifier, version] = commit_ts
        markers: dict[bytes, int] = {}
        for family, qualifier, version in commits:
            if qualifier == b"" and self.cells[row, family, qualifier, version] == b"":
                markers[family] = max(markers.get(family, 0), version)
        seen: Seen = {}
        for family, qualifier in {(one[0], one[1]) for one in commits}:
            version = max(v for f, q, v in commits if (f, q) == (family, qualifier))
            value = self.cells[row, family, qualifier, version]
            if value in (b"", LEGACY_TOMBSTONE):
                continue
            if family in markers:
                marker = markers[family]
                same = version // TIMESTAMP_STEP == marker // TIMESTAMP_STEP
                mine = commits[family, qualifier, version]
                if marker >= version if same else commits[family, b"", marker] > mine:
                    continue
            seen[family, qualifier] = version, value
        return seen


def write_history(world: World, history: Sequence[Transaction]) -> None:
    """Leave in the store what the history left."""
    for number, (fate, delta, wrote) in enumerate(history):
        start_ts = FIRST + TIMESTAMP_STEP * number
        cells: dict[tuple[bytes, ...], Cell] = {}
        for row, (family, qualifier), checkpoint, value in wrote:
            version = start_ts + checkpoint
            cell = world.put(row, version, value, family=family, qualifier=qualifier)
            cells[row, family, qualifier, b"%d" % version] = cell
        for index, cell in enumerate(cells.values()):
            if fate in ("healed", "falsely") or (fate == "partly" and index % 2):
                world.heal(cell, start_ts + delta)
        if fate in ("entered", "partly"):
            world.enter(start_ts, start_ts + delta)
        if fate in ("forbidden", "falsely"):
            world.invalidate(start_ts)


class PlainStore:
    """The same store, which does not pair."""

    def __init__(self, store: SqliteStore) -> None:
        self.capabilities = store.capabilities
        self.scan = store.scan
        self.get = store.get
        self.write = store.write


def shown(row: SeenRow) -> Seen:
    """Return what the reader sees in the model's words."""
    return {cell[1:3]: (cell.version, cell.value) for cell, _ in cells_of(row)}


@pytest.mark.parametrize("kind", ["memory", "sqlite", "sqlite without pairs"])
@settings(deadline=None)
@given(
    history=histories,
    moments=st.lists(st.sampled_from((0, 1, 2, 5, 9, 20, 60)), min_size=1, max_size=3),
    is_own=st.booleans(),
    epoch=st.sampled_from((0, 0, 1200)),
    columns=st.sets(st.sampled_from(COLUMNS), max_size=3),
    page_rows=st.sampled_from((1, 2, 3, 1000)),
    cells=st.sampled_from((1, 2, 16)),
    share=st.sampled_from((0.0, 0.5, newest.MAX_SURPLUS)),
)
def test_the_reader_sees_what_the_model_sees(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    history: Sequence[Transaction],
    moments: Sequence[int],
    is_own: bool,  # noqa: FBT001  drawn
    epoch: int,
    columns: set[tuple[bytes, bytes]],
    page_rows: int,
    cells: int,
    share: float,
) -> None:
    """By gets and by scans in both directions, whole rows and some columns, again and again."""
    model = Model(history)
    with pytest.MonkeyPatch.context() as patch, opened(tmp_path_factory, kind) as (store, reading):
        patch.setattr(newest, "FIRST_CELLS", cells)
        patch.setattr(newest, "MAX_SURPLUS", share)
        world = World(store, low_watermark=0)
        world.table(families=FAMILIES)
        write_history(world, history)
        reader = SnapshotReader(
            reading,
            CellResolver(store, world.commit_table),
            Watermarks(world.control),
            ManualClock(),
        )
        for moment in moments:
            at = Timestamp(FIRST + TIMESTAMP_STEP * moment)
            begun = Begun(Timestamp(10**6 if not is_own else at), Timestamp(min(epoch, at)))
            snapshot = reader.open(begun, asked_s=0.0, at=None if is_own else at)
            expected = {row: model.row(row, at, is_own=is_own) for row in ROWS}
            compare(snapshot, expected, None, page_rows=page_rows)
            compare(snapshot, expected, sorted(columns) or [(b"f", None)], page_rows=page_rows)


def compare(
    snapshot: Snapshot,
    expected: dict[bytes, Seen],
    columns: Sequence[ColumnSpec] | None,
    *,
    page_rows: int,
) -> None:
    """Read in every way, and compare."""
    wanted = {
        row: {
            column: seen
            for column, seen in found.items()
            if columns is None or column in columns or (column[0], None) in columns
        }
        for row, found in expected.items()
    }
    assert dict(zip(ROWS, map(shown, snapshot.read("t", ROWS, columns)), strict=True)) == wanted
    for row in ROWS:
        assert list(map(shown, snapshot.read("t", (row,), columns))) == [wanted[row]]
    in_order = [(row, found) for row, found in wanted.items() if found]
    key_range = KeyRange(b"a\x00", b"c")
    for reverse in (False, True):
        pages = snapshot.scan("t", KeyRange(), columns, reverse=reverse, page_rows=page_rows)
        rows = [(key, shown(row)) for page in pages for key, row in page if shown(row)]
        assert rows == (in_order[::-1] if reverse else in_order)
        pages = snapshot.scan("t", key_range, columns, reverse=reverse, page_rows=page_rows)
        rows = [(key, shown(row)) for page in pages for key, row in page if shown(row)]
        inside = [one for one in in_order if key_range.contains(one[0])]
        assert rows == (inside[::-1] if reverse else inside)


@contextmanager
def opened(tmp_path_factory: pytest.TempPathFactory, kind: str) -> Iterator[tuple[Store, Store]]:
    """Yield a store, and as what the reader sees it."""
    if kind == "memory":
        memory = MemoryStore()
        yield memory, memory
        return
    store = SqliteStore(tmp_path_factory.mktemp("seen") / "s.db")
    try:
        yield store, store if kind == "sqlite" else PlainStore(store)  # type: ignore[misc]
    finally:
        store.close()
