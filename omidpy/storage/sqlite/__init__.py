"""The embedded default: one file, many processes."""

from __future__ import annotations

from omidpy.storage.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
