"""The numbers of a manager for Prometheus, read when it scrapes.

    import omidpy.prometheus

    omidpy.prometheus.register(tm)

Nothing is counted twice and nothing costs a transaction anything: a collector reads `tm.metrics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from omidpy.base.client_metrics import BOUNDS_S, ClientMetrics, Latencies
from omidpy.errors import UsageError

if TYPE_CHECKING:
    from omidpy.recipes.export_queue import ExportQueue, Lag, Runner
    from omidpy.recipes.export_queue.delivery.tally import BucketTally

DEFAULT_PREFIX: Final = "omidpy"


class Measured(Protocol):
    """A manager, blocking or of asyncio."""

    @property
    def metrics(self) -> ClientMetrics:
        """Its numbers."""
        ...


def register(
    manager: Measured,
    registry: CollectorRegistry = REGISTRY,
    *,
    prefix: str = DEFAULT_PREFIX,
) -> Collector:
    """Let a registry show the numbers of a manager, from now on.

    Args:
        manager: The manager.
        registry: Where; without it, prometheus_client's own.
        prefix: Begins the names of the metrics; a second manager in one registry needs another.

    Returns:
        What `registry.unregister` takes, to end it.

    Raises:
        UsageError: the registry has metrics of these names.
    """
    collector = _Collector(manager, prefix)
    try:
        registry.register(collector)
    except ValueError as error:
        raise UsageError(
            f"the registry has metrics {prefix}_... already ({error}); give this manager another "
            "prefix=, or unregister the other one's collector"
        ) from error
    return collector


def register_export(
    queue: ExportQueue,
    runner: Runner,
    registry: CollectorRegistry = REGISTRY,
    *,
    prefix: str = DEFAULT_PREFIX,
) -> Collector:
    """Let a registry show an export queue, and what a runner of this process does with it.

    Args:
        queue: What waits in it is as its exporters have counted, when the registry is read.
        runner: What it has done is counted all the time.
        registry: Where; without it, prometheus_client's own.
        prefix: Begins the names of the metrics.

    Returns:
        What `registry.unregister` takes, to end it.

    Raises:
        UsageError: the registry has metrics of these names.
    """
    collector = _ExportCollector(queue, runner, prefix)
    try:
        registry.register(collector)
    except ValueError as error:
        raise UsageError(
            f"the registry has metrics {prefix}_export_... already ({error}); give this queue "
            "another prefix=, or unregister the other one's collector"
        ) from error
    return collector


class _ExportCollector(Collector):
    def __init__(self, queue: ExportQueue, runner: Runner, prefix: str) -> None:
        self._queue = queue
        self._runner = runner
        self._prefix = f"{prefix}_export"

    def describe(self) -> Iterator[Metric]:
        """Yield what says the names; nothing is counted for that."""
        return self._metrics(None, {})

    def collect(self) -> Iterator[Metric]:
        """Yield every metric as it is now."""
        return self._metrics(self._queue.counted(), self._runner.tally.read())

    def _metrics(self, lag: Lag | None, tallies: Mapping[int, BucketTally]) -> Iterator[Metric]:
        labels = ["queue", "bucket"]
        buckets = () if lag is None else lag.buckets
        for name, meaning, field in (
            ("entries", "entries that wait", "entries"),
            ("dead_letters", "entries that were set aside", "dead_letters"),
            ("lease_epoch", "how often the bucket changed hands", "epoch"),
        ):
            gauge = GaugeMetricFamily(f"{self._prefix}_{name}", meaning, labels=labels)
            for one in buckets:
                gauge.add_metric([self._queue.id, str(one.bucket)], getattr(one, field))
            yield gauge
        age = GaugeMetricFamily(
            f"{self._prefix}_lag_seconds", "age of the oldest entry that waits", labels=labels
        )
        for one in buckets:
            if one.oldest_age_s is not None:
                age.add_metric([self._queue.id, str(one.bucket)], one.oldest_age_s)
        yield age
        counted = GaugeMetricFamily(
            f"{self._prefix}_counted_seconds",
            "how long ago the entries that wait were counted",
            labels=labels,
        )
        for one in buckets:
            if one.counted_age_s is not None:
                counted.add_metric([self._queue.id, str(one.bucket)], one.counted_age_s)
        yield counted
        for name, meaning, field in (
            ("exported", "entries that were delivered here", "exported"),
            ("attempts", "batches handed over here", "attempts"),
            ("failures", "batches that were not taken", "failures"),
        ):
            counter = CounterMetricFamily(f"{self._prefix}_{name}", meaning, labels=labels)
            for bucket, tally in tallies.items():
                counter.add_metric([self._queue.id, str(bucket)], getattr(tally, field))
            yield counter
        took = SummaryMetricFamily(
            f"{self._prefix}_batch_seconds", "how long the exporter took", labels=labels
        )
        for bucket, tally in tallies.items():
            took.add_metric([self._queue.id, str(bucket)], tally.batches, tally.seconds)
        yield took


class _Collector(Collector):
    def __init__(self, manager: Measured, prefix: str) -> None:
        self._manager = manager
        self._prefix = prefix

    def describe(self) -> Iterator[Metric]:
        """Yield what says the names, so that a registry refuses them a second time."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Yield every metric as it is now."""
        found = self._manager.metrics
        for name, meaning, value in (
            ("commits", "transactions that committed what they had written", found.commits),
            ("retries", "further tries of transactions", found.retries),
            ("outcomes_unknown", "commits of unknown outcome", found.outcomes_unknown),
            ("healed_cells", "shadow cells written for others", found.healed_cells),
        ):
            yield CounterMetricFamily(f"{self._prefix}_{name}", meaning, value)
        aborts = CounterMetricFamily(
            f"{self._prefix}_aborts", "commits that ended in an abort", labels=["reason"]
        )
        for reason, count in found.aborts.items():
            aborts.add_metric([reason], count)
        yield aborts
        yield self._histogram("begin_seconds", "how long a begin took", found.begin)
        yield self._histogram("commit_seconds", "how long a commit took", found.commit)

    def _histogram(self, name: str, meaning: str, found: Latencies) -> Metric:
        bounds = [*(str(bound) for bound in BOUNDS_S), "+Inf"]
        return HistogramMetricFamily(
            f"{self._prefix}_{name}",
            meaning,
            buckets=list(zip(bounds, accumulate(found.buckets), strict=True)),
            sum_value=found.total_s,
        )
