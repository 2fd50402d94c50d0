"""Chains of empty steps by ours, and bare commits of as many bytes.

A chain is submitted, each of its steps is a durable write, and so is its end.  Steps do nothing,
so that nothing but the bookkeeping is measured.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from bench.fate.machines import LONGEST_S, STEPS, WORKERS
from bench.processes import ROOT
from omidpy.fate import Done, Fate, OperationHandle, Step, TableFateStore, step
from omidpy.fate.operation import Operation, new_id
from omidpy.fate.step import Answer, StepContext, encode_step
from omidpy.fate.store import FateStore
from omidpy.fate.table.rows import insertion
from omidpy.storage.sqlite import SqliteStore

POOLS: Final = {"general": WORKERS}


@step(version=1, namespace="bench")
class Empty(Step):
    """A step that does nothing, with so many more to come."""

    left: int

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Do nothing."""
        del tx, env
        return Empty(self.left - 1) if self.left > 1 else None


@step(version=1, namespace="bench")
class Stays(Step):
    """A step whose first executor never comes back from it."""

    folder: str

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Stay, if nobody has been here."""
        del tx, env
        mark = Path(self.folder) / "begun"
        if mark.exists():
            return Done()
        mark.touch()
        signal.pause()
        return None


class Ours:
    """Our executor on a store, in this process."""

    def __init__(self, store: FateStore) -> None:
        """Start it."""
        self._fate = Fate(None, store, POOLS).start()
        self._pool = ThreadPoolExecutor(WORKERS)

    def chains(self, count: int) -> float:
        """Run chains from as many threads as there are workers; seconds until the last end."""
        began_s = time.perf_counter()
        submitted = [self._pool.submit(self._submit) for _ in range(count)]
        handles = [one.result() for one in submitted]
        for handle in handles:
            handle.result(LONGEST_S)
        seconds = time.perf_counter() - began_s
        for handle in handles:
            handle.delete()
        return seconds

    def lone(self, count: int) -> list[float]:
        """Run chains one after another; the seconds of each."""
        seconds = []
        for _ in range(count):
            began_s = time.perf_counter()
            handle = self._submit()
            handle.result(LONGEST_S)
            seconds.append(time.perf_counter() - began_s)
            handle.delete()
        return seconds

    def close(self) -> None:
        """Stop it."""
        self._pool.shutdown()
        self._fate.close()

    def _submit(self) -> OperationHandle:
        return self._fate.submit("CHAIN", Empty(STEPS))


def bare_commits(path: Path, count: int) -> float:
    """Commit the bytes of so many steps durably, one after another; the seconds of all.

    A commit replaces what changes of an operation's row and adds a step, as one of ours does.
    """
    raw = encode_step(Empty(STEPS))
    new = insertion(_some_operation(raw))
    changed = [put for put in new.puts if put.family == b"txadmin"]
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(
            "CREATE TABLE cells (row BLOB, family BLOB, qualifier BLOB, value BLOB, "
            "PRIMARY KEY (row, family, qualifier)) WITHOUT ROWID"
        )
        began_s = time.perf_counter()
        for number in range(count):
            cells = [(new.row, *put[:2], put.value) for put in changed]
            cells.append((new.row, b"repos", b"%d" % (number % STEPS), raw))
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?)", cells)
            connection.execute("COMMIT")
        return time.perf_counter() - began_s
    finally:
        connection.close()


def recovery_s(folder: Path, *, lease_s: float) -> float:
    """Kill an executor in the middle of a step; seconds until another one is done with it."""
    folder.mkdir()
    path = folder / "killed.db"
    words = [sys.executable, "-m", "bench.fate.chains", str(path), str(lease_s)]
    killed = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL)
    store = SqliteStore(path)
    try:
        _wait_for((folder / "begun").exists)
        (operation,) = TableFateStore(store).in_order()
        with Fate(None, TableFateStore(store), POOLS, lease_s=lease_s) as fate:
            killed.kill()
            began_s = time.perf_counter()
            fate.get(operation.id).result(LONGEST_S)
            return time.perf_counter() - began_s
    finally:
        killed.kill()
        killed.wait()
        store.close()


def _some_operation(raw: bytes) -> Operation:
    return Operation(id=new_id(), name="CHAIN", write_id="0" * 32, stack=(raw,))


def _wait_for(is_there: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + LONGEST_S
    while not is_there():
        if time.monotonic() > deadline_s:
            raise OSError("nothing came of it")
        time.sleep(0.01)


if __name__ == "__main__":
    file, lease = Path(sys.argv[1]), float(sys.argv[2])
    with Fate(None, TableFateStore(SqliteStore(file)), POOLS, lease_s=lease) as doomed:
        doomed.submit("STAYS", Stays(str(file.parent))).result()
