"""Does a process that the tests start end with them, however they end?"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.machines.keeper import Kept
from tests.machines.processes import LONGEST_S, ROOT

pytestmark = pytest.mark.integration

FOREVER = ("sleep", "1000")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Give a file for what a process writes."""
    return tmp_path / "log"


@contextmanager
def starter(log: Path, *, then: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a Python process that starts a kept one and then does something; give both."""
    program = (
        "import os, signal, sys, threading, time\n"
        "from pathlib import Path\n"
        "from tests.machines.keeper import Kept\n"
        f"kept = Kept({list(FOREVER)}, log=Path(sys.argv[1]))\n"
        "print(kept.pid, flush=True)\n"
        f"{then}\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(log)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def wait_for_end(pid: int) -> None:
    """Wait until a process that is not our child has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], LONGEST_S)[0], f"process {pid} still runs"
    finally:
        os.close(handle)


def test_a_process_ends_when_the_tests_are_killed(log: Path) -> None:
    """`kill -9` gives nobody a chance to clean up, and a forgotten JVM holds a GiB."""
    with starter(log, then="sys.stdin.read()") as (process, pid):
        process.kill()
        wait_for_end(pid)


def test_a_process_ends_although_a_forked_child_holds_our_pipe(log: Path) -> None:
    """A child that the tests forked inherits every descriptor, and may be forgotten itself."""
    then = "child = os.fork()\nprint(child if child else '', flush=True)\nsys.stdin.read()"
    with starter(log, then=then) as (process, pid):
        assert process.stdout is not None
        child = int(next(line for line in process.stdout if line.strip()))
        try:
            os.kill(process.pid, signal.SIGKILL)
            wait_for_end(pid)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_process_ends_when_its_keeper_is_killed(log: Path) -> None:
    """Somebody may well end a stray `python` by hand."""
    kept = Kept(FOREVER, log=log)
    handle = os.pidfd_open(kept.pid)
    kept._keeper.kill()
    assert select.select([handle], [], [], LONGEST_S)[0]
    os.close(handle)
    kept.wait(LONGEST_S)


def test_a_process_outlives_the_thread_that_started_it(log: Path) -> None:
    """The kernel's own "parent died" means the thread, and tests restart servers from threads."""
    started: list[Kept] = []
    thread = threading.Thread(target=lambda: started.append(Kept(FOREVER, log=log)))
    thread.start()
    thread.join()
    (kept,) = started
    with pytest.raises(subprocess.TimeoutExpired):
        kept.wait(1.0)
    kept.kill()


def test_a_stopped_process_can_be_killed(log: Path) -> None:
    """A test that fails while a server is paused leaves it so."""
    kept = Kept(FOREVER, log=log)
    kept.pause()
    assert kept.is_running
    kept.kill()
    assert not kept.is_running


def test_a_paused_process_does_nothing_any_more(log: Path) -> None:
    """The signal arrives soon, not at once; a server that answers meanwhile spoils the test."""
    kept = Kept(("sh", "-c", "while :; do :; done"), log=log)
    for _ in range(100):
        kept.pause()
        assert Path(f"/proc/{kept.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        kept.resume()
    kept.kill()


def test_the_end_of_a_process_is_reported_with_its_code(log: Path) -> None:
    """The message about a server that did not start names it."""
    assert Kept(("sh", "-c", "echo why; exit 3"), log=log).wait(LONGEST_S) == 3
    assert log.read_text() == "why\n"
    assert Kept(("sh", "-c", "kill -9 $$"), log=log).wait(LONGEST_S) == -signal.SIGKILL


def test_what_cannot_be_started_is_an_error_that_names_the_log(log: Path) -> None:
    """Otherwise one would wait for a port that nobody opens."""
    with pytest.raises(OSError, match="no-such-program could not be started"):
        Kept(("no-such-program",), log=log)
    assert "no-such-program" in log.read_text()
