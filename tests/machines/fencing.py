"""A receiver that keeps the largest fence of each bucket, and takes nothing with a smaller one."""

from __future__ import annotations

import http.client
import urllib.error
from typing import Any

from omidpy.recipes.export_queue import Batch
from tests.machines.export_queues import Collector


class Fencing(Collector):
    """Refuses what comes from an owner that was replaced, and says nothing of it."""

    def __init__(self) -> None:
        super().__init__()
        self.fences: dict[int, int] = {}

    def export(self, batch: Batch) -> None:
        """Take a batch, unless its fence is old."""
        self.seen.append([entry.value for entry in batch])
        self.on_batch(batch)
        if batch.fence < self.fences.get(batch.bucket, 0):
            return
        self.fences[batch.bucket] = batch.fence
        self.batches.append(batch)


def takes_over(runner: Any) -> None:
    """Let a runner take every bucket: to its process all others are dead."""
    judge: Any = runner._crew._judge
    judge.dead = frozenset


def answered(status: int) -> OSError:
    """Return what urllib raises for an answer."""
    return urllib.error.HTTPError("http://x", status, "", http.client.HTTPMessage(), None)
