"""What is inside the file, and how is it opened?  Format, connections, and errors in our words.

Invariants: a connection is used by one call at a time; none exists while the process forks; a file
of another program, or of a newer format, is never written, nor one that has lost its name, or its
log's, to another (`names.py`); nothing is written behind a gap in the log (`gaps.py`); none of
SQLite's own files but the log is opened or closed by us, since closing a descriptor drops the locks
SQLite holds through the others.

    omidpy_meta     format_version, store_id, durable_write_count; copied_from, copied_ms in a copy
    omidpy_tables   one row a table: id, never reused; name; schema as JSON; split points
    cells_<id>      the cells of table <id>, clustered in HBase's order
"""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from weakref import WeakSet

from omidpy.base.timing.clock import SystemClock
from omidpy.base.within import within
from omidpy.errors import ConfigError, StorageError, StorageUnavailable
from omidpy.storage.sqlite.gaps import Gaps, may_have_torn
from omidpy.storage.sqlite.handle import Handle, transact
from omidpy.storage.sqlite.leftover import check_log
from omidpy.storage.sqlite.lock import WriteLock
from omidpy.storage.sqlite.names import Named, check_only_name, unfinished_prefix
from omidpy.storage.sqlite.upgrade import STEPS, upgrade

T = TypeVar("T")

FORMAT_VERSION: Final = 1
APPLICATION_ID: Final = 0x4F4D4944
"""`OMID` in the file's header, for `file` and for us."""
CHECKPOINT_PAGES: Final = 4096
"""Pages in the write-ahead log, 16 MiB, at which a writer moves them into the file."""
LOG_LIMIT_BYTES: Final = 64 << 20
"""To what the log is cut when it starts over, which a writer sees to once it is longer."""
WRITES_PER_LOOK: Final = 16
"""How often a writer looks how long the log is, while that is less than half of its limit."""
READS_END_S: Final = 1.0
"""How long that one waits for those who read in the log; behind as much again the next one does."""
CACHE_KIB: Final = 8192
"""Page cache of a connection."""
MOST_IDLE: Final = 16
"""Connections of reads that are kept for later ones."""
MAX_IDLE_S: Final = 60.0
"""How long a connection of reads stays that nobody needs."""
READS_LOOK_S: Final = 0.1
"""How often reads look for what is open by its name: a look costs a tenth of a read."""

_LACKS: Final = (errno.EMFILE, errno.ENFILE)
"""What the system says where there is no descriptor for another file."""

_CREATE: Final = (
    "CREATE TABLE omidpy_meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID",
    """CREATE TABLE omidpy_tables (id INTEGER PRIMARY KEY AUTOINCREMENT,
       name TEXT NOT NULL UNIQUE, families TEXT NOT NULL, attributes TEXT NOT NULL,
       splits TEXT NOT NULL)""",
)


class StaleTable(Exception):
    """A remembered `cells_<id>` is gone: its table was dropped, perhaps by another process."""


SQLITE_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
"""What the library raises, also where a damaged file's text, or SQLite's about it, is no UTF-8."""


def translated(
    error: sqlite3.Error | UnicodeDecodeError,
    path: str,
    *,
    damaged: str = "restore it from a backup",
) -> Exception:
    """Return what to raise for one of `SQLITE_ERRORS`, in words that name the remedy.

    Args:
        error: The error.
        path: Of what was opened.
        damaged: The remedy where that is damaged.
    """
    text = str(error)
    if isinstance(error, UnicodeDecodeError):
        return StorageError(f"{path} is damaged ({text}); {damaged}")
    if text.startswith("no such table: cells_"):
        return StaleTable(text)
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    if name == "SQLITE_NOTADB":
        return ConfigError(f"{path} is not a store: {text}; give the path of a store, or a new one")
    if name.startswith("SQLITE_CORRUPT"):
        return StorageError(f"{path} is damaged ({text}); {damaged}")
    return StorageUnavailable(f"{path}: {_remedy(name)} ({name}: {text})")


def _remedy(name: str) -> str:
    if name == "SQLITE_FULL":
        return "the disk or quota is full; free space, then try again"
    if name.startswith("SQLITE_READONLY"):
        return "the file or its directory is read-only; make both writable for this user"
    if name.startswith("SQLITE_CANTOPEN"):
        return (
            "the file cannot be opened; make it and its directory, where SQLite keeps -wal and "
            "-shm, writable for this user, and allow more open files (ulimit -n) if too many are "
            "open"
        )
    if name.startswith("SQLITE_BUSY"):
        return "another program keeps the file locked; end its transaction (a sqlite3 shell?)"
    if name.startswith("SQLITE_IOERR"):
        return (
            "the system refused to read or write; look for a full disk, a file size limit "
            "(ulimit -f) or a failing device"
        )
    return "the store failed"


class Database:
    """The open file: connections to lend for reads, and one writer for each kind of durability.

    Safe to share among threads.  Reads run in parallel, each on a connection of its own.

    A connection is lent by taking it off the idle ones, and comes back if all went well.  One that
    was lent to a thread that was interrupted is not missed: it is forgotten, and so closed.
    """

    def __init__(self, path: str, *, must_exist: bool, lock_timeout_s: float) -> None:
        self.path: Final = os.path.realpath(path)
        try:
            self._check_path(path, must_exist=must_exist)
        except OSError as error:  # a folder that this user may not enter, a name that is too long
            raise ConfigError(f"the store {path} cannot be looked at: {error}") from error
        self._lock_timeout_s = lock_timeout_s
        self.write_lock: Final = WriteLock(f"{self.path}-lock", timeout_s=lock_timeout_s)
        self._is_closed = False
        self._name = Named(self.path)
        self._gaps = Gaps(self.path)
        self._log_bytes = LOG_LIMIT_BYTES
        """How long the log was when this process last looked; a first write looks."""
        self._write_count = 0
        make_private(Path(self.path))
        check_only_name(self.path)
        self._writers = {
            False: Handle(self._open, self._named_logs()),
            True: Handle(self._open_durable, self._named_logs()),
        }
        self._start_readers()

    def _start_readers(self) -> None:
        self._idle: deque[Handle] = deque()
        self._readers: WeakSet[Handle] = WeakSet()
        self._gate = threading.Lock()
        """Held while a reader is made, and during a fork."""
        self._suspended: list[Handle] = []

    def _named_logs(self) -> Named:
        return Named(f"{self.path}-wal", f"{self.path}-shm")

    def _check_path(self, path: str, *, must_exist: bool) -> None:
        folder = Path(self.path).parent
        if not folder.is_dir():
            raise ConfigError(
                f"there is no directory {folder} for the store {path}; make it, or correct the path"
            )
        if Path(self.path).is_dir():
            raise ConfigError(
                f"{path} is a directory; give the path of a file in it, such as {path}/store.db"
            )
        if must_exist and not Path(self.path).exists():
            raise ConfigError(f"there is no store {path}; correct the path, or make it first")

    # -- format -----------------------------------------------------------------------------------

    def prepare(self) -> str:
        """Create the format in an empty file, or check it; return the store's id.

        Raises:
            ConfigError: the file is of another program, or of a newer format; or the log beside it
                is of another store.
        """
        check_log(self.path)
        self.read(partial(check_schema, path=self.path))
        meta = self.read(read_meta)
        if meta is not None:
            check_format(meta, self.path)
        if (
            meta is None
            or meta.get("journal_mode") != "wal"
            or meta["format_version"] != FORMAT_VERSION
        ):
            meta = self._create()
            check_format(meta, self.path)
        return store_id_in(meta, self.path)

    def _create(self) -> dict[str, object]:
        """Make what is missing: all, a newer format, or the log, which others may have turned off.

        Raises:
            StorageUnavailable: the format must be upgraded, and another process has the file open.
        """
        meta = self._write(self._create_on, durable=True)
        assert meta is not None, "the format was created in the transaction before"
        return meta

    def _create_on(self, connection: sqlite3.Connection) -> dict[str, object] | None:
        self._check_is_ours(connection)
        self._upgrade(connection)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise ConfigError(
                f"{self.path} is where SQLite cannot share memory (journal mode {mode}); "
                "put the store on a local disk"
            )
        transact(connection, "BEGIN IMMEDIATE", _create_format)
        return read_meta(connection)

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        meta = read_meta(connection)
        if meta is None:
            return
        check_format(meta, self.path)
        found = meta["format_version"]
        assert isinstance(found, int), "checked before"
        if found == FORMAT_VERSION:
            return
        self._close_readers()  # ours would keep the file from being upgraded
        upgrade(connection, self.path, STEPS, found=found, wanted=FORMAT_VERSION)

    def _check_is_ours(self, connection: sqlite3.Connection) -> None:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master LIMIT 3")]
        if application_id not in (0, APPLICATION_ID) or (names and "omidpy_meta" not in names):
            raise ConfigError(
                f"{self.path} is a SQLite database of another program (tables {names!r}); "
                "give the path of a store, or a new one"
            )

    # -- use --------------------------------------------------------------------------------------

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on a connection of its own; the view it reads ends with it."""
        reader = self._an_idle_one()
        found = within(reader.in_use, self._read_on, reader, work)
        self._idle.append(reader)
        self._close_an_idle_one(reader.log.looked_s)
        return found

    def _close_an_idle_one(self, now_s: float) -> None:
        """Close the connection that was idle for longest, if that is long or they are many.

        Where many threads read at once there are as many, each with a cache; later ones take what
        was used last.  SQLite keeps the descriptor of the file itself for the next one to come.
        """
        try:
            is_enough = len(self._idle) > MOST_IDLE
            if not is_enough and now_s - self._idle[0].log.looked_s <= MAX_IDLE_S:
                return
            idle = self._idle.popleft()
        except IndexError:  # others have them all
            return
        if is_enough or now_s - idle.log.looked_s > MAX_IDLE_S:
            within(idle.in_use, idle.close)
        else:  # it came in the place of the one that was looked at
            self._idle.append(idle)

    def _close_idle(self) -> bool:
        """Close every connection that nobody reads by; say whether there was one."""
        count = 0
        with suppress(IndexError):
            while True:
                idle = self._idle.popleft()
                within(idle.in_use, idle.close)
                count += 1
        return count > 0

    def _read_on(self, reader: Handle, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read, unless what others write goes elsewhere than what is open (I8)."""
        log = reader.log
        now_s = SystemClock.monotonic_s()
        try:
            if now_s - log.looked_s >= READS_LOOK_S:
                self._name.check()
                log.check()
                log.looked_s = now_s
            done = reader.run(work)
        except BaseException as error:
            self._give_up(reader, error)
            raise
        if not log.is_noted:
            log.note()  # As for writers.
        return done

    def write(self, work: Callable[[sqlite3.Connection], T], *, durable: bool) -> T:
        """Run `work` in one write transaction: all that it did, or nothing."""
        return self._write(
            lambda connection: transact(connection, "BEGIN IMMEDIATE", work), durable=durable
        )

    def _write(self, work: Callable[[sqlite3.Connection], T], *, durable: bool) -> T:
        writer = self._writers[durable]
        work = partial(self._by_its_name, writer.log, work)
        try:
            return self.write_lock.run(partial(self._run, writer, work))
        except StorageUnavailable as error:
            # For the lock, or the folder, so that nothing was done.  It may be that reads have all
            # of them, which stay until others read: and whoever wants to asks an oracle first.
            if getattr(error.__cause__, "errno", 0) not in _LACKS or not self._close_idle():
                raise
        return self.write_lock.run(partial(self._run, writer, work))

    def _by_its_name(
        self, log: Named, work: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection
    ) -> T:
        """Write, unless what is open is not what others will open (I8)."""
        self._name.check()
        log.check()
        self._gaps.check()
        done = work(connection)
        log.note()  # From here on this connection keeps SQLite from removing them.
        return done

    def _run(self, handle: Handle, work: Callable[[sqlite3.Connection], T]) -> T:
        is_near = self._log_bytes > LOG_LIMIT_BYTES // 2
        before = self._limits_passed() if is_near else 0
        try:
            done = handle.run(work)
        except BaseException as error:
            if may_have_torn(error):
                self._close_gaps()
            self._give_up(handle, error)
            raise
        self._write_count += 1
        does_look = is_near or self._write_count % WRITES_PER_LOOK == 0
        if does_look and self._limits_passed() > before:
            # Of all writers of all processes this one alone: while that cannot be done, each would
            # wait for it, and the others for each.
            self._move_log(handle, self._begin_log_anew)
        elif handle is self._writers[False] and self._gaps.is_long(CHECKPOINT_PAGES):
            self._move_log(handle, _checkpoint)
        return done

    def _limits_passed(self) -> int:
        """Return how often the log has become longer by its limit since it started over."""
        self._log_bytes = self._gaps.length_bytes()
        return max(0, self._log_bytes - 1) // LOG_LIMIT_BYTES

    def _begin_log_anew(self, connection: sqlite3.Connection) -> None:
        """Move all of the log, and wait for those who read in it, so that it starts over.

        Where readers follow each other without a gap, each move ends at what the slowest one reads,
        and the log never starts over by itself.
        """
        _checkpoint_all(connection, wait_s=min(READS_END_S, self._lock_timeout_s))

    def _move_log(self, handle: Handle, move: Callable[[sqlite3.Connection], None]) -> None:
        """Move the log into the file, where SQLite would not tell of a sync that fails there.

        What was written is written, whatever comes of this: the next writer tries again.
        """
        try:
            handle.run(move)
        except SQLITE_ERRORS as error:
            if may_have_torn(error):
                self._close_gaps()
            handle.close()

    def _close_gaps(self) -> None:
        """See to it that nothing is synced behind a gap, and nothing moved into the file.

        In this order: where nobody else has the file open, to close the connection moves the log.
        """
        self._gaps.note()
        with suppress(StorageUnavailable):  # the next writer tries again
            self._gaps.close()

    def _give_up(self, handle: Handle, error: BaseException) -> None:
        """Close a connection that an error came from, and say the library's in our words."""
        handle.close()
        if isinstance(error, SQLITE_ERRORS):
            raise translated(error, self.path) from error

    def _an_idle_one(self) -> Handle:
        if self._gate.locked():
            # With enough readers there would always be one more, and a fork would wait for ever.
            within(self._gate, lambda: None)
        try:
            return self._idle.pop()
        except IndexError:
            return within(self._gate, self._new_reader)

    def _new_reader(self) -> Handle:
        reader = Handle(self._open, self._named_logs())
        self._readers.add(reader)
        return reader

    def _open(self, handle: Handle, *, durable: bool = False) -> None:
        if self._is_closed:
            raise self._closed_error()
        self._name.check()  # else SQLite makes an empty file where there is none
        handle.connect(
            self.path,
            timeout_s=self._lock_timeout_s,
            pragmas=(
                "trusted_schema = OFF",
                f"synchronous = {'FULL' if durable else 'NORMAL'}",
                f"cache_size = -{CACHE_KIB}",
                # SQLite tells nobody where such a move fails.  Behind a durable commit nothing is
                # left to sync, and the others see to it themselves (`_move_log`).
                f"wal_autocheckpoint = {CHECKPOINT_PAGES if durable else 0}",
                f"journal_size_limit = {LOG_LIMIT_BYTES}",
            ),
        )
        self._name.note()

    def _closed_error(self) -> StorageUnavailable:
        return StorageUnavailable(f"the store {self.path} is closed; open it again")

    def _open_durable(self, handle: Handle) -> None:
        self._open(handle, durable=True)
        # The names of the file and of its log must be durable, and `fsync` of a file need not see
        # to it.  A read makes SQLite create the log, which then stays while this one is open.
        handle.execute("SELECT count(*) FROM sqlite_master")
        sync_directory(Path(self.path).parent)

    # -- fork and close ---------------------------------------------------------------------------

    def suspend(self) -> None:
        """Wait for every call in flight, keep others out, and close every connection."""
        self.write_lock.suspend()
        self._gate.acquire()
        for reader in list(self._readers):
            reader.in_use.acquire()
            self._suspended.append(reader)
            reader.close()
        self._close_writers()

    def resume(self) -> None:
        """Undo `suspend`; connections are opened again by those who need them."""
        while self._suspended:
            self._suspended.pop().in_use.release()
        self._gate.release()
        self.write_lock.resume()

    def resume_in_child(self) -> None:
        """Undo `suspend` in a forked child, where threads that waited do not exist."""
        self._start_readers()
        self.write_lock.resume_in_child()

    def close(self) -> None:
        """Wait for every call in flight and close; later calls are refused."""
        self._is_closed = True
        self.write_lock.run_in_process(self._close_writers)
        within(self._gate, self._close_readers)

    def _close_writers(self) -> None:
        if self._writers[False].is_open:
            self.write_lock.run_if_free(self._sync_log)
        for writer in self._writers.values():
            writer.close()

    def _sync_log(self) -> None:
        """Sync the log ahead of the last connection, which does so in silence as it closes.

        Where another process writes this is not the last one, and nothing need be done.
        """
        try:
            self._gaps.sync()
        except OSError:
            self._close_gaps()

    def _close_readers(self) -> None:
        for reader in list(self._readers):
            within(reader.in_use, reader.close)


def make_private(path: Path) -> None:
    """Make an empty file that no other user can read, unless there is one.

    It gets its name when it is closed already: were another thread to open it meanwhile, closing
    ours would drop that one's locks.
    """
    # Whatever is wrong here SQLite says as well, and in more words.
    with suppress(OSError):
        if path.exists():
            return
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=unfinished_prefix(str(path)))
        os.close(descriptor)
        try:
            os.link(name, path)
        finally:
            Path(name).unlink()


def check_schema(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a file in which something is planted that runs when we read or write.

    Raises:
        ConfigError: naming it.
    """
    if read_meta(connection) is None:
        return  # of another program, which is said elsewhere, or empty
    query = "SELECT type, name FROM sqlite_master WHERE type NOT IN ('table', 'index') LIMIT 1"
    for kind, name in connection.execute(query):
        raise ConfigError(
            f"{path} has a {kind} {name!r}, which no store has and which may change what is read "
            f"and written; look who made it, and remove it with DROP {kind.upper()}"
        )


def store_id_in(meta: Mapping[str, object], path: str) -> str:
    """Return the store's id.

    Raises:
        ConfigError: there is none.
    """
    store_id = meta.get("store_id")
    if not isinstance(store_id, str) or not store_id:
        raise ConfigError(
            f"{path} is damaged: omidpy_meta has no store_id, but {store_id!r}; restore the store "
            "from a backup"
        )
    return store_id


def sync_directory(folder: Path) -> None:
    """Make the names in a directory durable.

    Raises:
        StorageUnavailable: it could not be opened or synced, which may pass: an oracle that writes
            a batch again does so with this, too.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a file system without directories to sync
                raise
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageUnavailable(
            f"the names in {folder} could not be made durable: {error.strerror}; make the "
            "directory readable for this user, and allow more open files (ulimit -n) if too many "
            "are open"
        ) from error


def check_format(meta: Mapping[str, object], path: str) -> None:
    """Refuse a format that a later version has made.

    Raises:
        ConfigError: naming both versions.
    """
    version = meta.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ConfigError(
            f"{path} has format version {version}, and this omidpy reads up to "
            f"{FORMAT_VERSION}; upgrade omidpy to the version that wrote it"
        )


def read_meta(connection: sqlite3.Connection) -> dict[str, object] | None:
    """Return the contents of omidpy_meta, and the journal mode; None if there is no such table."""
    try:
        meta = dict(connection.execute("SELECT name, value FROM omidpy_meta"))
        (meta["journal_mode"],) = connection.execute("PRAGMA journal_mode").fetchone()
        return meta
    except sqlite3.OperationalError as error:
        if str(error) == "no such table: omidpy_meta":
            return None
        raise


def _checkpoint(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _checkpoint_all(connection: sqlite3.Connection, *, wait_s: float) -> None:
    """Move all of the log, and wait until nobody reads in it, but no longer than that."""
    (timeout_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {round(1000 * wait_s)}").fetchall()
    connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    connection.execute(f"PRAGMA busy_timeout = {timeout_ms}").fetchall()


def force_sync(connection: sqlite3.Connection) -> None:
    """Change a page in the transaction, so that its commit writes to the log and syncs it.

    SQLite neither writes nor syncs a page that a transaction left as it was.  A durable write of
    cells that are there already, undurably, would then promise what it did not do.
    """
    connection.execute(
        "INSERT INTO omidpy_meta VALUES ('durable_write_count', 1)"
        " ON CONFLICT (name) DO UPDATE SET value = value + 1"
    )


def _create_format(connection: sqlite3.Connection) -> None:
    if read_meta(connection) is not None:
        return  # another process was faster
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for statement in _CREATE:
        connection.execute(statement)
    connection.executemany(
        "INSERT INTO omidpy_meta VALUES (?, ?)",
        [("format_version", FORMAT_VERSION), ("store_id", uuid.uuid4().hex)],
    )
