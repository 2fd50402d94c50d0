"""What may a table ask of every compaction?  Priority, retention, schedule, limits, as attributes.

Pure.  Words become attributes where somebody sets them, with an error for bad ones; attributes
become settings where a run reads them, with a complaint, since somebody may have set them by the
HBase shell.  What cannot be read errs on the side of keeping, and of doing the work.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from omidpy.base.words import sizes
from omidpy.base.words.durations import EXAMPLES, duration_ms
from omidpy.base.words.windows import WINDOW_ADVICE, Window, window_of
from omidpy.errors import UsageError

PRIORITY_ATTRIBUTE: Final = "OMIDPY_PRIORITY"
"""Table attribute: an integer; ranges of tables with higher ones are passed over first."""
RETENTION_ATTRIBUTE: Final = "OMIDPY_RETENTION"
"""Table attribute: how far back at least snapshots stay readable."""
EVERY_ATTRIBUTE: Final = "OMIDPY_COMPACT_EVERY"
"""Table attribute: a run leaves the table out that was passed over more lately than that."""

MAX_ROWS_ATTRIBUTE: Final = "OMIDPY_MAX_ROWS_PER_S"
"""Table attribute: how many of its rows a run reads a second, at most."""
MAX_BYTES_ATTRIBUTE: Final = "OMIDPY_MAX_BYTES_PER_S"
"""Table attribute: the same in bytes of keys and values."""
UNTIL_ATTRIBUTE: Final = "OMIDPY_COMPACT_UNTIL"
"""Table attribute: how long after its start, or until what time of day, a run works on it."""

ATTRIBUTES: Final = {
    "priority": PRIORITY_ATTRIBUTE,
    "retention": RETENTION_ATTRIBUTE,
    "every": EVERY_ATTRIBUTE,
    "max-rows-per-s": MAX_ROWS_ATTRIBUTE,
    "max-bytes-per-s": MAX_BYTES_ATTRIBUTE,
    "until": UNTIL_ATTRIBUTE,
}
"""Attribute by the name of its setting."""

_INTEGER: Final = re.compile(r"-?[0-9]{1,9}")
_COUNT: Final = re.compile(r"[1-9][0-9]{0,11}")
_ADVICE: Final = {
    "priority": "write an integer such as 5; tables with higher ones come first, and without one "
    "it is 0",
    "retention": f"write a number and a unit, as in {EXAMPLES}",
    "every": f"write a number and a unit, as in {EXAMPLES}",
    "max-rows-per-s": "write how many, such as 20000; leave it out for no limit",
    "max-bytes-per-s": f"write a size of one byte at least, as in {sizes.EXAMPLES}",
    "until": WINDOW_ADVICE,
}


class TableSettings(NamedTuple):
    """What a table asks for."""

    priority: int = 0
    retention_s: float = 0.0
    """At least so long; infinite where nobody can read how long."""
    every_s: float = 0.0
    """0: it is passed over by every run."""
    max_rows_per_s: float | None = None
    """None: as many as the run may."""
    max_bytes_per_s: float | None = None
    until: Window | None = None
    """None: as long as the run may."""


DEFAULT_SETTINGS: Final = TableSettings()


def setting_attributes(table: str, words: Mapping[str, object]) -> dict[str, str]:
    """Return the attributes that settings come to.

    Args:
        table: Whose they are, for messages.
        words: Settings by name, such as `{"retention": "30d"}`; None is none.

    Raises:
        UsageError: a name is unknown, or a value is none of its kind.
    """
    attributes: dict[str, str] = {}
    for name, value in words.items():
        if name not in ATTRIBUTES:
            known = ", ".join(ATTRIBUTES)
            raise UsageError(f"table {table!r} has no setting {name!r}; there are {known}")
        if value is None:
            continue
        text = str(value).strip()
        if isinstance(value, bool) or _number(name, text) is None:
            raise UsageError(f"{name}={value!r} of table {table!r}: {_ADVICE[name]}")
        attributes[ATTRIBUTES[name]] = text
    return attributes


def settings_of(table: str, attributes: Mapping[str, str]) -> tuple[TableSettings, tuple[str, ...]]:
    """Return what a table asks for, and what is wrong with its attributes."""
    numbers: dict[str, float] = {}
    complaints: list[str] = []
    for name, attribute in ATTRIBUTES.items():
        text = attributes.get(attribute)
        if text is None:
            continue
        number = _number(name, text.strip())
        if number is None:
            meaning = "no version of any table is dropped" if name == "retention" else "left aside"
            complaints.append(
                f"table {table} has {attribute}={text!r}, which says nothing: {meaning}; run "
                f"`omidpy table set {table} {name}=... --apply`, or `omidpy table unset {table} "
                f"{name} --apply`"
            )
            number = math.inf if name == "retention" else 0.0
        numbers[name] = number
    settings = TableSettings(
        int(numbers.get("priority", 0)),
        numbers.get("retention", 0.0),
        numbers.get("every", 0.0),
        numbers.get("max-rows-per-s") or None,
        numbers.get("max-bytes-per-s") or None,
        window_of(attributes.get(UNTIL_ATTRIBUTE, "")),
    )
    return settings, tuple(complaints)


def _number(name: str, text: str) -> float | None:
    """Return what a setting says, durations in seconds; None if it says nothing.

    Of a window no more than that it is one.
    """
    if name == "priority":
        return int(text) if _INTEGER.fullmatch(text) else None
    if name == "max-rows-per-s":
        return int(text) if _COUNT.fullmatch(text) else None
    if name == "max-bytes-per-s":
        size = sizes.size_bytes(text)
        return size if size is not None and 1 <= size < math.inf else None
    if name == "until":
        return None if window_of(text) is None else 1.0
    milliseconds = 0.0 if text == "0" else duration_ms(text)
    return None if milliseconds is None or math.isinf(milliseconds) else milliseconds / 1000
