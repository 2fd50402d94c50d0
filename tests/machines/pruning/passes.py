"""What the healers of the two tables may do next, and who asks a table that has no healer.

A pass reads L, scans its table once, resolves what it found without a shadow cell one by one, heals
or drops it, and claims.  It may begin anew whenever L is above its claim.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.machines.pruning.state import COLUMNS, Pass, State, shadowed
from tests.machines.pruning.world import Mutation, World


def pass_steps(state: State, world: World, table: int) -> Iterator[State]:
    """Return the next steps of one table's healer."""
    healer = state.passes[table]
    if healer.step == "idle":
        if world.does(Mutation.WATERMARK_AFTER_SCAN):
            if state.claims[table] < world.transaction_count:
                yield state.with_pass(table, Pass("scan"))
        elif may_begin(state, world) and state.low_watermark > state.claims[table]:
            low = state.claims[table] if world.is_incremental else 0
            if world.does(Mutation.WINDOW_SURVIVES_RESTORE) and table == 0:
                low = max(low, state.void_claim)
            yield state.with_pass(table, Pass("scan", low, state.low_watermark))
    elif healer.step == "scan":
        yield _scanned(state, world, table)
    elif healer.step == "read watermark":
        if state.low_watermark > state.claims[table]:
            # The naive healer reads L only now; what L does not pass it leaves alone.
            todo = tuple(index for index in healer.todo if index < state.low_watermark)
            yield _go_on(state, table, Pass("", 0, state.low_watermark, todo))
    elif healer.step == "claim":
        yield state.with_claim(table, healer.top).with_pass(table, Pass())
    else:
        yield from _resolving_steps(state, world, table)


def may_begin(state: State, world: World) -> bool:
    """Say whether the low watermark proves anything: never, if it is below what was recorded."""
    return state.low_watermark >= max(state.claims) or world.does(Mutation.TRUSTS_REGRESSION)


def asking_steps(state: State, world: World) -> Iterator[State]:
    """Ask the second table for cells of what is about to be forgotten, until there are none."""
    about = state.claims[0]
    if world.does(Mutation.ASKED_BEFORE_WATERMARK):
        about = world.transaction_count
    if about > state.claims[1]:
        asked = state.transactions[state.claims[1] : about]
        is_empty = all(one.y in ("absent", "gone") for one in asked)
        if is_empty or world.does(Mutation.NOBODY_ASKED):
            yield state.with_claim(1, about)


def _scanned(state: State, world: World, table: int) -> State:
    healer = state.passes[table]
    column = COLUMNS[table]
    todo = tuple(
        index
        for index, one in enumerate(state.transactions)
        if getattr(one, column) == "tentative" and _is_read(world, table, healer, index + 1)
    )
    healer = healer._replace(todo=todo)
    if world.does(Mutation.WATERMARK_AFTER_SCAN):
        return state.with_pass(table, healer._replace(step="read watermark"))
    if world.does(Mutation.CLAIM_BEFORE_HEALS):
        state = state.with_claim(table, healer.top)
    return _go_on(state, table, healer)


def _is_read(world: World, table: int, healer: Pass, start_ts: int) -> bool:
    """Say whether a pass reads a transaction's cell in its table."""
    if world.does(Mutation.WATERMARK_AFTER_SCAN):
        return True
    low = healer.low
    if world.does(Mutation.WINDOW_TOO_HIGH) and low:
        low += 1
    if world.does(Mutation.RAW_VERSIONS) and table == 1 and start_ts == healer.top:
        # Its version is that of the first checkpoint, above L.
        return False
    return low < start_ts <= healer.top


def _go_on(state: State, table: int, healer: Pass) -> State:
    """Turn to the next cell, or to the claim."""
    return state.with_pass(table, healer._replace(step="entry" if healer.todo else "claim"))


def _resolving_steps(state: State, world: World, table: int) -> Iterator[State]:
    healer = state.passes[table]
    step, index = healer.step, healer.todo[0]
    one = state.transactions[index]
    column = COLUMNS[table]
    cell: str = getattr(one, column)

    def go(to: str, **changes: object) -> State:
        changed = state.with_transaction(index, **changes) if changes else state
        return changed.with_pass(table, healer._replace(step=to))

    def end(**changes: object) -> State:
        changed = state.with_transaction(index, **changes) if changes else state
        return _go_on(changed, table, healer._replace(todo=healer.todo[1:]))

    if step == "entry":
        if world.does(Mutation.SHADOW_BEFORE_ENTRY):
            yield end() if cell == "shadowed" else go("then entry")
        elif one.has_invalidation:
            is_final = world.does(Mutation.INVALIDATION_IS_FINAL)
            yield go("drop" if is_final else "second look")
        elif one.has_commit:
            yield go("heal")
        elif world.does(Mutation.RESOLVES_BY_COLUMN) and _has_committed_other(state, healer):
            yield end(**{column: "misdated"})
        else:
            yield go("look")
    elif step == "look":
        if cell in ("shadowed", "gone") or world.does(Mutation.NO_INVALIDATION):
            # Whoever took a cell away had seen to it before that it cannot come to be committed.
            yield end()
        elif world.does(Mutation.DROP_BEFORE_INVALIDATION):
            yield go("invalidate late", **{column: "gone"})
        else:
            yield go("invalidate")
    elif step == "invalidate":
        if one.has_commit:
            yield go("entry")
        else:
            is_blind = world.does(Mutation.NO_SECOND_LOOK)
            yield go("drop" if is_blind else "second look", has_invalidation=True)
    elif step == "second look":
        yield go("undo" if cell == "shadowed" else "drop")
    elif step == "undo":
        yield end(has_invalidation=False)
    elif step == "heal":
        yield end(**{column: shadowed(cell)})
    elif step == "drop":
        yield end(**{column: "gone"})
    elif step == "invalidate late":
        yield end() if one.has_commit else end(has_invalidation=True)
    elif step == "then entry":
        if one.has_invalidation:
            yield go("drop")
        else:
            yield go("heal" if one.has_commit else "forbid and drop")
    elif step == "forbid and drop":
        yield go("entry") if one.has_commit else go("drop", has_invalidation=True)


def _has_committed_other(state: State, healer: Pass) -> bool:
    return any(state.transactions[index].has_commit for index in healer.todo)
