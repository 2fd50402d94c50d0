"""How many rows a second do gets and scans read, beside bare SQLite reading the same file?

Bare SQLite hands every cell of the table or of the row to Python, shadow cells among them, in key
order, and decides nothing; of cells with many versions it hands over all.  All kinds run in turns
in one process, and the quickest round of each counts, by this process's own time: other work on the
machine slows all of them alike.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import omidpy
from bench.measure import Result
from omidpy.codec import BYTES
from omidpy.manager import TransactionManager
from omidpy.tx.table import TransactionalTable

ROWS_A_TRANSACTION: Final = 1000
WIDTHS: Final = (1, 5)
"""Columns of a row."""

VERSIONS: Final = (1, 10, 30, 100)
"""How often each cell was written."""
GETS: Final = 200
"""Gets of a round."""


def measure(
    directory: Path,
    *,
    rows: int,
    rounds: int,
    version_counts: Sequence[int] = VERSIONS,
    versioned_rows: int = 400,
) -> list[Result]:
    """Scan tables of `rows` rows, narrow and wide, healed and not; read cells of many versions."""
    results: list[Result] = []
    for columns in WIDTHS:
        results += _healed(directory, rows=rows, columns=columns, rounds=rounds)
        results += _unhealed(directory, rows=rows, columns=columns, rounds=min(rounds, 5))
        for versions in version_counts:
            results += _versioned(
                directory, rows=versioned_rows, columns=columns, versions=versions, rounds=rounds
            )
    return results


def fill(tm: TransactionManager, *, rows: int, columns: int) -> None:
    """Write a table of rows of some cells."""
    tm.create_table("cells", families=["f"])
    for first in range(0, rows, ROWS_A_TRANSACTION):
        with tm.begin() as tx:
            numbers = range(first, min(first + ROWS_A_TRANSACTION, rows))
            write_rows(tx.table("cells"), numbers, columns=columns)


def write_rows(table: TransactionalTable, numbers: Iterable[int], *, columns: int) -> None:
    """Write rows of some cells."""
    for number in numbers:
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


def snapshot_gets(table: TransactionalTable, keys: Sequence[bytes]) -> int:
    """Get rows one by one; return how many there were."""
    return sum(1 for key in keys if table.row(key))


def bare_gets(url: str, keys: Sequence[bytes]) -> int:
    """Read every cell of some rows by a SELECT each; return the number of rows."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    try:
        query = "SELECT id FROM omidpy_tables WHERE name = 'cells'"
        (number,) = connection.execute(query).fetchone()
        query = (
            f"SELECT row_key, family, qualifier, version, value FROM cells_{number}"
            " WHERE row_key = ? ORDER BY row_key, family, qualifier, version DESC"
        )
        return sum(1 for key in keys if connection.execute(query, (key,)).fetchall())
    finally:
        connection.close()


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


def _versioned(
    directory: Path, *, rows: int, columns: int, versions: int, rounds: int
) -> list[Result]:
    """Get rows and scan a table, each of whose cells was written several times."""
    url = f"sqlite:///{directory}/versions-{columns}-{versions}.db"
    keys = [b"%012d" % (number % rows) for number in range(0, 7 * GETS, 7)]
    load = f"{rows} rows of {columns} cells of {versions} versions, 1 process"
    with omidpy.connect(url, post_commit="sync") as tm:
        tm.create_table("cells", families=["f"])
        for _ in range(versions):
            with tm.begin() as tx:
                write_rows(tx.table("cells"), range(rows), columns=columns)
        with tm.begin(read_only=True) as tx:
            table = tx.table("cells")
            gets: dict[str, Callable[[], int]] = {
                "bare SQLite": lambda: bare_gets(url, keys),
                "a healed table": lambda: snapshot_gets(table, keys),
            }
            scans: dict[str, Callable[[], int]] = {
                "bare SQLite": lambda: bare_scan(url),
                "a healed table": lambda: sum(1 for _ in table.scan()),
                "a healed table in reverse": lambda: sum(1 for _ in table.scan(reverse=True)),
            }
            return _rates(gets, load, rounds, what="get") + _rates(scans, load, rounds)


def _rates(
    kinds: dict[str, Callable[[], int]], load: str, rounds: int, *, what: str = "snapshot scan"
) -> list[Result]:
    best: dict[str, float] = {}
    counts: dict[str, int] = {}
    for _ in range(rounds):
        for name, scan in kinds.items():
            start_s = time.process_time()
            counts[name] = scan()
            spent_s = time.process_time() - start_s
            best[name] = min(best.get(name, spent_s), spent_s)
    bare = "bare SQLite"
    return [
        Result(
            f"{what}, {name}",
            load,
            per_second=round(counts[name] / best[name], 1),
            ratio=(
                round(counts[name] / best[name] / (counts[bare] / best[bare]), 2)
                if bare in kinds and name != bare
                else None
            ),
            count=counts[name],
        )
        for name in kinds
    ]


def _unhealed(directory: Path, *, rows: int, columns: int, rounds: int) -> list[Result]:
    """Scan a table whose writers left every shadow cell to its readers; and again, once healed.

    By the clock, since another thread heals behind the first scan.
    """
    made = directory / f"unhealed-{columns}.db"
    with omidpy.connect(f"sqlite:///{made}", post_commit="none") as tm:
        fill(tm, rows=rows, columns=columns)
    best: dict[str, float] = {}
    for number in range(rounds):
        copy = shutil.copy(made, directory / f"unhealed-{columns}-{number}.db")
        with omidpy.connect(f"sqlite:///{copy}") as tm:
            for name in ("an unhealed table", "the same again"):
                start_s = time.perf_counter()
                snapshot_scan(tm)
                spent_s = time.perf_counter() - start_s
                best[name] = min(best.get(name, spent_s), spent_s)
                tm.session.post_committer.drain()
                while tm.session.tally.read().healed_cells < rows * columns:
                    snapshot_scan(tm)
                    tm.session.post_committer.drain()
    return [
        Result(
            f"snapshot scan, {name}",
            f"{rows} rows of {columns} cells, 1 process, by the clock",
            per_second=round(rows / spent_s, 1),
            ratio=round(best["the same again"] / spent_s, 2),
            count=rows,
        )
        for name, spent_s in best.items()
    ]
