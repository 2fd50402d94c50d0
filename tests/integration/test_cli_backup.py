"""`omidpy backup` and `omidpy restore`: what they print, what they make, and how they exit."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import omidpy
from omidpy.cli import main
from tests.machines.processes import ROOT


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the address of a store with one row."""
    url = f"sqlite:///{tmp_path}/bank.db"
    with omidpy.connect(url) as tm:
        tm.create_table("t", families=["cf"])
        with tm.begin() as tx:
            tx.table("t").put(b"a", {b"cf:q": b"1"})
    return url


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a command; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    captured = capsys.readouterr()
    return int(caught.value.code or 0), captured.out, captured.err


def test_a_store_is_backed_up_while_it_is_open_and_restored_elsewhere(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The restored store has the row and an id of its own."""
    restored = f"sqlite:///{tmp_path}/restored.db"
    backup = str(tmp_path / "bank.backup")
    with omidpy.connect(url) as tm:
        code, out, err = run(capsys, "backup", backup, "--store", url)
        assert (code, err) == (0, "")
        assert f"a copy of {tm.store.store_id}" in out
        code, out, _ = run(capsys, "restore", backup, "--store", restored, "--json")
        assert code == 0
        document = json.loads(out)
        assert set(document) == {"store_id", "copied_from", "size_bytes"}
        assert document["store_id"] != tm.store.store_id
    with omidpy.connect(restored) as tm, tm.begin() as tx:
        assert tx.table("t").row(b"a") == {b"cf:q": b"1"}


def test_the_oracle_of_the_original_is_none_of_the_copys(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`omidpy doctor` and `status` said that it decides there, though it refuses each client."""
    backup, restored = str(tmp_path / "bank.backup"), f"sqlite:///{tmp_path}/restored.db"
    with omidpy.connect(url):
        run(capsys, "backup", backup, "--store", url)
        run(capsys, "restore", backup, "--store", restored)
        for copy, is_held in ((url, True), (f"sqlite:///{backup}", False), (restored, False)):
            code, out, _ = run(capsys, "doctor", "--store", copy, "--json")
            (lease,) = (one for one in json.loads(out)["checks"] if one["name"] == "lease")
            assert (code, lease["is_held"]) == (0, is_held)
        assert json.loads(run(capsys, "status", "--store", restored, "--json")[1])["oracle"] is None


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_damaged_backup_is_named_in_a_line(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_cut: bool
) -> None:
    """It is not the copy, nor the store, and it is no use to restore it from a backup."""
    backup = tmp_path / "bank.backup"
    run(capsys, "backup", str(backup), "--store", url)
    raw = backup.read_bytes()
    page = 4096
    backup.write_bytes(raw[:-page] if is_cut else raw[:-page] + b"\xff" * page)
    target = tmp_path / "restored.db"
    code, out, err = run(capsys, "restore", str(backup), "--store", f"sqlite:///{target}")
    assert (code, out, err.count("\n"), target.exists()) == (1, "", 1, False)
    assert "bank.backup is damaged" in err
    assert "restore an earlier backup" in err


def test_a_disk_is_not_filled_with_half_a_copy(
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients of the store, whose disk it may be, had no room until the backup gave up."""
    backup = tmp_path / "bank.backup"
    run(capsys, "backup", str(backup), "--store", url)
    size = backup.stat().st_size
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=size - 1))
    target = tmp_path / "more.db"
    for words in (("backup", str(target), "--store", url), ("restore", str(backup), "--store")):
        more = () if words[-1] == url else (f"sqlite:///{target}",)
        code, out, err = run(capsys, *words, *more)
        assert (code, out) == (1, "")
        assert f"would take {size:,} bytes, and there are {size - 1:,}" in err
    assert sorted(one.name for one in tmp_path.glob("more*")) == []


ENDED: Final = """
import os, signal
from omidpy.cli import main
from omidpy.storage.sqlite import backup

backup._rename = lambda *_: os.kill(os.getpid(), signal.{})
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_backup_that_is_told_to_end_leaves_nothing(
    url: str, tmp_path: Path, number: signal.Signals
) -> None:
    """Its file stood in the way of the next one, each night until somebody removed it."""
    target = tmp_path / "more.backup"
    script = ENDED.format(number.name)
    words = [sys.executable, "-c", script, "backup", str(target), "--store", url]
    ended = subprocess.run(words, check=False, cwd=ROOT)
    assert ended.returncode == -number
    assert list(tmp_path.glob("more*")) == []


def test_what_is_there_is_not_overwritten(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr, and exit code 2."""
    backup = str(tmp_path / "bank.backup")
    assert run(capsys, "backup", backup, "--store", url)[0] == 0
    for words in (("backup", backup, "--store", url), ("restore", backup, "--store", url)):
        code, out, err = run(capsys, *words)
        assert (code, out) == (2, "")
        assert "exists already" in err
        assert err.count("\n") == 1
