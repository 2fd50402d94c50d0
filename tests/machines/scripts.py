"""Scripts in real Python processes that a test talks to line by line, each wait with a deadline."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

ROOT: Final = Path(__file__).parents[2]
DEADLINE_S: Final = 60.0


class Child:
    """A process that runs a script; killed when the test leaves the `with` block."""

    def __init__(self, script: str, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._pump = threading.Thread(target=self._read, daemon=True)
        self._pump.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        # Forked children that outlive the process see the end of their input, and end too.
        self.process.stdin.close()
        self._pump.join()
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def line(self, deadline_s: float = DEADLINE_S) -> str:
        """Return the next line the process prints."""
        return self._lines.get(timeout=deadline_s)

    def say(self, text: str) -> None:
        """Send a line to the process."""
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        """Wait for the end and return the exit code, negative for a signal."""
        return self.process.wait(deadline_s)
