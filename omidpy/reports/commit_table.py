"""How many outcomes the commit table remembers, and how old they are."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

from omidpy.base.commit_facts import INVALID
from omidpy.facts.commit_table import CommitTable
from omidpy.reports.texts import age_s, brief
from omidpy.storage.base import Store

AGES_S: Final = (0, 60, 900, 3600, 6 * 3600, 86400, 2 * 86400, 7 * 86400, 30 * 86400)
"""Ages by which entries are counted, each up to the next."""


def count_entries(store: Store) -> dict[str, int | None]:
    """Count commits without an invalidation, and invalidations; name the oldest row.

    Malformed rows are counted by themselves, where there are some.
    """
    counted = count_by_age(store, now_ms=0)
    del counted["by_age"]
    return counted


def count_by_age(store: Store, *, now_ms: int) -> dict[str, Any]:
    """Count as `count_entries` does, and by age.

    Args:
        store: Where; all of its commit table is read.
        now_ms: Wall time, which ages are measured by.

    Returns:
        As `count_entries`, and `by_age`: a list of `from_s`, `to_s`, `entries` and `invalidations`,
        the youngest first.  Ends of the first are 0, and of the last None.  Ages are null where
        timestamps do not tell the time, and all is then in one.
    """
    edges = [*AGES_S, None]
    commits, invalid = [0] * len(AGES_S), [0] * len(AGES_S)
    undated = [0, 0]
    malformed = 0
    oldest: int | None = None
    for page in CommitTable(store).scan():
        for row in page:
            age = age_s(row.start_ts, now_ms=now_ms)
            place = None if age is None else sum(age >= edge for edge in AGES_S) - 1
            if row.entry is not None:
                is_invalid = row.entry is INVALID
                if place is None:
                    undated[is_invalid] += 1
                else:
                    (invalid if is_invalid else commits)[place] += 1
            malformed += bool(row.complaint)
            oldest = row.start_ts if oldest is None else min(oldest, row.start_ts)
    by_age = [
        {"from_s": start, "to_s": end, "entries": entries, "invalidations": invalidations}
        for (start, end), entries, invalidations in zip(
            pairwise(edges), commits, invalid, strict=True
        )
    ]
    if any(undated):
        entries, invalidations = undated
        by_age.append(
            {"from_s": None, "to_s": None, "entries": entries, "invalidations": invalidations}
        )
    counted = {
        "entries": sum(commits) + undated[0],
        "invalidations": sum(invalid) + undated[1],
        "oldest_start_ts": oldest,
        "by_age": by_age,
    }
    return {**counted, "malformed": malformed} if malformed else counted


def span_text(span: Mapping[str, Any]) -> str:
    """Return an element of `by_age` in words: how long ago."""
    start, end = span["from_s"], span["to_s"]
    if start is None:
        return "nobody can tell"
    if end is None:
        return f"over {brief(start)} ago"
    return f"under {brief(end)} ago" if not start else f"{brief(start)} to {brief(end)} ago"
