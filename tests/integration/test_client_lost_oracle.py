"""A client whose `tso-server` is gone when it commits."""

from __future__ import annotations

from pathlib import Path

import pytest

from omidpy.errors import OracleUnavailable, TransactionAborted
from omidpy.manager import TransactionManager
from omidpy.oracle.tcp import TcpOracle
from omidpy.storage.sqlite import SqliteStore
from tests.machines.processes import tso_server

pytestmark = pytest.mark.integration


def test_a_commit_that_nobody_was_there_to_take_is_an_abort(tmp_path: Path) -> None:
    """Nothing was sent, so nothing is open: the cells go, and another try is right."""
    url = f"sqlite:///{tmp_path}/x.db"
    with tso_server(url) as server:
        address = server.address
        store = SqliteStore(tmp_path / "x.db")
        oracle = TcpOracle(address, store_id=store.store_id, reconnect_budget_s=0)
        tm = TransactionManager(store, oracle)
        tm.create_table("t", ["cf"])
        tx = tm.begin()
        tx.table("t").put(b"r", {b"cf:q": b"v"})
        tx.flush()
        server.kill()
    with pytest.raises(OracleUnavailable):
        tm.begin()
    with pytest.raises(TransactionAborted, match="was not committed: no oracle answers") as caught:
        tx.commit()
    assert caught.value.retryable
    assert list(store.scan("t")) == []
    with pytest.raises(OracleUnavailable, match="tso-server --store"):
        tm.begin()
    with tso_server(url, listen=address) as server:
        assert server.address == address
        with tm.begin() as tx:
            tx.table("t").put(b"r", {b"cf:q": b"v"})
        with tm.begin() as tx:
            assert tx.table("t").row(b"r") == {b"cf:q": b"v"}
        tm.close()
