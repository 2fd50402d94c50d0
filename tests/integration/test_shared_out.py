"""How `make test` runs the tests: a worker that dies lets it fail, and none compiles afresh."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
TESTS = """
import os

if os.environ["PYTEST_XDIST_WORKER"] == "gw1":
    os._exit(9)

def test_nothing() -> None: ...
"""


def test_a_run_that_lost_all_its_tests_has_failed(tmp_path: Path) -> None:
    """A worker that dies while it collects takes them along: no test is left to fail."""
    (tmp_path / "test_a.py").write_text(TESTS)
    sharing = ("-n", "2", "--dist", "loadfile", "--max-worker-restart", "0")
    here = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", os.devnull, *sharing),
            *("--rootdir", str(tmp_path), str(tmp_path)),
        ],
        cwd=ROOT,
        env=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr


def test_processes_keep_what_they_have_compiled() -> None:
    """Images of containers forbid it, and then each of thousands compiles all that it imports."""
    done = subprocess.run(
        ["make", "--silent", "--eval", "told: ; @env", "told"],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "PATH=" in done.stdout
    assert "PYTHONDONTWRITEBYTECODE" not in done.stdout
