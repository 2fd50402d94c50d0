"""By day: a stream out of a table and one into a table, whose driver is killed behind a batch.

They are those of `test_changes_stream.py` and of `test_spark_sink.py`, which kill at more points at
night, in one process: to start Spark twice takes most of the time.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs Spark 4.2")

from omidpy.connect import connect
from tests.integration.test_changes_stream import Stock, batches, check_batches, run
from tests.integration.test_spark_sink import add_input
from tests.machines import frames_stream
from tests.machines.processes import tso_server
from tests.machines.two_streams import FEED, SINK

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def test_each_batch_is_there_once_though_the_driver_is_killed(tmp_path: Path) -> None:
    """Each change is in one batch, and what a sink has written is not written again."""
    url = f"sqlite:///{tmp_path / 'streams.db'}"
    sink, feed = tmp_path / SINK, tmp_path / FEED
    module = "tests.machines.two_streams"
    sink.mkdir()
    feed.mkdir()
    with tso_server(url) as server, connect(url, server.address) as tm:
        stock = Stock(tm)
        tm.create_table(frames_stream.TABLE, ["cf"], splits=[b"b"])

        def counts() -> list[int]:
            table = tm.begin(read_only=True).table(frames_stream.TABLE)
            return [table.counter_get(row, b"cf:n") for row in (b"a", b"b", b"c")]

        stock.put(b"a", b"1")
        stock.put(b"z", b"2")
        add_input(sink, 0)
        code, _, err = run(tmp_path, url, server.address, "dies", module=module)
        assert code == -signal.SIGKILL, err
        assert counts() == [1] * 3, "it has committed"
        (state,) = batches(feed)
        for row, value in ((b"a", b"3"), (b"z", None), (b"b", b"4"), (b"c", b"5")):
            stock.put(row, value)
        add_input(sink, 1)
        code, out, err = run(tmp_path, url, server.address, module=module)
        assert code == 0, err
        assert json.loads(out) == {"snapshot": 3}
        assert counts() == [2] * 3
    assert batches(feed)[0] == state, "the batch that was run again has the same rows"
    check_batches(feed, state, stock.written)
