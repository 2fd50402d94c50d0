"""Exporters that are stopped before each of their changes, deposed, and go on; or that die there.

What an exporter does to the world are its changes of the store, the take-over of its receiver, and
what it delivers.  The world is a queue with entries of two keys, and one of four receivers:

    marks   keeps marks, as Kafka does: the last one to take over is the owner
    fence   refuses a smaller fence than it has seen, and says nothing of that
    answer  refuses it, too, and answers 409: as a webhook's sink tells it, and as urllib does
    plain   takes whatever comes

    world = World("marks")
    world.play(Moment(7, Ending.STALLS), ("export", "add"))
    world.judge()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from omidpy.base.timing.clock import ManualClock
from omidpy.connect import find_queue
from omidpy.errors import OmidError
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue import (
    Batch,
    Deposed,
    Entry,
    Exporter,
    ExportQueue,
    Mark,
    Poison,
    Share,
)
from omidpy.recipes.export_queue.delivery.crew import LEASE_S
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from tests.machines.export_queues import QUEUE, Scene
from tests.machines.export_rebucketing import Rebucketing
from tests.machines.fencing import answered, takes_over
from tests.machines.marking import Log, LogSink
from tests.machines.stalls.lives import Actor, Life, LivingStore, Moment, play

KEYS: Final = (b"a", b"b")
MARKS: Final = "marks"
FENCE: Final = "fence"
ANSWER: Final = "answer"
PLAIN: Final = "plain"
RECEIVERS: Final = (MARKS, FENCE, ANSWER, PLAIN)

POISONED: Final = 1
"""The value that a picky exporter refuses."""


class _Marking(LogSink):
    """Takes over, and delivers, within a life."""

    def __init__(self, log: Log, life: Life) -> None:
        super().__init__(log)
        self._life = life

    def take_over(self, share: Share) -> Mark | None:
        """Fence, if the time for it comes."""
        found: Mark | None = self._life.change(lambda: LogSink.take_over(self, share))
        return found

    def export_marked(self, share: Share, batch: Batch, mark: Mark) -> None:
        """Deliver, if the time for it comes."""
        self.on_batch(batch)
        self._life.change(lambda: LogSink.export_marked(self, share, batch, mark))


class _Plain(Exporter):
    """Delivers within a life, to a receiver that looks at fences or does not."""

    def __init__(self, log: Log, life: Life, *, looks: bool, answers: bool = False) -> None:
        self._log = log
        self._life = life
        self._looks = looks
        self._answers = answers
        self.on_batch: Callable[[Batch], object] = lambda _: None

    def export(self, batch: Batch) -> None:
        """Deliver, if the time for it comes."""
        self.on_batch(batch)
        self._life.change(lambda: self._take(batch))

    def _take(self, batch: Batch) -> None:
        name = f"{batch.queue}.{batch.bucket}"
        if self._looks and batch.fence < self._log.fences.get(name, 0):
            if self._answers:
                raise Deposed("409") if batch.bucket else answered(409)
            return
        self._log.fences[name] = batch.fence
        self._log.entries.extend(batch)


class World:
    """A queue, whoever exports it, and what its receiver has."""

    def __init__(
        self,
        receiver: str,
        make_store: Callable[[], Store] = MemoryStore,
        *,
        keep_s: float | None = None,
    ) -> None:
        """Make a queue with entries."""
        self.receiver = receiver
        self.log = Log()
        self.scene = Scene(make_store(), buckets=2, keep_s=keep_s)
        assert isinstance(self.scene.clock, ManualClock)
        self.keep_s = keep_s
        self.queues = 1
        self.replays = 0
        self.added: list[list[int]] = []
        """[number of the queue, value] of each entry, which both keys have."""
        self.verbs: dict[str, Callable[[], object]] = {
            "export": self.export,
            "take": self.take,
            "refuse": lambda: self.export(refused=POISONED),
            "add": self.add,
            "rebucket": self.rebucket,
            "make anew": self.make_anew,
            "pause": self.pause,
            "resume": self.resume,
            "retry": lambda: self.scene.queue.dead_letters().retry(),
            "replay": self.replay,
        }
        for _ in range(3):
            self.add()

    # -- what is done --------------------------------------------------------------------------

    def sink(self, life: Life) -> Any:
        """Return an exporter of one process."""
        if self.receiver == MARKS:
            return _Marking(self.log, life)
        looks, answers = self.receiver in {FENCE, ANSWER}, self.receiver == ANSWER
        return _Plain(self.log, life, looks=looks, answers=answers)

    def begin(self, life: Life) -> None:
        """Export the queue once, in a process whose changes are those of a life."""
        scene = self.scene
        store = LivingStore(scene.tm.store, life)
        tm = TransactionManager(
            store, scene.client.oracle, post_commit="sync", clock=scene.clock, find_queue=find_queue
        )
        tm.session.outcomes._pause = scene.clock.advance
        try:
            queue = ExportQueue.open(tm, QUEUE)
            sink = self.sink(life)
            sink.on_batch = _refusing(POISONED if life.moment is None else None)
            runner: Any = queue.runner(sink, buffer_bytes=150)
            runner._stopping.wait = scene.clock.advance
            runner.run_once(wait_s=0)
        except OmidError:
            pass  # it was paused, dropped, or has lost its store

    def export(self, *, refused: int | None = None) -> None:
        """Take everything over, and deliver it."""
        scene = self.scene
        scene.clock.advance(2 * LEASE_S)
        sink = self.sink(Life())
        sink.on_batch = _refusing(refused)
        runner: Any = scene.queue.runner(sink, buffer_bytes=250)
        runner._stopping.wait = scene.clock.advance
        takes_over(runner)
        if not scene.queue._find().is_paused:
            runner.run_once(wait_s=0)

    def take(self) -> None:
        """Take everything over, let the receiver hear of that, and die before a delivery."""
        scene = self.scene
        scene.clock.advance(2 * LEASE_S)
        runner: Any = scene.queue.runner(self.sink(Life()))
        takes_over(runner)
        runner._crew.join(takes_all=True)
        runner._crew.look()
        for bucket, lease in runner._crew.leases.items():
            self.log.fences[f"{QUEUE}.{bucket}"] = lease.fence
        runner._crew._is_over.set()

    def add(self) -> None:
        """Add an entry to each key."""
        value = [self.queues, len(self.added)]
        self.added.append(value)
        with self.scene.tm.begin() as tx:
            self.scene.queue.add_all(tx, [(key, value) for key in KEYS])

    def pause(self) -> None:
        """Let exporters stop."""
        self.scene.queue.pause()

    def resume(self) -> None:
        """Let them go on."""
        self.scene.queue.resume()

    def rebucket(self) -> None:
        """Give the queue other buckets."""
        count = self.scene.queue._find().buckets
        Rebucketing(self.scene, count % 3 + 1).finish(self.export)
        self.scene.queue = ExportQueue.open(self.scene.tm, QUEUE)

    def make_anew(self) -> None:
        """Drop the queue, and make one of its id, with an entry."""
        self.scene.queue.drop()
        self.scene.queue = ExportQueue.create(self.scene.tm, QUEUE, buckets=2, keep_s=self.keep_s)
        self.queues += 1
        self.add()

    def replay(self) -> None:
        """Have everything delivered once more."""
        self.replays += 1
        self.scene.queue.replay(0)

    # -- a play --------------------------------------------------------------------------------

    def play(self, moment: Moment | None, others: Sequence[str]) -> Life:
        """Let an exporter pause or die at a moment, while others do what they do."""
        life = Life(moment)
        cast = [Actor(verb, lambda _, verb=verb: self.verbs[verb]()) for verb in others]  # type: ignore[misc]  # mypy knows no such default
        play(Actor("first", self.begin), life, cast)
        return life

    def judge(self) -> None:
        """Let everything come to its end, and see what has arrived."""
        self.scene.queue.resume()
        for _ in range(2):
            self.scene.queue.dead_letters().retry()
            self.export()
        lag = self.scene.queue.lag()
        assert (lag.entries, lag.dead_letters) == (0, 0)
        if self.keep_s is None:
            table = self.scene.queue._table
            assert not [row for page in self.scene.tm.store.scan(table) for row in page]
        for key in KEYS:
            self._judge_key([one for one in self.log.entries if one.key == key])

    def _judge_key(self, found: Sequence[Entry]) -> None:
        values = [tuple(one.value) for one in found]
        expected = [tuple(one) for one in self.added]
        last = [one for one in expected if one[0] == self.queues]
        counts = Counter(values)
        assert set(last) <= set(values) <= set(expected), ("lost, or never added", values)
        if self.receiver != MARKS:
            return
        assert max(counts.values()) <= 1 + self.replays, ("twice", values)
        if not self.replays:
            for number in range(1, self.queues + 1):
                of_one = [one for one in values if one[0] == number]
                assert of_one == sorted(of_one), ("out of order", values)


def _refusing(value: int | None) -> Callable[[Batch], None]:
    def refuse(batch: Batch) -> None:
        for entry in batch:
            if entry.value[1] == value:
                raise Poison(entry, "not now")

    return refuse
