"""Of a row that is taken for clean the long way has nothing to say, whatever its cells are.

Rows are made of everything that writers of this format leave, and of what nobody should have left:
several versions, checkpoints, tombstones of both kinds, family markers, shadow cells in both forms,
torn, impossible, missing and alone, shadow cells of shadow cells, families that are not marked,
cells below the first timestamp and above the low watermark, and qualifiers that sort before shadow
cells.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, product
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compactor.pacing import page_bytes
from compactor.ranges import range_pass, range_reading
from compactor.ranges.range_pass import RangePass
from compactor.ranges.range_task import RangeResult, RangeTask
from compactor.ranges.spans import WHOLE, Span
from compactor.rows.clean import Sifted as SiftedPage
from compactor.rows.clean import sifted
from compactor.rows.heal import Scope, examine, plan_row, unresolved
from omidpy.base.cells import LEGACY_TOMBSTONE, SHADOW_SUFFIX, encode_long, shadow_qualifier
from omidpy.base.timing.clock import ManualClock
from omidpy.facts.commit_table import COMMIT_TABLE, create_system_tables
from omidpy.facts.tables.plain_versions import PlainVersions
from omidpy.model import (
    MAX_VERSION,
    TIMESTAMP_STEP,
    Cell,
    FamilySchema,
    KeyRange,
    TableSchema,
    base,
)
from omidpy.storage.base import Put, Row, RowMutation, Store
from omidpy.storage.hbase.idl import thrift2 as idl
from omidpy.storage.hbase.thrift2.convert import ResultRow
from omidpy.storage.memory import MemoryStore
from omidpy.storage.options import Sieve, Sifted, SiftsRows, Wanted
from omidpy.storage.sqlite import SqliteStore

L: Final = 1000
NEWEST: Final = 5000
FAMILIES: Final = (b"f", b"g", b"plain")
MARKED: Final = frozenset(FAMILIES[:2])
QUALIFIERS: Final = (
    b"a",
    b"ab",
    b"z",
    b"",
    b"\x00",
    b"\x00\xc2",
    b"\x00\xc2\x80",
    SHADOW_SUFFIX,
    b"a" + SHADOW_SUFFIX,
    shadow_qualifier(b"a"),
)
VERSIONS: Final = (0, 50, 100, 150, 151, 400, L, L + 49, L + 50)

Written: TypeAlias = tuple[bytes, bytes, int, bytes | None, str]
"""Family, qualifier, version, value of a data cell (None: it is not there), and its shadow cell."""

healed: Final = st.tuples(
    st.sampled_from(FAMILIES[:2]),
    st.sampled_from(QUALIFIERS[:3]),
    st.sampled_from((100, 150, 400)),
    st.just(b"v"),
    st.just("new"),
)
odd: Final = st.tuples(
    st.sampled_from(FAMILIES),
    st.sampled_from(QUALIFIERS),
    st.sampled_from(VERSIONS),
    st.sampled_from((b"v", b"v", b"", LEGACY_TOMBSTONE, None)),
    st.sampled_from(
        ("new", "new", "none", "old", "both", "own", "before", "late", "signed", "short", "long")
    ),
)
rows: Final = st.lists(st.lists(healed | odd, min_size=1, max_size=6), max_size=4)
"""Odd cells among healed ones, too: a row of odd ones alone would show its oddness twice."""
scopes: Final = st.builds(
    Scope,
    st.just(MARKED),
    st.sampled_from((L, L + 7)),
    st.sampled_from((0, 60, 150)),
    st.sampled_from((0, 300, 2000)),
    st.sampled_from((PlainVersions(0, 60), PlainVersions(100, 160))),
    st.sampled_from((NEWEST, MAX_VERSION)),
    st.booleans(),
    st.booleans(),
)


def shadow_value(version: int, kind: str) -> bytes:
    """Return what a shadow cell of a version holds."""
    impossible = {"short": b"short", "long": bytes(9), "signed": encode_long(-1)}
    commits = {"own": version, "before": version - 1, "late": NEWEST + 1}
    return impossible.get(kind) or encode_long(commits.get(kind, base(version) + TIMESTAMP_STEP))


def row_of(written: Sequence[Written], key: bytes = b"r") -> Row:
    """Return the cells of one row, in HBase's order; empty if nothing was written."""
    cells: dict[tuple[bytes, bytes, int], bytes] = {}
    for family, qualifier, version, value, kind in written:
        if value is not None:
            cells[family, qualifier, version] = value
        if kind not in ("none", "old"):
            cells[family, shadow_qualifier(qualifier), version] = shadow_value(version, kind)
        if kind in ("old", "both"):
            cells[family, qualifier + SHADOW_SUFFIX, version] = shadow_value(version, kind)
    found = (Cell(key, *column, value) for column, value in cells.items())
    return sorted(found, key=lambda cell: (cell.family, cell.qualifier, -cell.version))


def page_of(written: Sequence[Sequence[Written]], scope: Scope) -> list[Row]:
    """Return rows as a pass reads them: without what is above the low watermark."""
    page = [row_of(row, b"%d" % number) for number, row in enumerate(written)]
    seen = [[cell for cell in row if cell.version < scope.max_version()] for row in page]
    return [row for row in seen if row]


def is_left_alone(row: Row, scope: Scope) -> bool:
    """Say whether the long way has nothing to do, to ask, to remember or to tell about a row."""
    examined = examine(row, scope)
    plan = plan_row(examined, {}, scope)
    return (
        not (examined.foreign or examined.malformed or examined.unreadable)
        and not unresolved(examined)
        and plan.is_empty()
        and not (plan.unseen or plan.undecided)
        and plan.later is None
    )


@given(rows, scopes)
@example(
    [[(b"f", b"a", 100, b"v", "new"), (b"g", b"a", 100, b"v", "none")]], Scope(MARKED, L, 0, 0)
)
@example(
    [[(b"f", b"a", 100, None, "new"), (b"g", b"a", 100, b"v", "none")]], Scope(MARKED, L, 0, 0)
)
def test_a_row_that_is_taken_for_clean_is_left_alone(
    written: Sequence[Sequence[Written]], scope: Scope
) -> None:
    """Whatever may be judged; the others come as they are, and all are counted."""
    page = page_of(written, scope)
    others, size_bytes = sifted(page, scope)
    assert all(row in others or is_left_alone(row, scope) for row in page)
    assert [row for row in page if row in others] == others
    assert size_bytes == page_bytes(page)


@given(rows, scopes)
def test_rows_without_cells_are_sifted_like_others(
    written: Sequence[Sequence[Written]], scope: Scope
) -> None:
    """As HBase's gateway returns them."""
    page = page_of(written, scope)
    results = [
        idl.TResult(row[0].row, [idl.TColumnValue(one[1], one[2], one[4], one[3]) for one in row])
        for row in page
    ]
    assert sifted(list(map(ResultRow, results)), scope) == sifted(page, scope)


@pytest.mark.parametrize("commit", ["new", "own"])
def test_what_clients_leave_behind_is_taken_for_clean(commit: str) -> None:
    """Else it would be right, and of no use: several families, columns that begin alike."""
    columns = product(FAMILIES[:2], QUALIFIERS[:3])
    written = [(*column, 100, b"v", commit) for column in columns]
    later = [(*column[:2], 150, *column[3:]) for column in written[:4]]
    page = [row_of([*later, *written[4:]], b"one"), row_of(written, b"two")]
    assert sifted(page, Scope(MARKED, L, 0, 300)) == SiftedPage([], page_bytes(page))


# -- the same told by a store ----------------------------------------------------------------------

numbers: Final = count()


@pytest.fixture(scope="module")
def things() -> Iterator[SqliteStore]:
    """Make one file; each example has a table of its own."""
    with tempfile.TemporaryDirectory() as directory:
        store = SqliteStore(Path(directory) / "things.db")
        create_system_tables(store)
        yield store
        store.close()


def filled(store: Store, page: Sequence[Row]) -> str:
    """Make a table of rows with the keys 0, 1 and so on; return its name."""
    name = f"t{next(numbers)}-"
    store.create_table(TableSchema(name, [FamilySchema(family) for family in FAMILIES]))
    rows = [
        RowMutation(b"%d" % number, [Put(*cell[1:]) for cell in row])
        for number, row in enumerate(page)
    ]
    store.write({name: [row for row in rows if row.puts]})
    return name


def sifted_by_store(
    store: SqliteStore, page: Sequence[Row], scope: Scope, *, most_cells: int = 1000
) -> Sifted:
    """Return what a store tells of rows in all."""
    assert isinstance(store, SiftsRows)
    table = filled(store, page)
    wanted = Wanted(tuple(sorted(scope.families)), 0, scope.max_version())
    sieve = Sieve(wanted, scope.first_timestamp, min(scope.newest, MAX_VERSION))
    rest: KeyRange | None = KeyRange()
    parts = []
    while rest is not None:
        parts.append(store.sift(table, rest, sieve, most_cells=most_cells))
        rest = parts[-1].rest
    return Sifted(
        sum(part.rows for part in parts),
        sum(part.cells for part in parts),
        sum(part.size_bytes for part in parts),
        min((part.oldest for part in parts if part.oldest is not None), default=None),
        [key for part in parts for key in part.others],
        None,
    )


@given(rows, scopes, st.sampled_from((1, 3, 1000)))
@example(
    [
        [
            (b"f", b"a", 100, b"v", "new"),
            (b"f", b"a", 150, b"v", "new"),
            (b"g", b"a", 50, b"v", "old"),
        ]
    ],
    Scope(MARKED, L, 0, 0),
    1,
)
@example(
    [[(b"f", b"a", 100, b"v", "new"), (b"f", b"ab", 150, b"v", "before")]],
    Scope(MARKED, L, 0, 0),
    1,
)
def test_a_store_tells_of_no_row_that_it_is_clean_but_of_clean_ones(
    things: SqliteStore, written: Sequence[Sequence[Written]], scope: Scope, most_cells: int
) -> None:
    """Wherever it cuts the range; and of those that our own look tells at once it does."""
    page = [row_of(row, b"%d" % number) for number, row in enumerate(written)]
    found = sifted_by_store(things, page, scope, most_cells=most_cells)
    ours = scope.families
    seen = [
        [cell for cell in row if cell.version < scope.max_version() and cell.family in ours]
        for row in page
    ]
    clean = [row for row in seen if row and row[0].row not in found.others]
    assert all(is_left_alone(row, scope) for row in clean)
    assert (found.rows, found.cells, found.size_bytes, found.oldest) == (
        len(clean),
        sum(map(len, clean)),
        page_bytes(clean),
        min((cell.version for row in clean for cell in row), default=None),
    )
    plainly = [row for row in seen if row and row not in sifted([row], scope).rows]
    if not any(cell.family not in ours for row in page for cell in row):
        assert all(row in clean for row in plainly)


@given(rows, st.sampled_from((0, 300)), st.sampled_from((WHOLE, Span(100, is_collecting=False))))
def test_a_pass_comes_to_the_same_where_the_store_sifts(
    things: SqliteStore, written: Sequence[Sequence[Written]], drop_horizon: int, span: Span
) -> None:
    """What it counts, says and claims, and what it leaves in the store."""
    page = [row_of(row, b"%d" % number) for number, row in enumerate(written)]

    def passed(most_others: float) -> tuple[list[list[Row]], str, int]:
        table = filled(things, page)
        entries = replace(things.schema(COMMIT_TABLE), name=f"{table}-commits")
        things.create_table(entries)
        task = RangeTask(
            table, KeyRange(), MARKED, L, 60, drop_horizon, entries.name, newest=NEWEST, span=span
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(range_reading, "MOST_OTHERS", most_others)
            patch.setattr(range_reading, "FIRST_SIFTED_CELLS", 3)
            result = RangePass(things, task, clock=ManualClock()).run()
        told = (list(things.scan(table)), str(result).replace(table, "t"), result.rows_sifted)
        things.drop_table(table)
        return told

    (left, told, sifted_rows), (left_too, told_too, none) = map(passed, (1.0, -1.0))
    assert not none
    assert (left, told.replace(f"rows_sifted={sifted_rows}", "rows_sifted=0")) == (
        left_too,
        told_too,
    )


A: Final = Cell(b"r", b"f", b"a", 100, b"v")
SHADOW: Final = Cell(b"r", b"f", shadow_qualifier(b"a"), 100, encode_long(150))


@pytest.mark.parametrize(
    "row",
    [
        pytest.param([A], id="no shadow cell"),
        pytest.param([SHADOW], id="no data cell"),
        pytest.param([SHADOW._replace(version=101), A], id="a shadow cell of another version"),
        pytest.param([SHADOW, A._replace(family=b"g")], id="a shadow cell of another family"),
        pytest.param([SHADOW._replace(qualifier=b"xyza" + SHADOW_SUFFIX), A], id="an older form"),
        pytest.param([SHADOW._replace(value=SHADOW.value + b"\0"), A], id="nine bytes"),
        pytest.param([SHADOW._replace(value=SHADOW.value[:7]), A], id="seven bytes"),
        pytest.param([SHADOW._replace(value=encode_long(99)), A], id="a commit before its start"),
        pytest.param([SHADOW._replace(value=encode_long(NEWEST + 1)), A], id="a commit to come"),
        pytest.param([SHADOW._replace(value=encode_long(-1)), A], id="a commit below zero"),
        pytest.param([SHADOW, A._replace(value=b"")], id="a tombstone"),
        pytest.param([SHADOW, A._replace(value=LEGACY_TOMBSTONE)], id="an older tombstone"),
        pytest.param(row_of([(b"f", b"", 100, b"", "new")]), id="a family marker"),
        pytest.param(
            row_of([(b"f", b"a" + SHADOW_SUFFIX, 100, encode_long(150), "new")]),
            id="a shadow cell that has one",
        ),
        pytest.param([one._replace(version=50) for one in (SHADOW, A)], id="before the oracle"),
        pytest.param([SHADOW._replace(version=150), SHADOW, A], id="one shadow cell more"),
        pytest.param(
            row_of([(b"f", b"a", 100, b"v", "new"), (b"f", b"a", 150, b"v", "new")]),
            id="two versions",
        ),
    ],
)
def test_what_is_odd_about_one_cell_is_seen(row: Row, things: SqliteStore) -> None:
    """Each by itself, and beside rows of which nothing is to be said."""
    scope = Scope(MARKED, L, 60, 300, newest=NEWEST)
    assert not is_left_alone(row, scope)
    clean = [SHADOW, A]
    assert is_left_alone(clean, scope)
    assert sifted([clean, row, clean], scope).rows == [row]
    found = sifted_by_store(things, [clean, row, clean], scope)
    assert (found.rows, found.cells, found.others) == (2, 4, [b"1"])


def test_a_shadow_cell_speaks_for_its_own_row() -> None:
    """What one row lacks is not found in the one before it."""
    page = [[SHADOW], [A._replace(row=b"s")]]
    assert sifted(page, Scope(MARKED, L, 60, 300)).rows == page


@given(rows, st.sampled_from((0, 300)), st.sampled_from((WHOLE, Span(100, is_collecting=False))))
def test_a_pass_comes_to_the_same_without_sifting(
    written: Sequence[Sequence[Written]], drop_horizon: int, span: Span
) -> None:
    """What it counts, says and claims, and what it leaves in the store."""

    def passed(*, is_sifting: bool) -> tuple[RangeResult, list[list[Row]]]:
        store = MemoryStore()
        create_system_tables(store)
        store.create_table(TableSchema("t", [FamilySchema(family) for family in FAMILIES]))
        for number, one in enumerate(written):
            cells = row_of(one, b"%d" % number)
            store.write({"t": [RowMutation(b"%d" % number, [Put(*cell[1:]) for cell in cells])]})
        task = RangeTask(
            "t", KeyRange(), MARKED, L, 60, drop_horizon, COMMIT_TABLE, newest=NEWEST, span=span
        )
        with pytest.MonkeyPatch.context() as patch:
            if not is_sifting:
                patch.setattr(
                    range_pass, "sifted", lambda page, _: SiftedPage(list(page), page_bytes(page))
                )
            result = RangePass(store, task, clock=ManualClock()).run()
        return result, list(store.scan("t"))

    assert passed(is_sifting=True) == passed(is_sifting=False)
