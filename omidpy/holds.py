"""Keeps a snapshot's versions from being collected for a while."""

from __future__ import annotations

import uuid
from types import TracebackType
from typing import Final, Self

from omidpy.model import Timestamp
from omidpy.watermarks import Hold, Watermarks

MAX_HOLD_S: Final = 30 * 24 * 3600.0
"""A longer hold is refused: a forgotten one would keep every version for ever."""


class HeldSnapshot:
    """A hold that ends by itself, or when released."""

    def __init__(self, watermarks: Watermarks, start_ts: Timestamp) -> None:
        self.start_ts = start_ts
        self._watermarks = watermarks
        self._name = uuid.uuid4().hex

    def write(self, *, expires_ms: int) -> None:
        """Record the hold until `expires_ms`, wall time."""
        self._watermarks.write_hold(self._name, Hold(self.start_ts, expires_ms))

    def release(self) -> None:
        """End the hold; a second call does nothing."""
        self._watermarks.write_hold(self._name, Hold(self.start_ts, expires_ms=0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
