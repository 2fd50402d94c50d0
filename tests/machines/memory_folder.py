"""Folders in memory, for tests whose stores sync thousands of times.

A process that is killed loses nothing that it has written, synced or not, so that nothing is tried
less there: what a sync is good for only a machine without power could show.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
ROOM_BYTES: Final = 1 << 30
"""A container may have as little as 64 MB of it."""


@contextmanager
def memory_folder() -> Iterator[Path]:
    """Give an empty folder for a while, in memory if there is enough of it and else on the disk."""
    has_room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    with tempfile.TemporaryDirectory(
        prefix="omidpy-test-", dir=MEMORY if has_room else None, ignore_cleanup_errors=True
    ) as name:
        yield Path(name)
