"""Nothing acknowledged is missing, nothing refused is there: does one order of deeds say so?

A *deed* is what somebody asked for, from when he asked until he was told.  What was told as done
has happened between the two; what was refused has not happened; of what nobody was told anything,
a beginning may have happened, at any time since.  `Ledger.check` looks for an order of all that
happened which ends at what was found.  There is none: something was lost, or is there in vain.

What a deed means is a few *actions*, one after the other, each a function from a state to every
way it may go.  A state is any value that can be compared and hashed, so that exporters and
committers bring their own.  Two deeds of one name that overlap may be one and the same: whoever
repeats a call that is under way is answered by it.

Source: Wing and Gong's check of linearizability, by plain search: a history here has ten deeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

State: TypeAlias = Hashable


class Way(NamedTuple):
    """One way in which an action may go."""

    is_done: bool
    """Whether it was done; else it was refused, and the deed with it."""
    state: State


Action: TypeAlias = Callable[[State], Sequence[Way]]


def done(state: State) -> list[Way]:
    """Say that an action is done, and can go no other way."""
    return [Way(is_done=True, state=state)]


def refused(state: State) -> list[Way]:
    """Say that an action can only be refused."""
    return [Way(is_done=False, state=state)]


@dataclass(eq=False)
class Deed:
    """What somebody asked for, and was told."""

    who: str
    name: str
    actions: tuple[Action, ...]
    began: int
    ended: int | None = None
    """None: nobody knows that it is over."""
    was_done: bool | None = None
    """None: nobody was told."""
    told: str = ""

    def __str__(self) -> str:
        outcome = {None: "untold", True: "done", False: "refused"}[self.was_done]
        until = "..." if self.ended is None else self.ended
        told = f" ({self.told})" if self.told else ""
        return f"{self.began:3}-{until!s:3} {self.who}: {self.name}: {outcome}{told}"


class Ledger:
    """Deeds, in the order in which they began."""

    def __init__(self, initial: State) -> None:
        """Begin with a state."""
        self.initial = initial
        self.deeds: list[Deed] = []
        self._ticks = itertools.count(1)

    def begin(self, who: str, name: str, *actions: Action) -> Deed:
        """Note that somebody asks for something."""
        deed = Deed(who, name, actions, next(self._ticks))
        self.deeds.append(deed)
        return deed

    def begin_anew(self, deed: Deed) -> None:
        """Note that nothing that was asked for has happened yet."""
        deed.began = next(self._ticks)

    def end(self, deed: Deed, *, was_done: bool, told: str = "") -> None:
        """Note what he was told; if it is known already, it must be the same."""
        if deed.was_done is not None:
            assert deed.was_done == was_done, f"{deed}, and its caller was told {told or was_done}"
            return
        deed.ended, deed.was_done, deed.told = next(self._ticks), was_done, told

    def check(self, found: State) -> None:
        """See that what was found is what all deeds in some order come to."""
        assert self.explains(found), self.text(found)

    def text(self, found: State) -> str:
        """Return the history, for whoever has to understand it."""
        lines = [str(deed) for deed in self.deeds]
        return "\n".join(["no order explains", f"from  {self.initial}", *lines, f"found {found}"])

    def explains(self, found: State) -> bool:
        """Say whether some order of all that happened ends at what was found."""
        seen: set[tuple[State, tuple[int, ...]]] = set()
        left = [(self.initial, (0,) * len(self.deeds))]
        while left:
            here = left.pop()
            if here in seen:
                continue
            seen.add(here)
            state, counts = here
            if state == found and all(
                self._is_over(deed, count) or deed.was_done is None
                for deed, count in zip(self.deeds, counts, strict=True)
            ):
                return True
            left += self._next(state, counts)
        return False

    def _next(
        self, state: State, counts: tuple[int, ...]
    ) -> Iterator[tuple[State, tuple[int, ...]]]:
        ready = [at for at in range(len(self.deeds)) if self._is_ready(at, counts)]
        for at in ready:
            deed = self.deeds[at]
            for way in deed.actions[counts[at]](state):
                if way.is_done and deed.was_done is not False:
                    twins = [
                        other
                        for other in ready
                        if other != at
                        and self.deeds[other].name == deed.name
                        and counts[other] == counts[at]
                        and self.deeds[other].was_done is not False
                    ]
                    for size in range(len(twins) + 1):
                        for together in itertools.combinations(twins, size):
                            yield way.state, _raised(counts, (at, *together))
                elif not way.is_done and deed.was_done is not True and counts[at] == 0:
                    ended = list(counts)
                    ended[at] = len(deed.actions)
                    yield state, tuple(ended)

    def _is_ready(self, at: int, counts: tuple[int, ...]) -> bool:
        """Say whether a deed may go on: all that ended before it began have happened."""
        deed = self.deeds[at]
        return not self._is_over(deed, counts[at]) and all(
            self._is_over(other, count)
            for other, count in zip(self.deeds, counts, strict=True)
            if other.ended is not None and other.ended < deed.began
        )

    @staticmethod
    def _is_over(deed: Deed, count: int) -> bool:
        return count == len(deed.actions)


def _raised(counts: tuple[int, ...], which: Sequence[int]) -> tuple[int, ...]:
    return tuple(count + (at in which) for at, count in enumerate(counts))
