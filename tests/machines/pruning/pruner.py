"""What a pruner may do next: take a horizon, judge an entry, delete it unasked, end.

Where a table can go back to a snapshot, claims can become void; so a run that prunes has its
horizon in hand, and may have lost its lease meanwhile.  Everywhere else claims only grow, and every
horizon that anybody has in hand is one that the claims of now allow, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.machines.pruning.clients import ASKING
from tests.machines.pruning.passes import may_begin
from tests.machines.pruning.state import State, Transaction
from tests.machines.pruning.world import Mutation, Setting, World


def pruner_steps(state: State, world: World) -> Iterator[State]:
    """Return the next steps of whoever prunes."""
    horizon = allowed(state, world) if may_begin(state, world) else 0
    if world.has_snapshots:
        if horizon > state.horizon and not _is_snapshot_under_way(state, world):
            yield state._replace(horizon=horizon)
        if state.horizon and not any(state.going):
            yield state._replace(horizon=0)
            if world.is_bold:
                yield state._replace(horizon=0, deposed=state.horizon)
        horizon = max(state.horizon, state.deposed)
    for index, going in enumerate(state.going):
        one = state.transactions[index]
        # It deletes what it read a while ago, whatever has become of it since.
        if going:
            kept = one.has_invalidation and going == "commit"
            done = state.with_transaction(index, has_commit=False, has_invalidation=kept)
            yield _judged(done, index, "")
        elif index < horizon and (verdict := _verdict(one, world)):
            yield _judged(state, index, verdict)


def allowed(state: State, world: World) -> int:
    """Return the horizon that claims and snapshots allow."""
    claims = state.claims
    horizon = max(claims) if world.does(Mutation.ONE_RANGE_SUFFICES) else min(claims)
    snapshot = state.snapshot
    if snapshot is not None and snapshot.is_listed and not world.does(Mutation.SNAPSHOTS_IGNORED):
        horizon = min(horizon, snapshot.claim)
    return horizon


def _is_snapshot_under_way(state: State, world: World) -> bool:
    """Say whether one is being taken that is not listed yet.

    A real pruner looks for it where HBase keeps what is not finished.
    """
    if world.does(Mutation.SNAPSHOT_UNDER_WAY_IGNORED):
        return False
    return state.snapshot is not None and not state.snapshot.is_listed


def _verdict(one: Transaction, world: World) -> str:
    """Say what of an entry at or below the horizon may go: commit, invalidation or nothing."""
    if one.has_invalidation:
        is_under_way = (
            one.client in ("wait", "write entry")
            if world.setting is Setting.LOW_LATENCY
            else one.oracle == "decided"
        )
        if not is_under_way or world.does(Mutation.INVALIDATIONS_WITHOUT_GRACE):
            return "invalidation"
    # The graces are longer than any client waits for a reply, and than any entry is under way.
    # Only the search knows when that is; a real pruner waits for hours.
    elif one.has_commit and (
        one.client not in ASKING or world.does(Mutation.COMMITS_WITHOUT_GRACE)
    ):
        return "commit"
    return ""


def _judged(state: State, index: int, verdict: str) -> State:
    going = state.going
    return state._replace(going=(*going[:index], verdict, *going[index + 1 :]))
