"""How fast does Python read a table of Phoenix's, beside `phoenixdb` through the Query Server?

Both read the same rows from the same HBase and give the same values of Python's.  The Query Server
is 6.0.0, with Phoenix 5.2.1 behind it, and its JMX page is off, which expects Phoenix's shaded
jars.  For `phoenixdb` counts the quicker of its two ways to ask for a row: a statement with the
value in its text goes there and back once, one with a parameter is prepared first.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import omidpy
from omidpy import phoenix as phoenixs
from omidpy.manager import TransactionManager
from tests.machines.hbase.ports import PortBlock
from tests.machines.hbase.server import jars
from tests.machines.maven import build, java_tool
from tests.machines.phoenix import PROJECT, TRANSACTIONAL, Phoenix

QUERY_SERVER: Final = Path(__file__).parent / "queryserver"
TABLE: Final = "BENCH.READ"
COLUMNS: Final = ("K", "N", "V", "D")
GATEWAY: Final = "omidpy, through a gateway"
DIRECT: Final = "omidpy, without a gateway"
QUERIED: Final = "phoenixdb, through the Query Server"
GET: Final = "rows by their key"
SCAN: Final = "rows of a scan"
START_S: Final = 60.0


@contextmanager
def query_server(phoenix: Phoenix, directory: Path) -> Iterator[str]:
    """Run a Query Server for the length of a block; its address."""
    conf = directory / "queryserver"
    shutil.copytree(phoenix.hbase.conf_dir, conf)
    with ExitStack() as resources:
        ports = PortBlock()
        resources.callback(ports.close)
        port = ports.port("queryserver")
        site = conf / "hbase-site.xml"
        more = "".join(
            f"<property><name>phoenix.queryserver.{name}</name><value>{value}</value></property>"
            for name, value in {"http.port": port, "jmxjsonendpoint.disabled": "true"}.items()
        )
        site.write_text(site.read_text().replace("</configuration>", f"{more}</configuration>"))
        path = [conf, *(folder / "lib" / "*" for folder in (build(QUERY_SERVER), jars()))]
        log = resources.enter_context((directory / "queryserver.log").open("w"))
        server = subprocess.Popen(
            [
                *(java_tool("java"), "-Xmx512m", "-XX:+UseSerialGC"),
                *("-Djava.net.preferIPv4Stack=true", "-Duser.timezone=UTC"),
                "--add-opens=java.base/java.nio=ALL-UNNAMED",
                "--add-opens=java.base/java.lang=ALL-UNNAMED",
                *("-cp", os.pathsep.join(map(str, [*path, build(PROJECT) / "lib" / "*"]))),
                "org.apache.phoenix.queryserver.server.QueryServer",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        resources.callback(server.wait)
        resources.callback(server.kill)
        deadline_s = time.monotonic() + START_S
        while not _listens(port):
            if server.poll() is not None or time.monotonic() > deadline_s:
                said = (directory / "queryserver.log").read_text()[-2000:]
                raise OSError(f"the Query Server does not listen: {said}")
        yield f"http://127.0.0.1:{port}/"


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        time.sleep(0.05)
        return False
    return True


def make(phoenix: Phoenix, rows: int) -> None:
    """Make the table that is read, and fill it; no cell of it needs the commit table."""
    phoenix.sql.execute(
        f"CREATE TABLE {TABLE} (K VARCHAR PRIMARY KEY, N BIGINT, V VARCHAR, D DECIMAL(12,2)) "
        f"{TRANSACTIONAL}"
    )
    phoenix.adopt(TABLE)
    with omidpy.connect(phoenix.url, phoenix.address, post_commit="sync") as tm:
        table = phoenixs.table(tm, TABLE)
        with tm.begin() as tx:
            for number in range(rows):
                table.put(tx, row(number))


def row(number: int) -> dict[str, Any]:
    """Return a row of the table."""
    value, price = f"value {number:06}", Decimal(number) / 100
    return {"K": key(number), "N": number, "V": value, "D": price}


def key(number: int) -> str:
    """Return the key of a row."""
    return f"k{number:06}"


class Ours:
    """Reads as the guide does."""

    def __init__(self, tm: TransactionManager) -> None:
        """Open the table."""
        self._tm = tm
        self._table = phoenixs.table(tm, TABLE)

    def get(self, number: int) -> dict[str, Any] | None:
        """Read a row in a transaction of its own."""
        with self._tm.begin(read_only=True) as tx:
            return self._table.get(tx, key(number))

    def scan(self) -> list[dict[str, Any]]:
        """Read all rows."""
        with self._tm.begin(read_only=True) as tx:
            return list(self._table.scan(tx))


class Queried:
    """Reads through the Query Server."""

    def __init__(self, connection: Any, *, is_prepared: bool) -> None:
        """Take over a connection of `phoenixdb`."""
        self._cursor = connection.cursor()
        self._is_prepared = is_prepared

    def get(self, number: int) -> dict[str, Any] | None:
        """Read a row; the connection commits by itself."""
        query = f"SELECT {', '.join(COLUMNS)} FROM {TABLE} WHERE K = "
        if self._is_prepared:
            self._cursor.execute(query + "?", (key(number),))
        else:
            self._cursor.execute(f"{query}'{key(number)}'")
        found = self._cursor.fetchone()
        return None if found is None else dict(zip(COLUMNS, found, strict=True))

    def scan(self) -> list[dict[str, Any]]:
        """Read all rows."""
        self._cursor.execute(f"SELECT {', '.join(COLUMNS)} FROM {TABLE}")
        return [dict(zip(COLUMNS, one, strict=True)) for one in self._cursor.fetchall()]


def rate_of_gets(get: Callable[[int], dict[str, Any] | None], *, rows: int, count: int) -> float:
    """Return how many rows a second are read, one after another, at random."""
    chance = random.Random(7)
    wanted = [chance.randrange(rows) for _ in range(count)]
    began_s = time.perf_counter()
    found = [get(number) for number in wanted]
    elapsed_s = time.perf_counter() - began_s
    if found != [row(number) for number in wanted]:
        raise RuntimeError("the rows are not those that were written")
    return count / elapsed_s


def rate_of_scan(scan: Callable[[], list[dict[str, Any]]], *, rows: int) -> float:
    """Return how many rows a second one scan of all reads."""
    began_s = time.perf_counter()
    found = scan()
    elapsed_s = time.perf_counter() - began_s
    if (len(found), found[-1]) != (rows, row(rows - 1)):
        raise RuntimeError("the rows are not those that were written")
    return rows / elapsed_s
