"""A `with` block that ended is not taken for one that runs, however it ended."""

from __future__ import annotations

import contextlib

import pytest

import omidpy
from omidpy.tx.transaction import Transaction
from tests.machines.interrupts.lines import Interrupt, Interrupter


@pytest.fixture(name="tm")
def manager() -> omidpy.TransactionManager:
    """Return a store in memory with a table."""
    tm = omidpy.connect("memory:")
    tm.create_table("t", families=["f"])
    return tm


def joins(tm: omidpy.TransactionManager, tx: Transaction) -> bool:
    """Say whether a function called here and now would be part of a transaction."""
    return tm.transactional(lambda inner: inner is tx)()


def test_a_function_joins_the_block_around_it(tm: omidpy.TransactionManager) -> None:
    """Also where something else than a `with` statement entered it, or looked at its end."""
    with tm.begin() as tx:
        assert tx.__exit__ is not None
        assert joins(tm, tx)
    assert not joins(tm, tx)
    with contextlib.ExitStack() as stack:
        tx = stack.enter_context(tm.begin())
        assert tx.__exit__ is not None
        assert joins(tm, tx)
    for attempt in tm.attempts():
        with attempt as tx:
            assert joins(tm, tx)
    tm.close()


@pytest.mark.parametrize("is_attempt", [False, True])
def test_a_block_whose_end_was_interrupted_is_joined_by_nobody(
    tm: omidpy.TransactionManager,
    is_attempt: bool,  # noqa: FBT001 - from the parameters
) -> None:
    """The function would return as if it had committed, and nothing ever would."""
    entered: list[Transaction] = []
    interrupter = Interrupter()

    def use() -> None:
        block = next(iter(tm.attempts())) if is_attempt else tm.begin()
        with block as tx:
            entered.append(tx)

    lines = interrupter.lines(use)
    end = 1 + next(i for i, line in enumerate(lines) if line.function.endswith("__exit__"))
    with pytest.raises(Interrupt):
        interrupter.interrupt(use, end, Interrupt())
    assert entered[-1].status == "running", "its end never began"
    assert not joins(tm, entered[-1])
    with tm.begin() as outer:
        assert joins(tm, outer)
    tm.close()


def test_the_block_around_one_that_was_interrupted_is_joined(tm: omidpy.TransactionManager) -> None:
    """What is inside it ends with the exception, and it goes on."""
    with tm.begin() as outer:
        inner = tm.begin()
        with pytest.raises(Interrupt):
            Interrupter().interrupt(lambda: _enter(inner), _lines_of_enter(tm), Interrupt())
        assert joins(tm, outer)
    tm.close()


def _enter(tx: Transaction) -> None:
    with tx:
        pass


def _lines_of_enter(tm: omidpy.TransactionManager) -> int:
    """Return which line of `_enter` is the first of the end of the block."""
    lines = Interrupter().lines(lambda: _enter(tm.begin()))
    begins = len(Interrupter().lines(tm.begin))
    return 1 + next(
        index for index, line in enumerate(lines[begins:]) if line.function.endswith("__exit__")
    )
