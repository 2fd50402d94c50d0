"""How entries leave: in order, at least once, and in spite of exporters that fail."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec
import pytest

from omidpy.base.timing.ages import Sample
from omidpy.base.words.durations import MAX_DURATION_S
from omidpy.connect import connect
from omidpy.errors import (
    ExportError,
    NoSuchQueue,
    OracleUnavailable,
    StorageUnavailable,
    UsageError,
)
from omidpy.facts.control import encode_document
from omidpy.facts.watermarks import sample_row
from omidpy.recipes.export_queue import (
    Batch,
    Entry,
    Exporter,
    ExportQueue,
    Poison,
    Refused,
    Retry,
)
from omidpy.recipes.export_queue.delivery import patience as patience_module
from omidpy.recipes.export_queue.delivery import runner as runner_module
from omidpy.recipes.export_queue.delivery.failing import SOONEST_S, Failures, Memory
from omidpy.recipes.export_queue.delivery.patience import Patience
from omidpy.recipes.export_queue.delivery.portions import Possession
from omidpy.recipes.export_queue.delivery.runner import FIRST_POLL_S
from omidpy.recipes.export_queue.entries.dead import Note, bury, rewrite_within
from omidpy.recipes.export_queue.entries.possession import BucketLost
from omidpy.recipes.export_queue.entries.stored.layout import (
    COLUMN,
    dead_row,
    decode_content,
    decode_dead,
    encode_dead,
)
from omidpy.recipes.export_queue.entries.stored.state import BucketRows, BucketState, Places, Raw
from omidpy.recipes.export_queue.entries.view import View
from omidpy.recipes.export_queue.upkeep import retention
from omidpy.recipes.export_queue.upkeep.manual import letters
from omidpy.recipes.export_queue.upkeep.manual.letters import DeadLetters
from tests.machines.export_checks import CHECKS, CountsInATable
from tests.machines.export_queues import QUEUE, TABLE, Scene
from tests.machines.waiting import wait_for
from tests.machines.workload import DEADLINE_S


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait between tries."""
    monkeypatch.setattr(patience_module, "FIRST_PAUSE_S", 0.0)


@pytest.fixture
def scene() -> Scene:
    """Return a queue of one bucket."""
    return Scene()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_checked(check: Callable[[], None]) -> None:
    """The same checks catch the variants of `tests/negative/test_export_mutants.py`."""
    check()


# -- batches ---------------------------------------------------------------------------------------


def test_nothing_is_left_of_what_was_delivered(scene: Scene) -> None:
    """Neither a cell nor a shadow cell: the queue stays small."""
    scene.add(*range(10))
    scene.export()
    assert scene.raw_rows() == []


def test_one_transaction_falls_into_batches(scene: Scene) -> None:
    """A thousand entries through a small buffer, each batch within its bound."""
    scene.add(*range(1000))
    assert scene.export(buffer_bytes=1000) == list(range(1000))
    assert len(scene.sink.batches) > 20
    assert all(batch.bucket == 0 and batch.queue == QUEUE for batch in scene.sink.batches)


def test_a_death_within_a_transaction_goes_on_within_it(scene: Scene) -> None:
    """The cursor is a position, not a transaction."""
    scene.add(*range(10))

    def die_at_third(batch: Batch) -> None:
        if batch[0].value == 3:
            raise KeyboardInterrupt

    scene.sink.on_batch = die_at_third
    with pytest.raises(KeyboardInterrupt):
        scene.export(buffer_bytes=1)
    scene.sink.on_batch = lambda _: None
    assert scene.export(buffer_bytes=1) == list(range(10))


def test_what_is_too_much_to_hold_is_read_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long transaction lets others wait; their content does not fill the memory meanwhile."""
    monkeypatch.setattr("omidpy.recipes.export_queue.delivery.bucket.HOLD_BATCHES", 1)
    long = scene.tm.begin()
    scene.queue.add(long, b"k", "long")
    scene.add(*range(5))
    long.commit()
    scene.add(*range(5, 10))
    assert scene.export(buffer_bytes=1) == [*range(5), "long", *range(5, 10)]


def test_an_exporter_that_returns_too_early_loses(scene: Scene) -> None:
    """What breaks is shown: the promise is the exporter's, and nothing can check it."""
    durable: list[Any] = []

    class Careless(Exporter):
        def __init__(self) -> None:
            self.buffered: list[Entry] = []

        def export(self, batch: Batch) -> None:
            self.buffered.extend(batch)  # not durable, and yet it returns

        def close(self) -> None:
            raise KeyboardInterrupt  # the process ends before it flushes

    scene.add("lost")
    with pytest.raises(KeyboardInterrupt):
        scene.runner(Careless()).run_once(wait_s=0)
    scene.add("next")
    scene.export()
    durable += scene.sink.values
    assert durable == ["next"]


def test_a_function_is_an_exporter(scene: Scene) -> None:
    """And what is neither is refused; so is a class in place of an object."""
    scene.add(1)
    found: list[Entry] = []
    assert scene.queue.run_once(found.extend, wait_s=0) == 1
    assert [entry.value for entry in found] == [1]
    for wrong in (None, Exporter):
        exporter: Any = wrong
        with pytest.raises(TypeError, match="an exporter is"):
            scene.queue.run_once(exporter)


@pytest.mark.parametrize(
    "settings",
    [
        {"poison": "ignore"},
        {"workers": 0},
        {"workers": 10**9},
        {"buffer_bytes": 0},
        {"max_poll_s": 0},
        {"lease_s": -1},
        {"max_poll_s": inf},
        {"lease_s": nan},
    ],
)
def test_settings_of_an_exporter_are_checked(scene: Scene, settings: dict[str, Any]) -> None:
    """Before anything is written."""
    with pytest.raises(UsageError):
        scene.runner(**settings)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda queue: queue.run_once(lambda _: None, wait_s="1"), TypeError),
        (lambda queue: queue.run_once(lambda _: None, wait_s=nan), UsageError),
        (lambda queue: queue.acknowledge("100"), TypeError),
        (lambda queue: queue.acknowledge(100, True), TypeError),
        (lambda queue: queue.peek(None), TypeError),
        (lambda queue: queue.dead_letters().drop("k"), TypeError),
        (lambda queue: queue.dead_letters().retry(as_of="100"), TypeError),
        (lambda queue: queue.dead_letters().retry(as_of=True), TypeError),
    ],
)
def test_what_an_operator_cannot_mean_is_refused(
    scene: Scene, wrong: Callable[[Any], object], error: type[Exception]
) -> None:
    """`drop("k")` found no letter of `b"k"`, and said that there was none."""
    scene.add(1)
    with pytest.raises(error):
        wrong(scene.queue)
    assert scene.export() == [1]


# -- failures --------------------------------------------------------------------------------------


async def awaited(_batch: Batch) -> None:
    """Deliver, if anybody awaits this."""


def gone_over(_batch: Batch) -> Iterator[None]:
    """Deliver, if anybody goes over this."""
    yield


class AwaitedExporter(Exporter):
    """An exporter of asyncio's, of which there are none."""

    async def export(self, batch: Batch) -> None:  # type: ignore[override]
        """Deliver, if anybody awaits this."""


@pytest.mark.parametrize("exporter", [awaited, gone_over, AwaitedExporter()])
def test_an_exporter_that_nobody_goes_on_with_is_refused(scene: Scene, exporter: Any) -> None:
    """It was called, and what it never delivered was removed from the queue."""
    scene.add(1)
    with pytest.raises(TypeError, match="`async def` or a generator, which nobody goes on with"):
        scene.queue.run_once(exporter)
    assert scene.queue.lag().entries == 1


def test_an_exporter_that_turns_out_to_be_one_delivers_nothing(scene: Scene) -> None:
    """By its looks it is a plain function."""
    scene.add(1)
    with pytest.raises(ExportError, match="so that nothing was delivered"):
        scene.queue.run_once(lambda batch: gone_over(batch))  # noqa: PLW0108 - see above
    assert scene.queue.lag().entries == 1


def test_a_receiver_that_cannot_be_reached_blames_no_entry(scene: Scene) -> None:
    """However long it takes: nothing is set aside, and everything comes in the end."""
    scene.add(1, 2)
    errors: list[Exception] = [*[ConnectionError("refused")] * 11, Retry(after=0.0)]

    def fail(_: Batch) -> None:
        if errors:
            raise errors.pop()

    scene.sink.on_batch = fail
    assert scene.export(max_attempts=1) == [1, 2]
    assert list(scene.queue.dead_letters()) == []


def test_one_run_gives_up_on_a_receiver_that_is_gone(scene: Scene) -> None:
    """And loses nothing."""
    scene.add(1)

    def refuse(_: Batch) -> None:
        raise ConnectionError("refused")

    scene.sink.on_batch = refuse
    with pytest.raises(ExportError, match=r"gets nowhere .* ConnectionError"):
        scene.export()
    scene.sink.on_batch = lambda _: None
    assert scene.export() == [1]


def fails_on(*values: object) -> Callable[[Batch], None]:
    """Return an exporter's failure on batches with some values."""

    def fail(batch: Batch) -> None:
        if any(entry.value in values for entry in batch):
            raise ValueError("bad value")

    return fail


@pytest.mark.parametrize("bad", [0, 4, 9], ids=["first", "middle", "last"])
@pytest.mark.parametrize("poison", ["park-key", "skip"])
def test_poison_is_found_wherever_it_is(scene: Scene, bad: int, poison: str) -> None:
    """By halves; the others leave, in their order."""
    for number in range(10):
        scene.add(number, key=b"%d" % number)
    scene.sink.on_batch = fails_on(bad)
    found = scene.export(poison=poison, max_attempts=2)
    assert found == [number for number in range(10) if number != bad]
    (letter,) = scene.queue.dead_letters()
    assert (letter.value, letter.state) == (bad, "poison")
    assert "ValueError: bad value" in letter.reason
    assert scene.queue.lag().dead_letters == 1


def test_later_entries_of_a_parked_key_wait_and_leave_in_order(scene: Scene) -> None:
    """Those of other keys go on; a retry releases the key from its oldest entry on."""
    scene.add("bad")
    scene.add("other", key=b"other")
    scene.add("second")
    scene.sink.on_batch = fails_on("bad")
    assert scene.export(max_attempts=1) == ["other"]
    scene.add("third")
    assert scene.export() == ["other"]
    assert [one.state for one in scene.queue.dead_letters()] == ["poison", "waits", "waits"]
    assert scene.queue.dead_letters().retry(b"nobody") == 0
    scene.sink.on_batch = lambda _: None
    assert scene.queue.dead_letters().retry(b"k") == 1
    scene.add("fourth")
    assert scene.export() == ["other", "bad", "second", "third", "fourth"]
    seqs = [entry.seq for entry in scene.sink.entries if entry.key == b"k"]
    assert seqs == sorted(seqs)
    assert list(scene.queue.dead_letters()) == []
    assert scene.raw_rows() == []


def test_what_fails_again_is_poison_again(scene: Scene) -> None:
    """And what waits behind it still does."""
    scene.add("bad")
    scene.add("second")
    scene.sink.on_batch = fails_on("bad")
    scene.export(max_attempts=1)
    scene.queue.dead_letters().retry()
    assert scene.export(max_attempts=1) == []
    assert [one.state for one in scene.queue.dead_letters()] == ["poison", "waits"]


def test_poison_that_is_given_up_frees_its_key(scene: Scene) -> None:
    """It alone is lost, and that was asked for."""
    scene.add("bad")
    scene.add("second")
    scene.sink.on_batch = fails_on("bad")
    scene.export(max_attempts=1)
    assert scene.queue.dead_letters().drop(b"k") == 1
    assert scene.export() == ["second"]


def test_a_dead_letter_whose_note_cannot_be_read_keeps_its_entry(scene: Scene) -> None:
    """It is tried again, and delivered as it was."""
    scene.add("bad")
    scene.sink.on_batch = fails_on("bad")
    scene.export(max_attempts=1)
    (row,) = scene.raw_rows()
    with scene.tm.begin() as tx:
        letters = tx.table(TABLE)
        content = decode_dead(letters.row(row)[COLUMN])[1]
        letters.put(row, {COLUMN: encode_dead(b"no note", content)})
    assert scene.queue.dead_letters().retry() == 1
    scene.sink.on_batch = lambda _: None
    assert scene.export() == ["bad"]


def _two_dead(scene: Scene) -> None:
    for value, key in (("bad", b"k"), ("worse", b"l")):
        scene.add(value, key=key)
    scene.sink.on_batch = fails_on("bad", "worse")
    scene.export(max_attempts=1)
    assert len(list(scene.queue.dead_letters())) == 2


def test_two_operators_may_do_the_same_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower one got a conflict, and finds nothing left to do now."""
    _two_dead(scene)
    rewrites = rewrite_within

    def overtaken(log: Any, graves: Any) -> int:
        monkeypatch.setattr(letters, "rewrite_within", rewrites)
        count = rewrites(log, graves)
        with concurrent.futures.ThreadPoolExecutor() as other:
            assert other.submit(scene.queue.dead_letters().drop, b"k").result() == 1
        return count

    monkeypatch.setattr(letters, "rewrite_within", overtaken)
    assert scene.queue.dead_letters().drop() == 1
    assert list(scene.queue.dead_letters()) == []


def test_an_operator_is_told_what_was_done_before_an_error(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thousand is a transaction of its own."""
    _two_dead(scene)
    monkeypatch.setattr(letters, "AT_ONCE", 1)
    rewrites, calls = rewrite_within, []

    def fails(log: Any, graves: Any) -> int:
        calls.append(graves)
        if len(calls) == 2:
            raise StorageUnavailable("away")
        return rewrites(log, graves)

    monkeypatch.setattr(letters, "rewrite_within", fails)
    with pytest.raises(StorageUnavailable, match="away; 1 dead letters were changed before"):
        scene.queue.dead_letters().retry()
    assert sorted(one.state for one in scene.queue.dead_letters()) == ["poison", "retry"]


def test_of_two_operators_none_gives_up_what_the_other_tries_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between one's look and his change the other one asks for another try."""
    scene.add("bad")
    scene.sink.on_batch = fails_on("bad")
    scene.export(max_attempts=1)
    looks = DeadLetters._poison

    def overtaken(self: DeadLetters, key: bytes | None, as_of: int | None) -> Any:
        seen = looks(self, key, as_of)
        monkeypatch.setattr(DeadLetters, "_poison", looks)
        assert scene.queue.dead_letters().retry() == 1
        return seen

    monkeypatch.setattr(DeadLetters, "_poison", overtaken)
    assert scene.queue.dead_letters().drop() == 0
    scene.sink.on_batch = lambda _: None
    assert scene.export() == ["bad"]


def test_skipped_poison_lets_its_key_go_on(scene: Scene) -> None:
    """A retry then comes out of order, which receivers refuse by `seq`."""
    scene.add("bad")
    scene.add("second")
    scene.sink.on_batch = fails_on("bad")
    assert scene.export(poison="skip", max_attempts=1) == ["second"]
    scene.sink.on_batch = lambda _: None
    scene.queue.dead_letters().retry()
    assert scene.export() == ["second", "bad"]


def test_an_exporter_may_name_the_poison(scene: Scene) -> None:
    """Then nothing is tried again that would fail again; what stands before it leaves first."""
    scene.add(*range(5))

    def name(batch: Batch) -> None:
        for entry in batch:
            if entry.value == 3:
                raise Poison(entry, "three is not for us")

    scene.sink.on_batch = name
    assert scene.export() == [0, 1, 2]
    assert scene.sink.seen == [[0, 1, 2, 3, 4], [0, 1, 2]]
    reasons = [letter.reason for letter in scene.queue.dead_letters()]
    assert reasons == ["three is not for us", "an earlier entry of its key was set aside"]


def test_a_reason_that_is_no_text_is_kept_all_the_same(scene: Scene) -> None:
    """Python's errors name files that are no UTF-8 so, and the queue would stand still for ever."""
    scene.add(*range(3))

    def name(batch: Batch) -> None:
        for entry in batch:
            if entry.value == 1:
                raise Poison(entry, "no such file: \udcff.txt")

    scene.sink.on_batch = name
    assert scene.export() == [0]
    reasons = [letter.reason for letter in scene.queue.dead_letters()]
    assert reasons[0] == "no such file: \\udcff.txt"


@pytest.mark.parametrize(("size", "length"), [(10, 11_000_000), (10_484_000, 5_000)])
def test_a_reason_that_is_long_is_kept_as_far_as_there_is_room(
    scene: Scene, size: int, length: int
) -> None:
    """A receiver may name the whole entry in its error; and an entry fills its cell nearly."""
    scene.add("a", "v" * size, "b")

    def name(batch: Batch) -> None:
        for entry in batch:
            if len(entry.value) > 1:
                raise Poison(entry, "x" * length)

    scene.sink.on_batch = name
    assert scene.export() == ["a"]
    found = [letter.reason for letter in scene.queue.dead_letters()]
    assert 500 < len(found[0]) <= 4000
    assert set(found[0]) == {"x"}


def test_poison_that_is_not_in_the_batch_is_an_error(scene: Scene) -> None:
    """A copy, or an entry of another batch."""
    scene.add(1)

    def name(batch: Batch) -> None:
        raise Poison(Entry(b"k", 1, 0, 0, 0, {}))

    scene.sink.on_batch = name
    with pytest.raises(ExportError, match="not in the batch"):
        scene.export()
    scene.sink.on_batch = lambda _: None
    assert scene.export() == [1]


def test_the_policy_stop_stops_before_the_poison(scene: Scene) -> None:
    """What stands before it has left, it and what follows stay, and the next run tries again."""
    scene.add(*range(5))
    scene.sink.on_batch = fails_on(2)
    for _ in range(2):
        with pytest.raises(ExportError, match=r"has stopped .* ValueError: bad value"):
            scene.export(poison="stop", max_attempts=1)
        assert scene.sink.values == [0, 1]
    assert "bad value" in scene.queue.lag().buckets[0].stopped
    scene.sink.on_batch = lambda _: None
    assert scene.export(poison="stop") == [0, 1, 2, 3, 4]
    assert scene.queue.lag().buckets[0].stopped == ""


def test_an_entry_that_the_codec_cannot_read_is_poison(scene: Scene) -> None:
    """Written by another version, or damaged: it is set aside whole, and nothing is lost."""
    scene.add("good")
    (row,) = scene.raw_rows()
    with scene.tm.begin() as tx:
        cell = tx.table("OMIDPY_EXPORT_q").row(row)[COLUMN]
        tx.table("OMIDPY_EXPORT_q").put(row, {COLUMN: cell[:-1]})
    scene.add("behind")
    scene.add("other", key=b"other")
    assert scene.export() == ["other"]
    first, second = scene.queue.dead_letters()
    assert (first.key, first.value, first.state) == (b"k", None, "poison")
    assert "is no JSON value" in first.reason
    assert second.value == "behind"
    scene.queue.dead_letters().retry()
    assert scene.export() == ["other"], "it cannot be read any better now"
    assert [one.state for one in scene.queue.dead_letters()] == ["poison", "waits"]


def test_a_cell_that_is_no_entry_is_set_aside(scene: Scene) -> None:
    """Whose key nobody knows; it parks none."""
    scene.add("damaged")
    (row,) = scene.raw_rows()
    with scene.tm.begin() as tx:
        tx.table("OMIDPY_EXPORT_q").put(row, {COLUMN: b"\x07?"})
    scene.add("good")
    assert scene.export() == ["good"]
    (letter,) = scene.queue.dead_letters()
    assert letter.key is None
    with scene.tm.begin(read_only=True) as tx:
        ((_, data),) = tx.table("OMIDPY_EXPORT_q").scan()
    assert decode_dead(data[COLUMN])[1] == b"\x07?", "every byte of it is there"


def test_a_dead_letter_is_the_entry_as_it_was(scene: Scene) -> None:
    """Key, headers and bytes of the value."""
    with scene.tm.begin() as tx:
        scene.queue.add(tx, b"k", "bad", headers={"a": "b"})
    scene.sink.on_batch = fails_on("bad")
    scene.export(max_attempts=1)
    with scene.tm.begin(read_only=True) as tx:
        ((row, data),) = tx.table("OMIDPY_EXPORT_q").scan()
    (letter,) = scene.queue.dead_letters()
    assert row == dead_row(0, 0, letter.seq[0], letter.start_ts, bytes(4))
    assert decode_content(decode_dead(data[COLUMN])[1]) == (b"k", {"a": "b"}, b'"bad"')


def test_what_has_failed_says_how_often(scene: Scene) -> None:
    """So that an exporter can try something else."""
    scene.add("bad")
    attempts: list[int] = []

    def fail(batch: Batch) -> None:
        attempts.append(batch[0].attempt)
        raise ValueError

    scene.sink.on_batch = fail
    scene.export(max_attempts=3)
    assert attempts == [1, 2, 3]


def test_pauses_double_and_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """And batches grow again once they succeed."""
    monkeypatch.setattr(patience_module, "FIRST_PAUSE_S", 0.1)
    patience = Patience(2, draw=lambda: 1.0)
    pauses = []
    for _ in range(12):
        patience.unreachable(1)
        pauses.append(patience.pause_s())
    assert pauses[:3] == [0.2, 0.4, 0.8]
    assert pauses[-1] == 30.0
    assert not patience.failed(8)
    assert patience.max_entries == 4
    for _ in range(12):
        patience.succeeded()
    assert patience.max_entries is None
    assert not patience.failed(1)
    assert patience.failed(1)


@pytest.mark.parametrize("error", [Retry, Refused, OSError])
def test_a_receiver_that_takes_so_many_and_then_no_more_gets_all(
    scene: Scene, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that answers 429 in the middle of a batch; it would have its beginning for ever."""
    monkeypatch.setattr(patience_module, "FIRST_PAUSE_S", 0.0)
    scene.add(*range(100))
    given: list[int] = []

    def limited(batch: Batch) -> None:
        given.extend(entry.value for entry in batch[:10])
        if len(batch) > 10:
            raise error("no more of them now")

    scene.sink.on_batch = limited
    assert scene.export() == list(range(100))
    assert max(map(given.count, given)) < 8, "some come again, and none for ever"
    assert scene.queue.lag().dead_letters == 0


@pytest.mark.parametrize("error", [Retry, Refused])
@pytest.mark.parametrize("after", [0.0, -1.0, 0.001])
def test_a_receiver_that_asks_for_no_pause_is_not_called_at_once(
    error: type[Retry],
    after: float,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`Retry-After: 0` took a core of the exporter's, and of the receiver's, and filled the log."""
    monkeypatch.setattr(patience_module, "FIRST_PAUSE_S", 0.1)
    failures = Failures("q")
    patience = Patience(draw=lambda: 0.0)
    pauses_s = []
    for _ in range(10):
        memory = Memory(patience, Patience())
        paused = failures.paused(error("busy", after=after), 3, patience, [], memory)
        pauses_s.append(paused.after_s)
    assert pauses_s[:3] == pytest.approx([0.1, 0.2, 0.4])
    assert pauses_s[-1] == SOONEST_S
    paused = failures.paused(
        error("busy", after=7.0), 3, patience, [], Memory(patience, Patience())
    )
    assert paused.after_s == 7.0
    assert len(caplog.messages) == 1


def test_smaller_batches_set_no_entry_aside_unasked() -> None:
    """A batch of those alone that have failed alone would be set aside without another one."""
    patience = Patience()
    patience.unreachable(4, suspect_count=2)
    assert patience.max_entries == 4
    patience.unreachable(1, suspect_count=2)
    assert patience.max_entries == 4
    assert not patience.refused(2, suspect_count=2)
    assert patience.max_entries == 3


# -- keeping and replay ----------------------------------------------------------------------------


def test_what_is_kept_can_be_delivered_again() -> None:
    """From a moment on; nothing comes twice unless that is asked for."""
    scene = Scene(keep_s=3600.0)
    scene.add("first")
    scene.add("second")
    scene.export()
    second = scene.sink.entries[1].commit_ts
    assert scene.export() == ["first", "second"]
    scene.queue.replay(second)
    assert scene.queue.lag().entries == 1
    assert scene.export() == ["first", "second", "second"]


@pytest.mark.parametrize("keep_s", [36_500 * 86_400.0, MAX_DURATION_S])
def test_what_is_kept_for_longer_than_there_are_dates_can_be_delivered_again(
    tmp_path: Path, keep_s: float
) -> None:
    """As is written for `for ever`: no timestamp is so old, and nothing is purged."""
    with closing(connect(f"sqlite:///{tmp_path}/s.db")) as tm:
        queue = ExportQueue.create(tm, QUEUE, buckets=1, keep_s=keep_s)
        with tm.begin() as tx:
            queue.add(tx, b"k", "first")
        got: list[Any] = []
        for _ in range(2):
            queue.runner(lambda batch: got.extend(one.value for one in batch)).run_once(wait_s=0)
            queue.replay(timedelta(hours=1))
        assert got == ["first", "first"]


@pytest.mark.parametrize("name", ["keep_s", "max_lag_s"])
@pytest.mark.parametrize("seconds", [inf, nan, 1e15, 0.0, -1.0])
def test_a_queue_is_told_of_no_time_that_cannot_be_kept(name: str, seconds: float) -> None:
    """JSON has no infinity: `keep_s` came back as None, and nothing was kept at all."""
    settings: dict[str, Any] = {name: seconds}
    with pytest.raises(UsageError, match=f"{name}=.* must be positive seconds, 8640000000 at most"):
        Scene(**settings)


def test_a_replay_has_what_went_through_dead_letters_in_the_old_order() -> None:
    """Poison that was tried again, and what waited behind it; poison that was given up is gone."""
    scene = Scene(keep_s=3600.0)
    scene.add("before")
    scene.add("bad")
    scene.add("behind")
    scene.add("other", key=b"other")
    scene.add("given up", key=b"g")
    scene.sink.on_batch = fails_on("bad", "given up")
    scene.export(max_attempts=1)
    scene.queue.dead_letters().drop(b"g")
    scene.sink.on_batch = lambda _: None
    scene.queue.dead_letters().retry(b"k")
    scene.export()
    scene.add("last")
    assert scene.export() == ["before", "other", "bad", "behind", "last"]
    assert list(scene.queue.dead_letters()) == []
    scene.queue.replay(0)
    assert scene.queue.lag().entries == 5
    again = ["before", "bad", "behind", "other", "last"]
    assert [entry.value for entry in scene.queue.peek()] == again
    first = {entry.value: (entry.seq, entry.id) for entry in scene.sink.entries}
    scene.sink.batches.clear()
    assert scene.export(buffer_bytes=1) == again
    assert {entry.value: (entry.seq, entry.id) for entry in scene.sink.entries} == first
    assert scene.export() == again, "and nothing comes again"
    assert scene.queue.lag().entries == 0
    assert sum(one.exported for one in scene.queue.lag().buckets) == 10


def test_what_was_handed_over_before_a_replay_comes_again_behind_it() -> None:
    """The first replay has set the cursor back; the receiver loses what it has got since."""
    scene = Scene(keep_s=1000.0)
    scene.add("kept")
    scene.export()
    scene.queue.replay(1)
    replays = [lambda: scene.queue.replay(1)]

    def on_step(step: str) -> None:
        if step == "exported" and replays:
            replays.pop()()

    scene.export(on_step=on_step)
    assert scene.sink.values == ["kept"] * 2
    assert scene.export() == ["kept"] * 3
    assert scene.export() == ["kept"] * 3


def test_what_is_replayed_may_turn_out_to_be_poison_again() -> None:
    """It is set aside once more, with what is behind it."""
    scene = Scene(keep_s=3600.0)
    scene.add("bad")
    scene.add("behind")
    for _ in range(2):
        scene.sink.on_batch = fails_on("bad")
        scene.export(max_attempts=1)
        assert [letter.value for letter in scene.queue.dead_letters()] == ["bad", "behind"]
        scene.sink.on_batch = lambda _: None
        scene.queue.dead_letters().retry()
        scene.export()
        scene.queue.replay(0)
    assert scene.export() == ["bad", "behind"] * 3


def test_dead_letters_that_were_kept_for_long_enough_go() -> None:
    """As other entries do."""
    scene = Scene(keep_s=10.0)
    scene.client.naive._last = 10**15  # time, from here on
    scene.tm.session.control.raise_number(b"first-timestamp", 10**15)
    scene.add("bad")
    scene.sink.on_batch = fails_on("bad")
    scene.export(max_attempts=1)
    scene.sink.on_batch = lambda _: None
    scene.queue.dead_letters().retry()
    assert scene.export() == ["bad"]
    assert len(scene.raw_rows()) == 1
    scene.client.naive._last += 11 * 10**9
    scene.add("new")
    scene.export()
    care = scene.runner()._look_after
    assert care is not None
    care.look(scene.queue._definition)
    assert len(scene.raw_rows()) == 1


def test_an_exporter_ends_with_who_looks_after_its_queue(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would deliver for ever, and nobody would see that nothing is purged any more."""
    monkeypatch.setattr(runner_module, "KEEP_EVERY_S", 0.01)
    runner = scene.runner()
    assert runner._look_after is not None

    def look(definition: object) -> None:
        raise RecursionError(f"of {definition}")

    monkeypatch.setattr(runner._look_after, "look", look)
    with pytest.raises(RecursionError):
        runner.run()


def test_what_is_not_kept_cannot_be_replayed(scene: Scene) -> None:
    """It says so, instead of replaying nothing."""
    with pytest.raises(ExportError, match="keeps nothing"):
        scene.queue.replay(0)


def test_what_was_kept_for_long_enough_goes() -> None:
    """And nothing else: neither what waits, nor what may still commit."""
    scene = Scene(keep_s=10.0)
    scene.client.naive._last = 10**15  # time, from here on
    scene.tm.session.control.raise_number(b"first-timestamp", 10**15)
    scene.add("old")
    scene.export()
    slow = scene.tm.begin()
    scene.queue.add(slow, b"k", "slow")
    slow.flush()
    scene.client.naive._last += 11 * 10**9
    scene.add("new")
    care = scene.runner()._look_after
    assert care is not None
    care.look(scene.queue._definition)
    assert len(scene.raw_rows()) == 3, "the low watermark is below all of them"
    slow.commit()
    scene.client.naive.raise_low_watermark()
    scene.export()
    scene.clock.advance(60)
    care.look(scene.queue._definition)
    scene.queue.replay(timedelta(seconds=5))
    assert scene.export() == ["old", "new", "slow", "new", "slow"]
    with pytest.raises(ExportError, match="is longer ago"):
        scene.queue.replay(timedelta(seconds=60))


def test_what_is_kept_does_not_go_because_somebody_sets_the_date() -> None:
    """World time leaps with the date when an oracle is started; its samples say how long it was."""
    scene = Scene(keep_s=3600.0)
    naive, control = scene.client.naive, scene.tm.session.control
    naive._last = 10**15  # time, from here on
    control.raise_number(b"first-timestamp", 10**15)

    def sample(minute: int) -> None:
        elapsed_ms = 60_000 * minute
        found = Sample(elapsed_ms, 0, naive._last, "oracle", elapsed_ms)
        control.write(sample_row(elapsed_ms), encode_document(found))

    def purge() -> int:
        naive.raise_low_watermark()
        return retention.purge(scene.tm, scene.queue._places, scene.queue._find())

    scene.add("kept")
    scene.export()
    sample(0)
    naive._last += 86_400 * 10**9
    scene.add("more")
    scene.export()
    sample(1)
    assert purge() == 0
    scene.queue.replay(timedelta(hours=30))
    assert scene.export() == ["kept", "more"] * 2
    sample(60)
    assert purge() == 1
    with pytest.raises(ExportError, match="is longer ago"):
        scene.queue.replay(timedelta(hours=30))


@pytest.mark.parametrize("stands_still", ["before", "behind"])
def test_a_purger_that_stands_still_removes_nothing_of_a_replay(
    monkeypatch: pytest.MonkeyPatch, stands_still: str
) -> None:
    """An operator asks for it while the purger is about to take its snapshot, or has just taken it.

    What the replay asks for is old enough to go, but for that, once the purger goes on.
    """
    scene = Scene(keep_s=10.0)
    scene.client.naive._last = 10**15  # time, from here on
    scene.tm.session.control.raise_number(b"first-timestamp", 10**15)
    for value in ("one", "two"):
        scene.add(value)
        scene.client.naive.raise_low_watermark()
        scene.export()
    scene.client.naive._last += 5 * 10**9

    class Stands(View):
        def __init__(self, *args: Any, **settings: Any) -> None:
            if stands_still == "behind":
                super().__init__(*args, **settings)
            scene.queue.replay(timedelta(seconds=8))
            scene.client.naive._last += 6 * 10**9
            if stands_still == "before":
                super().__init__(*args, **settings)

    with monkeypatch.context() as patched:
        patched.setattr(retention, "View", Stands)
        assert retention.purge(scene.tm, scene.queue._places, scene.queue._find()) == 0
    assert scene.export() == ["one", "two"] * 2


def test_a_replay_that_stands_still_says_what_was_purged_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An operator asks for what is kept, and an hour passes before the cursors are set back."""
    scene = Scene(keep_s=10.0)
    scene.client.naive._last = 10**15  # time, from here on
    scene.tm.session.control.raise_number(b"first-timestamp", 10**15)
    scene.add("one")
    scene.client.naive._last += 6 * 10**9
    scene.add("two")
    scene.client.naive.raise_low_watermark()
    scene.export()
    set_back = retention._set_back

    def stands(*args: Any) -> None:
        scene.client.naive._last += 5 * 10**9
        assert retention.purge(scene.tm, scene.queue._places, scene.queue._find()) == 1
        set_back(*args)

    with monkeypatch.context() as patched:
        patched.setattr(retention, "_set_back", stands)
        with pytest.raises(ExportError, match="was purged while"):
            scene.queue.replay(timedelta(seconds=9))
    assert scene.export() == ["one", "two", "two"], "what is left comes again"


def test_exactly_once_and_keeping_do_not_go_together() -> None:
    """The one deletes the entry in the transaction, the other keeps it."""
    scene = Scene(keep_s=60.0)
    with pytest.raises(ExportError, match="without keep_s"):
        scene.runner(CountsInATable())


# -- owners ----------------------------------------------------------------------------------------


def test_the_bucket_of_a_living_owner_is_left_alone(scene: Scene) -> None:
    """Until it gives it back, or its lease has passed without a sign of life."""
    scene.add(1)
    first = scene.runner()._crew
    first.join(with_heart=False)
    first.look()
    assert scene.export() == []
    first.leave()
    assert scene.export() == [1]


def test_an_owner_that_was_paused_notices_before_the_next_batch(scene: Scene) -> None:
    """It trusts itself for less than its lease."""
    crew = scene.runner(lease_s=10.0)._crew
    crew.join(with_heart=False)
    crew.look()
    crew.leases[0].check()
    scene.clock.advance(9.0)
    with pytest.raises(BucketLost, match="shown no life"):
        crew.leases[0].check()
    crew.look()
    crew.leases[0].check()
    crew.leave()


def test_an_owner_in_doubt_of_itself_hands_nothing_over(scene: Scene) -> None:
    """Paused between reading a batch and delivering it, for most of its lease."""
    scene.add(1)

    def pause(step: str) -> None:
        if step == "taken":
            scene.clock.advance(9.0)

    assert scene.export(on_step=pause) == []
    assert scene.sink.seen == []
    assert scene.export() == [1]


def test_an_answer_that_nobody_expects_does_not_end_the_signs_of_life(
    scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is at work, and would let go of its buckets once in each lease."""
    crew = scene.runner(lease_s=0.04)._crew
    beats = threading.Semaphore(0)

    def beat() -> bool:
        beats.release()
        raise ValueError("an answer that nobody expects")

    crew.join()
    assert crew.worker is not None
    monkeypatch.setattr(crew.worker, "beat", beat)
    for _ in range(3):
        assert beats.acquire(timeout=DEADLINE_S)
    crew.leave()
    assert "the heart of this process stumbles" in caplog.text


def test_owners_share_the_buckets() -> None:
    """One who comes later gets half of them, and gets the rest when the first one leaves."""
    scene = Scene(buckets=5)
    first, second = scene.runner(), scene.runner()
    first._crew.join(with_heart=False)
    second._crew.join(with_heart=False)
    first._share_out()
    assert len(first._crew.leases) == 3
    second._share_out()
    assert len(second._crew.leases) == 2
    third = scene.runner()
    third._crew.join(with_heart=False)
    for runner in (first, second, third):
        runner._share_out()
    assert [len(one._crew.leases) for one in (first, second, third)] == [2, 2, 1]
    first._crew.leave()
    third._crew.leave()
    second._share_out()
    assert len(second._crew.leases) == 5
    second._crew.leave()


def test_what_could_not_be_given_back_is_given_back_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or its entries wait until this process ends: it seems to have them, and has not."""
    scene = Scene(buckets=4)
    first, second = scene.runner(), scene.runner()
    first._crew.join(with_heart=False)
    first._share_out()
    second._crew.join(with_heart=False)
    replace, down = BucketRows.replace, [True]

    def fail_once(self: BucketRows, old: Raw, state: BucketState, *more: Any) -> Any:
        if down and state.owner is None:
            down.pop()
            raise StorageUnavailable("no answer")
        return replace(self, old, state, *more)

    monkeypatch.setattr(BucketRows, "replace", fail_once)
    with pytest.raises(StorageUnavailable):
        first._share_out()
    first._share_out()
    second._share_out()
    assert [len(one._crew.leases) for one in (first, second)] == [2, 2]
    first._crew.leave()
    second._crew.leave()


def test_nobody_turns_round_and_round_over_what_is_lost(scene: Scene) -> None:
    """It is due at once, and every pass over it ends at once, until the next look drops it."""
    runner = scene.runner()
    runner._crew.join(with_heart=False)
    runner._share_out()
    (lease,) = runner._crew.leases.values()
    assert runner._take_due() == [lease]
    runner._busy.clear()
    row = scene.queue._places.bucket(1, 0)
    scene.tm.session.control.write(row, b"{}")
    with pytest.raises(BucketLost):
        lease.confirm()
    assert runner._take_due() == []
    assert runner._rest_s() > FIRST_POLL_S
    runner._crew.leave()


def test_who_leaves_is_no_longer_counted(scene: Scene) -> None:
    """Or the others would leave its share to nobody until they have judged it."""
    crew = scene.runner()._crew
    crew.join(with_heart=False)
    crew.look()
    assert len(crew._runners()) == 1
    crew.leave()
    assert crew._runners() == []


def test_of_two_owners_one_delivers_into_the_same_store(scene: Scene) -> None:
    """The other one was paused behind its read, and finds in its transaction that they are gone."""
    scene.add(*range(3))
    sink: Any = CountsInATable()
    others = scene.runner(sink)
    judge: Any = others._crew._judge
    judge.dead = frozenset
    waiting = [others]

    def overtake(step: str) -> None:
        if step == "before-export" and waiting:
            assert waiting.pop().run_once(wait_s=0) == 3

    scene.runner(sink, on_step=overtake).run_once(wait_s=0)
    assert scene.client.read(b"count") == {b"cf:n": b"3"}


def test_what_is_gone_is_not_set_aside(scene: Scene) -> None:
    """Two owners may find the same poison; it becomes one dead letter."""
    scene.add("bad")
    (found,) = View(scene.tm, TABLE).log(0)
    for reason in ("of one owner", "of the other"):
        bury(scene.tm, TABLE, 0, [(found, Note(state="poison", reason=reason, parks=True))])
    assert [letter.reason for letter in scene.queue.dead_letters()] == ["of one owner"]


def test_a_state_is_changed_only_by_who_has_seen_it(scene: Scene) -> None:
    """X2: and an answer that was lost does not look like somebody else."""
    rows = BucketRows(
        scene.tm.session.control,
        Places.of(scene.tm.session.catalog, QUEUE),
        scene.queue._definition,
    )
    (old,) = rows.read()
    new = rows.replace(old, msgspec.structs.replace(old.state, epoch=1))
    assert new is not None
    assert rows.replace(old, msgspec.structs.replace(old.state, epoch=1)) == new
    assert rows.replace(old, msgspec.structs.replace(old.state, epoch=2)) is None


def wait_while_time_passes(scene: Scene, condition: Callable[[], object]) -> None:
    """Turn the clock until something is so."""

    def look() -> object:
        scene.clock.advance(0.1)
        return condition()

    wait_for(look, 60)


def test_threads_deliver_until_they_are_stopped() -> None:
    """Several buckets, several threads, and entries that come while they run."""
    scene = Scene(buckets=4)
    runner = scene.runner(workers=3, max_poll_s=0.05)
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        for number in range(50):
            scene.add(number, key=b"%d" % (number % 7))
            scene.clock.advance(0.1)
        wait_while_time_passes(scene, lambda: len(scene.sink.entries) == 50)
    finally:
        runner.stop()
        thread.join()
    for key in range(7):
        values = [entry.value for entry in scene.sink.entries if entry.key == b"%d" % key]
        assert values == sorted(values)
    assert sum(one.exported for one in runner.tally.read().values()) == 50


def test_a_running_exporter_ends_when_its_queue_is_dropped(scene: Scene) -> None:
    """With an error that says so."""
    runner = scene.runner(max_poll_s=0.05)
    errors: list[Exception] = []

    def run() -> None:
        try:
            runner.run()
        except NoSuchQueue as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_while_time_passes(scene, lambda: runner._crew.leases)
    scene.queue.drop()
    scene.clock.advance(10)
    wait_while_time_passes(scene, lambda: errors)
    thread.join()
    assert "was dropped" in str(errors[0])


@pytest.mark.parametrize("layout", ["log", "fluo"])
def test_a_receiver_slower_than_any_transaction_may_be_is_waited_for(layout: str) -> None:
    """The low watermark passes all that had begun: a transaction around the batch would abort."""
    scene = Scene(layout=layout)
    scene.add(1, 2)

    def takes_long(_: Batch) -> None:
        scene.client.naive.raise_low_watermark()
        scene.clock.advance(1.0)

    scene.sink.on_batch = takes_long
    assert scene.export(buffer_bytes=1) == [1, 2]
    assert scene.export() == [1, 2]
    assert scene.raw_rows() == []


def test_an_oracle_that_is_down_holds_up_and_loses_nothing(scene: Scene) -> None:
    """Buckets rest, and go on when it answers again."""
    scene.add(1)
    scene.client.oracle.is_dead = True
    with pytest.raises(OracleUnavailable):
        scene.export()
    scene.client.oracle.is_dead = False
    assert scene.export() == [1]


# -- pauses ----------------------------------------------------------------------------------------


def test_a_queue_that_is_paused_keeps_its_entries() -> None:
    """It takes more, and nobody delivers any, in whatever process, until it goes on."""
    scene = Scene()
    scene.queue.pause()
    scene.queue.pause()
    scene.add(1)
    with pytest.raises(ExportError, match="is paused: resume it with `omidpy export resume q`"):
        ExportQueue.open(scene.tm, QUEUE).run_once(scene.sink, wait_s=0)
    with pytest.raises(ExportError, match="is paused"):
        Possession(scene.tm, QUEUE, wait_s=0)
    assert scene.queue.lag().is_paused
    scene.queue.resume()
    assert scene.export() == [1]
    assert not scene.queue.lag().is_paused
    ExportQueue.create(scene.tm, QUEUE, buckets=1).pause()
    assert ExportQueue.create(scene.tm, QUEUE, buckets=1).lag().is_paused, "it is no setting"


def test_an_exporter_that_runs_stops_for_a_pause_and_goes_on() -> None:
    """It gives its buckets back meanwhile, and one that begins takes none."""
    scene = Scene(buckets=2)
    runner = scene.runner(max_poll_s=0.02, lease_s=0.2)
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        scene.add("before")
        wait_while_time_passes(scene, lambda: scene.sink.values == ["before"])
        scene.queue.pause()
        wait_while_time_passes(scene, lambda: not runner._crew.leases)
        scene.add("meanwhile")
        late = scene.runner()
        late._crew.join(with_heart=False)
        late._holds = True
        late._share_out()
        assert not late._crew.leases
        late._crew.leave()
        assert scene.queue.lag().entries == 1
        scene.queue.resume()
        wait_while_time_passes(scene, lambda: scene.sink.values == ["before", "meanwhile"])
    finally:
        runner.stop()
        thread.join()


def test_who_has_seen_the_pause_takes_no_bucket_in_hand(scene: Scene) -> None:
    """Though it has not given them back yet."""
    runner = scene.runner()
    runner._crew.join(with_heart=False)
    runner._share_out()
    runner._holds = True
    assert runner._take_due() == []
    runner._holds = False
    assert len(runner._take_due()) == 1
    runner._crew.leave()


def test_a_queue_that_was_dropped_is_not_paused(scene: Scene) -> None:
    """Nor is the next one of its id, by who has the old one open."""
    scene.queue.drop()
    ExportQueue.create(scene.tm, QUEUE, buckets=1)
    with pytest.raises(NoSuchQueue, match="was dropped"):
        scene.queue.pause()


# -- looking ---------------------------------------------------------------------------------------


def test_lag_says_what_waits_where() -> None:
    """By bucket, with who is at it."""
    scene = Scene(buckets=2)
    assert scene.queue.lag().oldest_commit_ts is None
    scene.add(1)
    scene.add(2)
    lag = scene.queue.lag()
    assert (lag.entries, lag.dead_letters) == (2, 0)
    first = scene.queue.peek(1)[0]
    assert lag.oldest_commit_ts == first.commit_ts
    assert sorted(one.entries for one in lag.buckets) == [0, 2]
    scene.export()
    assert sum(one.exported for one in scene.queue.lag().buckets) == 2


def test_a_look_ahead_takes_nothing(scene: Scene) -> None:
    """The next ones, in the order in which they will leave."""
    late = scene.tm.begin()
    scene.queue.add(late, b"k", "late")
    scene.add("early", "second")
    late.commit()
    assert [entry.value for entry in scene.queue.peek(2)] == ["early", "second"]
    assert [entry.value for entry in scene.queue.peek()] == ["early", "second", "late"]
    assert scene.queue.lag().entries == 3


def test_a_queue_is_opened_by_many(scene: Scene) -> None:
    """Each sees what the others did."""
    scene.add(1)
    assert ExportQueue.open(scene.tm, QUEUE).run_once(scene.sink, wait_s=0) == 1
    assert scene.queue.lag().entries == 0


@pytest.mark.parametrize("bad", [range(0, 400, 4), range(200), range(200, 400)], ids=str)
def test_poison_in_a_large_batch_brings_what_is_before_it_again_once(bad: range) -> None:
    """As a webhook that refuses some of its requests for ever has it: not once for each of them."""
    scene = Scene()
    for number in range(400):
        scene.add(number, key=b"%d" % number)
    calls: list[int] = []

    def post(batch: Batch) -> None:
        for entry in batch:
            calls.append(entry.value)
            if entry.value in bad:
                raise Poison(entry, "no")

    scene.sink.on_batch = post
    assert scene.export() == [number for number in range(400) if number not in bad]
    assert [one.value for one in scene.queue.dead_letters()] == list(bad)
    assert len(calls) < 4 * 400
