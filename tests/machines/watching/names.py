"""Every name under which omidpy reports a number, from what really reports it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

import omidpy
from compactor.report import Laggard, Report
from compactor.shell.metrics import registry_of
from omidpy import prometheus
from omidpy.fate.table.store import TableFateStore
from omidpy.recipes.export_queue import ExportQueue
from tso.serving.http import PrometheusMetrics
from tso.serving.numbers import GAUGES

SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("_sum", "_count"),
}


def reported_names() -> set[str]:
    """Return the names of all series, as Prometheus keeps them."""
    numbers = PrometheusMetrics()
    for name in GAUGES:
        numbers.gauge(name, 0)
    known = Report(
        low_watermark_age_s=0,
        horizon_age_s=0,
        entries_left=0,
        entries_growth_a_day=0,
        laggards=[Laggard("t", "", "", 0, "disabled", 5.0)],
    )
    run = registry_of(known, exit_code=0, now_s=0.0)
    client = CollectorRegistry()
    with omidpy.connect("memory:") as tm:
        prometheus.register(tm, client)
        queue = ExportQueue.create(tm, "q", buckets=1)
        prometheus.register_export(queue, queue.runner(print), client)
        prometheus.register_fate(TableFateStore(tm.store), client)
        prometheus.show_plans("s3://b/f", 0, client, now_s=0.0)
        families = [
            *numbers.registry.collect(),
            *run.collect(),
            *client.collect(),
        ]
    return {f"{one.name}{suffix}" for one in families for suffix in SUFFIXES[one.type]}
