"""Export queues: what committed reaches other systems, what aborted never does.

    from omidpy.recipes.export_queue import ExportQueue, Exporter, Entry

Source: the export queue recipe of Apache Fluo.  Ours orders by commit timestamp, where Fluo's
sequence is the start timestamp; it has no observers; and two entries of one key in one transaction
are two entries.
"""

from __future__ import annotations

from omidpy.recipes.export_queue.delivery.runner import Runner
from omidpy.recipes.export_queue.entries.dead import DeadLetter
from omidpy.recipes.export_queue.exporter import (
    Batch,
    Deposed,
    Entry,
    ExactExporter,
    Exporter,
    Poison,
    Refused,
    Retry,
    TransactionalExporter,
)
from omidpy.recipes.export_queue.marks import Mark, Share
from omidpy.recipes.export_queue.queue import ExportQueue
from omidpy.recipes.export_queue.upkeep.lag import BucketLag, Lag
from omidpy.recipes.export_queue.upkeep.manual.letters import DeadLetters

__all__ = [
    "Batch",
    "BucketLag",
    "DeadLetter",
    "DeadLetters",
    "Deposed",
    "Entry",
    "ExactExporter",
    "ExportQueue",
    "Exporter",
    "Lag",
    "Mark",
    "Poison",
    "Refused",
    "Retry",
    "Runner",
    "Share",
    "TransactionalExporter",
]
