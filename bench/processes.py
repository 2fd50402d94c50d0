"""A `tso-server` for the time of a measurement.

It is a real process on a free port; it is told to drain at the end, and killed if it does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
"""The checkout: `python -m` finds the packages from here."""

START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 15.0
_READY: Final = "listening on "


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Let this thread, and whatever it starts, run on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def tso_server(
    store: str,
    *,
    log: Path,
    options: Sequence[str] = (),
    program: Sequence[str] = ("tso.cli",),
    on_start: Callable[[int], None] = lambda _: None,
    checkout: Path = ROOT,
) -> Iterator[str]:
    """Run a `tso-server` on `store`; yield the address it listens on.

    Args:
        store: Address of the store; the server makes what is missing in it.
        log: Where its standard error goes, the line that says it listens included.
        options: Further arguments of the command.
        program: The module that is run, and arguments that only it knows.
        on_start: Told the id of the process.
        checkout: Whose `tso-server` it is.

    Raises:
        RuntimeError: it did not start or stop in good order; the message ends with its log.
    """
    command = [sys.executable, "-m", *program, "--store", store, "--listen", "127.0.0.1:0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *options], cwd=checkout, stdin=subprocess.DEVNULL, stderr=output
        )
        on_start(process.pid)
        try:
            yield _address(process, log)
            process.terminate()
            if process.wait(STOP_TIMEOUT_S) != 0:
                raise RuntimeError(
                    f"tso-server ended with {process.returncode}:\n{log.read_text()}"
                )
        finally:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline_s:
        for line in log.read_text().splitlines():
            _, found, address = line.partition(_READY)
            if found:
                return address.strip()
        time.sleep(0.02)
    raise RuntimeError(f"tso-server did not start:\n{log.read_text()}")
