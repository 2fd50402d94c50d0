"""What does a snapshot scan cost, healed and unhealed, beside bare SQLite on the same file?

`workloads/scans.py` turns the same scans into rows a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import omidpy
from bench.workloads.scans import arrow_scan, bare_scan, fill, snapshot_scan
from omidpy.manager import TransactionManager

ROWS = 2000
COLUMNS = 5


@pytest.fixture(name="url")
def address(tmp_path: Path) -> str:
    """Return the address of a store."""
    return f"sqlite:///{tmp_path}/scan.db"


@pytest.fixture(name="tm")
def manager(url: str) -> Iterator[TransactionManager]:
    """Return a healed table in a file."""
    with omidpy.connect(url, post_commit="sync") as tm:
        fill(tm, rows=ROWS, columns=COLUMNS)
        yield tm


def test_scan_by_bare_sqlite(benchmark: BenchmarkFixture, tm: TransactionManager, url: str) -> None:
    """How long does SQLite take to hand over the same cells, shadow cells among them?"""
    del tm
    assert benchmark(bare_scan, url) == ROWS


def test_scan_of_a_healed_table(benchmark: BenchmarkFixture, tm: TransactionManager) -> None:
    """How long does it take where every shadow cell is there?"""
    assert benchmark(snapshot_scan, tm) == ROWS


def test_scan_as_arrow(benchmark: BenchmarkFixture, tm: TransactionManager) -> None:
    """And how long into record batches?"""
    assert benchmark(arrow_scan, tm, columns=COLUMNS) == ROWS


def test_scan_of_an_unhealed_table(benchmark: BenchmarkFixture, url: str) -> None:
    """How long does it take where commits are remembered and no shadow cell is ever there?"""
    with omidpy.connect(url, post_commit="none") as tm:
        tm.session.reader.owes = lambda _: True  # as if the writer were about to write them
        fill(tm, rows=ROWS, columns=COLUMNS)
        assert benchmark(snapshot_scan, tm) == ROWS
