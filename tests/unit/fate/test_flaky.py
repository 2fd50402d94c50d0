"""Steps of users that are called twice: what stands it, and what is found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omidpy.base.timing.clock import ManualClock
from omidpy.errors import OperationFailed
from omidpy.fate import Defer, Done, Fate, Status, Step, step
from omidpy.fate.step import Answer, StepContext

pytest_plugins = ["omidpy.testing.fate.fixtures"]

NAMESPACE = "test-flaky"
Make = Callable[[Any], Fate]


@step(version=1, namespace=NAMESPACE)
class Reserve(Step):
    """Reserves a seat by name: doing so twice is doing so once."""

    seat: int

    def ready(self, tx: StepContext, env: dict[int, str]) -> float:
        """Wait until it is free, or ours."""
        return 0 if env.get(self.seat, tx.id) == tx.id else 5

    def call(self, tx: StepContext, env: dict[int, str]) -> Answer:
        """Take it."""
        env[self.seat] = tx.id
        if self.seat == 13:
            raise ValueError("nobody sits there")
        return Done(self.seat)

    def undo(self, tx: StepContext, env: dict[int, str]) -> None:
        """Give it back."""
        if env.get(self.seat) == tx.id:
            del env[self.seat]


@step(version=1, namespace=NAMESPACE)
class Add(Step):
    """Adds one: doing so twice is doing so twice."""

    def call(self, tx: StepContext, env: list[int]) -> Answer:
        """Add."""
        env.append(1)
        return Done(len(env))


@step(version=1, namespace=NAMESPACE)
class Drops(Step):
    """Fails where it finds its own work."""

    def call(self, tx: StepContext, env: list[int]) -> Answer:
        """Drop what may be gone."""
        env.remove(7)
        return None


@step(version=1, namespace=NAMESPACE)
class Wavers(Step):
    """Goes elsewhere when it is called again."""

    def call(self, tx: StepContext, env: list[int]) -> Answer:
        """Turn."""
        env.append(1)
        return Add() if len(env) % 2 else Done()


@step(version=1, namespace=NAMESPACE)
class Locked(Step):
    """Waits for what it has taken itself."""

    def ready(self, tx: StepContext, env: list[int]) -> Defer | None:
        """Wait while it is taken."""
        return Defer(5, "taken") if env else None

    def call(self, tx: StepContext, env: list[int]) -> Answer:
        """Take it."""
        env.append(1)
        return None


def test_a_step_that_stands_it_ends_as_it_would(flaky_fate: Make, plain_fate: Make) -> None:
    """The world is the same as if each step had been called once."""
    worlds = []
    for make in (plain_fate, flaky_fate):
        world: dict[int, str] = {}
        fate = make(world)
        handle = fate.submit("SEAT", Reserve(7))
        fate.run_pending()
        assert handle.result() == 7
        assert world == {7: handle.id}
        worlds.append(list(world))
    assert worlds[0] == worlds[1]


def test_what_is_undone_is_undone_twice(flaky_fate: Make) -> None:
    """And a step that stands that leaves nothing."""
    world: dict[int, str] = {}
    fate = flaky_fate(world)
    handle = fate.submit("SEAT", Reserve(13))
    fate.run_pending()
    error = handle.exception()
    assert error is not None
    assert error.undo_errors == ()
    assert world == {}


@step(version=1, namespace=NAMESPACE)
class Fails(Step):
    """Fails, and cannot be undone twice."""

    def call(self, tx: StepContext, env: list[int]) -> Answer:
        """Fail."""
        raise ValueError("no")

    def undo(self, tx: StepContext, env: list[int]) -> None:
        """Drop what may be gone."""
        env.remove(7)


def test_a_step_that_cannot_be_undone_twice_is_found_out(flaky_fate: Make) -> None:
    """It is listed, as anything that could not be undone."""
    fate = flaky_fate([7])
    handle = fate.submit("TEST", Fails())
    while (due_s := fate.run_pending()) is not None:
        assert isinstance(fate.clock, ManualClock)
        fate.clock.advance(due_s)
    error = handle.exception()
    assert error is not None
    assert "ValueError" in error.undo_errors[0]


def test_a_step_that_does_its_work_twice_is_seen(flaky_fate: Make) -> None:
    """The world tells."""
    world: list[int] = []
    fate = flaky_fate(world)
    fate.submit("ADD", Add())
    fate.run_pending()
    assert len(world) == 2


@pytest.mark.parametrize(
    ("first", "world", "complaint"),
    [
        (Drops(), [7], "ValueError"),
        (Wavers(), [], "NotRepeatable: .* when it was called again"),
        (Locked(), [], "NotRepeatable: .* after it was called: a successor would never"),
    ],
)
def test_a_step_that_does_not_stand_it_fails(
    flaky_fate: Make, first: Step, world: list[int], complaint: str
) -> None:
    """With what was different."""
    fate = flaky_fate(world)
    handle = fate.submit("TEST", first)
    fate.run_pending()
    with pytest.raises(OperationFailed, match=complaint):
        handle.result()


@step(version=1, namespace=NAMESPACE)
class Pack(Step):
    """What another operation begins."""

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Count those that were begun."""
        env.setdefault("packed", set()).add(tx.id)
        return Done()


@step(version=1, namespace=NAMESPACE)
class Ship(Step):
    """Lets an operation be run that was made before."""

    parcel: str

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Seed it; what has begun already is left alone."""
        env["fate"].get(self.parcel).seed()
        return Arrived(self.parcel)


@step(version=1, namespace=NAMESPACE)
class Arrived(Step):
    """Waits for its end without a thread."""

    parcel: str

    def ready(self, tx: StepContext, env: Any) -> float | None:
        """Look for the end."""
        return None if env["fate"].get(self.parcel).status is Status.SUCCESSFUL else 0.1

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Be the end."""
        return Done(self.parcel)


@step(version=1, namespace=NAMESPACE)
class Order(Step):
    """Makes an operation that its next step begins."""

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Make it; what is made in vain is swept."""
        return Ship(env["fate"].create("SHIP", Pack()).id)


def test_an_operation_begins_another_one_once(flaky_fate: Make) -> None:
    """Though each of its steps is called twice, and no pool has a thread to wait in."""
    env: dict[str, Any] = {}
    env["fate"] = fate = flaky_fate(env)
    handle = fate.submit("ORDER", Order())
    for _ in range(5):
        if (due_s := fate.run_pending()) is not None:
            assert isinstance(fate.clock, ManualClock)
            fate.clock.advance(due_s)
    assert env["packed"] == {handle.result()}
