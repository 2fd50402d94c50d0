"""Programs that are killed: who is counted, and what is told where a test fails beside them."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.machines.java import JavaDied
from tests.machines.phoenix_mortals import Mortals

FOR_EVER = ("timeit", "-n1", "-r1", "import time; print('moved', flush=True); time.sleep(600)")
IDLE = ("timeit", "-n1", "-r1", "import time; time.sleep(600)")
FAILS = ("timeit", "-n1", "-r1", "print('moved', flush=True); raise SystemExit(3)")
LONGEST_S = 20.0


class Client:
    """A process in which SQL would run."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    def open(self) -> Client:
        """Return a connection."""
        return self

    def kill(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait(LONGEST_S)


class Phoenix:
    """Makes such processes, and commits in them what is asked for."""

    def __init__(self, committed: int) -> None:
        self.committed = committed
        self.clients: list[Client] = []

    def client(self) -> Client:
        """Start one."""
        self.clients.append(Client())
        return self.clients[-1]

    def work(self, client: Any, _: int) -> int:
        """Commit something."""
        if client.process.poll() is not None:
            raise JavaDied("it has ended")
        time.sleep(0.01)
        return self.committed


class Chance(random.Random):
    """Chooses as it was told."""

    def __init__(self, *, sql: bool) -> None:
        super().__init__()
        self._sql = sql

    def random(self) -> float:
        """Return what chooses one of two kinds."""
        return 0.1 if self._sql else 0.9


def started(committed: int, program: tuple[str, ...]) -> Mortals:
    """Start both kinds."""
    phoenix: Any = Phoenix(committed)
    return Mortals(phoenix, in_sql=phoenix.work, in_python=lambda _: program)


def until(is_so: Callable[[], bool]) -> None:
    """Wait for it."""
    deadline_s = time.monotonic() + LONGEST_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    """Every thread has ended."""
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def test_each_kind_is_counted_when_it_is_killed() -> None:
    """And no kind alone is enough."""
    with started(1, FOR_EVER) as mortals:
        until(lambda: bool(mortals.committed and mortals.moved))
        mortals.kill(Chance(sql=True))
        assert (mortals.killed_in_sql, mortals.killed_in_python) == (1, 0)
        with pytest.raises(AssertionError, match="1 killed, in Python 1 and 0; problems: none"):
            mortals.check(least=0)
        mortals.kill(Chance(sql=False))
        assert (mortals.killed_in_sql, mortals.killed_in_python) == (1, 1)
        until(lambda: mortals.moved > 1)
        mortals.check(least=0)
    assert mortals.problems == []


def test_who_has_done_nothing_is_spared_and_not_counted() -> None:
    """A test that kills nobody fails."""
    with started(0, IDLE) as mortals:
        mortals.kill(Chance(sql=True))
        mortals.kill(Chance(sql=False))
    assert (mortals.killed_in_sql, mortals.killed_in_python) == (0, 0)
    mortals.committed = mortals.moved = 5
    with pytest.raises(AssertionError, match="5 commits and 0 killed"):
        mortals.check(least=1)


def fail_beside(mortals: Mortals) -> None:
    """Let a program end by itself, and then something else fail."""
    with mortals:
        until(lambda: bool(mortals.problems))
        mortals.kill(Chance(sql=False))
        assert mortals.killed_in_python == 0
        raise ValueError("beside them")


def test_what_fails_beside_them_tells_of_their_problems() -> None:
    """A program that ends by itself is one, and no kill."""
    with pytest.raises(ValueError, match="beside") as failed:
        fail_beside(started(1, FAILS))
    assert "a program in Python ended by itself, with 1" in "".join(failed.value.__notes__)
