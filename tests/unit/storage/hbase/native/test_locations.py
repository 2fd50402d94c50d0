"""Where regions are: read once for all who wait, and again when a server says otherwise."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from omidpy.errors import OmidError, StorageUnavailable
from omidpy.model import Cell
from omidpy.storage.hbase.native.calling.locations import Locations, NoRegion
from omidpy.storage.hbase.native.faults import Garbled, NotSent
from omidpy.storage.hbase.native.values import META, Region, Scan, ServerName
from omidpy.storage.hbase.native.wire.schema import region_message
from tests.machines.waiting import wait_for

A, B = ServerName("a", 1, 1), ServerName("b", 2, 2)


def region(start: bytes, end: bytes, server: ServerName, number: int = 1) -> Region:
    """Return a region of `t`."""
    return Region("t", b"t,%b,%d.id." % (start, number), start, end, server, number)


class Catalogue:
    """`hbase:meta`, as far as look-ups read it."""

    def __init__(self, *regions: Region) -> None:
        self.regions = list(regions)
        self.scans: list[Scan] = []
        self.meta_look_ups = 0
        self.gate = threading.Event()
        self.gate.set()
        self.locations = Locations(self._meta_server, self._read)

    def _meta_server(self) -> ServerName:
        self.meta_look_ups += 1
        return A

    def _read(self, scan: Scan, rows: int, *, until_s: float) -> list[list[Cell]]:
        del until_s
        self.gate.wait(20)
        self.scans.append(scan)
        ordered = sorted(self.regions, key=lambda one: (one.start, one.region_id))
        if scan.is_reversed:
            row = scan.start.split(b",")[1]
            ordered = [one for one in reversed(ordered) if one.start <= row]
        return [_row(one) for one in ordered][:rows]

    def locate(self, row: bytes) -> ServerName:
        """Return who has a row."""
        return self.locations.locate("t", row, until_s=time.monotonic() + 20).server

    def before(self, row: bytes) -> Region:
        """Return the region right below a row."""
        return self.locations.locate_before("t", row, until_s=0.0)


def _row(one: Region) -> list[Cell]:
    named = {
        b"regioninfo": b"PBUF" + region_message(one),
        b"server": f"{one.server.host}:{one.server.port}".encode(),
        b"serverstartcode": one.server.start_code.to_bytes(8),
    }
    return [Cell(one.name, b"info", name, 1, value) for name, value in named.items()]


def test_a_table_is_read_once() -> None:
    """All of its regions by one look-up, at either side of a border."""
    world = Catalogue(region(b"", b"m", A), region(b"m", b"", B))
    assert [world.locate(row) for row in (b"a", b"l\xff", b"m", b"z")] == [A, A, B, B]
    assert [world.before(row).start for row in (b"m", b"m\x00", b"", b"a")] == [
        b"",
        b"m",
        b"m",
        b"",
    ]
    assert len(world.scans) == 1


@pytest.mark.parametrize("row", [b"", b"z"])
def test_a_region_that_nobody_has_yet_is_not_passed_over(row: bytes) -> None:
    """A scan backwards would begin below its rows, and lack them without an error."""
    world = Catalogue(region(b"", b"c", A), region(b"c", b"m", A))
    assert world.before(b"m").start == b"c"
    with pytest.raises(NoRegion, match="has no region of table 't' below"):
        world.before(row)
    world.regions.append(region(b"m", b"", B))
    assert world.before(row).start == b"m"


def test_one_looks_up_for_all_who_wait() -> None:
    """A hundred threads that find a region gone are no storm for the catalogue."""
    world = Catalogue(region(b"", b"", A))
    world.gate.clear()
    with ThreadPoolExecutor(16) as pool:
        found = [pool.submit(world.locate, b"a") for _ in range(16)]
        world.gate.set()
        assert {one.result(20) for one in found} == {A}
    assert len(world.scans) == 1


@pytest.mark.parametrize("is_backwards", [False, True])
def test_one_who_may_not_wait_for_long_does_not_wait_for_anothers_look_up(
    is_backwards: bool,  # noqa: FBT001 - a table
) -> None:
    """The other one may wait a minute for a server that stands still, and an oracle 3 seconds."""
    world = Catalogue(region(b"", b"", A))
    world.gate.clear()
    locations = world.locations
    look = locations.locate_before if is_backwards else locations.locate
    with ThreadPoolExecutor(1) as pool:
        patient = pool.submit(world.locate, b"a")
        wait_for(lambda: locations._lock_of("t").locked(), 20)
        began_s = time.monotonic()
        with pytest.raises(NotSent, match="still looking for a region of table 't'"):
            look("t", b"a", until_s=began_s + 0.1)
        assert time.monotonic() - began_s < 5
        world.gate.set()
        assert patient.result(20) == A
    assert look("t", b"b", until_s=0.0).server == A


def test_a_place_that_proved_wrong_is_forgotten_once() -> None:
    """Who comes later with the same complaint finds it mended, and does not undo that."""
    world = Catalogue(region(b"", b"m", A), region(b"m", b"", B))
    world.locate(b"a")
    old = world.locations.locate("t", b"a", until_s=0.0)
    world.regions[0] = region(b"", b"m", B)
    for _ in range(3):
        world.locations.forget(old)
        assert world.locate(b"a") == B
    assert world.locate(b"z") == B
    assert len(world.scans) == 2


def test_daughters_take_the_place_of_the_region_that_was_split() -> None:
    """The parent may still be in the catalogue, and holds neither row any more."""
    world = Catalogue(region(b"", b"", A))
    parent = world.locations.locate("t", b"a", until_s=0.0)
    world.regions = [region(b"", b"m", A, 2), region(b"m", b"", B, 2)]
    world.locations.forget(parent)
    assert (world.locate(b"z"), world.locate(b"a")) == (B, A)


def test_a_region_is_followed_where_a_server_says_it_went() -> None:
    """Without a look-up."""
    world = Catalogue(region(b"", b"", A))
    old = world.locations.locate("t", b"a", until_s=0.0)
    world.locations.move(old, B)
    world.locations.move(old, ServerName("c", 3))
    assert world.locate(b"a") == B, "what is not known any more is not moved"
    assert len(world.scans) == 1


def test_two_servers_that_name_each_other_are_not_believed_for_long() -> None:
    """A region went to and fro and was split; each remembers that it is with the other."""
    world = Catalogue(region(b"", b"", A))
    first = world.locations.locate("t", b"a", until_s=0.0)
    world.regions = [region(b"", b"m", A, 2), region(b"m", b"", A, 2)]
    world.locations.move(first, B)
    second = world.locations.locate("t", b"a", until_s=0.0)
    assert (second.server, second.end) == (B, b"")
    world.locations.move(second, A)
    assert world.locations.locate("t", b"a", until_s=0.0).end == b"m", "as the catalogue has it"


def test_no_region_is_an_error_and_is_looked_for_again() -> None:
    """While a region is split there is none for an instant."""
    world = Catalogue()
    for row in (b"a", b"b"):
        with pytest.raises(NoRegion, match="no region of table 't'"):
            world.locate(row)
    world.regions = [region(b"", b"", A)]
    assert world.locate(b"a") == A


def test_the_catalogue_itself_is_where_the_registry_says() -> None:
    """Asked once, and again when it is not there."""
    world = Catalogue()
    for _ in range(3):
        meta = world.locations.locate(META, b"any", until_s=0.0)
    assert (meta.server, meta.name, world.meta_look_ups) == (A, b"hbase:meta,,1", 1)
    world.locations.forget(meta)
    world.locations.locate(META, b"any", until_s=0.0)
    assert world.meta_look_ups == 2


def test_a_catalogue_that_goes_round_is_refused() -> None:
    """Each of its pages is full, so that the list of regions would not end."""
    catalogue = Catalogue(*(region(b"%04d" % one, b"%04d" % (one + 1), A) for one in range(1000)))
    with pytest.raises(Garbled, match="goes back to b't,0000,"):
        catalogue.locations.all("t", until_s=0.0)
    assert len(catalogue.scans) == 2


def test_regions_are_in_the_order_of_the_catalogue() -> None:
    """Which is not that of bytes: keys may hold what stands before a comma, and commas."""
    keys = [b"", b"a", b"a\x00", b"a!", b"a,", b"a,b", b"b"]
    named = [region(one, behind, A) for one, behind in pairwise([*keys, b""])]
    catalogue = Catalogue(*named, region(b"b", b"", A, number=2))
    found = catalogue.locations.all("t", until_s=0.0)
    assert [one.start for one in found] == [*keys, b"b"]


def test_those_who_wait_share_the_failure_to_find_the_catalogue() -> None:
    """Where nobody answers it takes seconds, and of many threads the last waited for all."""
    gate, asked = threading.Event(), threading.Event()
    look_ups = []

    def nowhere() -> ServerName:
        look_ups.append(1)
        asked.set()
        gate.wait(20)
        raise StorageUnavailable("nobody answers", retryable=True) from ConnectionRefusedError()

    def ask() -> OmidError:
        with pytest.raises(StorageUnavailable, match="nobody answers") as caught:
            locations.meta()
        return caught.value

    locations = Locations(nowhere, Catalogue()._read)
    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(ask)
        assert asked.wait(20)
        others = [threads.submit(ask) for _ in range(7)]
        wait_for(threads._work_queue.empty, 20)
        for _ in range(100):  # until each has asked, and waits for the one who looks
            gate.wait(0.001)
        gate.set()
        found = [one.result() for one in (first, *others)]
    assert len(look_ups) == 1
    assert len({id(one) for one in found}) == len(found), "each has a traceback of its own"
    assert all(one.retryable for one in found)
    assert all(isinstance(one.__cause__, ConnectionRefusedError) for one in found)
    ask()
    assert len(look_ups) == 2, "who asks later is not told of it"
