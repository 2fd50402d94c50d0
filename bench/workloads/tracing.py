"""What does tracing cost, while nobody wants spans and while somebody keeps them?

A transaction on the store in memory: it reads a row of ten cells, scans ten rows, and writes a row.
Nothing waits for a disk or a network there, so that a share is as large as it can be.

Nothing can be measured against a product without the looks at `tracing`, since there is none.  So
they are counted, one is timed, and what all of a transaction take is held against its processor
time.  Rounds without and with a provider take turns, and the median of each counts.
"""

from __future__ import annotations

import statistics
import time
import timeit
from typing import Any, Final

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import omidpy
import omidpy.tracing
from bench.measure import Result
from omidpy.manager import TransactionManager

LOAD: Final = "get, scan of 10 rows, put and commit in memory, 1 thread"
_CELLS: Final = {b"f:%d" % cell: b"value" for cell in range(10)}
_LOOKS: Final = 1_000_000


def measure(*, transactions: int, rounds: int) -> list[Result]:
    """Measure rounds of so many transactions each."""
    off_s, on_s = [], []
    for _ in range(rounds):
        on_s.append(_processor_s(transactions, is_traced=True))
        off_s.append(_processor_s(transactions, is_traced=False))
    off, on = statistics.median(off_s), statistics.median(on_s)
    looks, look_s = _looks(), _look_s()
    count = rounds * transactions
    return [
        Result("transaction, tracing off", LOAD, p50_ms=round(off * 1000, 5), count=count),
        Result("transaction, spans kept in memory", LOAD, p50_ms=round(on * 1000, 5), count=count),
        Result("one look for a tracer", LOAD, p50_ms=round(look_s * 1000, 7), count=_LOOKS),
        Result(
            "looks for a tracer, of a transaction's processor time",
            LOAD,
            ratio=round(looks * look_s / off, 5),
            count=looks,
        ),
    ]


def _fill(tm: TransactionManager) -> None:
    tm.create_table("t", families=["f"])
    with tm.begin() as tx:
        for number in range(10):
            tx.table("t").put(b"read%d" % number, _CELLS)


def _run(tm: TransactionManager, transactions: int) -> None:
    """Read the same rows each time, and write new ones: older versions would add to the cost."""
    for _ in range(transactions):
        with tm.begin() as tx:
            table = tx.table("t")
            table.row(b"read3")
            for _ in table.scan(row_prefix=b"read"):
                pass
            table.put(b"%020d" % tx.start_ts, _CELLS)


def _processor_s(transactions: int, *, is_traced: bool) -> float:
    """Return seconds of processor a transaction, of all threads, on a store of its own.

    The store in memory is slower the more rows it has.
    """
    with omidpy.connect("memory:") as tm:
        _fill(tm)
        if is_traced:
            provider = TracerProvider()
            provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
            omidpy.tracing.instrument(tm, provider)
        _run(tm, 100)
        before_s = time.process_time()
        _run(tm, transactions)
        return (time.process_time() - before_s) / transactions


def _looks() -> int:
    """Return how often one transaction looks, from its begin until it is complete."""
    looks = 0

    def look(_: object) -> None:
        nonlocal looks
        looks += 1

    with omidpy.connect("memory:") as tm:
        _fill(tm)
        _run(tm, 100)
        session: Any = tm.session
        for one in (session, session.reader, session._completer):
            kind = type(one)
            one.__class__ = type(kind.__name__, (kind,), {"tracing": property(look)})
        _run(tm, 1)
    return looks


def _look_s() -> float:
    """Return the seconds of `if (tracing := x.y.tracing) is None`, less those of an empty loop."""

    class Holder:
        tracing = None

    class Outer:
        def __init__(self) -> None:
            self.holder = Holder()

    names = {"x": Outer()}
    taken = min(timeit.repeat("(t := x.holder.tracing) is None", globals=names, number=_LOOKS))
    empty = min(timeit.repeat("pass", number=_LOOKS))
    return (taken - empty) / _LOOKS
