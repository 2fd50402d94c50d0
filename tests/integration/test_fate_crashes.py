"""Executors are killed before and after every write, and a fresh one finishes: the same world.

In memory every moment is simulated, and every answer is lost once.  On a file, on HBase and in
ZooKeeper a moment is a real process that is really killed: by day at a sample of them, and at all
of them at night.  What is done: `tests/machines/fate_crashes/`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from omidpy.base.timing.clock import SystemClock
from omidpy.fate.running.executor import Executor
from omidpy.fate.store import FateStore
from omidpy.fate.table.store import TableFateStore
from omidpy.fate.zookeeper.session import Delete
from omidpy.fate.zookeeper.store import ZooKeeperFateStore
from tests.machines.fate_crashes.lives import (
    DEATHS,
    LEASE_S,
    Ending,
    Task,
    live,
    live_and_die,
    moments,
    sweep,
)
from tests.machines.fate_crashes.places import in_a_file, in_zookeeper, on_hbase
from tests.machines.fate_crashes.simulation import (
    LEAST_WRITES,
    check_deaths,
    check_deaths_of_two,
    check_lost_answers,
)
from tests.machines.fate_crashes.world import ENDS, End, end_of
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import open_hbase

pytestmark = [pytest.mark.integration, pytest.mark.in_memory]

ROAD_BY_DAY: Final = Road.DIRECT

SAMPLED: Final = 13
"""One of so many moments by day, on servers."""
IN_A_FILE: Final = 3
"""The same, of real processes on a file: what is simulated in memory is every moment."""


@pytest.fixture(params=["well", "badly"])
def how(request: pytest.FixtureRequest) -> str:
    """Return how the operation ends: it succeeds, or is rolled back."""
    chosen: str = request.param
    return chosen


# -- simulated -------------------------------------------------------------------------------------


def test_whenever_an_executor_dies_the_next_one_finishes(tmp_path: Path, how: str) -> None:
    """Before and after every single write, in memory."""
    check_deaths(tmp_path, ends_well=how == "well")


def test_whenever_two_die_one_after_the_other_the_third_finishes(tmp_path: Path, how: str) -> None:
    """A successor is no safer than its predecessor."""
    check_deaths_of_two(tmp_path, ends_well=how == "well")


@pytest.mark.parametrize("ending", [Ending.LOST, Ending.FAILED, Ending.HELD_UP])
def test_whichever_answer_is_lost_the_executor_goes_on(
    tmp_path: Path, how: str, ending: Ending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Done or not, or on its way: what arrives when all is over changes nothing."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(Executor, "_patience", lambda *_: True)
    check_lost_answers(tmp_path, ending, ends_well=how == "well")


# -- real ------------------------------------------------------------------------------------------


def bury(fates: FateStore) -> None:
    """Do what an ensemble does once the sessions of the dead have timed out."""
    if isinstance(fates, ZooKeeperFateStore):
        for worker in fates.worker_names():
            fates._session.change([Delete(f"{fates._path}/workers/{worker}")])


def ended(task: Task, opened: Callable[[], FateStore]) -> End:
    """Let a fresh executor finish; return what is left."""
    fates = opened()
    bury(fates)
    live(task, fates, SystemClock())
    sweep(fates, SystemClock())
    found = end_of(task.folder, fates)
    fates.close()
    if isinstance(fates, TableFateStore):
        fates._store.close()
    return found


def check_all(
    folder: Path,
    place: Callable[[], Callable[[], FateStore]],
    *,
    ends_well: bool,
    every: int,
    lease_s: float = LEASE_S,
) -> None:
    """Let processes be killed at moments of their lives, each on a store of its own."""

    def task(name: str) -> Task:
        (folder / name).mkdir()
        return Task(folder / name, ends_well, lease_s)

    opened, spared = place(), task("spared")
    count = live_and_die(spared, opened, None)
    assert count > LEAST_WRITES
    assert ended(spared, opened) == ENDS[ends_well]
    for moment in moments(count, DEATHS, every=every):
        opened, doomed = place(), task(f"{moment}")
        live_and_die(doomed, opened, moment)
        assert ended(doomed, opened) == ENDS[ends_well], moment


@pytest.mark.parametrize("every", [IN_A_FILE, pytest.param(1, marks=pytest.mark.nightly)])
def test_whenever_a_process_is_killed_the_next_one_finishes_on_a_file(
    tmp_path: Path,
    how: str,
    every: int,
) -> None:
    """Before some writes and after others; by night before and after every single one."""
    names = (str(number) for number in range(1000))
    check_all(
        tmp_path,
        lambda: partial(in_a_file, tmp_path / f"{next(names)}.db"),
        ends_well=how == "well",
        every=every,
        lease_s=60.0,  # a lock tells at once that its process is gone
    )


@pytest.mark.parametrize("every", [SAMPLED, pytest.param(1, marks=pytest.mark.nightly)])
def test_whenever_a_process_is_killed_the_next_one_finishes_on_hbase(
    tmp_path: Path,
    hbase: HBase,
    how: str,
    every: int,
) -> None:
    """Once its lease is over."""
    made: list[str] = []

    def place() -> Callable[[], FateStore]:
        made.append(f"FATE_{uuid.uuid4().hex}")
        return partial(on_hbase, hbase.url, made[-1])

    try:
        # A judge that looks less often than twice a lease, on a busy machine, buries nobody.
        check_all(tmp_path, place, ends_well=how == "well", every=every, lease_s=1.5)
    finally:
        store = open_hbase(hbase)
        there = {schema.name for schema in store.tables()}
        for table in set(made) & there:
            store.drop_table(table)
        store.close()


@pytest.mark.parametrize("every", [SAMPLED, pytest.param(1, marks=pytest.mark.nightly)])
def test_whenever_a_process_is_killed_the_next_one_finishes_in_zookeeper(
    tmp_path: Path,
    hbase: HBase,
    how: str,
    every: int,
) -> None:
    """Once the ensemble has ended its session."""

    def place() -> Callable[[], FateStore]:
        return partial(in_zookeeper, hbase.zookeeper, f"/omidpy-test/{uuid.uuid4().hex}/fate")

    check_all(tmp_path, place, ends_well=how == "well", every=every)
