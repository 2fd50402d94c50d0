"""What keeps a pass from claiming its range, in words that an operator can act upon.

An obstacle is never silent and never more than it is: the rows around it are healed, other ranges
are claimed, and what cannot be judged is left byte for byte as it was found.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

from omidpy.base.cells import data_qualifier
from omidpy.facts.watermarks import HOLD_PREFIX
from omidpy.model import Cell, base

MOST_NAMED: Final = 3
"""Obstacles of one range that are named; more are only counted."""

MOST_BYTES: Final = 64
"""Bytes of a key or value that are shown."""


class Obstacles:
    """What one pass has met so far."""

    def __init__(self) -> None:
        """Begin with no obstacle met."""
        self._named: dict[object, str] = {}
        self._met: set[object] = set()

    def __bool__(self) -> bool:
        """Say whether there is one."""
        return bool(self._met)

    def add(self, what: object, reason: str) -> None:
        """Note an obstacle; `what` tells it from others, so that each counts once."""
        self._met.add(what)
        if len(self._named) < MOST_NAMED:
            self._named.setdefault(what, reason)

    def reason(self) -> str:
        """Return all there is to say."""
        more = len(self._met) - len(self._named)
        return "; ".join([*self._named.values(), *([f"and {more} more"] if more else [])])


class Doubts(NamedTuple):
    """Cells without a proof, of a table in which the absence of one proves nothing."""

    total: int = 0
    first: Cell | None = None

    def __bool__(self) -> bool:
        """Say whether there is one."""
        return self.first is not None

    def more(self, cells: Sequence[Cell]) -> Doubts:
        """Count more of them."""
        known = [] if self.first is None else [self.first]
        return Doubts(self.total + len(cells), min([*known, *cells]))

    def reason(self, table: str) -> str:
        """Say what they are, and what to do about them."""
        assert self.first is not None, "there is a doubt"
        return (
            f"{self.total} cells have neither a shadow cell nor a commit entry, and prove nothing, "
            f"the first in row {shown(self.first.row)} at version {self.first.version}: the table "
            "was disabled and enabled, restored or cloned from a snapshot, or adopted by a rule "
            "with them in it, so that they may be committed data whose entries have gone since; if "
            f"nothing was restored, or they are not wanted, `omidpy table accept {table} --apply` "
            "lets the next run drop them"
        )


def malformed_shadow(cell: Cell) -> str:
    """Say what a malformed shadow cell holds, and what to do about it."""
    column = f"{cell.family.decode(errors='backslashreplace')}:{shown(cell.qualifier)}"
    return (
        f"row {shown(cell.row)} holds a malformed shadow cell, {column} (of the column "
        f"{shown(data_qualifier(cell.qualifier))}) at version {cell.version}: "
        f"{shown(cell.value)} is no commit timestamp of that version; `omidpy fsck --repair` keeps "
        "a copy and mends it, or says what only you can know; `omidpy tx inspect "
        f"{base(cell.version)}` shows what else is known of its transaction"
    )


def undecided_cell(cell: Cell, why: str) -> str:
    """Say why nothing was done about a cell, and what to do about that."""
    return (
        f"row {shown(cell.row)} holds a cell at version {cell.version} of which nothing can be "
        f"said: {why}; `omidpy fsck --repair` keeps a copy of what is malformed and mends it, or "
        f"says what only you can know; `omidpy tx inspect {base(cell.version)}` shows what else is "
        "known of its transaction"
    )


def shown(data: bytes) -> str:
    """Return bytes in hexadecimal, the first of them if they are many."""
    if len(data) <= MOST_BYTES:
        return data.hex() or "(empty)"
    return f"{data[:MOST_BYTES].hex()}... ({len(data)} bytes)"


def is_hold(row: bytes) -> bool:
    """Say whether a row of the control table is a hold of a snapshot."""
    return row.startswith(HOLD_PREFIX)


def malformed_hold(row: bytes, complaint: str) -> str:
    """Say what a hold that cannot be read does, and what ends it."""
    name = row.removeprefix(HOLD_PREFIX).decode(errors="backslashreplace")
    return (
        f"{complaint}; taken for a hold of every snapshot, so that no version is dropped until "
        f"`omidpy watermarks --revoke-hold {shlex.quote(name)}` ends it"
    )
