"""Where do timestamps go on, on a store whose last one was not recorded?

Omid keeps its timestamps in memory unless it is told otherwise.  Such a store holds transactions
and no ceiling, and an oracle that starts at its own idea of the time might issue a timestamp twice:
what was committed could vanish, or be overwritten unseen (I1).  So it is refused, until the
operator names a timestamp above all that were issued, which is then compared with everything that
can be found.

What can be found: start and commit timestamps in the commit table, and its low watermark; versions
and shadow cells in every table that has the mark of transactions or a shadow cell.  A transaction
that left neither entry nor cell has left nothing that a timestamp issued twice could harm.

Pure reading; `persist.py` records what is decided.

Source: docs/explanation/differences-from-omid.md, "The oracle".
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from omidpy.base.cells import (
    SHADOW_PREFIX,
    decode_long,
    is_shadow_qualifier,
)
from omidpy.base.tables import is_system_table, transactional_families
from omidpy.errors import ConfigError
from omidpy.facts.commit_table import COMMIT_TABLE, CommitTable, buckets, read_java_low_watermark
from omidpy.facts.tables.listing import all_tables
from omidpy.model import MAX_VERSION, TableSchema, Timestamp
from omidpy.storage.base import Store
from tso.core.beginning import step_from

logger = logging.getLogger(__name__)


class FoundTimestamp(NamedTuple):
    """A timestamp that was issued, and where it was found."""

    timestamp: int
    where: str


def initial_ceiling(store: Store, chosen: int | None, *, now_ts: int) -> Timestamp:
    """Return the timestamp above which a store without a ceiling goes on; 0 if it is fresh.

    Args:
        store: Its commit table may be Omid's.
        chosen: What the operator named, if anything.
        now_ts: The date as a timestamp, for the message.

    Raises:
        ConfigError: transactions are there and `chosen` is not above them; the message says what
            was found.

    Cost: 17 small scans; with `chosen` the commit table and every transactional table are read.
    """
    trace = newest_trace(store)
    if chosen is None:
        if trace is None:
            return Timestamp(0)
        raise ConfigError(
            f"{store.url} was served by an oracle that recorded no timestamp ceiling (Omid keeps "
            f"its timestamps in memory by default); {trace.where}. Stop that oracle for good, and "
            "start once with --initial-timestamp N, above every timestamp that it issued: if they "
            f"are world time, its default, the present one, {now_ts}; all transactional tables "
            "are then read to make sure. If it kept them in ZooKeeper, use --lease zk://HOSTS/NS "
            "instead, where they are found"
        )
    if trace is not None:
        newest = max(_all_found(store), default=FoundTimestamp(0, "nothing"))
        if newest.timestamp >= chosen:
            raise ConfigError(
                f"--initial-timestamp {chosen} is not above every timestamp of {store.url}: "
                f"{newest.where} holds {newest.timestamp}; name one above it, and above what was "
                "issued and left no trace"
            )
    return step_from(chosen)


def refuse_stale(store: Store, ceiling: int) -> None:
    """Refuse a ceiling of Omid's that is not above what was issued: it is of another time or store.

    Raises:
        ConfigError: naming what is above it.

    Cost: 17 small scans and 1 get.
    """
    watermark = read_java_low_watermark(store)
    found = FoundTimestamp(watermark, f"the low watermark's row in {COMMIT_TABLE} holds it")
    newest = max(newest_trace(store) or found, found)
    if newest.timestamp > ceiling:
        raise ConfigError(
            f"the ceiling {ceiling} that Omid left for the timestamps of {store.url} is below "
            f"{newest.timestamp}: {newest.where}. Omid kept its timestamps elsewhere since, or the "
            "namespace in --lease belongs to another store, or what holds the ceiling was restored "
            "from an old copy. Correct the namespace; or stop Omid's oracle for good, and start "
            "once with --initial-timestamp N, above every timestamp that it issued"
        )


def newest_trace(store: Store) -> FoundTimestamp | None:
    """Return a sign that an oracle has served the store; None if there is none.

    Omid writes its low watermark when it starts, so that its commit table is never empty again.
    """
    commits = CommitTable(store)
    found = (commits.newest_in(bucket) for bucket in buckets(MAX_VERSION))
    newest = max((row.start_ts for row in found if row is not None), default=None)
    if newest is not None:
        return FoundTimestamp(newest, f"the newest entry of {COMMIT_TABLE} began at {newest}")
    if commits.has_rows():
        return FoundTimestamp(0, f"{COMMIT_TABLE} holds its low watermark")
    for schema in store.tables():
        if transactional_families(schema) and not is_system_table(schema.name):
            for _ in store.scan(schema.name, page_rows=1):
                return FoundTimestamp(0, f"the transactional table {schema.name} has cells")
    return None


def _all_found(store: Store) -> Iterator[FoundTimestamp]:
    """Yield the newest timestamp of the commit table and of every transactional table."""
    newest = 0
    for page in CommitTable(store).scan():
        for row in page:
            commit_ts = row.entry if isinstance(row.entry, int) else 0
            newest = max(newest, row.start_ts, commit_ts)
    yield FoundTimestamp(newest, COMMIT_TABLE)
    yield FoundTimestamp(
        read_java_low_watermark(store), f"the low watermark's row in {COMMIT_TABLE}"
    )
    for schema in all_tables(store):
        if _has_transactions(store, schema):
            logger.info("reading the table %s for its newest timestamp", schema.name)
            yield FoundTimestamp(_newest_in(store, schema.name), f"the table {schema.name}")


def _has_transactions(store: Store, schema: TableSchema) -> bool:
    if is_system_table(schema.name):
        return False
    if transactional_families(schema):
        return True
    # Omid asks for the mark only where its coprocessor shall collect.
    return store.find_cell(schema.name, prefix=SHADOW_PREFIX) is not None


def _newest_in(store: Store, table: str) -> int:
    newest = 0
    for page in store.scan(table):
        for cells in page:
            for cell in cells:
                newest = max(newest, cell.version)
                if is_shadow_qualifier(cell.qualifier):
                    what = f"the shadow cell {cell[:4]!r} of {table}"
                    newest = max(newest, decode_long(cell.value, what=what))
    return newest
