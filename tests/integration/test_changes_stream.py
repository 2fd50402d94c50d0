"""Changes of a table as a stream of a real Spark, whose driver is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from omidpy.connect import connect
from omidpy.manager import TransactionManager
from tests.machines.changes_stream import TABLE
from tests.machines.processes import ROOT, tso_server

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs Spark 4.2")

pytestmark = [pytest.mark.integration, pytest.mark.spark]

LONGEST_S: Final = 280


def run(
    folder: Path, *words: object, module: str = "tests.machines.changes_stream"
) -> tuple[int, str, str]:
    """Run the query in a process of its own; return its code and what it printed.

    It prints into files: what a killed driver leaves behind would hold a pipe open.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(folder), *map(str, words)],
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
    return code, (folder / "out").read_text(), (folder / "err").read_text()


def batches(folder: Path) -> list[list[list[Any]]]:
    """Return [row, kind, value, commit_ts] of the rows of each batch."""
    files = sorted((folder / "batches").glob("*.json"))
    return [json.loads(file.read_text("ascii")) for file in files]


@pytest.mark.nightly
@pytest.mark.parametrize("kills_twice", [False, True], ids=["once", "twice"])
def test_each_change_is_in_one_batch_though_the_driver_is_killed(
    tmp_path: Path, *, kills_twice: bool
) -> None:
    """The table first, then its changes; a batch that is run again has the same rows."""
    url = f"sqlite:///{tmp_path / 'stock.db'}"
    with tso_server(url) as server:
        check_stream(tmp_path, url, server.address, kills_twice=kills_twice)


class Stock:
    """The table, and what was written to it."""

    def __init__(self, tm: TransactionManager) -> None:
        """Make it."""
        self._tm = tm
        self.written: list[list[Any]] = []
        tm.create_table(TABLE, ["cf"], splits=[b"m"])

    def put(self, row: bytes, value: bytes | None) -> None:
        """Write a row; None deletes it."""
        with self._tm.begin() as tx:
            if value is None:
                tx.table(TABLE).delete(row)
            else:
                tx.table(TABLE).put(row, {b"cf:q": value})
        kind = "delete" if value is None else "put"
        self.written.append([row.decode(), kind, (value or b"").decode(), tx.commit_ts])


def check_stream(tmp_path: Path, url: str, tso: str, *, kills_twice: bool) -> None:
    """Let a query die with its driver; each change is in one batch."""
    with connect(url, tso) as tm:
        stock = Stock(tm)
        stock.put(b"a", b"1")
        stock.put(b"z", b"2")
        died = run(tmp_path, url, tso, 0, "behind")
        assert died[0] == -signal.SIGKILL, died[2]
        (state,) = batches(tmp_path)
        stock.put(b"a", b"3")
        stock.put(b"z", None)
        if kills_twice:
            died = run(tmp_path, url, tso, 1, "within")
            assert died[0] == -signal.SIGKILL, died[2]
            assert batches(tmp_path) == [state], "the batch that was run again has the same rows"
        stock.put(b"b", b"4")
        if kills_twice:  # and a query that ended well goes on where it was
            code, out, err = run(tmp_path, url, tso, -1)
            assert code == 0, err
        stock.put(b"c", b"5")
        code, out, err = run(tmp_path, url, tso, -1)
        assert code == 0, err
        assert json.loads(out) == {"snapshot": 3}
    check_batches(tmp_path, state, stock.written)


def check_batches(folder: Path, state: list[list[Any]], written: list[list[Any]]) -> None:
    """Check what a query has read that was killed behind its first batch."""
    found = batches(folder)
    assert sorted(state) == [
        ["a", "snapshot", "1", state[0][3]],
        ["z", "snapshot", "2", state[1][3]],
    ]
    changes = [row for batch in found[1:] for row in batch]
    assert sorted(changes, key=lambda row: row[3]) == written[2:]
    newest = [max((row[3] for row in batch), default=0) for batch in found if batch]
    assert newest == sorted(newest), "windows follow one another"
