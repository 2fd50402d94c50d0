"""Where two workers share the tests, those of a file stay together, as do all that need servers."""

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


def test_a_worker_has_whole_files_and_all_that_need_servers(tmp_path: Path) -> None:
    """What a module sets up is then set up once, and there is one HBase."""
    marks = {"test_a.py": "hbase", "test_b.py": "unit", "test_c.py": "java", "test_d.py": "unit"}
    for file, mark in marks.items():
        (tmp_path / file).write_text(TESTS.format(mark=mark))
    here = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.machines.hbase_fixtures", "-v"),
            *("-n", "2", "--dist", "loadgroup", "-c", os.devnull, "-W", "ignore"),
            *("--rootdir", str(tmp_path), str(tmp_path)),
        ],
        cwd=ROOT,
        env=here,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    workers = defaultdict(set)
    for worker, file in re.findall(r"^\[(gw\d)\].* PASSED \S*/(\S+?)::", done.stdout, re.MULTILINE):
        workers[file].add(worker)
    assert {file: len(found) for file, found in workers.items()} == dict.fromkeys(marks, 1), (
        done.stdout + done.stderr
    )
    assert workers["test_a.py"] == workers["test_c.py"] != workers["test_b.py"]
