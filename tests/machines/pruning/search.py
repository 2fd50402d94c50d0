"""Visit every state that a world can come to, or as many as it takes to break a promise."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from tests.machines.pruning.clients import client_steps, oracle_steps
from tests.machines.pruning.others import (
    collection_steps,
    loss_steps,
    operator_steps,
    reader_steps,
)
from tests.machines.pruning.passes import asking_steps, pass_steps
from tests.machines.pruning.pruner import pruner_steps
from tests.machines.pruning.state import State, Transaction
from tests.machines.pruning.world import World


class Finding(NamedTuple):
    """What a search found."""

    state_count: int
    broken: str
    """The first broken promise; empty if none was."""
    path: list[State]
    """How it came to that, by the fewest steps."""

    def told(self) -> str:
        """Return a counterexample as text."""
        return f"{self.broken} after {self.state_count} states:\n" + "\n".join(map(str, self.path))


def search(world: World) -> Finding:
    """Search breadth first."""
    first = beginning(world)
    came_from: dict[State, State | None] = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        for following in successors(state, world):
            if following not in came_from:
                came_from[following] = state
                if broken := following.broken_promise():
                    return Finding(len(came_from), broken, _path(following, came_from))
                queue.append(following)
    return Finding(len(came_from), "", [])


def beginning(world: World) -> State:
    """Return the state in which nothing has been written, or what can be collected has been."""
    first, second = Transaction(), Transaction(client="begin")
    if world.collects:
        first = Transaction("shadowed", "shadowed", oracle="durable", client="done")
        first = first._replace(told="committed")
    transactions = (first, second)[: world.transaction_count]
    return State(transactions, going=("",) * world.transaction_count)


def successors(state: State, world: World) -> Iterator[State]:
    """Return every state one step away."""
    yield from oracle_steps(state, world)
    yield from client_steps(state, world)
    yield from pass_steps(state, world, 0)
    if world.is_foreign:
        yield from asking_steps(state, world)
    else:
        yield from pass_steps(state, world, 1)
    yield from pruner_steps(state, world)
    if world.has_reader:
        yield from reader_steps(state, world)
    if world.has_snapshots:
        yield from operator_steps(state, world)
    if world.loses_state:
        yield from loss_steps(state)
    if world.collects:
        yield from collection_steps(state, world)


def _path(state: State, came_from: dict[State, State | None]) -> list[State]:
    path = [state]
    while (before := came_from[path[-1]]) is not None:
        path.append(before)
    return path[::-1]
