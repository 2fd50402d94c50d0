"""How many rows does a frame have?  As Spark estimates it, or counted, where that matters.

A write set that the oracle would refuse is to be refused before any of it is written.  Spark knows
the rows of some plans, and of the others how many bytes they are about: few bytes are few rows, and
of many the rows are counted first, which reads the input once more.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

COUNTED_BYTES: Final = 64 << 20
"""Of a plan of fewer bytes the rows are not counted, unless the oracle takes very few."""


ROW_BYTES: Final = 8
"""What Spark takes a row for at least."""


def estimated_rows(frame: DataFrame, *, most_cells: int | None = None) -> int | None:
    """Return about how many rows a frame has; None if they are few, or that is not known.

    Args:
        frame: The frame.
        most_cells: What the oracle takes; fewer rows than that need not be counted.

    Cost: none, or a count of the frame, if it is large.
    """
    try:
        plan: Any = frame._jdf.queryExecution().optimizedPlan().stats()  # noqa: SLF001 - it is nowhere else
        known = plan.rowCount()
        if known.isDefined():
            return int(str(known.get()))
        size_bytes = int(str(plan.sizeInBytes()))
    except Exception as error:  # noqa: BLE001 - whatever another Spark lacks, the commit finds out
        log.debug("nobody knows how large a frame is: %s", error)
        return None
    few_bytes = COUNTED_BYTES if most_cells is None else min(COUNTED_BYTES, most_cells * ROW_BYTES)
    return frame.count() if size_bytes >= few_bytes else None
