"""A client of ZooKeeper finds the servers that live."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Final

import pytest

from omidpy.oracle.zookeeper import connected, parse_zookeeper
from tests.machines.speaking_zookeeper import SpeakingZooKeeper

pytest.importorskip("kazoo")

SILENT: Final = 2
TIMEOUT_S: Final = 3.0


@pytest.fixture(name="silent")
def silent_hosts() -> Iterator[list[str]]:
    """Return addresses at which nothing answers, not even that nobody is there."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(SILENT):
            full = stack.enter_context(socket.socket())
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            for _ in range(4):  # what has no place in the queue is dropped without a word
                caller = stack.enter_context(socket.socket())
                caller.setblocking(False)
                caller.connect_ex(full.getsockname())
            found.append(f"127.0.0.1:{full.getsockname()[1]}")
        time.sleep(0.1)
        yield found


def test_hosts_that_are_silent_leave_time_for_one_that_lives(
    silent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that is switched off would take all the time there is."""
    monkeypatch.setattr("random.shuffle", lambda hosts: None)
    with (
        SpeakingZooKeeper() as server,
        connected(server.address(*silent, timeout_s=TIMEOUT_S)) as session,
    ):
        assert session.read("/a") is None


def test_an_ensemble_that_comes_back_is_found_soon() -> None:
    """Whoever waited longer and longer would lose its lease behind a pause of some seconds."""
    with SpeakingZooKeeper() as server, connected(server.address()) as session:
        retry = session._client._connection.retry_sleeper  # type: ignore[attr-defined]
        assert retry.max_delay <= 1.0
        assert retry.max_tries == -1


def test_a_thread_that_cannot_be_started_is_no_silent_ensemble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody need look at the network for it."""

    def full(client: object, timeout: float) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("kazoo.client.KazooClient.start", full)
    with (
        pytest.raises(RuntimeError, match="can't start new thread"),
        connected(parse_zookeeper("zk://127.0.0.1:1/omid")),
    ):
        pass
