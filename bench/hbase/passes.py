"""How fast is a pass of the compactor on HBase, beside row counters and bare scans of one table?

    python -m bench.hbase.passes --hbase DIRECTORY       where `python -m tests.machines.hbase` runs

In each round all read the same table, one after another, so that other work slows all of them: the
quotients of a round are what counts.  HBase's RowCounter asks for the first key of each row; a
count of cells asks for every version, as a pass must.  Both are Java, and talk to the region
servers; the bare scan and the pass talk to the gateway.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

import omidpy
from bench.hbase import work
from bench.measure import Document, Result, commit_id, describe_machine, keep, today
from bench.processes import tso_server
from bench.run import print_results
from compactor.ranges.range_pass import RangePass
from compactor.ranges.range_task import RangeTask
from compactor.rows.clean import FoundRow, sifted
from compactor.rows.heal import RowPlan, Scope, examine, plan_row, unresolved
from omidpy.base.timing.clock import SystemClock
from omidpy.facts.commit_table import COMMIT_TABLE, read_low_watermark
from omidpy.facts.tables.sameness import which_table
from omidpy.model import FIRST_WORLD_TIMESTAMP, Cell, KeyRange
from omidpy.opening import open_store
from omidpy.storage.base import WHOLE_TABLE, Put, RowMutation, Store
from omidpy.storage.hbase.idl import thrift2 as idl
from tests.machines.hbase import HBase
from tests.machines.java import FULL_SPEED, JavaDriver

T = TypeVar("T")

COLUMNS: Final = 5
PAGE_ROWS: Final = 500
ALL_VERSIONS: Final = 2**31 - 1
MIB: Final = 1 << 20
WIDE: Final = {
    "rows of 5 cells of 100 bytes": (5000, 5, 100),
    "rows of a cell of 1 MB": (200, 1, 10**6),
    "rows of 100,000 cells of 10 bytes": (5, 100_000, 10),
    "a row of 300,000 cells of 10 bytes": (1, 300_000, 10),
}
"""Rows, cells in each, bytes in each cell."""
_MAKING: Final = "cells, were they made"
_CAREFUL: Final = "the careful way, were the rows not clean"
_QUICKLY: Final = 50
"""A quick run does so much less, and measures nothing."""


def task_of(store: Store, table: str, rows: KeyRange) -> RangeTask:
    """Return a pass that drops nothing."""
    families = frozenset({work.FAMILY})
    low_watermark = read_low_watermark(store)
    which = which_table(store, table)
    return RangeTask(table, rows, families, low_watermark, 0, 0, COMMIT_TABLE, incarnation=which)


def passed(url: str, table: str, rows: KeyRange = WHOLE_TABLE) -> tuple[float, float, int, int]:
    """Pass over a range; return seconds, seconds of a processor, cells read and healed."""
    with closing(open_store(url)) as store:
        one = RangePass(store, task_of(store, table, rows), clock=SystemClock())
        began_s, processor_s = time.perf_counter(), time.process_time()
        result = one.run()
        elapsed_s = time.perf_counter() - began_s
        processor_s = time.process_time() - processor_s
    if result.obstacle:
        raise RuntimeError(result.obstacle)
    return elapsed_s, processor_s, result.cells_read, result.cells_healed


def bare_scan(url: str, table: str) -> tuple[float, float, int]:
    """Scan a table with the bare client of the gateway, page after page; return as `passed`."""
    clients = work.Clients(work.Where(url, ""))
    client = clients.bare()
    began_s, processor_s = time.perf_counter(), time.process_time()
    start, cells = b"", 0
    while True:
        scan = idl.TScan(startRow=start, maxVersions=ALL_VERSIONS, caching=PAGE_ROWS)
        found = client.getScannerResults(table.encode(), scan, PAGE_ROWS)
        cells += sum(len(row.columnValues) for row in found)
        if len(found) < PAGE_ROWS:
            break
        start = found[-1].row + b"\x00"
    spent = time.perf_counter() - began_s, time.process_time() - processor_s
    clients.drain()
    return *spent, cells


# -- one run ---------------------------------------------------------------------------------------


def measure(
    hbase: HBase, directory: Path, *, rows: int, rounds: int, less: int = 1
) -> list[Result]:
    """Measure everything, in turns; memory on so much less data."""
    url = hbase.thrift2_url
    names = ["BENCH_PASS", *(f"BENCH_HEAL_{number}" for number in range(rounds))]
    with tso_server(url, log=directory / "tso-fill.log") as tso:
        for table in names:
            post_commit = "sync" if table == names[0] else "none"
            with omidpy.connect(url, tso=tso, post_commit=post_commit) as manager:
                manager.create_table(table, families=["f"])
                work.fill(manager, table, rows=rows, columns=COLUMNS)
    with (
        tso_server(url, log=directory / "tso-after.log"),
        JavaDriver(zookeeper=hbase.zookeeper, tuning=FULL_SPEED) as java,
    ):
        found = [_round(url, java, names[0], table) for table in names[1:]]
        results = _rates(found[1:] or found, rows)
        results += _profile(url, names[0])
        results += _scaled(url, names[0], rows, rounds)
        results += _memory(url, less)
        with closing(open_store(url)) as store:
            for table in names:
                store.drop_table(table)
    return results


def _round(url: str, java: JavaDriver, table: str, to_heal: str) -> dict[str, float]:
    """Return what each client reads a second, in cells; as each processor second where it says."""

    def counted(**how: Any) -> float:
        elapsed_ns, *_ = java.call("bench.count", table=table, caching=1000, **how)
        return float(elapsed_ns) / 1e9

    keys_s, cells_s = counted(keys=True), counted()
    bare_s, bare_processor_s, cells = bare_scan(url, table)
    pass_s, pass_processor_s, _, healed = passed(url, table)
    heal_s, heal_processor_s, heal_cells, to_do = passed(url, to_heal)
    if healed or not to_do:
        raise RuntimeError("the tables are not as they were meant")
    return {
        "HBase's RowCounter": cells / keys_s,
        "count of cells in Java": cells / cells_s,
        "bare scan": cells / bare_s,
        "bare scan, of a processor of its own": cells / bare_processor_s,
        "pass, every cell healed before": cells / pass_s,
        "pass, every cell healed before, of a processor of its own": cells / pass_processor_s,
        "pass, every cell to heal": heal_cells / heal_s,
        "pass, every cell to heal, of a processor of its own": heal_cells / heal_processor_s,
    }


def _rates(rounds: Sequence[dict[str, float]], rows: int) -> list[Result]:
    load = f"{rows} rows of {COLUMNS} cells and their shadow cells, median of {len(rounds)} rounds"
    results = [
        Result(f"cells, {name}", load, per_second=round(median(one[name] for one in rounds), 1))
        for name in rounds[0]
    ]
    healed, bare = "pass, every cell healed before", "bare scan"
    own = ", of a processor of its own"
    for mine, theirs in (
        (healed, bare),
        (healed + own, bare + own),
        (healed, "count of cells in Java"),
        (healed, "HBase's RowCounter"),
        ("pass, every cell to heal", bare),
    ):
        ratio = median(one[mine] / one[theirs] for one in rounds)
        results.append(Result(f"{mine} over {theirs}", load, per_second=round(ratio, 3)))
    return results


def _profile(url: str, table: str) -> list[Result]:
    """Return what each step of a pass over healed rows takes of its processor, in ms a cell."""
    spent: dict[str, float] = {}
    cells = 0

    def timed(name: str, step: Callable[[], T]) -> T:
        began_s = time.process_time()
        found = step()
        spent[name] = spent.get(name, 0.0) + time.process_time() - began_s
        return found

    with closing(open_store(url)) as store:
        one = RangePass(store, task_of(store, table, WHOLE_TABLE), clock=SystemClock())
        pages = one.pages()
        while (page := timed("reading a page", lambda: next(pages, None))) is not None:
            cells += sum(map(len, page))
            timed("telling clean rows", partial(sifted, page, one.scope))
            rows = timed(_MAKING, partial(_made, page))
            timed(_CAREFUL, partial(_planned, rows, one.scope))
    whole_s = sum(seconds for name, seconds in spent.items() if name not in (_MAKING, _CAREFUL))
    return [
        Result(
            f"pass over healed rows, of its processor: {name}",
            f"{seconds / whole_s:.0%} of what reading and telling take",
            p50_ms=round(seconds / cells * 1000, 6),
            count=cells,
        )
        for name, seconds in spent.items()
    ]


def _made(page: Sequence[FoundRow]) -> list[list[Cell]]:
    return [list(row) for row in page]


def _planned(page: Sequence[Sequence[Cell]], scope: Scope) -> list[RowPlan]:
    rows = [examine(row, scope) for row in page]
    assert not any(map(unresolved, rows)), "all are healed"
    return [plan_row(row, {}, scope) for row in rows]


def _scaled(url: str, table: str, rows: int, rounds: int) -> list[Result]:
    """Pass over the table in one process, and over its halves in two, in turns."""
    middle = work.key(rows // 2)
    halves = [KeyRange(b"", middle), KeyRange(middle, b"")]
    ratios = []
    with _processes(2) as pool:
        list(pool.map(passed, [url] * 2, [table] * 2, halves))
        for _ in range(rounds):
            began_s = time.perf_counter()
            pool.submit(passed, url, table).result()
            alone_s = time.perf_counter() - began_s
            began_s = time.perf_counter()
            list(pool.map(passed, [url] * 2, [table] * 2, halves))
            ratios.append(alone_s / (time.perf_counter() - began_s))
    load = f"{rows} rows, gateway and region server on the same cores, median of {rounds} rounds"
    return [Result("two processes over one", load, per_second=round(median(ratios), 3))]


# -- memory ----------------------------------------------------------------------------------------


def _memory(url: str, less: int) -> list[Result]:
    """Return the peak memory of tasks over rows of several kinds, in MiB."""
    results = []
    for number, (name, (most_rows, most_cells, size)) in enumerate(WIDE.items()):
        rows, cells = -(-most_rows // less), -(-most_cells // less)
        table = f"BENCH_WIDE_{number}"
        with closing(open_store(url)) as store:
            _fill_wide(store, table, rows, cells, size)
        with _processes(1) as pool:
            before, after, read = pool.submit(peak_of_pass, url, table).result()
        if read != 2 * rows * cells:
            raise RuntimeError(f"{read} cells of {name} were read")
        load = f"{rows} rows, {rows * cells * size / 1e6:,.0f} MB of values, all healed"
        results.append(
            Result(f"MiB of a task at its peak, {name}", load, per_second=round(after, 1))
        )
        results.append(
            Result(f"MiB of that for the cells, {name}", load, per_second=round(after - before, 1))
        )
        with closing(open_store(url)) as store:
            store.drop_table(table)
    return results


def _fill_wide(store: Store, table: str, rows: int, cells: int, size: int) -> None:
    from omidpy.base.cells import encode_long, shadow_qualifier  # noqa: PLC0415 - here alone
    from omidpy.model import FamilySchema, TableSchema  # noqa: PLC0415 - here alone

    store.create_table(TableSchema(table, [FamilySchema(work.FAMILY)]))
    version, value = FIRST_WORLD_TIMESTAMP, bytes(size)
    shadow = encode_long(version + 50)
    chunk = max(1, min(cells, 4 * MIB // (size + 100)))
    for row in range(rows):
        for first in range(0, cells, chunk):
            puts = []
            for column in range(first, min(first + chunk, cells)):
                qualifier = b"%06d" % column
                puts.append(Put(work.FAMILY, qualifier, version, value))
                puts.append(Put(work.FAMILY, shadow_qualifier(qualifier), version, shadow))
            store.write({table: [RowMutation(work.key(row), puts)]})


def peak_of_pass(url: str, table: str) -> tuple[float, float, int]:
    """Pass over a table; return the process's peak memory before and after, and the cells read."""
    with closing(open_store(url)) as store:
        store.tables()
    before = _peak_mib()
    *_, cells, _ = passed(url, table)
    return before, _peak_mib(), cells


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextmanager
def _processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Give fresh processes, as those of Spark's workers are."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        yield pool


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.hbase.passes")
    parser.add_argument("--hbase", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=6, help="the first is for warming up")
    parser.add_argument("--memory", action="store_true", help="measure the memory of tasks alone")
    parser.add_argument("--quick", action="store_true", help="show that it runs, measure nothing")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "results")
    options = parser.parse_args(arguments)
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        hbase = HBase.attach(options.hbase)
        less = _QUICKLY if options.quick else 1
        rounds = 1 if options.quick else options.rounds
        rows = options.rows // less
        if options.memory:
            # It raises the low watermark above the rows.
            with tso_server(hbase.thrift2_url, log=directory / "tso.log"):
                results = _memory(hbase.thrift2_url, less)
        else:
            results = measure(hbase, directory, rows=rows, rounds=rounds, less=less)
        machine = describe_machine(directory)
    document = Document(today(), commit_id(), machine, before, os.getloadavg()[0], results)
    from rich.console import Console  # noqa: PLC0415 - for the end

    print_results(Console(), document)
    keep(document, options.output, "hbase-passes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
