"""A file that is damaged, or that somebody prepared: an error in our words, and nothing it planned.

Each damage is made with plain SQL in a store that works, and then everything that reads a store is
tried: no exception but ours, and no command that ends with a traceback.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import sqlite3
import stat
from pathlib import Path

import pytest

import omidpy
from omidpy.base.words.printable import printable
from omidpy.cli import main
from omidpy.errors import ConfigError, CorruptCell, OmidError
from omidpy.storage.sqlite import SqliteStore
from omidpy.storage.sqlite.backup import copy_backup
from tso import cli, embedded
from tso.cli import _Service
from tso.config import load_config

DAMAGES = {
    "families are no JSON": "UPDATE omidpy_tables SET families = '{' WHERE name = 'stock'",
    "families are a list": "UPDATE omidpy_tables SET families = '[1]' WHERE name = 'stock'",
    "a family is no hexadecimal": "UPDATE omidpy_tables SET families = '{\"xyz\": {}}'",
    "a family's attributes are numbers": 'UPDATE omidpy_tables SET families = \'{"66": {"a":1}}\'',
    "families are nested without end": (
        "UPDATE omidpy_tables SET families = replace(hex(zeroblob(50000)), '00', '[')"
    ),
    "families are a blob": "UPDATE omidpy_tables SET families = x'ff00'",
    "attributes are a number": "UPDATE omidpy_tables SET attributes = 7 WHERE name = 'stock'",
    "splits are no list": "UPDATE omidpy_tables SET splits = '{}' WHERE name = 'stock'",
    "a split is no hexadecimal": "UPDATE omidpy_tables SET splits = '[\"0\"]'",
    "a name is a blob": "UPDATE omidpy_tables SET name = x'ff' WHERE name = 'stock'",
    "a name is not UTF-8": "UPDATE omidpy_tables SET name = CAST(x'ff41' AS TEXT) WHERE id = 1",
    "there is no store_id": "DELETE FROM omidpy_meta WHERE name = 'store_id'",
    "the store_id is a number": "UPDATE omidpy_meta SET value = 7 WHERE name = 'store_id'",
    "the version is text": "UPDATE omidpy_meta SET value = 'x' WHERE name = 'format_version'",
    "the catalogue is gone": "DROP TABLE omidpy_tables",
    "every value is a number": "UPDATE {cells} SET value = 7",
    "every value is text": "UPDATE {cells} SET value = 'text'",
    "every value is empty": "UPDATE {cells} SET value = x''",
    "every version is text": "UPDATE {cells} SET version = 'text' || rowid_of",
    "every row is text": "UPDATE {cells} SET row_key = CAST(row_key AS TEXT)",
    "every family is a number": "UPDATE {cells} SET family = 7",
    "every qualifier is text": "UPDATE {cells} SET qualifier = CAST(qualifier AS TEXT)",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store in which something happened."""
    found = tmp_path / "store.db"
    with contextlib.closing(omidpy.connect(f"sqlite:///{found}", post_commit="none")) as tm:
        tm.create_table("stock", families=["f"], splits=[b"m"])
        for row in (b"apple", b"pear"):
            with tm.begin() as tx:
                tx.table("stock").put(row, {b"f:count": b"1"})
    return found


def damage(path: Path, statement: str) -> None:
    """Run SQL as somebody else would; `{cells}` stands for the cells of every table."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if "{cells}" not in statement:
            connection.execute(statement)
            return
        names = connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'cells_%'")
        for (cells,) in names.fetchall():
            connection.execute(
                statement.replace("UPDATE", "UPDATE OR REPLACE")
                .replace("{cells}", cells)
                .replace("rowid_of", "hex(row_key)")
            )


def use(url: str) -> None:
    """Do whatever reads a store, and allow no end but those that are documented."""
    for command in (
        ["status"],
        ["doctor"],
        ["table", "list"],
        ["commit-table", "stats"],
        ["watermarks"],
        ["fsck"],
        ["compact", "history"],
    ):
        with pytest.raises(SystemExit) as ended:
            main([*command, "--store", url])
        assert ended.value.code in (0, 1, 2, 3), command
    assert asyncio.run(serve(url)) in (0, 1, 2)
    with contextlib.suppress(OmidError), contextlib.closing(omidpy.connect(url)) as tm:
        with tm.begin() as tx:
            list(tx.table("stock").scan())
            tx.table("stock").put(b"plum", {b"f:count": b"1"})
        with tm.begin() as tx:
            tx.table("stock").row(b"apple")


async def serve(url: str) -> int:
    """Let `tso-server` start on a store, and stop; return its exit code."""
    service = _Service(load_config(["--store", url, "--listen", "127.0.0.1:0"], {}))
    running = asyncio.ensure_future(service.run())
    # Where no batch can be written it goes on trying for as long as nobody stops it.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            while not running.done() and service._server is None:  # noqa: ASYNC110  it has no event
                await asyncio.sleep(0)
    service._stop.set()
    return await running


@pytest.mark.parametrize("statement", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_gets_an_error_of_ours(
    path: Path, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """13 of 73 such files ended in a traceback, or in the oracle's exit code 70."""
    # Some take no batch any more, and the oracle goes on trying until it is told to stop.
    monkeypatch.setattr(cli, "STOP_S", 0.1)
    monkeypatch.setattr(cli, "FAREWELL_S", 0.1)
    monkeypatch.setattr(embedded, "_LONGEST_CLOSE_S", 0.1)
    damage(path, statement)
    use(f"sqlite:///{path}")


def test_a_lease_that_cannot_be_taken_is_no_other_oracles(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The oracle stood by for ever, for one that was faster."""
    damage(path, DAMAGES["every version is text"])
    assert asyncio.run(serve(f"sqlite:///{path}")) == 1
    assert "the store is damaged" in caplog.text
    with pytest.raises(CorruptCell, match="restore it from a backup"):
        omidpy.connect(f"sqlite:///{path}")


@pytest.mark.parametrize("seed", range(8))
def test_a_torn_file_gets_an_error_of_ours(path: Path, seed: int) -> None:
    """A disk returned other bytes than were written, or fewer."""
    dice = random.Random(seed)
    data = bytearray(path.read_bytes())
    if seed % 2:
        del data[dice.randrange(len(data)) :]
    else:
        for _ in range(8):
            begin = dice.randrange(len(data))
            data[begin : begin + 16] = dice.randbytes(len(data[begin : begin + 16]))
    path.write_bytes(data)
    use(f"sqlite:///{path}")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER gone AFTER UPDATE ON omidpy_meta BEGIN DELETE FROM omidpy_tables; END",
        "CREATE VIEW cells_99 AS SELECT * FROM omidpy_tables",
    ],
)
def test_what_somebody_planted_is_not_run(path: Path, statement: str, tmp_path: Path) -> None:
    """A trigger emptied a table as soon as something was written."""
    damage(path, statement)
    with pytest.raises(ConfigError, match=r"which no store has.*DROP (TRIGGER|VIEW)"):
        SqliteStore(str(path))
    with pytest.raises(ConfigError, match="which no store has"):
        copy_backup(str(path), str(tmp_path / "copy.db"))


def test_a_schema_is_not_trusted(path: Path) -> None:
    """An index on an expression could call what its author likes, and would when we write."""
    with contextlib.closing(SqliteStore(str(path))) as store:
        database = store._file
        assert database.read(lambda c: c.execute("PRAGMA trusted_schema").fetchone()) == (0,)


def test_a_schema_is_not_trusted_while_it_is_copied(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither that of the backup nor, when its id is written, that of the copy."""
    found = []

    class Watched(sqlite3.Connection):
        def close(self) -> None:
            found.append(self.execute("PRAGMA trusted_schema").fetchone())
            super().close()

    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Watched))
    copy_backup(str(path), str(tmp_path / "copy.db"))
    assert found == [(0,), (0,)]


def test_a_new_store_and_its_copy_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    """Whatever the umask: a store holds what its applications keep."""
    old = os.umask(0)
    try:
        path, copy = tmp_path / "store.db", tmp_path / "copy.db"
        SqliteStore(str(path)).close()
        store = SqliteStore(str(path))
        copy_backup(str(path), str(copy))
        store.close()
    finally:
        os.umask(old)
    modes = {found.name: stat.S_IMODE(found.stat().st_mode) for found in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}, modes


def test_names_do_not_reach_the_terminal_as_they_are(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They could clear the screen, or write what a person takes for ours."""
    evil = "evil' || char(27, 155, 8238) || '[2J"
    damage(path, f"UPDATE omidpy_tables SET name = '{evil}' WHERE name = 'stock'")
    damage(path, f"UPDATE omidpy_meta SET value = '{evil}' WHERE name = 'store_id'")
    for command in (["status"], ["doctor"], ["table", "list"], ["table", "adopt", "\x1b[2J"]):
        with contextlib.suppress(SystemExit):
            main([*command, "--store", f"sqlite:///{path}"])
        told = capsys.readouterr()
        for text in (told.out, told.err):
            assert all(one.isprintable() or one == "\n" for one in text), command
    assert printable("a\x1b[2J\x9b\u202eb\nc") == r"a\x1b[2J\x9b\u202eb" + "\nc"


@pytest.mark.parametrize("name", ["there is no store_id", "the store_id is a number"])
def test_a_store_without_an_id_is_refused(path: Path, name: str) -> None:
    """It would be taken for whichever store an oracle serves."""
    damage(path, DAMAGES[name])
    with pytest.raises(ConfigError, match="has no store_id"):
        SqliteStore(str(path))
