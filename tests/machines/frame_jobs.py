"""Writes of frames in one process: each part opens a manager of its own over one memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from omidpy.manager import TransactionManager
from omidpy.spark.frames.places import Place
from omidpy.spark.frames.writes import jobs
from omidpy.spark.frames.writes.jobs import Job
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore
from omidpy.tx.frames.shape import Shape
from tests.machines.clients import LossyOracle
from tests.machines.naive_oracle import NaiveOracle

COLUMNS: Final[Any] = {"n": ("cf:n", "bigint")}


class Lasting(FaultyStore):
    """A store that outlives its managers."""

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Here(Place):
    """A place in this process."""

    world: Any = None

    def connect(self, client: int | None = None, *, hands_on: bool = False) -> TransactionManager:
        """Open a manager of its own."""
        del client, hands_on
        return TransactionManager(self.world.store, self.world.oracle, post_commit="sync")

    def seen(self, store: Store) -> Place:
        """Return it."""
        del store
        return self


class JobWorld:
    """A store with a table, and an oracle on a bad line."""

    def __init__(self) -> None:
        """Make them."""
        self.store = Lasting(MemoryStore())
        self.oracle = LossyOracle(NaiveOracle(self.store))
        self.place = Here("memory:", "here", world=self)
        self.tm = self.place.connect()
        self.tm.create_table("t", ["cf"])

    def begin(self, columns: Any = None, **more: Any) -> Job:
        """Begin a write."""
        shape = Shape.of(columns or COLUMNS)
        with self.place.connect() as tm:
            token = jobs.begin(tm, "t", shape, hold_s=60, once=more.get("once"))
        return Job(self.place, "t", shape, token, "job", **more)

    def seen(self) -> dict[bytes, dict[bytes, bytes]]:
        """Return what a new transaction sees."""
        return dict(self.tm.begin().table("t").scan())

    def cells(self) -> int:
        """Return how many cells the table has, visible or not."""
        return sum(len(row) for page in self.store.scan("t") for row in page)


def batch(**columns: Any) -> pa.RecordBatch:
    """Return a batch."""
    return pa.record_batch(columns)
