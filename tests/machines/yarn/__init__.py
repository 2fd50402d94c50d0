"""A YARN of one resource manager and one node manager on the loopback, for as long as a test.

    with yarn_cluster(folder) as settings:
        environment["HADOOP_CONF_DIR"] = str(settings)      # of a `spark-submit --master yarn`

Both are real processes, with the local disk as their file system; containers are processes of this
machine.  `pom.xml` has their servers, and PySpark everything else.  They are kept by
`tests.machines.keeper`, so that they do not outlive this process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from tests.machines import maven
from tests.machines.hbase.ports import PortBlock
from tests.machines.keeper import Kept
from tests.machines.waiting import wait_for

PROJECT: Final = Path(__file__).parent
LONGEST_S: Final = 60.0
LOOPBACK: Final = "127.0.0.1"
MEMORY_MIB: Final = 4096

_QUICK: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_SERVERS: Final = {
    "resourcemanager": "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "nodemanager": "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
}
_PORTS: Final = (
    "resourcemanager.address",
    "resourcemanager.scheduler.address",
    "resourcemanager.resource-tracker.address",
    "resourcemanager.admin.address",
    "resourcemanager.webapp.address",
    "nodemanager.address",
    "nodemanager.localizer.address",
    "nodemanager.webapp.address",
)
_LOG: Final = """
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
"""


def spark_home() -> Path:
    """Return where PySpark is installed."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


@contextmanager
def yarn_cluster(folder: Path) -> Iterator[Path]:
    """Give the folder of settings by which clients find the cluster.

    Args:
        folder: For what the cluster writes, which is left there.
    """
    ports = PortBlock()
    running: list[Kept] = []
    try:
        settings = _write_settings(folder, ports)
        lib = maven.build(PROJECT) / "lib"
        # Spark's log4j and Hadoop's client, with the servers before them.
        logging = folder / "logging"
        logging.mkdir()
        (logging / "log4j2.properties").write_text(_LOG, "ascii")
        path = os.pathsep.join(
            map(str, (settings, logging, lib / "*", spark_home() / "jars" / "*"))
        )
        for name, main in _SERVERS.items():
            log = folder / f"{name}.log"
            command = [maven.java_tool("java"), *_QUICK, "-cp", path]
            running.append(Kept([*command, f"-Dhadoop.log.dir={folder}", main], log=log))
        log = folder / "resourcemanager.log"

        def has_a_node() -> bool:
            assert all(one.is_running for one in running), _logs(folder)
            return "registered with capability" in log.read_text("utf-8")

        wait_for(has_a_node, LONGEST_S)
        yield settings
    finally:
        for one in reversed(running):
            one.kill()
        ports.close()


def _write_settings(folder: Path, ports: PortBlock) -> Path:
    settings = folder / "conf"
    settings.mkdir(parents=True)
    yarn = {f"yarn.{name}": f"{LOOPBACK}:{ports.port(name)}" for name in _PORTS}
    yarn |= {
        "yarn.resourcemanager.hostname": LOOPBACK,
        "yarn.nodemanager.hostname": LOOPBACK,
        "yarn.nodemanager.local-dirs": str(folder / "local"),
        "yarn.nodemanager.log-dirs": str(folder / "containers"),
        "yarn.nodemanager.resource.memory-mb": str(MEMORY_MIB),
        "yarn.nodemanager.resource.cpu-vcores": "4",
        # How full the disk of whoever runs the tests is, is nobody's business.
        "yarn.nodemanager.disk-health-checker.enable": "false",
        "yarn.nodemanager.vmem-check-enabled": "false",
    }
    queue = "yarn.scheduler.capacity"
    queues = {
        f"{queue}.root.queues": "default",
        f"{queue}.root.default.capacity": "100",
        f"{queue}.maximum-am-resource-percent": "0.9",
    }
    _write(settings / "yarn-site.xml", yarn)
    _write(settings / "capacity-scheduler.xml", queues)
    _write(settings / "core-site.xml", {"fs.defaultFS": "file:///"})
    return settings


def _write(path: Path, settings: Mapping[str, str]) -> None:
    lines = (
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    )
    path.write_text("\n".join(("<configuration>", *lines, "</configuration>\n")), "utf-8")


def _logs(folder: Path) -> str:
    return "\n".join(path.read_text("utf-8")[-3000:] for path in folder.glob("*.log"))
