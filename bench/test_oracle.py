"""What does a request cost the oracle, from its bytes to the bytes of its answer?

Without sockets and without a store, so what is measured is what every other client waits for
meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from omidpy.model import CellId, TableId, Timestamp
from omidpy.wire.frames import frame_request
from omidpy.wire.messages import (
    ALL_FEATURES,
    CommitRequest,
    CommitResponse,
    HandshakeRequest,
    PeerCapabilities,
    TimestampRequest,
    TimestampResponse,
)
from tso.core.events import Answer, Asked, Flush, Flushed, FlushResult, Frames, Now, Send
from tso.core.machine import Machine
from tso.core.settings import Inherited, Settings
from tso.serving.conversation import Conversation

NOW = Now(1, 1.0)
MANY_CELLS = 150_000
"""A sixth of the longest request."""


class Oracle:
    """A machine whose batches are durable at once, and one client of it."""

    def __init__(self) -> None:
        """Begin with an empty memory."""
        settings = Settings(timestamps="incremental", conflict_map_size=2**21)
        self.machine: Machine[str] = Machine(settings, Inherited(0, ceiling=2**60), NOW)
        self.conversation = Conversation(
            PeerCapabilities(), max_commit_cells=self.machine.max_commit_cells
        )
        self.conversation.receive(
            frame_request(HandshakeRequest(PeerCapabilities(int(ALL_FEATURES))))
        )
        self._numbers = count(1)

    def begin(self) -> Timestamp:
        """Begin a transaction."""
        (answer,) = self._answers(frame_request(TimestampRequest()))
        assert isinstance(answer, TimestampResponse)
        return answer.start_ts

    def commit_frame(self, cells: int) -> bytes:
        """Begin a transaction; return the request to commit that many cells of its own."""
        hashes = (number * 0x9E37_79B9_7F4A_7C15 % 2**64 - 2**63 for number in self._numbers)
        cell_ids = tuple(CellId(one) for one, _ in zip(hashes, range(cells), strict=False))
        return frame_request(CommitRequest(self.begin(), cell_ids, (TableId(-(2**62)),)))

    def commit(self, request: bytes) -> bytes:
        """Commit it; return the bytes of the answer."""
        (answer,) = self._answers(request)
        assert isinstance(answer, CommitResponse)
        assert answer.commit_ts is not None
        return self.conversation.encode(answer)

    def _answers(self, data: bytes) -> Iterator[Answer]:
        _, questions = self.conversation.receive(data)
        effects = self.machine.handle(Asked(NOW, [("client", question) for question in questions]))
        while effects:
            effect = effects.pop(0)
            if isinstance(effect, Flush):
                effects += self.machine.handle(Flushed(NOW, FlushResult()))
            elif isinstance(effect, Send):
                for _, answer in effect.answers:
                    assert not isinstance(answer, Frames), "only runs are answered in frames"
                    yield answer


@pytest.fixture(name="oracle")
def _oracle() -> Oracle:
    return Oracle()


def test_begin(benchmark: BenchmarkFixture, oracle: Oracle) -> None:
    """How long does a begin keep the others waiting?"""
    assert benchmark(oracle.begin) > 0


@pytest.mark.parametrize("cells", [1, 10, MANY_CELLS])
def test_commit(benchmark: BenchmarkFixture, oracle: Oracle, cells: int) -> None:
    """How long does a commit, and one of a very large write set?"""
    rounds = 10 if cells == MANY_CELLS else 2000
    prepared = [oracle.commit_frame(cells) for _ in range(rounds if benchmark.enabled else 1)]
    remaining = iter(prepared)
    pedantic: Any = benchmark.pedantic  # has no types
    pedantic(lambda: oracle.commit(next(remaining)), rounds=len(prepared))
