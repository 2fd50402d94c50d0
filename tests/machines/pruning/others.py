"""What everybody else may do next: a reader, an operator with snapshots, a collector, bad luck."""

from __future__ import annotations

from collections.abc import Iterator

from tests.machines.pruning.clients import OVER
from tests.machines.pruning.state import COLUMNS, Pass, Reader, Snapshot, State, shadowed
from tests.machines.pruning.world import Mutation, Setting, World

# -- a reader --------------------------------------------------------------------------------------


def reader_steps(state: State, world: World) -> Iterator[State]:
    """Return the next steps of one reading of one cell of the first transaction.

    One below the reader's epoch, or of a low-latency client, it invalidates; any other it only
    reads.  What it answered it must be able to answer for ever: committed, or not committed below
    its snapshot.
    """
    reader = state.reader
    one = state.transactions[0]
    column = reader.column
    cell: str = getattr(one, column)

    def go(to: str, **changes: object) -> State:
        changed = state.with_transaction(0, **changes) if changes else state
        return changed._replace(reader=reader._replace(step=to))

    def end(*, is_seen: bool, **changes: object) -> State:
        if is_seen:
            changes["told"] = "committed"
        elif reader.is_later:
            changes["told"] = "aborted"
        changed = state.with_transaction(0, **changes) if changes else state
        return changed._replace(reader=Reader("done"))

    if reader.step == "idle":
        yield from _beginnings(state, world)
    elif reader.step == "row":
        yield go("entry") if cell == "tentative" else end(is_seen=cell == "shadowed")
    elif reader.step == "entry":
        if one.has_invalidation:
            is_final = world.does(Mutation.READER_TAKES_INVALIDATION_FOR_FINAL)
            yield end(is_seen=False) if is_final else go("second look")
        else:
            yield go("heal" if one.has_commit else "look")
    elif reader.step == "look":
        if cell != "tentative" and not world.does(Mutation.READER_TAKES_ABSENCE_FOR_FINAL):
            yield end(is_seen=cell == "shadowed")
        else:
            yield go("invalidate") if reader.may_invalidate else end(is_seen=False)
    elif reader.step == "invalidate":
        if one.has_commit:
            yield go("entry")
        elif world.does(Mutation.READER_TRUSTS_ITS_INVALIDATION):
            yield end(is_seen=False, has_invalidation=True)
        else:
            yield go("second look", has_invalidation=True)
    elif reader.step == "second look":
        yield go("undo") if cell == "shadowed" else end(is_seen=False)
    elif reader.step == "undo":
        yield end(is_seen=True, has_invalidation=False)
    elif reader.step == "heal":
        yield end(is_seen=True, **{column: shadowed(cell)})


def _beginnings(state: State, world: World) -> Iterator[State]:
    one = state.transactions[0]
    is_below_epoch = state.low_watermark > 0
    is_low_latency = world.setting is Setting.LOW_LATENCY
    is_deposed = world.setting is Setting.ZOMBIE and is_below_epoch
    if one.oracle == "decided" and not (is_low_latency or is_deposed):
        # The reply to a begin comes after every earlier decision is durable.
        return
    for column in COLUMNS:
        reader = Reader("row", column, is_low_latency or is_below_epoch, one.is_decided())
        yield state._replace(reader=reader)


# -- snapshots of the first table ------------------------------------------------------------------


def operator_steps(state: State, world: World) -> Iterator[State]:
    """Take a snapshot of what the dead left, list it, restore it, drop it."""
    snapshot = state.snapshot
    if snapshot is None:
        if all(one.client in OVER for one in state.transactions):
            cells = tuple(one.x for one in state.transactions)
            yield state._replace(snapshot=Snapshot(cells, state.claims[0], is_listed=False))
        return
    if not snapshot.is_listed:
        yield state._replace(snapshot=snapshot._replace(is_listed=True))
        return
    yield state._replace(snapshot=None)
    if world.is_bold or not state.horizon:
        yield _restored(state, snapshot, world)


def _restored(state: State, snapshot: Snapshot, world: World) -> State:
    """Return the state after the table went back, and its claims of since with it."""
    for index, cell in enumerate(snapshot.cells):
        state = state.with_transaction(index, x=cell)
    if world.does(Mutation.WINDOW_SURVIVES_RESTORE):
        state = state._replace(void_claim=max(state.claims[0], state.void_claim))
    if not world.does(Mutation.CLAIMS_SURVIVE_RESTORE):
        state = state._replace(claims=(min(state.claims[0], snapshot.claim), state.claims[1]))
    if not world.does(Mutation.PASS_SURVIVES_RESTORE):
        # What is claimed by a pass that began before is as void.
        state = state.with_pass(0, Pass())
    return state


# -- an oracle that loses its state ----------------------------------------------------------------


def loss_steps(state: State) -> Iterator[State]:
    """Forget the low watermark, between two runs, before a transaction begun earlier writes."""
    is_quiet = all(healer.step == "idle" for healer in state.passes) and not any(state.going)
    has_written = any(one.client != "write x" for one in state.transactions)
    if is_quiet and not has_written and state.low_watermark and not state.has_lost_state:
        yield state._replace(low_watermark=0, has_lost_state=True)


# -- old versions ----------------------------------------------------------------------------------


def collection_steps(state: State, world: World) -> Iterator[State]:
    """Drop the first transaction's versions below the second's, and read them meanwhile."""
    first, second = state.transactions
    if not state.is_published and state.low_watermark == 2 and second.oracle == "durable":
        yield state._replace(is_published=True)
    for column in COLUMNS:
        cell: str = getattr(second, column)
        is_beaten = cell == "shadowed" and (
            state.is_published or world.does(Mutation.DROPS_UNANNOUNCED)
        )
        if world.does(Mutation.COLLECTS_BELOW_TENTATIVE):
            is_beaten = is_beaten or cell == "tentative"
        if is_beaten and getattr(first, column) == "shadowed":
            yield state.with_transaction(0, **{column: "gone"})
    yield from _earlier_reader_steps(state, world)


def _earlier_reader_steps(state: State, world: World) -> Iterator[State]:
    """Read the first transaction's version at a snapshot between the two."""
    reader = state.reader
    first, second = state.transactions
    is_naive = world.does(Mutation.HORIZON_READ_BEFORE_BATCH)
    if reader.step == "idle":
        if first.told == "committed" and not second.is_decided():
            yield state._replace(reader=Reader("horizon" if is_naive else "batch"))
    elif reader.step == "batch":
        is_there = first.is_visible("x")
        after = "missing" if is_naive else "not found"
        yield state._replace(reader=Reader("done" if is_there else after))
    elif reader.step == "horizon":
        yield state._replace(reader=Reader("done" if state.is_published else "batch"))
    elif reader.step == "not found":
        # Below the horizon it says that its snapshot is too old.
        yield state._replace(reader=Reader("done" if state.is_published else "missing"))
