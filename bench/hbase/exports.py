"""How many entries a second do export queues take and deliver on HBase, and what takes the time?

As `bench/workloads/exports.py` on a file.  Beside the rates by the clock, which are those of a
machine that others share, stands what each entry costs in processor time, by process: two free
cores come to 2,000 divided by the sum of these milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import omidpy
from bench.hbase.timed import Calls, timed_calls
from bench.measure import Result
from bench.processes import tso_server
from bench.workloads.exports import ENTRIES_PER_TRANSACTION, results
from tests.machines.hbase import HBase

_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
_MOST_CALLS: Final = 6
"""So many kinds of calls are shown, those that took the longest."""


def measure(
    hbase: HBase, directory: Path, *, transactions: int, lone: int, threads: int
) -> list[Result]:
    """Measure on `hbase`, which has no queue yet."""
    costs: list[Result] = []
    entries = transactions * ENTRIES_PER_TRANSACTION
    with (
        tso_server(hbase.thrift2_url, log=directory / "tso.log") as tso,
        omidpy.connect(hbase.thrift2_url, tso=tso) as tm,
        timed_calls() as calls,
    ):

        @contextmanager
        def around(what: str) -> Iterator[None]:
            calls.clear()
            before = processor_s(hbase)
            yield
            spent = {who: after - before.get(who, 0) for who, after in processor_s(hbase).items()}
            costs.extend(_costs(what, spent, calls, entries))

        rates = results(
            tm, "HBase", transactions=transactions, lone=lone, threads=threads, around=around
        )
    return [*rates, *costs]


def _costs(what: str, spent: dict[str, float], calls: Calls, entries: int) -> list[Result]:
    longest = sorted(calls, key=lambda name: -sum(calls[name]))[:_MOST_CALLS]
    return [
        *(
            Result(
                f"entries {what}, HBase: processor of {who}",
                "for each entry",
                p50_ms=round(seconds / entries * 1000, 4),
                count=entries,
            )
            for who, seconds in sorted(spent.items())
        ),
        *(
            Result(
                f"entries {what}, HBase: {name}",
                f"{len(calls[name])} calls of {sum(calls[name]) / len(calls[name]) * 1000:.1f} ms",
                p50_ms=round(sum(calls[name]) / entries * 1000, 4),
                count=entries,
            )
            for name in longest
        ),
    ]


def processor_s(hbase: HBase) -> dict[str, float]:
    """Return the processor time so far of the processes that take part."""
    ours = os.times()
    found = {"the client": ours.user + ours.system}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            fields = (path / "stat").read_text("ascii").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        seconds = (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND
        if str(hbase.directory).encode() in command and b"java" in command:
            who = "the gateway" if b"ThriftServer" in command else "HBase"
        elif b"tso.cli" in command and int(fields[1]) == os.getpid():
            who = "the oracle"
        else:
            continue
        found[who] = found.get(who, 0.0) + seconds
    return found
