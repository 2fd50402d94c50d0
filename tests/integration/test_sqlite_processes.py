"""One file, many processes: nothing lost, nothing half, nobody waiting for the dead."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.model import FamilySchema, TableSchema
from omidpy.storage.sqlite import SqliteStore
from omidpy.storage.sqlite.lock import process_state
from omidpy.testing.contract import keys_of, put
from tests.machines.scripts import DEADLINE_S, Child

pytestmark = pytest.mark.integration


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the store is."""
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """Return a store with one table."""
    store = SqliteStore(path)
    store.create_table(TableSchema("t", [FamilySchema(b"cf")]))
    yield store
    store.close()


PRELUDE = """
import os, sys, threading
from omidpy.errors import StorageUnavailable
from omidpy.model import Column, FamilySchema, TableSchema
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.contract import put
store = SqliteStore(sys.argv[1])
"""

INCREMENT = (
    PRELUDE
    + """
done = 0
print("ready", flush=True)
sys.stdin.readline()
while done < int(sys.argv[2]):
    ((cell,),) = store.get("t", [b"counter"], max_versions=1)
    mutation = put(b"counter", cell.version + 1, b"%d" % (int(cell.value) + 1))
    done += store.check_and_mutate(
        "t", b"counter", Column(b"cf", b"q"), cell.value, mutation, durable=done % 10 == 0
    )
"""
)


def test_eight_writers_lose_no_increment(store: SqliteStore, path: Path) -> None:
    """Compare-and-set among processes is what every commit rests on."""
    store.write({"t": [put(b"counter", 1, b"0")]})
    children = [Child(INCREMENT, path, 60) for _ in range(8)]
    for child in children:
        assert child.line() == "ready"
    for child in children:
        child.say("go")
    for child in children:
        with child:
            assert child.wait() == 0
    (cells,) = store.get("t", [b"counter"])
    assert [int(cell.value) for cell in cells] == list(range(480, -1, -1))


WRITE_ROWS = (
    PRELUDE
    + """
version = int(sys.argv[2])
print("ready", flush=True)
while True:
    version += 1
    puts = [Put(b"cf", b"%d" % column, version, bytes(2000)) for column in range(8)]
    store.write({"t": [RowMutation(row, puts) for row in (b"a", b"b")]}, durable=version % 3 == 0)
"""
)


def test_a_killed_writer_leaves_whole_rows(store: SqliteStore, path: Path) -> None:
    """All cells of a mutation or none, and the right to write free at once."""
    generator = random.Random(1)
    for round_number in range(8):
        with Child(WRITE_ROWS, path, round_number * 100_000) as child:
            assert child.line() == "ready"
            deadline_s = time.monotonic() + generator.uniform(0.0, 0.05)
            while time.monotonic() < deadline_s:
                store.get("t", [b"a"], max_versions=1)
            child.send(signal.SIGKILL)
            assert child.wait() == -signal.SIGKILL
        store.write({"t": [put(b"after", 1 + round_number)]})
        for row in store.get("t", [b"a", b"b"]):
            versions = [cell.version for cell in row]
            assert all(versions.count(version) == 8 for version in set(versions))
    assert len(store.get("t", [b"after"])[0]) == 8
    assert store.get("t", [b"a"]) != [[]]


HOLD = (
    PRELUDE
    + """
def hold(connection):
    connection.execute("DELETE FROM cells_1")
    print("holding", flush=True)
    sys.stdin.readline()

store._file.write(hold, durable=False)
print("done", flush=True)
sys.stdin.readline()
"""
)


def test_a_stopped_writer_is_reported(store: SqliteStore, path: Path) -> None:
    """The message names it and how to go on; once it goes on, so does everybody."""
    store.write({"t": [put(b"r", 1)]})
    impatient = SqliteStore(path, lock_timeout_s=0.2)
    with Child(HOLD, path) as child:
        assert child.line() == "holding"
        child.send(signal.SIGSTOP)
        wait_for_state(child.process.pid, "T")
        before_s = time.monotonic()
        with pytest.raises(StorageUnavailable, match="stopped") as caught:
            impatient.write({"t": [put(b"s", 1)]})
        assert time.monotonic() - before_s < DEADLINE_S / 2
        assert f"kill -CONT {child.process.pid}" in str(caught.value)
        assert keys_of(impatient.scan("t")) == [b"r"]
        child.send(signal.SIGCONT)
        child.say("go on")
        assert child.line() == "done"
        impatient.write({"t": [put(b"s", 1)]})
        assert keys_of(store.scan("t")) == [b"s"]
    impatient.close()


def test_a_writer_killed_in_its_transaction_is_rolled_back(store: SqliteStore, path: Path) -> None:
    """Its deletion did not happen, and nobody waits for it."""
    store.write({"t": [put(b"r", 1)]})
    with Child(HOLD, path) as child:
        assert child.line() == "holding"
        child.send(signal.SIGKILL)
        child.wait()
        store.write({"t": [put(b"s", 1)]})
    assert keys_of(store.scan("t")) == [b"r", b"s"]


LOCK = (
    PRELUDE
    + """
held = store.lock("oracle", purpose="serving on port 1")
print("held", flush=True)
sys.stdin.readline()
"""
)


def test_a_process_lock_dies_with_its_holder(store: SqliteStore, path: Path) -> None:
    """A crashed oracle must not need an operator's hand."""
    with Child(LOCK, path) as child:
        assert child.line() == "held"
        with pytest.raises(StorageUnavailable, match="serving on port 1") as caught:
            store.lock("oracle", purpose="the second")
        assert f"process {child.process.pid} " in str(caught.value)
        child.send(signal.SIGSTOP)
        wait_for_state(child.process.pid, "T")
        with pytest.raises(StorageUnavailable, match="stopped"):
            store.lock("oracle", purpose="the second")
        child.send(signal.SIGKILL)
        child.wait()
        store.lock("oracle", purpose="the second").release()


CREATE = """
import sys
from omidpy.storage.sqlite import SqliteStore
print("ready", flush=True)
for path in sys.stdin:
    store = SqliteStore(path.strip())
    print(store.store_id, flush=True)
    store.close()
"""


def test_processes_that_create_a_store_together_share_it(tmp_path: Path) -> None:
    """The first makes it, the others find it, whoever that is."""
    children = [Child(CREATE) for _ in range(6)]
    try:
        assert {child.line() for child in children} == {"ready"}
        for number in range(15):
            for child in children:
                child.say(str(tmp_path / f"{number}.db"))
            assert len({child.line() for child in children}) == 1
    finally:
        for child in children:
            child.__exit__(None, None, None)


ON_A_SMALL_DISK = (
    PRELUDE
    + """
store.create_table(TableSchema("t", [FamilySchema(b"cf")]))
try:
    for number in range(1000):
        store.write({"t": [put(b"%04d" % number, 1, bytes(20_000))]}, durable=number % 2 == 0)
except StorageUnavailable as error:
    print(error, flush=True)
rows = [row for page in store.scan("t") for row in page]
print(len(rows) == number and all(len(row[0].value) == 20_000 for row in rows), flush=True)
"""
)


def test_a_full_disk_is_reported_and_what_was_written_stays(tmp_path: Path) -> None:
    """On a file system of two megabytes, mounted for this test's process alone."""
    if shutil.which("unshare") is None or os.getuid() != 0:
        pytest.skip("needs root and `unshare` to mount a small file system")
    script = tmp_path / "script.py"
    script.write_text(ON_A_SMALL_DISK)
    command = (
        f"mount -t tmpfs -o size=2m tmpfs {tmp_path}/disk || exit 99; "
        f'exec "$0" {script} {tmp_path}/disk/store.db'
    )
    (tmp_path / "disk").mkdir()
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, os.sys.executable],  # type: ignore[attr-defined]  # re-exported
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
    )
    if done.returncode in (1, 99) and "unshare" in done.stderr + done.stdout:
        pytest.skip(f"needs the right to mount: {done.stderr}")
    said, is_whole = done.stdout.splitlines()
    assert "free space" in said
    assert is_whole == "True"


def wait_for_state(pid: int, state: str) -> None:
    """Wait until the system shows a process in a state."""
    deadline_s = time.monotonic() + DEADLINE_S
    while process_state(pid) != state:
        assert time.monotonic() < deadline_s
        os.sched_yield()
