"""What do the client's own steps cost, without a disk, a socket or another process?

Plain tests under `make test`, which measures nothing; `make bench` measures them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import omidpy
from omidpy.manager import TransactionManager

CELLS = {b"f:%d" % column: b"value" for column in range(10)}


@pytest.fixture(name="tm")
def manager() -> Iterator[TransactionManager]:
    """Return a store in memory with 1000 rows of ten cells."""
    with omidpy.connect("memory:", post_commit="sync") as tm:
        tm.create_table("cells", families=["f"])
        with tm.begin() as tx:
            for number in range(1000):
                tx.table("cells").put(b"%06d" % number, CELLS)
        yield tm


def test_begin(benchmark: BenchmarkFixture, tm: TransactionManager) -> None:
    """How long does a begin take that waits for nobody?"""
    transaction = benchmark(tm.begin, read_only=True)
    assert transaction.start_ts > 0


def test_commit_of_ten_cells(benchmark: BenchmarkFixture, tm: TransactionManager) -> None:
    """How long does a whole small transaction take, from begin to its shadow cells?"""

    def write() -> None:
        with tm.begin() as tx:
            tx.table("cells").put(b"000500", CELLS)

    benchmark(write)
    assert tm.begin(read_only=True).table("cells").row(b"000500") == CELLS


def test_read_of_a_row_of_ten_cells(benchmark: BenchmarkFixture, tm: TransactionManager) -> None:
    """How long does it take to decide what a snapshot sees of one row?"""
    table = tm.begin(read_only=True).table("cells")
    assert benchmark(table.row, b"000500") == CELLS


def test_scan_of_a_thousand_rows(benchmark: BenchmarkFixture, tm: TransactionManager) -> None:
    """How long does it take to decide what a snapshot sees of 10,000 cells?"""
    table = tm.begin(read_only=True).table("cells")
    rows = benchmark(lambda: list(table.scan()))
    assert len(rows) == 1000
