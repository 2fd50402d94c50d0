"""The numbers of a run for the person who is called at night: a text file, or a Pushgateway.

A run that fails writes nothing, so that what was written last stays and grows old:
`omidpy_compaction_last_success_timestamp_seconds` tells.
"""

from __future__ import annotations

from http.client import HTTPException
from typing import Final
from urllib.parse import urlsplit

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    generate_latest,
    push_to_gateway,
)

from compactor.report import Report
from compactor.shell.files import check_file, put_file
from omidpy.base.telemetry.streams import tell
from omidpy.errors import UsageError

JOB: Final = "omidpy_compaction"
PUSH_TIMEOUT_S: Final = 10.0

GAUGES: Final = {
    "low_watermark_age_seconds": "how old the oldest transaction can be that may still commit",
    "horizon_age_seconds": "how old the oldest transaction can be whose entry is kept",
    "oldest_laggard_age_seconds": "how long rows have been behind that hold the horizon; 0 if none",
    "laggards": "ranges of rows, tables and entries that hold the horizon back",
    "snapshots_unknown": "1 if nobody said where HBase's snapshots are, which then hold nothing",
    "holds": "snapshots whose versions somebody keeps",
    "commit_entries": "rows of the commit table after the run",
    "commit_entries_growth_per_day": "rows that came since the run before, less those that went",
    "entries_pruned": "commits and invalidations that the run removed",
    "cells_healed": "shadow cells that the run wrote",
    "cells_dropped": "cells that the run removed",
    "bytes_dropped": "their size",
    "duration_seconds": "how long the run took",
    "exit_code": "what the run exits with",
    "last_success_timestamp_seconds": "when the last run came to its end",
}
"""What is exported, after `omidpy_compaction_`, and what it means."""


def check_target(target: str | None) -> None:
    """Refuse a place for metrics that cannot be, before an hour of work.

    Raises:
        UsageError: naming it.
    """
    if target is None or is_gateway(target):
        return
    if "://" in target:
        raise UsageError(f"--metrics {target}: give a file, or the http:// URL of a Pushgateway")
    check_file("--metrics", target)


def is_gateway(target: str) -> bool:
    """Say whether a place for metrics is the address of a Pushgateway."""
    try:
        parts = urlsplit(target)
    except ValueError:  # brackets that hold no address of IPv6
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def export(target: str, report: Report, *, exit_code: int, now_s: float) -> None:
    """Write the numbers of a run that came to its end; say on stderr if that fails.

    Nothing that the run did depends on it, and numbers that grow old raise an alarm by themselves.
    """
    registry = registry_of(report, exit_code=exit_code, now_s=now_s)
    try:
        send(target, registry, job=JOB)
    except OSError as error:
        tell(f"compaction: no metrics in {target}: {error}")


def send(target: str, registry: CollectorRegistry, *, job: str) -> None:
    """Put the numbers of a registry in the place of those that were there: a file, or a gateway.

    Args:
        target: A file for the node exporter, or the URL of a Pushgateway.
        registry: The numbers.
        job: Under which name a gateway keeps them.

    Raises:
        OSError: the gateway did not take them.
    """
    if is_gateway(target):
        try:
            push_to_gateway(target, job=job, registry=registry, timeout=PUSH_TIMEOUT_S)
        except HTTPException as error:
            raise OSError(f"what answers there is no gateway: {error!r}") from error
    else:
        put_file(target, generate_latest(registry))


def registry_of(report: Report, *, exit_code: int, now_s: float) -> CollectorRegistry:
    """Return the numbers of a run; what is not known is left out."""
    registry = CollectorRegistry()
    for name, value in values_of(report, exit_code=exit_code, now_s=now_s).items():
        if value is not None:
            Gauge(f"{JOB}_{name}", GAUGES[name], registry=registry).set(value)
    behind = Gauge(
        f"{JOB}_laggard_age_seconds",
        "how long the oldest rows of a table have been behind",
        ["table"],
        registry=registry,
    )
    ages: dict[str, float] = {}
    for one in report.laggards:
        age_s = float("inf") if one.age_s is None else one.age_s
        ages[one.table] = max(ages.get(one.table, 0.0), age_s)
    for table, age_s in ages.items():
        behind.labels(table).set(age_s)
    return registry


def values_of(report: Report, *, exit_code: int, now_s: float) -> dict[str, float | None]:
    """Return the value of each of `GAUGES`; a laggard that has no date is infinitely old."""
    ages = [float("inf") if one.age_s is None else one.age_s for one in report.laggards]
    return {
        "low_watermark_age_seconds": report.low_watermark_age_s,
        "horizon_age_seconds": report.horizon_age_s,
        "oldest_laggard_age_seconds": max(ages, default=0.0),
        "laggards": len(report.laggards),
        "snapshots_unknown": int(report.knows_snapshots is False),
        "holds": len(report.holds),
        "commit_entries": report.entries_left,
        "commit_entries_growth_per_day": report.entries_growth_a_day,
        "entries_pruned": report.entries_pruned + report.invalidations_pruned,
        "cells_healed": report.cells_healed,
        "cells_dropped": report.cells_dropped,
        "bytes_dropped": report.bytes_dropped,
        "duration_seconds": report.seconds,
        "exit_code": exit_code,
        "last_success_timestamp_seconds": now_s,
    }
