"""Export queues: what committed reaches other systems, what aborted never does.

    from omidpy.recipes.export_queue import ExportQueue, Exporter, Entry

Source: the export queue recipe of Apache Fluo.  Ours orders by commit timestamp, where Fluo's
sequence is the start timestamp; it has no observers; and two entries of one key in one transaction
are two entries.
"""

from __future__ import annotations

from omidpy.recipes.export_queue.dead import DeadLetter
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
from omidpy.recipes.export_queue.lag import BucketLag, Lag
from omidpy.recipes.export_queue.letters import DeadLetters
from omidpy.recipes.export_queue.marks import Mark, Share
from omidpy.recipes.export_queue.queue import ExportQueue
from omidpy.recipes.export_queue.runner import Runner

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
