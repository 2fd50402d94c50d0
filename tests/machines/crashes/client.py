"""One client's life, up to its end, in a process of its own that is really killed.

The processes are forked from a server that has everything imported, so that one takes a tenth of a
second.  A client that only sees an effect fail lives here, in the test's own process.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

import omidpy
from omidpy.connect import open_oracle
from omidpy.errors import OmidError
from omidpy.manager import TransactionManager
from omidpy.model import Timestamp
from omidpy.opening import open_store
from omidpy.testing.faults import kill
from omidpy.tx.transaction import Transaction
from tests.machines.crashes.mortal import (
    Death,
    Effect,
    Ending,
    HeldUp,
    Moment,
    MortalOracle,
    MortalStore,
)
from tests.machines.crashes.scenarios import SCENARIOS, Life
from tests.machines.forks import PROCESSES

KILLED: Final = -9
DEADLINE_S: Final = 120.0
_NEVER: Final = Timestamp(0)


@dataclass(frozen=True)
class Task:
    """Which life to live, and where."""

    url: str
    tso: str
    scenario: str
    key: bytes
    moment: Moment | None
    """None lives to the end."""
    ending: Ending


@dataclass
class Testament:
    """What is known of a life after its end."""

    start_ts: Timestamp = _NEVER
    effects: tuple[Effect, ...] = ()
    """Only of those who lived to the end of their transaction."""
    status: str | None = None
    """What the client was told, if it lived to hear it."""
    commit_ts: int | None = None
    held_up: HeldUp | None = None
    """What it sent, and what has not arrived yet."""
    error: OmidError | None = None
    problem: str | None = None
    """A mistake of the test, if there was one."""


Tell = Callable[[Testament], object]


def live(task: Task, death: Death, tell: Tell) -> None:
    """Live until the moment, or to the end; `tell` what happened as soon as it has."""
    scenario = SCENARIOS[task.scenario]
    store = open_store(task.url)
    oracle = open_oracle(store, task.tso)
    told = Testament()

    def hold_up(sent: HeldUp) -> None:
        told.held_up = sent
        tell(told)

    tm = TransactionManager(
        MortalStore(store, death, hold_up),
        MortalOracle(oracle, death, task.tso, hold_up),
        post_commit=scenario.post_commit,
        conflict_level=scenario.level,
    )
    begun: list[Transaction] = []

    def began(tx: Transaction) -> None:
        begun.append(tx)
        told.start_ts = tx.start_ts
        tell(told)

    def rival() -> TransactionManager:
        return omidpy.connect(task.url, task.tso, conflict_level=scenario.level)

    with tm:
        try:
            scenario.run(Life(tm, rival, task.key, began))
        except OmidError as error:
            told.error = error
        tm.session.post_committer.drain()
        (tx,) = begun
        told.status, told.commit_ts = tx.status.value, tx.commit_ts
        told.effects = tuple(death.effects)
        tell(told)


def live_and_die(task: Task) -> Testament:
    """Live a life in another process, which is killed at its moment or else at the end."""
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_in_a_process, args=(task, theirs), daemon=True)
    process.start()
    theirs.close()
    told = Testament()
    try:
        while ours.poll(DEADLINE_S):
            told = ours.recv()
    except EOFError:
        pass
    process.join(DEADLINE_S)
    code = process.exitcode
    if code is None:
        process.kill()
    process.join()
    process.close()
    ours.close()
    assert told.problem is None, f"{task}\n{told.problem}"
    assert code == KILLED, f"{task} ended with {code}"
    return told


def live_on(task: Task) -> Testament:
    """Live a life in this process, in which an effect fails at the moment."""
    found = Testament()

    def tell(told: Testament) -> None:
        nonlocal found
        found = told

    live(task, Death(task.moment, task.ending), tell)
    return found


def _in_a_process(task: Task, report: Connection) -> None:
    try:
        live(task, Death(task.moment, task.ending), report.send)
    except BaseException:
        report.send(Testament(problem=traceback.format_exc()))
        raise
    kill()
