"""Reads and writes in the Thrift2 protocol, without its traps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omidpy.base.cells import shadow_qualifier
from omidpy.base.rows.simple import paired
from omidpy.model import MAX_VERSION, Cell
from omidpy.storage.hbase import filters
from omidpy.storage.hbase.idl import thrift2 as idl
from omidpy.storage.hbase.thrift2 import convert


def test_a_delete_names_its_version_and_its_type() -> None:
    """The protocol's default type removes the version and all older ones: committed history."""
    (write,) = convert.row_writes({(b"r", b"cf", b"q", 7): None, (b"r", b"cf", b"p", 9): None})
    delete = write.delete(None)
    assert delete.deleteType == idl.TDeleteType.DELETE_COLUMN
    assert [(one.qualifier, one.timestamp) for one in delete.columns] == [(b"q", 7), (b"p", 9)]
    mutations = write.mutations(convert.FSYNC_WAL).mutations
    assert [one.deleteSingle.deleteType for one in mutations] == [idl.TDeleteType.DELETE_COLUMN]
    assert mutations[0].deleteSingle.durability == idl.TDurability.FSYNC_WAL


def test_a_row_that_puts_and_deletes_is_one_operation() -> None:
    """Else a reader could see one without the other."""
    (write,) = convert.row_writes({(b"r", b"cf", b"q", 7): b"v", (b"r", b"cf", b"p", 9): None})
    both = write.mutations(None)
    assert both.row == b"r"
    assert [one.put is not None for one in both.mutations] == [True, False]


def test_all_versions_are_asked_for_by_number() -> None:
    """The protocol's default is one."""
    assert convert.selection(None, 0, MAX_VERSION, None) == (None, None, 2147483647)
    wanted = convert.selection([(b"cf", None), (b"d", b"q")], 5, 9, 2**40)
    assert wanted.max_versions == 2147483647
    assert wanted.time_range is not None
    assert (wanted.time_range.minStamp, wanted.time_range.maxStamp) == (5, 9)
    assert [(one.family, one.qualifier) for one in wanted.columns or ()] == [
        (b"cf", None),
        (b"d", b"q"),
    ]


def test_a_result_becomes_cells() -> None:
    """An absent row is an empty one."""
    values = [idl.TColumnValue(b"cf", b"q", b"new", 2), idl.TColumnValue(b"cf", b"q", b"old", 1)]
    assert convert.row_of(idl.TResult(row=b"r", columnValues=values)) == [
        Cell(b"r", b"cf", b"q", 2, b"new"),
        Cell(b"r", b"cf", b"q", 1, b"old"),
    ]
    assert convert.row_of(idl.TResult(row=None, columnValues=[])) == []


QUALIFIERS = [b"", b"a", b"q", b"\xc2\x80", b"\x00\xc2\x80", b"\x00a"]
SHADOWS = [shadow_qualifier(one) for one in QUALIFIERS] + [b"a\xc2\x80"]


@given(
    st.sets(
        st.tuples(
            st.sampled_from([b"cf", b"d"]), st.sampled_from(QUALIFIERS + SHADOWS), st.integers(1, 2)
        )
    )
)
def test_pairs_are_those_of_the_cells(names: set[tuple[bytes, bytes, int]]) -> None:
    """A scan that pairs sees what one that does not pair would."""
    ordered = sorted(names, key=lambda name: (name[0], name[1], -name[2]))
    values = [
        idl.TColumnValue(family, qualifier, b"%d" % number, version)
        for number, (family, qualifier, version) in enumerate(ordered)
    ]
    result = idl.TResult(row=b"r", columnValues=values)
    cells = convert.row_of(result)
    expected = paired(cells)
    if expected or not cells:
        assert convert.pairs_of(result) == expected
    else:
        assert convert.pairs_of(result) == [(*cells[0], None)]


def test_a_row_without_cells_yet_is_the_row() -> None:
    """To whoever looks at it as a list, and to whoever asks what the cells hold."""
    values = [idl.TColumnValue(b"cf", q, b"v" + q, n) for n, q in enumerate(QUALIFIERS)]
    result = idl.TResult(row=b"r", columnValues=values)
    cells, row = convert.row_of(result), convert.lazy_row_of(result)
    assert (row.key, len(row), list(row)) == (b"r", len(cells), cells)
    assert [row[number] for number in range(len(row))] == cells
    assert (row[-1], row[1:], cells[0] in row) == (cells[-1], cells[1:], True)
    assert [Cell(row.key, *fields) for fields in row.fields()] == cells


def test_batches_are_bounded_by_rows_and_by_bytes() -> None:
    """A row that is too large alone goes alone."""
    sizes = [10, 10, 10, 500, 10, 60, 60]
    writes = [convert.RowWrite(b"%d" % n, size_bytes=size) for n, size in enumerate(sizes)]
    cut = list(convert.batches(writes, max_rows=2, max_bytes=100))
    assert [[one.size_bytes for one in batch] for batch in cut] == [
        [10, 10],
        [10],
        [500],
        [10, 60],
        [60],
    ]
    assert list(convert.batches([], max_rows=2, max_bytes=100)) == []


def test_a_filter_is_its_class_and_its_parameters() -> None:
    """Bytes that HBase 2.6 decodes, also where a length takes two of them."""
    name = b"org.apache.hadoop.hbase.filter."
    prefix = name + b"ColumnPrefixFilter"
    assert filters.column_prefix(b"\x00\xc2\x80") == (
        b"\x0a\x31" + prefix + b"\x12\x05\x0a\x03\x00\xc2\x80"
    )
    long = filters.column_prefix(b"q" * 200)
    assert long == b"\x0a\x31" + prefix + b"\x12\xcb\x01\x0a\xc8\x01" + b"q" * 200
    row = filters.random_rows(0.5)
    assert row == b"\x0a\x2e" + name + b"RandomRowFilter\x12\x05\x0d\x00\x00\x00\x3f"
    assert filters.first_cell() == b"\x0a\x31" + name + b"FirstKeyOnlyFilter\x12\x00"
    both = filters.any_of(row, filters.first_cell())
    assert both.startswith(b"\x0a\x29" + name + b"FilterList\x12")
    assert b"\x08\x02\x12" in both
    assert b"\x08\x01\x12" in filters.all_of(row)
