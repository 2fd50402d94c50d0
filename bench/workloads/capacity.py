"""What do a client, a table and a transaction take of memory, disk and processor?

One `tso-server` on a file, and processes beside it, each measured by what the kernel says it holds.
Sizes on disk are those of the file with its log, after a checkpoint.  What HBase takes for the same
cells depends on its compression and is not measured here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import omidpy
from bench.measure import Result, resident_mib
from bench.processes import ROOT, tso_server
from omidpy import admin
from omidpy.oracle.tcp import TcpOracle

CELLS: Final = 10
VALUE_BYTES: Final = 100

# Prints MiB that the process holds after each step.
_CLIENT: Final = """
import json, os, sys
def mib():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
found = [mib()]
import omidpy
found.append(mib())
url, tso, tables = sys.argv[1:]
with omidpy.connect(url, tso=tso) as tm:
    with tm.begin() as tx:
        tx.table("t0").row(b"a")
    found.append(mib())
    with tm.begin() as tx:
        for number in range(int(tables)):
            tx.table(f"t{number}").row(b"a")
    found.append(mib())
print(json.dumps(found))
"""


def measure(directory: Path, *, connections: int, tables: int, transactions: int) -> list[Result]:
    """Measure each, with so many connections, tables and transactions."""
    path = directory / "capacity.db"
    url = f"sqlite:///{path}"
    pids: list[int] = []
    with tso_server(url, log=directory / "capacity.log", on_start=pids.append) as tso:
        (server,) = pids
        results = [Result("tso-server, at rest", "no client", mib=_rounded(server), count=1)]
        results.append(_connections(tso, server, connections))
        before = _bytes(path)
        with omidpy.connect(url, tso=tso) as tm:
            for number in range(tables):
                tm.create_table(f"t{number}", families=["cf"])
        taken = _bytes(path) - before
        results.append(_of_disk("disk, each table", f"{tables} tables", taken, tables))
        results += _client(url, tso, tables)
        results += _transactions(path, url, tso, server, transactions)
    results += _copies(path, directory)
    return results


def _connections(tso: str, server: int, count: int) -> Result:
    before = resident_mib(server)
    with ExitStack() as stack:
        for _ in range(count):
            oracle = stack.enter_context(closing(TcpOracle(tso)))
            oracle.ping()
        taken = resident_mib(server) - before
    return Result(
        "tso-server, each connected client",
        f"{count} at once, begun nothing",
        mib=round(taken / count, 4),
        count=count,
    )


def _client(url: str, tso: str, tables: int) -> list[Result]:
    done = subprocess.run(
        [sys.executable, "-c", _CLIENT, url, tso, str(tables)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    bare, imported, connected, with_tables = json.loads(done.stdout)
    return [
        Result("client, a bare Python", "nothing of omidpy's", mib=round(bare, 1), count=1),
        Result("client, import omidpy", "more than that", mib=round(imported - bare, 1), count=1),
        Result(
            "client, connected",
            "more than that, one read",
            mib=round(connected - imported, 1),
            count=1,
        ),
        Result(
            "client, each table",
            f"{tables} tables, one read each",
            mib=round((with_tables - connected) / tables, 4),
            count=tables,
        ),
    ]


def _transactions(path: Path, url: str, tso: str, server: int, count: int) -> list[Result]:
    load = f"{CELLS} cells of {VALUE_BYTES} bytes in two rows"
    results = []
    for post_commit, name in (
        ("sync", "disk, each transaction"),
        ("none", "disk, of a dead client"),
    ):
        with omidpy.connect(url, tso=tso, post_commit=post_commit) as tm:
            before, spent, own = _bytes(path), _processor_s(server), time.process_time()
            began_s = time.perf_counter()
            for number in range(count):
                with tm.begin() as tx:
                    table = tx.table("t0")
                    for row in range(2):
                        cells = {b"cf:%d" % one: bytes(VALUE_BYTES) for one in range(CELLS // 2)}
                        table.put(b"%s%08d%d" % (post_commit.encode(), number, row), cells)
            took_s = time.perf_counter() - began_s
            results.append(_of_disk(name, load, _bytes(path) - before, count))
            if post_commit == "sync":
                results += [
                    Result(
                        "tso-server, processor for a transaction",
                        load,
                        p50_ms=round((_processor_s(server) - spent) * 1000 / count, 4),
                        count=count,
                    ),
                    Result(
                        "client, processor for a transaction",
                        load,
                        p50_ms=round((time.process_time() - own) * 1000 / count, 4),
                        per_second=round(count / took_s, 1),
                        count=count,
                    ),
                ]
    results.append(
        Result("tso-server, after them", f"{2 * count} transactions", mib=_rounded(server), count=1)
    )
    return results


def _copies(path: Path, directory: Path) -> list[Result]:
    """Back the store up and restore it: what the drill of the guide takes, by size."""
    size_mib = _bytes(path) / 2**20
    results = []
    backup, restored = directory / "capacity.backup", directory / "restored.db"
    url = f"sqlite:///{path}"
    copies: dict[str, Callable[[], object]] = {
        "backup": lambda: admin.backup(url, backup),
        "restore": lambda: admin.restore(backup, f"sqlite:///{restored}"),
    }
    for name, copy in copies.items():
        began_s = time.perf_counter()
        copy()
        took_s = time.perf_counter() - began_s
        results.append(
            Result(
                name,
                "MiB a second, of a file of as many MiB",
                per_second=round(size_mib / took_s, 1),
                mib=round(size_mib, 1),
                count=1,
            )
        )
    began_s = time.perf_counter()
    with omidpy.connect(f"sqlite:///{restored}") as tm, tm.begin() as tx:
        assert tx.table("t0").row(b"sync000000000"), "what was acknowledged is in the backup"
    took_s = time.perf_counter() - began_s
    results.append(
        Result(
            "first transaction after a restore", "embedded", p50_ms=round(took_s * 1000, 1), count=1
        )
    )
    return results


def _of_disk(name: str, load: str, taken_bytes: int, count: int) -> Result:
    return Result(name, load, mib=round(taken_bytes / count / 2**20, 6), count=count)


def _bytes(path: Path) -> int:
    """Return the size of a store, of which a checkpoint has emptied the log."""
    import sqlite3  # noqa: PLC0415 - for this alone

    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(one.stat().st_size for one in path.parent.glob(f"{path.name}*") if one.is_file())


def _processor_s(pid: int) -> float:
    """Return how long a process has had a processor."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rounded(pid: int) -> float:
    return round(resident_mib(pid), 1)
