"""Two releases in one world: which processes are the release before, and what the two did together.

Oracles, clients and compactors are of this tree or of the release before it: each draws that when
it starts, and when it starts again, so that they are upgraded and taken back in any order, while
others are at work, and under all that goes wrong.  Nothing else of the world is told which they
are: watch, ledger and judge, which are this tree's, hold both to the same.

A process of the release before is put together by the same lines as any other (`before.py`): it is
started by another view of the simulation, of the class upon the packages of the release before,
which shares all that the simulation holds but what has classes of one release in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from omidpy.base.cells import is_shadow_qualifier
from omidpy.model import base
from omidpy.storage.base import RowMutation
from omidpy.testing.history import Event, Recorded, Told
from tests.machines.simulator.before import WITHOUT, Before, before
from tests.machines.simulator.border import Border
from tests.machines.simulator.store import SharedStore
from tests.machines.simulator.world import Process

if TYPE_CHECKING:
    from tests.machines.simulator.simulation import Simulation

RELEASES: Final = ("this tree", "the release before")


class NoReleaseBefore(Exception):
    """There is none in this clone: nothing with two releases can be simulated."""


class Sides:
    """Which release each process is of, and what was done across."""

    def __init__(self, simulation: Simulation, share: float) -> None:
        """Load the release before, if any process may be of it.

        Raises:
            NoReleaseBefore: it may, and there is none.
        """
        self._simulation = simulation
        self._share = share
        self._release_of: dict[str, str] = {}
        """By instance of an oracle, and by process of others."""
        self._writer_of: dict[str, str] = {}
        """The release of the client that did a transaction, by its name."""
        self._shadows: set[tuple[int, str]] = set()
        """Whose cells got a shadow cell, by which release."""
        self._other: Any = None
        if share:
            if (loaded := before()) is None:
                raise NoReleaseBefore(WITHOUT)
            self._other = self._upon(loaded)
            simulation._store.on_write = self._note_shadows

    def of(self, process: Process) -> Simulation:
        """Return what starts a process that has not begun: it draws which release it is."""
        is_before = bool(self._share) and process.dice("release").random() < self._share
        is_before &= not self._would_lose(process)
        self._release_of[_name(process)] = release = RELEASES[is_before]
        if self._share:
            kind, _, _ = process.name.partition("-")
            self._simulation.world.counts[f"{kind}s of {release} that began"] += 1
            self._simulation.world.note(f"{process.name} is {release}")
        other: Simulation = self._other
        return other if is_before else self._simulation

    def _would_lose(self, process: Process) -> bool:
        """Say whether a process of the release before has a defect here that this tree mends.

        0.1.0 syncs nothing of the row by which owner and helpers agree who may still write.
        """
        disk = self._simulation._store.disk
        is_dark = disk.is_watched and not disk.is_in_one_log
        return is_dark and process.name.startswith(("sharer", "helper"))

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Let the release before draw, pause and choose as this tree does."""
        if self._other is None:
            yield
            return
        loaded = before()
        assert loaded is not None, "it was"
        actors, world = loaded.actor("simulation"), self._simulation.world
        with ExitStack() as stack:
            for one in (
                actors.chance_of(world),
                actors.without_threads(),
                actors.exporting_without_threads(),
                actors.objects_of(self._other.objects),
                actors.finishing_without_threads(world, self._simulation.lease_s),
                actors.patched(self._other.choices()),
            ):
                stack.enter_context(one)
            yield

    # -- the other view --------------------------------------------------------------------------

    def _upon(self, loaded: Before) -> Any:
        """Return the simulation as processes of the release before are started from it."""
        actors, simulation = loaded.actor("simulation"), self._simulation
        border = Border(loaded)
        store = _StoreSeen(simulation._store, border)
        around = simulation._around
        workloads = loaded.get("omidpy.testing.workloads", "standard_workloads")(actors.TABLES)
        chosen = {one.name for one in simulation._chosen}
        instead = {
            "_parts": actors.PRODUCT,
            "_store": store,
            "_around": loaded.actor("instance").Surroundings(
                **{
                    **{one.name: getattr(around, one.name) for one in fields(around)},
                    "store": store,
                    "settings": border.out(around.settings),
                    "parts": actors.PRODUCT,
                }
            ),
            "_events": _EventsSeen(simulation._events, border, self._writer_of),
            # What these raise, and make, is of the release that asks; what they hold is common.
            "objects": _as_of(actors.SharedObjects, simulation.objects),
            "_receiver": _as_of(actors.Receiver, simulation._receiver),
            "_adder": _as_of(actors.Adder, simulation._adder),
            "_workloads": workloads,
            "_chosen": [one for one in workloads if one.name in chosen],
        }
        # What a class says is found before what an object holds: all else is held by both.
        said = {name: _always(value) for name, value in instead.items()}
        view: Any = object.__new__(type("Simulation", (actors.Simulation,), said))
        view.__dict__ = simulation.__dict__
        return view

    # -- what was done ---------------------------------------------------------------------------

    def _note_shadows(self, writer: Process, mutation: RowMutation) -> None:
        if (release := self._release_of.get(_name(writer))) is not None:
            for put in mutation.puts:
                if is_shadow_qualifier(put.qualifier):
                    self._shadows.add((base(put.version), release))

    def count(self, history: Sequence[Recorded]) -> None:
        """Say what the releases did, each for itself and for the other one."""
        if self._other is None:
            return
        counts, writers = self._simulation.world.counts, {}
        for one in history:
            if one.is_historical:
                continue
            release = writers[one.start_ts] = self._writer_of.get(one.name, RELEASES[0])
            instance = self._simulation._watch.committed_by.get(one.start_ts, "")
            if one.told is Told.COMMITTED and (oracle := self._release_of.get(instance)):
                counts[f"commits of {release} by an oracle of {oracle}"] += 1
        for start_ts, release in self._shadows:
            if (writer := writers.get(start_ts)) is not None:
                counts[f"commits of {writer} completed by {release}"] += 1
        for (deed, _), hands in self._simulation.world.hands.items():
            both = tuple(self._release_of.get(_name(process)) for process in hands[:2])
            if len(both) > 1 and all(both):
                counts[deed.format(*both)] += 1
        answering = [*dict.fromkeys(self._simulation._watch._begun.values())]
        for earlier, later in pairwise(answering):
            both = self._release_of[later], self._release_of[earlier]
            counts["oracles of {} after one of {}".format(*both)] += 1


class _StoreSeen:
    """What all processes share, as those of the release before are given their part of it."""

    def __init__(self, shared: SharedStore, border: Border) -> None:
        self._shared = shared
        self._border = border
        self.memory = border.seen(shared.memory)

    def of(self, process: Process) -> Any:
        """Return the store as one process sees it."""
        return self._border.seen(self._shared.of(process))

    def __getattr__(self, name: str) -> Any:
        """Return what has no classes of a release."""
        return getattr(self._shared, name)


class _EventsSeen:
    """The history, as a client of the release before adds to it."""

    def __init__(self, events: list[Event], border: Border, writer_of: dict[str, str]) -> None:
        self._events = events
        self._border = border
        self._writer_of = writer_of

    def append(self, event: Any) -> None:
        """Add an event."""
        ours: Event = self._border.home(event)
        self._writer_of[ours.transaction] = RELEASES[1]
        self._events.append(ours)


def _as_of(kind: Any, held: object) -> Any:
    """Return an object of another class that holds the very same."""
    seen = object.__new__(kind)
    seen.__dict__ = held.__dict__
    return seen


def _always(value: Any) -> property:
    return property(lambda _: value)


def _name(process: Process) -> str:
    return f"{process.name}#{process.number}"
