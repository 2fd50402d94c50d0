"""What a table remembers of its columns: only what may be written, and no more than some."""

from __future__ import annotations

import pytest

from omidpy.errors import NoSuchFamily, OmidError, UsageError
from omidpy.facts.tables.layout import MAX_KNOWN_BYTES, MAX_KNOWN_COLUMNS, TableLayout


@pytest.fixture
def layout() -> TableLayout:
    """Return a table with one family."""
    return TableLayout("t", frozenset({b"f"}), "cell")


def test_a_column_that_may_be_written_is_remembered(layout: TableLayout) -> None:
    """The next put of it is not checked again."""
    assert layout.writable_column(b"f:a:b") == (b"f", b"a:b")
    assert layout.columns == {b"f:a:b": (b"f", b"a:b")}


@pytest.mark.parametrize(
    ("column", "error"),
    [
        (b"f", UsageError),
        (b"other:q", NoSuchFamily),
        (b"f:q\xc2\x80", UsageError),
        ("f:q", TypeError),
    ],
)
def test_a_column_that_may_not_be_written_is_refused_each_time(
    layout: TableLayout, column: bytes, error: type[OmidError]
) -> None:
    """What was remembered by mistake would be written the second time."""
    for _ in range(2):
        with pytest.raises(error):
            layout.writable_column(column)
    assert not layout.columns


def test_what_is_remembered_is_bounded(layout: TableLayout) -> None:
    """Some tables have a column for each thing that they know."""
    for number in range(MAX_KNOWN_COLUMNS + 10):
        layout.writable_column(b"f:%d" % number)
    assert len(layout.columns) == MAX_KNOWN_COLUMNS


def test_long_columns_are_not_remembered(layout: TableLayout) -> None:
    """Their bytes would stay as long as the table is known."""
    column = b"f:" + b"q" * MAX_KNOWN_BYTES
    assert layout.writable_column(column) == (b"f", column[2:])
    assert not layout.columns
