"""A receiver that has forgotten its mark is refused for as long as that matters (X10)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from omidpy.errors import ExportError
from omidpy.recipes.export_queue import ExactExporter
from omidpy.recipes.export_queue.delivery import patience as patience_module
from omidpy.recipes.export_queue.delivery.exactly import MarkRefused
from omidpy.recipes.export_queue.delivery.failing import Paused
from tests.machines.export_exact import next_owner
from tests.machines.export_queues import Killed, Scene
from tests.machines.marking import Log


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait between tries."""
    monkeypatch.setattr(patience_module, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr("omidpy.recipes.export_queue.delivery.runner.OBSTACLE_S", 0.0)


class InMemory:
    """A log that keeps first marks as Kafka does, and can forget."""

    def __init__(self) -> None:
        self.log = Log()

    def sink(self) -> ExactExporter:
        """Return an exporter into it, as of another process."""
        sink = self.log.sink()
        sink.forgets, sink.keeps_first = "kafka:c/t", True
        return sink

    def forget(self) -> None:
        """Forget all marks."""
        self.log.marks.clear()

    @property
    def values(self) -> list[Any]:
        """What was delivered."""
        return self.log.values


class InKafka:
    """The exporter to Kafka, with a client in memory."""

    def __init__(self) -> None:
        pytest.importorskip("confluent_kafka", reason="an extra")
        from tests.machines.kafka_client import Broker

        self.broker = Broker()

    def sink(self) -> ExactExporter:
        """Return an exporter into it, as of another process."""
        return self.broker.sink()

    def forget(self) -> None:
        """Forget all marks."""
        self.broker.offsets.clear()

    @property
    def values(self) -> list[Any]:
        """What was delivered."""
        return [int(value) for value in self.broker.values]


@pytest.fixture(params=[InMemory, InKafka], ids=["a log", "Kafka's client"])
def receiver(request: pytest.FixtureRequest) -> InMemory | InKafka:
    """Return a receiver that may forget its marks."""
    made: InMemory | InKafka = request.param()
    return made


def dies_behind_its_commit(scene: Scene, sink: ExactExporter) -> None:
    """Deliver what is there, and die before that is noted."""

    def die(step: str) -> None:
        if step == "exported":
            raise Killed

    runner = next_owner(scene, sink, on_step=die)
    runner._crew.leave = runner._crew._is_over.set  # type: ignore[method-assign]  # it dies
    with pytest.raises(Killed):
        runner.run_once(wait_s=0)


@pytest.mark.parametrize("has_delivered", [True, False], ids=["a later batch", "the first batch"])
def test_a_forgotten_mark_is_missed_whenever_somebody_looks(
    receiver: InMemory | InKafka,
    has_delivered: bool,  # noqa: FBT001 - a case
) -> None:
    """Who looks must not make the mark that the next one would take for the lost one."""
    scene = Scene()
    delivered = []
    if has_delivered:
        scene.add(0)
        scene.runner(receiver.sink()).run_once(wait_s=0)
        delivered.append(0)
    scene.add(1)
    dies_behind_its_commit(scene, receiver.sink())
    delivered.append(1)
    receiver.forget()
    for _ in range(3):
        with pytest.raises(ExportError, match="has forgotten how far bucket 0 had come"):
            next_owner(scene, receiver.sink()).run_once(wait_s=0)
        assert receiver.values == delivered
    with pytest.raises(ExportError, match="has forgotten how far bucket 0 had come"):
        next_owner(scene, receiver.sink()).run()
    assert receiver.values == delivered
    (waiting,) = {entry.commit_ts for entry in scene.queue.peek()}
    scene.queue.acknowledge(waiting)
    scene.runner(receiver.sink()).run_once(wait_s=0)
    scene.add(2)
    scene.runner(receiver.sink()).run_once(wait_s=0)
    assert receiver.values == [*delivered, 2]


def test_who_fails_before_anything_was_sent_is_not_refused(receiver: InMemory | InKafka) -> None:
    """All have ended well, and a first mark is kept anew: the next owner finds it."""
    scene = Scene()
    scene.add(0)
    scene.runner(receiver.sink()).run_once(wait_s=0)
    receiver.forget()
    scene.add(1)

    def die(*_: Any) -> None:
        raise Killed

    dying: Any = receiver.sink()
    dying.export_marked = die
    runner = next_owner(scene, dying)
    runner._crew.leave = runner._crew._is_over.set  # type: ignore[method-assign]  # it dies
    with pytest.raises(Killed):
        runner.run_once(wait_s=0)
    next_owner(scene, receiver.sink()).run_once(wait_s=0)
    assert receiver.values == [0, 1]


def test_a_mark_that_is_forgotten_between_two_tries_of_one_owner_is_missed() -> None:
    """Its receiver was away for longer than it remembers; once that was looked into, it goes on."""
    scene, receiver = Scene(), InMemory()
    scene.add(0)
    scene.runner(receiver.sink()).run_once(wait_s=0)
    scene.add(1)
    sink: Any = receiver.sink()

    def lose(step: str) -> None:
        if step == "behind-commit":
            sink.on_step = lambda _: None
            receiver.forget()
            raise ConnectionError("no answer")

    sink.on_step = lose
    runner = scene.runner(sink)
    runner._crew.join(takes_all=True)
    runner._crew.look()
    lease = runner._crew.leases[0]
    runner._memories[0] = runner._delivery.new_memory()
    runner._memories[0].count_due_s = math.inf  # what waits was counted just now
    with pytest.raises(Paused):
        runner._pass(lease, runner._look())
    for _ in range(2):
        with pytest.raises(MarkRefused):
            runner._pass(lease, runner._look())
    (waiting,) = {entry.commit_ts for entry in scene.queue.peek()}
    scene.queue.acknowledge(waiting)
    runner._pass(lease, runner._look())
    scene.add(2)
    runner._pass(lease, runner._look())
    runner._crew.leave()
    assert receiver.values == [0, 1, 2]


@pytest.mark.parametrize(
    "call", ["begin_transaction", "send_offsets_to_transaction", "commit_transaction"]
)
def test_a_mark_that_is_forgotten_while_nothing_comes_is_not_missed(call: str) -> None:
    """Kafka has forgotten the producer, too, so that the next batch of its owner fails.

    Only where the commit of that was asked for may it have been delivered.
    """
    client: Any = pytest.importorskip("confluent_kafka", reason="an extra")
    unknown = client.KafkaError(client.KafkaError.INVALID_PRODUCER_ID_MAPPING, "unknown", False)
    scene, receiver = Scene(), InKafka()
    scene.add(0)
    runner = scene.runner(receiver.sink())
    runner._crew.join(takes_all=True)
    runner._crew.look()
    lease = runner._crew.leases[0]
    runner._memories[0] = runner._delivery.new_memory()
    runner._pass(lease, runner._look())
    receiver.forget()

    def refuse(name: str) -> None:
        if name == call:
            receiver.broker.on_call = lambda _: None
            raise client.KafkaException(unknown)

    receiver.broker.on_call = refuse
    scene.add(1)
    with pytest.raises(Paused):
        runner._pass(lease, runner._look())
    if call == "commit_transaction":
        with pytest.raises(MarkRefused):
            runner._pass(lease, runner._look())
    else:
        runner._pass(lease, runner._look())
        assert receiver.values == [0, 1]
    runner._crew.leave()


def test_what_is_in_doubt_at_one_receiver_stays_so_behind_a_try_with_another() -> None:
    """Of that one nothing is missed, and nothing was delivered to it."""
    scene, receiver, other = Scene(), InMemory(), InMemory()
    scene.add(0)
    scene.runner(receiver.sink()).run_once(wait_s=0)
    scene.add(1)
    dies_behind_its_commit(scene, receiver.sink())
    receiver.forget()
    elsewhere: Any = other.sink()
    elsewhere.forgets = "kafka:c/elsewhere"

    def refuse(_: object) -> None:
        raise Killed

    elsewhere.on_batch = refuse
    with pytest.raises(Killed):
        next_owner(scene, elsewhere).run_once(wait_s=0)
    with pytest.raises(ExportError, match="kafka:c/t has forgotten"):
        next_owner(scene, receiver.sink()).run_once(wait_s=0)
    assert receiver.values == [0, 1]


def test_who_sleeps_before_its_first_mark_writes_over_no_other() -> None:
    """Another one has taken over meanwhile, delivered, and died: its mark counts."""
    scene, receiver = Scene(), InKafka()
    scene.add(0)
    slept: list[str] = []

    def sleep(call: str) -> None:
        if call == "begin_transaction" and not slept:
            slept.append(call)
            dies_behind_its_commit(scene, receiver.sink())

    receiver.broker.on_call = sleep
    scene.runner(receiver.sink()).run_once(wait_s=0)
    next_owner(scene, receiver.sink()).run_once(wait_s=0)
    assert slept
    assert receiver.values == [0]
    assert scene.queue.lag().entries == 0
