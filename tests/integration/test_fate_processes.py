"""Several processes run the operations of one store, in a file, on HBase and in ZooKeeper.

Each step is run by one of them.  One that is stopped past its lease loses what it was running:
nothing of what it writes afterwards lands, it says so, and it runs other operations.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import textwrap
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.fate import Fate, Locks, Status, TableFateStore, ZooKeeperFateStore
from omidpy.fate.operation import FateId, Operation
from omidpy.fate.store import FateStore
from omidpy.fate.table.store import FATE_TABLE
from omidpy.storage.hbase.thrift2 import Thrift2Store
from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.fate.basics import an_operation
from tests.machines.documents import environment
from tests.machines.hbase import HBase
from tests.machines.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.in_memory]

LONGEST_S: Final = 90.0
CHAINS: Final = 10
FIRST: Final = b'{"step":"limbo.First","version":1,"fields":{}}'
COUNT: Final = b'{"step":"limbo.Count","version":1,"fields":{"left":2}}'

LIMBO: Final = """
    import os, pathlib, time
    from omidpy.fate import Done, Step, step

    @step(version=1)
    class First(Step):
        def call(self, tx, env):
            pathlib.Path(f"{tx.id}-begun-by-{os.getpid()}").touch()
            while not pathlib.Path(f"{tx.id}-may-end").exists():
                time.sleep(0.01)
            return Last(os.getpid())

    @step(version=1)
    class Last(Step):
        first: int

        def call(self, tx, env):
            return Done([self.first, os.getpid()])

    @step(version=1)
    class Count(Step):
        left: int

        def call(self, tx, env):
            with pathlib.Path("counted").open("a") as file:
                file.write(f"{tx.id} {self.left} {os.getpid()}\\n")
            return Count(self.left - 1) if self.left else None
"""


@dataclass(frozen=True)
class Place:
    """Where operations are: by address, and opened."""

    url: str
    fates: FateStore
    is_writable: Callable[[], bool]
    """Whether no stopped process keeps others from writing."""


@pytest.fixture(params=["sqlite", pytest.param("hbase", marks=pytest.mark.nightly), "zookeeper"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Return an empty store of operations."""
    if request.param == "sqlite":
        store = SqliteStore(tmp_path / "s.db", lock_timeout_s=0.5)
        table_fates = TableFateStore(store)

        def is_writable() -> bool:
            try:
                Locks(table_fates).write("probe", uuid.uuid4().hex[:16])
            except StorageUnavailable:
                return False
            return True

        yield Place(store.url, table_fates, is_writable)
        store.close()
        return
    hbase: HBase = request.getfixturevalue("hbase")
    if request.param == "hbase":
        remote = Thrift2Store(hbase.thrift2_url)
        fates = TableFateStore(remote)
        yield Place(remote.url, fates, lambda: True)
        remote.drop_table(FATE_TABLE)
        remote.close()
        return
    namespace = f"omidpy-test-{uuid.uuid4().hex}"
    ensemble = ZooKeeperFateStore(hbase.zookeeper, f"/{namespace}/fate")
    yield Place(f"zk://{hbase.zookeeper}/{namespace}?timeout=4s", ensemble, lambda: True)
    ensemble.close()


class Daemon:
    """`omidpy fate run`, whose words are collected."""

    def __init__(self, folder: Path, url: str) -> None:
        """Start it, and wait until it runs."""
        (folder / "limbo.py").write_text(textwrap.dedent(LIMBO))
        options = ("--module", "limbo", "--lease", "1s", "--poll", "50ms", "--pool", "general=1")
        self.process = subprocess.Popen(
            ["omidpy", "fate", "run", "--store", url, *options],
            cwd=folder,
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        wait_for(lambda: "running operations of" in self.said, LONGEST_S)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def stop(self, place: Place) -> None:
        """Stop it where it is, but not where it keeps everybody else from writing."""
        while True:
            self.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
            if place.is_writable():
                return
            self.process.send_signal(signal.SIGCONT)

    def close(self) -> int:
        """End it in good order if it will; return its exit code."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            return self.process.wait(LONGEST_S)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join()
            assert self.process.stderr is not None
            self.process.stderr.close()


def test_nothing_of_what_a_zombie_writes_lands(place: Place, tmp_path: Path) -> None:
    """SIGSTOP past the lease; another one finishes; SIGCONT."""
    fates = place.fates
    submitted = fates.submit(an_operation(stack=(FIRST,)))

    def begun_by() -> set[int]:
        names = (path.name for path in tmp_path.glob(f"{submitted.id}-begun-by-*"))
        return {int(name.rpartition("-")[2]) for name in names}

    daemons = [Daemon(tmp_path, place.url)]
    try:
        zombie = daemons[0]
        wait_for(begun_by, LONGEST_S)
        zombie.stop(place)
        daemons.append(Daemon(tmp_path, place.url))
        heir = daemons[1]
        wait_for(lambda: len(begun_by()) == 2, LONGEST_S)
        (tmp_path / f"{submitted.id}-may-end").touch()
        handle = Fate(None, fates, {}).get(submitted.id)
        assert handle.result(timeout=LONGEST_S) == [heir.process.pid] * 2
        ended = fates.read(FateId(submitted.id))
        zombie.process.send_signal(signal.SIGCONT)
        wait_for(lambda: re.search("changed by somebody else", zombie.said), LONGEST_S)
        assert fates.read(FateId(submitted.id)) == ended

        assert heir.close() == 0
        daemons.pop()
        again = fates.submit(an_operation(stack=(FIRST,)))
        (tmp_path / f"{again.id}-may-end").touch()
        result = Fate(None, fates, {}).get(again.id).result(timeout=LONGEST_S)
        assert result == [zombie.process.pid] * 2
        assert [one.status for one in fates.scan() if isinstance(one, Operation)] == [
            Status.SUCCESSFUL
        ] * 2
    finally:
        for daemon in daemons:
            daemon.close()


def test_two_daemons_run_each_step_once(place: Place, tmp_path: Path) -> None:
    """Both see everything, and both take what they can; they end in good order meanwhile, too."""
    submitted = [place.fates.submit(an_operation(stack=(COUNT,))).id for _ in range(CHAINS)]
    counted = tmp_path / "counted"

    def lines() -> list[str]:
        return counted.read_text().splitlines() if counted.exists() else []

    daemons = [Daemon(tmp_path, place.url), Daemon(tmp_path, place.url)]
    try:
        fate = Fate(None, place.fates, {})
        wait_for(lambda: len(lines()) >= CHAINS, LONGEST_S)
        assert daemons.pop().close() == 0
        submitted += [place.fates.submit(an_operation(stack=(COUNT,))).id for _ in range(CHAINS)]
        for one in submitted:
            assert fate.get(one).wait(timeout=LONGEST_S) is Status.SUCCESSFUL
    finally:
        for daemon in daemons:
            daemon.close()
    steps = sorted(line.rpartition(" ")[0] for line in lines())
    assert steps == sorted(f"{one} {left}" for one in submitted for left in range(3))
