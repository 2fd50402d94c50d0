"""Ask any oracle that speaks Omid's protocol, as fast as it answers, at little cost of one's own.

Frames are made beforehand and have one length each, so that a timestamp goes from an answer into
the next request as nine bytes that nobody reads; all requests of a round are one write.  Only where
answers are fewer bytes than they would be if everything committed are they looked at one by one.

A connection sends a round of begins, takes their answers, sends the commits and takes theirs; a
transaction counts as ended when the last one of its round has its answer.  Of our extensions one at
most is announced, which changes no byte of these: that invalidations are left to the oracle.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import time
from typing import Final

import msgspec

from omidpy.model import CellId, TableId, Timestamp
from omidpy.oracle.address import parse_address
from omidpy.wire.frames import encode_request, frame_request
from omidpy.wire.messages import (
    CommitRequest,
    Feature,
    HandshakeRequest,
    PeerCapabilities,
    TimestampRequest,
)

CELLS: Final = 10
KEYS: Final = 10_000_000
"""Cells that transactions choose theirs from, all equally often."""

ROUNDS_AHEAD: Final = 64
"""Rounds of each connection whose cells are drawn beforehand; then they come again."""

_TIMEOUT_S: Final = 20.0
_RECEIVED_AT_ONCE: Final = 1 << 18
_BEGIN: Final = frame_request(TimestampRequest())

# A world timestamp takes nine bytes.  What stands before it in the answers to both requests:
_TIMESTAMP_BYTES: Final = 9
_BEGUN: Final = bytes.fromhex("0000000c 0a0a 08".replace(" ", ""))
_COMMITTED: Final = bytes.fromhex("00000018 1216 0800 10".replace(" ", ""))
_BEGUN_BYTES: Final = len(_BEGUN) + _TIMESTAMP_BYTES
_COMMITTED_BYTES: Final = len(_COMMITTED) + 2 * _TIMESTAMP_BYTES + 1
_ABORTED_BYTES: Final = _COMMITTED_BYTES - _TIMESTAMP_BYTES - 1
_SAMPLE_START_TS: Final = Timestamp(2**60)
_SPREAD: Final = 0x9E37_79B9_7F4A_7C15
_LENGTH: Final = struct.Struct(">I")


class Load(msgspec.Struct, frozen=True):
    """What is asked."""

    connections: int
    outstanding: int
    """Requests that each connection has under way."""
    commits: bool = True
    """False asks for timestamps alone."""
    features: Feature = Feature.INVALIDATE
    """What is announced; none is what Omid's clients announce."""

    @property
    def name(self) -> str:
        """How results call it."""
        what = "begin and commit of ten cells" if self.commits else "timestamps alone"
        return f"{what}, {self.connections} x {self.outstanding}"


class Answers(msgspec.Struct):
    """What came back."""

    count: int = 0
    """Transactions, or timestamps."""
    aborted_count: int = 0
    seconds: float = 0.0
    latencies: list[float] = msgspec.field(default_factory=list)
    """Of each round: from its first request to its last answer."""


def generate(address: str, load: Load, *, seconds: float, seed: int) -> Answers:
    """Keep an oracle busy for so long.

    Raises:
        RuntimeError: it answers something else than an oracle does.
    """
    dice = random.Random(seed)
    poll = select.epoll()
    lanes = {}
    try:
        for _ in range(load.connections):
            lane = _Lane(address, load, dice)
            lanes[lane.socket.fileno()] = lane
            poll.register(lane.socket, select.EPOLLIN)
        began_s = time.perf_counter()
        deadline_s = began_s + seconds
        for lane in lanes.values():
            lane.begin(began_s)
        busy_count = len(lanes)
        while busy_count:
            ready = poll.poll(_TIMEOUT_S)
            if not ready:
                raise RuntimeError(f"{address} answered nothing for {_TIMEOUT_S:.0f} s")
            for number, _ in ready:
                lane = lanes[number]
                now_s = lane.take()
                if not now_s:
                    continue
                if now_s < deadline_s:
                    lane.begin(now_s)
                else:
                    busy_count -= 1
        return Answers(
            sum(lane.found.count for lane in lanes.values()),
            sum(lane.found.aborted_count for lane in lanes.values()),
            time.perf_counter() - began_s,
            [latency for lane in lanes.values() for latency in lane.found.latencies],
        )
    finally:
        poll.close()
        for lane in lanes.values():
            lane.socket.close()


class _Lane:
    """One connection, and the round that is under way on it."""

    def __init__(self, address: str, load: Load, dice: random.Random) -> None:
        self.found = Answers()
        self.socket = socket.create_connection(parse_address(address), timeout=_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(frame_request(HandshakeRequest(PeerCapabilities(load.features))))
        self.socket.recv(4096)
        self._count = load.outstanding
        self._begins = _BEGIN * load.outstanding
        self._rounds = [_commits(load.outstanding, dice) for _ in range(ROUNDS_AHEAD)]
        self._stride = len(self._rounds[0]) // load.outstanding
        self._place = self._rounds[0].index(_START)
        self._wants_commits = load.commits
        self._is_committing = False
        self._buffer = bytearray(_RECEIVED_AT_ONCE)
        self._view = memoryview(self._buffer)
        self._length = 0
        self._began_s = 0.0
        self._number = 0

    def begin(self, now_s: float) -> None:
        """Ask for the timestamps of a round."""
        self._began_s = now_s
        self._length = 0
        self._is_committing = False
        self.socket.sendall(self._begins)

    def take(self) -> float:
        """Take what has arrived; return the time if the round ended, else 0."""
        received = self.socket.recv_into(self._view[self._length :])
        if not received:
            raise RuntimeError("the oracle hung up")
        self._length += received
        if not self._is_committing:
            if self._length < self._count * _BEGUN_BYTES:
                return 0.0
            self._check(_BEGUN, _BEGUN_BYTES)
            if self._wants_commits:
                self._commit()
                return 0.0
        elif self._length < self._count * _COMMITTED_BYTES and not self._has_aborts():
            return 0.0
        now_s = time.perf_counter()
        self.found.latencies.append(now_s - self._began_s)
        self.found.count += self._count
        return now_s

    def _commit(self) -> None:
        """Ask for the commits of what the buffer says has begun."""
        frames = self._rounds[self._number % ROUNDS_AHEAD]
        self._number += 1
        for place in range(_TIMESTAMP_BYTES):
            answered = self._buffer[len(_BEGUN) + place : self._length : _BEGUN_BYTES]
            frames[self._place + place :: self._stride] = answered
        self._length = 0
        self._is_committing = True
        self.socket.sendall(frames)

    def _has_aborts(self) -> bool:
        """Say whether the round is answered with aborts among the answers, and count them."""
        missing = self._count * _COMMITTED_BYTES - self._length
        aborted_count, rest = divmod(missing, _COMMITTED_BYTES - _ABORTED_BYTES)
        if rest or aborted_count > self._count:
            return False
        position = 0
        sizes = []
        while position + _LENGTH.size <= self._length:
            sizes.append(_LENGTH.size + _LENGTH.unpack_from(self._buffer, position)[0])
            position += sizes[-1]
        if position != self._length or len(sizes) != self._count:
            return False
        if sizes.count(_ABORTED_BYTES) != aborted_count:
            raise RuntimeError(f"an answer of the sizes {sizes}")
        self.found.aborted_count += aborted_count
        return True

    def _check(self, prefix: bytes, size: int) -> None:
        """See that every answer begins as it should."""
        if self._length != self._count * size:
            raise RuntimeError(f"{self._length} bytes for {self._count} timestamps")
        for place, byte in enumerate(prefix):
            if self._buffer[place : self._length : size].count(byte) != self._count:
                raise RuntimeError(f"no answer to a begin: {self._buffer[: self._length].hex()}")


_START: Final = encode_request(CommitRequest(_SAMPLE_START_TS))[3:]
"""How the sample timestamp stands in a request."""


def _commits(count: int, dice: random.Random) -> bytearray:
    """Return the frames of a round of commits, all of one length."""
    return bytearray().join(
        frame_request(
            CommitRequest(
                _SAMPLE_START_TS,
                tuple(_cell(dice.randrange(KEYS)) for _ in range(CELLS)),
                (TableId(2**61 + 1),),
            )
        )
        for _ in range(count)
    )


def _cell(key: int) -> CellId:
    """Return the id of a cell; ids are hashes, and these have nine bytes on the wire."""
    return CellId(2**62 | (key * _SPREAD % 2**62))
