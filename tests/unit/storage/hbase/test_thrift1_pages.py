"""A page of a scan through Thrift1 is three calls to one gateway, which may die between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.model import Cell
from omidpy.storage.hbase import paging
from omidpy.storage.hbase.addresses.gateways import parse_address
from omidpy.storage.hbase.idl import thrift1 as idl
from omidpy.storage.hbase.rpc.pool import GatewayPool
from omidpy.storage.hbase.thrift1 import Thrift1Store
from omidpy.storage.hbase.thrift1.calls import PAGE_ATTEMPTS

URL = "hbase+thrift1://one:1,two:2"


def row(key: bytes, version: int) -> Any:
    """Return a row of one cell, as a gateway gives it."""
    return idl.TRowResult(row=key, columns={b"f:q": idl.TCell(b"v", version)})


class Scripted:
    """Gateways that break as many connections as told, in the middle of a page."""

    def __init__(self, *, breaking: int) -> None:
        self.breaking = breaking
        self.asked: list[tuple[str, str]] = []
        self.open_scanners: set[tuple[str, int]] = set()
        self.rows = [row(b"r", 5)]

    def open(self, host: str, port: int) -> ScriptedClient:
        """Connect."""
        del port
        return ScriptedClient(self, host)


class ScriptedClient:
    """One connection; it has a table `t` with a row."""

    def __init__(self, gateways: Scripted, host: str) -> None:
        self.gateways = gateways
        self.host = host

    def call(self, method: str, *args: Any, **more: Any) -> Any:
        """Answer, or break."""
        del more
        self.gateways.asked.append((self.host, method))
        scanners = self.gateways.open_scanners
        match method:
            case "getColumnDescriptors":
                return {b"f:": idl.ColumnDescriptor(name=b"f:", maxVersions=2**31 - 1)}
            case "scannerOpenWithScan":
                scanners.add((self.host, 7))
                return 7
            case "scannerGetList":
                assert (self.host, args[0]) in scanners, "a scanner belongs to one gateway"
                if self.gateways.breaking:
                    self.gateways.breaking -= 1
                    raise ConnectionResetError
                given = self.gateways.rows[: args[1]]
                del self.gateways.rows[: args[1]]
                return given
            case "scannerClose":
                scanners.remove((self.host, args[0]))
                return None
        raise AssertionError(method)

    def call_ahead(
        self, calls: Sequence[tuple[str, Sequence[Any]]], *, patience_s: float
    ) -> list[Any]:
        """Be asked for nothing of the kind."""
        raise AssertionError((calls, patience_s))

    def is_dead(self) -> bool:
        """Say no."""
        return False

    def close(self) -> None:
        """Do nothing: the gateway has its own time for a scanner whose client is gone."""

    def forget(self) -> None:
        """Do nothing."""


@pytest.fixture
def store(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Thrift1Store, Scripted]]:
    """Return a store on scripted gateways that break some pages, the first as long as others."""
    monkeypatch.setattr(paging, "FIRST_PAGE_ROWS", 16)
    gateways = Scripted(breaking=request.param)
    address = parse_address(URL)
    pool = GatewayPool(address, gateways.open, pause=lambda _: None)
    opened = Thrift1Store(address, pool=pool)
    yield opened, gateways
    opened.close()


@pytest.mark.parametrize("store", [0, 1, PAGE_ATTEMPTS - 1], indirect=True)
def test_a_page_whose_gateway_died_is_read_again(store: tuple[Thrift1Store, Scripted]) -> None:
    """Nobody has seen any of it, so that nothing comes twice."""
    opened, gateways = store
    broken = gateways.breaking
    assert list(opened.scan("t", max_versions=1)) == [[[Cell(b"r", b"f", b"q", 5, b"v")]]]
    opens = [host for host, method in gateways.asked if method == "scannerOpenWithScan"]
    assert len(opens) == broken + 1
    assert len(set(opens)) == min(2, broken + 1), "another gateway is asked where there is one"


@pytest.mark.parametrize("store", [PAGE_ATTEMPTS], indirect=True)
def test_a_page_is_not_read_again_for_ever(store: tuple[Thrift1Store, Scripted]) -> None:
    """And the error says that nothing was changed: a scan is tried again safely."""
    opened, _ = store
    with pytest.raises(StorageUnavailable) as caught:
        list(opened.scan("t", max_versions=1))
    assert caught.value.retryable
    assert "applied" not in str(caught.value)


@pytest.mark.parametrize("store", [0], indirect=True)
def test_scanners_are_closed(store: tuple[Thrift1Store, Scripted]) -> None:
    """The gateway would keep each for a while."""
    opened, gateways = store
    list(opened.scan("t", max_versions=1))
    assert gateways.open_scanners == set()


@pytest.mark.parametrize("store", [0], indirect=True)
def test_rows_that_are_too_old_do_not_use_up_a_page(store: tuple[Thrift1Store, Scripted]) -> None:
    """The gateway knows no lower bound, so a page goes on until it is full, and no further."""
    opened, gateways = store
    gateways.rows = [row(b"%d" % n, int(n > 1)) for n in range(8)]
    pages = opened.scan("t", min_version=1, max_versions=1, page_rows=3)
    assert [cells[0].row for cells in next(pages)] == [b"2", b"3", b"4"]
