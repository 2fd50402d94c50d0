"""What must hold of export queues, each as a check that a broken variant has to fail."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from compactor.options import Options
from compactor.run.local import compact
from omidpy.errors import NoSuchQueue, QueueFull, TransactionAborted
from omidpy.facts.commit_table import COMMIT_TABLE, CommitTable
from omidpy.model import TransactionStatus
from omidpy.recipes.export_queue import Batch, ExportQueue, Poison, TransactionalExporter
from omidpy.recipes.export_queue.entries.ordering import FoundEntry, Position, Window
from omidpy.recipes.export_queue.entries.stored.state import DEFINITION_AGE_S
from tests.machines.clients import TABLE as USERS_TABLE
from tests.machines.export_queues import QUEUE, STEPS, Scene
from tests.machines.export_rebucketing import STEPS as REBUCKETING_STEPS
from tests.machines.export_rebucketing import Rebucketing
from tests.machines.fencing import Fencing, takes_over

ALL_AT_ONCE: Final = Options(grace_s=0.0, invalidation_grace_s=0.0, retention_s=0.0)


def a_late_commit_is_delivered() -> None:
    """Begun first, committed last: a cursor on start timestamps would have passed it by."""
    for keep_s in (None, 3600.0):
        scene = Scene(keep_s=keep_s)
        late = scene.tm.begin()
        scene.queue.add(late, b"k", "late")
        scene.add("early")
        assert scene.export() == ["early"]
        late.commit()
        assert scene.export() == ["early", "late"]
        first, second = scene.sink.entries
        assert first.seq < second.seq
        assert first.start_ts > second.start_ts


def an_entry_under_way_survives_what_is_removed_around_it() -> None:
    """X5: it stands between rows that were delivered, and is not committed yet."""
    scene = Scene()
    scene.add("before")
    slow = scene.tm.begin()
    scene.queue.add(slow, b"k", "slow")
    slow.flush()
    scene.add("after")
    assert scene.export() == ["before", "after"]
    slow.commit()
    assert scene.export() == ["before", "after", "slow"]


def a_commit_between_watermark_and_snapshot_is_not_lost() -> None:
    """X4: whatever happens between the two looks, no scan passes over the entry for ever."""
    scene = Scene()
    scene.add("first")
    adder = scene.tm.begin()
    scene.queue.add(adder, b"k", "between")
    pending = [adder]
    see_watermark, begin = scene.tm.low_watermark, scene.tm.begin

    def commit_and_raise() -> None:
        if pending:
            pending.pop().commit()
            scene.add("another")
            scene.client.naive.raise_low_watermark()

    def low_watermark() -> int:
        found = see_watermark()
        commit_and_raise()
        return found

    def begin_and_act(*, read_only: bool = False, **options: Any) -> Any:
        found = begin(read_only=read_only, **options)
        if read_only:
            commit_and_raise()
        return found

    scene.tm.low_watermark = low_watermark  # type: ignore[method-assign]  # others act in between
    scene.tm.begin = begin_and_act  # type: ignore[method-assign]
    scene.export()
    scene.export()
    scene.export()
    assert scene.sink.values == ["first", "between", "another"]


def who_dies_loses_nothing() -> None:
    """X6: at each step of a batch, and at most the last batch comes twice."""
    for step in STEPS:
        for keep_s in (None, 3600.0):
            scene = Scene(keep_s=keep_s)
            scene.add(1, 2)
            scene.add(3)
            scene.die_at(step)
            scene.add(4)
            found = scene.export()
            assert list(dict.fromkeys(found)) == [1, 2, 3, 4], (step, found)
            assert found in ([1, 2, 3, 4], [1, 2, 3, 1, 2, 3, 4]), (step, found)
            assert scene.export() == found, "and nothing comes again"


def two_owners_move_one_cursor() -> None:
    """X2: one who lost the bucket removes only what was delivered, and moves nothing back."""
    scene = Scene(keep_s=3600.0)
    scene.add("first")
    stolen: list[Batch] = []

    def steal(batch: Batch) -> None:
        if stolen:
            return
        stolen.append(batch)
        # The owner is paused here for longer than its lease: to others it is dead.
        others = scene.runner()
        judge: Any = others._crew._judge
        judge.dead = frozenset
        scene.add("second")
        others.run_once(wait_s=0)

    scene.sink.on_batch = steal
    scene.export()
    fences = [batch.fence for batch in scene.sink.batches]
    assert sorted(scene.sink.values) == ["first", "first", "second"]
    assert fences[-1] < max(fences), "the receiver can tell the paused one by its fence"
    done = list(scene.sink.values)
    assert scene.export() == done, "the cursor stands where the second owner left it"


def who_was_replaced_removes_nothing() -> None:
    """X9: its receiver refuses its fence, and the next owner has not delivered them yet."""
    scene = Scene()
    scene.sink = sink = Fencing()
    scene.add(*range(3))
    next_owner = scene.runner()
    takes_over(next_owner)

    def replace(_: Batch) -> None:
        sink.on_batch = lambda _: None
        next_owner._crew.join(takes_all=True)
        next_owner._crew.look()
        sink.fences[0] = next_owner._crew.leases[0].fence
        next_owner._crew.leave()

    sink.on_batch = replace
    assert scene.export() == []
    assert scene.export() == [0, 1, 2]


def who_was_replaced_sets_nothing_aside() -> None:
    """X11: it sleeps before its transaction commits, and the next owner delivers the entry."""
    scene = Scene()
    scene.add("entry")
    begin, asleep = scene.tm.begin, [True]

    def blame(batch: Batch) -> None:
        raise Poison(batch[0], "no")

    def next_owner() -> None:
        scene.sink.on_batch = lambda _: None
        runner = scene.runner()
        takes_over(runner)
        runner.run_once(wait_s=0)

    def begin_and_sleep(**settings: Any) -> Any:
        tx = begin(**settings)
        if asleep and not settings.get("read_only"):
            asleep.pop()
            tx.before_commit(next_owner)
        return tx

    scene.sink.on_batch = blame
    scene.tm.begin = begin_and_sleep  # type: ignore[method-assign]  # any transaction
    assert scene.export() == ["entry"]
    assert list(scene.queue.dead_letters()) == []


class CountsInATable(TransactionalExporter):
    """Adds one to a count in the store for each entry."""

    def export_within(self, tx: Any, batch: Batch) -> None:
        """Count."""
        table = tx.table(USERS_TABLE)
        count = int(table.row(b"count").get(b"cf:n", b"0")) + len(batch)
        table.put(b"count", {b"cf:n": b"%d" % count})


def into_the_same_store_exactly_once() -> None:
    """At whatever step the exporter dies, each entry has been counted once."""
    for step in STEPS:
        scene = Scene()
        scene.add(*range(5))
        runner_sink: Any = CountsInATable()
        scene.sink = runner_sink
        scene.die_at(step, buffer_bytes=1)
        scene.runner().run_once(wait_s=0)
        assert scene.client.read(b"count") == {b"cf:n": b"5"}, step


def an_entry_outlives_the_pruning_of_its_commit() -> None:
    """Its adder died right after its commit: no shadow cell says so, and the entry goes."""
    scene = Scene(post_commit="none")
    scene.add("orphan")
    scene.client.naive.raise_low_watermark()
    scene.clock.advance(1)
    compact(scene.tm.store, ALL_AT_ONCE, clock=scene.clock, sleep=scene.clock.advance)
    assert not [row for page in CommitTable(scene.tm.store).scan() for row in page]
    scene.tm.session.reader.resolver.cache.forget()
    assert scene.export() == ["orphan"]


def a_window_waits_for_what_overlaps() -> None:
    """X1: begun later and committed earlier, an entry leaves first though it is read last."""
    found = [
        FoundEntry(Position(commit_ts, b""), start_ts, b"%d" % start_ts, b"", 1)
        for start_ts, commit_ts in ((100, 1000), (200, 300), (400, 500))
    ]
    window = Window(iter(found))
    taken = [one.position.commit_ts for one in window.take(buffer_bytes=1)]
    assert window.low_ts() == 100
    taken += [one.position.commit_ts for one in window.take(buffer_bytes=100)]
    assert taken == [300, 500, 1000]


def new_buckets_keep_the_order_of_each_key() -> None:
    """X7: whoever still adds to the old ones, and however late it commits."""
    for slow_commits_after in range(len(REBUCKETING_STEPS)):
        scene = Scene(buckets=4)
        other = ExportQueue.open(scene.tm, QUEUE)
        slow = scene.tm.begin()
        other.add(slow, b"k", "slow")
        rebucketing = Rebucketing(scene, 7)
        scene.add("old")
        for step in range(len(REBUCKETING_STEPS)):
            while rebucketing.reason:
                scene.export()
            rebucketing.take()
            scene.clock.advance(DEFINITION_AGE_S)
            try:
                scene.add(step)
            except QueueFull:
                assert step < 2, "the new buckets are open"
            except NoSuchQueue as error:
                raise AssertionError("an adder sticks to the old buckets") from error
            if step == slow_commits_after:
                with suppress(TransactionAborted):
                    slow.commit()
        scene.export()
        seqs = [entry.seq for entry in scene.sink.entries]
        assert seqs == sorted(set(seqs)), (slow_commits_after, scene.sink.values)
        assert {"old", 2, 3, 4} <= set(scene.sink.values), scene.sink.values
        assert (slow.status == TransactionStatus.COMMITTED) == ("slow" in scene.sink.values)
        assert scene.queue.lag().entries == 0


def keys_leave_whole_and_in_order() -> None:
    """In the layout `fluo`: keys that begin with others, and commits that overtake each other."""
    scene = Scene(layout="fluo")
    keys = (b"", b"a", b"ab", b"a" + bytes(8), b"b")
    early = {key: scene.tm.begin() for key in keys}
    for key, tx in early.items():
        scene.queue.add(tx, key, [key.hex(), "late"])
    for number in range(3):
        for key in keys:
            scene.add([key.hex(), number], key=key)
    for tx in early.values():
        tx.commit()
    scene.export(buffer_bytes=1)
    expected = [
        [key.hex(), what] for key in sorted(keys, key=_by_row) for what in (0, 1, 2, "late")
    ]
    assert scene.sink.values == expected
    assert scene.raw_rows() == []


def _by_row(key: bytes) -> tuple[int, bytes]:
    return len(key), key


def no_start_is_answered_before_earlier_commits_are_durable() -> None:
    """I2: else a snapshot lacks a commit below itself, and the cursor passes it by for ever."""
    scene = Scene()
    naive, write = scene.client.naive, scene.client.naive.store.write

    def others_go_on() -> None:
        scene.add("second")
        scene.export()

    waiting = [others_go_on]

    def slow_write(batch: Any, *, durable: bool = False) -> None:
        # Whoever begins now waits for the lock; where there is none he is answered.
        if COMMIT_TABLE in batch and waiting and not naive._lock.locked():
            waiting.pop()()
        write(batch, durable=durable)

    naive.store.write = slow_write  # type: ignore[method-assign]  # a disk that takes its time
    scene.add("first")
    while waiting:
        waiting.pop()()
    scene.export()
    assert sorted(scene.sink.values) == ["first", "second"]


def an_undo_removes_its_own_buckets_alone() -> None:
    """X8: a second operation is picked up once the first one's buckets are in use."""
    scene = Scene(buckets=2)
    first, second = Rebucketing(scene, 3, "1" * 16), Rebucketing(scene, 4, "2" * 16)
    late = second.next
    assert late is not None
    for _ in range(3):
        first.take()
    scene.clock.advance(DEFINITION_AGE_S)
    scene.add(*range(10))
    late.undo(second.told, second.tools)
    with suppress(QueueFull, NoSuchQueue):
        first.finish(scene.export)
        scene.clock.advance(DEFINITION_AGE_S)
        scene.export()
    assert scene.sink.values == list(range(10))


def two_additions_are_two_entries() -> None:
    """X3: of one key, in one transaction."""
    scene = Scene()
    scene.add("first", "second")
    assert scene.export() == ["first", "second"]


CHECKS: Final = (
    two_additions_are_two_entries,
    a_window_waits_for_what_overlaps,
    a_late_commit_is_delivered,
    an_entry_under_way_survives_what_is_removed_around_it,
    a_commit_between_watermark_and_snapshot_is_not_lost,
    who_dies_loses_nothing,
    two_owners_move_one_cursor,
    who_was_replaced_removes_nothing,
    who_was_replaced_sets_nothing_aside,
    into_the_same_store_exactly_once,
    an_entry_outlives_the_pruning_of_its_commit,
    new_buckets_keep_the_order_of_each_key,
    an_undo_removes_its_own_buckets_alone,
    keys_leave_whole_and_in_order,
    no_start_is_answered_before_earlier_commits_are_durable,
)
