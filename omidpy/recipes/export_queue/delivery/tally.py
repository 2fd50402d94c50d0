"""What an exporter has done since it was started, by bucket; for people and for Prometheus."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from omidpy.base.within import within


@dataclass(frozen=True, slots=True)
class BucketTally:
    """What was done with one bucket.

    Attributes:
        exported: Entries that the exporter took.
        batches: Batches that it took.
        failures: Batches that it did not take.
        seconds: How long those that it took have taken in all.
    """

    exported: int = 0
    batches: int = 0
    failures: int = 0
    seconds: float = 0.0

    @property
    def attempts(self) -> int:
        """Batches that were handed over."""
        return self.batches + self.failures


class QueueTally:
    """Counts.  Safe to share among threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets: dict[int, BucketTally] = {}

    def delivered(self, bucket: int, entry_count: int, seconds: float) -> None:
        """Count a batch that the receiver has taken."""
        within(self._lock, self._delivered, bucket, entry_count, seconds)

    def failed(self, bucket: int) -> None:
        """Count a batch that the exporter did not take."""
        within(self._lock, self._failed, bucket)

    def read(self) -> dict[int, BucketTally]:
        """Return the counts by bucket."""
        return within(self._lock, self._buckets.copy)

    def _delivered(self, bucket: int, entry_count: int, seconds: float) -> None:
        old = self._buckets.get(bucket, BucketTally())
        self._buckets[bucket] = replace(
            old,
            exported=old.exported + entry_count,
            batches=old.batches + 1,
            seconds=old.seconds + seconds,
        )

    def _failed(self, bucket: int) -> None:
        old = self._buckets.get(bucket, BucketTally())
        self._buckets[bucket] = replace(old, failures=old.failures + 1)
