"""The oracle is killed at every step of writing commits down, on a file and on a real HBase.

Its standby takes over.  Everything is done once for a store: `tests/machines/crashes/oracles.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import pytest

from omidpy.errors import TransactionAborted
from omidpy.model import Aborted, Committed, Forgotten, Timestamp
from tests.machines.crashes.mortal import Part
from tests.machines.crashes.oracles import BATCHES, PLACES, Death, Deed, OracleObserver
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import one_region_store
from tests.machines.memory_folder import memory_folder

pytestmark = pytest.mark.integration

LOOKS = 3
"""At once, after what was held up had arrived, and behind a compaction."""


@pytest.fixture(
    scope="module",
    params=[
        "sqlite",
        pytest.param("direct", marks=pytest.mark.hbase),
        pytest.param("thrift2", marks=(pytest.mark.hbase, pytest.mark.nightly)),
        pytest.param("direct and zookeeper", marks=(pytest.mark.hbase, pytest.mark.nightly)),
    ],
)
def deaths(request: pytest.FixtureRequest) -> Iterator[list[Death]]:
    """Return what was seen of each death."""
    if request.param == "sqlite":
        with (
            memory_folder() as folder,
            closing(OracleObserver(f"sqlite:///{folder}/store.db")) as observer,
        ):
            yield observer.observe()
        return
    hbase: HBase = request.getfixturevalue("hbase")
    options: tuple[str, ...] = ()
    road = Road.THRIFT2 if request.param == "thrift2" else Road.DIRECT
    if request.param == "direct and zookeeper":
        namespace = f"test-{random.SystemRandom().randrange(10**12)}"
        options = ("--lease", f"zk://{hbase.zookeeper}/{namespace}?period=5s")
    with (
        hbase.by(road),
        one_region_store(hbase) as store,
        closing(OracleObserver(store.url, *options)) as observer,
    ):
        yield observer.observe()


def each(deaths: list[Death]) -> Iterator[tuple[Death, Deed]]:
    """Return every transaction with its oracle's death."""
    return ((death, deed) for death in deaths for deed in death.deeds)


def test_a_batch_is_killed_wherever_its_store_can_tear_it(deaths: list[Death]) -> None:
    """On a file it is one change; on HBase every entry may stand without the others."""
    parts = {death.moment.part for death in deaths}
    on_hbase = {Part.ONE_HALF, Part.OTHER_HALF, Part.HELD_UP}
    assert parts in ({None}, {None} | on_hbase)
    assert {len(death.deeds) for death in deaths} == set(BATCHES)


def test_a_transaction_is_seen_whole_by_all_if_its_entry_was_written(deaths: list[Death]) -> None:
    """And otherwise by nobody, not even when the entry arrives after all (I8, I9)."""
    for death, deed in each(deaths):
        assert len(deed.seen) == LOOKS
        for seen in deed.seen:
            assert set(seen) == (set(PLACES) if deed.is_committed else set()), death
            assert len(set(seen.values())) <= 1, death


def test_its_outcome_is_what_everybody_sees(deaths: list[Death]) -> None:
    """Asked for after each look."""
    for death, deed in each(deaths):
        assert len(deed.outcomes) == LOOKS - (deed is not death.deeds[-1])
        for outcome in deed.outcomes:
            if deed.is_committed:
                (commit_ts,) = set(deed.seen[-1].values())
                assert outcome == Committed(Timestamp(commit_ts)), death
            else:
                assert isinstance(outcome, Aborted | Forgotten), f"{death}: {outcome}"
        assert not isinstance(deed.outcomes[0], Forgotten) or deed.error is not None, death


def test_a_client_that_waited_is_told_by_the_successor(deaths: list[Death]) -> None:
    """A commit that stands returns as any other; of one that does not it is certain."""
    for death, deed in each(deaths):
        if death.is_together:
            continue
        assert (deed.error is None) is deed.is_committed, f"{death}: {deed.error!r}"
        if deed.is_committed:
            assert set(deed.seen[0].values()) == {deed.tx.commit_ts}
        else:
            assert isinstance(deed.error, TransactionAborted)
