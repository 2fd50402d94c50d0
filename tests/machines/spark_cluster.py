"""A Spark cluster of one master and a worker or two on loopback, and an archive for its workers.

Both are real processes of the installed pyspark, on ports that are free, and are ended by their
ids.  A worker starts its executors itself, and ends them with itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LONGEST_S: Final = 60.0
LOOPBACK: Final = "127.0.0.1"

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


@contextmanager
def spark_cluster(folder: Path, *, hosts: Sequence[str] = (LOOPBACK,)) -> Iterator[str]:
    """Give the address of a master that has a worker of two cores on each host of loopback.

    Spark never runs two attempts at a task on one host, so that speculation needs two names.
    """
    with ExitStack() as stack:
        ports = ("--port", "0", "--webui-port", "0")
        here = ("--host", LOOPBACK, *ports)
        master = stack.enter_context(
            _daemon("master.Master", *here, until=r"Starting Spark master at (spark://\S+)")
        )
        worker = ("--cores", "2", "--memory", "1g", "--work-dir", str(folder))
        registered = r"(Successfully registered) with master"
        for host in hosts:
            there = ("--host", host, *ports)
            stack.enter_context(_daemon("worker.Worker", *there, *worker, master, until=registered))
        yield master


@contextmanager
def _daemon(name: str, *words: str, until: str) -> Iterator[str]:
    """Run a part of Spark; give what its log matches first."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    home = Path(found.origin).parent
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
    }
    lines: list[str] = []
    match: list[str] = []
    is_known = threading.Event()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:

        def collect() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                lines.append(line)
                if not match and (one := re.search(until, line)):
                    match.append(one[1])
                    is_known.set()
            is_known.set()

        reader = threading.Thread(target=collect)
        reader.start()
        try:
            assert is_known.wait(LONGEST_S), "".join(lines)
            assert match, "".join(lines)
            yield match[0]
        finally:
            process.terminate()
            process.wait(LONGEST_S)
            reader.join()


def packed_environment(folder: Path, *, beside: Sequence[str] = ()) -> Path:
    """Make an archive as venv-pack does: a virtual environment in which `omidpy[hbase]` is.

    Args:
        folder: Where to make it.
        beside: Further distributions, with what they need.
    """
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    archive = folder / "environment.tar.gz"
    inside = packages.relative_to(environment)
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(environment, ".")
        for package in ("omidpy", "compactor", "tso"):
            tar.add(ROOT / package, str(inside / package))
        wanted = _required("omidpy", extras=("hbase",)).union(*map(_required, beside))
        for name in sorted(wanted - {"omidpy"}):
            found = distribution(name)
            for one in found.files or ():
                if ".." not in one.parts and Path(str(one.locate())).is_file():
                    tar.add(str(one.locate()), str(inside / str(one)))
    return archive


def _required(name: str, *, extras: tuple[str, ...] = ()) -> set[str]:
    """Return a distribution and what it needs, as far as it is installed here."""
    found = {name}
    todo = [(name, extras)]
    while todo:
        one, wanted = todo.pop()
        for line in distribution(one).requires or ():
            needed, _, marker = line.partition(";")
            match = _NAME.match(needed)
            is_extra = "extra" in marker
            if match is None or (is_extra and not any(f'"{x}"' in marker for x in wanted)):
                continue
            try:
                distribution(match[0])
            except ModuleNotFoundError:
                continue
            if match[0] not in found:
                found.add(match[0])
                todo.append((match[0], ()))
    return found
