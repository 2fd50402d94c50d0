"""A storm: hundreds of clients in processes of their own, of which every tenth is killed.

Each transaction moves money between two accounts and writes an entry of its own, in two families of
another table.  A client appends to its log what it was about to do and what it was told, one line
each, before it goes on, so that a log survives its client:

    start ATTEMPT START_TS
    committed ATTEMPT START_TS COMMIT_TS
    aborted ATTEMPT START_TS

Clients are forked by a nursery, `python -m tests.machines.storm PLAN`, which has imported
everything that they need.  A mortal one kills itself at a step of the commit protocol, or has a
watcher that kills it after a number of transactions, wherever it is by then.

`Remains` is what is left in the end: cells as the store holds them, read without any of the
client's code.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, Self

import msgspec

import omidpy
from omidpy.errors import TransactionAborted
from omidpy.manager import TransactionManager
from omidpy.storage.base import Store
from tests.machines.workload import COMMIT_STEPS, ROOT

ACCOUNTS: Final = "storm_accounts"
JOURNAL: Final = "storm_journal"
BALANCE: Final = b"cf:balance"
ENTRY: Final = b"cf:entry"
NOTE: Final = b"other:note"
ACCOUNT_COUNT: Final = 1000
INITIAL: Final = 1000
ROLLBACK_SHARE: Final = 0.03
FLUSH_SHARE: Final = 0.1
POST_COMMIT_MODES: Final = ("async", "sync", "none")
STEPS: Final = (*COMMIT_STEPS, None)
"""Where the mortal die, in turn; None: wherever it may be."""


class Plan(msgspec.Struct, frozen=True):
    """A storm."""

    store: str
    tso: str
    folder: str
    client_count: int
    each: int
    """Transactions of a client that lives."""
    at_once: int
    seed: int = 1

    def is_mortal(self, number: int) -> bool:
        """Say whether a client is to be killed."""
        return number % 10 == 0


def account(number: int) -> bytes:
    """Return the row of an account."""
    return b"account %04d" % number


def open_accounts(tm: TransactionManager) -> None:
    """Create the tables and pay in."""
    tm.create_table(ACCOUNTS, ["cf"], splits=[account(ACCOUNT_COUNT // 2)])
    tm.create_table(JOURNAL, ["cf", "other"], splits=[b"0050"])
    with tm.begin() as tx:
        for number in range(ACCOUNT_COUNT):
            tx.table(ACCOUNTS).put(account(number), {BALANCE: b"%d" % INITIAL})


# -- clients ---------------------------------------------------------------------------------------


class _Client:
    """Does transactions until it has done enough, or dies."""

    def __init__(self, plan: Plan, number: int, pulse: int) -> None:
        self.plan = plan
        self.number = number
        self.rng = random.Random(plan.seed * 1_000_003 + number)
        self.pulse = pulse
        """Whoever counts its transactions reads there; -1 if nobody does."""
        path = Path(plan.folder) / f"{number:04d}.log"
        self.log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.dies_at = _dies_at(number) if plan.is_mortal(number) else None
        self.dies_in = self.rng.randrange(plan.each // 2)
        self.attempt = 0

    def work(self) -> None:
        """Do every transaction."""
        mode = POST_COMMIT_MODES[self.number // 10 % 3]
        if self.dies_at in ("shadow-cells-written", "completed"):
            mode = "sync"
        with omidpy.connect(self.plan.store, tso=self.plan.tso, post_commit=mode) as tm:
            tm.session.on_step = self.reach
            while self.attempt < self.plan.each:
                self.transfer(tm)
                self.attempt += 1
                if self.pulse >= 0:
                    os.write(self.pulse, b".")

    def reach(self, step: str) -> None:
        """Die, if it is time."""
        if step == self.dies_at and self.attempt >= self.dies_in:
            os.kill(os.getpid(), signal.SIGKILL)

    def note(self, *words: object) -> None:
        """Append to the log."""
        os.write(self.log, (" ".join(map(str, words)) + "\n").encode())

    def transfer(self, tm: TransactionManager) -> None:
        """Move money, and note what came of it."""
        rng = self.rng
        source, target = rng.sample(range(ACCOUNT_COUNT), 2)
        amount = rng.randrange(1, 20)
        try:
            with tm.begin() as tx:
                accounts, journal = tx.table(ACCOUNTS), tx.table(JOURNAL)
                row = journal_row(self.number, self.attempt)
                keys = [account(source), account(target)]
                balances = {key: int(data[BALANCE]) for key, data in accounts.rows(keys)}
                journal.put(row, {ENTRY: b"%d %d %d" % (source, target, amount), NOTE: b"draft"})
                if rng.random() < FLUSH_SHARE:
                    tx.flush()
                journal.put(row, {NOTE: b"final"})
                accounts.put(keys[0], {BALANCE: b"%d" % (balances[keys[0]] - amount)})
                accounts.put(keys[1], {BALANCE: b"%d" % (balances[keys[1]] + amount)})
                if rng.random() < ROLLBACK_SHARE or self.must_roll_back():
                    tx.flush()
                    tx.set_rollback_only()
                self.note("start", self.attempt, tx.start_ts)
        except TransactionAborted:
            self.note("aborted", self.attempt, tx.start_ts)
        else:
            self.note("committed", self.attempt, tx.start_ts, tx.commit_ts)

    def must_roll_back(self) -> bool:
        """Say whether it dies when it rolls back, and when that is."""
        return self.dies_at == "rolled-back" and self.attempt >= self.dies_in


def _dies_at(number: int) -> str | None:
    return STEPS[number // 10 % len(STEPS)]


def journal_row(number: int, attempt: int) -> bytes:
    """Return the journal's row of one attempt of one client."""
    return b"%04d/%06d" % (number, attempt)


def _fork(plan: Plan, number: int) -> int:
    """Start a client, and a watcher if it is to die by somebody else's hand."""
    is_watched = plan.is_mortal(number) and _dies_at(number) is None
    heart, pulse = os.pipe() if is_watched else (-1, -1)
    pid = os.fork()
    if pid == 0:
        _be(_Client(plan, number, pulse))
    if is_watched:
        os.close(pulse)
        if os.fork() == 0:
            _watch(pid, heart, beats=random.Random(number).randrange(1, plan.each // 2))
        os.close(heart)
    return pid


def _watch(pid: int, heart: int, *, beats: int) -> None:
    """Kill a client after some of its transactions."""
    while beats and os.read(heart, 1):
        beats -= 1
    if not beats:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _be(client: _Client) -> None:
    code = 1
    try:
        client.work()
        code = 0
    finally:
        if code:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        os._exit(code)


def main(plan_json: str) -> None:
    """Let clients live and die, some at once; print how each ended."""
    plan = msgspec.json.decode(plan_json, type=Plan)
    waiting = list(range(plan.client_count))
    alive: dict[int, int] = {}
    while waiting or alive:
        while waiting and len(alive) < plan.at_once:
            number = waiting.pop(0)
            alive[_fork(plan, number)] = number
        pid, status = os.wait()
        if pid in alive:
            print(alive.pop(pid), os.waitstatus_to_exitcode(status), flush=True)


def rage(plan: Plan) -> Counter[int]:
    """Let the storm pass; return how many clients ended with which exit code."""
    command = [sys.executable, "-m", "tests.machines.storm", msgspec.json.encode(plan).decode()]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    codes: dict[int, int] = {}
    for line in ended.stdout.splitlines():
        number, code = map(int, line.split())
        codes[number] = code
    mortals = {number for number in range(plan.client_count) if plan.is_mortal(number)}
    died = {number for number, code in codes.items() if code == -signal.SIGKILL}
    assert died == mortals, "clients that did not end as they should"
    return Counter(codes.values())


# -- what the clients were told --------------------------------------------------------------------


class Told(NamedTuple):
    """What the clients' logs say, by journal row."""

    committed: dict[bytes, tuple[int, int]]
    """(start_ts, commit_ts)."""
    aborted: dict[bytes, int]
    """start_ts."""
    open: dict[bytes, int]
    """The same of those that were killed before they were told anything."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read every client's log."""
        told = cls({}, {}, {})
        for path in folder.glob("*.log"):
            for line in path.read_text().splitlines():
                what, attempt, *times = line.split()
                row = journal_row(int(path.stem), int(attempt))
                if what == "start":
                    told.open[row] = int(times[0])
                    continue
                del told.open[row]
                if what == "committed":
                    told.committed[row] = (int(times[0]), int(times[1]))
                else:
                    told.aborted[row] = int(times[0])
        return told

    def highest_start(self) -> int:
        """Return the newest transaction of the storm."""
        starts = [start_ts for start_ts, _ in self.committed.values()]
        return max([*starts, *self.aborted.values(), *self.open.values()])


# -- what is left ----------------------------------------------------------------------------------

_PREFIX: Final = b"\x00\xc2\x80"
_SUFFIX: Final = b"\xc2\x80"
_COMMIT_KEY_BYTES: Final = 9
_STEP: Final = 50
_Name = tuple[bytes, bytes, int]


class Remains:
    """The cells of the storm's tables as they are, and the rows of the commit table."""

    def __init__(self, store: Store) -> None:
        self.data: dict[str, dict[_Name, bytes]] = {}
        """Table -> (row, column, version) -> value."""
        self.shadows: dict[str, dict[_Name, int]] = {}
        """The same with the commit timestamp that its shadow cell says."""
        for table in (ACCOUNTS, JOURNAL):
            data, shadows = self.data.setdefault(table, {}), self.shadows.setdefault(table, {})
            for row, family, qualifier, version, value in _cells(store, table):
                if qualifier.startswith(_PREFIX) and qualifier.endswith(_SUFFIX):
                    column = family + b":" + qualifier[len(_PREFIX) : -len(_SUFFIX)]
                    shadows[row, column, version] = int.from_bytes(value)
                else:
                    data[row, family + b":" + qualifier, version] = value
        self.entries = {
            int.from_bytes(row[1:])
            for row, *_ in _cells(store, "OMID_COMMIT_TABLE")
            if len(row) == _COMMIT_KEY_BYTES
        }

    def check(self, told: Told, horizon: int) -> None:
        """Hold what is left to what was told, and to the horizon."""
        assert horizon >= told.highest_start(), "the storm is not below the horizon"
        assert not {start_ts for start_ts in self.entries if start_ts <= horizon}
        for table, data in self.data.items():
            shadows = self.shadows[table]
            assert not shadows.keys() - data.keys(), "shadow cells without a cell"
            assert not {name for name in data if name[2] <= horizon} - shadows.keys(), "unhealed"
        self._check_journal(told)
        self._check_accounts(told)

    def _check_journal(self, told: Told) -> None:
        """See every committed entry whole, at its timestamps, and no other."""
        seen: dict[bytes, dict[bytes, tuple[bytes, int, int]]] = defaultdict(dict)
        for (row, column, version), value in self.data[JOURNAL].items():
            assert column not in seen[row], f"two versions of {row!r}"
            commit_ts = self.shadows[JOURNAL][row, column, version]
            seen[row][column] = (value, version - version % _STEP, commit_ts)
        for row, times in told.committed.items():
            assert row in seen, f"{row!r} was committed and is lost"
            assert {entry[1:] for entry in seen[row].values()} == {times}, f"{row!r} is torn"
        assert not seen.keys() - told.committed.keys() - told.open.keys(), "aborted, and there"
        for row, columns in seen.items():
            assert columns.keys() == {ENTRY, NOTE}, f"half of {row!r}"
            assert columns[NOTE][0] == b"final"
            assert len({entry[1:] for entry in columns.values()}) == 1, f"{row!r} is torn"

    def _check_accounts(self, told: Told) -> None:
        """See of each account what the last transfer that names it left there."""
        balances = dict.fromkeys(range(ACCOUNT_COUNT), INITIAL)
        last: dict[int, int] = defaultdict(int)
        for (_, column, version), value in self.data[JOURNAL].items():
            if column == ENTRY:
                source, target, amount = map(int, value.split())
                balances[source] -= amount
                balances[target] += amount
                for number in (source, target):
                    last[number] = max(last[number], version - version % _STEP)
        newest: dict[bytes, tuple[int, bytes]] = {}
        for (row, _, version), value in self.data[ACCOUNTS].items():
            newest[row] = max(newest.get(row, (0, b"")), (version - version % _STEP, value))
        assert newest.keys() == {account(number) for number in balances}
        for number, balance in balances.items():
            start_ts, value = newest[account(number)]
            assert int(value) == balance, f"account {number}"
            assert number not in last or start_ts == last[number], f"account {number}"
        assert sum(balances.values()) == ACCOUNT_COUNT * INITIAL

    def values(self, table: str) -> dict[bytes, dict[bytes, bytes]]:
        """Return what a reader of now must see: of each column the newest version."""
        shown: dict[bytes, dict[bytes, bytes]] = defaultdict(dict)
        for (row, column, _), value in sorted(self.data[table].items()):
            shown[row][column] = value
        return dict(shown)


def _cells(store: Store, table: str) -> Iterator[tuple[bytes, bytes, bytes, int, bytes]]:
    for cell in chain.from_iterable(chain.from_iterable(store.scan(table))):
        yield cell.row, cell.family, cell.qualifier, cell.version, cell.value


if __name__ == "__main__":
    main(sys.argv[1])
