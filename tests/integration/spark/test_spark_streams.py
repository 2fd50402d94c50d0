"""By day: streams out of a table, into one, and out of a queue, whose driver is killed.

They are those of `test_changes_stream.py`, of `test_spark_sink.py` and of `test_export_stream.py`,
which kill at more points at night, in one process: to start Spark takes most of the time.  What
goes on where they were is the session of the other tests.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs Spark 4.2")

from omidpy.connect import connect
from omidpy.recipes.export_queue import ExportQueue
from tests.integration import test_export_stream as exported
from tests.integration.test_changes_stream import Stock, batches, check_batches, run
from tests.integration.test_spark_sink import add_input
from tests.machines import frames_stream, mortal_streams
from tests.machines.export_processes import QUEUE as ENTRIES
from tests.machines.mortal_streams import FEED, QUEUE, SINK
from tests.machines.processes import tso_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def test_each_batch_is_there_once_though_the_driver_is_killed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each change and each entry is in one batch, and what a sink has written is not again."""
    url = f"sqlite:///{tmp_path / 'streams.db'}"
    sink, feed, queued = tmp_path / SINK, tmp_path / FEED, tmp_path / QUEUE
    for folder in (sink, feed, queued):
        folder.mkdir()
    with tso_server(url) as server, connect(url, server.address) as tm:
        stock = Stock(tm)
        tm.create_table(frames_stream.TABLE, ["cf"], splits=[b"b"])
        queue = ExportQueue.create(tm, ENTRIES, buckets=3)
        added = exported.add(tm, queue, 0, 12)

        def counts() -> list[int]:
            table = tm.begin(read_only=True).table(frames_stream.TABLE)
            return [table.counter_get(row, b"cf:n") for row in (b"a", b"b", b"c")]

        stock.put(b"a", b"1")
        stock.put(b"z", b"2")
        add_input(sink, 0)
        module = mortal_streams.__name__
        code, _, err = run(tmp_path, url, server.address, module=module)
        assert code == -signal.SIGKILL, err
        assert counts() == [1] * 3, "it has committed"
        (state,) = batches(feed)
        before = exported.batches(queued)
        assert len(before) == 2
        assert queue.lag().entries == added - len(before[0]), "what the checkpoint has is gone"
        added = exported.add(tm, queue, added, 2)
        for row, value in ((b"a", b"3"), (b"z", None), (b"b", b"4"), (b"c", b"5")):
            stock.put(row, value)
        add_input(sink, 1)
        mortal_streams.go(spark, tmp_path, url, server.address)
        left, kinds = map(json.loads, capsys.readouterr().out.splitlines())
        assert kinds == {"snapshot": 3}
        assert left == {"left": exported.check_exported(queued, before, added)}
        assert queue.lag().entries == 0
        assert counts() == [2] * 3
    assert batches(feed)[0] == state, "the batch that was run again has the same rows"
    check_batches(feed, state, stock.written)
