"""Back a whole store up, and restore it.

Only stores in one file; HBase has snapshots and exports of its own.
"""

from __future__ import annotations

import os
from typing import Final

from omidpy.base.tables import CONTROL_TABLE
from omidpy.errors import ConfigError
from omidpy.facts.leadership import LEASE_FACT
from omidpy.storage.address import sqlite_path
from omidpy.storage.sqlite.backup import Copied, Progress, copy_backup, copy_live

_OF_PROCESSES: Final = ((CONTROL_TABLE, LEASE_FACT),)
"""What a copy does not get: the oracle of the original is none of its."""


def backup(url: str, target: str | os.PathLike[str], *, progress: Progress | None = None) -> Copied:
    """Copy an embedded store to a new file while clients and oracle go on.

    The copy holds every commit that was acknowledged before the call.  It is a store with an id of
    its own: it can be restored, or opened as it is.

    Args:
        url: The store.
        target: The new file.
        progress: Called with the pages copied so far and how many there are.

    Raises:
        ConfigError: `url` is no embedded store, or `target` exists.
        StorageError: the copy could not be made whole; nothing is left of it.
    """
    return copy_live(_embedded(url), os.fspath(target), without=_OF_PROCESSES, progress=progress)


def restore(
    source: str | os.PathLike[str], url: str, *, progress: Progress | None = None
) -> Copied:
    """Make a store of a backup, at an address where there is none.

    The store gets an id of its own again: clients and oracles of the original, and tokens that were
    handed out there, are refused.  The oracle starts above every timestamp in it.

    Args:
        source: The file that `backup` made.
        url: The new store.
        progress: As in `backup`.

    Raises:
        ConfigError: `source` is no backup, or there is a store at `url` already.
        StorageError: the copy could not be made whole; nothing is left of it.
    """
    return copy_backup(os.fspath(source), _embedded(url), without=_OF_PROCESSES, progress=progress)


def _embedded(url: str) -> str:
    if not url.startswith("sqlite:"):
        raise ConfigError(
            f"{url!r} is no embedded store (sqlite:///file.db); on HBase take snapshots, in the "
            "order that the guide to backups gives"
        )
    return sqlite_path(url)
