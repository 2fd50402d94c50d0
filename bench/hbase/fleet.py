"""Processes that all do the same for some seconds, and say how long each operation took.

They live for the whole measurement, so that no round pays for the start of an interpreter.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from types import TracebackType
from typing import Final, NamedTuple, Self

from bench.hbase import work

_START_TIMEOUT_S: Final = 120.0
_POLL_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Job:
    """What each process does next."""

    kind: str
    """A key of `work.KINDS`."""
    rows: int
    """Rows of one operation."""
    threads: int
    """Threads of each process that do it."""
    seconds: float
    seed: int


class Answer(NamedTuple):
    """What became of a job."""

    latencies_s: list[float]
    """Of the operations that ended within the time."""
    elapsed_s: float
    """Until nothing was left to do in the background either."""

    @property
    def per_second(self) -> float:
        """Operations a second."""
        return len(self.latencies_s) / self.elapsed_s


class Fleet:
    """Some processes; a job runs in all of them at the same time."""

    def __init__(self, count: int, where: work.Where) -> None:
        """Start `count` processes that work at `where`."""
        context = multiprocessing.get_context("spawn")
        # Kept: a process that unpickles it later finds it only while it lives here.
        self._barrier = context.Barrier(count)
        self._pipes: list[Connection] = []
        self._processes = []
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(number, where, self._barrier, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    @property
    def pids(self) -> list[int]:
        """Ids of its processes."""
        return [process.pid for process in self._processes if process.pid is not None]

    def run(self, job: Job) -> Answer:
        """Do a job in every process.

        Raises:
            RuntimeError: a process failed; the message is its error.
        """
        for pipe in self._pipes:
            pipe.send(job)
        answers: list[Answer] = []
        for pipe in self._pipes:
            if not pipe.poll(_POLL_TIMEOUT_S):
                raise RuntimeError(f"a worker has not answered for {_POLL_TIMEOUT_S:g} s")
            match pipe.recv():
                case Answer() as answer:
                    answers.append(answer)
                case failure:
                    raise RuntimeError(f"a worker failed: {failure}")
        return Answer(
            [latency for answer in answers for latency in answer.latencies_s],
            max(answer.elapsed_s for answer in answers),
        )

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(_START_TIMEOUT_S)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the processes."""
        self.close()


def _serve(number: int, where: work.Where, barrier: Barrier, pipe: Connection) -> None:
    with work.Clients(where) as clients:
        while True:
            try:
                job = pipe.recv()
            except EOFError:
                return
            try:
                pipe.send(_done(job, number, clients, barrier))
            except Exception as error:  # noqa: BLE001 - whoever waits for the answer raises it
                barrier.abort()
                pipe.send(f"{type(error).__name__}: {error}")


def _done(job: Job, number: int, clients: work.Clients, barrier: Barrier) -> Answer:
    prepared = [
        work.KINDS[job.kind](clients, job.rows, random.Random(f"{job.seed} {number} {thread}"))
        for thread in range(job.threads)
    ]
    for operation in prepared:
        operation()
    barrier.wait(_START_TIMEOUT_S)
    began_s = time.perf_counter()
    deadline_s = began_s + job.seconds
    found: list[list[float]] = [[] for _ in prepared]
    threads = [
        threading.Thread(target=_repeat, args=(operation, deadline_s, latencies))
        for operation, latencies in zip(prepared[1:], found[1:], strict=True)
    ]
    for thread in threads:
        thread.start()
    _repeat(prepared[0], deadline_s, found[0])
    for thread in threads:
        thread.join()
    clients.drain()
    elapsed_s = time.perf_counter() - began_s
    return Answer([latency for latencies in found for latency in latencies], elapsed_s)


def _repeat(operation: Callable[[], object], deadline_s: float, latencies: list[float]) -> None:
    while (began_s := time.perf_counter()) < deadline_s:
        operation()
        latencies.append(time.perf_counter() - began_s)
