"""When is a gateway made to look up where regions are, over scripted connections?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from thriftpy2.transport import TTransportException

from omidpy.base.timing.clock import ManualClock
from omidpy.errors import ConfigError
from omidpy.storage.hbase.addresses.gateways import Gateway, parse_address
from omidpy.storage.hbase.idl import thrift2
from omidpy.storage.hbase.rpc.gateway import CallNotSent
from omidpy.storage.hbase.rpc.places import AGAIN_S, EVERY_S, LONGEST_S, Places
from tests.machines.gateways import ScriptedGateways

ONE: Gateway = ("gw1", 9090)
OTHER: Gateway = ("gw2", 9090)


class World:
    """Look-ups over scripted gateways, and a clock turned by hand."""

    def __init__(self, *steps: object, api: str = "thrift2", **down: Exception) -> None:
        self.clock = ManualClock()
        self.gateways = ScriptedGateways(*steps, down=down)
        address = parse_address(f"hbase+{api}://gw1,gw2")
        self.places = Places(address, self.gateways.open, self.clock.monotonic_s)


@pytest.mark.parametrize(
    ("api", "method"), [("thrift1", "getTableRegions"), ("thrift2", "getAllRegionLocations")]
)
def test_a_look_up_is_the_call_that_reads_the_catalogue(api: str, method: str) -> None:
    """Asked for one region, a gateway answers from its memory."""
    world = World([], api=api)
    world.places.look_up(ONE, "t")
    assert world.gateways.log == [method]
    assert world.gateways.clients[0].is_closed


def test_a_table_is_looked_up_once_in_a_while_however_many_wait() -> None:
    """Every thread of a client waits for the same regions at the same time."""
    world = World([], [], [], [])
    world.places.look_up(ONE, "t")
    world.clock.advance(EVERY_S * 0.99)
    world.places.look_up(ONE, "t")
    assert world.gateways.hosts == ["gw1"]
    world.places.look_up(OTHER, "t")
    world.places.look_up(ONE, "another")
    assert world.gateways.hosts == ["gw1", "gw2", "gw1"]
    world.clock.advance(EVERY_S)
    world.places.look_up(ONE, "t")
    assert len(world.gateways.hosts) == 4


def place(start: bytes) -> thrift2.THRegionLocation:
    """Return where a region is."""
    return thrift2.THRegionLocation(regionInfo=thrift2.THRegionInfo(startKey=start))


def test_a_second_look_up_makes_a_gateway_forget_what_the_first_did_not_correct() -> None:
    """Of a table created anew it keeps the old places, whose sequence numbers are higher.

    Where nobody waits any more, the first is enough the next time.
    """
    found = [place(b""), place(b"m")]
    world = World(found, found, None, None, found)
    world.places.look_up(ONE, "t")
    assert world.gateways.log == ["getAllRegionLocations"]
    world.clock.advance(EVERY_S)
    world.places.look_up(ONE, "t")
    assert world.gateways.log[1:] == ["getAllRegionLocations", *["getRegionLocation"] * 2]
    world.clock.advance(AGAIN_S)
    world.places.look_up(ONE, "t")
    assert world.gateways.log[4:] == ["getAllRegionLocations"]


def test_forgetting_takes_no_longer_than_any_look_up() -> None:
    """Somebody waits for it, and a table may have a thousand regions."""

    def slowly() -> Iterator[thrift2.THRegionLocation]:
        yield place(b"")
        world.clock.advance(LONGEST_S)
        yield place(b"m")

    world = World([], slowly(), None)
    world.places.look_up(ONE, "t")
    world.clock.advance(EVERY_S)
    world.places.look_up(ONE, "t")
    assert world.gateways.log == ["getAllRegionLocations"] * 2 + ["getRegionLocation"]


def test_thrift1_has_no_call_that_makes_a_gateway_forget() -> None:
    """It may still be asked for all regions again and again."""
    world = World([place(b"")], [place(b"")], api="thrift1")
    world.places.look_up(ONE, "t")
    world.clock.advance(EVERY_S)
    world.places.look_up(ONE, "t")
    assert world.gateways.log == ["getTableRegions"] * 2


def test_a_look_up_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever asks why calls were slow finds the table, and the gateway that was misled."""
    caplog.set_level("INFO", logger="omidpy")
    World([]).places.look_up(ONE, "orders")
    assert "'orders'" in caplog.text
    assert "gw1:9090" in caplog.text


def test_a_call_without_a_table_looks_up_nothing() -> None:
    """There are no regions to ask for."""
    world = World()
    world.places.look_up(ONE, None)
    assert world.gateways.hosts == []


@pytest.mark.parametrize(
    "failure",
    [
        TimeoutError("timed out"),
        ConnectionResetError(104, "reset"),
        CallNotSent("broken"),
        TTransportException(TTransportException.END_OF_FILE, "TSocket read 0 bytes"),
        thrift2.TIOError(message="the catalogue is not served", canRetry=True),
    ],
)
def test_a_look_up_that_fails_concerns_nobody(failure: Exception) -> None:
    """The call that it was to help has an outcome of its own."""
    world = World(failure)
    world.places.look_up(ONE, "t")
    assert world.gateways.clients[0].is_closed


def test_a_look_up_that_cannot_connect_concerns_nobody() -> None:
    """Neither does the refusal of a file that TLS needs, which was there a moment ago."""
    world = World(gw1=ConnectionRefusedError(111, "refused"), gw2=ConfigError("tls_ca"))
    world.places.look_up(ONE, "t")
    world.places.look_up(OTHER, "t")
    assert world.gateways.hosts == ["gw1", "gw2"]
