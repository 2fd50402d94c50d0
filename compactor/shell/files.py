"""Files that a run leaves behind: whole, or as they were before.

What is no file, such as a device or a pipe, is written to and keeps its name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from pathlib import Path

from omidpy.errors import UsageError


def check_file(option: str, target: str) -> None:
    """Refuse a file that could not be written.

    Raises:
        UsageError: naming it.
    """
    path = Path(target)
    try:
        is_wrong = path.is_dir() or not path.absolute().parent.is_dir()
    except OSError as error:  # in a folder that this user may not enter, or of a long name
        raise UsageError(f"{option} {target}: {error}") from error
    if is_wrong:
        raise UsageError(f"{option} {target}: no such directory, or a directory itself")


def put_file(target: str, content: bytes) -> None:
    """Put what a file has in the place of what it had, at once; or write it to a device or pipe.

    Raises:
        OSError: the disk is full, say, and the file is as it was.
    """
    path = Path(target)
    if _is_open_already(path):
        # What others have written there, such as our own stdout in a file, stays.
        with path.open("ab") as file:
            file.write(content)
    elif path.exists() and not path.is_file():
        path.write_bytes(content)
    else:
        _replace(path.resolve(), content)


def _is_open_already(path: Path) -> bool:
    """Say whether a name is that of a descriptor, as `/dev/stdout` and `/dev/fd/1` are."""
    while True:
        if path.parent.resolve().parts[:2] == ("/", "proc"):
            return True
        if not path.is_symlink():
            return False
        path = path.parent / path.readlink()


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_name(f".omidpy-{uuid.uuid4().hex}.tmp")
    try:
        file = draft.open("xb")
    except PermissionError:
        if not path.exists():
            raise
        path.write_bytes(content)  # in a folder where this user may make none
        return
    try:
        with file:
            file.write(content)
            file.flush()
            # Else a loss of power may leave the name to an empty file.
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            shutil.copymode(path, draft)
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
