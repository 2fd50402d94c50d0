"""What a run has to say that its report has no key for, in sentences.

Pure: what the passes came to in, notes out.  They are shown as the run goes and kept in its record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from compactor.range_pass import RangeResult


def notes_on(results: Iterable[RangeResult], *, first_timestamp: int) -> Iterator[str]:
    """Say which cells were met that nothing was done about."""
    foreign = 0
    unseen: Counter[str] = Counter()
    for result in results:
        foreign += result.foreign_cells
        unseen[result.task.table] += result.unseen_cells
    if foreign:
        yield (
            f"{foreign} foreign cells, older than the oracle's first timestamp {first_timestamp}, "
            "were left alone"
        )
    for table, count in sorted(unseen.items()):
        if count:
            yield (
                f"{count} cells of table {table} were written without a transaction, so that no "
                "snapshot sees them, and were left alone; stop whoever writes them, and run "
                f"`omidpy table adopt {table} --apply` to have them seen"
            )


BESIDE_OMID: Final = (
    "Omid's oracle leads, and the low watermark is its: that rises only when its conflict map "
    "overflows, and while it leads nobody knows how old a version is, so that no more of them are "
    "dropped"
)
"""What is said of a run in which no oracle of ours decides."""
