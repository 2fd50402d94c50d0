"""What is particular to the SQLite store: durability, refusals at open, pages, the log."""

from __future__ import annotations

import errno
import gc
import math
import os
import sqlite3
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omidpy.base.timing.clock import SystemClock
from omidpy.errors import ConfigError, NoSuchTable, StorageError, StorageUnavailable
from omidpy.model import Column, FamilySchema, KeyRange, TableSchema
from omidpy.storage.base import CellGroup, Condition, GuardedMutation, RowMutation
from omidpy.storage.sqlite import SqliteStore, file
from omidpy.storage.sqlite.file import FORMAT_VERSION, StaleTable
from omidpy.storage.sqlite.queries import newest
from omidpy.testing.contract import delete, in_threads, keys_of, put
from tests.machines.scripts import Child


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the store is."""
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """Return a store with one table."""
    store = SqliteStore(path, lock_timeout_s=5)
    store.create_table(TableSchema("t", [FamilySchema(b"cf")]))
    yield store
    store.close()


# -- opening --------------------------------------------------------------------------------------


def test_the_file_says_what_it_is(store: SqliteStore, path: Path) -> None:
    """`file store.db` and SQLite's shell show whose it is; readers never wait for writers."""
    del store
    other = sqlite3.connect(path)
    assert other.execute("PRAGMA application_id").fetchone() == (int.from_bytes(b"OMID"),)
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other.close()


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    """The remedy is to make it."""
    with pytest.raises(ConfigError, match=r"no directory .*nowhere.*make it"):
        SqliteStore(tmp_path / "nowhere" / "store.db")


def test_a_directory_is_no_store(tmp_path: Path) -> None:
    """The message proposes a file in it."""
    with pytest.raises(ConfigError, match="is a directory"):
        SqliteStore(tmp_path)


@pytest.mark.parametrize("must_exist", [False, True])
def test_a_path_that_cannot_be_looked_at_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, must_exist: bool
) -> None:
    """In a folder that this user may not enter, or of a name that is too long."""
    with pytest.raises(ConfigError, match=r"cannot be looked at.*too long"):
        SqliteStore(tmp_path / ("x" * 300), must_exist=must_exist)

    def refuse(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_dir", refuse)
    with pytest.raises(ConfigError, match=r"cannot be looked at.*Permission denied"):
        SqliteStore(tmp_path / "store.db", must_exist=must_exist)


def test_a_store_that_must_exist_is_not_made(path: Path) -> None:
    """A reader with a wrong path must not leave an empty store behind."""
    with pytest.raises(ConfigError, match="there is no store"):
        SqliteStore(path, must_exist=True)
    assert not path.exists()


def test_another_kind_of_file_is_left_alone(path: Path) -> None:
    """Not a database at all."""
    path.write_bytes(b"a letter to a friend\n" * 1000)
    with pytest.raises(ConfigError, match="is not a store"):
        SqliteStore(path)
    assert path.read_bytes() == b"a letter to a friend\n" * 1000


@pytest.mark.parametrize("statement", ["CREATE TABLE songs (name)", "PRAGMA application_id = 7"])
def test_a_database_of_another_program_is_left_alone(path: Path, statement: str) -> None:
    """A SQLite file is not ours for being one."""
    other = sqlite3.connect(path)
    other.execute(statement)
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="another program"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_newer_format_is_refused_with_both_versions(store: SqliteStore, path: Path) -> None:
    """And nothing is written, not even the journal mode."""
    store.close()
    other = sqlite3.connect(path)
    newer = FORMAT_VERSION + 1
    other.execute("UPDATE omidpy_meta SET value = ? WHERE name = 'format_version'", (newer,))
    other.commit()
    other.execute("PRAGMA journal_mode = DELETE")
    other.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=rf"version {newer}.*up to {FORMAT_VERSION}.*upgrade"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_format_version_that_is_no_number_is_refused(store: SqliteStore, path: Path) -> None:
    """A later format may count otherwise."""
    store.close()
    other = sqlite3.connect(path)
    other.execute("UPDATE omidpy_meta SET value = '2a' WHERE name = 'format_version'")
    other.commit()
    other.close()
    with pytest.raises(ConfigError, match="2a"):
        SqliteStore(path)


def test_a_store_without_its_log_gets_it_back(store: SqliteStore, path: Path) -> None:
    """Another program may have turned write-ahead logging off."""
    identity = store.store_id
    store.close()
    other = sqlite3.connect(path)
    other.execute("PRAGMA journal_mode = DELETE")
    other.close()
    again = SqliteStore(path)
    assert again.store_id == identity
    assert again.schema("t").name == "t"
    again.close()
    other = sqlite3.connect(path)
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other.close()


def test_two_names_of_a_file_are_one_store(store: SqliteStore, path: Path) -> None:
    """Locks and id go by the file, not by the name it was opened with."""
    link = path.with_name("link.db")
    link.symlink_to(path)
    other = SqliteStore(link)
    assert other.store_id == store.store_id
    held = store.lock("oracle", purpose="the first")
    with pytest.raises(StorageUnavailable, match="the first"):
        other.lock("oracle", purpose="the second")
    held.release()
    other.close()


def test_a_failed_open_leaves_nothing_open(path: Path) -> None:
    """Descriptors that stay behind would add up in a process that tries again."""
    path.write_bytes(b"x" * 5000)
    before = list(Path("/proc/self/fd").iterdir())
    with pytest.raises(ConfigError):
        SqliteStore(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == len(before)


# -- weather --------------------------------------------------------------------------------------


def test_a_full_disk_is_named_and_leaves_nothing_half_done(store: SqliteStore) -> None:
    """SQLite's own page limit gives the error that a full disk gives."""
    store.write({"t": [put(b"before", 1)]}, durable=False)

    def limit(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA max_page_count = 1").fetchall()

    store._file.write(limit, durable=False)
    with pytest.raises(StorageUnavailable, match=r"full.*free space"):
        store.write({"t": [put(b"a", 1, bytes(1 << 20)), put(b"b", 1)]})
    assert keys_of(store.scan("t")) == [b"before"]
    store.write({"t": [put(b"after", 1)]}, durable=True)
    assert keys_of(store.scan("t")) == [b"after", b"before"]


FILE_LIMIT = """
import resource, sys
from omidpy.errors import StorageUnavailable
from omidpy.storage.base import CellGroup, Condition, GuardedMutation, RowMutation
from omidpy.storage.sqlite import SqliteStore, file
from omidpy.testing.contract import put
store = SqliteStore(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    for number in range(100):
        store.write({"t": [put(b"%03d" % number, 1, bytes(50_000))]})
except StorageUnavailable as error:
    print(error, flush=True)
print(len([row for page in store.scan("t") for row in page]) == number, flush=True)
"""


def test_a_file_size_limit_is_named(store: SqliteStore, path: Path) -> None:
    """What was written before it is whole."""
    with Child(FILE_LIMIT, path) as child:
        assert "file size limit" in child.line()
        assert child.line() == "True"
        assert child.wait() == 0
    assert all(len(row) == 1 for page in store.scan("t") for row in page)


READ_ONLY = """
import os, sys
from omidpy.errors import OmidError
from omidpy.storage.base import CellGroup, Condition, GuardedMutation, RowMutation
from omidpy.storage.sqlite import SqliteStore, file
from omidpy.testing.contract import put
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    store = SqliteStore(sys.argv[1])
    store.write({"t": [put(b"r", 1)]})
except OmidError as error:
    print(type(error).__name__, error, flush=True)
else:
    print("no error", flush=True)
"""


@pytest.mark.parametrize("what", ["new", "directory", "file"])
def test_a_read_only_place_is_named(what: str) -> None:
    """Asked as a user to whom modes apply; root is not one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "store.db")
        if what != "new":
            made = SqliteStore(path)
            made.create_table(TableSchema("t", [FamilySchema(b"cf")]))
            made.close()
            path.chmod(0o444 if what == "file" else 0o666)
            lock = Path(f"{path}-lock")
            lock.chmod(0o666)
        Path(folder).chmod(0o777 if what == "file" else 0o555)
        try:
            with Child(READ_ONLY, path) as child:
                said = child.line()
                assert said.startswith("StorageUnavailable")
                assert str(path) in said
                assert "writable" in said
        finally:
            Path(folder).chmod(stat.S_IRWXU)


def test_a_damaged_file_is_named(store: SqliteStore, path: Path) -> None:
    """Not a plain SQLite error somewhere in a transaction."""
    store.write({"t": [put(b"%06d" % number, 1, bytes(100)) for number in range(5000)]})
    store.close()
    data = bytearray(path.read_bytes())
    data[20 * 4096 : 60 * 4096] = b"\xa5" * (40 * 4096)
    path.write_bytes(data)
    again = SqliteStore(path)
    with pytest.raises(StorageError, match=r"damaged.*backup"):
        list(again.scan("t"))
    again.close()


def test_a_lost_table_of_cells_is_damage_not_an_endless_search(store: SqliteStore) -> None:
    """A name that fails is looked up afresh once; the same name again is damage."""
    store.write({"t": [put(b"r", 1)]})
    store._file.write(
        lambda connection: connection.execute("DROP TABLE cells_1").close(), durable=False
    )
    with pytest.raises(StorageError, match="damaged"):
        store.get("t", [b"r"])
    with pytest.raises(StorageError, match="damaged"):
        store.write({"t": [put(b"r", 1)]})


def test_a_busy_stranger_is_named(store: SqliteStore, path: Path) -> None:
    """A sqlite3 shell with an open transaction does not know of our lock."""
    store.close()
    quick = SqliteStore(path, lock_timeout_s=0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageUnavailable, match="another program"):
        quick.write({"t": [put(b"r", 1)]})
    other.execute("ROLLBACK")
    other.close()
    quick.write({"t": [put(b"r", 1)]})
    quick.close()


# -- what is remembered ---------------------------------------------------------------------------


def test_ids_of_tables_are_never_used_again(store: SqliteStore) -> None:
    """What is remembered of a dropped table must fail, never find another one's cells."""
    store.drop_table("t")
    store.create_table(TableSchema("u", [FamilySchema(b"cf")]))
    assert store._physical("u").cells == "cells_2"
    with pytest.raises(StaleTable):
        store._file.read(lambda connection: connection.execute("SELECT * FROM cells_1").fetchall())


def test_a_write_to_a_table_replaced_elsewhere_goes_to_the_new_one(
    store: SqliteStore, path: Path
) -> None:
    """Both tables of the batch, though only one was replaced, and exactly once."""
    store.create_table(TableSchema("u", [FamilySchema(b"cf")]))
    store.write({"t": [put(b"r", 1)], "u": [put(b"r", 1)]})
    other = SqliteStore(path)
    other.drop_table("u")
    with pytest.raises(NoSuchTable):
        store.write({"t": [put(b"s", 1)], "u": [put(b"s", 1)]})
    assert keys_of(other.scan("t")) == [b"r"]
    other.create_table(TableSchema("u", [FamilySchema(b"cf")]))
    store.write({"t": [put(b"s", 1)], "u": [put(b"s", 1)]})
    assert keys_of(other.scan("t")) == [b"r", b"s"]
    assert keys_of(other.scan("u")) == [b"s"]
    other.close()


# -- pages and the log ----------------------------------------------------------------------------


def test_pages_are_bounded_by_bytes(store: SqliteStore) -> None:
    """A thousand large rows must not be in memory at once."""
    for number in range(24):
        store.write({"t": [put(b"%02d" % number, 1, bytes(1 << 20))]})
    for reverse in (False, True):
        pages = list(store.scan("t", page_rows=1000, reverse=reverse))
        assert max(map(len, pages)) <= 5
        keys = [row[0].row for page in pages for row in page]
        assert keys == sorted((b"%02d" % number for number in range(24)), reverse=reverse)


def test_the_log_does_not_grow_with_a_scan_half_read(store: SqliteStore, path: Path) -> None:
    """A scan that pinned its view would keep the log from starting over."""
    store.write({"t": [put(b"%05d" % number, 1) for number in range(100)]})
    scan = store.scan("t", page_rows=10)
    next(scan)
    for number in range(40):
        store.write({"t": [put(b"%05d" % (100 + number), 1, bytes(1 << 20))]})
    assert path.with_name("store.db-wal").stat().st_size < 24 << 20
    assert len([row for page in scan for row in page]) == 130


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_queries_read_a_range_and_sort_nothing(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """A page must stream in key order, in both directions, whatever is selected.

    Whether they read on through older versions or seek.
    """
    monkeypatch.setattr(newest, "FIRST_CELLS", 2)
    monkeypatch.setattr(newest, "MAX_SURPLUS", share)
    store.write({"t": [put(b"r", version) for version in range(1, 9)]})
    plans: list[str] = []
    other = sqlite3.connect(path)

    def explain(statement: str) -> None:
        if statement.startswith(("SELECT", "WITH")):
            rows = other.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
            plans.extend(row[3] for row in rows)

    store._file.read(lambda connection: connection.set_trace_callback(explain))
    store.get("t", [b"r"], max_versions=1)
    store.get("t", [b"r", b"s"], columns=[(b"cf", b"q"), (b"cf", None)], max_versions=2)
    store.get("t", [b"r"], columns=[(b"cf", b"q"), (b"cf", b"z")], max_versions=2)
    for reverse in (False, True):
        list(store.scan("t", reverse=reverse))
        list(store.scan("t", columns=[(b"cf", b"q")], max_versions=1, reverse=reverse))
        list(
            store.scan_pairs(
                "t", KeyRange(), columns=None, max_version=9, page_rows=9, reverse=reverse
            )
        )
    other.close()
    # `at`, `keys` and `w` are what a query makes itself: columns, rows and names.
    made = ("SCAN at", "SCAN keys", "SCAN w", "SCAN json_each", "SCAN CONSTANT", "SCAN 2 CONSTANT")
    looks = [plan for plan in plans if plan.startswith(("SEARCH", "SCAN"))]
    searches = [plan for plan in looks if not plan.startswith(made)]
    assert len(searches) >= 7
    assert all("USING PRIMARY KEY" in plan for plan in searches)
    assert all(plan.startswith("SEARCH") for plan in searches)
    assert not [plan for plan in plans if "B-TREE" in plan]
    assert any(plan.startswith("SCAN at") for plan in plans) == (share == 0.0)


# -- durability -----------------------------------------------------------------------------------


def test_only_durable_writes_sync(store: SqliteStore) -> None:
    """`synchronous` is FULL on one connection alone: the oracle's and FATE's writes."""
    store.write({"t": [put(b"r", 1)]})
    store.write({"t": [put(b"r", 2)]}, durable=True)
    levels = {
        durable: store._file.write(
            lambda connection: connection.execute("PRAGMA synchronous").fetchone()[0],
            durable=durable,
        )
        for durable in (False, True)
    }
    assert levels == {False: 1, True: 2}


def read_at_once(store: SqliteStore, count: int) -> None:
    """Let so many threads read, each of which ends when all have begun."""
    all_read = threading.Barrier(count)

    def read() -> None:
        store._file.read(lambda _: all_read.wait(10))

    in_threads([read] * count)


def test_connections_that_a_burst_of_threads_has_left_are_closed(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has up to 8 MiB, and a descriptor beside one that SQLite keeps for the next to come."""
    store.write({"t": [put(b"r", 1)]})
    assert keys_of(store.scan("t")) == [b"r"]

    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    read_at_once(store, 8)
    assert len(store._file._idle) == 8
    most = open_files()
    assert keys_of(store.scan("t")) == [b"r"]
    assert len(store._file._idle) == 8, "another burst may follow"
    later_s = SystemClock.monotonic_s() + file.MAX_IDLE_S + 1
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda: later_s)
    for _ in range(8):
        assert keys_of(store.scan("t")) == [b"r"]
    assert len(store._file._idle) == 1
    assert open_files() <= most - 7
    read_at_once(store, 8)
    assert open_files() <= most
    assert keys_of(store.scan("t")) == [b"r"]


def test_few_connections_are_kept_of_a_burst(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: what else the process opens needs descriptors, too."""
    monkeypatch.setattr(file, "MOST_IDLE", 3)
    store.write({"t": [put(b"r", 1)]})
    read_at_once(store, 8)
    assert len(store._file._idle) == 3
    assert keys_of(store.scan("t")) == [b"r"]


def test_a_write_takes_a_descriptor_from_connections_that_rest(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads had them all, and gave none back: no begin found one, and so no read came any more."""
    store.write({"t": [put(b"r", 1)]})
    read_at_once(store, 2)
    assert len(store._file._idle) == 2
    really = os.open

    def open_if_there_is_one(name: str, flags: int, *mode: int) -> int:
        if str(name).endswith("-lock") and store._file._idle:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return really(name, flags, *mode)

    monkeypatch.setattr(os, "open", open_if_there_is_one)
    store.write({"t": [put(b"s", 1)]}, durable=True)
    assert keys_of(store.scan("t")) == [b"r", b"s"]


def test_a_write_for_which_there_is_no_descriptor_at_all_is_refused(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried once more, and not for ever."""

    def refuse(name: str, flags: int, *mode: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    assert keys_of(store.scan("t")) == []
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        for _ in range(2):
            with pytest.raises(StorageUnavailable, match="Too many open files"):
                store.write({"t": [put(b"s", 1)]})


def test_the_name_of_the_log_is_made_durable(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A synced file whose directory entry is lost with the power is lost too."""
    store.close()
    again = SqliteStore(path)
    synced: list[Path] = []

    def fsync(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())
        assert path.with_name("store.db-wal").exists()

    monkeypatch.setattr(os, "fsync", fsync)
    again.write({"t": [put(b"r", 1)]})
    assert synced == []
    again.write({"t": [put(b"r", 1)]}, durable=True)
    assert synced == [path.parent]
    again.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES])
def test_a_directory_that_cannot_be_synced_now_may_be_later(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """An oracle writes its batch again; any other error than of the store's ends it."""
    store.close()
    again = SqliteStore(path)

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageUnavailable, match=f"durable: {os.strerror(number)}"):
        again.write({"t": [put(b"r", 1)]}, durable=True)
    monkeypatch.undo()
    again.write({"t": [put(b"r", 1)]}, durable=True)
    again.close()


@pytest.mark.parametrize("is_there", [False, True])
def test_a_durable_group_of_cells_reaches_the_log(
    store: SqliteStore, path: Path, *, is_there: bool
) -> None:
    """Also where an earlier attempt has put all of them, undurably, and where nothing changes."""
    cells = {"t": [(b"r", b"cf", b"q", 1, b"v"), (b"s", b"cf", b"q", 1, b"v")]}
    group = CellGroup(cells, Condition("t", b"forbidden", Column(b"cf", b"q"), None))
    if is_there:
        assert store.write_guarded([group]) == [True]
    before = path.with_name("store.db-wal").stat().st_size
    assert store.write_guarded([group], durable=True) == [True]
    between = path.with_name("store.db-wal").stat().st_size
    assert between > before
    nothing = GuardedMutation("t", delete(b"absent", 1))
    assert store.write_guarded([nothing], durable=True) == [True]
    assert path.with_name("store.db-wal").stat().st_size > between


@pytest.mark.parametrize("mutations", [[], [delete(b"absent", 1)], [put(b"r", 1)]])
def test_a_durable_write_that_changes_nothing_still_reaches_the_log(
    store: SqliteStore, path: Path, mutations: list[RowMutation]
) -> None:
    """It answers for every write before it, and SQLite syncs only when it wrote."""
    store.write({"t": [put(b"r", 1)]})
    before = path.with_name("store.db-wal").stat().st_size
    store.write({"t": mutations}, durable=True)
    assert path.with_name("store.db-wal").stat().st_size > before


def test_a_durable_check_that_rewrites_its_cell_still_reaches_the_log(
    store: SqliteStore, path: Path
) -> None:
    """A retry after a lost answer puts the same bytes, perhaps over an undurable write."""
    store.write({"t": [put(b"r", 1)]})
    before = path.with_name("store.db-wal").stat().st_size
    assert store.check_and_mutate("t", b"r", Column(b"cf", b"q"), b"v", put(b"r", 1), durable=True)
    assert path.with_name("store.db-wal").stat().st_size > before


# -- threads --------------------------------------------------------------------------------------


def test_a_read_behind_a_close_is_told_of_the_close(store: SqliteStore) -> None:
    """And not that the log is gone, which the last connection takes with it."""
    store.get("t", [b"r"])
    store.close()
    for reader in store._file._idle:
        reader.log.looked_s = -math.inf  # as it is a moment later
    with pytest.raises(StorageUnavailable, match="is closed"):
        store.get("t", [b"r"])


def test_a_close_waits_for_calls_in_flight(store: SqliteStore, path: Path) -> None:
    """A connection that comes back after the close would stay open for ever."""
    store.write({"t": [put(b"%05d" % number, 1, bytes(200)) for number in range(2000)]})
    refused: list[StorageUnavailable] = []

    def read() -> None:
        try:
            while True:
                assert len(keys_of(store.scan("t", page_rows=100))) == 2000
        except StorageUnavailable as error:
            refused.append(error)

    in_threads([read, read, store.close])
    assert len(refused) == 2
    assert all("closed" in str(error) for error in refused)
    assert not is_open(path)


def test_no_read_begins_while_a_close_or_fork_waits_for_others(store: SqliteStore) -> None:
    """With enough readers there would always be one more, and the fork would wait for ever."""
    answers: list[object] = []
    store.write({"t": [put(b"r", 1)]})
    store.get("t", [b"r"])
    late = threading.Thread(target=lambda: answers.append(store.get("t", [b"r"])), daemon=True)
    with store._file._gate:
        late.start()
        wait_until(lambda: bool(answers) or function_of(late) == "within")
        assert not answers
    late.join(30)
    assert answers


def function_of(thread: threading.Thread) -> str:
    """Return the name of the function that a thread is in."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "" if frame is None else frame.f_code.co_name


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline_s = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline_s
        os.sched_yield()


def test_a_store_that_is_dropped_closes_its_file(path: Path) -> None:
    """A fork would otherwise share the connections of a store that nobody has any more."""
    dropped = SqliteStore(path)
    dropped.create_table(TableSchema("t", [FamilySchema(b"cf")]))
    assert is_open(path)
    gc.disable()
    try:
        del dropped
        assert not is_open(path)
    finally:
        gc.enable()


def is_open(path: Path) -> bool:
    """Say whether this process has a descriptor of the store's files."""
    entries = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return any(str(entry.readlink()).startswith(str(path)) for entry in entries)


def test_readers_of_many_threads_reuse_connections(store: SqliteStore) -> None:
    """As many connections as reads at one time, not as reads."""
    store.write({"t": [put(b"r", 1)]})

    def read() -> None:
        for _ in range(50):
            assert store.get("t", [b"r"], columns=[Column(b"cf", b"q")]) != [[]]

    in_threads([read] * 4)
    assert 1 <= len(store._file._idle) <= 4
