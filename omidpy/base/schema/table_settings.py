"""What may a table ask of every compaction?  Priority, retention, schedule, limits, as attributes.

Pure.  Words become attributes where a person sets them, with an error for bad ones; attributes
become settings where a run reads them, with a complaint, since an operator may have set them by the
HBase shell.  What cannot be read errs on the side of keeping, and of doing the work.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from omidpy.base.words import sizes
from omidpy.base.words.choices import Choice, words_of
from omidpy.base.words.durations import EXAMPLES, duration_ms
from omidpy.base.words.windows import WINDOW_ADVICE, Window, window_of
from omidpy.errors import UsageError


class TableSettings(NamedTuple):
    """What a table asks for."""

    priority: int = 0
    retention_s: float = 0.0
    """At least so long; infinite where how long cannot be read."""
    every_s: float = 0.0
    """0: it is passed over by every run."""
    max_rows_per_s: float | None = None
    """None: as many as the run may."""
    max_bytes_per_s: float | None = None
    until: Window | None = None
    """None: as long as the run may."""


DEFAULT_SETTINGS: Final = TableSettings()

_INTEGER: Final = re.compile(r"-?[0-9]{1,9}")
_COUNT: Final = re.compile(r"[1-9][0-9]{0,11}")


def _integer(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) else None


def _count(text: str) -> int | None:
    return int(text) if _COUNT.fullmatch(text) else None


def _size(text: str) -> float | None:
    size = sizes.size_bytes(text)
    return size if size is not None and 1 <= size < math.inf else None


def _seconds(text: str) -> float | None:
    milliseconds = 0.0 if text == "0" else duration_ms(text)
    return None if milliseconds is None or math.isinf(milliseconds) else milliseconds / 1000


class TableSetting(NamedTuple):
    """One thing that a table may ask of every compaction."""

    choice: Choice
    """As it is asked where a table is made."""
    attribute: str
    """The table's attribute that keeps it."""
    field: str
    """Of `TableSettings`."""
    read: Callable[[str], Any]
    """What an attribute says, durations in seconds; None if it says nothing."""
    advice: str
    """What to write, for errors."""
    unreadable: float | None = None
    """What stands for an attribute that says nothing; None: the default."""

    @property
    def name(self) -> str:
        """As on a command line."""
        return self.choice.name


SETTINGS: Final = (
    TableSetting(
        Choice("priority", "Compacted before tables with lower ones.", "N"),
        "OMIDPY_PRIORITY",
        "priority",
        _integer,
        "write an integer such as 5; tables with higher ones come first, and without one it is "
        f"{DEFAULT_SETTINGS.priority}",
    ),
    TableSetting(
        Choice("retention", "How far back snapshots stay readable at least.", "TIME"),
        "OMIDPY_RETENTION",
        "retention_s",
        _seconds,
        f"write a number and a unit, as in {EXAMPLES}",
        math.inf,
    ),
    TableSetting(
        Choice("every", "Compactions pass over it no more often.", "TIME"),
        "OMIDPY_COMPACT_EVERY",
        "every_s",
        _seconds,
        f"write a number and a unit, as in {EXAMPLES}",
    ),
    TableSetting(
        Choice("max-rows-per-s", "Compactions read so many of its rows at most.", "N"),
        "OMIDPY_MAX_ROWS_PER_S",
        "max_rows_per_s",
        _count,
        "write how many, such as 20000; leave it out for no limit",
    ),
    TableSetting(
        Choice("max-bytes-per-s", "The same in bytes.", "SIZE"),
        "OMIDPY_MAX_BYTES_PER_S",
        "max_bytes_per_s",
        _size,
        f"write a size of one byte at least, as in {sizes.EXAMPLES}",
    ),
    TableSetting(
        Choice("until", "Compactions begin nothing more of it then, as in 4h or 06:00Z.", "TIME"),
        "OMIDPY_COMPACT_UNTIL",
        "until",
        window_of,
        WINDOW_ADVICE,
    ),
)
"""In the order in which they are listed."""

TABLE: Final = tuple(one.choice for one in SETTINGS)
ATTRIBUTES: Final = {one.name: one.attribute for one in SETTINGS}
"""Attribute by the name of its setting."""

_BY_NAME: Final = {one.name: one for one in SETTINGS}


def settings_by_name(**words: object) -> dict[str, object]:
    """Return settings by name, from arguments such as `max_rows_per_s`; None is none.

    Raises:
        TypeError: there is no such setting.
    """
    given = words_of(TABLE, words)
    return {one.name: given[one.key] for one in TABLE}


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
        setting = _BY_NAME.get(name)
        if setting is None:
            known = ", ".join(_BY_NAME)
            raise UsageError(f"table {table!r} has no setting {name!r}; there are {known}")
        if value is None:
            continue
        text = str(value).strip()
        if isinstance(value, bool) or setting.read(text) is None:
            raise UsageError(f"{name}={value!r} of table {table!r}: {setting.advice}")
        attributes[setting.attribute] = text
    return attributes


def settings_of(table: str, attributes: Mapping[str, str]) -> tuple[TableSettings, tuple[str, ...]]:
    """Return what a table asks for, and what is wrong with its attributes."""
    found: dict[str, Any] = {}
    complaints: list[str] = []
    for one in SETTINGS:
        text = attributes.get(one.attribute)
        if text is None:
            continue
        value = one.read(text.strip())
        if value is None:
            value = one.unreadable
            meaning = "left aside" if value is None else "no version of any table is dropped"
            complaints.append(
                f"table {table} has {one.attribute}={text!r}, which says nothing: {meaning}; run "
                f"`omidpy table set {table} {one.name}=... --apply`, or `omidpy table unset "
                f"{table} {one.name} --apply`"
            )
        if value is not None:
            found[one.field] = value
    return TableSettings(**found), tuple(complaints)
