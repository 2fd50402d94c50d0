"""`omidpy fsck` beside clients at work: nobody who is alive is a finding."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

import omidpy
from compactor.check.fsck import Check, CheckOptions
from omidpy.errors import TransactionAborted
from omidpy.facts.commit_table import read_low_watermark
from omidpy.opening import open_store
from omidpy.storage.base import Store
from tests.machines.hbase_store import empty_hbase
from tests.machines.processes import tso_server

CLIENTS: Final = 3
ROWS: Final = 10_000
CHECKS: Final = 4
DEADLINE_S: Final = 60.0
FORGETFUL: Final = ("--conflict-map-size", "64")
"""So small a memory lets the low watermark follow the newest transactions closely."""


@pytest.fixture(
    params=["sqlite", pytest.param("hbase", marks=(pytest.mark.hbase, pytest.mark.nightly))]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the address of a store without tables."""
    if request.param == "hbase":
        with empty_hbase(request.getfixturevalue("hbase")) as url:
            yield url
    else:
        yield f"sqlite:///{tmp_path}/s.db"


@pytest.mark.integration
def test_clients_at_work_are_no_findings(url: str) -> None:
    """Every check begins among transactions that commit, fail, roll back and write shadow cells."""
    with tso_server(url, *FORGETFUL) as server:
        with omidpy.connect(url, tso=server.address) as tm:
            tm.create_table("accounts", families=["cf"], splits=[b"5"])
        with closing(open_store(url)) as store, clients(url, server.address) as committed:
            seen = [check(store) for _ in range(CHECKS)]
            assert seen == sorted(set(seen)), "the low watermark went on, over what was written"
            assert len(committed) > CHECKS
        with closing(open_store(url)) as store:
            assert Check(store, CheckOptions(), sleep=refuse).run().left == 0


def check(store: Store) -> int:
    """Check a store, and return up to where it was judged."""
    before = read_low_watermark(store)
    deadline_s = time.monotonic() + DEADLINE_S
    while read_low_watermark(store) == before:
        assert time.monotonic() < deadline_s, "the low watermark stands still"
    report = Check(store, CheckOptions(settle_s=2.0), sleep=time.sleep).run()
    assert report.findings == []
    assert report.left == 0
    return report.low_watermark


def refuse(seconds: float) -> None:
    """Fail: there is nothing to wait for once everybody has come to an end."""
    raise AssertionError(f"something looks wrong, to wait {seconds} s for")


@contextmanager
def clients(url: str, tso: str) -> Iterator[list[int]]:
    """Have clients move money for the length of a block; yield the transactions that committed."""
    committed: list[int] = []
    is_over = threading.Event()

    def work(number: int) -> None:
        choose = random.Random(number)
        with omidpy.connect(url, tso=tso) as tm:
            while not is_over.is_set():
                try:
                    with tm.begin() as tx:
                        table = tx.table("accounts")
                        for _ in range(3):
                            table.put(b"%04d" % choose.randrange(ROWS), {b"cf:b": b"%d" % number})
                        tx.flush()
                        if choose.random() < 0.2:
                            raise omidpy.Rollback
                except TransactionAborted:
                    continue
                committed.append(tx.start_ts)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield committed
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
