"""The demonstration from end to end, in small: real server, real kills, real Spark job."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.demo.__main__ import main
from bench.demo.load import LEAST_KILLS
from bench.demo.report import Summary


@pytest.mark.integration
@pytest.mark.spark
def test_killed_loaders_lose_nothing_and_compaction_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make demo` is what a newcomer runs first; its own checker decides whether it worked."""
    monkeypatch.chdir(tmp_path)
    status = main(["--rows", "400", "--seed", "7", "--output", "out"])
    output = tmp_path / "out"
    summary = msgspec.json.decode((output / "summary.json").read_bytes(), type=Summary)
    assert [check for check in summary.checks if not check.passed] == []
    assert status == 0
    assert summary.load.done == 400
    assert len(summary.load.kills_s) >= LEAST_KILLS // 2
    assert summary.entries_after == 0
    assert summary.loose_ends.committed == summary.compaction.cells_healed
    assert (output / "demo.png").stat().st_size > 10_000
