"""What ends a command is one line on stderr, also where the system refuses something."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from omidpy.cli import main


def refuse(*_: Any, **__: Any) -> None:
    """Behave like a full disk behind the standard output."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_output_that_cannot_be_written_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a full disk, for instance."""
    url = f"sqlite:///{tmp_path}/store.db"
    with pytest.raises(SystemExit):
        main(["init", "--store", url])
    capsys.readouterr()
    monkeypatch.setattr("omidpy.cli.common.typer.echo", refuse)
    with pytest.raises(SystemExit) as ended:
        main(["table", "list", "--store", url])
    assert ended.value.code == 1
    assert "No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["table", "list", "--store", "sqlite:///{}"],
        ["init", "--store", "sqlite:///{}"],
        ["backup", "{}", "--store", "{good}"],
        ["restore", "{}", "--store", "sqlite:///{}"],
        ["compact", "--store", "{good}", "--report", "{}"],
        ["compact", "--store", "{good}", "--metrics", "{}"],
        ["fsck", "--store", "sqlite:///{}"],
    ],
)
def test_a_path_that_cannot_be_looked_at_is_told_in_a_line(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of them ended in a traceback, as in a folder that this user may not enter."""
    good = f"sqlite:///{tmp_path}/good.db"
    with pytest.raises(SystemExit):
        main(["init", "--store", good])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([word.format(tmp_path / ("x" * 300), good=good) for word in words])
    assert ended.value.code in (1, 2)
    assert "too long" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["table", "adopt", "\udcff"], "cannot be written as utf-8"),
        (["table", "ignore", "t", "--families", "\udcff"], "cannot be written as utf-8"),
        (["table", "create", "t", "--families", "\udcff"], "cannot be written as utf-8"),
        (["export", "status", "--tso", "zk://["], "no address of ZooKeeper"),
        (["compact", "--tso", "zk://["], "no address of ZooKeeper"),
        (["compact", "--metrics", "zk://["], "--metrics zk://["),
        (["compact", "--hbase-root", "http://["], "--hbase-root"),
        (["compact", "--hbase-root", "\udcff"], "--hbase-root"),
        (["compact", "--hbase-root", "%00"], "NUL"),
        (["compact", "--ranges-per-region", "9" * 5000], "from 1 to 1000, or auto"),
        (["fsck", "--grace", "9" * 400 + "s"], "is no duration"),
        (["fate", "run", "--module", ""], "is no name of a module"),
        (["fate", "run", "--module", "../../steps"], "is no name of a module"),
        (["backup", "/"], "cannot be looked at"),
        (["export", "replay", "q", "--since", "9" * 5000], "is no moment"),
        (["export", "replay", "q", "--since", "99999999999d"], "is no moment"),
        (["export", "ack", "q", "--commit-ts", "-1"], "is no commit_ts"),
    ],
)
def test_a_word_that_means_nothing_is_told_in_a_line(
    tmp_path: Path,
    words: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes that are no UTF-8, brackets without an address, and numbers beyond all measure."""
    monkeypatch.setenv("OMIDPY_STORE", f"sqlite:///{tmp_path}/good.db")
    for before in (["init"], ["export", "create", "q"]):
        with pytest.raises(SystemExit):
            main(before)
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code in (1, 2)
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error
