"""Ends the doubt about a table, by an operator's word.

A table that was disabled and enabled may have been restored from a snapshot.  Then what has neither
a shadow cell nor a commit entry stays, and holds the horizon, because it may be what is left of
committed data (`omidpy/facts/tables/sightings.py`).  Only a person can know that nothing was
restored, or that it is not wanted.

He speaks of what he was told, which takes hours to find in a large table.  So what is accepted is
the state in which the table was before it was read, and never one that came meanwhile.  And he is
told of all that is in doubt: of what lies above the low watermark, too, which goes once that has
passed it, and nothing where a part of the table could not be read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from compactor.check.findings import Kind
from compactor.check.fsck import Check, CheckOptions
from compactor.tables.naming import check_told
from compactor.tables.ownership import Standing, TableStanding, survey, unknown_tables
from omidpy.base.tables import date_of, dated_incarnation, undated_incarnation
from omidpy.errors import StorageError, UsageError
from omidpy.facts.commit_table import read_timestamp_ceiling
from omidpy.facts.tables import sightings
from omidpy.facts.tables.sightings import NO_DOUBT
from omidpy.model import Timestamp
from omidpy.storage.base import Store


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is in doubt about a table."""

    table: str
    doubtful: int
    """Versions at or below it; 0 for none."""
    cells: int | None
    """How many cells of those have no proof, some of them perhaps of transactions that run; None
    for the commit table, of which all tables are in doubt."""
    seen: str = field(default="", compare=False)
    """Which of its name it was before it was looked at, and since when (`dated_incarnation`)."""


class _CheckOfDoubt(Check):
    """Looks at all versions that are in doubt, as if the low watermark had passed them."""

    doubtful: int

    def read_low_watermark(self) -> Timestamp:
        """Return what lies above all that is in doubt, as far as it was issued."""
        # In this order: what was issued at or below L is at or below the ceiling.
        low_watermark = super().read_low_watermark()
        ceiling = read_timestamp_ceiling(self.store)
        return max(low_watermark, Timestamp(min(self.doubtful, ceiling or low_watermark)))


def find_doubt(store: Store, table: str, commit_table: str, *, only: str | None = None) -> Doubt:
    """Return what is in doubt about a table.

    Args:
        store: Where it is.
        table: Its name.
        commit_table: Whose transactions are meant.
        only: What `Doubt.seen` was, where another table, or another state of it, is to be left.

    Raises:
        StorageError: something could not be read, so that it is not known what would go; or it is
            not `only`.
        UsageError: there is no such table, or it is none of ours.

    Cost: reads the whole table where there is doubt.
    """
    standing = _standing(store, table, commit_table)
    check_told(table, standing.incarnation, only)
    if standing.doubtful == NO_DOUBT or table == commit_table:
        cells = None if table == commit_table else 0
        return Doubt(table, standing.doubtful, cells, standing.incarnation)
    options = CheckOptions(settle_s=0.0, tables=frozenset({table}), commit_table=commit_table)
    check = _CheckOfDoubt(store, options, sleep=time.sleep)
    check.doubtful = standing.doubtful
    cells = check.run().counts.get(Kind.UNPROVEN, 0)
    if check.unread:
        raise StorageError(
            f"what has no proof in table {table} is not known, and nothing is accepted: "
            f"{'; '.join(check.unread)}"
        )
    return Doubt(table, standing.doubtful, cells, standing.incarnation)


def accept(store: Store, doubt: Doubt, commit_table: str) -> int:
    """End the doubt about a table as it was found by `find_doubt`.

    Returns:
        What is in doubt still, because the commit table is.

    Raises:
        StorageError: by now it is another table, or another state of it, which is in doubt.
        UsageError: as `find_doubt`.

    Cost: 2 lists of tables as `survey` makes them, 2 RPCs.
    """
    table = doubt.table
    if _standing(store, table, commit_table).incarnation != doubt.seen:
        raise _another(table)
    state = date_of(doubt.seen)
    if state is not None:
        # For that state alone, should it be restored right here.
        sightings.accept(store, table, undated_incarnation(doubt.seen), state=state)
    left = _standing(store, table, commit_table)
    if left.incarnation != doubt.seen:
        raise _another(table)
    return left.doubtful


def _another(table: str) -> StorageError:
    return StorageError(
        f"table {table} was made anew, disabled and enabled, or restored, while it was looked at: "
        "what it holds now was not counted, and is not accepted; do it again, and look at what is "
        "said then"
    )


def _standing(store: Store, table: str, commit_table: str) -> TableStanding:
    # Of the commit table a survey does not say it.  Before its doubt: of a later one it is another.
    state = sightings.state_of(store, table) if table == commit_table else None
    for standing in survey(store, commit_table):
        if standing.name == table:
            if standing.standing is not Standing.OWNED and table != commit_table:
                raise UsageError(
                    f"table {table} is {standing.standing.value}, not one of ours, and nothing is "
                    "dropped there"
                )
            if state is not None:
                return replace(standing, incarnation=dated_incarnation("", state))
            return standing
    raise UsageError(unknown_tables([table], store.url))
