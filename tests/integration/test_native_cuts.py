"""The network between us and a real HBase ends connections at any byte of what is said.

Afterwards the rows say what happened: what was acknowledged is there, once; what is of unknown
outcome happened once or not at all.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.model import MAX_VERSION, Cell, Column, FamilySchema, TableSchema
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.hbase.direct import NativeStore
from omidpy.storage.hbase.native.address import parse_native
from omidpy.storage.hbase.native.calling.calls import Calls
from omidpy.storage.hbase.native.client import NativeClient
from omidpy.storage.hbase.native.connections import connection
from omidpy.storage.hbase.native.connections.connection import Connection
from omidpy.storage.hbase.native.connections.pool import Connections
from omidpy.storage.hbase.native.values import Get, PutCell, RowChange, Selection
from omidpy.storage.hbase.native.wire import frames
from tests.machines.cutting_network import ANSWER, REQUEST, CuttingNetwork
from tests.machines.hbase import HBase
from tests.machines.hbase_store import drop_tables

pytestmark = [pytest.mark.integration, pytest.mark.hbase]

CF: Final = b"cf"
COLUMN: Final = Column(CF, b"q")
BY_DAY: Final = 60
"""Cuts of each kind."""


class Network:
    """Puts a network before every server of an HBase, and may cut all of it."""

    def __init__(self, url: str, resources: ExitStack) -> None:
        self._resources = resources
        self._found: dict[tuple[str, int], CuttingNetwork] = {}
        address = parse_native(url + "?timeout_s=20&retry_s=60")
        calls = Calls(address, connections=Connections(self._open))
        self.store = NativeStore(address, client=NativeClient(address, calls=calls))
        resources.callback(self.store.close)

    def _open(self, host: str, port: int, service: str) -> Connection:
        network = self._found.get((host, port))
        if network is None:
            network = self._resources.enter_context(CuttingNetwork(host, port))
            self._found[host, port] = network
        return connection.connect(
            "127.0.0.1",
            network.port,
            service,
            user="me",
            timeout_s=20,
            max_frame_bytes=frames.MAX_FRAME_BYTES,
        )

    def cut(self, way: str, after_bytes: int) -> None:
        """Cut each server's network once, after so many bytes."""
        for network in self._found.values():
            network.cut(way, after_bytes)

    @property
    def cut_count(self) -> int:
        """How many connections were cut so far."""
        return sum(network.cut_count for network in self._found.values())


@pytest.fixture
def network(hbase: HBase) -> Iterator[Network]:
    """Return a network before an HBase that has a table of two regions."""
    drop_tables(hbase)
    with ExitStack() as resources:
        network = Network(hbase.direct_url, resources)
        network.store.create_table(TableSchema("t", [FamilySchema(CF)]), splits=[b"m"])
        yield network
    drop_tables(hbase)


@pytest.mark.parametrize("count", [BY_DAY, pytest.param(2000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("way", [REQUEST, ANSWER])
def test_what_is_there_is_what_was_said_whatever_was_cut(
    network: Network, way: str, count: int
) -> None:
    """Puts of one row and of many, changes on a condition, and HBase's own counters."""
    store, dice = network.store, random.Random(count)
    counted = sure = doubts = 0
    for number in range(1, count + 1):
        network.cut(way, dice.randrange(500 if way == REQUEST else 60))
        rows = [b"a", b"z%d" % number, b"b%d" % number]
        store.write({"t": [RowMutation(row, [Put(*COLUMN, number, b"v")]) for row in rows]})
        assert store._client.increment("t", b"counter", CF, b"n", 1) == number
        (found,) = store.get("t", [b"condition"], max_versions=1)
        value = int(found[0].value) if found else 0
        assert counted <= value <= counted + 1, "it was done once or not at all, and stays"
        counted = value
        change = RowMutation(b"condition", [Put(*COLUMN, value + 1, b"%d" % (value + 1))])
        expected = found[0].value if found else None
        try:
            was_applied = store.check_and_mutate("t", b"condition", COLUMN, expected, change)
        except StorageUnavailable as error:
            doubts += "is not known" in str(error)
            continue
        assert was_applied, "nobody else writes here, so it met itself"
        sure += 1
        counted = value + 1
    assert sure + doubts == count, "a failure without a doubt is no failure here"
    network.cut(way, 10**9)
    cells: dict[bytes, list[Cell]] = {row[0].row: row for page in store.scan("t") for row in page}
    for number in range(1, count + 1):
        assert [cell.version for cell in cells[b"z%d" % number]] == [number]
        assert [cell.version for cell in cells[b"b%d" % number]] == [number]
    assert [cell.version for cell in cells[b"a"]] == list(range(count, 0, -1))
    versions = [cell.version for cell in cells[b"condition"]]
    assert versions == list(range(len(versions), 0, -1))
    assert sure <= len(versions) <= sure + doubts
    assert network.cut_count > count // 3


@pytest.mark.parametrize("way", [REQUEST, ANSWER])
def test_what_the_server_dates_is_written_once_or_not_at_all(network: Network, way: str) -> None:
    """Each time would have a version of its own, and the last one hide what came in between."""
    client, dice = network.store._client, random.Random(BY_DAY)
    sure = doubts = 0
    for number in range(BY_DAY):
        put = PutCell(*COLUMN, MAX_VERSION, b"%d" % number)
        rows = [b"a%d" % number, b"z%d" % number][: 1 + number % 2]
        client.get("t", Get(b"a", Selection()))  # so that a connection is there to be cut
        network.cut(way, dice.randrange(300 if way == REQUEST else 20))
        try:
            client.mutate_many("t", [RowChange(row, (put,)) for row in rows])
            least = 1
        except StorageUnavailable as error:
            doubts += "whether it was applied is not known" in str(error)
            least = 0
        network.cut(way, 10**9)
        sure += least
        for found in client.get_many("t", [Get(row, Selection()) for row in rows]):
            assert least <= len(found.cells) <= 1
    assert sure + doubts == BY_DAY, "a failure without a doubt is no failure here"
    assert sure
    assert doubts


def test_a_table_is_made_once_whatever_was_cut(network: Network) -> None:
    """The master knows a request again by its numbers."""
    for number, (way, after_bytes) in enumerate(itertools.product((REQUEST, ANSWER), (0, 20, 60))):
        network.cut(way, after_bytes)
        network.store.create_table(TableSchema(f"t{number}", [FamilySchema(CF)]))
    network.cut(REQUEST, 10**9)
    names = [schema.name for schema in network.store.tables()]
    assert [name for name in names if name.startswith("t")] == ["t", *(f"t{n}" for n in range(6))]
    assert network.cut_count >= 6
