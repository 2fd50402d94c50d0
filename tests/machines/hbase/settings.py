"""How is an HBase set up that is small, quick to start, and all on the loopback?

Pure: settings and command lines, as values.  They differ from HBase's defaults on purpose:

* Waits are bounded.  A call on a region that is gone fails after 10 s and is given up after 30 s,
  not after minutes, and a dead region server is noticed within ZooKeeper's session of 10 s.
* The local disk is the file system.  It has no durable flush, so HBase has to be told to do
  without.  Acknowledged writes survive `kill -9`, since they have reached the kernel; nothing here
  says anything about a loss of power.  Nor has it leases, see `RunningHBase.fence`.
* There are no web pages, and every port is chosen by us.
* Where an HBase lives for minutes only, the JVM's quick compiler is the only one.  To start and
  serve 50,000 calls takes 27 s of processor time this way, and 47 s with both compilers.
  Nor does it start `chmod` for each file that it makes (`QuietLocalFileSystem`).
* A client waits 20 ms, not 100, before it asks again how far a procedure is, and the master 5 ms,
  not 150, for more regions to assign together: tests make and drop many tables.  To make one takes
  0.2 s this way, not 0.45, and to drop it 0.16 s, not 0.33.

What gateways do that matters to clients stays as shipped, the 60 s after which an idle connection
is closed for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from xml.sax.saxutils import escape

_HBASE = "org.apache.hadoop.hbase"


class Mode(StrEnum):
    """How an HBase is spread over processes."""

    STANDALONE = "standalone"
    """One process is ZooKeeper, master and region server."""
    CLUSTER = "cluster"
    """ZooKeeper, the master and each region server are processes."""


class Road(StrEnum):
    """How a store reaches an HBase."""

    DIRECT = "direct"
    """By HBase's own RPC."""
    THRIFT2 = "thrift2"
    """Through its Thrift2 gateways."""


@dataclass(frozen=True, slots=True)
class Role:
    """What a process is: how it is started, and how its log says that it serves."""

    main: tuple[str, ...]
    """Class and arguments."""
    heap_mib: int
    ready_line: str | None = None
    """Part of the line of its log that says it serves; None if an open port says enough."""


def master_role(mode: Mode) -> Role:
    """Describe the master, which in standalone mode is the whole HBase."""
    heap_mib = 1024 if mode is Mode.STANDALONE else 384
    return Role(
        (f"{_HBASE}.master.HMaster", "start"), heap_mib, "Master has completed initialization"
    )


def standby_role(port: int) -> Role:
    """Describe a master that waits until there is no other."""
    name = f"{_HBASE}.master.HMaster"
    main = (name, "-D", f"hbase.master.port={port}", "start", "--backup")
    return Role(main, 384, "Adding backup master ZNode")


def region_server_role(port: int) -> Role:
    """Describe a region server; its port is an argument, as all servers share one configuration."""
    name = f"{_HBASE}.regionserver.HRegionServer"
    return Role((name, "-D", f"hbase.regionserver.port={port}", "start"), 768, " Serving as ")


def zookeeper_role() -> Role:
    """Describe ZooKeeper alone."""
    return Role((f"{_HBASE}.zookeeper.HQuorumPeer",), 128)


def gateway_role(api: str, port: int, *options: str) -> Role:
    """Describe a gateway: `thrift1` or `thrift2`, with options such as `-f` (framed)."""
    package = {"thrift1": "thrift", "thrift2": "thrift2"}[api]
    address = ("-b", "127.0.0.1", "-p", str(port))
    return Role((f"{_HBASE}.{package}.ThriftServer", *address, *options, "start"), 512)


# What HBase and Hadoop reach into although a JDK since 9 closes it.
_OPENED = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.reflect",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
)
_EXPORTED = (
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.util.random",
    "java.security.jgss/sun.security.krb5",
)

JVM_OPTIONS = (
    # One collector thread and little memory beside the heap: the machine is shared.
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.4lw.commands.whitelist=*",
    "--add-modules=jdk.unsupported",
    *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED),
    *(f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTED),
)


UNVERIFIED = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
"""The classes are those of released jars: to verify each is a fourth of what a start costs."""
QUICK_START = ("-XX:TieredStopAtLevel=1", *UNVERIFIED)
QUIET_FILES = {"fs.file.impl": "omidpy.files.QuietLocalFileSystem"}
"""For `core-site.xml`: no process is started for each file that is made."""


def site(
    directory: Path,
    mode: Mode,
    port: Callable[[str], int],
    *,
    region_servers: int,
    more: Mapping[str, str],
) -> dict[str, str]:
    """Return the contents of `hbase-site.xml`; `more` wins."""
    return {
        "hbase.rootdir": f"file://{directory}/hbase",
        "hbase.tmp.dir": f"{directory}/tmp",
        "hbase.cluster.distributed": "true" if mode is Mode.CLUSTER else "false",
        "hbase.unsafe.stream.capability.enforce": "false",
        "hbase.zookeeper.quorum": "127.0.0.1",
        "hbase.zookeeper.property.clientPort": str(port("zookeeper")),
        "hbase.zookeeper.property.clientPortAddress": "127.0.0.1",
        "hbase.zookeeper.property.dataDir": f"{directory}/zookeeper",
        "hbase.zookeeper.property.tickTime": "1000",
        "zookeeper.session.timeout": "10000",
        "hbase.localcluster.assign.random.ports": "false",
        "hbase.master.hostname": "localhost",
        "hbase.master.ipc.address": "127.0.0.1",
        "hbase.master.port": str(port("master")),
        "hbase.unsafe.regionserver.hostname": "localhost",
        "hbase.regionserver.ipc.address": "127.0.0.1",
        "hbase.regionserver.port": str(port("rs1")),
        "hbase.master.info.port": "-1",
        "hbase.regionserver.info.port": "-1",
        "hbase.thrift.info.port": "-1",
        # One is enough to go on with: a test may restart the master while a region server is down.
        "hbase.master.wait.on.regionservers.mintostart": "1",
        # With all there, nobody else is waited for; by default it is 4.5 s.
        "hbase.master.wait.on.regionservers.maxtostart": str(region_servers),
        "hbase.regionserver.handler.count": "30",
        "hbase.rpc.timeout": "10000",
        "hbase.client.operation.timeout": "30000",
        "hbase.client.meta.operation.timeout": "30000",
        "hbase.client.pause": "20",
        "hbase.assignment.dispatch.wait.msec": "5",
        "hbase.procedure.remote.dispatcher.delay.msec": "5",
        **more,
    }


def write_configuration(
    directory: Path, site: Mapping[str, str], more_core: Mapping[str, str]
) -> Path:
    """Write the folder of configuration that servers and Java clients have on their class path."""
    folder = directory / "conf"
    folder.mkdir(parents=True, exist_ok=True)
    core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": f"{directory}/tmp", **more_core}
    (folder / "core-site.xml").write_text(_xml(core))
    (folder / "hbase-site.xml").write_text(_xml(site))
    (folder / "log4j.properties").write_text(_LOGGING)
    return folder


def _xml(values: Mapping[str, str]) -> str:
    properties = "".join(
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in values.items()
    )
    return f'<?xml version="1.0"?>\n<configuration>\n{properties}</configuration>\n'


# To stderr: a Java client of these files may need its stdout for itself.
_LOGGING = """\
log4j.rootLogger=INFO,err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d{ISO8601} %-5p [%t] %c{2}: %m%n
log4j.logger.org.apache.zookeeper=WARN
log4j.logger.org.apache.hadoop.metrics2=WARN
"""
