"""One operation from its first step to its end, in this thread, with the clock turned by hand."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from omidpy.base.timing.clock import ManualClock
from omidpy.errors import FateError, OperationFailed, StorageUnavailable, UsageError
from omidpy.fate import Defer, Done, Fate, Keep, Locks, Operation, Retry, Status, Step, step
from omidpy.fate import locks as locks_module
from omidpy.fate.operation import CANCELLED, released
from omidpy.fate.running import runner
from omidpy.fate.running.runner import MIN_UNDO_TRIES, UNKNOWN_STEP_S, Ran
from omidpy.fate.running.sweep import Sweeper
from omidpy.fate.step import Again, Answer, StepContext
from omidpy.fate.table.rows import insertion, removal, row_of
from omidpy.fate.table.store import FATE_TABLE, TableFateStore
from omidpy.fate.zookeeper.records import encode
from omidpy.storage.memory import MemoryStore
from omidpy.testing.fate.basics import an_operation
from omidpy.testing.faults import FaultyStore, on
from tests.machines.interleaving import interleaved, once

NAMESPACE = "test-runner"


class World:
    """What steps see and change: a diary, and what to do at each call."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.diary: list[str] = []
        self.on_ready: dict[str, list[Any]] = {}
        self.on_call: dict[str, list[Any]] = {}
        self.on_undo: dict[str, list[Any]] = {}

    def act(self, plans: dict[str, list[Any]], name: str) -> Any:
        """Do what is planned next for a step: return it, raise it, or call it; None at the end."""
        plan = plans.get(name)
        what = plan.pop(0) if plan else None
        if isinstance(what, BaseException):
            raise what
        return what() if callable(what) else what


class Named(Step):
    """A step that writes a diary, and does what its world has planned for it."""

    name: str

    def ready(self, tx: StepContext, env: World) -> float | Defer | None:
        """Do what is planned."""
        wait: float | Defer | None = env.act(env.on_ready, self.name)
        return wait

    def call(self, tx: StepContext, env: World) -> Answer:
        """Note it, and do what is planned."""
        env.diary.append(self.name)
        answer: Answer = env.act(env.on_call, self.name)
        return answer

    def undo(self, tx: StepContext, env: World) -> None:
        """Note it, and do what is planned."""
        env.diary.append(f"-{self.name}")
        env.act(env.on_undo, self.name)


@step(version=1, namespace=NAMESPACE)
class One(Named):
    """A step that is called once."""

    name: str


@step(version=1, namespace=NAMESPACE)
class Awaits(Named):
    """A step whose `undo` returns what it is planned to."""

    name: str

    def undo(self, tx: StepContext, env: World) -> Any:
        """Return what is planned."""
        return env.act(env.on_undo, self.name)


@step(version=1, namespace=NAMESPACE, retry=Retry(max=3, first_s=2.0, on=(OSError,)))
class Tried(Named):
    """A step that is tried three times."""

    name: str


@step(version=1, namespace=NAMESPACE, pivot=True)
class Pivot(Named):
    """A step behind which nothing is undone."""

    name: str


@step(version=1, namespace=NAMESPACE)
class Loop(Step):
    """A step that goes on with itself."""

    left: int

    def call(self, tx: StepContext, env: World) -> Answer:
        """Count down."""
        env.diary.append(str(self.left))
        return self.again(left=self.left - 1) if self.left else Done("over")


@step(version=1, namespace=NAMESPACE)
class Deep(Step):
    """A step that pushes itself."""

    left: int
    text: str = ""

    def call(self, tx: StepContext, env: World) -> Answer:
        """Push one that is deeper."""
        return Deep(self.left - 1, self.text) if self.left else None

    def undo(self, tx: StepContext, env: World) -> None:
        """Count."""
        env.diary.append("-")


class Bench:
    """A fate, its store, its clock and its world."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.store = FaultyStore(MemoryStore())
        self.fates = TableFateStore(self.store)
        self.clock = ManualClock()
        self.world = World()
        self.fate = self.another()

    def another(self, **options: Any) -> Fate:
        """Return another executor on the same store and in the same world."""
        return Fate(self.world, self.fates, {"general": 1}, clock=self.clock, **options)

    def run(self, first: Step, **options: Any) -> Operation:
        """Run an operation to its end, however long it waits."""
        handle = self.fate.submit("TEST", first, **options)
        return self.finish(handle.id)

    def finish(self, operation_id: str) -> Operation:
        """Let time pass until an operation is finished."""
        for _ in range(200):
            due_s = self.fate.run_pending()
            found = self.read(operation_id)
            if found.is_finished:
                return found
            assert due_s is not None
            self.clock.advance(due_s)
        raise AssertionError(f"{self.read(operation_id)} does not end")

    def read(self, operation_id: str) -> Operation:
        """Return an operation that is there."""
        return self.fates.existing(self.fate.get(operation_id).id)


@pytest.fixture
def bench() -> Bench:
    """Return a new one."""
    return Bench()


def plan(*names: str) -> dict[str, list[Any]]:
    """Return plans by which each step returns the next one."""
    return {name: [One(follows)] for name, follows in pairwise(names)}


# -- forward ---------------------------------------------------------------------------------------


def test_steps_run_one_after_the_other(bench: Bench) -> None:
    """And the last one gives the result."""
    bench.world.on_call = {**plan("a", "b", "c"), "c": [Done({"n": 1})]}
    ended = bench.run(One("a"))
    assert bench.world.diary == ["a", "b", "c"]
    assert (ended.status, ended.result, ended.stack) == (Status.SUCCESSFUL, {"n": 1}, ())
    assert ended.finished_ms == bench.clock.wall_ms()
    assert bench.fate.get(ended.id).result() == {"n": 1}
    assert bench.fate.get(ended.id).exception() is None


def test_a_step_is_one_write_and_so_is_the_end(bench: Bench) -> None:
    """Submitted, reserved and begun, two pushes, and the end: each sync counts."""
    bench.world.on_call = plan("a", "b", "c")
    bench.fate.run_pending()
    bench.store.calls.clear()
    bench.run(Loop(0))
    assert bench.store.calls["write_guarded"] == 3
    bench.store.calls.clear()
    bench.run(Deep(2))
    assert bench.store.calls["write_guarded"] == 5


def test_a_loop_stays_in_its_place(bench: Bench) -> None:
    """However often it goes round."""
    ended = bench.run(Loop(300))
    assert ended.result == "over"
    assert bench.world.diary == [str(left) for left in range(300, -1, -1)]


def test_a_step_that_must_wait_is_asked_again_then(bench: Bench) -> None:
    """Nothing is called, it can be cancelled meanwhile, and it says what it waits for."""
    bench.world.on_ready = {"a": [5.0, Defer(2.5, "the moon"), 0]}
    handle = bench.fate.submit("TEST", One("a"))
    assert bench.fate.run_pending() == 5.0
    waiting = bench.read(handle.id)
    assert (waiting.status, waiting.reservation) == (Status.SUBMITTED, None)
    assert waiting.waiting == "test-runner.One asks for 5 s"
    bench.clock.advance(4.9)
    assert bench.fate.run_pending() == pytest.approx(0.1)
    bench.clock.advance(0.2)
    assert bench.fate.run_pending() == 2.5
    assert bench.read(handle.id).waiting == "the moon"
    assert bench.world.diary == []
    bench.clock.advance(2.5)
    assert bench.fate.run_pending() is None
    assert bench.read(handle.id).status is Status.SUCCESSFUL
    assert bench.read(handle.id).waiting == ""


def test_it_is_in_progress_before_anything_is_called(bench: Bench) -> None:
    """Else a cancel could come between a call and the note of it."""
    seen: list[Status] = []

    def look() -> None:
        (operation,) = bench.fates.scan()
        assert isinstance(operation, Operation)
        seen.append(operation.status)

    bench.world.on_ready = {"a": [look]}
    bench.world.on_call = {"a": [look]}
    bench.run(One("a"))
    assert seen == [Status.SUBMITTED, Status.IN_PROGRESS]


# -- failure ---------------------------------------------------------------------------------------


def test_a_failure_undoes_the_steps_from_the_top_down(bench: Bench) -> None:
    """The one that failed first: it may have run in part."""
    bench.world.on_call = {**plan("a", "b", "c"), "c": [ValueError("no more")]}
    ended = bench.run(One("a"))
    assert bench.world.diary == ["a", "b", "c", "-c", "-b", "-a"]
    assert ended.status is Status.FAILED
    assert ended.exception is not None
    assert ended.exception.step == "test-runner.One"
    assert ended.undo_errors == ()
    error = bench.fate.get(ended.id).exception()
    assert isinstance(error, OperationFailed)
    assert error.operation_id == ended.id
    assert "test-runner.One.call: ValueError: no more" in str(error)
    with pytest.raises(OperationFailed, match="no more"):
        bench.fate.get(ended.id).result()


def test_a_failure_of_ready_is_the_steps_failure(bench: Bench) -> None:
    """It was not called, and is undone all the same."""
    bench.world.on_ready = {"a": [ValueError("not ready")]}
    ended = bench.run(One("a"))
    assert bench.world.diary == ["-a"]
    assert ended.exception is not None
    assert ended.exception.phase == "ready"


def test_a_step_is_tried_as_often_as_it_asks_for(bench: Bench) -> None:
    """With growing pauses, and a word on what it waits for."""
    bench.world.on_call = {"a": [OSError("busy"), OSError("busy"), Done("got it")]}
    handle = bench.fate.submit("TEST", Tried("a"))
    assert bench.fate.run_pending() == 2.0
    waiting = bench.read(handle.id)
    assert (waiting.status, waiting.failures) == (Status.IN_PROGRESS, 1)
    assert waiting.waiting.startswith("try 1 of 3 failed: test-runner.Tried.call: OSError: busy")
    assert waiting.waiting.endswith("again in 2 s")
    bench.clock.advance(2.0)
    assert bench.fate.run_pending() == 4.0
    bench.clock.advance(4.0)
    assert bench.fate.run_pending() is None
    ended = bench.read(handle.id)
    assert (ended.result, ended.exception, ended.failures) == ("got it", None, 0)


def test_tries_outlive_the_executor(bench: Bench) -> None:
    """A process that dies at each try would try for ever."""
    bench.world.on_call = {"a": [OSError("busy")] * 3}
    handle = bench.fate.submit("TEST", Tried("a"))
    wait_s = bench.fate.run_pending()
    for _ in range(2):
        bench.clock.advance(wait_s or 0.0)
        wait_s = bench.another().run_pending()
    assert bench.read(handle.id).status is Status.FAILED
    assert bench.world.diary == ["a", "a", "a", "-a"]


def test_what_is_not_worth_another_try_fails_at_once(bench: Bench) -> None:
    """A step says which exceptions are."""
    bench.world.on_call = {"a": [OSError("busy"), KeyError("gone")]}
    ended = bench.run(Tried("a"))
    assert bench.world.diary == ["a", "a", "-a"]
    assert ended.exception is not None
    assert ended.exception.type == "KeyError"


def test_what_cannot_be_undone_is_tried_again_and_then_listed(bench: Bench) -> None:
    """And the steps below it are undone nevertheless."""
    bench.world.on_call = {**plan("a", "b"), "b": [ValueError("no")]}
    bench.world.on_undo = {"b": [OSError("stuck")] * MIN_UNDO_TRIES, "a": [OSError("once")]}
    ended = bench.run(One("a"))
    assert bench.world.diary == ["a", "b", *["-b"] * MIN_UNDO_TRIES, "-a", "-a"]
    assert ended.status is Status.FAILED
    assert [(one.step, one.phase, one.message) for one in ended.undo_errors] == [
        ("test-runner.One", "undo", "stuck")
    ]
    error = bench.fate.get(ended.id).exception()
    assert error is not None
    assert "1 steps could not be undone" in str(error)
    assert "stuck" in error.undo_errors[0]


@pytest.mark.parametrize("phase", ["call", "try", "undo"])
def test_what_an_executor_meets_that_was_deposed_is_no_failure(
    bench: Bench, caplog: pytest.LogCaptureFixture, phase: str
) -> None:
    """Its successor has ended the operation well, and an operator would look for what is wrong."""
    caplog.set_level("INFO")
    first = Tried("a") if phase == "try" else One("a")
    handle = bench.fate.submit("TEST", first)

    def stand_still() -> None:
        found = bench.read(handle.id)
        bench.fates.write(found, released(found))
        caplog.clear()
        bench.another().run_pending()
        assert bench.read(handle.id).is_finished
        raise OSError("what the successor has done is in the way")

    if phase == "undo":
        bench.world.on_call = {"a": [ValueError("no")]}
        bench.world.on_undo = {"a": [*[OSError("stuck")] * (MIN_UNDO_TRIES - 1), stand_still]}
        assert bench.finish(handle.id).undo_errors == ()
    else:
        bench.world.on_call = {"a": [stand_still, Done("well")]}
        bench.fate.run_pending()
        assert bench.read(handle.id).result == "well"
    assert "in the way" not in caplog.text


# -- the pivot -------------------------------------------------------------------------------------


def test_behind_its_pivot_an_operation_only_rolls_forward(bench: Bench) -> None:
    """Its steps are tried until they succeed, whatever they raise, and nothing is undone."""
    bench.world.on_call = {
        "a": [Pivot("p")],
        "p": [ValueError("1"), ValueError("2"), One("b")],
        "b": [KeyError("3"), Done("there")],
    }
    ended = bench.run(One("a"))
    assert ended.result == "there"
    assert bench.world.diary == ["a", "p", "p", "p", "b", "b"]


def test_a_pivot_is_passed_when_it_is_about_to_be_called(bench: Bench) -> None:
    """While it waits the operation can still fail; and a first step can be one."""
    bench.world.on_call = {"a": [Pivot("p")], "p": [OSError("later")]}
    bench.world.on_ready = {"p": [7.0]}
    handle = bench.fate.submit("TEST", One("a"))
    assert bench.fate.run_pending() == 7.0
    assert not bench.read(handle.id).is_past_pivot
    bench.clock.advance(7.0)
    assert bench.fate.run_pending() == 1.0
    past = bench.read(handle.id)
    assert past.is_past_pivot
    assert past.waiting.startswith("try 1 past the pivot failed: test-runner.Pivot.call: OSError")
    bench.world.on_call = {"q": [OSError("later")]}
    first = bench.fate.submit("TEST", Pivot("q"))
    bench.fate.run_pending()
    assert bench.read(first.id).is_past_pivot


def test_what_cannot_go_on_behind_a_pivot_waits(bench: Bench) -> None:
    """A wrong answer is no reason to undo what cannot be undone."""
    bench.world.on_call = {"p": ["nonsense", Done(1)]}
    handle = bench.fate.submit("TEST", Pivot("p"))
    assert bench.fate.run_pending() == 60.0
    assert "returned 'nonsense'" in bench.read(handle.id).waiting
    assert bench.finish(handle.id).result == 1


# -- answers that are none -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda: "next", "returned 'next'; return a step, self.again"),
        (lambda: One, "returned <class"),
        (lambda: Again(Loop(1)), "returned Again"),
        (lambda: Done(object()), "cannot be kept as JSON"),
        (lambda: Done({"ratio": float("inf")}), r"would come back as \{'ratio': None\}"),
        (lambda: Done([float("nan")]), r"would come back as \[None\]"),
        (lambda: One(7), "cannot be kept as JSON"),  # type: ignore[arg-type]  # that is the test
        (lambda: Done("x" * (1 << 20)), r"the result has 1048578 bytes"),
        (lambda: Deep(0, "x" * (1 << 20)), r"step test-runner\.Deep has \d+ bytes"),
    ],
)
def test_an_answer_that_means_nothing_fails_the_step(
    bench: Bench, answer: Callable[[], Any], complaint: str
) -> None:
    """Whatever it is, the operation rolls back and the executor goes on."""
    bench.world.on_call = {"a": [answer]}
    ended = bench.run(One("a"))
    assert bench.world.diary == ["a", "-a"]
    with pytest.raises(OperationFailed, match=complaint):
        bench.fate.get(ended.id).result()


@pytest.mark.parametrize(
    "answer",
    [
        -1,
        float("inf"),
        float("nan"),
        "soon",
        1e12,
        Defer(-1, "x"),
        Defer(1, b"x"),  # type: ignore[arg-type]
    ],
)
def test_a_wait_that_never_ends_fails_the_step(bench: Bench, answer: object) -> None:
    """The message shows what was returned."""
    bench.world.on_ready = {"a": [answer]}
    ended = bench.run(One("a"))
    with pytest.raises(OperationFailed, match=r"ready\(\) of test-runner\.One returned"):
        bench.fate.get(ended.id).result()


async def undone_later() -> None:
    """Do nothing, as long as nobody awaits it."""


def test_an_undo_that_nobody_goes_on_with_has_undone_nothing(bench: Bench) -> None:
    """The operation told that all of it was undone."""
    coroutine = undone_later()
    bench.world.on_call = {"a": [ValueError("no")]}
    bench.world.on_undo = {"a": [lambda: coroutine] * MIN_UNDO_TRIES}
    ended = bench.run(Awaits("a"))
    (error,) = bench.read(ended.id).undo_errors
    assert "which nobody goes on with, so that nothing was undone" in error.message
    coroutine.close()


def test_a_stack_past_its_limit_rolls_back(bench: Bench) -> None:
    """A loop that pushes is found out; the step that could not be pushed never ran."""
    ended = bench.run(Deep(100))
    with pytest.raises(OperationFailed, match="100 is the limit"):
        bench.fate.get(ended.id).result()
    assert bench.world.diary == ["-"] * 100
    assert bench.run(Deep(99)).status is Status.SUCCESSFUL


# -- what nobody here can run ----------------------------------------------------------------------


def test_an_unknown_step_waits_and_says_so(bench: Bench) -> None:
    """Another executor may know it; it is not failed, not reserved, and said once."""
    raw = b'{"step":"nobody.Knows","version":1,"fields":{}}'
    made = bench.fates.submit(an_operation(stack=(raw,)))
    for _ in range(3):
        assert bench.fate.run_pending() == UNKNOWN_STEP_S
        bench.clock.advance(UNKNOWN_STEP_S)
    found = bench.read(made.id)
    assert (found.status, found.reservation) == (Status.SUBMITTED, None)
    assert "omidpy fate run --module nobody" in found.waiting
    assert found.version == made.version + 1


def test_an_unknown_step_on_the_way_waits_too(bench: Bench) -> None:
    """Forward and backward."""
    bench.world.on_call = {"a": [Deep(0)]}
    handle = bench.fate.submit("TEST", One("a"))
    raw = b'{"step":"test-runner.One","version":9,"fields":{}}'
    for status in (Status.IN_PROGRESS, Status.FAILED_IN_PROGRESS):
        was = bench.read(handle.id)
        bench.fates.write(was, replace(was, status=status, stack=(*was.stack, raw)))
        assert bench.fate.run_pending() == UNKNOWN_STEP_S
        bench.clock.advance(UNKNOWN_STEP_S)
        found = bench.read(handle.id)
        assert (found.status, found.reservation) == (status, None)
        assert "here are only versions 1" in found.waiting
    assert bench.world.diary == []


def test_a_step_that_does_not_parse_waits_and_hides_nothing(bench: Bench) -> None:
    """It names the operation, and others go on."""
    bad = bench.fate.submit("TEST", One("a"))
    was = bench.read(bad.id)
    bench.fates.write(was, replace(was, stack=(b"\x80\x04.",)))
    assert bench.run(One("b")).status is Status.SUCCESSFUL
    assert f"the top of operation {bad.id} holds" in bench.read(bad.id).waiting
    empty = bench.read(bench.fate.submit("TEST", One("c")).id)
    bench.fates.write(empty, replace(empty, stack=()))
    bench.fate.run_pending()
    assert "has no step" in bench.read(empty.id).waiting


# -- who may go on ---------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_what_ends_a_process_fails_no_operation(bench: Bench, error: BaseException) -> None:
    """It is given back, and goes on where it was."""
    bench.world.on_call = {**plan("a", "b"), "b": [error, Done("done")]}
    handle = bench.fate.submit("TEST", One("a"))
    with pytest.raises(type(error)):
        bench.fate.run_pending()
    found = bench.read(handle.id)
    assert (found.status, found.reservation, len(found.stack)) == (Status.IN_PROGRESS, None, 2)
    assert bench.finish(handle.id).result == "done"
    assert bench.world.diary == ["a", "b", "b"]


def test_an_interrupt_that_a_step_wraps_fails_no_operation(bench: Bench) -> None:
    """It is raised as what it is, to whoever runs operations in this thread."""

    def wrap() -> None:
        raise OSError("the connection was closed") from KeyboardInterrupt()

    bench.world.on_call = {"a": [wrap]}
    handle = bench.fate.submit("TEST", One("a"))
    with pytest.raises(KeyboardInterrupt):
        bench.fate.run_pending()
    found = bench.read(handle.id)
    assert (found.status, found.reservation) == (Status.IN_PROGRESS, None)
    assert bench.finish(handle.id).status is Status.SUCCESSFUL


def test_after_an_interrupt_anywhere_an_executor_goes_on(bench: Bench) -> None:
    """What was handed out and not begun is handed out again."""
    handle = bench.fate.submit("TEST", One("a"))

    def interrupt(*_: object) -> Ran:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.fate._executor, "_run_one", interrupt)
        with pytest.raises(KeyboardInterrupt):
            bench.fate.run_pending()
    assert bench.finish(handle.id).status is Status.SUCCESSFUL


@pytest.mark.parametrize("phase", ["ready", "call", "undo"])
def test_what_a_step_raises_while_its_executor_stops_fails_no_operation(
    bench: Bench, phase: str
) -> None:
    """^C ends what the step had started, so it raises; the next executor calls it again."""
    other = bench.another()

    def stop() -> None:
        other._executor.stop()
        raise OSError("the other end has gone")

    if phase == "undo":
        bench.world.on_call = {"a": [ValueError("no")]}
    getattr(bench.world, f"on_{phase}")["a"] = [stop]
    handle = other.submit("TEST", One("a"))
    other.run_pending()
    found = bench.read(handle.id)
    assert found.reservation is None
    assert found.failures == 0
    assert found.undo_errors == ()
    assert "told to stop: OSError('the other end has gone')" in found.waiting
    expected = Status.FAILED if phase == "undo" else Status.SUCCESSFUL
    assert bench.finish(handle.id).status is expected


def test_a_cancel_between_ready_and_call_wins(bench: Bench) -> None:
    """The executor finds out by its next write, and calls nothing."""
    handle = bench.fate.submit("TEST", One("a"))

    def cancel() -> None:
        assert handle.cancel()

    bench.world.on_ready = {"a": [cancel]}
    bench.fate.run_pending()
    ended = bench.read(handle.id)
    assert ended.status is Status.FAILED
    assert bench.world.diary == ["-a"]
    assert ended.exception is not None
    assert ended.exception.message == CANCELLED


def test_a_call_that_has_begun_cannot_be_cancelled(bench: Bench) -> None:
    """Nor what is finished."""
    handle = bench.fate.submit("TEST", One("a"))
    told: list[bool] = []
    bench.world.on_call = {"a": [lambda: told.append(handle.cancel())]}
    bench.finish(handle.id)
    assert told == [False]
    assert not handle.cancel()
    assert handle.status is Status.SUCCESSFUL


def test_one_whose_reservation_was_broken_writes_nothing(bench: Bench) -> None:
    """What it did meanwhile is not recorded, and its successor begins at the same step."""
    handle = bench.fate.submit("TEST", One("a"))

    def break_it() -> None:
        was = bench.read(handle.id)
        bench.fates.write(was, replace(was, reservation=None))

    bench.world.on_call = {"a": [break_it, Done("second")]}
    bench.fate.run_pending()
    assert bench.read(handle.id).result == "second"
    assert bench.world.diary == ["a", "a"]


def test_an_executor_that_is_not_trusted_calls_nothing_more(bench: Bench) -> None:
    """Its lease may be over: what it began is given back after the step, and not gone on with."""

    def take_long() -> Step:
        bench.clock.advance(9.0)
        return One("b")

    bench.world.on_call = {"a": [take_long]}
    handle = bench.fate.submit("TEST", One("a"))
    bench.fate.run_pending()
    assert bench.world.diary == ["a", "b"]
    writes = ["submit", "reserve", "begin", "push", "give back", "reserve", "end"]
    assert bench.read(handle.id).version == len(writes)


def test_a_step_can_say_how_far_it_is(bench: Bench) -> None:
    """Once a second at most; the last word goes with its end."""
    seen: list[str] = []

    @step(version=1, namespace=NAMESPACE)
    class Tells(Step):
        def call(self, tx: StepContext, env: World) -> Answer:
            for number in range(7):
                tx.progress(f"{number} of 7")
                seen.append(bench.read(tx.id).progress)
                bench.clock.advance(0.4)
            return None

    ended = bench.run(Tells())
    assert seen[0] == "0 of 7"
    assert set(seen) == {"0 of 7", "3 of 7", "6 of 7"}
    assert ended.progress == "6 of 7"


def test_a_word_whose_answer_was_lost_costs_no_reservation(bench: Bench) -> None:
    """Whoever wrote it goes on from it."""

    @step(version=1, namespace=NAMESPACE)
    class Says(Step):
        def call(self, tx: StepContext, env: World) -> Answer:
            bench.store.plans.append(
                on("write_guarded.after", StorageUnavailable("the answer was lost"))
            )
            bench.store.plans.append(on("get.before", StorageUnavailable("nobody answers")))
            tx.progress("said")
            bench.store.plans.clear()
            env.diary.append("called")
            return None

    bench.fate._executor._runner.patience = lambda _: False
    ended = bench.run(Says())
    assert ended.status is Status.SUCCESSFUL
    assert bench.world.diary == ["called"]


def test_a_step_knows_which_try_it_is(bench: Bench) -> None:
    """As far as failures were recorded, and who it is."""
    seen: list[tuple[str, int, bool]] = []

    @step(version=1, namespace=NAMESPACE, retry=Retry(max=2))
    class Counts(Step):
        def call(self, tx: StepContext, env: World) -> Answer:
            seen.append((tx.id, tx.attempt, tx.is_stopping))
            if tx.attempt == 1:
                raise OSError
            return None

    ended = bench.run(Counts())
    assert seen == [(ended.id, 1, False), (ended.id, 2, False)]


# -- locks -----------------------------------------------------------------------------------------


@step(version=1, namespace=NAMESPACE)
class Locking(Step):
    """A step that locks and releases nothing."""

    name: str

    def ready(self, tx: StepContext, env: World) -> Defer | None:
        """Lock."""
        wait: Defer | None = env.act(env.on_ready, "locks").write("t", tx.id)
        return wait

    def call(self, tx: StepContext, env: World) -> Answer:
        """Note it."""
        env.diary.append(self.name)
        return None


def test_what_another_worker_holds_is_left_alone(bench: Bench) -> None:
    """Whoever hands it out."""
    handle = bench.fate.submit("TEST", One("a"))
    other = bench.fates.new_worker(lease_s=10.0, clock=bench.clock)
    held = bench.fates.try_reserve(bench.read(handle.id), other)
    assert held is not None
    bench.fate._executor.run_pending()
    bench.fate._executor.offer(held)
    bench.fate.run_pending()
    assert bench.world.diary == []
    assert bench.read(handle.id) == held


def test_what_is_finished_or_new_is_not_run_whoever_hands_it_out(bench: Bench) -> None:
    """Nor written: seeding it once more hands it to this executor."""
    ended = bench.run(One("a"))
    bench.fate.get(ended.id).seed()
    bench.fate._executor.offer(ended)
    assert bench.fate._executor._dispatcher.busy == frozenset()
    new = bench.fate.create("TEST", One("b")).read()
    assert new is not None
    for operation in (ended, new):
        worker = bench.fate._executor._worker
        assert worker is not None
        assert bench.fate._executor._runner.run(operation, worker) == Ran(None)
        assert bench.read(operation.id) == operation
    assert bench.world.diary == ["a"]


def test_a_step_that_learns_that_it_lost_its_operation_has_not_failed(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends, nothing is undone, and nobody reads of a failure."""

    @step(version=1, namespace=NAMESPACE)
    class Loses(Step):
        def call(self, tx: StepContext, env: World) -> Answer:
            env.diary.append("called")
            if len(env.diary) == 1:
                was = bench.read(tx.id)
                bench.fates.write(was, replace(was, reservation=None))
                tx.progress("half")
            return None

        def undo(self, tx: StepContext, env: World) -> None:
            env.diary.append("undone")

    ended = bench.run(Loses())
    assert ended.status is Status.SUCCESSFUL
    assert bench.world.diary == ["called", "called"]
    assert "failed" not in caplog.text


def test_what_was_read_before_its_run_ended_is_not_run_again(bench: Bench) -> None:
    """A scan of this very executor may come late, with a reservation of its own in it."""
    handle = bench.fate.submit("TEST", One("a"))
    seen: list[Operation] = []
    bench.world.on_call = {"a": [lambda: seen.append(bench.read(handle.id))]}
    bench.fate.run_pending()
    (stale,) = seen
    assert stale.reservation is not None
    bench.fate._executor.offer(stale)
    bench.fate.run_pending()
    assert bench.world.diary == ["a"]


@pytest.mark.parametrize("is_resumed", [False, True])
def test_locks_end_with_their_operation(bench: Bench, is_resumed: bool) -> None:  # noqa: FBT001 - a case
    """Also if another process took them, of which this one knows nothing."""
    locks = Locks(bench.fates)
    bench.world.on_ready = {"locks": [lambda: locks] * 9}
    first = bench.fate.submit("TEST", One("a") if is_resumed else Locking("a"))
    second = bench.fate.submit("TEST", Locking("b"))
    if is_resumed:
        locks.write("t", first.id)
        was = bench.read(first.id)
        bench.fates.write(was, replace(was, status=Status.IN_PROGRESS))
        bench.fates.lock_users.clear()
    else:
        assert locks.write("t", first.id) is None
    assert locks.write("t", second.id) is not None
    assert bench.fate.run_pending() == 0.5 or bench.world.diary
    bench.finish(second.id)
    assert bench.world.diary == ["a", "b"]
    assert locks.states() == []


def test_locks_that_could_not_be_released_go_with_the_next_sweep(bench: Bench) -> None:
    """The end of the operation is written already, and stands."""
    locks = Locks(bench.fates)
    bench.world.on_ready = {"locks": [lambda: locks] * 9}
    handle = bench.fate.submit("TEST", Locking("a"))
    was = bench.read(handle.id)
    bench.fates.write(was, replace(was, status=Status.IN_PROGRESS))
    error = StorageUnavailable("nobody answers")
    bench.fates.__dict__["lock_queues"] = lambda: (_ for _ in ()).throw(error)
    assert bench.finish(handle.id).status is Status.SUCCESSFUL
    del bench.fates.__dict__["lock_queues"]
    assert locks.states() != []
    locks.release_dangling()
    assert locks.states() == []


# -- submission and what remains -------------------------------------------------------------------


def test_an_operation_can_be_created_and_seeded_later(bench: Bench) -> None:
    """Its id is known before anything runs."""
    handle = bench.fate.create("TEST", One("a"))
    assert bench.fate.run_pending() is None
    assert handle.status is Status.NEW
    handle.seed()
    bench.finish(handle.id)
    assert bench.world.diary == ["a"]


def test_what_was_submitted_twice_under_a_key_runs_once(bench: Bench) -> None:
    """And again once it is finished."""
    first = bench.fate.submit("TEST", One("a"), key=("a", 1))
    assert bench.fate.submit("TEST", One("a"), key=("a", 1)).id == first.id
    bench.finish(first.id)
    assert bench.world.diary == ["a"]
    second = bench.fate.submit("TEST", One("a"), key=("a", 1))
    assert second.id != first.id
    bench.finish(second.id)
    assert bench.world.diary == ["a", "a"]


def test_outcomes_stay_for_a_while_and_then_go(bench: Bench) -> None:
    """Those that clean up after themselves sooner; what was never seeded as late as the others."""
    keep = Keep(auto_clean_s=10, finished_s=100, new_s=50)
    new = bench.fate.create("TEST", One("c"))
    clean = bench.run(One("a"), auto_clean=True)
    kept = bench.run(One("b"))
    ages = {}
    for age_s in (0, 10, 11, 50, 51, 100, 101):
        bench.clock.step_wall(
            milliseconds=age_s * 1000 - (bench.clock.wall_ms() - 1_700_000_000_000)
        )
        sweeper = bench.another(keep=keep)._executor._sweeper
        sweeper.sweep()
        there = [bench.fates.read(one.id) is not None for one in (clean, new, kept)]
        ages[age_s] = there
    assert ages == {
        0: [True, True, True],
        10: [True, True, True],
        11: [False, True, True],
        50: [False, True, True],
        51: [False, False, True],
        100: [False, False, True],
        101: [False, False, False],
    }
    handle = bench.fate.create("TEST", One("d"))
    assert handle.delete()
    assert handle.status is Status.UNKNOWN
    with pytest.raises(FateError, match="is gone, and its outcome with it"):
        handle.result()
    with pytest.raises(FateError, match="is gone"):
        handle.exception()
    with pytest.raises(FateError, match="no operation"):
        handle.seed()


@pytest.mark.parametrize("looks_first", [False, True])
def test_a_date_that_leaps_ahead_takes_no_outcome_with_it(
    bench: Bench, caplog: pytest.LogCaptureFixture, *, looks_first: bool
) -> None:
    """Somebody may wait for it still, who has waited for a minute."""
    keep = Keep(auto_clean_s=100, finished_s=1000, new_s=1000)
    sweeper = bench.another(keep=keep)._executor._sweeper
    clean = bench.run(One("a"), auto_clean=True)
    kept = bench.run(One("b"))
    new = bench.fate.create("TEST", One("c"))
    bench.clock.step_wall(milliseconds=86_400_000)
    if looks_first:  # as each minute; outcomes themselves are looked at later
        sweeper.sweep_if_due()
        bench.clock.advance(1)
    sweeper.sweep()
    assert "the date was set forward by 86400 s" in caplog.text
    assert None not in [bench.fates.read(one.id) for one in (clean, kept, new)]
    bench.clock.advance(98)
    sweeper.sweep()
    assert bench.fates.read(clean.id) is not None
    late = bench.run(One("d"), auto_clean=True)
    bench.clock.advance(3)
    sweeper.sweep()
    assert bench.fates.read(clean.id) is None
    assert None not in [bench.fates.read(one.id) for one in (late, kept, new)]
    bench.clock.advance(900)
    sweeper.sweep()
    assert [bench.fates.read(one.id) for one in (late, kept, new)] == [None] * 3


def test_a_date_that_is_corrected_by_seconds_or_back_has_not_leapt(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """It is so all the time, and what is over would stay for ever."""
    sweeper = bench.another(keep=Keep(finished_s=100))._executor._sweeper
    kept = bench.run(One("b"))
    for milliseconds in (9_000, 9_000, -86_400_000, 9_000):
        bench.clock.step_wall(milliseconds=milliseconds)
        sweeper.sweep()
    bench.clock.advance(86_400 + 101)
    sweeper.sweep()
    assert bench.fates.read(kept.id) is None
    assert "set forward" not in caplog.text


def test_what_is_live_cannot_be_deleted(bench: Bench) -> None:
    """That is an administrator's business, who knows what is left behind."""
    handle = bench.fate.submit("TEST", One("a"))
    assert not handle.delete()
    bench.finish(handle.id)
    assert handle.delete()
    assert not handle.delete()


def test_a_wait_that_takes_too_long_says_what_it_waits_for(bench: Bench) -> None:
    """The operation goes on."""
    bench.world.on_ready = {"a": [Defer(60, "the moon")]}
    handle = bench.fate.submit("TEST", One("a"))
    bench.fate.run_pending()
    assert handle.wait(timeout=0) is Status.SUBMITTED
    with pytest.raises(FateError, match="is SUBMITTED after 0 s, waiting: the moon; it goes on"):
        handle.result(timeout=0)


def test_a_kind_without_a_name_is_refused(bench: Bench) -> None:
    """It chooses the pool, and is what a listing shows."""
    for name in ("", "  ", 7, "x" * 101):
        with pytest.raises(UsageError, match="names no kind of operation"):
            bench.fate.submit(name, One("a"))  # type: ignore[arg-type]  # that is the test
    assert list(bench.fate.operations()) == []


# -- reservations ----------------------------------------------------------------------------------


def test_a_reservation_without_an_answer_is_found_again() -> None:
    """The store says that it is ours, and nobody runs it: so we do."""
    bench = Bench()
    bench.fate._executor._runner.patience = lambda _: False
    handle = bench.fate.submit("TEST", One("a"))
    bench.store.plans.append(on("write_guarded.after", StorageUnavailable("lost"), nth=1))
    assert bench.fate.run_pending() == 1.0
    assert bench.read(handle.id).reservation is not None
    assert bench.world.diary == []
    bench.clock.advance(1.0)
    bench.fate.run_pending()
    assert bench.read(handle.id).status is Status.SUCCESSFUL


def test_of_two_executors_one_runs_an_operation() -> None:
    """The other one comes a moment later, and finds it reserved."""
    bench = Bench()
    handle = bench.fate.submit("TEST", One("a"))
    other = bench.another()

    def run_elsewhere() -> None:
        other.run_pending()

    slow = TableFateStore(
        interleaved(bench.store, once("write_guarded", "OMIDPY_FATE", run_elsewhere))
    )
    Fate(bench.world, slow, {"general": 1}, clock=bench.clock).run_pending()
    assert bench.world.diary == ["a"]
    assert bench.read(handle.id).status is Status.SUCCESSFUL


def test_what_a_dead_executor_had_is_gone_on_with(bench: Bench) -> None:
    """At the step that it was at, once its lease is over."""

    class Killed(BaseException):
        pass

    def die() -> None:
        bench.fates.__dict__["swap"] = lambda *_: (_ for _ in ()).throw(Killed())
        raise Killed

    bench.world.on_call = {**plan("a", "b"), "b": [die, Done("second")]}
    handle = bench.fate.submit("TEST", One("a"))
    with pytest.raises(Killed):
        bench.fate.run_pending()
    del bench.fates.__dict__["swap"]
    assert bench.read(handle.id).reservation is not None
    other = bench.another()
    for _ in range(5):
        other.run_pending()
        assert bench.world.diary == ["a", "b"]
        bench.clock.advance(2.5)
    other.run_pending()
    assert bench.world.diary == ["a", "b", "b"]
    assert bench.read(handle.id).result == "second"


# -- what nobody expects of a step -----------------------------------------------------------------


def test_an_error_that_is_raised_from_itself_fails_its_operation(bench: Bench) -> None:
    """Who looked for a ^C behind it went round for ever, and kept the operation."""

    def ring() -> None:
        error = OSError("no more")
        raise error from error

    bench.world.on_call = {"a": [ring]}
    ended = bench.run(One("a"))
    assert ended.status is Status.FAILED
    assert ended.exception is not None
    assert (ended.exception.type, ended.exception.message) == ("OSError", "no more")


def test_a_loop_that_a_step_runs_fails_it_when_its_task_is_cancelled(bench: Bench) -> None:
    """It was called again each ten seconds, for ever: no process ends by that."""

    async def cancelled() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    bench.world.on_call = {"a": [lambda: asyncio.run(cancelled())]}
    ended = bench.run(One("a"))
    assert ended.status is Status.FAILED
    assert ended.exception is not None
    assert ended.exception.type == "CancelledError"


def test_no_step_follows_on_a_record_that_was_put_back(bench: Bench) -> None:
    """It came upon the stack without the one before it, which was never undone."""
    kept: list[Operation] = []

    def keep() -> Step:
        kept.extend(one for one in bench.fates.scan() if isinstance(one, Operation))
        return One("b")

    def put_back() -> Step:
        cells = bench.store.get(FATE_TABLE, [row_of(kept[0].id)], max_versions=1)[0]
        bench.store.write({FATE_TABLE: [removal(cells)]})
        bench.store.write({FATE_TABLE: [insertion(kept[0])]})
        return One("c")

    bench.world.on_call = {
        "a": [keep, One("b")],
        "b": [put_back, One("c")],
        "c": [ValueError("no more")],
    }
    assert bench.run(One("a")).status is Status.FAILED
    assert bench.world.diary == ["a", "b", "a", "b", "c", "-c", "-b", "-a"]


def test_a_yes_is_no_time_to_wait(bench: Bench) -> None:
    """A step that returned it as it was ready was asked again each second, for ever."""
    bench.world.on_ready = {"a": [True]}
    ended = bench.run(One("a"))
    assert ended.status is Status.FAILED
    assert ended.exception is not None
    assert "returned True; return None, seconds" in ended.exception.message


def test_an_outage_fails_no_step_that_waits_for_its_lock(bench: Bench) -> None:
    """It has done nothing yet; it was undone, and its operation failed."""
    locks = Locks(bench.fates)

    def wait() -> float | Defer | None:
        (operation,) = bench.fates.live_in_order()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(locks_module, "brief", lambda _: False)
            patch.setattr(bench.fates, "read_lock_queue", refused)
            return locks.write("t", operation.id)

    def refused(_: str) -> bytes | None:
        raise StorageUnavailable("nobody answers")

    bench.world.on_ready = {"a": [wait, 0]}
    handle = bench.fate.submit("TEST", One("a"))
    assert bench.fate.run_pending() is not None
    assert "WRITE lock on t: not known yet, since nobody answers" in bench.read(handle.id).waiting
    assert bench.finish(handle.id).status is Status.SUCCESSFUL


@pytest.mark.parametrize("letter", ["\0", "\u5b57", "x", "\udc80"])
def test_all_that_cannot_be_undone_fits_into_one_znode(
    bench: Bench, letter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its end could not be written, and the session broke with each try."""
    monkeypatch.setattr(runner, "MIN_UNDO_TRIES", 1)
    names = [f"{number}" for number in range(100)]
    bench.world.on_call = {**plan(*names), names[-1]: [ValueError(letter * 5000)]}
    bench.world.on_undo = {name: [ValueError(letter * 5000)] for name in names}
    ended = bench.run(One(names[0]))
    assert (ended.status, len(ended.undo_errors)) == (Status.FAILED, 100)
    assert len(encode(ended)) < 1_000_000


def test_outcomes_are_removed_one_by_one(bench: Bench) -> None:
    """The results of all of them may be more than there is memory."""
    bench.world.on_call = {"a": [Done("x" * 100_000)] * 300}
    for _ in range(300):
        bench.fate.submit("TEST", One("a"))
    bench.fate.run_pending()
    sweeper = Sweeper(bench.fates, bench.fates.new_judge(bench.clock), bench.clock, Keep())
    sweeper.sweep()
    tracemalloc.start()
    try:
        sweeper.sweep()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 10_000_000
