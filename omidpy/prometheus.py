"""The numbers of a manager for Prometheus, read when it scrapes.

    import omidpy.prometheus

    omidpy.prometheus.register(tm)

Nothing is counted twice and nothing costs a transaction anything: a collector reads `tm.metrics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client import REGISTRY, CollectorRegistry, Gauge
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from omidpy.base.telemetry.client_metrics import BOUNDS_S, ClientMetrics, Latencies
from omidpy.base.timing.clock import SystemClock
from omidpy.errors import UsageError
from omidpy.fate.listing import counted, oldest_s
from omidpy.fate.looking import look
from omidpy.fate.store import FateStore
from omidpy.fate.view import Snapshot

if TYPE_CHECKING:
    from omidpy.recipes.export_queue import ExportQueue, Lag, Runner
    from omidpy.recipes.export_queue.delivery.tally import BucketTally

DEFAULT_PREFIX: Final = "omidpy"


class Measured(Protocol):
    """A manager, blocking or of asyncio."""

    @property
    def metrics(self) -> ClientMetrics:
        """The numbers of one registry."""
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


def register_fate(
    fates: FateStore,
    registry: CollectorRegistry = REGISTRY,
    *,
    prefix: str = DEFAULT_PREFIX,
) -> Collector:
    """Let a registry show the operations of a store, of all executors.

    Args:
        fates: The operations, which are read whenever the registry is.
        registry: Where; without it, prometheus_client's own.
        prefix: Begins the names of the metrics.

    Returns:
        What `registry.unregister` takes, to end it.

    Raises:
        UsageError: the registry has metrics of these names.

    Cost: as `omidpy fate summary`, with each reading of the registry.
    """
    collector = _FateCollector(fates, prefix)
    try:
        registry.register(collector)
    except ValueError as error:
        raise UsageError(
            f"the registry has metrics {prefix}_fate_... already ({error}); give these operations "
            "another prefix=, or unregister the other ones' collector"
        ) from error
    return collector


def show_plans(folder: str, plan_count: int, registry: CollectorRegistry, *, now_s: float) -> None:
    """Let a registry show how many jobs have begun to publish in a folder, and have not ended.

    Args:
        folder: Its address.
        plan_count: How many plans are in it, as `omidpy committers plan list` finds them.
        registry: Where; one of its own for each look.
        now_s: When that was, in seconds since 1970.
    """
    half = Gauge(
        "omidpy_committers_half_published",
        "jobs that have begun to publish, and have not ended",
        ["folder"],
        registry=registry,
    )
    half.labels(folder).set(plan_count)
    looked = Gauge(
        "omidpy_committers_looked_timestamp_seconds",
        "when somebody looked for them",
        ["folder"],
        registry=registry,
    )
    looked.labels(folder).set(now_s)


class _FateCollector(Collector):
    def __init__(self, fates: FateStore, prefix: str) -> None:
        self._fates = fates
        self._prefix = f"{prefix}_fate"

    def describe(self) -> Iterator[Metric]:
        """Yield what says the names; nothing is read for that."""
        return self._metrics(None)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric as it is now."""
        return self._metrics(look(self._fates, now_ms=SystemClock().wall_ms()))

    def _metrics(self, found: Snapshot | None) -> Iterator[Metric]:
        operations = GaugeMetricFamily(
            f"{self._prefix}_operations", "operations that are kept", labels=["kind", "status"]
        )
        oldest = GaugeMetricFamily(
            f"{self._prefix}_oldest_seconds",
            "for how long the oldest operation that has not ended is there",
            labels=["kind"],
        )
        unreadable = GaugeMetricFamily(
            f"{self._prefix}_unreadable", "operations, and queues for locks, that cannot be read"
        )
        if found is not None:
            for (kind, status), count in counted(found).items():
                operations.add_metric([kind, status], count)
            for kind, seconds in oldest_s(found).items():
                oldest.add_metric([kind], seconds)
            unreadable.add_metric([], len(found.unreadable) + len(found.unreadable_queues))
        yield operations
        yield oldest
        yield unreadable


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
            ("owned", "1 if a worker exports the bucket, else 0", "owner"),
            ("stopped", "1 if the bucket goes no further, else 0", "stopped"),
        ):
            gauge = GaugeMetricFamily(f"{self._prefix}_{name}", meaning, labels=labels)
            for one in buckets:
                value = getattr(one, field)
                number = value if isinstance(value, int) else int(bool(value))
                gauge.add_metric([self._queue.id, str(one.bucket)], number)
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
