"""Export queues as a stream of a real Spark, whose driver is killed: here at night.

By day `test_spark_streams.py` kills it behind a batch, with other streams in the same process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from omidpy.connect import connect
from omidpy.errors import UsageError
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue import ExportQueue
from tests.machines.export_processes import QUEUE
from tests.machines.export_stream import MOST
from tests.machines.processes import ROOT, tso_server

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs Spark 4.2")

pytestmark = [pytest.mark.integration, pytest.mark.spark]

LONGEST_S: Final = 280


class Ended(NamedTuple):
    """How a query ended."""

    returncode: int
    stdout: str
    stderr: str


def run(folder: Path, *words: object) -> Ended:
    """Run the query in a process of its own.

    It prints into files: what a killed driver leaves behind would hold a pipe open.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.machines.export_stream", str(folder), *map(str, words)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        try:
            code = process.wait(LONGEST_S)
        finally:
            process.kill()
            process.wait()
    return Ended(code, (folder / "out").read_text(), (folder / "err").read_text())


def batches(folder: Path) -> list[list[list[Any]]]:
    """Return [key, value, commit_ts, bucket] of the rows of each batch."""
    files = sorted((folder / "batches").glob("*.json"))
    return [json.loads(file.read_text("ascii")) for file in files]


def add(tm: TransactionManager, queue: ExportQueue, added: int, count: int) -> int:
    """Add so many times five entries to those that were added; return how many these are now."""
    for first in range(added, added + 5 * count, 5):
        with tm.begin() as tx:
            queue.add_all(tx, [(b"%d" % (n % 7), first + n) for n in range(5)])
    return added + 5 * count


def check_exported(folder: Path, before: list[list[list[Any]]], added: int) -> int:
    """Look at all that was added: in batches, those of before among them; return what was left."""
    found = batches(folder)
    assert found[: len(before)] == before, "a batch that is run again has the same rows"
    assert all(len(batch) <= MOST for batch in found)
    assert sorted(value for batch in found for _, value, *_ in batch) == list(range(added))
    newest: dict[str, int] = {}
    for batch in found:
        for key, value, *_ in batch:
            assert newest.get(key, -1) < value, "the order of each key"
            newest[key] = value
    # The last batch is acknowledged when the next one is planned, which there was none.
    values = [
        json.loads(line)["value"]
        for file in (folder / "files").iterdir()
        for line in file.read_text("utf-8").splitlines()
    ]
    assert sorted(values) == sorted(value for _, value, *_ in found[-1])
    return len(found[-1])


@pytest.mark.nightly
@pytest.mark.parametrize("kills_twice", [False, True], ids=["once", "twice"])
def test_each_entry_is_in_one_batch_though_the_driver_is_killed(
    tmp_path: Path, *, kills_twice: bool
) -> None:
    """Within a batch, and when the sink has it and the checkpoint does not; and nothing is lost.

    A batch that is run again has the same rows, no batch has more than it may, and what is in the
    checkpoint leaves the queue.  `export_once` delivers what the last batch has left there.
    """
    url = f"sqlite:///{tmp_path / 'queue.db'}"
    with tso_server(url) as server, connect(url, server.address) as tm:
        queue = ExportQueue.create(tm, QUEUE, buckets=3)
        added = add(tm, queue, 0, 10)
        if kills_twice:
            died = run(tmp_path, url, server.address, 1, "within")
            assert died.returncode == -signal.SIGKILL, died.stderr
            assert len(batches(tmp_path)) == 1
        added = add(tm, queue, added, 2)
        died = run(tmp_path, url, server.address, 1, "behind")
        assert died.returncode == -signal.SIGKILL, died.stderr
        before = batches(tmp_path)
        assert len(before) == 2
        assert queue.lag().entries == added - len(before[0]), "what the checkpoint has is gone"
        added = add(tm, queue, added, 2)
        done = run(tmp_path, url, server.address, -1)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"left": check_exported(tmp_path, before, added)}
        assert queue.lag().entries == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"store": "s", "tso": "t"}, r"needs option\('queue'"),
        ({"store": "s", "queue": "q"}, r"needs option\('tso'"),
        (
            {"store": "s", "tso": "t", "queue": "q", "maxentriespertrigger": "0"},
            "maxEntriesPerTrigger",
        ),
    ],
)
def test_what_a_query_lacks_is_named(options: dict[str, str], message: str) -> None:
    """Before Spark is asked for anything; option names have no case there."""
    from omidpy.spark.export_stream import ExportOptions

    with pytest.raises(UsageError, match=message):
        ExportOptions(options)
