"""Operations broken on purpose: each variant must be caught, by the check that is named for it.

The same checks run on operations as they are and pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from omidpy.base.timing.clock import ManualClock
from omidpy.errors import ReservationLost
from omidpy.fate import Done, Fate, Locks, Step, step
from omidpy.fate import operation as operation_module
from omidpy.fate.locks import Entry
from omidpy.fate.operation import Operation, Status, started
from omidpy.fate.running import answers
from omidpy.fate.running import runner as runner_module
from omidpy.fate.running.runner import Caller, _Run
from omidpy.fate.step import Answer, StepContext
from omidpy.fate.store import FateStore
from omidpy.fate.table.rows import difference
from omidpy.fate.table.store import TableFateStore
from omidpy.life.members import TableJudge, TableMember
from omidpy.storage.memory import MemoryStore
from omidpy.testing.fate.queues import Queues
from omidpy.testing.fate.records import Records
from omidpy.testing.fate.submissions import Submissions
from tests.machines.fate_crashes.simulation import check_deaths
from tests.property.test_fate_model import Fates

Check = Callable[[Path], None]
Variant = Callable[[pytest.MonkeyPatch], None]

LEASE_S: Final = 8.0


# -- checks ----------------------------------------------------------------------------------------


@step(version=1, namespace="test-fate-mutants")
class Acts(Step):
    """A step that does what its world wants, the first time it is called."""

    def call(self, tx: StepContext, env: list[Callable[[], object]]) -> Answer:
        """Do it."""
        if env:
            env.pop()()
        return Done(tx.id)


class Scene:
    """Two executors, and an operation in the hands of the first."""

    def __init__(self) -> None:
        self.fates = TableFateStore(MemoryStore())
        self.clock = ManualClock()
        self.acts: list[Callable[[], object]] = []
        self.first, self.second = (
            Fate(self.acts, self.fates, {"general": 1}, lease_s=LEASE_S, clock=self.clock)
            for _ in range(2)
        )
        self.handle = self.first.submit("TEST", Acts())

    def read(self) -> Operation:
        """Return the operation."""
        return self.fates.existing(self.handle.id)

    def run_meanwhile(self, act: Callable[[], object]) -> None:
        """Let the first executor run it, and something happen while its step is called."""
        self.acts.append(act)
        self.first.run_pending()


def a_zombie_changes_nothing(folder: Path) -> None:
    """Let a lease pass while a step is called, and another executor finish meanwhile."""
    del folder
    scene = Scene()
    seen: list[Operation] = []

    def let_another_finish() -> None:
        for _ in range(6):
            scene.second.run_pending()
            scene.clock.advance(LEASE_S / 5)
        seen.append(scene.read())
        assert seen[0].status is Status.SUCCESSFUL

    scene.run_meanwhile(let_another_finish)
    assert [scene.read()] == seen


def what_runs_is_left_alone(folder: Path) -> None:
    """Let another executor look while a step is called; it neither calls it nor frees it."""
    del folder
    scene = Scene()
    calls: list[str] = []

    def look() -> None:
        was = scene.read()
        scene.acts.append(lambda: calls.append("second"))
        scene.second.run_pending()
        assert scene.read() == was

    scene.run_meanwhile(look)
    assert calls == []


def what_is_called_cannot_be_cancelled(folder: Path) -> None:
    """Nobody is told that nothing was done while it is being done."""
    del folder
    scene = Scene()
    told: list[bool] = []
    scene.run_meanwhile(lambda: told.append(scene.handle.cancel()))
    assert told == [False]


def an_interrupt_fails_nothing(folder: Path) -> None:
    """^C while a step is called."""
    del folder
    scene = Scene()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scene.run_meanwhile(interrupt)
    found = scene.read()
    assert (found.status, found.reservation) == (Status.IN_PROGRESS, None)


def a_doubtful_worker_begins_nothing(folder: Path) -> None:
    """Most of its lease has passed since its last sign: others may be running what it would."""
    del folder
    scene = Scene()
    scene.first.run_pending()
    again = scene.first.submit("TEST", Acts())
    worker = scene.first._executor._worker
    assert worker is not None
    scene.clock.advance(LEASE_S * 0.9)
    scene.acts.append(lambda: pytest.fail("it was called"))
    scene.first._executor._runner.run(scene.fates.existing(again.id), worker)


def what_cannot_be_undone_is_listed(folder: Path) -> None:
    """However often it was tried."""
    del folder

    class Stubborn(Caller):
        def call(self, step: Step, tx: StepContext, env: Any) -> Answer:
            raise ValueError("it fails")

        def undo(self, step: Step, tx: StepContext, env: Any) -> None:
            raise ValueError("it stays")

    fates, clock = TableFateStore(MemoryStore()), ManualClock()
    fate = Fate(None, fates, {"general": 1}, clock=clock, caller=Stubborn())
    handle = fate.submit("TEST", Acts())
    while not fates.existing(handle.id).is_finished:
        clock.advance(fate.run_pending() or 0)
    assert [one.message for one in fates.existing(handle.id).undo_errors] == ["it stays"]


def goes_forward_over_every_death(folder: Path) -> None:
    """Die before and after every write of an operation that ends well."""
    check_deaths(folder, ends_well=True)


def goes_back_over_every_death(folder: Path) -> None:
    """Die before and after every write of one that is rolled back."""
    check_deaths(folder, ends_well=False)


def contract(test: Callable[[FateStore], None]) -> Check:
    """Return a test of the contract of stores, on one in memory."""

    def check(folder: Path) -> None:
        del folder
        test(TableFateStore(MemoryStore()))

    check.__name__ = test.__name__
    return check


refused_swaps = contract(Records().test_a_swap_needs_the_version_that_was_read)
refused_removals = contract(Records().test_what_changed_meanwhile_is_not_removed)
lost_answers = contract(Records().test_a_write_whose_answer_was_lost_is_recognised)
keys = contract(Submissions().test_a_key_names_one_live_operation)
queues = contract(Queues().test_readers_share_and_a_writer_waits_for_them)


def model(folder: Path) -> None:
    """Run the machine of calls without shrinking, the same way each time."""
    del folder
    run_state_machine_as_test(
        seed(7)(Fates),
        settings=settings(
            max_examples=200,
            stateful_step_count=25,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


# -- variants --------------------------------------------------------------------------------------


def swaps_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    """Write without the guard, as Accumulo's store in a table does (F1)."""

    def swap(self: TableFateStore, old: Operation, new: Operation) -> bool:
        self._store.write({self._table: [difference(old, new)]}, durable=True)
        return True

    patch.setattr(TableFateStore, "swap", swap)


def removes_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    """Remove without the guard (F1)."""
    true = TableFateStore.remove

    def remove(self: TableFateStore, operation: Operation) -> bool:
        found = self.read(operation.id)
        return found is not None and true(self, found)

    patch.setattr(TableFateStore, "remove", remove)


def believes_every_refusal(patch: pytest.MonkeyPatch) -> None:
    """Take a refusal for one although the write before it, without an answer, was done (F1)."""
    patch.setattr(FateStore, "_settled", lambda _self, send, *_: _twice(send))


def _twice(send: Callable[[], bool]) -> bool:
    try:
        return send()
    except Exception:  # noqa: BLE001 - that is the mistake
        return send()


def in_two(patch: pytest.MonkeyPatch, is_one: Callable[[Operation], bool], **late: Any) -> None:
    """Write what is one change in two: the fields named `late` come second."""
    true = FateStore.write

    def write(self: FateStore, old: Operation, new: Operation, *rest: Any) -> Operation:
        if is_one(new) and not is_one(old):
            old = true(self, old, replace(new, **{name: getattr(old, name) for name in late}))
        return true(self, old, new, *rest)

    patch.setattr(FateStore, "write", write)


def ends_before_its_stack_is_empty(patch: pytest.MonkeyPatch) -> None:
    """Note the end, then take the steps away (F2)."""
    in_two(patch, lambda one: one.is_finished, stack=True)


def says_why_it_failed_first(patch: pytest.MonkeyPatch) -> None:
    """Note the reason, then turn round (F2)."""
    in_two(patch, lambda one: one.exception is not None, status=True)


def begins_while_it_is_called(patch: pytest.MonkeyPatch) -> None:
    """Note with its answer that a step was called (F3)."""
    true = answers.change_for

    def change_for(*args: Any, **options: Any) -> Callable[[Operation], Operation]:
        change = true(*args, **options)
        return lambda operation: change(started(operation, is_pivot=False))

    reserve = _Run._reserved
    patch.setattr(_Run, "_reserved", lambda *args, **_: reserve(*args, starts=False))
    patch.setattr(_Run, "_start", lambda *_: None)
    patch.setattr(runner_module, "change_for", change_for)


def forgets_its_pivot(patch: pytest.MonkeyPatch) -> None:
    """Undo what cannot be undone (F3)."""
    patch.setattr(runner_module, "started", lambda one, **_: started(one, is_pivot=False))


def nobody_is_dead(patch: pytest.MonkeyPatch) -> None:
    """Leave what the dead have reserved alone for ever (F4)."""
    patch.setattr(TableJudge, "dead", lambda *_: frozenset())


def everybody_is_dead(patch: pytest.MonkeyPatch) -> None:
    """Break every reservation that is found (F4)."""

    def dead(_: TableJudge, workers: Collection[str]) -> frozenset[str]:
        return frozenset(workers)

    patch.setattr(TableJudge, "dead", dead)


def trusts_itself_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Begin a step although the lease may be over (F4)."""
    patch.setattr(TableMember, "is_trusted", lambda _: True)


def every_key_is_free(patch: pytest.MonkeyPatch) -> None:
    """Submit once more what is under way (F5)."""
    patch.setattr(TableFateStore, "_live", lambda *_, **__: None)


def nobody_waits_for_a_lock(patch: pytest.MonkeyPatch) -> None:
    """Let readers and writers in together (F6)."""
    patch.setattr(Entry, "blocks", lambda *_: False)


def locks_outlive_their_operation(patch: pytest.MonkeyPatch) -> None:
    """Leave a table closed behind an operation that is over (F6)."""
    patch.setattr(Locks, "release", lambda *_: None)
    patch.setattr(Locks, "release_dangling", lambda _: None)


def an_interrupt_is_a_failure(patch: pytest.MonkeyPatch) -> None:
    """Roll back what a shutdown found under way, as Accumulo did (F7)."""

    def asked(_: _Run, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except BaseException as error:  # noqa: BLE001 - that is the mistake
            return runner_module._Raised(RuntimeError(str(error)))

    patch.setattr(_Run, "_asked", asked)


def drops_what_was_not_undone(patch: pytest.MonkeyPatch) -> None:
    """Log it, and say nothing, as Accumulo does (F8)."""
    true = operation_module.undone
    patch.setattr(
        runner_module, "undone", lambda one, *, error, now_ms: true(one, error=None, now_ms=now_ms)
    )


def undoes_once(patch: pytest.MonkeyPatch) -> None:
    """Give up at the first failure to undo (F8)."""
    patch.setattr(runner_module, "MIN_UNDO_TRIES", 1)


def undoes_the_first_step_first(patch: pytest.MonkeyPatch) -> None:
    """Take steps away from the wrong end (F8)."""
    true = operation_module.undone

    def undone(operation: Operation, **options: Any) -> Operation:
        turned = replace(operation, stack=(*operation.stack[1:], operation.stack[0]))
        return true(turned, **options)

    patch.setattr(runner_module, "undone", undone)


CAUGHT_BY: Final[list[tuple[Variant, Check]]] = [
    (swaps_whatever_is_there, a_zombie_changes_nothing),
    (swaps_whatever_is_there, refused_swaps),
    (removes_whatever_is_there, refused_removals),
    (believes_every_refusal, lost_answers),
    (ends_before_its_stack_is_empty, goes_forward_over_every_death),
    (ends_before_its_stack_is_empty, goes_back_over_every_death),
    (says_why_it_failed_first, goes_back_over_every_death),
    (begins_while_it_is_called, what_is_called_cannot_be_cancelled),
    (forgets_its_pivot, goes_forward_over_every_death),
    (nobody_is_dead, goes_forward_over_every_death),
    (everybody_is_dead, what_runs_is_left_alone),
    (everybody_is_dead, model),
    (trusts_itself_for_ever, a_doubtful_worker_begins_nothing),
    (every_key_is_free, keys),
    (every_key_is_free, model),
    (nobody_waits_for_a_lock, queues),
    (locks_outlive_their_operation, goes_forward_over_every_death),
    (an_interrupt_is_a_failure, an_interrupt_fails_nothing),
    (drops_what_was_not_undone, what_cannot_be_undone_is_listed),
    (undoes_once, goes_back_over_every_death),
    (undoes_the_first_step_first, goes_back_over_every_death),
]


def name(of: Callable[..., None]) -> str:
    """Return what a function is called, for the name of a test."""
    return of.__name__


BY_NIGHT: Final = [(everybody_is_dead, model)]
"""It takes the model seconds; what else catches this variant takes less."""


@pytest.mark.parametrize(
    ("variant", "check"),
    [
        pytest.param(*pair, marks=pytest.mark.nightly if pair in BY_NIGHT else ())
        for pair in CAUGHT_BY
    ],
    ids=name,
)
def test_a_broken_variant_is_caught(
    variant: Variant, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes a guard away is told."""
    variant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, ReservationLost)):
        check(tmp_path)


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, marks=pytest.mark.nightly if check is model else ())
        for check in dict.fromkeys(check for _, check in CAUGHT_BY)
    ],
    ids=name,
)
def test_operations_as_they_are_pass(check: Check, tmp_path: Path) -> None:
    """A check that always fails would catch every variant too.

    By day the model runs in `tests/property/test_fate_model.py`, on other examples.
    """
    check(tmp_path)
