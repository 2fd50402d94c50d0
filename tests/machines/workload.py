"""A bank whose clients are killed, and the auditor who comes afterwards.

Each transaction of a client moves money between two accounts and writes an entry of its own into a
journal, in another table.  What a client was told is appended to its log, one line each, fsynced:

    start ATTEMPT                          it began to commit
    committed ATTEMPT START_TS COMMIT_TS   it was told so, or found it out
    aborted ATTEMPT                        certainly not committed
    unknown ATTEMPT                        it may find out later

`Auditor.check` holds the store to it: every acknowledged commit is there, whole and at its
commit_ts (I8), no acknowledged abort is (I9), balances are what the journal says, and no money was
made or lost.  After a compaction `check_clean` wants a store without leftovers.

A client is `python -m tests.machines.workload STORE TSO LOG PLAN`; it goes on until it dies by its
plan or its standard input ends.  TSO `-` is an oracle in its own process.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

import omidpy
from compactor.options import Options
from compactor.run.local import compact
from omidpy.errors import CommitOutcomeUnknown, OracleUnavailable, TransactionAborted
from omidpy.facts.commit_table import CommitTable
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, Cell, Committed, Timestamp
from omidpy.reading.visibility import sort_row
from omidpy.storage.base import Store
from omidpy.tx.transaction import Transaction

ROOT: Final = Path(__file__).parents[2]
DEADLINE_S: Final = 120.0

ACCOUNTS: Final = "accounts"
JOURNAL: Final = "journal"
BALANCE: Final = b"cf:balance"
ENTRY: Final = b"cf:entry"
NOTE: Final = b"other:note"
ACCOUNT_COUNT: Final = 12
INITIAL: Final = 1000

COMMIT_STEPS: Final = (
    "before-flush",
    "flushed",
    "decided",
    "shadow-cells-written",
    "completed",
    "rolled-back",
)
"""Every named step of the commit protocol at which a client can be made to die."""

NO_GRACES: Final = Options(grace_s=0.0, invalidation_grace_s=0.0, retention_s=0.0, should_wait=True)


class Plan(msgspec.Struct, frozen=True):
    """How one client behaves, and where it dies."""

    name: str
    seed: int
    post_commit: str = "async"
    step: str | None = None
    """Die at this step; None: somebody else kills it."""
    nth: int = 1
    """When the step is reached for the nth time."""


def account(number: int) -> bytes:
    """Return the row of an account."""
    return b"account %02d" % number


def open_bank(tm: TransactionManager) -> None:
    """Create the tables and pay in."""
    tm.create_table(ACCOUNTS, ["cf"], splits=[account(ACCOUNT_COUNT // 2)])
    tm.create_table(JOURNAL, ["cf", "other"], splits=[b"client 2", b"client 4"])
    with tm.begin() as tx:
        for number in range(ACCOUNT_COUNT):
            tx.table(ACCOUNTS).put(account(number), {BALANCE: b"%d" % INITIAL})


# -- a client --------------------------------------------------------------------------------------


class Log:
    """What a client was told, line by line, each durable before the client goes on."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, *words: object) -> None:
        """Append a line."""
        line = " ".join(map(str, words)) + "\n"
        os.write(self._descriptor, line.encode())
        os.fsync(self._descriptor)
        # The parent counts these, to choose when to kill.
        sys.stdout.write(line)
        sys.stdout.flush()


class Teller:
    """Moves money until it dies."""

    def __init__(self, tm: TransactionManager, plan: Plan, log: Log) -> None:
        self.tm = tm
        self.plan = plan
        self.log = log
        self.rng = random.Random(plan.seed)
        self.steps: Counter[str] = Counter()
        tm.session.on_step = self.reach

    def reach(self, step: str) -> None:
        """Die if the plan says so."""
        self.steps[step] += 1
        if step == self.plan.step and self.steps[step] == self.plan.nth:
            os.kill(os.getpid(), signal.SIGKILL)

    def work(self, attempt: int) -> None:
        """Try one transaction, and write down what became of it."""
        try:
            tx = self.tm.begin()
        except OracleUnavailable:
            return
        try:
            with tx:
                self.transfer(tx, attempt)
                if self.rng.random() < 0.1:
                    tx.flush()
                    tx.set_rollback_only()
                self.log.write("start", attempt)
        except TransactionAborted:
            self.log.write("aborted", attempt)
        except CommitOutcomeUnknown as error:
            self.log.write("unknown", attempt)
            self.find_out(error, attempt)
        else:
            self.log.write("committed", attempt, tx.start_ts, tx.commit_ts)

    def transfer(self, tx: Transaction, attempt: int) -> None:
        """Move money, write the journal, and look whether the bank is whole."""
        rng = self.rng
        source, target = rng.sample(range(ACCOUNT_COUNT), 2)
        amount = rng.randrange(1, 50)
        accounts, journal = tx.table(ACCOUNTS), tx.table(JOURNAL)
        row = journal_row(self.plan.name, attempt)
        journal.put(row, {ENTRY: b"%d %d %d" % (source, target, amount), NOTE: b"x"})
        if rng.random() < 0.3:
            tx.flush()
            journal.put(row, {NOTE: b"rewritten"})
        keys = [account(source), account(target)]
        balances = {key: int(data[BALANCE]) for key, data in accounts.rows(keys)}
        accounts.put(keys[0], {BALANCE: b"%d" % (balances[keys[0]] - amount)})
        accounts.put(keys[1], {BALANCE: b"%d" % (balances[keys[1]] + amount)})
        if rng.random() < 0.2:
            total = sum(int(data[BALANCE]) for _, data in accounts.scan())
            if total != ACCOUNT_COUNT * INITIAL:
                self.log.write("torn", attempt, tx.start_ts, total)

    def find_out(self, error: CommitOutcomeUnknown, attempt: int) -> None:
        """Ask once what became of it; undecided stays unknown."""
        match self.tm.outcome(error):
            case Committed(commit_ts):
                self.log.write("committed", attempt, error.start_ts, commit_ts)
            case Aborted():
                self.log.write("aborted", attempt)


def journal_row(name: str, attempt: int) -> bytes:
    """Return the journal's row of one attempt of one client."""
    return b"%s/%06d" % (name.encode(), attempt)


def connect(store: str, tso: str | None, post_commit: str) -> TransactionManager:
    """Connect, waiting for an oracle that is being started again."""
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            return omidpy.connect(store, tso=tso, post_commit=post_commit)
        except OracleUnavailable:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


def main(store: str, tso: str, log: str, plan_json: str) -> None:
    """Be a client."""
    plan = msgspec.json.decode(plan_json, type=Plan)
    stop = threading.Event()

    def watch_input() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=watch_input, daemon=True).start()
    address = None if tso == "-" else tso
    with connect(store, address, plan.post_commit) as tm:
        if address is None and not tm.tables():
            open_bank(tm)
        teller = Teller(tm, plan, Log(Path(log)))
        attempt = 0
        while not stop.is_set():
            teller.work(attempt)
            attempt += 1


class ClientProcess:
    """One client in a process of its own."""

    def __init__(self, store: str, tso: str, folder: Path, plan: Plan) -> None:
        self.plan = plan
        log = folder / f"{plan.name}.log"
        self._errors = (folder / f"{plan.name}.err").open("wb")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-W", "error", "-m", "tests.machines.workload"),
                *(store, tso, str(log), msgspec.json.encode(plan).decode()),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            assert stream is not None
            stream.close()

    def kill_after(self, lines: int) -> None:
        """Kill it as soon as it has written so many lines, wherever it is by then."""
        assert self.process.stdout is not None
        for _ in range(lines):
            if not self.process.stdout.readline():
                break
        self.process.kill()

    def read_on(self) -> None:
        """Take what it writes until it dies."""
        assert self.process.stdout is not None
        while self.process.stdout.readline():
            continue

    def wait(self) -> int:
        """Return its exit code, negative for a signal."""
        return self.process.wait(DEADLINE_S)


# -- the auditor -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """What the clients were told, by journal row."""

    committed: dict[bytes, tuple[int, int]]
    """(start_ts, commit_ts)."""
    aborted: set[bytes]
    open: set[bytes]
    """Begun to commit, with no answer before the client died."""
    torn: list[str]


def read_logs(folder: Path) -> Told:
    """Read every client's log; a last line that a death cut short says nothing."""
    told = Told({}, set(), set(), [])
    for path in folder.glob("*.log"):
        for line in path.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                continue
            what, attempt, *numbers = line.split()
            row = journal_row(path.stem, int(attempt))
            match what:
                case "start":
                    told.open.add(row)
                case "committed":
                    told.committed[row] = (int(numbers[0]), int(numbers[1]))
                case "aborted":
                    told.aborted.add(row)
                case "torn":
                    told.torn.append(f"{path.stem}: {line}")
    told.open.difference_update(told.committed, told.aborted)
    return told


class Auditor:
    """Compares what the store shows with what the clients were told."""

    def __init__(self, tm: TransactionManager, folder: Path) -> None:
        self.tm = tm
        self.told = read_logs(folder)

    def check(self) -> int:
        """Check I8, I9 and the books; return how many transfers there are."""
        told = self.told
        assert told.torn == [], "a client saw money made or lost"
        with self.tm.begin(read_only=True) as tx:
            journal = dict(tx.table(JOURNAL).scan(include_timestamp=True))
            accounts = dict(tx.table(ACCOUNTS).scan())
        lost = {row: times for row, times in told.committed.items() if row not in journal}
        assert lost == {}, "acknowledged commits that are not there (I8)"
        assert told.aborted.isdisjoint(journal), "acknowledged aborts that are there (I9)"
        for row, (_, commit_ts) in told.committed.items():
            times = {column: time for column, (_, time) in journal[row].items()}
            assert times == {ENTRY: commit_ts, NOTE: commit_ts}, f"{row!r} is not whole"
        balances = dict.fromkeys(range(ACCOUNT_COUNT), INITIAL)
        for data in journal.values():
            source, target, amount = map(int, data[ENTRY][0].split())
            balances[source] -= amount
            balances[target] += amount
        shown = {number: int(accounts[account(number)][BALANCE]) for number in balances}
        assert shown == balances, "the accounts and the journal disagree"
        assert sum(shown.values()) == ACCOUNT_COUNT * INITIAL
        return len(journal)


def leftovers(store: Store, tables: Iterable[str]) -> list[Cell]:
    """Return data cells without a shadow cell, and shadow cells without a data cell."""
    found: list[Cell] = []
    for table in tables:
        for page in store.scan(table):
            for cells in page:
                row = sort_row(cells)
                names = {(cell.family, cell.qualifier, cell.version) for cell in row.data}
                found += [
                    cell
                    for cell in row.data
                    if (cell.family, cell.qualifier, cell.version) not in row.shadows
                ]
                found += [
                    Cell(cells[0].row, *name, b"shadow") for name in row.shadows.keys() - names
                ]
    return found


def check_clean(store: Store, tables: Iterable[str] = (ACCOUNTS, JOURNAL)) -> Timestamp:
    """Compact once, and check that nothing of the dead is left below the horizon.

    Every client must be gone, and the oracle begun anew since, so that its low watermark is above
    all that they wrote.  Ranges are read whole: what arrived behind an earlier pass, and can never
    commit, is invisible to those that rest on its claims.
    """
    report = compact(store, replace(NO_GRACES, should_collect=True))
    assert not report.laggards, report.laggards
    entries = [row for page in CommitTable(store).scan(below=report.horizon + 1) for row in page]
    assert entries == [], f"commit entries at or below the horizon {report.horizon}"
    assert leftovers(store, tables) == []
    return Timestamp(report.horizon)


if __name__ == "__main__":
    main(*sys.argv[1:])
