"""An actor that is stopped before a change, deposed, and goes on; or that dies there.

What an actor does to the world that others see are its changes of the store and of the oracle.  A
`Moment` is one of them.  An actor that *stalls* there stands still with all its threads, as a
process does that was stopped or swapped out; meanwhile others do what they like, and turn the
clock, so that its lease or its session is over; then it goes on as if nothing had been.

    life = Life(Moment(7, Ending.STALLS))
    play(actor, life, others)

Nobody sleeps: the clocks are turned by hand, and threads are waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, cast

from omidpy.errors import OmidError, StorageUnavailable
from omidpy.model import TableId, Timestamp
from omidpy.oracle.base import CommitGranted, InvalidationVerdict, Oracle
from omidpy.storage.base import Store
from omidpy.testing.faults import FaultyStore
from tests.machines.stalls.changes import STORE_WRITES, Place, places_here

LONGEST_S: Final = 60.0


class Killed(BaseException):
    """Ends a life in this process."""


class Ending(StrEnum):
    """What happens at a change."""

    STALLS = "stalls before"
    DIES_BEFORE = "dies before"
    DIES_AFTER = "dies after"


class Moment(NamedTuple):
    """At the change of this number, from 1."""

    number: int
    ending: Ending

    def __str__(self) -> str:
        return f"{self.ending} change {self.number}"


@dataclass
class Life:
    """The changes of one actor, and where they end or pause."""

    moment: Moment | None = None
    made: list[tuple[Place, ...]] = field(default_factory=list)
    """Where in the code each change was made."""

    def __post_init__(self) -> None:
        """Begin."""
        self.is_dead = False
        self.has_stopped = threading.Event()
        self.goes_on = threading.Event()
        self._mutex = threading.Lock()
        self._owner = threading.get_ident()

    def belongs_here(self) -> None:
        """Make this thread the one that ends when the life does."""
        self._owner = threading.get_ident()

    def read(self, work: Callable[[], Any]) -> Any:
        """Ask something, which nobody does who stands still or is dead."""
        self._stand()
        return work()

    def change(self, work: Callable[[], Any]) -> Any:
        """Change something, if the time for it comes."""
        self._stand()
        with self._mutex:
            self.made.append(places_here())
            is_now = self.moment is not None and self.moment.number == len(self.made)
        if not is_now or self.moment is None:
            return work()
        if self.moment.ending is Ending.STALLS:
            self.has_stopped.set()
            self._stand()
            return work()
        if self.moment.ending is Ending.DIES_AFTER:
            work()
        self.is_dead = True
        self._stand()
        raise AssertionError("the dead do not come here")

    def _stand(self) -> None:
        if self.has_stopped.is_set():
            assert self.goes_on.wait(LONGEST_S), "nobody lets it go on"
        if self.is_dead:
            if threading.get_ident() == self._owner:
                raise Killed
            # Its other threads end by what threads may end by.
            raise StorageUnavailable("this process is dead")


class LivingStore(FaultyStore):
    """A store as one actor has it."""

    def __init__(self, store: Store, life: Life) -> None:
        super().__init__(store)
        self._life = life

    def _call(self, name: str, work: Any, **about: Any) -> Any:
        del about
        return (self._life.change if name in STORE_WRITES else self._life.read)(work)


def living_oracle(oracle: Oracle, life: Life) -> Oracle:
    """Return an oracle as one actor has it; begins and commits are no business of ours."""
    return cast("Oracle", LivingOracle(oracle, life))


class LivingOracle:
    """Passes everything on, changes within a life."""

    def __init__(self, oracle: Oracle, life: Life) -> None:
        self._oracle = oracle
        self._life = life

    def __getattr__(self, name: str) -> Any:
        """Pass on."""
        return getattr(self._oracle, name)

    def fence(self, table_id: TableId) -> Timestamp:
        """Set a fence."""
        found: Timestamp = self._life.change(lambda: self._oracle.fence(table_id))
        return found

    def invalidate(self, start_ts: Timestamp) -> CommitGranted | InvalidationVerdict:
        """Forbid a commit."""
        found: CommitGranted | InvalidationVerdict = self._life.change(
            lambda: self._oracle.invalidate(start_ts)
        )
        return found


@dataclass(frozen=True)
class Actor:
    """Somebody who does something to the world, and writes into a ledger what he was told.

    The world has the ledger; `start` and `finish` know it.
    """

    name: str
    start: Callable[[Life], object]
    """Does it, in a process whose changes are those of a life."""
    finish: Callable[[], object] = lambda: None
    """Called once it is over or dead: what others can tell of its end goes into the ledger."""


def play(first: Actor, life: Life, others: Sequence[Actor]) -> None:
    """Let one actor begin, others act while it stands still or is dead, and then it goes on."""
    errors: list[BaseException] = []

    def work() -> None:
        life.belongs_here()
        try:
            first.start(life)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            errors.append(error)
        finally:
            is_over.set()
            life.has_stopped.set()

    is_over = threading.Event()
    thread = threading.Thread(target=work, name=first.name, daemon=True)
    thread.start()
    assert life.has_stopped.wait(LONGEST_S), f"{first.name} neither stops nor ends"
    try:
        for other in others:
            other.start(Life())
            first.finish()
    finally:
        life.goes_on.set()
        assert is_over.wait(LONGEST_S), f"{first.name} does not end"
    thread.join()
    for error in errors:
        raise error
    for actor in (first, *others):
        actor.finish()


def moments_of(
    life: Life, endings: Sequence[Ending] = tuple(Ending), *, is_every: bool = True
) -> list[Moment]:
    """Return the moments of a life that was spared.

    Args:
        life: What it changed.
        endings: What may happen at each.
        is_every: All of them; else the first from each place in the code.
    """
    found: list[Moment] = []
    seen: set[tuple[str, ...]] = set()
    for number, where in enumerate(life.made, start=1):
        chain = tuple(place.name for place in where)
        if is_every or chain not in seen:
            found += [Moment(number, ending) for ending in endings]
        seen.add(chain)
    return found


def answer(work: Callable[[], object]) -> tuple[bool, str]:
    """Do something, and return whether it was done, or why it was refused."""
    try:
        work()
    except OmidError as error:
        return False, f"{type(error).__name__}: {error}"
    return True, ""
