"""Delivers what is in a queue now by the tasks of one Spark job: `foreachPartition` over buckets.

The driver takes all buckets and a snapshot, each task hands the entries of some buckets to an
exporter of its own, and what they have delivered is removed when all of them have ended.  A task
that fails, or that Spark runs twice, delivers again: exporters refuse what is older.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from omidpy.base.telemetry.stages import described
from omidpy.connect import connect
from omidpy.recipes.export_queue.delivery.portions import Portion, Possession, read
from omidpy.recipes.export_queue.entries.stored.codecs import codec_named
from omidpy.recipes.export_queue.exporter import Batch, Entry, Exporter, Exporting, as_exporter
from omidpy.storage.handed import HandedStore, handed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omidpy.manager import TransactionManager

BATCH_BYTES: Final = 1 << 20
TASKS: Final = 8


def export_once(
    spark: SparkSession,
    make_exporter: Callable[[], Exporting],
    *,
    store: str,
    tso: str,
    queue: str,
    tasks: int = TASKS,
    batch_bytes: int = BATCH_BYTES,
) -> int:
    """Deliver what is in a queue now; return how many entries that were.

    Args:
        spark: The session whose executors deliver.
        make_exporter: Called in each task; it travels there.
        store: The address of the store, as executors reach it.
        tso: That of its oracle.
        queue: The id of the queue, which nobody else may export meanwhile.
        tasks: How many at most.
        batch_bytes: The most that one batch holds, unless one entry is larger.

    Raises:
        ExportError: another process exports the queue.
        Exception: Spark's, where a task has failed as often as it may; nothing was removed then.
    """
    with connect(store, tso=tso) as tm:
        possession = Possession(tm, queue)
        try:
            end_ts = possession.next_end(possession.beginning_ts)
            if end_ts is None:
                return 0
            portions = possession.portions(possession.beginning_ts, end_ts)
            codec = possession.codec
            count = min(tasks, len(portions))
            delivered = spark.sparkContext.accumulator(0)
            sent = handed(tm.store, store).of(tm.store)

            def deliver(groups: Iterable[list[Portion]]) -> None:
                for group in groups:
                    delivered.add(_deliver(group, make_exporter, sent, tso, codec, batch_bytes))

            groups = [portions[number::count] for number in range(count)]
            with described(spark, f"omidpy: deliver the queue {queue} of {store}"):
                spark.sparkContext.parallelize(groups, count).foreachPartition(deliver)
            possession.acknowledge(end_ts)
            return int(delivered.value)
        finally:
            possession.close()


def _deliver(
    portions: list[Portion],
    make_exporter: Callable[[], Exporting],
    sent: HandedStore,
    tso: str,
    codec: str,
    batch_bytes: int,
) -> int:
    exporter = as_exporter(make_exporter())
    with sent.opened(partial(connect, tso=tso)) as tm:
        exporter.open()
        try:
            return sum(_of_bucket(tm, one, exporter, codec, batch_bytes) for one in portions)
        finally:
            exporter.close()


def _of_bucket(
    tm: TransactionManager, portion: Portion, exporter: Exporter, codec: str, batch_bytes: int
) -> int:
    decode = codec_named(codec).decode
    entries: list[Entry] = []
    count = size_bytes = 0

    def send() -> None:
        if entries:
            queue, bucket, fence = portion.queue_id, portion.bucket, portion.fence
            exporter.export(Batch(entries, queue=queue, bucket=bucket, fence=fence))
            entries.clear()

    for found, content in read(tm, portion):
        if entries and size_bytes + found.size_bytes > batch_bytes:
            send()
            size_bytes = 0
        ordinal = int.from_bytes(found.position.ordinal, "big")
        entries.append(
            Entry(
                content.key,
                decode(content.value),
                found.position.commit_ts,
                ordinal,
                found.start_ts,
                content.headers,
            )
        )
        size_bytes += found.size_bytes
        count += 1
    send()
    return count
