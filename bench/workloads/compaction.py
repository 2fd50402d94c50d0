"""How many cells a second does a pass of the compactor read, and how many where it must heal?

And what does the next run cost, if nothing was written since, and if every hundredth row was?

In this process, so that neither Spark's start nor its parallel tasks are counted.  Cells read are
data and shadow cells together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import omidpy
from bench.measure import Result
from compactor.options import Options
from compactor.report import Report
from compactor.run.local import compact
from omidpy.opening import open_store

COLUMNS: Final = 5
ROWS_A_TRANSACTION: Final = 1000
NO_GRACE: Final = Options(grace_s=0.0, invalidation_grace_s=0.0, retention_s=0.0)
"""Prune at once: the clients of this store have ended."""
CHANGED_EVERY: Final = 100
"""Of so many rows one is written again."""
MOST_READ: Final = 0.05
"""How much of the table a run may read then."""


def measure(directory: Path, *, rows: int) -> list[Result]:
    """Compact a store of `rows` rows: one where all is healed, one where nothing is, and again."""
    first = [
        _measure(f"sqlite:///{directory}/{mode}.db", rows, name, mode)
        for name, mode in (("every cell healed before", "sync"), ("every cell to heal", "none"))
    ]
    return [*first, *_measure_again(f"sqlite:///{directory}/sync.db", rows)]


def _measure(url: str, rows: int, name: str, post_commit: str) -> Result:
    with omidpy.connect(url, post_commit=post_commit) as tm:
        tm.create_table("cells", families=["f"])
        for first in range(0, rows, ROWS_A_TRANSACTION):
            with tm.begin() as tx:
                table = tx.table("cells")
                for number in range(first, min(first + ROWS_A_TRANSACTION, rows)):
                    row = {b"f:%d" % column: b"value" for column in range(COLUMNS)}
                    table.put(b"%012d" % number, row)
    # An oracle that starts again lets nothing commit that began before: the low watermark rises.
    omidpy.connect(url).close()
    store = open_store(url, must_exist=True)
    report = compact(store, NO_GRACE)
    store.close()
    healed = 0 if post_commit == "sync" else rows * COLUMNS
    if report.cells_healed != healed:
        raise RuntimeError(f"{report.cells_healed} cells were healed instead of {healed}")
    return Result(
        f"compaction, {name}",
        f"{rows} rows of {COLUMNS} cells, 1 process",
        per_second=round(report.cells_read / report.seconds, 1),
        count=report.cells_read,
    )


def _measure_again(url: str, rows: int) -> list[Result]:
    """Compact a store that a run has claimed: as it is, and once each hundredth row has changed."""
    omidpy.connect(url).close()
    clean = _compacted(url)
    with omidpy.connect(url, post_commit="none") as tm, tm.begin() as tx:
        for number in range(0, rows, CHANGED_EVERY):
            row = {b"f:%d" % column: b"changed" for column in range(COLUMNS)}
            tx.table("cells").put(b"%012d" % number, row)
    omidpy.connect(url).close()
    return again(clean, _compacted(url), rows=rows, columns=COLUMNS)


def _compacted(url: str) -> Report:
    store = open_store(url, must_exist=True)
    try:
        return compact(store, NO_GRACE)
    finally:
        store.close()


def again(clean: Report, changed: Report, *, rows: int, columns: int) -> list[Result]:
    """Return what runs over a table cost that was claimed before.

    Args:
        clean: What a run came to before which nothing was written.
        changed: What one came to before which every hundredth row was.
        rows: How many the table has.
        columns: Of each.

    Raises:
        RuntimeError: they read more than they should, or healed less.
    """
    cells = 2 * rows * columns
    if clean.cells_read or changed.cells_healed != -(-rows // CHANGED_EVERY) * columns:
        raise RuntimeError(f"{clean.cells_read} read, {changed.cells_healed} healed")
    if changed.cells_read > MOST_READ * cells:
        raise RuntimeError(f"{changed.cells_read} of {cells} cells were read")
    return [
        Result(
            f"compaction again, {what}",
            f"{report.cells_read} of {cells} cells read",
            p50_ms=round(report.seconds * 1000, 1),
            count=cells,
        )
        for what, report in (("nothing written", clean), ("1 % of the rows written", changed))
    ]
