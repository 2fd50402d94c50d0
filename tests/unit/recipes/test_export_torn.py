"""An entry that is delivered is not set aside behind that, by a commit that had no answer (X11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omidpy.errors import CommitOutcomeUnknown, OracleUnavailable, TransactionAborted
from omidpy.oracle.base import CommitRefused, CommitVerdict
from omidpy.recipes.export_queue import Batch, Poison
from omidpy.recipes.export_queue.delivery.crew import BucketLease
from omidpy.recipes.export_queue.delivery.failing import Paused
from omidpy.recipes.export_queue.delivery.runner import Runner
from omidpy.recipes.export_queue.entries import dead
from omidpy.recipes.export_queue.entries.dead import claimed
from omidpy.recipes.export_queue.entries.stored.layout import encode_dead
from omidpy.recipes.export_queue.entries.stored.state import BucketRows, BucketState
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from tests.machines.export_queues import TABLE, Scene
from tests.machines.like_thrift2 import LikeThrift2


class Holding:
    """Has the oracle of a scene stand still at a commit, which it decides when it is told to."""

    def __init__(self, scene: Scene, *, error: type[BaseException] = OracleUnavailable) -> None:
        """Hold nothing yet; `error` is what the client hears of a commit that is held."""
        oracle: Any = scene.tm.oracle
        outcomes: Any = scene.tm.session.outcomes
        self._error = error
        self._commit, self._settle = oracle.commit, outcomes.settle
        oracle.commit, outcomes.settle = self._held_commit, self._unsettled
        self.holds = self.decides = False
        self._held: list[tuple[Any, ...]] = []

    def decide(self) -> list[CommitVerdict]:
        """Go on: decide what is held."""
        self.holds = False
        held, self._held = self._held, []
        return [self._commit(*one) for one in held]

    def _held_commit(self, *given: Any) -> Any:
        if not self.holds:
            return self._commit(*given)
        if self.decides:
            self._commit(*given)
        else:
            self._held.append(given)
        raise self._error

    def _unsettled(self, *given: Any, **named: Any) -> Any:
        if self.holds:
            raise OracleUnavailable("no answer")
        return self._settle(*given, **named)


@pytest.fixture(params=[MemoryStore, LikeThrift2], ids=["one change for all", "row by row"])
def scene(request: pytest.FixtureRequest) -> Scene:
    """Return a queue over a store that changes many rows at once, or one by one."""
    store: Store = request.param()
    return Scene(store)


def refuses(*values: object, then: Callable[[], object] = lambda: None) -> Callable[[Batch], None]:
    """Return a receiver that takes some values for poison, and what happens as it says so."""

    def refuse(batch: Batch) -> None:
        for entry in batch:
            if entry.value in values:
                then()
                raise Poison(entry, "not now")

    return refuse


def hold(oracle: Holding) -> Callable[[], None]:
    """Return what lets an oracle stand still."""

    def act() -> None:
        oracle.holds = True

    return act


def owner(scene: Scene) -> tuple[Runner, BucketLease]:
    """Return an exporter that has the bucket."""
    runner = scene.runner()
    runner._crew.join(takes_all=True)
    runner._crew.look()
    return runner, runner._crew.leases[0]


def state(scene: Scene) -> BucketState:
    """Return that of the bucket."""
    queue = scene.queue
    rows = BucketRows(scene.tm.session.control, queue._places, queue._find())
    return rows.read()[0].state


def all_are_refused(verdicts: list[CommitVerdict]) -> bool:
    """Say whether some were decided, and none was granted."""
    return bool(verdicts) and all(isinstance(one, CommitRefused) for one in verdicts)


@pytest.mark.parametrize("error", [OracleUnavailable, KeyboardInterrupt])
def test_a_burial_without_an_answer_outlives_its_owner_in_vain(
    scene: Scene, error: type[BaseException]
) -> None:
    """The owner ends, and gives its bucket back; the next one delivers the entry."""
    oracle = Holding(scene, error=error)
    scene.add("x")
    scene.sink.on_batch = refuses("x", then=hold(oracle))
    with pytest.raises((CommitOutcomeUnknown, KeyboardInterrupt)):
        scene.export()
    oracle.holds = False
    scene.sink.on_batch = refuses()
    assert scene.export() == ["x"]
    assert all_are_refused(oracle.decide())
    assert list(scene.queue.dead_letters()) == []
    assert scene.queue.dead_letters().retry() == 0
    assert scene.export() == ["x"]


@pytest.mark.parametrize("is_retried", [False, True], ids=["an entry", "a dead letter"])
def test_an_owner_that_goes_on_lets_its_own_commit_do_nothing_any_more(
    scene: Scene,
    is_retried: bool,  # noqa: FBT001 - a case
) -> None:
    """It has the bucket all the time, and the receiver takes the entry at the second try."""
    oracle = Holding(scene)
    scene.add("x")
    if is_retried:
        scene.sink.on_batch = refuses("x")
        scene.export()
        assert scene.queue.dead_letters().retry() == 1
    runner, lease = owner(scene)
    scene.sink.on_batch = refuses("x", then=hold(oracle))
    for _ in range(2):  # the entry is found to be poison, and then is set aside
        with pytest.raises(Paused):
            runner._pass(lease, runner._look())
        if oracle.holds:
            break
    with pytest.raises(Paused):
        runner._pass(lease, runner._look())  # the oracle stands still: nothing goes on
    assert scene.sink.values == []
    oracle.holds = False
    runner._memories.clear()
    scene.sink.on_batch = refuses()
    runner._pass(lease, runner._look())
    assert scene.sink.values == ["x"]
    assert all_are_refused(oracle.decide())
    runner._crew.leave()
    assert not state(scene).is_torn
    assert list(scene.queue.dead_letters()) == []


def test_what_was_to_wait_is_not_set_aside_once_it_was_delivered(scene: Scene) -> None:
    """What it would wait for is given up meanwhile, so that nothing holds it back."""
    oracle = Holding(scene)
    scene.add("poison")
    scene.sink.on_batch = refuses("poison")
    scene.export()
    scene.add("behind")
    runner, lease = owner(scene)
    oracle.holds = True
    view = runner._look()
    with pytest.raises(Paused):
        runner._pass(lease, view)
    oracle.holds = False
    assert scene.queue.dead_letters().drop() == 1
    runner._pass(lease, view)  # one from before: it looks again by itself
    assert scene.sink.values == ["behind"]
    assert all_are_refused(oracle.decide())
    assert list(scene.queue.dead_letters()) == []
    runner._crew.leave()


def test_what_was_set_aside_without_an_answer_is_tried_again_when_asked_for(scene: Scene) -> None:
    """Its commit was granted, and its owner does not keep it for poison on its own."""
    oracle = Holding(scene)
    oracle.decides = True
    scene.add("x")
    scene.sink.on_batch = refuses("x", then=hold(oracle))
    runner, lease = owner(scene)
    for _ in range(2):
        with pytest.raises(Paused):
            runner._pass(lease, runner._look())
    oracle.holds = False
    scene.sink.on_batch = refuses()
    runner._pass(lease, runner._look())
    assert [letter.value for letter in scene.queue.dead_letters()] == ["x"]
    assert scene.queue.dead_letters().retry() == 1
    runner._pass(lease, runner._look())
    assert scene.sink.values == ["x"]
    runner._crew.leave()


@pytest.mark.parametrize("is_granted", [False, True], ids=["refused", "granted"])
def test_an_entry_is_brought_by_hand_or_set_aside(
    scene: Scene,
    is_granted: bool,  # noqa: FBT001 - a case
) -> None:
    """An operator counts it as delivered while the commit that sets it aside has no answer."""
    oracle = Holding(scene)
    oracle.decides = is_granted
    scene.add("x")
    (waiting,) = {entry.commit_ts for entry in scene.queue.peek()}
    scene.sink.on_batch = refuses("x", then=hold(oracle))
    runner, lease = owner(scene)
    for _ in range(2):
        with pytest.raises(Paused):
            runner._pass(lease, runner._look())
    oracle.holds = False
    assert scene.queue.acknowledge(waiting) == (0 if is_granted else 1)
    verdicts = oracle.decide()
    assert is_granted or all_are_refused(verdicts)
    scene.sink.on_batch = refuses()
    runner._pass(lease, runner._look())
    runner._crew.leave()
    assert scene.queue.dead_letters().retry() == (1 if is_granted else 0)
    assert scene.export() == (["x"] if is_granted else [])
    assert scene.queue.lag().entries == 0


def test_an_operator_may_be_faster_than_who_sets_an_entry_aside(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exporter looks again, and goes on with the others."""
    scene.add("x")
    (waiting,) = {entry.commit_ts for entry in scene.queue.peek()}
    scene.add("y", key=b"other")
    counted: list[int] = []

    def encoded(note: bytes, content: bytes) -> bytes:
        if not counted:
            counted.append(scene.queue.acknowledge(waiting))
        return encode_dead(note, content)

    monkeypatch.setattr(dead, "encode_dead", encoded)
    scene.sink.on_batch = refuses("x")
    assert set(scene.export()) == {"y"}
    assert counted == [1]
    assert list(scene.queue.dead_letters()) == []
    assert scene.raw_rows() == []


def test_a_transaction_of_many_entries_is_brought_by_hand_as_a_whole(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In some transactions; nothing is left of them, and others stay."""
    monkeypatch.setattr("omidpy.recipes.export_queue.entries.acknowledgement.ROWS_AT_ONCE", 2)
    scene.add(*range(5))
    (waiting,) = {entry.commit_ts for entry in scene.queue.peek()}
    scene.add("later")
    assert scene.queue.acknowledge(waiting, 3) == 1
    assert scene.queue.acknowledge(waiting) == 4
    assert scene.queue.acknowledge(waiting) == 0
    assert len(scene.raw_rows()) == 1
    assert scene.export() == ["later"]


def test_a_bucket_whose_commits_were_answered_is_whole(scene: Scene) -> None:
    """Also where one was refused; one that was not answered stays so behind later ones."""
    scene.add("x")
    scene.sink.on_batch = refuses("x")
    scene.export()
    assert len(list(scene.queue.dead_letters())) == 1
    assert not state(scene).is_torn
    runner, lease = owner(scene)
    with pytest.raises(TransactionAborted), claimed(scene.tm, TABLE, lease):
        raise TransactionAborted("another was first")
    assert not lease.is_torn
    with pytest.raises(OracleUnavailable), claimed(scene.tm, TABLE, lease):
        raise OracleUnavailable("no answer")
    with pytest.raises(TransactionAborted), claimed(scene.tm, TABLE, lease):
        raise TransactionAborted("another was first")
    with claimed(scene.tm, TABLE, lease):
        pass
    assert lease.is_torn
    runner._crew.leave()
    assert state(scene).is_torn
