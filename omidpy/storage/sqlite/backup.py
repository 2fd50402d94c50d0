"""A consistent copy of a SQLite store, made while others read and write it.

The copy is what one moment left: SQLite's own backup over one pinned view of the file.  Everything
that omidpy knows is in that file, so the copy is a store that was cut off at that moment, which an
oracle starts on as after a crash: the timestamp ceiling in it lies above every timestamp in it.

The copy gets an id of its own.  What happens in the original afterwards never happened in the copy,
so that a token, an oracle or a client of the one must not be taken for one of the other.  For the
same reason rows are left out that speak of processes which serve the original.

It is written under another name and renamed when it is whole and durable.  It has no write-ahead
log, so that it is one file; what opens it as a store turns the log on.

Who fills it holds a lock on it, so that one that was left by a process that was killed, and is to
be removed, is told from one that is being filled.  And nobody gives away, or removes, what has the
other name by then and is not what it has filled.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from omidpy.errors import ConfigError, StorageError, StorageUnavailable
from omidpy.storage.sqlite.file import (
    SQLITE_ERRORS,
    Database,
    check_format,
    check_schema,
    read_meta,
    store_id_in,
    sync_directory,
    translated,
)
from omidpy.storage.sqlite.leftover import left_logs
from omidpy.storage.sqlite.names import PARTIAL
from omidpy.storage.sqlite.queries.cells import in_one_view

PAGES_AT_A_TIME: Final = 4096
"""16 MiB, between two reports of progress."""

ANOTHER_BACKUP: Final = "restore an earlier backup"

LOCK_TRIES: Final = 5
LOCK_PAUSE_S: Final = 0.01

Progress = Callable[[int, int], None]
"""Told how many pages were copied, and of how many."""


class Copied(NamedTuple):
    """What a backup has made: a copy with an id of its own."""

    store_id: str
    """The copy's own id."""
    copied_from: str
    """The id of the store it was made of."""
    size_bytes: int


Rows = Sequence[tuple[str, bytes]]
"""Tables, each with the key of a row."""


def copy_live(
    source: str, target: str, *, without: Rows = (), progress: Progress | None = None
) -> Copied:
    """Copy a store that others may be using.

    Until it is done SQLite keeps what they write in the write-ahead log, which grows meanwhile.

    Args:
        source: The store.
        target: The new file.
        without: Rows that the copy does not get.
        progress: Told how far it is.

    Raises:
        ConfigError: `source` is no store, or `target` exists.
        StorageError: the copy could not be made whole; nothing is left of it.
    """
    database = Database(source, must_exist=True, lock_timeout_s=10.0)
    try:
        database.prepare()
        copy = partial(_copy, source=source, target=target, without=without, progress=progress)
        return database.read(copy)
    finally:
        database.close()


def copy_backup(
    backup: str, target: str, *, without: Rows = (), progress: Progress | None = None
) -> Copied:
    """Copy a backup, which nobody writes and which may be on a read-only disk; see `copy_live`.

    Raises:
        ConfigError: `backup` is no store or of a newer format, or `target` exists.
        StorageError: the copy could not be made whole; nothing is left of it.
    """
    with _looked_at(backup):
        path = Path(backup).resolve()
        if not path.is_file():
            raise ConfigError(f"there is no backup {backup}; correct the path")
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
        ) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            return _copy(
                connection, source=backup, target=target, without=without, progress=progress
            )
    except SQLITE_ERRORS as error:
        raise translated(error, str(path), damaged=ANOTHER_BACKUP) from error


def _copy(
    connection: sqlite3.Connection,
    *,
    source: str,
    target: str,
    without: Rows,
    progress: Progress | None,
) -> Copied:
    with _looked_at(target):
        final = Path(target).absolute()
        partial_path = final.with_name(final.name + PARTIAL)
        if not final.parent.is_dir():
            raise ConfigError(f"there is no directory {final.parent} for {target}; make it")
        if final.exists():
            raise ConfigError(f"{final} exists already; name a new file, or remove it first")
        if partial_path.exists():
            raise ConfigError(_unfinished(partial_path))
        for log in left_logs(final):
            raise ConfigError(
                f"{log} was left by a file that was there before, and SQLite would take it for the "
                f"copy's; move it away first, and {final}-shm with it"
            )
        _check_room(connection, final)
    claim = _claim(partial_path)
    try:
        try:
            fill = partial(
                _fill, named=source, path=str(partial_path), without=without, progress=progress
            )
            copied = in_one_view(fill, connection)
            _check_own(partial_path, claim)
            _rename(partial_path, final)
        except BaseException as error:
            if isinstance(error, StorageError):
                _check_own(partial_path, claim)  # SQLite says of that that it may not write
            with contextlib.suppress(StorageError):  # why it failed says more
                _remove(partial_path, claim)
            raise
        _remove(partial_path, claim)
    finally:
        if claim is not None:
            os.close(claim)
    sync_directory(final.parent)
    return copied


def _check_room(source: sqlite3.Connection, target: Path) -> None:
    """Refuse to fill the disk with half a copy: where it is the store's, commits fail meanwhile.

    Raises:
        StorageUnavailable: there is less room than the copy takes.
    """
    ((page_bytes,), (page_count,)) = (
        source.execute(f"PRAGMA {one}").fetchone() for one in ("page_size", "page_count")
    )
    free_bytes = shutil.disk_usage(target.parent).free
    if page_bytes * page_count > free_bytes:
        raise StorageUnavailable(
            f"{target} would take {page_bytes * page_count:,} bytes, and there are "
            f"{free_bytes:,}; free space, or name a file on another disk"
        )


def _unfinished(partial_path: Path) -> str:
    """Say what a file is that has the name of an unfinished copy."""
    try:
        with partial_path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return (
            f"{partial_path} is being filled by another backup, or restore, at this moment; wait "
            "until that has ended, or name a new file"
        )
    except OSError:
        return f"{partial_path} exists already; name a new file"
    return (
        f"{partial_path} was left by a backup, or restore, that was killed; remove it, or name a "
        "new file"
    )


def _remove(partial_path: Path, claim: int | None) -> None:
    """Remove what is left of a copy, or the first of its two names, unless that is another's.

    Raises:
        StorageUnavailable: that was refused.
    """
    if not _is_own(partial_path, claim):
        return
    for path in (partial_path, partial_path.with_name(partial_path.name + "-journal")):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageUnavailable(f"remove {path}, which is left: {error.strerror}") from error


def _claim(path: Path) -> int | None:
    """Make the file that is filled, which no other user can read, unless somebody fills it.

    Two that filled one file would each tell of the other's copy, or of what it left of both.

    Returns:
        A descriptor of it, which holds its lock until it is closed.  That is for when SQLite has
        closed the file: to close one of its files drops its locks.  None: SQLite will say why.

    Raises:
        ConfigError: it was made by somebody else since it was looked for.
    """
    try:
        claim = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise ConfigError(f"{path} was made by somebody else meanwhile") from error
    except OSError:
        return None  # SQLite says the same, and in more words
    for _ in range(LOCK_TRIES):  # who looks whether it is held holds it for a moment
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            time.sleep(LOCK_PAUSE_S)  # it serves messages alone
    return claim


def _is_own(partial_path: Path, claim: int | None) -> bool:
    """Say whether a name still is that of the file that was claimed."""
    try:
        return claim is None or os.path.samestat(os.fstat(claim), partial_path.stat())
    except OSError:
        return False


def _check_own(partial_path: Path, claim: int | None) -> None:
    """Refuse to give away what is not what was filled: another copy, which may be half a one.

    Raises:
        StorageError: it was removed while it was filled, and perhaps made anew.
    """
    if not _is_own(partial_path, claim):
        raise StorageError(
            f"{partial_path} was removed, or replaced, while it was filled, so that there is no "
            "copy; begin again"
        )


@contextlib.contextmanager
def _looked_at(path: str) -> Iterator[None]:
    """Refuse a path that cannot be looked at: in a folder that is closed, or no file's name."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be looked at: {error}") from error


def _rename(old: Path, new: Path) -> None:
    """Give the copy its name; a file that has it meanwhile is never replaced.

    Raises:
        ConfigError: there is one.
        StorageUnavailable: the name could not be given.
    """
    try:
        os.link(old, new)
    except FileExistsError as error:
        raise _taken(new) from error
    except OSError:  # a file system without links, or a full one
        _rename_over_own(old, new)


def _rename_over_own(old: Path, new: Path) -> None:
    """Take the name first: a rename replaces what it finds, be it a store with commits in it."""
    try:
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        # Whoever opens that as a store from here on is told, at its next write, that it is none.
        old.rename(new)
    except FileExistsError as error:
        raise _taken(new) from error
    except OSError as error:
        raise StorageUnavailable(
            f"the copy could not get the name {new}: {error.strerror}; remove the file if it is "
            "empty, and try again"
        ) from error


def _taken(new: Path) -> ConfigError:
    return ConfigError(f"{new} was made by somebody else meanwhile")


def _fill(
    source: sqlite3.Connection,
    *,
    named: str,
    path: str,
    without: Rows,
    progress: Progress | None,
) -> Copied:
    """Copy the view that `source` has pinned, and make the copy a store of its own."""
    meta = read_meta(source)
    if meta is None:
        raise ConfigError("the file to copy is not a store; give the path of a store or a backup")
    check_format(meta, path)
    check_schema(source, path)
    copied_from = store_id_in(meta, path)
    store_id = uuid.uuid4().hex

    def report(_status: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)

    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as target:
            target.execute("PRAGMA trusted_schema = OFF")
            source.backup(target, pages=PAGES_AT_A_TIME, progress=report)
            target.execute("PRAGMA journal_mode = DELETE").fetchall()
            target.execute("PRAGMA synchronous = FULL")
            target.execute("BEGIN IMMEDIATE")
            target.executemany(
                "INSERT OR REPLACE INTO omidpy_meta VALUES (?, ?)",
                [
                    ("store_id", store_id),
                    ("copied_from", copied_from),
                    ("copied_ms", time.time_ns() // 1_000_000),
                ],
            )
            for table, row in without:
                _leave_out(target, table, row)
            target.execute("COMMIT")
            (verdict,) = target.execute("PRAGMA quick_check(1)").fetchone()
    except SQLITE_ERRORS as error:
        raise translated(error, path) from error
    if verdict != "ok":
        why = " ".join(str(verdict).split())
        raise StorageError(f"{named} is damaged ({why}), and was not copied; {ANOTHER_BACKUP}")
    return Copied(store_id, copied_from, Path(path).stat().st_size)


def _leave_out(target: sqlite3.Connection, table: str, row: bytes) -> None:
    for (number,) in target.execute("SELECT id FROM omidpy_tables WHERE name = ?", (table,)):
        target.execute(f"DELETE FROM cells_{int(number)} WHERE row_key = ?", (row,))  # noqa: S608 - a number
