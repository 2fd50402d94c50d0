"""Strangers: who asks an oracle for what is not his, for too much, or for nothing that makes sense.

A stranger says nothing of who he is, speaks as Java's client does, or has a number of his own.  He
hears of transactions that others have begun, and asks for their commit, as if he had begun them, or
as if he asked again; he forbids some, and asks for what nobody has begun yet.  He begins hundreds,
fences tables that nobody has, opens more connections than he needs, and sends bytes that are no
message, or half of one.  Whatever he does, nobody is told two things of one commit, no commit is
lost, and where nothing else goes wrong no client of others is turned away.
"""

from __future__ import annotations

import random
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from omidpy.errors import OmidError
from omidpy.facts.leadership import lease_address
from omidpy.model import CellId, TableId, Timestamp
from omidpy.wire.connection import ClientConnection
from omidpy.wire.frames import frame_request
from omidpy.wire.messages import (
    ALL_FEATURES,
    CommitRequest,
    Feature,
    FenceRequest,
    InvalidateRequest,
    TimestampRequest,
)
from tests.machines.simulator.network import NetworkOf
from tests.machines.simulator.store import SimStore
from tests.machines.simulator.watch import Watch
from tests.machines.simulator.world import Process, World

STRANGERS: Final = ("stranger-a", "stranger-b")

DEEDS: Final = ("flood", "claim", "claim", "repeat", "forbid", "early", "fence", "noise", "lines")
"""What he does, one of these at a time."""

MOST_LINES: Final = 80
"""Connections that he has at once."""
STEP: Final = 50
"""What is between two timestamps."""


class StrangeHabits(NamedTuple):
    """How strangers go about it."""

    pause_s: float
    """Between two deeds, on average."""
    deeds: tuple[str, ...]
    most_lines: int
    """How many connections each of them has at most."""
    connection_count: int | None
    """How many an oracle has room for; None: as in the product."""


class Stranger:
    """A process that means no good."""

    def __init__(
        self,
        world: World,
        process: Process,
        store: SimStore,
        network: NetworkOf,
        watch: Watch,
        habits: StrangeHabits,
    ) -> None:
        """Do nothing yet.

        Args:
            world: Where he is.
            process: His process.
            store: As that sees it: he reads in it where the oracle is.
            network: As that sees it.
            watch: By which he hears of what others have begun.
            habits: How he goes about it.
        """
        self._world = world
        self._process = process
        self._store = store
        self._network = network
        self._watch = watch
        self._habits = habits
        self._lines: list[Any] = []

    def work(self, dice: random.Random, until_s: float) -> None:
        """Do one thing after the other until it is late."""
        while self._world.now_s < until_s:
            self._world.program.sleep(dice.expovariate(1 / self._habits.pause_s))
            deed = dice.choice(self._habits.deeds)
            self._world.counts[f"deeds of strangers: {deed}"] += 1
            with suppress(OmidError, OSError):
                self._do(deed, dice)
        for line in self._lines:
            line.close()

    def _do(self, deed: str, dice: random.Random) -> None:
        if deed == "noise":
            self._send(self._line(dice, shakes=dice.random() < 0.7), _noise(dice))
        elif deed == "lines":
            shakes = dice.random() < 0.8
            for _ in range(self._habits.most_lines // 4 + 1):
                self._line(dice, shakes=shakes, is_new=True)
        else:
            line = self._line(dice)
            self._send(line, b"".join(map(frame_request, self._requests(deed, dice))))
            self._hear(line)

    def _requests(self, deed: str, dice: random.Random) -> Sequence[Any]:
        theirs = list(self._watch.begun_by_others) or [STEP]
        match deed:
            case "flood":
                return [TimestampRequest()] * dice.choice((10, 100, 300))
            case "claim" | "repeat":
                starts = dice.sample(theirs, min(3, len(theirs)))
                return [_commit(dice, one, is_retry=deed == "repeat") for one in starts]
            case "forbid":
                return [InvalidateRequest(Timestamp(dice.choice(theirs)))]
            case "early":
                ahead = STEP * dice.choice((1, 2, 5, 20))
                return [_commit(dice, self._watch.newest_ts + ahead, is_retry=False)]
            case _:
                return [FenceRequest(TableId(dice.getrandbits(40))) for _ in range(20)]

    # -- connections -----------------------------------------------------------------------------

    def _line(self, dice: random.Random, *, shakes: bool = True, is_new: bool = False) -> Any:
        if shakes and not is_new and self._lines and dice.random() < 0.5:
            return dice.choice(self._lines)
        if len(self._lines) >= self._habits.most_lines:
            self._lines.pop(dice.randrange(len(self._lines))).close()
        line: Any = self._network.connect(lease_address(self._store), timeout_s=2.0)
        self._lines.append(line)
        if shakes:
            is_java = dice.random() < 0.3
            number = None if is_java or dice.random() < 0.5 else dice.getrandbits(61) + 1
            opening: ClientConnection[Any] = ClientConnection(
                features=Feature.NONE if is_java else ALL_FEATURES, client=number
            )
            self._send(line, opening.handshake())
        return line

    def _send(self, line: Any, data: bytes) -> None:
        try:
            while data:
                data = data[line.send(data) :]
        except OSError:
            self._lines.remove(line)
            raise

    def _hear(self, line: Any) -> None:
        """Read what came, perhaps not all of it: who has been sent away connects anew."""
        poller: Any = self._network.poller(line, select.POLLIN)
        if not poller.poll(100):
            return
        try:
            is_over = not line.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            is_over = True
        if is_over and line in self._lines:
            self._lines.remove(line)
            self._world.counts["strangers sent away"] += 1


def _commit(dice: random.Random, start_ts: int, *, is_retry: bool) -> CommitRequest:
    """Ask for the commit of whatever, of no cells, or of some that nobody has."""
    cells = tuple(CellId(dice.getrandbits(62)) for _ in range(dice.choice((0, 0, 1, 3))))
    return CommitRequest(Timestamp(start_ts), cells, (), is_retry)


_NOISES: Final[Sequence[Callable[[random.Random], bytes]]] = (
    lambda dice: dice.randbytes(dice.randint(1, 60)),
    lambda dice: b"\x00\x00\x00\x20" + dice.randbytes(dice.randint(1, 32)),
    lambda dice: b"\xff\xff\xff\xff" + dice.randbytes(8),
    lambda dice: frame_request(TimestampRequest())[: dice.randint(1, 5)],
    lambda dice: _flipped(dice, frame_request(_commit(dice, STEP, is_retry=False))),
    lambda dice: b"GET / HTTP/1.1\r\n\r\n",
)


def _noise(dice: random.Random) -> bytes:
    return dice.choice(_NOISES)(dice)


def _flipped(dice: random.Random, frame: bytes) -> bytes:
    at = dice.randrange(len(frame))
    return frame[:at] + bytes((frame[at] ^ 1 << dice.randrange(8),)) + frame[at + 1 :]
