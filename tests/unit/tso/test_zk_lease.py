"""The lease in ZooKeeper: beside the record in the store, as Omid's oracles and clients know it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omidpy.base.cells import encode_long
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import ConfigError, LeaseLost, OracleUnavailable, StorageUnavailable
from omidpy.facts.commit_table import CommitTable, create_system_tables
from omidpy.facts.leadership import read_lease
from omidpy.model import Timestamp
from omidpy.oracle.address import Place
from omidpy.oracle.zookeeper import Znode, find_oracle, parse_zookeeper, read_omid_ceiling
from omidpy.storage.memory import MemoryStore
from omidpy.wire.messages import TimestampResponse
from tests.machines.fake_zookeeper import FakeEnsemble, FakeZooKeeper
from tests.unit.tso.test_lease import LocklessStore
from tests.unit.tso.test_persistence import PlainStore, steal
from tso.core.events import Batch, Commits, Now
from tso.core.settings import Settings
from tso.durable.lease import Lease
from tso.durable.persist import StorePersistence
from tso.durable.zk_lease import ZooKeeperLease

ADDRESS = parse_zookeeper("zk://zk1:2181,zk2/omid")
LEASE, CURRENT = "/omid/tso-lease", "/omid/current-tso"
HERE, THERE = "h1:24758", "h2:24758"


class World:
    """A store, an ensemble and a clock that several instances share."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        """Start with nothing in it but the system tables."""
        self.store = LocklessStore() if store is None else store
        create_system_tables(self.store)
        self.ensemble = FakeEnsemble()
        self.clock = ManualClock()
        self.sessions: list[FakeZooKeeper] = []

    def lease(
        self, holder_address: str = HERE, *, store: MemoryStore | None = None
    ) -> ZooKeeperLease:
        """Return a claim of a new instance."""
        session = FakeZooKeeper(self.ensemble)
        self.sessions.append(session)
        own = Lease(store or self.store, holder=f"#{len(self.sessions)}", clock=self.clock)
        return ZooKeeperLease(
            own, session, ADDRESS, holder_address=holder_address, clock=self.clock
        )

    def held(self) -> ZooKeeperLease:
        """Return a lease that is held and published."""
        lease = self.lease()
        assert lease.try_acquire() is None
        lease.publish(address=HERE, epoch=1000)
        return lease

    @property
    def node(self) -> Znode:
        """The znode of the lease."""
        return self.ensemble.nodes[LEASE]


@pytest.fixture
def world() -> World:
    """Return a world without any oracle."""
    return World()


def until_taken(world: World, *leases: ZooKeeperLease) -> Iterator[float]:
    """Let half seconds pass while the leases look, until one is taken."""
    while True:
        yield world.clock.monotonic_s()
        if any(lease.try_acquire() is None for lease in leases):
            return
        world.clock.advance(0.5)


# -- taking it -------------------------------------------------------------------------------------


def test_both_leases_are_taken_and_shown(world: World) -> None:
    """Omid's standby sees the znode's version move; our own sees the record."""
    world.held()
    assert world.node.data == HERE.encode()
    assert world.ensemble.nodes[CURRENT] == Znode(b"h1:24758#1000", 1)
    record = read_lease(world.store)
    assert record is not None
    assert (record.address, record.epoch) == (HERE, 1000)
    assert find_oracle(world.sessions[0], ADDRESS) == Place("h1", 24758, Timestamp(1000))


def test_an_oracle_of_omid_keeps_us_waiting_while_it_renews(world: World) -> None:
    """Its version moves; ours is not the only clock."""
    world.ensemble.write(LEASE, b"java:24758")
    lease = world.lease()
    for _ in range(10):
        assert "java:24758" in (lease.try_acquire() or "")
        world.clock.advance(7.5)
        world.ensemble.write(LEASE, b"java:24758")


def test_an_oracle_of_omid_that_stands_still_for_a_period_is_replaced(world: World) -> None:
    """Ten seconds from when we first saw its last version; not a moment earlier."""
    world.ensemble.write(LEASE, b"java:24758")
    lease = world.lease()
    assert lease.try_acquire() is not None
    world.clock.advance(10)
    assert lease.try_acquire() is not None
    world.clock.advance(0.001)
    assert lease.try_acquire() is None
    assert world.node.data == HERE.encode()


def test_a_znode_that_was_made_anew_is_watched_from_its_first_look(world: World) -> None:
    """Its versions begin anew, so that one that we saw comes again, of another that lives."""
    world.ensemble.write(LEASE, b"java:24758")
    seen, lease = world.node, world.lease()
    assert lease.try_acquire() is not None
    del world.ensemble.nodes[LEASE]
    world.ensemble.write(LEASE, b"other:24758")
    assert world.node.version == seen.version
    world.clock.advance(11)
    assert "other:24758" in (lease.try_acquire() or "")


def test_the_two_periods_do_not_add_up(world: World) -> None:
    """A predecessor of ours that died left both behind, and both are watched from the start."""
    world.held()
    successor = world.lease(THERE)
    looks = list(until_taken(world, successor))
    assert 10 < looks[-1] - looks[0] <= 11


def test_of_our_own_one_waits_for_omid_and_the_others_for_it(world: World) -> None:
    """The record decides among ours, and is renewed meanwhile."""
    world.ensemble.write(LEASE, b"java:24758")
    first, second = world.lease(), world.lease(THERE)
    for _ in range(30):
        assert "java" in (first.try_acquire() or "")
        assert "process" in (second.try_acquire() or "")
        world.clock.advance(1)
        world.ensemble.write(LEASE, b"java:24758")


def test_an_instance_with_a_lease_in_the_store_alone_is_seen(world: World) -> None:
    """A mistake in one configuration must not make two oracles."""
    plain = Lease(world.store, holder="plain", clock=world.clock)
    assert plain.try_acquire() is None
    assert "process" in (world.lease().try_acquire() or "")
    assert world.node == Znode(b"", 0)


def test_of_two_that_take_over_one_is_faster(world: World) -> None:
    """The version decides, here between us and Omid's."""
    lease = world.lease()
    session = world.sessions[0]
    read = session.read

    def read_and_lose(path: str) -> Znode | None:
        node = read(path)
        world.ensemble.write(LEASE, b"java:24758")
        return node

    world.ensemble.write(LEASE, b"")
    session.read = read_and_lose  # type: ignore[method-assign]  # Omid writes at the worst moment
    assert "faster" in (lease.try_acquire() or "")


# -- publishing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [b"", b"java:24758#999", b"java:24758#1000"])
def test_an_older_address_is_replaced(world: World, stored: bytes) -> None:
    """Also the empty one that Omid creates when it starts."""
    world.ensemble.write(CURRENT, stored)
    world.held()
    assert world.ensemble.nodes[CURRENT].data == b"h1:24758#1000"


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (b"java:24758#1050", "whose epoch is above 1000"),
        (b"java:24758", "no HOST:PORT#EPOCH"),
        (b"java:24758#1#2", "no HOST:PORT#EPOCH"),
        (b"\xff\xfe#5", "no HOST:PORT#EPOCH"),
        (b"java#24758#", "no HOST:PORT#EPOCH"),
    ],
)
def test_what_omid_would_refuse_is_refused(world: World, stored: bytes, message: str) -> None:
    """Another store's namespace, or timestamps that went back; nothing is changed."""
    world.ensemble.write(CURRENT, stored)
    lease = world.lease()
    assert lease.try_acquire() is None
    with pytest.raises(ConfigError, match=message):
        lease.publish(address=HERE, epoch=1000)
    assert world.ensemble.nodes[CURRENT].data == stored
    record = read_lease(world.store)
    assert record is not None
    assert record.epoch is None


def test_an_address_that_changes_while_it_is_replaced_is_a_lost_lease(world: World) -> None:
    """Omid's oracle took over and published itself between our read and our write."""
    lease = world.lease()
    assert lease.try_acquire() is None
    session = world.sessions[0]
    replace = session.replace

    def replace_late(path: str, data: bytes, *, version: int) -> int | None:
        if path == CURRENT:
            world.ensemble.write(CURRENT, b"java:24758#2000")
        return replace(path, data, version=version)

    session.replace = replace_late  # type: ignore[method-assign]  # Omid is faster
    with pytest.raises(LeaseLost, match="was changed by another oracle"):
        lease.publish(address=HERE, epoch=1000)
    assert world.ensemble.nodes[CURRENT].data == b"java:24758#2000"


def test_an_oracle_that_stood_still_before_it_was_published_asks_for_no_operator(
    world: World,
) -> None:
    """The later epoch in the znode is its successor's: nothing is wrong with the store."""
    slow, successor = world.lease(), world.lease(THERE)
    assert slow.try_acquire() is None
    for _ in until_taken(world, successor):
        pass
    successor.publish(address=THERE, epoch=2000)
    with pytest.raises(LeaseLost):
        slow.publish(address=HERE, epoch=1000)
    assert world.ensemble.nodes[CURRENT].data == b"h2:24758#2000"


# -- keeping it ------------------------------------------------------------------------------------


def test_whoever_finds_the_znode_written_has_lost(world: World) -> None:
    """Whatever it says: the version counts, as Omid's oracles may share a name."""
    lease = world.held()
    lease.check()
    world.ensemble.write(LEASE, HERE.encode())
    with pytest.raises(LeaseLost, match="the oracle at h1:24758"):
        lease.check()
    world.clock.advance(3)
    with pytest.raises(LeaseLost):
        lease.renew_if_due()


@pytest.mark.parametrize("seconds_later", [0, 3])
def test_whoever_finds_the_record_replaced_has_lost_too(world: World, seconds_later: float) -> None:
    """An instance that was started with a lease in the store alone has taken over."""
    lease = world.held()
    steal(world.store)
    world.clock.advance(seconds_later)
    with pytest.raises(LeaseLost, match="process 7 on h"):
        lease.check()


def test_a_znode_that_was_deleted_is_a_lost_lease(world: World) -> None:
    """Whoever creates it again starts to count anew."""
    lease = world.held()
    del world.ensemble.nodes[LEASE]
    with pytest.raises(LeaseLost, match="nobody"):
        lease.check()


def test_a_renewal_that_is_due_takes_the_place_of_the_read(world: World) -> None:
    """A write is decided by a quorum; a read behind a stopped clock might not be."""
    lease = world.held()
    calls = world.sessions[0].calls
    calls.clear()
    lease.check()
    world.clock.advance(2.5)
    lease.check()
    lease.check()
    assert calls == [f"read {LEASE}", f"replace {LEASE}", f"read {LEASE}"]


def test_an_oracle_that_was_stopped_past_its_period_finds_out_by_writing(world: World) -> None:
    """Nobody has taken over, so it goes on; somebody has, and it ends."""
    lease = world.held()
    world.clock.advance(1000)
    lease.check()
    successor = world.lease(THERE)
    for _ in until_taken(world, successor):
        continue
    with pytest.raises(LeaseLost):
        lease.check()
    successor.check()


def test_whichever_lease_is_older_says_how_long_nobody_else_can_answer(world: World) -> None:
    """Each can be taken over by itself: the znode by Omid's oracle."""
    lease = world.held()
    began_s = world.clock.monotonic_s()
    assert lease.vouched_until_s == began_s + 10
    world.clock.advance(2.5)
    world.sessions[0].is_cut = True
    with pytest.raises(StorageUnavailable):
        lease.renew_if_due()
    assert lease.vouched_until_s == began_s + 10, "the record alone was renewed"
    world.sessions[0].is_cut = False
    lease.renew_if_due()
    assert lease.vouched_until_s == began_s + 12.5


def test_a_renewed_lease_is_not_taken_over(world: World) -> None:
    """A quarter of the period is in time."""
    lease, standby = world.held(), world.lease(THERE)
    for _ in range(20):
        assert standby.try_acquire() is not None
        world.clock.advance(2.5)
        lease.renew_if_due()
    lease.check()


def test_a_renewal_whose_answer_was_lost_is_still_ours(world: World) -> None:
    """One more version may be ours then, and no more than one."""
    lease = world.held()
    session = world.sessions[0]
    world.clock.advance(2.5)
    session.loses_answers = True
    with pytest.raises(StorageUnavailable):
        lease.renew_if_due()
    session.loses_answers = False
    lease.renew_if_due()
    lease.check()
    world.ensemble.write(LEASE, HERE.encode())
    with pytest.raises(LeaseLost):
        lease.check()


def test_nothing_is_believed_while_zookeeper_does_not_answer(world: World) -> None:
    """The batch is flushed again later; until then nobody gets an answer."""
    lease = world.held()
    world.sessions[0].is_cut = True
    with pytest.raises(StorageUnavailable):
        lease.check()
    world.sessions[0].is_cut = False
    lease.check()


def test_a_lease_given_up_is_free_at_once(world: World) -> None:
    """For a standby of ours; Omid's does not look and waits its period."""
    lease, standby = world.held(), world.lease(THERE)
    assert standby.try_acquire() is not None
    lease.release()
    assert world.sessions[0].is_closed
    assert world.node.data == b""
    assert standby.try_acquire() is None
    standby.publish(address=THERE, epoch=1000)
    assert find_oracle(world.sessions[1], ADDRESS).host == "h2"


def test_a_lease_that_was_lost_is_not_given_up(world: World) -> None:
    """It is the successor's now."""
    lease = world.held()
    world.ensemble.write(LEASE, THERE.encode())
    lease.release()
    assert world.node.data == THERE.encode()


# -- behind a batch --------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [MemoryStore, PlainStore])
@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_behind_which_the_lease_is_gone_is_not_answered(
    store: type[MemoryStore], count: int
) -> None:
    """Also where the store guards batches by its record: it knows nothing of the znode."""
    world = World(store())
    lease = world.held()
    persistence = StorePersistence(world.store, lease)
    now = Now(world.clock.wall_ms(), world.clock.monotonic_s())
    persistence.start(Settings(timestamps="incremental"), now, accept_clock=False)
    commits = [(100 + 50 * number, 10_000 + 50 * number) for number in range(count)]
    persistence.flush(Batch(commits=Commits(commits)))
    world.ensemble.write(LEASE, THERE.encode())
    later = [(start_ts + 1000, commit_ts + 1000) for start_ts, commit_ts in commits]
    with pytest.raises(LeaseLost):
        persistence.flush(Batch(commits=Commits(later)))
    begun = TimestampResponse(Timestamp(50), Timestamp(0))
    with pytest.raises(LeaseLost):
        persistence.flush(Batch(answers=[("a", begun)]))
    assert CommitTable(world.store).read([Timestamp(100)]) == {100: 10_000}


# -- finding it ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stored", "state"), [(None, "does not exist"), (b"", "is empty")])
def test_a_client_that_finds_nothing_is_told_how_to_start_one(
    world: World, stored: bytes | None, state: str
) -> None:
    """Or that the namespace may be another."""
    if stored is not None:
        world.ensemble.write(CURRENT, stored)
    with pytest.raises(OracleUnavailable, match=state) as caught:
        find_oracle(FakeZooKeeper(world.ensemble), ADDRESS)
    assert "--lease zk://zk1:2181,zk2:2181/omid" in str(caught.value)
    assert caught.value.retryable


def test_a_client_that_finds_something_else_is_told_so(world: World) -> None:
    """It is not going to mend itself."""
    world.ensemble.write(CURRENT, b"nonsense")
    with pytest.raises(ConfigError, match="holds b'nonsense'"):
        find_oracle(FakeZooKeeper(world.ensemble), ADDRESS)


def test_omids_ceiling_in_zookeeper_is_found(world: World) -> None:
    """Where its timestamp storage was ZooKeeper; 0 is what it creates before the first."""
    session = FakeZooKeeper(world.ensemble)
    assert read_omid_ceiling(session, ADDRESS) is None
    for stored, expected in ((0, None), (5000, 5000)):
        world.ensemble.write("/omid/omid/timestamp", encode_long(stored))
        assert read_omid_ceiling(session, ADDRESS) == expected
