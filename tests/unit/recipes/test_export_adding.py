"""What is added to an export queue, and how queues are made, found and dropped."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from omidpy.base.tables import is_system_table
from omidpy.errors import (
    ExportError,
    Fenced,
    NoSuchQueue,
    OmidError,
    QueueFull,
    Rollback,
    TransactionAborted,
    UsageError,
)
from omidpy.facts.tables.catalog import LAYOUT_AGE_S
from omidpy.manager import TransactionManager
from omidpy.model import FIRST_WORLD_TIMESTAMP
from omidpy.recipes.export_queue import ExportQueue
from omidpy.recipes.export_queue import queue as queue_module
from omidpy.recipes.export_queue.entries.adding import GAUGE_AGE_S, STALE_S
from omidpy.recipes.export_queue.entries.stored.state import Gauge, Places
from omidpy.recipes.export_queue.upkeep import making
from omidpy.recipes.export_queue.upkeep.lag import measure_roughly
from omidpy.tx.writes import ordinals
from tests.machines.clients import TABLE as USERS_TABLE
from tests.machines.export_queues import QUEUE, TABLE, Scene
from tests.machines.export_rebucketing import Rebucketing


@pytest.fixture
def scene() -> Scene:
    """Return a queue of one bucket."""
    return Scene()


# -- adding ----------------------------------------------------------------------------------------


def test_what_aborts_is_never_delivered(scene: Scene) -> None:
    """Which is what the queue is for."""
    with scene.tm.begin() as tx:
        scene.queue.add(tx, b"k", "no")
        tx.flush()
        raise Rollback
    scene.add("yes")
    assert scene.export() == ["yes"]


def test_a_key_that_is_added_twice_in_one_transaction_is_two_entries(scene: Scene) -> None:
    """Fluo's recipe keeps the last one of them."""
    scene.add("first", "second")
    assert scene.export() == ["first", "second"]
    first, second = scene.sink.entries
    assert first.commit_ts == second.commit_ts
    assert first.ordinal < second.ordinal
    assert first.id != second.id


def test_two_adders_of_a_key_never_conflict(scene: Scene) -> None:
    """Both began before either committed."""
    one, two = scene.tm.begin(), scene.tm.begin()
    scene.queue.add(one, b"k", 1)
    scene.queue.add(two, b"k", 2)
    two.commit()
    one.commit()
    assert scene.export() == [2, 1], "in the order in which they committed"


def test_write_skewed_keys_are_ordered_by_commit(scene: Scene) -> None:
    """Both read what the other writes, add the same key, and commit: the seed's last example.

    By start timestamps, the value of the one that committed first would win at the receiver.
    """
    with scene.tm.begin() as tx:
        tx.table(USERS_TABLE).put(b"a", {b"cf:n": b"1"})
        tx.table(USERS_TABLE).put(b"b", {b"cf:n": b"1"})
    one, two = scene.tm.begin(), scene.tm.begin()
    for tx, reads, writes in ((one, b"a", b"b"), (two, b"b", b"a")):
        read = int(tx.table(USERS_TABLE).row(reads)[b"cf:n"])
        tx.table(USERS_TABLE).put(writes, {b"cf:n": b"%d" % (read + tx.start_ts)})
        scene.queue.add(tx, b"sum", tx.start_ts)
    two.commit()
    one.commit()
    assert scene.export() == [two.start_ts, one.start_ts]
    assert scene.sink.entries[0].seq < scene.sink.entries[1].seq
    assert scene.sink.entries[0].start_ts > scene.sink.entries[1].start_ts


def test_a_transaction_knows_queues_by_their_id(scene: Scene) -> None:
    """Without the queue at hand, headers and all."""
    with scene.tm.begin() as tx:
        tx.queue(QUEUE).add(b"k", 1, headers={"table": "orders"})
        tx.queue(QUEUE).add_all([(b"k", 2), (b"k", 3)])
    assert scene.export() == [1, 2, 3]
    assert scene.sink.entries[0].headers == {"table": "orders"}


def test_an_undone_savepoint_takes_its_entries_with_it(scene: Scene) -> None:
    """And their ordinals are not used again, though they were flushed."""
    with scene.tm.begin() as tx:
        scene.queue.add(tx, b"k", "before")
        with contextlib.suppress(KeyError), tx.savepoint():
            scene.queue.add(tx, b"k", "undone")
            raise KeyError
        scene.queue.add(tx, b"k", "after")
    assert scene.export() == ["before", "after"]
    assert [entry.ordinal for entry in scene.sink.entries] == [0, 2]


def test_no_part_of_what_is_added_together_is_committed(scene: Scene) -> None:
    """Who catches the failure cannot know which are there, and would add those again."""

    def fails_behind(count: int) -> Iterator[tuple[bytes, object]]:
        yield from ((b"k", number) for number in range(count))
        raise KeyError("no more")

    tx = scene.tm.begin()
    with pytest.raises(KeyError):
        scene.queue.add_all(tx, fails_behind(2))
    with pytest.raises(TransactionAborted, match="were added in part"):
        tx.commit()
    tx = scene.tm.begin()
    with pytest.raises(TypeError):
        tx.queue(QUEUE).add_all([(b"k", 1), (b"k", object())])
    with pytest.raises(TransactionAborted, match="were added in part"):
        tx.commit()
    with scene.tm.begin() as tx:
        with pytest.raises(KeyError):
            scene.queue.add_all(tx, fails_behind(0))  # none of them was
        with pytest.raises(KeyError), tx.savepoint():
            scene.queue.add_all(tx, fails_behind(2))
        scene.queue.add_all(tx, [(b"k", "whole"), (b"k", "and alone")])
    assert scene.export() == ["whole", "and alone"]


def test_workers_of_a_transaction_never_write_over_each_other(scene: Scene) -> None:
    """All at one start timestamp, and each counts from 0."""
    tx = scene.tm.begin()
    scene.queue.add(tx, b"k", "owner")
    token = tx.token()
    for name in ("one", "two"):
        worker = scene.tm.resume(token)
        worker.queue(QUEUE).add(b"k", name)
        tx.merge(worker.finish())
    scene.queue.add(tx, b"k", "owner again")
    tx.commit()
    found = scene.export()
    assert found[:2] == ["owner", "owner again"]
    assert sorted(found[2:]) == ["one", "two"]


def test_attempts_of_a_task_add_the_same_cells(scene: Scene) -> None:
    """Else the second one would make the transaction impossible to commit."""
    tx = scene.tm.begin()
    token = tx.token()
    for _ in range(2):
        worker = scene.tm.resume(token, task="partition 7")
        worker.queue(QUEUE).add(b"k", "once")
        tx.merge(worker.finish())
    tx.commit()
    assert scene.export() == ["once"]


def test_ordinals_end_before_they_look_like_those_of_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then an owner's would be a worker's."""
    monkeypatch.setattr(ordinals, "MAX_COUNT", 2)
    counted = ordinals.Ordinals()
    assert counted.take() < counted.take() < ordinals.of_worker("w", None).take()
    with pytest.raises(UsageError, match="at most 2 entries"):
        counted.take()


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        ("json", {"old": 1, "new": [None, "ü"]}),
        ("json", ""),
        ("bytes", b""),
        ("bytes", b"\x00" * 10_000_000),
        ("bytes", b"__OMID_TOMBSTONE__"),
        ("msgpack", {"b": b"\xff", "n": 2**63}),
        ("msgpack", None),
    ],
    ids=lambda value: f"{value!r:.20}",
)
def test_values_arrive_as_they_were(codec: str, value: object) -> None:
    """The empty one too, which in a cell of this format would be a delete, and one of 10 MB."""
    scene = Scene(codec=codec)
    scene.add(value, key=b"")
    assert scene.export() == [value]
    assert scene.sink.entries[0].key == b""


def test_keys_that_begin_alike_keep_their_own_order() -> None:
    """In Fluo's rows such keys lie between each other."""
    scene = Scene(buckets=3)
    for number in range(30):
        key = (b"a", b"a\x00\x00\x00\x00\x00\x00\x00\x01", b"ab")[number % 3]
        scene.add(number, key=key)
    scene.export()
    for key in {entry.key for entry in scene.sink.entries}:
        values = [entry.value for entry in scene.sink.entries if entry.key == key]
        assert values == sorted(values)
        assert len(values) == 10


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("k", 1), TypeError, "the key of an entry is bytes"),
        ((b"k", object()), TypeError, "not JSON serializable"),
        ((b"k", float("nan")), UsageError, "cannot be written as JSON"),
    ],
)
def test_what_cannot_be_added_changes_nothing(
    scene: Scene, arguments: tuple[Any, Any], error: type[Exception], message: str
) -> None:
    """The transaction goes on, and the next entry is the first one."""
    with scene.tm.begin() as tx:
        with pytest.raises(error, match=message):
            scene.queue.add(tx, *arguments)
        scene.queue.add(tx, b"k", "good")
    assert scene.export() == ["good"]
    assert scene.sink.entries[0].ordinal == 0


def test_headers_are_texts(scene: Scene) -> None:
    """Or the receiver would get something else than what was given."""
    headers: Any = {"n": 1}
    with scene.tm.begin() as tx, pytest.raises(TypeError, match="headers are texts"):
        scene.queue.add(tx, b"k", 1, headers=headers)


@pytest.mark.parametrize("headers", [{"\udc80": "x"}, {"n": "\udc80"}])
def test_headers_that_cannot_be_kept_are_refused_by_name(
    scene: Scene, headers: dict[str, str]
) -> None:
    """Before anything is added, so that the transaction can go on."""
    with scene.tm.begin() as tx:
        with pytest.raises(UsageError, match=r"header.* cannot be written as UTF-8"):
            scene.queue.add(tx, b"k", 1, headers=headers)
        scene.queue.add(tx, b"k", 2)
    assert scene.export() == [2]


def test_an_entry_too_large_for_a_cell_is_refused() -> None:
    """With what to do instead."""
    scene = Scene(codec="bytes")
    with scene.tm.begin() as tx, pytest.raises(UsageError, match="put the value into a table"):
        scene.queue.add(tx, b"k", b"x" * (10 * 1024 * 1024))


# -- limits ----------------------------------------------------------------------------------------


def test_a_full_queue_takes_no_more_until_somebody_has_counted_less() -> None:
    """By what was last counted, read once in some seconds: no adder counts."""
    scene = Scene(max_entries=2)
    scene.add(1, 2)
    scene.queue.lag()
    scene.clock.advance(GAUGE_AGE_S)
    with pytest.raises(QueueFull, match="2 entries wait, of at most 2") as caught:
        scene.add(3)
    assert caught.value.retryable
    scene.export()
    scene.queue.lag()
    with pytest.raises(QueueFull):
        scene.add(4)
    scene.clock.advance(GAUGE_AGE_S)
    scene.add(5)
    assert scene.export() == [1, 2, 5]


def test_a_limit_holds_where_nobody_exports() -> None:
    """Before the first exporter, and when the last one is gone: whoever adds counts."""
    scene = Scene(max_entries=2)
    scene.add(1, 2)
    scene.clock.advance(STALE_S + GAUGE_AGE_S)
    with pytest.raises(QueueFull, match="2 entries wait, of at most 2"):
        scene.add(3)
    scene.export()
    scene.clock.advance(STALE_S + GAUGE_AGE_S)
    scene.add(4)
    assert scene.export() == [1, 2, 4]


def test_a_limit_holds_while_timestamps_stand_still() -> None:
    """As where the oracle's date was set back by a year: by them no count would grow old."""
    scene = Scene(max_entries=2)
    scene.client.naive._last = FIRST_WORLD_TIMESTAMP
    scene.add(1)
    scene.add(2, 3)  # within the age of the count
    scene.clock.advance(STALE_S + GAUGE_AGE_S)
    with pytest.raises(QueueFull, match="entries wait, of at most 2"):
        scene.add(4)
    scene.export()
    scene.clock.advance(STALE_S + GAUGE_AGE_S)
    scene.add(4)


def test_who_adds_counts_only_where_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while an exporter does, and of many who add the first alone."""
    counted: list[int] = []

    def counts(*args: Any) -> Gauge:
        counted.append(1)
        return measure_roughly(*args)

    monkeypatch.setattr(queue_module, "measure_roughly", counts)
    scene = Scene(max_entries=100)
    scene.client.naive._last = FIRST_WORLD_TIMESTAMP  # time, from here on
    for _ in range(3):
        scene.queue = ExportQueue.open(scene.tm, QUEUE)
        scene.add(1)
    assert len(counted) == 1, "the others read what it wrote"
    for _ in range(5):
        scene.client.naive._last += int(STALE_S * 0.8e9)
        scene.queue.lag()
        scene.clock.advance(GAUGE_AGE_S)
        scene.add(2)
    assert len(counted) == 1, "somebody else counts"
    scene.client.naive._last += int(STALE_S * 1.1e9)
    scene.clock.advance(GAUGE_AGE_S)
    scene.add(3)
    assert len(counted) == 2


def test_a_limit_counts_old_and_new_buckets() -> None:
    """While a queue gets others, entries wait in both."""
    scene = Scene(buckets=2, max_entries=3)
    scene.add(1, 2)
    rebucketing = Rebucketing(scene, 3)
    for _ in range(3):
        rebucketing.take()
    scene.clock.advance(STALE_S + GAUGE_AGE_S)
    scene.add(3)
    scene.clock.advance(STALE_S + GAUGE_AGE_S)
    with pytest.raises(QueueFull, match="3 entries wait, of at most 3"):
        scene.add(4)


def test_a_queue_that_is_too_far_behind_takes_no_more() -> None:
    """Judged by the age of the oldest entry; a later transaction is further from it."""
    scene = Scene(max_lag_s=1e-7)
    scene.add("old")
    scene.queue.lag()
    scene.clock.advance(GAUGE_AGE_S)
    for _ in range(10):
        scene.tm.begin()
    with pytest.raises(QueueFull, match="its oldest entry has waited"):
        scene.add("new")


@pytest.mark.parametrize("most", [1, 3, 100])
def test_an_exporter_counts_no_further_than_it_must(most: int) -> None:
    """What it notes is enough to refuse, and its oldest entry is the oldest of all."""
    scene = Scene(buckets=2, max_entries=most)
    late = scene.tm.begin()
    scene.queue.add(late, b"a", "late")
    scene.add("first", key=b"a")
    scene.add(*range(5), key=b"b")
    late.commit()
    oldest_ts = scene.queue.lag().oldest_commit_ts
    care = scene.runner()._look_after
    assert care is not None
    care.look(scene.queue._definition)
    raw = scene.tm.session.control.read(Places.of(scene.tm.session.catalog, QUEUE).gauge(1))
    gauge = msgspec.json.decode(raw or b"", type=Gauge)
    assert gauge.oldest_ts == oldest_ts
    assert gauge.entries == 7 if most == 100 else most <= gauge.entries <= 7


# -- life of a queue -------------------------------------------------------------------------------


def test_making_a_queue_again_opens_it(scene: Scene) -> None:
    """Every process may begin with it."""
    scene.add("stays")
    again = ExportQueue.create(scene.tm, QUEUE, buckets=1)
    assert again.lag().entries == 1
    assert ExportQueue.names(scene.tm) == [QUEUE]


def test_who_has_an_old_queue_open_drops_no_later_one(scene: Scene) -> None:
    """Another operator has dropped it, and made one of the same id."""
    scene.queue.drop()
    later = ExportQueue.create(scene.tm, QUEUE, buckets=1)
    with scene.tm.begin() as tx:
        later.add(tx, b"k", "later")
    with pytest.raises(NoSuchQueue, match="another one of this id was made"):
        scene.queue.drop()
    assert later.lag().entries == 1


def test_a_queue_of_other_settings_is_refused(scene: Scene) -> None:
    """Two counts of buckets would send a key two ways."""
    with pytest.raises(ExportError, match="buckets=1, not 2"):
        ExportQueue.create(scene.tm, QUEUE, buckets=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"buckets": 0}, "buckets must be at least 1"),
        ({"buckets": 65_537}, "must be 1 to 65536"),
        ({"buckets": None}, "must be 1 to 65536"),
        ({"codec": "pickle"}, "could run code"),
        ({"codec": "xml"}, "is none of bytes, json, msgpack"),
        ({"keep_s": 0}, "must be positive"),
        ({"max_entries": 0}, "at least 1"),
        ({"max_lag_s": -1}, "must be positive"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    scene: Scene, settings: dict[str, Any], message: str
) -> None:
    """Nothing is made of them."""
    with pytest.raises(UsageError, match=message):
        ExportQueue.create(scene.tm, "other", **settings)
    assert ExportQueue.names(scene.tm) == [QUEUE]


@pytest.mark.parametrize("queue_id", ["", "a:b", "a/b", "a.b", "-a", "ä", "a" * 65, "a b"])
def test_ids_that_cannot_be_part_of_a_name_are_refused(scene: Scene, queue_id: str) -> None:
    """A colon would be a namespace, and a dot is how later tables of an id are told apart."""
    with pytest.raises(UsageError, match="the id of a queue"):
        ExportQueue.create(scene.tm, queue_id)


def test_an_unknown_queue_says_how_to_make_it(scene: Scene) -> None:
    """By all ways that name one."""
    for call in (
        lambda: ExportQueue.open(scene.tm, "nope"),
        lambda: scene.tm.begin().queue("nope"),
    ):
        with pytest.raises(NoSuchQueue, match="omidpy export create nope"):
            call()


def test_a_dropped_queue_takes_nothing_and_gives_nothing(scene: Scene) -> None:
    """Also to those who have it open, and to a transaction that had added to it."""
    scene.add("lost")
    running = scene.tm.begin()
    scene.queue.add(running, b"k", "running")
    running.table(USERS_TABLE).put(b"r", {b"cf:q": b"v"})
    running.flush()
    scene.queue.drop()
    with pytest.raises(Fenced):
        running.commit()
    assert scene.client.read() == {}
    scene.clock.advance(LAYOUT_AGE_S)
    calls: list[Callable[[], object]] = [
        lambda: scene.add("more"),
        scene.export,
        lambda: scene.tm.begin().queue(QUEUE),
        scene.queue.lag,
        scene.queue.drop,
    ]
    for call in calls:
        with pytest.raises(OmidError) as caught:
            call()
        assert isinstance(caught.value, NoSuchQueue), call
    assert ExportQueue.names(scene.tm) == []


def test_a_queue_is_made_behind_the_tables_of_the_one_that_was_dropped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever dropped it was stopped half-way; its adders do not commit what nobody delivers."""
    running = scene.tm.begin()
    scene.queue.add(running, b"k", "running")
    running.flush()
    old = scene.queue
    drop_table = making._drop_table

    def stopped(*where: Any) -> bool:
        monkeypatch.undo()
        scene.queue = ExportQueue.create(scene.tm, QUEUE, buckets=1)
        with pytest.raises(Fenced):
            running.commit()
        with pytest.raises(NoSuchQueue), scene.tm.begin() as tx:
            old.add(tx, b"k", "later")
        scene.add("new")
        return drop_table(*where)

    monkeypatch.setattr(making, "_drop_table", stopped)
    old.drop()
    assert scene.export() == ["new"]
    assert scene.tm.tables() == [f"{TABLE}.2", USERS_TABLE]


@pytest.mark.parametrize("then", ["is open", "has other buckets", "is dropped"])
def test_a_table_that_was_made_for_no_queue_goes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """Others have made the queue meanwhile, dropped it, and made another one."""
    scene.queue.drop()
    make_table = making.make_table

    def stopped(*args: Any) -> None:
        monkeypatch.undo()
        scene.queue = ExportQueue.create(scene.tm, QUEUE, buckets=1)
        if then == "has other buckets":
            Rebucketing(scene, 3).finish(scene.export)
        else:
            scene.queue.drop()
        if then == "is open":
            ExportQueue.create(scene.tm, QUEUE, buckets=1)
        make_table(*args)

    monkeypatch.setattr(making, "make_table", stopped)
    with contextlib.suppress(ExportError):  # it has other buckets than were asked for
        ExportQueue.create(scene.tm, QUEUE, buckets=1)
    assert scene.tm.tables() == [f"{TABLE}.3", USERS_TABLE]


def test_a_queue_made_anew_has_nothing_of_the_last_one(scene: Scene) -> None:
    """Neither entries nor cursors, nor what those write who have the old one open."""
    scene.add("old")
    scene.export()
    scene.queue.drop()
    anew = ExportQueue.create(scene.tm, QUEUE, buckets=2)
    with pytest.raises((NoSuchQueue, TransactionAborted)):
        scene.add("of the old one")
    with scene.tm.begin() as tx:
        anew.add(tx, b"k", "new")
    scene.queue = anew
    assert scene.export() == ["old", "new"]


def test_a_creation_that_was_killed_is_finished_by_the_next(scene: Scene) -> None:
    """Behind the table, and before the definition."""
    planned = scene.tm.session.catalog.plan("OMIDPY_EXPORT_other", ["e"], (), is_own=True)
    scene.tm.session.make_table(planned)
    assert ExportQueue.create(scene.tm, "other").lag().entries == 0


def test_a_removal_that_was_killed_is_finished_by_the_next(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the definition, and before the table."""

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(scene.tm.store, "drop_table", die)
        with pytest.raises(KeyboardInterrupt):
            scene.queue.drop()
    with pytest.raises(NoSuchQueue):
        ExportQueue.open(scene.tm, QUEUE)
    scene.queue.drop()
    assert TABLE not in scene.tm.tables()


def test_the_table_of_a_queue_counts_as_one_of_the_users() -> None:
    """A compaction that took it for a system table would forget commits of entries."""
    assert not is_system_table("OMIDPY_EXPORT_q")
    assert is_system_table("OMIDPY_EXPORTS")
    assert is_system_table("OMIDPY_FATE")
    assert TABLE in Scene().tm.tables()


def test_a_queue_adds_to_no_transaction_of_another_store(scene: Scene) -> None:
    """It went into a bucket of this queue's, which no worker of that one's exports."""
    other = Scene()
    wide = ExportQueue.create(scene.tm, "wide", buckets=8)
    ExportQueue.create(other.tm, "wide", buckets=1)
    with other.tm.begin() as tx:
        adds: list[Callable[[], object]] = [
            lambda: wide.add(tx, b"k", 1),
            lambda: wide.add_all(tx, [(b"k", 1)]),
            lambda: wide.record(tx, tables=[USERS_TABLE]),
            lambda: wide.add(other.tm.resume(tx.token()), b"k", 1),
        ]
        for add in adds:
            with pytest.raises(UsageError, match="is one of other tables"):
                add()
        tx.queue("wide").add(b"k", 2)
    found = ExportQueue.open(other.tm, "wide").peek()
    assert [entry.value for entry in found] == [2]


def test_a_queue_adds_to_a_transaction_of_another_manager_of_its_store(scene: Scene) -> None:
    """A program may have several."""
    again = TransactionManager(scene.client.store, scene.client.oracle, clock=scene.clock)
    with again.begin() as tx:
        scene.queue.add(tx, b"k", "by another")
    assert scene.export() == ["by another"]
