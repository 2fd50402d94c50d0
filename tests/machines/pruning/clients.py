"""What the oracle and the clients of transactions may do next.

An oracle's decision and its write of the commit entry are two events.  A client may lose its reply,
read the commit table itself as Java's does, roll back, or die.  One that dies while it waits for an
answer is not waited for any more, and a snapshot is taken of what the dead left; apart from that,
dying is the same as never being heard of again, which every search includes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.machines.pruning.state import State, Transaction, shadowed
from tests.machines.pruning.world import Mutation, Setting, World

ASKING: Final = ("wait", "unknown", "forbid")
"""Where a client concludes an abort from finding nothing, and erases cells."""
OVER: Final = ("done", "aborted", "dead")


def oracle_steps(state: State, world: World) -> Iterator[State]:
    """Raise the low watermark, decide, make a decision durable."""
    is_early = world.setting is not Setting.REGULAR or world.does(Mutation.WATERMARK_BEFORE_DURABLE)
    # An oracle that lost its state may come to be where it was; before that it must be noticed.
    limit = max(state.claims) - 1 if state.has_lost_state else world.transaction_count
    for raised in range(state.low_watermark + 1, limit + 1):
        passed = state.transactions[state.low_watermark : raised]
        if is_early or all(one.oracle != "decided" for one in passed):
            yield state._replace(low_watermark=raised)
    for index, one in enumerate(state.transactions):
        is_passed = index < state.low_watermark
        if one.client == "request":
            is_silent = index in world.silent and world.setting is not Setting.LOW_LATENCY
            client = "dead" if is_silent else "wait"
            yield state.with_transaction(index, client=client, oracle="refused")
            is_late = is_passed and not world.does(Mutation.COMMITS_BELOW_WATERMARK)
            if not is_late and not _conflicts(state, index):
                yield state.with_transaction(index, client=client, oracle="decided")
        if one.oracle == "decided" and world.setting is not Setting.LOW_LATENCY:
            # A deposed oracle notices after the write that it may not answer.
            is_deposed = world.setting is Setting.ZOMBIE and is_passed
            oracle = "silent" if is_deposed else "durable"
            yield state.with_transaction(index, has_commit=True, oracle=oracle)


def _conflicts(state: State, index: int) -> bool:
    """Say whether the other transaction committed a write of the same cells after its begin."""
    return any(
        other.is_decided() and not (number < index and state.transactions[index].is_later)
        for number, other in enumerate(state.transactions)
        if number != index
    )


def client_steps(state: State, world: World) -> Iterator[State]:
    """Return the next steps of every client."""
    for index, one in enumerate(state.transactions):
        for changes in _steps(state, world, index, one):
            yield state.with_transaction(index, **changes)


Changes = dict[str, object]


def _steps(state: State, world: World, index: int, one: Transaction) -> Iterator[Changes]:
    client = one.client
    if client in ASKING or (world.has_snapshots and client not in OVER):
        yield {"client": "dead"}
    if client == "begin":
        yield {"client": "write x", "is_later": state.transactions[0].is_decided()}
    elif client == "write x":
        yield {"x": "tentative", "client": "write y"}
    elif client == "write y":
        yield {"y": "tentative", "client": "request"}
    elif client == "wait":
        yield from _answers(state, world, index, one)
    elif client == "write entry":
        if one.has_invalidation:
            yield {"client": "undo x", "told": "aborted"}
        elif index in world.silent:
            yield {"has_commit": True, "client": "dead"}
        else:
            yield {"has_commit": True, "client": "shadow x", "told": "committed"}
    elif client == "unknown":
        # What Java does whose reply was lost: it reads the commit table itself.
        if one.has_invalidation:
            yield {"client": "undo x", "told": "aborted"}
        elif one.has_commit:
            yield {"client": "shadow x", "told": "committed"}
        else:
            yield {"client": "forbid"}
    elif client == "forbid":
        if one.has_commit:
            yield {"client": "unknown"}
        else:
            yield {"has_invalidation": True, "client": "undo x", "told": "aborted"}
    elif client == "shadow x":
        yield {"x": shadowed(one.x), "client": "shadow y"}
    elif client == "shadow y":
        yield {"y": shadowed(one.y), "client": "remove entry"}
    elif client == "remove entry":
        yield {"has_commit": False, "client": "done"}
    elif client == "undo x":
        yield {"x": "gone", "client": "undo y"}
    elif client == "undo y":
        yield {"y": "gone", "client": "aborted"}


def _answers(state: State, world: World, index: int, one: Transaction) -> Iterator[Changes]:
    if one.oracle == "refused":
        yield {"client": "undo x", "told": "aborted"}
    if world.setting is Setting.LOW_LATENCY:
        if one.oracle == "decided":
            yield {"client": "write entry"}
        return
    if one.oracle == "durable":
        yield {"client": "shadow x", "told": "committed"}
    # The reply is lost.  Our retries are answered in the oracle's order, after its earlier
    # decisions; a new oracle does not know what an old one has under way.
    is_deposed = world.setting is Setting.ZOMBIE and index < state.low_watermark
    if one.oracle != "decided" or is_deposed:
        yield {"client": "unknown"}
