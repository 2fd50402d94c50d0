"""What is measured: transactions of ours, and the bare calls that move as much data.

A bare client of a gateway is thriftpy2's own over the interface that we speak: no pool, no retries,
no checks.  A bare client of HBase itself is ours (`native/`), which has all of that.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias

from thriftpy2.rpc import make_client

import omidpy
from omidpy.manager import TransactionManager
from omidpy.model import KeyRange
from omidpy.storage.hbase.idl import thrift2 as idl
from omidpy.storage.hbase.native.address import parse_native
from omidpy.storage.hbase.native.client import NativeClient
from omidpy.storage.hbase.native.scanning import Scanner
from omidpy.storage.hbase.native.values import Get, PutCell, RowChange, Selection

FAMILY: Final = b"f"
COLUMN: Final = b"f:0"
VALUE: Final = bytes(100)
KEYS: Final = 1_000_000
"""Rows that puts choose from: conflicts are rare."""
GET_KEYS: Final = 10_000
"""Rows that gets choose from; all of them exist."""
SCAN_PAGE_ROWS: Final = 1000
_TIMEOUT_MS: Final = 60_000

PUT_TABLE: Final = "BENCH_PUT"
READ_TABLE: Final = "BENCH_READ"
WIDE_TABLE: Final = "BENCH_WIDE"
BARE_TABLE: Final = "BENCH_BARE"

Operation: TypeAlias = Callable[[], object]


class Where(NamedTuple):
    """What a worker connects to."""

    store: str
    tso: str


def key(number: int) -> bytes:
    """Return a row key."""
    return b"%012d" % number


class Clients:
    """The connections of one process, opened when first asked for."""

    def __init__(self, where: Where, manager: TransactionManager | None = None) -> None:
        self._where = where
        self._manager = manager
        self._is_owner = manager is None
        self._bare: list[Any] = []
        self._native: NativeClient | None = None

    @property
    def manager(self) -> TransactionManager:
        """Our client, which the threads of a process share."""
        if self._manager is None:
            self._manager = omidpy.connect(self._where.store, tso=self._where.tso)
        return self._manager

    def bare(self) -> Any:
        """Return a new connection to the first gateway."""
        address = self._where.store.partition("://")[2].split(",")[0]
        host, port = address.rsplit(":", 1)
        client = make_client(idl.THBaseService, host, int(port), timeout=_TIMEOUT_MS)
        self._bare.append(client)
        return client

    def native(self) -> NativeClient:
        """Return our client of HBase itself, which the threads of a process share."""
        if self._native is None:
            self._native = NativeClient(parse_native(self._where.store))
        return self._native

    def drain(self) -> None:
        """Wait for what goes on in the background, and close the bare connections."""
        if self._manager is not None:
            self._manager.session.post_committer.drain()
        for client in self._bare:
            client.close()
        self._bare.clear()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close everything but a manager of somebody else."""
        self.drain()
        if self._native is not None:
            self._native.close()
        if self._manager is not None and self._is_owner:
            self._manager.close()


# -- ours -----------------------------------------------------------------------------------------


def _put(clients: Clients, rows: int, rng: random.Random) -> Operation:
    manager = clients.manager

    def put() -> None:
        for attempt in manager.attempts():
            with attempt as tx:
                table = tx.table(PUT_TABLE)
                for _ in range(rows):
                    table.put(key(rng.randrange(KEYS)), {COLUMN: VALUE})

    return put


def _get(clients: Clients, rows: int, rng: random.Random) -> Operation:
    manager = clients.manager

    def get() -> None:
        with manager.begin() as tx:
            wanted = [key(rng.randrange(GET_KEYS)) for _ in range(rows)]
            for _, row in tx.table(READ_TABLE).rows(wanted):
                assert row

    return get


def scan(manager: TransactionManager, table: str) -> int:
    """Scan a table in a transaction; return the number of rows."""
    with manager.begin() as tx:
        return sum(1 for _ in tx.table(table).scan())


def fill(manager: TransactionManager, table: str, *, rows: int, columns: int) -> None:
    """Write a table's rows, and wait until all of them are healed."""
    batch = 1000
    for first in range(0, rows, batch):
        with manager.begin() as tx:
            target = tx.table(table)
            for number in range(first, min(first + batch, rows)):
                target.put(key(number), {b"f:%d" % column: VALUE for column in range(columns)})
    manager.session.post_committer.drain()


# -- bare -----------------------------------------------------------------------------------------


def _bare_put(clients: Clients, rows: int, rng: random.Random) -> Operation:
    client = clients.bare()
    table = BARE_TABLE.encode()

    def one() -> object:
        return idl.TPut(
            row=key(rng.randrange(KEYS)), columnValues=[idl.TColumnValue(FAMILY, b"0", VALUE)]
        )

    if rows == 1:
        return lambda: client.put(table, one())
    return lambda: client.putMultiple(table, [one() for _ in range(rows)])


def _bare_get(clients: Clients, rows: int, rng: random.Random) -> Operation:
    client = clients.bare()
    table = READ_TABLE.encode()

    def get() -> None:
        wanted = [idl.TGet(row=key(rng.randrange(GET_KEYS))) for _ in range(rows)]
        assert len(client.getMultiple(table, wanted)) == rows

    return get


def bare_scan(client: Any, table: str) -> int:
    """Read every cell of a table, shadow cells among them; return the number of rows."""
    scanner = client.openScanner(table.encode(), idl.TScan(caching=SCAN_PAGE_ROWS))
    rows = 0
    while page := client.getScannerRows(scanner, SCAN_PAGE_ROWS):
        rows += len(page)
    client.closeScanner(scanner)
    return rows


def _native_put(clients: Clients, rows: int, rng: random.Random) -> Operation:
    assert rows == 1
    client = clients.native()

    def put() -> None:
        cell = PutCell(FAMILY, b"0", time.time_ns() // 1_000_000, VALUE)
        client.mutate(BARE_TABLE, RowChange(key(rng.randrange(KEYS)), (cell,)))

    return put


def _native_get(clients: Clients, rows: int, rng: random.Random) -> Operation:
    assert rows == 1
    client = clients.native()
    newest = Selection(max_versions=1)
    return lambda: _one(client.get(READ_TABLE, Get(key(rng.randrange(GET_KEYS)), newest)).cells)


def _one(cells: Sequence[object]) -> None:
    assert cells


def native_scan(client: NativeClient, table: str) -> int:
    """Read every cell of a table, shadow cells among them; return the number of rows."""
    scanner = Scanner(client.calls, table, KeyRange(b"", b""), Selection())
    return sum(map(len, scanner.pages(SCAN_PAGE_ROWS)))


KINDS: Final[Mapping[str, Callable[[Clients, int, random.Random], Operation]]] = {
    "put": _put,
    "get": _get,
    "bare put": _bare_put,
    "bare get": _bare_get,
    "native put": _native_put,
    "native get": _native_get,
}
