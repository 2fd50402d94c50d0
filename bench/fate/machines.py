"""A real ZooKeeper that syncs each transaction, and Accumulo's executor as a process beside it.

ZooKeeper is the one that HBase brings along; by default it answers when its log is on the disk.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench.processes import ROOT
from tests.machines.hbase.ports import PortBlock
from tests.machines.maven import build, java_tool

HBASE: Final = ROOT / "tests" / "machines" / "hbase"
ACCUMULO: Final = Path(__file__).parent / "accumulo"

STEPS: Final = 5
"""Of a chain."""
WORKERS: Final = 4

LONGEST_S: Final = 120.0


@contextmanager
def zookeeper(directory: Path) -> Iterator[str]:
    """Run a ZooKeeper for the length of a block; its address."""
    ports = PortBlock()
    port = ports.port("zookeeper")
    with ExitStack() as resources:
        resources.callback(ports.close)
        log = resources.enter_context((directory / "zookeeper.log").open("w"))
        server = subprocess.Popen(
            [
                *(java_tool("java"), "-Xmx256m", "-Dzookeeper.admin.enableServer=false"),
                *("-cp", str(build(HBASE) / "lib" / "*")),
                "org.apache.zookeeper.server.ZooKeeperServerMain",
                *(str(port), str(directory / "zookeeper")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        resources.callback(server.wait)
        resources.callback(server.kill)
        while not _serves(port):
            if server.poll() is not None:
                raise OSError(f"ZooKeeper ended: {(directory / 'zookeeper.log').read_text()}")
        yield f"127.0.0.1:{port}"


def _serves(port: int) -> bool:
    """Say whether sessions can begin; who knocks before that may wait for long."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=LONGEST_S) as asked:
            asked.sendall(b"srvr")
            return b"Mode: standalone" in asked.makefile("rb").read()
    except OSError:
        time.sleep(0.05)
        return False


class Accumulo:
    """Accumulo's executor; commands are those of `Chains.java`."""

    name: Final = "Accumulo 2.1.4"

    def __init__(self, address: str, path: str) -> None:
        """Start it below a path that nobody uses."""
        self._process = subprocess.Popen(
            [
                *(java_tool("java"), "-Xmx512m", "-cp", str(build(ACCUMULO) / "lib" / "*")),
                "omidpy.fate.Chains",
                *(address, path, str(STEPS), str(WORKERS)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if self._line() != "ready":
            self.close()
            raise OSError("Accumulo's executor did not start")

    def chains(self, count: int) -> float:
        """Run chains from as many threads as there are workers; seconds until the last end."""
        (seconds,) = self._ask(f"chains {count} {WORKERS}")
        return seconds

    def lone(self, count: int) -> list[float]:
        """Run chains one after another; the seconds of each."""
        return self._ask(f"lone {count}")

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(LONGEST_S)
        finally:
            self._process.kill()
            self._process.stdout.close()

    def _ask(self, command: str) -> list[float]:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return _numbers(self._line().split())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def _numbers(words: Sequence[str]) -> list[float]:
    if not words:
        raise OSError("Accumulo's executor has ended")
    return [float(word) for word in words]
