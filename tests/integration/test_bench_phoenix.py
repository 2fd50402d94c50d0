"""The benchmarks beside Apache Phoenix still run, and what the guide says of space was measured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bench.phoenix import oracles, reads, space
from bench.phoenix.__main__ import PhoenixDocument, measure, parsed
from tests.machines.documents import ROOT
from tests.machines.phoenix import Phoenix


@pytest.fixture
def ours(phoenix: Phoenix) -> Iterator[Phoenix]:
    """Return a Phoenix, which has our oracle again in the end."""
    try:
        yield phoenix
    finally:
        phoenix.serve()


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.hbase
@pytest.mark.java
def test_each_oracle_serves_phoenixs_load(ours: Phoenix, tmp_path: Path) -> None:
    """A benchmark that nobody runs between releases does not survive the first rename."""
    document = measure(ours, tmp_path, parsed(["oracles", "--quick"]))
    found = {result.name: result for result in document.results}
    for name in (oracles.OURS, oracles.DELIVERED, oracles.TUNED):
        assert found[f"transactions, {name}"].per_second
        assert found[f"a processor of the oracle for each transaction, {name}"].p50_ms is not None
    assert len(document.ratios) == 4


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.hbase
@pytest.mark.java
def test_both_roads_of_python_read_the_same(ours: Phoenix, tmp_path: Path) -> None:
    """Each reader compares what it gets with what was written."""
    pytest.importorskip("phoenixdb", reason="phoenixdb is missing: pip install --group queryserver")
    document = measure(ours, tmp_path, parsed(["reads", "--quick"]))
    found = {result.name for result in document.results}
    for name in (reads.GATEWAY, reads.DIRECT, reads.QUERIED):
        assert {f"{reads.GET}, {name}", f"{reads.SCAN}, {name}"} <= found
    assert len([one for one in document.ratios if one.aim == "at least 5"]) == 4


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.hbase
@pytest.mark.java
def test_space_is_counted_at_each_stage(ours: Phoenix, tmp_path: Path) -> None:
    """And in the end there is less than Phoenix leaves."""
    document = measure(ours, tmp_path, parsed(["space", "--quick"]))
    found = {result.name: result.count for result in document.results}
    for what in (space.CELLS, space.INDEX_CELLS):
        before, _, after = (found[f"{what}, {stage}"] for stage in space.STAGES)
        assert after < before


def test_the_guide_has_the_numbers_that_were_measured() -> None:
    """Its table and its picture, too."""
    guide = (ROOT / "docs" / "guide" / "phoenix.md").read_text("utf-8")
    (named,) = re.findall(r"bench/results/(\S+-phoenix-space\.json)", guide)
    path = ROOT / "bench" / "results" / named
    document = msgspec.json.decode(path.read_bytes(), type=PhoenixDocument)
    found = {result.name: result.count for result in document.results}
    drawn = (ROOT / "docs" / "images" / "phoenix.svg").read_text("utf-8")
    for what in (space.ENTRIES, space.CELLS, space.INDEX_CELLS):
        counts = [f"{found[f'{what}, {stage}']:,}" for stage in space.STAGES]
        assert f"| {what} | {' | '.join(counts)} |" in guide
        for count in counts:
            assert f">{count}<" in drawn
