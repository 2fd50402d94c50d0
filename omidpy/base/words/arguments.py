"""Is this a row key, a column, a range, a function that runs?  Clear refusals of what is not.

They come before anything is sent.

A `str` where bytes belong is a TypeError, as Python's own bytes methods have it; a wrong value of
the right type is a `UsageError`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, Final, TypeVar, cast

from omidpy.base.tables import is_system_table, maker_of
from omidpy.errors import UsageError
from omidpy.model import ColumnSpec, KeyRange

T = TypeVar("T")

MAX_ROW_BYTES: Final = 32_767
MAX_VALUE_BYTES: Final = 10 * 1024 * 1024 - 100
"""HBase's limit for one cell, less its own framing."""

_TABLE_NAME: Final = re.compile(r"(?:[A-Za-z0-9_]+:)?[A-Za-z0-9_][A-Za-z0-9_.-]*")
_DEFAULT_NAMESPACE: Final = "default:"
_RESERVED: Final = "the table name {!r} is reserved for Omid, omidpy or HBase"
_FAMILY_NAME: Final = re.compile(rb"[!-.0-9;-~][!-.0-9;-~]*")


def check_bytes(what: str, value: object) -> bytes:
    """Return `value` if it is bytes, else raise TypeError naming `what`."""
    if type(value) is not bytes:
        hint = "; encode it first" if isinstance(value, str) else ""
        raise TypeError(f"{what} must be bytes, not {type(value).__name__}: {value!r:.80}{hint}")
    return value


def check_text(what: str, value: object) -> str:
    """Return `value` as plain text if it is text, else raise TypeError naming `what`.

    A member of an enumeration that is text calls itself otherwise wherever it is written.
    """
    if type(value) is str:
        return value
    if not isinstance(value, str):
        raise TypeError(f"{what} must be str, not {type(value).__name__}: {value!r:.80}")
    return str.__str__(value)


def check_storable(what: str, text: str) -> str:
    """Return `text` if it can be kept, else raise UsageError: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what}, {text!r:.80}, cannot be written as UTF-8: {error}") from error
    return text


def check_flag(name: str, value: object) -> bool:
    """Return `value` if it is True or False: the text "no" counts as true elsewhere."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r:.80}")
    return value


def check_number(name: str, value: object) -> float:
    """Return `value` if it is a number, else raise TypeError naming its argument."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {value!r:.80}")
    return cast("float", value)


def check_several(name: str, values: Iterable[T]) -> Iterable[T]:
    """Return `values` if one can go over them, and they are no single text or bytes."""
    if isinstance(values, (bytes, str)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list, not {values!r:.80}")
    return values


def check_row(row: object) -> bytes:
    """Return `row` if it can be a row key."""
    key = check_bytes("a row key", row)
    if not 0 < len(key) <= MAX_ROW_BYTES:
        raise UsageError(
            f"the row key {key[:40]!r} has {len(key)} bytes; a row key has 1 to {MAX_ROW_BYTES}"
        )
    return key


def check_value_size(column: bytes, value: bytes) -> None:
    """Refuse a value that HBase would not take."""
    if len(value) > MAX_VALUE_BYTES:
        raise UsageError(
            f"the value of column {column!r} has {len(value)} bytes, more than the "
            f"{MAX_VALUE_BYTES} that one cell holds; split it over several columns or rows"
        )


def parse_column(column: object) -> tuple[bytes, bytes]:
    """Split `b"family:qualifier"` at its first colon."""
    name = check_bytes("a column", column)
    family, colon, qualifier = name.partition(b":")
    if not colon or not family:
        raise UsageError(f"the column {name!r} must be written b'family:qualifier'")
    return family, qualifier


def parse_columns(columns: Iterable[bytes] | None) -> list[ColumnSpec] | None:
    """Turn a list of `b"family:qualifier"` or `b"family"` into pairs; None stays None."""
    if columns is None:
        return None
    if isinstance(columns, (bytes, str)) or not isinstance(columns, Iterable):
        raise TypeError(
            f"columns must be a list of columns, not {type(columns).__name__}: [{columns!r:.80}]"
        )
    specs: dict[ColumnSpec, None] = {}
    for column in columns:
        family, colon, qualifier = check_bytes("a column", column).partition(b":")
        if not family:
            raise UsageError(f"the column {column!r} must be b'family:qualifier' or b'family'")
        specs[family, qualifier if colon else None] = None
    if not specs:
        raise UsageError("columns is empty; pass None for every column")
    return list(specs)


def runs_later(function: Callable[..., object]) -> bool:
    """Say whether a call of a function only makes what somebody has to go on with.

    An `async def` and a generator are such: who calls one and does not know has done nothing.
    """
    return is_of(
        function,
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
    )


def is_of(function: Callable[..., object], *kinds: Callable[[object], bool]) -> bool:
    """Say whether a function, or an object that is called as one, is of one of some kinds."""
    some = (function, type(function).__call__)
    return any(is_one(one) for is_one in kinds for one in some)


def is_unrun(returned: object) -> bool:
    """Say whether a call has only made what somebody has to go on with; see `runs_later`."""
    kinds = (inspect.iscoroutine, inspect.isgenerator, inspect.isasyncgen)
    return any(is_one(returned) for is_one in kinds)


def check_whole(name: str, value: object) -> int:
    """Return `value` if it is a whole number, else raise TypeError naming its argument."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r:.80}")
    return value


def check_count(name: str, count: object, *, or_none: bool = True) -> None:
    """Refuse a limit or batch size that is not a positive whole number; None may pass."""
    if count is None and or_none:
        return
    if check_whole(name, count) < 1:
        raise UsageError(f"{name} must be at least 1, not {count}")


MOST_AT_ONCE: Final = 1000
"""Threads or processes that one program is asked to work with: each takes memory before it works,
and a slip of the hand takes all that a machine has."""


def check_at_once(name: str, count: object) -> None:
    """Refuse a number of threads or processes that makes no sense, or takes a machine's memory."""
    check_count(name, count)
    if isinstance(count, int) and count > MOST_AT_ONCE:
        raise UsageError(f"{name} must be {MOST_AT_ONCE} at most, not {count}")


def refuse(name: str, value: object) -> None:
    """Refuse an argument that happybase has and a transaction cannot honour."""
    if value is not None:
        raise UsageError(
            f"{name}={value!r} cannot be honoured inside a transaction, which reads one snapshot "
            "and sets versions itself; leave it out"
        )


def scan_range(
    row_start: bytes | None, row_stop: bytes | None, row_prefix: bytes | None, *, reverse: bool
) -> KeyRange:
    """Return the rows that a scan covers, lower end first.

    With `reverse` the upper end is `row_start` and belongs to the range, the lower is `row_stop`
    and does not.
    """
    for name, bound in (
        ("row_start", row_start),
        ("row_stop", row_stop),
        ("row_prefix", row_prefix),
    ):
        if bound is not None:
            check_bytes(name, bound)
    if row_prefix is not None:
        if row_start is not None or row_stop is not None:
            raise UsageError("row_prefix cannot be combined with row_start or row_stop")
        return KeyRange(row_prefix, prefix_end(row_prefix))
    if reverse:
        return KeyRange(_after(row_stop), _after(row_start))
    return KeyRange(row_start or b"", row_stop or b"")


def _after(row: bytes | None) -> bytes:
    """Return the first key behind `row`; the open end for None or an empty key."""
    return row + b"\x00" if row else b""


def prefix_end(prefix: bytes) -> bytes:
    """Return the first key behind every key with `prefix`; empty where there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else b""


def check_table_name(name: str) -> str:
    """Return `name` if it can be the name of a user's table."""
    name = check_text("a table name", name)
    if not _TABLE_NAME.fullmatch(name):
        raise UsageError(
            f"the table name {name!r} must be letters, digits, '_', '-' and '.', not starting with "
            "'-' or '.', with an optional namespace and ':' before it"
        )
    if name.startswith(_DEFAULT_NAMESPACE):
        # Its conflicts and fences go by the one name that HBase gives back, and Omid's clients use.
        plain = name.removeprefix(_DEFAULT_NAMESPACE)
        raise UsageError(f"the table name {name!r} is a second name of {plain!r}; use that one")
    if is_system_table(name):
        raise UsageError(_RESERVED.format(name))
    return name


def check_free_name(name: str) -> None:
    """Refuse the name of a table that no user makes, by either of its names.

    Raises:
        UsageError: it is a system table's, or one of those that omidpy makes, and would take any
            table of the name for its own.
    """
    name = name.removeprefix(_DEFAULT_NAMESPACE)
    if is_system_table(name):
        raise UsageError(_RESERVED.format(name))
    if (maker := maker_of(name)) is not None:
        raise UsageError(
            f"the table {name!r} is one of omidpy's own: {maker} makes it; choose another name"
        )


def check_family_name(family: Any) -> bytes:
    """Return a family's name as bytes; str is taken for convenience, as names are text."""
    # What is no Unicode becomes what is no name.
    is_text = isinstance(family, str)
    name = family.encode(errors="surrogatepass") if is_text else check_bytes("a family", family)
    if not _FAMILY_NAME.fullmatch(name) or name.startswith(b".") or b"/" in name:
        raise UsageError(
            f"the family name {family!r} must be printable ASCII without spaces, ':' and '/', and "
            "not start with '.'"
        )
    return name
