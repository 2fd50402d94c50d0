"""Whatever runs for long logs JSON where it is asked to: every line is a document."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import omidpy
from compactor.shell.metrics import GAUGES
from omidpy.oracle.tcp import TcpOracle
from omidpy.recipes.export_queue import ExportQueue
from tests.machines.documents import environment
from tests.machines.processes import ServerProcess, tso_server
from tests.machines.waiting import wait_for

pytestmark = pytest.mark.integration

LONGEST_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Give a server that logs JSON, as its file of settings says, and serves metrics."""
    folder = tmp_path_factory.mktemp("json")
    config = folder / "tso.toml"
    config.write_text('log-format = "json"\n')
    words = ("--config", str(config), "--metrics", "127.0.0.1:0")
    with tso_server(f"sqlite:///{folder}/s.db", *words) as running:
        running.wait_for('"event": "listening"')
        yield running


def events(text: str) -> list[dict[str, Any]]:
    """Return the documents of a log."""
    return [json.loads(line) for line in text.splitlines()]


def address_of(server: ServerProcess) -> str:
    """Return where a server listens."""
    (found,) = [one["address"] for one in events(server.log) if one["event"] == "listening"]
    return str(found)


def store_of(server: ServerProcess) -> str:
    """Return the store that it serves."""
    (found,) = [one["store"] for one in events(server.log) if one["event"] == "answering"]
    return str(found)


@contextmanager
def command(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a verb of `omidpy` that logs JSON."""
    process = subprocess.Popen(
        ["omidpy", *words, "--log-format", "json"],
        env={**os.environ, **environment()},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Return what it has logged, told to stop."""
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0, said
    return events(said)


def test_exporters_and_executors_log_documents(server: ServerProcess) -> None:
    """With what they delivered, by the names of the metrics."""
    where = ("--store", store_of(server), "--tso", address_of(server))
    with omidpy.connect(store_of(server), tso=address_of(server)) as tm:
        queue = ExportQueue.create(tm, "q", buckets=1)
        with tm.begin() as tx:
            queue.add(tx, b"k", "one")
        folder = Path(store_of(server).removeprefix("sqlite:///")).parent / "out"
        folder.mkdir()
        with command("export", "run", "q", *where, "--to", f"jsonl:{folder}") as process:
            wait_for(lambda: queue.lag().entries == 0, LONGEST_S)
            said = ended(process)
    assert said[0]["event"] == "exporting"
    assert (said[-1]["event"], said[-1]["omidpy_export_exported_total"]) == ("stopped", 1)
    with command("fate", "run", *where) as process:
        assert process.stderr is not None
        assert json.loads(process.stderr.readline())["event"] == "running-operations"
        assert ended(process)[-1]["event"] == "stopped"


def test_a_console_logs_documents(server: ServerProcess) -> None:
    """What it says of where it listens is one, too."""
    words = ("--store", store_of(server), "--tso", address_of(server), "--listen", "127.0.0.1:0")
    with command("console", *words) as process:
        assert process.stderr is not None
        first = json.loads(process.stderr.readline())
        assert (first["event"], first["address"][:17]) == ("listening", "http://127.0.0.1:")


def test_a_compaction_logs_documents(server: ServerProcess) -> None:
    """Its end by the names of its metrics, and its failure as an event."""
    where = ("--store", store_of(server), "--tso", address_of(server))
    with command("compact", *where) as process:
        out, said = process.communicate(timeout=LONGEST_S)
        assert process.returncode == 0, said
        assert out.startswith("compaction done")
    (done,) = [one for one in events(said) if one["event"] == "compaction-done"]
    named = {f"omidpy_compaction_{name}" for name in GAUGES}
    assert named - done.keys() <= {
        "omidpy_compaction_commit_entries_growth_per_day",
        "omidpy_compaction_commit_entries",
        "omidpy_compaction_low_watermark_age_seconds",
        "omidpy_compaction_horizon_age_seconds",
    }
    assert done["omidpy_compaction_exit_code"] == 0
    with command("compact", "--store", store_of(server), "--tso", "127.0.0.1:1") as process:
        _, said = process.communicate(timeout=LONGEST_S)
        assert process.returncode == 1
    assert [one["event"] for one in events(said)][-1] == "compaction-failed"


@pytest.mark.parametrize(
    "words",
    [("compact",), ("console",), ("fate", "run"), ("export", "run", "q", "--to", "jsonl:x")],
)
def test_a_format_that_is_none_is_refused(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a store is opened, as what was asked wrongly."""
    from omidpy.cli import main

    with pytest.raises(SystemExit) as ended:
        main([*words, "--store", f"sqlite:///{tmp_path}/none.db", "--log-format", "xml"])
    assert ended.value.code == 2
    assert "'xml' is neither text nor json" in capsys.readouterr().err


def test_an_oracle_logs_documents_and_ends_with_its_numbers(server: ServerProcess) -> None:
    """Every line of it, from the first one to the last."""
    with closing(TcpOracle(address_of(server))) as oracle:
        oracle.begin()
    assert server.terminate() == 0
    found = events(server.log)
    assert {"metrics", "answering", "memory", "listening"} <= {one["event"] for one in found}
    *_, numbers, last = found
    assert (numbers["event"], last["event"]) == ("numbers", "stopped")
    assert numbers["tso_timestamp_allocation_total"] >= 1
    (answering,) = [one for one in found if one["event"] == "answering"]
    assert isinstance(answering["epoch"], int)
