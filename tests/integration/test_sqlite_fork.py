"""A store around `fork`: SQLite's connections and locks must not be shared by two processes.

The forking happens in processes of the tests' own, as pytest has threads.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.model import FamilySchema, TableSchema
from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.contract import keys_of, put
from tests.integration.test_sqlite_processes import HOLD, wait_for_state
from tests.machines.scripts import Child

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
import os, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads and fork
from omidpy.errors import OmidError, StorageUnavailable
from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.contract import keys_of, put

def open_files():
    folder = "/proc/self/fd"
    links = []
    for name in os.listdir(folder):
        try:
            links.append(os.readlink(f"{folder}/{name}"))
        except FileNotFoundError:
            pass  # the listing's own descriptor
    return [link for link in links if "store.db" in link]

def in_child(work):
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            code = int(not work())
        finally:
            os._exit(code)
    return pid

def code_of(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

store = SqliteStore(sys.argv[1], lock_timeout_s=0.3)
"""

DESCRIPTORS = (
    PRELUDE
    + """
store.write({"t": [put(b"r", 1)]})
assert store.get("t", [b"r"]) != [[]]
assert open_files()
print(code_of(in_child(lambda: open_files() == [])), open_files(), flush=True)
assert store.get("t", [b"r"]) != [[]]
"""
)


def test_nothing_of_the_file_is_open_on_either_side_of_a_fork(
    store: SqliteStore, path: Path
) -> None:
    """A descriptor closed by the child would drop locks that the parent holds."""
    del store
    with Child(DESCRIPTORS, path) as child:
        assert child.line() == "0 []"
        assert child.wait() == 0


BOTH_WRITE = (
    PRELUDE
    + """
import time
stop = threading.Event()
errors = []

def busy(name):
    number = 0
    try:
        while not stop.is_set():
            number += 1
            store.write({"t": [put(b"thread%d-%06d" % (name, number), 1)]})
            list(store.scan("t", page_rows=10))[-1:]
    except BaseException as error:
        errors.append(error)

def child(number):
    assert open_files() == []
    for index in range(10):
        store.write({"t": [put(b"child%02d-%02d" % (number, index), 1)]})
    return len(store.get("t", [b"child%02d-%02d" % (number, i) for i in range(10)])) == 10

store = SqliteStore(sys.argv[1])
threads = [threading.Thread(target=busy, args=(name,)) for name in range(3)]
for thread in threads:
    thread.start()
codes = [code_of(in_child(lambda: child(number))) for number in range(20)]
stop.set()
for thread in threads:
    thread.join()
print(set(codes), errors, flush=True)
"""
)


def test_both_sides_of_a_fork_go_on_reading_and_writing(store: SqliteStore, path: Path) -> None:
    """With threads of the parent in the middle of calls."""
    with Child(BOTH_WRITE, path) as child:
        assert child.line() == "{0} []"
        assert child.wait() == 0
    children = [key for key in keys_of(store.scan("t")) if key.startswith(b"child")]
    assert len(children) == 200


LOCK = (
    PRELUDE
    + """
held = store.lock("oracle", purpose="the parent")

def child():
    held.release()
    try:
        store.lock("oracle", purpose="the child")
    except StorageUnavailable as error:
        return str(os.getppid()) in str(error)
    return False

print(code_of(in_child(child)), flush=True)
try:
    SqliteStore(sys.argv[1]).lock("oracle", purpose="again")
except StorageUnavailable:
    print("still held", flush=True)
in_child(lambda: print("forked", flush=True) or os.read(0, 1))
threading.Event().wait()
"""
)


def test_a_child_neither_has_nor_frees_its_parents_lock(store: SqliteStore, path: Path) -> None:
    """Nor does it keep the lock when the parent is dead: a standby must be able to take over."""
    with Child(LOCK, path) as child:
        assert child.line() == "0"
        assert child.line() == "still held"
        assert child.line() == "forked"
        with pytest.raises(StorageUnavailable, match="the parent"):
            store.lock("oracle", purpose="the standby")
        child.send(signal.SIGKILL)
        child.wait()
        store.lock("oracle", purpose="the standby").release()


STOPPED_HOLDER = (
    PRELUDE
    + """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
try:
    store.write({"t": [put(b"r", 1)]})
except StorageUnavailable:
    print("refused", flush=True)
in_child(lambda: os.read(0, 1))
print("forked", flush=True)
signal.sigwait([signal.SIGUSR1])
store = SqliteStore(sys.argv[1])
store.write({"t": [put(b"s", 1)]})
print("written", flush=True)
"""
)


def test_a_fork_beside_a_waiting_writer_leaks_no_right_to_write(
    store: SqliteStore, path: Path
) -> None:
    """A thread asleep in `flock` may get the lock after the fork; a child must not keep it."""
    with Child(HOLD, path) as holder:
        assert holder.line() == "holding"
        holder.send(signal.SIGSTOP)
        wait_for_state(holder.process.pid, "T")
        with Child(STOPPED_HOLDER, path) as child:
            assert child.line() == "refused"
            assert child.line() == "forked"
            holder.send(signal.SIGCONT)
            holder.say("go on")
            assert holder.line() == "done"
            store.write({"t": [put(b"q", 1)]})
            child.send(signal.SIGUSR1)
            assert child.line() == "written"
            assert keys_of(store.scan("t")) == [b"q", b"s"]


EXEC = (
    PRELUDE
    + """
import subprocess
store.write({"t": [put(b"r", 1)]})
held = store.lock("oracle", purpose="the parent")
listing = subprocess.run(
    ["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True, close_fds=False
)
print("store.db" in listing.stdout, flush=True)
"""
)


def test_no_descriptor_outlives_exec(store: SqliteStore, path: Path) -> None:
    """A helper program started by the oracle must not hold its lock."""
    del store
    with Child(EXEC, path) as child:
        assert child.line() == "False"
        assert child.wait() == 0
