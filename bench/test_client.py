"""What do the client's operations cost on a file, in this process and over the wire?

And what do a transaction's own writes cost its reads, when 1, 100 or 10,000 of them are buffered?
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import omidpy
from bench.processes import tso_server
from omidpy.manager import TransactionManager

ROWS = 1000
CELLS = {b"f:%d" % column: b"value" for column in range(10)}


@pytest.fixture(name="tm", params=["in-process", "over-the-wire"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TransactionManager]:
    """Return a table in a file, its oracle in this process or in another one."""
    url = f"sqlite:///{tmp_path}/store.db"
    if request.param == "in-process":
        with omidpy.connect(url, post_commit="sync") as tm:
            yield filled(tm)
        return
    with (
        tso_server(url, log=tmp_path / "tso.log") as address,
        omidpy.connect(url, tso=address, post_commit="sync") as tm,
    ):
        yield filled(tm)


@pytest.fixture(name="embedded")
def embedded_manager(tmp_path: Path) -> Iterator[TransactionManager]:
    """Return a table in a file, its oracle in this process."""
    with omidpy.connect(f"sqlite:///{tmp_path}/store.db", post_commit="sync") as tm:
        yield filled(tm)


def filled(tm: TransactionManager) -> TransactionManager:
    """Write rows of ten cells."""
    tm.create_table("cells", families=["f"])
    with tm.begin() as tx:
        for number in range(ROWS):
            tx.table("cells").put(b"%06d" % number, CELLS)
    return tm


def test_begin(benchmark: BenchmarkFixture, tm: TransactionManager) -> None:
    """How long until there is a snapshot?"""
    assert benchmark(tm.begin, read_only=True).start_ts > 0


def test_commit_of_ten_cells(benchmark: BenchmarkFixture, tm: TransactionManager) -> None:
    """How long does a small transaction take, from begin to its shadow cells?"""

    def write() -> None:
        with tm.begin() as tx:
            tx.table("cells").put(b"000500", CELLS)

    benchmark(write)


def test_get(benchmark: BenchmarkFixture, tm: TransactionManager) -> None:
    """How long does it take to read a row of ten cells?"""
    table = tm.begin(read_only=True).table("cells")
    assert benchmark(table.row, b"000500") == CELLS


def test_put(benchmark: BenchmarkFixture, tm: TransactionManager) -> None:
    """How long does it take to check and buffer a row of ten cells?"""
    table = tm.begin().table("cells")
    benchmark(table.put, b"000500", CELLS)


def test_scan_of_a_hundred_rows(benchmark: BenchmarkFixture, tm: TransactionManager) -> None:
    """How long does it take to read a hundred rows of ten cells?"""
    table = tm.begin(read_only=True).table("cells")
    assert len(benchmark(lambda: list(table.scan(row_prefix=b"0005")))) == 100


@pytest.mark.parametrize("buffered", [1, 100, 10_000])
def test_get_of_an_own_write(
    benchmark: BenchmarkFixture, embedded: TransactionManager, buffered: int
) -> None:
    """Does a get depend on how much the transaction has written?"""
    table = embedded.begin().table("cells")
    for number in range(buffered):
        table.put(b"own %06d" % number, {b"f:0": b"own"})
    assert benchmark(table.row, b"own 000000") == {b"f:0": b"own"}


@pytest.mark.parametrize("buffered", [1, 100, 10_000])
def test_scan_of_one_own_row(
    benchmark: BenchmarkFixture, embedded: TransactionManager, buffered: int
) -> None:
    """Does a short scan depend on how much the transaction has written elsewhere?"""
    table = embedded.begin().table("cells")
    for number in range(buffered):
        table.put(b"own %06d" % number, {b"f:0": b"own"})
    rows = benchmark(lambda: list(table.scan(row_prefix=b"own 000000")))
    assert rows == [(b"own 000000", {b"f:0": b"own"})]
