"""Export queues as a stream of a real Spark, whose driver is killed."""

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


@pytest.mark.parametrize(
    "kills_twice", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["once", "twice"]
)
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
        added = 0

        def add(count: int) -> None:
            nonlocal added
            for _ in range(count):
                with tm.begin() as tx:
                    queue.add_all(tx, [(b"%d" % (n % 7), added + n) for n in range(5)])
                added += 5

        add(10)
        if kills_twice:
            died = run(tmp_path, url, server.address, 1, "within")
            assert died.returncode == -signal.SIGKILL, died.stderr
            assert len(batches(tmp_path)) == 1
        add(2)
        died = run(tmp_path, url, server.address, 1, "behind")
        assert died.returncode == -signal.SIGKILL, died.stderr
        before = batches(tmp_path)
        assert len(before) == 2
        assert queue.lag().entries == added - len(before[0]), "what the checkpoint has is gone"
        add(2)
        done = run(tmp_path, url, server.address, -1)
        assert done.returncode == 0, done.stderr
        found = batches(tmp_path)
        assert found[:2] == before, "a batch that is run again has the same rows"
        assert all(len(batch) <= MOST for batch in found)
        assert sorted(value for batch in found for _, value, *_ in batch) == list(range(added))
        newest: dict[str, int] = {}
        for batch in found:
            for key, value, *_ in batch:
                assert newest.get(key, -1) < value, "the order of each key"
                newest[key] = value
        # The last batch is acknowledged when the next one is planned, which there was none.
        assert json.loads(done.stdout) == {"left": len(found[-1])}
        assert queue.lag().entries == 0
    (values,) = zip(
        *(
            [json.loads(line)["value"]]
            for file in (tmp_path / "files").iterdir()
            for line in file.read_text("utf-8").splitlines()
        ),
        strict=True,
    )
    assert sorted(values) == sorted(value for _, value, *_ in found[-1])


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
