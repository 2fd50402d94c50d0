"""Where two workers share the tests: files stay together, and a worker that dies ends the run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

pytestmark = pytest.mark.{mark}

@pytest.mark.parametrize("number", range(8))
def test_nothing(number: int) -> None: ...
"""


DEADLY_TESTS = """
import os

import pytest

@pytest.mark.parametrize("number", range(3))
def test_nothing(number: int) -> None: ...

def test_the_end() -> None:
    os._exit(9)
"""

DEADLY_COLLECTION = """
import os

if os.environ["PYTEST_XDIST_WORKER"] == "gw1":
    os._exit(9)
"""


def _run(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests of a directory as `make test` shares them out."""
    options = re.search(r"^SHARED_OUT := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert options is not None
    here = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.machines.hbase_fixtures", "-v"),
            *(*options[1].split(), "-c", os.devnull, "-W", "ignore"),
            *("--rootdir", str(directory), str(directory)),
        ],
        cwd=ROOT,
        env=here,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_worker_has_whole_files_and_all_that_need_servers(tmp_path: Path) -> None:
    """What a module sets up is then set up once, and there is one HBase."""
    marks = {"test_a.py": "hbase", "test_b.py": "unit", "test_c.py": "java", "test_d.py": "unit"}
    for file, mark in marks.items():
        (tmp_path / file).write_text(TESTS.format(mark=mark))
    done = _run(tmp_path)
    workers = defaultdict(set)
    for worker, file in re.findall(r"^\[(gw\d)\].* PASSED \S*/(\S+?)::", done.stdout, re.MULTILINE):
        workers[file].add(worker)
    assert {file: len(found) for file, found in workers.items()} == dict.fromkeys(marks, 1), (
        done.stdout + done.stderr
    )
    assert workers["test_a.py"] == workers["test_c.py"] != workers["test_b.py"]


def test_a_run_whose_worker_dies_ends_and_has_failed(tmp_path: Path) -> None:
    """A run that waits for ever tells nobody which test it was.

    The worker dies at the last test of a file, with files behind it: pytest-xdist gives those to
    another one, which has nothing to do, and waits for word that they are done.
    """
    for file in ("test_b.py", "test_c.py", "test_d.py"):
        (tmp_path / file).write_text(TESTS.format(mark="unit"))
    (tmp_path / "test_a.py").write_text(DEADLY_TESTS)
    done = _run(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"crashed while running \S*test_a.py::test_the_end", done.stdout), done.stdout


def test_a_run_that_lost_all_its_tests_has_failed(tmp_path: Path) -> None:
    """A worker that dies while it collects takes them along: no test is left to fail."""
    (tmp_path / "test_a.py").write_text(DEADLY_COLLECTION)
    (tmp_path / "test_b.py").write_text(TESTS.format(mark="unit"))
    done = _run(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
