"""`omidpy completion`: the script that it prints, and what answers it, in a real shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from omidpy.cli import main
from omidpy.cli.completion import typed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is evaluated as it is, so that it must be nothing but the script."""
    with pytest.raises(SystemExit) as ended:
        main(["completion", shell])
    assert not ended.value.code
    assert f"_OMIDPY_COMPLETE=complete_{shell}" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is missing: install bash")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("omidpy fat", ["fate"]),
        ("omidpy tx ", ["inspect", "outcome"]),
        ("omidpy tx out", ["outcome"]),
    ],
)
def test_bash_completes_with_it(line: str, expected: list[str], tmp_path: Path) -> None:
    """From the script that is printed to the words that bash would offer."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    command = bin_folder / "omidpy"
    command.write_text(
        f"#!/bin/sh\nexec '{sys.executable}' -c 'from omidpy.cli import main; main()' \"$@\"\n"
    )
    command.chmod(0o755)
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    script = (
        'eval "$(omidpy completion bash)"\n'
        f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n"
        '_omidpy_completion omidpy\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    path = os.pathsep.join((str(bin_folder), os.environ["PATH"]))
    run = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(run.stdout.split()) == sorted(expected), run.stderr


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"COMP_WORDS": "omidpy tx "}, None),
        ({"_OMIDPY_COMPLETE": "complete_bash", "COMP_WORDS": "omidpy tx "}, ["tx"]),
        ({"_OMIDPY_COMPLETE": "complete_bash", "COMP_WORDS": "omidpy tx"}, []),
        ({"_OMIDPY_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "omidpy tx in"}, ["tx"]),
        ({"_OMIDPY_COMPLETE": "complete_zsh"}, []),
    ],
)
def test_whole_words_choose_what_is_imported(
    environment: dict[str, str], expected: list[str] | None
) -> None:
    """All verbs together take most of a second to import, at each press of the key."""
    assert typed(environment) == expected
