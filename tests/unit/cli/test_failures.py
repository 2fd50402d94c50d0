"""What ends a command is one line on stderr, also where the system refuses something."""

from __future__ import annotations

import errno
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Final, TypeAlias

import pytest

import omidpy
from omidpy.cli import main
from omidpy.recipes.export_queue import ExportQueue

COMMAND: Final = "from omidpy.cli import main; main()"

Said: TypeAlias = tuple[object, str, str]


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Return what runs a command on a store that is set up: exit code, stdout and stderr."""
    monkeypatch.setenv("OMIDPY_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.delenv("OMIDPY_TSO", raising=False)

    def run(*words: str) -> Said:
        with pytest.raises(SystemExit) as ended:
            main(words)
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    assert run("init")[0] in (None, 0)
    return run


def refusing(error: int, *, after: int = 0) -> Callable[..., None]:
    """Return what writes some lines to stdout, and then is refused by the system."""
    lines = iter(range(after))

    def echo(text: str, *, err: bool = False) -> None:
        if not err and next(lines, None) is None:
            raise OSError(error, os.strerror(error))
        print(text, file=sys.stderr if err else sys.stdout)

    return echo


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EPIPE])
def test_an_answer_that_cannot_be_written_says_that_the_work_is_done(
    run: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """It said `No space left on device` of a table that it had made, or nothing; exit code 1."""
    with monkeypatch.context() as patched:
        patched.setattr("omidpy.cli.saying.typer.echo", refusing(error))
        code, _, err = run("table", "create", "t", "--families", "cf", "--apply")
    told = "the answer cannot be written to stdout"
    expected = f"error: {told}: {os.strerror(error)}; what the command has done is done\n"
    assert (code, err) == (1, expected)
    assert "owned" in run("table", "list")[1]


def test_a_reader_that_has_seen_enough_is_told_nothing(
    run: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `omidpy table list | head -1`."""
    monkeypatch.setattr("omidpy.cli.saying.typer.echo", refusing(errno.EPIPE, after=1))
    code, _, err = run("table", "list")
    assert (code, err) == (1, "")


def test_a_word_on_stderr_that_nobody_takes_ends_nothing(
    run: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of progress ended a compaction half-way where its log was full."""

    class Full(StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sys.stderr", Full())
    code, out, _ = run("compact", "--json")
    assert (code, json.loads(out)["dry_run"]) == (0, False)
    assert run("fate", "wait", "0123456789abcdef")[0] == 1


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("table", "drop", "absent"), 1, "there is no table 'absent'"),
        (("table", "drop", "OMID_COMMIT_TABLE"), 2, "OMID_COMMIT_TABLE"),
        (("table", "drop"), 2, "stderr says how"),
        (("fate", "wait", "0123456789abcdef"), 1, "there is no operation"),
        (("fate", "--fail"), 2, "At least one txId required"),
        (("compact", "--tso", "127.0.0.1:1", "--log-format", "json"), 1, "no oracle answers"),
        (("doctor", "--store", "nowhere"), 2, "'nowhere' is none of"),
    ],
)
def test_a_program_that_reads_json_is_told_of_a_failure_in_json(
    run: Callable[..., Said], words: tuple[str, ...], code: int, told: str
) -> None:
    """It read nothing, which is no document."""
    found, out, err = run(*words, "--json")
    document = json.loads(out)
    assert (found, document["code"]) == (code, code)
    assert told in document["error"]
    assert err
    if words[0] == "fate":
        assert json.loads(run(*words, "-j")[1]) == document
    assert run(*words)[1] == ""


def test_a_document_that_is_there_stays_the_only_one(run: Callable[..., Said]) -> None:
    """Some verbs show what they have found, and fail then."""
    code, out, err = run("fate", "list", "0123456789abcdef", "--json")
    assert (code, json.loads(out)) == (1, [])
    assert "there is no operation" in err


def test_without_a_stderr_stdout_is_one_document(tmp_path: Path) -> None:
    """Python takes stdout for it: lines of progress stood before the report."""
    url = f"sqlite:///{tmp_path}/store.db"
    omidpy.connect(url).close()
    command = f"exec {shlex.join([sys.executable, '-c', COMMAND, 'compact', '--json'])} 2>&-"
    found = subprocess.run(
        ["sh", "-c", command],
        env={**os.environ, "OMIDPY_STORE": url},
        capture_output=True,
        check=True,
    )
    assert json.loads(found.stdout)["dry_run"] is False


def test_a_terminal_without_such_letters_shows_escapes(tmp_path: Path) -> None:
    """It was refused as a mistake in the words of the command, behind what that had done."""
    url = f"sqlite:///{tmp_path}/store.db"
    with omidpy.connect(url) as tm:
        queue = ExportQueue.create(tm, "q", buckets=1)
        with tm.begin() as tx:
            queue.add(tx, "→".encode(), 1)
    found = subprocess.run(
        [sys.executable, "-c", COMMAND, "export", "peek", "q"],
        env={**os.environ, "OMIDPY_STORE": url, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=True,
    )
    assert b"\\u2192" in found.stdout


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
