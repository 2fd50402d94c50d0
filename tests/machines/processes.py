"""Real processes for tests: a `tso-server` that is started, watched and surely ended.

    with tso_server("sqlite:////...") as server:
        oracle = TcpOracle(server.address)

Nothing waits for a time to pass: the server says when it listens, and a process is waited for by
its id.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import tso

ROOT = Path(tso.__file__).parents[1]
LONGEST_S = 60.0
_LISTENING = re.compile(r"listening on (\S+)")


class ServerProcess:
    """A `tso-server` process.  Its stderr is collected by a thread, so that no pipe fills up."""

    def __init__(
        self,
        store: str,
        *options: str,
        listen: str = "127.0.0.1:0",
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = ("tso.cli",),
    ) -> None:
        """Start the server, or another module with the same options; it may not listen yet."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", *program, "--store", store, "--listen", listen, *options],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._is_over = False
        self._reader = threading.Thread(target=self._collect, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self.process.pid

    @property
    def log(self) -> str:
        """Everything it has written to stderr so far."""
        with self._news:
            return "\n".join(self.lines)

    @property
    def address(self) -> str:
        """HOST:PORT it listens on; waits until it says so."""
        found = _LISTENING.fullmatch(self.wait_for(_LISTENING.pattern))
        assert found is not None, "the line is exactly the announcement"
        return found[1]

    def wait_for(self, pattern: str) -> str:
        """Return the first line that matches; fails if the process ends without one."""

        def matching() -> str | None:
            return next((line for line in self.lines if re.search(pattern, line)), None)

        with self._news:
            self._news.wait_for(lambda: matching() or self._is_over, LONGEST_S)
            line = matching()
        assert line is not None, f"no line matches {pattern!r}:\n{self.log}"
        return line

    def kill(self) -> None:
        """End it as a power failure would, as far as one process can tell."""
        self.process.kill()
        self.process.wait(LONGEST_S)

    def terminate(self) -> int:
        """Ask it to drain; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end; return its exit code."""
        code = self.process.wait(LONGEST_S)
        self._reader.join(LONGEST_S)
        return code

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        self._reader.join(LONGEST_S)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def _collect(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._is_over = True
            self._news.notify_all()


@contextmanager
def tso_server(
    store: str,
    *options: str,
    listen: str = "127.0.0.1:0",
    environment: Mapping[str, str] | None = None,
) -> Iterator[ServerProcess]:
    """Run a `tso-server` for the length of a block, at whose start it need not listen yet."""
    server = ServerProcess(store, *options, listen=listen, environment=environment)
    try:
        yield server
    finally:
        server.close()
