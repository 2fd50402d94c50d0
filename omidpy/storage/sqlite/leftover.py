"""Is the log that lies beside a file its own?

SQLite believes it whatever store the file is: a file that was put in the place of another, whose
log a killed process has left, shows what is in that log, and has it written into it.  Of two
different stores the pages are then mixed.

A store has its id for ever, and a copy has one of its own.  So the file by itself has the same id
as the file with its log; where that is not so, nothing has been changed yet, and nothing is.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

from omidpy.errors import ConfigError

LOGS: Final = ("-wal", "-journal")
"""What SQLite may read together with a file."""


def left_logs(path: Path) -> list[Path]:
    """Return the logs that lie beside a name, and are not empty."""
    logs = (path.with_name(path.name + suffix) for suffix in LOGS)
    return [log for log in logs if _size_of(log)]


def check_log(path: str) -> None:
    """Refuse a file beside which the log of another store lies.

    Raises:
        ConfigError: naming both; neither was changed.

    Cost: 1 system call; where there is a log, the file is opened twice to be read.
    """
    if not _size_of(Path(f"{path}-wal")):
        return
    # What is written there meanwhile can be torn, and then tells nothing.
    by_itself = _id_in(path, "immutable=1")
    if by_itself is None:
        return
    # No connection that may not write writes the log into the file when it is closed.
    with_log = _id_in(path, "mode=ro")
    if with_log not in (None, by_itself):
        raise ConfigError(
            f"{path} is the store {by_itself}, and the log beside it, {path}-wal, is of the store "
            f"{with_log}: it was left when the file was put in the place of another. Stop every "
            f"process that has it open; to use the file as it is, move {path}-wal and {path}-shm "
            "away"
        )


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _id_in(path: str, how: str) -> str | None:
    """Return the id of a store as it is seen through some options; None if it is not seen."""
    with contextlib.suppress(sqlite3.Error, UnicodeDecodeError):
        uri = f"{Path(path).as_uri()}?{how}"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            query = "SELECT value FROM omidpy_meta WHERE name = 'store_id'"
            found = connection.execute(query).fetchone()
            return found[0] if found and isinstance(found[0], str) else None
    return None
