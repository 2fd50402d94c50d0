"""A store of the simulator loses its power: what is lost with it, and what must not be."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

from omidpy.base.tables import CONTROL_TABLE
from omidpy.errors import StorageUnavailable
from omidpy.facts.commit_table import create_system_tables
from omidpy.facts.control import ControlTable
from omidpy.model import Column, FamilySchema, TableSchema
from omidpy.storage.base import Condition, DeleteVersion, GuardedMutation, Put, RowMutation, Store
from tests.machines.simulator.network import Weather
from tests.machines.simulator.plan import DARK, drawn_plan
from tests.machines.simulator.simulation import simulate
from tests.machines.simulator.store import Chances, SharedStore, StoreKind
from tests.machines.simulator.watch import Watch
from tests.machines.simulator.world import Process, SimClock, World

NEW_BY_DAY: Final = 3
NEW_BY_NIGHT: Final = 10
SEEDS: Final = range(30)


class _Lab:
    """A store that may lose its power, and processes that write to it."""

    def __init__(self, seed: int, kind: StoreKind) -> None:
        self.world = World(seed)
        self.shared = SharedStore(self.world, Weather(self.world), Watch(self.world), kind)
        self.shared.disk.is_watched = True
        create_system_tables(self.shared.memory)
        self.shared.memory.create_table(TableSchema("t", (FamilySchema(b"cf"),)))

    def process(self, name: str) -> Process:
        """Begin a process."""
        return self.world.process(name, SimClock(self.world, "here", ahead_ms=0))

    def do(self, act: Callable[[Store], object], name: str = "client") -> None:
        """Let a process do something."""
        process = self.process(name)
        process.start(lambda: act(self.shared.of(process)))
        self.world.run(lambda: False, until_s=self.world.now_s + 10)

    def rows(self) -> list[bytes]:
        """Return the rows of the table that are there."""
        return [row[0].row for page in self.shared.memory.scan("t") for row in page]


def _put(number: int) -> RowMutation:
    return RowMutation(b"%d" % number, (Put(b"cf", b"q", 1, b"v"),))


def _write(number: int, *, durable: bool = False) -> Callable[[Store], object]:
    return lambda store: store.write({"t": [_put(number)]}, durable=durable)


@pytest.mark.parametrize("kind", ["file", "shared"])
def test_of_one_log_the_end_is_lost_behind_the_last_sync(kind: StoreKind) -> None:
    """A durable write makes all durable that came before it; of the rest a beginning is left."""
    found = set()
    for seed in SEEDS:
        lab = _Lab(seed, kind)
        for number in range(6):
            lab.do(_write(number, durable=number == 2))
        assert len(lab.rows()) == 6
        lab.shared.lose_power()
        left = lab.rows()
        assert left == [b"%d" % number for number in range(len(left))]
        found.add(len(left))
    assert min(found) == 3
    assert max(found) > 3


def test_what_a_torn_write_has_changed_is_as_durable_as_it_was_asked_to_be() -> None:
    """A cluster shows no row before it is synced, if that was asked; others were not changed."""
    found = set()
    for seed in SEEDS:
        lab = _Lab(seed, "cluster")
        lab.shared.chances = Chances(torn=1.0)
        rows = {"t": [_put(number) for number in range(4)]}

        def write(store: Store, rows: dict[str, list[RowMutation]] = rows) -> None:
            with pytest.raises(StorageUnavailable, match="torn"):
                store.write(rows, durable=True)

        lab.do(write, "compactor-a")
        seen = lab.rows()
        lab.shared.lose_power()
        assert lab.rows() == seen
        found.add(len(seen))
    assert max(found) > 1


def test_a_durable_write_that_changes_nothing_syncs_nothing() -> None:
    """As SQLite does: who is refused has been promised nothing."""
    lab = _Lab(1, "file")
    lab.do(_write(1))
    guard = Condition("t", b"9", Column(b"cf", b"q"), b"v")
    changes = [GuardedMutation("t", _put(2))]
    lab.do(lambda store: store.write_guarded(changes, guard=guard, durable=True))
    lab.shared.lose_power()
    assert lab.rows() == []


def test_on_a_cluster_facts_are_lost_that_were_not_synced_and_cells_are_not() -> None:
    """Cells are as durable as the address says; the oracle's facts are synced whatever it says."""
    lost = Counter[str]()
    for seed in SEEDS:
        lab = _Lab(seed, "cluster")
        lab.do(_write(1))
        lab.do(lambda store: ControlTable(store).write(b"kept", b"1"))
        lab.do(lambda store: ControlTable(store).write(b"fact", b"1", durable=False))
        lab.do(_write(2), "compactor-a")
        lab.shared.lose_power()
        control = ControlTable(lab.shared.memory)
        assert b"1" in lab.rows()
        assert control.read(b"kept") == b"1"
        lost["facts"] += control.read(b"fact") is None
        lost["what is compacted"] += b"2" not in lab.rows()
    assert lost["facts"]
    assert lost["what is compacted"]


@pytest.mark.parametrize(("kind", "made"), [("file", {False}), ("cluster", {False, True})])
def test_a_write_whose_sync_fails_is_made_or_not(kind: StoreKind, made: set[bool]) -> None:
    """SQLite undoes it; HBase may have it, and may lose it with the power."""
    found = set()
    for seed in SEEDS:
        lab = _Lab(seed, kind)
        lab.shared.chances = Chances(unsynced=1.0)

        def act(store: Store) -> None:
            with pytest.raises(StorageUnavailable, match="sync"):
                ControlTable(store).write(b"fact", b"1")

        lab.do(act)
        control = ControlTable(lab.shared.memory)
        is_made = control.read(b"fact") is not None
        found.add(is_made)
        lab.shared.lose_power()
        if not is_made:
            assert control.read(b"fact") is None
    assert found == made


def test_what_was_there_before_comes_back() -> None:
    """Cells that were written over or deleted, and rows that went."""
    found = set()
    for seed in SEEDS:
        lab = _Lab(seed, "file")
        before = RowMutation(b"1", (Put(b"cf", b"q", 1, b"old"),))
        lab.do(lambda store: store.write({"t": [before]}, durable=True))  # noqa: B023 - at once
        lab.do(_write(1))
        gone = RowMutation(b"1", deletes=[DeleteVersion(b"cf", b"q", 1)])
        lab.do(lambda store: store.write({"t": [gone]}))  # noqa: B023 - at once
        assert lab.rows() == []
        lab.shared.lose_power()
        (row,) = lab.shared.memory.get("t", [b"1"])
        found.add(tuple(cell.value for cell in row))
    assert found == {(b"old",), (b"v",), ()}


@pytest.mark.parametrize(
    "new_count", [NEW_BY_DAY, pytest.param(NEW_BY_NIGHT, marks=pytest.mark.nightly)]
)
def test_new_seeds_in_the_dark_find_nothing(new_count: int) -> None:
    """And power is lost in each, else it proves nothing: seeds that spare it are passed by."""
    seeds = itertools.count(int(time.time() // 86_400) * 10 * new_count)
    dark = (
        seed
        for seed in seeds
        if any(fault.kind == "power" for fault in drawn_plan(seed, DARK).faults)
    )
    for seed in itertools.islice(dark, new_count):
        report = simulate(seed, focus=DARK)
        assert not report.findings, report
        assert report.counts["fault power"] > 0


def test_a_control_table_is_among_the_facts() -> None:
    """Else nothing that an oracle forgets to sync would be lost on a cluster."""
    lab = _Lab(3, "cluster")
    assert not lab.shared.disk.is_quick(CONTROL_TABLE, [_put(1)], "oracle-a")
    assert lab.shared.disk.is_quick("t", [_put(1)], "client-0")
    assert not lab.shared.disk.is_quick("t", [_put(1)], "compactor-a")
