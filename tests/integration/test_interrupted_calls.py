"""An exception at any line of any public call leaves everything usable (invariant I11).

Every test here takes a sample of the places that a call reaches, the same each time; the nightly
ones take every line.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

import pytest

from omidpy.manager import TransactionManager
from omidpy.tx.batch import Batch
from omidpy.tx.parts.worker import Worker
from omidpy.tx.table import TransactionalTable
from omidpy.tx.transaction import Transaction
from tests.machines.hbase import HBase
from tests.machines.hbase_store import empty_hbase
from tests.machines.interrupts.calls import CALLS, Round
from tests.machines.interrupts.lines import Interrupt, Interrupter, Place, TimeLimit
from tests.machines.interrupts.sweep import Choice, World, sweep, sweep_close, sweep_open
from tests.machines.interrupts.worlds import MEMORY, a_file, a_server, beside_a_server

pytestmark = [
    pytest.mark.integration,
    # What comes while something is collected reaches nobody.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SEED = 9

WRITES = (
    "block",
    "put",
    "delete",
    "batch",
    "counters",
    "flush",
    "savepoint",
    "undone_savepoint",
    "undone_flushed_savepoint",
    "commit",
    "worker",
    "discarded_worker",
)
"""Calls that change what a transaction has written."""

ASKS = ("begin", "begin_again", "commit", "fence", "outcome")
"""Calls that ask an oracle."""


def some(count: int) -> Callable[[list[int]], list[int]]:
    """Return what picks so many numbers, always the same."""

    def pick(numbers: list[int]) -> list[int]:
        return sorted(random.Random(SEED).sample(numbers, min(count, len(numbers))))

    return pick


def sampled(
    world: World, names: Iterable[str], count: int, known: set[Place], *, insists: bool = False
) -> int:
    """Interrupt calls in so many places each, none of which is known; return how many that were."""
    choice = Choice(known=known, some=some(count))
    return sum(sweep(world, name, choice, insists=insists).count for name in names)


def test_every_call_on_a_file_and_in_memory() -> None:
    """What memory shares with the file counts as a place of the file."""
    known: set[Place] = set()
    with a_file() as file:
        assert sampled(file, CALLS, 30, known) > 500
    assert sampled(MEMORY, CALLS, 10, known) > 100


def test_what_was_interrupted_may_be_committed_all_the_same() -> None:
    """Then each write of the transaction is whole or absent, or the commit says that it may not."""
    assert sampled(MEMORY, WRITES, 30, set(), insists=True) > 250


def test_a_store_whose_opening_or_closing_was_interrupted_can_be_opened() -> None:
    """The lock of the oracle would say that the store has one already, in this very process."""
    choice = Choice(some=some(30))
    sweep_open(MEMORY, choice)
    sweep_close(MEMORY, choice)
    with a_file() as file:
        sweep_open(file, choice)
        sweep_close(file, choice)


def test_calls_beside_a_server() -> None:
    """A thread that is taken out of a call ends the connection; others ask on a new one."""
    with a_server() as world:
        assert sampled(world, ASKS, 20, set()) > 75
        sweep_open(world, Choice(some=some(20)))
        sweep_close(world, Choice(some=some(20)))


@pytest.mark.hbase
@pytest.mark.parametrize(
    ("road", "count"),
    [
        ("direct_url", 2),
        *(
            pytest.param(road, 4, marks=pytest.mark.nightly)
            for road in ("direct_url", "thrift2_url")
        ),
    ],
)
def test_calls_on_hbase(hbase: HBase, road: str, count: int) -> None:
    """A connection is shared by threads too, and half a call must not be used on."""
    calls = [name for name in CALLS if name != "create_and_drop_table"]  # which takes seconds
    with empty_hbase(hbase), beside_a_server(getattr(hbase, road)) as world:
        assert sampled(world, calls, count, set()) > 25 * count
        sweep_open(world, Choice(some=some(count)))
        sweep_close(world, Choice(some=some(count)))


def test_no_public_call_is_left_out() -> None:
    """A call that nobody interrupts is one of which nothing is known."""
    reached: set[str] = set()
    tm = MEMORY.opened()
    for prepare in CALLS.values():
        one = Round(tm)
        one.prepare()
        lines = Interrupter().lines(lambda: prepare(one)())  # noqa: B023, PLW0108 - both, at once
        reached.update(line.function for line in lines)
    tm.close()
    public = {
        method.__qualname__
        for owner in (TransactionManager, Transaction, TransactionalTable, Batch, Worker)
        for name, method in inspect.getmembers(owner, inspect.isfunction)
        if not name.startswith("_")
    }
    # `sweep_close` interrupts `close`; `scan_arrow` reads as `scan` does, and needs pyarrow; queues
    # have a sweep of their own, in `tests/unit/recipes/test_export_interrupts.py`, and so has what
    # publishes files, in `test_published.py`; tables of Phoenix's are none of these.  Frames are
    # read as `scan` reads and written as a batch is, and need pyarrow.
    assert public - reached == {
        "Frames.read_arrow",
        "Frames.write_arrow",
        "TransactionManager.scan_arrow",
        "TransactionManager.write_arrow",
        "TransactionManager.close",
        "TransactionalTable.scan_arrow",
        "Transaction.after_rollback",
        "Transaction.before_commit",
        "Transaction.before_commit_last",
        "Transaction.changes",
        "Transaction.check_unindexed",
        "Transaction.publish",
        "Transaction.published",
        "Transaction.queue",
        "Transaction.when_undone",
        "Transaction.whole",
        "Worker.check_unindexed",
        "Worker.queue",
    }


@pytest.mark.nightly
@pytest.mark.hbase
@pytest.mark.parametrize("insists", [False, True])
def test_many_places_on_hbase(hbase: HBase, insists: bool) -> None:  # noqa: FBT001 - from the parameters
    """Some hundreds more, of every call."""
    with empty_hbase(hbase) as url, beside_a_server(url) as world:
        sampled(world, CALLS, 60, set(), insists=insists)
        sweep_open(world, Choice(some=some(60)))
        sweep_close(world, Choice(some=some(60)))


@pytest.mark.nightly
@pytest.mark.parametrize("error", [Interrupt, TimeLimit])
@pytest.mark.parametrize("insists", [False, True])
@pytest.mark.parametrize("opened", [lambda: nullcontext(MEMORY), a_file, a_server])
def test_every_line_as_often_as_it_is_reached(
    opened: Callable[[], AbstractContextManager[World]],
    insists: bool,  # noqa: FBT001 - from the parameters
    error: type[BaseException],
) -> None:
    """The same line, reached for the tenth time, is in another state of everything else."""
    choice = Choice(every=True, error=error)
    with opened() as world:
        for name in CALLS:
            sweep(world, name, choice, insists=insists)
        sweep_open(world, choice)
        sweep_close(world, choice)
