"""Cells, commit entries and ids are byte for byte those of Apache Omid 1.1.3."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omidpy.base import cells
from omidpy.errors import CorruptCell, UsageError
from omidpy.model import MAX_VERSION, base

timestamps = st.integers(0, MAX_VERSION - 1)
qualifiers = st.binary(max_size=20)

# -- shadow cells ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("qualifier", "shadow"),
    [(b"testdata", "00c280 7465737464617461 c280"), (b"", "00c280c280")],
)
def test_shadow_qualifiers_have_their_exact_bytes(qualifier: bytes, shadow: str) -> None:
    """Java readers look a shadow cell up by these bytes alone."""
    assert cells.shadow_qualifier(qualifier) == bytes.fromhex(shadow)
    assert cells.is_shadow_qualifier(bytes.fromhex(shadow))
    assert cells.data_qualifier(bytes.fromhex(shadow)) == qualifier


def test_a_shadow_qualifier_without_the_prefix_is_recognised() -> None:
    """Omid's older form; a table may still hold it."""
    assert cells.is_shadow_qualifier(b"q\xc2\x80")
    assert cells.data_qualifier(b"q\xc2\x80") == b"q"


@pytest.mark.parametrize("qualifier", [b"", b"q", b"\xc2\x80", b"\xc2\x80q", b"\x00\xc2\x80q"])
def test_other_qualifiers_are_data(qualifier: bytes) -> None:
    """Also a bare suffix, and one that only begins like a shadow cell."""
    assert not cells.is_shadow_qualifier(qualifier)


@given(qualifiers)
def test_shadow_qualifiers_round_trip(qualifier: bytes) -> None:
    """Whatever the user's qualifier."""
    shadow = cells.shadow_qualifier(qualifier)
    assert cells.is_shadow_qualifier(shadow)
    assert cells.data_qualifier(shadow) == qualifier


@given(qualifiers.filter(lambda q: q[:3] > b"\x00\xc2\x80"), qualifiers)
def test_shadow_cells_sort_before_the_data_of_their_family(data: bytes, other: bytes) -> None:
    """The prefix is there for this: a scan meets the answer before the question."""
    assert cells.shadow_qualifier(other) < data


def test_longs_are_eight_bytes_big_endian() -> None:
    """Shadow cells, the low watermark and the timestamp ceiling."""
    assert cells.encode_long(1050) == bytes.fromhex("000000000000041a")
    assert cells.decode_long(bytes.fromhex("000000000000041a"), what="a cell") == 1050


@given(timestamps)
def test_longs_round_trip(value: int) -> None:
    """Over the whole range of timestamps."""
    assert cells.decode_long(cells.encode_long(value), what="a cell") == value


@pytest.mark.parametrize("value", [b"", b"\x00" * 7, b"\x00" * 9])
def test_a_long_of_another_length_is_corrupt_and_named(value: bytes) -> None:
    """To guess would be to invent a commit."""
    with pytest.raises(CorruptCell, match="the shadow cell of q holds"):
        cells.decode_long(value, what="the shadow cell of q")


# -- deletes ---------------------------------------------------------------------------------------


def test_an_empty_value_and_the_legacy_string_are_tombstones() -> None:
    """Java deletes a column by writing one of the two."""
    assert cells.is_tombstone(b"")
    assert cells.is_tombstone(b"__OMID_TOMBSTONE__")
    assert not cells.is_tombstone(b"__OMID_TOMBSTONE__ ")
    assert not cells.is_tombstone(b"\x00")


def test_a_family_marker_is_empty_in_both() -> None:
    """An empty qualifier with a value is a column like any other."""
    assert cells.is_family_marker(b"", b"")
    assert not cells.is_family_marker(b"", b"v")
    assert not cells.is_family_marker(b"q", b"")
    assert not cells.is_family_marker(b"", b"__OMID_TOMBSTONE__")


@given(qualifiers)
def test_deleting_a_column_never_deletes_its_family(qualifier: bytes) -> None:
    """The column with the empty qualifier needs the other tombstone."""
    value = cells.tombstone_for(qualifier)
    assert cells.is_tombstone(value)
    assert not cells.is_family_marker(qualifier, value)


@pytest.mark.parametrize(
    ("qualifier", "value", "why"),
    [
        (b"q\xc2\x80", b"v", "reserves for shadow cells; choose another qualifier"),
        (b"\xc2\x80", b"v", "reserves for shadow cells"),
        (b"\x00\xc2\x80q\xc2\x80", b"v", "reserves for shadow cells"),
        (b"q", b"", r"reads as a delete; call delete\(\) to remove the column"),
        (b"q", b"__OMID_TOMBSTONE__", r"reads as a delete; call delete\(\)"),
    ],
)
def test_what_would_be_read_as_something_else_is_not_written(
    qualifier: bytes, value: bytes, why: str
) -> None:
    """Java writes it, and the data are silently gone."""
    with pytest.raises(UsageError, match=why) as caught:
        cells.check_writable(qualifier, value)
    assert repr(qualifier) in str(caught.value)


@given(qualifiers, st.binary(max_size=30))
def test_what_is_writable_reads_back_as_data(qualifier: bytes, value: bytes) -> None:
    """The refusals are exactly what reading would take for something else, and a bare suffix."""
    try:
        cells.check_writable(qualifier, value)
    except UsageError:
        assert cells.is_tombstone(value) or qualifier.endswith(b"\xc2\x80")
    else:
        assert not cells.is_tombstone(value)
        assert not cells.is_shadow_qualifier(qualifier)


def test_ordinary_cells_are_writable() -> None:
    """Also the empty qualifier, and bytes that only begin like something reserved."""
    cells.check_writable(b"", b"v")
    cells.check_writable(b"\xc2\x80q", b"\x00")
    cells.check_writable(b"q", b"__OMID_TOMBSTONE__!")


# -- commit table ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start_ts", "row"),
    [
        (50, "02 0000000000000032"),
        (1000, "08 00000000000003e8"),
        (500000050, "02 000000001dcd6532"),
        (1700000000000000000, "00 17979cfe362a0000"),
        (2**63 - 1, "0f 7fffffffffffffff"),
    ],
)
def test_commit_rows_have_their_exact_bytes(start_ts: int, row: str) -> None:
    """The bucket byte spreads the rows; Java computes the same one."""
    assert cells.commit_row(start_ts) == bytes.fromhex(row)
    assert cells.start_ts_of_commit_row(bytes.fromhex(row)) == start_ts


@pytest.mark.parametrize(
    "row", [b"", b"LOW_WATERMARK", bytes.fromhex("0300000000000003e8"), b"\x08" + b"\x00" * 7]
)
def test_other_rows_of_the_commit_table_are_told_apart(row: bytes) -> None:
    """The low watermark's row, and whatever a stranger left there."""
    assert cells.start_ts_of_commit_row(row) is None


@given(timestamps)
def test_commit_rows_round_trip(start_ts: int) -> None:
    """Over the whole range of timestamps."""
    assert cells.start_ts_of_commit_row(cells.commit_row(start_ts)) == start_ts


@given(timestamps, timestamps)
def test_bucket_ranges_hold_exactly_the_rows_below(start_ts: int, below_ts: int) -> None:
    """The pruner walks these ranges: a row outside is never pruned, one inside may be."""
    row = cells.commit_row(start_ts)
    inside = any(first <= row < last for first, last in cells.commit_bucket_rows(below_ts))
    assert inside is (start_ts < below_ts)


@pytest.mark.parametrize(
    ("start_ts", "commit_ts", "value"),
    [
        (1000, 1050, "32"),
        (1000, 1128, "8001"),
        (1000, 17384, "808001"),
        (1700000000000000000, 1700000001000000000, "8094ebdc03"),
    ],
)
def test_commit_values_have_their_exact_bytes(start_ts: int, commit_ts: int, value: str) -> None:
    """A varint of the distance: a commit is never long after its start."""
    assert cells.encode_commit(start_ts, commit_ts) == bytes.fromhex(value)
    assert cells.decode_commit(start_ts, bytes.fromhex(value)) == commit_ts


@given(timestamps, timestamps)
def test_commit_values_round_trip(one: int, other: int) -> None:
    """Over every pair of a start and a later commit."""
    start_ts, commit_ts = sorted((one, other))
    value = cells.encode_commit(start_ts, commit_ts)
    assert len(value) <= 10
    assert cells.decode_commit(start_ts, value) == commit_ts


@pytest.mark.parametrize("value", ["", "80", "3232", "ffffffffffffffffff01", "80" * 11 + "01"])
def test_what_is_no_commit_value_is_corrupt_and_named(value: str) -> None:
    """Cut off, too long, or a commit before its start: none of them is a commit timestamp."""
    with pytest.raises(CorruptCell, match="start_ts 1000, row 0800000000000003e8, holds"):
        cells.decode_commit(1000, bytes.fromhex(value))


@given(st.binary(max_size=12), timestamps)
def test_no_bytes_crash_the_reader_of_commit_entries(value: bytes, start_ts: int) -> None:
    """The only ways out are a commit timestamp in range and the one error."""
    try:
        commit_ts = cells.decode_commit(start_ts, value)
    except CorruptCell:
        return
    assert start_ts <= commit_ts <= MAX_VERSION


def test_the_invalidation_and_the_low_watermark_have_their_exact_bytes() -> None:
    """Java tests the presence of the one and reads the other by its row key."""
    assert bytes.fromhex("00000001") == cells.INVALIDATION_VALUE
    assert cells.LOW_WATERMARK_ROW == b"LOW_WATERMARK"


# -- ids -------------------------------------------------------------------------------------------


def test_ids_are_java_s() -> None:
    """Two clients that hash one cell differently never conflict: updates would be lost."""
    assert cells.cell_id("test", b"row1", b"data", b"col1") == -6913231044530751237
    assert cells.row_id("test", b"row1") == 1672997981743646830
    assert cells.table_id("test") == -6017608668500074083
    assert cells.table_id("ns:t") == 3078674532820899984


@given(timestamps)
def test_a_version_belongs_to_the_transaction_at_its_base(version: int) -> None:
    """Fifty versions from each start_ts, one per checkpoint."""
    assert base(version) % 50 == 0
    assert base(version) <= version < base(version) + 50
