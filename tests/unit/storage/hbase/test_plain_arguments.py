"""What the arguments of plain tables come to in calls: as through a gateway, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from omidpy.errors import UsageError
from omidpy.happybase.connection import Connection
from omidpy.happybase.session import PlainSession
from omidpy.happybase.table import Table
from omidpy.storage.hbase.native.cellblock import encode
from omidpy.storage.hbase.native.scanning import MOST_ROWS
from omidpy.storage.hbase.native.values import ALL_VERSIONS
from tests.machines.fake_hbase import PROCESSED, Call, FakeHBase, Reply, client_of
from tests.machines.hbase_messages import message

ROWS = (b"a", b"b", b"c")


def answer(call: Call) -> Reply:
    """Have three rows of one cell, and take every change."""
    if call.method == "Scan":
        body = message(
            "ScanResponse", cells_per_result=[1] * len(ROWS), more_results_in_region=False
        )
        cells = b"".join(encode(row, b"f", b"q", 1, b"v") for row in ROWS)
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
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_cell_can_have_is_refused(fake: FakeHBase, name: str) -> None:
    """Before anything is sent: HBase would read it as another number."""
    with pytest.raises(UsageError):
        REFUSED[name](table())
    assert not fake.calls


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
