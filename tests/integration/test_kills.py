"""SIGKILL at every named step of the commit protocol and at random instants (I8, I9).

Clients, the oracle and the compactor die while the others work on.  Afterwards every client's log
is held against the store, and one compaction must leave nothing of the dead.
"""

from __future__ import annotations

import faulthandler
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import omidpy
from compactor.run.plan import STEPS as COMPACTION_STEPS
from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.contract import in_threads
from tests.machines.processes import ServerProcess
from tests.machines.workload import (
    COMMIT_STEPS,
    DEADLINE_S,
    ROOT,
    Auditor,
    ClientProcess,
    Plan,
    check_clean,
    open_bank,
)

pytestmark = [pytest.mark.integration, pytest.mark.in_memory]

POST_COMMIT_MODES = ("async", "sync", "none")
TELLERS = 3
KILLED = -9

COMPACT_AND_DIE = """
import os, signal, sys
from compactor.run.local import compact
from omidpy.storage.sqlite import SqliteStore
from tests.machines.workload import NO_GRACES

path, step = sys.argv[1:]

def kill(name):
    if name == step:
        os.kill(os.getpid(), signal.SIGKILL)

compact(SqliteStore(path), NO_GRACES, on_step=kill)
"""


def reachable_step(mode: str, number: int) -> str:
    """Return a step that a client of this post-commit mode comes by."""
    steps: Sequence[str] = COMMIT_STEPS
    if mode == "none":
        steps = [s for s in steps if s not in ("shadow-cells-written", "completed")]
    return steps[number % len(steps)]


class Bank:
    """A store, its server, and the deaths so far."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.path = folder / "bank.db"
        self.url = f"sqlite:///{self.path}"
        self.rng = random.Random(seed)
        self.server = ServerProcess(self.url)
        self.address = self.server.address
        self.deaths: Counter[str] = Counter()
        self.clients = 0
        self._mutex = threading.Lock()
        with omidpy.connect(self.url, tso=self.address) as tm:
            open_bank(tm)

    def restart_oracle(self) -> None:
        """Kill the oracle and start another in its place."""
        self.server.kill()
        self.server.close()
        self.server = ServerProcess(self.url, listen=self.address)
        assert self.server.address == self.address
        self.deaths["oracle"] += 1

    def plan(self) -> tuple[Plan, int | None]:
        """Return the next client's plan, and the lines after which somebody else kills it."""
        with self._mutex:
            number = self.clients
            self.clients += 1
            mode = POST_COMMIT_MODES[number % len(POST_COMMIT_MODES)]
            name, seed = f"client {number}", self.rng.randrange(2**32)
            if number % 3 == 2:
                return Plan(name, seed, mode), self.rng.randrange(4, 40)
            step = reachable_step(mode, number // 3)
            return Plan(name, seed, mode, step, self.rng.randrange(1, 5)), None

    def employ(self, deaths: int) -> None:
        """Let one client after another work and die."""
        for _ in range(deaths):
            plan, lines = self.plan()
            with ClientProcess(self.url, self.address, self.folder, plan) as client:
                if lines is None:
                    client.read_on()
                else:
                    client.kill_after(lines)
                errors = (self.folder / f"{plan.name}.err").read_text()
                assert client.wait() == KILLED, f"{plan}: {errors}"
            with self._mutex:
                self.deaths[plan.step or "random"] += 1

    def compact_and_die(self, step: str) -> None:
        """Run a compactor that dies at a step, if it has something to do there."""
        ended = subprocess.run(
            [sys.executable, "-W", "error", "-c", COMPACT_AND_DIE, str(self.path), step],
            cwd=ROOT,
            timeout=DEADLINE_S,
            check=False,
        )
        assert ended.returncode in (0, KILLED)
        self.deaths["compactor"] += ended.returncode == KILLED

    def audit(self) -> int:
        """Compare the store with the clients' logs; return the number of transfers."""
        with omidpy.connect(self.url, tso=self.address, post_commit="none") as tm:
            return Auditor(tm, self.folder).check()


@contextmanager
def bank(folder: Path, seed: int) -> Iterator[Bank]:
    """Open a bank for the length of a block."""
    opened = Bank(folder, seed)
    try:
        yield opened
    finally:
        opened.server.close()


def kill_round(bank: Bank, *, times: int) -> None:
    """Kill three clients and a half as often for each teller, the oracle and the compactor."""

    def clients() -> None:
        bank.employ(times * 7 // 2)

    def others() -> None:
        for _ in range(times):
            before = bank.deaths["compactor"]
            while bank.deaths["compactor"] == before:
                bank.compact_and_die(bank.rng.choice(COMPACTION_STEPS))
            bank.restart_oracle()

    in_threads([*([clients] * TELLERS), others], deadline_s=DEADLINE_S * 3)


def run_kills(folder: Path, *, rounds: int, seed: int, times: int) -> None:
    """Kill, audit, compact, audit, for some rounds."""
    # The traceback that pytest prints of whatever takes minutes would only confuse here.
    faulthandler.cancel_dump_traceback_later()
    with bank(folder, seed) as opened:
        for _ in range(rounds):
            kill_round(opened, times=times)
            transfers = opened.audit()
            # A new epoch is above everything that the dead wrote.
            opened.restart_oracle()
            store = SqliteStore(opened.path)
            check_clean(store)
            store.close()
            assert opened.audit() == transfers, "the compaction changed what is shown"
        assert opened.deaths.total() >= (TELLERS * (times * 7 // 2) + 2 * times) * rounds
        assert set(COMMIT_STEPS) | {"random", "oracle", "compactor"} == set(opened.deaths)


def test_two_dozen_kills_lose_nothing(tmp_path: Path) -> None:
    """Whoever dies wherever: what was acknowledged is kept, and what was left is cleaned up."""
    run_kills(tmp_path, rounds=1, seed=1, times=2)


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("seed", range(2, 6))
def test_a_thousand_kills_lose_nothing(tmp_path: Path, seed: int) -> None:
    """Four banks, five rounds each: the store is aged by each round before the next."""
    run_kills(tmp_path, rounds=5, seed=seed, times=4)


@pytest.mark.parametrize(
    "mode",
    [
        "async",
        pytest.param("sync", marks=pytest.mark.nightly),
        pytest.param("none", marks=pytest.mark.nightly),
    ],
)
def test_a_client_with_its_oracle_inside_dies_at_every_step(tmp_path: Path, mode: str) -> None:
    """One process is both; the next one takes the store over, a new epoch begun."""
    url = f"sqlite:///{tmp_path}/bank.db"
    for number in range(len(COMMIT_STEPS)):
        plan = Plan(f"client {number}", number, mode, reachable_step(mode, number), nth=3)
        with ClientProcess(url, "-", tmp_path, plan) as client:
            client.read_on()
            errors = (tmp_path / f"{plan.name}.err").read_text()
            assert client.wait() == KILLED, f"{plan}: {errors}"
    with omidpy.connect(url, post_commit="none") as tm:
        assert Auditor(tm, tmp_path).check() > 0
        # This connect began a new epoch, above everything that the dead wrote.
        check_clean(tm.store)
        Auditor(tm, tmp_path).check()
