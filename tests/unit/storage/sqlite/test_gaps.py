"""A sync of the log has failed; in `tests/integration/test_lost_pages.py` the power goes, too."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.model import FamilySchema, TableSchema
from omidpy.storage.sqlite import SqliteStore, file
from omidpy.storage.sqlite.gaps import Gaps, may_have_torn
from omidpy.storage.sqlite.lock import NOTE_BYTES, describe_holder
from omidpy.testing.contract import keys_of, put


class FailedSync(sqlite3.OperationalError):
    """What SQLite says of one."""

    sqlite_errorname = "SQLITE_IOERR_FSYNC"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the store is."""
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """Return a store with one table, and a log."""
    store = SqliteStore(path)
    store.create_table(TableSchema("t", [FamilySchema(b"cf")]))
    # From here on more than one connection has the log, which SQLite removes with the last one.
    assert keys_of(store.scan("t")) == []
    yield store
    store.close()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of what is written by us, and of what is synced."""
    written: list[str] = []
    pwrite, fsync = os.pwrite, os.fsync

    def name(descriptor: int) -> str:
        return Path(f"/proc/self/fd/{descriptor}").readlink().name

    def writes(descriptor: int, piece: bytes, place: int) -> int:
        if not name(descriptor).endswith("-lock"):
            written.append(f"{name(descriptor)} {place}")
        return pwrite(descriptor, piece, place)

    def syncs(descriptor: int) -> None:
        if not Path(f"/proc/self/fd/{descriptor}").is_dir():
            written.append(f"{name(descriptor)} synced")
        fsync(descriptor)

    monkeypatch.setattr(os, "pwrite", writes)
    monkeypatch.setattr(os, "fsync", syncs)
    return written


def _fail(store: SqliteStore) -> None:
    def work(_: sqlite3.Connection) -> None:
        raise FailedSync("disk I/O error")

    with pytest.raises(StorageUnavailable, match="SQLITE_IOERR_FSYNC"):
        store._file.write(work, durable=True)


def test_the_log_is_written_over_itself_at_once(
    store: SqliteStore, path: Path, written: list[str]
) -> None:
    """Nobody writes behind a gap, and no mark is left."""
    log = path.with_name("store.db-wal")
    before = log.read_bytes()
    _fail(store)
    assert written == ["store.db-wal 0", "store.db-wal synced"]
    assert log.read_bytes() == before
    assert path.with_name("store.db-lock").stat().st_size == NOTE_BYTES
    store.write({"t": [put(b"r", 1)]}, durable=True)
    assert len(written) == 2
    assert keys_of(store.scan("t")) == [b"r"]


def test_nothing_is_written_while_the_log_cannot_be(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch, written: list[str]
) -> None:
    """By no process, nor by a write that asks for no sync: it may move the log into the file."""
    lock = path.with_name("store.db-lock")
    with monkeypatch.context() as patch:

        def refuse(descriptor: int) -> None:
            if Path(f"/proc/self/fd/{descriptor}").readlink().name.endswith("-wal"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        patch.setattr(os, "fsync", refuse)
        _fail(store)
        assert lock.stat().st_size > NOTE_BYTES
        assert "writing" in describe_holder(str(lock))
        other = SqliteStore(path)
        for one in (store, other):
            for durable in (False, True):
                with pytest.raises(StorageUnavailable, match=r"store\.db-wal has failed, and it"):
                    one.write({"t": [put(b"r", 1)]}, durable=durable)
        assert keys_of(store.scan("t")) == []
    written.clear()
    other.write({"t": [put(b"r", 1)]})
    assert written == ["store.db-wal 0", "store.db-wal synced"]
    assert lock.stat().st_size == NOTE_BYTES
    assert keys_of(store.scan("t")) == [b"r"]
    other.close()


def test_a_process_that_cannot_set_the_mark_remembers(tmp_path: Path) -> None:
    """Its own writes come first, at least."""
    gaps = Gaps(str(tmp_path / "store.db"))
    gaps.note()  # there is no lock file
    (tmp_path / "store.db-wal").mkdir()
    with pytest.raises(StorageUnavailable, match="cannot be written again"):
        gaps.check()
    (tmp_path / "store.db-wal").rmdir()
    gaps.check()
    (tmp_path / "store.db-wal").mkdir()
    gaps.check()


@pytest.mark.parametrize(
    "error", [sqlite3.OperationalError("disk I/O error"), OSError(errno.EIO, "I/O"), ValueError()]
)
def test_other_errors_make_no_gaps(error: Exception) -> None:
    """A page that could not be written at all is no page that was taken."""
    assert not may_have_torn(error)


def test_a_log_that_nobody_syncs_stays_short(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is moved by us: where SQLite does that by itself, no failure of it is heard of."""
    monkeypatch.setattr(file, "CHECKPOINT_PAGES", 64)
    for number in range(64):
        store.write({"t": [put(b"%d" % number, 1, bytes(40_000))]})
    assert path.with_name("store.db-wal").stat().st_size < 128 * 4096
    limits: list[int] = []
    store._file._writers[False].run(
        lambda connection: limits.extend(*connection.execute("PRAGMA wal_autocheckpoint"))
    )
    assert limits == [0]


@contextmanager
def reads_without_a_gap(path: Path) -> Iterator[None]:
    """Let two readers take turns at ending a view and beginning the next, so that one stands."""
    is_over = threading.Event()
    turns = [threading.Semaphore(1), threading.Semaphore(0)]

    def begin(connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM omidpy_tables").fetchone()

    def read(own: threading.Semaphore, others: threading.Semaphore) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        begin(connection)
        while not is_over.is_set():
            own.acquire()
            connection.execute("COMMIT")
            begin(connection)
            others.release()
        connection.close()

    threads = [threading.Thread(target=read, args=pair) for pair in (turns, turns[::-1])]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for turn in turns:
            turn.release()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("durable", [False, True])
def test_a_log_in_which_somebody_always_reads_starts_over(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, durable: bool
) -> None:
    """Each move ends at what the oldest reader sees, so that it grew for as long as they read."""
    monkeypatch.setattr(file, "CHECKPOINT_PAGES", 16)
    monkeypatch.setattr(file, "LOG_LIMIT_BYTES", 256 << 10)
    store = SqliteStore(path)
    store.create_table(TableSchema("t", [FamilySchema(b"cf")]))
    lengths = []
    with reads_without_a_gap(path):
        for number in range(64):
            store.write({"t": [put(b"%d" % number, 1, bytes(40_000))]}, durable=durable)
            lengths.append(path.with_name("store.db-wal").stat().st_size)
    assert max(lengths) < 1 << 20
    assert len(keys_of(store.scan("t"))) == 64
    store.close()


def test_a_reader_that_stands_still_holds_few_writers_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it reads in the log that cannot start over: one waits each time it grows by as much.

    However many processes write, each of them little.
    """
    monkeypatch.setattr(file, "CHECKPOINT_PAGES", 16)
    monkeypatch.setattr(file, "LOG_LIMIT_BYTES", 256 << 10)
    waits_s: list[float] = []
    checkpoint = file._checkpoint_all

    def note(connection: sqlite3.Connection, *, wait_s: float) -> None:
        waits_s.append(wait_s)
        checkpoint(connection, wait_s=0.001)

    monkeypatch.setattr(file, "_checkpoint_all", note)
    first = SqliteStore(path)
    first.create_table(TableSchema("t", [FamilySchema(b"cf")]))
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM omidpy_tables").fetchone()
    for number in range(32):
        store = SqliteStore(path)
        store.write({"t": [put(b"%d" % number, 1, bytes(40_000))]})
        store.close()
    log_bytes = path.with_name("store.db-wal").stat().st_size
    assert log_bytes > 1 << 20
    assert len(waits_s) == log_bytes // (256 << 10)
    assert set(waits_s) == {file.READS_END_S}
    reader.close()
    first.write({"t": [put(b"s", 1)]})
    first.write({"t": [put(b"s", 2)]})
    assert path.with_name("store.db-wal").stat().st_size <= 256 << 10
    first.close()


def test_a_log_that_began_anew_is_short(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file stays as long as it was."""
    monkeypatch.setattr(file, "CHECKPOINT_PAGES", 64)
    assert not store._file._gaps.is_long(64)
    store.write({"t": [put(b"r", 1, bytes(400_000))]})
    assert store._file._gaps.is_long(64), "it was moved, and has not begun anew"
    store.write({"t": [put(b"s", 1)]})
    assert not store._file._gaps.is_long(64)
    assert path.with_name("store.db-wal").stat().st_size > 64 * 4096


@pytest.mark.parametrize("error", [FailedSync("I/O"), sqlite3.OperationalError("full")])
def test_a_log_that_cannot_be_moved_fails_no_write(
    store: SqliteStore,
    monkeypatch: pytest.MonkeyPatch,
    written: list[str],
    error: sqlite3.OperationalError,
) -> None:
    """What was written is written; only a failed sync makes gaps, which are closed."""

    def fails(_: sqlite3.Connection) -> None:
        raise error

    monkeypatch.setattr(file, "CHECKPOINT_PAGES", 64)
    monkeypatch.setattr(file, "_checkpoint", fails)
    store.write({"t": [put(b"r", 1, bytes(400_000))]})
    assert ("store.db-wal synced" in written) == may_have_torn(error)
    assert keys_of(store.scan("t")) == [b"r"]


def test_a_failed_sync_at_the_end_is_noted(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the last connection SQLite moves the log, and says nothing where that fails."""
    store.write({"t": [put(b"r", 1)]})

    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        store.close()
    assert path.with_name("store.db-lock").stat().st_size > NOTE_BYTES
