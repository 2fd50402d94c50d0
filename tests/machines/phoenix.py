"""A real Apache Phoenix 5.2.1 on an HBase of ours, and a `tso-server` that is its oracle.

    with running_phoenix(directory) as phoenix:
        phoenix.sql.execute("CREATE TABLE T (K VARCHAR PRIMARY KEY, N BIGINT) " + TRANSACTIONAL)
        phoenix.sql.query("SELECT * FROM T")

Its jars come from Maven Central (`tests/java/phoenix`), and lie behind HBase's own on the class
path of servers and clients, as an installation of Phoenix has them.  Which oracle is asked says a
file beside `hbase-site.xml`, for region servers and for clients; its port stays the same whoever
serves there, so that both oracles can take turns.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from compactor.tables.adoption import adopt, plan_adoption
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.opening import open_store
from omidpy.phoenix.settings import CLIENT_CONFIGURATION, SERVER_SETTINGS, client_configuration
from tests.machines.hbase import HBase, Mode, RunningHBase
from tests.machines.hbase.ports import PortBlock
from tests.machines.hbase.server import jars
from tests.machines.java import QUICK_START, JavaDriver, JavaOracle
from tests.machines.maven import build
from tests.machines.processes import ROOT, ServerProcess

PROJECT: Final = ROOT / "tests" / "java" / "phoenix"
TRANSACTIONAL: Final = "TRANSACTIONAL=true, TRANSACTION_PROVIDER='OMID'"

_QUICK_SETTINGS: Final = {"phoenix.log.saltBuckets": "1"}
"""A log of queries that nobody reads needs no 32 regions, which would take as long as the rest."""

_numbers = itertools.count(1)


class Sql(JavaDriver):
    """Clients of Phoenix in one process, each a connection.  Safe to share among threads."""

    def __init__(self, hbase: HBase, *, tuning: Sequence[str] = QUICK_START) -> None:
        """Start it, with the configuration of the servers; nothing is connected yet."""
        super().__init__(
            main="omidpy.phoenix.Sql",
            configuration=hbase.conf_dir,
            jars=[jars() / "lib", build(PROJECT) / "lib"],
            tuning=("-Duser.timezone=UTC", *tuning),
        )
        self.zookeeper = hbase.zookeeper

    def open(
        self, *, autocommit: bool = False, settings: Mapping[str, str] | None = None
    ) -> Connection:
        """Connect once more."""
        name = f"connection-{next(_numbers)}"
        # Each has a thread of its own, so that one may wait for another.
        self.call(
            "sql.open",
            session=name,
            connection=name,
            url=f"jdbc:phoenix:{self.zookeeper}:/hbase",
            autocommit=autocommit,
            settings=dict(settings or {}),
        )
        return Connection(self, name)


class Connection:
    """One connection; without `autocommit` its statements are a transaction until `commit`."""

    def __init__(self, driver: Sql, name: str) -> None:
        """Take over what `Sql.open` has opened."""
        self._driver = driver
        self.name = name

    def execute(self, sql: str, *parameters: str | None) -> int:
        """Run a statement; return how many rows it changed."""
        count: int = self._call("execute", sql=sql, parameters=parameters)
        return count

    def query(self, sql: str, *parameters: str | None) -> list[list[Any]]:
        """Return the rows of a query, as `Sql.plain` in the program puts their values."""
        rows: list[list[Any]] = self._call("query", sql=sql, parameters=parameters)
        return rows

    def commit(self) -> None:
        """Commit."""
        self._call("commit")

    def rollback(self) -> None:
        """Take everything back since the last commit."""
        self._call("rollback")

    def close(self) -> None:
        """Give it up."""
        self._call("close")

    def transfers(self, table: str, *, accounts: int, times: int, seed: int) -> int:
        """Move units between accounts K, whose balance is N; return how many moves committed."""
        committed: int = self._call(
            "transfers", table=table, accounts=accounts, times=times, seed=seed
        )
        return committed

    def tpcc(
        self, schema: str, size: Sequence[int], *, times: int, seed: int
    ) -> Future[dict[str, int]]:
        """Let a clerk of TPC-C commit so many transactions, and answer how many of each kind.

        The tables are those of `tests.machines.tpcc`, and so is their size.
        """
        names = ("warehouses", "districts", "customers", "items")
        return self._driver.start(
            "sql.tpcc",
            session=self.name,
            connection=self.name,
            schema=schema,
            times=times,
            seed=seed,
            **dict(zip(names, size, strict=True)),
        )

    def _call(self, do: str, **arguments: Any) -> Any:
        return self._driver.call(f"sql.{do}", session=self.name, connection=self.name, **arguments)


class Phoenix:
    """An HBase with Phoenix, the oracle, and one client of SQL that commits each statement."""

    def __init__(self, hbase: RunningHBase, oracle_port: int) -> None:
        """Hold the HBase; `serve` and `connect` make the rest."""
        self.hbase = hbase
        self.url = hbase.thrift2_url
        self.address = f"127.0.0.1:{oracle_port}"
        self.server: ServerProcess | None = None
        self._java: JavaOracle | None = None
        self._clients: list[Sql] = []

    @property
    def sql(self) -> Connection:
        """The connection that commits each statement."""
        return self._autocommit

    @property
    def driver(self) -> Sql:
        """The process of that connection."""
        return self._clients[0]

    def connect(self) -> None:
        """Start the first client."""
        self._autocommit = self.client().open(autocommit=True)

    def client(self, tuning: Sequence[str] = QUICK_START) -> Sql:
        """Start a process with clients, which ends with this one at the latest."""
        self._clients.append(Sql(self.hbase, tuning=tuning))
        return self._clients[-1]

    def adopt(self, *tables: str) -> None:
        """Adopt tables that SQL has made, all at once: HBase changes each, which is waiting."""

        def adopt_one(table: str) -> None:
            plan = plan_adoption(store, table, COMMIT_TABLE, names_it=True)
            adopt(store, plan, COMMIT_TABLE)

        with closing(open_store(self.url)) as store, ThreadPoolExecutor(len(tables)) as threads:
            list(threads.map(adopt_one, tables))

    def serve(self, *options: str) -> None:
        """Run our oracle, in place of whichever runs."""
        self.end_oracle()
        self.server = ServerProcess(self.url, *options, listen=self.address)
        assert self.server.address == self.address

    def serve_omids(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        tuning: Sequence[str] = QUICK_START,
    ) -> None:
        """Run Omid's oracle, in place of whichever runs."""
        self.end_oracle()
        port = int(self.address.rpartition(":")[2])
        self._java = JavaOracle(
            self.hbase.zookeeper, directory, port=port, settings=settings, tuning=tuning
        )

    @property
    def omids_pid(self) -> int:
        """Id of the process of Omid's oracle, which must run."""
        assert self._java is not None, "Omid's oracle does not run"
        return self._java.pid

    def end_oracle(self) -> None:
        """End the oracle that runs."""
        if self.server is not None:
            server, self.server = self.server, None
            try:
                assert server.terminate() == 0, server.log
            finally:
                server.close()
        if self._java is not None:
            self._java.close()
            self._java = None

    def close(self) -> None:
        """End the clients, then the oracle."""
        for client in self._clients:
            client.close()
        self.end_oracle()


@contextmanager
def running_phoenix(
    directory: Path,
    *,
    mode: Mode = Mode.STANDALONE,
    more: Mapping[str, str] | None = None,
    quick: bool = True,
) -> Iterator[Phoenix]:
    """Run an HBase with Phoenix and our oracle for the length of a block.

    For a measurement it is not `quick`: its Java compiles as it does by itself.
    """
    ports = PortBlock()
    port = ports.port("oracle")
    try:
        hbase = HBase.start(
            directory,
            mode=mode,
            more={**SERVER_SETTINGS, **_QUICK_SETTINGS, **(more or {})},
            more_jars=[build(PROJECT) / "lib"],
            files={CLIENT_CONFIGURATION: client_configuration(f"127.0.0.1:{port}")},
            quick=quick,
        )
        try:
            phoenix = Phoenix(hbase, port)
            try:
                phoenix.serve()
                phoenix.connect()
                yield phoenix
            finally:
                phoenix.close()
        finally:
            hbase.stop(forget=True)
    finally:
        ports.close()
