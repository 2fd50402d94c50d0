"""The simulated ZooKeeper keeps its own rules, and worlds that have one find nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.fate.zookeeper.session import Change, Check, Create, Delete, Write
from omidpy.oracle.zookeeper import Znode, ZooKeeperAddress
from tests.machines.simulator.ensemble import ENSEMBLE, Ensemble, OmidsOracle, SimZooKeeper
from tests.machines.simulator.network import Weather
from tests.machines.simulator.plan import ALONE, Focus
from tests.machines.simulator.simulation import simulate
from tests.machines.simulator.store import SharedStore
from tests.machines.simulator.watch import Watch
from tests.machines.simulator.world import Process, SimClock, World

TIMEOUT_S: Final = 3.0
OPERATING: Final = ALONE._replace(
    ensemble_shares=(1.0,), operators=(2, 3), znode_operations=(True,), leases_s=(3.0,)
)
LEADING: Final = ALONE._replace(
    ensemble_shares=(1.0,),
    znode_leases=(("oracle-a", "oracle-b"),),
    omids_oracles=(True,),
    oracle_leases_s=(2.0,),
    calm_share=0.0,
)


class Scene:
    """A world with an ensemble, and programs that ask it."""

    def __init__(self) -> None:
        self.world = World(seed=0)
        self.weather = Weather(self.world)
        store = SharedStore(self.world, self.weather, Watch(self.world), "cluster")
        self.ensemble = Ensemble(self.world, self.weather, store)

    def run(self, name: str, act: Callable[[SimZooKeeper], None], until_s: float = 60.0) -> Process:
        """Let a process do something with a client of its own."""
        process = self.world.process(name, SimClock(self.world, name, ahead_ms=0))
        program = process.start(lambda: act(self.ensemble.client(TIMEOUT_S)))
        assert self.world.run(lambda: program.is_over, until_s=until_s)
        return process


def test_who_stood_still_hears_with_its_next_call_that_its_session_has_ended() -> None:
    """What it has made to end with it is gone by then."""
    scene = Scene()

    def act(client: SimZooKeeper) -> None:
        client.make("/workers")
        assert client.create("/workers/a", b"", is_ephemeral=True)
        first = client.session_id
        assert client.owner_of("/workers/a") == first
        scene.world.program.sleep(2 * TIMEOUT_S)
        assert client.children("/workers") == ["a"], "it has shown life meanwhile"
        process = scene.world.program.process
        process.paused_until_s = scene.world.now_s + 2 * TIMEOUT_S
        scene.world.program.sleep(0)
        assert client.session_id == first, "as far as it knows"
        with pytest.raises(StorageUnavailable, match="session of a has ended"):
            client.sync()
        assert client.children("/workers") == []
        assert client.session_id != first

    scene.run("a", act)
    assert scene.world.counts["sessions that ended"] == 1


def test_a_session_ends_with_its_process_and_with_a_partition() -> None:
    """The dead show no life, nor does who is cut off."""
    scene = Scene()
    process = scene.run("dead", lambda client: None)
    process.crash()
    scene.run("cut off", lambda client: None)
    scene.weather.cut("cut off", ENSEMBLE, 10 * TIMEOUT_S)
    scene.world.run(lambda: False, until_s=scene.world.now_s + 3 * TIMEOUT_S)
    assert scene.world.counts["sessions that ended"] == 2


@pytest.mark.parametrize(
    "spoils",
    [
        Create("/a", b"again"),
        Create("/nobody/a", b""),
        Write("/a", b"", 7),
        Delete("/a", 3),
        Delete("/b"),
        Check("/a", 7),
    ],
)
def test_all_of_a_transaction_is_done_or_nothing(spoils: Change) -> None:
    """Whatever is in the way."""
    ensemble = Scene().ensemble
    ensemble.make("/b/c")
    assert ensemble.change([Create("/a", b"1"), Write("/b", b"2", 0), Delete("/b/c", 0)])
    ensemble.make("/b/d")
    assert not ensemble.change([Write("/a", b"9", 0), Create("/e", b""), spoils])
    assert ensemble.read("/a") == Znode(b"1", 0)
    assert ensemble.read("/b") == Znode(b"2", 1)
    assert ensemble.children("/b") == ["d"]
    assert ensemble.read("/e") is None


def test_omids_oracle_takes_a_lease_that_stood_still_for_a_period_and_lets_it_go() -> None:
    """Not one that is renewed."""
    scene = Scene()
    address = ZooKeeperAddress("zookeeper:2181", period_s=2.0)
    scene.ensemble.make(address.lease_path)
    omids = OmidsOracle(scene.ensemble, address)
    omids.stand_by(60.0, lambda: 5.0)
    has_lease: dict[int, bool] = {}

    def renew(number: int) -> None:
        has_lease[number] = omids.has_lease
        if number < 10:
            scene.ensemble.nodes[address.lease_path].version += 1

    for number in range(30):
        scene.world.at(number, None, lambda number=number: renew(number))  # type: ignore[misc]
    scene.world.run(lambda: False, until_s=30.0)
    assert not any(has_lease[number] for number in range(12))
    assert has_lease[13]
    assert has_lease[15]
    assert not has_lease[19]


IN_OPERATIONS: Final = ("sessions that ended", "operations that ended as SUCCESSFUL")
IN_LEASES: Final = ("leases of Omid's", "oracles ended by LeaseLost")


@pytest.mark.parametrize(
    ("focus", "count", "what"),
    [
        pytest.param(OPERATING, 5, IN_OPERATIONS, id="operations"),
        pytest.param(LEADING, 9, IN_LEASES, id="leases"),
        pytest.param(OPERATING, 24, IN_OPERATIONS, id="operations-more", marks=pytest.mark.nightly),
        pytest.param(LEADING, 12, IN_LEASES, id="leases-more", marks=pytest.mark.nightly),
    ],
)
def test_worlds_with_zookeeper_find_nothing(
    focus: Focus, count: int, what: tuple[str, ...]
) -> None:
    """And what it is there for has happened in some of them."""
    counts: Counter[str] = Counter()
    for seed in range(count):
        report = simulate(seed, focus=focus)
        assert not report.findings, report
        counts.update(report.counts)
    for one in what:
        assert counts[one] > 0, one
