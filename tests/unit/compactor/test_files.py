"""The files that a run writes: whole, or as they were."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from compactor.options import Options
from compactor.report import Report
from compactor.shell.command import EXIT_FAILED, show
from compactor.shell.files import put_file

CODE: Final = """
import sys
from compactor.shell.files import put_file
print("before", flush=True)
put_file(sys.argv[1], b"content\\n")
print("behind")
"""


def test_a_full_disk_leaves_the_old_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It used to be empty, or half a document."""
    path = tmp_path / "report.json"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert show(Report(), Options(), report_path=str(path), as_json=True) == EXIT_FAILED
    assert "no report in" in capsys.readouterr().err
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_keeps_its_rights_and_its_links(tmp_path: Path) -> None:
    """A new one is as readable as any other that is made."""
    path, link = tmp_path / "report.json", tmp_path / "link"
    put_file(str(path), b"first")
    beside = tmp_path / "beside"
    beside.write_text("")
    assert path.stat().st_mode == beside.stat().st_mode
    path.chmod(0o640)
    link.symlink_to(path)
    put_file(str(link), b"second")
    assert link.is_symlink()
    assert path.read_bytes() == b"second"
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_the_output_of_the_process_is_written_to(tmp_path: Path, name: str) -> None:
    """Into a pipe, which has no name of its own, and into a file that others have begun."""
    command = [sys.executable, "-c", CODE, name]
    piped = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    assert piped.stdout == b"before\ncontent\nbehind\n"
    path = tmp_path / "out"
    with path.open("ab") as out:
        subprocess.run(command, check=True, stdout=out)
    assert path.read_bytes() == b"before\ncontent\nbehind\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_in_a_closed_folder_is_written_over(tmp_path: Path) -> None:
    """Where no other can be made, as before."""
    path = tmp_path / "report.json"
    path.write_text("old")
    tmp_path.chmod(0o500)
    put_file(str(path), b"new")
    assert path.read_bytes() == b"new"
