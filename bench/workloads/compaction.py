"""How many cells a second does a pass of the compactor read, and how many where it must heal?

In this process, so that neither Spark's start nor its parallel tasks are counted.  Cells read are
data and shadow cells together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import omidpy
from bench.measure import Result
from compactor.local import compact
from compactor.options import Options
from omidpy.connect import open_store

COLUMNS: Final = 5
ROWS_A_TRANSACTION: Final = 1000
NO_GRACE: Final = Options(grace_s=0.0, invalidation_grace_s=0.0, retention_s=0.0)
"""Prune at once: the clients of this store have ended."""


def measure(directory: Path, *, rows: int) -> list[Result]:
    """Compact a store of `rows` rows: one where all is healed, one where nothing is."""
    return [
        _measure(f"sqlite:///{directory}/{mode}.db", rows, name, mode)
        for name, mode in (("every cell healed before", "sync"), ("every cell to heal", "none"))
    ]


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
