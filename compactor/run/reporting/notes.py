"""What a run has to say that its report has no key for, in sentences.

Pure: what the surveys and the passes came to in, notes out.  They are shown as the run goes, and
kept in its record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from compactor.obstacles import is_hold, malformed_hold
from compactor.ranges.range_task import RangeResult
from compactor.tables.ownership import Standing, TableStanding
from omidpy.facts.tables.questions import Question
from omidpy.facts.tables.sightings import DOUBTS_ALL, NO_DOUBT


def notes_on(
    standings: Sequence[TableStanding], results: Iterable[RangeResult], *, first_timestamp: int
) -> Iterator[str]:
    """Say which tables could not be looked at, and of which cells nothing was made."""
    has_tables = False
    for standing in standings:
        has_tables |= standing.standing in (Standing.OWNED, Standing.BLOCKING)
        if standing.note:
            yield f"table {standing.name} {standing.note}"
    if not has_tables:
        yield (
            "no table here is transactional: commits up to the low watermark are forgotten, once "
            "the run that found none is as old as the grace"
        )
    results = list(results)
    yield from _on_doubts(standings, results)
    foreign = 0
    unseen: Counter[str] = Counter()
    for result in results:
        foreign += result.foreign_cells
        unseen[result.task.table] += result.unseen_cells
    if foreign:
        yield (
            f"{foreign} foreign cells, older than the oracle's first timestamp {first_timestamp}, "
            "were left alone; `omidpy compact --collect-foreign` drops old versions among those "
            "that have a shadow cell"
        )
    for table, count in sorted(unseen.items()):
        if count:
            yield (
                f"{count} cells of table {table} were written without a transaction, so that no "
                "snapshot sees them, and were left alone; stop whoever writes them, and run "
                f"`omidpy table adopt {table} --apply` to have them seen"
            )


def _on_doubts(standings: Sequence[TableStanding], results: Sequence[RangeResult]) -> Iterator[str]:
    """Say which tables may be copies of what they were, if anything in doubt may be in them."""
    in_doubt = [
        one
        for one in standings
        if NO_DOUBT < one.doubtful < DOUBTS_ALL and not _has_only_proven(one, results)
    ]
    entries = [one for one in in_doubt if one.standing is Standing.SYSTEM]
    for one in entries or in_doubt:
        where = "in any table " if entries else ""
        yield (
            f"table {one.name} was disabled and enabled since it was first seen, or restored or "
            f"cloned from a snapshot, or adopted by a rule with cells that nothing had decided: "
            f"what has no proof {where}is left, at version {one.doubtful} and below; `omidpy table "
            f"accept {one.name} --apply` ends that"
        )


def _has_only_proven(standing: TableStanding, results: Sequence[RangeResult]) -> bool:
    """Say whether the run has found a proof of all that would be in doubt in a table."""
    claims = [one.claim for one in results if one.task.table == standing.name]
    return bool(claims) and all(
        claim is not None and standing.doubtful <= claim.watermark for claim in claims
    )


def note_on_questions(questions: Sequence[Question]) -> str:
    """Say what it took to ask the tables that are not ours."""
    calls = sum(one.calls for one in questions)
    cells = sum(one.cells for one in questions)
    return (
        f"{len(questions)} tables that are not ours, or not as a whole, were asked for cells of "
        f"the transactions about to be forgotten: {calls} calls, {cells} cells came back; of files "
        "those were opened whose versions reach there, and how many no gateway tells"
    )


def notes_on_malformed(malformed: Mapping[bytes, str]) -> Iterator[str]:
    """Say which facts about the store could not be read, and what that means.

    Args:
        malformed: The row of each in the control table, and what is wrong with it.
    """
    for row, complaint in sorted(malformed.items()):
        if is_hold(row):
            yield malformed_hold(row, complaint)
        else:
            yield f"{complaint}; it counts for nothing, and `omidpy fsck --repair` removes it"


NO_ROOT: Final = (
    "snapshots of tables are not known without --hbase-root (or OMIDPY_HBASE_ROOT), so that the "
    "commits which they would need are forgotten; a table that is restored from one is noticed, "
    "and what then lacks its proof stays"
)
"""What is said where an administrator may restore single tables."""

BESIDE_OMID: Final = (
    "Omid's oracle leads, and the low watermark is its: that rises only when its conflict map "
    "overflows, and while it leads nobody knows how old a version is, so that no more of them are "
    "dropped"
)
"""What is said of a run in which no oracle of ours decides."""
