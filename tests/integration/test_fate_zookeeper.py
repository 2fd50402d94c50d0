"""Operations in ZooKeeper: what the contract of stores does not see of it."""

from __future__ import annotations

import json
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from omidpy.base.timing.clock import ManualClock, SystemClock
from omidpy.cli import main
from omidpy.errors import ConfigError, CorruptCell, StorageUnavailable
from omidpy.fate import Done, Fate, Status, Step, ZooKeeperFateStore, step
from omidpy.fate.operation import Operation, Unreadable
from omidpy.fate.step import Answer, StepContext
from omidpy.fate.zookeeper.session import ZooKeeperSession
from omidpy.testing.fate.basics import an_operation
from omidpy.testing.fate.submissions import KEY, keyed
from tests.machines.hbase import HBase

pytestmark = pytest.mark.integration

LONGEST_S = 60.0


@dataclass
class World:
    """Where a step says that it has begun, and hears that it may end."""

    name: str
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    may_end: threading.Event = field(default_factory=threading.Event)


@step(version=1, namespace="test-zookeeper")
class Waits(Step):
    """A step that ends when the test wants it to."""

    def call(self, tx: StepContext, env: World) -> Answer:
        """Wait."""
        env.begun.release()
        assert env.may_end.wait(LONGEST_S)
        return Done(env.name)


@pytest.fixture
def path() -> str:
    """Return a path that nobody used before."""
    return f"/omidpy-test/{uuid.uuid4().hex}/fate"


@pytest.fixture
def fates(hbase: HBase, path: str) -> Iterator[ZooKeeperFateStore]:
    """Return an empty store of operations."""
    store = ZooKeeperFateStore(hbase.zookeeper, path)
    yield store
    store.close()


def tree(session: ZooKeeperSession, path: str) -> dict[str, bytes]:
    """Return what is below a path."""
    found = {}
    for name in session.children(path):
        node = session.read(f"{path}/{name}")
        assert node is not None
        found[name] = node.data
        found |= {
            f"{name}/{below}": data for below, data in tree(session, f"{path}/{name}").items()
        }
    return found


def test_an_operation_lies_where_accumulo_keeps_its_own(
    fates: ZooKeeperFateStore, path: str
) -> None:
    """Whoever knows the one finds his way in the other; all of it is JSON."""
    made = fates.create(an_operation())
    fates.write(made, replace(made, stack=made.stack * 2))
    found = tree(fates._session, path)
    node = f"tx_{made.id}"
    assert sorted(found) == sorted(
        ["done", "keys", "workers", "locks", node]
        + [f"{node}/{below}" for below in ("debug", "repo_0000000000", "repo_0000000001")]
    )
    assert json.loads(found[node])["status"] == "NEW"
    assert json.loads(found[f"{node}/debug"]) == {"fateop": "TEST"}
    assert json.loads(found[f"{node}/repo_0000000001"])["step"] == "omidpy-testing.Leaf"


def test_nothing_is_left_of_what_was_removed(fates: ZooKeeperFateStore, path: str) -> None:
    """Its key goes in the same transaction."""
    made = fates.submit(keyed())
    assert fates.delete(made)
    assert sorted(tree(fates._session, path)) == ["done", "keys", "locks", "workers"]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [(b'{"format":3}', "reads up to 2; upgrade omidpy"), (b"tso", "no store of operations")],
)
def test_a_path_of_somebody_else_is_refused(
    fates: ZooKeeperFateStore, hbase: HBase, path: str, data: bytes, complaint: str
) -> None:
    """A newer program's, or another's altogether."""
    fates._session.make(path)
    fates._session._client.set(path, data)
    with pytest.raises(ConfigError, match=complaint):
        ZooKeeperFateStore(hbase.zookeeper, path)


def test_addresses_that_make_no_sense_are_refused(hbase: HBase) -> None:
    """Before anybody is asked, if that can be seen."""
    for path in ("omid/fate", "/omid/fate/", "/omid//fate", ""):
        with pytest.raises(ConfigError, match="is no znode"):
            ZooKeeperFateStore(hbase.zookeeper, path)
    with pytest.raises(ConfigError, match="nobody:none"):
        ZooKeeperFateStore("nobody:none")
    with pytest.raises(StorageUnavailable, match=r"does not answer within 0\.2 s"):
        ZooKeeperFateStore("127.0.0.1:1", timeout_s=0.2)


def test_a_znode_that_cannot_be_read_hides_no_other(fates: ZooKeeperFateStore) -> None:
    """It is listed with what is wrong with it."""
    good, bad = fates.submit(an_operation()), fates.submit(an_operation())
    fates._session._client.set(fates._node(bad.id), b"IN_PROGRESS")
    found = {one.id: one for one in fates.scan()}
    assert found[good.id] == good
    unreadable = found[bad.id]
    assert isinstance(unreadable, Unreadable)
    assert bad.id in unreadable.reason
    with pytest.raises(CorruptCell, match=bad.id):
        fates.read(bad.id)
    assert fates.runnable() == [good]


def test_a_key_that_was_made_anew_is_not_taken_by_an_old_view_of_it(
    fates: ZooKeeperFateStore,
) -> None:
    """Versions of znodes begin anew; but the old owner's has changed as it lost its key."""
    old = fates.submit(keyed())
    old = fates.write(old, replace(old, status=Status.FAILED, finished_ms=1))
    change, others = fates._session.change, []

    def change_late(changes: Any) -> bool:
        fates._session.__dict__.pop("change")
        between = fates.submit(keyed())
        between = fates.write(between, replace(between, status=Status.FAILED, finished_ms=1))
        assert fates.delete(between)
        others.append(fates.submit(keyed()))
        return change(changes)

    fates._session.__dict__["change"] = change_late
    assert fates.submit(keyed()).id == others[0].id
    assert [one.key for one in fates.runnable()] == [KEY]


def test_of_two_who_find_a_key_without_an_operation_one_gets_it(
    fates: ZooKeeperFateStore,
) -> None:
    """There is none by us; but whoever deletes znodes by hand may leave one."""
    gone = fates.submit(keyed())
    fates._session._client.delete(fates._node(gone.id), recursive=True)
    change, others = fates._session.change, []

    def change_late(changes: Any) -> bool:
        fates._session.__dict__.pop("change")
        others.append(fates.submit(keyed()))
        return change(changes)

    fates._session.__dict__["change"] = change_late
    assert fates.submit(keyed()).id == others[0].id
    assert len(fates.runnable()) == 1


def test_a_read_follows_a_sync(fates: ZooKeeperFateStore) -> None:
    """A server that lags behind would say that a write of ours was not done."""
    made = fates.submit(keyed())
    client = fates._session._client
    asked: list[str] = []

    def noting(name: str) -> Callable[..., Any]:
        ask = getattr(client, name)

        def call(*args: Any, **more: Any) -> Any:
            asked.append(name)
            return ask(*args, **more)

        return call

    for name in ("sync_async", "get_async", "get_children_async"):
        client.__dict__[name] = noting(name)
    looks: list[Callable[[], object]] = [
        lambda: fates.read(made.id),
        lambda: list(fates.scan()),
        lambda: fates.read_lock_queue("t"),
        lambda: list(fates.lock_queues()),
        lambda: fates.new_judge(SystemClock()).dead(["w"]),
    ]
    for look in looks:
        asked.clear()
        look()
        assert asked[0] == "sync_async"


def test_a_scan_reads_steps_only_of_what_has_changed(fates: ZooKeeperFateStore) -> None:
    """An executor looks every second."""
    made = [fates.submit(an_operation()) for _ in range(5)]
    list(fates.scan())
    asked: list[str] = []
    read_each = fates._session.read_each

    def counting(paths: Any) -> Any:
        asked.extend(paths)
        return read_each(paths)

    fates._session.__dict__["read_each"] = counting
    list(fates.scan())
    assert len(asked) == 5
    asked.clear()
    changed = fates.write(made[2], replace(made[2], progress="new"))
    assert changed in list(fates.scan())
    assert len([path for path in asked if "repo_" in path]) == 1


def test_an_operation_that_changes_while_it_is_read_is_read_again(
    fates: ZooKeeperFateStore, hbase: HBase, path: str
) -> None:
    """A status of one moment with the steps of another would be no operation."""
    made = fates.submit(an_operation())
    other = ZooKeeperFateStore(hbase.zookeeper, path)
    read_each, news = fates._session.read_each, [made]

    def late(paths: Any) -> Any:
        if len(news) < 3 and "repo_" in paths[-1]:
            was = news[-1]
            stack = was.stack * 2 if len(news) == 1 else ()
            news.append(other.write(was, replace(was, stack=stack)))
        return read_each(paths)

    fates._session.__dict__["read_each"] = late
    assert fates.read(made.id) == news[2]
    assert len(news) == 3
    other.close()


def test_news_come_at_once(fates: ZooKeeperFateStore, hbase: HBase, path: str) -> None:
    """An executor that looks once an hour runs what another client submits."""
    world = World("one")
    world.may_end.set()
    with Fate(world, fates, poll_s=3600.0):
        client = ZooKeeperFateStore(hbase.zookeeper, path)
        handle = Fate(None, client, {}).submit("TEST", Waits())
        assert handle.result(timeout=LONGEST_S) == "one"
        client.close()


def test_a_session_that_ends_gives_its_operations_to_others(
    fates: ZooKeeperFateStore, hbase: HBase, path: str
) -> None:
    """The old executor's write is refused, and it goes on as another worker."""
    from kazoo.client import KazooClient

    worlds = [World("first"), World("second")]
    other = ZooKeeperFateStore(hbase.zookeeper, path)
    idle = fates.new_worker(lease_s=10.0, clock=ManualClock())
    assert idle.is_trusted()
    with Fate(worlds[0], fates, {"general": 1}, lease_s=1.0) as first:
        handle = first.submit("TEST", Waits())
        assert worlds[0].begun.acquire(timeout=LONGEST_S)
        worker = first._executor._worker
        twin = KazooClient(hosts=hbase.zookeeper, client_id=fates._session._client.client_id)
        twin.start()
        twin.stop()  # ends the session of both
        twin.close()
        with Fate(worlds[1], other, {"general": 1}, lease_s=1.0):
            assert worlds[1].begun.acquire(timeout=LONGEST_S)
            worlds[0].may_end.set()
            worlds[1].may_end.set()
            assert handle.result(timeout=LONGEST_S) == "second"
        again = first.submit("TEST", Waits())
        assert again.result(timeout=LONGEST_S) == "first"
        assert first._executor._worker is not worker
        assert (
            not idle.is_trusted()
        )  # although it never looked, and by its clock no time has passed
    other.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_a_session_of_its_own(fates: ZooKeeperFateStore) -> None:
    """The parent's goes on, with its signs of life."""
    worker = fates.new_worker(lease_s=10.0, clock=SystemClock())
    made = fates.submit(an_operation())
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            found = fates.read(made.id)
            assert isinstance(found, Operation)
            fates.write(found, replace(found, progress="child"))
            assert fates.new_judge(SystemClock()).dead([worker.id]) == frozenset()
            assert not worker.beat()
            fates.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # whoever waits for its parent's threads waits for ever
        fates.close()  # without having used it
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    found = fates.read(made.id)
    assert found is not None
    assert found.progress == "child"
    assert worker.beat()
    worker.retire()


def test_the_command_finds_operations_in_zookeeper(
    hbase: HBase, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the address of the ensemble and a namespace, below which they are in `fate`."""
    namespace = f"omidpy-test-{uuid.uuid4().hex}"
    url = f"zk://{hbase.zookeeper}/{namespace}"
    store = ZooKeeperFateStore(hbase.zookeeper, f"/{namespace}/fate")
    made = store.submit(an_operation())
    store.close()
    for words in (["list"], ["cancel", made.id], ["delete", made.id], ["list"]):
        with pytest.raises(SystemExit) as exited:
            main(["fate", *words, "--store", url])
        assert not exited.value.code
    out = capsys.readouterr().out
    assert f"txid: {made.id}  status: SUBMITTED" in out
    assert f"Deleting transaction: {made.id} (FAILED_IN_PROGRESS)" in out
    assert out.endswith(" 0 transactions\n")


def test_a_closed_store_refuses(hbase: HBase, path: str) -> None:
    """And closes again."""
    store = ZooKeeperFateStore(hbase.zookeeper, path)
    store.close()
    store.close()
    with pytest.raises(StorageUnavailable, match="closed; open it again"):
        store.read(an_operation().id)
