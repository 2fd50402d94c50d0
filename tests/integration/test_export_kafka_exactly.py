"""Exactly once into a real Kafka: whoever reads what is committed sees each entry once, in order.

Owners die and sleep between any two steps, of ours and of the transaction.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from omidpy.connect import connect
from omidpy.errors import ExportError
from omidpy.recipes.export_queue import ExportQueue, Poison
from omidpy.recipes.export_queue.sinks import KafkaSink
from tests.machines.export_processes import QUEUE, Work, is_stopped, run, start
from tests.machines.export_queues import Killed, Scene
from tests.machines.fencing import takes_over
from tests.machines.kafka import Kafka
from tests.machines.processes import tso_server
from tests.machines.sink_contract import from_json
from tests.machines.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.java]

CALLS: Final = (
    "init_transactions",
    "begin_transaction",
    "produce",
    "flush",
    "send_offsets_to_transaction",
    "commit_transaction",
)


@pytest.fixture
def topic(kafka: Kafka, request: pytest.FixtureRequest) -> str:
    """Return an empty topic."""
    name = "".join(one if one.isalnum() else "_" for one in request.node.name)[:200]
    kafka.make_topic(name)
    return name


def values(kafka: Kafka, topic: str) -> dict[bytes, list[Any]]:
    """Return what a reader of what is committed sees, by key."""
    found: dict[bytes, list[Any]] = {}
    for message in kafka.messages(topic):
        found.setdefault(message.key(), []).append(from_json(message.value()))
    return found


def add(scene: Scene, *numbers: int) -> None:
    """Add an entry to each of three keys, in one transaction for each number."""
    for number in numbers:
        with scene.tm.begin() as tx:
            scene.queue.add_all(tx, [(b"%d" % key, number) for key in range(3)])


class Watched:
    """A producer, of which each call is told of before and behind."""

    def __init__(self, producer: Any, tell: Callable[[str], None]) -> None:
        self._producer = producer
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._producer, name)
        if name not in CALLS:
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._tell(f"before {name}")
            result = found(*given, **named)
            self._tell(f"behind {name}")
            return result

        return call


class WatchedSink(KafkaSink):
    """Tells of each call of its producers."""

    tell: Callable[[str], None] = staticmethod(lambda _: None)

    def take_over(self, share: Any) -> Any:
        """Watch the producer that is made now."""
        client, make = self._client, self._client.Producer

        def producer(*given: Any, **named: Any) -> Any:
            return Watched(make(*given, **named), self.tell)

        changed: Any = _Module(client, producer)
        self._client = changed
        try:
            return super().take_over(share)
        finally:
            self._client = client


class _Module:
    def __init__(self, client: Any, producer: Any) -> None:
        self._client = client
        self.Producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def sinks(kafka: Kafka, topic: str) -> tuple[WatchedSink, KafkaSink]:
    """Return two exporters, as of two processes."""
    return WatchedSink(kafka.bootstrap, topic), KafkaSink(kafka.bootstrap, topic)


MOMENTS: Final = [
    *(f"{side} {call}" for call in CALLS for side in ("before", "behind")),
    *("taken", "before-export", "exported", "removed", "cursor"),
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_who_dies_at_any_moment_brings_nothing_twice(kafka: Kafka, topic: str, moment: str) -> None:
    """The next owner reads how far it came; nothing is lost either."""
    scene = Scene()
    mortal, other = sinks(kafka, topic)
    add(scene, 0)
    scene.runner(mortal).run_once(wait_s=0)
    add(scene, 1, 2)
    seen: list[str] = []

    def die(step: str) -> None:
        if step == moment and not seen:
            seen.append(step)
            raise Killed

    mortal.tell = die
    runner = scene.runner(mortal, on_step=die)
    runner._crew.leave = runner._crew._is_over.set  # type: ignore[method-assign]  # it dies
    with pytest.raises(Killed):
        runner.run_once(wait_s=0)
    next_owner = scene.runner(other)
    takes_over(next_owner)
    next_owner.run_once(wait_s=0)
    add(scene, 3)
    scene.runner(other).run_once(wait_s=0)
    assert values(kafka, topic) == {b"%d" % key: [0, 1, 2, 3] for key in range(3)}
    assert scene.queue.lag().entries == 0
    assert sum(one.exported for one in scene.queue.lag().buckets) == 12


@pytest.mark.parametrize("moment", MOMENTS)
def test_who_sleeps_at_any_moment_brings_nothing_twice(
    kafka: Kafka, topic: str, moment: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Another one has taken the bucket meanwhile and delivered, also what came later.

    To be fenced is no error, and the client called it a fatal one: a program without logging had
    that on its stderr.
    """
    scene = Scene()
    sleeper, other = sinks(kafka, topic)
    add(scene, 0)
    scene.runner(sleeper).run_once(wait_s=0)
    add(scene, 1, 2)
    slept: list[str] = []

    def sleep(step: str) -> None:
        if step == moment and not slept:
            slept.append(step)
            add(scene, 3)
            next_owner = scene.runner(other)
            takes_over(next_owner)
            next_owner.run_once(wait_s=0)

    sleeper.tell = sleep
    scene.runner(sleeper, on_step=sleep).run_once(wait_s=0)
    assert slept
    assert [one for one in caplog.records if one.levelno > logging.WARNING] == []
    add(scene, 4)
    scene.runner(other).run_once(wait_s=0)
    assert values(kafka, topic) == {b"%d" % key: [0, 1, 2, 3, 4] for key in range(3)}
    assert scene.queue.lag().entries == 0


@pytest.mark.parametrize("moment", ["before-export", "behind commit_transaction", "exported"])
def test_poison_in_between_keeps_the_order_of_its_key(
    kafka: Kafka, topic: str, moment: str
) -> None:
    """What is about to be set aside, and what waits behind it, is not passed over as delivered."""
    scene = Scene()
    mortal, other = sinks(kafka, topic)
    for number in range(4):
        scene.add(number, key=b"poisoned")
        scene.add(number, key=b"good")
    is_bad = [True]
    refused: list[Any] = []
    put = KafkaSink._put

    def picky(self: KafkaSink, producer: Any, batch: Any, entry: Any, told: Any) -> None:
        if is_bad[0] and (entry.key, entry.value) == (b"poisoned", 1):
            refused.append(entry)
            raise Poison(entry, "not now")
        put(self, producer, batch, entry, told)

    mortal._put = picky.__get__(mortal)  # type: ignore[method-assign]  # its receiver is picky
    other._put = picky.__get__(other)  # type: ignore[method-assign]  # see above

    def die(step: str) -> None:
        # One try ends at the poison; the next one has left it out.  A broker that has just started
        # may refuse one before both.
        if step == moment and refused:
            raise Killed

    mortal.tell = die
    runner = scene.runner(mortal, on_step=die)
    runner._crew.leave = runner._crew._is_over.set  # type: ignore[method-assign]  # it dies
    with pytest.raises(Killed):
        runner.run_once(wait_s=0)
    next_owner = scene.runner(other)
    takes_over(next_owner)
    next_owner.run_once(wait_s=0)
    assert values(kafka, topic) == {b"poisoned": [0], b"good": [0, 1, 2, 3]}
    is_bad[0] = False
    scene.queue.dead_letters().retry(b"poisoned")
    scene.runner(other).run_once(wait_s=0)
    assert values(kafka, topic) == {b"poisoned": [0, 1, 2, 3], b"good": [0, 1, 2, 3]}


def test_a_replay_is_delivered_though_the_mark_is_ahead(kafka: Kafka, topic: str) -> None:
    """And once, though its exporter dies."""
    scene = Scene(keep_s=3600.0)
    mortal, other = sinks(kafka, topic)
    add(scene, 0, 1)
    scene.runner(other).run_once(wait_s=0)
    scene.queue.replay(0)
    runner = scene.runner(mortal)
    runner._crew.leave = runner._crew._is_over.set  # type: ignore[method-assign]  # it dies
    seen: list[str] = []

    def die(step: str) -> None:
        seen.append(step)
        if step == "behind commit_transaction":
            raise Killed

    mortal.tell = die
    with pytest.raises(Killed):
        runner.run_once(wait_s=0)
    next_owner = scene.runner(other)
    takes_over(next_owner)
    next_owner.run_once(wait_s=0)
    assert values(kafka, topic) == {b"%d" % key: [0, 1, 0, 1] for key in range(3)}


def test_a_mark_that_was_forgotten_is_missed_where_it_matters(kafka: Kafka, topic: str) -> None:
    """Kafka forgets what a group had after a week."""
    scene = Scene()
    mortal, other = sinks(kafka, topic)
    add(scene, 0)
    scene.runner(other).run_once(wait_s=0)
    admin, share = (
        kafka.admin(),
        f"omidpy.{QUEUE}.{scene.queue._definition.incarnation_of_table()}.0",
    )
    admin.delete_consumer_groups([share])[share].result(60)
    add(scene, 1)
    scene.runner(other).run_once(wait_s=0)
    assert values(kafka, topic) == {b"%d" % key: [0, 1] for key in range(3)}, "all had ended well"
    add(scene, 2)

    def die(step: str) -> None:
        if step == "exported":
            raise Killed

    runner = scene.runner(mortal, on_step=die)
    runner._crew.leave = runner._crew._is_over.set  # type: ignore[method-assign]  # it dies
    with pytest.raises(Killed):
        runner.run_once(wait_s=0)
    admin.delete_consumer_groups([share])[share].result(60)
    for _ in range(2):
        next_owner = scene.runner(other)
        takes_over(next_owner)
        with pytest.raises(ExportError, match="has forgotten how far bucket 0 had come"):
            next_owner.run_once(wait_s=0)
    assert values(kafka, topic) == {b"%d" % key: [0, 1, 2] for key in range(3)}


def test_a_queue_without_an_order_of_time_is_refused(kafka: Kafka, topic: str) -> None:
    """Unless at least once is enough."""
    scene = Scene(layout="fluo")
    add(scene, 0)
    with pytest.raises(ExportError, match="--at-least-once"):
        scene.runner(KafkaSink(kafka.bootstrap, topic))
    scene.runner(KafkaSink(kafka.bootstrap, topic, at_least_once=True)).run_once(wait_s=0)
    assert values(kafka, topic) == {b"%d" % key: [0] for key in range(3)}


# -- processes -------------------------------------------------------------------------------------


@pytest.fixture
def work(kafka: Kafka, topic: str, tmp_path: Path) -> Iterator[tuple[Work, Any]]:
    """Return what a process is to do, and the queue."""
    url = f"sqlite:///{tmp_path / 'queue.db'}"
    with tso_server(url) as server, connect(url, server.address) as tm:
        queue = ExportQueue.create(tm, QUEUE, buckets=2)
        for number in range(4):
            with tm.begin() as tx:
                queue.add_all(tx, [(b"%d" % key, number) for key in range(5)])
        to = f"kafka://{kafka.bootstrap}/{topic}"
        yield Work(url, server.address, tmp_path, to=to, buffer_bytes=300, lease_s=2.0), queue


def test_processes_that_are_killed_at_each_step(
    kafka: Kafka, topic: str, work: tuple[Work, Any]
) -> None:
    """SIGKILL: one after the other, each at a step of its own, until nothing is left."""
    what, queue = work
    died = 0
    for step in (3, 2, 3, 4, 8, 3, 5, 3):
        died += run(replace(what, dies_at=step))
    assert died > 4
    assert not run(what)
    assert queue.lag().entries == 0
    assert values(kafka, topic) == {b"%d" % key: [0, 1, 2, 3] for key in range(5)}


def test_a_process_that_is_stopped_and_goes_on(
    kafka: Kafka, topic: str, work: tuple[Work, Any]
) -> None:
    """SIGSTOP with a transaction behind it, or before it: another one takes over and finishes."""
    what, queue = work
    for step in (2, 3):
        stopped = start(replace(what, stops_at=step))
        wait_for(partial(is_stopped, stopped.pid), 60.0)
        assert not run(what)
        assert queue.lag().entries == 0
        os.kill(stopped.pid, signal.SIGCONT)
        stopped.join(60.0)
        assert stopped.exitcode == 0
        if step == 2:
            with queue._tm.begin() as tx:
                queue.add_all(tx, [(b"%d" % key, 4) for key in range(5)])
    assert values(kafka, topic) == {b"%d" % key: [0, 1, 2, 3, 4] for key in range(5)}
