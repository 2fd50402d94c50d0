"""What an operator says of a table to ignore, as it is stored."""

from __future__ import annotations

from collections.abc import Iterable

from compactor.tables.ownership import IGNORED_PREFIX, Ignored
from omidpy.facts.control import ControlTable, encode_document


def set_ignored(
    control: ControlTable, table: str, *, is_ignored: bool, families: Iterable[bytes] = ()
) -> None:
    """Say whether a table, or some of its families, are ignored, whichever it is."""
    word = Ignored(is_ignored, tuple(sorted(families)))
    control.write(IGNORED_PREFIX + table.encode(), encode_document(word))
