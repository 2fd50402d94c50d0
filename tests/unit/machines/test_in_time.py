"""`make quick` ends in time, and says what it left out."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.machines.in_time import LEFT_OUT, InTime

ROOT = Path(__file__).parents[3]
TESTS = """
import pytest

@pytest.fixture
def table():
    raise AssertionError("a test that is left out makes nothing")

def test_first() -> None: ...

def test_second(table) -> None: ...
"""


def test_what_is_not_begun_in_time_is_left_out() -> None:
    """And nothing else is."""
    InTime(math.inf).pytest_runtest_setup()
    with pytest.raises(pytest.skip.Exception, match=LEFT_OUT):
        InTime(0.0).pytest_runtest_setup()


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    """By its file, where workers share the tests, too; nothing has failed, and nothing was made."""
    (tmp_path / "test_a.py").write_text(TESTS)
    here = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.machines.in_time", "--in-time", "0"),
            *("-c", os.devnull, "-n", "1", "--rootdir", str(tmp_path), str(tmp_path)),
        ],
        cwd=ROOT,
        env=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "left out, since time was over: 2 tests of test_a.py" in done.stdout, done.stderr
    assert done.returncode == pytest.ExitCode.OK


def test_make_quick_ends_in_time() -> None:
    """Less the time to find the tests, and to end the last, it is what is promised: 90 s."""
    text = (ROOT / "Makefile").read_text("utf-8")
    (line,) = (one for one in text.splitlines() if one.startswith("QUICK_S := "))
    assert 30 <= int(line.removeprefix("QUICK_S := ")) <= 70
    assert "-p tests.machines.in_time --in-time $(QUICK_S)" in text
