"""Every interleaving of one transaction with healers, pruner and oracle, searched breadth first.

Small on purpose: one transaction T that writes two cells in two ranges, a healer for each range,
one pruner, and an oracle whose decision and whose write of the commit entry are two events.  The
client may lose its reply, read the commit table itself as Java's does, roll back, or die at any
step.  All other traffic is left out, because it cannot touch T's cells or entry.

The second cell lies in a range of ours, or in a table that no pass goes over: there the pruner asks
whether a cell of T lies, and prunes nothing while there is one.

Three settings:

    REGULAR      the low watermark is raised only once earlier decisions are durable
    ZOMBIE       a new oracle raises it while an entry of the old one is still under way
    LOW_LATENCY  the client writes its own entry, whenever it comes to it, where no `IT` stands

What must hold in every state: a client that was told *committed* is seen whole by every reader
from then on; one that was told *aborted* is never seen; and nobody ever sees half of T.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum, Flag, auto
from typing import Final, NamedTuple, Protocol


class _Go(Protocol):
    def __call__(self, to: str, **changes: object) -> State:
        """Return the state after a healer's step."""


class Setting(Enum):
    """How the oracle writes commit entries."""

    REGULAR = "regular"
    ZOMBIE = "zombie"
    LOW_LATENCY = "low latency"


class Mutation(Flag):
    """Ways to get the protocol wrong."""

    NONE = 0
    WATERMARK_AFTER_SCAN = auto()
    NO_INVALIDATION = auto()
    INVALIDATIONS_WITHOUT_GRACE = auto()
    SHADOW_BEFORE_ENTRY = auto()
    DROP_BEFORE_INVALIDATION = auto()
    COMMITS_WITHOUT_GRACE = auto()
    NO_SECOND_LOOK = auto()
    INVALIDATION_IS_FINAL = auto()
    ONE_RANGE_SUFFICES = auto()
    WATERMARK_BEFORE_DURABLE = auto()
    NOBODY_ASKED = auto()
    ASKED_BEFORE_WATERMARK = auto()


class State(NamedTuple):
    """Everything that any step may depend on."""

    x: str = "absent"
    """A cell: absent, tentative, shadowed or gone."""
    y: str = "absent"
    has_commit: bool = False
    has_invalidation: bool = False
    oracle: str = "idle"
    """idle, decided (its entry is under way), durable, silent (durable, but may not answer) or
    refused."""
    is_passed: bool = False
    """Whether a low watermark at or above T can be read."""
    client: str = "write x"
    told: str = ""
    """What the client was told: committed, aborted, or nothing yet."""
    heal_x: str = "idle"
    """What the healer of the first range does next."""
    heal_y: str = "idle"
    """The same for the second range; in a table that is not ours, `claimed` once found empty."""
    going: str = ""
    """What the pruner has read and judged, and is about to delete unasked: commit or invalidation.
    """

    def is_visible(self, cell: str) -> bool:
        """Say whether a reader sees a cell of T now."""
        if cell in ("absent", "gone"):
            return False
        return cell == "shadowed" or (self.has_commit and not self.has_invalidation)

    def broken_promise(self) -> str:
        """Say what no client may ever see; empty if all is well."""
        x, y = self.is_visible(self.x), self.is_visible(self.y)
        if x != y:
            return "torn"
        if self.told == "committed" and not x:
            return "lost"
        if self.told == "aborted" and x:
            return "risen"
        return ""


class Finding(NamedTuple):
    """What a search found."""

    state_count: int
    broken: str
    """The first broken promise; empty if none was."""
    path: list[State]
    """How it came to that."""


def search(
    setting: Setting, mutation: Mutation = Mutation.NONE, *, is_foreign: bool = False
) -> Finding:
    """Visit every reachable state, or as many as it takes to break a promise.

    Args:
        setting: How entries are written.
        mutation: What is done wrong.
        is_foreign: Whether the second cell lies in a table that no pass goes over.
    """
    first = State()
    came_from: dict[State, State | None] = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        if broken := state.broken_promise():
            return Finding(len(came_from), broken, _path(state, came_from))
        for following in successors(state, setting, mutation, is_foreign=is_foreign):
            if following not in came_from:
                came_from[following] = state
                queue.append(following)
    return Finding(len(came_from), "", [])


def successors(
    state: State, setting: Setting, mutation: Mutation, *, is_foreign: bool
) -> Iterator[State]:
    """Return every state one step away."""
    yield from _oracle_steps(state, setting, mutation)
    yield from _client_steps(state, setting)
    yield from _healer_steps(state, mutation, "heal_x", "x")
    if is_foreign:
        yield from _asking_steps(state, mutation)
    else:
        yield from _healer_steps(state, mutation, "heal_y", "y")
    yield from _pruner_steps(state, setting, mutation)


def _path(state: State, came_from: dict[State, State | None]) -> list[State]:
    path = [state]
    while (before := came_from[path[-1]]) is not None:
        path.append(before)
    return path[::-1]


# -- the oracle and its low watermark --------------------------------------------------------------


def _oracle_steps(state: State, setting: Setting, mutation: Mutation) -> Iterator[State]:
    if not state.is_passed:
        is_early = setting is not Setting.REGULAR or Mutation.WATERMARK_BEFORE_DURABLE in mutation
        if is_early or state.oracle != "decided":
            yield state._replace(is_passed=True)
    if state.client == "request":
        yield state._replace(client="wait", oracle="refused")
        if not state.is_passed:
            yield state._replace(client="wait", oracle="decided")
    if state.oracle == "decided" and setting is not Setting.LOW_LATENCY:
        # A deposed oracle notices after the write that it may not answer.
        is_deposed = setting is Setting.ZOMBIE and state.is_passed
        yield state._replace(has_commit=True, oracle="silent" if is_deposed else "durable")


# -- the client ------------------------------------------------------------------------------------

_TERMINAL: Final = ("done", "aborted", "dead")


def _client_steps(state: State, setting: Setting) -> Iterator[State]:
    client = state.client
    if client not in _TERMINAL:
        yield state._replace(client="dead")
    if client == "write x":
        yield state._replace(x="tentative", client="write y")
    elif client == "write y":
        yield state._replace(y="tentative", client="request")
    elif client == "wait":
        yield from _answers(state, setting)
    elif client == "write entry":
        if state.has_invalidation:
            yield state._replace(client="undo x", told="aborted")
        else:
            yield state._replace(has_commit=True, client="shadow x", told="committed")
    elif client == "unknown":
        # What Java does whose reply was lost: it reads the commit table itself.
        if state.has_invalidation:
            yield state._replace(client="undo x", told="aborted")
        elif state.has_commit:
            yield state._replace(client="shadow x", told="committed")
        else:
            yield state._replace(client="forbid")
    elif client == "forbid":
        if state.has_commit:
            yield state._replace(client="unknown")
        else:
            yield state._replace(has_invalidation=True, client="undo x", told="aborted")
    elif client == "shadow x":
        yield state._replace(x=_shadowed(state.x), client="shadow y")
    elif client == "shadow y":
        yield state._replace(y=_shadowed(state.y), client="remove entry")
    elif client == "remove entry":
        yield state._replace(has_commit=False, client="done")
    elif client == "undo x":
        yield state._replace(x="gone", client="undo y")
    elif client == "undo y":
        yield state._replace(y="gone", client="aborted")


def _answers(state: State, setting: Setting) -> Iterator[State]:
    if state.oracle == "refused":
        yield state._replace(client="undo x", told="aborted")
    if setting is Setting.LOW_LATENCY:
        if state.oracle == "decided":
            yield state._replace(client="write entry")
        return
    if state.oracle == "durable":
        yield state._replace(client="shadow x", told="committed")
    # The reply is lost.  Our retries are answered in the oracle's order, after its earlier
    # decisions; a new oracle does not know what an old one has under way.
    if state.oracle != "decided" or (setting is Setting.ZOMBIE and state.is_passed):
        yield state._replace(client="unknown")


def _shadowed(cell: str) -> str:
    """Return a cell after its shadow cell was put; alone, a shadow cell shows nothing."""
    return "shadowed" if cell == "tentative" else cell


# -- a healer, one range ---------------------------------------------------------------------------


def _healer_steps(state: State, mutation: Mutation, healer: str, name: str) -> Iterator[State]:
    step: str = getattr(state, healer)
    cell: str = getattr(state, name)

    def go(to: str, **changes: object) -> State:
        return state._replace(**{healer: to, **changes})  # type: ignore[arg-type]  # fields by name

    is_late = Mutation.WATERMARK_AFTER_SCAN in mutation
    if step == "idle":
        if state.is_passed or is_late:
            yield go("scan")
    elif step == "scan":
        if cell != "tentative":
            yield go("claim")
        else:
            is_naive = Mutation.SHADOW_BEFORE_ENTRY in mutation
            yield go("look first" if is_naive else "entry")
    elif not state.is_passed:
        # The naive healer reads L only now; until it passes T there is nothing to judge.
        return
    elif step == "entry":
        if state.has_invalidation:
            is_final = Mutation.INVALIDATION_IS_FINAL in mutation
            yield go("drop" if is_final else "second look")
        else:
            yield go("heal" if state.has_commit else "look")
    elif step == "look":
        if cell in ("shadowed", "gone") or Mutation.NO_INVALIDATION in mutation:
            # Whoever took a cell away had seen to it before that it cannot come to be committed.
            yield go("claim")
        elif Mutation.DROP_BEFORE_INVALIDATION in mutation:
            yield go("invalidate late", **{name: "gone"})
        else:
            yield go("invalidate")
    elif step == "invalidate":
        if state.has_commit:
            yield go("entry")
        else:
            is_blind = Mutation.NO_SECOND_LOOK in mutation
            yield go("drop" if is_blind else "second look", has_invalidation=True)
    elif step == "second look":
        yield go("undo" if cell == "shadowed" else "drop")
    elif step == "undo":
        yield go("claim", has_invalidation=False)
    elif step == "heal":
        yield go("claim", **{name: _shadowed(cell)})
    elif step == "drop":
        yield go("claim", **{name: "gone"})
    elif step == "claim":
        yield go("claimed")
    else:
        yield from _naive_healer_steps(state, step, cell, go)


def _naive_healer_steps(state: State, step: str, cell: str, go: _Go) -> Iterator[State]:
    if step == "invalidate late":
        yield go("claim") if state.has_commit else go("claim", has_invalidation=True)
    elif step == "look first":
        yield go("claim" if cell == "shadowed" else "then entry")
    elif step == "then entry":
        if state.has_invalidation:
            yield go("drop")
        else:
            yield go("heal" if state.has_commit else "forbid and drop")
    elif step == "forbid and drop":
        if state.has_commit:
            yield go("look first")
        else:
            yield go("drop", has_invalidation=True)


# -- a table that is not ours ----------------------------------------------------------------------


def _asking_steps(state: State, mutation: Mutation) -> Iterator[State]:
    """Ask for a cell of T, again each night until there is none."""
    if state.heal_y != "idle":
        return
    if not (state.is_passed or Mutation.ASKED_BEFORE_WATERMARK in mutation):
        return
    if state.y in ("absent", "gone") or Mutation.NOBODY_ASKED in mutation:
        yield state._replace(heal_y="claimed")


# -- the pruner ------------------------------------------------------------------------------------


def _pruner_steps(state: State, setting: Setting, mutation: Mutation) -> Iterator[State]:
    # It deletes what it read a while ago, whatever has become of it since.
    if state.going == "commit":
        yield state._replace(has_commit=False, going="")
    if state.going == "invalidation":
        yield state._replace(has_commit=False, has_invalidation=False, going="")
    claims = [state.heal_x == "claimed", state.heal_y == "claimed"]
    if not (any(claims) if Mutation.ONE_RANGE_SUFFICES in mutation else all(claims)):
        return
    # The graces are longer than any client waits for a reply, and than any entry is under way.
    # Only the search knows when that is; a real pruner waits for hours.
    is_asking = state.client in ("wait", "unknown", "forbid")
    may_prune_commits = not is_asking or Mutation.COMMITS_WITHOUT_GRACE in mutation
    if state.has_commit and not state.has_invalidation and may_prune_commits:
        yield state._replace(going="commit")
    if state.has_invalidation:
        is_under_way = (
            state.client in ("wait", "write entry")
            if setting is Setting.LOW_LATENCY
            else state.oracle == "decided"
        )
        if not is_under_way or Mutation.INVALIDATIONS_WITHOUT_GRACE in mutation:
            yield state._replace(going="invalidation")
