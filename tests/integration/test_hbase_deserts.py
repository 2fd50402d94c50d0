"""Scans of a real HBase across rows that they do not show, and over rows that are long.

A region server's time is counted in rows here, so that nothing depends on how fast the machine is:
every call of a scan says from where to where it went, and the test knows which rows lie between.  A
call that passes too many is not answered, as a slow region server would not have answered it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest

from omidpy.model import FamilySchema, KeyRange, TableSchema
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.storage.hbase import paging
from omidpy.storage.hbase.addresses.gateways import parse_address
from omidpy.storage.hbase.rpc.gateway import Client, Unanswered, open_client
from omidpy.storage.hbase.rpc.pool import GatewayPool
from omidpy.storage.hbase.thrift1 import Thrift1Store
from omidpy.storage.hbase.thrift2 import Thrift2Store
from tests.machines.hbase import HBase
from tests.machines.hbase.bare import bare_client, gateway_idl
from tests.machines.hbase_store import empty_hbase

DESERTS: Final = "deserts"
LONG: Final = "long"
DESERT_ROWS: Final = 5000
"""Rows of each kind that the scan does not show."""
ROWS: Final = [b"%05d" % number for number in range(3 * DESERT_ROWS)]
OASES: Final = [ROWS[0], *ROWS[DESERT_ROWS - 1 :: DESERT_ROWS]]
PACE_ROWS: Final = DESERT_ROWS - 1000
"""Rows that a call may pass before it counts as unanswered."""
SHOWN_VERSION: Final = 10**16
BOUND: Final = 10**17
"""The snapshot, between what it shows and what is too new."""
LONG_BYTES: Final = 100 * 1024


class CountingClient:
    """A connection whose scans take time by the rows that they pass."""

    def __init__(self, client: Client, notes: Notes) -> None:
        self.client = client
        self.notes = notes
        self.scanned: tuple[bytes, Any] = (b"", None)

    def call(
        self,
        method: str,
        *args: Any,
        while_silent: Callable[[], object] | None = None,
        patience_s: float | None = None,
    ) -> Any:
        """Make a call; of a scan, weigh the answer."""
        answer = self.client.call(method, *args, while_silent=while_silent)
        if method == "scannerOpenWithScan":
            self.scanned = args[:2]
        elif method == "scannerGetList":
            table, scan = self.scanned
            self.notes.weigh(table, scan, args[1], answer, is_patient=patience_s is None)
        elif method == "getScannerResults":
            table, scan, count = args
            self.notes.weigh(table, scan, count, answer, is_patient=patience_s is None)
        elif method in ("getMultiple", "getRowsTs"):
            self.notes.largest_bytes = max(self.notes.largest_bytes, size_bytes(answer))
        return answer

    def call_ahead(
        self, calls: Sequence[tuple[str, Sequence[Any]]], *, patience_s: float
    ) -> list[Any]:
        """Make calls one after another; no scan is among them."""
        return self.client.call_ahead(calls, patience_s=patience_s)

    def is_dead(self) -> bool:
        """Say whether the gateway closed it."""
        return self.client.is_dead()

    def close(self) -> None:
        """End the connection."""
        self.client.close()

    def forget(self) -> None:
        """Give it up to another process."""
        self.client.forget()


class Notes:
    """What the calls of scans came to."""

    def __init__(self) -> None:
        self.unanswered_count = 0
        self.most_rows = 0
        self.largest_bytes = 0
        self.has_begun_with_landmark: bool | None = None

    def weigh(
        self, table: bytes, scan: Any, count: int, answer: list[Any], *, is_patient: bool
    ) -> None:
        """Count the rows between where a scan began and where it ended."""
        if self.has_begun_with_landmark is None:
            self.has_begun_with_landmark = bool(getattr(scan, "attributes", None))
        end = answer[-1].row if len(answer) == count else scan.stopRow
        first, last = (end, scan.startRow) if scan.reversed else (scan.startRow, end)
        above = bisect_left(ROWS, last) if last else len(ROWS)
        passed = above - bisect_left(ROWS, first)
        self.largest_bytes = max(self.largest_bytes, size_bytes(answer))
        if table == DESERTS.encode() and passed > PACE_ROWS:
            assert not is_patient, f"a call passed {passed} rows"
            self.unanswered_count += 1
            raise Unanswered
        self.most_rows = max(self.most_rows, passed)


def size_bytes(answer: list[Any]) -> int:
    """Return the bytes of the values of an answer of either gateway."""
    if answer and hasattr(answer[0], "columnValues"):
        return sum(len(one.value) for row in answer for one in row.columnValues)
    return sum(len(one.value) for row in answer for one in row.columns.values())


@pytest.fixture(scope="module")
def filled(hbase: HBase) -> Iterator[HBase]:
    """Give an HBase with three deserts in a table, and long rows in another."""
    with empty_hbase(hbase) as url:
        store = Thrift2Store(url)
        for name in (DESERTS, LONG):
            store.create_table(TableSchema(name, [FamilySchema(b"cf")]))
        plain, newer = Put(b"cf", b"q", 1, b"v"), Put(b"cf", b"q", BOUND, b"v")
        without = Put(b"cf", b"another", 1, b"v")
        kinds = [plain] * DESERT_ROWS + [newer] * DESERT_ROWS + [without] * DESERT_ROWS
        mutations = [RowMutation(key, [put]) for key, put in zip(ROWS, kinds, strict=True)]
        store.write({DESERTS: mutations})
        # As plain clients delete rows: HBase's own marks cover all that is older.
        tdelete = gateway_idl(hbase).TDelete
        with bare_client(hbase) as gateway:
            deletes = [tdelete(row=key) for key in ROWS[:DESERT_ROWS]]
            assert gateway.deleteMultiple(DESERTS.encode(), deletes) == []
        shown = Put(b"cf", b"q", SHOWN_VERSION, b"shown")
        store.write({DESERTS: [RowMutation(key, [shown]) for key in OASES]})
        value = bytes(LONG_BYTES)
        long = [RowMutation(key, [Put(b"cf", b"q", 1, value)]) for key in ROWS[:200]]
        store.write({LONG: long})
        store.close()
        yield hbase


@pytest.fixture(params=["thrift2", "thrift1"])
def counted(filled: HBase, request: pytest.FixtureRequest) -> Iterator[tuple[Store, Notes]]:
    """Give a store on either gateway that knows nothing yet, and what its scans came to."""
    notes = Notes()
    address = parse_address(
        filled.thrift2_url if request.param == "thrift2" else filled.thrift1_url
    )

    def opened(host: str, port: int) -> CountingClient:
        return CountingClient(open_client(address, host, port), notes)

    pool = GatewayPool(address, opened)
    kind = Thrift2Store if request.param == "thrift2" else Thrift1Store
    store = kind(address, pool=pool)
    yield store, notes
    store.close()


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_crosses_deleted_newer_and_other_rows_in_short_calls(
    counted: tuple[Store, Notes], *, reverse: bool
) -> None:
    """Without that each of the three would time out, and again whenever it is tried."""
    store, notes = counted
    pages = store.scan(
        DESERTS,
        columns=[(b"cf", b"q")],
        max_version=BOUND,
        max_versions=1,
        reverse=reverse,
    )
    found = [cell for page in pages for cells in page for cell in cells]
    assert [cell.row for cell in found] == sorted(OASES, reverse=reverse)
    assert {cell.value for cell in found} == {b"shown"}
    assert notes.unanswered_count >= 1, "the first call passed too many rows"
    assert 0 < notes.most_rows <= PACE_ROWS


def test_a_search_crosses_deleted_rows_in_short_calls(counted: tuple[Store, Notes]) -> None:
    """Among them are no waypoints either."""
    store, notes = counted
    assert store.find_cell(DESERTS, prefix=b"zz") is None
    assert notes.unanswered_count >= 1
    found = store.find_cell(DESERTS, prefix=b"an")
    assert found is not None
    assert found.qualifier == b"another"


def test_a_search_for_one_transaction_begins_with_a_landmark(filled: HBase) -> None:
    """Few rows can have what it looks for, so that no call is wasted on finding that out."""
    notes = Notes()
    address = parse_address(filled.thrift2_url)
    pool = GatewayPool(
        address, lambda host, port: CountingClient(open_client(address, host, port), notes)
    )
    store = Thrift2Store(address, pool=pool)
    pages = store.scan(DESERTS, min_version=SHOWN_VERSION, max_version=SHOWN_VERSION + 50)
    assert [cells[0].row for page in pages for cells in page] == OASES
    assert notes.has_begun_with_landmark
    store.close()


def test_no_answer_is_much_longer_than_a_page_should_be(counted: tuple[Store, Notes]) -> None:
    """A thousand rows of 100 KiB would be a tenth of the gateway's memory, for each reader."""
    store, notes = counted
    found = [cells[0] for page in store.scan(LONG, max_versions=1) for cells in page]
    assert [len(cell.value) for cell in found] == [LONG_BYTES] * 200
    found = [cells[0] for cells in store.get(LONG, ROWS[:200], max_versions=1)]
    assert [len(cell.value) for cell in found] == [LONG_BYTES] * 200
    assert LONG_BYTES <= notes.largest_bytes <= paging.PAGE_BYTES
    part = store.scan(LONG, KeyRange(ROWS[100], b""), max_versions=1, page_rows=3)
    assert [len(page) for page in part][:2] == [3, 3]
