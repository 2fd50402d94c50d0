"""How many cells a second does a pass of the compactor read from HBase, and what takes the time?

In this process and one range after another, so that all of it is one core's.  Three parts: the
compactor's own work; writing calls and reading answers, which is ours too; and the wait for HBase
or its gateway.

Then what the next run costs, if nothing was written since, and if every hundredth row was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import omidpy
from bench.hbase import work
from bench.measure import Result
from bench.processes import tso_server
from bench.workloads.compaction import CHANGED_EVERY, again
from compactor.options import Options
from compactor.report import Report
from compactor.run.local import compact
from omidpy.opening import open_store
from omidpy.storage.hbase.native.connections.connection import Connection
from omidpy.storage.hbase.rpc.pool import GatewayPool

COLUMNS: Final = 5
TABLES: Final = {"sync": "BENCH_HEALED", "none": "BENCH_UNHEALED"}
"""By what follows a commit."""


class _Spent:
    """What calls of HBase or its gateway took in this thread."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self.processor_s = 0.0


def measure(url: str, directory: Path, *, rows: int) -> list[Result]:
    """Compact a table of `rows` rows that is healed, one that is not at all, and one again."""
    with tso_server(url, log=directory / "tso-fill.log") as tso:
        for post_commit, table in TABLES.items():
            with omidpy.connect(url, tso=tso, post_commit=post_commit) as manager:
                manager.create_table(table, families=["f"])
                work.fill(manager, table, rows=rows, columns=COLUMNS)
    # An oracle that starts again lets nothing commit that began before: the low watermark rises.
    with tso_server(url, log=directory / "tso-after.log"):
        first = [
            result
            for post_commit, table in TABLES.items()
            for result in _measure(url, table, rows, is_healed=post_commit == "sync")
        ]
    return [*first, *_measure_again(url, directory, TABLES["sync"], rows)]


def _measure_again(url: str, directory: Path, table: str, rows: int) -> list[Result]:
    with tso_server(url, log=directory / "tso-again.log") as tso:
        clean = _compacted(url, table)
        with omidpy.connect(url, tso=tso, post_commit="none") as manager, manager.begin() as tx:
            for number in range(0, rows, CHANGED_EVERY):
                row = {b"f:%d" % column: b"changed" for column in range(COLUMNS)}
                tx.table(table).put(work.key(number), row)
    with tso_server(url, log=directory / "tso-last.log"):
        return again(clean, _compacted(url, table), rows=rows, columns=COLUMNS)


def _compacted(url: str, table: str) -> Report:
    with closing(open_store(url)) as store:
        return compact(store, _options(table))


def _options(table: str) -> Options:
    return Options(
        grace_s=0.0, invalidation_grace_s=0.0, retention_s=0.0, tables=frozenset((table,))
    )


def _measure(url: str, table: str, rows: int, *, is_healed: bool) -> list[Result]:
    options = _options(table)
    with closing(open_store(url)) as store, _timed_calls() as spent:
        began_s, processor_s = time.perf_counter(), time.process_time()
        report = compact(store, options)
        elapsed_s = time.perf_counter() - began_s
        processor_s = time.process_time() - processor_s
    if report.cells_healed != (0 if is_healed else rows * COLUMNS):
        raise RuntimeError(f"{report.cells_healed} cells of {table} were healed")
    what = "every cell healed before" if is_healed else "every cell to heal"
    parts = {
        "own work": elapsed_s - spent.elapsed_s,
        "writing calls and reading answers": spent.processor_s,
        "waiting for HBase": spent.elapsed_s - spent.processor_s,
    }
    load = f"{rows} rows of {COLUMNS} cells, 1 process"
    cells = report.cells_read
    return [
        Result(f"compaction, {what}", load, per_second=round(cells / elapsed_s, 1), count=cells),
        Result(
            f"compaction, {what}, of a processor of its own",
            load,
            per_second=round(cells / processor_s, 1),
            count=cells,
        ),
        *(
            Result(
                f"compaction, {what}: {part}",
                f"{seconds / elapsed_s:.0%} of the time",
                p50_ms=round(seconds / cells * 1000, 5),
                count=cells,
            )
            for part, seconds in parts.items()
        ),
    ]


@contextmanager
def _timed_calls() -> Iterator[_Spent]:
    spent = _Spent()
    with ExitStack() as patches:
        for owner, method in ((GatewayPool, "call"), (Connection, "send"), (Connection, "wait")):
            patches.enter_context(_timed(owner, method, spent))
        yield spent


@contextmanager
def _timed(owner: type[Any], method: str, spent: _Spent) -> Iterator[None]:
    original = getattr(owner, method)

    def call(*args: Any, **more: Any) -> Any:
        began_s, processor_s = time.perf_counter(), time.thread_time()
        try:
            return original(*args, **more)
        finally:
            spent.elapsed_s += time.perf_counter() - began_s
            spent.processor_s += time.thread_time() - processor_s

    setattr(owner, method, call)
    try:
        yield
    finally:
        setattr(owner, method, original)
