"""Ends the doubt about a table, by an operator's word.

A table that was disabled and enabled may have been restored from a snapshot.  Then what has neither
a shadow cell nor a commit entry stays, and holds the horizon, because it may be what is left of
committed data (`omidpy/facts/sightings.py`).  Only a person can know that nothing was restored, or
that it is not wanted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from compactor.check.findings import Kind
from compactor.check.fsck import Check, CheckOptions
from compactor.tables.ownership import Standing, TableStanding, survey, unknown_tables
from omidpy.base.tables import undated_incarnation
from omidpy.errors import UsageError
from omidpy.facts import sightings
from omidpy.facts.sightings import NO_DOUBT
from omidpy.storage.base import Store


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is in doubt about a table."""

    table: str
    doubtful: int
    """Versions at or below it; 0 for none."""
    cells: int | None
    """How many cells have no proof, of those at or below the low watermark; None for the commit
    table, of which all tables are in doubt."""


def find_doubt(store: Store, table: str, commit_table: str) -> Doubt:
    """Return what is in doubt about a table.

    Raises:
        UsageError: there is no such table, or it is none of ours.

    Cost: reads the whole table where there is doubt.
    """
    standing = _standing(store, table, commit_table)
    if standing.doubtful == NO_DOUBT or table == commit_table:
        return Doubt(table, standing.doubtful, None if table == commit_table else 0)
    options = CheckOptions(settle_s=0.0, tables=frozenset({table}), commit_table=commit_table)
    report = Check(store, options, sleep=time.sleep).run()
    return Doubt(table, standing.doubtful, report.counts.get(Kind.UNPROVEN, 0))


def accept(store: Store, table: str, commit_table: str) -> int:
    """End the doubt about a table as it is now, whatever it holds.

    Returns:
        What is in doubt still, because the commit table is.

    Raises:
        UsageError: as `find_doubt`.
    """
    which = undated_incarnation(_standing(store, table, commit_table).incarnation)
    sightings.accept(store, table, which)
    return _standing(store, table, commit_table).doubtful


def _standing(store: Store, table: str, commit_table: str) -> TableStanding:
    for standing in survey(store, commit_table):
        if standing.name == table:
            if standing.standing is not Standing.OWNED and table != commit_table:
                raise UsageError(
                    f"table {table} is {standing.standing.value}, not one of ours, and nothing is "
                    "dropped there"
                )
            return standing
    raise UsageError(unknown_tables([table], store.url))
