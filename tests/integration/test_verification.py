"""The workloads with real client processes on a file, killed at random, and judged.

What `omidpy verify` does for a user, on the smallest real thing: SQLite and a `tso-server`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from contextlib import closing
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import pytest

import omidpy
from omidpy.cli import main
from omidpy.cli.store import verify as verify_command
from omidpy.errors import ConfigError, OracleUnavailable, UsageError
from omidpy.opening import open_store
from omidpy.reading.visibility import sort_row
from omidpy.storage.base import Put, RowMutation
from omidpy.testing import verification
from omidpy.testing.anomalies import GARBAGE_READ, Anomaly
from omidpy.testing.verification import TABLE_PREFIX, Judgement, Plan, verify
from tests.machines.processes import ROOT, tso_server
from tests.machines.proven import proven
from tests.machines.waiting import wait_for

LONGEST_S: Final = 60.0

pytestmark = [pytest.mark.integration, pytest.mark.in_memory]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the address of a store that does not exist yet."""
    return f"sqlite:///{tmp_path}/store.db"


def tables(url: str) -> set[str]:
    """Return the tables of a store that a run made."""
    with closing(open_store(url)) as store:
        return {one.name for one in store.tables() if one.name.startswith(TABLE_PREFIX)}


def test_a_short_run_with_kills_is_clean(url: str) -> None:
    """Clients and oracle die at random; nothing that was acknowledged is lost or torn."""
    proven(
        Plan(url, duration_s=8, client_count=3, kill=frozenset({"clients", "oracle"}), seed=3),
        lambda judgement: (
            judgement.clients_killed > 0
            and judgement.oracle_killed > 0
            and judgement.overlap.committed > 100
            and judgement.overlap.conflicts > 0
            and judgement.overlap.concurrent_pairs > 100
        ),
    )
    assert tables(url) == set()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
def test_a_long_run_with_kills_is_clean(url: str, seed: int) -> None:
    """Some minutes each: hundreds of kills."""
    kill = frozenset({"clients", "oracle"})
    judgement = verify(Plan(url, duration_s=180, client_count=6, kill=kill, seed=seed))
    assert judgement.is_clean
    assert judgement.rounds >= 9


def test_damage_is_found_and_named(url: str) -> None:
    """A planted bug: somebody overwrites committed cells in place, past the protocol."""
    stop = threading.Event()

    def damage() -> None:
        with closing(open_store(url)) as store:
            while not stop.wait(0.05):
                for schema in store.tables():
                    if not schema.name.endswith("_registers"):
                        continue
                    for page in store.scan(schema.name):
                        # The newest of each row: it is what the next reader sees.
                        for cells in filter(None, (sort_row(row).data for row in page)):
                            cell = max(cells, key=attrgetter("version"))
                            put = Put(cell.family, cell.qualifier, cell.version, b"1234567")
                            store.write({schema.name: [RowMutation(cell.row, (put,))]})

    vandal = threading.Thread(target=damage)
    with tso_server(url) as server:
        plan = Plan(url, tso=server.address, duration_s=3, client_count=2, keep=True)
        vandal.start()
        try:
            judgement = verify(plan)
        finally:
            stop.set()
            vandal.join()
    assert GARBAGE_READ in {anomaly.name for anomaly in judgement.anomalies}
    assert not judgement.is_clean
    assert set(judgement.kept_tables) == tables(url) != set()


def test_a_client_that_fails_by_itself_is_a_problem(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose clients crash must not pass as clean."""
    monkeypatch.setattr(verification, "_POST_COMMIT_MODES", ("async", "no such mode"))
    judgement = verify(Plan(url, duration_s=3, client_count=2))
    assert judgement.anomalies == []
    (problem,) = judgement.problems
    assert problem.startswith("client 1 ended with 1: ")
    assert "no such mode" in problem
    assert not judgement.is_clean


def test_a_run_in_which_nothing_commits_proves_nothing(url: str) -> None:
    """An empty history has no anomaly, and is no success."""
    with pytest.raises(omidpy.OmidError, match="no client committed anything"):
        verify(Plan(url, duration_s=1e-9, client_count=1))
    assert tables(url) == set()


def test_an_oracle_that_is_there_already_is_pointed_out(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one would stand by for ever."""
    monkeypatch.setattr(verification, "_START_S", 2.0)
    with tso_server(url) as server:
        assert server.address
        with pytest.raises(OracleUnavailable, match="name it with --tso"):
            verify(Plan(url, duration_s=1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kill": frozenset({"oracle"}), "tso": "h:1"}, "--kill oracle together with --tso h:1"),
        ({"kill": frozenset({"me"})}, "--kill me: kill clients, oracle or both"),
        ({"store": "memory:"}, "--store memory: lives in one process"),
        ({"duration_s": 0}, "--duration 0: give seconds above 0"),
        ({"client_count": 0}, "--clients must be at least 1, not 0"),
        ({"client_count": 10**9}, "--clients must be 1000 at most"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(options: dict[str, Any], message: str) -> None:
    """Before anything is started; the message names the option and the remedy."""
    with pytest.raises(UsageError, match=message):
        Plan(**{"store": "sqlite:///s.db", **options})


# -- the command -----------------------------------------------------------------------------------


def command(*words: str) -> int:
    """Run `omidpy verify` and return its exit code."""
    with pytest.raises(SystemExit) as exit_info:
        main(("verify", *words))
    code = exit_info.value.code
    assert isinstance(code, int | None)
    return code or 0


def test_the_command_prints_a_clean_verdict(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 0, and how much overlap there was; also where variables are for another oracle."""
    for name, value in (
        ("TSO_LISTEN", "0.0.0.0:24758"),
        ("TSO_ADVERTISE", "oracle:24758"),
        ("TSO_METRICS", "0.0.0.0:24759"),
        ("TSO_TLS_CERT", "/nowhere/oracle.pem"),
        ("TSO_LOG_FORMAT", "json"),
    ):
        monkeypatch.setenv(name, value)
    words = ("--store", url, "--duration", "2", "--clients", "2", "--seed", "7", "--json")
    assert command(*words) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["clean"], found["seed"], found["anomalies"]) == (True, 7, [])
    assert found["overlap"]["committed"] > 20
    assert tables(url) == set()


def test_the_command_prints_anomalies_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, with the operations that prove it."""
    anomaly = Anomaly(GARBAGE_READ, "it read 9: nobody wrote it", ("1/2",), ("1/2 read x = 9",))
    judgement = Judgement(7, anomalies=[anomaly], problems=["client 3 ended with 1: why"])
    monkeypatch.setattr(verify_command, "run", lambda *_, **__: judgement)
    assert command("--store", "sqlite:///s.db") == 1
    printed = capsys.readouterr().out
    assert "ANOMALY garbage read: it read 9: nobody wrote it\n    1/2 read x = 9\n" in printed
    assert "PROBLEM client 3 ended with 1: why\n" in printed


def test_the_command_refuses_what_it_cannot_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, one line."""
    assert command("--store", "sqlite:///s.db", "--tso", "h:1", "--kill", "oracle") == 2
    assert "leave --tso out" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_whoever_ends_a_run_ends_its_oracle(url: str, number: signal.Signals) -> None:
    """It had the store for ever, at an address that nobody was told of."""
    command = [sys.executable, "-c", "from omidpy.cli import main; main()", "verify"]
    with subprocess.Popen(
        [*command, "--store", url, "--duration", "60s", "--clients", "1"], cwd=ROOT
    ) as process:
        try:
            wait_for(lambda: len(tables(url)) > 3, LONGEST_S)
        finally:
            process.send_signal(number)
        assert process.wait(LONGEST_S) == -number
    if number != signal.SIGKILL:
        assert tables(url) == set()
    wait_for(partial(_has_no_oracle, url), LONGEST_S)


def _has_no_oracle(url: str) -> bool:
    """Say whether a client can decide by itself in a store."""
    try:
        omidpy.connect(url).close()
    except ConfigError:
        return False
    return True
