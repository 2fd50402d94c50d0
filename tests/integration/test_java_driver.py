"""The program that drives Omid ends with whoever started it, and tells what went wrong."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

from tests.machines.java import JavaDied, JavaDriver, JavaError
from tests.machines.processes import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.java]

LONGEST_S = 60.0
STARTS_A_DRIVER = """
import sys
from tests.machines.java import JavaDriver

driver = JavaDriver()
driver.call("ping")
print(driver.pid, flush=True)
sys.stdin.readline()
"""


def test_a_driver_ends_with_its_test_even_if_that_is_killed() -> None:
    """A JVM left behind would keep its connections, and half a gigabyte."""
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTS_A_DRIVER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        driver = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    ended, _, _ = select.select([driver], [], [], LONGEST_S)
    os.close(driver)
    assert ended


def test_errors_of_java_and_its_end_are_told_apart() -> None:
    """One is an answer, after which all goes on; the other is the death that a test asked for."""
    with JavaDriver() as driver:
        with pytest.raises(JavaError, match="no command is called nonsense"):
            driver.call("nonsense")
        with pytest.raises(JavaError, match="lacks start") as caught:
            driver.call("golden.commit_row")
        assert caught.value.type == "IllegalArgumentException"
        assert driver.call("ping") == "pong"
        with pytest.raises(JavaDied):
            driver.call("halt")
        assert driver.wait_for_end() != 0
        with pytest.raises(JavaDied, match="has ended"):
            driver.call("ping")
