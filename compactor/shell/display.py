"""How far is the run?  Shown on stderr: a bar on a terminal, a line now and then elsewhere.

Nothing here goes to stdout, where `--json` promises one document.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TextIO

from compactor.report import Held, Report
from omidpy.base.telemetry.events import JSON, TEXT, event_line
from omidpy.base.telemetry.streams import tell
from omidpy.base.timing.clock import Clock

if TYPE_CHECKING:
    from compactor.ranges.progress import Passed
    from compactor.ranges.progress import Progress as RunProgress

LATEST_MS: Final = 253_402_300_799_000
"""The end of the year 9999: what cannot be read holds for ever."""

LINE_EVERY_S: Final = 10.0
"""How often a log gets a line."""


class LineProgress:
    """For logs: one line now and then, and one when all ranges are done."""

    def __init__(self, clock: Clock, stream: TextIO) -> None:
        self._clock = clock
        self._stream = stream
        self._started_s = clock.monotonic_s()
        self._last_s = self._started_s
        self._ended_at = 0

    def note(self, text: str) -> None:
        """Write a sentence as a line of its own."""
        tell(f"compaction: {text}", self._stream)

    def update(self, done: int, total: int, passed: Passed) -> None:
        """Write a line if the last one is old, or if this is the end."""
        now_s = self._clock.monotonic_s()
        is_end = done == total != self._ended_at
        if not is_end and (done == total or now_s - self._last_s < LINE_EVERY_S):
            return
        self._last_s = now_s
        self._ended_at = total if is_end else 0
        self.tell(done, total, passed, passed.rows / max(now_s - self._started_s, 0.001))

    def tell(self, done: int, total: int, passed: Passed, rows_per_s: float) -> None:
        """Write how far the run is."""
        self.note(
            f"{done} of {total} ranges, {passed.rows:,} rows, {passed.cells:,} cells, "
            f"{size_text(passed.size_bytes)}, {passed.healed:,} healed, {rows_per_s:,.0f} rows/s"
        )


class EventProgress(LineProgress):
    """The same as events, each of which is one document of JSON."""

    def note(self, text: str) -> None:
        """Write a sentence as an event."""
        self._write("compaction-note", message=text)

    def tell(self, done: int, total: int, passed: Passed, rows_per_s: float) -> None:
        """Write how far the run is, as an event."""
        self._write(
            "compaction-progress",
            ranges_done=done,
            ranges=total,
            rows=passed.rows,
            cells=passed.cells,
            bytes=passed.size_bytes,
            cells_healed=passed.healed,
            rows_per_s=round(rows_per_s),
        )

    def _write(self, event: str, **values: object) -> None:
        created_s = self._clock.wall_ms() / 1000
        tell(event_line(JSON, event, created_s, "info", **values), self._stream)


@contextmanager
def shown_progress(clock: Clock, log_format: str = TEXT) -> Iterator[RunProgress]:
    """Show a run on stderr for as long as the block lasts."""
    if log_format == JSON:
        yield EventProgress(clock, sys.stderr)
        return
    if not sys.stderr.isatty():
        yield LineProgress(clock, sys.stderr)
        return
    from rich import progress as rich  # noqa: PLC0415 - only where there is a terminal
    from rich.console import Console  # noqa: PLC0415 - see above

    columns = (
        rich.TextColumn("[bold]ranges"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn("{task.fields[passed]}"),
        rich.TimeElapsedColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("ranges", total=None, passed="")
        started_s = clock.monotonic_s()

        class BarProgress:
            """The same for a terminal."""

            def note(self, text: str) -> None:
                bar.console.print(text, markup=False, highlight=False)

            def update(self, done: int, total: int, passed: Passed) -> None:
                rate = passed.rows / max(clock.monotonic_s() - started_s, 0.001)
                text = (
                    f"{passed.rows:,} rows, {size_text(passed.size_bytes)}, {passed.healed:,} "
                    f"healed, {rate:,.0f} rows/s"
                )
                bar.update(task, completed=done, total=total, passed=text)

        yield BarProgress()


def summary(report: Report) -> str:
    """Return a report as a person reads it."""
    entries, invalidations = report.entries_pruned, report.invalidations_pruned
    lines = [
        "dry run: nothing was written" if report.dry_run else "compaction done",
        f"  read         {report.rows_read:,} rows, {report.cells_read:,} cells",
        f"  healed       {report.cells_healed:,} cells",
        f"  invalidated  {report.transactions_invalidated:,} transactions that never committed",
        f"  dropped      {report.cells_dropped:,} cells",
        *(_of_tables(report) if report.dry_run else ()),
        f"  pruned       {entries:,} commit entries, {invalidations:,} invalidations",
        f"  watermark    {report.low_watermark}, prune horizon {report.horizon}",
        *([f"  quick        {report.quick}"] if report.quick else ()),
        f"  took         {report.seconds:.1f} s",
    ]
    if report.knows_snapshots is False and report.horizon:
        lines.insert(
            -1, "  snapshots    not known, and what they would need is not kept (--hbase-root)"
        )
    if report.horizon < report.low_watermark and not report.laggards:
        lines.append(
            "  the horizon follows the low watermark once the claims are as old as --grace"
        )
    if report.horizon >= report.low_watermark and report.entries_left and not report.dry_run:
        lines.append(
            f"  {report.entries_left:,} entries are left: of transactions that began above the "
            "watermark, which later runs judge, and invalidations within their grace"
        )
    if report.laggards:
        lines.append(f"  commits that began above {report.horizon} are kept:")
    lines += [
        f"  held back by {laggard.table} [{laggard.start or 'start'}, {laggard.end or 'end'}) at "
        f"{laggard.watermark}{_since(laggard.age_s)}: {laggard.reason}"
        for laggard in report.laggards
    ]
    lines += [f"  {held_text(held)}" for held in report.holds]
    return "\n".join(lines)


def details(report: Report) -> Iterator[str]:
    """Yield what a run did to each table, and which ranges took longest, as a person reads it."""
    for one in report.tables:
        yield (
            f"{one.table}: {one.ranges:,} ranges, {one.rows_read:,} rows, {one.cells_read:,} cells "
            f"and {size_text(one.bytes_read)} read, {one.cells_healed:,} cells healed, "
            f"{one.cells_dropped:,} cells and {size_text(one.bytes_dropped)} dropped, "
            f"{one.seconds:,.1f} s of tasks"
        )
        for slow in one.slowest:
            yield (
                f"  [{slow.start or 'start'}, {slow.end or 'end'}) took {slow.seconds:,.1f} s for "
                f"{slow.rows_read:,} rows"
            )


def size_text(size_bytes: float) -> str:
    """Return a size as a person reads it, in units of ten."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:,.0f} {unit}" if unit == "bytes" else f"{size_bytes:,.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:,.1f} TB"


def held_text(held: Held) -> str:
    """Return a hold as a person reads it."""
    until = datetime.fromtimestamp(min(held.expires_ms, LATEST_MS) / 1000, UTC)
    return (
        f"versions since {held.start_ts} are held by {held.owner or 'an unnamed process'} until "
        f"{until:%Y-%m-%d %H:%M:%S} UTC (hold {held.name})"
    )


def _since(age_s: float | None) -> str:
    return "" if age_s is None else f", {age_text(age_s)} old"


def age_text(age_s: float) -> str:
    """Return an age in seconds, minutes or hours, whichever says most in three digits or so."""
    if age_s < 2 * 60:
        return f"{age_s:.0f} s"
    if age_s < 2 * 3600:
        return f"{age_s / 60:.0f} min"
    return f"{age_s / 3600:.1f} h"


def _of_tables(report: Report) -> Iterator[str]:
    for one in report.tables:
        if one.cells_dropped:
            yield (
                f"    of {one.table}  {one.cells_dropped:,} cells, {one.bytes_dropped:,} bytes of "
                "keys and values"
            )
