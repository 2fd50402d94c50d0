"""The benchmarks still run.  Their numbers are not looked at here."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench import run
from bench.measure import Document, paced, percentile
from bench.workloads.attacks import recovered_after_s


@pytest.mark.integration
def test_every_workload_runs_and_leaves_a_result_file(tmp_path: Path) -> None:
    """A benchmark that nobody runs between releases does not survive the first rename."""
    assert run.main(["--quick", "--output", str(tmp_path), "--directory", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*.json")
    document = msgspec.json.decode(path.read_bytes(), type=Document)
    assert path.name == f"{document.date}-{document.commit}.json"
    names = {result.name for result in document.results}
    for what in (
        "test_micro.py::test_begin",
        "begin, tso-server",
        "transactions, bare SQLite",
        "compaction, every cell to heal",
        "entries, pruned over bare deletes",
        "aborts, map of 20000 writes, over the exact map's",
        "begin and commit during frames that do not end",
        "recovery after frames that do not end",
        "tso-server, each connected client",
        "disk, of a dead client",
        "restore",
        "entries drained, embedded",
        "entry of another process on its way, tso-server",
        "transaction, spans kept in memory",
    ):
        assert what in names
    assert all(result.count for result in document.results)


@pytest.mark.integration
def test_one_workload_can_be_run_alone(tmp_path: Path) -> None:
    """Its result file says so, and is not taken for a whole run."""
    words = ["--quick", "--only", "scans", "--output", str(tmp_path), "--directory", str(tmp_path)]
    assert run.main(words) == 0
    (path,) = tmp_path.glob("*.json")
    assert path.name.endswith("-scans.json")
    document = msgspec.json.decode(path.read_bytes(), type=Document)
    kinds = {result.name.partition(",")[0] for result in document.results}
    assert kinds == {"snapshot scan", "get"}


def test_a_percentile_is_a_value_that_was_measured() -> None:
    """The nearest rank, at its boundaries."""
    values = [float(value) for value in range(1, 101)]
    assert percentile(values, 0.50) == 50.0
    assert percentile(values, 0.99) == 99.0
    assert percentile([7.0], 0.99) == 7.0


def test_a_client_has_recovered_when_it_is_slow_no_more() -> None:
    """One slow answer does not count, nor does a fast one between slow ones."""
    fast, slow = [0.001] * 20, [0.1] * 20
    assert recovered_after_s(fast * 3, 0.003) == 0.0
    assert recovered_after_s([0.1, *fast * 3], 0.003) == 0.0
    assert recovered_after_s([*slow, *fast, *slow, *fast], 0.003) == pytest.approx(0.3)
    assert recovered_after_s([*slow, *slow[:7]], 0.003) == pytest.approx(0.2)


def test_a_stall_shows_in_every_operation_that_it_delays() -> None:
    """Under a closed loop ten arrivals during one stall would count as one slow operation."""
    calls = 0

    def stall_once() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            list(range(3_000_000))

    found = paced(stall_once, per_second=10_000.0, count=20)
    assert min(found) > 0.001
