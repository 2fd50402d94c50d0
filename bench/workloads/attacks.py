"""What does a healthy client of `tso-server` feel while a stranger attacks, and what does it cost?

A healthy client begins and commits ten cells two hundred times a second; beside it, from a process
of its own, comes one attack after another, each some hundred kilobytes a second, which is what one
stranger with a slow line can send.  Measured are the latencies, the memory that the server takes
beyond what it took at rest, the commits that were refused, and how long it takes until the client
is served as before once the attacker is gone.

The server persists nothing, so that no disk is measured.  It has a core of its own, and the
attacker, who would have another machine, gives way to the healthy client: otherwise what is found
is how long the scheduler lets two of them wait for a third.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import resource
import socket
import statistics
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from bench.measure import Result, latencies, paced, percentile, resident_mib
from bench.processes import on_core, tso_server
from omidpy.model import CellId, TableId, Timestamp
from omidpy.oracle.address import parse_address
from omidpy.oracle.base import CommitGranted
from omidpy.oracle.tcp import TcpOracle
from omidpy.wire.frames import (
    MAX_RESPONSE_FRAME_BYTES,
    FrameReader,
    decode_response,
    frame_request,
)
from omidpy.wire.messages import (
    ALL_FEATURES,
    CommitRequest,
    FenceRequest,
    HandshakeRequest,
    InvalidateRequest,
    PeerCapabilities,
    Request,
    Response,
    TimestampRequest,
    TimestampResponse,
)
from tso.core.settings import DEFAULT_MAP_SIZE

PER_S: Final = 200.0
CELLS: Final = 10
SETTLING_S: Final = 2.0
"""How long an attack goes on before anything is measured."""

AFTER_S: Final = 3.0
"""How long the client is watched when an attack has ended."""
WINDOW_S: Final = 0.1
"""In such pieces, of which the median counts: a single slow answer is no attack."""
MAX_SLOWDOWN: Final = 3.0
"""So many times the p99 at rest is as before."""

GIVES_WAY: Final = 19
"""How nice an attacker is to the client beside it."""

LARGE_COMMIT: Final = 1_000_000
"""Cells."""

SILENT_COUNT: Final = 4200
"""More connections than there are places."""

Attack: TypeAlias = Callable[[str], None]


def measure(directory: Path, *, seconds: float, names: Sequence[str] = ()) -> list[Result]:
    """Measure attacks, all or those named, for some seconds each, on a server of its own."""
    chosen = names or (NO_ATTACK, *ATTACKS)
    return [result for name in chosen for result in _measure(directory, name, seconds)]


def _measure(directory: Path, name: str, seconds: float) -> list[Result]:
    pids: list[int] = []
    log = directory / "attacked.log"
    count = max(2, round(PER_S * seconds))
    load = f"{PER_S:.0f} a second, 1 client"
    cores = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as resources:
        with on_core(cores[-1]):
            address = resources.enter_context(tso_server("null:", log=log, on_start=pids.append))
        resources.enter_context(on_core(cores[0]))
        oracle = resources.enter_context(closing(TcpOracle(address)))
        client = _Healthy(oracle)
        if name in OF_LARGE_COMMITS:
            _turn_over(address)
        at_rest = paced(client.transact, per_second=PER_S, count=count)
        before_mib = resident_mib(pids[0])
        client.refused_count = 0
        with _attacked(name, address) as end:
            time.sleep(min(seconds, SETTLING_S))
            found = paced(client.transact, per_second=PER_S, count=count)
            took_mib = resident_mib(pids[0]) - before_mib
            refused_count = client.refused_count
            end()
            after_count = max(1, round(PER_S * min(seconds, AFTER_S)))
            after = paced(client.transact, per_second=PER_S, count=after_count)
    recovery_s = recovered_after_s(after, MAX_SLOWDOWN * percentile(at_rest, 0.99))
    return [
        latencies(f"begin and commit before {name}", load, at_rest),
        latencies(f"begin and commit during {name}", load, found),
        Result(f"memory during {name}", load, mib=round(took_mib, 1), count=1),
        Result(f"refused during {name}", load, per_second=refused_count / seconds, count=count),
        Result(f"recovery after {name}", load, p50_ms=round(1000 * recovery_s), count=after_count),
    ]


def recovered_after_s(latencies_s: Sequence[float], bound_s: float) -> float:
    """Return how long operations were slow that began when an attack ended.

    It is the end of the last window whose median is above a bound; 0 if there is none.
    """
    size = round(PER_S * WINDOW_S)
    windows = [latencies_s[first : first + size] for first in range(0, len(latencies_s), size)]
    slow = [number for number, one in enumerate(windows) if statistics.median(one) > bound_s]
    return (slow[-1] + 1) * WINDOW_S if slow else 0.0


def _turn_over(address: str) -> None:
    """Write all of the conflict map once: an oracle that has run for a day has its memory.

    What is new is found by the kernel, and in virtual machines by their host, when it is written.
    """
    with closing(TcpOracle(address)) as oracle:
        for first in range(0, DEFAULT_MAP_SIZE + LARGE_COMMIT, LARGE_COMMIT):
            cells = [CellId(number) for number in range(first, first + LARGE_COMMIT)]
            oracle.commit(oracle.begin().start_ts, cells, [])


class _Healthy:
    """A client as it should be."""

    def __init__(self, oracle: TcpOracle) -> None:
        self._oracle = oracle
        self._dice = random.Random(1)
        self.refused_count = 0

    def transact(self) -> None:
        """Begin and commit."""
        start_ts = self._oracle.begin().start_ts
        cells = [CellId(self._dice.getrandbits(62)) for _ in range(CELLS)]
        verdict = self._oracle.commit(start_ts, cells, [])
        self.refused_count += not isinstance(verdict, CommitGranted)


@contextmanager
def _attacked(name: str, address: str) -> Iterator[Callable[[], None]]:
    """Attack, and yield what ends it at once, as if its host lost its power."""
    if name == NO_ATTACK:
        yield lambda: None
        return
    context = multiprocessing.get_context("spawn")
    attacker = context.Process(target=_attack, args=(name, address))
    attacker.start()
    try:
        yield attacker.kill
    finally:
        attacker.kill()
        attacker.join()


def _attack(name: str, address: str) -> None:
    """Attack again and again until it is killed; the server may hang up."""
    os.nice(GIVES_WAY)
    while True:
        with contextlib.suppress(OSError):
            ATTACKS[name](address)


# -- attacks ---------------------------------------------------------------------------------------


def _connected(
    address: str, *, client: int | None = None, source: str = "127.0.0.1"
) -> socket.socket:
    """Return a connection past its handshake, from an address of its own if it is to have one."""
    connection = socket.create_connection(
        parse_address(address), timeout=5, source_address=(source, 0)
    )
    capabilities = PeerCapabilities(int(ALL_FEATURES), client=client)
    connection.sendall(frame_request(HandshakeRequest(capabilities)))
    connection.recv(4096)
    return connection


def _flood(address: str, frames: bytes, *, per_second: float, reads: bool) -> None:
    """Send the same frames at a pace, on one connection."""
    with _connected(address) as connection:
        while True:
            time.sleep(1 / per_second)
            connection.sendall(frames)
            if reads:
                connection.recv(1 << 20)


def _repeated(request: Request, count: int) -> bytes:
    return frame_request(request) * count


def _bursts_of_begins(address: str) -> None:
    frames = _repeated(TimestampRequest(), 42_000)
    _flood(address, frames, per_second=1, reads=False)


def _padded_begins(address: str) -> None:
    padding = bytes((7 << 3 | 2,)) + b"\x80\x20" + bytes(4096)
    body = bytes((1 << 3 | 2, *_varint(len(padding)))) + padding
    _flood(address, struct.pack(">I", len(body)) + body, per_second=100, reads=False)


def _varint(number: int) -> tuple[int, int]:
    return number & 0x7F | 0x80, number >> 7


def _unread_answers(address: str) -> None:
    with contextlib.ExitStack() as stack:
        deaf = [stack.enter_context(_connected(address)) for _ in range(10)]
        frames = _repeated(TimestampRequest(), 2000)
        while True:
            time.sleep(0.3)
            for connection in deaf:
                connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    connection.send(frames)


def _unfinished_frames(address: str) -> None:
    with contextlib.ExitStack() as stack:
        hoarders = [stack.enter_context(_connected(address)) for _ in range(26)]
        for connection in hoarders:
            connection.sendall(struct.pack(">I", 10_000_000))
        while True:
            time.sleep(0.05)
            for connection in hoarders:
                connection.sendall(bytes(1000))


def _silent_connections(address: str) -> None:
    """Hold as many connections as there may be descriptors, from another address, and ask none."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    silent: deque[socket.socket] = deque()
    try:
        while True:
            if len(silent) == min(SILENT_COUNT, limit - 100):
                silent.popleft().close()
            with contextlib.suppress(TimeoutError):
                silent.append(
                    socket.create_connection(
                        parse_address(address), timeout=1, source_address=("127.0.0.2", 0)
                    )
                )
            time.sleep(0.002)
    finally:
        for connection in silent:
            connection.close()


def _million_cells(address: str) -> None:
    """Commit a million cells at once, which is what a large job does, from another address."""
    cells = tuple(map(CellId, range(LARGE_COMMIT)))
    with _connected(address, source="127.0.0.2") as connection:
        connection.settimeout(30)
        reader = FrameReader(max_frame_bytes=MAX_RESPONSE_FRAME_BYTES)

        def answer() -> Response:
            while not (found := reader.feed(_received(connection))):
                pass
            return decode_response(found[0])

        while True:
            connection.sendall(frame_request(TimestampRequest()))
            begun = answer()
            assert isinstance(begun, TimestampResponse)
            connection.sendall(frame_request(CommitRequest(begun.start_ts, cells)))
            answer()


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 16)
    if not data:
        raise ConnectionError("the server hung up")
    return data


def _huge_commits(address: str) -> None:
    with closing(TcpOracle(address)) as oracle:
        while True:
            time.sleep(1)
            start_ts = oracle.begin().start_ts
            oracle.commit(start_ts, [CellId(number) for number in range(300_000)], [])


def _fences_of_one_table(address: str) -> None:
    _flood(address, _repeated(FenceRequest(TableId(1)), 1000), per_second=10, reads=True)


def _unknown_invalidations(address: str) -> None:
    dice = random.Random(2)
    while True:
        time.sleep(0.01)
        with _connected(address) as connection:
            asked = InvalidateRequest(Timestamp(50 * dice.getrandbits(50)))
            connection.sendall(frame_request(asked))


def _holds(address: str) -> None:
    frames = _repeated(TimestampRequest(hold_ms=86_400_000), 500)
    _flood(address, frames, per_second=20, reads=True)


def _bad_connections(address: str) -> None:
    while True:
        time.sleep(0.003)
        with socket.create_connection(parse_address(address), timeout=5) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")


def _commits_of_others(address: str) -> None:
    with closing(TcpOracle(address)) as oracle:
        while True:
            time.sleep(0.005)
            with _connected(address) as connection:
                theirs = CommitRequest(oracle.begin().start_ts, (CellId(1),))
                connection.sendall(frame_request(theirs))


def _small_commits(address: str) -> None:
    """Turn the conflict map over, from another address: 300 kB/s, 100,000 cells a second."""
    count, cells = 100, 30
    first = 0
    with _connected(address, source="127.0.0.2") as connection:
        reader = FrameReader(max_frame_bytes=MAX_RESPONSE_FRAME_BYTES)

        def answers() -> list[Response]:
            found: list[Response] = []
            while len(found) < count:
                found += map(decode_response, reader.feed(_received(connection)))
            return found

        while True:
            time.sleep(0.03)
            connection.sendall(_repeated(TimestampRequest(), count))
            frames = bytearray()
            for answer in answers():
                if isinstance(answer, TimestampResponse):
                    written = tuple(map(CellId, range(first, first + cells)))
                    frames += frame_request(CommitRequest(answer.start_ts, written))
                    first = (first + cells) % 2_000_000
            connection.sendall(frames)
            answers()


NO_ATTACK: Final = "nothing"
OF_LARGE_COMMITS: Final = ("commits of 300,000 cells", "commits of a million cells")

ATTACKS: Final[Mapping[str, Attack]] = {
    "bursts of 42,000 begins": _bursts_of_begins,
    "begins padded to 4 KiB": _padded_begins,
    "answers that nobody reads": _unread_answers,
    "frames that do not end": _unfinished_frames,
    "commits of 300,000 cells": _huge_commits,
    "fences of one table": _fences_of_one_table,
    "invalidations of nothing": _unknown_invalidations,
    "holds of a day": _holds,
    "connections that speak HTTP": _bad_connections,
    "commits of others' transactions": _commits_of_others,
    "small commits without end": _small_commits,
    "connections that say nothing": _silent_connections,
    "commits of a million cells": _million_cells,
}
