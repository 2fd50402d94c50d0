"""The dashboards of Grafana, said once: `python deploy/grafana/dashboards.py` writes their JSON.

A test makes them again and compares, and looks for every name of a metric among those that are
really reported; so that one which is renamed fails there, and not on a screen at night.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

FOLDER: Final = Path(__file__).parent
SCHEMA_VERSION: Final = 39
"""Of Grafana 10 and newer, which migrates older ones by itself."""
COLUMNS: Final = 24
HEIGHT: Final = 8
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class Panel(NamedTuple):
    """A curve or several, in one unit."""

    title: str
    unit: str
    """By Grafana's names: `s`, `short`, `ops`, `bytes`, `dateTimeAsIso`."""
    curves: dict[str, str]
    """Legend -> expression."""
    kind: str = "timeseries"


class Dashboard(NamedTuple):
    """What is looked at together."""

    name: str
    title: str
    panels: tuple[Panel, ...]


def quantile(share: float, histogram: str, by: str) -> str:
    """Return the expression of a quantile of a histogram."""
    rate = f"sum by ({by}, le) (rate({histogram}_bucket[$__rate_interval]))"
    return f"histogram_quantile({share}, {rate})"


def rate(counter: str, by: str) -> str:
    """Return the expression of how often something is counted in a second."""
    return f"sum by ({by}) (rate({counter}[$__rate_interval]))"


DASHBOARDS: Final = (
    Dashboard(
        "oracle",
        "omidpy: oracle",
        (
            Panel("Who leads", "short", {"{{instance}}": "tso_answering"}, "stat"),
            Panel(
                "Takeovers in an hour",
                "short",
                {"{{job}}": "changes((max by (job) (tso_epoch))[1h:15s])"},
                "stat",
            ),
            Panel("Clients", "short", {"{{instance}}": "tso_connections"}, "stat"),
            Panel("Places", "short", {"{{instance}}": "tso_connection_limit"}, "stat"),
            Panel(
                "Decisions",
                "ops",
                {
                    "begun": rate("tso_timestamp_allocation_total", "job"),
                    "committed": rate("tso_commits_total", "job"),
                    "refused": rate("tso_aborts_total", "job"),
                },
            ),
            Panel(
                "Refusals by reason",
                "ops",
                {
                    "conflict": rate("tso_aborts_conflict_total", "job"),
                    "low watermark": rate("tso_aborts_low_watermark_total", "job"),
                    "fence": rate("tso_aborts_fence_total", "job"),
                    "too large": rate("tso_aborts_too_large_total", "job"),
                },
            ),
            Panel(
                "Flush: what each commit waits for",
                "s",
                {
                    "half": quantile(0.5, "tso_flush_seconds", "job"),
                    "99 %": quantile(0.99, "tso_flush_seconds", "job"),
                    "in the queue, 99 %": quantile(0.99, "tso_queue_seconds", "job"),
                },
            ),
            Panel(
                "Answers in a batch", "short", {"half": quantile(0.5, "tso_batch_answers", "job")}
            ),
            Panel("Answers that wait", "short", {"{{instance}}": "tso_queue_length"}),
            Panel(
                "Oldest transaction that can still commit",
                "s",
                {
                    "by the map": "tso_map_age_seconds",
                    "by the settings": "tso_transaction_age_seconds",
                },
            ),
            Panel(
                "Low watermark behind the newest timestamp",
                "ns",
                {"{{instance}}": "tso_max_timestamp - tso_low_watermark"},
            ),
            Panel(
                "Refusals",
                "ops",
                {
                    "beyond its share": rate("tso_rates_refused_total", "job"),
                    "put off": rate("tso_rates_deferred_total", "job"),
                    "no room to hold": rate("tso_holds_refused_total", "job"),
                    "no place": rate("tso_connections_refused_total", "job"),
                    "not flushed": rate("tso_flush_failures_total", "job"),
                },
            ),
            Panel(
                "Fences, invalidations, repetitions",
                "ops",
                {
                    "fences": rate("tso_fences_total", "job"),
                    "invalidations": rate("tso_invalidations_total", "job"),
                    "repeated commits": rate("tso_retries_from_table_total", "job"),
                },
            ),
            Panel(
                "Held back by the clock, and by a transaction",
                "short",
                {
                    "clock, s": "tso_clock_rejected_lead_seconds",
                    "transaction": "tso_held_back_by > bool 0",
                },
            ),
        ),
    ),
    Dashboard(
        "clients",
        "omidpy: clients",
        (
            Panel("Commits", "ops", {"{{job}}": rate("omidpy_commits_total", "job")}),
            Panel("Aborts by reason", "ops", {"{{reason}}": rate("omidpy_aborts_total", "reason")}),
            Panel(
                "Begin",
                "s",
                {
                    "half": quantile(0.5, "omidpy_begin_seconds", "job"),
                    "99 %": quantile(0.99, "omidpy_begin_seconds", "job"),
                },
            ),
            Panel(
                "Commit",
                "s",
                {
                    "half": quantile(0.5, "omidpy_commit_seconds", "job"),
                    "99 %": quantile(0.99, "omidpy_commit_seconds", "job"),
                },
            ),
            Panel(
                "Further tries, and unknown outcomes",
                "ops",
                {
                    "tries": rate("omidpy_retries_total", "job"),
                    "unknown": rate("omidpy_outcomes_unknown_total", "job"),
                },
            ),
            Panel(
                "Cells healed for others",
                "ops",
                {"{{job}}": rate("omidpy_healed_cells_total", "job")},
            ),
        ),
    ),
    Dashboard(
        "compaction",
        "omidpy: compaction",
        (
            Panel(
                "Since the last run",
                "s",
                {"age": "time() - omidpy_compaction_last_success_timestamp_seconds"},
                "stat",
            ),
            Panel("Its exit code", "short", {"code": "omidpy_compaction_exit_code"}, "stat"),
            Panel("It took", "s", {"it took": "omidpy_compaction_duration_seconds"}, "stat"),
            Panel("Laggards", "short", {"laggards": "omidpy_compaction_laggards"}, "stat"),
            Panel(
                "How old what is kept can be",
                "s",
                {
                    "may still commit": "omidpy_compaction_low_watermark_age_seconds",
                    "prune horizon": "omidpy_compaction_horizon_age_seconds",
                    "oldest laggard": "omidpy_compaction_oldest_laggard_age_seconds",
                },
            ),
            Panel("By table", "s", {"{{table}}": "omidpy_compaction_laggard_age_seconds"}),
            Panel("Commit table", "short", {"entries": "omidpy_compaction_commit_entries"}),
            Panel(
                "Its growth in a day",
                "short",
                {"entries": "omidpy_compaction_commit_entries_growth_per_day"},
            ),
            Panel(
                "What the last run did",
                "short",
                {
                    "pruned": "omidpy_compaction_entries_pruned",
                    "healed": "omidpy_compaction_cells_healed",
                    "dropped": "omidpy_compaction_cells_dropped",
                },
            ),
            Panel("Dropped", "bytes", {"dropped": "omidpy_compaction_bytes_dropped"}),
            Panel(
                "What keeps versions",
                "short",
                {
                    "holds": "omidpy_compaction_holds",
                    "snapshots unknown": "omidpy_compaction_snapshots_unknown",
                },
            ),
        ),
    ),
    Dashboard(
        "work",
        "omidpy: queues, operations, jobs",
        (
            Panel("Lag", "s", {"{{queue}}": "max by (queue) (omidpy_export_lag_seconds)"}),
            Panel(
                "Entries that wait",
                "short",
                {"{{queue}}": "sum by (queue) (omidpy_export_entries)"},
            ),
            Panel("Delivered", "ops", {"{{queue}}": rate("omidpy_export_exported_total", "queue")}),
            Panel(
                "Batches",
                "ops",
                {
                    "{{queue}} handed over": rate("omidpy_export_attempts_total", "queue"),
                    "{{queue}} not taken": rate("omidpy_export_failures_total", "queue"),
                },
            ),
            Panel(
                "How long a batch takes",
                "s",
                {
                    "{{queue}}": f"{rate('omidpy_export_batch_seconds_sum', 'queue')} / "
                    f"{rate('omidpy_export_batch_seconds_count', 'queue')}"
                },
            ),
            Panel(
                "Dead letters",
                "short",
                {"{{queue}}": "sum by (queue) (omidpy_export_dead_letters)"},
            ),
            Panel(
                "Buckets without a worker, or stopped",
                "short",
                {
                    "{{queue}} without": "count by (queue) (omidpy_export_owned == 0)",
                    "{{queue}} stopped": "sum by (queue) (omidpy_export_stopped)",
                },
            ),
            Panel(
                "Age of the counts, and how often buckets were taken over",
                "short",
                {
                    "{{queue}} age, s": "max by (queue) (omidpy_export_counted_seconds)",
                    "{{queue}} taken": "sum by (queue) (changes(omidpy_export_lease_epoch[1h]))",
                },
            ),
            Panel(
                "Operations",
                "short",
                {"{{kind}} {{status}}": "sum by (kind, status) (omidpy_fate_operations)"},
            ),
            Panel("The oldest", "s", {"{{kind}}": "max by (kind) (omidpy_fate_oldest_seconds)"}),
            Panel("Unreadable", "short", {"operations": "omidpy_fate_unreadable"}, "stat"),
            Panel(
                "Half published",
                "short",
                {"{{folder}}": "omidpy_committers_half_published"},
                "stat",
            ),
            Panel(
                "Since somebody looked for those",
                "s",
                {"{{folder}}": "time() - omidpy_committers_looked_timestamp_seconds"},
                "stat",
            ),
        ),
    ),
)


def document_of(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard as Grafana takes it: small panels four in a row, curves two."""
    panels = []
    x = y = height = 0
    for number, panel in enumerate(dashboard.panels, start=1):
        is_small = panel.kind == "stat"
        width, wanted = (6, HEIGHT // 2) if is_small else (12, HEIGHT)
        if x + width > COLUMNS or (height and wanted != height):
            x, y, height = 0, y + height, 0
        panels.append(
            {
                "id": number,
                "type": panel.kind,
                "title": panel.title,
                "datasource": DATASOURCE,
                "gridPos": {"x": x, "y": y, "w": width, "h": wanted},
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                "targets": [
                    {
                        "refId": chr(ord("A") + at),
                        "datasource": DATASOURCE,
                        "expr": expression,
                        "legendFormat": legend,
                    }
                    for at, (legend, expression) in enumerate(panel.curves.items())
                ],
            }
        )
        x, height = x + width, wanted
    return {
        "uid": f"omidpy-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["omidpy"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                }
            ]
        },
        "panels": panels,
    }


def files() -> dict[Path, str]:
    """Return what is to be in each file."""
    return {
        FOLDER / f"omidpy-{one.name}.json": json.dumps(document_of(one), indent=1) + "\n"
        for one in DASHBOARDS
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
