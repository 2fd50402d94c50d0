"""A network between our client and Omid's own oracle loses requests and answers.

After a commit our client knows what became of it, although Omid's oracle invents refusals.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import omidpy
from omidpy.errors import TransactionAborted
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, TransactionStatus
from omidpy.storage.base import Store
from tests.machines.hbase import HBase, Road
from tests.machines.java import JavaOracle
from tests.machines.java_world import shared_store
from tests.machines.proxy import COMMIT, LossyProxy

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

ROAD_BY_DAY = Road.THRIFT2

TABLE = "lossy"


@pytest.fixture(scope="module")
def store(hbase: HBase) -> Iterator[Store]:
    """Open the HBase as our clients do, with Omid's tables and ours."""
    with shared_store(hbase) as store:
        yield store


@pytest.fixture(scope="module")
def oracle(
    hbase: HBase, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaOracle]:
    """Run Omid's oracle."""
    with JavaOracle(hbase.zookeeper, tmp_path_factory.mktemp("oracle")) as oracle:
        yield oracle


@pytest.fixture
def network(oracle: JavaOracle) -> Iterator[LossyProxy]:
    """Put a network between it and us."""
    with LossyProxy(oracle.address) as proxy:
        yield proxy


@pytest.fixture
def ours(hbase: HBase, network: LossyProxy) -> Iterator[TransactionManager]:
    """Return our client beyond that network, with a table."""
    with omidpy.connect(hbase.url, network.address, post_commit="sync") as manager:
        manager.create_table(TABLE, families=["cf"])
        yield manager
        manager.drop_table(TABLE)


@pytest.mark.parametrize(("what", "requests"), [("request", 2), ("answer", 1)])
def test_a_commit_lost_on_the_way_is_found_or_made(
    ours: TransactionManager, network: LossyProxy, what: str, requests: int
) -> None:
    """We look into the commit table first, and ask again only where nothing stands there."""
    (network.lose_request if what == "request" else network.lose_answer)(COMMIT)
    with ours.begin() as tx:
        tx.table(TABLE).put(b"row", {b"cf:a": b"1"})
    assert tx.status is TransactionStatus.COMMITTED
    assert len(network.seen(COMMIT)) == requests
    assert ours.begin().table(TABLE).row(b"row") == {b"cf:a": b"1"}


def test_a_refusal_lost_on_the_way_is_made_certain(
    ours: TransactionManager, network: LossyProxy
) -> None:
    """Omid's oracle refuses a repetition also where it cannot know: its word alone is no proof."""
    loser = ours.begin()
    loser.table(TABLE).put(b"row", {b"cf:a": b"late"})
    with ours.begin() as tx:
        tx.table(TABLE).put(b"row", {b"cf:a": b"early"})
    network.lose_answer(COMMIT)
    with pytest.raises(TransactionAborted):
        loser.commit()
    assert loser.status is TransactionStatus.ROLLED_BACK
    assert ours.outcome(loser) == Aborted()
    assert ours.begin().table(TABLE).row(b"row") == {b"cf:a": b"early"}
