"""A receiver that keeps a log and marks, both or neither, for any number of exporters.

log = Log()
scene.runner(log.sink())
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omidpy.recipes.export_queue import Batch, Deposed, Entry, ExactExporter, Mark, Share
from omidpy.recipes.export_queue.marks import decode_mark


class Log:
    """What was delivered, in order, whoever did it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.marks: dict[str, str] = {}
        self.fences: dict[str, int] = {}

    @property
    def values(self) -> list[Any]:
        """The values of what was delivered."""
        return [entry.value for entry in self.entries]

    def sink(self) -> LogSink:
        """Return an exporter into it, as of another process."""
        return LogSink(self)

    def of_key(self, key: bytes) -> list[Any]:
        """Return the values of one key, in order."""
        return [entry.value for entry in self.entries if entry.key == key]


class LogSink(ExactExporter):
    """Delivers into a log; tells of its steps, and raises what `on_step` raises."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.on_step: Callable[[str], object] = lambda _: None
        self.on_batch: Callable[[Batch], object] = lambda _: None
        """Called before a batch is taken; what it raises, `export_marked` raises."""
        self.forgets = ""
        self.keeps_first = False
        """Whether a first mark is kept alone, as in Kafka."""

    @property
    def receiver(self) -> str:
        """Who may forget its marks."""
        return self.forgets

    def take_over(self, share: Share) -> Mark | None:
        """Fence, and read the mark."""
        self.on_step("before-take")
        # As in Kafka: the last one to come is the owner, however small its fence.
        self._log.fences[share.name] = share.fence
        self.on_step("behind-take")
        mark = self._log.marks.get(share.name)
        return None if mark is None else decode_mark(mark, where="the log")

    def keep_first(self, share: Share, mark: Mark) -> bool:
        """Keep a mark alone, if it does that."""
        if self.keeps_first:
            self.on_step("before-first")
            if self._log.fences.get(share.name) != share.fence:
                raise Deposed("there is another one")
            self._log.marks[share.name] = mark.encode()
            self.on_step("behind-first")
        return self.keeps_first

    def export_marked(self, share: Share, batch: Batch, mark: Mark) -> None:
        """Take a batch with its mark."""
        self.on_batch(batch)
        self.on_step("before-commit")
        if self._log.fences.get(share.name) != share.fence:
            raise Deposed("there is another one")
        self._log.entries.extend(batch)
        self._log.marks[share.name] = mark.encode()
        self.on_step("behind-commit")
