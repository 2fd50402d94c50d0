"""Apache Omid's own Java, as processes that tests drive: its clients, and its oracle.

    with JavaDriver() as java:
        java.call("golden.commit_row", start=1000)

The driver is `tests/java`, a small program around Omid 1.1.3 that does what a line of JSON on its
standard input asks for, and answers with a line on its standard output.  Every process ends with
its standard input, so that none outlives the test that started it, however that one ends.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, Self

from tests.machines.hbase.ports import PortBlock
from tests.machines.hbase.settings import UNVERIFIED
from tests.machines.maven import build, java_tool
from tests.machines.processes import ROOT

PROJECT = ROOT / "tests" / "java"
# The first contact with HBase loads thousands of classes on a machine that is busy with the rest.
LONGEST_CALL_S = 120.0
LONGEST_START_S = 120.0
LONGEST_END_S = 30.0
POLL_S = 0.05
LOG_LINES = 40

QUICK_START = ("-XX:TieredStopAtLevel=1", "-Xmx384m", *UNVERIFIED)
"""For tests: most of their Java ends before a better compiler would pay."""
FULL_SPEED = ("-Xmx512m",)
"""For measurements: compile as Java does by itself."""

_JVM = (
    "-XX:+UseSerialGC",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.awt.headless=true",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)


class JavaError(Exception):
    """A command of the driver threw an exception: its class, its message, and its causes."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        """Take over the description that the driver gave."""
        self.type: str = error["type"]
        self.message: str = error["message"]
        self.causes: list[str] = error["causes"]
        super().__init__(": ".join([self.type, self.message, *self.causes]))


class JavaDied(Exception):
    """The process ended before it answered; the message ends with what it logged."""


class JavaProcess:
    """A JVM with Omid on its class path.  What it logs is kept, and shown when it fails."""

    def __init__(
        self,
        main: str,
        *,
        configuration: Path | None = None,
        tuning: Sequence[str] = QUICK_START,
        jars: Sequence[Path] = (),
    ) -> None:
        """Start `main`; files in `configuration` are found before those of the jars.

        Those are Omid's, unless other folders of jars are named.
        """
        path = [str(folder / "*") for folder in jars or [build(PROJECT) / "lib"]]
        if configuration is not None:
            path.insert(0, str(configuration))
        self._log: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the process
        self.process = subprocess.Popen(
            [java_tool("java"), *_JVM, *tuning, "-cp", os.pathsep.join(path), main],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self.process.pid

    @property
    def log(self) -> str:
        """The end of what it has logged."""
        # Through a descriptor of its own: the process writes at the position of ours.
        with Path(f"/proc/self/fd/{self._log.fileno()}").open(errors="replace") as log:
            return "".join(log.readlines()[-LOG_LINES:])

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self.process.kill()
        self.process.wait(LONGEST_END_S)

    def pause(self) -> None:
        """Stop it where it is (SIGSTOP); it keeps its connections."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue
        self._log.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


class JavaDriver(JavaProcess):
    """Omid's client classes in one process.  Safe to share among threads."""

    def __init__(
        self,
        *,
        zookeeper: str | None = None,
        tuning: Sequence[str] = QUICK_START,
        main: str = "omidpy.driver.Driver",
        configuration: Path | None = None,
        jars: Sequence[Path] = (),
    ) -> None:
        """Start it; with `zookeeper` (HOST:PORT) it is connected to that HBase.

        Another `main` that speaks the same way has jars and a configuration of its own.
        """
        super().__init__(main, configuration=configuration, tuning=tuning, jars=jars)
        self._lock = threading.Lock()
        self._pending: dict[int, Future[Any]] = {}
        self._last_id = 0
        self._is_over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if zookeeper is not None:
            self.call("hbase.connect", settings=hbase_settings(zookeeper))

    def call(self, do: str, *, session: str = "", **arguments: Any) -> Any:
        """Do one thing and return its value.

        Raises:
            JavaError: Omid, HBase or the driver threw an exception.
            JavaDied: the process ended instead.
        """
        return self.start(do, session=session, **arguments).result(LONGEST_CALL_S)

    def start(self, do: str, *, session: str = "", **arguments: Any) -> Future[Any]:
        """Ask for one thing.  What is asked of one session is done in order."""
        future: Future[Any] = Future()
        with self._lock:
            self._last_id += 1
            number = self._last_id
            self._pending[number] = future
            line = json.dumps({"id": number, "do": do, "session": session, **arguments})
            assert self.process.stdin is not None
            try:
                self.process.stdin.write(line + "\n")
                self.process.stdin.flush()
            except OSError:
                self._is_over = True
            if self._is_over:
                del self._pending[number]
                future.set_exception(JavaDied(f"no answer to {do}: the process has ended"))
        return future

    def wait_for_end(self) -> int:
        """Wait until the process has ended by itself; return its exit code."""
        return self.process.wait(LONGEST_END_S)

    def close(self) -> None:
        """End it."""
        if self.process.poll() is None:
            self.kill()
        self._reader.join(LONGEST_END_S)
        super().close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            with self._lock:
                future = self._pending.pop(answer["id"])
            if "error" in answer:
                future.set_exception(JavaError(answer["error"]))
            else:
                future.set_result(answer.get("value"))
        with self._lock:
            self._is_over = True
            left = list(self._pending.values())
            self._pending.clear()
        for future in left:
            future.set_exception(JavaDied(f"the Java process has ended; it said:\n{self.log}"))


class JavaOracle(JavaProcess):
    """Omid's oracle, with its commit table and its timestamps in HBase.

    Omid's tables must exist.  `lease` makes it one of several that a ZooKeeper chooses from.
    """

    def __init__(
        self,
        zookeeper: str,
        directory: Path,
        *,
        port: int | None = None,
        timestamps: str = "WORLD_TIME",
        has_lease: bool = False,
        is_low_latency: bool = False,
        namespace: str = "omid",
        commit_table: str = "OMID_COMMIT_TABLE",
        keeps_timestamps: bool = True,
        timestamp_namespace: str | None = None,
        settings: Mapping[str, str] | None = None,
        tuning: Sequence[str] = QUICK_START,
    ) -> None:
        """Start it, with its settings in `directory`, and wait until its port answers.

        Its timestamps are in HBase; in memory where it does not keep them; or in ZooKeeper, below a
        namespace.  More `settings` are lines of its configuration.
        """
        # Not of the kernel's choice: until it listens, seconds later, nobody else may have it.
        self._ports = PortBlock()
        self.port = self._ports.port("oracle") if port is None else port
        directory.mkdir(parents=True, exist_ok=True)
        timestamp_store = (
            "timestamp.storage.DefaultHBaseTimestampStorageModule"
            if keeps_timestamps
            else "tso.InMemoryTimestampStorageModule"
        ) + " [ ]"
        if timestamp_namespace is not None:
            timestamp_store = (
                "timestamp.storage.DefaultZKTimestampStorageModule "
                f'{{zkCluster: "{zookeeper}", namespace: "{timestamp_namespace}"}}'
            )
        lease = "!!org.apache.omid.tso.VoidLeaseManagementModule [ ]"
        if has_lease:
            lease = (
                "!!org.apache.omid.tso.HALeaseManagementModule\n"
                "    leasePeriodInMs: 2000\n"
                f'    zkCluster: "{zookeeper}"\n    zkNamespace: "{namespace}"\n'
                '    tsoLeasePath: "/tso-lease"\n    currentTsoPath: "/current-tso"'
            )
        directory.joinpath("omid-server-configuration.yml").write_text(
            f"port: {self.port}\n"
            "networkIfaceName: lo\n"
            "conflictMapSize: 100000\n"
            f"timestampType: {timestamps}\n"
            f"lowLatency: {str(is_low_latency).lower()}\n"
            "commitTableStoreModule: !!org.apache.omid.committable.hbase"
            f".DefaultHBaseCommitTableStorageModule {{tableName: {commit_table}}}\n"
            f"timestampStoreModule: !!org.apache.omid.{timestamp_store}\n"
            f"leaseModule: {lease}\n"
            + "".join(f"{name}: {value}\n" for name, value in (settings or {}).items())
        )
        properties = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>"
            for name, value in hbase_settings(zookeeper).items()
        )
        directory.joinpath("hbase-site.xml").write_text(
            f"<?xml version='1.0'?><configuration>{properties}</configuration>"
        )
        super().__init__("omidpy.driver.Oracle", configuration=directory, tuning=tuning)
        try:
            wait_until_it_listens(self, self.port)
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """HOST:PORT it listens on."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """End the process, and give its port back."""
        super().close()
        self._ports.close()


def wait_until_it_listens(process: JavaProcess, port: int) -> None:
    """Wait until somebody takes connections on the port of an oracle that starts.

    Raises:
        JavaDied: it ended, or does not listen within `LONGEST_START_S`.
    """
    deadline_s = time.monotonic() + LONGEST_START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            over = process.process.poll()
            if over is not None or time.monotonic() > deadline_s:
                raise JavaDied(
                    f"Omid's oracle does not listen on port {port} "
                    f"(exit code {over}); it said:\n{process.log}"
                ) from None
            time.sleep(POLL_S)


def hbase_settings(zookeeper: str) -> dict[str, str]:
    """Return what a Java client has to know of an HBase; bounded, where HBase waits for minutes."""
    host, port = zookeeper.rsplit(":", 1)
    return {
        "hbase.zookeeper.quorum": host,
        "hbase.zookeeper.property.clientPort": port,
        "hbase.rpc.timeout": "10000",
        "hbase.client.operation.timeout": "30000",
        "hbase.client.meta.operation.timeout": "30000",
    }
