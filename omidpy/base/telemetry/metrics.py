"""Counters and timings that any part may report, and none has to be collected.

The library reports to a `Metrics`; the default one does nothing.  An exporter (Prometheus in
`tso-server`) is another object of the same shape.
"""

from __future__ import annotations

from typing import Final, Protocol


class Metrics(Protocol):
    """Where counters and timings go."""

    def count(self, name: str, amount: int = 1) -> None:
        """Add `amount` to the counter `name`."""
        ...

    def observe(self, name: str, value: float) -> None:
        """Record one value of the distribution `name`; the name ends with its unit."""
        ...

    def gauge(self, name: str, value: float) -> None:
        """Set the gauge `name`."""
        ...


class NoMetrics:
    """Where counters go that are not collected."""

    def count(self, name: str, amount: int = 1) -> None:
        """Take no note of a count."""

    def observe(self, name: str, value: float) -> None:
        """Take no note of a duration."""

    def gauge(self, name: str, value: float) -> None:
        """Take no note of a level."""


NO_METRICS: Final = NoMetrics()
