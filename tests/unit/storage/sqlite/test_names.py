"""A store is the file that was opened, not whatever has its name by now."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omidpy
from omidpy.errors import (
    CommitOutcomeUnknown,
    ConfigError,
    StorageError,
    StorageUnavailable,
    TransactionAborted,
)
from omidpy.model import FamilySchema, TableSchema
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.sqlite import SqliteStore, file, names
from tso.core.events import Batch, Ticket
from tso.durable.persist import StorePersistence

TABLE = "t"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the store is."""
    return tmp_path / "s.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """Return a store that has been written to."""
    store = SqliteStore(path)
    store.create_table(TableSchema(TABLE, [FamilySchema(b"cf", {})]))
    write(store, 1)
    yield store
    store.close()


def write(store: SqliteStore, version: int, *, durable: bool = False) -> None:
    """Write one version of the row."""
    put = Put(b"cf", b"q", version, b"v")
    store.write({TABLE: [RowMutation(b"r", puts=(put,))]}, durable=durable)


def versions(store: SqliteStore) -> list[int]:
    """Return what there is of the row."""
    return [cell.version for cell in store.get(TABLE, [b"r"])[0]]


def replace(path: Path) -> None:
    """Move another store in the place of one."""
    other = SqliteStore(path.with_name("other.db"))
    other.create_table(TableSchema(TABLE, [FamilySchema(b"cf", {})]))
    write(other, 7)
    other.close()
    for suffix in ("-wal", "-shm"):  # else SQLite takes the log for that of the other file
        path.with_name(f"s.db{suffix}").unlink()
    path.with_name("other.db").replace(path)


@pytest.mark.parametrize("durable", [False, True], ids=["a client's", "the oracle's"])
def test_a_removed_file_is_not_written(store: SqliteStore, path: Path, *, durable: bool) -> None:
    """It was, and all of that was gone with the last process that had it open."""
    path.unlink()
    for _ in range(2):
        with pytest.raises(StorageError, match=r"s\.db was removed or replaced"):
            write(store, 2, durable=durable)
    assert not path.exists()


@pytest.mark.parametrize("durable", [False, True], ids=["a client's", "the oracle's"])
def test_a_replaced_file_is_not_written(store: SqliteStore, path: Path, *, durable: bool) -> None:
    """Neither it, which nobody opens any more, nor the one that has its name, by half a process."""
    replace(path)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"s\.db was removed or replaced"):
            write(store, 2, durable=durable)
    other = SqliteStore(path)
    assert versions(other) == [7]
    other.close()


@pytest.mark.parametrize("times", [1, 2])
def test_a_file_that_cannot_be_looked_at_was_not_removed(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Who was told so would put a backup in its place."""
    stat, left = os.stat, [times]

    def fail(name: Any, *more: Any, **options: Any) -> os.stat_result:
        if str(name) == str(path) and left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(name, *more, **options)

    monkeypatch.setattr(os, "stat", fail)
    if times == 2:
        with pytest.raises(StorageUnavailable, match=r"s\.db cannot be looked at: Input/output"):
            write(store, 2)
    write(store, 3)
    assert left == [0]
    assert versions(store)[0] == 3


def test_a_replaced_file_is_not_read(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others commit to the one that has its name would never be seen."""
    monkeypatch.setattr(file, "READS_LOOK_S", 0.0)
    assert versions(store) == [1]
    replace(path)
    with pytest.raises(StorageError, match=r"s\.db was removed or replaced"):
        versions(store)


def test_a_file_is_not_changed_for_another_by_opening_it_again(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a fork or an error connections are opened by name."""
    monkeypatch.setattr(file, "READS_LOOK_S", 1e9)
    assert versions(store) == [1]
    replace(path)
    store._file.suspend()
    store._file.resume()
    with pytest.raises(StorageError, match=r"s\.db was removed or replaced"):
        versions(store)


@pytest.mark.parametrize("durable", [False, True], ids=["a client's", "the oracle's"])
@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_removed_log_is_not_written(
    store: SqliteStore, path: Path, suffix: str, *, durable: bool
) -> None:
    """What is in it is in no file that others find, or they write over it."""
    write(store, 2, durable=durable)
    path.with_name(f"s.db{suffix}").unlink()
    with pytest.raises(StorageError, match=rf"s\.db{suffix} was removed or replaced"):
        write(store, 3, durable=durable)


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_removed_log_is_not_read(
    store: SqliteStore, path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others commit goes to the next log, and would never be seen by who only reads."""
    monkeypatch.setattr(file, "READS_LOOK_S", 0.0)
    assert versions(store) == [1]
    path.with_name(f"s.db{suffix}").unlink()
    with pytest.raises(StorageError, match=rf"s\.db{suffix} was removed or replaced"):
        versions(store)


def test_a_log_is_made_anew_by_who_opens_the_file_first(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite removes it with the last connection, as before a fork."""
    monkeypatch.setattr(file, "READS_LOOK_S", 0.0)
    assert versions(store) == [1]
    for version in (2, 3):
        write(store, version)
        write(store, version, durable=True)
        store._file.suspend()
        assert not path.with_name("s.db-wal").exists()
        path.with_name("s.db-wal.old").touch()  # so that the next one has another number
        store._file.resume()
        assert versions(store)[0] == version
    write(store, 4)
    write(store, 5, durable=True)
    assert versions(store) == [5, 4, 3, 2, 1]


def test_a_commit_to_a_removed_file_is_not_acknowledged(path: Path) -> None:
    """I8: it was seen by its own process alone."""
    tm = omidpy.connect(f"sqlite:///{path}")
    tm.create_table("accounts", families=["cf"])
    tx = tm.begin()
    tx.table("accounts").put(b"r", {b"cf:q": b"1"})
    path.rename(path.with_name("elsewhere.db"))
    with pytest.raises(TransactionAborted, match=r"s\.db was removed or replaced"):
        tx.commit()
    tm.close()


def test_a_file_that_is_removed_behind_a_commit_says_nothing_of_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I9: the batch is durable, and what is read behind it fails."""
    tm = omidpy.connect(f"sqlite:///{path}")
    tm.create_table("accounts", families=["cf"])
    told = StorePersistence._unwritable
    elsewhere = path.with_name("elsewhere")
    elsewhere.mkdir()

    def removed(
        persistence: StorePersistence, refused: frozenset[int], batch: Batch[Ticket]
    ) -> frozenset[int]:
        monkeypatch.undo()
        monkeypatch.setattr(file, "READS_LOOK_S", 0.0)
        for one in path.parent.glob("s.db*"):
            one.rename(elsewhere / one.name)
        persistence._read_prune_horizon()
        return told(persistence, refused, batch)

    tx = tm.begin()
    tx.table("accounts").put(b"r", {b"cf:q": b"1"})
    monkeypatch.setattr(StorePersistence, "_unwritable", removed)
    with pytest.raises(CommitOutcomeUnknown):
        tx.commit()
    with contextlib.suppress(StorageError):
        tm.close()
    with omidpy.connect(f"sqlite:///{elsewhere / 's.db'}") as later, later.begin() as reader:
        assert reader.table("accounts").row(b"r") == {b"cf:q": b"1"}


def test_a_file_with_two_names_is_not_opened(store: SqliteStore, path: Path) -> None:
    """Each would have a log of its own: 5,000 of 6,000 writes by two processes were gone."""
    write(store, 2, durable=True)
    other = path.with_name("other.db")
    other.hardlink_to(path)
    for name, named in ((other, path), (path, other)):
        with pytest.raises(ConfigError, match=f"other names .*one of them {named};"):
            SqliteStore(name)
    write(store, 3)  # whoever has it open goes on
    other.unlink()
    again = SqliteStore(path)
    assert versions(again) == [3, 2, 1]
    again.close()


def test_a_name_elsewhere_is_told_without_it(store: SqliteStore, path: Path) -> None:
    """Nobody looks for it through the whole disk."""
    (path.parent / "copies").mkdir()
    (path.parent / "copies" / "s.db").hardlink_to(path)
    with pytest.raises(ConfigError, match=r"other names \(hard links\); SQLite"):
        SqliteStore(path)


def test_a_name_from_before_it_had_its_own_is_removed(store: SqliteStore, path: Path) -> None:
    """Whoever made the file was killed between two system calls; a store is not lost by that."""
    before = path.with_name(".s.db-x7k2")
    before.hardlink_to(path)
    path.with_name("link.db").symlink_to(path)
    again = SqliteStore(path)
    assert versions(again) == [1]
    again.close()
    assert not before.exists()


def test_a_file_that_is_mounted_by_itself_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log would be the container's own, and gone with it."""
    mounts = tmp_path / "mountinfo"
    shown = str(tmp_path / "a b.db").replace(" ", "\\040")
    mounts.write_text(f"65 44 254:0 / {tmp_path} rw - ext4 x rw\n66 65 254:0 /x {shown} rw - y z\n")
    monkeypatch.setattr(names, "_MOUNTS", mounts)
    with pytest.raises(ConfigError, match=r"a b\.db is mounted by itself.*mount its folder"):
        SqliteStore(tmp_path / "a b.db")
    SqliteStore(tmp_path / "c.db").close()
    mounts.unlink()
    SqliteStore(tmp_path / "a b.db").close()
