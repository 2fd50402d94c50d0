"""An export queue over memory, exporters that fail as told, and processes that die at a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from omidpy.base.timing.clock import ManualClock
from omidpy.recipes.export_queue import Batch, Entry, Exporter, ExportQueue
from omidpy.recipes.export_queue.delivery.runner import Runner
from omidpy.storage.base import Store
from tests.machines.clients import Client

QUEUE: Final = "q"
TABLE: Final = "OMIDPY_EXPORT_q"
STEPS: Final = ("taken", "before-export", "exported", "removed", "cursor")
"""What a batch goes through, in order."""


class Killed(BaseException):
    """Ends a process of a test."""


class Collector(Exporter):
    """Keeps what it is given, unless told to fail."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.on_batch: Callable[[Batch], object] = lambda _: None
        """Called before a batch is taken; what it raises, `export` raises."""
        self.seen: list[list[Any]] = []
        """The values of every batch that came, taken or not."""

    def export(self, batch: Batch) -> None:
        """Take a batch."""
        self.seen.append([entry.value for entry in batch])
        self.on_batch(batch)
        self.batches.append(batch)

    @property
    def entries(self) -> list[Entry]:
        """Everything that was taken, in order."""
        return [entry for batch in self.batches for entry in batch]

    @property
    def values(self) -> list[Any]:
        """The values of what was taken, in order."""
        return [entry.value for entry in self.entries]


class Scene:
    """A client with a queue, and one exporter after the other."""

    def __init__(
        self, store: Store | None = None, *, post_commit: str = "sync", **settings: Any
    ) -> None:
        self.client = Client(store, post_commit=post_commit)
        self.tm = self.client.tm
        assert isinstance(self.client.clock, ManualClock)
        self.clock = self.client.clock
        self.queue = ExportQueue.create(self.tm, QUEUE, **{"buckets": 1, **settings})
        self.sink = Collector()

    def add(self, *values: object, key: bytes = b"k") -> None:
        """Commit entries in one transaction."""
        with self.tm.begin() as tx:
            for value in values:
                self.queue.add(tx, key, value)

    def runner(self, sink: Exporter | None = None, **settings: Any) -> Runner:
        """Return an exporter."""
        return self.queue.runner(sink or self.sink, **settings)

    def export(self, **settings: Any) -> list[Any]:
        """Deliver what is there; return all values that were ever delivered."""
        self.runner(**settings).run_once(wait_s=0)
        return self.sink.values

    def die_at(self, step: str, **settings: Any) -> None:
        """Let an exporter die at a step: it tidies nothing up, and its locks are free."""

        def at(reached: str) -> None:
            if reached == step:
                raise Killed

        runner = self.runner(on_step=at, **settings)
        crew = runner._crew

        def end() -> None:
            crew._is_over.set()
            worker: Any = crew.worker
            worker._give_back()

        crew.leave = end  # type: ignore[method-assign]  # a process that dies gives nothing back
        try:
            runner.run_once(wait_s=0)
        except Killed:
            return
        raise AssertionError(f"the exporter never came to {step}")

    def raw_rows(self) -> list[bytes]:
        """Return the rows that the store has of the queue, whatever is in them."""
        return [row[0].row for page in self.tm.store.scan(TABLE) for row in page]
