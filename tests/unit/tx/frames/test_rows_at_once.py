"""Rows that are written at once are what they are one by one, refusals and all."""

from __future__ import annotations

import struct
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omidpy.codec import BYTES, FLOAT32, FLOAT64, INT16, INT32, INT64, TEXT
from omidpy.tx.frames.encoding import encoded
from omidpy.tx.frames.reading import type_of
from omidpy.tx.frames.shape import Shape
from omidpy.tx.frames.writing import FrameWriter
from omidpy.tx.parts.tokens import decode_part
from omidpy.tx.parts.worker import Worker
from tests.machines.clients import TABLE, Client

SHAPES: Final = (
    Shape.of({"n": ("cf:n", "bigint"), "t": ("cf:t", "string")}, key={"id": "string"}),
    Shape.of({"n": ("cf:n", "bigint"), "t": ("other:t", "bytes")}, key={"id": "binary"}),
    Shape.of(
        {"n": ("cf:n\xc2\x80".encode("latin-1"), "bigint"), "t": ("cf:t", "string")}, key="id"
    ),
    Shape.of({"n": ("cf:n", "bigint"), "t": ("none:t", "string")}, key={"id": "string"}),
    Shape.of({"n": ("cf:n", "counter"), "t": ("cf:t", "string")}, key={"id": "string"}),
    Shape.of({"n": ("cf:n", "bigint"), "t": ("cf:t", "json")}, key={"id": "string"}),
    Shape.of({"t": ("cf:t", "string")}, key={"id": "string", "n": "bigint"}),
)
texts = st.one_of(
    st.none(),
    st.sampled_from(("a", "b", "c", "ä", "")),
    st.just("__OMID_TOMBSTONE__"),
    st.just("[1]"),
)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.one_of(st.sampled_from(("a", "b", "c", "d", "e", "f")), texts),
            "n": st.one_of(st.integers(-(2**63), 2**63 - 1), st.none(), st.just(7)),
            "t": texts,
        }
    ),
    max_size=4,
)
ops = st.lists(st.sampled_from((None, "put", "delete")), min_size=4, max_size=4)


def worker(client: Client) -> tuple[Worker, Any]:
    """Return a worker of a transaction of its own."""
    tx = client.tm.begin()
    return client.tm.resume(tx.token(), task="t"), tx


def batch(found: list[dict[str, Any]], shape: Shape, said: list[str | None] | None) -> Any:
    """Return rows as the frame of a shape has them."""
    binary = {one.name for one in shape.key.parts if one.codec is BYTES}
    binary |= {one.name for one in shape.fields if one.codec is BYTES}
    columns = {
        name: pa.array(
            [
                one[name].encode() if name in binary and one[name] is not None else one[name]
                for one in found
            ],
            pa.int64() if name == "n" else pa.binary() if name in binary else pa.string(),
        )
        for name in shape.names
    }
    if said is not None:
        columns["_op"] = pa.array(said[: len(found)], pa.string())
    return pa.record_batch(columns)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("conflict_free", [False, True])
@given(
    batches=st.lists(st.tuples(rows, st.none() | ops), max_size=3),
    nulls=st.sampled_from(("keep", "delete")),
)
def test_rows_at_once_are_what_they_are_one_by_one(
    shape: Shape,
    conflict_free: bool,  # noqa: FBT001 - a parameter
    batches: list[tuple[list[dict[str, Any]], list[str | None] | None]],
    nulls: str,
) -> None:
    """The same cells in the same part, or the same refusal behind the same writes."""
    client = Client()
    outcomes = []
    for is_at_once in (False, True):
        one, tx = worker(client)
        told: object = None
        try:
            table = one.table(TABLE, conflict_free=conflict_free)
            bulk = table.writes if is_at_once else None
            writer = FrameWriter(table, shape, nulls=nulls, bulk=bulk)
            for found, said in batches:
                writer.write(batch(found, shape, said).slice(0))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the same
            told = type(error), str(error)
        buffer = one._buffer
        state = (
            told,
            sorted(buffer.newest()),
            buffer.size_bytes,
            buffer.put_count(with_savepoints=True),
            buffer.flaw,
        )
        part = decode_part(one.finish(), store_id=client.store.store_id, start_ts=tx.start_ts)
        outcomes.append((state, sorted(part.cells), sorted(part.conflict_free), part.digest))
        tx.rollback()
    assert outcomes[0] == outcomes[1]


def test_plain_rows_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be right, and of no use."""
    client = Client()
    one, _ = worker(client)
    table = one.table(TABLE)
    monkeypatch.setattr(type(table), "put", None)
    writer = FrameWriter(table, SHAPES[0], bulk=table.writes)
    for at in range(3):
        found = [{"id": f"{at}-{row}", "n": row or None, "t": "x"} for row in range(5000)]
        writer.write(batch(found, SHAPES[0], None))
    assert writer.row_count == 15_000
    assert len(list(one._buffer.newest())) == 15_000 * 2 - 3


floats = st.one_of(
    st.floats(),
    st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]),
)


@pytest.mark.parametrize(
    ("codec", "values"),
    [
        (INT64, st.integers(-(2**63), 2**63 - 1)),
        (INT32, st.integers(-(2**31), 2**31 - 1)),
        (INT16, st.integers(-(2**15), 2**15 - 1)),
        (FLOAT64, floats),
        (TEXT, st.text(min_size=1, max_size=5)),
        (BYTES, st.binary(min_size=1, max_size=5)),
    ],
)
@given(data=st.data())
def test_columns_are_encoded_as_their_codec_encodes(codec: Any, values: Any, data: Any) -> None:
    """Value by value, of a part of an array, too."""
    found = data.draw(st.lists(st.none() | values, max_size=6))
    start = data.draw(st.integers(0, len(found)))
    column = pa.array(found, type_of(pa, codec)).slice(start)
    expected = [None if one is None else codec.encode(one) for one in column.to_pylist()]
    made = encoded(pa, codec, column)
    assert made is not None
    assert list(made) == expected


@pytest.mark.parametrize(
    ("codec", "column"),
    [
        (FLOAT32, pa.array([1.5], pa.float32())),
        (TEXT, pa.array(["a", ""])),
        (BYTES, pa.array([b""])),
        (
            TEXT,
            pa.StringArray.from_buffers(
                1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")
            ),
        ),
    ],
)
def test_what_only_the_codec_can_say_is_left_to_it(codec: Any, column: Any) -> None:
    """It refuses what cannot be stored."""
    assert encoded(pa, codec, column) is None
