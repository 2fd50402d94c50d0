"""How are rows, columns and families written?  Bytes, or text, which is UTF-8.

A column is `family:qualifier`.  Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from operator import index
from typing import Final

from omidpy.errors import UsageError
from omidpy.model import MAX_VERSION, Cell, ColumnSpec
from omidpy.storage.hbase.native.cellblock import MOST_ROW_BYTES

Text = bytes | str

SEPARATOR: Final = b":"
DEFAULT_NAMESPACE: Final = "default:"


def as_bytes(given: object) -> bytes:
    """Return bytes of any kind as they are, and text as UTF-8.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"input must be a text or byte string, got {type(given).__name__}")


def table_text(name: bytes) -> str:
    """Return a table's name as text, as HBase's catalogue has it: of the default namespace without.

    Raises:
        UsageError: it is no UTF-8, and so no name of a table.
    """
    try:
        return name.decode().removeprefix(DEFAULT_NAMESPACE)
    except UnicodeDecodeError as error:
        raise UsageError(f"{name!r} is no name of a table, which is text") from error


def family_of(name: Text) -> bytes:
    """Return the name of a family, which may end with a colon."""
    return as_bytes(name).partition(SEPARATOR)[0]


def specified(column: Text) -> ColumnSpec:
    """Return what is asked for: a column, or without a colon all of a family."""
    family, colon, qualifier = as_bytes(column).partition(SEPARATOR)
    return family, qualifier if colon else None


def all_specified(columns: object) -> list[ColumnSpec] | None:
    """Return what is asked for by several; None is everything.

    A family takes the place of its columns before it, and columns that of their family before
    them: so HBase's client does behind a gateway.

    Raises:
        TypeError: it is no list or tuple.
    """
    if columns is None:
        return None
    if not isinstance(columns, tuple | list):
        raise TypeError("'columns' must be a tuple or list")
    found: dict[bytes, list[ColumnSpec]] = {}
    for family, qualifier in map(specified, columns):
        of_family = found.setdefault(family, [])
        if qualifier is None or (family, None) in of_family:
            of_family.clear()
        of_family.append((family, qualifier))
    return [one for of_family in found.values() for one in of_family]


def written(column: Text) -> tuple[bytes, bytes]:
    """Return family and qualifier of a column to write.

    Raises:
        UsageError: it has no colon.
    """
    family, colon, qualifier = as_bytes(column).partition(SEPARATOR)
    if not colon or not family:
        raise UsageError(
            f"column {column!r} must be family:qualifier; the qualifier may be empty, the colon "
            "must be there"
        )
    return family, qualifier


def counter_of(column: Text) -> tuple[bytes, bytes]:
    """Return family and qualifier of a counter; without a colon the qualifier is empty."""
    family, qualifier = specified(column)
    return family, qualifier or b""


def counted(value: object) -> int:
    """Return what a counter has, or what is added to one.

    Raises:
        TypeError: it is no whole number.
        UsageError: it does not fit into 8 bytes.
    """
    number = index(value)  # type: ignore[arg-type]  # which it looks at
    if not -(2**63) <= number < 2**63:
        raise UsageError(f"{number} does not fit into a counter, which has 8 bytes")
    return number


def version_of(timestamp: object, *, otherwise: int) -> int:
    """Return a timestamp as a version; `otherwise` if it is None.

    Raises:
        TypeError: it is no whole number.
        UsageError: it is none of HBase's.
    """
    if timestamp is None:
        return otherwise
    if not isinstance(timestamp, Integral):
        raise TypeError("'timestamp' must be an integer or None")
    version = int(timestamp)
    if not 0 <= version <= MAX_VERSION:
        raise UsageError(f"timestamp {version} is not in 0 to {MAX_VERSION}")
    return version


def row_of(cells: Iterable[Cell], *, with_timestamp: bool) -> dict[bytes, object]:
    """Return the newest cell of each column, in the order of the columns."""
    found: dict[bytes, object] = {}
    for _, family, qualifier, version, value in cells:
        name = family + SEPARATOR + qualifier
        if name not in found:
            found[name] = (value, version) if with_timestamp else value
    return found


def pieces(cells: list[Cell], most: int | None) -> Sequence[list[Cell]]:
    """Cut a row into pieces of so many cells at most; None cuts none."""
    if most is None:
        return [cells]
    return [cells[first : first + most] for first in range(0, len(cells), most)]


def bound(key: Text | None) -> bytes:
    """Return where a scan begins or ends; empty, an end of the table, for None.

    Raises:
        UsageError: it is longer than any row's, which HBase does not look for.
    """
    found = as_bytes(key or b"")
    if len(found) > MOST_ROW_BYTES:
        raise UsageError(f"a row key has at most {MOST_ROW_BYTES} bytes, and not {len(found)}")
    return found


def after(row: bytes) -> bytes:
    """Return the least key above a row's, which is no longer than HBase's are; see `behind`."""
    return row + b"\0" if len(row) < MOST_ROW_BYTES else behind(row)


def behind(prefix: bytes) -> bytes:
    """Return the least key above all that begin with a prefix; empty if none is."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else b""


def by_name(options: Mapping[str, object], known: Mapping[str, object], family: bytes) -> None:
    """Refuse options of a family that are not known.

    Raises:
        TypeError: as a call with an argument that it has not.
    """
    for name in options:
        if name not in known:
            raise TypeError(
                f"family {family!r} has an unknown option {name!r}; there are {', '.join(known)}"
            )
