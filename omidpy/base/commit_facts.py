"""What a commit entry can say, as values.

Shared by the pure rules and by the commit table's reader.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

from omidpy.model import Timestamp


class Invalid(Enum):
    """What a commit entry can say besides a commit timestamp."""

    INVALID = "invalid"


INVALID: Final = Invalid.INVALID

CommitEntry: TypeAlias = Timestamp | Invalid | None
"""A commit timestamp, `INVALID`, or None where there is no entry."""
