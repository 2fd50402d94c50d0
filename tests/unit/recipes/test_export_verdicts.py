"""Who is at fault when an exporter fails: an entry, nobody, or the settings."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from omidpy.errors import ConfigError, ExportError, NoSuchQueue, NoSuchTable, StorageUnavailable
from omidpy.recipes.export_queue import Batch, Refused, Retry, TransactionalExporter
from omidpy.recipes.export_queue.delivery import patience as patience_module
from omidpy.recipes.export_queue.delivery.verdicts import Blame, blame
from omidpy.recipes.export_queue.entries.stored.layout import bucket_of
from omidpy.recipes.export_queue.sinks import TableSink
from tests.machines.export_exact import mortal, next_owner
from tests.machines.export_queues import TABLE, Killed, Scene
from tests.machines.fencing import answered
from tests.machines.marking import Log


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait between tries."""
    monkeypatch.setattr(patience_module, "FIRST_PAUSE_S", 0.0)


class ByRequests(OSError):
    """What requests raises for one."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.response = SimpleNamespace(status_code=status)


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        (answered(400), Blame.ENTRY),
        (answered(409), Blame.ENTRY),
        (ByRequests(422), Blame.ENTRY),
        (ValueError("bad"), Blame.ENTRY),
        (ConnectionRefusedError(), Blame.NOBODY),
        (TimeoutError(), Blame.NOBODY),
        (MemoryError(), Blame.NOBODY),
        (RuntimeError("can't start new thread"), Blame.NOBODY),
        (RuntimeError("can't create new thread at interpreter shutdown"), Blame.NOBODY),
        (RuntimeError("cannot serialize"), Blame.ENTRY),
        (answered(429), Blame.NOBODY),
        (ByRequests(503), Blame.NOBODY),
        (Retry(), Blame.NOBODY),
        (StorageUnavailable("away"), Blame.NOBODY),
        (answered(401), Blame.SETTINGS),
        (ByRequests(404), Blame.SETTINGS),
        (Refused("no such topic"), Blame.SETTINGS),
        (ConfigError("no such column"), Blame.SETTINGS),
        (NoSuchTable("t"), Blame.SETTINGS),
    ],
    ids=repr,
)
def test_an_error_says_whose_fault_it_is(error: Exception, whose: Blame) -> None:
    """An `OSError` may be an answer, and an answer need not speak of the entry."""
    assert blame(error) is whose


def fails(error: Callable[[], Exception], *values: object) -> Callable[[Batch], None]:
    """Return an exporter's failure, of batches with some values or of all."""

    def fail(batch: Batch) -> None:
        if not values or any(entry.value in values for entry in batch):
            raise error()

    return fail


class RefusesAll(TransactionalExporter):
    """Writes into a column that is not there."""

    def export_within(self, tx: Any, batch: Batch) -> None:
        """Refuse."""
        del tx, batch
        raise KeyError("no such column")


@pytest.mark.parametrize("make", [lambda: answered(400), lambda: ByRequests(422)])
def test_what_a_receiver_answers_of_an_entry_is_poison(make: Callable[[], Exception]) -> None:
    """Although it is an `OSError`: before, the batch came again for ever."""
    scene = Scene()
    scene.add("good", key=b"a")
    scene.add("bad", key=b"b")
    scene.add("fine", key=b"c")
    scene.sink.on_batch = fails(make, "bad")
    assert scene.export(max_attempts=2) == ["good", "fine"]
    assert [letter.value for letter in scene.queue.dead_letters()] == ["bad"]


@pytest.mark.parametrize("count", [3, 10])
@pytest.mark.parametrize("poison", ["park-key", "skip"])
def test_a_receiver_that_takes_nothing_stops_the_exporter(count: int, poison: str) -> None:
    """As where a column has a wrong name: nothing is set aside, and all leaves later."""
    scene = Scene()
    for number in range(count):
        scene.add(number, key=b"%d" % number)
    scene.sink.on_batch = fails(lambda: KeyError("no such column"))
    with pytest.raises(ExportError, match="refuses everything: KeyError"):
        scene.export(poison=poison, max_attempts=2)
    assert list(scene.queue.dead_letters()) == []
    scene.sink.on_batch = lambda _: None
    assert scene.export() == list(range(count))


def test_a_receiver_that_takes_nothing_any_more_stops_the_exporter() -> None:
    """It had taken some before, and entries come one by one, so that nothing else can be asked."""
    scene = Scene()
    runner = scene.runner(max_attempts=1)
    delivery = runner._delivery
    scene.add("good")
    runner.run_once(wait_s=0)
    scene.sink.on_batch = fails(lambda: KeyError("no such column"))
    ended: list[ExportError] = []
    for number in range(3):
        scene.add(number, key=b"%d" % number)
        again = scene.runner(max_attempts=1)
        again._delivery = delivery  # one process, which never ended
        try:
            again.run_once(wait_s=0)
        except ExportError as error:
            ended.append(error)
    assert len(ended) == 1
    assert len(list(scene.queue.dead_letters())) == 2


def test_poison_is_set_aside_once_another_entry_was_taken() -> None:
    """It fails alone; then it is passed over, and the next ones are delivered."""
    scene = Scene()
    for number in range(4):
        scene.add(number, key=b"%d" % number)
    scene.sink.on_batch = fails(lambda: ValueError("bad"), 0)
    assert scene.export(max_attempts=2) == [1, 2, 3]
    assert [letter.value for letter in scene.queue.dead_letters()] == [0]


@pytest.mark.parametrize("keeps_marks", [True, False], ids=["marks", "the same store"])
def test_a_receiver_that_had_entries_before_takes_nothing_by_that(
    keeps_marks: bool,  # noqa: FBT001 - a case
) -> None:
    """Of four buckets one has what it was given by an owner that died, or what is gone by now."""
    scene, log = Scene(buckets=4), Log()
    keys = {bucket_of(b"%d" % number, 4): b"%d" % number for number in range(20)}
    scene.add("had", key=keys[1])
    sink: Any = log.sink() if keeps_marks else RefusesAll()
    if keeps_marks:
        with pytest.raises(Killed):
            mortal(scene, log.sink(), "behind-commit").run_once(wait_s=0)
        sink.on_batch = fails(lambda: KeyError("no such column"))
    for bucket in (0, 2, 3):
        scene.add(bucket, key=keys[bucket])
    (had,) = [one for one in scene.queue.peek() if one.value == "had"]
    sent: list[str] = []

    def on_step(step: str) -> None:
        sent.append(step)
        if not keeps_marks and sent.count("before-export") == 2:
            scene.queue.acknowledge(had.commit_ts)

    runner = next_owner(scene, sink, max_attempts=1, on_step=on_step)
    with pytest.raises(ExportError, match="refuses everything: KeyError"):
        runner.run_once(wait_s=0)
    # The first two have nobody beside them who could be asked.
    assert [letter.value for letter in scene.queue.dead_letters()] == [0, 2]
    assert [entry.value for entry in scene.queue.peek()] == [3]


def test_many_bad_entries_among_good_ones_are_all_poison() -> None:
    """Each good one shows that the receiver takes what is right."""
    scene = Scene()
    for number in range(20):
        scene.add(number, key=b"%d" % number)
    bad = [number for number in range(20) if number % 2]
    scene.sink.on_batch = fails(lambda: ValueError("bad"), *bad)
    assert scene.export(max_attempts=1) == list(range(0, 20, 2))
    assert [letter.value for letter in scene.queue.dead_letters()] == bad


@pytest.mark.parametrize(
    "make", [lambda: Refused("no such topic"), lambda: ConfigError("no"), lambda: answered(403)]
)
def test_settings_that_are_wrong_stop_the_exporter(make: Callable[[], Exception]) -> None:
    """After some tries, since a receiver that is being set up says so as well."""
    scene = Scene()
    scene.add(1)
    errors = [make() for _ in range(patience_module.MOST_REFUSALS - 1)]

    def refuse(_: Batch) -> None:
        if errors:
            raise errors.pop()

    scene.sink.on_batch = refuse
    assert scene.export(max_attempts=1) == [1]
    scene.add(2)
    scene.sink.on_batch = fails(make)
    with pytest.raises(ExportError, match="refuses everything"):
        scene.export(max_attempts=1)
    assert list(scene.queue.dead_letters()) == []


def test_a_table_that_is_not_there_is_no_fault_of_an_entry() -> None:
    """A sink into the same store, whose name was misspelt."""
    scene = Scene()
    scene.add(1, 2)
    with pytest.raises(ExportError, match=r"refuses everything: NoSuchTable"):
        scene.runner(TableSink("nowhere"), max_attempts=1).run_once(wait_s=0)
    assert list(scene.queue.dead_letters()) == []


def test_the_queues_own_table_that_is_gone_is_told_as_what_it_is() -> None:
    """Dropped between the look and the delivery; or swept, as the queue has other buckets."""
    scene = Scene()
    scene.add(1)

    def drop(step: str) -> None:
        if step == "before-export":
            scene.queue.drop()

    with pytest.raises(NoSuchQueue, match="was dropped"):
        scene.runner(TableSink("t"), on_step=drop).run_once(wait_s=0)
    assert TABLE not in scene.tm.tables()
