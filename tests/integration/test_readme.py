"""The README's code, run as printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.machines.hbase.ports import PortBlock

ROOT: Final = Path(__file__).parents[2]
PORT: Final = "24758"


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line where it begins."""

    language: str
    text: str
    line: int


def blocks() -> Iterator[Block]:
    """Yield the README's fenced blocks in order."""
    text = (ROOT / "README.md").read_text("utf-8")
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        yield Block(match[1], match[2], text.count("\n", 0, match.start()) + 1)


def environment() -> dict[str, str]:
    """Return an environment with the commands of this Python, and the packages of this checkout."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


def run(command: list[str], directory: Path) -> str:
    """Run a command to its end and return what it printed."""
    result = subprocess.run(
        command,
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


def start(command: list[str], directory: Path, stack: ExitStack) -> None:
    """Start a server, and return when it says that it listens."""
    server = subprocess.Popen(
        command, cwd=directory, env=environment(), stderr=subprocess.PIPE, text=True
    )
    stack.enter_context(server)  # waits for it
    stack.callback(server.kill)
    assert server.stderr is not None
    said = []
    for line in server.stderr:
        said.append(line)
        if line.startswith("listening on "):
            return
    pytest.fail(f"{command} ended:\n{''.join(said)}")


@pytest.mark.integration
def test_the_readme_runs_as_printed(tmp_path: Path) -> None:
    """The first thing a new user does is copy it.

    Python blocks run as scripts, and print what the `text` block after them says.  The lines of
    `console` blocks run in order, in the background where they end with `&`.
    """
    printed = ""
    with closing(PortBlock()) as ports, ExitStack() as stack:
        port = str(ports.port(PORT))  # the printed one may be in use
        for language, text, line in blocks():
            source = text.replace(PORT, port)
            if language == "python":
                printed = run([sys.executable, "-W", "error", "-c", source], tmp_path)
            elif language == "text":
                assert printed == text, f"README.md:{line}"
            elif language == "console":
                for command in re.findall(r"^\$ (.*)$", source, flags=re.MULTILINE):
                    words = shlex.split(command.removesuffix(" &"))
                    if command.endswith(" &"):
                        start(words, tmp_path, stack)
                    else:
                        run(words, tmp_path)


def test_the_readme_shows_what_the_test_above_runs() -> None:
    """A README without blocks would pass it."""
    languages = [block.language for block in blocks()]
    assert languages.count("python") == languages.count("text") == 2
    assert "console" in languages
