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


def checked_cast(arrow: Any, column: Any, wanted: Any, *, may_round: bool) -> Any:
    """Return a column of another type, if no value becomes another one by that.

    Arrow's own safe cast makes every number but 0 true, and infinity of what is too large.

    Args:
        arrow: The module.
        column: An array, or chunks of one.
        wanted: The type.
        may_round: Whether digits may go that a fraction has too many for its type.

    Raises:
        ArrowInvalid: a value does not fit.
        ArrowNotImplementedError: no value of the one type is one of the other.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - few columns are cast

    types, given = arrow.types, column.type
    if not may_round and _is_made_up(types, given, wanted):
        raise arrow.ArrowInvalid(f"{given} says of no value which one of {wanted} it is")
    cast = column.cast(wanted)
    if types.is_boolean(wanted) and (types.is_integer(given) or types.is_floating(given)):
        changed = pc.not_equal(cast.cast(given), column)
    elif types.is_floating(wanted) and types.is_decimal(given):
        changed = pc.is_inf(cast)
        if not may_round and not pc.any(changed).as_py():
            changed = pc.not_equal(cast.cast(given, safe=False), column)
    elif types.is_decimal(wanted) and types.is_floating(given):
        changed = pc.not_equal(cast.cast(given), column)
    elif types.is_floating(wanted) and types.is_float64(given) and wanted != given:
        back = cast.cast(given)
        is_other = pc.is_inf(cast) if may_round else pc.is_finite(column)
        changed = pc.and_(is_other, pc.not_equal(back, column))
    else:
        return cast
    if pc.any(changed).as_py():
        value = column.filter(changed)[0].as_py()
        raise arrow.ArrowInvalid(f"Value {value!r} is none of {wanted}, and would become another")
    return cast


def _is_made_up(types: Any, given: Any, wanted: Any) -> bool:
    """Say whether a cast goes by what no value says: a time zone, a unit, or a time of day."""
    if types.is_temporal(given) and types.is_temporal(wanted):
        is_day = types.is_date(given) and types.is_timestamp(wanted)
        kinds = (types.is_timestamp, types.is_date, types.is_time, types.is_duration)
        is_alike = is_day or any(one(given) and one(wanted) for one in kinds)
        zones = [getattr(one, "tz", None) is not None for one in (given, wanted)]
        return not is_alike or zones[0] != zones[1]
    one, other = (given, wanted) if types.is_temporal(given) else (wanted, given)
    return bool(types.is_temporal(one) and (types.is_integer(other) or types.is_floating(other)))
