"""Runs several loaders, and kills some of them at random instants.

Chunks of flights lie on one list; each loader gets the next one when it is done with its last.
What a killed loader had not reported goes back on the list, and a new process takes its place.  One
thread and one selector: the parent waits, counts, kills, and lets its caller look on.
"""

from __future__ import annotations

import os
import random
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Final

import msgspec

from bench.demo.flights import Flight, chunks
from bench.demo.loader import Report
from bench.processes import ROOT

CHUNK_FLIGHTS: Final = 50
"""A chunk fits into a pipe's buffer, so that handing it over never waits for a loader to start."""

LOADERS: Final = 4
LEAST_KILLS: Final = 12
FLIGHTS_PER_KILL: Final = 500
LONGEST_AIM_S: Final = 0.05
"""A kill follows the report that triggers it by a random part of this: it may hit anywhere."""

_POLL_S: Final = 0.05


@dataclass
class Totals:
    """What all loaders did together."""

    loaded: int = 0
    found_loaded: int = 0
    conflicts: int = 0
    retries: int = 0
    kills_s: list[float] = field(default_factory=list)
    """When loaders were killed, by the monotonic clock."""
    seconds: float = 0.0

    @property
    def done(self) -> int:
        """Flights of which a loader said that they are in the store."""
        return self.loaded + self.found_loaded

    def add(self, report: Report) -> None:
        """Count a report."""
        self.loaded += report.loaded
        self.found_loaded += report.found_loaded
        self.conflicts += report.conflicts
        self.retries += report.retries


class Loader:
    """One loader process and what it is at."""

    def __init__(self, *, store: str, tso: str, log: IO[bytes]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.demo.loader", "--store", store, "--tso", tso],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin
        self.stdout = self._process.stdout
        self.chunk: Sequence[Flight] = ()
        """The flights that it was given and has not reported yet."""
        self.has_begun = False
        """Whether it has said anything; before that a kill would hit a starting interpreter."""
        self.was_killed = False
        self._unread = b""

    def give(self, chunk: Sequence[Flight]) -> None:
        """Hand over the next chunk; a loader that died meanwhile is noticed when it is read."""
        self.chunk = chunk
        try:
            self._stdin.write(msgspec.json.encode(chunk) + b"\n")
            self._stdin.flush()
        except BrokenPipeError:
            return

    def read(self) -> list[Report] | None:
        """Return the reports that have arrived; None at the end of its output."""
        data = os.read(self.stdout.fileno(), 65536)
        if not data:
            return None
        self.has_begun = True
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [msgspec.json.decode(line, type=Report) for line in lines]

    def finish(self) -> None:
        """Let the loader stop: it reads the end of its input."""
        try:
            self._stdin.close()
        except BrokenPipeError:
            return

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        self.was_killed = True
        self._process.kill()

    def reap(self) -> int:
        """Return the exit status of a loader whose output ended."""
        status = self._process.wait()
        self.finish()
        self.stdout.close()
        return status


class Load:
    """Loads flights with processes that do not all live to see the end of it."""

    def __init__(
        self,
        flights: Sequence[Flight],
        *,
        seed: int,
        new_loader: Callable[[], Loader],
        look_on: Callable[[Totals], None],
    ) -> None:
        self.totals = Totals()
        self._waiting = deque(chunks(flights, CHUNK_FLIGHTS))
        self._new_loader = new_loader
        self._look_on = look_on
        self._loaders: list[Loader] = []
        self._selector = selectors.DefaultSelector()
        self._rng = random.Random(seed)
        kill_count = max(LEAST_KILLS, len(flights) // FLIGHTS_PER_KILL)
        points = (self._rng.uniform(0.01, 0.95) * len(flights) for _ in range(kill_count))
        self._kill_after = deque(sorted(points))
        self._kill_due_s: float | None = None

    def run(self) -> Totals:
        """Load everything.

        Raises:
            RuntimeError: a loader failed by itself.
        """
        began_s = time.monotonic()
        try:
            for _ in range(LOADERS):
                self._start_loader()
            while self._loaders:
                for key, _ in self._selector.select(_POLL_S):
                    self._hear(key.data)
                self._aim_and_kill()
                self._look_on(self.totals)
        finally:
            for loader in self._loaders:
                loader.kill()
                loader.reap()
            self._selector.close()
        self.totals.seconds = time.monotonic() - began_s
        return self.totals

    def _start_loader(self) -> None:
        loader = self._new_loader()
        self._loaders.append(loader)
        self._selector.register(loader.stdout, selectors.EVENT_READ, loader)
        self._feed(loader)

    def _feed(self, loader: Loader) -> None:
        if self._waiting:
            loader.give(self._waiting.popleft())
        else:
            loader.finish()

    def _hear(self, loader: Loader) -> None:
        reports = loader.read()
        if reports is None:
            self._bury(loader)
            return
        for report in reports:
            self.totals.add(report)
            loader.chunk = loader.chunk[report.loaded + report.found_loaded :]
            if not loader.chunk:
                self._feed(loader)

    def _bury(self, loader: Loader) -> None:
        self._selector.unregister(loader.stdout)
        self._loaders.remove(loader)
        status = loader.reap()
        if loader.was_killed:
            if loader.chunk:
                self._waiting.appendleft(loader.chunk)
            if self._waiting:
                self._start_loader()
        elif status != 0:
            name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            raise RuntimeError(f"a loader failed by itself ({name})")

    def _aim_and_kill(self) -> None:
        now_s = time.monotonic()
        if self._kill_due_s is None:
            if self._kill_after and self.totals.done >= self._kill_after[0]:
                self._kill_after.popleft()
                self._kill_due_s = now_s + self._rng.uniform(0, LONGEST_AIM_S)
            return
        at_work = [loader for loader in self._loaders if loader.has_begun and loader.chunk]
        if now_s >= self._kill_due_s and at_work:
            self._rng.choice(at_work).kill()
            self.totals.kills_s.append(now_s)
            self._kill_due_s = None
