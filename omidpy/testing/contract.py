"""The tests that hold every backend to what `omidpy.storage.base.Store` says.

A backend's test inherits `StoreContract` and supplies a `store` fixture that yields a fresh, empty
store; where the store outlives its object, it also overrides `reopen`.  Every sentence of the
protocol has a test in one of the chapters.  What a backend may lack is asked of
`store.capabilities`, and then its refusal is what is tested; nothing is skipped.

Not promised, hence not tested: a put at a version that was deleted before (HBase hides it), and
what a check for absence makes of an empty value (HBase reads it as absent).

Needs pytest, and nothing of the backend but the protocol.
"""

from __future__ import annotations

from omidpy.testing.chapters.basics import (
    CF,
    COLUMN,
    OTHER,
    TABLE,
    Q,
    delete,
    in_threads,
    keys_of,
    put,
    rows_of,
    scan,
    seen_by_scan,
)
from omidpy.testing.chapters.conditions import Conditions
from omidpy.testing.chapters.life import Life
from omidpy.testing.chapters.reads import Portions, Reads
from omidpy.testing.chapters.tables import Tables
from omidpy.testing.chapters.writes import Writes

__all__ = [
    "CF",
    "COLUMN",
    "OTHER",
    "TABLE",
    "Q",
    "StoreContract",
    "delete",
    "in_threads",
    "keys_of",
    "put",
    "rows_of",
    "scan",
    "seen_by_scan",
]


class StoreContract(Tables, Reads, Portions, Writes, Conditions, Life):
    """Every sentence of the `Store` protocol, as a test."""
