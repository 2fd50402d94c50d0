"""Operations in a table: what the contract of stores does not see of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from omidpy.base.tables import is_system_table
from omidpy.base.timing.clock import ManualClock, SystemClock
from omidpy.errors import ConfigError, CorruptCell, FateError, StorageUnavailable
from omidpy.fate import Defer, Done, Fate, Keep, Locks, Step, step
from omidpy.fate import store as store_module
from omidpy.fate.operation import FateId, Operation, Status, Unreadable, new_id
from omidpy.fate.running.sweep import SWEEP_EVERY_S, Sweeper
from omidpy.fate.step import Answer, StepContext
from omidpy.fate.table.rows import GUARD, insertion, row_of
from omidpy.fate.table.store import FATE_TABLE, FORMAT_ROW, KEY_OWNER, TableFateStore
from omidpy.model import Column
from omidpy.storage.base import (
    CellGroup,
    Condition,
    Entries,
    GuardedMutation,
    Put,
    Row,
    RowMutation,
    Store,
    singly,
)
from omidpy.storage.memory import MemoryStore
from omidpy.testing.chapters.basics import in_threads
from omidpy.testing.fate.basics import an_operation, leaf
from omidpy.testing.fate.submissions import keyed
from omidpy.testing.faults import FaultyStore, Point, on
from tests.machines.interleaving import interleaved, once
from tests.machines.like_thrift1 import LikeThrift1
from tests.machines.like_thrift2 import LikeThrift2


def put_cell(store: MemoryStore, row: bytes, column: Column, value: bytes) -> None:
    """Write a cell as somebody does who knows no rules."""
    store.write({FATE_TABLE: [RowMutation(row, [Put(*column, 1, value)])]})


def test_the_table_is_made_when_the_first_operation_is_kept() -> None:
    """Whoever only looks leaves no trace; and the compactor leaves the table alone."""
    store = MemoryStore()
    fates = TableFateStore(store)
    assert list(fates.scan()) == []
    assert store.tables() == []
    fates.create(an_operation())
    assert [schema.name for schema in store.tables()] == [FATE_TABLE]
    assert is_system_table(FATE_TABLE)


def test_what_is_remembered_of_locks_goes_with_them() -> None:
    """An executor that runs for months locks a new name each time a table is made for a day."""
    fates = TableFateStore(MemoryStore())
    locks = Locks(fates)
    for number in range(3):
        made = fates.submit(an_operation())
        locks.write(f"t{number}", made.id)
        locks.release(made.id)
    assert fates._queues == {}


def test_a_store_that_cannot_check_a_change_is_refused() -> None:
    """Where no write can be guarded two executors would run one operation."""
    with pytest.raises(ConfigError, match=r"hbase\+thrift2"):
        TableFateStore(LikeThrift1(MemoryStore()))


def test_a_table_of_a_newer_format_is_refused() -> None:
    """An older program must not change what it does not understand."""
    store = MemoryStore()
    TableFateStore(store).create(an_operation())
    put_cell(store, FORMAT_ROW, GUARD, b"3")
    with pytest.raises(ConfigError, match=r"format 3, .* reads up to 2; upgrade omidpy"):
        TableFateStore(store)


@pytest.mark.parametrize("written", [b"", b"garb", b"-1", b'{"format":1}'])
def test_a_format_that_cannot_be_read_is_no_newer_one(written: bytes) -> None:
    """There is no version to upgrade to, but a verb that mends it."""
    store = MemoryStore()
    TableFateStore(store).create(an_operation())
    put_cell(store, FORMAT_ROW, GUARD, written)
    with pytest.raises(CorruptCell, match="omidpy fsck --repair"):
        TableFateStore(store)


def test_a_record_that_cannot_be_read_hides_no_other() -> None:
    """It is listed with what is wrong with it; whoever asks for it is told the cell."""
    store = MemoryStore()
    fates = TableFateStore(store)
    good, bad, torn = (fates.submit(an_operation()) for _ in range(3))
    put_cell(store, row_of(bad.id), Column(b"txadmin", b"status"), b'"ASLEEP"')
    ((cell,),) = store.get(FATE_TABLE, [row_of(torn.id)], columns=[(b"tx", b"ctime")])
    store.write({FATE_TABLE: [RowMutation(cell.row, deletes=[cell[1:4]])]})  # type: ignore[list-item]  # a tuple is enough
    found = {one.id: one for one in fates.scan()}
    assert found[good.id] == good
    for operation, complaint in ((bad, "txadmin:status"), (torn, "created_ms")):
        unreadable = found[operation.id]
        assert isinstance(unreadable, Unreadable)
        assert complaint in unreadable.reason
        assert FATE_TABLE in unreadable.reason
        with pytest.raises(CorruptCell, match=complaint):
            fates.read(operation.id)
    assert fates.runnable() == [good]


def test_columns_of_a_later_version_are_left_alone() -> None:
    """A newer program may note more, in the same format."""
    store = MemoryStore()
    fates = TableFateStore(store)
    made = fates.submit(an_operation())
    put_cell(store, row_of(made.id), Column(b"txinfo", b"colour"), b"red")
    assert fates.read(made.id) == made
    assert fates.delete(made)
    assert store.get(FATE_TABLE, [row_of(made.id)]) == [[]]


# -- submission under a key ------------------------------------------------------------------------


class Killed(BaseException):
    """Ends a client in place of a signal."""


def test_a_client_that_dies_at_any_write_leaves_its_key_usable() -> None:
    """Whoever submits again gets one operation that runs, whatever is left of the first try."""
    for count, moment in itertools.product(range(1, 9), ("before", "after")):
        store = MemoryStore()
        TableFateStore(store).create(an_operation())
        dying = FaultyStore(store, on(f"write_guarded.{moment}", Killed(), nth=count))
        is_over = True
        try:
            TableFateStore(dying).submit(keyed())
        except Killed:
            is_over = False
        again = TableFateStore(store).submit(keyed())
        assert TableFateStore(store).submit(keyed()).id == again.id
        assert [one.id for one in TableFateStore(store).runnable()] == [again.id]
        if is_over:
            return
    raise AssertionError("it must end some day")


@pytest.mark.parametrize("garbled", [b"", b"x", b"\xff" * 16, b"0" * 16, b"A" * 16])
@pytest.mark.parametrize("make_store", [MemoryStore, LikeThrift2])
def test_a_key_whose_row_is_garbled_stays_taken(
    make_store: Callable[[], Store], garbled: bytes
) -> None:
    """A second operation of the key began beside the first; the operations themselves tell."""
    store = make_store()
    fates = TableFateStore(store)
    other = fates.submit(replace(an_operation(key='["b"]'), id=FateId("0" * 16)))
    first = fates.submit(an_operation(key='["a"]'))
    (owner,) = [one for one in fates._key_owners() if one.value == first.id.encode()]
    put = Put(*KEY_OWNER, owner.version, garbled)
    store.write({FATE_TABLE: [RowMutation(owner.row, (put,))]})
    fates.sweep(fates.new_judge(ManualClock()))
    for _ in range(2):
        assert fates.submit(an_operation(key='["a"]')).id == first.id
    fates.delete(fates.existing(first.id))
    again = fates.submit(an_operation(key='["a"]'))
    assert again.id not in (first.id, other.id)
    assert fates.submit(an_operation(key='["a"]')).id == again.id


def test_a_key_that_is_no_json_is_an_obstacle_of_its_operation() -> None:
    """Every change of a table, and a list as JSON, ended with it."""
    fates = TableFateStore(MemoryStore())
    assert fates.insert(an_operation(key="[["))
    (found,) = fates.scan()
    assert isinstance(found, Unreadable)


def test_a_result_that_is_nested_too_deep_is_an_obstacle_of_its_operation() -> None:
    """It ended every list, and every executor's look for work."""
    store = MemoryStore()
    fates = TableFateStore(store)
    operation = fates.submit(an_operation())
    put = Put(b"txinfo", b"retval", 1, b"[" * 100_000)
    store.write({FATE_TABLE: [RowMutation(row_of(operation.id), (put,))]})
    (found,) = fates.scan()
    assert isinstance(found, Unreadable)


def test_a_key_that_was_entered_during_a_sweep_stays() -> None:
    """Keys are read before operations: the other way round the new one would seem to be gone."""
    store = MemoryStore()
    fates = TableFateStore(store)
    fates.create(an_operation())
    made: list[Operation] = []

    def submit() -> None:
        made.append(fates.submit(keyed()))

    for count in range(4):
        made.clear()
        sweeper = TableFateStore(interleaved(store, once("scan", FATE_TABLE, submit, after=count)))
        sweeper.sweep(sweeper.new_judge(ManualClock()))
        if made:
            assert fates.submit(keyed()).id == made[0].id
        for operation in fates.runnable():
            fates.delete(operation)


class HidingStore(MemoryStore):
    """Hides what is put at a version that was deleted before, as HBase does."""

    def __init__(self) -> None:
        super().__init__()
        self.markers: set[tuple[object, ...]] = set()
        self.hidden = 0

    def write_guarded(
        self,
        mutations: Sequence[GuardedMutation | Entries | CellGroup],
        *,
        guard: Condition | None = None,
        durable: bool = False,
    ) -> list[bool] | None:
        """Apply what can be seen afterwards."""
        shown = []
        for table, mutation, condition in singly(mutations):
            puts = [put for put in mutation.puts if (mutation.row, *put[:3]) not in self.markers]
            self.hidden += len(mutation.puts) - len(puts)
            shown.append(GuardedMutation(table, mutation._replace(puts=puts), condition))
        applied = super().write_guarded(shown, guard=guard, durable=durable)
        for (_, mutation, _), is_applied in zip(shown, applied or (), strict=True):
            if is_applied:
                self.markers |= {(mutation.row, *delete) for delete in mutation.deletes}
        return applied


class _Suspended(TableFateStore):
    """The answer to its first insertion is lost, and its process stands still before the next."""

    def __init__(self, cells: MemoryStore, meanwhile: Callable[[Operation], object]) -> None:
        super().__init__(cells)
        self._meanwhile = meanwhile
        self.tries = 0

    def insert(self, operation: Operation) -> bool:
        """Insert it, and hear nothing."""
        self.tries += 1
        is_done = super().insert(operation)
        if self.tries == 1:
            self._meanwhile(operation)
            raise StorageUnavailable("no answer")
        return is_done


@pytest.mark.parametrize("stood_s", [0.0, 600.0])
def test_a_submission_whose_operation_has_gone_is_not_made_again(
    stood_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was run, and its outcome swept, while the process stood still: it would run once more."""
    cells, now_s = MemoryStore(), [100.0]
    monkeypatch.setattr(store_module, "brief", lambda failures: failures < 3)
    monkeypatch.setattr(SystemClock, "monotonic_s", staticmethod(lambda: now_s[0]))

    def meanwhile(operation: Operation) -> None:
        if stood_s:
            assert TableFateStore(cells).delete(operation), "as a sweep does behind its end"
            now_s[0] += stood_s

    fates = _Suspended(cells, meanwhile)
    new = Operation(id=new_id(), name="X", created_ms=1, stack=(b"{}",))
    if not stood_s:
        assert fates.submit(new).id == new.id
        return
    with pytest.raises(StorageUnavailable, match="no answer"):
        fates.submit(new)
    assert fates.tries == 1
    assert fates.read(new.id) is None


def test_a_key_that_does_not_show_is_written_again() -> None:
    """On HBase a key that was used before and removed hides what is written at its version."""
    store = HidingStore()
    fates = TableFateStore(store)
    for _ in range(4):
        made = fates.submit(keyed())
        assert fates.submit(keyed()).id == made.id
        done = fates.write(made, replace(made, status=Status.FAILED, finished_ms=1))
        other = fates.submit(keyed())
        assert fates.submit(keyed()).id == other.id != done.id
        assert fates.delete(other)
    assert store.hidden


def test_a_key_that_never_shows_is_an_error() -> None:
    """And no endless loop; nothing of it runs."""

    class Blind(TableFateStore):
        def _key_owner(self, row: bytes) -> None:
            del row

    fates = Blind(MemoryStore())
    with pytest.raises(FateError, match="changes all the time; submit it again"):
        fates.submit(keyed())
    assert fates.runnable() == []


def test_a_queue_that_does_not_show_is_written_again() -> None:
    """On HBase what was deleted hides what is written at its version."""
    store = HidingStore()
    locks = Locks(TableFateStore(store))
    holder = an_operation()
    locks._store.insert(holder)
    for _ in range(4):
        assert locks.write("t", holder.id) is None
        locks.release(holder.id)
    assert store.hidden


# -- what is finished ------------------------------------------------------------------------------


class CountingStore(MemoryStore):
    """Counts the rows that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0

    def scan(self, table: str, *args: Any, **options: Any) -> Iterator[list[Row]]:
        """Count, and scan."""
        for page in super().scan(table, *args, **options):
            self.rows += len(page)
            yield page

    def get(self, table: str, rows: Sequence[bytes], **options: Any) -> list[Row]:
        """Count, and get."""
        self.rows += len(rows)
        return super().get(table, rows, **options)


@step(version=1, namespace="test-table-store")
class Locking(Step):
    """A step that locks a table of its own."""

    table: str

    def ready(self, tx: StepContext, env: Locks) -> Defer | None:
        """Lock it."""
        return env.write(self.table, tx.id)

    def call(self, tx: StepContext, env: Locks) -> Answer:
        """Be the end."""
        return Done()


def cost_behind(finished: int) -> tuple[int, int, int]:
    """Return how many rows a look, a whole operation and a sweep read, behind so many others."""
    store, clock = CountingStore(), ManualClock()
    fates = TableFateStore(store)
    fate = Fate(Locks(fates), fates, clock=clock)
    for number in range(finished):
        fate.submit("TEST", Locking(f"t{number}"), key=("k", number))
    fate.run_pending()
    assert len(list(fates.scan())) == finished
    sweeper = Sweeper(fates, fates.new_judge(clock), clock, Keep())
    sweeper.sweep()
    waiting = fates.create(an_operation())
    costs = []

    def run_one() -> None:
        fate.submit("TEST", Locking("last"))
        fate.run_pending()

    def sweep_again() -> None:
        clock.advance(SWEEP_EVERY_S)
        sweeper.sweep_if_due()

    sweeper.sweep_if_due()
    acts: list[Callable[[], object]] = [fates.live_in_order, run_one, sweep_again]
    for act in acts:
        store.rows = 0
        act()
        costs.append(store.rows)
    assert fates.live_in_order() == [waiting]
    look, whole, sweep = costs
    return look, whole, sweep


def test_no_cost_grows_with_what_is_finished() -> None:
    """Neither a look, nor an operation with its locks, nor the minute's sweep."""
    assert cost_behind(10) == cost_behind(300)
    assert cost_behind(300)[0] == 2, "the one that is there, and whether it has ended"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_end_that_is_killed_anywhere_is_swept(moment: str) -> None:
    """Where rows change one by one it is in both for a while, and read as one all the time."""
    for count in range(1, 9):
        store = LikeThrift2()
        fates = TableFateStore(store)
        made = fates.submit(an_operation())
        dying = FaultyStore(store, on(f"check_and_mutate.{moment}", Killed(), nth=count))
        is_over = True
        ended = replace(made, status=Status.FAILED, stack=(), finished_ms=1)
        try:
            TableFateStore(dying).write(made, ended)
        except Killed:
            is_over = False
        found = fates.read(made.id)
        assert found is not None
        assert [one.id for one in fates.scan()] == [made.id]
        if not found.is_finished:
            assert (count, moment) == (1, "before")
            continue
        assert fates.runnable() == []
        clock = ManualClock()
        Sweeper(fates, fates.new_judge(clock), clock, Keep(finished_s=1e12)).sweep()
        assert list(fates.scan_live()) == []
        assert list(fates.scan_finished()) == [found]
        assert fates.delete(found)
        assert list(fates.scan()) == []
        if is_over:
            assert count > 3, "it is written, copied, and removed"
            return
    raise AssertionError("it must end some day")


def test_an_end_of_which_both_rows_are_there_goes_whole() -> None:
    """Whoever deletes it before a sweep has come does not bring the first row back."""
    store = LikeThrift2()
    fates = TableFateStore(store)
    made = fates.submit(an_operation())
    ended = fates.write(made, replace(made, status=Status.FAILED, stack=(), finished_ms=1))
    store.write({FATE_TABLE: [insertion(ended)]})
    held = fates.write(ended, replace(ended, progress="held"))
    assert fates.read(made.id) == held
    assert fates.delete(held)
    assert fates.read(made.id) is None
    assert list(fates.scan()) == []


@pytest.mark.parametrize("make_store", [MemoryStore, LikeThrift2])
def test_an_echo_of_a_submission_keeps_no_locks(make_store: Callable[[], Store]) -> None:
    """It came when the operation had ended, and its locks were left to others."""
    store, clock = make_store(), ManualClock()
    fates = TableFateStore(store)
    made = fates.create(an_operation())
    fates.write(made, replace(made, status=Status.FAILED, stack=(), finished_ms=1))
    assert Locks(fates).write("t", made.id) is None
    store.write({FATE_TABLE: [insertion(made)]})
    assert list(fates.scan_live()) == []
    fate = Fate(Locks(fates), fates, clock=clock)
    waiting = fate.submit("TEST", Locking("t"))
    for _ in range(3):
        fate.run_pending()
        clock.advance(SWEEP_EVERY_S)
    found = fates.read(FateId(waiting.id))
    assert found is not None
    assert found.status is Status.SUCCESSFUL


def test_a_store_of_the_first_format_is_read_and_then_written_as_ours() -> None:
    """From the first change on; who only looks changes nothing."""
    store = MemoryStore()
    made = TableFateStore(store).submit(an_operation())
    put_cell(store, FORMAT_ROW, GUARD, b"1")
    fates = TableFateStore(store)
    assert list(fates.scan()) == [made]
    assert store.get(FATE_TABLE, [FORMAT_ROW])[0][0].value == b"1"
    fates.submit(an_operation())
    assert store.get(FATE_TABLE, [FORMAT_ROW])[0][0].value == b"2"


# -- group commit ----------------------------------------------------------------------------------


def test_threads_share_a_write_while_another_one_is_under_way() -> None:
    """One sync for all who came meanwhile, each on its own condition."""
    store = FaultyStore(MemoryStore())
    fates = TableFateStore(store)
    operations = [fates.create(an_operation()) for _ in range(6)]
    late = replace(operations[5], version=9)
    store.calls.clear()

    def wait_for_the_others(point: Point) -> None:
        if point == ("write_guarded.before", 1, point.tables, point.rows):
            while len(fates._changes._queue) < 5:
                pass

    store.plans.append(wait_for_the_others)
    applied: dict[str, bool] = {}

    def swap(old: Operation) -> None:
        new = replace(old, version=old.version + 1, progress="new")
        applied[old.id] = fates.swap(old, new)

    in_threads([lambda one=one: swap(one) for one in (*operations[:5], late)])  # type: ignore[misc]  # a bound default
    assert store.calls["write_guarded"] == 2
    assert [applied[one.id] for one in operations] == [True] * 5 + [False]


def test_a_shared_write_that_fails_is_made_by_each_alone() -> None:
    """The failure says nothing of whose change it was."""
    error = StorageUnavailable("nobody knows")
    store = FaultyStore(MemoryStore())
    fates = TableFateStore(store)
    operations = [fates.create(an_operation()) for _ in range(4)]
    failing = iter((False, True))

    def hold_up(point: Point) -> None:
        if point.name == "write_guarded.before":
            is_failing = next(failing, None)
            if is_failing is False:
                while len(fates._changes._queue) < 3:
                    pass
            elif is_failing:
                assert len(point.rows) == 3
                raise error

    store.plans.append(hold_up)
    applied: list[bool] = []

    def swap(old: Operation) -> None:
        applied.append(fates.swap(old, replace(old, version=2)))

    in_threads([lambda one=one: swap(one) for one in operations])  # type: ignore[misc]  # a bound default
    assert applied == [True] * 4
    assert {one.version for one in fates.scan() if isinstance(one, Operation)} == {2}


def test_a_writer_that_is_interrupted_leaves_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody writes for it later: it may have been told that nothing was written."""

    class Interrupted:
        def __enter__(self) -> None:
            raise Killed

        def __exit__(self, *_: object) -> None:
            raise AssertionError

    fates = TableFateStore(MemoryStore())
    made = fates.create(an_operation())
    with monkeypatch.context() as patch:
        patch.setattr(fates._changes, "_right", Interrupted())
        with pytest.raises(Killed):
            fates.write(made, replace(made, stack=(leaf(9),)))
    other = fates.create(an_operation())
    assert fates.read(made.id) == made
    assert fates.read(other.id) == other
