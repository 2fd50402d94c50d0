"""Of how many reads are the pages of a scan?  For readers to whom it matters that it was one.

One read is of one table.  Between two, or while HBase's clients make one again, a table may be
dropped, and another one made by its name; the rest of the pages is then of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from omidpy.base.timing.clock import SystemClock
from omidpy.storage.base import LONG_READ_S

P = TypeVar("P")


class Reads:
    """How often a scan has read its table so far."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def through_a_gateway(self) -> Iterator[None]:
        """Count the call within; one that took long twice, as the gateway may have made it anew."""
        self.count += 1
        since_s = SystemClock.monotonic_s()
        yield
        self.count += SystemClock.monotonic_s() - since_s > LONG_READ_S


class Pages(Iterator[P]):
    """Pages of a scan, which say how many reads they have taken."""

    __slots__ = ("_pages", "reads")

    def __init__(self, pages: Iterator[P], reads: Reads) -> None:
        self._pages = pages
        self.reads = reads

    def __next__(self) -> P:
        return next(self._pages)

    def close(self) -> None:
        """End the scan here; nothing of it stays anywhere."""
        close: Any = getattr(self._pages, "close", None)
        if close is not None:
            close()


def reads_of(pages: Iterator[Any]) -> Reads | None:
    """Return how many reads some pages have taken, and will have; None: they do not say."""
    return pages.reads if isinstance(pages, Pages) else None
