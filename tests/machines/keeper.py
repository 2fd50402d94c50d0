"""A process that cannot outlive the tests that started it.

    kept = Kept([java, ...], log=path)
    kept.pid, kept.kill(), kept.wait(5.0)

Between us and the process stands a small Python process, this file run as a script: the keeper.
It holds one end of a pipe whose other end is ours.  The pipe ends when we end, whichever way, and
so the keeper knows.  It also looks at whose child it is: a child that we forked may hold our end of
the pipe open after us.  The kernel can tell a process of its parent's death
(PR_SET_PDEATHSIG), but it means the death of the *thread* that started it, and a test may well
restart a server from a thread; the keeper has one thread only, so for its own death the kernel's
word is good enough.  Linux only.

    python keeper.py PARENT LOG COMMAND...     prints the id of the process, exits with its code
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LOOK_EVERY_S = 0.5
_PR_SET_PDEATHSIG = 1


class Kept:
    """One process that a keeper watches; its output goes to the end of `log`."""

    def __init__(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start it; returns once the process exists.

        Raises:
            OSError: The command could not be started; the log says why.
        """
        self._keeper = subprocess.Popen(
            # -I -S: nothing of the project's environment is loaded, so that it starts in no time.
            [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(log), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self._keeper.stdout is not None
        with self._keeper.stdout:
            line = self._keeper.stdout.readline()
        if not line:
            self.wait(None)
            raise OSError(f"{command[0]} could not be started, see {log}")
        self.pid = int(line)

    @property
    def is_running(self) -> bool:
        """Say whether it has not ended; a stopped process counts as running."""
        return self._keeper.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        # The keeper waits for it, so between its end and ours its id may belong to nobody, but
        # hardly to another.
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def pause(self) -> None:
        """Stop it where it is; returns when no thread of it runs any more."""
        self.send(signal.SIGSTOP)
        # A signal is delivered soon, not at once, and a server may answer until it is.
        while self.is_running and not self._has_stopped():
            os.sched_yield()

    def resume(self) -> None:
        """Let it go on."""
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once (SIGKILL, also when it is stopped) and wait for that."""
        self.send(signal.SIGKILL)
        self.wait(None)

    def wait(self, longest_s: float | None) -> int:
        """Return its exit code, negative for a signal.

        Raises:
            subprocess.TimeoutExpired: It has not ended within `longest_s`.
        """
        code = self._keeper.wait(longest_s)
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        # 143 is what a JVM that was asked to end says of itself; a signal's number is below 65.
        return code - 256 if code >= 192 else code

    def _has_stopped(self) -> bool:
        try:
            states = [
                (thread / "stat").read_text().rpartition(")")[2].split()[0]
                for thread in Path(f"/proc/{self.pid}/task").iterdir()
            ]
        except OSError:
            return False  # a thread, or all of it, has just ended
        return set(states) == {"T"}


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _keep(parent: int, log: Path, command: Sequence[str]) -> int:
    """Run the command until it ends or until the parent has; return its exit code modulo 256."""
    # A terminal's interrupt goes to the whole group; what follows from it is for the parent to say.
    os.setpgrp()
    with log.open("ab") as output:
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has no other thread
            )
        except OSError as error:
            output.write(f"{error}\n".encode())
            return 127
    print(child.pid, flush=True)
    ended = os.pidfd_open(child.pid)
    while True:
        ready, _, _ = select.select([sys.stdin, ended], [], [], LOOK_EVERY_S)
        if ended in ready:
            return child.wait() % 256
        if sys.stdin in ready or os.getppid() != parent:
            child.kill()
            return child.wait() % 256


if __name__ == "__main__":
    sys.exit(_keep(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
