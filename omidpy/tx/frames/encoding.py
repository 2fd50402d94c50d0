"""Columns of Arrow as the bytes of cells, without a Python call for each value.

It says of a column what its codec says value by value, or nothing at all: where there is something
to refuse, or where only the codec knows, it is the codec's to say.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from typing import Any, Final

from omidpy.codec import BYTES, FLOAT64, INT16, INT32, INT64, TEXT, Codec
from omidpy.tx.frames.keys import WIDTHS

_ARRAYS: Final = {INT64: "q", INT32: "i", INT16: "h", FLOAT64: "d"}
"""How Python's arrays call numbers that are a codec's bytes, the other way round.

Those of 4 bytes with a fraction are not among them: on their way through Python's own, one that is
no number becomes another one that is none.
"""


def encoded(arrow: Any, codec: Codec[Any], column: Any) -> Sequence[bytes | None] | None:
    """Return the bytes of each value, None for a null; or None: ask the codec.

    Args:
        arrow: The module.
        codec: It encodes the values.
        column: An array of its type.
    """
    form = _ARRAYS.get(codec)
    if form is not None and sys.byteorder == "little":
        return _numbers(form, WIDTHS[codec], column)
    if codec is TEXT:
        try:
            column.validate(full=True)
        except arrow.ArrowInvalid:
            return None
        column = column.cast(arrow.binary())
    elif codec is not BYTES:
        return None
    values: list[bytes | None] = column.to_pylist()
    return None if b"" in values else values


def _numbers(form: str, width: int, column: Any) -> Sequence[bytes | None]:
    if not len(column):
        return []
    data = column.buffers()[1]
    first = column.offset * width
    numbers = array(form, data[first : first + len(column) * width].to_pybytes())
    numbers.byteswap()
    values: list[bytes | None] = [one for (one,) in struct.iter_unpack(f"{width}s", numbers)]
    if column.null_count:
        is_null = column.is_null().to_pylist()
        return [None if absent else one for one, absent in zip(values, is_null, strict=True)]
    return values
