"""Does one turn of a comparison as a program of some checkout, whose own `bench` it uses.

    python turn.py STORE SECONDS SEED JOB...    with the checkout on PYTHONPATH and below it

Starts that checkout's `tso-server`, does jobs like `put 1 8` (kind, rows, threads) and `scan`, and
prints a JSON object: of each job the latencies in seconds, or of a scan its own time for a row, and
the microseconds of a processor that client and oracle took for each operation.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import omidpy
from bench.hbase import work
from bench.hbase.fleet import Fleet, Job
from bench.processes import tso_server
from omidpy.errors import TableExists

ROWS = 10_000
WARM_UP_S = 0.5


def main() -> None:
    """Do the jobs."""
    store, seconds, seed, *jobs = sys.argv[1:]
    oracle: list[int] = []
    found = {}
    with contextlib.ExitStack() as resources:
        log = Path(resources.enter_context(tempfile.TemporaryDirectory())) / "tso.log"
        checkout = Path.cwd()
        server = tso_server(store, log=log, on_start=oracle.append, checkout=checkout)
        tso = resources.enter_context(server)
        manager = resources.enter_context(contextlib.closing(omidpy.connect(store, tso=tso)))
        fill(manager)
        fleet = resources.enter_context(Fleet(1, work.Where(store, tso)))
        pids = [*oracle, *children_of(os.getpid(), but=oracle)]
        for name in jobs:
            if name == "scan":
                found[name] = scanned(manager, float(seconds))
                continue
            kind, rows, threads = name.split()
            warm_up, job = (
                Job(kind, int(rows), int(threads), one, int(seed))
                for one in (WARM_UP_S, float(seconds))
            )
            fleet.run(warm_up)
            before_s = used_s(pids)
            answer = fleet.run(job)
            cost_us = (used_s(pids) - before_s) / len(answer.latencies_s) * 1e6
            found[name] = {
                "per_second": len(answer.latencies_s) / answer.elapsed_s,
                "p50_ms": sorted(answer.latencies_s)[len(answer.latencies_s) // 2] * 1e3,
                "processor_us": cost_us,
            }
    print(json.dumps(found))


def fill(manager: omidpy.TransactionManager) -> None:
    """Make the tables unless an earlier turn did."""
    with contextlib.suppress(TableExists):
        manager.create_table(work.PUT_TABLE, families=["f"])
        manager.create_table(work.READ_TABLE, families=["f"])
        work.fill(manager, work.READ_TABLE, rows=ROWS, columns=1)


def scanned(manager: omidpy.TransactionManager, seconds: float) -> dict[str, float]:
    """Scan again and again; return what a row took."""
    work.scan(manager, work.READ_TABLE)
    began_s, began_used_s, rows = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began_s < seconds:
        rows += work.scan(manager, work.READ_TABLE)
    elapsed_s = time.perf_counter() - began_s
    return {
        "per_second": rows / elapsed_s,
        "p50_ms": elapsed_s / rows * 1e3,
        "processor_us": (time.process_time() - began_used_s) / rows * 1e6,
    }


def children_of(pid: int, *, but: list[int]) -> list[int]:
    """Return the processes that a process has started and that live, some aside."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    return [child for child in map(int, children) if child not in but]


def used_s(pids: list[int]) -> float:
    """Return the processor time that processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
