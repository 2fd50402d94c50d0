"""How a manager is asked for changes: which table, which moments, and what they come to.

An offset may be a commit timestamp, the start timestamp of a snapshot, or a moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TypeAlias

from omidpy.base.words.arguments import check_row, parse_columns, scan_range
from omidpy.errors import UsageError
from omidpy.facts.commit_table import FIRST_TIMESTAMP_FACT
from omidpy.facts.tables.layout import TableLayout
from omidpy.model import ColumnSpec, Timestamp
from omidpy.oracle.base import Begun
from omidpy.reading.changes.feed import ChangeFeed, RowWatch
from omidpy.reading.changes.window import Window
from omidpy.reading.time_travel import may_be_counted, read_timestamp
from omidpy.tx.session import Session

Moment: TypeAlias = int | datetime | timedelta
"""A timestamp, an aware datetime, or how long ago."""


def moment_timestamp(session: Session, fresh_ts: Timestamp, at: Moment) -> Timestamp:
    """Return the timestamp of a moment; up to 5 s ahead of the oracle is now, `fresh_ts`.

    Raises:
        UsageError: a naive datetime, or a moment further in the future.
        SnapshotTooOld: timestamps are counted, and no sample is as old as that.

    Cost: 1 get; where timestamps are counted, or ahead of the date, and `at` is none, 1 short scan.
    """
    first_ts = session.control.read_number(FIRST_TIMESTAMP_FACT) or Timestamp(0)
    now_ms = session.clock.wall_ms()
    is_asked = not isinstance(at, int) and may_be_counted(first_ts, fresh_ts, now_ms=now_ms)
    return read_timestamp(
        at,
        fresh_ts=fresh_ts,
        first_ts=first_ts,
        samples=session.watermarks.samples() if is_asked else [],
        now_ms=now_ms,
    )


def open_feed(
    session: Session,
    table: str,
    since: Moment | None,
    until: Moment | None,
    *,
    columns: Iterable[bytes] | None,
    row_start: bytes | None,
    row_stop: bytes | None,
    row_prefix: bytes | None,
    old_values: bool,
    snapshot: bool,
    spans_tables: bool,
) -> ChangeFeed:
    """Return a feed; see `TransactionManager.changes`."""
    key_range = scan_range(row_start, row_stop, row_prefix, reverse=False)
    begun = session.oracle.begin()
    layout, specs = _table(session, table, columns, begun)
    until_ts = begun.start_ts if until is None else moment_timestamp(session, begun.start_ts, until)
    since_ts = until_ts if since is None else moment_timestamp(session, begun.start_ts, since)
    if since_ts > until_ts:
        raise UsageError(f"since={since!r} is later than until={until!r}")
    window = Window(
        layout.name,
        since_ts,
        until_ts,
        session.watermarks.low_watermark_by(since_ts),
        key_range,
        specs,
        old_values,
        layout.incarnation,
        spans_tables,
    )
    return ChangeFeed(
        session.reader,
        begun,
        window,
        with_changes=since is not None,
        with_snapshot=snapshot or since is None,
    )


def open_watch(
    session: Session,
    table: str,
    row: bytes,
    *,
    since: Moment | None,
    columns: Iterable[bytes] | None,
    timeout_s: float | None,
) -> RowWatch:
    """Return what looks whether a row has changed; see `TransactionManager.watch`."""
    row = check_row(row)
    begun = session.oracle.begin()
    layout, specs = _table(session, table, columns, begun)
    if since is None:
        since_ts, low_watermark = begun.start_ts, begun.low_watermark
    else:
        since_ts = moment_timestamp(session, begun.start_ts, since)
        low_watermark = session.watermarks.low_watermark_by(since_ts)
    window = Window(
        layout.name,
        since_ts,
        since_ts,
        low_watermark,
        columns=specs,
        incarnation=layout.incarnation,
    )
    return RowWatch(session.reader, session.oracle, session.clock, row, window, timeout_s)


def _table(
    session: Session, table: str, columns: Iterable[bytes] | None, begun: Begun
) -> tuple[TableLayout, tuple[ColumnSpec, ...] | None]:
    layout = session.catalog.layout(
        session.catalog.full_name(table), start_ts=begun.start_ts, fenced_ts=begun.fenced_ts
    )
    specs = parse_columns(columns)
    for family, _ in specs or ():
        layout.check_family(family)
    return layout, None if specs is None else tuple(specs)
