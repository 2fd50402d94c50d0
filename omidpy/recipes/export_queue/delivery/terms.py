"""What goes between who holds buckets and who delivers from them: options, an outcome.

Nothing here does anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from omidpy.recipes.export_queue.delivery.patience import MAX_ATTEMPTS

if TYPE_CHECKING:
    pass

BUFFER_BYTES: Final = 1 << 20

PARK_KEY: Final = "park-key"
SKIP: Final = "skip"
STOP: Final = "stop"
POLICIES: Final = (PARK_KEY, SKIP, STOP)


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """How a queue is exported.

    Attributes:
        buffer_bytes: The most that one batch holds, unless a single entry is larger.
        poison: What becomes of an entry that cannot be delivered, and of the others of its key.
        max_attempts: After how many failures alone an entry counts as poison.
        pass_s: After how long a bucket lets the others have a turn.
    """

    buffer_bytes: int = BUFFER_BYTES
    poison: str = PARK_KEY
    max_attempts: int = MAX_ATTEMPTS
    pass_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Pass:
    """How far a pass over a bucket came.

    Attributes:
        has_moved: Whether something was delivered.
        is_whole: Whether all that its snapshot sees has left; if not, it goes on at once.
    """

    has_moved: bool
    is_whole: bool


class Counter(Protocol):
    """Is told what was delivered."""

    def delivered(self, bucket: int, entry_count: int, seconds: float) -> None:
        """Count a batch that the receiver has taken."""
        ...

    def failed(self, bucket: int) -> None:
        """Count a batch that the exporter did not take."""
        ...
