"""Writes each batch into a file of JSON lines, for whoever loads files.

    <queue>-<bucket>-<commit_ts>-<ordinal, hexadecimal>.jsonl

The name is that of the first entry.  A batch that comes again begins at the same one, since nothing
before it was left; so it replaces its own file, and each entry is in one file.  A file appears
whole, under its name, once it is durable.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from omidpy.recipes.export_queue.exporter import Exporter
from omidpy.recipes.export_queue.sinks.documents import line

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.exporter import Batch


class JsonLinesSink(Exporter):
    """A file for each batch."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Write into a folder, which is made if it is not there."""
        self._folder = Path(folder)

    def open(self) -> None:
        """Make the folder."""
        self._folder.mkdir(parents=True, exist_ok=True)

    def export(self, batch: Batch) -> None:
        """Write the file of a batch."""
        first = batch[0]
        name = f"{batch.queue}-{batch.bucket:05}-{first.commit_ts:019}-{first.ordinal:08x}.jsonl"
        # No other thread or process has this name, so that none writes into our file.
        hidden = self._folder / f".{name}.{os.getpid()}-{threading.get_ident()}"
        try:
            with hidden.open("wb") as file:
                for entry in batch:
                    file.write(line(batch, entry))
                file.flush()
                os.fsync(file.fileno())
            hidden.replace(self._folder / name)
        finally:
            hidden.unlink(missing_ok=True)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
