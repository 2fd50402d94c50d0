"""Omid's own client and oracle, at the same work.

Each of its modes has an oracle, a commit table and tables of its own: `default`, in which the
oracle writes the commit table, and `low latency`, its fastest, in which the client does.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final, NamedTuple

from bench.hbase import work
from bench.hbase.fleet import Answer
from omidpy.base.tables import ONE_VERSION
from omidpy.facts.commit_table import COMMIT_TABLE_SPLITS
from omidpy.model import FamilySchema, TableSchema
from omidpy.storage.base import Store
from tests.machines.java import FULL_SPEED, JavaDriver, JavaOracle

_NS: Final = 1e9


class Mode(NamedTuple):
    """One way to run Omid."""

    name: str
    is_low_latency: bool
    post_commit: str


DEFAULT: Final = Mode("Java, default", is_low_latency=False, post_commit="SYNC")
LOW_LATENCY: Final = Mode("Java, low latency", is_low_latency=True, post_commit="SYNC")
MODES: Final = (DEFAULT, LOW_LATENCY)


class Omid:
    """One of its clients, with an oracle of its own."""

    def __init__(
        self,
        mode: Mode,
        store: Store,
        zookeeper: str,
        directory: Path,
        resources: contextlib.ExitStack,
    ) -> None:
        """Make its tables, and start both; `resources` ends them."""
        self._prefix = mode.name.upper().replace(", ", "_").replace(" ", "_")
        commit_table = f"{self._prefix}_COMMITS"
        commits = (FamilySchema(b"F", ONE_VERSION), FamilySchema(b"LWF", ONE_VERSION))
        store.create_table(TableSchema(commit_table, commits), splits=COMMIT_TABLE_SPLITS)
        for table in (work.PUT_TABLE, work.READ_TABLE, work.WIDE_TABLE):
            store.create_table(
                TableSchema(self._table(table), (FamilySchema(work.FAMILY),)),
            )
        oracle = JavaOracle(
            zookeeper,
            directory,
            is_low_latency=mode.is_low_latency,
            commit_table=commit_table,
            keeps_timestamps=False,  # in HBase there is room for those of one oracle only
            tuning=FULL_SPEED,
        )
        resources.callback(oracle.close)
        self._driver = JavaDriver(zookeeper=zookeeper, tuning=FULL_SPEED)
        resources.callback(self._driver.close)
        self.pids = {
            "Java's client": [self._driver.process.pid],
            "Omid's oracle": [oracle.process.pid],
        }
        self._driver.call(
            "bench.open",
            manager="it",
            connect=oracle.address,
            commit_table=commit_table,
            post_commit=mode.post_commit,
        )

    def _table(self, table: str) -> str:
        return f"{self._prefix}_{table}"

    def run(self, kind: str, *, rows: int, threads: int, seconds: float) -> Answer:
        """Put or get in transactions, from some threads."""
        table, keys = {
            "put": (work.PUT_TABLE, work.KEYS),
            "get": (work.READ_TABLE, work.GET_KEYS),
        }[kind]
        latencies = self._driver.call(
            "bench.run",
            manager="it",
            table=self._table(table),
            kind=kind,
            rows=rows,
            keys=keys,
            threads=threads,
            value_bytes=len(work.VALUE),
            ms=round(seconds * 1000),
        )
        return Answer([latency / _NS for latency in latencies], seconds)

    def bare(self, kind: str, *, threads: int, seconds: float) -> Answer:
        """Put or get rows one by one, without transactions, from some threads."""
        table, keys = {
            "put": (work.BARE_TABLE, work.KEYS),
            "get": (self._table(work.READ_TABLE), work.GET_KEYS),
        }[kind]
        latencies = self._driver.call(
            "bench.bare",
            table=table,
            kind=kind,
            keys=keys,
            threads=threads,
            value_bytes=len(work.VALUE),
            ms=round(seconds * 1000),
        )
        return Answer([latency / _NS for latency in latencies], seconds)

    def bare_scan(self, table: str) -> tuple[float, int]:
        """Read every cell of a table, shadow cells among them; return the seconds and the rows."""
        elapsed_ns, rows, _ = self._driver.call(
            "bench.count", table=self._table(table), caching=work.SCAN_PAGE_ROWS
        )
        return elapsed_ns / _NS, rows

    def fill(self, table: str, *, rows: int, columns: int) -> None:
        """Write a table's rows; all of them are healed."""
        self._driver.call(
            "bench.fill",
            manager="it",
            table=self._table(table),
            rows=rows,
            columns=columns,
            value_bytes=len(work.VALUE),
        )

    def scan(self, table: str) -> tuple[float, int]:
        """Scan a table in a transaction; return the seconds and the rows."""
        elapsed_ns, rows = self._driver.call(
            "bench.scan", manager="it", table=self._table(table), caching=work.SCAN_PAGE_ROWS
        )
        return elapsed_ns / _NS, rows
