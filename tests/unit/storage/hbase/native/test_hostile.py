"""Connections that end at every byte, and servers that answer with what is no answer.

Nothing is lost, nothing that could apply twice is sent twice, and who gives up names the server.
"""

from __future__ import annotations

import itertools
import re
import struct
import time
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import pytest

from omidpy.errors import OmidError, StorageUnavailable
from omidpy.model import Cell, KeyRange
from omidpy.storage.hbase.native import admin as admin_module
from omidpy.storage.hbase.native import client as client_module
from omidpy.storage.hbase.native.admin import Admin
from omidpy.storage.hbase.native.cellblock import encode
from omidpy.storage.hbase.native.client import NativeClient
from omidpy.storage.hbase.native.scanning import Scanner
from omidpy.storage.hbase.native.values import (
    Check,
    FamilyDescriptor,
    Get,
    PutCell,
    RowChange,
    Selection,
    TableDescriptor,
)
from omidpy.storage.hbase.native.wire.frames import MAX_FRAME_BYTES
from tests.machines.cutting_network import ANSWER, REQUEST, CuttingNetwork
from tests.machines.fake_hbase import PROCESSED, Call, FakeHBase, Reply, client_of, frame_of
from tests.machines.hbase_messages import message

ROW: Final = b"a"
PUT: Final = RowChange(ROW, (PutCell(b"f", b"q", 5, b"value"),))
CHECK: Final = Check(ROW, b"f", b"c", None)
FOUND: Final = [Cell(ROW, b"f", b"q", 5, b"value")]
TABLE: Final = TableDescriptor("t", (FamilyDescriptor(b"f", {}, {}),), {}, {})
EXAMPLES: Final = (ROW, b"b")
INCREMENT: Final = 1


def answered(call: Call) -> Reply:
    """Answer as HBase does, where every row has one cell."""
    match call.method:
        case "Get":
            body = message("GetResponse", result={"associated_cell_count": 1})
            return Reply(body.SerializeToString(), encode(*FOUND[0]))
        case "Mutate":
            asked = message("MutateRequest")
            asked.ParseFromString(call.body)
            if asked.mutation.mutate_type == INCREMENT:
                number = (8).to_bytes(8)
                body = message("MutateResponse", result={"associated_cell_count": 1})
                return Reply(body.SerializeToString(), encode(ROW, b"f", b"n", 1, number))
            return Reply(b"\x10\x01")
        case "Multi":
            return _multi(call)
        case "Scan":
            body = message("ScanResponse", cells_per_result=[1, 1], more_results_in_region=False)
            cells = b"".join(encode(row, b"f", b"q", 5, b"value") for row in EXAMPLES)
            return Reply(body.SerializeToString(), cells)
        case "CreateTable":
            return Reply(b"\x08\x07")
        case _:
            assert call.method == "getProcedureResult"
            return Reply(b"\x08\x02")


def _multi(call: Call) -> Reply:
    asked = message("MultiRequest")
    asked.ParseFromString(call.body)
    parts, cells = [], b""
    for part in asked.regionAction:
        results = []
        for one in part.action:
            count = int(one.HasField("get"))
            cells += encode(one.get.row, b"f", b"q", 5, b"value") * count
            results.append({"index": one.index, "result": {"associated_cell_count": count}})
        parts.append({"resultOrException": results})
    return Reply(message("MultiResponse", regionActionResult=parts).SerializeToString(), cells)


def scanned(client: NativeClient) -> object:
    """Read a page of a scan."""
    selection = Selection()
    return Scanner(client.calls, "t", KeyRange(b"", b""), selection).page(
        Scanner(client.calls, "t", KeyRange(b"", b""), selection).start(), 10
    )


def placed(
    there: FakeHBase | CuttingNetwork, options: str = "timeout_s=5&retry_s=5"
) -> NativeClient:
    """Return a client to which every look-up says that all rows are there."""
    client = client_of(there, options=options)
    region = client.calls.locations.locate("t", ROW, until_s=0)
    client.calls.locations._look_up = lambda *_: region  # type: ignore[method-assign]
    return client


class Use(NamedTuple):
    """A call of the client."""

    do: Callable[[NativeClient], Any]
    method: str
    is_once: bool = False
    """Whether it must never be sent whole twice."""
    nonce: Callable[[bytes], object] | None = None
    """By what HBase knows a repeated one."""


def _mutation_nonce(body: bytes) -> object:
    asked = message("MutateRequest")
    asked.ParseFromString(body)
    return asked.nonce_group, asked.mutation.nonce


def _table_nonce(body: bytes) -> object:
    asked = message("CreateTableRequest")
    asked.ParseFromString(body)
    return asked.nonce_group, asked.nonce


GETS: Final = [Get(row, Selection()) for row in EXAMPLES]
PUTS: Final = [PUT._replace(row=row) for row in EXAMPLES]
USES: Final = {
    "get": Use(lambda client: client.get("t", GETS[0]).cells, "Get"),
    "gets": Use(lambda client: client.get_many("t", GETS), "Multi"),
    "put": Use(lambda client: client.mutate("t", PUT), "Mutate"),
    "puts": Use(lambda client: client.mutate_many("t", PUTS), "Multi"),
    "condition": Use(
        lambda client: client.check_and_mutate("t", CHECK, PUT), "Mutate", is_once=True
    ),
    "increment": Use(
        lambda client: client.increment("t", ROW, b"f", b"n", 3), "Mutate", nonce=_mutation_nonce
    ),
    "scan": Use(scanned, "Scan"),
    "create": Use(
        lambda client: Admin(client.calls).create(TABLE), "CreateTable", nonce=_table_nonce
    ),
}


def ended(use: Use, client: NativeClient) -> tuple[object, str | None]:
    """Make a call, and close the client; return its result, or what its error says."""
    try:
        return use.do(client), None
    except StorageUnavailable as error:
        return None, str(error)
    finally:
        client.close()


class AlikeNonces:
    """Draws other numbers each time, all of one length in a message."""

    def __init__(self) -> None:
        self._numbers = itertools.count(2**62)

    def randrange(self, *_: int) -> int:
        """Return the next one."""
        return next(self._numbers)


@pytest.mark.parametrize("way", [REQUEST, ANSWER])
@pytest.mark.parametrize("name", USES)
def test_a_connection_may_end_at_any_byte(
    name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is made again, or of unknown outcome if it may not be; and it comes to the same."""
    monkeypatch.setattr(client_module, "_nonces", AlikeNonces())
    monkeypatch.setattr(admin_module, "_random", AlikeNonces())
    use = USES[name]
    with FakeHBase(answered) as fake, CuttingNetwork("127.0.0.1", fake.port) as network:
        client = placed(network)
        expected = use.do(client)
        client.close()
        length = network.passed[way]
        assert length > 5
        for after_bytes in range(length):
            fake.calls.clear()
            client = placed(network)
            network.cut(way, after_bytes)
            found, doubt = ended(use, client)
            if doubt is None:
                assert found == expected
            else:
                assert use.is_once, f"{way} cut after {after_bytes} bytes: {doubt}"
                assert "whether it was applied is not known" in doubt
                assert f"127.0.0.1:{network.port}" in doubt
            came = [call.body for call in fake.calls if call.method == use.method]
            assert (doubt is None) <= len(came) <= (1 if use.is_once else 2)
            if use.nonce is not None:
                assert len(set(map(use.nonce, came))) == 1, "HBase must know it again"
            # What came by then was whole; a part of a call is no call.
            assert set(came) == set(came[:1]) or use.nonce is not None
        assert network.cut_count == length


# -- what is no answer -----------------------------------------------------------------------------


def with_id(call: Call, offset: int) -> bytes:
    """Return the answer to another call."""
    return frame_of(call.call_id + offset, answered(call))


def claimed(call: Call, length: int) -> bytes:
    """Return the answer with another length before it."""
    return struct.pack(">I", length & 0xFFFFFFFF) + frame_of(call.call_id, answered(call))[4:]


def with_body(call: Call, body: str, cells: bytes = b"") -> bytes:
    """Return an answer to the call with this result."""
    return frame_of(call.call_id, Reply(bytes.fromhex(body), cells))


SILENT: Final = "no answer within"
"""How the client ends that still waits."""

ANSWERS: Final[dict[str, Callable[[Call], bytes]]] = {
    "a web page": lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n<html>",
    "nulls": lambda _: bytes(64),
    "an empty frame": lambda _: bytes(4),
    "ones": lambda _: b"\xff" * 64,
    "a negative length": lambda call: claimed(call, -2),
    "the least length": lambda call: claimed(call, -(2**31)),
    "a length above any": lambda call: claimed(call, MAX_FRAME_BYTES + 1),
    "a length below": lambda call: claimed(call, 3),
    "no call id": lambda _: bytes.fromhex("000000020000"),
    "a header longer than all": lambda _: bytes.fromhex("00000004ffffff7f"),
    "a header without end": lambda _: bytes.fromhex("00000008ffffffffffffffff"),
    "cells that are not there": lambda call: (
        bytes.fromhex("00000008") + bytes((6, 8, call.call_id, 0x1A, 2, 8, 9)) + b"\0"
    ),
    "a negative count of cells": lambda call: with_body(call, "0a0c10ffffffffffffffffff01"),
    "a result that ends early": lambda call: with_body(call, "0a7f"),
    "a group": lambda call: with_body(call, "0b0c"),
    "a cell that is longer than all": lambda call: with_body(
        call, "0a021001", b"\x7f\xff\xff\xff" + encode(*FOUND[0])[4:]
    ),
}


BROKEN_CELLS: Final = ("a negative count of cells", "a cell that is longer than all")
WITHOUT_CELLS: Final = ("put", "condition")
"""Calls whose answer has none, so that nothing is read there."""


@pytest.mark.parametrize(
    ("what", "name"),
    [
        (what, name)
        for what in ANSWERS
        for name in USES
        if name != "create" and not (what in BROKEN_CELLS and name in WITHOUT_CELLS)
    ],
)
def test_what_is_no_answer_is_an_error_that_names_the_server(what: str, name: str) -> None:
    """No exception of another kind, no wait without end; a change in doubt is made once."""
    use = USES[name]
    with FakeHBase(lambda call: Reply(raw=ANSWERS[what](call))) as fake:
        client = placed(fake, options="timeout_s=0.3&retry_s=0.3")
        try:
            with pytest.raises(OmidError, match=f"127.0.0.1:{fake.port}") as refused:
                use.do(client)
            assert isinstance(refused.value, StorageUnavailable)
            if use.is_once:
                assert "whether it was applied is not known" in str(refused.value)
                assert len(fake.calls) == 1
        finally:
            client.close()


@pytest.mark.parametrize("offset", [-1, 1, 2**20, 2**31 - 1])
@pytest.mark.parametrize("name", ["get", "condition"])
def test_an_answer_to_another_call_is_no_answer(name: str, offset: int) -> None:
    """It is waited on for its own; it may be that of a call that was given up."""
    use = USES[name]

    def script(call: Call) -> Reply:
        return Reply(raw=with_id(call, offset))

    with FakeHBase(script) as fake:
        client = placed(fake, options="timeout_s=0.2&retry_s=0.2")
        with pytest.raises(StorageUnavailable, match=f"127.0.0.1:{fake.port}.*{SILENT}"):
            use.do(client)
        assert not use.is_once or len(fake.calls) == 1
        client.close()


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(struct.pack(">I", MAX_FRAME_BYTES) + bytes(64), id="one frame"),
        pytest.param(frame_of(2**30, Reply(b"x" * 40)), id="frames of nobody's"),
    ],
)
def test_answers_without_end_cost_bounded_memory_and_time(raw: bytes) -> None:
    """A byte at a time: each piece costs more than what it holds."""
    with FakeHBase(lambda _: Reply(raw=raw, is_endless=True)) as fake:
        client = placed(fake, options="timeout_s=1.5&retry_s=0.1")
        tracemalloc.start()
        began_s = time.monotonic()
        try:
            with pytest.raises(StorageUnavailable, match=f"127.0.0.1:{fake.port}"):
                client.check_and_mutate("t", CHECK, PUT)
            _, most_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            client.close()
        assert time.monotonic() - began_s < 20
        assert most_bytes < 2_000_000
        assert len(fake.calls) == 1


@pytest.fixture(name="told")
def client_that_is_told() -> Callable[..., str]:
    """Return what lets a client be told where a region went, and returns its error."""

    def told(where: str) -> str:
        text = f"x.RegionMovedException: Region moved to: {where}. As of locationSeqNum=9."
        moved = ("org.apache.hadoop.hbase.exceptions.RegionMovedException", text)
        with FakeHBase(lambda _: Reply(fault=moved)) as fake:
            client = client_of(fake, options="timeout_s=0.3&retry_s=0.1")
            client.calls.locations._look_up = _nowhere  # type: ignore[method-assign, assignment]
            try:
                with pytest.raises(OmidError) as refused:
                    client.mutate("t", PUT)
            finally:
                client.close()
            return str(refused.value)

    return told


def _nowhere(*_: object) -> Any:
    raise StorageUnavailable("nowhere")


@pytest.mark.parametrize(
    "where",
    [
        "hostname=h port=99999999 startCode=1",
        "hostname=h port=65536 startCode=1",
        f"hostname={'h' * 300} port=1 startCode=1",
        f"hostname={'h' * 100} port=1 startCode=1",
        "hostname=a..b port=1 startCode=1",
        "hostname=\0 port=1 startCode=1",
        f"hostname=h port=1 startCode={'9' * 5000}",
    ],
)
def test_a_place_that_is_none_is_not_gone_to(told: Callable[..., str], where: str) -> None:
    """Python refuses such names and ports in ways of its own."""
    assert re.search(r"nowhere|cannot|unknown|nobody", told(where))


@pytest.mark.parametrize("beyond", [-(2**16), 2**16, 2**32])
def test_a_port_that_is_none_is_not_cut_to_another(beyond: int) -> None:
    """A registry tells it as a number, of which the system's resolver takes the lowest 16 bits."""
    with FakeHBase(lambda _: PROCESSED) as fake:
        wrong = SimpleNamespace(server=fake.server._replace(port=fake.port + beyond))
        client = client_of(wrong, options="timeout_s=1&retry_s=0")
        client.calls.locations._look_up = _nowhere  # type: ignore[method-assign, assignment]
        with pytest.raises(StorageUnavailable):
            client.mutate("t", PUT)
        client.close()
        assert not fake.openings


def test_a_scan_that_goes_back_is_refused() -> None:
    """It would go round and round."""

    def script(_: Call) -> Reply:
        body = message("ScanResponse", cells_per_result=[1], more_results=True)
        return Reply(body.SerializeToString(), encode(b"k", b"f", b"q", 1, b"v"))

    with FakeHBase(script) as fake:
        client = client_of(fake)
        scanner = Scanner(client.calls, "t", KeyRange(b"", b""), Selection())
        page = scanner.page(scanner.start(), 10)
        assert page.position is not None
        with pytest.raises(StorageUnavailable, match="goes back from b'k' to b'k'"):
            scanner.page(page.position, 10)
        client.close()
