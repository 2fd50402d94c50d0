"""Calls to a real HBase, and the answers to them, get lost; or their gateway dies.

What names its version is written again, and nobody notices.  What is checked first is made once,
and the error says that its outcome is not known.  The oracle is stopped by neither.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import pytest

import omidpy
from omidpy.errors import StorageUnavailable
from omidpy.facts.commit_table import create_system_tables
from omidpy.model import Column, FamilySchema, TableSchema
from omidpy.storage.base import DeleteVersion, Put, RowMutation
from omidpy.storage.hbase.thrift2 import Thrift2Store
from omidpy.storage.hbase.thrift2 import store as thrift2
from tests.machines.hbase import HBase
from tests.machines.hbase_store import empty_hbase
from tests.machines.lossy_gateway import LossyGateway
from tests.machines.pairs import writers
from tests.machines.processes import tso_server

pytestmark = [pytest.mark.integration, pytest.mark.hbase]

COLUMN = Column(b"cf", b"q")
ROWS = [b"%03d" % number for number in range(60)]


@pytest.fixture(scope="module")
def url(hbase: HBase) -> Iterator[str]:
    """Return the address of an HBase with the system tables and the table `t`."""
    with empty_hbase(hbase) as url:
        with closing(Thrift2Store(url)) as store:
            create_system_tables(store)
            store.create_table(TableSchema("t", [FamilySchema(b"cf")]))
        yield url


@pytest.fixture
def network(hbase: HBase) -> Iterator[LossyGateway]:
    """Return a network that leads to a gateway."""
    with LossyGateway(hbase.gateways[0]) as network:
        yield network


@pytest.fixture
def store(url: str, hbase: HBase, network: LossyGateway) -> Iterator[Thrift2Store]:
    """Return a store beyond that network, whose table is empty."""
    with closing(Thrift2Store(url)) as direct:
        direct.drop_table("t")
        direct.create_table(TableSchema("t", [FamilySchema(b"cf")]))
    with closing(Thrift2Store(network.url)) as store:
        assert store.get("t", [b"r"]) == [[]]  # a connection that works, as most are
        yield store


def put(row: bytes, version: int = 1, value: bytes = b"v") -> RowMutation:
    """Return a mutation that writes one cell."""
    return RowMutation(row, (Put(*COLUMN, version, value),))


def drop(row: bytes, version: int = 1) -> RowMutation:
    """Return a mutation that deletes one cell."""
    return RowMutation(row, deletes=(DeleteVersion(*COLUMN, version),))


def values(store: Thrift2Store) -> dict[bytes, list[bytes]]:
    """Return row -> values, newest first."""
    pages = store.scan("t")
    return {cells[0].row: [cell.value for cell in cells] for page in pages for cells in page}


# -- one call --------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["request", "answer"])
@pytest.mark.parametrize(
    ("method", "mutations", "expected"),
    [
        ("put", [put(b"a", 2)], {b"a": [b"v", b"v"], b"b": [b"v"]}),
        ("putMultiple", [put(b"a", 2), put(b"c")], {b"a": [b"v"] * 2, b"b": [b"v"], b"c": [b"v"]}),
        ("deleteSingle", [drop(b"a")], {b"b": [b"v"]}),
        ("deleteMultiple", [drop(b"a"), drop(b"b")], {}),
        (
            "mutateRow",
            [RowMutation(b"a", (Put(*COLUMN, 2, b"w"),), (DeleteVersion(*COLUMN, 1),))],
            {b"a": [b"w"], b"b": [b"v"]},
        ),
    ],
)
def test_a_write_lost_on_the_way_is_made_again(
    store: Thrift2Store,
    network: LossyGateway,
    way: str,
    method: str,
    mutations: list[RowMutation],
    expected: dict[bytes, list[bytes]],
) -> None:
    """Every put and delete names its version, so that twice is once."""
    store.write({"t": [put(b"a"), put(b"b")]})
    before = network.calls[method]
    (network.lose_request if way == "request" else network.lose_answer)(method)
    store.write({"t": mutations})
    assert network.losses == {method: 1}
    assert network.calls[method] == before + 2
    assert values(store) == expected


@pytest.mark.parametrize(("way", "is_applied"), [("request", False), ("answer", True)])
@pytest.mark.parametrize(
    ("method", "mutation"),
    [
        ("checkAndPut", put(b"a", 2, b"new")),
        ("checkAndMutate", RowMutation(b"a", (Put(*COLUMN, 2, b"new"),), (drop(b"a").deletes))),
    ],
)
def test_a_checked_write_lost_on_the_way_is_in_doubt_and_made_once(
    store: Thrift2Store,
    network: LossyGateway,
    way: str,
    is_applied: bool,  # noqa: FBT001 - a table
    method: str,
    mutation: RowMutation,
) -> None:
    """Made again it would find its own work, and say that it was refused."""
    store.write({"t": [put(b"a", 1, b"old")]})
    (network.lose_request if way == "request" else network.lose_answer)(method)
    with pytest.raises(StorageUnavailable, match="not known"):
        store.check_and_mutate("t", b"a", COLUMN, b"old", mutation)
    assert (network.calls[method], network.losses[method]) == (1, 1)
    assert values(store)[b"a"][0] == (b"new" if is_applied else b"old")


# -- a gateway dies --------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["request", "answer"])
def test_a_batch_goes_on_at_the_other_gateway(
    url: str,
    store: Thrift2Store,
    hbase: HBase,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    """The third call of seven is the last that its gateway gets."""
    monkeypatch.setattr(thrift2, "WRITE_BATCH_ROWS", 9)
    first, second = (LossyGateway(hbase.gateways[0]) for _ in range(2))
    with first, second:
        address = f"hbase+thrift2://{first.address},{second.address}"
        with closing(Thrift2Store(address)) as both:
            both.get("t", [b"r"])
            asked, other = (first, second) if first.calls else (second, first)
            lose = asked.lose_request if way == "request" else asked.lose_answer
            lose("putMultiple", nth=3, is_last=True)
            both.write({"t": [put(row) for row in ROWS]})
        assert asked.calls["putMultiple"] == 3
        assert other.calls["putMultiple"] == 5
    assert values(store) == {row: [b"v"] for row in ROWS}


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_goes_on_at_the_other_gateway(
    url: str,
    store: Thrift2Store,
    hbase: HBase,
    reverse: bool,  # noqa: FBT001 - a table
) -> None:
    """After the last row that arrived: none twice, none left out."""
    store.write({"t": [put(row) for row in ROWS]})
    first, second = (LossyGateway(hbase.gateways[0]) for _ in range(2))
    with first, second:
        address = f"hbase+thrift2://{first.address},{second.address}"
        with closing(Thrift2Store(address)) as both:
            pages = both.scan("t", page_rows=7, reverse=reverse)
            seen = [cells[0].row for cells in next(pages)]
            asked, other = (first, second) if first.calls else (second, first)
            asked.lose_answer("getScannerResults", nth=3, is_last=True)
            seen += [cells[0].row for page in pages for cells in page]
        assert asked.losses == {"getScannerResults": 1}
        assert other.calls["getScannerResults"] > 0
    assert seen == (ROWS[::-1] if reverse else ROWS)


# -- commits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["request", "answer"])
def test_the_oracle_writes_a_commit_again_that_was_lost_on_the_way(
    url: str, network: LossyGateway, way: str
) -> None:
    """It answers once the entry is there for certain, and with the timestamp that is there."""
    with (
        tso_server(network.url) as server,
        omidpy.connect(url, server.address, post_commit="none") as tm,
    ):
        table = f"commits-{way}"
        tm.create_table(table, ["cf"])
        before = network.calls["checkAndPut"]
        (network.lose_request if way == "request" else network.lose_answer)("checkAndPut")
        with tm.begin() as tx:
            tx.table(table).put(b"r", {b"cf:q": b"v"})
        assert network.losses["checkAndPut"] == 1
        assert network.calls["checkAndPut"] >= before + 2
        with tm.begin(read_only=True) as reader:
            found = reader.table(table).row(b"r", include_timestamp=True)
        assert found == {b"cf:q": (b"v", tx.commit_ts)}
        tm.drop_table(table)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_nothing_is_lost_or_invented_where_every_tenth_answer_is(hbase: HBase, seed: int) -> None:
    """Of any call, of the clients and of the oracle; every error says whether it committed."""
    rng = random.Random(seed)

    def loses(_method: str) -> bool:
        return rng.random() < 0.1

    with (
        empty_hbase(hbase) as url,
        LossyGateway(hbase.gateways[0]) as to_clients,
        LossyGateway(hbase.gateways[0]) as to_oracle,
        writers(url, oracles_url=to_oracle.url, clients_url=to_clients.url) as load,
    ):
        with load.running():
            load.wait_for(10)
            to_clients.lose_answers(loses)
            to_oracle.lose_answers(loses)
            load.wait_for(60)
            to_clients.lose_nothing()
            to_oracle.lose_nothing()
            load.wait_for(10)
        load.check()
    assert to_oracle.losses.keys() & {"checkAndPut", "putMultiple"}
    assert "putMultiple" in to_clients.losses
