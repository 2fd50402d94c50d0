"""Runs the code of the README, with the Python and the commands that it is given."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, NamedTuple

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


def run_readme(
    python: Path,
    directory: Path,
    environment: Mapping[str, str],
    flags: Sequence[str] = ("-W", "error"),
) -> None:
    """Run the README's examples; the first that fails or prints something else raises.

    Python blocks run as scripts, and print what the `text` block after them says.  The lines of
    `console` blocks run in order, in the background where they end with `&`.

    Args:
        python: Runs the scripts.
        directory: An empty folder to run in.
        environment: Where the commands are found.
        flags: What Python is told; by default a warning fails.

    Raises:
        AssertionError: the README promises something else.
    """
    printed = ""
    with closing(PortBlock()) as ports, ExitStack() as stack:
        port = str(ports.port(PORT))  # the printed one may be in use
        for language, text, line in blocks():
            source = text.replace(PORT, port)
            if language == "python":
                command = [str(python), *flags, "-c", source]
                printed = _run(command, directory, environment)
            elif language == "text":
                assert printed == text, f"README.md:{line}"
            elif language == "console":
                for command_line in re.findall(r"^\$ (.*)$", source, flags=re.MULTILINE):
                    words = shlex.split(command_line.removesuffix(" &"))
                    if command_line.endswith(" &"):
                        _start(words, directory, environment, stack)
                    else:
                        _run(words, directory, environment)


def _run(command: list[str], directory: Path, environment: Mapping[str, str]) -> str:
    result = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


def _start(
    command: list[str], directory: Path, environment: Mapping[str, str], stack: ExitStack
) -> None:
    """Start a server, and return when it says that it listens."""
    server = subprocess.Popen(
        command, cwd=directory, env=environment, stderr=subprocess.PIPE, text=True
    )
    stack.enter_context(server)  # waits for it
    stack.callback(server.kill)
    assert server.stderr is not None
    said = []
    for line in server.stderr:
        said.append(line)
        if line.startswith("listening on "):
            return
    raise AssertionError(f"{command} ended:\n{''.join(said)}")
