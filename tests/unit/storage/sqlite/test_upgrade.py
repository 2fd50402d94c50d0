"""Files of an older format: upgraded once, alone, and whole or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import omidpy
from omidpy.errors import ConfigError, StorageUnavailable
from omidpy.model import FamilySchema, TableSchema
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.sqlite import SqliteStore
from omidpy.storage.sqlite import file as sqlite_file
from omidpy.storage.sqlite import upgrade as sqlite_upgrade

NEXT = sqlite_file.FORMAT_VERSION + 1
"""The format that these tests pretend is this omidpy's."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file of the format before, with a cell in it."""
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    store.create_table(TableSchema("t", [FamilySchema(b"cf")]))
    store.write({"t": [RowMutation(b"r", (Put(b"cf", b"q", 1, b"v"),))]})
    store.close()
    return path


def widen(connection: sqlite3.Connection) -> None:
    """Stand for a step: a new column of the catalogue."""
    connection.execute("ALTER TABLE omidpy_tables ADD COLUMN note TEXT NOT NULL DEFAULT ''")


def become_next(
    monkeypatch: pytest.MonkeyPatch,
    *steps: Callable[[sqlite3.Connection], None],
) -> None:
    """Be an omidpy that is as many formats ahead as there are steps."""
    first = sqlite_file.FORMAT_VERSION
    for version, step in enumerate(steps, start=first):
        monkeypatch.setitem(sqlite_upgrade.STEPS, version, step)
    monkeypatch.setattr(sqlite_file, "FORMAT_VERSION", first + len(steps))


def version_of(path: Path) -> tuple[int, str, list[str]]:
    """Return the format version, the journal mode and the catalogue's columns of a file."""
    connection = sqlite3.connect(path)
    try:
        (version,) = connection.execute(
            "SELECT value FROM omidpy_meta WHERE name = 'format_version'"
        ).fetchone()
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        columns = [row[1] for row in connection.execute("PRAGMA table_info(omidpy_tables)")]
    finally:
        connection.close()
    return version, mode, columns


def test_a_file_of_the_previous_format_is_upgraded_when_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cells are there, its log is on again, and the second opening changes nothing."""
    before = SqliteStore(path)
    store_id = before.store_id
    before.close()
    become_next(monkeypatch, widen)
    for _ in range(2):
        store = SqliteStore(path)
        assert store.get("t", [b"r"])[0][0].value == b"v"
        assert store.store_id == store_id
        store.close()
    version, mode, columns = version_of(path)
    assert (version, mode) == (NEXT, "wal")
    assert columns.count("note") == 1


def test_several_steps_are_taken_in_order(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the oldest to the newest, in one go."""
    order: list[int] = []
    become_next(monkeypatch, lambda _: order.append(1), widen, lambda _: order.append(3))
    SqliteStore(path).close()
    assert order == [1, 3]
    assert version_of(path)[0] == NEXT + 2


def test_a_step_that_fails_has_not_happened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is of the old format still, and the next opening tries again."""

    def fail(connection: sqlite3.Connection) -> None:
        widen(connection)
        raise KeyboardInterrupt

    become_next(monkeypatch, fail)
    with pytest.raises(KeyboardInterrupt):
        SqliteStore(path)
    version, _, columns = version_of(path)
    assert version == NEXT - 1
    assert "note" not in columns
    monkeypatch.setitem(sqlite_upgrade.STEPS, NEXT - 1, widen)
    SqliteStore(path).close()
    assert version_of(path)[0] == NEXT


def test_a_file_that_others_have_open_is_not_upgraded(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would go on writing the older format; the message says what to stop."""
    older = SqliteStore(path)
    older.tables()
    with monkeypatch.context() as patch:
        become_next(patch, widen)
        with pytest.raises(StorageUnavailable, match="stop every process"):
            SqliteStore(path, lock_timeout_s=0.1)
    assert version_of(path)[:2] == (NEXT - 1, "wal")
    older.write({"t": [RowMutation(b"s", (Put(b"cf", b"q", 1, b"v"),))]})
    older.close()
    become_next(monkeypatch, widen)
    store = SqliteStore(path)
    assert len(store.get("t", [b"s"])[0]) == 1
    store.close()


def test_a_file_that_is_too_old_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is no longer shipped; nothing is changed."""
    monkeypatch.setattr(sqlite_file, "FORMAT_VERSION", NEXT)
    with pytest.raises(ConfigError, match=f"cannot upgrade to {NEXT}.*in between"):
        SqliteStore(path)
    assert version_of(path)[:2] == (NEXT - 1, "wal")


def test_an_older_omidpy_refuses_an_upgraded_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no way back but a backup."""
    with monkeypatch.context() as patch:
        become_next(patch, widen)
        SqliteStore(path).close()
    with pytest.raises(ConfigError, match="upgrade omidpy"):
        SqliteStore(path)


def test_there_is_a_step_for_every_released_format() -> None:
    """A file of any version since the first can be opened."""
    assert sorted(sqlite_upgrade.STEPS) == list(range(1, sqlite_file.FORMAT_VERSION))


def test_a_backup_of_an_older_format_is_upgraded_once_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Backups outlive versions."""
    from omidpy import admin

    url, restored = (f"sqlite:///{tmp_path}/{name}.db" for name in ("bank", "restored"))
    with omidpy.connect(url) as tm:
        tm.create_table("t", families=["cf"])
        with tm.begin() as tx:
            tx.table("t").put(b"a", {b"cf:q": b"1"})
    admin.backup(url, tmp_path / "copy.db")
    become_next(monkeypatch, widen)
    admin.restore(tmp_path / "copy.db", restored)
    with omidpy.connect(restored) as tm, tm.begin() as tx:
        assert tx.table("t").row(b"a") == {b"cf:q": b"1"}
    assert version_of(tmp_path / "restored.db")[0] == NEXT
