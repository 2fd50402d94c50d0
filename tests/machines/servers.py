"""A real `tso-server` that a test starts, kills and starts again on the same port."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Final, Self

ROOT: Final = Path(__file__).parents[2]
DEADLINE_S: Final = 30.0
_LISTENING: Final = "listening on "


class TsoServer:
    """One `tso-server` process after another, over one store."""

    def __init__(self, store_url: str, *options: str) -> None:
        self.store_url = store_url
        self.options = options
        self.address = "127.0.0.1:0"
        self.log: deque[str] = deque(maxlen=200)
        """The last lines of every instance."""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start an instance and return when it can answer; later ones take the first one's port."""
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tso.cli", "--store", self.store_url),
                *("--listen", self.address, *self.options),
            ],
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._process = process
        listening: queue.SimpleQueue[str | None] = queue.SimpleQueue()

        def pump() -> None:
            assert process.stderr is not None
            with process.stderr:
                for line in process.stderr:
                    self.log.append(line.rstrip("\n"))
                    if line.startswith(_LISTENING):
                        listening.put(line.removeprefix(_LISTENING).strip())
            listening.put(None)

        threading.Thread(target=pump, daemon=True).start()
        address = listening.get(timeout=DEADLINE_S)
        assert address is not None, "\n".join(self.log)
        self.address = address

    def kill(self) -> None:
        """End the instance as a power failure would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask the instance to end; return its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(DEADLINE_S)
