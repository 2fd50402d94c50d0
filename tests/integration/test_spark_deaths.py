"""A write of a frame whose processes are killed or stalled: all of it is there, or nothing.

The driver with its Java, and the Python of a task, are real processes.  What the store shows, what
the driver says if it lives, and what its token tells later, is one and the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

import omidpy
from omidpy.manager import TransactionManager
from omidpy.model import Committed
from tests.integration.test_keeper import wait_for_end
from tests.machines.frames_driver import ROWS, WHERE
from tests.machines.processes import LONGEST_S, ROOT, tso_server

pytestmark = [pytest.mark.integration, pytest.mark.spark]

DECIDED: Final = ("decided", "committed")
"""Where the commit is durable."""


class Driver:
    """The process of a driver, which waits where it was told to."""

    def __init__(self, url: str, address: str, where: str, folder: Path) -> None:
        self._folder = folder
        command = [sys.executable, "-m", "tests.machines.frames_driver"]
        with (folder / "err").open("w") as err:
            self._process = subprocess.Popen(
                [*command, url, address, where, str(folder)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                start_new_session=True,
            )
        self.token, self.worker = b"", 0

    def wait_until_ready(self) -> None:
        """Wait for it to come to its point."""
        word, *rest = self._line().split() or [""]
        assert word == "ready", (self._folder / "err").read_text()[-4000:]
        self.token, self.worker = bytes.fromhex(rest[0]), int(rest[1])

    def signal(self, number: int) -> None:
        """Let it and its Java have a signal; the Python of tasks is a group of its own."""
        os.killpg(self._process.pid, number)

    def go_on(self) -> str:
        """Let it go on; return what it says of its transaction at its end."""
        (self._folder / "go").touch()
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        said, token, *_ = self._line().split() or ["", ""]
        assert self._process.wait(LONGEST_S) == 0, (self._folder / "err").read_text()[-4000:]
        self.token = bytes.fromhex(token)
        return said

    def close(self) -> None:
        """End all of its processes."""
        (self._folder / "go").touch()
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self._process.wait(LONGEST_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def driving(folder: Path, where: str) -> Iterator[tuple[Driver, TransactionManager]]:
    """Give a driver at its point, and a client beside it."""
    url = f"sqlite:///{folder / 'frames.db'}"
    with tso_server(url) as server, omidpy.connect(url, tso=server.address) as tm:
        tm.create_table("t", ["cf"], splits=[b"3", b"6"])
        driver = Driver(url, server.address, where, folder)
        try:
            driver.wait_until_ready()
            yield driver, tm
        finally:
            driver.close()


def check(tm: TransactionManager, driver: Driver, *, is_there: bool) -> None:
    """Look at the rows, and ask for the transaction; then others write on."""
    assert len(dict(tm.begin().table("t").scan())) == (ROWS if is_there else 0)
    assert isinstance(tm.outcome(driver.token), Committed) == is_there
    for _ in range(2):
        with tm.begin() as tx:
            tx.table("t").put(b"after", {b"cf:n": b"1"})
    assert len(dict(tm.begin().table("t").scan())) == (ROWS if is_there else 0) + 1


@pytest.mark.parametrize(
    "where",
    [pytest.param(one, marks=() if one == "written" else pytest.mark.nightly) for one in WHERE],
)
def test_a_driver_that_is_killed_wrote_all_or_nothing(tmp_path: Path, where: str) -> None:
    """By `kill -9`, of the driver, its Java and its tasks."""
    with driving(tmp_path, where) as (driver, tm):
        driver.close()
        check(tm, driver, is_there=where in DECIDED)


@pytest.mark.nightly
@pytest.mark.parametrize("where", WHERE)
def test_a_driver_that_stalls_knows_whether_it_committed(tmp_path: Path, where: str) -> None:
    """Meanwhile the table is fenced: what was not decided is aborted, and what was stays."""
    with driving(tmp_path, where) as (driver, tm):
        driver.signal(signal.SIGSTOP)
        tm.fence("t")
        is_there = where in DECIDED
        assert len(dict(tm.begin().table("t").scan())) == (ROWS if is_there else 0)
        driver.signal(signal.SIGCONT)
        assert driver.go_on() == ("committed" if is_there else "aborted")
        check(tm, driver, is_there=is_there)


@pytest.mark.nightly
@pytest.mark.parametrize("where", WHERE)
def test_a_driver_that_stalls_alone_commits(tmp_path: Path, where: str) -> None:
    """Nobody was in its way."""
    with driving(tmp_path, where) as (driver, tm):
        driver.signal(signal.SIGSTOP)
        time.sleep(2)
        driver.signal(signal.SIGCONT)
        assert driver.go_on() == "committed"
        check(tm, driver, is_there=True)


@pytest.mark.nightly
def test_a_task_whose_process_is_killed_is_run_again(tmp_path: Path) -> None:
    """Between the parts, one of which is on the driver already."""
    with driving(tmp_path, "parted") as (driver, tm):
        os.kill(driver.worker, signal.SIGKILL)
        assert driver.go_on() == "committed"
        check(tm, driver, is_there=True)


@pytest.mark.nightly
def test_a_task_that_stalls_is_waited_for(tmp_path: Path) -> None:
    """Spark knows of no one else who would run it."""
    with driving(tmp_path, "parted") as (driver, tm):
        os.kill(driver.worker, signal.SIGSTOP)
        time.sleep(2)
        os.kill(driver.worker, signal.SIGCONT)
        assert driver.go_on() == "committed"
        check(tm, driver, is_there=True)


@pytest.mark.nightly
def test_a_task_that_outlives_its_driver_writes_nothing_that_is_seen(tmp_path: Path) -> None:
    """It goes on when the transaction can no longer commit, and nobody waits for it."""
    with driving(tmp_path, "parted") as (driver, tm):
        os.kill(driver.worker, signal.SIGSTOP)
        stat = Path(f"/proc/{driver.worker}/stat").read_text("ascii")
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)  # it would end the task
        driver.close()
        check(tm, driver, is_there=False)
        os.kill(driver.worker, signal.SIGCONT)
        wait_for_end(driver.worker)
        assert set(dict(tm.begin().table("t").scan())) == {b"after"}
