"""Commits that are one write, when their process or the power goes: whole, or not there.

Processes with an oracle of their own are killed at random instants while they commit.  For a loss
of power the log is cut at every page, and in the middle of pages, as a disk may be found: what was
acknowledged lies before the cut that its sync allows.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

import omidpy
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.storage.sqlite import SqliteStore
from tests.machines.workload import ROOT

pytestmark = pytest.mark.integration

KILLS: Final = 12
THREADS: Final = 3
ROWS: Final = 4
COMMITS: Final = 25
PAGE_BYTES: Final = 4096
FRAME_BYTES: Final = PAGE_BYTES + 24
LOG_HEAD_BYTES: Final = 32

WRITER: Final = """
import os, sys, threading
import omidpy

url, first, threads, rows = sys.argv[1], *map(int, sys.argv[2:])
tm = omidpy.connect(url)

def write(number):
    name = first + number
    while True:
        tx = tm.begin()
        for row in range(rows):
            tx.table("t").put(b"%08d/%d" % (name, row), {b"cf:a": b"1", b"cf:b": b"2"})
        tx.table("u").put(b"%08d" % name, {b"cf:a": b"3"})
        os.write(1, b"asked %d\\n" % name)
        tx.commit()
        os.write(1, b"done %d\\n" % name)
        name += threads

for number in range(threads):
    threading.Thread(target=write, args=(number,)).start()
"""


def found_in(path: Path) -> dict[int, int]:
    """Return how many cells each transaction has in a store, shadow cells among them.

    Whoever reads them must find each whole: a snapshot sees as many as there are data cells.
    """
    cells: dict[int, int] = {}
    with closing(SqliteStore(path)) as store:
        assert list(store.scan(COMMIT_TABLE)) == []
        for table in ("t", "u"):
            for page in store.scan(table):
                for cell in (cell for row in page for cell in row):
                    name = int(cell.row[:8])
                    cells[name] = cells.get(name, 0) + 1
    return cells


WHOLE: Final = 2 * (2 * ROWS + 1)
"""Cells of a transaction in the store: those of two columns of each row, and one, twice."""


def test_killed_processes_leave_whole_commits(tmp_path: Path) -> None:
    """I8, I9: what was told is there, and what is there is whole."""
    path = tmp_path / "store.db"
    dice = random.Random(29)
    with omidpy.connect(f"sqlite:///{path}") as tm:
        tm.create_table("t", ["cf"])
        tm.create_table("u", ["cf"])
    asked: set[int] = set()
    done: set[int] = set()
    for number in range(KILLS):
        words = (f"sqlite:///{path}", str(number * 1_000_000), str(THREADS), str(ROWS))
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            asked.add(int(writer.stdout.readline().split()[1]))
            time.sleep(dice.uniform(0.01, 0.3))
            writer.kill()
            for line in writer.stdout:
                word, _, name = line.partition(" ")
                if line.endswith("\n"):
                    (asked if word == "asked" else done).add(int(name))
        assert writer.returncode == -signal.SIGKILL
    found = found_in(path)
    assert set(found.values()) == {WHOLE}
    assert done <= set(found) <= asked
    assert len(done) > KILLS
    with omidpy.connect(f"sqlite:///{path}") as tm, tm.begin(read_only=True) as tx:
        assert sum(len(row) for _, row in tx.table("t").scan()) == 2 * ROWS * len(found)
        assert sum(len(row) for _, row in tx.table("u").scan()) == len(found)


def test_a_loss_of_power_leaves_whole_commits(tmp_path: Path) -> None:
    """Each cut of the log is a prefix of the commits, with all that the disk had acknowledged."""
    path = tmp_path / "store.db"
    log = path.with_name("store.db-wal")
    image = tmp_path / "image"
    with omidpy.connect(f"sqlite:///{path}") as tm:
        tm.create_table("t", ["cf"])
        tm.create_table("u", ["cf"])
    # Whoever closed it last has moved the log into the file.
    with omidpy.connect(f"sqlite:///{path}") as tm:
        base = path.read_bytes()
        sizes = []
        for name in range(COMMITS):
            with tm.begin() as tx:
                for row in range(ROWS):
                    tx.table("t").put(b"%08d/%d" % (name, row), {b"cf:a": b"1", b"cf:b": b"2"})
                tx.table("u").put(b"%08d" % name, {b"cf:a": b"3"})
            sizes.append(log.stat().st_size)
        written = log.read_bytes()
        assert path.read_bytes() == base, "the log was moved into the file while we wrote"
    cuts = [*range(LOG_HEAD_BYTES, len(written) + 1, FRAME_BYTES), len(written)]
    cuts += [cut + FRAME_BYTES // 2 for cut in cuts[:-1:3]]
    seen = set()
    for number, cut in enumerate(cuts):
        folder = image / str(number)
        folder.mkdir(parents=True)
        (folder / "store.db").write_bytes(base)
        (folder / "store.db-wal").write_bytes(written[:cut])
        found = found_in(folder / "store.db")
        acknowledged = sum(size <= cut for size in sizes)
        assert set(found.values()) <= {WHOLE}, cut
        assert sorted(found) == list(range(len(found))), cut
        assert len(found) >= acknowledged, cut
        seen.add(len(found))
        shutil.rmtree(folder)
    assert seen == set(range(COMMITS + 1))
