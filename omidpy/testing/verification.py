"""Runs the workloads with many client processes on a real store, and judges what they saw.

What `omidpy verify` does.  It works in rounds, each on fresh tables, so that the memory for a
history stays bounded however long it runs; a round ends with a last look at everything, and its
tables go.  Clients, and the oracle if it was started here, are killed with SIGKILL at random.

The tables carry the prefix `omidpy_verify_`; nothing else of the store is touched.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Final

import msgspec

import omidpy
from omidpy.base.words.arguments import check_at_once
from omidpy.errors import NoSuchTable, OmidError, OracleUnavailable, UsageError
from omidpy.manager import TransactionManager
from omidpy.testing.anomalies import Anomaly, Overlap, overlap
from omidpy.testing.clients import Client, Workload, check, run, take_last_looks
from omidpy.testing.history import EventFile, Recorded, Recorder, Told, read_events, transactions
from omidpy.testing.verify_client import Assignment
from omidpy.testing.workloads import standard_workloads

TABLE_PREFIX: Final = "omidpy_verify_"
KILLABLE: Final = frozenset({"clients", "oracle"})
ROUND_S: Final = 20.0
"""The longest round: so much history is held in memory at once."""

_JUDGE: Final = 0
"""The number of the client that prepares a round and takes the last look."""

_CLIENT_LIFE_S: Final = 1.0
_ORACLE_LIFE_S: Final = 3.0
_LATEST_END_S: Final = 60.0
_LEAST_WORK_S: Final = 1.0
_LAST_LOOK_BUDGET_S: Final = 60.0
_START_S: Final = 30.0
_POST_COMMIT_MODES: Final = ("async", "sync", "none")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a verification runs: which workload, by how many clients, for how long."""

    store: str
    tso: str | None = None
    """None: start a `tso-server` for the time of the run."""
    duration_s: float = 30.0
    client_count: int = 4
    kill: frozenset[str] = frozenset()
    """`clients`, `oracle`, both or none."""
    seed: int = 0
    keep: bool = False
    """Leave the tables behind."""

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        if unknown := self.kill - KILLABLE:
            raise UsageError(f"--kill {','.join(sorted(unknown))}: kill clients, oracle or both")
        if "oracle" in self.kill and self.tso is not None:
            raise UsageError(
                f"--kill oracle together with --tso {self.tso}: only an oracle that this command "
                "started itself is killed; leave --tso out"
            )
        if self.store.startswith("memory:"):
            raise UsageError(
                f"--store {self.store} lives in one process, and the clients are several; use "
                "sqlite:///file.db or a cluster"
            )
        if self.duration_s <= 0:
            raise UsageError(f"--duration {self.duration_s}: give seconds above 0")
        check_at_once("--clients", self.client_count)


class Judgement(msgspec.Struct):
    """What a run found."""

    seed: int
    anomalies: list[Anomaly] = []
    problems: list[str] = []
    """Clients that ended by themselves with an error, which is no anomaly, but no success."""
    overlap: Overlap = msgspec.field(default_factory=Overlap)
    rounds: int = 0
    clients_killed: int = 0
    oracle_killed: int = 0
    seconds: float = 0.0
    kept_tables: list[str] = []

    @property
    def is_clean(self) -> bool:
        """Whether everything was as snapshot isolation promises."""
        return not self.anomalies and not self.problems


Note = Callable[[str], None]


def verify(plan: Plan, *, note: Note = lambda _: None) -> Judgement:
    """Run the workloads and judge them.

    Args:
        plan: What to run.
        note: Called with a line of progress.

    Raises:
        UsageError: the plan cannot be run.
        OmidError: the store or the oracle cannot be used, or nothing committed, so that nothing
            was proven.
    """
    started_s = time.monotonic()
    judgement = Judgement(plan.seed)
    with (
        _oracle(plan) as oracle,
        omidpy.connect(plan.store, tso=plan.tso or "store:") as tm,
        tempfile.TemporaryDirectory(prefix="omidpy-verify-") as folder,
    ):
        rng = random.Random(plan.seed)
        run_id = uuid.uuid4().hex[:8]
        round_count = ceil(plan.duration_s / ROUND_S)
        client_commits = 0
        for number in range(1, round_count + 1):
            name = f"{run_id}_{number}"
            round_ = _Round(plan, tm, oracle, judgement, Path(folder) / name, name, rng)
            round_.folder.mkdir()
            client_commits += round_.run(plan.duration_s / round_count)
            judgement.rounds = number
            done = judgement.overlap
            note(
                f"{time.monotonic() - started_s:.0f} s: {done.committed} committed, "
                f"{done.conflicts} conflicts, {judgement.clients_killed + judgement.oracle_killed} "
                f"kills, {len(judgement.anomalies)} anomalies"
            )
            if judgement.anomalies:
                break
    judgement.seconds = round(time.monotonic() - started_s, 3)
    if not client_commits:
        raise OmidError(
            "no client committed anything, so that nothing was proven: those counted as committed "
            "wrote the values to begin with; give it a longer --duration, or look at the oracle"
        )
    return judgement


class _Round:
    """One set of tables from creation to judgement."""

    def __init__(
        self,
        plan: Plan,
        tm: TransactionManager,
        oracle: _OwnOracle | None,
        judgement: Judgement,
        folder: Path,
        name: str,
        rng: random.Random,
    ) -> None:
        self.folder = folder
        self._plan = plan
        self._tm = tm
        self._oracle = oracle
        self._judgement = judgement
        self._prefix = TABLE_PREFIX + name
        self._rng = rng
        self._workloads = standard_workloads(self._prefix)
        self._last_number = _JUDGE
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def run(self, duration_s: float) -> int:
        """Prepare, work, kill, look and judge; return how much the clients committed."""
        try:
            with EventFile(self.folder / "judge.jsonl") as sink:
                recorder = Recorder(str(_JUDGE), sink)
                judge = Client(self._tm, recorder, random.Random(0), number=_JUDGE)
                for workload in self._workloads:
                    run(workload.prepare(judge))
                self._work(time.monotonic() + duration_s)
                history = self._looked_at(judge)
            return self._judge(history)
        finally:
            for process in self._processes.values():
                process.kill()
                process.wait()
            self._drop_tables()

    # -- client processes ----------------------------------------------------------------------

    def _work(self, until_s: float) -> None:
        for _ in range(self._plan.client_count):
            self._start_client(until_s)
        kills = self._kills(until_s - time.monotonic())
        pause = threading.Event()
        for after_s, victim in kills:
            if time.monotonic() + after_s >= until_s:
                break
            pause.wait(after_s)
            if victim == "oracle":
                assert self._oracle is not None, "the plan says so"
                self._oracle.kill()
                self._judgement.oracle_killed += 1
                self._oracle.start()
            else:
                self._kill_client(until_s)
        self._join(until_s)

    def _kills(self, duration_s: float) -> Iterator[tuple[float, str]]:
        """Yield (seconds after the one before, what to kill) for ever; nothing if nobody dies.

        Each victim has its turn within the first half of `duration_s`, before chance takes over, so
        that a short run kills them all.  Clients come first: an oracle may take as long to come
        back, on a busy machine, as a short run lasts.
        """
        lives = {"clients": _CLIENT_LIFE_S, "oracle": _ORACLE_LIFE_S}
        rates = {victim: 1 / lives[victim] for victim in sorted(self._plan.kill)}
        for victim in rates:
            pause_s = self._rng.expovariate(sum(rates.values()))
            yield min(pause_s, duration_s / (2 * len(rates))), victim
        while rates:
            victim = self._rng.choices(list(rates), list(rates.values()))[0]
            yield self._rng.expovariate(sum(rates.values())), victim

    def _start_client(self, until_s: float) -> None:
        self._last_number += 1
        number = self._last_number
        assignment = Assignment(
            store=self._plan.store,
            tso=self._plan.tso or "store:",
            prefix=self._prefix,
            number=number,
            seed=self._rng.randrange(2**63),
            until_s=until_s,
            least_s=min(_LEAST_WORK_S, self._plan.duration_s),
            post_commit=_POST_COMMIT_MODES[number % len(_POST_COMMIT_MODES)],
            history=str(self.folder / f"{number}.jsonl"),
        )
        with (self.folder / f"{number}.log").open("wb") as log:
            self._processes[number] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "omidpy.testing.verify_client"),
                    msgspec.json.encode(assignment).decode(),
                ],
                stdin=subprocess.DEVNULL,
                stderr=log,
                env=_environment(),
            )

    def _kill_client(self, until_s: float) -> None:
        alive = [number for number, one in self._processes.items() if one.poll() is None]
        if alive:
            process = self._processes[self._rng.choice(alive)]
            process.kill()
            process.wait()
            self._judgement.clients_killed += 1
            self._start_client(until_s)

    def _join(self, until_s: float) -> None:
        latest_s = until_s + _LATEST_END_S
        for number, process in self._processes.items():
            try:
                code = process.wait(max(latest_s - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                self._judgement.problems.append(
                    f"client {number} had not ended {_LATEST_END_S:.0f} s after its time"
                )
                continue
            if code > 0:
                lines = (self.folder / f"{number}.log").read_text("utf-8", "replace").splitlines()
                last = lines[-1] if lines else "it said nothing"
                self._judgement.problems.append(f"client {number} ended with {code}: {last}")

    # -- judgement -----------------------------------------------------------------------------

    def _looked_at(self, judge: Client) -> list[Recorded]:
        for attempt in self._tm.attempts(budget_s=_LAST_LOOK_BUDGET_S):
            with attempt:
                pass  # The oracle answers again.
        before = len(self._history())
        take_last_looks(judge, self._workloads, self._history())
        history = self._history()
        if len(history) < before + len(self._workloads):
            raise OracleUnavailable(
                "the oracle stopped answering during the last look, so that nothing was proven; "
                "run it again"
            )
        return history

    def _history(self) -> list[Recorded]:
        return transactions(read_events(sorted(self.folder.glob("*.jsonl"))))

    def _judge(self, history: list[Recorded]) -> int:
        found = overlap(history)
        total = self._judgement.overlap
        for name in found.__struct_fields__:
            setattr(total, name, getattr(total, name) + getattr(found, name))
        self._judgement.anomalies += check(self._workloads, history)
        by_judge = f"{_JUDGE}/"
        return sum(
            one.told is Told.COMMITTED and not one.name.startswith(by_judge) for one in history
        )

    def _drop_tables(self) -> None:
        for workload in self._workloads:
            if self._plan.keep:
                self._judgement.kept_tables.append(workload.table)
                continue
            self._drop(workload)

    def _drop(self, workload: Workload) -> None:
        try:
            self._tm.drop_table(workload.table)
        except NoSuchTable:
            return


def _environment() -> dict[str, str]:
    """Let child processes find the very package that runs here."""
    here = str(Path(omidpy.__file__).parents[1])
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


# -- an oracle of our own --------------------------------------------------------------------------


_OF_ANOTHER: Final = (
    *("TSO_LISTEN", "TSO_ADVERTISE", "TSO_METRICS", "TSO_TLS_", "TSO_INSECURE"),
    "TSO_LOG_FORMAT",
)
"""How the oracle is reached that these variables are for, as those of an image: it is not ours."""


_SERVER: Final = """
import os, signal, sys, threading

def watch():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=watch, daemon=True).start()
from tso.cli import main

sys.exit(main())
"""
"""A `tso-server` that ends when its standard input does, hence with the process that has the other
end: left alone it would have the store for ever."""


class _OwnOracle:
    """A `tso-server` that this run started, and may kill."""

    def __init__(self, store: str, log: Path) -> None:
        self._store = store
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start an instance, and return once it answers."""
        with self._log.open("wb") as log:
            self._process = process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _SERVER),
                    *("--store", self._store, "--listen", "127.0.0.1:0"),
                ],
                stdin=subprocess.PIPE,
                stderr=log,
                env={
                    name: value
                    for name, value in _environment().items()
                    if not name.startswith(_OF_ANOTHER)
                },
            )
        deadline_s = time.monotonic() + _START_S
        pause = threading.Event()
        while time.monotonic() < deadline_s and process.poll() is None:
            if b"listening on " in self._log.read_bytes():
                return
            pause.wait(0.02)
        said = self._log.read_text("utf-8", "replace").strip()
        raise OracleUnavailable(
            f"the tso-server that was started for {self._store} does not answer; if another one "
            f"serves this store, name it with --tso.  It said: {said or 'nothing'}"
        )

    def kill(self) -> None:
        """End the instance as a power failure would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None, "it was started so"
            self._process.stdin.close()

    def stop(self) -> None:
        """Let the instance drain."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_START_S)
            except subprocess.TimeoutExpired:
                self.kill()


@contextmanager
def _oracle(plan: Plan) -> Iterator[_OwnOracle | None]:
    """Run an oracle unless there is one."""
    if plan.tso is not None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="omidpy-verify-") as folder:
        oracle = _OwnOracle(plan.store, Path(folder) / "tso-server.log")
        try:
            oracle.start()
            yield oracle
            oracle.stop()
        finally:
            oracle.kill()
