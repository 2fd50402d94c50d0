"""Where does each microsecond of a lone transaction go that puts one row and commits?

One client, one transaction after another; between them bare puts of as many rows, so that both met
the same load.  The client and the oracle time their own calls; what remains of each is their own
work, the way between them, and the waits for a processor.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

import omidpy
from bench.hbase import timed, work
from bench.measure import percentile
from bench.processes import tso_server
from omidpy.manager import TransactionManager

WARM_UP: Final = 200
GROUP: Final = 20
"""Transactions, and then bare puts, in a row."""

FLUSH: Final = f"gateway put {work.PUT_TABLE}"
ENTRY: Final = "gateway checkAndPut, get"
"""The oracle's write of a commit entry and, at once, its read of the lease."""


class Step(msgspec.Struct, frozen=True):
    """A part of a transaction."""

    name: str
    p50_us: float
    per_transaction: float = 1.0
    """How often it happens."""


def profile(store: str, directory: Path, *, count: int) -> list[Step]:
    """Run `count` transactions on a store that has the table; return the parts of one."""
    found = directory / "calls.json"
    oracle = tso_server(
        store, log=directory / "timed-tso.log", program=("bench.hbase.timed", str(found))
    )
    with timed.timed_calls() as calls:
        with oracle as tso, contextlib.closing(omidpy.connect(store, tso=tso)) as manager:
            totals, bare = _run(manager, work.Where(store, tso), calls, count)
        theirs = msgspec.json.decode(found.read_bytes(), type=timed.Calls)
    return _steps(totals, bare, calls, theirs)


def _run(
    manager: TransactionManager, where: work.Where, calls: timed.Calls, count: int
) -> tuple[list[float], list[float]]:
    totals: list[float] = []
    bare: list[float] = []
    with work.Clients(where, manager) as clients:
        one = work.KINDS["put"](clients, 1, random.Random(1))
        bare_put = work.KINDS["bare put"](clients, 1, random.Random(2))
        for _ in range(WARM_UP):
            one()
            bare_put()
        manager.session.post_committer.drain()
        calls.clear()
        while len(totals) < count:
            for operation, latencies in ((one, totals), (bare_put, bare)):
                for _ in range(GROUP):
                    began_s = time.perf_counter()
                    operation()
                    latencies.append(time.perf_counter() - began_s)
                manager.session.post_committer.drain()
    return totals, bare


def _steps(
    totals: Sequence[float], bare: Sequence[float], ours: timed.Calls, theirs: timed.Calls
) -> list[Step]:
    count = len(totals)
    entry = _p50_us(theirs[ENTRY][-count:])
    begin, flush, commit = (_p50_us(ours[name]) for name in (timed.BEGIN, FLUSH, timed.COMMIT))
    total = _p50_us(totals)
    steps = [
        Step("the transaction", total),
        Step("begin: the oracle's answer", begin),
        Step("flush: the gateway's put", flush),
        Step("commit: the gateway's write of the entry and read of the lease", entry),
        Step("commit: the oracle and the way to it", round(commit - entry, 1)),
        Step("the client's own", round(total - begin - flush - commit, 1)),
        Step("a bare put", _p50_us(bare)),
    ]
    steps += [
        Step(f"in the background: {name}", _p50_us(seconds), round(len(seconds) / count, 2))
        for name, seconds in sorted(ours.items())
        if name.startswith("gateway ") and name != FLUSH
    ]
    return steps


def _p50_us(seconds: Sequence[float]) -> float:
    return round(percentile(seconds, 0.5) * 1e6, 1)
