"""Feed bytes of several clients to an oracle's machine, and write down everything that it does.

The same bytes can be served in two ways: in runs, as `tso-server` does, or one request at a time.
What is written down must be the same, byte for byte and in order.  The same seed brings the same
bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final
from unittest.mock import patch

from omidpy.base.timing.clock import ManualClock
from omidpy.errors import RemoteProtocolError
from omidpy.model import CellId, TableId, Timestamp
from omidpy.wire.frames import encode_request, frame, frame_request
from omidpy.wire.messages import (
    ALL_FEATURES,
    CommitRequest,
    FenceRequest,
    HandshakeRequest,
    InvalidateRequest,
    PeerCapabilities,
    Request,
    TimestampRequest,
)
from tests.machines.oracle_driver import Disk
from tso.core import batches as true_batches
from tso.core import machine as true_machine
from tso.core.events import (
    Asked,
    Batch,
    Close,
    Deferred,
    Event,
    Flush,
    Flushed,
    Frames,
    Left,
    Now,
    Send,
    Stopping,
    Ticked,
)
from tso.core.settings import Inherited, Settings
from tso.core.shares.clients import ANYBODY
from tso.serving.conversation import Conversation

MAX_COMMIT_CELLS: Final = 3
STEP_COUNT: Final = 60
STEP: Final = 50

CLIENTS: Final = {
    "a": PeerCapabilities(int(ALL_FEATURES), client=7),
    "b": PeerCapabilities(int(ALL_FEATURES), client=9),
    "a again": PeerCapabilities(int(ALL_FEATURES), client=7),
    "java": PeerCapabilities(),
    "anybody": PeerCapabilities(),
}
"""The last one has no number, as the threads around an embedded oracle have none."""


class TinySettings(Settings):
    """Everything overflows."""

    @property
    def max_commit_cells(self) -> int:
        """Less than some commits have."""
        return MAX_COMMIT_CELLS


class Oracle:
    """A machine, its disk and its clients."""

    def __init__(self, settings: Settings, machine: Any, *, is_running: bool) -> None:
        """Begin; `is_running` serves in runs."""
        self.log: list[object] = []
        self.disk = Disk()
        self._is_running = is_running
        self._clock = ManualClock()
        now = self.now()
        epoch = now.wall_ms * 1_000_000 if settings.timestamps == "world" else 0
        self.disk.ceiling = epoch + settings.lookahead
        inherited = Inherited(epoch=epoch, ceiling=self.disk.ceiling)
        self.machine = machine(settings, inherited, now)
        self._flight: Batch[str] | None = None
        self._conversations: dict[str, Conversation] = {}
        for name in CLIENTS:
            self._connect(name)

    def now(self) -> Now:
        """Read the clock."""
        return Now(self._clock.wall_ms(), self._clock.monotonic_s())

    def send(self, name: str, data: bytes, *, at_most: int) -> None:
        """Let a client send bytes, and serve them."""
        session = self._conversations[name]
        session.add(data)
        while session.buffer:
            if self._is_running and session.may_run:
                taken_bytes, _ = self.machine.run(
                    self.now(),
                    name,
                    session.buffer,
                    client=session.client,
                    shows_watermark=session.shows_watermark,
                    tells_why=session.tells_why,
                    at_most=at_most,
                )
                session.skip(taken_bytes)
            try:
                _, questions = session.receive(b"", at_most=1)
            except RemoteProtocolError as error:
                self.log.append(("broken", name, str(error)))
                self._connect(name)
                break
            if not questions:
                break
            asked = [(name, question) for question in questions]
            self._tell(Asked(self.now(), asked, session.client, goes_on=True))
        self._tell(Asked(self.now(), ()))

    def land(self) -> None:
        """Make the flush under way durable, if there is one."""
        if self._flight is not None:
            result = self.disk.apply(self._flight)
            self._flight = None
            self._tell(Flushed(self.now(), result))

    def tick(self, seconds: float) -> None:
        """Let time pass, and say so."""
        self._clock.advance(seconds)
        self._tell(Ticked(self.now()))

    def forbid(self, start_ts: int) -> None:
        """Let somebody plant an invalidation in the commit table."""
        batch: Batch[str] = Batch(invalidations=[start_ts])
        self.disk.apply(batch)

    def vouch(self, seconds: float) -> None:
        """Say for how long nobody else answers."""
        self.machine.vouched_until_s = self._clock.monotonic_s() + seconds

    def stop(self) -> None:
        """Ask for the end."""
        self._tell(Stopping(self.now()))

    def _connect(self, name: str) -> None:
        if name in self._conversations:
            self._tell(Left(self.now(), name, self._conversations[name].client))
        self._conversations[name] = Conversation(
            PeerCapabilities(), max_commit_cells=self.machine.max_commit_cells
        )
        self._conversations[name].receive(frame_request(HandshakeRequest(CLIENTS[name])))
        if name == "anybody":
            self._conversations[name].client = ANYBODY

    def _tell(self, event: Event[str]) -> None:
        for effect in self.machine.handle(event):
            match effect:
                case Send():
                    for name, answer in effect.answers:
                        self._note("sent", name, self._bytes(name, answer))
                case Close():
                    self.log.append(effect)
                case Flush():
                    assert self._flight is None, "two flushes at once"
                    self._flight = effect.batch
                    self._note_batch(effect.batch)
                case _:
                    self.log.append(effect)

    def _note(self, what: str, name: str, said: bytes) -> None:
        """Write down bytes; those for one client, one behind another, are one piece."""
        if self.log and isinstance(self.log[-1], list) and self.log[-1][:2] == [what, name]:
            self.log[-1][2] += said
        else:
            self.log.append([what, name, said])

    def _note_batch(self, batch: Batch[str]) -> None:
        self.log.append((batch.commits, batch.invalidations, batch.lookups, batch.answer_count))
        self.log.append((batch.ceiling, batch.low_watermark, batch.newest_ts))
        for name, answer in batch.answers:
            # Whose number each session draws anew.
            known = answer._replace(client=0) if isinstance(answer, Deferred) else answer
            self._note("waits", name, self._bytes(name, known))

    def _bytes(self, name: str, answer: Any) -> bytes:
        if isinstance(answer, Frames):
            return answer.data
        if isinstance(answer, tuple):
            return repr(answer).encode()
        return self._conversations[name].encode(answer)


@contextmanager
def machine_with(
    engine: ModuleType,
    machine: ModuleType = true_machine,
    batches: ModuleType = true_batches,
) -> Iterator[Any]:
    """Give a machine a form of the engine, and of its batches."""

    class Running(machine.Machine):  # type: ignore[misc, name-defined]  # a module's at run time
        _batches_type = batches.Batches

    with patch.multiple(machine, Engine=engine.Engine, Decisions=engine.Decisions, Run=engine.Run):
        yield Running


def compare(seed: int, running: Any, slow: Any) -> None:
    """Play one game with two machines; fail where they do not do the same.

    Args:
        seed: Which game.
        running: Makes the machine that is served in runs.
        slow: Makes the one that is served one request at a time.
    """
    dice = random.Random(seed)
    settings = TinySettings(
        timestamps=dice.choice(("world", "incremental")),
        conflict_map_size=dice.randrange(1, 9),
        decision_memory=dice.choice((1, 3, 8, 1000)),
        begin_memory=dice.choice((1, 3, 8, 1000)),
        old_begin_memory=dice.choice((1, 40, 80, 1000)),
        max_transaction_age_ms=60_000,
    )
    oracles = [
        Oracle(settings, running, is_running=True),
        Oracle(settings, slow, is_running=False),
    ]
    for number in range(STEP_COUNT):
        step, arguments = _step(dice, oracles[1].machine.last_issued)
        for oracle in oracles:
            getattr(oracle, step)(*arguments[0], **arguments[1])
            oracle.log.append((oracle.machine.queue_length, oracle.machine.low_watermark))
        one, other = (oracle.log for oracle in oracles)
        assert one == other, f"step {number} of game {seed}, {step}: {_difference(one, other)}"
        assert oracles[0].disk == oracles[1].disk


def _difference(one: list[object], other: list[object]) -> str:
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return f"entry {place}: in runs {left}, one by one {right}"
    return f"in runs {one[len(other) :]}, one by one {other[len(one) :]}"


def _step(dice: random.Random, last_issued: int) -> tuple[str, tuple[Any, dict[str, Any]]]:
    kind = dice.random()
    if kind < 0.6:
        name = dice.choice([*CLIENTS])
        frames = [_frame(dice, last_issued) for _ in range(dice.randrange(1, 9))]
        return "send", ((name, b"".join(frames)), {"at_most": dice.choice((1, 3, 1000))})
    if kind < 0.85:
        return "land", ((), {})
    if kind < 0.9:
        return "tick", ((dice.choice((0.001, 0.3, 2.0, 40.0)),), {})
    if kind < 0.95:
        return "forbid", ((_start_ts(dice, last_issued),), {})
    if kind < 0.99:
        return "vouch", ((dice.choice((-1.0, 1000.0)),), {})
    return "stop", ((), {})


def _frame(dice: random.Random, last_issued: int) -> bytes:
    framed = frame_request(_request(dice, last_issued), packed=dice.random() < 0.5)
    if dice.random() < 0.93:
        return framed
    at = dice.randrange(len(framed))
    # A commit of one cell, in a field that claims two bytes for it, and sound but for that.
    crooked = encode_request(CommitRequest(Timestamp(_start_ts(dice, last_issued))))[2:]
    crooked += bytes((3 << 3 | 2, 2, dice.randrange(12)))
    return dice.choice(
        (
            framed[:at] + dice.choice((b"", dice.randbytes(1), framed)) + framed[at + 1 :],
            framed[:at],
            frame(framed[4:] + b"\x18\x01"),
            frame(bytes((2 << 3 | 2, len(crooked))) + crooked),
        )
    )


def _request(dice: random.Random, last_issued: int) -> Request:
    kind = dice.random()
    if kind < 0.4:
        return TimestampRequest()
    if kind < 0.9:
        return CommitRequest(
            Timestamp(_start_ts(dice, last_issued)),
            tuple(CellId(dice.randrange(-1, 12)) for _ in range(dice.randrange(4))),
            tuple(TableId(dice.randrange(2)) for _ in range(dice.choice((0, 0, 1)))),
            is_retry=dice.random() < 0.1,
        )
    others = (
        TimestampRequest(30_000),
        FenceRequest(TableId(dice.randrange(2))),
        FenceRequest(TableId(_start_ts(dice, last_issued))),
        InvalidateRequest(Timestamp(_start_ts(dice, last_issued))),
        InvalidateRequest(Timestamp(_start_ts(dice, last_issued))),
    )
    return dice.choice(others)


def _start_ts(dice: random.Random, last_issued: int) -> int:
    """Return a start timestamp: mostly a late one, and now and then one never issued."""
    behind = dice.choice((0, 1, 1, 2, 3, 5, 8, 13, -1, -2))
    return last_issued - STEP * behind + (dice.random() < 0.03)
