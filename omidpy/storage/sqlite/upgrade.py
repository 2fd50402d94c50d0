"""From an older format of the file to this one, step by step.

`STEPS` has, for each older format version, the function that makes the next one of it, inside one
SQLite transaction: an upgrade that is interrupted has not happened.  There is none yet, since
version 1 is the first.  A released step is never changed, because files that it made exist.

An upgrade needs the file for itself.  A process of the older version that had it open would go on
writing the older format; so the write-ahead log is turned off first, which SQLite refuses while
anybody else has the file open, and whoever opens it next finds the new version number.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from omidpy.errors import ConfigError, StorageUnavailable
from omidpy.storage.sqlite.handle import transact

log = logging.getLogger(__name__)

Step: TypeAlias = Callable[[sqlite3.Connection], None]
"""Makes of a file of one version a file of the next; changes neither version nor journal."""

STEPS: Final[dict[int, Step]] = {}


def upgrade(
    connection: sqlite3.Connection, path: str, steps: Mapping[int, Step], *, found: int, wanted: int
) -> None:
    """Bring a file from one format version to another.

    The caller holds the write lock and turns the write-ahead log on again.

    Args:
        connection: The one connection that this process has to the file.
        path: Its name, for messages.
        steps: The step from each version to the next.
        found: The version that the file has.
        wanted: The version to make.

    Raises:
        ConfigError: it is too old for this omidpy; nothing was changed.
        StorageUnavailable: somebody else has it open; nothing was changed.
    """
    missing = [version for version in range(found, wanted) if version not in steps]
    if missing:
        raise ConfigError(
            f"{path} has format version {found}, which this omidpy cannot upgrade to {wanted}; "
            "open it once with an omidpy in between"
        )
    _take_alone(connection, path)

    def change(connection: sqlite3.Connection) -> None:
        for version in range(found, wanted):
            steps[version](connection)
        connection.execute(
            "UPDATE omidpy_meta SET value = ? WHERE name = 'format_version'", (wanted,)
        )

    transact(connection, "BEGIN EXCLUSIVE", change)
    log.warning("%s was upgraded from format version %d to %d", path, found, wanted)


def _take_alone(connection: sqlite3.Connection, path: str) -> None:
    try:
        (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    except sqlite3.OperationalError as error:
        if not getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
            raise
        mode = "wal"
    if mode == "wal":
        raise StorageUnavailable(
            f"{path} has an older format and must be upgraded, but another program has it open; "
            "stop every process that uses the store, tso-server among them, and open it again"
        )
