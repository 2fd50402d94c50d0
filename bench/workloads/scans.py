"""How many rows a second does a snapshot scan read, beside bare SQLite reading the same file?

Bare SQLite hands every cell of the table to Python, shadow cells among them, in key order, and
decides nothing.  All kinds run in turns in one process, and the quickest round of each counts, by
this process's own time: other work on the machine slows all of them alike.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import omidpy
from bench.measure import Result
from omidpy.codec import BYTES
from omidpy.manager import TransactionManager

ROWS_A_TRANSACTION: Final = 1000
WIDTHS: Final = (1, 5)
"""Columns of a row."""


def measure(directory: Path, *, rows: int, rounds: int) -> list[Result]:
    """Scan tables of `rows` rows, narrow and wide, healed and not."""
    results: list[Result] = []
    for columns in WIDTHS:
        results += _healed(directory, rows=rows, columns=columns, rounds=rounds)
        results += _unhealed(directory, rows=rows, columns=columns)
    return results


def fill(tm: TransactionManager, *, rows: int, columns: int) -> None:
    """Write a table of rows of some cells."""
    tm.create_table("cells", families=["f"])
    for first in range(0, rows, ROWS_A_TRANSACTION):
        with tm.begin() as tx:
            table = tx.table("cells")
            for number in range(first, min(first + ROWS_A_TRANSACTION, rows)):
                row = {b"f:%d" % column: b"value %d" % number for column in range(columns)}
                table.put(b"%012d" % number, row)


def snapshot_scan(tm: TransactionManager) -> int:
    """Scan the table in a transaction; return the number of rows."""
    with tm.begin(read_only=True) as tx:
        return sum(1 for _ in tx.table("cells").scan())


def arrow_scan(tm: TransactionManager, *, columns: int) -> int:
    """Scan the table into record batches; return the number of rows."""
    codecs = {b"f:%d" % column: BYTES for column in range(columns)}
    with tm.begin(read_only=True) as tx:
        return sum(batch.num_rows for batch in tx.table("cells").scan_arrow(codecs=codecs))


def bare_scan(url: str) -> int:
    """Read every cell of the table by one SELECT; return the number of rows."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    try:
        query = "SELECT id FROM omidpy_tables WHERE name = 'cells'"
        (number,) = connection.execute(query).fetchone()
        rows = 0
        last = None
        for key, _, _, _, _ in connection.execute(
            f"SELECT row_key, family, qualifier, version, value FROM cells_{number}"
            " ORDER BY row_key, family, qualifier, version DESC"
        ):
            if key != last:
                rows += 1
                last = key
    finally:
        connection.close()
    return rows


def _healed(directory: Path, *, rows: int, columns: int, rounds: int) -> list[Result]:
    url = f"sqlite:///{directory}/scan-{columns}.db"
    with omidpy.connect(url, post_commit="sync") as tm:
        fill(tm, rows=rows, columns=columns)
        kinds = {
            "bare SQLite": lambda: bare_scan(url),
            "a healed table": lambda: snapshot_scan(tm),
            "a healed table as Arrow": lambda: arrow_scan(tm, columns=columns),
        }
        return _rates(kinds, f"{rows} rows of {columns} cells, 1 process", rounds)


def _rates(kinds: dict[str, Callable[[], int]], load: str, rounds: int) -> list[Result]:
    best: dict[str, float] = {}
    counts: dict[str, int] = {}
    for _ in range(rounds):
        for name, scan in kinds.items():
            start_s = time.process_time()
            counts[name] = scan()
            spent_s = time.process_time() - start_s
            best[name] = min(best.get(name, spent_s), spent_s)
    return [
        Result(
            f"snapshot scan, {name}",
            load,
            per_second=round(counts[name] / best[name], 1),
            count=counts[name],
        )
        for name in kinds
    ]


def _unhealed(directory: Path, *, rows: int, columns: int) -> list[Result]:
    """Scan a table whose writers left every shadow cell to its readers; it heals, so only once."""
    url = f"sqlite:///{directory}/unhealed-{columns}.db"
    with omidpy.connect(url, post_commit="none") as tm:
        fill(tm, rows=rows, columns=columns)
    with omidpy.connect(url, post_commit="none") as tm:
        return _rates(
            {"an unhealed table": lambda: snapshot_scan(tm)},
            f"{rows} rows of {columns} cells, 1 process, healing them",
            1,
        )
