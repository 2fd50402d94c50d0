"""The benchmark on HBase still runs, and judges its numbers rightly."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.hbase import direct, passes, roads
from bench.hbase.__main__ import HBaseDocument, main
from bench.hbase.rounds import ratio
from bench.measure import Document
from tests.machines.hbase import HBase
from tests.machines.hbase_store import empty_hbase


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.hbase
@pytest.mark.java
def test_every_client_does_every_work(tmp_path: Path) -> None:
    """A benchmark that nobody runs between releases does not survive the first rename."""
    assert main(["--quick", "--workers", "2", "--output", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*-hbase.json")
    document = msgspec.json.decode(path.read_bytes(), type=HBaseDocument)
    names = {result.name for result in document.results}
    for work in ("put 1", "put 10", "get 10", "scan of 1 cells a row"):
        for client in ("bare Thrift2", "omidpy", "Java, default", "Java, low latency"):
            assert f"{work}, {client}" in names
    assert "compaction, every cell to heal" in names
    assert "entries, pruned over bare deletes" in names
    assert all(result.count for result in document.results)
    assert [one.name for one in document.ratios if one.aim]
    assert "the client's own" in {step.name for step in document.profile}


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.hbase
@pytest.mark.java
def test_passes_are_measured_beside_row_counters(hbase: HBase, tmp_path: Path) -> None:
    """On the same table, and each of them counts the same cells."""
    with empty_hbase(hbase):
        words = ["--hbase", str(hbase.directory), "--quick", "--output", str(tmp_path)]
        assert passes.main(words) == 0
    (path,) = tmp_path.glob("*-hbase-passes.json")
    document = msgspec.json.decode(path.read_bytes(), type=Document)
    names = {result.name for result in document.results}
    assert {
        "cells, HBase's RowCounter",
        "pass, every cell healed before over bare scan",
        "two processes over one",
        "MiB of a task at its peak, rows of 100,000 cells of 10 bytes",
    } <= names
    assert all(one.per_second for one in document.results if one.name.startswith("cells, "))


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.hbase
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_frames_are_measured_beside_bare_work(hbase: HBase, tmp_path: Path) -> None:
    """Each work of ours has one beside it, and a commit its time and its memory."""
    from bench.hbase import frames

    with empty_hbase(hbase):
        words = ["--hbase", str(hbase.directory), "--quick", "--output", str(tmp_path)]
        assert frames.main(words) == 0
    (path,) = tmp_path.glob("*-hbase-frames.json")
    document = msgspec.json.decode(path.read_bytes(), type=frames.FramesDocument)
    measured = {one.name.split(" over ")[0] for one in document.ratios}
    assert measured == {"read", "write", "save", "save, told", "feed"}
    assert all(one.median > 0 for one in document.ratios)
    names = {result.name for result in document.results}
    assert {"commit of a frame: commit", "commit of a frame: oracle, more than before"} <= names


def test_a_ratio_is_of_two_rates_of_one_round() -> None:
    """A round under other load slows both, and the quotient of two medians would mix rounds."""
    found = ratio("twice", [20.0, 2.0, 300.0], [10.0, 1.0, 100.0], least=2.0)
    assert (found.rounds, found.median, found.is_met) == ([2.0, 2.0, 3.0], 2.0, True)


def test_an_aim_is_met_at_its_boundary() -> None:
    """`at least` and `at most` include the number that they name."""
    assert ratio("least", [3.0], [1.0], least=3.0).is_met
    assert ratio("most", [3.0], [1.0], most=3.0).is_met
    assert ratio("least", [2.9], [1.0], least=3.0).is_met is False
    assert ratio("most", [3.1], [1.0], most=3.0).is_met is False
    assert ratio("no aim", [1.0], [1.0]).is_met is None


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.hbase
def test_both_roads_are_measured(tmp_path: Path) -> None:
    """Every work by one thread and by several, with what it costs all processes."""
    assert roads.main(["--quick", "--threads", "2", "--output", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*-hbase-roads.json")
    document = msgspec.json.decode(path.read_bytes(), type=roads.RoadsDocument)
    names = {result.name for result in document.results}
    for road in (roads.DIRECT, roads.GATEWAY):
        for work in ("put, 1 thread", "get, 2 threads", "scan of 5 cells a row"):
            assert {f"{work}, {road}", f"{work}, {road}: microseconds of all processors"} <= names
    assert {one.name for one in document.ratios} >= {"put, 1 thread, rate"}


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.hbase
@pytest.mark.java
def test_the_direct_road_is_measured_beside_javas_clients(tmp_path: Path) -> None:
    """In transactions and without, with what each costs which process, and every aim judged."""
    assert direct.main(["--quick", "--workers", "2", "--output", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*-hbase-direct.json")
    document = msgspec.json.decode(path.read_bytes(), type=direct.DirectDocument)
    names = {result.name for result in document.results}
    for work in ("put 1 and commit", "get 10 and commit", "bare put", "bare get"):
        for client in (direct.OURS, direct.JAVA):
            assert f"{work}, {client}" in names
    assert "put 1 and commit, omidpy: microseconds of HBase" in names
    assert all(one.is_met is not None for one in document.ratios)
    assert len(document.ratios) == 14
