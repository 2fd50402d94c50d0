"""A stream into a table by a real Spark, whose driver is killed: each batch is written once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from omidpy.base.tables import KEYS_TABLE
from omidpy.connect import connect
from omidpy.tx.keys import RUNS, STREAM_MARK
from tests.machines.frames_stream import TABLE
from tests.machines.processes import ROOT, tso_server

pytestmark = [pytest.mark.integration, pytest.mark.spark]

LONGEST_S: Final = 280


def run(folder: Path, *words: object) -> tuple[int, str]:
    """Run the query in a process of its own; return its code and what it complained of."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    with (folder / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.machines.frames_stream", str(folder), *map(str, words)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=err,
        )
        try:
            code = process.wait(LONGEST_S)
        finally:
            process.kill()
            process.wait()
    return code, (folder / "err").read_text()[-4000:]


def add_input(folder: Path, number: int) -> None:
    """Give the query one more batch: 1 for each of three rows."""
    (folder / "input").mkdir(exist_ok=True)
    lines = [json.dumps({"id": one, "n": 1}) + "\n" for one in "abc"]
    hidden = folder / f"{number}.part"
    hidden.write_text("".join(lines))
    hidden.replace(folder / "input" / f"{number}.json")


def check_sink(folder: Path, url: str, tso: str, kind: str, deaths: list[tuple[int, str]]) -> None:
    """Let a query die with its driver, again and again; each batch is written once.

    Counters tell: what is written twice counts twice.  What replaces rows has their commits told.
    """
    with connect(url, tso) as tm:
        tm.create_table(TABLE, ["cf"], splits=[b"b"])

        def counts() -> list[int]:
            table = tm.begin(read_only=True).table(TABLE)
            if kind == "overwrite":
                return [len(table.cells(row, b"cf:n")) for row in (b"a", b"b", b"c")]
            return [table.counter_get(row, b"cf:n") for row in (b"a", b"b", b"c")]

        for at, (number, how) in enumerate(deaths):
            add_input(folder, at)
            code, err = run(folder, url, tso, kind, number, how)
            assert code == -signal.SIGKILL, err
            assert counts() == [at + (how == "behind")] * 3
        add_input(folder, len(deaths))
        code, err = run(folder, url, tso, kind, -1)
        assert code == 0, err
        assert counts() == [len(deaths) + 1] * 3
        if kind in ("format", "each"):
            ((_, cells),) = tm.begin(read_only=True).table(KEYS_TABLE).scan()
            number, run_id, before = cells[RUNS].removeprefix(STREAM_MARK).split(b" ")
            # Spark tells which run it is, and no two are called the same.
            assert (int(number), len(run_id), len(before)) == (len(deaths), 36, 36)
            assert (run_id == before) == (deaths[-1][1] == "before")


TWICE: Final = [(0, "before"), (1, "behind")]


@pytest.mark.parametrize(
    ("kind", "deaths"),
    [
        pytest.param("format", [(0, "behind")], marks=pytest.mark.nightly),
        pytest.param("format", TWICE, marks=pytest.mark.nightly),
        pytest.param("each", [(0, "behind"), (1, "before")], marks=pytest.mark.nightly),
        pytest.param("fence", TWICE, marks=pytest.mark.nightly),
        pytest.param("overwrite", TWICE, marks=pytest.mark.nightly),
    ],
    ids=["sink", "sink-twice", "each-batch", "sink-fence", "overwrite"],
)
def test_each_batch_is_written_once_though_the_driver_is_killed(
    tmp_path: Path, kind: str, deaths: list[tuple[int, str]]
) -> None:
    """As a sink, by a function, with a fence, and where each batch replaces the rows."""
    url = f"sqlite:///{tmp_path / 'sink.db'}"
    with tso_server(url) as server:
        check_sink(tmp_path, url, server.address, kind, deaths)
