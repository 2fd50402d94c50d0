"""Programs in SQL and in Python that work on the same tables, and are killed and started again.

with Mortals(phoenix, in_sql=..., in_python=...) as mortals:
    mortals.kill(chance)
mortals.check(least=10)
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

from tests.machines.java import JavaDied, JavaError
from tests.machines.phoenix import Connection, Phoenix
from tests.machines.processes import ROOT

LONGEST_S = 60.0
PAUSE_S = 0.2


class Mortals:
    """One program of each kind; whoever ends is started again.

    Attributes:
        committed: What those in SQL have committed.
        moved: Lines that those in Python have printed, one for each commit.
        killed_in_sql: How many of those in SQL were killed, each after it had committed something.
        killed_in_python: The same of those in Python.
        problems: What they failed of, beside being killed.
    """

    def __init__(
        self,
        phoenix: Phoenix,
        *,
        in_sql: Callable[[Connection, int], int],
        in_python: Callable[[int], Sequence[str]],
    ) -> None:
        """Start both.

        Args:
            phoenix: Where they work.
            in_sql: Works for some moments on a connection, by a seed; returns what it committed.
            in_python: Returns the module and the arguments of a program that works for ever, by a
                seed.
        """
        self._phoenix = phoenix
        self._in_sql = in_sql
        self._in_python = in_python
        self._seeds = iter(range(10_000))
        self._is_over = threading.Event()
        self.committed = 0
        self.moved = 0
        self.killed_in_sql = 0
        self.killed_in_python = 0
        self.problems: list[str] = []
        self._committed_before = 0
        self._moved_before = 0
        self.sql = phoenix.client()
        self._java = threading.Thread(target=self._work_in_sql)
        self._java.start()
        self._start_python()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        """Close it; what fails beside them tells of them."""
        self.close()
        if error is not None:
            error.add_note(str(self))

    def __str__(self) -> str:
        return (
            f"in SQL {self.committed} commits and {self.killed_in_sql} killed, in Python "
            f"{self.moved} and {self.killed_in_python}; problems: {self.problems or 'none'}"
        )

    def check(self, *, least: int) -> None:
        """Fail unless programs of both kinds have worked, and were killed."""
        assert self.committed > least, self
        assert self.moved > least, self
        assert self.killed_in_sql > 0, self
        assert self.killed_in_python > 0, self

    def kill(self, chance: random.Random) -> None:
        """Kill one of them as `kill -9` does, and let another take its place.

        Who has committed nothing yet is spared: on a busy machine nobody would ever begin.  Who has
        ended already is not counted.
        """
        if chance.random() < 0.5:
            if self.committed > self._committed_before:
                self._committed_before = self.committed
                self.killed_in_sql += self.sql.process.poll() is None
                self.sql.kill()
        elif self.moved > self._moved_before:
            self.killed_in_python += self._python.poll() is None
            self._end_python()
            self._start_python()

    def close(self) -> None:
        """End both; the second time does nothing."""
        if self._is_over.is_set():
            return
        self._is_over.set()
        self.sql.kill()
        self._java.join(LONGEST_S)
        self._end_python()

    def _work_in_sql(self) -> None:
        while not self._is_over.is_set():
            try:
                connection = self.sql.open()
                while not self._is_over.is_set():
                    self.committed += self._in_sql(connection, next(self._seeds))
            except JavaDied as error:
                if self.sql.process.wait(LONGEST_S) != -signal.SIGKILL:
                    self.problems.append(f"a program in SQL ended by itself: {error}")
                if not self._is_over.is_set():
                    self.sql = self._phoenix.client()
            except JavaError as error:
                # While an oracle takes the other's place; what it left is as a killed one's.
                self.problems.append(str(error))
                time.sleep(PAUSE_S)

    def _start_python(self) -> None:
        self._moved_before = self.moved
        self._python = subprocess.Popen(
            [sys.executable, "-m", *self._in_python(next(self._seeds))],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._count, args=(self._python,))
        self._reader.start()

    def _end_python(self) -> None:
        self._python.kill()
        self._reader.join(LONGEST_S)
        self._python.wait(LONGEST_S)

    def _count(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for _ in process.stdout:
                self.moved += 1
        if (code := process.wait(LONGEST_S)) != -signal.SIGKILL:
            self.problems.append(f"a program in Python ended by itself, with {code}")
