"""Rows as typed columns, and back: every batch is as the shape says, or nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omidpy
from omidpy.codec import BOOL, FLOAT32, FLOAT64, INT16, INT32, INT64, JSON, TEXT, Codec
from omidpy.errors import CorruptCell, NoSuchTable, TransactionAborted, UsageError
from omidpy.manager import TransactionManager
from omidpy.tx.frames.names import column_of, text_of
from omidpy.tx.frames.reading import page_batches, record_batches, schema_of
from omidpy.tx.frames.shape import Shape

TYPED: Any = {
    "balance": ("cf:balance", "bigint"),
    "name": ("cf:name", "string"),
    "ratio": ("cf:ratio", "double"),
}
MINE = Codec("MINE", lambda value: value.encode(), bytes.hex, "string")


@pytest.fixture
def tm() -> Iterator[TransactionManager]:
    """Give a store in memory with a table."""
    with omidpy.connect("memory:") as made:
        made.create_table("t", ["cf"], splits=[b"5"])
        yield made


def put(tm: TransactionManager, row: bytes, cells: dict[bytes, bytes]) -> None:
    """Write a row."""
    with tm.begin() as tx:
        tx.table("t").put(row, cells)


# -- reading ---------------------------------------------------------------------------------------


def test_a_frame_is_what_was_written(tm: TransactionManager) -> None:
    """Typed, in the order of the keys, null where there is nothing."""
    put(tm, b"a", {b"cf:balance": INT64.encode(-5), b"cf:name": TEXT.encode("ä")})
    put(tm, b"b", {b"cf:ratio": FLOAT64.encode(0.5)})
    reader = tm.scan_arrow("t", columns=TYPED)
    assert isinstance(reader, pa.RecordBatchReader)
    assert [str(one.type) for one in reader.schema] == ["binary", "int64", "string", "double"]
    assert reader.read_all().to_pylist() == [
        {"row": b"a", "balance": -5, "name": "ä", "ratio": None},
        {"row": b"b", "balance": None, "name": None, "ratio": 0.5},
    ]


def test_every_batch_has_the_schema(tm: TransactionManager) -> None:
    """The second as the first, where one has nothing but nulls and the other none."""
    for at in range(25):
        cells = {b"cf:name": b"x"} if at < 10 else {b"cf:balance": INT64.encode(at)}
        put(tm, b"%02d" % at, cells)
    reader = tm.scan_arrow("t", columns=TYPED, batch_rows=10)
    batches = list(reader)
    assert [one.num_rows for one in batches] == [10, 10, 5]
    assert all(one.schema.equals(reader.schema) for one in batches)
    for one in batches:
        one.validate(full=True)


def test_an_earlier_moment_is_read(tm: TransactionManager) -> None:
    """And a range of it."""
    put(tm, b"a1", {b"cf:balance": INT64.encode(1)})
    then = tm.begin().start_ts
    put(tm, b"a1", {b"cf:balance": INT64.encode(2)})
    put(tm, b"b1", {b"cf:balance": INT64.encode(3)})
    columns: Any = {"balance": ("cf:balance", "bigint")}

    def read(**more: Any) -> list[int]:
        found = tm.scan_arrow("t", columns=columns, **more).read_all()
        return [int(one) for one in found.column("balance").to_pylist()]

    assert read(at=then) == [1]
    assert read() == [2, 3]
    assert (read(row_prefix=b"b"), read(row_start=b"b"), read(row_stop=b"b")) == ([3], [3], [2])


def test_what_is_not_named_is_in_a_map(tm: TransactionManager) -> None:
    """All of it, where nothing is named."""
    put(tm, b"a", {b"cf:balance": INT64.encode(1), b"cf:x": b"1", b"cf:y": b"2"})
    assert tm.scan_arrow("t").read_all().to_pylist() == [
        {"row": b"a", "cells": [("cf:balance", INT64.encode(1)), ("cf:x", b"1"), ("cf:y", b"2")]}
    ]
    found = tm.scan_arrow("t", columns={"x": ("cf:x", "binary")}, rest="more").read_all()
    assert found.to_pylist() == [
        {"row": b"a", "x": b"1", "more": [("cf:balance", INT64.encode(1)), ("cf:y", b"2")]}
    ]


def test_the_time_of_the_newest_cell_is_a_column(tm: TransactionManager) -> None:
    """Of those that were read."""
    put(tm, b"a", {b"cf:x": b"1", b"cf:y": b"1"})
    with tm.begin() as tx:
        tx.table("t").put(b"a", {b"cf:y": b"2"})
    found = tm.scan_arrow("t", commit_ts=True).read_all().to_pylist()
    assert found[0]["_commit_ts"] == tx.commit_ts
    columns: Any = {"x": ("cf:x", "binary")}
    found = tm.scan_arrow("t", columns=columns, commit_ts=True).read_all().to_pylist()
    assert tx.start_ts > found[0]["_commit_ts"] > 0


def test_own_writes_are_read_in_a_transaction(tm: TransactionManager) -> None:
    """Like every other read."""
    with tm.begin() as tx:
        table = tx.table("t")
        table.write_arrow(
            pa.table({"row": [b"a"], "balance": [7]}), columns=dict([*TYPED.items()][:1])
        )
        found = table.read_arrow(columns=dict([*TYPED.items()][:1])).read_all()
        assert found.to_pylist() == [{"row": b"a", "balance": 7}]


@pytest.mark.parametrize(
    ("kind", "data"),
    [("bigint", b"1"), ("int", b"12345"), ("string", b"\xff"), ("boolean", b"\x01")],
)
def test_a_value_of_another_type_is_named(tm: TransactionManager, kind: str, data: bytes) -> None:
    """By row and column, also among a thousand that are right."""
    put(tm, b"a", {b"cf:x": data})
    with pytest.raises(CorruptCell, match=r"row b'a', column b'cf:x'"):
        tm.scan_arrow("t", columns={"x": ("cf:x", kind)}).read_all()


@given(st.lists(st.none() | st.integers(-(2**15), 2**15 - 1), max_size=20))
@pytest.mark.parametrize("codec", [INT64, INT32, INT16, FLOAT64, FLOAT32])
def test_numbers_are_turned_in_bulk_as_one_by_one(
    codec: Codec[Any], values: list[int | None]
) -> None:
    """With nulls anywhere."""
    shape = Shape.of({"x": ("cf:x", codec)})
    rows = (
        (b"%02d" % at, {} if value is None else {b"cf:x": codec.encode(value)})
        for at, value in enumerate(values)
    )
    found = [
        one["x"] for batch in record_batches(shape, rows, batch_rows=7) for one in batch.to_pylist()
    ]
    assert found == values


# -- keys ------------------------------------------------------------------------------------------


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=4),
    st.integers(-(2**31), 2**31 - 1),
    st.booleans(),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=4),
)
def test_keys_of_several_parts_come_back(region: str, number: int, is_new: bool, name: str) -> None:  # noqa: FBT001 - a value
    """Whatever the parts hold."""
    key = Shape.of(
        None, key={"region": "string", "number": "int", "is_new": "boolean", "name": "string"}
    ).key
    values = (region, number, is_new, name)
    row = key.encode(values)
    assert key.decode(row) == values
    assert row.startswith(key.encode(values[:2]))


@given(
    st.tuples(st.text("ab", min_size=1), st.integers(0, 9)),
    st.tuples(st.text("ab", min_size=1), st.integers(0, 9)),
)
def test_keys_order_as_their_parts_do(one: tuple[str, int], other: tuple[str, int]) -> None:
    """So that a prefix is a range."""
    key = Shape.of(None, key={"name": "string", "number": "bigint"}).key
    assert (key.encode(one) < key.encode(other)) == (one < other)


def test_a_row_key_that_has_other_parts_is_named() -> None:
    """Nobody reads a part out of the next one."""
    key = Shape.of(None, key={"name": "string", "number": "int"}).key
    for row in (b"a", b"a\x00", b"a\x00\x00\x00\x01", b"a\x00\x00\x00\x00\x01\x02"):
        with pytest.raises(CorruptCell):
            key.decode(row)
    with pytest.raises(UsageError, match="zero byte"):
        key.encode(("a\0b", 1))
    with pytest.raises(UsageError, match="'number' is part of the row key, and is null"):
        key.encode(("a", None))


def test_keys_are_columns(tm: TransactionManager) -> None:
    """Written and read."""
    data = pa.table({"region": ["eu", "us"], "number": [1, -1], "x": ["p", "q"]})
    with tm.begin() as tx:
        tx.table("t").write_arrow(
            data, columns={"x": ("cf:x", "string")}, key={"region": "string", "number": "int"}
        )
    assert tm.begin().table("t").row(b"eu\x00\x00\x00\x00\x01") == {b"cf:x": b"p"}
    found = tm.scan_arrow(
        "t", columns={"x": ("cf:x", "string")}, key={"region": "string", "number": "int"}
    )
    assert found.read_all().to_pylist() == data.to_pylist()


# -- shapes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"columns": {"x": ("cf:x", "decimal")}}, "no codec has the type 'decimal' of column 'x'"),
        ({"columns": {"x": ("cf", "int")}}, "family:qualifier"),
        ({"columns": {"x": ("cf:x", "no.such:THING")}}, "is not there"),
        ({"columns": {"x": ("cf:x", "omidpy.codec:json")}}, "is no omidpy.codec.Codec"),
        ({"columns": {"row": ("cf:x", "int")}}, "two columns of the frame are named 'row'"),
        ({"columns": {"_op": ("cf:x", "int")}}, "can be named '_op'"),
        ({"columns": {"_commit_ts": ("cf:x", "int")}}, "can be named '_commit_ts'"),
        ({"columns": {"x": ("cf:x", "int"), "y": ("cf:x", "int")}}, "are the column b'cf:x'"),
        ({"key": {}}, "the row key has no column"),
        ({"key": {"a": "binary", "b": "int"}}, "whose end nobody would find"),
    ],
)
def test_a_shape_that_is_none_is_refused(
    tm: TransactionManager, arguments: dict[str, Any], said: str
) -> None:
    """Before anything is read."""
    with pytest.raises(UsageError, match=said):
        tm.scan_arrow("t", **arguments)


@pytest.mark.parametrize(
    "arguments",
    [{"columns": {"x": "cf:x"}}, {"columns": ["cf:x"]}, {"key": 7}, {"key": {1: "int"}}],
)
def test_arguments_of_another_form_are_refused(
    tm: TransactionManager, arguments: dict[str, Any]
) -> None:
    """As Python has it."""
    with pytest.raises(TypeError):
        tm.scan_arrow("t", **arguments)


def test_a_table_that_is_not_there_is_named(tm: TransactionManager) -> None:
    """At once."""
    with pytest.raises(NoSuchTable, match="other"):
        tm.scan_arrow("other")
    with pytest.raises(NoSuchTable, match="other"):
        tm.write_arrow("other", pa.table({"row": [b"a"]}))


def test_a_shape_travels_as_text() -> None:
    """Codecs by name, those of others by where they are."""
    here = f"{__name__}:MINE"
    shape = Shape.of(
        {"a": (b"cf:\xff", "json"), "b": ("cf:b", "counter"), "c": ("cf:c", here)},
        key={"k": "string", "n": "smallint"},
        rest="more",
        commit_ts=True,
    )
    assert Shape.from_text(shape.text()) == shape
    assert shape.fields[2].codec is MINE
    made = Shape.of({"a": ("cf:a", Codec("LOST", MINE.encode, MINE.decode, "string"))})
    with pytest.raises(UsageError, match="tasks elsewhere would not find the codec LOST"):
        made.text()


def test_a_codec_of_others_is_used() -> None:
    """And its type is held to."""
    shape = Shape.of({"x": ("cf:x", MINE)})
    (batch,) = record_batches(shape, [(b"a", {b"cf:x": b"\x01"})])
    assert batch.schema.equals(schema_of(pa, shape))
    assert batch.to_pylist() == [{"row": b"a", "x": "01"}]
    wrong = Shape.of({"x": ("cf:x", Codec("WRONG", MINE.encode, MINE.decode, "int64"))})
    with pytest.raises(UsageError, match="is not of its Arrow type 'int64'"):
        list(record_batches(wrong, [(b"a", {b"cf:x": b"\x01"})]))


# -- writing ---------------------------------------------------------------------------------------


def test_whatever_gives_arrow_data_is_written(tm: TransactionManager) -> None:
    """A reader, a table, a batch, batches, and a frame of others."""
    table = pa.table({"row": [b"a", b"b"], "name": ["x", None]})
    columns: Any = {"name": ("cf:name", "string")}

    class Frame:
        """Of a library that nobody here knows."""

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return table.__arrow_c_stream__(requested_schema)

    for data in (
        table,
        table.to_batches()[0],
        table.to_reader(),
        table.to_batches(),
        iter(table.to_batches()),
        Frame(),
    ):
        assert tm.write_arrow("t", data, columns=columns) == 2
    assert list(tm.begin().table("t").scan()) == [(b"a", {b"cf:name": b"x"})]
    for wrong in ("cf:x", 7, {"row": [b"a"]}, [7]):
        with pytest.raises(TypeError):
            tm.write_arrow("t", wrong, columns=columns)


def test_every_batch_is_held_to_the_shape(tm: TransactionManager) -> None:
    """Not the first alone; nothing of the others is written either."""
    columns: Any = {"n": ("cf:n", "bigint")}
    first = pa.record_batch({"row": [b"a"], "n": [1]})
    for second, said in (
        (pa.record_batch({"row": [b"b"], "n": ["x"]}), "the column 'n' is of type string"),
        (pa.record_batch({"row": [b"b"]}), "lacks the columns n"),
        (pa.record_batch({"row": [b"b"], "n": [1], "m": [2]}), "nobody knows which columns"),
        (pa.record_batch({"row": [b"a"], "n": [2]}), "has the row b'a' twice"),
        (pa.record_batch({"row": [b"b", b"b"], "n": [2, 2]}), "has the row b'b' twice"),
        (
            pa.record_batch({"row": [b"b", None], "n": [2, 2]}),
            "is part of the row key, and is null",
        ),
    ):
        with pytest.raises(UsageError, match=said):
            tm.write_arrow("t", [first, second], columns=columns)
    assert list(tm.begin().table("t").scan()) == []


def test_half_a_frame_is_not_committed(
    tm: TransactionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever catches the error; a savepoint around the frame undoes it alone."""
    monkeypatch.setattr("omidpy.tx.frames.table.BATCH_WRITES", 1)
    columns: Any = {"n": ("cf:n", "bigint")}
    batches = [pa.record_batch({"row": [b"a"], "n": [1]}), pa.record_batch({"row": [b"b"]})]
    tx = tm.begin()
    with pytest.raises(UsageError):
        tx.table("t").write_arrow(batches, columns=columns)
    with pytest.raises(TransactionAborted, match="a batch of table 't' was left"):
        tx.commit()
    with tm.begin() as tx:
        tx.table("t").put(b"c", {b"cf:n": b"1"})
        with pytest.raises(UsageError), tx.savepoint():
            tx.table("t").write_arrow(batches, columns=columns)
    assert set(dict(tm.begin().table("t").scan())) == {b"c"}


def test_a_null_keeps_or_deletes(tm: TransactionManager) -> None:
    """As it is said."""
    columns: Any = {"x": ("cf:x", "string"), "y": ("cf:y", "string")}
    put(tm, b"a", {b"cf:x": b"1", b"cf:y": b"1"})
    data = pa.table({"row": [b"a"], "x": ["2"], "y": pa.array([None], pa.string())})
    tm.write_arrow("t", data, columns=columns)
    assert tm.begin().table("t").row(b"a") == {b"cf:x": b"2", b"cf:y": b"1"}
    tm.write_arrow("t", data, columns=columns, nulls="delete")
    assert tm.begin().table("t").row(b"a") == {b"cf:x": b"2"}
    with pytest.raises(UsageError, match="nulls='drop' is none of keep, delete"):
        tm.write_arrow("t", data, columns=columns, nulls="drop")


def test_rows_are_deleted_by_a_column(tm: TransactionManager) -> None:
    """Beside others that are put."""
    for row in (b"a", b"b", b"c"):
        put(tm, row, {b"cf:x": b"1", b"cf:z": b"1"})
    data = pa.table(
        {"row": [b"a", b"b", b"d"], "x": ["2", "2", "2"], "_op": ["delete", "put", None]}
    )
    tm.write_arrow("t", data, columns={"x": ("cf:x", "string")})
    found = dict(tm.begin().table("t").scan(columns=[b"cf:x"]))
    assert {row: cells[b"cf:x"] for row, cells in found.items()} == {
        b"b": b"2",
        b"c": b"1",
        b"d": b"2",
    }
    assert tm.begin().table("t").row(b"a") == {}
    with pytest.raises(UsageError, match="_op='drop' is none of put and delete"):
        tm.write_arrow(
            "t",
            pa.table({"row": [b"a"], "x": ["2"], "_op": ["drop"]}),
            columns={"x": ("cf:x", "string")},
        )


def test_counters_are_added_to(tm: TransactionManager) -> None:
    """From nothing, and from what is there; a null adds nothing."""
    columns: Any = {"n": ("cf:n", "counter")}
    data = pa.table({"row": [b"a", b"b"], "n": [5, None]})
    for _ in range(2):
        tm.write_arrow("t", data, columns=columns)
    table = tm.begin().table("t")
    assert (table.counter_get(b"a", b"cf:n"), table.row(b"b")) == (10, {})
    with tm.begin() as tx, pytest.raises(UsageError, match="two transactions would count once"):
        tx.table("t", conflict_free=True).write_arrow(data, columns=columns)


def test_a_map_says_nothing_of_a_counter(tm: TransactionManager) -> None:
    """Where nothing was added, its bytes took the place of the number."""
    columns: Any = {"n": ("cf:n", "counter")}
    kind = pa.map_(pa.string(), pa.binary())
    for amount in (5, None):
        maps = pa.array([[("cf:n", b"bytes"), ("cf:x", b"1")]], kind)
        data = {"row": [b"a"], "n": pa.array([amount], pa.int64()), "rest": maps}
        tm.write_arrow("t", pa.table(data), columns=columns, rest="rest")
        with tm.begin() as tx:
            table = tx.table("t")
            assert table.counter_get(b"a", b"cf:n") == 5
            assert table.row(b"a", [b"cf:x"]) == {b"cf:x": b"1"}


def test_documents_are_written_in_their_one_form(tm: TransactionManager) -> None:
    """They are text in Arrow, in any form."""
    data = pa.table({"row": [b"a"], "x": ['{"b": 1, "a": 2}']})
    tm.write_arrow("t", data, columns={"x": ("cf:x", "json")})
    assert tm.begin().table("t").row(b"a") == {b"cf:x": JSON.encode({"a": 2, "b": 1})}


ODD_COLUMNS = (
    b"cf:\xff",
    b"cf:\\xff",
    b"cf:\\xFF",
    b"cf:\\\\xff",
    b"cf:\\\xff",
    b"cf:\\x5cxff",
    b"cf:\\x\xf1",
    b"cf:\xc3\xa4",
    b"cf:\xc3",
    b"cf:\\",
    b"cf:",
    b"cf:\x00\xc2\x80a",
)


def test_columns_that_are_no_text_come_back_as_they_were(tm: TransactionManager) -> None:
    """A copy of a table has its columns, and no two of them have one name in the map."""
    tm.create_table("copy", ["cf"])
    there = {column: b"%d" % at for at, column in enumerate(ODD_COLUMNS)}
    put(tm, b"a", there)
    tm.write_arrow("copy", tm.scan_arrow("t"))
    with tm.begin() as tx:
        assert tx.table("copy").row(b"a") == tx.table("t").row(b"a") == there


@given(st.binary())
def test_a_name_leads_back_to_its_column(column: bytes) -> None:
    """Whatever bytes it has; and what is text without backslashes is that text."""
    assert column_of(text_of(column)) == column
    if b"\\" not in column and column.decode(errors="ignore").encode() == column:
        assert text_of(column) == column.decode()


@given(st.lists(st.sampled_from([b"\\", b"x", b"f", b"5c", b"\xff", b"F", b"0"])).map(b"".join))
def test_a_name_that_looks_like_bytes_leads_back_too(column: bytes) -> None:
    """Backslashes are where two columns could come to have one name."""
    assert column_of(text_of(column)) == column


def test_a_map_that_names_a_column_twice_is_refused(tm: TransactionManager) -> None:
    """One of the values would be lost."""
    kind = pa.map_(pa.string(), pa.binary())
    cells = pa.array([[("cf:a", b"1"), ("cf:a", b"2")]], kind)
    with pytest.raises(UsageError, match="twice"):
        tm.write_arrow("t", pa.table({"row": pa.array([b"a"]), "cells": cells}))


def test_a_map_is_written(tm: TransactionManager) -> None:
    """What `scan_arrow` gives without columns, `write_arrow` takes."""
    put(tm, b"a", {b"cf:x": b"1", b"cf:y": BOOL.encode(True)})
    before = tm.scan_arrow("t").read_all()
    tm.create_table("u", ["cf"])
    tm.write_arrow("u", before)
    assert tm.scan_arrow("u").read_all().equals(before)


def test_a_moment_without_a_time_zone_is_refused(tm: TransactionManager) -> None:
    """As every snapshot does."""
    with pytest.raises(UsageError, match="has no time zone"):
        tm.scan_arrow("t", at=datetime(2026, 1, 1))  # noqa: DTZ001 - what is refused


@given(
    pages=st.lists(
        st.lists(
            st.dictionaries(
                st.sampled_from([b"cf:balance", b"cf:name", b"cf:x"]),
                st.sampled_from([INT64.encode(5), b"a", b"\xff"]),
                min_size=1,
            ),
            max_size=4,
        ),
        max_size=4,
    ),
    batch_rows=st.integers(1, 5),
    rest=st.sampled_from([None, "rest"]),
)
def test_pages_of_rows_are_batches_as_single_rows_are(
    pages: list[list[dict[bytes, bytes]]], batch_rows: int, rest: str | None
) -> None:
    """Whatever the pages are, and where a value is none of its type."""
    shape = Shape.of({name: TYPED[name] for name in ("balance", "name")}, rest=rest)
    rows = [[(b"%d-%d" % (at, to), row) for to, row in enumerate(p)] for at, p in enumerate(pages)]

    def told(batches: Any) -> object:
        try:
            return [one.to_pylist() for one in batches]
        except CorruptCell as error:
            return str(error)

    singly = record_batches(shape, (row for page in rows for row in page), batch_rows=batch_rows)
    assert told(page_batches(shape, rows, batch_rows=batch_rows)) == told(singly)
