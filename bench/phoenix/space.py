"""What do Phoenix's tables and its commit table hold before a compaction of ours, and after?

Sixteen connections in SQL move money between accounts whose balance is indexed, and their program
is killed and started again; whoever dies between its commit and the end of it leaves a commit
entry for ever.  Cells are counted as HBase keeps them, delete markers among them.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from bench.measure import Result
from compactor.options import Options
from compactor.run.local import compact
from omidpy.facts.commit_table import COMMIT, COMMIT_TABLE
from omidpy.model import KeyRange
from omidpy.opening import open_store
from tests.machines.java import JavaDied, JavaDriver
from tests.machines.phoenix import TRANSACTIONAL, Phoenix

ACCOUNTS: Final = 200
TABLE: Final = "SPACE.ACCOUNTS"
INDEX: Final = "SPACE.BY_BALANCE"
STAGES: Final = (
    "as Phoenix leaves it",
    "compacted by omidpy",
    "after HBase's next major compaction",
)
CELLS: Final = "cells of the table"
INDEX_CELLS: Final = "cells of its index"
ENTRIES: Final = "entries of the commit table"
_EVERY_ROW: Final = KeyRange(b"", b"")
_A_CALL: Final = 5
"""Moves that a connection makes before it tells of them."""
_PAUSE_S: Final = 0.05


def measure(phoenix: Phoenix, *, kills: int, each: int, connections: int) -> list[Result]:
    """Run the load, and count at each stage."""
    sql = phoenix.sql
    sql.execute(f"CREATE TABLE {TABLE} (K VARCHAR PRIMARY KEY, N BIGINT) {TRANSACTIONAL}")
    sql.execute(f"CREATE INDEX BY_BALANCE ON {TABLE} (N)")
    for number in range(ACCOUNTS):
        sql.execute(f"UPSERT INTO {TABLE} VALUES ('a{number:03}', 100)")
    moved = sum(_killed(phoenix, number, each, connections) for number in range(kills))
    before = sql.query(f"SELECT K, N FROM {TABLE} ORDER BY K")
    found: list[tuple[int, int, int]] = []
    with (
        JavaDriver(zookeeper=phoenix.hbase.zookeeper) as java,
        contextlib.closing(open_store(phoenix.url)) as store,
    ):

        def count() -> None:
            cells, in_index = (len(java.call("admin.raw", table=one)) for one in (TABLE, INDEX))
            pages = store.scan(COMMIT_TABLE, _EVERY_ROW, columns=(COMMIT,))
            entries = {cell.row for page in pages for row in page for cell in row}
            found.append((cells, in_index, len(entries)))

        count()
        # A new oracle lets nobody commit who began before it: all that was is decided.
        phoenix.serve()
        phoenix.adopt(TABLE, INDEX)
        options = Options(grace_s=0.0, invalidation_grace_s=0.0, retention_s=0.0)
        compact(store, options)
        compact(store, options)
        count()
        for name in (TABLE, INDEX, COMMIT_TABLE):
            java.call("admin.major_compact", table=name)
        count()
    if sql.query(f"SELECT K, N FROM {TABLE} ORDER BY K") != before:
        raise RuntimeError("SQL finds other balances than before")
    load = (
        f"{moved} transfers between {ACCOUNTS} accounts by {connections} connections, whose "
        f"program was killed {kills} times"
    )
    return [
        Result(f"{what}, {stage}", load, count=number)
        for stage, numbers in zip(STAGES, found, strict=True)
        for what, number in zip((CELLS, INDEX_CELLS, ENTRIES), numbers, strict=True)
    ]


def _killed(phoenix: Phoenix, number: int, least: int, connections: int) -> int:
    """Move money, and kill the program once it has moved so often; how many moves it told of."""
    client = phoenix.client()
    opened = [client.open() for _ in range(connections)]
    committed = [0] * connections

    def move(at: int) -> None:
        seeds = itertools.count(1_000_000 * number + 10_000 * at)
        with contextlib.suppress(JavaDied):
            while True:
                committed[at] += opened[at].transfers(
                    TABLE, accounts=ACCOUNTS, times=_A_CALL, seed=next(seeds)
                )

    with ThreadPoolExecutor(connections) as threads:
        running = [threads.submit(move, at) for at in range(connections)]
        while sum(committed) < least and not any(one.done() for one in running):
            time.sleep(_PAUSE_S)
        client.kill()
        for one in running:
            one.result()
    return sum(committed)
