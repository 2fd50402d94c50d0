"""Values as bytes: what other programs read, and what is refused."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omidpy.codec import BOOL, BYTES, FLOAT32, FLOAT64, INT16, INT32, INT64, JSON, TEXT, Codec
from omidpy.errors import CorruptCell, UsageError

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("codec", "value", "data"),
    [
        (INT64, 100, b"\x00\x00\x00\x00\x00\x00\x00\x64"),
        (INT64, -1, b"\xff" * 8),
        (INT64, -(2**63), b"\x80" + b"\x00" * 7),
        (INT32, 100, b"\x00\x00\x00\x64"),
        (INT32, -1, b"\xff" * 4),
        (INT16, -(2**15), b"\x80\x00"),
        (FLOAT32, 1.5, b"\x3f\xc0\x00\x00"),
        (BOOL, True, b"\xff"),
        (BOOL, False, b"\x00"),
        (FLOAT64, 1.5, b"\x3f\xf8\x00\x00\x00\x00\x00\x00"),
        (FLOAT64, 2, b"\x40\x00\x00\x00\x00\x00\x00\x00"),
        (TEXT, "ä", b"\xc3\xa4"),
        (JSON, {"b": [1, None], "a": "ä"}, b'{"a":"\xc3\xa4","b":[1,null]}'),
        (JSON, "", b'""'),
        (BYTES, b"\x00", b"\x00"),
    ],
)
def test_values_have_the_bytes_that_other_programs_expect(
    codec: Codec[Any], value: Any, data: bytes
) -> None:
    """The numbers are HBase's Bytes.toBytes; JSON has one form for equal documents."""
    assert codec.encode(value) == data
    assert codec.decode(data) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_64_bit_number_comes_back(value: int) -> None:
    """Both ends included."""
    assert INT64.decode(INT64.encode(value)) == value


@given(st.floats())
def test_every_double_comes_back(value: float) -> None:
    """NaN is unequal to itself, and comes back as NaN."""
    back = FLOAT64.decode(FLOAT64.encode(value))
    assert back == value or (math.isnan(back) and math.isnan(value))


@given(st.text(min_size=1).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text)))
def test_every_text_comes_back(value: str) -> None:
    """And is never empty bytes."""
    assert TEXT.decode(TEXT.encode(value)) == value != ""


@given(json_values)
def test_every_document_comes_back_and_is_never_empty(value: Any) -> None:
    """An empty value would be a delete."""
    data = JSON.encode(value)
    assert data
    assert JSON.decode(data) == value


@pytest.mark.parametrize(
    ("codec", "value", "error", "message"),
    [
        (INT64, 2**63, UsageError, "64 bits"),
        (INT64, -(2**63) - 1, UsageError, "64 bits"),
        (INT64, 1.0, TypeError, "INT64 encodes int, not float"),
        (INT64, True, TypeError, "not bool"),
        (INT64, "1", TypeError, "not str"),
        (FLOAT64, True, TypeError, "not bool"),
        (FLOAT64, "1", TypeError, "not str"),
        (TEXT, "", UsageError, "reads as a delete"),
        (TEXT, b"x", TypeError, "not bytes"),
        (TEXT, "\ud800", UsageError, "UTF-8"),
        (JSON, math.nan, UsageError, "JSON"),
        (JSON, "\ud800", UsageError, "JSON"),
        (JSON, {1: object()}, TypeError, "JSON serializable"),
        (BYTES, b"", UsageError, "reads as a delete"),
        (BYTES, "x", TypeError, "not str"),
    ],
)
def test_what_cannot_be_stored_is_refused(
    codec: Codec[Any], value: Any, error: type[Exception], message: str
) -> None:
    """Before it reaches a store; the message names the value and a way out."""
    with pytest.raises(error, match=message):
        codec.encode(value)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (INT64, b"100"),
        (INT64, b"\x00" * 9),
        (FLOAT64, b""),
        (TEXT, b"\xff"),
        (JSON, b"{"),
        (JSON, b"\xff\xfe1\x00"),
    ],
)
def test_bytes_of_another_codec_are_told_apart(codec: Codec[Any], data: bytes) -> None:
    """A number written as text is not a number of some other value."""
    with pytest.raises(CorruptCell, match=f"no {codec.name} value"):
        codec.decode(data)


@pytest.mark.parametrize("codec", [INT64, INT32, INT16, FLOAT64, FLOAT32, BOOL, TEXT, JSON, BYTES])
def test_a_codec_travels_by_name(codec: Codec[Any]) -> None:
    """Whoever asks whether it is JSON asks for the one there is, in a task of Spark, too."""
    assert pickle.loads(pickle.dumps(codec)) is codec


def test_a_codec_of_others_travels_by_its_functions() -> None:
    """It need only be made of what can travel."""
    made = Codec("MINE", bytes.fromhex, bytes.hex, "string")
    back = pickle.loads(pickle.dumps(made))
    assert (back.name, back.arrow_type, back.decode(b"a")) == ("MINE", "string", "61")


@pytest.mark.parametrize(
    ("codec", "value"), [(INT32, 2**31), (INT16, -(2**15) - 1), (FLOAT32, 1e39)]
)
def test_what_is_too_wide_is_refused(codec: Codec[Any], value: Any) -> None:
    """A number that lost its upper bits would be read as another one."""
    with pytest.raises(UsageError, match="does not fit in"):
        codec.encode(value)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\xff\xff"])
def test_bytes_that_are_no_truth_value_are_refused(data: bytes) -> None:
    """HBase takes every byte but zero for true; what writes those is no writer of this codec."""
    with pytest.raises(CorruptCell):
        BOOL.decode(data)


@pytest.mark.parametrize("codec", [INT64, INT32, INT16, FLOAT64, FLOAT32, BOOL, TEXT, JSON, BYTES])
def test_what_is_no_bytes_is_named(codec: Codec[Any]) -> None:
    """`row.get(column)` gives None where the row lacks the column, and BYTES gave it on."""
    with pytest.raises(TypeError, match=f"{codec.name} decodes bytes, not NoneType: the row lacks"):
        codec.decode(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"{codec.name} decodes bytes, not str"):
        codec.decode("12345678")  # type: ignore[arg-type]


def test_bytes_of_spark_are_bytes() -> None:
    """Which gives rows with a `bytearray`."""
    decoded = BYTES.decode(bytearray(b"a"))  # type: ignore[arg-type]  # it says bytes
    assert decoded == b"a"
    assert type(decoded) is bytes
