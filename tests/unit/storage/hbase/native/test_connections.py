"""One connection for each server and service, whoever asks, and one attempt for all who wait."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.storage.hbase.native.connections import connection
from omidpy.storage.hbase.native.connections.connection import Connection
from omidpy.storage.hbase.native.connections.pool import MASTER, REGIONS, Connections
from omidpy.storage.hbase.native.faults import NotSent
from tests.machines.fake_hbase import FakeHBase, Reply
from tests.machines.waiting import wait_for

LIMIT_S = 20.0


class Opening:
    """Opens connections to a fake, or fails, and counts."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.count = 0
        self.gate = threading.Event()
        self.gate.set()
        self.problem: Exception | None = None
        self.connections = Connections(self._open)

    def _open(self, host: str, port: int, service: str) -> Connection:
        self.count += 1
        self.gate.wait(LIMIT_S)
        if self.problem is not None:
            raise NotSent("cannot be reached") from self.problem
        return connection.connect(
            host, port, service, user="me", timeout_s=LIMIT_S, max_frame_bytes=1000
        )

    def get(self, service: str = REGIONS) -> Connection:
        """Return the connection."""
        return self.connections.get("127.0.0.1", self.port, service)


def test_threads_get_the_same_connection_and_services_their_own() -> None:
    """Opened once."""
    with FakeHBase(lambda _: Reply()) as fake, ThreadPoolExecutor(8) as pool:
        opening = Opening(fake.port)
        found = list(pool.map(lambda _: opening.get(), range(40)))
        assert len(set(map(id, found))) == 1
        assert opening.get(MASTER) is not found[0]
        assert opening.count == 2
        opening.connections.close()


def test_one_that_ended_is_replaced() -> None:
    """Whether the server closed it or we did."""
    with FakeHBase(lambda _: Reply()) as fake:
        opening = Opening(fake.port)
        first = opening.get()
        first.close()
        second = opening.get()
        assert second is not first
        assert not second.has_ended
        opening.connections.close()
        with pytest.raises(StorageUnavailable, match="open it again"):
            opening.get()


def test_servers_that_are_gone_keep_no_descriptors() -> None:
    """In clusters that grow and shrink hosts come and go for as long as a client has it open."""
    with FakeHBase(lambda _: Reply()) as gone, FakeHBase(lambda _: Reply()) as fake:
        opening = Opening(gone.port)
        old = opening.get()
        gone.stop()
        wait_for(lambda: old.has_ended, LIMIT_S)
        assert old._socket.fileno() >= 0
        opening.port = fake.port
        kept, beside = opening.get(), opening.get(MASTER)
        assert old._socket.fileno() == -1
        assert not kept.has_ended
        assert not beside.has_ended
        opening.connections.close()


def test_those_who_wait_share_the_failure_of_one_attempt() -> None:
    """A server that swallows packets costs all threads the time of one; the next call tries."""
    opening = Opening(1)
    opening.problem = TimeoutError("timed out")
    opening.gate.clear()
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(opening.get) for _ in range(8)]
        while sum(one.running() for one in asked) < 8:
            pass
        threading.Timer(0.1, opening.gate.set).start()
        errors = [one.exception(LIMIT_S) for one in asked]
    assert all(isinstance(error, NotSent) for error in errors)
    assert all(isinstance(error.__cause__, TimeoutError) for error in errors if error)
    assert opening.count == 1
    with pytest.raises(NotSent):
        opening.get()
    assert opening.count == 2


def test_one_that_is_opened_while_all_are_closed_is_closed_too() -> None:
    """Its thread would go on with a store that was closed, and nobody close the socket."""
    with FakeHBase(lambda _: Reply()) as fake, ThreadPoolExecutor(1) as pool:
        opening = Opening(fake.port)
        opening.gate.clear()
        asked = pool.submit(opening.get)
        wait_for(lambda: opening.count, LIMIT_S)
        opening.connections.close()
        opening.gate.set()
        with pytest.raises(StorageUnavailable, match="open it again"):
            asked.result(LIMIT_S)
        (place,) = opening.connections._places.values()
        assert place.connection is not None
        assert place.connection.has_ended
        with pytest.raises(StorageUnavailable, match="open it again"):
            opening.get()
