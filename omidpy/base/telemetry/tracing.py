"""What the parts of a transaction ask of a tracer.  There is none unless one is given.

The parts hold a `Tracing` or None, and do nothing more than look which it is.  What makes spans is
`omidpy/tracing.py`, which alone knows OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Tracing(Protocol):
    """Makes spans of what a client does; see `omidpy.tracing`."""

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[Any]:
        """Return a span for the length of a block, inside of what is current in its context."""
        ...

    def apart(self, name: str, **attributes: Any) -> AbstractContextManager[Any]:
        """Return the same, which does not become current: for a block that others interrupt."""
        ...

    def here(self) -> object:
        """Return what is current, for a span that follows it elsewhere."""
        ...

    def following(
        self, name: str, before: Collection[object], **attributes: Any
    ) -> AbstractContextManager[Any]:
        """Return a span that follows others: inside of the first, and linked with each."""
        ...
