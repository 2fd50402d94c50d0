"""A disk that refuses what the system took, and then the power goes: no commit is lost.

The system says so once.  The sync behind that succeeds, and promises only what was written since.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

import omidpy
from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.contract import keys_of
from tests.machines.lost_pages import LosingDisk
from tests.machines.workload import ROOT

pytestmark = pytest.mark.integration

CLIENT: Final = """
import logging, os, sys, threading, time
import omidpy
from omidpy.errors import OmidError

logging.disable(logging.CRITICAL)
url, failures, first, count, failing = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])

def die():
    # The device does not get well, and somebody starts it all anew.
    while os.stat(failures).st_size > failing - 2:
        time.sleep(0.001)
    os._exit(0)

with omidpy.connect(url, post_commit="sync") as tm:
    if "t" not in tm.tables():
        tm.create_table("t", families=["cf"])
    for number in range(first, first + count):
        tx = tm.begin()
        # More than a transaction keeps back: cells that are written and not synced.
        for part in range(30):
            tx.table("t").put(b"%04d/%02d" % (number, part), {b"cf:a": bytes(100_000)})
        if number == first + 1:
            with open(failures, "w") as file:
                file.write("x" * failing)
            if failing > 1:
                threading.Thread(target=die, daemon=True).start()
        try:
            tx.commit()
        except OmidError:
            if not isinstance(tm.outcome(tx), omidpy.Committed):
                continue
        print(number, flush=True)
"""


def _acknowledged(disk: LosingDisk, path: Path, first: int, count: int, failing: int) -> list[int]:
    """Let a process commit, its second commit on a failing disk; return what it was told."""
    done = subprocess.run(
        [
            *(sys.executable, "-c", CLIENT, f"sqlite:///{path}", str(disk.folder / "failures")),
            *map(str, (first, count, failing)),
        ],
        cwd=ROOT,
        env=disk.environment,
        check=True,
        stdout=subprocess.PIPE,
        timeout=120,
    )
    return [int(number) for number in done.stdout.split()]


def _found(path: Path) -> set[int]:
    """Return which transactions a store has; none of them in part."""
    with closing(omidpy.connect(f"sqlite:///{path}")) as tm, tm.begin() as tx:
        rows = [row for row, _ in tx.table("t").scan()]
    numbers = {int(row[:4]) for row in rows}
    assert len(rows) == 30 * len(numbers)
    return numbers


def test_what_is_acknowledged_behind_a_failed_sync_outlives_the_power(tmp_path: Path) -> None:
    """The oracle writes its batch again; what clients wrote before it was lost with the sync."""
    disk = LosingDisk(tmp_path / "disk")
    told = _acknowledged(disk, tmp_path / "store.db", 0, 4, failing=1)
    assert disk.failures_left() == 0
    assert told[-1:] == [3]
    assert _found(disk.found("store.db", tmp_path / "found")) >= set(told)


def test_a_process_that_comes_later_knows_of_a_failed_sync(tmp_path: Path) -> None:
    """The system tells a process nothing of what failed before it opened the file."""
    disk = LosingDisk(tmp_path / "disk")
    path = tmp_path / "store.db"
    told = _acknowledged(disk, path, 0, 4, failing=100)
    assert disk.failures_left()
    assert told == [0]
    disk.fail(0)
    told += _acknowledged(disk, path, 10, 3, failing=0)
    assert told == [0, 10, 11, 12]
    assert _found(disk.found("store.db", tmp_path / "found")) >= set(told)


NON_DURABLE: Final = """
import os, sys
from pathlib import Path
from omidpy.model import FamilySchema, TableSchema
from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.contract import put

path, failures, step = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
store = SqliteStore(path)
if step != "later":
    store.create_table(TableSchema("t", [FamilySchema(b"cf")]))
    store.write({"t": [put(b"durable", 1)]}, durable=True)
    store.close()
    store = SqliteStore(path)
    store.write({"t": [put(b"first", 1)]})  # which syncs the header of the log
    failures.write_text("x")
    size = 7_000_000 if step == "long" else 1000
    store.write({"t": [put(b"unsynced %d" % n, 1, bytes(size)) for n in range(3)]})
    if step == "closed":
        store.close()
    os._exit(0)
store.write({"t": [put(b"later", 1)]}, durable=True)
os._exit(0)
"""


@pytest.mark.parametrize("step", ["long", "closed"])
def test_a_log_whose_move_failed_is_no_ground_for_durable_writes(tmp_path: Path, step: str) -> None:
    """It is moved once it is long, or with the last connection, behind writes nobody syncs."""
    disk = LosingDisk(tmp_path / "disk")
    path = tmp_path / "store.db"
    for one in (step, "later"):
        subprocess.run(
            [sys.executable, "-c", NON_DURABLE, str(path), str(disk.folder / "failures"), one],
            cwd=ROOT,
            env=disk.environment,
            check=True,
            timeout=120,
        )
        assert disk.failures_left() == 0
    with closing(SqliteStore(disk.found("store.db", tmp_path / "found"))) as store:
        assert b"later" in keys_of(store.scan("t"))
