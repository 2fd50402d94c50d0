r"""What does `.option(...)` say?  The words of the format `omidpy`, read and refused.

Spark's options are text and know no case; `rowPrefix` is `row_prefix`.  Row keys are text in UTF-8,
with `\xHH` for a byte, as the shell of HBase writes them.  Pure: nothing is asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from omidpy.base.words.arguments import scan_range
from omidpy.base.words.durations import EXAMPLES, duration_ms
from omidpy.errors import UsageError
from omidpy.facts.tables.catalog import DEFAULT_CONFLICT_LEVEL
from omidpy.model import KeyRange
from omidpy.spark.frames.places import Place
from omidpy.storage.base import WHOLE_TABLE
from omidpy.tx.frames.writing import NULLS
from omidpy.tx.keys import check_key

FORMAT: Final = "omidpy"

_READ: Final = (
    "at",
    "hold",
    "row_start",
    "row_stop",
    "row_prefix",
    "rows",
    "partitions",
    "batch_rows",
    "snapshot",
    "versions",
)
_WRITE: Final = (
    "nulls",
    "conflict",
    "rows_per_transaction",
    "hold",
    "estimated_rows",
    "idempotency_key",
    "app_id",
    "row_start",
    "row_stop",
    "row_prefix",
)
_BOTH: Final = (
    "store",
    "tso",
    "table",
    "path",
    "conflict_level",
    "key",
    "columns",
    "rest",
    "shape",
)
_REFUSED: Final = {
    "pushdown": (
        "Spark 4.3 keeps what the filters of one query have left to read for every other query on "
        "the same frame, and rows would be missing there; name the rows to read instead, by "
        "row_start, row_stop, row_prefix or rows"
    ),
}
_PLAIN: Final = {name.replace("_", ""): name for name in (*_READ, *_WRITE, *_BOTH, *_REFUSED)}
_OF_SPARK: Final = frozenset({"checkpointlocation", "querytimeout", "queryname"})

HOLD_S: Final = 3600.0
BATCH_ROWS: Final = 10_000
CONFLICTS: Final = ("check", "free")
FENCE: Final = "fence"
"""Of writes that begin their transaction themselves: as `check`, and a transaction that began
before, and has written the table, is aborted."""

VERSIONS: Final = ("newest", "all")

RANGE: Final = frozenset({"row_start", "row_stop", "row_prefix"})

_SIZES: Final = re.compile(r"\([\d\s,]*\)")
_ESCAPE: Final = re.compile(rb"\\x([0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class Words:
    """What both directions say."""

    place: Place
    table: str
    key: str | None
    columns: str | None
    rest: str | None
    shape: str | None
    """The shape as text, in place of the three above."""
    given: Mapping[str, str]


@dataclass(frozen=True)
class ReadWords:
    """What is to be read."""

    hold_s: float
    key_range: KeyRange
    rows: tuple[bytes, ...] | None
    partitions: int | None
    batch_rows: int
    has_all_versions: bool = False


@dataclass(frozen=True)
class WriteWords:
    """How is to be written."""

    nulls: str
    is_conflict_free: bool
    is_fencing: bool
    rows_per_transaction: int | None
    hold_s: float
    estimated_rows: int | None
    idempotency_key: bytes | None
    app_id: str | None
    """Of streams."""
    replaced: KeyRange | None
    """The rows that are replaced, by mode('overwrite')."""


def words(options: Mapping[str, str]) -> Words:
    """Read what both directions say.

    Raises:
        UsageError: one is missing, unknown or wrong.
    """
    given: dict[str, str] = {}
    for name, text in options.items():
        plain = name.lower().replace("_", "")
        if plain in _OF_SPARK:
            continue
        if plain not in _PLAIN:
            raise UsageError(
                f"format({FORMAT!r}) has no option {name!r}; it has "
                f"{', '.join(sorted({*_BOTH, *_READ, *_WRITE} - {'path', 'shape', 'snapshot'}))}"
            )
        given[_PLAIN[plain]] = text
    for name, instead in _REFUSED.items():
        if name in given:
            raise UsageError(f"option({name!r}, ...) cannot be honoured: {instead}")
    for name, what in (("store", "the address of the store"), ("tso", "that of its tso-server")):
        if name not in given:
            raise UsageError(f"format({FORMAT!r}) needs option({name!r}, ...), {what}")
    table = given.get("table", given.get("path"))
    if not table:
        raise UsageError(f"format({FORMAT!r}) needs option('table', ...), the name of the table")
    level = given.get("conflict_level", DEFAULT_CONFLICT_LEVEL)
    place = Place(given["store"], given["tso"], level)
    return Words(
        place,
        table,
        given.get("key"),
        given.get("columns"),
        given.get("rest"),
        given.get("shape"),
        given,
    )


def read_words(said: Words) -> ReadWords:
    """Read what a read says.

    Raises:
        UsageError: an option is wrong, or belongs to writes.
    """
    given = said.given
    _refuse_others(given, (*_READ, *_BOTH), "reads")
    rows = given.get("rows")
    return ReadWords(
        hold_s=_seconds(given, "hold", HOLD_S),
        key_range=_range(given),
        rows=None if rows is None else _listed(rows),
        partitions=_count(given, "partitions"),
        batch_rows=_count(given, "batch_rows") or BATCH_ROWS,
        has_all_versions=has_all_versions(said),
    )


def has_all_versions(said: Words) -> bool:
    """Say whether a read has a row for every version.

    Raises:
        UsageError: the option says something else.
    """
    return check_versions(said.given.get("versions", VERSIONS[0]))


def check_versions(versions: object) -> bool:
    """Say whether `versions` are all.

    Raises:
        UsageError: it is none of `VERSIONS`.
    """
    if versions not in VERSIONS:
        raise UsageError(
            f"versions={versions!r} is none of {', '.join(VERSIONS)}: for some of them, filter the "
            "frame of all"
        )
    return versions == "all"


def write_words(said: Words) -> WriteWords:
    """Read what a write says.

    Raises:
        UsageError: an option is wrong, or belongs to reads.
    """
    given = said.given
    _refuse_others(given, (*_WRITE, *_BOTH), "writes")
    nulls = given.get("nulls", NULLS[0])
    if nulls not in NULLS:
        raise UsageError(f"nulls={nulls!r} is none of {', '.join(NULLS)}")
    conflict = given.get("conflict", CONFLICTS[0])
    if conflict not in (*CONFLICTS, FENCE):
        raise UsageError(
            f"conflict={conflict!r} is none of {', '.join((*CONFLICTS, FENCE))}; with free, of two "
            "writes of one cell at the same time that of the transaction stands that began later"
        )
    key = given.get("idempotency_key")
    rows_per_transaction = _count(given, "rows_per_transaction")
    if key is not None and rows_per_transaction is not None:
        raise UsageError(
            "idempotency_key names what one transaction does, and rows_per_transaction makes many; "
            "leave out one of the two"
        )
    if conflict == FENCE and rows_per_transaction is not None:
        raise UsageError(
            "conflict='fence' is of one transaction, and rows_per_transaction makes many; leave "
            "out one of the two"
        )
    return WriteWords(
        nulls,
        conflict == "free",
        conflict == FENCE,
        rows_per_transaction,
        _seconds(given, "hold", HOLD_S),
        _count(given, "estimated_rows"),
        None if key is None else check_key(key.encode()),
        given.get("app_id"),
        _replaced(given) if RANGE & given.keys() else None,
    )


def pairs(name: str, text: str) -> dict[str, tuple[str, str | None]]:
    """Read `NAME=FAMILY:QUALIFIER [TYPE], ...`.

    Raises:
        UsageError: it is something else.
    """
    found: dict[str, tuple[str, str | None]] = {}
    for one in _parts(text):
        column, equals, spec = one.strip().partition("=")
        target, _, kind = spec.strip().partition(" ")
        if not equals or not column.strip() or ":" not in target or column.strip() in found:
            raise UsageError(
                f"{name}={text!r}: {one.strip()!r} is no column; write NAME=FAMILY:QUALIFIER, or "
                "NAME=FAMILY:QUALIFIER TYPE, with commas between"
            )
        found[column.strip()] = target, kind.strip() or None
    return found


def key_pairs(text: str) -> dict[str, str | None]:
    """Read `NAME [TYPE], ...`.

    Raises:
        UsageError: a name is missing, or comes twice.
    """
    found: dict[str, str | None] = {}
    for one in _parts(text):
        name, _, kind = one.strip().partition(" ")
        if not name or name in found:
            raise UsageError(f"key={text!r}: write the names of its columns with commas between")
        found[name] = kind.strip() or None
    return found


def _parts(text: str) -> list[str]:
    """Split at commas, but for those between the sizes of a type: `DECIMAL(10,2)`."""
    kept = _SIZES.sub(lambda found: found[0].replace(",", ";"), text)
    ends = [at for at, letter in enumerate(kept) if letter == ","]
    starts = [0, *(at + 1 for at in ends)]
    return [text[start:end] for start, end in zip(starts, [*ends, len(text)], strict=True)]


def key_bytes(text: str) -> bytes:
    """Return the row key that a text stands for."""
    return _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), text.encode())


def key_text(row: bytes) -> str:
    """Return the text of a row key, for an option: commas are escaped, too."""
    plain = (
        chr(byte)
        if (chr(byte).isalnum() and byte < 128) or chr(byte) in "_-.:/"
        else f"\\x{byte:02x}"
        for byte in row
    )
    return "".join(plain)


def _range(given: Mapping[str, str]) -> KeyRange:
    bounds = (
        key_bytes(given[name]) if name in given else None
        for name in ("row_start", "row_stop", "row_prefix")
    )
    return scan_range(*bounds, reverse=False)


def _replaced(given: Mapping[str, str]) -> KeyRange:
    """Return the rows that a write replaces: never all, as an empty prefix would name.

    Raises:
        UsageError: it names all, or none.
    """
    found = _range(given)
    if found == WHOLE_TABLE or found.is_empty():
        says = ", ".join(f"{name}={given[name]!r}" for name in sorted(RANGE & given.keys()))
        raise UsageError(
            f"{says} names {'no row' if found.is_empty() else 'every row'} of the table, and "
            "mode('overwrite') would delete all that it names and the frame lacks: name the rows "
            "to replace"
        )
    return found


def _listed(text: str) -> tuple[bytes, ...]:
    return tuple(key_bytes(one.strip()) for one in text.split(",")) if text.strip() else ()


def _refuse_others(given: Mapping[str, Any], own: Sequence[str], what: str) -> None:
    if others := sorted(name for name in given if name not in own):
        raise UsageError(f"{', '.join(others)}: {what} have no such option")


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"option({name!r}, {text!r}) must be a number, 1 or more")
    return int(text)


def _seconds(given: Mapping[str, str], name: str, default: float) -> float:
    if name not in given:
        return default
    found = duration_ms(given[name])
    if not found:
        raise UsageError(f"option({name!r}, {given[name]!r}) is no time; write one of {EXAMPLES}")
    return found / 1000
