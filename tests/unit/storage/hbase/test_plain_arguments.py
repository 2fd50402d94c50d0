"""What the arguments of plain tables come to in calls: as through a gateway, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from omidpy.errors import StorageUnavailable, UsageError
from omidpy.happybase.batch import SYNC_WAL
from omidpy.happybase.connection import Connection
from omidpy.happybase.session import PlainSession
from omidpy.happybase.table import Table
from omidpy.model import MAX_VERSION
from omidpy.storage.hbase.native.cellblock import encode
from omidpy.storage.hbase.native.scanning import MOST_ROWS
from omidpy.storage.hbase.native.values import ALL_VERSIONS
from tests.machines.fake_hbase import PROCESSED, Call, FakeHBase, Reply, client_of
from tests.machines.hbase_messages import message

ROWS = (b"a", b"b", b"c")


def answer(call: Call) -> Reply:
    """Have three rows of one cell, and take every change."""
    if call.method == "Scan":
        asked = message("ScanRequest")
        asked.ParseFromString(call.body)
        rows = ROWS[: asked.number_of_rows]
        body = message(
            "ScanResponse", cells_per_result=[1] * len(rows), more_results_in_region=False
        )
        cells = b"".join(encode(row, b"f", b"q", 1, b"v") for row in rows)
        return Reply(body.SerializeToString(), cells)
    return PROCESSED if call.method == "Mutate" else Reply(b"\x0a\x00")


@pytest.fixture(name="fake")
def what_is_called(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHBase]:
    """Return the server that connections call."""
    with FakeHBase(answer) as fake:
        client = client_of(fake)
        monkeypatch.setattr(PlainSession, "native", client)
        monkeypatch.setattr(PlainSession, "check_plain", lambda *_: None)
        yield fake
        client.close()


def table(name: str = "t") -> Table:
    """Return a table."""
    return Connection("localhost", autoconnect=False).table(name)


REFUSED: dict[str, Callable[[Table], Any]] = {
    "put before all": lambda t: t.put(b"a", {b"f:q": b"v"}, timestamp=-1),
    "put behind all": lambda t: t.put(b"a", {b"f:q": b"v"}, timestamp=2**63),
    "delete before all": lambda t: t.delete(b"a", [b"f:q"], timestamp=-1),
    "row before all": lambda t: t.row(b"a", timestamp=-1),
    "scan behind all": lambda t: t.scan(timestamp=2**63),
    "put of a long family": lambda t: t.put(b"a", {b"f" * 300 + b":q": b"v"}),
    "delete of a long family": lambda t: t.delete(b"a", [b"f" * 300]),
    "count of a long family": lambda t: t.counter_inc(b"a", b"f" * 300 + b":q"),
    "put of a long row": lambda t: t.put(b"a" * 2**15, {b"f:q": b"v"}),
    "scan from a long row": lambda t: t.scan(b"a" * 2**15),
    "scan to a long row": lambda t: t.scan(row_stop=b"a" * 2**15, reverse=True),
    "scan of a long prefix": lambda t: t.scan(row_prefix=b"a" * 2**15),
    "count by more than fits": lambda t: t.counter_inc(b"a", b"f:q", 2**63),
    "count down by more than fits": lambda t: t.counter_dec(b"a", b"f:q", -(2**63)),
    "count of more than fits": lambda t: t.counter_set(b"a", b"f:q", 2**63),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_cell_can_have_is_refused(fake: FakeHBase, name: str) -> None:
    """Before anything is sent: HBase would read it as another number."""
    with pytest.raises(UsageError):
        REFUSED[name](table())
    assert not fake.calls


@pytest.mark.parametrize("value", ["1", 1.0, None])
def test_a_counter_counts_whole_numbers(fake: FakeHBase, value: Any) -> None:
    """It was said of the number that it has no attribute."""
    for count in (table().counter_set, table().counter_inc):
        with pytest.raises(TypeError):
            count(b"a", b"f:q", value)
    assert not fake.calls


class Whole:
    """A whole number that is none of Python's, as arrays have them."""

    def __index__(self) -> int:
        """Return it."""
        return 7


def test_a_change_is_logged_whatever_the_durability_of_the_table(fake: FakeHBase) -> None:
    """A gateway says so with each change; left to a table with SKIP_WAL it is lost by a crash."""
    table().put(b"a", {b"f:q": b"v"})
    table().delete(b"a", [b"f:q"])
    with pytest.raises(StorageUnavailable, match="it was done"):
        table().counter_inc(b"a", b"f:q", Whole())  # type: ignore[arg-type]  # numpy's are like it
    changes = [call for call in fake.calls if call.method == "Mutate"]
    assert [_mutation(call).durability for call in changes] == [SYNC_WAL] * 3


def _mutation(call: Call) -> Any:
    asked = message("MutateRequest")
    asked.ParseFromString(call.body)
    return asked.mutation


def test_a_counter_without_a_colon_is_that_of_an_empty_qualifier(fake: FakeHBase) -> None:
    """As a gateway has it, where programs have counters already."""
    with suppress(StorageUnavailable):
        table().counter_inc(b"a", b"f")
    assert encode(b"a", b"f", b"", MAX_VERSION, b"\0" * 7 + b"\1") == fake.calls[0].cells


@pytest.mark.parametrize(
    ("columns", "asked"),
    [
        ([b"f:q", b"f"], {b"f": []}),
        ([b"f", b"f:q"], {b"f": [b"q"]}),
        ([b"f:q", b"g:r", b"f", b"f:s", b"f:t"], {b"f": [b"s", b"t"], b"g": [b"r"]}),
    ],
)
def test_a_family_takes_the_place_of_its_columns(
    fake: FakeHBase, columns: list[bytes], asked: dict[bytes, list[bytes]]
) -> None:
    """As a gateway has it: a family that was asked for behind a column lacked all others."""
    table().row(b"a", columns)
    sent = message("GetRequest")
    sent.ParseFromString(fake.calls[0].body)
    assert {one.family: [*one.qualifier] for one in sent.get.column} == asked


LONGEST = b"r" * (2**15 - 1)


@pytest.mark.parametrize(
    ("scan", "lowest", "upper"),
    [
        (lambda t: t.scan(b"b", b"b"), b"b", b"b\0"),
        (lambda t: t.scan(b"b", "b", reverse=True), b"b", b"b\0"),
        (lambda t: t.scan("b", b"a", reverse=True), b"a\0", b"b\0"),
        (lambda t: t.scan(LONGEST, reverse=True), b"", LONGEST[:-1] + b"s"),
        (lambda t: t.scan(b"\xff" * (2**15 - 1), reverse=True), b"", b""),
        (lambda t: t.scan(b"", b""), b"", b""),
    ],
)
def test_where_a_scan_begins_and_ends(
    fake: FakeHBase, scan: Callable[[Table], Any], lowest: bytes, upper: bytes
) -> None:
    """One that ends where it starts gets that row, and no key is longer than HBase's are."""
    with suppress(StorageUnavailable):  # the fake has the same rows for all
        list(scan(table()))
    sent = message("ScanRequest")
    sent.ParseFromString(fake.calls[0].body)
    ends = (sent.scan.start_row, sent.scan.stop_row)
    assert (ends[::-1] if sent.scan.reversed else ends) == (lowest, upper)


def test_bytes_of_other_kinds_are_bytes(fake: FakeHBase) -> None:
    """As happybase takes them."""
    table().put(bytearray(b"a"), {b"f:q": memoryview(b"v")})  # type: ignore[arg-type,dict-item]
    assert fake.calls[0].cells == encode(b"a", b"f", b"q", MAX_VERSION, b"v")


def test_a_table_of_the_default_namespace_has_two_names(fake: FakeHBase) -> None:
    """The catalogue has it by one of them, and would know no region of the other."""
    table("default:t").put(b"a", {b"f:q": b"v"})
    assert fake.methods == ["Mutate"]
    assert table("default:t").name == b"default:t"


def test_a_scan_can_be_closed(fake: FakeHBase) -> None:
    """As happybase's, which is a generator."""
    scan = table().scan(limit=2)
    assert next(scan)[0] == b"a"
    scan.close()
    assert [*scan] == []
    assert len(fake.calls) == 1


def test_numbers_that_hbase_would_cut_are_its_greatest(fake: FakeHBase) -> None:
    """It would take 2**32 + 1 for 1, and end the scan of a region behind one row."""
    assert [row for row, _ in table().scan(batch_size=2**32 + 1)] == [*ROWS]
    asked = message("ScanRequest")
    asked.ParseFromString(fake.calls[0].body)
    assert (asked.number_of_rows, asked.limit_of_rows) == (MOST_ROWS, MOST_ROWS)
    table().cells(b"a", b"f:q", versions=2**32 + 1)
    asked = message("GetRequest")
    asked.ParseFromString(fake.calls[1].body)
    assert asked.get.max_versions == ALL_VERSIONS
