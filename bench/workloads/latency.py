"""How long does a begin take on an idle oracle, and how long a commit of ten cells?

Both with the oracle in this process and through a `tso-server`.  A begin is one question to the
oracle; a commit writes its cells, asks the oracle, and waits for the commit entry to be synced.  A
bare SQLite transaction of the same cells, at the same pace, says what the disk alone takes: a sync
after a pause is much slower than one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import omidpy
from bench.measure import Result, latencies, paced
from bench.processes import tso_server
from bench.workloads.bare import connect_bare, create_bare, write_bare
from omidpy.manager import TransactionManager
from omidpy.tx.transaction import Transaction

CELLS: Final = 10
BEGINS_PER_S: Final = 200.0
COMMITS_PER_S: Final = 50.0
_WARM_UP: Final = 20


def measure(directory: Path, *, count: int) -> list[Result]:
    """Measure `count` begins and a fifth as many commits each way."""
    results = []
    with omidpy.connect(f"sqlite:///{directory}/embedded.db") as tm:
        results += _measure(tm, "embedded oracle", count)
    with shared(directory / "served.db") as (url, tso), omidpy.connect(url, tso=tso) as tm:
        results += _measure(tm, "tso-server", count)
    results.append(_measure_bare(directory / "bare-latency.db", count))
    return results


@contextmanager
def shared(path: Path) -> Iterator[tuple[str, str]]:
    """Run a server on a new store; yield the addresses of both."""
    url = f"sqlite:///{path}"
    with tso_server(url, log=path.with_suffix(".log")) as tso:
        yield url, tso


def _measure(tm: TransactionManager, where: str, count: int) -> list[Result]:
    tm.create_table("latency", families=["f"])
    open_transactions: list[Transaction] = []
    number = 0

    def begin_and_forget() -> None:
        tm.begin(read_only=True).rollback()

    def begin_and_write() -> None:
        nonlocal number
        number += 1
        transaction = tm.begin()
        row = {b"f:%d" % cell: b"value" for cell in range(CELLS)}
        transaction.table("latency").put(b"%012d" % number, row)
        open_transactions.append(transaction)

    def commit() -> None:
        open_transactions.pop().commit()

    for _ in range(_WARM_UP):
        begin_and_write()
        commit()
    begins = paced(begin_and_forget, per_second=BEGINS_PER_S, count=count)
    commits = paced(
        commit, per_second=COMMITS_PER_S, count=max(1, count // 5), prepare=begin_and_write
    )
    return [
        latencies(f"begin, {where}", f"{BEGINS_PER_S:.0f} a second, 1 client", begins),
        latencies(
            f"commit of {CELLS} cells, {where}",
            f"{COMMITS_PER_S:.0f} a second, 1 client",
            commits,
        ),
    ]


def _measure_bare(path: Path, count: int) -> Result:
    create_bare(path)
    connection = connect_bare(path)
    number = 0

    def write() -> None:
        nonlocal number
        number += 1
        write_bare(connection, {b"%012d" % number}, version=number, columns=CELLS)

    commits = paced(write, per_second=COMMITS_PER_S, count=max(1, count // 5))
    connection.close()
    load = f"{COMMITS_PER_S:.0f} a second, 1 client"
    return latencies(f"commit of {CELLS} cells, bare SQLite", load, commits)
