"""Copies of a store: consistent while it is written, and never taken for the original."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import omidpy
from omidpy import admin
from omidpy.errors import ConfigError, StorageError, StorageUnavailable, UsageError
from omidpy.manager import TransactionManager
from omidpy.storage.sqlite import SqliteStore
from omidpy.storage.sqlite import backup as sqlite_backup
from omidpy.storage.sqlite.file import FORMAT_VERSION


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the address of a store."""
    return f"sqlite:///{tmp_path}/bank.db"


@pytest.fixture
def tm(url: str) -> Iterator[TransactionManager]:
    """Return a manager over a store with one table."""
    with omidpy.connect(url) as manager:
        manager.create_table("t", families=["cf"])
        yield manager


def write(tm: TransactionManager, number: int) -> None:
    """Write the same number to two rows."""
    with tm.begin() as tx:
        for row in (b"a", b"b"):
            tx.table("t").put(row, {b"cf:q": b"%d" % number})


def read(tm: TransactionManager) -> set[bytes]:
    """Return the values of all rows."""
    with tm.begin() as tx:
        return {data[b"cf:q"] for _, data in tx.table("t").scan()}


def test_a_backup_holds_what_was_committed_and_nothing_later(
    tm: TransactionManager, url: str, tmp_path: Path
) -> None:
    """It is a store of its own: neither sees what happens in the other."""
    write(tm, 1)
    copied = admin.backup(url, tmp_path / "copy.db")
    write(tm, 2)
    with omidpy.connect(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert read(copy) == {b"1"}
        write(copy, 3)
        assert read(copy) == {b"3"}
    assert read(tm) == {b"2"}
    assert copied.copied_from == tm.store.store_id
    assert copied.store_id != tm.store.store_id
    assert copied.size_bytes > 0


def test_a_backup_taken_while_others_write_is_of_one_moment(
    tm: TransactionManager, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rows that are always equal are equal in it; commits between its pages do not show."""
    for number in range(200):
        with tm.begin() as tx:
            tx.table("t").put(b"%04d" % number, {b"cf:q": b"0" * 1000})
    monkeypatch.setattr(sqlite_backup, "PAGES_AT_A_TIME", 1)
    steps: list[int] = []

    def progress(done: int, total: int) -> None:
        steps.append(done)
        if done % 20 == 0:
            with tm.begin() as tx:
                for number in range(200):
                    tx.table("t").put(b"%04d" % number, {b"cf:q": b"%d" % done})
        assert done <= total

    admin.backup(url, tmp_path / "copy.db", progress=progress)
    assert len(steps) > 40
    with omidpy.connect(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert read(copy) == {b"0" * 1000}
    assert len(read(tm)) == 1


def test_a_backup_does_not_hold_up_writers(
    tm: TransactionManager, url: str, tmp_path: Path
) -> None:
    """A commit ends while the copy is under way."""
    write(tm, 1)
    has_written = threading.Event()

    def progress(_done: int, _total: int) -> None:
        thread = threading.Thread(target=write, args=(tm, 2))
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        has_written.set()

    admin.backup(url, tmp_path / "copy.db", progress=progress)
    assert has_written.is_set()
    assert read(tm) == {b"2"}


def test_an_open_transaction_is_rolled_back_in_the_copy(
    tm: TransactionManager, url: str, tmp_path: Path
) -> None:
    """Its cells are in the copy and its commit is not; the original goes on with it."""
    write(tm, 1)
    tx = tm.begin()
    tx.table("t").put(b"a", {b"cf:q": b"2"})
    tx.flush()
    admin.backup(url, tmp_path / "copy.db")
    tx.commit()
    with omidpy.connect(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert read(copy) == {b"1"}
        assert copy.outcome(tx.start_ts) == omidpy.Aborted()
    assert read(tm) == {b"1", b"2"}


def test_the_oracle_of_a_restored_store_starts_above_everything_in_it(
    tm: TransactionManager, url: str, tmp_path: Path
) -> None:
    """A timestamp issued twice would show uncommitted cells as committed."""
    write(tm, 1)
    last = tm.begin().start_ts
    admin.backup(url, tmp_path / "copy.db")
    restored = f"sqlite:///{tmp_path}/restored.db"
    admin.restore(tmp_path / "copy.db", restored)
    with omidpy.connect(restored) as copy:
        assert copy.begin().start_ts > last
        cells = [cell for page in copy.store.scan("t") for row in page for cell in row]
        assert all(cell.version < copy.begin().start_ts for cell in cells)
        assert copy.low_watermark() >= max(cell.version for cell in cells)


def test_a_restored_store_is_nobody_elses(tm: TransactionManager, url: str, tmp_path: Path) -> None:
    """Each copy has an id of its own, and a token of the original is refused."""
    token = tm.begin().token()
    backup = admin.backup(url, tmp_path / "copy.db")
    first, second = (
        admin.restore(tmp_path / "copy.db", f"sqlite:///{tmp_path}/{name}.db") for name in "xy"
    )
    assert len({tm.store.store_id, backup.store_id, first.store_id, second.store_id}) == 4
    assert first.copied_from == backup.store_id
    with (
        omidpy.connect(f"sqlite:///{tmp_path}/x.db") as copy,
        pytest.raises(UsageError, match="belongs to the store"),
    ):
        copy.resume(token)


def test_a_backup_is_one_file_that_may_be_read_only(
    tm: TransactionManager, url: str, tmp_path: Path
) -> None:
    """It has no log beside it, and restoring does not write it."""
    write(tm, 1)
    folder = tmp_path / "backups"
    folder.mkdir()
    admin.backup(url, folder / "copy.db")
    assert [path.name for path in folder.iterdir()] == ["copy.db"]
    before = (folder / "copy.db").read_bytes()
    admin.restore(folder / "copy.db", f"sqlite:///{tmp_path}/restored.db")
    assert [path.name for path in folder.iterdir()] == ["copy.db"]
    assert (folder / "copy.db").read_bytes() == before
    with omidpy.connect(f"sqlite:///{tmp_path}/restored.db") as copy:
        assert read(copy) == {b"1"}


def test_a_backup_of_a_store_that_nobody_has_open(url: str, tmp_path: Path) -> None:
    """The log, if any, is taken into account."""
    with omidpy.connect(url) as tm:
        tm.create_table("t", families=["cf"])
        write(tm, 1)
    admin.backup(url, tmp_path / "copy.db")
    with omidpy.connect(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert read(copy) == {b"1"}


# -- refusals --------------------------------------------------------------------------------------


def test_nothing_is_ever_overwritten(
    tm: TransactionManager, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a file that is there, nor one that appears meanwhile, nor a store."""
    target = tmp_path / "copy.db"
    target.write_bytes(b"precious")
    with pytest.raises(ConfigError, match="exists already"):
        admin.backup(url, target)
    target.unlink()
    with pytest.raises(ConfigError, match="somebody else"):
        admin.backup(url, target, progress=lambda *_: (target.write_bytes(b"precious"), None)[1])
    assert target.read_bytes() == b"precious"
    target.unlink()
    admin.backup(url, target)
    with pytest.raises(ConfigError, match="exists already"):
        admin.restore(target, url)
    assert not list(tmp_path.glob("*.partial*"))


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSPC])
def test_a_store_that_is_made_meanwhile_is_not_replaced_without_links(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """On a file system that has none, or is full, a rename takes the place of a link."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    omidpy.connect(url).close()
    backup, target = tmp_path / "copy.db", f"sqlite:///{tmp_path}/restored.db"
    admin.backup(url, backup)
    made: list[str] = []

    def progress(_done: int, _total: int) -> None:
        if not made:
            made.append(target)
            with omidpy.connect(target) as tm:
                tm.create_table("t", families=["cf"])
                write(tm, 1)
            monkeypatch.setattr(os, "link", refuse)

    with pytest.raises(ConfigError, match="made by somebody else meanwhile"):
        admin.restore(backup, target, progress=progress)
    monkeypatch.undo()
    with omidpy.connect(target) as tm:
        assert read(tm) == {b"1"}
    assert not list(tmp_path.glob("*.partial*"))


def test_without_links_a_copy_is_renamed(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what cannot be renamed, or removed, is told as what it is."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    with omidpy.connect(url) as tm:
        tm.create_table("t", families=["cf"])
        write(tm, 1)
    link = os.link
    monkeypatch.setattr(os, "link", refuse)
    admin.backup(url, tmp_path / "copy.db")
    with omidpy.connect(f"sqlite:///{tmp_path}/copy.db") as tm:
        assert read(tm) == {b"1"}
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        with pytest.raises(StorageUnavailable, match=r"other\.db: Operation not permitted; remove"):
            admin.backup(url, tmp_path / "other.db")
    assert (tmp_path / "other.db").stat().st_size == 0
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        patch.setattr(os, "link", link)
        with pytest.raises(StorageUnavailable, match=r"remove .*third\.db\.partial, which is left"):
            admin.backup(url, tmp_path / "third.db")


def test_of_two_copies_to_one_place_one_is_made(
    tm: TransactionManager, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both looked before either began: they filled one file, and one removed it of the other."""
    tm.close()
    target = tmp_path / "copy.db"
    others: list[str] = []

    def claim(path: Path) -> int | None:
        if not others:
            others.append("another")
            admin.backup(url, target)  # between the look and the beginning
            path.write_bytes(b"of a third one that is at it")
        return real(path)

    real = sqlite_backup._claim
    monkeypatch.setattr(sqlite_backup, "_claim", claim)
    with pytest.raises(ConfigError, match="made by somebody else meanwhile"):
        admin.backup(url, target)
    assert (tmp_path / "copy.db.partial").read_bytes() == b"of a third one that is at it"
    with omidpy.connect(f"sqlite:///{target}") as copy:
        assert copy.tables() == ["t"]


def test_nobody_is_told_to_remove_what_is_being_filled(
    tm: TransactionManager, url: str, tmp_path: Path
) -> None:
    """Who did so, and began another copy, had half of that one called a whole one."""
    target = tmp_path / "copy.db"
    said: list[str] = []

    def progress(_done: int, _total: int) -> None:
        if not said:
            with pytest.raises(ConfigError) as caught:
                admin.backup(url, target)
            said.append(str(caught.value))

    admin.backup(url, target, progress=progress)
    assert "is being filled by another" in said[0]
    assert "remove it" not in said[0]
    target.unlink()
    (tmp_path / "copy.db.partial").touch()
    with pytest.raises(ConfigError, match=r"was left by .* that was killed; remove it"):
        admin.backup(url, target)


@pytest.mark.parametrize("is_made_anew", [False, True])
@pytest.mark.parametrize("is_late", [False, True], ids=["while-written", "while-examined"])
def test_a_copy_that_was_removed_while_it_was_filled_is_none(
    tm: TransactionManager,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_made_anew: bool,
    is_late: bool,
) -> None:
    """What has its name by then is another's, and may be half a copy."""
    target, partial = tmp_path / "copy.db", tmp_path / "copy.db.partial"

    def remove(*_: object) -> None:
        partial.unlink(missing_ok=True)
        if is_made_anew:
            partial.write_bytes(b"half of another one")

    def fill(*arguments: Any, **options: Any) -> Any:
        copied = real(*arguments, **options)
        remove()
        return copied

    real = sqlite_backup._fill
    if is_late:
        monkeypatch.setattr(sqlite_backup, "_fill", fill)
    with pytest.raises(StorageError, match="was removed, or replaced, while it was filled"):
        admin.backup(url, target, progress=None if is_late else remove)
    assert not target.exists()
    assert partial.exists() == is_made_anew


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_copy_may_be_opened_as_soon_as_it_has_its_name(
    tm: TransactionManager,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_dead: bool,
) -> None:
    """It still has the one before then, and for ever if its maker dies there."""
    write(tm, 1)
    opened: list[set[bytes]] = []

    def remove(*arguments: Any) -> None:
        with omidpy.connect(f"sqlite:///{tmp_path}/copy.db") as copy:
            opened.append(read(copy))
        if is_dead:
            raise KeyboardInterrupt
        real(*arguments)

    real = sqlite_backup._remove
    monkeypatch.setattr(sqlite_backup, "_remove", remove)
    with pytest.raises(KeyboardInterrupt) if is_dead else nullcontext():
        admin.backup(url, tmp_path / "copy.db")
    assert opened == [{b"1"}]
    assert not list(tmp_path.glob("*.partial*"))


def test_a_copy_that_fails_leaves_nothing(tm: TransactionManager, url: str, tmp_path: Path) -> None:
    """Half a backup must not look like one."""

    def progress(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        admin.backup(url, tmp_path / "copy.db", progress=progress)
    assert not list(tmp_path.glob("copy.db*"))
    write(tm, 1)
    admin.backup(url, tmp_path / "copy.db")


def test_a_damaged_store_is_found_out_by_its_backup(url: str, tmp_path: Path) -> None:
    """A copy of damage would be noticed only when it is needed."""
    with omidpy.connect(url) as tm:
        tm.create_table("t", families=["cf"])
        for number in range(200):
            with tm.begin() as tx:
                tx.table("t").put(b"%04d" % number, {b"cf:q": b"0" * 1000})
    path = tmp_path / "bank.db"
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    with pytest.raises(StorageError, match="damaged"):
        admin.backup(url, tmp_path / "copy.db")
    assert not list(tmp_path.glob("copy.db*"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("memory:", "no embedded store"),
        ("hbase+thrift2://gw:9090", "no embedded store"),
        ("sqlite:///{}/missing.db", "no store"),
        ("sqlite://relative.db", "sqlite:///relative.db"),
    ],
)
def test_what_cannot_be_backed_up_is_named(tmp_path: Path, source: str, message: str) -> None:
    """Only a store in one file has this kind of backup."""
    with pytest.raises(ConfigError, match=message):
        admin.backup(source.format(tmp_path), tmp_path / "copy.db")


def test_a_place_that_cannot_be_looked_at_is_named(tm: TransactionManager, url: str) -> None:
    """In a folder that this user may not enter, or of a name that is too long."""
    tm.close()
    too_long = Path("x" * 300)
    with pytest.raises(ConfigError, match=r"cannot be looked at.*too long"):
        admin.backup(url, too_long)
    with pytest.raises(ConfigError, match=r"cannot be looked at.*too long"):
        admin.restore(too_long, url)


def test_what_is_no_backup_is_not_restored(
    tm: TransactionManager, url: str, tmp_path: Path
) -> None:
    """A missing file, another program's, a newer format, a missing directory."""
    target = f"sqlite:///{tmp_path}/restored.db"
    with pytest.raises(ConfigError, match="no backup"):
        admin.restore(tmp_path / "none.db", target)
    (tmp_path / "text.db").write_text("hello" * 1000)
    with pytest.raises(ConfigError, match="not a store"):
        admin.restore(tmp_path / "text.db", target)
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(ConfigError, match="not a store"):
        admin.restore(tmp_path / "other.db", target)
    admin.backup(url, tmp_path / "copy.db")
    with sqlite3.connect(tmp_path / "copy.db") as other:
        other.execute(
            "UPDATE omidpy_meta SET value = ? WHERE name = 'format_version'", (FORMAT_VERSION + 1,)
        )
    other.close()
    with pytest.raises(ConfigError, match="upgrade omidpy"):
        admin.restore(tmp_path / "copy.db", target)
    with pytest.raises(ConfigError, match="no directory"):
        admin.backup(url, tmp_path / "nowhere" / "copy.db")
    assert not (tmp_path / "restored.db").exists()


def killed(tm: TransactionManager, tmp_path: Path) -> None:
    """End a process that has the store open, without its closing it: what it leaves is the log."""
    (tmp_path / "kept").write_bytes((tmp_path / "bank.db-wal").read_bytes())
    tm.close()
    assert not (tmp_path / "bank.db-wal").exists()
    (tmp_path / "kept").rename(tmp_path / "bank.db-wal")


def test_a_log_that_a_killed_process_left_is_not_the_copys(
    tm: TransactionManager, url: str, tmp_path: Path
) -> None:
    """SQLite would show, and write into the copy, what came after the backup was made."""
    write(tm, 1)
    admin.backup(url, tmp_path / "copy.db")
    write(tm, 2)
    killed(tm, tmp_path)
    (tmp_path / "bank.db").unlink()
    with pytest.raises(ConfigError, match=r"bank\.db-wal was left by a file.*move it away first"):
        admin.restore(tmp_path / "copy.db", url)
    assert not (tmp_path / "bank.db").exists()
    (tmp_path / "bank.db-wal").unlink()
    admin.restore(tmp_path / "copy.db", url)
    with omidpy.connect(url) as restored:
        assert read(restored) == {b"1"}


def test_a_copy_beside_another_ones_log_is_not_opened(
    tm: TransactionManager, url: str, tmp_path: Path
) -> None:
    """It was moved in the place of the original, whose log was forgotten."""
    write(tm, 1)
    copied = admin.backup(url, tmp_path / "copy.db")
    write(tm, 2)
    original = tm.store.store_id
    killed(tm, tmp_path)
    (tmp_path / "copy.db").replace(tmp_path / "bank.db")
    before = (tmp_path / "bank.db").read_bytes()
    for _ in range(2):
        with pytest.raises(ConfigError, match=f"store {copied.store_id}, .* store {original}: it"):
            omidpy.connect(url)
    assert (tmp_path / "bank.db").read_bytes() == before, "it is no part of the original by now"
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"bank.db{suffix}").unlink()
    with omidpy.connect(url) as restored:
        assert read(restored) == {b"1"}


def test_a_log_that_a_killed_process_left_of_its_own_is_read(
    tm: TransactionManager, url: str, tmp_path: Path
) -> None:
    """It has what was acknowledged."""
    write(tm, 1)
    beside = SqliteStore(tmp_path / "bank.db")  # while the log is in use
    assert beside.store_id == tm.store.store_id
    beside.close()
    write(tm, 2)
    identity = tm.store.store_id
    killed(tm, tmp_path)
    with omidpy.connect(url) as again:
        assert read(again) == {b"2"}
        assert again.store.store_id == identity
