"""When is a page of a scan asked for, and what becomes of one that was asked for ahead?"""

from __future__ import annotations

import dataclasses
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.model import KeyRange
from omidpy.storage.hbase.native import scanning
from omidpy.storage.hbase.native.cellblock import encode
from omidpy.storage.hbase.native.client import NativeClient
from omidpy.storage.hbase.native.faults import Garbled, Unanswered
from omidpy.storage.hbase.native.scanning import Position, Scanner
from omidpy.storage.hbase.native.values import Pairing, Scan, Selection
from tests.machines.fake_hbase import Call, FakeHBase, Reply, client_of, fault
from tests.machines.hbase_messages import message
from tests.machines.waiting import wait_for

PAGE_ROWS: Final = 2
BRIEF: Final = "timeout_s=5&retry_s=0"


def rows_after(call: Call, rows: list[bytes]) -> Reply:
    """Answer a scan of a table of these rows, each of one cell."""
    asked = message("ScanRequest")
    asked.ParseFromString(call.body)
    start = asked.scan.start_row
    left = [row for row in rows if row > start or (row == start and asked.scan.include_start_row)]
    found = left[: asked.number_of_rows]
    body = message(
        "ScanResponse",
        cells_per_result=[1] * len(found),
        more_results_in_region=len(left) > len(found),
    )
    cells = b"".join(encode(row, b"f", b"q", 1, b"v") for row in found)
    return Reply(body.SerializeToString(), cells)


class Table:
    """A table of some rows, whose server counts calls and may fail some."""

    def __init__(self, count: int) -> None:
        self.rows = [b"r%d" % number for number in range(count)]
        self.failing: set[int] = set()
        self.fake = FakeHBase(self._answer)

    def _answer(self, call: Call) -> Reply:
        if call.number in self.failing:
            return fault("RegionTooBusyException")
        return rows_after(call, self.rows)

    @property
    def call_count(self) -> int:
        """Calls so far."""
        return len(self.fake.calls)


@pytest.fixture(name="scanned")
def scans() -> Iterator[Any]:
    """Return what begins a scan of a table."""
    opened = []

    def scan(table: Table, **options: Any) -> Any:
        fake = table.fake.__enter__()
        client = client_of(fake, options="timeout_s=5&retry_s=5")
        opened.append((fake, client))
        scanner = Scanner(client.calls, "t", KeyRange(b"", b""), Selection())
        return dataclasses.replace(scanner, **options).pages(PAGE_ROWS)

    yield scan
    for fake, client in opened:
        client.close()
        fake.stop()


def keys(pages: Any) -> list[bytes]:
    """Return the keys of all rows."""
    return [row[0][0] for page in pages for row in page]


def test_from_the_third_on_a_page_is_asked_for_before_it_is_wanted(scanned: Any) -> None:
    """So HBase works while the reader does."""
    table = Table(9)
    with closing(scanned(table)) as pages:
        next(pages)
        time.sleep(0.05)
        assert table.call_count == 1, "a scan of which one page is read costs one call"
        next(pages)
        wait_for(lambda: table.call_count == 3, 5)
        assert keys(pages) == table.rows[4:]
    assert table.call_count == 5, "and each page is asked for once"


@pytest.mark.parametrize("count", range(1, 10))
def test_every_row_comes_once_and_in_order(scanned: Any, count: int) -> None:
    """Wherever the last page ends."""
    table = Table(count)
    assert keys(scanned(table)) == table.rows
    assert table.call_count == count // PAGE_ROWS + 1


@pytest.mark.parametrize("failing", [set(), {0}, {1}])
def test_a_scan_counts_its_calls_those_that_failed_among_them(
    scanned: Any, failing: set[int]
) -> None:
    """One that is made again may meet another table of the name."""
    table = Table(1)
    table.failing = failing
    pages = scanned(table)
    reads = pages.gi_frame.f_locals["self"].reads
    assert keys(pages) == table.rows
    assert reads.count == table.call_count == (2 if 0 in failing else 1)


def test_a_page_that_waited_too_long_is_asked_for_anew(
    scanned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow reader sees what is there when he asks, and nothing is read ahead for him."""
    monkeypatch.setattr(scanning, "MOST_AHEAD_S", 0.0)
    table = Table(9)
    pages = scanned(table)
    next(pages)
    next(pages)
    wait_for(lambda: table.call_count == 3, 5)
    table.rows[4:5] = [b"r4", b"r4x"]
    assert keys(pages) == table.rows[4:]
    assert table.call_count == 3 + 4


def test_a_scan_that_is_given_up_leaves_no_call_behind(scanned: Any) -> None:
    """The answer that comes is dropped, and the connection serves others."""
    table = Table(9)
    pages = scanned(table)
    next(pages)
    next(pages)
    wait_for(lambda: table.call_count == 3, 5)
    scanner = pages.gi_frame.f_locals["self"]
    (place,) = scanner.calls.connections._places.values()
    assert len(place.connection._pending) == 1
    pages.close()
    assert not place.connection._pending
    assert len(scanner.page(scanner.start(), 2).rows) == 2
    assert len(table.fake.openings) == 1


def test_a_page_ahead_that_fails_is_asked_for_again(scanned: Any) -> None:
    """As any page: its failure is met by who reads it, who tries again."""
    table = Table(9)
    table.failing = {2}
    assert keys(scanned(table)) == table.rows
    assert table.call_count == 6


def test_rows_come_in_pairs_where_they_are_asked_for(scanned: Any) -> None:
    """Through the same pages."""
    table = Table(5)
    found = [row for page in scanned(table, pairing=Pairing(b"p", b"s")) for row in page]
    assert found == [[(row, b"f", b"q", 1, b"v", None)] for row in table.rows]


def test_plain_rows_come_as_values_where_these_do(scanned: Any) -> None:
    """Each with its key before it, through the same pages; others in pairs."""
    table = Table(5)
    pairing = Pairing(b"p", b"s", before=bytes(8), erased=b"")
    found = [row for page in scanned(table, pairing=pairing) for row in page]
    assert found == [(row, [(row, b"f", b"q", 1, b"v", None)]) for row in table.rows]


FAULTS: Final = """
import resource
from omidpy.storage.hbase.native import scanning
if {keeps}:
    scanning._keep_memory()
def page():
    return [b"%c" % at * scanning.PAGE_BYTES for at in b"abc"]
page()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    page()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only of glibc is this known")
def test_memory_of_a_page_is_kept_for_the_next_one() -> None:
    """Else each costs a fault for every 4 KiB of it."""
    counts = [
        int(subprocess.check_output([sys.executable, "-c", FAULTS.format(keeps=keeps)]))
        for keeps in (True, False)
    ]
    assert counts[0] < 100 < counts[1]


class LongRow:
    """A table of two rows, the first of which takes several calls to look through."""

    def __init__(self, *, is_shown: bool) -> None:
        self.is_shown = is_shown
        self.left = 0
        self.fake = FakeHBase(self._answer)

    def _answer(self, call: Call) -> Reply:
        asked = message("ScanRequest")
        asked.ParseFromString(call.body)
        if asked.HasField("scan"):
            if asked.scan.start_row > b"a" or not asked.scan.include_start_row:
                return rows_after(call, [b"b"])
            self.left = 3
        if asked.close_scanner and not asked.HasField("scan"):
            return Reply(message("ScanResponse").SerializeToString())
        self.left -= 1
        if self.left > 0:
            body = message(
                "ScanResponse",
                scanner_id=7,
                more_results=True,
                more_results_in_region=True,
                heartbeat_message=True,
                cursor={"row": b"a"},
            )
            return Reply(body.SerializeToString())
        body = message(
            "ScanResponse",
            cells_per_result=[1],
            scanner_id=7,
            more_results=False,
            more_results_in_region=True,
        )
        row = b"a" if self.is_shown else b"b"
        return Reply(body.SerializeToString(), encode(row, b"f", b"q", 1, b"v"))


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_row_that_takes_several_calls_to_look_through_ends(
    scanned: Any, *, is_shown: bool
) -> None:
    """Each call of its own would begin with the row anew, for ever."""
    table = LongRow(is_shown=is_shown)
    scanner_pages = scanned(table, key_range=KeyRange(b"a", b""))
    assert keys(scanner_pages) == ([b"a", b"b"] if is_shown else [b"b"])
    assert len(table.fake.calls) < 10


def test_the_first_cells_of_such_a_row_end() -> None:
    """As a page does."""
    table = LongRow(is_shown=True)
    with table.fake as fake, closing(client_of(fake)) as client:
        scanner = Scanner(client.calls, "t", KeyRange(b"a", b""), Selection())
        cells = scanner.first_cells(b"a", 10, 1000)
        assert [cell.row for cell in cells] == [b"a"]
        assert len(fake.calls) < 10


def test_a_row_that_has_come_does_not_come_again_where_a_server_still_stands_at_it() -> None:
    """Its next answer, without rows, says that it is at the row which was to be left out."""

    def script(call: Call) -> Reply:
        asked = message("ScanRequest")
        asked.ParseFromString(call.body)
        if asked.scan.start_row == b"a" and not asked.scan.include_start_row:
            said = {"heartbeat_message": True, "cursor": {"row": b"a"}}
            body = message("ScanResponse", more_results=True, more_results_in_region=True, **said)
            return Reply(body.SerializeToString())
        return rows_after(call, [b"a", b"b"])

    with FakeHBase(script) as fake, closing(client_of(fake)) as client:
        pages = list(Scanner(client.calls, "t", KeyRange(b"", b""), Selection()).pages(1))
    assert [row[0].row for page in pages for row in page] == [b"a", b"b"]


@pytest.mark.parametrize("left", [[b"a"], []])
def test_a_scan_backwards_gets_past_a_row_that_has_come(left: list[bytes]) -> None:
    """No key is the next one there: a scanner that is kept open goes on from where it stands."""

    def script(call: Call) -> Reply:
        asked = message("ScanRequest")
        asked.ParseFromString(call.body)
        said: dict[str, Any] = {"scanner_id": 7, "more_results_in_region": True}
        if not asked.HasField("scan"):
            if asked.close_scanner:
                return Reply(message("ScanResponse").SerializeToString())
            is_end = asked.next_call_seq > 0 and not left
            if asked.next_call_seq > 0 and left:
                body = message("ScanResponse", cells_per_result=[1], more_results=True, **said)
                return Reply(body.SerializeToString(), encode(left[0], b"f", b"q", 1, b"v"))
            said["more_results_in_region"] = not is_end
        elif asked.scan.start_row == b"b" and not asked.scan.include_start_row:
            pass
        else:
            rows = {b"c": [b"b"], b"a": left}[asked.scan.start_row]
            if not asked.scan.include_start_row:
                rows = []
            body = message(
                "ScanResponse",
                cells_per_result=[1] * len(rows),
                more_results=True,
                more_results_in_region=rows == [b"b"],
            )
            cells = b"".join(encode(row, b"f", b"q", 1, b"v") for row in rows)
            return Reply(body.SerializeToString(), cells)
        cursor = {"row": b"b"}
        body = message(
            "ScanResponse", more_results=True, heartbeat_message=True, cursor=cursor, **said
        )
        return Reply(body.SerializeToString())

    with FakeHBase(script) as fake, closing(client_of(fake, options=BRIEF)) as client:
        scanner = of_one_region(client)
        client.calls.locations.locate_before = (  # type: ignore[method-assign]
            client.calls.locations.locate
        )
        backwards = dataclasses.replace(scanner, is_reversed=True)
        pages = list(backwards.pages(1, Position(b"c", is_included=True)))
        assert [row[0].row for page in pages for row in page] == [b"b", *left]
        assert len(fake.calls) < 12


def of_one_region(client: NativeClient) -> Scanner:
    """Return a scanner of a table whose one region is found again where it is."""
    locations = client.calls.locations
    region = locations.locate("t", b"", until_s=0.0)
    locations._look_up = lambda *_: region  # type: ignore[method-assign]
    return Scanner(client.calls, "t", KeyRange(b"", b""), Selection())


EARLY: Final = Reply(
    message(
        "ScanResponse", more_results=True, more_results_in_region=True, heartbeat_message=True
    ).SerializeToString()
)
"""A server's time was over before it came to a cell, so that it cannot say where it is."""


def test_a_scan_whose_time_was_over_before_it_came_to_a_cell_is_asked_for_again() -> None:
    """A busy server says so; it is no garbage, and passes."""

    def script(call: Call) -> Reply:
        return EARLY if call.number < 3 else rows_after(call, [b"a", b"b"])

    with FakeHBase(script) as fake, closing(client_of(fake)) as client:
        pages = list(of_one_region(client).pages(9))
        assert [row[0].row for page in pages for row in page] == [b"a", b"b"]
        assert len(fake.calls) == 4


def test_a_scan_that_never_comes_to_a_cell_ends() -> None:
    """By the limit of repetitions, as where nothing is answered; the catalogue's by its own."""
    with FakeHBase(lambda _: EARLY) as fake, closing(client_of(fake, options=BRIEF)) as client:
        scanner = of_one_region(client)
        with pytest.raises(StorageUnavailable, match="no answer within 5 s"):
            scanner.page(scanner.start(), 9)
        assert len(fake.calls) == 2
        everything = Scan(b"", b"", Selection())
        with pytest.raises(Unanswered):
            client.calls.read_catalogue(everything, 4, until_s=time.monotonic() + 5)
        assert len(fake.calls) == 4


def test_a_long_row_of_which_nothing_comes_for_ever_is_refused() -> None:
    """Answers without rows follow each other without a pause where the server looks at nothing."""
    said = {"more_results": True, "more_results_in_region": True}
    nothing = message("ScanResponse", scanner_id=7, **said)
    at_row = message("ScanResponse", heartbeat_message=True, cursor={"row": b"a"}, **said)

    def script(call: Call) -> Reply:
        asked = message("ScanRequest")
        asked.ParseFromString(call.body)
        is_kept = asked.HasField("scanner_id") or not asked.close_scanner
        return Reply((nothing if is_kept else at_row).SerializeToString())

    with FakeHBase(script) as fake, closing(client_of(fake, options=BRIEF)) as client:
        scanner = of_one_region(client)
        with pytest.raises(StorageUnavailable, match="neither rows nor a reason"):
            scanner.page(Position(b"a", is_included=True), 9)
        with pytest.raises(StorageUnavailable, match="neither rows nor a reason"):
            scanner.first_cells(b"a", 10, 1000)
        assert len(fake.calls) < 10


class SlowCatalogue:
    """`hbase:meta` on a server whose answers end early: after a row, or after a while."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.rows = [b"r%d" % number for number in range(6)]
        self.fake = FakeHBase(self._answer)

    def _answer(self, call: Call) -> Reply:
        if self.kind == "long" and call.number < 2:
            body = message(
                "ScanResponse",
                more_results=True,
                more_results_in_region=True,
                heartbeat_message=True,
                cursor={"row": self.rows[0]},
            )
            return Reply(body.SerializeToString())
        if self.kind == "nothing":
            body = message("ScanResponse", more_results=True, more_results_in_region=True)
            return Reply(body.SerializeToString())
        if self.kind == "large":
            asked = message("ScanRequest")
            asked.ParseFromString(call.body)
            start, is_included = asked.scan.start_row, asked.scan.include_start_row
            left = [row for row in self.rows if row > start or (row == start and is_included)]
            body = message(
                "ScanResponse", cells_per_result=[1], more_results_in_region=len(left) > 1
            )
            return Reply(body.SerializeToString(), encode(left[0], b"f", b"q", 1, b"v"))
        return rows_after(call, self.rows)


@pytest.mark.parametrize("kind", ["large", "long"])
@pytest.mark.parametrize(("rows", "expected"), [(4, 4), (9, 6)])
def test_an_answer_of_the_catalogue_that_ends_early_is_gone_on_with(
    kind: str, rows: int, expected: int
) -> None:
    """What it lacks would be taken for regions that are not there."""
    world = SlowCatalogue(kind)
    with world.fake as fake, closing(client_of(fake, options="timeout_s=5&retry_s=5")) as client:
        until_s = time.monotonic() + 5
        found = client.calls.read_catalogue(Scan(b"", b"", Selection()), rows, until_s=until_s)
    assert [cells[0].row for cells in found] == world.rows[:expected]


def test_an_answer_of_the_catalogue_without_rows_or_a_reason_is_refused() -> None:
    """It would be asked for again and again."""
    world = SlowCatalogue("nothing")
    with world.fake as fake, closing(client_of(fake, options="timeout_s=5&retry_s=5")) as client:
        until_s = time.monotonic() + 5
        with pytest.raises(Garbled, match="neither rows nor a reason"):
            client.calls.read_catalogue(Scan(b"", b"", Selection()), 4, until_s=until_s)
