"""Runs the code of a Markdown page as a reader would: top to bottom, in one empty folder.

A fenced block does what its language says:

    python     runs in the page's one interpreter, which keeps its names from block to block
    text       what the block before it printed
    console    each line after `$ ` is a command, and what follows is what it prints
    toml       a file, see below

A command that ends with `&` runs on behind the page, and `kill %1` ends the first such command;
`kill -HUP %1` lets it read its files again, and fails if it says that it could not.
`export NAME=VALUE` holds for every later command.  A
comment on the line above a block changes its meaning: `<!-- file: NAME -->` writes the block to a
file, `<!-- not run: REASON -->` leaves it alone.

Output is compared loosely: `...` stands for anything, and any two numbers of six or more digits
(timestamps, ids) are the same.
"""

from __future__ import annotations

import json
import os
import queue
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Final, NamedTuple, Self

from tests.machines.hbase.ports import PortBlock

ROOT: Final = Path(__file__).parents[2]
DEADLINE_S: Final = 120.0

READY: Final = ("listening on ", "standby ")
"""How a line of stderr begins by which a server says that it is where it wants to be."""

RELOADED: Final = re.compile(r"tls-reloaded|tls-not-reloaded|nothing-to-reload")
"""What a server says once it has read its files again, or could not."""

PORTS: Final = ("24758", "24759", "24760")
"""Ports that pages print; each page gets free ones instead."""

_FENCE: Final = re.compile(
    r"(?:^<!-- (?P<note>.*?) -->\n)?^```(?P<language>\S+)\n(?P<text>.*?)^```$",
    flags=re.MULTILINE | re.DOTALL,
)
_LONG_NUMBER: Final = re.compile(r"\d{6,}")

# Reads blocks as JSON lines and answers each with its output and, if it failed, why.
_INTERPRETER: Final = """
import contextlib, io, json, sys, traceback
names = {"__name__": "__main__"}
for line in sys.stdin:
    block = json.loads(line)
    output, failure = io.StringIO(), None
    with contextlib.redirect_stdout(output):
        try:
            source = "\\n" * block["line"] + block["text"]
            exec(compile(source, block["page"], "exec"), names)
        except BaseException:
            failure = traceback.format_exc()
    print(json.dumps([output.getvalue(), failure]), flush=True)
"""


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    line: int
    """Of the opening fence, from 1."""
    note: str
    """What the comment above it says; empty if there is none."""


def pages() -> list[Path]:
    """Return the pages of the documentation, the fragments of the change notes left out."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    return [page for page in found if page.parent.name != "changes"]


def blocks(page: Path) -> Iterator[Block]:
    """Yield a page's fenced blocks in order; directives of the site are none."""
    text = page.read_text("utf-8")
    for match in _FENCE.finditer(text):
        if not match["language"].startswith("{"):
            line = text.count("\n", 0, match.start("language")) + 1
            yield Block(match["language"], match["text"], line, match["note"] or "")


def looks_like(printed: str, expected: str) -> bool:
    """Say whether output is what a page shows, loosely."""
    parts = [re.escape(_plain(part)) for part in expected.split("...")]
    return re.fullmatch(".*?".join(parts), _plain(printed), flags=re.DOTALL) is not None


def _plain(text: str) -> str:
    lines = [line.rstrip() for line in _LONG_NUMBER.sub("<number>", text).splitlines()]
    return "\n".join(lines).strip("\n")


class PageRun:
    """One page while it runs.  Whatever it started is gone when the `with` block ends."""

    def __init__(
        self,
        page: Path,
        directory: Path,
        *,
        addresses: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        """Prepare to run a page.

        Args:
            page: What to run.
            directory: An empty folder to run it in.
            addresses: What the page calls servers, and where they are.
            python: Runs what is Python, and has the commands beside it.
        """
        self._page = page
        self._directory = directory
        # The printed ports may be in use; and one of the kernel's choice is free only until then.
        ports = PortBlock()
        self._real = {**{port: str(ports.port(port)) for port in PORTS}, **(addresses or {})}
        names = sorted(self._real, key=len, reverse=True)  # `omid:24758` before `24758`
        self._printed_address = re.compile("|".join(map(re.escape, names)))
        self._python = python
        self._environment = environment(python)
        self._stack = ExitStack()
        self._stack.callback(ports.close)
        self._background: list[Server] = []
        self._interpreter: subprocess.Popen[str] | None = None
        self._printed = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def run(self) -> None:
        """Run every block; the first that fails or prints something else raises."""
        for block in blocks(self._page):
            text = self._with_real_addresses(block.text)
            if block.note.startswith("not run:"):
                continue
            if block.note.startswith("file:"):
                (self._directory / block.note.removeprefix("file:").strip()).write_text(text)
            elif block.language == "python":
                self._printed = self._run_python(block, text)
            elif block.language == "text":
                self._compare(block, self._printed, text)
            elif block.language == "console":
                self._run_console(block, text)
            else:
                self._fail(block, f"nobody knows how to run {block.language}")

    def _with_real_addresses(self, text: str) -> str:
        return self._printed_address.sub(lambda found: self._real[found[0]], text)

    def _run_python(self, block: Block, text: str) -> str:
        if self._interpreter is None:
            self._interpreter = subprocess.Popen(
                [self._python, "-W", "error", "-c", _INTERPRETER],
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._stack.callback(_end, self._interpreter)
        stdin, stdout = self._interpreter.stdin, self._interpreter.stdout
        assert stdin is not None
        assert stdout is not None
        request = {"page": self._page.name, "line": block.line, "text": text}
        print(json.dumps(request), file=stdin, flush=True)
        printed, failure = json.loads(stdout.readline())
        if failure is not None:
            self._fail(block, failure)
        return str(printed)

    def _run_console(self, block: Block, text: str) -> None:
        for command, expected in commands(text):
            if command.endswith("&"):
                words = shlex.split(command.removesuffix("&"))
                server = Server(words, self._directory, self._environment)
                self._stack.callback(server.end)
                self._background.append(server)
                if not server.is_ready():
                    self._fail(block, f"{command} ended:\n{server.said()}")
                continue
            if variable := re.fullmatch(r"export (\w+)=(\S+)", command):
                self._environment[variable[1]] = variable[2]
                continue
            if job := re.fullmatch(r"kill (?:-(\w+) )?%(\d+)", command):
                server = self._background[int(job[2]) - 1]
                if job[1] != "HUP":
                    server.kill(job[1] or "TERM")
                elif not server.reload():
                    self._fail(block, f"{command}: not read:\n{server.said()}")
                continue
            result = subprocess.run(
                command,
                shell=True,
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=DEADLINE_S,
            )
            if expected:
                self._compare(block, result.stdout, expected)
            elif result.returncode != 0:
                self._fail(block, f"{command}\n{result.stdout}")

    def _compare(self, block: Block, printed: str, expected: str) -> None:
        if not looks_like(printed, expected):
            self._fail(block, f"printed\n{printed}\nbut the page shows\n{expected}")

    def _fail(self, block: Block, reason: str) -> None:
        raise AssertionError(f"{self._page.name}:{block.line}: {reason}")


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block and what it prints."""
    joined = text.replace("\\\n", " ")  # a command that goes on in the next line
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command.strip(), expected


class Server:
    """A command that runs behind the page."""

    def __init__(self, words: list[str], directory: Path, variables: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            words, cwd=directory, env=variables, stderr=subprocess.PIPE, text=True
        )
        self._lines: list[str] = []
        self._news: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert self._process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stderr,))
        self._reader.start()

    def _read(self, stderr: IO[str]) -> None:
        for line in stderr:
            self._lines.append(line)
            self._news.put(line)
        self._news.put("")

    def is_ready(self) -> bool:
        """Wait until it says that it is ready; False if it ended instead."""
        while line := self._news.get(timeout=DEADLINE_S):
            if line.startswith(READY):
                return True
        return False

    def said(self) -> str:
        """Return what it wrote to stderr so far."""
        return "".join(self._lines)

    def kill(self, signal_name: str) -> None:
        """Send a signal, and wait until it is gone."""
        subprocess.run(["kill", f"-{signal_name}", str(self._process.pid)], check=True)
        self._process.wait(DEADLINE_S)

    def reload(self) -> bool:
        """Let it read its files again, and wait until it has; False if it could not."""
        subprocess.run(["kill", "-HUP", str(self._process.pid)], check=True)
        while line := self._news.get(timeout=DEADLINE_S):
            if RELOADED.search(line):
                return "not-reloaded" not in line
        return False

    def end(self) -> None:
        """End it, however it is."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()


def _end(interpreter: subprocess.Popen[str]) -> None:
    assert interpreter.stdin is not None
    assert interpreter.stdout is not None
    interpreter.stdin.close()
    interpreter.wait(DEADLINE_S)
    interpreter.stdout.close()


def environment(python: str = sys.executable) -> dict[str, str]:
    """Return an environment with the commands of a Python, and the packages of this checkout."""
    path = os.pathsep.join((str(Path(python).parent), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
