"""What the chapters of the contract of operations share: operations, and answers that get lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from msgspec.structs import replace

from omidpy.base.timing.clock import ManualClock
from omidpy.errors import StorageUnavailable
from omidpy.fate.operation import Failure, Operation, Rest, Status, new_id
from omidpy.fate.step import Answer, Done, Step, StepContext, encode_step, step
from omidpy.fate.store import FateStore
from omidpy.life.base import Judge, Member

LEASE_S: Final = 10.0


@step(version=1, namespace="omidpy-testing")
class Leaf(Step):
    """A step with a field."""

    number: int = 0
    text: str = ""

    def call(self, tx: StepContext, env: Any) -> Answer:
        """End the operation, with the field as its result."""
        del tx, env
        return Done(self.number)


def leaf(number: int = 0, text: str = "") -> bytes:
    """Return what is kept of a `Leaf`."""
    return encode_step(Leaf(number, text))


def an_operation(**changes: Any) -> Operation:
    """Return a NEW operation that nobody knows yet."""
    made = Operation(id=new_id(), name="TEST", created_ms=1_000, write_id="w", stack=(leaf(),))
    return replace(made, **changes)


def a_full_operation() -> Operation:
    """Return an operation no field of which is as it begins."""
    return an_operation(
        status=Status.IN_PROGRESS,
        key='["a",1]',
        auto_clean=True,
        is_past_pivot=True,
        result={"rows": [1, None, "é"]},
        exception=Failure("no", "ValueError", "s", "call", "f.py:1"),
        undo_errors=(Failure("one"), Failure("two")),
        progress="half",
        waiting="for you",
        failures=3,
        rest=Rest(1_500, "a boot", 7_000),
        finished_ms=5_000,
        stack=(leaf(1), leaf(2), leaf(3)),
    )


@contextmanager
def losing_answers(store: FateStore, name: str, *, count: int = 1) -> Iterator[list[str]]:
    """Let the next calls of a method be done and their answers be lost; yield what was done."""
    method: Callable[..., Any] = getattr(store, name)
    done: list[str] = []

    def call(*args: Any) -> Any:
        answer = method(*args)
        if len(done) < count:
            done.append(name)
            raise StorageUnavailable("the answer was lost")
        return answer

    store.__dict__[name] = call
    try:
        yield done
    finally:
        del store.__dict__[name]


class Chapter:
    """Tests of one side of a store of operations, which a fixture `fates` supplies empty."""

    def reopen(self, fates: FateStore) -> FateStore:
        """Open the same store a second time."""
        raise NotImplementedError

    def let_die(self, worker: Member, judge: Judge, clock: ManualClock) -> None:
        """Let a worker show no life for as long as `judge` needs to take it for dead."""
        raise NotImplementedError

    @pytest.fixture
    def clock(self) -> ManualClock:
        """Return a clock that stands still."""
        return ManualClock()
