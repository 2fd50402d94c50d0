"""Which cells `get`, `scan` and `find_cell` return, and in which order.

Bounds of versions, selections of columns and pages, with their borders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from omidpy.errors import NoSuchTable, UsageError
from omidpy.model import MAX_VERSION, Cell, ColumnSpec, KeyRange
from omidpy.storage.base import Put, Row, RowMutation, Store
from omidpy.storage.options import CutsRows, LongRow, Portion, Wanted
from omidpy.storage.portions import is_more
from omidpy.testing.chapters.basics import (
    CF,
    COLUMN,
    OTHER,
    TABLE,
    Chapter,
    Q,
    delete,
    keys_of,
    put,
    rows_of,
    scan,
    seen_by_scan,
)


class Reads(Chapter):
    """Every cell is found, in HBase's order, and no other."""

    def test_cells_of_a_row_come_in_hbase_order(self, things: Store) -> None:
        """Family, then qualifier, then the newest version first."""
        puts = [
            Put(family, qualifier, version, b"%d" % version)
            for version in (5, 9, 7)
            for qualifier in (b"b", b"", b"a", b"a\x00", b"\xff")
            for family in (OTHER, CF)
        ]
        things.write({TABLE: [RowMutation(b"r", puts)]})
        expected = sorted(
            (Cell(b"r", *one) for one in puts),
            key=lambda cell: (cell.family, cell.qualifier, -cell.version),
        )
        assert things.get(TABLE, [b"r"]) == [expected]
        shown = [seen_by_scan(things, expected)]
        assert rows_of(scan(things, TABLE)) == shown
        assert rows_of(scan(things, TABLE, reverse=True)) == shown

    def test_a_scan_of_versions_it_cannot_show_is_refused(self, things: Store) -> None:
        """Not answered with the newest, as if there were no others."""
        things.write({TABLE: [put(b"r", 1)]})
        if things.capabilities.multi_version_scan:
            assert rows_of(things.scan(TABLE)) == rows_of(things.scan(TABLE, max_versions=1))
            return
        for count in (None, 2):
            with pytest.raises(UsageError, match="max_versions=1"):
                things.scan(TABLE, max_versions=count)

    def test_a_get_answers_row_by_row(self, things: Store) -> None:
        """In the order asked, absent rows empty, repeats repeated."""
        things.write({TABLE: [put(b"a", 1), put(b"b", 2)]})
        a, b = [Cell(b"a", CF, Q, 1, b"v")], [Cell(b"b", CF, Q, 2, b"v")]
        assert things.get(TABLE, [b"b", b"x", b"a", b"b"]) == [b, [], a, b]
        assert things.get(TABLE, []) == []

    def test_every_version_is_kept(self, things: Store) -> None:
        """No version is dropped until it is deleted by name, as snapshots need them all."""
        for version in range(1, 31):
            things.write({TABLE: [put(b"r", version, b"%d" % version)]})
        (row,) = things.get(TABLE, [b"r"])
        assert [cell.version for cell in row] == list(range(30, 0, -1))
        assert [cell.value for cell in row] == [b"%d" % n for n in range(30, 0, -1)]

    def test_version_bounds_are_inclusive_below_and_exclusive_above(self, things: Store) -> None:
        """A snapshot reads versions below its own start timestamp."""
        things.write({TABLE: [put(b"r", version) for version in (10, 20, 30)]})

        def read(low: int, high: int, count: int | None = None) -> list[list[int]]:
            def get(columns: list[tuple[bytes, bytes | None]] | None) -> list[Row]:
                return things.get(
                    TABLE,
                    [b"r"],
                    columns=columns,
                    min_version=low,
                    max_version=high,
                    max_versions=count,
                )

            got = get(None)
            bounds: dict[str, Any] = {"min_version": low, "max_version": high}
            if count is not None and things.capabilities.multi_version_scan:
                bounds["max_versions"] = count
            assert [seen_by_scan(things, row) for row in got] == (
                rows_of(scan(things, TABLE, **bounds)) or [[]]
            )
            assert got == get([COLUMN])
            return [[cell.version for cell in row] for row in got]

        assert read(10, 30) == [[20, 10]]
        assert read(11, 31) == [[30, 20]]
        assert read(30, 30) == [[]]
        assert read(31, MAX_VERSION) == [[]]
        assert read(0, MAX_VERSION) == [[30, 20, 10]]
        assert read(0, 30, 1) == [[20]]
        assert read(0, MAX_VERSION, 2) == [[30, 20]]

    def test_versions_reach_from_zero_to_the_limit(self, things: Store) -> None:
        """Timestamps are 63 bits; nothing may round them."""
        versions = [0, 1, 2**53 + 1, MAX_VERSION - 1]
        things.write({TABLE: [put(b"r", version) for version in versions]})
        (row,) = things.get(TABLE, [b"r"])
        assert [cell.version for cell in row] == versions[::-1]
        (row,) = things.get(TABLE, [b"r"], max_version=MAX_VERSION - 1)
        assert [cell.version for cell in row] == versions[-2::-1]

    def test_max_versions_counts_per_column_within_the_bounds(self, things: Store) -> None:
        """Each column gives its own newest versions."""
        puts = [
            Put(CF, qualifier, version, b"") for qualifier in (b"a", b"b") for version in range(5)
        ]
        things.write({TABLE: [RowMutation(b"r", puts), RowMutation(b"s", puts)]})
        rows = things.get(TABLE, [b"r", b"s"], max_version=4, max_versions=2)
        if things.capabilities.multi_version_scan:
            assert rows == rows_of(things.scan(TABLE, max_version=4, max_versions=2))
        for row in rows:
            assert [(cell.qualifier, cell.version) for cell in row] == [
                (b"a", 3),
                (b"a", 2),
                (b"b", 3),
                (b"b", 2),
            ]

    def test_columns_select_cells_and_families(self, things: Store) -> None:
        """(family, None) is the whole family; overlapping selections give each cell once."""
        puts = [
            Put(family, qualifier, 1, b"v")
            for family in (CF, OTHER)
            for qualifier in (b"", b"a", b"b", b"c")
        ]
        things.write({TABLE: [RowMutation(b"r", puts)]})

        def read(columns: list[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes]]:
            (got,) = things.get(TABLE, [b"r"], columns=columns)
            assert rows_of(scan(things, TABLE, columns=columns)) == ([got] if got else [])
            assert rows_of(scan(things, TABLE, columns=columns, reverse=True)) == (
                [got] if got else []
            )
            return [(cell.family, cell.qualifier) for cell in got]

        assert read([(OTHER, b"b"), (CF, b"a"), (CF, b"a")]) == [(CF, b"a"), (OTHER, b"b")]
        assert read([(CF, b"")]) == [(CF, b"")]
        assert read([(CF, b"b"), (CF, None)]) == [(CF, q) for q in (b"", b"a", b"b", b"c")]
        assert read([(OTHER, None), (CF, b"c")]) == [
            (CF, b"c"),
            *((OTHER, q) for q in (b"", b"a", b"b", b"c")),
        ]
        assert read([(CF, b"absent")]) == []
        assert read([]) == []

    def test_many_columns_at_once(self, things: Store) -> None:
        """A selection has no small limit."""
        qualifiers = [b"%05d" % number for number in range(1500)]
        puts = [Put(CF, qualifier, 1, b"v") for qualifier in qualifiers]
        things.write({TABLE: [RowMutation(b"r", puts)]})
        wanted = qualifiers[::2]
        (row,) = things.get(TABLE, [b"r"], columns=[(CF, qualifier) for qualifier in wanted])
        assert [cell.qualifier for cell in row] == wanted
        (row,) = rows_of(scan(things, TABLE, columns=[(CF, qualifier) for qualifier in wanted]))
        assert [cell.qualifier for cell in row] == wanted

    def test_a_row_without_selected_cells_is_not_scanned(self, things: Store) -> None:
        """Rows of a scan are never empty, and do not use up a page."""
        things.write({TABLE: [put(b"a", 1), put(b"b", 1, qualifier=b"x"), put(b"c", 1)]})
        pages = list(scan(things, TABLE, columns=[COLUMN], page_rows=2))
        assert [[row[0].row for row in page] for page in pages] in (
            [[b"a", b"c"]],
            [[b"a"], [b"c"]],
        )

    def test_a_scan_reads_its_range_in_order(self, things: Store) -> None:
        """Keys compare as unsigned bytes; the start is inclusive, the end exclusive."""
        keys = [b"\x00", b"a", b"a\x00", b"ab", b"b", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]
        things.write({TABLE: [put(key, 1) for key in reversed(keys)]})
        assert keys_of(scan(things, TABLE)) == sorted(keys)
        assert keys_of(scan(things, TABLE, reverse=True)) == sorted(keys, reverse=True)
        for start in (b"", b"a", b"aa", b"b", b"\xff"):
            for end in (b"", b"a", b"a\x00", b"b", b"\xff\xff"):
                key_range = KeyRange(start, end)
                expected = [key for key in sorted(keys) if key_range.contains(key)]
                assert keys_of(scan(things, TABLE, key_range)) == expected
                assert keys_of(scan(things, TABLE, key_range, reverse=True)) == expected[::-1]

    @pytest.mark.parametrize("reverse", [False, True])
    @pytest.mark.parametrize("page_rows", [1, 2, 3, 7, 1000])
    def test_pages_hold_whole_rows_and_never_none(
        self,
        things: Store,
        page_rows: int,
        reverse: bool,  # noqa: FBT001  a parameter of the test
    ) -> None:
        """A page ends between rows, whatever its size."""
        keys = [b"%02d" % number for number in range(7)]
        puts = [Put(CF, b"%d" % column, version, b"v") for column in range(3) for version in (1, 2)]
        things.write({TABLE: [RowMutation(key, puts) for key in keys]})
        pages = list(scan(things, TABLE, page_rows=page_rows, reverse=reverse))
        assert all(1 <= len(page) <= page_rows for page in pages)
        rows = [row for page in pages for row in page]
        assert [row[0].row for row in rows] == sorted(keys, reverse=reverse)
        cells = 6 if things.capabilities.multi_version_scan else 3
        assert all(len(row) == cells and len({cell.row for cell in row}) == 1 for row in rows)

    def test_each_page_is_read_when_it_is_asked_for(self, things: Store) -> None:
        """A scan pins no view of the store: what was written meanwhile is seen, as is a delete."""
        things.write({TABLE: [put(key, 1) for key in (b"a", b"b", b"c")]})
        pages = scan(things, TABLE, page_rows=1)
        assert next(pages)[0][0].row == b"a"
        things.write({TABLE: [put(b"bb", 1), put(b"c", 2)]})
        expected = [b"b", b"bb", b"c"]
        if things.capabilities.exact_delete:
            things.write({TABLE: [delete(b"b", 1)]})
            expected.remove(b"b")
        rest = rows_of(pages)
        assert [row[0].row for row in rest] == expected
        assert rest[-1][0].version == 2

    def test_an_abandoned_scan_keeps_nothing_busy(self, things: Store) -> None:
        """A reader that stops half way must not stop a writer, nor a drop of the table."""
        things.write({TABLE: [put(b"%d" % number, 1) for number in range(9)]})
        pages = scan(things, TABLE, page_rows=1)
        next(pages)
        things.write({TABLE: [put(b"z", 1)]})
        things.drop_table(TABLE)
        with pytest.raises(NoSuchTable):
            next(pages)

    @pytest.mark.parametrize(
        "bad",
        [
            {"min_version": -1},
            {"max_version": MAX_VERSION + 1},
            {"max_versions": 0},
            {"page_rows": 0},
        ],
    )
    def test_bounds_out_of_range_are_refused(self, things: Store, bad: dict[str, int]) -> None:
        """The message names the argument's value."""
        with pytest.raises(UsageError, match=str(next(iter(bad.values())))):
            rows_of(scan(things, TABLE, **bad))  # type: ignore[arg-type]  # one of four integers
        if "page_rows" not in bad:
            with pytest.raises(UsageError):
                things.get(TABLE, [b"r"], **bad)  # type: ignore[arg-type]  # one of three

    def test_text_where_bytes_belong_is_a_type_error(self, things: Store) -> None:
        """Not a silent miss."""
        wrong: list[Callable[[], object]] = [
            lambda: things.get(TABLE, ["r"]),  # type: ignore[list-item]  # the point
            lambda: things.get(TABLE, [b"r"], columns=[(CF, "q")]),  # type: ignore[list-item]  # the point
            lambda: rows_of(scan(things, TABLE, KeyRange("a", b""))),  # type: ignore[arg-type]  # the point
            lambda: things.write({TABLE: [put("r", 1)]}),  # type: ignore[arg-type]  # the point
            lambda: things.write({TABLE: [put(b"r", 1, "v")]}),  # type: ignore[arg-type]  # the point
            lambda: things.write({TABLE: [put(b"r", 1, qualifier="q")]}),  # type: ignore[arg-type]  # the point
            lambda: things.write({TABLE: [delete(b"r", 1, qualifier="q")]}),  # type: ignore[arg-type]  # the point
            lambda: things.check_and_mutate(TABLE, b"r", COLUMN, "v", put(b"r", 1)),  # type: ignore[arg-type]  # the point
        ]
        for call in wrong:
            with pytest.raises(TypeError, match="bytes"):
                call()
        assert rows_of(scan(things, TABLE)) == []

    def test_a_qualifier_is_found_by_its_prefix(self, things: Store) -> None:
        """How a table that holds shadow cells is recognised, in whatever row and family."""
        assert things.find_cell(TABLE, prefix=b"") is None
        things.write({TABLE: [put(b"%d" % number, 1) for number in range(50)]})
        assert things.find_cell(TABLE, prefix=b"\x00\xc2\x80") is None
        shadow = Cell(b"27", OTHER, b"\x00\xc2\x80q\xc2\x80", 5, b"commit")
        things.write({TABLE: [RowMutation(shadow.row, [Put(*shadow[1:])])]})
        assert things.find_cell(TABLE, prefix=b"\x00\xc2\x80") == shadow
        found = things.find_cell(TABLE, prefix=b"")
        assert found is not None
        assert things.find_cell(TABLE, prefix=b"\xff") is None

    def test_a_cell_is_found_by_its_version(self, things: Store) -> None:
        """Whether a transaction can have written there is asked of tables that are not ours."""
        things.write({TABLE: [put(b"a", 10), put(b"b", 20), put(b"c", 30), put(b"c", 20)]})

        def found(low: int, high: int, columns: Sequence[ColumnSpec] | None = None) -> object:
            cell = things.find_cell(
                TABLE, columns=columns, min_version=low, max_version=high, prefix=b""
            )
            return cell and (cell.row, cell.version)

        assert found(11, 20) is None
        assert found(11, 21) == (b"b", 20)
        assert found(10, 31) == (b"a", 10)
        assert found(30, 31) == (b"c", 30)
        assert found(20, 20) is None
        things.write({TABLE: [RowMutation(b"a", [Put(OTHER, Q, 20, b"v")])]})
        assert found(20, 21, [(CF, None)]) == (b"b", 20)
        assert found(20, 21, [(OTHER, None), (CF, b"none")]) == (b"a", 20)
        assert found(20, 21, [(OTHER, None), (CF, None)]) == (b"a", 20)
        assert found(20, 21, []) is None

    def test_a_prefix_and_a_version_must_be_the_same_cell_s(self, things: Store) -> None:
        """A row with an old shadow cell and a new plain one holds no new shadow cell."""
        shadow = b"\x00\xc2\x80q\xc2\x80"
        things.write(
            {TABLE: [RowMutation(b"r", [Put(CF, shadow, 10, b"s"), Put(CF, Q, 20, b"v")])]}
        )
        assert things.find_cell(TABLE, prefix=shadow[:3], min_version=11) is None
        assert things.find_cell(TABLE, prefix=shadow[:3], max_version=10) is None
        cell = things.find_cell(TABLE, prefix=shadow[:3], min_version=10, max_version=11)
        assert cell is not None
        assert (cell.qualifier, cell.version) == (shadow, 10)

    def test_an_empty_prefix_finds_the_empty_qualifier(self, things: Store) -> None:
        """The empty qualifier is a column like another, and every prefix of it is empty."""
        cell = Cell(b"r", OTHER, b"", 1, b"v")
        things.write({TABLE: [RowMutation(cell.row, [Put(*cell[1:])])]})
        assert things.find_cell(TABLE, prefix=b"") == cell
        assert things.find_cell(TABLE, prefix=b"\x00") is None


class Portions(Chapter):
    """Rows of a store that can cut them: whole where they are short, and else part by part."""

    @pytest.fixture
    def cutting(self, things: Store) -> CutsRows:
        """Return a store that can."""
        if not (isinstance(things, CutsRows) and things.capabilities.multi_version_scan):
            pytest.skip("this store returns rows whole, however long they are")
        return things

    def test_long_rows_are_named_and_others_come(self, things: Store, cutting: CutsRows) -> None:
        """In key order, within the versions and families that were asked for."""
        portioned(things)
        for wanted in (Wanted((CF, OTHER)), Wanted((CF,), 2, 4), Wanted((OTHER,), 3)):
            columns, low, high = wanted.columns(), wanted.min_version, wanted.max_version
            expected = rows_of(
                things.scan(TABLE, columns=columns, min_version=low, max_version=high)
            )
            for cells, page_rows in ((1, 2), (5, 3), (12, 9), (30, 1)):
                most = Portion(cells, 999)
                pages = cutting.scan_portions(
                    TABLE, KeyRange(), wanted, page_rows=page_rows, most=most
                )
                found: list[Row | LongRow] = []
                for page in pages:
                    if isinstance(page, LongRow):
                        found.append(page)
                    else:
                        assert len(page) == 1 or sum(map(len, page)) <= cells
                        found += map(list, page)
                assert named(found) == named(expected)
                short = [row for row in expected if not is_more(row, most)]
                assert [row for row in found if not isinstance(row, LongRow)] == short

    def test_some_rows_are_read_a_portion_at_a_time(self, things: Store, cutting: CutsRows) -> None:
        """Those that are gone are empty, and the long ones are named."""
        rows = [*portioned(things), b"none"]
        wanted = Wanted((CF, OTHER))
        whole = dict(zip(rows, things.get(TABLE, rows), strict=True))
        for cells, size_bytes in ((1, 999), (5, 999), (12, 999), (99, 9)):
            most, left = Portion(cells, size_bytes), rows
            while left:
                found = cutting.get_portion(TABLE, left, wanted, most=most)
                assert 1 <= len(found) <= len(left)
                for key, row in zip(left, found, strict=False):
                    is_long = is_more(whole[key], most)
                    assert row == (LongRow(key) if is_long else whole[key])
                left = left[len(found) :]

    def test_a_row_comes_part_by_part(self, things: Store, cutting: CutsRows) -> None:
        """Each cell once, in order, by cells and by bytes, from the middle of a column too."""
        rows = portioned(things)
        for wanted in (Wanted((CF, OTHER)), Wanted((CF,), 2, 4), Wanted((OTHER,), 3)):
            columns, low, high = wanted.columns(), wanted.min_version, wanted.max_version
            expected = things.get(TABLE, rows, columns=columns, min_version=low, max_version=high)
            for row, cells in zip(rows, expected, strict=True):
                for most in (Portion(1, 999), Portion(4, 999), Portion(99, 9)):
                    parts = list(cutting.row_parts(TABLE, row, wanted, most=most))
                    assert [cell for part in parts for cell in part] == cells
                    assert all(part and not is_more(part, most) for part in parts)
        assert list(cutting.row_parts(TABLE, b"none", wanted, most=most)) == []


def portioned(things: Store) -> list[bytes]:
    """Write rows of one cell up to dozens, and return their keys."""
    for number in range(6):
        puts = [
            Put(family, qualifier, version, b"v" * version)
            for version in (1, 2, 3, 4)
            for qualifier in (b"", b"\x00", b"a", b"a\x00", b"\xff", b"\xff\xff")[: number + 1]
            for family in (CF, OTHER)[: 1 + number % 2]
        ]
        things.write({TABLE: [RowMutation(b"%d" % number, puts[: 1 + number * number])]})
    return [b"%d" % number for number in range(6)]


def named(found: Sequence[Row | LongRow]) -> list[bytes]:
    """Return the keys of rows."""
    return [one.key if isinstance(one, LongRow) else one[0].row for one in found]
