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
    with tempfile.TemporaryDirectory(
        prefix="omidpy-test-", dir=_memory(), ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


def _memory() -> Path | None:
    """Return a folder in memory that has room and keeps attributes of files, as S3 servers want."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < ROOM_BYTES:
        return None
    with tempfile.NamedTemporaryFile(dir=MEMORY) as file:
        try:
            os.setxattr(file.name, "user.omidpy", b"")
        except OSError:
            return None
    return MEMORY
