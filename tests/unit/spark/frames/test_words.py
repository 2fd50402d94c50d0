"""What options say is read, and what is wrong with them is said before anything is planned."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omidpy import phoenix
from omidpy.codec import INT64, JSON, TEXT
from omidpy.errors import ConfigError, UsageError
from omidpy.model import KeyRange
from omidpy.spark.frames.options import (
    key_bytes,
    key_pairs,
    key_text,
    pairs,
    read_words,
    words,
    write_words,
)
from omidpy.spark.frames.places import Place, check_reach, place_of
from omidpy.spark.frames.reading import check_columns
from omidpy.spark.frames.types import fitted, own_schema, shape_of
from omidpy.spark.frames.writes.teaching import check_mode
from omidpy.tx.frames.shape import COMMIT_TS, Shape
from tests.machines.frame_jobs import JobWorld

PLACE = {"store": "sqlite:///x.db", "tso": "here:1", "table": "t"}


def said(**more: str) -> Any:
    """Return the words of some options."""
    return words({**PLACE, **more})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs option\\('store', ...\\)"),
        ({"store": "x"}, "needs option\\('tso', ...\\)"),
        ({"store": "x", "tso": "y"}, "needs option\\('table', ...\\)"),
        ({**PLACE, "tabel": "x"}, "has no option 'tabel'; it has app_id, at, batch_rows"),
        ({**PLACE, "pushdown": "true"}, "rows would be missing there; name the rows"),
    ],
)
def test_options_that_are_wrong_are_named(options: dict[str, str], message: str) -> None:
    """With what to write."""
    with pytest.raises(UsageError, match=message):
        words(options)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"nulls": "keep"}, "nulls: reads have no such option"),
        ({"partitions": "0"}, "must be a number, 1 or more"),
        ({"hold": "long"}, "is no time"),
        ({"versions": "3"}, "is none of newest, all"),
        ({"row_prefix": "a", "row_start": "a"}, "cannot be combined"),
    ],
)
def test_words_of_a_read_that_are_wrong_are_named(more: dict[str, str], message: str) -> None:
    """And those of a write."""
    with pytest.raises(UsageError, match=message):
        read_words(said(**more))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"at": "1h"}, "at: writes have no such option"),
        ({"nulls": "drop"}, "is none of keep, delete"),
        ({"conflict": "all"}, "is none of check, free, fence"),
        ({"conflict": "fence", "rows_per_transaction": "5"}, "is of one transaction"),
        ({"idempotency_key": "x", "rows_per_transaction": "5"}, "what one transaction does"),
        ({"idempotency_key": ""}, "a key has 1 to"),
        ({"rows_per_transaction": "many"}, "must be a number, 1 or more"),
        ({"row_prefix": ""}, "row_prefix='' names every row"),
        ({"row_start": "", "row_stop": ""}, "row_start='', row_stop='' names every row"),
        ({"row_start": "b", "row_stop": "a"}, "names no row"),
    ],
)
def test_words_of_a_write_that_are_wrong_are_named(more: dict[str, str], message: str) -> None:
    """And those of a read."""
    with pytest.raises(UsageError, match=message):
        write_words(said(**more))


def test_options_know_no_case() -> None:
    """Nor underscores, as Spark's own."""
    found = read_words(said(rowPrefix="a\\x00", BATCHROWS="7", rows="a, b\\x2c"))
    assert found.key_range == KeyRange(b"a\x00", b"a\x01")
    assert (found.batch_rows, found.rows) == (7, (b"a", b"b,"))
    assert words({"store": "s", "tso": "t", "path": "from_load"}).table == "from_load"
    assert write_words(said(rowsPerTransaction="5", conflict="free")).rows_per_transaction == 5


@given(st.binary(max_size=8))
def test_a_row_key_comes_back_from_its_text(row: bytes) -> None:
    """Commas too, which part a list."""
    assert key_bytes(key_text(row)) == row
    assert "," not in key_text(row)


@pytest.mark.parametrize("mode", ["overwrite", "error", "ignore", "errorifexists"])
def test_modes_that_no_transaction_could_honour_are_refused(mode: str) -> None:
    """With what to do instead."""
    with pytest.raises(UsageError, match=r"mode\('append'\)"):
        check_mode(mode)
    check_mode("append")
    check_mode("Overwrite", has_range=True)


@pytest.mark.parametrize("kind", ["omidpy.phoenix.types:DECIMAL(10,2)", "m:D( 10 , 2 )"])
def test_commas_between_the_sizes_of_a_type_part_nothing(kind: str) -> None:
    """Others do, also beside a bracket that is part of a name."""
    assert pairs("columns", f"a=cf:a {kind}, b=cf:f(x, c=cf:y) {kind}") == {
        "a": ("cf:a", kind),
        "b": ("cf:f(x", None),
        "c": ("cf:y)", kind),
    }
    assert key_pairs(f"a, b {kind}") == {"a": None, "b": kind}
    for text in ("a=cf:a,,b=cf:b", f"a=cf:a {kind},"):
        with pytest.raises(UsageError, match="'' is no column"):
            pairs("columns", text)


# -- types -----------------------------------------------------------------------------------------


def test_a_schema_gives_the_types() -> None:
    """Options say which column is which; one that is called as in the table need not be there."""
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("balance", pa.int64()),
            ("doc", pa.string()),
            ("cf:x", pa.binary()),
            ("more", pa.map_(pa.string(), pa.binary())),
            (COMMIT_TS, pa.int64()),
        ]
    )
    shape = shape_of(
        said(key="id", columns="balance=cf:balance, doc=cf:doc json", rest="more"), schema
    )
    assert shape.key.parts[0].codec is TEXT
    assert [(one.name, one.column, one.codec.name) for one in shape.fields] == [
        ("balance", b"cf:balance", "INT64"),
        ("doc", b"cf:doc", "JSON"),
        ("cf:x", b"cf:x", "BYTES"),
    ]
    assert (shape.rest, shape.has_commit_ts, shape.fields[1].codec) == ("more", True, JSON)


@pytest.mark.parametrize(
    ("options", "column", "message"),
    [
        ({}, ("balance", pa.int64()), "nobody knows which column of the table 'balance' is"),
        ({}, ("cf:x", pa.timestamp("us")), "no codec has the type timestamp"),
        ({}, ("cf:x", pa.decimal128(10, 2)), "no codec has the type decimal"),
        ({"columns": "x=cf:x"}, ("cf:y", pa.int64()), "has no column x"),
        ({"columns": "y=cf:x int"}, ("y", pa.int64()), "is int64 in the frame, and int32"),
        ({"columns": "y=x"}, ("y", pa.int64()), "is no column; write NAME=FAMILY:QUALIFIER"),
        ({"columns": "y=cf:x what"}, ("y", pa.int64()), "no codec has the type 'what'"),
        ({"rest": "y"}, ("y", pa.int64()), "must be map<string, binary>"),
        ({}, (COMMIT_TS, pa.string()), "is string in the frame, and int64"),
        ({"key": ","}, ("cf:x", pa.int64()), "write the names of its columns"),
    ],
)
def test_a_column_that_is_none_is_named(
    options: dict[str, str], column: tuple[str, Any], message: str
) -> None:
    """Before anything is planned."""
    with pytest.raises(UsageError, match=message):
        shape_of(said(**options), pa.schema([("row", pa.binary()), column]))


def test_versions_are_told_apart_by_their_commits() -> None:
    """A schema without that column is refused; options alone have it."""
    every = said(versions="all", columns="n=cf:n bigint")
    found = own_schema(every)
    assert [one.name for one in found] == ["row", "n", COMMIT_TS]
    check_columns(shape_of(every, found), found, has_all_versions=True)
    plain = found.remove(2)
    with pytest.raises(UsageError, match="add '_commit_ts bigint' to the schema"):
        check_columns(shape_of(every, plain), plain, has_all_versions=True)


def test_without_a_schema_options_may_say_it() -> None:
    """With the types; else the error says both ways."""
    found = own_schema(said(key="a string, b int", columns="n=cf:n bigint", rest="more"))
    assert [(one.name, str(one.type)) for one in found] == [
        ("a", "string"),
        ("b", "int32"),
        ("n", "int64"),
        ("more", "map<string, binary>"),
    ]
    assert own_schema(said(columns="n=cf:n bigint")).field("row").type == pa.binary()
    for options in ({}, {"columns": "n=cf:n"}, {"key": "a, b int", "columns": "n=cf:n int"}):
        with pytest.raises(UsageError, match=r"Say \.schema\("):
            own_schema(said(**options))


def test_every_batch_is_made_to_fit() -> None:
    """Order, types and nulls, or an error: Spark looks at none but the first."""
    batch = pa.record_batch({"a": pa.array([1, None]), "b": ["x", "y"]})
    schema = pa.schema([pa.field("b", pa.string(), nullable=False), ("a", pa.int32())])
    found = fitted(batch, schema)
    assert found.schema.equals(schema)
    assert found.to_pylist() == [{"b": "x", "a": 1}, {"b": "y", "a": None}]
    with pytest.raises(UsageError, match="declared not null"):
        fitted(batch, pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    with pytest.raises(UsageError, match="is no int8"):
        fitted(pa.record_batch({"a": [1000]}), pa.schema([("a", pa.int8())]))


# -- places ----------------------------------------------------------------------------------------


class _Session:
    """As much of a session as is asked for."""

    class sparkContext:  # noqa: N801 - Spark's name
        """Its context."""

        master = "spark://elsewhere:7077"


def test_a_file_is_on_one_machine() -> None:
    """A task elsewhere says so, and so does the driver where it knows the master."""
    place = Place("sqlite:////tmp/x.db", "here:1", host="elsewhere")
    with pytest.raises(ConfigError, match=r"one file on elsewhere, and this task runs on"):
        place.connect()
    with pytest.raises(ConfigError, match="the Spark master is spark://elsewhere:7077"):
        check_reach(place, _Session())  # type: ignore[arg-type]  # all it uses


def test_an_oracle_of_this_process_is_none_for_tasks() -> None:
    """The error says what to start."""
    with pytest.raises(ConfigError, match="start tso-server, and connect with"):
        place_of(JobWorld().tm.session)


def test_numbers_have_their_codecs() -> None:
    """That of a bigint is HBase's long."""
    shape = shape_of(said(), pa.schema([("row", pa.binary()), ("cf:n", pa.int64())]))
    assert shape.fields[0].codec is INT64


DECIMAL = "omidpy.phoenix.types:DECIMAL(10,2)"


def test_a_decimal_of_phoenixs_is_one_of_sparks() -> None:
    """By the schema or by the options, and through the text that tasks get."""
    options = said(key="id string", columns=f"sum=cf:sum {DECIMAL}")
    assert own_schema(options).field("sum").type == pa.decimal128(10, 2)
    schema = pa.schema([("id", pa.string()), ("sum", pa.decimal128(10, 2))])
    shape = shape_of(options, schema)
    assert shape.fields[0].codec is phoenix.codec("DECIMAL(10,2)")
    assert Shape.from_text(shape.text()) == shape
    with pytest.raises(UsageError, match=r"'sum' is decimal128\(12, 2\) in the frame, and decimal"):
        shape_of(options, schema.set(1, pa.field("sum", pa.decimal128(12, 2))))
