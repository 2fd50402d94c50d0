"""Scans of some columns bring the same, whether columns are named or families are read whole."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omidpy.base.cells import SHADOW_PREFIX, SHADOW_SUFFIX, encode_long, shadow_qualifier
from omidpy.model import Cell
from omidpy.storage.hbase.direct.some_columns import pages_of_some
from omidpy.storage.hbase.native import cellblock
from omidpy.storage.hbase.native.scanning import Page, Position

BEFORE: Final = encode_long(500)
LONG: Final = 30
"""Cells of a row that is longer than a page."""


@dataclass(frozen=True)
class FakeScanner:
    """Answers as HBase would, from rows in memory."""

    rows: list[list[Cell]]
    columns: list[tuple[bytes, bytes | None]]
    calls: list[str]
    name: str
    pairing: str | None = None
    is_too_long: Callable[[list[Cell]], bool] | None = None
    ignored: object = field(default=None)

    def start(self) -> Position:
        """Return where all begin."""
        return Position(b"", is_included=True)

    def found(self, position: Position) -> list[list[Cell]]:
        """Return the rows from a position on that have something that was asked for."""
        rows = [
            [
                cell
                for cell in row
                if cell[1:3] in self.columns or (cell.family, None) in self.columns
            ]
            for row in self.rows
            if row[0].row > position.key or (position.is_included and row[0].row == position.key)
        ]
        return [row for row in rows if row]

    def page(self, position: Position, rows: int, *, most_bytes: int) -> Page:
        """Return the first rows."""
        del most_bytes
        self.calls.append("sample")
        some = self.found(position)[:rows]
        for at, row in enumerate(some):
            if len(row) >= LONG and self.is_too_long is not None:
                return Page(some[:at], None, long_row=row[0].row)
        return Page(some, None)

    def pages(self, rows: int, start: Position) -> Generator[list[Any], None, Position | None]:
        """Yield pages, up to a row that is too long."""
        found = self.found(start)
        page: list[list[Cell]] = []
        for row in found:
            if len(row) >= LONG and self.is_too_long is not None:
                if page:
                    yield self.shaped(page)
                return Position(row[0].row, is_included=True)
            page.append(row)
            if len(page) == rows:
                yield self.shaped(page)
                page = []
        if page:
            yield self.shaped(page)
        return None

    def shaped(self, page: list[list[Cell]]) -> list[Any]:
        """Return rows as they are decoded."""
        self.calls.append(self.name)
        block = b"".join(cellblock.encode(*cell) for row in page for cell in row)
        counts = list(map(len, page))
        if self.pairing == "values":
            return cellblock.decode_values(
                block, 0, counts, SHADOW_PREFIX, SHADOW_SUFFIX, BEFORE, b"erased"
            )
        return cellblock.decode_pairs(block, 0, counts, SHADOW_PREFIX, SHADOW_SUFFIX)

    def behind(self, page: list[Any]) -> Position:
        """Return where the next page begins."""
        key = page[-1][0] if self.pairing == "values" else page[-1][0][0]
        return Position(key, is_included=False)


def scanned(
    rows: list[list[Cell]],
    wanted: list[tuple[bytes, bytes | None]],
    shape: str,
    page_rows: int,
) -> tuple[list[Any], list[Any], list[str]]:
    """Return what comes by names alone, what comes by choice, and what was read for that."""
    shadows = [(one, shadow_qualifier(name)) for one, name in wanted if name is not None]
    columns = [*wanted, *shadows]
    calls: list[str] = []
    named = FakeScanner(rows, columns, calls, "named", pairing=shape)
    families: list[tuple[bytes, bytes | None]] = [
        (one, None) for one in dict.fromkeys(one for one, _ in wanted)
    ]
    whole = replace(named, columns=families, name="whole")
    expected = [row for page in named.pages(page_rows, named.start()) for row in page]
    calls.clear()
    pages = pages_of_some(named, whole, frozenset(columns), page_rows)  # type: ignore[arg-type]
    return expected, [row for page in pages for row in page], calls


def row_of(key: bytes, names: dict[tuple[bytes, bytes], bytes]) -> list[Cell]:
    """Return a healed row; without a shadow cell where the value says so."""
    cells = [Cell(key, *name, 100, value) for name, value in names.items()]
    cells += [
        Cell(key, family, shadow_qualifier(name), 100, encode_long(150))
        for (family, name), value in names.items()
        if value != b"unhealed"
    ]
    return sorted(cells, key=lambda one: (one.family, one.qualifier))


names = st.tuples(st.sampled_from((b"f", b"g")), st.sampled_from((b"", b"a", b"ab", b"b", b"c")))
contents = st.one_of(
    st.dictionaries(names, st.sampled_from((b"v", b"w", b"", b"erased", b"unhealed")), min_size=1),
    st.just({(b"f", b"x%02d" % at): b"v" for at in range(LONG)}),
)


@pytest.mark.parametrize("shape", ["pairs", "values"])
@given(
    rows=st.lists(contents, max_size=12),
    wanted=st.lists(names, min_size=1, max_size=3, unique=True),
    family=st.sampled_from((b"", b"", b"f", b"g")),
    page_rows=st.integers(1, 3),
)
def test_rows_are_those_of_named_columns(
    shape: str,
    rows: list[dict[tuple[bytes, bytes], bytes]],
    wanted: list[tuple[bytes, bytes]],
    family: bytes,
    page_rows: int,
) -> None:
    """Though families may have been read whole; rows of no values are as none."""
    cells = [row_of(b"%02d" % at, content) for at, content in enumerate(rows)]
    specs: list[tuple[bytes, bytes | None]] = [one for one in wanted if one[0] != family]
    specs += [(family, None)] if family else []
    expected, found, _ = scanned(cells, specs, shape, page_rows)
    if shape == "values":
        expected, found = told(expected), told(found)
    assert found == expected


def told(rows: list[Any]) -> list[Any]:
    """Return what each row comes to: values, or what is to be decided."""
    made: list[Any] = []
    for key, content in rows:
        plain = values_of(content) if isinstance(content, list) else content
        if plain is None or plain:
            made.append((key, content if plain is None else plain))
    return made


def values_of(pairs: list[Any]) -> dict[bytes, bytes] | None:
    """Return the values of healed pairs: whole rows may need a decision that chosen ones do not."""
    if any(pair[5] is None or not pair[2] for pair in pairs):
        return None
    return {pair[1] + b":" + pair[2]: pair[4] for pair in pairs if pair[4] not in (b"", b"erased")}


@pytest.mark.parametrize("shape", ["pairs", "values"])
def test_families_are_read_whole_where_most_of_them_is_wanted(shape: str) -> None:
    """And columns are named where it is not, or where one row may have very many."""
    wanted: list[tuple[bytes, bytes | None]] = [(b"f", b"a"), (b"f", b"b")]
    few = {(b"f", name): b"v" for name in (b"a", b"b", b"c")}
    many = {(b"f", b"a%d" % at): b"v" for at in range(9)} | few
    long = {(b"f", b"x%02d" % at): b"v" for at in range(LONG)} | few
    keys = [b"%03d" % at for at in range(100)]

    def calls(*contents: dict[tuple[bytes, bytes], bytes]) -> list[str]:
        rows = [row_of(key, contents[at * len(contents) // 100]) for at, key in enumerate(keys)]
        expected, found, made = scanned(rows, wanted, shape, 1)
        assert found == expected
        return made

    assert calls(few)[:6] == ["named", "sample", "whole", "sample", "whole", "whole"]
    assert calls(few).count("sample") == 10
    assert "whole" not in calls(many)
    assert calls(few, many)[-1] == "named"
    assert calls(many, few)[-1] == "whole"
    assert "whole" not in calls(long)
    assert calls(few, long)[-1] == "named"
