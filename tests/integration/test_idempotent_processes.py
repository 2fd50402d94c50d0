"""Processes that do the same work under the same keys, and are killed: each piece is done once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import omidpy
from omidpy.tx.transaction import Transaction
from tests.machines.processes import ROOT, tso_server

pytestmark = pytest.mark.integration

COUNT: Final = 24
STEPS: Final = ("before-flush", "flushed", "decided", "shadow-cells-written", "completed")
LONGEST_S: Final = 120

WORK: Final = """
import json, os, random, signal, sys
import omidpy

url, tso, step, seed, count = sys.argv[1:]
rng = random.Random(int(seed))
left = rng.randrange(1, 8)

def reach(name):
    global left
    left -= name == step
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

with omidpy.connect(url, tso=tso, post_commit=rng.choice(["async", "sync"])) as tm:
    tm.session.on_step = reach

    @tm.transactional(idempotency_key=lambda name: name)
    def work(tx, name):
        rows = tx.table("t")
        for row in (name, b"all-" + name):
            rows.put(row, {b"cf:n": b"%d" % (int(rows.row(row).get(b"cf:n", b"0")) + 1)})
        return "ran"

    names = [b"%d" % number for number in range(int(count))]
    rng.shuffle(names)
    found = [work(name) for name in names]
    print(json.dumps(found.count("ran")))
"""


def start(url: str, tso: str, step: str, seed: int) -> subprocess.Popen[bytes]:
    """Start a process that dies at a step, or does all that is left."""
    return subprocess.Popen(
        [sys.executable, "-c", WORK, url, tso, step, str(seed), str(COUNT)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_processes_that_die_at_each_step_have_done_it_once(tmp_path: Path) -> None:
    """Three at a time; also those whose commits were decided, and nobody heard."""
    url = f"sqlite:///{tmp_path / 's.db'}"
    with tso_server(url) as server, omidpy.connect(url, tso=server.address) as tm:
        tm.create_table("t", ["cf"])
        deaths = 0
        for number, step in enumerate(STEPS):
            children = [start(url, server.address, step, 3 * number + one) for one in range(3)]
            for child in children:
                _, error = child.communicate(timeout=LONGEST_S)
                assert child.returncode in (0, -9), error.decode()
                deaths += child.returncode == -9
        assert deaths > len(STEPS)
        last = start(url, server.address, "never", 99)
        out, error = last.communicate(timeout=LONGEST_S)
        assert last.returncode == 0, error.decode()
        with tm.begin(read_only=True) as tx:
            rows = {key: row[b"cf:n"] for key, row in tx.table("t").scan()}
        assert len(rows) == 2 * COUNT
        assert set(rows.values()) == {b"1"}
        assert json.loads(out) < COUNT, "some were done by those who died"

        @tm.transactional(idempotency_key=lambda name: name)
        def again(tx: Transaction, name: bytes) -> None:
            raise AssertionError(f"{name!r} was done before, not by {tx}")

        found = [again(b"%d" % number) for number in range(COUNT)]
        assert all(isinstance(one, omidpy.Committed) for one in found)
