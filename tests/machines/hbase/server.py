"""A real HBase whose processes can be killed, stopped and started again one by one.

    with HBase.start(directory) as hbase:
        hbase.url                             # by the road that was chosen: hbase://..., or
        hbase.thrift2_url                     # hbase+thrift2://127.0.0.1:PORT
        hbase.crash("master")                 # kill -9
        hbase.start_process("master")         # returns when it serves again

Processes by name: `master`, and `thrift2-1`, `thrift2-2`, ...; in cluster mode also `zookeeper` and
`rs1`, `rs2`, ...; `thrift1` and gateways with other transports from when they are first asked for.

Every process is kept by `tests.machines.keeper`, so none outlives this one.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from xml.etree import ElementTree as ET

from tests.machines import maven
from tests.machines.hbase import settings
from tests.machines.hbase.ports import PortBlock, answers
from tests.machines.hbase.settings import Mode, Road, Role
from tests.machines.keeper import Kept

LONGEST_START_S = 180.0
LOOK_EVERY_S = 0.05
LOG_TAIL_LINES = 40
_STATE = "running.json"

NEWEST = Path(__file__).parent
OLDER = NEWEST / "older"
"""Projects of the releases that can be started."""


class NotReady(Exception):
    """A process ended or did not serve in time; the message has the end of its log."""


class HBase(ABC):
    """Addresses of an HBase, which `start` makes our own, or `attach` finds in another process."""

    road: Road = Road.THRIFT2
    """By which road `url` leads; a test chooses (`tests/machines/hbase_fixtures.py`)."""

    def __init__(
        self,
        directory: Path,
        *,
        mode: Mode,
        gateways: Sequence[str],
        zookeeper: str,
        conf_dir: Path,
        jars: Path,
        more_jars: Sequence[Path] = (),
    ) -> None:
        """Hold the addresses; `start` and `attach` are what makes one."""
        self.directory = directory
        self.mode = mode
        self.zookeeper = zookeeper
        """HOST:PORT, as Java clients and kazoo take it."""
        self.conf_dir = conf_dir
        """Folder with the `hbase-site.xml` of a Java client."""
        self.idl_dir = jars / "idl" / "org" / "apache" / "hadoop" / "hbase"
        """The gateways' own IDL: `thrift2/hbase.thrift` and `thrift/Hbase.thrift`."""
        self.classpath = ":".join(
            [str(conf_dir), *(f"{folder}/*" for folder in (jars / "lib", *more_jars))]
        )
        """Of a Java program: the configuration, then HBase's jars, then those of others."""
        self.gateways = tuple(gateways)
        """HOST:PORT of each Thrift2 gateway."""

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        mode: Mode | str = Mode.STANDALONE,
        region_servers: int = 2,
        gateways: int = 1,
        more: Mapping[str, str] | None = None,
        more_core: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        more_jars: Sequence[Path] = (),
        files: Mapping[str, str] | None = None,
        quick: bool = False,
        release: Path = NEWEST,
    ) -> RunningHBase:
        """Start one that keeps everything in `directory`; returns when it serves.

        Args:
            directory: Data of an earlier HBase there, in the same mode, is served again.
            mode: One process, or one for each part.
            region_servers: How many; cluster mode only.
            gateways: How many Thrift2 gateways.
            more: Settings for `hbase-site.xml`, over those of `settings.site`.
            more_core: Settings for `core-site.xml`.
            java_options: Options of every JVM.
            release: Folder of the project that has its jars; the older one has no gateway.
            more_jars: Folders of jars for the class path of all processes, behind HBase's own.
            files: Further files of the configuration, contents by name.
            quick: Start sooner, at the price of what a JVM would optimise in the long run: for
                tests, not for measurements.

        Raises:
            NotReady: It did not come up; the message has the end of a log.
            maven.BuildFailed: Java or Maven is missing, or the jars could not be fetched.
        """
        hbase = RunningHBase(
            directory.resolve(),
            mode=Mode(mode),
            region_servers=region_servers,
            gateway_count=gateways,
            more=more or {},
            more_core=more_core or {},
            java_options=java_options,
            more_jars=more_jars,
            quick=quick,
            release=release,
        )
        for name, text in (files or {}).items():
            (hbase.conf_dir / name).write_text(text)
        try:
            hbase.start_all()
        except BaseException:
            hbase.stop()
            raise
        return hbase

    @classmethod
    def attach(cls, directory: Path) -> AttachedHBase:
        """Return the one that another process runs in `directory`.

        Raises:
            NotReady: Nothing runs there.
        """
        state = directory / _STATE
        if not state.exists():
            raise NotReady(
                f"no HBase runs in {directory}: `python -m tests.machines.hbase {directory}` "
                "starts one"
            )
        return AttachedHBase(directory.resolve(), json.loads(state.read_text()))

    @property
    def url(self) -> str:
        """URL by the chosen road."""
        return self.direct_url if self.road is Road.DIRECT else self.thrift2_url

    @contextlib.contextmanager
    def by(self, road: Road) -> Iterator[None]:
        """Let `url` lead by a road for the length of a block."""
        before, self.road = self.road, road
        try:
            yield
        finally:
            self.road = before

    @property
    def thrift2_url(self) -> str:
        """URL of all Thrift2 gateways together."""
        return "hbase+thrift2://" + ",".join(self.gateways)

    @property
    def direct_url(self) -> str:
        """URL of HBase itself, found through ZooKeeper."""
        return f"hbase://{self.zookeeper}/hbase"

    @property
    def rpc_url(self) -> str:
        """URL of HBase itself, found through its master."""
        site = ET.parse(self.conf_dir / "hbase-site.xml").getroot()
        ports = {one.findtext("name"): one.findtext("value") for one in site}
        return f"hbase+rpc://127.0.0.1:{ports['hbase.master.port']}"

    @property
    def thrift1_url(self) -> str:
        """URL of the Thrift1 gateway, which is started when it is first asked for."""
        return f"hbase+thrift1://{self.gateway('thrift1')}"

    @abstractmethod
    def gateway(self, api: str, *options: str) -> str:
        """Return HOST:PORT of a gateway, started if need be: of an API, with options such as `-f`.

        Raises:
            NotReady: It did not come up; the message has the end of its log.
        """


class AttachedHBase(HBase):
    """Another process's HBase.  Gateways that it lacks are added, and are ours."""

    def __init__(self, directory: Path, found: Mapping[str, Any]) -> None:
        """Take the addresses from what the other process has written down."""
        super().__init__(
            directory,
            mode=Mode(found["mode"]),
            gateways=found["gateways"],
            zookeeper=found["zookeeper"],
            conf_dir=directory / "conf",
            jars=jars(),
        )
        self._ports: PortBlock | None = None
        self._added: dict[str, Kept] = {}

    def gateway(self, api: str, *options: str) -> str:
        """Return HOST:PORT of a gateway of our own, started if need be."""
        if self._ports is None:
            self._ports = PortBlock()
        name = api + "".join(options)
        port = self._ports.port(name)
        if name not in self._added:
            log = self.directory / "log" / f"{name}-{os.getpid()}.log"
            role = settings.gateway_role(api, port, *options)
            kept = Kept(_java(role, self.classpath, settings.QUICK_START), log=log)
            try:
                deadline = time.monotonic() + LONGEST_START_S
                _await(name, kept, lambda: answers(port), deadline, log.read_text)
            except BaseException:
                kept.kill()
                raise
            self._added[name] = kept
        return f"127.0.0.1:{port}"

    def stop(self) -> None:
        """Kill what was added.  Harmless when repeated."""
        for kept in self._added.values():
            kept.kill()
        self._added.clear()
        if self._ports is not None:
            self._ports.close()
            self._ports = None


class RunningHBase(HBase):
    """An HBase whose processes are ours."""

    def __init__(
        self,
        directory: Path,
        *,
        mode: Mode,
        region_servers: int,
        gateway_count: int,
        more: Mapping[str, str],
        more_core: Mapping[str, str],
        java_options: Sequence[str],
        more_jars: Sequence[Path],
        quick: bool,
        release: Path,
    ) -> None:
        """Choose ports and write the configuration; nothing runs yet."""
        found = jars(release)
        directory.mkdir(parents=True, exist_ok=True)
        self._ports = PortBlock()
        port = self._ports.port
        region_servers = region_servers if mode is Mode.CLUSTER else 1
        site = settings.site(directory, mode, port, region_servers=region_servers, more=more)
        # The older one's jars lack the class.
        core = {**(settings.QUIET_FILES if quick and release == NEWEST else {}), **more_core}
        gateways = [f"thrift2-{number}" for number in range(1, gateway_count + 1)]
        super().__init__(
            directory,
            mode=mode,
            gateways=[f"127.0.0.1:{port(name)}" for name in gateways],
            zookeeper=f"127.0.0.1:{port('zookeeper')}",
            conf_dir=settings.write_configuration(directory, site, core),
            jars=found,
            more_jars=more_jars,
        )
        self._options = (*java_options, *(settings.QUICK_START if quick else ()))
        self._roles: dict[str, Role] = {}
        if mode is Mode.CLUSTER:
            self._roles["zookeeper"] = settings.zookeeper_role()
        self._roles["master"] = settings.master_role(mode)
        if mode is Mode.CLUSTER:
            for name in (f"rs{number}" for number in range(1, region_servers + 1)):
                self._roles[name] = settings.region_server_role(port(name))
        for name in gateways:
            self._roles[name] = settings.gateway_role("thrift2", port(name))
        self._running: dict[str, Kept] = {}
        self._log_starts: dict[str, int] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all processes, also of those that do not run now."""
        return tuple(self._roles)

    def pid(self, name: str) -> int:
        """Id of a process that runs."""
        return self._running[name].pid

    def is_running(self, name: str) -> bool:
        """Say whether a process has been started and has not ended."""
        return name in self._running and self._running[name].is_running

    def at_port(self, port: int) -> str:
        """Name of the process that serves on a port."""
        return next(name for name in self._roles if self._ports.port(name) == port)

    def log(self, name: str) -> Path:
        """File that has what a process wrote, all its lives one after the other."""
        return self.directory / "log" / f"{name}.log"

    def gateway(self, api: str, *options: str) -> str:
        """Return HOST:PORT of a gateway, started if need be: of an API, with options such as `-f`.

        Its name is the API, followed by the options: `thrift1`, `thrift2-f-c`.
        """
        name = api + "".join(options)
        if name not in self._roles:
            self._roles[name] = settings.gateway_role(api, self._ports.port(name), *options)
            self.start_process(name)
        return f"127.0.0.1:{self._ports.port(name)}"

    def start_all(self, *, longest_s: float = LONGEST_START_S) -> None:
        """Start every process that does not run; returns when all serve."""
        deadline = time.monotonic() + longest_s
        for name in self._roles:
            self._launch(name)
        for name in self._roles:
            self._await_ready(name, deadline)
        state = {"mode": self.mode, "gateways": self.gateways, "zookeeper": self.zookeeper}
        (self.directory / _STATE).write_text(json.dumps(state))

    def start_process(self, name: str, *, longest_s: float = LONGEST_START_S) -> None:
        """Start one process unless it runs; returns when it serves."""
        self._launch(name)
        self._await_ready(name, time.monotonic() + longest_s)

    def crash(self, *names: str) -> None:
        """Kill processes at once, as `kill -9` does; returns when they have ended."""
        for name in names:
            self._running[name].send(signal.SIGKILL)
        for name in names:
            self._running.pop(name).wait(None)

    @contextlib.contextmanager
    def standby(self) -> Iterator[str]:
        """Run a second master for the length of a block; yield the address of both.

        It waits until the other one ends.  Behind the block the first one is the active one again.
        """
        name = "master-2"
        self._roles[name] = settings.standby_role(self._ports.port(name))
        try:
            self.start_process(name)
            ports = (self._ports.port(one) for one in ("master", name))
            yield "hbase+rpc://" + ",".join(f"127.0.0.1:{port}" for port in ports)
        finally:
            del self._roles[name]
            if name in self._running:
                self.crash(name)
            self.start_all()

    def pause(self, name: str) -> None:
        """Stop a process where it is: it keeps its connections and answers nothing."""
        self._running[name].pause()

    def resume(self, name: str) -> None:
        """Let a stopped process go on."""
        self._running[name].resume()

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Stop a process for the length of a block."""
        self.pause(name)
        try:
            yield
        finally:
            self.resume(name)

    def fence(self, name: str) -> None:
        """Let a process write to no file any more.

        HDFS does so with a region server that counts as dead: it takes the lease of the log away.
        On a local disk one that was paused would go on to acknowledge writes, to a log that has
        been read already.
        """
        resource.prlimit(self.pid(name), resource.RLIMIT_FSIZE, (0, 0))

    def stop(self, *, forget: bool = False) -> None:
        """Kill everything; with `forget`, delete the data too.  Harmless when repeated."""
        # What tests wrote is not wanted any more, and whoever does want it can count on HBase's
        # log: an orderly end would take seconds and give nothing.
        self.crash(*self._running)
        self._ports.close()
        (self.directory / _STATE).unlink(missing_ok=True)
        if forget:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Kill everything; the data stays."""
        self.stop()

    def _launch(self, name: str) -> None:
        if self.is_running(name):
            return
        if (ended := self._running.pop(name, None)) is not None:
            ended.wait(None)  # by itself, which nobody has noticed yet
        role = self._roles[name]
        log = self.log(name)
        log.parent.mkdir(exist_ok=True)
        self._log_starts[name] = log.stat().st_size if log.exists() else 0
        self._running[name] = Kept(_java(role, self.classpath, self._options), log=log)

    def _await_ready(self, name: str, deadline: float) -> None:
        """Wait until a process serves: its port is open, and its log says so where it does."""
        _await(
            name,
            self._running[name],
            lambda: self._is_ready(name),
            deadline,
            lambda: self._this_life(name),
        )

    def _is_ready(self, name: str) -> bool:
        line = self._roles[name].ready_line
        return answers(self._ports.port(name)) and (line is None or line in self._this_life(name))

    def _this_life(self, name: str) -> str:
        with self.log(name).open("rb") as log:
            log.seek(self._log_starts[name])
            return log.read().decode(errors="replace")


def _java(role: Role, classpath: str, options: Sequence[str]) -> list[str]:
    """Return the command that runs a role."""
    java = [maven.java_tool("java"), f"-Xmx{role.heap_mib}m", *settings.JVM_OPTIONS, *options]
    return [*java, "-cp", classpath, *role.main]


def _await(
    name: str,
    kept: Kept,
    is_ready: Callable[[], bool],
    deadline: float,
    logged: Callable[[], str],
) -> None:
    """Wait until a process serves.

    Raises:
        NotReady: It ended, or did not serve before `deadline`.
    """
    while not is_ready():
        try:
            code = kept.wait(LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() < deadline:
                continue
            problem = "does not serve in time"
        else:
            problem = f"ended with code {code} before it served"
        tail = "\n".join(logged().splitlines()[-LOG_TAIL_LINES:])
        raise NotReady(f"{name} {problem}; the end of its log:\n{tail}")


def jars(release: Path = NEWEST) -> Path:
    """Return the folder of HBase's jars and IDL, fetched if need be."""
    return maven.build(release)
