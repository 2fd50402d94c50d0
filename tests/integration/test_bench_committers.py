"""The benchmark beside Hadoop's committers still runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench.committers.__main__ import CommittersDocument
from bench.committers.before import BeforeDocument
from tests.machines.processes import ROOT


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.java
def test_every_committer_saves(tmp_path: Path) -> None:
    """In a process of its own, since Java takes the path of its classes when it starts."""
    words = [sys.executable, "-m", "bench.committers", "--quick", "--output", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*-committers-*.json")
    document = msgspec.json.decode(path.read_bytes(), type=CommittersDocument)
    assert len(document.saves) == 5 + 2 + 4
    requests = {name: sum(ones[0].requests.values()) for name, ones in document.saves.items()}
    # Requests are exact: 5 for a job, and 1 or 3 for a file.
    assert requests["2 files, omidpy"] == 2 * 1 + 5
    assert requests["2 files, omidpy, uploads"] == 2 * 3 + 5
    assert requests["2 files, omidpy magic"] == 2 * (4 + 2) + 6
    assert requests["2 files, Hadoop directory"] > requests["2 files, omidpy, uploads"]
    assert requests["2 files, Hadoop file 1"] > requests["2 files, Hadoop file 2"]
    assert requests["2 files, omidpy file 1, local"] == 0
    assert requests["2 files, Hadoop magic"] > 3 * requests["2 files, omidpy magic"]


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.java
def test_two_checkouts_save_in_turns(tmp_path: Path) -> None:
    """Here one with itself: the same requests, and a time for each."""
    words = [sys.executable, "-m", "bench.committers", "--quick", "--output", str(tmp_path)]
    words += ["--before", str(ROOT)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*-committers-before.json")
    document = msgspec.json.decode(path.read_bytes(), type=BeforeDocument)
    counts = {one.name.partition(", omidpy")[2]: one.count for one in document.results}
    requests = {name: count for name, count in counts.items() if name.endswith("requests")}
    assert sorted(requests.values()) == [2 * 1 + 5, 2 * 3 + 5]
    assert len(document.ratios) == 2
