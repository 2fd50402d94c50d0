"""Operations in ZooKeeper, on an ensemble in this process."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable, Iterator, Sequence
from weakref import ref

import pytest
from msgspec.structs import replace

from omidpy.base.timing.clock import ManualClock
from omidpy.errors import CorruptCell
from omidpy.fate import Fate
from omidpy.fate.locks import Locks
from omidpy.fate.operation import Operation, Status, Unreadable
from omidpy.fate.store import FateStore
from omidpy.fate.zookeeper import store as zookeeper_store
from omidpy.fate.zookeeper.session import Delete, Write
from omidpy.fate.zookeeper.store import ZooKeeperFateStore
from omidpy.life.base import Judge, Member
from omidpy.oracle.zookeeper import Znode
from omidpy.testing.fate.basics import an_operation, leaf
from omidpy.testing.fate.contract import FateStoreContract
from omidpy.testing.fate.submissions import keyed
from tests.machines.fake_session import FakeSession


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_store, "ZooKeeperSession", FakeSession)


def opened() -> ZooKeeperFateStore:
    """Return an empty store."""
    return ZooKeeperFateStore(f"{uuid.uuid4().hex}:2181", "/omid/fate", timeout_s=8.0)


def session_of(fates: ZooKeeperFateStore) -> FakeSession:
    """Return its session."""
    session = fates._session
    assert isinstance(session, FakeSession)
    return session


class TestInProcess(FateStoreContract):
    """The meaning of stores of operations."""

    @pytest.fixture
    def fates(self) -> Iterator[ZooKeeperFateStore]:
        """Return an empty store."""
        store = opened()
        yield store
        store.close()

    def reopen(self, fates: FateStore) -> FateStore:
        """Read the same znodes in another session."""
        assert isinstance(fates, ZooKeeperFateStore)
        return ZooKeeperFateStore(fates._session.address.hosts, fates._path)

    def let_die(self, worker: Member, judge: Judge, clock: ManualClock) -> None:
        """Take its znode away, as the ensemble does at the end of a session."""
        fates = judge._session  # type: ignore[attr-defined]  # one of ZooKeeper's
        assert fates.change([Delete(f"{judge._path}/{worker.id}")])  # type: ignore[attr-defined]  # see above


def test_a_store_keeps_no_executor_that_was_closed() -> None:
    """A program that runs a few operations now and then had one more in its store each time."""
    fates = opened()
    executors = []
    for _ in range(3):
        with Fate(None, fates, poll_s=0.02) as fate:
            assert fates._callbacks == [fate._executor.look]
            executors.append(ref(fate._executor))
        del fate
        gc.collect()
    assert [executor() for executor in executors] == [None] * 3
    assert fates._callbacks == []
    fates.close()


def test_what_is_remembered_of_locks_goes_with_them() -> None:
    """An executor that runs for months locks a new name each time a table is made for a day."""
    fates = opened()
    locks = Locks(fates)
    for number in range(3):
        made = fates.submit(an_operation())
        locks.write(f"t{number}", made.id)
        locks.release(made.id)
    assert fates._queues._seen == {}
    fates.close()


def test_no_cost_grows_with_what_is_finished() -> None:
    """A look asks for what is live, and a release for the queues in which somebody is."""

    def cost_behind(finished: int) -> tuple[int, int]:
        fates = opened()
        locks = Locks(fates)
        for number in range(finished):
            made = fates.submit(an_operation())
            locks.write(f"t{number}", made.id)
            ended = replace(made, status=Status.SUCCESSFUL, stack=(), finished_ms=1)
            fates.write(made, ended)
            locks.release(made.id)
        live = fates.submit(an_operation())
        locks.write("t", live.id)
        session, costs = session_of(fates), []
        acts: list[Callable[[], object]] = [fates.live_in_order, lambda: locks.release(live.id)]
        for act in acts:
            session.calls.clear()
            act()
            costs.append(sum(session.calls.values()))
        return costs[0], costs[1]

    assert cost_behind(3) == cost_behind(40)


def test_a_store_of_the_first_format_is_read_and_then_written_as_ours() -> None:
    """From the first change on; who only looks changes nothing."""
    first = opened()
    made = first.submit(an_operation())
    session = session_of(first)
    session.change([Write("/omid/fate", b'{"format":1}'), Delete("/omid/fate/done")])
    fates = ZooKeeperFateStore(session.address.hosts, "/omid/fate")
    assert list(fates.scan()) == [made]
    assert session.ensemble.nodes["/omid/fate"].data == b'{"format":1}'
    ended = fates.write(made, replace(made, status=Status.FAILED, stack=(), finished_ms=1))
    assert session.ensemble.nodes["/omid/fate"].data == b'{"format":2}'
    assert (list(fates.scan_live()), list(fates.scan_finished())) == ([], [ended])


# -- what cannot be read ---------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["repo_0000000001", None])
def test_a_damaged_operation_is_listed_and_can_be_removed(lost: str | None) -> None:
    """A step that is not there was looked for without end, and everything else with it."""
    fates = opened()
    good = fates.submit(an_operation())
    bad = fates.submit(an_operation(key='["k"]', stack=(leaf(1), leaf(2))))
    session = session_of(fates)
    node = f"/omid/fate/tx_{bad.id}"
    change = Delete(f"{node}/{lost}") if lost else Write(node, b"{")
    assert session.change([change])
    found = {one.id: one for one in fates.scan()}
    assert found[good.id] == good
    assert isinstance(found[bad.id], Unreadable)
    with pytest.raises(CorruptCell, match=bad.id):
        fates.read(bad.id)
    assert not fates.remove_unreadable(good.id)
    assert fates.remove_unreadable(bad.id)
    assert list(fates.scan()) == [good]
    assert fates.submit(an_operation(key='["k"]')).id != bad.id
    assert not [path for path in session.ensemble.nodes if bad.id in path]


# -- workers ---------------------------------------------------------------------------------------


def test_a_worker_that_registers_while_its_session_begins_anew_is_trusted() -> None:
    """The client did not know its session then; the ensemble did, and says so with the znode."""
    fates, clock = opened(), ManualClock()
    session = session_of(fates)
    session.is_known = False
    worker = fates.new_worker(lease_s=1.0, clock=clock)
    assert not worker.is_trusted(), "as long as nobody knows whether the session goes on"
    session.is_known = True
    assert worker.beat()
    assert worker.is_trusted()
    clock.advance(8.0)
    assert not worker.is_trusted()
    assert worker.beat()
    assert worker.is_trusted()


def test_a_worker_dies_with_the_session_that_it_was_registered_in() -> None:
    """Whichever goes on in its process by then; the znode of the old one may be there still."""
    fates = opened()
    session = session_of(fates)
    worker = fates.new_worker(lease_s=1.0, clock=ManualClock())
    session.real_id += 1000
    assert not worker.is_trusted()
    assert not worker.beat()
    other = fates.new_worker(lease_s=1.0, clock=ManualClock())
    assert other.beat()
    session.ensemble.end(session.real_id)
    assert not other.beat()


def test_a_path_that_was_removed_is_made_again() -> None:
    """Who uses it is told no wrong reason, and need not be started again."""
    fates = opened()

    def remove() -> None:
        session_of(fates).ensemble.nodes.clear()

    fates.submit(keyed())
    remove()
    made = fates.create(an_operation())
    assert fates.read(made.id) == made
    remove()
    assert fates.read(fates.submit(keyed()).id) is not None
    remove()
    worker = fates.new_worker(lease_s=8.0, clock=ManualClock())
    assert worker.beat()
    remove()
    for _ in range(2):
        if fates.swap_lock_queue("t", fates.read_lock_queue("t"), b"[]"):
            break
    assert fates.read_lock_queue("t") == b"[]"


# -- keys ------------------------------------------------------------------------------------------


def test_a_key_that_went_and_came_back_while_it_was_looked_at_is_not_taken() -> None:
    """Its znode was made anew, with the version that the old one had; two ran under one key."""
    fates = opened()
    others = ZooKeeperFateStore(session_of(fates).address.hosts, "/omid/fate")
    old = others.submit(keyed())
    session, key = session_of(fates), fates._key_path(old.key or "")
    made: list[Operation] = []

    def read_each(paths: Sequence[str]) -> list[Znode | None]:
        found = FakeSession.read_each(session, paths)
        if list(paths) == [key] and not made:
            assert others.delete(others.existing(old.id))
        if any(old.id in path for path in paths) and "/done/" in paths[0] and not made:
            made.append(others.submit(keyed()))
        return found

    session.read_each = read_each  # type: ignore[method-assign]  # who looks stands still behind it
    assert fates.submit(keyed()).id == made[0].id
    assert [one.id for one in fates.live_in_order()] == [made[0].id]
