"""Recomputes from the input what the store must hold, and looks at every cell that it does hold.

Two views: a fresh snapshot, as any user reads it, and the raw cells below it, where a healed store
has no data cell without its shadow cell and no commit entry below the horizon.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from bench.demo.compaction import Report
from bench.demo.flights import BY_PLANE, BY_ROUTE, COUNTERS, FLIGHTS, Rows
from omidpy.base.cells import data_qualifier, is_shadow_qualifier
from omidpy.base.commit_facts import INVALID
from omidpy.facts.commit_table import CommitTable
from omidpy.manager import TransactionManager
from omidpy.model import TIMESTAMP_STEP, Timestamp, base
from omidpy.storage.base import Store

TABLES: Final = (FLIGHTS, BY_PLANE, BY_ROUTE, COUNTERS)
_CLAIMS: Final = {
    FLIGHTS: "every flight is there once, as in the input",
    BY_PLANE: "the index by plane is the one of these flights",
    BY_ROUTE: "the index by route is the one of these flights",
    COUNTERS: "the counters count these flights, none lost, none twice",
}


class Finding(NamedTuple):
    """A claim about the store, and what contradicts it."""

    claim: str
    contradictions: list[str]

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts the claim."""
        return not self.contradictions


class LooseEnds(NamedTuple):
    """What dead clients left among the cells of finished transactions."""

    committed: int
    """Data cells of committed transactions without a shadow cell; readers or the job heal them."""
    orphans: int
    """Data cells of transactions that never committed."""
    orphan_transactions: int
    lone_shadow_cells: int
    """Shadow cells without the data cell they speak for."""


def check_tables(tm: TransactionManager, expected: Mapping[str, Rows]) -> list[Finding]:
    """Compare what a fresh snapshot reads with what the input says.  Cost: 1 scan of each table."""
    with tm.begin(read_only=True) as tx:
        return [
            Finding(_CLAIMS[table], _differences(dict(tx.table(table).scan()), expected[table]))
            for table in TABLES
        ]


def check_compaction(store: Store, report: Report, *, newest: int) -> list[Finding]:
    """Check what a finished compaction promises.

    Args:
        store: The compacted store.
        report: What the job said.
        newest: A start timestamp newer than every transaction that was loaded.
    """
    kept = [
        f"start_ts {row.start_ts}"
        for page in CommitTable(store).scan(below=report.horizon + 1)
        for row in page
    ]
    behind = [f"{laggard.table}: {laggard.reason}" for laggard in report.laggards]
    if report.horizon < newest:
        behind.append(f"the horizon is {report.horizon}, below {newest}")
    ends = loose_ends(store, up_to=report.low_watermark)
    loose = [f"{count} {name}" for name, count in ends._asdict().items() if count]
    return [
        Finding("the horizon passed every transaction that was loaded", behind),
        Finding("the commit table has no entry at or below the horizon", kept),
        Finding("every cell has its shadow cell, and no orphan is left", loose),
    ]


def commit_entries(store: Store) -> int:
    """Return how many transactions the commit table remembers as committed."""
    pages = CommitTable(store).scan()
    return sum(row.entry not in (None, INVALID) for page in pages for row in page)


def loose_ends(store: Store, *, up_to: int) -> LooseEnds:
    """Look at every cell of the four tables whose transaction began at or before `up_to`."""
    without_shadow: list[Timestamp] = []
    lone = 0
    for table in TABLES:
        for page in store.scan(table, max_version=up_to + TIMESTAMP_STEP):
            for row in page:
                data, shadows = set(), set()
                for cell in row:
                    if is_shadow_qualifier(cell.qualifier):
                        shadows.add((cell.family, data_qualifier(cell.qualifier), cell.version))
                    else:
                        data.add((cell.family, cell.qualifier, cell.version))
                without_shadow.extend(base(version) for _, _, version in data - shadows)
                lone += len(shadows - data)
    entries = CommitTable(store).read(set(without_shadow))
    orphans = [start_ts for start_ts in without_shadow if entries[start_ts] in (None, INVALID)]
    return LooseEnds(len(without_shadow) - len(orphans), len(orphans), len(set(orphans)), lone)


def _differences(found: Rows, expected: Rows) -> list[str]:
    missing = _named("is missing", expected.keys() - found.keys())
    surplus = _named("is there, but should not be", found.keys() - expected.keys())
    wrong = [
        f"{row!r} holds {found[row]!r} instead of {expected[row]!r}"
        for row in sorted(found.keys() & expected.keys())
        if found[row] != expected[row]
    ]
    return [*missing, *surplus, *wrong]


def _named(what: str, rows: Iterable[bytes]) -> list[str]:
    return [f"{row!r} {what}" for row in sorted(rows)]
