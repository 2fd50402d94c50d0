"""Which rows can satisfy a filter?  Filters of Spark in, key ranges and values of columns out.

Spark judges every filter again, so that what is found here may be too much, and never too little:
a filter that is not understood narrows nothing.

    I   every row that satisfies all filters is in the ranges, and its cells have the values

Numbers order by their bytes as numbers do from zero up, and negative ones behind them: a range of
numbers is at most two of keys.  Nothing is said of floating numbers, of which zero has two forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from omidpy.codec import BOOL, BYTES, INT16, INT32, INT64, TEXT, Codec
from omidpy.errors import UsageError
from omidpy.model import KeyRange
from omidpy.spark.frames.partitions import intersection
from omidpy.tx.frames.keys import WIDTHS, Key
from omidpy.tx.frames.shape import Shape

_NUMBERS: Final = (INT64, INT32, INT16)
_EXACT: Final = (*_NUMBERS, TEXT, BYTES, BOOL)
"""Codecs that have one form for each value that Spark takes for equal."""
_BOUNDS: Final = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What is left to read."""

    ranges: tuple[KeyRange, ...] = (KeyRange(),)
    rows: tuple[bytes, ...] | None = None
    """The only rows, if not None."""
    equal: Mapping[bytes, bytes] = field(default_factory=dict)
    """Column -> the value that it must have."""


def narrowed(shape: Shape, filters: Sequence[Filter]) -> Narrowed:
    """Return what must be read to find every row that satisfies all filters."""
    by_column: dict[str, list[Filter]] = {}
    for one in filters:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) == 1:
            by_column.setdefault(path[0], []).append(one)
    equal: dict[bytes, bytes] = {}
    for column in shape.fields:
        value = _only(column.codec, by_column.get(column.name, ()))
        if value is not None:
            equal[column.column] = column.codec.encode(value)
    ranges, rows = _keys(shape.key, by_column)
    return Narrowed(ranges, rows, equal)


def _keys(
    key: Key, filters: Mapping[str, Sequence[Filter]]
) -> tuple[tuple[KeyRange, ...], tuple[bytes, ...] | None]:
    """Return the ranges of keys, or the keys, by first parts that are known and what follows."""
    values: list[Any] = []
    try:
        for at, part in enumerate(key.parts):
            own = filters.get(part.name, ())
            value = _only(part.codec, own)
            if value is not None:
                values.append(value)
                continue
            is_last = at == len(key.parts) - 1
            listed = _listed(part.codec, own)
            if listed is not None:
                found = [key.encode((*values, one)) for one in listed]
                if is_last:
                    return (KeyRange(),), tuple(found)
                return tuple(KeyRange.starting_with(one) for one in sorted(set(found))), None
            return _bounded(key, values, own), None
        return (KeyRange(),), (key.encode(values),)
    except (UsageError, TypeError):
        return (KeyRange(),), None  # a value that no key has: Spark finds out


def _bounded(key: Key, values: Sequence[Any], filters: Sequence[Filter]) -> tuple[KeyRange, ...]:
    """Return the ranges of keys that begin with some values, by the bounds of the next part."""
    prefix = key.encode(values)
    whole = KeyRange.starting_with(prefix) if prefix else KeyRange()
    codec = key.parts[len(values)].codec
    if codec in _NUMBERS:
        return _of_numbers(key, values, whole, filters)
    found: KeyRange | None = whole
    for one in filters:
        bound = _bound(key, values, codec, one)
        if bound is not None:
            found = None if found is None else intersection(found, bound)
    return () if found is None else (found,)


def _bound(key: Key, values: Sequence[Any], codec: Codec[Any], one: Filter) -> KeyRange | None:
    """Return the range of one filter on a text or bytes; None if nothing is known."""
    if isinstance(one, StringStartsWith) and codec is TEXT and one.value:
        return KeyRange.starting_with(key.encode(values) + one.value.encode())
    if codec not in (TEXT, BYTES) or not isinstance(one, _BOUNDS):
        return None
    value = _value(codec, one.value)
    if value is None:
        return None
    exact = key.encode((*values, value))
    is_last = len(values) == len(key.parts) - 1
    # Behind all keys that begin with it, or behind this very key.
    behind = exact + b"\x00" if is_last else KeyRange.starting_with(exact).end
    match one:
        case GreaterThanOrEqual():
            return KeyRange(exact, b"")
        case GreaterThan():
            return KeyRange(behind, b"")
        case LessThan():
            return KeyRange(b"", exact)
        case _:
            return KeyRange(b"", behind)


def _of_numbers(
    key: Key, values: Sequence[Any], whole: KeyRange, filters: Sequence[Filter]
) -> tuple[KeyRange, ...]:
    codec = key.parts[len(values)].codec
    most = 2 ** (8 * WIDTHS[codec] - 1) - 1
    low, high = -most - 1, most
    for one in filters:
        if not isinstance(one, _BOUNDS) or (value := _value(codec, one.value)) is None:
            continue
        match one:
            case GreaterThanOrEqual():
                low = max(low, value)
            case GreaterThan():
                low = max(low, value + 1)
            case LessThan():
                high = min(high, value - 1)
            case _:
                high = min(high, value)
    if (low, high) == (-most - 1, most):
        return (whole,)
    found = []
    for first, last in ((max(low, 0), high), (low, min(high, -1))):
        if first <= last:
            start = key.encode((*values, first))
            end = KeyRange.starting_with(key.encode((*values, last))).end
            found.append(KeyRange(start, end))
    return tuple(found)


def _only(codec: Codec[Any], filters: Iterable[Filter]) -> Any | None:
    """Return the only value that a column can have; None if that is not known."""
    for one in filters:
        if isinstance(one, EqualTo | EqualNullSafe):
            value = _value(codec, one.value)
            if value is not None:
                return value
    return None


def _listed(codec: Codec[Any], filters: Iterable[Filter]) -> list[Any] | None:
    for one in filters:
        if isinstance(one, In):
            values = [_value(codec, value) for value in one.value if value is not None]
            if all(value is not None for value in values):
                return values
    return None


def _value(codec: Codec[Any], value: Any) -> Any | None:
    """Return a value of a filter as its codec takes it; None if it is not exact, or no such."""
    if codec not in _EXACT:
        return None
    found = bytes(value) if isinstance(value, bytearray) else value
    kind = bool if codec is BOOL else int if codec in _NUMBERS else str if codec is TEXT else bytes
    if type(found) is not kind:
        return None
    if codec in _NUMBERS:
        return found
    try:
        codec.encode(found)
    except UsageError:
        return None  # the empty text, which no cell has
    return found
